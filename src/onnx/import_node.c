/* Imports one node of the file as one node of the IR.
 *
 * An invalid node fails at once. What is not supported is tallied, and the import continues with
 * placeholders, so that one error can name everything that is not supported. */
#include "onnx/importer.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

const char *onnx_label(const Onnx__NodeProto *node) {
    const char *name = onnx_text(node->name);
    for (size_t i = 0; i < node->n_output && !*name; i++)
        name = node->output[i];
    return name;
}

void onnx_where(importer *im, const Onnx__NodeProto *node) {
    const char *domain = onnx_domain(node->domain);
    gqac_diag_where(im->diag, "node '%s' (%s%s%s)", onnx_label(node), domain, *domain ? "." : "",
                    onnx_text(node->op_type));
}

static gqac_status unsupported(importer *im, const Onnx__NodeProto *node, const char *reason) {
    gqac_diag_set(im->diag, GQAC_UNSUPPORTED, "%s", reason);
    return onnx_tally_failure(im, node);
}

gqac_status onnx_count_operands(importer *im, size_t n) {
    im->work += (int64_t)n;
    if (im->work > ONNX_MAX_WORK)
        GQAC_FAIL(im->diag, GQAC_LIMIT,
                  "the graph has more than %d operands after functions are inlined", ONNX_MAX_WORK);
    return GQAC_OK;
}

static gqac_status count_work(onnx_scope *scope, const Onnx__NodeProto *node) {
    importer *im = scope->im;
    if (++im->nodes > im->limits.nodes)
        return gqac_limits_fail(im->diag, "nodes", im->limits.nodes,
                                "the graph has more than %lld nodes after functions are inlined",
                                (long long)im->limits.nodes);
    GQAC_TRY(onnx_count_operands(im, 1 + node->n_input + node->n_output + node->n_attribute));
    if (!scope->call)
        return onnx_tally_node(im, node);
    if (++im->inlined > ONNX_MAX_INLINED)
        GQAC_FAIL(im->diag, GQAC_LIMIT, "more than %d nodes come from calls of functions",
                  ONNX_MAX_INLINED);
    return GQAC_OK;
}

/* ---- inputs and outputs -------------------------------------------------- */

static gqac_status find_inputs(const onnx_scope *scope, const Onnx__NodeProto *node,
                               ir_value ***out) {
    ir_value **inputs = GQAC_ARENA_ARRAY(scope->im->scratch, ir_value *, node->n_input);
    if (!inputs)
        return onnx_oom(scope->im);
    for (size_t i = 0; i < node->n_input; i++)
        GQAC_TRY(onnx_scope_value(scope, node->input[i], &inputs[i]));
    *out = inputs;
    return GQAC_OK;
}

static void set_output(const onnx_scope *scope, const char *text, ir_value *value) {
    onnx_name *name = onnx_scope_find(scope, text);
    name->kind = ONNX_NAME_VALUE;
    name->value = value;
}

gqac_status onnx_pass_over(onnx_scope *scope, const Onnx__NodeProto *node, const char *reason) {
    importer *im = scope->im;
    ir_graph *nested;
    ir_value *input;
    GQAC_TRY(unsupported(im, node, reason));
    for (size_t i = 0; i < node->n_input; i++)
        if (!onnx_sequence_find(scope, node->input[i]))
            GQAC_TRY(onnx_scope_value(scope, node->input[i], &input));
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->g)
            GQAC_TRY(onnx_import_nested(scope, node->attribute[i]->g, &nested));
    for (size_t i = 0; i < node->n_output; i++) {
        if (!*node->output[i])
            continue;
        ir_value *value = onnx_placeholder(im, node->output[i]);
        if (!value)
            return onnx_oom(im);
        set_output(scope, node->output[i], value);
    }
    return GQAC_OK;
}

static gqac_status build(onnx_scope *scope, const Onnx__NodeProto *proto, const gqac_op *op,
                         ir_node **out) {
    importer *im = scope->im;
    ir_value **inputs = NULL;
    GQAC_TRY(find_inputs(scope, proto, &inputs));
    const char **labels = GQAC_ARENA_ARRAY(im->scratch, const char *, proto->n_output);
    for (size_t i = 0; labels && i < proto->n_output; i++) {
        labels[i] = *proto->output[i] ? onnx_scope_label(scope, proto->output[i]) : "";
        if (!labels[i])
            return onnx_oom(im);
    }
    const char *name = onnx_scope_label(scope, onnx_text(proto->name));
    if (!labels || !name)
        return onnx_oom(im);
    ir_node *node = ir_node_create(scope->graph, &op->schema, name, (int)proto->n_input, inputs,
                                   (int)proto->n_output, labels);
    if (!node)
        return onnx_oom(im);
    ir_node_insert(node, NULL);
    *out = node;
    return GQAC_OK;
}

