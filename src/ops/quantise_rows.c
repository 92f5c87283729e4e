/* quantise_rows: DynamicQuantizeLinear of each row of x [..,n] by itself, u8 codes with a scale and
 * zero point [..,1] for each. With --per-row-quant it replaces DynamicQuantizeLinear: results
 * differ, but those of a row depend on that row only. */
#include "ops/quantise.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_type x = op_in_type(node, 0);
    const ir_dim *dims[GQAC_MAX_RANK];
    GQAC_TRY(op_check_dtype(node, 0, OP_BIT(F32), diag));
    GQAC_TRY(op_set_type(node, 0, GQAC_U8, x.rank, x.dims, diag));
    for (int i = 0; i < x.rank; i++)
        dims[i] = i + 1 < x.rank ? x.dims[i] : ir_dim_const(op_dims(node), 1);
    GQAC_TRY(op_set_type(node, 1, GQAC_F32, x.rank, dims, diag));
    return op_set_type(node, 2, GQAC_U8, x.rank, dims, diag);
}

typedef struct rows {
    const float *x;
    float *scale;
    uint8_t *y, *zero;
    int64_t n;
} rows;

static void run(void *arg, size_t begin, size_t end, int worker) {
    const rows *r = arg;
    (void)worker;
    for (int64_t row = (int64_t)begin; row < (int64_t)end; row++) {
        const float *x = r->x + row * r->n;
        int32_t zero;
        const float scale = quant_range(x, r->n, &zero);
        if (r->scale)
            r->scale[row] = scale;
        if (r->zero)
            r->zero[row] = (uint8_t)zero;
        quant_codes(r->y + row * r->n, x, r->n, scale, zero);
    }
}

/* A scalar is a row of one. */
static gqac_status eval(op_call *call) {
    int64_t dims[GQAC_MAX_RANK];
    GQAC_TRY(op_want(call, 0, GQAC_F32));
    const gqac_tensor *x = call->in[0];
    for (int i = 0; i < x->rank; i++)
        dims[i] = i + 1 < x->rank ? x->dims[i] : 1;
    GQAC_TRY(op_output_like(call, 0, GQAC_U8, x));
    rows r = {.x = x->data, .y = call->out[0].data, .n = x->rank > 0 ? x->dims[x->rank - 1] : 1};
    if (ir_node_output(call->node, 1)) {
        GQAC_TRY(op_output(call, 1, GQAC_F32, x->rank, dims));
        r.scale = call->out[1].data;
    }
    if (ir_node_output(call->node, 2)) {
        GQAC_TRY(op_output(call, 2, GQAC_U8, x->rank, dims));
        r.zero = call->out[2].data;
    }
    op_parallel(call, op_product(dims, 0, x->rank), 10 + 6 * r.n, run, &r);
    return GQAC_OK;
}

static bool mixes(const ir_node *node) {
    return op_axis_is_row(ir_node_input(node, 0), -1);
}

const gqac_op gqac_op_quantise_rows = {
    .schema = {.name = "quantise_rows",
               .domain = "gqac",
               .since = 1,
               .inputs = "x",
               .outputs = "y y_scale? y_zero_point?",
               .rows = IR_ROWS_SHAPE,
               .doc = "u8 codes of x [..,n], one scale and zero point [..,1] for each row"},
    .infer = infer,
    .eval = eval,
    .mixes = mixes,
};
