/* Drafts of requests that decode: how many each step has, what they cost, and how they are taken
 * back. They come last: steps with chunks have none, and where memory is short they are given up
 * before anything else is.
 *
 * Where a rewind would compute many tokens again (models with recurrent states), a fork from before
 * the step takes the place of the sequence instead, and the next step computes the accepted ids
 * again, as a chunk. */
#include "base/alloc.h"
#include "base/clock.h"
#include "sched/sched_impl.h"

enum { MOST_LOGITS = 1 << 25 }; /* of a step with drafts: 128 MiB */

const char *gqac_scheduler_no_drafts(const gqac_program *program) {
    return drafts_refusal(program);
}

double draft_clock(const gqac_scheduler *s) {
    const gqac_scheduler_options *o = &s->options;
    if (!o->speculate)
        return 0;
    return o->clock ? o->clock(o->clock_arg) : gqac_clock_seconds();
}

/* ---- before a step ------------------------------------------------------- */

/* True if all items are decode rows. */
static bool decodes(const gqac_scheduler *s) {
    for (int i = 0; i < s->n; i++)
        if (request_pending(s->members[i]) != 1)
            return false;
    return true;
}

/* A sequence does not cross the LongRoPE threshold by drafts. */
static int64_t most_drafts(const gqac_scheduler *s, const request *r, int64_t left) {
    const int64_t n = (int64_t)r->n, answered = n - (int64_t)r->n_prompt;
    const int64_t last = s->threshold && !request_is_beyond(s, r) ? s->threshold : s->most;
    const int64_t most =
        answered ? drafts_most(s->options.speculate, r->given.max_new - answered, last - n) : 0;
    return most < left ? most : left;
}

void draft_drop(request *r) {
    r->drafted = 0;
    if (r->fork)
        (void)gqac_sequence_rewind(r->fork, 0, NULL); /* a store need not keep its states */
    gqac_sequence_free(r->fork);
    r->fork = NULL;
}

/* Sets r->drafted and the ids after its list. Without memory there are no drafts. */
static void draft(gqac_scheduler *s, request *r, int64_t left) {
    const drafts_wanted wanted = {
        .most = most_drafts(s, r, left), .members = s->n, .again = s->states};
    size_t n = 0;
    if (wanted.most < 1 ||
        !gqac_reserve(&r->list, r->n + (size_t)wanted.most + 1, &r->capacity, sizeof *r->list))
        return;
    r->drafts.sources = s->sources;
    gqac_status status = drafts_look_up(&r->drafts, &s->payoff, &wanted, r->list, r->n, &n, NULL);
    if (status == GQAC_OK)
        status =
            drafts_check(r->constraint, r->given.n_eos, r->given.eos, r->list + r->n, &n, NULL);
    if (status == GQAC_OK && n && s->states)
        status = gqac_sequence_fork(r->sequence, &r->fork, NULL);
    r->drafted = status == GQAC_OK ? (int64_t)n : 0;
}

void draft_add(gqac_scheduler *s) {
    const int64_t fit = MOST_LOGITS / gqac_program_vocabulary(s->program);
    int64_t left = (fit < s->options.tokens ? fit : s->options.tokens) - s->n;
    left = left < s->chunk ? left : s->chunk;
    if (!s->options.speculate || !s->drafting || (s->padded && s->n > 1) || !decodes(s) ||
        payoff_is_stale(&s->payoff, s->n))
        return;
    for (int i = 0; i < s->n; i++) {
        request *r = s->members[i];
        gqac_step_item *item = &s->items[i];
        draft(s, r, left);
        item->tokens = r->list + r->n - 1; /* the list may have moved */
        item->count += r->drafted;
        item->n_logits += r->drafted;
        item->drafts = r->drafted;
        left -= r->drafted;
        s->grown = s->grown || r->drafted; /* also if the step fails */
    }
}

/* ---- after it ------------------------------------------------------------ */

void draft_measure(gqac_scheduler *s, double seconds) {
    int64_t rows = 0;
    if (!s->options.speculate)
        return;
    for (int i = 0; i < s->n; i++) {
        if (item_is_chunk(&s->items[i]))
            return;
        rows += s->items[i].count;
    }
    payoff_measure(&s->payoff, rows, s->n, seconds);
}

/* Takes back the last `unused` rows: by a rewind, or, if the request goes on and has a fork, by
 * replacing the sequence with the fork, which costs less. If the request ends, a store gets the
 * rows of the fork, because the sequence may lack the state after its last rows. */
static gqac_status take_back(request *r, int64_t unused, bool ends, gqac_diag *diag) {
    gqac_sequence *s = r->sequence;
    if (unused && ends) {
        gqac_sequence_free(r->fork);
        r->fork = NULL;
    }
    if (!unused || !r->fork)
        return gqac_sequence_rewind(s, gqac_sequence_length(s) - unused, diag);
    GQAC_TRY(gqac_sequence_rewind(s, 0, diag)); /* a store gets none of its rows */
    gqac_sequence_free(s);
    r->sequence = r->fork;
    r->seen = 0;
    r->again = true;
    r->fork = NULL;
    return GQAC_OK;
}

gqac_status draft_settle(gqac_scheduler *s, request *r, int64_t rows, int64_t right, bool wrong,
                         bool ends, gqac_diag *diag) {
    const int64_t unused = 1 + r->drafted - rows;
    if (!r->drafted)
        return GQAC_OK;
    s->counts.drafted_tokens += r->drafted;
    s->counts.accepted_tokens += right;
    r->n_drafted += r->drafted;
    r->n_accepted += right;
    drafts_take(&r->drafts, right, wrong);
#ifdef GQAC_CONTROL_SCHED_NO_REWIND /* negative control: the rows of wrong drafts stay */
    draft_drop(r);
    return GQAC_OK;
#endif
    const gqac_status status = take_back(r, unused, ends, diag);
    if (status != GQAC_OK) { /* nobody may continue from rows of wrong drafts */
        request_count(s, r);
        request_close(r);
    }
    draft_drop(r);
    return status;
}

/* ---- shortage ------------------------------------------------------------ */

bool draft_relieve(gqac_scheduler *s) {
    bool any = false, rests[DRAFTS_SOURCES] = {false};
    for (int i = 0; i < s->n; i++) {
        request *r = s->members[i];
        any |= r->drafted > 0;
        if (r->drafted && !rests[r->drafts.source]) {
            rests[r->drafts.source] = true; /* once: requests share the sources */
            drafts_rest(&r->drafts);
        }
        draft_drop(r);
    }
    if (!any && s->grown) {
        gqac_context_trim(s->context);
        s->grown = false;
        any = s->shrunk = s->trimmed = true;
    }
    s->drafting = s->drafting && !any;
    return any;
}
