/* Norms, selected rows and elementwise ops on floats. */
#include <string.h>

#include "targets/fuse_chain.h"
#include "targets/gpu/graph.h"
#include "targets/gpu/rows.h"

static bool is_float(const ir_node *node, int input) {
    return !ir_node_input(node, input) || OP_IN(OP_FLOATS, op_in_type(node, input).dtype);
}

/* True if all operands are floats of one type. */
static bool all_floats(const ir_node *node) {
    for (int i = 0; i < node->n_inputs; i++)
        if (!is_float(node, i) ||
            (ir_node_input(node, i) && op_in_type(node, i).dtype != op_in_type(node, 0).dtype))
            return false;
    return true;
}

/* The operand that has a value number. */
static gqac_status bind_numbered(const target_binding *b, const ir_node *node, int number,
                                 gpu_operand *of) {
    for (int i = 0; i < node->n_inputs; i++)
        if (number >= 0 && bind_value(ir_node_input(node, i)) == number)
            return gpu_bind_operand(b, node, i, of);
    *of = (gpu_operand){.value = -1};
    return GQAC_OK;
}

/* ---- norms ------------------------------------------------------------------- */

bool gpu_match_norm(const ir_node *node) {
    return all_floats(node) && op_in_type(node, 0).rank >= 1;
}

gqac_status gpu_bind_norm(const target_binding *b, const ir_node *root, const void **record) {
    gpu_norm *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    bind_norm(root, &r->of);
    *record = r;
    GQAC_TRY(bind_numbered(b, root, r->of.weight, &r->weight));
    GQAC_TRY(bind_numbered(b, root, r->of.beta, &r->beta));
    return bind_numbered(b, root, r->of.bias, &r->bias);
}

/* ---- copies -------------------------------------------------------------------- */

bool gpu_match_take_rows(const ir_node *node) {
    return is_float(node, 0);
}

gqac_status gpu_bind_take_rows(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(b, record, gpu_take_rows, .x = bind_input(root, "x"),
                       .rows = bind_input(root, "rows"), .y = bind_output(root, "y"));
}

/* Rows of an embedding. */
bool gpu_match_gather(const ir_node *node) {
    const ir_value *data = ir_node_input(node, 0);
    const gqac_tensor *t = data ? data->constant : NULL;
    return t && OP_IN(OP_FLOATS, t->dtype) && t->rank >= 1 && ir_attr_int(node, "axis") == 0 &&
           gqac_tensor_count(t) > 0 && t->dims[0] <= INT32_MAX;
}

gqac_status gpu_bind_gather(const target_binding *b, const ir_node *root, const void **record) {
    gpu_gather *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    r->indices = bind_input(root, "indices");
    r->y = bind_output(root, "output");
    *record = r;
    const gqac_tensor *data = ir_node_input(root, 0)->constant; /* keeps its type */
    r->data.value = bind_input(root, "data");
    return gpu_keep(b->state, data->data, gqac_tensor_bytes(data), &r->data.kept, b->diag);
}

enum { DATA, INDICES, SCALES, ZEROS }; /* inputs of GatherBlockQuantized */

static const gqac_tensor *constant_of(const ir_node *node, int input) {
    const ir_value *value = ir_node_input(node, input);
    return value ? value->constant : NULL;
}

