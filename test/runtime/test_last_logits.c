/* Logits of only some rows: the same bits as when all are computed, for ragged rows in one call,
 * after a past, with rope tables that divide the call, and in graphs in which rows cannot be
 * omitted. */
#include "runtime/steps.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, ROUNDS = 3, MOST = 90 };

static const int64_t counts[ROUNDS][ROWS] = {{5, 1, 70, 33}, {1, 1, 1, 1}, {64, 2, 3, 31}};

static gqac_program *open_model(const char *path, const char *target, const char *const *disable) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_diag diag;
    gqac_options_init(&options);
    options.target = target;
    options.disable = disable;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(path), &options, &program, &diag), GQAC_OK);
    return program;
}

/* Computes the last row of every sequence after every round; *all: the number of rows from the
 * steps. */
static float *converse(const gqac_program *program, int64_t wanted, int threads, int64_t *all) {
    const int64_t width = gqac_program_vocabulary(program);
    float *out = malloc((size_t)(ROUNDS * ROWS * width) * sizeof *out);
    gqac_context *context = NULL;
    gqac_sequence *sequences[ROWS];
    gqac_diag diag;
    *all = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, threads, &context, &diag), GQAC_OK);
    for (int i = 0; i < ROWS; i++) {
        /* on both sides of the threshold, in models with one: separate groups */
        const gqac_sequence_options options = {.size = sizeof options,
                                               .final_length = i % 2 ? 200 : 104};
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, &options, &sequences[i], &diag),
                              GQAC_OK);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int64_t ids[ROWS * MOST], n = 0;
        for (int i = 0; i < ROWS; i++)
            for (int64_t j = 0; j < counts[round][i]; j++, n++)
                ids[n] = (n * 37 + 11 * round + i) % 250;
        CU_ASSERT_EQUAL_FATAL(
            steps_run(context, ROWS, sequences, ids, counts[round], wanted, &diag), GQAC_OK);
        for (int i = 0; i < ROWS; i++) {
            int64_t rows = 0, vocabulary = 0;
            const float *logits = gqac_context_logits(context, i, &rows, &vocabulary);
            CU_ASSERT_EQUAL_FATAL(vocabulary, width);
            CU_ASSERT_EQUAL(rows, wanted == 1 ? 1 : counts[round][i]);
            memcpy(out + (round * ROWS + i) * width, logits + (rows - 1) * width,
                   (size_t)width * sizeof *out);
            *all += rows;
        }
    }
    for (int i = 0; i < ROWS; i++)
        gqac_sequence_free(sequences[i]);
    gqac_context_free(context);
    return out;
}

static void compare(const char *path, const char *target, const char *const *disable) {
    gqac_program *program = open_model(path, target, disable);
    const size_t bytes = (size_t)(ROUNDS * ROWS * gqac_program_vocabulary(program)) * sizeof(float);
    int64_t rows = 0;
    float *all = converse(program, GQAC_LOGITS_ALL, 1, &rows);
    CU_ASSERT_EQUAL(rows, 5 + 1 + 70 + 33 + 4 + 64 + 2 + 3 + 31);
    for (int threads = 1; threads <= 3; threads += 2) {
        float *last = converse(program, 1, threads, &rows);
        CU_ASSERT_EQUAL(rows, ROUNDS * ROWS);
        CU_ASSERT(!memcmp(all, last, bytes));
        free(last);
    }
    free(all);
    gqac_program_free(program);
}

static void test_models(void) {
    static const char *const models[] = {"llama", "gemma2", "qwen2", "llama-fp16",
                                         "llama-int4-acc4"};
    char path[128];
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        snprintf(path, sizeof path, "test/models/%s/model.onnx", models[i]);
        compare(path, "cpu", NULL);
        compare(path, "ref", NULL);
    }
}

static void test_groups(void) {
    compare("test/models/phi3/model.onnx", "cpu", NULL);
}

static void test_without_the_pass(void) {
    static const char *const disable[] = {"last_rows", NULL};
    compare("test/models/llama/model.onnx", "cpu", disable);
}

static const unit_case cases[] = {
    {"last rows have the bits they have among all", test_models},
    {"rows of several rope tables in one step", test_groups},
    {"a graph that returns all rows", test_without_the_pass},
};

int main(int argc, char **argv) {
    return unit_run("last_logits", cases, sizeof cases / sizeof *cases, argc, argv);
}
