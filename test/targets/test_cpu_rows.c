/* Row kernels of the cpu target: every level that this machine can run computes the bits of the
 * scalar one, for odd sizes, every type, and values of every kind; and the scalar one computes
 * those of numerics/math.h and of the reductions of the contract. Buffers are as long as the rows,
 * so that a sanitizer detects accesses outside them. */
#include "targets/cpu/rows.h"
#include "targets/heads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "levels.h"
#include "numerics/convert.h"
#include "numerics/math.h"
#include "numerics/reduce.h"
#include "unit.h"

static const gqac_dtype types[] = {GQAC_F32, GQAC_F16, GQAC_BF16};
enum { N_TYPES = 3 };

/* ---- values -------------------------------------------------------------- */

static uint64_t state = 1;

static uint32_t bits(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) ^ (uint32_t)(state >> 11);
}

/* Mostly of moderate size; with `wild` also any bit pattern: NaN, infinities, subnormals. */
static float value(bool wild) {
    if (wild && bits() % 4 == 0)
        return gqn_as_f32(bits());
    return ((float)(bits() % 20001) - 10000.0f) / (bits() % 2 ? 2000.0f : 90000.0f);
}

static size_t width(gqac_dtype type) {
    return type == GQAC_F32 ? 4 : 2;
}

static float get(const void *p, gqac_dtype type, int64_t i) {
    if (type == GQAC_F32)
        return ((const float *)p)[i];
    const uint16_t half = ((const uint16_t *)p)[i];
    return type == GQAC_F16 ? gqn_f16_to_f32(half) : gqn_bf16_to_f32(half);
}

static float round_to(float x, gqac_dtype type) {
    if (type == GQAC_F16)
        return gqn_f16_to_f32(gqn_f32_to_f16(x));
    return type == GQAC_BF16 ? gqn_bf16_to_f32(gqn_f32_to_bf16(x)) : x;
}

