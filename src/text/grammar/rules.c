/* The notation of rules: see docs/generation.md. Groups are kept on a list, so that nested groups
 * need no recursion. */
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "text/grammar/build.h"
#include "text/unicode.h"

enum { MOST_BYTES = 1 << 20, MOST_POINTS = 4096, MOST_NAME = 200 };

/* What an open group has so far. */
typedef struct group {
    fragment all, sequence; /* alternatives before this one; this one */
    bool has_all, has_sequence;
    uint32_t first; /* where its instructions begin */
} group;

typedef struct parser {
    builder *b;
    const char *text;
    size_t length, at;
    group *groups; /* the open ones; the first one is the rule */
    size_t n, capacity;
    points *list; /* of a class; then of what it leaves out */
    int line;     /* of byte `counted` */
    size_t counted;
} parser;

/* ---- errors -------------------------------------------------------------- */

/* Continues from the last call, so that all lines together are counted once. */
static int line_of(parser *p, size_t at) {
    if (at < p->counted)
        p->counted = 0;
    p->line = p->counted ? p->line : 1;
    for (; p->counted < at; p->counted++)
        p->line += p->text[p->counted] == '\n';
    return p->line;
}

/* Fails at a byte of the text; returns false. */
static bool refuse(parser *p, size_t at, const char *what, const char *rule) {
    size_t begin = at;
    if (p->b->status != GQAC_OK)
        return false;
    while (begin && p->text[begin - 1] != '\n')
        begin--;
    gqac_diag_set(p->b->diag, GQAC_INVALID_INPUT, "%s", what);
    gqac_diag_where(p->b->diag, "grammar, line %d, column %zu", line_of(p, at), at - begin + 1);
    gqac_diag_rule(p->b->diag, "%s", rule);
    build_fail(p->b, GQAC_INVALID_INPUT);
    return false;
}

static bool more(const parser *p) {
    return p->b->status == GQAC_OK && p->at < p->length;
}

static char peek(const parser *p) {
    return p->at < p->length ? p->text[p->at] : '\0';
}

static bool accept(parser *p, const char *word) {
    const size_t n = strlen(word);
    if (p->length - p->at < n || memcmp(p->text + p->at, word, n) != 0)
        return false;
    p->at += n;
    return true;
}

/* Spaces, line ends and comments. */
static void skip_space(parser *p) {
    while (p->at < p->length) {
        const char c = p->text[p->at];
        if (c == '#')
            while (p->at < p->length && p->text[p->at] != '\n')
                p->at++;
        else if (c == ' ' || c == '\t' || c == '\r' || c == '\n')
            p->at++;
        else
            return;
    }
}

/* ---- characters ---------------------------------------------------------- */

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool read_hex(parser *p, size_t digits, uint32_t *point) {
    const size_t begin = p->at;
    *point = 0;
    for (size_t i = 0; i < digits; i++, p->at++) {
        const int digit = unicode_hex_digit(peek(p));
        if (digit < 0)
            return refuse(p, begin, "an escape has too few digits",
                          "\\x has 2 hexadecimal digits, \\u 4 and \\U 8");
        *point = 16 * *point + (uint32_t)digit;
    }
    if (*point > 0x10ffff || (*point >= 0xd800 && *point <= 0xdfff))
        return refuse(p, begin, "an escape does not stand for a character",
                      "a code point up to 10FFFF that is not a surrogate");
    return true;
}

/* One character of a literal or a class, which may be escaped. */
static bool read_point(parser *p, uint32_t *point) {
    static const char names[] = "nrt\\\"[]-^", values[] = "\n\r\t\\\"[]-^";
    int32_t one = 0;
    if (peek(p) != '\\') {
        p->at += unicode_read(p->text + p->at, p->length - p->at, &one);
        *point = (uint32_t)one;
        return true;
    }
    const size_t begin = p->at++;
    const char escape = peek(p);
    const char *known = escape ? strchr(names, escape) : NULL;
    p->at += escape != '\0';
    if (known)
        *point = (unsigned char)values[known - names];
    else if (escape == 'x' || escape == 'u' || escape == 'U')
        return read_hex(p, escape == 'x' ? 2 : escape == 'u' ? 4 : 8, point);
    else
        return refuse(p, begin, "an unknown escape",
                      "\\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH");
    return true;
}

