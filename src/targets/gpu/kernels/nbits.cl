/* Products of codes with activations that are rounded to int8. Definition: ops/matmul_nbits.c, level 4.
 *
 *   y = sum over blocks of float(sum of qa * (code - zero)) * (sa * scale)
 *
 * Integer sums are exact in any order: that of qa * code comes from products of four bytes, and zero
 * times the sum of qa is subtracted. Activations are rounded once for all columns. Their bytes lie in
 * the order in which codes are taken from a word: first those of the lowest bits of its four bytes. */

#define QUANTISE_ITEMS 64
#define QUANTISE_K     16 /* of an item at a time: the bytes of one word of 2-bit codes */

/* The greatest magnitude, as bits, of 16 elements from `at` of a row of k on. */
GQN_FN uint quantise_read(__global const uchar *x, int x_type, size_t row, int k, int at, float *v) {
    uint4 bits[4];
    uint most = 0u;
    CUDA_UNROLL for (int j = 0; j < 4; j++)
        bits[j] = four_at(x, x_type, row * (size_t)k + (size_t)(at + 4 * j),
                          fours_left((uint)(at + 4 * j), k), k % 4 == 0);
    CUDA_UNROLL for (int j = 0; j < 4; j++)
        widen_four(bits[j], x_type, v + 4 * j);
    CUDA_UNROLL for (int j = 0; j < QUANTISE_K; j++) {
        const uint u = gqn_as_u32(v[j]) & 0x7fffffffu;
        most = u > most ? u : most;
    }
    return most;
}

/* gqn_quantise(y, -127, 127): adding 1.5 * 2^23 rounds to an integer. */
GQN_FN int quantise_one(float y) {
    const float z = y > 127.0f ? 127.0f : y < -127.0f ? -127.0f : y;
    return y != y ? 0 : (int)(gqn_as_u32(z + 0x1.8p23f) - 0x4b400000u);
}

GQN_FN uint pack_bytes(const int *q, const int step) {
    return ((uint)q[0] & 255u) | ((uint)q[step] & 255u) << 8 | ((uint)q[2 * step] & 255u) << 16 |
           (uint)q[3 * step] << 24;
}

/* Activations of a row: qa [m][blocks << shift] bytes, sa and sq [m][blocks]: scales, and sums of
 * qa. A group has several blocks, or one that is longer than all of its items take at a time. The
 * grid is [blocks of a row, m]. */
__kernel GROUP(QUANTISE_ITEMS) void nbits_quantise(__global const uchar *x, __global uint4 *qa,
                                                   __global float *sa, __global int *sq, int k,
                                                   int blocks, int block, int bits, int x_type) {
    SHARED uint maxima[QUANTISE_ITEMS];
    SHARED int sums[QUANTISE_ITEMS];
    const int item = (int)get_local_id(0), together = QUANTISE_ITEMS * QUANTISE_K;
    const int span = block > together ? block : together, length = blocks * block;
    const int begin = (int)get_group_id(0) * span;
    const int end = length - begin < span ? length : begin + span;
    const int each = block / QUANTISE_K, share = each < QUANTISE_ITEMS ? each : QUANTISE_ITEMS;
    const int first = item & ~(share - 1); /* of the items that share a block */
    const size_t row = get_group_id(1);
    float v[QUANTISE_K];
    uint most = 0u;
    int sum = 0;
    for (int at = begin + item * QUANTISE_K; at < end; at += together) {
        const uint own = quantise_read(x, x_type, row, k, at, v);
        most = own > most ? own : most;
    }
    maxima[item] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = first; i < first + share; i++)
        most = maxima[i] > most ? maxima[i] : most;
    const bool finite = most < GQN_INF_BITS, some = finite && most != 0u;
    const float inverse = some ? gqn_div(127.0f, gqn_as_f32(most)) : 0.0f;
    for (int at = begin + item * QUANTISE_K; at < end; at += together) {
        int q[QUANTISE_K];
        uint4 bytes;
        if (span > together)
            quantise_read(x, x_type, row, k, at, v);
        CUDA_UNROLL for (int j = 0; j < QUANTISE_K; j++) {
            q[j] = some && at + j < k ? quantise_one(v[j] * inverse) : 0;
            sum += q[j];
        }
        bytes.x = bits == 8 ? pack_bytes(q, 1) : bits == 4 ? pack_bytes(q, 2) : pack_bytes(q, 4);
        bytes.y = bits == 8   ? pack_bytes(q + 4, 1)
                  : bits == 4 ? pack_bytes(q + 1, 2)
                              : pack_bytes(q + 1, 4);
        bytes.z = bits == 8   ? pack_bytes(q + 8, 1)
                  : bits == 4 ? pack_bytes(q + 8, 2)
                              : pack_bytes(q + 2, 4);
        bytes.w = bits == 8   ? pack_bytes(q + 12, 1)
                  : bits == 4 ? pack_bytes(q + 9, 2)
                              : pack_bytes(q + 3, 4);
        qa[(row * (size_t)length + (size_t)at) / QUANTISE_K] = bytes;
    }
    sums[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int b = (int)((uint)(begin + first * QUANTISE_K) / (uint)block);
    if (item != first || b >= blocks)
        return;
    for (int i = first + 1; i < first + share; i++)
        sum += sums[i];
    sa[row * (size_t)blocks + (size_t)b] =
        finite ? gqn_div(gqn_as_f32(most), 127.0f) : gqn_as_f32(GQN_NAN_BITS);
    sq[row * (size_t)blocks + (size_t)b] = sum;
}

