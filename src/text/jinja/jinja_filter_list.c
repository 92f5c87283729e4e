/* Filters of templates that work on sequences and dicts. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

/* ---- attributes of elements ---------------------------------------------- */

/* The element's value under a path such as "a.b.0"; no path is the element itself. */
static jvalue get_path(jrun *r, jvalue item, jvalue path, jvalue absent) {
    if (path.type == J_MISSING || path.type == J_NONE)
        return item;
    if (path.type != J_STR)
        return jinja_item(r, item, path);
    for (size_t at = 0; at <= path.n && jinja_ok(r);) {
        const char *dot = at < path.n ? memchr(path.s + at, '.', path.n - at) : NULL;
        size_t end = dot ? (size_t)(dot - path.s) : path.n;
        jvalue part = jinja_view(path.s + at, end - at);
        if (part.n > 0 && part.n < 10 && jinja_is(part, "isdigit")) {
            int64_t index = 0;
            for (size_t i = 0; i < part.n; i++)
                index = index * 10 + (part.s[i] - '0');
            part = jinja_int(index);
        }
        item = jinja_item(r, item, part);
        if (item.type == J_UNDEFINED && absent.type != J_MISSING && absent.type != J_NONE)
            item = absent;
        at = end + 1;
    }
    return item;
}

static jvalue fold_case(jrun *r, jvalue v, bool sensitive) {
    return v.type == J_STR && !sensitive && jinja_ok(r) ? jinja_lower(r, v) : v;
}

/* The sort key of an element: its values under the paths "a,b", in lower case unless case matters.
 */
static jvalue sort_key(jrun *r, jvalue item, jvalue paths, bool sensitive) {
    if (paths.type != J_STR || !memchr(paths.s, ',', paths.n))
        return fold_case(r, get_path(r, item, paths, jinja_missing), sensitive);
    jvalue keys[8];
    size_t n = 0;
    for (size_t at = 0; at <= paths.n && n < 8 && jinja_ok(r); n++) {
        const char *comma = at < paths.n ? memchr(paths.s + at, ',', paths.n - at) : NULL;
        size_t end = comma ? (size_t)(comma - paths.s) : paths.n;
        jvalue key = get_path(r, item, jinja_view(paths.s + at, end - at), jinja_missing);
        keys[n] = fold_case(r, key, sensitive);
        at = end + 1;
    }
    return jinja_ok(r) ? jinja_list(r, J_LIST, keys, n) : jinja_undefined;
}

/* ---- sorting ------------------------------------------------------------- */

static int order_of(jrun *r, jvalue a, jvalue b) {
    if (a.type == J_UNDEFINED || b.type == J_UNDEFINED) {
        jinja_fail(r, GQAC_INVALID_INPUT, "an undefined value cannot be ordered");
        return 0;
    }
    int order = jinja_order(r, a, b);
    return order == 2 && jinja_is_number(a) ? 0 : order;
}

/* Merges the sorted runs [0, half) and [half, n) of pairs (key, value); stable. */
static void merge(jrun *r, jpair *p, size_t half, size_t n, jpair *scratch, bool reverse) {
    size_t i = 0, j = half, k = 0;
    while (i < half && j < n && jinja_ok(r)) {
        int order = order_of(r, p[j].k, p[i].k);
        bool right = reverse ? order > 0 : order < 0;
        scratch[k++] = right ? p[j++] : p[i++];
    }
    while (i < half && k < n)
        scratch[k++] = p[i++];
    memcpy(p, scratch, k * sizeof *p);
}

/* Sorts pairs by key, as Python's sort does: equal ones keep their order, also in reverse. */
static void sort_pairs(jrun *r, jpair *p, size_t n, bool reverse) {
    jpair *scratch = jinja_alloc(r, n, sizeof *scratch);
    for (size_t width = 1; scratch && width < n; width *= 2)
        for (size_t at = 0; at + width < n && jinja_charge(r, 1); at += 2 * width)
            merge(r, p + at, width, n - at < 2 * width ? n - at : 2 * width, scratch, reverse);
}