static fragment read_literal(parser *p) {
    const size_t begin = p->at++;
    fragment all = build_empty(p->b);
    while (more(p) && peek(p) != '"') {
        uint32_t point = 0;
        char bytes[4];
        if (!read_point(p, &point))
            break;
        const size_t n = unicode_write((int32_t)point, bytes);
        all = build_join(p->b, all, build_text(p->b, bytes, n));
    }
    if (!accept(p, "\""))
        refuse(p, begin, "a literal has no end", "a literal is \"...\"");
    return all;
}

static bool read_range(parser *p, points *range) {
    const size_t begin = p->at;
    if (!read_point(p, &range->low))
        return false;
    range->high = range->low;
    if (peek(p) == '-' && p->at + 1 < p->length && p->text[p->at + 1] != ']') {
        p->at++;
        if (!read_point(p, &range->high))
            return false;
    }
    return range->low <= range->high ||
           refuse(p, begin, "a range of characters is empty", "a-z: a comes before z");
}

static fragment read_class(parser *p) {
    const size_t begin = p->at++;
    const bool inverted = accept(p, "^");
    size_t n = 0;
    if (!p->list)
        p->list = GQAC_ARENA_ARRAY(p->b->memory, points, 2 * MOST_POINTS + 2);
    if (!p->list)
        build_fail(p->b, gqac_diag_oom(p->b->diag, "a grammar"));
    while (more(p) && peek(p) != ']') {
        if (n == MOST_POINTS)
            refuse(p, begin, "a class is too long", "a class has at most 4096 ranges");
        else if (read_range(p, &p->list[n]))
            n++;
    }
    if (!accept(p, "]"))
        refuse(p, begin, "a class of characters has no end", "a class is [...]");
    if (p->b->status != GQAC_OK)
        return build_never(p->b);
    n = build_sort_points(p->list, n);
    points *chosen = p->list;
    if (inverted) {
        chosen = p->list + MOST_POINTS;
        n = build_invert_points(p->list, n, chosen);
    }
    return build_points(p->b, chosen, n);
}

/* ---- groups -------------------------------------------------------------- */

static group *top(const parser *p) {
    return &p->groups[p->n - 1];
}

static bool open_group(parser *p) {
    if (!gqac_reserve(&p->groups, p->n + 1, &p->capacity, sizeof *p->groups)) {
        build_fail(p->b, gqac_diag_oom(p->b->diag, "a grammar"));
        return false;
    }
    p->groups[p->n++] = (group){.first = (uint32_t)p->b->n};
    return true;
}

static void append(parser *p, fragment f) {
    group *g = top(p);
    g->sequence = g->has_sequence ? build_join(p->b, g->sequence, f) : f;
    g->has_sequence = true;
}

/* Ends an alternative. An empty one accepts the empty text. */
static void end_alternative(parser *p) {
    group *g = top(p);
    if (!g->has_sequence)
        g->sequence = build_empty(p->b);
    g->all = g->has_all ? build_either(p->b, g->all, g->sequence) : g->sequence;
    g->has_all = true;
    g->has_sequence = false;
}

static fragment close_group(parser *p) {
    end_alternative(p);
    fragment all = top(p)->all;
    all.first = top(p)->first;
    all.after = (uint32_t)p->b->n;
    p->n--;
    return all;
}

/* ---- repetitions --------------------------------------------------------- */

