/* BitShift: z = x shifted by y bits, on unsigned integers; the result of a shift by the width or
 * more is 0. Source: ONNX operator spec. */
#include "ops/elementwise.h"

#include <string.h>

static uint64_t shift_left(uint64_t x, uint64_t by) {
    return by < 64 ? x << by : 0;
}

static uint64_t shift_right(uint64_t x, uint64_t by) {
    return by < 64 ? x >> by : 0;
}

OP_SPAN2(left, int64_t, int64_t, shift_left((uint64_t)a, (uint64_t)b))
OP_SPAN2(right, int64_t, int64_t, shift_right((uint64_t)a, (uint64_t)b))

static const op_binary to_left = {.i64 = left}, to_right = {.i64 = right};

static const char *direction_of(const ir_node *node) {
    const char *direction = ir_attr_get(node, "direction")->s;
    return direction ? direction : "";
}

static const op_binary *kernel_of(const ir_node *node) {
    return strcmp(direction_of(node), "LEFT") == 0 ? &to_left : &to_right;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const char *direction = direction_of(node);
    if (strcmp(direction, "LEFT") != 0 && strcmp(direction, "RIGHT") != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute direction = '%s': must be LEFT or RIGHT",
                direction);
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, OP_UNSIGNED, diag));
    return op_binary_infer(node, kernel_of(node), diag);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, 0, OP_UNSIGNED));
    return op_binary_eval(call, kernel_of(call->node));
}

static const ir_attr_spec attrs[] = {
    {.name = "direction", .kind = IR_ATTR_STRING, .required = true, .doc = "LEFT or RIGHT"},
    {.name = NULL},
};

const gqac_op gqac_op_bit_shift = {
    .schema = {.name = "BitShift",
               .domain = "",
               .since = 11,
               .introduced = 11,
               .inputs = "x y",
               .outputs = "z",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "z = x shifted by y bits, on unsigned integers"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
