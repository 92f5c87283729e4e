/* Runs the pipeline: checks the request and the conditions of each pass, and after each pass
 * verifies the graph and sweeps dead nodes. Facts that can be checked in the graph are checked
 * after the pass that provides them. If the needs of a pass do not hold, that is a defect of gqac,
 * unless the user disabled a pass. */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "passes/rewrite.h"

enum { MAX_ROUNDS = 64 }; /* of claim and expand; each round expands one level of composites */

typedef struct runner {
    pass_context *context;
    const pass_request *request;
    const gqac_pass *const *passes; /* in order; ends with NULL */
    bool stopped;
} runner;

/* ---- facts --------------------------------------------------------------- */

static gqac_status is_onnx(void *arg, ir_node *node) {
    (void)arg;
    return strcmp(node->op->domain, "gqac") == 0 ? GQAC_MISMATCH : GQAC_OK;
}

static gqac_status is_lowered(void *arg, ir_node *node) {
    (void)arg;
    return node->op->flags & IR_OP_LOWER ? GQAC_MISMATCH : GQAC_OK;
}

static gqac_status is_claimed(void *arg, ir_node *node) {
    (void)arg;
    return node->kernel && node->claim ? GQAC_OK : GQAC_MISMATCH;
}

/* `holds` fails for a node that contradicts the fact; NULL: the fact is not checked. */
static const struct fact {
    unsigned bit;
    const char *name;
    ir_node_visitor *holds;
} facts[] = {
    {PASS_TYPED, "typed", NULL},           {PASS_LOWERED, "lowered", is_lowered},
    {PASS_STATEFUL, "stateful", NULL},     {PASS_CLAIMED, "claimed", is_claimed},
    {PASS_ORDERED, "ordered", NULL},       {PASS_PLANNED, "planned", NULL},
    {PASS_ONNX, "only ONNX ops", is_onnx}, {PASS_RAISED, "raised", NULL},
};
enum { N_FACTS = sizeof facts / sizeof *facts };

/* Those facts in `bits` that hold, as far as they can be checked. */
static unsigned checked(const ir_module *module, unsigned bits) {
    for (int i = 0; i < N_FACTS; i++)
        if (bits & facts[i].bit && facts[i].holds &&
            ir_graph_walk(module->graph, facts[i].holds, NULL) != GQAC_OK)
            bits &= ~facts[i].bit;
    return bits;
}

static const char *fact_name(unsigned bits) {
    for (int i = 0; i < N_FACTS; i++)
        if (bits & facts[i].bit)
            return facts[i].name;
    return "?";
}

/* ---- the request --------------------------------------------------------- */

static bool scheduled(const runner *r, const gqac_pass *pass) {
    return (r->request->stateful || !pass->sequences) &&
           !pass_listed(r->request->disable, pass->name);
}

static bool is_last(const runner *r, const gqac_pass *pass) {
    return r->request->stop_after && strcmp(r->request->stop_after, pass->name) == 0;
}

static const gqac_pass *find_pass(const runner *r, const char *name) {
    for (int i = 0; r->passes[i]; i++)
        if (strcmp(r->passes[i]->name, name) == 0)
            return r->passes[i];
    return NULL;
}

static gqac_status unknown_pass(const runner *r, const char *name) {
    gqac_diag *diag = r->context->diag;
    gqac_str known = {0};
    for (int i = 0; r->passes[i]; i++)
        gqac_str_printf(&known, "%s%s", i ? " " : "", r->passes[i]->name);
    gqac_diag_set(diag, GQAC_USAGE, "there is no pass '%s'", name);
    if (!known.failed)
        gqac_diag_rule(diag, "passes: %s", known.text);
    gqac_str_free(&known);
    return GQAC_USAGE;
}

static gqac_status check_names(const runner *r) {
    for (const char *const *name = r->request->disable; name && *name; name++)
        if (!find_pass(r, *name))
            return unknown_pass(r, *name);
    if (!r->request->stop_after)
        return GQAC_OK;
    const gqac_pass *last = find_pass(r, r->request->stop_after);
    if (!last)
        return unknown_pass(r, r->request->stop_after);
    if (!scheduled(r, last))
        GQAC_FAIL(r->context->diag, GQAC_USAGE, "cannot stop after pass '%s': it does not run here",
                  last->name);
    return GQAC_OK;
}

/* The disabled pass that would have provided a fact. */
static const gqac_pass *provider(const runner *r, unsigned bit) {
    for (int i = 0; r->passes[i]; i++)
        if (r->passes[i]->provides & bit && pass_listed(r->request->disable, r->passes[i]->name))
            return r->passes[i];
    return NULL;
}

static gqac_status needs_not_met(const runner *r, const gqac_pass *pass, unsigned missing) {
    gqac_diag *diag = r->context->diag;
    for (int k = 0; k < N_FACTS; k++) {
        const gqac_pass *by = (missing & facts[k].bit) ? provider(r, facts[k].bit) : NULL;
        if (!by)
            continue;
        gqac_diag_set(diag, GQAC_USAGE, "pass '%s' cannot be disabled", by->name);
        gqac_diag_rule(diag, "pass '%s' needs the graph %s", pass->name, facts[k].name);
        return GQAC_USAGE;
    }
    GQAC_FAIL(diag, GQAC_INTERNAL,
              "pass '%s' needs the graph %s, and no pass before it provides that", pass->name,
              fact_name(missing));
}

