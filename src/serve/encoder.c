/* A model with an encoder: answers are computed one after another, in the order of their requests,
 * each by gqac_seq2seq_generate alone. So an answer has the ids of `gqac generate`, whatever waits
 * behind it.
 *
 * encoder_run and what it calls run on the thread that calls serve_run; the rest on the thread of
 * connections. */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_impl.h"

/* ---- the queue, under the lock ------------------------------------------- */

void encoder_submit(job *j) {
    queue *q = &j->server->queue;
    for (int i = 0; i < j->n_legs; i++) {
        leg *l = &j->legs[i];
        *(q->last ? &q->last->next_waiting : &q->first) = l;
        q->last = l;
        q->counts.waiting++;
    }
}

void encoder_cancel(job *j) {
    queue *q = &j->server->queue;
    leg **at = &q->first;
    q->last = NULL;
    while (*at) {
        leg *l = *at;
        if (l->owner != j) {
            q->last = l;
            at = &l->next_waiting;
            continue;
        }
        *at = l->next_waiting;
        q->counts.waiting--;
        q->counts.ended++;
        leg_drop(l);
    }
}

/* ---- an answer ----------------------------------------------------------- */

static void count_step(const leg *l, int64_t step) {
    serve *s = l->owner->server;
    gqac_scheduler_statistics *counts = &s->queue.counts;
    const bool cached = gqac_seq2seq_get_settings(s->model.seq2seq)->cached;
    pthread_mutex_lock(&s->lock);
    counts->steps++;
    counts->new_tokens++;
    counts->computed_tokens += (step == 1 ? (int64_t)l->prompt->n : 0) + (cached ? 1 : step);
    pthread_mutex_unlock(&s->lock);
}

static bool on_event(void *arg, const gqac_generate_event *event) {
    leg *l = arg;
    scored next = {.id = event->id, .log_probability = event->log_probability};
    gqac_diag diag = {0};
    const size_t bytes = (size_t)event->n_top * sizeof *next.top;
    next.top = bytes ? malloc(bytes) : NULL;
    if (bytes && !next.top)
        serve_fail(&diag, GQAC_NO_MEMORY, "out of memory for log-probabilities");
    if (next.top) {
        memcpy(next.top, event->top, bytes);
        next.n_top = event->n_top;
    }
    count_step(l, event->step);
    return leg_add(l, &next, event->eos, &diag);
}

/* Names the field of a prompt, or of an answer, that is too long for a table of positions or for
 * the memory, which nothing else uses, or has an id that the model does not have. Before the first
 * token, only the prompt has been read. */
static void name_field(const leg *l, const gqac_diag *diag) {
    job *j = l->owner;
    pthread_mutex_lock(&j->server->lock);
    if (!j->problem.status && !l->tokens.n)
        problem_set(&j->problem, 400, NULL, "prompt", "the model cannot read the prompt: %s",
                    diag->what);
    else if (!j->problem.status)
        problem_set(&j->problem, 400, NULL, "max_tokens",
                    "the decoder cannot continue after %zu tokens: %s; try: a smaller 'max_tokens'",
                    l->tokens.n, diag->what);
    pthread_mutex_unlock(&j->server->lock);
}

static gqac_finish generate(leg *l, gqac_diag *diag) {
    const job *j = l->owner;
    const serve_model *m = &j->server->model;
    gqac_sampling sampling = j->sampling;
    gqac_generate_request r;
    gqac_generation *said = NULL;
    const gqac_seq2seq_source source = {
        .size = sizeof source, .ids = l->prompt->ids, .n_ids = l->prompt->n};
    sampling.request = (uint64_t)(l->index % j->n);
    gqac_seq2seq_request_init(&r, m->seq2seq);
    r.max_new = j->max_new;
    r.n_eos = j->n_ends;
    r.eos = j->ends;
    r.sampling = &sampling;
    r.constraint = j->constraint ? j->constraint->made : NULL;
    r.n_top = j->n_top;
    r.ids_only = !j->scores;
    r.on_token = on_event;
    r.arg = l;
    /* without a text: the leg makes that of its ids */
    const gqac_status status =
        gqac_seq2seq_generate(m->seq2seq_context, NULL, &source, &r, &said, diag);
    if (status == GQAC_CAPACITY || (status == GQAC_OUT_OF_RANGE && *diag->where))
        name_field(l, diag);
    const gqac_finish finish = said                     ? said->finish
                               : status == GQAC_ABORTED ? GQAC_FINISH_CANCELLED
                                                        : GQAC_FINISH_FAILED;
    gqac_generation_free(said);
    return finish;
}

/* ---- the loop ------------------------------------------------------------ */

/* The monitor of the context. */
static bool is_cancelled(void *arg) {
    serve *s = arg;
    pthread_mutex_lock(&s->lock);
    const bool cancelled = s->queue.running->owner->cancelled;
    pthread_mutex_unlock(&s->lock);
    return cancelled;
}

gqac_status encoder_attach(serve *s, gqac_diag *diag) {
    const gqac_monitor monitor = {.size = sizeof monitor, .abort = is_cancelled, .arg = s};
    s->queue.counts.size = sizeof s->queue.counts;
    return gqac_seq2seq_context_set_monitor(s->model.seq2seq_context, &monitor, diag);
}

/* Waits for the next leg; NULL: the server stops. */
static leg *begin_next(serve *s) {
    queue *q = &s->queue;
    pthread_mutex_lock(&s->lock);
    while (!q->first && s->state != SERVE_STOPPED)
        pthread_cond_wait(&s->work, &s->lock);
    leg *l = q->running = q->first;
    if (l) {
        q->first = l->next_waiting;
        q->last = q->first ? q->last : NULL;
        q->counts.waiting--;
        q->counts.running++;
    }
    pthread_mutex_unlock(&s->lock);
    return l;
}

void encoder_run(serve *s) {
    for (leg *l; (l = begin_next(s));) {
        gqac_diag diag = {0};
        const gqac_finish finish = generate(l, &diag);
        pthread_mutex_lock(&s->lock); /* its place is free before its client knows that it ended */
        s->queue.running = NULL;
        s->queue.counts.running--;
        s->queue.counts.ended++;
        pthread_mutex_unlock(&s->lock);
        leg_end(l, finish, finish == GQAC_FINISH_FAILED ? &diag : NULL);
    }
}
