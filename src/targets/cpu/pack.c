/* Packs the constant weights of a module: the packers of a node's op are called in order, for every
 * node, also in nested graphs. Nodes whose results are not used are skipped: their weights need no
 * packing, and a node that a packer has replaced is such a node. */
#include "targets/cpu/pack.h"

#include <string.h>

#include "base/arena.h"
#include "ir/release.h"

/* All weights are read for every token; huge pages save page-table walks. */
void *cpu_pack_alloc(ir_module *module, size_t bytes) {
    return gqac_arena_data(module->arena, bytes);
}

const gqac_tensor *cpu_pack_constant(const ir_value *value) {
    return value && value->constant && value->constant->data ? value->constant : NULL;
}

gqac_status cpu_pack_add(const ir_value *from, const char *what, gqac_dtype dtype,
                         const int64_t dims[3], ir_value **value, void **data, gqac_diag *diag) {
    ir_graph *graph = from->graph;
    gqac_tensor packed = {.dtype = dtype, .rank = 3, .dims = {dims[0], dims[1], dims[2]}};
    size_t bytes;
    GQAC_TRY(gqac_shape_bytes(dtype, 3, dims, &bytes, diag));
    packed.data = *data = cpu_pack_alloc(graph->module, bytes);
    if (packed.data)
        memset(packed.data, 0, bytes);
    const char *name = gqac_arena_printf(graph->module->arena, "%s.%s", from->name, what);
    *value = packed.data && name ? ir_graph_add_constant(graph, name, &packed) : NULL;
    return *value ? GQAC_OK : gqac_diag_oom(diag, "packed weights");
}

ir_value *cpu_pack_untransposed(ir_value *value, bool *transposed) {
    const ir_node *def = value ? value->def : NULL;
    ir_value *x = def && op_is(def, "", "Transpose") ? ir_node_input(def, 0) : NULL;
    if (!x || x->type.rank != 2)
        return value;
    const ir_attr *perm = ir_attr_get(def, "perm");
    if (perm->set && (perm->count != 2 || perm->ints[0] != 1 || perm->ints[1] != 0))
        return NULL;
    *transposed = !*transposed;
    return x;
}

gqac_status cpu_pack_replace(const ir_builder *b, const ir_node *node, ir_value *old, ir_value *y) {
    GQAC_TRY(b->status);
    y->def->name = node->name;
    GQAC_TRY(op_infer(y->def, b->diag));
    ir_value_replace(old, y);
    return GQAC_OK;
}

/* The packers; the last entry has pack NULL. */
static const struct packer {
    const char *domain, *op;
    cpu_pack_node *pack;
} packers[] = {
    {"", "MatMul", cpu_pack_dequantised},
    {"", "MatMul", cpu_pack_linear},
    {"", "Gemm", cpu_pack_linear},
    {"", "MatMulInteger", cpu_pack_integer},
    {"com.microsoft", "MatMulNBits", cpu_pack_nbits},
    {"com.microsoft", "MoE", cpu_pack_moe},
    {"com.microsoft", "QMoE", cpu_pack_moe},
    {NULL, NULL, NULL},
};

static bool is_used(const ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !ir_value_unused(node->outputs[i]))
            return true;
    return false;
}

enum { MOST_WEIGHTS = 16 };

typedef struct packing {
    const ir_module *module;
    const op_options *options;
    size_t *changed;
    gqac_poll *poll;
    gqac_diag *diag;
} packing;

/* The number of bytes of the constants that a node reads. */
static int64_t weight_bytes(const ir_node *node) {
    int64_t bytes = 0;
    for (int i = 0; i < node->n_inputs; i++)
        if (cpu_pack_constant(node->inputs[i].value))
            bytes += (int64_t)gqac_tensor_bytes(node->inputs[i].value->constant);
    return bytes;
}

/* Lists constants that a node reads, at most MOST_WEIGHTS. */
static int constants_of(const ir_node *node, const gqac_tensor *list[MOST_WEIGHTS]) {
    int n = 0;
    for (int i = 0; i < node->n_inputs && n < MOST_WEIGHTS; i++)
        if (cpu_pack_constant(node->inputs[i].value))
            list[n++] = node->inputs[i].value->constant;
    return n;
}

static gqac_status visit(void *arg, ir_node *node) {
    const packing *p = arg;
    const gqac_tensor *weights[MOST_WEIGHTS];
    const int n = constants_of(node, weights);
    const int64_t bytes = weight_bytes(node);
    bool packed = false;
    for (const struct packer *row = packers; row->pack && !packed; row++) {
        if (!op_is(node, row->domain, row->op) || !is_used(node))
            continue;
        GQAC_TRY(row->pack(node, p->options, p->poll, &packed, p->diag));
    }
    *p->changed += packed;
    for (int i = 0; packed && i < n; i++)
        ir_data_done(p->module, weights[i]->data, gqac_tensor_bytes(weights[i]));
    return gqac_poll_add(p->poll, packed ? bytes : 0, p->diag);
}

gqac_status cpu_pack(ir_module *module, const op_options *options, size_t *changed, gqac_poll *poll,
                     gqac_diag *diag) {
    packing p = {
        .module = module, .options = options, .changed = changed, .poll = poll, .diag = diag};
    return ir_graph_walk(module->graph, visit, &p);
}
