/* Elementwise ops in fp32: one kernel for each. Definitions: ops/swish.c and the like. */

#define UNARY(NAME, VALUE)                                                                         \
    __kernel void unary_##NAME(__global const float *from, __global float *y, int n,               \
                               float alpha) {                                                      \
        const int i = (int)get_global_id(0);                                                       \
        if (i >= n)                                                                                \
            return;                                                                                \
        const float x = from[i];                                                                   \
        y[i] = VALUE;                                                                              \
    }
UNARY(same, x) /* of Cast: its operand is widened before, or its result rounded after */
UNARY(neg, one_nan(-x))
UNARY(sqrt, one_nan(gqn_sqrt(x)))
UNARY(sigmoid, gqn_sigmoidf(x))
UNARY(tanh, gqn_tanhf(x))
UNARY(erf, gqn_erff(x))
UNARY(swish, one_nan(x * gqn_sigmoidf(alpha * x)))
UNARY(gelu, one_nan(0.5f * x * (1.0f + gqn_erff(x * 0x1.6a09e6p-1f))))
UNARY(gelu_tanh,
      one_nan(0.5f * x * (1.0f + gqn_tanhf(0x1.988454p-1f * (x + 0.044715f * (x * x * x))))))
UNARY(fast_gelu,
      one_nan(0.5f * x * (1.0f + gqn_tanhf(x * (0.035677408f * (x * x) + 0.7978845608f)))))

/* The axes of a broadcast result, and the elements from one index of an axis to the next: 0 where
 * the operand is broadcast. */
typedef struct binary_shape {
    int rank, n;
    int dims[BROADCAST_RANK], a_step[BROADCAST_RANK], b_step[BROADCAST_RANK];
} binary_shape;

#define BINARY(NAME, VALUE)                                                                        \
    __kernel void binary_##NAME(__global const float *left, __global const float *right,           \
                                __global float *y, binary_shape s) {                               \
        const int i = (int)get_global_id(0);                                                       \
        if (i >= s.n)                                                                              \
            return;                                                                                \
        int rest = i, at_a = 0, at_b = 0;                                                          \
        for (int axis = s.rank - 1; axis >= 0; axis--) {                                           \
            const int index = rest % s.dims[axis];                                                 \
            rest /= s.dims[axis];                                                                  \
            at_a += index * s.a_step[axis];                                                        \
            at_b += index * s.b_step[axis];                                                        \
        }                                                                                          \
        const float a = left[at_a], b = right[at_b];                                               \
        y[i] = one_nan(VALUE);                                                                     \
    }
BINARY(add, a + b)
BINARY(sub, a - b)
BINARY(mul, a *b)
BINARY(div, gqn_div(a, b))
