/* An open-addressing hash table: linear probing, at most half full, 16 bytes a slot.
 *
 * It maps hashes to pointers or numbers: dimensions, names, equal nodes, weights, tokens, merges.
 * The seed (an address) keeps hostile models from choosing names that collide; as nothing iterates
 * over a table, no output depends on it. Tables without a seed whose keys come from files limit
 * `reach` instead. Items are never removed. */
#ifndef GQAC_BASE_TABLE_H
#define GQAC_BASE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct gqac_slot {
    uint64_t hash, value; /* value 0: free */
} gqac_slot;

typedef struct gqac_table {
    gqac_arena *arena; /* NULL: memory of base/alloc.h, which gqac_table_free frees */
    uint64_t seed;
    size_t capacity, count; /* capacity: 0 or a power of two */
    size_t reach;           /* the largest distance of an item from the slot of its hash */
    gqac_slot *slots;
} gqac_table;

typedef bool gqac_table_same(const void *item, const void *key);

/* Makes an empty table in an arena, with a seed. A table of zeros is empty too, without arena and
 * seed. */
void gqac_table_init(gqac_table *table, gqac_arena *arena);
void gqac_table_free(gqac_table *table); /* of a table without an arena */
/* Makes the capacity at least twice n; false: out of memory. */
bool gqac_table_reserve(gqac_table *table, size_t n);
void *gqac_table_find(const gqac_table *table, uint64_t hash, gqac_table_same *same,
                      const void *key);
/* Adds an item that is not in the table; false: out of memory. */
bool gqac_table_add(gqac_table *table, uint64_t hash, void *item);
bool gqac_table_add_number(gqac_table *table, uint64_t hash, uint64_t value); /* not 0 */

/* Returns the first slot with this hash at or after index *at, and sets *at to its index; NULL:
 * there is none. A search begins with *at = hash and continues with *at + 1. */
static inline gqac_slot *gqac_table_slot(const gqac_table *table, uint64_t hash, size_t *at) {
    if (table->capacity == 0)
        return NULL;
    const size_t mask = table->capacity - 1;
    for (size_t i = *at & mask;; i = (i + 1) & mask) {
        gqac_slot *slot = table->slots + i;
        if (slot->value == 0)
            return NULL;
        if (slot->hash == hash) {
            *at = i;
            return slot;
        }
    }
}

static inline uint64_t gqac_hash_u64(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xD6E8FEB86659FD93);
    return hash ^ (hash >> 29);
}
uint64_t gqac_hash_bytes(uint64_t hash, const void *data, size_t bytes);

#endif
