/* Accesses to four consecutive floats of one type: one load or store of 8 or 16 bytes if they are
 * aligned. Loading and widening are separate functions, so that several loads can be in flight. */

static inline uint element_bits(__global const uchar *x, int type, size_t i) {
    return type == F32 ? ((__global const uint *)x)[i] : (uint)((__global const ushort *)x)[i];
}

/* Packs four elements of a type as in memory. */
static inline uint4 pack_four(int type, uint a, uint b, uint c, uint d) {
    uint4 bits;
    bits.x = type == F32 ? a : a | b << 16;
    bits.y = type == F32 ? b : c | d << 16;
    bits.z = type == F32 ? c : 0u;
    bits.w = type == F32 ? d : 0u;
    return bits;
}

/* Elements i to i + 3; if n is less than four, the first n of them, then zeros. `aligned`: i is a
 * multiple of four, and x is the start of an allocation. The other cases are rare, and their code
 * is kept small, because a kernel that runs for microseconds also waits for its code to load. */
static inline uint4 four_at(__global const uchar *x, int type, size_t i, int n, bool aligned) {
    uint4 bits;
    bits.x = bits.y = bits.z = bits.w = 0u;
    if (aligned && n >= 4) {
        if (type == F32)
            return *(__global const uint4 *)(x + i * 4);
        const uint2 two = *(__global const uint2 *)(x + i * 2);
        bits.x = two.x;
        bits.y = two.y;
        return bits;
    }
    ROLLED for (int e = 0; e < n && e < 4; e++) {
        const int word = type == F32 ? e : e / 2, shift = type == F32 ? 0 : e % 2 * 16;
        const uint one = element_bits(x, type, i + (size_t)e) << shift;
        bits.x |= word == 0 ? one : 0u;
        bits.y |= word == 1 ? one : 0u;
        bits.z |= word == 2 ? one : 0u;
        bits.w |= word == 3 ? one : 0u;
    }
    return bits;
}

/* Their values as fp32. */
static inline float wide_value(uint bits, int type) {
    return type == F16 ? one_nan(half_to_float((ushort)bits)) : gqn_bf16_to_f32((ushort)bits);
}
static inline void widen_four(uint4 bits, int type, float *v) {
    if (type == F32) {
        v[0] = gqn_as_f32(bits.x);
        v[1] = gqn_as_f32(bits.y);
        v[2] = gqn_as_f32(bits.z);
        v[3] = gqn_as_f32(bits.w);
    } else {
        v[0] = wide_value(bits.x & 0xffffu, type);
        v[1] = wide_value(bits.x >> 16, type);
        v[2] = wide_value(bits.y & 0xffffu, type);
        v[3] = wide_value(bits.y >> 16, type);
    }
}

static inline uint narrow_bits(float x, int type) {
    return type == F16 ? (uint)float_to_half(x) : (uint)gqn_f32_to_bf16(x);
}

/* Stores n elements, at most four, from element i on. */
static inline void put_bits(__global uchar *y, int type, size_t i, int n, bool aligned,
                            uint4 bits) {
    if (aligned && n >= 4) {
        uint2 two;
        two.x = bits.x;
        two.y = bits.y;
        if (type == F32)
            *(__global uint4 *)(y + i * 4) = bits;
        else
            *(__global uint2 *)(y + i * 2) = two;
        return;
    }
    ROLLED for (int e = 0; e < n && e < 4; e++) {
        const int word = type == F32 ? e : e / 2;
        const uint own = word == 0 ? bits.x : word == 1 ? bits.y : word == 2 ? bits.z : bits.w;
        if (type == F32)
            ((__global uint *)y)[i + (size_t)e] = own;
        else
            ((__global ushort *)y)[i + (size_t)e] = (ushort)(own >> (e % 2 * 16));
    }
}

/* The same for fp32 values. */
static inline void put_four(__global uchar *y, int type, size_t i, int n, bool aligned,
                            const float *v) {
    put_bits(y, type, i, n, aligned,
             type == F32 ? pack_four(F32, gqn_as_u32(v[0]), gqn_as_u32(v[1]), gqn_as_u32(v[2]),
                                   gqn_as_u32(v[3]))
                         : pack_four(type, narrow_bits(v[0], type), narrow_bits(v[1], type),
                                   narrow_bits(v[2], type), narrow_bits(v[3], type)));
}

/* How many of four elements from `at` on are before n; 0 or less if none are. */
static inline int fours_left(uint at, int n) {
    const long left = (long)n - (long)at;
    return left < 4 ? (int)left : 4;
}
