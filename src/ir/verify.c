/* The verifier: checks every invariant that ir.h states, in linear time.
 *
 * One pass over the graphs in order collects what is defined (values) and linked (nodes); a value
 * is used only after it was collected, by a node of its graph or of one nested in it. A second pass
 * walks the use lists: every entry belongs to a collected node, and there are as many as operands,
 * so both directions agree. Recursion follows nested graphs, at most IR_MAX_NESTING deep. */
#include "ir/impl.h"

#include <string.h>

#include "base/diag.h"

typedef struct verifier {
    const ir_module *module;
    gqac_arena *arena;
    gqac_diag *diag;
    gqac_table nodes, values;
    const ir_value **list; /* the collected values, in order */
    size_t count, capacity;
    size_t operands; /* number of operands that are not absent */
} verifier;

static gqac_status verify_graph(verifier *v, const ir_graph *graph, const ir_node *parent,
                                int depth);

static bool same_pointer(const void *item, const void *key) {
    return item == key;
}

static uint64_t pointer_hash(const gqac_table *table, const void *pointer) {
    return gqac_hash_u64(table->seed, (uint64_t)(uintptr_t)pointer);
}

static bool has(const gqac_table *table, const void *pointer) {
    return gqac_table_find(table, pointer_hash(table, pointer), same_pointer, pointer) != NULL;
}

static gqac_status collect(verifier *v, gqac_table *table, const void *pointer) {
    /* the table accepts no const pointers, but never writes to items */
    if (gqac_table_add(table, pointer_hash(table, pointer), (void *)(uintptr_t)pointer))
        return GQAC_OK;
    return gqac_diag_oom(v->diag, "verifying");
}

/* ---- values -------------------------------------------------------------- */

static gqac_status verify_type(const verifier *v, const ir_value *value) {
    const ir_type *type = &value->type;
    if ((unsigned)type->dtype >= GQAC_DTYPE_COUNT)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "%%%s has an element type out of range", value->name);
    if (type->rank < -1 || type->rank > GQAC_MAX_RANK || (type->rank > 0 && !type->dims))
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "%%%s has a rank out of range (%d)", value->name,
                  type->rank);
    return GQAC_OK;
}

static gqac_status define(verifier *v, const ir_graph *graph, const ir_value *value,
                          const ir_node *def, int result) {
    if (!value || !value->name)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "a value is missing or has no name");
    if (has(&v->values, value))
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "%%%s is defined twice", value->name);
    const ir_name *name = ir_names_find(v->module, value->name, strlen(value->name));
    if (!name || name->value != value)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "%%%s does not own its name", value->name);
    if (value->graph != graph || value->def != def || (def && value->result != result))
        GQAC_FAIL(v->diag, GQAC_INTERNAL,
                  "%%%s refers to another graph or node than the one that contains it",
                  value->name);
    GQAC_TRY(verify_type(v, value));
    if (v->count == v->capacity) {
        size_t capacity = v->capacity ? 2 * v->capacity : 64;
        const ir_value **list = GQAC_ARENA_ARRAY(v->arena, const ir_value *, capacity);
        if (!list)
            return gqac_diag_oom(v->diag, "verifying");
        if (v->count)
            memcpy(list, v->list, v->count * sizeof *list);
        v->list = list;
        v->capacity = capacity;
    }
    v->list[v->count++] = value;
    return collect(v, &v->values, value);
}

static gqac_status verify_tensor(const verifier *v, const gqac_tensor *t, const char *digest) {
    size_t bytes;
    if ((unsigned)t->dtype >= GQAC_DTYPE_COUNT || t->dtype == GQAC_NONE || t->dtype == GQAC_TOKEN ||
        gqac_shape_bytes(t->dtype, t->rank, t->dims, &bytes, NULL) != GQAC_OK)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "a tensor's type or shape is out of range");
    if (!t->data && bytes && !digest)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "a tensor has neither data nor digest");
    return GQAC_OK;
}

static gqac_status verify_constant(verifier *v, const ir_graph *graph, const ir_value *value) {
    GQAC_TRY(define(v, graph, value, NULL, 0));
    const gqac_tensor *t = value->constant;
    if (!t)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "constant %%%s has no tensor", value->name);
    GQAC_TRY(verify_tensor(v, t, value->digest));
    bool same = value->type.dtype == t->dtype && value->type.rank == t->rank;
    for (int i = 0; same && i < t->rank; i++) {
        int64_t dim;
        same = ir_dim_is_const(value->type.dims[i], &dim) && dim == t->dims[i];
    }
    if (!same)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "the type of constant %%%s is not that of its tensor",
                  value->name);
    return GQAC_OK;
}

