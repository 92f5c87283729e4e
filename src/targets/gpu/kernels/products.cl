/* Products of rows with constant weights: y[m][n] = x[m][k] w[k][n], plus a bias. 16-bit rows are
 * read and written in their own type; otherwise `x_type` is fp32. Definition: gqn_dot_chain in
 * numerics/reduce.h; for codes ops/matmul_nbits.c, fp32. Each element has one chain for each piece
 * of k, in all of these kernels, and the pieces are added in ascending order.
 *
 *   product_few   up to 16 rows. Pieces of one element are computed at the same time.
 *   product_tile  more rows. A group computes a tile of rows and columns. */

#ifdef CONTROL_KERNEL_BY_ROWS /* negative control: one row is summed in other pieces */
#define FEW_PIECE (s->m == 1 ? 64 : GQAC_K_PIECE)
#else
#define FEW_PIECE GQAC_K_PIECE
#endif

#ifdef CONTROL_GPU_ROWS_AFTER_END /* negative control: the last tile reads rows after the end */
#define ROW(r) (first + (r))
#else
#define ROW(r) (first + (r) < s->m ? first + (r) : s->m - 1)
#endif

#ifdef CONTROL_GPU_PIECES_DESCEND /* negative control: pieces are added in another order */
#define IN_ORDER(i, n) ((n) - 1 - (i))
#else
#define IN_ORDER(i, n) (i)
#endif

/* The value to which the pieces are added: -0, which does not change any sum. */
GQN_FN float before_pieces(const product_shape *s) {
    return s->from_zero ? 0.0f : -0.0f;
}

/* y = total plus the bias; if the sum is split, its parts are written without bias. */
GQN_FN void write_sum(float total, __global const float *bias, __global uchar *y, int row, int at,
                      const product_shape *s) {
    if (row < s->m && at < s->n)
        put_float(y, s->split ? F32 : s->y_type, (size_t)row * (size_t)s->n + (size_t)at,
                  s->split ? total : one_nan(s->has_bias ? total + bias[at] : total));
}

/* ---- few rows ------------------------------------------------------------------- */

/* A team of 32 items computes one piece of 32 columns, and an item the chains of one column for
 * `rows` rows. An item reads its weights itself, FEW_AHEAD chunks in advance; x is copied to local
 * memory in steps of FEW_DEPTH k. The teams of a group compute pieces of the same columns, and the
 * first team adds them. The grid is [rows / `rows`, columns / 32]: groups of the same columns run
 * at the same time, so all but one find their weights in a cache. */
#define FEW_COLUMNS      32
#define FEW_TEAMS(rows)  ((rows) == 1 ? 16 : 8)
#define FEW_DEPTH(rows)  ((rows) == 1 ? GQAC_K_PIECE : GQAC_K_PIECE / 2)
#define FEW_AHEAD(kind, rows)                                                                      \
    ((rows) == 1 ? ((kind) == 2 ? 4 : (kind) == 4 ? 6 : (kind) == 8 ? 8 : 12)                      \
     : (kind) == 2 ? 1                                                                             \
     : (kind) == 8 ? 2                                                                             \
                   : 4)

typedef struct few_place {
    int team, lane, at, first; /* at: the column; first: the row */
} few_place;

/* Groups of columns are along axis `axis` of the grid. */
GQN_FN few_place few_place_of(const int axis, int first) {
    few_place p;
    p.team = (int)get_local_id(0) / FEW_COLUMNS;
    p.lane = (int)get_local_id(0) % FEW_COLUMNS;
    p.at = (int)get_group_id(axis) * FEW_COLUMNS + p.lane;
    p.first = first;
    return p;
}

/* A chunk, with scale and zero point for each 16 k. */
typedef struct few_ahead {
    uint4 chunk;
    float scale[4], zero[4];
} few_ahead;

/* Reads the chunk at `chunk`, whose first k is `k`. */
GQN_FN void few_read(const int kind, __global const uint4 *chunk, product_weights w, int k, int at,
                     const product_shape *s, few_ahead *a) {
    a->chunk = *chunk;
    UNROLL for (int i = 0; kind <= 8 && i < CHUNK_K(kind) / 16; i++) {
        a->scale[i] = w.scales[block_at(k + 16 * i, at, s->width, s)];
        a->zero[i] = w.zeros[block_at(k + 16 * i, at, s->zero_step, s)];
    }
}

