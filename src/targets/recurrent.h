/* recurrent_attention: the recurrence of LinearAttention on states that sequences keep. All targets
 * use it, because plain C is fast enough. */
#ifndef GQAC_TARGETS_RECURRENT_H
#define GQAC_TARGETS_RECURRENT_H

#include "ops/recurrence.h"
#include "targets/call.h"

typedef struct target_recurrent_record {
    recurrence_form form;
    int slot;
    int query, key, value, decay, beta; /* operands */
    int output, token;                  /* results */
} target_recurrent_record;
/* INTERNAL: outside a step. */
gqac_status target_recurrent_run(target_call *call, const void *record);
gqac_status target_recurrent_scratch(const target_call *call, int threads, const void *record,
                                     gqac_parts *parts);

#endif
