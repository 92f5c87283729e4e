/* The kernel cpu.linear_integer. A unit is a group of panels and a block of rows. Panels are the
 * outer index, so that all blocks of a large A use the same panels while these are in a cache. */
#include "targets/cpu/integer.h"

#include "base/check.h"

enum { PANELS = 8, ROWS = 48 }; /* of a unit; multiples of the tiles of every level */

typedef struct batch {
    cpu_integer_job job;
    const cpu_integer_kernels *kernels;
    int64_t row_blocks;
} batch;

static void prepare(void *arg, size_t begin, size_t end, int worker) {
    const batch *b = arg;
    (void)worker;
    for (size_t row = begin; row < end; row++)
        b->kernels->prepare(&b->job, (int64_t)row);
}

static void units(void *arg, size_t begin, size_t end, int worker) {
    const batch *b = arg;
    const integer_product *p = &b->job.p;
    (void)worker;
    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++) {
        const int64_t panel = i / b->row_blocks * PANELS, row = i % b->row_blocks * ROWS;
        b->kernels->run(&b->job, panel, p->panels - panel < PANELS ? p->panels - panel : PANELS,
                        row, p->rows - row < ROWS ? p->rows - row : ROWS);
    }
}

static gqac_status open_batch(const target_call *call, const cpu_integer_record *r, batch *b) {
    *b = (batch){.kernels = cpu_level_of(call)->integer};
    return integer_fit(&call->work, r->k, r->n, target_value(call, r->a),
                       target_value(call, r->weight), target_value(call, r->terms),
                       target_value(call, r->a_zero), &b->job.p);
}

/* The number of bytes of a row in the level's form, and of its sum. */
static size_t row_bytes(const batch *b) {
    return b->kernels->row_bytes(b->job.p.words) + sizeof(int32_t);
}

gqac_status cpu_integer_scratch(const target_call *call, int threads, const void *record,
                                gqac_parts *parts) {
    batch b;
    (void)threads; /* because they share the rows */
    GQAC_TRY(open_batch(call, record, &b));
    op_scratch_measure_one(parts, (size_t)b.job.p.rows, row_bytes(&b));
    return GQAC_OK;
}

gqac_status cpu_integer_run(target_call *call, const void *record) {
    const cpu_integer_record *r = record;
    const gqac_tensor *a = target_value(call, r->a);
    batch b;
    const integer_product *p = &b.job.p;
    op_scratch memory;
    size_t bytes;
    GQAC_TRY(open_batch(call, r, &b));
    gqac_tensor y = *a;
    y.dtype = GQAC_I32;
    y.dims[y.rank - 1] = r->n;
    GQAC_TRY(target_give(call, r->y, &y));
    b.job.p.y = y.data;
    if (p->rows == 0)
        return GQAC_OK;
    if (!gqac_mul_size((size_t)p->rows, row_bytes(&b), &bytes))
        return gqac_diag_oom(call->work.diag, "activations");
    GQAC_TRY(op_work_scratch_one(&call->work, bytes, 1, &memory));
    b.job.form = memory.base;
    b.job.sums =
        (int32_t *)(void *)(memory.base + (size_t)p->rows * b.kernels->row_bytes(p->words));
    b.row_blocks = (p->rows + ROWS - 1) / ROWS;
    op_work_parallel(&call->work, p->rows, 1 + p->k / 2, prepare, &b);
    const int64_t rows = p->rows < ROWS ? p->rows : ROWS;
    op_work_parallel(&call->work, (p->panels + PANELS - 1) / PANELS * b.row_blocks,
                     PANELS * (1 + p->words * (4 + 2 * rows)), units, &b);
    op_scratch_close(&memory);
    return GQAC_OK;
}
