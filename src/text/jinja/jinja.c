/* Tags of templates: tokens to a tree of statements; and the life of a template. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "text/jinja/jinja_impl.h"

struct jinja {
    gqac_arena *arena;
    const jnode *body;
    size_t steps; /* limit template-steps */
};

/* ---- pieces -------------------------------------------------------------- */

static void take_tag_end(jparser *p) {
    const jtoken *t = jinja_take(p);
    if (t->type != T_TAG_END)
        jinja_refuse(p, GQAC_INVALID_MODEL, t->line,
                     "found '%.*s' where the end of the tag is expected",
                     (int)(t->n < 60 ? t->n : 60), t->s);
}

/* True when a tag with one of the names (a list that ends with NULL) begins here. */
static bool at_end_tag(const jparser *p, const char *const *ends) {
    if (jinja_peek(p)->type != T_TAG)
        return false;
    for (; *ends; ends++)
        if (jinja_is_name(jinja_peek(p) + 1, *ends))
            return true;
    return false;
}

static jnode *parse_statement(jparser *p);

static jnode *parse_piece(jparser *p) {
    const jtoken *t = jinja_take(p);
    if (t->type == T_TAG)
        return parse_statement(p);
    jnode *node = jinja_node(p, t->type == T_TEXT ? N_TEXT : N_PRINT, t->line);
    if (!node)
        return NULL;
    if (t->type == T_TEXT) {
        node->s = t->s;
        node->n = t->n;
        return jinja_seal(p, node);
    }
    node->a = jinja_parse_tuple(p, true);
    t = jinja_take(p);
    if (t->type != T_PRINT_END)
        jinja_refuse(p, GQAC_INVALID_MODEL, t->line, "found '%.*s' where '}}' is expected",
                     (int)(t->n < 60 ? t->n : 60), t->s);
    return jinja_seal(p, node);
}

/* Reads pieces up to a tag with one of the names, and its name; `ends` NULL: up to the end. */
static jnode *parse_body(jparser *p, const char *const *ends) {
    static const char *const none[] = {NULL};
    jnode *first = NULL, **tail = &first;
    uint32_t line = jinja_peek(p)->line;
    if (++p->tags > JINJA_NESTING)
        jinja_refuse(p, GQAC_LIMIT, line, "tags are nested more than %d levels deep",
                     JINJA_NESTING);
    while (jinja_peek(p)->type != T_EOF && !at_end_tag(p, ends ? ends : none)) {
        *tail = parse_piece(p);
        if (*tail)
            tail = &(*tail)->next;
    }
    p->tags--;
    if (!ends)
        return first;
    if (jinja_peek(p)->type == T_EOF)
        jinja_refuse(p, GQAC_INVALID_MODEL, line, "the template ends where '%s' is expected",
                     ends[0]);
    jinja_take(p);
    return first;
}

/* Reads the rest of a tag, its body, and the whole tag `end`. */
static jnode *parse_block(jparser *p, const char *end) {
    const char *const ends[] = {end, NULL};
    take_tag_end(p);
    jnode *body = parse_body(p, ends);
    jinja_take(p);
    take_tag_end(p);
    return body;
}

/* ---- tags ---------------------------------------------------------------- */

static jnode *parse_if(jparser *p, jnode *node) {
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    static const char *const last[] = {"endif", NULL};
    for (jnode **tail = &node->a; p->status == GQAC_OK;) {
        jnode *branch = jinja_node(p, N_BRANCH, jinja_peek(p)->line);
        if (!branch)
            break;
        branch->a = jinja_parse_tuple(p, false);
        take_tag_end(p);
        branch->b = parse_body(p, ends);
        *tail = jinja_seal(p, branch);
        tail = &branch->next;
        const jtoken *end = jinja_take(p);
        if (jinja_is_name(end, "elif"))
            continue;
        if (jinja_is_name(end, "else") && (*tail = branch = jinja_node(p, N_BRANCH, end->line))) {
            take_tag_end(p);
            branch->b = parse_body(p, last);
            jinja_seal(p, branch);
            jinja_take(p);
        }
        take_tag_end(p);
        break;
    }
    return node;
}

static bool targets_loop(const jnode *target) {
    if (target->kind == N_NAME)
        return target->n == 4 && !memcmp(target->s, "loop", 4);
    for (const jnode *kid = target->kind == N_TUPLE ? target->a : NULL; kid; kid = kid->next)
        if (targets_loop(kid))
            return true;
    return false;
}

