/* The generation loop: prompts in pieces first, then one id a step, all requests together.
 *
 * A step that a sequence refuses is taken again one sequence at a time, which finds out whom it
 * concerns: at the end of its room a request ends, at a LongRoPE threshold its rows are computed
 * anew. Bits cannot depend on any of this, for gqac_step promises so. */
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "llm/answer.h"

/* Logits that the pieces of one step may have together, unless the caller says how long they are.
 */
enum { MOST_LOGITS = 1 << 25, MOST_CHUNK = 256 };

typedef struct run {
    gqac_context *context;
    int n;
    answer *answers;
    sampler *sampler;
    int64_t chunk; /* gqac's choice */
    bool padded;   /* steps pad all rows to the longest */
    int *members;  /* answers of the next step */
    gqac_step_item *items;
    gqac_monitor caller; /* that of the context; it is told of the prompts as one */
    int64_t told, all;
    gqac_diag *diag;
} run;

/* ---- progress ------------------------------------------------------------ */

static int64_t computed(const run *r) {
    int64_t sum = 0;
    for (int i = 0; i < r->n; i++)
        sum += r->answers[i].computed;
    return sum;
}

static void tell(void *arg, int64_t done, int64_t total) {
    run *r = arg;
    const int64_t now = computed(r) + done;
    (void)total;
    if (r->told >= r->all || now <= r->told)
        return;
    r->told = now < r->all ? now : r->all;
    r->caller.progress(r->caller.arg, r->told, r->all);
}

static bool is_aborted(void *arg) {
    const run *r = arg;
    return r->caller.abort && r->caller.abort(r->caller.arg);
}

/* From now on the caller hears of tokens of prompts, not of steps. */
static gqac_status watch(run *r) {
    gqac_monitor own = {.size = sizeof own, .abort = is_aborted, .arg = r};
    r->caller.size = sizeof r->caller;
    GQAC_TRY(gqac_context_set_monitor(r->context, NULL, &r->caller, r->diag));
    if (r->caller.progress)
        own.progress = tell;
    if (r->caller.abort || r->caller.progress)
        GQAC_TRY(gqac_context_set_monitor(r->context, &own, NULL, r->diag));
    return GQAC_OK;
}

/* ---- one step ------------------------------------------------------------ */

static int64_t piece(const run *r, const answer *a) {
    const int64_t most = a->request->chunk ? a->request->chunk : r->chunk;
    const size_t pending = answer_pending(a);
    if (a->session->logits) /* all or nothing */
        return (int64_t)pending;
    return pending < (size_t)most ? (int64_t)pending : most;
}

/* Rows of an empty sequence in several pieces: the first piece would choose the rope tables. */
static bool needs_tables(const run *r, const answer *a) {
    return a->session->tables && !a->session->off && !a->session->n && (size_t)piece(r, a) < a->n;
}

/* Chooses the next id when the whole list was fed; `row` is the answer's place in the last
 * step. */
static gqac_status pick(run *r, int index, int row) {
    answer *a = &r->answers[index];
    int64_t rows = 0, vocabulary = gqac_program_vocabulary(a->session->program);
    if (answer_pending(a))
        return GQAC_OK;
    const float *logits = a->session->logits;
    if (!logits)
        logits = gqac_context_logits(r->context, row, &rows, &vocabulary);
    const float *last = rows > 1 ? logits + (rows - 1) * vocabulary : logits;
    const gqac_status status = answer_pick(a, r->sampler, last, vocabulary, index, r->diag);
    if (status != GQAC_OK)
        gqac_diag_where(r->diag, "request %d", index);
    return status;
}

/* The tables of positions end: so does the answer, but a prompt must fit. Memory that runs out is
 * another matter: an answer is the same in any company. */
static gqac_status no_room(run *r, int index) {
    answer *a = &r->answers[index];
    if (answer_new(a)) {
        answer_finish(a, GQAC_FINISH_LENGTH);
        return GQAC_OK;
    }
    if (!r->diag)
        return GQAC_CAPACITY;
    const gqac_diag cause = *r->diag;
    gqac_diag_set(r->diag, GQAC_CAPACITY, "the model has no room for a prompt of %zu tokens: %s",
                  a->n, cause.what);
    gqac_diag_where(r->diag, "request %d%s%s", index, *cause.where ? ", " : "", cause.where);
    gqac_diag_rule(r->diag, "%s",
                   *cause.rule ? cause.rule : gqac_status_meaning(GQAC_OUT_OF_RANGE));
    gqac_diag_hint(r->diag, "shorten the prompt");
    return GQAC_CAPACITY;
}

/* Rows of logits of a piece: one where the list ends with it. */
static int64_t logits_of(const answer *a, int64_t count) {
    return (size_t)count == answer_pending(a);
}

