/* One request of gqac_generate or gqac_seq2seq_generate while it is answered: its ids, its text,
 * and its clock. */
#ifndef GQAC_LLM_ANSWER_H
#define GQAC_LLM_ANSWER_H

#include "llm/llm.h"
#include "llm/reply.h"
#include "llm/session.h"

typedef struct answer {
    gqac_generate_request own; /* what the caller asked for, as this library knows it */
    gqac_sampling sampling;
    const gqac_generate_request *request; /* own */
    gqac_session *session;                /* NULL: a decoder that has no sequences */
    int64_t *list;                        /* prompt and answer */
    size_t n, room;
    size_t limit; /* new ids at most: max_new, context of session and model */
    bool done;
    gqac_finish finish;
    reply reply;
    bool running;                    /* a forward has begun */
    double start, begin, end, first; /* seconds: of call and forward; to the first id */
    float *hooked;                   /* a row of logits for on_logits; NULL: not needed yet */
    gqac_scored_id *top;             /* [n_top] */
    double *forward;                 /* seconds, one for each new id */
    size_t n_forward, forward_room;
    int64_t reused, computed;
    int64_t again; /* tokens before the prompt's rest that its first step computes again */
} answer;

/* Checks the request and takes the prompt; the session is not touched. `decoder` is the program of
 * a request without a session, else NULL. On failure the caller still closes the answer. */
gqac_status answer_open(answer *a, const gqac_generate_request *request, const gqac_text *text,
                        const gqac_program *decoder, gqac_diag *diag);
void answer_close(answer *a);
/* Rewinds the session, which there is, to what it has of the prompt. */
gqac_status answer_begin(answer *a, gqac_diag *diag);
/* Before a step that takes part in the next forward. */
gqac_status answer_step(answer *a, gqac_diag *diag);
/* After a step that fed `count` ids. */
void answer_took(answer *a, int64_t count);
/* Ids that the sequence, which there is, does not hold yet. */
static inline size_t answer_pending(const answer *a) {
    return a->n - a->session->n;
}
static inline size_t answer_new(const answer *a) {
    return a->n - a->request->n_prompt;
}
/* Takes the logits [vocabulary] of the last id, chooses the next one and tells of it, as request
 * `index`. */
gqac_status answer_pick(answer *a, sampler *s, const float *logits, int64_t vocabulary, int index,
                        gqac_diag *diag);
void answer_finish(answer *a, gqac_finish finish);
/* What the caller gets. */
gqac_status answer_result(answer *a, gqac_generation **out, gqac_diag *diag);

#endif
