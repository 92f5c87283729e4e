/* The values of expressions, with Jinja's lookups and calls. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

/* ---- names --------------------------------------------------------------- */

jvalue jinja_lookup(jrun *r, const char *name, size_t n) {
    for (const jscope *scope = r->scope; scope && jinja_charge(r, 1); scope = scope->parent) {
        const jvalue *v = jinja_get_n(r, scope->names, name, n);
        if (v && v->type != J_MISSING)
            return *v;
    }
    const jbuiltin *global = jinja_global(name, n);
    return global ? (jvalue){.type = J_BUILTIN, .builtin = global} : jinja_unknown(name, n);
}

typedef struct part {
    const char *name;
    jvalue value;
} part;

/* The value of that name; J_MISSING: there is none. */
static jvalue find_part(const part *all, size_t count, const char *name, size_t n) {
    for (size_t i = 0; i < count; i++)
        if (strlen(all[i].name) == n && memcmp(all[i].name, name, n) == 0)
            return all[i].value;
    return jinja_missing;
}
#define FIND_PART(all, name, n) find_part(all, sizeof(all) / sizeof *(all), name, n)

static jvalue loop_attribute(const jloop *loop, const char *name, size_t n) {
    size_t count = loop->over.list->n, at = loop->at;
    const jvalue *v = loop->over.list->v;
    const part all[] = {{"index", jinja_int((int64_t)at + 1)},
                        {"index0", jinja_int((int64_t)at)},
                        {"revindex", jinja_int((int64_t)(count - at))},
                        {"revindex0", jinja_int((int64_t)(count - at) - 1)},
                        {"first", jinja_bool(at == 0)},
                        {"last", jinja_bool(at + 1 == count)},
                        {"length", jinja_int((int64_t)count)},
                        {"depth", jinja_int((int64_t)loop->depth)},
                        {"depth0", jinja_int((int64_t)loop->depth - 1)},
                        {"previtem", at > 0 ? v[at - 1] : jinja_unknown("previtem", 8)},
                        {"nextitem", at + 1 < count ? v[at + 1] : jinja_unknown("nextitem", 8)}};
    return FIND_PART(all, name, n);
}

static jvalue range_attribute(const jrange *range, const char *name, size_t n) {
    const part all[] = {{"start", jinja_int(range->start)},
                        {"stop", jinja_int(range->stop)},
                        {"step", jinja_int(range->step)}};
    return FIND_PART(all, name, n);
}

static jvalue param_names(jrun *r, const jnode *params) {
    size_t n = 0, at = 0;
    for (const jnode *p = params; p; p = p->next)
        n++;
    jvalue *names = jinja_alloc(r, n + 1, sizeof *names);
    for (const jnode *p = params; p && names; p = p->next)
        names[at++] = jinja_view(p->s, p->n);
    return names ? jinja_list(r, J_TUPLE, names, n) : jinja_undefined;
}

static jvalue macro_attribute(jrun *r, const jnode *macro, const char *name, size_t n) {
    const part all[] = {{"name", macro->s ? jinja_view(macro->s, macro->n) : jinja_none},
                        {"arguments", param_names(r, macro->a)},
                        {"catch_kwargs", jinja_bool(jinja_catches(r, macro, "kwargs"))},
                        {"catch_varargs", jinja_bool(jinja_catches(r, macro, "varargs"))},
                        {"caller", jinja_bool(jinja_reads(r, macro, "caller"))},
                        {"explicit_caller", jinja_bool(jinja_find_param(macro, "caller") != NULL)}};
    return FIND_PART(all, name, n);
}

/* Of a tuple that groupby has made. */
static jvalue group_attribute(const jlist *group, const char *name, size_t n) {
    const part all[] = {{"grouper", group->v[0]}, {"list", group->v[1]}};
    return FIND_PART(all, name, n);
}

/* The attribute or method of the object itself; J_MISSING: it has none. */
static jvalue own_attribute(jrun *r, jvalue of, const char *name, size_t n) {
    bool forbidden = false;
    jvalue found = jinja_missing;
    if (of.type == J_NAMESPACE) {
        const jvalue *v = jinja_get_n(r, of.dict, name, n);
        return v ? *v : jinja_missing;
    }
    if (of.type == J_LOOP)
        found = loop_attribute(of.loop, name, n);
    else if (of.type == J_RANGE)
        found = range_attribute(of.range, name, n);
    else if (of.type == J_TUPLE && of.flag)
        found = group_attribute(of.list, name, n);
    else if (of.type == J_CYCLER && n == 7 && !memcmp(name, "current", 7))
        found = of.cycler->items->v[of.cycler->at];
    else if (of.type == J_MACRO)
        found = macro_attribute(r, of.macro->node, name, n);
    const jbuiltin *row = jinja_method(of, name, n, &forbidden);
    if (forbidden) {
        found = jinja_unknown(name, n);
        found.flag = true;
    } else if (row) {
        jmethod *method = jinja_alloc(r, 1, sizeof *method);
        if (!method)
            return jinja_undefined;
        *method = (jmethod){row, of};
        found = (jvalue){.type = J_METHOD, .method = method};
    }
    return found;
}

