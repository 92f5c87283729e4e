/* Contexts: creation, who observes and monitors their runs, and the logits of the last step. */
#include "runtime/context.h"

#include "base/alloc.h"
#include "base/log.h"

static gqac_status create(const gqac_program *program, int threads, gqac_threads *shared,
                          gqac_context **context, gqac_diag *diag) {
    gqac_context *c = gqac_calloc(1, sizeof *c);
    if (!c)
        return gqac_diag_oom(diag, "a context");
    c->program = program;
    c->items.budget = c->group.budget = c->logits.budget = program->budget;
    c->top.budget = c->logit_rows.budget = program->budget;
    gqac_status status = exec_create(program, threads, shared, &c->exec, diag);
    if (status != GQAC_OK) {
        gqac_free(c);
        return status;
    }
    gqac_log_line(&program->log, GQAC_LOG_DEBUG, "context on %d threads",
                  gqac_pool_threads(c->exec.pool));
    *context = c;
    return GQAC_OK;
}

gqac_status gqac_context_create(const gqac_program *program, int threads, gqac_context **context,
                                gqac_diag *diag) {
    return create(program, threads, NULL, context, diag);
}

gqac_status gqac_context_create_on(const gqac_program *program, gqac_threads *threads,
                                   gqac_context **context, gqac_diag *diag) {
    if (!threads)
        GQAC_FAIL(diag, GQAC_USAGE, "a context needs threads, but they are NULL");
    return create(program, 0, threads, context, diag);
}

const gqac_program *gqac_context_program(const gqac_context *context) {
    return context->program;
}

static void drop_buffers(gqac_context *c) {
    exec_drop(&c->items);
    exec_drop(&c->group);
    exec_drop(&c->logits);
    exec_drop(&c->top);
    exec_drop(&c->logit_rows);
}

/* The next step reserves its blocks first: without spare bytes, a slab of several blocks could take
 * what the step itself needs. */
void gqac_context_trim(gqac_context *context) {
    const gqac_context *c = context;
    gqac_budget_spare(c->program->budget, exec_bytes(&c->exec) + c->items.capacity +
                                              c->group.capacity + c->logits.capacity +
                                              c->top.capacity + c->logit_rows.capacity);
    exec_trim(&context->exec);
    drop_buffers(context);
    context->n_logits = 0;
    context->ran = false;
}

void gqac_context_free(gqac_context *context) {
    if (!context)
        return;
    context_free_parameters(context);
    exec_destroy(&context->exec);
    drop_buffers(context);
    gqac_free(context);
}

static void observe_node(const gqac_context *c, const exec *e, const ir_node *node) {
    if (node->op->flags & IR_OP_EFFECT) /* rows in the form of the target's cache */
        return;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && (!node->fused_into || ir_value_escapes(node->outputs[i])))
            c->observer(c->observer_arg,
                        &(gqac_observed){.size = sizeof(gqac_observed),
                                         .value = node->outputs[i]->origin,
                                         .node = ir_node_label(node),
                                         .op = node->op->name,
                                         .kernel = node->kernel ? node->kernel : "",
                                         .tensor = &e->values[node->outputs[i]->id]});
}

/* Shows the node that just ran, and before it the nodes of its group, which precede it in the
 * graph. */
static void observe_group(void *arg, const exec *e, const ir_node *node) {
    const ir_node *first = node;
    while (first->prev && first->prev->fused_into == node)
        first = first->prev;
    for (; first != node->next; first = first->next)
        observe_node(arg, e, first);
}

void gqac_context_observe(gqac_context *context, gqac_observer *observer, void *arg) {
    context->observer = observer;
    context->observer_arg = arg;
    context->exec.observe = observer ? observe_group : NULL;
    context->exec.observe_arg = context;
}

gqac_status gqac_context_set_monitor(gqac_context *context, const gqac_monitor *monitor,
                                     gqac_monitor *before, gqac_diag *diag) {
    return gqac_poll_set(&context->exec.poll, monitor, before, diag);
}

const float *gqac_context_logits(const gqac_context *context, int i, int64_t *rows,
                                 int64_t *vocabulary) {
    if (i < 0 || i >= context->n_logits)
        return NULL;
    const context_rows *of = (const context_rows *)context->logit_rows.data + i;
    *rows = of->count;
    *vocabulary = context->vocabulary;
    return of->count && !of->top ? context->rows + of->first * *vocabulary : NULL;
}

const gqac_candidate *gqac_context_top(const gqac_context *context, int i, int64_t *rows,
                                       int64_t *n) {
    if (i < 0 || i >= context->n_logits)
        return NULL;
    const context_rows *of = (const context_rows *)context->logit_rows.data + i;
    if (!of->count || !of->top)
        return NULL;
    *rows = of->count;
    *n = context->n_top;
    return (const gqac_candidate *)context->top.data + of->first * *n;
}

gqac_status context_check_files(const gqac_context *context, gqac_diag *diag) {
    const gqac_program *p = context->program;
    if (!p->whole || p->whole(p->backing))
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_IO, "a mapped file was truncated");
    gqac_diag_rule(diag, "files of a model must not be truncated while they are in use");
    gqac_diag_hint(diag, "to replace a file, write a new one and rename it");
    return GQAC_IO;
}
