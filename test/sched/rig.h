/* What the tests of the scheduler share: a program with a context, requests that record the
 * arguments of their callbacks, and the run of a request alone, with which these are compared. */
#ifndef GQAC_TEST_SCHED_RIG_H
#define GQAC_TEST_SCHED_RIG_H

#include "base/table.h"
#include "unit.h"

#include <gqac/gqac.h>
#include <gqac/text.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RIG_LETTERS = 3, RIG_LIST = 600 };

#define LLAMA "test/models/llama/model.onnx"

static const int64_t rig_letters[RIG_LETTERS] = {11, 77, 205};

typedef struct rig {
    gqac_program *program;
    gqac_context *context;
} rig;

/* A request, and what its callbacks have reported. */
typedef struct client {
    gqac_request request;
    gqac_sampling sampling;
    int64_t list[RIG_LIST]; /* ids of `from`, of the prompt, and of the answer */
    int64_t n_from, n_prompt, n;
    uint64_t bits[RIG_LIST]; /* of the logits from which id i was chosen */
    int64_t eos, number, begins, reused, done, ends;
    int64_t stop; /* on_token ends the request after this many ids; 0: never */
    bool cancelled;
    gqac_request_end end; /* the pointers to its ids, diag and sequence are no longer valid */
    int64_t rows;         /* length of its sequence */
    gqac_status status;
    char what[768], where[512];
} client;

static inline rig rig_open(const char *model, int64_t budget, int threads) {
    rig r = {NULL, NULL};
    gqac_diag diag;
    gqac_options options;
    gqac_options_init(&options);
    options.memory_budget = budget;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(model), &options, &r.program, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(r.program, threads, &r.context, &diag), GQAC_OK);
    return r;
}

static inline void rig_close(rig *r) {
    gqac_context_free(r->context);
    CU_ASSERT_EQUAL(gqac_program_memory_used(r->program), 0);
    gqac_program_free(r->program);
}

/* Records the bits of the logits, then allows only the letters. */
static inline bool rig_logits(void *arg, float *logits, int64_t vocabulary, const int64_t *ids,
                              size_t n) {
    client *c = arg;
    c->bits[n] = gqac_hash_bytes(1, logits, (size_t)vocabulary * sizeof *logits);
    CU_ASSERT((int64_t)n == c->n && !memcmp(ids, c->list, n * sizeof *ids));
    for (int64_t i = 0; i < vocabulary; i++)
        if (i != rig_letters[0] && i != rig_letters[1] && i != rig_letters[2])
            logits[i] = NAN;
    return true;
}

static inline bool rig_token(void *arg, int64_t request, int64_t id) {
    client *c = arg;
    CU_ASSERT(request == c->number && c->done == c->n_prompt && !c->ends);
    c->list[c->n++] = id;
    return c->n - c->n_prompt != c->stop;
}

static inline void rig_begin(void *arg, int64_t request, int64_t reused) {
    client *c = arg;
    CU_ASSERT(request == c->number && !c->begins && !c->done && !c->ends);
    c->begins++;
    c->reused = reused;
}

static inline void rig_progress(void *arg, int64_t request, int64_t done, int64_t total) {
    client *c = arg;
    CU_ASSERT(request == c->number && total == c->n_prompt && done > c->done && done <= total);
    CU_ASSERT(c->begins && done > c->reused);
    c->done = done;
}

static inline void rig_end(void *arg, const gqac_request_end *end) {
    client *c = arg;
    int64_t first = 0, count = 0;
    c->ends++;
    c->end = *end;
    CU_ASSERT(end->request == c->number && (end->finish == GQAC_FINISH_FAILED) == !!end->diag);
    CU_ASSERT((int64_t)end->n_ids == c->n - c->n_prompt);
    CU_ASSERT(!c->begins || end->reused_tokens == c->reused);
    CU_ASSERT(!memcmp(end->ids, c->list + c->n_prompt, end->n_ids * sizeof *end->ids));
    if (end->diag) {
        c->status = end->diag->status;
        memcpy(c->what, end->diag->what, sizeof c->what);
        memcpy(c->where, end->diag->where, sizeof c->where);
    }
    if (!end->sequence)
        return;
    c->rows = gqac_sequence_length(end->sequence);
    const int64_t *ids = gqac_sequence_ids(end->sequence, &first, &count);
    CU_ASSERT(!first && count == c->rows && count <= c->n);
    CU_ASSERT(!count || !memcmp(ids, c->list, (size_t)count * sizeof *ids));
}

