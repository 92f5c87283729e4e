/* The expressions of pre-tokenizers, in the syntax of Oniguruma that tokenizer.json files are
 * written for: '^' and '$' are those of lines, '{2}+' repeats, '(?i)' holds to the end of its
 * group. Constructs that a simulation of all threads at once cannot follow exactly (back
 * references, atomic groups of more than one character, looks beyond one character) are refused by
 * name. The source is untrusted: nesting, size and counts have maxima. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "text/expressions/pattern_parse_impl.h"

enum { MAX_STACKED = 8, MAX_COUNT = 1000 };

/* ---- nodes and failures -------------------------------------------------- */

gqac_status pattern_refuse(const parser *p, gqac_status status, size_t offset, const char *what) {
    size_t shown = p->n - offset < 16 ? p->n - offset : 16;
    if (shown + offset < p->n)
        shown = unicode_before(p->s, offset, offset + shown + 1) - offset;
    for (size_t i = 0; i < shown; i++) /* no control characters */
        if ((unsigned char)p->s[offset + i] < 0x20)
            shown = i;
    gqac_diag_set(p->diag, status, "the expression has %s at byte %zu: '%.*s'", what, offset,
                  (int)shown, p->s + offset);
    if (status == GQAC_UNSUPPORTED)
        gqac_diag_rule(p->diag,
                       "gqac matches an expression exactly as Oniguruma does, or refuses it");
    return status;
}

gqac_status pattern_make(parser *p, node_kind kind, size_t offset, node **out) {
    node *made = GQAC_ARENA_NEW(p->sets->arena, node);
    if (!made)
        return gqac_diag_oom(p->diag, "an expression");
    made->kind = kind;
    made->offset = offset;
    *out = made;
    return GQAC_OK;
}

static bool at_text(const parser *p, const char *text) {
    size_t n = strlen(text);
    return p->n - p->at >= n && !memcmp(p->s + p->at, text, n);
}

bool pattern_accept(parser *p, const char *text) {
    if (!at_text(p, text))
        return false;
    p->at += strlen(text);
    return true;
}

/* A node for the characters of a set, without folding case. */
static gqac_status make_set(parser *p, const charset *set, size_t offset, node **out) {
    GQAC_TRY(pattern_make(p, NODE_SET, offset, out));
    return charsets_intern(p->sets, set, &(*out)->set, p->diag);
}

/* ---- characters ---------------------------------------------------------- */

/* A literal in any case; "ss" is refused, because it would match U+00DF too. */
static gqac_status fold_literal(parser *p, int32_t c, charset *set, size_t offset) {
    int32_t single = -1;
    bool oom;
    char what[80];
    if (p->n_tail == sizeof p->tail / sizeof *p->tail)
        memmove(p->tail, p->tail + 1, --p->n_tail * sizeof *p->tail);
    p->tail[p->n_tail++] = c;
    if (charsets_folds_to(p->sets, p->tail, p->n_tail, &single, &oom)) {
        snprintf(what, sizeof what, "characters that match U+%04X too if case is ignored",
                 (unsigned)single);
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset, what);
    }
    if (oom)
        return gqac_diag_oom(p->diag, "an expression");
    charset_add(set, c, c);
    return pattern_fold(p, set, offset, false);
}

static gqac_status parse_char(parser *p, charset *set, node **out) {
    size_t offset = p->at;
    int32_t c = -1;
    if (pattern_accept(
            p, "[")) { /* folds itself; what stands for a class outside of one is never folded */
        GQAC_TRY(pattern_parse_class(p, set, offset));
    } else if (pattern_accept(p, ".")) {
        if (!p->dot_all)
            charset_add(set, '\n', '\n');
        charset_negate(set);
    } else if (p->s[p->at] == '\\') {
        GQAC_TRY(pattern_parse_escape(p, set, &c));
    } else {
        p->at += unicode_read(p->s + p->at, p->n - p->at, &c);
    }
    if (c < 0)
        p->n_tail = 0;
    if (c >= 0 && !p->fold) {
        GQAC_TRY(pattern_make(p, NODE_SET, offset, out));
        return charsets_intern_range(p->sets, c, c, &(*out)->set, p->diag);
    }
    if (c >= 0)
        GQAC_TRY(fold_literal(p, c, set, offset));
    return make_set(p, set, offset, out);
}

/* ---- groups -------------------------------------------------------------- */

static gqac_status parse_alternatives(parser *p, node **out);

