/* Makes a grammar of a builder: calls at the end of rules become tails, the depth that each
 * instruction needs is computed, and a grammar without texts, or with a rule that begins with
 * itself, is refused. Everything works on lists, without recursion. */
#include <string.h>

#include "base/alloc.h"
#include "text/grammar/build.h"

/* Lists of instructions by a number: heads[number], then links[instruction]. */
typedef struct lists {
    uint32_t *heads, *links;
} lists;

static void push(lists *l, uint32_t number, uint32_t at) {
    l->links[at] = l->heads[number];
    l->heads[number] = at;
}

typedef struct finish {
    builder *b;
    instruction *code;
    uint32_t n, root;
    gqac_arena *memory;
    uint32_t *from; /* [n + 1]: where the predecessors of an instruction begin in `before` */
    uint32_t *before;
    lists callers;    /* of a rule: CALL and TAIL */
    uint32_t *begins; /* the rule that begins at an instruction; BUILD_NONE: none */
    uint16_t *need;
    bool *empty; /* the end of the rule can be reached without a byte */
} finish;

static uint32_t *array_of(finish *f, size_t n, bool none) {
    uint32_t *made = GQAC_ARENA_ARRAY(f->memory, uint32_t, n ? n : 1);
    if (made && none)
        memset(made, 0xff, n * sizeof *made);
    return made;
}

/* ---- calls --------------------------------------------------------------- */

/* Where jumps lead in the end. In a loop of nothing but jumps, any of them. */
static uint32_t target_of(const finish *f, uint32_t at) {
    for (uint32_t i = 0; i < f->n && f->code[at].op == GRAMMAR_JUMP; i++) {
        if (f->code[at].next == BUILD_NONE)
            break;
        at = f->code[at].next;
    }
    return at;
}

static bool has_next(uint8_t op) {
    return op != GRAMMAR_TAIL && op != GRAMMAR_RETURN && op != GRAMMAR_NEVER;
}

/* Steps lead past jumps, so that chains of jumps cost nothing later. Jumps lead forward: from the
 * last instruction to the first, each is followed only once. */
static void make_tails(finish *f) {
    for (uint32_t i = f->n; i-- > 0;) {
        instruction *one = &f->code[i];
        if (!has_next(one->op))
            continue;
        if (one->next == BUILD_NONE) { /* a fragment that was only copied */
            one->op = GRAMMAR_NEVER;
            continue;
        }
        one->next = target_of(f, one->next);
        if (one->op == GRAMMAR_SPLIT)
            one->other = target_of(f, one->other);
        if (one->op == GRAMMAR_CALL && f->code[one->next].op == GRAMMAR_RETURN)
            one->op = GRAMMAR_TAIL;
    }
}

static gqac_status find_rules(finish *f) {
    f->callers = (lists){array_of(f, f->b->n_rules, true), array_of(f, f->n, true)};
    f->begins = array_of(f, f->n, true);
    if (!f->callers.heads || !f->callers.links || !f->begins)
        return gqac_diag_oom(f->b->diag, "a grammar");
    for (uint32_t i = 0; i < f->n; i++)
        if (f->code[i].op == GRAMMAR_CALL || f->code[i].op == GRAMMAR_TAIL)
            push(&f->callers, f->code[i].other, i);
    for (uint32_t r = 0; r < f->b->n_rules; r++)
        if (f->b->rules[r].start != BUILD_NONE)
            f->begins[f->b->rules[r].start] = r;
    return GQAC_OK;
}

/* ---- predecessors -------------------------------------------------------- */

static gqac_status find_before(finish *f) {
    f->from = array_of(f, (size_t)f->n + 2, false);
    f->before = array_of(f, 2 * (size_t)f->n, false);
    if (!f->from || !f->before)
        return gqac_diag_oom(f->b->diag, "a grammar");
    uint32_t *count = f->from + 1; /* becomes `from` while the lists are filled */
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = 0; i < f->n; i++) {
            const instruction *one = &f->code[i];
            const uint32_t to[2] = {one->next, one->other};
            const int edges = !has_next(one->op) ? 0 : one->op == GRAMMAR_SPLIT ? 2 : 1;
            for (int e = 0; e < edges; e++)
                if (fill)
                    f->before[count[to[e]]++] = i;
                else if (to[e] + 1 < f->n + 1)
                    f->from[to[e] + 2]++;
        }
        for (uint32_t i = 0; !fill && i < f->n; i++)
            f->from[i + 2] += f->from[i + 1];
    }
    return GQAC_OK;
}

