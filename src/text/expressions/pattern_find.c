/* Running an expression: all threads at once, in the order in which a backtracking engine would try
 * them, so that the first thread that matches gives the match. Lists of threads are kept as states
 * with their transitions (a DFA that is built while it runs, in memory that was allocated before),
 * so most characters take one look-up in a table. If a lookahead needs the next character, threads
 * wait for it: a state describes what is known before that character is read.
 *
 * Time: attempts from one position after another may read at most about 4 times the text between
 * `from` and the position that they have reached; after that, one pass with all beginnings at once
 * finishes the call. So for any expression a call is linear in the text after `from`. All calls
 * over a text together are linear if no attempt reads much further than the end of its match. That
 * holds for the expressions of pre-tokenizers: text that one alternative reads without matching
 * (white space without a newline) is matched by another one, except for its last character. It does
 * not hold for a*b|a; therefore a scratch counts steps, at most PATTERN_BYTE_WORK for each byte. */
#include <string.h>

#include "base/alloc.h"
#include "text/expressions/pattern_impl.h"

enum {
    MAX_STATES = 2048,
    MIN_STATES = 8,
    TABLE_BYTES = 2 << 20, /* of transitions */
    POOL = 1 << 15,        /* threads of all states */
    UNKNOWN = -1,
    PATIENCE = 1024 /* bytes read without a match before counting begins */
};

typedef struct thread_list {
    uint32_t n;
    uint32_t *pc;
    size_t *begin; /* where each thread began; only in a pass with all beginnings */
} thread_list;

typedef struct state {
    uint32_t first, n; /* in the pool */
    int32_t previous;  /* symbol of the character before */
} state;

struct pattern_scratch {
    int end; /* the symbol of the end, and of the beginning, of a text */
    uint32_t *stack, *seen, round;
    thread_list now, then;
    uint64_t steps, allowed;
    int32_t n_states, max_states;
    state *states;
    int32_t *moves; /* [max_states][symbols + 1]: 2 * (state + 1) + matched; 0 and 1 end it */
    uint32_t n_pool, max_pool;
    uint32_t *pool;
    int32_t *slots; /* hash of states; [2 * MAX_STATES] */
};

/* ---- memory -------------------------------------------------------------- */

static bool create_list(thread_list *list, size_t n) {
    list->pc = gqac_calloc(n, sizeof *list->pc);
    list->begin = gqac_calloc(n, sizeof *list->begin);
    return list->pc && list->begin;
}

static void forget_states(pattern_scratch *s) {
    s->n_states = 0;
    s->n_pool = 0;
    memset(s->slots, 0xff, 2 * MAX_STATES * sizeof *s->slots);
}

pattern_scratch *pattern_scratch_create(const pattern *p) {
    pattern_scratch *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    size_t row = (size_t)p->table.n_symbols + 1, lists = (size_t)p->n_consuming + 2;
    size_t n = TABLE_BYTES / (row * sizeof *s->moves);
    s->max_states = n > MAX_STATES ? MAX_STATES : n < MIN_STATES ? MIN_STATES : (int32_t)n;
    s->end = p->table.n_symbols;
    s->allowed = PATTERN_BASE_WORK;
    s->max_pool = (uint32_t)lists + POOL;
    s->stack = gqac_calloc(2 * (size_t)p->n_code + 2, sizeof *s->stack);
    s->seen = gqac_calloc(p->n_code, sizeof *s->seen);
    s->states = gqac_calloc((size_t)s->max_states, sizeof *s->states);
    s->moves = gqac_alloc((size_t)s->max_states * row * sizeof *s->moves);
    s->pool = gqac_alloc(s->max_pool * sizeof *s->pool);
    s->slots = gqac_alloc(2 * MAX_STATES * sizeof *s->slots);
    if (!create_list(&s->now, lists) || !create_list(&s->then, lists) || !s->stack || !s->seen ||
        !s->states || !s->moves || !s->pool || !s->slots) {
        pattern_scratch_free(s);
        return NULL;
    }
    forget_states(s);
    return s;
}

void pattern_scratch_free(pattern_scratch *s) {
    if (!s)
        return;
    void *const all[] = {s->stack,  s->seen,      s->states,  s->moves,      s->pool, s->slots,
                         s->now.pc, s->now.begin, s->then.pc, s->then.begin, s};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gqac_free(all[i]);
}

