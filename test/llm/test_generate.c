/* Generation returns the same ids and the same logits with any cache, division into steps, batch
 * and number of threads, and a session counts the ids that it reuses. Models are exported ones
 * (test/models); no text. */
#include "llm/generate_rig.h"

enum { PROMPT = 20, NEW = 24, MOST = 200, VOCABULARY = 258 };

/* The logits from which each id of an answer was chosen. */
typedef struct trace {
    const gqac_context *context;
    const gqac_session *session;
    float logits[MOST][VOCABULARY];
    size_t cached[MOST]; /* ids in the session at the time of the event */
    size_t n;
} trace;

static bool keep_trace(void *arg, const gqac_generate_event *event) {
    trace *t = arg;
    int64_t rows = 0, vocabulary = 0;
    const float *logits = gqac_context_logits(t->context, 0, &rows, &vocabulary);
    CU_ASSERT_EQUAL_FATAL(vocabulary, VOCABULARY);
    CU_ASSERT_EQUAL(event->step, (int64_t)t->n + 1);
    CU_ASSERT_STRING_EQUAL(event->phase, t->n ? "decode" : "prefill");
    CU_ASSERT(event->probability > 0 && event->probability <= 1);
    CU_ASSERT(event->request == 0 && !event->length && !event->eos);
    memcpy(t->logits[t->n], logits + (rows - 1) * vocabulary, sizeof t->logits[0]);
    gqac_session_ids(t->session, &t->cached[t->n]);
    t->n++;
    return true;
}

static gqac_generate_request make_request(gqac_session *session, const int64_t *prompt, size_t n,
                                          int64_t max_new) {
    gqac_generate_request q;
    gqac_generate_request_init(&q, NULL, session, prompt, n);
    q.max_new = max_new;
    return q;
}

static int64_t argmax(const float *row) {
    int64_t best = 0;
    for (int64_t i = 1; i < VOCABULARY; i++)
        best = row[i] > row[best] ? i : best;
    return best;
}

/* ---- off = cached = by hand ---------------------------------------------- */

/* Prefill and decode by hand; rows of logits go to `t`, ids after the prompt to `list`. */
static void by_hand(const rig *r, int64_t *list, size_t n, size_t count, trace *t) {
    gqac_sequence *sequence = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r->program, NULL, &sequence, &diag), GQAC_OK);
    gqac_status status = gqac_prefill(r->context, sequence, list, (int64_t)n, &diag);
    for (t->n = 0; t->n < count; t->n++) {
        int64_t rows = 0, vocabulary = 0;
        if (status == GQAC_RECOMPUTE)
            status = gqac_prefill(r->context, sequence, list, (int64_t)n, &diag);
        CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
        const float *logits = gqac_context_logits(r->context, 0, &rows, &vocabulary);
        memcpy(t->logits[t->n], logits + (rows - 1) * vocabulary, sizeof t->logits[0]);
        list[n++] = argmax(t->logits[t->n]);
        status = gqac_decode(r->context, sequence, list[n - 1], (int64_t)n - 1, &diag);
    }
    gqac_sequence_free(sequence);
}

static void expect_as_by_hand(const rig *r, const char *kv, const int64_t *list, size_t n,
                              const trace *expected) {
    static trace t;
    gqac_session *session = open_session(r, kv, 0);
    gqac_generate_request q = make_request(session, list, n, (int64_t)expected->n);
    t.context = r->context;
    t.session = session;
    t.n = 0;
    q.on_token = keep_trace;
    q.arg = &t;
    gqac_generation *g = generate(r, &q);
    CU_ASSERT_EQUAL(g->n_ids, expected->n);
    CU_ASSERT(!memcmp(g->ids, list + n, expected->n * sizeof *list));
    CU_ASSERT(!memcmp(t.logits, expected->logits, expected->n * sizeof t.logits[0]));
    CU_ASSERT(g->finish == GQAC_FINISH_LENGTH && !*g->text && !g->length);
    for (size_t i = 0; i < t.n; i++) /* prefill of n, then one by one; nothing with "off" */
        CU_ASSERT_EQUAL(t.cached[i], strcmp(kv, "off") ? n + i : 0);
    const int64_t all = (int64_t)n, more = (int64_t)g->n_ids;
    if (!strcmp(kv, "off"))
        CU_ASSERT_EQUAL(g->metrics.computed_tokens, all * more + more * (more - 1) / 2);
    gqac_generation_free(g);
    gqac_session_free(session);
}

