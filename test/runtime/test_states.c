/* Sequences of a model with recurrent states (qwen3.5): rewinds, forks, failed steps and imports
 * give the logits of the sequence that was fed token by token, bit for bit. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdlib.h>
#include <string.h>

enum { N = 300, MOST_PAIRS = 16 };

static gqac_diag diag;
static gqac_program *program;
static gqac_context *context;
static int64_t ids[N], vocabulary;
static float *expected; /* [N][vocabulary], token by token */

static gqac_sequence *new_sequence(int64_t capacity) {
    const gqac_sequence_options options = {.capacity = capacity};
    gqac_sequence *sequence = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &options, &sequence, &diag), GQAC_OK);
    return sequence;
}

/* Feeds the tokens [length, end) in one call; do all their logits have the expected bits? */
static bool feed(gqac_sequence *sequence, int64_t end) {
    const int64_t length = gqac_sequence_length(sequence), count = end - length;
    int64_t rows = 0, width = 0;
    if (gqac_step(context, 1, &sequence, ids + length, &count, &length, &diag) != GQAC_OK)
        return false;
    const float *logits = gqac_context_logits(context, 0, &rows, &width);
    return gqac_sequence_length(sequence) == end && rows == count &&
           !memcmp(logits, expected + length * width, (size_t)(rows * width) * sizeof *logits);
}

