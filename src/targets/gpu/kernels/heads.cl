/* Heads of queries, keys and values between a projection and attention: cut out of a packed row,
 * normalised, rotated, and written to queries [B,H,S,D], or to the blocks of a cache and to a copy
 * that the host reads. Definitions: ops/norm.h, ops/rotary.c, ops/kv_quantise.c. The first three
 * steps are in fp32; each result is rounded to the type of the heads, as the ops do. */

#define HEADS_ITEMS 64
#define HEADS_SIZE  1024 /* maximum elements of a head */

/* The heads of queries, of keys or of values. */
typedef struct heads_stream {
    long batch_step, head_step, row_step, column; /* elements of x; to the first head of a row */
    long slot_at, copy_at;                        /* bytes: of an entry, and of `copies` */
    long slot_scales_at, copy_scales_at;          /* the same, of the scales of coded rows */
    int heads, rows, count, size, half_size;      /* rows of a batch row, of all; pairs of rotary */
    int x_type, type;                             /* F32, F16 or BF16: of x, and of the heads */
    int norms, before_type; /* before_type: what is normalised is rounded to it before the weight */
    int rotates, interleaved, positions;       /* positions: where those of its rows begin */
    int appends, places, bits, scale_step;     /* places: where those of its rows begin; -1: the
                                                  device has no blocks for them. bits: of codes */
    int stored; /* bytes of a head as it is stored */
    int coded;  /* not 0: of the codes that a cache of a quantised kind keeps; then bits is 0 */
    float epsilon;
    int padding;
} heads_stream;

typedef struct heads_shape {
    heads_stream streams[3];
    long entry_bytes;
    int entries[KV_SLABS];
} heads_shape;

