/* y = softmax(scale * q k^T ...) v over the visible keys of each row, for tiles of many rows
 * (attend_many.cl). The grid is [Hkv, units].
 *
 * Keys and values are staged in local memory: keys in chunks of elements, values in chunks of keys.
 * Scores: item (i, j) of [ROW_ITEMS][KEY_ITEMS] computes the rows i, i + ROW_ITEMS, ... and the
 * keys j, j + KEY_ITEMS, ... Sums of values: the same with columns, four at a time, in place of
 * keys. Each score and each sum is a chain of its own. Scores of keys that are not visible to a row
 * are discarded, and the values of these keys are not added. */

#define ROW_ITEMS  (ATTEND_ITEMS / KEY_ITEMS)
#define ITEM_ROWS  (ATTEND_ROWS / ROW_ITEMS)
#define ITEM_KEYS  (64 / KEY_ITEMS)
#define SUM_ITEMS  (ATTEND_ITEMS / COLUMN_ITEMS) /* items along the rows of sums */
#define SUM_ROWS   (ATTEND_ROWS / SUM_ITEMS)
#define SUM_FOURS  ((ATTEND_SIZE + 4 * COLUMN_ITEMS - 1) / (4 * COLUMN_ITEMS))
#define ROW_SHARE  (ATTEND_ITEMS / ATTEND_ROWS) /* items that share the weights of a row */
#define STRIDE     (CHUNK + 4)                  /* 4: keys are in different banks */
#define P_STRIDE   (64 + 4)
#define KEYS_STAGE (STRIDE * (64 + ATTEND_ROWS))
#define V_STRIDE   ((ATTEND_SIZE + 3) / 4 * 4)
#define V_KEYS     (KEYS_STAGE / V_STRIDE < 64 ? KEYS_STAGE / V_STRIDE / 4 * 4 : 64)
#define JOIN_2(a, b) a##b
#define JOIN(a, b)   JOIN_2(a, b)
#define OWN(name)    JOIN(JOIN(NAME, _), name)

/* What a group stores about its rows; now_*: in this split, all_*: in all earlier splits. */
typedef struct OWN(rows) {
    long q_at[ATTEND_ROWS], bias_at[ATTEND_ROWS], y_at[ATTEND_ROWS]; /* indices of first elements */
    int lo[ATTEND_ROWS], hi[ATTEND_ROWS], head[ATTEND_ROWS];
    int any[ATTEND_ROWS]; /* 0: no split yet */
    int mode[ATTEND_ROWS]; /* in the split that ends: 0: no key; 1: first keys; 2: more */
    float now_m[ATTEND_ROWS], next_m[ATTEND_ROWS], now_l[ATTEND_ROWS], alpha[ATTEND_ROWS];
    float all_m[ATTEND_ROWS], all_l[ATTEND_ROWS], before[ATTEND_ROWS], now[ATTEND_ROWS];
    float lanes[ATTEND_ROWS * GQAC_LANES], most[ATTEND_ROWS * KEY_ITEMS];
} OWN(rows);

/* The range of visible keys of row r within a tile. */
static inline int OWN(from)(__local const OWN(rows) * rows, int r, int tile) {
    return most_of(rows->lo[r] - tile, 0);
}
static inline int OWN(to)(__local const OWN(rows) * rows, int r, int tile) {
    return least_of(rows->hi[r] - tile, GQAC_KEY_TILE);
}

