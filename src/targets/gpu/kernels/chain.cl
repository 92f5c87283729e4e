/* Chains of elementwise ops: each item computes all steps of one element. Formulas: elementwise.cl;
 * src/targets/chain.h describes steps and leaves. Values of 16 bits are read and written as they
 * are. */

#define CHAIN_LEAVES 12
#define CHAIN_STEPS  17
#define CHAIN_ITEMS  64

/* A leaf below CHAIN_LEAVES, else a register. type: the result is rounded to it. */
typedef struct chain_step {
    int kind, a, b, to, type;
    float param;
} chain_step;

typedef struct chain_shape {
    int n, columns, n_leaves, n_steps, type; /* elements; of a row; of y */
    int forms[CHAIN_LEAVES], types[CHAIN_LEAVES];
    chain_step steps[CHAIN_STEPS];
} chain_shape;

/* target_leaf_form */
#define LEAF_FULL 0
#define LEAF_ROW  1

/* target_step_kind */
#define STEP_add       0
#define STEP_sub       1
#define STEP_mul       2
#define STEP_div       3
#define STEP_neg       4
#define STEP_sqrt      5
#define STEP_sigmoid   6
#define STEP_tanh      7
#define STEP_erf       8
#define STEP_swish     9
#define STEP_gelu      10
#define STEP_gelu_tanh 11
#define STEP_fast_gelu 12

#define STEP(NAME, VALUE)                                                                          \
    if (kind == STEP_##NAME)                                                                       \
        return VALUE;
static inline float step_value(int kind, float x, float b, float alpha) {
    const float a = x;
    BINARIES(STEP)
    ACTIVATIONS(STEP)
    FUNCTIONS(STEP)
    return x; /* a cast */
}

#define LEAF(i) __global const uchar *leaf##i
#define READ(i)                                                                                    \
    if (i < s.n_leaves)                                                                            \
        r[(i) * CHAIN_ITEMS + item] =                                                              \
            float_at(leaf##i, s.types[i],                                                          \
                     s.forms[i] == LEAF_FULL  ? (size_t)at                                         \
                     : s.forms[i] == LEAF_ROW ? (size_t)(at % s.columns)                           \
                                              : 0);
/* y [n]. Operands lie in local memory, because their numbers are not known before a run; items share
 * nothing. */
__kernel GROUP(CHAIN_ITEMS) void chain_rows(LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), LEAF(5),
                                            LEAF(6), LEAF(7), LEAF(8), LEAF(9), LEAF(10), LEAF(11),
                                            __global uchar *y, chain_shape s) {
    SHARED float r[(CHAIN_LEAVES + CHAIN_STEPS) * CHAIN_ITEMS];
    const int at = (int)get_global_id(0), item = (int)get_local_id(0);
    if (at >= s.n)
        return;
    READ(0)
    READ(1)
    READ(2)
    READ(3)
    READ(4)
    READ(5)
    READ(6)
    READ(7)
    READ(8)
    READ(9)
    READ(10)
    READ(11)
    float value = 0.0f;
    for (int i = 0; i < s.n_steps; i++) {
        const chain_step t = s.steps[i];
        value = rounded(one_nan(step_value(t.kind, r[t.a * CHAIN_ITEMS + item],
                                           r[t.b * CHAIN_ITEMS + item], t.param)),
                        t.type);
        r[t.to * CHAIN_ITEMS + item] = value;
    }
    put_element(y, s.type, at, value);
}
#undef READ
#undef LEAF
