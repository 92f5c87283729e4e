/* The kernel cpu.linear_nbits: y [..,n] = x [..,k] * quantised weights + bias.
 *
 * First the rows of x are converted to the form that the level's kernels read: int8 with a scale
 * for each (row, block), or fp32 in steps of k. Then panels of 64 columns by blocks of rows are
 * computed independently, panel by panel, so that a thread reads consecutive weights. */
#include "targets/cpu/nbits.h"

#include <string.h>

#include "base/check.h"
#include "targets/cpu/linear.h"

/* One product. */
typedef struct job {
    cpu_nbits_weights w;
    const gqac_tensor *bias;
    gqac_tensor *y;
} job;

/* Products of one x. */
typedef struct batch {
    const cpu_nbits_kernels *kernels;
    int n;
    const cpu_products_after *after; /* NULL: none */
    job jobs[CPU_PRODUCTS];
    const nbits_shape *s; /* shape of the first product; all have the same k and blocks */
    const gqac_tensor *x;
    bool int8;
    int64_t rows, row_blocks;
    op_scratch memory;
    cpu_nbits_rows a; /* int8 */
    float *steps;     /* fp32: [k / CPU_NBITS_STEP][rows][CPU_NBITS_STEP] */
    op_scratch scratch;
} batch;

static void prepare_rows(void *arg, size_t begin, size_t end, int worker) {
    batch *b = arg;
    const nbits_shape *s = b->s;
    const int64_t padded = s->blocks * s->block;
    float *row = (float *)(void *)(b->scratch.base + (size_t)worker * b->scratch.stride);
    for (int64_t m = (int64_t)begin; m < (int64_t)end; m++) {
        for (int64_t k = 0; !b->int8 && k < s->k; k += CPU_NBITS_STEP)
            op_get_f32s(b->x, m * s->k + k, s->k - k < CPU_NBITS_STEP ? s->k - k : CPU_NBITS_STEP,
                        b->steps + k * b->rows + m * CPU_NBITS_STEP);
        if (!b->int8)
            continue;
        op_get_f32s(b->x, m * s->k, s->k, row);
        memset(row + s->k, 0, (size_t)(padded - s->k) * sizeof *row);
        b->kernels->quantise(s, row, m, &b->a);
    }
}

static void store(const job *j, int64_t panel, int64_t first, int64_t count, const float *y) {
    const int64_t n = j->w.shape.n, column = panel * NBITS_COLUMNS;
    const int64_t width = n - column < NBITS_COLUMNS ? n - column : NBITS_COLUMNS;
    for (int64_t m = 0; m < count; m++)
        op_put_f32s(j->y, (first + m) * n + column, width, y + m * NBITS_COLUMNS);
}

static void run_panel(const batch *b, const job *j, int64_t panel, int64_t first, int64_t count,
                      cpu_nbits_scratch *scratch) {
    float bias[NBITS_COLUMNS] = {0};
    const int64_t column = panel * NBITS_COLUMNS, left = j->w.shape.n - column;
    if (j->bias)
        op_get_f32s(j->bias, column, left < NBITS_COLUMNS ? left : NBITS_COLUMNS, bias);
    if (b->int8)
        b->kernels->int8(&j->w, panel, &b->a, first, count, scratch);
    else
        b->kernels->fp32(&j->w, panel, b->steps, b->rows, first, count, scratch);
    b->kernels->finish(scratch->y, count, j->bias ? bias : NULL);
    store(j, panel, first, count, scratch->y);
}

/* Items are panels by blocks of rows, of one product after another; with `after`, of all products
 * together. */
static void run_panels(void *arg, size_t begin, size_t end, int worker) {
    const batch *b = arg;
    const cpu_products_after *after = b->after;
    cpu_nbits_scratch *scratch = (void *)(b->scratch.base + (size_t)worker * b->scratch.stride);
    for (size_t i = begin; i < end; i++) {
        const int64_t first = (int64_t)i % b->row_blocks * CPU_NBITS_ROWS, left = b->rows - first;
        const int64_t count = left < CPU_NBITS_ROWS ? left : CPU_NBITS_ROWS;
        int64_t panel = (int64_t)i / b->row_blocks;
        const job *j = b->jobs;
        for (; !after && panel >= j->w.shape.panels; j++)
            panel -= j->w.shape.panels;
        for (int k = 0; k < (after ? b->n : 1); k++)
            run_panel(b, j + k, panel, first, count, scratch);
        const int64_t column = panel * NBITS_COLUMNS, columns = j->w.shape.n - column;
        if (after)
            after->done(after->arg, first, count, column,
                        columns < NBITS_COLUMNS ? columns : NBITS_COLUMNS);
    }
}

/* ---- scratch ----------------------------------------------------------------- */