/* Compares the rows with those of a forward over all ids, for each answer id. */
static void expect_forward(const rig *r, const int64_t *list, size_t n, const trace *expected) {
    for (size_t i = 0; i < expected->n; i++) {
        int64_t rows = 0, vocabulary = 0;
        CU_ASSERT_EQUAL_FATAL(gqac_forward(r->context, r->program, list, (int64_t)(n + i), &diag),
                              GQAC_OK);
        const float *logits = gqac_context_logits(r->context, 0, &rows, &vocabulary);
        CU_ASSERT(rows == (int64_t)(n + i) &&
                  !memcmp(logits + (rows - 1) * vocabulary, expected->logits[i],
                          sizeof expected->logits[i]));
    }
}

static void test_paths(void) {
    static const struct {
        const char *model;
        size_t prompt, count;
    } cases[] = {{"llama", PROMPT, NEW},
                 {"qwen2", PROMPT, NEW},
                 {"phi3", 52, 20},
                 {"gemma2", PROMPT, NEW},
                 {"llama-int4-acc4", PROMPT, NEW}};
    static trace expected;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r = open_model(cases[i].model, 1);
        int64_t list[MOST];
        fill_ids(list, cases[i].prompt, 1);
        by_hand(&r, list, cases[i].prompt, cases[i].count, &expected);
        expect_forward(&r, list, cases[i].prompt, &expected);
        expect_as_by_hand(&r, "off", list, cases[i].prompt, &expected);
        expect_as_by_hand(&r, "contiguous", list, cases[i].prompt, &expected);
        expect_as_by_hand(&r, "basic", list, cases[i].prompt, &expected);
        close_rig(&r);
    }
}

/* ---- chunks, threads, company -------------------------------------------- */

static gqac_sampling lively(uint64_t request) {
    return (gqac_sampling){.size = sizeof(gqac_sampling),
                           .sample = true,
                           .temperature = 1.5,
                           .top_k = 60,
                           .top_p = 0.95,
                           .min_p = 0.01,
                           .repetition_penalty = 1.1,
                           .seed = 5,
                           .request = request};
}

/* One answer of a fresh session. */
static gqac_generation *answer(const rig *r, const char *kv, const int64_t *prompt, size_t n,
                               int64_t max_new, int64_t chunk, const gqac_sampling *sampling) {
    gqac_session *session = open_session(r, kv, 0);
    gqac_generate_request q = make_request(session, prompt, n, max_new);
    q.chunk = chunk;
    q.sampling = sampling;
    gqac_generation *g = generate(r, &q);
    gqac_session_free(session);
    return g;
}

static void test_chunks_and_threads(void) {
    static const char *const models[] = {"llama", "qwen2", "phi3", "gemma2", "llama-int4-acc4"};
    static const int64_t chunks[] = {1, 3, 7, 64};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const gqac_sampling sampling = lively(m);
        int64_t prompt[70];
        fill_ids(prompt, 70, 2);
        rig r = open_model(models[m], 1);
        gqac_generation *expected = answer(&r, "off", prompt, 70, 6, 0, &sampling);
        for (size_t c = 0; c < 4; c++) {
            gqac_generation *g = answer(&r, "contiguous", prompt, 70, 6, chunks[c], &sampling);
            CU_ASSERT(same_ids(g, expected));
            CU_ASSERT_EQUAL(g->metrics.computed_tokens,
                            75); /* also for phi3, which changes tables */
            gqac_generation_free(g);
        }
        gqac_generation *off = answer(&r, "off", prompt, 70, 6, 7, &sampling);
        CU_ASSERT(same_ids(off, expected));
        gqac_generation_free(off);
        close_rig(&r);
        for (int threads = 2; threads <= 3; threads++) {
            r = open_model(models[m], threads);
            gqac_generation *g = answer(&r, NULL, prompt, 70, 6, 0, &sampling);
            CU_ASSERT(same_ids(g, expected));
            gqac_generation_free(g);
            close_rig(&r);
        }
        gqac_generation_free(expected);
    }
}

typedef struct company {
    int64_t steps[3];
    int events;
} company;

static bool count_events(void *arg, const gqac_generate_event *event) {
    company *c = arg;
    CU_ASSERT(event->request >= 0 && event->request < 3);
    CU_ASSERT_EQUAL(event->step, ++c->steps[event->request]);
    c->events++;
    return true;
}

