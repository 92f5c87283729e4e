/* The kernel cpu.matmul: MatMul of two operands that are known only at run time, by the kernels of
 * `linear`.
 *
 * A unit copies some panels of 64 columns of one matrix of B to its scratch, in the form that those
 * kernels read, and multiplies a run of rows by them. For few rows a copy is not worth its cost:
 * they are computed by the op's own eval, with the same bits. */
#include "targets/cpu/matmul.h"

#include <string.h>

#include "base/check.h"
#include "ops/matrices.h"
#include "ops/panels.h"
#include "targets/cpu/linear.h"

enum {
    LEAST_ROWS = 8,       /* from this number on, a copy is worth its cost */
    COPY_BYTES = 1 << 20, /* maximum for the panels of a unit, unless one panel is larger */
    UNITS_A_THREAD = 4,   /* with fewer, rows are divided too */
    SMALL = 1 << 18,      /* multiply-adds for which another thread is not worth its cost */
};

typedef struct plan {
    const struct cpu_linear_kernels *kernels;
    const gqac_tensor *a, *b;
    gqac_tensor y;
    matmul_shape s;
    int64_t panels, group; /* panels of a matrix, of a unit */
    int64_t groups;
    int64_t run, runs; /* run: rows of a unit, a multiple of row_block; runs: of a matrix */
    size_t width;      /* bytes of an element */
    size_t line, copy; /* bytes of a row of a panel, of all panels of a unit */
    op_scratch scratch;
} plan;

/* ---- a unit --------------------------------------------------------------- */

/* Copies columns [column, column + 64) of a matrix [k][n] to a panel [k][64], with zeros after
 * column n. */
static void copy_panel(const plan *p, const char *matrix, int64_t column, char *panel) {
    const size_t row = (size_t)p->s.n * p->width;
    const int64_t left = p->s.n - column;
    const size_t bytes = left < LINEAR_PANEL ? (size_t)left * p->width : p->line;
    const char *from = matrix + (size_t)column * p->width;
    for (int64_t k = 0; k < p->s.k; k++, from += row, panel += p->line) {
        memcpy(panel, from, bytes);
        memset(panel + bytes, 0, p->line - bytes);
    }
}

static void run_unit(void *arg, size_t item, int worker) {
    const plan *p = arg;
    const matmul_shape *s = &p->s;
    char *panels = (char *)p->scratch.base + (size_t)worker * p->scratch.stride;
    const int64_t run = (int64_t)item % p->runs, rest = (int64_t)item / p->runs;
    const int64_t batch = rest / p->groups, panel = rest % p->groups * p->group;
    const int64_t last = (run + 1) * p->run < s->m ? (run + 1) * p->run : s->m;
    const int64_t a = matmul_matrix(s, s->a_step, batch) * s->m * s->k;
    const int64_t b = matmul_matrix(s, s->b_step, batch) * s->k * s->n;
    const cpu_linear_job job = {.dtype = p->a->dtype,
                                .w_dtype = p->b->dtype,
                                .x = (const char *)p->a->data + (size_t)a * p->width,
                                .w = panels,
                                .w_panel = panel,
                                .y = (char *)p->y.data + (size_t)(batch * s->m * s->n) * p->width,
                                .rows = s->m,
                                .k = s->k,
                                .n = s->n};
    cpu_linear_unit unit = {.panel = panel};
    unit.panels = p->panels - panel < p->group ? p->panels - panel : p->group;
    for (int64_t i = 0; i < unit.panels; i++)
        copy_panel(p, (const char *)p->b->data + (size_t)b * p->width, (panel + i) * LINEAR_PANEL,
                   panels + (size_t)(i * s->k) * p->line);
    for (unit.row = run * p->run; unit.row < last; unit.row += unit.rows) {
        unit.rows = last - unit.row;
        if (unit.rows > p->kernels->row_block)
            unit.rows = p->kernels->row_block;
        p->kernels->run(&job, &unit, panels + p->copy);
    }
}

/* ---- the kernel ----------------------------------------------------------- */

/* If all matrices of A are multiplied by the same matrix of B, their rows become the rows of one
 * matrix. */
static void join_batches(matmul_shape *s) {
    bool one = true;
    for (int i = 0; i < s->batch_rank; i++)
        one = one && (s->batch_dims[i] == 1 || (s->b_step[i] == 0 && s->a_step[i] != 0));
    if (!one)
        return;
    s->m *= s->batches;
    s->batches = 1;
    s->batch_rank = 0;
}

