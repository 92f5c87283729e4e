/* See multi_head.h. */
#include "ops/multi_head.h"

#include <math.h>

#include "ops/build.h"

gqac_status multi_head_verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "num_heads", 1, INT32_MAX, diag));
    GQAC_TRY(op_check_int(node, "unidirectional", 0, 1, diag));
    GQAC_TRY(op_check_float(node, "scale", true, diag));
    if (isnan(ir_attr_float(node, "mask_filter_value")))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute mask_filter_value is not a number");
    return GQAC_OK;
}

ir_value *multi_head_split(ir_builder *b, ir_value *x, int64_t heads) {
    return OP_BUILD(b, "split_heads", .in = {x}, .ints = {{"q", heads}});
}

ir_value *multi_head_pick(ir_builder *b, ir_value *x, int64_t axis, int64_t index) {
    return OP_BUILD(b, "Gather", .in = {x, ir_build_i64(b, index)}, .ints = {{"axis", axis}});
}

/* past_rows, and past_rows + L, for every batch row: i64 [B]. */
static void buffer_rows(ir_builder *b, const multi_head *m, ir_value **before, ir_value **valid) {
    ir_value *rows = op_build_cast(b, m->past_rows, GQAC_I64);
    ir_value *batch = op_build_lengths(b, m->k, 0, 1);
    *before = OP_BUILD(b, "Expand", .in = {OP_RESHAPE(b, rows, 1), batch});
    *valid = OP_BUILD(b, "Add", .in = {*before, op_build_lengths(b, m->k, 2, 1)});
}

static ir_value *with_past(ir_builder *b, ir_value *past, ir_value *fresh, ir_value *before) {
    if (past && before)
        return OP_BUILD(b, "TensorScatter", .in = {past, fresh, before});
    return attention_with_past(b, past, fresh);
}

/* Padding and bias as one addend; NULL without either. */
static ir_value *addend(ir_builder *b, const multi_head *m) {
    if (!m->padding)
        return m->bias;
    ir_value *padding =
        OP_BUILD(b, "padding_bias", .in = {m->padding, m->q, m->present_k},
                 .floats = {{"value", m->filter}}, .ints = {{"short", m->past_rows != NULL}});
    if (!m->bias)
        return padding;
    if (m->past_rows && m->padding->type.rank == 1) { /* the bias has only T columns of M */
        ir_value *columns = op_build_lengths(b, m->bias, 3, 1);
        padding = OP_BUILD(b, "Slice", .in = {padding, OP_I64S(b, 0), columns, OP_I64S(b, 3)});
    }
    return OP_BUILD(b, "Add", .in = {padding, op_build_cast(b, m->bias, GQAC_F32)});
}

void multi_head_build(ir_builder *b, multi_head *m) {
    ir_value *before = NULL, *valid = NULL, *lo, *hi;
    if (m->past_rows)
        buffer_rows(b, m, &before, &valid);
    m->present_k = with_past(b, m->past_k, m->k, before);
    m->present_v = with_past(b, m->past_v, m->v, before);
    ir_value *mask = addend(b, m);
    OP_BUILD(b, "key_range", .in = {m->q, m->present_k, m->past_k, valid},
             .ints = {{"right", m->causal ? 0 : -1}, {"align_end", valid != NULL}},
             .out = {&lo, &hi});
    OP_BUILD(
        b, "attend", .in = {m->q, m->present_k, m->present_v, lo, hi, mask},
        .floats = {{attention_scale_name(m->scale), m->scale}},
        .ints = {{"qk_stage", 2},
                 {"every",
                  m->bias &&
                      !m->past_rows}}, /* a buffer may have more rows than the bias has columns */
        .out = {&m->y, m->wants_qk ? &m->qk : NULL});
}
