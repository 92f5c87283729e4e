/* Graphs, main or nested: inputs, initializers, nodes in order, results.
 *
 * Recursion follows nested graphs and inlined functions, both of limited depth. The types that a
 * file declares for intermediate values are ignored, because exporters get them wrong. For results
 * of the main graph the declared element types are compared with the inferred ones, but the shapes
 * are ignored. */
#include "onnx/importer.h"

#include <stdio.h>
#include <string.h>

int64_t onnx_opset(const onnx_scope *scope, const char *domain) {
    for (size_t i = 0; i < scope->n_opsets; i++)
        if (strcmp(onnx_domain(scope->opsets[i]->domain), domain) == 0)
            return scope->opsets[i]->version;
    return 0;
}

gqac_status onnx_check_opsets(importer *im, size_t n, Onnx__OperatorSetIdProto *const *opsets) {
    for (size_t i = 0; i < n; i++) {
        const char *domain = onnx_domain(opsets[i]->domain);
        int64_t version = opsets[i]->version;
        if (version < 1 || version > INT32_MAX)
            GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                      "opset %lld of domain '%s' is out of range: it must be 1 or more",
                      (long long)version, domain);
        if (!*domain && version > ONNX_NEWEST_OPSET)
            GQAC_TRY(onnx_tally_unsupported(im, "model", "its opset is newer than 28", ""));
        for (size_t k = 0; k < i; k++)
            if (strcmp(onnx_domain(opsets[k]->domain), domain) == 0)
                GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the domain '%s' is imported twice",
                          domain);
    }
    return GQAC_OK;
}

/* ---- inputs -------------------------------------------------------------- */

static gqac_status import_dim(const onnx_scope *scope, const char *input, int index,
                              const Onnx__TensorShapeProto__Dimension *dim, const ir_dim **out) {
    importer *im = scope->im;
    ir_dims *dims = im->module->dims;
    *out = NULL;
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
        if (dim->dim_value < 0)
            GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                      "dimension %d of input '%s' is %lld: it must not be negative", index, input,
                      (long long)dim->dim_value);
        *out = ir_dim_const(dims, dim->dim_value);
    } else if (scope->parent) {
        return GQAC_OK; /* may differ from one run of a nested graph to the next */
    } else if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
               *dim->dim_param) {
        *out = ir_dim_symbol(dims, dim->dim_param);
    } else {
        char hint[ONNX_MAX_NAME + 32];
        snprintf(hint, sizeof hint, "%s_dim%d", input, index);
        *out = ir_dim_fresh(dims, hint);
    }
    return ir_dims_failed(dims) ? onnx_oom(im) : GQAC_OK;
}

static gqac_status import_type(const onnx_scope *scope, const Onnx__ValueInfoProto *input,
                               ir_type *type) {
    importer *im = scope->im;
    const char *name = onnx_text(input->name);
    const ir_dim *dims[GQAC_MAX_RANK];
    *type = ir_type_unknown();
    bool nested = scope->parent;
    if (nested && (!input->type || !input->type->value_case))
        return GQAC_OK;
    if (!input->type || !input->type->value_case)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "input '%s' has no type", name);
    if (input->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return onnx_tally_unsupported(im, "graph input", "it is not a tensor", name);
    const Onnx__TypeProto__Tensor *tensor = input->type->tensor_type;
    int32_t code = tensor->has_elem_type ? tensor->elem_type : 0;
    if (nested && code == 0)
        return GQAC_OK;
    const ProtobufCEnumValue *known =
        protobuf_c_enum_descriptor_get_value(&onnx__tensor_proto__data_type__descriptor, code);
    if (!known || code == 0)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                  "input '%s' has no valid element type (its code is %d)", name, (int)code);
    gqac_dtype dtype = gqac_dtype_from_onnx(code);
    if (dtype == GQAC_NONE)
        return onnx_tally_unsupported(im, "graph input", known->name, name);
    type->dtype = dtype;
    if (!tensor->shape)
        return GQAC_OK;
    int rank = (int)tensor->shape->n_dim;
    for (int i = 0; i < rank; i++)
        GQAC_TRY(import_dim(scope, name, i, tensor->shape->dim[i], &dims[i]));
    *type = ir_type_make(im->module, dtype, rank, dims);
    return ir_dims_failed(im->module->dims) ? onnx_oom(im) : GQAC_OK;
}

/* Imports inputs. Those that are also initializers become constants, because weights are not
 * overridden at run time. */
static gqac_status import_inputs(onnx_scope *scope, const Onnx__GraphProto *proto) {
    importer *im = scope->im;
    for (size_t i = 0; i < proto->n_input; i++) {
        const char *text = onnx_text(proto->input[i]->name);
        onnx_name *name = onnx_scope_find(scope, text);
        if (name && name->kind == ONNX_NAME_TENSOR && !name->shared) {
            name->shared = true;
            continue;
        }
        GQAC_TRY(onnx_scope_define(scope, text, &name));
        ir_type type;
        GQAC_TRY(import_type(scope, proto->input[i], &type));
        const char *label = onnx_scope_label(scope, text);
        ir_value *value = label ? ir_graph_add_input(scope->graph, label, type) : NULL;
        if (!value)
            return onnx_oom(im);
        name->kind = ONNX_NAME_VALUE;
        name->value = value;
    }
    return GQAC_OK;
}