static void *floats(gqac_dtype type, int64_t n, bool wild) {
    void *p = malloc((size_t)n * width(type) + (n == 0));
    for (int64_t i = 0; i < n; i++) {
        const float x = value(wild);
        if (type == GQAC_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = type == GQAC_F16 ? gqn_f32_to_f16(x) : gqn_f32_to_bf16(x);
    }
    return p;
}

static void *unwritten(gqac_dtype type, int64_t n) {
    return memset(malloc((size_t)n * width(type) + (n == 0)), 0xff, (size_t)n * width(type));
}

/* x with any NaN made canonical, so that values are compared. */
static uint32_t canonical(float x) {
    return x != x ? GQN_NAN_BITS : gqn_as_u32(x);
}

/* ---- norms --------------------------------------------------------------- */

enum { ROWS = 3 };

/* The formula of norm_eval on the rows of p. */
static void norm_definition(const cpu_norm *p, float *y) {
    float *x = malloc((size_t)p->n * sizeof *x);
    for (int64_t r = 0; r < ROWS; r++) {
        for (int64_t i = 0; i < p->n; i++) {
            x[i] = get(p->x, p->type, r * p->n + i);
            if (p->skip)
                x[i] += get(p->skip, p->type, r % p->skip_rows * p->n + i);
            if (p->round_sum)
                x[i] = round_to(x[i], p->type);
            if (p->bias)
                x[i] += get(p->bias, p->bias_type, i);
        }
        const float mean = p->centred ? gqn_lane_sum(x, (size_t)p->n) / (float)p->n : 0.0f;
        for (int64_t i = 0; p->centred && i < p->n; i++)
            x[i] -= mean;
        const float inv = gqn_rsqrt(gqn_lane_sum_sq(x, (size_t)p->n) / (float)p->n + p->epsilon);
        for (int64_t i = 0; i < p->n; i++) {
            float v = x[i] * inv;
            v = (p->round_before ? round_to(v, p->type) : v) * get(p->weight, p->weight_type, i);
            v = p->beta ? v + get(p->beta, p->beta_type, i) : v;
            y[r * p->n + i] = round_to(v, p->y_type);
        }
    }
    free(x);
}

static void compare_norm(const cpu_norm *given, const cpu_level *const *levels, int n_levels) {
    const int64_t count = ROWS * given->n;
    const size_t y_bytes = (size_t)count * width(given->y_type);
    const size_t sum_bytes = (size_t)count * width(given->type);
    float *expected = malloc((size_t)count * sizeof *expected);
    unsigned char *first_y = NULL, *first_sum = NULL;
    norm_definition(given, expected);
    for (int l = 0; l < n_levels; l++) {
        cpu_norm p = *given;
        float mean[2][ROWS];
        p.y = unwritten(p.y_type, count);
        p.sum = unwritten(p.type, count);
        p.mean = mean[0];
        p.inv = mean[1];
        levels[l]->row->norm(&p, 0, 1);
        levels[l]->row->norm(&p, 1, ROWS);
        if (l == 0) {
            for (int64_t i = 0; i < count; i++)
                CU_ASSERT_EQUAL(canonical(get(p.y, p.y_type, i)), canonical(expected[i]));
            first_y = p.y;
            first_sum = p.sum;
            continue;
        }
        CU_ASSERT(memcmp(p.y, first_y, y_bytes) == 0);
        CU_ASSERT(memcmp(p.sum, first_sum, sum_bytes) == 0);
        free(p.y);
        free(p.sum);
    }
    free(first_y);
    free(first_sum);
    free(expected);
}

static void test_norm(void) {
    static const int64_t sizes[] = {1, 5, 15, 16, 17, 48, 96, 100, 1000};
    const cpu_level *levels[MAX_LEVELS];
    const int n_levels = find_levels(levels);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int form = 0; form < 3 * 3 * 64; form++) {
            const int flags = form % 64;
            const gqac_dtype type = types[form / 64 % N_TYPES], other = types[form / 192];
            const int64_t n = sizes[s], skip_rows = flags & 1 ? ROWS : 1;
            const bool wild = form % 5 == 0, onnx = (flags & 2) != 0;
            cpu_norm p = {.n = n,
                          .skip_rows = skip_rows,
                          .epsilon = 1e-5f,
                          .centred = (flags & 4) != 0,
                          .round_before = onnx && type != GQAC_F32,
                          .round_sum = (flags & 32) != 0,
                          .type = type,
                          .weight_type = other,
                          .bias_type = type,
                          .beta_type = other,
                          .y_type = onnx ? other : type};
            void *x = floats(type, ROWS * n, wild), *weight = floats(other, n, false);
            void *skip = flags & 8 ? floats(type, skip_rows * n, false) : NULL;
            void *bias = flags & 8 && flags & 16 ? floats(type, n, false) : NULL;
            void *beta = flags & 16 ? floats(other, n, false) : NULL;
            p.x = x;
            p.skip = skip;
            p.bias = bias;
            p.weight = weight;
            p.beta = beta;
            compare_norm(&p, levels, n_levels);
            free(x);
            free(skip);
            free(bias);
            free(weight);
            free(beta);
        }
}

/* ---- heads --------------------------------------------------------------- */

static void head_definition(const cpu_head *p, const void *in, const void *cos, const void *sin,
                            float *y) {
    float *x = malloc((size_t)p->size * sizeof *x);
    for (int64_t i = 0; i < p->size; i++)
        x[i] = get(in, p->x_type, i);
    if (p->weight) {
        const float inv =
            gqn_rsqrt(gqn_lane_sum_sq(x, (size_t)p->size) / (float)p->size + p->epsilon);
        for (int64_t i = 0; i < p->size; i++) {
            const float v = p->round_before ? round_to(x[i] * inv, p->x_type) : x[i] * inv;
            x[i] = round_to(v * get(p->weight, p->weight_type, i), p->type);
        }
    }
    memcpy(y, x, (size_t)p->size * sizeof *y);
    for (int64_t i = 0; i < p->half; i++) {
        const int64_t first = p->interleaved ? 2 * i : i;
        const int64_t second = p->interleaved ? 2 * i + 1 : i + p->half;
        const float c = get(cos, p->table_type, i), t = get(sin, p->table_type, i);
        y[first] = round_to(gqn_fma(x[first], c, -(x[second] * t)), p->type);
        y[second] = round_to(gqn_fma(x[second], c, x[first] * t), p->type);
    }
    free(x);
}

