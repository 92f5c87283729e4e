/* y = softmax(scale * q k^T ...) v over the visible keys of each row, for tiles of few rows, as in
 * decode. The grid is [Hkv, units].
 *
 * A group computes a split of keys in three phases. Scores: each item computes the scores of one
 * key, with a chain for each row. Weights: each item computes one lane of one row, four keys of
 * each tile. Sums of values: each item computes one column, or every COLUMN_ITEMS-th column, of
 * some rows, and adds the keys in their order.
 *
 * Keys and values are copied, without conversion, to a ring of stages in local memory; while one
 * stage is used, the next ones are filled. A stage of keys is a chunk of 64 bytes of each of ROUND
 * rows, a quarter for each team of items; a stage of values consists of whole rows. Scores of keys
 * that are not visible to a row are discarded, and the values of these keys are not added. */

#define FEW          ATTEND_FEW_ROWS
#define ROUND        ATTEND_FEW_ITEMS /* keys whose scores are computed at the same time */
#define TEAM         32               /* items of a team: a warp */
#define CHUNK_PIECES 4                /* pieces of 16 bytes */
#define STAGE        (ROUND * CHUNK_PIECES)
#define STAGES       (ATTEND_SIZE > 128 ? 2 : 3)
#define TILES        (GQAC_KEY_SPLIT / GQAC_KEY_TILE)
#define Q_STRIDE     ((ATTEND_SIZE + 3) / 4 * 4)
#define LANE_STRIDE  (GQAC_LANES + 4) /* 4: so that lanes are in different banks of memory */
#define LANES        (FEW * TILES * LANE_STRIDE)
#define SHARE        (FEW * Q_STRIDE > LANES ? FEW * Q_STRIDE : LANES)

/* Sums: SLOTS items share a column, and each computes SLOT_ROWS rows. The weights of a key are
 * stored in the order of the slots: place i holds row ROW_OF(i). */
#if ATTEND_SIZE <= 32
#define SLOTS 4
#elif ATTEND_SIZE <= 64
#define SLOTS 2
#else
#define SLOTS 1
#endif
#define SLOT_ROWS    (FEW / SLOTS)
#define COLUMN_ITEMS (ATTEND_FEW_ITEMS / SLOTS)
#define COLUMNS      ((ATTEND_SIZE + COLUMN_ITEMS - 1) / COLUMN_ITEMS)
#define ROW_OF(i)    ((i) % SLOT_ROWS * SLOTS + (i) / SLOT_ROWS)
#define PLACE_OF(r)  ((r) % SLOTS * SLOT_ROWS + (r) / SLOTS)

/* The pieces of a chunk are unrolled, unless each has many codes. */
#if defined(ATTEND_TYPE) && ATTEND_TYPE <= BF16
#define EACH_PIECE CUDA_UNROLL
#else
#define EACH_PIECE ROLLED
#endif
#if defined(ATTEND_TYPE)
#define EACH_FOUR CUDA_UNROLL
#else
#define EACH_FOUR ROLLED
#endif

/* What a group stores about its rows. */
typedef struct few_group {
    long q_at[FEW], bias_at[FEW], y_at[FEW]; /* the indices of their first elements */
    int lo[FEW], hi[FEW], head[FEW];
    int any[FEW];               /* 0: no key of the split is visible to the row */
    float m[FEW], l[FEW];       /* maximum and sum */
    float factor[FEW], by[FEW]; /* y = sum * factor / by */
    /* indexed by tile and place */
    float tile_m[TILES * FEW], tile_l[TILES * FEW], alpha[TILES * FEW];
    attend_tile tiles[TILES];
    float v_scales[STAGES * GQAC_KEY_TILE];
} few_group;

/* Copies a piece of a row; the last piece may be shorter. */
static inline void few_copy(__local uint4 *to, __global const uchar *row, int piece,
                            size_t row_size) {
    const size_t from = (size_t)piece * 16;
    if (row_size % 16 == 0) {
        copy_16(to, row + from);
        return;
    }
    ROLLED for (size_t i = from; i < from + 16 && i < row_size; i++)
        ((__local uchar *)to)[i - from] = row[i];
}

