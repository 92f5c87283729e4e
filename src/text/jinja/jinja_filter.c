/* Filters of templates that take one value: texts, numbers, JSON. Those of sequences are in
 * jinja_filter_list.c. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja_impl.h"

static jvalue text_or(jrun *r, jvalue v, const char *absent) {
    return jinja_to_str(r, jinja_or(v, jinja_literal(absent)));
}

/* ---- texts --------------------------------------------------------------- */

JINJA_EXPRESSION(filter_upper, jinja_upper(r, jinja_to_str(r, v)))

JINJA_EXPRESSION(filter_lower, jinja_lower(r, jinja_to_str(r, v)))

JINJA_EXPRESSION(filter_capitalize, jinja_capitalize(r, jinja_to_str(r, v), false))

/* Words begin after spaces, hyphens and opening brackets. */
static bool is_between_words(int32_t c) {
    return jinja_is_space(c) || (c > 0 && c < 0x80 && strchr("-({[<", c));
}

/* Each word, and each run of what is between words, by itself. */
JINJA_FUNCTION(filter_title) {
    gqac_str out = {0};
    v = jinja_to_str(r, v);
    for (size_t at = 0, bytes; jinja_ok(r) && at < v.n;) {
        const bool between = is_between_words(jinja_char(v.s + at, v.n - at, &bytes));
        const jvalue first = jinja_upper(r, jinja_view(v.s + at, bytes));
        const size_t second = at += bytes;
        for (; at < v.n; at += bytes)
            if (is_between_words(jinja_char(v.s + at, v.n - at, &bytes)) != between)
                break;
        const jvalue rest = jinja_lower(r, jinja_view(v.s + second, at - second));
        if (!jinja_ok(r))
            break;
        jinja_out(r, &out, first.s, first.n);
        jinja_out(r, &out, rest.s, rest.n);
    }
    return jinja_taken(r, &out);
}

JINJA_EXPRESSION(filter_trim, jinja_strip(r, jinja_to_str(r, v), p[0], true, true))

JINJA_FUNCTION(filter_replace) {
    v = jinja_to_str(r, v);
    jvalue old = jinja_to_str(r, p[0]), by = jinja_to_str(r, p[1]);
    int64_t count = p[2].type == J_NONE ? -1 : jinja_int_or(r, p[2], -1);
    return jinja_ok(r) ? jinja_replace(r, v, old, by, count) : v;
}

JINJA_EXPRESSION(filter_string, jinja_to_str(r, v))

JINJA_FUNCTION(filter_safe) {
    v = jinja_to_str(r, v);
    v.flag = v.type == J_STR;
    return v;
}

JINJA_EXPRESSION(filter_escape, v.type == J_STR && v.flag ? v : jinja_escape(r, jinja_to_str(r, v)))

JINJA_EXPRESSION(filter_forceescape, jinja_escape(r, jinja_to_str(r, v)))

JINJA_FUNCTION(filter_indent) {
    gqac_str out = {0};
    jvalue by = p[0];
    if (v.type != J_STR)
        return jinja_fail(r, GQAC_INVALID_INPUT, "indent takes a string, not a value of type %s",
                          jinja_type(v));
    if (by.type != J_STR)
        by = jinja_repeat(r, jinja_literal(" "), jinja_int_or(r, by, 4));
    if (!jinja_ok(r))
        return v;
    jvalue lines = jinja_lines(r, jinja_concat(r, v, jinja_literal("\n")), false);
    bool first = jinja_true(r, p[1]), blank = jinja_true(r, p[2]);
    for (size_t i = 0; jinja_ok(r) && i < lines.list->n; i++) {
        const jvalue *line = &lines.list->v[i];
        if (i)
            jinja_out(r, &out, "\n", 1);
        if (i ? blank || line->n > 0 : first)
            jinja_out(r, &out, by.s, by.n);
        jinja_out(r, &out, line->s, line->n);
    }
    return jinja_taken(r, &out);
}

