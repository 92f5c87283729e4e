/* Softmax, ArgMax and TopK along one axis: rows of n elements that are `inner` elements apart; row r
 * begins at r / inner * n * inner + r % inner. A group has one row; the grid is the rows. Definitions:
 * ops/softmax.c, ops/arg_shared.c, ops/top_k.c, ops/order_shared.c. */

static inline size_t order_first(size_t row, int n, int inner) {
    return row / (size_t)inner * (size_t)n * (size_t)inner + row % (size_t)inner;
}

/* y = exp(x - max) / sum. The exponentials are passed through local memory to GQAC_LANES items,
 * each of which adds those of its lane. */
__kernel GROUP(ORDER_ITEMS) void softmax_rows(__global const float *x, __global float *y, int n,
                                                 int inner) {
    SHARED float part[ORDER_ITEMS], lanes[GQAC_LANES];
    const int item = (int)get_local_id(0);
    const size_t first = order_first(get_group_id(0), n, inner), step = (size_t)inner;
    float most = -gqn_as_f32(GQN_INF_BITS), lane = 0.0f;
    for (int i = item; i < n; i += ORDER_ITEMS)
        most = larger(most, x[first + (size_t)i * step]);
    part[item] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < ORDER_ITEMS; i++)
        most = larger(most, part[i]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int begin = 0; begin < n; begin += ORDER_ITEMS) {
        const int i = begin + item;
        if (i < n) {
            part[item] = gqn_expf(x[first + (size_t)i * step] - most);
            y[first + (size_t)i * step] = part[item];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int t = item; item < GQAC_LANES && t < ORDER_ITEMS && begin + t < n; t += GQAC_LANES)
            lane += part[t];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (item < GQAC_LANES)
        lanes[item] = lane;
    barrier(CLK_LOCAL_MEM_FENCE);
    const float sum = fold_lanes(lanes);
    for (int i = item; i < n; i += ORDER_ITEMS) /* each item reads the elements that it wrote */
        y[first + (size_t)i * step] = one_nan(gqn_div(y[first + (size_t)i * step], sum));
}

/* An integer that orders like x, or, with `least`, like -x; NaN is first or last. */
static inline int order_key(float x, int least, int nan_first) {
    const uint bits = gqn_as_u32(x);
    const int magnitude = (int)(bits & 0x7fffffffu);
    const int sign = ((bits >> 31) != 0u) != (least != 0) ? -1 : 0;
    return magnitude > (int)GQN_INF_BITS ? (nan_first ? 0x7fffffff : -0x7fffffff - 1)
                                         : (magnitude ^ sign) - sign;
}

/* True if the key at `place` comes before the best one, or equals it and has the lower place (with
 * `last`, the higher one). A place of -1 means none. */
static inline bool is_better(int key, int place, int best, int best_place, int last) {
    return place >= 0 && (best_place < 0 || key > best ||
                          (key == best && (place > best_place) == (last != 0)));
}

