/* What a host can do with the logits of generation: a hook, biases, penalties for the answer, and
 * the likeliest ids. Results are compared with gqac_sample, or with the model's own logits for the
 * whole text. */
#include "llm/generate_rig.h"

enum { PROMPT = 20, NEW = 10, TOP = 5 };

static gqac_generate_request make_request(gqac_session *session, const int64_t *prompt) {
    gqac_generate_request q;
    gqac_generate_request_init(&q, NULL, session, prompt, PROMPT);
    q.max_new = NEW;
    return q;
}

/* ---- the hook ------------------------------------------------------------ */

typedef struct grammar {
    int64_t vocabulary, until; /* calls after which it ends the request */
    size_t calls, n;
    int parity; /* odd (1) or even (2) ids are not chosen; 0: all may be */
    int64_t ids[PROMPT + NEW];
} grammar;

static bool choose_parity(void *arg, float *logits, int64_t vocabulary, const int64_t *ids,
                          size_t n) {
    grammar *g = arg;
    g->vocabulary = vocabulary;
    g->calls++;
    g->n = n;
    memcpy(g->ids, ids, n * sizeof *ids);
    for (int64_t i = g->parity % 2; g->parity && i < vocabulary; i += 2)
        logits[i] = NAN;
    return (int64_t)g->calls != g->until;
}

typedef struct heard {
    size_t n;
    double probability[NEW], log_probability[NEW];
    gqac_scored_id top[NEW][TOP];
    int n_top;
} heard;

static bool hear(void *arg, const gqac_generate_event *event) {
    heard *h = arg;
    h->probability[h->n] = event->probability;
    h->log_probability[h->n] = event->log_probability;
    h->n_top = event->n_top;
    if (event->n_top)
        memcpy(h->top[h->n], event->top, (size_t)event->n_top * sizeof *event->top);
    h->n++;
    return true;
}

static void test_hook(void) {
    rig r = open_model("llama", 1);
    int64_t prompt[PROMPT];
    fill_ids(prompt, PROMPT, 1);
    gqac_session *session = open_session(&r, NULL, 0);
    gqac_generate_request q = make_request(session, prompt);
    gqac_generation *plain = generate(&r, &q);
    grammar g = {.until = -1};
    heard h = {0};
    q.on_logits = choose_parity;
    q.logits_arg = &g;
    q.on_token = hear;
    q.arg = &h;
    gqac_generation *same = generate(&r, &q); /* a hook that changes nothing */
    CU_ASSERT(same_ids(plain, same));
    CU_ASSERT(g.calls == NEW && g.vocabulary == gqac_program_vocabulary(r.program));
    CU_ASSERT(g.n == PROMPT + NEW - 1 && !memcmp(g.ids, prompt, sizeof prompt));
    CU_ASSERT(!memcmp(g.ids + PROMPT, plain->ids, (NEW - 1) * sizeof *g.ids));
    gqac_generation_free(same);
    const int odd = (int)(plain->ids[0] % 2);
    g = (grammar){.until = -1, .parity = odd ? 1 : 2};
    h = (heard){0};
    q.n_top = 1;
    gqac_generation *other = generate(&r, &q);
    CU_ASSERT(other->n_ids == NEW);
    for (size_t i = 0; i < other->n_ids; i++)
        CU_ASSERT(other->ids[i] % 2 != odd && h.log_probability[i] <= h.top[i][0].log_probability);
    CU_ASSERT(h.top[0][0].id == plain->ids[0]); /* from the model's own logits */
    CU_ASSERT(h.log_probability[0] < h.top[0][0].log_probability);
    gqac_generation_free(other);
    q.n_top = 0;
    /* ended in the middle, and before the first id */
    for (int64_t until = 1; until < 5; until += 3) {
        g = (grammar){.until = until};
        h = (heard){0};
        gqac_generation *cut = generate(&r, &q);
        CU_ASSERT(cut->finish == GQAC_FINISH_STOP && cut->n_ids == (size_t)until - 1);
        CU_ASSERT(cut->metrics.n_forwards == cut->n_ids && h.n == cut->n_ids);
        CU_ASSERT(!memcmp(cut->ids, plain->ids, cut->n_ids * sizeof *cut->ids));
        gqac_generation_free(cut);
    }
    gqac_generation_free(plain);
    gqac_session_free(session);
    close_rig(&r);
}

