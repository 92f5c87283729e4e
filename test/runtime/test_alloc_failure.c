/* The n-th allocation fails, for every n of import + compile + one step: a clean status each time,
 * nothing leaked, and a sequence that had tokens is as it was. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const int64_t ids[] = {5, 17, 200, 3, 99, 41, 7, 250, 1};

static gqac_status open_and_step(gqac_diag *diag) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    const int64_t count = 9;
    gqac_options_init(&options);
    gqac_status status =
        gqac_program_open(unit_path("test/models/qwen3/model.onnx"), &options, &program, diag);
    if (status == GQAC_OK)
        status = gqac_context_create(program, 2, &context, diag);
    if (status == GQAC_OK)
        status = gqac_sequence_create(program, NULL, &sequence, diag);
    if (status == GQAC_OK)
        status = gqac_step(context, 1, &sequence, ids, &count, NULL, diag);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    gqac_program_free(program);
    return status;
}

static void fail_each(int persist) {
    gqac_diag diag;
    const size_t live = gqac_alloc_live();
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL_FATAL(open_and_step(&diag), GQAC_OK);
    const size_t calls = gqac_alloc_calls();
    CU_ASSERT(calls > 100);
    size_t tried = 0;
    for (size_t n = 1; n <= calls; n++, tried++) {
        memset(&diag, 0, sizeof diag);
        gqac_alloc_fail_at(n, persist);
        const gqac_status status = open_and_step(&diag);
        gqac_alloc_fail_at(0, 0);
        if (status != GQAC_NO_MEMORY || !*diag.what || gqac_alloc_live() != live) {
            printf("n = %zu of %zu: %s '%s', %zu live\n", n, calls, gqac_status_name(status),
                   diag.what, gqac_alloc_live() - live);
            CU_FAIL("the failure of an allocation is not reported cleanly");
            return;
        }
    }
    printf("  %zu of %zu allocations failed one by one%s\n", tried, calls,
           persist ? ", and all after them" : "");
}

static void test_import_compile_step(void) {
    fail_each(0);
}

static void test_persistent(void) {
    fail_each(1);
}

/* Every n of one step of a sequence that already has tokens. */
static void test_sequence_unchanged(void) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_diag diag;
    const gqac_kv_pair *pairs = NULL;
    const int64_t past = 5, more = 4;
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/qwen3/model.onnx"), &options, &program, &diag),
        GQAC_OK);
    gqac_program_kv_pairs(program, &pairs);
    const size_t bytes = (size_t)(pairs[0].heads * past * pairs[0].head_size) * 4;
    void *before = malloc(bytes), *after = malloc(bytes);
    size_t failures = 0;
    for (size_t n = 1;; n++) {
        gqac_context *context = NULL;
        gqac_sequence *sequence = NULL;
        CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, NULL, &sequence, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_step(context, 1, &sequence, ids, &past, NULL, &diag), GQAC_OK);
        gqac_context_free(context); /* a fresh one has no buffers to reuse */
        CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
        gqac_sequence_export(sequence, pairs[0].past, before, bytes, &diag);
        gqac_alloc_fail_at(n, 0);
        const gqac_status status = gqac_step(context, 1, &sequence, ids + 5, &more, NULL, &diag);
        const size_t calls = gqac_alloc_calls();
        gqac_alloc_fail_at(0, 0);
        if (status != GQAC_OK) {
            failures++;
            CU_ASSERT_EQUAL(status, GQAC_NO_MEMORY);
            CU_ASSERT_EQUAL(gqac_sequence_length(sequence), past);
            gqac_sequence_export(sequence, pairs[0].past, after, bytes, &diag);
            CU_ASSERT(!memcmp(before, after, bytes));
            CU_ASSERT_EQUAL(gqac_step(context, 1, &sequence, ids + 5, &more, NULL, &diag), GQAC_OK);
        }
        gqac_sequence_free(sequence);
        gqac_context_free(context);
        if (status == GQAC_OK) {
            CU_ASSERT(n > calls);
            break;
        }
    }
    CU_ASSERT(failures > 10);
    printf("  %zu allocations of a step failed one by one\n", failures);
    free(before);
    free(after);
    gqac_program_free(program);
}

static const unit_case cases[] = {
    {"import, compile and step, one failure", test_import_compile_step},
    {"import, compile and step, all later ones fail", test_persistent},
    {"a failed step leaves the sequence as it was", test_sequence_unchanged},
};

int main(int argc, char **argv) {
    return unit_run("alloc_failure", cases, sizeof cases / sizeof *cases, argc, argv);
}
