/* Statements of templates, and a whole render. Scopes are as in Jinja: loops, macros, with and
 * blocks have one of their own, if does not; a macro sees the scope in which it was defined. */
#include <string.h>

#include "base/alloc.h"
#include "text/jinja/jinja_impl.h"

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

static flow run_chain(jrun *r, const jnode *chain);

/* ---- scopes -------------------------------------------------------------- */

static bool push_scope(jrun *r, jscope *parent) {
    jscope *scope = jinja_alloc(r, 1, sizeof *scope);
    jvalue names = jinja_dict(r, J_DICT, 4);
    if (!jinja_ok(r) || !scope)
        return false;
    *scope = (jscope){parent, names.dict};
    r->scope = scope;
    return true;
}

static void define(jrun *r, const char *name, size_t n, jvalue value) {
    if (jinja_ok(r))
        jinja_put(r, r->scope->names, jinja_view(name, n), value);
}

static void assign(jrun *r, const jnode *target, jvalue value) {
    if (!jinja_ok(r))
        return;
    r->line = target->line;
    if (target->kind == N_NAME) {
        define(r, target->s, target->n, value);
        return;
    }
    if (target->kind == N_NSREF) {
        jvalue space = jinja_eval(r, target->a);
        if (space.type != J_NAMESPACE)
            jinja_fail(r, GQAC_INVALID_INPUT, "'%.*s' is not a namespace", (int)target->a->n,
                       target->a->s);
        else if (target->n && target->s[0] == '_')
            jinja_fail(r, GQAC_INVALID_INPUT, "the sandbox of Jinja forbids '%.*s'", (int)target->n,
                       target->s);
        if (jinja_ok(r))
            jinja_put(r, space.dict, jinja_view(target->s, target->n), value);
        return;
    }
    const jvalue list = jinja_elements(r, value);
    size_t i = 0;
    for (const jnode *kid = target->a; kid && jinja_ok(r); kid = kid->next, i++) {
        if (i >= list.list->n)
            jinja_fail(r, GQAC_INVALID_INPUT,
                       "there are only %zu values for the targets of an assignment", list.list->n);
        else
            assign(r, kid, list.list->v[i]);
    }
    if (jinja_ok(r) && i < list.list->n)
        jinja_fail(r, GQAC_INVALID_INPUT, "there are %zu values for %zu targets", list.list->n, i);
}

/* ---- loops --------------------------------------------------------------- */

/* The elements for which the condition of a loop is true. */
static jvalue filter_elements(jrun *r, const jnode *node, jvalue list) {
    jvalue *v = jinja_alloc(r, list.list->n, sizeof *v);
    jscope *outer = r->scope;
    size_t n = 0;
    for (size_t i = 0; v && i < list.list->n && push_scope(r, outer); i++) {
        assign(r, node->a, list.list->v[i]);
        if (jinja_ok(r) && jinja_true(r, jinja_eval(r, node->c)))
            v[n++] = list.list->v[i];
    }
    r->scope = outer;
    return jinja_ok(r) ? jinja_list(r, J_LIST, v, n) : jinja_undefined;
}

static flow run_for(jrun *r, const jnode *node) {
    jscope *outer = r->scope;
    jvalue over = jinja_eval(r, node->b);
    if (jinja_ok(r))
        over = jinja_elements(r, over);
    if (node->c && jinja_ok(r))
        over = filter_elements(r, node, over);
    jloop *loop = jinja_alloc(r, 1, sizeof *loop);
    if (!loop)
        return FLOW_ON;
    *loop = (jloop){.over = over, .depth = 1};
    const jvalue self = {.type = J_LOOP, .loop = loop};
    flow next = FLOW_ON;
    bool complete = false; /* an iteration came to its end: else does not run */
    for (size_t i = 0; i < over.list->n && next != FLOW_BREAK && push_scope(r, outer); i++) {
        loop->at = i;
        define(r, "loop", 4, self);
        assign(r, node->a, over.list->v[i]);
        next = run_chain(r, node->d);
        complete = complete || next == FLOW_ON;
    }
    r->scope = outer;
    if (!complete && node->e && push_scope(r, outer)) {
        next = run_chain(r, node->e);
        r->scope = outer;
        return next;
    }
    return FLOW_ON;
}

