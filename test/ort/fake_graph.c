/* Graphs of the fake ONNX Runtime, made from unpacked models. */
#include <stdlib.h>
#include <string.h>

#include "ort/fake_impl.h"

enum { MOST_BYTES = 4 << 20, PAGE = 4096 };

void *fake_alloc(size_t count, size_t size) {
    void *memory = gqac_arena_calloc(fake_now->arena, count + 1, size);
    if (!memory)
        fake_broken("no memory for the fake");
    return memory;
}

const char *fake_text(const char *text) {
    return text ? text : "";
}

/* ---- tensors ------------------------------------------------------------- */

bool fake_bytes(const ort_tensor_info *info, size_t *bytes) {
    static const int bits[] = {0,  32,  8,  8, 16, 16, 32, 64, 0, 8, 16, 64, 32, 64,
                               64, 128, 16, 8, 8,  8,  8,  4,  4, 4, 8,  2,  2};
    const size_t n_types = sizeof bits / sizeof *bits;
    size_t count = 1;
    if (info->element <= 0 || (size_t)info->element >= n_types)
        return false;
    for (size_t i = 0; i < info->rank; i++)
        if (info->dims[i] < 0 || __builtin_mul_overflow(count, (size_t)info->dims[i], &count) ||
            count > MOST_BYTES)
            return false;
    *bytes = (count * (size_t)bits[info->element] + 7) / 8;
    return *bytes <= MOST_BYTES;
}

ort_value *fake_value(int element, const int64_t *dims, size_t rank) {
    ort_value *value = calloc(1, sizeof *value);
    int64_t *own = malloc((rank + 1) * sizeof *own);
    if (!value || !own)
        fake_broken("no memory for the fake");
    if (rank)
        memcpy(own, dims, rank * sizeof *own);
    value->info = (ort_tensor_info){element, true, rank, own, NULL};
    if (!fake_bytes(&value->info, &value->bytes)) {
        free(own);
        free(value);
        return NULL;
    }
    value->data = calloc(value->bytes ? value->bytes : 1, 1);
    if (!value->data)
        fake_broken("no memory for the fake");
    return value;
}

void fake_value_free(ort_value *value) {
    if (!value)
        return;
    free(value->info.dims);
    free(value->data);
    free(value);
}

const char *fake_external(const Onnx__TensorProto *proto, const char *key) {
    for (size_t i = 0; i < proto->n_external_data; i++)
        if (!strcmp(fake_text(proto->external_data[i]->key), key))
            return fake_text(proto->external_data[i]->value);
    return NULL;
}

/* The values of a typed field: those of `narrow` types are the first bytes of larger ones. */
static bool copy_typed(ort_value *value, const void *data, size_t n, size_t size) {
    size_t count = 1;
    for (size_t i = 0; i < value->info.rank; i++)
        count *= (size_t)value->info.dims[i];
    const size_t each = count ? value->bytes / count : 0;
    if (!each && count) /* several values in a byte: one byte in each entry */
        count = value->bytes;
    if (n != count)
        return false;
    for (size_t i = 0; i < n; i++)
        memcpy((char *)value->data + i * (each ? each : 1), (const char *)data + i * size,
               each ? (each < size ? each : size) : 1);
    return true;
}

static bool copy_data(ort_value *value, const Onnx__TensorProto *proto) {
    if (value->info.element == FAKE_STRING)
        return true;
    if (proto->has_data_location && proto->data_location == 1) { /* all files have the same page */
        const char *offset = fake_external(proto, "offset");
        const unsigned long at = offset ? strtoul(offset, NULL, 10) : 0;
        return at <= PAGE && value->bytes <= PAGE - at;
    }
    if (proto->has_raw_data) {
        if (proto->raw_data.len != value->bytes)
            return false;
        if (value->bytes)
            memcpy(value->data, proto->raw_data.data, value->bytes);
        return true;
    }
    switch (value->info.element) {
    case 1:
        return copy_typed(value, proto->float_data, proto->n_float_data, sizeof(float));
    case 7:
        return copy_typed(value, proto->int64_data, proto->n_int64_data, sizeof(int64_t));
    case 11:
        return copy_typed(value, proto->double_data, proto->n_double_data, sizeof(double));
    case 12:
    case 13:
        return copy_typed(value, proto->uint64_data, proto->n_uint64_data, sizeof(uint64_t));
    default:
        return copy_typed(value, proto->int32_data, proto->n_int32_data, sizeof(int32_t));
    }
}