/* The rest of a group, and its ')'. */
static gqac_status finish_group(parser *p, size_t offset, node **out) {
    bool fold = p->fold, dot_all = p->dot_all;
    p->n_tail = 0;
    GQAC_TRY(parse_alternatives(p, out));
    p->n_tail = 0;
    p->fold = fold;
    p->dot_all = dot_all;
    if (!pattern_accept(p, ")"))
        return pattern_refuse(p, GQAC_INVALID_MODEL, offset, "a group that is not closed");
    return GQAC_OK;
}

/* C*+ takes all characters of C: its node has the complement of C. */
static gqac_status make_possessive(parser *p, node *repeat) {
    charset *rest = charsets_copy(p->sets, repeat->child->set);
    if (!rest)
        return gqac_diag_oom(p->diag, "an expression");
    charset_negate(rest);
    repeat->mode = POSSESSIVE;
    gqac_status status = charsets_intern(p->sets, rest, &repeat->set, p->diag);
    gqac_free(rest);
    return status;
}

/* An equivalent of an atomic group. */
static gqac_status finish_atomic(parser *p, size_t offset, node **out) {
    node *body = NULL;
    GQAC_TRY(finish_group(p, offset, &body));
    *out = body;
    bool repeat = body->kind == NODE_REPEAT && body->child->kind == NODE_SET;
    if (repeat && body->mode == GREEDY && (body->max < 0 || (body->max == 1 && body->min == 0)))
        return make_possessive(p, body);
    if (body->kind == NODE_SET || body->kind == NODE_EMPTY || body->kind == NODE_AHEAD ||
        body->kind == NODE_BEHIND || (repeat && body->mode == POSSESSIVE))
        return GQAC_OK;
    return pattern_refuse(p, GQAC_UNSUPPORTED, offset,
                          "an atomic group of more than one character class");
}

/* (?i) and (?i:...): reads what is between '?' and ':' or ')'. */
static gqac_status parse_options(parser *p, size_t offset, node **out) {
    bool on = true, fold = p->fold, dot_all = p->dot_all;
    for (; p->at < p->n && p->s[p->at] != ':' && p->s[p->at] != ')'; p->at++) {
        if (p->s[p->at] == '-' && on)
            on = false;
        else if (p->s[p->at] == 'i')
            p->fold = on;
        else if (p->s[p->at] == 'm')
            p->dot_all = on;
        else
            return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "an unsupported kind of group");
    }
    if (pattern_accept(p, ":")) {
        GQAC_TRY(finish_group(p, offset, out));
        p->fold = fold;
        p->dot_all = dot_all;
        return GQAC_OK;
    }
    if (!pattern_accept(p, ")"))
        return pattern_refuse(p, GQAC_INVALID_MODEL, offset, "a group that is not closed");
    p->n_tail = 0;
    return parse_alternatives(p, out); /* the options are restored where the group is closed */
}

/* (?<name>...), and groups that are in no table. */
static gqac_status parse_special(parser *p, size_t offset, node **out) {
    if (pattern_accept(p, "#")) {
        while (p->at < p->n && p->s[p->at] != ')')
            p->at += p->s[p->at] == '\\' && p->at + 1 < p->n ? 2 : 1;
        if (!pattern_accept(p, ")"))
            return pattern_refuse(p, GQAC_INVALID_MODEL, offset, "a comment that is not closed");
        return pattern_make(p, NODE_EMPTY, offset, out);
    }
    if (pattern_accept(p, "<")) {
        size_t name = p->at;
        while (p->at < p->n && (p->s[p->at] == '_' || (p->s[p->at] >= 'a' && p->s[p->at] <= 'z') ||
                                (p->s[p->at] >= 'A' && p->s[p->at] <= 'Z') ||
                                (p->at > name && p->s[p->at] >= '0' && p->s[p->at] <= '9')))
            p->at++;
        if (p->at == name || !pattern_accept(p, ">"))
            return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "an unsupported kind of group");
        return finish_group(p, offset, out);
    }
    return parse_options(p, offset, out);
}

