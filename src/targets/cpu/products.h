/* Products of one x that are computed in one call: their weights are one list of panels, which the
 * threads share, and x is read once. Each element is the same as when its product is computed
 * alone. */
#ifndef GQAC_TARGETS_CPU_PRODUCTS_H
#define GQAC_TARGETS_CPU_PRODUCTS_H

#include "ops/nbits.h"
#include "targets/cpu/cpu.h"

enum { CPU_PRODUCTS = 8 };

/* Called when rows [row, row + rows) of columns [column, column + columns) of every y have been
 * computed. */
typedef struct cpu_products_after {
    void (*done)(void *arg, int64_t row, int64_t rows, int64_t column, int64_t columns);
    void *arg;
} cpu_products_after;

typedef enum cpu_product_form {
    CPU_PRODUCT_FLOATS, /* linear */
    CPU_PRODUCT_PAIRS,  /* linear_bf16 */
    CPU_PRODUCT_CODES,  /* linear_nbits */
} cpu_product_form;

/* One product: value numbers and attributes. */
typedef struct cpu_product {
    op_origin origin;
    int weight, bias, scales, zero_points; /* -1: absent */
    int y;                                 /* -1: it is unused, or used only inside the group */
    int64_t n, k;
    nbits_shape shape; /* of codes */
} cpu_product;

/* Products with the same form, x, k and attributes, except n. Also the record of the kernels
 * cpu.linear*. */
typedef struct cpu_products {
    cpu_product_form form;
    int n, x;
    int64_t accuracy_level; /* of codes */
    bool bf16;              /* codes become bf16 factors if x is not quantised */
    cpu_product of[CPU_PRODUCTS];
} cpu_products;

/* Sets the type and shape of y[i], from x and n. */
gqac_status cpu_product_shape(const target_call *call, const cpu_products *p, int i,
                              gqac_tensor *y);
/* Computes all products; y[i] must have a shape and memory. `after`: called for panels of all
 * products, which then have equal n; NULL: nothing is called. */
gqac_status cpu_products_do(const target_call *call, const cpu_products *p, gqac_tensor *y,
                            const cpu_products_after *after);
/* The same for products of one form: of floats or pairs, and of codes. y[i] must have a shape, and
 * memory unless the call only measures. */
gqac_status cpu_linear_products(const target_call *call, const cpu_products *p,
                                const gqac_tensor *y, const cpu_products_after *after);
gqac_status cpu_nbits_products(const target_call *call, const cpu_products *p, gqac_tensor *y,
                               const cpu_products_after *after);

gqac_status cpu_linear_products_measure(const target_call *call, int threads, const cpu_products *p,
                                        const gqac_tensor *y, gqac_parts *parts);
gqac_status cpu_nbits_products_measure(const target_call *call, int threads, const cpu_products *p,
                                       gqac_tensor *y, gqac_parts *parts);

/* The kernels: a product alone, or several that read one x; record: cpu_products. cpu_products_do
 * needs the same scratch. */
gqac_status cpu_products_run(target_call *call, const void *record);
gqac_status cpu_products_scratch(const target_call *call, int threads, const void *record,
                                 gqac_parts *parts);

#endif
