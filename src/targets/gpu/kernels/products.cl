/* Products of rows with constant weights: y[m][n] = x[m][k] w[k][n], plus a bias. Rows of 16 bits are
 * read and written as they are; else `x_type` is fp32. Definition:
 * gqn_dot_chain in numerics/reduce.h; for codes ops/matmul_nbits.c, fp32. Each element has a chain of
 * its own in each piece of k, whatever kernel computes it, and the pieces are added ascending.
 *
 *   product_few   up to 16 rows. Pieces of one element are computed at the same time.
 *   product_tile  more rows. A group computes a tile of rows and columns. */

#ifdef CONTROL_KERNEL_BY_ROWS /* negative control: one row is summed in other pieces */
#define FEW_PIECE (s->m == 1 ? FEW_DEPTH(kind, rows) : GQAC_K_PIECE)
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

/* What the pieces are added to: -0, which changes none of them. */
GQN_FN float before_pieces(const product_shape *s) {
    return s->from_zero ? 0.0f : -0.0f;
}

/* ---- few rows ------------------------------------------------------------------- */

/* A team of 32 items has one piece of 32 columns, an item the chains of one column for `rows` rows.
 * The weights are read by the team, 128 bits an item, one depth ahead of their use, and lie in
 * `staged` as they are: their use is once. The teams of a group have pieces of the same columns;
 * the first adds them. The grid is [columns / 32, rows / `rows`]. */
#define FEW_COLUMNS 32
#define FEW_TEAMS   8
#define FEW_DEPTH(kind, rows)                                                                      \
    ((kind) == 4 || (kind) == 8 ? 64                                                               \
     : (rows) == 1              ? ((kind) == KIND_F32 ? 32 : (kind) == 2 ? 128 : 64)               \
                                : ((kind) == KIND_F32 ? 16 : (kind) == 2 ? 64 : 32))
/* Scales of an item, one for each 16 k; 0 for floats. */
#define FEW_SIXTEENS(kind, rows) ((kind) <= 8 ? FEW_DEPTH(kind, rows) / 16 : 0)
#define FEW_CHUNKS(kind, rows)                                                                     \
    (FEW_DEPTH(kind, rows) * FEW_COLUMNS / CHUNK_K(kind) / CHUNK_N(kind))

typedef struct few_place {
    int team, lane, at, first; /* at: the column; first: the row */
} few_place;

GQN_FN few_place few_place_of(const int rows) {
    few_place p;
    p.team = (int)get_local_id(0) / FEW_COLUMNS;
    p.lane = (int)get_local_id(0) % FEW_COLUMNS;
    p.at = (int)get_group_id(0) * FEW_COLUMNS + p.lane;
    p.first = (int)get_group_id(1) * rows;
    return p;
}

/* What an item reads ahead. */
typedef struct few_ahead {
    uint4 chunk[8];
    float4 x[4];
    float scale[8], zero[8];
} few_ahead;

/* Reads k from `k` to k + depth, of which those from `end` on are not used. */
GQN_FN void few_read(const int kind, const int x_type, const int rows, __global const uchar *x,
                     __global const uint4 *weights, __global const float *scales,
                     __global const float *zeros, int k, int end, few_place p,
                     const product_shape *s, few_ahead *a) {
    const int depth = FEW_DEPTH(kind, rows), wide = FEW_COLUMNS / CHUNK_N(kind), first = p.first;
    const int at = p.at < s->width ? p.at : s->width - 1;
    const int chunk = chunk_of(kind, p.at - p.lane + p.lane % wide * CHUNK_N(kind), s);
    UNROLL for (int j = 0; j < FEW_CHUNKS(kind, rows) / FEW_COLUMNS; j++)
        a->chunk[j] = chunk_at(
            kind, weights, k + (p.lane / wide + j * (FEW_COLUMNS / wide)) * CHUNK_K(kind), chunk, s);
    UNROLL for (int j = 0; j * FEW_COLUMNS < rows * depth / 4; j++) {
        const int i = p.lane + j * FEW_COLUMNS, r = i / (depth / 4);
        if (r < rows)
            a->x[j] = four_of(x, x_type, (size_t)ROW(r) * (size_t)s->k, k + i % (depth / 4) * 4,
                              end, s->k % 4 == 0);
    }
    UNROLL for (int j = 0; j < FEW_SIXTEENS(kind, rows); j++) {
        a->scale[j] = scales[block_at(k + 16 * j, at, s->width, s)];
        a->zero[j] = zeros[block_at(k + 16 * j, at, s->zero_step, s)];
    }
}

