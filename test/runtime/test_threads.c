/* One program shared by threads: each thread, with a context and sequences of its own, computes the
 * bits of a run without other threads. */
#include "runtime/rig.h"
#include "runtime/steps.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 8, PROMPT = 30, STEPS = 6, LENGTH = PROMPT + STEPS, ROUNDS = 2 };

typedef struct job {
    const gqac_program *program;
    gqac_threads *shared; /* NULL: its context has `threads` threads of its own */
    int threads, salt;
    size_t values;
    float *logits;      /* of every position, of two sequences */
    gqac_status status; /* the first failure */
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
    const gqac_sequence_options options = {.size = sizeof options, .final_length = LENGTH};
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
        const gqac_status status =
            j->shared ? gqac_context_create_on(j->program, j->shared, &context, &diag)
                      : gqac_context_create(j->program, j->threads, &context, &diag);
        if (!fails(j, status, "context"))
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

/* shared: the threads that all contexts use; NULL: each context has its own. */
static void share_on(const char *target, const char *path, gqac_threads *shared) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_diag diag;
    job solo[2], jobs[WORKERS];
    pthread_t threads[WORKERS];
    gqac_options_init(&options);
    options.target = target;
    const gqac_status status = gqac_program_open(unit_path(path), &options, &program, &diag);
    if (status == GQAC_ABSENT && !strcmp(target, "gpu")) {
        printf("  there is no device for target gpu\n");
        return;
    }
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    for (int i = 0; i < 2; i++) {
        solo[i] = new_job(program, 1, i);
        work(&solo[i]);
        CU_ASSERT_EQUAL(solo[i].status, GQAC_OK);
    }
    CU_ASSERT(memcmp(solo[0].logits, solo[1].logits, solo[0].values * sizeof(float)) != 0);
    for (int i = 0; i < WORKERS; i++) {
        jobs[i] = new_job(program, 1 + i / 2, i % 2);
        jobs[i].shared = shared;
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

static void share(const char *path) {
    share_on("cpu", path, NULL);
}

static void test_shared_threads(void) {
    gqac_threads *threads = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_threads_create(3, &threads, NULL), GQAC_OK);
    share_on("cpu", "test/models/llama/model.onnx", threads);
    gqac_threads_free(threads);
}

typedef struct task_of {
    gqac_task *task;
    void *arg;
    int i;
} task_of;

static void *run_task(void *arg) {
    const task_of *t = arg;
    t->task(t->arg, t->i);
    return NULL;
}

/* Runs each task on a new thread. */
static void on_new_threads(void *arg, int n, gqac_task *task, void *task_arg) {
    enum { MOST = 4 };
    pthread_t threads[MOST];
    task_of tasks[MOST];
    (void)arg;
    for (int i = 0; i < n; i++)
        tasks[i] = (task_of){task, task_arg, i};
    for (int i = 1; i < n; i++)
        if (pthread_create(&threads[i], NULL, run_task, &tasks[i]) != 0)
            abort();
    run_task(&tasks[0]);
    for (int i = 1; i < n; i++)
        pthread_join(threads[i], NULL);
}

static void test_threads_of_the_caller(void) {
    gqac_threads *threads = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_threads_wrap(4, on_new_threads, NULL, &threads, NULL), GQAC_OK);
    share_on("cpu", "test/models/llama-int4-acc4/model.onnx", threads);
    gqac_threads_free(threads);
}

static void test_default(void) {
    gqac_options options;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_diag diag;
    gqac_options_init(&options);
    const char *path = unit_path("test/models/llama/model.onnx");
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_context_create(program, 0, &context, &diag), GQAC_OK);
    gqac_context_free(context);
    CU_ASSERT_EQUAL(gqac_context_create(program, -1, &context, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_context_create(program, 1025, &context, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_context_create_on(program, NULL, &context, &diag), GQAC_USAGE);
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

static void test_device(void) {
    share_on("gpu", "test/models/llama/model.onnx", NULL);
}

/* Threads of the caller that work on another of its jobs first: a step of another context. */
typedef struct helping {
    gqac_context *context;
    gqac_sequence *sequence;
    int64_t ids[200];
    int regions;
    gqac_status status;
} helping;

static void help_first(void *arg, int n, gqac_task *task, void *task_arg) {
    helping *h = arg;
    if (h->regions++ == 0)
        h->status = gqac_sequence_append(h->context, h->sequence, h->ids, 3, 1, NULL);
    for (int i = 0; i < n; i++)
        task(task_arg, i);
}

/* True if a new sequence has the same logits after these ids. */
static bool same_alone(const gqac_program *program, gqac_context *context, const int64_t *ids,
                       int64_t n, uint64_t expected) {
    gqac_sequence *s = rig_sequence(program, 0);
    const bool ran = gqac_sequence_append(context, s, ids, n, 1, NULL) == GQAC_OK;
    gqac_sequence_free(s);
    return ran && rig_logits(context) == expected;
}

static void regions_run_other_jobs(const char *target) {
    helping h = {.status = GQAC_INTERNAL};
    gqac_diag diag;
    gqac_options options;
    gqac_program *program = NULL;
    gqac_threads *threads = NULL;
    gqac_context *context = NULL;
    gqac_options_init(&options);
    options.target = target;
    rig_ids(h.ids, 200, 1);
    const gqac_status status =
        gqac_program_open(unit_path("test/models/llama/model.onnx"), &options, &program, &diag);
    if (status == GQAC_ABSENT) {
        printf("  there is no device for target gpu\n");
        return;
    }
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_threads_wrap(4, help_first, &h, &threads, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create_on(program, threads, &context, &diag), GQAC_OK);
    gqac_sequence *s = rig_sequence(program, 0);
    h.context = rig_context(program);
    h.sequence = rig_sequence(program, 0);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, s, h.ids, 200, 1, &diag), GQAC_OK);
    CU_ASSERT(h.regions > 0);
    CU_ASSERT_EQUAL_FATAL(h.status, GQAC_OK);
    const uint64_t own = rig_logits(context), other = rig_logits(h.context);
    CU_ASSERT(same_alone(program, h.context, h.ids, 200, own));
    CU_ASSERT(same_alone(program, h.context, h.ids, 3, other));
    gqac_sequence_free(s);
    gqac_sequence_free(h.sequence);
    gqac_context_free(context);
    gqac_context_free(h.context);
    gqac_threads_free(threads);
    gqac_program_free(program);
}

static void test_regions_run_other_jobs(void) {
    regions_run_other_jobs("cpu");
    regions_run_other_jobs("gpu");
}

static const unit_case cases[] = {
    {"llama in eight contexts at once", test_plain},
    {"int4 weights in eight contexts at once", test_int4},
    {"guards in eight contexts at once", test_guarded},
    {"eight contexts on one device", test_device},
    {"eight contexts on the same threads", test_shared_threads},
    {"eight contexts on threads of the caller", test_threads_of_the_caller},
    {"regions that run other jobs first", test_regions_run_other_jobs},
    {"how many threads", test_default},
};

int main(int argc, char **argv) {
    return unit_run("threads", cases, sizeof cases / sizeof *cases, argc, argv);
}