jvalue jinja_attribute(jrun *r, jvalue of, const char *name, size_t n) {
    if (of.type == J_UNDEFINED)
        return jinja_wrong(r, "asked for an attribute", of);
    jvalue found = own_attribute(r, of, name, n);
    if (found.type == J_MISSING && of.type == J_DICT) {
        const jvalue *v = jinja_get_n(r, of.dict, name, n);
        return v ? *v : jinja_unknown(name, n);
    }
    return found.type == J_MISSING ? jinja_unknown(name, n) : found;
}

/* The element of a sequence at an index as Python counts; J_MISSING beyond it. */
static jvalue element(jrun *r, jvalue of, int64_t at) {
    size_t n;
    if (!jinja_length(r, of, &n))
        return jinja_missing;
    if (at < 0)
        at += (int64_t)n;
    if (at < 0 || (uint64_t)at >= n)
        return jinja_missing;
    if (of.type == J_RANGE)
        return jinja_range_at(of.range, (size_t)at);
    if (of.type != J_STR)
        return of.list->v[at];
    size_t begin = jinja_offset(r, of, (size_t)at), bytes;
    jinja_char(of.s + begin, of.n - begin, &bytes);
    return jinja_ok(r) ? jinja_view(of.s + begin, bytes) : jinja_undefined;
}

jvalue jinja_item(jrun *r, jvalue of, jvalue key) {
    jvalue found = jinja_missing;
    bool sequence =
        of.type == J_STR || of.type == J_LIST || of.type == J_TUPLE || of.type == J_RANGE;
    if (of.type == J_UNDEFINED)
        return jinja_wrong(r, "indexed", of);
    if (of.type == J_DICT) {
        if (key.type == J_LIST || key.type == J_DICT)
            return jinja_undefined;
        const jvalue *v = jinja_get(r, of.dict, key);
        found = v ? *v : found;
    } else if (sequence && (key.type == J_INT || key.type == J_BOOL)) {
        found = element(r, of, key.type == J_INT ? key.i : key.flag);
    }
    if (found.type == J_MISSING && key.type == J_STR)
        found = own_attribute(r, of, key.s, key.n);
    if (found.type == J_MISSING)
        return key.type == J_STR ? jinja_unknown(key.s, key.n) : jinja_unknown("element", 7);
    return found;
}

/* ---- slices -------------------------------------------------------------- */

static bool slice_bound(jrun *r, jvalue v, int64_t n, int64_t absent, int64_t low, int64_t high,
                        int64_t *out) {
    *out = absent;
    if (v.type == J_NONE || v.type == J_MISSING)
        return true;
    if (v.type != J_INT && v.type != J_BOOL)
        return false;
    int64_t at = v.type == J_INT ? v.i : v.flag;
    if (at < 0)
        at = at < -n ? low : at + n;
    *out = at < low ? low : at > high ? high : at;
    return jinja_ok(r);
}

static jvalue slice_text(jrun *r, jvalue of, int64_t at, int64_t step, size_t count) {
    if (step == 1) {
        size_t begin = jinja_offset(r, of, (size_t)at);
        size_t end = jinja_offset(r, of, (size_t)at + count);
        return jinja_ok(r) ? jinja_view(of.s + begin, end - begin) : jinja_undefined;
    }
    gqac_str out = {0};
    const jvalue chars = jinja_elements(r, of);
    for (size_t i = 0; i < count && jinja_ok(r); i++) {
        const jvalue *c = &chars.list->v[at + (int64_t)i * step];
        jinja_out(r, &out, c->s, c->n);
    }
    return jinja_taken(r, &out);
}

