/* Attributes of nodes, decoded by the table of the node's op, and the forms of Constant.
 */
#include "onnx/importer.h"

#include "base/alloc.h"

#include <string.h>

typedef Onnx__AttributeProto attribute;

/* Counts lists and texts, which each call copies. */
static gqac_status count_values(const onnx_scope *scope, const attribute *a) {
    size_t n = a->n_ints + a->n_floats + a->n_strings + a->s.len / sizeof(int64_t);
    for (size_t i = 0; scope->call && i < a->n_strings; i++)
        n += a->strings[i].len / sizeof(int64_t);
    return onnx_scope_count(scope, n / ONNX_VALUES_A_NAME);
}

/* The numbers of the value fields that are present, as bits. */
static uint32_t fields_of(const attribute *a) {
    return (a->has_f ? 1u << 2 : 0) | (a->has_i ? 1u << 3 : 0) | (a->has_s ? 1u << 4 : 0) |
           (a->t ? 1u << 5 : 0) | (a->g ? 1u << 6 : 0) | (a->n_floats ? 1u << 7 : 0) |
           (a->n_ints ? 1u << 8 : 0) | (a->n_strings ? 1u << 9 : 0) | (a->tp ? 1u << 14 : 0) |
           (a->sparse_tensor ? 1u << 22 : 0);
}

typedef struct attr_form {
    Onnx__AttributeProto__AttributeType type;
    unsigned field; /* number of the value field */
    bool must;      /* a message, which must be present; scalars that are left out are zero */
    bool supported;
    ir_attr_kind kind;
    const char *name;
} attr_form;

#define TYPE(name) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name

static const attr_form forms[] = {
    {TYPE(FLOAT), 2, false, true, IR_ATTR_FLOAT, "FLOAT"},
    {TYPE(INT), 3, false, true, IR_ATTR_INT, "INT"},
    {TYPE(STRING), 4, false, true, IR_ATTR_STRING, "STRING"},
    {TYPE(TENSOR), 5, true, true, IR_ATTR_TENSOR, "TENSOR"},
    {TYPE(GRAPH), 6, true, true, IR_ATTR_GRAPH, "GRAPH"},
    {TYPE(FLOATS), 7, false, true, IR_ATTR_FLOATS, "FLOATS"},
    {TYPE(INTS), 8, false, true, IR_ATTR_INTS, "INTS"},
    {TYPE(STRINGS), 9, false, true, IR_ATTR_STRINGS, "STRINGS"},
    {TYPE(TYPE_PROTO), 14, true, false, IR_ATTR_INT, "TYPE_PROTO"},
    {TYPE(SPARSE_TENSOR), 22, true, false, IR_ATTR_INT, "SPARSE_TENSOR"},
    {TYPE(TENSORS), 0, false, false, IR_ATTR_INT, "TENSORS"},
    {TYPE(GRAPHS), 0, false, false, IR_ATTR_INT, "GRAPHS"},
    {TYPE(TYPE_PROTOS), 0, false, false, IR_ATTR_INT, "TYPE_PROTOS"},
    {TYPE(SPARSE_TENSORS), 0, false, false, IR_ATTR_INT, "SPARSE_TENSORS"},
};

/* Finds the form of an attribute, and checks that it has a value of that form and no other. */
static gqac_status form_of(importer *im, const attribute *a, const attr_form **out) {
    const char *name = onnx_text(a->name);
    const attr_form *form = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (a->has_type && forms[i].type == a->type)
            form = &forms[i];
    if (!form)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "attribute '%s' has no type", name);
    uint32_t own = form->field ? 1u << form->field : 0, have = fields_of(a);
    if ((have & ~own) || (form->must && !have))
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                  "attribute '%s' is declared %s, but has a value of another type or none", name,
                  form->name);
    *out = form;
    return GQAC_OK;
}

static gqac_status read_text(importer *im, const attribute *a, const ProtobufCBinaryData *bytes,
                             const char **out) {
    if (bytes->len && !gqac_utf8_valid((const char *)bytes->data, bytes->len))
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                  "the text of attribute '%s' is not valid UTF-8, or contains a NUL",
                  onnx_text(a->name));
    *out = gqac_arena_strndup(im->arena, (const char *)bytes->data, bytes->len);
    return *out ? GQAC_OK : onnx_oom(im);
}

static gqac_status read_texts(importer *im, const attribute *a, ir_attr *attr) {
    const char **texts = GQAC_ARENA_ARRAY(im->arena, const char *, a->n_strings);
    if (!texts)
        return onnx_oom(im);
    for (size_t i = 0; i < a->n_strings; i++)
        GQAC_TRY(read_text(im, a, &a->strings[i], &texts[i]));
    attr->count = a->n_strings;
    attr->strings = texts;
    return GQAC_OK;
}

