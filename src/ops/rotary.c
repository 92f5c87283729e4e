/* Rotary embedding: x [B,H,S,D], cos, sin [M,R/2], R <= D -> y [B,H,S,D].
 * Row s of batch row b has the position pos = position_ids[b,s], or position_ids[0] + s when that
 * is a single start offset, or past_len[b] + s. With c = cos[pos,i], t = sin[pos,i] a pair (u, w)
 * of channels becomes
 *   u' = fma(u, c, -(w*t)),  w' = fma(w, c, u*t)
 * in fp32, rounded once. Pair i is (i, i + R/2), or (2i, 2i + 1) when interleaved; channels from R
 * on are copied. Rows s >= new_len[b] are zeros and need no position. */
#include "ops/rotary.h"

#include <string.h>

#include "ops/kernel.h"

static const ir_attr_spec attrs[] = {
    OP_ATTR_INT("interleaved", 0, "pairs are neighbours (1) or half a head apart (0)"),
    {.name = NULL},
};

static gqac_status infer(ir_node *node, gqac_diag *diag) {
    GQAC_TRY(attention_want_rank(node, ROTARY_X, 4, diag));
    GQAC_TRY(attention_want_rank(node, ROTARY_COS, 2, diag));
    GQAC_TRY(attention_want_rank(node, ROTARY_SIN, 2, diag));
    ir_type x = op_in_type(node, ROTARY_X);
    const ir_dim *unknown[4] = {NULL};
    return op_set_type(node, 0, x.dtype, 4, x.rank == 4 ? x.dims : unknown, diag);
}

OP_BODY void rotate_body(const float *x, const float *c, const float *t, int64_t half, bool near,
                         float *y) {
    for (int64_t i = 0; i < half; i++) {
        int64_t first = near ? 2 * i : i, second = near ? 2 * i + 1 : i + half;
        float u = x[first], w = x[second];
        y[first] = op_one_nan(gqn_fma(u, c[i], -(w * t[i])));
        y[second] = op_one_nan(gqn_fma(w, c[i], u * t[i]));
    }
}
OP_KERNEL(rotate,
          (const float *x, const float *c, const float *t, int64_t half, bool near, float *y),
          (x, c, t, half, near, y))

typedef struct rotation_run {
    rotation of;
    const gqac_tensor *x;
    gqac_tensor *y;
    op_scratch scratch;
} rotation_run;

/* Items are rows (b, s), with all heads. */
static void run(void *arg, size_t begin, size_t end, int worker) {
    const rotation_run *run = arg;
    const rotation *r = &run->of;
    float *x = (float *)(void *)(run->scratch.base + (size_t)worker * run->scratch.stride);
    float *y = x + r->size, *c = y + r->size, *t = c + r->half;
    for (size_t item = begin; item < end; item++) {
        int64_t b = (int64_t)item / r->rows, s = (int64_t)item % r->rows;
        bool pad = rotary_is_pad(r, b, s);
        if (!pad) {
            int64_t position = rotary_position(r, b, s);
            op_get_f32s(r->cos, position * r->half, r->half, c);
            op_get_f32s(r->sin, position * r->half, r->half, t);
        }
        for (int64_t h = 0; h < r->heads; h++) {
            int64_t at = ((b * r->heads + h) * r->rows + s) * r->size;
            if (pad) {
                memset(y, 0, (size_t)r->size * sizeof *y);
            } else {
                op_get_f32s(run->x, at, r->size, x);
                memcpy(y, x, (size_t)r->size * sizeof *y);
                rotate(x, c, t, r->half, r->interleaved, y);
            }
            op_put_f32s(run->y, at, r->size, y);
        }
    }
}

static gqac_status check_positions(const op_work *work, const rotation *r) {
    if (r->rows == 0 || r->heads == 0 || r->size == 0) /* positions may then be anything */
        return GQAC_OK;
    for (int64_t b = 0; b < r->batch; b++)
        for (int64_t s = 0; s < r->rows && !rotary_is_pad(r, b, s); s++) {
            int64_t base = r->ids ? op_get_i64(r->ids, r->ids->rank == 1 ? 0 : b * r->rows + s) : 0;
            bool sane = base >= 0 && base < r->positions; /* so that nothing overflows */
            int64_t position = sane ? rotary_position(r, b, s) : base;
            if (position < 0 || position >= r->positions)
                OP_STOP(work, GQAC_OUT_OF_RANGE,
                        "%s %lld of sequence %lld, token %lld, is out of range: the cos/sin "
                        "tables have %lld rows",
                        r->ids ? "position_ids: position" : "position", (long long)position,
                        (long long)b, (long long)s, (long long)r->positions);
        }
    return GQAC_OK;
}