JINJA_FUNCTION(filter_truncate) {
    int64_t length = jinja_int_or(r, p[0], 255),
            leeway = p[3].type == J_NONE ? 5 : jinja_int_or(r, p[3], 5);
    jvalue end = text_or(r, p[2], "...");
    size_t count;
    if (!jinja_ok(r))
        return v;
    if (!jinja_length(r, v, &count))
        return jinja_fail(r, GQAC_INVALID_INPUT, "a value of type %s has no length", jinja_type(v));
    int64_t dots = (int64_t)jinja_count(r, end);
    if (length < dots || leeway < 0)
        return jinja_fail(r, GQAC_INVALID_INPUT, "truncate cannot cut to %lld characters",
                          (long long)length);
    if ((int64_t)count - leeway <= length)
        return v;
    if (v.type != J_STR)
        return jinja_fail(r, GQAC_INVALID_INPUT, "truncate takes a string, not a value of type %s",
                          jinja_type(v));
    v.n = jinja_offset(r, v, (size_t)(length - dots));
    if (!jinja_true(r, p[1]))
        for (size_t at = v.n; at-- > 0;)
            if (v.s[at] == ' ') {
                v.n = at;
                break;
            }
    return jinja_concat(r, v, end);
}

JINJA_FUNCTION(filter_wordcount) {
    int64_t words = 0;
    bool in_word = false;
    v = jinja_to_str(r, v);
    for (size_t at = 0, bytes; jinja_charge(r, 1) && at < v.n; at += bytes) {
        int32_t c = jinja_char(v.s + at, v.n - at, &bytes);
        bool word = c == '_' || jinja_is(jinja_view(v.s + at, bytes), "isalnum");
        words += word && !in_word;
        in_word = word;
    }
    return jinja_int(words);
}

JINJA_FUNCTION(filter_center) {
    v = jinja_to_str(r, v);
    jvalue width = jinja_or(p[0], jinja_int(80));
    const jbuiltin *row = jinja_str_method("center", 6);
    return jinja_ok(r) ? jinja_call_row(r, row, v, &(jargs){.n = 1, .v = &width}) : v;
}

JINJA_FUNCTION(filter_format) {
    v = jinja_to_str(r, v);
    jvalue values = jinja_list(r, J_TUPLE, args->v, args->n);
    if (args->n && args->n_named)
        return jinja_fail(r, GQAC_INVALID_INPUT, "format takes values or names, not both");
    if (args->n_named) {
        values = jinja_dict(r, J_DICT, args->n_named);
        for (size_t i = 0; jinja_ok(r) && i < args->n_named; i++)
            jinja_put(r, values.dict, args->named[i].k, args->named[i].v);
    }
    return jinja_ok(r) ? jinja_percent(r, v, values) : v;
}

/* A value in a URL, or with `query` in its query: there '/' is encoded and a space is '+'. */
static void url_quote(jrun *r, gqac_str *out, jvalue v, bool query) {
    static const char plain[] =
        "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~";
    static const char hex[] = "0123456789ABCDEF";
    v = jinja_to_str(r, v);
    for (size_t at = 0; at < v.n && jinja_ok(r); at++) {
        const unsigned char c = (unsigned char)v.s[at];
        const char code[] = {'%', hex[c >> 4], hex[c & 15]};
        if (c && strchr(query ? plain + 1 : plain, c))
            jinja_out(r, out, v.s + at, 1);
        else if (query && c == ' ')
            jinja_out(r, out, "+", 1);
        else
            jinja_out(r, out, code, 3);
    }
}