/* A slice of a range, which is a range; its bounds may be one step beyond those of the whole. */
static jvalue slice_range(jrun *r, const jrange *of, int64_t from, int64_t to, int64_t by,
                          int64_t count) {
    jrange *range = jinja_alloc(r, 1, sizeof *range);
    int64_t start, stop, step;
    if (!range)
        return jinja_undefined;
    if (__builtin_mul_overflow(from, of->step, &start) ||
        __builtin_add_overflow(start, of->start, &start) ||
        __builtin_mul_overflow(to, of->step, &stop) ||
        __builtin_add_overflow(stop, of->start, &stop) ||
        __builtin_mul_overflow(by, of->step, &step))
        return jinja_fail(r, GQAC_LIMIT, "an integer has more than 64 bits");
    *range = (jrange){start, stop, step, count};
    return (jvalue){.type = J_RANGE, .range = range};
}

jvalue jinja_slice(jrun *r, jvalue of, jvalue low, jvalue high, jvalue step) {
    size_t length;
    int64_t by = step.type == J_INT ? step.i : 1, from, to;
    if (of.type == J_UNDEFINED)
        return jinja_wrong(r, "sliced", of);
    if (of.type != J_STR && of.type != J_LIST && of.type != J_TUPLE && of.type != J_RANGE)
        return jinja_wrong(r, "sliced", of);
    jinja_length(r, of, &length);
    int64_t n = (int64_t)length;
    if (by == 0 || (step.type != J_INT && step.type != J_NONE && step.type != J_MISSING))
        return by == 0 ? jinja_fail(r, GQAC_INVALID_INPUT, "the step of a slice is 0")
                       : jinja_wrong(r, "the step of a slice", step);
    const int64_t given = by;
    by = by > n + 1 ? n + 1 : by < -n - 1 ? -n - 1 : by;
    int64_t first = by > 0 ? 0 : -1, last = by > 0 ? n : n - 1;
    if (!slice_bound(r, low, n, by > 0 ? 0 : n - 1, first, last, &from) ||
        !slice_bound(r, high, n, by > 0 ? n : -1, first, last, &to))
        return jinja_fail(r, GQAC_INVALID_INPUT, "a bound of a slice is not an integer");
    int64_t span = by > 0 ? to - from : from - to, size = by > 0 ? by : -by;
    size_t count = span > 0 ? (size_t)((span + size - 1) / size) : 0;
    if (of.type == J_STR)
        return count ? slice_text(r, of, from, by, count) : jinja_literal("");
    if (of.type == J_RANGE)
        return slice_range(r, of.range, from, to, given, (int64_t)count);
    jvalue *v = jinja_alloc(r, count, sizeof *v);
    for (size_t i = 0; v && i < count; i++)
        v[i] = of.list->v[from + (int64_t)i * by];
    return v ? jinja_list(r, of.type == J_TUPLE ? J_TUPLE : J_LIST, v, count) : jinja_undefined;
}

jvalue jinja_backwards(jrun *r, jvalue of) {
    return jinja_ok(r) ? jinja_slice(r, of, jinja_none, jinja_none, jinja_int(-1)) : of;
}

/* ---- calls --------------------------------------------------------------- */

static size_t chain_length(const jnode *chain) {
    size_t n = 0;
    for (; chain; chain = chain->next)
        n++;
    return n;
}

/* Appends the elements of an argument *list; `more` arguments can follow. */
static void spread_list(jrun *r, jargs *args, jvalue v, size_t more) {
    const jvalue list = jinja_elements(r, v);
    size_t n = jinja_ok(r) ? list.list->n : 0;
    jvalue *all = jinja_alloc(r, args->n + n + more, sizeof *all);
    if (!all)
        return;
    memcpy(all, args->v, args->n * sizeof *all);
    if (n)
        memcpy(all + args->n, list.list->v, n * sizeof *all);
    args->v = all;
    args->n += n;
}

/* Appends the pairs of an argument **dict; `more` arguments can follow. */
static void spread_dict(jrun *r, jargs *args, jvalue v, size_t more) {
    if (v.type != J_DICT) {
        jinja_wrong(r, "unpacked by **", v);
        return;
    }
    jpair *all = jinja_alloc(r, args->n_named + v.dict->n + more, sizeof *all);
    if (!all)
        return;
    memcpy(all, args->named, args->n_named * sizeof *all);
    if (v.dict->n)
        memcpy(all + args->n_named, v.dict->p, v.dict->n * sizeof *all);
    for (size_t i = 0; i < v.dict->n; i++)
        if (v.dict->p[i].k.type != J_STR)
            jinja_fail(r, GQAC_INVALID_INPUT, "the name of an argument is not a string");
    args->named = all;
    args->n_named += v.dict->n;
}

