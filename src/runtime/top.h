/* The likeliest ids of a row of logits, on the host. */
#ifndef GQAC_RUNTIME_TOP_H
#define GQAC_RUNTIME_TOP_H

#include <gqac/sequence.h>

/* Sets ids[0..n) to those of the greatest logits of a row [vocabulary], in the order of
 * gqac_context_top. */
void top_select(const float *row, int64_t vocabulary, int64_t n, gqac_candidate *ids);

#endif
