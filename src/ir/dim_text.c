/* Text of dimensions: printer and parser (grammar in docs/ir.md, "dim").
 *
 * The printer writes the first term with a positive coefficient first ("T-S", not "-S+T"), the
 * others in their order. The parser accepts any order, parentheses and blanks, and returns the
 * interned dimension, so printing what was parsed gives the canonical text. */
#include "ir/dim_impl.h"

#include <string.h>

#include "base/check.h"

static bool ident_start(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

static bool ident_char(char c) {
    return ident_start(c) || (c >= '0' && c <= '9') || c == '.';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

void dim_quote(gqac_str *out, const char *name) {
    size_t length = strlen(name), i = 0;
    while (i < length && ident_char(name[i]))
        i++;
    if (i == length && length && ident_start(name[0])) {
        gqac_str_append(out, name);
        return;
    }
    bool utf8 = gqac_utf8_valid(name, length);
    gqac_str_append(out, "`");
    for (i = 0; i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c == '`' || c == '\\')
            gqac_str_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8))
            gqac_str_printf(out, "\\x%02x", c);
        else
            gqac_str_append_n(out, &name[i], 1);
    }
    gqac_str_append(out, "`");
}

/* ---- printer ------------------------------------------------------------- */

static void print_term(gqac_str *out, const dim_term *term, bool first) {
    /* The magnitude as unsigned: -INT64_MIN has no int64. */
    bool negative = term->coef < 0;
    unsigned long long size =
        negative ? 0 - (unsigned long long)term->coef : (unsigned long long)term->coef;
    gqac_str_append(out, negative ? "-" : first ? "" : "+");
    bool factors = term->degree == 0 || size != 1;
    if (factors)
        gqac_str_printf(out, "%llu", size);
    for (int i = 0; i < term->degree; i++) {
        const dim_atom *atom = term->atoms[i];
        bool wrap = atom->kind == DIM_DIV && (factors || term->degree > 1);
        gqac_str_append(out, factors || i ? "*" : "");
        gqac_str_append(out, wrap ? "(" : "");
        gqac_str_append_n(out, atom->text, atom->length);
        gqac_str_append(out, wrap ? ")" : "");
    }
}

void ir_dim_print(gqac_str *out, const ir_dim *dim) {
    if (!dim || dim->n == 0) {
        gqac_str_append(out, dim ? "0" : "?");
        return;
    }
    int lead = 0;
    while (lead < dim->n && dim->terms[lead].coef < 0)
        lead++;
    if (lead == dim->n)
        lead = 0;
    print_term(out, &dim->terms[lead], true);
    for (int i = 0; i < dim->n; i++)
        if (i != lead)
            print_term(out, &dim->terms[i], false);
}

/* ---- parser -------------------------------------------------------------- */

enum {
    MAX_PARENS = 3 * DIM_MAX_DEPTH, /* more than any printed dimension has */
    MAX_FACTORS = 4 * DIM_MAX_DEGREE,
};

typedef struct dim_parser {
    ir_dims *dims;
    const char *at;
    int depth;
} dim_parser;

static const ir_dim *parse_sum(dim_parser *p);

static bool next_is(dim_parser *p, char c) {
    const char *at = p->at;
    while (*at == ' ' || *at == '\t')
        at++;
    /* a "//" begins a comment of the surrounding text and is not a division */
    if (*at != c || (c == '/' && at[1] == '/'))
        return false;
    p->at = at + 1;
    while (*p->at == ' ' || *p->at == '\t')
        p->at++;
    return true;
}

