/* vec.h in plain C: the definition of every operation. */
#ifndef GQAC_TARGETS_CPU_LEVEL_VEC_SCALAR_H
#define GQAC_TARGETS_CPU_LEVEL_VEC_SCALAR_H

enum { V16_REGISTERS = 16 }; /* of a whole v16 that a tile may hope for */

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
/* x, in registers from here on: compilers like to read what several operations share from memory
 * in each of them. */
VEC_FN v16 v16_keep(v16 x) {
    return x;
}
VEC_FN void v16_store(float *p, v16 x) {
    for (int i = 0; i < 16; i++)
        p[i] = x.l[i];
}
/* The first n lanes; the others are +0, and their memory is not touched. */
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
/* Sixteen rows of sixteen floats become columns: to[i * ld + j] = from[j * step + i]. */
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
/* p with (bits of t - bits of magic) << 23 added to its bits: times a power of two. */
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
/* The low 32 bits of the product. */
VEC_FN v16i v16i_mul(v16i a, v16i b) {
    V16I_EACH((int32_t)((uint32_t)a.l[i] * (uint32_t)b.l[i]));
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
/* Sums of v16i_dot_bytes where every byte of u is at most 15 and none of s is -128: up to
 * V16I_NIBBLES of them from v16i_zero(), then v16i_nibbles_end gives the lanes. What lies between
 * is the level's own; where V16I_NIBBLES is more than 8 it is the lanes. */
enum { V16I_NIBBLES = 1 << 30 };
VEC_FN v16i v16i_nibbles_add(v16i sum, v16i u, v16i s) {
    return v16i_dot_bytes(sum, u, s);
}
VEC_FN v16i v16i_nibbles_end(v16i sum) {
    return sum;
}

#endif