/* A text, or pairs of name and value: those of a dict, or each an iterable of two. */
JINJA_FUNCTION(filter_urlencode) {
    gqac_str out = {0};
    const bool pairs = v.type != J_STR && jinja_iterable(v);
    if (!pairs)
        url_quote(r, &out, v, false);
    const jvalue all = pairs && v.type == J_DICT ? jinja_dict_view(v, JVIEW_ITEMS) : v;
    const jvalue list = pairs ? jinja_elements(r, all) : jinja_list(r, J_LIST, NULL, 0);
    for (size_t i = 0; jinja_ok(r) && i < list.list->n; i++) {
        const jvalue pair = jinja_elements(r, list.list->v[i]);
        if (jinja_ok(r) && pair.list->n != 2)
            jinja_fail(r, GQAC_INVALID_INPUT, "urlencode takes pairs of name and value");
        for (size_t part = 0; part < 2 && jinja_ok(r); part++) {
            jinja_out(r, &out, part ? "=" : "&", part || i);
            url_quote(r, &out, pair.list->v[part], true);
        }
    }
    return jinja_taken(r, &out);
}

/* ---- numbers ------------------------------------------------------------- */

/* A text without spaces around it and underscores between digits, ending with NUL; false when
 * Python's numbers do not allow it. */
static bool number_text(jrun *r, jvalue v, char text[400]) {
    size_t n = 0;
    v = jinja_strip(r, v, jinja_missing, true, true);
    for (size_t i = 0; i < v.n; i++) {
        bool inner = i > 0 && i + 1 < v.n && v.s[i - 1] != '_' && v.s[i + 1] != '_';
        if (v.s[i] == '_' && inner)
            continue;
        if (n == 399 || !v.s[i] || v.s[i] == '_')
            return false;
        text[n++] = v.s[i];
    }
    text[n] = '\0';
    return n > 0;
}

static bool read_float(jrun *r, jvalue v, double *out) {
    char text[400], *end;
    if (!number_text(r, v, text))
        return false;
    const char *body = text + (text[0] == '-' || text[0] == '+');
    bool digits = body[0] == '.' || (body[0] >= '0' && body[0] <= '9');
    if (!digits && strcasecmp(body, "inf") != 0 && strcasecmp(body, "infinity") != 0 &&
        strcasecmp(body, "nan") != 0)
        return false;
    if (strpbrk(body, "xX"))
        return false;
    *out = gqac_strtod(text, &end);
    return *end == '\0';
}

static bool read_int(jrun *r, jvalue v, int64_t base, int64_t *out) {
    char text[400], *end;
    if (!number_text(r, v, text))
        return false;
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    char letter = (char)(digits[0] == '0' ? digits[1] | 32 : 0);
    int own = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    char plain[400] = "";
    if (base == 0 && own == 0 && digits[0] == '0' && strspn(digits, "0") != strlen(digits))
        return false; /* "012" is not a number in Python */
    base = base ? base : own ? own : 10;
    if (text[0] == '-')
        strcpy(plain, "-");
    strcat(plain, digits + (own && own == base ? 2 : 0));
    const char *first = plain + (plain[0] == '-');
    if (!((*first >= '0' && *first <= '9') || ((*first | 32) >= 'a' && (*first | 32) <= 'z')) ||
        (base == 16 && (first[1] | 32) == 'x'))
        return false;
    errno = 0;
    *out = strtoll(plain, &end, (int)base);
    if (*end == '\0' && errno)
        jinja_fail(r, GQAC_LIMIT, "an integer has more than 64 bits");
    return *end == '\0';
}

static bool float_to_int(jrun *r, double f, jvalue *out) {
    if (isnan(f) || isinf(f))
        return false;
    if (f >= 0x1p63 || f < -0x1p63)
        *out = jinja_fail(r, GQAC_LIMIT, "an integer has more than 64 bits");
    else
        *out = jinja_int((int64_t)f);
    return true;
}

JINJA_FUNCTION(filter_int) {
    jvalue absent = jinja_or(p[0], jinja_int(0)), out;
    int64_t base = jinja_int_or(r, p[1], 10), i;
    double f;
    if (v.type == J_UNDEFINED)
        return jinja_wrong(r, "converted to a number", v);
    if (base < 0 || base == 1 || base > 36 || !jinja_ok(r))
        return absent;
    if (v.type == J_INT || v.type == J_BOOL)
        return jinja_int(jinja_int_or(r, v, 0));
    if (v.type == J_STR && read_int(r, v, base, &i))
        return jinja_int(i);
    if (v.type == J_FLOAT && isinf(v.f))
        return jinja_fail(r, GQAC_INVALID_INPUT, "infinity cannot be converted to an integer");
    if (v.type == J_FLOAT || (v.type == J_STR && read_float(r, v, &f)))
        if (float_to_int(r, v.type == J_FLOAT ? v.f : f, &out))
            return out;
    return absent;
}

