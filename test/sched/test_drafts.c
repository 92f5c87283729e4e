/* Drafts in the scheduler change nothing that a client sees: ids, bits of logits, how answers end,
 * what was cached, and the remaining rows, for every way to choose ids and to end; and they save
 * steps. If memory is short, drafts are dropped before anything else. */
#include "sched/rig.h"

#include <stdio.h>

#include "base/alloc.h"

enum { CROWD = 6, LONG = 40, PERIOD = 5 };

static gqac_diag diag;

/* The options of the requests of a crowd. */
typedef struct manner {
    const char *name;
    bool hooked; /* logits are recorded, and changed so that the text repeats itself */
    bool sample;
    int64_t top_k;
    bool constrained;
    int64_t stop, end, cancel; /* ids until on_token, on_logits or a cancel ends it; 0: never */
    int n_eos;
    bool rows, share; /* rows: use on_row; share: all begin with the sequence of the first */
} manner;

static const manner manners[] = {{.name = "greedy", .hooked = true},
                                 {.name = "sampled", .hooked = true, .sample = true},
                                 {.name = "from the likeliest id"},
                                 {.name = "from the likeliest ids", .sample = true, .top_k = 3},
                                 {.name = "end of text", .hooked = true, .n_eos = 1},
                                 {.name = "stopped", .hooked = true, .stop = 7},
                                 {.name = "ended by the hook", .hooked = true, .end = 9},
                                 {.name = "cancelled", .hooked = true, .cancel = 6},
                                 {.name = "constrained", .constrained = true, .sample = true},
                                 {.name = "rows of the prompt", .hooked = true, .rows = true},
                                 {.name = "forks", .hooked = true, .sample = true, .share = true}};
enum { MANNERS = sizeof manners / sizeof *manners };

typedef struct crowd crowd;
typedef struct member {
    client client; /* must be first: it is the argument of its callbacks */
    crowd *all;
    int64_t rows_seen;
    uint64_t rows_bits;
} member;

struct crowd {
    const manner *manner;
    gqac_scheduler *scheduler;
    gqac_constraint *constraint;
    member members[CROWD];
};

static bool lean(void *arg, float *logits, int64_t vocabulary, const int64_t *ids, size_t n) {
    member *m = arg;
    client *c = &m->client;
    c->bits[n] = gqac_hash_bytes(1, logits, (size_t)vocabulary * sizeof *logits);
    CU_ASSERT((int64_t)n == c->n && !memcmp(ids, c->list, n * sizeof *ids));
    logits[ids[n - PERIOD]] += 9;
    return !m->all->manner->end || c->n - c->n_prompt < m->all->manner->end;
}

static bool take(void *arg, int64_t number, int64_t id) {
    member *m = arg;
    const client *c = &m->client;
    const bool more = rig_token(arg, number, id);
    if (c->n - c->n_prompt == m->all->manner->cancel)
        CU_ASSERT(gqac_scheduler_cancel(m->all->scheduler, number));
    CU_ASSERT(!m->all->manner->cancel || c->n - c->n_prompt <= m->all->manner->cancel);
    return more;
}

static void see_row(void *arg, int64_t request, int64_t position, const float *logits,
                    int64_t vocabulary) {
    member *m = arg;
    (void)request;
    CU_ASSERT_EQUAL(position, m->rows_seen++);
    m->rows_bits = gqac_hash_bytes(m->rows_bits, logits, (size_t)vocabulary * sizeof *logits);
}