static gqac_status step_alone(run *r, int index) {
    answer *a = &r->answers[index];
    gqac_session *s = a->session;
    const int64_t count = piece(r, a);
    gqac_status status = GQAC_RECOMPUTE;
    if (!needs_tables(r, a)) {
        status = s->logits ? whole_step(s, r->context, a->list, a->n, r->diag)
                           : gqac_sequence_append(r->context, s->sequence, a->list + s->n, count,
                                                  logits_of(a, count), r->diag);
        if (status == GQAC_OK)
            answer_took(a, count);
    }
    if (status == GQAC_RECOMPUTE && !s->off) {
        const int64_t chunk = a->request->chunk ? a->request->chunk : r->chunk;
        if (!answer_new(a))
            a->reused = a->again = 0;
        status = session_recompute(s, r->context, a->list, a->n, chunk, &a->computed, r->diag);
        if (status == GQAC_OK)
            answer_took(a, 0);
    }
    if (status == GQAC_OUT_OF_RANGE)
        return no_room(r, index);
    if (status != GQAC_OK) {
        gqac_diag_where(r->diag, "request %d", index);
        return status;
    }
    return pick(r, index, 0);
}

/* Feeds the members' next pieces in one step. */
static gqac_status step_together(run *r, int n) {
    for (int i = 0; i < n; i++) {
        const answer *a = &r->answers[r->members[i]];
        r->items[i] = (gqac_step_item){.size = sizeof *r->items,
                                       .sequence = a->session->sequence,
                                       .tokens = a->list + a->session->n,
                                       .count = piece(r, a)};
        r->items[i].n_logits = logits_of(a, r->items[i].count);
    }
    GQAC_TRY(gqac_step(r->context, n, r->items, r->diag));
    for (int i = 0; i < n; i++) /* all of them before any callback or failure */
        answer_took(&r->answers[r->members[i]], r->items[i].count);
    return GQAC_OK;
}

/* Whether a failure may concern some of the sequences only. */
static bool is_partial(gqac_status status) {
    return status == GQAC_OUT_OF_RANGE || status == GQAC_CAPACITY || status == GQAC_RECOMPUTE;
}

static gqac_status step(run *r, int n) {
    bool together = n > 1;
    for (int i = 0; i < n; i++) {
        answer *a = &r->answers[r->members[i]];
        GQAC_TRY(answer_step(a, r->diag));
        GQAC_TRY(session_reserve(a->session, (size_t)piece(r, a), r->diag));
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

/* Who takes part in the next step: all, but prompts before single ids that would be padded to
 * them.
 */
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
            GQAC_FAIL(r->diag, GQAC_USAGE, "request %d has a session of another program", i);
    }
    return GQAC_OK;
}

/* A setting that would change the answer is not passed over. */
static gqac_status check_settings(const gqac_text *text, gqac_diag *diag) {
    const char *unsupported = text ? gqac_text_get_settings(text)->unsupported : NULL;
    if (!unsupported)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "%s", unsupported);
    gqac_diag_where(diag, "genai_config.json");
    gqac_diag_rule(diag, "gqac has greedy search and sampling of one text");
    gqac_diag_hint(diag, "take the setting out of genai_config.json");
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
            GQAC_FAIL(r->diag, GQAC_USAGE, "request %d has another size than the first", i);
    }
    GQAC_TRY(check_sessions(r));
    gqac_mixing why;
    r->padded = gqac_program_padding(r->answers[0].session->program, &why);
    const int64_t vocabulary = gqac_program_vocabulary(r->answers[0].session->program);
    GQAC_TRY(sampler_create(vocabulary, &r->sampler, r->diag));
    const int64_t fit = MOST_LOGITS / vocabulary / r->n;
    r->chunk = fit < 1 ? 1 : fit > MOST_CHUNK ? MOST_CHUNK : fit;
    return GQAC_OK;
}

static void close_run(run *r) {
    for (int i = 0; r->answers && i < r->n; i++)
        answer_close(&r->answers[i]);
    sampler_free(r->sampler);
    gqac_free(r->answers);
    gqac_free(r->members);
    gqac_free(r->items);
}

gqac_status gqac_generate(gqac_context *context, const gqac_text *text, int n,
                          const gqac_generate_request *requests, gqac_generation **results,
                          gqac_diag *diag) {
    gqac_diag inner = {
        0}; /* a step that is taken again fills it, and *diag only tells of failures */
    run r = {.context = context, .n = n, .diag = diag ? &inner : NULL};
    if (n < 1)
        GQAC_FAIL(diag, GQAC_USAGE, "%d requests, at least one is needed", n);
    for (int i = 0; i < n; i++)
        results[i] = NULL;
    GQAC_TRY(check_settings(text, diag));
    gqac_status status = open_run(&r, text, requests);
    if (status == GQAC_OK)
        status = watch(&r);
    if (status == GQAC_OK)
        status = answer_all(&r, results);
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
