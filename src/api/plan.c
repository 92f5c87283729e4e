/* What a decode step costs: its kernels, as they really ran.
 *
 * A sequence is filled with rows of zeros, then one token is appended on two threads, and the
 * executor reports each node that ran. Shapes are those of that call. Bytes are the minimum that a
 * node must read and write: each operand once; of tables (embeddings, rotary tables) only the
 * token's rows; of the cache only visible rows; states are read once and written once. Values
 * inside a group that one kernel computes cost nothing. */
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "ops/op.h"
#include "runtime/context.h"
#include "targets/bind.h"

enum { PLAN_THREADS = 2 }; /* more threads would not add barriers */

typedef struct plan {
    gqac_plan public; /* first: the handle points here */
    gqac_arena *arena;
    const gqac_program *program;
    gqac_context *context;
    gqac_sequence *sequence;
    gqac_plan_step *steps;
    const ir_node **nodes; /* of the steps */
    int n_steps, most_steps;
    size_t regions; /* regions of the pool when the last step ended */
} plan;

/* ---- groups -------------------------------------------------------------- */

static bool in_group(const ir_node *node, const ir_node *root) {
    return node && (node == root || node->fused_into == root);
}

static bool makes_rows(const ir_value *value) {
    return value->def && op_is(value->def, "gqac", "kv_append");
}

/* Number of rows of the constant operand i that a call reads; -1: all. */
static int64_t rows_read(const plan *p, const ir_node *node, int i) {
    char name[64];
    ir_schema_name(node->op->inputs, i, name, sizeof name);
    if (!strncmp(name, "cos", 3) || !strncmp(name, "sin", 3))
        return 1;
    const ir_value *indices = ir_node_input(node, 1);
    if (strncmp(node->op->name, "Gather", 6) != 0 || !indices || indices->constant)
        return -1;
    return gqac_tensor_count(&p->context->exec.values[indices->id]);
}

static int64_t constant_bytes(const plan *p, const ir_node *node, int i) {
    const gqac_tensor *t = node->inputs[i].value->constant;
    const int64_t bytes = (int64_t)gqac_tensor_bytes(t), rows = rows_read(p, node, i);
    const int64_t all = t->rank ? t->dims[0] : 1;
    return rows >= 0 && rows < all ? bytes / all * rows : bytes;
}

/* Bytes of the cached rows that a kernel reads: the newest `window`, if it has a window; for a
 * convolution, the taps before the new token. */
static int64_t cache_bytes(const plan *p, const ir_node *node, const gqac_tensor *rows) {
    const int64_t bytes = (int64_t)gqac_tensor_bytes(rows), past = p->public.past;
    const int64_t length = rows->rank == 4 ? rows->dims[2] : 0;
    if (length && op_is(node, "gqac", "kv_tail")) {
        const int64_t taps = ir_attr_int(node, "length");
        return bytes / length * (taps < past ? taps : past);
    }
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++) {
        const ir_attr *a = &node->attrs[spec - node->op->attrs];
        if (!strcmp(spec->name, "window") && a->i >= 1 && a->i < length)
            return bytes / length * a->i;
    }
    return bytes;
}

/* True if an operand counts: a value that several operands of a group read is counted once. */
static bool counts(const ir_use *operand, const ir_node *root) {
    for (const ir_use *use = operand->value->uses; use; use = use->next)
        if (in_group(use->node, root))
            return use == operand;
    return true;
}

static void add_inputs(plan *p, gqac_plan_step *step, const ir_node *root, const ir_node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *value = node->inputs[i].value;
        if (!value || in_group(value->def, root) || !counts(&node->inputs[i], root))
            continue;
        const gqac_tensor *t = &p->context->exec.values[value->id];
        if (value->constant)
            step->weight_bytes += constant_bytes(p, node, i);
        else if (makes_rows(value) && value->type.dtype != GQAC_TOKEN)
            step->cache_bytes += cache_bytes(p, node, t);
        else if (t->dtype != GQAC_NONE && t->dtype != GQAC_TOKEN)
            step->input_bytes += (int64_t)gqac_tensor_bytes(t);
    }
}

