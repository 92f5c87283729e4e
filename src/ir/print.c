/* The printer of the text form (docs/ir.md).
 *
 * The text depends only on the module's structure, not on addresses or the order of creation.
 * Defaults are left out, so that printing what was parsed gives the same bytes. Nested graphs are
 * printed by recursion; the verifier limits their depth. */
#include "ir/text.h"

#include <string.h>

typedef struct printer {
    gqac_str *out;
    const ir_module *module;
    ir_print_mode mode;
    int depth;
} printer;

static void print_graph(printer *p, const ir_graph *graph);

void ir_print_quoted(gqac_str *out, const char *text) {
    size_t length = strlen(text);
    bool utf8 = gqac_utf8_valid(text, length);
    gqac_str_append(out, "\"");
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            gqac_str_printf(out, "\\%c", c);
        else if (c == '\n' || c == '\t' || c == '\r')
            gqac_str_append(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8))
            gqac_str_printf(out, "\\x%02x", c);
        else
            gqac_str_append_n(out, &text[i], 1);
    }
    gqac_str_append(out, "\"");
}

void ir_print_name(gqac_str *out, const char *name) {
    size_t n = 0;
    while (ir_ident_char(name[n]))
        n++;
    if (ir_ident_start(name[0]) && !name[n])
        gqac_str_append(out, name);
    else
        ir_print_quoted(out, name);
}

static void print_value(gqac_str *out, const ir_value *value) {
    if (!value) {
        gqac_str_append(out, "_");
        return;
    }
    gqac_str_append(out, "%");
    ir_print_name(out, value->name);
}

void ir_print_type(gqac_str *out, const ir_type *type) {
    gqac_str_append(out, type->dtype == GQAC_NONE ? "?" : gqac_dtype_name(type->dtype));
    if (type->dtype == GQAC_TOKEN || (type->dtype == GQAC_NONE && type->rank < 0))
        return;
    if (type->rank < 0) {
        gqac_str_append(out, "[*]");
        return;
    }
    gqac_str_append(out, "[");
    for (int i = 0; i < type->rank; i++) {
        gqac_str_append(out, i ? "," : "");
        ir_dim_print(out, type->dims[i]);
    }
    gqac_str_append(out, "]");
}

static void print_slot(gqac_str *out, const ir_value *value) {
    if (value->slot >= 0)
        gqac_str_printf(out, " into %d", value->slot);
}

/* ---- attributes ---------------------------------------------------------- */

static void print_float(gqac_str *out, float f) {
    char text[32];
    gqac_format_float(text, f);
    gqac_str_append(out, text);
}

static void print_list_attr(gqac_str *out, ir_attr_kind kind, const ir_attr *attr) {
    gqac_str_append(out, "[");
    for (size_t i = 0; i < attr->count; i++) {
        gqac_str_append(out, i ? "," : "");
        if (kind == IR_ATTR_INTS)
            gqac_str_printf(out, "%lld", (long long)attr->ints[i]);
        else if (kind == IR_ATTR_FLOATS)
            print_float(out, attr->floats[i]);
        else
            ir_print_quoted(out, attr->strings[i]);
    }
    gqac_str_append(out, "]");
}

static void print_tensor_attr(gqac_str *out, const gqac_tensor *tensor) {
    gqac_str_printf(out, "%s[", gqac_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->rank; i++)
        gqac_str_printf(out, i ? ",%lld" : "%lld", (long long)tensor->dims[i]);
    gqac_str_append(out, "] ");
    ir_print_tensor_data(out, NULL, tensor, NULL, IR_PRINT_FULL);
}

static void print_attr(printer *p, ir_attr_kind kind, const ir_attr *attr) {
    switch (kind) {
    case IR_ATTR_INT:
        gqac_str_printf(p->out, "%lld", (long long)attr->i);
        break;
    case IR_ATTR_FLOAT:
        print_float(p->out, attr->f);
        break;
    case IR_ATTR_STRING:
        ir_print_quoted(p->out, attr->s);
        break;
    case IR_ATTR_INTS:
    case IR_ATTR_FLOATS:
    case IR_ATTR_STRINGS:
        print_list_attr(p->out, kind, attr);
        break;
    case IR_ATTR_TENSOR:
        print_tensor_attr(p->out, attr->tensor);
        break;
    case IR_ATTR_GRAPH:
        print_graph(p, attr->graph);
        break;
    case IR_ATTR_DTYPE:
        gqac_str_append(p->out, gqac_dtype_name(attr->dtype));
        break;
    }
}

static void print_attrs(printer *p, const ir_node *node) {
    bool any = false;
    int i = 0;
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++, i++) {
        const ir_attr *attr = &node->attrs[i];
        if (!attr->set || ir_attr_equal(spec->kind, attr, &spec->fallback))
            continue;
        gqac_str_append(p->out, any ? ", " : " {");
        gqac_str_append(p->out, spec->name);
        gqac_str_append(p->out, "=");
        print_attr(p, spec->kind, attr);
        any = true;
    }
    gqac_str_append(p->out, any ? "}" : "");
}

