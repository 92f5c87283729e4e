/* Values of templates: making them, and truth, equality and order as in Python. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "text/jinja/jinja_impl.h"

const jvalue jinja_none = {.type = J_NONE};
const jvalue jinja_undefined = {.type = J_UNDEFINED, .s = ""};
const jvalue jinja_missing = {.type = J_MISSING};

/* ---- the state ----------------------------------------------------------- */

jvalue jinja_fail(jrun *r, gqac_status status, const char *fmt, ...) {
    char text[600];
    if (r->status != GQAC_OK)
        return jinja_undefined;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    r->status = gqac_diag_set(r->diag, status, "%s", text);
    gqac_diag_where(r->diag, "chat template, line %u", r->line);
    if (status == GQAC_UNSUPPORTED) {
        gqac_diag_rule(r->diag, "a chat template uses the part of Jinja that gqac supports");
        gqac_diag_hint(r->diag, "use another chat template, or rewrite this line");
    } else if (status == GQAC_LIMIT) {
        gqac_diag_rule(r->diag, "a chat template stays within the limits of gqac");
        gqac_diag_hint(r->diag, "use a simpler template or a shorter conversation");
    } else if (status == GQAC_INVALID_INPUT) {
        gqac_diag_rule(r->diag, "the messages have the form that the chat template expects");
        gqac_diag_hint(r->diag, "compare roles, contents and their order with the template");
    }
    return jinja_undefined;
}

bool jinja_charge(jrun *r, size_t steps) {
    if (!jinja_ok(r))
        return false;
    if (steps > r->most_steps - r->steps) {
        jinja_fail(r, GQAC_LIMIT, "the template takes more than %zu steps", r->most_steps);
        gqac_limits_explain(r->diag, "template-steps", (int64_t)r->most_steps);
        return false;
    }
    r->steps += steps;
    return true;
}

bool jinja_charge_text(jrun *r, size_t bytes) {
    return jinja_charge(r, 1 + bytes / 64);
}

bool jinja_enter(jrun *r) {
    if (++r->depth > JINJA_DEPTH)
        jinja_fail(r, GQAC_LIMIT, "the template recurses more than %d levels deep", JINJA_DEPTH);
    return jinja_charge(r, 1);
}

void jinja_leave(jrun *r) {
    r->depth--;
}

void *jinja_alloc(jrun *r, size_t count, size_t size) {
    if (!jinja_ok(r))
        return NULL;
    size_t used = gqac_arena_used(r->arena);
    if (used > JINJA_MEMORY || count > (JINJA_MEMORY - used) / (size ? size : 1)) {
        jinja_fail(r, GQAC_LIMIT, "the values of the template take more than %d MiB",
                   JINJA_MEMORY >> 20);
        return NULL;
    }
    if (!jinja_charge_text(r, count * size))
        return NULL;
    void *memory = gqac_arena_calloc(r->arena, count, size);
    if (!memory)
        r->status = gqac_diag_oom(r->diag, "values of a template");
    return memory;
}

/* ---- making values ------------------------------------------------------- */

jvalue jinja_bool(bool b) {
    return (jvalue){.type = J_BOOL, .flag = b};
}

jvalue jinja_int(int64_t i) {
    return (jvalue){.type = J_INT, .i = i};
}

jvalue jinja_float(double f) {
    return (jvalue){.type = J_FLOAT, .f = f};
}

jvalue jinja_view(const char *s, size_t n) {
    return (jvalue){.type = J_STR, .s = s, .n = n};
}

jvalue jinja_literal(const char *s) {
    return jinja_view(s, strlen(s));
}

jvalue jinja_copy(jrun *r, const char *s, size_t n) {
    char *copy = jinja_alloc(r, n + 1, 1);
    if (!copy)
        return jinja_undefined;
    if (n)
        memcpy(copy, s, n);
    return jinja_view(copy, n);
}

jvalue jinja_unknown(const char *name, size_t n) {
    return (jvalue){.type = J_UNDEFINED, .s = name, .n = n};
}

