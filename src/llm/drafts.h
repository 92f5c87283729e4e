/* Drafts of one text: how many there may be, what they are, and what became of them. gqac_generate
 * and the scheduler draft with this; each computes and accepts its drafts itself. */
#ifndef GQAC_LLM_DRAFTS_H
#define GQAC_LLM_DRAFTS_H

#include <gqac/constraint.h>
#include <gqac/program.h>

#include "llm/lookup.h"
#include "llm/payoff.h"

/* Where drafts come from: matches of at least 2, 4 and 8 ids, and a second program. */
enum { DRAFTS_SHORT, DRAFTS_MIDDLE, DRAFTS_LONG, DRAFTS_PROGRAM, DRAFTS_SOURCES };

typedef struct drafts { /* all fields but `sources` begin as 0 */
    lookup lookup;
    draft_source *sources; /* [DRAFTS_SOURCES], which texts may share */
    int source;            /* of the last drafts */
} drafts;

/* Why nothing can be drafted with this program, in a few words; NULL: it can. */
const char *drafts_refusal(const gqac_program *program);
/* True if rows cannot be taken back one by one, because the model has recurrent states: accepted
 * drafts are computed again after a wrong one. */
bool drafts_cost_again(const gqac_program *program);
/* The maximum number of drafts in a step: `wanted`, but no more than an answer of `left` further
 * ids can have, none at the last of `positions` further positions, and no more than every kind of
 * cache can take back. */
int64_t drafts_most(int64_t wanted, int64_t left, int64_t positions);

typedef struct drafts_wanted {
    int64_t most;    /* drafts of this text */
    int64_t members; /* texts that share the step */
    bool again;      /* drafts_cost_again */
    bool no_short;   /* no drafts by matches of less than 4 ids */
} drafts_wanted;
/* Drafts by lookup, as many as pay: writes what followed the longest match after the n ids of
 * `list`, which has the capacity, and sets *drafted to their number. NO_MEMORY. */
gqac_status drafts_look_up(drafts *d, const payoff *p, const drafts_wanted *wanted, int64_t *list,
                           size_t n, size_t *drafted, gqac_diag *diag);
/* Reduces *n to the leading ids that the constraint (NULL: none) allows after its present state, up
 * to and including the first end-of-text id. NO_MEMORY. */
gqac_status drafts_check(const gqac_constraint_state *constraint, int n_eos, const int64_t *eos,
                         const int64_t *ids, size_t *n, gqac_diag *diag);
/* Records the outcome of the last drafts: `right` were accepted; `wrong`: a wrong one followed
 * them. */
void drafts_take(drafts *d, int64_t right, bool wrong);
/* The last drafts were given up before they were computed: their source rests. */
void drafts_rest(drafts *d);
void drafts_free(drafts *d);

#endif
