/* The functions of the fake ONNX Runtime that the provider calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gqac/gqac.h>

#include "ort/fake_impl.h"

fake_state *fake_now;

struct ort_status {
    char text[4096];
};
struct ort_pairs {
    int unused;
};

/* ---- statuses ------------------------------------------------------------ */

bool fake_says(const char *message, gqac_status status) {
    static const char head[] = "gqac: "; /* after it may come words of the input */
    const char *meaning = gqac_status_meaning(status);
    return strncmp(message, head, strlen(head)) == 0 &&
           strncmp(message + strlen(head), meaning, strlen(meaning)) == 0;
}

static ort_status *create_status(int code, const char *message) {
    ort_status *status = calloc(1, sizeof *status);
    if (!status || !code || !*message)
        fake_broken("an error without a text");
    snprintf(status->text, sizeof status->text, "%s", message);
    if (fake_says(message, GQAC_INTERNAL)) {
        fprintf(stderr, "%s\n", message);
        fake_broken("an internal error");
    }
    fake_now->live++;
    return status;
}

static const char *GetErrorMessage(const ort_status *status) {
    return status->text;
}

static void ReleaseStatus(ort_status *status) {
    fake_now->live--;
    free(status);
}

/* Whether this call of the runtime fails. */
static bool fails(void) {
    return ++fake_now->calls == fake_now->options->fail;
}

#define MAY_FAIL                                                                                   \
    do {                                                                                           \
        if (fails())                                                                               \
            return create_status(ORT_FAIL, "the runtime fails");                                   \
    } while (0)

/* ---- tensors and types --------------------------------------------------- */

static ort_status *GetTensorMutableData(ort_value *value, void **data) {
    MAY_FAIL;
    *data = value->data;
    return NULL;
}

static ort_status *GetTensorSizeInBytes(const ort_value *value, size_t *bytes) {
    MAY_FAIL;
    if (value->info.element == FAKE_STRING)
        return create_status(ORT_FAIL, "a tensor of texts has no size");
    *bytes = value->bytes;
    return NULL;
}

static ort_status *CastTypeInfoToTensorInfo(const ort_type_info *type,
                                            const ort_tensor_info **info) {
    MAY_FAIL;
    *info = type && type->is_tensor ? &type->tensor : NULL;
    return NULL;
}

static ort_status *GetTensorElementType(const ort_tensor_info *info, int *element) {
    MAY_FAIL;
    *element = info->element;
    return NULL;
}

static ort_status *GetDimensionsCount(const ort_tensor_info *info, size_t *rank) {
    MAY_FAIL;
    *rank = info->rank;
    return NULL;
}

static ort_status *GetDimensions(const ort_tensor_info *info, int64_t *dims, size_t n) {
    MAY_FAIL;
    for (size_t i = 0; i < n && i < info->rank; i++)
        dims[i] = info->dims[i];
    return NULL;
}

static ort_status *GetSymbolicDimensions(const ort_tensor_info *info, const char **names,
                                         size_t n) {
    MAY_FAIL;
    for (size_t i = 0; i < n && i < info->rank; i++)
        names[i] = info->names && info->names[i] ? info->names[i] : "";
    return NULL;
}

static ort_status *GetTensorTypeAndShape(const ort_value *value, ort_tensor_info **info) {
    MAY_FAIL;
    *info = malloc(sizeof **info);
    if (!*info)
        fake_broken("no memory for the fake");
    **info = value->info;
    fake_now->live++;
    return NULL;
}

static void ReleaseValue(ort_value *value) {
    fake_now->live--;
    fake_value_free(value);
}

static void ReleaseTensorTypeAndShapeInfo(ort_tensor_info *info) {
    fake_now->live--;
    free(info);
}

static bool TensorTypeAndShape_HasShape(const ort_tensor_info *info) {
    return info->has_shape;
}

/* ---- attributes ---------------------------------------------------------- */

static const Onnx__AttributeProto *proto_of(const ort_attr *attr) {
    return (const Onnx__AttributeProto *)(const void *)attr;
}

/* OrtOpAttrType of AttributeProto.AttributeType; 0: the runtime does not pass it. */
static const int attr_types[] = {0, 3, 1, 5, 8, 7, 4, 2, 6};

