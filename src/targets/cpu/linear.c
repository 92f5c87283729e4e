/* linear on the cpu target: checks the operands, cuts y [rows,n] into units of rows by panels, and
 * lets the level compute each. Panels are the slow index of the units, so that the blocks of a
 * large x meet the same panels while those are in a cache. */
#include "targets/cpu/linear.h"

#include "ops/linear.h"

enum {
    X,
    W,
    BIAS,
    SMALL = 1 << 18, /* multiply-adds that are not worth another thread */
    SHARES = 4,      /* units that each thread gets at least, where there are so many panels */
};

bool cpu_linear_match(const ir_node *node) {
    const gqac_tensor *w = ir_node_input(node, W)->constant;
    return w->data && OP_IN(OP_FLOATS, w->dtype);
}

typedef struct plan {
    const struct cpu_linear_kernels *kernels;
    const cpu_linear_job *job;
    int64_t row_blocks, panels, group;
    op_scratch scratch;
} plan;

static void run_unit(void *arg, size_t item, int worker) {
    const plan *p = arg;
    const int64_t block = (int64_t)item % p->row_blocks, group = (int64_t)item / p->row_blocks;
    cpu_linear_unit unit = {.row = block * p->kernels->row_block, .panel = group * p->group};
    unit.rows = p->job->rows - unit.row;
    unit.panels = p->panels - unit.panel;
    if (unit.rows > p->kernels->row_block)
        unit.rows = p->kernels->row_block;
    if (unit.panels > p->group)
        unit.panels = p->group;
    p->kernels->run(p->job, &unit, p->scratch.base + (size_t)worker * p->scratch.stride);
}

gqac_status cpu_linear_do(op_call *call, const struct cpu_linear_kernels *kernels,
                          const cpu_linear_job *job) {
    const int64_t row_block = kernels->row_block, threads = gqac_pool_threads(call->pool);
    plan p = {.kernels = kernels, .job = job, .panels = linear_panels(job->n)};
    if (job->rows == 0)
        return GQAC_OK;
    p.row_blocks = (job->rows + row_block - 1) / row_block;
    p.group = p.panels * p.row_blocks / (threads * SHARES);
    p.group = p.group < 1 || job->rows == 1 ? 1 : p.group;
    p.group = p.group > kernels->panel_group ? kernels->panel_group : p.group;
    const int64_t units = p.row_blocks * ((p.panels + p.group - 1) / p.group);
    GQAC_TRY(op_scratch_open(call, 1, kernels->room(job), &p.scratch));
    const double work = (double)job->rows * (double)job->k * (double)job->n;
    gqac_pool_queue(work < SMALL ? NULL : call->pool, (size_t)units, run_unit, &p);
    op_scratch_close(&p.scratch);
    return GQAC_OK;
}

gqac_status cpu_linear_run(op_call *call) {
    const ir_node *node = call->node;
    const int64_t n = ir_attr_int(node, "n"), k = ir_attr_int(node, "k");
    GQAC_TRY(op_want_set(call, W, OP_FLOATS));
    const gqac_tensor *w = call->in[W];
    GQAC_TRY(op_want(call, X, w->dtype));
    const gqac_tensor *x = call->in[X], *bias = node->n_inputs > BIAS ? call->in[BIAS] : NULL;
    if (!linear_is_packed(w, k, n))
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "the weight is not packed for [%lld,%lld]",
                (long long)k, (long long)n);
    if (x->rank < 1 || x->dims[x->rank - 1] != k)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "the last axis of x is not k = %lld",
                (long long)k);
    if (bias)
        GQAC_TRY(op_want(call, BIAS, w->dtype));
    if (bias && (bias->rank != 1 || bias->dims[0] != n))
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT, "bias is not a row of n = %lld elements",
                (long long)n);
    int64_t dims[GQAC_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        dims[i] = i + 1 < x->rank ? x->dims[i] : n;
    GQAC_TRY(op_output(call, 0, w->dtype, x->rank, dims));
    const cpu_linear_job job = {.dtype = w->dtype,
                                .x = x->data,
                                .w = w->data,
                                .bias = bias ? bias->data : NULL,
                                .y = call->out[0].data,
                                .rows = op_product(x->dims, 0, x->rank - 1),
                                .k = k,
                                .n = n};
    return cpu_linear_do(call, cpu_level_of(call)->linear, &job);
}