/* What a team has in local memory; scale and zero point of 16 k are those of an item's column. */
typedef struct few_staged {
    __local uint4 *chunks;
    __local float *x, *scale, *zero;
} few_staged;

GQN_FN void few_store(const int kind, const int rows, few_place p, const few_ahead *a,
                      few_staged f) {
    const int depth = FEW_DEPTH(kind, rows);
    UNROLL for (int j = 0; j < FEW_CHUNKS(kind, rows) / FEW_COLUMNS; j++)
        f.chunks[p.lane + j * FEW_COLUMNS] = a->chunk[j];
    UNROLL for (int j = 0; j * FEW_COLUMNS < rows * depth / 4; j++) {
        const int i = p.lane + j * FEW_COLUMNS;
        if (i < rows * depth / 4)
            *(__local float4 *)(f.x + 4 * i) = a->x[j];
    }
    UNROLL for (int j = 0; j < FEW_SIXTEENS(kind, rows); j++) {
        f.scale[j * FEW_COLUMNS] = a->scale[j];
        f.zero[j * FEW_COLUMNS] = a->zero[j];
    }
}

/* A column of chunks: words, or halves. */
typedef struct few_column {
    __local const uint *words;
    __local const ushort *halves;
} few_column;

/* Of the item's column, from row `row` on. */
GQN_FN few_column few_column_of(__local const uint4 *chunks, int row, int lane) {
    few_column c;
    c.words = (__local const uint *)chunks + row * FEW_COLUMNS + lane;
    c.halves = (__local const ushort *)chunks + row * FEW_COLUMNS + lane;
    return c;
}

/* The weight of k `i` of a column, without scale and zero point. */
GQN_FN float few_weight(const int kind, few_column c, const int i) {
    if (kind == KIND_F32)
        return gqn_as_f32(c.words[i * FEW_COLUMNS]);
    if (kind > 8)
        return half_value(c.halves[i * FEW_COLUMNS], kind);
    return code_value(c.words[i / CHUNK_K(kind) * FEW_COLUMNS], i % CHUNK_K(kind), kind);
}

/* sum[rows] += the chain over a whole depth. */
GQN_FN void few_chain(const int kind, const int rows, int lane, few_staged f, float *sum) {
    const int depth = FEW_DEPTH(kind, rows), step = kind <= 8 ? 16 : 8;
    few_column column = few_column_of(f.chunks, 0, lane);
    ROLLED for (int left = depth; left > 0; left -= step) {
        const float scale = kind <= 8 ? *f.scale : 0.0f, zero = kind <= 8 ? *f.zero : 0.0f;
        UNROLL for (int i = 0; i < step; i += 4) {
            float w[4];
            UNROLL for (int j = 0; j < 4; j++) {
                w[j] = few_weight(kind, column, i + j);
                if (kind <= 8)
                    w[j] = (w[j] - zero) * scale;
            }
            UNROLL for (int r = 0; r < rows; r++) {
                const float4 v = *(__local const float4 *)(f.x + r * depth + i);
                sum[r] = gqn_fma(v.x, w[0], sum[r]);
                sum[r] = gqn_fma(v.y, w[1], sum[r]);
                sum[r] = gqn_fma(v.z, w[2], sum[r]);
                sum[r] = gqn_fma(v.w, w[3], sum[r]);
            }
        }
        column.words += step / CHUNK_K(kind) * FEW_COLUMNS;
        column.halves += step * FEW_COLUMNS;
        f.x += step;
        f.scale += FEW_COLUMNS;
        f.zero += FEW_COLUMNS;
    }
}

/* The same over less than a depth. */
GQN_FN void few_rest(const int kind, const int rows, int lane, int left, few_staged f,
                     float *sum) {
    ROLLED for (int k = 0; k < left; k++) {
        const few_column column = few_column_of(f.chunks, k / CHUNK_K(kind), lane);
        float w = kind > 8 ? few_weight(kind, column, 0) : 0.0f;
        if (kind <= 8)
            w = (code_value(*column.words >> k % CHUNK_K(kind) * kind, 0, kind) -
                 f.zero[k / 16 * FEW_COLUMNS]) *
                f.scale[k / 16 * FEW_COLUMNS];
        UNROLL for (int r = 0; r < rows; r++)
            sum[r] = gqn_fma(f.x[r * FEW_DEPTH(kind, rows) + k], w, sum[r]);
    }
}

