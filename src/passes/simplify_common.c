/* Common subexpressions: of nodes that compute the same from the same operands, and of small
 * constants with the same bytes, the first one stays. A value may replace values of its own graph
 * and of graphs nested in it, but not values of enclosing graphs. So the graph is part of the key,
 * and a lookup goes from the node's graph outwards. Effects, nodes with graphs and nodes that are
 * not to be folded (random ones) are never merged. */
#include "passes/simplify.h"

#include <string.h>

#include "base/table.h"

enum { SMALL_CONSTANT = 1024 }; /* bytes */

typedef struct merger {
    pass_context *context;
    gqac_table nodes, constants;
} merger;

/* The key of a lookup: a node or a constant, as if it belonged to `graph`. */
typedef struct wanted {
    const ir_graph *graph;
    const ir_node *node;
    const ir_value *constant;
} wanted;

/* ---- keys ---------------------------------------------------------------- */

static uint64_t hash_tensor(uint64_t hash, const gqac_tensor *t) {
    hash = gqac_hash_u64(hash, (uint64_t)t->dtype);
    hash = gqac_hash_bytes(hash, t->dims, (size_t)t->rank * sizeof *t->dims);
    return gqac_hash_bytes(hash, t->data, gqac_tensor_bytes(t));
}

/* Covers every kind that ops have: nodes that differ only in an attribute must not share a hash,
 * because a table that finds many items with one hash takes quadratic time. */
static uint64_t hash_attr(uint64_t hash, ir_attr_kind kind, const ir_attr *attr) {
    hash = gqac_hash_u64(hash, attr->set);
    hash = gqac_hash_u64(hash, (uint64_t)attr->i ^ (uint64_t)attr->dtype ^ attr->count);
    hash = gqac_hash_bytes(hash, &attr->f, sizeof attr->f);
    if (kind == IR_ATTR_STRING && attr->s)
        hash = gqac_hash_bytes(hash, attr->s, strlen(attr->s));
    if (kind == IR_ATTR_INTS && attr->count)
        hash = gqac_hash_bytes(hash, attr->ints, attr->count * sizeof *attr->ints);
    if (kind == IR_ATTR_FLOATS && attr->count)
        hash = gqac_hash_bytes(hash, attr->floats, attr->count * sizeof *attr->floats);
    if (kind == IR_ATTR_TENSOR && attr->tensor)
        hash = hash_tensor(hash, attr->tensor);
    return hash;
}

static uint64_t hash_node(const gqac_table *table, const ir_node *node) {
    uint64_t hash = gqac_hash_u64(table->seed, (uint64_t)(uintptr_t)node->op);
    for (int i = 0; i < node->n_inputs; i++)
        hash = gqac_hash_u64(hash, (uint64_t)(uintptr_t)node->inputs[i].value);
    const ir_attr_spec *specs = node->op->attrs;
    for (int i = 0; specs && specs[i].name; i++)
        hash = hash_attr(hash, specs[i].kind, &node->attrs[i]);
    return hash;
}

static bool same_node(const void *item, const void *key) {
    const ir_node *a = item, *b = ((const wanted *)key)->node;
    if (a->op != b->op || a->graph != ((const wanted *)key)->graph || a->n_inputs != b->n_inputs ||
        a->n_outputs != b->n_outputs)
        return false;
    for (int i = 0; i < a->n_inputs; i++)
        if (a->inputs[i].value != b->inputs[i].value)
            return false;
    for (int i = 0; i < a->n_outputs; i++)
        if (b->outputs[i] && !a->outputs[i])
            return false;
    const ir_attr_spec *specs = a->op->attrs;
    for (int i = 0; specs && specs[i].name; i++)
        if (!ir_attr_equal(specs[i].kind, &a->attrs[i], &b->attrs[i]))
            return false;
    return true;
}

