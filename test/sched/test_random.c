/* Random requests compared with an oracle: 64 requests of letters from an alphabet of three, so
 * that many prompts have common prefixes, submitted and cancelled at any time, with random
 * priorities, numbers of places, budgets of tokens and of memory, with and without a store and
 * drafts, starting empty or from sequences of other requests. Each answer must have the bits of its
 * request alone. Each model takes a second, 30 seconds in the long tier, or GQAC_TEST_SECONDS of
 * CPU time; GQAC_TEST_SEED is the seed of its first round. */
#include "sched/rig.h"

#include <stdio.h>
#include <time.h>

enum { REQUESTS = 64, PROMPT = 90, ANSWER = 12 };

static gqac_diag diag;
static uint64_t state;
static client clients[REQUESTS];
static int submitted;
static gqac_sequence *donor; /* of an ended request */
static int64_t donor_list[RIG_LIST], donor_n;

/* 0 .. n-1 */
static int64_t any(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

typedef struct setting {
    const char *model;
    bool exact; /* after a rewind there are never tokens to recompute */
    bool even;  /* nothing is preempted: no memory budget, and only one priority */
    int64_t budget;
    gqac_scheduler_options options;
    gqac_store *store;
    gqac_scheduler *scheduler;
} setting;

/* Sometimes the sequence of an ended request is used as the beginning of others. */
static void end(void *arg, const gqac_request_end *e) {
    const client *c = arg;
    rig_end(arg, e);
    if (!e->sequence || any(4))
        return;
    gqac_sequence_free(donor);
    donor = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(e->sequence, &donor, &diag), GQAC_OK);
    donor_n = gqac_sequence_length(donor);
    memcpy(donor_list, c->list, sizeof donor_list);
}

static void cancel(const setting *x) {
    client *c = &clients[any(submitted)];
    const bool live = gqac_scheduler_cancel(x->scheduler, c->number);
    CU_ASSERT_EQUAL(live, !c->ends);
    c->cancelled |= live;
}

static const setting *current;

/* Sometimes a request is cancelled while the ids of a step are reported. */
static bool take(void *arg, int64_t request, int64_t id) {
    const bool more = rig_token(arg, request, id);
    if (!any(100))
        cancel(current);
    return more;
}

static void submit(const setting *x) {
    client *c = &clients[submitted++];
    int64_t n = 1 + any(any(3) ? PROMPT : 4);
    *c = (client){.eos = rig_letters[0]};
    if (donor && donor_n + n < 2 * PROMPT && !any(3)) {
        memcpy(c->list, donor_list, sizeof c->list);
        c->n_from = donor_n;
        rig_letters_of(c->list + c->n_from, n, (uint64_t)any(3));
    } else {
        const int64_t common = any(n);
        rig_letters_of(c->list, common, (uint64_t)any(2));
        rig_letters_of(c->list + common, n - common, (uint64_t)any(5));
    }
    rig_prepare(c, c->n_from + n, any(ANSWER));
    c->request.from = c->n_from ? donor : NULL;
    c->request.on_token = take;
    c->request.on_end = end;
    c->request.priority = x->even ? 0 : (int)any(3);
    c->request.tenant = any(4) ? NULL : "other";
    c->stop = any(5) ? 0 : 1 + any(3);
    if (!any(3)) {
        c->request.n_eos = 1;
        c->request.eos = &c->eos;
    }
    if (any(2)) {
        c->sampling.sample = true;
        c->sampling.seed = (uint64_t)submitted;
        c->sampling.presence_penalty = 0.5;
    }
    rig_submit(x->scheduler, c);
}

/* One step. Each decoding request gets one id in every step, or several with drafts; no step has
 * more tokens than its budget. */
static void step(const setting *x, const rig *r) {
    gqac_scheduler_statistics before = {.size = sizeof before}, after = before;
    int64_t n[REQUESTS];
    CU_ASSERT_EQUAL(gqac_scheduler_get_statistics(x->scheduler, &before, &diag), GQAC_OK);
    for (int i = 0; i < submitted; i++)
        n[i] = clients[i].n;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_step(x->scheduler, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_scheduler_get_statistics(x->scheduler, &after, &diag), GQAC_OK);
    for (int i = 0; i < submitted && x->even; i++) {
        const client *c = &clients[i];
        CU_ASSERT(n[i] == c->n_prompt || c->ends ||
                  (c->n > n[i] && c->n <= n[i] + 1 + x->options.speculate));
    }
    if (x->exact)
        CU_ASSERT(after.computed_tokens - before.computed_tokens <= x->options.tokens);
    CU_ASSERT(after.running <= x->options.running);
    CU_ASSERT(!x->even || !after.preemptions);
    CU_ASSERT(!x->budget || gqac_program_memory_used(r->program) <= x->budget);
}