static unsigned height_of(jvalue v) {
    switch (v.type) {
    case J_LIST:
    case J_TUPLE:
        return v.list->height;
    case J_ITER:
        return v.iter->list->height;
    case J_DICT:
    case J_VIEW:
        return v.dict->height;
    default:
        return 0;
    }
}

static bool check_height(jrun *r, unsigned height) {
    if (height > JINJA_VALUE_HEIGHT)
        jinja_fail(r, GQAC_LIMIT, "lists and dicts are nested more than %d levels deep",
                   JINJA_VALUE_HEIGHT);
    return jinja_ok(r);
}

jvalue jinja_list(jrun *r, jtype type, const jvalue *v, size_t n) {
    jlist *list = jinja_alloc(r, 1, sizeof *list);
    jvalue *copy = jinja_alloc(r, n, sizeof *copy);
    if (!list || !copy)
        return jinja_undefined;
    unsigned height = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned h = height_of(v[i]);
        copy[i] = v[i];
        height = h > height ? h : height;
    }
    *list = (jlist){.n = n, .height = height + 1, .v = copy};
    if (!check_height(r, list->height))
        return jinja_undefined;
    return (jvalue){.type = type, .list = list};
}

jvalue jinja_iter(jrun *r, jvalue list) {
    jiter *iter = jinja_alloc(r, 1, sizeof *iter);
    if (!iter)
        return jinja_undefined;
    iter->list = list.list;
    return (jvalue){.type = J_ITER, .iter = iter};
}

jvalue jinja_dict(jrun *r, jtype type, size_t capacity) {
    jdict *dict = jinja_alloc(r, 1, sizeof *dict);
    jpair *pairs = jinja_alloc(r, capacity, sizeof *pairs);
    if (!dict || !pairs)
        return jinja_undefined;
    *dict = (jdict){.capacity = capacity, .height = 1, .p = pairs};
    return (jvalue){.type = type, .dict = dict};
}

void jinja_append(jrun *r, jdict *dict, jvalue key, jvalue value) {
    if (!jinja_charge(r, 4))
        return;
    if (dict->n == dict->capacity) {
        size_t capacity = dict->capacity ? dict->capacity * 2 : 4;
        jpair *pairs = jinja_alloc(r, capacity, sizeof *pairs);
        if (!pairs)
            return;
        if (dict->n)
            memcpy(pairs, dict->p, dict->n * sizeof *pairs);
        dict->p = pairs;
        dict->capacity = capacity;
    }
    unsigned heights[] = {height_of(key) + 1, height_of(value) + 1};
    for (int i = 0; i < 2; i++)
        dict->height = heights[i] > dict->height ? heights[i] : dict->height;
    if (check_height(r, dict->height))
        dict->p[dict->n++] = (jpair){key, value};
}

jvalue *jinja_get_n(jrun *r, const jdict *dict, const char *key, size_t n) {
    if (!jinja_charge(r, dict->n / 8))
        return NULL;
    for (size_t i = 0; i < dict->n; i++) {
        const jvalue *k = &dict->p[i].k;
        if (k->type == J_STR && k->n == n && memcmp(k->s, key, n) == 0)
            return &dict->p[i].v;
    }
    return NULL;
}

jvalue *jinja_get(jrun *r, const jdict *dict, jvalue key) {
    if (key.type == J_STR)
        return jinja_get_n(r, dict, key.s, key.n);
    if (!jinja_hashable(r, key))
        return NULL;
    for (size_t i = 0; i < dict->n && jinja_ok(r); i++)
        if (jinja_equal(r, dict->p[i].k, key))
            return &dict->p[i].v;
    return NULL;
}

void jinja_put(jrun *r, jdict *dict, jvalue key, jvalue value) {
    jvalue *old = jinja_get(r, dict, key);
    if (!jinja_ok(r))
        return;
    if (!old) {
        jinja_append(r, dict, key, value);
        return;
    }
    unsigned height = height_of(value) + 1;
    dict->height = height > dict->height ? height : dict->height;
    if (check_height(r, dict->height))
        *old = value;
}