/* Adds n staged elements to the scores of an item's first `some` rows. */
static inline void OWN(score)(int some, __local const float *keys, __local const float *queries,
                              int row, int key, int n, float s[ITEM_ROWS][ITEM_KEYS]) {
    int d = 0;
    ROLLED for (; d + 4 <= n; d += 4) {
        float4 k[ITEM_KEYS];
        CUDA_UNROLL for (int j = 0; j < ITEM_KEYS; j++)
            k[j] = FOUR(keys + (key + j * KEY_ITEMS) * STRIDE + d);
        CUDA_UNROLL for (int i = 0; i < ITEM_ROWS; i++) {
            if (i >= some) /* the same for all items */
                continue;
            const float4 q = FOUR(queries + (row + i * ROW_ITEMS) * STRIDE + d);
            CUDA_UNROLL for (int j = 0; j < ITEM_KEYS; j++) {
                s[i][j] = gqn_fma(q.x, k[j].x, s[i][j]);
                s[i][j] = gqn_fma(q.y, k[j].y, s[i][j]);
                s[i][j] = gqn_fma(q.z, k[j].z, s[i][j]);
                s[i][j] = gqn_fma(q.w, k[j].w, s[i][j]);
            }
        }
    }
    for (; d < n; d++)
        CUDA_UNROLL for (int i = 0; i < ITEM_ROWS; i++)
            CUDA_UNROLL for (int j = 0; j < ITEM_KEYS; j++)
                s[i][j] = gqn_fma(queries[(row + i * ROW_ITEMS) * STRIDE + d],
                                  keys[(key + j * KEY_ITEMS) * STRIDE + d], s[i][j]);
}

/* Adds the staged values of the keys [t0, t1) to the sums of an item; v points to its first
 * column. */
static inline void OWN(weigh)(__local const OWN(rows) * rows, __local const float *p,
                              __local const float *v, int row, int column, int value_size, int tile,
                              int t0, int t1, bool first, float acc[SUM_ROWS][4 * SUM_FOURS]) {
    int from[SUM_ROWS], to[SUM_ROWS];
    bool all = true;
    CUDA_UNROLL for (int i = 0; i < SUM_ROWS; i++) {
        const int r = row + i * SUM_ITEMS;
        from[i] = OWN(from)(rows, r, tile);
        to[i] = OWN(to)(rows, r, tile);
        const float alpha = first && from[i] < to[i] ? rows->alpha[r] : 1.0f;
        all = all && from[i] <= t0 && to[i] >= t1;
        if (first && from[i] < to[i])
            CUDA_UNROLL for (int c = 0; c < 4 * SUM_FOURS; c++)
                acc[i][c] = acc[i][c] * alpha;
    }
    ROLLED for (int t = t0; t < t1; t++) {
        float weight[SUM_ROWS];
        CUDA_UNROLL for (int i = 0; i < SUM_ROWS; i++)
            weight[i] = p[(row + i * SUM_ITEMS) * P_STRIDE + t];
        CUDA_UNROLL for (int c = 0; c < SUM_FOURS; c++) {
            const int at = 4 * (column + c * COLUMN_ITEMS);
            if (at >= value_size)
                continue;
            const float4 x = FOUR(v + (t - t0) * V_STRIDE + at);
            CUDA_UNROLL for (int i = 0; i < SUM_ROWS; i++) {
                if (!all && (t < from[i] || t >= to[i]))
                    continue;
                acc[i][4 * c] = gqn_fma(weight[i], x.x, acc[i][4 * c]);
                acc[i][4 * c + 1] = gqn_fma(weight[i], x.y, acc[i][4 * c + 1]);
                acc[i][4 * c + 2] = gqn_fma(weight[i], x.z, acc[i][4 * c + 2]);
                acc[i][4 * c + 3] = gqn_fma(weight[i], x.w, acc[i][4 * c + 3]);
            }
        }
    }
}

/* Computes the scores of the rows and keys of an item from plain sums. */
static inline void OWN(finish)(__local OWN(rows) * rows, __local float *p,
                               __global const float *bias, const attend_shape *shape, int row,
                               int key, int tile) {
    ROLLED for (int r = row; r < ATTEND_ROWS; r += ROW_ITEMS) {
        const int from = OWN(from)(rows, r, tile), to = OWN(to)(rows, r, tile);
        float most = -gqn_as_f32(GQN_INF_BITS);
        if (from >= to)
            continue;
        ROLLED for (int t = key; t < to; t += KEY_ITEMS) {
            if (t < from)
                continue;
            float x = shape->scale * p[r * P_STRIDE + t];
            if (shape->softcap > 0.0f)
                x = shape->softcap * gqn_tanhf(gqn_div(x, shape->softcap));
            if (shape->bias_columns > 0)
                x = x + bias[rows->bias_at[r] + tile + t];
            p[r * P_STRIDE + t] = x;
            most = larger(most, x);
        }
        rows->most[r * KEY_ITEMS + key] = most;
    }
}