/* sum[rows] += the chain over a chunk. */
GQN_FN void few_chunk(const int kind, const int rows, const few_ahead *a, __local const float *x,
                      float *sum) {
    UNROLL for (int i = 0; i < CHUNK_K(kind); i += 4) {
        float w[4];
        UNROLL for (int j = 0; j < 4; j++) {
            w[j] = chunk_value(kind, a->chunk, i + j);
            if (kind <= 8)
                w[j] = (w[j] - a->zero[i / 16]) * a->scale[i / 16];
        }
        UNROLL for (int r = 0; r < rows; r++) {
            const float4 v = *(__local const float4 *)(x + r * FEW_DEPTH(rows) + i);
            sum[r] = gqn_fma(v.x, w[0], sum[r]);
            sum[r] = gqn_fma(v.y, w[1], sum[r]);
            sum[r] = gqn_fma(v.z, w[2], sum[r]);
            sum[r] = gqn_fma(v.w, w[3], sum[r]);
        }
    }
}

/* sum[rows] += the chain over k from `k` on, up to FEW_DEPTH of them, all before `end`. `a` holds
 * the first chunks, and on return those after the step; next: the chunk after these. */
GQN_FN void few_depth(const int kind, const int rows, product_weights weights,
                      __global const uint4 **next, int k, int end, int at, const product_shape *s,
                      __local const float *x, few_ahead *a, float *sum) {
    const int step = CHUNK_K(kind), ahead = FEW_AHEAD(kind, rows) * step;
    const int left = end - k < FEW_DEPTH(rows) ? end - k : FEW_DEPTH(rows);
    int i = 0;
    ROLLED for (; i + ahead <= left; i += ahead)
        CUDA_UNROLL for (int j = 0; j < FEW_AHEAD(kind, rows); j++) {
            const int then = k + i + j * step + ahead;
            if (rows > 1) {
                IN_TURN; /* without this, x is read for all chunks first */
            }
            few_chunk(kind, rows, &a[j], x + i + j * step, sum);
            if (then < end)
                few_read(kind, *next, weights, then, at, s, &a[j]);
            *next += s->width;
        }
    __global const uint4 *chunk =
        weights.data + (size_t)((k + i) / step) * (size_t)s->width + (size_t)at;
    ROLLED for (; i + step <= left; i += step, chunk += s->width) { /* now in a cache */
        few_ahead one;
        few_read(kind, chunk, weights, k + i, at, s, &one);
        few_chunk(kind, rows, &one, x + i, sum);
    }
    ROLLED for (; i < left; i++) {
        float w = weight_at(kind, weights.data, k + i, at, s);
        if (kind <= 8)
            w = (w - weights.zeros[block_at(k + i, at, s->zero_step, s)]) *
                weights.scales[block_at(k + i, at, s->width, s)];
        UNROLL for (int r = 0; r < rows; r++)
            sum[r] = gqn_fma(x[r * FEW_DEPTH(rows) + i], w, sum[r]);
    }
}

