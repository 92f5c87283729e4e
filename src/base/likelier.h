/* The order of likelihood of token ids: the greatest logit first, and among equal logits the lowest
 * id first. */
#ifndef GQAC_BASE_LIKELIER_H
#define GQAC_BASE_LIKELIER_H

#include <stdbool.h>
#include <stdint.h>

/* True if id `a` with logit `x` comes before id `b` with logit `y`; neither logit is NaN. */
static inline bool gqac_likelier(double x, int64_t a, double y, int64_t b) {
    return x > y || (x == y && a < b);
}

#endif
