/* One request: what is asked for, its sequence, the choice of its ids, and its end. */
#include <string.h>

#include "base/alloc.h"
#include "base/common.h"
#include "base/sized.h"
#include "sched/sched_impl.h"
#include "store/fetch.h"

/* ---- creation ------------------------------------------------------------ */

static gqac_status check_ids(const gqac_scheduler *s, const gqac_request *given, gqac_diag *diag) {
    const int64_t vocabulary = gqac_program_vocabulary(s->program);
    for (size_t i = 0; i < given->n_prompt; i++) {
        const int64_t id = given->prompt[i];
        if (id >= 0 && id < vocabulary)
            continue;
        gqac_diag_set(diag, GQAC_OUT_OF_RANGE,
                      "token id %lld at index %zu of the prompt is not in the vocabulary",
                      (long long)id, i);
        gqac_diag_rule(diag, "0 <= id < %lld", (long long)vocabulary);
        gqac_diag_hint(diag, "tokenize the prompt with the tokenizer of this model");
        return GQAC_OUT_OF_RANGE;
    }
    return GQAC_OK;
}

static gqac_status check(const gqac_scheduler *s, const gqac_request *given, gqac_diag *diag) {
    if (given->n_prompt < 1 || !given->prompt)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "the prompt of a request is empty");
    if (given->max_new < 0 || given->n_eos < 0)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "max_new = %lld and n_eos = %d must not be negative",
                  (long long)given->max_new, given->n_eos);
    if (given->n_eos && !given->eos)
        GQAC_FAIL(diag, GQAC_USAGE, "n_eos is %d, but the list eos is NULL", given->n_eos);
    if (given->from && gqac_sequence_program(given->from) != s->program)
        GQAC_FAIL(diag, GQAC_USAGE, "the sequence `from` belongs to another program");
    if (given->from && given->on_row)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "a request cannot have both `from` and on_row: the tokens of `from` are not "
                  "computed again");
    return check_ids(s, given, diag);
}

/* Copies what the request points to. */
static gqac_status copy(request *r, gqac_diag *diag) {
    gqac_request *g = &r->given;
    r->memory = gqac_arena_create(0);
    if (!r->memory)
        return gqac_diag_oom(diag, "a request");
    if (g->n_eos)
        g->eos = gqac_arena_copy(r->memory, g->eos, (size_t)g->n_eos * sizeof *g->eos);
    if (g->tenant)
        g->tenant = gqac_arena_strdup(r->memory, g->tenant);
    if (r->sampling.n_bias)
        r->sampling.bias = gqac_arena_copy(r->memory, r->sampling.bias,
                                           (size_t)r->sampling.n_bias * sizeof *r->sampling.bias);
    if ((g->n_eos && !g->eos) || (r->given.tenant && !g->tenant) ||
        (r->sampling.n_bias && !r->sampling.bias))
        return gqac_diag_oom(diag, "a request");
    return GQAC_OK;
}

static gqac_status fill_list(const gqac_scheduler *s, request *r, gqac_diag *diag) {
    const gqac_request *g = &r->given;
    const int64_t *ids = NULL;
    int64_t first = 0, count = 0;
    if (g->from)
        ids = gqac_sequence_ids(g->from, &first, &count);
    if (first)
        GQAC_FAIL(diag, GQAC_USAGE, "the ids of %lld imported tokens of `from` are unknown",
                  (long long)first);
    if (g->n_prompt > INT32_MAX || count + (int64_t)g->n_prompt > s->most) {
        gqac_diag_set(diag, GQAC_OUT_OF_RANGE,
                      "a prompt of %zu tokens after %lld others does not fit", g->n_prompt,
                      (long long)count);
        gqac_diag_rule(diag, "the model has %lld positions", (long long)s->most);
        gqac_diag_hint(diag, "shorten the prompt");
        return GQAC_OUT_OF_RANGE;
    }
    r->n = r->n_prompt = (size_t)count + g->n_prompt;
    if (!gqac_reserve(&r->list, r->n, &r->capacity, sizeof *r->list))
        return gqac_diag_oom(diag, "a request");
    if (count)
        memcpy(r->list, ids, (size_t)count * sizeof *ids);
    memcpy(r->list + count, g->prompt, g->n_prompt * sizeof *g->prompt);
    r->given.prompt = r->list + count;
    return count ? gqac_snapshot_take(g->from, &r->base, diag) : GQAC_OK;
}

/* Maximum number of new ids that the request and the positions of the model allow; the last id
 * needs no position. */
static int64_t most_new(const gqac_scheduler *s, const request *r) {
    const int64_t room = s->most - (int64_t)r->n_prompt;
    return r->given.max_new <= room ? r->given.max_new : room + 1;
}

