/* What the kernels of attention share. docs/numerics.md, "Attention on cpu", defines the formula;
 * src/targets/cpu/level/attend.c does the same arithmetic on CPUs.
 *
 * The rows of a key-value head are numbered s * G + g: query s, head g of its group. A tile is up
 * to ATTEND_ROWS rows of one sequence, which share the keys and values that are loaded. A unit is a
 * tile and a range of keys, and one group of items computes it. src/targets/gpu/attend_units.h
 * makes the lists of units. */

#ifdef CONTROL_GPU_SPLIT_BY_GROUPS /* negative control: splits follow the number of groups */
#define SPLIT (GQAC_KEY_TILE * (int)get_num_groups(1))
#else
#define SPLIT GQAC_KEY_SPLIT
#endif

/* The sizes of the heads of keys and of values: constants if a program has kernels compiled for
 * these sizes. */
#ifdef ATTEND_TYPE
#define KEY_SIZE   ATTEND_SIZE
#define VALUE_SIZE ATTEND_SIZE
#define TYPE       ATTEND_TYPE
#else /* ATTEND_SIZE is a maximum */
#define KEY_SIZE   shape.size
#define VALUE_SIZE shape.value_size
#define TYPE       blocks.type
#endif

#define FOUR(p) (*(__local const float4 *)(p))

static inline float larger(float m, float x) {
    return x > m ? x : m;
}

static inline int least_of(int a, int b) {
    return a < b ? a : b;
}
static inline int most_of(int a, int b) {
    return a > b ? a : b;
}

/* The value that is subtracted before exp. If the maximum is -inf, no visible score is finite. */
static inline float centre_of(float m) {
    return m == -gqn_as_f32(GQN_INF_BITS) ? 0.0f : m;
}

typedef struct attend_shape {
    int heads, kv_heads, queries, keys; /* Hq, Hkv; rows of q for each batch row; T */
    int size, value_size;               /* D, Dv */
    int bias_columns;                   /* 0: no bias */
    int has_sink, rows;                 /* rows: queries of all sequences */
    int units, merges, table;           /* where each list begins */
    float scale, softcap;
    int q_type; /* F32, F16 or BF16 */
    int prompt; /* tiles of keys of a sequence whose factors attend_prepare has stored */
    long bias_step[3]; /* elements between batch rows, heads and queries of the bias */
} attend_shape;

/* ---- where keys and values lie ------------------------------------------------- */

#define SLABS KV_SLABS

/* How rows of keys and values of one type are stored. In KV blocks (src/targets/gpu/blocks.h):
 * slabs of entries; a table [sequences][per] holds index * SLABS + slab for each block. If per is
 * 0, in fp32 rows [sequences,Hkv,T,D]. Codes have one scale; or, if scale_step is 1, one scale for
 * each element of all heads; or, if k_scales_at is not 0, one scale for each head of each row,
 * stored in the blocks. */
typedef struct attend_blocks {
    long per, entry_bytes, k_at, v_at; /* bytes from the start of an entry to its keys and values */
    long k_scales_at, v_scales_at;     /* and to their scales */
    int type, scale_step;
    int entries[SLABS];
} attend_blocks;

/* A tile of keys: its rows and the number of bytes between keys; and the scales of its rows, if
 * these are stored in the block. */
typedef struct attend_tile {
    __global const uchar *k, *v;
    size_t k_step, v_step;
    __global const float *k_scale, *v_scale;
} attend_tile;

static inline size_t row_bytes(int size, int type) {
    return type == F32 ? 4 * (size_t)size
           : type <= BF16 ? 2 * (size_t)size
           : type == I8 ? (size_t)size
                        : ((size_t)size + 1) / 2;
}

/* A tile in rows [sequences,Hkv,T,D]. */
static inline attend_tile tile_of_rows(__global const float *k, __global const float *v,
                                       size_t k_bytes, size_t v_bytes, size_t row) {
    const attend_tile at = {(__global const uchar *)k + row * k_bytes,
                            (__global const uchar *)v + row * v_bytes, k_bytes, v_bytes, k, v};
    return at;
}