void pattern_scratch_admit(pattern_scratch *s, size_t bytes) {
    s->allowed += ((uint64_t)bytes + 1) * PATTERN_BYTE_WORK;
}

uint64_t pattern_scratch_steps(const pattern_scratch *s) {
    return s->steps;
}

/* ---- threads ------------------------------------------------------------- */

static bool holds(const pattern *p, const pattern_scratch *s, const instruction *i, int symbol) {
    return symbol == s->end ? i->edge : char_in(&p->table, symbol, i->set);
}

/* Follows a thread up to where it reads the character `next`; those that may go on are added to
 * `then`. True when it matches here: threads of less priority do not matter then. */
static bool follow(const pattern *p, pattern_scratch *s, uint32_t pc, size_t begin, int previous,
                   int next) {
    uint32_t depth = 0;
    s->stack[depth++] = pc;
    while (depth) {
        pc = s->stack[--depth];
        if (s->seen[pc] == s->round)
            continue;
        s->seen[pc] = s->round;
        s->steps++;
        const instruction *i = &p->code[pc];
        switch ((opcode)i->op) {
        case OP_MATCH:
            return true;
        case OP_JUMP:
            s->stack[depth++] = i->x;
            break;
        case OP_SPLIT:
            s->stack[depth++] = i->y;
            s->stack[depth++] = i->x;
            break;
        case OP_AHEAD:
        case OP_BEHIND:
            if (holds(p, s, i, i->op == OP_AHEAD ? next : previous))
                s->stack[depth++] = pc + 1;
            break;
        case OP_SET:
            if (next != s->end && char_in(&p->table, next, i->set)) {
                s->then.pc[s->then.n] = pc + 1;
                s->then.begin[s->then.n++] = begin;
            }
            break;
        }
    }
    return false;
}

static void next_round(pattern_scratch *s, const pattern *p) {
    s->then.n = 0;
    if (++s->round == 0) {
        memset(s->seen, 0, p->n_code * sizeof *s->seen);
        s->round = 1;
    }
}

/* The symbol of the character at `at`, and where the next one begins. */
static int read_symbol(const pattern *p, const pattern_scratch *s, const char *text, size_t length,
                       size_t at, size_t *next) {
    int32_t c;
    if (at == length) {
        *next = at;
        return s->end;
    }
    if ((unsigned char)text[at] < 0x80) {
        *next = at + 1;
        return char_symbol(&p->table, text[at]);
    }
    *next = at + unicode_read(text + at, length - at, &c);
    return char_symbol(&p->table, c);
}

/* The symbol of the character before `at`. */
static int symbol_before(const pattern *p, const pattern_scratch *s, const char *text, size_t at) {
    size_t next;
    if (!p->looks_back || at == 0)
        return s->end;
    return read_symbol(p, s, text, at, unicode_before(text, 0, at), &next);
}

/* ---- states -------------------------------------------------------------- */

/* The state of a list of threads after a character; a new one may replace all
 * others. */
static int32_t find_state(const pattern *p, pattern_scratch *s, const uint32_t *pc, uint32_t n,
                          int32_t previous) {
    const size_t mask = 2 * MAX_STATES - 1;
    uint64_t hash = (uint64_t)previous + 0x9e3779b97f4a7c15;
    for (uint32_t i = 0; i < n; i++)
        hash = (hash ^ pc[i]) * 0xff51afd7ed558ccd, hash ^= hash >> 29;
    size_t slot = (size_t)hash & mask;
    for (; s->slots[slot] >= 0; slot = (slot + 1) & mask) {
        const state *old = &s->states[s->slots[slot]];
        if (old->n == n && old->previous == previous &&
            !memcmp(s->pool + old->first, pc, n * sizeof *pc))
            return s->slots[slot];
    }
    if (s->n_states == s->max_states || n > s->max_pool - s->n_pool) {
        forget_states(s);
        slot = (size_t)hash & mask;
    }
    size_t row = (size_t)p->table.n_symbols + 1;
    memcpy(s->pool + s->n_pool, pc, n * sizeof *pc);
    memset(s->moves + (size_t)s->n_states * row, 0xff, row * sizeof *s->moves);
    s->states[s->n_states] = (state){s->n_pool, n, previous};
    s->n_pool += n;
    s->steps += row / 64 + n;
    s->slots[slot] = s->n_states;
    return s->n_states++;
}

