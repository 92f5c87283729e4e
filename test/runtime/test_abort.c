/* Aborting a call at each place where it calls the monitor: a step leaves every sequence unchanged,
 * and a later step has the bits of a sequence without any abort; opening and compiling leave no
 * memory and no file. The library under test calls the monitor at every possible point
 * (GQAC_TEST_ALLOC). */
#include "base/alloc.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROMPT = 70, MORE = 9, MOST_PAIRS = 64, MOST_ASKED = 20000 };

static gqac_diag diag;

/* A monitor that aborts at its n-th call; 0: never. */
typedef struct counter {
    int asked, abort_at, reported;
    int64_t done, total, totals; /* totals: how often the total changed */
    bool wrong;
} counter;

static bool count(void *arg) {
    counter *c = arg;
    return ++c->asked == c->abort_at;
}

static void hear(void *arg, int64_t done, int64_t total) {
    counter *c = arg;
    c->wrong |= done < c->done || done > total || total < 1;
    c->totals += total != c->total;
    c->done = done;
    c->total = total;
    c->reported++;
}

static gqac_monitor watch(counter *c, int abort_at) {
    *c = (counter){.abort_at = abort_at};
    return (gqac_monitor){.size = sizeof(gqac_monitor), .abort = count, .progress = hear, .arg = c};
}

/* True if the rule of an aborted call says how much was done, in this unit. */
static bool says(const counter *c, const char *unit) {
    char rule[sizeof diag.rule] = "nothing is kept";
    if (c->done)
        snprintf(rule, sizeof rule, "nothing is kept: %lld of %lld %s were done",
                 (long long)c->done, (long long)c->total, unit);
    return !strcmp(diag.rule, rule);
}

/* ---- steps --------------------------------------------------------------- */

typedef struct rig {
    gqac_program *program;
    gqac_context *context;
    int64_t ids[2 * (PROMPT + MORE)], vocabulary;
    float *expected; /* logits of the step that is aborted repeatedly */
    unsigned char *past[MOST_PAIRS], *after[MOST_PAIRS]; /* before that step, and after it */
} rig;

static gqac_sequence *new_sequence(const rig *r) {
    const gqac_sequence_options options = {.size = sizeof options, .final_length = 2 * PROMPT};
    gqac_sequence *s = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r->program, &options, &s, &diag), GQAC_OK);
    return s;
}

static size_t past_bytes(const gqac_kv_pair *pair, int64_t length) {
    return (size_t)(pair->heads * gqac_kv_pair_rows(pair, length) * pair->head_size) *
           (size_t)gqac_dtype_bits(pair->dtype) / 8;
}

/* True if the sequence contains the bytes in `rows`; `keep`: stores them there. */
static bool same_past(const rig *r, const gqac_sequence *s, unsigned char **rows, bool keep) {
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(r->program, &pairs);
    bool same = n <= MOST_PAIRS;
    for (int i = 0; i < n && same; i++) {
        const size_t bytes = past_bytes(&pairs[i], gqac_sequence_length(s));
        unsigned char *now = malloc(bytes + 1);
        same = gqac_sequence_export(s, pairs[i].past, now, bytes, &diag) == GQAC_OK;
        if (keep)
            rows[i] = now;
        else
            same = same && !memcmp(now, rows[i], bytes);
        if (!keep)
            free(now);
    }
    return same;
}

/* One step of a sequence with a prompt and of an empty one. */
static gqac_status step(rig *r, gqac_sequence *a, gqac_sequence *b) {
    const gqac_step_item items[] = {{.size = sizeof *items,
                                     .sequence = a,
                                     .tokens = r->ids + PROMPT,
                                     .count = MORE,
                                     .n_logits = GQAC_LOGITS_ALL},
                                    {.size = sizeof *items,
                                     .sequence = b,
                                     .tokens = r->ids + PROMPT + MORE,
                                     .count = 3,
                                     .n_logits = GQAC_LOGITS_ALL}};
    return gqac_step(r->context, 2, items, &diag);
}

static bool expected_logits(const rig *r) {
    int64_t rows = 0, width = 0;
    const float *a = gqac_context_logits(r->context, 0, &rows, &width);
    const float *b = gqac_context_logits(r->context, 1, &rows, &width);
    const size_t row = (size_t)r->vocabulary * sizeof(float);
    return a && b && rows == 3 && !memcmp(a, r->expected, MORE * row) &&
           !memcmp(b, r->expected + MORE * r->vocabulary, 3 * row);
}