static jnode *parse_for(jparser *p, jnode *node) {
    static const char *const ends[] = {"endfor", "else", NULL};
    static const char *const last[] = {"endfor", NULL};
    node->a = jinja_parse_target(p, false, true);
    if (node->a && targets_loop(node->a))
        jinja_refuse(p, GQAC_INVALID_MODEL, node->line, "'loop' cannot be a target of a loop");
    if (!jinja_take_name(p, "in"))
        jinja_refuse(p, GQAC_INVALID_MODEL, node->line, "a for tag has no 'in'");
    node->b = jinja_parse_tuple(p, false);
    if (jinja_take_name(p, "if"))
        node->c = jinja_parse_expr(p);
    if (jinja_is_name(jinja_peek(p), "recursive"))
        jinja_refuse(p, GQAC_UNSUPPORTED, node->line,
                     "the template uses a recursive loop, which is not supported");
    take_tag_end(p);
    p->loops++;
    node->d = parse_body(p, ends);
    p->loops--;
    if (jinja_is_name(jinja_take(p), "else")) {
        take_tag_end(p);
        node->e = parse_body(p, last);
        jinja_take(p);
    }
    take_tag_end(p);
    return node;
}

static jnode *parse_set(jparser *p, jnode *node) {
    node->a = jinja_parse_target(p, true, true);
    if (jinja_take_op(p, '=')) {
        node->b = jinja_parse_tuple(p, true);
        take_tag_end(p);
        return node;
    }
    node->kind = N_SETBLOCK;
    node->b = jinja_parse_filters(p, NULL, false);
    node->c = parse_block(p, "endset");
    return node;
}

static jnode *parse_params(jparser *p) {
    jnode *first = NULL, **tail = &first;
    bool defaults = false;
    jinja_expect_op(p, '(');
    while (p->status == GQAC_OK && !jinja_take_op(p, ')')) {
        if (first)
            jinja_expect_op(p, ',');
        jnode *target = jinja_parse_target(p, false, false);
        if (!target || target->kind != N_NAME) {
            jinja_refuse(p, GQAC_INVALID_MODEL, jinja_peek(p)->line, "a parameter is not a name");
            break;
        }
        target->kind = N_PARAM;
        jinja_check_once(p, first, target);
        if (jinja_take_op(p, '=')) {
            target->a = jinja_parse_expr(p);
            defaults = true;
        } else if (defaults) {
            jinja_refuse(p, GQAC_INVALID_MODEL, target->line,
                         "a parameter without a default follows one that has one");
        }
        *tail = jinja_seal(p, target);
        tail = &target->next;
    }
    return first;
}

/* A body of its own, as of a macro: break and continue do not leave it. */
static jnode *parse_apart(jparser *p, const char *end) {
    unsigned loops = p->loops;
    p->loops = 0;
    jnode *body = parse_block(p, end);
    p->loops = loops;
    return body;
}

static jnode *parse_macro(jparser *p, jnode *node) {
    jnode *name = jinja_parse_target(p, false, false);
    if (!name || name->kind != N_NAME) {
        jinja_refuse(p, GQAC_INVALID_MODEL, node->line, "a macro has no name");
        return node;
    }
    node->s = name->s;
    node->n = name->n;
    node->a = parse_params(p);
    node->b = parse_apart(p, "endmacro");
    return node;
}

static jnode *parse_call(jparser *p, jnode *node) {
    const jtoken *t = jinja_peek(p);
    if (t->type == T_OP && t->op == '(')
        node->a = parse_params(p);
    node->c = jinja_parse_expr(p);
    if (node->c && node->c->kind != N_CALL)
        jinja_refuse(p, GQAC_INVALID_MODEL, node->line, "a call tag has no call");
    node->b = parse_apart(p, "endcall");
    return node;
}

static jnode *parse_filter(jparser *p, jnode *node) {
    node->a = jinja_parse_filters(p, NULL, true);
    node->b = parse_block(p, "endfilter");
    return node;
}

static jnode *parse_with(jparser *p, jnode *node) {
    jnode **target = &node->a, **value = &node->b;
    while (p->status == GQAC_OK && jinja_peek(p)->type != T_TAG_END) {
        if (node->a)
            jinja_expect_op(p, ',');
        *target = jinja_parse_target(p, false, false);
        jinja_expect_op(p, '=');
        *value = jinja_parse_expr(p);
        if (!*target || !*value)
            break;
        target = &(*target)->next;
        value = &(*value)->next;
    }
    node->c = parse_block(p, "endwith");
    return node;
}

static jnode *parse_generation(jparser *p, jnode *node) {
    node->a = parse_apart(p, "endgeneration");
    return node;
}

static jnode *parse_jump(jparser *p, jnode *node) {
    if (p->loops == 0)
        jinja_refuse(p, GQAC_INVALID_MODEL, node->line, "break or continue is outside a loop");
    take_tag_end(p);
    return node;
}

static jnode *parse_print(jparser *p, jnode *node) {
    jnode **tail = &node->a;
    while (p->status == GQAC_OK && jinja_peek(p)->type != T_TAG_END) {
        jnode *piece = jinja_node(p, N_PRINT, node->line);
        if (!piece)
            break;
        if (node->a)
            jinja_expect_op(p, ',');
        piece->a = jinja_parse_expr(p);
        *tail = jinja_seal(p, piece);
        tail = &piece->next;
    }
    take_tag_end(p);
    return node;
}

