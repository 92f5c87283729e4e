/* The parts of stateful: pairs become state (stateful.c), lengths come from the run time
 * (stateful_lengths.c). */
#ifndef GQAC_PASSES_STATEFUL_H
#define GQAC_PASSES_STATEFUL_H

#include "passes/rewrite.h"

enum { STATEFUL_PAST = 1 }; /* ir_value.id of the past of a pair; 0 of other graph inputs */

typedef struct stateful {
    pass_context *context;
    ir_graph *graph; /* the main graph */
    gqac_arena *scratch;
    int n_pairs;
    struct stateful_pair {
        ir_value *past;
        ir_node *concat;
        const char *present; /* name of the result */
    } * pairs;
    ir_value *past_len, *new_len; /* graph inputs of the run time */
    ir_value *total_len;          /* likewise; NULL when nothing asks for it */
} stateful;

/* Graph inputs past_len and new_len take the place of every seqlens_to_past. UNSUPPORTED when what
 * that reads depends on more than length inputs (the attention mask). */
gqac_status stateful_lengths(stateful *s);
/* Afterwards: what still asks for the length of the mask asks for total_len, and inputs that have
 * no uses any more go. UNSUPPORTED names a node that reads the mask otherwise, or inputs that a
 * sequence cannot feed. */
gqac_status stateful_inputs(stateful *s);

#endif