/* ---- nodes --------------------------------------------------------------- */

static gqac_status verify_arity(const verifier *v, const ir_node *node) {
    int least, most;
    ir_schema_arity(node->op->inputs, &least, &most);
    if (node->n_inputs < least || node->n_inputs > most)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "the node has %d inputs, but the op takes %d to %d",
                  node->n_inputs, least, most);
    for (int i = 0; i < node->n_inputs; i++)
        if (!node->inputs[i].value && ir_schema_kind(node->op->inputs, i) != IR_OPTIONAL)
            GQAC_FAIL(v->diag, GQAC_INTERNAL, "input %d is absent, but it is not optional", i);
    ir_schema_arity(node->op->outputs, &least, &most);
    if (node->n_outputs < least || node->n_outputs > most)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "the node has %d outputs, but the op has %d to %d",
                  node->n_outputs, least, most);
    return GQAC_OK;
}

static gqac_status verify_operand(verifier *v, const ir_node *node, const ir_use *use) {
    const ir_value *value = use->value;
    if (use->node != node)
        GQAC_FAIL(v->diag, GQAC_INTERNAL,
                  "an operand refers to another node than the one that reads it");
    if (!value)
        return GQAC_OK;
    if (!has(&v->values, value))
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "an operand is used before it is defined");
    const ir_graph *graph = node->graph;
    while (graph != value->graph && graph->parent)
        graph = graph->parent->graph;
    if (graph != value->graph)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "%%%s is used outside its graph", value->name);
    if (value->type.dtype == GQAC_TOKEN && (use->prev || use->next))
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "the token %%%s is used twice", value->name);
    v->operands++;
    return GQAC_OK;
}

static bool has_payload(ir_attr_kind kind, const ir_attr *attr) {
    switch (kind) {
    case IR_ATTR_STRING:
        return attr->s != NULL;
    case IR_ATTR_INTS:
        return attr->ints || !attr->count;
    case IR_ATTR_FLOATS:
        return attr->floats || !attr->count;
    case IR_ATTR_STRINGS:
        for (size_t i = 0; attr->strings && i < attr->count; i++)
            if (!attr->strings[i])
                return false;
        return attr->strings || !attr->count;
    case IR_ATTR_TENSOR:
        return attr->tensor != NULL;
    case IR_ATTR_GRAPH:
        return attr->graph != NULL;
    case IR_ATTR_DTYPE:
        return (unsigned)attr->dtype < GQAC_DTYPE_COUNT;
    case IR_ATTR_INT:
    case IR_ATTR_FLOAT:
        break;
    }
    return true;
}

static gqac_status verify_attrs(verifier *v, const ir_node *node, int depth) {
    int i = 0;
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++, i++) {
        const ir_attr *attr = &node->attrs[i];
        if (!attr->set && (spec->required || spec->fallback.set))
            GQAC_FAIL(v->diag, GQAC_INTERNAL, "attribute '%s' is not set", spec->name);
        if (!attr->set && spec->kind == IR_ATTR_GRAPH && attr->graph)
            GQAC_FAIL(v->diag, GQAC_INTERNAL, "the graph attribute '%s' has a graph but is not set",
                      spec->name);
        if (!attr->set)
            continue;
        if (!has_payload(spec->kind, attr))
            GQAC_FAIL(v->diag, GQAC_INTERNAL, "attribute '%s' has no value", spec->name);
        if (spec->kind == IR_ATTR_TENSOR)
            GQAC_TRY(verify_tensor(v, attr->tensor, NULL));
        if (spec->kind == IR_ATTR_GRAPH)
            GQAC_TRY(verify_graph(v, attr->graph, node, depth + 1));
    }
    return GQAC_OK;
}

static gqac_status verify_node(verifier *v, const ir_node *node, const ir_graph *graph, int depth) {
    if (node->graph != graph)
        GQAC_FAIL(v->diag, GQAC_INTERNAL,
                  "the node refers to another graph than the one that contains it");
    GQAC_TRY(verify_arity(v, node));
    for (int i = 0; i < node->n_inputs; i++)
        GQAC_TRY(verify_operand(v, node, &node->inputs[i]));
    GQAC_TRY(verify_attrs(v, node, depth));
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            GQAC_TRY(define(v, graph, node->outputs[i], node, i));
    return collect(v, &v->nodes, node);
}

/* ---- graphs -------------------------------------------------------------- */

