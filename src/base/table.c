/* The hash table (see table.h). When a table in an arena grows, its old slots stay in the arena;
 * that at most doubles its memory. */
#include "base/table.h"

#include <string.h>

#include "base/alloc.h"

uint64_t gqac_hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    hash = gqac_hash_u64(hash, bytes);
    while (bytes >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = gqac_hash_u64(hash, word);
        at += 8;
        bytes -= 8;
    }
    if (bytes) {
        uint64_t word = 0;
        memcpy(&word, at, bytes);
        hash = gqac_hash_u64(hash, word);
    }
    return hash;
}

void gqac_table_init(gqac_table *table, gqac_arena *arena) {
    memset(table, 0, sizeof *table);
    table->arena = arena;
    table->seed = gqac_hash_u64(UINT64_C(0x5851F42D4C957F2D), (uint64_t)(uintptr_t)table);
}

void gqac_table_free(gqac_table *table) {
    gqac_free(table->slots);
    *table = (gqac_table){0};
}

void *gqac_table_find(const gqac_table *table, uint64_t hash, gqac_table_same *same,
                      const void *key) {
    size_t at = (size_t)hash;
    for (gqac_slot *slot; (slot = gqac_table_slot(table, hash, &at)) != NULL; at++) {
        void *item = (void *)(uintptr_t)slot->value;
        if (same(item, key))
            return item;
    }
    return NULL;
}

static void place(gqac_table *table, gqac_slot slot) {
    size_t mask = table->capacity - 1, reach = 0;
    for (size_t i = (size_t)slot.hash & mask;; i = (i + 1) & mask, reach++)
        if (table->slots[i].value == 0) {
            table->slots[i] = slot;
            break;
        }
    if (reach > table->reach)
        table->reach = reach;
}

bool gqac_table_reserve(gqac_table *table, size_t n) {
    const gqac_table old = *table;
    size_t capacity = old.capacity ? old.capacity : 64;
    while (capacity / 2 < n)
        capacity *= 2;
    if (capacity == old.capacity)
        return true;
    gqac_slot *slots = old.arena ? GQAC_ARENA_ARRAY(old.arena, gqac_slot, capacity)
                                 : gqac_calloc(capacity, sizeof *slots);
    if (!slots)
        return false;
    table->slots = slots;
    table->capacity = capacity;
    table->reach = 0;
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].value)
            place(table, old.slots[i]);
    if (!old.arena)
        gqac_free(old.slots);
    return true;
}

bool gqac_table_add_number(gqac_table *table, uint64_t hash, uint64_t value) {
    if (!gqac_table_reserve(table, table->count + 1))
        return false;
    place(table, (gqac_slot){hash, value});
    table->count++;
    return true;
}

bool gqac_table_add(gqac_table *table, uint64_t hash, void *item) {
    return gqac_table_add_number(table, hash, (uint64_t)(uintptr_t)item);
}
