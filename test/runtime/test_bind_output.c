/* Outputs of a stateless run in memory of the caller: separate, over the past that they continue,
 * over an input that another node reads, too small, overlapping. */
#include "runtime/context.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { H = 2, D = 3, S = 2, B = 2 };

static const char plain[] =
    "graph @g(%past: f32[2,2,P,3], %new: f32[2,2,S,3], %pl: i32[2], %nl: i32[2], %total: i64[]) {\n"
    "  %present = concat_past_present %past, %new, %pl, %nl, %total : f32[2,2,C,3]\n"
    "  %y = Abs %present : f32[2,2,C,3]\n"
    "  return %present as \"present\", %y as \"y\"\n}\n";
/* Another node reads the past before the present is computed. */
static const char first_reader[] =
    "graph @g(%past: f32[2,2,P,3], %new: f32[2,2,S,3], %pl: i32[2], %nl: i32[2], %total: i64[]) {\n"
    "  %a = Abs %past : f32[2,2,P,3]\n"
    "  %r = ReduceSum %a : f32[1,1,1,1]\n"
    "  %n = Add %new, %r : f32[2,2,S,3]\n"
    "  %present = concat_past_present %past, %n, %pl, %nl, %total : f32[2,2,C,3]\n"
    "  %y = Abs %present : f32[2,2,C,3]\n"
    "  return %present as \"present\", %y as \"y\"\n}\n";
/* Another node reads the past after the present is computed. */
static const char second_reader[] =
    "graph @g(%past: f32[2,2,P,3], %new: f32[2,2,S,3], %pl: i32[2], %nl: i32[2], %total: i64[]) {\n"
    "  %present = concat_past_present %past, %new, %pl, %nl, %total : f32[2,2,C,3]\n"
    "  %a = Abs %present : f32[2,2,C,3]\n"
    "  %r = ReduceSum %a : f32[1,1,1,1]\n"
    "  %y = Add %past, %r : f32[2,2,P,3]\n"
    "  return %present as \"present\", %y as \"y\"\n}\n";
/* Results that no kernel computes, and one value twice. */
static const char views[] =
    "graph @g(%past: f32[2,2,P,3], %new: f32[2,2,S,3], %pl: i32[2], %nl: i32[2], %total: i64[]) {\n"
    "  %present = concat_past_present %past, %new, %pl, %nl, %total : f32[2,2,C,3]\n"
    "  return %present as \"present\", %present as \"again\", %new as \"same\"\n}\n";

typedef struct rig {
    gqac_program *program;
    gqac_context *context;
    gqac_diag diag;
    int64_t rows, total; /* rows of the past; total length of the call */
    float past[B * H * 16 * D], fresh[B * H * S * D];
    int32_t past_len[B], new_len[B];
} rig;

static void open_rig(rig *r, const char *text, int64_t rows, int64_t total) {
    char path[] = "/tmp/gqac-bind-XXXXXX.gq";
    gqac_options options;
    const int fd = mkstemps(path, 3);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    gqac_options_init(&options);
    options.stateless = true;
    *r = (rig){.rows = rows, .total = total, .past_len = {3, 1}, .new_len = {2, 1}};
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &r->program, &r->diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r->program, 2, &r->context, &r->diag), GQAC_OK);
    unlink(path);
    for (int i = 0; i < B * H * 16 * D; i++)
        r->past[i] = (float)(-1 - i);
    for (int i = 0; i < B * H * S * D; i++)
        r->fresh[i] = (float)(1000 + i);
}

static void close_rig(rig *r) {
    gqac_context_free(r->context);
    gqac_program_free(r->program);
}