static gqac_status parse_group(parser *p, size_t offset, bool *repeatable, node **out) {
    static const struct {
        const char *text;
        node_kind kind;
        bool negate;
    } looks[] = {
        {"?=", NODE_AHEAD, false},
        {"?!", NODE_AHEAD, true},
        {"?<=", NODE_BEHIND, false},
        {"?<!", NODE_BEHIND, true},
    };
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if (pattern_accept(p, looks[i].text)) {
            node *body = NULL;
            *repeatable = false;
            GQAC_TRY(finish_group(p, offset, &body));
            return pattern_make_look(p, body, looks[i].kind, looks[i].negate, offset, out);
        }
    if (pattern_accept(p, "?>"))
        return finish_atomic(p, offset, out);
    if (pattern_accept(p, "?:"))
        return finish_group(p, offset, out);
    if (at_text(p, "?#"))
        *repeatable = false;
    if (pattern_accept(p, "?"))
        return parse_special(p, offset, out);
    if (at_text(p, "*"))
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "an unsupported kind of group");
    return finish_group(p, offset, out);
}

/* ---- repeats ------------------------------------------------------------- */

static int read_count(const parser *p, size_t *at) {
    size_t begin = *at;
    int n = 0;
    for (; *at < p->n && p->s[*at] >= '0' && p->s[*at] <= '9'; ++*at)
        n = n > MAX_COUNT ? n : n * 10 + (p->s[*at] - '0');
    return *at == begin ? -1 : n;
}

/* {n}, {n,}, {,m}, {n,m}; anything else is text. */
static bool read_interval(parser *p, int *min, int *max) {
    size_t at = p->at + 1;
    int low = read_count(p, &at), high = low;
    if (at < p->n && p->s[at] == ',') {
        at++;
        high = read_count(p, &at);
        if (low < 0 && high < 0)
            return false;
    }
    if (at >= p->n || p->s[at] != '}' || (low < 0 && high < 0))
        return false;
    *min = low < 0 ? 0 : low;
    *max = high;
    p->at = at + 1;
    return true;
}

/* False: no repeat follows. */
static bool read_repeat(parser *p, int *min, int *max, repeat_mode *mode) {
    if (p->at == p->n)
        return false;
    size_t begin = p->at;
    char c = p->s[p->at];
    *mode = GREEDY;
    if (c == '{') {
        if (!read_interval(p, min, max))
            return false;
        /* {2}? is an optional {2}, and {1,2}+ repeats it */
        if (memchr(p->s + begin, ',', p->at - begin) && pattern_accept(p, "?"))
            *mode = LAZY;
        return true;
    }
    if (c != '?' && c != '*' && c != '+')
        return false;
    p->at++;
    *min = c == '+';
    *max = c == '?' ? 1 : -1;
    if (pattern_accept(p, "?"))
        *mode = LAZY;
    else if (pattern_accept(p, "+"))
        *mode = POSSESSIVE;
    return true;
}

static bool has_possessive(const node *x) {
    if (x->kind == NODE_REPEAT && x->mode == POSSESSIVE)
        return true;
    for (const node *i = x->child; i; i = i->next)
        if (has_possessive(i))
            return true;
    return false;
}

static gqac_status check_repeat(parser *p, const node *x, size_t offset) {
    if (x->max >= 0 && x->min > x->max)
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset,
                              "a repeat whose minimum is above its maximum");
    if (x->min > MAX_COUNT || x->max > MAX_COUNT)
        return pattern_refuse(p, GQAC_LIMIT, offset, "a repeat of more than 1000 times");
    if (x->mode == POSSESSIVE && x->child->kind != NODE_SET)
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset,
                              "a possessive repeat of more than one character class");
    /* Oniguruma itself does not match this as its documentation says */
    if ((x->min > 1 || x->max > 1) && has_possessive(x->child))
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset,
                              "a counted repeat of something possessive");
    if (x->max < 0 && pattern_may_be_empty(x->child))
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset,
                              "an unbounded repeat of what may be empty");
    return GQAC_OK;
}

static gqac_status parse_repeats(parser *p, bool repeatable, node **x) {
    repeat_mode mode;
    int min, max;
    size_t offset = p->at;
    for (int n = 0; read_repeat(p, &min, &max, &mode); offset = p->at, n++) {
        if (!repeatable)
            return pattern_refuse(p, GQAC_INVALID_MODEL, offset, "a repeat of nothing");
        if (n == MAX_STACKED)
            return pattern_refuse(p, GQAC_LIMIT, offset, "more than 8 repeats of one thing");
        node *repeat = NULL;
        p->n_tail = 0;
        GQAC_TRY(pattern_make(p, NODE_REPEAT, offset, &repeat));
        repeat->child = *x;
        repeat->min = min;
        repeat->max = max;
        repeat->mode = mode;
        GQAC_TRY(check_repeat(p, repeat, offset));
        if (mode == POSSESSIVE)
            GQAC_TRY(make_possessive(p, repeat));
        if (max == 0 || (*x)->kind == NODE_EMPTY)
            repeat->kind = NODE_EMPTY;
        *x = repeat;
    }
    return GQAC_OK;
}

