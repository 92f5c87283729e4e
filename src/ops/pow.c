/* Pow: z = x^y, of the type of x; y may have another numeric type. Source: ONNX operator spec.
 *
 * Integers to integer powers are exact and wrap; a negative power of an integer is truncated
 * (0 for 0). With a float on either side the power is fp32. */
#include "ops/elementwise.h"

#include "numerics/convert.h"
#include "numerics/math.h"
#include "ops/kernel.h"

static void span_f32(void *z, const void *const *in, size_t n, const void *arg) {
    (void)arg;
    const float *x = in[0], *y = in[1];
    float *to = z;
    for (size_t i = 0; i < n; i++)
        to[i] = gqn_powf(x[i], y[i]);
}

/* gqn_powf for the exponents that models use, one exponent for all of x; the bits are the same, for
 * infinities too. */
#define POWER(fn, expr)                                                                            \
    OP_BODY void fn##_body(void *z, const void *const *in, size_t n, const void *arg) {            \
        (void)arg;                                                                                 \
        const float *from = in[0];                                                                 \
        float *to = z;                                                                             \
        for (size_t i = 0; i < n; i++) {                                                           \
            const float x = from[i];                                                               \
            to[i] = (expr);                                                                        \
        }                                                                                          \
    }                                                                                              \
    OP_KERNEL(fn, (void *z, const void *const *in, size_t n, const void *arg), (z, in, n, arg))
POWER(same, gqn_canonical(x))
POWER(square, gqn_canonical((x) * (x)))
POWER(cube, gqn_canonical((x) * (x) * (x)))
POWER(root, op_one_nan(gqn_abs(gqn_sqrt(x == -gqn_as_f32(GQN_INF_BITS) ? -x : x))))

static op_span *span_of(const gqac_tensor *y) {
    const float power = gqac_tensor_count(y) == 1 ? op_get_f32(y, 0) : 0.0f;
    return power == 1.0f   ? same
           : power == 2.0f ? square
           : power == 3.0f ? cube
           : power == 0.5f ? root
                           : span_f32;
}

static void span_mixed(void *z, const void *const *in, size_t n, const void *arg) {
    (void)arg;
    const float *x = in[0], *y = in[1];
    int64_t *to = z;
    for (size_t i = 0; i < n; i++)
        to[i] = gqn_f32_to_i64(gqn_powf(x[i], y[i]));
}

static int64_t power(int64_t x, int64_t y) {
    if (y < 0)
        return x == 1 || (x == -1 && y % 2 == 0) ? 1 : x == -1 ? -1 : 0;
    int64_t result = 1;
    for (; y > 0; y /= 2) {
        if (y % 2)
            result = op_wrap_mul(result, x);
        x = op_wrap_mul(x, x);
    }
    return result;
}

static void span_i64(void *z, const void *const *in, size_t n, const void *arg) {
    (void)arg;
    const int64_t *x = in[0], *y = in[1];
    int64_t *to = z;
    for (size_t i = 0; i < n; i++)
        to[i] = power(x[i], y[i]);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, OP_FLOATS | OP_INTS, diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_NUMBERS, diag));
    return op_pair_infer(node, op_in_type(node, 0).dtype, diag);
}

static gqac_status eval(op_call *call) {
    int rank;
    int64_t dims[GQAC_MAX_RANK];
    GQAC_TRY(op_want_set(call, 0, OP_FLOATS | OP_INTS));
    GQAC_TRY(op_want_set(call, 1, OP_NUMBERS));
    const gqac_tensor *x = call->in[0], *y = call->in[1];
    bool ints = OP_IN(OP_INTS, x->dtype), exact = ints && OP_IN(OP_INTS, y->dtype);
    op_carrier carrier = exact ? OP_AS_I64 : OP_AS_F32;
    GQAC_TRY(op_broadcast(call, x, y, &rank, dims));
    GQAC_TRY(op_output(call, 0, x->dtype, rank, dims));
    op_map map = {.run = exact  ? span_i64
                         : ints ? span_mixed
                                : span_of(y),
                  .n_in = 2,
                  .in = {x, y},
                  .in_as = {carrier, carrier},
                  .out = &call->out[0],
                  .out_as = ints ? OP_AS_I64 : OP_AS_F32};
    op_map_run(call, &map);
    return GQAC_OK;
}

const gqac_op gqac_op_pow = {
    .schema = {.name = "Pow",
               .domain = "",
               .since = 15,
               .inputs = "x y",
               .outputs = "z",
               .rows = IR_ROWS_LOCAL,
               .doc = "z = x^y, broadcast, of the type of x"},
    .infer = infer,
    .eval = eval,
};
