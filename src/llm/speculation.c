/* See speculation.h. Where a rewind would compute many tokens again (models with a recurrent
 * state), a fork from before the step takes the place of the sequence instead, and the next step
 * computes the accepted ids again, without drafts. */
#include "llm/speculation.h"

#include <gqac/speculate.h>
#include <string.h>

#include "base/alloc.h"
#include "llm/drafter.h"

struct speculation {
    drafts drafts;
    draft_source sources[DRAFTS_SOURCES];
    drafter drafter;
    bool states;         /* the model has recurrent states */
    gqac_sequence *fork; /* of the sequence before this step; NULL: none is needed */
};

const char *gqac_session_no_drafts(const gqac_session *session) {
    return session->off ? "no rows are cached" : drafts_refusal(session->program);
}

gqac_status speculation_open(answer *a, gqac_diag *diag) {
    const gqac_generate_request *q = a->request;
    if (!q->speculate || gqac_session_no_drafts(a->session))
        return GQAC_OK;
    struct speculation *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "speculation");
    a->ahead = s;
    s->drafts.sources = s->sources;
    s->states = drafts_cost_again(a->session->program);
    return q->draft ? drafter_open(&s->drafter, q, diag) : GQAC_OK;
}

/* ---- drafting ------------------------------------------------------------ */

/* The maximum number of drafts for the next step. */
static int64_t most_drafts(const answer *a, const speculating *all) {
    const int64_t most = drafts_most(a->request->speculate, (int64_t)(a->limit - answer_new(a)),
                                     gqac_program_max_tokens(a->session->program) - (int64_t)a->n);
    return all->rows - 1 < most ? all->rows - 1 : most;
}

static bool may_ask_program(const struct speculation *s) {
    return s->drafter.session && !s->drafter.ended;
}

static gqac_status draft_by_lookup(answer *a, const speculating *all, int64_t most,
                                   gqac_diag *diag) {
    struct speculation *s = a->ahead;
    const drafts_wanted wanted = {
        .most = most, .members = all->members, .again = s->states, .no_short = may_ask_program(s)};
    return drafts_look_up(&s->drafts, &all->payoff, &wanted, a->list, a->n, &a->drafted, diag);
}

static gqac_status draft_by_program(answer *a, speculating *all, int64_t most, gqac_diag *diag) {
    struct speculation *s = a->ahead;
    size_t caught_up = 0;
    if (!may_ask_program(s))
        return GQAC_OK;
    s->drafts.source = DRAFTS_PROGRAM;
    draft_source *source = &s->sources[DRAFTS_PROGRAM];
    const int64_t count = payoff_count(&all->payoff, source, most, all->members, s->states);
    if (!count)
        return GQAC_OK;
    const double begin = answer_clock(a);
    GQAC_TRY(drafter_draft(&s->drafter, a, count, &caught_up, diag));
    const double spent = answer_clock(a) - begin;
    all->spent += spent;
    if (a->drafted && caught_up <= a->drafted + 1) /* else much of it was the prompt */
        draft_source_spend(source, (int64_t)a->drafted, spent);
    return GQAC_OK;
}

gqac_status speculation_draft(answer *a, speculating *all, gqac_diag *diag) {
    struct speculation *s = a->ahead;
    if (!s || !answer_new(a) || answer_pending(a) != 1)
        return GQAC_OK;
    const int64_t most = most_drafts(a, all);
    if (most < 1)
        return GQAC_OK;
    if (!gqac_reserve(&a->list, a->n + (size_t)most + 1, &a->capacity, sizeof *a->list))
        return gqac_diag_oom(diag, "drafts");
    GQAC_TRY(draft_by_lookup(a, all, most, diag));
    if (!a->drafted)
        GQAC_TRY(draft_by_program(a, all, most, diag));
    GQAC_TRY(drafts_check(a->constraint, a->request->n_eos, a->request->eos, a->list + a->n,
                          &a->drafted, diag));
    if (!a->drafted || !s->states)
        return GQAC_OK;
    const gqac_status status = gqac_sequence_fork(a->session->sequence, &s->fork, diag);
    if (status == GQAC_CAPACITY)
        speculation_drop(a);
    return status == GQAC_CAPACITY ? GQAC_OK : status;
}

/* ---- after the step ------------------------------------------------------ */

static void forget_drafts(answer *a) {
    struct speculation *s = a->ahead;
    a->drafted = 0;
    gqac_sequence_free(s->fork);
    s->fork = NULL;
}

void speculation_drop(answer *a) {
    forget_drafts(a);
    drafts_rest(&a->ahead->drafts);
}

/* Shortens the sequence to the rows that the session has listed, or less. */
static gqac_status take_back(answer *a, gqac_diag *diag) {
    struct speculation *s = a->ahead;
    gqac_session *session = a->session;
    if (!session->sequence || gqac_sequence_length(session->sequence) <= (int64_t)session->n)
        return GQAC_OK;
#ifdef GQAC_CONTROL_NO_REWIND /* negative control: the rows of wrong drafts stay */
    return GQAC_OK;
#endif
    if (!s->fork)
        return gqac_sequence_rewind(session->sequence, (int64_t)session->n, diag);
    GQAC_TRY(gqac_sequence_rewind(session->sequence, 0, diag)); /* a store gets none of its rows */
    gqac_sequence_free(session->sequence);
    session->sequence = s->fork;
    session->n = (size_t)gqac_sequence_length(s->fork);
    s->fork = NULL;
    return GQAC_OK;
}

gqac_status speculation_settle(answer *a, int64_t right, bool wrong, gqac_diag *diag) {
    struct speculation *s = a->ahead;
    if (!a->drafted)
        return GQAC_OK;
    a->n_drafted += (int64_t)a->drafted;
    a->n_accepted += right;
    drafts_take(&s->drafts, right, wrong);
    const gqac_status status = take_back(a, diag);
    forget_drafts(a);
    return status;
}

void speculation_close(answer *a) {
    struct speculation *s = a->ahead;
    if (!s)
        return;
    (void)take_back(a, NULL); /* to a length that the sequence had: cannot fail */
    forget_drafts(a);
    drafter_close(&s->drafter);
    drafts_free(&s->drafts);
    gqac_free(s);
    a->ahead = NULL;
}