static bool read_count(parser *p, uint32_t *count) {
    const size_t begin = p->at;
    uint64_t value = 0;
    skip_space(p);
    while (is_digit(peek(p)) && value <= UINT32_MAX)
        value = 10 * value + (uint64_t)(p->text[p->at++] - '0');
    if (p->at == begin)
        return refuse(p, begin, "a repetition has no number", "{n}, {n,} or {n,m}");
    if (value > BUILD_MOST_CODE) {
        gqac_diag_set(p->b->diag, GQAC_LIMIT, "a part of the grammar is repeated %s%llu times",
                      value > UINT32_MAX ? "more than " : "", (unsigned long long)value);
        gqac_diag_where(p->b->diag, "grammar, line %d", line_of(p, begin));
        gqac_diag_rule(p->b->diag, "at most %d times", BUILD_MOST_CODE);
        build_fail(p->b, GQAC_LIMIT);
        return false;
    }
    *count = (uint32_t)value;
    return true;
}

/* "{n}", "{n,}" or "{n,m}", after the brace. */
static fragment read_counts(parser *p, fragment f) {
    const size_t begin = p->at - 1;
    uint32_t least = 0, most = 0;
    if (!read_count(p, &least))
        return f;
    most = least;
    skip_space(p);
    if (accept(p, ",")) {
        skip_space(p);
        most = BUILD_MANY;
        if (is_digit(peek(p)) && !read_count(p, &most))
            return f;
    }
    skip_space(p);
    if (!accept(p, "}"))
        refuse(p, begin, "a repetition has no end", "{n}, {n,} or {n,m}");
    else if (most < least)
        refuse(p, begin, "a repetition has a maximum below its minimum", "{n,m}: n <= m");
    return p->b->status == GQAC_OK ? build_repeat(p->b, f, least, most) : f;
}

/* Any number of these follow a part. */
static fragment read_repeats(parser *p, fragment f) {
    for (;; skip_space(p)) {
        if (accept(p, "*"))
            f = build_repeat(p->b, f, 0, BUILD_MANY);
        else if (accept(p, "+"))
            f = build_repeat(p->b, f, 1, BUILD_MANY);
        else if (accept(p, "?"))
            f = build_repeat(p->b, f, 0, 1);
        else if (p->b->status == GQAC_OK && accept(p, "{"))
            f = read_counts(p, f);
        else
            return f;
    }
}

/* ---- rules --------------------------------------------------------------- */

/* The length of a name at the current byte; 0: there is none. */
static size_t name_length(const parser *p) {
    size_t n = 0;
    while (p->at + n < p->length) {
        const char c = p->text[p->at + n];
        if (!is_letter(c) && !(n && (is_digit(c) || c == '-' || c == '_')))
            break;
        n++;
    }
    return n;
}

/* True at "name ::=", where another rule begins. */
static bool at_rule(const parser *p) {
    parser ahead = *p;
    const size_t n = name_length(p);
    ahead.at += n;
    skip_space(&ahead);
    return n && accept(&ahead, "::=");
}

/* One part of a sequence; false: there is none. */
static bool read_part(parser *p, fragment *f) {
    static const points any = {0, 0x10ffff};
    const size_t n = name_length(p);
    const char c = peek(p);
    if (c == '"') {
        *f = read_literal(p);
    } else if (c == '[') {
        *f = read_class(p);
    } else if (c == '.') {
        p->at++;
        *f = build_points(p->b, &any, 1);
    } else if (n) {
        if (n > MOST_NAME)
            return refuse(p, p->at, "a name is too long", "a name has at most 200 characters");
        *f = build_call(p->b, build_rule(p->b, p->text + p->at, n, line_of(p, p->at)));
        p->at += n;
    } else {
        return false;
    }
    return true;
}

