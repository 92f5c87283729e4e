/* y = softmax(scale * q k^T ...) v over the visible keys of each row; docs/numerics.md, "Attention
 * on cpu", has the formula, and src/targets/cpu/level/attend.c the same arithmetic for processors.
 *
 * A group of ATTEND_ITEMS items (gpu.h) computes one row, which is one query of one head: item j has
 * the key j of each tile, and the elements j, j + ATTEND_ITEMS, ... of the sums of values. The grid
 * is [query heads, rows].
 * What is not visible is not read. Keys and values are rows [sequences,Hkv,T,D] of fp32 (attend), or
 * lie in KV blocks (attend_blocks_*; src/targets/gpu/blocks.h). */

#define VALUES (ATTEND_SIZE / ATTEND_ITEMS) /* elements of an item */

#ifdef CONTROL_GPU_SPLIT_BY_GROUPS /* negative control: splits follow the number of groups */
#define SPLIT (GQAC_KEY_TILE * (int)get_num_groups(1))
#else
#define SPLIT GQAC_KEY_SPLIT
#endif

/* lane[0..15] of the tile's weights, then 8, 4, 2, 1. Item 0 has the result. */
static inline float lane_sum(__local const float *p, int tile, int from, int to) {
    float lane[GQAC_LANES];
    for (int l = 0; l < GQAC_LANES; l++)
        lane[l] = 0.0f;
    for (int t = from; t < to; t++)
        lane[(tile + t) % GQAC_LANES] += p[t];
    for (int step = GQAC_LANES / 2; step > 0; step /= 2)
        for (int l = 0; l < step; l++)
            lane[l] += lane[l + step];
    return lane[0];
}

static inline float larger(float m, float x) {
    return x > m ? x : m;
}

/* The centre of exponentials: a maximum of -inf has no visible finite score. */
static inline float centre_of(float m) {
    return m == -gqn_as_f32(GQN_INF_BITS) ? 0.0f : m;
}

typedef struct attend_shape {
    int heads, kv_heads, queries; /* Hq, Hkv; rows of q for each batch row */
    int keys, size, value_size;   /* T, D, Dv */
    int bias_columns;             /* 0: no bias */
    int has_sink;
    int rows, padding; /* queries of all sequences */
    float scale, softcap;
    long bias_step[3]; /* elements from one batch row, head and query of the bias to the next */
} attend_shape;

/* What the items of a group share; now_* and alpha: of the split, its maximum, its sum and the factor
 * of earlier sums. */
typedef struct attend_shared {
    float p[GQAC_KEY_TILE];
    float now_m, now_l, alpha;
} attend_shared;

/* ---- where keys and values lie ------------------------------------------------- */

#define F32  0
#define F16  1
#define BF16 2
static inline float element(__global const void *rows, size_t i, int type) {
    return type == F16    ? weight_f16((__global const ushort *)rows, i)
           : type == BF16 ? weight_bf16((__global const ushort *)rows, i)
                          : weight_f32((__global const float *)rows, i);
}

#define SLABS 16 /* GPU_SLABS */

/* The blocks of a call: slabs of entries. A table [sequences][per] has index * SLABS + slab of each
 * block. */
typedef struct attend_blocks {
    long per, entry_bytes, k_at, v_at; /* k_at, v_at: bytes from an entry to its keys and values */
    int entries[SLABS];
} attend_blocks;

/* The rows of a tile, one key after another: element `first` of keys and values is the first of the
 * tile's first key, and each further key lies so many rows on. */
typedef struct attend_tile {
    __global const void *k, *v;
    size_t k_first, v_first, step;
} attend_tile;

/* In rows [sequences,Hkv,T,D]. */
static inline attend_tile tile_of_rows(__global const float *k, __global const float *v,
                                       const attend_shape *shape, int sequence, int kv_head,
                                       int tile) {
    const size_t row = ((size_t)sequence * (size_t)shape->kv_heads + (size_t)kv_head) *
                           (size_t)shape->keys +
                       (size_t)tile;
    const attend_tile at = {k, v, row * (size_t)shape->size, row * (size_t)shape->value_size, 1};
    return at;
}