static void open_all(void) {
    gqac_options options;
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(
        gqac_program_open(unit_path("test/models/qwen3.5/model.onnx"), &options, &program, &diag),
        GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    vocabulary = gqac_program_vocabulary(program);
    expected = malloc((size_t)(N * vocabulary) * sizeof *expected);
    CU_ASSERT_FATAL(expected != NULL);
    gqac_sequence *sequence = new_sequence(0);
    for (int64_t i = 0; i < N; i++) {
        const int64_t one = 1;
        int64_t rows, width;
        ids[i] = (i * 37 + i / 7 * 5 + 11) % 250;
        CU_ASSERT_EQUAL_FATAL(gqac_step(context, 1, &sequence, ids + i, &one, NULL, &diag),
                              GQAC_OK);
        memcpy(expected + i * vocabulary, gqac_context_logits(context, 0, &rows, &width),
               (size_t)vocabulary * sizeof *expected);
    }
    gqac_sequence_free(sequence);
}

static void close_all(void) {
    free(expected);
    gqac_context_free(context);
    gqac_program_free(program);
}

static void rewinds_reach_every_length(void) {
    open_all();
    gqac_sequence *sequence = new_sequence(0);
    CU_ASSERT_TRUE(feed(sequence, 200));
    static const int64_t kept[] = {199, 150, 129, 128, 127, 126, 65, 64, 63, 1, 0};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(sequence, kept[i], &diag), GQAC_OK);
        CU_ASSERT_EQUAL(gqac_sequence_length(sequence), kept[i]);
        CU_ASSERT_TRUE(feed(sequence, kept[i] + 3));
        CU_ASSERT_TRUE(feed(sequence, kept[i] + 4));
    }
    CU_ASSERT_TRUE(feed(sequence, 250));
    /* twice, with no step between; then up and down */
    CU_ASSERT_EQUAL(gqac_sequence_rewind(sequence, 190, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(sequence, 70, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(sequence, 71, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_sequence_rewind(sequence, -1, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_TRUE(feed(sequence, 300));
    gqac_sequence_free(sequence);
    close_all();
}

static void forks_go_their_ways(void) {
    open_all();
    gqac_sequence *sequence = new_sequence(0), *fork = NULL, *late = NULL;
    CU_ASSERT_TRUE(feed(sequence, 100));
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(sequence, &fork, &diag), GQAC_OK);
    CU_ASSERT_TRUE(feed(fork, 180));
    CU_ASSERT_TRUE(feed(sequence, 101));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(fork, 90, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(fork, &late, &diag), GQAC_OK); /* before its step */
    gqac_sequence_free(fork);
    CU_ASSERT_EQUAL(gqac_sequence_length(late), 90);
    CU_ASSERT_TRUE(feed(late, 140));
    CU_ASSERT_TRUE(feed(sequence, 140));
    gqac_sequence_free(late);
    gqac_sequence_free(sequence);
    close_all();
}

/* Two sequences, of which one has no room: neither changes. */
static void failed_steps_change_nothing(void) {
    open_all();
    gqac_sequence *pair[2] = {new_sequence(0), new_sequence(70)};
    CU_ASSERT(feed(pair[0], 64) && feed(pair[1], 60));
    int64_t tokens[140], counts[2] = {70, 11};
    memcpy(tokens, ids + 64, 70 * sizeof *ids);
    memcpy(tokens + 70, ids + 60, 11 * sizeof *ids);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL(gqac_step(context, 2, pair, tokens, counts, NULL, &diag), GQAC_CAPACITY);
    CU_ASSERT(gqac_sequence_length(pair[0]) == 64 && gqac_sequence_length(pair[1]) == 60);
    CU_ASSERT(feed(pair[0], 66) && feed(pair[1], 70));
    /* a rewind that is not made good yet, and a token that is none */
    const int64_t wrong = -7, one = 1;
    CU_ASSERT_EQUAL(gqac_sequence_rewind(pair[0], 65, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_step(context, 1, pair, &wrong, &one, NULL, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_sequence_length(pair[0]), 65);
    CU_ASSERT_TRUE(feed(pair[0], 140));
    gqac_sequence_free(pair[0]);
    gqac_sequence_free(pair[1]);
    close_all();
}

static void imports_go_on(void) {
    open_all();
    gqac_sequence *source = new_sequence(0), *target = new_sequence(0);
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(program, &pairs);
    const char *names[MOST_PAIRS];
    gqac_tensor tensors[MOST_PAIRS];
    int states = 0;
    CU_ASSERT_FATAL(n <= MOST_PAIRS);
    CU_ASSERT_TRUE(feed(source, 100));
    for (int i = 0; i < n; i++) {
        names[i] = pairs[i].past;
        states += pairs[i].rows > 0;
        tensors[i] = (gqac_tensor){
            .dtype = pairs[i].dtype,
            .rank = 4,
            .dims = {1, pairs[i].heads, gqac_kv_pair_rows(&pairs[i], 100), pairs[i].head_size}};
        const size_t bytes = gqac_tensor_bytes(&tensors[i]);
        tensors[i].data = malloc(bytes);
        CU_ASSERT_FATAL(tensors[i].data != NULL);
        CU_ASSERT_EQUAL(gqac_sequence_export(source, names[i], tensors[i].data, bytes, &diag),
                        GQAC_OK);
    }
    CU_ASSERT_EQUAL(states, 3);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_import(target, n, names, tensors, &diag), GQAC_OK);
    CU_ASSERT_TRUE(feed(target, 200));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(target, 99, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT(strstr(diag.what, "imported") && strstr(diag.hint, "rewind to 0"));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(target, 150, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_export(target, names[0], tensors[0].data, (size_t)1 << 30, &diag),
                    GQAC_USAGE);
    CU_ASSERT_TRUE(feed(target, 170));
    CU_ASSERT_EQUAL(gqac_sequence_rewind(target, 0, &diag), GQAC_OK);
    CU_ASSERT_TRUE(feed(target, 80));
    for (int i = 0; i < n; i++)
        free(tensors[i].data);
    gqac_sequence_free(source);
    gqac_sequence_free(target);
    close_all();
}

static const unit_case cases[] = {
    {"rewinds reach every length", rewinds_reach_every_length},
    {"forks go their ways", forks_go_their_ways},
    {"failed steps change nothing", failed_steps_change_nothing},
    {"imports go on", imports_go_on},
};

int main(int argc, char **argv) {
    return unit_run("runtime/states", cases, sizeof cases / sizeof cases[0], argc, argv);
}
