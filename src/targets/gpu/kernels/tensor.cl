/* Products of bf16 factors in tensor cores, for --math bf16 on CUDA: y[m][n] = x[m][k] w[k][n],
 * plus a bias.
 *
 * Definition. Factors are gqn_bf16_factor of x and w, padded with zeros to a multiple of 32 k. In
 * each piece of 512 k, an element is a chain of mma_bf16 from zero, over blocks of 32 k, ascending,
 * two for each block, as factors.cl defines. The pieces are added in ascending order. Measurements
 * showed that an element depends only on its own row and column, whatever else is in a product of a
 * warp, so all kernels produce the same bits.
 *
 *   tensor_pack     floats as factors, in the order in which items load them
 *   tensor_factors  rows of x as factors
 *   tensor_few1     one row
 *   tensor_few      up to 16 rows
 *   tensor_tile     tiles of 128 rows and 128 columns
 *
 * Weights are stored as factors (tensor_..._floats), or as codes of 2, 4 or 8 bits in the form of
 * weights.cl, which are converted to factors when they are multiplied.
 *
 * factors.cl defines the order of the factors in a block. Blocks of weights are [width / 8][of k].
 * Column g of block 4i + j is column 32i + g / 2 * 8 + 2j + g % 2 of w, so that the results of an
 * item are eight adjacent columns. Blocks of rows are [rows / 16][of k]. */

#define TENSOR_K     32
#define TENSOR_PIECE (GQAC_K_PIECE / TENSOR_K) /* blocks */

GQN_FN int tensor_blocks(const product_shape *s) {
    return (s->k + TENSOR_K - 1) / TENSOR_K;
}

/* The first k of an item of a warp in a block of weights. */
GQN_FN int tensor_k(int block, int lane) {
    return block * TENSOR_K + lane % 4 * 8;
}

/* The column of w that is column g of a block. */
GQN_FN int tensor_column(int block, int g) {
    return block / 4 * 32 + g / 2 * 8 + block % 4 * 2 + g % 2;
}

/* Eight factors of a row of x, from k on; zeros for rows after the last one. */
GQN_FN uint4 tensor_eight(__global const uchar *x, int x_type, int row, int k,
                          const product_shape *s) {
    const size_t at = (size_t)row * (size_t)s->k;
    const int end = row < s->m ? s->k : 0;
    const float4 a = four_of(x, x_type, at, k, end, s->k % 4 == 0);
    const float4 b = four_of(x, x_type, at, k + 4, end, s->k % 4 == 0);
    return tensor_eight_of(a, b);
}

/* ---- factors -------------------------------------------------------------------- */

/* An element of weights [k][n]; zero after the end. */
GQN_FN float tensor_weight(__global const uchar *w, int type, int k, int at,
                           const product_shape *s) {
    return k < s->k && at < s->n
               ? one_of(w, type, (size_t)k * (size_t)s->n + (size_t)at)
               : 0.0f;
}