JINJA_FUNCTION(filter_float) {
    double f;
    if (v.type == J_UNDEFINED)
        return jinja_wrong(r, "converted to a number", v);
    if (jinja_is_number(v))
        return jinja_float(jinja_number(v));
    if (v.type == J_STR && read_float(r, v, &f))
        return jinja_float(f);
    return jinja_or(p[0], jinja_float(0));
}

JINJA_FUNCTION(filter_abs) {
    if (v.type == J_FLOAT)
        return jinja_float(fabs(v.f));
    if (v.type == J_INT || v.type == J_BOOL)
        return v.type == J_INT && v.i < 0 ? jinja_binary(r, '-', jinja_int(0), v)
                                          : jinja_int(jinja_int_or(r, v, 0));
    return jinja_fail(r, GQAC_INVALID_INPUT, "abs takes a number, not a value of type %s",
                      jinja_type(v));
}

/* Rounds the exact value, halves to even, as printf does. */
static double round_decimals(double f, int64_t digits) {
    char text[400];
    if (!isfinite(f) || digits > 300)
        return f;
    if (digits < 0) {
        double scale = pow(10, (double)(digits < -308 ? 308 : -digits));
        return digits < -308 ? copysign(0, f) : rint(f / scale) * scale;
    }
    locale_t before = gqac_c_locale_begin();
    snprintf(text, sizeof text, "%.*f", (int)digits < 60 ? (int)digits : 60, f);
    double rounded = strtod(text, NULL);
    gqac_c_locale_end(before);
    return rounded;
}

static jvalue round_int(jrun *r, int64_t i, int64_t digits) {
    if (digits >= 0)
        return jinja_int(i);
    if (digits < -18)
        return jinja_int(0);
    int64_t scale = 1;
    for (int64_t d = digits; d < 0; d++)
        scale *= 10;
    int64_t rest = i % scale, below = i / scale; /* the quotient rounded down */
    if (rest < 0) {
        rest += scale;
        below--;
    }
    bool up = rest > scale - rest || (rest == scale - rest && below % 2 != 0);
    return up ? jinja_binary(r, '+', jinja_int(i), jinja_int(scale - rest))
              : jinja_binary(r, '-', jinja_int(i), jinja_int(rest));
}

JINJA_FUNCTION(filter_round) {
    int64_t digits = jinja_int_or(r, p[0], 0);
    jvalue method = text_or(r, p[1], "common");
    if (!jinja_ok(r))
        return v;
    bool ceiling = method.n == 4 && !memcmp(method.s, "ceil", 4);
    bool common = method.n == 6 && !memcmp(method.s, "common", 6);
    if (!common && !ceiling && !(method.n == 5 && !memcmp(method.s, "floor", 5)))
        return jinja_fail(r, GQAC_INVALID_INPUT, "round: the method is not common, ceil or floor");
    if (!jinja_is_number(v))
        return jinja_fail(r, GQAC_INVALID_INPUT, "round takes a number, not a value of type %s",
                          jinja_type(v));
    if (common)
        return v.type == J_FLOAT ? jinja_float(round_decimals(v.f, digits))
                                 : round_int(r, jinja_int_or(r, v, 0), digits);
    jvalue scale = jinja_binary(r, JOP_POW, jinja_int(10), jinja_int(digits));
    double scaled = jinja_number(jinja_binary(r, '*', v, scale));
    jvalue whole = jinja_int(0);
    if (!jinja_ok(r) || !float_to_int(r, ceiling ? ceil(scaled) : floor(scaled), &whole))
        return jinja_fail(r, GQAC_INVALID_INPUT, "round does not take infinity");
    return jinja_binary(r, '/', whole, scale);
}