/* Maximum, weights and sums of the lanes of a row; an item computes every ROW_SHARE-th lane. */
static inline void OWN(weights)(__local OWN(rows) * rows, __local float *p, int r, int share,
                                int tile) {
    const int from = OWN(from)(rows, r, tile), to = OWN(to)(rows, r, tile);
    const float before = rows->now_m[r];
    float m = before;
    if (from >= to)
        return;
    for (int j = 0; j < KEY_ITEMS; j++)
        m = larger(m, rows->most[r * KEY_ITEMS + j]);
    const float mu = centre_of(m);
    for (int l = share; l < GQAC_LANES; l += ROW_SHARE) {
        float sum = 0.0f;
        for (int t = (l - tile) & (GQAC_LANES - 1); t < to; t += GQAC_LANES) {
            if (t < from)
                continue;
            const float x = gqn_expf(p[t] - mu);
            p[t] = x;
            sum += x;
        }
        rows->lanes[r * GQAC_LANES + l] = sum;
    }
    if (share == 0) {
        rows->alpha[r] = m > before ? gqn_expf(before - mu) : 1.0f;
        rows->next_m[r] = m;
    }
}

__kernel GROUP(ATTEND_ITEMS) void NAME(ATTEND_ARGUMENTS) {
    SHARED float4 stage_fours[KEYS_STAGE / 4];
    SHARED float p[ATTEND_ROWS * P_STRIDE];
    SHARED OWN(rows) rows;
    __local float *stage = (__local float *)stage_fours;
    __global const uchar *slabs[SLABS] = {s0, s1, s2,  s3,  s4,  s5,  s6,  s7,
                                          s8, s9, s10, s11, s12, s13, s14, s15};
    const int item = (int)get_local_id(0), kv_head = (int)get_group_id(0);
    const int row_item = item / KEY_ITEMS, key_item = item % KEY_ITEMS;
    const int sum_item = item / COLUMN_ITEMS, column = item % COLUMN_ITEMS;
    /* A unit: first query, first row of the tile, number of rows, sequence, keys [begin, end), slot
     * of its first split, or -1 if it covers all keys. */
    __global const int *unit = lists + shape.units + 7 * (long)get_group_id(1);
    const int count = unit[2], sequence = unit[3], begin = unit[4], end = unit[5], slot = unit[6];
    const int k_steps = blocks.scale_step * kv_head;
    const int scale_row = blocks.k_scales_at ? shape.kv_heads : 0;
    const size_t k_bytes = row_bytes(KEY_SIZE, TYPE), v_bytes = row_bytes(VALUE_SIZE, TYPE);
    k_scale += k_steps * KEY_SIZE;
    v_scale += k_steps * VALUE_SIZE;

    if (item < ATTEND_ROWS) {
        const attend_row row = attend_row_of(&shape, unit, item, kv_head, KEY_SIZE, VALUE_SIZE);
        const bool is = item < count;
        rows.head[item] = row.head;
        rows.q_at[item] = row.q_at;
        rows.bias_at[item] = row.bias_at;
        rows.y_at[item] = row.y_at;
        rows.lo[item] = is ? lists[row.query] : 0;
        rows.hi[item] = is ? least_of(lists[shape.rows + row.query], shape.keys) : 0;
        rows.any[item] = 0;
        rows.all_m[item] = rows.all_l[item] = 0.0f;
    }
    float acc[SUM_ROWS][4 * SUM_FOURS];
    barrier(CLK_LOCAL_MEM_FENCE);

    ROLLED for (int split = begin / SPLIT * SPLIT; split < end; split += SPLIT) {
        if (item < ATTEND_ROWS) {
            rows.now_m[item] = -gqn_as_f32(GQN_INF_BITS);
            rows.now_l[item] = 0.0f;
        }
        CUDA_UNROLL for (int i = 0; i < SUM_ROWS; i++)
            CUDA_UNROLL for (int c = 0; c < 4 * SUM_FOURS; c++)
                acc[i][c] = 0.0f;
        const int first_tile = most_of(split, begin / GQAC_KEY_TILE * GQAC_KEY_TILE);
        const int last = least_of(split + SPLIT, end);
        ROLLED for (int tile = first_tile; tile < last; tile += GQAC_KEY_TILE) {
            const int from = most_of(begin - tile, 0), to = least_of(end - tile, GQAC_KEY_TILE);
            const attend_tile at =
                attend_tile_at(&shape, &blocks, slabs, lists, k_rows, v_rows, sequence, kv_head,
                               tile, k_bytes, v_bytes);
            float s[ITEM_ROWS][ITEM_KEYS];
            CUDA_UNROLL for (int i = 0; i < ITEM_ROWS; i++)
                CUDA_UNROLL for (int j = 0; j < ITEM_KEYS; j++)
                    s[i][j] = 0.0f;
            ROLLED for (int d0 = 0; d0 < KEY_SIZE; d0 += CHUNK) {
                const int n = KEY_SIZE % CHUNK == 0 ? CHUNK : least_of(KEY_SIZE - d0, CHUNK);
                __local float *queries = stage + 64 * STRIDE;
                stage_rows(stage + from * STRIDE, STRIDE, at.k, at.k_step, from, to, d0, n, TYPE,
                           k_bytes, scale_row ? at.k_scale : k_scale, blocks.scale_step, scale_row,
                           item, ATTEND_ITEMS);
                ROLLED for (int i = item; i < count * (CHUNK / 4); i += ATTEND_ITEMS) {
                    const int r = i / (CHUNK / 4), d = i % (CHUNK / 4) * 4;
                    const size_t own = (size_t)(rows.q_at[r] + d0 + d);
                    __local float *to_q = queries + r * STRIDE + d;
                    if (KEY_SIZE % 4 == 0 && d < n)
                        *(__local float4 *)to_q = query_four(q, shape.q_type, own);
                    for (int e = 0; KEY_SIZE % 4 != 0 && e < 4 && d + e < n; e++)
                        to_q[e] = float_at(q, shape.q_type, own + (size_t)e);
                }
                barrier(CLK_LOCAL_MEM_FENCE);
                OWN(score)((count + ROW_ITEMS - 1) / ROW_ITEMS, stage, queries, row_item, key_item,
                           n, s);
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            CUDA_UNROLL for (int i = 0; i < ITEM_ROWS; i++)
                CUDA_UNROLL for (int j = 0; j < ITEM_KEYS; j++)
                    p[(row_item + i * ROW_ITEMS) * P_STRIDE + key_item + j * KEY_ITEMS] = s[i][j];
            OWN(finish)(&rows, p, bias, &shape, row_item, key_item, tile);
            barrier(CLK_LOCAL_MEM_FENCE);
            ROLLED for (int t0 = from; t0 < to; t0 += V_KEYS) {
                const int t1 = least_of(t0 + V_KEYS, to);
                stage_rows(stage, V_STRIDE, at.v, at.v_step, t0, t1, 0, VALUE_SIZE, TYPE, v_bytes,
                           scale_row ? at.v_scale : v_scale, blocks.scale_step, scale_row, item,
                           ATTEND_ITEMS);
                if (t0 == from)
                    OWN(weights)(&rows, p + item / ROW_SHARE * P_STRIDE, item / ROW_SHARE,
                                 item % ROW_SHARE, tile);
                barrier(CLK_LOCAL_MEM_FENCE);
                if (t0 == from && item < ATTEND_ROWS &&
                    OWN(from)(&rows, item, tile) < OWN(to)(&rows, item, tile)) {
                    rows.now_l[item] = gqn_fma(rows.now_l[item], rows.alpha[item],
                                               fold_weights(rows.lanes + item * GQAC_LANES));
                    rows.now_m[item] = rows.next_m[item];
                }
                OWN(weigh)(&rows, p, stage, sum_item, column, VALUE_SIZE, tile, t0, t1, t0 == from,
                           acc);
                barrier(CLK_LOCAL_MEM_FENCE);
            }
        }
        if (item < ATTEND_ROWS) {
            const bool sees = rows.lo[item] < rows.hi[item] && rows.lo[item] < split + SPLIT &&
                              rows.hi[item] > split;
            rows.mode[item] = !sees ? 0 : rows.any[item] && slot < 0 ? 2 : 1;
            if (rows.mode[item] == 1) {
                rows.all_m[item] = rows.now_m[item];
                rows.all_l[item] = rows.now_l[item];
            } else if (sees) {
                float m = rows.all_m[item], l = rows.all_l[item], before, now;
                merge_factors(rows.now_m[item], rows.now_l[item], &m, &l, &before, &now);
                rows.all_m[item] = m;
                rows.all_l[item] = l;
                rows.before[item] = before;
                rows.now[item] = now;
            }
            rows.any[item] = rows.any[item] || sees;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        CUDA_UNROLL for (int i = 0; i < SUM_ROWS; i++) {
            const int r = sum_item + i * SUM_ITEMS;
            const int mode = rows.mode[r];
            if (mode == 0)
                continue;
            /* written to a part for attend_merge, or merged into y, which saves registers */
            const size_t own = ((size_t)((split - begin / SPLIT * SPLIT) / SPLIT) *
                                    (size_t)shape.kv_heads + (size_t)kv_head) * (size_t)count +
                               (size_t)r;
            __global float *part = parts + ((size_t)slot + own) * part_size(VALUE_SIZE);
            __global float *to = slot >= 0 ? part + PART_HEAD : y + rows.y_at[r];
            if (slot >= 0 && column == 0) {
                part[0] = rows.all_m[r];
                part[1] = rows.all_l[r];
            }
            CUDA_UNROLL for (int c = 0; c < 4 * SUM_FOURS; c++) {
                const int d = 4 * (column + c / 4 * COLUMN_ITEMS) + c % 4;
                if (d < VALUE_SIZE)
                    to[d] = mode == 1 ? acc[i][c]
                                      : gqn_fma(acc[i][c], rows.now[r], to[d] * rows.before[r]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (slot >= 0)
        return;
    CUDA_UNROLL for (int i = 0; i < SUM_ROWS; i++) {
        const int r = sum_item + i * SUM_ITEMS, head = rows.head[r];
        float factor, by;
        if (r >= count)
            continue;
        end_factors(rows.all_m[r], rows.all_l[r], shape.has_sink,
                    shape.has_sink ? sink[head] : 0.0f, &factor, &by);
        __global float *out = y + rows.y_at[r];
        CUDA_UNROLL for (int c = 0; c < 4 * SUM_FOURS; c++) {
            const int d = 4 * (column + c / 4 * COLUMN_ITEMS) + c % 4;
            if (d < VALUE_SIZE)
                out[d] = rows.any[r] ? one_nan(gqn_div(out[d] * factor, by)) : 0.0f;
        }
    }
}

#undef SLAB
#undef ATTEND_ARGUMENTS
#undef OWN
#undef JOIN
#undef JOIN_2
#undef V_KEYS
#undef V_STRIDE
#undef KEYS_STAGE
#undef P_STRIDE
#undef STRIDE
#undef ROW_SHARE
#undef SUM_FOURS
#undef SUM_ROWS
#undef SUM_ITEMS
#undef ITEM_KEYS
#undef ITEM_ROWS
#undef ROW_ITEMS
#undef COLUMN_ITEMS
#undef CHUNK
#undef KEY_ITEMS
#undef ATTEND_ITEMS
#undef ATTEND_ROWS
#undef NAME
