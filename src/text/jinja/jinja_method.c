/* Methods of texts, as in Python. Methods that gqac does not have are listed by name, so that they
 * are not taken for keys. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

static bool want_text(jrun *r, jvalue v) {
    if (v.type != J_STR)
        jinja_fail(r, GQAC_INVALID_INPUT, "a value of type %s where a string is expected",
                   jinja_type(v));
    return jinja_ok(r);
}

/* ---- case and kind ------------------------------------------------------- */

JINJA_EXPRESSION(str_upper, jinja_upper(r, v))
JINJA_EXPRESSION(str_lower, jinja_lower(r, v))
JINJA_EXPRESSION(str_title, jinja_capitalize(r, v, true))
JINJA_EXPRESSION(str_capitalize, jinja_capitalize(r, v, false))
JINJA_EXPRESSION(str_swapcase, jinja_swapcase(r, v))

#define KIND(name)                                                                                 \
    JINJA_EXPRESSION(str_##name, jinja_bool(jinja_charge_text(r, v.n) && jinja_is(v, #name)))
KIND(isalnum)
KIND(isalpha)
KIND(isascii)
KIND(isdecimal)
KIND(isdigit)
KIND(islower)
KIND(isnumeric)
KIND(isprintable)
KIND(isspace)
KIND(istitle)
KIND(isupper)

/* ---- parts --------------------------------------------------------------- */

JINJA_EXPRESSION(str_strip, jinja_strip(r, v, p[0], true, true))
JINJA_EXPRESSION(str_lstrip, jinja_strip(r, v, p[0], true, false))
JINJA_EXPRESSION(str_rstrip, jinja_strip(r, v, p[0], false, true))

/* Narrows a text to optional bounds, as find, count and startswith do. False: they are outside. */
static bool narrow(jrun *r, jvalue *v, jvalue low, jvalue high, size_t *skipped) {
    *skipped = 0;
    if ((low.type == J_MISSING || low.type == J_NONE) &&
        (high.type == J_MISSING || high.type == J_NONE))
        return jinja_ok(r);
    int64_t n = (int64_t)jinja_count(r, *v);
    int64_t from = low.type == J_NONE ? 0 : jinja_int_or(r, low, 0);
    int64_t to = high.type == J_NONE ? n : jinja_int_or(r, high, n);
    from = from < 0 ? (from < -n ? 0 : from + n) : from;
    to = to < 0 ? (to < -n ? 0 : to + n) : to > n ? n : to;
    if (!jinja_ok(r) || from > n || from > to)
        return false;
    size_t begin = jinja_offset(r, *v, (size_t)from), end = jinja_offset(r, *v, (size_t)to);
    *skipped = (size_t)from;
    *v = jinja_view(v->s + begin, end - begin);
    return jinja_ok(r);
}

static jvalue affix(jrun *r, jvalue v, const jvalue *p, bool end) {
    size_t skipped;
    jvalue one = p[0];
    const jlist single = {.n = 1, .v = &one};
    const jlist *all = one.type == J_TUPLE ? one.list : &single;
    const bool part = narrow(r, &v, p[1], p[2], &skipped);
    for (size_t i = 0; i < all->n && want_text(r, all->v[i]); i++) {
        jvalue x = all->v[i];
        if (part && x.n <= v.n && memcmp(end ? v.s + v.n - x.n : v.s, x.s, x.n) == 0)
            return jinja_bool(true);
    }
    return jinja_bool(false);
}

JINJA_EXPRESSION(str_startswith, affix(r, v, p, false))
JINJA_EXPRESSION(str_endswith, affix(r, v, p, true))

JINJA_FUNCTION(str_removeprefix) {
    if (!want_text(r, p[0]) || v.n < p[0].n || memcmp(v.s, p[0].s, p[0].n) != 0)
        return v;
    return jinja_view(v.s + p[0].n, v.n - p[0].n);
}

JINJA_FUNCTION(str_removesuffix) {
    if (!want_text(r, p[0]) || v.n < p[0].n || memcmp(v.s + v.n - p[0].n, p[0].s, p[0].n) != 0)
        return v;
    return jinja_view(v.s, v.n - p[0].n);
}

JINJA_FUNCTION(str_replace) {
    if (!want_text(r, p[0]) || !want_text(r, p[1]))
        return v;
    return jinja_replace(r, v, p[0], p[1], jinja_int_or(r, p[2], -1));
}

/* Offset of the last occurrence of x in v; SIZE_MAX: none. */
static size_t find_last(jrun *r, jvalue v, jvalue x) {
    for (size_t at = v.n - x.n + 1; x.n <= v.n && at-- > 0;) {
        size_t same = 0, n = 0; /* compared bytes are charged: they can be many at each offset */
        for (; same < x.n; same += n) {
            n = x.n - same < 64 ? x.n - same : 64;
            if (memcmp(v.s + at + same, x.s + same, n) != 0)
                break;
        }
        if (!jinja_charge(r, (at % 8 == 0) + same / 64))
            break;
        if (same == x.n)
            return at;
    }
    return SIZE_MAX;
}

static jvalue find(jrun *r, jvalue v, const jvalue *p, bool last, bool must) {
    size_t skipped;
    jvalue none = jinja_int(-1);
    bool part = want_text(r, p[0]) && narrow(r, &v, p[1], p[2], &skipped);
    size_t hit = SIZE_MAX;
    if (part && jinja_charge_text(r, v.n))
        hit = last ? find_last(r, v, p[0]) : jinja_find(v.s, v.n, p[0].s, p[0].n);
    if (hit == SIZE_MAX)
        return must ? jinja_fail(r, GQAC_INVALID_INPUT, "index: the substring is not found") : none;
    return jinja_int((int64_t)(jinja_count(r, jinja_view(v.s, hit)) + skipped));
}

JINJA_EXPRESSION(str_find, find(r, v, p, false, false))
JINJA_EXPRESSION(str_rfind, find(r, v, p, true, false))
JINJA_EXPRESSION(str_index, find(r, v, p, false, true))
JINJA_EXPRESSION(str_rindex, find(r, v, p, true, true))

JINJA_FUNCTION(str_count) {
    size_t skipped;
    int64_t n = 0;
    if (!want_text(r, p[0]) || !narrow(r, &v, p[1], p[2], &skipped))
        return jinja_int(0);
    if (p[0].n == 0)
        return jinja_int((int64_t)jinja_count(r, v) + 1);
    for (size_t at = 0, hit; jinja_charge(r, 1); n++, at += hit + p[0].n) {
        hit = jinja_find(v.s + at, v.n - at, p[0].s, p[0].n);
        if (hit == SIZE_MAX)
            break;
    }
    return jinja_charge_text(r, v.n) ? jinja_int(n) : jinja_undefined;
}

/* ---- splitting ----------------------------------------------------------- */

/* The values of a dict as a list; `back`: from last to first. */
static jvalue parts_of(jrun *r, jvalue dict, bool back) {
    if (!jinja_ok(r))
        return jinja_undefined;
    const jvalue list = jinja_elements(r, jinja_dict_view(dict, JVIEW_VALUES));
    return back ? jinja_backwards(r, list) : list;
}

static jvalue split_spaces(jrun *r, jvalue v, int64_t most) {
    jvalue parts = jinja_dict(r, J_DICT, 4); /* its values grow */
    v = jinja_strip(r, v, jinja_missing, true, false);
    while (jinja_ok(r) && v.n > 0) {
        size_t end = 0, bytes;
        if (most-- == 0)
            end = v.n;
        for (; end < v.n && jinja_charge(r, 1); end += bytes)
            if (jinja_is_space(jinja_char(v.s + end, v.n - end, &bytes)))
                break;
        jinja_append(r, parts.dict, jinja_none, jinja_view(v.s, end));
        v = jinja_strip(r, jinja_view(v.s + end, v.n - end), jinja_missing, true, false);
    }
    return parts_of(r, parts, false);
}

static jvalue rsplit_spaces(jrun *r, jvalue v, int64_t most) {
    jvalue parts = jinja_dict(r, J_DICT, 4);
    v = jinja_strip(r, v, jinja_missing, false, true);
    while (jinja_ok(r) && v.n > 0) {
        size_t begin = v.n;
        if (most-- == 0)
            begin = 0;
        while (begin > 0 && jinja_charge(r, 1)) {
            size_t at = unicode_before(v.s, 0, begin), bytes;
            if (jinja_is_space(jinja_char(v.s + at, v.n - at, &bytes)))
                break;
            begin = at;
        }
        jinja_append(r, parts.dict, jinja_none, jinja_view(v.s + begin, v.n - begin));
        v = jinja_strip(r, jinja_view(v.s, begin), jinja_missing, false, true);
    }
    return parts_of(r, parts, true);
}

static jvalue split_by(jrun *r, jvalue v, jvalue by, int64_t most) {
    jvalue parts = jinja_dict(r, J_DICT, 4);
    while (most-- != 0 && jinja_charge(r, 1)) {
        size_t hit = jinja_find(v.s, v.n, by.s, by.n);
        if (hit == SIZE_MAX)
            break;
        jinja_append(r, parts.dict, jinja_none, jinja_view(v.s, hit));
        v = jinja_view(v.s + hit + by.n, v.n - hit - by.n);
    }
    if (jinja_ok(r))
        jinja_append(r, parts.dict, jinja_none, v);
    return parts_of(r, parts, false);
}

static jvalue rsplit_by(jrun *r, jvalue v, jvalue by, int64_t most) {
    jvalue parts = jinja_dict(r, J_DICT, 4);
    while (most-- != 0 && jinja_charge(r, 1)) {
        size_t hit = find_last(r, v, by);
        if (hit == SIZE_MAX)
            break;
        jinja_append(r, parts.dict, jinja_none, jinja_view(v.s + hit + by.n, v.n - hit - by.n));
        v = jinja_view(v.s, hit);
    }
    if (jinja_ok(r))
        jinja_append(r, parts.dict, jinja_none, v);
    return parts_of(r, parts, true);
}

static jvalue split(jrun *r, jvalue v, const jvalue *p, bool right) {
    int64_t most = jinja_int_or(r, p[1], -1);
    most = most < 0 ? -1 : most; /* it is counted down */
    if (p[0].type == J_MISSING || p[0].type == J_NONE)
        return right ? rsplit_spaces(r, v, most) : split_spaces(r, v, most);
    if (want_text(r, p[0]) && p[0].n == 0)
        return jinja_fail(r, GQAC_INVALID_INPUT, "split: the separator is an empty string");
    if (!jinja_charge_text(r, v.n))
        return jinja_undefined;
    return right ? rsplit_by(r, v, p[0], most) : split_by(r, v, p[0], most);
}

JINJA_EXPRESSION(str_split, split(r, v, p, false))
JINJA_EXPRESSION(str_rsplit, split(r, v, p, true))
JINJA_EXPRESSION(str_splitlines, jinja_lines(r, v, jinja_true(r, p[0])))

static jvalue partition(jrun *r, jvalue v, jvalue by, bool right) {
    jvalue empty = jinja_literal("");
    if (!want_text(r, by) || by.n == 0)
        return jinja_fail(r, GQAC_INVALID_INPUT, "partition: the separator is an empty string");
    if (!jinja_charge_text(r, v.n))
        return empty;
    size_t hit = right ? find_last(r, v, by) : jinja_find(v.s, v.n, by.s, by.n);
    jvalue none[] = {right ? empty : v, empty, right ? v : empty};
    if (hit == SIZE_MAX)
        return jinja_list(r, J_TUPLE, none, 3);
    jvalue parts[] = {jinja_view(v.s, hit), by, jinja_view(v.s + hit + by.n, v.n - hit - by.n)};
    return jinja_list(r, J_TUPLE, parts, 3);
}

JINJA_EXPRESSION(str_partition, partition(r, v, p[0], false))
JINJA_EXPRESSION(str_rpartition, partition(r, v, p[0], true))

/* ---- building ------------------------------------------------------------ */

JINJA_FUNCTION(str_join) {
    gqac_str out = {0};
    const jvalue list = jinja_elements(r, p[0]);
    for (size_t i = 0; jinja_ok(r) && i < list.list->n; i++) {
        if (i)
            jinja_out(r, &out, v.s, v.n);
        if (want_text(r, list.list->v[i]))
            jinja_out(r, &out, list.list->v[i].s, list.list->v[i].n);
    }
    return jinja_taken(r, &out);
}

JINJA_EXPRESSION(str_format, jinja_str_format(r, v, args))

/* Pads to a width: side 0 centres the text, -1 puts it left, 1 right. */
static jvalue pad(jrun *r, jvalue v, const jvalue *p, int side) {
    const jvalue fill = jinja_or(p[1], jinja_literal(" "));
    int64_t width = jinja_int_or(r, p[0], 0), n = (int64_t)jinja_count(r, v);
    if (!want_text(r, fill) || jinja_count(r, fill) != 1)
        return jinja_fail(r, GQAC_INVALID_INPUT, "the fill character is not one character");
    if (!jinja_ok(r) || width <= n)
        return v;
    int64_t padding = width - n;
    int64_t left = side == 0 ? padding / 2 + (padding & width & 1) : side < 0 ? 0 : padding;
    jvalue text = jinja_concat(r, jinja_repeat(r, fill, left), v);
    return jinja_ok(r) ? jinja_concat(r, text, jinja_repeat(r, fill, padding - left)) : text;
}

JINJA_EXPRESSION(str_center, pad(r, v, p, 0))
JINJA_EXPRESSION(str_ljust, pad(r, v, p, -1))
JINJA_EXPRESSION(str_rjust, pad(r, v, p, 1))

JINJA_FUNCTION(str_zfill) {
    int64_t width = jinja_int_or(r, p[0], 0), n = (int64_t)jinja_count(r, v);
    size_t sign = v.n > 0 && (v.s[0] == '-' || v.s[0] == '+');
    if (width <= n || !jinja_ok(r))
        return v;
    jvalue text =
        jinja_concat(r, jinja_view(v.s, sign), jinja_repeat(r, jinja_literal("0"), width - n));
    return jinja_ok(r) ? jinja_concat(r, text, jinja_view(v.s + sign, v.n - sign)) : text;
}

static const jbuiltin str_methods[] = {
    {"capitalize", "", str_capitalize},
    {"casefold", "*", NULL},
    {"center", "/width fill?", str_center},
    {"count", "/sub start? end?", str_count},
    {"encode", "*", NULL},
    {"endswith", "/suffix start? end?", str_endswith},
    {"expandtabs", "*", NULL},
    {"find", "/sub start? end?", str_find},
    {"format", "*", str_format},
    {"index", "/sub start? end?", str_index},
    {"isalnum", "", str_isalnum},
    {"isalpha", "", str_isalpha},
    {"isascii", "", str_isascii},
    {"isdecimal", "", str_isdecimal},
    {"isdigit", "", str_isdigit},
    {"isidentifier", "*", NULL},
    {"islower", "", str_islower},
    {"isnumeric", "", str_isnumeric},
    {"isprintable", "", str_isprintable},
    {"isspace", "", str_isspace},
    {"istitle", "", str_istitle},
    {"isupper", "", str_isupper},
    {"join", "/iterable", str_join},
    {"ljust", "/width fill?", str_ljust},
    {"lower", "", str_lower},
    {"lstrip", "/chars?", str_lstrip},
    {"maketrans", "*", NULL},
    {"partition", "/sep", str_partition},
    {"removeprefix", "/prefix", str_removeprefix},
    {"removesuffix", "/suffix", str_removesuffix},
    {"replace", "/old new count?", str_replace},
    {"rfind", "/sub start? end?", str_rfind},
    {"rindex", "/sub start? end?", str_rindex},
    {"rjust", "/width fill?", str_rjust},
    {"rpartition", "/sep", str_rpartition},
    {"rsplit", "sep? maxsplit?", str_rsplit},
    {"rstrip", "/chars?", str_rstrip},
    {"split", "sep? maxsplit?", str_split},
    {"splitlines", "keepends?", str_splitlines},
    {"startswith", "/prefix start? end?", str_startswith},
    {"strip", "/chars?", str_strip},
    {"swapcase", "", str_swapcase},
    {"title", "", str_title},
    {"translate", "*", NULL},
    {"upper", "", str_upper},
    {"zfill", "/width", str_zfill},
};

const jbuiltin *jinja_str_method(const char *name, size_t n) {
    return JINJA_FIND(str_methods, name, n);
}
