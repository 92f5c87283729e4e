/* Drafts change no answer: ids, texts, log-probabilities and the contents of a session are as
 * without them, with every model, sampling, end and limit; and they save steps. */
#include "llm/speculation_rig.h"

enum { MOST = 700, N_SAID = 64, TOP = 2 };

/* ---- the same with and without drafts ------------------------------------ */

/* What a host sees of an answer. */
typedef struct seen {
    int64_t until; /* step at which the host ends it; 0: none */
    size_t n, n_drafted, held[N_SAID];
    int64_t ids[N_SAID];
    double log_probability[N_SAID];
    gqac_scored_id top[N_SAID][TOP];
    bool eos[N_SAID];
    char text[16 * N_SAID];
    size_t length;
    const gqac_session *session;
} seen;

static bool see(void *arg, const gqac_generate_event *event) {
    seen *s = arg;
    CU_ASSERT_FATAL(s->n < N_SAID && s->length + event->length < sizeof s->text);
    CU_ASSERT_EQUAL(event->step, (int64_t)s->n + 1);
    CU_ASSERT(s->n ? strcmp(event->phase, "prefill") != 0 : !strcmp(event->phase, "prefill"));
    s->n_drafted += !strcmp(event->phase, "draft");
    s->ids[s->n] = event->id;
    s->log_probability[s->n] = event->log_probability;
    s->eos[s->n] = event->eos;
    memcpy(s->top[s->n], event->top, (size_t)event->n_top * sizeof *event->top);
    memcpy(s->text + s->length, event->text, event->length);
    s->length += event->length;
    gqac_session_ids(s->session, &s->held[s->n]);
    s->n++;
    return event->step != s->until;
}

typedef struct variant {
    const char *name;
    bool sample;
    double repetition, presence;
    float lean;
    bool bias;
} variant;

static const variant variants[] = {{"greedy", false, 1, 0, 8, false},
                                   {"sampled", true, 1, 0, 12, false},
                                   {"penalised", false, 1.3, 0.2, 12, true},
                                   {"penalised, sampled", true, 0.8, -0.5, 9, true}};
enum { VARIANTS = sizeof variants / sizeof *variants };

static const gqac_logit_bias biases[] = {{72, 2}, {101, -INFINITY}};

static gqac_sampling sampling_of(const variant *v, uint64_t seed) {
    return (gqac_sampling){.size = sizeof(gqac_sampling),
                           .sample = v->sample,
                           .temperature = 0.9,
                           .top_k = 40,
                           .top_p = 0.95,
                           .repetition_penalty = v->repetition,
                           .presence_penalty = v->presence,
                           .seed = seed,
                           .n_bias = v->bias ? 2 : 0,
                           .bias = biases};
}

/* Drafts, and accepted drafts, in all comparisons of a test. */
typedef struct count {
    int64_t drafted, accepted, saved, ids;
} count;

static gqac_generation *say(const rig *r, const gqac_text *text, gqac_generate_request q, seen *s) {
    gqac_generation *g = NULL;
    s->session = q.session;
    q.on_token = see;
    q.arg = s;
    q.n_top = TOP;
    diag = (gqac_diag){0};
    const gqac_status status = gqac_generate(r->context, text, 1, &q, &g, &diag);
    if (status != GQAC_OK)
        printf("generate: %s '%s' %s\n", gqac_status_name(status), diag.what, diag.where);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return g;
}

static bool has_states(const rig *r) {
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(r->program, &pairs);
    for (int i = 0; i < n; i++)
        if (pairs[i].rows)
            return true;
    return false;
}

static bool same_seen(const seen *a, const seen *b) {
    return a->n == b->n && a->length == b->length && !memcmp(a->ids, b->ids, sizeof a->ids) &&
           !memcmp(a->log_probability, b->log_probability, sizeof a->log_probability) &&
           !memcmp(a->top, b->top, sizeof a->top) && !memcmp(a->eos, b->eos, sizeof a->eos) &&
           !memcmp(a->text, b->text, a->length);
}

/* Runs the request with the session `with`, which speculates, and with `without`; both contain the
 * same ids. Adds to *c. True: no difference. */
