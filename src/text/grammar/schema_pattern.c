/* Patterns of strings: the part of ECMA-262's regular expressions that is regular, written as a
 * rule. Where dialects differ, the rule accepts only what all of them accept: \d and \w stand for
 * ASCII characters, and a class that excludes them accepts only ASCII. Characters of the rule are
 * written as JSON writes them. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "text/grammar/schema.h"
#include "text/unicode.h"

/* MOST_ADDED: ranges that one part of a class adds, and the end of it. */
enum { MOST_RANGES = 500, MOST_ADDED = 8, ASCII = 0x7f, LAST = 0x10ffff };

typedef struct class {
    points list[2 * MOST_RANGES];
    size_t n;
    bool shorthand; /* it has \d, \w, \s or one of their opposites */
} class;

typedef struct pattern {
    schema *s;
    const char *text;
    size_t length, at;
    int depth; /* of open groups */
    gqac_str out;
    class set;
} pattern;

static bool refuse(pattern *p, const char *what) {
    schema_refuse(p->s, GQAC_UNSUPPORTED,
                  "literals, classes, groups, | and repetitions; ^ and $ at the ends only",
                  "'pattern' has %s at byte %zu, which is not supported: %.100s", what, p->at,
                  p->text);
    return false;
}

static char peek(const pattern *p) {
    return p->at < p->length ? p->text[p->at] : '\0';
}

/* ---- sets of characters -------------------------------------------------- */

/* There is memory for it: read_range refuses a class before it is full. */
static void add(class *c, uint32_t low, uint32_t high) {
    c->list[c->n++] = (points){low, high};
}

/* Within `most`, what the set leaves out. */
static void invert(class *c, uint32_t most) {
    points other[2 * MOST_RANGES];
    size_t n = build_sort_points(c->list, c->n);
    n = build_invert_points(c->list, n, other);
    c->n = 0;
    for (size_t i = 0; i < n && other[i].low <= most; i++)
        add(c, other[i].low, other[i].high < most ? other[i].high : most);
}

/* \d \w \s \D \W \S */
static bool add_shorthand(class *c, char letter) {
    class own = {.n = 0};
    const char lower = (char)(letter | 0x20);
    if (!strchr("dws", lower))
        return false;
    if (lower != 's')
        add(&own, '0', '9');
    if (lower == 'w') {
        add(&own, 'A', 'Z');
        add(&own, '_', '_');
        add(&own, 'a', 'z');
    }
    if (lower == 's') {
        add(&own, '\t', '\r');
        add(&own, ' ', ' ');
    }
    if (letter != lower)
        invert(&own, letter == 'S' ? ASCII - 1 : ASCII);
    for (size_t i = 0; i < own.n; i++)
        if (letter != 'S' ||
            own.list[i].high >= ' ') /* some dialects take more control characters as spaces */
            add(c, own.list[i].low, own.list[i].high);
    c->shorthand = true;
    return true;
}

static bool read_hex(pattern *p, int digits, uint32_t *point) {
    *point = 0;
    for (int i = 0; i < digits; i++) {
        const int digit = unicode_hex_digit(peek(p));
        if (digit < 0)
            return refuse(p, "an escape with too few digits");
        *point = 16 * *point + (uint32_t)digit;
        p->at++;
    }
    return *point - 0xd800 > 0x7ff || refuse(p, "a surrogate");
}

/* The character of an escape, after the backslash. */
static bool read_escape(pattern *p, bool in_class, uint32_t *point) {
    static const char names[] = "nrtvf", values[] = "\n\r\t\v\f";
    const char c = peek(p), *known = c ? strchr(names, c) : NULL;
    p->at++;
    if (known)
        *point = (unsigned char)values[known - names];
    else if (c == 'b' && in_class)
        *point = '\b';
    else if (c == 'x' || c == 'u')
        return read_hex(p, c == 'x' ? 2 : 4, point);
    else if (c > ' ' && c < ASCII &&
             !strchr("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "abcdefghijklmnopqrstuvwxyz_",
                     c))
        *point = (unsigned char)c;
    else
        return refuse(p, "an escape");
    return true;
}

