/* Steps that fail on a device of CUDA: a call of the driver fails, kernels cannot be compiled,
 * memory is full. The sequence keeps its length and its rows, and the step succeeds as soon as
 * possible. Uses the libraries of this folder. */
#include "unit.h"

#include <dlfcn.h>
#include <gqac/gqac.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* A counter of the driver. */
static long counted(const char *name) {
    long (*count)(void);
    *(void **)(void *)&count = dlsym(RTLD_DEFAULT, name);
    CU_ASSERT_PTR_NOT_NULL_FATAL(count);
    return count();
}

static gqac_program *open_program(const char *path) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    options.target = "gpu";
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &program, &diag), GQAC_OK);
    return program;
}

static gqac_sequence *open_sequence(const gqac_program *program, const char *kind) {
    const gqac_sequence_options how = {
        .size = sizeof how, .capacity = 2 * N, .final_length = 2 * N, .kv = kind};
    gqac_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &how, &s, &diag), GQAC_OK);
    return s;
}

static gqac_status step(gqac_context *context, gqac_sequence *s) {
    return gqac_sequence_append(context, s, ids + FIRST, N - FIRST, GQAC_LOGITS_ALL, &diag);
}

static void check_failures(const char *error, gqac_status expected) {
    gqac_context *context = NULL;
    fail_after(-1, "0");
    gqac_program *program = open_program(unit_path("test/models/llama/model.onnx"));
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    gqac_sequence *s = open_sequence(program, "contiguous");
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
        if (status == GQAC_OK) { /* other memory was found, or no graph is needed */
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

/* A layer of attention whose heads, of 64 elements, have kernels compiled for their size; path: a
 * template for mkstemps. */
static void write_layer(char *path) {
    enum { D = 64, WIDTH = 4 * D };
    FILE *file = fdopen(mkstemps(path, 3), "w");
    CU_ASSERT_FATAL(file != NULL);
    fprintf(file,
            "graph @layer(%%input_ids: i64[B,S], %%attention_mask: i64[B,T], "
            "%%past_key_values.0.key: f32[B,1,P,%d], %%past_key_values.0.value: f32[B,1,P,%d]) {\n"
            "  const %%one: i64[] = 1\n  const %%axis: i64[1] = [1]\n"
            "  const %%last_axis: i64[1] = [2]\n  const %%c: f32[%d] = [0.5",
            D, D, WIDTH);
    for (int i = 1; i < WIDTH; i++)
        fprintf(file, ", 0.5");
    fprintf(file,
            "]\n"
            "  %%sum = ReduceSum %%attention_mask, %%axis {keepdims=0} : i64[B]\n"
            "  %%last = Sub %%sum, %%one : i64[B]\n"
            "  %%seqlens_k = Cast %%last {to=i32} : i32[B]\n"
            "  %%shape = Shape %%attention_mask : i64[2]\n"
            "  %%t = Gather %%shape, %%one : i64[]\n"
            "  %%total = Cast %%t {to=i32} : i32[]\n"
            "  %%f = Cast %%input_ids {to=f32} : f32[B,S]\n"
            "  %%u = Unsqueeze %%f, %%last_axis : f32[B,S,1]\n"
            "  %%qkv = Mul %%u, %%c : f32[B,S,%d]\n"
            "  %%y, %%k, %%v = com.microsoft.GroupQueryAttention %%qkv, _, _, "
            "%%past_key_values.0.key, %%past_key_values.0.value, %%seqlens_k, %%total "
            "{num_heads=2, kv_num_heads=1} : f32[B,S,%d], f32[B,1,T,%d], f32[B,1,T,%d]\n"
            "  return %%y as \"logits\", %%k as \"present.0.key\", "
            "%%v as \"present.0.value\"\n}\n",
            WIDTH, 2 * D, D, D);
    CU_ASSERT_EQUAL(fclose(file), 0);
}

/* The kernels for codes are compiled in the first step that needs them. */
static void test_kernels_that_are_not_compiled(void) {
    char path[] = "/tmp/gqac-lost-step-XXXXXX.gq";
    gqac_context *context = NULL;
    fail_after(-1, "0");
    write_layer(path);
    gqac_program *program = open_program(path);
    CU_ASSERT_EQUAL(unlink(path), 0);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    gqac_sequence *rows = open_sequence(program, "contiguous");
    gqac_sequence *codes = open_sequence(program, "quantised");
    setenv("FAKE_NVRTC_FAIL", "1", 1);
    CU_ASSERT_EQUAL(step(context, rows), GQAC_OK);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(step(context, codes), GQAC_INTERNAL);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "compiling the kernels failed"));
        CU_ASSERT_EQUAL(gqac_sequence_length(codes), 0);
    }
    unsetenv("FAKE_NVRTC_FAIL");
    CU_ASSERT_EQUAL(step(context, codes), GQAC_OK);
    setenv("FAKE_NVRTC_FAIL", "1", 1);
    CU_ASSERT_EQUAL(step(context, codes), GQAC_OK); /* compiled once */
    unsetenv("FAKE_NVRTC_FAIL");
    gqac_sequence_free(rows);
    gqac_sequence_free(codes);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* On a full device, the blocks of one kind of cache free their memory for those of another. */