/* Copies the next FEW_DEPTH k of x to local memory. */
GQN_FN void few_rows(const int x_type, const int rows, __global const uchar *x, int k, int end,
                     few_place p, const product_shape *s, __local float *xs) {
    const int fours = FEW_DEPTH(rows) / 4, first = p.first;
    barrier(CLK_LOCAL_MEM_FENCE);
    ROLLED for (int at = p.lane; s->k % 4 == 0 && at < rows * fours; at += 4 * FEW_COLUMNS) {
        float4 v[4];
        UNROLL for (int j = 0; j < 4; j++) {
            const int i = at + j * FEW_COLUMNS, own = k + i % fours * 4;
            v[j] = own < end ? four_of(x, x_type, (size_t)ROW(i / fours) * (size_t)s->k, own, end,
                                       true)
                             : FLOAT4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        UNROLL for (int j = 0; j < 4; j++)
            *(__local float4 *)(xs + 4 * (at + j * FEW_COLUMNS)) = v[j];
    }
    ROLLED for (int i = p.lane; s->k % 4 != 0 && i < rows * fours * 4; i += FEW_COLUMNS) {
        const int own = k + i % (fours * 4);
        xs[i] = own < end ? one_of(x, x_type, (size_t)ROW(i / (fours * 4)) * (size_t)s->k +
                                                  (size_t)own)
                          : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* The first team adds the pieces of a round, in sums [teams][rows][columns], to the sum of the
 * earlier rounds, which is stored after them; after the last round it writes y. */
GQN_FN void few_add(const int rows, __local float *sums, __global const float *bias,
                    __global uchar *y, int round, int pieces, few_place p, const product_shape *s) {
    const int n = pieces - round < s->teams ? pieces - round : s->teams;
    if (p.team > 0)
        return;
    UNROLL for (int r = 0; r < rows; r++) {
        __local float *before = sums + (FEW_TEAMS(rows) * rows + r) * FEW_COLUMNS + p.lane;
        float total = round > 0 ? *before : before_pieces(s);
        for (int i = 0; i < n; i++)
            total += sums[(IN_ORDER(i, n) * rows + r) * FEW_COLUMNS + p.lane];
        if (round + n < pieces)
            *before = total;
        else
            write_sum(total, bias, y, p.first + r, p.at, s);
    }
}

GQN_FN void product_few(const int kind, const int x_type, const int rows,
                        __global const uchar *x, product_weights weights,
                        __global const float *bias, __global uchar *y, few_place p,
                        const product_shape *s, __local float *xs, __local float *sums) {
    const int size = FEW_PIECE, pieces = (s->k + size - 1) / size;
    const int at = p.at < s->width ? p.at : s->width - 1;
    few_ahead ahead[12];
    xs += p.team * rows * FEW_DEPTH(rows);
    for (int round = 0; round < pieces; round += s->teams) {
        const int begin = (round + p.team) * size;
        const int end = s->k - begin < size ? s->k : begin + size; /* may be less than `begin` */
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        __global const uint4 *next =
            weights.data + (size_t)(begin / CHUNK_K(kind)) * (size_t)s->width + (size_t)at;
        CUDA_UNROLL for (int j = 0; j < FEW_AHEAD(kind, rows); j++, next += s->width)
            if (begin + j * CHUNK_K(kind) < end)
                few_read(kind, next, weights, begin + j * CHUNK_K(kind), at, s, &ahead[j]);
        for (int k = 0; k < size && k < s->k; k += FEW_DEPTH(rows)) {
            few_rows(x_type, rows, x, begin + k, end, p, s, xs);
            few_depth(kind, rows, weights, &next, begin + k, end, at, s, xs, ahead, sum);
        }
        UNROLL for (int r = 0; r < rows; r++)
            sums[(p.team * rows + r) * FEW_COLUMNS + p.lane] = sum[r];
        barrier(CLK_LOCAL_MEM_FENCE);
        few_add(rows, sums, bias, y, round, pieces, p, s);
    }
}

#define PRODUCT_FEW(NAME, KIND, ROWS)                                                              \
    __kernel MOST(FEW_TEAMS(ROWS) * FEW_COLUMNS) void product_few##ROWS##_##NAME(                  \
        __global const uchar *x, WEIGHTS, __global const float *bias, __global uchar *y,           \
        product_shape s) {                                                                         \
        SHARED float4 xs[FEW_TEAMS(ROWS) * ROWS * FEW_DEPTH(ROWS) / 4];                            \
        SHARED float sums[(FEW_TEAMS(ROWS) + 1) * ROWS * FEW_COLUMNS];                             \
        product_few(KIND, X_TYPE(KIND), ROWS, x, weights_of(weights, scales, zeros), bias, y,      \
                    few_place_of(1, (int)get_group_id(0) * ROWS), &s, (__local float *)xs, sums);  \
    }

/* ---- tiles ---------------------------------------------------------------------- */

/* A group of 128 items has 64 rows of 128 columns; a warp of 32 items has 32 rows of 64 columns,
 * and an item 8 rows of 8 columns, as two sets of four rows, 16 apart, and two sets of four
 * columns, 32 apart. A step of TILE_DEPTH k is in local memory: rows of x in `xs` by k, weights in
 * `ws` as fp32. There are two buffers of each: while one step is computed, the next is read. If k
 * ends within a step, x is +0 and w is -0 from there on; their product -0 does not change a sum.
 * With several pieces, an item keeps the sum of its pieces in memory, `totals`. The grid is
 * [columns / 128, rows / 64], or that times the pieces. */
#define TILE_ROWS    64
#define TILE_COLUMNS 128
#define TILE_ITEMS   128
#define TILE_DEPTH(kind) ((kind) == KIND_F32 ? 8 : 16)

typedef struct tile_place {
    int id, first, at, row, column; /* of the tile; of the item in the tile */
} tile_place;

/* Half a step of a row of x, and a whole step of a column, in their stored form. */
typedef struct tile_ahead {
    uint4 x[2], w[4];
    float scale, zero;
} tile_ahead;

/* n elements of the row that begins at `at`, from element i on, with zeros from `end` on; n is 8,
 * or 4 for fp32. */
GQN_FN void some_of(__global const uchar *x, const int type, const int n, size_t at, int i, int end,
                    bool aligned, uint4 *v) {
    if (aligned && i < end) {
        if (n == 8 && type == F32)
            v[1] = ((__global const uint4 *)((__global const float *)x + at + i))[1];
        v[0] = type == F32 ? *(__global const uint4 *)((__global const float *)x + at + i)
                           : *(__global const uint4 *)((__global const ushort *)x + at + i);
        return;
    }
    uint u[8];
    UNROLL for (int j = 0; j < 8; j++)
        u[j] = j >= n || i + j >= end  ? 0u
               : type == F32 ? ((__global const uint *)x)[at + i + j]
                             : (uint)((__global const ushort *)x)[at + i + j];
    UNROLL for (int j = 0; type != F32 && j < 4; j++)
        u[j] = u[2 * j] | u[2 * j + 1] << 16;
    v[0].x = u[0];
    v[0].y = u[1];
    v[0].z = u[2];
    v[0].w = u[3];
    v[1].x = u[4];
    v[1].y = u[5];
    v[1].z = u[6];
    v[1].w = u[7];
}

/* The row of x that an item reads, and which half of a step. */
#define TILE_X_ROW(id)  ((id) / 32 * 16 + (id) % 16)
#define TILE_X_HALF(id) ((id) / 16 % 2)

GQN_FN void tile_read(const int kind, const int x_type, __global const uchar *x,
                      product_weights weights, int k, int end, tile_place p, const product_shape *s,
                      tile_ahead *a) {
    const int first = p.first, row = k / CHUNK_K(kind);
    const int at = p.at + p.id < s->width ? p.at + p.id : s->width - 1;
    const int half_depth = TILE_DEPTH(kind) / 2;
    some_of(x, x_type, half_depth, (size_t)ROW(TILE_X_ROW(p.id)) * (size_t)s->k,
            k + TILE_X_HALF(p.id) * half_depth, end, s->k % 8 == 0, a->x);
    UNROLL for (int j = 0; j * CHUNK_K(kind) < TILE_DEPTH(kind); j++)
        if (kind >= 8)
            a->w[j] = chunk_at(kind, weights.data, row + j, at, s);
    if (kind < 8) { /* only a part of a chunk */
        const int last = (s->k - 1) / CHUNK_K(kind), own = row < last ? row : last;
        const size_t part = ((size_t)own * (size_t)s->width + (size_t)at) * 8 / kind +
                            (size_t)(k % CHUNK_K(kind) / TILE_DEPTH(kind));
        if (kind == 4) {
            const uint2 words = ((__global const uint2 *)weights.data)[part];
            a->w[0].x = words.x;
            a->w[0].y = words.y;
        } else
            a->w[0].x = ((__global const uint *)weights.data)[part];
    }
    if (kind <= 8) {
        a->scale = weights.scales[block_at(k, at, s->width, s)];
        a->zero = weights.zeros[block_at(k, at, s->zero_step, s)];
    }
}

GQN_FN void tile_store(const int kind, const int x_type, int left, tile_place p,
                       const tile_ahead *a, __local float *xs, __local float *ws) {
    const int later = TILE_X_HALF(p.id), half_depth = TILE_DEPTH(kind) / 2;
    const int step = CHUNK_K(kind) < TILE_DEPTH(kind) ? CHUNK_K(kind) : TILE_DEPTH(kind);
    const int x_kind = x_type == F32 ? KIND_F32 : x_type == F16 ? KIND_F16 : KIND_BF16;
    /* rows of the second half are swapped in pairs of 16, so that the items of a warp use all
     * banks */
    xs += later * half_depth * TILE_ROWS + (TILE_X_ROW(p.id) ^ later * 16);
    UNROLL for (int i = 0; i < half_depth; i++)
        xs[i * TILE_ROWS] =
            chunk_value(x_kind, a->x[i / CHUNK_K(x_kind)], i % CHUNK_K(x_kind));
    UNROLL for (int i = 0; i < TILE_DEPTH(kind); i++) {
        float w = chunk_value(kind, a->w[i / step], i % step);
        if (kind <= 8)
            w = (w - a->zero) * a->scale;
        ws[i * TILE_COLUMNS + p.id] = i < left ? w : -0.0f;
    }
}

/* sums [8 rows][2] += the products of one k. */
GQN_FN void tile_step(float4 a, float4 b, float4 c, float4 d, float4 *sums) {
    sums[0] = fma_row(a.x, c, sums[0]);
    sums[1] = fma_row(a.x, d, sums[1]);
    sums[2] = fma_row(a.y, c, sums[2]);
    sums[3] = fma_row(a.y, d, sums[3]);
    sums[4] = fma_row(a.z, c, sums[4]);
    sums[5] = fma_row(a.z, d, sums[5]);
    sums[6] = fma_row(a.w, c, sums[6]);
    sums[7] = fma_row(a.w, d, sums[7]);
    sums[8] = fma_row(b.x, c, sums[8]);
    sums[9] = fma_row(b.x, d, sums[9]);
    sums[10] = fma_row(b.y, c, sums[10]);
    sums[11] = fma_row(b.y, d, sums[11]);
    sums[12] = fma_row(b.z, c, sums[12]);
    sums[13] = fma_row(b.z, d, sums[13]);
    sums[14] = fma_row(b.w, c, sums[14]);
    sums[15] = fma_row(b.w, d, sums[15]);
}

/* The same for one step. */
GQN_FN void tile_chain(const int kind, tile_place p, __local const float *xs,
                       __local const float *ws, float4 *sums) {
    __local const float *upper = xs + p.row, *lower = upper + 16, *w = ws + p.column;
    ROLLED for (int k = 0; k < TILE_DEPTH(kind); k += 2) {
        if (k == TILE_DEPTH(kind) / 2) { /* from here on rows are swapped */
            upper += 16;
            lower -= 16;
        }
        CUDA_UNROLL for (int j = 0; j < 2; j++)
            tile_step(*(__local const float4 *)(upper + j * TILE_ROWS),
                      *(__local const float4 *)(lower + j * TILE_ROWS),
                      *(__local const float4 *)(w + j * TILE_COLUMNS),
                      *(__local const float4 *)(w + j * TILE_COLUMNS + 32), sums);
        upper += 2 * TILE_ROWS;
        lower += 2 * TILE_ROWS;
        w += 2 * TILE_COLUMNS;
    }
}

/* Four floats of a row; zeros from `n` on. */
GQN_FN float4 read_four(__global const float *x, int at, int n) {
    float4 v;
    if (n % 4 == 0)
        return *(__global const float4 *)(x + at);
    v.x = x[at];
    v.y = at + 1 < n ? x[at + 1] : 0.0f;
    v.z = at + 2 < n ? x[at + 2] : 0.0f;
    v.w = at + 3 < n ? x[at + 3] : 0.0f;
    return v;
}

GQN_FN void write_four(__global uchar *y, int type, size_t row, int at, int n, float4 v) {
    const size_t i = row * (size_t)n + (size_t)at;
    if (n % 4 == 0 && type == F32) {
        *(__global float4 *)((__global float *)y + i) = v;
    } else if (n % 4 == 0) {
        uint2 u;
        u.x = type == F16 ? (uint)gqn_f32_to_f16(v.x) | (uint)gqn_f32_to_f16(v.y) << 16
                          : (uint)gqn_f32_to_bf16(v.x) | (uint)gqn_f32_to_bf16(v.y) << 16;
        u.y = type == F16 ? (uint)gqn_f32_to_f16(v.z) | (uint)gqn_f32_to_f16(v.w) << 16
                          : (uint)gqn_f32_to_bf16(v.z) | (uint)gqn_f32_to_bf16(v.w) << 16;
        *(__global uint2 *)((__global ushort *)y + i) = u;
    } else {
        put_float(y, type, i, v.x);
        if (at + 1 < n)
            put_float(y, type, i + 1, v.y);
        if (at + 2 < n)
            put_float(y, type, i + 2, v.z);
        if (at + 3 < n)
            put_float(y, type, i + 3, v.w);
    }
}

GQN_FN float4 add_four(float4 a, float4 b) {
    return FLOAT4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* y = totals plus the bias. */
GQN_FN void write_totals(float4 total, __global const float *bias, __global uchar *y, int row,
                         int at, const product_shape *s) {
    if (s->has_bias)
        total = add_four(total, read_four(bias, at, s->n));
    write_four(y, s->y_type, (size_t)row, at, s->n,
               FLOAT4(one_nan(total.x), one_nan(total.y), one_nan(total.z), one_nan(total.w)));
}

/* Stores the sums of a piece. If they are the first of several pieces, or another kernel adds the
 * pieces, they are stored in `totals`; later pieces are added to these. */
GQN_FN void tile_four(float4 sum, bool first, bool last, __global const float *bias,
                       __global uchar *y, __global float *totals, int row, int at,
                       const product_shape *s) {
    if (row >= s->m || at >= s->n)
        return;
    if (!first)
        sum = add_four(read_four(totals + (size_t)(row - s->from) * (size_t)s->n, at, s->n), sum);
    if (last)
        write_totals(sum, bias, y, row, at, s);
    else
        write_four((__global uchar *)totals, F32, (size_t)(row - s->from), at, s->n, sum);
}

/* The same for a tile, 16 rows at a time through local memory, so that whole rows are written.
 * sums: [4 rows], or, if there are also columns 32 further on, [4 rows][2]; then the same 16 rows
 * later. */
GQN_FN void tile_piece(const int items, const int wide, const float4 *sums, __local float *memory,
                       bool first, bool last, __global const float *bias, __global uchar *y,
                       __global float *totals, tile_place p, const product_shape *s) {
    ROLLED for (int b = 0; b < TILE_ROWS / 16; b++) {
        __local float *to = memory + p.row % 16 * TILE_COLUMNS + p.column;
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL for (int i = 0; i < 8 * wide; i++)
            if (b == p.row / 32 * 2 + i / (4 * wide))
                *(__local float4 *)(to + i / wide % 4 * TILE_COLUMNS + i % wide * 32) = sums[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        ROLLED for (int i = p.id; i < 4 * TILE_COLUMNS; i += items) {
            const int row = i / (TILE_COLUMNS / 4), column = i % (TILE_COLUMNS / 4) * 4;
            tile_four(*(__local float4 *)(memory + 4 * i), first, last, bias, y, totals,
                      p.first + b * 16 + row, p.at + column, s);
        }
    }
}

/* The first row of a group along axis 1, and the range of k: its piece, or all. */
GQN_FN int tile_split(const product_shape *s, int size, int count, int *begin, int *end) {
    const int pieces = (count + size - 1) / size, group = (int)get_group_id(1);
    *begin = s->split ? group % pieces * size : 0;
    *end = s->split && count - *begin > size ? *begin + size : count;
    return s->from + (s->split ? group / pieces : group) * TILE_ROWS;
}

/* The tile whose first row is `first`, over k from `begin` to `end`. */
GQN_FN void product_tile_at(const int kind, const int x_type, __global const uchar *x,
                            product_weights weights, __global const float *bias, __global uchar *y,
                            __global float *totals, int first, int begin, int end,
                            const product_shape *s, __local float *xs, __local float *ws) {
    const int id = (int)get_local_id(0), warp = id / 32, lane = id % 32;
    tile_place p;
    p.id = id;
    p.first = first;
    p.at = (int)get_group_id(0) * TILE_COLUMNS;
    p.row = warp / 2 * 32 + lane / 8 * 4;
    p.column = warp % 2 * 64 + lane % 8 * 4;
    const bool used = p.first + p.row < s->m && p.at + p.column < s->n;
    float4 sums[16];
    tile_ahead ahead;
    int half_at = 0;
    if (s->split)
        totals += (size_t)(begin / GQAC_K_PIECE) * (size_t)s->m * (size_t)s->n;
    UNROLL for (int i = 0; i < 16; i++)
        sums[i].x = sums[i].y = sums[i].z = sums[i].w = 0.0f;
    tile_read(kind, x_type, x, weights, begin, end, p, s, &ahead);
    for (int k = begin; k < end;) {
        __local float *xh = xs + half_at * TILE_DEPTH(kind) * TILE_ROWS;
        __local float *wh = ws + half_at * TILE_DEPTH(kind) * TILE_COLUMNS;
        tile_store(kind, x_type, end - k, p, &ahead, xh, wh);
        half_at = 1 - half_at;
        barrier(CLK_LOCAL_MEM_FENCE);
        k += TILE_DEPTH(kind);
        if (k < end)
            tile_read(kind, x_type, x, weights, k, end, p, s, &ahead);
        if (used)
            tile_chain(kind, p, xh, wh, sums);
        if (k < end && k % GQAC_K_PIECE != 0)
            continue;
        tile_piece(TILE_ITEMS, 2, sums, ws, s->split || k <= GQAC_K_PIECE, k >= end && !s->split,
                   bias, y, totals, p, s);
        barrier(CLK_LOCAL_MEM_FENCE); /* `ws` is overwritten next */
        UNROLL for (int i = 0; i < 16; i++)
            sums[i].x = sums[i].y = sums[i].z = sums[i].w = 0.0f;
    }
}

#define PRODUCT_TILE(NAME, KIND)                                                                   \
    __kernel GROUP(TILE_ITEMS) void product_tile_##NAME(                                           \
        __global const uchar *x, WEIGHTS, __global const float *bias, __global uchar *y,           \
        __global float *totals, product_shape s) {                                                 \
        SHARED float4 xs[2 * TILE_DEPTH(KIND) * TILE_ROWS / 4];                                    \
        SHARED float4 ws[2 * TILE_DEPTH(KIND) * TILE_COLUMNS / 4];                                 \
        int begin, end;                                                                            \
        const int first = tile_split(&s, GQAC_K_PIECE, s.k, &begin, &end);                         \
        product_tile_at(KIND, X_TYPE(KIND), x, weights_of(weights, scales, zeros), bias, y,        \
                        totals, first, begin, end, &s, (__local float *)xs, (__local float *)ws);  \
    }

#define PRODUCT(NAME, KIND)                                                                        \
    PRODUCT_FEW(NAME, KIND, 1)                                                                     \
    PRODUCT_FEW(NAME, KIND, 4)                                                                     \
    PRODUCT_TILE(NAME, KIND)
PRODUCT(f32, KIND_F32)
PRODUCT(f16, KIND_F16)
PRODUCT(bf16, KIND_BF16)
PRODUCT(2, 2)
PRODUCT(4, 4)
PRODUCT(8, 8)

/* y [m][n] = the sum of parts [pieces][m][n], added in ascending order, plus a bias. An item
 * computes four columns. The grid is [n / 4, m]. */
__kernel void product_add(__global const float *parts, __global const float *bias,
                          __global uchar *y, int pieces, product_shape s) {
    const int at = 4 * (int)get_global_id(0), row = (int)get_global_id(1);
    if (at >= s.n || row >= s.m)
        return;
    const size_t size = (size_t)s.m * (size_t)s.n;
    const float first = before_pieces(&s);
    parts += (size_t)row * (size_t)s.n;
    float4 total = FLOAT4(first, first, first, first);
    for (int i = 0; i < pieces; i++)
        total = add_four(total, read_four(parts + (size_t)IN_ORDER(i, pieces) * size, at, s.n));
    write_totals(total, bias, y, row, at, &s);
}
