/* Constraints: masks are exact for tokens of every kind of tokenizer, answers are the same with
 * drafts, without a cache and in a scheduler, and end where they must. Masks are compared with
 * pushing each token separately, and answers with the automaton on their text. */
#include "unit.h"

#include <gqac/text.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "llm/constraint.h"
#include "llm/vocabulary.h"
#include "text/grammar/automaton.h"

static gqac_diag diag;

#define MUST(call)                                                                                 \
    do {                                                                                           \
        const gqac_status must_ = (call);                                                          \
        if (must_ != GQAC_OK)                                                                      \
            printf("%s: %s\n", gqac_status_name(must_), diag.what);                                \
        CU_ASSERT_EQUAL_FATAL(must_, GQAC_OK);                                                     \
    } while (0)

static gqac_text *open_text(const char *folder) {
    gqac_text *text = NULL;
    MUST(gqac_text_open(unit_path(folder), GQAC_TEXT_ALL, &text, &diag));
    return text;
}

static gqac_constraint *from_rules(const gqac_text *text, const char *rules) {
    gqac_constraint *c = NULL;
    MUST(gqac_constraint_from_grammar(text, rules, strlen(rules), &c, &diag));
    return c;
}

static uint32_t chance = 1;

static uint32_t draw(uint32_t n) {
    chance = chance * 1664525U + 1013904223U;
    return (chance >> 8) % n;
}

/* ---- masks --------------------------------------------------------------- */

/* Compares the mask of a state with the effect of each token. Returns the number of tokens that
 * fit. */
static int check_mask(gqac_constraint_state *s, float *logits, int64_t n) {
    static const int64_t eos[] = {3};
    bool may_end = false, must_end = false;
    int fit = 0, wrong = 0;
    MUST(gqac_constraint_ends(s, &may_end, &must_end, &diag));
    for (int64_t i = 0; i < n; i++)
        logits[i] = (float)i;
    MUST(gqac_constraint_mask(s, logits, n, eos, 1, &diag));
    for (int64_t i = 0; i < n; i++) {
        gqac_constraint_state *fork = NULL;
        MUST(gqac_constraint_fork(s, &fork, &diag));
        bool fits = gqac_constraint_push(fork, i, &diag) == GQAC_OK;
        gqac_constraint_state_free(fork);
        fits = i == eos[0] ? may_end : fits;
        wrong += fits ? logits[i] != (float)i : !isnan(logits[i]);
        fit += fits && i != eos[0];
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(!must_end || (may_end && fit == 0));
    return fit;
}

/* Checks that the text of these ids is the beginning of one that the grammar accepts; its last
 * character may be incomplete. */
static void check_text(const gqac_text *text, const char *rules, const int64_t *ids, size_t n,
                       bool complete) {
    grammar *g = NULL;
    automaton a;
    char *said = NULL;
    size_t length = 0;
    uint32_t state = AUTOMATON_DEAD;
    MUST(gqac_text_detokenize(text, ids, n, false, &said, &length, &diag));
    while (length >= 3 && !complete && !memcmp(said + length - 3, "\xef\xbf\xbd", 3))
        length -= 3;
    MUST(grammar_from_rules(rules, strlen(rules), &g, &diag));
    MUST(automaton_open(&a, g, &diag));
    MUST(automaton_start(&a, &state, &diag));
    for (size_t i = 0; i < length; i++)
        MUST(automaton_next(&a, state, (uint8_t)said[i], &state, &diag));
    if (state == AUTOMATON_DEAD)
        printf("'%.*s' is none of %s\n", (int)length, said, rules);
    CU_ASSERT(state != AUTOMATON_DEAD);
    CU_ASSERT(!complete || a.states[state].may_end);
    automaton_close(&a);
    grammar_free(g);
    gqac_release(said);
}

/* Pushes random tokens, and compares each mask. */
static void walk(const gqac_text *text, int64_t n, const char *rules) {
    enum { STEPS = 14 };
    int64_t ids[STEPS];
    size_t taken = 0;
    bool may_end = false;
    float *logits = malloc((size_t)n * sizeof *logits);
    gqac_constraint *c = from_rules(text, rules);
    gqac_constraint_state *s = NULL;
    MUST(gqac_constraint_begin(c, &s, &diag));
    gqac_constraint_free(c); /* the state keeps it alive */
    for (; taken < STEPS; taken++) {
        const int fit = check_mask(s, logits, n);
        if (!fit)
            break;
        int64_t id = 0;
        for (uint32_t skip = draw((uint32_t)fit); isnan(logits[id]) || id == 3 || skip--;)
            id++;
        MUST(gqac_constraint_push(s, id, &diag));
        ids[taken] = id;
    }
    MUST(gqac_constraint_ends(s, &may_end, NULL, &diag));
    check_text(text, rules, ids, taken, may_end);
    gqac_constraint_state_free(s);
    free(logits);
}

static void test_masks(void) {
    static const char *const folders[] = {"test/tokenizers/llama2", "test/tokenizers/gemma",
                                          "test/tokenizers/llama3", "test/tokenizers/o200k",
                                          "test/tokenizers/t5",     "models/tiny-gqa"};
    static const char *const rules[] = {
        "root ::= [a-z\xc3\xa9 ]* (\",\" \" \"? [A-Z] [a-z]+)*",
        "root ::= \" \"? (\"the\" | \"then\" | \"there is\" \" \" [^x]* | \"(\" root \")\")",
        "root ::= [^\\x00-\\x7f]{2,} \"!\"", /* characters of several bytes */
        "root ::= ([0-9]{1,3} \" \"?){3,5} | \"\xf0\x9f\x98\x80\"{2} | .{3}"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        gqac_text *text = open_text(folders[f]);
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
            if (!strcmp(folders[f], "test/tokenizers/t5") && r == 2)
                continue; /* it has no bytes */
            for (int i = 0; i < unit_count(1, 30); i++)
                walk(text, 1010, rules[r]);
        }
        gqac_text_free(text);
    }
}

