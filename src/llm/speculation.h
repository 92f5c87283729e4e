/* Lossless speculation: ids that may follow are drafted and computed in the step of the id before.
 * Each next id is then chosen by its own row of logits, as without drafts. As long as that is the
 * drafted one, the row after it is right as well; the rows after the first wrong draft are taken
 * back. */
#ifndef GQAC_LLM_SPECULATION_H
#define GQAC_LLM_SPECULATION_H

#include "llm/answer.h"
#include "llm/drafts.h"

/* What the drafts of a call have in common. */
typedef struct speculating {
    payoff payoff;
    bool decode;     /* the next step has no tokens of prompts */
    int64_t members; /* its sequences */
    int64_t rows;    /* maximum number of rows of logits of one of them */
    double spent;    /* seconds that drafting took before this step */
} speculating;

/* Makes a->ahead, if the request speculates and the session allows it. */
gqac_status speculation_open(answer *a, gqac_diag *diag);
/* Takes back the drafts of a step whose ids were not chosen, so that the session has rows of the
 * answer only. */
void speculation_close(answer *a);
/* Before a step, after answer_step: appends drafts to the list, a->drafted ids after a->n, where
 * they pay. */
gqac_status speculation_draft(answer *a, speculating *all, gqac_diag *diag);
/* Removes the drafts: the step has failed with them. */
void speculation_drop(answer *a);
/* To be called after the step, when `right` drafts have become ids of the answer (`wrong`: a wrong
 * one followed them): rewinds the rows of the others. */
gqac_status speculation_settle(answer *a, int64_t right, bool wrong, gqac_diag *diag);

#endif