/* Codes of a word, four at a time: those at bits i * `bits` of its bytes. */
GQN_FN uint code_bytes(uint word, const int i, const int bits) {
    return bits == 8 ? word : word >> (i * bits) & 0x01010101u * ((1u << bits) - 1u);
}

/* The k of a piece, and of a row with the rest of its last block. */
GQN_FN int int8_piece(const product_shape *s) {
    return s->from_zero || 1 << s->shift > GQAC_K_PIECE ? 1 << s->shift : GQAC_K_PIECE;
}
GQN_FN int int8_length(const product_shape *s) {
    return s->blocks << s->shift;
}

/* ---- few rows ------------------------------------------------------------------- */

/* As product_few: a team has one piece of 32 columns. */
typedef struct int8_ahead {
    uint4 chunk[4], qa;
    float scale[8], zero[8], sa;
    int sq;
} int8_ahead;

GQN_FN void int8_few_read(const int bits, const int rows, __global const uint4 *qa,
                          __global const float *sa, __global const int *sq,
                          __global const uint4 *words, __global const float *scales,
                          __global const float *zeros, int k, few_place p,
                          const product_shape *s, int8_ahead *a) {
    const int wide = FEW_COLUMNS / 4, first = p.first, sixteens = FEW_SIXTEENS(bits, rows);
    const int at = p.at < s->width ? p.at : s->width - 1, last = s->blocks - 1;
    const int r = p.lane / sixteens, own = k + p.lane % sixteens * 16;
    const int chunk = chunk_of(bits, p.at - p.lane + p.lane % wide * 4, s);
    UNROLL for (int j = 0; j < FEW_CHUNKS(bits, rows) / FEW_COLUMNS; j++)
        a->chunk[j] = chunk_at(
            bits, words, k + (p.lane / wide + j * (FEW_COLUMNS / wide)) * CHUNK_K(bits), chunk, s);
    UNROLL for (int j = 0; j < sixteens; j++) {
        a->scale[j] = scales[block_at(k + 16 * j, at, s->width, s)];
        a->zero[j] = zeros[block_at(k + 16 * j, at, s->zero_step, s)];
    }
    if (r < rows) { /* an item has 16 k of one row */
        const int block = own >> s->shift, b = block < last ? block : last;
        const int in = own < int8_length(s) ? own : int8_length(s) - 16;
        const size_t row = (size_t)ROW(r);
        a->qa = qa[(row * (size_t)int8_length(s) + (size_t)in) / 16];
        a->sa = sa[row * (size_t)s->blocks + (size_t)b];
        a->sq = sq[row * (size_t)s->blocks + (size_t)b];
    }
}