static void add_outputs(plan *p, gqac_plan_step *step, const ir_node *node) {
    const bool appends = op_is(node, "gqac", "kv_append");
    for (int i = 0; i < node->n_outputs; i++) {
        const ir_value *value = node->outputs[i];
        if (!value || value->type.dtype == GQAC_TOKEN || !ir_value_escapes(value))
            continue;
        const gqac_tensor *t = &p->context->exec.values[value->id];
        if (t->dtype == GQAC_NONE || t->dtype == GQAC_TOKEN)
            continue;
        if (appends && t->data) /* the rows are gathered from the cache */
            step->cache_bytes += (int64_t)gqac_tensor_bytes(t);
        if (t->data) /* the value has memory of its own */
            step->output_bytes += (int64_t)gqac_tensor_bytes(t);
    }
    if (!appends || !node->outputs[1])
        return;
    const gqac_tensor *rows = &p->context->exec.values[node->outputs[1]->id]; /* past and new */
    if (rows->rank == 4 && rows->dims[2] > 0)
        step->cache_bytes += (int64_t)gqac_tensor_bytes(rows) / rows->dims[2];
}

/* Adds the state before the token, if any, and the one after it. */
static void add_states(const plan *p, gqac_plan_step *step, const ir_node *node) {
    const int slot = bind_recurrent_slot(node);
    size_t bytes = 0;
    if (slot >= 0 && sequence_slot_bytes(&p->program->kv[slot], 1, &bytes))
        step->cache_bytes += (p->public.past ? 2 : 1) * (int64_t)bytes;
}

/* ---- one step ------------------------------------------------------------ */

static const char *shape_text(plan *p, const gqac_tensor *t) {
    gqac_str text = {0};
    gqac_str_append(&text, "[");
    for (int i = 0; i < t->rank; i++)
        gqac_str_printf(&text, "%s%lld", i ? "," : "", (long long)t->dims[i]);
    gqac_str_append(&text, "]");
    const char *copy = text.failed ? NULL : gqac_arena_strdup(p->arena, text.text);
    gqac_str_free(&text);
    return copy;
}

static gqac_status describe(plan *p, gqac_plan_step *step, const ir_node *root, gqac_diag *diag) {
    int n_fused = 0;
    step->node = ir_node_label(root);
    step->op = root->op->name;
    step->kernel = root->kernel ? root->kernel : "";
    step->shape = "";
    for (int i = 0; i < root->n_outputs && !*step->shape; i++) {
        const ir_value *v = root->outputs[i];
        if (!v || v->type.dtype == GQAC_TOKEN)
            continue;
        step->dtype = p->context->exec.values[v->id].dtype;
        step->shape = shape_text(p, &p->context->exec.values[v->id]);
        if (!step->shape)
            return gqac_diag_oom(diag, "a plan");
    }
    for (const ir_node *n = root->prev; n; n = n->prev)
        n_fused += n->fused_into == root;
    const char **fused = GQAC_ARENA_ARRAY(p->arena, const char *, (size_t)n_fused + 1);
    if (!fused)
        return gqac_diag_oom(diag, "a plan");
    add_inputs(p, step, root, root);
    add_outputs(p, step, root);
    add_states(p, step, root);
    int at = n_fused;
    for (const ir_node *n = root->prev; n && at; n = n->prev) {
        if (n->fused_into != root)
            continue;
        fused[--at] = n->op->name;
        add_inputs(p, step, root, n);
        add_outputs(p, step, n);
    }
    step->n_fused = n_fused;
    step->fused = fused;
    return GQAC_OK;
}

static const ir_node *first_to_run(const ir_graph *graph) {
    const ir_node *node = graph->first;
    while (node && node->fused_into)
        node = node->next;
    return node;
}

/* Records a node that ran. Regions of nested graphs count for the node that holds them. Conditions
 * of rope tables are computed before the step, by some nodes of the graph; the step begins with the
 * first node. */
static void note(void *arg, const exec *e, const ir_node *node) {
    plan *p = arg;
    const ir_graph *graph = p->program->module->graph;
    const size_t regions = gqac_pool_regions(e->pool);
    if (node->graph != graph)
        return;
    if (node == first_to_run(graph))
        p->n_steps = 0;
    if (p->n_steps == p->most_steps)
        return;
    p->nodes[p->n_steps] = node;
    p->steps[p->n_steps++].barriers = (int)(regions - p->regions);
    p->regions = regions;
}

/* ---- the run ------------------------------------------------------------- */

