/* Norms on the cpu target: operands are checked as in the ops' own eval; each row is an item. x may
 * be the sum of a fused Add. */
#include "targets/cpu/rows.h"

#include <string.h>

typedef struct norm_job {
    cpu_norm p;
    const struct cpu_row_kernels *kernels;
} norm_job;

static void norm_items(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const norm_job *job = arg;
    job->kernels->norm(&job->p, begin, end);
}

static gqac_dtype type_of(const gqac_tensor *t) {
    return t ? t->dtype : GQAC_F32;
}

static void *data_of(const gqac_tensor *t) {
    return t ? t->data : NULL;
}

/* Opens a fused Add: its operands, which have equal shapes, are x and skip. */
static gqac_status open_sum(const target_call *call, const cpu_norm_record *record, norm_run *r) {
    const gqac_tensor *x = r->x, *skip = target_value(call, record->of.skip);
    const op_work work = target_work(call, &record->add);
    if (skip->dtype != x->dtype || skip->rank != x->rank ||
        memcmp(skip->dims, x->dims, (size_t)x->rank * sizeof *x->dims) != 0)
        OP_STOP(&work, GQAC_INVALID_INPUT, "the operands of a sum differ in shape");
    r->skip = skip;
    r->skip_rows = r->rows;
    return GQAC_OK;
}

gqac_status cpu_norm_run(target_call *call, const void *arg) {
    const cpu_norm_record *record = arg;
    const target_norm *f = &record->of;
    const norm *kind = f->form.kind;
    gqac_tensor y, sum, mean, inv;
    norm_run r = {.x = target_value(call, f->x),
                  .weight = target_value(call, f->weight),
                  .beta = target_value(call, f->beta),
                  .bias = target_value(call, f->bias),
                  .y = &y};
    if (kind->skip)
        r.skip = target_value(call, f->skip);
    GQAC_TRY(norm_fit(&call->work, &f->form, &r));
    if (record->adds)
        GQAC_TRY(open_sum(call, record, &r));
    y = norm_y(&r);
    GQAC_TRY(target_give(call, f->y, &y));
    GQAC_TRY(target_give_used(call, f->sum, norm_sum(&r), &sum, &r.sum));
    GQAC_TRY(target_give_used(call, f->mean, norm_moment(&r), &mean, &r.mean));
    GQAC_TRY(target_give_used(call, f->inv, norm_moment(&r), &inv, &r.inv));
    if (r.n <= 0 || r.rows <= 0)
        return GQAC_OK;
    norm_job job = {
        .kernels = cpu_level_of(call)->row,
        .p = {.n = r.n,
              .skip_rows = r.skip ? r.skip_rows : 1,
              .weight_period = r.weight_period,
              .beta_period = r.beta_period,
              .epsilon = r.epsilon,
              .centred = kind->centred,
              .round_before = kind->round_before && r.x->dtype != GQAC_F32,
              .round_sum = record->adds,
              .type = r.x->dtype,
              .weight_type = r.weight->dtype,
              .bias_type = type_of(r.bias),
              .beta_type = type_of(r.beta),
              .y_type = y.dtype,
              .x = r.x->data,
              .skip = data_of(r.skip),
              .bias = data_of(r.bias),
              .weight = r.weight->data,
              .beta = data_of(r.beta),
              .y = y.data,
              .sum = data_of(r.sum),
              .mean = data_of(r.mean),
              .inv = data_of(r.inv)},
    };
    op_work_parallel(&call->work, r.rows, 20 + r.n / 4, norm_items, &job);
    return GQAC_OK;
}
