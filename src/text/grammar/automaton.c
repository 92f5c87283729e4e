/* See automaton.h. */
#include "text/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Maxima: configurations of a state, configurations that lead to one, those that are followed in
 * one call of the user, bytes of all states. */
enum { MOST_SET = 1 << 13, MOST_WORK = 1 << 15, MOST_EFFORT = 1 << 22, MOST_BYTES = 32 << 20 };

static uint64_t pair(uint32_t at, uint32_t stack) {
    return (uint64_t)at << 32 | stack;
}

static gqac_status out_of_memory(gqac_diag *diag) {
    return gqac_diag_oom(diag, "the states of a grammar");
}

static gqac_status too_ambiguous(gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_LIMIT, "the grammar is too ambiguous");
    gqac_diag_rule(diag, "a text can be read in at most %d ways at the same time", MOST_SET);
    gqac_diag_hint(diag, "fewer alternatives that begin in the same way");
    return GQAC_LIMIT;
}

size_t automaton_bytes(const automaton *a) {
    return a->n_states * (sizeof *a->states + 2 * sizeof(gqac_slot)) + a->n_pool * sizeof *a->pool +
           a->n_rows * sizeof *a->rows + a->n_frames * (sizeof *a->frames + 2 * sizeof(gqac_slot)) +
           a->more_bytes;
}

/* ---- stacks -------------------------------------------------------------- */

/* The stack with one more frame. */
static gqac_status push_frame(automaton *a, uint32_t resume, uint32_t parent, uint32_t *out,
                              gqac_diag *diag) {
    const uint64_t hash = gqac_hash_u64(a->by_frame.seed ^ resume, parent);
    size_t at = hash;
    for (const gqac_slot *s = gqac_table_slot(&a->by_frame, hash, &at); s;
         at++, s = gqac_table_slot(&a->by_frame, hash, &at)) {
        const stack_frame *f = &a->frames[s->value];
        if (f->resume == resume && f->parent == parent) {
            *out = (uint32_t)s->value;
            return GQAC_OK;
        }
    }
    if (!gqac_reserve(&a->frames, a->n_frames + 1, &a->frames_capacity, sizeof *a->frames) ||
        !gqac_table_add_number(&a->by_frame, hash, a->n_frames))
        return out_of_memory(diag);
    a->frames[a->n_frames] = (stack_frame){resume, parent, a->frames[parent].depth + 1};
    *out = (uint32_t)a->n_frames++;
    return GQAC_OK;
}

/* ---- sets ---------------------------------------------------------------- */

/* What a transition leads to, while it is being computed. */
typedef struct closure {
    automaton *a;
    size_t n_work, n_set;
    bool may_end;
    gqac_diag *diag;
} closure;

static gqac_status add_work(closure *c, uint32_t at, uint32_t stack) {
    automaton *a = c->a;
    const uint64_t one = pair(at, stack), hash = gqac_hash_u64(a->by_frame.seed, one);
    if (a->g->need[at] == GRAMMAR_NO_END ||
        a->frames[stack].depth + a->g->need[at] > GRAMMAR_MOST_DEPTH)
        return GQAC_OK;
    size_t where = hash;
    for (const gqac_slot *s = gqac_table_slot(&a->seen, hash, &where); s;
         where++, s = gqac_table_slot(&a->seen, hash, &where))
        if (a->work[s->value - 1] == one)
            return GQAC_OK;
    if (c->n_work >= MOST_WORK)
        return too_ambiguous(c->diag);
    if (!gqac_reserve(&a->work, c->n_work + 1, &a->work_capacity, sizeof *a->work) ||
        !gqac_table_add_number(&a->seen, hash, c->n_work + 1))
        return out_of_memory(c->diag);
    a->work[c->n_work++] = one;
    return GQAC_OK;
}

static gqac_status add_byte(closure *c, uint64_t one) {
    automaton *a = c->a;
    if (c->n_set >= MOST_SET)
        return too_ambiguous(c->diag);
    if (!gqac_reserve(&a->set, c->n_set + 1, &a->set_capacity, sizeof *a->set))
        return out_of_memory(c->diag);
    a->set[c->n_set++] = one;
    return GQAC_OK;
}

