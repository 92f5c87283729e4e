/* The graph of a session, read through the runtime's tables and written as an ONNX model in memory,
 * which gqac then opens like a file. It is for sessions that no file describes: those created from
 * bytes, and those whose graph the runtime or the program has changed.
 *
 * Weights are not written: the model has them as external data, which are the runtime's own memory
 * or, where the runtime has them in a file, that file.
 * The numbers in comments such as "NodeProto.name" are those of onnx.proto. */
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN_MEMORY = '#' }; /* begins the locations of weights in the runtime's memory */
enum { INLINE = 256 };    /* weights of at most so many bytes are written into the model */

/* Evaluates a call inside the writer, which returns NULL or a status; also ends if `why` is set. */
#define WRITE_TRY(call)                                                                            \
    do {                                                                                           \
        ORT_TRY(call);                                                                             \
        if (*w->m->why)                                                                            \
            return NULL;                                                                           \
    } while (0)

typedef struct writer {
    const ort_api *api;
    graph_model *m;
    bool knows_shapes; /* the runtime tells a scalar from a tensor of unknown rank */
} writer;

/* ---- types ----------------------------------------------------------------- */

/* TensorShapeProto = 2 of TypeProto.Tensor. */
static ort_status *write_shape(writer *w, const ort_tensor_info *info) {
    const char *names[GQAC_MAX_RANK];
    int64_t dims[GQAC_MAX_RANK];
    wire *out = &w->m->model;
    size_t rank;
    ORT_TRY(w->api->GetDimensionsCount(info, &rank));
    if (rank > GQAC_MAX_RANK)
        return NULL; /* gqac rejects such a rank itself, with the name of the tensor */
    if (rank == 0 && !(w->knows_shapes && w->api->TensorTypeAndShape_HasShape(info)))
        return NULL;
    ORT_TRY(w->api->GetDimensions(info, dims, rank));
    ORT_TRY(w->api->GetSymbolicDimensions(info, names, rank));
    const size_t shape = wire_begin(out, 2);
    for (size_t i = 0; i < rank; i++) {
        const size_t dim = wire_begin(out, 1);
        if (dims[i] >= 0)
            wire_int(out, 1, dims[i]);
        else if (names[i] && *names[i])
            wire_text(out, 2, names[i]);
        wire_end(out, dim);
    }
    wire_end(out, shape);
    return NULL;
}

/* A ValueInfoProto, as `field` of a graph. */
static ort_status *write_value(writer *w, unsigned field, const ort_value_info *value) {
    const ort_type_info *type = NULL;
    const ort_tensor_info *info = NULL;
    const char *name;
    wire *out = &w->m->model;
    int element;
    ORT_TRY(w->api->GetValueInfoName(value, &name));
    ORT_TRY(w->api->GetValueInfoTypeInfo(value, &type));
    if (type)
        ORT_TRY(w->api->CastTypeInfoToTensorInfo(type, &info));
    if (!info) {
        snprintf(w->m->why, sizeof w->m->why, "'%.200s' is not a tensor", name);
        return NULL;
    }
    ORT_TRY(w->api->GetTensorElementType(info, &element));
    const size_t begin = wire_begin(out, field);
    wire_text(out, 1, name);
    const size_t holder = wire_begin(out, 2), tensor = wire_begin(out, 1);
    wire_int(out, 1, element);
    ORT_TRY(write_shape(w, info));
    wire_end(out, tensor);
    wire_end(out, holder);
    wire_end(out, begin);
    return NULL;
}

/* ---- tensors --------------------------------------------------------------- */

static void write_entry(wire *out, const char *key, const char *value) {
    const size_t entry = wire_begin(out, 13); /* TensorProto.external_data */
    wire_text(out, 1, key);
    wire_text(out, 2, value);
    wire_end(out, entry);
}