static gqac_status read_tensor(const onnx_scope *scope, const attribute *a, ir_attr *attr) {
    importer *im = scope->im;
    gqac_tensor *tensor = GQAC_ARENA_NEW(im->arena, gqac_tensor);
    if (!tensor)
        return onnx_oom(im);
    gqac_status status = onnx_once_read(scope, a->t, tensor);
    if (status != GQAC_OK)
        gqac_diag_where(im->diag, "attribute '%s'", onnx_text(a->name));
    attr->tensor = tensor;
    return status;
}

static gqac_status read_value(const onnx_scope *scope, const attribute *a, const attr_form *form,
                              ir_attr *attr) {
    importer *im = scope->im;
    switch (form->kind) {
    case IR_ATTR_FLOAT:
        attr->f = a->f;
        return GQAC_OK;
    case IR_ATTR_STRING:
        return read_text(im, a, &a->s, &attr->s);
    case IR_ATTR_INTS:
        attr->count = a->n_ints;
        attr->ints = gqac_arena_copy(im->arena, a->ints, a->n_ints * sizeof *a->ints);
        return attr->ints ? GQAC_OK : onnx_oom(im);
    case IR_ATTR_FLOATS:
        attr->count = a->n_floats;
        attr->floats = gqac_arena_copy(im->arena, a->floats, a->n_floats * sizeof *a->floats);
        return attr->floats ? GQAC_OK : onnx_oom(im);
    case IR_ATTR_STRINGS:
        return read_texts(im, a, attr);
    case IR_ATTR_TENSOR:
        return read_tensor(scope, a, attr);
    case IR_ATTR_GRAPH:
        return onnx_import_nested(scope, a->g, &attr->graph);
    default:
        attr->i = a->i;
        return GQAC_OK;
    }
}

gqac_status onnx_attr_read(const onnx_scope *scope, const attribute *a, ir_attr_kind *kind,
                           ir_attr *attr) {
    const attr_form *form;
    *attr = (ir_attr){.set = true};
    GQAC_TRY(form_of(scope->im, a, &form));
    GQAC_TRY(count_values(scope, a));
    *kind = form->kind;
    if (!form->supported)
        GQAC_FAIL(scope->im->diag, GQAC_UNSUPPORTED, "attribute %s of type %s is not supported",
                  onnx_text(a->name), form->name);
    return read_value(scope, a, form, attr);
}

gqac_status onnx_attr_resolve(const onnx_scope *scope, const attribute *a, const attribute **out) {
    importer *im = scope->im;
    const char *name = onnx_text(a->ref_attr_name);
    *out = a;
    if (!*name)
        return GQAC_OK;
    if (!scope->call)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                  "attribute '%s' refers to '%s', but the node is not in a function",
                  onnx_text(a->name), name);
    *out = NULL;
    const onnx_call *call = scope->call;
    for (size_t i = 0; i < call->n_attributes && !*out; i++)
        if (onnx_text_is(call->attributes[i]->name, name))
            *out = call->attributes[i];
    for (size_t i = 0; i < call->function->n_attribute_proto && !*out; i++)
        if (onnx_text_is(call->function->attribute_proto[i]->name, name))
            *out = call->function->attribute_proto[i];
    if (*out && a->has_type && a->type != (*out)->type)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "attribute '%s' refers to '%s' of another type",
                  onnx_text(a->name), name);
    return GQAC_OK;
}

/* ---- attributes of a node ------------------------------------------------ */

static const ir_attr_spec *find_spec(const ir_node *node, const char *name, int *index) {
    *index = 0;
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++, ++*index)
        if (strcmp(spec->name, name) == 0)
            return spec;
    return NULL;
}

/* Stores the value in the node. Element types are INT in files. */
static gqac_status store(const onnx_scope *scope, ir_node *node, const ir_attr_spec *spec,
                         int index, ir_attr_kind kind, ir_attr attr) {
    importer *im = scope->im;
    bool dtype = spec->kind == IR_ATTR_DTYPE && kind == IR_ATTR_INT;
    if (!dtype && spec->kind != kind)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "attribute '%s' has the wrong type", spec->name);
    if (dtype && attr.i == 0 && !spec->required) /* UNDEFINED: as if it were absent */
        return GQAC_OK;
    if (dtype) {
        attr.dtype = gqac_dtype_from_onnx(attr.i);
        if (attr.dtype == GQAC_NONE)
            GQAC_FAIL(im->diag, GQAC_UNSUPPORTED,
                      "attribute %s = %lld: this element type is not supported", spec->name,
                      (long long)attr.i);
        attr.i = 0;
    }
    if (kind == IR_ATTR_GRAPH)
        attr.graph->parent = node;
    node->attrs[index] = attr;
    return GQAC_OK;
}

