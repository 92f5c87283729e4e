/* Products of one x that are computed in one call: their weights are one list of panels, which the
 * threads share, and x is read once. Each element is what its product alone gives. */
#ifndef GQAC_TARGETS_CPU_PRODUCTS_H
#define GQAC_TARGETS_CPU_PRODUCTS_H

#include "targets/cpu/cpu.h"

enum { CPU_PRODUCTS = 8 };

/* Rows [row, row + rows) of columns [column, column + columns) of every y are done. */
typedef void cpu_products_after(void *arg, int64_t row, int64_t rows, int64_t column,
                                int64_t columns);

/* All `linear` of one type, all `linear_bf16`, or all `linear_nbits` of one form: the same x, k and
 * attributes, but for n. */
typedef struct cpu_products {
    int n;
    const ir_node *nodes[CPU_PRODUCTS];
    gqac_tensor *y[CPU_PRODUCTS]; /* shape and memory */
    cpu_products_after *after;    /* of panels of all products, which then have one n; or NULL */
    void *arg;
} cpu_products;

/* Operand i of one of the nodes that a call computes; NULL when it is absent. */
static inline const gqac_tensor *cpu_operand(const op_call *call, const ir_node *node, int i) {
    if (node == call->node)
        return i < node->n_inputs ? call->in[i] : NULL;
    return op_value(call, ir_node_input(node, i));
}

gqac_status cpu_linear_products(op_call *call, const cpu_products *p);
gqac_status cpu_nbits_products(op_call *call, const cpu_products *p);

/* Is the node such a product; can a call compute both? */
bool cpu_is_product(const ir_node *node);
bool cpu_products_fit(const ir_node *a, const ir_node *b);
/* Type and shape of y, by x and n. */
gqac_status cpu_product_shape(op_call *call, const ir_node *node, gqac_tensor *y);
/* Computes them, whichever they are. */
gqac_status cpu_products_do(op_call *call, const cpu_products *p);

/* Kernels: a product alone, and those that read one x. */
gqac_status cpu_run_product(op_call *call);
int cpu_fuse_products(const ir_node *root, ir_node **nodes);
gqac_status cpu_run_products(op_call *call);

#endif
