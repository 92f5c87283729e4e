/* Steps whose calls of the CUDA driver fail: the sequence keeps its length and its rows, and a
 * driver that works again computes the step. Runs on the libraries of this folder. */
#include "unit.h"

#include <dlfcn.h>
#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5, FIRST = 2 };
static const int64_t ids[N] = {1, 2, 3, 4, 5};
static gqac_diag diag;

/* The number of calls from now that succeed before one fails. */
static void fail_after(long n, const char *error) {
    char text[32];
    snprintf(text, sizeof text, "%ld", n);
    setenv("FAKE_CUDA_ERROR", error, 1);
    setenv("FAKE_CUDA_FAIL", text, 1);
}

/* The rows of all past tensors; malloc'd. */
static unsigned char *rows(const gqac_program *program, const gqac_sequence *s, size_t *bytes) {
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(program, &pairs);
    unsigned char *all = NULL;
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        const size_t size =
            (size_t)(pairs[i].heads * gqac_sequence_length(s) * pairs[i].head_size) *
            (size_t)gqac_dtype_bits(pairs[i].dtype) / 8;
        all = realloc(all, *bytes + size + 1);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_export(s, pairs[i].past, all + *bytes, size, &diag),
                              GQAC_OK);
        *bytes += size;
    }
    return all;
}

/* A number of the driver. */
static long counted(const char *name) {
    long (*count)(void);
    *(void **)(void *)&count = dlsym(RTLD_DEFAULT, name);
    CU_ASSERT_PTR_NOT_NULL_FATAL(count);
    return count();
}

static gqac_status step(gqac_context *context, gqac_sequence *s) {
    return gqac_sequence_append(context, s, ids + FIRST, N - FIRST, GQAC_LOGITS_ALL, &diag);
}

static void check_failures(const char *error, gqac_status expected) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_sequence *s = NULL;
    const gqac_sequence_options how = {.size = sizeof how, .capacity = N, .final_length = N};
    gqac_options_init(&options);
    options.target = "gpu";
    fail_after(-1, "0");
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/llama/model.onnx"), &options, &program, &diag),
        GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &how, &s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, s, ids, FIRST, GQAC_LOGITS_ALL, &diag),
                          GQAC_OK);
    size_t bytes, again;
    unsigned char *before = rows(program, s, &bytes);
    gqac_status status = GQAC_INTERNAL;
    int failures = 0, recoveries = 0;
    for (long n = 1; n < 1000; n++) {
        const long last = counted("fake_cuda_calls") + n;
        fail_after(last, error);
        status = step(context, s);
        const bool failed = counted("fake_cuda_calls") >= last;
        fail_after(-1, "0");
        if (!failed)
            break;
        if (status == GQAC_OK) { /* memory was found elsewhere, or no graph is needed */
            CU_ASSERT(expected == GQAC_NO_MEMORY || counted("fake_cuda_lost_graph"));
            CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(s, FIRST, &diag), GQAC_OK);
            recoveries++;
            continue;
        }
        failures++;
        CU_ASSERT_EQUAL(status, expected);
        CU_ASSERT_EQUAL(gqac_sequence_length(s), FIRST);
        unsigned char *after = rows(program, s, &again);
        CU_ASSERT(again == bytes && memcmp(before, after, bytes) == 0);
        free(after);
    }
    CU_ASSERT_EQUAL(status, GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_length(s), N);
    CU_ASSERT(failures > 5 && failures + recoveries > 20);
    free(before);
    gqac_sequence_free(s);
    gqac_context_free(context);
    gqac_program_free(program);
}

static void test_no_memory(void) {
    check_failures("2", GQAC_NO_MEMORY);
}

static void test_failed_launch(void) {
    check_failures("719", GQAC_INTERNAL);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"a call without memory", test_no_memory},
                                      {"a call that fails", test_failed_launch}};
    setenv("GQAC_CACHE", "off", 1);
    if (!dlopen(GQAC_FAKE_CUDA "/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) ||
        !dlopen(GQAC_FAKE_CUDA "/libnvrtc.so.13", RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return unit_run("cuda_lost_step", cases, sizeof cases / sizeof *cases, argc, argv);
}
