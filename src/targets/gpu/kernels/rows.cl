/* Norms and rotary embeddings in fp32, copies and conversions. Definitions: ops/norm.h, ops/rotary.c,
 * ops/work.h (op_box), ops/take_rows.c. */

/* ---- norms ------------------------------------------------------------------- */

/* Absent operands and results have the flag 0, and are not read or written. Row r of the weights is
 * (r / repeat) % count. */
typedef struct norm_shape {
    int n, skip_rows, centred;
    int has_skip, has_bias, has_beta, has_sum, has_mean, has_inv;
    int weight_repeat, weight_count, beta_repeat, beta_count;
    int round_f16, round_bf16; /* what is normalised is rounded before the weight */
    float epsilon;
} norm_shape;

/* Element i of a row before it is normalised. */
static inline float norm_term(__global const float *x, __global const float *skip,
                              __global const float *bias, const norm_shape *s, int i) {
    float sum = x[i];
    if (s->has_skip)
        sum += skip[i];
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
__kernel void norm_rows(__global const float *x, __global const float *skip,
                        __global const float *bias, __global const float *weight,
                        __global const float *beta, __global float *y, __global float *sum,
                        __global float *mean, __global float *inv, norm_shape s) {
    SHARED float lanes[GQAC_LANES];
    const int lane = (int)get_local_id(0);
    const size_t row = get_group_id(0), n = (size_t)s.n, begin = row * n;
    x += begin;
    skip += s.has_skip ? row % (size_t)s.skip_rows * n : 0;
    weight += row / (size_t)s.weight_repeat % (size_t)s.weight_count * n;
    beta += s.has_beta ? row / (size_t)s.beta_repeat % (size_t)s.beta_count * n : 0;
    float centre = 0.0f, total = 0.0f;
    if (s.centred) {
        for (int i = lane; i < s.n; i += GQAC_LANES)
            total += norm_term(x, skip, bias, &s, i);
        lanes[lane] = total;
        barrier(CLK_LOCAL_MEM_FENCE);
        centre = gqn_div(fold_lanes(lanes), (float)s.n);
        barrier(CLK_LOCAL_MEM_FENCE);
        total = 0.0f;
    }
    for (int i = lane; i < s.n; i += GQAC_LANES) {
        float d = norm_term(x, skip, bias, &s, i);
        if (s.centred)
            d -= centre;
        total = gqn_fma(d, d, total);
    }
    lanes[lane] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    const float scale = gqn_rsqrt(gqn_div(fold_lanes(lanes), (float)s.n) + s.epsilon);
    for (int i = lane; i < s.n; i += GQAC_LANES) {
        const float before = norm_term(x, skip, bias, &s, i);
        float d = before;
        if (s.centred)
            d -= centre;
        d *= scale;
        if (s.round_f16)
            d = gqn_f16_to_f32(gqn_f32_to_f16(d));
        if (s.round_bf16)
            d = gqn_bf16_to_f32(gqn_f32_to_bf16(d));
        d *= weight[i];
        if (s.has_beta)
            d += beta[i];
        y[begin + (size_t)i] = one_nan(d);
        if (s.has_sum)
            sum[begin + (size_t)i] = before;
    }
    if (lane == 0 && s.has_mean)
        mean[row] = one_nan(centre);
    if (lane == 0 && s.has_inv)
        inv[row] = scale;
}

/* ---- rotary embeddings --------------------------------------------------------- */

typedef struct rotary_shape {
    int heads, rows, size, half_size, interleaved, padding;
} rotary_shape;

/* x, y [B,H,S,D]; cos, sin [M,half]; positions [B,S], -1 for padding. The grid is [D, B*H*S]. */
__kernel void rotate_rows(__global const float *x, __global const float *cosines,
                          __global const float *sines, __global const int *positions,
                          __global float *y, rotary_shape s, int count) {
    const int d = (int)get_global_id(0), item = (int)get_global_id(1);
    if (d >= s.size || item >= count)
        return;
    const int row = item % s.rows, b = item / s.rows / s.heads;
    const int position = positions[b * s.rows + row];
    const size_t begin = (size_t)item * (size_t)s.size;
    float result = position < 0 ? 0.0f : x[begin + (size_t)d];
    if (position >= 0 && d < 2 * s.half_size) {
        const int pair = s.interleaved ? d / 2 : d % s.half_size;
        const bool second = s.interleaved ? d % 2 != 0 : d >= s.half_size;
        const size_t first = begin + (size_t)(s.interleaved ? 2 * pair : pair);
        const float u = x[first], w = x[first + (size_t)(s.interleaved ? 1 : s.half_size)];
        const size_t at = (size_t)position * (size_t)s.half_size + (size_t)pair;
        const float c = cosines[at], t = sines[at];
        result = one_nan(second ? gqn_fma(w, c, u * t) : gqn_fma(u, c, -(w * t)));
    }
    y[begin + (size_t)d] = result;
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

/* ---- new rows of a cache --------------------------------------------------------- */

typedef struct append_shape {
    long entry_bytes, at, copy_at; /* bytes: of an entry, to its slot, to the rows in `copies` */
    int heads, rows, size, n;      /* x [B,heads,rows,size]; new rows */
    int slab, entries;             /* this slab, and its entries */
} append_shape;

/* Writes the new rows that lie in one slab to their blocks, and to `copies`, which is laid out as x.
 * lists [3][n]: of each row that of x, counted over [B,heads,rows] from its first head, its entry
 * (a table of blocks, kernels/attention.cl) and its row in the block. The grid is [heads * size, n]. */
#define APPEND_ROWS(NAME, ELEMENT)                                                                 \
    __kernel void NAME(__global const ELEMENT *x, __global uchar *slab, __global uchar *copies,    \
                       __global const int *lists, append_shape s) {                                \
        const int d = (int)get_global_id(0), r = (int)get_global_id(1), width = s.heads * s.size;  \
        if (d >= width || r >= s.n)                                                                \
            return;                                                                                \
        const uint entry = (uint)lists[s.n + r];                                                   \
        const uint index = entry / KV_SLABS;                                                       \
        if (entry % KV_SLABS != (uint)s.slab || index >= (uint)s.entries)                          \
            return;                                                                                \
        const size_t row = (size_t)(lists[2 * s.n + r] % KV_BLOCK);                                \
        const size_t from = ((size_t)lists[r] + (size_t)(d / s.size) * (size_t)s.rows) *           \
                                (size_t)s.size +                                                   \
                            (size_t)(d % s.size);                                                  \
        __global uchar *block = slab + (size_t)index * (size_t)s.entry_bytes + s.at;               \
        ((__global ELEMENT *)block)[row * (size_t)width + (size_t)d] = x[from];                    \
        ((__global ELEMENT *)(copies + s.copy_at))[from] = x[from];                                \
    }
APPEND_ROWS(append_rows, uint)
APPEND_ROWS(append_rows_16, ushort)

/* The code of x; ops/kv_quantise.c defines it. */
static inline int code_of_row(float x, float scale, int least, int most) {
    const float y = x * gqn_div(1.0f, scale == 0.0f ? 1.0f : scale);
    return y != y ? most : gqn_quantise(y, least, most);
}

/* The same for codes of fp32 rows x [B,heads,rows,size], `bits` a code; s.size is the bytes of a row
 * of codes. Scales are one, or with scale_step 1 one for each element of all heads. */
__kernel void append_codes(__global const float *x, __global uchar *slab, __global uchar *copies,
                           __global const int *lists, __global const float *scales, append_shape s,
                           int size, int bits, int scale_step) {
    const int at = (int)get_global_id(0), r = (int)get_global_id(1), width = s.heads * s.size;
    if (at >= width || r >= s.n)
        return;
    const uint entry = (uint)lists[s.n + r], index = entry / KV_SLABS;
    if (entry % KV_SLABS != (uint)s.slab || index >= (uint)s.entries)
        return;
    const int head = at / s.size, d = at % s.size * (bits == 4 ? 2 : 1);
    const size_t row = (size_t)(lists[2 * s.n + r] % KV_BLOCK);
    const size_t of = (size_t)lists[r] + (size_t)head * (size_t)s.rows; /* of x and of copies */
    __global const float *from = x + of * (size_t)size + (size_t)d;
    __global const float *scale = scales + (size_t)(head * size + d) * (size_t)scale_step;
    int code;
    if (bits == 8) {
        code = code_of_row(from[0], scale[0], -128, 127) & 255;
    } else {
        const int high = d + 1 < size ? code_of_row(from[1], scale[scale_step], -8, 7) : 0;
        code = (code_of_row(from[0], scale[0], -8, 7) + 8) | (high + 8) << 4;
    }
    slab[(size_t)index * (size_t)s.entry_bytes + (size_t)s.at + row * (size_t)width + (size_t)at] =
        (uchar)code;
    copies[(size_t)s.copy_at + of * (size_t)s.size + (size_t)(at % s.size)] = (uchar)code;
}
