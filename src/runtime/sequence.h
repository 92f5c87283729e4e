/* A sequence: KV rows, the length that was declared or first seen, and the rope tables it chose.
 *
 * A sequence keeps its token ids. Where a program has states (kv.h), it has rows only for lengths
 * that have one: rewind goes back further, and the next step computes what is missing again. */
#ifndef GQAC_RUNTIME_SEQUENCE_H
#define GQAC_RUNTIME_SEQUENCE_H

#include "runtime/program.h"

struct gqac_sequence {
    const gqac_program *program;
    kv_sequence *kv;
    int64_t final_length; /* as declared; 0: not */
    int64_t pinned;       /* gqac.total_len its guards were computed for; 0: no step yet */
    unsigned guards;      /* bit g: guard g took its then branch */
    bool imported;        /* rows came from elsewhere: guards are not computed yet */
    int64_t behind;       /* tokens of the length that `kv` has no rows for any more */
    int64_t given;        /* tokens before came with imported tensors: their ids are not known */
    int64_t *ids, room;   /* of the others */
};

/* Bytes of a slot of that many tokens, canonical; false when that is no size of memory. */
bool sequence_slot_bytes(const kv_slot *slot, int64_t tokens, size_t *bytes);
/* Room for the ids of `length` tokens. */
gqac_status sequence_reserve_ids(gqac_sequence *sequence, int64_t length, gqac_diag *diag);

#endif
