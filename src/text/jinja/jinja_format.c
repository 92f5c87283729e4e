/* Python's two formatters: `format % values` and `format.format(...)`. A field is parsed to one
 * specification, whose numbers are all bounded. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja_impl.h"

typedef struct spec {
    const char *fill; /* one character */
    size_t fill_bytes;
    char align; /* '<', '>', '^', '='; 0: as the type has it */
    char sign;  /* '+', ' ' or 0 */
    bool alternate, comma;
    int width, precision; /* precision -1: none */
    char type;
} spec;

enum { WIDEST = 10000, PRECISEST = 300 };

static jvalue wrong(jrun *r, const char *what) {
    return jinja_fail(r, GQAC_INVALID_INPUT, "format: %s", what);
}

/* A number in a format; fails if it is more than `most`. */
static int read_number(jrun *r, jvalue f, size_t *at, int most) {
    int n = 0;
    for (; *at < f.n && f.s[*at] >= '0' && f.s[*at] <= '9'; (*at)++) {
        n = n * 10 + (f.s[*at] - '0');
        if (n > most) {
            jinja_fail(r, GQAC_LIMIT, "format: a width or precision is more than %d", most);
            return 0;
        }
    }
    return n;
}

/* ---- one value ----------------------------------------------------------- */

/* Writes sign, prefix and body with padding; `align` is the default. */
static void write_padded(jrun *r, gqac_str *out, const spec *s, jvalue sign, jvalue body,
                         char align) {
    size_t n = jinja_count(r, sign) + jinja_count(r, body);
    size_t padding = (size_t)s->width > n ? (size_t)s->width - n : 0;
    align = s->align ? s->align : align;
    size_t left = align == '<' ? 0 : align == '^' ? padding / 2 : padding;
    if (align == '=')
        jinja_out(r, out, sign.s, sign.n);
    for (size_t i = 0; i < left && jinja_ok(r); i++)
        jinja_out(r, out, s->fill, s->fill_bytes);
    if (align != '=')
        jinja_out(r, out, sign.s, sign.n);
    jinja_out(r, out, body.s, body.n);
    for (size_t i = left; i < padding && jinja_ok(r); i++)
        jinja_out(r, out, s->fill, s->fill_bytes);
}

static void write_text(jrun *r, gqac_str *out, const spec *s, jvalue text) {
    if (s->precision >= 0)
        text.n = jinja_offset(r, text, (size_t)s->precision);
    write_padded(r, out, s, jinja_literal(""), text, '<');
}

/* Digits with commas at thousands; what follows the digits stays. */
static void group(char *text, size_t size) {
    size_t digits = strspn(text, "0123456789"), n = strlen(text);
    for (size_t at = digits; at > 3;) {
        at -= 3;
        if (n + 2 > size)
            return;
        memmove(text + at + 1, text + at, n - at + 1);
        text[at] = ',';
        n++;
    }
}

static void write_int(jrun *r, gqac_str *out, const spec *s, int64_t i) {
    char body[512], sign[4] = "";
    uint64_t u = i < 0 ? (uint64_t)0 - (uint64_t)i : (uint64_t)i;
    size_t n = 0;
    if (i < 0 || s->sign)
        snprintf(sign, sizeof sign, "%c", i < 0 ? '-' : s->sign);
    if (s->type == 'b') {
        for (int bit = 63; bit >= 0; bit--)
            if (n > 0 || bit == 0 || (u >> bit & 1))
                body[n++] = (char)('0' + (u >> bit & 1));
        body[n] = '\0';
    } else {
        const char *format = s->type == 'x'   ? "%0*llx"
                             : s->type == 'X' ? "%0*llX"
                             : s->type == 'o' ? "%0*llo"
                                              : "%0*llu";
        snprintf(body, sizeof body, format, s->precision > 0 ? s->precision : 1,
                 (unsigned long long)u);
    }
    if (s->alternate && (s->type == 'x' || s->type == 'X' || s->type == 'o' || s->type == 'b'))
        snprintf(sign + strlen(sign), sizeof sign - strlen(sign), "0%c", s->type);
    if (s->comma)
        group(body, sizeof body);
    write_padded(r, out, s, jinja_literal(sign), jinja_literal(body), '>');
}

