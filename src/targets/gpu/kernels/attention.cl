/* y = softmax(scale * q k^T ...) v over the visible keys of each row; docs/numerics.md, "Attention
 * on cpu", has the formula, and src/targets/cpu/level/attend.c the same arithmetic for processors.
 *
 * A group of ATTEND_ITEMS items (gpu.h) computes one row, which is one query of one head: item j has
 * the key j of each tile, and the elements j, j + ATTEND_ITEMS, ... of the sums of values. The grid
 * is [query heads, rows].
 * Keys and values are [sequences,Hkv,T,D]; what is not visible is not read. */

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
    float scale, softcap;
    long bias_step[3]; /* elements from one batch row, head and query of the bias to the next */
} attend_shape;

__kernel void attend(__global const float *q, __global const float *k, __global const float *v,
                     __global const int *lo, __global const int *hi, __global const int *sequence,
                     __global const float *bias, __global const float *sink, __global float *y,
                     attend_shape shape) {
    SHARED float p[GQAC_KEY_TILE];
    SHARED float now_m, now_l, alpha; /* of the split: maximum, sum, factor of earlier sums */
    const int item = (int)get_local_id(0);
    const int head = (int)get_group_id(0), row = (int)get_group_id(1);
    const int heads = shape.heads, size = shape.size, value_size = shape.value_size;
    const int kv_head = head / (heads / shape.kv_heads), keys = shape.keys;
    const int batch = row / shape.queries, query = row % shape.queries;
    const int begin = lo[row], end = hi[row] < keys ? hi[row] : keys;
    const size_t rows = ((size_t)sequence[row] * (size_t)shape.kv_heads + (size_t)kv_head) *
                        (size_t)keys;
    __global const float *own =
        q + (((size_t)batch * (size_t)heads + (size_t)head) * (size_t)shape.queries +
             (size_t)query) * (size_t)size;
    __global const float *to_add = bias + (long)batch * shape.bias_step[0] +
                                   (long)head * shape.bias_step[1] +
                                   (long)query * shape.bias_step[2];
    __global float *out =
        y + ((size_t)row * (size_t)heads + (size_t)head) * (size_t)value_size;
    float acc[VALUES], total[VALUES], all_m = 0.0f, all_l = 0.0f;
    bool some = false;
    for (int i = 0; i < VALUES; i++)
        total[i] = 0.0f;
    for (int split = begin / SPLIT * SPLIT; split < end; split += SPLIT) {
        if (item == 0) {
            now_m = -gqn_as_f32(GQN_INF_BITS);
            now_l = 0.0f;
        }
        for (int i = 0; i < VALUES; i++)
            acc[i] = 0.0f;
        for (int tile = split; tile < split + SPLIT && tile < end; tile += GQAC_KEY_TILE) {
            const int from = begin > tile ? begin - tile : 0;
            const int to = end - tile < GQAC_KEY_TILE ? end - tile : GQAC_KEY_TILE;
            if (from >= to)
                continue; /* uniform: every item of the group has the same range */
            for (int t = from + item; t < to; t += ATTEND_ITEMS) {
                __global const float *key = k + (rows + (size_t)(tile + t)) * (size_t)size;
                float s = 0.0f;
                for (int d = 0; d < size; d++)
                    s = gqn_fma(own[d], key[d], s);
                s = shape.scale * s;
                if (shape.softcap > 0.0f)
                    s = shape.softcap * gqn_tanhf(gqn_div(s, shape.softcap));
                if (shape.bias_columns > 0)
                    s = s + to_add[tile + t];
                p[t] = s;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            const float before = now_m;
            float m = before;
            for (int t = from; t < to; t++)
                m = larger(m, p[t]);
            const float mu = centre_of(m);
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int t = from + item; t < to; t += ATTEND_ITEMS)
                p[t] = gqn_expf(p[t] - mu);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item == 0) {
                alpha = m > before ? gqn_expf(before - mu) : 1.0f;
                now_l = gqn_fma(now_l, alpha, lane_sum(p, tile, from, to));
                now_m = m;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = 0, d = item; i < VALUES && d < value_size; i++, d += ATTEND_ITEMS) {
                float sum = acc[i] * alpha;
                for (int t = from; t < to; t++)
                    sum = gqn_fma(p[t], v[(rows + (size_t)(tile + t)) * (size_t)value_size + (size_t)d],
                                  sum);
                acc[i] = sum;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (!some) {
            all_m = now_m;
            all_l = now_l;
            for (int i = 0; i < VALUES; i++)
                total[i] = acc[i];
        } else {
            const float m = larger(all_m, now_m), mu = centre_of(m);
            const float before = gqn_expf(all_m - mu), now = gqn_expf(now_m - mu);
            for (int i = 0; i < VALUES; i++)
                total[i] = gqn_fma(acc[i], now, total[i] * before);
            all_l = gqn_fma(now_l, now, all_l * before);
            all_m = m;
        }
        some = true;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float factor = 1.0f;
    if (shape.has_sink) {
        const float m = larger(all_m, sink[head]), mu = centre_of(m);
        factor = m == all_m ? 1.0f : gqn_expf(all_m - mu);
        all_l = gqn_fma(all_l, factor, gqn_expf(sink[head] - mu));
    }
    const float by = all_l == 0.0f ? 1.0f : all_l;
    for (int i = 0, d = item; i < VALUES && d < value_size; i++, d += ATTEND_ITEMS)
        out[d] = some ? one_nan(gqn_div(total[i] * factor, by)) : 0.0f;
}
