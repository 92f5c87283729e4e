/* One model as a prefill and a decode graph (rows M2, M3, M9, M10, M19 to M22): the rewritten files
 * at run time, with keys and values passed on by read_output and upload, and caches written in
 * place. The results must equal those of a sequence of the same model. */
#include "runtime/context.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT = 13, STEPS = 9, CAPACITY = 24, LAYERS = 2, HEADS = 2, SIZE = 32 };

static gqac_diag diag;

typedef struct rig {
    char base[64], prefill_path[96], decode_path[96];
    gqac_program *prefill, *decode, *whole;
    gqac_context *first, *next, *steps;
    int64_t ids[PROMPT + STEPS + 4];
} rig;

static gqac_program *open_program(const char *path, bool stateless) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    options.stateless = stateless;
    const gqac_status status = gqac_program_open(path, &options, &program, &diag);
    if (status != GQAC_OK)
        printf("%s: %s %s\n", path, diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return program;
}

static gqac_context *open_context(const gqac_program *program) {
    gqac_context *context = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    return context;
}

static void open_rig(rig *r) {
    const char *model = unit_path("test/models/llama/model.onnx");
    gqac_options options;
    gqac_rewritten *done = NULL;
    memset(r, 0, sizeof *r);
    gqac_options_init(&options);
    snprintf(r->base, sizeof r->base, "/tmp/gqac-two-%d.onnx", (int)getpid());
    const gqac_status status = gqac_rewrite(model, "two-graph", &options, r->base, &done, &diag);
    if (status != GQAC_OK)
        printf("%s: %s\n", diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    CU_ASSERT_EQUAL(done->changes, 2 * LAYERS);
    CU_ASSERT_EQUAL_FATAL(done->n_files, 2);
    snprintf(r->prefill_path, sizeof r->prefill_path, "%s", done->files[0]);
    snprintf(r->decode_path, sizeof r->decode_path, "%s", done->files[1]);
    gqac_release(done);
    r->prefill = open_program(r->prefill_path, true);
    r->decode = open_program(r->decode_path, true);
    r->whole = open_program(model, false);
    r->first = open_context(r->prefill);
    r->next = open_context(r->decode);
    r->steps = open_context(r->whole);
    for (int i = 0; i < PROMPT + STEPS + 4; i++)
        r->ids[i] = (i * 37 + 11) % 250;
}

static void close_rig(rig *r) {
    gqac_context_free(r->first);
    gqac_context_free(r->next);
    gqac_context_free(r->steps);
    gqac_program_free(r->prefill);
    gqac_program_free(r->decode);
    gqac_program_free(r->whole);
    unlink(r->prefill_path);
    unlink(r->decode_path);
}

static gqac_status prompt(rig *r, int64_t n) {
    static const char *const name = "input_ids";
    const gqac_tensor ids = {.dtype = GQAC_I64, .rank = 2, .dims = {1, n}, .data = r->ids};
    return gqac_run(r->first, 1, &name, &ids, 0, NULL, NULL, &diag);
}

static gqac_status one_token(rig *r, int64_t at, int64_t tokens) {
    static const char *const names[] = {"input_ids", "kv_pos"};
    int64_t where = at;
    const gqac_tensor in[2] = {
        {.dtype = GQAC_I64, .rank = 2, .dims = {1, tokens}, .data = r->ids + at},
        {.dtype = GQAC_I64, .rank = 1, .dims = {1}, .data = &where}};
    return gqac_run(r->next, 2, names, in, 0, NULL, NULL, &diag);
}

static const char *cache_name(int i) {
    static char name[2][32];
    static int turn;
    turn = !turn;
    snprintf(name[turn], sizeof name[turn], "kv_cache.layer.%d.%s", i / 2, i % 2 ? "v" : "k");
    return name[turn];
}

/* Zeroed caches of `rows` rows, each bound to the output that is its next state. */
static void reserve(rig *r, int64_t rows) {
    const int64_t dims[4] = {1, HEADS, rows, SIZE};
    for (int i = 0; i < 2 * LAYERS; i++) {
        gqac_tensor memory;
        char out[48];
        CU_ASSERT_EQUAL_FATAL(gqac_context_reserve(r->next, cache_name(i), 4, dims, &diag),
                              GQAC_OK);
        CU_ASSERT_EQUAL(gqac_context_parameter(r->next, cache_name(i), &memory, &diag), GQAC_OK);
        snprintf(out, sizeof out, "%s.out", cache_name(i));
        CU_ASSERT_EQUAL(
            gqac_context_bind_output(r->next, out, memory.data, gqac_tensor_bytes(&memory), &diag),
            GQAC_OK);
    }
}

/* Copies output 1 + i of the prompt to cache i. */
static void hand_over(rig *r) {
    for (int i = 0; i < 2 * LAYERS; i++) {
        gqac_tensor rows;
        CU_ASSERT_EQUAL_FATAL(gqac_context_read_output(r->first, 1 + i, &rows, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(gqac_context_upload(r->next, cache_name(i), &rows, &diag), GQAC_OK);
    }
}

static const float *logits_of(const gqac_context *context, int64_t *size) {
    gqac_tensor t;
    CU_ASSERT_EQUAL_FATAL(gqac_context_read_output(context, 0, &t, &diag), GQAC_OK);
    CU_ASSERT(t.rank == 3 && t.dims[0] == 1 && t.dims[1] == 1);
    *size = t.dims[2];
    return t.data;
}

/* Computes the same tokens with a sequence; the logits of the last one must equal `got`, bit for
 * bit. */
static void expect_step(rig *r, gqac_sequence *sequence, int64_t at, int64_t count,
                        const gqac_context *context) {
    int64_t rows = 0, vocabulary = 0, size = 0;
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_append(r->steps, sequence, r->ids + at, count, GQAC_LOGITS_ALL, &diag),
        GQAC_OK);
    const float *logits = gqac_context_logits(r->steps, 0, &rows, &vocabulary);
    const float *got = logits_of(context, &size);
    CU_ASSERT_EQUAL_FATAL(size, vocabulary);
    CU_ASSERT(!memcmp(got, logits + (rows - 1) * vocabulary, (size_t)vocabulary * sizeof *got));
}

/* M2: 1 + 2 * layers results; keys and values for every row of the prompt. */
static void test_prefill(void) {
    rig r;
    gqac_sequence *sequence = NULL;
    const gqac_io *outputs = NULL;
    open_rig(&r);
    CU_ASSERT_EQUAL(gqac_program_outputs(r.prefill, &outputs), 1 + 2 * LAYERS);
    CU_ASSERT_STRING_EQUAL(outputs[0].name, "logits");
    CU_ASSERT_STRING_EQUAL(outputs[1].name, "kv_cache.layer.0.k");
    CU_ASSERT_STRING_EQUAL(outputs[4].name, "kv_cache.layer.1.v");
    CU_ASSERT_EQUAL(prompt(&r, PROMPT), GQAC_OK);
    for (int i = 0; i < 2 * LAYERS; i++) {
        gqac_tensor t;
        CU_ASSERT_EQUAL(gqac_context_read_output(r.first, 1 + i, &t, &diag), GQAC_OK);
        CU_ASSERT(t.rank == 4 && t.dims[1] == HEADS && t.dims[2] == PROMPT && t.dims[3] == SIZE);
    }
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r.whole, NULL, &sequence, &diag), GQAC_OK);
    expect_step(&r, sequence, 0, PROMPT, r.first);
    gqac_sequence_free(sequence);
    close_rig(&r);
}