static gqac_status fill(const gqac_scheduler *s, const gqac_request *given, request *r,
                        gqac_diag *diag) {
    GQAC_TRY(gqac_sized_take(&r->given, sizeof r->given, given, "gqac_request", diag));
    GQAC_TRY(check(s, &r->given, diag));
    gqac_sampling_init(&r->sampling);
    if (r->given.sampling) {
        GQAC_TRY(gqac_sampling_check(r->given.sampling, gqac_program_vocabulary(s->program), diag));
        GQAC_TRY(gqac_sized_take(&r->sampling, sizeof r->sampling, r->given.sampling,
                                 "gqac_sampling", diag));
        r->given.sampling = &r->sampling;
    }
    GQAC_TRY(copy(r, diag));
    GQAC_TRY(fill_list(s, r, diag));
    r->sampling.n_prompt = r->n_prompt;
    r->sampling.max_length = r->n_prompt + (size_t)most_new(s, r);
    return r->given.constraint ? gqac_constraint_begin(r->given.constraint, &r->constraint, diag)
                               : GQAC_OK;
}

gqac_status request_create(const gqac_scheduler *s, const gqac_request *given, request **out,
                           gqac_diag *diag) {
    request *r = gqac_calloc(1, sizeof *r);
    if (!given || !r) {
        gqac_free(r);
        return given ? gqac_diag_oom(diag, "a request")
                     : gqac_diag_set(diag, GQAC_USAGE, "the request is NULL");
    }
    atomic_init(&r->cancelled, false);
    const gqac_status status = fill(s, given, r, diag);
    GQAC_RETURN_MADE(status, r, out, request_free);
}

void request_free(request *r) {
    if (!r)
        return;
    draft_drop(r);
    gqac_sequence_free(r->sequence);
    gqac_snapshot_free(r->base);
    gqac_constraint_state_free(r->constraint);
    drafts_free(&r->drafts);
    gqac_arena_free(r->memory);
    gqac_free(r->list);
    gqac_free(r);
}

/* ---- its sequence -------------------------------------------------------- */

int64_t request_pending(const request *r) {
    return (int64_t)r->n - (r->sequence ? gqac_sequence_length(r->sequence) : 0);
}

/* A final length that is on the same side of the LongRoPE threshold as the list is now; 0: there is
 * no threshold. */
static int64_t final_length(const gqac_scheduler *s, const request *r) {
    if (!s->threshold)
        return 0;
    const int64_t most = s->most < INT32_MAX ? s->most : INT32_MAX;
    return (int64_t)r->n > s->threshold ? most : s->threshold;
}

/* False: the store cannot open a sequence, which can be done without it. */
static bool open_in_store(const gqac_scheduler *s, request *r,
                          const gqac_sequence_options *options) {
    int64_t reused = 0;
    return (r->fetched ? store_open_fetched
                       : gqac_store_open)(s->options.store, r->given.tenant, r->list, (int64_t)r->n,
                                          options, &r->sequence, &reused, NULL) == GQAC_OK;
}

bool request_is_beyond(const gqac_scheduler *s, const request *r) {
    return s->threshold && (int64_t)r->n > s->threshold;
}

bool request_shares(const gqac_scheduler *s, const request *r) {
    const gqac_request *g = &r->given;
    return s->options.store && !g->from && !g->cold && !g->on_row;
}

gqac_sequence_options request_sequence_options(const gqac_scheduler *s, const request *r) {
    return (gqac_sequence_options){.size = sizeof(gqac_sequence_options),
                                   .kv = s->options.kv,
                                   .final_length = final_length(s, r)};
}

gqac_status request_open(gqac_scheduler *s, request *r, gqac_diag *diag) {
    const gqac_sequence_options options = request_sequence_options(s, r);
    gqac_sequence_options same = options;
    gqac_status status = GQAC_OK;
    int64_t reused = 0;
    same.kv = NULL; /* that of the snapshot */
    r->long_rope = request_is_beyond(s, r);
    if (r->base)
        status = gqac_snapshot_restore(r->base, &same, &r->sequence, diag);
    else if (!request_shares(s, r) || !open_in_store(s, r, &options))
        status = gqac_sequence_begin(s->program, r->list, (int64_t)r->n, &options, &r->sequence,
                                     &reused, diag);
    if (status != GQAC_OK) {
        request_close(r);
        return status;
    }
    gqac_snapshot_free(r->base);
    r->base = NULL;
    r->fetched = false; /* if the sequence is lost, memory may have lost the rows too */
    if (!r->reported)   /* later its own rows may be found again */
        r->reused = gqac_sequence_length(r->sequence);
    s->counts.reused_tokens += gqac_sequence_length(r->sequence);
    return GQAC_OK;
}

