/* See speculation.h. Where a rewind would compute many tokens again (models with a recurrent
 * state), a fork from before the step takes the place of the sequence instead, and the next step
 * computes the accepted ids again, without drafts. */
#include "llm/speculation.h"

#include <gqac/speculate.h>
#include <string.h>

#include "base/alloc.h"
#include "llm/drafter.h"
#include "llm/lookup.h"

/* Where drafts come from: matches of at least so many ids, and the second program. */
enum { SHORT, MIDDLE, LONG, PROGRAM, SOURCES };
static const size_t least_match[] = {2, 4, 8};

struct speculation {
    lookup lookup;
    drafter drafter;
    draft_source sources[SOURCES];
    int source;          /* of the drafts of this step */
    bool states;         /* the model has recurrent states */
    gqac_sequence *fork; /* of the sequence before this step; NULL: none is needed */
};

static bool has_states(const gqac_program *program) {
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(program, &pairs);
    for (int i = 0; i < n; i++)
        if (pairs[i].rows)
            return true;
    return false;
}

const char *gqac_session_no_drafts(const gqac_session *session) {
    const gqac_mixing *mixing = NULL;
    if (session->off)
        return "no rows are cached";
    if (gqac_program_last_logits(session->program))
        return "the model returns the logits of the last token only";
    if (gqac_program_mixing(session->program, &mixing))
        return "the tokens of a step change each other's logits in this model";
    return NULL;
}

gqac_status speculation_open(answer *a, gqac_diag *diag) {
    const gqac_generate_request *q = a->request;
    if (!q->speculate || gqac_session_no_drafts(a->session))
        return GQAC_OK;
    struct speculation *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "speculation");
    a->ahead = s;
    s->states = has_states(a->session->program);
    return q->draft ? drafter_open(&s->drafter, q, diag) : GQAC_OK;
}

/* ---- drafting ------------------------------------------------------------ */

/* The maximum number of drafts for the next step: none that the answer could not have, and none
 * after the last position of the model. */
static int64_t most_drafts(const answer *a, const speculating *all) {
    const int64_t positions = gqac_program_max_tokens(a->session->program) - (int64_t)a->n;
    const int64_t left = (int64_t)(a->limit - answer_new(a)) - 1;
    int64_t most = a->request->speculate;
    most = left < most ? left : most;
    most = positions < most ? positions : most;
    return all->rows - 1 < most ? all->rows - 1 : most;
}

static int64_t count_of(answer *a, const speculating *all, int source, int64_t most) {
    struct speculation *s = a->ahead;
    s->source = source;
    return payoff_count(&all->payoff, &s->sources[source], most, all->members, s->states);
}

static bool may_ask_program(const struct speculation *s) {
    return s->drafter.session && !s->drafter.ended;
}

/* Copies what followed the longest match; a match that reaches the end goes on with the copy. */
static gqac_status draft_by_lookup(answer *a, const speculating *all, int64_t most,
                                   gqac_diag *diag) {
    struct speculation *s = a->ahead;
    size_t length = 0;
    if (!lookup_add(&s->lookup, a->list, a->n))
        return gqac_diag_oom(diag, "an index of ids");
    const size_t from = lookup_find(&s->lookup, a->list, a->n, &length);
    int source = LONG;
    while (source > SHORT && length < least_match[source])
        source--;
    if (!length || (source == SHORT && may_ask_program(s)))
        return GQAC_OK;
    const int64_t count = count_of(a, all, source, most);
    for (int64_t i = 0; i < count; i++)
        a->list[a->n + (size_t)i] = a->list[from + (size_t)i];
    a->drafted = (size_t)count;
    return GQAC_OK;
}

static gqac_status draft_by_program(answer *a, speculating *all, int64_t most, gqac_diag *diag) {
    struct speculation *s = a->ahead;
    const int64_t count = may_ask_program(s) ? count_of(a, all, PROGRAM, most) : 0;
    size_t caught_up = 0;
    if (!count)
        return GQAC_OK;
    const double begin = answer_clock(a);
    GQAC_TRY(drafter_draft(&s->drafter, a, count, &caught_up, diag));
    const double spent = answer_clock(a) - begin;
    all->spent += spent;
    if (a->drafted && caught_up <= a->drafted + 1) /* else much of it was the prompt */
        draft_source_spend(&s->sources[PROGRAM], (int64_t)a->drafted, spent);
    return GQAC_OK;
}

/* Leaves out drafts that the constraint forbids, and all after them. */
static gqac_status check_drafts(answer *a, gqac_diag *diag) {
    gqac_constraint_state *state = NULL;
    size_t n = 0;
    if (!a->constraint || !a->drafted)
        return GQAC_OK;
    GQAC_TRY(gqac_constraint_fork(a->constraint, &state, diag));
    gqac_status status = GQAC_OK;
    gqac_diag why; /* a draft that is left out is no error */
    bool ends = false;
    for (; n < a->drafted && status == GQAC_OK && !ends; n += status == GQAC_OK) {
        const int64_t id = a->list[a->n + n];
        ends = answer_is_eos(a, id);
        if (!ends)
            status = gqac_constraint_push(state, id, &why);
    }
    gqac_constraint_state_free(state);
    a->drafted = n;
    if (status == GQAC_OK || status == GQAC_INVALID_INPUT || status == GQAC_LIMIT)
        return GQAC_OK;
    if (diag)
        *diag = why;
    return status;
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
    GQAC_TRY(check_drafts(a, diag));
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
    draft_source_rest(&a->ahead->sources[a->ahead->source]);
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
    draft_source_take(&s->sources[s->source], right, wrong);
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
    lookup_free(&s->lookup);
    gqac_free(s);
    a->ahead = NULL;
}
