/* Scan: runs a graph once for each index along an axis of its scan inputs. States are passed from
 * run to run; further results are stacked along an axis. Source: ONNX operator spec, 9. A run may
 * depend on all earlier ones, so the op counts as one that mixes rows. */
#include <string.h>

#include "ops/copy.h"
#include "ops/loop.h"

static const ir_graph *body_of(const ir_node *node) {
    return ir_attr_get(node, "body")->graph;
}

static int slices_of(const ir_node *node) {
    return (int)ir_attr_int(node, "num_scan_inputs");
}

static int states_of(const ir_node *node) {
    return node->n_inputs - slices_of(node);
}

/* Entry i of a list attribute, 0 when there is none. */
static int64_t entry(const ir_node *node, const char *name, int i) {
    const ir_attr *attr = ir_attr_get(node, name);
    return attr->set && (size_t)i < attr->count ? attr->ints[i] : 0;
}

static gqac_status check_list(const ir_node *node, const char *name, int n, bool direction,
                              gqac_diag *diag) {
    const ir_attr *attr = ir_attr_get(node, name);
    if (attr->set && attr->count != (size_t)n)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute %s has %zu entries, expected %d", name,
                attr->count, n);
    for (int i = 0; i < n; i++)
        if (direction && entry(node, name, i) != 0 && entry(node, name, i) != 1)
            OP_FAIL(node, diag, GQAC_INVALID_MODEL, "attribute %s: must be 0 or 1", name);
    return GQAC_OK;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const int64_t slices = ir_attr_int(node, "num_scan_inputs");
    if (slices < 1 || slices > node->n_inputs || node->n_inputs - slices > node->n_outputs)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute num_scan_inputs = %lld does not fit %d inputs and %d outputs",
                (long long)slices, node->n_inputs, node->n_outputs);
    const int rows = node->n_outputs - states_of(node);
    GQAC_TRY(check_list(node, "scan_input_axes", (int)slices, false, diag));
    GQAC_TRY(check_list(node, "scan_input_directions", (int)slices, true, diag));
    GQAC_TRY(check_list(node, "scan_output_axes", rows, false, diag));
    GQAC_TRY(check_list(node, "scan_output_directions", rows, true, diag));
    return loop_verify(node, body_of(node), node->n_inputs, node->n_outputs, diag);
}

/* Completes the types of the body's inputs: states keep their shape from run to run. */
static gqac_status infer_arguments(ir_node *node, gqac_diag *diag) {
    const ir_graph *body = body_of(node);
    for (int i = 0; i < node->n_inputs; i++) {
        ir_type type = op_in_type(node, i);
        const ir_dim *dims[GQAC_MAX_RANK];
        int axis, at = 0;
        if (body->inputs[i]->type.dtype != GQAC_NONE || type.rank < 0)
            continue;
        if (i >= states_of(node)) {
            GQAC_TRY(op_axis(node, entry(node, "scan_input_axes", i - states_of(node)), type.rank,
                             &axis, diag));
            for (int k = 0; k < type.rank; k++)
                if (k != axis)
                    dims[at++] = type.dims[k];
            type = ir_type_make(node->graph->module, type.dtype, at, dims);
        }
        body->inputs[i]->type = type;
    }
    return GQAC_OK;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(verify(node, diag));
    GQAC_TRY(infer_arguments(node, diag));
    const int states = states_of(node);
    const ir_dim *count = NULL;
    const int rank = op_in_type(node, states).rank;
    int axis;
    if (rank >= 0) {
        GQAC_TRY(op_axis(node, entry(node, "scan_input_axes", 0), rank, &axis, diag));
        count = op_in_dim(node, states, axis);
    }
    GQAC_TRY(loop_infer_states(node, body_of(node), 0, states, 0, diag));
    for (int i = states; i < node->n_outputs; i++)
        GQAC_TRY(loop_infer_rows(node, body_of(node), i, i,
                                 entry(node, "scan_output_axes", i - states), count, diag));
    return GQAC_OK;
}

typedef struct slice {
    gqac_tensor tensor; /* of this run */
    int axis;
    op_scratch memory;
} slice;

/* All scan inputs have the same length along their axes. */
static gqac_status open_slices(op_call *call, slice *slices, int64_t *length) {
    const ir_node *node = call->node;
    for (int i = 0; i < slices_of(node); i++) {
        const int input = states_of(node) + i;
        GQAC_TRY(op_want(call, input, GQAC_NONE));
        const gqac_tensor *x = call->in[input];
        GQAC_TRY(
            op_axis(node, entry(node, "scan_input_axes", i), x->rank, &slices[i].axis, call->diag));
        if (OP_IN(OP_NIBBLES, x->dtype))
            OP_FAIL(node, call->diag, GQAC_UNSUPPORTED, "a scan input of type %s is not supported",
                    gqac_dtype_name(x->dtype));
        gqac_tensor *t = &slices[i].tensor;
        *t = (gqac_tensor){.dtype = x->dtype, .rank = x->rank - 1};
        for (int k = 0, at = 0; k < x->rank; k++)
            if (k != slices[i].axis)
                t->dims[at++] = x->dims[k];
        if (i > 0 && x->dims[slices[i].axis] != *length)
            OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                    "scan inputs have the lengths %lld and %lld, but they must be equal",
                    (long long)*length, (long long)x->dims[slices[i].axis]);
        *length = x->dims[slices[i].axis];
        GQAC_TRY(op_scratch_open_one(call, gqac_tensor_bytes(t), 1, &slices[i].memory));
        t->data = slices[i].memory.base;
    }
    return GQAC_OK;
}

