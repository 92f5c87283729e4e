/* Norms in fp32, and copies. Definitions: ops/norm.h, ops/work.h (op_box),
 * ops/take_rows.c. */

/* ---- norms ------------------------------------------------------------------- */

#define NORM_ITEMS 256 /* items of a group, at most */
#define NORM_FOURS 4   /* fours of an item */
#define NORM_TILE  (NORM_ITEMS * NORM_FOURS * 4)
#define NORM_AHEAD 8   /* elements of a lane that are loaded in advance */

/* Absent operands and results have the flag 0, and are neither read nor written. The weights of row
 * r are their row (r / repeat) % count. */
typedef struct norm_shape {
    int n, skip_rows, centred, items; /* items: of a group */
    int has_skip, has_bias, has_beta, has_sum, has_mean, has_inv;
    int weight_repeat, weight_count, beta_repeat, beta_count;
    int before_type; /* normalised values are rounded to it before the weight is applied */
    int x_type, skip_type, y_type, sum_type;
    float epsilon;
} norm_shape;

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

/* total + the elements of a lane, or their squares, in ascending order. x points to the first
 * element of the lane; up to a multiple of `ahead` elements of each lane, x is padded with
 * zeros. */
GQN_FN float lane_chain(__local const float *x, int n, bool squares, const int ahead,
                        float total) {
    const int round = ahead * GQAC_LANES;
    float next[NORM_AHEAD];
    CUDA_UNROLL for (int j = 0; j < ahead; j++)
        next[j] = x[j * GQAC_LANES];
    ROLLED for (int begin = 0; begin < n; begin += round) {
        float own[NORM_AHEAD];
        CUDA_UNROLL for (int j = 0; j < ahead; j++)
            own[j] = next[j];
        x += round;
        if (begin + round < n)
            CUDA_UNROLL for (int j = 0; j < ahead; j++)
                next[j] = x[j * GQAC_LANES];
        CUDA_UNROLL for (int j = 0; j < ahead; j++)
            total = squares ? gqn_fma(own[j], own[j], total) : total + own[j];
    }
    return total;
}

/* The part of a tile of a row that an item computes. */
typedef struct norm_fours {
    float before[4 * NORM_FOURS]; /* values to be normalised; zeros after the end of the row */
    uint4 weight[NORM_FOURS], beta[NORM_FOURS];
} norm_fours;

/* Loads the elements from `tile` on; with `all`, also weights, beta and so on. All fours are loaded
 * before the first is used. */
GQN_FN void norm_read(__global const uchar *x, size_t x_at, __global const uchar *skip,
                      size_t skip_at, __global const uchar *bias, __global const uchar *weight,
                      __global const uchar *beta, const norm_shape *s, int tile, bool all,
                      norm_fours *f) {
    const bool aligned = s->n % 4 == 0;
    uint4 own[NORM_FOURS], skipped[NORM_FOURS];
    CUDA_UNROLL for (int j = 0; j < NORM_FOURS; j++) {
        const int at = tile + 4 * ((int)get_local_id(0) + j * s->items);
        const int n = fours_left((uint)at, s->n);
        own[j] = four_at(x, s->x_type, x_at + (size_t)at, n, aligned);
        skipped[j] = f->beta[j] = pack_four(F32, 0u, 0u, 0u, 0u);
        if (s->has_skip)
            skipped[j] = four_at(skip, s->skip_type, skip_at + (size_t)at, n, aligned);
        if (all)
            f->weight[j] = four_at(weight, F32, (size_t)at, n, aligned);
        if (all && s->has_beta)
            f->beta[j] = four_at(beta, F32, (size_t)at, n, aligned);
    }
    CUDA_UNROLL for (int j = 0; j < NORM_FOURS; j++) {
        const int at = tile + 4 * ((int)get_local_id(0) + j * s->items);
        float a[4], b[4];
        widen_four(own[j], s->x_type, a);
        widen_four(skipped[j], s->skip_type, b);
        CUDA_UNROLL for (int e = 0; e < 4; e++)
            f->before[4 * j + e] = s->has_skip ? a[e] + b[e] : a[e];
        if (!s->has_bias)
            continue;
        widen_four(four_at(bias, F32, (size_t)at, fours_left((uint)at, s->n), aligned), F32, a);
        CUDA_UNROLL for (int e = 0; e < 4; e++)
            f->before[4 * j + e] += a[e];
    }
}