/* ---- texts that are not output at once ----------------------------------- */

/* The output of a body; `scoped`: in a scope of its own below `parent`. */
static jvalue capture(jrun *r, const jnode *body, jscope *parent, bool scoped) {
    gqac_str text = {0}, *out = r->out;
    jscope *outer = r->scope;
    if (!scoped || push_scope(r, parent)) {
        r->out = &text;
        run_chain(r, body);
        r->out = out;
    }
    r->scope = outer;
    return jinja_taken(r, &text);
}

static void run_setblock(jrun *r, const jnode *node) {
    jvalue text = capture(r, node->c, r->scope, true);
    if (node->b && jinja_ok(r)) {
        jvalue old = r->block;
        r->block = text;
        text = jinja_eval(r, node->b);
        r->block = old;
    }
    assign(r, node->a, text);
}

static void run_filterblock(jrun *r, const jnode *node) {
    jvalue text = capture(r, node->b, r->scope, true), old = r->block;
    if (!jinja_ok(r))
        return;
    r->block = text;
    text = jinja_eval(r, node->a);
    r->block = old;
    if (text.type != J_STR)
        jinja_fail(r, GQAC_INVALID_INPUT,
                   "the filter of a block returns a value of type %s, not a string",
                   jinja_type(text));
    else
        jinja_str(r, r->out, text);
}

/* ---- macros -------------------------------------------------------------- */

static const jpair *named_argument(const jargs *args, const char *name, size_t n) {
    for (size_t i = 0; i < args->n_named; i++)
        if (args->named[i].k.n == n && !memcmp(args->named[i].k.s, name, n))
            return &args->named[i];
    return NULL;
}

/* What a tree does first with a name: reads or writes it, in the order of the visitor in Jinja's
 * compiler, which takes targets before their values. */
typedef enum use { UNUSED, READ, WRITTEN } use;

static use use_of(jrun *r, const jnode *chain, const char *name, bool target);

/* Parameters, then their defaults. */
static use use_of_params(jrun *r, const jnode *params, const char *name) {
    use found = UNUSED;
    for (const jnode *p = params; p && !found && jinja_charge(r, 1); p = p->next)
        if (p->n == strlen(name) && !memcmp(p->s, name, p->n))
            found = WRITTEN;
    for (const jnode *p = params; p && !found && jinja_charge(r, 1); p = p->next)
        found = use_of(r, p->a, name, false);
    return found;
}

static use use_of_node(jrun *r, const jnode *node, const char *name, bool target) {
    use found = UNUSED;
    const jkind kind = (jkind)node->kind;
    if (kind == N_NAME)
        return node->n != strlen(name) || memcmp(node->s, name, node->n) ? UNUSED
               : target                                                  ? WRITTEN
                                                                         : READ;
    if (kind == N_MACRO || kind == N_CALLBLOCK) {
        found = use_of(r, node->c, name, false);
        found = found ? found : use_of_params(r, node->a, name);
        return found ? found : use_of(r, node->b, name, false);
    }
    const bool writes = kind == N_FOR || kind == N_SET || kind == N_SETBLOCK || kind == N_WITH;
    const jnode *kids[] = {node->a, node->b, node->c, node->d, node->e};
    if (kind == N_FOR) { /* the filter of the loop comes last */
        kids[2] = node->d;
        kids[3] = node->e;
        kids[4] = node->c;
    }
    if (kind == N_FILTERBLOCK) {
        kids[0] = node->b;
        kids[1] = node->a;
    }
    for (size_t i = 0; i < sizeof kids / sizeof *kids && !found; i++)
        found = use_of(r, kids[i], name, i == 0 ? writes || target : target);
    return found;
}

