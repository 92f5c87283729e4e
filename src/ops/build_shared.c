/* Small pieces of graph that the expansions of several ops build. */
#include "ops/shared.h"

ir_value *op_build_cast(ir_builder *b, ir_value *x, gqac_dtype to) {
    ir_node *cast = op_build(b, "", "Cast", 1, &x, 1);
    if (cast)
        ir_attr_set_dtype(cast, "to", to);
    return ir_build_result(b, cast, 0);
}

ir_value *op_build_rounded(ir_builder *b, ir_value *x) {
    return op_build_cast(b, op_build_cast(b, x, GQAC_BF16), GQAC_F32);
}

ir_value *op_build_lengths(ir_builder *b, ir_value *x, int first, int n) {
    ir_node *shape = op_build(b, "", "Shape", 1, &x, 1);
    if (shape) {
        ir_attr_set_int(shape, "start", first);
        ir_attr_set_int(shape, "end", first + n);
    }
    return ir_build_result(b, shape, 0);
}
