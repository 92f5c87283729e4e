/* An open-addressing hash table of pointers, in an arena.
 *
 * It serves whoever looks up structure by hash: dimensions, names, equal nodes, weights. Nothing
 * iterates over a table, so its seed (an address) never shows in any output; the seed keeps hostile
 * models from choosing names that collide. Items are never removed. */
#ifndef GQAC_IR_TABLE_H
#define GQAC_IR_TABLE_H

#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct ir_slot {
    uint64_t hash;
    void *item;
} ir_slot;

typedef struct ir_table {
    gqac_arena *arena;
    uint64_t seed;
    size_t capacity, count; /* capacity: 0 or a power of two */
    ir_slot *slots;
} ir_table;

typedef bool ir_table_same(const void *item, const void *key);

void ir_table_init(ir_table *table, gqac_arena *arena);
void *ir_table_find(const ir_table *table, uint64_t hash, ir_table_same *same, const void *key);
/* Adds an item that is not in the table; false when memory is short. */
bool ir_table_add(ir_table *table, uint64_t hash, void *item);

uint64_t ir_hash_u64(uint64_t hash, uint64_t value);
uint64_t ir_hash_bytes(uint64_t hash, const void *data, size_t bytes);

#endif