/* ---- the likeliest ids --------------------------------------------------- */

static void test_top(void) {
    rig r = open_model("llama", 1);
    int64_t list[PROMPT + NEW];
    int64_t rows = 0, v = 0;
    heard h = {0};
    fill_ids(list, PROMPT, 2);
    gqac_session *session = open_session(&r, NULL, 0);
    gqac_generate_request q = make_request(session, list);
    gqac_sampling sampling; /* it must not affect the likeliest ids */
    const gqac_logit_bias bias = {7, 50};
    gqac_sampling_init(&sampling);
    sampling.n_bias = 1;
    sampling.bias = &bias;
    q.sampling = &sampling;
    q.on_token = hear;
    q.arg = &h;
    q.n_top = TOP;
    gqac_generation *g = generate(&r, &q);
    CU_ASSERT_EQUAL_FATAL(g->n_ids, NEW);
    CU_ASSERT(g->ids[0] == 7 && h.n_top == TOP && h.top[0][0].id != 7);
    memcpy(list + PROMPT, g->ids, NEW * sizeof *list);
    CU_ASSERT_EQUAL_FATAL(gqac_forward(r.context, r.program, list, PROMPT + NEW, &diag), GQAC_OK);
    const float *logits = gqac_context_logits(r.context, 0, &rows, &v);
    for (int step = 0; step < NEW; step++) {
        const float *row = logits + (PROMPT - 1 + step) * v;
        double sum = 0;
        for (int64_t i = 0; i < v; i++)
            sum += exp((double)row[i] - row[h.top[step][0].id]);
        for (int k = 0; k < TOP; k++) {
            const gqac_scored_id *x = &h.top[step][k];
            int64_t better = 0;
            for (int64_t i = 0; i < v; i++)
                better += row[i] > row[x->id] || (row[i] == row[x->id] && i < x->id);
            CU_ASSERT_EQUAL(better, k);
            const double expected = (double)row[x->id] - row[h.top[step][0].id] - log(sum);
            CU_ASSERT(fabs(x->log_probability - expected) < 1e-9);
        }
        CU_ASSERT(fabs(exp(h.log_probability[step]) - h.probability[step]) < 1e-12);
    }
    gqac_generation_free(g);
    q.n_top = -1;
    CU_ASSERT_EQUAL(gqac_generate(r.context, NULL, 1, &q, &g, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "n_top"));
    gqac_session_free(session);
    close_rig(&r);
}

/* Without probabilities in events, the ids are the same whether a step returns logits or the
 * likeliest ids.
 * */
static void test_ids_only(void) {
    rig r = open_model("llama", 1);
    int64_t prompt[PROMPT], rows = 0, n = 0;
    fill_ids(prompt, PROMPT, 4);
    gqac_session *session = open_session(&r, NULL, 0);
    gqac_generate_request q = make_request(session, prompt);
    gqac_sampling sampling;
    grammar g = {.until = -1};
    heard h;
    gqac_sampling_init(&sampling);
    q.sampling = &sampling;
    q.on_token = hear;
    q.arg = &h;
    for (int i = 0; i < 6; i++) { /* which requests need logits: the last three */
        sampling.sample = i > 0;
        sampling.top_k = i == 3 ? 0 : 20;
        sampling.top_p = i == 2 ? 0.7 : 1;
        q.on_logits = i == 4 ? choose_parity : NULL;
        q.logits_arg = &g;
        q.min_length = i == 5 ? PROMPT + NEW : 0;
        q.ids_only = false;
        h = (heard){0};
        gqac_generation *plain = generate(&r, &q);
        CU_ASSERT(h.n == NEW && h.probability[NEW - 1] > 0);
        CU_ASSERT_PTR_NOT_NULL(gqac_context_logits(r.context, 0, &rows, &n));
        q.ids_only = true;
        h = (heard){0};
        gqac_generation *ids = generate(&r, &q);
        CU_ASSERT(same_ids(plain, ids));
        CU_ASSERT(h.n == NEW && isnan(h.probability[0]) && isnan(h.log_probability[NEW - 1]));
        const bool top = gqac_context_top(r.context, 0, &rows, &n) != NULL;
        CU_ASSERT_EQUAL(top, i < 3);
        CU_ASSERT(!top || (rows == 1 && n == (i ? 21 : 1)));
        gqac_generation_free(plain);
        gqac_generation_free(ids);
    }
    gqac_generation *none = NULL;
    q.n_top = 1;
    CU_ASSERT_EQUAL(gqac_generate(r.context, NULL, 1, &q, &none, &diag), GQAC_USAGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "ids_only"));
    gqac_session_free(session);
    close_rig(&r);
}

