/* Finds ops; builds, types and evaluates single nodes through their rows.
 *
 * The table is small and searched by name only on import, parse and building, so the search is
 * linear; everything else uses node->op. */
#include "ops/op.h"

#include <string.h>

#include "ops/shared.h"

/* The schema of "return" belongs to ir.h; with this row it is found like any other op. */
static const gqac_op return_row = {
    .schema = {.name = "return",
               .domain = "gqac",
               .inputs = "results*",
               .outputs = "",
               .flags = IR_OP_RETURN,
               .rows = IR_ROWS_LOCAL,
               .doc = "results of a graph"},
};

bool op_expand_standard(ir_builder *b, ir_node *node, ir_value **results) {
    op_of(node)->expand(b, node, NULL, results);
    return true;
}

const gqac_op *op_find(const char *domain, const char *name) {
    if (strcmp(domain, "ai.onnx") == 0)
        domain = "";
    for (int i = 0; i < gqac_op_count; i++) {
        const ir_schema *schema = &gqac_op_table[i]->schema;
        if (strcmp(schema->name, name) == 0 && strcmp(schema->domain, domain) == 0)
            return gqac_op_table[i];
    }
    bool own = strcmp(domain, return_row.schema.domain) == 0;
    return own && strcmp(name, return_row.schema.name) == 0 ? &return_row : NULL;
}

const ir_schema *op_schema(const char *domain, const char *name) {
    const gqac_op *op = op_find(domain, name);
    if (!op)
        return NULL;
    return op == &return_row ? &ir_return_schema : &op->schema;
}

bool op_is(const ir_node *node, const char *domain, const char *name) {
    return strcmp(node->op->name, name) == 0 && strcmp(node->op->domain, domain) == 0;
}

const ir_attr *op_raw_take(const op_raw_attrs *raw, const char *name) {
    for (int i = 0; raw && i < raw->count; i++)
        if (strcmp(raw->names[i], name) == 0) {
            raw->taken[i] = true;
            return &raw->values[i];
        }
    return NULL;
}

ir_node *op_build(ir_builder *b, const char *domain, const char *name, int n_inputs,
                  ir_value *const *inputs, int n_outputs) {
    if (b->status != GQAC_OK)
        return NULL;
    const ir_schema *schema = op_schema(domain, name);
    if (!schema) {
        b->status = gqac_diag_set(b->diag, GQAC_INTERNAL, "there is no op '%s%s%s'", domain,
                                  *domain ? "." : "", name);
        return NULL;
    }
    return ir_build(b, schema, NULL, n_inputs, inputs, n_outputs);
}

/* Names the node in failures that op_fail did not report, such as NO_MEMORY. */
static gqac_status placed(const ir_node *node, gqac_diag *diag, gqac_status status) {
    if (status != GQAC_OK && diag && !diag->where[0])
        ir_node_where(node, diag);
    return status;
}

static gqac_status misplaced(const ir_node *node, const char *list, const char *kind, int index,
                             gqac_diag *diag) {
    char name[64];
    ir_schema_name(list, index, name, sizeof name);
    op_fail(node, diag, GQAC_INVALID_MODEL, "%s '%s' is a token", kind, name);
    gqac_diag_rule(diag, "a token orders effects; only operands declared as tokens may be one");
    return GQAC_INVALID_MODEL;
}

/* Effect tokens have no elements: only what a schema calls `token` may be one. */
static gqac_status check_tokens(const ir_node *node, gqac_diag *diag) {
    const bool effect = node->op->flags & IR_OP_EFFECT;
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *value = node->inputs[i].value;
        if (value && value->type.dtype == GQAC_TOKEN &&
            !(effect && i == ir_schema_index(node->op->inputs, "token")))
            return misplaced(node, node->op->inputs, "input", i, diag);
    }
    for (int i = 0; i < node->n_outputs; i++) {
        const ir_value *value = node->outputs[i];
        if (value && value->type.dtype == GQAC_TOKEN &&
            !(effect && i == ir_schema_index(node->op->outputs, "token")))
            return misplaced(node, node->op->outputs, "output", i, diag);
    }
    return GQAC_OK;
}

gqac_status op_infer(ir_node *node, gqac_diag *diag) {
    if (node->op->flags & IR_OP_RETURN)
        return GQAC_OK;
    GQAC_TRY(check_tokens(node, diag));
    return op_of(node)->infer ? placed(node, diag, op_of(node)->infer(node, diag)) : GQAC_OK;
}

/* ---- op_eval ------------------------------------------------------------- */

static gqac_status alloc_in_arena(op_call *call, int index, gqac_dtype dtype, int rank,
                                  const int64_t *dims) {
    size_t bytes;
    GQAC_TRY(gqac_shape_bytes(dtype, rank, dims, &bytes, call->diag));
    gqac_tensor *out = &call->out[index];
    out->dtype = dtype;
    out->rank = rank;
    for (int i = 0; i < rank; i++)
        out->dims[i] = dims[i];
    out->data = gqac_arena_alloc(call->host, bytes);
    if (!out->data)
        return gqac_diag_oom(call->diag, "an output");
#ifdef GQAC_TEST_ALLOC
    memset(out->data, 0xff, bytes); /* elements that an eval forgets to write stay NaN */
#endif
    return GQAC_OK;
}

static gqac_status no_nested_graphs(op_call *call, const ir_graph *graph, int n_args,
                                    const gqac_tensor *const *args, gqac_tensor *results) {
    (void)graph, (void)n_args, (void)args, (void)results;
    OP_FAIL(call->node, call->diag, GQAC_UNSUPPORTED, "a nested graph cannot be folded");
}

gqac_status op_eval(const ir_node *node, const gqac_tensor *const *in, gqac_tensor *out,
                    gqac_arena *arena, gqac_diag *diag) {
    return op_eval_within(node, in, out, arena, NULL, diag);
}

gqac_status op_eval_within(const ir_node *node, const gqac_tensor *const *in, gqac_tensor *out,
                           gqac_arena *arena, int64_t *left, gqac_diag *diag) {
    if ((node->op->flags & IR_OP_RETURN) || !op_of(node)->eval)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "this op has no evaluation of its own");
    op_call call = {.node = node,
                    .in = in,
                    .out = out,
                    .diag = diag,
                    .host = arena,
                    .alloc = alloc_in_arena,
                    .run_graph = no_nested_graphs,
                    .left = left};
    gqac_status status = op_of(node)->eval(&call);
    if (status == GQAC_OK && left && *left < 0)
        status = gqac_diag_set(diag, GQAC_LIMIT, "folding would take more work than its limit");
    return placed(node, diag, status);
}
