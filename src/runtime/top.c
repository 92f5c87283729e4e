/* The likeliest ids: a heap of the best so far, with the worst of them at its root. */
#include "runtime/top.h"

#include <math.h>

#include "base/likelier.h"

static bool is_worse(const gqac_candidate *a, const gqac_candidate *b) {
    return gqac_likelier(b->logit, b->id, a->logit, a->id);
}

static void swap(gqac_candidate *a, gqac_candidate *b) {
    const gqac_candidate c = *a;
    *a = *b;
    *b = c;
}

static void rise(gqac_candidate *heap, int64_t at) {
    for (; at > 0 && is_worse(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
}

static void sink(gqac_candidate *heap, int64_t size) {
    int64_t at = 0;
    for (int64_t child = 1; child < size; child = 2 * at + 1) {
        if (child + 1 < size && is_worse(&heap[child + 1], &heap[child]))
            child++;
        if (!is_worse(&heap[child], &heap[at]))
            return;
        swap(&heap[at], &heap[child]);
        at = child;
    }
}

void top_select(const float *row, int64_t vocabulary, int64_t n, gqac_candidate *ids) {
    int64_t size = 0;
    for (int64_t id = 0; id < vocabulary; id++) {
        const gqac_candidate found = {.id = id, .logit = row[id]};
        if (isnan(row[id]) || (size == n && !is_worse(&ids[0], &found)))
            continue;
        if (size < n) {
            ids[size] = found;
            rise(ids, size++);
        } else {
            ids[0] = found;
            sink(ids, size);
        }
    }
    for (int64_t end = size; end > 1;) { /* the worst goes to the end */
        swap(&ids[0], &ids[--end]);
        sink(ids, end);
    }
    for (; size < n; size++)
        ids[size] = (gqac_candidate){.id = -1, .logit = NAN};
}
