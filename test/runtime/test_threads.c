/* One program shared by threads: each with a context and sequences of its own gets the bits of a
 * run that had the program for itself. */
#include "runtime/steps.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 8, PROMPT = 30, STEPS = 6, LENGTH = PROMPT + STEPS, ROUNDS = 2 };

typedef struct job {
    const gqac_program *program;
    int threads, salt;
    size_t values;
    float *logits;      /* of every position, of two sequences */
    gqac_status status; /* first failure */
    const char *place;
} job;

static bool fails(job *j, gqac_status status, const char *place) {
    if (status != GQAC_OK && j->status == GQAC_OK) {
        j->status = status;
        j->place = place;
    }
    return status != GQAC_OK;
}

static void keep(job *j, const gqac_context *context, int which, int sequence, int64_t first) {
    int64_t rows = 0, vocabulary = 0;
    const float *from = gqac_context_logits(context, which, &rows, &vocabulary);
    const int64_t at = (sequence * LENGTH + first) * vocabulary;
    if (!from || (size_t)(at + rows * vocabulary) > j->values) {
        fails(j, GQAC_INTERNAL, "logits");
        return;
    }
    memcpy(j->logits + at, from, (size_t)(rows * vocabulary) * sizeof *from);
}

/* A prompt, a fork of it, then single tokens for both in one call. */
static void converse(job *j, gqac_context *context) {
    gqac_diag diag;
    gqac_sequence *pair[2] = {NULL, NULL};
    const gqac_sequence_options options = {.final_length = LENGTH};
    int64_t ids[LENGTH];
    const int64_t ones[] = {1, 1};
    for (int i = 0; i < LENGTH; i++)
        ids[i] = (i * 37 + 11 + j->salt) % 250;
    if (fails(j, gqac_sequence_create(j->program, &options, &pair[0], &diag), "create") ||
        fails(j, gqac_sequence_append(context, pair[0], ids, PROMPT, GQAC_LOGITS_ALL, &diag),
              "prompt") ||
        fails(j, gqac_sequence_fork(pair[0], &pair[1], &diag), "fork"))
        goto done;
    keep(j, context, 0, 0, 0);
    keep(j, context, 0, 1, 0);
    for (int i = PROMPT; i < LENGTH; i++) {
        const int64_t next[] = {ids[i], (ids[i] + 1) % 250};
        if (fails(j, steps_run(context, 2, pair, next, ones, 1, &diag), "step"))
            goto done;
        keep(j, context, 0, 0, i);
        keep(j, context, 1, 1, i);
    }
done:
    gqac_sequence_free(pair[0]);
    gqac_sequence_free(pair[1]);
}

static void *work(void *arg) {
    job *j = arg;
    gqac_diag diag;
    for (int round = 0; round < ROUNDS; round++) {
        gqac_context *context = NULL;
        memset(j->logits, 0xff, j->values * sizeof *j->logits);
        if (!fails(j, gqac_context_create(j->program, j->threads, &context, &diag), "context"))
            converse(j, context);
        gqac_context_free(context);
    }
    return NULL;
}

static job new_job(const gqac_program *program, int threads, int salt) {
    job j = {.program = program, .threads = threads, .salt = salt};
    j.values = (size_t)(2 * LENGTH * gqac_program_vocabulary(program));
    j.logits = malloc(j.values * sizeof *j.logits);
    CU_ASSERT_PTR_NOT_NULL_FATAL(j.logits);
    return j;
}

static void share(const char *path) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_diag diag;
    job solo[2], jobs[WORKERS];
    pthread_t threads[WORKERS];
    gqac_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(path), &options, &program, &diag), GQAC_OK);
    for (int i = 0; i < 2; i++) {
        solo[i] = new_job(program, 1, i);
        work(&solo[i]);
        CU_ASSERT_EQUAL(solo[i].status, GQAC_OK);
    }
    CU_ASSERT(memcmp(solo[0].logits, solo[1].logits, solo[0].values * sizeof(float)) != 0);
    for (int i = 0; i < WORKERS; i++) {
        jobs[i] = new_job(program, 1 + i / 2, i % 2);
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        CU_ASSERT_EQUAL(pthread_join(threads[i], NULL), 0);
        CU_ASSERT_EQUAL(jobs[i].status, GQAC_OK);
        CU_ASSERT(!memcmp(jobs[i].logits, solo[i % 2].logits, jobs[i].values * sizeof(float)));
        free(jobs[i].logits);
    }
    free(solo[0].logits);
    free(solo[1].logits);
    gqac_program_free(program);
}

static void test_plain(void) {
    share("test/models/llama/model.onnx");
}

static void test_int4(void) {
    share("test/models/llama-int4-acc4/model.onnx");
}

static void test_guarded(void) {
    share("test/models/phi3/model.onnx");
}

static const unit_case cases[] = {
    {"llama in eight contexts at once", test_plain},
    {"int4 weights in eight contexts at once", test_int4},
    {"guards in eight contexts at once", test_guarded},
};

int main(int argc, char **argv) {
    return unit_run("threads", cases, sizeof cases / sizeof *cases, argc, argv);
}
