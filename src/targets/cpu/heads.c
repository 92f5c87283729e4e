/* Heads and rotary embeddings on the cpu target: each row is an item. No head is copied in
 * between. */
#include "targets/cpu/heads.h"

#include <string.h>

/* ---- operands ------------------------------------------------------------ */

gqac_status cpu_heads_open(const target_call *call, const target_heads *of, cpu_heads_run *r) {
    r->kernels = cpu_level_of(call)->row;
    GQAC_TRY(target_heads_open(call, of, &r->at));
    const target_heads_run *at = &r->at;
    r->p = (cpu_head){.size = of->size, .x_type = at->x->dtype, .type = at->type};
    if (of->norms) {
        r->p.weight = at->weight->data;
        r->p.weight_type = at->weight->dtype;
        r->p.epsilon = of->epsilon;
        r->p.round_before = at->round_before;
    }
    if (of->rotates) {
        r->p.half = at->r.half;
        r->p.interleaved = at->r.interleaved;
        r->p.table_type = at->r.cos->dtype;
    }
    return GQAC_OK;
}

/* ---- running ------------------------------------------------------------- */

void cpu_heads_make(const cpu_heads_run *run, int64_t b, int64_t head, int64_t from, int64_t to,
                    unsigned char *y) {
    const target_heads_run *rows = &run->at;
    const target_heads *of = rows->of;
    const rotation *r = &rows->r;
    const size_t row = (size_t)of->size * op_width(run->p.type), x_width = op_width(run->p.x_type);
    const size_t table = (size_t)r->half * op_width(run->p.table_type);
    for (int64_t i = from; i < to; i++, y += row) {
        const int64_t at = b * rows->step_b + i * rows->step_s + head * rows->step_h + of->column;
        const unsigned char *x = (const unsigned char *)rows->x->data + (size_t)at * x_width;
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
    const target_heads_run *r = &job->heads.at;
    const size_t row = (size_t)r->of->size * op_width(r->type);
    for (size_t item = begin; item < end; item++) {
        const int64_t b = (int64_t)item / r->rows, s = (int64_t)item % r->rows;
        for (int64_t h = 0; h < r->heads; h++) {
            const int64_t to = (b * r->heads + h) * r->rows + s;
            cpu_heads_make(&job->heads, b, h, s, s + 1, job->y + (size_t)to * row);
        }
    }
}

gqac_status cpu_heads_kernel(target_call *call, const void *record) {
    const cpu_heads_record *of = record;
    head_job job;
    GQAC_TRY(cpu_heads_open(call, &of->heads, &job.heads));
    const target_heads_run *r = &job.heads.at;
    const int64_t size = r->of->size;
    gqac_tensor y = {.dtype = r->type, .rank = 4, .dims = {r->batch, r->heads, r->rows, size}};
    GQAC_TRY(target_give(call, of->y, &y));
    job.y = y.data;
    if (gqac_tensor_count(&y) == 0) /* if there are no elements, other lengths may have any value */
        return GQAC_OK;
    op_work_parallel(&call->work, r->batch * r->rows, 20 + r->heads * (10 + size / 4), head_items,
                     &job);
    return GQAC_OK;
}