/* ---- checks after the upgrade -------------------------------------------- */

/* Fails because there are too many operands: an error in ONNX's own domain, in others a newer
 * version of the op. */
static gqac_status too_many(importer *im, const ir_node *node, const char *what, int have,
                            int most) {
    GQAC_FAIL(im->diag, *node->op->domain ? GQAC_UNSUPPORTED : GQAC_INVALID_MODEL,
              "the node has %d %s, but the op has at most %d", have, what, most);
}

static gqac_status check_arity(importer *im, ir_node *node) {
    int least, most;
    ir_schema_arity(node->op->inputs, &least, &most);
    while (node->n_inputs > most && !node->inputs[node->n_inputs - 1].value)
        node->n_inputs--;
    if (node->n_inputs > most)
        return too_many(im, node, "inputs", node->n_inputs, most);
    if (node->n_inputs < least)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                  "the node has %d inputs, but the op needs at least %d", node->n_inputs, least);
    for (int i = 0; i < node->n_inputs; i++)
        if (!node->inputs[i].value && ir_schema_kind(node->op->inputs, i) != IR_OPTIONAL) {
            char name[64];
            ir_schema_name(node->op->inputs, i, name, sizeof name);
            GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "input '%s' is missing", name);
        }
    ir_schema_arity(node->op->outputs, &least, &most);
    while (node->n_outputs > most && !node->outputs[node->n_outputs - 1])
        node->n_outputs--;
    if (node->n_outputs > most)
        return too_many(im, node, "outputs", node->n_outputs, most);
    if (node->n_outputs < least)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                  "the node has %d outputs, but the op has at least %d", node->n_outputs, least);
    return GQAC_OK;
}

static gqac_status check_attrs(importer *im, const Onnx__NodeProto *proto, const ir_node *node,
                               const raw_attrs *raw) {
    for (int i = 0; i < raw->count; i++) {
        char reason[ONNX_MAX_NAME + 64];
        if (raw->taken[i])
            continue;
        snprintf(reason, sizeof reason, "attribute %s is not supported", raw->names[i]);
        GQAC_TRY(unsupported(im, proto, reason));
    }
    int i = 0;
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++, i++)
        if (spec->required && !node->attrs[i].set)
            GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "attribute '%s' is missing", spec->name);
    return GQAC_OK;
}

static gqac_status upgrade(importer *im, const gqac_op *op, ir_node *node, int64_t opset,
                           const raw_attrs *raw, ir_value **results) {
    if (!op->upgrade || opset >= op->schema.since)
        return GQAC_OK;
    op_raw_attrs attrs = {raw->count, raw->names, raw->kinds, raw->values, raw->taken, results};
    ir_builder b = {.graph = node->graph, .before = node, .diag = im->diag};
    gqac_status status = op->upgrade(&b, node, (int)opset, &attrs);
    return status == GQAC_OK ? b.status : status;
}

/* Attributes, upgrade, arity, verify. Hooks name the node themselves. */
static gqac_status complete(onnx_scope *scope, const Onnx__NodeProto *proto, const gqac_op *op,
                            ir_node *node, int64_t opset, ir_value **results) {
    importer *im = scope->im;
    raw_attrs raw;
    GQAC_TRY(onnx_raw_create(im, proto->n_attribute, &raw));
    gqac_status status = onnx_import_attrs(scope, proto, node, &raw);
    if (status != GQAC_OK || raw.bad) {
        if (status != GQAC_OK)
            onnx_where(im, proto);
        gqac_free(raw.values);
        return status;
    }
    status = upgrade(im, op, node, opset, &raw, results);
    if (status == GQAC_OK)
        status = check_attrs(im, proto, node, &raw);
    if (status == GQAC_OK)
        status = check_arity(im, node);
    if (status == GQAC_OK && op->verify)
        status = op->verify(node, im->diag);
    gqac_free(raw.values);
    if (status == GQAC_UNSUPPORTED)
        return onnx_tally_failure(im, proto);
    if (status != GQAC_OK && !im->diag->where[0])
        onnx_where(im, proto);
    return status;
}