static void compare_head(const cpu_head *p, const cpu_level *const *levels, int n_levels,
                         bool wild) {
    void *x = floats(p->x_type, p->size, wild);
    void *cos = floats(p->table_type, p->half, false), *sin = floats(p->table_type, p->half, wild);
    float *expected = malloc((size_t)p->size * sizeof *expected);
    unsigned char *first = NULL;
    head_definition(p, x, cos, sin, expected);
    for (int l = 0; l < n_levels; l++) {
        unsigned char *y = unwritten(p->type, p->size);
        levels[l]->row->head(p, x, cos, sin, y);
        if (l == 0) {
            for (int64_t i = 0; i < p->size; i++)
                CU_ASSERT_EQUAL(canonical(get(y, p->type, i)), canonical(expected[i]));
            first = y;
            continue;
        }
        CU_ASSERT(memcmp(y, first, (size_t)p->size * width(p->type)) == 0);
        free(y);
    }
    free(first);
    free(expected);
    free(x);
    free(cos);
    free(sin);
}

static void test_head(void) {
    static const int64_t sizes[][2] = {{2, 1},   {16, 8},  {48, 24},  {48, 16},
                                       {80, 40}, {64, 32}, {100, 33}, {TARGET_HEAD_SIZE, 512}};
    const cpu_level *levels[MAX_LEVELS];
    const int n_levels = find_levels(levels);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int form = 0; form < 27 * 4; form++) {
            const gqac_dtype x = types[form % 3], other = types[form / 3 % 3];
            const bool normed = form / 27 & 1, onnx = other != x || form % 2 == 0;
            void *weight = normed ? floats(other, sizes[s][0], false) : NULL;
            const cpu_head p = {.size = sizes[s][0],
                                .half = sizes[s][1],
                                .interleaved = form / 54,
                                .round_before = normed && onnx && x != GQAC_F32,
                                .epsilon = 1e-6f,
                                .x_type = x,
                                .weight_type = other,
                                .type = normed && onnx ? other : x,
                                .table_type = types[form / 9 % 3],
                                .weight = weight};
            compare_head(&p, levels, n_levels, form % 4 == 1);
            free(weight);
        }
}

/* ---- chains -------------------------------------------------------------- */

static float step_definition(const target_step *s, float a, float b) {
    switch (s->kind) {
    case TARGET_ADD:
        return a + b;
    case TARGET_SUB:
        return a - b;
    case TARGET_MUL:
        return a * b;
    case TARGET_DIV:
        return a / b;
    case TARGET_NEG:
        return -a;
    case TARGET_SQRT:
        return gqn_sqrt(a);
    case TARGET_SIGMOID:
        return gqn_sigmoidf(a);
    case TARGET_TANH:
        return gqn_tanhf(a);
    case TARGET_ERF:
        return gqn_erff(a);
    case TARGET_SWISH:
        return a * gqn_sigmoidf(s->param * a);
    case TARGET_GELU:
        return 0.5f * a * (1.0f + gqn_erff(a * 0x1.6a09e6p-1f));
    case TARGET_GELU_TANH:
        return 0.5f * a * (1.0f + gqn_tanhf(0x1.988454p-1f * (a + 0.044715f * (a * a * a))));
    case TARGET_FAST_GELU:
        return 0.5f * a * (1.0f + gqn_tanhf(a * (0.035677408f * (a * a) + 0.7978845608f)));
    case TARGET_CAST:
        return a;
    }
    return 0;
}

/* Runs a chain on each level; false if a result differs from that of the first level, which is in
 * *y. */
static void run_chain(const cpu_chain *given, const cpu_level *const *levels, int n_levels,
                      void **y) {
    const int64_t count = given->rows * given->n;
    for (int l = 0; l < n_levels; l++) {
        cpu_chain p = *given;
        const size_t items = (size_t)(p.rows * p.pieces);
        p.y = unwritten(p.type, count);
        levels[l]->row->chain(&p, 0, items / 2);
        levels[l]->row->chain(&p, items / 2, items);
        if (l == 0) {
            *y = p.y;
            continue;
        }
        CU_ASSERT(memcmp(p.y, *y, (size_t)count * width(p.type)) == 0);
        free(p.y);
    }
}

