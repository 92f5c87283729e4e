/* Reading nodes through the runtime's tables: lists, names, attributes. */
#include <stdlib.h>
#include <string.h>

#include "provider.h"

ort_status *graph_nodes(const ort_api *api, const ort_graph *graph, const ort_node ***nodes,
                        size_t *n) {
    ORT_TRY(api->Graph_GetNumNodes(graph, n));
    *nodes = calloc(*n + 1, sizeof **nodes);
    if (!*nodes)
        return status_no_memory(api);
    ort_status *status = api->Graph_GetNodes(graph, *nodes, *n);
    if (status)
        free(*nodes);
    return status;
}

ort_status *node_values(const ort_api *api, const ort_node *node, count_of_node *count,
                        values_of_node *values, const ort_value_info ***infos, size_t *n) {
    ORT_TRY(count(node, n));
    *infos = calloc(*n + 1, sizeof **infos);
    if (!*infos)
        return status_no_memory(api);
    ort_status *status = *n ? values(node, *infos, *n) : NULL;
    if (status)
        free(*infos);
    return status;
}

ort_status *node_names(const ort_api *api, const ort_node *node, count_of_node *count,
                       values_of_node *values, char ***names, size_t *n) {
    const ort_value_info **infos;
    *names = NULL;
    ORT_TRY(node_values(api, node, count, values, &infos, n));
    *names = calloc(*n + 1, sizeof **names);
    ort_status *status = *names ? NULL : status_no_memory(api);
    for (size_t i = 0; *names && i < *n && !status; i++) {
        const char *name;
        status = api->GetValueInfoName(infos[i], &name);
        if (!status && !((*names)[i] = strdup(name)))
            status = status_no_memory(api);
    }
    free(infos);
    return status;
}

void node_names_free(char **names, size_t n) {
    for (size_t i = 0; names && i < n; i++)
        free(names[i]);
    free(names);
}

ort_status *attribute_find(const ort_api *api, const ort_node *node, const char *name, int type,
                           const ort_attr **found) {
    size_t n;
    *found = NULL;
    ORT_TRY(api->Node_GetNumAttributes(node, &n));
    const ort_attr **attrs = calloc(n + 1, sizeof *attrs);
    if (!attrs)
        return status_no_memory(api);
    ort_status *status = n ? api->Node_GetAttributes(node, attrs, n) : NULL;
    for (size_t i = 0; i < n && !status && !*found; i++) {
        const char *own;
        int own_type = -1;
        status = attrs[i] ? api->OpAttr_GetName(attrs[i], &own) : NULL;
        if (status || !attrs[i] || strcmp(own, name) != 0)
            continue;
        status = api->OpAttr_GetType(attrs[i], &own_type);
        if (!status && own_type == type)
            *found = attrs[i];
    }
    free(attrs);
    return status;
}

ort_status *attribute_read(const ort_api *api, const ort_attr *attr, int type, void **data,
                           size_t *size) {
    *size = 0;
    /* The first call has no memory to write to: it fails, and reports the size that is needed. */
    ort_status *status = api->ReadOpAttr(attr, type, NULL, 0, size);
    if (status)
        api->ReleaseStatus(status);
    *data = calloc(*size + 1, 1);
    if (!*data)
        return status_no_memory(api);
    status = *size ? api->ReadOpAttr(attr, type, *data, *size, size) : NULL;
    if (status)
        free(*data);
    return status;
}