static gqac_status read_lengths(const op_work *work, const rotary_operands *o, rotation *r) {
    if (o->past_len)
        GQAC_TRY(op_lengths(work, o->past_len, "past_len", r->batch, &r->past));
    if (o->new_len)
        GQAC_TRY(op_lengths(work, o->new_len, "new_len", r->batch, &r->fresh));
    r->ids = o->position_ids;
    if (!r->ids && !r->past)
        OP_STOP(work, GQAC_INVALID_INPUT, "inputs past_len and position_ids are both absent");
    if (!r->ids)
        return GQAC_OK;
    if (!OP_IN(OP_INDICES, r->ids->dtype))
        OP_STOP(work, GQAC_INVALID_INPUT,
                "input 'position_ids' has the type %s: must be i32 or i64",
                gqac_dtype_name(r->ids->dtype));
    bool start = r->ids->rank == 1 && r->ids->dims[0] == 1;
    bool each = r->ids->rank == 2 && r->ids->dims[0] == r->batch &&
                (r->ids->dims[1] == r->rows || r->rows == 0); /* no new keys: nothing to rotate */
    if (!start && !each)
        OP_STOP(work, GQAC_INVALID_INPUT, "position_ids must have the shape [1] or [%lld,%lld]",
                (long long)r->batch, (long long)r->rows);
    return GQAC_OK;
}

gqac_status rotary_fit(const op_work *work, const rotary_operands *o, const int64_t dims[4],
                       rotation *r) {
    const gqac_tensor *cos = o->cos, *sin = o->sin;
    GQAC_TRY(op_floats(work, cos, "cos", 2));
    GQAC_TRY(op_floats(work, sin, "sin", 2));
    *r = (rotation){.cos = cos,
                    .sin = sin,
                    .batch = dims[0],
                    .heads = dims[1],
                    .rows = dims[2],
                    .size = dims[3],
                    .positions = cos->dims[0],
                    .half = cos->dims[1],
                    .interleaved = o->interleaved};
    if (sin->dims[0] != r->positions || sin->dims[1] != r->half || r->half > r->size / 2)
        OP_STOP(work, GQAC_INVALID_INPUT,
                "cos [%lld,%lld] and sin [%lld,%lld] must have the same shape, and at most half as "
                "many columns as the head size %lld",
                (long long)r->positions, (long long)r->half, (long long)sin->dims[0],
                (long long)sin->dims[1], (long long)r->size);
    GQAC_TRY(read_lengths(work, o, r));
    return check_positions(work, r);
}

static const gqac_tensor *optional(const op_call *call, int input) {
    return input < call->node->n_inputs ? call->in[input] : NULL;
}

static gqac_status eval(op_call *call) {
    GQAC_TRY(attention_float(call, ROTARY_X, 4));
    const gqac_tensor *x = call->in[ROTARY_X];
    rotation_run r = {.x = x, .y = &call->out[0]};
    op_origin origin;
    const op_work work = op_work_at(call, &origin);
    const rotary_operands operands = {.cos = optional(call, ROTARY_COS),
                                      .sin = optional(call, ROTARY_SIN),
                                      .past_len = optional(call, ROTARY_PAST_LEN),
                                      .new_len = optional(call, ROTARY_NEW_LEN),
                                      .position_ids = optional(call, ROTARY_POSITION_IDS),
                                      .interleaved = ir_attr_int(call->node, "interleaved") == 1};
    GQAC_TRY(rotary_fit(&work, &operands, x->dims, &r.of));
    GQAC_TRY(op_output(call, 0, x->dtype, 4, x->dims));
    GQAC_TRY(op_scratch_open(call, (size_t)(2 * r.of.size + 2 * r.of.half + 1), sizeof(float),
                             &r.scratch));
    op_parallel(call, r.of.batch * r.of.rows, 1 + 2 * r.of.heads * r.of.size, run, &r);
    op_scratch_close(&r.scratch);
    return GQAC_OK;
}

gqac_status rotary_verify(const ir_node *node, gqac_diag *diag) {
    const int64_t width = ir_attr_int(node, "rotary_embedding_dim");
    GQAC_TRY(op_check_int(node, "interleaved", 0, 1, diag));
    GQAC_TRY(op_check_int(node, "num_heads", 0, INT32_MAX, diag));
    if (width < 0 || width % 2 != 0)
        OP_FAIL(node, diag, GQAC_INVALID_MODEL,
                "attribute rotary_embedding_dim = %lld: must be even and not negative",
                (long long)width);
    return GQAC_OK;
}

gqac_status rotary_check_input(const ir_node *node, gqac_diag *diag) {
    GQAC_TRY(op_check_rank(node, 0, 3, 4, diag));
    return op_check_dtype(node, 0, OP_FLOATS, diag);
}

const gqac_op gqac_op_rotary = {
    .schema = {.name = "rotary",
               .domain = "gqac",
               .since = 1,
               .inputs = "x cos sin past_len? new_len? position_ids?",
               .outputs = "y",
               .attrs = attrs,
               .rows = IR_ROWS_LOCAL,
               .doc = "rotary embedding of x [B,H,S,D] by tables [M,R/2] at past_len[b] + s"},
    .infer = infer,
    .eval = eval,
};