static bool same_constant(const void *item, const void *key) {
    const ir_value *a = item;
    const gqac_tensor *x = a->constant, *y = ((const wanted *)key)->constant->constant;
    if (a->graph != ((const wanted *)key)->graph || x->dtype != y->dtype || x->rank != y->rank)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (x->dims[i] != y->dims[i])
            return false;
    const size_t bytes = gqac_tensor_bytes(x);
    return !bytes || memcmp(x->data, y->data, bytes) == 0;
}

/* Finds an equal node or constant in the graph or in one that encloses it. */
static void *find(const gqac_table *table, uint64_t hash, gqac_table_same *same, wanted *key) {
    for (; key->graph; key->graph = key->graph->parent ? key->graph->parent->graph : NULL) {
        void *item =
            gqac_table_find(table, gqac_hash_u64(hash, (uint64_t)(uintptr_t)key->graph), same, key);
        if (item)
            return item;
    }
    return NULL;
}

static gqac_status add(merger *m, gqac_table *table, uint64_t hash, const ir_graph *graph,
                       void *item) {
    if (gqac_table_add(table, gqac_hash_u64(hash, (uint64_t)(uintptr_t)graph), item))
        return GQAC_OK;
    return gqac_diag_oom(m->context->diag, "common subexpressions");
}

/* ---- merging ------------------------------------------------------------- */

static gqac_status merge_constants(merger *m, ir_graph *graph) {
    for (int i = 0; i < graph->n_constants; i++) {
        ir_value *value = graph->constants[i];
        const gqac_tensor *t = pass_constant(value);
        if (!t || gqac_tensor_bytes(t) > SMALL_CONSTANT || ir_value_unused(value))
            continue;
        const uint64_t hash = hash_tensor(m->constants.seed, t);
        ir_value *same =
            find(&m->constants, hash, same_constant, &(wanted){.graph = graph, .constant = value});
        if (!same) {
            GQAC_TRY(add(m, &m->constants, hash, graph, value));
            continue;
        }
        ir_value_replace(value, same);
        m->context->changed++;
    }
    return GQAC_OK;
}

static bool mergeable(const ir_node *node) {
    if (node->op->flags & (IR_OP_EFFECT | IR_OP_NO_FOLD | IR_OP_RETURN) || ir_holds_graphs(node))
        return false;
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && node->outputs[i]->type.dtype == GQAC_TOKEN)
            return false;
    return node->n_outputs > 0;
}

static gqac_status merge_node(merger *m, ir_node *node) {
    bool used = false;
    if (!mergeable(node))
        return GQAC_OK;
    const uint64_t hash = hash_node(&m->nodes, node);
    const ir_node *same =
        find(&m->nodes, hash, same_node, &(wanted){.graph = node->graph, .node = node});
    if (!same)
        return add(m, &m->nodes, hash, node->graph, node);
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !ir_value_unused(node->outputs[i])) {
            ir_value_replace(node->outputs[i], same->outputs[i]);
            used = true;
        }
    m->context->changed += used;
    return GQAC_OK;
}

/* Recursion follows nested graphs, whose depth the verifier bounds. */
static gqac_status merge_graph(merger *m, ir_graph *graph) {
    GQAC_TRY(merge_constants(m, graph));
    for (ir_node *node = graph->first; node; node = node->next) {
        GQAC_TRY(merge_node(m, node));
        ir_graph *inner;
        for (int at = 0; (inner = ir_next_graph(node, &at));)
            GQAC_TRY(merge_graph(m, inner));
    }
    return GQAC_OK;
}

gqac_status simplify_common(pass_context *context) {
    merger m = {.context = context};
    gqac_arena *arena = gqac_arena_create(0);
    if (!arena)
        return gqac_diag_oom(context->diag, "common subexpressions");
    gqac_table_init(&m.nodes, arena);
    gqac_table_init(&m.constants, arena);
    gqac_status status = merge_graph(&m, context->module->graph);
    gqac_arena_free(arena);
    return status;
}
