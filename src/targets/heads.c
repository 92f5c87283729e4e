/* Operands of heads are checked as by the ops' own evals: see heads.h. */
#include "targets/heads.h"

gqac_status target_heads_count(const target_call *call, const target_heads *of,
                               target_heads_run *r) {
    const gqac_tensor *x = target_value(call, of->x);
    const op_work work = target_work(call, &of->origin);
    const bool packed = of->width > 0;
    if (!x || !OP_IN(OP_FLOATS, x->dtype) || x->rank != (packed ? 3 : 4) ||
        (packed ? x->dims[2] != of->width
                : (of->heads && x->dims[1] != of->heads) || x->dims[3] != of->size))
        OP_STOP(&work, GQAC_INVALID_INPUT,
                "%lld heads of %lld channels must come as [B,S,%lld] or [B,H,S,D]",
                (long long)of->heads, (long long)of->size, (long long)of->width);
    *r = (target_heads_run){.of = of, .batch = x->dims[0], .x = x, .type = x->dtype};
    r->rows = x->dims[packed ? 1 : 2];
    r->heads = packed ? of->heads : x->dims[1];
    r->step_h = packed ? of->size : r->rows * of->size;
    r->step_s = packed ? of->width : of->size;
    r->step_b = r->rows * (packed ? of->width : r->heads * of->size);
    return GQAC_OK;
}

static gqac_status open_norm(const target_call *call, target_heads_run *r) {
    const target_heads *of = r->of;
    const gqac_tensor *weight = target_value(call, of->weight);
    const op_work work = target_work(call, &of->norm);
    if (!weight || !OP_IN(OP_FLOATS, weight->dtype) || gqac_tensor_count(weight) != of->size)
        OP_STOP(&work, GQAC_INVALID_INPUT, "the weight must have %lld floats", (long long)of->size);
    r->weight = weight;
    r->round_before = of->round_before && r->x->dtype != GQAC_F32;
    if (of->round_before)
        r->type = weight->dtype;
    return GQAC_OK;
}

static gqac_status open_rotary(const target_call *call, target_heads_run *r) {
    const target_heads *of = r->of;
    const op_work work = target_work(call, &of->rotary);
    const int64_t dims[4] = {r->batch, r->heads, r->rows, of->size};
    const rotary_operands operands = {.cos = target_value(call, of->cos),
                                      .sin = target_value(call, of->sin),
                                      .past_len = target_value(call, of->past_len),
                                      .new_len = target_value(call, of->new_len),
                                      .position_ids = target_value(call, of->position_ids),
                                      .interleaved = of->interleaved};
    GQAC_TRY(rotary_fit(&work, &operands, dims, &r->r));
    if (r->r.sin->dtype != r->r.cos->dtype)
        OP_STOP(&work, GQAC_INVALID_INPUT, "cos and sin must have one type");
    return GQAC_OK;
}

gqac_status target_heads_open(const target_call *call, const target_heads *of,
                              target_heads_run *r) {
    GQAC_TRY(target_heads_count(call, of, r));
    if (of->norms)
        GQAC_TRY(open_norm(call, r));
    return of->rotates ? open_rotary(call, r) : GQAC_OK;
}
