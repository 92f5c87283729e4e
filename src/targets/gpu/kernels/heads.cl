/* Heads of queries, keys and values between a projection and attention: taken from a packed row,
 * normalised, rotated, and written to queries [B,H,S,D], or to the blocks of a cache and to a copy
 * that the host reads. Definitions: ops/norm.h, ops/rotary.c, ops/kv_quantise.c. The first three
 * steps are in fp32; each result is rounded to the type of the heads, as the ops do. */

#define HEADS_ITEMS 256 /* items of a group, at most */
#define HEADS_FLOATS (4 * HEADS_ITEMS)

/* The heads of queries, of keys or of values. */
typedef struct heads_stream {
    long batch_step, head_step, row_step, column; /* of x; column: of a row's first head */
    long slot_at, copy_at;                        /* in bytes: in an entry, and in `copies` */
    long slot_scales_at, copy_scales_at;          /* the same for the scales of coded rows */
    int heads, rows, count, size, half_size;      /* rows: of a batch row; count: of all */
    int x_type, type;                             /* F32, F16 or BF16: of x, and of the heads */
    int norms, before_type; /* before_type: normalised values are first rounded to it */
    int rotates, interleaved, positions;       /* positions: index of the first position */
    int appends, places, bits, scale_step;     /* places: index of the first place, or -1 if the
                                                  device has no blocks for these rows; bits: of
                                                  codes */
    int stored; /* bytes of a stored head */
    int coded;  /* not 0: bits of the codes of a quantised cache; then `bits` is 0 */
    int aligned; /* x, heads and tables can be loaded and stored four elements at a time */
    float epsilon;
} heads_stream;

typedef struct heads_shape {
    heads_stream streams[3];
    long entry_bytes;
    int entries[KV_SLABS];
    int shift, rows; /* items of a head: 1 << shift, at least GQAC_LANES; heads of a group */
} heads_shape;

/* The part of a head that an item computes: elements d to d + 3, of which n exist. */
typedef struct head_four {
    float v[4];
    int d, n;
} head_four;

/* Stores the elements in the local memory x of the head, with zeros after its end. */
GQN_FN void share_four(__local float *x, const head_four *f) {
    *(__local float4 *)(x + f->d) = FLOAT4(f->v[0], f->v[1], f->v[2], f->v[3]);
}

/* Normalises a head by its root mean square. weight: from element d on; item: number in its
 * team. */
GQN_FN void normalise_head(__local float *x, __local float *lanes, const float *weight,
                           const heads_stream *s, int item, head_four *f) {
    share_four(x, f);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < GQAC_LANES)
        lanes[item] = lane_chain(x + item, s->size, true, 4, 0.0f);
    barrier(CLK_LOCAL_MEM_FENCE);
    const float scale = gqn_rsqrt(gqn_div(fold_lanes(lanes), (float)s->size) + s->epsilon);
    CUDA_UNROLL for (int e = 0; e < 4; e++)
        if (e < f->n)
            f->v[e] =
                rounded(one_nan(rounded(f->v[e] * scale, s->before_type) * weight[e]), s->type);
}

/* The rotary pair of element d. */
GQN_FN int pair_of(const heads_stream *s, int d) {
    return s->interleaved ? d / 2 : d < s->half_size ? d : d - s->half_size;
}

/* Cosines and sines of the elements, from the row of the tables for the position. */
GQN_FN void read_turns(__global const float *cosines, __global const float *sines,
                       const heads_stream *s, const head_four *f, float *c, float *t) {
    if (s->aligned && !s->interleaved && s->half_size % 4 == 0) {
        if (f->d >= 2 * s->half_size || f->n <= 0)
            return;
        const float4 own_c = *(__global const float4 *)(cosines + pair_of(s, f->d));
        const float4 own_t = *(__global const float4 *)(sines + pair_of(s, f->d));
        c[0] = own_c.x;
        c[1] = own_c.y;
        c[2] = own_c.z;
        c[3] = own_c.w;
        t[0] = own_t.x;
        t[1] = own_t.y;
        t[2] = own_t.z;
        t[3] = own_t.w;
        return;
    }
    CUDA_UNROLL for (int e = 0; e < 4; e++)
        if (e < f->n && f->d + e < 2 * s->half_size) {
            c[e] = cosines[pair_of(s, f->d + e)];
            t[e] = sines[pair_of(s, f->d + e)];
        }
}

