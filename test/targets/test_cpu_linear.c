/* linear on cpu: the scalar level is the contract, every level of this machine computes its bits,
 * and no bit depends on the number of rows or threads. The memory around x, and y itself, are NaN
 * before; the memory around y is unchanged after. */
#define NUMBERS_SEED 7
#include "levels.h"
#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numerics/reduce.h"
#include "ops/linear.h"
#include "targets/cpu/linear.h"

extern const struct cpu_linear_kernels cpu_linear_scalar;
#if defined(__x86_64__)
extern const struct cpu_linear_kernels cpu_linear_avx2, cpu_linear_avx512, cpu_linear_avx512vnni,
    cpu_linear_avx512bf16;
#endif

enum { GUARD = 64 }; /* elements before and after x and y */

typedef struct problem {
    cpu_linear_job job;
    unsigned char *x, *w, *bias, *y;
    size_t x_bytes, w_bytes, y_bytes, size;
} problem;

static const gqac_dtype dtypes[] = {GQAC_F32, GQAC_F16, GQAC_BF16};

/* Mostly about 1; some are zeros, subnormals of every type, large, infinite or NaN. */
static float number(bool special) {
    const float x = ((float)(bits() & 0xffff) - 32768.0f) / 16384.0f;
    if (!special || bits() % 64)
        return x;
    static const float others[] = {0.0f, -0.0f, 1e-40f, -6e-8f, 1e-30f, 3e4f, -3e38f, 1e30f};
    const uint32_t i = bits() % 10;
    return i < 8 ? others[i] : i == 8 ? (float)INFINITY : (float)NAN;
}

/* The bias has a type of its own. */
static problem make(gqac_dtype dtype, int64_t rows, int64_t k, int64_t n, bool bias, bool special) {
    const gqac_dtype bias_dtype = dtypes[bits() % 3];
    problem p = {.job = {.dtype = dtype,
                         .w_dtype = dtype,
                         .bias_dtype = bias_dtype,
                         .rows = rows,
                         .k = k,
                         .n = n}};
    const size_t size = p.size = op_width(dtype), panels = (size_t)linear_panels(n);
    p.x_bytes = ((size_t)(rows * k) + 2 * GUARD) * size;
    p.w_bytes = panels * (size_t)k * LINEAR_PANEL * size;
    p.y_bytes = ((size_t)(rows * n) + 2 * GUARD) * size;
    p.x = nans(p.x_bytes);
    p.w = nans(p.w_bytes);
    p.bias = nans((size_t)n * op_width(bias_dtype));
    p.y = nans(p.y_bytes);
    for (int64_t i = 0; i < rows * k; i++)
        put(p.x, GUARD + (size_t)i, dtype, number(special));
    for (int64_t i = 0; i < (int64_t)panels * k * LINEAR_PANEL; i++)
        put(p.w, (size_t)i, dtype,
            i / (k * LINEAR_PANEL) * LINEAR_PANEL + i % LINEAR_PANEL < n ? number(special) : 0);
    for (int64_t i = 0; i < n; i++)
        put(p.bias, (size_t)i, bias_dtype, number(special));
    p.job.x = p.x + GUARD * size;
    p.job.w = p.w;
    p.job.bias = bias ? p.bias : NULL;
    p.job.y = p.y + GUARD * size;
    return p;
}

static void drop(problem *p) {
    free(p->x);
    free(p->w);
    free(p->bias);
    free(p->y);
}

static void clear(problem *p) {
    memset(p->y, 0xff, p->y_bytes);
}

static void compute(const cpu_linear_job *job, const struct cpu_linear_kernels *kernels,
                    gqac_pool *pool) {
    gqac_diag diag;
    const op_work work = {.pool = pool, .diag = &diag};
    CU_ASSERT_FATAL(cpu_linear_do(&work, kernels, job, 1, NULL) == GQAC_OK);
}

