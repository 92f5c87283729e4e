/* linear and linear_bf16 on the cpu target: checks the operands, divides each y [rows,n] into units
 * of rows by panels, and calls the level's kernel for each unit. Panels are the outer index of the
 * units, so that all blocks of a large x use the same panels while these are in a cache. */
#include "targets/cpu/linear.h"

#include "ops/panels.h"

enum {
    SMALL = 1 << 18, /* multiply-adds for which another thread is not worth its cost */
    SHARES = 4,      /* a unit is at most this part of a thread's share of the remaining work */
};

/* Jobs that share one x. Either the jobs have their own units, one job after another, or each unit
 * computes all jobs and then calls `after`. */
typedef struct plan {
    const struct cpu_linear_kernels *kernels;
    const cpu_linear_job *jobs;
    int n;
    const cpu_products_after *after; /* NULL: none */
    int64_t row_blocks, threads;
    op_scratch scratch;
} plan;

/* The number of panels in the next group, if `left` panels remain: fewer towards the end, so that
 * all threads finish at nearly the same time. */
static int64_t group_size(const plan *p, int64_t left) {
    const int64_t group = p->jobs->rows > 1 ? p->kernels->panel_group : 1;
    const int64_t most = group < left ? group : left;
    const int64_t size = left * p->row_blocks / (p->threads * SHARES);
    return size < 1 ? 1 : size < most ? size : most;
}

static int64_t units_of(const plan *p, const cpu_linear_job *job) {
    int64_t groups = 0;
    if (p->jobs->rows == 1) /* each panel is a group */
        return p->row_blocks * linear_panels(job->n);
    for (int64_t left = linear_panels(job->n); left > 0; groups++)
        left -= group_size(p, left);
    return p->row_blocks * groups;
}

static int64_t first_panel(const plan *p, int64_t panels, int64_t group) {
    int64_t panel = 0;
    if (p->jobs->rows == 1)
        return group;
    for (; group > 0; group--)
        panel += group_size(p, panels - panel);
    return panel;
}

static void run_unit(void *arg, size_t item, int worker) {
    const plan *p = arg;
    const cpu_products_after *after = p->after;
    const cpu_linear_job *job = p->jobs;
    int64_t at = (int64_t)item;
    for (; !after && at >= units_of(p, job); job++)
        at -= units_of(p, job);
    const int64_t block = at % p->row_blocks, panels = linear_panels(job->n);
    cpu_linear_unit unit = {.row = block * p->kernels->row_block};
    unit.panel = first_panel(p, panels, at / p->row_blocks);
    unit.rows = job->rows - unit.row;
    unit.panels = group_size(p, panels - unit.panel);
    if (unit.rows > p->kernels->row_block)
        unit.rows = p->kernels->row_block;
    unsigned char *scratch = p->scratch.base + (size_t)worker * p->scratch.stride;
    for (int i = 0; i < (after ? p->n : 1); i++)
        p->kernels->run(job + i, &unit, scratch);
    if (!after)
        return;
    const int64_t column = unit.panel * LINEAR_PANEL, left = job->n - column;
    const int64_t columns = unit.panels * LINEAR_PANEL;
    after->done(after->arg, unit.row, unit.rows, column, columns < left ? columns : left);
}