/* Applies the rotary embedding to the elements; x holds the head, which all its items have stored.
 * `padding`: the row has no position. */
GQN_FN void rotate_four(__local const float *x, const float *c, const float *t, bool padding,
                        const heads_stream *s, head_four *f) {
    CUDA_UNROLL for (int e = 0; e < 4; e++) {
        const int d = f->d + e;
        if (e >= f->n || padding) {
            f->v[e] = 0.0f;
        } else if (d < 2 * s->half_size) {
            const bool second = s->interleaved ? d % 2 != 0 : d >= s->half_size;
            const int apart = s->interleaved ? 1 : s->half_size;
            const float other = x[second ? d - apart : d + apart];
            f->v[e] = second ? gqn_fma(f->v[e], c[e], other * t[e])
                             : gqn_fma(f->v[e], c[e], -(other * t[e]));
        }
    }
}

/* The code of x in kv_quantise. */
static inline int code_of_row(float x, float scale, int least, int most) {
    const float y = x * gqn_div(1.0f, scale == 0.0f ? 1.0f : scale);
    return y != y ? most : gqn_quantise(y, least, most);
}

/* 2^e, with e from -126 to 127. */
static inline float power_of_2(int e) {
    return gqn_as_f32((uint)(e + 127) << 23);
}

/* The code in a quantised cache; y: the value divided by the scale; number: false if the scale is
 * NaN. */
static inline int cached_code(float y, float limit, bool number, int rows) {
    const float z = y > limit ? limit : y < -limit ? -limit : y;
#ifdef CONTROL_CODES_BY_ROWS /* negative control: codes of several rows are truncated */
    if (rows > 1)
        return number ? (int)z : 0;
#endif
    (void)rows;
    return number ? (int)((z + 0x1.8p23f) - 0x1.8p23f) : 0;
}

/* Stores n bytes of codes, as one word if all its bytes exist and it is aligned. */
GQN_FN void put_codes(__global uchar *to, uint codes, int n, int whole, bool aligned) {
    if (aligned && n == 4 && whole == 4) {
        *(__global uint *)to = codes;
    } else if (aligned && n == 2 && whole == 2) {
        *(__global ushort *)to = (ushort)codes;
    } else {
        for (int i = 0; i < n; i++)
            to[i] = (uchar)(codes >> (8 * i));
    }
}

/* The bytes of four codes of 8 or 4 bits. */
GQN_FN uint pack_codes(const int *code, int bits) {
    return bits == 8 ? ((uint)code[0] & 255u) | ((uint)code[1] & 255u) << 8 |
                           ((uint)code[2] & 255u) << 16 | (uint)code[3] << 24
                     : ((uint)(code[0] + 8) | (uint)(code[1] + 8) << 4) |
                           ((uint)(code[2] + 8) | (uint)(code[3] + 8) << 4) << 8;
}

/* Computes the codes of a head in a quantised cache (src/kv/kv.h, "Codes"), and returns their
 * scale. */
GQN_FN float coded_head(__local uint *maxima, const heads_stream *s, int item, int team,
                        const head_four *f, int *code) {
    uint most = 0u;
    CUDA_UNROLL for (int e = 0; e < 4; e++) {
        const uint bits = e < f->n ? gqn_as_u32(f->v[e]) & 0x7fffffffu : 0u;
        most = bits > most ? bits : most;
    }
    maxima[item] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < team; i++)
        most = maxima[i] > most ? maxima[i] : most;
    const int least_e = s->type == F16 ? -24 : -126, most_e = s->type == F16 ? 9 : 121;
    const bool number = most < GQN_INF_BITS;
    int e = (int)((most + 0x10000u) >> 23) - 127 - 6; /* one more from 127.5 / 64 on */
    e = e < least_e ? least_e : e > most_e ? most_e : e;
    float scale = power_of_2(e), by = power_of_2(-e);
    if (s->coded == 4) {
        const float least = power_of_2(s->type == F16 ? -20 : -126);
        const uint sevenths = gqn_as_u32(gqn_div(number ? gqn_as_f32(most) : 0.0f, 7.0f));
        scale = gqn_as_f32((sevenths + (1u << 18)) & ~((1u << 19) - 1u));
        scale = scale < least ? least : scale;
        by = gqn_div(1.0f, scale);
    }