/* A tile in a block. The address is inside a slab, whatever the table contains. */
static inline attend_tile tile_of_block(__global const uchar *const *slabs,
                                        const attend_blocks *blocks, uint entry, int kv_heads,
                                        int kv_head, int tile, size_t k_bytes, size_t v_bytes) {
    const uint slab = entry % SLABS;
    uint entries = 1;
    __global const uchar *base = slabs[0];
    CUDA_UNROLL for (uint i = 0; i < SLABS; i++) { /* an index would need an array in memory */
        entries = slab == i ? (uint)blocks->entries[i] : entries;
        base = slab == i ? slabs[i] : base;
    }
    const uint index = entry / SLABS < entries ? entry / SLABS : entries - 1;
    base += (size_t)index * (size_t)blocks->entry_bytes;
    const size_t row = (size_t)(tile % KV_BLOCK) * (size_t)kv_heads + (size_t)kv_head;
    const attend_tile at = {base + blocks->k_at + row * k_bytes,
                            base + blocks->v_at + row * v_bytes, (size_t)kv_heads * k_bytes,
                            (size_t)kv_heads * v_bytes,
                            (__global const float *)(base + blocks->k_scales_at) + row,
                            (__global const float *)(base + blocks->v_scales_at) + row};
    return at;
}

/* The tile that begins at key `tile` of a sequence. */
static inline attend_tile attend_tile_at(const attend_shape *shape, const attend_blocks *blocks,
                                         __global const uchar *const *slabs,
                                         __global const int *lists, __global const float *k_rows,
                                         __global const float *v_rows, int sequence, int kv_head,
                                         int tile, size_t k_bytes, size_t v_bytes) {
    const long entry = shape->table + (long)sequence * blocks->per + tile / KV_BLOCK;
    const size_t head = (size_t)sequence * (size_t)shape->kv_heads + (size_t)kv_head;
    return blocks->per ? tile_of_block(slabs, blocks, (uint)lists[entry], shape->kv_heads, kv_head,
                                       tile, k_bytes, v_bytes)
                       : tile_of_rows(k_rows, v_rows, k_bytes, v_bytes,
                                      head * (size_t)shape->keys + (size_t)tile);
}

/* ---- rows --------------------------------------------------------------------------- */

/* Row i of a unit: its query, its head, and the indices of its first elements of q, y and the
 * bias. */
typedef struct attend_row {
    long q_at, bias_at, y_at;
    int query, head;
} attend_row;
static inline attend_row attend_row_of(const attend_shape *shape, __global const int *unit, int i,
                                       int kv_head, int size, int value_size) {
    const int group = shape->heads / shape->kv_heads, at = unit[1] + i, row = unit[0] + at / group;
    const int head = kv_head * group + at % group;
    const int batch = row / shape->queries, query = row % shape->queries;
    const attend_row of = {
        (((long)batch * shape->heads + head) * shape->queries + query) * (long)size,
        batch * shape->bias_step[0] + head * shape->bias_step[1] + query * shape->bias_step[2],
        ((long)row * shape->heads + head) * (long)value_size, row, head};
    return of;
}

/* ---- staging -------------------------------------------------------------------- */

/* Element d of a row; `scale` points to the scales of its head. */
static inline float element(__global const uchar *row, int d, int type,
                            __global const float *scale, int scale_step) {
    if (type <= BF16)
        return float_at(row, type, (size_t)d);
    const int code = type == I8 ? (int)(char)row[d] : gqn_uint4_of(row[d / 2], (uint)d) - 8;
    return (float)code * scale[d * scale_step];
}

static inline uint word_of(uint4 u, int i) {
    return i < 2 ? i == 0 ? u.x : u.y : i == 2 ? u.z : u.w;
}
static inline float code_of(uint word, int i, int type) {
    return (float)(type == I8 ? (int)(char)(word >> (8 * i)) : (int)(word >> (4 * i) & 15u) - 8);
}

/* Four elements of the 16 bytes `u`, from element `at` on; codes without their scales. */
static inline float4 plain_four(uint4 u, int at, int type) {
    if (type == F32)
        return FLOAT4(gqn_as_f32(u.x), gqn_as_f32(u.y), gqn_as_f32(u.z), gqn_as_f32(u.w));
    if (type <= BF16) {
        const uint a = word_of(u, at / 2), b = word_of(u, at / 2 + 1);
        return type == F16 ? FLOAT4(half_to_float((ushort)a), half_to_float((ushort)(a >> 16)),
                                    half_to_float((ushort)b), half_to_float((ushort)(b >> 16)))
                           : FLOAT4(gqn_as_f32(a << 16), gqn_as_f32(a & 0xffff0000u),
                                    gqn_as_f32(b << 16), gqn_as_f32(b & 0xffff0000u));
    }
    const uint word = word_of(u, at / (type == I8 ? 4 : 8));
    const int i = type == I8 ? 0 : at % 8;
    return FLOAT4(code_of(word, i, type), code_of(word, i + 1, type), code_of(word, i + 2, type),
                  code_of(word, i + 3, type));
}

