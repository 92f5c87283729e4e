/* Products of fp32 rows with constant weights. Definition: gqn_dot_chain in numerics/reduce.h for
 * fp32, ops/matmul_nbits.c for codes.
 *
 * An item computes PRODUCT_ROWS rows of one column (gpu.h); each element has a chain of its own, so rows
 * share nothing but what they load. The grid is [columns, tiles of rows]. */

#ifdef CONTROL_KERNEL_BY_ROWS /* negative control: one row is summed in other pieces */
#define PIECE (m == 1 ? 16 : GQAC_K_PIECE)
#else
#define PIECE GQAC_K_PIECE
#endif

#ifdef CONTROL_GPU_ROWS_AFTER_END /* negative control: the last tile reads rows after the end */
#define ROW(r) (first + (r))
#else
#define ROW(r) (first + (r) < m ? first + (r) : m - 1)
#endif

/* y[m][n] = x[m][k] w[k][n]; `WEIGHT` is the weight of k and column `at`. The statement BLOCK runs
 * before each k. */
#define CHAINS(BLOCK, WEIGHT)                                                                      \
    const int at = (int)get_global_id(0), first = (int)get_global_id(1) * PRODUCT_ROWS;            \
    if (at >= n || first >= m)                                                                     \
        return;                                                                                    \
    float total[PRODUCT_ROWS], piece[PRODUCT_ROWS];                                                \
    for (int start = 0; start < k || start == 0; start += PIECE) {                                 \
        const int end = k - start < PIECE ? k : start + PIECE;                                     \
        for (int r = 0; r < PRODUCT_ROWS; r++)                                                     \
            piece[r] = 0.0f;                                                                       \
        for (int i = start; i < end; i++) {                                                        \
            BLOCK;                                                                                 \
            const float weight = WEIGHT;                                                           \
            for (int r = 0; r < PRODUCT_ROWS; r++) {                                               \
                const int row = ROW(r);                                                            \
                piece[r] = gqn_fma(x[(size_t)row * (size_t)k + (size_t)i], weight, piece[r]);      \
            }                                                                                      \
        }                                                                                          \
        for (int r = 0; r < PRODUCT_ROWS; r++)                                                     \
            total[r] = start == 0 ? piece[r] : total[r] + piece[r];                                \
    }                                                                                              \
    for (int r = 0; r < PRODUCT_ROWS && first + r < m; r++)                                        \
        y[(size_t)(first + r) * (size_t)n + (size_t)at] = one_nan(total[r])

#define PRODUCT(TYPE, NAME)                                                                        \
    __kernel void product_##NAME(__global const float *x, __global const TYPE *w,                  \
                                 __global float *y, int m, int k, int n) {                         \
        CHAINS(, weight_##NAME(w, (size_t)i * (size_t)n + (size_t)at));                            \
    }
PRODUCT(float, f32)
PRODUCT(ushort, f16)
PRODUCT(ushort, bf16)

/* ---- weights of codes -------------------------------------------------------- */

/* Code of k `i`: words [k * bits / 32][n], lowest bits first. */
static inline int code_of(__global const uint *words, int i, int at, int n, int bits) {
    const int per = 32 / bits;
    return (int)(words[(size_t)(i / per) * (size_t)n + (size_t)at] >> (i % per * bits)) &
           ((1 << bits) - 1);
}

/* w = (code - zero) * scale, then the product of fp32; scales and zeros are [blocks][n]. */
__kernel void nbits_fp32(__global const float *x, __global const uint *words,
                         __global const float *scales, __global const float *zeros,
                         __global float *y, int m, int k, int n, int bits, int block) {
    float scale = 0.0f, zero = 0.0f;
    CHAINS(if (i == start || i % block == 0) {
        const size_t of = (size_t)(i / block) * (size_t)n + (size_t)at;
        scale = scales[of];
        zero = zeros[of];
    }, ((float)code_of(words, i, at, n, bits) - zero) * scale);
}

/* Activations as int8, a scale for each row and block: qa [m][blocks * block], sa [m][blocks]. An
 * item has one block. */
__kernel void nbits_quantise(__global const float *x, __global char *qa, __global float *sa, int m,
                             int k, int blocks, int block) {
    const int b = (int)get_global_id(0), row = (int)get_global_id(1);
    if (b >= blocks || row >= m)
        return;
    const int begin = b * block, left = k - begin, n = left < block ? left : block;
    __global const float *from = x + (size_t)row * (size_t)k + (size_t)begin;
    __global char *to = qa + ((size_t)row * (size_t)blocks + (size_t)b) * (size_t)block;
    float most = 0.0f;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        const uint bits = gqn_as_u32(from[i]) & 0x7fffffffu;
        const float magnitude = gqn_as_f32(bits);
        most = magnitude > most ? magnitude : most;
        finite = finite && bits < GQN_INF_BITS;
    }
    const bool some = finite && most != 0.0f;
    const float inverse = some ? gqn_div(127.0f, most) : 0.0f;
    for (int i = 0; i < block; i++)
        to[i] = some && i < n ? (char)gqn_quantise(from[i] * inverse, -127, 127) : (char)0;
    sa[(size_t)row * (size_t)blocks + (size_t)b] =
        finite ? gqn_div(most, 127.0f) : gqn_as_f32(GQN_NAN_BITS);
}

/* y = sum over blocks of float(sum of qa * (code - zero)) * (sa * scale). An item has one row of
 * one column, and its grid is [columns, rows]. */
__kernel void nbits_int8(__global const char *qa, __global const float *sa,
                         __global const uint *words, __global const float *scales,
                         __global const float *zeros, __global float *y, int m, int k, int n,
                         int bits, int block, int blocks) {
    const int at = (int)get_global_id(0), row = (int)get_global_id(1);
    if (at >= n || row >= m)
        return;
    float total = 0.0f, piece = 0.0f;
    for (int b = 0; b < blocks; b++) {
        const size_t of = (size_t)b * (size_t)n + (size_t)at;
        const size_t own = (size_t)row * (size_t)blocks + (size_t)b;
        const int zero = (int)zeros[of];
        int sum = 0;
        if (b * block % GQAC_K_PIECE == 0) {
            total = b <= GQAC_K_PIECE / block ? piece : total + piece;
            piece = 0.0f;
        }
        for (int i = 0; i < block; i++)
            sum += qa[own * (size_t)block + (size_t)i] *
                   (code_of(words, b * block + i, at, n, bits) - zero);
        piece = gqn_fma((float)sum, sa[own] * scales[of], piece);
    }
    y[(size_t)row * (size_t)n + (size_t)at] = one_nan(k <= GQAC_K_PIECE ? piece : total + piece);
}

/* y [m][n] += bias [n]. */
__kernel void add_bias(__global float *y, __global const float *bias, int m, int n) {
    const int at = (int)get_global_id(0), row = (int)get_global_id(1);
    const size_t i = (size_t)row * (size_t)n + (size_t)at;
    if (at < n && row < m)
        y[i] = one_nan(y[i] + bias[at]);
}
