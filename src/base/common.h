/* Lists of token ids. */
#ifndef GQAC_BASE_COMMON_H
#define GQAC_BASE_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The number of leading ids, at most n, that are the same in both lists. */
static inline int64_t gqac_common_ids(const int64_t *a, const int64_t *b, int64_t n) {
    int64_t same = 0;
    while (same < n && a[same] == b[same])
        same++;
    return same;
}

static inline bool gqac_has_id(const int64_t *ids, size_t n, int64_t id) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

#endif