/* Checks the passes that will run, in order. What a pass with `again` breaks is provided again by
 * the passes that it returns to. */
static gqac_status check_needs(const runner *r, unsigned have) {
    for (int i = 0; r->passes[i]; i++) {
        const gqac_pass *pass = r->passes[i];
        if (!scheduled(r, pass))
            continue;
        if (pass->needs & ~have)
            return needs_not_met(r, pass, pass->needs & ~have);
        have = (have & ~(pass->again ? 0 : pass->breaks)) | pass->provides;
        if (is_last(r, pass))
            break;
    }
    return GQAC_OK;
}

/* ---- running ------------------------------------------------------------- */

static gqac_status check_graph(const pass_context *context) {
    if (ir_dims_failed(context->module->dims))
        return gqac_diag_oom(context->diag, "dimensions");
    return ir_verify(context->module, context->diag);
}

gqac_status pass_run(pass_context *context, const gqac_pass *pass) {
    context->changed = 0;
    context->scratch = gqac_arena_create(0);
    if (!context->scratch)
        return gqac_diag_oom(context->diag, "a pass");
    gqac_status status = pass->run ? pass->run(context)
                                   : ir_graph_walk(context->module->graph, pass->visit, context);
    gqac_arena_free(context->scratch);
    context->scratch = NULL;
    return status;
}

static gqac_status run_checked(const runner *r, const gqac_pass *pass) {
    pass_context *context = r->context;
    const unsigned missing = pass->needs & ~context->facts;
    if (missing) {
        const bool chosen = r->request->disable && *r->request->disable;
        gqac_diag_set(context->diag, chosen ? GQAC_USAGE : GQAC_INTERNAL,
                      "pass '%s' needs the graph %s", pass->name, fact_name(missing));
        if (chosen)
            gqac_diag_hint(context->diag, "disable fewer passes");
        return chosen ? GQAC_USAGE : GQAC_INTERNAL;
    }
    GQAC_TRY(pass_run(context, pass));
    pass_sweep(context->module);
    GQAC_TRY(check_graph(context));
    if (context->changed)
        context->facts &= ~pass->breaks;
    context->facts |= checked(context->module, pass->provides);
    return GQAC_OK;
}

static gqac_status run_pass(runner *r, const gqac_pass *pass) {
    pass_context *context = r->context;
    GQAC_TRY(gqac_poll_add(context->poll, 0, context->diag));
    const double start = gqac_clock_seconds();
    gqac_status status = run_checked(r, pass);
    if (status != GQAC_OK) {
        gqac_diag_where(context->diag, "pass %s", pass->name);
        return status;
    }
    if (r->request->after)
        r->request->after(r->request->arg, pass->name, context->module,
                          gqac_clock_seconds() - start);
    r->stopped = is_last(r, pass);
    return GQAC_OK;
}

/* Decides where the loop continues after a pass that changed something. */
static gqac_status go_on(const runner *r, const gqac_pass *pass, int *rounds, int *at) {
    if (!pass->again || !scheduled(r, pass->again))
        return GQAC_OK;
    if (++*rounds == MAX_ROUNDS)
        GQAC_FAIL(r->context->diag, GQAC_INTERNAL, "pass '%s' does not terminate", pass->name);
    while (*at >= 0 && r->passes[*at] != pass->again)
        --*at;
    --*at;
    return GQAC_OK;
}

static gqac_status run_all(runner *r) {
    int rounds = 0;
    for (int i = 0; r->passes[i] && !r->stopped; i++) {
        const gqac_pass *pass = r->passes[i];
        if (!scheduled(r, pass))
            continue;
        GQAC_TRY(run_pass(r, pass));
        if (r->stopped || !r->context->changed)
            continue;
        const size_t changed = r->context->changed; /* changes by tidy are not counted */
        if (pass->retidy && scheduled(r, &pass_tidy))
            GQAC_TRY(run_pass(r, &pass_tidy));
        r->context->changed = changed;
        GQAC_TRY(go_on(r, pass, &rounds, &i));
    }
    return GQAC_OK;
}

gqac_status pass_run_list(pass_context *context, const pass_request *request,
                          const gqac_pass *const *passes) {
    runner r = {.context = context, .request = request, .passes = passes};
    context->disable = request->disable;
    context->options.for_sequences = request->stateful;
    GQAC_TRY(check_names(&r));
    context->facts = checked(context->module, PASS_ONNX);
    GQAC_TRY(check_needs(&r, context->facts));
    GQAC_TRY(check_graph(context));
    return run_all(&r);
}

gqac_status gqac_pipeline_run(pass_context *context, const pass_request *request) {
    return pass_run_list(context, request, gqac_pipeline);
}
