/* y = softmax(scale * q k^T ...) v over the visible keys of each row, in tensor cores, for
 * --math bf16 on CUDA. The grid is [Hkv, units]. Sizes of heads are multiples of 16, ATTEND_SIZE of
 * queries and keys and ATTEND_VALUE_SIZE of values.
 *
 * Definition. Factors are gqn_bf16_factor of q, k, v and of the weights p. For a row:
 *   - s_j = scale * (one chain of mma_bf16 from zero over blocks of 32 d, ascending, two for each
 *     block, as factors.cl defines; the elements after the last are zeros); then softcap and bias
 *   - tiles of 64 keys, splits, maxima m, alpha, weights p and their sum l are those of
 *     docs/numerics.md, "Attention on cpu"; the p are rounded after they have been summed
 *   - for each tile with visible keys: acc = acc * alpha + 0, then a chain of four mma_bf16, of 16
 *     keys each, ascending. Keys that are not visible to the row have p = 0 and v = 0
 *   - at the end of a split, elements of acc that are not finite become NaN
 * Splits and sinks are merged as on cpu. Measurements showed that a row of a product depends only
 * on its own factors, so a row has the same bits in any tile, and at any position in it.
 *
 * 0 * NaN is NaN, and so is 0 * infinity. So if different keys of a tile are visible to the rows of
 * a warp, factors of v that are not finite are replaced by zeros, and another product counts, for
 * each row and column, the replaced factors whose keys are visible: if there are any, acc is NaN.
 *
 * A group computes ATTEND_MANY_ROWS rows, and each warp 16 of them; if heads are large, two warps
 * share the same 16 rows and compute half of the columns each. Item 4 g + q of a warp has rows g
 * and g + 8: the scores of the keys 2q and 2q + 1 of each 8, and the elements of acc in the columns
 * 2q and 2q + 1 of each 8. So the weights of two blocks of 8 keys are already in the items that
 * need them as rows of the next product. Factors of queries stay in local memory; those of keys and
 * values are brought to it in stages (attend_stage.cl). */

/* ---- rows ------------------------------------------------------------------------- */

/* What a group stores about the rows of its slots; now_*: in this split, all_*: in all earlier
 * splits. The four items that share a row compute the same, and the first of them writes it. */
typedef struct tensor_rows {
    attend_row row[SLOTS];
    int lo[SLOTS], hi[SLOTS], any[SLOTS]; /* any: 0: no split yet */
    float now_m[SLOTS], now_l[SLOTS], all_m[SLOTS], all_l[SLOTS], alpha[SLOTS];
} tensor_rows;

GQN_FN bool tensor_sees(__local const tensor_rows *rows, int r, int from, int to) {
    return rows->lo[r] < to && rows->hi[r] > from && rows->lo[r] < rows->hi[r];
}

/* The visible keys of the rows of a warp, of those with any. */
typedef struct tensor_range {
    int first, last;   /* visible to at least one row: [first, last) */
    int latest, least; /* visible to all of them: [latest, least) */
} tensor_range;

GQN_FN tensor_range tensor_range_of(__local const tensor_rows *rows, int warp) {
    tensor_range range = {0x7fffffff, 0, 0, 0x7fffffff};
    ROLLED for (int r = warp * 16; r < warp * 16 + 16; r++)
        if (rows->lo[r] < rows->hi[r]) {
            range.first = least_of(range.first, rows->lo[r]);
            range.latest = most_of(range.latest, rows->lo[r]);
            range.least = least_of(range.least, rows->hi[r]);
            range.last = most_of(range.last, rows->hi[r]);
        }
    return range;
}

/* Component c of row i of the item: component 2 i + c of x. */
GQN_FN float tensor_of(float4 x, int i, int c) {
    return i == 0 ? c == 0 ? x.x : x.y : c == 0 ? x.z : x.w;
}

/* ---- scores ----------------------------------------------------------------------- */

