/* vec.h at one level, for test_vec.c: see probe_vec.h. With PROBE_SIMDE it is compiled for AVX-512
 * with SIMDe's portable intrinsics, for machines that lack the instructions. */
#ifdef PROBE_SIMDE
#include "targets/simde.h"
#endif
#include "targets/cpu/level/level.h"
#include "targets/cpu/level/pairs.h"

#include "targets/probe_vec.h"

#define FLOAT_OP(name, expression)                                                                 \
    static void float_##name(float *out, const float *pa, const float *pb, const float *pc) {      \
        const v16 a = v16_load(pa), b = v16_load(pb), c = v16_load(pc);                            \
        (void)a, (void)b, (void)c;                                                                 \
        v16_store(out, expression);                                                                \
    }
FLOAT_OP(zero, v16_zero())
FLOAT_OP(set1, v16_set1(pa[3]))
FLOAT_OP(load, a)
FLOAT_OP(keep, v16_keep(a))
FLOAT_OP(fma, v16_fma(a, b, c))
FLOAT_OP(add, v16_add(a, b))
FLOAT_OP(sub, v16_sub(a, b))
FLOAT_OP(mul, v16_mul(a, b))
FLOAT_OP(div, v16_div(a, b))
FLOAT_OP(abs, v16_abs(a))
FLOAT_OP(one_nan, v16_one_nan(a))
FLOAT_OP(max_step, v16_max_step(a, b))
FLOAT_OP(greater_select, v16_select(m16_greater(a, b), c, a))
FLOAT_OP(scale_bits, v16_scale_bits(a, b, c))
FLOAT_OP(exp, v16_exp(a))

/* Factors stored one by one, and products of pairs whose sums start as pairs.h requires. */
static void float_factors(float *out, const float *pa, const float *pb, const float *pc) {
    uint16_t factors[16];
    (void)pb, (void)pc;
    v16_put_factors(factors, v16_load(pa));
    v16_store(out, v16_load_bf16(factors));
}
static void float_dot_pairs(float *out, const float *pa, const float *pb, const float *pc) {
    uint32_t pairs[16], others[16];
    const v16 c = v16_load(pc), least = v16_set1(0x1p-102f);
    v16p_put(pairs, v16_load(pa), v16_load(pb));
    v16p_put(others, v16_load(pb), v16_load(pc));
    v16 sum = v16_select(m16_greater(least, v16_abs(c)), v16_zero(), c);
    sum = v16p_dot(sum, v16p_load(pairs), v16p_load(others));
    v16_store(out, v16p_dot(sum, v16p_spread(pairs + 3), v16p_load(others)));
}

static const probe_float floats[] = {
    {"zero", float_zero, true},
    {"set1", float_set1, true},
    {"load and store", float_load, true},
    {"keep", float_keep, true},
    {"fma", float_fma, false},
    {"add", float_add, false},
    {"sub", float_sub, false},
    {"mul", float_mul, false},
    {"div", float_div, false},
    {"abs", float_abs, true},
    {"one_nan", float_one_nan, true},
    {"max_step", float_max_step, true},
    {"greater, select", float_greater_select, true},
    {"scale_bits", float_scale_bits, true},
    {"factors", float_factors, false},
    {"dot of pairs", float_dot_pairs, false},
    {"exp", float_exp, true},
};

#define INT_OP(name, expression)                                                                   \
    static void int_##name(int32_t *out, const int32_t *pa, const int32_t *pb,                     \
                           const int32_t *pc) {                                                    \
        const v16i a = v16i_load(pa), b = v16i_load(pb), c = v16i_load(pc);                        \
        (void)a, (void)b, (void)c;                                                                 \
        v16i_store(out, expression);                                                               \
    }
INT_OP(zero, v16i_zero())
INT_OP(set1, v16i_set1(pa[3]))
INT_OP(load, a)
INT_OP(and, v16i_and(a, b))
INT_OP(add, v16i_add(a, b))
INT_OP(sub, v16i_sub(a, b))
INT_OP(mul_pairs, v16i_mul_pairs(a, b))
INT_OP(dot_pairs, v16i_dot_pairs(a, b))
INT_OP(dot_pairs_add, v16i_dot_pairs_add(c, a, b))
INT_OP(even_bytes, v16i_even_bytes(a))
INT_OP(odd_bytes, v16i_odd_bytes(a))
INT_OP(dot_bytes, v16i_dot_bytes(v16i_shr(c, 2), a, b))

/* Bytes as fp32, whose bits are compared. */
#define BYTES_OP(name, expression)                                                                 \
    static void int_##name(int32_t *out, const int32_t *pa, const int32_t *pb,                     \
                           const int32_t *pc) {                                                    \
        float to[16];                                                                              \
        (void)pb, (void)pc;                                                                        \
        v16_store(to, expression);                                                                 \
        memcpy(out, to, sizeof to);                                                                \
    }
