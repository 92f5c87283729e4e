/* What ScatterElements and ScatterND share: writing updates over data, or combining them with it,
 * in the order of the updates. f16 and bf16 are combined in fp32 and rounded at each store. */
#include "ops/elementwise.h"
#include "ops/scatter.h"

#include <string.h>

static const char *const names[] = {"none", "add", "mul", "max", "min"};
enum { NONE, ADD, MUL, MAX, MIN, COUNT };

static int mode_of(const ir_node *node) {
    return op_choice(node, "reduction", COUNT, names);
}

gqac_status op_scatter_verify(const ir_node *node, gqac_diag *diag) {
    return op_check_choice(node, "reduction", COUNT, names, GQAC_INVALID_MODEL, diag);
}

unsigned op_scatter_types(const ir_node *node) {
    return mode_of(node) == NONE ? OP_NUMBERS | OP_BIT(BOOL) : OP_NUMBERS;
}

static double combine(int mode, double a, double b) {
    if (mode == ADD || mode == MUL)
        return mode == ADD ? a + b : a * b;
    if (a != a || b != b)
        return a != a ? a : b;
    return mode == MAX ? (a > b ? a : b) : (a < b ? a : b);
}

static float combine_f32(int mode, float a, float b) {
    if (mode == ADD || mode == MUL)
        return mode == ADD ? a + b : a * b;
    return (float)combine(mode, a, b);
}

static int64_t combine_i64(int mode, bool is_unsigned, int64_t a, int64_t b) {
    if (mode == ADD || mode == MUL)
        return mode == ADD ? op_wrap_add(a, b) : op_wrap_mul(a, b);
    bool greater = is_unsigned ? (uint64_t)a > (uint64_t)b : a > b;
    return (mode == MAX) == greater ? a : b;
}

void op_scatter_put(const op_call *call, int64_t to, const gqac_tensor *updates, int64_t from,
                    int64_t n) {
    gqac_tensor *y = &call->out[0];
    int mode = mode_of(call->node);
    size_t width = op_width(y->dtype);
    if (mode == NONE) {
        memcpy((char *)y->data + (size_t)to * width,
               (const char *)updates->data + (size_t)from * width, (size_t)n * width);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (op_carrier_of(y->dtype) == OP_AS_F32)
            op_put_f32(y, to + i,
                       combine_f32(mode, op_get_f32(y, to + i), op_get_f32(updates, from + i)));
        else if (y->dtype == GQAC_F64)
            ((double *)y->data)[to + i] =
                combine(mode, op_get_f64(y, to + i), op_get_f64(updates, from + i));
        else
            op_put_i64(y, to + i,
                       combine_i64(mode, OP_IN(OP_UNSIGNED, y->dtype), op_get_i64(y, to + i),
                                   op_get_i64(updates, from + i)));
    }
}

gqac_status op_scatter_start(op_call *call) {
    GQAC_TRY(op_want_set(call, 0, op_scatter_types(call->node)));
    GQAC_TRY(op_want_set(call, 1, OP_INDICES));
    GQAC_TRY(op_want(call, 2, call->in[0]->dtype));
    GQAC_TRY(op_output_like(call, 0, call->in[0]->dtype, call->in[0]));
    if (gqac_tensor_bytes(call->in[0]) > 0)
        memcpy(call->out[0].data, call->in[0]->data, gqac_tensor_bytes(call->in[0]));
    return GQAC_OK;
}

op_elements_cursor op_elements_begin(const op_call *call, int axis) {
    op_elements_cursor p = {.indices = call->in[1], .axis = axis};
    op_strides(call->in[0]->rank, call->in[0]->dims, p.strides);
    return p;
}

void op_elements_next(op_elements_cursor *p) {
    for (int k = p->indices->rank - 1; k >= 0; k--) {
        const int64_t stride = k == p->axis ? 0 : p->strides[k];
        p->base += stride;
        if (++p->at[k] < p->indices->dims[k])
            break;
        p->base -= stride * p->indices->dims[k];
        p->at[k] = 0;
    }
}

/* Along the other axes rows are selected by position. Only a selection of all rows is the same in
 * every split. */
bool op_elements_mixes(const ir_node *node) {
    const ir_value *data = ir_node_input(node, 0);
    if (op_axis_mixes(node))
        return true;
    for (int k = 0; k < data->type.rank; k++) {
        const ir_dim *rows = op_in_dim(node, 0, k);
        if (op_axis_is_row(data, k) && (!rows || op_in_dim(node, 1, k) != rows))
            return true;
    }
    return false;
}

bool op_tuples_mix(const ir_node *node, int64_t batch) {
    int64_t r;
    if (!ir_dim_is_const(op_in_dim(node, 1, -1), &r))
        return true;
    for (int64_t k = batch; k < batch + r && k < GQAC_MAX_RANK; k++)
        if (op_axis_is_row(ir_node_input(node, 0), (int)k))
            return true;
    return false;
}