/* Follows one configuration to where it needs a byte. */
static gqac_status follow(closure *c, uint64_t one) {
    automaton *a = c->a;
    const uint32_t at = (uint32_t)(one >> 32), stack = (uint32_t)one;
    const instruction *i = &a->g->code[at];
    uint32_t inner = 0;
    switch ((grammar_op)i->op) {
    case GRAMMAR_BYTE:
        return add_byte(c, one);
    case GRAMMAR_SPLIT:
        GQAC_TRY(add_work(c, i->other, stack));
        return add_work(c, i->next, stack);
    case GRAMMAR_JUMP:
        return add_work(c, i->next, stack);
    case GRAMMAR_CALL:
        GQAC_TRY(push_frame(a, i->next, stack, &inner, c->diag));
        return add_work(c, a->g->starts[i->other], inner);
    case GRAMMAR_TAIL:
        return add_work(c, a->g->starts[i->other], stack);
    case GRAMMAR_RETURN:
        if (stack)
            return add_work(c, a->frames[stack].resume, a->frames[stack].parent);
        c->may_end = true;
        return GQAC_OK;
    case GRAMMAR_NEVER:
        break;
    }
    return GQAC_OK;
}

static int compare(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The state with the configurations of the closure, which is added if it is new. */
static gqac_status intern(closure *c, uint32_t *out) {
    automaton *a = c->a;
    const size_t bytes = c->n_set * sizeof *a->set;
    if (c->n_set)
        qsort(a->set, c->n_set, sizeof *a->set, compare);
    const uint64_t seed = a->by_set.seed + c->may_end;
    const uint64_t hash = c->n_set ? gqac_hash_bytes(seed, a->set, bytes) : seed;
    size_t at = hash;
    for (const gqac_slot *s = gqac_table_slot(&a->by_set, hash, &at); s;
         at++, s = gqac_table_slot(&a->by_set, hash, &at)) {
        const automaton_state *x = &a->states[s->value];
        if (x->n == c->n_set && x->may_end == c->may_end &&
            (!x->n || !memcmp(a->pool + x->first, a->set, bytes))) {
            *out = (uint32_t)s->value;
            return GQAC_OK;
        }
    }
    if (automaton_bytes(a) + bytes > MOST_BYTES) {
        gqac_diag_set(c->diag, GQAC_LIMIT, "the states of the grammar take more than %d MiB",
                      MOST_BYTES >> 20);
        gqac_diag_hint(c->diag, "a grammar with fewer alternatives");
        return GQAC_LIMIT;
    }
    if (!gqac_reserve(&a->states, a->n_states + 1, &a->states_capacity, sizeof *a->states) ||
        !gqac_reserve(&a->pool, a->n_pool + c->n_set + 1, &a->pool_capacity, sizeof *a->pool) ||
        !gqac_table_add_number(&a->by_set, hash, a->n_states))
        return out_of_memory(c->diag);
    if (c->n_set)
        memcpy(a->pool + a->n_pool, a->set, bytes);
    a->states[a->n_states] = (automaton_state){.first = (uint32_t)a->n_pool,
                                               .n = (uint32_t)c->n_set,
                                               .row = AUTOMATON_UNKNOWN,
                                               .may_end = c->may_end};
    a->n_pool += c->n_set;
    *out = (uint32_t)a->n_states++;
    return GQAC_OK;
}

/* The state of what has been added. */
static gqac_status close_set(closure *c, uint32_t *state) {
    for (size_t i = 0; i < c->n_work; i++)
        GQAC_TRY(follow(c, c->a->work[i]));
    c->a->effort += c->n_work;
    if (c->a->effort > MOST_EFFORT)
        return too_ambiguous(c->diag);
    if (!c->n_set && !c->may_end) {
        *state = AUTOMATON_DEAD;
        return GQAC_OK;
    }
    return intern(c, state);
}

/* ---- transitions --------------------------------------------------------- */

static void forget_seen(automaton *a) {
    if (a->seen.capacity > 4096) { /* a large one costs more to clear than to make again */
        gqac_table_free(&a->seen);
        a->seen = (gqac_table){0};
        return;
    }
    if (a->seen.capacity)
        memset(a->seen.slots, 0, a->seen.capacity * sizeof *a->seen.slots);
    a->seen.count = a->seen.reach = 0;
}

gqac_status automaton_start(automaton *a, uint32_t *state, gqac_diag *diag) {
    closure c = {.a = a, .diag = diag};
    gqac_status status = add_work(&c, a->g->start, 0);
    if (status == GQAC_OK)
        status = close_set(&c, state);
    forget_seen(a);
    return status;
}

static gqac_status make_row(automaton *a, uint32_t state, gqac_diag *diag) {
    if (a->states[state].row != AUTOMATON_UNKNOWN)
        return GQAC_OK;
    if (!gqac_reserve(&a->rows, a->n_rows + 1, &a->rows_capacity, sizeof *a->rows))
        return out_of_memory(diag);
    memset(a->rows[a->n_rows], 0xff, sizeof *a->rows);
    a->states[state].row = (uint32_t)a->n_rows++;
    return GQAC_OK;
}

/* Adds where the byte leads, and finds the interval around it whose bytes all lead there. */
static gqac_status add_targets(closure *c, uint32_t state, uint8_t byte, unsigned *low,
                               unsigned *high) {
    automaton *a = c->a;
    const automaton_state x = a->states[state];
    a->effort += x.n / 4;
    *low = 0;
    *high = 255;
    for (uint32_t i = 0; i < x.n; i++) {
        const uint64_t one = a->pool[x.first + i];
        const instruction *at = &a->g->code[one >> 32];
        if (at->low > byte || at->high < byte) {
            if (at->low > byte && at->low <= *high)
                *high = at->low - 1u;
            if (at->high < byte && at->high >= *low)
                *low = at->high + 1u;
            continue;
        }
        *low = at->low > *low ? at->low : *low;
        *high = at->high < *high ? at->high : *high;
        GQAC_TRY(add_work(c, at->next, (uint32_t)one));
    }
    return GQAC_OK;
}

gqac_status automaton_find(automaton *a, uint32_t state, uint8_t byte, uint32_t *next,
                           gqac_diag *diag) {
    closure c = {.a = a, .diag = diag};
    unsigned low = 0, high = 255;
    GQAC_TRY(make_row(a, state, diag));
    gqac_status status = add_targets(&c, state, byte, &low, &high);
    if (status == GQAC_OK)
        status = close_set(&c, next);
    forget_seen(a);
    GQAC_TRY(status);
    for (unsigned i = low; i <= high; i++)
        a->rows[a->states[state].row][i] = *next;
    return GQAC_OK;
}

/* ---- all of it ----------------------------------------------------------- */

gqac_status automaton_open(automaton *a, const grammar *g, gqac_diag *diag) {
    *a = (automaton){.g = g};
    gqac_table_init(&a->by_set, NULL);
    gqac_table_init(&a->by_frame, NULL);
    if (!gqac_reserve(&a->states, 1, &a->states_capacity, sizeof *a->states) ||
        !gqac_reserve(&a->frames, 1, &a->frames_capacity, sizeof *a->frames)) {
        automaton_close(a);
        return out_of_memory(diag);
    }
    a->states[a->n_states++] = (automaton_state){.row = AUTOMATON_UNKNOWN}; /* AUTOMATON_DEAD */
    a->frames[a->n_frames++] = (stack_frame){0};
    return GQAC_OK;
}

void automaton_close(automaton *a) {
    for (size_t i = 0; i < a->n_states && a->states; i++)
        gqac_free(a->states[i].more);
    gqac_free(a->states);
    gqac_free(a->pool);
    gqac_free(a->rows);
    gqac_free(a->frames);
    gqac_free(a->work);
    gqac_free(a->set);
    gqac_table_free(&a->by_set);
    gqac_table_free(&a->by_frame);
    gqac_table_free(&a->seen);
    *a = (automaton){0};
}

void automaton_attach(automaton *a, uint32_t state, void *more, size_t bytes) {
    a->states[state].more = more;
    a->more_bytes += bytes;
}

/* The stack of one automaton in another. */
static gqac_status copy_stack(automaton *to, const automaton *from, uint32_t stack, uint32_t *out,
                              gqac_diag *diag) {
    uint32_t path[GRAMMAR_MOST_DEPTH + 1];
    size_t n = 0;
    for (; stack; stack = from->frames[stack].parent)
        path[n++] = from->frames[stack].resume;
    *out = 0;
    while (n)
        GQAC_TRY(push_frame(to, path[--n], *out, out, diag));
    return GQAC_OK;
}

static gqac_status copy_state(automaton *to, const automaton *from, uint32_t *state,
                              gqac_diag *diag) {
    const automaton_state *x = &from->states[*state];
    closure c = {.a = to, .may_end = x->may_end, .diag = diag};
    for (uint32_t i = 0; i < x->n; i++) {
        const uint64_t one = from->pool[x->first + i];
        uint32_t stack = 0;
        GQAC_TRY(copy_stack(to, from, (uint32_t)one, &stack, diag));
        GQAC_TRY(add_byte(&c, pair((uint32_t)(one >> 32), stack)));
    }
    return *state == AUTOMATON_DEAD ? GQAC_OK : intern(&c, state);
}

gqac_status automaton_collect(automaton *a, uint32_t *states, size_t n, gqac_diag *diag) {
    automaton fresh;
    uint32_t *now = gqac_alloc((n ? n : 1) * sizeof *now);
    if (!now)
        return out_of_memory(diag);
    gqac_status status = automaton_open(&fresh, a->g, diag);
    for (size_t i = 0; i < n && status == GQAC_OK; i++) {
        now[i] = states[i];
        status = copy_state(&fresh, a, &now[i], diag);
    }
    if (status == GQAC_OK) {
        memcpy(states, now, n * sizeof *now);
        automaton_close(a);
        *a = fresh;
    } else {
        automaton_close(&fresh);
    }
    gqac_free(now);
    return status;
}
