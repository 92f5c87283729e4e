/* Graphs, nodes, attributes and types as messages (see exporter.h). Recursion follows nested
 * graphs, whose depth the IR limits. */
#include "onnx/exporter.h"

#include <string.h>

/* protobuf-c's strings are not const, but packing only reads them. */
static char *text_of(const char *text) {
    return (char *)(uintptr_t)text;
}

/* ---- types --------------------------------------------------------------- */

static gqac_status export_dim(exporter *ex, const ir_dim *dim,
                              Onnx__TensorShapeProto__Dimension **out) {
    typedef Onnx__TensorShapeProto__Dimension dimension;
    dimension *proto = EXPORT_NEW(ex, dimension, ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT);
    int64_t value;
    const char *name;
    if (!proto)
        return export_oom(ex);
    *out = proto;
    if (!dim)
        return GQAC_OK;
    if (ir_dim_is_const(dim, &value)) {
        proto->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        proto->dim_value = value;
        return GQAC_OK;
    }
    gqac_str text = {0};
    if (ir_dim_is_symbol(dim, &name))
        gqac_str_append(&text, name);
    else
        ir_dim_print(&text, dim);
    proto->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    proto->dim_param = text.failed ? NULL : gqac_arena_strdup(ex->arena, text.text);
    gqac_str_free(&text);
    return proto->dim_param ? GQAC_OK : export_oom(ex);
}

static gqac_status export_shape(exporter *ex, const ir_type *type, Onnx__TensorShapeProto **out) {
    Onnx__TensorShapeProto *shape =
        EXPORT_NEW(ex, Onnx__TensorShapeProto, ONNX__TENSOR_SHAPE_PROTO__INIT);
    size_t rank = (size_t)type->rank;
    if (!shape)
        return export_oom(ex);
    shape->dim = GQAC_ARENA_ARRAY(ex->arena, Onnx__TensorShapeProto__Dimension *, rank);
    if (!shape->dim)
        return export_oom(ex);
    for (; shape->n_dim < rank; shape->n_dim++)
        GQAC_TRY(export_dim(ex, type->dims[shape->n_dim], &shape->dim[shape->n_dim]));
    *out = shape;
    return GQAC_OK;
}

static gqac_status export_value(exporter *ex, const ir_graph *graph, const ir_type *type,
                                const char *name, Onnx__ValueInfoProto **out) {
    Onnx__ValueInfoProto *info = EXPORT_NEW(ex, Onnx__ValueInfoProto, ONNX__VALUE_INFO_PROTO__INIT);
    if (!info || !name)
        return export_oom(ex);
    info->name = text_of(name);
    *out = info;
    if (type->dtype == GQAC_NONE && graph->parent)
        return GQAC_OK; /* nested graphs may leave types open */
    if (!gqac_dtype_onnx(type->dtype))
        GQAC_FAIL(ex->diag, GQAC_UNSUPPORTED, "the type of '%s' is not known (%s)", name,
                  gqac_dtype_name(type->dtype));
    info->type = EXPORT_NEW(ex, Onnx__TypeProto, ONNX__TYPE_PROTO__INIT);
    Onnx__TypeProto__Tensor *tensor =
        EXPORT_NEW(ex, Onnx__TypeProto__Tensor, ONNX__TYPE_PROTO__TENSOR__INIT);
    if (!info->type || !tensor)
        return export_oom(ex);
    info->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    info->type->tensor_type = tensor;
    tensor->has_elem_type = true;
    tensor->elem_type = gqac_dtype_onnx(type->dtype);
    return type->rank < 0 ? GQAC_OK : export_shape(ex, type, &tensor->shape);
}

/* ---- attributes ---------------------------------------------------------- */