static void send(crowd *all, int i, const gqac_sequence *from) {
    const manner *how = all->manner;
    member *m = &all->members[i];
    client *c = &m->client;
    const int64_t n = 12 + i, n_from = from ? gqac_sequence_length(from) : 0;
    *m = (member){.all = all};
    c->n_from = n_from;
    if (from)
        memcpy(c->list, all->members[0].client.list, sizeof c->list);
    rig_letters_of(c->list + n_from, n, (uint64_t)i);
    rig_prepare(c, n_from + n, LONG);
    c->request.from = from;
    c->request.on_logits = how->hooked ? lean : NULL;
    c->request.on_token = take;
    c->request.on_row = how->rows && !from ? see_row : NULL;
    c->request.constraint = all->constraint;
    c->sampling.sample = how->sample;
    c->sampling.top_k = how->top_k;
    c->sampling.seed = (uint64_t)(i + 3);
    c->stop = how->stop;
    c->eos = c->list[n_from + n - 2]; /* the text repeats this id */
    c->request.eos = &c->eos;
    c->request.n_eos = how->n_eos;
    rig_submit(all->scheduler, c);
}

static gqac_sequence *kept;
static void keep(void *arg, const gqac_request_end *end) {
    rig_end(arg, end);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_fork(end->sequence, &kept, &diag), GQAC_OK);
}

/* Runs a crowd, two requests at a time, so that some decode while others begin; returns the
 * statistics. */
static gqac_scheduler_statistics run(const rig *r, const manner *how, gqac_constraint *constraint,
                                     const char *kv, int64_t speculate, crowd *all) {
    gqac_scheduler_options options;
    gqac_scheduler_options_init(&options);
    options.tokens = 24;
    options.kv = kv;
    options.speculate = speculate;
    options.clock = rig_clock;
    *all = (crowd){.manner = how, .constraint = constraint};
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_create(r->context, &options, &all->scheduler, &diag),
                          GQAC_OK);
    if (how->share) {
        gqac_scheduler *own = all->scheduler;
        client *c = &all->members[0].client;
        rig_letters_of(c->list, 70, 1);
        rig_prepare(c, 70, 0);
        c->request.on_end = keep;
        rig_submit(own, c);
        rig_finish(own);
    }
    for (int i = how->share; i < CROWD; i++) {
        send(all, i, kept);
        if (i % 2)
            for (int k = 0; k < 6; k++)
                rig_step(all->scheduler);
    }
    rig_finish(all->scheduler);
    gqac_sequence_free(kept);
    kept = NULL;
    const gqac_scheduler_statistics x = rig_statistics(all->scheduler);
    gqac_scheduler_free(all->scheduler);
    return x;
}

static bool same(const member *m, const member *o) {
    const client *a = &m->client, *b = &o->client;
    return a->n == b->n && !memcmp(a->list, b->list, sizeof a->list) &&
           !memcmp(a->bits, b->bits, sizeof a->bits) && a->end.finish == b->end.finish &&
           a->rows == b->rows && a->ends == 1 && b->ends == 1 && a->done == b->done &&
           m->rows_seen == o->rows_seen && m->rows_bits == o->rows_bits;
}

/* Every manner, with few and with many drafts. Adds accepted drafts to accepted[], indexed by
 * manner. */