static gqac_status run(rig *r, float *past, int n, gqac_tensor *out) {
    static const char *const names[] = {"past", "new", "pl", "nl", "total"};
    const gqac_tensor inputs[] = {
        {.dtype = GQAC_F32, .rank = 4, .dims = {B, H, r->rows, D}, .data = past},
        {.dtype = GQAC_F32, .rank = 4, .dims = {B, H, S, D}, .data = r->fresh},
        {.dtype = GQAC_I32, .rank = 1, .dims = {B}, .data = r->past_len},
        {.dtype = GQAC_I32, .rank = 1, .dims = {B}, .data = r->new_len},
        {.dtype = GQAC_I64, .rank = 0, .data = &r->total}};
    return gqac_run(r->context, 5, names, inputs, n, NULL, out, &r->diag);
}

static gqac_status bind(rig *r, const char *name, void *data, size_t bytes) {
    return gqac_context_bind_output(r->context, name, data, bytes, &r->diag);
}

static size_t bytes_of(const gqac_tensor *t) {
    return gqac_tensor_bytes(t);
}

/* Copies the n outputs of an unbound run. */
static void expect(rig *r, int n, float **copies, size_t *bytes) {
    gqac_tensor out[3];
    CU_ASSERT_EQUAL_FATAL(run(r, r->past, n, out), GQAC_OK);
    for (int i = 0; i < n; i++) {
        bytes[i] = bytes_of(&out[i]);
        copies[i] = malloc(bytes[i]);
        memcpy(copies[i], out[i].data, bytes[i]);
    }
}

static void check_outputs(const gqac_tensor *out, int n, float **copies, const size_t *bytes) {
    for (int i = 0; i < n; i++)
        CU_ASSERT(bytes_of(&out[i]) == bytes[i] && !memcmp(out[i].data, copies[i], bytes[i]));
}

static void test_apart(void) {
    rig r;
    gqac_tensor out[2];
    float *copies[2], memory[2][B * H * 8 * D];
    size_t bytes[2];
    open_rig(&r, plain, 4, 5);
    expect(&r, 2, copies, bytes);
    CU_ASSERT_EQUAL(bind(&r, "y", memory[0], sizeof memory[0]), GQAC_OK);
    CU_ASSERT_EQUAL(bind(&r, "present", memory[1], bytes[0]), GQAC_OK);
    CU_ASSERT_EQUAL(run(&r, r.past, 2, out), GQAC_OK);
    check_outputs(out, 2, copies, bytes);
    CU_ASSERT(out[0].data == memory[1] && out[1].data == memory[0]);
    CU_ASSERT_EQUAL(bind(&r, "y", NULL, 0), GQAC_OK);
    memset(memory[0], 0, sizeof memory[0]);
    CU_ASSERT_EQUAL(run(&r, r.past, 2, out), GQAC_OK);
    check_outputs(out, 2, copies, bytes);
    CU_ASSERT(out[1].data != memory[0] && memory[0][0] == 0.0f);
    free(copies[0]);
    free(copies[1]);
    close_rig(&r);
}

/* Present over its past: the bits of a run with separate memory; only new rows are written.
 * `direct`: nothing is copied. */
static void in_place(const char *text, int64_t rows, int64_t total, bool direct) {
    rig r;
    gqac_tensor out[2];
    float *copies[2], before[B * H * 16 * D];
    size_t bytes[2];
    open_rig(&r, text, rows, total);
    expect(&r, 2, copies, bytes);
    memcpy(before, r.past, sizeof before);
    CU_ASSERT_EQUAL(bind(&r, "present", r.past, bytes[0]), GQAC_OK);
    CU_ASSERT_EQUAL(run(&r, r.past, 2, out), GQAC_OK);
    check_outputs(out, 2, copies, bytes);
    CU_ASSERT(out[0].data == r.past);
    CU_ASSERT_EQUAL(r.context->exec.bound[0].direct, direct);
    for (int64_t i = 0; i < B * H; i++)
        for (int64_t j = 0; j < rows; j++) {
            const int64_t b = i / H, at = (i * rows + j) * D;
            const bool fresh = j >= r.past_len[b] && j < r.past_len[b] + r.new_len[b];
            CU_ASSERT((memcmp(r.past + at, before + at, sizeof(float) * D) != 0) == fresh);
        }
    free(copies[0]);
    free(copies[1]);
    close_rig(&r);
}

