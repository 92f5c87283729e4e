/* The proof as a call: what its options mean, what the report contains, how it fails. That it
 * detects broken libraries is tested through the command line (test/python/test_controls.py). */
#include "base/alloc.h"
#include "unit.h"

#include <gqac/gqac.h>

#include <math.h>
#include <string.h>

static gqac_diag diag;
static gqac_program *program;

static void open_model(void) {
    gqac_options options;
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/llama/model.onnx"), &options, &program, &diag),
        GQAC_OK);
}

static void close_model(void) {
    gqac_program_free(program);
    program = NULL;
}

/* Runs a proof. *report contains what the options requested; its pointers are no longer valid. */
static gqac_status prove(const gqac_equiv_options *options, gqac_equiv_report *report) {
    gqac_equiv *equiv = NULL;
    gqac_status status = gqac_equiv_create(program, options, &equiv, &diag);
    if (status == GQAC_OK)
        status = gqac_equiv_run(equiv, &diag);
    if (status == GQAC_OK)
        *report = *gqac_equiv_get_report(equiv);
    gqac_equiv_free(equiv);
    return status;
}

static void plans(void) {
    gqac_equiv_report r = {0};
    const int64_t chunks[] = {2, 3};
    const int threads[] = {1, 2};
    const char *const kinds[] = {"contiguous", "paged"};
    open_model();
    gqac_equiv_options o = {.size = sizeof o, .tokens = 8};
    CU_ASSERT_EQUAL_FATAL(prove(&o, &r), GQAC_OK);
    CU_ASSERT_EQUAL(r.planned, 9); /* 7 cuts, the whole, token by token */
    CU_ASSERT_EQUAL(r.ran, 9);
    CU_ASSERT_EQUAL(r.differing, 0);
    const int64_t one = r.compared / r.ran;
    o.n_chunks = 2;
    o.chunks = chunks;
    o.n_threads = 2;
    o.threads = threads;
    o.n_kv = 2;
    o.kv = kinds;
    CU_ASSERT_EQUAL_FATAL(prove(&o, &r), GQAC_OK);
    CU_ASSERT_EQUAL(r.planned, 4);
    CU_ASSERT_EQUAL(r.n_series, 4);
    CU_ASSERT_EQUAL(r.compared, 4 * one);
    o.random = 3;
    CU_ASSERT_EQUAL_FATAL(prove(&o, &r), GQAC_OK);
    CU_ASSERT_EQUAL(r.planned, 12);
    gqac_equiv_options hits = {.size = sizeof hits, .tokens = 5, .via = GQAC_EQUIV_SNAPSHOT};
    CU_ASSERT_EQUAL_FATAL(prove(&hits, &r), GQAC_OK);
    CU_ASSERT_EQUAL(r.planned, 6); /* prefixes of 0 to 5 tokens, from memory */
    CU_ASSERT_EQUAL(r.reused_tokens + r.computed_tokens, 30);
    close_model();
}

static void refused(const gqac_equiv_options *o, gqac_status expected, const char *words) {
    gqac_equiv_report r;
    CU_ASSERT_EQUAL(prove(o, &r), expected);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, words));
}

static void errors(void) {
    const int64_t chunks[] = {2, 3}, ids[] = {1, 99999};
    const char *const kinds[] = {"none"};
    open_model();
    gqac_equiv_options o = {.size = sizeof o, .tokens = 4, .n_chunks = 2, .chunks = chunks};
    refused(&o, GQAC_OUT_OF_RANGE, "chunk 1 has 3 tokens, but 2 of 4 are left");
    o = (gqac_equiv_options){.size = sizeof o, .tokens = 2, .ids = ids};
    refused(&o, GQAC_OUT_OF_RANGE, "99999");
    o.tokens = 0;
    refused(&o, GQAC_OUT_OF_RANGE, "at least one token");
    o = (gqac_equiv_options){.size = sizeof o, .tokens = -1};
    refused(&o, GQAC_OUT_OF_RANGE, "out of range");
    CU_ASSERT_STRING_EQUAL(diag.rule, "tokens >= 1, or 0 for the default");
    o = (gqac_equiv_options){.size = sizeof o, .budget = -1};
    refused(&o, GQAC_OUT_OF_RANGE, "out of range");
    CU_ASSERT_STRING_EQUAL(diag.rule, "budget >= 0");
    o = (gqac_equiv_options){.size = sizeof o, .n_kv = 1, .kv = kinds};
    refused(&o, GQAC_USAGE, "none");
    o.kv = NULL;
    refused(&o, GQAC_USAGE, "NULL");
    o = (gqac_equiv_options){.size = sizeof o, .n_threads = 1};
    refused(&o, GQAC_USAGE, "NULL");
    o = (gqac_equiv_options){.size = sizeof o, .tokens = 4, .n_chunks = 2};
    refused(&o, GQAC_USAGE, "NULL");
    o = (gqac_equiv_options){.size = 3};
    refused(&o, GQAC_USAGE, "gqac_equiv_options");
    close_model();
}

