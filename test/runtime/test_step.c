/* Steps: the bits of splits and mixtures, and the state after a refused step. The model is exported
 * (test/models/llama: Hq 6, Hkv 2, D 32), and is run through the public API. */
#include "runtime/steps.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/context.h"

enum { N = 70, MOST_PAIRS = 64 };

static const char *const llama = "test/models/llama/model.onnx";
static const char *const phi3 = "test/models/phi3/model.onnx";

static gqac_diag diag;

static gqac_program *open_model(const char *path) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    gqac_status status = gqac_program_open(unit_path(path), &options, &program, &diag);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return program;
}

static gqac_context *open_context(const gqac_program *program, int threads) {
    gqac_context *context = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, threads, &context, &diag), GQAC_OK);
    return context;
}

static gqac_sequence *open_sequence(const gqac_program *program, int64_t capacity, int64_t length) {
    const gqac_sequence_options options = {
        .size = sizeof options, .capacity = capacity, .final_length = length};
    gqac_sequence *sequence = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &options, &sequence, &diag), GQAC_OK);
    return sequence;
}

static void fill_ids(int64_t *ids, int n) {
    for (int i = 0; i < n; i++)
        ids[i] = (i * 37 + 11) % 250;
}

static gqac_status feed(gqac_context *context, gqac_sequence *sequence, const int64_t *ids,
                        int64_t count) {
    return gqac_sequence_append(context, sequence, ids, count, GQAC_LOGITS_ALL, &diag);
}

/* A malloc'd copy of all past tensors of a sequence. */
static unsigned char *snapshot(const gqac_program *program, const gqac_sequence *sequence,
                               size_t *bytes) {
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(program, &pairs);
    const int64_t length = gqac_sequence_length(sequence);
    unsigned char *all = NULL;
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        const size_t size = (size_t)(pairs[i].heads * length * pairs[i].head_size) *
                            (size_t)gqac_dtype_bits(pairs[i].dtype) / 8;
        all = realloc(all, *bytes + size + 1);
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_export(sequence, pairs[i].past, all + *bytes, size, &diag), GQAC_OK);
        *bytes += size;
    }
    return all;
}

