/* vec.h in plain C: the definition of every operation. */
#ifndef GQAC_TARGETS_CPU_LEVEL_VEC_SCALAR_H
#define GQAC_TARGETS_CPU_LEVEL_VEC_SCALAR_H

enum { V16_REGISTERS = 16 }; /* of one v16 each: an assumption for tiles */

typedef struct v16 {
    float l[16];
} v16;
typedef struct v16i {
    int32_t l[16];
} v16i;
typedef uint32_t m16;

#define V16_EACH(expression)                                                                       \
    v16 r;                                                                                         \
    for (int i = 0; i < 16; i++)                                                                   \
        r.l[i] = (expression);                                                                     \
    return r

VEC_FN v16 v16_zero(void) {
    V16_EACH(0.0f);
}
VEC_FN v16 v16_set1(float x) {
    V16_EACH(x);
}
VEC_FN v16 v16_load(const float *p) {
    V16_EACH(p[i]);
}
/* x, kept in a register from here on: otherwise compilers read an operand that several operations
 * use from memory for each of them. */
VEC_FN v16 v16_keep(v16 x) {
    return x;
}
VEC_FN void v16_store(float *p, v16 x) {
    for (int i = 0; i < 16; i++)
        p[i] = x.l[i];
}
/* The first n lanes; the others are +0, and their memory is not accessed. */
VEC_FN v16 v16_load_n(const float *p, int n) {
    V16_EACH(i < n ? p[i] : 0.0f);
}
VEC_FN void v16_store_n(float *p, v16 x, int n) {
    for (int i = 0; i < 16 && i < n; i++)
        p[i] = x.l[i];
}
VEC_FN v16 v16_load_f16(const uint16_t *p) {
    V16_EACH(gqn_f16_to_f32(p[i]));
}
VEC_FN v16 v16_load_bf16(const uint16_t *p) {
    V16_EACH(gqn_bf16_to_f32(p[i]));
}
VEC_FN v16 v16_load_i8(const int8_t *p) {
    V16_EACH((float)p[i]);
}
/* The low nibbles of sixteen bytes, or the high ones, minus 8. */
VEC_FN v16 v16_load_i4(const uint8_t *p, int high) {
    V16_EACH((float)((p[i] >> 4 * high & 15) - 8));
}
/* Both nibbles of eight bytes, the low one first, minus 8. */
VEC_FN v16 v16_load_i4_pairs(const uint8_t *p) {
    V16_EACH((float)((p[i / 2] >> i % 2 * 4 & 15) - 8));
}
/* x as int8: to nearest, halves to even; |x| <= 127. */
VEC_FN void v16_store_i8(int8_t *p, v16 x) {
    for (int i = 0; i < 16; i++)
        p[i] = (int8_t)(uint8_t)gqn_as_u32(x.l[i] + 0x1.8p23f);
}
/* Transposes sixteen rows of sixteen floats: to[i * ld + j] = from[j * step + i]. */
VEC_FN void v16_transpose(const float *from, int64_t step, float *to, int64_t ld) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            to[i * ld + j] = from[j * step + i];
}
/* a * b + c, rounded once. */
VEC_FN v16 v16_fma(v16 a, v16 b, v16 c) {
    V16_EACH(gqn_fma(a.l[i], b.l[i], c.l[i]));
}
VEC_FN v16 v16_add(v16 a, v16 b) {
    V16_EACH(a.l[i] + b.l[i]);
}
VEC_FN v16 v16_sub(v16 a, v16 b) {
    V16_EACH(a.l[i] - b.l[i]);
}
VEC_FN v16 v16_mul(v16 a, v16 b) {
    V16_EACH(a.l[i] * b.l[i]);
}
VEC_FN v16 v16_div(v16 a, v16 b) {
    V16_EACH(a.l[i] / b.l[i]);
}
/* x > m ? x : m, the step of every maximum (gqn_max_step). */
VEC_FN v16 v16_max_step(v16 m, v16 x) {
    V16_EACH(x.l[i] > m.l[i] ? x.l[i] : m.l[i]);
}
VEC_FN v16 v16_abs(v16 x) {
    V16_EACH(gqn_as_f32(gqn_as_u32(x.l[i]) & 0x7fffffffu));
}
/* yes in the lanes of m, no in the others. */
VEC_FN v16 v16_select(m16 m, v16 yes, v16 no) {
    V16_EACH(m >> i & 1u ? yes.l[i] : no.l[i]);
}
VEC_FN m16 m16_of_bits(uint32_t bits) {
    return bits;
}
VEC_FN uint32_t m16_bits(m16 m) {
    return m;
}
VEC_FN m16 m16_greater(v16 a, v16 b) {
    m16 m = 0;
    for (int i = 0; i < 16; i++)
        m |= (m16)(a.l[i] > b.l[i]) << i;
    return m;
}
VEC_FN m16 m16_unordered(v16 x) {
    m16 m = 0;
    for (int i = 0; i < 16; i++)
        m |= (m16)(x.l[i] != x.l[i]) << i;
    return m;
}
/* p with (bits of t - bits of magic) << 23 added to its bits: p times a power of two. */
VEC_FN v16 v16_scale_bits(v16 p, v16 t, v16 magic) {
    V16_EACH(
        gqn_as_f32(gqn_as_u32(p.l[i]) + ((gqn_as_u32(t.l[i]) - gqn_as_u32(magic.l[i])) << 23)));
}