/* M3: exactly one token. */
static void test_one_token(void) {
    rig r;
    open_rig(&r);
    reserve(&r, CAPACITY);
    CU_ASSERT_EQUAL(one_token(&r, 0, 2), GQAC_INVALID_INPUT);
    CU_ASSERT(strstr(diag.what, "input_ids") != NULL);
    CU_ASSERT_EQUAL(one_token(&r, 0, 1), GQAC_OK);
    close_rig(&r);
}

/* M19, M21: a prompt, then token by token; every logit equals that of a sequence. M9, M10: the
 * caches stay at the same address, and contain all rows. */
static void test_hand_over(void) {
    rig r;
    gqac_sequence *sequence = NULL;
    gqac_tensor before, after, rows;
    open_rig(&r);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r.whole, NULL, &sequence, &diag), GQAC_OK);
    reserve(&r, CAPACITY);
    CU_ASSERT_EQUAL_FATAL(prompt(&r, PROMPT), GQAC_OK);
    hand_over(&r);
    expect_step(&r, sequence, 0, PROMPT, r.first);
    CU_ASSERT_EQUAL(gqac_context_parameter(r.next, cache_name(1), &before, &diag), GQAC_OK);
    for (int i = 0; i < STEPS; i++) {
        CU_ASSERT_EQUAL_FATAL(one_token(&r, PROMPT + i, 1), GQAC_OK);
        expect_step(&r, sequence, PROMPT + i, 1, r.next);
    }
    CU_ASSERT_EQUAL(gqac_context_parameter(r.next, cache_name(1), &after, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(before.data, after.data);
    for (int i = 1; i <= 2 * LAYERS; i++)
        CU_ASSERT(r.next->exec.bound[i].direct); /* no copy of a cache */
    float all[HEADS * (PROMPT + STEPS) * SIZE];
    const gqac_kv_pair *pairs = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_program_kv_pairs(r.whole, &pairs), 2 * LAYERS);
    CU_ASSERT_EQUAL(
        gqac_sequence_export(sequence, "past_key_values.0.value", all, sizeof all, &diag), GQAC_OK);
    for (int h = 0; h < HEADS; h++)
        CU_ASSERT(!memcmp((float *)after.data + h * CAPACITY * SIZE,
                          all + h * (PROMPT + STEPS) * SIZE,
                          sizeof(float) * (PROMPT + STEPS) * SIZE));
    CU_ASSERT_EQUAL(gqac_context_read_output(r.next, 2, &rows, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(rows.data, after.data);
    gqac_sequence_free(sequence);
    close_rig(&r);
}

/* M22: the capacity ends after the last row, and nothing is written. */
static void test_edge(void) {
    rig r;
    gqac_tensor cache;
    float kept[HEADS * 4 * SIZE];
    open_rig(&r);
    reserve(&r, 4);
    for (int i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(one_token(&r, i, 1), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_context_parameter(r.next, cache_name(0), &cache, &diag), GQAC_OK);
    memcpy(kept, cache.data, sizeof kept);
    CU_ASSERT_EQUAL(one_token(&r, 4, 1), GQAC_OUT_OF_RANGE);
    CU_ASSERT(!memcmp(kept, cache.data, sizeof kept));
    close_rig(&r);
}

/* M20: upload and read back, zeroing, and unknown names. */
static void test_parameters(void) {
    rig r;
    gqac_tensor view;
    float rows[HEADS * 2 * SIZE];
    const int64_t dims[4] = {1, HEADS, 3, SIZE}, wrong[4] = {1, HEADS + 1, 3, SIZE};
    gqac_tensor given = {.dtype = GQAC_F32, .rank = 4, .dims = {1, HEADS, 2, SIZE}, .data = rows};
    open_rig(&r);
    for (int i = 0; i < HEADS * 2 * SIZE; i++)
        rows[i] = (float)(1 + i);
    CU_ASSERT_EQUAL(gqac_context_parameter(r.next, cache_name(0), &view, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_context_reserve(r.next, cache_name(0), 4, wrong, &diag),
                    GQAC_INVALID_INPUT);
    CU_ASSERT_EQUAL(gqac_context_reserve(r.next, cache_name(0), 4, dims, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_context_upload(r.next, cache_name(0), &given, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_parameter(r.next, cache_name(0), &view, &diag), GQAC_OK);
    const float *got = view.data;
    for (int h = 0; h < HEADS; h++) {
        CU_ASSERT(!memcmp(got + h * 3 * SIZE, rows + h * 2 * SIZE, sizeof(float) * 2 * SIZE));
        CU_ASSERT_EQUAL(got[(h * 3 + 2) * SIZE], 0.0f);
    }
    CU_ASSERT_EQUAL(gqac_context_reserve(r.next, cache_name(0), 4, dims, &diag), GQAC_OK);
    CU_ASSERT(got[0] == 0.0f && got[HEADS * 3 * SIZE - 1] == 0.0f);
    CU_ASSERT_EQUAL(gqac_context_upload(r.next, "kv_cache.layer.9.k", &given, &diag), GQAC_USAGE);
    CU_ASSERT(strstr(diag.what, "kv_cache.layer.9.k") != NULL);
    given.dtype = GQAC_I32;
    CU_ASSERT_EQUAL(gqac_context_upload(r.next, cache_name(0), &given, &diag), GQAC_INVALID_INPUT);
    CU_ASSERT_EQUAL(gqac_context_read_output(r.next, 0, &view, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL_FATAL(prompt(&r, 3), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_context_read_output(r.first, 1 + 2 * LAYERS, &view, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_context_read_output(r.first, -1, &view, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_context_upload(r.steps, "input_ids", &given, &diag), GQAC_USAGE);
    close_rig(&r);
}

/* Reserving another size frees the memory, and removes bindings to it and views of it. */
static void test_reserve_again(void) {
    rig r;
    gqac_tensor view;
    const int64_t dims[4] = {1, HEADS, CAPACITY / 2, SIZE};
    open_rig(&r);
    reserve(&r, CAPACITY);
    CU_ASSERT_EQUAL(one_token(&r, 0, 1), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_context_read_output(r.next, 1, &view, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_context_parameter(r.next, cache_name(0), &view, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_context_upload(r.next, cache_name(0), &view, &diag), GQAC_OK);
    gqac_tensor part = view;
    part.dims[2] = 1;
    CU_ASSERT_EQUAL(gqac_context_upload(r.next, cache_name(0), &part, &diag), GQAC_INVALID_INPUT);
    CU_ASSERT(strstr(diag.what, "its own memory") != NULL);
    for (int i = 0; i < 2 * LAYERS; i++)
        CU_ASSERT_EQUAL(gqac_context_reserve(r.next, cache_name(i), 4, dims, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_context_read_output(r.next, 1, &view, &diag), GQAC_USAGE);
    for (int i = 1; i <= 2 * LAYERS; i++)
        CU_ASSERT_PTR_NULL(r.next->exec.bound[i].data);
    CU_ASSERT_EQUAL(one_token(&r, 0, 1), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_context_read_output(r.next, 1, &view, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(view.dims[2], CAPACITY / 2);
    close_rig(&r);
}

static const unit_case cases[] = {
    {"M2 prefill: the last row of logits, keys and values of every layer", test_prefill},
    {"M3 decode: exactly one token", test_one_token},
    {"M9 M10 M19 M21 hand-over, then token by token, in place", test_hand_over},
    {"M20 parameters: there and back, unknown names", test_parameters},
    {"M22 the last row", test_edge},
    {"parameters of another size", test_reserve_again},
};

int main(int argc, char **argv) {
    return unit_run("two_graph", cases, sizeof cases / sizeof *cases, argc, argv);
}
