/* Tests of templates (`is defined`), and the functions they can call. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "text/jinja/jinja_impl.h"

#define TEST(name, expression) JINJA_EXPRESSION(name, jinja_bool(expression))

/* ---- tests --------------------------------------------------------------- */

static bool leaves(jrun *r, jvalue v, jvalue by, int64_t rest) {
    jvalue left = jinja_binary(r, '%', v, by);
    return jinja_ok(r) && jinja_equal(r, left, jinja_int(rest));
}

static bool text_is(jrun *r, jvalue v, const char *what) {
    v = jinja_to_str(r, v);
    return jinja_ok(r) && jinja_is(v, what);
}

static bool same(jvalue a, jvalue b) {
    if (a.type != b.type)
        return false;
    if (a.type == J_NONE)
        return true;
    if (a.type == J_BOOL)
        return a.flag == b.flag;
    if (a.type == J_STR) /* in Python equal texts are usually one object */
        return a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
    return a.i == b.i;
}

static bool known(jvalue v, const jbuiltin *(*find)(const char *name, size_t n)) {
    return v.type == J_STR && find(v.s, v.n);
}

TEST(test_defined, v.type != J_UNDEFINED)
TEST(test_undefined, v.type == J_UNDEFINED)
TEST(test_none, v.type == J_NONE)
TEST(test_boolean, v.type == J_BOOL)
TEST(test_true, v.type == J_BOOL && v.flag)
TEST(test_false, v.type == J_BOOL && !v.flag)
TEST(test_integer, v.type == J_INT)
TEST(test_float, v.type == J_FLOAT)
TEST(test_number, jinja_is_number(v))
TEST(test_string, v.type == J_STR)
TEST(test_mapping, v.type == J_DICT)
TEST(test_iterable, jinja_iterable(v))
TEST(test_sequence, v.type == J_STR || v.type == J_LIST || v.type == J_TUPLE || v.type == J_DICT ||
                        v.type == J_RANGE || v.type == J_UNDEFINED)
TEST(test_callable, v.type == J_MACRO || v.type == J_BUILTIN || v.type == J_METHOD ||
                        v.type == J_JOINER || v.type == J_LOOP || v.type == J_UNDEFINED)
TEST(test_odd, leaves(r, v, jinja_int(2), 1))
TEST(test_even, leaves(r, v, jinja_int(2), 0))
TEST(test_divisibleby, leaves(r, v, p[0], 0))
TEST(test_lower, text_is(r, v, "islower"))
TEST(test_upper, text_is(r, v, "isupper"))
TEST(test_escaped, v.type == J_STR && v.flag)
TEST(test_sameas, same(v, p[0]))
TEST(test_in, jinja_contains(r, v, p[0]))
TEST(test_eq, jinja_equal(r, v, p[0]))
TEST(test_ne, !jinja_equal(r, v, p[0]))
TEST(test_lt, jinja_compare(r, '<', v, p[0]))
TEST(test_le, jinja_compare(r, JOP_LE, v, p[0]))
TEST(test_gt, jinja_compare(r, '>', v, p[0]))
TEST(test_ge, jinja_compare(r, JOP_GE, v, p[0]))
TEST(test_filter, known(v, jinja_filter))
TEST(test_test, known(v, jinja_test))

static const jbuiltin tests[] = {
    {"boolean", "", test_boolean},
    {"callable", "", test_callable},
    {"defined", "", test_defined},
    {"divisibleby", "num", test_divisibleby},
    {"eq", "/other", test_eq},
    {"equalto", "/other", test_eq},
    {"escaped", "", test_escaped},
    {"even", "", test_even},
    {"false", "", test_false},
    {"filter", "", test_filter},
    {"float", "", test_float},
    {"ge", "/other", test_ge},
    {"greaterthan", "/other", test_gt},
    {"gt", "/other", test_gt},
    {"in", "seq", test_in},
    {"integer", "", test_integer},
    {"iterable", "", test_iterable},
    {"le", "/other", test_le},
    {"lessthan", "/other", test_lt},
    {"lower", "", test_lower},
    {"lt", "/other", test_lt},
    {"mapping", "", test_mapping},
    {"ne", "/other", test_ne},
    {"none", "", test_none},
    {"number", "", test_number},
    {"odd", "", test_odd},
    {"sameas", "other", test_sameas},
    {"sequence", "", test_sequence},
    {"string", "", test_string},
    {"test", "", test_test},
    {"true", "", test_true},
    {"undefined", "", test_undefined},
    {"upper", "", test_upper},
    {"==", "/other", test_eq}, /* only as names in select */
    {"!=", "/other", test_ne},
    {"<", "/other", test_lt},
    {"<=", "/other", test_le},
    {">", "/other", test_gt},
    {">=", "/other", test_ge},
};

const jbuiltin *jinja_test(const char *name, size_t n) {
    return JINJA_FIND(tests, name, n);
}

/* ---- functions ----------------------------------------------------------- */

JINJA_FUNCTION(call_range) {
    const bool one = p[1].type == J_MISSING;
    const int64_t start = one ? 0 : jinja_int_or(r, p[0], 0);
    const int64_t stop = jinja_int_or(r, p[one ? 0 : 1], 0), step = jinja_int_or(r, p[2], 1);
    if (step == 0)
        return jinja_fail(r, GQAC_INVALID_INPUT, "the step of a range is 0");
    __int128 span = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 by = step > 0 ? step : -(__int128)step;
    __int128 count = span > 0 ? (span + by - 1) / by : 0;
    if (jinja_ok(r) && count > JINJA_RANGE)
        return jinja_fail(r, GQAC_LIMIT, "the template makes a range of more than %d numbers",
                          JINJA_RANGE);
    jrange *range = jinja_alloc(r, 1, sizeof *range);
    if (!range)
        return jinja_undefined;
    *range = (jrange){start, stop, step, (int64_t)count};
    return (jvalue){.type = J_RANGE, .range = range};
}

