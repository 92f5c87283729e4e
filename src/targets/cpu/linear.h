/* Products with constant float weights: y [rows,n] = x [rows,k] w (+ bias [n]), w in panels of 64
 * columns as ops/linear.h has them. */
#ifndef GQAC_TARGETS_CPU_LINEAR_H
#define GQAC_TARGETS_CPU_LINEAR_H

#include "targets/cpu/products.h"

typedef struct cpu_linear_job {
    gqac_dtype dtype; /* of x, w, bias and y: f32, f16 or bf16 */
    const void *x;    /* [rows][k] */
    const void *w;    /* [panels][k][64] */
    const void *bias; /* [n], or NULL */
    void *y;          /* [rows][n] */
    int64_t rows, k, n;
} cpu_linear_job;

/* Some rows of some panels: what one thread does at a time. */
typedef struct cpu_linear_unit {
    int64_t row, rows;     /* rows <= row_block */
    int64_t panel, panels; /* panels <= panel_group */
} cpu_linear_unit;

struct cpu_linear_kernels {
    int row_block, panel_group; /* the most of a unit; a multiple of the rows of a tile */
    size_t (*room)(const cpu_linear_job *job); /* bytes of scratch of a unit, aligned to 64 */
    void (*run)(const cpu_linear_job *job, const cpu_linear_unit *unit, void *room);
};

bool cpu_linear_match(const ir_node *node);
/* Cuts the job into units over the pool; `call` for scratch and messages. */
gqac_status cpu_linear_do(op_call *call, const struct cpu_linear_kernels *kernels,
                          const cpu_linear_job *job);

#endif
