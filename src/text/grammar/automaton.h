/* The automaton of a grammar: which bytes can continue a text.
 *
 * A configuration is an instruction that accepts a byte, and a stack of instructions that wait for
 * the end of a rule. What has been read leads to a set of configurations, which is a state; each
 * set and each stack exists once. States, and where a byte leads from them, are found when they are
 * first needed and kept, so that most bytes are one look into a table. A state from which no text
 * can be completed does not exist: configurations whose calls would be too deep are left out. */
#ifndef GQAC_TEXT_GRAMMAR_AUTOMATON_H
#define GQAC_TEXT_GRAMMAR_AUTOMATON_H

#include <stdbool.h>

#include "base/table.h"
#include "text/grammar/grammar.h"

/* The state that no text leads to, and a transition that is not known yet. */
enum { AUTOMATON_DEAD = 0 };
#define AUTOMATON_UNKNOWN UINT32_MAX

typedef struct automaton_state {
    uint32_t first, n; /* configurations, in order */
    uint32_t row;      /* of `rows`; AUTOMATON_UNKNOWN: none yet */
    bool may_end;
    void *more; /* of the user; freed with the state */
} automaton_state;

typedef struct stack_frame {
    uint32_t resume; /* the instruction after the call */
    uint32_t parent, depth;
} stack_frame;

typedef struct automaton {
    const grammar *g; /* the caller's */
    automaton_state *states;
    size_t n_states, states_capacity;
    uint64_t *pool; /* configurations: instruction << 32 | stack */
    size_t n_pool, pool_capacity;
    uint32_t (*rows)[256];
    size_t n_rows, rows_capacity;
    stack_frame *frames; /* frame 0: the empty stack */
    size_t n_frames, frames_capacity;
    gqac_table by_set, by_frame;
    size_t more_bytes;
    size_t effort; /* configurations that were followed; the user sets it to 0 before each call */
    /* scratch of a transition */
    uint64_t *work, *set;
    size_t work_capacity, set_capacity;
    gqac_table seen;
} automaton;

/* The grammar must outlive the automaton. */
gqac_status automaton_open(automaton *a, const grammar *g, gqac_diag *diag);
void automaton_close(automaton *a);
/* The state of the empty text. LIMIT: a state has too many configurations. */
gqac_status automaton_start(automaton *a, uint32_t *state, gqac_diag *diag);
/* Where a byte leads. LIMIT: as above, or all states together take too much memory. */
gqac_status automaton_find(automaton *a, uint32_t state, uint8_t byte, uint32_t *next,
                           gqac_diag *diag);
static inline gqac_status automaton_next(automaton *a, uint32_t state, uint8_t byte, uint32_t *next,
                                         gqac_diag *diag) {
    const uint32_t row = a->states[state].row;
    if (row != AUTOMATON_UNKNOWN && a->rows[row][byte] != AUTOMATON_UNKNOWN) {
        *next = a->rows[row][byte];
        return GQAC_OK;
    }
    return automaton_find(a, state, byte, next, diag);
}
/* Attaches memory of the user to a state, which then owns it; it must be from base/alloc.h. */
void automaton_attach(automaton *a, uint32_t state, void *more, size_t bytes);
size_t automaton_bytes(const automaton *a);
/* Forgets all states but n of them, and all that was attached; replaces their numbers by the new
 * ones. On failure nothing has changed. */
gqac_status automaton_collect(automaton *a, uint32_t *states, size_t n, gqac_diag *diag);

#endif