jvalue jinja_dict_view(jvalue dict, size_t kind) {
    return (jvalue){.type = J_VIEW, .n = kind, .dict = dict.dict};
}

/* ---- arguments ----------------------------------------------------------- */

jvalue jinja_or(jvalue argument, jvalue absent) {
    return argument.type == J_MISSING ? absent : argument;
}

int64_t jinja_int_or(jrun *r, jvalue argument, int64_t absent) {
    if (argument.type == J_MISSING)
        return absent;
    if (argument.type == J_INT)
        return argument.i;
    if (argument.type == J_BOOL)
        return argument.flag;
    jinja_fail(r, GQAC_INVALID_INPUT, "a value of type %s where an integer is expected",
               jinja_type(argument));
    return 0;
}

/* ---- from JSON ----------------------------------------------------------- */

static jvalue from_array(jrun *r, const json_t *json) {
    size_t n = json_array_size(json);
    jvalue *v = jinja_alloc(r, n, sizeof *v);
    if (!v)
        return jinja_undefined;
    for (size_t i = 0; i < n && jinja_ok(r); i++)
        v[i] = jinja_from_json(r, json_array_get(json, i));
    return jinja_ok(r) ? jinja_list(r, J_LIST, v, n) : jinja_undefined;
}

static jvalue from_object(jrun *r, json_t *json) {
    jvalue dict = jinja_dict(r, J_DICT, json_object_size(json));
    const char *key;
    json_t *item;
    if (!jinja_ok(r))
        return dict;
    json_object_foreach(json, key, item) {
        if (!jinja_ok(r))
            break;
        jvalue value = jinja_from_json(r, item);
        jinja_append(r, dict.dict, jinja_literal(key), value);
    }
    return dict;
}

jvalue jinja_from_json(jrun *r, const json_t *json) {
    jvalue v = jinja_none;
    if (jinja_enter(r)) {
        if (json_is_string(json))
            v = jinja_view(json_string_value(json), json_string_length(json));
        else if (json_is_integer(json))
            v = jinja_int(json_integer_value(json));
        else if (json_is_real(json))
            v = jinja_float(json_real_value(json));
        else if (json_is_boolean(json))
            v = jinja_bool(json_is_true(json));
        else if (json_is_array(json))
            v = from_array(r, json);
        else if (json_is_object(json))
            v = from_object(r, (json_t *)json); /* iterating takes no const */
    }
    jinja_leave(r);
    return v;
}

/* ---- what values are ----------------------------------------------------- */

const char *jinja_type(jvalue v) {
    static const char *const names[] = {[J_MISSING] = "nothing",  [J_UNDEFINED] = "Undefined",
                                        [J_NONE] = "NoneType",    [J_BOOL] = "bool",
                                        [J_INT] = "int",          [J_FLOAT] = "float",
                                        [J_STR] = "str",          [J_LIST] = "list",
                                        [J_TUPLE] = "tuple",      [J_DICT] = "dict",
                                        [J_RANGE] = "range",      [J_ITER] = "generator",
                                        [J_VIEW] = "dict view",   [J_NAMESPACE] = "Namespace",
                                        [J_LOOP] = "LoopContext", [J_MACRO] = "Macro",
                                        [J_BUILTIN] = "function", [J_METHOD] = "method",
                                        [J_CYCLER] = "Cycler",    [J_JOINER] = "Joiner"};
    return names[v.type];
}

bool jinja_is_number(jvalue v) {
    return v.type == J_BOOL || v.type == J_INT || v.type == J_FLOAT;
}

double jinja_number(jvalue v) {
    return v.type == J_FLOAT ? v.f : v.type == J_BOOL ? (double)v.flag : (double)v.i;
}