/* dict and namespace: pairs of a dict, or of a list of pairs, then the named arguments. */
static jvalue make_dict(jrun *r, const jargs *args, jtype type) {
    jvalue dict = jinja_dict(r, type, args->n_named);
    if (args->n > 1)
        return jinja_fail(r, GQAC_INVALID_INPUT, "dict takes at most one mapping");
    jvalue from = args->n ? args->v[0] : jinja_none;
    if (from.type == J_DICT) {
        for (size_t i = 0; jinja_ok(r) && i < from.dict->n; i++)
            jinja_put(r, dict.dict, from.dict->p[i].k, from.dict->p[i].v);
    } else if (args->n) {
        const jvalue list = jinja_elements(r, from);
        for (size_t i = 0; jinja_ok(r) && i < list.list->n; i++) {
            const jvalue pair = jinja_elements(r, list.list->v[i]);
            if (jinja_ok(r) && pair.list->n != 2)
                jinja_fail(r, GQAC_INVALID_INPUT, "dict takes a mapping or a list of pairs");
            if (jinja_ok(r))
                jinja_put(r, dict.dict, pair.list->v[0], pair.list->v[1]);
        }
    }
    for (size_t i = 0; jinja_ok(r) && i < args->n_named; i++)
        jinja_put(r, dict.dict, args->named[i].k, args->named[i].v);
    return dict;
}

JINJA_EXPRESSION(call_dict, make_dict(r, args, J_DICT))

JINJA_FUNCTION(call_namespace) {
    jvalue space = make_dict(r, args, J_NAMESPACE);
    for (size_t i = 0; jinja_ok(r) && i < space.dict->n; i++) {
        const jvalue *key = &space.dict->p[i].k;
        if (key->type == J_STR && key->n && key->s[0] == '_')
            return jinja_fail(r, GQAC_INVALID_INPUT, "the sandbox of Jinja forbids '%.*s'",
                              (int)key->n, key->s);
    }
    return space;
}

static jvalue make_cycler(jrun *r, jtype type, const jvalue *v, size_t n) {
    jcycler *cycler = jinja_alloc(r, 1, sizeof *cycler);
    const jvalue items = jinja_list(r, J_LIST, v, n);
    if (!jinja_ok(r) || !cycler)
        return jinja_undefined;
    cycler->items = items.list;
    return (jvalue){.type = type, .cycler = cycler};
}

JINJA_FUNCTION(call_cycler) {
    if (args->n == 0 || args->n_named)
        return jinja_fail(r, GQAC_INVALID_INPUT, "cycler takes one or more values without names");
    return make_cycler(r, J_CYCLER, args->v, args->n);
}

JINJA_FUNCTION(call_joiner) {
    const jvalue by = jinja_or(p[0], jinja_literal(", "));
    return make_cycler(r, J_JOINER, &by, 1);
}

JINJA_FUNCTION(call_raise) {
    jvalue text = jinja_to_str(r, p[0]);
    if (jinja_ok(r))
        jinja_fail(r, GQAC_INVALID_INPUT, "the chat template refuses this conversation: %.*s",
                   (int)(text.n < 500 ? text.n : 500), text.s);
    return jinja_undefined;
}

/* A format for strftime of C: %f, which only Python has, is replaced, and %z and %Z, which are
 * empty for a time without a time zone, are dropped. A point at the end keeps results from being
 * empty. False: it is too long. */
static bool time_format(jvalue v, long microseconds, char *format, size_t size) {
    size_t n = 0;
    for (size_t at = 0; at < v.n; at++) {
        const char next = v.s[at] == '%' && at + 1 < v.n ? v.s[at + 1] : 0;
        if (n + 8 > size)
            return false;
        if (next == 'f')
            n += (size_t)snprintf(format + n, size - n, "%06ld", microseconds);
        else if (next && next != 'z' && next != 'Z')
            n += (size_t)snprintf(format + n, size - n, "%%%c", next);
        else if (!next)
            format[n++] = v.s[at];
        at += next != 0;
    }
    memcpy(format + n, ".", 2);
    return true;
}

JINJA_FUNCTION(call_strftime) {
    char format[512], text[4096];
    struct timespec now;
    struct tm parts;
    if (p[0].type != J_STR || memchr(p[0].s, '\0', p[0].n))
        return jinja_fail(r, GQAC_INVALID_INPUT, "strftime_now takes a string");
    if (clock_gettime(CLOCK_REALTIME, &now) != 0 || !localtime_r(&now.tv_sec, &parts))
        return jinja_fail(r, GQAC_INVALID_INPUT, "the clock of this machine cannot be read");
    const bool fits = time_format(p[0], now.tv_nsec / 1000, format, sizeof format);
    locale_t before = gqac_c_locale_begin();
    const size_t n = fits ? strftime(text, sizeof text, format, &parts) : 0;
    gqac_c_locale_end(before);
    return n ? jinja_copy(r, text, n - 1)
             : jinja_fail(r, GQAC_INVALID_INPUT, "strftime_now takes a format of at most %zu bytes",
                          sizeof format - 8);
}

static const jbuiltin globals[] = {
    {"range", "/start stop? step?", call_range},
    {"dict", "*", call_dict},
    {"namespace", "*", call_namespace},
    {"cycler", "*", call_cycler},
    {"joiner", "sep?", call_joiner},
    {"raise_exception", "message", call_raise},
    {"strftime_now", "format", call_strftime},
};

const jbuiltin *jinja_global(const char *name, size_t n) {
    return JINJA_FIND(globals, name, n);
}