/* Stores the elements of a tile minus `centre` in local memory, with zeros up to a multiple of a
 * round. */
GQN_FN void norm_stage(const norm_fours *f, const norm_shape *s, int tile, float centre,
                       __local float4 *row) {
    const int left = s->n - tile, round = NORM_AHEAD * GQAC_LANES;
    CUDA_UNROLL for (int j = 0; j < NORM_FOURS; j++) {
        const int four = (int)get_local_id(0) + j * s->items;
        float v[4];
        if (4 * four >= (left + round - 1) / round * round)
            continue;
        CUDA_UNROLL for (int e = 0; e < 4; e++)
            v[e] = 4 * four + e < left ? f->before[4 * j + e] - centre : 0.0f;
        row[four] = FLOAT4(v[0], v[1], v[2], v[3]);
    }
}

GQN_FN void norm_write(const norm_fours *f, const norm_shape *s, int tile, size_t begin,
                       float centre, float scale, __global uchar *y, __global uchar *sum) {
    const bool aligned = s->n % 4 == 0;
    CUDA_UNROLL for (int j = 0; j < NORM_FOURS; j++) {
        const int at = tile + 4 * ((int)get_local_id(0) + j * s->items);
        const int n = fours_left((uint)at, s->n);
        float d[4], weight[4], beta[4];
        if (n <= 0)
            continue;
        widen_four(f->weight[j], F32, weight);
        widen_four(f->beta[j], F32, beta);
        CUDA_UNROLL for (int e = 0; e < 4; e++) {
            d[e] = rounded((f->before[4 * j + e] - centre) * scale, s->before_type) * weight[e];
            if (s->has_beta)
                d[e] += beta[e];
            d[e] = one_nan(d[e]);
        }
        put_four(y, s->y_type, begin + (size_t)at, n, aligned, d);
        if (s->has_sum)
            put_four(sum, s->sum_type, begin + (size_t)at, n, aligned, f->before + 4 * j);
    }
}

/* A group has one row. Each of its first GQAC_LANES items computes one lane of the sums; all items
 * copy the elements to local memory. If a row is one tile, it is loaded only once. Passes: 0
 * computes the mean if there is one, 1 the sum of squares, 2 the result. */
__kernel MOST(NORM_ITEMS) void norm_rows(__global const uchar *x, __global const uchar *skip,
                                         __global const uchar *bias, __global const uchar *weight,
                                         __global const uchar *beta, __global uchar *y,
                                         __global uchar *sum, __global float *mean,
                                         __global float *inv, norm_shape s) {
    SHARED float4 row_fours[NORM_TILE / 4];
    SHARED float lanes[GQAC_LANES];
    const int item = (int)get_local_id(0), size = s.items * NORM_FOURS * 4;
    const uint row = (uint)get_group_id(0);
    const size_t n = (size_t)s.n, begin = row * n;
    const size_t skip_at = (row < (uint)s.skip_rows ? row : row % (uint)s.skip_rows) * n;
    float centre = 0.0f, scale = 0.0f;
    norm_fours f;
    if (s.weight_count > 1)
        weight += row / (uint)s.weight_repeat % (uint)s.weight_count * n * sizeof(float);
    if (s.has_beta && s.beta_count > 1)
        beta += row / (uint)s.beta_repeat % (uint)s.beta_count * n * sizeof(float);
    const int first_pass = s.centred ? 0 : 1;
    ROLLED for (int pass = first_pass; pass < 3; pass++) {
        float total = 0.0f;
        ROLLED for (int tile = 0; tile < s.n; tile += size) {
            if (pass == first_pass || s.n > size)
                norm_read(x, begin, skip, skip_at, bias, weight, beta, &s, tile,
                          pass == 2 || s.n <= size, &f);
            if (pass == 2) {
                norm_write(&f, &s, tile, begin, centre, scale, y, sum);
                continue;
            }
            if (tile > 0) /* the lanes have finished reading the previous tile */
                barrier(CLK_LOCAL_MEM_FENCE);
            norm_stage(&f, &s, tile, centre, row_fours);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item < GQAC_LANES)
                total = lane_chain((__local const float *)row_fours + item,
                                   s.n - tile < size ? s.n - tile : size, pass == 1, NORM_AHEAD,
                                   total);
        }
        if (pass == 2)
            continue;
        if (item < GQAC_LANES)
            lanes[item] = total;
        barrier(CLK_LOCAL_MEM_FENCE);
        const float by_n = gqn_div(fold_lanes(lanes), (float)s.n);
        if (pass == 0)
            centre = by_n;
        else
            scale = gqn_rsqrt(by_n + s.epsilon);
    }
    if (item == 0 && s.has_mean)
        mean[row] = one_nan(centre);
    if (item == 0 && s.has_inv)
        inv[row] = scale;
}