/* Three requests in one call, in two orders: each has the same answer as alone. */
static void expect_company(const char *model, const char *kv, const size_t *lengths) {
    static const int order[2][3] = {{0, 1, 2}, {2, 0, 1}};
    static const int64_t max_new[] = {15, 4, 9}, chunks[] = {0, 5, 16};
    rig r = open_model(model, 2);
    int64_t prompts[3][MOST];
    gqac_generation *alone[3], *together[3];
    for (int i = 0; i < 3; i++) {
        const gqac_sampling sampling = lively((uint64_t)i);
        fill_ids(prompts[i], lengths[i], i);
        alone[i] = answer(&r, kv, prompts[i], lengths[i], max_new[i], 0, &sampling);
    }
    for (int o = 0; o < 2; o++) {
        gqac_session *sessions[3];
        gqac_generate_request q[3];
        gqac_sampling sampling[3];
        company seen = {0};
        for (int k = 0; k < 3; k++) {
            const int i = order[o][k];
            sessions[k] = open_session(&r, kv, 0);
            q[k] = make_request(sessions[k], prompts[i], lengths[i], max_new[i]);
            sampling[k] = lively((uint64_t)i);
            q[k].sampling = &sampling[k];
            q[k].chunk = o ? chunks[k] : 0;
            q[k].on_token = count_events;
            q[k].arg = &seen;
        }
        CU_ASSERT_EQUAL_FATAL(gqac_generate(r.context, NULL, 3, q, together, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(seen.events, 28);
        for (int k = 0; k < 3; k++) {
            const gqac_generation *a = alone[order[o][k]];
            CU_ASSERT(same_ids(together[k], a));
            CU_ASSERT_EQUAL(together[k]->metrics.n_forwards, a->n_ids);
            CU_ASSERT(together[k]->metrics.computed_tokens >= a->metrics.computed_tokens);
            gqac_generation_free(together[k]);
            gqac_session_free(sessions[k]);
        }
    }
    for (int i = 0; i < 3; i++)
        gqac_generation_free(alone[i]);
    close_rig(&r);
}

static void test_company(void) {
    static const size_t lengths[] = {9, 40, 21}, crossing[] = {55, 80, 62}, one[] = {1, 2, 1};
    expect_company("llama", "contiguous", lengths);
    expect_company("qwen2", "contiguous", lengths);
    expect_company("gemma2", "off", lengths);
    expect_company("phi3", "contiguous", crossing);
    expect_company("phi3", "off", crossing);
    expect_company("llama-int4-acc4", "contiguous", one);
}

/* ---- sessions ------------------------------------------------------------ */

/* A session continues with prompts that share beginnings of various lengths; each answer equals
 * that of a new session, and the counts are exact. */
static void expect_turns(const char *model, const char *kv, bool sampled) {
    static const struct {
        size_t shared, n, more;
    } turns[] = {{0, 20, 6},  {26, 33, 6}, /* the whole answer and new ids */
                 {33, 33, 5},              /* the same prompt again */
                 {12, 30, 5}, {5, 6, 4},   /* parts of it */
                 {3, 4, 3},   {0, 10, 3}};
    rig r = open_model(model, 1);
    gqac_session *session = open_session(&r, kv, 0);
    const bool off = !strcmp(kv, "off");
    int64_t list[MOST], previous[MOST];
    for (size_t t = 0; t < sizeof turns / sizeof *turns; t++) {
        size_t held = 0;
        fill_ids(list, turns[t].n, (int)t + 1);
        memcpy(list, previous, (t ? turns[t].shared : 0) * sizeof *list);
        const int64_t *cached = gqac_session_ids(session, &held);
        CU_ASSERT(off ? !held : !t || !memcmp(cached, previous, held * sizeof *cached));
        size_t kept = 0;
        while (kept < held && kept + 1 < turns[t].n && cached[kept] == list[kept])
            kept++;
        CU_ASSERT(off || kept + 1 >= turns[t].shared);
        gqac_generate_request q = make_request(session, list, turns[t].n, (int64_t)turns[t].more);
        const gqac_sampling sampling = lively(t);
        q.sampling = sampled ? &sampling : NULL;
        gqac_generation *g = generate(&r, &q);
        gqac_generation *fresh =
            answer(&r, "off", list, turns[t].n, (int64_t)turns[t].more, 0, q.sampling);
        CU_ASSERT(same_ids(g, fresh));
        CU_ASSERT_EQUAL(g->metrics.reused_tokens, (int64_t)kept);
        if (!off)
            CU_ASSERT_EQUAL(g->metrics.computed_tokens,
                            (int64_t)(turns[t].n - kept + g->n_ids - 1));
        memcpy(previous, list, turns[t].n * sizeof *list);
        memcpy(previous + turns[t].n, g->ids, g->n_ids * sizeof *list);
        gqac_generation_free(g);
        gqac_generation_free(fresh);
    }
    gqac_session_free(session);
    close_rig(&r);
}

/* A windowed session has released rows that a shorter prompt needs: it computes all ids again, and
 * its answer is the same. */
static void expect_recomputed(void) {
    static const struct {
        size_t shared, n;
        int64_t reused;
    } turns[] = {{0, 180, 0}, {180, 190, 180}, {170, 180, 170}, {30, 60, 0}, {20, 60, 20}};
    rig r = open_model("gemma2", 1);
    gqac_session *session = open_session(&r, "windowed", 0);
    int64_t list[MOST];
    for (size_t t = 0; t < sizeof turns / sizeof *turns; t++) {
        int64_t fresh_ids[MOST];
        fill_ids(fresh_ids, MOST, (int)t + 1);
        memcpy(list + turns[t].shared, fresh_ids + turns[t].shared,
               (turns[t].n - turns[t].shared) * sizeof *list);
        gqac_generate_request q = make_request(session, list, turns[t].n, 3);
        gqac_generation *g = generate(&r, &q);
        gqac_generation *fresh = answer(&r, "off", list, turns[t].n, 3, 0, NULL);
        CU_ASSERT(same_ids(g, fresh));
        CU_ASSERT_EQUAL(g->metrics.reused_tokens, turns[t].reused);
        gqac_generation_free(g);
        gqac_generation_free(fresh);
    }
    gqac_session_free(session);
    close_rig(&r);
}

static void test_sessions(void) {
    expect_recomputed();
    expect_turns("gemma2", "windowed", true);
    expect_turns("llama", "contiguous", false);
    expect_turns("gemma2", "contiguous", true);
    expect_turns("qwen2", "off", true);
    expect_turns("llama-int4-acc4", "basic", true);
}

/* An answer in one call, and in two calls, where the second has the first part in its prompt. The
 * random draw depends on the position of an id, not on the call. */
static void test_continued(void) {
    rig r = open_model("llama", 1);
    const gqac_sampling sampling = lively(9);
    int64_t list[MOST];
    fill_ids(list, PROMPT, 1);
    gqac_generation *whole = answer(&r, NULL, list, PROMPT, 12, 0, &sampling);
    for (size_t cut = 1; cut < 12; cut += 5) {
        gqac_generation *first = answer(&r, NULL, list, PROMPT, (int64_t)cut, 0, &sampling);
        memcpy(list + PROMPT, first->ids, cut * sizeof *list);
        gqac_generation *second =
            answer(&r, "off", list, PROMPT + cut, 12 - (int64_t)cut, 0, &sampling);
        CU_ASSERT_EQUAL_FATAL(second->n_ids, 12 - cut);
        CU_ASSERT(!memcmp(whole->ids, first->ids, cut * sizeof *list));
        CU_ASSERT(!memcmp(whole->ids + cut, second->ids, (12 - cut) * sizeof *list));
        gqac_generation_free(first);
        gqac_generation_free(second);
    }
    gqac_generation_free(whole);
    close_rig(&r);
}

/* In a model with recurrent states, a rewind keeps the tokens up to a state, here at 64; the others
 * are computed again, and counted. */
static void test_computed_again(void) {
    rig r = open_model("qwen3.5", 1);
    gqac_session *session = open_session(&r, NULL, 0);
    int64_t list[150];
    fill_ids(list, 150, 1);
    gqac_generate_request q = make_request(session, list, 150, 3);
    gqac_generation *g = generate(&r, &q);
    CU_ASSERT(g->metrics.reused_tokens == 0 && g->metrics.computed_tokens == 150 + 2);
    gqac_generation_free(g);
    list[100] = (list[100] + 1) % VOCABULARY;
    q = make_request(session, list, 120, 3);
    g = generate(&r, &q);
    gqac_generation *fresh = answer(&r, "off", list, 120, 3, 0, NULL);
    CU_ASSERT(same_ids(g, fresh));
    CU_ASSERT_EQUAL(g->metrics.reused_tokens, 64);
    CU_ASSERT_EQUAL(g->metrics.computed_tokens, 120 - 64 + 2);
    gqac_generation_free(g);
    gqac_generation_free(fresh);
    gqac_session_free(session);
    close_rig(&r);
}

/* ---- LongRoPE ------------------------------------------------------------ */

/* phi3 rotates with another table beyond 64 tokens. Whatever is in the session, an answer equals
 * that of kind "off". */
static void test_longrope(void) {
    /* prompt, new ids, chunk, tokens reused and computed */
    static const struct {
        size_t n;
        int64_t more, chunk, reused, computed;
    } turns[] = {
        {60, 8, 0, 0, 60 + 4 + 65 + 2}, /* 61 to 64 one by one, then all 65 again, 66, 67 */
        {30, 3, 0, 0, 30 + 2},          /* a short prompt cannot use long rows */
        {90, 3, 7, 0,
         34 - 6 + 90 + 2},       /* 58 rows of the short table, then all again with the long one */
        {70, 3, 0, 69, 1 + 2},   /* rows of the long table for a long prompt */
        {100, 4, 9, 70, 30 + 3}, /* again rows of the long table, in pieces */
        {64, 2, 64, 0, 64 + 65}, /* crossed by the second id */
    };
    rig r = open_model("phi3", 1);
    gqac_session *session = open_session(&r, NULL, 0);
    int64_t list[MOST];
    fill_ids(list, MOST, 4);
    for (size_t t = 0; t < sizeof turns / sizeof *turns; t++) {
        gqac_generate_request q = make_request(session, list, turns[t].n, turns[t].more);
        const gqac_sampling sampling = lively(t);
        q.sampling = &sampling;
        q.chunk = turns[t].chunk;
        gqac_generation *g = generate(&r, &q);
        gqac_generation *fresh = answer(&r, "off", list, turns[t].n, turns[t].more, 0, q.sampling);
        CU_ASSERT(same_ids(g, fresh));
        CU_ASSERT_EQUAL(g->metrics.reused_tokens, turns[t].reused);
        CU_ASSERT_EQUAL(g->metrics.computed_tokens, turns[t].computed);
        gqac_generation_free(g);
        gqac_generation_free(fresh);
    }
    gqac_session_free(session);
    close_rig(&r);
}

/* ---- decode -------------------------------------------------------------- */

static void test_position_guard(void) {
    rig r = open_model("llama", 1);
    gqac_sequence *sequence = NULL;
    int64_t ids[8], rows = 0, vocabulary = 0;
    fill_ids(ids, 8, 0);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r.program, NULL, &sequence, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_prefill(r.context, sequence, ids, 4, &diag), GQAC_OK);
    for (int64_t wrong = -1; wrong <= 6; wrong++) {
        if (wrong == 4)
            continue;
        CU_ASSERT_EQUAL(gqac_decode(r.context, sequence, 9, wrong, &diag), GQAC_OUT_OF_RANGE);
        CU_ASSERT_EQUAL(gqac_sequence_length(sequence), 4);
    }
    CU_ASSERT_EQUAL(gqac_decode(r.context, sequence, ids[4], 4, &diag), GQAC_OK);
    CU_ASSERT_PTR_NOT_NULL(gqac_context_logits(r.context, 0, &rows, &vocabulary));
    CU_ASSERT(rows == 1 && vocabulary == VOCABULARY);
    CU_ASSERT_EQUAL(gqac_prefill(r.context, sequence, ids, 0, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_sequence_length(sequence), 5);
    CU_ASSERT_EQUAL(gqac_prefill(r.context, sequence, ids, 7, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_length(sequence), 7); /* replaced, not appended */
    const int64_t bad = VOCABULARY;
    CU_ASSERT_EQUAL(gqac_prefill(r.context, sequence, &bad, 1, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_sequence_length(sequence), 0);
    CU_ASSERT_EQUAL(gqac_forward(r.context, r.program, ids, 0, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_forward(r.context, r.program, &bad, 1, &diag), GQAC_OUT_OF_RANGE);
    gqac_sequence_free(sequence);
    close_rig(&r);
}

static const unit_case cases[] = {
    {"I1, I22, I28: off = cached = prefill and decode by hand = forward", test_paths},
    {"chunks and threads", test_chunks_and_threads},
    {"three in one call = each alone", test_company},
    {"a session reuses and counts", test_sessions},
    {"an answer in two calls", test_continued},
    {"tokens that are computed again after a rewind count as computed", test_computed_again},
    {"the LongRoPE threshold", test_longrope},
    {"I20: the position guard of decode", test_position_guard},
};

int main(int argc, char **argv) {
    return unit_run("generate", cases, sizeof cases / sizeof *cases, argc, argv);
}
