/* Packs the constant weights of a module: every node, those of nested graphs included, is offered
 * to the packers of its op in order. Nodes whose results nobody uses are passed over: their weights
 * need no packing, and a packer leaves those behind that it replaced. */
#include "targets/cpu/pack.h"

/* Ends with pack NULL. */
static const struct packer {
    const char *domain, *op;
    cpu_pack_node *pack;
} packers[] = {
    {"", "MatMul", cpu_pack_dequantised},
    {"", "MatMul", cpu_pack_linear},
    {"", "Gemm", cpu_pack_linear},
    {"com.microsoft", "MatMulNBits", cpu_pack_nbits},
    {NULL, NULL, NULL},
};

static bool is_used(const ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !ir_value_unused(node->outputs[i]))
            return true;
    return false;
}

typedef struct packing {
    size_t *changed;
    gqac_diag *diag;
} packing;

static gqac_status visit(void *arg, ir_node *node) {
    const packing *p = arg;
    bool packed = false;
    for (const struct packer *row = packers; row->pack && !packed; row++) {
        if (!op_is(node, row->domain, row->op) || !is_used(node))
            continue;
        GQAC_TRY(row->pack(node, &packed, p->diag));
    }
    *p->changed += packed;
    return GQAC_OK;
}

gqac_status cpu_pack(ir_module *module, size_t *changed, gqac_diag *diag) {
    packing p = {.changed = changed, .diag = diag};
    return ir_graph_walk(module->graph, visit, &p);
}
