/* Parts of a graph: their weights, and models of them. */
#include <stdlib.h>
#include <string.h>

#include "graph_impl.h"

static bool in_part(const graph_part *part, int index) {
    return index >= 0 && part->set[index] == part->which;
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
    *bytes = 0;
    for (size_t i = 0; i < links->inputs.n; i++) {
        const graph_named *input = &links->inputs.values[i];
        const char *op;
        if (!in_part(part, input->node))
            continue;
        ORT_TRY(api->Node_GetOperatorType(links->nodes[input->node], &op));
        if (!looks_up(op))
            ORT_TRY(add_weight(api, input->info, bytes));
    }
    return NULL;
}

/* ---- a part as a model ----------------------------------------------------- */

/* Writes what the nodes of the part read from outside it. */
static ort_status *write_inputs(graph_writer *w, const graph_part *part) {
    const graph_list *inputs = &part->links->inputs;
    const char *last = "";
    for (size_t i = 0; i < inputs->n; i++) {
        const graph_named *input = &inputs->values[i];
        bool constant = false;
        if (!in_part(part, input->node) ||
            in_part(part, graph_producer(part->links, input->name)) ||
            strcmp(input->name, last) == 0)
            continue;
        last = input->name;
        WRITE_TRY(w->api->ValueInfo_IsConstantInitializer(input->info, &constant));
        WRITE_TRY(constant ? graph_write_initializer(w, input->info, false)
                           : graph_write_input(w, input->info, input->name));
    }
    return NULL;
}

/* True if the value is read outside the part, or is an output of the graph. */
static ort_status *is_result(const ort_api *api, const graph_part *part, const ort_value_info *info,
                             bool *result) {
    const graph_named *reader = NULL;
    const char *name;
    ORT_TRY(api->ValueInfo_IsGraphOutput(info, result));
    ORT_TRY(api->GetValueInfoName(info, &name));
    while ((reader = graph_reader(part->links, reader, name)))
        *result |= !in_part(part, reader->node);
    return NULL;
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
    ort_status *status = NULL;
    for (size_t i = 0; i < links->n && !status && !*w->m->why; i++) {
        if (part->set[i] != part->which)
            continue;
        status = graph_write_node(w, links->nodes[i]);
        if (!status)
            status = write_results(w, part, links->nodes[i]);
    }
    wire_text(&w->m->model, 2, "session"); /* GraphProto.name */
    if (!status && !*w->m->why)
        status = write_inputs(w, part);
    return status;
}