/* What a team has of its rows: [rows][16 k], and scale and sum of the block of each. */
typedef struct int8_rows {
    __local uint4 *qa;
    __local float *sa, *scale, *zero; /* scale and zero: as in few_staged */
    __local int *sq;
} int8_rows;

/* The end of a block: piece + sum of the block. */
GQN_FN float int8_block(int sum, float zero, int sq, float sa, float scale, float piece) {
    return gqn_fma((float)(sum - (int)zero * sq), sa * scale, piece);
}

GQN_FN void int8_few_chain(const int bits, const int rows, int lane, int k, int left,
                           __local const uint4 *staged, int8_rows x, const product_shape *s,
                           int *sum, float *piece) {
    const int sixteens = FEW_SIXTEENS(bits, rows), mask = (1 << s->shift) - 1;
    __local const uint *words = (__local const uint *)staged + lane;
    ROLLED for (int j = 0; j < sixteens && 16 * j < left; j++) {
        UNROLL for (int i = 0; i < 4; i++) {
            const uint w = code_bytes(words[i * 4 / CHUNK_K(bits) * FEW_COLUMNS], i % (8 / bits),
                                      bits);
            UNROLL for (int r = 0; r < rows; r++)
                sum[r] = dot_bytes(((__local const int *)(x.qa + r * sixteens))[i], w, sum[r]);
        }
        if (((k + 16 * j + 16) & mask) == 0)
            UNROLL for (int r = 0; r < rows; r++) {
                piece[r] = int8_block(sum[r], *x.zero, x.sq[r * sixteens], x.sa[r * sixteens],
                                      *x.scale, piece[r]);
                sum[r] = 0;
            }
        words += 16 / CHUNK_K(bits) * FEW_COLUMNS;
        x.qa++;
        x.sa++;
        x.sq++;
        x.scale += FEW_COLUMNS;
        x.zero += FEW_COLUMNS;
    }
}