static ort_status *write_external(writer *w, const void *data, size_t bytes) {
    char location[24];
    graph_model *m = w->m;
    if (m->n == m->capacity) {
        const size_t capacity = 2 * m->capacity + 64;
        graph_weight *weights = realloc(m->weights, capacity * sizeof *weights);
        if (!weights)
            return status_no_memory(w->api);
        m->weights = weights;
        m->capacity = capacity;
    }
    snprintf(location, sizeof location, "%c%zu", IN_MEMORY, m->n);
    m->weights[m->n++] = (graph_weight){data, bytes};
    write_entry(&m->model, "location", location);
    wire_int(&m->model, 14, 1); /* data_location = EXTERNAL */
    return NULL;
}

/* The data of a tensor: more than `most` bytes stay where they are. */
static ort_status *write_data(writer *w, const ort_value *value, const gqac_tensor *tensor,
                              size_t most) {
    const size_t bytes = gqac_tensor_bytes(tensor);
    void *data = NULL;
    size_t size = 0;
    ORT_TRY(w->api->GetTensorSizeInBytes(value, &size));
    if (size != bytes)
        return status_printf(w->api, ORT_EP_FAIL,
                             "gqac: a tensor %s has %zu bytes in ONNX Runtime, and not %zu",
                             gqac_dtype_name(tensor->dtype), size, bytes);
    if (bytes)
        ORT_TRY(w->api->GetTensorMutableData((ort_value *)(uintptr_t)value, &data));
    if (bytes > most)
        return write_external(w, data, bytes);
    wire_bytes(&w->m->model, 9, data, bytes); /* raw_data */
    return NULL;
}

/* The header of a TensorProto. dtype NONE: gqac does not have the type; the importer refuses it. */
static ort_status *write_header(writer *w, const char *name, const ort_tensor_info *info,
                                gqac_tensor *tensor) {
    wire *out = &w->m->model;
    size_t rank = 0;
    int element = 0;
    ORT_TRY(w->api->GetTensorElementType(info, &element));
    ORT_TRY(w->api->GetDimensionsCount(info, &rank));
    *tensor = (gqac_tensor){.dtype = GQAC_NONE};
    if (rank > GQAC_MAX_RANK) {
        snprintf(w->m->why, sizeof w->m->why, "tensor '%.200s' has rank %zu, more than %d", name,
                 rank, GQAC_MAX_RANK);
        return NULL;
    }
    ORT_TRY(w->api->GetDimensions(info, tensor->dims, rank));
    for (size_t i = 0; i < rank; i++)
        wire_int(out, 1, tensor->dims[i]);
    wire_int(out, 2, element);
    wire_text(out, 8, name);
    tensor->dtype = gqac_dtype_from_onnx(element);
    tensor->rank = (int)rank;
    return NULL;
}

/* A TensorProto, as `field` of its message. */
static ort_status *write_tensor(writer *w, unsigned field, const char *name, const ort_value *value,
                                size_t most) {
    gqac_tensor tensor;
    ort_tensor_info *info;
    const size_t begin = wire_begin(&w->m->model, field);
    ORT_TRY(w->api->GetTensorTypeAndShape(value, &info));
    ort_status *status = write_header(w, name, info, &tensor);
    w->api->ReleaseTensorTypeAndShapeInfo(info);
    ORT_TRY(status);
    if (tensor.dtype != GQAC_NONE)
        ORT_TRY(write_data(w, value, &tensor, most));
    wire_end(&w->m->model, begin);
    return NULL;
}

/* The part of a path beneath the root, which is another than those of weights in memory; NULL: it
 * is none. gqac checks where it leads. */
static const char *beneath(const writer *w, const char *path) {
    const size_t n = strlen(w->m->root);
    if (n && strncmp(path, w->m->root, n) == 0 && path[n] == '/')
        path += n + 1;
    return n && *path && *path != '/' && *path != IN_MEMORY ? path : NULL;
}