void jinja_args(jrun *r, const jnode *chain, jargs *args) {
    size_t more = chain_length(chain);
    *args = (jargs){0};
    if (more == 0)
        return;
    args->v = jinja_alloc(r, more, sizeof *args->v);
    args->named = jinja_alloc(r, more, sizeof *args->named);
    for (const jnode *arg = chain; arg && jinja_ok(r); arg = arg->next, more--) {
        jvalue v = jinja_eval(r, arg->a);
        if (!jinja_ok(r))
            return;
        if (arg->op == 1)
            spread_list(r, args, v, more);
        else if (arg->op == 2)
            spread_dict(r, args, v, more);
        else if (arg->s)
            args->named[args->n_named++] = (jpair){jinja_view(arg->s, arg->n), v};
        else
            args->v[args->n++] = v;
    }
}

/* Sets the parameter with the name of the argument; false: there is none, or it is set already. */
static bool bind_named(const char *params, const jpair *named, jvalue *p) {
    for (int i = 0; *params; i++) {
        size_t n = strcspn(params, " ?");
        if (n == named->k.n && memcmp(params, named->k.s, n) == 0) {
            bool free = p[i].type == J_MISSING;
            p[i] = named->v;
            return free;
        }
        params += strcspn(params, " ");
        params += strspn(params, " ");
    }
    return false;
}

jvalue jinja_call_row(jrun *r, const jbuiltin *row, jvalue self, const jargs *args) {
    jvalue p[JINJA_PARAMS];
    size_t n = 0, required = 0;
    const char *params = row->params + (row->params[0] == '/');
    for (size_t i = 0; i < JINJA_PARAMS; i++)
        p[i] = jinja_missing;
    if (!row->run)
        return jinja_fail(r, GQAC_UNSUPPORTED,
                          "the template calls the method '%s', which is not supported", row->name);
    if (params[0] == '*')
        return row->run(r, self, p, args);
    for (const char *at = params; *at; n++) {
        size_t length = strcspn(at, " ");
        required += at[length - 1] != '?';
        at += length;
        at += strspn(at, " ");
    }
    bool good = args->n <= n && (row->params[0] != '/' || args->n_named == 0);
    for (size_t i = 0; good && i < args->n; i++)
        p[i] = args->v[i];
    for (size_t i = 0; good && i < args->n_named; i++)
        good = bind_named(params, &args->named[i], p);
    for (size_t i = 0; good && i < required; i++)
        good = p[i].type != J_MISSING;
    if (!good)
        return jinja_fail(r, GQAC_INVALID_INPUT,
                          "'%s' is called with wrong arguments, it takes (%s)", row->name, params);
    return jinja_ok(r) ? row->run(r, self, p, args) : jinja_undefined;
}

jvalue jinja_call(jrun *r, jvalue callee, const jargs *args) {
    jvalue result;
    if (!jinja_enter(r))
        result = jinja_undefined;
    else if (callee.type == J_MACRO)
        result = jinja_call_macro(r, callee.macro, args);
    else if (callee.type == J_BUILTIN)
        result = jinja_call_row(r, callee.builtin, jinja_none, args);
    else if (callee.type == J_METHOD)
        result = jinja_call_row(r, callee.method->row, callee.method->self, args);
    else if (callee.type == J_JOINER && args->n == 0)
        result = callee.cycler->at++ ? callee.cycler->items->v[0] : jinja_literal("");
    else
        result = jinja_wrong(r, "called", callee);
    jinja_leave(r);
    return result;
}

/* ---- nodes --------------------------------------------------------------- */

static jvalue eval_unary(jrun *r, const jnode *node) {
    jvalue v = jinja_eval(r, node->a);
    if (node->op == JOP_NOT)
        return jinja_bool(!jinja_true(r, v));
    if (!jinja_is_number(v))
        return jinja_wrong(r, "given a sign", v);
    if (v.type == J_FLOAT)
        return jinja_float(node->op == '-' ? -v.f : v.f);
    return jinja_binary(r, node->op, jinja_int(0), v);
}

static jvalue eval_chain(jrun *r, const jnode *node) {
    size_t n = chain_length(node->a), i = 0;
    jvalue *v = jinja_alloc(r, n, sizeof *v);
    for (const jnode *kid = node->a; v && kid && jinja_ok(r); kid = kid->next)
        v[i++] = jinja_eval(r, kid);
    if (!jinja_ok(r))
        return jinja_undefined;
    return jinja_list(r, node->kind == N_LIST ? J_LIST : J_TUPLE, v, n);
}

