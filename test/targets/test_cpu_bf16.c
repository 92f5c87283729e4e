/* linear_bf16 on cpu: every level of this machine computes gqn_dot_pairs, on weights and on codes,
 * and no bit depends on the number of rows or threads. The memory around x, and y itself, are NaN
 * before. */
#define NUMBERS_SEED 11
#include "levels.h"
#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numerics/reduce.h"
#include "ops/linear.h"
#include "targets/cpu/linear.h"
#include "targets/cpu/nbits.h"

enum { GUARD = 64 }; /* elements before and after x and y */

typedef struct problem {
    cpu_linear_job job;
    cpu_nbits_weights codes;
    float *w; /* [k][n], as multiplied, except for the rounding */
    unsigned char *x, *pairs, *words, *scales, *zeros, *bias, *y;
    size_t y_bytes, size;
} problem;

/* Mostly about 1; some are zeros, just below or above the least factor, subnormal, large or NaN. */
static float number(bool special) {
    const float x = ((float)(bits() & 0xffff) - 32768.0f) / 16384.0f;
    if (!special || bits() % 64)
        return x;
    static const float others[] = {0.0f,      -0.0f,      1e-40f, -1e-38f,         0x1p-56f,
                                   -0x1p-57f, 0x1.8p-56f, 3e4f,   0x1.fffffep127f, 1e-20f};
    const uint32_t i = bits() % 12;
    return i < 10 ? others[i] : i == 10 ? (float)INFINITY : (float)NAN;
}

static problem make(gqac_dtype dtype, int64_t rows, int64_t k, int64_t n, gqac_dtype bias,
                    bool special) {
    problem p = {.size = op_width(dtype)};
    p.job = (cpu_linear_job){.dtype = dtype, .rows = rows, .k = k, .n = n};
    p.y_bytes = ((size_t)(rows * n) + 2 * GUARD) * p.size;
    p.x = nans(((size_t)(rows * k) + 2 * GUARD) * p.size);
    p.y = nans(p.y_bytes);
    p.w = nans((size_t)(k * n) * sizeof(float));
    for (int64_t i = 0; i < rows * k; i++)
        put(p.x, GUARD + (size_t)i, dtype, number(special));
    if (bias) {
        p.bias = nans((size_t)n * op_width(bias));
        for (int64_t i = 0; i < n; i++)
            put(p.bias, (size_t)i, bias, number(special));
    }
    p.job.x = p.x + GUARD * p.size;
    p.job.y = p.y + GUARD * p.size;
    p.job.bias = p.bias;
    p.job.bias_dtype = bias;
    return p;
}

/* Weights as pairs, with zeros after k and n. */
static void add_weights(problem *p, bool special) {
    const int64_t n = p->job.n, k = p->job.k;
    const size_t bytes = (size_t)(linear_panels(n) * linear_pairs(k)) * LINEAR_PAIRS * 2;
    p->pairs = nans(bytes);
    memset(p->pairs, 0, bytes);
    for (int64_t i = 0; i < k; i++)
        for (int64_t c = 0; c < n; c++) {
            const int64_t line = c / LINEAR_PANEL * linear_pairs(k) + i / 2;
            p->w[i * n + c] = number(special);
            ((uint16_t *)(void *)p->pairs)[line * LINEAR_PAIRS + c % LINEAR_PANEL * 2 + i % 2] =
                gqn_bf16_factor(p->w[i * n + c]);
        }
    p->job.w = p->pairs;
}

/* Codes, scales and zero points, with zeros after k and n, as from the packer. */
static void add_codes(problem *p, int width, int64_t block, gqac_dtype scale, gqac_dtype zero) {
    const int64_t n = p->job.n, k = p->job.k, per = 32 / width;
    const nbits_shape s = nbits_shape_of(k, n, width, block);
    const size_t cells = (size_t)(s.panels * s.blocks) * NBITS_COLUMNS;
    p->words = nans((size_t)(s.panels * s.words) * NBITS_WORD_BYTES);
    memset(p->words, 0, (size_t)(s.panels * s.words) * NBITS_WORD_BYTES);
    p->scales = nans(cells * op_width(scale));
    p->zeros = zero ? nans(cells * op_width(zero)) : NULL;
    for (size_t i = 0; i < cells; i++) {
        put(p->scales, i, scale, number(false));
        if (zero == GQAC_U8)
            p->zeros[i] = (uint8_t)(bits() % (1u << width));
        else if (zero)
            put(p->zeros, i, zero, number(false));
    }
    for (int64_t c = 0; c < n; c++)
        for (int64_t i = 0; i < s.words * per; i += per) {
            const int64_t panel = c / NBITS_COLUMNS, column = c % NBITS_COLUMNS;
            uint32_t word = 0;
            for (int64_t j = 0; j < per && i + j < k; j++) {
                const int64_t at = (panel * s.blocks + (i + j) / block) * NBITS_COLUMNS + column;
                const uint32_t code = bits() % (1u << width);
                const float z = !zero             ? (float)(1 << (width - 1))
                                : zero == GQAC_U8 ? (float)p->zeros[at]
                                                  : get(p->zeros, (size_t)at, zero);
                word |= code << j * width;
                p->w[(i + j) * n + c] = ((float)code - z) * get(p->scales, (size_t)at, scale);
            }
            word = nbits_pack_word(word, width);
            memcpy(p->words + ((panel * s.words + i / per) * NBITS_COLUMNS + column) * 4, &word, 4);
        }
    p->codes = (cpu_nbits_weights){.shape = s,
                                   .codes = p->words,
                                   .scales = p->scales,
                                   .zeros = p->zeros,
                                   .scale_type = scale,
                                   .zero_type = zero};
    p->job.codes = &p->codes;
}

