/* Lists of pairs of ids by hash, newest first. A search follows one list and compares backwards. */
#include "llm/lookup.h"

#include <string.h>

#include "base/alloc.h"
#include "base/table.h"

enum { CANDIDATES = 32, LISTED = 256, LEAST_HEADS = 1 << 10 };

static size_t slot_of(const lookup *l, const int64_t *ids, size_t end) {
    const uint64_t hash = gqac_hash_u64((uint64_t)ids[end - 1], (uint64_t)ids[end]);
    return (size_t)hash & (l->heads - 1);
}

static void add(lookup *l, const int64_t *ids, size_t end) {
    uint32_t *head = &l->head[slot_of(l, ids, end)];
    l->before[end] = *head;
    *head = (uint32_t)end + 1;
}

/* Makes at least as many lists as there are ids; when their number grows, all are rebuilt. */
static bool grow_heads(lookup *l, const int64_t *ids, size_t n) {
    size_t heads = l->heads ? l->heads : LEAST_HEADS;
    while (heads < n)
        heads *= 2;
    if (heads == l->heads)
        return true;
    uint32_t *head = gqac_calloc(heads, sizeof *head);
    if (!head)
        return false;
    gqac_free(l->head);
    l->head = head;
    l->heads = heads;
    for (size_t end = 1; end < l->n; end++)
        add(l, ids, end);
    return true;
}

bool lookup_add(lookup *l, const int64_t *ids, size_t n) {
    if (n < 2 || n - 1 <= l->n)
        return true;
    if (n > UINT32_MAX || !gqac_reserve(&l->before, n, &l->capacity, sizeof *l->before) ||
        !grow_heads(l, ids, n))
        return false;
    for (size_t end = l->n ? l->n : 1; end < n - 1; end++)
        add(l, ids, end);
    l->n = n - 1;
    return true;
}

/* Ids before `end` and `last`, these included, that are the same. */
static size_t compare(const int64_t *ids, size_t end, size_t last) {
    size_t same = 0;
    while (same < LOOKUP_LONGEST && same <= end && ids[end - same] == ids[last - same])
        same++;
    return same;
}

size_t lookup_find(const lookup *l, const int64_t *ids, size_t n, size_t *length) {
    size_t found = 0;
    *length = 0;
    if (n < 2 || !l->heads)
        return 0;
    uint32_t at = l->head[slot_of(l, ids, n - 1)];
    int candidates = 0;
    for (int i = 0; at && i < LISTED && candidates < CANDIDATES && *length < LOOKUP_LONGEST; i++) {
        const size_t end = at - 1, same = compare(ids, end, n - 1);
        candidates += same >= 2; /* else another pair with the same hash */
        if (same >= 2 && same > *length) {
            *length = same;
            found = end + 1;
        }
        at = l->before[end];
    }
    return found;
}

void lookup_free(lookup *l) {
    gqac_free(l->head);
    gqac_free(l->before);
    memset(l, 0, sizeof *l);
}