static ort_status *OpAttr_GetType(const ort_attr *attr, int *type) {
    MAY_FAIL;
    const unsigned own = (unsigned)proto_of(attr)->type;
    *type = own < sizeof attr_types / sizeof *attr_types ? attr_types[own] : 0;
    return NULL;
}

static ort_status *OpAttr_GetName(const ort_attr *attr, const char **name) {
    MAY_FAIL;
    *name = fake_text(proto_of(attr)->name);
    return NULL;
}

static ort_status *give(const void *from, size_t size, void *data, size_t most, size_t *written) {
    *written = size;
    if (size > most)
        return create_status(ORT_FAIL, "the memory is too small for the attribute");
    if (size)
        memcpy(data, from, size);
    return NULL;
}

static ort_status *ReadOpAttr(const ort_attr *attr, int type, void *data, size_t most,
                              size_t *written) {
    MAY_FAIL;
    const Onnx__AttributeProto *a = proto_of(attr);
    switch (type) {
    case 1:
        return give(&a->i, sizeof a->i, data, most, written);
    case 2:
        return give(a->ints, a->n_ints * sizeof *a->ints, data, most, written);
    case 3:
        return give(&a->f, sizeof a->f, data, most, written);
    case 4:
        return give(a->floats, a->n_floats * sizeof *a->floats, data, most, written);
    case 5:
        return give(a->s.data, a->s.len, data, most, written);
    case 6:
        break;
    default:
        return create_status(ORT_FAIL, "an attribute of this type cannot be read");
    }
    size_t size = 0; /* texts, each with its NUL */
    for (size_t i = 0; i < a->n_strings; i++)
        size += a->strings[i].len + 1;
    char *all = calloc(size + 1, 1), *at = all;
    if (!all)
        fake_broken("no memory for the fake");
    for (size_t i = 0; i < a->n_strings; i++) {
        if (a->strings[i].len)
            memcpy(at, a->strings[i].data, a->strings[i].len);
        at += a->strings[i].len + 1;
    }
    ort_status *status = give(all, size, data, most, written);
    free(all);
    return status;
}

static ort_status *OpAttr_GetTensorAttributeAsOrtValue(const ort_attr *attr, ort_value **value) {
    MAY_FAIL;
    const Onnx__AttributeProto *a = proto_of(attr);
    *value = a->t ? fake_tensor(a->t) : NULL;
    if (!*value)
        return create_status(ORT_FAIL, "the tensor of the attribute is damaged");
    fake_now->live++;
    return NULL;
}

/* Attributes of context models; the provider makes texts and integers. */
static ort_status *CreateOpAttr(const char *name, const void *data, int n, int type,
                                ort_attr **attr) {
    MAY_FAIL;
    Onnx__AttributeProto *a = malloc(sizeof *a);
    if (!a || n < 0 || (type != ORT_ATTR_INT && type != ORT_ATTR_STRING))
        fake_broken("the attribute of a context model");
    onnx__attribute_proto__init(a);
    a->name = gqac_arena_strdup(fake_now->arena, name);
    a->has_type = true;
    if (type == ORT_ATTR_INT) {
        a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
        a->has_i = true;
        memcpy(&a->i, data, sizeof a->i);
    } else {
        a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
        a->has_s = true;
        a->s.len = (size_t)n;
        a->s.data = fake_alloc((size_t)n, 1);
        memcpy(a->s.data, data, (size_t)n);
    }
    fake_now->live++;
    *attr = (ort_attr *)(void *)a;
    return NULL;
}

static void ReleaseOpAttr(ort_attr *attr) {
    fake_now->live--;
    free(attr);
}

/* ---- values -------------------------------------------------------------- */

static ort_status *GetValueInfoName(const ort_value_info *info, const char **name) {
    MAY_FAIL;
    *name = info->name;
    return NULL;
}

static ort_status *GetValueInfoTypeInfo(const ort_value_info *info, const ort_type_info **type) {
    MAY_FAIL;
    *type = info->type;
    return NULL;
}

static ort_status *ValueInfo_GetInitializerValue(const ort_value_info *info,
                                                 const ort_value **value) {
    MAY_FAIL;
    *value = info->value;
    return NULL;
}