static void test_full_memory(void) {
    static const char *const kinds[] = {"contiguous", "quantised", "quantised4"};
    char bytes[32];
    gqac_context *context = NULL;
    gqac_sequence *s[3];
    fail_after(-1, "0");
    gqac_program *program = open_program(unit_path("test/models/llama/model.onnx"));
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    for (int i = 0; i < 3; i++)
        s[i] = open_sequence(program, kinds[i]);
    CU_ASSERT_EQUAL(step(context, s[0]), GQAC_OK);
    snprintf(bytes, sizeof bytes, "%ld", counted("fake_cuda_bytes"));
    setenv("FAKE_CUDA_MEMORY", bytes, 1);
    for (int i = 1; i < 7; i++)
        CU_ASSERT_EQUAL(step(context, s[i % 3]), GQAC_OK);
    unsetenv("FAKE_CUDA_MEMORY");
    for (int i = 0; i < 3; i++)
        gqac_sequence_free(s[i]);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* Two threads share a program: while one step runs its nodes, another one begins and fails. */
typedef struct other {
    gqac_context *context;
    gqac_sequence *sequence;
    long nodes, fail;   /* of the first step so far; fail: the second's call */
    gqac_status status; /* of the second */
} other;

static void *other_step(void *arg) {
    other *o = arg;
    fail_after(counted("fake_cuda_calls") + o->fail, "719");
    o->status = gqac_sequence_append(o->context, o->sequence, ids + FIRST, N - FIRST,
                                     GQAC_LOGITS_ALL, NULL);
    fail_after(-1, "0");
    return NULL;
}

static bool at_node(void *arg) {
    other *o = arg;
    pthread_t thread;
    if (o->nodes-- == 0) {
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, other_step, o), 0);
        pthread_join(thread, NULL);
    }
    return false;
}

static void test_kernels_of_another_step(void) {
    bool launched = false;
    fail_after(-1, "0");
    gqac_program *program = open_program(unit_path("test/models/llama/model.onnx"));
    gqac_context *context = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    for (long fail = 1; fail < 20 && !launched; fail++) {
        other o = {.nodes = 12, .fail = fail};
        const gqac_monitor monitor = {.size = sizeof monitor, .abort = at_node, .arg = &o};
        CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &o.context, &diag), GQAC_OK);
        gqac_sequence *s = open_sequence(program, "contiguous");
        o.sequence = open_sequence(program, "contiguous");
        gqac_context_set_monitor(context, &monitor, NULL, &diag);
        const gqac_status status = step(context, s);
        gqac_context_set_monitor(context, NULL, NULL, &diag);
        CU_ASSERT(o.nodes < 0);
        launched = counted("fake_cuda_lost_launch");
        if (launched) { /* the first launch of that step came first; the kernels are this step's */
            CU_ASSERT_EQUAL(o.status, GQAC_INTERNAL);
            CU_ASSERT_EQUAL(status, GQAC_INTERNAL);
            CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "launching kernels"));
            CU_ASSERT_EQUAL(gqac_sequence_length(s), 0);
        }
        CU_ASSERT_EQUAL(step(context, o.sequence), GQAC_OK);
        gqac_sequence_free(s);
        gqac_sequence_free(o.sequence);
        gqac_context_free(o.context);
    }
    CU_ASSERT(launched);
    gqac_context_free(context);
    gqac_program_free(program);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"a call without memory", test_no_memory},
        {"a call that fails", test_failed_launch},
        {"kernels that are not compiled", test_kernels_that_are_not_compiled},
        {"full memory", test_full_memory},
        {"kernels of another step", test_kernels_of_another_step}};
    setenv("GQAC_CACHE", "off", 1);
    if (!dlopen(GQAC_FAKE_CUDA "/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) ||
        !dlopen(GQAC_FAKE_CUDA "/libnvrtc.so.13", RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return unit_run("cuda_lost_step", cases, sizeof cases / sizeof *cases, argc, argv);
}