static void test_none_fits(void) {
    gqac_text *text = open_text("test/tokenizers/t5");
    gqac_constraint *c = from_rules(text, "root ::= \"a\" \"\xe6\xbc\xa2\"");
    gqac_constraint_state *s = NULL;
    float logits[400];
    MUST(gqac_constraint_begin(c, &s, &diag));
    gqac_status status = GQAC_OK;
    for (int64_t i = 0; i < 400 && status == GQAC_OK; i++)
        status = gqac_constraint_push(s, i, &diag) == GQAC_OK ? GQAC_ABORTED : GQAC_OK;
    CU_ASSERT_EQUAL(status, GQAC_ABORTED); /* "a" was pushed */
    CU_ASSERT_EQUAL(gqac_constraint_mask(s, logits, 400, NULL, 0, &diag), GQAC_INVALID_INPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "byte 0xe6"));
    gqac_constraint_state_free(s);
    gqac_constraint_free(c);
    gqac_text_free(text);
}

/* ---- answers ------------------------------------------------------------- */

typedef struct rig {
    gqac_program *program;
    gqac_text *text;
    gqac_context *context;
    int64_t *ids;
    size_t n;
} rig;

static rig open_rig(void) {
    static const char prompt[] = "It was a fine day, it was a fine day, it was";
    rig r = {0};
    MUST(gqac_model_open(unit_path("models/tiny-gqa"), NULL, GQAC_TEXT_ALL, &r.program, &r.text,
                         &diag));
    MUST(gqac_context_create(r.program, 1, &r.context, &diag));
    MUST(gqac_text_tokenize(r.text, prompt, sizeof prompt - 1, true, &r.ids, &r.n, &diag));
    return r;
}

static void close_rig(rig *r) {
    gqac_release(r->ids);
    gqac_context_free(r->context);
    gqac_program_free(r->program);
    gqac_text_free(r->text);
}

static double stand_still(void *arg) {
    (void)arg;
    return 1;
}

typedef struct variant {
    uint64_t seed;
    const char *kv;
    int64_t speculate, max_new;
    gqac_constraint *constraint;
} variant;

static gqac_sampling sampling_of(uint64_t seed) {
    gqac_sampling s;
    gqac_sampling_init(&s);
    s.sample = seed != 0;
    s.seed = seed;
    s.repetition_penalty = 0.8; /* so that drafts are sometimes right */
    return s;
}

static gqac_generation *generate(const rig *r, const variant *v) {
    gqac_session_options options;
    gqac_session *session = NULL;
    gqac_generate_request q;
    gqac_generation *said = NULL;
    const gqac_sampling sampling = sampling_of(v->seed);
    gqac_session_options_init(&options);
    options.kv = v->kv;
    MUST(gqac_session_create(r->program, &options, &session, &diag));
    gqac_generate_request_init(&q, r->text, session, r->ids, r->n);
    q.sampling = &sampling;
    q.max_new = v->max_new;
    q.speculate = v->speculate;
    q.constraint = v->constraint;
    q.clock = stand_still;
    MUST(gqac_generate(r->context, r->text, 1, &q, &said, &diag));
    gqac_session_free(session);
    return said;
}

