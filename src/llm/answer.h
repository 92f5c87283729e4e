/* The state of one request of gqac_generate or gqac_seq2seq_generate: its ids, text and times. */
#ifndef GQAC_LLM_ANSWER_H
#define GQAC_LLM_ANSWER_H

#include "llm/llm.h"
#include "llm/reply.h"
#include "llm/session.h"

struct speculation;

typedef struct answer {
    gqac_generate_request own; /* a copy of the caller's, with defaults for fields that it lacks */
    gqac_sampling sampling;
    const gqac_generate_request *request; /* own */
    gqac_session *session;                /* NULL: a decoder that has no sequences */
    int64_t *list;                        /* prompt and answer */
    size_t n, capacity;
    size_t limit; /* maximum number of new ids: by max_new, and by the context of session and
                     model */
    bool done;
    gqac_finish finish;
    reply reply;
    bool running;                    /* a forward has begun */
    double start, begin, end, first; /* clock, in seconds: start of the call; begin and end of the
                                        last forward; time to the first id */
    float *hooked;       /* a row for on_logits and the constraint; NULL: not needed yet */
    gqac_scored_id *top; /* [n_top] */
    double *forward;     /* seconds of each forward */
    size_t n_forward, forward_capacity;
    int64_t reused, computed;
    int64_t again; /* cached tokens that the first step computes again, after a rewind */
    gqac_constraint_state *constraint; /* NULL: all texts are allowed */
    struct speculation *ahead;         /* NULL: no ids are drafted (speculation.h) */
    size_t drafted; /* drafts of the next step: they follow the n ids of the list */
    int64_t n_drafted, n_accepted;
} answer;

/* Checks the request and copies the prompt; the session stays unchanged. `decoder` is the program
 * of a request without a session, else NULL. The caller closes the answer also after a failure. */
gqac_status answer_open(answer *a, const gqac_generate_request *request, const gqac_text *text,
                        const gqac_program *decoder, gqac_diag *diag);
void answer_close(answer *a);
/* Rewinds the session, which must not be NULL, to the prefix that it shares with the prompt. */
gqac_status answer_begin(answer *a, gqac_diag *diag);
/* Before each step of a forward. */
gqac_status answer_step(answer *a, gqac_diag *diag);
/* After a step that appended `count` ids, and the drafts after them. */
void answer_took(answer *a, int64_t count);
/* Ids that the sequence does not hold yet; the session must not be NULL. */
static inline size_t answer_pending(const answer *a) {
    return a->n - a->session->n;
}
static inline size_t answer_new(const answer *a) {
    return a->n - a->request->n_prompt;
}
/* What the next id is chosen from: a row of logits [width], or its likeliest ids [width]. */
typedef struct answer_row {
    const float *logits; /* NULL: the ids */
    const gqac_candidate *top;
    int64_t width;
} answer_row;
/* How many of the likeliest ids suffice to choose the next one; 0: logits are needed. */
int64_t answer_needs(const answer *a);
/* Chooses the next id from the row of the last one and calls on_token, as request `index`. If
 * called again after the same step, chooses the id after a draft that was right. */
gqac_status answer_pick(answer *a, sampler *s, const answer_row *row, int index, gqac_diag *diag);
void answer_finish(answer *a, gqac_finish finish);
bool answer_is_eos(const answer *a, int64_t id);
/* A reading of the clock of the request. */
double answer_clock(const answer *a);
/* The result, which the caller frees. */
gqac_status answer_result(answer *a, gqac_generation **out, gqac_diag *diag);

#endif
