/* Methods of lists, ranges, dicts and the helpers of loops. Methods that would change a value are
 * listed by name, so that they are refused, as the sandbox does. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

/* ---- lists --------------------------------------------------------------- */

/* A bound of list.index as Python takes it: counted from the end when negative. */
static size_t index_bound(jrun *r, jvalue v, size_t n, size_t absent) {
    const int64_t at = jinja_int_or(r, v, (int64_t)absent), back = at < 0 ? at + (int64_t)n : at;
    return back < 0 ? 0 : (uint64_t)back > n ? n : (size_t)back;
}

JINJA_FUNCTION(list_index) {
    const jvalue all = jinja_elements(r, v);
    const size_t n = jinja_ok(r) ? all.list->n : 0;
    const size_t begin = index_bound(r, p[1], n, 0), end = index_bound(r, p[2], n, n);
    for (size_t i = begin; i < end && jinja_ok(r); i++)
        if (jinja_equal(r, all.list->v[i], p[0]))
            return jinja_int((int64_t)i);
    return jinja_fail(r, GQAC_INVALID_INPUT, "index: the value is not in the list");
}

JINJA_FUNCTION(list_count) {
    const jvalue all = jinja_elements(r, v);
    int64_t n = 0;
    for (size_t i = 0; jinja_ok(r) && i < all.list->n; i++)
        n += jinja_equal(r, all.list->v[i], p[0]);
    return jinja_int(n);
}

JINJA_EXPRESSION(list_copy, v)

/* ---- dicts --------------------------------------------------------------- */

JINJA_FUNCTION(dict_get) {
    const jvalue *found = jinja_get(r, v.dict, p[0]);
    return found ? *found : jinja_or(p[1], jinja_none);
}

JINJA_EXPRESSION(dict_keys, jinja_dict_view(v, JVIEW_KEYS))
JINJA_EXPRESSION(dict_values, jinja_dict_view(v, JVIEW_VALUES))
JINJA_EXPRESSION(dict_items, jinja_dict_view(v, JVIEW_ITEMS))
JINJA_EXPRESSION(dict_copy, v)

/* ---- cyclers and loops --------------------------------------------------- */

JINJA_FUNCTION(cycler_next) {
    jvalue now = v.cycler->items->v[v.cycler->at];
    v.cycler->at = (v.cycler->at + 1) % v.cycler->items->n;
    return now;
}

JINJA_FUNCTION(cycler_reset) {
    v.cycler->at = 0;
    return jinja_none;
}

JINJA_FUNCTION(loop_cycle) {
    if (args->n == 0 || args->n_named)
        return jinja_fail(r, GQAC_INVALID_INPUT,
                          "loop.cycle takes one or more values without names");
    return args->v[v.loop->at % args->n];
}

JINJA_FUNCTION(loop_changed) {
    jvalue now = jinja_list(r, J_TUPLE, args->v, args->n);
    if (!jinja_ok(r) || (v.loop->changed.type == J_TUPLE && jinja_equal(r, v.loop->changed, now)))
        return jinja_bool(false);
    v.loop->changed = now;
    return jinja_bool(true);
}

/* ---- all ----------------------------------------------------------------- */

static const jbuiltin list_methods[] = {
    {"copy", "", list_copy},
    {"count", "/value", list_count},
    {"index", "/value start? stop?", list_index},
};
static const jbuiltin range_methods[] = {
    {"count", "/value", list_count},
    {"index", "/value", list_index},
};
static const jbuiltin dict_methods[] = {
    {"copy", "", dict_copy}, {"get", "/key default?", dict_get}, {"items", "", dict_items},
    {"keys", "", dict_keys}, {"values", "", dict_values},
};
static const jbuiltin cycler_methods[] = {
    {"next", "", cycler_next},
    {"reset", "", cycler_reset},
};
static const jbuiltin loop_methods[] = {
    {"changed", "*", loop_changed},
    {"cycle", "*", loop_cycle},
};

static bool among(const char *const *names, const char *name, size_t n) {
    for (; *names; names++)
        if (strlen(*names) == n && memcmp(*names, name, n) == 0)
            return true;
    return false;
}

const jbuiltin *jinja_method(jvalue of, const char *name, size_t n, bool *forbidden) {
    static const char *const list_changes[] = {"append", "clear",   "extend", "insert", "pop",
                                               "remove", "reverse", "sort",   NULL};
    static const char *const dict_changes[] = {"clear",      "pop",    "popitem",
                                               "setdefault", "update", NULL};
    switch (of.type) {
    case J_STR:
        return jinja_str_method(name, n);
    case J_LIST:
        *forbidden = among(list_changes, name, n);
        return JINJA_FIND(list_methods, name, n);
    case J_TUPLE:
        return jinja_find_row(list_methods + 1, 2, name, n);
    case J_RANGE:
        return JINJA_FIND(range_methods, name, n);
    case J_DICT:
        *forbidden = among(dict_changes, name, n);
        return JINJA_FIND(dict_methods, name, n);
    case J_CYCLER:
        return JINJA_FIND(cycler_methods, name, n);
    case J_LOOP:
        return JINJA_FIND(loop_methods, name, n);
    default:
        return NULL;
    }
}
