/* The graph of a session, read through the runtime's tables and written as an ONNX model in memory,
 * which gqac then opens like a file. It is for sessions that no file describes: those created from
 * bytes, and those whose graph the runtime or the program has changed.
 *
 * The numbers in comments such as "NodeProto.name" are those of onnx.proto. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph_impl.h"

/* ---- attributes ------------------------------------------------------------ */

/* AttributeProto.AttributeType, and the field that holds a value of the type. */
typedef struct attribute_kind {
    int of_runtime; /* OrtOpAttrType */
    int of_onnx;
    unsigned field;
    size_t size; /* of one value; 0: texts */
} attribute_kind;

static const attribute_kind kinds[] = {
    {ORT_ATTR_INT, 2, 3, sizeof(int64_t)},
    {2, 7, 8, sizeof(int64_t)}, /* INTS */
    {3, 1, 2, sizeof(float)},   /* FLOAT */
    {4, 6, 7, sizeof(float)},   /* FLOATS */
    {ORT_ATTR_STRING, 3, 4, 0},
    {6, 8, 9, 0}, /* STRINGS */
};

static void write_values(wire *out, const attribute_kind *kind, const char *data, size_t size) {
    if (kind->of_onnx == 3) { /* STRING */
        wire_bytes(out, kind->field, data, size);
        return;
    }
    for (size_t at = 0; at < size;) {
        if (!kind->size) { /* STRINGS: one after another, each with its NUL */
            wire_text(out, kind->field, data + at);
            at += strlen(data + at) + 1;
        } else if (kind->size == sizeof(float)) {
            float value;
            memcpy(&value, data + at, sizeof value);
            wire_float(out, kind->field, value);
            at += sizeof value;
        } else {
            int64_t value;
            memcpy(&value, data + at, sizeof value);
            wire_int(out, kind->field, value);
            at += sizeof value;
        }
    }
}

static ort_status *write_tensor_attribute(graph_writer *w, const ort_attr *attr) {
    ort_value *value;
    wire_int(&w->m->model, 20, 4); /* type = TENSOR */
    ORT_TRY(w->api->OpAttr_GetTensorAttributeAsOrtValue(attr, &value));
    ort_status *status =
        graph_write_tensor(w, 5, "", value, SIZE_MAX); /* it is a copy, freed below */
    w->api->ReleaseValue(value);
    return status;
}

static ort_status *write_attribute(graph_writer *w, const ort_attr *attr) {
    wire *out = &w->m->model;
    const char *name;
    int type;
    ORT_TRY(w->api->OpAttr_GetName(attr, &name));
    ORT_TRY(w->api->OpAttr_GetType(attr, &type));
    if (type == ORT_ATTR_GRAPH)
        return NULL;                         /* write_nested */
    const size_t begin = wire_begin(out, 5); /* NodeProto.attribute */
    wire_text(out, 1, name);
    if (type == ORT_ATTR_TENSOR)
        WRITE_TRY(write_tensor_attribute(w, attr));
    const attribute_kind *kind = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].of_runtime == type)
            kind = &kinds[i];
    if (kind) {
        void *data;
        size_t size;
        ORT_TRY(attribute_read(w->api, attr, type, &data, &size));
        wire_int(out, 20, kind->of_onnx);
        write_values(out, kind, data, size);
        free(data);
    } else if (type != ORT_ATTR_TENSOR) {
        snprintf(w->m->why, sizeof w->m->why,
                 "the attribute '%.100s' has a type that ONNX Runtime does not pass to providers",
                 name);
        return NULL;
    }
    wire_end(out, begin);
    return NULL;
}

static ort_status *write_attributes(graph_writer *w, const ort_node *node) {
    size_t n;
    ORT_TRY(w->api->Node_GetNumAttributes(node, &n));
    const ort_attr **attrs = calloc(n + 1, sizeof *attrs);
    if (!attrs)
        return status_no_memory(w->api);
    ort_status *status = n ? w->api->Node_GetAttributes(node, attrs, n) : NULL;
    for (size_t i = 0; i < n && !status && !*w->m->why; i++)
        if (attrs[i])
            status = write_attribute(w, attrs[i]);
    free(attrs);
    return status;
}

