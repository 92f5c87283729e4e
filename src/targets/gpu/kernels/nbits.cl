/* Products of codes and activations that are rounded to int8. Definition: ops/matmul_nbits.c, level
 * 4.
 *
 *   y = sum over blocks of float(sum of qa * (code - zero)) * (sa * scale)
 *
 * Integer sums are exact in any order: the sum of qa * code is computed by products of four bytes,
 * and zero times the sum of qa is subtracted from it. Activations are rounded once for all columns.
 * Their bytes are in the order in which codes are extracted from a word: first those in the lowest
 * bits of its four bytes. */

#define QUANTISE_ITEMS 64
#define QUANTISE_K     16 /* elements of an item at a time: as many as a word of 2-bit codes */

/* Reads 16 elements of a row of length k, from `at` on; returns the greatest magnitude, as bits. */
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

/* Quantises activations: qa [m][blocks << shift] bytes, sa [m][blocks] scales, sq [m][blocks] sums
 * of qa. A group has several blocks, or one block that its items process in several passes. The
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
    const int first = item & ~(share - 1); /* the first of the items that share a block */
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

/* Code number i of each of the four bytes of a word. */
GQN_FN uint code_bytes(uint word, const int i, const int bits) {
    return bits == 8 ? word : word >> (i * bits) & 0x01010101u * ((1u << bits) - 1u);
}

/* The length of a piece in k, and the length of a row with its last block filled up. */
GQN_FN int int8_piece(const product_shape *s) {
    return s->from_zero || 1 << s->shift > GQAC_K_PIECE ? 1 << s->shift : GQAC_K_PIECE;
}
GQN_FN int int8_length(const product_shape *s) {
    return s->blocks << s->shift;
}

/* ---- few rows ------------------------------------------------------------------- */

/* A group of 256 items has 1 << `columns` columns. First its items read different chunks of these
 * columns at the same time, and store the parts of chains in local memory. A part is the integer
 * sum of a block, or of the section of it that is in a chunk, and the factor of the block. Then
 * each item computes the chain of one column, row and piece. Finally one item for each column and
 * row adds the pieces. If local memory has too little room for all parts, this is repeated. The
 * grid is [rows / `rows`, columns]. */
#define INT8_ITEMS 256
#define INT8_PARTS 4096
#define INT8_AHEAD(bits, blocks) ((blocks) == 2 ? 1 : (bits) == 2 ? 2 : 4)
/* A chunk, with scale and zero point of its blocks: two for codes of 2 and 4 bits, or one. */
typedef struct int8_chunk {
    uint4 words;
    float scale[2], zero[2];
} int8_chunk;

typedef struct int8_row_chunk {
    uint4 qa[16];
    float sa[8];
    int sq[8];
} int8_row_chunk;

typedef struct int8_rows {
    __global const uint4 *qa;
    __global const float *sa;
    __global const int *sq;
} int8_rows;
#define INT8_ROWS __global const uint4 *qa, __global const float *sa, __global const int *sq

GQN_FN int8_rows int8_rows_of(INT8_ROWS) {
    int8_rows x;
    x.qa = qa;
    x.sa = sa;
    x.sq = sq;
    return x;
}

typedef struct int8_parts {
    __local int *sums;
    __local float *factors;
} int8_parts;

/* A column: chunks, and scales and zero points of its blocks. */
typedef struct int8_column {
    __global const uint4 *chunks;
    __global const float *scales, *zeros;
    float zero; /* of all blocks, if there is only one */
} int8_column;

/* The number of block `h` of chunk `q`. */
GQN_FN int int8_block_of(const int bits, const int blocks, int q, const int h,
                         const product_shape *s) {
    const int b = (q * CHUNK_K(bits) + h * (CHUNK_K(bits) / 2)) >> s->shift;
    return blocks == 1 || b < s->blocks ? b : s->blocks - 1; /* with one block, a chunk is whole */
}

