/* Legs: what a job asks the scheduler for, and what its callbacks note. All but leg_submit_all and
 * leg_drop runs on the thread that calls serve_run.
 *
 * An answer has the ids that gqac_generate gives for the same settings: the same rules for
 * end-of-text ids, stop texts and the minimum length. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/serve_impl.h"

/* True: the leg is submitted when the prefix of its prompt has ended. */
static bool waits(const job *j, const leg *l) {
    return l->kind == LEG_ANSWER && job_shares(j, l->prompt);
}

static bool append(void **list, size_t n, size_t *capacity, size_t size) {
    if (n <= *capacity)
        return true;
    const size_t more = n > 2 * *capacity ? n + 16 : 2 * *capacity;
    void *grown = realloc(*list, more * size);
    if (grown) {
        *list = grown;
        *capacity = more;
    }
    return grown != NULL;
}

/* ---- under the lock ------------------------------------------------------ */

static void note(job *j, const gqac_diag *diag) {
    if (!j->problem.status)
        problem_from(&j->problem, NULL, diag);
    job_touch(j); /* which ends the other legs: nobody gets their answers */
}

static bool add_token(tokens *t, const scored *next) {
    void *list = t->list;
    const bool fits = append(&list, t->n + 1, &t->capacity, sizeof *t->list);
    t->list = list;
    if (fits)
        t->list[t->n++] = *next;
    return fits;
}

static bool add_text(leg *l, const char *text, size_t length) {
    void *data = l->text.data;
    const bool fits = append(&data, l->text.n + length, &l->text.capacity, 1);
    l->text.data = data;
    if (fits && length)
        memcpy(l->text.data + l->text.n, text, length);
    l->text.n += fits ? length : 0;
    return fits;
}

/* ---- rows of logits ------------------------------------------------------ */

/* FNV-1a, of every bit of a row. */
static uint64_t check_of(uint64_t check, const float *row, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &row[i], sizeof word);
        check = (check ^ word) * 1099511628211u;
    }
    return check;
}

/* Keeps the row of the id that is chosen next, and forbids end-of-text ids before the minimum
 * length. */
static bool on_logits(void *arg, float *logits, int64_t vocabulary, const int64_t *ids, size_t n) {
    leg *l = arg;
    const job *j = l->owner;
    const gqac_text_settings *x = gqac_text_get_settings(j->server->model.text);
    (void)ids;
    memcpy(l->row, logits, (size_t)vocabulary * sizeof *logits);
    if (j->verify)
        l->check = check_of(l->check, logits, vocabulary);
    for (int i = 0; i < j->n_ends && (int64_t)n < x->min_length; i++)
        if (j->ends[i] >= 0 && j->ends[i] < vocabulary)
            logits[j->ends[i]] = NAN;
    return true;
}

/* Scores an id by a row. */
static gqac_status score(const job *j, const float *row, int64_t id, scored *out, gqac_diag *diag) {
    const int64_t most = j->server->vocabulary, n_top = j->n_top < most ? j->n_top : most;
    *out = (scored){.id = id};
    if (!j->scores)
        return GQAC_OK;
    out->top = n_top ? calloc((size_t)n_top, sizeof *out->top) : NULL;
    if (n_top && !out->top)
        return serve_fail(diag, GQAC_NO_MEMORY, "out of memory for log-probabilities");
    return gqac_log_probabilities(row, most, id, &out->log_probability, n_top, out->top,
                                  &out->n_top, diag);
}

/* Adds the score of the token after `position` of the prompt. */
static void on_row(void *arg, int64_t request, int64_t position, const float *logits,
                   int64_t vocabulary) {
    leg *l = arg;
    job *j = l->owner;
    gqac_diag diag = {0};
    scored next;
    (void)request, (void)vocabulary;
    if (position + 1 >= (int64_t)l->prompt->n)
        return;
    const gqac_status status = score(j, logits, l->prompt->ids[position + 1], &next, &diag);
    pthread_mutex_lock(&j->server->lock);
    if (status != GQAC_OK || !add_token(&l->prompt->rows, &next)) {
        if (status == GQAC_OK)
            serve_fail(&diag, GQAC_NO_MEMORY, "out of memory for log-probabilities");
        note(j, &diag);
        free(next.top);
    }
    pthread_mutex_unlock(&j->server->lock);
}

/* ---- tokens -------------------------------------------------------------- */

static void on_begin(void *arg, int64_t request, int64_t reused) {
    leg *l = arg;
    (void)request;
    pthread_mutex_lock(&l->owner->server->lock);
    l->prompt->reused = reused;
    pthread_mutex_unlock(&l->owner->server->lock);
}

