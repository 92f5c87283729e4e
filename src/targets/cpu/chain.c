/* Chains of elementwise ops, compiled by targets/fuse_chain.c: one pass over pieces of a row. If a
 * chain reads products, the thread that computes some panels of them continues with the chain on
 * those columns while they are in its cache. The products are in scratch, in their own types. */
#include <string.h>

#include "targets/cpu/rows.h"

typedef struct chain_job {
    cpu_chain chain;
    const struct cpu_row_kernels *kernels;
} chain_job;

static void chain_items(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    const chain_job *job = arg;
    job->kernels->chain(&job->chain, begin, end);
}

/* Runs the chain on columns of the products, on the thread that computed them. */
static void chain_part(void *arg, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const chain_job *job = arg;
    job->kernels->part(&job->chain, row, rows, column, columns);
}

/* Products y[i], stored in memory[i]. */
typedef struct made {
    int n;
    gqac_tensor y[CPU_PRODUCTS];
    op_scratch memory[CPU_PRODUCTS];
} made;

/* Sets the type, the shape and the number of bytes of product i. */
static gqac_status shape_product(const target_call *call, const cpu_products *p, int i,
                                 gqac_tensor *y, size_t *bytes) {
    GQAC_TRY(cpu_product_shape(call, p, i, y));
    return gqac_shape_bytes(y->dtype, y->rank, y->dims, bytes, call->work.diag);
}

static gqac_status make_products(const target_call *call, const cpu_products *p, made *m) {
    for (; m->n < p->n; m->n++) {
        gqac_tensor *y = &m->y[m->n];
        size_t bytes;
        GQAC_TRY(shape_product(call, p, m->n, y, &bytes));
        GQAC_TRY(op_work_scratch_one(&call->work, bytes, 1, &m->memory[m->n]));
        y->data = m->memory[m->n].base;
    }
    return GQAC_OK;
}

/* Sets the operands of the chain; *shape: a tensor with the shape of the result. */
static gqac_status open_leaves(const target_call *call, const cpu_chain_record *r, const made *m,
                               const gqac_tensor **shape, cpu_chain *chain) {
    const gqac_tensor *leaves[TARGET_CHAIN_LEAVES] = {NULL};
    const target_chain *of = &r->of;
    int product = 0;
    for (int i = 0; i < of->n_leaves; i++)
        leaves[i] =
            of->leaves[i].value < 0 ? &m->y[product++] : target_value(call, of->leaves[i].value);
    GQAC_TRY(target_chain_fit(call, of, of->rows || r->products.n > 0, leaves, &chain->n));
    for (int i = 0; i < of->n_leaves; i++)
        chain->leaves[i] = (cpu_leaf){
            .data = leaves[i]->data, .type = leaves[i]->dtype, .form = of->leaves[i].form};
    *shape = leaves[of->shape];
    const int64_t count = gqac_tensor_count(*shape);
    chain->rows = count ? count / chain->n : 0;
    chain->pieces = (chain->n + CPU_CHAIN_PIECE - 1) / CPU_CHAIN_PIECE;
    return GQAC_OK;
}

static gqac_status run(target_call *call, const cpu_chain_record *r, made *m) {
    const target_chain *of = &r->of;
    chain_job job = {.kernels = cpu_level_of(call)->row,
                     .chain = {.n_leaves = of->n_leaves, .n_steps = of->n_steps, .type = of->type}};
    const gqac_tensor *shape;
    GQAC_TRY(make_products(call, &r->products, m));
    GQAC_TRY(open_leaves(call, r, m, &shape, &job.chain));
    memcpy(job.chain.steps, of->steps, (size_t)of->n_steps * sizeof *of->steps);
    gqac_tensor y = *shape;
    y.dtype = of->type;
    GQAC_TRY(target_give(call, of->y, &y));
    job.chain.y = y.data;
    if (r->products.n > 0)
        return cpu_products_do(call, &r->products, m->y,
                               &(cpu_products_after){.done = chain_part, .arg = &job});
    op_work_parallel(&call->work, job.chain.rows * job.chain.pieces, r->cost, chain_items, &job);
    return GQAC_OK;
}

gqac_status cpu_chain_run(target_call *call, const void *record) {
    made m = {.n = 0};
    const gqac_status status = run(call, record, &m);
    for (int i = m.n - 1; i >= 0; i--)
        op_scratch_close(&m.memory[i]);
    return status;
}

gqac_status cpu_chain_scratch(const target_call *call, int threads, const void *record,
                              gqac_parts *parts) {
    const cpu_products *p = &((const cpu_chain_record *)record)->products;
    for (int i = 0; i < p->n; i++) {
        gqac_tensor y;
        size_t bytes;
        GQAC_TRY(shape_product(call, p, i, &y, &bytes));
        op_scratch_measure_one(parts, bytes, 1);
    }
    return p->n ? cpu_products_scratch(call, threads, p, parts) : GQAC_OK;
}