#define V16I_EACH(expression)                                                                      \
    v16i r;                                                                                        \
    for (int i = 0; i < 16; i++)                                                                   \
        r.l[i] = (expression);                                                                     \
    return r

VEC_FN v16i v16i_zero(void) {
    V16I_EACH(0);
}
VEC_FN v16i v16i_set1(int32_t x) {
    V16I_EACH(x);
}
VEC_FN v16i v16i_load(const void *p) {
    v16i r;
    memcpy(&r, p, sizeof r);
    return r;
}
VEC_FN void v16i_store(void *p, v16i x) {
    memcpy(p, &x, sizeof x);
}
VEC_FN v16i v16i_and(v16i a, v16i b) {
    V16I_EACH(a.l[i] & b.l[i]);
}
/* Logical shift right of each lane. */
VEC_FN v16i v16i_shr(v16i x, int n) {
    V16I_EACH((int32_t)((uint32_t)x.l[i] >> n));
}
VEC_FN v16i v16i_add(v16i a, v16i b) {
    V16I_EACH((int32_t)((uint32_t)a.l[i] + (uint32_t)b.l[i]));
}
VEC_FN v16i v16i_sub(v16i a, v16i b) {
    V16I_EACH((int32_t)((uint32_t)a.l[i] - (uint32_t)b.l[i]));
}
VEC_FN int32_t half_product(int32_t a, int32_t b, int h) {
    const uint32_t x = (uint32_t)a >> 16 * h & 0xffffu, y = (uint32_t)b >> 16 * h & 0xffffu;
    return (int16_t)x * (int16_t)y;
}
/* Halves of lanes are signed 16-bit numbers: the low 16 bits of each product, and the sum of both
 * products. */
VEC_FN v16i v16i_mul_pairs(v16i a, v16i b) {
    V16I_EACH((int32_t)(((uint32_t)half_product(a.l[i], b.l[i], 0) & 0xffffu) |
                        (uint32_t)half_product(a.l[i], b.l[i], 1) << 16));
}
VEC_FN v16i v16i_dot_pairs(v16i a, v16i b) {
    V16I_EACH((int32_t)((uint32_t)half_product(a.l[i], b.l[i], 0) +
                        (uint32_t)half_product(a.l[i], b.l[i], 1)));
}
VEC_FN v16i v16i_dot_pairs_add(v16i sum, v16i a, v16i b) {
    return v16i_add(sum, v16i_dot_pairs(a, b));
}
/* The signed bytes 0 and 2, or 1 and 3, of a lane, as its two halves. */
VEC_FN int32_t bytes_apart(int32_t x, int first) {
    const int16_t low = (int8_t)((uint32_t)x >> 8 * first & 0xffu);
    const int16_t high = (int8_t)((uint32_t)x >> 8 * (first + 2) & 0xffu);
    return (int32_t)(((uint32_t)low & 0xffffu) | (uint32_t)high << 16);
}
VEC_FN v16i v16i_even_bytes(v16i x) {
    V16I_EACH(bytes_apart(x.l[i], 0));
}
VEC_FN v16i v16i_odd_bytes(v16i x) {
    V16I_EACH(bytes_apart(x.l[i], 1));
}
VEC_FN v16 v16_of_v16i(v16i x) {
    V16_EACH((float)x.l[i]);
}
/* Each lane: sum + the products of its four unsigned bytes in u and signed bytes in s, exact. */
VEC_FN v16i v16i_dot_bytes(v16i sum, v16i u, v16i s) {
    v16i r = sum;
    for (int i = 0; i < 16; i++)
        for (int b = 0; b < 4; b++) {
            const int32_t x = (int32_t)((uint32_t)u.l[i] >> 8 * b & 0xffu);
            const int32_t y = (int8_t)((uint32_t)s.l[i] >> 8 * b & 0xffu);
            r.l[i] += x * y;
        }
    return r;
}
/* Sums of v16i_dot_bytes if every byte of u is at most 15: after at most V16I_NIBBLES additions,
 * v16i_nibbles_end returns the lanes, times 1 or 16. The intermediate form is the level's own. If
 * V16I_NIBBLES is more than 8, it is the lanes; otherwise it is halves of lanes (of u and s, bytes
 * 0 and 1, and bytes 2 and 3), which must stay below 2^15. The start is v16i_zero(), or halves. */
enum { V16I_NIBBLES = 1 << 30 };
VEC_FN v16i v16i_nibbles_add(v16i sum, v16i u, v16i s) {
    return v16i_dot_bytes(sum, u, s);
}
VEC_FN v16i v16i_nibbles_end(v16i sum, int16_t times) {
    V16I_EACH(sum.l[i] * times);
}

#endif
