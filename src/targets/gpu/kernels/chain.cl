/* Chains of elementwise ops: each item computes all steps of four elements. Formulas:
 * elementwise.cl; src/targets/chain.h describes steps and leaves. 16-bit values are read and
 * written in their own type. */

#define CHAIN_LEAVES 12
#define CHAIN_STEPS  17
#define CHAIN_ITEMS  256  /* items of a group, at most */
#define CHAIN_FOURS  1024 /* places of all items of a group */

/* a, b, to: places; the first places hold the leaves. type: the type that the result is rounded
 * to. */
typedef struct chain_step {
    int kind, a, b, to, type;
    float param;
} chain_step;

typedef struct chain_shape {
    int n, columns, n_leaves, n_steps, type, items; /* columns: of a row; items: of a group */
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
    if (kind == STEP_##NAME) {                                                                     \
        CUDA_UNROLL for (int e = 0; e < 4; e++) {                                                  \
            const float a = first[e], b = second[e], x = a;                                        \
            y[e] = VALUE;                                                                          \
        }                                                                                          \
        return;                                                                                    \
    }
GQN_FN void step_four(int kind, const float *first, const float *second, float alpha, float *y) {
    BINARIES(STEP)
    ACTIVATIONS(STEP)
    FUNCTIONS(STEP)
    CUDA_UNROLL for (int e = 0; e < 4; e++) /* a cast */
        y[e] = first[e];
}

/* Elements of a leaf for the elements from `at` on, of which n exist. */
GQN_FN uint4 leaf_at(__global const uchar *leaf, int type, int form, uint at, int n, uint columns) {
    if (form == LEAF_FULL)
        return four_at(leaf, type, (size_t)at, n, true);
    if (form == LEAF_ROW && columns % 4u == 0u)
        return four_at(leaf, type, (size_t)(at % columns), n, true);
    const uint step = form == LEAF_ROW ? 1u : 0u;
    return pack_four(type, element_bits(leaf, type, (size_t)(at * step % columns)),
                     element_bits(leaf, type, (size_t)((at + 1u) * step % columns)),
                     element_bits(leaf, type, (size_t)((at + 2u) * step % columns)),
                     element_bits(leaf, type, (size_t)((at + 3u) * step % columns)));
}

#define LEAF(i) __global const uchar *leaf##i
#define LOAD(i, j)                                                                                 \
    if (i < s.n_leaves)                                                                            \
        bits[j] = leaf_at(leaf##i, s.types[i], s.forms[i], at, n, (uint)s.columns);
#define KEEP(i, j)                                                                                 \
    if (i < s.n_leaves) {                                                                          \
        widen_four(bits[j], s.types[i], a);                                                        \
        r[(i) * s.items + item] = FLOAT4(a[0], a[1], a[2], a[3]);                                  \
    }
#define FOUR_LEAVES(i, j, k, l) /* all loads before the first use */                               \
    LOAD(i, 0)                                                                                     \
    LOAD(j, 1)                                                                                     \
    LOAD(k, 2)                                                                                     \
    LOAD(l, 3)                                                                                     \
    KEEP(i, 0)                                                                                     \
    KEEP(j, 1)                                                                                     \
    KEEP(k, 2)                                                                                     \
    KEEP(l, 3)
#define GET(f, place)                                                                              \
    {                                                                                              \
        const float4 four = r[(place) * s.items + item];                                           \
        f[0] = four.x;                                                                             \
        f[1] = four.y;                                                                             \
        f[2] = four.z;                                                                             \
        f[3] = four.w;                                                                             \
    }
/* y [n]. Operands are in local memory because their number is not known at compile time; items
 * share none of them. */
__kernel MOST(CHAIN_ITEMS) void chain_rows(LEAF(0), LEAF(1), LEAF(2), LEAF(3), LEAF(4), LEAF(5),
                                           LEAF(6), LEAF(7), LEAF(8), LEAF(9), LEAF(10), LEAF(11),
                                           __global uchar *y, chain_shape s) {
    SHARED float4 r[CHAIN_FOURS];
    const uint at = 4u * (uint)get_global_id(0);
    const int item = (int)get_local_id(0), n = fours_left(at, s.n);
    float a[4], b[4], value[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    uint4 bits[4];
    if (n <= 0)
        return;
    FOUR_LEAVES(0, 1, 2, 3)
    if (s.n_leaves > 4) {
        FOUR_LEAVES(4, 5, 6, 7)
        FOUR_LEAVES(8, 9, 10, 11)
    }
    ROLLED for (int i = 0; i < s.n_steps; i++) {
        const chain_step t = s.steps[i];
        GET(a, t.a)
        GET(b, t.b)
        step_four(t.kind, a, b, t.param, value);
        CUDA_UNROLL for (int e = 0; e < 4; e++)
            value[e] = rounded(one_nan(value[e]), t.type);
        r[t.to * s.items + item] = FLOAT4(value[0], value[1], value[2], value[3]);
    }
    CUDA_UNROLL for (int e = 0; e < 4; e++)
        value[e] = one_nan(value[e]);
    put_four(y, s.type, (size_t)at, n, true, value);
}
#undef GET
#undef FOUR_LEAVES
#undef KEEP
#undef LOAD
#undef LEAF
