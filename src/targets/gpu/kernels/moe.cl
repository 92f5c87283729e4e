/* Mixtures of experts. Definition: ops/moe.h; an expert of a row is a pair. */

typedef struct moe_route {
    int rows, experts, chosen, normalize, has_mix;
} moe_route;

/* The experts of each row in the order of their router values, of equal ones the lower index first,
 * and their weights: order, p [rows,chosen]. An item has one row. */
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

/* moe_shape of moe.c. */
typedef struct moe_shape {
    product_shape product; /* of a pair: one row */
    int pairs, per_row;    /* per_row: pairs that share a row of x */
    int experts, rows;     /* rows of an expert's weights */
} moe_shape;

/* y [pairs,n] = x [pairs / per_row,k] times the weights of the pair's expert, plus its bias: a group
 * computes columns of one pair as product_few does. The grid is [n / 32, pairs]. */
#define MOE(NAME, KIND)                                                                            \
    __kernel MOST(FEW_TEAMS *FEW_COLUMNS) void moe_##NAME(                                         \
        __global const float *x, __global const uint4 *weights, __global const float *scales,      \
        __global const float *zeros, __global const float *bias, __global const int *order,        \
        __global float *y, moe_shape s) {                                                          \
        SHARED uint4 chunks[FEW_TEAMS * FEW_CHUNKS(KIND, 1)];                                      \
        SHARED float4 xs[FEW_TEAMS * FEW_DEPTH(KIND, 1) / 4];                                      \
        SHARED float scale[FEW_TEAMS * FEW_SIXTEENS(KIND, 1) * FEW_COLUMNS + 1];                   \
        SHARED float zero[FEW_TEAMS * FEW_SIXTEENS(KIND, 1) * FEW_COLUMNS + 1];                    \
        SHARED float sums[FEW_TEAMS * FEW_COLUMNS];                                                \
        const product_shape *p = &s.product;                                                       \
        const int pair = (int)get_group_id(1);                                                     \
        const size_t e = (size_t)(order[pair] < s.experts ? order[pair] : s.experts - 1);          \
        const size_t wide = (size_t)p->width, blocks = (size_t)p->blocks * wide;                   \
        few_place at = few_place_of(1);                                                            \
        few_staged f;                                                                              \
        at.first = 0;                                                                              \
        f.chunks = chunks;                                                                         \
        f.x = (__local float *)xs;                                                                 \
        f.scale = scale;                                                                           \
        f.zero = zero;                                                                             \
        product_few(KIND, 1, x + (size_t)(pair / s.per_row) * (size_t)p->k,                        \
                    weights + e * (size_t)s.rows * (wide / CHUNK_N(KIND)), scales + e * blocks,    \
                    zeros + e * blocks, bias + e * (size_t)p->n,                                   \
                    y + (size_t)pair * (size_t)p->n, at, p, f, sums);                              \
    }
MOE(f32, KIND_F32)
MOE(f16, KIND_F16)
MOE(bf16, KIND_BF16)
MOE(2, 2)
MOE(4, 4)
MOE(8, 8)

/* moe_form.activation (ops/mixture.h). */
#define MOE_RELU   0
#define MOE_GELU   1
#define MOE_SILU   2
#define MOE_SWIGLU 3

typedef struct moe_gate {
    int pairs, inner, wide, activation, fusion, has_fc3; /* wide: elements of a row of fc1 */
    float alpha, beta, limit;
} moe_gate;

/* inner [pairs,inner] = the activation of fc1 and, if it is there, fc3, which lies in `inner`. The
 * grid is [inner, pairs]. */
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

/* y [rows,hidden] = the sum of p * sums of the pairs of each row, in their order. The grid is
 * [hidden, rows]. */
__kernel void moe_add(__global const float *sums, __global const float *p, __global float *y,
                      int rows, int chosen, int hidden) {
    const int at = (int)get_global_id(0), row = (int)get_global_id(1);
    if (at >= hidden || row >= rows)
        return;
    float sum = 0.0f;
    for (int i = 0; i < chosen; i++) {
        const size_t pair = (size_t)row * (size_t)chosen + (size_t)i;
        sum = gqn_fma(p[pair], sums[pair * (size_t)hidden + (size_t)at], sum);
    }
    y[(size_t)row * (size_t)hidden + (size_t)at] = one_nan(sum);
}