#ifdef CONTROL_SCALE_BY_ROWS /* negative control: several rows have another scale than one */
    if (s->count > 1) {
        scale *= 2.0f;
        by *= 0.5f;
    }
#endif
    CUDA_UNROLL for (int i = 0; i < 4; i++)
        code[i] = i < f->n ? cached_code(f->v[i] * by, s->coded == 8 ? 127.0f : 7.0f, number, s->count)
                           : 0;
    return number ? scale : gqn_as_f32(GQN_NAN_BITS);
}

/* The codes of kv_quantise; scale: of the head. */
GQN_FN void quantised_head(__global const float *scale, const heads_stream *s, const head_four *f,
                           int *code) {
    CUDA_UNROLL for (int i = 0; i < 4; i++)
        code[i] = i < f->n ? code_of_row(f->v[i], scale[(f->d + i) * s->scale_step],
                                         s->bits == 8 ? -128 : -8, s->bits == 8 ? 127 : 7)
                           : 0;
}

/* A group computes the same head of shape.rows rows, with 1 << shape.shift items for each; an item
 * computes four elements. The grid is [heads of all streams, rows / shape.rows]. positions: one for
 * each row. places [2][count]: for each row its entry (in a table of blocks, attend_common.cl), or
 * -1 if it is not appended; then its row in the block. */
#define SLAB(i) __global uchar *s##i
/* Selects stream i and its operands. */
#define TAKE(i)                                                                                    \
    which = i;                                                                                     \
    from = x##i;                                                                                   \
    weight = weight##i;                                                                            \
    cosines = cos##i;                                                                              \
    sines = sin##i;                                                                                \
    scale = scale##i;