void request_close(request *r) {
    draft_drop(r);
    gqac_sequence_free(r->sequence);
    r->sequence = NULL;
    r->again = false;
    r->seen = 0;
}

void request_count(gqac_scheduler *s, request *r) {
    const int64_t now = r->sequence ? gqac_sequence_computed(r->sequence) : 0;
    r->computed += now - r->seen;
    s->counts.computed_tokens += now - r->seen;
    r->seen = now;
}

/* ---- its answer ---------------------------------------------------------- */

static void leave(gqac_scheduler *s, request *r) {
    pthread_mutex_lock(&s->lock);
    request **at = &s->order;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    s->live--;
    pthread_mutex_unlock(&s->lock);
    s->counts.ended++;
    if (!r->sequence)
        return;
    /* Its memory is free now: one more request than before, and larger chunks, may fit again. */
    s->room += s->room < s->options.running;
    s->chunk = 2 * s->chunk < s->options.tokens ? 2 * s->chunk : s->options.tokens;
    s->drafting = true;
}

void request_end(gqac_scheduler *s, request *r, gqac_finish finish, const gqac_diag *diag) {
    request_count(s, r);
    fetch_drop(s, r);
    leave(s, r);
    if (r->given.on_end)
        r->given.on_end(r->given.arg, &(gqac_request_end){.size = sizeof(gqac_request_end),
                                                          .request = r->number,
                                                          .finish = finish,
                                                          .diag = diag,
                                                          .n_ids = r->n - r->n_prompt,
                                                          .ids = r->list + r->n_prompt,
                                                          .reused_tokens = r->reused,
                                                          .computed_tokens = r->computed,
                                                          .preemptions = r->preemptions,
                                                          .sequence = r->sequence,
                                                          .drafted_tokens = r->n_drafted,
                                                          .accepted_tokens = r->n_accepted});
    request_free(r);
}

static bool is_eos(const request *r, int64_t id) {
    return gqac_has_id(r->given.eos, (size_t)r->given.n_eos, id);
}

/* Changes a copy of the logits by the callback, then by the constraint. *wanted is false if one of
 * them ends the answer. */
static gqac_status change(gqac_scheduler *s, request *r, int64_t vocabulary, bool *wanted,
                          gqac_diag *diag) {
    const gqac_request *g = &r->given;
    bool may_end = false;
    if (g->on_logits)
        *wanted = g->on_logits(g->logits_arg, s->logits, vocabulary, r->list, r->n);
    if (!*wanted || !r->constraint)
        return GQAC_OK;
    GQAC_TRY(gqac_constraint_ends(r->constraint, &may_end, &r->complete, diag));
    *wanted = !r->complete;
    return r->complete
               ? GQAC_OK
               : gqac_constraint_mask(r->constraint, s->logits, vocabulary, g->eos, g->n_eos, diag);
}

int64_t request_top(const request *r) {
    const gqac_request *g = &r->given;
    return g->on_row || g->on_logits || r->constraint ? 0 : gqac_sampling_top(g->sampling);
}

/* Sets the id after the list by row `row` of the item, counted from that of the last token that is
 * not a draft. *wanted false: there is none. */
static gqac_status pick(gqac_scheduler *s, request *r, int item, int64_t row, bool *wanted,
                        gqac_diag *diag) {
    const gqac_request *g = &r->given;
    int64_t rows = 0, n = 0, vocabulary = gqac_program_vocabulary(s->program);
    const gqac_candidate *top = gqac_context_top(s->context, item, &rows, &n);
    if (top)
        return gqac_sample_top(g->sampling, top + (rows - 1 - r->drafted + row) * n, n, vocabulary,
                               r->n, r->list + r->n, diag);
    const float *logits = gqac_context_logits(s->context, item, &rows, &vocabulary);
    logits += (rows - 1 - r->drafted + row) * vocabulary;
    if (g->on_logits || r->constraint) {
        memcpy(s->logits, logits, (size_t)vocabulary * sizeof *logits);
        logits = s->logits;
        GQAC_TRY(change(s, r, vocabulary, wanted, diag));
    }
    return *wanted ? gqac_sample(g->sampling, logits, vocabulary, r->list, r->n, r->list + r->n,
                                 NULL, diag)
                   : GQAC_OK;
}

