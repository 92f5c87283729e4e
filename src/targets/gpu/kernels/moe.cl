/* Mixtures of experts. Definition: ops/moe.h. A pair is a row and one of its experts. */

typedef struct moe_route {
    int rows, experts, chosen, normalize, has_mix;
} moe_route;

/* Chooses the experts of each row, in descending order of their router values (of equal ones the
 * lower index first), and computes their weights: order and p are [rows,chosen]. An item computes
 * one row. */
__kernel void moe_choose(__global const float *router, __global const float *mix,
                         __global int *order, __global float *p, moe_route s) {
    const int row = (int)get_global_id(0);
    if (row >= s.rows)
        return;
    router += (size_t)row * (size_t)s.experts;
    mix += (size_t)row * (size_t)s.experts;
    order += (size_t)row * (size_t)s.chosen;
    p += (size_t)row * (size_t)s.chosen;
    for (int i = 0; i < s.chosen; i++) {
        int best = -1;
        for (int e = 0; e < s.experts; e++) {
            bool taken = false;
            for (int j = 0; j < i; j++)
                taken = taken || order[j] == e;
            if (!taken && (best < 0 || router[e] > router[best]))
                best = e;
        }
        order[i] = best;
    }
    const float most = router[order[0]];
    float sum = 0.0f;
    for (int i = 0; i < s.chosen; i++)
        p[i] = gqn_expf(router[order[i]] - most);
    for (int e = 0; e < (s.normalize ? s.chosen : s.experts); e++)
        sum += s.normalize ? p[e] : gqn_expf(router[e] - most);
    for (int i = 0; i < s.chosen; i++)
        p[i] = s.has_mix ? mix[order[i]] : gqn_div(p[i], sum);
}

/* The same struct as moe_shape in moe.c. */
typedef struct moe_shape {
    product_shape product; /* of a pair, as a product with one row */
    int pairs, per_row;    /* per_row: pairs that share a row of x */
    int experts, rows;     /* rows: chunks of an expert's weights, along k */
} moe_shape;

/* The weights of an expert. */
GQN_FN product_weights expert_of(WEIGHTS, int e, const moe_shape *s) {
    const size_t width = (size_t)s->product.width, blocks = (size_t)s->product.blocks * width;
    return weights_of(weights + (size_t)e * (size_t)s->rows * width, scales + (size_t)e * blocks,
                      zeros + (size_t)e * blocks);
}

/* y [pairs,n] = x [pairs / per_row,k] times the weights of the pair's expert, plus its bias. A
 * group computes columns of one pair, as in product_few. The grid is [n / 32, pairs]. */
#define MOE(NAME, KIND)                                                                            \
    __kernel MOST(FEW_TEAMS(1) * FEW_COLUMNS) void moe_##NAME(                                     \
        __global const float *x, WEIGHTS, __global const float *bias, __global const int *order,   \
        __global float *y, moe_shape s) {                                                          \
        SHARED float4 xs[FEW_TEAMS(1) * FEW_DEPTH(1) / 4];                                         \
        SHARED float sums[(FEW_TEAMS(1) + 1) * FEW_COLUMNS];                                       \
        const product_shape *p = &s.product;                                                       \
        const int pair = (int)get_group_id(1);                                                     \
        const int e = order[pair] < s.experts ? order[pair] : s.experts - 1;                       \
        product_few(KIND, F32, 1,                                                                  \
                    (__global const uchar *)(x + (size_t)(pair / s.per_row) * (size_t)p->k),       \
                    expert_of(weights, scales, zeros, e, &s), bias + (size_t)e * (size_t)p->n,     \
                    (__global uchar *)(y + (size_t)pair * (size_t)p->n), few_place_of(0, 0), p,    \
                    (__local float *)xs, sums);                                                    \
    }
MOE(f32, KIND_F32)
MOE(f16, KIND_F16)
MOE(bf16, KIND_BF16)
MOE(2, 2)
MOE(4, 4)
MOE(8, 8)