bool jinja_hashable(jrun *r, jvalue v) {
    bool good = v.type != J_LIST && v.type != J_DICT && !(v.type == J_VIEW && v.n != JVIEW_VALUES);
    for (size_t i = 0; good && v.type == J_TUPLE && i < v.list->n; i++)
        if (!jinja_charge(r, 1) || !jinja_hashable(r, v.list->v[i]))
            return false;
    if (!good)
        jinja_fail(r, GQAC_INVALID_INPUT, "a value of type %s cannot be the key of a dict",
                   jinja_type(v));
    return good;
}

bool jinja_length(jrun *r, jvalue v, size_t *n) {
    *n = 0;
    switch (v.type) {
    case J_STR:
        *n = jinja_count(r, v);
        return true;
    case J_LIST:
    case J_TUPLE:
        *n = v.list->n;
        return true;
    case J_DICT:
    case J_VIEW:
        *n = v.dict->n;
        return true;
    case J_RANGE:
        *n = (size_t)v.range->count;
        return true;
    case J_LOOP:
        *n = v.loop->over.list->n;
        return true;
    default:
        return v.type == J_UNDEFINED;
    }
}

bool jinja_true(jrun *r, jvalue v) {
    if (v.type == J_STR)
        return v.n > 0;
    if (v.type == J_NONE || v.type == J_UNDEFINED || v.type == J_MISSING)
        return false;
    if (jinja_is_number(v))
        return v.type == J_FLOAT ? v.f != 0 : v.type == J_INT ? v.i != 0 : v.flag;
    size_t n;
    return jinja_length(r, v, &n) ? n > 0 : true;
}

/* ---- elements ------------------------------------------------------------ */

bool jinja_iterable(jvalue v) {
    return v.type == J_STR || v.type == J_LIST || v.type == J_TUPLE || v.type == J_DICT ||
           v.type == J_VIEW || v.type == J_RANGE || v.type == J_ITER || v.type == J_LOOP ||
           v.type == J_UNDEFINED;
}

jvalue jinja_range_at(const jrange *range, size_t at) {
    return jinja_int(range->start + (int64_t)at * range->step);
}

static jvalue pair_part(jrun *r, const jpair *pair, size_t view) {
    if (view == JVIEW_ITEMS)
        return jinja_list(r, J_TUPLE, (const jvalue[]){pair->k, pair->v}, 2);
    return view == JVIEW_VALUES ? pair->v : pair->k;
}

static jvalue characters(jrun *r, jvalue text, jvalue *v) {
    size_t bytes;
    for (size_t i = 0, at = 0; at < text.n; at += bytes) {
        jinja_char(text.s + at, text.n - at, &bytes);
        v[i++] = jinja_view(text.s + at, bytes);
    }
    return jinja_list(r, J_LIST, v, jinja_count(r, text));
}

jvalue jinja_elements(jrun *r, jvalue v) {
    size_t n = 0;
    if (v.type == J_LIST)
        return v;
    if (v.type == J_TUPLE)
        return (jvalue){.type = J_LIST, .list = v.list};
    if (v.type == J_ITER) {
        const jlist *list = v.iter->list;
        size_t at = v.iter->at;
        v.iter->at = list->n;
        return jinja_list(r, J_LIST, list->v + at, list->n - at);
    }
    if (v.type == J_LOOP)
        return jinja_fail(r, GQAC_UNSUPPORTED,
                          "the template iterates over 'loop', which is not supported");
    if (!jinja_iterable(v) || !jinja_length(r, v, &n))
        return jinja_wrong(r, "iterated", v);
    jvalue *out = jinja_alloc(r, n, sizeof *out);
    if (!out)
        return jinja_undefined;
    if (v.type == J_STR)
        return characters(r, v, out);
    for (size_t i = 0; i < n && jinja_ok(r); i++)
        out[i] = v.type == J_RANGE ? jinja_range_at(v.range, i)
                                   : pair_part(r, &v.dict->p[i], v.type == J_DICT ? 0 : v.n);
    return jinja_ok(r) ? jinja_list(r, J_LIST, out, n) : jinja_undefined;
}

/* ---- equality and order -------------------------------------------------- */

