/* The scheduler: creation, submission, cancellation, and the step.
 *
 * A step that fails for one request is made again without it, and one for which memory is short is
 * made again with less, until it succeeds or nothing is left. As gqac_step promises, a failed step
 * changes nothing, and no bit depends on how tokens are packed. */
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "sched/sched_impl.h"

enum { TOKENS = 256, RUNNING = 64 };

/* ---- creation ------------------------------------------------------------ */

static gqac_status choose_limits(gqac_scheduler_options *o, gqac_diag *diag) {
    if (o->tokens < 0 || o->running < 0 || o->tokens > INT32_MAX)
        GQAC_FAIL(
            diag, GQAC_OUT_OF_RANGE,
            "a scheduler cannot have tokens = %lld and running = %lld: neither may be negative",
            (long long)o->tokens, (long long)o->running);
    if (o->speculate < 0)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "speculate is %lld: it must not be negative",
                  (long long)o->speculate);
    if (!o->tokens)
        o->tokens = o->running > TOKENS ? o->running : TOKENS;
    if (!o->running)
        o->running = o->tokens < RUNNING ? o->tokens : RUNNING;
    if (o->running <= o->tokens)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_OUT_OF_RANGE,
                  "%lld running requests are too many for steps of %lld tokens",
                  (long long)o->running, (long long)o->tokens);
    gqac_diag_rule(diag, "each running request gets a token in every step");
    gqac_diag_hint(diag, "allow more tokens, or fewer running requests");
    return GQAC_OUT_OF_RANGE;
}

static gqac_status fill(gqac_scheduler *s, const gqac_scheduler_options *options, gqac_diag *diag) {
    GQAC_TRY(
        gqac_sized_take(&s->options, sizeof s->options, options, "gqac_scheduler_options", diag));
    GQAC_TRY(choose_limits(&s->options, diag));
    if (gqac_program_is_stateless(s->program))
        GQAC_FAIL(diag, GQAC_USAGE, "the program was compiled without sequence state");
    if (s->options.store && gqac_store_program(s->options.store) != s->program)
        GQAC_FAIL(diag, GQAC_USAGE, "the prefix store belongs to another program");
    if (gqac_program_embedding_size(s->program) || gqac_program_vocabulary(s->program) < 1)
        GQAC_FAIL(
            diag, GQAC_UNSUPPORTED,
            "a scheduler needs a model with token ids as input and a vocabulary of constant size");
    GQAC_TRY(gqac_program_rope_threshold(s->program, &s->threshold, diag));
    s->most = gqac_program_max_tokens(s->program);
    s->padded = gqac_program_padding(s->program, NULL);
    s->states = drafts_cost_again(s->program);
    s->room = s->options.running;
    s->chunk = s->options.tokens;
    s->drafting = true;
    for (int i = 0; i < DRAFTS_SOURCES; i++)
        s->sources[i].shared = true;
    if (gqac_scheduler_no_drafts(s->program))
        s->options.speculate = 0;
    s->items = gqac_calloc((size_t)s->options.running, sizeof *s->items);
    s->members = gqac_calloc((size_t)s->options.running, sizeof(request *));
    s->logits = gqac_calloc((size_t)gqac_program_vocabulary(s->program), sizeof *s->logits);
    if (!s->items || !s->members || !s->logits)
        return gqac_diag_oom(diag, "a scheduler");
    return fetch_open(s, diag);
}

gqac_status gqac_scheduler_create(gqac_context *context, const gqac_scheduler_options *options,
                                  gqac_scheduler **scheduler, gqac_diag *diag) {
    gqac_scheduler *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a scheduler");
    s->context = context;
    s->program = gqac_context_program(context);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &clock);
    pthread_condattr_destroy(&clock);
    const gqac_status status = fill(s, options, diag);
    GQAC_RETURN_MADE(status, s, scheduler, gqac_scheduler_free);
}

/* ---- what other threads call --------------------------------------------- */

gqac_status gqac_scheduler_submit(gqac_scheduler *scheduler, const gqac_request *given,
                                  int64_t *number, gqac_diag *diag) {
    request *r = NULL;
    GQAC_TRY(request_create(scheduler, given, &r, diag));
    pthread_mutex_lock(&scheduler->lock);
    const bool closing = scheduler->closing;
    if (!closing) {
        *number = r->number = ++scheduler->last;
        r->next = scheduler->submitted;
        scheduler->submitted = r;
        scheduler->live++;
        scheduler->published.waiting++;
        pthread_cond_signal(&scheduler->changed);
    }
    pthread_mutex_unlock(&scheduler->lock);
    if (!closing)
        return GQAC_OK;
    request_free(r);
    GQAC_FAIL(diag, GQAC_USAGE, "the scheduler is being freed");
}

static request *find(request *list, int64_t number) {
    while (list && list->number != number)
        list = list->next;
    return list;
}

