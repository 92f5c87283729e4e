/* The codes that a sequence of a quantised kind keeps, as they are: for copies in the memory of a
 * device. kv.h, "Codes", defines them. */
#ifndef GQAC_KV_CODES_H
#define GQAC_KV_CODES_H

#include "kv/kv.h"

/* Bits of the codes of the coded slots, in sequences of that kind and in this one; 0: the kind
 * keeps no codes. */
int kv_kind_bits(const kv_kind *kind);
int kv_sequence_kind_bits(const kv_sequence *sequence);

/* Copy rows of one head of a slot that is kept as codes, and not as columns: codes
 * [count, kv_code_bytes(head_size)] and scales [count]. The positions are as for kv_write_head and
 * kv_read_head. */
void kv_write_codes(kv_sequence *sequence, int slot, int64_t head, int64_t position, int64_t count,
                    const void *codes, const float *scales);
void kv_read_codes(const kv_sequence *sequence, int slot, int64_t head, int64_t position,
                   int64_t count, void *codes, float *scales);

#endif
