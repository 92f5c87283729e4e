/* ConstantOfShape: a tensor of the given shape filled with one value (f32 zero by default).
 * Source: ONNX operator spec. */
#include "ops/copy.h"

static const float zero = 0.0f;
static const gqac_tensor fallback = {.dtype = GQAC_F32, .rank = 0, .data = (void *)&zero};

static const gqac_tensor *value_of(const ir_node *node) {
    const ir_attr *value = ir_attr_get(node, "value");
    return value->set && value->tensor ? value->tensor : &fallback;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const gqac_tensor *value = value_of(node);
    if (gqac_tensor_count(value) != 1 || !value->data)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute value is not a single element");
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_dim *dims[GQAC_MAX_RANK];
    const ir_dim *elements[OP_MAX_ELEMENTS];
    const gqac_tensor *value = value_of(node);
    int64_t length, known = op_elements(node, 0, GQAC_MAX_RANK, dims);
    GQAC_TRY(op_check_list(node, 0, GQAC_MAX_RANK, diag));
    if (known < 0) {
        bool fits = ir_dim_is_const(op_in_dim(node, 0, 0), &length) && length <= GQAC_MAX_RANK;
        return op_set_type(node, 0, value->dtype, fits ? (int)length : -1, NULL, diag);
    }
    for (int64_t i = 0; i < known; i++)
        if (ir_dim_is_const(dims[i], &length) && length < 0)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "dimension %lld of the shape is negative",
                    (long long)length);
    GQAC_TRY(op_set_type(node, 0, value->dtype, (int)known, dims, diag));
    length = 1;
    if (known > 1 || !OP_IN(OP_INDICES | OP_BIT(BOOL), value->dtype) ||
        (known == 1 && !ir_dim_is_const(dims[0], &length)) || length < 0 ||
        length > OP_MAX_ELEMENTS)
        return GQAC_OK;
    for (int64_t i = 0; i < length; i++)
        elements[i] = ir_dim_const(op_dims(node), op_get_i64(value, 0));
    return op_set_elements(node, 0, length, elements, diag);
}

static gqac_status eval(op_call *call) {
    int64_t dims[GQAC_MAX_RANK], rank;
    const gqac_tensor *value = value_of(call->node);
    GQAC_TRY(verify(call->node, call->diag));
    GQAC_TRY(op_ints(call, 0, GQAC_MAX_RANK, dims, &rank));
    for (int64_t i = 0; i < rank; i++)
        if (dims[i] < 0)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "dimension %lld of the shape is negative", (long long)dims[i]);
    GQAC_TRY(op_copy_output(call, 0, value->dtype, (int)rank, dims));
    op_box box = {.rank = 1, .in = value, .out = &call->out[0], .stride_out = {1}};
    box.dims[0] = gqac_tensor_count(box.out);
    op_box_copy(call, &box);
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    {.name = "value", .kind = IR_ATTR_TENSOR, .doc = "one element; f32 zero when absent"},
    {.name = NULL},
};

const gqac_op gqac_op_constant_of_shape = {
    .schema = {.name = "ConstantOfShape",
               .domain = "",
               .since = 9,
               .introduced = 9,
               .inputs = "input",
               .outputs = "output",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "a tensor of the given shape filled with one value"},
    .verify = verify,
    .infer = infer,
    .eval = eval,
};