/* Computes a move and stores it, unless all states had to be dropped for it. */
static int32_t find_move(const pattern *p, pattern_scratch *s, int32_t from, int symbol) {
    const state *now = &s->states[from];
    bool matched = false;
    next_round(s, p);
    for (uint32_t i = 0; i < now->n && !matched; i++)
        matched = follow(p, s, s->pool[now->first + i], 0, now->previous, symbol);
    int32_t move = matched;
    int32_t before = s->n_states;
    if (s->then.n) {
        int32_t previous = p->looks_back ? symbol : s->end;
        move += 2 * (find_state(p, s, s->then.pc, s->then.n, previous) + 1);
    }
    if (s->n_states >= before)
        s->moves[(size_t)from * ((size_t)p->table.n_symbols + 1) + (size_t)symbol] = move;
    return move;
}

static gqac_status check_work(const pattern *p, const pattern_scratch *s, gqac_diag *diag) {
    if (s->steps <= s->allowed)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_LIMIT, "the expression '%s' takes more than %llu steps on this text",
                  p->shown, (unsigned long long)s->allowed);
    gqac_diag_rule(diag, "an expression may take %d steps for each byte of a text",
                   PATTERN_BYTE_WORK);
    gqac_diag_hint(diag, "it reads far beyond its matches, again and again: use a simpler "
                         "expression, or shorter texts");
    return GQAC_LIMIT;
}

/* Finds a match that begins at `from`; *reached is the position up to which the text was read. */
static gqac_status attempt(const pattern *p, pattern_scratch *s, const char *text, size_t length,
                           size_t from, pattern_match *match, size_t *reached, gqac_diag *diag) {
    static const uint32_t start = 0;
    const size_t row = (size_t)p->table.n_symbols + 1;
    int32_t now = find_state(p, s, &start, 1, symbol_before(p, s, text, from));
    match->begin = from;
    for (size_t at = from, next;; at = next) {
        int symbol = read_symbol(p, s, text, length, at, &next);
        int32_t move = s->moves[(size_t)now * row + (size_t)symbol];
        if (move == UNKNOWN) {
            GQAC_TRY(check_work(p, s, diag));
            move = find_move(p, s, now, symbol);
        }
        s->steps++;
        if (move & 1) {
            match->found = true;
            match->end = at;
        }
        *reached = next;
        if (move < 2)
            return check_work(p, s, diag);
        now = move / 2 - 1;
    }
}

/* ---- all beginnings at once ---------------------------------------------- */

static gqac_status find_any(const pattern *p, pattern_scratch *s, const char *text, size_t length,
                            size_t from, pattern_match *match, gqac_diag *diag) {
    int previous = symbol_before(p, s, text, from);
    s->now.n = 0;
    for (size_t at = from, next;; at = next) {
        int symbol = read_symbol(p, s, text, length, at, &next);
        bool cut = false;
        next_round(s, p);
        s->steps++;
        for (uint32_t i = 0; i < s->now.n && !cut; i++)
            if ((cut = follow(p, s, s->now.pc[i], s->now.begin[i], previous, symbol)))
                match->begin = s->now.begin[i];
        if (!cut && !match->found && (cut = follow(p, s, 0, at, previous, symbol)))
            match->begin = at;
        if (cut) {
            match->found = true;
            match->end = at;
        }
        GQAC_TRY(check_work(p, s, diag));
        if (at == length || (match->found && s->then.n == 0))
            return GQAC_OK;
        thread_list last = s->now;
        s->now = s->then;
        s->then = last;
        previous = p->looks_back ? symbol : s->end;
    }
}

gqac_status pattern_find(const pattern *p, pattern_scratch *s, const char *text, size_t length,
                         size_t from, pattern_match *match, gqac_diag *diag) {
    size_t spent = 0, reached;
    *match = (pattern_match){0};
    for (size_t at = from, next;; at = next) {
        GQAC_TRY(attempt(p, s, text, length, at, match, &reached, diag));
        if (match->found || at == length)
            return GQAC_OK;
        read_symbol(p, s, text, length, at, &next);
        spent += reached - at;
        if (spent > 4 * (at - from) + PATIENCE)
            return find_any(p, s, text, length, next, match, diag);
    }
}
