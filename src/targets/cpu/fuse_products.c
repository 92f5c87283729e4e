/* Which products share a call, and the records of the kernels `linear`, `linear_bf16` and
 * `linear_nbits`. Queries, keys and values, or gate and up, read the same x: one call has one
 * barrier instead of several, and widens or quantises x once. */
#include "ops/moe.h"
#include "targets/cpu/graph.h"
#include "targets/cpu/integer.h"
#include "targets/cpu/matmul.h"
#include "targets/cpu/moe.h"
#include "targets/cpu/products.h"

#include <string.h>

enum { X, W, USES = 256 /* maximum number of uses of x that are searched */ };

static bool is_nbits(const ir_node *node) {
    return op_is(node, "gqac", "linear_nbits");
}

static bool has_floats(const ir_node *node) {
    const gqac_tensor *w = ir_node_input(node, W)->constant;
    return w->data && OP_IN(OP_FLOATS, w->dtype);
}

bool cpu_is_product(const ir_node *node) {
    return is_nbits(node) ||
           ((op_is(node, "gqac", "linear") || op_is(node, "gqac", "linear_bf16")) &&
            has_floats(node));
}

/* True if two products differ only in n, weights and bias. */
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
            node->mark & TARGET_CLAIMED || !cpu_products_fit(root, node))
            continue;
        nodes[n++] = node;
        if (n == CPU_PRODUCTS - 1)
            break;
    }
    return n;
}

/* ---- records ------------------------------------------------------------- */

static cpu_product bind_product(const ir_node *node, bool codes) {
    cpu_product p = {.origin = op_origin_of(node),
                     .bias = bind_input(node, "bias"),
                     .scales = -1,
                     .zero_points = -1,
                     .y = -1,
                     .n = ir_attr_int(node, "n"),
                     .k = ir_attr_int(node, "k")};
    p.weight = bind_input(node, codes ? "codes" : "w");
    if (!codes)
        return p;
    p.scales = bind_input(node, "scales");
    p.zero_points = bind_input(node, "zero_points");
    p.shape =
        nbits_shape_of(p.k, p.n, (int)ir_attr_int(node, "bits"), ir_attr_int(node, "block_size"));
    return p;
}

void cpu_bind_product(const ir_node *node, cpu_products *p) {
    const bool codes = is_nbits(node);
    if (p->n == 0) {
        p->form = codes                                ? CPU_PRODUCT_CODES
                  : op_is(node, "gqac", "linear_bf16") ? CPU_PRODUCT_PAIRS
                                                       : CPU_PRODUCT_FLOATS;
        p->x = bind_input(node, "x");
        p->accuracy_level = codes ? ir_attr_int(node, "accuracy_level") : 0;
        p->bf16 = codes && ir_attr_int(node, "bf16") == 1;
    }
    p->of[p->n++] = bind_product(node, codes);
}

/* Binds the nodes of a group; they come before the root (ir_node.fused_into). */
gqac_status cpu_bind_products(const target_binding *b, const ir_node *root, const void **record) {
    cpu_products *p;
    p = bind_new(b, sizeof *p);
    if (!p)
        return GQAC_NO_MEMORY;
    for (const ir_node *node = root; node && ir_node_root(node) == root; node = node->prev) {
        cpu_bind_product(node, p);
        p->of[p->n - 1].y = bind_output(node, "y");
    }
    *record = p;
    return GQAC_OK;
}

gqac_status cpu_bind_integer(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(b, record, cpu_integer_record, .k = ir_attr_int(root, "k"),
                       .n = ir_attr_int(root, "n"), .a = bind_input(root, "A"),
                       .weight = bind_input(root, "weight"), .terms = bind_input(root, "terms"),
                       .a_zero = bind_input(root, "a_zero_point"), .y = bind_output(root, "Y"));
}

/* ---- MatMul -------------------------------------------------------------- */

bool cpu_match_matmul(const ir_node *node) {
    const ir_type a = op_in_type(node, 0), b = op_in_type(node, 1);
    return a.rank >= 2 && b.rank >= 2 && OP_IN(OP_FLOATS, a.dtype) && a.dtype == b.dtype;
}

gqac_status cpu_bind_matmul(const target_binding *b, const ir_node *root, const void **record) {
    return BIND_RECORD(b, record, cpu_matmul_record, .a = bind_input(root, "A"),
                       .b = bind_input(root, "B"), .y = bind_output(root, "Y"));
}

gqac_status cpu_bind_moe(const target_binding *b, const ir_node *root, const void **record) {
    cpu_moe_record *r;
    r = bind_new(b, sizeof *r);
    if (!r)
        return GQAC_NO_MEMORY;
    r->form = moe_packed_form(root);
    for (int i = 0; i < MOE_INPUTS; i++)
        r->in[i] = bind_value(ir_node_input(root, i));
    r->y = bind_output(root, "output");
    *record = r;
    return GQAC_OK;
}