/* Every kind of step, on a stride of all bit patterns. */
static void test_steps(void) {
    enum { N = 1 << 16 };
    const cpu_level *levels[MAX_LEVELS];
    const int n_levels = find_levels(levels);
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    const uint32_t stride = unit_full() ? 4099 : 65521;
    for (int kind = 0; kind <= TARGET_CAST; kind++)
        for (int type = 0; type < N_TYPES; type++)
            for (uint64_t start = 0; start < (uint64_t)1 << 32; start += (uint64_t)stride * N) {
                for (int i = 0; i < N; i++) {
                    a[i] = gqn_as_f32((uint32_t)(start + (uint64_t)stride * (uint64_t)i));
                    b[i] = value(true);
                }
                const target_step s = {.kind = (target_step_kind)kind,
                                       .a = 0,
                                       .b = 1,
                                       .to = TARGET_CHAIN_LEAVES,
                                       .type = types[type],
                                       .param = 1.702f};
                const cpu_chain p = {
                    .n_leaves = 2,
                    .n_steps = 1,
                    .leaves = {{a, GQAC_F32, TARGET_LEAF_FULL}, {b, GQAC_F32, TARGET_LEAF_FULL}},
                    .steps = {s},
                    .rows = 1,
                    .n = N,
                    .pieces = N / CPU_CHAIN_PIECE,
                    .type = types[type]};
                void *y = NULL;
                int wrong = 0;
                run_chain(&p, levels, n_levels, &y);
                for (int i = 0; i < N; i++)
                    wrong += canonical(get(y, types[type], i)) !=
                             canonical(round_to(step_definition(&s, a[i], b[i]), types[type]));
                CU_ASSERT_EQUAL(wrong, 0);
                free(y);
            }
    free(a);
    free(b);
}

/* (sigmoid(a) * a + row) * one, rounded after each step, for sizes around a vector and a piece. */
static void test_forms(void) {
    static const int64_t sizes[] = {1, 15, 16, 17, 255, 256, 257, 300, 513};
    const cpu_level *levels[MAX_LEVELS];
    const int n_levels = find_levels(levels);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int t = 0; t < N_TYPES; t++) {
            const int64_t n = sizes[s], count = 3 * n;
            const gqac_dtype type = types[t];
            enum { R0 = TARGET_CHAIN_LEAVES, R1 };
            void *a = floats(type, count, true), *row = floats(type, n, true);
            void *one = floats(type, 1, false), *y = NULL;
            const cpu_chain p = {.n_leaves = 3,
                                 .n_steps = 4,
                                 .leaves = {{a, type, TARGET_LEAF_FULL},
                                            {row, type, TARGET_LEAF_ROW},
                                            {one, type, TARGET_LEAF_ONE}},
                                 .steps = {{TARGET_SIGMOID, 0, 0, R0, type, 0},
                                           {TARGET_MUL, R0, 0, R1, type, 0},
                                           {TARGET_ADD, R1, 1, R0, type, 0},
                                           {TARGET_MUL, R0, 2, R1, type, 0}},
                                 .rows = 3,
                                 .n = n,
                                 .pieces = (n + CPU_CHAIN_PIECE - 1) / CPU_CHAIN_PIECE,
                                 .type = type};
            run_chain(&p, levels, n_levels, &y);
            for (int64_t i = 0; i < count; i++) {
                const float x = get(a, type, i);
                float v = round_to(round_to(gqn_sigmoidf(x), type) * x, type);
                v = round_to(v + get(row, type, i % n), type) * get(one, type, 0);
                CU_ASSERT_EQUAL(canonical(get(y, type, i)), canonical(round_to(v, type)));
            }
            free(a);
            free(row);
            free(one);
            free(y);
        }
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"norms", test_norm},
        {"heads", test_head},
        {"every step", test_steps},
        {"chains of every form", test_forms},
    };
    return unit_run("cpu rows", cases, sizeof cases / sizeof *cases, argc, argv);
}