static bool is_default(const ir_attr_spec *spec, const ir_attr *attr) {
    const ir_attr *fallback = &spec->fallback;
    if (spec->required || !fallback->set)
        return false;
    switch (spec->kind) {
    case IR_ATTR_INT:
        return attr->i == fallback->i;
    case IR_ATTR_FLOAT:
        /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-*): the same bits are wanted */
        return memcmp(&attr->f, &fallback->f, sizeof attr->f) == 0;
    case IR_ATTR_STRING:
        return strcmp(attr->s, fallback->s) == 0;
    case IR_ATTR_DTYPE:
        return attr->dtype == fallback->dtype;
    default:
        return false;
    }
}

static gqac_status export_strings(exporter *ex, const ir_attr *attr, Onnx__AttributeProto *proto) {
    proto->strings = GQAC_ARENA_ARRAY(ex->arena, ProtobufCBinaryData, attr->count);
    if (!proto->strings)
        return export_oom(ex);
    proto->n_strings = attr->count;
    for (size_t i = 0; i < attr->count; i++)
        proto->strings[i] = (ProtobufCBinaryData){.len = strlen(attr->strings[i]),
                                                  .data = (uint8_t *)text_of(attr->strings[i])};
    return GQAC_OK;
}

static gqac_status export_payload(exporter *ex, ir_attr_kind kind, const ir_attr *attr,
                                  Onnx__AttributeProto *proto) {
#define FORM(name) proto->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name
    switch (kind) {
    case IR_ATTR_INT:
    case IR_ATTR_DTYPE:
        FORM(INT);
        proto->has_i = true;
        proto->i = kind == IR_ATTR_INT ? attr->i : gqac_dtype_onnx(attr->dtype);
        return GQAC_OK;
    case IR_ATTR_FLOAT:
        FORM(FLOAT);
        proto->has_f = true;
        proto->f = attr->f;
        return GQAC_OK;
    case IR_ATTR_STRING:
        FORM(STRING);
        proto->has_s = true;
        proto->s.len = strlen(attr->s);
        proto->s.data = (uint8_t *)text_of(attr->s);
        return GQAC_OK;
    case IR_ATTR_INTS:
        FORM(INTS);
        proto->n_ints = attr->count;
        proto->ints = (int64_t *)(uintptr_t)attr->ints;
        return GQAC_OK;
    case IR_ATTR_FLOATS:
        FORM(FLOATS);
        proto->n_floats = attr->count;
        proto->floats = (float *)(uintptr_t)attr->floats;
        return GQAC_OK;
    case IR_ATTR_STRINGS:
        FORM(STRINGS);
        return export_strings(ex, attr, proto);
    case IR_ATTR_TENSOR:
        FORM(TENSOR);
        return export_tensor(ex, attr->tensor, "", &proto->t);
    case IR_ATTR_GRAPH:
        FORM(GRAPH);
        return export_graph(ex, attr->graph, &proto->g);
    }
#undef FORM
    return GQAC_OK;
}

/* Adds an attribute to a message with room for it. */
static gqac_status export_attr(exporter *ex, const char *name, ir_attr_kind kind,
                               const ir_attr *attr, Onnx__NodeProto *proto) {
    Onnx__AttributeProto *a = EXPORT_NEW(ex, Onnx__AttributeProto, ONNX__ATTRIBUTE_PROTO__INIT);
    if (!a)
        return export_oom(ex);
    a->name = text_of(name);
    a->has_type = true;
    proto->attribute[proto->n_attribute++] = a;
    return export_payload(ex, kind, attr, a);
}

static gqac_status export_attrs(exporter *ex, const ir_node *node, Onnx__NodeProto *proto) {
    size_t n = 0;
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++)
        n++;
    proto->attribute = GQAC_ARENA_ARRAY(ex->arena, Onnx__AttributeProto *, n);
    if (!proto->attribute)
        return export_oom(ex);
    for (size_t i = 0; i < n; i++) {
        const ir_attr_spec *spec = &node->op->attrs[i];
        const ir_attr *attr = &node->attrs[i];
        if (!attr->set || is_default(spec, attr))
            continue;
        GQAC_TRY(export_attr(ex, spec->name, spec->kind, attr, proto));
    }
    return GQAC_OK;
}

