/* DynamicQuantizeLinear: u8 codes of x with one scale and zero point for the tensor, such that 0
 * and all of x are in range:
 *   lo = min(0, min x), hi = max(0, max x), scale = (hi - lo) / 255 (1 when hi = lo)
 *   zero point = round(saturate(0 - lo / scale)), y = saturate(round(x / scale) + zero point)
 * Rounding is half to even. A value of one row changes the codes of all others, so no model with
 * this op is split-safe; --per-row-quant replaces it by quantise_rows. Source: ONNX operator
 * spec. */
#include "base/diag.h"
#include "ops/build.h"
#include "ops/quantise.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_dtype(node, 0, OP_BIT(F32), diag));
    ir_type type = op_in_type(node, 0);
    type.dtype = GQAC_U8;
    GQAC_TRY(op_set_type_like(node, 0, type, diag));
    GQAC_TRY(op_set_type(node, 1, GQAC_F32, 0, NULL, diag));
    return op_set_type(node, 2, GQAC_U8, 0, NULL, diag);
}

typedef struct codes {
    const float *x;
    uint8_t *y;
    float scale;
    int32_t zero;
} codes;

static void run(void *arg, size_t begin, size_t end, int worker) {
    const codes *c = arg;
    (void)worker;
    quant_codes(c->y + begin, c->x + begin, (int64_t)(end - begin), c->scale, c->zero);
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_F32));
    const gqac_tensor *x = call->in[0];
    GQAC_TRY(op_output_like(call, 0, GQAC_U8, x));
    codes c = {.x = x->data, .y = call->out[0].data};
    const int64_t n = gqac_tensor_count(x);
    c.scale = quant_range(c.x, n, &c.zero);
    if (ir_node_output(call->node, 1)) {
        GQAC_TRY(op_output(call, 1, GQAC_F32, 0, NULL));
        *(float *)call->out[1].data = c.scale;
    }
    if (ir_node_output(call->node, 2)) {
        GQAC_TRY(op_output(call, 2, GQAC_U8, 0, NULL));
        *(uint8_t *)call->out[2].data = (uint8_t)c.zero;
    }
    op_parallel(call, n, 5, run, &c);
    return GQAC_OK;
}

/* ---- by row -------------------------------------------------------------------------------- */

enum { CODES, SCALE, ZERO, RESULTS };

/* True for a MatMulInteger with these codes as A. */
static bool is_product(const ir_value *value, const ir_value *codes) {
    while (value && value->def && op_is(value->def, "", "Cast"))
        value = ir_node_input(value->def, 0);
    return value && value->def && op_is(value->def, "", "MatMulInteger") &&
           ir_node_input(value->def, 0) == codes;
}

/* True if every reader of the scale multiplies sums of these codes by it. Unless `last`, the scale
 * may be multiplied by that of B first. */
static bool scales_product(const ir_use *use, const ir_value *codes, bool last) {
    const ir_node *mul = use->node;
    if (!op_is(mul, "", "Mul"))
        return false;
    if (is_product(ir_node_input(mul, use == mul->inputs), codes))
        return true;
    const ir_value *both = ir_node_output(mul, 0);
    if (last || !both)
        return false;
    for (const ir_use *next = both->uses; next; next = next->next)
        if (!scales_product(next, codes, true))
            return false;
    return true;
}

/* True if every reader of output `result` accepts one value for each row of these codes. */
static bool takes_rows(const ir_use *use, int result, const ir_value *codes) {
    static const struct {
        const char *domain, *name;
        int inputs[RESULTS];
    } takers[] = {
        {"", "DequantizeLinear", {0, 1, 2}},
        {"", "MatMulInteger", {0, -1, 2}},
        {"com.microsoft", "MatMulIntegerToFloat", {0, 2, 4}},
    };
    const ir_node *node = use->node;
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
        if (op_is(node, takers[i].domain, takers[i].name))
            return use - node->inputs == takers[i].inputs[result] &&
                   ir_node_input(node, 0) == codes;
    if (node == node->graph->ret)
        return !node->graph->parent;
    return result == SCALE && scales_product(use, codes, false);
}

static gqac_status refuse(const ir_node *node, const char *result, const ir_node *reader,
                          gqac_diag *diag) {
    op_fail(node, diag, GQAC_UNSUPPORTED, "--per-row-quant: %s is read by node '%s' (%s)", result,
            ir_node_label(reader), reader->op->name);
    gqac_diag_rule(diag, "a scale and zero point for each row reach only MatMulInteger (as A, its "
                         "result times the scale by Mul), MatMulIntegerToFloat and "
                         "DequantizeLinear, of the same codes");
    gqac_diag_hint(diag, "run it without --per-row-quant");
    return GQAC_UNSUPPORTED;
}

static gqac_status check_readers(const ir_node *node, gqac_diag *diag) {
    static const char *const names[] = {"y", "y_scale", "y_zero_point"};
    const ir_value *codes = ir_node_output(node, CODES);
    for (int i = 0; i < node->n_outputs; i++) {
        const ir_value *value = ir_node_output(node, i);
        for (const ir_use *use = value ? value->uses : NULL; use; use = use->next)
            if (!takes_rows(use, i, codes))
                return refuse(node, names[i], use->node, diag);
    }
    return GQAC_OK;
}

static void by_row(ir_builder *b, ir_node *node, ir_value **results) {
    ir_value *made[RESULTS];
    if (b->status == GQAC_OK)
        b->status = check_readers(node, b->diag);
    OP_BUILD(b, "quantise_rows", .in = {ir_node_input(node, 0)},
             .out = {&made[CODES], &made[SCALE], &made[ZERO]});
    for (int i = 0; i < node->n_outputs; i++)
        results[i] = made[i];
}

const gqac_op gqac_op_dynamic_quantize_linear = {
    .schema = {.name = "DynamicQuantizeLinear",
               .domain = "",
               .since = 11,
               .introduced = 11,
               .inputs = "x",
               .outputs = "y y_scale? y_zero_point?",
               .rows = IR_ROWS_MIXES,
               .doc = "u8 codes of x, one scale and zero point for the tensor"},
    .infer = infer,
    .eval = eval,
    .by_row = by_row,
};
