/* Products with constant float weights: y [rows,n] = x [rows,k] w (+ bias [n]), w in panels of 64
 * columns as ops/panels.h has them; and products of bf16 factors, whose weight is in panels of
 * pairs or in codes of linear_nbits, which become factors piece by piece. */
#ifndef GQAC_TARGETS_CPU_LINEAR_H
#define GQAC_TARGETS_CPU_LINEAR_H

#include "targets/cpu/products.h"

typedef struct cpu_linear_job {
    gqac_dtype dtype;   /* of x and y: f32, f16 or bf16 */
    gqac_dtype w_dtype; /* of w, likewise; products of bf16 factors do not look at it */
    const void *x;      /* [rows][k] */
    const void *w;      /* [panels][k][64] or [panels][ceil(k/2)][128]; NULL with codes */
    int64_t w_panel;    /* the panel that w begins with; products of bf16 factors: 0 */
    const void *bias;   /* [n], or NULL */
    gqac_dtype bias_dtype;
    void *y; /* [rows][n] */
    int64_t rows, k, n;
    const struct cpu_nbits_weights *codes; /* NULL: there are none */
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

/* Cuts jobs of one x into units over the pool. `after`: what is called behind each, or NULL. */
gqac_status cpu_linear_do(const op_work *work, const struct cpu_linear_kernels *kernels,
                          const cpu_linear_job *jobs, int n, const cpu_products_after *after);

#endif