static void open_rig(rig *r, const char *path, const char *target, int threads) {
    gqac_options options;
    gqac_options_init(&options);
    options.target = target;
    memset(r, 0, sizeof *r);
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(path), &options, &r->program, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r->program, threads, &r->context, &diag), GQAC_OK);
    for (size_t i = 0; i < sizeof r->ids / sizeof *r->ids; i++)
        r->ids[i] = (int64_t)(i * 37 + 11) % 250;
    r->vocabulary = gqac_program_vocabulary(r->program);
    r->expected = malloc((size_t)((MORE + 3) * r->vocabulary) * sizeof(float));
}

static void close_rig(rig *r) {
    for (int i = 0; i < MOST_PAIRS; i++)
        free(r->past[i]);
    for (int i = 0; i < MOST_PAIRS; i++)
        free(r->after[i]);
    free(r->expected);
    gqac_context_free(r->context);
    gqac_program_free(r->program);
}

/* Aborts at the n-th call of the monitor and checks the state; false if the step succeeded. */
static bool abort_at(rig *r, const gqac_sequence *base, int n) {
    counter c;
    const gqac_monitor monitor = watch(&c, n);
    int64_t rows, width;
    gqac_sequence *a = NULL, *b = new_sequence(r);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(base, &a, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_set_monitor(r->context, &monitor, NULL, &diag), GQAC_OK);
    const gqac_status status = step(r, a, b);
    CU_ASSERT_EQUAL_FATAL(gqac_context_set_monitor(r->context, NULL, NULL, &diag), GQAC_OK);
    const bool aborted = status == GQAC_ABORTED;
    bool good = !c.wrong && c.total == MORE + 3;
    if (aborted) {
        good = good || (c.reported == 0 && !c.wrong);
        good = good && says(&c, "tokens");
        good = good && c.asked == n && gqac_sequence_length(a) == PROMPT;
        good = good && gqac_sequence_length(b) == 0 && same_past(r, a, r->past, false);
        good = good && !gqac_context_logits(r->context, 0, &rows, &width);
        good = good && step(r, a, b) == GQAC_OK;
    } else {
        good = good && status == GQAC_OK && c.done == c.total;
    }
    good = good && gqac_sequence_length(a) == PROMPT + MORE && gqac_sequence_length(b) == 3;
    CU_ASSERT_FATAL(good && expected_logits(r) && same_past(r, a, r->after, false));
    gqac_sequence_free(a);
    gqac_sequence_free(b);
    return aborted;
}

static void abort_steps(const char *path, const char *target, int threads, int least, int by) {
    rig r;
    int n = 1;
    int64_t rows = 0, width = 0;
    const int64_t prompt = PROMPT;
    open_rig(&r, path, target, threads);
    gqac_sequence *base = new_sequence(&r), *a = NULL, *b = new_sequence(&r);
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_append(r.context, base, r.ids, prompt, GQAC_LOGITS_ALL, &diag), GQAC_OK);
    CU_ASSERT_FATAL(same_past(&r, base, r.past, true));
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(base, &a, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(step(&r, a, b), GQAC_OK);
    CU_ASSERT_FATAL(same_past(&r, a, r.after, true));
    const float *logits = gqac_context_logits(r.context, 0, &rows, &width);
    memcpy(r.expected, logits, (size_t)(MORE * width) * sizeof *logits);
    logits = gqac_context_logits(r.context, 1, &rows, &width);
    memcpy(r.expected + MORE * width, logits, (size_t)(3 * width) * sizeof *logits);
    while (n < MOST_ASKED && abort_at(&r, base, n))
        n += by;
    CU_ASSERT(n > least && n < MOST_ASKED);
    gqac_sequence_free(a);
    gqac_sequence_free(b);
    gqac_sequence_free(base);
    close_rig(&r);
}

static void every_question_of_a_step(void) {
    abort_steps("models/tiny-gqa/model.onnx", "cpu", 1, 20, 1);
    abort_steps("models/tiny-gqa/model.onnx", "ref", 1, 20, unit_full() ? 1 : 7);
    abort_steps("models/tiny-gqa/model.onnx", "cpu", 3, 20, 3);
}

static void every_question_with_states(void) {
    abort_steps("test/models/qwen3.5/model.onnx", "cpu", 1, 20, 1);
    abort_steps("test/models/lfm2/model.onnx", "cpu", 2, 20, 1);
}

static void every_question_with_guards(void) {
    abort_steps("test/models/phi3/model.onnx", "cpu", 1, 20, 1);
}

static void every_question_on_a_device(void) {
    int n = 0;
    if (gqac_device_count(&n, NULL) != GQAC_OK)
        printf("  there is no device for target gpu\n");
    else
        abort_steps("test/models/llama/model.onnx", "gpu", 2, 20, unit_full() ? 1 : 5);
}

static void every_question_with_experts(void) {
    abort_steps("test/models/gpt-oss/model.onnx", "cpu", 2, 20, 1);
}

