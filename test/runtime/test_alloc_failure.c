/* The n-th allocation fails, for every n in each action of the library: it returns a status each
 * time, nothing leaks, no file is left, and a sequence that had tokens is unchanged. */
#include "unit.h"

#include <dirent.h>
#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        status = gqac_sequence_append(context, sequence, ids, count, GQAC_LOGITS_ALL, diag);
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

/* Every n in one step of a sequence that already has tokens. */
static void fail_each_of_step(const char *model) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_diag diag;
    const gqac_kv_pair *pairs = NULL;
    const int64_t past = 5, more = 4;
    int at = 0;
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(model), &options, &program, &diag), GQAC_OK);
    const int n = gqac_program_kv_pairs(program, &pairs);
    while (at + 1 < n && !pairs[at].rows) /* the first state, or else the last pair of rows */
        at++;
    const gqac_kv_pair *pair = &pairs[at];
    const size_t bytes =
        (size_t)(pair->heads * gqac_kv_pair_rows(pair, past) * pair->head_size) * 4;
    void *before = malloc(bytes), *after = malloc(bytes);
    size_t failures = 0;
    for (size_t i = 1;; i++) {
        gqac_context *context = NULL;
        gqac_sequence *sequence = NULL;
        CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, NULL, &sequence, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_append(context, sequence, ids, past, GQAC_LOGITS_ALL, &diag), GQAC_OK);
        gqac_context_free(context); /* a new one has no buffers to reuse */
        CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
        gqac_sequence_export(sequence, pair->past, before, bytes, &diag);
        gqac_alloc_fail_at(i, 0);
        const gqac_status status =
            gqac_sequence_append(context, sequence, ids + 5, more, GQAC_LOGITS_ALL, &diag);
        const size_t calls = gqac_alloc_calls();
        gqac_alloc_fail_at(0, 0);
        if (status != GQAC_OK) {
            failures++;
            CU_ASSERT_EQUAL(status, GQAC_NO_MEMORY);
            CU_ASSERT_EQUAL(gqac_sequence_length(sequence), past);
            gqac_sequence_export(sequence, pair->past, after, bytes, &diag);
            CU_ASSERT(!memcmp(before, after, bytes));
            CU_ASSERT_EQUAL(
                gqac_sequence_append(context, sequence, ids + 5, more, GQAC_LOGITS_ALL, &diag),
                GQAC_OK);
        }
        gqac_sequence_free(sequence);
        gqac_context_free(context);
        if (status == GQAC_OK) {
            CU_ASSERT(i > calls);
            break;
        }
    }
    CU_ASSERT(failures > 6);
    printf("  %zu allocations of a step failed one by one\n", failures);
    free(before);
    free(after);
    gqac_program_free(program);
}

static void test_sequence_unchanged(void) {
    fail_each_of_step("test/models/qwen3/model.onnx");
    fail_each_of_step("test/models/qwen3.5/model.onnx");
}

/* ---- the other calls ----------------------------------------------------- */

static char folder[64], made[96];

static int files_in_folder(void) {
    int n = 0;
    DIR *dir = opendir(folder);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        n += e->d_name[0] != '.' || (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0);
    closedir(dir);
    return n;
}

/* Runs `call` with the n-th allocation failing, for every n up to the first that it does not reach.
 * `after` checks the state after a failure. */
static void each_failure(gqac_status (*call)(gqac_diag *diag), void (*after)(void), size_t least) {
    const size_t live = gqac_alloc_live();
    size_t failures = 0;
    for (size_t n = 1;; n++) {
        gqac_diag diag;
        memset(&diag, 0, sizeof diag);
        gqac_alloc_fail_at(n, 0);
        const gqac_status status = call(&diag);
        const size_t calls = gqac_alloc_calls();
        gqac_alloc_fail_at(0, 0);
        if (status == GQAC_OK && n > calls)
            break;
        failures++;
        if (status != GQAC_NO_MEMORY || !*diag.what || gqac_alloc_live() != live) {
            printf("n = %zu: %s '%s', %zu live\n", n, gqac_status_name(status), diag.what,
                   gqac_alloc_live() - live);
            CU_FAIL("the failure of an allocation is not reported cleanly");
            return;
        }
        if (after)
            after();
    }
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    CU_ASSERT(failures >= least);
    printf("  %zu allocations failed one by one\n", failures);
}