static bool read_point(pattern *p, bool in_class, uint32_t *point) {
    int32_t one = 0;
    if (peek(p) == '\\') {
        p->at++;
        return read_escape(p, in_class, point);
    }
    p->at += unicode_read(p->text + p->at, p->length - p->at, &one);
    *point = (uint32_t)one;
    return true;
}

/* A range of a class, or one character. */
static bool read_range(pattern *p, class *c) {
    uint32_t low = 0, high = 0;
    if (c->n + MOST_ADDED > MOST_RANGES)
        return refuse(p, "a class with too many ranges");
    if (peek(p) == '\\' && p->at + 1 < p->length && add_shorthand(c, p->text[p->at + 1])) {
        p->at += 2;
        return peek(p) != '-' || p->at + 1 >= p->length || p->text[p->at + 1] == ']' ||
               refuse(p, "a range that begins with a class");
    }
    if (!read_point(p, true, &low))
        return false;
    high = low;
    if (peek(p) == '-' && p->at + 1 < p->length && p->text[p->at + 1] != ']') {
        p->at++;
        if (!read_point(p, true, &high))
            return false;
    }
    if (low > high)
        return refuse(p, "an empty range");
    add(c, low, high);
    return true;
}

static bool read_class(pattern *p, class *c) {
    const bool inverted = p->text[++p->at] == '^';
    p->at += inverted;
    if (p->at < p->length && peek(p) == ']') /* ECMAScript and Python read it differently */
        return refuse(p, "a class that begins with ]");
    while (p->at < p->length && peek(p) != ']')
        if (!read_range(p, c))
            return false;
    if (peek(p) != ']')
        return refuse(p, "a class without an end");
    p->at++;
    if (inverted && c->shorthand)
        add(c, 0, ' ' - 1);
    if (inverted)
        invert(c, c->shorthand ? ASCII - 1 : LAST);
    return true;
}

/* ---- the rule ------------------------------------------------------------ */

/* A character that JSON escapes. */
static void write_escape(gqac_str *out, uint32_t point) {
    static const char named[] = "\b\f\n\r\t\"\\", names[] = "bfnrt\"\\";
    const char *known = strchr(named, (int)point);
    if (!point || !known)
        gqac_str_printf(out, " | \"\\\\u%04x\"", point);
    else if (*known == '"' || *known == '\\')
        gqac_str_printf(out, " | \"\\\\\\%c\"", *known);
    else
        gqac_str_printf(out, " | \"\\\\%c\"", names[known - named]);
}

/* One character of the set. */
static void write_set(pattern *p, class *c) {
    const size_t n = build_sort_points(c->list, c->n);
    gqac_str *out = &p->out;
    gqac_str_append(out, " ([");
    for (size_t i = 0; i < n; i++) {
        uint32_t low = c->list[i].low < ' ' ? ' ' : c->list[i].low;
        while (low <= c->list[i].high) {
            uint32_t high = c->list[i].high;
            for (const char *cut = "\"\\"; *cut; cut++)
                if (low < (uint32_t)*cut && high >= (uint32_t)*cut)
                    high = (uint32_t)*cut - 1;
            high = low < 0xd800 && high >= 0xd800 ? 0xd7ff : high;
            if (low >= 0xd800 && low <= 0xdfff) {
                low = 0xe000;
                continue;
            }
            if (low != '"' && low != '\\')
                gqac_str_printf(out, "\\U%08x-\\U%08x", low, high);
            low = (low != '"' && low != '\\' ? high : low) + 1;
        }
    }
    gqac_str_append(out, "]");
    for (size_t i = 0; i < n; i++)
        for (uint32_t x = c->list[i].low; x <= c->list[i].high && x <= '\\'; x++)
            if (x < ' ' || x == '"' || x == '\\')
                write_escape(out, x);
    gqac_str_append(out, ")");
}

/* Copies a repetition. A lazy one, as *?, accepts the same texts, so its ? is left out. */
static bool write_repeat(pattern *p) {
    const size_t begin = p->at;
    if (peek(p) == '{') {
        p->at++;
        const size_t digits = strspn(p->text + p->at, "0123456789,");
        p->at += digits;
        if (!digits || p->text[p->at - digits] == ',' || peek(p) != '}')
            return refuse(p, "braces other than {n}, {n,} and {n,m}");
    } else if (!strchr("*+?", peek(p)) || !peek(p)) {
        return true;
    }
    p->at++;
    gqac_str_append_n(&p->out, p->text + begin, p->at - begin);
    p->at += peek(p) == '?';
    return !peek(p) || !strchr("*+?{", peek(p)) || refuse(p, "a repetition of a repetition");
}

