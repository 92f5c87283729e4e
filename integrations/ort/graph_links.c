/* The values that link the nodes of a graph.
 *
 * They are found by the lists of the nodes alone. The runtime's functions for it, from
 * ValueInfo_GetValueProducer to ValueInfo_GetValueConsumers, are not called: those of ONNX Runtime
 * 1.23 end the process for inputs of a graph, and in the graphs of fused nodes. */
#include <stdlib.h>
#include <string.h>

#include "graph_impl.h"

/* ---- lists of values ------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
    return strcmp(((const graph_named *)a)->name, ((const graph_named *)b)->name);
}

static void sort_by_name(graph_list *list) {
    if (list->n)
        qsort(list->values, list->n, sizeof *list->values, compare_names);
}

/* Adds the values to the list, except those that are left out: NULL, or without a name. */
static ort_status *add_values(const ort_api *api, graph_list *list,
                              const ort_value_info *const *infos, size_t n, int node, bool nested) {
    if (list->n + n > list->capacity) {
        const size_t capacity = 2 * list->capacity + n + 64;
        graph_named *values = realloc(list->values, capacity * sizeof *values);
        if (!values)
            return status_no_memory(api);
        list->values = values;
        list->capacity = capacity;
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = "";
        if (infos[i])
            ORT_TRY(api->GetValueInfoName(infos[i], &name));
        if (*name)
            list->values[list->n++] = (graph_named){name, infos[i], node, nested};
    }
    return NULL;
}

/* The first value of that name in a list in order; NULL: none. */
static const graph_named *find_value(const graph_list *list, const char *name) {
    size_t low = 0, high = list->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(list->values[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < list->n && strcmp(list->values[low].name, name) == 0 ? &list->values[low] : NULL;
}

/* ---- links ----------------------------------------------------------------- */

/* Adds values of a node to a list. */
static ort_status *add_of_node(const ort_api *api, const graph_links *links, int node,
                               count_of_node *count, values_of_node *values, bool nested,
                               graph_list *list) {
    const ort_value_info **infos;
    size_t n;
    ORT_TRY(node_values(api, links->nodes[node], count, values, &infos, &n));
    ort_status *status = add_values(api, list, infos, n, node, nested);
    free(infos);
    return status;
}

/* Adds a node's outputs and inputs to the lists. What its nested graphs read from the graphs around
 * them counts as inputs too. */
static ort_status *add_node(const ort_api *api, graph_links *links, int node) {
    ORT_TRY(add_of_node(api, links, node, api->Node_GetNumOutputs, api->Node_GetOutputs, false,
                        &links->outputs));
    ORT_TRY(add_of_node(api, links, node, api->Node_GetNumInputs, api->Node_GetInputs, false,
                        &links->inputs));
    return add_of_node(api, links, node, api->Node_GetNumImplicitInputs,
                       api->Node_GetImplicitInputs, true, &links->inputs);
}

int graph_producer(const graph_links *links, const char *name) {
    const graph_named *found = find_value(&links->outputs, name);
    return found ? found->node : -1;
}

/* Adds an edge for each input that a node outputs. */
static ort_status *add_edges(const ort_api *api, graph_links *links) {
    links->edges = calloc(links->inputs.n + 1, sizeof *links->edges);
    if (!links->edges)
        return status_no_memory(api);
    for (size_t i = 0; i < links->inputs.n; i++) {
        const graph_named *input = &links->inputs.values[i];
        const int from = graph_producer(links, input->name);
        if (from >= 0)
            links->edges[links->n_edges++] = (convex_edge){from, input->node};
    }
    return NULL;
}

ort_status *graph_links_open(const ort_api *api, const ort_graph *graph, graph_links *links) {
    memset(links, 0, sizeof *links);
    ORT_TRY(graph_nodes(api, graph, &links->nodes, &links->n));
    ort_status *status = NULL;
    for (size_t i = 0; i < links->n && !status; i++)
        status = add_node(api, links, (int)i);
    sort_by_name(&links->outputs);
    if (!status)
        status = add_edges(api, links); /* in the order of the nodes */
    sort_by_name(&links->inputs);
    if (status)
        graph_links_close(links);
    return status;
}

void graph_links_close(graph_links *links) {
    free(links->nodes);
    free(links->outputs.values);
    free(links->inputs.values);
    free(links->edges);
    memset(links, 0, sizeof *links);
}

const graph_named *graph_reader(const graph_links *links, const graph_named *last,
                                const char *name) {
    if (!last)
        return find_value(&links->inputs, name);
    last++;
    return last < links->inputs.values + links->inputs.n && strcmp(last->name, name) == 0 ? last
                                                                                          : NULL;
}

bool graph_reads_itself(const graph_links *links, const graph_part *part, const char *name) {
    const graph_named *reader = NULL;
    bool reads = false;
    while ((reader = graph_reader(links, reader, name)))
        reads |= !reader->nested && (!part || part->set[reader->node] == part->which);
    return reads;
}