/* ---- nodes --------------------------------------------------------------- */

static Onnx__NodeProto *new_node(exporter *ex, const char *op, const char *domain, size_t inputs,
                                 size_t outputs) {
    Onnx__NodeProto *proto = EXPORT_NEW(ex, Onnx__NodeProto, ONNX__NODE_PROTO__INIT);
    if (!proto)
        return NULL;
    proto->op_type = text_of(op);
    proto->domain = *domain ? text_of(domain) : NULL;
    proto->input = GQAC_ARENA_ARRAY(ex->arena, char *, inputs);
    proto->output = GQAC_ARENA_ARRAY(ex->arena, char *, outputs);
    proto->n_input = inputs;
    proto->n_output = outputs;
    return proto->input && proto->output ? proto : NULL;
}

static gqac_status export_node(exporter *ex, const ir_node *node, Onnx__NodeProto **out) {
    int n_inputs = node->n_inputs, n_outputs = node->n_outputs;
    while (n_inputs > 0 && !node->inputs[n_inputs - 1].value)
        n_inputs--;
    while (n_outputs > 1 && !node->outputs[n_outputs - 1])
        n_outputs--;
    Onnx__NodeProto *proto =
        new_node(ex, node->op->name, node->op->domain, (size_t)n_inputs, (size_t)n_outputs);
    if (!proto)
        return export_oom(ex);
    proto->name = node->name ? text_of(export_node_name(ex, node->name)) : NULL;
    for (int i = 0; i < n_inputs; i++) {
        const ir_value *value = node->inputs[i].value;
        proto->input[i] = text_of(value ? export_name(ex, value) : "");
    }
    for (int i = 0; i < n_outputs; i++)
        proto->output[i] = text_of(node->outputs[i] ? export_name(ex, node->outputs[i]) : "");
    *out = proto;
    return export_attrs(ex, node, proto);
}

/* Adds an Identity for a result that no node of this graph outputs under the right name. */
static gqac_status export_identity(exporter *ex, const ir_value *value, const char *name,
                                   Onnx__GraphProto *proto) {
    Onnx__NodeProto *node = new_node(ex, "Identity", "", 1, 1);
    if (!node || !name)
        return export_oom(ex);
    node->input[0] = text_of(export_name(ex, value));
    node->output[0] = text_of(name);
    proto->node[proto->n_node++] = node;
    return GQAC_OK;
}

/* ---- graphs -------------------------------------------------------------- */

/* Exports a result under its name in the file. In the main graph that is the name of the result; a
 * nested graph must compute its results itself, each once. */
static gqac_status export_result(exporter *ex, const ir_graph *graph, int index,
                                 Onnx__GraphProto *proto) {
    const ir_value *value = graph->ret->inputs[index].value;
    const char *name = export_name(ex, value);
    bool again = false;
    for (int i = 0; i < index; i++)
        again |= graph->ret->inputs[i].value == value;
    if (!graph->parent && strcmp(name, graph->result_names[index]) != 0) {
        name = graph->result_names[index];
        GQAC_TRY(export_identity(ex, value, name, proto));
    } else if (graph->parent && (again || value->graph != graph || !value->def)) {
        name = export_fresh(ex, graph->result_names[index]);
        GQAC_TRY(export_identity(ex, value, name, proto));
    }
    GQAC_TRY(export_value(ex, graph, &value->type, name, &proto->output[proto->n_output]));
    proto->n_output++;
    return GQAC_OK;
}

typedef struct constants {
    exporter *ex;
    const ir_graph *graph;
    Onnx__GraphProto *proto;
    gqac_table written; /* ir_value * */
} constants;

static bool same_value(const void *item, const void *key) {
    return item == key;
}

/* Small constants that are not initializers of the model become Constant nodes. So the initializers
 * of both files of two-graph are the weights, under the same names. */