/* Chooses the id that follows. *wanted is false if the answer ends without one. */
static gqac_status choose(gqac_scheduler *s, request *r, int item, int64_t row, bool *wanted,
                          gqac_diag *diag) {
    if (!gqac_reserve(&r->list, r->n + 1, &r->capacity, sizeof *r->list))
        return gqac_diag_oom(diag, "an answer");
    GQAC_TRY(pick(s, r, item, row, wanted, diag));
    if (!*wanted)
        return GQAC_OK;
    const int64_t id = r->list[r->n++];
    s->counts.new_tokens++;
    if (!r->constraint || is_eos(r, id))
        return GQAC_OK;
    GQAC_TRY(gqac_constraint_push(r->constraint, id, diag));
    bool may_end;
    return gqac_constraint_ends(r->constraint, &may_end, &r->complete, diag);
}

/* Chooses an id by a row of the item and reports it. Returns true if the answer ends: as *finish,
 * which is otherwise LENGTH. */
static bool add_id(gqac_scheduler *s, request *r, int item, int64_t row, gqac_finish *finish,
                   gqac_diag *why) {
    const size_t before = r->n;
    bool wanted = true;
    *finish = GQAC_FINISH_FAILED;
    if (choose(s, r, item, row, &wanted, why) != GQAC_OK)
        return true;
    const bool chosen = r->n > before;
    const int64_t id = chosen ? r->list[before] : -1;
    if (chosen && r->given.on_token)
        wanted = r->given.on_token(r->given.arg, r->number, id);
    *finish = chosen && is_eos(r, id)  ? GQAC_FINISH_EOS
              : !wanted || r->complete ? GQAC_FINISH_STOP
                                       : GQAC_FINISH_LENGTH;
    return *finish != GQAC_FINISH_LENGTH || (int64_t)(r->n - r->n_prompt) == r->given.max_new ||
           (int64_t)r->n > s->most;
}

/* Adds an id by the row of the last token, and further ones by the rows of drafts as long as these
 * are what was chosen. What has no part in the answer is taken back before it ends. */
static void answer(gqac_scheduler *s, request *r, int item) {
    gqac_diag why = {0};
    gqac_finish finish = GQAC_FINISH_FAILED;
    int64_t rows = 0, right = 0;
    bool ends = false, wrong = false;
    do {
        const size_t n = r->n;
        const int64_t draft = rows < r->drafted ? r->list[n] : -1;
        ends = add_id(s, r, item, rows++, &finish, &why);
        if (rows > r->drafted || r->n == n)
            break;
        wrong = r->list[n] != draft;
#ifdef GQAC_CONTROL_SCHED_ACCEPT_WRONG /* negative control: the row after a wrong draft is used */
        wrong = false;
#endif
        right += !wrong;
    } while (!wrong && !ends && !atomic_load(&r->cancelled));
    const bool last = ends || atomic_load(&r->cancelled);
    const gqac_status settled = draft_settle(s, r, rows, right, wrong, last, ends ? NULL : &why);
    if (settled != GQAC_OK && !ends) {
        ends = true;
        finish = GQAC_FINISH_FAILED;
    }
    if (ends && finish == GQAC_FINISH_FAILED)
        gqac_diag_where(&why, "request %lld", (long long)r->number);
    if (ends)
        request_end(s, r, finish, finish == GQAC_FINISH_FAILED ? &why : NULL);
}

/* Reports the logits of the tokens of the prompt before `done`, except those that were reported.
 */
static void report_rows(gqac_scheduler *s, const request *r, int item, int64_t done) {
    int64_t rows = 0, vocabulary = 0;
    const float *logits = gqac_context_logits(s->context, item, &rows, &vocabulary);
    const int64_t first = gqac_sequence_length(r->sequence) - rows;
    for (int64_t at = r->reported; at < done; at++)
        r->given.on_row(r->given.arg, r->number, at, logits + (at - first) * vocabulary,
                        vocabulary);
}

void request_advance(gqac_scheduler *s, request *r, int item) {
    const int64_t length = gqac_sequence_length(r->sequence), total = (int64_t)r->n_prompt;
    const int64_t done = length < total ? length : total;
    if (atomic_load(&r->cancelled)) {
        (void)draft_settle(s, r, 1, 0, false, true, NULL);
        request_end(s, r, GQAC_FINISH_CANCELLED, NULL);
        return;
    }
    if (!r->reported && r->given.on_begin)
        r->given.on_begin(r->given.arg, r->number, r->reused);
    if (done > r->reported && r->given.on_row)
        report_rows(s, r, item, done);
    if (done > r->reported && r->given.on_progress)
        r->given.on_progress(r->given.arg, r->number, done, total);
    r->reported = done > r->reported ? done : r->reported;
    if (request_pending(r) > 0)
        return;
    if (r->given.max_new)
        answer(s, r, item);
    else
        request_end(s, r, GQAC_FINISH_LENGTH, NULL);
}
