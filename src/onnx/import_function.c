/* Model functions, inlined at the call: the nodes of the body are imported in a scope of their own,
 * in which the function's inputs are the caller's values. */
#include "onnx/importer.h"

#include <string.h>

typedef struct function_key {
    const char *domain, *name, *overload;
} function_key;

static bool same_function(const void *item, const void *key) {
    const Onnx__FunctionProto *f = item;
    const function_key *k = key;
    return strcmp(onnx_domain(f->domain), k->domain) == 0 && onnx_text_is(f->name, k->name) &&
           onnx_text_is(f->overload, k->overload);
}

static uint64_t hash_of(const importer *im, const function_key *k) {
    uint64_t hash = gqac_hash_bytes(im->functions.seed, k->domain, strlen(k->domain));
    hash = gqac_hash_bytes(hash, k->name, strlen(k->name));
    return gqac_hash_bytes(hash, k->overload, strlen(k->overload));
}

gqac_status onnx_functions_index(importer *im) {
    gqac_table_init(&im->functions, im->scratch);
    for (size_t i = 0; i < im->model->n_functions; i++) {
        Onnx__FunctionProto *f = im->model->functions[i];
        function_key key = {onnx_domain(f->domain), onnx_text(f->name), onnx_text(f->overload)};
        uint64_t hash = hash_of(im, &key);
        if (!*key.name)
            GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "a function has no name");
        if (gqac_table_find(&im->functions, hash, same_function, &key))
            GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the function '%s.%s' is defined twice",
                      key.domain, key.name);
        GQAC_TRY(onnx_check_opsets(im, f->n_opset_import, f->opset_import));
        if (!gqac_table_add(&im->functions, hash, f))
            return onnx_oom(im);
    }
    return GQAC_OK;
}

const Onnx__FunctionProto *onnx_function_find(const importer *im, const Onnx__NodeProto *node) {
    function_key key = {onnx_domain(node->domain), onnx_text(node->op_type),
                        onnx_text(node->overload)};
    return gqac_table_find(&im->functions, hash_of(im, &key), same_function, &key);
}

/* ---- calls --------------------------------------------------------------- */

static gqac_status check_call(const onnx_scope *scope, const Onnx__NodeProto *node,
                              const Onnx__FunctionProto *function) {
    importer *im = scope->im;
    int depth = 1;
    for (const onnx_call *call = scope->call; call; call = call->caller, depth++)
        if (call->function == function)
            GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the function '%s' calls itself",
                      onnx_text(function->name));
    if (depth > ONNX_MAX_CALLS)
        GQAC_FAIL(im->diag, GQAC_LIMIT, "calls of functions are nested more than %d deep",
                  ONNX_MAX_CALLS);
    if (node->n_input > function->n_input || node->n_output > function->n_output)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                  "the call has more inputs or outputs than the function");
    return GQAC_OK;
}

/* Collects the attributes of the call, following references to attributes of the calling
 * function. */
static gqac_status bind_attributes(const onnx_scope *scope, const Onnx__NodeProto *node,
                                   onnx_call *call, bool *graph) {
    importer *im = scope->im;
    size_t n = node->n_attribute;
    *graph = false;
    Onnx__AttributeProto **list = GQAC_ARENA_ARRAY(im->scratch, Onnx__AttributeProto *, n);
    if (!list)
        return onnx_oom(im);
    call->n_attributes = 0;
    for (size_t i = 0; i < n; i++) {
        const Onnx__AttributeProto *a;
        for (size_t k = 0; k < i; k++)
            if (onnx_text_is(node->attribute[k]->name, onnx_text(node->attribute[i]->name)))
                GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "attribute '%s' is given twice",
                          onnx_text(node->attribute[i]->name));
        GQAC_TRY(onnx_attr_resolve(scope, node->attribute[i], &a));
        if (!a)
            continue;
        *graph |= a->g != NULL;
        Onnx__AttributeProto *own = gqac_arena_copy(im->scratch, a, sizeof *a);
        if (!own)
            return onnx_oom(im);
        own->name = node->attribute[i]->name;
        list[call->n_attributes++] = own;
    }
    call->attributes = (const Onnx__AttributeProto *const *)list;
    return GQAC_OK;
}

static gqac_status bind_inputs(const onnx_scope *scope, const Onnx__NodeProto *node,
                               const Onnx__FunctionProto *function, onnx_scope *body) {
    for (size_t i = 0; i < function->n_input; i++) {
        onnx_name *name;
        GQAC_TRY(onnx_scope_define(body, function->input[i], &name));
        GQAC_TRY(onnx_scope_alias(scope, i < node->n_input ? node->input[i] : "", name));
    }
    return GQAC_OK;
}

static gqac_status bind_outputs(onnx_scope *scope, const Onnx__NodeProto *node,
                                const Onnx__FunctionProto *function, const onnx_scope *body) {
    for (size_t i = 0; i < node->n_output; i++) {
        if (!*node->output[i])
            continue;
        onnx_name *name = onnx_scope_find(scope, node->output[i]);
        GQAC_TRY(onnx_scope_alias(body, function->output[i], name));
        ir_value *value = name->value;
        const char *label = onnx_scope_label(scope, node->output[i]);
        bool made_here = value && value->def && value->graph == body->graph &&
                         onnx_scope_find(body, function->output[i])->node >= 0;
        if (!label || (made_here && !ir_value_rename(value, label)))
            return onnx_oom(scope->im);
    }
    return GQAC_OK;
}

gqac_status onnx_import_call(onnx_scope *scope, const Onnx__NodeProto *node,
                             const Onnx__FunctionProto *function) {
    importer *im = scope->im;
    GQAC_TRY(check_call(scope, node, function));
    const char *own = *onnx_text(node->name) ? node->name : function->name;
    onnx_call call = {
        .caller = scope->call, .function = function, .prefix = onnx_scope_label(scope, own)};
    if (!call.prefix)
        return onnx_oom(im);
    bool graph;
    GQAC_TRY(bind_attributes(scope, node, &call, &graph));
    if (graph)
        return onnx_pass_over(scope, node, "a function with a graph as an attribute");
    onnx_scope body = {.im = im,
                       .graph = scope->graph,
                       .call = &call,
                       .depth = scope->depth,
                       .n_opsets = function->n_opset_import,
                       .opsets = function->opset_import};
    gqac_table_init(&body.names, im->scratch);
    GQAC_TRY(bind_inputs(scope, node, function, &body));
    GQAC_TRY(onnx_import_body(&body, function->n_node, function->node));
    return bind_outputs(scope, node, function, &body);
}