static void on_progress(void *arg, int64_t request, int64_t done, int64_t total) {
    leg *l = arg;
    job *j = l->owner;
    (void)request, (void)total;
    pthread_mutex_lock(&j->server->lock);
    if (done > l->prompt->done) { /* answers that share the prompt report the same row */
        l->prompt->done = done;
        j->progressed = true;
        if (j->progress)
            job_touch(j);
    }
    pthread_mutex_unlock(&j->server->lock);
}

static bool is_end(const job *j, int64_t id) {
    for (int i = 0; i < j->n_ends; i++)
        if (j->ends[i] == id)
            return true;
    return false;
}

static void measure(leg *l) {
    job *j = l->owner;
    const double now = serve_seconds();
    if (l->last > 0)
        metrics_next_token(j->server->metrics, now - l->last);
    else if (!(j->first > 0))
        metrics_first_token(j->server->metrics, now - j->began);
    if (!(j->first > 0))
        j->first = now;
    l->last = now;
}

bool leg_add(leg *l, scored *next, bool eos, gqac_diag *diag) {
    job *j = l->owner;
    size_t length = 0;
    gqac_status status = diag->status;
    if (status == GQAC_OK && !eos)
        status = gqac_reply_push(l->reply, next->id, diag);
    const char *text = gqac_reply_take(l->reply, &length);
    pthread_mutex_lock(&j->server->lock);
    if (l->kind == LEG_ANSWER)
        measure(l);
    const bool added = status == GQAC_OK && add_token(&l->tokens, next);
    if (added)
        l->thoughts += reasoning_push(&j->server->reasoning, &l->thinking, next->id);
    if (status == GQAC_OK && (!added || !add_text(l, text, length)))
        status = serve_fail(diag, GQAC_NO_MEMORY, "out of memory for an answer");
    if (status != GQAC_OK)
        note(j, diag);
    if (!added)
        free(next->top);
    if (j->stream && l->kind == LEG_ANSWER)
        job_touch(j);
    pthread_mutex_unlock(&j->server->lock);
    return status == GQAC_OK && !gqac_reply_stopped(l->reply);
}

static bool on_token(void *arg, int64_t request, int64_t id) {
    leg *l = arg;
    scored next = {.id = id};
    gqac_diag diag = {0};
    (void)request;
    score(l->owner, l->row, id, &next, &diag);
    return leg_add(l, &next, is_end(l->owner, id), &diag);
}

/* ---- ends ---------------------------------------------------------------- */

static gqac_finish finish_text(leg *l, gqac_finish finish, gqac_diag *diag) {
    if (finish == GQAC_FINISH_CANCELLED || finish == GQAC_FINISH_FAILED)
        return finish;
    if (gqac_reply_finish(l->reply, diag) != GQAC_OK)
        return GQAC_FINISH_FAILED;
    return finish != GQAC_FINISH_EOS && gqac_reply_stopped(l->reply) ? GQAC_FINISH_STOP : finish;
}

static void end_leg(leg *l, gqac_finish finish) {
    job *j = l->owner;
    l->ended = true;
    l->finish = finish;
    if (!--j->open || j->stream)
        job_touch(j);
}

void leg_drop(leg *l) {
    end_leg(l, GQAC_FINISH_CANCELLED);
}

void leg_end(leg *l, gqac_finish finish, const gqac_diag *why) {
    job *j = l->owner;
    serve *s = j->server;
    gqac_diag diag = {0};
    const char *text = "";
    size_t length = 0;
    if (why)
        diag = *why;
    finish = finish_text(l, finish, &diag);
    if (finish != GQAC_FINISH_CANCELLED && finish != GQAC_FINISH_FAILED)
        text = gqac_reply_take(l->reply, &length);
    pthread_mutex_lock(&s->lock);
    if (finish == GQAC_FINISH_FAILED)
        note(j, &diag);
    if (!add_text(l, text, length)) {
        serve_fail(&diag, GQAC_NO_MEMORY, "out of memory for an answer");
        note(j, &diag);
    }
    end_leg(l, finish);
    pthread_mutex_unlock(&s->lock);
}

/* An answer's rows are kept for prompts that continue it. */
static void keep(const leg *l, const gqac_request_end *end) {
    const serve *s = l->owner->server;
    if (!end->sequence || l->owner->cold || l->kind == LEG_COLD || !s->model.store ||
        end->finish == GQAC_FINISH_FAILED)
        return;
    if (l->kind == LEG_ANSWER && (l->owner->n > 1 || l->owner->scores))
        gqac_store_add(s->model.store, l->owner->tenant, end->sequence, NULL);
    if (s->saver && end->finish != GQAC_FINISH_CANCELLED)
        saver_add(s->saver, l->owner->tenant, end->sequence);
}

static void on_end(void *arg, const gqac_request_end *end) {
    leg *l = arg;
    job *j = l->owner;
    keep(l, end);
    pthread_mutex_lock(&j->server->lock);
    l->drafted = end->drafted_tokens;
    l->accepted = end->accepted_tokens;
    pthread_mutex_unlock(&j->server->lock);
    leg_end(l, end->finish, end->diag);
}