BYTES_OP(load_i8, v16_load_i8((const int8_t *)pa))
BYTES_OP(load_i4_low, v16_load_i4((const uint8_t *)pa, 0))
BYTES_OP(load_i4_high, v16_load_i4((const uint8_t *)pa, 1))
BYTES_OP(load_i4_pairs, v16_load_i4_pairs((const uint8_t *)pa))

static const probe_int ints[] = {
    {"zero", int_zero},
    {"set1", int_set1},
    {"load", int_load},
    {"and", int_and},
    {"add", int_add},
    {"sub", int_sub},
    {"mul_pairs", int_mul_pairs},
    {"dot_pairs", int_dot_pairs},
    {"dot_pairs_add", int_dot_pairs_add},
    {"even_bytes", int_even_bytes},
    {"odd_bytes", int_odd_bytes},
    {"dot_bytes", int_dot_bytes},
    {"load_i8", int_load_i8},
    {"load_i4, low", int_load_i4_low},
    {"load_i4, high", int_load_i4_high},
    {"load_i4_pairs", int_load_i4_pairs},
};

static uint32_t mask_greater(const float *a, const float *b) {
    return m16_bits(m16_greater(v16_load(a), v16_load(b)));
}
static uint32_t mask_unordered(const float *a, const float *b) {
    (void)b;
    return m16_bits(m16_unordered(v16_load(a)));
}

static const probe_mask masks[] = {
    {"greater", mask_greater},
    {"unordered", mask_unordered},
};

static void load_n(float *out, const float *p, int n) {
    v16_store(out, v16_load_n(p, n));
}
static void store_n(float *p, const float *x, int n) {
    v16_store_n(p, v16_load(x), n);
}
static void load_f16(float *out, const uint16_t *p) {
    v16_store(out, v16_load_f16(p));
}
static void load_bf16(float *out, const uint16_t *p) {
    v16_store(out, v16_load_bf16(p));
}
static void select_bits(float *out, uint32_t bits, const float *yes, const float *no) {
    v16_store(out, v16_select(m16_of_bits(bits), v16_load(yes), v16_load(no)));
}
static void shift(int32_t *out, const int32_t *x, int n) {
    v16i_store(out, v16i_shr(v16i_load(x), n));
}
static void of_ints(float *out, const int32_t *x) {
    v16_store(out, v16_of_v16i(v16i_load(x)));
}
static uint32_t bits_of_bits(uint32_t bits) {
    return m16_bits(m16_of_bits(bits));
}
static uint32_t range(int from, int to) {
    return m16_bits(m16_range(from, to));
}
static float fold(const float *x) {
    return v16_fold(v16_load(x));
}
static float fold_max(const float *x) {
    return v16_fold_max(v16_load(x));
}
static void to_i8(int8_t *out, const float *x) {
    v16_store_i8(out, v16_load(x));
}
static void nibbles(int32_t *out, const int32_t *u, const int32_t *s, bool times16) {
    v16i sum = v16i_zero();
    for (int i = 0; i < 8; i++)
        sum = v16i_nibbles_add(sum, v16i_and(v16i_load(u + 16 * i), v16i_set1(0x0f0f0f0f)),
                               v16i_load(s + 16 * i));
    v16i_store(out, times16 ? v16i_nibbles_end(sum, 16) : v16i_nibbles_end(sum, 1));
}

static void transpose(float *to, const float *from) {
    v16_transpose(from, 20, to, 24);
}

enum {
    N_FLOATS = (int)(sizeof floats / sizeof *floats),
    N_INTS = (int)(sizeof ints / sizeof *ints),
    N_MASKS = (int)(sizeof masks / sizeof *masks)
};

extern const vec_probe CPU_NAME(probe_vec);
const vec_probe CPU_NAME(probe_vec) = {.level = CPU_TEXT(CPU_LEVEL),
                                       .floats = floats,
                                       .ints = ints,
                                       .masks = masks,
                                       .n_floats = N_FLOATS,
                                       .n_ints = N_INTS,
                                       .n_masks = N_MASKS,
                                       .load_n = load_n,
                                       .store_n = store_n,
                                       .load_f16 = load_f16,
                                       .load_bf16 = load_bf16,
                                       .select = select_bits,
                                       .shift = shift,
                                       .of_ints = of_ints,
                                       .bits = bits_of_bits,
                                       .range = range,
                                       .fold = fold,
                                       .fold_max = fold_max,
                                       .to_i8 = to_i8,
                                       .nibbles = nibbles,
                                       .transpose = transpose};
