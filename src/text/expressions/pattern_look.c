/* Lookahead and lookbehind. The simulation knows only the characters before and after a position.
 * So each look is reduced to "the next character is in a set" or "the previous character is in a
 * set", and to whether it holds at the beginning or end of the text. */
#include <string.h>

#include "base/alloc.h"
#include "text/expressions/pattern_parse_impl.h"

/* ---- what may match the empty text --------------------------------------- */

/* True if x matches the empty text; `always`: at every position. */
static bool is_empty(const node *x, bool always) {
    bool all = true, any = false;
    switch (x->kind) {
    case NODE_EMPTY:
        return true;
    case NODE_SET:
        return false;
    case NODE_AHEAD:
    case NODE_BEHIND:
        return !always;
    case NODE_REPEAT:
        return x->min == 0 || is_empty(x->child, always);
    default:
        for (const node *i = x->child; i; i = i->next) {
            bool empty = is_empty(i, always);
            all = all && empty;
            any = any || empty;
        }
        return x->kind == NODE_SEQ ? all : any;
    }
}

bool pattern_may_be_empty(const node *x) {
    return is_empty(x, false);
}

/* ---- one character ------------------------------------------------------- */

/* What a body requires of one character: to be in the set, or that the text ends there. */
typedef struct demand {
    charset *set;
    bool edge;
} demand;

static bool ask(parser *p, const node *x, node_kind kind, demand *all);

/* Lookaheads, then at most one character, then what may always be empty. */
static bool ask_sequence(parser *p, const node *first, demand *all) {
    bool consumed = false, optional = false, good = true;
    demand each = {charset_create(), true}, part = {charset_create(), false};
    good = each.set && part.set;
    p->no_memory |= !good;
    if (good)
        charset_negate(each.set);
    for (const node *x = first; good && x; x = x->next) {
        if (is_empty(x, true)) {
            optional = true;
            continue;
        }
        bool once = x->kind == NODE_REPEAT && x->min == 1 && x->mode != POSSESSIVE;
        const node *what = once ? x->child : x;
        /* the optional part could take the character, so nothing may be required after it */
        if (consumed || optional || what->kind == NODE_REPEAT || what->kind == NODE_SEQ) {
            good = false;
            break;
        }
        memset(part.set, 0, sizeof *part.set);
        part.edge = false;
        good = ask(p, what, NODE_AHEAD, &part);
        consumed = what->kind != NODE_AHEAD;
        charset_intersect(each.set, part.set);
        each.edge = each.edge && part.edge;
    }
    if (good) {
        charset_unite(all->set, each.set);
        all->edge = all->edge || each.edge;
    }
    gqac_free(each.set);
    gqac_free(part.set);
    return good;
}

/* Adds what x requires to *all; false: it requires more than one character. */
static bool ask(parser *p, const node *x, node_kind kind, demand *all) {
    bool good = true;
    if (x->kind == NODE_ALT) {
        for (const node *i = x->child; good && i; i = i->next)
            good = ask(p, i, kind, all);
        return good;
    }
    if (x->kind == NODE_SET || x->kind == kind) {
        charset *set = charsets_copy(p->sets, x->set);
        p->no_memory |= !set;
        if (!set)
            return false;
        charset_unite(all->set, set);
        all->edge = all->edge || (x->kind == kind && x->edge);
        gqac_free(set);
        return true;
    }
    if (kind == NODE_BEHIND || x->kind == NODE_BEHIND)
        return false;
    node alone = *x;
    alone.next = NULL;
    return ask_sequence(p, x->kind == NODE_SEQ ? x->child : &alone, all);
}

/* A node that looks for `set`, or with `negate` for anything else. */
static gqac_status make_node(parser *p, node_kind kind, charset *set, bool edge, bool negate,
                             node **out) {
    if (negate)
        charset_negate(set);
    GQAC_TRY(pattern_make(p, kind, p->at, out));
    (*out)->edge = edge != negate;
    return charsets_intern(p->sets, set, &(*out)->set, p->diag);
}

gqac_status pattern_make_look(parser *p, const node *body, node_kind kind, bool negate,
                              size_t offset, node **out) {
    gqac_status status = GQAC_OK;
    demand all = {charset_create(), false};
    if (!all.set)
        return gqac_diag_oom(p->diag, "an expression");
    if (ask(p, body, kind, &all))
        status = make_node(p, kind, all.set, all.edge, negate, out);
    else if (p->no_memory)
        status = gqac_diag_oom(p->diag, "an expression");
    else
        status = pattern_refuse(p, GQAC_UNSUPPORTED, offset,
                                kind == NODE_AHEAD ? "a lookahead of more than one character"
                                                   : "a lookbehind of more than one character");
    gqac_free(all.set);
    return status;
}

/* ---- anchors ------------------------------------------------------------- */

static gqac_status make_pair(parser *p, node_kind kind, node *a, node *b, node **out) {
    GQAC_TRY(pattern_make(p, kind, a->offset, out));
    (*out)->child = a;
    a->next = b;
    return GQAC_OK;
}

/* '^': the beginning of the text, or after a newline that is not its last character. */
static gqac_status make_line_begin(parser *p, charset *set, node **out) {
    node *begin = NULL, *newline = NULL, *more = NULL, *line = NULL;
    GQAC_TRY(make_node(p, NODE_BEHIND, set, true, false, &begin));
    charset_add(set, '\n', '\n');
    GQAC_TRY(make_node(p, NODE_BEHIND, set, false, false, &newline));
    memset(set, 0, sizeof *set);
    GQAC_TRY(make_node(p, NODE_AHEAD, set, true, true, &more));
    GQAC_TRY(make_pair(p, NODE_SEQ, newline, more, &line));
    return make_pair(p, NODE_ALT, begin, line, out);
}

/* '\b': one side is a word's, the other is not; '\B': both are, or neither is. */
static gqac_status make_word_edge(parser *p, charset *set, bool inside, node **out) {
    node *behind[2] = {0}, *ahead[2] = {0}, *pair[2] = {0};
    if (!charset_add_words(set, p->sets, false))
        return gqac_diag_oom(p->diag, "an expression");
    for (int i = 0; i < 2; i++) {
        GQAC_TRY(make_node(p, NODE_BEHIND, set, i, false, &behind[i]));
        GQAC_TRY(make_node(p, NODE_AHEAD, set, i, false, &ahead[i]));
        charset_negate(set);
    }
    for (int i = 0; i < 2; i++)
        GQAC_TRY(make_pair(p, NODE_SEQ, behind[i], ahead[inside ? i : !i], &pair[i]));
    return make_pair(p, NODE_ALT, pair[0], pair[1], out);
}

gqac_status pattern_parse_anchor(parser *p, charset *set, node **out) {
    *out = NULL;
    if (pattern_accept(p, "^"))
        return make_line_begin(p, set, out);
    if (pattern_accept(p, "\\A"))
        return make_node(p, NODE_BEHIND, set, true, false, out);
    if (pattern_accept(p, "\\z"))
        return make_node(p, NODE_AHEAD, set, true, false, out);
    if (pattern_accept(p, "\\b"))
        return make_word_edge(p, set, false, out);
    if (pattern_accept(p, "\\B"))
        return make_word_edge(p, set, true, out);
    if (!pattern_accept(p, "$"))
        return GQAC_OK;
    charset_add(set, '\n', '\n');
    return make_node(p, NODE_AHEAD, set, true, false, out);
}