bool gqac_scheduler_cancel(gqac_scheduler *scheduler, int64_t number) {
    pthread_mutex_lock(&scheduler->lock);
    request *r = find(scheduler->submitted, number);
    if (!r)
        r = find(scheduler->order, number);
    if (r)
        atomic_store(&r->cancelled, true);
    pthread_cond_signal(&scheduler->changed);
    pthread_mutex_unlock(&scheduler->lock);
    return r;
}

gqac_status gqac_scheduler_get_statistics(gqac_scheduler *scheduler,
                                          gqac_scheduler_statistics *statistics, gqac_diag *diag) {
    pthread_mutex_lock(&scheduler->lock);
    gqac_scheduler_statistics own = scheduler->published;
    own.size = sizeof own;
    pthread_mutex_unlock(&scheduler->lock);
    return gqac_sized_give(statistics, &own, sizeof own, "gqac_scheduler_statistics", diag);
}

/* ---- the step ------------------------------------------------------------ */

static bool goes_before(const request *a, const request *b) {
    return a->given.priority != b->given.priority ? a->given.priority > b->given.priority
                                                  : a->number < b->number;
}

/* Sorts what was submitted into the order. */
static void take_submitted(gqac_scheduler *s) {
    pthread_mutex_lock(&s->lock);
    while (s->submitted) {
        request *r = s->submitted, **at = &s->order;
        s->submitted = r->next;
        while (*at && goes_before(*at, r))
            at = &(*at)->next;
        r->next = *at;
        *at = r;
    }
    pthread_mutex_unlock(&s->lock);
}

static void end_cancelled(gqac_scheduler *s) {
    for (request *r = s->order, *next; r; r = next) {
        next = r->next;
        if (atomic_load(&r->cancelled))
            request_end(s, r, GQAC_FINISH_CANCELLED, NULL);
    }
}

/* Fails a request by the failure of a step. */
static void fail(gqac_scheduler *s, request *r, gqac_diag *why) {
    const int64_t from = (int64_t)r->n - request_pending(r);
    gqac_diag_where(why, "request %lld, tokens from %lld on", (long long)r->number,
                    (long long)from);
    why->index = -1;
    request_end(s, r, GQAC_FINISH_FAILED, why);
}

/* After a step of items [first, first + n) has succeeded. */
static void commit(gqac_scheduler *s, int first, int n) {
    s->counts.steps++;
    s->chunk_was_last = false;
    for (int i = first; i < first + n; i++) {
        request_count(s, s->members[i]);
        s->chunk_was_last |= item_is_chunk(&s->items[i]);
    }
    for (int i = 0; i < n; i++) {
#ifdef GQAC_CONTROL_OTHER_ROW /* negative control: a request gets the logits of another */
        request_advance(s, s->members[first + i],
                        n > 1 && s->items[(i + 1) % n].n_logits ? (i + 1) % n : i);
#else
        request_advance(s, s->members[first + i], i);
#endif
    }
}

static bool is_shortage(gqac_status status) {
    return status == GQAC_CAPACITY || status == GQAC_NO_MEMORY;
}

/* ---- the monitor of a step ----------------------------------------------- */

/* Ends the step for the caller's monitor, or, once in a call, because the prompt that an item is
 * part of was cancelled. A cancelled request that decodes is not worth it: its one row costs less
 * than what the others would compute again. */
static bool must_end(void *arg) {
    gqac_scheduler *s = arg;
    if (s->monitor.abort && s->monitor.abort(s->monitor.arg))
        return true;
    for (int i = 0; i < s->n && !s->interrupted; i++)
        s->interrupted = item_is_chunk(&s->items[i]) && atomic_load(&s->members[i]->cancelled);
    return s->interrupted;
}

static void pass_progress(void *arg, int64_t done, int64_t total) {
    const gqac_scheduler *s = arg;
    if (s->monitor.progress)
        s->monitor.progress(s->monitor.arg, done, total);
}

/* gqac_step of all items. *interrupted: it ended because of a cancelled prompt, not by the caller's
 * monitor. */
static gqac_status step_all(gqac_scheduler *s, bool *interrupted, gqac_diag *why) {
    const gqac_monitor own = {
        .size = sizeof own, .abort = must_end, .progress = pass_progress, .arg = s};
    *interrupted = false;
    s->monitor = (gqac_monitor){.size = sizeof s->monitor};
    if (s->interrupted) /* not twice in a call, so that the others get on */
        return gqac_step(s->context, s->n, s->items, why);
    GQAC_TRY(gqac_context_set_monitor(s->context, &own, &s->monitor, why));
    const gqac_status status = gqac_step(s->context, s->n, s->items, why);
    *interrupted = status == GQAC_ABORTED && s->interrupted;
    (void)gqac_context_set_monitor(s->context, &s->monitor, NULL, NULL); /* as it was */
    return status;
}