static gqac_status export_constant(exporter *ex, const ir_value *value, Onnx__GraphProto *proto) {
    const char *name = export_name(ex, value);
    if (value->stored || gqac_tensor_count(value->constant) > EXPORT_SMALL)
        return export_tensor(ex, value->constant, name,
                             &proto->initializer[proto->n_initializer++]);
    Onnx__NodeProto *node = new_node(ex, "Constant", "", 0, 1);
    if (!node)
        return export_oom(ex);
    node->output[0] = text_of(name);
    node->attribute = GQAC_ARENA_ARRAY(ex->arena, Onnx__AttributeProto *, 1);
    if (!node->attribute)
        return export_oom(ex);
    proto->node[proto->n_node++] = node;
    return export_attr(ex, "value", IR_ATTR_TENSOR, &(ir_attr){.tensor = value->constant}, node);
}

static gqac_status export_used(void *arg, ir_node *node) {
    constants *c = arg;
    for (int i = 0; i < node->n_inputs; i++) {
        ir_value *value = node->inputs[i].value;
        if (!value || !value->constant || value->graph != c->graph)
            continue;
        const uint64_t hash = gqac_hash_u64(c->written.seed, (uint64_t)(uintptr_t)value);
        if (gqac_table_find(&c->written, hash, same_value, value))
            continue;
        if (!gqac_table_add(&c->written, hash, value))
            return export_oom(c->ex);
        GQAC_TRY(export_constant(c->ex, value, c->proto));
    }
    return GQAC_OK;
}

/* Exports constants in the order of their first use, in which an import creates them. So importing
 * a file that was written here and writing it again gives the same file. */
static gqac_status export_constants(exporter *ex, ir_graph *graph, Onnx__GraphProto *proto) {
    constants c = {.ex = ex, .graph = graph, .proto = proto};
    gqac_table_init(&c.written, ex->arena);
    return ir_graph_walk_all(graph, export_used, &c);
}

gqac_status export_graph(exporter *ex, ir_graph *graph, Onnx__GraphProto **out) {
    Onnx__GraphProto *proto = EXPORT_NEW(ex, Onnx__GraphProto, ONNX__GRAPH_PROTO__INIT);
    /* at most one Identity for each result, and one Constant for each constant */
    size_t nodes = (size_t)graph->ret->n_inputs + (size_t)graph->n_constants;
    for (const ir_node *node = graph->first; node; node = node->next)
        nodes++;
    if (!proto)
        return export_oom(ex);
    proto->name = text_of(*graph->name ? graph->name : "graph"); /* ONNX requires a name */
    proto->node = GQAC_ARENA_ARRAY(ex->arena, Onnx__NodeProto *, nodes);
    proto->initializer =
        GQAC_ARENA_ARRAY(ex->arena, Onnx__TensorProto *, (size_t)graph->n_constants);
    proto->input = GQAC_ARENA_ARRAY(ex->arena, Onnx__ValueInfoProto *, (size_t)graph->n_inputs);
    proto->output =
        GQAC_ARENA_ARRAY(ex->arena, Onnx__ValueInfoProto *, (size_t)graph->ret->n_inputs);
    if (!proto->node || !proto->initializer || !proto->input || !proto->output)
        return export_oom(ex);
    for (int i = 0; i < graph->n_inputs; i++, proto->n_input++)
        GQAC_TRY(export_value(ex, graph, &graph->inputs[i]->type, export_name(ex, graph->inputs[i]),
                              &proto->input[i]));
    GQAC_TRY(export_constants(ex, graph, proto));
    for (const ir_node *node = graph->first; node; node = node->next, proto->n_node++)
        GQAC_TRY(export_node(ex, node, &proto->node[proto->n_node]));
    for (int i = 0; i < graph->ret->n_inputs; i++)
        GQAC_TRY(export_result(ex, graph, i, proto));
    *out = proto;
    return GQAC_OK;
}