static void check_end(const setting *x, const client *c) {
    const gqac_request_end *e = &c->end;
    const int64_t n = c->n - c->n_prompt;
    CU_ASSERT_EQUAL_FATAL(c->ends, 1);
    if (e->finish == GQAC_FINISH_FAILED)
        printf("  failed: %s (%s)\n", c->what, c->where);
    CU_ASSERT_NOT_EQUAL_FATAL(e->finish, GQAC_FINISH_FAILED);
    if (e->finish == GQAC_FINISH_CANCELLED) {
        CU_ASSERT(c->cancelled);
        return;
    }
    const bool eos = n && c->request.n_eos && c->list[c->n - 1] == c->eos;
    const bool stopped = n && n == c->stop;
    CU_ASSERT_EQUAL(e->finish, eos       ? GQAC_FINISH_EOS
                               : stopped ? GQAC_FINISH_STOP
                                         : GQAC_FINISH_LENGTH);
    CU_ASSERT(e->finish != GQAC_FINISH_LENGTH || n == c->request.max_new);
    CU_ASSERT_EQUAL(c->done, c->n_prompt);
    CU_ASSERT_EQUAL(c->rows, c->n - (n > 0));
    if (x->exact && !e->preemptions && !x->options.speculate)
        CU_ASSERT_EQUAL(e->reused_tokens + e->computed_tokens, c->rows);
    /* After a preemption, rows that others have since added to the store are in neither count. */
    if (x->exact && !x->store)
        CU_ASSERT(e->reused_tokens + e->computed_tokens >= c->rows);
    CU_ASSERT(x->store || c->n_from || !e->reused_tokens);
    CU_ASSERT(!c->n_from || e->reused_tokens >= c->n_from || x->budget);
}

/* The statistics of the scheduler include everything that was reused, also after preemptions. */
static void check_sums(const setting *x, const gqac_scheduler_statistics *s) {
    int64_t computed = 0, rows = 0;
    for (int i = 0; i < REQUESTS; i++) {
        computed += clients[i].end.computed_tokens;
        rows += clients[i].rows;
    }
    CU_ASSERT_EQUAL(s->computed_tokens, computed);
    CU_ASSERT(s->accepted_tokens <= s->drafted_tokens);
    CU_ASSERT(x->options.speculate || !s->drafted_tokens);
    if (x->exact)
        CU_ASSERT(s->reused_tokens + s->computed_tokens >= rows);
}

static void drive(const setting *x, const rig *r) {
    int64_t left = 1;
    for (int i = 0; submitted < REQUESTS || left; i++) {
        gqac_scheduler_statistics s = {.size = sizeof s};
        const int64_t what = any(10);
        if (submitted < REQUESTS && what < 3)
            submit(x);
        else if (submitted && what == 3 && !any(3))
            cancel(x);
        else if (x->store && what == 4 && !any(4))
            gqac_store_evict(x->store, any(2) ? 0 : 50000);
        else
            step(x, r);
        CU_ASSERT_EQUAL(gqac_scheduler_get_statistics(x->scheduler, &s, &diag), GQAC_OK);
        left = s.waiting + s.running;
        CU_ASSERT_FATAL(i < 100000);
    }
}

/* Memory for the longest sequence alone, and for some of the others. */
static int64_t tight(const char *model, int64_t tokens, int threads) {
    rig r = rig_open(model, 0, threads);
    client c = {.n_from = 0};
    gqac_sequence *s = NULL;
    rig_letters_of(c.list, 2 * PROMPT, 1);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r.program, NULL, &s, &diag), GQAC_OK);
    for (int64_t fed = 0; fed < 2 * PROMPT; fed += tokens) {
        const int64_t count = 2 * PROMPT - fed < tokens ? 2 * PROMPT - fed : tokens;
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(r.context, s, c.list + fed, count, 1, &diag),
                              GQAC_OK);
    }
    const int64_t all = gqac_program_memory_used(r.program);
    gqac_sequence_free(s);
    const int64_t idle = gqac_program_memory_used(r.program), one = all - idle;
    rig_close(&r);
    return idle + idle / 2 + 2 * one + any(one); /* `donor` also counts */
}

