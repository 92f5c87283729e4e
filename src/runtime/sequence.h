/* A sequence: KV rows, the length that was declared or first seen, and the rope tables it chose.
 *
 * A program with states (kv.h) can be rewound only to lengths that have one. So its sequences keep
 * their token ids: rewind goes back further, and the next step computes what is missing again. */
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
    int64_t *ids, room;   /* of the others, if the program has states */
};

/* Room for the ids of `length` tokens, if the program has states. */
gqac_status sequence_reserve_ids(gqac_sequence *sequence, int64_t length, gqac_diag *diag);

#endif