static ort_status *ValueInfo_GetExternalInitializerInfo(const ort_value_info *info,
                                                        ort_external **external) {
    MAY_FAIL;
    const Onnx__TensorProto *proto = info->proto;
    *external = NULL;
    if (!proto || !proto->has_data_location || proto->data_location != 1)
        return NULL;
    ort_external *made = calloc(1, sizeof *made);
    if (!made)
        fake_broken("no memory for the fake");
    snprintf(made->path, sizeof made->path, "%s/%s", fake_now->options->folder,
             fake_text(fake_external(proto, "location")));
    made->offset = strtol(fake_text(fake_external(proto, "offset")), NULL, 10);
    made->bytes = info->value ? info->value->bytes : 0;
    fake_now->live++;
    *external = made;
    return NULL;
}

static void ReleaseExternalInitializerInfo(ort_external *external) {
    fake_now->live--;
    free(external);
}

static const char *ExternalInitializerInfo_GetFilePath(const ort_external *external) {
    return external->path;
}

static int64_t ExternalInitializerInfo_GetFileOffset(const ort_external *external) {
    return external->offset;
}

static size_t ExternalInitializerInfo_GetByteSize(const ort_external *external) {
    return external->bytes;
}

static ort_status *ValueInfo_IsGraphOutput(const ort_value_info *info, bool *output) {
    MAY_FAIL;
    *output = info->output;
    return NULL;
}

static ort_status *ValueInfo_IsConstantInitializer(const ort_value_info *info, bool *constant) {
    MAY_FAIL;
    *constant = info->constant;
    return NULL;
}

/* ---- graphs and nodes ---------------------------------------------------- */

static ort_status *Graph_GetModelPath(const ort_graph *graph, const char **path) {
    MAY_FAIL;
    *path = graph->state->options->path;
    return NULL;
}

static ort_status *Graph_GetOnnxIRVersion(const ort_graph *graph, int64_t *version) {
    MAY_FAIL;
    *version = graph->state->model->ir_version;
    return NULL;
}

static ort_status *Graph_GetNumOperatorSets(const ort_graph *graph, size_t *n) {
    MAY_FAIL;
    *n = graph->state->model->n_opset_import;
    return NULL;
}

static ort_status *Graph_GetOperatorSets(const ort_graph *graph, const char **domains,
                                         int64_t *versions, size_t n) {
    MAY_FAIL;
    const Onnx__ModelProto *model = graph->state->model;
    for (size_t i = 0; i < n && i < model->n_opset_import; i++) {
        domains[i] = fake_text(model->opset_import[i]->domain);
        versions[i] = model->opset_import[i]->version;
    }
    return NULL;
}

static ort_status *Graph_GetNodes(const ort_graph *graph, const ort_node **nodes, size_t n) {
    MAY_FAIL;
    for (size_t i = 0; i < n && i < graph->n_nodes; i++)
        nodes[i] = &graph->nodes[i];
    return NULL;
}

static ort_status *Node_GetSubgraphs(const ort_node *node, const ort_graph **graphs, size_t n,
                                     const char **names) {
    MAY_FAIL;
    for (size_t i = 0; i < n && i < node->n_nested; i++) {
        graphs[i] = node->nested[i];
        if (names)
            names[i] = node->nested_names[i];
    }
    return NULL;
}

static ort_status *Node_GetAttributes(const ort_node *node, const ort_attr **attrs, size_t n) {
    MAY_FAIL;
    for (size_t i = 0; i < n && i < node->proto->n_attribute; i++)
        attrs[i] = (const ort_attr *)(const void *)node->proto->attribute[i];
    return NULL;
}

static ort_status *Graph_GetParentNode(const ort_graph *graph, const ort_node **parent) {
    MAY_FAIL;
    *parent = graph->parent;
    return NULL;
}

static ort_status *Node_GetEpName(const ort_node *node, const char **name) {
    MAY_FAIL;
    const char *note = fake_text(node->proto->doc_string);
    *name = strncmp(note, "owner:", 6) == 0 ? note + 6 : ""; /* another provider */
    return NULL;
}

#define COUNT(name, type, count)                                                                   \
    static ort_status *name(const type *of, size_t *n) {                                           \
        MAY_FAIL;                                                                                  \
        *n = count;                                                                                \
        return NULL;                                                                               \
    }