/* Weights in a file beneath the root: gqac maps it. *done is false if there is no such file. */
static ort_status *write_mapped(writer *w, const char *name, const ort_value_info *value,
                                const ort_external *from, bool *done) {
    const ort_type_info *type = NULL;
    const ort_tensor_info *info = NULL;
    wire *out = &w->m->model;
    const char *location = beneath(w, w->api->ExternalInitializerInfo_GetFilePath(from));
    gqac_tensor tensor;
    char number[24];
    ORT_TRY(w->api->GetValueInfoTypeInfo(value, &type));
    ORT_TRY(w->api->CastTypeInfoToTensorInfo(type, &info));
    *done = location && info;
    if (!*done)
        return NULL;
    const size_t begin = wire_begin(out, 5); /* GraphProto.initializer */
    ORT_TRY(write_header(w, name, info, &tensor));
    write_entry(out, "location", location);
    snprintf(number, sizeof number, "%lld",
             (long long)w->api->ExternalInitializerInfo_GetFileOffset(from));
    write_entry(out, "offset", number);
    snprintf(number, sizeof number, "%zu", w->api->ExternalInitializerInfo_GetByteSize(from));
    write_entry(out, "length", number);
    wire_int(out, 14, 1); /* data_location = EXTERNAL */
    wire_end(out, begin);
    return NULL;
}

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

static ort_status *write_tensor_attribute(writer *w, const ort_attr *attr) {
    ort_value *value;
    wire_int(&w->m->model, 20, 4); /* type = TENSOR */
    ORT_TRY(w->api->OpAttr_GetTensorAttributeAsOrtValue(attr, &value));
    ort_status *status = write_tensor(w, 5, "", value, SIZE_MAX); /* it is a copy, freed below */
    w->api->ReleaseValue(value);
    return status;
}

static ort_status *write_attribute(writer *w, const ort_attr *attr) {
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
                 "attribute '%.100s' is of a type that ONNX Runtime does not show", name);
        return NULL;
    }
    wire_end(out, begin);
    return NULL;
}