/* Where piece `piece` of key `key` of a team is stored in its chunk: neighbours are in different
 * banks. */
static inline int place_of(int key, int piece) {
    return key * CHUNK_PIECES + (piece ^ (key >> 1 & (CHUNK_PIECES - 1)));
}

/* Adds a chunk that begins at element d to the scores of the first `rows` rows. Codes have the one
 * scale `one`, or (step 1) a scale for each element. */
static inline void few_score(int rows, __local const uint4 *chunk, int key, int pieces,
                             __local const float *q, int d, int size, int type, float one,
                             __global const float *scales, int step, float s[FEW]) {
    const int of_16 = type == F32 ? 4 : type <= BF16 ? 8 : type == I8 ? 16 : 32;
    EACH_PIECE for (int piece = 0; piece < CHUNK_PIECES; piece++) {
        if (piece >= pieces)
            continue;
        const uint4 all = chunk[place_of(key, piece)];
        EACH_FOUR for (int at = 0; at < of_16; at += 4) {
            const int own = d + piece * of_16 + at, n = size - own;
            if (n <= 0)
                continue;
            float4 k = plain_four(all, at, type);
            if (type >= I8 && step == 0)
                k = FLOAT4(k.x * one, k.y * one, k.z * one, k.w * one);
            else if (type >= I8)
                k = FLOAT4(k.x * scales[own], n > 1 ? k.y * scales[own + 1] : 0.0f,
                           n > 2 ? k.z * scales[own + 2] : 0.0f,
                           n > 3 ? k.w * scales[own + 3] : 0.0f);
            CUDA_UNROLL for (int r = 0; r < rows; r++) {
                const float4 x = FOUR(q + r * Q_STRIDE + own);
                s[r] = gqn_fma(x.x, k.x, s[r]);
                if (n > 1)
                    s[r] = gqn_fma(x.y, k.y, s[r]);
                if (n > 2)
                    s[r] = gqn_fma(x.z, k.z, s[r]);
                if (n > 3)
                    s[r] = gqn_fma(x.w, k.w, s[r]);
            }
        }
    }
}

/* Computes the scores of a key from its plain sums; p: its weights. */
static inline void few_finish(int count, __local const few_group *group, __global const float *bias,
                              const attend_shape *shape, int key, const float s[FEW],
                              __local float *p) {
    const float scale = shape->scale;
    CUDA_UNROLL for (int i = 0; i < FEW; i += 4)
        *(__local float4 *)(p + i) = FLOAT4(scale * s[ROW_OF(i)], scale * s[ROW_OF(i + 1)],
                                            scale * s[ROW_OF(i + 2)], scale * s[ROW_OF(i + 3)]);
    if (shape->softcap <= 0.0f && shape->bias_columns == 0)
        return;
    ROLLED for (int r = 0; r < count; r++) {
        float x = p[PLACE_OF(r)];
        if (shape->softcap > 0.0f)
            x = shape->softcap * gqn_tanhf(gqn_div(x, shape->softcap));
        if (shape->bias_columns > 0 && key >= group->lo[r] && key < group->hi[r])
            x = x + bias[group->bias_at[r] + key];
        p[PLACE_OF(r)] = x;
    }
}

/* The range of visible keys of row r within a tile. */
static inline int few_from(__local const few_group *group, int r, int tile) {
    return most_of(group->lo[r] - tile, 0);
}
static inline int few_to(__local const few_group *group, int r, int tile) {
    return least_of(group->hi[r] - tile, GQAC_KEY_TILE);
}

/* The greatest visible score of one lane of a tile; p points to place 0 of the first key. */
static inline float few_most(int lane, int from, int to, __local const float *p) {
    float m = -gqn_as_f32(GQN_INF_BITS);
    CUDA_UNROLL for (int i = 0; i < GQAC_KEY_TILE; i += GQAC_LANES)
        if (i + lane >= from && i + lane < to)
            m = larger(m, p[(i + lane) * FEW]);
    return m;
}

