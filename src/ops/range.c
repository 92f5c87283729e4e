/* Range: start, start + delta, ... up to limit, which is excluded; element i is start + i * delta.
 * Source: ONNX operator spec. The count is exact for integers, for floats it is computed in f64. */
#include "ops/elementwise.h"

#include <math.h>

enum { TYPES = OP_FLOATS | OP_BIT(F64) | OP_BIT(I16) | OP_BIT(I32) | OP_BIT(I64) };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_dims *d = op_dims(node);
    const ir_dim *x[3], *length = NULL;
    gqac_dtype dtype = GQAC_NONE;
    bool known = true;
    int64_t delta;
    for (int i = 0; i < 3; i++) {
        GQAC_TRY(op_check_dtype(node, i, TYPES, diag));
        GQAC_TRY(op_check_same(node, 0, i, diag));
        GQAC_TRY(op_check_single(node, i, diag));
        if (dtype == GQAC_NONE)
            dtype = op_in_type(node, i).dtype;
        known = op_elements(node, i, 1, &x[i]) == 1 && known;
    }
    if (known && ir_dim_is_const(x[2], &delta) && delta == 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the step is 0");
    if (known && ir_dim_is_const(x[2], &delta) && delta != INT64_MIN) {
        int64_t step = delta < 0 ? -delta : delta;
        length = delta < 0 ? ir_dim_sub(d, x[0], x[1]) : ir_dim_sub(d, x[1], x[0]);
        length = ir_dim_max(d, length, ir_dim_const(d, 0));
        if (step > 1 && length)
            length = ir_dim_floordiv(d, ir_dim_add(d, length, ir_dim_const(d, step - 1)), step);
    }
    return op_set_type(node, 0, dtype, 1, &length, diag);
}

static bool count_ints(const int64_t *x, int64_t *count) {
    int64_t start = x[0], limit = x[1], delta = x[2];
    if (delta == 0)
        return false;
    bool up = delta > 0;
    if (up ? start >= limit : start <= limit) {
        *count = 0;
        return true;
    }
    uint64_t span = up ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
    uint64_t step = up ? (uint64_t)delta : 0 - (uint64_t)delta;
    uint64_t n = (span - 1) / step + 1;
    *count = n > INT64_MAX ? INT64_MAX : (int64_t)n;
    return true;
}

static bool count_floats(const double *x, int64_t *count) {
    double n = ceil((x[1] - x[0]) / x[2]);
    if (x[2] == 0.0 || n != n)
        return false;
    *count = n <= 0.0 ? 0 : op_f64_to_i64(n);
    return true;
}

static void fill(gqac_tensor *out, const int64_t *x, const double *f) {
    int64_t n = out->dims[0];
    float start = (float)f[0], delta = (float)f[2];
    op_carrier carrier = op_carrier_of(out->dtype);
    for (int64_t i = 0; i < n; i++) {
        if (carrier == OP_AS_I64)
            op_put_i64(out, i, op_wrap_add(x[0], op_wrap_mul(i, x[2])));
        else if (carrier == OP_AS_F32)
            op_put_f32(out, i, start + (float)i * delta);
        else
            ((double *)out->data)[i] = f[0] + (double)i * f[2];
    }
}

static gqac_status eval(op_call *call) {
    int64_t x[3], count = 0;
    double f[3];
    GQAC_TRY(op_want_set(call, 0, TYPES));
    gqac_dtype dtype = call->in[0]->dtype;
    for (int i = 0; i < 3; i++) {
        GQAC_TRY(op_want(call, i, dtype));
        if (gqac_tensor_count(call->in[i]) != 1)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "input %d is not a single value",
                    i);
        x[i] = op_get_i64(call->in[i], 0);
        f[i] = op_get_f64(call->in[i], 0);
    }
    bool ints = op_carrier_of(dtype) == OP_AS_I64;
    if (ints ? !count_ints(x, &count) : !count_floats(f, &count))
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT, "the step is 0 or not a number");
    GQAC_TRY(op_output(call, 0, dtype, 1, &count));
    fill(&call->out[0], x, f);
    return GQAC_OK;
}

/* A count of rows, or an index of one, depends on the call. */
static bool mixes(const ir_node *node) {
    (void)node;
    return true;
}

const gqac_op gqac_op_range = {
    .schema = {.name = "Range",
               .domain = "",
               .since = 11,
               .introduced = 11,
               .inputs = "start limit delta",
               .outputs = "output",
               .rows = IR_ROWS_SHAPE,
               .doc = "start, start + delta, ... below limit"},
    .infer = infer,
    .eval = eval,
    .mixes = mixes,
};