/* ---- need ---------------------------------------------------------------- */

typedef struct search {
    finish *f;
    lists ready; /* instructions by their need */
    uint32_t level;
} search;

static void settle(search *s, uint32_t at, uint32_t need) {
    if (s->f->need[at] != GRAMMAR_NO_END || need > GRAMMAR_MOST_DEPTH)
        return;
    s->f->need[at] = (uint16_t)need;
    push(&s->ready, need, at);
}

/* A call is settled once its rule and what follows are. */
static void settle_call(search *s, uint32_t at) {
    const finish *f = s->f;
    const instruction *one = &f->code[at];
    const uint32_t start = f->b->rules[one->other].start;
    const uint32_t inner = start == BUILD_NONE ? GRAMMAR_NO_END : f->need[start];
    const uint32_t after = one->op == GRAMMAR_TAIL ? 0 : f->need[one->next];
    if (inner == GRAMMAR_NO_END || after == GRAMMAR_NO_END)
        return;
    const uint32_t deeper = one->op == GRAMMAR_TAIL ? inner : inner + 1;
    settle(s, at, deeper > after ? deeper : after);
}

static void settle_before(search *s, uint32_t at) {
    const finish *f = s->f;
    for (uint32_t e = f->from[at]; e < f->from[at + 1]; e++) {
        const uint32_t i = f->before[e];
        if (f->code[i].op == GRAMMAR_CALL)
            settle_call(s, i);
        else
            settle(s, i, s->level);
    }
    if (f->begins[at] == BUILD_NONE)
        return;
    for (uint32_t i = f->callers.heads[f->begins[at]]; i != BUILD_NONE; i = f->callers.links[i])
        settle_call(s, i);
}

/* In order of need, as Knuth (1977) generalises Dijkstra's algorithm: what is settled is final. */
static gqac_status find_need(finish *f) {
    search s = {.f = f};
    f->need = gqac_arena_alloc(f->memory, f->n * sizeof *f->need);
    s.ready = (lists){array_of(f, GRAMMAR_MOST_DEPTH + 1, true), array_of(f, f->n, true)};
    if (!f->need || !s.ready.heads || !s.ready.links)
        return gqac_diag_oom(f->b->diag, "a grammar");
    memset(f->need, 0xff, f->n * sizeof *f->need);
    for (uint32_t i = 0; i < f->n; i++)
        if (f->code[i].op == GRAMMAR_RETURN)
            settle(&s, i, 0);
    for (s.level = 0; s.level <= GRAMMAR_MOST_DEPTH; s.level++)
        while (s.ready.heads[s.level] != BUILD_NONE) {
            const uint32_t at = s.ready.heads[s.level];
            s.ready.heads[s.level] = s.ready.links[at];
            settle_before(&s, at);
        }
    return GQAC_OK;
}

/* ---- what is empty ------------------------------------------------------- */

/* The same walk without bytes: marks what leads to the end of its rule. */
static gqac_status find_empty(finish *f) {
    lists ready = {array_of(f, 1, true), array_of(f, f->n, true)};
    f->empty = gqac_arena_calloc(f->memory, f->n, sizeof *f->empty);
    if (!f->empty || !ready.heads || !ready.links)
        return gqac_diag_oom(f->b->diag, "a grammar");
    for (uint32_t i = 0; i < f->n; i++)
        if (f->code[i].op == GRAMMAR_RETURN) {
            f->empty[i] = true;
            push(&ready, 0, i);
        }
    while (*ready.heads != BUILD_NONE) {
        const uint32_t at = *ready.heads, called = f->begins[at];
        *ready.heads = ready.links[at];
        uint32_t caller = called == BUILD_NONE ? BUILD_NONE : f->callers.heads[called];
        for (uint32_t e = f->from[at]; e < f->from[at + 1] || caller != BUILD_NONE;) {
            const bool direct = e < f->from[at + 1];
            const uint32_t i = direct ? f->before[e++] : caller;
            const instruction *one = &f->code[i];
            caller = direct ? caller : f->callers.links[i];
            bool leads = one->op != GRAMMAR_BYTE && !f->empty[i];
            if (one->op == GRAMMAR_CALL) {
                const uint32_t start = f->b->rules[one->other].start;
                leads = leads && start != BUILD_NONE && f->empty[start] && f->empty[one->next];
            }
            if (!leads)
                continue;
            f->empty[i] = true;
            push(&ready, 0, i);
        }
    }
    return GQAC_OK;
}

