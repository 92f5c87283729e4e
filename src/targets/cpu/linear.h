/* Products with constant float weights: y [rows,n] = x [rows,k] w (+ bias [n]), w in panels of 64
 * columns (ops/panels.h); and products of bf16 factors, whose weight is in panels of pairs, or in
 * codes of linear_nbits, which are converted to factors piece by piece. */
#ifndef GQAC_TARGETS_CPU_LINEAR_H
#define GQAC_TARGETS_CPU_LINEAR_H

#include "targets/cpu/products.h"

typedef struct cpu_linear_job {
    gqac_dtype dtype;   /* of x and y: f32, f16 or bf16 */
    gqac_dtype w_dtype; /* of w, likewise; unused for products of bf16 factors */
    const void *x;      /* [rows][k] */
    const void *w;      /* [panels][k][64] or [panels][ceil(k/2)][128]; NULL with codes */
    int64_t w_panel;    /* the first panel in w; 0 for products of bf16 factors */
    const void *bias;   /* [n], or NULL */
    gqac_dtype bias_dtype;
    void *y; /* [rows][n] */
    int64_t rows, k, n;
    const struct cpu_nbits_weights *codes; /* NULL: w is not codes */
} cpu_linear_job;

/* Some rows of some panels, which one thread computes in one call. */
typedef struct cpu_linear_unit {
    int64_t row, rows;     /* rows <= row_block */
    int64_t panel, panels; /* panels <= panel_group */
} cpu_linear_unit;

struct cpu_linear_kernels {
    int row_block, panel_group; /* maximum rows and panels of a unit; row_block is a multiple of
                                   the tile rows */
    size_t (*scratch)(const cpu_linear_job *job); /* bytes of scratch of a unit, aligned to 64 */
    void (*run)(const cpu_linear_job *job, const cpu_linear_unit *unit, void *scratch);
};

/* Computes jobs that share one x, divided into units for the pool. `after` is called after each
 * unit; NULL: nothing is called. */
gqac_status cpu_linear_do(const op_work *work, const struct cpu_linear_kernels *kernels,
                          const cpu_linear_job *jobs, int n, const cpu_products_after *after);
/* Adds the scratch that such a call needs to `parts`. */
void cpu_linear_measure(const struct cpu_linear_kernels *kernels, const cpu_linear_job *jobs, int n,
                        int threads, gqac_parts *parts);

#endif
