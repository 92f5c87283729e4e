/* kv_append of the cpu target: new rows go into the blocks of the sequences; plain rows [B,H,T,D]
 * are gathered only where something else than an attention kernel reads them. What reads them is a
 * fact of the graph, so it is the same in every call. */
#include "targets/cpu/kv.h"

#include <string.h>

#include "ops/kv_tail.h"

enum { K = 1, V = 2 }; /* inputs of attention and attend */

/* Is this operand keys or values of a kernel that reads blocks, or codes of them? As columns, only
 * keys are. key_range wants the number of rows alone. */
static bool reads_blocks(const ir_use *use, bool columns) {
    if (op_is(use->node, "gqac", "key_range"))
        return true;
    if (use->node->fused_into && op_is(use->node, "gqac", "kv_dequantise"))
        use = use == &use->node->inputs[0] ? use->node->outputs[0]->uses : use;
    const target_kernel *kernel = use->node->claim;
    const int64_t input = use - use->node->inputs;
    if (kernel && kernel->eval == cpu_kv_tail)
        return !columns && input == 0;
    return kernel && (kernel->eval == cpu_attention_run || kernel->eval == cpu_attend_run) &&
           !use->node->fused_into && input >= K && input <= (columns ? K : V);
}

/* Are all operands made of a value such ones? */
static bool only_blocks(const ir_value *rows, bool columns) {
    for (const ir_use *use = rows ? rows->uses : NULL; use; use = use->next)
        if (!reads_blocks(use, columns))
            return false;
    return true;
}

bool cpu_kv_columns(const ir_node *kv_state) {
    const ir_value *token = ir_node_output(kv_state, 0);
    bool read = false;
    for (const ir_use *use = token ? token->uses : NULL; use; use = use->next) {
        const ir_value *rows =
            op_is(use->node, "gqac", "kv_append") ? ir_node_output(use->node, 1) : NULL;
        if (!rows || !rows->uses || !only_blocks(rows, true))
            return false;
        read = true;
    }
    return read;
}

bool cpu_kv_only_blocks(const ir_node *kv_append) {
    return only_blocks(ir_node_output(kv_append, 1), false);
}

bool cpu_kv_in_blocks(const op_call *call, const ir_value *value, const gqac_tensor *rows) {
    return call->kv && !rows->data && value->def && op_is(value->def, "gqac", "kv_append");
}

typedef struct appending {
    const kv_batch *kv;
    const gqac_tensor *rows;
    int slot;
    size_t row_bytes;
    int64_t total;
    char *gathered; /* NULL: not wanted */
} appending;

/* Items are (batch row, head). */
static void append(void *arg, size_t begin, size_t end, int worker) {
    const appending *a = arg;
    const int64_t heads = a->rows->dims[1], new_rows = a->rows->dims[2];
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        const int64_t b = (int64_t)item / heads, h = (int64_t)item % heads;
        kv_sequence *sequence = a->kv->sequences[b];
        const char *from = (const char *)a->rows->data + item * (size_t)new_rows * a->row_bytes;
        kv_write_head(sequence, a->slot, h, a->kv->past[b], a->kv->count[b], from);
        if (a->gathered)
            kv_read_head(sequence, a->slot, h, 0, a->kv->past[b] + a->kv->count[b],
                         a->gathered + item * (size_t)a->total * a->row_bytes);
    }
}

/* token, new [B,H,S,D], past_len [B], new_len [B] -> token, rows [B,H,T,D], T = max(past + new). */
gqac_status cpu_kv_append(op_call *call) {
    const gqac_tensor *rows = call->in[1];
    const kv_batch *kv = call->kv;
    if (!kv || rows->rank != 4 || rows->dims[0] != kv->n)
        GQAC_FAIL(call->diag, GQAC_INTERNAL, "kv_append outside of a step");
    appending a = {.kv = kv, .rows = rows, .slot = (int)ir_attr_int(call->node, "slot")};
    GQAC_TRY(target_kv_check_rows(call, rows, a.slot));
    a.total = target_kv_total_rows(kv);
    a.row_bytes = (size_t)rows->dims[3] * (size_t)gqac_dtype_bits(rows->dtype) / 8;
    const int64_t dims[4] = {kv->n, rows->dims[1], a.total, rows->dims[3]};
    GQAC_TRY(op_output(call, 0, GQAC_TOKEN, 0, NULL));
    if (cpu_kv_only_blocks(call->node)) {
        call->out[1] = (gqac_tensor){.dtype = rows->dtype, .rank = 4};
        memcpy(call->out[1].dims, dims, sizeof dims);
    } else {
        GQAC_TRY(op_output(call, 1, rows->dtype, 4, dims));
        a.gathered = call->out[1].data;
    }
    const int64_t moved = a.gathered ? a.total : rows->dims[2];
    op_parallel(call, kv->n * rows->dims[1], 1 + moved * (int64_t)a.row_bytes / 8, append, &a);
    return GQAC_OK;
}

/* The rows before the new ones, one at a time from the blocks. */
gqac_status cpu_kv_tail(op_call *call) {
    const ir_value *value = ir_node_input(call->node, 0);
    const gqac_tensor *rows = call->in[0];
    if (!cpu_kv_in_blocks(call, value, rows))
        return op_of(call->node)->eval(call);
    const int32_t *past;
    GQAC_TRY(kv_tail_open(call, &past));
    const int64_t length = ir_attr_int(call->node, "length");
    const int slot = (int)ir_attr_int(value->def, "slot");
    const size_t width = (size_t)gqac_dtype_bits(rows->dtype) / 8;
    op_scratch scratch;
    GQAC_TRY(op_scratch_open(call, (size_t)rows->dims[3], width, &scratch));
    for (int b = 0; b < call->kv->n; b++)
        for (int64_t at = 0; at < length; at++) {
            const int64_t row = past[b] - length + at;
            if (row < 0)
                continue;
            kv_read_rows(call->kv->sequences[b], slot, row, 1, scratch.base, 1);
            kv_tail_put(call, b, at, scratch.base, width);
        }
    op_scratch_close(&scratch);
    return GQAC_OK;
}