/* ---- attempts ------------------------------------------------------------ */

/* Steps one item after another, because a step failed and no single item did. */
static gqac_status step_each(gqac_scheduler *s, gqac_diag *diag) {
    for (int i = 0; i < s->n; i++) {
        gqac_diag why = {0};
        const gqac_status status = gqac_step(s->context, 1, &s->items[i], &why);
        if (status == GQAC_ABORTED) {
            if (diag)
                *diag = why;
            return status;
        }
        if (status == GQAC_OK)
            commit(s, i, 1);
        else
            fail(s, s->members[i], &why);
    }
    return GQAC_OK;
}

/* After an attempt for which memory was short: makes the next one smaller. Once drafts have had the
 * context trimmed, it may lack memory that it kept before; then no request fails before it was
 * trimmed again, and each attempt begins without what the one before it took. */
static bool relieve(gqac_scheduler *s, int64_t chunk) {
    if (draft_relieve(s))
        return true;
    const bool smaller = pack_relieve(s, chunk), last = !smaller && s->shrunk && !s->trimmed;
    s->trimmed = s->trimmed || last;
    if (s->trimmed)
        gqac_context_trim(s->context);
    return smaller || last;
}

/* After a failed attempt; `failed` is the request that failed, or NULL. Returns true if another
 * attempt is to be made. */
static bool recover(gqac_scheduler *s, request *failed, gqac_status status, int64_t chunk,
                    gqac_diag *why) {
    if (is_shortage(status) && relieve(s, chunk))
        return true;
    if (!failed)
        return false;
    if (status == GQAC_RECOMPUTE && failed->given.from && failed->preemptions == 0) {
        request_count(s, failed); /* its first rows have the other rope table */
        request_close(failed);
        failed->preemptions++;
        s->counts.preemptions++;
        return true;
    }
    fail(s, failed, why);
    pack_admit(s);
    return true;
}

static gqac_status run(gqac_scheduler *s, gqac_diag *diag) {
    const int64_t chunk = s->chunk;
    s->trimmed = false;
    pack_admit(s);
    for (;;) {
        request *failed = NULL;
        bool interrupted = false;
        gqac_diag why = {.index = -1};
        gqac_status status = pack_gather(s, &failed, &why);
        if (status == GQAC_OK && !s->n)
            return GQAC_OK;
        if (status == GQAC_OK) {
            draft_add(s);
            const double begin = draft_clock(s);
            status = step_all(s, &interrupted, &why);
            if (status == GQAC_OK)
                draft_measure(s, draft_clock(s) - begin);
            const int at = s->n == 1 ? 0 : why.index;
            failed = at >= 0 ? s->members[at] : NULL;
        }
        if (status == GQAC_OK) {
            commit(s, 0, s->n);
            return GQAC_OK;
        }
        if (interrupted) {
            end_cancelled(s);
            pack_admit(s);
            continue;
        }
        if (status == GQAC_ABORTED) {
            if (diag)
                *diag = why;
            return status;
        }
        if (!recover(s, failed, status, chunk, &why))
            return step_each(s, diag);
    }
}

/* Publishes the statistics; returns the number of requests that have not ended. */
static int64_t publish(gqac_scheduler *s) {
    s->counts.running = 0;
    for (const request *r = s->order; r; r = r->next)
        s->counts.running += r->admitted;
    pthread_mutex_lock(&s->lock);
    s->published = s->counts;
    const int64_t live = s->live;
    s->published.waiting = live - s->counts.running;
    pthread_mutex_unlock(&s->lock);
    return live;
}

gqac_status gqac_scheduler_step(gqac_scheduler *scheduler, int64_t *left, gqac_diag *diag) {
    const int64_t ended = scheduler->counts.ended;
    take_submitted(scheduler);
    end_cancelled(scheduler);
    scheduler->interrupted = false;
    gqac_status status = run(scheduler, diag);
    end_cancelled(scheduler);
    const int64_t live = publish(scheduler);
    if (left)
        *left = live;
    if (status == GQAC_OK && !scheduler->n && ended == scheduler->counts.ended)
        status = fetch_await(scheduler, diag);
    return status;
}

void gqac_scheduler_free(gqac_scheduler *scheduler) {
    if (!scheduler)
        return;
    pthread_mutex_lock(&scheduler->lock);
    scheduler->closing = true;
    pthread_mutex_unlock(&scheduler->lock);
    take_submitted(scheduler);
    while (scheduler->order)
        request_end(scheduler, scheduler->order, GQAC_FINISH_CANCELLED, NULL);
    fetch_close(scheduler);
    pthread_cond_destroy(&scheduler->changed);
    pthread_mutex_destroy(&scheduler->lock);
    gqac_free(scheduler->items);
    gqac_free(scheduler->members);
    gqac_free(scheduler->logits);
    gqac_free(scheduler);
}
