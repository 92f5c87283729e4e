/* A step of several sequences from arrays: counts[i] ids of sequence i, concatenated in `tokens`,
 * and n_logits rows of logits for each. */
#ifndef GQAC_TEST_RUNTIME_STEPS_H
#define GQAC_TEST_RUNTIME_STEPS_H

#include <gqac/gqac.h>

enum { STEPS_MOST = 16 };

static inline gqac_status steps_run(gqac_context *context, int n, gqac_sequence *const *sequences,
                                    const int64_t *tokens, const int64_t *counts, int64_t n_logits,
                                    gqac_diag *diag) {
    gqac_step_item items[STEPS_MOST];
    for (int i = 0; i < n; i++) {
        items[i] = (gqac_step_item){.size = sizeof *items,
                                    .sequence = sequences[i],
                                    .tokens = tokens,
                                    .count = counts[i],
                                    .n_logits = n_logits};
        tokens += counts[i];
    }
    return gqac_step(context, n, items, diag);
}

#endif