/* The first team adds the pieces of a round to total[rows], and writes y after the last. */
GQN_FN void few_add(const int rows, __local const float *sums, __global const float *bias,
                    __global uchar *y, int round, int pieces, few_place p, const product_shape *s,
                    float *total) {
    const int n = pieces - round < s->teams ? pieces - round : s->teams;
    if (p.team > 0 || p.at >= s->n)
        return;
    UNROLL for (int r = 0; r < rows; r++) {
        ROLLED for (int i = 0; i < n; i++)
            total[r] += sums[(IN_ORDER(i, n) * rows + r) * FEW_COLUMNS + p.lane];
        if (round + n == pieces && p.first + r < s->m)
            put_element(y, s->y_type, (size_t)(p.first + r) * (size_t)s->n + (size_t)p.at,
                        s->has_bias ? total[r] + bias[p.at] : total[r]);
    }
}

GQN_FN void product_few(const int kind, const int x_type, const int rows,
                        __global const uchar *x, __global const uint4 *weights,
                        __global const float *scales, __global const float *zeros,
                        __global const float *bias, __global uchar *y, few_place p,
                        const product_shape *s, few_staged f, __local float *sums) {
    const int depth = FEW_DEPTH(kind, rows), size = FEW_PIECE, pieces = (s->k + size - 1) / size;
    float total[4];
    few_ahead ahead;
    UNROLL for (int r = 0; r < rows; r++)
        total[r] = before_pieces(s);
    f.chunks += p.team * FEW_CHUNKS(kind, rows);
    f.x += p.team * rows * depth;
    f.scale += p.team * FEW_SIXTEENS(kind, rows) * FEW_COLUMNS + p.lane;
    f.zero += p.team * FEW_SIXTEENS(kind, rows) * FEW_COLUMNS + p.lane;
    for (int round = 0; round < pieces; round += s->teams) {
        const int begin = (round + p.team) * size;
        const int end = s->k - begin < size ? s->k : begin + size; /* may be before `begin` */
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        few_read(kind, x_type, rows, x, weights, scales, zeros, begin, end, p, s, &ahead);
        for (int k = 0; k < size && k < s->k; k += depth) {
            const int left = end - begin - k;
            barrier(CLK_LOCAL_MEM_FENCE);
            few_store(kind, rows, p, &ahead, f);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (k + depth < size && k + depth < s->k)
                few_read(kind, x_type, rows, x, weights, scales, zeros, begin + k + depth, end, p,
                         s, &ahead);
            if (left >= depth)
                few_chain(kind, rows, p.lane, f, sum);
            else
                few_rest(kind, rows, p.lane, left, f, sum);
        }
        UNROLL for (int r = 0; r < rows; r++)
            sums[(p.team * rows + r) * FEW_COLUMNS + p.lane] = sum[r];
        barrier(CLK_LOCAL_MEM_FENCE);
        few_add(rows, sums, bias, y, round, pieces, p, s, total);
    }
}

#define PRODUCT_FEW(NAME, KIND, ROWS)                                                              \
    __kernel MOST(FEW_TEAMS *FEW_COLUMNS) void product_few##ROWS##_##NAME(                         \
        __global const uchar *x, __global const uint4 *weights, __global const float *scales,      \
        __global const float *zeros, __global const float *bias, __global uchar *y,                \
        product_shape s) {                                                                         \
        SHARED uint4 chunks[FEW_TEAMS * FEW_CHUNKS(KIND, ROWS)];                                         \
        SHARED float4 xs[FEW_TEAMS * ROWS * FEW_DEPTH(KIND, ROWS) / 4];                                  \
        SHARED float scale[FEW_TEAMS * FEW_SIXTEENS(KIND, ROWS) * FEW_COLUMNS + 1];                      \
        SHARED float zero[FEW_TEAMS * FEW_SIXTEENS(KIND, ROWS) * FEW_COLUMNS + 1];                       \
        SHARED float sums[FEW_TEAMS * ROWS * FEW_COLUMNS];                                         \
        few_staged f;                                                                              \
        f.chunks = chunks;                                                                         \
        f.x = (__local float *)xs;                                                                 \
        f.scale = scale;                                                                           \
        f.zero = zero;                                                                             \
        product_few(KIND, X_TYPE(KIND), ROWS, x, weights, scales, zeros, bias, y,                  \
                    few_place_of(ROWS), &s, f, sums);                                              \
    }