static gqac_status import_initializer(onnx_scope *scope, const Onnx__TensorProto *tensor) {
    importer *im = scope->im;
    onnx_name *name;
    GQAC_TRY(onnx_scope_define(scope, onnx_text(tensor->name), &name));
    gqac_status status = onnx_once_check(scope, tensor);
    name->kind = ONNX_NAME_TENSOR;
    name->tensor = tensor;
    if (status == GQAC_UNSUPPORTED)
        return onnx_tally_name(im, "initializer", name);
    if (status != GQAC_OK)
        gqac_diag_where(im->diag, "tensor '%s'", name->text);
    return status;
}

static gqac_status import_initializers(onnx_scope *scope, const Onnx__GraphProto *proto) {
    importer *im = scope->im;
    for (size_t i = 0; i < proto->n_initializer; i++)
        GQAC_TRY(import_initializer(scope, proto->initializer[i]));
    for (size_t i = 0; i < proto->n_sparse_initializer; i++) {
        const Onnx__TensorProto *values = proto->sparse_initializer[i]->values;
        onnx_name *name;
        GQAC_TRY(onnx_scope_define(scope, values ? onnx_text(values->name) : "", &name));
        gqac_diag_set(im->diag, GQAC_UNSUPPORTED, "sparse tensors are not supported");
        GQAC_TRY(onnx_tally_name(im, "initializer", name));
    }
    return GQAC_OK;
}

/* ---- nodes and results --------------------------------------------------- */

gqac_status onnx_import_body(onnx_scope *scope, size_t n, Onnx__NodeProto *const *nodes) {
    importer *im = scope->im;
    const int *order = NULL;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < nodes[i]->n_output; k++) {
            onnx_name *name;
            if (!*nodes[i]->output[k])
                continue;
            gqac_status status = onnx_scope_define(scope, nodes[i]->output[k], &name);
            if (status != GQAC_OK) {
                onnx_where(im, nodes[i]);
                return status;
            }
            name->node = (int)i;
        }
    GQAC_TRY(onnx_order(scope, n, nodes, &order));
    for (size_t i = 0; i < n; i++)
        GQAC_TRY(onnx_import_node(scope, nodes[order[i]]));
    return GQAC_OK;
}

/* Compares the declared element type now if the value has one, else later, when it gets one
 * (op_set_type). */
static gqac_status declare_result(importer *im, const Onnx__ValueInfoProto *output,
                                  ir_value *value) {
    const Onnx__TypeProto *type = output->type;
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
        !type->tensor_type->has_elem_type)
        return GQAC_OK;
    const gqac_dtype declared = gqac_dtype_from_onnx(type->tensor_type->elem_type);
    if (declared != GQAC_NONE && value->type.dtype != GQAC_NONE && value->type.dtype != declared)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "output '%s' is declared %s, but is computed as %s",
                  onnx_text(output->name), gqac_dtype_name(declared),
                  gqac_dtype_name(value->type.dtype));
    if (declared != GQAC_NONE)
        value->type.dtype = declared;
    return GQAC_OK;
}

static gqac_status import_results(onnx_scope *scope, const Onnx__GraphProto *proto) {
    importer *im = scope->im;
    size_t n = proto->n_output;
    GQAC_TRY(onnx_scope_count(scope, n));
    if (n == 0 && !scope->parent)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the graph has no outputs");
    ir_value **values = GQAC_ARENA_ARRAY(im->scratch, ir_value *, n);
    const char **names = GQAC_ARENA_ARRAY(im->scratch, const char *, n);
    if (!values || !names)
        return onnx_oom(im);
    for (size_t i = 0; i < n; i++) {
        names[i] = onnx_text(proto->output[i]->name);
        GQAC_TRY(onnx_scope_value(scope, names[i], &values[i]));
        if (!values[i])
            GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "graph output '%s' is an absent value",
                      names[i]);
        if (scope->parent)
            continue;
        onnx_name *name = onnx_scope_find(scope, names[i]);
        if (name->result)
            GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the graph has the output '%s' twice",
                      names[i]);
        name->result = true;
        GQAC_TRY(declare_result(im, proto->output[i], values[i]));
    }
    bool set = ir_graph_set_results(scope->graph, (int)n, values, names);
    return set ? GQAC_OK : onnx_oom(im);
}

static gqac_status import_graph(onnx_scope *scope, const Onnx__GraphProto *proto) {
    gqac_table_init(&scope->names, scope->im->scratch);
    GQAC_TRY(import_initializers(scope, proto));
    GQAC_TRY(import_inputs(scope, proto));
    GQAC_TRY(onnx_import_body(scope, proto->n_node, proto->node));
    return import_results(scope, proto);
}

gqac_status onnx_import_main(importer *im) {
    const Onnx__ModelProto *model = im->model;
    if (!model->graph)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the model has no graph");
    onnx_scope scope = {.im = im,
                        .graph = im->module->graph,
                        .n_opsets = model->n_opset_import,
                        .opsets = model->opset_import};
    return import_graph(&scope, model->graph);
}

gqac_status onnx_import_nested(const onnx_scope *scope, const Onnx__GraphProto *proto,
                               ir_graph **graph) {
    importer *im = scope->im;
    if (scope->depth == ONNX_MAX_GRAPH_DEPTH)
        GQAC_FAIL(im->diag, GQAC_LIMIT,
                  "graphs are nested more than %d deep after functions are inlined",
                  ONNX_MAX_GRAPH_DEPTH);
    *graph = ir_graph_create(im->module, onnx_text(proto->name));
    if (!*graph)
        return onnx_oom(im);
    onnx_scope inner = {.im = im,
                        .parent = scope,
                        .graph = *graph,
                        .call = scope->call,
                        .depth = scope->depth + 1,
                        .n_opsets = scope->n_opsets,
                        .opsets = scope->opsets};
    return import_graph(&inner, proto);
}
