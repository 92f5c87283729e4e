/* Compiling expressions: a tree becomes instructions, in which a split prefers its first branch
 * (Pike's machine; Thompson 1968, Cox 2009). pattern_find.c runs them. A possessive repeat of a
 * class is compiled as a greedy one that must not end before another member of the class, which is
 * equivalent. Everything else needs only splits. */
#include <string.h>

#include "base/alloc.h"
#include "text/expressions/pattern_impl.h"

typedef struct emitter {
    instruction *code;
    uint32_t n;
    size_t capacity;
    gqac_diag *diag;
} emitter;

/* ---- instructions -------------------------------------------------------- */

static gqac_status emit(emitter *e, instruction i) {
    if (e->n == PATTERN_MAX_CODE)
        GQAC_FAIL(e->diag, GQAC_LIMIT,
                  "the expression has more than %d steps with its repeats written out",
                  PATTERN_MAX_CODE);
    if (!gqac_reserve(&e->code, e->n + 1, &e->capacity, sizeof *e->code))
        return gqac_diag_oom(e->diag, "an expression");
    e->code[e->n++] = i;
    return GQAC_OK;
}

static gqac_status emit_set(emitter *e, opcode op, int set, bool edge) {
    return emit(e, (instruction){.op = (uint8_t)op, .edge = edge, .set = (uint16_t)set});
}

/* A split between the next instruction and one to be set later. */
static gqac_status emit_split(emitter *e) {
    return emit(e, (instruction){.op = OP_SPLIT});
}

/* Sets the branches of a split: the instruction after it, and `out`. */
static void aim(emitter *e, uint32_t split, uint32_t into, uint32_t out, bool lazy) {
    e->code[split].x = lazy ? out : into;
    e->code[split].y = lazy ? into : out;
}

/* ---- the tree ------------------------------------------------------------ */

static gqac_status emit_node(emitter *e, const node *x);

static gqac_status emit_alternatives(emitter *e, const node *x) {
    uint32_t jumps = UINT32_MAX; /* jumps to the end, linked through x */
    for (const node *i = x->child; i; i = i->next) {
        uint32_t split = e->n;
        if (i->next)
            GQAC_TRY(emit_split(e));
        GQAC_TRY(emit_node(e, i));
        if (!i->next)
            break;
        GQAC_TRY(emit(e, (instruction){.op = OP_JUMP, .x = jumps}));
        jumps = e->n - 1;
        aim(e, split, split + 1, e->n, false);
    }
    for (uint32_t next; jumps != UINT32_MAX; jumps = next) {
        next = e->code[jumps].x;
        e->code[jumps].x = e->n;
    }
    return GQAC_OK;
}

/* Emits a repeat of any number of times, whose body is never empty. */
static gqac_status emit_loop(emitter *e, const node *x) {
    bool lazy = x->mode == LAZY;
    uint32_t begin = e->n;
    if (x->min == 0) {
        GQAC_TRY(emit_split(e));
        GQAC_TRY(emit_node(e, x->child));
        GQAC_TRY(emit(e, (instruction){.op = OP_JUMP, .x = begin}));
        aim(e, begin, begin + 1, e->n, lazy);
    } else { /* the last of the required copies */
        GQAC_TRY(emit_node(e, x->child));
        GQAC_TRY(emit_split(e));
        aim(e, e->n - 1, begin, e->n, lazy);
    }
    return x->mode == POSSESSIVE ? emit_set(e, OP_AHEAD, x->set, true) : GQAC_OK;
}

/* C?+ matches C, or nothing if there is no C. */
static gqac_status emit_optional_possessive(emitter *e, const node *x) {
    uint32_t split = e->n;
    GQAC_TRY(emit_split(e));
    GQAC_TRY(emit_node(e, x->child));
    GQAC_TRY(emit(e, (instruction){.op = OP_JUMP, .x = e->n + 2}));
    aim(e, split, split + 1, e->n, false);
    return emit_set(e, OP_AHEAD, x->set, true);
}

static gqac_status emit_repeat(emitter *e, const node *x) {
    int copies = x->max < 0 && x->min > 0 ? x->min - 1 : x->min;
    for (int i = 0; i < copies; i++)
        GQAC_TRY(emit_node(e, x->child));
    if (x->max < 0)
        return emit_loop(e, x);
    if (x->mode == POSSESSIVE)
        return emit_optional_possessive(e, x);
    uint32_t splits = UINT32_MAX; /* linked through x */
    for (int i = x->min; i < x->max; i++) {
        GQAC_TRY(emit(e, (instruction){.op = OP_SPLIT, .x = splits}));
        splits = e->n - 1;
        GQAC_TRY(emit_node(e, x->child));
    }
    for (uint32_t next; splits != UINT32_MAX; splits = next) {
        next = e->code[splits].x;
        aim(e, splits, splits + 1, e->n, x->mode == LAZY);
    }
    return GQAC_OK;
}

static gqac_status emit_node(emitter *e, const node *x) {
    switch (x->kind) {
    case NODE_EMPTY:
        break;
    case NODE_SET:
        return emit_set(e, OP_SET, x->set, false);
    case NODE_AHEAD:
        return emit_set(e, OP_AHEAD, x->set, x->edge);
    case NODE_BEHIND:
        return emit_set(e, OP_BEHIND, x->set, x->edge);
    case NODE_SEQ:
        for (const node *i = x->child; i; i = i->next)
            GQAC_TRY(emit_node(e, i));
        break;
    case NODE_ALT:
        return emit_alternatives(e, x);
    case NODE_REPEAT:
        return emit_repeat(e, x);
    }
    return GQAC_OK;
}

/* ---- the whole ----------------------------------------------------------- */

static gqac_status compile(const char *source, size_t length, charsets *sets, pattern *p,
                           gqac_diag *diag) {
    node *root = NULL;
    emitter e = {.diag = diag};
    GQAC_TRY(pattern_parse(source, length, sets, &root, diag));
    gqac_status status = emit_node(&e, root);
    if (status == GQAC_OK)
        status = emit(&e, (instruction){.op = OP_MATCH});
    p->code = e.code;
    p->n_code = e.n;
    for (uint32_t i = 0; i < e.n; i++) {
        p->n_consuming += e.code[i].op == OP_SET;
        p->looks_back |= e.code[i].op == OP_BEHIND;
    }
    GQAC_TRY(status);
    return char_table_build(sets, &p->table, diag);
}

static void show(pattern *p, const char *source, size_t length) {
    size_t n = length > PATTERN_SHOWN ? unicode_before(source, 0, PATTERN_SHOWN + 1) : length;
    memcpy(p->shown, source, n);
    strcpy(p->shown + n, n < length ? "..." : "");
}

gqac_status pattern_create(const char *source, size_t length, pattern **out, gqac_diag *diag) {
    pattern *p = gqac_calloc(1, sizeof *p);
    charsets *sets = gqac_calloc(1, sizeof *sets);
    gqac_status status = GQAC_OK;
    if (sets)
        sets->arena = gqac_arena_create(0);
    if (!p || !sets || !sets->arena)
        status = gqac_diag_oom(diag, "an expression");
    else
        status = compile(source, length, sets, p, diag);
    if (sets)
        gqac_arena_free(sets->arena);
    gqac_free(sets);
    if (status != GQAC_OK) {
        pattern_free(p);
        return status;
    }
    show(p, source, length);
    *out = p;
    return GQAC_OK;
}

void pattern_free(pattern *p) {
    if (!p)
        return;
    char_table_free(&p->table);
    gqac_free(p->code);
    gqac_free(p);
}