ort_value *fake_tensor(const Onnx__TensorProto *proto) {
    ort_value *value = proto->n_dims <= FAKE_RANK
                           ? fake_value(proto->data_type, proto->dims, proto->n_dims)
                           : NULL;
    if (value && !copy_data(value, proto)) {
        fake_value_free(value);
        return NULL;
    }
    return value;
}

/* ---- types --------------------------------------------------------------- */

static ort_type_info *make_type(const Onnx__TypeProto *proto) {
    ort_type_info *type = fake_alloc(1, sizeof *type);
    if (proto->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !proto->tensor_type)
        return type;
    const Onnx__TensorShapeProto *shape = proto->tensor_type->shape;
    ort_tensor_info *info = &type->tensor;
    type->is_tensor = true;
    info->element = proto->tensor_type->elem_type;
    info->has_shape = shape != NULL;
    info->rank = shape ? shape->n_dim : 0;
    info->dims = fake_alloc(info->rank, sizeof *info->dims);
    info->names = fake_alloc(info->rank, sizeof *info->names);
    for (size_t i = 0; i < info->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        const bool known = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        info->dims[i] = known && dim->dim_value >= 0 ? dim->dim_value : -1;
        info->names[i] = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                             ? fake_text(dim->dim_param)
                             : "";
    }
    return type;
}

/* The type of a tensor, as an initializer has it without an input of its name. */
static ort_type_info *type_of_tensor(const Onnx__TensorProto *proto) {
    ort_type_info *type = fake_alloc(1, sizeof *type);
    type->is_tensor = true;
    type->tensor = (ort_tensor_info){proto->data_type, true, proto->n_dims, proto->dims,
                                     fake_alloc(proto->n_dims, sizeof(char *))};
    return type;
}

/* ---- values -------------------------------------------------------------- */

static ort_value_info **bucket_of(ort_graph *graph, const char *name) {
    unsigned sum = 0;
    for (const char *at = name; *at; at++)
        sum = sum * 31 + (unsigned char)*at;
    return &graph->buckets[sum % FAKE_BUCKETS];
}

static ort_value_info *find(ort_graph *graph, const char *name) {
    ort_value_info *info = *bucket_of(graph, name);
    while (info && strcmp(info->name, name) != 0)
        info = info->next;
    return info;
}

static ort_value_info *own_value(ort_graph *graph, const char *name) {
    ort_value_info *info = find(graph, name);
    if (info)
        return info;
    ort_value_info **bucket = bucket_of(graph, name);
    info = fake_alloc(1, sizeof *info);
    info->name = name;
    info->next = *bucket;
    *bucket = info;
    return info;
}

static void add_implicit(ort_node *node, const ort_value_info *info) {
    for (size_t i = 0; i < node->n_implicit; i++)
        if (node->implicit[i] == info)
            return;
    const ort_value_info **more = fake_alloc(node->n_implicit + 1, sizeof(void *));
    if (node->n_implicit)
        memcpy(more, node->implicit, node->n_implicit * sizeof(void *));
    more[node->n_implicit++] = info;
    node->implicit = more;
}

/* A value that a node reads: of its graph, else of the graphs around that. NULL: of none. */
static ort_value_info *visible(ort_graph *graph, const char *name) {
    ort_value_info *info = find(graph, name);
    if (info || !graph->outer)
        return info;
    info = visible(graph->outer, name);
    if (info)
        add_implicit(graph->parent, info);
    return info;
}

static const ort_value_info *read_value(ort_graph *graph, const char *name) {
    ort_value_info *info = *name ? visible(graph, name) : NULL;
    return info || !*name ? info : own_value(graph, name);
}

static void declare(ort_graph *graph, const Onnx__ValueInfoProto *proto) {
    ort_value_info *info = own_value(graph, fake_text(proto->name));
    if (!proto->type)
        return;
    info->declared = proto->type;
    info->type = make_type(proto->type);
}

static fake_list declare_list(ort_graph *graph, Onnx__ValueInfoProto *const *protos, size_t n) {
    fake_list list = {fake_alloc(n, sizeof(void *)), n};
    for (size_t i = 0; i < n; i++) {
        declare(graph, protos[i]);
        list.values[i] = own_value(graph, fake_text(protos[i]->name));
    }
    return list;
}

/* ---- graphs -------------------------------------------------------------- */