/* y by the definition of the contract, element by element. */
static void define(const problem *p, unsigned char *y) {
    const cpu_linear_job *job = &p->job;
    const gqac_dtype dtype = job->dtype;
    float *row = nans((size_t)job->k * 4), *column = nans((size_t)job->k * 4);
    for (int64_t m = 0; m < job->rows; m++) {
        for (int64_t k = 0; k < job->k; k++)
            row[k] = get(job->x, (size_t)(m * job->k + k), dtype);
        for (int64_t n = 0; n < job->n; n++) {
            const int64_t panel = n / LINEAR_PANEL * job->k;
            for (int64_t k = 0; k < job->k; k++)
                column[k] =
                    get(job->w, (size_t)((panel + k) * LINEAR_PANEL + n % LINEAR_PANEL), dtype);
            float sum = gqn_dot_chain(row, 1, column, 1, (size_t)job->k);
            if (job->bias)
                sum += get(job->bias, (size_t)n, job->bias_dtype);
            if (sum != sum)
                sum = gqn_as_f32(GQN_NAN_BITS);
            put(y, GUARD + (size_t)(m * job->n + n), dtype, sum);
        }
    }
    free(row);
    free(column);
}

static void check(problem *p, gqac_pool *pool) {
    const cpu_level *level[MAX_LEVELS];
    unsigned char *wanted = nans(p->y_bytes);
    define(p, wanted);
    for (int i = 0, n = find_levels(level); i < n; i++) {
        clear(p);
        compute(&p->job, level[i]->linear, pool);
        const bool same = memcmp(p->y, wanted, p->y_bytes) == 0;
        CU_ASSERT_TRUE(same);
        if (!same)
            printf("%s, dtype %d, rows %d, k %d, n %d, bias %d\n", level[i]->name,
                   (int)p->job.dtype, (int)p->job.rows, (int)p->job.k, (int)p->job.n,
                   p->job.bias != NULL);
    }
    free(wanted);
}

static void test_levels(void) {
    static const int ks[] = {1,   2,   3,    4,    5,    17,   64,   511, 512,
                             513, 516, 1023, 1024, 1025, 1100, 1536, 2048};
    static const int ns[] = {1, 5, 16, 63, 64, 65, 100, 127, 128, 129, 300};
    for (int i = 0; i < unit_count(150, 1500); i++) {
        const int64_t rows = 1 + i % 40, k = ks[below(17)], n = ns[below(11)];
        problem p = make(dtypes[below(3)], rows, k, n, below(2), below(2));
        check(&p, NULL);
        drop(&p);
    }
}

/* More rows than a unit has, more panels, and a last block of one row. */
static void test_blocks(void) {
    static const int rows[] = {96, 97, 101, 193};
    gqac_pool *pool;
    gqac_diag diag;
    CU_ASSERT_FATAL(gqac_pool_create(3, &pool, &diag) == GQAC_OK);
    for (int i = 0; i < 12; i++) {
        problem p = make(dtypes[i % 3], rows[i / 3], 600, 64 * (2 + below(9)) + below(64), i % 2,
                         i % 4 == 0);
        check(&p, i % 2 ? pool : NULL);
        drop(&p);
    }
    gqac_pool_free(pool);
}

/* A row has the bits that it has alone, with any other rows and any number of threads. */
static void test_rows_and_threads(void) {
    static const int threads[] = {1, 2, 3, 5};
    const cpu_level *level[MAX_LEVELS];
    const int n_levels = find_levels(level);
    for (int t = 0; t < 4; t++) {
        gqac_pool *pool;
        gqac_diag diag;
        CU_ASSERT_FATAL(gqac_pool_create(threads[t], &pool, &diag) == GQAC_OK);
        for (int d = 0; d < 3; d++)
            for (int64_t rows = 1; rows <= 40; rows += t ? 13 : 1) {
                problem p = make(dtypes[d], rows, 1030, 64 * 21 + 17, true, false);
                const size_t row = (size_t)p.job.n * p.size;
                const struct cpu_linear_kernels *kernels = level[n_levels - 1]->linear;
                unsigned char *alone = nans(row);
                compute(&p.job, kernels, pool);
                for (int64_t r = 0; r < rows; r++) {
                    cpu_linear_job one = p.job;
                    one.rows = 1;
                    one.x = p.x + (GUARD + (size_t)(r * one.k)) * p.size;
                    one.y = alone;
                    compute(&one, kernels, NULL);
                    CU_ASSERT(memcmp(alone, p.y + GUARD * p.size + (size_t)r * row, row) == 0);
                }
                free(alone);
                drop(&p);
            }
        gqac_pool_free(pool);
    }
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"levels give the bits of the contract", test_levels},
        {"large x", test_blocks},
        {"rows and threads", test_rows_and_threads},
    };
    return unit_run("cpu_linear", cases, sizeof cases / sizeof *cases, argc, argv);
}
