/* Expressions of templates: tokens to a tree, by recursive descent with bounded nesting. The
 * grammar is Jinja's, in which powers associate to the left and filters bind to the operand next to
 * them. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

static bool is_op(const jtoken *token, uint8_t op) {
    return token->type == T_OP && token->op == op;
}

static void unexpected(jparser *p, const char *wanted) {
    const jtoken *t = jinja_peek(p);
    if (t->type == T_EOF || t->type == T_TEXT)
        jinja_refuse(p, GQAC_INVALID_MODEL, t->line, "the template ends where %s is expected",
                     wanted);
    else if (t->type == T_TAG_END || t->type == T_PRINT_END)
        jinja_refuse(p, GQAC_INVALID_MODEL, t->line, "the tag ends where %s is expected", wanted);
    else
        jinja_refuse(p, GQAC_INVALID_MODEL, t->line, "found '%.*s' where %s is expected",
                     (int)(t->n < 60 ? t->n : 60), t->s, wanted);
}

void jinja_expect_op(jparser *p, uint8_t op) {
    char wanted[] = {'\'', (char)op, '\'', '\0'};
    if (!jinja_take_op(p, op))
        unexpected(p, wanted);
}

static jnode *constant(jparser *p, uint32_t line, jvalue value) {
    jnode *node = jinja_seal(p, jinja_node(p, N_CONST, line));
    if (node)
        node->value = value;
    return node;
}

static jnode *join(jparser *p, jkind kind, uint8_t op, uint32_t line, jnode *a, jnode *b) {
    jnode *node = jinja_node(p, kind, line);
    if (!node)
        return NULL;
    node->op = op;
    node->a = a;
    node->b = b;
    return jinja_seal(p, node);
}

static void set_name(jnode *node, const jtoken *token) {
    if (node) {
        node->s = token->s;
        node->n = token->n;
    }
}

/* ---- primary ------------------------------------------------------------- */

static jnode *parse_strings(jparser *p) {
    const jtoken *first = jinja_peek(p);
    size_t from = p->at, n = 0;
    while (jinja_peek(p)->type == T_STR)
        n += jinja_take(p)->n;
    char *text = jinja_keep(p, n + 1);
    if (!text)
        return NULL;
    for (size_t i = from, at = 0; i < p->at; at += p->tokens[i++].n)
        memcpy(text + at, p->tokens[i].s, p->tokens[i].n);
    return constant(p, first->line, jinja_view(text, n));
}

/* Takes the comma before another element; false: there is none. `close` ends the elements, also
 * after a comma. */
static bool take_comma(jparser *p, bool first, uint8_t close) {
    if (!first && !is_op(jinja_peek(p), close))
        jinja_expect_op(p, ',');
    return p->status == GQAC_OK && !is_op(jinja_peek(p), close);
}

static jnode *parse_list(jparser *p) {
    jnode *node = jinja_node(p, N_LIST, jinja_take(p)->line);
    if (!node)
        return NULL;
    for (jnode **tail = &node->a; take_comma(p, !node->a, ']');) {
        *tail = jinja_parse_expr(p);
        if (*tail)
            tail = &(*tail)->next;
    }
    jinja_expect_op(p, ']');
    return jinja_seal(p, node);
}

static jnode *parse_dict(jparser *p) {
    jnode *node = jinja_node(p, N_DICT, jinja_take(p)->line);
    if (!node)
        return NULL;
    for (jnode **tail = &node->a; take_comma(p, !node->a, '}');) {
        *tail = jinja_parse_expr(p);
        jinja_expect_op(p, ':');
        if (!*tail || p->status != GQAC_OK)
            return NULL;
        tail = &(*tail)->next;
        *tail = jinja_parse_expr(p);
        if (*tail)
            tail = &(*tail)->next;
    }
    jinja_expect_op(p, '}');
    return jinja_seal(p, node);
}

static bool tuple_end(const jtoken *t) {
    return t->type == T_EOF || t->type == T_PRINT_END || t->type == T_TAG_END || is_op(t, ')');
}

jnode *jinja_parse_elements(jparser *p, bool parentheses, bool flag,
                            jnode *(*element)(jparser *p, bool flag)) {
    jnode *node = jinja_node(p, N_TUPLE, jinja_peek(p)->line);
    if (!node)
        return NULL;
    jnode **tail = &node->a;
    bool tuple = false;
    while (p->status == GQAC_OK && !tuple_end(jinja_peek(p)) &&
           !(tuple && jinja_is_name(jinja_peek(p), "in"))) {
        *tail = element(p, flag);
        if (!*tail || !jinja_take_op(p, ','))
            break;
        tail = &(*tail)->next;
        tuple = true;
    }
    if (tuple)
        return jinja_seal(p, node);
    if (node->a)
        return node->a;
    if (!parentheses)
        unexpected(p, "an expression");
    return jinja_seal(p, node);
}

