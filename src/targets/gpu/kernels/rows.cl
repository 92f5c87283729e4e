/* Norms in fp32, copies and conversions. Definitions: ops/norm.h, ops/work.h (op_box),
 * ops/take_rows.c. */

/* ---- norms ------------------------------------------------------------------- */

/* Absent operands and results have the flag 0, and are not read or written. Row r of the weights is
 * (r / repeat) % count. */
typedef struct norm_shape {
    int n, skip_rows, centred;
    int has_skip, has_bias, has_beta, has_sum, has_mean, has_inv;
    int weight_repeat, weight_count, beta_repeat, beta_count;
    int before_type; /* what is normalised is rounded to it before the weight */
    int x_type, skip_type, y_type, sum_type;
    float epsilon;
} norm_shape;

/* Element i of a row before it is normalised; x and skip from their elements x_at and skip_at on. */
static inline float norm_term(__global const uchar *x, size_t x_at, __global const uchar *skip,
                              size_t skip_at, __global const float *bias, const norm_shape *s,
                              int i) {
    float sum = float_at(x, s->x_type, x_at + (size_t)i);
    if (s->has_skip)
        sum += float_at(skip, s->skip_type, skip_at + (size_t)i);
    if (s->has_bias)
        sum += bias[i];
    return sum;
}

/* lane[0..7] += lane[8..15], then 4, 2, 1: gqn_lane_fold. */
static inline float fold_lanes(__local const float *lane) {
    float sum[GQAC_LANES];
    for (int j = 0; j < GQAC_LANES; j++)
        sum[j] = lane[j];
    for (int half_n = GQAC_LANES / 2; half_n > 0; half_n /= 2)
        for (int j = 0; j < half_n; j++)
            sum[j] += sum[j + half_n];
    return sum[0];
}

/* A group of GQAC_LANES items has one row; each item has one lane of the sums. */
__kernel void norm_rows(__global const uchar *x, __global const uchar *skip,
                        __global const float *bias, __global const float *weight,
                        __global const float *beta, __global uchar *y, __global uchar *sum,
                        __global float *mean, __global float *inv, norm_shape s) {
    SHARED float lanes[GQAC_LANES];
    const int lane = (int)get_local_id(0);
    const size_t row = get_group_id(0), n = (size_t)s.n, begin = row * n;
    const size_t skip_at = row % (size_t)s.skip_rows * n;
    weight += row / (size_t)s.weight_repeat % (size_t)s.weight_count * n;
    beta += s.has_beta ? row / (size_t)s.beta_repeat % (size_t)s.beta_count * n : 0;
    float centre = 0.0f, total = 0.0f;
    if (s.centred) {
        for (int i = lane; i < s.n; i += GQAC_LANES)
            total += norm_term(x, begin, skip, skip_at, bias, &s, i);
        lanes[lane] = total;
        barrier(CLK_LOCAL_MEM_FENCE);
        centre = gqn_div(fold_lanes(lanes), (float)s.n);
        barrier(CLK_LOCAL_MEM_FENCE);
        total = 0.0f;
    }
    for (int i = lane; i < s.n; i += GQAC_LANES) {
        float d = norm_term(x, begin, skip, skip_at, bias, &s, i);
        if (s.centred)
            d -= centre;
        total = gqn_fma(d, d, total);
    }
    lanes[lane] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    const float scale = gqn_rsqrt(gqn_div(fold_lanes(lanes), (float)s.n) + s.epsilon);
    for (int i = lane; i < s.n; i += GQAC_LANES) {
        const float before = norm_term(x, begin, skip, skip_at, bias, &s, i);
        float d = before;
        if (s.centred)
            d -= centre;
        d = rounded(d * scale, s.before_type) * weight[i];
        if (s.has_beta)
            d += beta[i];
        put_element(y, s.y_type, begin + (size_t)i, d);
        if (s.has_sum)
            put_float(sum, s.sum_type, begin + (size_t)i, before);
    }
    if (lane == 0 && s.has_mean)
        mean[row] = one_nan(centre);
    if (lane == 0 && s.has_inv)
        inv[row] = scale;
}

/* ---- copies -------------------------------------------------------------------- */

/* op_box of ops/work.h: axes, and elements from one index of an axis to the next. */
typedef struct box_shape {
    int rank, n, first_in, first_out;
    int dims[BOX_RANK], in_step[BOX_RANK], out_step[BOX_RANK];
} box_shape;

