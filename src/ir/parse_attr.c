/* The parser of attributes: `{name=value, ...}` after a node's inputs. The op's schema determines
 * the kind of each value. Attributes that are not written get their default. */
#include "ir/parse_impl.h"

#include <string.h>

/* Appends a number, or a pointer to a string, of a list to p->items. */
static gqac_status parse_item(ir_parser *p, ir_attr_kind kind) {
    ir_lexer *lexer = &p->lexer;
    if (kind == IR_ATTR_INTS) {
        int64_t value;
        GQAC_TRY(ir_lex_int(lexer, INT64_MIN, INT64_MAX, &value));
        gqac_str_append_n(&p->items, (const char *)&value, sizeof value);
    } else if (kind == IR_ATTR_FLOATS) {
        float value;
        GQAC_TRY(ir_lex_float(lexer, &value));
        gqac_str_append_n(&p->items, (const char *)&value, sizeof value);
    } else {
        GQAC_TRY(ir_lex_string(lexer, &p->word));
        const char *text = gqac_arena_strndup(p->module->arena, p->word.text, p->word.length);
        if (!text)
            return ir_parse_oom(p);
        gqac_str_append_n(&p->items, (const char *)&text, sizeof text);
    }
    return p->items.failed ? ir_parse_oom(p) : GQAC_OK;
}

static gqac_status parse_list(ir_parser *p, ir_attr_kind kind, ir_attr *attr) {
    ir_lexer *lexer = &p->lexer;
    p->items.length = 0;
    GQAC_TRY(ir_lex_expect(lexer, "["));
    if (!ir_lex_take(lexer, "]")) {
        do {
            GQAC_TRY(parse_item(p, kind));
            attr->count++;
        } while (ir_lex_take(lexer, ","));
        GQAC_TRY(ir_lex_expect(lexer, "]"));
    }
    const void *items =
        gqac_arena_copy(p->module->arena, attr->count ? p->items.text : "", p->items.length);
    if (!items)
        return ir_parse_oom(p);
    if (kind == IR_ATTR_INTS)
        attr->ints = items;
    else if (kind == IR_ATTR_FLOATS)
        attr->floats = items;
    else
        attr->strings = items;
    return GQAC_OK;
}

static gqac_status parse_tensor_attr(ir_parser *p, ir_attr *attr) {
    gqac_tensor tensor;
    GQAC_TRY(ir_parse_tensor(p, &tensor, NULL));
    attr->tensor = gqac_arena_copy(p->module->arena, &tensor, sizeof tensor);
    return attr->tensor ? GQAC_OK : ir_parse_oom(p);
}

static gqac_status parse_value(ir_parser *p, ir_node *node, ir_attr_kind kind, ir_attr *attr) {
    ir_lexer *lexer = &p->lexer;
    switch (kind) {
    case IR_ATTR_INT:
        return ir_lex_int(lexer, INT64_MIN, INT64_MAX, &attr->i);
    case IR_ATTR_FLOAT:
        return ir_lex_float(lexer, &attr->f);
    case IR_ATTR_STRING:
        GQAC_TRY(ir_lex_string(lexer, &p->word));
        attr->s = gqac_arena_strndup(p->module->arena, p->word.text, p->word.length);
        return attr->s ? GQAC_OK : ir_parse_oom(p);
    case IR_ATTR_INTS:
    case IR_ATTR_FLOATS:
    case IR_ATTR_STRINGS:
        return parse_list(p, kind, attr);
    case IR_ATTR_TENSOR:
        return parse_tensor_attr(p, attr);
    case IR_ATTR_GRAPH:
        return ir_parse_graph(p, node, p->depth + 1, &attr->graph);
    case IR_ATTR_DTYPE:
        return ir_parse_dtype(p, &attr->dtype);
    }
    return GQAC_INTERNAL;
}

static gqac_status parse_attr(ir_parser *p, ir_node *node) {
    ir_lexer *lexer = &p->lexer;
    ir_lex_skip(lexer);
    const char *start = lexer->at;
    GQAC_TRY(ir_lex_ident(lexer, &p->word, "the name of an attribute"));
    const ir_attr_spec *spec = node->op->attrs;
    while (spec && spec->name && strcmp(spec->name, p->word.text) != 0)
        spec++;
    if (!spec || !spec->name)
        return ir_lex_fail(lexer, start, "%s has no attribute '%.100s'", node->op->name,
                           p->word.text);
    ir_attr *attr = &node->attrs[spec - node->op->attrs];
    if (attr->set)
        return ir_lex_fail(lexer, start, "attribute '%s' is given twice", spec->name);
    GQAC_TRY(ir_lex_expect(lexer, "="));
    attr->set = true;
    return parse_value(p, node, spec->kind, attr);
}

gqac_status ir_parse_attrs(ir_parser *p, ir_node *node, const char *at) {
    ir_lexer *lexer = &p->lexer;
    /* defaults come last, so that until then `set` is true for the attributes that the text has */
    int n = 0;
    for (const ir_attr_spec *spec = node->op->attrs; spec && spec->name; spec++)
        memset(&node->attrs[n++], 0, sizeof *node->attrs);
    if (ir_lex_take(lexer, "{")) {
        do
            GQAC_TRY(parse_attr(p, node));
        while (ir_lex_take(lexer, ","));
        GQAC_TRY(ir_lex_expect(lexer, "}"));
    }
    for (int i = 0; i < n; i++) {
        const ir_attr_spec *spec = &node->op->attrs[i];
        if (node->attrs[i].set)
            continue;
        if (spec->required)
            return ir_lex_fail(lexer, at, "%s needs the attribute '%s'", node->op->name,
                               spec->name);
        node->attrs[i] = spec->fallback;
    }
    return GQAC_OK;
}