static void test_in_place(void) {
    in_place(plain, 5, 5, true);
    in_place(plain, 8, 5, true);
    in_place(first_reader, 6, 5, true);
}

static void test_second_reader(void) {
    in_place(second_reader, 6, 5, false);
}

static void test_views(void) {
    rig r;
    gqac_tensor out[3];
    float *copies[3], memory[3][B * H * 8 * D];
    size_t bytes[3];
    static const char *const names[] = {"present", "again", "same"};
    open_rig(&r, views, 4, 5);
    expect(&r, 3, copies, bytes);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(bind(&r, names[i], memory[i], bytes[i]), GQAC_OK);
    CU_ASSERT_EQUAL(run(&r, r.past, 3, out), GQAC_OK);
    check_outputs(out, 3, copies, bytes);
    for (int i = 0; i < 3; i++) {
        CU_ASSERT(out[i].data == memory[i]);
        free(copies[i]);
    }
    /* "same" is the memory to which "present" would be copied */
    CU_ASSERT_EQUAL(bind(&r, "same", NULL, 0), GQAC_OK);
    CU_ASSERT_EQUAL(bind(&r, "present", r.fresh, sizeof r.fresh), GQAC_OK);
    CU_ASSERT_EQUAL(run(&r, r.past, 3, out), GQAC_USAGE);
    CU_ASSERT(strstr(r.diag.what, "of which output 'same' is a view") != NULL);
    CU_ASSERT_EQUAL(r.fresh[0], 1000.0f);
    close_rig(&r);
}

static void test_errors(void) {
    rig r;
    gqac_tensor out[2];
    float memory[B * H * 8 * D];
    open_rig(&r, plain, 4, 5);
    CU_ASSERT_EQUAL(bind(&r, "nothing", memory, sizeof memory), GQAC_USAGE);
    CU_ASSERT_EQUAL(bind(&r, "present", memory, sizeof(float) * B * H * 5 * D - 1), GQAC_OK);
    CU_ASSERT_EQUAL(run(&r, r.past, 2, out), GQAC_INVALID_INPUT);
    CU_ASSERT(strstr(r.diag.what, "present") != NULL);
    CU_ASSERT_EQUAL(bind(&r, "present", memory, sizeof memory), GQAC_OK);
    CU_ASSERT_EQUAL(bind(&r, "y", memory + 10, sizeof(float) * 100), GQAC_OK);
    CU_ASSERT_EQUAL(run(&r, r.past, 2, out), GQAC_USAGE);
    CU_ASSERT_EQUAL(bind(&r, "y", NULL, 0), GQAC_OK);
    /* a past of 4 rows has no room for 5 tokens */
    CU_ASSERT_EQUAL(bind(&r, "present", r.past, sizeof r.past), GQAC_OK);
    CU_ASSERT_EQUAL(run(&r, r.past, 2, out), GQAC_INVALID_INPUT);
    CU_ASSERT(strstr(r.diag.what, "overwrites past, which has") != NULL);
    close_rig(&r);
    gqac_options options;
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/llama/model.onnx"), &options, &r.program, &r.diag),
        GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r.program, 1, &r.context, &r.diag), GQAC_OK);
    CU_ASSERT_EQUAL(bind(&r, "logits", memory, sizeof memory), GQAC_USAGE);
    close_rig(&r);
}

static const unit_case cases[] = {
    {"outputs in memory of the caller", test_apart},
    {"a present over its past", test_in_place},
    {"a past that another node reads is not overwritten before", test_second_reader},
    {"inputs as outputs, and one value twice", test_views},
    {"wrong sizes, names and overlaps", test_errors},
};

int main(int argc, char **argv) {
    return unit_run("bind_output", cases, sizeof cases / sizeof *cases, argc, argv);
}
