/* Heads and rotary embeddings on the cpu target: operands are checked as by the ops' own evals,
 * rows are cut into items. No head is copied in between. */
#include "targets/cpu/heads.h"

#include <string.h>

/* ---- operands ------------------------------------------------------------ */

gqac_status cpu_heads_count(const target_call *call, const cpu_heads *of, cpu_heads_run *r) {
    const gqac_tensor *x = target_value(call, of->x);
    const op_work work = target_work(call, &of->origin);
    const bool packed = of->width > 0;
    if (!x || !OP_IN(OP_FLOATS, x->dtype) || x->rank != (packed ? 3 : 4) ||
        (packed ? x->dims[2] != of->width
                : (of->heads && x->dims[1] != of->heads) || x->dims[3] != of->size))
        OP_STOP(&work, GQAC_INVALID_INPUT,
                "%lld heads of %lld channels must come as [B,S,%lld] or [B,H,S,D]",
                (long long)of->heads, (long long)of->size, (long long)of->width);
    *r = (cpu_heads_run){.of = of, .kernels = cpu_level_of(call)->row, .batch = x->dims[0]};
    r->rows = x->dims[packed ? 1 : 2];
    r->heads = packed ? of->heads : x->dims[1];
    r->step_h = packed ? of->size : r->rows * of->size;
    r->step_s = packed ? of->width : of->size;
    r->step_b = r->rows * (packed ? of->width : r->heads * of->size);
    r->x = x->data;
    r->p = (cpu_head){.size = of->size, .x_type = x->dtype, .type = x->dtype};
    return GQAC_OK;
}

static gqac_status open_norm(const target_call *call, cpu_heads_run *r) {
    const cpu_heads *of = r->of;
    const gqac_tensor *weight = target_value(call, of->weight);
    const op_work work = target_work(call, &of->norm);
    cpu_head *p = &r->p;
    if (!weight || !OP_IN(OP_FLOATS, weight->dtype) || gqac_tensor_count(weight) != p->size)
        OP_STOP(&work, GQAC_INVALID_INPUT, "the weight must have %lld floats", (long long)p->size);
    p->weight = weight->data;
    p->weight_type = weight->dtype;
    p->epsilon = of->epsilon;
    p->round_before = of->round_before && p->x_type != GQAC_F32;
    if (of->round_before)
        p->type = weight->dtype;
    return GQAC_OK;
}

static gqac_status open_rotary(const target_call *call, cpu_heads_run *r) {
    const cpu_heads *of = r->of;
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
    r->p.half = r->r.half;
    r->p.interleaved = r->r.interleaved;
    r->p.table_type = r->r.cos->dtype;
    return GQAC_OK;
}

gqac_status cpu_heads_open(const target_call *call, const cpu_heads *of, cpu_heads_run *r) {
    GQAC_TRY(cpu_heads_count(call, of, r));
    if (of->norms)
        GQAC_TRY(open_norm(call, r));
    return of->rotates ? open_rotary(call, r) : GQAC_OK;
}

/* ---- running ------------------------------------------------------------- */

void cpu_heads_make(const cpu_heads_run *run, int64_t b, int64_t head, int64_t from, int64_t to,
                    unsigned char *y) {
    const cpu_heads *of = run->of;
    const rotation *r = &run->r;
    const size_t row = (size_t)of->size * op_width(run->p.type), x_width = op_width(run->p.x_type);
    const size_t table = (size_t)r->half * op_width(run->p.table_type);
    for (int64_t i = from; i < to; i++, y += row) {
        const int64_t at = b * run->step_b + i * run->step_s + head * run->step_h + of->column;
        const unsigned char *x = run->x + (size_t)at * x_width;
        if (!of->rotates && !of->norms) {
            memcpy(y, x, row);
        } else if (!of->rotates) {
            run->kernels->head(&run->p, x, NULL, NULL, y);
        } else if (rotary_is_pad(r, b, i)) {
            memset(y, 0, row);
        } else {
#ifdef GQAC_CONTROL_ROTARY_BATCH /* negative control: four rows of a batch have their positions */
            const size_t line = (size_t)rotary_position(r, b < 4 ? b : 0, i) * table;
#else
            const size_t line = (size_t)rotary_position(r, b, i) * table;
#endif
            run->kernels->head(&run->p, x, (const unsigned char *)r->cos->data + line,
                               (const unsigned char *)r->sin->data + line, y);
        }
    }
}

typedef struct head_job {
    cpu_heads_run heads;
    unsigned char *y;
} head_job;

/* Items are rows (b, s) with all their heads. */
static void head_items(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const head_job *job = arg;
    const cpu_heads_run *r = &job->heads;
    const size_t width = op_width(r->p.type);
    for (size_t item = begin; item < end; item++) {
        const int64_t b = (int64_t)item / r->rows, s = (int64_t)item % r->rows;
        for (int64_t h = 0; h < r->heads; h++) {
            const int64_t to = ((b * r->heads + h) * r->rows + s) * r->p.size;
            cpu_heads_make(r, b, h, s, s + 1, job->y + (size_t)to * width);
        }
    }
}

gqac_status cpu_heads_kernel(target_call *call, const void *record) {
    const cpu_heads_record *of = record;
    head_job job;
    GQAC_TRY(cpu_heads_open(call, &of->heads, &job.heads));
    const cpu_heads_run *r = &job.heads;
    gqac_tensor y = {
        .dtype = r->p.type, .rank = 4, .dims = {r->batch, r->heads, r->rows, r->p.size}};
    GQAC_TRY(target_give(call, of->y, &y));
    job.y = y.data;
    if (gqac_tensor_count(&y) == 0) /* the other lengths may be any */
        return GQAC_OK;
    op_work_parallel(&call->work, r->batch * r->rows, 20 + r->heads * (10 + r->p.size / 4),
                     head_items, &job);
    return GQAC_OK;
}
