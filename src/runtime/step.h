/* What the files of a step share: its items, and what is checked before anything runs. */
#ifndef GQAC_RUNTIME_STEP_H
#define GQAC_RUNTIME_STEP_H

#include "runtime/context.h"

/* What a step knows of an item. */
typedef struct step_item {
    gqac_step_item given;
    int64_t wanted;  /* rows of logits */
    int64_t pinned;  /* gqac.total_len */
    unsigned guards; /* guard bits */
    bool done;       /* its group has run */
} step_item;

/* One call over n items. */
typedef struct step {
    gqac_context *context;
    int n;
    step_item *items;
    bool again;   /* tokens that were computed before: their tables are chosen */
    int64_t kept; /* rows of logits so far, in the order of groups */
    int64_t rows; /* of logits in the whole step */
    int *members; /* of the group that runs: indices of items */
    int n_members;
    int64_t width; /* rows of token ids of a batch row: N, or S */
    gqac_diag *diag;
} step;

/* Tells which item a failure concerns. */
gqac_status step_at_item(const step *s, int i, gqac_status status);
/* Checks everything that items and sequences tell, and chooses the rope tables of each item. */
gqac_status step_check(step *s);

#endif