/* Sums over all rounds. */
typedef struct sums {
    int64_t preempted, drafted, accepted;
} sums;

/* Returns the number of rows of logits that were compared. */
static int round_of(const rig *oracle, const char *model, bool exact, sums *all) {
    setting x = {.model = model, .exact = exact, .even = any(2)};
    int compared = 0;
    gqac_scheduler_options_init(&x.options);
    x.options.tokens = 1 + any(any(2) ? 12 : 64);
    x.options.speculate = any(2) ? 1 + any(6) : 0;
    x.options.clock = rig_clock;
    x.options.running = 1 + any(x.options.tokens < 10 ? x.options.tokens : 10);
    const int threads = 1 + (int)any(2);
    x.budget = x.even ? 0 : tight(model, x.options.tokens, threads);
    rig r = rig_open(model, x.budget, threads);
    if (any(2))
        CU_ASSERT_EQUAL_FATAL(gqac_store_create(r.program, NULL, &x.store, &diag), GQAC_OK);
    x.options.store = x.store;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_create(r.context, &x.options, &x.scheduler, &diag),
                          GQAC_OK);
    submitted = 0;
    current = &x;
    drive(&x, &r);
    gqac_scheduler_statistics s = {.size = sizeof s};
    CU_ASSERT_EQUAL(gqac_scheduler_get_statistics(x.scheduler, &s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(s.ended, REQUESTS);
    check_sums(&x, &s);
    all->preempted += s.preemptions;
    all->drafted += s.drafted_tokens;
    all->accepted += s.accepted_tokens;
    gqac_sequence_free(donor);
    donor = NULL;
    gqac_scheduler_free(x.scheduler);
    gqac_store_free(x.store);
    rig_close(&r);
    for (int i = 0; i < REQUESTS; i++) {
        check_end(&x, &clients[i]);
        compared += rig_compare(oracle, &clients[i]);
    }
    return compared;
}

enum { LEAST = 8 }; /* minimum rounds, also on slow machines: some accept drafts */

static void rounds(const char *model, bool exact, uint64_t first, double seconds) {
    const char *seed = getenv("GQAC_TEST_SEED");
    const clock_t began = clock();
    rig oracle = rig_open(model, 0, 1);
    sums all = {0};
    int compared = 0, n = 0;
    state = seed ? strtoull(seed, NULL, 0) : first;
    do {
        const uint64_t of = state;
        const unsigned failures = CU_get_number_of_failures();
        compared += round_of(&oracle, model, exact, &all);
        if (CU_get_number_of_failures() != failures) {
            printf("  round %d of %s: GQAC_TEST_SEED=%llu\n", n, model, (unsigned long long)of);
            break;
        }
        n++;
    } while (n < LEAST || (double)(clock() - began) / CLOCKS_PER_SEC < seconds);
    printf("  %s: %d rounds, %d rows of logits compared, %lld preemptions, %lld of %lld drafts "
           "accepted\n",
           model, n, compared, (long long)all.preempted, (long long)all.accepted,
           (long long)all.drafted);
    CU_ASSERT(compared > 100);
    CU_ASSERT(all.accepted > 0 && all.drafted > all.accepted);
    rig_close(&oracle);
}

static double seconds_each(void) {
    const char *seconds = getenv("GQAC_TEST_SECONDS");
    return seconds ? strtod(seconds, NULL) : unit_full() ? 30 : 1;
}

static void transformer(void) {
    rounds(LLAMA, true, 1, seconds_each());
}

/* In its first round, a request that was admitted with cached rows loses them before a step. */
static void reuse_that_is_lost(void) {
    rounds(LLAMA, true, 17550127608856580308u, 0);
}

static void hybrid(void) {
    rounds("test/models/qwen3.5/model.onnx", false, 1, seconds_each());
}

static const unit_case cases[] = {
    {"random requests", transformer},
    {"reused rows that are lost", reuse_that_is_lost},
    {"random requests of a model with states", hybrid},
};

int main(int argc, char **argv) {
    return unit_run("sched/random", cases, sizeof cases / sizeof *cases, argc, argv);
}