/* The step first recomputes tokens that are missing after a rewind, and can be aborted during
 * this. */
static void aborted_after_a_rewind(void) {
    rig r;
    int n = 1, aborted = 0;
    int64_t rows = 0, width = 0;
    const int64_t prompt = PROMPT, more = MORE;
    open_rig(&r, "test/models/qwen3.5/model.onnx", "cpu", 1);
    gqac_sequence *whole = new_sequence(&r), *s = NULL;
    CU_ASSERT_EQUAL_FATAL(
        gqac_sequence_append(r.context, whole, r.ids, prompt, GQAC_LOGITS_ALL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(whole, &s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_rewind(s, PROMPT - 4, &diag), GQAC_OK);
    for (bool done = false; !done; n += 5) {
        counter c;
        const gqac_monitor monitor = watch(&c, n);
        gqac_sequence *fork = NULL;
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(s, &fork, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_context_set_monitor(r.context, &monitor, NULL, &diag), GQAC_OK);
        gqac_status status =
            gqac_sequence_append(r.context, fork, r.ids + PROMPT - 4, more, GQAC_LOGITS_ALL, &diag);
        CU_ASSERT_EQUAL_FATAL(gqac_context_set_monitor(r.context, NULL, NULL, &diag), GQAC_OK);
        done = status == GQAC_OK;
        aborted += status == GQAC_ABORTED;
        CU_ASSERT_FATAL(done || status == GQAC_ABORTED);
        CU_ASSERT_FATAL(!c.wrong && (!done || (c.done == c.total && c.total > more)));
        if (!done) {
            CU_ASSERT_EQUAL_FATAL(gqac_sequence_length(fork), PROMPT - 4);
            status = gqac_sequence_append(r.context, fork, r.ids + PROMPT - 4, more,
                                          GQAC_LOGITS_ALL, &diag);
        }
        CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
        const float *logits = gqac_context_logits(r.context, 0, &rows, &width);
        const size_t bytes = (size_t)(rows * width) * sizeof *logits;
        if (n == 1)
            memcpy(r.expected, logits, bytes);
        CU_ASSERT_FATAL(!memcmp(r.expected, logits, bytes));
        gqac_sequence_free(fork);
    }
    CU_ASSERT(aborted > 10);
    gqac_sequence_free(whole);
    gqac_sequence_free(s);
    close_rig(&r);
}

/* ---- stateless runs ------------------------------------------------------ */

static void every_question_of_a_run(void) {
    static const char text[] = "graph @g(%x: f32[N]) {\n"
                               "  %a = Abs %x : f32[N]\n"
                               "  %b = Sqrt %a : f32[N]\n"
                               "  %c = Exp %b : f32[N]\n"
                               "  return %c as \"c\"\n}\n";
    enum { N = 100000 };
    char path[] = "/tmp/gqac-abort-XXXXXX.gq";
    static float x[N], expected[N];
    static const char *const names[] = {"x"};
    const gqac_tensor in = {.dtype = GQAC_F32, .rank = 1, .dims = {N}, .data = x};
    gqac_tensor out;
    gqac_program *program = NULL;
    gqac_context *context = NULL;
    gqac_options options;
    const int fd = mkstemps(path, 3);
    CU_ASSERT_EQUAL_FATAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    gqac_options_init(&options);
    options.stateless = true;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(path, &options, &program, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 2, &context, &diag), GQAC_OK);
    unlink(path);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 31) - 8;
    CU_ASSERT_EQUAL(gqac_run(context, 1, names, &in, 1, NULL, &out, &diag), GQAC_OK);
    memcpy(expected, out.data, sizeof expected);
    int n = 0;
    gqac_status status;
    do {
        counter c;
        const gqac_monitor monitor = watch(&c, ++n);
        CU_ASSERT_EQUAL_FATAL(gqac_context_set_monitor(context, &monitor, NULL, &diag), GQAC_OK);
        status = gqac_run(context, 1, names, &in, 1, NULL, &out, &diag);
        CU_ASSERT_EQUAL_FATAL(gqac_context_set_monitor(context, NULL, NULL, &diag), GQAC_OK);
        CU_ASSERT_FATAL(status == GQAC_ABORTED || (status == GQAC_OK && c.done == c.total));
        CU_ASSERT(!c.wrong && c.total <= 3);
        if (status == GQAC_ABORTED) {
            CU_ASSERT(says(&c, "nodes"));
            CU_ASSERT_EQUAL(gqac_context_read_output(context, 0, &out, &diag), GQAC_USAGE);
            CU_ASSERT_EQUAL_FATAL(gqac_run(context, 1, names, &in, 1, NULL, &out, &diag), GQAC_OK);
        }
        CU_ASSERT_FATAL(!memcmp(expected, out.data, sizeof expected));
    } while (status != GQAC_OK);
    CU_ASSERT(n > 4); /* within long nodes as well */
    gqac_context_free(context);
    gqac_program_free(program);
}

