/* Chains on the cpu target: if leaves are products of one x (products.h) that only the chain reads,
 * they belong to its group. chain.c runs what is compiled here. */
#include "targets/fuse_chain.h"
#include "targets/cpu/graph.h"
#include "targets/cpu/rows.h"

/* Elements are read at the index at which they are written, one piece of a row at a time. But
 * products of the group may read their operands at any time. */
bool cpu_chain_over(const ir_node *root, const ir_value *result, const ir_value *operand) {
    bool over = result->def == root && operand->type.dtype == result->type.dtype &&
                target_same_shape(&operand->type, &result->type);
    for (const ir_use *use = operand->uses; use; use = use->next)
        over = over && (ir_node_root(use->node) != root || target_is_step(use->node));
    return over;
}

/* True if the node is a product that only the chain reads, with the same x as `first`. */
static bool fits_chain(const chain_nodes *p, const ir_node *node, const ir_node *first) {
    const ir_value *y = ir_node_output(node, 0);
    return node->graph == p->nodes[0]->graph && !node->fused_into && cpu_is_product(node) &&
           target_same_shape(&y->type, p->type) && target_chain_alone(p, y) &&
           (!first || cpu_products_fit(first, node));
}

int cpu_fuse_product_chain(const ir_node *root, ir_node **nodes) {
    int64_t n;
    int found = 0;
    if (!target_match_chain(root))
        return 0;
    const chain_nodes p = target_find_chain(root, TARGET_CHAIN_STEPS - 2);
    if (p.type->rank < 1 || !ir_dim_is_const(p.type->dims[p.type->rank - 1], &n))
        return 0;
    for (int i = 1; i < p.n; i++)
        nodes[i - 1] = p.nodes[i]->outputs[0]->def;
    ir_node **products = nodes + p.n - 1;
    const int free_places = TARGET_MAX_FUSED - (p.n - 1);
    for (int i = 0; i < p.n; i++)
        for (int k = 0; k < p.nodes[i]->n_inputs; k++) {
            const ir_value *v = ir_node_input(p.nodes[i], k);
            ir_node *node = v ? v->def : NULL;
            bool known = !node || target_chain_has(&p, node) || found == CPU_PRODUCTS ||
                         found == free_places;
            for (int j = 0; j < found; j++)
                known |= products[j] == node;
            if (!known && fits_chain(&p, node, found ? products[0] : NULL))
                products[found++] = node;
        }
    ir_node *others[TARGET_MAX_FUSED]; /* products of the same x outside the chain: they share a
                                          call */
    return found && cpu_fuse_products(products[0], others) < found ? p.n - 1 + found : 0;
}

/* ---- the record ---------------------------------------------------------- */

/* An estimate of a step's cost for sixteen elements. */
static int64_t step_cost(const target_step *step) {
    return step->kind >= TARGET_SIGMOID && step->kind != TARGET_CAST ? 16 : 2;
}

gqac_status cpu_bind_chain(const target_binding *b, const ir_node *root, const void **record) {
    const ir_value *leaves[TARGET_CHAIN_LEAVES];
    cpu_chain_record *r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    GQAC_TRY(target_bind_chain(root, &r->of, leaves, b->diag));
    for (int i = 0; i < r->of.n_leaves; i++)
        if (r->of.leaves[i].value < 0)
            cpu_bind_product(leaves[i]->def, &r->products);
    r->cost = 20;
    for (int i = 0; i < r->of.n_steps; i++)
        r->cost += step_cost(&r->of.steps[i]) * CPU_CHAIN_PIECE / 16;
    *record = r;
    return GQAC_OK;
}