/* The number of bytes of a converted row. */
static size_t row_bytes(const batch *b) {
    const nbits_shape *s = b->s;
    const size_t steps = (size_t)((s->k + CPU_NBITS_STEP - 1) / CPU_NBITS_STEP);
    if (b->int8)
        return (size_t)s->blocks * (sizeof(float) + sizeof(int32_t) + (size_t)s->block);
    return steps * CPU_NBITS_STEP * sizeof(float);
}

/* The number of floats of a row in the scratch of a worker that converts it. */
static size_t row_floats(const batch *b) {
    return (size_t)(b->s->blocks * b->s->block);
}

/* Adds the three requests for scratch that `multiply` makes. */
static void measure(const batch *b, int threads, gqac_parts *parts) {
    op_scratch_measure_one(parts, (size_t)b->rows, row_bytes(b));
    op_scratch_measure(parts, threads, row_floats(b), sizeof(float));
    op_scratch_measure(parts, threads, 1, sizeof(cpu_nbits_scratch));
}

/* Allocates one block of scratch for the converted rows. */
static gqac_status take_memory(const op_work *work, batch *b) {
    const size_t rows = (size_t)b->rows, blocks = (size_t)b->s->blocks;
    size_t bytes;
    if (!gqac_mul_size(rows, row_bytes(b), &bytes))
        return gqac_diag_oom(work->diag, "activations");
    GQAC_TRY(op_work_scratch_one(work, bytes, 1, &b->memory));
    b->steps = (float *)(void *)b->memory.base;
    b->a.rows = b->rows;
    b->a.scale = (float *)(void *)b->memory.base;
    b->a.sum = (int32_t *)(void *)(b->a.scale + rows * blocks);
    b->a.qa = (int8_t *)(b->a.sum + rows * blocks);
    return GQAC_OK;
}

static gqac_status compute(const op_work *work, batch *b) {
    const nbits_shape *s = b->s;
    const bool together = b->after != NULL;
    int64_t panels = 0;
    GQAC_TRY(op_work_scratch(work, row_floats(b), sizeof(float), &b->scratch));
    op_work_parallel(work, b->rows, 1 + s->k / 2, prepare_rows, b);
    op_scratch_close(&b->scratch);
    GQAC_TRY(op_work_scratch(work, 1, sizeof(cpu_nbits_scratch), &b->scratch));
    const int64_t rows = b->rows < CPU_NBITS_ROWS ? b->rows : CPU_NBITS_ROWS;
    for (int i = 0; i < (together ? 1 : b->n); i++)
        panels += b->jobs[i].w.shape.panels;
    op_work_parallel(work, panels * b->row_blocks, (1 + s->k * (4 + rows)) * (together ? b->n : 1),
                     run_panels, b);
    op_scratch_close(&b->scratch);
    return GQAC_OK;
}

static gqac_status multiply(const op_work *work, batch *b) {
    gqac_status status = take_memory(work, b);
    if (status == GQAC_OK)
        status = compute(work, b);
    op_scratch_close(&b->memory);
    return status;
}

/* ---- operands ---------------------------------------------------------------- */

static gqac_status check_packed(const op_work *work, const gqac_tensor *t, const char *name,
                                unsigned set, int64_t panels, int64_t rows, int64_t width) {
    if (!t || !OP_IN(set, t->dtype) || t->rank != 3 || t->dims[0] != panels || t->dims[1] != rows ||
        t->dims[2] != width)
        OP_STOP(work, GQAC_INVALID_INPUT, "input '%s' is not packed as [%lld,%lld,%lld]", name,
                (long long)panels, (long long)rows, (long long)width);
    return GQAC_OK;
}

static gqac_status read_weights(const target_call *call, const op_work *work, const cpu_product *p,
                                cpu_nbits_weights *w) {
    const nbits_shape *s = &p->shape;
    const gqac_tensor *codes = target_value(call, p->weight);
    const gqac_tensor *scales = target_value(call, p->scales);
    const gqac_tensor *zeros = target_value(call, p->zero_points);
    *w = (cpu_nbits_weights){.shape = *s};
    GQAC_TRY(check_packed(work, codes, "codes", OP_BIT(U8), s->panels, s->words, NBITS_WORD_BYTES));
    w->codes = codes->data;
    GQAC_TRY(check_packed(work, scales, "scales", OP_FLOATS, s->panels, s->blocks, NBITS_COLUMNS));
    w->scales = scales->data;
    w->scale_type = scales->dtype;
    if (!zeros)
        return GQAC_OK;
    GQAC_TRY(check_packed(work, zeros, "zero_points", OP_FLOATS | OP_BIT(U8), s->panels, s->blocks,
                          NBITS_COLUMNS));
    w->zeros = zeros->data;
    w->zero_type = zeros->dtype;
    return GQAC_OK;
}