static bool stop;

static void stop_now(void *arg, const gqac_equiv_report *so_far) {
    (void)arg;
    stop = so_far->ran == 3;
}

static void stopped(void) {
    gqac_equiv *equiv = NULL;
    const gqac_monitor monitor = {
        .size = sizeof monitor, .abort = gqac_stop_requested, .arg = &stop};
    const gqac_equiv_options o = {
        .size = sizeof o, .tokens = 8, .monitor = &monitor, .on_plan = stop_now};
    open_model();
    stop = false;
    CU_ASSERT_EQUAL_FATAL(gqac_equiv_create(program, &o, &equiv, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_equiv_run(equiv, &diag), GQAC_ABORTED);
    CU_ASSERT_EQUAL(gqac_equiv_get_report(equiv)->ran, 3);
    CU_ASSERT_EQUAL(gqac_equiv_run(equiv, &diag), GQAC_USAGE);
    gqac_equiv_free(equiv);
    close_model();
}

/* Reference bits of an aborted run are not used as complete ones. */
static void stopped_in_the_reference(void) {
    gqac_equiv *equiv = NULL;
    const gqac_monitor monitor = {
        .size = sizeof monitor, .abort = gqac_stop_requested, .arg = &stop};
    const gqac_equiv_options o = {.size = sizeof o, .tokens = 8, .monitor = &monitor};
    open_model();
    stop = true;
    CU_ASSERT_EQUAL_FATAL(gqac_equiv_create(program, &o, &equiv, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_equiv_run(equiv, &diag), GQAC_ABORTED);
    stop = false;
    CU_ASSERT_EQUAL(gqac_equiv_run(equiv, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_equiv_get_report(equiv)->ran, 9);
    CU_ASSERT_EQUAL(gqac_equiv_get_report(equiv)->differing, 0);
    gqac_equiv_free(equiv);
    close_model();
}

#ifdef GQAC_TEST_ALLOC
/* Each allocation of a proof fails once: it is an error, and nothing leaks. */
static void no_memory(void) {
    gqac_equiv_report r;
    const gqac_equiv_options o = {.size = sizeof o, .tokens = 2, .via = GQAC_EQUIV_IMPORT};
    open_model();
    CU_ASSERT_EQUAL(prove(&o, &r), GQAC_OK);
    const size_t live = gqac_alloc_live();
    gqac_status status = GQAC_NO_MEMORY;
    for (size_t n = 1; status != GQAC_OK && n < 100000; n += unit_full() ? 1 : 7) {
        gqac_alloc_fail_at(n, 0);
        status = prove(&o, &r);
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT_TRUE(status == GQAC_OK || status == GQAC_NO_MEMORY);
    }
    CU_ASSERT_EQUAL(status, GQAC_OK);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    close_model();
}
#endif

static void comparison(void) {
    float a[] = {1, NAN, 3}, b[] = {1, NAN, 4};
    const gqac_tensor x = {.dtype = GQAC_F32, .rank = 1, .dims = {3}, .data = a};
    gqac_tensor y = {.dtype = GQAC_F32, .rank = 1, .dims = {3}, .data = b};
    gqac_comparison found = gqac_compare(&x, &y);
    CU_ASSERT_EQUAL(found.index, 2);
    CU_ASSERT_EQUAL(found.relative, 0.25);
    y.dims[0] = 2;
    CU_ASSERT_EQUAL(gqac_compare(&x, &y).index, -1);
    int64_t first[5], again[5];
    gqac_random_ids(7, 100, 5, first);
    gqac_random_ids(7, 100, 5, again);
    CU_ASSERT_EQUAL(memcmp(first, again, sizeof first), 0);
    for (int i = 0; i < 5; i++)
        CU_ASSERT_TRUE(first[i] >= 0 && first[i] < 100);
    CU_ASSERT_STRING_EQUAL(gqac_equiv_via_name(GQAC_EQUIV_PREFIX), "prefix");
    CU_ASSERT_PTR_NULL(gqac_equiv_via_name(GQAC_EQUIV_BAKED + 1));
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"splits, threads, kinds and hits make the plans", plans},
        {"wrong options are refused", errors},
        {"a flag ends a proof", stopped},
        {"a reference that is ended is made anew", stopped_in_the_reference},
#ifdef GQAC_TEST_ALLOC
        {"a failed allocation is an error", no_memory},
#endif
        {"tensors are compared, ids are repeatable", comparison},
    };
    return unit_run("equiv", cases, sizeof cases / sizeof *cases, argc, argv);
}