/* The grid is [blocks * 32, width / 8]. */
__kernel void tensor_pack(__global const uchar *w, __global uint4 *factors, int type,
                          product_shape s) {
    const int i = (int)get_global_id(0), block = (int)get_group_id(1);
    const int at = tensor_column(block, i % 32 / 4), k = i / 32 * TENSOR_K + i % 4 * 8;
    uint pairs[4];
    if (i >= tensor_blocks(&s) * 32)
        return;
    UNROLL for (int j = 0; j < 4; j++)
        pairs[j] = tensor_pair(tensor_weight(w, type, k + 2 * j, at, &s),
                               tensor_weight(w, type, k + 2 * j + 1, at, &s));
    factors[(size_t)block * (size_t)tensor_blocks(&s) * 32 + (size_t)i] =
        UINT4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

/* The grid is [blocks * 32, rows / 16]. */
__kernel void tensor_factors(__global const uchar *x, __global uint4 *factors, int x_type,
                             product_shape s) {
    const int i = (int)get_global_id(0), g = i % 32 / 4, k = i / 32 * TENSOR_K + i % 4 * 8;
    const int row = (int)get_group_id(1) * 16 + g;
    if (i >= tensor_blocks(&s) * 32)
        return;
    const uint4 low = tensor_eight(x, x_type, row, k, &s);
    const uint4 high = tensor_eight(x, x_type, row + 8, k, &s);
    factors += (size_t)get_group_id(1) * (size_t)tensor_blocks(&s) * 64;
    factors += i / 32 * 64 + i % 32;
    factors[0] = tensor_first_part(low, high);
    factors[32] = tensor_second_part(low, high);
}

/* ---- weights -------------------------------------------------------------------- */

/* The part of a block of an item: factors, or codes of one column. */
typedef struct tensor_part {
    uint4 factors;
    uint words[2];
    float scale, zero;
} tensor_part;

/* Reads the eight codes of column `at` from k on. */
GQN_FN void tensor_codes(const int bits, product_weights from, int k, int at,
                         const product_shape *s, tensor_part *part) {
    const int own = at < s->width ? at : s->width - 1;
    part->words[0] = word_at(bits, from.data, k, own, s);
    if (bits == 8)
        part->words[1] = word_at(bits, from.data, k + 4, own, s);
    part->scale = from.scales[block_at(k, own, s->width, s)];
    part->zero = from.zeros[block_at(k, own, s->zero_step, s)];
}

/* The factors of a part. */
GQN_FN uint4 tensor_factors_of(const int bits, const tensor_part *part, int k,
                               const product_shape *s) {
    float w[8];
    if (bits == 0)
        return part->factors;
    UNROLL for (int i = 0; i < 8; i++) {
        const uint word = bits == 2 ? part->words[0] >> k % 16 * 2 : part->words[bits * i / 32];
        w[i] = (code_value(word, bits * i % 32 / bits, bits) - part->zero) * part->scale;
        w[i] = k + i < s->k ? w[i] : 0.0f;
    }
    return UINT4(tensor_pair(w[0], w[1]), tensor_pair(w[2], w[3]), tensor_pair(w[4], w[5]),
                 tensor_pair(w[6], w[7]));
}

/* ---- few rows ------------------------------------------------------------------- */

/* A warp computes a block of columns and one piece, whose weights it loads all at once. The teams
 * of a group compute different pieces, and the warps of a team adjacent blocks of columns. The grid
 * is [blocks of columns / blocks of a team, rows / 16]. */
#define TENSOR_ONE_WARPS  16 /* warps of a group, at most, for one row */
#define TENSOR_WARPS      8  /* for more rows: each item needs more registers, for x */
#define TENSOR_ONE_AHEAD  4  /* blocks of x that are read in advance */
#define TENSOR_AHEAD      8

typedef struct tensor_place {
    int lane, warp, wide; /* wide: blocks of columns of a group */
    int team, block;      /* block: of columns */
} tensor_place;

GQN_FN tensor_place tensor_place_of(int wide, const product_shape *s) {
    const int last = (s->width + 7) / 8 - 1;
    tensor_place p;
    p.lane = (int)get_local_id(0) % 32;
    p.warp = (int)get_local_id(0) / 32;
    p.wide = wide;
    p.team = p.warp / wide;
    p.block = (int)get_group_id(0) * wide + p.warp % wide;
    p.block = p.block < last ? p.block : last; /* the last block is perhaps computed twice */
    return p;
}

/* Column g of a block of a warp in the kernels for few rows; adjacent codes are read together. */
GQN_FN int tensor_few_column(const int bits, int block, int g) {
    return bits == 0 ? tensor_column(block, g) : block * 8 + g;
}

/* Reads the weights of the piece that begins at block `begin`; returns its number of blocks. */
GQN_FN int tensor_read(const int bits, product_weights from, int begin, tensor_place p,
                       const product_shape *s, tensor_part *w) {
    const int left = tensor_blocks(s) - begin, count = left < TENSOR_PIECE ? left : TENSOR_PIECE;
    const int at = tensor_few_column(bits, p.block, p.lane / 4);
    from.data += bits ? 0
                      : ((size_t)p.block * (size_t)tensor_blocks(s) + (size_t)begin) * 32 +
                            (size_t)p.lane;
    UNROLL for (int i = 0; i < TENSOR_PIECE; i++)
        if (i < count) {
            if (bits == 0)
                w[i].factors = from.data[i * 32];
            else
                tensor_codes(bits, from, tensor_k(begin + i, p.lane), at, s, &w[i]);
        }
    return count;
}

/* Adds the pieces of a round to the elements of an item; after the last round, writes them. */
GQN_FN void tensor_add(const int bits, const int rows, const int own, __local const float *sums,
                       __global const float *bias, __global uchar *y, int first, int round,
                       int pieces, tensor_place p, const product_shape *s, float *total) {
    const int n = pieces - round < s->teams ? pieces - round : s->teams;
    const int id = p.warp * 32 + p.lane, items = s->teams * p.wide * 32;
    UNROLL for (int j = 0; j < own; j++) {
        const int i = id + j * items, row = i / (8 * p.wide), from = i % (8 * p.wide) / 8;
        const int block = (int)get_group_id(0) * p.wide + from;
        const int at = tensor_few_column(bits, block, i % 8);
        if (row >= rows || first + row >= s->m || at >= s->n)
            continue;
        ROLLED for (int team = 0; team < n; team++)
            total[j] += sums[((team * p.wide + from) * rows + row) * 8 + i % 8];
        if (round + n == pieces)
            put_element(y, s->y_type, (size_t)(first + row) * (size_t)s->n + (size_t)at,
                        s->has_bias ? total[j] + bias[at] : total[j]);
    }
}

/* One row: each team converts its piece of x to factors, in `row`. */
GQN_FN void tensor_one(const int bits, __global const uchar *x, product_weights from,
                       __global const float *bias, __global uchar *y, int x_type, int wide,
                       const product_shape *s, __local uint4 *row, __local float *sums) {
    const tensor_place p = tensor_place_of(wide, s);
    const int blocks = tensor_blocks(s), pieces = (blocks + TENSOR_PIECE - 1) / TENSOR_PIECE;
    float total = -0.0f;
    row += p.team * TENSOR_PIECE * 4;
    for (int round = 0; round < pieces; round += s->teams) {
        const int begin = (round + p.team) * TENSOR_PIECE;
        tensor_part w[TENSOR_PIECE];
        const int count = tensor_read(bits, from, begin, p, s, w);
        float4 sum = tensor_zero();
        for (int i = p.warp % wide * 32 + p.lane; i < count * 4; i += wide * 32)
            row[i] = tensor_eight(x, x_type, 0, begin * TENSOR_K + i * 8, s);
#ifdef CONTROL_BF16_BY_ROWS /* negative control: factors of a single row lose a bit */
        for (int i = p.warp % wide * 32 + p.lane; i < count * 4; i += wide * 32)
            row[i].x &= 0xfffefffeu;
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL for (int i = 0; i < TENSOR_PIECE; i += TENSOR_ONE_AHEAD)
            if (i < count) {
                uint4 eight[TENSOR_ONE_AHEAD];
                UNROLL for (int j = 0; j < TENSOR_ONE_AHEAD; j++)
                    eight[j] = p.lane < 4 ? row[(i + j) * 4 + p.lane] : tensor_none();
                UNROLL for (int j = 0; j < TENSOR_ONE_AHEAD; j++)
                    if (i + j < count) {
                        const uint4 f = eight[j];
                        const int k = tensor_k(begin + i + j, p.lane);
                        sum = tensor_block(UINT4(f.x, 0u, f.y, 0u), UINT4(f.z, 0u, f.w, 0u),
                                           tensor_factors_of(bits, &w[i + j], k, s), sum);
                    }
            }
        if (p.lane < 4) {
            sums[p.warp * 8 + p.lane * 2] = sum.x;
            sums[p.warp * 8 + p.lane * 2 + 1] = sum.y;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        tensor_add(bits, 1, 1, sums, bias, y, 0, round, pieces, p, s, &total);
    }
}

/* The products of n blocks of rows from block k on; all of x is read first. */
GQN_FN float4 tensor_ahead(const int bits, const int n, __global const uint4 *rows,
                           const tensor_part *w, int k, int lane, const product_shape *s,
                           float4 sum) {
    uint4 a[2 * TENSOR_AHEAD];
    UNROLL for (int j = 0; j < 2 * n; j++)
        a[j] = rows[j * 32];
    UNROLL for (int j = 0; j < n; j++)
        sum = tensor_block(a[2 * j], a[2 * j + 1],
                           tensor_factors_of(bits, &w[j], tensor_k(k + j, lane), s), sum);
    return sum;
}

/* The same for the last `left` blocks, fewer than half of TENSOR_AHEAD. */
GQN_FN float4 tensor_rest(const int bits, int left, __global const uint4 *rows,
                          const tensor_part *w, int k, int lane, const product_shape *s,
                          float4 sum) {
    UNROLL for (int j = 0; j < TENSOR_AHEAD / 2 - 1; j++)
        if (j < left)
            sum = tensor_ahead(bits, 1, rows + j * 64, w + j, k + j, lane, s, sum);
    return sum;
}

/* Up to 16 rows, given as factors. */
GQN_FN void tensor_some(const int bits, __global const uint4 *x, product_weights from,
                        __global const float *bias, __global uchar *y, int wide,
                        const product_shape *s, __local float2 *sums) {
    const tensor_place p = tensor_place_of(wide, s);
    const int blocks = tensor_blocks(s), pieces = (blocks + TENSOR_PIECE - 1) / TENSOR_PIECE;
    const int half = TENSOR_AHEAD / 2;
    float total[4] = {-0.0f, -0.0f, -0.0f, -0.0f};
    x += (size_t)get_group_id(1) * (size_t)blocks * 64 + (size_t)p.lane;
    for (int round = 0; round < pieces; round += s->teams) {
        const int begin = (round + p.team) * TENSOR_PIECE;
        tensor_part w[TENSOR_PIECE];
        const int count = tensor_read(bits, from, begin, p, s, w);
        float4 sum = tensor_zero();
        barrier(CLK_LOCAL_MEM_FENCE); /* the sums of the last round have been read */
        UNROLL for (int i = 0; i < TENSOR_PIECE; i += TENSOR_AHEAD) {
            __global const uint4 *rows = x + (begin + i) * 64;
            const int k = begin + i, rest = count - i;
            if (rest >= TENSOR_AHEAD)
                sum = tensor_ahead(bits, TENSOR_AHEAD, rows, w + i, k, p.lane, s, sum);
            else if (rest >= half) {
                sum = tensor_ahead(bits, half, rows, w + i, k, p.lane, s, sum);
                sum = tensor_rest(bits, rest - half, rows + half * 64, w + i + half, k + half,
                                  p.lane, s, sum);
            } else
                sum = tensor_rest(bits, rest, rows, w + i, k, p.lane, s, sum);
        }
        float2 pair;
        pair.x = sum.x;
        pair.y = sum.y;
        sums[p.warp * 64 + p.lane] = pair;
        pair.x = sum.z;
        pair.y = sum.w;
        sums[p.warp * 64 + 32 + p.lane] = pair;
        barrier(CLK_LOCAL_MEM_FENCE);
        tensor_add(bits, 16, 4, (__local const float *)sums, bias, y, (int)get_group_id(1) * 16,
                   round, pieces, p, s, total);
    }
}

/* ---- tiles ---------------------------------------------------------------------- */

/* A warp has 64 rows of 32 columns. Rows and weights of three blocks are in local memory: two are
 * being copied while one is multiplied. The grid is [columns / 128, rows / 128], or that times the
 * pieces. */
#define TENSOR_TILE   128 /* rows and columns of a tile */
#define TENSOR_ITEMS  256
#define TENSOR_STAGES 3
#define TENSOR_STAGE  (TENSOR_TILE * TENSOR_K / 8) /* 16 bytes each */

/* What an item copies of a block: 16 bytes of rows and 16 of weights, twice. Codes are read to
 * `part`, and stored later as factors. */
typedef struct tensor_source {
    __global const uint4 *x[2], *w[2];
    bool has_x[2], has_w[2];
    tensor_part part[2];
} tensor_source;

GQN_FN tensor_source tensor_source_of(__global const uint4 *x, __global const uint4 *weights,
                                      int first, int block, int begin, const product_shape *s) {
    const size_t blocks = (size_t)tensor_blocks(s);
    tensor_source from;
    UNROLL for (int j = 0; j < 2; j++) {
        const int i = (int)get_local_id(0) + j * TENSOR_ITEMS, row = first / 16 + i / 64;
        const int column = block + i / 32;
        from.has_x[j] = row * 16 < s->m;
        from.has_w[j] = column < s->width / 8;
        from.x[j] = x + ((size_t)(from.has_x[j] ? row : 0) * blocks + (size_t)begin) * 64 +
                    (size_t)(i % 64);
        from.w[j] = weights + ((size_t)(from.has_w[j] ? column : 0) * blocks + (size_t)begin) * 32 +
                    (size_t)(i % 32);
    }
    return from;
}

GQN_FN void tensor_copy(const int bits, tensor_source *from, __local uint4 *xs, __local uint4 *ws) {
    const int id = (int)get_local_id(0);
    UNROLL for (int j = 0; j < 2; j++) {
        copy_async(xs + id + j * TENSOR_ITEMS, from->x[j], from->has_x[j]);
        if (bits == 0)
            copy_async(ws + id + j * TENSOR_ITEMS, from->w[j], from->has_w[j]);
        from->x[j] += 64;
        from->w[j] += 32;
    }
}

/* Reads the codes of block `k` in advance, for the blocks of columns from `block` on. */
GQN_FN void tensor_look(const int bits, product_weights weights, int k, int block,
                        const product_shape *s, tensor_source *from) {
    UNROLL for (int j = 0; bits > 0 && j < 2; j++) {
        const int i = (int)get_local_id(0) + j * TENSOR_ITEMS;
        tensor_codes(bits, weights, tensor_k(k, i), tensor_column(block + i / 32, i % 32 / 4), s,
                     &from->part[j]);
    }
}

/* Stores the factors of these codes. */
GQN_FN void tensor_put(const int bits, int k, const product_shape *s, const tensor_source *from,
                       __local uint4 *ws) {
    UNROLL for (int j = 0; bits > 0 && j < 2; j++) {
        const int i = (int)get_local_id(0) + j * TENSOR_ITEMS;
        ws[i] = tensor_factors_of(bits, &from->part[j], tensor_k(k, i), s);
    }
}

/* sums [4 times 16 rows][4 blocks of columns] += a block of k. */
GQN_FN void tensor_multiply(__local const uint4 *xs, __local const uint4 *ws, float4 *sums) {
    const int lane = (int)get_local_id(0) % 32, warp = (int)get_local_id(0) / 32;
    uint4 w[4];
    xs += warp / 4 * 256 + lane;
    ws += warp % 4 * 4 * 32 + lane;
    UNROLL for (int j = 0; j < 4; j++)
        w[j] = ws[j * 32];
    UNROLL for (int i = 0; i < 4; i++) {
        const uint4 a = xs[i * 64], b = xs[i * 64 + 32];
        UNROLL for (int j = 0; j < 4; j++)
            sums[i * 4 + j] = tensor_block(a, b, w[j], sums[i * 4 + j]);
    }
}

/* Writes eight columns of a row; parts of a sum are fp32. */
GQN_FN void tensor_write(float *v, __global const float *bias, __global uchar *y, int row, int at,
                         const product_shape *s) {
    const int type = s->split ? F32 : s->y_type;
    const size_t i = (size_t)row * (size_t)s->n + (size_t)at;
    if (row >= s->m || at >= s->n)
        return;
    UNROLL for (int j = 0; s->has_bias && !s->split && j < 8; j++)
        v[j] += at + j < s->n ? bias[at + j] : 0.0f;
    if (type == F32) {
        __global float *to = (__global float *)y + i;
        UNROLL for (int j = 0; j < 8; j++)
            v[j] = s->split ? v[j] : one_nan(v[j]);
        if (s->n % 8 == 0) {
            ((__global float4 *)to)[0] = FLOAT4(v[0], v[1], v[2], v[3]);
            ((__global float4 *)to)[1] = FLOAT4(v[4], v[5], v[6], v[7]);
            return;
        }
        UNROLL for (int j = 0; j < 8; j++)
            if (at + j < s->n)
                to[j] = v[j];
        return;
    }
    __global ushort *to = (__global ushort *)y + i;
    uint pairs[4];
    UNROLL for (int j = 0; j < 4; j++) {
        const float a = v[2 * j], b = v[2 * j + 1];
        pairs[j] = type == F16 ? (uint)float_to_half(a) | (uint)float_to_half(b) << 16
                               : (uint)float_to_bf16(a) | (uint)float_to_bf16(b) << 16;
    }
    if (s->n % 8 == 0) {
        *(__global uint4 *)to = UINT4(pairs[0], pairs[1], pairs[2], pairs[3]);
        return;
    }
    UNROLL for (int j = 0; j < 8; j++)
        if (at + j < s->n)
            to[j] = (ushort)(pairs[j / 2] >> j % 2 * 16);
}

GQN_FN void tensor_many(const int bits, __global const uint4 *x, product_weights weights,
                        __global const float *bias, __global uchar *y, const product_shape *s,
                        __local uint4 *xs, __local uint4 *ws) {
    const int lane = (int)get_local_id(0) % 32, warp = (int)get_local_id(0) / 32;
    const int blocks = tensor_blocks(s), pieces = (blocks + TENSOR_PIECE - 1) / TENSOR_PIECE;
    const int group = (int)get_group_id(1), begin = s->split ? group % pieces * TENSOR_PIECE : 0;
    const int end = s->split && blocks - begin > TENSOR_PIECE ? begin + TENSOR_PIECE : blocks;
    const int first = (s->split ? group / pieces : group) * TENSOR_TILE;
    const int at = (int)get_group_id(0) * TENSOR_TILE;
    const bool used = first + warp / 4 * 64 < s->m && at + warp % 4 * 32 < s->n; /* by this warp */
    tensor_source from = tensor_source_of(x, weights.data, first, at / 8, begin, s);
    float4 sums[16], total[16];
    int stage = 0;
    UNROLL for (int i = 0; i < 16; i++)
        total[i] = FLOAT4(-0.0f, -0.0f, -0.0f, -0.0f);
    UNROLL for (int i = 0; i < TENSOR_STAGES - 1; i++) {
        if (begin + i < end) {
            tensor_copy(bits, &from, xs + i * TENSOR_STAGE, ws + i * TENSOR_STAGE);
            tensor_look(bits, weights, begin + i, at / 8, s, &from);
            tensor_put(bits, begin + i, s, &from, ws + i * TENSOR_STAGE);
        }
        copy_commit();
    }
    for (int start = begin; start < end; start += TENSOR_PIECE) {
        const int stop = end - start < TENSOR_PIECE ? end : start + TENSOR_PIECE;
        UNROLL for (int i = 0; i < 16; i++)
            sums[i] = tensor_zero();
        ROLLED for (int k = start; k < stop; k++) {
            const int free = stage == 0 ? TENSOR_STAGES - 1 : stage - 1; /* multiplied last */
            const int next = k + TENSOR_STAGES - 1;
            __local uint4 *next_ws = ws + free * TENSOR_STAGE;
            copy_wait(TENSOR_STAGES - 2);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (next < end) {
                tensor_copy(bits, &from, xs + free * TENSOR_STAGE, next_ws);
                tensor_look(bits, weights, next, at / 8, s, &from);
            }
            copy_commit();
            if (used)
                tensor_multiply(xs + stage * TENSOR_STAGE, ws + stage * TENSOR_STAGE, sums);
            if (next < end)
                tensor_put(bits, next, s, &from, next_ws);
            stage = stage + 1 < TENSOR_STAGES ? stage + 1 : 0;
        }
        UNROLL for (int i = 0; i < 16; i++) {
            total[i].x += sums[i].x;
            total[i].y += sums[i].y;
            total[i].z += sums[i].z;
            total[i].w += sums[i].w;
        }
    }
    if (s->split)
        y += (size_t)(begin / TENSOR_PIECE) * (size_t)s->m * (size_t)s->n * sizeof(float);
    UNROLL for (int i = 0; i < 4; i++) {
        const int row = first + warp / 4 * 64 + i * 16 + lane / 4;
        const int column = at + warp % 4 * 32 + lane % 4 * 8;
        float low[8], high[8];
        UNROLL for (int j = 0; j < 4; j++) {
            low[2 * j] = total[i * 4 + j].x;
            low[2 * j + 1] = total[i * 4 + j].y;
            high[2 * j] = total[i * 4 + j].z;
            high[2 * j + 1] = total[i * 4 + j].w;
        }
        tensor_write(low, bias, y, row, column, s);
        tensor_write(high, bias, y, row + 8, column, s);
    }
}

/* ---- kernels -------------------------------------------------------------------- */

#define TENSOR(NAME, BITS)                                                                         \
    __kernel MOST(TENSOR_ONE_WARPS * 32) void tensor_few1_##NAME(                                  \
        __global const uchar *x, WEIGHTS, __global const float *bias, __global uchar *y,           \
        int x_type, int wide, product_shape s) {                                                   \
        SHARED uint4 row[TENSOR_ONE_WARPS * TENSOR_PIECE * 4];                                     \
        SHARED float sums[TENSOR_ONE_WARPS * 8];                                                   \
        tensor_one(BITS, x, weights_of(weights, scales, zeros), bias, y, x_type, wide, &s,         \
                   row, sums);                                                                     \
    }                                                                                              \
    __kernel GROUP_ALONE(TENSOR_WARPS * 32) void tensor_few_##NAME(                                \
        __global const uint4 *x, WEIGHTS, __global const float *bias, __global uchar *y,           \
        int wide, product_shape s) {                                                               \
        SHARED float2 sums[TENSOR_WARPS * 16 * 4];                                                 \
        tensor_some(BITS, x, weights_of(weights, scales, zeros), bias, y, wide, &s, sums);         \
    }                                                                                              \
    __kernel GROUP_ALONE(TENSOR_ITEMS) void tensor_tile_##NAME(                                    \
        __global const uint4 *x, WEIGHTS, __global const float *bias, __global uchar *y,           \
        product_shape s) {                                                                         \
        SHARED uint4 xs[TENSOR_STAGES * TENSOR_STAGE], ws[TENSOR_STAGES * TENSOR_STAGE];           \
        tensor_many(BITS, x, weights_of(weights, scales, zeros), bias, y, &s, xs, ws);             \
    }
TENSOR(floats, 0)
TENSOR(2, 2)
TENSOR(4, 4)
TENSOR(8, 8)