/* ---- rules that begin with themselves ------------------------------------ */

/* Tarjan's (1972) strongly connected components of the instructions, by steps that accept no byte.
 */
typedef struct components {
    const finish *f;
    uint32_t *index, *low; /* 0: not seen */
    uint32_t *stack, *path, *edge;
    bool *open;
    uint32_t n_stack, n_path, last;
} components;

/* Step `which` from an instruction; BUILD_NONE: no more. */
static uint32_t step_of(const finish *f, uint32_t at, uint32_t which) {
    const instruction *one = &f->code[at];
    const bool calls = one->op == GRAMMAR_CALL || one->op == GRAMMAR_TAIL;
    const uint32_t start = calls ? f->b->rules[one->other].start : BUILD_NONE;
    if (f->need[at] == GRAMMAR_NO_END || one->op == GRAMMAR_BYTE)
        return BUILD_NONE;
    if (which == 0)
        return calls ? start : has_next(one->op) ? one->next : BUILD_NONE;
    if (which == 1 && one->op == GRAMMAR_SPLIT)
        return one->other;
    return which == 1 && one->op == GRAMMAR_CALL && f->empty[start] ? one->next : BUILD_NONE;
}

static void enter(components *c, uint32_t at) {
    c->index[at] = c->low[at] = ++c->last;
    c->stack[c->n_stack++] = at;
    c->open[at] = true;
    c->edge[at] = 0;
    c->path[c->n_path++] = at;
}

/* Marks the component of its root `at` by giving all of it the same `low`. */
static void leave(components *c, uint32_t at) {
    uint32_t one = BUILD_NONE;
    while (one != at) {
        one = c->stack[--c->n_stack];
        c->open[one] = false;
        c->low[one] = c->index[at];
    }
}

static void search_from(components *c, uint32_t root) {
    enter(c, root);
    while (c->n_path) {
        const uint32_t at = c->path[c->n_path - 1];
        const uint32_t to = step_of(c->f, at, c->edge[at]);
        if (to != BUILD_NONE) {
            c->edge[at]++;
            if (!c->index[to])
                enter(c, to);
            else if (c->open[to] && c->index[to] < c->low[at])
                c->low[at] = c->index[to];
            continue;
        }
        c->n_path--;
        if (c->low[at] == c->index[at])
            leave(c, at);
        if (c->n_path) {
            const uint32_t before = c->path[c->n_path - 1];
            if (c->open[at] && c->low[at] < c->low[before])
                c->low[before] = c->low[at];
        }
    }
}

/* A call that leads to itself without a byte would open calls without end. */
static gqac_status refuse_loops(finish *f, const char *what) {
    components c = {.f = f};
    uint32_t **const arrays[] = {&c.index, &c.low, &c.stack, &c.path, &c.edge};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i] = array_of(f, f->n, false);
        if (!*arrays[i])
            return gqac_diag_oom(f->b->diag, "a grammar");
    }
    c.open = gqac_arena_calloc(f->memory, f->n, sizeof *c.open);
    if (!c.open)
        return gqac_diag_oom(f->b->diag, "a grammar");
    for (uint32_t i = 0; i < f->n; i++)
        if (!c.index[i] && f->need[i] != GRAMMAR_NO_END)
            search_from(&c, i);
    for (uint32_t i = 0; i < f->n; i++) {
        const instruction *one = &f->code[i];
        if (one->op != GRAMMAR_CALL || f->need[i] == GRAMMAR_NO_END)
            continue;
        const rule *r = &f->b->rules[one->other];
        if (c.low[r->start] != c.low[i])
            continue;
        gqac_diag_set(f->b->diag, GQAC_INVALID_INPUT, "'%.100s' of the %s begins with itself",
                      r->name, what);
        gqac_diag_rule(f->b->diag, "a rule or schema accepts some text before it refers to itself");
        gqac_diag_hint(f->b->diag, "put the recursion last; in a grammar, * or + can replace it");
        return GQAC_INVALID_INPUT;
    }
    return GQAC_OK;
}