/* Reads chunk `q` of a column. */
GQN_FN void int8_read(const int bits, const int blocks, const int8_column *w, int q,
                      const product_shape *s, int8_chunk *c) {
    c->words = w->chunks[(size_t)(uint)q * (uint)s->width];
    UNROLL for (int h = 0; h < blocks; h++) {
        const int b = int8_block_of(bits, blocks, q, h, s);
        const size_t own = (size_t)(uint)b * (uint)s->width;
        c->scale[h] = w->scales[own];
        c->zero[h] = s->zero_step ? w->zeros[own] : w->zero;
    }
}

/* The same for rows from `first` on; there are few of them. */
GQN_FN void int8_read_rows(const int bits, const int blocks, const int rows, int8_rows x, int q,
                           int first, const product_shape *s, int8_row_chunk *c) {
    const int of_chunk = CHUNK_K(bits) / 16, sixteens = int8_length(s) / 16;
    UNROLL for (int r = 0; r < rows; r++) {
        const uint row = (uint)ROW(r);
        UNROLL for (int i = 0; i < of_chunk; i++) {
            const int own = q * of_chunk + i;
            const int in = blocks == 1 || own < sixteens ? own : sixteens - 1;
            c->qa[r * of_chunk + i] = x.qa[row * (uint)sixteens + (uint)in];
        }
        UNROLL for (int h = 0; h < blocks; h++) {
            const uint own =
                row * (uint)s->blocks + (uint)int8_block_of(bits, blocks, q, h, s);
            c->sa[2 * r + h] = x.sa[own];
            c->sq[2 * r + h] = x.sq[own];
        }
    }
}

/* Stores the parts of a chunk from `to` on, [blocks][rows][columns]. The last part of a block also
 * subtracts its zero point; ends: this part is the last of its block. */