/* ---- tiles ---------------------------------------------------------------------- */

/* A group of 256 items has 64 rows of 128 columns, an item 8 rows of 4 columns; 32 items have the
 * same rows. Rows of x lie in `xs` by k, weights in `ws` as fp32, each twice: while one depth is
 * computed the next is read. Where k ends within a depth x is +0 and w -0, whose product -0 changes
 * no sum. The grid is [columns / 128, rows / 64], or that times the pieces. */
#define TILE_ROWS        64
#define TILE_COLUMNS     128
#define TILE_ITEMS       256
#define TILE_STRIDE      (TILE_ROWS + 4) /* of xs; fewer conflicts of banks */
#define TILE_DEPTH       16

typedef struct tile_place {
    int id, first, at, row, column; /* of the tile; of the item in it */
} tile_place;

typedef struct tile_ahead {
    uint4 chunk[2];
    float4 x, scale, zero;
} tile_ahead;

GQN_FN void tile_read(const int kind, const int x_type, __global const uchar *x,
                      __global const uint4 *weights, __global const float *scales,
                      __global const float *zeros, int k, int end, tile_place p,
                      const product_shape *s, tile_ahead *a) {
    const int depth = TILE_DEPTH, wide = TILE_COLUMNS / CHUNK_N(kind), first = p.first;
    const int chunks = depth / CHUNK_K(kind) * wide;
    const int r = p.id / (depth / 4); /* an item has one part of x */
    a->x = four_of(x, x_type, (size_t)ROW(r) * (size_t)s->k, k + p.id % (depth / 4) * 4, end,
                   s->k % 4 == 0);
    UNROLL for (int j = 0; j * TILE_ITEMS < chunks; j++) {
        const int i = p.id + j * TILE_ITEMS;
        const int own = k + i / wide * CHUNK_K(kind), at = p.at + i % wide * CHUNK_N(kind);
        if (i < chunks) {
            a->chunk[j] = chunk_at(kind, weights, own, chunk_of(kind, at, s), s);
            if (kind <= 8) { /* one chunk at most */
                const int in = at < s->width ? at : s->width - 4;
                a->scale = *(__global const float4 *)(scales + block_at(own, in, s->width, s));
                a->zero = *(__global const float4 *)(zeros + block_at(own, in, s->zero_step, s));
            }
        }
    }
}

GQN_FN float4 codes_of(const int bits, uint4 word, const int i, float4 scale, float4 zero) {
    float4 w;
    w.x = (code_value(word.x, i, bits) - zero.x) * scale.x;
    w.y = (code_value(word.y, i, bits) - zero.y) * scale.y;
    w.z = (code_value(word.z, i, bits) - zero.z) * scale.z;
    w.w = (code_value(word.w, i, bits) - zero.w) * scale.w;
    return w;
}

GQN_FN float4 halves_of(const int kind, uint a, uint b) {
    float4 w;
    w.x = half_value(a & 0xffffu, kind);
    w.y = half_value(a >> 16, kind);
    w.z = half_value(b & 0xffffu, kind);
    w.w = half_value(b >> 16, kind);
    return w;
}

/* Writes a chunk as fp32, k by k; -0 from the k `left` on. */
GQN_FN void spread(const int kind, uint4 chunk, float4 scale, float4 zero, int left,
                   __local float *to) {
    float4 none;
    none.x = none.y = none.z = none.w = -0.0f;
    if (kind == KIND_F32) {
        float4 w;
        w.x = gqn_as_f32(chunk.x);
        w.y = gqn_as_f32(chunk.y);
        w.z = gqn_as_f32(chunk.z);
        w.w = gqn_as_f32(chunk.w);
        *(__local float4 *)to = left > 0 ? w : none;
    } else if (kind > 8) {
        *(__local float4 *)to = left > 0 ? halves_of(kind, chunk.x, chunk.y) : none;
        *(__local float4 *)(to + 4) = left > 0 ? halves_of(kind, chunk.z, chunk.w) : none;
    } else {
        UNROLL for (int i = 0; i < CHUNK_K(kind); i++)
            *(__local float4 *)(to + i * TILE_COLUMNS) = codes_of(kind, chunk, i, scale, zero);
        for (int i = left > 0 ? left : 0; i < CHUNK_K(kind); i++)
            *(__local float4 *)(to + i * TILE_COLUMNS) = none;
    }
}