/* Elements d to d + 3 of a row. */
static inline float4 staged_four(uint4 u, int at, int d, int type, __global const float *scale,
                                 int scale_step) {
    float4 x = plain_four(u, at, type);
    if (type >= I8) {
        x.x *= scale[d * scale_step];
        x.y *= scale[(d + 1) * scale_step];
        x.z *= scale[(d + 2) * scale_step];
        x.w *= scale[(d + 3) * scale_step];
    }
    return x;
}

/* Elements i to i + 3 of queries, where i is a multiple of four. */
static inline float4 query_four(__global const uchar *q, int type, size_t i) {
    if (type == F32)
        return *(__global const float4 *)((__global const float *)q + i);
    const uint2 both = *(__global const uint2 *)((__global const ushort *)q + i);
    return plain_four(UINT4(both.x, both.y, 0, 0), 0, type);
}

/* The first n of these elements, at most four; `aligned`: four can be loaded at once. */
static inline float4 query_some(__global const uchar *q, int type, size_t i, int n, bool aligned) {
    if (aligned)
        return query_four(q, type, i);
    return FLOAT4(float_at(q, type, i), n > 1 ? float_at(q, type, i + 1) : 0.0f,
                  n > 2 ? float_at(q, type, i + 2) : 0.0f, n > 3 ? float_at(q, type, i + 3) : 0.0f);
}

/* Copies elements [d0, d0 + n) of the rows [from, to), converted to fp32, to `stage`: row `from +
 * i` begins at i * stride. d0 is a multiple of 32, and stride a multiple of 4. The scales of a row
 * of codes begin at row * scale_row. */
static inline void stage_rows(__local float *stage, int stride, __global const uchar *rows,
                              size_t step, int from, int to, int d0, int n, int type,
                              size_t all_bytes, __global const float *scale, int scale_step,
                              int scale_row, int item, int items) {
    if (all_bytes % 16 != 0) {
        ROLLED for (int i = item; i < (to - from) * n; i += items)
            stage[i / n * stride + i % n] =
                element(rows + (size_t)(from + i / n) * step, d0 + i % n, type,
                        scale + (from + i / n) * scale_row, scale_step);
        return;
    }
    const int of_16 = type == F32 ? 4 : type <= BF16 ? 8 : type == I8 ? 16 : 32;
    const int pieces = n / of_16;
    ROLLED for (int i = item; i < (to - from) * pieces; i += items) {
        const int t = i / pieces, d = i % pieces * of_16;
        const uint4 all = *(__global const uint4 *)(rows + (size_t)(from + t) * step +
                                                    (size_t)(d0 + d) * 16 / (size_t)of_16);
        for (int at = 0; at < of_16; at += 4)
            *(__local float4 *)(stage + t * stride + d + at) =
                staged_four(all, at, d0 + d + at, type, scale + (from + t) * scale_row, scale_step);
    }
}

/* The arguments of attend_few and attend_many. */
#define SLAB(i) __global const uchar *s##i
#define ATTEND_ARGUMENTS                                                                           \
    __global const uchar *q, __global const float *k_rows, __global const float *v_rows, SLAB(0),  \
        SLAB(1), SLAB(2), SLAB(3), SLAB(4), SLAB(5), SLAB(6), SLAB(7), SLAB(8), SLAB(9), SLAB(10), \
        SLAB(11), SLAB(12), SLAB(13), SLAB(14), SLAB(15), __global const int *lists,               \
        __global const float *bias, __global const float *sink, __global const float *k_scale,     \
        __global const float *v_scale, __global float *parts, __global float *y,                   \
        attend_shape shape, attend_blocks blocks

/* ---- merging splits ---------------------------------------------------------------- */

/* The sum of the lanes of a row, folded 8, 4, 2, 1. */
static inline float fold_weights(__local const float *lanes) {
    float lane[GQAC_LANES];
    for (int l = 0; l < GQAC_LANES; l++)
        lane[l] = lanes[l];
    for (int step = GQAC_LANES / 2; step > 0; step /= 2)
        for (int l = 0; l < step; l++)
            lane[l] += lane[l + step];
    return lane[0];
}

/* Adds the maximum and sum (m, l) of a split of a row to the totals (*all_m, *all_l). Also computes
 * the factors for the values: *before for the total, *now for the split. */
static inline void merge_factors(float m, float l, float *all_m, float *all_l, float *before,
                                 float *now) {
    const float most = larger(*all_m, m), mu = centre_of(most);
    *before = gqn_expf(*all_m - mu);
    *now = gqn_expf(m - mu);
    *all_l = gqn_fma(l, *now, *all_l * *before);
    *all_m = most;
}

/* The last step of a row: y = total * factor / by. */
static inline void end_factors(float m, float l, int has_sink, float sink, float *factor,
                               float *by) {
    *factor = 1.0f;
    if (has_sink) {
        const float most = larger(m, sink), mu = centre_of(most);
        *factor = most == m ? 1.0f : gqn_expf(m - mu);
        l = gqn_fma(l, *factor, gqn_expf(sink - mu));
    }
    *by = l == 0.0f ? 1.0f : l;
}