static bool compare(const rig *r, const gqac_text *text, const gqac_generate_request *q,
                    gqac_session *with, gqac_session *without, int64_t until, count *c) {
    static seen a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    a.until = b.until = until;
    gqac_generate_request plain = *q, drafting = *q;
    plain.session = without;
    plain.speculate = 0;
    plain.draft = NULL;
    drafting.session = with;
    gqac_generation *expected = say(r, text, plain, &a), *g = say(r, text, drafting, &b);
    const gqac_generate_metrics *m = &g->metrics, *p = &expected->metrics;
    bool same = same_ids(g, expected) && same_seen(&a, &b) && !strcmp(g->text, expected->text);
    size_t held = 0, held_plain = 0;
    const int64_t *ids = gqac_session_ids(with, &held);
    const int64_t *ids_plain = gqac_session_ids(without, &held_plain);
    same = same && held <= held_plain && !memcmp(ids, ids_plain, held * sizeof *ids);
    same =
        same && (has_states(r) || (held == held_plain && !memcmp(a.held, b.held, sizeof a.held)));
    CU_ASSERT(!p->drafted_tokens && !p->accepted_tokens && !a.n_drafted);
    CU_ASSERT(m->accepted_tokens <= m->drafted_tokens);
    /* every accepted draft saves a forward; the others are wasted work */
    CU_ASSERT_EQUAL(m->n_forwards + b.n_drafted, g->n_ids);
    CU_ASSERT((int64_t)b.n_drafted <= m->accepted_tokens);
    c->drafted += m->drafted_tokens;
    c->accepted += m->accepted_tokens;
    c->saved += (int64_t)(p->n_forwards - m->n_forwards);
    c->ids += (int64_t)g->n_ids;
    gqac_generation_free(expected);
    gqac_generation_free(g);
    return same;
}

/* Two turns of one conversation, the second with the first answer in its prompt. */
static bool converse(const rig *r, const gqac_generate_request *first, const int64_t *prompt,
                     size_t n, count *c) {
    gqac_session *with = open_session(r, NULL, 0), *without = open_session(r, NULL, 0);
    int64_t list[MOST];
    size_t held = 0;
    gqac_generate_request q = *first;
    q.prompt = prompt;
    q.n_prompt = n;
    bool same = compare(r, NULL, &q, with, without, 0, c);
    const int64_t *ids = gqac_session_ids(without, &held);
    memcpy(list, ids, held * sizeof *ids);
    memcpy(list + held, prompt, 3 * sizeof *prompt);
    q.prompt = list;
    q.n_prompt = held + 3;
    q.max_new = 8;
    same = compare(r, NULL, &q, with, without, 0, c) && same;
    gqac_session_free(with);
    gqac_session_free(without);
    return same;
}

/* ---- models -------------------------------------------------------------- */

static const char *const models[] = {
    "test/models/llama",           "test/models/llama-fp16", "test/models/llama-int4-acc1",
    "test/models/llama-int4-acc4", "test/models/mistral",    "test/models/qwen2",
    "test/models/qwen3",           "test/models/phi3",       "test/models/gemma2",
    "test/models/gpt-oss",         "test/models/lfm2",       "test/models/qwen3.5",
    "test/models/smollm3-qdq",     "models/tiny-gqa",        "models/tiny-gqa-int4"};
enum { MODELS = sizeof models / sizeof *models };

static rig open_path(const char *folder, int threads) {
    char path[64];
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    return open_rig(unit_path(path), threads);
}

/* n prompts for each variant and seed. `draft`: a program that drafts; NULL: none. */
static void expect_same(const rig *r, const char *name, const rig *draft, int n, int seeds,
                        count *c) {
    gqac_session *own = draft ? open_session(draft, NULL, 0) : NULL;
    int64_t prompt[MOST];
    int differing = 0, compared = 0;
    for (int i = 0; i < n; i++)
        for (int v = 0; v < VARIANTS; v++)
            for (int seed = 0; seed < (variants[v].sample ? seeds : 1); seed++) {
                float by = variants[v].lean;
                const gqac_sampling sampling = sampling_of(&variants[v], (uint64_t)(17 * i + seed));
                fill_ids(prompt, (size_t)(12 + i % 30), i);
                gqac_generate_request q = make_request(NULL, NULL, 0, 24 + i % 20);
                q.sampling = &sampling;
                q.on_logits = lean;
                q.logits_arg = &by;
                q.speculate = 1 + (i + v) % 6;
                q.draft = own;
                q.draft_context = draft ? draft->context : NULL;
                differing += !converse(r, &q, prompt, (size_t)(12 + i % 30), c);
                compared++;
            }
    if (differing)
        printf("  %s: %d of %d conversations differ\n", name, differing, compared);
    CU_ASSERT_EQUAL(differing, 0);
    gqac_session_free(own);
}

