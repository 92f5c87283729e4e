/* x [B,S,(q+2kv)D] -> q [B,q,S,D], k, v [B,kv,S,D]: the heads of a packed projection, in the order
 * queries, keys, values. kv = 0: x [B,S,qD] -> q alone. */
#include "ops/attention.h"
#include "ops/copy.h"

static const ir_attr_spec attrs[] = {
    {"q", IR_ATTR_INT, .required = true, .doc = "query heads"},
    OP_ATTR_INT("kv", 0, "key heads, and value heads"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "q", 1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "kv", 0, INT32_MAX, diag));
    if (ir_attr_int(node, "kv") == 0 && (ir_node_output(node, 1) || ir_node_output(node, 2)))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "with kv = 0 there is one output");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    int64_t q = ir_attr_int(node, "q"), kv = ir_attr_int(node, "kv"), hidden;
    ir_dims *dims = op_dims(node);
    GQAC_TRY(attention_want_rank(node, 0, 3, diag));
    const ir_dim *width = op_in_dim(node, 0, 2);
    if (ir_dim_is_const(width, &hidden) && hidden % (q + 2 * kv) != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld columns cannot be split into %lld heads",
                (long long)hidden, (long long)(q + 2 * kv));
    const ir_dim *out[4] = {op_in_dim(node, 0, 0), NULL, op_in_dim(node, 0, 1),
                            ir_dim_div_exact(dims, width, ir_dim_const(dims, q + 2 * kv))};
    gqac_dtype dtype = op_in_type(node, 0).dtype;
    out[1] = ir_dim_const(dims, q);
    GQAC_TRY(op_set_type(node, 0, dtype, 4, out, diag));
    out[1] = ir_dim_const(dims, kv);
    GQAC_TRY(op_set_type(node, 1, dtype, 4, out, diag));
    return op_set_type(node, 2, dtype, 4, out, diag);
}

static gqac_status eval(op_call *call) {
    int64_t q = ir_attr_int(call->node, "q"), kv = ir_attr_int(call->node, "kv");
    int64_t heads = q + 2 * kv;
    GQAC_TRY(op_want_set(call, 0, OP_ANY & ~OP_NIBBLES));
    const gqac_tensor *x = call->in[0];
    if (x->rank != 3 || x->dims[2] % heads != 0)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "the input must be [B,S,hidden] with hidden a multiple of %lld heads",
                (long long)heads);
    int64_t batch = x->dims[0], rows = x->dims[1], size = x->dims[2] / heads;
    const int64_t count[3] = {q, kv, kv}, first[3] = {0, q, q + kv};
    for (int i = 0; i < call->node->n_outputs && i < 3; i++) {
        int64_t dims[4] = {batch, count[i], rows, size};
        GQAC_TRY(op_output(call, i, x->dtype, 4, dims));
        op_box box = {.rank = 4,
                      .in = x,
                      .out = &call->out[i],
                      .first_in = first[i] * size,
                      .stride_in = {rows * heads * size, size, heads * size, 1}};
        for (int axis = 0; axis < 4; axis++)
            box.dims[axis] = dims[axis];
        op_strides(4, dims, box.stride_out);
        GQAC_TRY(op_move(call, &box));
    }
    return GQAC_OK;
}

const gqac_op gqac_op_split_heads = {
    .schema = {.name = "split_heads",
               .domain = "gqac",
               .since = 1,
               .inputs = "x",
               .outputs = "q k? v?",
               .attrs = attrs,
               .flags = IR_OP_MOVES,
               .rows = IR_ROWS_LOCAL,
               .doc = "x [B,S,(q+2kv)D] to q [B,q,S,D] and k, v [B,kv,S,D]"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