/* Pairs of key and element; NULL is a failure. */
static jpair *keyed(jrun *r, jvalue v, jvalue paths, bool sensitive, size_t *n) {
    jvalue list = jinja_elements(r, v);
    jpair *pairs = jinja_alloc(r, jinja_ok(r) ? list.list->n : 0, sizeof *pairs);
    *n = pairs ? list.list->n : 0;
    for (size_t i = 0; i < *n && jinja_ok(r); i++)
        pairs[i] = (jpair){sort_key(r, list.list->v[i], paths, sensitive), list.list->v[i]};
    return jinja_ok(r) ? pairs : NULL;
}

static jvalue values_of(jrun *r, const jpair *pairs, size_t n) {
    jvalue *v = jinja_alloc(r, n, sizeof *v);
    for (size_t i = 0; v && i < n; i++)
        v[i] = pairs[i].v;
    return v ? jinja_list(r, J_LIST, v, n) : jinja_undefined;
}

/* Keys are lists, as in Jinja, so that equal ones need no order. */
JINJA_FUNCTION(filter_sort) {
    size_t n;
    jpair *pairs = keyed(r, v, p[2], jinja_true(r, p[1]), &n);
    for (size_t i = 0; pairs && i < n; i++)
        pairs[i].k = jinja_list(r, J_LIST, &pairs[i].k, 1);
    if (!pairs || !jinja_ok(r))
        return jinja_undefined;
    sort_pairs(r, pairs, n, jinja_true(r, p[0]));
    return values_of(r, pairs, n);
}

JINJA_FUNCTION(filter_dictsort) {
    if (v.type != J_DICT)
        return jinja_fail(r, GQAC_INVALID_INPUT, "dictsort takes a dict, not a value of type %s",
                          jinja_type(v));
    const jvalue by = jinja_or(p[1], jinja_literal("key"));
    bool key = jinja_equal(r, by, jinja_literal("key"));
    if (!key && !jinja_equal(r, by, jinja_literal("value")))
        return jinja_fail(r, GQAC_INVALID_INPUT, "dictsort sorts by \"key\" or \"value\"");
    jvalue items = jinja_elements(r, jinja_dict_view(v, JVIEW_ITEMS));
    size_t n;
    jpair *pairs = keyed(r, items, jinja_int(key ? 0 : 1), jinja_true(r, p[0]), &n);
    if (!pairs)
        return jinja_undefined;
    sort_pairs(r, pairs, n, jinja_true(r, p[2]));
    return values_of(r, pairs, n);
}

JINJA_FUNCTION(filter_unique) {
    size_t n, kept = 0;
    jpair *pairs = keyed(r, v, p[1], jinja_true(r, p[0]), &n);
    for (size_t i = 0; pairs && i < n && jinja_hashable(r, pairs[i].k); i++) {
        bool seen = false;
        for (size_t j = 0; j < kept && !seen && jinja_ok(r); j++)
            seen = jinja_equal(r, pairs[j].k, pairs[i].k);
        if (!seen)
            pairs[kept++] = pairs[i];
    }
    return jinja_ok(r) ? jinja_iter(r, values_of(r, pairs, kept)) : jinja_undefined;
}

JINJA_FUNCTION(filter_groupby) {
    size_t n, groups = 0;
    bool sensitive = jinja_true(r, p[2]);
    jvalue list = jinja_elements(r, v);
    jpair *pairs = jinja_alloc(r, jinja_ok(r) ? list.list->n : 0, sizeof *pairs);
    n = pairs ? list.list->n : 0;
    for (size_t i = 0; i < n && jinja_ok(r); i++) {
        jvalue key = get_path(r, list.list->v[i], p[0], p[1]);
        pairs[i] = (jpair){fold_case(r, key, sensitive), list.list->v[i]};
    }
    if (jinja_ok(r))
        sort_pairs(r, pairs, n, false);
    jvalue *out = jinja_alloc(r, n, sizeof *out);
    for (size_t i = 0, j; out && i < n && jinja_ok(r); i = j) {
        for (j = i + 1; j < n && jinja_equal(r, pairs[i].k, pairs[j].k);)
            j++;
        jvalue group[] = {get_path(r, pairs[i].v, p[0], p[1]), values_of(r, pairs + i, j - i)};
        out[groups] = jinja_list(r, J_TUPLE, group, 2);
        out[groups++].flag = true; /* its parts have names */
    }
    return jinja_ok(r) ? jinja_list(r, J_LIST, out, groups) : jinja_undefined;
}

