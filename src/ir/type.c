/* Types of values: element type, rank and dimensions.
 *
 * Dimensions are interned, so types are compared by pointers. Lists of dimensions live in the arena
 * and are never changed in place, so types can be copied. */
#include "ir/impl.h"

#include <string.h>

ir_type ir_type_unknown(void) {
    return (ir_type){.dtype = GQAC_NONE, .rank = -1};
}

ir_type ir_type_make(ir_module *module, gqac_dtype dtype, int rank, const ir_dim *const *dims) {
    ir_type type = {.dtype = dtype, .rank = rank};
    if (rank <= 0)
        return type;
    type.dims = gqac_arena_copy(module->arena, dims, (size_t)rank * sizeof *dims);
    if (!type.dims) {
        ir_dims_fail(module->dims);
        type.rank = -1;
    }
    return type;
}

ir_type ir_type_of_tensor(ir_module *module, const gqac_tensor *tensor) {
    const ir_dim *dims[GQAC_MAX_RANK];
    for (int i = 0; i < tensor->rank; i++)
        dims[i] = ir_dim_const(module->dims, tensor->dims[i]);
    return ir_type_make(module, tensor->dtype, tensor->rank, dims);
}

bool ir_type_equal(const ir_type *a, const ir_type *b) {
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}
