/* Attributes of nodes, by name. The tables are short, so a lookup is a linear search.
 *
 * Asking for a name that the schema does not have is a defect of the caller. Values that are set
 * are copied to the arena. */
#include "ir/impl.h"

#include <assert.h>
#include <string.h>

static int find(const ir_node *node, const char *name) {
    int i = 0;
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++, i++)
        if (strcmp(spec->name, name) == 0)
            return i;
    return -1;
}

static const ir_attr nothing;

const ir_attr *ir_attr_get(const ir_node *node, const char *name) {
    int i = find(node, name);
    assert(i >= 0);
    return i < 0 ? &nothing : &node->attrs[i];
}

int64_t ir_attr_int(const ir_node *node, const char *name) {
    return ir_attr_get(node, name)->i;
}

float ir_attr_float(const ir_node *node, const char *name) {
    return ir_attr_get(node, name)->f;
}

bool ir_attr_is_set(const ir_node *node, const char *name) {
    return ir_attr_get(node, name)->set;
}

ir_attr *ir_attr_edit(ir_node *node, const char *name) {
    int i = find(node, name);
    assert(i >= 0);
    return i < 0 ? NULL : &node->attrs[i];
}

/* Stores a value; does nothing for NULL, a node that was not built. */
static void put(ir_node *node, const char *name, ir_attr value) {
    ir_attr *attr = node ? ir_attr_edit(node, name) : NULL;
    value.set = true;
    if (attr)
        *attr = value;
}

void ir_attr_set_int(ir_node *node, const char *name, int64_t value) {
    put(node, name, (ir_attr){.i = value});
}

void ir_attr_set_float(ir_node *node, const char *name, float value) {
    put(node, name, (ir_attr){.f = value});
}

void ir_attr_set_dtype(ir_node *node, const char *name, gqac_dtype dtype) {
    put(node, name, (ir_attr){.dtype = dtype});
}

void ir_attr_set_graph(ir_node *node, const char *name, ir_graph *graph) {
    if (!node)
        return;
    graph->parent = node;
    put(node, name, (ir_attr){.graph = graph});
}

bool ir_attr_set_tensor(ir_node *node, const char *name, const gqac_tensor *tensor) {
    if (!node)
        return true;
    tensor = gqac_arena_copy(node->graph->module->arena, tensor, sizeof *tensor);
    if (tensor)
        put(node, name, (ir_attr){.tensor = tensor});
    return tensor != NULL;
}

static void *copy_list(const ir_node *node, const void *values, size_t n, size_t size) {
    void *list = gqac_arena_calloc(node->graph->module->arena, n, size);
    if (list && n)
        memcpy(list, values, n * size);
    return list;
}

bool ir_attr_set_ints(ir_node *node, const char *name, size_t n, const int64_t *values) {
    if (!node)
        return true;
    const int64_t *ints = copy_list(node, values, n, sizeof *ints);
    if (ints)
        put(node, name, (ir_attr){.count = n, .ints = ints});
    return ints != NULL;
}

bool ir_attr_set_floats(ir_node *node, const char *name, size_t n, const float *values) {
    if (!node)
        return true;
    const float *floats = copy_list(node, values, n, sizeof *floats);
    if (floats)
        put(node, name, (ir_attr){.count = n, .floats = floats});
    return floats != NULL;
}

bool ir_attr_set_strings(ir_node *node, const char *name, size_t n, const char *const *values) {
    if (!node)
        return true;
    gqac_arena *arena = node->graph->module->arena;
    const char **strings = GQAC_ARENA_ARRAY(arena, const char *, n);
    if (!strings)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!(strings[i] = gqac_arena_strdup(arena, values[i])))
            return false;
    put(node, name, (ir_attr){.count = n, .strings = strings});
    return true;
}

bool ir_attr_set_string(ir_node *node, const char *name, const char *text) {
    if (!node)
        return true;
    text = gqac_arena_strdup(node->graph->module->arena, text);
    if (text)
        put(node, name, (ir_attr){.s = text});
    return text != NULL;
}

/* ---- equality ------------------------------------------------------------ */

static bool tensors_equal(const gqac_tensor *a, const gqac_tensor *b) {
    if (a == b || !a || !b)
        return a == b;
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    size_t bytes = gqac_tensor_bytes(a);
    if (bytes == 0 || a->data == b->data)
        return true;
    return a->data && b->data && memcmp(a->data, b->data, bytes) == 0;
}

/* Compares floats by their bits, as they are printed. */
bool ir_attr_equal(ir_attr_kind kind, const ir_attr *a, const ir_attr *b) {
    if (!a->set || !b->set)
        return a->set == b->set;
    switch (kind) {
    case IR_ATTR_INT:
        return a->i == b->i;
    case IR_ATTR_FLOAT:
        /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-*): the same bits are wanted */
        return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case IR_ATTR_STRING:
        return strcmp(a->s, b->s) == 0;
    case IR_ATTR_INTS:
        return a->count == b->count &&
               (a->count == 0 || memcmp(a->ints, b->ints, a->count * sizeof *a->ints) == 0);
    case IR_ATTR_FLOATS:
        return a->count == b->count &&
               (a->count == 0 || memcmp(a->floats, b->floats, a->count * sizeof *a->floats) == 0);
    case IR_ATTR_STRINGS:
        for (size_t i = 0; i < a->count && a->count == b->count; i++)
            if (strcmp(a->strings[i], b->strings[i]) != 0)
                return false;
        return a->count == b->count;
    case IR_ATTR_TENSOR:
        return tensors_equal(a->tensor, b->tensor);
    case IR_ATTR_GRAPH:
        return a->graph == b->graph;
    case IR_ATTR_DTYPE:
        return a->dtype == b->dtype;
    }
    return false;
}