GQN_FN void tile_store(const int kind, int left, tile_place p, const tile_ahead *a,
                       __local float *xs, __local float *ws) {
    const int depth = TILE_DEPTH, wide = TILE_COLUMNS / CHUNK_N(kind);
    const int chunks = depth / CHUNK_K(kind) * wide;
    xs += p.id % (depth / 4) * 4 * TILE_STRIDE + p.id / (depth / 4);
    xs[0] = a->x.x;
    xs[TILE_STRIDE] = a->x.y;
    xs[2 * TILE_STRIDE] = a->x.z;
    xs[3 * TILE_STRIDE] = a->x.w;
    UNROLL for (int j = 0; j * TILE_ITEMS < chunks; j++) {
        const int i = p.id + j * TILE_ITEMS, k = i / wide * CHUNK_K(kind);
        if (i < chunks)
            spread(kind, a->chunk[j], a->scale, a->zero, left - k,
                   ws + k * TILE_COLUMNS + i % wide * CHUNK_N(kind));
    }
}

/* sums [8 rows] += one depth. */
GQN_FN void tile_chain(tile_place p, __local const float *xs, __local const float *ws,
                       float4 *sums) {
    UNROLL_2 for (int k = 0; k < TILE_DEPTH; k++) {
        const float4 a = *(__local const float4 *)(xs + k * TILE_STRIDE + p.row);
        const float4 b = *(__local const float4 *)(xs + k * TILE_STRIDE + p.row + 4);
        const float4 w = *(__local const float4 *)(ws + k * TILE_COLUMNS + p.column);
        sums[0] = fma_row(a.x, w, sums[0]);
        sums[1] = fma_row(a.y, w, sums[1]);
        sums[2] = fma_row(a.z, w, sums[2]);
        sums[3] = fma_row(a.w, w, sums[3]);
        sums[4] = fma_row(b.x, w, sums[4]);
        sums[5] = fma_row(b.y, w, sums[5]);
        sums[6] = fma_row(b.z, w, sums[6]);
        sums[7] = fma_row(b.w, w, sums[7]);
    }
}

/* y = total plus the bias, of that type; a part of a sum is written as it is. */
GQN_FN void tile_write(const int type, float total, __global const float *bias, __global uchar *y,
                       int row, int at, const product_shape *s) {
    if (row < s->m && at < s->n)
        put_float(y, type, (size_t)row * (size_t)s->n + (size_t)at,
                  s->split ? total : one_nan(s->has_bias ? total + bias[at] : total));
}

/* WRITE(type) for the type of what a tile writes. Each of its elements would be a branch that the
 * compiler of CUDA follows through all others. */
#define TILE_TYPES(s, WRITE)                                                                       \
    if ((s)->split || (s)->y_type == F32) {                                                        \
        WRITE(F32)                                                                                 \
    } else if ((s)->y_type == F16) {                                                               \
        WRITE(F16)                                                                                 \
    } else {                                                                                       \
        WRITE(BF16)                                                                                \
    }

/* The first tile of a group along axis 1, and its piece, or all. */
GQN_FN int tile_split(const product_shape *s, int size, int count, int *begin, int *end) {
    const int pieces = (count + size - 1) / size, group = (int)get_group_id(1);
    *begin = s->split ? group % pieces * size : 0;
    *end = s->split && count - *begin > size ? *begin + size : count;
    return (s->split ? group / pieces : group) * TILE_ROWS;
}

