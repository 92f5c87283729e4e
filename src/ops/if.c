/* If: runs one of two graphs, which may use values of the graphs around them, and returns the
 * results of that graph. Source: ONNX operator spec. A result has the type that both branches agree
 * on. */
#include "ops/shared.h"

static const ir_graph *branch(const ir_node *node, bool condition) {
    return ir_attr_get(node, condition ? "then_branch" : "else_branch")->graph;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    for (int i = 0; i < 2; i++) {
        const ir_graph *graph = branch(node, i);
        if (!graph || !graph->ret)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "a branch is missing");
        if (graph->n_inputs != 0 || graph->ret->n_inputs != node->n_outputs)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "a branch has %d inputs and %d results, expected 0 and %d", graph->n_inputs,
                    graph->ret->n_inputs, node->n_outputs);
    }
    return GQAC_OK;
}

static gqac_status join_elements(ir_node *node, int i, gqac_diag *diag) {
    const ir_dim *a[OP_MAX_ELEMENTS], *b[OP_MAX_ELEMENTS];
    int64_t n = op_elements(branch(node, true)->ret, i, OP_MAX_ELEMENTS, a);
    if (n < 0 || op_elements(branch(node, false)->ret, i, OP_MAX_ELEMENTS, b) != n)
        return GQAC_OK;
    for (int64_t k = 0; k < n; k++)
        a[k] = a[k] == b[k] ? a[k] : NULL;
    return op_set_elements(node, i, n, a, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(verify(node, diag));
    GQAC_TRY(op_check_dtype(node, 0, OP_BIT(BOOL), diag));
    GQAC_TRY(op_check_single(node, 0, diag));
    for (int i = 0; i < node->n_outputs; i++) {
        ir_type a = op_in_type(branch(node, true)->ret, i);
        ir_type b = op_in_type(branch(node, false)->ret, i);
        const ir_dim *dims[GQAC_MAX_RANK];
        if (a.dtype != GQAC_NONE && b.dtype != GQAC_NONE && a.dtype != b.dtype)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                    "output %d is %s in one branch, %s in the other", i, gqac_dtype_name(a.dtype),
                    gqac_dtype_name(b.dtype));
        int rank = a.rank == b.rank ? a.rank : -1;
        for (int k = 0; k < rank; k++)
            dims[k] = a.dims[k] == b.dims[k] ? a.dims[k] : NULL;
        gqac_dtype dtype = a.dtype != GQAC_NONE ? a.dtype : b.dtype;
        GQAC_TRY(op_set_type(node, i, dtype, rank, dims, diag));
        GQAC_TRY(join_elements(node, i, diag));
    }
    return GQAC_OK;
}

/* The outputs are the branch's results themselves: nothing is copied. */
static gqac_status eval(op_call *call) {
    int64_t condition;
    GQAC_TRY(verify(call->node, call->diag));
    GQAC_TRY(op_want(call, 0, GQAC_BOOL));
    GQAC_TRY(op_int(call, 0, &condition));
    return call->run_graph(call, branch(call->node, condition != 0), 0, NULL, call->out);
}

static const ir_attr_spec attrs[] = {
    {.name = "then_branch",
     .kind = IR_ATTR_GRAPH,
     .required = true,
     .doc = "run when cond is true"},
    {.name = "else_branch", .kind = IR_ATTR_GRAPH, .required = true, .doc = "run otherwise"},
    {.name = NULL},
};

const gqac_op gqac_op_if = {
    .schema = {.name = "If",
               .domain = "",
               .since = 16,
               .inputs = "cond",
               .outputs = "outputs+",
               .attrs = attrs,
               .flags = IR_OP_NO_FOLD,
               .rows = IR_ROWS_SHAPE,
               .doc = "one of two graphs"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