GQN_FN void int8_store(const int bits, const int blocks, const int rows,
                       const int8_chunk *c, const int8_row_chunk *x, bool ends, int to, const product_shape *s,
                       int8_parts parts) {
    const int words = CHUNK_K(bits) / 4;
    int sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    UNROLL for (int i = 0; i < words; i++) {
        const uint w = code_bytes(chunk_word(c->words, i / (8 / bits)), i % (8 / bits), bits);
        UNROLL for (int r = 0; r < rows; r++) {
            const int own = 2 * r + i * blocks / words;
            sums[own] = dot_bytes((int)chunk_word(x->qa[r * (words / 4) + i / 4], i % 4), w, sums[own]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int h = 0; h < blocks; h++) {
            const int own = 2 * r + h, i = to + ((h * rows + r) << s->columns);
            parts.sums[i] = ends ? sums[own] - (int)c->zero[h] * x->sq[own] : sums[own];
            parts.factors[i] = x->sa[own] * c->scale[h];
        }
}

/* A chain: the sum of the current block so far, and the sum of the blocks before it. */
typedef struct int8_chain {
    int sum;
    float piece;
} int8_chain;

GQN_FN void int8_link(int sum, float factor, bool ends, int8_chain *c) {
    c->sum += sum;
    if (ends) {
        c->piece = gqn_fma((float)c->sum, factor, c->piece);
        c->sum = 0;
    }
}

/* Continues a chain by n parts, `wide` apart, from `at` on. first: the number of the first part in
 * its column; mask: the number of parts in a block, minus one. */
GQN_FN void int8_links(int8_parts parts, int at, int wide, int first, int n, int mask,
                       int8_chain *c) {
    int j = 0;
    ROLLED for (; j + 4 <= n; j += 4) {
        int sums[4];
        float factors[4];
        UNROLL for (int i = 0; i < 4; i++) {
            sums[i] = parts.sums[at + (j + i) * wide];
            factors[i] = parts.factors[at + (j + i) * wide];
        }
        UNROLL for (int i = 0; i < 4; i++)
            int8_link(sums[i], factors[i], ((first + j + i + 1) & mask) == 0, c);
    }
    ROLLED for (; j < n; j++)
        int8_link(parts.sums[at + j * wide], parts.factors[at + j * wide],
                  ((first + j + 1) & mask) == 0, c);
}

/* The number of parts in a column, in a piece, and in local memory at the same time; the last two
 * are powers of two. */
typedef struct int8_window {
    int parts, piece, size;
    int shift, mask; /* a part has 1 << shift k, a block mask + 1 parts */
} int8_window;

GQN_FN void int8_window_of(const int bits, const int rows, const product_shape *s,
                           int8_window *w) {
    const int chunk = bits == 8 ? 4 : bits == 4 ? 5 : 6;
    w->shift = s->shift < chunk ? s->shift : chunk;
    w->mask = (1 << (s->shift - w->shift)) - 1;
    w->parts = int8_length(s) >> w->shift;
    w->piece = int8_piece(s) >> w->shift;
    const int most = INT8_PARTS / rows >> s->columns;
    const int chains = (INT8_ITEMS / rows >> s->columns) * w->piece;
    w->size = most < chains ? most : chains;
}

/* Computes the parts from `base` on. */
GQN_FN void int8_few_parts(const int bits, const int blocks, const int rows, int8_rows x,
                           product_weights weights, int base, int8_window w, int first,
                           const product_shape *s, int8_parts parts) {
    const int id = (int)get_local_id(0), column = id & ((1 << s->columns) - 1);
    const int own = ((int)get_group_id(1) << s->columns) + column;
    const int at = own < s->width ? own : s->width - 1, wide = rows << s->columns;
    int8_column column_at;
    column_at.chunks = weights.data + at;
    column_at.scales = weights.scales + at;
    column_at.zeros = weights.zeros + at;
    column_at.zero = *column_at.zeros;
    const int ahead = INT8_AHEAD(bits, blocks), lanes = INT8_ITEMS >> s->columns;
    const int last = base + w.size < w.parts ? base + w.size : w.parts;
    const int end = (last + blocks - 1) / blocks; /* in chunks */
    for (int q = base / blocks + (id >> s->columns); q < end; q += ahead * lanes) {
        int8_chunk c[4];
        int8_row_chunk of_rows[4]; /* of one row; of several rows they would take too many
                                      registers, and they are in a cache */
        CUDA_UNROLL for (int j = 0; j < ahead; j++)
            if (q + j * lanes < end) {
                int8_read(bits, blocks, &column_at, q + j * lanes, s, &c[j]);
                if (rows == 1)
                    int8_read_rows(bits, blocks, rows, x, q + j * lanes, first, s, &of_rows[j]);
            }
        CUDA_UNROLL for (int j = 0; j < ahead; j++)
            if (q + j * lanes < end) {
                const int part = (q + j * lanes) * blocks, own = rows == 1 ? j : 0;
                if (rows > 1)
                    int8_read_rows(bits, blocks, rows, x, q + j * lanes, first, s, &of_rows[0]);
                int8_store(bits, blocks, rows, &c[j], &of_rows[own],
                           blocks > 1 || ((part + 1) & w.mask) == 0, (part - base) * wide + column,
                           s, parts);
            }
    }
}

GQN_FN void int8_few(const int bits, const int rows, int8_rows x, product_weights weights,
                     __global const float *bias, __global uchar *y, const product_shape *s,
                     int8_parts parts, __local float *sums) {
    int8_window w;
    int8_window_of(bits, rows, s, &w);
    const int id = (int)get_local_id(0), first = (int)get_group_id(0) * rows;
    const int wide = rows << s->columns, own = id & (wide - 1);
    const int many = w.size < w.piece ? 1 : w.size / w.piece; /* pieces at the same time */
    const int from = (id >> s->columns) / rows * w.piece; /* the first part of the item's piece */
    float total = before_pieces(s);
    int8_chain chain = {0, 0.0f};
    for (int base = 0; base < w.parts; base += w.size) {
        const int left = w.parts - base - from, most = w.piece < w.size ? w.piece : w.size;
        if (CHUNK_K(bits) == 1 << w.shift)
            int8_few_parts(bits, 1, rows, x, weights, base, w, first, s, parts);
        else if (bits < 8)
            int8_few_parts(bits, 2, rows, x, weights, base, w, first, s, parts);
        barrier(CLK_LOCAL_MEM_FENCE);
        if ((base & (w.piece - 1)) == 0) {
            chain.sum = 0;
            chain.piece = 0.0f;
        }
        if (id < many * wide) {
            int8_links(parts, from * wide + own, wide, base + from,
                       left < most ? left : most, w.mask, &chain);
            sums[id] = chain.piece;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const int after = base + w.size < w.parts ? base + w.size : w.parts;
        const int n = (after - base + w.piece - 1) / w.piece;
        if (id < wide && (after == w.parts || (after & (w.piece - 1)) == 0))
            for (int i = 0; i < n; i++)
                total += sums[IN_ORDER(i, n) * wide + id];
    }
    if (id < wide)
        write_sum(total, bias, y, first + (id >> s->columns),
                  ((int)get_group_id(1) << s->columns) + (id & ((1 << s->columns) - 1)), s);
}

#define INT8_FEW(BITS, ROWS)                                                                       \
    __kernel GROUP(INT8_ITEMS) void int8_few##ROWS##_##BITS(                                       \
        INT8_ROWS, WEIGHTS, __global const float *bias, __global uchar *y, product_shape s) {      \
        SHARED int part_sums[INT8_PARTS];                                                          \
        SHARED float factors[INT8_PARTS];                                                          \
        SHARED float sums[INT8_ITEMS];                                                             \
        int8_parts parts;                                                                          \
        parts.sums = part_sums;                                                                    \
        parts.factors = factors;                                                                   \
        int8_few(BITS, ROWS, int8_rows_of(qa, sa, sq), weights_of(weights, scales, zeros), bias,   \
                 y, &s, parts, sums);                                                              \
    }

/* ---- tiles ---------------------------------------------------------------------- */

/* A group of 256 items has 64 rows of 128 columns; a warp has 32 rows of 32 columns, and an item 8
 * rows of 4 columns, as two sets of four rows, 16 rows apart. Steps of 64 k are in local memory as
 * words of four bytes, rows and columns by k. The grid is [columns / 128, rows / 64], or that times
 * the pieces. */
#define INT8_COLUMNS   128
#define INT8_DEPTH     64
#define INT8_SIXTEENTH (INT8_DEPTH / 16)
#define INT8_STRIDE    (TILE_ROWS + 4) /* between rows; avoids conflicts of banks */
#define INT8_CHUNKS(bits) (INT8_DEPTH / CHUNK_K(bits) * INT8_COLUMNS)

typedef struct int8_tile {
    __local uint *qs, *ws;            /* [16][INT8_STRIDE], [16][INT8_COLUMNS] */
    __local float *sa, *scale, *zero; /* [4][64], [4][INT8_COLUMNS] */
    __local int *sq;
} int8_tile;

typedef struct int8_tile_ahead {
    uint4 chunk[2], qa;
    float sa, scale[2], zero[2];
    int sq;
} int8_tile_ahead;

/* Reads the operands of an item in advance: 16 k of a row with their scale and sum, scales and zero
 * points of two times 16 k of a column, and at most two chunks. */
GQN_FN void int8_tile_read(const int bits, int8_rows x, product_weights w, int k, tile_place p,
                           const product_shape *s, int8_tile_ahead *a) {
    const int first = p.first, length = int8_length(s), last = s->blocks - 1;
    const int own = k + p.id / TILE_ROWS * 16, block = own >> s->shift;
    const int in = own < length ? own : length - 16, b = block < last ? block : last;
    const int column = p.at + p.id % INT8_COLUMNS, at = column < s->width ? column : s->width - 1;
    const size_t row = (size_t)ROW(p.id % TILE_ROWS);
    a->qa = x.qa[(row * (size_t)length + (size_t)in) / 16];
    a->sa = x.sa[row * (size_t)s->blocks + (size_t)b];
    a->sq = x.sq[row * (size_t)s->blocks + (size_t)b];
    UNROLL for (int i = 0; i < 2; i++) {
        const int j = p.id / INT8_COLUMNS + 2 * i, n = p.id + i * INT8_ITEMS;
        a->scale[i] = w.scales[block_at(k + 16 * j, at, s->width, s)];
        a->zero[i] = w.zeros[block_at(k + 16 * j, at, s->zero_step, s)];
        if (n < INT8_CHUNKS(bits))
            a->chunk[i] = chunk_at(bits, w.data, k / CHUNK_K(bits) + n / INT8_COLUMNS, at, s);
    }
}

GQN_FN void int8_tile_store(const int bits, tile_place p, const int8_tile_ahead *a, int8_tile t) {
    const int words = CHUNK_K(bits) / 4;
    __local uint *to = t.qs + p.id / TILE_ROWS * 4 * INT8_STRIDE + p.id % TILE_ROWS;
    UNROLL for (int i = 0; i < 4; i++)
        to[i * INT8_STRIDE] = chunk_word(a->qa, i);
    t.sa[p.id] = a->sa;
    t.sq[p.id] = a->sq;
    UNROLL for (int j = 0; j < 2; j++) {
        const int n = p.id + j * INT8_ITEMS;
        t.scale[n] = a->scale[j];
        t.zero[n] = a->zero[j];
        to = t.ws + n / INT8_COLUMNS * words * INT8_COLUMNS + n % INT8_COLUMNS;
        UNROLL for (int i = 0; i < words; i++)
            if (n < INT8_CHUNKS(bits))
                to[i * INT8_COLUMNS] =
                    code_bytes(chunk_word(a->chunk[j], i / (8 / bits)), i % (8 / bits), bits);
    }
}

GQN_FN void dot_row(uint q, uint4 w, int *sums) {
    sums[0] = dot_bytes((int)q, w.x, sums[0]);
    sums[1] = dot_bytes((int)q, w.y, sums[1]);
    sums[2] = dot_bytes((int)q, w.z, sums[2]);
    sums[3] = dot_bytes((int)q, w.w, sums[3]);
}

/* Ends a block: returns the piece plus the sum of the block. */
GQN_FN float int8_block(int sum, float zero, int sq, float sa, float scale, float piece) {
    return gqn_fma((float)(sum - (int)zero * sq), sa * scale, piece);
}

/* sums, pieces [8 rows][4 columns] += the products of the 16 k with number `j` in the step. */
GQN_FN void int8_sixteen(int j, bool ends, tile_place p, int8_tile t, int *sums, float4 *pieces) {
    UNROLL_2 for (int i = 0; i < 4; i++) {
        const int k = 4 * j + i;
        const uint4 w = *(__local const uint4 *)(t.ws + k * INT8_COLUMNS + p.column);
        const uint4 a = *(__local const uint4 *)(t.qs + k * INT8_STRIDE + p.row);
        const uint4 b = *(__local const uint4 *)(t.qs + k * INT8_STRIDE + p.row + 16);
        UNROLL for (int r = 0; r < 4; r++) {
            dot_row(chunk_word(a, r), w, sums + 4 * r);
            dot_row(chunk_word(b, r), w, sums + 16 + 4 * r);
        }
    }
    if (!ends)
        return;
    const float4 scale = *(__local const float4 *)(t.scale + j * INT8_COLUMNS + p.column);
    const float4 zero = *(__local const float4 *)(t.zero + j * INT8_COLUMNS + p.column);
    UNROLL for (int r = 0; r < 8; r++) {
        const int row = j * TILE_ROWS + p.row + r / 4 * 16 + r % 4, sq = t.sq[row];
        const float sa = t.sa[row];
        pieces[r].x = int8_block(sums[4 * r], zero.x, sq, sa, scale.x, pieces[r].x);
        pieces[r].y = int8_block(sums[4 * r + 1], zero.y, sq, sa, scale.y, pieces[r].y);
        pieces[r].z = int8_block(sums[4 * r + 2], zero.z, sq, sa, scale.z, pieces[r].z);
        pieces[r].w = int8_block(sums[4 * r + 3], zero.w, sq, sa, scale.w, pieces[r].w);
        sums[4 * r] = sums[4 * r + 1] = sums[4 * r + 2] = sums[4 * r + 3] = 0;
    }
}

GQN_FN void int8_tile_run(const int bits, int8_rows x, product_weights w,
                          __global const float *bias, __global uchar *y,
                          __global float *totals, const product_shape *s, int8_tile t) {
    const int id = (int)get_local_id(0), size = int8_piece(s), mask = (1 << s->shift) - 1;
    const int warp = id / 32, lane = id % 32;
    int begin, end;
    tile_place p;
    p.id = id;
    p.first = tile_split(s, size, int8_length(s), &begin, &end);
    p.at = (int)get_group_id(0) * INT8_COLUMNS;
    p.row = warp / 4 * 32 + lane / 8 * 4;
    p.column = warp % 4 * 32 + lane % 8 * 4;
    const bool used = p.first + p.row < s->m && p.at + p.column < s->n;
    int8_tile_ahead ahead;
    int sums[32];
    float4 pieces[8];
    if (s->split)
        totals += (size_t)(begin / size) * (size_t)s->m * (size_t)s->n;
    UNROLL for (int i = 0; i < 32; i++)
        sums[i] = 0;
    UNROLL for (int i = 0; i < 8; i++)
        pieces[i].x = pieces[i].y = pieces[i].z = pieces[i].w = 0.0f;
    int8_tile_read(bits, x, w, begin, p, s, &ahead);
    for (int k = begin; k < end;) {
        barrier(CLK_LOCAL_MEM_FENCE);
        int8_tile_store(bits, p, &ahead, t);
        barrier(CLK_LOCAL_MEM_FENCE);
        k += INT8_DEPTH;
        if (k < end)
            int8_tile_read(bits, x, w, k, p, s, &ahead);
        ROLLED for (int j = 0; used && j < INT8_SIXTEENTH && k - INT8_DEPTH + 16 * j < end; j++)
            int8_sixteen(j, ((k - INT8_DEPTH + 16 * j + 16) & mask) == 0, p, t, sums, pieces);
        if (k < end && (k & (size - 1)) != 0)
            continue;
        if (k <= size && s->from_zero && !s->split)
            UNROLL for (int i = 0; i < 8; i++)
                pieces[i] = add_four(FLOAT4(0.0f, 0.0f, 0.0f, 0.0f), pieces[i]);
        tile_piece(INT8_ITEMS, 1, pieces, (__local float *)t.ws, s->split || k <= size,
                   k >= end && !s->split, bias, y, totals, p, s);
        UNROLL for (int i = 0; i < 8; i++)
            pieces[i].x = pieces[i].y = pieces[i].z = pieces[i].w = 0.0f;
    }
}

#define INT8_TILE(BITS)                                                                            \
    __kernel GROUP(INT8_ITEMS) void int8_tile_##BITS(                                              \
        INT8_ROWS, WEIGHTS, __global const float *bias, __global uchar *y, __global float *totals, \
        product_shape s) {                                                                         \
        SHARED uint4 qs[INT8_DEPTH / 4 * INT8_STRIDE / 4], ws[INT8_DEPTH / 4 * INT8_COLUMNS / 4];  \
        SHARED float row_scale[INT8_SIXTEENTH * TILE_ROWS];                                        \
        SHARED float4 scale[INT8_SIXTEENTH * INT8_COLUMNS / 4];                                    \
        SHARED float4 zero[INT8_SIXTEENTH * INT8_COLUMNS / 4];                                     \
        SHARED int row_sum[INT8_SIXTEENTH * TILE_ROWS];                                            \
        int8_tile t;                                                                               \
        t.qs = (__local uint *)qs;                                                                 \
        t.ws = (__local uint *)ws;                                                                 \
        t.sa = row_scale;                                                                          \
        t.scale = (__local float *)scale;                                                          \
        t.zero = (__local float *)zero;                                                            \
        t.sq = row_sum;                                                                            \
        int8_tile_run(BITS, int8_rows_of(qa, sa, sq), weights_of(weights, scales, zeros), bias, y, \
                      totals, &s, t);                                                              \
    }

#define INT8(BITS)                                                                                 \
    INT8_FEW(BITS, 1)                                                                              \
    INT8_FEW(BITS, 4)                                                                              \
    INT8_TILE(BITS)
INT8(2)
INT8(4)
INT8(8)
