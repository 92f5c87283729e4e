/* The states of sequences that a recurrence reads and writes; see recurrent.h. */
#include "targets/recurrent.h"

#include "targets/kv_rows.h"

typedef struct states {
    const kv_batch *kv;
    int64_t rows; /* rows in each batch row */
    int slot;
} states;

static int64_t tokens(const void *arg, int64_t b, int64_t *first) {
    const states *s = arg;
    *first = kv_batch_row(s->kv, b) * s->rows + s->kv->begin[b];
    return s->kv->count[b];
}

static const void *before(const void *arg, int64_t b) {
    const states *s = arg;
    return kv_state_last(s->kv->sequences[b], s->slot);
}

static void *after(const void *arg, int64_t b, int i, int64_t *count) {
    const states *s = arg;
    kv_sequence *sequence = s->kv->sequences[b];
    if (i == kv_states_due(sequence))
        return NULL;
    void *state = kv_state_due(sequence, s->slot, i, count);
    *count -= s->kv->past[b];
    return state;
}

/* Checks the states of the slot against the operands, and the new rows against the step. */
static gqac_status fit(const target_call *call, const recurrence *r, int slot) {
    const kv_batch *kv = call->kv;
    const kv_slot *of = kv_sequence_slot(kv->sequences[0], slot);
    bool fits = of && r->out[0] == (kv->packed ? 1 : kv->n) && r->kv_heads == of->heads &&
                r->dk == of->rows && r->dv == of->head_size;
    for (int b = 0; b < kv->n; b++)
        fits = fits && kv->begin[b] + kv->count[b] <= r->tokens;
    if (!fits)
        OP_STOP(&call->work, GQAC_INVALID_MODEL,
                "recurrent_attention: a state [%lld,%lld,%lld] does not fit slot %d",
                (long long)r->kv_heads, (long long)r->dk, (long long)r->dv, slot);
    return GQAC_OK;
}

static gqac_status open_operands(const target_call *call, const target_recurrent_record *o,
                                 recurrence *r) {
    const recurrence_operands in = {.q = target_value(call, o->query),
                                    .k = target_value(call, o->key),
                                    .v = target_value(call, o->value),
                                    .decay = target_value(call, o->decay),
                                    .beta = target_value(call, o->beta)};
    return recurrence_fit(&call->work, &o->form, &in, r);
}

gqac_status target_recurrent_scratch(const target_call *call, int threads, const void *record,
                                     gqac_parts *parts) {
    recurrence r;
    GQAC_TRY(open_operands(call, record, &r));
    recurrence_measure(&r, threads, parts);
    return GQAC_OK;
}

gqac_status target_recurrent_run(target_call *call, const void *record) {
    const target_recurrent_record *o = record;
    recurrence r;
    if (!call->kv)
        OP_STOP(&call->work, GQAC_INTERNAL,
                "recurrent_attention can only run in a step of a sequence");
    GQAC_TRY(open_operands(call, o, &r));
    GQAC_TRY(fit(call, &r, o->slot));
    gqac_tensor y = {.dtype = r.q->dtype, .rank = 3, .dims = {r.out[0], r.out[1], r.out[2]}};
    target_give_token(call, o->token);
    GQAC_TRY(target_give(call, o->output, &y));
    const states s = {.kv = call->kv, .rows = r.tokens, .slot = o->slot};
    const recurrence_states all = {.dtype =
                                       kv_sequence_slot(call->kv->sequences[0], o->slot)->dtype,
                                   .n = call->kv->n,
                                   .arg = &s,
                                   .tokens = tokens,
                                   .before = before,
                                   .after = after};
    r.states = &all;
    r.y = &y;
    return recurrence_run(&call->work, &r);
}