static int order_numbers(jvalue a, jvalue b) {
    long double x = a.type == J_INT ? (long double)a.i : (long double)jinja_number(a);
    long double y = b.type == J_INT ? (long double)b.i : (long double)jinja_number(b);
    return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static bool equal_lists(jrun *r, const jlist *a, const jlist *b) {
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!jinja_equal(r, a->v[i], b->v[i]))
            return false;
    return true;
}

static bool equal_dicts(jrun *r, const jdict *a, const jdict *b) {
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const jvalue *v = jinja_get(r, b, a->p[i].k);
        if (!v || !jinja_equal(r, a->p[i].v, *v))
            return false;
    }
    return true;
}

bool jinja_equal(jrun *r, jvalue a, jvalue b) {
    bool equal = false;
    if (jinja_is_number(a) && jinja_is_number(b))
        return jinja_charge(r, 1) && order_numbers(a, b) == 0;
    if (a.type != b.type)
        return false;
    if (jinja_enter(r)) {
        if (a.type == J_STR)
            equal = jinja_charge_text(r, a.n < b.n ? a.n : b.n) && a.n == b.n &&
                    memcmp(a.s, b.s, a.n) == 0;
        else if (a.type == J_LIST || a.type == J_TUPLE)
            equal = equal_lists(r, a.list, b.list);
        else if (a.type == J_DICT)
            equal = equal_dicts(r, a.dict, b.dict);
        else if (a.type == J_RANGE)
            equal =
                a.range->count == b.range->count &&
                (a.range->count == 0 || (a.range->start == b.range->start &&
                                         (a.range->count == 1 || a.range->step == b.range->step)));
        else if (a.type == J_UNDEFINED || a.type == J_NONE)
            equal = true;
        else
            equal = a.list == b.list && a.n == b.n; /* the same object */
    }
    jinja_leave(r);
    return equal && jinja_ok(r);
}

static int order_lists(jrun *r, const jlist *a, const jlist *b) {
    for (size_t i = 0; i < a->n && i < b->n && jinja_ok(r); i++)
        if (!jinja_equal(r, a->v[i], b->v[i]))
            return jinja_order(r, a->v[i], b->v[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int jinja_order(jrun *r, jvalue a, jvalue b) {
    int order = 0;
    if (!jinja_enter(r)) {
        order = 0;
    } else if (jinja_is_number(a) && jinja_is_number(b)) {
        order = order_numbers(a, b);
    } else if (a.type == J_STR && b.type == J_STR) {
        size_t n = a.n < b.n ? a.n : b.n;
        if (jinja_charge_text(r, n))
            order = memcmp(a.s, b.s, n);
        order = order ? order : (a.n > b.n) - (a.n < b.n);
    } else if (a.type == b.type && (a.type == J_LIST || a.type == J_TUPLE)) {
        order = order_lists(r, a.list, b.list);
    } else {
        jinja_fail(r, GQAC_INVALID_INPUT, "values of types %s and %s cannot be ordered",
                   jinja_type(a), jinja_type(b));
    }
    jinja_leave(r);
    return order;
}

bool jinja_contains(jrun *r, jvalue item, jvalue in) {
    if (in.type == J_STR) {
        if (item.type != J_STR)
            jinja_fail(r, GQAC_INVALID_INPUT, "a string cannot contain a value of type %s",
                       jinja_type(item));
        return jinja_charge_text(r, in.n) && jinja_find(in.s, in.n, item.s, item.n) != SIZE_MAX;
    }
    if (in.type == J_DICT || (in.type == J_VIEW && in.n == JVIEW_KEYS))
        return jinja_get(r, in.dict, item) != NULL;
    if (in.type == J_NAMESPACE)
        jinja_fail(r, GQAC_INVALID_INPUT, "a namespace cannot be searched");
    const jvalue list = jinja_elements(r, in);
    for (size_t i = 0; jinja_ok(r) && i < list.list->n; i++)
        if (jinja_equal(r, list.list->v[i], item))
            return true;
    return false;
}
