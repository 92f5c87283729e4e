/* com.microsoft.GatedRMSNorm: y = x / sqrt(mean(x^2) + epsilon) * scale * g(gate), g = silu or
 * sigmoid, over groups of as many elements of the last axis as scale has; in fp32 and rounded once.
 * Source: ONNX Runtime contrib operators. */
#include "ops/shared.h"

#include <math.h>
#include <string.h>

#include "numerics/math.h"
#include "numerics/reduce.h"
#include "ops/kernel.h"

enum { X, SCALE, GATE };

static bool is_sigmoid(const ir_node *node) {
    return strcmp(ir_attr_get(node, "activation")->s, "sigmoid") == 0;
}

static gqac_status verify(const ir_node *node, gqac_diag *diag) {
    const char *name = ir_attr_get(node, "activation")->s;
    if (!is_sigmoid(node) && strcmp(name, "silu") != 0 && strcmp(name, "swish") != 0)
        OP_FAIL(node, diag, GQAC_UNSUPPORTED,
                "attribute activation = '%s': must be silu, swish or sigmoid", name);
    return op_check_float(node, "epsilon", false, diag);
}

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    for (int i = X; i <= GATE; i++) {
        GQAC_TRY(op_check_dtype(node, i, OP_FLOATS, diag));
        GQAC_TRY(op_check_same(node, X, i, diag));
    }
    return op_set_type_like(node, 0, op_in_type(node, X), diag);
}

typedef struct norm_gate {
    const gqac_tensor *x, *scale, *gate;
    gqac_tensor *y;
    int64_t n;
    float epsilon;
    bool sigmoid;
    op_scratch scratch;
} norm_gate;

OP_BODY void sum_sq_body(const float *x, int64_t n, float *sum) {
    *sum = gqn_lane_sum_sq(x, (size_t)n);
}
OP_KERNEL(sum_sq, (const float *x, int64_t n, float *sum), (x, n, sum))

static void run(void *arg, size_t begin, size_t end, int worker) {
    const norm_gate *r = arg;
    float *x = (float *)(void *)(r->scratch.base + (size_t)worker * r->scratch.stride);
    float *scale = x + r->n, *gate = scale + r->n, sum;
    op_get_f32s(r->scale, 0, r->n, scale);
    for (int64_t row = (int64_t)begin; row < (int64_t)end; row++) {
        op_get_f32s(r->x, row * r->n, r->n, x);
        op_get_f32s(r->gate, row * r->n, r->n, gate);
        sum_sq(x, r->n, &sum);
        const float inverse = gqn_rsqrt(sum / (float)r->n + r->epsilon);
        for (int64_t i = 0; i < r->n; i++) {
            const float open = gqn_sigmoidf(gate[i]), g = r->sigmoid ? open : gate[i] * open;
            x[i] = op_one_nan(x[i] * inverse * scale[i] * g);
        }
        op_put_f32s(r->y, row * r->n, r->n, x);
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want_set(call, X, OP_FLOATS));
    norm_gate r = {.x = call->in[X],
                   .epsilon = ir_attr_float(call->node, "epsilon"),
                   .sigmoid = is_sigmoid(call->node)};
    GQAC_TRY(op_want(call, SCALE, r.x->dtype));
    GQAC_TRY(op_want(call, GATE, r.x->dtype));
    r.scale = call->in[SCALE];
    r.gate = call->in[GATE];
    r.n = gqac_tensor_count(r.scale);
    bool fits = r.n > 0 && r.x->rank > 0 && r.x->dims[r.x->rank - 1] % r.n == 0 &&
                r.gate->rank == r.x->rank;
    for (int i = 0; fits && i < r.x->rank; i++)
        fits = r.gate->dims[i] == r.x->dims[i];
    if (!fits)
        OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                "X and gate have different shapes, or their last axis is not a multiple of the "
                "%lld scales",
                (long long)r.n);
    GQAC_TRY(op_output_like(call, 0, r.x->dtype, r.x));
    r.y = &call->out[0];
    GQAC_TRY(op_scratch_open(call, (size_t)r.n, 3 * sizeof(float), &r.scratch));
    op_parallel(call, gqac_tensor_count(r.x) / r.n, 10 + 8 * r.n, run, &r);
    op_scratch_close(&r.scratch);
    return GQAC_OK;
}

static const ir_attr_spec attrs[] = {
    OP_ATTR_STRING("activation", "silu", "of the gate: silu, swish or sigmoid"),
    OP_ATTR_FLOAT("epsilon", 1e-5f, "added to the mean square"),
    {.name = NULL},
};

/* Groups lie in the last axis. */
static bool mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, X), -1);
}

const gqac_op gqac_op_gated_rms_norm = {
    .schema = {.name = "GatedRMSNorm",
               .domain = "com.microsoft",
               .since = 1,
               .inputs = "X scale gate",
               .outputs = "Y",
               .attrs = attrs,
               .rows = IR_ROWS_SHAPE,
               .doc = "y = x / sqrt(mean(x^2) + epsilon) * scale * silu(gate)"},
    .infer = infer,
    .verify = verify,
    .eval = eval,
    .mixes = mixes,
};
