/* A token id with its logit: one of the most likely ids of a row of logits (sequence.h). */
#ifndef GQAC_CANDIDATE_H
#define GQAC_CANDIDATE_H

#include <stdint.h>

typedef struct gqac_candidate {
    int64_t id;  /* -1: the row has no more logits that are not NaN */
    float logit; /* NaN for the id -1 */
} gqac_candidate;

#endif