static ort_status *write_attributes(writer *w, const ort_node *node) {
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

static ort_status *write_graph(writer *w, unsigned field, const ort_graph *graph, bool nested);

/* The graphs of If, Loop and Scan. */
static ort_status *write_nested(writer *w, const ort_node *node) {
    wire *out = &w->m->model;
    size_t n;
    ORT_TRY(w->api->Node_GetNumSubgraphs(node, &n));
    if (!n)
        return NULL;
    const ort_graph **graphs = calloc(n, sizeof *graphs);
    const char **names = calloc(n, sizeof *names);
    ort_status *status = graphs && names ? w->api->Node_GetSubgraphs(node, graphs, n, names)
                                         : status_no_memory(w->api);
    for (size_t i = 0; i < n && !status && !*w->m->why; i++) {
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
static ort_status *write_names(writer *w, unsigned field, const ort_node *node,
                               count_of_node *count, values_of_node *values) {
    size_t n;
    ORT_TRY(count(node, &n));
    const ort_value_info **infos = calloc(n + 1, sizeof *infos);
    if (!infos)
        return status_no_memory(w->api);
    ort_status *status = values(node, infos, n);
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

static ort_status *write_node(writer *w, const ort_node *node) {
    const ort_api *api = w->api;
    const char *name, *op, *domain, *owner = NULL;
    wire *out = &w->m->model;
    ORT_TRY(api->Node_GetName(node, &name));
    ORT_TRY(api->Node_GetOperatorType(node, &op));
    ORT_TRY(api->Node_GetDomain(node, &domain));
    ORT_TRY(api->Node_GetEpName(node, &owner));
    if (owner && *owner) {
        snprintf(w->m->why, sizeof w->m->why, "a node %s belongs to %s", op, owner);
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

static ort_status *write_nodes(writer *w, const ort_graph *graph) {
    const ort_node **nodes;
    ort_status *status = NULL;
    size_t n;
    ORT_TRY(graph_nodes(w->api, graph, &nodes, &n));
    for (size_t i = 0; i < n && !status && !*w->m->why; i++)
        status = write_node(w, nodes[i]);
    free(nodes);
    return status;
}

typedef ort_status *write_one(writer *w, const ort_value_info *info, bool nested);

static ort_status *write_list(writer *w, const ort_graph *graph, count_of_graph *count,
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

/* Initializers that a call may replace are inputs: the runtime passes them to each call. */
static ort_status *write_initializer(writer *w, const ort_value_info *info, bool nested) {
    const ort_value *value = NULL;
    const char *name;
    ort_external *from = NULL;
    bool constant = false, done = false;
    ORT_TRY(w->api->ValueInfo_IsConstantInitializer(info, &constant));
    if (!constant && !nested)
        return NULL;
    ORT_TRY(w->api->GetValueInfoName(info, &name));
    ORT_TRY(w->api->ValueInfo_GetExternalInitializerInfo(info, &from));
    if (from) {
        ort_status *status = write_mapped(w, name, info, from, &done);
        w->api->ReleaseExternalInitializerInfo(from);
        if (status || done)
            return status;
    }
    ORT_TRY(w->api->ValueInfo_GetInitializerValue(info, &value));
    return value ? write_tensor(w, 5, name, value, INLINE)
                 : status_printf(w->api, ORT_EP_FAIL, "gqac: the weights '%s' have no value", name);
}

/* The fused node has no inputs that no node reads. */
static ort_status *write_input(writer *w, const ort_value_info *info, bool nested) {
    size_t readers = 0;
    bool constant = false;
    ORT_TRY(w->api->ValueInfo_IsConstantInitializer(info, &constant));
    if (!nested)
        ORT_TRY(w->api->ValueInfo_GetValueNumConsumers(info, &readers));
    return nested || (readers && !constant) ? write_value(w, 11, info) : NULL;
}

static ort_status *write_output(writer *w, const ort_value_info *info, bool nested) {
    (void)nested;
    return write_value(w, 12, info);
}

static ort_status *write_graph(writer *w, unsigned field, const ort_graph *graph, bool nested) {
    const ort_api *api = w->api;
    wire *out = &w->m->model;
    const size_t begin = wire_begin(out, field);
    WRITE_TRY(write_nodes(w, graph));
    wire_text(out, 2, "session");
    WRITE_TRY(write_list(w, graph, api->Graph_GetNumInitializers, api->Graph_GetInitializers,
                         write_initializer, nested));
    WRITE_TRY(
        write_list(w, graph, api->Graph_GetNumInputs, api->Graph_GetInputs, write_input, nested));
    WRITE_TRY(write_list(w, graph, api->Graph_GetNumOutputs, api->Graph_GetOutputs, write_output,
                         nested));
    wire_end(out, begin);
    return NULL;
}

static ort_status *write_opsets(writer *w, const ort_graph *graph) {
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

ort_status *graph_write(const provider *p, const ort_graph *graph, const char *root,
                        graph_model *m) {
    const ort_api *api = p->api;
    writer writing = {api, m, p->knows_shapes}, *w = &writing;
    int64_t version;
    memset(m, 0, sizeof *m);
    m->root = root;
    ORT_TRY(api->Graph_GetOnnxIRVersion(graph, &version));
    wire_int(&m->model, 1, version);
    WRITE_TRY(write_graph(w, 7, graph, false));
    ORT_TRY(write_opsets(w, graph));
    return m->model.failed ? status_no_memory(api) : NULL;
}

void graph_free(graph_model *m) {
    wire_free(&m->model);
    free(m->weights);
    memset(m, 0, sizeof *m);
}

static gqac_status give_weight(void *arg, const char *name, const void **data, size_t *bytes,
                               gqac_diag *diag) {
    const graph_model *m = arg;
    const unsigned long i = *name == IN_MEMORY ? strtoul(name + 1, NULL, 10) : m->n;
    (void)diag;
    if (i >= m->n)
        return GQAC_ABSENT; /* a file beneath the root */
    *data = m->weights[i].data;
    *bytes = m->weights[i].bytes;
    return GQAC_OK;
}

void graph_bytes(graph_model *m, gqac_model_bytes *bytes) {
    gqac_model_bytes_init(bytes, m->model.data, m->model.size);
    bytes->external = give_weight;
    bytes->arg = m;
    bytes->copy = true;
}
