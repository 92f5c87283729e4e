/* Which products share a call, and the kernels `linear` and `linear_nbits`. Queries, keys and
 * values, or gate and up, read the same x: as one call they are one barrier instead of several, and
 * x is widened or quantised once. */
#include "targets/cpu/products.h"

#include <string.h>

#include "ops/shared.h"
#include "targets/cpu/linear.h"

enum { X, W, USES = 256 /* of x that are looked at */ };

static bool is_nbits(const ir_node *node) {
    return op_is(node, "gqac", "linear_nbits");
}

bool cpu_is_product(const ir_node *node) {
    return is_nbits(node) ||
           ((op_is(node, "gqac", "linear") || op_is(node, "gqac", "linear_bf16")) &&
            cpu_linear_match(node));
}

/* Nothing but n, weights and bias may differ. */
static bool same_attributes(const ir_node *a, const ir_node *b) {
    for (const ir_attr_spec *spec = a->op->attrs; spec && spec->name; spec++) {
        const int64_t i = spec - a->op->attrs;
        if (strcmp(spec->name, "n") != 0 && !ir_attr_equal(spec->kind, &a->attrs[i], &b->attrs[i]))
            return false;
    }
    return true;
}

static bool same_form(const ir_node *a, const ir_node *b, int input) {
    const ir_value *v = ir_node_input(a, input), *w = ir_node_input(b, input);
    return v && w ? v->type.dtype == w->type.dtype : v == w;
}

bool cpu_products_fit(const ir_node *a, const ir_node *b) {
    enum { SCALES = 2, ZERO_POINTS = 3 };
    if (a->op != b->op || !cpu_is_product(b) || ir_node_input(a, X) != ir_node_input(b, X))
        return false;
    return same_attributes(a, b) && same_form(a, b, W) &&
           (!is_nbits(a) || (same_form(a, b, SCALES) && same_form(a, b, ZERO_POINTS)));
}

int cpu_fuse_products(const ir_node *root, ir_node **nodes) {
    const ir_value *x = ir_node_input(root, X);
    int n = 0, seen = 0;
    if (!x || !cpu_is_product(root))
        return 0;
    for (const ir_use *use = x->uses; use && seen < USES; use = use->next, seen++) {
        ir_node *node = use->node;
        if (node == root || use != &node->inputs[X] || node->graph != root->graph ||
            node->mark & TARGET_TAKEN || !cpu_products_fit(root, node))
            continue;
        nodes[n++] = node;
        if (n == CPU_PRODUCTS - 1)
            break;
    }
    return n;
}

gqac_status cpu_product_shape(op_call *call, const ir_node *node, gqac_tensor *y) {
    const gqac_tensor *x = cpu_operand(call, node, X);
    const int64_t k = ir_attr_int(node, "k");
    if (!x || !OP_IN(OP_FLOATS, x->dtype) || x->rank < 1 || x->dims[x->rank - 1] != k)
        OP_FAIL(node, call->diag, GQAC_INVALID_INPUT,
                "x must be floats with a last axis of k = %lld", (long long)k);
    *y = (gqac_tensor){.dtype = x->dtype, .rank = x->rank};
    memcpy(y->dims, x->dims, sizeof y->dims);
    y->dims[y->rank - 1] = ir_attr_int(node, "n");
    return GQAC_OK;
}

gqac_status cpu_products_do(op_call *call, const cpu_products *p) {
    return is_nbits(p->nodes[0]) ? cpu_nbits_products(call, p) : cpu_linear_products(call, p);
}

gqac_status cpu_run_product(op_call *call) {
    gqac_tensor shape;
    GQAC_TRY(cpu_product_shape(call, call->node, &shape));
    GQAC_TRY(op_output(call, 0, shape.dtype, shape.rank, shape.dims));
    return cpu_products_do(call,
                           &(cpu_products){.n = 1, .nodes = {call->node}, .y = {&call->out[0]}});
}

/* The nodes of the group lie before the root (ir_node.fused_into). */
gqac_status cpu_run_products(op_call *call) {
    cpu_products p = {0};
    for (const ir_node *node = call->node; node && ir_node_root(node) == call->node;
         node = node->prev) {
        gqac_tensor shape;
        GQAC_TRY(cpu_product_shape(call, node, &shape));
        p.nodes[p.n] = node;
        GQAC_TRY(op_give(call, node->outputs[0], shape.dtype, shape.rank, shape.dims, &p.y[p.n++]));
    }
    return cpu_products_do(call, &p);
}