static use use_of(jrun *r, const jnode *chain, const char *name, bool target) {
    use found = UNUSED;
    for (; chain && !found && jinja_charge(r, 1); chain = chain->next)
        found = use_of_node(r, chain, name, target);
    return found;
}

const jnode *jinja_find_param(const jnode *macro, const char *name) {
    const jnode *p = macro->a;
    while (p && (p->n != strlen(name) || memcmp(p->s, name, p->n) != 0))
        p = p->next;
    return p;
}

bool jinja_reads(jrun *r, const jnode *macro, const char *name) {
    return use_of(r, macro->b, name, false) == READ;
}

bool jinja_catches(jrun *r, const jnode *macro, const char *name) {
    return !jinja_find_param(macro, name) && jinja_reads(r, macro, name);
}

/* Defines `varargs` and `kwargs`, the arguments without a parameter, in macros that read these
 * names. False: there are such arguments, and the macro does not read them. */
static bool define_rest(jrun *r, const jnode *node, const jargs *args, size_t n_params,
                        bool takes_caller) {
    size_t n = args->n > n_params ? args->n - n_params : 0;
    jvalue rest = jinja_dict(r, J_DICT, args->n_named);
    for (size_t i = 0; i < args->n_named && jinja_ok(r); i++) {
        const jpair *named = &args->named[i];
        const jnode *param = node->a;
        for (size_t at = 0; param; param = param->next, at++)
            if (at >= args->n && param->n == named->k.n && !memcmp(param->s, named->k.s, param->n))
                break;
        if (!param && !(takes_caller && named->k.n == 6 && !memcmp(named->k.s, "caller", 6)))
            jinja_put(r, rest.dict, named->k, named->v);
    }
    bool var = jinja_catches(r, node, "varargs"), kw = jinja_catches(r, node, "kwargs");
    if (!jinja_ok(r))
        return true;
    if (var)
        define(r, "varargs", 7, jinja_list(r, J_TUPLE, n ? args->v + n_params : NULL, n));
    if (kw)
        define(r, "kwargs", 6, rest);
    return (var || n == 0) && (kw || rest.dict->n == 0);
}

static void bind_params(jrun *r, const jmacro *macro, const jargs *args) {
    const jnode *node = macro->node;
    size_t i = 0;
    bool takes_caller = jinja_catches(r, node, "caller");
    for (const jnode *param = node->a; param && jinja_ok(r); param = param->next, i++) {
        const jpair *named = named_argument(args, param->s, param->n);
        jvalue value = i < args->n ? args->v[i] : named ? named->v : jinja_missing;
        if (value.type == J_MISSING)
            value = param->a ? jinja_eval(r, param->a) : jinja_unknown(param->s, param->n);
        define(r, param->s, param->n, value);
    }
    if (takes_caller) {
        const jpair *caller = named_argument(args, "caller", 6);
        define(r, "caller", 6, caller ? caller->v : jinja_unknown("caller", 6));
    }
    if (!define_rest(r, node, args, i, takes_caller))
        jinja_fail(r, GQAC_INVALID_INPUT, "the macro '%.*s' is called with wrong arguments",
                   (int)(node->s ? node->n : 6), node->s ? node->s : "caller");
}

jvalue jinja_call_macro(jrun *r, const jmacro *macro, const jargs *args) {
    jscope *outer = r->scope;
    if (!push_scope(r, macro->scope))
        return jinja_undefined;
    bind_params(r, macro, args);
    jvalue text = jinja_ok(r) ? capture(r, macro->node->b, r->scope, false) : jinja_undefined;
    r->scope = outer;
    return text;
}

static jvalue make_macro(jrun *r, const jnode *node) {
    jmacro *macro = jinja_alloc(r, 1, sizeof *macro);
    if (!macro)
        return jinja_undefined;
    *macro = (jmacro){node, r->scope};
    return (jvalue){.type = J_MACRO, .macro = macro};
}