static void write_float(jrun *r, gqac_str *out, const spec *s, double f) {
    char body[1024], sign[2] = "";
    bool negative = signbit(f) && !isnan(f), percent = s->type == '%';
    char format[] = {'%', '.', '*', percent ? 'f' : s->type, '\0'};
    if (negative || s->sign)
        sign[0] = negative ? '-' : s->sign;
    if (!s->type && s->precision < 0) {
        jinja_float_text(fabs(f), false, body);
    } else {
        locale_t before = gqac_c_locale_begin();
        if (!s->type)
            format[3] = 'g';
        snprintf(body, sizeof body, format, s->precision < 0 ? 6 : s->precision,
                 fabs(f) * (percent ? 100 : 1));
        gqac_c_locale_end(before);
    }
    if (percent)
        strcat(body, "%");
    if (s->comma)
        group(body, sizeof body);
    write_padded(r, out, s, jinja_literal(sign), jinja_literal(body), '>');
}

static bool is_one_of(char c, const char *list) {
    return c && strchr(list, c);
}

/* ---- format % values ----------------------------------------------------- */

typedef struct values {
    jvalue all; /* a tuple, a dict, or one value */
    size_t used;
} values;

static jvalue next_value(jrun *r, values *v) {
    if (v->all.type == J_TUPLE)
        return v->used < v->all.list->n ? v->all.list->v[v->used++]
                                        : wrong(r, "there are not enough values");
    if (v->used++)
        return wrong(r, "there are not enough values");
    return v->all;
}

static void parse_flags(jrun *r, jvalue f, size_t *at, values *v, spec *s) {
    bool zero = false, left = false;
    for (; *at < f.n && is_one_of(f.s[*at], "-+ #0"); (*at)++) {
        char c = f.s[*at];
        zero = zero || c == '0';
        left = left || c == '-';
        s->alternate = s->alternate || c == '#';
        if (c == '+' || (c == ' ' && !s->sign))
            s->sign = c;
    }
    if (*at < f.n && f.s[*at] == '*') {
        jvalue width = next_value(r, v);
        (*at)++;
        if (width.type != J_INT || width.i < 0 || width.i > WIDEST)
            wrong(r, "'*' takes an integer from 0 to 10000");
        s->width = jinja_ok(r) ? (int)width.i : 0;
    } else {
        s->width = read_number(r, f, at, WIDEST);
    }
    s->align = left ? '<' : zero ? '=' : '>';
    if (zero && !left)
        s->fill = "0";
    if (*at < f.n && f.s[*at] == '.') {
        (*at)++;
        s->precision = read_number(r, f, at, PRECISEST);
    }
}

static void percent_value(jrun *r, gqac_str *out, spec *s, char type, jvalue v) {
    gqac_str text = {0};
    bool number = v.type == J_INT || v.type == J_BOOL || v.type == J_FLOAT;
    s->type = type == 'i' || type == 'u' ? 'd' : type;
    if (is_one_of(type, "sra")) {
        s->align = s->align == '<' ? '<' : '>';
        s->fill = " ";
        if (type == 's')
            jinja_str(r, &text, v);
        else
            jinja_repr(r, &text, v);
        jvalue body = jinja_taken(r, &text);
        if (jinja_ok(r))
            write_text(r, out, s, body);
    } else if (type == 'c' && v.type == J_STR && jinja_count(r, v) == 1) {
        write_text(r, out, s, v);
    } else if (is_one_of(type, "diuxXo") && number) {
        if (v.type == J_FLOAT && (!is_one_of(type, "diu") || !(fabs(v.f) < 0x1p63)))
            wrong(r, "an integer is expected");
        if (jinja_ok(r))
            write_int(r, out, s, v.type == J_FLOAT ? (int64_t)v.f : v.type == J_INT ? v.i : v.flag);
    } else if (is_one_of(type, "eEfFgG") && number) {
        write_float(r, out, s, jinja_number(v));
    } else {
        jinja_fail(r, GQAC_INVALID_INPUT, "format: '%%%c' does not take a value of type %s", type,
                   jinja_type(v));
    }
}