static bool same(const gqac_generation *a, const gqac_generation *b) {
    return a->n_ids == b->n_ids && a->finish == b->finish && !strcmp(a->text, b->text) &&
           !memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids);
}

typedef struct ended {
    int64_t ids[64];
    size_t n;
    gqac_finish finish;
} ended;

static void note_end(void *arg, const gqac_request_end *end) {
    ended *e = arg;
    e->finish = end->finish;
    e->n = end->n_ids;
    memcpy(e->ids, end->ids, end->n_ids * sizeof *e->ids);
}

static void check_scheduler(const rig *r, const variant *v, const gqac_generation *want) {
    const gqac_text_settings *x = gqac_text_get_settings(r->text);
    const gqac_sampling sampling = sampling_of(v->seed);
    gqac_scheduler *scheduler = NULL;
    gqac_request q;
    ended found[2] = {{.n = 0}};
    int64_t left = 1, number = 0;
    MUST(gqac_scheduler_create(r->context, NULL, &scheduler, &diag));
    for (int i = 0; i < 2; i++) { /* one of them without a constraint */
        gqac_request_init(&q, r->ids, r->n);
        q.max_new = v->max_new;
        q.n_eos = x->n_eos;
        q.eos = x->eos;
        q.sampling = &sampling;
        q.constraint = i ? NULL : v->constraint;
        q.on_end = note_end;
        q.arg = &found[i];
        MUST(gqac_scheduler_submit(scheduler, &q, &number, &diag));
    }
    while (left)
        MUST(gqac_scheduler_step(scheduler, &left, &diag));
    CU_ASSERT(found[0].n == want->n_ids && found[0].finish == want->finish);
    CU_ASSERT(!memcmp(found[0].ids, want->ids, want->n_ids * sizeof *want->ids));
    const variant free = {v->seed, NULL, 0, v->max_new, NULL};
    gqac_generation *other = generate(r, &free);
    CU_ASSERT(found[1].n == other->n_ids && found[1].finish == other->finish);
    CU_ASSERT(!memcmp(found[1].ids, other->ids, other->n_ids * sizeof *other->ids));
    gqac_generation_free(other);
    gqac_scheduler_free(scheduler);
}

static void test_answers(void) {
    static const char *const rules[] = {
        "root ::= (\" \"? [a-z]+){2,9} [.!]",
        "root ::= (\"it was \" (\"a fine\" | \"no\") \" day, \"){1,4} \"and\"",
        "root ::= \" \" [A-Z]{1,3} \"-\" [0-9]+ (\" the\" [^z]{4,})?"};
    rig r = open_rig();
    int64_t accepted = 0;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        gqac_constraint *c = from_rules(r.text, rules[i]);
        for (uint64_t seed = 0; seed < (uint64_t)unit_count(2, 20); seed++) {
            const variant plain = {seed, NULL, 0, 40, c}, drafts = {seed, NULL, 6, 40, c};
            const variant whole = {seed, "off", 0, 40, c};
            gqac_generation *want = generate(&r, &plain), *other = generate(&r, &drafts);
            check_text(r.text, rules[i], want->ids, want->n_ids - (want->finish == GQAC_FINISH_EOS),
                       want->finish != GQAC_FINISH_LENGTH);
            CU_ASSERT(same(want, other));
            accepted += other->metrics.accepted_tokens;
            gqac_generation_free(other);
            if (!seed || unit_full()) {
                other = generate(&r, &whole);
                CU_ASSERT(same(want, other));
                gqac_generation_free(other);
            }
            check_scheduler(&r, &plain, want);
            gqac_generation_free(want);
        }
        gqac_constraint_free(c);
    }
    CU_ASSERT(accepted > 0);
    close_rig(&r);
}

/* Drafts that the grammar forbids are not computed: all drafts here are found in the prompt, and
 * are right until the grammar forbids them. */
static void test_drafts(void) {
    rig r = open_rig();
    gqac_constraint *c = from_rules(r.text, "root ::= \" a fine day\" \"; nobody\"{3}");
    const variant plain = {0, NULL, 0, 40, c}, drafts = {0, NULL, 8, 40, c};
    gqac_generation *want = generate(&r, &plain), *other = generate(&r, &drafts);
    CU_ASSERT(same(want, other) && other->finish == GQAC_FINISH_STOP);
    CU_ASSERT(other->metrics.accepted_tokens >= 4);
    CU_ASSERT_EQUAL(other->metrics.drafted_tokens, other->metrics.accepted_tokens);
    gqac_generation_free(want);
    gqac_generation_free(other);
    gqac_constraint_free(c);
    close_rig(&r);
}