static jvalue eval_dict(jrun *r, const jnode *node) {
    jvalue dict = jinja_dict(r, J_DICT, chain_length(node->a) / 2);
    for (const jnode *kid = node->a; kid && jinja_ok(r); kid = kid->next->next) {
        jvalue key = jinja_eval(r, kid);
        jvalue value = jinja_eval(r, kid->next);
        if (jinja_ok(r))
            jinja_put(r, dict.dict, key, value);
    }
    return dict;
}

static jvalue eval_concat(jrun *r, const jnode *node) {
    jvalue text = jinja_to_str(r, jinja_eval(r, node->a));
    for (const jnode *kid = node->a->next; kid && jinja_ok(r); kid = kid->next) {
        jvalue more = jinja_to_str(r, jinja_eval(r, kid));
        if (jinja_ok(r))
            text = jinja_concat(r, text, more);
    }
    text.flag = false;
    return text;
}

static jvalue eval_compare(jrun *r, const jnode *node) {
    jvalue left = jinja_eval(r, node->a);
    for (const jnode *operand = node->b; operand && jinja_ok(r); operand = operand->next) {
        jvalue right = jinja_eval(r, operand->a);
        if (!jinja_ok(r) || !jinja_compare(r, operand->op, left, right))
            return jinja_bool(false);
        left = right;
    }
    return jinja_bool(true);
}

static jvalue eval_item(jrun *r, const jnode *node) {
    jvalue of = jinja_eval(r, node->a), parts[3];
    if (node->b->kind != N_SLICE) {
        jvalue key = jinja_eval(r, node->b);
        return jinja_ok(r) ? jinja_item(r, of, key) : jinja_undefined;
    }
    const jnode *kids[] = {node->b->a, node->b->b, node->b->c};
    for (int i = 0; i < 3; i++)
        parts[i] = kids[i] ? jinja_eval(r, kids[i]) : jinja_missing;
    return jinja_ok(r) ? jinja_slice(r, of, parts[0], parts[1], parts[2]) : jinja_undefined;
}

static jvalue eval_call(jrun *r, const jnode *node) {
    jargs args;
    jvalue callee = jinja_eval(r, node->a);
    jinja_args(r, node->b, &args);
    if (!jinja_ok(r))
        return jinja_undefined;
    r->line = node->line;
    return jinja_call(r, callee, &args);
}

static jvalue eval_row(jrun *r, const jnode *node) {
    jargs args;
    jvalue self = node->a ? jinja_eval(r, node->a) : r->block;
    jinja_args(r, node->b, &args);
    if (!jinja_ok(r))
        return jinja_undefined;
    r->line = node->line;
    return jinja_call_row(r, node->row, self, &args);
}

static jvalue eval_node(jrun *r, const jnode *node) {
    jvalue v;
    switch ((jkind)node->kind) {
    case N_CONST:
        return node->value;
    case N_NAME:
        return jinja_lookup(r, node->s, node->n);
    case N_LIST:
    case N_TUPLE:
        return eval_chain(r, node);
    case N_DICT:
        return eval_dict(r, node);
    case N_UNARY:
        return eval_unary(r, node);
    case N_BINARY:
        v = jinja_eval(r, node->a);
        return jinja_binary(r, node->op, v, jinja_eval(r, node->b));
    case N_CONCAT:
        return eval_concat(r, node);
    case N_AND:
        v = jinja_eval(r, node->a);
        return jinja_true(r, v) ? jinja_eval(r, node->b) : v;
    case N_OR:
        v = jinja_eval(r, node->a);
        return jinja_true(r, v) ? v : jinja_eval(r, node->b);
    case N_COMPARE:
        return eval_compare(r, node);
    case N_COND:
        v = jinja_eval(r, node->a);
        if (jinja_true(r, v))
            return jinja_eval(r, node->b);
        return node->c ? jinja_eval(r, node->c) : jinja_unknown("if without else", 15);
    case N_ATTR:
        v = jinja_eval(r, node->a);
        return jinja_ok(r) ? jinja_attribute(r, v, node->s, node->n) : jinja_undefined;
    case N_ITEM:
        return eval_item(r, node);
    case N_CALL:
        return eval_call(r, node);
    case N_FILTER:
    case N_TEST:
        return eval_row(r, node);
    default:
        return jinja_fail(r, GQAC_INTERNAL, "an unexpected node %d", node->kind);
    }
}

jvalue jinja_eval(jrun *r, const jnode *node) {
    jvalue v = jinja_undefined;
    if (jinja_enter(r)) {
        r->line = node->line;
        v = eval_node(r, node);
    }
    jinja_leave(r);
    return v;
}