/* ---- rows of one expert together ------------------------------------------------- */

/* If there are many rows, pairs are sorted by expert, so that rows of one expert share the weights
 * that are loaded: tiles of up to TILE_ROWS pairs. Both kernels have one group for each expert. */
#define SORT_ITEMS 256

/* The lists of sorted pairs: rows [pairs], the row of x for each sorted pair; places [pairs], the
 * sorted position of each pair; counts [experts]; tiles [..][3]: expert, first position, position
 * after the last. Unused tiles have expert -1. */
#define MOE_PLACES(pairs)         (pairs)
#define MOE_COUNTS(pairs)         (2 * (pairs))
#define MOE_TILES(pairs, experts) (2 * (pairs) + (experts))

__kernel GROUP(SORT_ITEMS) void moe_count(__global const int *order, __global int *lists,
                                          int pairs) {
    SHARED int found[SORT_ITEMS];
    const int item = (int)get_local_id(0), e = (int)get_group_id(0);
    int n = 0;
    for (int i = item; i < pairs; i += SORT_ITEMS)
        n += order[i] == e;
    found[item] = n;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item != 0)
        return;
    n = 0;
    for (int i = 0; i < SORT_ITEMS; i++)
        n += found[i];
    lists[MOE_COUNTS(pairs) + e] = n;
}

__kernel GROUP(SORT_ITEMS) void moe_sort(__global const int *order, __global int *lists, int pairs,
                                         int per_row, int experts, int n_tiles) {
    SHARED int found[SORT_ITEMS];
    __global const int *counts = lists + MOE_COUNTS(pairs);
    __global int *tiles = lists + MOE_TILES(pairs, experts);
    const int item = (int)get_local_id(0), e = (int)get_group_id(0);
    const int per = (pairs + SORT_ITEMS - 1) / SORT_ITEMS;
    const int end = least_of((item + 1) * per, pairs);
    int first = 0, tile = 0, n = 0;
    for (int i = 0; i < e; i++) {
        first += counts[i];
        tile += (counts[i] + TILE_ROWS - 1) / TILE_ROWS;
    }
    for (int i = item * per; i < end; i++)
        n += order[i] == e;
    found[item] = n;
    barrier(CLK_LOCAL_MEM_FENCE);
    int at = first;
    for (int i = 0; i < item; i++)
        at += found[i];
    for (int i = item * per; i < end; i++)
        if (order[i] == e) {
            lists[at] = i / per_row;
            lists[MOE_PLACES(pairs) + i] = at++;
        }
    if (item != 0)
        return;
    const int own = (counts[e] + TILE_ROWS - 1) / TILE_ROWS, after = first + counts[e];
    for (int i = 0; i < own && tile + i < n_tiles; i++) {
        tiles[3 * (tile + i)] = e;
        tiles[3 * (tile + i) + 1] = first + i * TILE_ROWS;
        tiles[3 * (tile + i) + 2] = least_of(first + (i + 1) * TILE_ROWS, after);
    }
    if (e == experts - 1)
        for (int i = tile + own; i < n_tiles; i++)
            tiles[3 * i] = -1;
}

/* y [pairs,n] = x [pairs,k], both sorted, times the weights of the tile's expert, plus its bias.
 * The grid is [n / 128, tiles]. */
