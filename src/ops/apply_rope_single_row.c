/* y [1,H*D] = rotary embedding of one row x [1,H*D] at a position of the tables cos, sin [M,D'/2]:
 * row `position` of what rope_dynamic_offset makes of many rows. */
#include "ops/attention.h"
#include "ops/build.h"

enum { X, COS, SIN, POSITION };

static const ir_attr_spec attrs[] = {
    {"head_size", IR_ATTR_INT, .required = true, .doc = "elements of a head, even"},
    OP_ATTR_INT("interleaved", 0, "pairs are neighbours (1) or half a head apart (0)"),
    {.name = NULL},
};

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    int64_t size = ir_attr_int(node, "head_size");
    if (size < 2 || size > INT32_MAX || size % 2 != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "head_size = %lld: a positive even number",
                (long long)size);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    int64_t width, size = ir_attr_int(node, "head_size");
    GQAC_TRY(attention_want_rank(node, X, 2, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, X, 0), ir_dim_const(op_dims(node), 1),
                                "rows of x", diag));
    if (ir_dim_is_const(op_in_dim(node, X, 1), &width) && (width < size || width % size != 0))
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "%lld columns are no multiple of head_size = %lld",
                (long long)width, (long long)size);
    const ir_dim *dims[2] = {ir_dim_const(op_dims(node), 1), op_in_dim(node, X, 1)};
    return op_set_type(node, 0, op_in_type(node, X).dtype, 2, dims, diag);
}

static void expand(ir_builder *b, ir_node *node, const op_options *options, ir_value **results) {
    ir_value *in[POSITION + 1];
    int64_t rows;
    (void)options;
    for (int i = X; i <= POSITION; i++)
        in[i] = ir_node_input(node, i);
    if (!ir_dim_is_const(op_in_dim(node, X, 0), &rows))
        op_refuse(b, node, "the number of rows of x is not constant: it must be 1");
    results[0] = OP_BUILD(b, "rope_dynamic_offset", .list = {POSITION + 1, in}, .of = node,
                          .same = {"head_size", "interleaved"});
}

const gqac_op gqac_op_apply_rope_single_row = {
    .schema = {.name = "apply_rope_single_row",
               .domain = "gqac",
               .since = 1,
               .inputs = "x cos sin position",
               .outputs = "y",
               .attrs = attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_LOCAL,
               .doc = "rotary embedding of one row x [1,H*D] at a position of the tables"},
    .infer = infer,
    .verify = verify,
    .expand = expand,
};