/* ---- nodes and graphs ------------------------------------------------------ */

static ort_status *write_graph(graph_writer *w, unsigned field, const ort_graph *graph,
                               bool nested);

/* The graphs of If, Loop and Scan. */
static ort_status *write_nested(graph_writer *w, const ort_node *node) {
    wire *out = &w->m->model;
    size_t n;
    ORT_TRY(w->api->Node_GetNumSubgraphs(node, &n));
    if (!n)
        return NULL;
    const ort_graph **graphs = calloc(n, sizeof *graphs);
    const char **names = calloc(n, sizeof *names);
    const bool fine = graphs && names;
    ort_status *status =
        fine ? w->api->Node_GetSubgraphs(node, graphs, n, names) : status_no_memory(w->api);
    for (size_t i = 0; fine && i < n && !status && !*w->m->why; i++) {
        const size_t begin = wire_begin(out, 5);
        wire_text(out, 1, names[i]);
        wire_int(out, 20, 5); /* type = GRAPH */
        status = write_graph(w, 6, graphs[i], true);
        wire_end(out, begin);
    }
    free(graphs);
    free(names);
    return status;
}

/* The names of a node's inputs or outputs; "": one that is left out. */
static ort_status *write_names(graph_writer *w, unsigned field, const ort_node *node,
                               count_of_node *count, values_of_node *values) {
    const ort_value_info **infos;
    size_t n;
    ORT_TRY(node_values(w->api, node, count, values, &infos, &n));
    ort_status *status = NULL;
    for (size_t i = 0; i < n && !status; i++) {
        const char *name = "";
        if (infos[i])
            status = w->api->GetValueInfoName(infos[i], &name);
        if (!status)
            wire_text(&w->m->model, field, name);
    }
    free(infos);
    return status;
}

ort_status *graph_write_node(graph_writer *w, const ort_node *node) {
    const ort_api *api = w->api;
    const char *name, *op, *domain, *owner = NULL;
    wire *out = &w->m->model;
    ORT_TRY(api->Node_GetName(node, &name));
    ORT_TRY(api->Node_GetOperatorType(node, &op));
    ORT_TRY(api->Node_GetDomain(node, &domain));
    ORT_TRY(api->Node_GetEpName(node, &owner));
    if (owner && *owner) {
        snprintf(w->m->why, sizeof w->m->why, "a node of op %s belongs to the provider %s", op,
                 owner);
        return NULL;
    }
    const size_t begin = wire_begin(out, 1); /* GraphProto.node */
    ORT_TRY(write_names(w, 1, node, api->Node_GetNumInputs, api->Node_GetInputs));
    ORT_TRY(write_names(w, 2, node, api->Node_GetNumOutputs, api->Node_GetOutputs));
    wire_text(out, 3, name);
    wire_text(out, 4, op);
    WRITE_TRY(write_attributes(w, node));
    WRITE_TRY(write_nested(w, node));
    wire_text(out, 7, domain);
    wire_end(out, begin);
    return NULL;
}

static ort_status *write_nodes(graph_writer *w, const ort_graph *graph) {
    const ort_node **nodes;
    ort_status *status = NULL;
    size_t n;
    ORT_TRY(graph_nodes(w->api, graph, &nodes, &n));
    for (size_t i = 0; i < n && !status && !*w->m->why; i++)
        status = graph_write_node(w, nodes[i]);
    free(nodes);
    return status;
}

typedef ort_status *write_one(graph_writer *w, const ort_value_info *info, bool nested);

static ort_status *write_list(graph_writer *w, const ort_graph *graph, count_of_graph *count,
                              values_of_graph *values, write_one *one, bool nested) {
    size_t n;
    ORT_TRY(count(graph, &n));
    const ort_value_info **infos = calloc(n + 1, sizeof *infos);
    if (!infos)
        return status_no_memory(w->api);
    ort_status *status = n ? values(graph, infos, n) : NULL;
    for (size_t i = 0; i < n && !status && !*w->m->why; i++)
        status = one(w, infos[i], nested);
    free(infos);
    return status;
}