#define MOE_TILE(NAME, KIND)                                                                       \
    __kernel GROUP(TILE_ITEMS) void moe_tile_##NAME(                                               \
        __global const float *x, WEIGHTS, __global const float *bias, __global const int *lists,   \
        __global float *y, moe_shape s) {                                                          \
        SHARED float4 xs[2 * TILE_DEPTH(KIND) * TILE_ROWS / 4];                                    \
        SHARED float4 ws[2 * TILE_DEPTH(KIND) * TILE_COLUMNS / 4];                                 \
        __global const int *tile =                                                                 \
            lists + MOE_TILES(s.pairs, s.experts) + 3 * (int)get_group_id(1);                      \
        if (tile[0] < 0)                                                                           \
            return;                                                                                \
        product_shape p = s.product;                                                               \
        const int e = tile[0] < s.experts ? tile[0] : s.experts - 1;                               \
        p.m = tile[2] < s.pairs ? tile[2] : s.pairs;                                               \
        product_tile_at(KIND, F32, (__global const uchar *)x,                                      \
                        expert_of(weights, scales, zeros, e, &s), bias + (size_t)e * (size_t)p.n,  \
                        (__global uchar *)y, y, tile[1], 0, p.k, &p, (__local float *)xs,          \
                        (__local float *)ws);                                                      \
    }
MOE_TILE(f32, KIND_F32)
MOE_TILE(f16, KIND_F16)
MOE_TILE(bf16, KIND_BF16)
MOE_TILE(2, 2)
MOE_TILE(4, 4)
MOE_TILE(8, 8)

/* ---- activations and sums ---------------------------------------------------------- */

/* moe_form.activation (ops/mixture.h). */
#define MOE_RELU   0
#define MOE_GELU   1
#define MOE_SILU   2
#define MOE_SWIGLU 3

typedef struct moe_gate {
    int pairs, inner, wide, activation, fusion, has_fc3; /* wide: elements of a row of fc1 */
    float alpha, beta, limit;
} moe_gate;

/* inner [pairs,inner] = the activation of fc1, with fc3 as its second operand if there is one; fc3
 * is read from `inner`. The grid is [inner, pairs]. */
__kernel void moe_activate(__global const float *fc1, __global float *inner, moe_gate s) {
    const int i = (int)get_global_id(0), pair = (int)get_global_id(1);
    if (i >= s.inner || pair >= s.pairs)
        return;
    const size_t at = (size_t)pair * (size_t)s.inner + (size_t)i;
    fc1 += (size_t)pair * (size_t)s.wide;
    float g = fc1[s.fusion == 1 ? 2 * i : i];
    float l = s.fusion == 1   ? fc1[2 * i + 1]
              : s.fusion == 2 ? fc1[s.inner + i]
              : s.has_fc3     ? inner[at]
                              : 0.0f;
    if (s.activation == MOE_SWIGLU) {
        g = g > s.limit ? s.limit : g;
        l = l > s.limit ? s.limit : l < -s.limit ? -s.limit : l;
        inner[at] = g * gqn_sigmoidf(s.alpha * g) * (l + s.beta);
        return;
    }
    if (s.activation == MOE_RELU)
        g = g > 0.0f || g != g ? g : 0.0f;
    else if (s.activation == MOE_GELU)
        g = 0.5f * g * (1.0f + gqn_tanhf(0x1.988454p-1f * (g + 0.044715f * (g * g * g))));
    else if (s.activation == MOE_SILU)
        g = g * gqn_sigmoidf(g);
    inner[at] = s.has_fc3 ? g * l : g;
}

/* y [rows,hidden] = for each row, the sum of p * sums over its pairs, in their order. `sums` is
 * sorted as in `lists`, or in the order of pairs. The grid is [hidden, rows]. */
__kernel void moe_add(__global const float *sums, __global const float *p,
                      __global const int *lists, __global float *y, int rows, int chosen,
                      int hidden, int sorted) {
    const int at = (int)get_global_id(0), row = (int)get_global_id(1);
    if (at >= hidden || row >= rows)
        return;
    float sum = 0.0f;
    for (int i = 0; i < chosen; i++) {
        const size_t pair = (size_t)row * (size_t)chosen + (size_t)i;
        const size_t own = sorted ? (size_t)lists[MOE_PLACES((size_t)rows * (size_t)chosen) + pair] : pair;
        sum = gqn_fma(p[pair], sums[own * (size_t)hidden + (size_t)at], sum);
    }
    y[(size_t)row * (size_t)hidden + (size_t)at] = one_nan(sum);
}
