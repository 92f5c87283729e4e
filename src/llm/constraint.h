/* Private to src/llm: constraints and their states. */
#ifndef GQAC_LLM_CONSTRAINT_H
#define GQAC_LLM_CONSTRAINT_H

#include <gqac/constraint.h>
#include <pthread.h>
#include <stdatomic.h>

#include "llm/vocabulary.h"

/* The tokens that may follow in one state of the automaton. */
typedef struct token_mask {
    bool any; /* a bit is set */
    uint64_t bits[];
} token_mask;

struct gqac_constraint_state {
    gqac_constraint *owner;
    uint32_t now;                       /* of the automaton */
    bool begun;                         /* it has a token */
    gqac_constraint_state *next, *prev; /* in the list of the owner */
};

struct gqac_constraint {
    const vocabulary *words; /* of the gqac_text */
    grammar *grammar;
    atomic_int users; /* the creator, and each state */
    pthread_mutex_t lock;
    /* under the lock */
    automaton automaton;
    token_mask *first; /* of the empty answer; NULL: not known yet */
    size_t most;       /* bytes of the automaton after which states are forgotten */
    gqac_constraint_state *states;
};

/* Makes the constraint of a grammar, which it takes over, also on failure. */
gqac_status constraint_create(const vocabulary *words, grammar *g, gqac_constraint **out,
                              gqac_diag *diag);

#endif
