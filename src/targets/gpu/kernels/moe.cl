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

/* Code of k `i`: words [k * bits / 32][n], lowest bits first. */
static inline int code_of(__global const uint *words, int i, int at, int n, int bits) {
    const int per = 32 / bits;
    return (int)(words[(size_t)(i / per) * (size_t)n + (size_t)at] >> (i % per * bits)) &
           ((1 << bits) - 1);
}

typedef struct moe_shape {
    int pairs, per_row, k, n; /* per_row: pairs that share a row of x */
    int experts, bits, block, blocks, words, has_bias;
} moe_shape;

/* y [pairs,n] = x [pairs / per_row,k] times the weights of the pair's expert, plus its bias. The grid
 * is [n, pairs]. `WEIGHT` is the weight of k `i`; the statement BLOCK runs before it. */
#define MOE_CHAIN(BLOCK, WEIGHT)                                                                   \
    const int at = (int)get_global_id(0), pair = (int)get_global_id(1);                            \
    if (at >= s.n || pair >= s.pairs)                                                              \
        return;                                                                                    \
    const size_t expert = (size_t)(order[pair] < s.experts ? order[pair] : s.experts - 1);         \
    x += (size_t)(pair / s.per_row) * (size_t)s.k;                                                 \
    float total = 0.0f, piece = 0.0f;                                                              \
    for (int start = 0; start < s.k; start += GQAC_K_PIECE) {                                      \
        const int end = s.k - start < GQAC_K_PIECE ? s.k : start + GQAC_K_PIECE;                   \
        piece = 0.0f;                                                                              \
        for (int i = start; i < end; i++) {                                                        \
            BLOCK;                                                                                 \
            piece = gqn_fma(x[i], WEIGHT, piece);                                                  \
        }                                                                                          \
        total = start == 0 ? piece : total + piece;                                                \
    }                                                                                              \
    y[(size_t)pair * (size_t)s.n + (size_t)at] =                                                   \
        s.has_bias ? total + bias[expert * (size_t)s.n + (size_t)at] : total

#define MOE_FLOATS(TYPE, NAME)                                                                     \
    __kernel void moe_##NAME(__global const float *x, __global const TYPE *weights,                \
                             __global const float *scales, __global const float *zeros,            \
                             __global const float *bias, __global const int *order,                \
                             __global float *y, moe_shape s) {                                     \
        MOE_CHAIN(, weight_##NAME(weights, (expert * (size_t)s.k + (size_t)i) * (size_t)s.n +      \
                                               (size_t)at));                                       \
    }
MOE_FLOATS(float, f32)
MOE_FLOATS(ushort, f16)
MOE_FLOATS(ushort, bf16)

__kernel void moe_codes(__global const float *x, __global const uint *weights,
                        __global const float *scales, __global const float *zeros,
                        __global const float *bias, __global const int *order, __global float *y,
                        moe_shape s) {
    float scale = 0.0f, zero = 0.0f;
    MOE_CHAIN(if (i == start || i % s.block == 0) {
        const size_t of = (expert * (size_t)s.blocks + (size_t)(i / s.block)) * (size_t)s.n +
                          (size_t)at;
        scale = scales[of];
        zero = zeros[of];
    }, ((float)code_of(weights + expert * (size_t)s.words * (size_t)s.n, i, at, s.n, s.bits) - zero) *
           scale);
}

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
