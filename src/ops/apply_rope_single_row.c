/* y [1,H*D] = rotary embedding of one row x [1,H*D] at a position of the tables cos, sin [M,D'/2].
 * The case of one row of rope_dynamic_offset. */
#include "ops/build.h"
#include "ops/rotary.h"

enum { X, COS, SIN, POSITION };

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(rope_check_rows(node, diag));
    GQAC_TRY(attention_same_dim(node, op_in_dim(node, X, 0), ir_dim_const(op_dims(node), 1),
                                "rows of x", diag));
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
               .attrs = rope_attrs,
               .flags = IR_OP_LOWER,
               .rows = IR_ROWS_LOCAL,
               .doc = "rotary embedding of one row x [1,H*D] at a position of the tables"},
    .infer = infer,
    .verify = rope_verify,
    .expand = expand,
};