static void percent_field(jrun *r, gqac_str *out, jvalue f, size_t *at, values *v) {
    spec s = {.fill = " ", .fill_bytes = 1, .precision = -1};
    jvalue named = jinja_missing;
    if (*at < f.n && f.s[*at] == '(') {
        size_t end = jinja_find(f.s + *at, f.n - *at, ")", 1);
        if (end == SIZE_MAX || v->all.type != J_DICT) {
            wrong(r, "a name in parentheses needs a mapping");
            return;
        }
        const jvalue *found = jinja_get_n(r, v->all.dict, f.s + *at + 1, end - 1);
        if (!found) {
            wrong(r, "a name is not in the mapping");
            return;
        }
        named = *found;
        *at += end + 1;
    }
    parse_flags(r, f, at, v, &s);
    if (*at >= f.n || !jinja_ok(r)) {
        wrong(r, "the format is not complete");
        return;
    }
    char type = f.s[(*at)++];
    if (type == '%')
        jinja_out(r, out, "%", 1);
    else
        percent_value(r, out, &s, type, named.type == J_MISSING ? next_value(r, v) : named);
}

jvalue jinja_percent(jrun *r, jvalue f, jvalue args) {
    gqac_str out = {0};
    values v = {args, 0};
    for (size_t at = 0; at < f.n && jinja_charge(r, 1);) {
        size_t next = jinja_find(f.s + at, f.n - at, "%", 1);
        size_t end = next == SIZE_MAX ? f.n : at + next;
        jinja_out(r, &out, f.s + at, end - at);
        at = end + 1;
        if (end < f.n)
            percent_field(r, &out, f, &at, &v);
    }
    const bool indexed = args.type == J_DICT || args.type == J_LIST || args.type == J_RANGE ||
                         args.type == J_UNDEFINED;
    if (args.type == J_TUPLE ? v.used < args.list->n : !indexed && v.used == 0)
        wrong(r, "there are values that the format does not use");
    return jinja_taken(r, &out);
}

/* ---- format.format(...) -------------------------------------------------- */

static void parse_spec(jrun *r, jvalue f, spec *s) {
    size_t at = 0, bytes = 0;
    *s = (spec){.fill = " ", .fill_bytes = 1, .precision = -1};
    if (f.n)
        jinja_char(f.s, f.n, &bytes);
    if (f.n > bytes && is_one_of(f.s[bytes], "<>^=")) {
        s->fill = f.s;
        s->fill_bytes = bytes;
        s->align = f.s[bytes];
        at = bytes + 1;
    } else if (f.n && is_one_of(f.s[0], "<>^=")) {
        s->align = f.s[at++];
    }
    if (at < f.n && is_one_of(f.s[at], "+- ")) {
        s->sign = f.s[at] == '-' ? '\0' : f.s[at];
        at++;
    }
    if (at < f.n && f.s[at] == '#') {
        s->alternate = true;
        at++;
    }
    if (at < f.n && f.s[at] == '0' && !s->align) {
        s->fill = "0";
        s->align = '=';
    }
    s->width = read_number(r, f, &at, WIDEST);
    if (at < f.n && f.s[at] == ',') {
        s->comma = true;
        at++;
    }
    if (at < f.n && f.s[at] == '.') {
        at++;
        s->precision = read_number(r, f, &at, PRECISEST);
    }
    if (at < f.n)
        s->type = f.s[at++];
    if (at < f.n)
        wrong(r, "the format specification is unknown");
}

