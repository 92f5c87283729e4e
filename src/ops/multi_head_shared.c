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

gqac_status multi_head_verify_zero(const ir_node *node, const char *const *attrs, int n,
                                   gqac_diag *diag) {
    for (int i = 0; i < n; i++)
        if (ir_attr_int(node, attrs[i]) != 0)
            OP_FAIL(node, diag, GQAC_UNSUPPORTED, "attribute %s = %lld: only 0 is supported",
                    attrs[i], (long long)ir_attr_int(node, attrs[i]));
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
             .ints = {{"right", m->causal ? 0 : -1}, {"align_end", valid != NULL || m->at_end}},
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

/* ---- one projection, one past -------------------------------------------- */

gqac_status multi_head_set_types(ir_node *node, gqac_dtype dtype, int past, const ir_dim *columns,
                                 const ir_dim *head_size, gqac_diag *diag) {
    ir_dims *dims = op_dims(node);
    const ir_dim *rows = op_in_dim(node, 0, 1), *keys = rows;
    if (ir_node_input(node, past))
        keys = ir_dim_add(dims, keys, op_in_dim(node, past, 3));
    const ir_dim *out[3] = {op_in_dim(node, 0, 0), rows, columns};
    const ir_dim *present[5] = {ir_dim_const(dims, 2), out[0],
                                ir_dim_const(dims, ir_attr_int(node, "num_heads")), keys,
                                head_size};
    GQAC_TRY(op_set_type(node, 0, dtype, 3, out, diag));
    return op_set_type(node, 1, dtype, 5, present, diag);
}

void multi_head_parts(ir_builder *b, ir_value *x, const int64_t widths[3], ir_value *parts[3]) {
    OP_BUILD(b, "Split", .in = {x, ir_build_i64s(b, 3, widths)}, .ints = {{"axis", 2}},
             .out = {&parts[0], &parts[1], &parts[2]});
}

static ir_value *both(ir_builder *b, ir_value *k, ir_value *v) {
    ir_value *axis = OP_I64S(b, 0);
    k = OP_BUILD(b, "Unsqueeze", .in = {k, axis});
    v = OP_BUILD(b, "Unsqueeze", .in = {v, axis});
    return OP_BUILD(b, "Concat", .in = {k, v}, .ints = {{"axis", 0}});
}

void multi_head_build_parts(ir_builder *b, const ir_node *node, ir_value *const parts[3],
                            ir_value *past, multi_head *m, ir_value **results) {
    const int64_t heads = ir_attr_int(node, "num_heads");
    m->q = multi_head_split(b, parts[0], heads);
    m->k = multi_head_split(b, parts[1], heads);
    m->v = multi_head_split(b, parts[2], heads);
    m->past_k = past ? multi_head_pick(b, past, 0, 0) : NULL;
    m->past_v = past ? multi_head_pick(b, past, 0, 1) : NULL;
    m->filter = ir_attr_float(node, "mask_filter_value");
    m->causal = ir_attr_int(node, "unidirectional") == 1;
    multi_head_build(b, m);
    results[0] = m->y;
    if (ir_node_output(node, 1))
        results[1] = both(b, m->present_k, m->present_v);
}

bool multi_head_mixes(const ir_node *node, int past) {
    return !ir_node_input(node, past) || !ir_attr_int(node, "unidirectional");
}