/* Turns the scores of a lane into weights, and returns their sum. */
static inline float few_lane(int lane, int from, int to, float mu, __local float *p) {
    float sum = 0.0f;
    CUDA_UNROLL for (int i = 0; i < GQAC_KEY_TILE; i += GQAC_LANES) {
        const float x = gqn_expf(p[(i + lane) * FEW] - mu);
        if (i + lane >= from && i + lane < to) {
            p[(i + lane) * FEW] = x;
            sum += x;
        }
    }
    return sum;
}

/* Computes the factor and the sum of tile j for place i; `lanes`: the sums of its lanes. */
static inline void few_tile(__local few_group *group, int i, int j, int j0,
                            __local const float *lanes) {
    float before = -gqn_as_f32(GQN_INF_BITS);
    for (int at = j0; at < j; at++)
        before = larger(before, group->tile_m[at * FEW + i]);
    const float now = larger(before, group->tile_m[j * FEW + i]);
    group->alpha[j * FEW + i] = now > before ? gqn_expf(before - centre_of(now)) : 1.0f;
    group->tile_l[j * FEW + i] = fold_weights(lanes);
}

/* Computes maximum and sum of row r, which is at place i. */
static inline void few_end(__local few_group *group, int r, int i, int split, int j0, int j1) {
    float m = -gqn_as_f32(GQN_INF_BITS), l = 0.0f;
    for (int at = j0; at < j1; at++) {
        m = larger(m, group->tile_m[at * FEW + i]);
        l = gqn_fma(l, group->alpha[at * FEW + i], group->tile_l[at * FEW + i]);
    }
    group->m[r] = m;
    group->l[r] = l;
    group->any[r] = group->lo[r] < group->hi[r] && group->lo[r] < split + GQAC_KEY_SPLIT &&
                    group->hi[r] > split;
}

/* Element d of a staged row. */
static inline float few_value(__local const uchar *row, int d, int type, float scale) {
    if (type == F32)
        return ((__local const float *)row)[d];
    if (type <= BF16) {
        const ushort x = ((__local const ushort *)row)[d];
        return type == F16 ? half_to_float(x) : gqn_bf16_to_f32(x);
    }
    return (float)(type == I8 ? (int)(char)row[d] : gqn_uint4_of(row[d / 2], (uint)d) - 8) * scale;
}

/* Adds the values [a, b) of a stage to the sums of the first `rows` rows of an item; all of them
 * are visible to these rows. v: the first staged row, of `step` bytes; p: the weights of its key
 * for the slot. Codes have the scales of their columns, or (scale_row not 0) those of their
 * rows. */
static inline void few_weigh(int rows, __local const uchar *v, int step, __local const float *p,
                             int a, int b, int column, int size, int type,
                             const float scale[COLUMNS], int scale_row, __local const float *by_row,
                             float acc[SLOT_ROWS][COLUMNS]) {
    UNROLL_8 for (int t = a; t < b; t++)
        CUDA_UNROLL for (int r = 0; r < rows; r += 4) {
#if SLOT_ROWS % 4 == 0
            const float4 w = FOUR(p + t * FEW + r);
#else
            const float4 w = FLOAT4(p[t * FEW], p[t * FEW + 1], 0.0f, 0.0f);
#endif
            CUDA_UNROLL for (int c = 0; c < COLUMNS; c++) {
                const int d = column + c * COLUMN_ITEMS;
                const float x = d < size ? few_value(v + t * step, d, type,
                                                     type >= I8 && scale_row ? by_row[t] : scale[c])
                                         : 0.0f;
                acc[r][c] = gqn_fma(w.x, x, acc[r][c]);
                if (r + 1 < rows)
                    acc[r + 1][c] = gqn_fma(w.y, x, acc[r + 1][c]);
                if (r + 2 < rows)
                    acc[r + 2][c] = gqn_fma(w.z, x, acc[r + 2][c]);
                if (r + 3 < rows)
                    acc[r + 3][c] = gqn_fma(w.w, x, acc[r + 3][c]);
            }
        }
}

/* The same for rows to which not all of these values are visible; place 0 of the slot is row
 * `row`. */
