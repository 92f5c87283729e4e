/* Types and tensors of a session, written as parts of an ONNX model: see graph.h.
 *
 * Large weights are not written: the model has them as external data, which are the runtime's own
 * memory or, where the runtime has them in a file, that file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph_impl.h"

enum { IN_MEMORY = '#' }; /* begins the locations of weights in the runtime's memory */
enum { INLINE = 256 };    /* weights of at most so many bytes are written into the model */

/* ---- types ----------------------------------------------------------------- */

/* TensorShapeProto = 2 of TypeProto.Tensor. */
static ort_status *write_shape(graph_writer *w, const ort_tensor_info *info) {
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
ort_status *graph_write_value(graph_writer *w, unsigned field, const ort_value_info *value) {
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
        snprintf(w->m->why, sizeof w->m->why, "the value '%.200s' is not a tensor", name);
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

static ort_status *write_external(graph_writer *w, const void *data, size_t bytes) {
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
static ort_status *write_data(graph_writer *w, const ort_value *value, const gqac_tensor *tensor,
                              size_t most) {
    const size_t bytes = gqac_tensor_bytes(tensor);
    void *data = NULL;
    size_t size = 0;
    ORT_TRY(w->api->GetTensorSizeInBytes(value, &size));
    if (size != bytes)
        return status_printf(
            w->api, ORT_EP_FAIL,
            "gqac: a tensor of type %s has %zu bytes in ONNX Runtime, but should have %zu",
            gqac_dtype_name(tensor->dtype), size, bytes);
    if (bytes)
        ORT_TRY(w->api->GetTensorMutableData((ort_value *)(uintptr_t)value, &data));
    if (bytes > most)
        return write_external(w, data, bytes);
    wire_bytes(&w->m->model, 9, data, bytes); /* raw_data */
    return NULL;
}

/* The header of a TensorProto. dtype NONE: gqac does not have the type; the importer refuses it. */
static ort_status *write_header(graph_writer *w, const char *name, const ort_tensor_info *info,
                                gqac_tensor *tensor) {
    wire *out = &w->m->model;
    size_t rank = 0;
    int element = 0;
    ORT_TRY(w->api->GetTensorElementType(info, &element));
    ORT_TRY(w->api->GetDimensionsCount(info, &rank));
    *tensor = (gqac_tensor){.dtype = GQAC_NONE};
    if (rank > GQAC_MAX_RANK) {
        snprintf(w->m->why, sizeof w->m->why, "the tensor '%.200s' has rank %zu; the maximum is %d",
                 name, rank, GQAC_MAX_RANK);
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
ort_status *graph_write_tensor(graph_writer *w, unsigned field, const char *name,
                               const ort_value *value, size_t most) {
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

/* The part of a path beneath the root; NULL: there is none, or it would be read as the location of
 * weights in memory. gqac checks where it leads. */
static const char *beneath(const graph_writer *w, const char *path) {
    const size_t n = strlen(w->m->root);
    if (n && strncmp(path, w->m->root, n) == 0 && path[n] == '/')
        path += n + 1;
    return n && *path && *path != '/' && *path != IN_MEMORY ? path : NULL;
}

/* Weights in a file beneath the root: gqac maps it. *done is false if there is no such file. */
static ort_status *write_mapped(graph_writer *w, const char *name, const ort_value_info *value,
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

/* Initializers that a call may replace are inputs: the runtime passes them to each call. */
ort_status *graph_write_initializer(graph_writer *w, const ort_value_info *info, bool nested) {
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
    return value ? graph_write_tensor(w, 5, name, value, INLINE)
                 : status_printf(w->api, ORT_EP_FAIL, "gqac: the weights '%s' have no value", name);
}

/* ---- the external data ------------------------------------------------------ */

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
