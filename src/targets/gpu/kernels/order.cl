/* Softmax, ArgMax and TopK along one axis: rows of n elements that are `inner` elements apart; row r
 * begins at r / inner * n * inner + r % inner. A group has one row; the grid is the rows. Definitions:
 * ops/softmax.c, ops/arg_shared.c, ops/top_k.c, ops/order_shared.c. */

static inline size_t order_first(size_t row, int n, int inner) {
    return row / (size_t)inner * (size_t)n * (size_t)inner + row % (size_t)inner;
}

/* y = exp(x - max) / sum. Exponentials go through local memory, from which GQAC_LANES items add
 * them, each in its lane. */
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
    for (int i = item; i < n; i += ORDER_ITEMS) /* each item has written these */
        y[first + (size_t)i * step] = one_nan(gqn_div(y[first + (size_t)i * step], sum));
}

/* An integer that orders as x, or, with `least`, as -x; NaN comes first or last. */
static inline int order_key(float x, int least, int nan_first) {
    const uint bits = gqn_as_u32(x);
    const int magnitude = (int)(bits & 0x7fffffffu);
    const int sign = ((bits >> 31) != 0u) != (least != 0) ? -1 : 0;
    return magnitude > (int)GQN_INF_BITS ? (nan_first ? 0x7fffffff : -0x7fffffff - 1)
                                         : (magnitude ^ sign) - sign;
}

/* The best of a group's items by their keys, of equal ones the one with the first or the last place;
 * items without a place (-1) come last. */
static inline int best_of_items(__local const int *keys, __local const int *places, int last) {
    int best = 0;
    for (int i = 1; i < ORDER_ITEMS && places[i] >= 0; i++)
        if (keys[i] > keys[best] ||
            (keys[i] == keys[best] && (places[i] > places[best]) == (last != 0)))
            best = i;
    return best;
}

/* y[row]: the index of the greatest element, of equal ones the first or the last. */
__kernel GROUP(ORDER_ITEMS) void arg_rows(__global const float *x, __global long *y, int n,
                                             int inner, int least, int last) {
    SHARED int keys[ORDER_ITEMS], places[ORDER_ITEMS];
    const int item = (int)get_local_id(0);
    const size_t first = order_first(get_group_id(0), n, inner);
    int best = 0, place = -1;
    for (int i = item; i < n; i += ORDER_ITEMS) {
        const int key = order_key(x[first + (size_t)i * (size_t)inner], least, 1);
        if (place < 0 || key > best || (last && key == best)) {
            best = key;
            place = i;
        }
    }
    keys[item] = best;
    places[item] = place;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0)
        y[get_group_id(0)] = (long)places[best_of_items(keys, places, last)];
}

typedef struct top_shape {
    int n, inner, k, least;
} top_shape;

/* A likely id of a row: the logit, and the index. */
static inline void put_id(__global uchar *y, long begin, size_t i, float logit, int id) {
    __global uint *pair = (__global uint *)(y + begin) + 2 * i;
    pair[0] = gqn_as_u32(logit);
    pair[1] = (uint)id;
}

/* The greatest logit of each row of s.n, of equal ones the first; NaN is less than all others. */
__kernel GROUP(ORDER_ITEMS) void best_id(__global const uchar *x, __global uchar *y, long begin,
                                            top_shape s, int type) {
    SHARED int keys[ORDER_ITEMS], places[ORDER_ITEMS];
    const int item = (int)get_local_id(0);
    const size_t row = get_group_id(0), first = row * (size_t)s.n;
    int best = 0, place = -1;
    for (int i = item; i < s.n; i += ORDER_ITEMS) {
        const int key = order_key(float_at(x, type, first + (size_t)i), 0, 0);
        if (place < 0 || key > best) {
            best = key;
            place = i;
        }
    }
    keys[item] = best;
    places[item] = place;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item != 0)
        return;
#ifdef CONTROL_GPU_LAST_OF_EQUAL /* negative control: of equal logits the last one is chosen */
    place = places[best_of_items(keys, places, 1)];
#else
    place = places[best_of_items(keys, places, 0)];
#endif
    put_id(y, begin, row, float_at(x, type, first + (size_t)place), place);
}

/* The k <= ORDER_TOP greatest elements in order, of equal ones the first first; PUT stores the one of
 * a rank. The k-th key is found byte by byte, by counting; then the elements above it and the first
 * of those that equal it are collected and ranked. */