static bool add_initializer(ort_graph *graph, const Onnx__TensorProto *proto) {
    ort_value_info *info = own_value(graph, fake_text(proto->name));
    bool input = false;
    for (size_t i = 0; i < graph->inputs.n; i++)
        input |= graph->inputs.values[i] == info;
    ort_value *value = fake_tensor(proto);
    if (!value || info->proto) { /* two of one name are refused too */
        fake_value_free(value);
        return false;
    }
    value->next = fake_now->values;
    fake_now->values = value;
    info->proto = proto;
    info->value = value;
    info->constant = !input;
    if (!info->type)
        info->type = type_of_tensor(proto);
    graph->initializers.values[graph->initializers.n++] = info;
    return true;
}

static bool add_nested(ort_graph *graph, ort_node *node) {
    const Onnx__NodeProto *proto = node->proto;
    node->nested = fake_alloc(proto->n_attribute, sizeof(void *));
    node->nested_names = fake_alloc(proto->n_attribute, sizeof(void *));
    for (size_t i = 0; i < proto->n_attribute; i++) {
        const Onnx__AttributeProto *attr = proto->attribute[i];
        if (attr->type != ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH || !attr->g)
            continue;
        ort_graph *nested = fake_graph(attr->g, graph, node);
        if (!nested)
            return false;
        node->nested_names[node->n_nested] = fake_text(attr->name);
        node->nested[node->n_nested++] = nested;
    }
    return true;
}

/* The runtime infers types. Here the type of an output that is not declared is a guess: that of the
 * first input, of any shape. */
static int guess_element(const ort_node *node) {
    const char *op = fake_text(node->proto->op_type);
    if (!strcmp(op, "Shape"))
        return 7;
    for (size_t i = 0; !strcmp(op, "Cast") && i < node->proto->n_attribute; i++)
        if (!strcmp(fake_text(node->proto->attribute[i]->name), "to"))
            return (int)node->proto->attribute[i]->i;
    for (size_t i = 0; i < node->proto->n_input; i++)
        if (node->in[i] && node->in[i]->type && node->in[i]->type->is_tensor)
            return node->in[i]->type->tensor.element;
    return 0;
}

static void guess_type(ort_value_info *info, int element) {
    if (info->type || !element)
        return;
    Onnx__TypeProto *type = fake_alloc(1, sizeof *type);
    Onnx__TypeProto__Tensor *tensor = fake_alloc(1, sizeof *tensor);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(tensor);
    tensor->elem_type = element;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    info->declared = type;
    info->type = make_type(type);
}

static bool add_node(ort_graph *graph, const Onnx__NodeProto *proto) {
    ort_node *node = &graph->nodes[graph->n_nodes++];
    node->proto = proto;
    node->in = fake_alloc(proto->n_input, sizeof(void *));
    node->out = fake_alloc(proto->n_output, sizeof(void *));
    for (size_t i = 0; i < proto->n_input; i++)
        node->in[i] = read_value(graph, fake_text(proto->input[i]));
    for (size_t i = 0; i < proto->n_output; i++)
        if (*fake_text(proto->output[i])) {
            ort_value_info *info = own_value(graph, proto->output[i]);
            guess_type(info, guess_element(node));
            node->out[i] = info;
        }
    return add_nested(graph, node);
}

ort_graph *fake_graph(const Onnx__GraphProto *proto, ort_graph *outer, ort_node *parent) {
    ort_graph *graph = fake_alloc(1, sizeof *graph);
    graph->state = fake_now;
    graph->outer = outer;
    graph->parent = parent;
    graph->nodes = fake_alloc(proto->n_node, sizeof *graph->nodes);
    graph->initializers.values = fake_alloc(proto->n_initializer, sizeof(void *));
    graph->inputs = declare_list(graph, proto->input, proto->n_input);
    for (size_t i = 0; i < proto->n_initializer; i++)
        if (!add_initializer(graph, proto->initializer[i]))
            return NULL;
    (void)declare_list(graph, proto->value_info, proto->n_value_info);
    for (size_t i = 0; i < proto->n_node; i++)
        if (!add_node(graph, proto->node[i]))
            return NULL;
    graph->outputs = declare_list(graph, proto->output, proto->n_output);
    for (size_t i = 0; i < graph->outputs.n; i++)
        own_value(graph, graph->outputs.values[i]->name)->output = true;
    return graph;
}
