/* Values as text: Python's str and repr, and json.dumps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja_impl.h"

static void put(jrun *r, gqac_str *out, const char *text) {
    jinja_out(r, out, text, strlen(text));
}

/* ---- numbers ------------------------------------------------------------- */

/* The shortest decimal that reads back, plain for exponents in [-4, 16). */
static void finite_text(double f, char text[40]) {
    char digits[40];
    int n = 1;
    for (; n <= 17; n++) {
        snprintf(digits, sizeof digits, "%.*e", n - 1, f);
        if (strtod(digits, NULL) == f)
            break;
    }
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        int decimals = n - 1 - exponent;
        snprintf(text, 40, "%.*f", decimals < 1 ? 1 : decimals, f);
        return;
    }
    memcpy(text, digits, sizeof digits);
}

void jinja_float_text(double f, bool json, char text[40]) {
    if (isnan(f)) {
        strcpy(text, json ? "NaN" : "nan");
    } else if (isinf(f)) {
        strcpy(text, json ? (f < 0 ? "-Infinity" : "Infinity") : (f < 0 ? "-inf" : "inf"));
    } else {
        locale_t before = gqac_c_locale_begin();
        finite_text(f, text);
        gqac_c_locale_end(before);
    }
}

static void put_number(jrun *r, gqac_str *out, jvalue v, bool json) {
    char text[40];
    if (v.type == J_FLOAT)
        jinja_float_text(v.f, json, text);
    else
        snprintf(text, sizeof text, "%lld", (long long)v.i);
    put(r, out, text);
}

/* ---- repr ---------------------------------------------------------------- */

static void repr_text(jrun *r, gqac_str *out, jvalue v) {
    const char *quote = memchr(v.s, '\'', v.n) && !memchr(v.s, '"', v.n) ? "\"" : "'";
    size_t bytes, plain = 0;
    put(r, out, quote);
    for (size_t at = 0; at < v.n && jinja_ok(r); at += bytes) {
        int32_t c = jinja_char(v.s + at, v.n - at, &bytes);
        char text[12] = {'\\', (char)c, '\0'};
        if (c == '\n' || c == '\r' || c == '\t')
            text[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
        else if (c != '\\' && c != *quote) {
            if (jinja_printable(c))
                continue;
            snprintf(text, sizeof text,
                     c < 0x100     ? "\\x%02x"
                     : c < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                     (unsigned)c);
        }
        jinja_out(r, out, v.s + plain, at - plain);
        put(r, out, text);
        plain = at + bytes;
    }
    jinja_out(r, out, v.s + plain, v.n - plain);
    put(r, out, quote);
}

static void repr_list(jrun *r, gqac_str *out, const jlist *list, const char *open,
                      const char *close, bool tuple) {
    put(r, out, open);
    for (size_t i = 0; i < list->n && jinja_ok(r); i++) {
        if (i)
            put(r, out, ", ");
        jinja_repr(r, out, list->v[i]);
    }
    put(r, out, tuple && list->n == 1 ? ",)" : close);
}

static void repr_dict(jrun *r, gqac_str *out, const jdict *dict) {
    put(r, out, "{");
    for (size_t i = 0; i < dict->n && jinja_ok(r); i++) {
        if (i)
            put(r, out, ", ");
        jinja_repr(r, out, dict->p[i].k);
        put(r, out, ": ");
        jinja_repr(r, out, dict->p[i].v);
    }
    put(r, out, "}");
}

static void repr_range(jrun *r, gqac_str *out, const jrange *range) {
    char text[100];
    int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)range->start,
                     (long long)range->stop);
    if (range->step != 1)
        snprintf(text + n, sizeof text - (size_t)n, ", %lld)", (long long)range->step);
    else
        strcpy(text + n, ")");
    put(r, out, text);
}

static void repr_other(jrun *r, gqac_str *out, jvalue v) {
    static const char *const views[] = {"dict_keys([", "dict_values([", "dict_items(["};
    char text[64];
    if (v.type == J_VIEW) {
        jvalue list = jinja_elements(r, v);
        if (jinja_ok(r))
            repr_list(r, out, list.list, views[v.n], "])", false);
    } else if (v.type == J_NAMESPACE) {
        put(r, out, "<Namespace ");
        repr_dict(r, out, v.dict);
        put(r, out, ">");
    } else if (v.type == J_MACRO) {
        put(r, out, "<Macro ");
        if (v.macro->node->s)
            repr_text(r, out, jinja_view(v.macro->node->s, v.macro->node->n));
        else
            put(r, out, "anonymous");
        put(r, out, ">");
    } else if (v.type == J_LOOP) {
        snprintf(text, sizeof text, "<LoopContext %zu/%zu>", v.loop->at + 1, v.loop->over.list->n);
        put(r, out, text);
    } else {
        snprintf(text, sizeof text, "<%s>", jinja_type(v));
        put(r, out, text);
    }
}

void jinja_repr(jrun *r, gqac_str *out, jvalue v) {
    if (jinja_enter(r)) {
        if (v.type == J_STR) {
            put(r, out, v.flag ? "Markup(" : "");
            repr_text(r, out, v);
            put(r, out, v.flag ? ")" : "");
        } else if (v.type == J_LIST)
            repr_list(r, out, v.list, "[", "]", false);
        else if (v.type == J_TUPLE)
            repr_list(r, out, v.list, "(", ")", true);
        else if (v.type == J_DICT)
            repr_dict(r, out, v.dict);
        else if (v.type == J_RANGE)
            repr_range(r, out, v.range);
        else if (v.type == J_UNDEFINED)
            put(r, out, "Undefined");
        else if (v.type == J_NONE)
            put(r, out, "None");
        else if (v.type == J_BOOL)
            put(r, out, v.flag ? "True" : "False");
        else if (v.type == J_INT || v.type == J_FLOAT)
            put_number(r, out, v, false);
        else
            repr_other(r, out, v);
    }
    jinja_leave(r);
}