GQN_FN void int8_few(const int bits, const int rows, __global const uint4 *qa,
                     __global const float *sa, __global const int *sq,
                     __global const uint4 *words, __global const float *scales,
                     __global const float *zeros, __global const float *bias, __global uchar *y,
                     const product_shape *s, __local uint4 *staged, int8_rows x,
                     __local float *sums) {
    const int depth = FEW_DEPTH(bits, rows), size = int8_piece(s), length = int8_length(s);
    const int pieces = (length + size - 1) / size, sixteens = FEW_SIXTEENS(bits, rows);
    const few_place p = few_place_of(rows);
    float total[4];
    int8_ahead ahead;
    UNROLL for (int r = 0; r < rows; r++)
        total[r] = before_pieces(s);
    staged += p.team * FEW_CHUNKS(bits, rows);
    x.qa += p.team * rows * sixteens;
    x.sa += p.team * rows * sixteens;
    x.sq += p.team * rows * sixteens;
    x.scale += p.team * sixteens * FEW_COLUMNS + p.lane;
    x.zero += p.team * sixteens * FEW_COLUMNS + p.lane;
    for (int round = 0; round < pieces; round += s->teams) {
        const int begin = (round + p.team) * size;
        const int end = length - begin < size ? length : begin + size;
        float piece[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        int sum[4] = {0, 0, 0, 0};
        int8_few_read(bits, rows, qa, sa, sq, words, scales, zeros, begin, p, s, &ahead);
        for (int k = 0; k < size && k < length; k += depth) {
            barrier(CLK_LOCAL_MEM_FENCE);
            UNROLL for (int j = 0; j < FEW_CHUNKS(bits, rows) / FEW_COLUMNS; j++)
                staged[p.lane + j * FEW_COLUMNS] = ahead.chunk[j];
            if (p.lane < rows * sixteens) {
                x.qa[p.lane] = ahead.qa;
                x.sa[p.lane] = ahead.sa;
                x.sq[p.lane] = ahead.sq;
            }
            UNROLL for (int j = 0; j < sixteens; j++) {
                x.scale[j * FEW_COLUMNS] = ahead.scale[j];
                x.zero[j * FEW_COLUMNS] = ahead.zero[j];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (k + depth < size && k + depth < length)
                int8_few_read(bits, rows, qa, sa, sq, words, scales, zeros, begin + k + depth, p,
                              s, &ahead);
            int8_few_chain(bits, rows, p.lane, begin + k, end - begin - k, staged, x, s, sum,
                           piece);
        }
        UNROLL for (int r = 0; r < rows; r++)
            sums[(p.team * rows + r) * FEW_COLUMNS + p.lane] = piece[r];
        barrier(CLK_LOCAL_MEM_FENCE);
        few_add(rows, sums, bias, y, round, pieces, p, s, total);
    }
}

#define INT8_FEW(BITS, ROWS)                                                                       \
    __kernel MOST(FEW_TEAMS * FEW_COLUMNS) void int8_few##ROWS##_##BITS(                                                         \
        __global const uint4 *qa, __global const float *sa, __global const int *sq,                \
        __global const uint4 *words, __global const float *scales, __global const float *zeros,    \
        __global const float *bias, __global uchar *y, product_shape s) {                          \
        SHARED uint4 staged[FEW_TEAMS * FEW_CHUNKS(BITS, ROWS)];                                         \
        SHARED uint4 rows[FEW_TEAMS * ROWS * FEW_SIXTEENS(BITS, ROWS)];                                 \
        SHARED float row_scale[FEW_TEAMS * ROWS * FEW_SIXTEENS(BITS, ROWS)];                             \
        SHARED float scale[FEW_TEAMS * FEW_SIXTEENS(BITS, ROWS) * FEW_COLUMNS];                          \
        SHARED float zero[FEW_TEAMS * FEW_SIXTEENS(BITS, ROWS) * FEW_COLUMNS];                           \
        SHARED int sum[FEW_TEAMS * ROWS * FEW_SIXTEENS(BITS, ROWS)];                                    \
        SHARED float sums[FEW_TEAMS * ROWS * FEW_COLUMNS];                                         \
        int8_rows x;                                                                               \
        x.qa = rows;                                                                               \
        x.sa = row_scale;                                                                          \
        x.scale = scale;                                                                           \
        x.zero = zero;                                                                             \
        x.sq = sum;                                                                                \
        int8_few(BITS, ROWS, qa, sa, sq, words, scales, zeros, bias, y, &s, staged, x, sums);      \
    }

/* ---- tiles ---------------------------------------------------------------------- */

/* A group of 256 items has 64 rows of 64 columns, an item 4 rows of 4 columns. A depth of 64 k lies
 * in local memory as words of four bytes, rows and columns by k. The grid is [columns / 64, rows /
 * 64], or that times the pieces. */
#define INT8_COLUMNS   64
#define INT8_DEPTH     64
#define INT8_SIXTEENTH (INT8_DEPTH / 16)

typedef struct int8_tile {
    __local uint *qs, *ws;           /* [16][TILE_STRIDE], [16][INT8_COLUMNS] */
    __local float *sa, *scale, *zero; /* [4][64] each */
    __local int *sq;
} int8_tile;

typedef struct int8_tile_ahead {
    uint4 chunk, qa;
    float sa, scale, zero;
    int sq;
} int8_tile_ahead;

/* An item reads 16 k of a row, scales and the like of a row and a column, and a chunk at most. */
GQN_FN void int8_tile_read(const int bits, __global const uint4 *qa, __global const float *sa,
                           __global const int *sq, __global const uint4 *words,
                           __global const float *scales, __global const float *zeros, int k,
                           tile_place p, const product_shape *s, int8_tile_ahead *a) {
    const int wide = INT8_COLUMNS / 4, chunks = INT8_DEPTH / CHUNK_K(bits) * wide;
    const int first = p.first, length = int8_length(s), last = s->blocks - 1;
    const int own = k + p.id / TILE_ROWS * 16, r = p.id % TILE_ROWS;
    const int block = own >> s->shift, b = block < last ? block : last;
    const int in = own < length ? own : length - 16;
    const int at = p.at + r < s->width ? p.at + r : s->width - 1;
    const size_t row = (size_t)ROW(r);
    a->qa = qa[(row * (size_t)length + (size_t)in) / 16];
    a->sa = sa[row * (size_t)s->blocks + (size_t)b];
    a->sq = sq[row * (size_t)s->blocks + (size_t)b];
    a->scale = scales[block_at(own, at, s->width, s)];
    a->zero = zeros[block_at(own, at, s->zero_step, s)];
    if (p.id < chunks)
        a->chunk = chunk_at(bits, words, k + p.id / wide * CHUNK_K(bits),
                            chunk_of(bits, p.at + p.id % wide * 4, s), s);
}

GQN_FN void int8_tile_store(const int bits, tile_place p, const int8_tile_ahead *a, int8_tile t) {
    const int wide = INT8_COLUMNS / 4, chunks = INT8_DEPTH / CHUNK_K(bits) * wide;
    __local uint *to = t.qs + p.id / TILE_ROWS * 4 * TILE_STRIDE + p.id % TILE_ROWS;
    to[0] = a->qa.x;
    to[TILE_STRIDE] = a->qa.y;
    to[2 * TILE_STRIDE] = a->qa.z;
    to[3 * TILE_STRIDE] = a->qa.w;
    t.sa[p.id] = a->sa;
    t.sq[p.id] = a->sq;
    t.scale[p.id] = a->scale;
    t.zero[p.id] = a->zero;
    if (p.id >= chunks)
        return;
    to = t.ws + p.id / wide * (8 / bits) * INT8_COLUMNS + p.id % wide * 4;
    UNROLL for (int f = 0; f < 8 / bits; f++) {
        uint4 w;
        w.x = code_bytes(a->chunk.x, f, bits);
        w.y = code_bytes(a->chunk.y, f, bits);
        w.z = code_bytes(a->chunk.z, f, bits);
        w.w = code_bytes(a->chunk.w, f, bits);
        *(__local uint4 *)(to + f * INT8_COLUMNS) = w;
    }
}

GQN_FN void dot_row(int q, uint4 w, int *sums) {
    sums[0] = dot_bytes(q, w.x, sums[0]);
    sums[1] = dot_bytes(q, w.y, sums[1]);
    sums[2] = dot_bytes(q, w.z, sums[2]);
    sums[3] = dot_bytes(q, w.w, sums[3]);
}

/* sums, pieces [4 rows][4 columns] += the 16 k that are number `j` of the depth. */
GQN_FN void int8_sixteen(int j, bool ends, tile_place p, int8_tile t, int *sums, float *pieces) {
    UNROLL for (int i = 0; i < 4; i++) {
        const int k = 4 * j + i;
        const uint4 w = *(__local const uint4 *)(t.ws + k * INT8_COLUMNS + p.column);
        const uint4 a = *(__local const uint4 *)(t.qs + k * TILE_STRIDE + p.row);
        dot_row((int)a.x, w, sums);
        dot_row((int)a.y, w, sums + 4);
        dot_row((int)a.z, w, sums + 8);
        dot_row((int)a.w, w, sums + 12);
    }
    if (!ends)
        return;
    UNROLL for (int c = 0; c < 4; c++) {
        const float scale = t.scale[j * INT8_COLUMNS + p.column + c];
        const float zero = t.zero[j * INT8_COLUMNS + p.column + c];
        UNROLL for (int r = 0; r < 4; r++) {
            const int row = j * TILE_ROWS + p.row + r, i = r * 4 + c;
            pieces[i] = int8_block(sums[i], zero, t.sq[row], t.sa[row], scale, pieces[i]);
            sums[i] = 0;
        }
    }
}

GQN_FN void int8_tile_run(const int bits, __global const uint4 *qa, __global const float *sa,
                          __global const int *sq, __global const uint4 *words,
                          __global const float *scales, __global const float *zeros,
                          __global const float *bias, __global uchar *y, const product_shape *s,
                          int8_tile t) {
    const int id = (int)get_local_id(0), size = int8_piece(s), mask = (1 << s->shift) - 1;
    int begin, end;
    tile_place p;
    p.id = id;
    p.first = tile_split(s, size, int8_length(s), &begin, &end);
    p.at = (int)get_group_id(0) * INT8_COLUMNS;
    p.row = id / (INT8_COLUMNS / 4) * 4;
    p.column = id % (INT8_COLUMNS / 4) * 4;
    const bool used = p.first + p.row < s->m && p.at + p.column < s->n;
    int8_tile_ahead ahead;
    int sums[16];
    float pieces[16], total[16];
    if (s->split)
        y += (size_t)(begin / size) * (size_t)s->m * (size_t)s->n * sizeof(float);
    UNROLL for (int i = 0; i < 16; i++) {
        sums[i] = 0;
        total[i] = before_pieces(s);
    }
    int8_tile_read(bits, qa, sa, sq, words, scales, zeros, begin, p, s, &ahead);
    for (int start = begin; start < end; start += size) {
        const int stop = end - start < size ? end : start + size;
        UNROLL for (int i = 0; i < 16; i++)
            pieces[i] = 0.0f;
        for (int k = start; k < stop; k += INT8_DEPTH) {
            barrier(CLK_LOCAL_MEM_FENCE);
            int8_tile_store(bits, p, &ahead, t);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (k + INT8_DEPTH < end)
                int8_tile_read(bits, qa, sa, sq, words, scales, zeros, k + INT8_DEPTH, p, s,
                               &ahead);
            ROLLED for (int j = 0; used && j < INT8_SIXTEENTH && k + 16 * j < end; j++)
                int8_sixteen(j, ((k + 16 * j + 16) & mask) == 0, p, t, sums, pieces);
        }
        UNROLL for (int i = 0; i < 16; i++)
            total[i] += pieces[i];
    }
#define WRITE(type)                                                                                \
    UNROLL for (int i = 0; used && i < 16; i++)                                                    \
        tile_write(type, total[i], bias, y, p.first + p.row + i / 4, p.at + p.column + i % 4, s);
    TILE_TYPES(s, WRITE)
#undef WRITE
}

#define INT8_TILE(BITS)                                                                            \
    __kernel GROUP(TILE_ITEMS) void int8_tile_##BITS(                                              \
        __global const uint4 *qa, __global const float *sa, __global const int *sq,                \
        __global const uint4 *words, __global const float *scales, __global const float *zeros,    \
        __global const float *bias, __global uchar *y, product_shape s) {                          \
        SHARED uint4 qs[INT8_DEPTH / 4 * TILE_STRIDE / 4], ws[INT8_DEPTH / 4 * INT8_COLUMNS / 4];  \
        SHARED float row_scale[INT8_SIXTEENTH * TILE_ROWS];                                        \
        SHARED float scale[INT8_SIXTEENTH * INT8_COLUMNS], zero[INT8_SIXTEENTH * INT8_COLUMNS];    \
        SHARED int row_sum[INT8_SIXTEENTH * TILE_ROWS];                                            \
        int8_tile t;                                                                               \
        t.qs = (__local uint *)qs;                                                                 \
        t.ws = (__local uint *)ws;                                                                 \
        t.sa = row_scale;                                                                          \
        t.scale = scale;                                                                           \
        t.zero = zero;                                                                             \
        t.sq = row_sum;                                                                            \
        int8_tile_run(BITS, qa, sa, sq, words, scales, zeros, bias, y, &s, t);                     \
    }

#define INT8(BITS)                                                                                 \
    INT8_FEW(BITS, 1)                                                                              \
    INT8_FEW(BITS, 4)                                                                              \
    INT8_TILE(BITS)
INT8(2)
INT8(4)
INT8(8)
