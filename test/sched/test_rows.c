/* The logits of a prompt's tokens; requests that share nothing with the store; log-probabilities of
 * a row. */
#include "sched/rig.h"

enum { PROMPT = 61, WORD = 40 };

typedef struct scorer {
    uint64_t bits[PROMPT];
    int64_t n;
} scorer;

static void on_row(void *arg, int64_t request, int64_t position, const float *logits,
                   int64_t vocabulary) {
    scorer *x = arg;
    CU_ASSERT_FATAL(request > 0 && position == x->n && position < PROMPT);
    x->bits[x->n++] = gqac_hash_bytes(1, logits, (size_t)vocabulary * sizeof *logits);
}

/* The results of one call with all tokens. */
static void compute(const rig *r, const int64_t *ids, scorer *out) {
    gqac_diag diag;
    gqac_sequence *s = NULL;
    int64_t rows = 0, width = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r->program, NULL, &s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(r->context, s, ids, PROMPT, GQAC_LOGITS_ALL, &diag),
                          GQAC_OK);
    const float *logits = gqac_context_logits(r->context, 0, &rows, &width);
    for (out->n = 0; out->n < rows; out->n++)
        out->bits[out->n] =
            gqac_hash_bytes(1, logits + out->n * width, (size_t)width * sizeof *logits);
    gqac_sequence_free(s);
}

/* In chunks, together with others, after a preemption, and although the store has the whole
 * prompt. */
static void rows(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_diag diag;
    gqac_store *store = NULL;
    scorer want = {.n = 0}, got[2] = {{.n = 0}, {.n = 0}};
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(r.program, NULL, &store, &diag), GQAC_OK);
    gqac_scheduler *s = rig_scheduler(&r, 8, 2, store);
    client warm = rig_client(PROMPT, 4, 5), all[2] = {rig_client(PROMPT, 6, 5)}, urgent[2];
    rig_send(s, &warm, 0);
    rig_finish(s);
    all[1] = rig_client(PROMPT, 0, 5);
    compute(&r, all[0].list, &want);
    gqac_request request;
    for (int i = 0; i < 2; i++) {
        rig_prepare(&all[i], PROMPT, all[i].request.max_new);
        request = all[i].request;
        request.on_row = on_row;
        request.arg = &got[i];
        request.on_logits = NULL;
        request.on_token = NULL;
        request.on_begin = NULL;
        request.on_progress = NULL;
        request.on_end = NULL;
        CU_ASSERT_EQUAL_FATAL(gqac_scheduler_submit(s, &request, &all[i].number, &diag), GQAC_OK);
    }
    for (int i = 0; i < 4; i++)
        rig_step(s);
    for (int i = 0; i < 2; i++) { /* they take both places, so rows are freed and recomputed */
        urgent[i] = rig_client(WORD, 3, 9);
        rig_send(s, &urgent[i], 1);
    }
    rig_finish(s);
    CU_ASSERT(rig_statistics(s).preemptions >= 1);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(got[i].n, PROMPT);
        CU_ASSERT(!memcmp(got[i].bits, want.bits, sizeof want.bits));
    }
    gqac_scheduler_free(s);
    gqac_store_free(store);
    rig_close(&r);
}

static void cold(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_diag diag;
    gqac_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_store_create(r.program, NULL, &store, &diag), GQAC_OK);
    gqac_scheduler *s = rig_scheduler(&r, 32, 2, store);
    client all[4];
    for (int i = 0; i < 4; i++) { /* cold, warm-up, cold, warm */
        all[i] = rig_client(PROMPT, 4, 5);
        rig_prepare(&all[i], PROMPT, 4);
        all[i].request.cold = i % 2 == 0;
        rig_submit(s, &all[i]);
        rig_finish(s);
        CU_ASSERT_EQUAL(all[i].end.reused_tokens, i == 3 ? PROMPT - 1 : 0);
        CU_ASSERT_EQUAL(rig_compare(&r, &all[i]), 4);
    }
    gqac_store_statistics x = {.size = sizeof x};
    CU_ASSERT_EQUAL(gqac_store_get_statistics(store, &x, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(x.hits, 1);
    CU_ASSERT_EQUAL(x.misses, 1);
    gqac_scheduler_free(s);
    gqac_store_free(store);
    rig_close(&r);
}

static void refused(void) {
    rig r = rig_open(LLAMA, 0, 1);
    gqac_diag diag;
    gqac_sequence *from = NULL;
    int64_t number = 0;
    gqac_scheduler *s = rig_scheduler(&r, 8, 2, NULL);
    client c = rig_client(PROMPT, 1, 5);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(r.program, NULL, &from, &diag), GQAC_OK);
    rig_prepare(&c, PROMPT, 1);
    c.request.on_row = on_row;
    c.request.from = from;
    CU_ASSERT_EQUAL(gqac_scheduler_submit(s, &c.request, &number, &diag), GQAC_USAGE);
    gqac_sequence_free(from);
    gqac_scheduler_free(s);
    rig_close(&r);
}

/* ---- log-probabilities --------------------------------------------------- */

static void log_probabilities(void) {
    const float logits[] = {1, NAN, 3, 3, -INFINITY};
    const double sum = 2 + exp(-2.0);
    gqac_scored_id top[5];
    gqac_diag diag;
    double own = 0;
    int listed = -1;
    CU_ASSERT_EQUAL(gqac_log_probabilities(logits, 5, 0, &own, 5, top, &listed, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(listed, 4); /* without the NaN */
    CU_ASSERT(top[0].id == 2 && top[1].id == 3 && top[2].id == 0 && top[3].id == 4);
    CU_ASSERT_DOUBLE_EQUAL(own, -2 - log(sum), 1e-12);
    CU_ASSERT_EQUAL(own, top[2].log_probability);
    CU_ASSERT_DOUBLE_EQUAL(top[0].log_probability, -log(sum), 1e-12);
    CU_ASSERT_EQUAL(gqac_log_probabilities(logits, 5, 3, &own, 1, top, &listed, &diag), GQAC_OK);
    CU_ASSERT(listed == 1 && top[0].id == 2 && own == top[0].log_probability);
    CU_ASSERT_EQUAL(gqac_log_probabilities(logits, 5, 3, &own, 0, NULL, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(own, top[0].log_probability);
    CU_ASSERT_EQUAL(gqac_log_probabilities(logits, 5, 5, &own, 0, NULL, NULL, &diag),
                    GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_log_probabilities(logits, 5, 0, &own, -1, top, &listed, &diag),
                    GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(gqac_log_probabilities(logits, 0, 0, &own, 0, NULL, NULL, &diag),
                    GQAC_UNSUPPORTED);
}

static const unit_case cases[] = {
    {"logits of a prompt", rows},
    {"requests without the store", cold},
    {"refused requests", refused},
    {"log-probabilities", log_probabilities},
};

int main(int argc, char **argv) {
    return unit_run("sched/rows", cases, sizeof cases / sizeof *cases, argc, argv);
}
