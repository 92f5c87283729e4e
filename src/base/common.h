/* What two lists of token ids have in common. */
#ifndef GQAC_BASE_COMMON_H
#define GQAC_BASE_COMMON_H

#include <stdint.h>

/* The number of leading ids, at most n, that are the same in both lists. */
static inline int64_t gqac_common_ids(const int64_t *a, const int64_t *b, int64_t n) {
    int64_t same = 0;
    while (same < n && a[same] == b[same])
        same++;
    return same;
}

#endif