static gqac_status read_job(const target_call *call, const cpu_product *p, gqac_tensor *y, job *j) {
    const gqac_tensor *bias = target_value(call, p->bias);
    const op_work work = target_work(call, &p->origin);
    GQAC_TRY(read_weights(call, &work, p, &j->w));
    j->bias = bias;
    j->y = y;
    if (bias && !OP_IN(OP_FLOATS, bias->dtype))
        OP_STOP(&work, GQAC_INVALID_INPUT, "bias has the type %s, which is not a float type",
                gqac_dtype_name(bias->dtype));
    if (bias && gqac_tensor_count(bias) != p->n)
        OP_STOP(&work, GQAC_INVALID_INPUT, "bias has %lld elements, but n is %lld",
                (long long)gqac_tensor_count(bias), (long long)p->n);
    return GQAC_OK;
}

/* True for products of bf16 factors: codes are converted when they are multiplied. */
static bool has_bf16_factors(const cpu_products *p, const batch *b) {
    return !b->int8 && p->bf16;
}

static void set_bf16_jobs(const batch *b, cpu_linear_job *jobs) {
    for (int i = 0; i < b->n; i++) {
        const gqac_tensor *bias = b->jobs[i].bias;
        jobs[i] = (cpu_linear_job){.dtype = b->x->dtype,
                                   .x = b->x->data,
                                   .bias = bias ? bias->data : NULL,
                                   .bias_dtype = bias ? bias->dtype : GQAC_NONE,
                                   .y = b->jobs[i].y->data,
                                   .rows = b->rows,
                                   .k = b->s->k,
                                   .n = b->jobs[i].w.shape.n,
                                   .codes = &b->jobs[i].w};
    }
}

static gqac_status open_batch(const target_call *call, const cpu_products *p, gqac_tensor *y,
                              const cpu_products_after *after, batch *b) {
    *b = (batch){.kernels = cpu_level_of(call)->nbits, .n = p->n, .after = after};
    for (int i = 0; i < p->n; i++)
        GQAC_TRY(read_job(call, &p->of[i], &y[i], &b->jobs[i]));
    const cpu_nbits_weights *w = &b->jobs[0].w;
    b->s = &w->shape;
    b->int8 =
        nbits_int8(p->accuracy_level, b->s->bits, b->s->block, w->zeros && w->zero_type != GQAC_U8);
    b->x = target_value(call, p->x);
    b->rows = op_product(b->x->dims, 0, b->x->rank - 1);
    b->row_blocks = (b->rows + CPU_NBITS_ROWS - 1) / CPU_NBITS_ROWS;
    return GQAC_OK;
}

gqac_status cpu_nbits_products(const target_call *call, const cpu_products *p, gqac_tensor *y,
                               const cpu_products_after *after) {
    batch b;
    cpu_linear_job jobs[CPU_PRODUCTS];
    GQAC_TRY(open_batch(call, p, y, after, &b));
    if (b.rows == 0)
        return GQAC_OK;
    if (!has_bf16_factors(p, &b))
        return multiply(&call->work, &b);
    set_bf16_jobs(&b, jobs);
    return cpu_linear_do(&call->work, cpu_level_of(call)->linear_bf16, jobs, b.n, after);
}

gqac_status cpu_nbits_products_measure(const target_call *call, int threads, const cpu_products *p,
                                       gqac_tensor *y, gqac_parts *parts) {
    batch b;
    cpu_linear_job jobs[CPU_PRODUCTS];
    GQAC_TRY(open_batch(call, p, y, NULL, &b));
    if (!has_bf16_factors(p, &b)) {
        measure(&b, threads, parts);
        return GQAC_OK;
    }
    set_bf16_jobs(&b, jobs);
    cpu_linear_measure(cpu_level_of(call)->linear_bf16, jobs, b.n, threads, parts);
    return GQAC_OK;
}

void cpu_nbits_measure(const cpu_nbits_weights *w, int64_t rows, int threads, gqac_parts *parts) {
    const batch b = {.s = &w->shape, .rows = rows};
    measure(&b, threads, parts);
}

gqac_status cpu_nbits_multiply(const op_work *work, const cpu_level *level, int n,
                               const cpu_nbits_weights *w, const gqac_tensor *const *bias,
                               const float *x, int64_t rows, float *const *y) {
    const gqac_tensor in = {
        .dtype = GQAC_F32, .rank = 2, .dims = {rows, w->shape.k}, .data = (void *)x};
    gqac_tensor out[CPU_PRODUCTS];
    batch b = {.kernels = level->nbits,
               .n = n,
               .s = &w->shape,
               .x = &in,
               .rows = rows,
               .row_blocks = (rows + CPU_NBITS_ROWS - 1) / CPU_NBITS_ROWS};
    for (int i = 0; i < n; i++) {
        out[i] =
            (gqac_tensor){.dtype = GQAC_F32, .rank = 2, .dims = {rows, w[i].shape.n}, .data = y[i]};
        b.jobs[i] = (job){.w = w[i], .bias = bias[i], .y = &out[i]};
    }
    return rows ? multiply(work, &b) : GQAC_OK;
}
