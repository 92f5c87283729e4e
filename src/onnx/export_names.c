/* The names of values in an exported file (see exporter.h). */
#include "onnx/exporter.h"

#include <string.h>

typedef struct label {
    const ir_value *value;
    const char *text;
} label;

static bool same_value(const void *item, const void *key) {
    return ((const label *)item)->value == key;
}

static bool same_text(const void *item, const void *key) {
    return strcmp(item, key) == 0;
}

static uint64_t hash_of(const exporter *ex, const ir_value *value) {
    return gqac_hash_u64(ex->labels.seed, (uint64_t)(uintptr_t)value);
}

static bool is_taken(const exporter *ex, const char *text) {
    return gqac_table_find(&ex->taken, gqac_hash_bytes(ex->taken.seed, text, strlen(text)),
                           same_text, text);
}

static gqac_status take(exporter *ex, const char *text) {
    uint64_t hash = gqac_hash_bytes(ex->taken.seed, text, strlen(text));
    return gqac_table_add(&ex->taken, hash, (void *)(uintptr_t)text) ? GQAC_OK : export_oom(ex);
}

const char *export_fresh(exporter *ex, const char *wanted) {
    const char *text = wanted;
    for (int i = 1; text && is_taken(ex, text); i++)
        text = gqac_arena_printf(ex->arena, "%s_%d", wanted, i);
    return text && take(ex, text) == GQAC_OK ? text : NULL;
}

const char *export_node_name(exporter *ex, const char *name) {
    const uint64_t hash = gqac_hash_bytes(ex->nodes.seed, name, strlen(name));
    if (!*name || gqac_table_find(&ex->nodes, hash, same_text, name))
        return NULL;
    return gqac_table_add(&ex->nodes, hash, (void *)(uintptr_t)name) ? name : NULL;
}

static gqac_status set_label(exporter *ex, const ir_value *value, const char *text) {
    label *own = GQAC_ARENA_NEW(ex->arena, label);
    if (!own || !gqac_table_add(&ex->labels, hash_of(ex, value), own))
        return export_oom(ex);
    *own = (label){value, text};
    return GQAC_OK;
}

static const label *find(const exporter *ex, const ir_value *value) {
    return gqac_table_find(&ex->labels, hash_of(ex, value), same_value, value);
}

const char *export_name(const exporter *ex, const ir_value *value) {
    const label *own = find(ex, value);
    return own ? own->text : value->name;
}

static gqac_status name_value(exporter *ex, const ir_value *value) {
    if (!value || find(ex, value))
        return GQAC_OK;
    const char *text = export_fresh(ex, value->name);
    return text ? set_label(ex, value, text) : export_oom(ex);
}

static gqac_status name_graph(exporter *ex, const ir_graph *graph) {
    for (int i = 0; i < graph->n_inputs; i++)
        GQAC_TRY(name_value(ex, graph->inputs[i]));
    for (int i = 0; i < graph->n_constants; i++)
        GQAC_TRY(name_value(ex, graph->constants[i]));
    return GQAC_OK;
}

static gqac_status name_node(void *arg, ir_node *node) {
    exporter *ex = arg;
    for (int i = 0; i < node->n_outputs; i++)
        GQAC_TRY(name_value(ex, node->outputs[i]));
    const ir_graph *inner;
    for (int at = 0; (inner = ir_next_graph(node, &at));)
        GQAC_TRY(name_graph(ex, inner));
    return GQAC_OK;
}

gqac_status export_names(exporter *ex) {
    ir_graph *graph = ex->module->graph;
    gqac_table_init(&ex->labels, ex->arena);
    gqac_table_init(&ex->taken, ex->arena);
    gqac_table_init(&ex->nodes, ex->arena);
    for (int i = 0; i < graph->n_inputs; i++)
        GQAC_TRY(name_value(ex, graph->inputs[i]));
    for (int i = 0; i < graph->ret->n_inputs; i++) {
        const ir_value *value = graph->ret->inputs[i].value;
        const char *text = graph->result_names[i];
        if (find(ex, value) || (!value->def && strcmp(value->name, text) != 0))
            continue; /* gets an Identity with that name */
        if (is_taken(ex, text))
            GQAC_FAIL(ex->diag, GQAC_UNSUPPORTED, "two inputs or outputs are named '%s'", text);
        GQAC_TRY(take(ex, text));
        GQAC_TRY(set_label(ex, value, text));
    }
    for (int i = 0; i < graph->ret->n_inputs; i++) /* names of the future Identities */
        if (!is_taken(ex, graph->result_names[i]))
            GQAC_TRY(take(ex, graph->result_names[i]));
    GQAC_TRY(name_graph(ex, graph));
    return ir_graph_walk(graph, name_node, ex);
}
