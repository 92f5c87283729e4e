/* Private to the step: its items, and the checks before anything runs. */
#ifndef GQAC_RUNTIME_STEP_H
#define GQAC_RUNTIME_STEP_H

#include "runtime/context.h"

/* An item and what the checks found out. */
typedef struct step_item {
    gqac_step_item given;
    int64_t wanted;  /* rows of logits */
    int64_t pinned;  /* gqac.total_len */
    unsigned guards; /* as in gqac_sequence */
    bool done;       /* its group has run */
} step_item;

/* The arrays of the group that runs, of n members. Cells are its rows of token ids, padding
 * included; if the graph takes embeddings, they replace ids. */
typedef struct step_group {
    int64_t *positions;          /* [planes][cells] */
    int64_t *logit_rows;         /* [cells]; the rows of logits that are wanted come first */
    void *ids;                   /* [cells], or [cells][width] of the embeddings */
    int32_t *past_len, *new_len; /* [n], inputs of the graph */
    kv_sequence **sequences;     /* [n] each, as kv_batch has them */
    int64_t *past, *count, *begin, *common;
} step_group;

/* One call over n items. */
typedef struct step {
    gqac_context *context;
    int n;
    step_item *items;
    bool again;   /* the tokens were computed before, so their rope tables are chosen */
    int64_t kept; /* number of rows of logits kept so far, in the order of groups */
    int64_t rows; /* number of rows of logits in the whole step */
    int64_t top;  /* likeliest ids of each row; 0: no item wants them */
    bool logits;  /* an item wants logits themselves */
    int *members; /* indices of the items in the group that runs */
    int n_members;
    step_group group;
    int64_t width; /* columns of the token ids: N if packed, else S */
    gqac_diag *diag;
} step;

/* Records in the diag that a failure concerns item i; returns the status. */
gqac_status step_at_item(const step *s, int i, gqac_status status);
/* Checks items and sequences, and chooses the rope tables of each item. */
gqac_status step_check(step *s);

#endif
