/* Drafts of requests that decode: how many each step has, what they cost, and how they are taken
 * back. They come last: steps with chunks have none, and where memory is short they are given up
 * before anything else is. */
#include "base/alloc.h"
#include "base/clock.h"
#include "sched/sched_impl.h"

enum { MOST_LOGITS = 1 << 25 }; /* of a step with drafts: 128 MiB */

const char *gqac_scheduler_no_drafts(const gqac_program *program) {
    return drafts_cost_again(program) ? "the model has recurrent states" : drafts_refusal(program);
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

/* Sets r->drafted and the ids after its list. Without memory there are no drafts. */
static void draft(gqac_scheduler *s, request *r, int64_t left) {
    const drafts_wanted wanted = {.most = most_drafts(s, r, left), .members = s->n};
    size_t n = 0;
    if (wanted.most < 1 ||
        !gqac_reserve(&r->list, r->n + (size_t)wanted.most + 1, &r->capacity, sizeof *r->list))
        return;
    r->drafts.sources = s->sources;
    gqac_status status = drafts_look_up(&r->drafts, &s->payoff, &wanted, r->list, r->n, &n, NULL);
    if (status == GQAC_OK)
        status =
            drafts_check(r->constraint, r->given.n_eos, r->given.eos, r->list + r->n, &n, NULL);
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

gqac_status draft_settle(gqac_scheduler *s, request *r, int64_t rows, int64_t right, bool wrong,
                         gqac_diag *diag) {
    const int64_t unused = 1 + r->drafted - rows;
    if (!r->drafted)
        return GQAC_OK;
    s->counts.drafted_tokens += r->drafted;
    s->counts.accepted_tokens += right;
    r->n_drafted += r->drafted;
    r->n_accepted += right;
    drafts_take(&r->drafts, right, wrong);
    r->drafted = 0;
#ifdef GQAC_CONTROL_SCHED_NO_REWIND /* negative control: the rows of wrong drafts stay */
    return GQAC_OK;
#endif
    return gqac_sequence_rewind(r->sequence, gqac_sequence_length(r->sequence) - unused, diag);
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
        r->drafted = 0;
    }
    if (!any && s->grown) {
        gqac_context_trim(s->context);
        s->grown = false;
        any = s->shrunk = s->trimmed = true;
    }
    s->drafting = s->drafting && !any;
    return any;
}