static jnode *parse_or(jparser *p);

static jnode *parse_element(jparser *p, bool conditional) {
    return conditional ? jinja_parse_expr(p) : parse_or(p);
}

jnode *jinja_parse_tuple(jparser *p, bool conditional) {
    return jinja_parse_elements(p, false, conditional, parse_element);
}

static jnode *parse_primary(jparser *p) {
    const jtoken *t = jinja_peek(p);
    jvalue value;
    if (t->type == T_STR)
        return parse_strings(p);
    if (is_op(t, '['))
        return parse_list(p);
    if (is_op(t, '{'))
        return parse_dict(p);
    if (is_op(t, '(')) {
        jinja_take(p);
        jnode *inner = jinja_parse_elements(p, true, true, parse_element);
        jinja_expect_op(p, ')');
        return inner;
    }
    if (t->type != T_NAME && t->type != T_INT && t->type != T_FLOAT) {
        unexpected(p, "an expression");
        return NULL;
    }
    jinja_take(p);
    if (t->type == T_INT)
        return constant(p, t->line, jinja_int(t->i));
    if (t->type == T_FLOAT)
        return constant(p, t->line, jinja_float(t->f));
    if (jinja_named_constant(t, &value))
        return constant(p, t->line, value);
    jnode *node = jinja_seal(p, jinja_node(p, N_NAME, t->line));
    set_name(node, t);
    return node;
}

/* ---- what follows a primary ---------------------------------------------- */

static jnode *parse_args(jparser *p) {
    jnode *first = NULL, **tail = &first;
    bool named = false;
    jinja_expect_op(p, '(');
    while (take_comma(p, !first, ')')) {
        const jtoken *t = jinja_peek(p);
        jnode *arg = jinja_node(p, N_ARG, t->line);
        if (!arg)
            break;
        if (jinja_take_op(p, '*'))
            arg->op = 1;
        else if (jinja_take_op(p, JOP_POW))
            arg->op = 2;
        else if (t->type == T_NAME && is_op(t + 1, '=')) {
            set_name(arg, t);
            p->at += 2;
        } else if (named)
            jinja_refuse(p, GQAC_INVALID_MODEL, t->line,
                         "an argument without a name follows named arguments");
        named = named || arg->s || arg->op == 2;
        jinja_check_once(p, first, arg);
        arg->a = jinja_parse_expr(p);
        *tail = jinja_seal(p, arg);
        tail = &arg->next;
    }
    jinja_expect_op(p, ')');
    return first;
}

static jnode *parse_index(jparser *p) {
    const jtoken *t = jinja_peek(p);
    jnode *parts[3] = {NULL};
    int colons = 0;
    for (; p->status == GQAC_OK; colons++) {
        t = jinja_peek(p);
        if (!is_op(t, ':') && !is_op(t, ']') && !is_op(t, ','))
            parts[colons] = jinja_parse_expr(p);
        if (colons == 2 || !jinja_take_op(p, ':'))
            break;
    }
    if (colons == 0) {
        if (!parts[0])
            unexpected(p, "an index");
        return parts[0];
    }
    jnode *node = jinja_node(p, N_SLICE, t->line);
    if (!node)
        return NULL;
    node->a = parts[0];
    node->b = parts[1];
    node->c = parts[2];
    return jinja_seal(p, node);
}

/* One index is that index; none or several are a tuple, which may have no slices. */
static jnode *parse_indices(jparser *p, uint32_t line) {
    const bool empty = is_op(jinja_peek(p), ']');
    jnode *index = empty ? NULL : parse_index(p);
    if (!empty && !is_op(jinja_peek(p), ','))
        return index;
    jnode *tuple = jinja_node(p, N_TUPLE, line);
    if (!tuple)
        return NULL;
    tuple->a = index;
    for (; index; index = index->next = jinja_take_op(p, ',') ? parse_index(p) : NULL)
        if (index->kind == N_SLICE)
            jinja_refuse(p, GQAC_INVALID_MODEL, line, "a slice stands beside another index");
    return jinja_seal(p, tuple);
}

static jnode *parse_subscript(jparser *p, jnode *of) {
    uint32_t line = jinja_peek(p)->line;
    if (jinja_take_op(p, '.')) {
        const jtoken *t = jinja_take(p);
        if (t->type == T_INT)
            return join(p, N_ITEM, 0, line, of, constant(p, line, jinja_int(t->i)));
        if (t->type != T_NAME) {
            jinja_refuse(p, GQAC_INVALID_MODEL, line, "there is no name after '.'");
            return NULL;
        }
        jnode *node = join(p, N_ATTR, 0, line, of, NULL);
        set_name(node, t);
        return node;
    }
    jinja_expect_op(p, '[');
    jnode *index = parse_indices(p, line);
    jinja_expect_op(p, ']');
    return join(p, N_ITEM, 0, line, of, index);
}