/* Elements of 16 or 32 bits are moved as they are, NaN included. The grid is the n elements of the
 * box. */
#define COPY_BOX(NAME, ELEMENT)                                                                    \
    __kernel void NAME(__global const ELEMENT *x, __global ELEMENT *y, box_shape s) {              \
        const int i = (int)get_global_id(0);                                                       \
        int rest = i, from = s.first_in, to = s.first_out;                                         \
        if (i >= s.n)                                                                              \
            return;                                                                                \
        for (int axis = s.rank - 1; axis >= 0; axis--) {                                           \
            const int index = rest % s.dims[axis];                                                 \
            rest /= s.dims[axis];                                                                  \
            from += index * s.in_step[axis];                                                       \
            to += index * s.out_step[axis];                                                        \
        }                                                                                          \
        y[to] = x[from];                                                                           \
    }
COPY_BOX(copy_box, uint)
COPY_BOX(copy_box_16, ushort)

/* y [n,width] = the rows of x that `list` [n] names. The grid is [width, n]. */
#define COPY_ROWS(NAME, ELEMENT)                                                                   \
    __kernel void NAME(__global const ELEMENT *x, __global const int *list, __global ELEMENT *y,   \
                       int width, int n) {                                                         \
        const int d = (int)get_global_id(0), item = (int)get_global_id(1);                         \
        if (d < width && item < n)                                                                 \
            y[(size_t)item * (size_t)width + (size_t)d] =                                          \
                x[(size_t)list[item] * (size_t)width + (size_t)d];                                 \
    }
COPY_ROWS(copy_rows, uint)
COPY_ROWS(copy_rows_16, ushort)

/* codes_shape of rows.c. A table [entries,inner,codes] of codes in blocks, each with a scale. */
typedef struct codes_shape {
    long row_bits, zero_bits;     /* of a row of codes and of its zero points */
    int n, inner, codes, blocks;  /* entries that are listed; rows of an entry; blocks of a row */
    int block, bits, has_sign;    /* codes of a block */
    int has_zero, zero, type;     /* zero: without zero points; type: F32, F16 or BF16 */
} codes_shape;

static inline int code_at(__global const uchar *codes, ulong bit, const codes_shape *s) {
    const int code = (int)(codes[bit / 8] >> (bit % 8)) & ((1 << s->bits) - 1);
    return s->has_sign ? (code ^ 8) - 8 : code;
}

/* y [n,inner,codes] = (code - zero) * scale of the entries that `list` [n] names; -1: zeros. The
 * grid is [codes, n * inner]. */
__kernel void gather_codes(__global const uchar *data, __global const float *scales,
                           __global const uchar *zeros, __global const int *list,
                           __global uchar *y, codes_shape s) {
    const int i = (int)get_global_id(0), item = (int)get_global_id(1);
    if (i >= s.codes || item >= s.n * s.inner)
        return;
    const int entry = list[item / s.inner], b = i / s.block;
    float value = 0.0f;
    if (entry >= 0) {
        const ulong row = (ulong)entry * (ulong)s.inner + (ulong)(item % s.inner);
        const int code =
            code_at(data, row * (ulong)s.row_bits + (ulong)i * (ulong)s.bits, &s);
        const int zero = s.has_zero ? code_at(zeros, row * (ulong)s.zero_bits +
                                                         (ulong)b * (ulong)s.bits, &s)
                                    : s.zero;
        value = (float)(code - zero) * scales[row * (ulong)s.blocks + (ulong)b];
    }
    put_element(y + (size_t)item * (size_t)s.codes * (s.type == F32 ? 4 : 2), s.type, i, value);
}

/* Kernels compute in fp32: their operands of 16 bits are widened before, their results rounded
 * once after. The grid is the n elements. */
#define CONVERT(NAME, FROM, TO, VALUE)                                                             \
    __kernel void NAME(__global const FROM *from, __global TO *to, int n) {                        \
        const int i = (int)get_global_id(0);                                                       \
        if (i >= n)                                                                                \
            return;                                                                                \
        const FROM x = from[i];                                                                    \
        to[i] = VALUE;                                                                             \
    }
CONVERT(widen_f16, ushort, float, gqn_f16_to_f32(x))
CONVERT(widen_bf16, ushort, float, gqn_bf16_to_f32(x))
CONVERT(round_f16, float, ushort, gqn_f32_to_f16(x))
CONVERT(round_bf16, float, ushort, gqn_f32_to_bf16(x))
