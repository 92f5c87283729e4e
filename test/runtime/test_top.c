/* The likeliest ids of rows of logits: compared with a sort, and as results of steps instead of
 * logits. */
#include "runtime/exec_device.h"
#include "runtime/rig.h"
#include "runtime/top.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 40, LLAMA = 258 /* ids of the model */ };

static gqac_diag diag;

static int by_rank(const void *x, const void *y) {
    const gqac_candidate *a = x, *b = y;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

/* All ids of a row in order; ids with NaN are -1. */
static void sort_all(const float *row, int64_t v, gqac_candidate *all) {
    int64_t n = 0;
    for (int64_t i = 0; i < v; i++)
        if (!isnan(row[i]))
            all[n++] = (gqac_candidate){.id = i, .logit = row[i]};
    qsort(all, (size_t)n, sizeof *all, by_rank);
    while (n < v)
        all[n++] = (gqac_candidate){.id = -1, .logit = NAN};
}

static bool same(const gqac_candidate *a, const gqac_candidate *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (a[i].id != b[i].id || memcmp(&a[i].logit, &b[i].logit, sizeof a->logit) != 0)
            return false;
    return true;
}

/* Few values, so that many are equal; zeros of both signs, infinities and NaN. */
static void test_select(void) {
    static const float values[] = {-INFINITY, -2, -0.0f, 0, 0.5f, 3, 3, INFINITY, NAN};
    static const int64_t counts[] = {1, 2, 3, 17, V - 1, V};
    float row[V];
    gqac_candidate all[V], found[V];
    srand(7);
    for (int i = 0; i < 2000; i++) {
        for (int j = 0; j < V; j++)
            row[j] = values[i % 50 ? rand() % 9 : 8];
        sort_all(row, V, all);
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            top_select(row, V, counts[k], found);
            CU_ASSERT(same(found, all, counts[k]));
        }
    }
}

/* ---- steps ------------------------------------------------------------------- */

typedef struct rig {
    gqac_program *program;
    gqac_context *context;
    gqac_sequence *sequences[3];
} rig;

static rig open_rig(void) {
    rig r;
    r.program = rig_program("test/models/llama/model.onnx", "cpu");
    r.context = rig_context(r.program);
    for (int i = 0; i < 3; i++)
        r.sequences[i] = rig_sequence(r.program, 0);
    return r;
}

static void close_rig(rig *r) {
    for (int i = 0; i < 3; i++)
        gqac_sequence_free(r->sequences[i]);
    gqac_context_free(r->context);
    gqac_program_free(r->program);
}

static const int64_t ids[] = {5, 9, 77, 4};

/* Appends ids to each sequence; item i requests tops[i] ids. */
static gqac_status step(rig *r, const int64_t tops[3], int64_t n_logits) {
    gqac_step_item items[3];
    for (int i = 0; i < 3; i++)
        items[i] = (gqac_step_item){.size = sizeof *items,
                                    .sequence = r->sequences[i],
                                    .tokens = ids,
                                    .count = 4 - i,
                                    .n_logits = n_logits,
                                    .n_top = tops[i]};
    return gqac_step(r->context, 3, items, &diag);
}

/* Items with and without n_top; the ids must be those of the logits of another step. */
static void test_steps(void) {
    static const int64_t none[3] = {0}, cases[][3] = {{1, 1, 1}, {3, 0, 5}, {1, 7, GQAC_TOP_MOST}};
    rig r = open_rig(), twin = open_rig();
    CU_ASSERT_EQUAL_FATAL(gqac_program_vocabulary(r.program), LLAMA);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int64_t most = 0;
        CU_ASSERT_EQUAL_FATAL(step(&r, cases[k], 2 - (int64_t)(k % 2)), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(step(&twin, none, 2 - (int64_t)(k % 2)), GQAC_OK);
        for (int i = 0; i < 3; i++)
            most = cases[k][i] > most ? cases[k][i] : most;
        for (int i = 0; i < 3; i++) {
            gqac_candidate all[LLAMA];
            int64_t rows = 0, got = 0, v = 0, n = 0;
            const float *logits = gqac_context_logits(twin.context, i, &rows, &v);
            const float *own = gqac_context_logits(r.context, i, &got, &v);
            const gqac_candidate *top = gqac_context_top(r.context, i, &got, &n);
            CU_ASSERT_EQUAL(got, rows);
            CU_ASSERT_PTR_NULL(gqac_context_top(twin.context, i, &got, &n));
            if (!cases[k][i]) {
                CU_ASSERT_PTR_NULL(top);
                CU_ASSERT_FATAL(own && !memcmp(own, logits, (size_t)(rows * v) * sizeof *own));
                continue;
            }
            CU_ASSERT_PTR_NULL(own);
            CU_ASSERT_FATAL(top && n == (most < LLAMA ? most : LLAMA));
            for (int64_t row = 0; row < rows; row++) {
                sort_all(logits + row * v, v, all);
                CU_ASSERT(same(top + row * n, all, n));
            }
        }
    }
    close_rig(&r);
    close_rig(&twin);
}

/* An n_top out of range, and calls with nothing to return. */
static void test_refused(void) {
    static const int64_t wrong[][3] = {{1, -1, 1}, {1, GQAC_TOP_MOST + 1, 1}}, good[3] = {2, 2, 2};
    rig r = open_rig();
    int64_t rows = 0, n = 0;
    CU_ASSERT_PTR_NULL(gqac_context_top(r.context, 0, &rows, &n));
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        CU_ASSERT_EQUAL_FATAL(step(&r, good, 1), GQAC_OK);
        CU_ASSERT_PTR_NOT_NULL(gqac_context_top(r.context, 2, &rows, &n));
        CU_ASSERT_PTR_NULL(gqac_context_top(r.context, 3, &rows, &n));
        CU_ASSERT_PTR_NULL(gqac_context_top(r.context, -1, &rows, &n));
        CU_ASSERT_EQUAL(step(&r, wrong[k], 1), GQAC_OUT_OF_RANGE);
        CU_ASSERT(diag.index == 1 && strstr(diag.what, "likeliest") && strstr(diag.rule, "1024"));
        CU_ASSERT_PTR_NULL(gqac_context_top(r.context, 0, &rows, &n));
    }
    CU_ASSERT_EQUAL(step(&r, good, 0), GQAC_OK);
    CU_ASSERT_PTR_NULL(gqac_context_top(r.context, 0, &rows, &n));
    close_rig(&r);
}

/* A device selects the ids if its logits are the wanted rows, and if it can index them. */
static void test_device(void) {
    const exec_top top = {.rows = 16384, .n = 4};
    gqac_tensor logits = {.dtype = GQAC_F32, .rank = 3, .dims = {1, 16384, 131071}};
    CU_ASSERT_TRUE(exec_can_top(&logits, &top));
    logits.dims[2] = 131072; /* 2^31 */
    CU_ASSERT_FALSE(exec_can_top(&logits, &top));
    logits.dims[2] = 3;
    CU_ASSERT_FALSE(exec_can_top(&logits, &top));
    logits = (gqac_tensor){.dtype = GQAC_F32, .rank = 3, .dims = {1, 16383, 100}};
    CU_ASSERT_FALSE(exec_can_top(&logits, &top));
}

static const unit_case cases[] = {
    {"as a sort", test_select},
    {"steps with and without n_top", test_steps},
    {"n_top out of range", test_refused},
    {"on a device", test_device},
};

int main(int argc, char **argv) {
    return unit_run("top", cases, sizeof cases / sizeof *cases, argc, argv);
}