/* Constants of sizes that fit; the op's own eval refuses others. */
bool gpu_match_gather_codes(const ir_node *node) {
    const gqac_tensor *data = constant_of(node, DATA), *scales = constant_of(node, SCALES);
    const gqac_tensor *zeros = constant_of(node, ZEROS);
    const int64_t bits = ir_attr_int(node, "bits"), block = ir_attr_int(node, "block_size");
    if (!data || !scales || !OP_IN(OP_FLOATS, scales->dtype) || data->rank < 2 ||
        !OP_IN(OP_NIBBLES | OP_BIT(U8), data->dtype) || (!zeros && ir_node_input(node, ZEROS)) ||
        (zeros && zeros->dtype != data->dtype) || gqac_tensor_count(data) == 0)
        return false;
    const bool bytes = data->dtype == GQAC_U8;
    const int64_t codes = data->dims[data->rank - 1] * (bytes ? 8 / bits : 1);
    const int64_t rows = op_product(data->dims, 0, data->rank - 1);
    const int64_t blocks = (codes + block - 1) / block;
    const int64_t zero_row = bytes ? (blocks * bits + 7) / 8 : blocks;
    return data->dims[0] <= INT32_MAX && codes <= INT32_MAX && block <= INT32_MAX &&
           (bytes || bits == 4) && gqac_tensor_count(scales) == rows * blocks &&
           (!zeros || gqac_tensor_count(zeros) == rows * zero_row);
}

static gqac_status keep_codes(const target_binding *b, const ir_node *node, int input,
                              gpu_operand *of) {
    const gqac_tensor *codes = constant_of(node, input);
    of->value = bind_value(ir_node_input(node, input));
    return codes ? gpu_keep(b->state, codes->data, gqac_tensor_bytes(codes), &of->kept, b->diag)
                 : GQAC_OK;
}

gqac_status gpu_bind_gather_codes(const target_binding *b, const ir_node *root,
                                  const void **record) {
    gpu_gather_codes *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    r->indices = bind_value(ir_node_input(root, INDICES));
    r->y = bind_value(ir_node_output(root, 0));
    r->bits = (int32_t)ir_attr_int(root, "bits");
    r->block = (int32_t)ir_attr_int(root, "block_size");
    *record = r;
    GQAC_TRY(keep_codes(b, root, DATA, &r->data));
    GQAC_TRY(keep_codes(b, root, ZEROS, &r->zeros));
    return gpu_bind_operand(b, root, SCALES, &r->scales);
}

/* ---- elementwise --------------------------------------------------------------- */

static const struct {
    const char *domain, *op;
    const char *approximate; /* the attribute of Gelu; NULL: the op has none */
    bool has_alpha;
    gpu_kernel_id kernel, gate; /* gate: 0 if there is none */
} unary[] = {
    {"", "Cast", NULL, false, GPU_SAME, 0},
    {"", "Neg", NULL, false, GPU_NEG, 0},
    {"", "Sqrt", NULL, false, GPU_SQRT, 0},
    {"", "Sigmoid", NULL, false, GPU_SIGMOID, GPU_GATE_SIGMOID},
    {"", "Tanh", NULL, false, GPU_TANH, GPU_GATE_TANH},
    {"", "Erf", NULL, false, GPU_ERF, 0},
    {"", "Swish", NULL, true, GPU_SWISH, GPU_GATE_SWISH},
    {"", "Gelu", "none", false, GPU_GELU, GPU_GATE_GELU},
    {"", "Gelu", "tanh", false, GPU_GELU_TANH, GPU_GATE_GELU_TANH},
    {"com.microsoft", "QuickGelu", NULL, true, GPU_SWISH, GPU_GATE_SWISH},
    {"com.microsoft", "FastGelu", NULL, false, GPU_FAST_GELU, GPU_GATE_FAST_GELU},
};

/* The row of a node; -1: none. */
static int unary_of(const ir_node *node) {
    for (int i = 0; i < GPU_COUNT(unary); i++)
        if (op_is(node, unary[i].domain, unary[i].op) &&
            (!unary[i].approximate ||
             !strcmp(unary[i].approximate, ir_attr_get(node, "approximate")->s)))
            return i;
    return -1;
}

bool gpu_match_unary(const ir_node *node) {
    return is_float(node, 0) && OP_IN(OP_FLOATS, ir_node_output(node, 0)->type.dtype) &&
           !ir_node_input(node, 1) && unary_of(node) >= 0;
}

