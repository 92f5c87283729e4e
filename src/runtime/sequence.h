/* A sequence: KV rows, the length that was declared or first seen, and the rope tables it chose. */
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
};

#endif