/* ---- submission, under the lock ------------------------------------------ */

static void set_limits(const leg *l, gqac_request *r) {
    const job *j = l->owner;
    const gqac_text_settings *x = gqac_text_get_settings(j->server->model.text);
    const int64_t left = j->server->most - (int64_t)l->prompt->n;
    r->max_new = j->max_new < left ? j->max_new : left;
    r->n_eos = j->n_ends;
    r->eos = j->ends;
    if (j->scores || j->verify || x->min_length > 0) {
        r->on_logits = on_logits;
        r->logits_arg = (void *)l;
    }
}

/* An answer to the whole prompt, or, with `from`, to its last token. */
static gqac_status submit_answer(leg *l, const gqac_sequence *from, gqac_diag *diag) {
    job *j = l->owner;
    const prompt *p = l->prompt;
    gqac_request r;
    gqac_sampling sampling = j->sampling;
    gqac_request_init(&r, from ? p->ids + p->n - 1 : p->ids, from ? 1 : p->n);
    set_limits(l, &r);
    sampling.request = (uint64_t)(l->index % j->n);
    r.sampling = &sampling;
    r.constraint = j->constraint ? j->constraint->made : NULL;
    r.from = from;
    r.tenant = j->tenant;
    r.cold = j->cold || l->kind == LEG_COLD;
    r.on_token = on_token;
    r.on_end = on_end;
    r.on_begin = l->kind == LEG_ANSWER && !from ? on_begin : NULL;
    r.on_progress = l->kind == LEG_ANSWER ? on_progress : NULL;
    r.on_row = l->kind == LEG_ANSWER && !from && j->echo && j->scores && p->n > 1 ? on_row : NULL;
    r.arg = l;
    return gqac_scheduler_submit(j->server->scheduler, &r, &l->number, diag);
}

/* The prompt that answers share has been computed: each answer continues a fork of it. */
static void on_prefix_end(void *arg, const gqac_request_end *end) {
    leg *l = arg;
    job *j = l->owner;
    gqac_diag diag = {0};
    pthread_mutex_lock(&j->server->lock);
    if (end->finish == GQAC_FINISH_FAILED)
        note(j, end->diag);
    for (int i = 0; i < j->n_answers; i++) {
        leg *answer = &j->legs[i];
        if (answer->prompt != l->prompt)
            continue;
        gqac_status status = GQAC_ABORTED;
        if (end->finish == GQAC_FINISH_LENGTH && !j->cancelled)
            status = submit_answer(answer, end->sequence, &diag);
        if (status != GQAC_OK && status != GQAC_ABORTED)
            note(j, &diag);
        if (status != GQAC_OK)
            end_leg(answer, end->finish == GQAC_FINISH_LENGTH ? GQAC_FINISH_FAILED : end->finish);
    }
    end_leg(l, end->finish);
    pthread_mutex_unlock(&j->server->lock);
}

static gqac_status submit_prefix(leg *l, gqac_diag *diag) {
    job *j = l->owner;
    gqac_request r;
    gqac_request_init(&r, l->prompt->ids, l->prompt->n - 1);
    r.max_new = 0;
    r.cold = j->cold;
    r.tenant = j->tenant;
    r.on_begin = on_begin;
    r.on_progress = on_progress;
    r.on_row = j->echo && j->scores ? on_row : NULL;
    r.on_end = on_prefix_end;
    r.arg = l;
    return gqac_scheduler_submit(j->server->scheduler, &r, &l->number, diag);
}

bool leg_submit_all(job *j, problem *p) {
    serve *s = j->server;
    gqac_diag diag = {0};
    gqac_status status = GQAC_OK;
    pthread_mutex_lock(&s->lock);
    if (s->model.seq2seq)
        encoder_submit(j);
    for (int i = 0; i < j->n_legs && !s->model.seq2seq; i++) {
        leg *l = &j->legs[i];
        if (status == GQAC_OK && !waits(j, l))
            status =
                l->kind == LEG_PREFIX ? submit_prefix(l, &diag) : submit_answer(l, NULL, &diag);
        if (status != GQAC_OK)
            break;
    }
    /* prefixes come last, so if one was submitted, its answers wait for it */
    for (int i = 0; status != GQAC_OK && i < j->n_legs; i++) {
        const bool awaits = waits(j, &j->legs[i]);
        bool prefixed = false;
        for (int k = 0; k < j->n_legs && awaits; k++)
            prefixed |= j->legs[k].kind == LEG_PREFIX && j->legs[k].number &&
                        j->legs[k].prompt == j->legs[i].prompt;
        if (!j->legs[i].number && !prefixed) {
            j->legs[i].ended = true;
            j->open--;
        }
    }
    j->cancelled = status != GQAC_OK;
    s->submitted = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    return status == GQAC_OK || problem_from(p, NULL, &diag);
}