static void run_call(jrun *r, const jnode *node) {
    jargs args;
    jvalue callee = jinja_eval(r, node->c->a);
    jinja_args(r, node->c->b, &args);
    jpair *named = jinja_alloc(r, args.n_named + 1, sizeof *named);
    jvalue caller = make_macro(r, node);
    if (!named || !jinja_ok(r))
        return;
    if (args.n_named)
        memcpy(named, args.named, args.n_named * sizeof *named);
    named[args.n_named++] = (jpair){jinja_literal("caller"), caller};
    args.named = named;
    jvalue text = jinja_call(r, callee, &args);
    if (jinja_ok(r))
        jinja_str(r, r->out, text);
}

/* ---- statements ---------------------------------------------------------- */

static flow run_with(jrun *r, const jnode *node) {
    jscope *outer = r->scope, *inner = NULL;
    const jnode *value = node->b;
    if (!push_scope(r, outer))
        return FLOW_ON;
    inner = r->scope;
    for (const jnode *target = node->a; target && jinja_ok(r); target = target->next) {
        r->scope = outer; /* values do not see the new names */
        jvalue v = jinja_eval(r, value);
        r->scope = inner;
        assign(r, target, v);
        value = value->next;
    }
    flow next = jinja_ok(r) ? run_chain(r, node->c) : FLOW_ON;
    r->scope = outer;
    return next;
}

static flow run_scope(jrun *r, const jnode *node) {
    jscope *outer = r->scope;
    flow next = push_scope(r, outer) ? run_chain(r, node->a) : FLOW_ON;
    r->scope = outer;
    return next;
}

static flow run_if(jrun *r, const jnode *node) {
    for (const jnode *branch = node->a; branch && jinja_ok(r); branch = branch->next)
        if (!branch->a || jinja_true(r, jinja_eval(r, branch->a)))
            return run_chain(r, branch->b);
    return FLOW_ON;
}

static flow run_node(jrun *r, const jnode *node) {
    jvalue v;
    switch ((jkind)node->kind) {
    case N_TEXT:
        jinja_out(r, r->out, node->s, node->n);
        break;
    case N_PRINT:
        v = jinja_eval(r, node->a);
        if (jinja_ok(r))
            jinja_str(r, r->out, v);
        break;
    case N_IF:
        return run_if(r, node);
    case N_FOR:
        return run_for(r, node);
    case N_SET:
        v = jinja_eval(r, node->b);
        assign(r, node->a, v);
        break;
    case N_SETBLOCK:
        run_setblock(r, node);
        break;
    case N_MACRO:
        v = make_macro(r, node);
        define(r, node->s, node->n, v);
        break;
    case N_CALLBLOCK:
        run_call(r, node);
        break;
    case N_FILTERBLOCK:
        run_filterblock(r, node);
        break;
    case N_WITH:
        return run_with(r, node);
    case N_SCOPE:
        return run_scope(r, node);
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    default:
        jinja_fail(r, GQAC_INTERNAL, "an unexpected node %d", node->kind);
    }
    return FLOW_ON;
}

static flow run_chain(jrun *r, const jnode *chain) {
    flow next = FLOW_ON;
    if (jinja_enter(r)) {
        for (; chain && next == FLOW_ON && jinja_charge(r, 1); chain = chain->next) {
            r->line = chain->line;
            next = run_node(r, chain);
        }
    }
    jinja_leave(r);
    return next;
}

/* ---- a render ------------------------------------------------------------ */

void jinja_run(jrun *r, const jnode *body, const json_t *variables) {
    jvalue names = jinja_from_json(r, variables);
    if (!jinja_ok(r) || !push_scope(r, NULL))
        return;
    r->scope->names = names.dict;
    if (push_scope(r, r->scope))
        run_chain(r, body);
}