static gqac_status fill_cache(plan *p, int64_t past, gqac_diag *diag) {
    const int n = p->program->n_kv;
    const char **names = GQAC_ARENA_ARRAY(p->arena, const char *, (size_t)n + 1);
    gqac_tensor *tensors = GQAC_ARENA_ARRAY(p->arena, gqac_tensor, (size_t)n + 1);
    size_t most = 0;
    if (!names || !tensors)
        return gqac_diag_oom(diag, "a plan");
    for (int i = 0; i < n; i++) {
        const gqac_kv_pair *pair = &p->program->kv_pairs[i];
        size_t bytes = 0;
        names[i] = pair->past;
        tensors[i] =
            (gqac_tensor){.dtype = pair->dtype,
                          .rank = 4,
                          .dims = {1, pair->heads, gqac_kv_pair_rows(pair, past), pair->head_size}};
        GQAC_TRY(gqac_shape_bytes(pair->dtype, 4, tensors[i].dims, &bytes, diag));
        most = bytes > most ? bytes : most;
    }
    void *zeros = gqac_calloc(1, most + 1); /* all pairs read the same zeros */
    if (!zeros)
        return gqac_diag_oom(diag, "cached rows");
    for (int i = 0; i < n; i++)
        tensors[i].data = zeros;
    gqac_status status = sequence_import(p->sequence, past, n, names, tensors, diag);
    gqac_free(zeros);
    return status;
}

static gqac_status run_token(plan *p, int64_t past, gqac_diag *diag) {
    const gqac_sequence_options options = {.size = sizeof options, .final_length = past + 1};
    const int64_t id = 0;
    for (const ir_node *node = p->program->module->graph->first; node; node = node->next)
        p->most_steps++;
    const size_t n = (size_t)p->most_steps;
    p->steps = GQAC_ARENA_ARRAY(p->arena, gqac_plan_step, n + 1);
    p->nodes = GQAC_ARENA_ARRAY(p->arena, const ir_node *, n + 1);
    if (!p->steps || !p->nodes)
        return gqac_diag_oom(diag, "a plan");
    memset(p->steps, 0, (n + 1) * sizeof *p->steps);
    GQAC_TRY(gqac_context_create(p->program, PLAN_THREADS, &p->context, diag));
    GQAC_TRY(gqac_sequence_create(p->program, &options, &p->sequence, diag));
    if (past)
        GQAC_TRY(fill_cache(p, past, diag));
    p->context->exec.observe = note;
    p->context->exec.observe_arg = p;
    const int64_t width = gqac_program_embedding_size(p->program);
    const float *zeros = width ? GQAC_ARENA_ARRAY(p->arena, float, (size_t)width) : NULL;
    if (width && !zeros)
        return gqac_diag_oom(diag, "a plan");
    const gqac_step_item item = {.size = sizeof item,
                                 .sequence = p->sequence,
                                 .tokens = &id,
                                 .count = 1,
                                 .n_logits = 1,
                                 .embeddings = zeros};
    return gqac_step(p->context, 1, &item, diag);
}

static gqac_status fill(plan *p, int64_t past, gqac_diag *diag) {
    gqac_plan *out = &p->public;
    out->past = past;
    GQAC_TRY(run_token(p, past, diag));
    for (int i = 0; i < p->n_steps; i++) {
        gqac_plan_step *s = &p->steps[i];
        s->size = sizeof *s;
        GQAC_TRY(describe(p, s, p->nodes[i], diag));
        out->total.weight_bytes += s->weight_bytes;
        out->total.cache_bytes += s->cache_bytes;
        out->total.input_bytes += s->input_bytes;
        out->total.output_bytes += s->output_bytes;
        out->total.barriers += s->barriers;
        out->total.n_fused += s->n_fused;
    }
    out->size = sizeof *out;
    out->total.size = sizeof out->total;
    out->n_steps = p->n_steps;
    out->steps = p->steps;
    return GQAC_OK;
}

static void close_run(plan *p) {
    gqac_sequence_free(p->sequence);
    gqac_context_free(p->context);
    p->sequence = NULL;
    p->context = NULL;
}

gqac_status gqac_plan_open(const gqac_program *program, int64_t past, gqac_plan **result,
                           gqac_diag *diag) {
    if (past < 0 || past >= INT32_MAX)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE,
                  "%lld cached tokens are out of range: must be 0 to 2147483646", (long long)past);
    plan *p = gqac_calloc(1, sizeof *p);
    if (!p)
        return gqac_diag_oom(diag, "a plan");
    p->program = program;
    p->arena = gqac_arena_create(0);
    gqac_status status = p->arena ? fill(p, past, diag) : gqac_diag_oom(diag, "a plan");
    close_run(p);
    if (status == GQAC_OK)
        *result = &p->public;
    else
        gqac_plan_free(&p->public);
    return status;
}

void gqac_plan_free(gqac_plan *result) {
    plan *p = (plan *)(void *)result;
    if (!p)
        return;
    gqac_arena_free(p->arena);
    gqac_free(p);
}
