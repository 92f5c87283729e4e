/* Parts of a graph: which node reads what of which, and models of some nodes. */
#include <stdlib.h>
#include <string.h>

#include "graph_impl.h"

/* ---- links ----------------------------------------------------------------- */

/* The inputs of a node, and what its nested graphs read of the graphs around them. */
static ort_status *inputs_of(const ort_api *api, const ort_node *node,
                             const ort_value_info ***infos, size_t *n) {
    size_t n_nested;
    ORT_TRY(api->Node_GetNumInputs(node, n));
    ORT_TRY(api->Node_GetNumImplicitInputs(node, &n_nested));
    *infos = calloc(*n + n_nested + 1, sizeof **infos);
    if (!*infos)
        return status_no_memory(api);
    ort_status *status = *n ? api->Node_GetInputs(node, *infos, *n) : NULL;
    if (!status && n_nested)
        status = api->Node_GetImplicitInputs(node, *infos + *n, n_nested);
    *n += n_nested;
    if (status)
        free(*infos);
    return status;
}

static int compare_places(const void *a, const void *b) {
    const graph_place *x = a, *y = b;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* The index of a node; -1: NULL, or a node of another graph. */
static int index_of(const graph_links *links, const ort_node *node) {
    const graph_place key = {node, 0}, *found = NULL;
    if (node && links->n)
        found = bsearch(&key, links->places, links->n, sizeof key, compare_places);
    return found ? found->index : -1;
}

/* The index of the node that outputs the value; -1: it is an input or a constant. */
static ort_status *producer_of(const ort_api *api, const graph_links *links,
                               const ort_value_info *info, int *index) {
    const ort_node *node = NULL;
    size_t output;
    ORT_TRY(api->ValueInfo_GetValueProducer(info, &node, &output));
    *index = index_of(links, node);
    return NULL;
}

static bool add_edge(graph_links *links, int from, int to) {
    if (links->n_edges == links->capacity) {
        const size_t capacity = 2 * links->capacity + 256;
        convex_edge *edges = realloc(links->edges, capacity * sizeof *edges);
        if (!edges)
            return false;
        links->edges = edges;
        links->capacity = capacity;
    }
    links->edges[links->n_edges++] = (convex_edge){from, to};
    return true;
}

static ort_status *add_edges(const ort_api *api, graph_links *links, int to) {
    const ort_value_info **infos;
    size_t n;
    ORT_TRY(inputs_of(api, links->nodes[to], &infos, &n));
    ort_status *status = NULL;
    for (size_t i = 0; i < n && !status; i++) {
        int from = -1;
        if (infos[i])
            status = producer_of(api, links, infos[i], &from);
        if (!status && from >= 0 && !add_edge(links, from, to))
            status = status_no_memory(api);
    }
    free(infos);
    return status;
}

ort_status *graph_links_open(const ort_api *api, const ort_graph *graph, graph_links *links) {
    memset(links, 0, sizeof *links);
    ORT_TRY(graph_nodes(api, graph, &links->nodes, &links->n));
    links->places = calloc(links->n + 1, sizeof *links->places);
    ort_status *status = links->places ? NULL : status_no_memory(api);
    for (size_t i = 0; i < links->n && !status; i++)
        links->places[i] = (graph_place){links->nodes[i], (int)i};
    if (!status && links->n)
        qsort(links->places, links->n, sizeof *links->places, compare_places);
    for (size_t i = 0; i < links->n && !status; i++)
        status = add_edges(api, links, (int)i);
    if (status)
        graph_links_close(links);
    return status;
}

void graph_links_close(graph_links *links) {
    free(links->nodes);
    free(links->places);
    free(links->edges);
    memset(links, 0, sizeof *links);
}

/* ---- weights --------------------------------------------------------------- */

/* Ops that read some rows of a table, not all of their constants. */
static bool looks_up(const char *op) {
    return strncmp(op, "Gather", 6) == 0 || strstr(op, "RotaryEmbedding");
}

/* Adds the bytes of a constant of two or more dimensions. */
static ort_status *add_weight(const ort_api *api, const ort_value_info *info, int64_t *bytes) {
    const ort_type_info *type = NULL;
    const ort_tensor_info *tensor = NULL;
    gqac_tensor shape = {.dtype = GQAC_NONE};
    bool constant = false;
    int element = 0;
    size_t rank = 0;
    ORT_TRY(api->ValueInfo_IsConstantInitializer(info, &constant));
    if (!constant)
        return NULL;
    ORT_TRY(api->GetValueInfoTypeInfo(info, &type));
    ORT_TRY(api->CastTypeInfoToTensorInfo(type, &tensor));
    if (tensor)
        ORT_TRY(api->GetDimensionsCount(tensor, &rank));
    if (rank < 2 || rank > GQAC_MAX_RANK)
        return NULL;
    ORT_TRY(api->GetTensorElementType(tensor, &element));
    ORT_TRY(api->GetDimensions(tensor, shape.dims, rank));
    shape.dtype = gqac_dtype_from_onnx(element);
    shape.rank = (int)rank;
    *bytes += (int64_t)gqac_tensor_bytes(&shape);
    return NULL;
}

ort_status *graph_part_weights(const ort_api *api, const graph_part *part, int64_t *bytes) {
    const graph_links *links = part->links;
    ort_status *status = NULL;
    *bytes = 0;
    for (size_t i = 0; i < links->n && !status; i++) {
        const ort_value_info **infos;
        const char *op;
        size_t n;
        if (part->set[i] != part->which)
            continue;
        ORT_TRY(api->Node_GetOperatorType(links->nodes[i], &op));
        if (looks_up(op))
            continue;
        ORT_TRY(inputs_of(api, links->nodes[i], &infos, &n));
        for (size_t k = 0; k < n && !status; k++)
            status = infos[k] ? add_weight(api, infos[k], bytes) : NULL;
        free(infos);
    }
    return status;
}

/* ---- a part as a model ----------------------------------------------------- */

typedef struct named {
    const char *name;
    const ort_value_info *info;
} named;

static int compare_names(const void *a, const void *b) {
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

typedef struct named_list {
    named *values;
    size_t n, capacity;
} named_list;

static ort_status *add_named(const ort_api *api, named_list *list, const ort_value_info *info) {
    const char *name;
    ORT_TRY(api->GetValueInfoName(info, &name));
    if (list->n == list->capacity) {
        const size_t capacity = 2 * list->capacity + 64;
        named *values = realloc(list->values, capacity * sizeof *values);
        if (!values)
            return status_no_memory(api);
        list->values = values;
        list->capacity = capacity;
    }
    list->values[list->n++] = (named){name, info};
    return NULL;
}

static bool in_part(const graph_part *part, int index) {
    return index >= 0 && part->set[index] == part->which;
}

/* Lists what node i reads from outside the part. */
static ort_status *list_inputs(graph_writer *w, const graph_part *part, size_t i,
                               named_list *list) {
    const ort_value_info **infos;
    size_t n;
    ORT_TRY(inputs_of(w->api, part->links->nodes[i], &infos, &n));
    ort_status *status = NULL;
    for (size_t k = 0; k < n && !status; k++) {
        int from = -1;
        if (!infos[k])
            continue; /* an input that is left out */
        status = producer_of(w->api, part->links, infos[k], &from);
        if (!status && !in_part(part, from))
            status = add_named(w->api, list, infos[k]);
    }
    free(infos);
    return status;
}

static ort_status *write_inputs(graph_writer *w, named_list *list) {
    if (list->n)
        qsort(list->values, list->n, sizeof *list->values, compare_names);
    for (size_t i = 0; i < list->n; i++) {
        const ort_value_info *info = list->values[i].info;
        bool constant = false;
        if (!*list->values[i].name ||
            (i && strcmp(list->values[i].name, list->values[i - 1].name) == 0))
            continue;
        WRITE_TRY(w->api->ValueInfo_IsConstantInitializer(info, &constant));
        WRITE_TRY(constant ? graph_write_initializer(w, info, false)
                           : graph_write_value(w, GRAPH_INPUT, info));
    }
    return NULL;
}

/* True if the value is read outside the part, or is an output of the graph. */
static ort_status *is_result(const ort_api *api, const graph_part *part, const ort_value_info *info,
                             bool *result) {
    size_t n;
    ORT_TRY(api->ValueInfo_IsGraphOutput(info, result));
    ORT_TRY(api->ValueInfo_GetValueNumConsumers(info, &n));
    if (*result || !n)
        return NULL;
    const ort_node **nodes = calloc(n, sizeof *nodes);
    int64_t *inputs = calloc(n, sizeof *inputs);
    ort_status *status = nodes && inputs ? api->ValueInfo_GetValueConsumers(info, nodes, inputs, n)
                                         : status_no_memory(api);
    for (size_t i = 0; i < n && !status; i++)
        *result |= !in_part(part, index_of(part->links, nodes[i]));
    free(nodes);
    free(inputs);
    return status;
}

static ort_status *write_results(graph_writer *w, const graph_part *part, const ort_node *node) {
    const ort_api *api = w->api;
    const ort_value_info **infos;
    size_t n;
    ORT_TRY(node_values(api, node, api->Node_GetNumOutputs, api->Node_GetOutputs, &infos, &n));
    ort_status *status = NULL;
    for (size_t i = 0; i < n && !status; i++) {
        bool result = false;
        if (infos[i]) /* NULL: an output that is left out */
            status = is_result(api, part, infos[i], &result);
        if (!status && result)
            status = graph_write_value(w, GRAPH_OUTPUT, infos[i]);
    }
    free(infos);
    return status;
}

ort_status *graph_write_part(graph_writer *w, const graph_part *part) {
    const graph_links *links = part->links;
    named_list inputs = {0};
    ort_status *status = NULL;
    for (size_t i = 0; i < links->n && !status && !*w->m->why; i++) {
        if (part->set[i] != part->which)
            continue;
        status = graph_write_node(w, links->nodes[i]);
        if (!status)
            status = list_inputs(w, part, i, &inputs);
        if (!status)
            status = write_results(w, part, links->nodes[i]);
    }
    wire_text(&w->m->model, 2, "session"); /* GraphProto.name */
    if (!status && !*w->m->why)
        status = write_inputs(w, &inputs);
    free(inputs.values);
    return status;
}
