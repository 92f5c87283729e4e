/* y [B,H,S,T]: y[b,h,i,j] = s[b,h,i,j] for lo[b,i] <= j < hi[b,i], else -inf. A select: values of s
 * outside the range are not used. */
#include "ops/attention.h"

#include <string.h>

#include "numerics/dialect.h"

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, 0, 4, diag));
    const ir_dim *dims[4];
    for (int i = 0; i < 4; i++)
        dims[i] = op_in_dim(node, 0, i);
    return op_set_type(node, 0, GQAC_F32, 4, dims, diag);
}

typedef struct mask {
    const float *s;
    float *y;
    const int32_t *lo, *hi;
    int64_t heads, rows, keys;
} mask;

static void run(void *arg, size_t begin, size_t end, int worker) {
    const mask *m = arg;
    (void)worker;
    for (size_t item = begin; item < end; item++) {
        int64_t b = (int64_t)item / m->rows / m->heads, i = (int64_t)item % m->rows;
        int64_t lo = m->lo[b * m->rows + i], hi = m->hi[b * m->rows + i];
        const float *s = m->s + (int64_t)item * m->keys;
        float *y = m->y + (int64_t)item * m->keys;
        for (int64_t j = 0; j < lo; j++)
            y[j] = -gqn_as_f32(GQN_INF_BITS);
        if (hi > lo)
            memcpy(y + lo, s + lo, (size_t)(hi - lo) * sizeof *y);
        for (int64_t j = hi; j < m->keys; j++)
            y[j] = -gqn_as_f32(GQN_INF_BITS);
    }
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(op_want(call, 0, GQAC_F32));
    GQAC_TRY(attention_float(call, 0, 4));
    const gqac_tensor *s = call->in[0];
    mask m = {.s = s->data, .heads = s->dims[1], .rows = s->dims[2], .keys = s->dims[3]};
    GQAC_TRY(attention_ranges(call, 1, s->dims[0], m.rows, m.keys, &m.lo, &m.hi));
    GQAC_TRY(op_output_like(call, 0, GQAC_F32, s));
    m.y = call->out[0].data;
    op_parallel(call, s->dims[0] * m.heads * m.rows, 1 + m.keys / 4, run, &m);
    return GQAC_OK;
}

const gqac_op gqac_op_causal_mask = {
    .schema = {.name = "causal_mask",
               .domain = "gqac",
               .since = 1,
               .inputs = "s lo hi",
               .outputs = "y",
               .rows = IR_ROWS_LOCAL,
               .doc = "s [B,H,S,T] with -inf outside of the visible keys"},
    .infer = infer,
    .eval = eval,
};