static gqac_emit emit;

static gqac_status compile(gqac_diag *diag) {
    gqac_options options;
    gqac_options_init(&options);
    if (emit == GQAC_EMIT_TEXT)
        options.stop_after = "stateful";
    return gqac_compile(unit_path("test/models/qwen3/model.onnx"), &options, emit, made, diag);
}

static void no_file(void) {
    CU_ASSERT_EQUAL(files_in_folder(), 0);
}

static void compile_to(gqac_emit what) {
    strcpy(folder, "/tmp/gqac-alloc-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(made, sizeof made, "%s/out", folder);
    emit = what;
    each_failure(compile, no_file, 100);
    CU_ASSERT(files_in_folder() >= 1); /* the last one succeeded */
    DIR *dir = opendir(folder);
    for (const struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        char path[sizeof folder + sizeof e->d_name];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    closedir(dir);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

static void test_compile_artefact(void) {
    compile_to(GQAC_EMIT_GQAC);
}

static void test_compile_onnx(void) {
    compile_to(GQAC_EMIT_ONNX);
}

static void test_compile_text(void) {
    compile_to(GQAC_EMIT_TEXT);
}

static gqac_status look(gqac_diag *diag) {
    gqac_options options;
    gqac_info *info = NULL;
    gqac_options_init(&options);
    const gqac_status status =
        gqac_info_open(unit_path("test/models/qwen3/model.onnx"), &options, &info, diag);
    CU_ASSERT((status == GQAC_OK) == (info != NULL));
    gqac_info_free(info);
    return status;
}

static void test_info(void) {
    each_failure(look, NULL, 100);
}

static gqac_program *program;

static void open_program(const char *path, bool stateless) {
    gqac_options options;
    gqac_diag diag;
    gqac_options_init(&options);
    options.stateless = stateless;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &program, &diag), GQAC_OK);
}

static gqac_status run_stateless(gqac_diag *diag) {
    float x[] = {1, -2, 3, -4}, b[] = {4, 3, 2, 1};
    const char *const names[] = {"x", "b"};
    const gqac_tensor inputs[] = {{.dtype = GQAC_F32, .rank = 1, .dims = {4}, .data = x},
                                  {.dtype = GQAC_F32, .rank = 1, .dims = {4}, .data = b}};
    gqac_tensor output;
    gqac_context *context = NULL;
    gqac_status status = gqac_context_create(program, 1, &context, diag);
    if (status == GQAC_OK)
        status = gqac_run(context, 2, names, inputs, 1, NULL, &output, diag);
    if (status == GQAC_OK)
        CU_ASSERT_EQUAL(gqac_tensor_get(&output, 1), -5.0);
    gqac_context_free(context);
    return status;
}

static void test_run(void) {
    char path[] = "/tmp/gqac-alloc-XXXXXX.gq";
    static const char text[] = "graph @g(%x: f32[N], %b: f32[N]) {\n"
                               "  %s = Sub %x, %b : f32[N]\n"
                               "  %t = Abs %s : f32[N]\n"
                               "  %y = Neg %t : f32[N]\n"
                               "  return %y as \"y\"\n}\n";
    const int fd = mkstemps(path, 3);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    open_program(path, true);
    each_failure(run_stateless, NULL, 3);
    gqac_program_free(program);
    unlink(path);
}

enum { HELD = 5, MOST_PAIRS = 64 };
static gqac_sequence *source;
static int n_pairs;
static const char *names[MOST_PAIRS];
static gqac_tensor rows[MOST_PAIRS];

static gqac_status export_rows(gqac_diag *diag) {
    for (int i = 0; i < n_pairs; i++) {
        const gqac_status status =
            gqac_sequence_export(source, names[i], rows[i].data, gqac_tensor_bytes(&rows[i]), diag);
        if (status != GQAC_OK)
            return status;
    }
    return GQAC_OK;
}

/* A fork that is written: its first step copies the shared block. */
static gqac_status fork_and_step(gqac_diag *diag) {
    gqac_sequence *fork = NULL;
    gqac_context *context = NULL;
    const int64_t count = 2;
    gqac_status status = gqac_sequence_fork(source, &fork, diag);
    if (status == GQAC_OK)
        status = gqac_context_create(program, 1, &context, diag);
    if (status == GQAC_OK)
        status = gqac_sequence_append(context, fork, ids, count, GQAC_LOGITS_ALL, diag);
    CU_ASSERT(!fork || gqac_sequence_length(fork) == HELD + (status == GQAC_OK ? count : 0));
    gqac_sequence_free(fork);
    gqac_context_free(context);
    return status;
}

static gqac_status import_rows(gqac_diag *diag) {
    gqac_sequence *target = NULL;
    gqac_status status = gqac_sequence_create(program, NULL, &target, diag);
    if (status == GQAC_OK) {
        status = gqac_sequence_import(target, n_pairs, names, rows, diag);
        CU_ASSERT_EQUAL(gqac_sequence_length(target), status == GQAC_OK ? HELD : 0);
    }
    gqac_sequence_free(target);
    return status;
}

static void source_unchanged(void) {
    CU_ASSERT_EQUAL(gqac_sequence_length(source), HELD);
}

static void fail_each_of_sequences(const char *model) {
    const gqac_kv_pair *pairs = NULL;
    gqac_context *context = NULL;
    gqac_diag diag;
    const int64_t count = HELD;
    open_program(unit_path(model), false);
    n_pairs = gqac_program_kv_pairs(program, &pairs);
    CU_ASSERT_FATAL(n_pairs > 0 && n_pairs <= MOST_PAIRS);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, NULL, &source, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, source, ids, count, GQAC_LOGITS_ALL, &diag),
                          GQAC_OK);
    for (int i = 0; i < n_pairs; i++) {
        names[i] = pairs[i].past;
        rows[i] = (gqac_tensor){
            .dtype = pairs[i].dtype,
            .rank = 4,
            .dims = {1, pairs[i].heads, gqac_kv_pair_rows(&pairs[i], HELD), pairs[i].head_size}};
        rows[i].data = malloc(gqac_tensor_bytes(&rows[i]));
    }
    each_failure(export_rows, source_unchanged, 0);
    each_failure(fork_and_step, source_unchanged, 10);
    each_failure(import_rows, NULL, 2);
    for (int i = 0; i < n_pairs; i++)
        free(rows[i].data);
    gqac_sequence_free(source);
    gqac_context_free(context);
    gqac_program_free(program);
}

