/* An encoder and a decoder from C (gqac/seq2seq.h): the traced T5, with one decoder with a past and
 * one without, and the traced Whisper, which takes features and has no caches. The ids must be
 * those of a greedy loop that runs the decoder on all ids every time, with gqac_run only. */
#include "unit.h"

#include <gqac/text.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { NEW = 12, STATES = 7, BANDS = 8, FRAMES = 40 };

static gqac_diag diag;

typedef struct rig {
    gqac_threads *threads;
    gqac_seq2seq *model;
    gqac_seq2seq_context *context;
    int64_t ids[STATES];
    float features[BANDS * FRAMES];
    gqac_tensor tensor;
    gqac_seq2seq_source source;
} rig;

static void open_rig(rig *r, const char *name, int threads) {
    char path[64];
    snprintf(path, sizeof path, "test/traced/%s", name);
    memset(r, 0, sizeof *r);
    CU_ASSERT_EQUAL_FATAL(gqac_threads_create(threads, &r->threads, &diag), GQAC_OK);
    CU_ASSERT(gqac_seq2seq_is_folder(unit_path(path)));
    const gqac_status status = gqac_seq2seq_open(unit_path(path), NULL, &r->model, &diag);
    if (status != GQAC_OK)
        printf("%s: %s (%s)\n", path, diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_seq2seq_context_create(r->model, r->threads, &r->context, &diag),
                          GQAC_OK);
    uint32_t seed = 9;
    for (int i = 0; i < STATES; i++)
        r->ids[i] = (const int64_t[STATES]){9, 9, 49, 31, 36, 37, 44}[i];
    for (int i = 0; i < BANDS * FRAMES; i++) {
        seed = seed * 1664525u + 1013904223u;
        r->features[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    r->tensor = (gqac_tensor){
        .dtype = GQAC_F32, .rank = 3, .dims = {1, BANDS, FRAMES}, .data = r->features};
    r->source.size = sizeof r->source;
    if (gqac_seq2seq_get_settings(r->model)->features) {
        r->source.features = &r->tensor;
    } else {
        r->source.ids = r->ids;
        r->source.n_ids = STATES;
    }
}

static void close_rig(rig *r) {
    gqac_seq2seq_context_free(r->context);
    gqac_seq2seq_free(r->model);
    gqac_threads_free(r->threads);
}

static gqac_status try(rig *r, const gqac_generate_request *request, gqac_generation **said) {
    memset(&diag, 0, sizeof diag);
    return gqac_seq2seq_generate(r->context, NULL, &r->source, request, said, &diag);
}

static gqac_generation *generate(rig *r, const gqac_generate_request *request) {
    gqac_generation *said = NULL;
    const gqac_status status = try(r, request, &said);
    if (status != GQAC_OK)
        printf("%s (%s)\n", diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return said;
}

static gqac_generate_request plain_request(const rig *r) {
    gqac_generate_request request;
    gqac_seq2seq_request_init(&request, r->model);
    request.max_new = NEW;
    request.n_eos = 0;
    return request;
}

/* ---- the loop ------------------------------------------------------------ */

typedef struct file {
    gqac_program *program;
    gqac_context *context;
} file;

static file open_file(const char *name, const char *part) {
    char path[96];
    file f = {0};
    gqac_options options;
    gqac_options_init(&options);
    options.stateless = true;
    snprintf(path, sizeof path, "test/traced/%s/%s_model.onnx", name, part);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(path), &options, &f.program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(f.program, 1, &f.context, &diag), GQAC_OK);
    return f;
}

static void close_file(file *f) {
    gqac_context_free(f->context);
    gqac_program_free(f->program);
}

/* `ids`: the start, then NEW more ids. */
static void expect_ids(const rig *r, const char *name, int64_t ids[NEW + 1]) {
    int64_t ones[STATES + NEW + 1];
    file encoder = open_file(name, "encoder"), decoder = open_file(name, "decoder");
    gqac_tensor states;
    for (int i = 0; i < STATES + NEW + 1; i++)
        ones[i] = 1;
    gqac_tensor source[2] = {{GQAC_I64, 2, {1, STATES}, (void *)(uintptr_t)r->ids},
                             {GQAC_I64, 2, {1, STATES}, ones}};
    if (r->source.features)
        source[0] = r->tensor;
    const char *const names[] = {r->source.features ? "input_features" : "input_ids",
                                 "attention_mask"};
    CU_ASSERT_EQUAL_FATAL(gqac_run(encoder.context, r->source.features ? 1 : 2, names, source, 1,
                                   (const char *[]){"last_hidden_state"}, &states, &diag),
                          GQAC_OK);
    ids[0] = gqac_seq2seq_get_settings(r->model)->start;
    for (int n = 1; n <= NEW; n++) {
        const bool own = r->source.features != NULL; /* the mask belongs to the decoder's ids */
        const gqac_tensor in[] = {
            {GQAC_I64, 2, {1, n}, ids}, states, {GQAC_I64, 2, {1, own ? n : STATES}, ones}};
        const char *const in_names[] = {"input_ids", "encoder_hidden_states",
                                        own ? "attention_mask" : "encoder_attention_mask"};
        gqac_tensor logits;
        CU_ASSERT_EQUAL_FATAL(gqac_run(decoder.context, 3, in_names, in, 1,
                                       (const char *[]){"logits"}, &logits, &diag),
                              GQAC_OK);
        const float *last = (const float *)logits.data + (n - 1) * logits.dims[2];
        ids[n] = 0;
        for (int64_t i = 1; i < logits.dims[2]; i++)
            ids[n] = last[i] > last[ids[n]] ? i : ids[n];
    }
    close_file(&encoder);
    close_file(&decoder);
}

/* ---- cases --------------------------------------------------------------- */

/* The files of the model are those of its folder, in their order. */
static void check_files(const rig *r, bool with_past) {
    static const char *const names[] = {"/encoder_model.onnx", "/decoder_model.onnx",
                                        "/decoder_with_past_model.onnx"};
    const gqac_seq2seq_file *files = NULL;
    const int n = gqac_seq2seq_files(r->model, &files);
    CU_ASSERT_EQUAL_FATAL(n, with_past ? 3 : 2);
    for (int i = 0; i < n; i++) {
        CU_ASSERT_PTR_NOT_NULL(strstr(files[i].path, names[i]));
        CU_ASSERT(gqac_program_is_stateless(files[i].program));
        CU_ASSERT_EQUAL(gqac_program_vocabulary(files[i].program),
                        i ? gqac_seq2seq_get_settings(r->model)->vocabulary : 0);
    }
}

static int count_distinct(const int64_t *ids, int n) {
    int distinct = 0;
    for (int i = 0; i < n; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen |= ids[j] == ids[i];
        distinct += !seen;
    }
    return distinct;
}

static void check_model(const char *name, bool cached) {
    rig r;
    int64_t ids[NEW + 1];
    open_rig(&r, name, 2);
    CU_ASSERT_EQUAL(gqac_seq2seq_get_settings(r.model)->cached, cached);
    check_files(&r, cached);
    expect_ids(&r, name, ids);
    CU_ASSERT(count_distinct(ids, NEW + 1) > 3);
    gqac_generate_request request = plain_request(&r);
    for (int again = 0; again < 2; again++) { /* caches of the previous call are discarded */
        gqac_generation *said = generate(&r, &request);
        CU_ASSERT_EQUAL_FATAL(said->n_ids, NEW);
        CU_ASSERT(!memcmp(said->ids, ids + 1, NEW * sizeof *ids));
        CU_ASSERT_EQUAL(said->finish, GQAC_FINISH_LENGTH);
        CU_ASSERT_EQUAL(said->metrics.n_forwards, NEW);
        CU_ASSERT_EQUAL(said->metrics.computed_tokens, cached ? NEW : NEW * (NEW + 1) / 2);
        CU_ASSERT(said->metrics.time_to_first_token_ms > 0);
        gqac_generation_free(said);
    }
    /* a longer beginning, and an end id */
    request.prompt = ids;
    request.n_prompt = 4;
    request.max_new = NEW - 3;
    gqac_generation *said = generate(&r, &request);
    CU_ASSERT_EQUAL_FATAL(said->n_ids, NEW - 3);
    CU_ASSERT(!memcmp(said->ids, ids + 4, (NEW - 3) * sizeof *ids));
    gqac_generation_free(said);
    request = plain_request(&r);
    request.n_eos = 1;
    request.eos = ids + 1;
    said = generate(&r, &request);
    CU_ASSERT_EQUAL(said->n_ids, 1);
    CU_ASSERT_EQUAL(said->finish, GQAC_FINISH_EOS);
    gqac_generation_free(said);
    request.max_new = 0;
    said = generate(&r, &request);
    CU_ASSERT_EQUAL(said->n_ids, 0);
    gqac_generation_free(said);
    close_rig(&r);
}

static void test_text(void) {
    check_model("t5", true);
}

static void test_speech(void) {
    check_model("whisper", false);
}

static void expect_refused(rig *r, const gqac_generate_request *request, gqac_status status,
                           const char *word) {
    gqac_generation *said = NULL;
    CU_ASSERT_EQUAL(try(r, request, &said), status);
    if (!strstr(diag.what, word) && !strstr(diag.where, word))
        printf("'%s' (%s) has no '%s'\n", diag.what, diag.where, word);
    CU_ASSERT(strstr(diag.what, word) || strstr(diag.where, word));
    CU_ASSERT_PTR_NULL(said);
}

static void test_refused(void) {
    rig r;
    open_rig(&r, "t5", 1);
    gqac_generate_request request = plain_request(&r);
    const gqac_seq2seq_source good = r.source;
    r.source.ids = NULL;
    expect_refused(&r, &request, GQAC_USAGE, "either ids or features");
    r.source.features = &r.tensor;
    expect_refused(&r, &request, GQAC_USAGE, "the encoder needs ids");
    r.source = good;
    r.source.n_ids = 0;
    expect_refused(&r, &request, GQAC_OUT_OF_RANGE, "0 ids");
    r.source = good;
    r.ids[1] = -1;
    expect_refused(&r, &request, GQAC_OUT_OF_RANGE, "-1 at index 1");
    r.ids[1] = 1 << 20;
    expect_refused(&r, &request, GQAC_OUT_OF_RANGE, "encoder_model.onnx");
    r.ids[1] = 3;
    request.chunk = 1;
    expect_refused(&r, &request, GQAC_USAGE, "chunk");
    request.chunk = 0;
    request.speculate = 1;
    expect_refused(&r, &request, GQAC_USAGE, "drafts");
    request.speculate = 0;
    request.prompt = (const int64_t[]){0, 1 << 20};
    request.n_prompt = 2;
    expect_refused(&r, &request, GQAC_OUT_OF_RANGE, "1048576 at index 1");
    request.prompt = NULL;
    request.n_prompt = 0;
    gqac_generation_free(generate(&r, &request));
    close_rig(&r);

    gqac_seq2seq *model = NULL;
    CU_ASSERT(!gqac_seq2seq_is_folder(unit_path("test/models/llama")));
    CU_ASSERT(!gqac_seq2seq_is_folder("/no/such/folder"));
    CU_ASSERT_EQUAL(gqac_seq2seq_open("/no/such/folder", NULL, &model, &diag), GQAC_IO);
    CU_ASSERT_EQUAL(gqac_seq2seq_open(unit_path("test/traced/llama"), NULL, &model, &diag),
                    GQAC_IO);
    CU_ASSERT(!model && *diag.rule);
    open_rig(&r, "whisper", 1);
    request = plain_request(&r);
    r.source.features = NULL;
    r.source.ids = r.ids;
    r.source.n_ids = STATES;
    expect_refused(&r, &request, GQAC_USAGE, "the encoder needs features");
    close_rig(&r);
}

static bool is_over(void *arg) {
    return (*(int *)arg)++ >= 20;
}

/* The call is aborted, and the object is used again. */
static void test_abort(void) {
    rig r;
    int asked = 0;
    const gqac_monitor monitor = {.size = sizeof monitor, .abort = is_over, .arg = &asked};
    open_rig(&r, "t5", 1);
    const gqac_generate_request request = plain_request(&r);
    CU_ASSERT_EQUAL(gqac_seq2seq_context_set_monitor(r.context, &monitor, &diag), GQAC_OK);
    expect_refused(&r, &request, GQAC_ABORTED, "");
    CU_ASSERT_EQUAL(gqac_seq2seq_context_set_monitor(r.context, NULL, &diag), GQAC_OK);
    gqac_generation *said = generate(&r, &request);
    CU_ASSERT_EQUAL(said->n_ids, NEW);
    gqac_generation_free(said);
    close_rig(&r);
}

/* Failing allocations anywhere in a call are errors, and nothing leaks. */
static void test_memory(void) {
    rig r;
    open_rig(&r, "t5", 1);
    gqac_generate_request request = plain_request(&r);
    request.max_new = 3;
    gqac_generation_free(generate(&r, &request));
    const size_t live = gqac_alloc_live();
    gqac_alloc_fail_at(0, 0);
    gqac_generation_free(generate(&r, &request));
    const size_t calls = gqac_alloc_calls();
    CU_ASSERT(calls > 20);
    for (size_t i = 1; i <= calls; i++) {
        gqac_generation *said = NULL;
        gqac_alloc_fail_at(i, 0);
        const gqac_status status = try(&r, &request, &said);
        gqac_alloc_fail_at(0, 0);
        if (status == GQAC_OK) /* the allocation was not essential */
            gqac_generation_free(said);
        else
            CU_ASSERT_EQUAL(status, GQAC_NO_MEMORY);
    }
    gqac_generation *said = generate(&r, &request);
    CU_ASSERT_EQUAL(said->n_ids, 3);
    gqac_generation_free(said);
    CU_ASSERT(gqac_alloc_live() <= live + 2); /* the caches may exist now or earlier */
    close_rig(&r);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"text, with caches", test_text},       {"features, without caches", test_speech},
        {"what is refused", test_refused},      {"a run that is ended", test_abort},
        {"allocations that fail", test_memory},
    };
    return unit_run("llm/seq2seq", cases, sizeof cases / sizeof *cases, argc, argv);
}