static inline void few_weigh_some(__local const few_group *group, __local const uchar *v, int step,
                                  __local const float *p, int a, int b, int at, int row, int column,
                                  int size, int type, const float scale[COLUMNS], int scale_row,
                                  __local const float *by_row, float acc[SLOT_ROWS][COLUMNS]) {
    ROLLED for (int t = a; t < b; t++)
        CUDA_UNROLL for (int c = 0; c < COLUMNS; c++) {
            const int d = column + c * COLUMN_ITEMS;
            if (d >= size)
                continue;
            const float x =
                few_value(v + t * step, d, type, type >= I8 && scale_row ? by_row[t] : scale[c]);
            CUDA_UNROLL for (int r = 0; r < SLOT_ROWS; r++)
                if (at + t >= group->lo[row + r * SLOTS] && at + t < group->hi[row + r * SLOTS])
                    acc[r][c] = gqn_fma(p[t * FEW + r], x, acc[r][c]);
        }
}

/* The keys or the values of a split: visible keys are [first, last). */
typedef struct few_split {
    int begin, first, last;
    size_t bytes, step; /* bytes of a row, and bytes between keys */
    int pieces;
} few_split;

/* Copies chunk `chunk` of the rows of a team in round `round` to the team's part of a stage. */
static inline void few_send_keys(__local uint4 *stage, __local const few_group *group,
                                 const few_split *split, int round, int chunk, int item) {
    const int base = round * ROUND + item / TEAM * TEAM, lane = item % TEAM;
    stage += item / TEAM * TEAM * CHUNK_PIECES;
    if (split->begin + base < split->last) {
        __global const uchar *from =
            group->tiles[base / GQAC_KEY_TILE].k + (size_t)(base % GQAC_KEY_TILE) * split->step;
        CUDA_UNROLL for (int i = 0; i < CHUNK_PIECES; i++) {
            const int own = i * TEAM + lane, key = own / CHUNK_PIECES, piece = own % CHUNK_PIECES;
            const int absolute = split->begin + base + key, at = chunk * CHUNK_PIECES + piece;
            if (absolute >= split->first && absolute < split->last && at < split->pieces)
                few_copy(stage + place_of(key, piece), from + (size_t)key * split->step, at,
                         split->bytes);
        }
    }
}

/* Copies the values of the keys [key0, key0 + n) of the split, and their scales, to a stage. */
static inline void few_send_values(__local uint4 *stage, __local float *scales,
                                   __local const few_group *group, const few_split *split, int key0,
                                   int n, int scale_row, int item) {
    CUDA_UNROLL for (int i = 0; i < STAGE / ATTEND_FEW_ITEMS; i++) {
        const int at = i * ATTEND_FEW_ITEMS + item, own = at / split->pieces, key = key0 + own;
        if (own < n && split->begin + key >= split->first && split->begin + key < split->last)
            few_copy(stage + at,
                     group->tiles[key / GQAC_KEY_TILE].v +
                         (size_t)(key % GQAC_KEY_TILE) * split->step,
                     at % split->pieces, split->bytes);
    }
    if (scale_row && item < n && split->begin + key0 + item >= split->first &&
        split->begin + key0 + item < split->last)
        copy_4(scales + item, group->tiles[key0 / GQAC_KEY_TILE].v_scale +
                                  (key0 % GQAC_KEY_TILE + item) * scale_row);
}

