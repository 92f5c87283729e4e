/* Names of values while a model is imported: one table for each graph, linked to that of the
 * enclosing graph.
 *
 * A name that is visible cannot be defined again. But a nested graph may define the name of a later
 * node of the enclosing graph: the branches of an If often give their results the names of the If's
 * outputs. */
#include "onnx/importer.h"

#include <string.h>

const char *onnx_text(const char *text) {
    return text ? text : "";
}

bool onnx_text_is(const char *text, const char *other) {
    return strcmp(onnx_text(text), other) == 0;
}

const char *onnx_domain(const char *domain) {
    return !domain || strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

gqac_status onnx_oom(importer *im) {
    return gqac_diag_oom(im->diag, "the model's graph");
}

static bool same_name(const void *item, const void *key) {
    return strcmp(((const onnx_name *)item)->text, key) == 0;
}

static uint64_t hash_of(const onnx_scope *scope, const char *text) {
    return gqac_hash_bytes(scope->names.seed, text, strlen(text));
}

onnx_name *onnx_scope_find(const onnx_scope *scope, const char *text) {
    return gqac_table_find(&scope->names, hash_of(scope, text), same_name, text);
}

onnx_name *onnx_scope_find_all(const onnx_scope *scope, const char *text) {
    for (; scope; scope = scope->parent) {
        onnx_name *name = onnx_scope_find(scope, text);
        if (name)
            return name;
    }
    return NULL;
}

gqac_status onnx_scope_count(const onnx_scope *scope, size_t n) {
    importer *im = scope->im;
    im->inlined_names += scope->call ? (int64_t)n : 0;
    if (im->inlined_names > ONNX_MAX_INLINED_NAMES)
        GQAC_FAIL(im->diag, GQAC_LIMIT,
                  "calls of functions have more than %d names, or %d times as many values of "
                  "attributes",
                  ONNX_MAX_INLINED_NAMES, ONNX_VALUES_A_NAME);
    return GQAC_OK;
}

gqac_status onnx_scope_define(onnx_scope *scope, const char *text, onnx_name **out) {
    importer *im = scope->im;
    GQAC_TRY(onnx_scope_count(scope, 1));
    if (!*text)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "a value has no name");
    if (onnx_scope_find(scope, text))
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the name '%s' is defined twice", text);
    const onnx_name *outer = scope->parent ? onnx_scope_find_all(scope->parent, text) : NULL;
    if (outer && outer->kind != ONNX_NAME_PENDING)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                  "the name '%s' is defined again in a nested graph where it is visible", text);
    onnx_name *name = GQAC_ARENA_NEW(im->scratch, onnx_name);
    if (!name || !gqac_table_add(&scope->names, hash_of(scope, text), name))
        return onnx_oom(im);
    *name = (onnx_name){.text = text, .node = -1, .scope = scope};
    *out = name;
    return GQAC_OK;
}

const char *onnx_scope_label(const onnx_scope *scope, const char *text) {
    if (!scope->call)
        return text;
    return gqac_arena_printf(scope->im->scratch, "%s/%s", scope->call->prefix, text);
}

ir_value *onnx_placeholder(importer *im, const char *text) {
    return ir_graph_add_input(im->module->graph, text, ir_type_unknown());
}

gqac_status onnx_tally_name(importer *im, const char *what, onnx_name *name) {
    GQAC_TRY(onnx_tally_unsupported(im, what, im->diag->what, name->text));
    *im->diag = (gqac_diag){0};
    name->kind = ONNX_NAME_VALUE;
    name->value = onnx_placeholder(im, name->text);
    return name->value ? GQAC_OK : onnx_oom(im);
}

/* Creates a constant on its first use. If gqac does not have its type, that is reported, and a
 * placeholder is used; the import then fails at its end. */
static gqac_status make_constant(onnx_name *name) {
    importer *im = name->scope->im;
    gqac_tensor tensor = {.dtype = GQAC_NONE};
    gqac_status status = GQAC_UNSUPPORTED;
    if (name->kind == ONNX_NAME_CONSTANT)
        status = onnx_constant_read(name->scope, name->constant, &tensor);
    else
        status = onnx_once_read(name->scope, name->tensor, &tensor);
    const char *label = onnx_scope_label(name->scope, name->text);
    const char *what = name->kind == ONNX_NAME_CONSTANT ? "Constant" : "initializer";
    if (status == GQAC_UNSUPPORTED)
        return onnx_tally_name(im, what, name);
    if (status != GQAC_OK) {
        gqac_diag_where(im->diag, "tensor '%s'", name->text);
        return status;
    }
    name->value = label ? ir_graph_add_constant(name->scope->graph, label, &tensor) : NULL;
    if (!name->value)
        return onnx_oom(im);
    name->value->stored = name->kind != ONNX_NAME_CONSTANT;
    name->kind = ONNX_NAME_VALUE;
    return GQAC_OK;
}

gqac_status onnx_scope_value(const onnx_scope *scope, const char *text, ir_value **value) {
    importer *im = scope->im;
    *value = NULL;
    if (!*text)
        return GQAC_OK;
    onnx_name *name = onnx_scope_find_all(scope, text);
    if (!name)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the value '%s' is not defined", text);
    if (name->kind == ONNX_NAME_PENDING)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the value '%s' is used before it is defined",
                  text);
    if (name->kind == ONNX_NAME_HOLE)
        return GQAC_OK;
    if (name->kind == ONNX_NAME_SEQUENCE) {
        gqac_diag_set(im->diag, GQAC_UNSUPPORTED, "it is used where only tensors are supported");
        GQAC_TRY(onnx_tally_name(im, "sequence", name));
    } else if (name->kind != ONNX_NAME_VALUE) {
        GQAC_TRY(make_constant(name));
    }
    *value = name->value;
    return GQAC_OK;
}

gqac_status onnx_scope_alias(const onnx_scope *scope, const char *text, onnx_name *name) {
    name->sequence = onnx_sequence_find(scope, text);
    name->kind = ONNX_NAME_SEQUENCE;
    if (name->sequence)
        return GQAC_OK;
    GQAC_TRY(onnx_scope_value(scope, text, &name->value));
    name->kind = name->value ? ONNX_NAME_VALUE : ONNX_NAME_HOLE;
    return GQAC_OK;
}