/* Where an answer may end and where it must. */
static void test_ends(void) {
    rig r = open_rig();
    gqac_constraint *c = from_rules(r.text, "root ::= \"no\" \"thing\"?");
    gqac_constraint_state *s = NULL;
    float logits[512];
    const int64_t eos = 1;
    bool may = false, must = false;
    int64_t *ids = NULL;
    size_t n = 0;
    MUST(gqac_constraint_begin(c, &s, &diag));
    MUST(gqac_text_tokenize(r.text, "nothing", 7, false, &ids, &n, &diag));
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        char *bytes = NULL;
        size_t more = 0;
        MUST(gqac_constraint_ends(s, &may, &must, &diag));
        CU_ASSERT(may == (length == 2) && !must);
        memset(logits, 0, sizeof logits);
        MUST(gqac_constraint_mask(s, logits, 512, &eos, 1, &diag));
        CU_ASSERT(isnan(logits[eos]) == (length != 2) && !isnan(logits[ids[i]]));
        CU_ASSERT_EQUAL(gqac_constraint_push(s, eos, &diag), GQAC_INVALID_INPUT);
        MUST(gqac_text_token_bytes(r.text, ids[i], &bytes, &more, NULL, &diag));
        gqac_release(bytes);
        length += more;
        MUST(gqac_constraint_push(s, ids[i], &diag));
    }
    MUST(gqac_constraint_ends(s, &may, &must, &diag));
    CU_ASSERT(may && must && length == 7);
    gqac_release(ids);
    gqac_constraint_state_free(s);
    const variant v = {0, NULL, 0, 20, c};
    gqac_generation *said = generate(&r, &v);
    const bool stops = said->finish == GQAC_FINISH_STOP && !strcmp(said->text, "nothing");
    CU_ASSERT(stops || (said->finish == GQAC_FINISH_EOS && !strcmp(said->text, "no")));
    gqac_generation_free(said);
    gqac_constraint_free(c);
    close_rig(&r);
}

/* A grammar with more states than are kept: some are forgotten, and the masks stay the same. */
static void test_forgets(void) {
    gqac_text *text = open_text("models/tiny-gqa");
    gqac_constraint *c = from_rules(text, "root ::= (\"(\" | \"[\" | \"a\")* end\n"
                                          "end ::= \"(\" end \")\" | \"[\" end \"]\" | \"x\"");
    gqac_constraint_state *s = NULL, *early = NULL;
    float first[512], again[512], late[512];
    int64_t *ids = NULL;
    size_t n = 0;
    memset(first, 0, sizeof first);
    memset(again, 0, sizeof again);
    MUST(gqac_text_tokenize(text, "((([[(((((([(([([[[(((((((((", 28, false, &ids, &n, &diag));
    MUST(gqac_constraint_begin(c, &s, &diag));
    for (size_t i = 0; i < n; i++) {
        MUST(gqac_constraint_push(s, ids[i], &diag));
        if (i == n / 2)
            MUST(gqac_constraint_fork(s, &early, &diag));
        memset(late, 0, sizeof late);
        MUST(gqac_constraint_mask(s, late, 512, NULL, 0, &diag));
    }
    MUST(gqac_constraint_mask(early, first, 512, NULL, 0, &diag));
    for (int i = 0; i < unit_count(40, 2000); i++) { /* a different branch each time */
        gqac_constraint_state *x = NULL;
        c->most = 1 << 20; /* so that it is reached in few steps */
        MUST(gqac_constraint_fork(s, &x, &diag));
        for (size_t k = 0; k < 100; k++) {
            memset(late, 0, sizeof late);
            MUST(gqac_constraint_push(x, ids[draw((uint32_t)n)], &diag));
            MUST(gqac_constraint_mask(x, late, 512, NULL, 0, &diag));
        }
        gqac_constraint_state_free(x);
    }
    MUST(gqac_constraint_mask(early, again, 512, NULL, 0, &diag));
    for (int i = 0; i < 512; i++)
        CU_ASSERT(isnan(first[i]) == isnan(again[i]));
    CU_ASSERT(automaton_bytes(&c->automaton) < 2 << 20); /* otherwise nothing was forgotten */
    gqac_release(ids);
    gqac_constraint_state_free(s);
    gqac_constraint_state_free(early);
    gqac_constraint_free(c);
    gqac_text_free(text);
}

/* ---- threads ------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 60 };

typedef struct worker {
    pthread_t thread;
    gqac_constraint *shared;
    const int64_t *ids;
    size_t n;
    uint64_t seen; /* a digest of all masks */
    bool failed;
} worker;

