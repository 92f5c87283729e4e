/* Conversion between all element types.
 *
 * Every target must agree on what ONNX leaves open, so it is defined: floats to integers are
 * truncated and clamped (i4 and u4: wrapped, as the ONNX tests have it), NaN becomes 0; integers
 * wrap to the width of the result; non-zero is true. A conversion rounds once, also from f64 to f16
 * and bf16 (see to_odd). */
#include "ops/copy.h"
#include "ops/elementwise.h"

#include <string.h>

#include "numerics/convert.h"

typedef struct cast_arg {
    gqac_dtype from, to;
    int64_t lo, hi; /* limits of an integer result */
} cast_arg;

static void limits(gqac_dtype dtype, int64_t *lo, int64_t *hi) {
    int bits = gqac_dtype_bits(dtype);
    bool negative = OP_IN(OP_SIGNED | OP_BIT(I4), dtype);
    *lo = negative ? (int64_t)(~(uint64_t)0 << (bits - 1)) : 0;
    *hi = bits == 64 ? INT64_MAX : ((int64_t)1 << (negative ? bits - 1 : bits)) - 1;
}

static int64_t to_int(double x, const cast_arg *cast) {
    if (cast->to == GQAC_BOOL)
        return x != 0.0;
    if (cast->to == GQAC_U64 && x >= 0x1p63)
        return x >= 0x1p64 ? -1 : (int64_t)(uint64_t)x;
    int64_t i = op_f64_to_i64(x);
    if (OP_IN(OP_NIBBLES, cast->to))
        return i; /* the store drops the high bits */
    i = i < cast->lo ? cast->lo : i;
    return i > cast->hi ? cast->hi : i;
}

/* Rounds to odd, after which rounding to a format at least two bits narrower has the result of a
 * single rounding. */
static float to_odd(double x) {
    float y = (float)x;
    if ((double)y == x || x != x)
        return y;
    uint32_t bits = gqn_as_u32(y);
    if ((y > x) == (x > 0)) /* away from zero: step back (the bits of the magnitude are ordered) */
        bits--;
    return gqn_as_f32(bits | 1u);
}

static void float_to_float(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    memcpy(y, x[0], n * sizeof(float));
}

static void int_to_int(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    memcpy(y, x[0], n * sizeof(int64_t));
}

static void float_to_int(void *y, const void *const *x, size_t n, const void *arg) {
    const float *from = x[0];
    int64_t *to = y;
    for (size_t i = 0; i < n; i++)
        to[i] = to_int((double)from[i], arg);
}

static void double_to_int(void *y, const void *const *x, size_t n, const void *arg) {
    const double *from = x[0];
    int64_t *to = y;
    for (size_t i = 0; i < n; i++)
        to[i] = to_int(from[i], arg);
}

static void int_to_float(void *y, const void *const *x, size_t n, const void *arg) {
    bool big = ((const cast_arg *)arg)->from == GQAC_U64;
    const int64_t *from = x[0];
    float *to = y;
    for (size_t i = 0; i < n; i++)
        to[i] = big ? (float)(uint64_t)from[i] : (float)from[i];
}

static void int_to_double(void *y, const void *const *x, size_t n, const void *arg) {
    bool big = ((const cast_arg *)arg)->from == GQAC_U64;
    const int64_t *from = x[0];
    double *to = y;
    for (size_t i = 0; i < n; i++)
        to[i] = big ? (double)(uint64_t)from[i] : (double)from[i];
}

static void float_to_double(void *y, const void *const *x, size_t n, const void *arg) {
    (void)arg;
    const float *from = x[0];
    double *to = y;
    for (size_t i = 0; i < n; i++)
        to[i] = (double)from[i];
}

static void double_to_float(void *y, const void *const *x, size_t n, const void *arg) {
    bool twice = ((const cast_arg *)arg)->to != GQAC_F32;
    const double *from = x[0];
    float *to = y;
    for (size_t i = 0; i < n; i++)
        to[i] = twice ? to_odd(from[i]) : (float)from[i];
}

static op_carrier carrier_of(gqac_dtype dtype) {
    return dtype == GQAC_BOOL ? OP_AS_I64 : op_carrier_of(dtype);
}

gqac_status op_cast(op_call *call, gqac_dtype to) {
    static op_span *const spans[4][4] = {
        [OP_AS_F32] = {[OP_AS_F32] = float_to_float,
                       [OP_AS_F64] = float_to_double,
                       [OP_AS_I64] = float_to_int},
        [OP_AS_F64] = {[OP_AS_F32] = double_to_float, [OP_AS_I64] = double_to_int},
        [OP_AS_I64] =
            {[OP_AS_F32] = int_to_float, [OP_AS_F64] = int_to_double, [OP_AS_I64] = int_to_int},
    };
    GQAC_TRY(op_want_set(call, 0, OP_ANY));
    const gqac_tensor *x = call->in[0];
    if (!OP_IN(OP_ANY, to))
        OP_FAIL(call->node, call->diag, GQAC_UNSUPPORTED, "a cast to %s is not supported",
                gqac_dtype_name(to));
    if (x->dtype == to)
        return op_copy_as(call, x->rank, x->dims);
    cast_arg cast = {.from = x->dtype, .to = to};
    if (carrier_of(to) == OP_AS_I64)
        limits(to, &cast.lo, &cast.hi);
    GQAC_TRY(op_copy_output(call, 0, to, x->rank, x->dims));
    op_map map = {.run = spans[carrier_of(x->dtype)][carrier_of(to)],
                  .arg = &cast,
                  .n_in = 1,
                  .in = {x},
                  .in_as = {carrier_of(x->dtype)},
                  .out = &call->out[0],
                  .out_as = carrier_of(to)};
    op_map_run(call, &map);
    return GQAC_OK;
}

gqac_status op_cast_infer(ir_node *node, gqac_dtype to, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    GQAC_TRY(op_check_dtype(node, 0, OP_ANY, diag));
    if (to != GQAC_NONE && !OP_IN(OP_ANY, to))
        OP_FAIL(node, diag, GQAC_UNSUPPORTED, "a cast to %s is not supported", gqac_dtype_name(to));
    bool passes = OP_IN(OP_INDICES | OP_BIT(BOOL), type.dtype) && OP_IN(OP_INDICES, to);
    type.dtype = to;
    GQAC_TRY(op_set_type_like(node, 0, type, diag));
    return passes ? op_pass_elements(node, 0, 0, diag) : GQAC_OK;
}
