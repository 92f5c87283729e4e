/* The nodes that make heads [B,H,S,D] from a projection are one of:
 *   - norm? ( split_heads ( packed ) )
 *   - split_heads {q=H} ( Reshape ( norm ( Reshape ( packed ) ) ) ), as model builders write it
 *   - norm ( heads ), where the heads were split before
 *
 * Norms are RMS norms of a head. Reshapes move nothing, so in each pattern the packed row [B,S,H*D]
 * or the heads [B,H,S,D] are read once and the result is written once. */
#include "targets/fuse_heads.h"

ir_node *target_head_maker(const ir_value *value, const ir_node *root, bool asked,
                           const ir_value *result) {
    ir_node *node = value ? value->def : NULL;
    if (!node || node->graph != root->graph)
        return NULL;
    if (!asked)
        return node->fused_into == root ? node : NULL;
    const bool once = value == result || (value->uses && !value->uses->next);
    return once && !node->fused_into ? node : NULL;
}

/* The kind of a node that normalises heads of `size` elements by the root mean square, else NULL.
 */
static const norm *head_norm(const ir_node *node, int64_t size) {
    const bool onnx = op_is(node, "", "RMSNormalization");
    if (!onnx && !op_is(node, "", "SimplifiedLayerNormalization"))
        return NULL;
    const ir_value *x = ir_node_input(node, 0), *weight = ir_node_input(node, 1);
    const ir_value *inverse = ir_node_output(node, 1);
    const int64_t axis = ir_attr_int(node, "axis");
    int64_t n;
    if (!x || !weight || (inverse && !ir_value_unused(inverse)) || x->type.rank < 1 ||
        (axis != -1 && axis != x->type.rank - 1) || weight->type.rank > 1)
        return NULL;
    if (!OP_IN(OP_FLOATS, x->type.dtype) || !OP_IN(OP_FLOATS, weight->type.dtype) ||
        !ir_dim_is_const(x->type.dims[x->type.rank - 1], &n) || n != size)
        return NULL;
    return onnx ? &norm_rms_onnx : &norm_rms;
}

static void take(fused_heads *f, ir_node **nodes, ir_node *node) {
    if (nodes)
        nodes[f->n] = node;
    f->n++;
    f->x = ir_node_input(node, 0);
}

static bool take_norm(const ir_node *root, ir_node **nodes, fused_heads *f, int64_t size) {
    ir_node *node = target_head_maker(f->x, root, nodes != NULL, f->result);
    const norm *kind = node && !f->norm ? head_norm(node, size) : NULL;
    if (!kind)
        return false;
    f->norm = node;
    f->kind = kind;
    take(f, nodes, node);
    return true;
}

/* Takes Reshape ( norm ( Reshape ( packed ) ) ), all nodes or none. */
static void take_reshaped_norm(const ir_node *root, ir_node **nodes, fused_heads *f, int64_t size) {
    const fused_heads before = *f;
    ir_node *node = target_head_maker(f->x, root, nodes != NULL, f->result);
    const ir_value *packed = f->x;
    if (!node || !op_is(node, "", "Reshape"))
        return;
    take(f, nodes, node);
    if (take_norm(root, nodes, f, size)) {
        node = target_head_maker(f->x, root, nodes != NULL, f->result);
        if (node && op_is(node, "", "Reshape")) {
            take(f, nodes, node);
            if (f->x && target_same_shape(&f->x->type, &packed->type))
                return;
        }
    }
    *f = before;
}

void target_find_heads(const ir_value *value, const ir_node *root, ir_node **nodes,
                       fused_heads *f) {
    int64_t size;
    *f = (fused_heads){.x = value, .result = f->result};
    if (!value || value->type.rank != 4 || !ir_dim_is_const(value->type.dims[3], &size))
        return;
    take_norm(root, nodes, f, size);
    ir_node *node = target_head_maker(f->x, root, nodes != NULL, f->result);
    if (!node || !op_is(node, "gqac", "split_heads"))
        return;
    f->split = node;
    if (ir_attr_int(node, "kv") != 0)
        return;
    take(f, nodes, node);
    take_reshaped_norm(root, nodes, f, size);
}

bool target_match_heads(const ir_node *node) {
    const ir_value *x = ir_node_input(node, 0), *cos = ir_node_input(node, 1);
    const ir_value *sin = ir_node_input(node, 2);
    int64_t size;
    return x && cos && sin && x->type.rank == 4 && ir_dim_is_const(x->type.dims[3], &size) &&
           size <= TARGET_HEAD_SIZE && OP_IN(OP_FLOATS, x->type.dtype) &&
           OP_IN(OP_FLOATS, cos->type.dtype) && cos->type.dtype == sin->type.dtype;
}

int target_fuse_heads(const ir_node *root, ir_node **nodes) {
    fused_heads f = {.x = NULL};
    if (!target_match_heads(root))
        return 0;
    target_find_heads(ir_node_input(root, 0), root, nodes, &f);
    return f.n;
}

/* ---- the record ---------------------------------------------------------- */

void target_bind_heads(const fused_heads *f, const ir_node *rotary, target_heads *h) {
    const ir_node *node = f->norm;
    h->x = bind_value(f->x);
    h->norms = node != NULL;
    if (node) {
        h->norm = op_origin_of(node);
        h->weight = bind_input(node, "scale");
        h->epsilon = ir_attr_float(node, "epsilon");
        h->round_before = f->kind->round_before;
    }
    h->rotates = rotary != NULL;
    if (!rotary)
        return;
    h->rotary = op_origin_of(rotary);
    h->cos = bind_input(rotary, "cos");
    h->sin = bind_input(rotary, "sin");
    h->past_len = bind_input(rotary, "past_len");
    h->new_len = bind_input(rotary, "new_len");
    h->position_ids = bind_input(rotary, "position_ids");
    h->interleaved = ir_attr_int(rotary, "interleaved") == 1;
}

const ir_node *target_bind_rotary(const ir_node *root, target_heads *h) {
    fused_heads f = {.x = NULL};
    target_find_heads(ir_node_input(root, 0), root, NULL, &f);
    target_bind_heads(&f, root, h);
    h->origin = op_origin_of(root);
    (void)ir_dim_is_const(ir_node_input(root, 0)->type.dims[3], &h->size); /* constant, or it would
                                                                              not have matched */
    if (f.split && ir_attr_int(f.split, "kv") == 0) {
        h->heads = ir_attr_int(f.split, "q");
        h->width = h->heads * h->size;
    }
    return f.norm;
}