static void test_sequences(void) {
    fail_each_of_sequences("test/models/qwen3/model.onnx");
    fail_each_of_sequences("test/models/qwen3.5/model.onnx");
}

/* ---- a baked prefix ------------------------------------------------------- */

static gqac_status compile_baked(gqac_diag *diag) {
    gqac_options options;
    gqac_bake bake;
    gqac_options_init(&options);
    gqac_bake_init(&bake, ids, 9);
    bake.threads = 1;
    options.bake = &bake;
    return gqac_compile(unit_path("test/models/llama/model.onnx"), &options, GQAC_EMIT_GQAC, made,
                        diag);
}

static gqac_status open_baked(gqac_diag *diag) {
    gqac_program *baked = NULL;
    gqac_sequence *sequence = NULL;
    int64_t reused = 0;
    gqac_status status = gqac_program_open(made, NULL, &baked, diag);
    if (status == GQAC_OK)
        status = gqac_sequence_begin(baked, ids, 9, NULL, &sequence, &reused, diag);
    CU_ASSERT((status == GQAC_OK) == (sequence != NULL));
    gqac_sequence_free(sequence);
    gqac_program_free(baked);
    return status;
}

static void test_baked(void) {
    strcpy(folder, "/tmp/gqac-alloc-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(made, sizeof made, "%s/out", folder);
    each_failure(compile_baked, no_file, 100);
    each_failure(open_baked, NULL, 100);
    unlink(made);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

static const unit_case cases[] = {
    {"import, compile and step, one failure", test_import_compile_step},
    {"import, compile and step, all later ones fail", test_persistent},
    {"a failed step leaves the sequence as it was", test_sequence_unchanged},
    {"compile to an artefact", test_compile_artefact},
    {"compile to ONNX", test_compile_onnx},
    {"compile to text", test_compile_text},
    {"info", test_info},
    {"a stateless run", test_run},
    {"export, fork and import of a sequence", test_sequences},
    {"compile and open with a baked prefix", test_baked},
};

int main(int argc, char **argv) {
    return unit_run("alloc_failure", cases, sizeof cases / sizeof *cases, argc, argv);
}
