/* y [B,H,S,T] fp32 from s [B,H,S,T] and bias [B|1,H|1,S|1,M]:
 *   y[b,h,i,j] = s[b,h,i,j] + bias[b,h,i,j]   for lo <= j < hi, else s
 * Every visible key needs a column (hi <= M). Other columns are never read. */
#include "ops/attention.h"

#include <string.h>

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    const ir_dim *dims[4];
    GQAC_TRY(attention_want_rank(node, 0, 4, diag));
    GQAC_TRY(attention_want_rank(node, 1, 4, diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_FLOATS, diag));
    for (int i = 0; i < 4; i++)
        dims[i] = op_in_dim(node, 0, i);
    return op_set_type(node, 0, GQAC_F32, 4, dims, diag);
}

typedef struct adding {
    const float *s;
    const gqac_tensor *bias;
    float *y;
    const int32_t *lo, *hi;
    int64_t heads, rows, keys;
    int64_t stride[3]; /* strides of the bias: elements for a step of b, h, i */
} adding;

static void run(void *arg, size_t begin, size_t end, int worker) {
    const adding *a = arg;
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        int64_t i = (int64_t)item % a->rows, rest = (int64_t)item / a->rows;
        int64_t b = rest / a->heads, h = rest % a->heads;
        int64_t lo = a->lo[b * a->rows + i], hi = a->hi[b * a->rows + i];
        const float *s = a->s + (int64_t)item * a->keys;
        float *y = a->y + (int64_t)item * a->keys;
        if (hi > lo)
            op_get_f32s(a->bias, b * a->stride[0] + h * a->stride[1] + i * a->stride[2] + lo,
                        hi - lo, y + lo);
        for (int64_t j = lo; j < hi; j++)
            y[j] = s[j] + y[j];
        memcpy(y, s, (size_t)(lo < hi ? lo : a->keys) * sizeof *y);
        if (hi > lo)
            memcpy(y + hi, s + hi, (size_t)(a->keys - hi) * sizeof *y);
    }
}

static gqac_status check_columns(op_call *call, const adding *a, int64_t batch) {
    int64_t columns = a->bias->dims[3];
    for (int64_t i = 0; i < batch * a->rows; i++)
        if (a->hi[i] > a->lo[i] && a->hi[i] > columns)
            OP_FAIL(call->node, call->diag, GQAC_INVALID_INPUT,
                    "the bias has %lld columns, but keys up to %d are visible in sequence %lld",
                    (long long)columns, a->hi[i] - 1, (long long)(i / a->rows));
    return GQAC_OK;
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_F32));
    GQAC_TRY(attention_float(call, 0, 4));
    GQAC_TRY(attention_float(call, 1, 4));
    const gqac_tensor *s = call->in[0], *bias = call->in[1];
    adding a = {
        .s = s->data, .bias = bias, .heads = s->dims[1], .rows = s->dims[2], .keys = s->dims[3]};
    int64_t step = bias->dims[3];
    bool fits = true;
    for (int axis = 2; axis >= 0; axis--) {
        int64_t dim = bias->dims[axis];
        fits = fits && (dim == 1 || dim == s->dims[axis]);
        a.stride[axis] = dim == 1 ? 0 : step;
        step *= dim;
    }
    if (!fits)
        return attention_misfit(call, "bias", bias, s->dims);
    GQAC_TRY(attention_ranges(call, 2, s->dims[0], a.rows, a.keys, &a.lo, &a.hi));
    GQAC_TRY(check_columns(call, &a, s->dims[0]));
    GQAC_TRY(op_output_like(call, 0, GQAC_F32, s));
    a.y = call->out[0].data;
    op_parallel(call, s->dims[0] * a.heads * a.rows, 1 + a.keys / 4, run, &a);
    return GQAC_OK;
}

const gqac_op gqac_op_add_bias = {
    .schema = {.name = "add_bias",
               .domain = "gqac",
               .since = 1,
               .inputs = "s bias lo hi",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "s [B,H,S,T] plus a bias [B|1,H|1,S|1,M] for the visible keys, fp32"},
    .infer = infer,
    .eval = eval,
};