/* In a block; whatever the table holds, it lies in a slab. */
static inline attend_tile tile_of_block(__global const uchar *const *slabs,
                                        const attend_blocks *blocks, __global const uint *table,
                                        const attend_shape *shape, int sequence, int kv_head,
                                        int tile) {
    const uint entry = table[(size_t)sequence * (size_t)blocks->per + (size_t)(tile / KV_BLOCK)];
    const uint slab = entry % SLABS, entries = (uint)blocks->entries[slab];
    const uint index = entry / SLABS < entries ? entry / SLABS : entries - 1;
    __global const uchar *base = slabs[slab] + (size_t)index * (size_t)blocks->entry_bytes;
    const size_t row = (size_t)(tile % KV_BLOCK) * (size_t)shape->kv_heads + (size_t)kv_head;
    const attend_tile at = {base + blocks->k_at, base + blocks->v_at, row * (size_t)shape->size,
                            row * (size_t)shape->value_size, (size_t)shape->kv_heads};
    return at;
}

/* ---- one row ------------------------------------------------------------------- */

/* A group computes its row. lists: of each row the first visible key, one after the last and the
 * sequence, [3][rows]; then the table of blocks. slabs NULL: keys and values are the fp32 rows k and
 * v; else they lie in blocks, as elements of `type`. */
