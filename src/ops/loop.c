/* Loop: runs a graph up to M times, while its condition holds. The states that an iteration returns
 * are arguments of the next; further results are stacked. Source: ONNX operator spec. An iteration
 * may depend on all earlier ones, so the op counts as one that mixes rows. */
#include "ops/loop.h"

#include <string.h>

enum { TRIPS, CONDITION, STATES };

static const ir_graph *body_of(const ir_node *node) {
    return ir_attr_get(node, "body")->graph;
}

static int states_of(const ir_node *node) {
    return node->n_inputs > STATES ? node->n_inputs - STATES : 0;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    if (states_of(node) > node->n_outputs)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "the node has %d states, but only %d outputs",
                states_of(node), node->n_outputs);
    return loop_verify(node, body_of(node), STATES + states_of(node), 1 + node->n_outputs, diag);
}

static void set_unknown(ir_value *value, ir_type type) {
    if (value->type.dtype == GQAC_NONE && type.dtype != GQAC_NONE)
        value->type = type;
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_graph *body = body_of(node);
    const int n = states_of(node);
    GQAC_TRY(verify(node, diag));
    GQAC_TRY(op_check_dtype(node, TRIPS, OP_INDICES, diag));
    GQAC_TRY(op_check_dtype(node, CONDITION, OP_BIT(BOOL), diag));
    GQAC_TRY(op_check_single(node, TRIPS, diag));
    GQAC_TRY(op_check_single(node, CONDITION, diag));
    set_unknown(body->inputs[TRIPS], (ir_type){.dtype = GQAC_I64});
    set_unknown(body->inputs[CONDITION], (ir_type){.dtype = GQAC_BOOL});
    for (int i = 0; i < n; i++)
        set_unknown(body->inputs[STATES + i],
                    (ir_type){.dtype = op_in_type(node, STATES + i).dtype, .rank = -1});
    GQAC_TRY(loop_infer_states(node, body, 1, n, STATES, diag));
    for (int i = n; i < node->n_outputs; i++)
        GQAC_TRY(loop_infer_rows(node, body, 1 + i, i, 0, NULL, diag));
    return GQAC_OK;
}

/* A tensor of one element: a scalar, or of rank 1 if the body declares it so. */
static gqac_tensor scalar(const loop_frame *f, int arg, gqac_dtype dtype, void *data) {
    const bool row = f->body->inputs[arg]->type.rank == 1;
    return (gqac_tensor){.dtype = dtype, .rank = row, .dims = {1}, .data = data};
}

static gqac_status run_all(op_call *call, loop_frame *f, int64_t trips, bool go) {
    int64_t number = 0;
    const gqac_tensor iteration = scalar(f, TRIPS, GQAC_I64, &number);
    const gqac_tensor condition = scalar(f, CONDITION, GQAC_BOOL, &go);
    f->args[TRIPS] = &iteration;
    f->args[CONDITION] = &condition;
    for (; go && number < trips; number++) {
        GQAC_TRY(loop_run_body(call, f));
        const gqac_tensor *next = &f->results[0];
        if (next->dtype != GQAC_BOOL || gqac_tensor_count(next) != 1)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "the condition of the body is not a single bool");
        go = *(const bool *)next->data;
    }
    return GQAC_OK;
}

static gqac_status give_rows(op_call *call, const loop_frame *f) {
    for (int i = 0; i < f->n_rows; i++) {
        gqac_tensor shape;
        GQAC_TRY(loop_rows_shape(call, f, i, &shape));
        GQAC_TRY(op_output_like(call, f->n_states + i, shape.dtype, &shape));
        const size_t bytes = gqac_tensor_bytes(&shape);
        if (bytes)
            memcpy(call->out[f->n_states + i].data, shape.data, bytes);
    }
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    const ir_node *node = call->node;
    int64_t trips = INT64_MAX, go = 1;
    GQAC_TRY(verify(node, call->diag));
    if (ir_node_input(node, TRIPS))
        GQAC_TRY(op_int(call, TRIPS, &trips));
    if (ir_node_input(node, CONDITION)) {
        GQAC_TRY(op_want(call, CONDITION, GQAC_BOOL));
        GQAC_TRY(op_int(call, CONDITION, &go));
    }
    loop_frame frame;
    gqac_status status = loop_open(call, body_of(node), STATES, 1, states_of(node), STATES, &frame);
    if (status == GQAC_OK)
        status = run_all(call, &frame, trips, go != 0);
    if (status == GQAC_OK)
        status = loop_give_states(call, &frame);
    if (status == GQAC_OK)
        status = give_rows(call, &frame);
    loop_close(&frame);
    return status;
}

static const ir_attr_spec attrs[] = {
    {.name = "body", .kind = IR_ATTR_GRAPH, .required = true, .doc = "the graph that is repeated"},
    {.name = NULL},
};

const gqac_op gqac_op_loop = {
    .schema = {.name = "Loop",
               .domain = "",
               .since = 16,
               .inputs = "M? cond? v_initial*",
               .outputs = "v_final_and_scan_outputs+",
               .attrs = attrs,
               .flags = IR_OP_NO_FOLD,
               .rows = IR_ROWS_MIXES,
               .doc = "a graph run M times, or while its condition holds"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
};