static jvalue extreme(jrun *r, jvalue v, const jvalue *p, int sign) {
    size_t n, best = 0;
    jpair *pairs = keyed(r, v, p[1], jinja_true(r, p[0]), &n);
    for (size_t i = 1; pairs && i < n && jinja_ok(r); i++)
        if (sign * order_of(r, pairs[i].k, pairs[best].k) > 0)
            best = i;
    return !jinja_ok(r) || n == 0 ? jinja_unknown("element", 7) : pairs[best].v;
}

JINJA_EXPRESSION(filter_max, extreme(r, v, p, 1))
JINJA_EXPRESSION(filter_min, extreme(r, v, p, -1))

/* ---- pieces -------------------------------------------------------------- */

JINJA_FUNCTION(filter_list) {
    jvalue list = jinja_elements(r, v);
    return jinja_ok(r) ? jinja_list(r, J_LIST, list.list->v, list.list->n) : list;
}

JINJA_FUNCTION(filter_first) {
    if (v.type == J_ITER) {
        const jlist *of = v.iter->list;
        return v.iter->at < of->n ? of->v[v.iter->at++] : jinja_unknown("element", 7);
    }
    jvalue list = jinja_elements(r, v);
    return jinja_ok(r) && list.list->n ? list.list->v[0] : jinja_unknown("element", 7);
}

JINJA_FUNCTION(filter_last) {
    if (v.type == J_ITER)
        return jinja_fail(r, GQAC_INVALID_INPUT, "a generator has no last element");
    jvalue list = jinja_elements(r, v);
    return jinja_ok(r) && list.list->n ? list.list->v[list.list->n - 1]
                                       : jinja_unknown("element", 7);
}

JINJA_FUNCTION(filter_reverse) {
    if (v.type == J_STR)
        return jinja_backwards(r, v);
    const jvalue back = jinja_backwards(r, jinja_elements(r, v));
    return jinja_ok(r) ? jinja_iter(r, back) : back;
}

JINJA_FUNCTION(filter_join) {
    gqac_str out = {0};
    jvalue by = jinja_to_str(r, jinja_or(p[0], jinja_literal("")));
    jvalue list = jinja_elements(r, v);
    for (size_t i = 0; jinja_ok(r) && i < list.list->n; i++) {
        if (i)
            jinja_out(r, &out, by.s, by.n);
        jinja_str(r, &out, get_path(r, list.list->v[i], p[1], jinja_missing));
    }
    return jinja_taken(r, &out);
}

JINJA_FUNCTION(filter_sum) {
    jvalue total = jinja_or(p[1], jinja_int(0)), list = jinja_elements(r, v);
    if (total.type == J_STR)
        return jinja_fail(r, GQAC_INVALID_INPUT, "sum does not add strings");
    for (size_t i = 0; jinja_ok(r) && i < list.list->n; i++)
        total = jinja_binary(r, '+', total, get_path(r, list.list->v[i], p[0], jinja_missing));
    return total;
}

JINJA_FUNCTION(filter_items) {
    if (v.type != J_DICT && v.type != J_UNDEFINED)
        return jinja_fail(r, GQAC_INVALID_INPUT, "items takes a dict, not a value of type %s",
                          jinja_type(v));
    jvalue all = v.type == J_UNDEFINED ? jinja_list(r, J_LIST, NULL, 0)
                                       : jinja_elements(r, jinja_dict_view(v, JVIEW_ITEMS));
    return jinja_ok(r) ? jinja_iter(r, all) : all;
}

