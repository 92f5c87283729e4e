/* A sequence that was filled by an import keeps the guard of LongRoPE tables: rows computed with
 * one table are not continued with the other. The model is phi3, whose threshold is 64. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdlib.h>
#include <string.h>

enum { N = 80, HELD = 60, THRESHOLD = 64, MOST_PAIRS = 64 };

typedef struct rows {
    int n;
    const char *names[MOST_PAIRS];
    gqac_tensor tensors[MOST_PAIRS];
} rows;

static gqac_diag diag;
static gqac_program *program;
static gqac_context *context;
static int64_t ids[N];

static void open_all(void) {
    gqac_options options;
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/phi3/model.onnx"), &options, &program, &diag),
        GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    for (int i = 0; i < N; i++)
        ids[i] = (i * 37 + 11) % 250;
}

static void close_all(void) {
    gqac_context_free(context);
    gqac_program_free(program);
}

static gqac_sequence *sequence_of(int64_t final_length) {
    const gqac_sequence_options options = {.size = sizeof options, .final_length = final_length};
    gqac_sequence *sequence = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &options, &sequence, &diag), GQAC_OK);
    return sequence;
}

static gqac_status feed(gqac_sequence *sequence, int64_t first, int64_t count) {
    return gqac_sequence_append(context, sequence, ids + first, count, GQAC_LOGITS_ALL, &diag);
}

static void export_rows(const gqac_sequence *sequence, rows *r) {
    const gqac_kv_pair *pairs = NULL;
    const int64_t length = gqac_sequence_length(sequence);
    r->n = gqac_program_kv_pairs(program, &pairs);
    CU_ASSERT_FATAL(r->n > 0 && r->n <= MOST_PAIRS);
    for (int i = 0; i < r->n; i++) {
        gqac_tensor *t = &r->tensors[i];
        r->names[i] = pairs[i].past;
        *t = (gqac_tensor){.dtype = pairs[i].dtype,
                           .rank = 4,
                           .dims = {1, pairs[i].heads, length, pairs[i].head_size}};
        t->data = malloc(gqac_tensor_bytes(t));
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_export(sequence, r->names[i], t->data, gqac_tensor_bytes(t), &diag),
            GQAC_OK);
    }
}

static void free_rows(rows *r) {
    for (int i = 0; i < r->n; i++)
        free(r->tensors[i].data);
}

static bool same_rows(const gqac_sequence *a, const gqac_sequence *b) {
    rows x, y;
    export_rows(a, &x);
    export_rows(b, &y);
    bool same = true;
    for (int i = 0; i < x.n; i++)
        same = same && gqac_tensor_bytes(&x.tensors[i]) == gqac_tensor_bytes(&y.tensors[i]) &&
               !memcmp(x.tensors[i].data, y.tensors[i].data, gqac_tensor_bytes(&x.tensors[i]));
    free_rows(&x);
    free_rows(&y);
    return same;
}

/* An imported sequence continues like the original, up to the threshold; after it both must start
 * again. A refused step keeps the rows. */
static void test_undeclared(void) {
    rows held;
    open_all();
    gqac_sequence *original = sequence_of(0), *taken = sequence_of(0);
    CU_ASSERT_EQUAL_FATAL(feed(original, 0, HELD), GQAC_OK);
    export_rows(original, &held);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_import(taken, held.n, held.names, held.tensors, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL(feed(original, HELD, N - HELD), GQAC_RECOMPUTE);
    memset(&diag, 0, sizeof diag);
    CU_ASSERT_EQUAL(feed(taken, HELD, N - HELD), GQAC_RECOMPUTE);
    CU_ASSERT(*diag.what && *diag.hint);
    CU_ASSERT_EQUAL(gqac_sequence_length(taken), HELD);
    CU_ASSERT(same_rows(original, taken));
    gqac_sequence *fork = NULL; /* a fork has the guard too */
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(taken, &fork, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(feed(fork, HELD, N - HELD), GQAC_RECOMPUTE);
    CU_ASSERT_EQUAL_FATAL(feed(original, HELD, THRESHOLD - HELD), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(feed(taken, HELD, THRESHOLD - HELD), GQAC_OK);
    CU_ASSERT(same_rows(original, taken));
    CU_ASSERT_EQUAL(feed(taken, THRESHOLD, 1), GQAC_RECOMPUTE);
    /* an emptied sequence chooses again */
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(taken, 0, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(feed(taken, 0, N), GQAC_OK);
    gqac_sequence_free(fork);
    gqac_sequence_free(original);
    gqac_sequence_free(taken);
    free_rows(&held);
    close_all();
}

/* If both sides declare the final length, an imported sequence continues across the threshold, with
 * the bits of one call. */
static void test_declared(void) {
    rows held;
    int64_t count = 0, vocabulary = 0;
    open_all();
    gqac_sequence *whole = sequence_of(N), *original = sequence_of(N), *taken = sequence_of(N);
    CU_ASSERT_EQUAL_FATAL(feed(original, 0, HELD), GQAC_OK);
    export_rows(original, &held);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_import(taken, held.n, held.names, held.tensors, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(feed(whole, 0, N), GQAC_OK);
    const float *logits = gqac_context_logits(context, 0, &count, &vocabulary);
    const size_t bytes = (size_t)((N - HELD) * vocabulary) * sizeof *logits;
    float *expected = malloc(bytes);
    memcpy(expected, logits + HELD * vocabulary, bytes);
    CU_ASSERT_EQUAL_FATAL(feed(taken, HELD, N - HELD), GQAC_OK);
    logits = gqac_context_logits(context, 0, &count, &vocabulary);
    CU_ASSERT_EQUAL_FATAL(count, N - HELD);
    CU_ASSERT(!memcmp(logits, expected, bytes));
    CU_ASSERT(same_rows(whole, taken));
    free(expected);
    gqac_sequence_free(whole);
    gqac_sequence_free(original);
    gqac_sequence_free(taken);
    free_rows(&held);
    close_all();
}

static const unit_case cases[] = {
    {"an import does not cross the threshold unawares", test_undeclared},
    {"an import crosses it when the length was declared", test_declared},
};

int main(int argc, char **argv) {
    return unit_run("import_guard", cases, sizeof cases / sizeof *cases, argc, argv);
}