__kernel GROUP(ATTEND_FEW_ITEMS) void attend_few(ATTEND_ARGUMENTS) {
    SHARED uint4 ring[STAGES * STAGE];
    SHARED float4 weight_fours[GQAC_KEY_SPLIT * FEW / 4];
    SHARED float4 shared_fours[SHARE / 4];
    SHARED few_group rows;
    __local float *p = (__local float *)weight_fours;
    __local float *shared = (__local float *)shared_fours; /* queries; later the lanes of rows */
    __global const uchar *slabs[SLABS] = {s0, s1, s2,  s3,  s4,  s5,  s6,  s7,
                                          s8, s9, s10, s11, s12, s13, s14, s15};
    const int item = (int)get_local_id(0), kv_head = (int)get_group_id(0);
    const int slot = item / COLUMN_ITEMS, column = item % COLUMN_ITEMS;
    /* A unit: first query, first row of the tile, number of rows, sequence, keys [first, last) of a
     * split, and its slot, or -1 if no other keys are visible to its rows. */
    __global const int *unit = lists + shape.units + 7 * (long)get_group_id(1);
    const int count = unit[2], sequence = unit[3], first = unit[4], last = unit[5], part = unit[6];
    const int k_step_scale = TYPE >= I8 ? blocks.scale_step : 0;
    const int scale_row = TYPE >= I8 && blocks.k_scales_at ? shape.kv_heads : 0;
    const size_t k_bytes = row_bytes(KEY_SIZE, TYPE), v_bytes = row_bytes(VALUE_SIZE, TYPE);
    const size_t between =
        blocks.per ? (size_t)shape.kv_heads : 1; /* rows between keys */
    const int k_pieces = (int)((k_bytes + 15) / 16), v_pieces = (int)((v_bytes + 15) / 16);
    const int chunks = (k_pieces + CHUNK_PIECES - 1) / CHUNK_PIECES;
    const int chunk_size = CHUNK_PIECES * (TYPE == F32    ? 4
                                           : TYPE <= BF16 ? 8
                                           : TYPE == I8   ? 16
                                                          : 32); /* elements */
    const int v_most = STAGE / v_pieces;
    const int v_keys = v_most >= 64 ? 64 : v_most >= 32 ? 32 : v_most >= 16 ? 16 : 8;
    const bool halved = (count + SLOTS - 1) / SLOTS <= (SLOT_ROWS + 1) / 2;
    k_scale += k_step_scale * kv_head * KEY_SIZE;
    v_scale += k_step_scale * kv_head * VALUE_SIZE;

    if (item < FEW) {
        const attend_row row = attend_row_of(&shape, unit, item, kv_head, KEY_SIZE, VALUE_SIZE);
        const bool is = item < count;
        rows.head[item] = row.head;
        rows.q_at[item] = row.q_at;
        rows.bias_at[item] = row.bias_at;
        rows.y_at[item] = row.y_at;
        rows.lo[item] = is ? lists[row.query] : 0;
        rows.hi[item] = is ? least_of(lists[shape.rows + row.query], shape.keys) : 0;
    }
    float v_scales[COLUMNS];
    CUDA_UNROLL for (int c = 0; c < COLUMNS; c++) {
        const int d = column + c * COLUMN_ITEMS;
        v_scales[c] = TYPE >= I8 && !scale_row && d < VALUE_SIZE ? v_scale[d * k_step_scale] : 1.0f;
    }

    const int split = first / GQAC_KEY_SPLIT * GQAC_KEY_SPLIT;
    const int j0 = (first - split) / GQAC_KEY_TILE;
    const int j1 = (last - split + GQAC_KEY_TILE - 1) / GQAC_KEY_TILE;
    if (item >= j0 && item < j1) {
        const int tile = split + item * GQAC_KEY_TILE;
        rows.tiles[item] = attend_tile_at(&shape, &blocks, slabs, lists, k_rows, v_rows, sequence,
                                          kv_head, tile, k_bytes, v_bytes);
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    /* scores */
    const few_split k_rows_of = {split, first, last, k_bytes, between * k_bytes, k_pieces};
    const int round0 = (first - split) / ROUND;
    const int n_chunks = ((last - split + ROUND - 1) / ROUND - round0) * chunks;
    for (int n = 0; n < COPIES_AHEAD(STAGES); n++) {
        if (n < n_chunks)
            few_send_keys(ring + n * STAGE, &rows, &k_rows_of, round0 + n / chunks, n % chunks,
                          item);
        copy_commit();
    }
    ROLLED for (int i = item; i < FEW * (Q_STRIDE / 4); i += ATTEND_FEW_ITEMS) {
        const int r = i / (Q_STRIDE / 4), d = i % (Q_STRIDE / 4) * 4;
        float4 x = FLOAT4(0.0f, 0.0f, 0.0f, 0.0f);
        if (r < count && d < KEY_SIZE)
            x = query_some(q, shape.q_type, (size_t)(rows.q_at[r] + d), KEY_SIZE - d,
                           KEY_SIZE % 4 == 0);
        *(__local float4 *)(shared + r * Q_STRIDE + d) = x;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float s[FEW];
    int n = 0; /* there is at least one key, so the loops run at least once */
    ROLLED do {
        const int next = n + COPIES_AHEAD(STAGES), chunk = n % chunks;
        const int key = (round0 + n / chunks) * ROUND + item;
        const bool some = split + key >= first && split + key < last;
        __local const uint4 *from = ring + n % STAGES * STAGE + item / TEAM * TEAM * CHUNK_PIECES;
        float one = 1.0f;
        copy_wait(STAGES - 2);
        TEAM_BARRIER;
        if (next < n_chunks)
            few_send_keys(ring + next % STAGES * STAGE, &rows, &k_rows_of, round0 + next / chunks,
                          next % chunks, item);
        copy_commit();
        COPIED(TEAM_BARRIER);
        if (TYPE >= I8 && some && k_step_scale == 0)
            one = scale_row
                      ? rows.tiles[key / GQAC_KEY_TILE].k_scale[key % GQAC_KEY_TILE * scale_row]
                      : k_scale[0];
        CUDA_UNROLL for (int r = 0; r < FEW; r++)
            s[r] = chunk == 0 ? 0.0f : s[r];
        if (some && LENGTHS && count <= FEW / 2)
            few_score(FEW / 2, from, item % TEAM, k_pieces - chunk * CHUNK_PIECES, shared,
                      chunk * chunk_size, KEY_SIZE, TYPE, one, k_scale, k_step_scale, s);
        else if (some)
            few_score(LENGTHS ? FEW : count, from, item % TEAM, k_pieces - chunk * CHUNK_PIECES,
                      shared, chunk * chunk_size, KEY_SIZE, TYPE, one, k_scale, k_step_scale, s);
        if (some && chunk == chunks - 1)
            few_finish(count, &rows, bias, &shape, split + key, s, p + key * FEW);
    } while (++n < n_chunks);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* weights, computed while the first values are copied */
    const few_split v_rows_of = {split, first, last, v_bytes, between * v_bytes, v_pieces};
    const int stage0 = (first - split) / v_keys;
    const int n_stages = (last - split + v_keys - 1) / v_keys - stage0;
    for (int n = 0; n < COPIES_AHEAD(STAGES); n++) {
        if (n < n_stages)
            few_send_values(ring + n * STAGE, rows.v_scales + n * GQAC_KEY_TILE, &rows, &v_rows_of,
                            (stage0 + n) * v_keys, v_keys, scale_row, item);
        copy_commit();
    }
    /* Each item computes one lane of a place, or combines the lanes of a tile. */
    const int place = item % FEW, row = ROW_OF(item % FEW), j = item / FEW;
    UNROLL_2 for (int at = j0; at < j1; at++)
        shared[(at * FEW + place) * LANE_STRIDE + j] = few_most(
            j, few_from(&rows, row, split + at * GQAC_KEY_TILE),
            few_to(&rows, row, split + at * GQAC_KEY_TILE), p + at * GQAC_KEY_TILE * FEW + place);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j >= j0 && j < j1) {
        float m = -gqn_as_f32(GQN_INF_BITS);
        CUDA_UNROLL for (int l = 0; l < GQAC_LANES; l++)
            m = larger(m, shared[item * LANE_STRIDE + l]);
        rows.tile_m[item] = m;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float m = -gqn_as_f32(GQN_INF_BITS);
    UNROLL_2 for (int at = j0; at < j1; at++) {
        m = larger(m, rows.tile_m[at * FEW + place]);
        shared[(at * FEW + place) * LANE_STRIDE + j] =
            few_lane(j, few_from(&rows, row, split + at * GQAC_KEY_TILE),
                     few_to(&rows, row, split + at * GQAC_KEY_TILE), centre_of(m),
                     p + at * GQAC_KEY_TILE * FEW + place);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (j >= j0 && j < j1)
        few_tile(&rows, place, j, j0, shared + item * LANE_STRIDE);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* sums of values */
    float acc[SLOT_ROWS][COLUMNS];
    CUDA_UNROLL for (int r = 0; r < SLOT_ROWS; r++)
        CUDA_UNROLL for (int c = 0; c < COLUMNS; c++)
            acc[r][c] = 0.0f;
    n = 0;
    ROLLED do {
        const int next = n + COPIES_AHEAD(STAGES), key0 = (stage0 + n) * v_keys;
        __local const uchar *v = (__local const uchar *)(ring + n % STAGES * STAGE);
        __local const float *by_row = rows.v_scales + n % STAGES * GQAC_KEY_TILE;
        __local const float *weights = p + key0 * FEW + slot * SLOT_ROWS;
        const int a = most_of(first - split - key0, 0);
        const int b = least_of(last - split - key0, v_keys);
        copy_wait(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (next < n_stages)
            few_send_values(ring + next % STAGES * STAGE,
                            rows.v_scales + next % STAGES * GQAC_KEY_TILE, &rows, &v_rows_of,
                            (stage0 + next) * v_keys, v_keys, scale_row, item);
        copy_commit();
        COPIED(barrier(CLK_LOCAL_MEM_FENCE));
        if (n == 0 && item < FEW)
            few_end(&rows, ROW_OF(item), item, split, j0, j1);
        if (key0 % GQAC_KEY_TILE == 0)
            CUDA_UNROLL for (int r = 0; r < SLOT_ROWS; r++) {
                const float alpha = rows.alpha[key0 / GQAC_KEY_TILE * FEW + slot * SLOT_ROWS + r];
                CUDA_UNROLL for (int c = 0; c < COLUMNS; c++)
                    acc[r][c] = acc[r][c] * alpha;
            }
        bool all = true;
        CUDA_UNROLL for (int r = 0; r < SLOT_ROWS; r++) {
            const int row = slot + r * SLOTS;
            all = all && (row >= count ||
                          (rows.lo[row] <= split + key0 + a && rows.hi[row] >= split + key0 + b));
        }
        if (!all)
            few_weigh_some(&rows, v, v_pieces * 16, weights, a, b, split + key0, slot, column,
                           VALUE_SIZE, TYPE, v_scales, scale_row, by_row, acc);
        else if (LENGTHS && halved)
            few_weigh((SLOT_ROWS + 1) / 2, v, v_pieces * 16, weights, a, b, column, VALUE_SIZE,
                      TYPE, v_scales, scale_row, by_row, acc);
        else
            few_weigh(LENGTHS ? SLOT_ROWS : (count - slot + SLOTS - 1) / SLOTS, v, v_pieces * 16,
                      weights, a, b, column, VALUE_SIZE, TYPE, v_scales, scale_row, by_row, acc);
    } while (++n < n_stages);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (part < 0 && item < count) {
        float factor, by;
        end_factors(rows.m[item], rows.l[item], shape.has_sink,
                    shape.has_sink ? sink[rows.head[item]] : 0.0f, &factor, &by);
        rows.factor[item] = factor;
        rows.by[item] = by;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    CUDA_UNROLL for (int r = 0; r < SLOT_ROWS; r++) {
        const int own = slot + r * SLOTS;
        if (own >= count || (part >= 0 && !rows.any[own]))
            continue;
        __global float *to = part < 0 ? y + rows.y_at[own]
                                      : parts + ((size_t)part + (size_t)(kv_head * count + own)) *
                                                    part_size(VALUE_SIZE);
        if (part >= 0 && column == 0) {
            to[0] = rows.m[own];
            to[1] = rows.l[own];
        }
        CUDA_UNROLL for (int c = 0; c < COLUMNS; c++) {
            const int d = column + c * COLUMN_ITEMS;
            if (d >= VALUE_SIZE)
                continue;
            if (part >= 0)
                to[PART_HEAD + d] = acc[r][c];
            else
                to[d] = rows.any[own] ? one_nan(gqn_div(acc[r][c] * rows.factor[own], rows.by[own]))
                                      : 0.0f;
        }
    }
}

#undef FEW
#undef ROUND
#undef TEAM
#undef CHUNK_PIECES
#undef STAGE
#undef STAGES
#undef TILES
#undef Q_STRIDE
#undef LANE_STRIDE
#undef LANES
#undef SHARE
#undef SLOTS
#undef SLOT_ROWS
#undef COLUMN_ITEMS
#undef COLUMNS
#undef ROW_OF
#undef PLACE_OF
#undef EACH_PIECE
#undef EACH_FOUR