/* ---- the node ------------------------------------------------------------ */

static gqac_status import_constant(onnx_scope *scope, const Onnx__NodeProto *node) {
    importer *im = scope->im;
    const Onnx__AttributeProto *attr;
    if (node->n_input || node->n_output != 1 || node->n_attribute != 1)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL,
                  "Constant must have one attribute, one output and no input");
    GQAC_TRY(onnx_attr_resolve(scope, node->attribute[0], &attr));
    if (!attr)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the caller does not set the attribute '%s'",
                  onnx_text(node->attribute[0]->ref_attr_name));
    /* the value of a reference has the caller's name for it */
    Onnx__AttributeProto *own = gqac_arena_copy(im->scratch, attr, sizeof *attr);
    if (!own)
        return onnx_oom(im);
    own->name = node->attribute[0]->name;
    gqac_status status = onnx_constant_check(scope, own);
    if (!*node->output[0])
        return status == GQAC_UNSUPPORTED ? onnx_tally_failure(im, node) : status;
    onnx_name *name = onnx_scope_find(scope, node->output[0]);
    if (status != GQAC_OK)
        return status == GQAC_UNSUPPORTED ? onnx_tally_name(im, "Constant", name) : status;
    name->kind = ONNX_NAME_CONSTANT;
    name->constant = own;
    return GQAC_OK;
}

/* Returns why the row does not cover the version of the domain; NULL: it does. */
static const char *wrong_version(importer *im, const gqac_op *op, int64_t opset) {
    if (!*op->schema.domain && opset < ONNX_OLDEST_OPSET)
        return gqac_arena_printf(im->scratch,
                                 "opset %lld is older than %d, the oldest that is supported",
                                 (long long)opset, ONNX_OLDEST_OPSET);
    if (opset < op->schema.introduced)
        return gqac_arena_printf(im->scratch,
                                 "opset %lld is older than the op, which was added in opset %d",
                                 (long long)opset, op->schema.introduced);
    if (op->schema.until && opset > op->schema.until)
        return gqac_arena_printf(im->scratch,
                                 "opset %lld is newer than %d, the last that has the op",
                                 (long long)opset, op->schema.until);
    return NULL;
}

static gqac_status import_op(onnx_scope *scope, const Onnx__NodeProto *node, bool *placed) {
    importer *im = scope->im;
    const char *domain = onnx_domain(node->domain), *type = onnx_text(node->op_type);
    *placed = false;
    GQAC_TRY(count_work(scope, node));
    if (!*type)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the node has no op_type");
    if (!*domain && strcmp(type, "Constant") == 0)
        return import_constant(scope, node);
    /* gqac's own ops do not occur in ONNX files */
    const gqac_op *op = strcmp(domain, "gqac") == 0 ? NULL : op_find(domain, type);
    if (!op) {
        const Onnx__FunctionProto *function = onnx_function_find(im, node);
        if (function)
            return onnx_import_call(scope, node, function);
    }
    int64_t opset = onnx_opset(scope, domain);
    if (!opset)
        GQAC_FAIL(im->diag, GQAC_INVALID_MODEL, "the domain '%s' is not imported", domain);
    if (onnx_sequence_handles(scope, node))
        return onnx_import_sequence(scope, node);
    if (!op)
        return onnx_pass_over(scope, node, "unknown op");
    const char *wrong = wrong_version(im, op, opset);
    if (wrong)
        return onnx_pass_over(scope, node, wrong);
    ir_node *built = NULL;
    GQAC_TRY(build(scope, node, op, &built));
    *placed = true;
    ir_value **outputs = /* the upgrade may have fewer, or others */
        gqac_arena_copy(im->scratch, built->outputs, node->n_output * sizeof *outputs);
    if (!outputs && node->n_output)
        return onnx_oom(im);
    GQAC_TRY(complete(scope, node, op, built, opset, outputs));
    /* Not earlier, because nested graphs may use the names of the node's outputs. */
    for (size_t i = 0; i < node->n_output; i++)
        if (outputs[i])
            set_output(scope, node->output[i], outputs[i]);
    return GQAC_OK;
}

gqac_status onnx_import_node(onnx_scope *scope, const Onnx__NodeProto *node) {
    bool placed;
    gqac_status status = import_op(scope, node, &placed);
    if (status != GQAC_OK && !placed)
        onnx_where(scope->im, node);
    return status;
}
