/* Methods of lists, dicts and the helpers of loops. Those that would change a value are known by
 * name, so that they are refused as the sandbox does. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

/* ---- lists --------------------------------------------------------------- */

JINJA_FUNCTION(list_index) {
    for (size_t i = 0; i < v.list->n && jinja_ok(r); i++)
        if (jinja_equal(r, v.list->v[i], p[0]))
            return jinja_int((int64_t)i);
    return jinja_fail(r, GQAC_INVALID_INPUT, "index: the value is not in the list");
}

JINJA_FUNCTION(list_count) {
    int64_t n = 0;
    for (size_t i = 0; i < v.list->n && jinja_ok(r); i++)
        n += jinja_equal(r, v.list->v[i], p[0]);
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
        return jinja_fail(r, GQAC_INVALID_INPUT, "loop.cycle takes values");
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