void jinja_str(jrun *r, gqac_str *out, jvalue v) {
    if (v.type == J_STR)
        jinja_out(r, out, v.s, v.n);
    else if (v.type != J_UNDEFINED && v.type != J_MISSING)
        jinja_repr(r, out, v);
}

jvalue jinja_to_str(jrun *r, jvalue v) {
    gqac_str text = {0};
    if (v.type == J_STR)
        return v;
    jinja_str(r, &text, v);
    return jinja_taken(r, &text);
}

/* ---- JSON ---------------------------------------------------------------- */

static void json_text(jrun *r, gqac_str *out, jvalue v, bool ascii) {
    static const char letters[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    size_t bytes, plain = 0;
    put(r, out, "\"");
    for (size_t at = 0; at < v.n && jinja_ok(r); at += bytes) {
        int32_t c = jinja_char(v.s + at, v.n - at, &bytes);
        char text[16] = "\\";
        const char *letter = c > 0 && c < 0x80 ? strchr(letters, c) : NULL;
        if (letter)
            text[1] = names[letter - letters];
        else if (c < 0x20 || (ascii && c > 0x7e))
            snprintf(text, sizeof text, c < 0x10000 ? "\\u%04x" : "\\u%04x\\u%04x",
                     (unsigned)(c < 0x10000 ? c : 0xd7c0 + (c >> 10)),
                     (unsigned)(0xdc00 | (c & 0x3ff)));
        else
            continue;
        jinja_out(r, out, v.s + plain, at - plain);
        put(r, out, text);
        plain = at + bytes;
    }
    jinja_out(r, out, v.s + plain, v.n - plain);
    put(r, out, "\"");
}

static void json_newline(jrun *r, gqac_str *out, const jformat *f, unsigned level) {
    if (f->indent < 0)
        return;
    put(r, out, "\n");
    for (unsigned i = 0; i < level && jinja_ok(r); i++)
        jinja_out(r, out, f->indent_text.s, f->indent_text.n);
}

static void json_list(jrun *r, gqac_str *out, const jlist *list, const jformat *f, unsigned level) {
    put(r, out, "[");
    for (size_t i = 0; i < list->n && jinja_ok(r); i++) {
        if (i)
            jinja_out(r, out, f->item_separator.s, f->item_separator.n);
        json_newline(r, out, f, level + 1);
        jinja_json(r, out, list->v[i], f, level + 1);
    }
    if (list->n)
        json_newline(r, out, f, level);
    put(r, out, "]");
}

static void json_key(jrun *r, gqac_str *out, jvalue key, const jformat *f) {
    if (key.type == J_STR) {
        json_text(r, out, key, f->ascii);
    } else if (jinja_is_number(key) || key.type == J_NONE) {
        put(r, out, "\"");
        jinja_json(r, out, key, f, 0);
        put(r, out, "\"");
    } else {
        jinja_fail(r, GQAC_INVALID_INPUT, "tojson: a value of type %s cannot be a key",
                   jinja_type(key));
    }
}

/* The pairs in the order of their keys. */
static jvalue sorted_items(jrun *r, jvalue dict) {
    const jvalue keys = jinja_dict_view(dict, JVIEW_KEYS);
    jvalue order[] = {jinja_bool(false), jinja_bool(true)}; /* ascending, case matters */
    return jinja_call_row(r, jinja_filter("sort", 4), keys, &(jargs){.n = 2, .v = order});
}

static void json_dict(jrun *r, gqac_str *out, jvalue v, const jformat *f, unsigned level) {
    const jdict *dict = v.dict;
    jvalue keys = f->sort ? sorted_items(r, v) : jinja_none;
    put(r, out, "{");
    for (size_t i = 0; i < dict->n && jinja_ok(r); i++) {
        const jvalue *key = f->sort ? &keys.list->v[i] : &dict->p[i].k;
        const jvalue *value = f->sort ? jinja_get(r, dict, *key) : &dict->p[i].v;
        if (i)
            jinja_out(r, out, f->item_separator.s, f->item_separator.n);
        json_newline(r, out, f, level + 1);
        json_key(r, out, *key, f);
        jinja_out(r, out, f->key_separator.s, f->key_separator.n);
        if (value)
            jinja_json(r, out, *value, f, level + 1);
    }
    if (dict->n)
        json_newline(r, out, f, level);
    put(r, out, "}");
}

void jinja_json(jrun *r, gqac_str *out, jvalue v, const jformat *f, unsigned level) {
    if (jinja_enter(r)) {
        if (v.type == J_STR)
            json_text(r, out, v, f->ascii);
        else if (v.type == J_LIST || v.type == J_TUPLE)
            json_list(r, out, v.list, f, level);
        else if (v.type == J_DICT)
            json_dict(r, out, v, f, level);
        else if (v.type == J_NONE)
            put(r, out, "null");
        else if (v.type == J_BOOL)
            put(r, out, v.flag ? "true" : "false");
        else if (v.type == J_INT || v.type == J_FLOAT)
            put_number(r, out, v, true);
        else
            jinja_wrong(r, "written as JSON", v);
    }
    jinja_leave(r);
}