#define TOP_ROWS(NAME, PARAMETERS, KEY, PUT)                                                       \
    __kernel GROUP(ORDER_ITEMS) void NAME PARAMETERS {                                          \
        SHARED int bins[256], counts[ORDER_ITEMS], keys[ORDER_TOP], places[ORDER_TOP];             \
        SHARED int chosen, left, taken;                                                            \
        const int item = (int)get_local_id(0);                                                     \
        const size_t row = get_group_id(0), step = (size_t)s.inner;                                \
        const size_t first = order_first(row, s.n, s.inner);                                       \
        const size_t to = order_first(row, s.k, s.inner);                                          \
        uint prefix = 0u, mask = 0u;                                                               \
        if (item == 0) {                                                                           \
            left = s.k;                                                                            \
            taken = 0;                                                                             \
        }                                                                                          \
        for (int shift = 24; shift >= 0; shift -= 8) {                                             \
            for (int i = item; i < 256; i += ORDER_ITEMS)                                          \
                bins[i] = 0;                                                                       \
            barrier(CLK_LOCAL_MEM_FENCE);                                                          \
            for (int i = item; i < s.n; i += ORDER_ITEMS) {                                        \
                const uint key = (uint)(KEY) ^ 0x80000000u;                                        \
                if ((key & mask) == prefix)                                                        \
                    atomic_inc(&bins[key >> shift & 255u]);                                        \
            }                                                                                      \
            barrier(CLK_LOCAL_MEM_FENCE);                                                          \
            if (item == 0) {                                                                       \
                chosen = 255;                                                                      \
                while (bins[chosen] < left)                                                        \
                    left -= bins[chosen--];                                                        \
            }                                                                                      \
            barrier(CLK_LOCAL_MEM_FENCE);                                                          \
            prefix |= (uint)chosen << shift;                                                       \
            mask |= 255u << shift;                                                                 \
        }                                                                                          \
        /* `left` elements that equal the k-th key are wanted; items have runs of elements */      \
        const int per = (s.n + ORDER_ITEMS - 1) / ORDER_ITEMS;                                     \
        const int end = least_of((item + 1) * per, s.n);                                           \
        int equal = 0, before = 0;                                                                 \
        for (int i = item * per; i < end; i++)                                                     \
            equal += ((uint)(KEY) ^ 0x80000000u) == prefix;                                        \
        counts[item] = equal;                                                                      \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        for (int i = 0; i < item; i++)                                                             \
            before += counts[i];                                                                   \
        for (int i = item * per; i < end; i++) {                                                   \
            const uint key = (uint)(KEY) ^ 0x80000000u;                                            \
            if (key < prefix || (key == prefix && before++ >= left))                               \
                continue;                                                                          \
            const int at = atomic_inc(&taken);                                                     \
            keys[at] = (int)(key ^ 0x80000000u);                                                   \
            places[at] = i;                                                                        \
        }                                                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        for (int i = item; i < s.k; i += ORDER_ITEMS) {                                            \
            int rank = 0;                                                                          \
            for (int j = 0; j < s.k; j++)                                                          \
                rank += keys[j] > keys[i] || (keys[j] == keys[i] && places[j] < places[i]);        \
            PUT(rank, places[i]);                                                                  \
        }                                                                                          \
    }

#define TOP_PARAMETERS(ELEMENT)                                                                    \
    (__global const ELEMENT *x, __global ELEMENT *values, __global long *indices, top_shape s)
#define TOP_AT(i)            x[first + (size_t)(i) * step]
#define TOP_KEY(VALUE)       order_key(VALUE, s.least, !s.least)
#define TOP_PUT(rank, place)                                                                       \
    values[to + (size_t)(rank) * step] = TOP_AT(place);                                            \
    indices[to + (size_t)(rank) * step] = (long)(place)
TOP_ROWS(top_rows, TOP_PARAMETERS(uint), TOP_KEY(gqn_as_f32(TOP_AT(i))), TOP_PUT)
TOP_ROWS(top_rows_f16, TOP_PARAMETERS(ushort), TOP_KEY(gqn_f16_to_f32(TOP_AT(i))), TOP_PUT)
TOP_ROWS(top_rows_bf16, TOP_PARAMETERS(ushort), TOP_KEY(gqn_bf16_to_f32(TOP_AT(i))), TOP_PUT)

/* The same of logits, as best_id. */
#define LOGIT_AT(i)         float_at(x, type, first + (size_t)(i))
#define PUT_ID(rank, place) put_id(y, begin, to + (size_t)(rank), LOGIT_AT(place), place)
TOP_ROWS(top_ids, (__global const uchar *x, __global uchar *y, long begin, top_shape s, int type),
         order_key(LOGIT_AT(i), 0, 0), PUT_ID)
