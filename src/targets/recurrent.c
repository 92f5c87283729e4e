/* recurrent_attention: the recurrence of LinearAttention on states that sequences keep. For every
 * target; it has the speed of the machine by itself. */
#include "ops/linear_attention.h"
#include "targets/target.h"

enum { TOKEN = 3 };

static int slot_of(const op_call *call) {
    return (int)ir_attr_int(ir_node_input(call->node, TOKEN)->def, "slot");
}

static gqac_status check(op_call *call, const int64_t dims[4]) {
    const kv_batch *kv = call->kv;
    const kv_slot *slot = kv_sequence_slot(kv->sequences[0], slot_of(call));
    bool fits = slot && call->in[0]->dims[0] == (kv->packed ? 1 : kv->n) &&
                dims[1] == slot->heads && dims[2] == slot->rows && dims[3] == slot->head_size;
    for (int b = 0; b < kv->n; b++)
        fits = fits && kv->begin[b] + kv->count[b] <= call->in[0]->dims[1];
    if (!fits)
        GQAC_FAIL(call->diag, GQAC_INVALID_MODEL,
                  "recurrent_attention: a state [%lld,%lld,%lld] does not fit slot %d",
                  (long long)dims[1], (long long)dims[2], (long long)dims[3], slot_of(call));
    return op_output(call, 1, GQAC_TOKEN, 0, NULL);
}

static int64_t tokens(const op_call *call, int64_t b, int64_t *first) {
    *first = kv_batch_row(call->kv, b) * call->in[0]->dims[1] + call->kv->begin[b];
    return call->kv->count[b];
}

static const void *before(const op_call *call, int64_t b) {
    return kv_state_last(call->kv->sequences[b], slot_of(call));
}

static void *after(const op_call *call, int64_t b, int i, int64_t *count) {
    kv_sequence *sequence = call->kv->sequences[b];
    if (i == kv_states_due(sequence))
        return NULL;
    void *state = kv_state_due(sequence, slot_of(call), i, count);
    *count -= call->kv->past[b];
    return state;
}

gqac_status target_recurrent_attention(op_call *call) {
    const kv_slot *slot = call->kv ? kv_sequence_slot(call->kv->sequences[0], slot_of(call)) : NULL;
    if (!slot)
        GQAC_FAIL(call->diag, GQAC_INTERNAL, "recurrent_attention outside of a step");
    const linear_attention_states states = {.dtype = slot->dtype,
                                            .n = call->kv->n,
                                            .open = check,
                                            .tokens = tokens,
                                            .before = before,
                                            .after = after};
    return linear_attention_run(call, &states);
}