/* Prepares a request for up to max_new letters after the prompt in c->list. */
static inline void rig_prepare(client *c, int64_t n_prompt, int64_t max_new) {
    c->n = c->n_prompt = n_prompt;
    gqac_request_init(&c->request, c->list + c->n_from, (size_t)(n_prompt - c->n_from));
    gqac_sampling_init(&c->sampling);
    c->request.max_new = max_new;
    c->request.sampling = &c->sampling;
    c->request.on_logits = rig_logits;
    c->request.on_token = rig_token;
    c->request.on_begin = rig_begin;
    c->request.on_progress = rig_progress;
    c->request.on_end = rig_end;
    c->request.arg = c->request.logits_arg = c;
}

static inline void rig_submit(gqac_scheduler *scheduler, client *c) {
    gqac_diag diag;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_submit(scheduler, &c->request, &c->number, &diag),
                          GQAC_OK);
}

/* A prompt of letters; equal for equal seeds. */
static inline void rig_letters_of(int64_t *ids, int64_t n, uint64_t seed) {
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        ids[i] = rig_letters[(seed >> 33) % RIG_LETTERS];
    }
}

/* A clock that always shows the same time: drafts cost nothing, so as many as possible are made. */
static inline double rig_clock(void *arg) {
    (void)arg;
    return 1;
}

static inline gqac_scheduler *rig_drafting(const rig *r, int64_t tokens, int64_t running,
                                           gqac_store *store, int64_t speculate) {
    gqac_scheduler *s = NULL;
    gqac_diag diag;
    gqac_scheduler_options options;
    gqac_scheduler_options_init(&options);
    options.tokens = tokens;
    options.running = running;
    options.store = store;
    options.speculate = speculate;
    options.clock = rig_clock;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_create(r->context, &options, &s, &diag), GQAC_OK);
    return s;
}

static inline gqac_scheduler *rig_scheduler(const rig *r, int64_t tokens, int64_t running,
                                            gqac_store *store) {
    return rig_drafting(r, tokens, running, store, 0);
}

static inline client rig_client(int64_t n, int64_t max_new, uint64_t seed) {
    client c = {.n_from = 0};
    rig_letters_of(c.list, n, seed);
    c.n = c.n_prompt = n;
    c.request.max_new = max_new;
    return c;
}

/* Submits; the client must stay at its address. */
static inline void rig_send(gqac_scheduler *s, client *c, int priority) {
    rig_prepare(c, c->n_prompt, c->request.max_new);
    c->request.priority = priority;
    rig_submit(s, c);
}

static inline void rig_step(gqac_scheduler *s) {
    gqac_diag diag;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_step(s, NULL, &diag), GQAC_OK);
}

static inline gqac_scheduler_statistics rig_statistics(gqac_scheduler *s) {
    gqac_diag diag;
    gqac_scheduler_statistics x = {.size = sizeof x};
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_get_statistics(s, &x, &diag), GQAC_OK);
    return x;
}

/* Steps until nothing is left. */
static inline void rig_finish(gqac_scheduler *scheduler) {
    gqac_diag diag;
    int64_t left = 1;
    for (int i = 0; left && i < 100000; i++)
        CU_ASSERT_EQUAL_FATAL(gqac_scheduler_step(scheduler, &left, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(left, 0);
}

/* Compares what a client received with a sequence that computes the prompt and the ids one after
 * another, alone. Returns the number of rows of logits that were compared. The context must have no
 * memory limit that this could exceed. */
static inline int rig_compare(const rig *r, const client *c) {
    client alone = {.n_from = 0};
    gqac_sequence *s = NULL;
    gqac_diag diag;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r->program, NULL, &s, &diag), GQAC_OK);
    memcpy(alone.list, c->list, sizeof alone.list);
    alone.n = c->n_prompt;
    int compared = 0;
    while (alone.n < c->n) {
        int64_t rows = 0, width = 0, id = 0;
        const int64_t fed = gqac_sequence_length(s);
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_append(r->context, s, alone.list + fed, alone.n - fed, 1, &diag),
            GQAC_OK);
        const float *logits = gqac_context_logits(r->context, 0, &rows, &width);
        float *copy = malloc((size_t)width * sizeof *copy);
        memcpy(copy, logits, (size_t)width * sizeof *copy);
        rig_logits(&alone, copy, width, alone.list, (size_t)alone.n);
        gqac_sampling sampling = c->sampling;
        sampling.n_prompt = (size_t)c->n_prompt;
        CU_ASSERT_EQUAL_FATAL(
            gqac_sample(&sampling, copy, width, alone.list, (size_t)alone.n, &id, NULL, &diag),
            GQAC_OK);
        free(copy);
        CU_ASSERT_EQUAL_FATAL(alone.bits[alone.n], c->bits[alone.n]);
        CU_ASSERT_EQUAL_FATAL(id, c->list[alone.n]);
        alone.n++;
        compared++;
    }
    gqac_sequence_free(s);
    return compared;
}

#endif
