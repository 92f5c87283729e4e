/* Norms: the Add that is fused, which results may be written over which operands, and the
 * record. */
#include "ops/norm.h"
#include "targets/cpu/graph.h"
#include "targets/cpu/rows.h"
#include "targets/fuse_chain.h"

extern const gqac_op gqac_op_add;

/* Fuses the Add that computes x, unless another kernel can compute it where its operands are
 * computed. */
int cpu_fuse_norm(const ir_node *root, ir_node **nodes) {
    ir_node *none[TARGET_MAX_FUSED];
    const ir_value *sum = ir_node_input(root, 0);
    ir_node *add = sum ? sum->def : NULL;
    if (!add || add->op != &gqac_op_add.schema || add->graph != root->graph || add->fused_into ||
        !OP_IN(OP_FLOATS, sum->type.dtype))
        return 0;
    for (int i = 0; i < 2; i++)
        if (!target_same_shape(&ir_node_input(add, i)->type, &sum->type))
            return 0;
    for (const ir_use *use = sum->uses; use; use = use->next)
        if (use->node == root && use != &root->inputs[0])
            return 0; /* the norm uses the sum as its weight too */
    if (cpu_fuse_product_chain(add, none) || target_fuse_chain(add, none))
        return 0;
    nodes[0] = add;
    return 1;
}

/* A row is read before y is written, and then again element by element. The sum, which is written
 * first, is then read in place of its terms, and has their bits if it is not rounded. So the sum
 * may be written over the first term, and y over the second. */
bool cpu_norm_over(const ir_node *root, const ir_value *result, const ir_value *operand) {
    const ir_value *x = root->inputs[0].value;
    const ir_node *add = x->def && x->def->fused_into == root ? x->def : NULL;
    const ir_value *sum = add ? x : ir_node_output(root, 3);
    int at = -1, times = 0;
    for (const ir_use *use = operand->uses; use; use = use->next) {
        times += use->node == root || use->node == add;
        if (use->node == (add ? add : root))
            at = (int)(use - use->node->inputs);
    }
    if (add && !ir_value_escapes(sum))
        sum = NULL;
    return times == 1 && x->type.dtype == GQAC_F32 && result->type.dtype == GQAC_F32 &&
           target_same_shape(&operand->type, &x->type) &&
           target_same_shape(&result->type, &x->type) && at == (sum && result != sum ? 1 : 0) &&
           (result == sum || result == root->outputs[0]);
}

gqac_status cpu_bind_norm(const target_binding *b, const ir_node *root, const void **record) {
    cpu_norm_record *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    bind_norm(root, &r->of);
    const ir_value *x = ir_node_input(root, 0);
    const ir_node *add = x->def && x->def->fused_into == root ? x->def : NULL;
    if (add) {
        r->adds = true;
        r->add = op_origin_of(add);
        r->of.x = bind_input(add, "a");
        r->of.skip = bind_input(add, "b");
        r->of.sum = bind_leaving(x);
    }
    *record = r;
    return GQAC_OK;
}
