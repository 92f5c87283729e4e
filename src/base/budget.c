/* Counts bytes against a maximum; see budget.h. */
#include "base/budget.h"

#include "base/limits.h"

bool gqac_budget_take(gqac_budget *budget, size_t bytes) {
    if (!budget)
        return true;
    size_t used = atomic_load(&budget->used);
    do {
        if (budget->most && (used > budget->most || bytes > budget->most - used))
            return false;
    } while (!atomic_compare_exchange_weak(&budget->used, &used, used + bytes));
    return true;
}

void gqac_budget_give(gqac_budget *budget, size_t bytes) {
    if (budget)
        atomic_fetch_sub(&budget->used, bytes);
}

void gqac_budget_spare(gqac_budget *budget, size_t bytes) {
    size_t spare = atomic_load(&budget->spare);
    while (spare < bytes && !atomic_compare_exchange_weak(&budget->spare, &spare, bytes))
        ;
}

gqac_status gqac_budget_fail(gqac_budget *budget, size_t bytes, const char *purpose,
                             gqac_diag *diag) {
    const size_t used = budget ? atomic_load(&budget->used) : 0;
    if (!budget || !budget->most || (used <= budget->most && bytes <= budget->most - used))
        return gqac_diag_oom(diag, purpose);
    gqac_diag_set(diag, GQAC_CAPACITY,
                  "%s needs %zu more bytes; %zu of the memory budget of %zu are in use", purpose,
                  bytes, used, budget->most);
    if (budget->is_limit) {
        gqac_limits_explain(diag, "memory-bytes", (int64_t)budget->most);
        return GQAC_CAPACITY;
    }
    gqac_diag_rule(diag, "contexts and sequences of a program together stay within its budget");
    gqac_diag_hint(diag,
                   "free or rewind other sequences, feed the prompt in smaller chunks, or open "
                   "the program with a larger budget");
    return GQAC_CAPACITY;
}
