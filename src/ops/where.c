/* Where: output = condition ? x : y, all three broadcast; bits are moved as they are.
 * Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "ops/kernel.h"

/* Both sides are read, so that no branch depends on the condition. */
/* NOLINTBEGIN(bugprone-macro-parentheses): a type cannot have parentheses */
#define SELECT(fn, type)                                                                           \
    OP_BODY void fn##_body(void *out, const void *const *in, size_t n, const void *arg) {          \
        (void)arg;                                                                                 \
        const uint8_t *c = in[0];                                                                  \
        const type *x = in[1], *y = in[2];                                                         \
        type *to = out;                                                                            \
        for (size_t i = 0; i < n; i++) {                                                           \
            const type yes = x[i], no = y[i];                                                      \
            to[i] = c[i] ? yes : no;                                                               \
        }                                                                                          \
    }                                                                                              \
    OP_KERNEL(fn, (void *out, const void *const *in, size_t n, const void *arg), (out, in, n, arg))
/* NOLINTEND(bugprone-macro-parentheses) */
SELECT(select1, uint8_t)
SELECT(select2, uint16_t)
SELECT(select4, uint32_t)
SELECT(select8, uint64_t)

static gqac_status infer_elements(ir_node *node, gqac_diag *diag) {
    const ir_dim *part[3][OP_MAX_ELEMENTS], *out[OP_MAX_ELEMENTS];
    int64_t n[3], count = 1;
    for (int k = 0; k < 3; k++) {
        n[k] = op_elements(node, k, OP_MAX_ELEMENTS, part[k]);
        if (n[k] < 0)
            return GQAC_OK;
        count = n[k] == 1 ? count : n[k];
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t truth;
        const ir_dim *at[3];
        for (int k = 0; k < 3; k++) {
            if (n[k] != 1 && n[k] != count)
                return GQAC_OK;
            at[k] = part[k][n[k] == 1 ? 0 : i];
        }
        if (ir_dim_is_const(at[0], &truth))
            out[i] = at[truth ? 1 : 2];
        else
            out[i] = at[1] == at[2] ? at[1] : NULL;
    }
    return op_set_elements(node, 0, count, out, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    GQAC_TRY(op_check_dtype(node, 0, OP_BIT(BOOL), diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_NUMBERS | OP_BIT(BOOL), diag));
    GQAC_TRY(op_check_same(node, 1, 2, diag));
    for (int k = 1; k < 3; k++) {
        ir_type other = op_in_type(node, k);
        if (type.rank < 0 || other.rank < 0) {
            type.rank = -1;
            break;
        }
        GQAC_TRY(op_broadcast_types(node, &type, &other, &type.rank, dims, diag));
        type.dims = dims;
    }
    type.dtype = op_in_type(node, 1).dtype;
    if (type.dtype == GQAC_NONE)
        type.dtype = op_in_type(node, 2).dtype;
    GQAC_TRY(op_set_type_like(node, 0, type, diag));
    return infer_elements(node, diag);
}

static gqac_status eval(op_call *call) {
    gqac_tensor shape;
    GQAC_TRY(op_want(call, 0, GQAC_BOOL));
    GQAC_TRY(op_want_set(call, 1, OP_NUMBERS | OP_BIT(BOOL)));
    gqac_dtype dtype = call->in[1]->dtype;
    GQAC_TRY(op_want(call, 2, dtype));
    GQAC_TRY(op_broadcast(call, call->in[0], call->in[1], &shape.rank, shape.dims));
    GQAC_TRY(op_broadcast(call, &shape, call->in[2], &shape.rank, shape.dims));
    GQAC_TRY(op_output_like(call, 0, dtype, &shape));
    size_t width = op_width(dtype);
    op_map map = {.run = width == 1   ? select1
                         : width == 2 ? select2
                         : width == 4 ? select4
                                      : select8,
                  .n_in = 3,
                  .in = {call->in[0], call->in[1], call->in[2]},
                  .in_as = {OP_AS_BOOL, OP_AS_RAW, OP_AS_RAW},
                  .out = &call->out[0],
                  .out_as = OP_AS_RAW};
    op_map_run(call, &map);
    return GQAC_OK;
}

const gqac_op gqac_op_where = {
    .schema = {.name = "Where",
               .domain = "",
               .since = 16,
               .introduced = 9,
               .inputs = "condition x y",
               .outputs = "output",
               .rows = IR_ROWS_LOCAL,
               .doc = "output = condition ? x : y, broadcast"},
    .infer = infer,
    .eval = eval,
};