/* The masks along a fixed text, and those of a fork after each token. */
static void *work(void *arg) {
    worker *w = arg;
    for (int round = 0; round < ROUNDS; round++) {
        gqac_constraint_state *s = NULL, *fork = NULL;
        float logits[512];
        w->failed |= gqac_constraint_begin(w->shared, &s, NULL) != GQAC_OK;
        for (size_t i = 0; i < w->n && !w->failed; i++) {
            memset(logits, 0, sizeof logits);
            w->failed |=
                gqac_constraint_fork(s, &fork, NULL) != GQAC_OK ||
                gqac_constraint_push(s, w->ids[i], NULL) != GQAC_OK ||
                gqac_constraint_mask(i % 2 ? s : fork, logits, 512, NULL, 0, NULL) != GQAC_OK;
            for (int k = 0; k < 512; k++)
                w->seen = (w->seen ^ (uint64_t)isnan(logits[k])) * 1099511628211u;
            gqac_constraint_state_free(fork);
        }
        gqac_constraint_state_free(s);
    }
    return NULL;
}

/* Threads that share a constraint compute the same masks as one thread. */
static void test_threads(void) {
    static const char said[] = "{\"a\": [1, {\"b\": \"c\\n\"}, [[true]]]}";
    gqac_text *text = open_text("models/tiny-gqa");
    gqac_constraint *c = NULL;
    worker workers[THREADS + 1] = {{.n = 0}};
    int64_t *ids = NULL;
    size_t n = 0;
    MUST(gqac_text_tokenize(text, said, sizeof said - 1, false, &ids, &n, &diag));
    MUST(gqac_constraint_from_schema(text, "{}", 2, &c, &diag));
    for (int i = 0; i <= THREADS; i++) {
        workers[i].shared = c;
        workers[i].ids = ids;
        workers[i].n = n;
    }
    for (int i = 0; i < THREADS; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    work(&workers[THREADS]);
    for (int i = 0; i <= THREADS; i++)
        CU_ASSERT(!workers[i].failed && workers[i].seen == workers[THREADS].seen);
    gqac_release(ids);
    gqac_constraint_free(c);
    gqac_text_free(text);
}

static gqac_status use(const gqac_text *text) {
    static const char rules[] = "root ::= [a-z]+ \"!\"";
    gqac_constraint *c = NULL;
    gqac_constraint_state *s = NULL, *fork = NULL;
    float logits[512] = {0};
    GQAC_TRY(gqac_constraint_from_grammar(text, rules, sizeof rules - 1, &c, &diag));
    gqac_status status = gqac_constraint_begin(c, &s, &diag);
    gqac_constraint_free(c);
    if (status == GQAC_OK)
        status = gqac_constraint_mask(s, logits, 512, NULL, 0, &diag);
    for (int64_t i = 0; i < 512 && status == GQAC_OK; i++)
        if (!isnan(logits[i])) {
            status = gqac_constraint_push(s, i, &diag);
            break;
        }
    if (status == GQAC_OK)
        status = gqac_constraint_fork(s, &fork, &diag);
    if (status == GQAC_OK)
        status = gqac_constraint_mask(fork, logits, 512, NULL, 0, &diag);
    gqac_constraint_state_free(s);
    gqac_constraint_state_free(fork);
    return status;
}

static void test_memory(void) {
    size_t calls = 0;
    gqac_text *text = open_text("models/tiny-gqa");
    CU_ASSERT_EQUAL(use(text), GQAC_OK); /* the tokens are read once */
    const size_t live = gqac_alloc_live();
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL(use(text), GQAC_OK);
    calls = gqac_alloc_calls();
    for (size_t n = 1; n <= calls; n++) {
        gqac_alloc_fail_at(n, 0);
        CU_ASSERT_EQUAL(use(text), GQAC_NO_MEMORY);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    }
    gqac_alloc_fail_at(0, 0);
    gqac_text_free(text);
    text = open_text("models/tiny-gqa"); /* and again if reading them failed */
    for (size_t n = 1; n < 40; n++) {
        gqac_alloc_fail_at(n, 0);
        const gqac_status status = use(text);
        CU_ASSERT(status == GQAC_NO_MEMORY || status == GQAC_OK);
    }
    gqac_alloc_fail_at(0, 0);
    gqac_text_free(text);
}

static const unit_case cases[] = {{"masks", test_masks},     {"no token fits", test_none_fits},
                                  {"answers", test_answers}, {"drafts", test_drafts},
                                  {"ends", test_ends},       {"forgets", test_forgets},
                                  {"threads", test_threads}, {"memory that fails", test_memory}};

int main(int argc, char **argv) {
    return unit_run("constraint", cases, sizeof cases / sizeof *cases, argc, argv);
}
