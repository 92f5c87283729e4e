/* What ScatterElements and ScatterND share: writing updates over data, or combining them with it,
 * in the order of the updates. f16 and bf16 are combined in fp32 and rounded at each store. */
#include "ops/elementwise.h"
#include "ops/scatter.h"

#include <string.h>

static const char *const names[] = {"none", "add", "mul", "max", "min"};
enum { NONE, ADD, MUL, MAX, MIN, COUNT };

static int mode_of(const ir_node *node) {
    const char *name = ir_attr_get(node, "reduction")->s;
    int mode = NONE;
    while (mode < COUNT && strcmp(names[mode], name) != 0)
        mode++;
    return mode;
}

gqac_status op_scatter_verify(const ir_node *node, gqac_diag *diag) {
    if (mode_of(node) == COUNT)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute reduction = '%s': none, add, mul, max or min",
                ir_attr_get(node, "reduction")->s);
    return GQAC_OK;
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

gqac_status op_scatter_index(op_call *call, int64_t at, int64_t length, int64_t *index) {
    *index = op_get_i64(call->in[1], at);
    if (*index < -length || *index >= length)
        OP_FAIL(call->node, call->diag, GQAC_OUT_OF_RANGE,
                "index %lld is out of range for an axis of length %lld", (long long)*index,
                (long long)length);
    *index += *index < 0 ? length : 0;
    return GQAC_OK;
}

/* Rows that are not picked by an index are picked by their place: only all of them are what they
 * are in every split. */
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