/* The comparisons included right and wrong drafts, and saved steps. */
static void expect_used(const char *name, const count *c) {
    if (unit_full())
        printf("  %s: %lld ids, %lld drafts, %lld accepted\n", name, (long long)c->ids,
               (long long)c->drafted, (long long)c->accepted);
    CU_ASSERT(c->accepted > 0 && c->accepted < c->drafted && c->saved > 0);
}

static void test_models(void) {
    for (int m = 0; m < MODELS; m++) {
        rig r = open_path(models[m], 1 + m % 2);
        count c = {0};
        expect_same(&r, models[m], NULL, unit_count(2, 50), unit_count(1, 3), &c);
        expect_used(models[m], &c);
        close_rig(&r);
    }
}

/* Drafts by another program: the same model, a similar one, and one of another family. */
static void test_programs(void) {
    static const char *const pairs[][2] = {
        {"llama", "llama-int4-acc4"}, {"llama", "qwen2"}, {"qwen3.5", "llama"},
        {"lfm2", "qwen3.5"},          {"phi3", "phi3"},   {"gemma2", "gemma2"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        rig r = open_model(pairs[i][0], 1), draft = open_model(pairs[i][1], 2);
        count c = {0};
        expect_same(&r, pairs[i][0], &draft, unit_count(2, 20), unit_count(1, 3), &c);
        expect_used(pairs[i][0], &c);
        close_rig(&draft);
        close_rig(&r);
    }
}

/* A model that drafts for itself is always right: n ids take 1 + (n - 1) / (N + 1) forwards, after
 * one without drafts that measures the cost of a step. */
static void test_itself(void) {
    for (int sampled = 0; sampled < 2; sampled++) {
        rig r = open_model("llama", 1), draft = open_model("llama", 1);
        gqac_session *session = open_session(&r, NULL, 0), *own = open_session(&draft, NULL, 0);
        int64_t prompt[20];
        const gqac_sampling sampling = sampling_of(&variants[sampled], 3);
        fill_ids(prompt, 20, 6);
        gqac_generate_request q = make_request(session, prompt, 20, 32);
        q.sampling = &sampling;
        q.speculate = 4;
        q.draft = own;
        q.draft_context = draft.context;
        gqac_generation *g = generate(&r, &q);
        CU_ASSERT(g->n_ids == 32 && g->metrics.n_forwards == 2 + 30 / 5);
        CU_ASSERT(g->metrics.drafted_tokens == 24 && g->metrics.accepted_tokens == 24);
        CU_ASSERT_EQUAL(g->metrics.computed_tokens, 20 + 31);
        gqac_generation_free(g);
        gqac_session_free(session);
        gqac_session_free(own);
        close_rig(&draft);
        close_rig(&r);
    }
}

/* A text that repeats itself, except for one id in 97. */
static bool stumble(void *arg, float *logits, int64_t vocabulary, const int64_t *ids, size_t n) {
    const int64_t id = n % 97 == 0 ? (int64_t)(n / 97) : ids[n - 1];
    (void)arg;
    logits[id] += 100;
    return id < vocabulary;
}

/* A windowed cache has released rows that a rewind of many drafts would need: fewer drafts are
 * made. */
static void test_windows(void) {
    rig r = open_model("gemma2", 1);
    int64_t prompt[40];
    gqac_generation *g[2];
    fill_ids(prompt, 40, 8);
    for (int i = 0; i < 2; i++) {
        gqac_session *session = open_session(&r, "windowed", 0);
        gqac_generate_request q = make_request(session, prompt, 40, 400);
        q.on_logits = stumble;
        q.speculate = i ? 255 : 0;
        g[i] = generate(&r, &q);
        gqac_session_free(session);
    }
    const gqac_generate_metrics *m = &g[1]->metrics;
    CU_ASSERT(same_ids(g[0], g[1]) && g[0]->n_ids == 400);
    CU_ASSERT(m->accepted_tokens > 200 && m->drafted_tokens > m->accepted_tokens);
    gqac_generation_free(g[0]);
    gqac_generation_free(g[1]);
    close_rig(&r);
}

/* ---- ends ---------------------------------------------------------------- */

/* Every way to end, at every position: an end-of-text id, stop texts, the host, max_new, the
 * context. */
static void test_ends(void) {
    static const char *table[258];
    static char letters[258][2];
    static const char *const stop[] = {"ab", "xyz"};
    for (int i = 0; i < 258; i++) {
        letters[i][0] = (char)('a' + i % 26);
        table[i] = letters[i];
    }
    const pieces p = {.text = table, .n = 250, .broken = -1};
    const gqac_text text = pieces_text(&p);
    static const char *const names[] = {"llama", "qwen3.5"};
    for (int m = 0; m < 2; m++) {
        rig r = open_model(names[m], 1);
        count c = {0};
        int64_t prompt[40];
        fill_ids(prompt, 40, 8);
        for (int64_t at = 1; at < 26; at++) {
            float by = 20;
            gqac_session *with = open_session(&r, NULL, at % 2 ? 0 : 30 + at);
            gqac_session *without = open_session(&r, NULL, at % 2 ? 0 : 30 + at);
            gqac_generate_request q = make_request(NULL, prompt, 30, at % 3 ? 30 : at);
            const int64_t eos[] = {prompt[at % PERIOD], 11};
            q.speculate = 4;
            q.on_logits = lean;
            q.logits_arg = &by;
            q.stop = stop;
            q.n_stop = at % 4 == 1 ? 2 : 0;
            q.eos = eos;
            q.n_eos = at % 4 == 2 ? 2 : 0;
            q.min_length = at % 8 == 2 ? 30 + at : 0;
            CU_ASSERT(compare(&r, &text, &q, with, without, at % 4 == 3 ? at : 0, &c));
            CU_ASSERT(compare(&r, &text, &q, with, without, 0, &c)); /* the same again */
            gqac_session_free(with);
            gqac_session_free(without);
        }
        CU_ASSERT(c.accepted > 30 && c.drafted > c.accepted);
        close_rig(&r);
    }
}

typedef struct end_after {
    int64_t calls, until;
    float by;
} end_after;

static bool lean_until(void *arg, float *logits, int64_t vocabulary, const int64_t *ids, size_t n) {
    end_after *e = arg;
    return lean(&e->by, logits, vocabulary, ids, n) && ++e->calls < e->until;
}

/* The hook ends the answer, also in the middle of accepted drafts; it is called as often as without
 * drafts. */
static void test_hook_ends(void) {
    rig r = open_model("llama", 1);
    int64_t prompt[30];
    fill_ids(prompt, 30, 8);
    for (int64_t until = 1; until < 16; until++) {
        size_t held[2];
        gqac_generation *g[2];
        for (int i = 0; i < 2; i++) {
            end_after e = {.until = until, .by = 30};
            gqac_session *session = open_session(&r, NULL, 0);
            gqac_generate_request q = make_request(session, prompt, 30, 24);
            q.on_logits = lean_until;
            q.logits_arg = &e;
            q.speculate = i ? 6 : 0;
            g[i] = generate(&r, &q);
            CU_ASSERT_EQUAL(e.calls, until);
            gqac_session_ids(session, &held[i]);
            gqac_session_free(session);
        }
        CU_ASSERT(same_ids(g[0], g[1]) && held[0] == held[1]);
        CU_ASSERT(until < 10 || g[1]->metrics.accepted_tokens > 0);
        gqac_generation_free(g[0]);
        gqac_generation_free(g[1]);
    }
    close_rig(&r);
}

/* Where positions end (160 of qwen2) and where LongRoPE changes tables (64 of phi3). */
static void test_limits(void) {
    static const struct {
        const char *model;
        size_t from, to;
    } cases[] = {{"qwen2", 130, 161}, {"phi3", 36, 66}};
    for (size_t i = 0; i < 2; i++) {
        rig r = open_model(cases[i].model, 1);
        count c = {0};
        int64_t prompt[MOST];
        fill_ids(prompt, MOST, 2);
        for (size_t n = cases[i].from; n < cases[i].to; n++) {
            float by = 11;
            gqac_session *with = open_session(&r, NULL, 0), *without = open_session(&r, NULL, 0);
            gqac_generate_request q = make_request(NULL, prompt, n, 40);
            q.speculate = 1 + (int64_t)n % 7;
            q.on_logits = lean;
            q.logits_arg = &by;
            CU_ASSERT(compare(&r, NULL, &q, with, without, 0, &c));
            gqac_session_free(with);
            gqac_session_free(without);
        }
        CU_ASSERT(c.accepted > 100 && c.drafted > c.accepted);
        close_rig(&r);
    }
}

/* A program that drafts, and stops before the answer ends: at its last position, or at an id that
 * it does not have. */
static void test_short_program(void) {
    rig r = open_model("llama", 1), draft = open_model("qwen2", 1);
    count c = {0};
    int64_t prompt[MOST];
    fill_ids(prompt, MOST, 2);
    for (size_t n = 140; n < 170; n += 4) {
        float by = 10;
        gqac_session *with = open_session(&r, NULL, 0), *without = open_session(&r, NULL, 0);
        gqac_session *own = open_session(&draft, NULL, 0);
        gqac_generate_request q = make_request(NULL, prompt, n, 40);
        q.speculate = 5;
        q.draft = own;
        q.draft_context = draft.context;
        q.on_logits = lean;
        q.logits_arg = &by;
        CU_ASSERT(compare(&r, NULL, &q, with, without, 0, &c));
        gqac_session_free(with);
        gqac_session_free(without);
        gqac_session_free(own);
    }
    CU_ASSERT(c.drafted > 0);
    close_rig(&draft);
    close_rig(&r);
}

/* ---- company ------------------------------------------------------------- */

/* Three requests in one call, two of which speculate, have the same answers as alone; sessions
 * continue. */
static void test_company(void) {
    static const char *const names[] = {"llama", "gemma2", "phi3", "qwen3.5"};
    for (size_t m = 0; m < sizeof names / sizeof *names; m++) {
        rig r = open_model(names[m], 2), draft = open_model("llama", 1);
        gqac_session *sessions[3], *own = open_session(&draft, NULL, 0);
        int64_t prompts[3][MOST], accepted = 0;
        gqac_sampling sampling[3];
        float by = 14;
        for (int i = 0; i < 3; i++) {
            sessions[i] = open_session(&r, NULL, 0);
            sampling[i] = sampling_of(&variants[i], (uint64_t)i);
            fill_ids(prompts[i], MOST, 3 * i);
        }
        for (int turn = 0; turn < 3; turn++) {
            gqac_generate_request q[3];
            gqac_generation *together[3];
            for (int i = 0; i < 3; i++) {
                q[i] = make_request(sessions[i], prompts[i], (size_t)(9 + 15 * turn + 6 * i),
                                    30 - 4 * i);
                q[i].sampling = &sampling[i];
                q[i].on_logits = lean;
                q[i].logits_arg = &by;
                q[i].speculate = 3 * i;
                q[i].draft = i == 2 ? own : NULL;
                q[i].draft_context = i == 2 ? draft.context : NULL;
            }
            CU_ASSERT_EQUAL_FATAL(gqac_generate(r.context, NULL, 3, q, together, &diag), GQAC_OK);
            for (int i = 0; i < 3; i++) {
                gqac_session *alone = open_session(&r, NULL, 0);
                q[i].session = alone;
                q[i].speculate = 0;
                q[i].draft = NULL;
                gqac_generation *g = generate(&r, &q[i]);
                CU_ASSERT(same_ids(g, together[i]));
                accepted += together[i]->metrics.accepted_tokens;
                gqac_generation_free(g);
                gqac_generation_free(together[i]);
                gqac_session_free(alone);
            }
        }
        CU_ASSERT(accepted > 20);
        for (int i = 0; i < 3; i++)
            gqac_session_free(sessions[i]);
        gqac_session_free(own);
        close_rig(&draft);
        close_rig(&r);
    }
}

static const unit_case cases[] = {
    {"prompt lookup: on = off, with every model", test_models},
    {"windowed caches", test_windows},
    {"drafts of a program: on = off", test_programs},
    {"a model that drafts for itself", test_itself},
    {"answers end where they do without drafts", test_ends},
    {"the hook ends the answer", test_hook_ends},
    {"the last position, and the LongRoPE threshold", test_limits},
    {"a program with fewer positions", test_short_program},
    {"three in one call = each alone", test_company},
};

int main(int argc, char **argv) {
    return unit_run("speculation", cases, sizeof cases / sizeof *cases, argc, argv);
}
