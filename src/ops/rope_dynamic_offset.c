/* y [R,H*D] = rotary embedding of x [R,H*D] by tables cos, sin [M,D'/2], D' <= D, head by head: row
 * r has the position offset + r. offset is an integer of one element that is known when the graph
 * runs, so that one graph serves every step. Becomes rotary. */
#include "ops/build.h"
#include "ops/rotary.h"

enum { X, COS, SIN, OFFSET };

const ir_attr_spec rope_attrs[] = {
    {"head_size", IR_ATTR_INT, .required = true, .doc = "elements of a head, even"},
    OP_ATTR_INT("interleaved", 0, "pairs are neighbours (1) or half a head apart (0)"),
    {.name = NULL},
};

gqac_status rope_verify(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_int(node, "head_size", 2, INT32_MAX, diag));
    if (ir_attr_int(node, "head_size") % 2 != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute head_size = %lld: must be even",
                (long long)ir_attr_int(node, "head_size"));
    return op_check_int(node, "interleaved", 0, 1, diag);
}

gqac_status rope_check_rows(const ir_node *node, gqac_diag *diag) {
    int64_t width, size = ir_attr_int(node, "head_size");
    GQAC_TRY(attention_want_rank(node, X, 2, diag));
    if (ir_dim_is_const(op_in_dim(node, X, 1), &width) && (width < size || width % size != 0))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "%lld columns are not a multiple of head_size = %lld", (long long)width,
                (long long)size);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    int64_t half, size = ir_attr_int(node, "head_size");
    for (int i = X; i <= SIN; i++) {
        GQAC_TRY(attention_want_rank(node, i, 2, diag));
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
    }
    GQAC_TRY(op_check_dtype(node, OFFSET, OP_INDICES | OP_BIT(U32), diag));
    GQAC_TRY(rope_check_rows(node, diag));
    if (ir_dim_is_const(op_in_dim(node, COS, 1), &half) && half > size / 2)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "tables have %lld columns, too many for heads of %lld elements", (long long)half,
                (long long)size);
    const ir_dim *dims[2] = {op_in_dim(node, X, 0), op_in_dim(node, X, 1)};
    return op_set_type(node, 0, op_in_type(node, X).dtype, 2, dims, diag);
}

/* Splits x into heads, rotates them by positions from the offset on, and merges them. */
static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    int64_t width = 0;
    (void)options;
    if (!ir_dim_is_const(op_in_dim(node, X, 1), &width))
        op_refuse(b, node, "the number of columns of x is not constant");
    ir_value *axis = OP_I64S(b, 0);
    ir_value *x = OP_BUILD(b, "Unsqueeze", .in = {ir_node_input(node, X), axis});
    x = OP_BUILD(b, "split_heads", .in = {x},
                 .ints = {{"q", width / ir_attr_int(node, "head_size")}});
    ir_value *start = op_build_cast(b, ir_node_input(node, OFFSET), GQAC_I64);
    start = OP_RESHAPE(b, start, 1);
    x = OP_BUILD(b, "rotary",
                 .in = {x, ir_node_input(node, COS), ir_node_input(node, SIN), NULL, NULL, start},
                 .of = node, .same = {"interleaved"});
    x = OP_BUILD(b, "merge_heads", .in = {x});
    results[0] = OP_BUILD(b, "Squeeze", .in = {x, axis});
}

const gqac_op gqac_op_rope_dynamic_offset = {
    .schema = {.name = "rope_dynamic_offset",
               .domain = "gqac",
               .since = 1,
               .inputs = "x cos sin offset",
               .outputs = "y",
               .attrs = rope_attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_STATE,
               .doc = "rotary embedding of x [R,H*D]: row r has the position offset + r"},
    .infer = infer,
    .verify = rope_verify,
    .expand = expand,
};
