/* Classes and escapes of expressions. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "text/expressions/pattern_parse_impl.h"

gqac_status pattern_fold(parser *p, charset *set, size_t offset, bool negated) {
    int32_t longer;
    char what[80];
    if (!charset_fold(set, p->sets, negated, &longer))
        return gqac_diag_oom(p->diag, "an expression");
    if (longer < 0)
        return GQAC_OK;
    snprintf(what, sizeof what, "U+%04X, which matches several characters if case is ignored,",
             (unsigned)longer);
    return pattern_refuse(p, GQAC_UNSUPPORTED, offset, what);
}

/* ---- escapes ------------------------------------------------------------- */

/* Between `min` and `max` digits. */
static bool read_hex(parser *p, int min, int max, int32_t *c) {
    int n = 0;
    *c = 0;
    for (int digit; n < max && p->at < p->n && (digit = unicode_hex_digit(p->s[p->at])) >= 0; n++) {
        *c = *c * 16 + digit;
        p->at++;
    }
    return n >= min && *c <= 0x10ffff && (*c < 0xd800 || *c > 0xdfff);
}

static gqac_status parse_code(parser *p, size_t offset, char kind, int32_t *c) {
    bool good;
    if (kind == 'u')
        good = read_hex(p, 4, 4, c);
    else if (pattern_accept(p, "{"))
        good = read_hex(p, 1, 6, c) && pattern_accept(p, "}");
    else
        good = read_hex(p, 1, 2, c);
    if (!good)
        return pattern_refuse(p, GQAC_INVALID_MODEL, offset,
                              "an escape whose code is not a character");
    if (kind == 'x' && p->s[offset + 2] != '{' && *c > 0x7f)
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset,
                              "an escape for a byte that is not a character");
    return GQAC_OK;
}

static gqac_status parse_property(parser *p, charset *set, size_t offset, bool negate) {
    uint32_t mask;
    char what[96];
    if (!pattern_accept(p, "{"))
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "a property without braces");
    if (pattern_accept(p, "^"))
        negate = !negate;
    size_t begin = p->at;
    while (p->at < p->n && p->s[p->at] != '}')
        p->at++;
    size_t length = p->at - begin;
    if (!pattern_accept(p, "}"))
        return pattern_refuse(p, GQAC_INVALID_MODEL, offset, "a property that is not closed");
    if (!unicode_category(p->s + begin, length, &mask)) {
        snprintf(what, sizeof what, "the property %.*s (gqac has general categories only)",
                 length < 40 ? (int)length : 40, p->s + begin);
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset, what);
    }
    if (!charset_add_category(set, p->sets, mask))
        return gqac_diag_oom(p->diag, "an expression");
    if (negate)
        charset_negate(set);
    return GQAC_OK;
}

/* \s, \d, \w, \h and their opposites; false when c is none of them. */
static bool add_shorthand(parser *p, charset *set, char c, bool *oom) {
    *oom = false;
    switch (c | 0x20) {
    case 's':
        charset_add_spaces(set);
        break;
    case 'd':
        *oom = !charset_add_category(set, p->sets, UINT32_C(1) << 9 /* Nd */);
        break;
    case 'w':
        *oom = !charset_add_words(set, p->sets, p->class_depth > 0);
        break;
    case 'h':
        charset_add(set, '0', '9');
        charset_add(set, 'a', 'f');
        charset_add(set, 'A', 'F');
        break;
    default:
        return false;
    }
    if (c < 'a')
        charset_negate(set);
    return true;
}

gqac_status pattern_parse_escape(parser *p, charset *set, int32_t *c) {
    static const char names[] = "tnrfvae", values[] = "\t\n\r\f\v\a\033";
    size_t offset = p->at++;
    bool oom;
    *c = -1;
    if (p->at == p->n)
        return pattern_refuse(p, GQAC_INVALID_MODEL, offset, "a '\\' that escapes nothing");
    char kind = p->s[p->at];
    if ((unsigned char)kind >= 0x80)
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "an unsupported escape");
    p->at++;
    const char *name = kind ? strchr(names, kind) : NULL;
    if (name)
        *c = (unsigned char)values[name - names];
    else if (kind == 'x' || kind == 'u')
        return parse_code(p, offset, kind, c);
    else if (kind == 'p' || kind == 'P')
        return parse_property(p, set, offset, kind == 'P');
    else if (kind >= '1' && kind <= '9')
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "a back reference");
    else if (add_shorthand(p, set, kind, &oom))
        return oom ? gqac_diag_oom(p->diag, "an expression") : GQAC_OK;
    else if (kind == '0' || (kind >= 'a' && kind <= 'z') || (kind >= 'A' && kind <= 'Z') ||
             (unsigned char)kind < 0x20)
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "an unsupported escape");
    else
        *c = (unsigned char)kind; /* punctuation means itself */
    return GQAC_OK;
}

