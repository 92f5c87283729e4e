/* Elementwise ops in fp32: one kernel for each. Definitions: ops/swish.c and others. 16-bit values
 * are read and written in their own type. An item computes two fours of elements (fours.cl), `step`
 * apart, and loads both before it uses either. */

#define ELEMENT_ITEMS 256 /* items of a group, at most */
#define ITEM_FOURS    2

/* The first element of unit `i` of an item. */
#define UNIT_BEGIN(i, unit, step)                                                                  \
    ((uint)(unit) * ((uint)get_global_id(0) + (uint)(i) * (uint)(step)))

#define UNARY(NAME, VALUE)                                                                         \
    __kernel MOST(ELEMENT_ITEMS) void unary_##NAME(__global const uchar *from, __global uchar *y,  \
                                                   int n, int step, float alpha, int from_type,    \
                                                   int type) {                                     \
        uint4 bits[ITEM_FOURS];                                                                    \
        CUDA_UNROLL for (int i = 0; i < ITEM_FOURS; i++) {                                         \
            const uint at = UNIT_BEGIN(i, 4, step);                                                \
            bits[i] = four_at(from, from_type, (size_t)at, fours_left(at, n), true);               \
        }                                                                                          \
        CUDA_UNROLL for (int i = 0; i < ITEM_FOURS; i++) {                                         \
            const uint at = UNIT_BEGIN(i, 4, step);                                                \
            float v[4];                                                                            \
            if (at >= (uint)n)                                                                     \
                continue;                                                                          \
            widen_four(bits[i], from_type, v);                                                     \
            CUDA_UNROLL for (int e = 0; e < 4; e++) {                                              \
                const float x = v[e];                                                              \
                v[e] = VALUE;                                                                      \
            }                                                                                      \
            put_four(y, type, (size_t)at, fours_left(at, n), true, v);                             \
        }                                                                                          \
    }
UNARY(same, x) /* the kernel of Cast */

/* F(name, value of x) */
#define FUNCTIONS(F)                                                                               \
    F(neg, one_nan(-x))                                                                            \
    F(sqrt, one_nan(gqn_sqrt(x)))                                                                  \
    F(erf, gqn_erff(x))
FUNCTIONS(UNARY)

/* The activations that a gate may have. */
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

/* The axes of a broadcast result, and for each operand the step from one index of an axis to the
 * next: 0 where the operand is broadcast, and 1 along the last axis where it is not. unit: how many
 * elements of the result have adjacent elements, or one single element, of each operand: 4, or 1 if
 * the length of the last axis is not a multiple of 4. */
typedef struct binary_shape {
    int rank, n, unit, step;
    int a_type, b_type, type; /* of the operands and the result */
    int a_last, b_last;       /* the steps along the last axis */
    int dims[BROADCAST_RANK], a_step[BROADCAST_RANK], b_step[BROADCAST_RANK];
} binary_shape;

/* The indices of the elements of both operands for element `i` of the result. */
static inline void broadcast(const binary_shape *s, uint i, uint *at_a, uint *at_b) {
    *at_a = *at_b = 0u;
    for (int axis = s->rank - 1; axis > 0; axis--) {
        const uint rest = i / (uint)s->dims[axis], index = i - rest * (uint)s->dims[axis];
        *at_a += index * (uint)s->a_step[axis];
        *at_b += index * (uint)s->b_step[axis];
        i = rest;
    }
    *at_a += i * (uint)s->a_step[0];
    *at_b += i * (uint)s->b_step[0];
}

/* n elements of an operand from element `at` on, or, with last_step 0, that element repeated. */
static inline uint4 operand_at(__global const uchar *x, int type, uint at, int n, int last_step) {
    if (last_step)
        return four_at(x, type, (size_t)at, n, true);
    const uint one = element_bits(x, type, (size_t)at);
    return pack_four(type, one, one, one, one);
}

/* Loads both operands of the fours of an item. */
static inline void read_operands(__global const uchar *left, __global const uchar *right,
                                 const binary_shape *s, uint4 *a, uint4 *b) {
    CUDA_UNROLL for (int i = 0; i < ITEM_FOURS; i++) {
        const uint at = UNIT_BEGIN(i, s->unit, s->step);
        const int some = fours_left(at, s->n), n = some < s->unit ? some : s->unit;
        uint at_a, at_b;
        if (n <= 0)
            continue;
        broadcast(s, at, &at_a, &at_b);
        a[i] = operand_at(left, s->a_type, at_a, n, s->a_last);
        b[i] = operand_at(right, s->b_type, at_b, n, s->b_last);
    }
}

/* Stores VALUE for each pair of elements a and b. */
#define EACH_PAIR(VALUE)                                                                           \
    uint4 a_bits[ITEM_FOURS], b_bits[ITEM_FOURS];                                                  \
    read_operands(left, right, &s, a_bits, b_bits);                                                \
    CUDA_UNROLL for (int i = 0; i < ITEM_FOURS; i++) {                                             \
        const uint at = UNIT_BEGIN(i, s.unit, s.step);                                             \
        const int some = fours_left(at, s.n);                                                      \
        float first[4], second[4];                                                                 \
        if (some <= 0)                                                                             \
            continue;                                                                              \
        widen_four(a_bits[i], s.a_type, first);                                                    \
        widen_four(b_bits[i], s.b_type, second);                                                   \
        CUDA_UNROLL for (int e = 0; e < 4; e++) {                                                  \
            const float a = first[e], b = second[e];                                               \
            first[e] = one_nan(VALUE);                                                             \
        }                                                                                          \
        put_four(y, s.type, (size_t)at, some < s.unit ? some : s.unit, true, first);               \
    }

#define BINARY(NAME, VALUE)                                                                        \
    __kernel MOST(ELEMENT_ITEMS) void binary_##NAME(__global const uchar *left,                    \
                                                    __global const uchar *right,                   \
                                                    __global uchar *y, binary_shape s) {           \
        EACH_PAIR(VALUE)                                                                           \
    }

/* F(name, value of a and b) */
#define BINARIES(F)                                                                                \
    F(add, a + b)                                                                                  \
    F(sub, a - b)                                                                                  \
    F(mul, a * b)                                                                                  \
    F(div, gqn_div(a, b))
BINARIES(BINARY)

/* An activation of the left operand, rounded to the type of the result as if it were stored, times
 * the right operand. */
#define GATE(NAME, VALUE)                                                                          \
    static inline float gate_value_##NAME(float x, float alpha) {                                  \
        return VALUE;                                                                              \
    }                                                                                              \
    __kernel MOST(ELEMENT_ITEMS) void gate_##NAME(                                                 \
        __global const uchar *left, __global const uchar *right, __global uchar *y,                \
        binary_shape s, float alpha) {                                                             \
        EACH_PAIR(rounded(gate_value_##NAME(a, alpha), s.type) * b)                                \
    }
ACTIVATIONS(GATE)
