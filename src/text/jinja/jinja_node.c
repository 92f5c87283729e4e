/* Shared by the parsers of expressions and of tags: failures, nodes, tokens, and the targets of
 * assignments. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja_impl.h"

void jinja_refuse(jparser *p, gqac_status status, uint32_t line, const char *fmt, ...) {
    char text[512];
    if (p->status != GQAC_OK)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    p->status = gqac_diag_set(p->diag, status, "%s", text);
    gqac_diag_where(p->diag, "chat template, line %u", line);
    if (status == GQAC_LIMIT)
        gqac_diag_rule(p->diag, "a chat template stays within the limits of gqac");
    else
        gqac_diag_rule(p->diag, "a chat template is Jinja as transformers runs it");
    gqac_diag_hint(p->diag, "use another chat template, or rewrite this line");
}

void *jinja_keep(jparser *p, size_t bytes) {
    if (p->status != GQAC_OK)
        return NULL;
    void *memory = gqac_arena_calloc(p->arena, 1, bytes);
    if (!memory)
        p->status = gqac_diag_oom(p->diag, "a template");
    return memory;
}

/* ---- nodes and tokens ---------------------------------------------------- */

jnode *jinja_node(jparser *p, jkind kind, uint32_t line) {
    jnode *node = jinja_keep(p, sizeof *node);
    if (node) {
        node->kind = (uint8_t)kind;
        node->line = line;
    }
    return node;
}

void jinja_check_once(jparser *p, const jnode *first, const jnode *node) {
    int n = 0;
    for (; node->s && first && p->status == GQAC_OK; first = first->next) {
        if (first->s && first->n == node->n && !memcmp(first->s, node->s, node->n))
            jinja_refuse(p, GQAC_INVALID_MODEL, node->line, "the name '%.*s' occurs twice",
                         (int)(node->n < 60 ? node->n : 60), node->s);
        else if (++n == JINJA_NAMES)
            jinja_refuse(p, GQAC_LIMIT, node->line,
                         "there are more than %d parameters or arguments", JINJA_NAMES);
    }
}

jnode *jinja_seal(jparser *p, jnode *node) {
    if (!node)
        return NULL;
    unsigned height = 0;
    const jnode *kids[] = {node->a, node->b, node->c, node->d, node->e};
    for (size_t i = 0; i < sizeof kids / sizeof *kids; i++)
        for (const jnode *kid = kids[i]; kid; kid = kid->next)
            height = kid->height > height ? kid->height : height;
    node->height = (uint16_t)(height + 1);
    if (node->height > JINJA_HEIGHT)
        jinja_refuse(p, GQAC_LIMIT, node->line,
                     "expressions and tags are nested more than %d levels deep", JINJA_HEIGHT);
    return node;
}

const jtoken *jinja_peek(const jparser *p) {
    static const jtoken end = {.type = T_EOF, .s = ""};
    return p->status == GQAC_OK ? &p->tokens[p->at] : &end;
}

const jtoken *jinja_take(jparser *p) {
    const jtoken *token = jinja_peek(p);
    if (token->type != T_EOF)
        p->at++;
    return token;
}

bool jinja_is_name(const jtoken *token, const char *name) {
    return token->type == T_NAME && token->n == strlen(name) && !memcmp(token->s, name, token->n);
}

bool jinja_take_name(jparser *p, const char *name) {
    bool is = jinja_is_name(jinja_peek(p), name);
    if (is)
        jinja_take(p);
    return is;
}

bool jinja_take_op(jparser *p, uint8_t op) {
    const jtoken *t = jinja_peek(p);
    bool is = t->type == T_OP && t->op == op;
    if (is)
        jinja_take(p);
    return is;
}

bool jinja_nest(jparser *p) {
    if (++p->nesting > JINJA_NESTING)
        jinja_refuse(p, GQAC_LIMIT, jinja_peek(p)->line,
                     "expressions are nested more than %d levels deep", JINJA_NESTING);
    return p->status == GQAC_OK;
}

void jinja_unnest(jparser *p) {
    p->nesting--;
}

bool jinja_named_constant(const jtoken *t, jvalue *value) {
    *value = jinja_none;
    if (jinja_is_name(t, "none") || jinja_is_name(t, "None"))
        return true;
    bool yes = jinja_is_name(t, "true") || jinja_is_name(t, "True");
    *value = jinja_bool(yes);
    return yes || jinja_is_name(t, "false") || jinja_is_name(t, "False");
}

/* ---- targets ------------------------------------------------------------- */

static jnode *parse_target_name(jparser *p, bool namespaces) {
    const jtoken *t = jinja_take(p);
    jvalue value;
    if (t->type == T_OP && t->op == '(') {
        jnode *inner = jinja_parse_target(p, namespaces, true);
        jinja_expect_op(p, ')');
        return inner;
    }
    if (t->type != T_NAME || jinja_named_constant(t, &value)) {
        jinja_refuse(p, GQAC_INVALID_MODEL, t->line, "'%.*s' cannot be assigned to",
                     (int)(t->n < 60 ? t->n : 60), t->s);
        return NULL;
    }
    jnode *node = jinja_node(p, N_NAME, t->line);
    if (!node)
        return NULL;
    node->s = t->s;
    node->n = t->n;
    jinja_seal(p, node);
    if (!namespaces || !jinja_take_op(p, '.'))
        return node;
    const jtoken *attribute = jinja_take(p);
    if (attribute->type != T_NAME)
        jinja_refuse(p, GQAC_INVALID_MODEL, t->line, "there is no name after '.'");
    jnode *ref = jinja_node(p, N_NSREF, t->line);
    if (!ref)
        return NULL;
    ref->a = node;
    ref->s = attribute->s;
    ref->n = attribute->n;
    return jinja_seal(p, ref);
}

jnode *jinja_parse_target(jparser *p, bool namespaces, bool tuple) {
    jnode *node = NULL;
    if (!tuple)
        return parse_target_name(p, namespaces);
    if (jinja_nest(p))
        node = jinja_parse_elements(p, false, namespaces, parse_target_name);
    jinja_unnest(p);
    return node;
}
