/* The memory budget of a program: a maximum of bytes for everything that grows while it is used.
 *
 * Bytes are taken from the budget before the memory is allocated, and given back after it is freed.
 * Thread-safe. */
#ifndef GQAC_BASE_BUDGET_H
#define GQAC_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/diag.h"

typedef struct gqac_budget {
    size_t most;   /* the maximum; 0: none, bytes are only counted */
    bool is_limit; /* the maximum is the limit memory-bytes */
    atomic_size_t used;
    atomic_size_t spare; /* bytes that an allocation leaves free if a smaller one would do too */
} gqac_budget;

/* Takes `bytes` from the budget. False: fewer are left, and nothing is taken. budget NULL: always
 * true. */
bool gqac_budget_take(gqac_budget *budget, size_t bytes);
void gqac_budget_give(gqac_budget *budget, size_t bytes);
/* Raises `spare` to at least `bytes` for the rest of the budget's life: memory that is given back
 * now, and that the same caller will want again. */
void gqac_budget_spare(gqac_budget *budget, size_t bytes);
/* Reports that `bytes` for a purpose could not be taken or allocated: CAPACITY if fewer are left in
 * the budget, else NO_MEMORY. */
gqac_status gqac_budget_fail(gqac_budget *budget, size_t bytes, const char *purpose,
                             gqac_diag *diag);

#endif