/* Normalises the head in x by its root mean square. */
static inline void normalise_head(__local float *x, __local float *lanes,
                                  __global const float *weight, const heads_stream *s, int item) {
    if (item < GQAC_LANES) {
        float total = 0.0f;
        for (int i = item; i < s->size; i += GQAC_LANES)
            total = gqn_fma(x[i], x[i], total);
        lanes[item] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const float scale = gqn_rsqrt(gqn_div(fold_lanes(lanes), (float)s->size) + s->epsilon);
    for (int i = item; i < s->size; i += HEADS_ITEMS)
        x[i] = rounded(one_nan(rounded(x[i] * scale, s->before_type) * weight[i]), s->type);
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Element d of the head in x after its rotary embedding; cosines and sines are of its position, -1
 * for padding. */
static inline float head_value(__local const float *x, __global const float *cosines,
                               __global const float *sines, int position, const heads_stream *s,
                               int d) {
    if (!s->rotates)
        return x[d];
    if (position < 0)
        return 0.0f;
    if (d >= 2 * s->half_size)
        return x[d];
    const int pair = s->interleaved ? d / 2 : d % s->half_size;
    const bool second = s->interleaved ? d % 2 != 0 : d >= s->half_size;
    const int first = s->interleaved ? 2 * pair : pair;
    const float u = x[first], w = x[first + (s->interleaved ? 1 : s->half_size)];
    const float c = cosines[pair], t = sines[pair];
    return second ? gqn_fma(w, c, u * t) : gqn_fma(u, c, -(w * t));
}

/* The code of x. */
static inline int code_of_row(float x, float scale, int least, int most) {
    const float y = x * gqn_div(1.0f, scale == 0.0f ? 1.0f : scale);
    return y != y ? most : gqn_quantise(y, least, most);
}

/* 2^e, with e from -126 to 127. */
static inline float power_of_2(int e) {
    return gqn_as_f32((uint)(e + 127) << 23);
}

/* The code of a cache of a quantised kind, of x times the inverse of the scale; number false: the
 * scale is NaN. */
static inline int cached_code(float y, float limit, bool number) {
    const float z = y > limit ? limit : y < -limit ? -limit : y;
    return number ? (int)((z + 0x1.8p23f) - 0x1.8p23f) : 0;
}

/* The codes of the head in x, of its type (src/kv/kv.h, "Codes"), to two places, which may be the
 * same; returns their scale. */
static inline float put_coded(__local const float *x, __local float *lanes, __global uchar *first,
                              __global uchar *second, const heads_stream *s, int item) {
    uint most = 0u;
    if (item < GQAC_LANES) {
        for (int i = item; i < s->size; i += GQAC_LANES) {
            const uint bits = gqn_as_u32(x[i]) & 0x7fffffffu;
            most = bits > most ? bits : most;
        }
        lanes[item] = gqn_as_f32(most);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < GQAC_LANES; i++) {
        const uint bits = gqn_as_u32(lanes[i]);
        most = bits > most ? bits : most;
    }
    const int least_e = s->type == F16 ? -24 : -126, most_e = s->type == F16 ? 9 : 121;
    const bool number = most < GQN_INF_BITS;
    int e = (int)((most + 0x10000u) >> 23) - 127 - 6; /* more from 127.5 / 64 on */
    e = e < least_e ? least_e : e > most_e ? most_e : e;
    float scale = power_of_2(e), by = power_of_2(-e);
    if (s->coded == 4) {
        const float least = power_of_2(s->type == F16 ? -20 : -126);
        const uint sevenths = gqn_as_u32(gqn_div(number ? gqn_as_f32(most) : 0.0f, 7.0f));
        scale = gqn_as_f32((sevenths + (1u << 18)) & ~((1u << 19) - 1u));
        scale = scale < least ? least : scale;
        by = gqn_div(1.0f, scale);
    }
    for (int d = item; d < s->stored; d += HEADS_ITEMS) {
        int code;
        if (s->coded == 8) {
            code = cached_code(x[d] * by, 127.0f, number);
        } else {
            const int low = cached_code(x[2 * d] * by, 7.0f, number);
            const int high =
                2 * d + 1 < s->size ? cached_code(x[2 * d + 1] * by, 7.0f, number) : 0;
            code = (low + 8) | (high + 8) << 4;
        }
        first[d] = (uchar)code;
        second[d] = (uchar)code;
    }
    return number ? scale : gqn_as_f32(GQN_NAN_BITS);
}

/* The grid is [heads of all streams, rows]: a group has one head of one row. Positions: of rows;
 * places [2][count]: entry (a table of blocks, attend_common.cl), -1 for a row that is not
 * appended, and row of the block. */
#define SLAB(i) __global uchar *s##i
/* Sets the stream of the group, and its operands. */
#define TAKE(i)                                                                                    \
    s = shape.streams[i];                                                                          \
    from = x##i;                                                                                   \
    weight = weight##i;                                                                            \
    cosines = cos##i;                                                                              \
    sines = sin##i;                                                                                \
    scale = scale##i;
__kernel GROUP(HEADS_ITEMS) void heads_rows(
    __global const uchar *x0, __global const uchar *x1, __global const uchar *x2,
    __global const float *weight0, __global const float *weight1, __global const float *weight2,
    __global const float *cos0, __global const float *cos1, __global const float *cos2,
    __global const float *sin0, __global const float *sin1, __global const float *sin2,
    __global const float *scale0, __global const float *scale1, __global const float *scale2,
    SLAB(0), SLAB(1), SLAB(2), SLAB(3), SLAB(4), SLAB(5), SLAB(6), SLAB(7), SLAB(8), SLAB(9),
    SLAB(10), SLAB(11), SLAB(12), SLAB(13), SLAB(14), SLAB(15), __global uchar *y,
    __global uchar *copies, __global const int *positions, __global const int *places,
    heads_shape shape) {
    SHARED float x[HEADS_SIZE], done[HEADS_SIZE], lanes[GQAC_LANES];
    __global uchar *slabs[KV_SLABS] = {s0, s1, s2,  s3,  s4,  s5,  s6,  s7,
                                       s8, s9, s10, s11, s12, s13, s14, s15};
    const int item = (int)get_local_id(0), row = (int)get_group_id(1);
    int head = (int)get_group_id(0);
    heads_stream s;
    __global const uchar *from;
    __global const float *weight, *cosines, *sines, *scale;
    TAKE(0)
    if (head >= s.heads) {
        head -= s.heads;
        TAKE(1)
        if (head >= s.heads) {
            head -= s.heads;
            TAKE(2)
        }
    }
    if (row >= s.count || head >= s.heads)
        return;
    const int b = row / s.rows, r = row % s.rows;
    const size_t at = (size_t)(b * s.batch_step + head * s.head_step + r * s.row_step + s.column);
    const size_t to = ((size_t)(b * s.heads + head) * (size_t)s.rows + (size_t)r);
    const int position = s.rotates ? positions[s.positions + row] : 0;
    const size_t line = (size_t)(position > 0 ? position : 0) * (size_t)s.half_size;
    __global uchar *first = s.appends ? copies + s.copy_at + to * (size_t)s.stored
                                      : y + to * (size_t)s.stored;
    __global uchar *second = first; /* in a block */
    __global float *block_scale = (__global float *)(copies + s.copy_scales_at) + to;
    if (s.appends && s.places >= 0) {
        const int entry = places[s.places + row];
        const uint slab = (uint)entry % KV_SLABS, index = (uint)entry / KV_SLABS;
        const int in_block = places[s.places + s.count + row] % KV_BLOCK;
        const size_t at_entry = (size_t)in_block * (size_t)s.heads + (size_t)head;
        if (entry >= 0 && index < (uint)shape.entries[slab]) {
            __global uchar *block = slabs[slab] + (size_t)index * (size_t)shape.entry_bytes;
            second = block + s.slot_at + at_entry * (size_t)s.stored;
            block_scale = (__global float *)(block + s.slot_scales_at) + at_entry;
        }
    }
    if (!s.norms && !s.rotates && !s.bits && !s.coded) { /* as it is, NaN included */
        for (int d = item; d < s.size; d += HEADS_ITEMS) {
            if (s.type == F32) {
                const uint v = ((__global const uint *)from)[at + (size_t)d];
                ((__global uint *)first)[d] = v;
                ((__global uint *)second)[d] = v;
            } else {
                const ushort v = ((__global const ushort *)from)[at + (size_t)d];
                ((__global ushort *)first)[d] = v;
                ((__global ushort *)second)[d] = v;
            }
        }
        return;
    }
    from += at * (s.x_type == F32 ? 4 : 2);
    for (int d = item; d < s.size; d += HEADS_ITEMS)
        x[d] = float_at(from, s.x_type, (size_t)d);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (s.norms)
        normalise_head(x, lanes, weight, &s, item);
    cosines += line;
    sines += line;
    scale += (size_t)(head * s.size) * (size_t)s.scale_step;
    for (int d = item; d < (s.bits ? s.stored : s.size); d += HEADS_ITEMS) {
        const int e = s.bits == 4 ? 2 * d : d;
        const float v = rounded(head_value(x, cosines, sines, position, &s, e), s.type);
        if (!s.bits) {
            done[d] = v;
            if (!s.coded) {
                put_element(first, s.type, (size_t)d, v);
                put_element(second, s.type, (size_t)d, v);
            }
            continue;
        }
        int code;
        if (s.bits == 8) {
            code = code_of_row(v, scale[e * s.scale_step], -128, 127) & 255;
        } else {
            const bool pair = e + 1 < s.size;
            const float next =
                pair ? rounded(head_value(x, cosines, sines, position, &s, e + 1), s.type) : 0.0f;
            const int high = pair ? code_of_row(next, scale[(e + 1) * s.scale_step], -8, 7) : 0;
            code = (code_of_row(v, scale[e * s.scale_step], -8, 7) + 8) | (high + 8) << 4;
        }
        first[d] = (uchar)code;
        second[d] = (uchar)code;
    }
    if (s.coded) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const float coded_scale = put_coded(done, lanes, first, second, &s, item);
        if (item == 0) {
            /* computed here: PoCL 3.1 loses the pointer across the barrier of put_coded */
            const size_t i = (size_t)(first - (copies + s.copy_at)) / (size_t)s.stored;
            ((__global float *)(copies + s.copy_scales_at))[i] = coded_scale;
            *block_scale = coded_scale;
        }
    }
}
#undef TAKE
#undef SLAB
