/* y [B,H,S,T] fp32 from s [B,H,S,T] and a mask that broadcasts to it: a bool mask selects s or -inf
 * (values of s are not used there), a float mask is added. The last axis of the mask is not
 * broadcast. It may be shorter than T, and then later keys are masked; with every = 1 it must be
 * T. */
#include "ops/attention.h"

#include <string.h>

#include "numerics/dialect.h"

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("every", 0, "1: the mask has a column for every key"),
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    ir_type mask = op_in_type(node, 1);
    int64_t keys, length;
    GQAC_TRY(attention_want_rank(node, 0, 4, diag));
    GQAC_TRY(op_check_dtype(node, 1, OP_FLOATS | OP_BIT(BOOL), diag));
    if (mask.rank == 0 || mask.rank > 4)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "a mask has rank %d: must be 1 to 4", mask.rank);
    if (ir_dim_is_const(op_in_dim(node, 0, 3), &keys) &&
        ir_dim_is_const(op_in_dim(node, 1, -1), &length) && length > keys)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL, "a mask has %lld columns for %lld keys",
                (long long)length, (long long)keys);
    const ir_dim *dims[4];
    for (int i = 0; i < 4; i++)
        dims[i] = op_in_dim(node, 0, i);
    return op_set_type(node, 0, GQAC_F32, 4, dims, diag);
}

typedef struct masking {
    const float *s;
    const gqac_tensor *mask;
    float *y;
    int64_t heads, rows, keys, length;
    int64_t stride[3]; /* strides of the mask: elements for a step of b, h, i */
} masking;

static void run(void *arg, size_t begin, size_t end, int worker) {
    const masking *m = arg;
    const uint8_t *bits = m->mask->dtype == GQAC_BOOL ? m->mask->data : NULL;
    const float hidden = -gqn_as_f32(GQN_INF_BITS);
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        int64_t i = (int64_t)item % m->rows, rest = (int64_t)item / m->rows;
        int64_t at =
            rest / m->heads * m->stride[0] + rest % m->heads * m->stride[1] + i * m->stride[2];
        const float *s = m->s + (int64_t)item * m->keys;
        float *y = m->y + (int64_t)item * m->keys;
        if (bits) {
            for (int64_t j = 0; j < m->length; j++)
                y[j] = bits[at + j] ? s[j] : hidden;
        } else {
            op_get_f32s(m->mask, at, m->length, y);
            for (int64_t j = 0; j < m->length; j++)
                y[j] = s[j] + y[j];
        }
        for (int64_t j = m->length; j < m->keys; j++)
            y[j] = hidden;
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_F32));
    GQAC_TRY(attention_float(call, 0, 4));
    GQAC_TRY(op_want_set(call, 1, OP_FLOATS | OP_BIT(BOOL)));
    const gqac_tensor *s = call->in[0], *mask = call->in[1];
    masking m = {.s = s->data,
                 .mask = mask,
                 .heads = s->dims[1],
                 .rows = s->dims[2],
                 .keys = s->dims[3],
                 .length = mask->rank > 0 ? mask->dims[mask->rank - 1] : 0};
    bool every = ir_attr_int(call->node, "every") == 1;
    bool fits =
        mask->rank >= 1 && mask->rank <= 4 && (every ? m.length == m.keys : m.length <= m.keys);
    int64_t step = m.length;
    for (int axis = 2; axis >= 0 && fits; axis--) {
        int64_t dim = axis + mask->rank >= 4 ? mask->dims[axis + mask->rank - 4] : 1;
        fits = dim == 1 || dim == s->dims[axis];
        m.stride[axis] = dim == 1 ? 0 : step;
        step *= dim;
    }
    if (!fits)
        return attention_misfit(call, "mask", mask, s->dims);
    GQAC_TRY(op_output_like(call, 0, GQAC_F32, s));
    m.y = call->out[0].data;
    op_parallel(call, s->dims[0] * m.heads * m.rows, 1 + m.keys / 4, run, &m);
    return GQAC_OK;
}

const gqac_op gqac_op_mask_scores = {
    .schema = {.name = "mask_scores",
               .domain = "gqac",
               .since = 1,
               .inputs = "s mask",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "s [B,H,S,T] where a bool mask is true, else -inf; plus a float mask"},
    .infer = infer,
    .eval = eval,
};