static jnode *parse_postfix(jparser *p, jnode *node) {
    while (node && p->status == GQAC_OK) {
        const jtoken *t = jinja_peek(p);
        if (is_op(t, '.') || is_op(t, '['))
            node = parse_subscript(p, node);
        else if (is_op(t, '('))
            node = join(p, N_CALL, 0, t->line, node, parse_args(p));
        else
            break;
    }
    return node;
}

/* A name with dots, as filters and tests may have. */
static const jtoken *parse_dotted(jparser *p, jtoken *name) {
    const jtoken *t = jinja_peek(p);
    if (t->type != T_NAME) {
        unexpected(p, "a name");
        return t;
    }
    *name = *jinja_take(p);
    while (jinja_take_op(p, '.')) {
        const jtoken *more = jinja_take(p);
        if (more->type != T_NAME)
            jinja_refuse(p, GQAC_INVALID_MODEL, more->line, "there is no name after '.'");
        else
            name->n = (size_t)(more->s + more->n - name->s);
    }
    return t;
}

static void refuse_unknown(jparser *p, const char *what, const jtoken *name) {
    jinja_refuse(p, GQAC_UNSUPPORTED, name->line, "the template uses an unknown %s, '%.*s'", what,
                 (int)(name->n < 60 ? name->n : 60), name->s);
}

jnode *jinja_parse_filters(jparser *p, jnode *input, bool begun) {
    while (p->status == GQAC_OK && (begun || jinja_take_op(p, '|'))) {
        jtoken name = {0};
        parse_dotted(p, &name);
        begun = false;
        jnode *node = jinja_node(p, N_FILTER, name.line);
        if (!node)
            return NULL;
        set_name(node, &name);
        node->row = jinja_filter(name.s, name.n);
        if (!node->row)
            refuse_unknown(p, "filter", &name);
        node->a = input;
        if (is_op(jinja_peek(p), '('))
            node->b = parse_args(p);
        input = jinja_seal(p, node);
    }
    return input;
}

static bool begins_argument(const jtoken *t) {
    if (t->type == T_NAME)
        return !jinja_is_name(t, "else") && !jinja_is_name(t, "or") && !jinja_is_name(t, "and");
    return t->type == T_STR || t->type == T_INT || t->type == T_FLOAT || is_op(t, '(') ||
           is_op(t, '[') || is_op(t, '{');
}

static jnode *parse_test(jparser *p, jnode *input) {
    uint32_t line = jinja_take(p)->line;
    bool negated = jinja_take_name(p, "not");
    jtoken name = {0};
    parse_dotted(p, &name);
    jnode *node = jinja_node(p, N_TEST, line);
    if (!node)
        return NULL;
    set_name(node, &name);
    node->row = jinja_test(name.s, name.n);
    if (!node->row)
        refuse_unknown(p, "test", &name);
    node->a = input;
    if (is_op(jinja_peek(p), '(')) {
        node->b = parse_args(p);
    } else if (begins_argument(jinja_peek(p))) {
        if (jinja_is_name(jinja_peek(p), "is"))
            jinja_refuse(p, GQAC_INVALID_MODEL, line, "tests cannot be chained with 'is'");
        if (jinja_nest(p))
            node->b = join(p, N_ARG, 0, line, parse_postfix(p, parse_primary(p)), NULL);
        jinja_unnest(p);
    }
    node = jinja_seal(p, node);
    return negated ? join(p, N_UNARY, JOP_NOT, line, node, NULL) : node;
}

static jnode *parse_suffixes(jparser *p, jnode *node) {
    while (node && p->status == GQAC_OK) {
        const jtoken *t = jinja_peek(p);
        if (is_op(t, '|'))
            node = jinja_parse_filters(p, node, false);
        else if (jinja_is_name(t, "is"))
            node = parse_test(p, node);
        else if (is_op(t, '('))
            node = join(p, N_CALL, 0, t->line, node, parse_args(p));
        else
            break;
    }
    return node;
}

/* ---- operators ----------------------------------------------------------- */

