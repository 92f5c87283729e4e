/* What block.c and sequence.c share: blocks and their place in memory. */
#ifndef GQAC_KV_IMPL_H
#define GQAC_KV_IMPL_H

#include <stdatomic.h>

#include "kv/kv.h"

/* GQAC_KV_BLOCK tokens of every slot: slot after slot, each [heads][GQAC_KV_BLOCK][head_size], or
 * [heads][head_size][GQAC_KV_BLOCK] where the slot says `columns`. */
typedef struct kv_block {
    atomic_size_t references;
    _Alignas(64) unsigned char data[];
} kv_block;

/* A new block with one reference, its rows NaN bytes; NULL when memory is short. */
kv_block *kv_block_create(kv_pool *pool);
/* A new block with the first `rows` rows of `old`; the others are NaN bytes. */
kv_block *kv_block_copy(kv_pool *pool, const kv_block *old, int64_t rows);
/* Makes the rows from `row` on NaN bytes again. */
void kv_block_forget(kv_pool *pool, kv_block *block, int64_t row);
kv_block *kv_block_share(kv_block *block);
void kv_block_release(kv_pool *pool, kv_block *block);
/* Offset of a slot within data, and bytes of one row of one head. */
size_t kv_slot_offset(const kv_pool *pool, int slot);
size_t kv_slot_row_bytes(const kv_pool *pool, int slot);
/* Bytes of one element. */
size_t kv_slot_width(const kv_pool *pool, int slot);

#endif
