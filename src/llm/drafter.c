/* See drafter.h. The drafting session follows the answer: it is rewound to the last id that both
 * have in common, then what the answer gained is appended. */
#include "llm/drafter.h"

#include <string.h>

#include "base/alloc.h"
#include "base/common.h"

enum { CHUNK = 256 };

gqac_status drafter_open(drafter *d, const gqac_generate_request *request, gqac_diag *diag) {
    d->session = request->draft;
    d->context = request->draft_context;
    d->vocabulary = gqac_program_vocabulary(d->session->program);
    return sampler_create(d->vocabulary, &d->sampler, diag);
}

void drafter_close(drafter *d) {
    sampler_free(d->sampler);
    gqac_free(d->row);
    d->sampler = NULL;
    d->row = NULL;
}

/* Such a failure ends the drafts; the answer goes on without them. */
static bool is_own(gqac_status status) {
    return status == GQAC_OUT_OF_RANGE || status == GQAC_CAPACITY || status == GQAC_RECOMPUTE ||
           status == GQAC_INVALID_INPUT || status == GQAC_LIMIT;
}

static bool has_ids(const drafter *d, const int64_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= d->vocabulary)
            return false;
    return true;
}

/* Rewinds the session to the ids that it has in common with the answer, except the last one. */
static gqac_status follow(drafter *d, const answer *a, gqac_diag *diag) {
    gqac_session *s = d->session;
    const size_t from = d->agreed < s->n ? d->agreed : s->n;
    const size_t most = s->n < a->n - 1 ? s->n : a->n - 1;
    const size_t same = most <= from ? from
                                     : from + (size_t)gqac_common_ids(s->ids + from, a->list + from,
                                                                      (int64_t)(most - from));
    if (same < s->n)
        GQAC_TRY(gqac_sequence_rewind(s->sequence, (int64_t)same, diag));
    s->n = d->agreed = same;
    return GQAC_OK;
}

/* Appends the ids before index n; the context then has the logits of the last one. */
static gqac_status feed(drafter *d, const int64_t *ids, size_t n, gqac_diag *diag) {
    gqac_session *s = d->session;
    while (s->n < n) {
        const size_t left = n - s->n, count = left < CHUNK ? left : CHUNK;
        GQAC_TRY(session_reserve(s, count, diag));
        GQAC_TRY(gqac_sequence_append(d->context, s->sequence, ids + s->n, (int64_t)count,
                                      count == left, diag));
        session_append(s, ids + s->n, count);
    }
    return GQAC_OK;
}

static gqac_status catch_up(drafter *d, const answer *a, gqac_diag *diag) {
    int64_t computed = 0;
    gqac_status status = feed(d, a->list, a->n, diag);
    if (status == GQAC_RECOMPUTE) /* a LongRoPE threshold between prompt, answer and drafts */
        status = session_recompute(d->session, d->context, a->list, a->n, CHUNK, &computed, diag);
    return status;
}

/* Sets *logits to a copy that is masked. */
static gqac_status constrain(drafter *d, const answer *a, gqac_constraint_state *state,
                             int64_t vocabulary, const float **logits, gqac_diag *diag) {
    const gqac_generate_request *q = a->request;
    const size_t bytes = (size_t)vocabulary * sizeof *d->row;
    if (!d->row)
        d->row = gqac_alloc(bytes);
    if (!d->row)
        return gqac_diag_oom(diag, "drafts");
    memcpy(d->row, *logits, bytes);
    *logits = d->row;
    return gqac_constraint_mask(state, d->row, vocabulary, q->eos, q->n_eos, diag);
}

/* The draft after n ids; `state` (NULL: none) is that of the constraint after them. */
static gqac_status choose(drafter *d, const answer *a, size_t n, gqac_constraint_state *state,
                          int64_t *id, gqac_diag *diag) {
    const gqac_generate_request *q = a->request;
    int64_t rows = 0, vocabulary = 0;
    const float *logits = gqac_context_logits(d->context, 0, &rows, &vocabulary);
    const bool early = n < (uint64_t)q->min_length;
    logits += (rows - 1) * vocabulary;
    if (state)
        GQAC_TRY(constrain(d, a, state, vocabulary, &logits, diag));
    return sampler_pick(d->sampler, &a->sampling, logits, a->list, n, q->eos, early ? q->n_eos : 0,
                        n, id, NULL, diag);
}

static gqac_status draft(drafter *d, answer *a, int64_t count, gqac_constraint_state *state,
                         gqac_diag *diag) {
    const int64_t most = gqac_program_vocabulary(a->session->program);
    for (int64_t i = 0; i < count; i++) {
        int64_t id = 0;
        if (i > 0)
            GQAC_TRY(feed(d, a->list, a->n + a->drafted, diag));
        GQAC_TRY(choose(d, a, a->n + a->drafted, state, &id, diag));
        if (id >= most)
            break;
        a->list[a->n + a->drafted++] = id;
        if (answer_is_eos(a, id))
            break;
        if (state)
            GQAC_TRY(gqac_constraint_push(state, id, diag));
    }
    return GQAC_OK;
}

static gqac_status draft_constrained(drafter *d, answer *a, int64_t count, gqac_diag *diag) {
    gqac_constraint_state *state = NULL;
    if (a->constraint)
        GQAC_TRY(gqac_constraint_fork(a->constraint, &state, diag));
    const gqac_status status = draft(d, a, count, state, diag);
    gqac_constraint_state_free(state);
    return status;
}

gqac_status drafter_draft(drafter *d, answer *a, int64_t count, size_t *caught_up,
                          gqac_diag *diag) {
    GQAC_TRY(follow(d, a, diag));
    *caught_up = a->n - d->session->n;
    d->ended = !has_ids(d, a->list + d->session->n, *caught_up);
    if (d->ended)
        return GQAC_OK;
    gqac_status status = catch_up(d, a, diag);
    d->ended = is_own(status);
    if (status == GQAC_OK)
        status = draft_constrained(d, a, count, diag);
    return is_own(status) ? GQAC_OK : status;
}
