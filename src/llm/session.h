/* A session as the generation loop sees it. Invariant between calls: ids[0 .. n) are the ids whose
 * rows the sequence holds; with kind "off" there are none, and while a forward goes on those of its
 * own sequence. */
#ifndef GQAC_LLM_SESSION_H
#define GQAC_LLM_SESSION_H

#include <gqac/text.h>

#include "base/diag.h"

struct gqac_session {
    const gqac_program *program;
    gqac_sequence *sequence; /* NULL between forwards of kind "off" */
    bool off;
    float *logits;   /* of the last id, where the program is stateless; NULL: it has sequences */
    bool tables;     /* the model may choose its rope tables by the length */
    int64_t context; /* 0: no bound */
    int64_t *ids;
    size_t n, capacity;
};

/* Keeps the rows of the longest common prefix with a prompt of n >= 1 ids, but not the last of
 * them, which is fed for its logits; returns how many. */
gqac_status session_keep(gqac_session *session, const int64_t *ids, size_t n, int64_t *kept,
                         gqac_diag *diag);
/* Before a forward that ends at `total` tokens. */
gqac_status session_begin(gqac_session *session, int64_t total, gqac_diag *diag);
/* Before and after a step that feeds n ids: only the first can fail. */
gqac_status session_reserve(gqac_session *session, size_t n, gqac_diag *diag);
void session_append(gqac_session *session, const int64_t *ids, size_t n);
/* Computes the rows of all n ids anew, with the rope tables of n tokens, in pieces of `chunk`; the
 * context holds the logits of the last piece. Adds what was fed to *computed. On failure the
 * session holds what it did, or nothing. */
gqac_status session_recompute(gqac_session *session, gqac_context *context, const int64_t *ids,
                              size_t n, int64_t chunk, int64_t *computed, gqac_diag *diag);
/* After a call: kind "off" holds nothing. */
void session_end(gqac_session *session);

/* UNSUPPORTED, with the input, when a stateless program takes more than the ids of a text. */
gqac_status whole_check(const gqac_program *program, gqac_diag *diag);
/* A forward over all ids where the program is stateless: its last row is session->logits. */
gqac_status whole_step(gqac_session *session, gqac_context *context, const int64_t *ids, size_t n,
                       gqac_diag *diag);

#endif
