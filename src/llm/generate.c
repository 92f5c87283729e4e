/* The generation loop: first the prompts in chunks, then one id a step, all requests together.
 *
 * A step that fails for some sequences is repeated with one sequence at a time, so that each fails
 * or succeeds by itself: if the model has no more positions, the request ends; at a LongRoPE
 * threshold its rows are computed again. As gqac_step promises, no bit depends on this. */
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "llm/speculation.h"

/* Maxima for one step if the caller sets no chunk: logits of all items, and tokens of one item. */
enum { MOST_LOGITS = 1 << 25, MOST_CHUNK = 256 };

typedef struct run {
    gqac_context *context;
    int n;
    answer *answers;
    sampler *sampler;
    int64_t chunk; /* gqac's choice */
    bool padded;   /* gqac_program_padding */
    int *members;  /* answers of the next step */
    gqac_step_item *items;
    speculating ahead;
    gqac_monitor caller;   /* that of the context; all prompts are one progress */
    int64_t reported, all; /* tokens of prompts */
    gqac_diag *diag;
} run;

/* ---- progress ------------------------------------------------------------ */

static int64_t computed(const run *r) {
    int64_t sum = 0;
    for (int i = 0; i < r->n; i++)
        sum += r->answers[i].computed;
    return sum;
}

static void report(void *arg, int64_t done, int64_t total) {
    run *r = arg;
    const int64_t now = computed(r) + done;
    (void)total;
    if (r->reported >= r->all || now <= r->reported)
        return;
    r->reported = now < r->all ? now : r->all;
    r->caller.progress(r->caller.arg, r->reported, r->all);
}

static bool is_aborted(void *arg) {
    const run *r = arg;
    return r->caller.abort && r->caller.abort(r->caller.arg);
}

/* Replaces the monitor of the context: it reports tokens of all prompts instead of steps. */
static gqac_status watch(run *r) {
    gqac_monitor own = {.size = sizeof own, .abort = is_aborted, .arg = r};
    r->caller.size = sizeof r->caller;
    GQAC_TRY(gqac_context_set_monitor(r->context, NULL, &r->caller, r->diag));
    if (r->caller.progress)
        own.progress = report;
    if (r->caller.abort || r->caller.progress)
        GQAC_TRY(gqac_context_set_monitor(r->context, &own, NULL, r->diag));
    return GQAC_OK;
}

/* ---- one step ------------------------------------------------------------ */

static int64_t piece(const run *r, const answer *a) {
    const int64_t most = a->request->chunk ? a->request->chunk : r->chunk;
    const size_t pending = answer_pending(a);
    if (a->session->logits) /* a run without a cache takes all */
        return (int64_t)pending;
    return pending < (size_t)most ? (int64_t)pending : most;
}

/* True if an empty sequence gets its prompt in several chunks, the first of which would choose the
 * rope tables. */
static bool needs_tables(const run *r, const answer *a) {
    return a->session->tables && !a->session->off && !a->session->n && (size_t)piece(r, a) < a->n;
}

static void move_on(answer_row *row) {
    row->logits = row->logits ? row->logits + row->width : NULL;
    row->top = row->logits ? NULL : row->top + row->width;
}

/* Chooses the next id by `row`, and further ids by the rows of drafts as long as these are what was
 * chosen. */
static gqac_status pick_ids(run *r, int index, answer_row row) {
    answer *a = &r->answers[index];
    const int64_t drafted = (int64_t)a->drafted;
    gqac_status status = GQAC_OK;
    bool wrong = false;
    int64_t right = 0;
    for (;; move_on(&row)) {
        const size_t n = a->n;
        const int64_t draft = right < drafted ? a->list[n] : -1;
        status = answer_pick(a, r->sampler, &row, index, r->diag);
        if (status != GQAC_OK || a->n == n || right == drafted)
            break;
        wrong = a->list[n] != draft;
#ifdef GQAC_CONTROL_ACCEPT_WRONG /* negative control: the row after a wrong draft is used */
        wrong = false;
#endif
        if (wrong)
            break;
        right++;
        if (a->done)
            break;
        session_append(a->session, a->list + n, 1);
    }
    const gqac_status settled = speculation_settle(a, right, wrong, r->diag);
    return status != GQAC_OK ? status : settled;
}

/* The row of the last id, the first with drafts after it; `item` is the answer's in the last step.
 */
