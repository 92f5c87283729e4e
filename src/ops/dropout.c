/* Dropout at inference: output = data, mask = all true. Source: ONNX operator spec.
 * Training (training_mode true with a ratio above 0) is refused. Before opset 12 the ratio was an
 * attribute, and there was no training_mode. */
#include "ops/copy.h"

#include <string.h>

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const ir_value *mode = ir_node_input(node, 2);
    const gqac_tensor *value = mode ? mode->constant : NULL;
    if (value && value->data && gqac_tensor_count(value) == 1 && op_get_i64(value, 0))
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "training_mode is true, but only inference is supported");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type type = op_in_type(node, 0);
    GQAC_TRY(op_set_type_like(node, 0, type, diag));
    type.dtype = GQAC_BOOL;
    return op_set_type_like(node, 1, type, diag);
}

static gqac_status eval(op_call *call) {
    const ir_node *node = call->node;
    int64_t training = 0;
    GQAC_TRY(op_want(call, 0, GQAC_NONE));
    if (ir_node_input(node, 2))
        GQAC_TRY(op_int(call, 2, &training));
    bool ratio = ir_node_input(node, 1) && call->in[1] && gqac_tensor_count(call->in[1]) == 1 &&
                 op_get_f32(call->in[1], 0) == 0.0f;
    if (training && !ratio)
        OP_FAIL(node, call->diag, GQAC_UNSUPPORTED,
                "training_mode is true, but only inference is supported");
    if (ir_node_output(node, 1)) {
        GQAC_TRY(op_output_like(call, 1, GQAC_BOOL, call->in[0]));
        size_t bytes = gqac_tensor_bytes(&call->out[1]);
        if (bytes > 0)
            memset(call->out[1].data, 1, bytes);
    }
    return op_copy_as(call, call->in[0]->rank, call->in[0]->dims);
}

static gqac_status upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    (void)node;
    if (opset < 12)
        (void)op_raw_take(raw, "ratio"); /* has no effect without training */
    return b->status;
}

static const ir_attr_spec attrs[] = {
    {.name = "seed", .kind = IR_ATTR_INT, .doc = "of training; not used"},
    {.name = NULL},
};

const gqac_op gqac_op_dropout = {
    .schema = {.name = "Dropout",
               .domain = "",
               .since = 13,
               .inputs = "data ratio? training_mode?",
               .outputs = "output mask?",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "output = data (inference)"},
    .verify = verify,
    .infer = infer,
    .eval = eval,
    .upgrade = upgrade,
};