#define VALUES(name, type, list, count)                                                            \
    static ort_status *name(const type *of, const ort_value_info **infos, size_t n) {              \
        MAY_FAIL;                                                                                  \
        for (size_t i = 0; i < n && i < (count); i++)                                              \
            infos[i] = (list)[i];                                                                  \
        return NULL;                                                                               \
    }
#define TEXT(name, field)                                                                          \
    static ort_status *name(const ort_node *node, const char **text) {                             \
        MAY_FAIL;                                                                                  \
        *text = fake_text(node->proto->field);                                                     \
        return NULL;                                                                               \
    }
COUNT(Graph_GetNumInputs, ort_graph, of->inputs.n)
VALUES(Graph_GetInputs, ort_graph, of->inputs.values, of->inputs.n)
COUNT(Graph_GetNumOutputs, ort_graph, of->outputs.n)
VALUES(Graph_GetOutputs, ort_graph, of->outputs.values, of->outputs.n)
COUNT(Graph_GetNumInitializers, ort_graph, of->initializers.n)
VALUES(Graph_GetInitializers, ort_graph, of->initializers.values, of->initializers.n)
COUNT(Graph_GetNumNodes, ort_graph, of->n_nodes)
COUNT(Node_GetNumInputs, ort_node, of->proto->n_input)
VALUES(Node_GetInputs, ort_node, of->in, of->proto->n_input)
COUNT(Node_GetNumOutputs, ort_node, of->proto->n_output)
VALUES(Node_GetOutputs, ort_node, of->out, of->proto->n_output)
COUNT(Node_GetNumImplicitInputs, ort_node, of->n_implicit)
VALUES(Node_GetImplicitInputs, ort_node, of->implicit, of->n_implicit)
COUNT(Node_GetNumAttributes, ort_node, of->proto->n_attribute)
COUNT(Node_GetNumSubgraphs, ort_node, of->n_nested)
TEXT(Node_GetName, name)
TEXT(Node_GetOperatorType, op_type)
TEXT(Node_GetDomain, domain)

/* ---- sessions ------------------------------------------------------------ */

static ort_status *GetSessionOptionsConfigEntries(const ort_session_options *options,
                                                  ort_pairs **pairs) {
    MAY_FAIL;
    (void)options;
    *pairs = calloc(1, sizeof **pairs);
    fake_now->live++;
    return NULL;
}

static void GetKeyValuePairs(const ort_pairs *pairs, const char *const **keys,
                             const char *const **values, size_t *n) {
    (void)pairs;
    *keys = fake_now->options->keys;
    *values = fake_now->options->values;
    *n = fake_now->options->n;
}

static void ReleaseKeyValuePairs(ort_pairs *pairs) {
    fake_now->live--;
    free(pairs);
}

static ort_status *Logger_LogMessage(const ort_logger *logger, int level, const char *text,
                                     const char *file, int line, const char *function) {
    MAY_FAIL;
    (void)logger, (void)level, (void)file, (void)line, (void)function;
    if (!*text)
        fake_broken("a line of the log without a text");
    return NULL;
}

static int HardwareDevice_Type(const ort_hardware *hardware) {
    (void)hardware;
    return ORT_DEVICE_CPU;
}

static ort_status *add_nodes(ort_support *support, const ort_node *const *nodes, size_t n,
                             const ort_fusion *fusion) {
    MAY_FAIL;
    if (!n || !fusion->drop_constant_initializers)
        fake_broken("a claim of no nodes, or of constants");
    fake_group *groups = fake_alloc(support->n + 1, sizeof *groups);
    if (support->n)
        memcpy(groups, support->groups, support->n * sizeof *groups);
    fake_group *group = &groups[support->n++];
    group->n = n;
    group->nodes = fake_alloc(n, sizeof(void *));
    memcpy(group->nodes, nodes, n * sizeof(void *));
    support->groups = groups;
    return NULL;
}