static answer_row row_of(const run *r, const answer *a, int item) {
    int64_t rows = 0;
    answer_row row = {.logits = a->session->logits,
                      .width = gqac_program_vocabulary(a->session->program)};
    if (row.logits)
        return row;
    row.top = gqac_context_top(r->context, item, &rows, &row.width);
    if (!row.top)
        row.logits = gqac_context_logits(r->context, item, &rows, &row.width);
    for (int64_t i = rows - 1 - (int64_t)a->drafted; i > 0; i--)
        move_on(&row);
    return row;
}

/* Chooses ids if all ids have been computed. */
static gqac_status pick(run *r, int index, int item) {
    const answer *a = &r->answers[index];
    if (answer_pending(a))
        return GQAC_OK;
    const gqac_status status = pick_ids(r, index, row_of(r, a, item));
    if (status != GQAC_OK)
        gqac_diag_where(r->diag, "request %d", index);
    return status;
}

/* An answer ends where the position tables end; a prompt must fit in them. (Memory that runs out
 * does not end an answer but fails: answers do not depend on other requests.) */
static gqac_status end_at_capacity(run *r, int index) {
    answer *a = &r->answers[index];
    if (answer_new(a)) {
        answer_finish(a, GQAC_FINISH_LENGTH);
        return GQAC_OK;
    }
    if (!r->diag)
        return GQAC_CAPACITY;
    const gqac_diag cause = *r->diag;
    gqac_diag_set(r->diag, GQAC_CAPACITY, "a prompt of %zu tokens does not fit the model: %s", a->n,
                  cause.what);
    gqac_diag_where(r->diag, "request %d%s%s", index, *cause.where ? ", " : "", cause.where);
    gqac_diag_rule(r->diag, "%s",
                   *cause.rule ? cause.rule : gqac_status_meaning(GQAC_OUT_OF_RANGE));
    gqac_diag_hint(r->diag, "shorten the prompt");
    return GQAC_CAPACITY;
}

/* The next chunk of an answer as an item: with the drafts, and with rows of logits, if it is the
 * last one. */
static gqac_step_item item_of(const run *r, const answer *a) {
    const int64_t count = piece(r, a), drafted = (int64_t)a->drafted;
    const bool last = (size_t)count == answer_pending(a);
    return (gqac_step_item){.size = sizeof(gqac_step_item),
                            .sequence = a->session->sequence,
                            .tokens = a->list + a->session->n,
                            .count = count + drafted,
                            .n_logits = last ? 1 + drafted : 0,
                            .n_top = last ? answer_needs(a) : 0,
                            .drafts = drafted};
}

/* Records the time of a step of n members, the first of which is `a`, if it was a step of next ids,
 * with drafts or without. */
static void measure(run *r, const answer *a, int n) {
    int64_t rows = 0;
    if (!r->ahead.decode || answer_pending(a))
        return;
    for (int i = 0; i < n; i++)
        rows += r->items[i].count;
    payoff_measure(&r->ahead.payoff, rows, n, a->end - a->begin - r->ahead.spent);
}

static gqac_status feed_piece(run *r, answer *a) {
    gqac_session *s = a->session;
    const int64_t count = piece(r, a);
    r->items[0] = item_of(r, a);
    if (s->logits)
        GQAC_TRY(whole_step(s, r->context, a->list, a->n, r->diag));
    else
        GQAC_TRY(gqac_step(r->context, 1, r->items, r->diag));
    answer_took(a, count);
    if (r->ahead.members == 1)
        measure(r, a, 1);
    return GQAC_OK;
}

/* Computes all rows again, with the rope tables of the current length. */
static gqac_status recompute(run *r, answer *a) {
    const int64_t chunk = a->request->chunk ? a->request->chunk : r->chunk;
    if (!answer_new(a))
        a->reused = a->again = 0;
    GQAC_TRY(
        session_recompute(a->session, r->context, a->list, a->n, chunk, &a->computed, r->diag));
    answer_took(a, 0);
    return GQAC_OK;
}

/* True if a failure may concern only some of the sequences, or only the drafts. */
static bool is_partial(gqac_status status) {
    return status == GQAC_OUT_OF_RANGE || status == GQAC_CAPACITY || status == GQAC_RECOMPUTE;
}

