/* Div: c = a / b; integers are truncated towards zero; b = 0 fails. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include "numerics/dialect.h"
#include "ops/kernel.h"

OP_SPAN2(f32, float, float, op_one_nan(gqn_div(a, b)))
OP_SPAN2(f64, double, double, a / b)
OP_SPAN2(i64, int64_t, int64_t, b == -1 ? op_wrap_sub(0, a) : a / b)
OP_SPAN2(u64, int64_t, int64_t, (uint64_t)a / (uint64_t)b)

static const ir_dim *dim(ir_dims *dims, const ir_dim *a, const ir_dim *b) {
    const ir_dim *exact = a && b ? ir_dim_div_exact(dims, a, b) : NULL;
    int64_t n;
    if (exact || !ir_dim_is_const(b, &n) || n <= 0 || !op_dim_nonneg(dims, a))
        return exact;
    return ir_dim_floordiv(dims, a, n); /* floor is truncation: nothing here is negative */
}

OP_BINARY(.f32 = f32, .f64 = f64, .i64 = i64, .u64 = u64, .dim = dim, .divides = true)

const gqac_op gqac_op_div = OP_BINARY_ROW(.name = "Div", .domain = "", .since = 14,
                                          .doc = "c = a / b, broadcast; integers towards zero");