/* Elements [begin, end), and then `fill` up to n elements. */
static jvalue piece(jrun *r, const jlist *list, size_t begin, size_t end, jvalue fill, size_t n) {
    size_t count = end - begin;
    bool fills = fill.type != J_MISSING && fill.type != J_NONE && n > count;
    jvalue *v = jinja_alloc(r, fills ? n : count, sizeof *v);
    for (size_t i = 0; v && i < (fills ? n : count); i++)
        v[i] = i < count ? list->v[begin + i] : fill;
    return v ? jinja_list(r, J_LIST, v, fills ? n : count) : jinja_undefined;
}

JINJA_FUNCTION(filter_batch) {
    jvalue list = jinja_elements(r, v);
    if (p[0].type != J_INT || p[0].i <= 0)
        return jinja_fail(r, GQAC_INVALID_INPUT, "batch takes a positive number of elements");
    if (!jinja_ok(r))
        return list;
    size_t n = list.list->n, size = (size_t)p[0].i, rows = n / size + (n % size != 0), i = 0;
    jvalue *out = jinja_alloc(r, rows, sizeof *out);
    for (; out && i < rows && jinja_ok(r); i++) {
        size_t end = n - i * size < size ? n : (i + 1) * size;
        out[i] = piece(r, list.list, i * size, end, p[1], size);
    }
    return jinja_ok(r) ? jinja_iter(r, jinja_list(r, J_LIST, out, rows)) : jinja_undefined;
}

JINJA_FUNCTION(filter_slice) {
    jvalue list = jinja_elements(r, v);
    if (p[0].type != J_INT || p[0].i <= 0)
        return jinja_fail(r, GQAC_INVALID_INPUT, "slice takes a positive number of slices");
    if (p[0].i > JINJA_RANGE)
        return jinja_fail(r, GQAC_LIMIT, "slice makes more than %d slices", JINJA_RANGE);
    if (!jinja_ok(r))
        return list;
    size_t rows = (size_t)p[0].i, n = list.list->n, at = 0;
    jvalue *out = jinja_alloc(r, rows, sizeof *out);
    for (size_t i = 0; out && i < rows && jinja_ok(r); i++) {
        size_t count = n / rows + (i < n % rows);
        out[i] = piece(r, list.list, at, at + count, p[1],
                       count + (i >= n % rows)); /* also where no slice is longer */
        at += count;
    }
    return jinja_ok(r) ? jinja_iter(r, jinja_list(r, J_LIST, out, rows)) : jinja_undefined;
}

/* ---- map and select ------------------------------------------------------ */

/* The elements for map and select: none when the value is false, whatever its type. */
static jvalue elements_if_true(jrun *r, jvalue v) {
    return jinja_true(r, v) ? jinja_elements(r, v) : jinja_list(r, J_LIST, NULL, 0);
}

static const jpair *named(const jargs *args, const char *name) {
    for (size_t i = 0; i < args->n_named; i++)
        if (args->named[i].k.n == strlen(name) &&
            !memcmp(args->named[i].k.s, name, args->named[i].k.n))
            return &args->named[i];
    return NULL;
}

/* The filter or test that an argument names. */
static const jbuiltin *row_of(jrun *r, jvalue name, bool test) {
    const jbuiltin *row = NULL;
    if (name.type == J_STR)
        row = test ? jinja_test(name.s, name.n) : jinja_filter(name.s, name.n);
    if (!row)
        jinja_fail(r, GQAC_UNSUPPORTED, "the template uses an unknown %s, '%.*s'",
                   test ? "test" : "filter", name.type == J_STR ? (int)name.n : 0,
                   name.type == J_STR ? name.s : "");
    return row;
}

