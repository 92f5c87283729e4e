/* See support_graph.h. */
#include "support_graph.h"

#include <string.h>

#include "ops/shared.h"

bool graph_run_open(graph_run *run, const char *domain, const char *name, int n_inputs,
                    const gqac_tensor *const *inputs, int n_outputs) {
    memset(run, 0, sizeof *run);
    run->arena = gqac_arena_create(0);
    run->module = run->arena ? ir_module_create(run->arena, "test") : NULL;
    if (!run->module)
        return false;
    run->module->graph = ir_graph_create(run->module, "test");
    if (!run->module->graph)
        return false;
    run->n_inputs = n_inputs;
    run->n_results = n_outputs;
    for (int i = 0; i < n_inputs; i++)
        if (inputs[i]) {
            run->inputs[i] = *inputs[i];
            run->values[i] = ir_graph_add_input(run->module->graph, "x",
                                                ir_type_of_tensor(run->module, inputs[i]));
        }
    ir_builder b = {.graph = run->module->graph, .diag = &run->diag};
    run->node = op_build(&b, domain, name, n_inputs, run->values, n_outputs);
    if (run->node)
        ir_graph_set_results(run->module->graph, n_outputs, run->node->outputs, NULL);
    return run->node != NULL;
}

void graph_run_close(graph_run *run) {
    gqac_arena_free(run->arena);
}

gqac_status graph_run_check(graph_run *run) {
    const gqac_op *op = op_of(run->node);
    if (op->verify)
        GQAC_TRY(op->verify(run->node, &run->diag));
    return op_infer(run->node, &run->diag);
}

static gqac_status expand_one(graph_run *run, ir_node *node, const op_options *options) {
    ir_value *results[8] = {NULL};
    ir_node *prev = node->prev;
    ir_builder b = {.graph = node->graph, .before = node, .diag = &run->diag};
    op_of(node)->expand(&b, node, options, results);
    if (b.status != GQAC_OK)
        return b.status;
    for (ir_node *n = prev ? prev->next : node->graph->first; n != node; n = n->next) {
        if (op_of(n)->verify)
            GQAC_TRY(op_of(n)->verify(n, &run->diag));
        GQAC_TRY(op_infer(n, &run->diag));
    }
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && results[i])
            ir_value_replace(node->outputs[i], results[i]);
    ir_node_remove(node);
    return GQAC_OK;
}

gqac_status graph_run_expand(graph_run *run, const op_options *options) {
    static const op_options none;
    ir_node *next;
    for (ir_node *n = run->module->graph->first; n; n = next) {
        next = n->next;
        ir_node *prev = n->prev;
        if (!op_of(n)->expand)
            continue;
        GQAC_TRY(expand_one(run, n, options ? options : &none));
        next = prev ? prev->next : run->module->graph->first;
    }
    return ir_verify(run->module, &run->diag);
}

static gqac_status alloc_output(op_call *call, int index, gqac_dtype dtype, int rank,
                                const int64_t *dims) {
    size_t bytes;
    GQAC_TRY(gqac_shape_bytes(dtype, rank, dims, &bytes, call->diag));
    gqac_tensor *out = &call->out[index];
    memset(out, 0, sizeof *out);
    out->dtype = dtype;
    out->rank = rank;
    for (int i = 0; i < rank; i++)
        out->dims[i] = dims[i];
    out->data = gqac_arena_alloc(call->host, bytes + 1);
    if (!out->data)
        return gqac_diag_oom(call->diag, "an output");
    memset(out->data, 0xff, bytes);
    return GQAC_OK;
}

static gqac_status eval_node(graph_run *run, ir_node *node, gqac_tensor *values, gqac_pool *pool) {
    const gqac_tensor *in[32] = {NULL};
    gqac_tensor out[8];
    memset(out, 0, sizeof out);
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i].value) {
            const ir_value *value = node->inputs[i].value;
            in[i] = value->constant ? value->constant : &values[value->id];
        }
    op_call call = {.node = node,
                    .in = in,
                    .out = out,
                    .pool = pool,
                    .diag = &run->diag,
                    .host = run->arena,
                    .alloc = alloc_output};
    GQAC_TRY(op_of(node)->eval(&call));
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            values[node->outputs[i]->id] = out[i];
    return GQAC_OK;
}

gqac_status graph_run_eval(graph_run *run, gqac_pool *pool) {
    ir_graph *graph = run->module->graph;
    int n = 0;
    for (int i = 0; i < graph->n_inputs; i++)
        graph->inputs[i]->id = n++;
    for (ir_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->n_outputs; i++)
            if (node->outputs[i])
                node->outputs[i]->id = n++;
    gqac_tensor *values = GQAC_ARENA_ARRAY(run->arena, gqac_tensor, (size_t)n + 1);
    for (int i = 0; i < run->n_inputs; i++)
        if (run->values[i])
            values[run->values[i]->id] = run->inputs[i];
    for (ir_node *node = graph->first; node; node = node->next)
        GQAC_TRY(eval_node(run, node, values, pool));
    for (int i = 0; i < run->n_results; i++)
        if (graph->ret->inputs[i].value)
            run->results[i] = values[graph->ret->inputs[i].value->id];
    return GQAC_OK;
}

gqac_status graph_run_all(graph_run *run, const op_options *options, gqac_pool *pool) {
    GQAC_TRY(graph_run_check(run));
    GQAC_TRY(graph_run_expand(run, options));
    return graph_run_eval(run, pool);
}

uint32_t test_random_bits(test_random *random) {
    random->state = random->state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = random->state ^ (random->state >> 29);
    return (uint32_t)((x * 0x9e3779b97f4a7c15u) >> 32);
}

int test_random_int(test_random *random, int lo, int hi) {
    return lo + (int)(test_random_bits(random) % (uint32_t)(hi - lo + 1));
}

float test_random_float(test_random *random) {
    float sum = 0;
    for (int i = 0; i < 6; i++)
        sum += (float)(test_random_bits(random) >> 8) * 0x1p-24f - 0.5f;
    return sum * 1.4f;
}

gqac_tensor test_tensor(gqac_arena *arena, gqac_dtype dtype, int rank, const int64_t *dims) {
    gqac_tensor t = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        t.dims[i] = dims[i];
    t.data = gqac_arena_calloc(arena, 1, gqac_tensor_bytes(&t) + 1);
    return t;
}

gqac_tensor test_floats(gqac_arena *arena, gqac_dtype dtype, int rank, const int64_t *dims,
                        test_random *random) {
    gqac_tensor t = test_tensor(arena, dtype, rank, dims);
    for (int64_t i = 0; i < gqac_tensor_count(&t); i++)
        op_put_f32(&t, i, test_random_float(random));
    return t;
}

gqac_tensor test_ints(gqac_arena *arena, gqac_dtype dtype, int rank, const int64_t *dims,
                      const int64_t *values) {
    gqac_tensor t = test_tensor(arena, dtype, rank, dims);
    for (int64_t i = 0; i < gqac_tensor_count(&t); i++)
        op_put_i64(&t, i, values[i]);
    return t;
}