static gqac_status step_alone(run *r, int index) {
    answer *a = &r->answers[index];
    gqac_status status = needs_tables(r, a) ? GQAC_RECOMPUTE : feed_piece(r, a);
    if (a->drafted && is_partial(status)) { /* the step of the next id alone may still succeed */
        speculation_drop(a);
        status = feed_piece(r, a);
    }
    if (status == GQAC_RECOMPUTE && !a->session->off)
        status = recompute(r, a);
    if (status == GQAC_OUT_OF_RANGE)
        return end_at_capacity(r, index);
    if (status != GQAC_OK) {
        gqac_diag_where(r->diag, "request %d", index);
        return status;
    }
    return pick(r, index, 0);
}

/* Appends the next chunk of each member in one step. */
static gqac_status step_together(run *r, int n) {
    for (int i = 0; i < n; i++)
        r->items[i] = item_of(r, &r->answers[r->members[i]]);
    GQAC_TRY(gqac_step(r->context, n, r->items, r->diag));
    for (int i = 0; i < n; i++) { /* all of them before any callback or failure */
        answer *a = &r->answers[r->members[i]];
        answer_took(a, r->items[i].count - (int64_t)a->drafted);
    }
    measure(r, &r->answers[r->members[0]], n);
    return GQAC_OK;
}

/* Begins a step of each member, with drafts where they pay: not beside prompts, and not where the
 * rows of all members are padded to those of one. */
static gqac_status begin_step(run *r, int n) {
    r->ahead.members = n;
    r->ahead.spent = 0;
    r->ahead.decode = !(r->padded && n > 1);
    for (int i = 0; i < n; i++)
        r->ahead.decode = r->ahead.decode && answer_new(&r->answers[r->members[i]]);
    for (int i = 0; i < n; i++) {
        answer *a = &r->answers[r->members[i]];
        GQAC_TRY(answer_step(a, r->diag));
        if (r->ahead.decode)
            GQAC_TRY(speculation_draft(a, &r->ahead, r->diag));
        GQAC_TRY(session_reserve(a->session, (size_t)piece(r, a) + a->drafted, r->diag));
    }
    return GQAC_OK;
}

static gqac_status step(run *r, int n) {
    bool together = n > 1;
    GQAC_TRY(begin_step(r, n));
    for (int i = 0; i < n; i++) {
        const answer *a = &r->answers[r->members[i]];
        together = together && !needs_tables(r, a) && !a->session->logits;
    }
    if (together) {
        const gqac_status status = step_together(r, n);
        if (status != GQAC_OK && !is_partial(status))
            return status;
        together = status == GQAC_OK;
    }
    for (int i = 0; i < n; i++)
        GQAC_TRY(together ? pick(r, r->members[i], i) : step_alone(r, r->members[i]));
    return GQAC_OK;
}

/* ---- the loop ------------------------------------------------------------ */

/* Chooses the members of the next step: all. But where rows are padded, single ids wait until the
 * prompts are computed: they would be padded to the length of these. */
static int choose(run *r) {
    bool prompts = false;
    int n = 0;
    for (int i = 0; i < r->n; i++)
        prompts |= r->padded && !r->answers[i].done && answer_pending(&r->answers[i]) > 1;
    for (int i = 0; i < r->n; i++)
        if (!r->answers[i].done && (!prompts || answer_pending(&r->answers[i]) > 1))
            r->members[n++] = i;
    return n;
}

static gqac_status answer_all(run *r, gqac_generation **results) {
    for (int i = 0; i < r->n; i++)
        if (!r->answers[i].done)
            GQAC_TRY(answer_begin(&r->answers[i], r->diag));
    for (int i = 0; i < r->n; i++)
        r->all +=
            r->answers[i].done ? 0 : (int64_t)answer_pending(&r->answers[i]) + r->answers[i].again;
    for (int n = choose(r); n; n = choose(r))
        GQAC_TRY(step(r, n));
    for (int i = 0; i < r->n; i++)
        GQAC_TRY(answer_result(&r->answers[i], &results[i], r->diag));
    return GQAC_OK;
}

