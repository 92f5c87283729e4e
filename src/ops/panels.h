/* The weight of `linear` [K,N], packed: panels of 64 columns, each [K][64] with zeros after the
 * last column. Kernels read a panel from its first byte to its last, whatever the number of
 * rows. */
#ifndef GQAC_OPS_PANELS_H
#define GQAC_OPS_PANELS_H

#include <gqac/tensor.h>
#include <stdbool.h>
#include <stdint.h>

enum { LINEAR_PANEL = 64 };

static inline int64_t linear_panels(int64_t n) {
    return n / LINEAR_PANEL + (n % LINEAR_PANEL != 0);
}

/* True if the tensor has the shape of a packed weight [k,n]. */
static inline bool linear_is_packed(const gqac_tensor *w, int64_t k, int64_t n) {
    return w->rank == 3 && w->dims[0] == linear_panels(n) && w->dims[1] == k &&
           w->dims[2] == LINEAR_PANEL;
}

/* The weight of `linear_bf16` [K,N] as bf16 factors: panels of 64 columns, each [ceil(K/2)][64]
 * pairs of an even k and the next odd one, with zeros after the last k and column. */
enum { LINEAR_PAIRS = 2 * LINEAR_PANEL }; /* elements of a line of pairs */

static inline int64_t linear_pairs(int64_t k) {
    return k / 2 + k % 2;
}

static inline bool linear_is_pairs(const gqac_tensor *w, int64_t k, int64_t n) {
    return w->rank == 3 && w->dims[0] == linear_panels(n) && w->dims[1] == linear_pairs(k) &&
           w->dims[2] == LINEAR_PAIRS;
}

#endif