/* Adds a stage of keys to the plain sums of the rows of a warp. */
GQN_FN void tensor_score(__local const uint4 *queries, __local const uint4 *keys, int lane,
                         float4 s[BLOCKS]) {
    ROLLED for (int b = 0; b < DEPTH; b++) {
        const uint4 first = queries[b * 64 + lane], second = queries[b * 64 + 32 + lane];
        UNROLL for (int j0 = 0; j0 < BLOCKS; j0 += 4) {
            uint4 w[4];
            IN_TURN;
            UNROLL for (int j = 0; j < 4; j++)
                w[j] = keys[((j0 + j) * DEPTH + b) * 32 + lane];
            UNROLL for (int j = 0; j < 4; j++)
                s[j0 + j] = tensor_first(first, w[j], s[j0 + j]);
            UNROLL for (int j = 0; j < 4; j++)
                s[j0 + j] = tensor_second(second, w[j], s[j0 + j]);
        }
    }
}

/* Computes the scores of a row from its plain sums. The keys [lo, hi) are visible to the row;
 * `key`: the first key of the item. */
GQN_FN void tensor_finish(const attend_shape *shape, __global const float *bias, int key, int lo,
                          int hi, float x[16]) {
    UNROLL for (int t = 0; t < 16; t++)
        x[t] = shape->scale * x[t];
    if (shape->softcap > 0.0f)
        UNROLL for (int t = 0; t < 16; t++)
            x[t] = shape->softcap * gqn_tanhf(gqn_div(x[t], shape->softcap));
    if (shape->bias_columns > 0)
        UNROLL for (int t = 0; t < 16; t++) {
            const int at = key + t / 2 * 8 + t % 2;
            if (at >= lo && at < hi)
                x[t] = x[t] + bias[at];
        }
}

/* gqn_expf(x) for an x that is at most 0, or NaN; any number for another x. */
GQN_FN float tensor_expf(float x) {
    const float y = gqn_exp_core(x < GQN_EXP_MIN ? GQN_EXP_MIN : x);
    const float positive = x < GQN_EXP_MIN ? 0.0f : y;
    return x != x ? gqn_as_f32(GQN_NAN_BITS) : positive;
}

/* The factors of two weights. */
GQN_FN uint tensor_weight_pair(float even, float odd) {
    return floats_to_bf16(even < GQAC_BF16_LEAST ? 0.0f : even, odd < GQAC_BF16_LEAST ? 0.0f : odd);
}

/* Turns the scores of the row in slot r into weights, and sets p: the factors, two keys a word.
 * `all`: all keys are visible to the row. */