/* ---- copies -------------------------------------------------------------------- */

/* op_box of ops/work.h: for each axis its length, and the step from one index to the next. */
typedef struct box_shape {
    int rank, n, first_in, first_out;
    int dims[BOX_RANK], in_step[BOX_RANK], out_step[BOX_RANK];
} box_shape;

/* Elements of 16 or 32 bits are copied without conversion, NaN included; where rows allow it,
 * several of them are copied as one of 128 bits. The grid is the n elements of the box, whose rank
 * is at least 1. */
#define COPY_ITEMS 256 /* items of a group, at most */
#define COPY_BOX(NAME, ELEMENT)                                                                    \
    __kernel MOST(COPY_ITEMS) void NAME(__global const ELEMENT *x, __global ELEMENT *y,            \
                                        box_shape s) {                                             \
        const int i = (int)get_global_id(0);                                                       \
        int rest = i, from = s.first_in, to = s.first_out;                                         \
        if (i >= s.n)                                                                              \
            return;                                                                                \
        for (int axis = s.rank - 1; axis > 0; axis--) {                                            \
            const int whole = (int)((uint)rest / (uint)s.dims[axis]);                              \
            const int index = rest - whole * s.dims[axis];                                         \
            rest = whole;                                                                          \
            from += index * s.in_step[axis];                                                       \
            to += index * s.out_step[axis];                                                        \
        }                                                                                          \
        y[to + rest * s.out_step[0]] = x[from + rest * s.in_step[0]];                              \
    }
COPY_BOX(copy_box, uint)
COPY_BOX(copy_box_16, ushort)
COPY_BOX(copy_box_128, uint4)

/* y [n,width] = the rows of x that `list` [n] names. The grid is [width, n]. */
#define COPY_ROWS(NAME, ELEMENT)                                                                   \
    __kernel MOST(COPY_ITEMS) void NAME(__global const ELEMENT *x, __global const int *list,       \
                                        __global ELEMENT *y, int width, int n) {                   \
        const int d = (int)get_global_id(0), item = (int)get_global_id(1);                         \
        if (d < width && item < n)                                                                 \
            y[(size_t)item * (size_t)width + (size_t)d] =                                          \
                x[(size_t)list[item] * (size_t)width + (size_t)d];                                 \
    }
COPY_ROWS(copy_rows, uint)
COPY_ROWS(copy_rows_16, ushort)
COPY_ROWS(copy_rows_128, uint4)

/* The same struct as codes_shape in rows.c. A table [entries,inner,codes] whose codes are in
 * blocks, each with a scale. */
typedef struct codes_shape {
    long row_bits, zero_bits;     /* of a row of codes and of its zero points */
    int n, inner, codes, blocks;  /* n: listed entries; inner: rows of an entry; blocks: of a row */
    int block, bits, has_sign;    /* block: codes of a block */
    int has_zero, zero, type;     /* zero: if there are no zero points */
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