/* Imports one attribute, after following references; what is not supported is tallied. */
static gqac_status import_one(const onnx_scope *scope, const Onnx__NodeProto *proto,
                              const attribute *a, ir_node *node, raw_attrs *raw) {
    int index, i = raw->count;
    const char *name = raw->names[i];
    const ir_attr_spec *spec = find_spec(node, name, &index);
    gqac_status status = onnx_attr_read(scope, a, &raw->kinds[i], &raw->values[i]);
    if (status == GQAC_OK && spec)
        status = store(scope, node, spec, index, raw->kinds[i], raw->values[i]);
    if (status == GQAC_UNSUPPORTED) {
        raw->bad = true;
        return onnx_tally_failure(scope->im, proto);
    }
    GQAC_TRY(status);
    raw->taken[i] = spec != NULL;
    raw->count++;
    return GQAC_OK;
}

gqac_status onnx_import_attrs(const onnx_scope *scope, const Onnx__NodeProto *proto, ir_node *node,
                              raw_attrs *raw) {
    importer *im = scope->im;
    for (size_t i = 0; i < proto->n_attribute; i++) {
        const char *name = onnx_text(proto->attribute[i]->name);
        const attribute *a;
        for (size_t k = 0; k < i; k++)
            if (onnx_text_is(proto->attribute[k]->name, name))
                GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "attribute '%s' is given twice", name);
        GQAC_TRY(onnx_attr_resolve(scope, proto->attribute[i], &a));
        if (!a)
            continue; /* the function's caller does not give it: the default */
        raw->names[raw->count] = name;
        GQAC_TRY(import_one(scope, proto, a, node, raw));
    }
    return GQAC_OK;
}

gqac_status onnx_raw_create(importer *im, size_t n, raw_attrs *raw) {
    *raw = (raw_attrs){0};
    size_t size = sizeof *raw->values + sizeof *raw->names + sizeof *raw->kinds + sizeof(bool);
    raw->values = gqac_calloc(n ? n : 1, size);
    if (!raw->values)
        return onnx_oom(im);
    raw->names = (const char **)(raw->values + n);
    raw->kinds = (ir_attr_kind *)(raw->names + n);
    raw->taken = (bool *)(raw->kinds + n);
    return GQAC_OK;
}

/* ---- Constant ------------------------------------------------------------ */

gqac_status onnx_constant_check(const onnx_scope *scope, const attribute *a) {
    importer *im = scope->im;
    static const struct {
        const char *name;
        Onnx__AttributeProto__AttributeType type;
    } values[] = {{"value", TYPE(TENSOR)},          {"value_float", TYPE(FLOAT)},
                  {"value_floats", TYPE(FLOATS)},   {"value_int", TYPE(INT)},
                  {"value_ints", TYPE(INTS)},       {"value_string", TYPE(STRING)},
                  {"value_strings", TYPE(STRINGS)}, {"sparse_value", TYPE(SPARSE_TENSOR)}};
    const attr_form *form;
    const char *name = onnx_text(a->name);
    GQAC_TRY(form_of(im, a, &form));
    GQAC_TRY(count_values(scope, a));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strcmp(values[i].name, name) == 0) {
            if (values[i].type != a->type)
                GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "attribute '%s' has the wrong type", name);
            return a->t ? onnx_once_check(scope, a->t) : GQAC_OK;
        }
    GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "Constant has no attribute '%s'", name);
}

static gqac_status make_list(importer *im, gqac_dtype dtype, int rank, size_t n, const void *data,
                             size_t size, gqac_tensor *tensor) {
    *tensor = (gqac_tensor){.dtype = dtype, .rank = rank};
    tensor->dims[0] = rank ? (int64_t)n : 0;
    tensor->data = gqac_arena_copy(im->arena, data, n * size);
    return tensor->data ? GQAC_OK : onnx_oom(im);
}

gqac_status onnx_constant_read(const onnx_scope *scope, const attribute *a, gqac_tensor *tensor) {
    importer *im = scope->im;
    const char *name = onnx_text(a->name);
    if (strcmp(name, "value") == 0)
        return onnx_once_read(scope, a->t, tensor);
    if (strcmp(name, "value_float") == 0)
        return make_list(im, GQAC_F32, 0, 1, &a->f, sizeof a->f, tensor);
    if (strcmp(name, "value_floats") == 0)
        return make_list(im, GQAC_F32, 1, a->n_floats, a->floats, sizeof *a->floats, tensor);
    if (strcmp(name, "value_int") == 0)
        return make_list(im, GQAC_I64, 0, 1, &a->i, sizeof a->i, tensor);
    if (strcmp(name, "value_ints") == 0)
        return make_list(im, GQAC_I64, 1, a->n_ints, a->ints, sizeof *a->ints, tensor);
    GQAC_FAIL(im->diag, GQAC_UNSUPPORTED, "attribute %s is not supported", name);
}