ort_status *graph_write_input(graph_writer *w, const ort_value_info *info, const char *name) {
    if (!w->passes_nested && !graph_reads_itself(w->links, w->part, name)) {
        snprintf(w->m->why, sizeof w->m->why, NOT_PASSED, name);
        return NULL;
    }
    return graph_write_value(w, GRAPH_INPUT, info);
}

/* The fused node has no inputs that no node reads. */
static ort_status *write_input(graph_writer *w, const ort_value_info *info, bool nested) {
    const char *name;
    bool constant = false;
    ORT_TRY(w->api->ValueInfo_IsConstantInitializer(info, &constant));
    ORT_TRY(w->api->GetValueInfoName(info, &name));
    if (nested)
        return graph_write_value(w, GRAPH_INPUT, info);
    return !constant && graph_reader(w->links, NULL, name) ? graph_write_input(w, info, name)
                                                           : NULL;
}

static ort_status *write_output(graph_writer *w, const ort_value_info *info, bool nested) {
    (void)nested;
    return graph_write_value(w, GRAPH_OUTPUT, info);
}

static ort_status *write_graph(graph_writer *w, unsigned field, const ort_graph *graph,
                               bool nested) {
    const ort_api *api = w->api;
    wire *out = &w->m->model;
    const size_t begin = wire_begin(out, field);
    WRITE_TRY(write_nodes(w, graph));
    wire_text(out, 2, "session");
    WRITE_TRY(write_list(w, graph, api->Graph_GetNumInitializers, api->Graph_GetInitializers,
                         graph_write_initializer, nested));
    WRITE_TRY(
        write_list(w, graph, api->Graph_GetNumInputs, api->Graph_GetInputs, write_input, nested));
    WRITE_TRY(write_list(w, graph, api->Graph_GetNumOutputs, api->Graph_GetOutputs, write_output,
                         nested));
    wire_end(out, begin);
    return NULL;
}

static ort_status *write_opsets(graph_writer *w, const ort_graph *graph) {
    wire *out = &w->m->model;
    size_t n;
    ORT_TRY(w->api->Graph_GetNumOperatorSets(graph, &n));
    const char **domains = calloc(n + 1, sizeof *domains);
    int64_t *versions = calloc(n + 1, sizeof *versions);
    ort_status *status = domains && versions
                             ? w->api->Graph_GetOperatorSets(graph, domains, versions, n)
                             : status_no_memory(w->api);
    for (size_t i = 0; i < n && !status; i++) {
        const size_t opset = wire_begin(out, 8); /* ModelProto.opset_import */
        wire_text(out, 1, domains[i]);
        wire_int(out, 2, versions[i]);
        wire_end(out, opset);
    }
    free(domains);
    free(versions);
    return status;
}

static ort_status *write_main(graph_writer *w, const ort_graph *graph, const graph_part *part) {
    if (!part)
        return write_graph(w, 7, graph, false);
    const size_t begin = wire_begin(&w->m->model, 7); /* ModelProto.graph */
    WRITE_TRY(graph_write_part(w, part));
    wire_end(&w->m->model, begin);
    return NULL;
}

static ort_status *write_model(graph_writer *w, const ort_graph *graph, const graph_part *part) {
    int64_t version;
    ORT_TRY(w->api->Graph_GetOnnxIRVersion(graph, &version));
    wire_int(&w->m->model, 1, version);
    WRITE_TRY(write_main(w, graph, part));
    return write_opsets(w, graph);
}

ort_status *graph_write(const provider *p, const ort_graph *graph, const graph_part *part,
                        const char *root, graph_model *m) {
    graph_links own = {0};
    graph_writer w = {.api = p->api,
                      .m = m,
                      .links = part ? part->links : &own,
                      .part = part,
                      .knows_shapes = p->version >= HAS_SHAPES,
                      .passes_nested = p->version >= PASSES_NESTED};
    memset(m, 0, sizeof *m);
    m->root = root;
    if (!part)
        ORT_TRY(graph_links_open(p->api, graph, &own));
    ort_status *status = write_model(&w, graph, part);
    graph_links_close(&own);
    return !status && m->model.failed ? status_no_memory(p->api) : status;
}

void graph_free(graph_model *m) {
    wire_free(&m->model);
    free(m->weights);
    memset(m, 0, sizeof *m);
}