static void format_value(jrun *r, gqac_str *out, jvalue v, jvalue specification) {
    spec s;
    parse_spec(r, specification, &s);
    if (!jinja_ok(r))
        return;
    bool integer = v.type == J_INT || (v.type == J_BOOL && specification.n > 0);
    bool real = s.type && strchr("eEfFgG%", s.type);
    if (integer && real)
        v = jinja_float(jinja_number(v));
    if (integer && !real && is_one_of(s.type ? s.type : 'd', "dxXob") && s.precision < 0) {
        write_int(r, out, &s, v.type == J_INT ? v.i : v.flag);
    } else if (v.type == J_FLOAT && (real || !s.type)) {
        write_float(r, out, &s, v.f);
    } else if (v.type == J_STR && (s.type == 's' || !s.type) && s.align != '=' && !s.sign) {
        write_text(r, out, &s, v);
    } else if (specification.n == 0) {
        jinja_str(r, out, v);
    } else {
        jinja_fail(r, GQAC_INVALID_INPUT,
                   "format: a format specification does not take a value of type %s",
                   jinja_type(v));
    }
}

/* The argument of a field's name: "", "0" or "name". */
static jvalue field_value(jrun *r, jvalue name, const jargs *args, int64_t *next) {
    int64_t at = *next;
    if (name.n == 0) {
        if (*next < 0)
            return wrong(r, "numbered and unnumbered fields do not mix");
        (*next)++;
    } else if (strspn(name.s, "0123456789") >= name.n) {
        size_t i = 0;
        at = read_number(r, name, &i, WIDEST);
        if (*next > 0)
            return wrong(r, "numbered and unnumbered fields do not mix");
        *next = -1;
    } else {
        if (memchr(name.s, '.', name.n) || memchr(name.s, '[', name.n))
            return jinja_fail(
                r, GQAC_UNSUPPORTED,
                "the template formats an attribute or item of a value, which is not supported");
        for (size_t i = 0; i < args->n_named; i++)
            if (jinja_equal(r, args->named[i].k, name))
                return args->named[i].v;
        return wrong(r, "no argument has the name of a field");
    }
    return at >= 0 && (size_t)at < args->n ? args->v[at]
                                           : wrong(r, "there are not enough arguments");
}

static void format_field(jrun *r, gqac_str *out, jvalue field, const jargs *args, int64_t *next) {
    size_t colon = jinja_find(field.s, field.n, ":", 1);
    jvalue name = jinja_view(field.s, colon == SIZE_MAX ? field.n : colon);
    jvalue specification = jinja_literal("");
    char conversion = '\0';
    if (colon != SIZE_MAX)
        specification = jinja_view(field.s + colon + 1, field.n - colon - 1);
    size_t mark = jinja_find(name.s, name.n, "!", 1);
    if (mark != SIZE_MAX) {
        if (mark + 2 != name.n || !is_one_of(name.s[mark + 1], "rs")) {
            wrong(r, "a conversion is unknown");
            return;
        }
        conversion = name.s[mark + 1];
        name.n = mark;
    }
    if (memchr(specification.s, '{', specification.n)) {
        jinja_fail(r, GQAC_UNSUPPORTED,
                   "the template nests a field in a field, which is not supported");
        return;
    }
    jvalue v = field_value(r, name, args, next);
    if (conversion && jinja_ok(r)) {
        gqac_str text = {0};
        if (conversion == 'r')
            jinja_repr(r, &text, v);
        else
            jinja_str(r, &text, v);
        v = jinja_taken(r, &text);
    }
    if (jinja_ok(r))
        format_value(r, out, v, specification);
}

jvalue jinja_str_format(jrun *r, jvalue f, const jargs *args) {
    gqac_str out = {0};
    int64_t next = 0;
    for (size_t at = 0; at < f.n && jinja_charge(r, 1);) {
        char c = f.s[at];
        bool twice = at + 1 < f.n && f.s[at + 1] == c;
        if (c != '{' && c != '}') {
            jinja_out(r, &out, f.s + at++, 1);
        } else if (twice) {
            jinja_out(r, &out, &c, 1);
            at += 2;
        } else {
            size_t end = c == '{' ? jinja_find(f.s + at, f.n - at, "}", 1) : SIZE_MAX;
            if (end == SIZE_MAX) {
                wrong(r, "a single brace stands alone");
                break;
            }
            format_field(r, &out, jinja_view(f.s + at + 1, end - 1), args, &next);
            at += end + 1;
        }
    }
    return jinja_taken(r, &out);
}
