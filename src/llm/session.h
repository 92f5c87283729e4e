/* Sessions, for the generation loop. Between calls ids[0 .. n) are the ids of the tokens in the
 * sequence. With kind "off" there is a sequence, and n > 0, only during a forward. */
#ifndef GQAC_LLM_SESSION_H
#define GQAC_LLM_SESSION_H

#include <gqac/text.h>

#include "base/diag.h"

struct gqac_session {
    const gqac_program *program;
    gqac_sequence *sequence; /* NULL between forwards of kind "off" */
    bool off;
    float *logits;     /* of the last id, if the program is stateless; NULL: it is for sequences */
    bool tables;       /* the model has a LongRoPE threshold */
    int64_t context;   /* maximum number of tokens; 0: none */
    gqac_store *store; /* NULL: none */
    const char *tenant;
    int64_t *ids;
    size_t n, capacity;
};

/* Keeps the rows of the longest common prefix with a prompt of n >= 1 ids, but at most n - 1,
 * because the last id is computed for its logits. *kept is their number. */
gqac_status session_keep(gqac_session *session, const int64_t *ids, size_t n, int64_t *kept,
                         gqac_diag *diag);
/* Before a forward after which the sequence has `total` tokens. */
gqac_status session_begin(gqac_session *session, int64_t total, gqac_diag *diag);
/* Before and after a step that appends n ids. */
gqac_status session_reserve(gqac_session *session, size_t n, gqac_diag *diag);
void session_append(gqac_session *session, const int64_t *ids, size_t n);
/* Computes the rows of all n ids again, with the rope tables of n tokens, in chunks of at most
 * `chunk` tokens; the context then has the logits of the last id. Adds the computed tokens to
 * *computed. On failure the session is unchanged, or empty. */
gqac_status session_recompute(gqac_session *session, gqac_context *context, const int64_t *ids,
                              size_t n, int64_t chunk, int64_t *computed, gqac_diag *diag);
/* After a forward: frees the sequence of kind "off". */
void session_end(gqac_session *session);

/* UNSUPPORTED: a stateless program has inputs that do not follow from the ids, or no logits. */
gqac_status whole_check(const gqac_program *program, gqac_diag *diag);
/* Runs all ids through a stateless program and copies the last row of logits to the session. */
gqac_status whole_step(gqac_session *session, gqac_context *context, const int64_t *ids, size_t n,
                       gqac_diag *diag);

#endif