/* ---- classes ------------------------------------------------------------- */

static gqac_status class_depth(parser *p, charset *set, size_t offset);

/* One character of a class, or -1 and a set of them in the empty *part. */
static gqac_status parse_item(parser *p, charset *part, int32_t *c) {
    size_t offset = p->at;
    *c = -1;
    if (p->s[p->at] == '[') {
        if (p->at + 1 < p->n && p->s[p->at + 1] == ':')
            return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "a POSIX class");
        p->at++;
        return class_depth(p, part, offset);
    }
    if (p->s[p->at] == '\\' && p->at + 1 < p->n && p->s[p->at + 1] == 'b') {
        p->at += 2;
        *c = '\b';
        return GQAC_OK;
    }
    if (p->s[p->at] == '\\')
        return pattern_parse_escape(p, part, c);
    p->at += unicode_read(p->s + p->at, p->n - p->at, c);
    return GQAC_OK;
}

static bool is_next(const parser *p, size_t ahead, char c) {
    return p->at + ahead < p->n && p->s[p->at + ahead] == c;
}

/* An item and, when a '-' follows, the range that it begins. */
static gqac_status parse_range(parser *p, charset *set, charset *part, bool first) {
    int32_t low, high;
    size_t offset = p->at;
    bool dash = is_next(p, 0, '-');
    memset(part, 0, sizeof *part);
    GQAC_TRY(parse_item(p, part, &low));
    if (dash && !first && !is_next(p, 0, ']'))
        return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "a '-' in the middle of a class");
    bool range = is_next(p, 0, '-') && !is_next(p, 1, ']');
    if (low < 0) {
        charset_unite(set, part);
        if (range)
            return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "a range that begins with a class");
        return GQAC_OK;
    }
    high = low;
    if (range) {
        p->at++;
        if (p->at == p->n)
            return GQAC_OK; /* the class is not closed: the caller reports it */
        GQAC_TRY(parse_item(p, part, &high));
        if (high < 0)
            return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "a range that ends with a class");
        if (high < low)
            return pattern_refuse(p, GQAC_INVALID_MODEL, offset,
                                  "a range that ends before it begins");
    }
    charset_add(set, low, high);
    return GQAC_OK;
}

/* All items up to ']'. `part` and `both` are scratch; the set before "&&" goes to *both. */
static gqac_status parse_items(parser *p, charset *set, charset *part, charset *both,
                               size_t offset) {
    bool several = false;
    for (bool first = true;; first = false) {
        if (p->at == p->n)
            return pattern_refuse(p, GQAC_INVALID_MODEL, offset, "a class that is not closed");
        if (first && is_next(p, 0, ']'))
            return pattern_refuse(p, GQAC_UNSUPPORTED, offset, "a class that begins with ']'");
        bool end = pattern_accept(p, "]");
        if (end && !several)
            return GQAC_OK;
        if (!end && !pattern_accept(p, "&&")) {
            GQAC_TRY(parse_range(p, set, part, first));
            continue;
        }
        if (several)
            charset_intersect(set, both);
        if (end)
            return GQAC_OK;
        *both = *set;
        memset(set, 0, sizeof *set);
        several = true;
    }
}

static gqac_status parse_nested(parser *p, charset *set, size_t offset) {
    bool negate = pattern_accept(p, "^");
    charset *part = charset_create(), *both = charset_create();
    gqac_status status = GQAC_OK;
    if (!part || !both)
        status = gqac_diag_oom(p->diag, "an expression");
    else
        status = parse_items(p, set, part, both, offset);
    gqac_free(part);
    gqac_free(both);
    if (status == GQAC_OK && p->fold && p->class_depth == 1)
        status = pattern_fold(p, set, offset, negate);
    if (negate)
        charset_negate(set);
    return status;
}

static gqac_status class_depth(parser *p, charset *set, size_t offset) {
    if (p->class_depth == PATTERN_MAX_DEPTH)
        return pattern_refuse(p, GQAC_LIMIT, offset, "more than 64 nested classes");
    p->class_depth++;
    gqac_status status = parse_nested(p, set, offset);
    p->class_depth--;
    return status;
}

gqac_status pattern_parse_class(parser *p, charset *set, size_t offset) {
    return class_depth(p, set, offset);
}