/* ---- others -------------------------------------------------------------- */

JINJA_FUNCTION(filter_default) {
    bool absent = v.type == J_UNDEFINED || (jinja_true(r, p[1]) && !jinja_true(r, v));
    return absent ? jinja_or(p[0], jinja_literal("")) : v;
}

JINJA_FUNCTION(filter_length) {
    size_t n;
    if (!jinja_length(r, v, &n))
        return jinja_fail(r, GQAC_INVALID_INPUT, "a value of type %s has no length", jinja_type(v));
    return jinja_int((int64_t)n);
}

JINJA_FUNCTION(filter_attr) {
    jvalue name = jinja_to_str(r, p[0]);
    if (!jinja_ok(r))
        return v;
    if (v.type == J_DICT && !jinja_method(v, name.s, name.n, &(bool){false}))
        return jinja_unknown(name.s, name.n);
    return jinja_attribute(r, v, name.s, name.n);
}

/* separators=(item, key) */
static void json_separators(jrun *r, jvalue v, jformat *f) {
    if (v.type == J_NONE || v.type == J_MISSING)
        return;
    if ((v.type != J_TUPLE && v.type != J_LIST) || v.list->n != 2 || v.list->v[0].type != J_STR ||
        v.list->v[1].type != J_STR) {
        jinja_fail(r, GQAC_INVALID_INPUT, "tojson: separators are not two strings");
        return;
    }
    f->item_separator = v.list->v[0];
    f->key_separator = v.list->v[1];
}

JINJA_FUNCTION(filter_tojson) {
    gqac_str out = {0};
    jformat f = {.ascii = jinja_true(r, p[0]), .indent = -1, .sort = jinja_true(r, p[3])};
    if (p[1].type == J_STR) {
        f.indent = 1;
        f.indent_text = p[1];
    } else if (p[1].type != J_NONE && p[1].type != J_MISSING) {
        f.indent = 1;
        f.indent_text = jinja_repeat(r, jinja_literal(" "), jinja_int_or(r, p[1], 0));
    }
    f.item_separator = jinja_literal(f.indent < 0 ? ", " : ",");
    f.key_separator = jinja_literal(": ");
    json_separators(r, p[2], &f);
    if (jinja_ok(r))
        jinja_json(r, &out, v, &f, 0);
    return jinja_taken(r, &out);
}

static const jbuiltin filters[] = {
    {"abs", "", filter_abs},
    {"attr", "name", filter_attr},
    {"capitalize", "", filter_capitalize},
    {"center", "width?", filter_center},
    {"count", "", filter_length},
    {"d", "default_value? boolean?", filter_default},
    {"default", "default_value? boolean?", filter_default},
    {"e", "", filter_escape},
    {"escape", "", filter_escape},
    {"float", "default?", filter_float},
    {"forceescape", "", filter_forceescape},
    {"format", "*", filter_format},
    {"indent", "width? first? blank?", filter_indent},
    {"int", "default? base?", filter_int},
    {"length", "", filter_length},
    {"lower", "", filter_lower},
    {"replace", "old new count?", filter_replace},
    {"round", "precision? method?", filter_round},
    {"safe", "", filter_safe},
    {"string", "", filter_string},
    {"title", "", filter_title},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", filter_tojson},
    {"trim", "chars?", filter_trim},
    {"truncate", "length? killwords? end? leeway?", filter_truncate},
    {"upper", "", filter_upper},
    {"urlencode", "", filter_urlencode},
    {"wordcount", "", filter_wordcount},
};

const jbuiltin *jinja_find_row(const jbuiltin *rows, size_t n, const char *name, size_t length) {
    for (size_t i = 0; i < n; i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0)
            return &rows[i];
    return NULL;
}

const jbuiltin *jinja_filter(const char *name, size_t n) {
    const jbuiltin *row = JINJA_FIND(filters, name, n);
    return row ? row : jinja_list_filter(name, n);
}