/* ---- all of it ----------------------------------------------------------- */

/* True if a byte can be accepted from an instruction on. */
static gqac_status find_byte(const finish *f, uint32_t start, bool *found) {
    bool *seen = gqac_arena_calloc(f->memory, f->n, sizeof *seen);
    uint32_t *stack = GQAC_ARENA_ARRAY(f->memory, uint32_t, f->n);
    uint32_t n = 0;
    if (!seen || !stack)
        return gqac_diag_oom(f->b->diag, "a grammar");
    for (uint32_t at = start;; at = stack[--n]) {
        const instruction *one = &f->code[at];
        const bool calls = one->op == GRAMMAR_CALL || one->op == GRAMMAR_TAIL;
        const uint32_t to[3] = {has_next(one->op) ? one->next : at,
                                one->op == GRAMMAR_SPLIT ? one->other : at,
                                calls ? f->b->rules[one->other].start : at};
        *found |= one->op == GRAMMAR_BYTE && f->need[at] != GRAMMAR_NO_END;
        for (int i = 0; i < 3 && f->need[at] != GRAMMAR_NO_END; i++)
            if (!seen[to[i]]) {
                seen[to[i]] = true;
                stack[n++] = to[i];
            }
        if (!n || *found)
            return GQAC_OK;
    }
}

static gqac_status refuse_useless(finish *f, const char *what) {
    const uint32_t start = f->b->rules[f->root].start;
    const bool accepts = f->need[start] != GRAMMAR_NO_END;
    bool byte = false;
    GQAC_TRY(find_byte(f, start, &byte));
    if (byte)
        return GQAC_OK;
    gqac_diag_set(f->b->diag, GQAC_INVALID_INPUT, "the %s accepts %s", what,
                  accepts ? "the empty text only" : "no text");
    gqac_diag_rule(f->b->diag,
                   "some text must be accepted: each value has its type, no minimum is above its "
                   "maximum, and recursion ends within %d nested calls",
                   GRAMMAR_MOST_DEPTH);
    return GQAC_INVALID_INPUT;
}

static gqac_status check(finish *f, const char *what) {
    make_tails(f);
    GQAC_TRY(find_rules(f));
    GQAC_TRY(find_before(f));
    GQAC_TRY(find_need(f));
    GQAC_TRY(refuse_useless(f, what));
    GQAC_TRY(find_empty(f));
    return refuse_loops(f, what);
}

static gqac_status make(const finish *f, grammar **out) {
    const builder *b = f->b;
    grammar *g = gqac_calloc(1, sizeof *g);
    if (!g)
        return gqac_diag_oom(b->diag, "a grammar");
    g->n = f->n;
    g->start = b->rules[f->root].start;
    g->code = gqac_alloc(f->n * sizeof *g->code);
    g->need = gqac_alloc(f->n * sizeof *g->need);
    g->starts = gqac_alloc(b->n_rules * sizeof *g->starts);
    const bool whole = g->code && g->need && g->starts;
    if (whole) {
        memcpy(g->code, f->code, f->n * sizeof *g->code);
        memcpy(g->need, f->need, f->n * sizeof *g->need);
    }
    for (size_t i = 0; whole && i < b->n_rules; i++)
        g->starts[i] = b->rules[i].start;
    GQAC_RETURN_MADE(whole ? GQAC_OK : gqac_diag_oom(b->diag, "a grammar"), g, out, grammar_free);
}

gqac_status grammar_finish(builder *b, uint32_t root, const char *what, grammar **out) {
    if (b->status != GQAC_OK)
        return b->status;
    finish f = {.b = b, .code = b->code, .n = (uint32_t)b->n, .root = root, .memory = b->memory};
    GQAC_TRY(check(&f, what));
    return make(&f, out);
}

void grammar_free(grammar *g) {
    if (!g)
        return;
    gqac_free(g->code);
    gqac_free(g->need);
    gqac_free(g->starts);
    gqac_free(g);
}