JINJA_FUNCTION(filter_map) {
    jargs rest = *args;
    const jpair *attribute = args->n == 0 ? named(args, "attribute") : NULL;
    const jpair *absent = named(args, "default");
    const jbuiltin *row = NULL;
    if (!attribute && args->n == 0)
        return jinja_fail(r, GQAC_INVALID_INPUT, "map takes a filter or an attribute");
    if (attribute && args->n_named > (absent ? 2 : 1))
        return jinja_fail(r, GQAC_INVALID_INPUT,
                          "map takes no named arguments but attribute and default");
    if (!attribute) {
        row = row_of(r, args->v[0], false);
        rest.v++;
        rest.n--;
    }
    jvalue list = elements_if_true(r, v);
    jvalue *out = jinja_alloc(r, jinja_ok(r) ? list.list->n : 0, sizeof *out);
    for (size_t i = 0; out && i < list.list->n && jinja_charge(r, 1); i++)
        out[i] = attribute ? get_path(r, list.list->v[i], attribute->v,
                                      absent ? absent->v : jinja_missing)
                           : jinja_call_row(r, row, list.list->v[i], &rest);
    return jinja_ok(r) ? jinja_iter(r, jinja_list(r, J_LIST, out, list.list->n)) : jinja_undefined;
}

/* Elements for which a test holds, or does not (`keep` false). With `attribute` the first argument
 * names the attribute that is tested. Without a test the value itself must be true. */
static jvalue choose(jrun *r, jvalue v, const jargs *args, bool keep, bool attribute) {
    size_t used = attribute, n = 0;
    jargs rest = *args;
    const jbuiltin *row = NULL;
    if (attribute && args->n == 0)
        return jinja_fail(r, GQAC_INVALID_INPUT, "the name of an attribute is missing");
    if (args->n > used)
        row = row_of(r, args->v[used++], true);
    if (used) /* without arguments, args->v may be NULL */
        rest.v += used;
    rest.n -= used;
    jvalue list = elements_if_true(r, v);
    jvalue *out = jinja_alloc(r, jinja_ok(r) ? list.list->n : 0, sizeof *out);
    for (size_t i = 0; out && i < list.list->n && jinja_charge(r, 1); i++) {
        jvalue item = list.list->v[i];
        if (attribute)
            item = get_path(r, item, args->v[0], jinja_missing);
        if (row)
            item = jinja_call_row(r, row, item, &rest);
        if (jinja_true(r, item) == keep)
            out[n++] = list.list->v[i];
    }
    return jinja_ok(r) ? jinja_iter(r, jinja_list(r, J_LIST, out, n)) : jinja_undefined;
}

JINJA_EXPRESSION(filter_select, choose(r, v, args, true, false))
JINJA_EXPRESSION(filter_reject, choose(r, v, args, false, false))
JINJA_EXPRESSION(filter_selectattr, choose(r, v, args, true, true))
JINJA_EXPRESSION(filter_rejectattr, choose(r, v, args, false, true))

static const jbuiltin filters[] = {
    {"batch", "linecount fill_with?", filter_batch},
    {"dictsort", "case_sensitive? by? reverse?", filter_dictsort},
    {"first", "", filter_first},
    {"groupby", "attribute default? case_sensitive?", filter_groupby},
    {"items", "", filter_items},
    {"join", "d? attribute?", filter_join},
    {"last", "", filter_last},
    {"list", "", filter_list},
    {"map", "*", filter_map},
    {"max", "case_sensitive? attribute?", filter_max},
    {"min", "case_sensitive? attribute?", filter_min},
    {"reject", "*", filter_reject},
    {"rejectattr", "*", filter_rejectattr},
    {"reverse", "", filter_reverse},
    {"select", "*", filter_select},
    {"selectattr", "*", filter_selectattr},
    {"slice", "slices fill_with?", filter_slice},
    {"sort", "reverse? case_sensitive? attribute?", filter_sort},
    {"sum", "attribute? start?", filter_sum},
    {"unique", "case_sensitive? attribute?", filter_unique},
};

const jbuiltin *jinja_list_filter(const char *name, size_t n) {
    return JINJA_FIND(filters, name, n);
}
