/* Elementwise ops in fp32: one kernel for each. Definitions: ops/swish.c and the like. Values of 16
 * bits are read and written as they are. */

#define UNARY(NAME, VALUE)                                                                         \
    __kernel void unary_##NAME(__global const uchar *from, __global uchar *y, int n, float alpha,  \
                               int from_type, int type) {                                          \
        const int i = (int)get_global_id(0);                                                       \
        if (i >= n)                                                                                \
            return;                                                                                \
        const float x = float_at(from, from_type, (size_t)i);                                      \
        put_float(y, type, (size_t)i, VALUE);                                                      \
    }
UNARY(same, x) /* of Cast */

/* F(name, value of x) */
#define FUNCTIONS(F)                                                                               \
    F(neg, one_nan(-x))                                                                            \
    F(sqrt, one_nan(gqn_sqrt(x)))                                                                  \
    F(erf, gqn_erff(x))
FUNCTIONS(UNARY)

/* Those that a gate may have. */
#define ACTIVATIONS(F)                                                                             \
    F(sigmoid, gqn_sigmoidf(x))                                                                    \
    F(tanh, gqn_tanhf(x))                                                                          \
    F(swish, one_nan(x * gqn_sigmoidf(alpha * x)))                                                 \
    F(gelu, one_nan(0.5f * x * (1.0f + gqn_erff(x * 0x1.6a09e6p-1f))))                             \
    F(gelu_tanh,                                                                                   \
      one_nan(0.5f * x * (1.0f + gqn_tanhf(0x1.988454p-1f * (x + 0.044715f * (x * x * x))))))      \
    F(fast_gelu,                                                                                   \
      one_nan(0.5f * x * (1.0f + gqn_tanhf(x * (0.035677408f * (x * x) + 0.7978845608f)))))
ACTIVATIONS(UNARY)

/* The axes of a broadcast result, and the elements from one index of an axis to the next: 0 where
 * the operand is broadcast. */
typedef struct binary_shape {
    int rank, n;
    int a_type, b_type, type; /* of the operands and the result */
    int dims[BROADCAST_RANK], a_step[BROADCAST_RANK], b_step[BROADCAST_RANK];
} binary_shape;

/* The elements of both operands for element `i` of the result. */
static inline void broadcast(const binary_shape *s, int i, int *at_a, int *at_b) {
    *at_a = *at_b = 0;
    for (int axis = s->rank - 1; axis >= 0; axis--) {
        const int index = i % s->dims[axis];
        i /= s->dims[axis];
        *at_a += index * s->a_step[axis];
        *at_b += index * s->b_step[axis];
    }
}

#define BINARY(NAME, VALUE)                                                                        \
    __kernel void binary_##NAME(__global const uchar *left, __global const uchar *right,           \
                                __global uchar *y, binary_shape s) {                               \
        const int i = (int)get_global_id(0);                                                       \
        int at_a, at_b;                                                                            \
        if (i >= s.n)                                                                              \
            return;                                                                                \
        broadcast(&s, i, &at_a, &at_b);                                                            \
        const float a = float_at(left, s.a_type, (size_t)at_a);                                    \
        const float b = float_at(right, s.b_type, (size_t)at_b);                                   \
        put_element(y, s.type, (size_t)i, VALUE);                                                  \
    }

/* F(name, value of a and b) */
#define BINARIES(F)                                                                                \
    F(add, a + b)                                                                                  \
    F(sub, a - b)                                                                                  \
    F(mul, a * b)                                                                                  \
    F(div, gqn_div(a, b))
BINARIES(BINARY)

/* An activation of the left operand, rounded to the type of the result as if it were stored, times
 * the right one. */
#define GATE(NAME, VALUE)                                                                          \
    __kernel void gate_##NAME(__global const uchar *left, __global const uchar *right,             \
                              __global uchar *y, binary_shape s, float alpha) {                    \
        const int i = (int)get_global_id(0);                                                       \
        int at_a, at_b;                                                                            \
        if (i >= s.n)                                                                              \
            return;                                                                                \
        broadcast(&s, i, &at_a, &at_b);                                                            \
        const float x = float_at(left, s.a_type, (size_t)at_a);                                    \
        put_element(y, s.type, (size_t)i,                                                          \
                    rounded(VALUE, s.type) * float_at(right, s.b_type, (size_t)at_b));             \
    }
ACTIVATIONS(GATE)