static int hex_digit(char c) {
    if (is_digit(c))
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const ir_dim *parse_quoted(dim_parser *p) {
    char name[DIM_MAX_ATOM_TEXT];
    size_t n = 0;
    for (p->at++; *p->at != '`'; p->at++) {
        char c = *p->at;
        if (c == '\0' || c == '\n' || n + 1 >= sizeof name)
            return NULL;
        if (c == '\\') {
            c = *++p->at;
            if (c == 'x') {
                int high = hex_digit(p->at[1]), low = high < 0 ? -1 : hex_digit(p->at[2]);
                if (low < 0 || high * 16 + low == 0)
                    return NULL;
                c = (char)(high * 16 + low);
                p->at += 2;
            } else if (c != '`' && c != '\\') {
                return NULL;
            }
        }
        name[n++] = c;
    }
    p->at++;
    name[n] = '\0';
    return ir_dim_symbol(p->dims, name);
}

/* Parses a magnitude of at most `limit`. */
static bool parse_number(dim_parser *p, uint64_t limit, uint64_t *value) {
    uint64_t number = 0;
    if (!is_digit(*p->at))
        return false;
    for (; is_digit(*p->at); p->at++) {
        uint64_t digit = (uint64_t)(*p->at - '0');
        if (number > (limit - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *value = number;
    return true;
}

static const ir_dim *parse_max(dim_parser *p) {
    const ir_dim *a = parse_sum(p);
    if (!a || !next_is(p, ','))
        return NULL;
    const ir_dim *b = parse_sum(p);
    return b && next_is(p, ')') ? ir_dim_max(p->dims, a, b) : NULL;
}

static const ir_dim *parse_factor(dim_parser *p) {
    const char *start = p->at;
    if (p->depth >= MAX_PARENS)
        return NULL;
    if (*start == '`')
        return parse_quoted(p);
    p->depth++;
    const ir_dim *dim = NULL;
    if (*start == '(') {
        next_is(p, '(');
        dim = parse_sum(p);
        dim = dim && next_is(p, ')') ? dim : NULL;
    } else if (is_digit(*start)) {
        uint64_t number;
        if (parse_number(p, INT64_MAX, &number))
            dim = ir_dim_const(p->dims, (int64_t)number);
    } else if (strncmp(start, "max(", 4) == 0) {
        p->at += 3;
        next_is(p, '(');
        dim = parse_max(p);
    } else if (ident_start(*start)) {
        char name[DIM_MAX_ATOM_TEXT + 1];
        while (ident_char(*p->at))
            p->at++;
        size_t length = (size_t)(p->at - start);
        if (length < sizeof name) {
            memcpy(name, start, length);
            name[length] = '\0';
            dim = ir_dim_symbol(p->dims, name);
        }
    }
    p->depth--;
    return dim;
}

/* factor ("*" factor | "/" number)*. The caller handles the sign before it, except for -2^63, whose
 * magnitude has no int64: *negative then becomes false. */
static const ir_dim *parse_product(dim_parser *p, bool *negative) {
    const ir_dim *dim;
    uint64_t number;
    if (is_digit(*p->at)) {
        if (!parse_number(p, (uint64_t)INT64_MAX + (*negative ? 1 : 0), &number))
            return NULL;
        dim = ir_dim_const(p->dims, (int64_t)number);
        if (number > INT64_MAX)
            *negative = false;
    } else {
        dim = parse_factor(p);
    }
    for (int i = 0; dim && i <= MAX_FACTORS; i++) {
        if (next_is(p, '*')) {
            dim = ir_dim_mul(p->dims, dim, parse_factor(p));
        } else if (next_is(p, '/')) {
            bool ok = parse_number(p, INT64_MAX, &number) && number > 0;
            dim = ok ? ir_dim_floordiv(p->dims, dim, (int64_t)number) : NULL;
        } else {
            return dim;
        }
    }
    return NULL;
}

/* The sum is interned only when it is complete, so that its prefixes are not. */
static const ir_dim *parse_sum(dim_parser *p) {
    dim_poly poly;
    poly.n = 0;
    bool negative = next_is(p, '-');
    for (;;) {
        const ir_dim *product = parse_product(p, &negative);
        if (!product || !dim_poly_add(&poly, product, negative ? -1 : 1))
            return NULL;
        negative = next_is(p, '-');
        if (!negative && !next_is(p, '+'))
            return dim_poly_intern(p->dims, &poly);
    }
}

const ir_dim *ir_dim_parse(ir_dims *dims, const char **text, bool *ok) {
    dim_parser p = {.dims = dims, .at = *text};
    const ir_dim *dim = NULL;
    if (*p.at == '?') {
        p.at++;
        *ok = true;
    } else {
        dim = parse_sum(&p);
        *ok = dim != NULL;
    }
    *text = p.at;
    return dim;
}