/* ---- sequences and alternatives ------------------------------------------ */

static gqac_status parse_atom(parser *p, bool *repeatable, node **out) {
    size_t offset = p->at;
    int min, max;
    repeat_mode mode;
    *repeatable = true;
    if (read_repeat(p, &min, &max, &mode))
        return pattern_refuse(p, GQAC_INVALID_MODEL, offset, "a repeat of nothing");
    if (pattern_accept(p, "("))
        return parse_group(p, offset, repeatable, out);
    charset *set = charset_create();
    if (!set)
        return gqac_diag_oom(p->diag, "an expression");
    gqac_status status = pattern_parse_anchor(p, set, out);
    if (status == GQAC_OK && *out) {
        *repeatable = false;
        p->n_tail = 0;
    } else if (status == GQAC_OK) {
        status = parse_char(p, set, out);
    }
    gqac_free(set);
    return status;
}

static gqac_status parse_sequence(parser *p, node **out) {
    node *first = NULL, **end = &first;
    size_t offset = p->at;
    while (p->at < p->n && p->s[p->at] != '|' && p->s[p->at] != ')') {
        node *x = NULL;
        bool repeatable;
        GQAC_TRY(parse_atom(p, &repeatable, &x));
        GQAC_TRY(parse_repeats(p, repeatable, &x));
        if (x->kind == NODE_EMPTY)
            continue;
        *end = x;
        end = &x->next;
    }
    if (first && !first->next) {
        *out = first;
        return GQAC_OK;
    }
    GQAC_TRY(pattern_make(p, first ? NODE_SEQ : NODE_EMPTY, offset, out));
    (*out)->child = first;
    return GQAC_OK;
}

/* Alternatives that are one character each are a class. */
static gqac_status unite_sets(parser *p, node *alternatives) {
    for (const node *i = alternatives->child; i; i = i->next)
        if (i->kind != NODE_SET)
            return GQAC_OK;
    charset *all = charset_create();
    if (!all)
        return gqac_diag_oom(p->diag, "an expression");
    for (const node *i = alternatives->child; i; i = i->next) {
        const char_ranges *set = &p->sets->sets[i->set];
        for (size_t r = 0; r < set->n; r++)
            charset_add(all, set->at[r].first, set->at[r].last);
    }
    alternatives->kind = NODE_SET;
    gqac_status status = charsets_intern(p->sets, all, &alternatives->set, p->diag);
    gqac_free(all);
    return status;
}

static gqac_status parse_alternatives(parser *p, node **out) {
    node *first = NULL, **end = &first;
    size_t offset = p->at;
    if (++p->depth > PATTERN_MAX_DEPTH)
        return pattern_refuse(p, GQAC_LIMIT, offset, "more than 64 nested groups");
    do {
        node *x = NULL;
        p->n_tail = 0;
        GQAC_TRY(parse_sequence(p, &x));
        *end = x;
        end = &x->next;
    } while (pattern_accept(p, "|"));
    p->depth--;
    *out = first;
    if (!first->next)
        return GQAC_OK;
    GQAC_TRY(pattern_make(p, NODE_ALT, offset, out));
    (*out)->child = first;
    return unite_sets(p, *out);
}

gqac_status pattern_parse(const char *source, size_t length, charsets *sets, node **root,
                          gqac_diag *diag) {
    parser p = {.s = source, .n = length, .sets = sets, .diag = diag};
    if (length > PATTERN_MAX_SOURCE)
        GQAC_FAIL(diag, GQAC_LIMIT, "the expression has %zu bytes; the maximum is %d", length,
                  PATTERN_MAX_SOURCE);
    for (size_t i = 0, n; i < length; i += n)
        if (!(n = gqac_utf8_char(source + i, length - i)))
            GQAC_FAIL(diag, GQAC_INVALID_MODEL, "byte %zu of the expression is not UTF-8", i);
    GQAC_TRY(parse_alternatives(&p, root));
    if (p.at < length)
        return pattern_refuse(&p, GQAC_INVALID_MODEL, p.at, "a ')' that closes nothing");
    return GQAC_OK;
}