/* Tokens computed one by one, and in one call, have the same logits and the same cache. */
static void test_split_equals_full(void) {
    gqac_program *program = open_model(llama);
    gqac_context *context = open_context(program, 1);
    gqac_sequence *full = open_sequence(program, 0, 0), *split = open_sequence(program, 0, 0);
    int64_t ids[N], rows = 0, vocabulary = 0;
    fill_ids(ids, N);
    CU_ASSERT_EQUAL_FATAL(feed(context, full, ids, N), GQAC_OK);
    const float *logits = gqac_context_logits(context, 0, &rows, &vocabulary);
    CU_ASSERT_EQUAL_FATAL(rows, N);
    float *expected = malloc((size_t)(N * vocabulary) * sizeof *expected);
    memcpy(expected, logits, (size_t)(N * vocabulary) * sizeof *expected);
    for (int i = 0; i < N; i++) {
        CU_ASSERT_EQUAL_FATAL(feed(context, split, ids + i, 1), GQAC_OK);
        logits = gqac_context_logits(context, 0, &rows, &vocabulary);
        CU_ASSERT_EQUAL(rows, 1);
        CU_ASSERT(!memcmp(logits, expected + i * vocabulary, (size_t)vocabulary * sizeof *logits));
    }
    size_t a = 0, b = 0;
    unsigned char *x = snapshot(program, full, &a), *y = snapshot(program, split, &b);
    CU_ASSERT(a > 0 && a == b && !memcmp(x, y, a));
    free(x);
    free(y);
    free(expected);
    gqac_sequence_free(full);
    gqac_sequence_free(split);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* Every refused step must leave length and cached bytes unchanged, and the next step must compute
 * the same as without the refusal. */
static void expect_refused(gqac_program *program, gqac_context *context, gqac_sequence *sequence,
                           gqac_status expected, const int64_t *ids, int64_t count,
                           const int64_t *position) {
    size_t before = 0, after = 0;
    const int64_t length = gqac_sequence_length(sequence);
    unsigned char *x = snapshot(program, sequence, &before);
    const gqac_step_item item = {.size = sizeof item,
                                 .sequence = sequence,
                                 .tokens = ids,
                                 .count = count,
                                 .n_logits = 1,
                                 .position = position};
    const gqac_status status = gqac_step(context, 1, &item, &diag);
    CU_ASSERT_EQUAL(diag.index, 0);
    CU_ASSERT_EQUAL(status, expected);
    CU_ASSERT(*diag.what);
    CU_ASSERT_EQUAL(gqac_sequence_length(sequence), length);
    unsigned char *y = snapshot(program, sequence, &after);
    CU_ASSERT(before == after && !memcmp(x, y, before));
    free(x);
    free(y);
}

static void test_refused_steps(void) {
    gqac_program *program = open_model(llama);
    gqac_context *context = open_context(program, 2);
    gqac_sequence *sequence = open_sequence(program, 66, 0), *twin = open_sequence(program, 66, 0);
    int64_t ids[N], rows = 0, vocabulary = 0;
    fill_ids(ids, N);
    CU_ASSERT_EQUAL_FATAL(feed(context, sequence, ids, 60), GQAC_OK);
    const int64_t negative[] = {-1}, large[] = {5, 258}, wrong = 59, right = 60;
    expect_refused(program, context, sequence, GQAC_OUT_OF_RANGE, negative, 1, NULL);
    expect_refused(program, context, sequence, GQAC_OUT_OF_RANGE, large, 2, NULL);
    expect_refused(program, context, sequence, GQAC_OUT_OF_RANGE, ids, 1, &wrong);
    expect_refused(program, context, sequence, GQAC_OUT_OF_RANGE, ids, 0, NULL);
    expect_refused(program, context, sequence, GQAC_CAPACITY, ids, 7, NULL);
    for (int64_t drafts = -1; drafts < 3; drafts += 3) {
        const gqac_step_item item = {.size = sizeof item,
                                     .sequence = sequence,
                                     .tokens = ids + 60,
                                     .count = 2,
                                     .drafts = drafts};
        CU_ASSERT_EQUAL(gqac_step(context, 1, &item, &diag), GQAC_OUT_OF_RANGE);
        CU_ASSERT(diag.index == 0 && strstr(diag.what, "drafts among the 2 tokens of item 0"));
        CU_ASSERT_EQUAL(gqac_sequence_length(sequence), 60);
    }
    const gqac_step_item fits = {.size = sizeof fits,
                                 .sequence = sequence,
                                 .tokens = ids + 60,
                                 .count = 6,
                                 .n_logits = GQAC_LOGITS_ALL,
                                 .position = &right};
    CU_ASSERT_EQUAL(gqac_step(context, 1, &fits, &diag), GQAC_OK);
    expect_refused(program, context, sequence, GQAC_CAPACITY, ids, 1, NULL);
    const float *logits = gqac_context_logits(context, 0, &rows, &vocabulary);
    CU_ASSERT_PTR_NULL(logits); /* a refused step has no logits */
    CU_ASSERT_EQUAL_FATAL(feed(context, twin, ids, 66), GQAC_OK);
    size_t a = 0, b = 0;
    unsigned char *x = snapshot(program, sequence, &a), *y = snapshot(program, twin, &b);
    CU_ASSERT(a == b && !memcmp(x, y, a));
    free(x);
    free(y);
    gqac_sequence *twice[] = {twin, twin};
    const int64_t ones[] = {1, 1};
    CU_ASSERT_EQUAL(steps_run(context, 2, twice, ids, ones, 1, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(diag.index, 1);
    gqac_sequence_free(sequence);
    gqac_sequence_free(twin);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* If one sequence of a batch is refused, no sequence changes. */
static void test_one_bad_row(void) {
    gqac_program *program = open_model(llama);
    gqac_context *context = open_context(program, 1);
    gqac_sequence *pair[] = {open_sequence(program, 0, 0), open_sequence(program, 4, 0)};
    int64_t ids[N];
    const int64_t counts[] = {9, 5}, fits[] = {9, 4};
    fill_ids(ids, N);
    CU_ASSERT_EQUAL(steps_run(context, 2, pair, ids, counts, 1, &diag), GQAC_CAPACITY);
    CU_ASSERT_EQUAL(diag.index, 1); /* a host can repeat the step without this one */
    CU_ASSERT_EQUAL(gqac_sequence_length(pair[0]), 0);
    CU_ASSERT_EQUAL(gqac_sequence_length(pair[1]), 0);
    const int64_t last = ids[12];
    ids[12] = gqac_program_vocabulary(program);
    CU_ASSERT_EQUAL(steps_run(context, 2, pair, ids, fits, 1, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(diag.index, 1);
    ids[12] = last;
    CU_ASSERT_EQUAL(steps_run(context, 2, pair, ids, fits, 1, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_length(pair[0]), 9);
    CU_ASSERT_EQUAL(gqac_sequence_length(pair[1]), 4);
    gqac_sequence_free(pair[0]);
    gqac_sequence_free(pair[1]);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* Rewind to every length and compute the rest again: the same cache. A fork does not read rows that
 * the other sequence writes. */
static void test_rewind_and_fork(void) {
    gqac_program *program = open_model(llama);
    gqac_context *context = open_context(program, 1);
    gqac_sequence *sequence = open_sequence(program, 0, 0);
    int64_t ids[N], other[N];
    size_t size = 0, again = 0;
    fill_ids(ids, N);
    for (int i = 0; i < N; i++)
        other[i] = (ids[i] + 1) % 250;
    CU_ASSERT_EQUAL_FATAL(feed(context, sequence, ids, N), GQAC_OK);
    unsigned char *full = snapshot(program, sequence, &size);
    for (int keep = 0; keep < N; keep += keep < 62 ? 31 : 1) {
        gqac_sequence *fork = NULL;
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(sequence, keep, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(sequence, &fork, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(feed(context, fork, other + keep, N - keep), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(feed(context, sequence, ids + keep, N - keep), GQAC_OK);
        unsigned char *now = snapshot(program, sequence, &again);
        CU_ASSERT(again == size && !memcmp(full, now, size));
        free(now);
        now = snapshot(program, fork, &again);
        CU_ASSERT(again == size && memcmp(full, now, size) != 0);
        free(now);
        gqac_sequence_free(fork);
    }
    CU_ASSERT_EQUAL(gqac_sequence_rewind(sequence, N + 1, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(sequence, -1, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_sequence_length(sequence), N);
    free(full);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* Exported rows can be imported, and continue with the same bits; wrong imports change nothing. */
static void test_export_import(void) {
    gqac_program *program = open_model(llama);
    gqac_context *context = open_context(program, 1);
    gqac_sequence *source = open_sequence(program, 0, 0), *target = open_sequence(program, 0, 0);
    const gqac_kv_pair *pairs = NULL;
    const char *names[MOST_PAIRS];
    gqac_tensor tensors[MOST_PAIRS];
    int64_t ids[N];
    const int n = gqac_program_kv_pairs(program, &pairs);
    CU_ASSERT_FATAL(n > 0 && n <= MOST_PAIRS);
    fill_ids(ids, N);
    CU_ASSERT_EQUAL_FATAL(feed(context, source, ids, 65), GQAC_OK);
    for (int i = 0; i < n; i++) {
        tensors[i] = (gqac_tensor){.dtype = pairs[i].dtype,
                                   .rank = 4,
                                   .dims = {1, pairs[i].heads, 65, pairs[i].head_size}};
        tensors[i].data = malloc(gqac_tensor_bytes(&tensors[i]));
        names[i] = pairs[i].past;
        CU_ASSERT_EQUAL(gqac_sequence_export(source, names[i], tensors[i].data,
                                             gqac_tensor_bytes(&tensors[i]), &diag),
                        GQAC_OK);
    }
    CU_ASSERT_EQUAL(gqac_sequence_import(target, n - 1, names, tensors, &diag), GQAC_USAGE);
    for (int64_t other = 64; other <= 66; other += 2) {
        tensors[n - 1].dims[2] = other;
        CU_ASSERT_EQUAL(gqac_sequence_import(target, n, names, tensors, &diag), GQAC_INVALID_INPUT);
    }
    tensors[n - 1].dims[2] = 65;
    names[1] = pairs[0].present; /* same name as the first */
    CU_ASSERT_EQUAL(gqac_sequence_import(target, n, names, tensors, &diag), GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "twice"));
    names[1] = pairs[1].past;
    tensors[0].dtype = GQAC_F64;
    CU_ASSERT_EQUAL(gqac_sequence_import(target, n, names, tensors, &diag), GQAC_INVALID_INPUT);
    tensors[0].dtype = pairs[0].dtype;
    CU_ASSERT_EQUAL(gqac_sequence_length(target), 0);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_import(target, n, names, tensors, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_import(target, n, names, tensors, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL_FATAL(feed(context, source, ids + 65, 5), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(feed(context, target, ids + 65, 5), GQAC_OK);
    size_t a = 0, b = 0;
    unsigned char *x = snapshot(program, source, &a), *y = snapshot(program, target, &b);
    CU_ASSERT(a == b && !memcmp(x, y, a));
    CU_ASSERT_EQUAL(gqac_sequence_export(source, "no such tensor", x, a, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_sequence_export(source, names[0], x, 1, &diag), GQAC_INVALID_INPUT);
    free(x);
    free(y);
    for (int i = 0; i < n; i++)
        free(tensors[i].data);
    gqac_sequence_free(source);
    gqac_sequence_free(target);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* LongRoPE (threshold 64): crossing it is RECOMPUTE unless the final length was declared; then the
 * bits do not depend on the division into calls. Rows on different sides share a step. */
static void test_longrope(void) {
    gqac_program *program = open_model(phi3);
    gqac_context *context = open_context(program, 1);
    gqac_sequence *open = open_sequence(program, 0, 0), *whole = open_sequence(program, 0, 80);
    gqac_sequence *alone = open_sequence(program, 0, 40);
    int64_t ids[N * 2], rows = 0, vocabulary = 0;
    fill_ids(ids, N * 2);
    CU_ASSERT_EQUAL_FATAL(feed(context, open, ids, 60), GQAC_OK);
    expect_refused(program, context, open, GQAC_RECOMPUTE, ids + 60, 20, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "LongRoPE"));
    CU_ASSERT(*diag.hint);
    CU_ASSERT_EQUAL_FATAL(feed(context, open, ids + 60, 4), GQAC_OK); /* up to the threshold */
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(open, 0, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(feed(context, open, ids, 80), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(feed(context, whole, ids, 80), GQAC_OK);
    const float *logits = gqac_context_logits(context, 0, &rows, &vocabulary);
    const size_t bytes = (size_t)vocabulary * sizeof *logits;
    float *last = malloc(bytes);
    memcpy(last, logits + 79 * vocabulary, bytes);
    CU_ASSERT_EQUAL_FATAL(feed(context, alone, ids, 40), GQAC_OK);
    for (int turn = 0; turn < 2; turn++) { /* either may be the first item */
        gqac_sequence *parts = open_sequence(program, 0, 80),
                      *brief = open_sequence(program, 0, 40);
        gqac_sequence *both[] = {turn ? brief : parts, turn ? parts : brief};
        const int64_t counts[] = {turn ? 40 : 30, turn ? 30 : 40};
        int64_t tokens[70];
        memcpy(tokens, ids, (size_t)counts[0] * sizeof *ids);
        memcpy(tokens + counts[0], ids, (size_t)counts[1] * sizeof *ids);
        CU_ASSERT_EQUAL_FATAL(steps_run(context, 2, both, tokens, counts, GQAC_LOGITS_ALL, &diag),
                              GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(feed(context, parts, ids + 30, 50), GQAC_OK);
        logits = gqac_context_logits(context, 0, &rows, &vocabulary);
        CU_ASSERT(rows == 50 && !memcmp(logits + 49 * vocabulary, last, bytes));
        size_t a = 0, b = 0;
        unsigned char *x = snapshot(program, brief, &a), *y = snapshot(program, alone, &b);
        CU_ASSERT(a == b && !memcmp(x, y, a));
        expect_refused(program, context, brief, GQAC_OUT_OF_RANGE, ids + 40, 1, NULL);
        free(x);
        free(y);
        gqac_sequence_free(parts);
        gqac_sequence_free(brief);
    }
    size_t a = 0, b = 0;
    unsigned char *x = snapshot(program, whole, &a), *y = snapshot(program, open, &b);
    CU_ASSERT(a == b && !memcmp(x, y, a));
    free(x);
    free(y);
    free(last);
    gqac_sequence *const all[] = {open, whole, alone};
    for (int i = 0; i < 3; i++)
        gqac_sequence_free(all[i]);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* A graph whose table has too few rows for the positions, which is only known when it runs. */
static const char failing[] =
    "graph @m(%input_ids: i64[B,S], %attention_mask: i64[B,T], %position_ids: i64[B,S], "
    "%past.0.key: f32[B,1,P,8], %past.0.value: f32[B,1,P,8]) {\n"
    "  const %two: i64[] = 2\n  const %one: i64[] = 1\n  const %axis: i64[1] = [1]\n"
    "  const %last_axis: i64[1] = [2]\n"
    "  const %full: i64[3] = [1, 1, 8]\n  const %table: f32[20] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, "
    "10, 11, "
    "12, 13, 14, 15, 16, 17, 18, 19]\n"
    "  %sum = ReduceSum %attention_mask, %axis {keepdims=0} : i64[B]\n"
    "  %last = Sub %sum, %one : i64[B]\n  %seqlens_k = Cast %last {to=i32} : i32[B]\n"
    "  %shape = Shape %attention_mask : i64[2]\n  %t = Gather %shape, %one : i64[]\n"
    "  %total = Cast %t {to=i32} : i32[]\n  %twice = Mul %position_ids, %two : i64[B,S]\n"
    "  %row = Gather %table, %twice : f32[B,S]\n  %wide = Unsqueeze %row, %last_axis : f32[B,S,1]\n"
    "  %ids = Cast %input_ids {to=f32} : f32[B,S]\n"
    "  %tall = Unsqueeze %ids, %last_axis : f32[B,S,1]\n  %x1 = Add %wide, %tall : f32[B,S,1]\n"
    "  %x = Expand %x1, %full : f32[B,S,8]\n"
    "  %y, %k, %v = com.microsoft.GroupQueryAttention %x, %x, %x, %past.0.key, %past.0.value, "
    "%seqlens_k, %total {num_heads=1, kv_num_heads=1} : f32[B,S,8], f32[B,1,T,8], f32[B,1,T,8]\n"
    "  return %y as \"logits\", %k as \"present.0.key\", %v as \"present.0.value\"\n}\n";

static gqac_program *open_text(const char *text) {
    char path[] = "/tmp/gqac-step-XXXXXX.gq";
    const int fd = mkstemps(path, 3);
    CU_ASSERT_FATAL(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    gqac_options options;
    gqac_program *program = NULL;
    gqac_options_init(&options);
    const gqac_status status = gqac_program_open(path, &options, &program, &diag);
    unlink(path);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return program;
}

/* One of three sequences is too long for the table in the graph: none of them changes. */
static void test_failure_inside(void) {
    enum { ALL = 3 };
    gqac_program *program = open_text(failing);
    gqac_context *context = open_context(program, 2);
    gqac_sequence *sequences[ALL];
    const int64_t ids[N] = {1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4};
    const int64_t lengths[ALL] = {3, 9, 6}, counts[ALL] = {2, 2, 2};
    unsigned char *before[ALL];
    size_t bytes[ALL], after;
    for (int i = 0; i < ALL; i++) {
        sequences[i] = open_sequence(program, 0, 0);
        CU_ASSERT_EQUAL_FATAL(feed(context, sequences[i], ids, lengths[i]), GQAC_OK);
        before[i] = snapshot(program, sequences[i], &bytes[i]);
    }
    CU_ASSERT_EQUAL(steps_run(context, ALL, sequences, ids, counts, 1, &diag), GQAC_OUT_OF_RANGE);
    for (int i = 0; i < ALL; i++) {
        CU_ASSERT_EQUAL(gqac_sequence_length(sequences[i]), lengths[i]);
        unsigned char *now = snapshot(program, sequences[i], &after);
        CU_ASSERT(after == bytes[i] && !memcmp(now, before[i], after));
        free(now);
        free(before[i]);
    }
    CU_ASSERT_EQUAL(feed(context, sequences[1], ids, 1), GQAC_OK);
    for (int i = 0; i < ALL; i++)
        gqac_sequence_free(sequences[i]);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* The same sequence twice in a step is refused, with both items named; the check and the refusal
 * have no lasting effect. */
static void test_same_sequence(void) {
    gqac_program *program = open_model(llama);
    gqac_context *context = open_context(program, 1);
    gqac_sequence *three[3], *twice[3];
    const int64_t ids[3] = {7, 8, 9}, counts[3] = {1, 1, 1};
    for (int i = 0; i < 3; i++)
        three[i] = open_sequence(program, 0, 0);
    memcpy(twice, three, sizeof twice);
    twice[2] = three[0];
    CU_ASSERT_EQUAL(steps_run(context, 3, twice, ids, counts, 1, &diag), GQAC_USAGE);
    CU_ASSERT_STRING_EQUAL(diag.what, "items 0 and 2 have the same sequence");
    CU_ASSERT_EQUAL(diag.index, 2);
    CU_ASSERT_EQUAL(gqac_sequence_length(three[0]), 0);
    twice[1] = NULL; /* detected first */
    CU_ASSERT_EQUAL(steps_run(context, 3, twice, ids, counts, 1, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(diag.index, 1);
    CU_ASSERT_EQUAL(steps_run(context, 3, three, ids, counts, 1, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(steps_run(context, 3, three, ids, counts, 1, &diag), GQAC_OK);
    for (int i = 0; i < 3; i++)
        gqac_sequence_free(three[i]);
    gqac_context_free(context);
    gqac_program_free(program);
}

/* The number of items that the check of a step of n sequences visits. The last item is refused, so
 * nothing is run. */
static int64_t count_looks(gqac_context *context, int n, gqac_sequence *const *sequences) {
    const int64_t good = 7, bad = -1, before = context->looks;
    gqac_step_item *items = calloc((size_t)n, sizeof *items);
    for (int i = 0; i < n; i++)
        items[i] = (gqac_step_item){.size = sizeof *items,
                                    .sequence = sequences[i],
                                    .tokens = i + 1 < n ? &good : &bad,
                                    .count = 1,
                                    .n_logits = 1};
    CU_ASSERT_EQUAL(gqac_step(context, n, items, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(diag.index, n - 1);
    free(items);
    return context->looks - before;
}

/* The check of a step with ten times as many sequences visits ten times as many items. */
static void test_many_sequences(void) {
    enum { FEW = 200, MANY = 10 * FEW };
    gqac_program *program = open_model(llama);
    gqac_context *context = open_context(program, 1);
    gqac_sequence *sequences[MANY];
    for (int i = 0; i < MANY; i++)
        sequences[i] = open_sequence(program, 0, 0);
    const int64_t few = count_looks(context, FEW, sequences);
    const int64_t many = count_looks(context, MANY, sequences);
    CU_ASSERT(few >= FEW - 1 && few <= 4 * FEW);
    CU_ASSERT(many >= MANY - 1 && many <= 4 * MANY);
    for (int i = 0; i < MANY; i++)
        gqac_sequence_free(sequences[i]);
    gqac_context_free(context);
    gqac_program_free(program);
}

static const unit_case cases[] = {
    {"a step that fails inside of the graph", test_failure_inside},
    {"split = full, logits and cache", test_split_equals_full},
    {"a refused step leaves the sequence as it was", test_refused_steps},
    {"one bad row refuses the whole step", test_one_bad_row},
    {"rewind and fork", test_rewind_and_fork},
    {"N6 export and import of past tensors", test_export_import},
    {"LongRoPE tables and the threshold", test_longrope},
    {"a sequence twice in one step", test_same_sequence},
    {"a step of many sequences is checked in linear time", test_many_sequences},
};

int main(int argc, char **argv) {
    return unit_run("step", cases, sizeof cases / sizeof *cases, argc, argv);
}
