/* Heads of a projection: the nodes that one launch computes, and the record. */
#include "targets/fuse_heads.h"
#include "targets/gpu/graph.h"
#include "targets/gpu/heads.h"

enum { X, COS, SIN, WEIGHT = 1, SCALE = 1 }; /* inputs of rotary, of a norm, of kv_quantise */

/* The constant of floats that a value is after the first or second branch of an If; NULL: none. */
static const gqac_tensor *after_branch(const ir_value *value, bool first) {
    const ir_node *node = value->def;
    int output = 0;
    if (!node || !op_is(node, "", "If"))
        return NULL;
    while (node->outputs[output] != value)
        output++;
    const ir_graph *graph = ir_attr_get(node, first ? "then_branch" : "else_branch")->graph;
    const gqac_tensor *constant = graph->ret->inputs[output].value->constant;
    return constant && OP_IN(OP_FLOATS, constant->dtype) && gqac_tensor_count(constant) > 0
               ? constant
               : NULL;
}

/* A table is constant, or one of two constants, as in models with two rope scalings. */
static bool is_table(const ir_value *value) {
    return value->constant || (after_branch(value, true) && after_branch(value, false));
}

static gqac_status bind_table(const target_binding *b, const ir_node *node, int input,
                              gpu_operand *of) {
    const ir_value *value = ir_node_input(node, input);
    gpu_buffer kept; /* gpu_operand_in finds it */
    for (int i = 0; !value->constant && i < 2; i++)
        GQAC_TRY(gpu_keep_floats(b->state, after_branch(value, i == 0), &kept, b->diag));
    return gpu_bind_operand(b, node, input, of);
}

bool gpu_match_rotary(const ir_node *node) {
    return target_match_heads(node) && is_table(ir_node_input(node, COS)) &&
           is_table(ir_node_input(node, SIN));
}

int gpu_fuse_rotary(const ir_node *root, ir_node **nodes) {
    return gpu_match_rotary(root) ? target_fuse_heads(root, nodes) : 0;
}

static const target_append_rules rules = {
    .rotary = gpu_match_rotary, .in_blocks = gpu_kv_only_blocks, .codes = true};

int gpu_fuse_heads_append(const ir_node *root, ir_node **nodes) {
    return gpu_kv_only_blocks(root) ? target_fuse_append(&rules, root, nodes) : 0;
}

bool gpu_match_heads_append(const ir_node *node) {
    return gpu_kv_only_blocks(node) && target_match_append(&rules, node);
}

static gqac_status bind_operands(const target_binding *b, const target_stream_nodes *nodes,
                                 gpu_heads_operands *o) {
    o->weight.value = o->cos.value = o->sin.value = o->scale.value = -1;
    if (nodes->norm)
        GQAC_TRY(gpu_bind_operand(b, nodes->norm, WEIGHT, &o->weight));
    if (nodes->quantise)
        GQAC_TRY(gpu_bind_operand(b, nodes->quantise, SCALE, &o->scale));
    if (!nodes->rotary)
        return GQAC_OK;
    GQAC_TRY(bind_table(b, nodes->rotary, COS, &o->cos));
    return bind_table(b, nodes->rotary, SIN, &o->sin);
}

gqac_status gpu_bind_heads_append(const target_binding *b, const ir_node *root,
                                  const void **record) {
    target_stream_nodes nodes[TARGET_STREAMS];
    gpu_heads_record *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    *record = r;
    GQAC_TRY(target_bind_append(&rules, root, &r->of, nodes, b->diag));
    for (int i = 0; i < r->of.n; i++)
        GQAC_TRY(bind_operands(b, &nodes[i], &r->operands[i]));
    return GQAC_OK;
}

gqac_status gpu_bind_rotary(const target_binding *b, const ir_node *root, const void **record) {
    gpu_heads_record *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    target_stream *s = &r->of.streams[0];
    target_stream_nodes nodes = {.rotary = root};
    r->of.n = 1;
    s->end = TARGET_TO_QUERIES;
    s->y = bind_output(root, "y");
    nodes.norm = target_bind_rotary(root, &s->heads);
    *record = r;
    return bind_operands(b, &nodes, &r->operands[0]);
}