/* Chooses the number of panels in a unit; then divides rows into runs if there are few units. */
static bool cut(plan *p, int64_t threads) {
    const matmul_shape *s = &p->s;
    const int64_t block = p->kernels->row_block, blocks = (s->m + block - 1) / block;
    size_t panel;
    p->line = LINEAR_PANEL * p->width;
    if (!gqac_mul_size((size_t)s->k, p->line, &panel))
        return false;
    p->panels = linear_panels(s->n);
    p->group = COPY_BYTES / (int64_t)panel;
    p->group = p->group > p->kernels->panel_group ? p->kernels->panel_group : p->group;
    p->group = p->group > p->panels ? p->panels : p->group < 1 ? 1 : p->group;
    p->groups = (p->panels + p->group - 1) / p->group;
    const int64_t units = s->batches * p->groups, want = threads * UNITS_A_THREAD;
    int64_t runs = units < want ? (want + units - 1) / units : 1;
    runs = runs < blocks ? runs : blocks;
    p->run = (blocks + runs - 1) / runs * block;
    p->runs = (s->m + p->run - 1) / p->run;
    return gqac_mul_size((size_t)p->group, panel, &p->copy);
}

/* Checks the operands and sets the shapes: *each is the original product, p->s the product with
 * batches joined. */
static gqac_status open_plan(const target_call *call, const cpu_matmul_record *r, plan *p,
                             matmul_shape *each) {
    int rank;
    int64_t dims[GQAC_MAX_RANK + 2];
    *p = (plan){.kernels = cpu_level_of(call)->linear,
                .a = target_value(call, r->a),
                .b = target_value(call, r->b)};
    if (!OP_IN(OP_FLOATS, p->a->dtype) || p->b->dtype != p->a->dtype)
        OP_STOP(&call->work, GQAC_INVALID_INPUT,
                "operands of the types %s and %s are not supported", gqac_dtype_name(p->a->dtype),
                gqac_dtype_name(p->b->dtype));
    GQAC_TRY(matmul_fit(&call->work, p->a, p->b, &p->s, &rank, dims));
    p->y = (gqac_tensor){.dtype = p->a->dtype, .rank = rank};
    memcpy(p->y.dims, dims, (size_t)rank * sizeof *dims);
    p->width = op_width(p->a->dtype);
    *each = p->s;
    join_batches(&p->s);
    return GQAC_OK;
}

static bool copies(const plan *p) {
    return p->s.m >= LEAST_ROWS && p->s.k != 0 && p->s.n != 0 && p->s.batches != 0;
}

/* The number of bytes of scratch of a worker. */
static size_t worker_bytes(const plan *p) {
    const cpu_linear_job most = {.dtype = p->a->dtype, .w_dtype = p->b->dtype, .rows = p->s.m};
    return p->copy + p->kernels->scratch(&most);
}

gqac_status cpu_matmul_scratch(const target_call *call, int threads, const void *record,
                               gqac_parts *parts) {
    plan p;
    matmul_shape each;
    GQAC_TRY(open_plan(call, record, &p, &each));
    if (!copies(&p))
        matmul_measure(threads, parts);
    else if (cut(&p, threads))
        op_scratch_measure(parts, threads, 1, worker_bytes(&p));
    else
        parts->overflow = true;
    return GQAC_OK;
}

gqac_status cpu_matmul_run(target_call *call, const void *record) {
    const cpu_matmul_record *r = record;
    const op_work *work = &call->work;
    plan p;
    matmul_shape each;
    GQAC_TRY(open_plan(call, r, &p, &each));
    GQAC_TRY(target_give(call, r->y, &p.y));
    if (!copies(&p))
        return matmul_floats(work, &each, p.a, p.b, &p.y);
    if (!cut(&p, work->pool ? gqac_pool_threads(work->pool) : 1))
        return gqac_diag_oom(work->diag, "panels of B");
    GQAC_TRY(op_work_scratch(work, 1, worker_bytes(&p), &p.scratch));
    const double products = (double)p.s.batches * (double)p.s.m * (double)p.s.k * (double)p.s.n;
    gqac_pool_queue(products < SMALL ? NULL : work->pool, (size_t)(p.s.batches * p.groups * p.runs),
                    run_unit, &p);
    op_scratch_close(&p.scratch);
    return GQAC_OK;
}