/* The number of bytes of scratch of a worker. */
static size_t worker_bytes(const struct cpu_linear_kernels *kernels, const cpu_linear_job *jobs,
                           int n) {
    size_t most = 0;
    for (int i = 0; i < n; i++) {
        const size_t bytes = kernels->scratch(&jobs[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

void cpu_linear_measure(const struct cpu_linear_kernels *kernels, const cpu_linear_job *jobs, int n,
                        int threads, gqac_parts *parts) {
    if (jobs->rows > 0)
        op_scratch_measure(parts, threads, 1, worker_bytes(kernels, jobs, n));
}

gqac_status cpu_linear_do(const op_work *work, const struct cpu_linear_kernels *kernels,
                          const cpu_linear_job *jobs, int n, const cpu_products_after *after) {
    const int64_t row_block = kernels->row_block;
    plan p = {.kernels = kernels, .jobs = jobs, .n = n, .after = after};
    int64_t units = 0;
    double products = 0;
    if (jobs->rows == 0)
        return GQAC_OK;
    for (int i = 0; i < n; i++)
        products += (double)jobs[i].rows * (double)jobs[i].k * (double)jobs[i].n;
    p.row_blocks = (jobs->rows + row_block - 1) / row_block;
    p.threads = gqac_pool_threads(work->pool);
    for (int i = 0; i < (after ? 1 : n); i++)
        units += units_of(&p, &jobs[i]);
    GQAC_TRY(op_work_scratch(work, 1, worker_bytes(kernels, jobs, n), &p.scratch));
    gqac_pool_queue(products < SMALL ? NULL : work->pool, (size_t)units, run_unit, &p);
    op_scratch_close(&p.scratch);
    return GQAC_OK;
}

static gqac_status read_job(const target_call *call, const cpu_products *p, int i,
                            const gqac_tensor *y, cpu_linear_job *job) {
    const cpu_product *of = &p->of[i];
    const gqac_tensor *x = target_value(call, p->x), *w = target_value(call, of->weight);
    const gqac_tensor *bias = target_value(call, of->bias);
    const op_work work = target_work(call, &of->origin);
    const bool pairs = p->form == CPU_PRODUCT_PAIRS;
    if (!w || !OP_IN(pairs ? OP_BIT(BF16) : OP_FLOATS, w->dtype) ||
        !(pairs ? linear_is_pairs(w, of->k, of->n) : linear_is_packed(w, of->k, of->n)))
        OP_STOP(&work, GQAC_INVALID_INPUT, "the weight is not packed for [%lld,%lld]",
                (long long)of->k, (long long)of->n);
    if (pairs && bias && !OP_IN(OP_FLOATS, bias->dtype))
        OP_STOP(&work, GQAC_INVALID_INPUT, "bias has the type %s, which is not a float type",
                gqac_dtype_name(bias->dtype));
    if (!pairs && (x->dtype != w->dtype || (bias && bias->dtype != w->dtype)))
        OP_STOP(&work, GQAC_INVALID_INPUT, "x and bias must have the type %s, as the weight has",
                gqac_dtype_name(w->dtype));
    if (bias && (bias->rank != 1 || bias->dims[0] != of->n))
        OP_STOP(&work, GQAC_INVALID_INPUT, "bias is not a row of n = %lld elements",
                (long long)of->n);
    *job = (cpu_linear_job){.dtype = x->dtype,
                            .w_dtype = w->dtype,
                            .x = x->data,
                            .w = w->data,
                            .bias = bias ? bias->data : NULL,
                            .bias_dtype = bias ? bias->dtype : GQAC_NONE,
                            .y = y->data,
                            .rows = op_product(x->dims, 0, x->rank - 1),
                            .k = of->k,
                            .n = of->n};
    return GQAC_OK;
}

static gqac_status read_jobs(const target_call *call, const cpu_products *p, const gqac_tensor *y,
                             cpu_linear_job *jobs) {
    for (int i = 0; i < p->n; i++)
        GQAC_TRY(read_job(call, p, i, &y[i], &jobs[i]));
    return GQAC_OK;
}

static const struct cpu_linear_kernels *kernels_of(const target_call *call, const cpu_products *p) {
    const cpu_level *level = cpu_level_of(call);
    return p->form == CPU_PRODUCT_PAIRS ? level->linear_bf16 : level->linear;
}

gqac_status cpu_linear_products(const target_call *call, const cpu_products *p,
                                const gqac_tensor *y, const cpu_products_after *after) {
    cpu_linear_job jobs[CPU_PRODUCTS];
    GQAC_TRY(read_jobs(call, p, y, jobs));
    return cpu_linear_do(&call->work, kernels_of(call, p), jobs, p->n, after);
}

gqac_status cpu_linear_products_measure(const target_call *call, int threads, const cpu_products *p,
                                        const gqac_tensor *y, gqac_parts *parts) {
    cpu_linear_job jobs[CPU_PRODUCTS];
    GQAC_TRY(read_jobs(call, p, y, jobs));
    cpu_linear_measure(kernels_of(call, p), jobs, p->n, threads, parts);
    return GQAC_OK;
}
