/* Products of one x in one call: shapes and memory of the results. */
#include "targets/cpu/products.h"

#include <string.h>

gqac_status cpu_product_shape(const target_call *call, const cpu_products *p, int i,
                              gqac_tensor *y) {
    const gqac_tensor *x = target_value(call, p->x);
    const cpu_product *of = &p->of[i];
    const op_work work = target_work(call, &of->origin);
    if (!x || !OP_IN(OP_FLOATS, x->dtype) || x->rank < 1 || x->dims[x->rank - 1] != of->k)
        OP_STOP(&work, GQAC_INVALID_INPUT, "x must be floats with a last axis of k = %lld",
                (long long)of->k);
    *y = (gqac_tensor){.dtype = x->dtype, .rank = x->rank};
    memcpy(y->dims, x->dims, sizeof y->dims);
    y->dims[y->rank - 1] = of->n;
    return GQAC_OK;
}

gqac_status cpu_products_do(const target_call *call, const cpu_products *p, gqac_tensor *y,
                            const cpu_products_after *after) {
    return p->form == CPU_PRODUCT_CODES ? cpu_nbits_products(call, p, y, after)
                                        : cpu_linear_products(call, p, y, after);
}

gqac_status cpu_products_scratch(const target_call *call, int threads, const void *record,
                                 gqac_parts *parts) {
    const cpu_products *p = record;
    gqac_tensor y[CPU_PRODUCTS];
    for (int i = 0; i < p->n; i++)
        GQAC_TRY(cpu_product_shape(call, p, i, &y[i]));
    return p->form == CPU_PRODUCT_CODES ? cpu_nbits_products_measure(call, threads, p, y, parts)
                                        : cpu_linear_products_measure(call, threads, p, y, parts);
}

gqac_status cpu_products_run(target_call *call, const void *record) {
    const cpu_products *p = record;
    gqac_tensor y[CPU_PRODUCTS];
    for (int i = 0; i < p->n; i++) {
        GQAC_TRY(cpu_product_shape(call, p, i, &y[i]));
        GQAC_TRY(target_give(call, p->of[i].y, &y[i]));
    }
    return cpu_products_do(call, p, y, NULL);
}
