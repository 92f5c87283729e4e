/* Attention without visible scores. With them, the node is expanded. */
#include "targets/gpu/attention.h"
#include "targets/gpu/graph.h"

static bool fits(const ir_node *node, int input) {
    const ir_type type = op_in_type(node, input);
    int64_t size;
    return type.rank == 4 && OP_IN(OP_FLOATS, type.dtype) && ir_dim_is_const(type.dims[3], &size) &&
           size >= 1 && size <= GPU_ATTEND_SIZE;
}

bool gpu_match_attention(const ir_node *node) {
    return fits(node, 0) && fits(node, 1) && fits(node, 2) && !ir_node_output(node, 1);
}

gqac_status gpu_bind_attention(const target_binding *b, const ir_node *root, const void **record) {
    gpu_attention *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    *r = (gpu_attention){.q = bind_input(root, "q"),
                         .k = bind_input(root, "k"),
                         .v = bind_input(root, "v"),
                         .past_len = bind_input(root, "past_len"),
                         .new_len = bind_input(root, "new_len"),
                         .bias = bind_input(root, "bias"),
                         .sink = bind_input(root, "sink"),
                         .y = bind_output(root, "y"),
                         .causal = ir_attr_int(root, "causal") != 0,
                         .window = ir_attr_int(root, "window"),
                         .scale = ir_attr_float(root, "scale"),
                         .softcap = ir_attr_float(root, "softcap")};
    *record = r;
    return GQAC_OK;
}
