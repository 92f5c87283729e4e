/* See multi_head.h. */
#include "ops/multi_head.h"

#include <math.h>

gqac_status multi_head_verify(const ir_node *node, gqac_diag *diag) {
    int64_t heads = ir_attr_int(node, "num_heads"), causal = ir_attr_int(node, "unidirectional");
    float scale = ir_attr_float(node, "scale"), filter = ir_attr_float(node, "mask_filter_value");
    if (heads < 1 || heads > INT32_MAX)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute num_heads = %lld must be positive",
                (long long)heads);
    if (causal != 0 && causal != 1)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute unidirectional = %lld: 0 or 1",
                (long long)causal);
    if (!isfinite(scale))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute scale = %g must be finite",
                (double)scale);
    if (isnan(filter))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute mask_filter_value is not a number");
    return GQAC_OK;
}

float multi_head_scale(ir_builder *b, const ir_node *node, const ir_dim *size) {
    float scale = ir_attr_float(node, "scale");
    int64_t d;
    if (scale != 0.0f)
        return scale;
    if (ir_dim_is_const(size, &d) && d > 0)
        return 1.0f / sqrtf((float)d);
    if (b->status == GQAC_OK)
        b->status = op_fail(node, b->diag, GQAC_UNSUPPORTED,
                            "the head size is not constant and there is no scale");
    return 1.0f;
}

ir_value *multi_head_split(ir_builder *b, ir_value *x, int64_t heads) {
    ir_node *split = op_build(b, "gqac", "split_heads", 1, &x, 1);
    if (split)
        ir_attr_set_int(split, "q", heads);
    return ir_build_result(b, split, 0);
}

ir_value *multi_head_pick(ir_builder *b, ir_value *x, int64_t axis, int64_t index) {
    ir_node *pick = op_build(b, "", "Gather", 2, (ir_value *[]){x, ir_build_i64(b, index)}, 1);
    if (pick)
        ir_attr_set_int(pick, "axis", axis);
    return ir_build_result(b, pick, 0);
}

/* past_rows, and past_rows + L, for every batch row: i64 [B]. */
static void buffer_rows(ir_builder *b, const multi_head *m, ir_value **before, ir_value **valid) {
    ir_node *cast = op_build(b, "", "Cast", 1, (ir_value *[]){m->past_rows}, 1);
    if (cast)
        ir_attr_set_dtype(cast, "to", GQAC_I64);
    ir_value *batch = op_build_lengths(b, m->k, 0, 1);
    ir_value *one =
        op_build1(b, "", "Reshape", 2,
                  (ir_value *[]){ir_build_result(b, cast, 0), ir_build_i64s(b, 1, (int64_t[]){1})});
    *before = op_build1(b, "", "Expand", 2, (ir_value *[]){one, batch});
    *valid = op_build1(b, "", "Add", 2, (ir_value *[]){*before, op_build_lengths(b, m->k, 2, 1)});
}

static ir_value *with_past(ir_builder *b, ir_value *past, ir_value *fresh, ir_value *before) {
    if (!past)
        return fresh;
    if (before)
        return op_build1(b, "", "TensorScatter", 3, (ir_value *[]){past, fresh, before});
    ir_node *concat = op_build(b, "", "Concat", 2, (ir_value *[]){past, fresh}, 1);
    if (concat)
        ir_attr_set_int(concat, "axis", 2);
    return ir_build_result(b, concat, 0);
}

/* Padding and bias as one addend; NULL without either. */
static ir_value *addend(ir_builder *b, const multi_head *m) {
    if (!m->padding)
        return m->bias;
    ir_node *padding =
        op_build(b, "gqac", "padding_bias", 3, (ir_value *[]){m->padding, m->q, m->present_k}, 1);
    if (padding) {
        ir_attr_set_float(padding, "value", m->filter);
        ir_attr_set_int(padding, "short", m->past_rows != NULL);
    }
    if (!m->bias)
        return ir_build_result(b, padding, 0);
    ir_node *cast = op_build(b, "", "Cast", 1, (ir_value *[]){m->bias}, 1);
    if (cast)
        ir_attr_set_dtype(cast, "to", GQAC_F32);
    return op_build1(b, "", "Add", 2,
                     (ir_value *[]){ir_build_result(b, padding, 0), ir_build_result(b, cast, 0)});
}

void multi_head_build(ir_builder *b, multi_head *m) {
    ir_value *before = NULL, *valid = NULL;
    if (m->past_rows)
        buffer_rows(b, m, &before, &valid);
    m->present_k = with_past(b, m->past_k, m->k, before);
    m->present_v = with_past(b, m->past_v, m->v, before);
    ir_value *mask = addend(b, m);
    ir_node *range = op_build(b, "gqac", "key_range", 4,
                              (ir_value *[]){m->q, m->present_k, m->past_k, valid}, 2);
    if (range) {
        ir_attr_set_int(range, "right", m->causal ? 0 : -1);
        ir_attr_set_int(range, "align_end", valid != NULL);
    }
    ir_node *attend =
        op_build(b, "gqac", "attend", 6,
                 (ir_value *[]){m->q, m->present_k, m->present_v, ir_build_result(b, range, 0),
                                ir_build_result(b, range, 1), mask},
                 m->wants_qk ? 2 : 1);
    if (attend) {
        ir_attr_set_float(attend, "scale", m->scale);
        ir_attr_set_int(attend, "qk_stage", 2);
        ir_attr_set_int(attend, "every", m->bias && !m->past_rows); /* a buffer has rows to spare */
    }
    m->y = ir_build_result(b, attend, 0);
    m->qk = m->wants_qk ? ir_build_result(b, attend, 1) : NULL;
}
