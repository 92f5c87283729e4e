/* The hash table of src/ir (see table.h): linear probing, at most half full. Growth leaves the old
 * slots to the arena, which at most doubles what the table takes. */
#include "ir/table.h"

#include <string.h>

uint64_t ir_hash_u64(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xD6E8FEB86659FD93);
    return hash ^ (hash >> 29);
}

uint64_t ir_hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    hash = ir_hash_u64(hash, bytes);
    while (bytes >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = ir_hash_u64(hash, word);
        at += 8;
        bytes -= 8;
    }
    if (bytes) {
        uint64_t word = 0;
        memcpy(&word, at, bytes);
        hash = ir_hash_u64(hash, word);
    }
    return hash;
}

void ir_table_init(ir_table *table, gqac_arena *arena) {
    memset(table, 0, sizeof *table);
    table->arena = arena;
    table->seed = ir_hash_u64(UINT64_C(0x5851F42D4C957F2D), (uint64_t)(uintptr_t)table);
}

void *ir_table_find(const ir_table *table, uint64_t hash, ir_table_same *same, const void *key) {
    if (table->capacity == 0)
        return NULL;
    size_t mask = table->capacity - 1;
    for (size_t i = (size_t)hash & mask; table->slots[i].item; i = (i + 1) & mask)
        if (table->slots[i].hash == hash && same(table->slots[i].item, key))
            return table->slots[i].item;
    return NULL;
}

static void place(ir_slot *slots, size_t capacity, ir_slot slot) {
    size_t mask = capacity - 1;
    size_t i = (size_t)slot.hash & mask;
    while (slots[i].item)
        i = (i + 1) & mask;
    slots[i] = slot;
}

bool ir_table_add(ir_table *table, uint64_t hash, void *item) {
    if (2 * (table->count + 1) > table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 64;
        ir_slot *slots = GQAC_ARENA_ARRAY(table->arena, ir_slot, capacity);
        if (!slots)
            return false;
        for (size_t i = 0; i < table->capacity; i++)
            if (table->slots[i].item)
                place(slots, capacity, table->slots[i]);
        table->slots = slots;
        table->capacity = capacity;
    }
    place(table->slots, table->capacity, (ir_slot){hash, item});
    table->count++;
    return true;
}