static gqac_status check_sessions(const run *r) {
    for (int i = 0; i < r->n; i++) {
        const gqac_session *s = r->answers[i].session;
        for (int j = 0; j < i; j++)
            if (r->answers[j].session == s)
                GQAC_FAIL(r->diag, GQAC_USAGE, "requests %d and %d have the same session", j, i);
        if (s->program != r->answers[0].session->program)
            GQAC_FAIL(r->diag, GQAC_USAGE,
                      "request %d has a session of another program than request 0", i);
        for (int j = 0; j < r->n; j++) {
            const answer *other = &r->answers[j];
            const gqac_session *draft = other->request->draft;
            if (draft == s || (draft && j < i && draft == r->answers[i].request->draft))
                GQAC_FAIL(r->diag, GQAC_USAGE, "the draft session of request %d is used twice", j);
        }
    }
    return GQAC_OK;
}

/* Refuses settings that would change the answer and that gqac does not have. */
static gqac_status check_settings(const gqac_text *text, gqac_diag *diag) {
    const char *unsupported = text ? gqac_text_get_settings(text)->unsupported : NULL;
    if (!unsupported)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "%s, which is not supported", unsupported);
    gqac_diag_where(diag, "genai_config.json");
    gqac_diag_rule(diag, "gqac decodes greedily or samples, and gives one answer to a prompt");
    gqac_diag_hint(diag, "remove the setting from genai_config.json");
    return GQAC_UNSUPPORTED;
}

static gqac_status open_run(run *r, const gqac_text *text, const gqac_generate_request *requests) {
    const size_t n = (size_t)r->n;
    r->answers = gqac_calloc(n, sizeof *r->answers);
    r->members = gqac_calloc(n, sizeof *r->members);
    r->items = gqac_calloc(n, sizeof *r->items);
    if (!r->answers || !r->members || !r->items)
        return gqac_diag_oom(r->diag, "generation");
    for (int i = 0; i < r->n; i++) {
        const char *request = (const char *)requests + (size_t)i * requests->size;
        const gqac_status status =
            answer_open(&r->answers[i], (const void *)request, text, NULL, r->diag);
        if (status != GQAC_OK) {
            gqac_diag_where(r->diag, "request %d", i);
            return status;
        }
        if (((const gqac_generate_request *)(const void *)request)->size != requests->size)
            GQAC_FAIL(r->diag, GQAC_USAGE,
                      "the structure of request %d has another size than that of request 0", i);
    }
    GQAC_TRY(check_sessions(r));
    r->padded = gqac_program_padding(r->answers[0].session->program, NULL);
    const int64_t vocabulary = gqac_program_vocabulary(r->answers[0].session->program);
    GQAC_TRY(sampler_create(vocabulary, &r->sampler, r->diag));
    const int64_t fit = MOST_LOGITS / vocabulary / r->n;
    r->chunk = fit < 1 ? 1 : fit > MOST_CHUNK ? MOST_CHUNK : fit;
    r->ahead.rows = r->chunk;
    for (int i = 0; i < r->n; i++)
        GQAC_TRY(speculation_open(&r->answers[i], r->diag));
    return GQAC_OK;
}

static void close_answer(answer *a) {
    speculation_close(a);
    answer_close(a);
}

static void close_run(run *r) {
    for (int i = 0; r->answers && i < r->n; i++)
        close_answer(&r->answers[i]);
    sampler_free(r->sampler);
    gqac_free(r->answers);
    gqac_free(r->members);
    gqac_free(r->items);
}

static gqac_status generate(run *r, const gqac_text *text, const gqac_generate_request *requests,
                            gqac_generation **results) {
    GQAC_TRY(open_run(r, text, requests));
    GQAC_TRY(watch(r));
    return answer_all(r, results);
}

gqac_status gqac_generate(gqac_context *context, const gqac_text *text, int n,
                          const gqac_generate_request *requests, gqac_generation **results,
                          gqac_diag *diag) {
    gqac_diag inner = {0}; /* filled by steps that are repeated; copied to *diag on failure only */
    run r = {.context = context, .n = n, .diag = diag ? &inner : NULL};
    if (n < 1)
        GQAC_FAIL(diag, GQAC_USAGE, "there are %d requests; at least one is needed", n);
    for (int i = 0; i < n; i++)
        results[i] = NULL;
    GQAC_TRY(check_settings(text, diag));
    const gqac_status status = generate(&r, text, requests, results);
    if (r.caller.abort || r.caller.progress)
        (void)gqac_context_set_monitor(context, &r.caller, NULL, NULL);
    if (status != GQAC_OK && diag)
        *diag = inner;
    for (int i = 0; status != GQAC_OK && i < n; i++) {
        gqac_generation_free(results[i]);
        results[i] = NULL;
    }
    close_run(&r);
    return status;
}