static inline void attend_row(__global const float *q, __global const float *k,
                              __global const float *v, __global const uchar *const *slabs,
                              const attend_blocks *blocks, int type, __global const int *lists,
                              __global const float *bias, __global const float *sink,
                              __global float *y, const attend_shape *shape,
                              __local attend_shared *shared) {
    __local float *p = shared->p;
    const size_t n = (size_t)shape->rows;
    __global const int *lo = lists, *hi = lo + n, *sequence = hi + n;
    __global const uint *table = (__global const uint *)(sequence + n);
    const int item = (int)get_local_id(0);
    const int head = (int)get_group_id(0), row = (int)get_group_id(1);
    const int heads = shape->heads, size = shape->size, value_size = shape->value_size;
    const int kv_head = head / (heads / shape->kv_heads), keys = shape->keys;
    const int batch = row / shape->queries, query = row % shape->queries;
    const int begin = lo[row], end = hi[row] < keys ? hi[row] : keys;
    __global const float *own =
        q + (((size_t)batch * (size_t)heads + (size_t)head) * (size_t)shape->queries +
             (size_t)query) * (size_t)size;
    __global const float *to_add = bias + (long)batch * shape->bias_step[0] +
                                   (long)head * shape->bias_step[1] +
                                   (long)query * shape->bias_step[2];
    __global float *out =
        y + ((size_t)row * (size_t)heads + (size_t)head) * (size_t)value_size;
    float acc[VALUES], total[VALUES], all_m = 0.0f, all_l = 0.0f;
    bool some = false;
    for (int i = 0; i < VALUES; i++)
        total[i] = 0.0f;
    for (int split = begin / SPLIT * SPLIT; split < end; split += SPLIT) {
        if (item == 0) {
            shared->now_m = -gqn_as_f32(GQN_INF_BITS);
            shared->now_l = 0.0f;
        }
        for (int i = 0; i < VALUES; i++)
            acc[i] = 0.0f;
        for (int tile = split; tile < split + SPLIT && tile < end; tile += GQAC_KEY_TILE) {
            const int from = begin > tile ? begin - tile : 0;
            const int to = end - tile < GQAC_KEY_TILE ? end - tile : GQAC_KEY_TILE;
            if (from >= to)
                continue; /* uniform: every item of the group has the same range */
            const attend_tile at =
                slabs ? tile_of_block(slabs, blocks, table, shape, sequence[row], kv_head, tile)
                       : tile_of_rows(k, v, shape, sequence[row], kv_head, tile);
            for (int t = from + item; t < to; t += ATTEND_ITEMS) {
                const size_t key = at.k_first + (size_t)t * at.step * (size_t)size;
                float s = 0.0f;
                for (int d = 0; d < size; d++)
                    s = gqn_fma(own[d], element(at.k, key + (size_t)d, type), s);
                s = shape->scale * s;
                if (shape->softcap > 0.0f)
                    s = shape->softcap * gqn_tanhf(gqn_div(s, shape->softcap));
                if (shape->bias_columns > 0)
                    s = s + to_add[tile + t];
                p[t] = s;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            const float before = shared->now_m;
            float m = before;
            for (int t = from; t < to; t++)
                m = larger(m, p[t]);
            const float mu = centre_of(m);
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int t = from + item; t < to; t += ATTEND_ITEMS)
                p[t] = gqn_expf(p[t] - mu);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item == 0) {
                shared->alpha = m > before ? gqn_expf(before - mu) : 1.0f;
                shared->now_l = gqn_fma(shared->now_l, shared->alpha, lane_sum(p, tile, from, to));
                shared->now_m = m;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = 0, d = item; i < VALUES && d < value_size; i++, d += ATTEND_ITEMS) {
                const size_t value_step = at.step * (size_t)value_size;
                float sum = acc[i] * shared->alpha;
                size_t value = at.v_first + (size_t)from * value_step + (size_t)d;
                for (int t = from; t < to; t++, value += value_step)
                    sum = gqn_fma(p[t], element(at.v, value, type), sum);
                acc[i] = sum;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (!some) {
            all_m = shared->now_m;
            all_l = shared->now_l;
            for (int i = 0; i < VALUES; i++)
                total[i] = acc[i];
        } else {
            const float m = larger(all_m, shared->now_m), mu = centre_of(m);
            const float before = gqn_expf(all_m - mu), now = gqn_expf(shared->now_m - mu);
            for (int i = 0; i < VALUES; i++)
                total[i] = gqn_fma(acc[i], now, total[i] * before);
            all_l = gqn_fma(shared->now_l, now, all_l * before);
            all_m = m;
        }
        some = true;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float factor = 1.0f;
    if (shape->has_sink) {
        const float m = larger(all_m, sink[head]), mu = centre_of(m);
        factor = m == all_m ? 1.0f : gqn_expf(all_m - mu);
        all_l = gqn_fma(all_l, factor, gqn_expf(sink[head] - mu));
    }
    const float by = all_l == 0.0f ? 1.0f : all_l;
    for (int i = 0, d = item; i < VALUES && d < value_size; i++, d += ATTEND_ITEMS)
        out[d] = some ? one_nan(gqn_div(total[i] * factor, by)) : 0.0f;
}

__kernel void attend(__global const float *q, __global const float *k, __global const float *v,
                     __global const int *lists, __global const float *bias,
                     __global const float *sink, __global float *y, attend_shape shape) {
    SHARED attend_shared shared;
    attend_row(q, k, v, 0, 0, F32, lists, bias, sink, y, &shape, &shared);
}

#define SLAB(i) __global const uchar *s##i
#define ATTEND_BLOCKS(NAME, TYPE)                                                                  \
    __kernel void attend_blocks_##NAME(                                                            \
        __global const float *q, SLAB(0), SLAB(1), SLAB(2), SLAB(3), SLAB(4), SLAB(5), SLAB(6),    \
        SLAB(7), SLAB(8), SLAB(9), SLAB(10), SLAB(11), SLAB(12), SLAB(13), SLAB(14), SLAB(15),     \
        __global const int *lists, __global const float *bias, __global const float *sink,         \
        __global float *y, attend_shape shape, attend_blocks blocks) {                             \
        SHARED attend_shared shared;                                                               \
        __global const uchar *slabs[SLABS] = {s0, s1, s2,  s3,  s4,  s5,  s6,  s7,                 \
                                              s8, s9, s10, s11, s12, s13, s14, s15};               \
        attend_row(q, 0, 0, slabs, &blocks, TYPE, lists, bias, sink, y, &shape, &shared);          \
    }
ATTEND_BLOCKS(f32, F32)
ATTEND_BLOCKS(f16, F16)
ATTEND_BLOCKS(bf16, BF16)