static gqac_status verify_body(verifier *v, const ir_graph *graph, int depth) {
    const ir_node *last = NULL;
    for (const ir_node *node = graph->first; node; node = node->next) {
        if (!node->op || node->op->flags & IR_OP_RETURN)
            GQAC_FAIL(v->diag, GQAC_INTERNAL,
                      "a node has no op, or returns before the end of the graph");
        gqac_status status = GQAC_OK;
        if (node->prev != last || has(&v->nodes, node))
            status = gqac_diag_set(v->diag, GQAC_INTERNAL, "the list of nodes is broken");
        if (status == GQAC_OK)
            status = verify_node(v, node, graph, depth);
        if (status != GQAC_OK) {
            ir_node_where(node, v->diag);
            return status;
        }
        last = node;
    }
    if (graph->last != last)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "the last node of the list is not the end of the list");
    return GQAC_OK;
}

static gqac_status verify_results(verifier *v, const ir_graph *graph, int depth) {
    const ir_node *ret = graph->ret;
    if (!ret || !ret->op || !(ret->op->flags & IR_OP_RETURN) || ret->prev || ret->next)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "the graph has no return node of its own");
    for (int i = 0; i < ret->n_inputs; i++)
        if (!graph->result_names || !graph->result_names[i])
            GQAC_FAIL(v->diag, GQAC_INTERNAL, "result %d has no name", i);
    return verify_node(v, ret, graph, depth);
}

static gqac_status verify_graph_parts(verifier *v, const ir_graph *graph, int depth) {
    for (int i = 0; i < graph->n_inputs; i++) {
        GQAC_TRY(define(v, graph, graph->inputs[i], NULL, 0));
        if (graph->inputs[i]->constant)
            GQAC_FAIL(v->diag, GQAC_INTERNAL, "input %%%s is a constant", graph->inputs[i]->name);
    }
    for (int i = 0; i < graph->n_constants; i++)
        GQAC_TRY(verify_constant(v, graph, graph->constants[i]));
    GQAC_TRY(verify_body(v, graph, depth));
    return verify_results(v, graph, depth);
}

static gqac_status verify_graph(verifier *v, const ir_graph *graph, const ir_node *parent,
                                int depth) {
    if (!graph || !graph->name || graph->module != v->module || graph->parent != parent)
        GQAC_FAIL(v->diag, GQAC_INTERNAL,
                  "a graph has no name, or refers to another module or node than its own");
    gqac_status status = depth > IR_MAX_NESTING
                             ? gqac_diag_set(v->diag, GQAC_INTERNAL,
                                             "graphs are nested more than %d deep", IR_MAX_NESTING)
                             : verify_graph_parts(v, graph, depth);
    if (status != GQAC_OK)
        gqac_diag_where(v->diag, "graph @%s", graph->name);
    return status;
}

/* Checks the use list of one value; adds its length to *uses. */
static gqac_status verify_uses(const verifier *v, const ir_value *value, size_t *uses) {
    const ir_use *prev = NULL;
    for (const ir_use *use = value->uses; use; prev = use, use = use->next) {
        if (use->prev != prev || use->value != value)
            GQAC_FAIL(v->diag, GQAC_INTERNAL, "the use list of %%%s is broken", value->name);
        const ir_node *node = use->node;
        if (!has(&v->nodes, node))
            GQAC_FAIL(v->diag, GQAC_INTERNAL, "%%%s is used by a node that is in no graph",
                      value->name);
        uintptr_t first = (uintptr_t)node->inputs, at = (uintptr_t)use;
        if (at < first || at - first >= (size_t)node->n_inputs * sizeof *use)
            GQAC_FAIL(v->diag, GQAC_INTERNAL, "%%%s has a use that is not an operand", value->name);
        ++*uses;
    }
    return GQAC_OK;
}

static gqac_status verify_all(verifier *v) {
    size_t uses = 0;
    GQAC_TRY(verify_graph(v, v->module->graph, NULL, 0));
    for (size_t i = 0; i < v->count; i++)
        GQAC_TRY(verify_uses(v, v->list[i], &uses));
    if (uses != v->operands)
        GQAC_FAIL(v->diag, GQAC_INTERNAL, "the graph has %zu operands, but %zu uses of values",
                  v->operands, uses);
    return GQAC_OK;
}

gqac_status ir_verify(const ir_module *module, gqac_diag *diag) {
    verifier v = {.module = module, .diag = diag, .arena = gqac_arena_create(0)};
    if (!v.arena)
        return gqac_diag_oom(diag, "verifying");
    gqac_table_init(&v.nodes, v.arena);
    gqac_table_init(&v.values, v.arena);
    gqac_status status = verify_all(&v);
    gqac_arena_free(v.arena);
    return status;
}
