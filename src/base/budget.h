/* A bound on memory that grows while a program is used, shared by all that belongs to it.
 *
 * Whoever takes memory from the system takes its bytes from the budget before, and gives them back
 * with the memory. Thread-safe. */
#ifndef GQAC_BASE_BUDGET_H
#define GQAC_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/diag.h"

typedef struct gqac_budget {
    size_t most; /* 0: no bound; bytes are counted all the same */
    atomic_size_t used;
} gqac_budget;

/* False when so many bytes are not left. budget NULL: always true. */
bool gqac_budget_take(gqac_budget *budget, size_t bytes);
void gqac_budget_give(gqac_budget *budget, size_t bytes);
/* Why there are no `bytes` for a purpose: CAPACITY when the budget has not so many left, else
 * NO_MEMORY. */
gqac_status gqac_budget_fail(gqac_budget *budget, size_t bytes, const char *purpose,
                             gqac_diag *diag);

#endif