/* A node of a context model; its texts are copied, its attributes too. */
static ort_status *create_node(const char *op, const char *domain, const char *name,
                               const char *const *in, size_t n_in, const char *const *out,
                               size_t n_out, ort_attr **attrs, size_t n_attrs, ort_node **made) {
    MAY_FAIL;
    gqac_arena *arena = fake_now->arena;
    Onnx__NodeProto *proto = fake_alloc(1, sizeof *proto);
    onnx__node_proto__init(proto);
    proto->op_type = gqac_arena_strdup(arena, op);
    proto->domain = gqac_arena_strdup(arena, domain);
    proto->name = gqac_arena_strdup(arena, name);
    proto->n_input = n_in;
    proto->input = fake_alloc(n_in, sizeof(char *));
    for (size_t i = 0; i < n_in; i++)
        proto->input[i] = gqac_arena_strdup(arena, in[i]);
    proto->n_output = n_out;
    proto->output = fake_alloc(n_out, sizeof(char *));
    for (size_t i = 0; i < n_out; i++)
        proto->output[i] = gqac_arena_strdup(arena, out[i]);
    proto->n_attribute = n_attrs;
    proto->attribute = fake_alloc(n_attrs, sizeof(void *));
    for (size_t i = 0; i < n_attrs; i++)
        proto->attribute[i] = gqac_arena_copy(arena, attrs[i], sizeof *proto->attribute[i]);
    *made = fake_alloc(1, sizeof **made);
    (*made)->proto = proto;
    return NULL;
}

/* ---- a run --------------------------------------------------------------- */

static ort_status *KernelContext_GetInputCount(const ort_kernel_context *context, size_t *n) {
    MAY_FAIL;
    *n = context->node->proto->n_input;
    return NULL;
}

static ort_status *KernelContext_GetOutputCount(const ort_kernel_context *context, size_t *n) {
    MAY_FAIL;
    *n = context->node->proto->n_output;
    return NULL;
}

static ort_status *KernelContext_GetInput(const ort_kernel_context *context, size_t i,
                                          const ort_value **value) {
    MAY_FAIL;
    if (i >= context->node->proto->n_input)
        fake_broken("an input that the node does not have");
    *value = context->in[i];
    return NULL;
}

static ort_status *KernelContext_GetOutput(ort_kernel_context *context, size_t i,
                                           const int64_t *dims, size_t rank, ort_value **value) {
    MAY_FAIL;
    if (i >= context->node->proto->n_output)
        fake_broken("an output that the node does not have");
    const ort_value_info *info = context->node->out[i];
    const int element = info && info->type ? info->type->tensor.element : 0;
    for (size_t k = 0; k < rank; k++)
        if (dims[k] < 0)
            fake_broken("an output of a negative size");
    fake_value_free(context->out[i]);
    *value = context->out[i] = fake_value(element, dims, rank);
    return *value ? NULL : create_status(ORT_FAIL, "no memory for the output");
}

/* Half of the tasks: the provider must compute the others itself. */
static ort_status *KernelContext_ParallelFor(const ort_kernel_context *context,
                                             void (*task)(void *, size_t), size_t n,
                                             size_t n_batches, void *arg) {
    MAY_FAIL;
    (void)context, (void)n_batches;
    for (size_t i = 0; i < n / 2; i++)
        task(arg, i);
    return NULL;
}

/* ---- the tables ---------------------------------------------------------- */

static ort_status *create_device(ort_factory *factory, const ort_hardware *hardware,
                                 const ort_pairs *metadata, const ort_pairs *options,
                                 ort_device **device) {
    (void)factory, (void)hardware, (void)metadata, (void)options, (void)device;
    return create_status(ORT_FAIL, "the fake has no devices");
}

static const ort_ep_api *GetEpApi(void) {
    static ort_ep_api table;
    table.CreateEpDevice = create_device;
    table.EpGraphSupportInfo_AddNodesToFuse = add_nodes;
    return &table;
}

static const ort_editor_api *GetModelEditorApi(void) {
    static ort_editor_api table;
    table.CreateNode = create_node;
    return &table;
}

static const ort_api *get_api(uint32_t version) {
    static ort_api table;
    (void)version;
    table.CreateStatus = create_status;
#define SET(number, name, result, parameters) table.name = name;
    ORT_API_SLOTS(SET)
#undef SET
    return &table;
}

static const char *get_version(void) {
    return fake_now->options->version;
}

const ort_api_base fake_base = {get_api, get_version};