static void compare(const char *model, const char *kv, bool constrains, int64_t *accepted) {
    static crowd with, without;
    static const int64_t most[] = {1, 4, 20};
    char path[64];
    snprintf(path, sizeof path, "%s/model.onnx", model);
    rig r = rig_open(path, 0, 1);
    gqac_text *text = NULL;
    gqac_constraint *one = NULL;
    static const char grammar[] = "root ::= (\"ab\" | \"b\" [a-d] \"c\")+";
    if (constrains) {
        CU_ASSERT_EQUAL_FATAL(gqac_text_open(unit_path(model), GQAC_TEXT_TOKENIZER, &text, &diag),
                              GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(
            gqac_constraint_from_grammar(text, grammar, sizeof grammar - 1, &one, &diag), GQAC_OK);
    }
    for (int i = 0; i < MANNERS; i++) {
        const manner *how = &manners[i];
        if (how->constrained && !constrains)
            continue;
        gqac_constraint *constraint = how->constrained ? one : NULL;
        const gqac_scheduler_statistics x = run(&r, how, constraint, kv, 0, &without);
        CU_ASSERT(!x.drafted_tokens && !x.accepted_tokens);
        for (int k = 0; k < 3; k++) {
            const gqac_scheduler_statistics y = run(&r, how, constraint, kv, most[k], &with);
            int64_t drafted = y.drafted_tokens, right = y.accepted_tokens;
            int differing = 0;
            for (int j = how->share; j < CROWD; j++)
                differing += !same(&with.members[j], &without.members[j]);
            if (differing || unit_full())
                printf("  %s, %s, %lld drafts: %d differ; %lld of %lld accepted, %lld steps, not "
                       "%lld\n",
                       model, how->name, (long long)most[k], differing,
                       (long long)y.accepted_tokens, (long long)y.drafted_tokens,
                       (long long)y.steps, (long long)x.steps);
            CU_ASSERT_EQUAL(differing, 0);
            CU_ASSERT(y.accepted_tokens <= y.drafted_tokens);
            for (int j = how->share; j < CROWD; j++) {
                drafted -= with.members[j].client.end.drafted_tokens;
                right -= with.members[j].client.end.accepted_tokens;
            }
            CU_ASSERT(!drafted && !right); /* each request reports its own */
            CU_ASSERT(y.steps <= x.steps && y.new_tokens == x.new_tokens);
            accepted[i] += y.accepted_tokens;
        }
    }
    gqac_constraint_free(one);
    gqac_text_free(text);
    rig_close(&r);
}

static void same_results(void) {
    int64_t accepted[MANNERS] = {0};
    compare("models/tiny-gqa", NULL, true, accepted);
    compare("test/models/gemma2", "windowed", false, accepted);
    compare("test/models/phi3", "paged", false, accepted);
    compare("test/models/qwen3.5", NULL, false, accepted);
    for (int i = 0; i < MANNERS; i++)
        CU_ASSERT(accepted[i] > 0);
}

/* ---- no drafts ----------------------------------------------------------- */

static void none(void) {
    rig r = rig_open(LLAMA, 0, 1);
    CU_ASSERT_PTR_NULL(gqac_scheduler_no_drafts(r.program));
    gqac_scheduler *s = NULL;
    gqac_scheduler_options options;
    gqac_scheduler_options_init(&options);
    options.speculate = -1;
    CU_ASSERT_EQUAL(gqac_scheduler_create(r.context, &options, &s, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_STRING_EQUAL(diag.what, "speculate is -1: it must not be negative");
    options.size = offsetof(gqac_scheduler_options, speculate); /* from an older caller */
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_create(r.context, &options, &s, &diag), GQAC_OK);
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* Steps until some drafts were accepted, and at least one draft of the last step was wrong. */
static void step_until_wrong(gqac_scheduler *s) {
    gqac_scheduler_statistics before, x = rig_statistics(s);
    do {
        before = x;
        rig_step(s);
        x = rig_statistics(s);
    } while (!x.accepted_tokens || x.drafted_tokens - before.drafted_tokens ==
                                       x.accepted_tokens - before.accepted_tokens);
}

/* While a prompt is computed in chunks, no drafts are made, and each step computes one id for each
 * decoding request, even if the prompt is more urgent and the last drafts were wrong. */
static void one_beside_chunks(const char *model) {
    rig r = rig_open(model, 0, 1);
    gqac_scheduler *s = rig_drafting(&r, 8, 4, NULL, 6);
    client first = rig_client(20, 60, 1), second = rig_client(150, 4, 2);
    rig_send(s, &first, 0);
    step_until_wrong(s);
    rig_send(s, &second, 1);
    const int64_t drafted = rig_statistics(s).drafted_tokens;
    while (second.n == second.n_prompt && !first.ends) {
        const int64_t n = first.n;
        rig_step(s);
        CU_ASSERT_EQUAL(first.n, n + 1);
    }
    CU_ASSERT(rig_statistics(s).drafted_tokens == drafted && second.n > second.n_prompt);
    rig_finish(s);
    CU_ASSERT(rig_statistics(s).drafted_tokens > drafted);
    gqac_scheduler_free(s);
    rig_compare(&r, &first);
    rig_compare(&r, &second);
    rig_close(&r);
}

static void beside_chunks(void) {
    one_beside_chunks(LLAMA);
    one_beside_chunks("test/models/qwen3.5/model.onnx");
}

/* ---- when drafts are worth their cost ------------------------------------ */

static double seconds; /* a step takes one second for each of its tokens */
static int64_t tokens;
static bool slow; /* the first step without chunks takes much longer */

static double tell(void *arg) {
    const bool longer = slow && tokens && tokens <= 6;
    (void)arg;
    seconds += longer ? 50 * (double)tokens : (double)tokens;
    slow = slow && !longer;
    tokens = 0;
    return seconds;
}

static void count(void *arg, int64_t done, int64_t total) {
    (void)arg;
    (void)done;
    tokens = total;
}

/* If a draft costs as much as an id, short answers whose matches are rarely right have hardly any
 * drafts: what one request has learned, the next ones use. `least`: minimum number of ids for each
 * draft. */
static void costly_after(bool slow_step, int64_t least) {
    static client all[60];
    slow = slow_step;
    rig r = rig_open(LLAMA, 0, 1);
    gqac_scheduler *s = NULL;
    gqac_scheduler_options options;
    const gqac_monitor monitor = {.size = sizeof monitor, .progress = count};
    CU_ASSERT_EQUAL(gqac_context_set_monitor(r.context, &monitor, NULL, &diag), GQAC_OK);
    gqac_scheduler_options_init(&options);
    options.running = 6;
    options.speculate = 6;
    options.clock = tell;
    CU_ASSERT_EQUAL_FATAL(gqac_scheduler_create(r.context, &options, &s, &diag), GQAC_OK);
    for (int i = 0; i < 60; i++) {
        all[i] = rig_client(20, 24, (uint64_t)i);
        rig_prepare(&all[i], 20, 24);
        all[i].sampling.sample = true;
        all[i].sampling.temperature = 5;
        all[i].sampling.seed = (uint64_t)i;
        rig_submit(s, &all[i]);
    }
    rig_finish(s);
    const gqac_scheduler_statistics x = rig_statistics(s);
    if (unit_full() || least * x.drafted_tokens > x.new_tokens)
        printf("  %lld drafts for %lld ids, %lld accepted\n", (long long)x.drafted_tokens,
               (long long)x.new_tokens, (long long)x.accepted_tokens);
    CU_ASSERT(x.drafted_tokens > 0 && least * x.drafted_tokens < x.new_tokens);
    gqac_scheduler_free(s);
    rig_close(&r);
}

static void costly(void) {
    costly_after(false, 25);
    costly_after(true, 2); /* this is soon measured again */
}

/* ---- memory -------------------------------------------------------------- */

typedef struct outcome {
    int failed;
    int64_t preempted, drafted;
} outcome;

static outcome run_tight(const rig *oracle, int64_t budget, int64_t speculate, int n,
                         int64_t *used) {
    rig r = rig_open("models/tiny-gqa/model.onnx", budget, 1);
    gqac_scheduler *s = rig_drafting(&r, 32, n, NULL, speculate);
    static client all[CROWD];
    outcome x = {0};
    int64_t left = 1;
    for (int i = 0; i < n; i++) {
        all[i] = rig_client(60 + i, 80, (uint64_t)i);
        rig_send(s, &all[i], 0);
    }
    while (left) {
        CU_ASSERT_EQUAL_FATAL(gqac_scheduler_step(s, &left, &diag), GQAC_OK);
        const int64_t now = gqac_program_memory_used(r.program);
        *used = now > *used ? now : *used;
    }
    x.preempted = rig_statistics(s).preemptions;
    x.drafted = rig_statistics(s).drafted_tokens;
    for (int i = 0; i < n; i++) {
        x.failed += all[i].end.finish == GQAC_FINISH_FAILED;
        rig_compare(oracle, &all[i]);
    }
    gqac_scheduler_free(s);
    rig_close(&r);
    return x;
}

/* With any amount of memory, a request fails or is preempted for lack of it only if it would be
 * without drafts. */
static void tight(void) {
    rig oracle = rig_open("models/tiny-gqa/model.onnx", 0, 1);
    int64_t plain = 0, drafting = 0, unused = 0, drafted = 0, preempted = 0, failed = 0;
    for (int n = 1; n <= 3; n += 2) {
        plain = drafting = 0;
        run_tight(&oracle, 0, 0, n, &plain);
        run_tight(&oracle, 0, 16, n, &drafting);
        CU_ASSERT(drafting > plain || n > 1);
        for (int i = 0; i <= 8; i++) {
            const int64_t budget = drafting - (8 - i) * drafting / 20;
            const outcome a = run_tight(&oracle, budget, 0, n, &unused);
            const outcome b = run_tight(&oracle, budget, 16, n, &unused);
            CU_ASSERT(b.failed <= a.failed);
            CU_ASSERT(b.preempted <= a.preempted);
            if (b.preempted > a.preempted || b.failed > a.failed)
                printf("  %d requests, %lld bytes: %lld preempted, not %lld; %d failed, not %d\n",
                       n, (long long)budget, (long long)b.preempted, (long long)a.preempted,
                       b.failed, a.failed);
            preempted += a.preempted;
            failed += a.failed;
            drafted += b.drafted;
        }
    }
    CU_ASSERT(drafted > 0 && preempted > 0 && failed > 0);
    rig_close(&oracle);
}

/* The n-th allocation fails: answers are the same as without drafts, or fail with NO_MEMORY.
 * Returns the number of allocations. */
static size_t without(const rig *r, const rig *oracle, size_t n, int persist) {
    client all[2];
    gqac_scheduler *s = rig_drafting(r, 16, 2, NULL, 5);
    for (int i = 0; i < 2; i++) {
        all[i] = rig_client(30, 50, (uint64_t)i);
        rig_send(s, &all[i], 0);
    }
    rig_step(s);
    gqac_alloc_fail_at(n, persist);
    rig_finish(s);
    const size_t calls = gqac_alloc_calls();
    gqac_alloc_fail_at(0, 0);
    for (int i = 0; i < 2; i++) {
        const bool failed = all[i].end.finish == GQAC_FINISH_FAILED;
        CU_ASSERT(all[i].ends == 1 && (!failed || all[i].status == GQAC_NO_MEMORY));
        CU_ASSERT(failed || all[i].n - all[i].n_prompt == 50);
        rig_compare(oracle, &all[i]);
    }
    gqac_scheduler_free(s);
    return calls;
}

static void allocations(void) {
    rig r = rig_open(LLAMA, 0, 1), oracle = rig_open(LLAMA, 0, 1);
    const size_t calls = without(&r, &oracle, 0, 0), live = gqac_alloc_live();
    for (size_t n = 1; n <= calls; n++)
        for (int persist = 0; persist < 2; persist++) {
            without(&r, &oracle, n, persist);
            CU_ASSERT(gqac_alloc_live() <= live);
        }
    printf("  %zu allocations failed one by one\n", calls);
    CU_ASSERT(calls > 5);
    rig_close(&oracle);
    rig_close(&r);
}

static const unit_case cases[] = {
    {"the same results", same_results}, {"none", none},
    {"beside chunks", beside_chunks},   {"where drafts cost as much as ids", costly},
    {"memory is tight", tight},         {"allocations that fail", allocations},
};

int main(int argc, char **argv) {
    return unit_run("sched/drafts", cases, sizeof cases / sizeof *cases, argc, argv);
}