gqac_status gpu_bind_unary(const target_binding *b, const ir_node *root, const void **record) {
    const int i = unary_of(root);
    return BIND_RECORD(
        b, record, gpu_unary, .kernel = unary[i].kernel, .x = bind_value(ir_node_input(root, 0)),
        .y = bind_value(ir_node_output(root, 0)), .dtype = ir_node_output(root, 0)->type.dtype,
        .alpha = unary[i].has_alpha ? ir_attr_float(root, "alpha") : 0);
}

static const struct {
    const char *op;
    gpu_kernel_id kernel;
} binary[] = {{"Add", GPU_ADD}, {"Sub", GPU_SUB}, {"Mul", GPU_MUL}, {"Div", GPU_DIV}};

bool gpu_match_binary(const ir_node *node) {
    return all_floats(node);
}

gqac_status gpu_bind_binary(const target_binding *b, const ir_node *root, const void **record) {
    gpu_binary *r = bind_new(b, sizeof *r);
    int i = 0;
    if (!r)
        return GQAC_NO_MEMORY;
    while (!op_is(root, "", binary[i].op))
        i++;
    r->kernel = binary[i].kernel;
    r->y = bind_value(ir_node_output(root, 0));
    *record = r;
    GQAC_TRY(gpu_bind_operand(b, root, 0, &r->a));
    return gpu_bind_operand(b, root, 1, &r->b);
}

/* ---- gates --------------------------------------------------------------------- */

/* The activation that a Mul alone reads, at that input; NULL: none. */
static ir_node *activation_of(const ir_node *mul, int input) {
    const ir_value *value = ir_node_input(mul, input);
    ir_node *node = value ? value->def : NULL;
    const int row = node ? unary_of(node) : -1;
    const bool alone = value && value->uses && !value->uses->next && value->uses->node == mul;
    return row >= 0 && unary[row].gate && alone && node->graph == mul->graph &&
                   gpu_match_unary(node)
               ? node
               : NULL;
}

int gpu_fuse_gate(const ir_node *root, ir_node **nodes) {
    for (int i = 0; i < 2; i++) {
        ir_node *node = activation_of(root, i);
        if (node && !node->fused_into && !(node->mark & TARGET_CLAIMED)) {
            nodes[0] = node;
            return 1;
        }
    }
    return 0;
}

gqac_status gpu_bind_gate(const target_binding *b, const ir_node *root, const void **record) {
    gpu_binary *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    const ir_node *left = activation_of(root, 0);
    const int input = left && left->fused_into == root ? 0 : 1;
    const ir_node *node = activation_of(root, input);
    const int row = unary_of(node);
    *r = (gpu_binary){.kernel = unary[row].gate,
                      .y = bind_value(ir_node_output(root, 0)),
                      .gate = true,
                      .alpha = unary[row].has_alpha ? ir_attr_float(node, "alpha") : 0};
    *record = r;
    GQAC_TRY(gpu_bind_operand(b, node, 0, &r->a));
    return gpu_bind_operand(b, root, 1 - input, &r->b);
}

/* ---- chains -------------------------------------------------------------------- */

int gpu_fuse_chain(const ir_node *root, ir_node **nodes) {
    ir_node *gate[TARGET_MAX_FUSED];
    const int n = target_fuse_chain(root, nodes);
    const bool is_gate =
        n == 1 && op_is(root, "", "Mul") && gpu_match_binary(root) && gpu_fuse_gate(root, gate);
    return is_gate ? 0 : n;
}

gqac_status gpu_bind_chain(const target_binding *b, const ir_node *root, const void **record) {
    const ir_value *leaves[TARGET_CHAIN_LEAVES];
    gpu_chain *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    *record = r;
    GQAC_TRY(target_bind_chain(root, &r->of, leaves, b->diag));
    for (int i = 0; i < r->of.n_leaves; i++) {
        r->leaves[i].value = r->of.leaves[i].value;
        if (leaves[i]->constant)
            GQAC_TRY(gpu_keep_floats(b->state, leaves[i]->constant, &r->leaves[i].kept, b->diag));
    }
    return GQAC_OK;
}
