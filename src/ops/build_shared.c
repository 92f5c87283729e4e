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
