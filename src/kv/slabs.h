/* Pieces of one size, cut from slabs of some MiB on huge pages: attention reads every cached row
 * for every token, and with small pages, walking page tables would take longer than reading. */
#ifndef GQAC_KV_SLABS_H
#define GQAC_KV_SLABS_H

#include <pthread.h>
#include <stddef.h>

#include "base/budget.h"

typedef struct kv_slab kv_slab;

/* Thread-safe. */
typedef struct kv_slabs {
    size_t bytes; /* of a piece, a multiple of 64 */
    pthread_mutex_t lock;
    kv_slab *first;
    size_t taken;        /* pieces in use, of all slabs */
    gqac_budget *budget; /* for the bytes of slabs; NULL: none */
    size_t spare; /* bytes that a slab of several pieces must leave in the budget, in addition to
                     the budget's own spare bytes */
} kv_slabs;

void kv_slabs_open(kv_slabs *slabs, size_t bytes);
/* Frees all slabs. */
void kv_slabs_close(kv_slabs *slabs);
/* A piece, aligned to 64 bytes, uninitialised. NULL: out of memory. */
void *kv_slabs_take(kv_slabs *slabs);
/* The same from the slab with the fewest free pieces, so that others become empty and are freed. */
void *kv_slabs_take_dense(kv_slabs *slabs);
/* Returns a piece; a slab without pieces in use is freed. */
void kv_slabs_give(kv_slabs *slabs, void *piece);
size_t kv_slabs_taken(kv_slabs *slabs);
/* Bytes of the budget that a slab of one piece takes. */
size_t kv_slabs_least(const kv_slabs *slabs);

#endif