GQN_FN void tensor_weights(const bool all, __local tensor_rows *rows, int r, int key, float x[16],
                           uint p[8]) {
    const float before = rows->now_m[r];
    const int lo = rows->lo[r], hi = rows->hi[r];
    float most = -gqn_as_f32(GQN_INF_BITS), sums[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    UNROLL for (int t = 0; t < 16; t++) {
        const int at = key + t / 2 * 8 + t % 2;
        if (all || (at >= lo && at < hi))
            most = larger(most, x[t]);
    }
    most = larger(most, of_other(most, 1));
    most = larger(most, of_other(most, 2));
#ifdef CONTROL_GPU_WARP_MAXIMUM /* negative control: rows that share a warp share a maximum */
    UNROLL for (int mask = 4; mask < 32; mask *= 2)
        most = larger(most, of_other(most, mask));
#endif
    const float m = larger(before, most), mu = centre_of(m);
    const float alpha = m > before ? gqn_expf(before - mu) : 1.0f;
    UNROLL for (int j = 0; j < 8; j++) {
        IN_TURN;
        UNROLL for (int c = 0; c < 2; c++) {
            const int at = key + j * 8 + c;
            const float weight = tensor_expf(x[2 * j + c] - mu);
            x[2 * j + c] = all || (at >= lo && at < hi) ? weight : 0.0f;
            sums[j % 2][c] += x[2 * j + c];
        }
        p[j] = tensor_weight_pair(x[2 * j], x[2 * j + 1]);
    }
    /* the lanes of a row, folded 8, 4, 2, 1 */
    float even = sums[0][0] + sums[1][0], odd = sums[0][1] + sums[1][1];
    even += of_other(even, 2);
    odd += of_other(odd, 2);
    even += of_other(even, 1);
    odd += of_other(odd, 1);
    const float l = gqn_fma(rows->now_l[r], alpha, even + odd);
    TEAM_BARRIER;
    if (get_local_id(0) % 4 == 0) {
        rows->now_m[r] = m;
        rows->now_l[r] = l;
        rows->alpha[r] = alpha;
    }
    TEAM_BARRIER;
}

/* The weights of both rows of an item, from the plain sums of their scores. */
GQN_FN void tensor_weights_of(const attend_shape *shape, __global const float *bias, int tile,
                              int own, __local tensor_rows *rows, const float4 s[8],
                              uint p[8][2]) {
    const int key = tile + (int)get_local_id(0) % 4 * 2;
    ROLLED for (int i = 0; i < 2; i++) {
        const int r = own + 8 * i;
        float x[16];
        uint own_p[8];
        UNROLL for (int t = 0; t < 16; t++)
            x[t] = tensor_of(s[t / 2], i, t % 2);
        tensor_finish(shape, bias + rows->row[r].bias_at, key, rows->lo[r], rows->hi[r], x);
        tensor_weights(false, rows, r, key, x, own_p);
        UNROLL for (int j = 0; j < 8; j++) {
            p[j][0] = i == 0 ? own_p[j] : p[j][0];
            p[j][1] = own_p[j];
        }
    }
}

/* ---- sums of values ----------------------------------------------------------------- */

/* acc * alpha + 0. Without the + 0, the sign of a zero would depend on values v that are not
 * visible to the row. */
GQN_FN float4 tensor_scaled(float4 x, float low, float high) {
    return FLOAT4(x.x * low + 0.0f, x.y * low + 0.0f, x.z * high + 0.0f, x.w * high + 0.0f);
}

/* The rows of the product of 16 keys: the weights of two blocks. */
GQN_FN uint4 tensor_rows_of(uint p[8][2], int block) {
    return UINT4(p[block][0], p[block][1], p[block + 1][0], p[block + 1][1]);
}

/* Adds 32 keys that are visible to all rows of a warp, or have values of 0. */
GQN_FN void tensor_weigh(uint4 first, uint4 second, __local const uint4 *values, float4 acc[OWN]) {
    UNROLL for (int n0 = 0; n0 < OWN; n0 += TOGETHER) {
        uint4 w[TOGETHER];
        IN_TURN;
        UNROLL for (int n = 0; n < TOGETHER; n++)
            w[n] = values[(n0 + n) * 32];
        UNROLL for (int n = 0; n < TOGETHER; n++)
            acc[n0 + n] = tensor_first(first, w[n], acc[n0 + n]);
        UNROLL for (int n = 0; n < TOGETHER; n++)
            acc[n0 + n] = tensor_second(second, w[n], acc[n0 + n]);
    }
}

/* A word with 1 for each of two keys that is visible to a row. */
GQN_FN uint tensor_seen(int lo, int hi, int key) {
    return (key >= lo && key < hi ? 0x3f80u : 0u) |
           (key + 1 >= lo && key + 1 < hi ? 0x3f800000u : 0u);
}

/* The same for 16 keys and the rows of slots r and r + 8; `key`: the first key of the item. */
GQN_FN uint4 tensor_seen_of(__local const tensor_rows *rows, int r, int key) {
    const int low[2] = {rows->lo[r], rows->hi[r]}, high[2] = {rows->lo[r + 8], rows->hi[r + 8]};
    return UINT4(tensor_seen(low[0], low[1], key), tensor_seen(high[0], high[1], key),
                 tensor_seen(low[0], low[1], key + 8), tensor_seen(high[0], high[1], key + 8));
}

/* A mask of those of two numbers that are not finite. */
GQN_FN uint tensor_not_finite(uint two) {
    return ((two & 0x7f80u) == 0x7f80u ? 0xffffu : 0u) |
           ((two & 0x7f800000u) == 0x7f800000u ? 0xffff0000u : 0u);
}
GQN_FN uint4 tensor_all_not_finite(uint4 w) {
    return UINT4(tensor_not_finite(w.x), tensor_not_finite(w.y), tensor_not_finite(w.z),
                 tensor_not_finite(w.w));
}

/* An element of acc after a product; unchanged if no key of the tile is visible to its row. */
GQN_FN float tensor_next(bool sees, float before, float now, float bad) {
    return !sees ? before : bad > 0.0f ? gqn_as_f32(GQN_NAN_BITS) : now;
}

/* Adds 32 keys that are not visible to all rows. */
GQN_FN void tensor_weigh_some(__local const tensor_rows *rows, int r, int tile, int key,
                              uint4 first, uint4 second, __local const uint4 *values,
                              float4 acc[OWN]) {
    const uint4 seen = tensor_seen_of(rows, r, key), seen_next = tensor_seen_of(rows, r, key + 16);
    const bool low = tensor_sees(rows, r, tile, tile + GQAC_KEY_TILE);
    const bool high = tensor_sees(rows, r + 8, tile, tile + GQAC_KEY_TILE);
    UNROLL for (int n = 0; n < OWN; n++) {
        IN_TURN;
        const uint4 w = values[n * 32], bad = tensor_all_not_finite(w);
        const uint4 finite = UINT4(w.x & ~bad.x, w.y & ~bad.y, w.z & ~bad.z, w.w & ~bad.w);
        const uint ones = 0x3f803f80u;
        const float4 count = tensor_block(
            seen, seen_next, UINT4(bad.x & ones, bad.y & ones, bad.z & ones, bad.w & ones),
            tensor_zero());
        const float4 now = tensor_block(first, second, finite, acc[n]);
        acc[n] = FLOAT4(tensor_next(low, acc[n].x, now.x, count.x),
                        tensor_next(low, acc[n].y, now.y, count.y),
                        tensor_next(high, acc[n].z, now.z, count.z),
                        tensor_next(high, acc[n].w, now.w, count.w));
    }
}

/* ---- ends of splits ------------------------------------------------------------------- */

GQN_FN float tensor_finite(float x) {
    return (gqn_as_u32(x) & GQN_INF_BITS) == GQN_INF_BITS ? gqn_as_f32(GQN_NAN_BITS) : x;
}

/* Ends a split for the row in slot r, which is row i of the item: writes the split to `part`, or,
 * if part is NULL, merges it into y and the sums of the row. `sees`: any key of the split is
 * visible to the row; `column`: the first column of the item. */
GQN_FN void tensor_end(__local tensor_rows *rows, int r, int i, bool sees, const float4 acc[OWN],
                       __global float *part, int column, __global float *y) {
    const int own = (int)get_local_id(0) % 4;
    const bool first = part || !rows->any[r];
    float m = rows->now_m[r], l = rows->now_l[r], before = 0.0f, now = 1.0f;
    if (!first) {
        const float now_m = m, now_l = l;
        m = rows->all_m[r];
        l = rows->all_l[r];
        merge_factors(now_m, now_l, &m, &l, &before, &now);
    }
    TEAM_BARRIER;
    if (own == 0) {
        rows->now_m[r] = -gqn_as_f32(GQN_INF_BITS);
        rows->now_l[r] = 0.0f;
    }
    if (own == 0 && sees) {
        rows->any[r] = 1;
        rows->all_m[r] = m;
        rows->all_l[r] = l;
        if (part) {
            part[0] = m;
            part[1] = l;
        }
    }
    TEAM_BARRIER;
    __global float2 *to = (__global float2 *)((part ? part + PART_HEAD : y) + column);
    UNROLL for (int n = 0; sees && n < OWN; n++) {
        float2 x;
        x.x = tensor_finite(tensor_of(acc[n], i, 0));
        x.y = tensor_finite(tensor_of(acc[n], i, 1));
        if (!first) {
            const float2 earlier = to[n * 4];
            x.x = gqn_fma(x.x, now, earlier.x * before);
            x.y = gqn_fma(x.y, now, earlier.y * before);
        }
        to[n * 4] = x;
    }
}

/* Ends the split that begins at key `split` for the rows of an item. */
GQN_FN void tensor_end_split(const attend_shape *shape, __global const int *unit, int kv_head,
                             int own, int split, const float4 acc[OWN], int column,
                             __local tensor_rows *rows, __global float *parts,
                             __global float *y) {
    const int count = unit[2], slot = unit[6];
    const int of_unit = split / GQAC_KEY_SPLIT - unit[4] / GQAC_KEY_SPLIT;
    ROLLED for (int i = 0; i < 2; i++) {
        const int r = own + 8 * i;
        const size_t at = (size_t)slot + ((size_t)of_unit * (size_t)shape->kv_heads +
                                          (size_t)kv_head) * (size_t)count +
                          (size_t)(r % ROWS);
        tensor_end(rows, r, i, tensor_sees(rows, r, split, split + GQAC_KEY_SPLIT), acc,
                   slot < 0 ? NULL : parts + at * part_size(ATTEND_VALUE_SIZE), column,
                   y + rows->row[r].y_at);
    }
}

/* After the last split of a unit that has all keys of its rows. */
GQN_FN void tensor_close(const attend_shape *shape, __local const tensor_rows *rows, int own,
                         int count, __global const float *sink, int column, __global float *y) {
    ROLLED for (int i = 0; i < 2; i++) {
        const int r = own + 8 * i, head = rows->row[r].head;
        float factor, by;
        if (r % ROWS >= count)
            continue;
        end_factors(rows->all_m[r], rows->all_l[r], shape->has_sink,
                    shape->has_sink ? sink[head] : 0.0f, &factor, &by);
        __global float2 *out = (__global float2 *)(y + rows->row[r].y_at + column);
        UNROLL for (int n = 0; n < OWN; n++) {
            float2 x = out[n * 4];
            x.x = rows->any[r] ? one_nan(gqn_div(x.x * factor, by)) : 0.0f;
            x.y = rows->any[r] ? one_nan(gqn_div(x.y * factor, by)) : 0.0f;
            out[n * 4] = x;
        }
    }
}

/* What a group stores about the row in slot `item` of a unit before its first tile. */
GQN_FN void tensor_open_rows(const attend_shape *shape, __global const int *unit,
                             __global const int *lists, int kv_head, int item,
                             __local tensor_rows *rows) {
    const attend_row row =
        attend_row_of(shape, unit, item % ROWS, kv_head, ATTEND_SIZE, ATTEND_VALUE_SIZE);
    const bool is = item % ROWS < unit[2];
    rows->row[item] = row;
    rows->lo[item] = is ? lists[row.query] : 0;
    rows->hi[item] = is ? least_of(lists[shape->rows + row.query], shape->keys) : 0;
    rows->any[item] = 0;
    rows->now_m[item] = -gqn_as_f32(GQN_INF_BITS);
    rows->now_l[item] = rows->all_m[item] = rows->all_l[item] = 0.0f;
}

/* Queries [r][d .. d + 8) and [r + 8][the same] as factors; zeros for rows and elements that do not
 * exist. */
GQN_FN void tensor_queries(__local const tensor_rows *rows, __global const uchar *q, int q_type,
                           int count, int r, int d, uint4 eights[2]) {
    UNROLL for (int j = 0; j < 2; j++) {
        const bool is = r + 8 * j < count && d < ATTEND_SIZE;
        const size_t at = is ? (size_t)(rows->row[r + 8 * j].q_at + d) : 0;
        eights[j] = is ? tensor_eight_of(query_four(q, q_type, at), query_four(q, q_type, at + 4))
                       : tensor_none();
    }
}

/* ---- the kernel ------------------------------------------------------------------------- */

/* Opens the keys and values of a tile, of which the keys [from, to) are used. */
GQN_FN void tensor_open(attend_tile at, const attend_blocks *blocks, int scale_row,
                        __global const float *k_scale, __global const float *v_scale, int from,
                        int to, __local tensor_tile *tile) {
    tile->keys.rows = at.k;
    tile->values.rows = at.v;
    tile->keys.step = (uint)at.k_step;
    tile->values.step = (uint)at.v_step;
    tile->keys.scale = scale_row ? at.k_scale : k_scale;
    tile->values.scale = scale_row ? at.v_scale : v_scale;
    tile->keys.scale_step = tile->values.scale_step = blocks->scale_step;
    tile->keys.scale_row = tile->values.scale_row = scale_row;
    tile->keys.from = tile->values.from = from;
    tile->keys.to = tile->values.to = to;
}

#define TILE_OF(key) (&tiles[(key) / GQAC_KEY_TILE % 2])

/* Opens the tile at `key`, which may be after the last one. */
#define OPEN_TILE(key)                                                                             \
    tensor_open(attend_tile_at(&shape, &blocks, slabs, lists, k_rows, v_rows, sequence, kv_head,   \
                               least_of((key), most_of(end - 1, 0)) / GQAC_KEY_TILE *              \
                                   GQAC_KEY_TILE,                                                  \
                               row_bytes(ATTEND_SIZE, ATTEND_TYPE),                                \
                               row_bytes(ATTEND_VALUE_SIZE, ATTEND_TYPE)),                         \
                &blocks, scale_row, k_scale, v_scale, most_of(begin - (key), 0),                   \
                least_of(end - (key), GQAC_KEY_TILE), TILE_OF(key))

#ifdef CONTROL_TENSOR_ALL_SEEN /* negative control: hidden values are multiplied */
#define ALIKE(is) true
#else
#define ALIKE(is) (is)
#endif

__kernel GROUP_ALONE(ITEMS) void attend_tensor(ATTEND_ARGUMENTS) {
    SHARED uint4 queries[ROWS / 16 * DEPTH * 64];
    SHARED uint4 stage[K_STAGE > V_STAGE ? K_STAGE : V_STAGE];
    SHARED tensor_rows rows;
    SHARED tensor_tile tiles[2];
    __global const uchar *slabs[SLABS] = {s0, s1, s2,  s3,  s4,  s5,  s6,  s7,
                                          s8, s9, s10, s11, s12, s13, s14, s15};
    const int item = (int)get_local_id(0), kv_head = (int)get_group_id(0);
    const int lane = item % 32, warp = item / 32, own = warp * 16 + lane / 4;
    const int share = warp * 16 / ROWS, column = share * OWN * 8 + lane % 4 * 2;
    /* A unit, as in attention.cl */
    __global const int *unit = lists + shape.units + 7 * (long)get_group_id(1);
    const int count = unit[2], sequence = unit[3], begin = unit[4], end = unit[5], slot = unit[6];
    const int scale_row = blocks.k_scales_at ? shape.kv_heads : 0;
    k_scale += blocks.scale_step * kv_head * ATTEND_SIZE;
    v_scale += blocks.scale_step * kv_head * ATTEND_VALUE_SIZE;

    int tile = begin / GQAC_KEY_TILE * GQAC_KEY_TILE;
    if (item == 0)
        OPEN_TILE(tile);
    if (item < SLOTS)
        tensor_open_rows(&shape, unit, lists, kv_head, item, &rows);
    barrier(CLK_LOCAL_MEM_FENCE);
    ROLLED for (int i = item; i < ROWS / 16 * DEPTH * 32; i += ITEMS) {
        const int r = i / (DEPTH * 32) * 16 + i % 32 / 4, d = attend_d_of(i);
        uint4 eights[2];
        tensor_queries(&rows, q, shape.q_type, count, r, d, eights);
        queries[i / 32 * 64 + i % 32] = tensor_first_part(eights[0], eights[1]);
        queries[i / 32 * 64 + 32 + i % 32] = tensor_second_part(eights[0], eights[1]);
    }

    const tensor_range range = tensor_range_of(&rows, warp);
    __local const uint4 *own_queries = queries + warp % (ROWS / 16) * DEPTH * 64;
    float4 acc[OWN];
    attend_eight ahead[AHEAD];
    UNROLL for (int n = 0; n < OWN; n++)
        acc[n] = tensor_zero();
    attend_look_keys(&TILE_OF(tile)->keys, 0, ahead);
    attend_put_keys(&TILE_OF(tile)->keys, 0, ahead, stage);
    barrier(CLK_LOCAL_MEM_FENCE);
    ROLLED for (; tile < end; tile += GQAC_KEY_TILE) {
        const int next = tile + GQAC_KEY_TILE, split = tile / GQAC_KEY_SPLIT * GQAC_KEY_SPLIT;
        const bool used = range.first < next && range.last > tile; /* by the warp */
        const bool alike = ALIKE(range.latest <= most_of(begin, tile) &&
                                 range.least >= least_of(end, next));
        float4 s[8];
        uint p[8][2];
        if (item == 0)
            OPEN_TILE(next);
        UNROLL for (int j = 0; j < 8; j++) {
            s[j] = tensor_zero();
            p[j][0] = p[j][1] = 0u;
        }

        UNROLL for (int h = 0; h < STAGES; h++) {
            if (h + 1 < STAGES)
                attend_look_keys(&TILE_OF(tile)->keys, h + 1, ahead);
            else
                attend_look_values(&TILE_OF(tile)->values, 0, ahead);
            if (used)
                tensor_score(own_queries, stage, lane, s + h * BLOCKS);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (h + 1 < STAGES)
                attend_put_keys(&TILE_OF(tile)->keys, h + 1, ahead, stage);
            else
                attend_put_values(&TILE_OF(tile)->values, 0, ahead, stage);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (used)
            tensor_weights_of(&shape, bias, tile, own, &rows, s, p);
        UNROLL for (int h = 0; h < STAGES; h++) {
            if (h + 1 < STAGES)
                attend_look_values(&TILE_OF(tile)->values, h + 1, ahead);
            else
                attend_look_keys(&TILE_OF(next)->keys, 0, ahead);
            UNROLL for (int n = 0; used && h == 0 && n < OWN; n++)
                acc[n] = tensor_scaled(acc[n], rows.alpha[own], rows.alpha[own + 8]);
            UNROLL for (int b = 0; used && b < BLOCKS; b += 4) {
                const uint4 first = tensor_rows_of(p, h * BLOCKS + b);
                const uint4 second = tensor_rows_of(p, h * BLOCKS + b + 2);
                __local const uint4 *from = stage + (b / 4 * COLUMNS + share * OWN) * 32 + lane;
                if (alike)
                    tensor_weigh(first, second, from, acc);
                else
                    tensor_weigh_some(&rows, own, tile,
                                      tile + h * STAGED + b * 8 + lane % 4 * 2, first, second, from,
                                      acc);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            if (h + 1 < STAGES)
                attend_put_values(&TILE_OF(tile)->values, h + 1, ahead, stage);
            else
                attend_put_keys(&TILE_OF(next)->keys, 0, ahead, stage);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (next % GQAC_KEY_SPLIT != 0 && next < end)
            continue;
        tensor_end_split(&shape, unit, kv_head, own, split, acc, column, &rows, parts, y);
        UNROLL for (int n = 0; n < OWN; n++)
            acc[n] = tensor_zero();
    }
    if (slot < 0)
        tensor_close(&shape, &rows, own, count, sink, column, y);
}
