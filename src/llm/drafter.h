/* Drafts by a second, smaller program, which has a session of its own. */
#ifndef GQAC_LLM_DRAFTER_H
#define GQAC_LLM_DRAFTER_H

#include "llm/answer.h"

typedef struct drafter {   /* zeros: there is none */
    gqac_session *session; /* NULL: there is none */
    gqac_context *context;
    sampler *sampler;
    int64_t vocabulary;
    float *row;    /* logits that a constraint masks; NULL: not needed yet */
    size_t agreed; /* ids of the session that are known to be those of the answer */
    bool ended; /* it cannot continue this answer: an id that it does not have, or its capacity */
} drafter;

/* The session and context of the request. UNSUPPORTED: its program cannot be sampled from. */
gqac_status drafter_open(drafter *d, const gqac_generate_request *request, gqac_diag *diag);
void drafter_close(drafter *d);
/* Drafts at most `count` ids after those of the answer, chosen as the answer's are: writes them to
 * its list, which has the capacity, and sets a->drafted. *caught_up: the number of ids that the
 * session lacked and that were computed first. Failures that concern only the drafts are not
 * reported. */
gqac_status drafter_draft(drafter *d, answer *a, int64_t count, size_t *caught_up, gqac_diag *diag);

#endif