/* Copies between a tensor and the slice at index `place` of an axis that only the other tensor
 * has. */
static void move(op_call *call, const gqac_tensor *whole, int axis, int64_t place,
                 const gqac_tensor *part, bool to_part) {
    int64_t strides[GQAC_MAX_RANK];
    op_box box = {.rank = whole->rank - 1};
    gqac_tensor *target = &(gqac_tensor){0};
    *target = to_part ? *part : *whole;
    op_strides(whole->rank, whole->dims, strides);
    int64_t *outer = to_part ? box.stride_in : box.stride_out;
    int64_t *inner = to_part ? box.stride_out : box.stride_in;
    op_strides(part->rank, part->dims, inner);
    for (int k = 0, at = 0; k < whole->rank; k++)
        if (k != axis) {
            box.dims[at] = whole->dims[k];
            outer[at++] = strides[k];
        }
    *(to_part ? &box.first_in : &box.first_out) = place * strides[axis];
    box.in = to_part ? whole : part;
    box.out = target;
    op_box_copy(call, &box);
}

static gqac_status run_all(op_call *call, loop_frame *f, slice *slices, int64_t length) {
    const int states = f->n_states;
    for (int64_t t = 0; t < length; t++) {
        for (int i = 0; i < slices_of(call->node); i++) {
            const bool back = entry(call->node, "scan_input_directions", i) != 0;
            move(call, call->in[states + i], slices[i].axis, back ? length - 1 - t : t,
                 &slices[i].tensor, true);
            f->args[states + i] = &slices[i].tensor;
        }
        GQAC_TRY(loop_run_body(call, f));
    }
    return GQAC_OK;
}

static gqac_status give_rows(op_call *call, const loop_frame *f, int64_t length) {
    for (int i = 0; i < f->n_rows; i++) {
        gqac_tensor stacked, row;
        int64_t dims[GQAC_MAX_RANK];
        int axis;
        GQAC_TRY(loop_rows_shape(call, f, i, &stacked));
        GQAC_TRY(op_axis(call->node, entry(call->node, "scan_output_axes", i), stacked.rank, &axis,
                         call->diag));
        row = stacked;
        row.rank = stacked.rank - 1;
        for (int k = 0; k < row.rank; k++)
            row.dims[k] = stacked.dims[k + 1];
        for (int k = 0, at = 0; k < stacked.rank; k++)
            dims[k] = k == axis ? length : row.dims[at++];
        GQAC_TRY(op_output(call, f->n_states + i, stacked.dtype, stacked.rank, dims));
        const size_t bytes = gqac_tensor_bytes(&row);
        const bool back = entry(call->node, "scan_output_directions", i) != 0;
        for (int64_t t = 0; bytes && t < length; t++) {
            row.data = (char *)stacked.data + (size_t)t * bytes;
            move(call, &call->out[f->n_states + i], axis, back ? length - 1 - t : t, &row, false);
        }
    }
    return GQAC_OK;
}

static gqac_status eval_slices(op_call *call, slice *slices) {
    int64_t length = 0;
    loop_frame frame = {0};
    gqac_status status = open_slices(call, slices, &length);
    if (status == GQAC_OK)
        status = loop_open(call, body_of(call->node), 0, 0, states_of(call->node), 0, &frame);
    if (status == GQAC_OK)
        status = run_all(call, &frame, slices, length);
    if (status == GQAC_OK)
        status = loop_give_states(call, &frame);
    if (status == GQAC_OK)
        status = give_rows(call, &frame, length);
    loop_close(&frame);
    return status;
}

static gqac_status eval(op_call *call) {
    op_scratch memory;
    GQAC_TRY(verify(call->node, call->diag));
    const size_t n = (size_t)slices_of(call->node);
    GQAC_TRY(op_scratch_open_one(call, n, sizeof(slice), &memory));
    slice *slices = memset(memory.base, 0, n * sizeof(slice));
    gqac_status status = eval_slices(call, slices);
    for (size_t i = 0; i < n; i++)
        op_scratch_close(&slices[i].memory);
    op_scratch_close(&memory);
    return status;
}

static gqac_status upgrade(ir_builder *b, ir_node *node, int opset, const op_raw_attrs *raw) {
    (void)raw;
    if (opset < 9)
        OP_FAIL(node, b->diag, GQAC_UNSUPPORTED,
                "opset %d is older than 9, and has a Scan with batches, which is not supported",
                opset);
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    {.name = "body", .kind = IR_ATTR_GRAPH, .required = true, .doc = "run for each index"},
    {.name = "num_scan_inputs",
     .kind = IR_ATTR_INT,
     .required = true,
     .doc = "number of scan inputs, the last ones"},
    {.name = "scan_input_axes", .kind = IR_ATTR_INTS, .doc = "along which; absent: 0"},
    {.name = "scan_input_directions", .kind = IR_ATTR_INTS, .doc = "1: from the end"},
    {.name = "scan_output_axes", .kind = IR_ATTR_INTS, .doc = "along which; absent: 0"},
    {.name = "scan_output_directions", .kind = IR_ATTR_INTS, .doc = "1: from the end"},
    {.name = NULL},
};

const gqac_op gqac_op_scan = {
    .schema = {.name = "Scan",
               .domain = "",
               .since = 9,
               .introduced = 8,
               .inputs = "initial_state_and_scan_inputs+",
               .outputs = "final_state_and_scan_outputs+",
               .attrs = attrs,
               .flags = IR_OP_NO_FOLD,
               .rows = IR_ROWS_MIXES,
               .doc = "a graph run once for each index along an axis"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
    .upgrade = upgrade,
};