static void monitors_are_checked(void) {
    rig r;
    counter c;
    gqac_monitor monitor = watch(&c, 0), before = {.size = sizeof before};
    open_rig(&r, "models/tiny-gqa/model.onnx", "cpu", 1);
    CU_ASSERT_EQUAL(gqac_context_set_monitor(r.context, &monitor, &before, &diag), GQAC_OK);
    CU_ASSERT(!before.abort && !before.progress);
    before = (gqac_monitor){.size = sizeof before};
    CU_ASSERT_EQUAL(gqac_context_set_monitor(r.context, &before, &before, &diag), GQAC_OK);
    CU_ASSERT(before.abort == count && before.arg == &c);
    CU_ASSERT_EQUAL(gqac_context_set_monitor(r.context, NULL, &before, &diag), GQAC_OK);
    CU_ASSERT(!before.abort && !before.progress);
    monitor.size = 0;
    CU_ASSERT_EQUAL(gqac_context_set_monitor(r.context, &monitor, NULL, &diag), GQAC_USAGE);
    close_rig(&r);
}

/* ---- models -------------------------------------------------------------- */

static void every_question_of_opening(void) {
    gqac_options options;
    gqac_status status;
    int n = 0;
    gqac_options_init(&options);
    const size_t live = gqac_alloc_live();
    do {
        counter c;
        gqac_program *program = NULL;
        const gqac_monitor monitor = watch(&c, ++n);
        options.monitor = &monitor;
        status =
            gqac_program_open(unit_path("models/tiny-gqa/model.onnx"), &options, &program, &diag);
        CU_ASSERT_FATAL(status == GQAC_OK || (status == GQAC_ABORTED && !program));
        CU_ASSERT(status == GQAC_OK || says(&c, "bytes"));
        CU_ASSERT_FATAL(!c.wrong && (status != GQAC_OK || c.done == c.total));
        gqac_program_free(program);
        CU_ASSERT_EQUAL_FATAL(gqac_alloc_live(), live);
        n += !unit_full() && status != GQAC_OK ? n / 8 : 0;
    } while (status != GQAC_OK);
    CU_ASSERT(n > 30);
}

static bool is_old(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && st.st_size == 3;
}

static void every_question_of_a_compilation(void) {
    char folder[] = "/tmp/gqac-abort-XXXXXX", path[64], list[96];
    gqac_options options;
    gqac_status status;
    int n = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out.gqac", folder);
    snprintf(list, sizeof list, "ls -A %s | wc -l | grep -qx 1", folder);
    FILE *old = fopen(path, "w");
    fputs("old", old);
    fclose(old);
    gqac_options_init(&options);
    const size_t live = gqac_alloc_live();
    do {
        counter c;
        const gqac_monitor monitor = watch(&c, ++n);
        options.monitor = &monitor;
        status = gqac_compile(unit_path("models/tiny-gqa/model.onnx"), &options, GQAC_EMIT_GQAC,
                              path, &diag);
        CU_ASSERT_FATAL(status == GQAC_OK || (status == GQAC_ABORTED && is_old(path)));
        CU_ASSERT_FATAL(!c.wrong && (status != GQAC_OK || c.done == c.total));
        CU_ASSERT_EQUAL_FATAL(gqac_alloc_live(), live);
        CU_ASSERT_EQUAL_FATAL(system(list), 0); /* no other file */
        n += !unit_full() && status != GQAC_OK ? n / 8 : 0;
    } while (status != GQAC_OK);
    CU_ASSERT(n > 30 && gqac_artefact_verify(path, &diag) == GQAC_OK);
    unlink(path);
    rmdir(folder);
}

static const unit_case cases[] = {
    {"every question of a step", every_question_of_a_step},
    {"every question of a step with recurrent states", every_question_with_states},
    {"every question of a step with rope tables to choose", every_question_with_guards},
    {"every question of a step with experts", every_question_with_experts},
    {"every question of a step on a device", every_question_on_a_device},
    {"aborted while a rewind is made up for", aborted_after_a_rewind},
    {"every question of a stateless run", every_question_of_a_run},
    {"monitors are checked", monitors_are_checked},
    {"questions of opening", every_question_of_opening},
    {"questions of a compilation", every_question_of_a_compilation},
};

int main(int argc, char **argv) {
    return unit_run("runtime/abort", cases, sizeof cases / sizeof *cases, argc, argv);
}