static void read_sequence(parser *p, uint32_t rule) {
    for (skip_space(p); more(p); skip_space(p)) {
        fragment f = {0};
        const size_t begin = p->at;
        if (accept(p, "(")) {
            open_group(p);
        } else if (accept(p, "|")) {
            end_alternative(p);
        } else if (p->n > 1 && accept(p, ")")) {
            f = close_group(p);
            skip_space(p);
            append(p, read_repeats(p, f));
        } else if (p->n == 1 && at_rule(p)) {
            break;
        } else if (read_part(p, &f)) {
            skip_space(p);
            append(p, read_repeats(p, f));
        } else {
            refuse(p, begin, "this is not a part of a rule",
                   "a name, a literal \"...\", a class [...], a group (...) or .");
        }
    }
    if (p->b->status == GQAC_OK && p->n > 1)
        refuse(p, p->length, "a group has no end", "a group is (...)");
    if (p->b->status == GQAC_OK)
        build_define(p->b, rule, close_group(p));
}

static void read_rule(parser *p) {
    const size_t n = name_length(p), begin = p->at;
    if (!at_rule(p) || n > MOST_NAME) {
        refuse(p, begin, "a rule is expected",
               "name ::= parts, with a name of at most 200 characters");
        return;
    }
    const uint32_t rule = build_rule(p->b, p->text + begin, n, line_of(p, begin));
    p->at += n;
    skip_space(p);
    accept(p, "::=");
    if (p->b->status == GQAC_OK && p->b->rules[rule].start != BUILD_NONE)
        refuse(p, begin, "a rule is defined twice",
               "a rule has one definition; | separates alternatives");
    if (p->b->status == GQAC_OK && open_group(p))
        read_sequence(p, rule);
}

void build_rules(builder *b, const char *text, size_t length) {
    parser p = {.b = b, .text = text, .length = length};
    for (skip_space(&p); more(&p); skip_space(&p))
        read_rule(&p);
    gqac_free(p.groups);
}

/* ---- a grammar ----------------------------------------------------------- */

static gqac_status check_text(const char *text, size_t length, gqac_diag *diag) {
    if (length > MOST_BYTES)
        GQAC_FAIL(diag, GQAC_LIMIT, "the grammar has %zu bytes; the maximum is %d", length,
                  MOST_BYTES);
    if (!gqac_utf8_valid(text, length))
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the grammar is not UTF-8, or contains a NUL");
    return GQAC_OK;
}

static gqac_status find_root(builder *b, uint32_t *root) {
    *root = build_rule(b, "root", 4, 0);
    if (b->status != GQAC_OK)
        return b->status;
    if (b->rules[*root].start == BUILD_NONE) {
        gqac_diag_set(b->diag, GQAC_INVALID_INPUT, "the grammar has no rule 'root'");
        gqac_diag_rule(b->diag, "root ::= ... is the rule of the whole text");
        return build_fail(b, GQAC_INVALID_INPUT);
    }
    for (size_t i = 0; i < b->n_rules; i++) {
        if (b->rules[i].start != BUILD_NONE)
            continue;
        gqac_diag_set(b->diag, GQAC_INVALID_INPUT, "rule '%.100s' is not defined",
                      b->rules[i].name);
        gqac_diag_where(b->diag, "grammar, line %d", b->rules[i].line);
        gqac_diag_rule(b->diag, "a rule that is used must be defined: name ::= parts");
        return build_fail(b, GQAC_INVALID_INPUT);
    }
    return GQAC_OK;
}

gqac_status grammar_from_rules(const char *text, size_t length, grammar **out, gqac_diag *diag) {
    builder b;
    uint32_t root = 0;
    GQAC_TRY(check_text(text, length, diag));
    gqac_status status = build_open(&b, diag);
    if (status == GQAC_OK) {
        build_rules(&b, text, length);
        status = b.status;
    }
    if (status == GQAC_OK)
        status = find_root(&b, &root);
    if (status == GQAC_OK)
        status = grammar_finish(&b, root, "grammar", out);
    build_close(&b);
    return status;
}