/* ---- nodes and graphs ---------------------------------------------------- */

static void indent(printer *p) {
    for (int i = 0; i < p->depth; i++)
        gqac_str_append(p->out, "  ");
}

static void print_outputs(printer *p, const ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++) {
        gqac_str_append(p->out, i ? ", " : "");
        print_value(p->out, node->outputs[i]);
    }
    gqac_str_append(p->out, node->n_outputs ? " = " : "");
}

static void print_inputs(printer *p, const ir_node *node) {
    int n = node->n_inputs;
    while (n && !node->inputs[n - 1].value)
        n--;
    for (int i = 0; i < n; i++) {
        gqac_str_append(p->out, i ? ", " : " ");
        print_value(p->out, node->inputs[i].value);
    }
}

static void print_types(printer *p, const ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++) {
        gqac_str_append(p->out, i ? ", " : " : ");
        if (node->outputs[i])
            ir_print_type(p->out, &node->outputs[i]->type);
        else
            gqac_str_append(p->out, "_");
    }
}

static void print_slots(printer *p, const ir_node *node) {
    bool any = false;
    for (int i = 0; i < node->n_outputs; i++)
        any = any || (node->outputs[i] && node->outputs[i]->slot >= 0);
    for (int i = 0; any && i < node->n_outputs; i++) {
        const ir_value *value = node->outputs[i];
        gqac_str_append(p->out, i ? ", " : " into ");
        if (value && value->slot >= 0)
            gqac_str_printf(p->out, "%d", value->slot);
        else
            gqac_str_append(p->out, "_");
    }
}

static void print_node(printer *p, const ir_node *node) {
    const char *domain = node->op->domain;
    indent(p);
    print_outputs(p, node);
    if (*domain && strcmp(domain, "gqac") != 0)
        gqac_str_printf(p->out, "%s.", domain);
    gqac_str_append(p->out, node->op->name);
    print_inputs(p, node);
    print_attrs(p, node);
    print_types(p, node);
    print_slots(p, node);
    if (node->kernel) {
        gqac_str_append(p->out, " via ");
        ir_print_quoted(p->out, node->kernel);
    }
    if (node->name) {
        gqac_str_append(p->out, " loc(");
        ir_print_quoted(p->out, node->name);
        gqac_str_append(p->out, ")");
    }
    gqac_str_append(p->out, "\n");
}

static void print_constant(printer *p, const ir_value *value) {
    indent(p);
    gqac_str_append(p->out, "const ");
    print_value(p->out, value);
    gqac_str_append(p->out, ": ");
    ir_print_type(p->out, &value->type);
    gqac_str_append(p->out, " = ");
    ir_print_tensor_data(p->out, p->module, value->constant, value->digest, p->mode);
    print_slot(p->out, value);
    gqac_str_append(p->out, "\n");
}

static void print_results(printer *p, const ir_graph *graph) {
    indent(p);
    gqac_str_append(p->out, "return");
    for (int i = 0; i < graph->ret->n_inputs; i++) {
        const ir_value *value = graph->ret->inputs[i].value;
        gqac_str_append(p->out, i ? ", " : " ");
        print_value(p->out, value);
        if (value && strcmp(value->name, graph->result_names[i]) != 0) {
            gqac_str_append(p->out, " as ");
            ir_print_quoted(p->out, graph->result_names[i]);
        }
    }
    gqac_str_append(p->out, "\n");
}

static void print_graph(printer *p, const ir_graph *graph) {
    gqac_str_append(p->out, "graph @");
    ir_print_name(p->out, graph->name);
    gqac_str_append(p->out, "(");
    for (int i = 0; i < graph->n_inputs; i++) {
        gqac_str_append(p->out, i ? ", " : "");
        print_value(p->out, graph->inputs[i]);
        gqac_str_append(p->out, ": ");
        ir_print_type(p->out, &graph->inputs[i]->type);
        print_slot(p->out, graph->inputs[i]);
    }
    gqac_str_append(p->out, ") {\n");
    p->depth++;
    for (int i = 0; i < graph->n_constants; i++)
        print_constant(p, graph->constants[i]);
    for (const ir_node *node = graph->first; node; node = node->next)
        print_node(p, node);
    print_results(p, graph);
    p->depth--;
    indent(p);
    gqac_str_append(p->out, "}");
}

void ir_print(gqac_str *out, const ir_module *module, ir_print_mode mode) {
    printer p = {.out = out, .module = module, .mode = mode};
    print_graph(&p, module->graph);
    gqac_str_append(out, "\n");
}