#define SLAB_OF(i) slab == i ? s##i :
__kernel MOST(HEADS_ITEMS) void heads_rows(
    __global const uchar *x0, __global const uchar *x1, __global const uchar *x2,
    __global const uchar *weight0, __global const uchar *weight1, __global const uchar *weight2,
    __global const float *cos0, __global const float *cos1, __global const float *cos2,
    __global const float *sin0, __global const float *sin1, __global const float *sin2,
    __global const float *scale0, __global const float *scale1, __global const float *scale2,
    SLAB(0), SLAB(1), SLAB(2), SLAB(3), SLAB(4), SLAB(5), SLAB(6), SLAB(7), SLAB(8), SLAB(9),
    SLAB(10), SLAB(11), SLAB(12), SLAB(13), SLAB(14), SLAB(15), __global uchar *y,
    __global uchar *copies, __global const int *positions, __global const int *places,
    heads_shape shape) {
    SHARED float4 heads_fours[HEADS_FLOATS / 4];
    SHARED float all_lanes[HEADS_ITEMS];
    SHARED uint all_maxima[HEADS_ITEMS];
    const int id = (int)get_local_id(0), team = 1 << shape.shift, item = id & (team - 1);
    const int begins = id - item; /* the first item of the head */
    const int own_row = (int)get_group_id(1) * shape.rows + (id >> shape.shift);
    __local float *x = (__local float *)heads_fours + 4 * begins;
    __local float *lanes = all_lanes + begins;
    int head = (int)get_group_id(0), which;
    __global const uchar *from, *weight;
    __global const float *cosines, *sines, *scale;
    TAKE(0)
    if (head >= shape.streams[0].heads) {
        head -= shape.streams[0].heads;
        TAKE(1)
        if (head >= shape.streams[1].heads) {
            head -= shape.streams[1].heads;
            TAKE(2)
        }
    }
    const heads_stream s = shape.streams[which];
    if (head >= s.heads || (int)get_group_id(1) * shape.rows >= s.count)
        return;
    /* items after the last row repeat its computation, and store nothing */
    const bool used = own_row < s.count;
    const int row = used ? own_row : s.count - 1, b = (int)((uint)row / (uint)s.rows);
    const int r = row - b * s.rows;
    const size_t at = (size_t)(b * s.batch_step + head * s.head_step + r * s.row_step + s.column);
    const size_t to = ((size_t)(b * s.heads + head) * (size_t)s.rows + (size_t)r);
    const int position = s.rotates ? positions[s.positions + row] : 0;
    const bool finds = s.appends && s.places >= 0;
    const int entry = finds ? places[s.places + row] : -1;
    const int in_block = finds ? places[s.places + s.count + row] % KV_BLOCK : 0;
    head_four f;
    float own_weight[4], c[4], t[4];
    f.d = 4 * item;
    f.n = s.size - f.d < 4 ? s.size - f.d : 4;
    const bool raw = !s.norms && !s.rotates && !s.bits && !s.coded; /* NaN is copied too */
    const uint4 bits = four_at(from, s.x_type, at + (size_t)f.d, f.n, s.aligned);
    if (s.norms)
        widen_four(four_at(weight, F32, (size_t)f.d, f.n, s.aligned), F32, own_weight);
    if (s.rotates) {
        const size_t line = (size_t)(position > 0 ? position : 0) * (size_t)s.half_size;
        read_turns(cosines + line, sines + line, &s, &f, c, t);
    }
    __global uchar *first = s.appends ? copies + s.copy_at + to * (size_t)s.stored
                                      : y + to * (size_t)s.stored;
    __global uchar *second = first; /* the copy in a block */
    __global float *block_scale = (__global float *)(copies + s.copy_scales_at) + to;
    if (entry >= 0) {
        const uint slab = (uint)entry % KV_SLABS, index = (uint)entry / KV_SLABS;
        const size_t at_entry = (size_t)in_block * (size_t)s.heads + (size_t)head;
        __global uchar *base = SLAB_OF(0) SLAB_OF(1) SLAB_OF(2) SLAB_OF(3) SLAB_OF(4) SLAB_OF(5)
            SLAB_OF(6) SLAB_OF(7) SLAB_OF(8) SLAB_OF(9) SLAB_OF(10) SLAB_OF(11) SLAB_OF(12)
            SLAB_OF(13) SLAB_OF(14) s15;
        if (index < (uint)shape.entries[slab]) {
            __global uchar *block = base + (size_t)index * (size_t)shape.entry_bytes;
            second = block + s.slot_at + at_entry * (size_t)s.stored;
            block_scale = (__global float *)(block + s.slot_scales_at) + at_entry;
        }
    }
    if (raw) {
        if (used) {
            put_bits(first, s.type, (size_t)f.d, f.n, s.aligned, bits);
            if (second != first)
                put_bits(second, s.type, (size_t)f.d, f.n, s.aligned, bits);
        }
        return;
    }
    widen_four(bits, s.x_type, f.v);
    if (s.norms)
        normalise_head(x, lanes, own_weight, &s, item, &f);
    if (s.rotates) {
        share_four(x, &f); /* again after a norm, which has read the previous values */
        barrier(CLK_LOCAL_MEM_FENCE);
        rotate_four(x, c, t, position < 0, &s, &f);
    }
    CUDA_UNROLL for (int e = 0; e < 4; e++)
        f.v[e] = rounded(f.v[e], s.type);
    if (!s.bits && !s.coded) {
        CUDA_UNROLL for (int e = 0; e < 4; e++)
            f.v[e] = one_nan(f.v[e]);
        if (used) {
            put_four(first, s.type, (size_t)f.d, f.n, s.aligned, f.v);
            if (second != first)
                put_four(second, s.type, (size_t)f.d, f.n, s.aligned, f.v);
        }
        return;
    }
    int code[4];
    float coded_scale = 0.0f;
    if (s.coded)
        coded_scale = coded_head(all_maxima + begins, &s, item, team, &f, code);
    else
        quantised_head(scale + (size_t)(head * s.size) * (size_t)s.scale_step, &s, &f, code);
    const int code_bits = s.coded + s.bits, begin = f.d * code_bits / 8;
    const int bytes = s.stored - begin < code_bits / 2 ? s.stored - begin : code_bits / 2;
    if (!used)
        return;
    const uint codes = pack_codes(code, code_bits);
    put_codes(first + begin, codes, bytes, code_bits / 2, s.aligned);
    if (second != first)
        put_codes(second + begin, codes, bytes, code_bits / 2, s.aligned);
    if (s.coded && item == 0) {
        /* computed here: PoCL 3.1 loses the pointer across the barrier of coded_head */
        const size_t i = (size_t)(first - (copies + s.copy_at)) / (size_t)s.stored;
        ((__global float *)(copies + s.copy_scales_at))[i] = coded_scale;
        *block_scale = coded_scale;
    }
}
#undef SLAB_OF
#undef TAKE
#undef SLAB