/* Returns the best place of all items of a group to each of them. */
GQN_FN int best_of_items(__local int *keys, __local int *places, int key, int place, int last) {
    const int item = (int)get_local_id(0);
    keys[item] = key;
    places[item] = place;
    for (int half_n = ORDER_ITEMS / 2; half_n > 0; half_n /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < half_n && is_better(keys[item + half_n], places[item + half_n], key, place, last)) {
            keys[item] = key = keys[item + half_n];
            places[item] = place = places[item + half_n];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return places[0];
}

/* y[row]: the index of the greatest element; of equal ones the first or the last. */
__kernel GROUP(ORDER_ITEMS) void arg_rows(__global const float *x, __global long *y, int n,
                                             int inner, int least, int last) {
    SHARED int keys[ORDER_ITEMS], places[ORDER_ITEMS];
    const int item = (int)get_local_id(0);
    const size_t first = order_first(get_group_id(0), n, inner);
    int best = 0, place = -1;
    for (int i = item; i < n; i += ORDER_ITEMS) {
        const int key = order_key(x[first + (size_t)i * (size_t)inner], least, 1);
        if (is_better(key, i, best, place, last)) {
            best = key;
            place = i;
        }
    }
    place = best_of_items(keys, places, best, place, last);
    if (item == 0)
        y[get_group_id(0)] = (long)place;
}

typedef struct top_shape {
    int n, inner, k, least;
} top_shape;

/* Parts of a row of n logits, each of which a group searches first; an item reads ORDER_FOURS times
 * four logits. */
#define ORDER_FOURS    (ORDER_PART / ORDER_ITEMS / 4)
#define ORDER_PARTS(n) (((n) + ORDER_PART - 1) / ORDER_PART)

/* Stores a candidate id of a row: its logit, then the id. */
static inline void put_id(__global uchar *y, long begin, size_t i, float logit, int id) {
    __global uint *pair = (__global uint *)(y + begin) + 2 * i;
    pair[0] = gqn_as_u32(logit);
    pair[1] = (uint)id;
}

/* best_of_parts and best_id find the greatest logit of each row of s.n logits; of equal ones the
 * first; NaN is less than all others. First each part of ORDER_PART logits is searched: parts
 * [rows][parts of a row] of two numbers, a key and its place. The grid is [parts of a row,
 * rows]. */
__kernel GROUP(ORDER_ITEMS) void best_of_parts(__global const uchar *x, __global int *parts,
                                               top_shape s, int type) {
    SHARED int keys[ORDER_ITEMS], places[ORDER_ITEMS];
    const int item = (int)get_local_id(0), n_parts = ORDER_PARTS(s.n);
    const int part = (int)get_group_id(0);
    const size_t row = get_group_id(1);
    uint4 bits[ORDER_FOURS];
    int best = 0, place = -1;
    CUDA_UNROLL for (int j = 0; j < ORDER_FOURS; j++) {
        const int at = part * ORDER_PART + 4 * (j * ORDER_ITEMS + item);
        bits[j] = four_at(x, type, row * (size_t)s.n + (size_t)at, fours_left((uint)at, s.n),
                          s.n % 4 == 0);
    }
    CUDA_UNROLL for (int j = 0; j < ORDER_FOURS; j++) {
        const int at = part * ORDER_PART + 4 * (j * ORDER_ITEMS + item);
        float v[4];
        widen_four(bits[j], type, v);
        CUDA_UNROLL for (int e = 0; e < 4; e++) {
            const int key = order_key(v[e], 0, 0);
            if (at + e < s.n && (place < 0 || key > best)) {
                best = key;
                place = at + e;
            }
        }
    }
#ifdef CONTROL_GPU_LAST_OF_EQUAL /* negative control: of equal logits the last one is chosen */
    place = best_of_items(keys, places, best, place, 1);
#else
    place = best_of_items(keys, places, best, place, 0);
#endif
    if (item != 0)
        return;
    parts += 2 * (row * (size_t)n_parts + (size_t)part);
    parts[0] = keys[0];
    parts[1] = place;
}

/* The greatest logit of all parts of a row. */
__kernel GROUP(ORDER_ITEMS) void best_id(__global const uchar *x, __global const int *parts,
                                         __global uchar *y, long begin, top_shape s, int type) {
    SHARED int keys[ORDER_ITEMS], places[ORDER_ITEMS];
    const int item = (int)get_local_id(0), n_parts = ORDER_PARTS(s.n);
    const size_t row = get_group_id(0);
    int best = 0, place = -1;
    parts += 2 * row * (size_t)n_parts;
    for (int i = item; i < n_parts; i += ORDER_ITEMS)
        if (is_better(parts[2 * i], parts[2 * i + 1], best, place, 0)) {
            best = parts[2 * i];
            place = parts[2 * i + 1];
        }
    place = best_of_items(keys, places, best, place, 0);
    if (item == 0)
        put_id(y, begin, row, float_at(x, type, row * (size_t)s.n + (size_t)place), place);
}

/* The sum of values[item] and of the values of all later items. */
GQN_FN int sum_of_later(__local int *values, int item) {
    for (int apart = 1; apart < ORDER_ITEMS; apart *= 2) {
        const int more = item + apart < ORDER_ITEMS ? values[item + apart] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        values[item] += more;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return values[item];
}

/* The k <= ORDER_TOP greatest of n elements, in descending order; of equal ones the first comes
 * first. The k-th key is found byte by byte, by counting; then the greater elements and the first
 * of those that equal it are collected and ranked. OPEN declares n, k and what KEY and PUT use; PUT
 * stores the element of a rank. */
#define TOP_AHEAD 8 /* elements that an item loads before it uses them */
#define TOP_ROWS(NAME, PARAMETERS, OPEN, LOAD, KEY, PUT)                                           \
    __kernel GROUP(ORDER_ITEMS) void NAME PARAMETERS {                                             \
        SHARED int bins[ORDER_ITEMS], counts[ORDER_ITEMS], keys[ORDER_TOP], places[ORDER_TOP];     \
        SHARED int chosen, left, taken;                                                            \
        const int item = (int)get_local_id(0);                                                     \
        OPEN                                                                                       \
        uint prefix = 0u, mask = 0u;                                                               \
        if (item == 0) {                                                                           \
            left = k;                                                                              \
            taken = 0;                                                                             \
        }                                                                                          \
        ROLLED for (int shift = 24; shift >= 0; shift -= 8) {                                      \
            bins[item] = 0;                                                                        \
            barrier(CLK_LOCAL_MEM_FENCE);                                                          \
            ROLLED for (int begin = item; begin < n; begin += TOP_AHEAD * ORDER_ITEMS) {           \
                uint bits[TOP_AHEAD];                                                              \
                CUDA_UNROLL for (int j = 0; j < TOP_AHEAD; j++) {                                  \
                    const int i = begin + j * ORDER_ITEMS;                                         \
                    bits[j] = i < n ? LOAD(i) : 0u;                                                \
                }                                                                                  \
                CUDA_UNROLL for (int j = 0; j < TOP_AHEAD; j++) {                                  \
                    const uint key = (uint)(KEY(bits[j])) ^ 0x80000000u;                           \
                    if (begin + j * ORDER_ITEMS < n && (key & mask) == prefix)                     \
                        atomic_inc(&bins[key >> shift & 255u]);                                    \
                }                                                                                  \
            }                                                                                      \
            barrier(CLK_LOCAL_MEM_FENCE);                                                          \
            const int wanted = left, own = bins[item];                                             \
            const int reached = sum_of_later(bins, item);                                          \
            if (reached >= wanted && reached - own < wanted) {                                     \
                chosen = item;                                                                     \
                left = wanted - (reached - own);                                                   \
            }                                                                                      \
            barrier(CLK_LOCAL_MEM_FENCE);                                                          \
            prefix |= (uint)chosen << shift;                                                       \
            mask |= 255u << shift;                                                                 \
        }                                                                                          \
        /* `left` elements equal to the k-th key are also taken; each item searches a run */       \
        const int per = (n + ORDER_ITEMS - 1) / ORDER_ITEMS;                                       \
        const int end = least_of((item + 1) * per, n), reverse = ORDER_ITEMS - 1 - item;           \
        int equal = 0;                                                                             \
        for (int i = item * per; i < end; i++)                                                     \
            equal += ((uint)(KEY(LOAD(i))) ^ 0x80000000u) == prefix;                               \
        counts[reverse] = equal;                                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        int before = sum_of_later(counts, reverse) - equal;                                        \
        for (int i = item * per; i < end; i++) {                                                   \
            const uint key = (uint)(KEY(LOAD(i))) ^ 0x80000000u;                                   \
            if (key < prefix || (key == prefix && before++ >= left))                               \
                continue;                                                                          \
            const int at = atomic_inc(&taken);                                                     \
            keys[at] = (int)(key ^ 0x80000000u);                                                   \
            places[at] = i;                                                                        \
        }                                                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        for (int i = item; i < k; i += ORDER_ITEMS) {                                              \
            int rank = 0;                                                                          \
            for (int j = 0; j < k; j++)                                                            \
                rank += keys[j] > keys[i] || (keys[j] == keys[i] && places[j] < places[i]);        \
            PUT(rank, places[i], keys[i]);                                                         \
        }                                                                                          \
    }
#if ORDER_ITEMS != 256
#error "an item has a value of a byte"
#endif

#define TOP_PARAMETERS(ELEMENT)                                                                    \
    (__global const ELEMENT *x, __global ELEMENT *values, __global long *indices, top_shape s)
#define TOP_OPEN                                                                                   \
    const int n = s.n, k = s.k;                                                                    \
    const size_t row = get_group_id(0), step = (size_t)s.inner;                                    \
    const size_t first = order_first(row, n, s.inner), to = order_first(row, k, s.inner);
#define TOP_AT(i)        x[first + (size_t)(i) * step]
#define TOP_KEY(VALUE)   order_key(VALUE, s.least, !s.least)
#define TOP_KEY_32(bits) TOP_KEY(gqn_as_f32(bits))
#define TOP_KEY_F16(bits) TOP_KEY(gqn_f16_to_f32((ushort)(bits)))
#define TOP_KEY_BF16(bits) TOP_KEY(gqn_bf16_to_f32((ushort)(bits)))
#define TOP_PUT(rank, place, key)                                                                  \
    values[to + (size_t)(rank) * step] = TOP_AT(place);                                            \
    indices[to + (size_t)(rank) * step] = (long)(place)
TOP_ROWS(top_rows, TOP_PARAMETERS(uint), TOP_OPEN, TOP_AT, TOP_KEY_32, TOP_PUT)
TOP_ROWS(top_rows_f16, TOP_PARAMETERS(ushort), TOP_OPEN, (uint)TOP_AT, TOP_KEY_F16, TOP_PUT)
TOP_ROWS(top_rows_bf16, TOP_PARAMETERS(ushort), TOP_OPEN, (uint)TOP_AT, TOP_KEY_BF16, TOP_PUT)

/* The same for logits, in two kernels as with best_id: top_of_parts stores the greatest logits of
 * each part, as keys and ids in their order, in parts [rows][parts of a row][s.k] (the last part of
 * a row may have fewer); top_ids chooses from these. */
#define PARTS_OPEN                                                                                 \
    const int begin_id = (int)get_group_id(0) * ORDER_PART;                                        \
    const int n = least_of(s.n - begin_id, ORDER_PART), k = least_of(s.k, n);                      \
    const size_t row = get_group_id(1), first = row * (size_t)s.n + (size_t)begin_id;              \
    parts += 2 * (row * (size_t)ORDER_PARTS(s.n) + get_group_id(0)) * (size_t)s.k;
#define LOGIT_BITS(i)  element_bits(x, type, first + (size_t)(i))
#define LOGIT_KEY(bits) order_key(type == F32 ? gqn_as_f32(bits) : wide_value(bits, type), 0, 0)
#define PUT_PART(rank, place, key)                                                                 \
    parts[2 * (rank)] = key;                                                                       \
    parts[2 * (rank) + 1] = begin_id + (place)
TOP_ROWS(top_of_parts, (__global const uchar *x, __global int *parts, top_shape s, int type),
         PARTS_OPEN, LOGIT_BITS, LOGIT_KEY, PUT_PART)

#define IDS_OPEN                                                                                   \
    const int n_parts = ORDER_PARTS(s.n), k = s.k;                                                 \
    const int n = (n_parts - 1) * k + least_of(k, s.n - (n_parts - 1) * ORDER_PART);               \
    const size_t row = get_group_id(0);                                                            \
    parts += 2 * row * (size_t)n_parts * (size_t)k;
#define PART_KEY(i)     (uint)parts[2 * (size_t)(i)]
#define SAME_KEY(bits)  (int)(bits)
#define PUT_ID(rank, place, key)                                                                   \
    const int id = parts[2 * (size_t)(place) + 1];                                                 \
    put_id(y, begin_byte, row * (size_t)k + (size_t)(rank),                                        \
           float_at(x, type, row * (size_t)s.n + (size_t)id), id)
TOP_ROWS(top_ids, (__global const uchar *x, __global const int *parts, __global uchar *y,
                   long begin_byte, top_shape s, int type),
         IDS_OPEN, PART_KEY, SAME_KEY, PUT_ID)