static bool write_group(pattern *p) {
    p->at++;
    p->depth++;
    if (peek(p) == '?' && p->at + 1 < p->length && p->text[p->at + 1] == ':')
        p->at += 2;
    else if (peek(p) == '?')
        return refuse(p, "a group that is not (?:...)");
    gqac_str_append(&p->out, " (");
    return !peek(p) || !strchr("*+?{", peek(p)) || refuse(p, "a repetition of nothing");
}

static bool write_atom(pattern *p) {
    class *c = &p->set;
    uint32_t point = 0;
    c->n = 0;
    c->shorthand = false;
    if (peek(p) == '[') {
        if (!read_class(p, c))
            return false;
    } else if (peek(p) == '.') {
        p->at++;
        add(c, '\n', '\n');
        add(c, '\r', '\r');
        add(c, 0x2028, 0x2029);
        invert(c, LAST);
    } else if (peek(p) == '\\' && p->at + 1 < p->length && add_shorthand(c, p->text[p->at + 1])) {
        p->at += 2;
    } else {
        if (!read_point(p, false, &point))
            return false;
        add(c, point, point);
    }
    write_set(p, c);
    return write_repeat(p);
}

/* Writes what lies between the anchors. */
static bool write_parts(pattern *p, bool anchored) {
    while (p->at < p->length && p->s->b->status == GQAC_OK && !p->out.failed) {
        const char c = peek(p);
        if (c == '(') {
            if (!write_group(p))
                return false;
        } else if (c == ')') {
            if (!p->depth--)
                return refuse(p, "a ')' that closes nothing");
            p->at++;
            gqac_str_append(&p->out, ")");
            if (!write_repeat(p))
                return false;
        } else if (c == '|') {
            if (anchored && !p->depth)
                return refuse(p, "alternatives beside an anchor");
            p->at++;
            gqac_str_append(&p->out, " | ");
            if (peek(p) && strchr("*+?{", peek(p)))
                return refuse(p, "a repetition of nothing");
        } else if (strchr("^$*+?{}", c)) {
            return refuse(p, c == '^' || c == '$' ? "an anchor" : "a repetition of nothing");
        } else if (!write_atom(p)) {
            return false;
        }
    }
    return !p->depth || refuse(p, "a group without an end");
}

/* True if the text ends with a "$" that no backslash escapes. */
static bool ends_in_anchor(const char *text, size_t length) {
    size_t slashes = 0;
    if (!length || text[length - 1] != '$')
        return false;
    while (slashes + 1 < length && text[length - 2 - slashes] == '\\')
        slashes++;
    return slashes % 2 == 0;
}

static void write_rule(pattern *p, const char *name, const json_t *value) {
    const char *text = json_string_value(value);
    const bool first = *text == '^', last = ends_in_anchor(text, strlen(text));
    p->text = text;
    p->length = strlen(text) - last;
    p->at = first && p->length;
    gqac_str_printf(&p->out, "%s ::= \"\\\"\" %s(", name, first ? "" : "json-character* ");
    write_parts(p, first || last);
    gqac_str_printf(&p->out, ") %s\"\\\"\"\n", last ? "" : "json-character* ");
    if (p->out.failed)
        build_fail(p->s->b, gqac_diag_oom(p->s->b->diag, "a schema"));
}

fragment schema_pattern(schema *s, const json_t *value) {
    char name[40];
    builder *b = s->b;
    if (!json_is_string(value)) {
        schema_refuse(s, GQAC_INVALID_INPUT, "a regular expression", "'pattern' is not a string");
        return build_never(b);
    }
    pattern p = {.s = s};
    snprintf(name, sizeof name, "pattern-%zu", b->n_rules);
    write_rule(&p, name, value);
    if (b->status == GQAC_OK) {
        build_rules(b, p.out.text, p.out.length);
        if (b->status != GQAC_OK)
            gqac_diag_where(b->diag, "schema, %s, pattern", s->path);
    }
    gqac_str_free(&p.out);
    return schema_json(s, name);
}