/* The tile whose first row is `first`, over k from `begin` to `end`. */
GQN_FN void product_tile_at(const int kind, const int x_type, __global const uchar *x,
                            __global const uint4 *weights, __global const float *scales,
                            __global const float *zeros, __global const float *bias,
                            __global uchar *y, int first, int begin, int end,
                            const product_shape *s, __local float *xs, __local float *ws) {
    const int depth = TILE_DEPTH, id = (int)get_local_id(0);
    tile_place p;
    p.id = id;
    p.first = first;
    p.at = (int)get_group_id(0) * TILE_COLUMNS;
    p.row = id / (TILE_COLUMNS / 4) * 8;
    p.column = id % (TILE_COLUMNS / 4) * 4;
    const bool used = p.first + p.row < s->m && p.at + p.column < s->n;
    float4 sums[8], total[8];
    tile_ahead ahead;
    if (s->split)
        y += (size_t)(begin / GQAC_K_PIECE) * (size_t)s->m * (size_t)s->n * sizeof(float);
    tile_read(kind, x_type, x, weights, scales, zeros, begin, end, p, s, &ahead);
    int half_at = 0;
    UNROLL for (int i = 0; i < 8; i++)
        total[i].x = total[i].y = total[i].z = total[i].w = before_pieces(s);
    for (int start = begin; start < end; start += GQAC_K_PIECE) {
        const int stop = end - start < GQAC_K_PIECE ? end : start + GQAC_K_PIECE;
        UNROLL for (int i = 0; i < 8; i++)
            sums[i].x = sums[i].y = sums[i].z = sums[i].w = 0.0f;
        for (int k = start; k < stop; k += depth) {
            __local float *xh = xs + half_at * depth * TILE_STRIDE;
            __local float *wh = ws + half_at * depth * TILE_COLUMNS;
            tile_store(kind, end - k, p, &ahead, xh, wh);
            half_at = 1 - half_at;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (k + depth < end)
                tile_read(kind, x_type, x, weights, scales, zeros, k + depth, end, p, s, &ahead);
            if (used)
                tile_chain(p, xh, wh, sums);
        }
        UNROLL for (int i = 0; i < 8; i++) {
            total[i].x += sums[i].x;
            total[i].y += sums[i].y;
            total[i].z += sums[i].z;
            total[i].w += sums[i].w;
        }
    }
#define WRITE(type)                                                                                \
    UNROLL for (int i = 0; used && i < 8; i++) {                                                   \
        const int row = p.first + p.row + i, at = p.at + p.column;                                 \
        tile_write(type, total[i].x, bias, y, row, at, s);                                         \
        tile_write(type, total[i].y, bias, y, row, at + 1, s);                                     \
        tile_write(type, total[i].z, bias, y, row, at + 2, s);                                     \
        tile_write(type, total[i].w, bias, y, row, at + 3, s);                                     \
    }
    TILE_TYPES(s, WRITE)
#undef WRITE
}

GQN_FN void product_tile(const int kind, __global const uchar *x, __global const uint4 *weights,
                         __global const float *scales, __global const float *zeros,
                         __global const float *bias, __global uchar *y, const product_shape *s,
                         __local float *xs, __local float *ws) {
    int begin, end;
    const int first = tile_split(s, GQAC_K_PIECE, s->k, &begin, &end);
    product_tile_at(kind, X_TYPE(kind), x, weights, scales, zeros, bias, y, first, begin, end, s,
                    xs, ws);
}

#define PRODUCT_TILE(NAME, KIND)                                                                   \
    __kernel GROUP(TILE_ITEMS) void product_tile_##NAME(                                           \
        __global const uchar *x, __global const uint4 *weights, __global const float *scales,      \
        __global const float *zeros, __global const float *bias, __global uchar *y,                \
        product_shape s) {                                                                         \
        SHARED float4 xs[2 * TILE_DEPTH * TILE_STRIDE / 4];                                  \
        SHARED float4 ws[2 * TILE_DEPTH * TILE_COLUMNS / 4];                                 \
        product_tile(KIND, x, weights, scales, zeros, bias, y, &s, (__local float *)xs,            \
                     (__local float *)ws);                                                         \
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

/* y [m][n] = the sum of parts [pieces][m][n], ascending, plus a bias. The grid is [n, m]. */
__kernel void product_add(__global const float *parts, __global const float *bias,
                          __global uchar *y, int pieces, product_shape s) {
    const int at = (int)get_global_id(0), row = (int)get_global_id(1);
    if (at >= s.n || row >= s.m)
        return;
    const size_t i = (size_t)row * (size_t)s.n + (size_t)at, size = (size_t)s.m * (size_t)s.n;
    float total = before_pieces(&s);
    for (int piece = 0; piece < pieces; piece++)
        total += parts[(size_t)IN_ORDER(piece, pieces) * size + i];
    put_element(y, s.y_type, i, s.has_bias ? total + bias[at] : total);
}