static jnode *parse_unary(jparser *p, bool filters) {
    const jtoken *t = jinja_peek(p);
    jnode *node = NULL;
    if (jinja_nest(p)) {
        if (is_op(t, '-') || is_op(t, '+')) {
            jinja_take(p);
            node = join(p, N_UNARY, t->op, t->line, parse_unary(p, false), NULL);
        } else {
            node = parse_primary(p);
        }
        node = parse_postfix(p, node);
        if (filters)
            node = parse_suffixes(p, node);
    }
    jinja_unnest(p);
    return node;
}

static jnode *parse_power(jparser *p) {
    jnode *left = parse_unary(p, true);
    for (const jtoken *t; left && is_op(t = jinja_peek(p), JOP_POW);) {
        jinja_take(p);
        left = join(p, N_BINARY, t->op, t->line, left, parse_unary(p, true));
    }
    return left;
}

static jnode *parse_product(jparser *p) {
    jnode *left = parse_power(p);
    while (left) {
        const jtoken *t = jinja_peek(p);
        if (!is_op(t, '*') && !is_op(t, '/') && !is_op(t, JOP_FLOORDIV) && !is_op(t, '%'))
            break;
        jinja_take(p);
        left = join(p, N_BINARY, t->op, t->line, left, parse_power(p));
    }
    return left;
}

static jnode *parse_concat(jparser *p) {
    jnode *first = parse_product(p);
    const jtoken *t = jinja_peek(p);
    if (!first || !is_op(t, '~'))
        return first;
    jnode *node = jinja_node(p, N_CONCAT, t->line);
    if (!node)
        return NULL;
    node->a = first;
    for (jnode *last = first; last && jinja_take_op(p, '~'); last = last->next)
        last->next = parse_product(p);
    return jinja_seal(p, node);
}

static jnode *parse_sum(jparser *p) {
    jnode *left = parse_concat(p);
    for (const jtoken *t; left && (is_op(t = jinja_peek(p), '+') || is_op(t, '-'));) {
        jinja_take(p);
        left = join(p, N_BINARY, t->op, t->line, left, parse_concat(p));
    }
    return left;
}

/* Reads the comparison operator that begins here; 0: there is none. */
static uint8_t take_comparison(jparser *p) {
    static const uint8_t ops[] = {JOP_EQ, JOP_NE, '<', JOP_LE, '>', JOP_GE};
    const jtoken *t = jinja_peek(p);
    for (size_t i = 0; i < sizeof ops; i++)
        if (jinja_take_op(p, ops[i]))
            return ops[i];
    if (jinja_take_name(p, "in"))
        return JOP_IN;
    if (jinja_is_name(t, "not") && jinja_is_name(t + 1, "in")) {
        p->at += 2;
        return JOP_NOT_IN;
    }
    return 0;
}

static jnode *parse_compare(jparser *p) {
    jnode *first = parse_sum(p);
    uint32_t line = jinja_peek(p)->line;
    uint8_t op = first ? take_comparison(p) : 0;
    if (!op)
        return first;
    jnode *node = jinja_node(p, N_COMPARE, line);
    if (!node)
        return NULL;
    node->a = first;
    for (jnode **tail = &node->b; op; op = take_comparison(p)) {
        *tail = join(p, N_OPERAND, op, line, parse_sum(p), NULL);
        if (!*tail)
            return NULL;
        tail = &(*tail)->next;
    }
    return jinja_seal(p, node);
}

static jnode *parse_not(jparser *p) {
    const jtoken *t = jinja_peek(p);
    if (!jinja_take_name(p, "not"))
        return parse_compare(p);
    jnode *node = NULL;
    if (jinja_nest(p))
        node = join(p, N_UNARY, JOP_NOT, t->line, parse_not(p), NULL);
    jinja_unnest(p);
    return node;
}

static jnode *parse_and(jparser *p) {
    jnode *left = parse_not(p);
    for (uint32_t line = jinja_peek(p)->line; left && jinja_take_name(p, "and");)
        left = join(p, N_AND, 0, line, left, parse_not(p));
    return left;
}

static jnode *parse_or(jparser *p) {
    jnode *left = parse_and(p);
    for (uint32_t line = jinja_peek(p)->line; left && jinja_take_name(p, "or");)
        left = join(p, N_OR, 0, line, left, parse_and(p));
    return left;
}

jnode *jinja_parse_expr(jparser *p) {
    jnode *node = NULL;
    if (jinja_nest(p)) {
        node = parse_or(p);
        for (uint32_t line = jinja_peek(p)->line; node && jinja_take_name(p, "if");) {
            jnode *cond = jinja_node(p, N_COND, line);
            if (!cond)
                break;
            cond->b = node;
            cond->a = parse_or(p);
            if (jinja_take_name(p, "else"))
                cond->c = jinja_parse_expr(p);
            node = jinja_seal(p, cond);
        }
    }
    jinja_unnest(p);
    return node;
}