/* If a unit does not cover all keys of its rows, each of its splits is a slot: PART_HEAD floats
 * (maximum, sum), then the values. */
#define PART_HEAD 4
static inline size_t part_size(int value_size) {
    return PART_HEAD + ((size_t)value_size + 3) / 4 * 4;
}

/* The elements that an item of attend_merge computes, and the position of split i of n. */
#define MERGE_COLUMNS ((ATTEND_MOST + ATTEND_MERGERS - 1) / ATTEND_MERGERS)
#ifdef CONTROL_GPU_MERGE_DESCENDING /* negative control: the last split is merged first */
#define MERGED(i, n) ((size_t)((n) - 1 - (i)))
#else
#define MERGED(i, n) ((size_t)(i))
#endif

/* Merges the splits of a row in ascending order, and writes y. lists + shape.merges: six numbers
 * for each row of a key-value head: query, head in the group, slot of its first split at head 0,
 * rows of its tile, first split, number of splits. The grid is [Hkv, rows]. As many splits as there
 * are items are processed at a time: the items load their maxima and sums and compute their
 * factors; then each item merges its own elements. */
__kernel GROUP(ATTEND_MERGERS) void attend_merge(__global const int *lists,
                                                 __global const float *parts,
                                                 __global const float *sink, __global float *y,
                                                 attend_shape shape) {
    SHARED float m[ATTEND_MERGERS], l[ATTEND_MERGERS], before[ATTEND_MERGERS], now[ATTEND_MERGERS];
    __global const int *merge = lists + shape.merges + 6 * (long)get_group_id(1);
    const int item = (int)get_local_id(0), kv_head = (int)get_group_id(0), row = merge[0];
    const int head = kv_head * (shape.heads / shape.kv_heads) + merge[1];
    const int lo = lists[row], hi = lists[shape.rows + row];
    /* the splits in which the row has visible keys */
    const int first = most_of(lo / GQAC_KEY_SPLIT - merge[4], 0);
    const int last = least_of((hi + GQAC_KEY_SPLIT - 1) / GQAC_KEY_SPLIT - merge[4], merge[5]);
    const int n = lo < hi ? last - first : 0;
    const size_t size = part_size(shape.value_size);
    const size_t step = (size_t)shape.kv_heads * (size_t)merge[3] * size;
    const size_t out =
        ((size_t)row * (size_t)shape.heads + (size_t)head) * (size_t)shape.value_size;
    float total[MERGE_COLUMNS], all_m = -gqn_as_f32(GQN_INF_BITS), all_l = 0.0f, factor, by;
    parts += ((size_t)merge[2] + (size_t)kv_head * (size_t)merge[3]) * size + (size_t)first * step;
    for (int c = 0; c < MERGE_COLUMNS; c++)
        total[c] = 0.0f;
    int i0 = 0;
    ROLLED do {
        const int some = least_of(n - i0, ATTEND_MERGERS);
        __global const float *from = parts + (size_t)i0 * step;
        if (item < some) {
            m[item] = from[MERGED(item, some) * step];
            l[item] = from[MERGED(item, some) * step + 1];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < some) {
            float most = all_m;
            for (int i = 0; i < item; i++)
                most = larger(most, m[i]);
            const float mu = centre_of(larger(most, m[item]));
            before[item] = gqn_expf(most - mu);
            now[item] = gqn_expf(m[item] - mu);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL_8 for (int i = 0; i < some; i++) {
            const bool is_first = i0 + i == 0;
            all_m = larger(all_m, m[i]);
            all_l = is_first ? l[i] : gqn_fma(l[i], now[i], all_l * before[i]);
            CUDA_UNROLL for (int c = 0; c < MERGE_COLUMNS; c++) {
                const int d = item + c * ATTEND_MERGERS;
                if (d >= shape.value_size)
                    continue;
                const float x = from[MERGED(i, some) * step + PART_HEAD + (size_t)d];
                total[c] = is_first ? x : gqn_fma(x, now[i], total[c] * before[i]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        i0 += ATTEND_MERGERS;
    } while (i0 < n);
    end_factors(all_m, all_l, shape.has_sink, shape.has_sink ? sink[head] : 0.0f, &factor, &by);
    for (int c = 0; c < MERGE_COLUMNS; c++) {
        const int d = item + c * ATTEND_MERGERS;
        if (d < shape.value_size)
            y[out + (size_t)d] = n > 0 ? one_nan(gqn_div(total[c] * factor, by)) : 0.0f;
    }
}