/* ---- biases and penalties ------------------------------------------------ */

/* The prompt does not count as part of the answer, however long a session is. */
static void test_penalties(void) {
    rig r = open_model("llama", 1);
    int64_t list[PROMPT + NEW];
    fill_ids(list, PROMPT, 3);
    gqac_session *session = open_session(&r, NULL, 0);
    gqac_generate_request q = make_request(session, list);
    gqac_sampling sampling;
    gqac_sampling_init(&sampling);
    sampling.presence_penalty = -3; /* a reward */
    sampling.frequency_penalty = 0.7;
    sampling.n_prompt = 3; /* nothing reads this */
    q.sampling = &sampling;
    gqac_generation *g = generate(&r, &q);
    q.sampling = NULL;
    gqac_generation *plain = generate(&r, &q);
    CU_ASSERT(!same_ids(g, plain));
    gqac_generation_free(plain);
    sampling.n_prompt = PROMPT;
    for (size_t i = 0; i < NEW; i++) {
        int64_t rows = 0, v = 0, id = -1;
        CU_ASSERT_EQUAL_FATAL(
            gqac_forward(r.context, r.program, list, (int64_t)(PROMPT + i), &diag), GQAC_OK);
        const float *logits = gqac_context_logits(r.context, 0, &rows, &v);
        CU_ASSERT_EQUAL(
            gqac_sample(&sampling, logits + (rows - 1) * v, v, list, PROMPT + i, &id, NULL, &diag),
            GQAC_OK);
        CU_ASSERT_EQUAL(id, g->ids[i]);
        list[PROMPT + i] = id;
    }
    gqac_generation_free(g);
    const gqac_logit_bias beyond = {1 << 20, 1};
    sampling.n_bias = 1;
    sampling.bias = &beyond;
    q.sampling = &sampling;
    CU_ASSERT_EQUAL(gqac_generate(r.context, NULL, 1, &q, &g, &diag), GQAC_OUT_OF_RANGE);
    CU_ASSERT(strstr(diag.what, "1048576") && strstr(diag.where, "request 0"));
    gqac_session_free(session);
    close_rig(&r);
}

/* Failing allocations. */
static void test_memory(void) {
    rig r = open_model("llama", 1);
    int64_t prompt[PROMPT];
    fill_ids(prompt, PROMPT, 1);
    gqac_session *session = open_session(&r, NULL, 0);
    gqac_generate_request q = make_request(session, prompt);
    grammar hook = {.until = -1};
    q.max_new = 2;
    q.on_logits = choose_parity;
    q.logits_arg = &hook;
    q.n_top = TOP;
    for (size_t n = 1;; n++) {
        heard h = {0};
        gqac_generation *g = NULL;
        q.on_token = hear;
        q.arg = &h;
        gqac_alloc_fail_at(n, 0);
        const gqac_status status = gqac_generate(r.context, NULL, 1, &q, &g, &diag);
        const bool all = gqac_alloc_calls() < n;
        gqac_alloc_fail_at(0, 0);
        CU_ASSERT(status == GQAC_OK || status == GQAC_NO_MEMORY);
        gqac_generation_free(g);
        if (all)
            break;
    }
    gqac_session_free(session);
    close_rig(&r);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"a hook", test_hook},
        {"the likeliest ids", test_top},
        {"ids alone", test_ids_only},
        {"penalties of the answer", test_penalties},
        {"allocations that fail", test_memory},
    };
    return unit_run("llm/generate_hooks", cases, sizeof cases / sizeof *cases, argc, argv);
}