static void drop(problem *p) {
    void *const all[] = {p->w, p->x, p->pairs, p->words, p->scales, p->zeros, p->bias, p->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void compute(const cpu_linear_job *job, const cpu_level *level, gqac_pool *pool) {
    gqac_diag diag;
    const op_work work = {.pool = pool, .diag = &diag};
    CU_ASSERT_FATAL(cpu_linear_do(&work, level->linear_bf16, job, 1, NULL) == GQAC_OK);
}

/* y by the definition of the contract, element by element. */
static void define(const problem *p, unsigned char *y) {
    const cpu_linear_job *job = &p->job;
    float *row = nans((size_t)job->k * 4);
    for (int64_t m = 0; m < job->rows; m++) {
        for (int64_t k = 0; k < job->k; k++)
            row[k] = get(job->x, (size_t)(m * job->k + k), job->dtype);
        for (int64_t n = 0; n < job->n; n++) {
            float sum = gqn_dot_pairs(row, 1, p->w + n, job->n, (size_t)job->k);
            if (job->bias)
                sum += get(job->bias, (size_t)n, p->job.bias_dtype);
            if (sum != sum)
                sum = gqn_as_f32(GQN_NAN_BITS);
            put(y, GUARD + (size_t)(m * job->n + n), job->dtype, sum);
        }
    }
    free(row);
}

/* Checks all levels that this machine can run. */
static void check(problem *p, gqac_pool *pool) {
    const cpu_level *level[MAX_LEVELS];
    unsigned char *wanted = nans(p->y_bytes);
    define(p, wanted);
    for (int i = 0, n = find_levels(level); i < n; i++) {
        memset(p->y, 0xff, p->y_bytes);
        compute(&p->job, level[i], pool);
        const bool same = memcmp(p->y, wanted, p->y_bytes) == 0;
        CU_ASSERT_TRUE(same);
        if (!same)
            printf("%s, dtype %d, rows %d, k %d, n %d, bias %d, codes %d\n", level[i]->name,
                   (int)p->job.dtype, (int)p->job.rows, (int)p->job.k, (int)p->job.n,
                   (int)p->job.bias_dtype, p->job.codes != NULL);
    }
    free(wanted);
}

static const gqac_dtype dtypes[] = {GQAC_F32, GQAC_F16, GQAC_BF16, GQAC_NONE};

static void test_weights(void) {
    static const int ks[] = {1, 2, 3, 4, 5, 17, 64, 511, 512, 513, 514, 1023, 1025, 1100};
    static const int ns[] = {1, 5, 16, 63, 64, 65, 100, 128, 129, 300};
    for (int i = 0; i < unit_count(120, 1000); i++) {
        const int64_t rows = i < 110 ? 1 + i % 30 : 95 + below(10);
        const bool special = below(2);
        problem p =
            make(dtypes[below(3)], rows, ks[below(14)], ns[below(10)], dtypes[below(4)], special);
        add_weights(&p, special);
        check(&p, NULL);
        drop(&p);
    }
}

static void test_codes(void) {
    static const gqac_dtype zeros[] = {GQAC_NONE, GQAC_U8, GQAC_F32, GQAC_F16};
    static const int ks[] = {16, 31, 64, 100, 512, 515, 1024, 1031};
    for (int i = 0; i < unit_count(72, 500); i++) {
        problem p = make(dtypes[below(3)], 1 + i % 17, ks[below(8)], 1 + below(140),
                         dtypes[below(4)], below(2));
        add_codes(&p, 2 << i % 3, 16 << below(6), dtypes[below(3)], zeros[i / 3 % 4]);
        check(&p, NULL);
        drop(&p);
    }
}

/* A row has the bits that it has alone, with any other rows and any number of threads. */
static void test_rows_and_threads(void) {
    static const int threads[] = {1, 2, 3, 5};
    const cpu_level *level[MAX_LEVELS];
    const cpu_level *best = level[find_levels(level) - 1];
    for (int t = 0; t < 4; t++) {
        gqac_pool *pool;
        gqac_diag diag;
        CU_ASSERT_FATAL(gqac_pool_create(threads[t], &pool, &diag) == GQAC_OK);
        for (int64_t rows = 1; rows <= 27; rows += t ? 13 : 1) {
            problem p = make(GQAC_F32, rows, 1030, 64 * 9 + 17, GQAC_F32, false);
            add_weights(&p, false);
            const size_t row = (size_t)p.job.n * p.size;
            unsigned char *alone = nans(row);
            compute(&p.job, best, pool);
            for (int64_t r = 0; r < rows; r++) {
                cpu_linear_job one = p.job;
                one.rows = 1;
                one.x = p.x + (GUARD + (size_t)(r * one.k)) * p.size;
                one.y = alone;
                compute(&one, best, NULL);
                CU_ASSERT(memcmp(alone, p.y + GUARD * p.size + (size_t)r * row, row) == 0);
            }
            free(alone);
            drop(&p);
        }
        gqac_pool_free(pool);
    }
}

/* The requirement of a level on its machine holds on this machine. */
static void test_promise(void) {
    const cpu_level *level[MAX_LEVELS];
    for (int i = 0, n = find_levels(level); i < n; i++)
        CU_ASSERT_TRUE(level[i]->pairs_hold());
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"levels give the product of pairs", test_weights},
        {"codes are factors", test_codes},
        {"rows and threads", test_rows_and_threads},
        {"pairs are multiplied one after the other", test_promise},
    };
    return unit_run("cpu_bf16", cases, sizeof cases / sizeof *cases, argc, argv);
}