static void refuse_tag(jparser *p, const jtoken *t) {
    static const char *const known[] = {"include", "import",     "from",  "extends",
                                        "block",   "autoescape", "trans", NULL};
    for (size_t i = 0; known[i]; i++)
        if (jinja_is_name(t, known[i]))
            jinja_refuse(p, GQAC_UNSUPPORTED, t->line,
                         "the template uses the tag '%s', which is not supported", known[i]);
    jinja_refuse(p, GQAC_INVALID_MODEL, t->line, "unknown or unexpected tag '%.*s'",
                 (int)(t->n < 60 ? t->n : 60), t->s);
}

static jnode *parse_statement(jparser *p) {
    static const struct {
        const char *name;
        jkind kind;
        jnode *(*parse)(jparser *p, jnode *node);
    } tags[] = {{"if", N_IF, parse_if},
                {"for", N_FOR, parse_for},
                {"set", N_SET, parse_set},
                {"macro", N_MACRO, parse_macro},
                {"call", N_CALLBLOCK, parse_call},
                {"filter", N_FILTERBLOCK, parse_filter},
                {"with", N_WITH, parse_with},
                {"print", N_SCOPE, parse_print},
                {"generation", N_SCOPE, parse_generation},
                {"break", N_BREAK, parse_jump},
                {"continue", N_CONTINUE, parse_jump}};
    const jtoken *t = jinja_take(p);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!jinja_is_name(t, tags[i].name))
            continue;
        jnode *node = jinja_node(p, tags[i].kind, t->line);
        return node ? jinja_seal(p, tags[i].parse(p, node)) : NULL;
    }
    refuse_tag(p, t);
    return NULL;
}

jnode *jinja_parse_body(jparser *p) {
    return parse_body(p, NULL);
}

/* ---- a template ---------------------------------------------------------- */

/* A copy with '\n' for every kind of newline, and without one at the end. */
static void normalise(jparser *p, const char *source, size_t length) {
    char *text = jinja_keep(p, length + 1);
    size_t n = 0;
    if (!text)
        return;
    for (size_t i = 0; i < length; i++) {
        if (source[i] == '\r' && i + 1 < length && source[i + 1] == '\n')
            continue;
        text[n++] = source[i];
        if (source[i] == '\r')
            text[n - 1] = '\n';
    }
    p->n = n > 0 && text[n - 1] == '\n' ? n - 1 : n;
    p->s = text;
}

static void read_template(jparser *p, jinja *j, const char *source, size_t length) {
    if (length > JINJA_SOURCE)
        jinja_refuse(p, GQAC_LIMIT, 1, "the template has %zu bytes; the maximum is %d", length,
                     JINJA_SOURCE);
    else if (!gqac_utf8_valid(source, length))
        jinja_refuse(p, GQAC_INVALID_MODEL, 1, "the template is not UTF-8");
    else
        normalise(p, source, length);
    jinja_lex(p);
    j->body = jinja_parse_body(p);
}

gqac_status jinja_create(const char *source, size_t length, jinja **out, gqac_diag *diag) {
    jinja *j = gqac_calloc(1, sizeof *j);
    if (!j)
        return gqac_diag_oom(diag, "a template");
    gqac_limits limits;
    GQAC_TRY(gqac_limits_take(&limits, NULL, diag)); /* the defaults are right */
    j->steps = (size_t)limits.template_steps;
    j->arena = gqac_arena_create(0);
    jparser p = {.arena = j->arena, .diag = diag};
    if (j->arena)
        read_template(&p, j, source, length);
    else
        p.status = gqac_diag_oom(diag, "a template");
    gqac_free(p.tokens);
    GQAC_RETURN_MADE(p.status, j, out, jinja_free);
}

void jinja_limit(jinja *j, int64_t steps) {
    j->steps = (size_t)steps;
}

void jinja_free(jinja *j) {
    if (!j)
        return;
    gqac_arena_free(j->arena);
    gqac_free(j);
}

gqac_status jinja_render(const jinja *j, const json_t *variables, gqac_str *out, gqac_diag *diag) {
    if (!json_is_object(variables))
        GQAC_FAIL(diag, GQAC_INVALID_INPUT,
                  "the variables of a chat template are not a JSON object");
    jrun r = {.arena = gqac_arena_create(0),
              .diag = diag,
              .out = out,
              .out_base = out->length,
              .most_steps = j->steps};
    if (!r.arena)
        return gqac_diag_oom(diag, "values of a template");
    jinja_run(&r, j->body, variables);
    gqac_arena_free(r.arena);
    return r.status;
}
