/* See constraints.h. */
#include "serve/constraints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/serve_impl.h"

void constraints_drop(constraint *one) {
    if (!one || --one->users)
        return;
    gqac_constraint_free(one->made);
    free(one->key);
    free(one);
}

/* Moves a constraint to the front of the list; one that is new replaces the oldest. */
static void put_first(constraints *all, constraint *one) {
    constraint *before = one;
    one->users++;
    for (int i = 0; i < CONSTRAINTS_KEPT && before; i++) {
        constraint *here = all->latest[i];
        all->latest[i] = before;
        before = here;
        if (here == one)
            break;
    }
    constraints_drop(before); /* `one` itself if it was in the list */
}

/* Takes over the key. */
static gqac_status make(const gqac_text *text, bool grammar, const char *source, char *key,
                        constraint **out, gqac_diag *diag) {
    constraint *one = calloc(1, sizeof *one);
    gqac_status status = GQAC_NO_MEMORY;
    if (!one)
        serve_fail(diag, GQAC_NO_MEMORY, "out of memory");
    else if (grammar)
        status = gqac_constraint_from_grammar(text, source, strlen(source), &one->made, diag);
    else
        status = gqac_constraint_from_schema(text, source, strlen(source), &one->made, diag);
    if (status != GQAC_OK) {
        free(one);
        free(key);
        return status;
    }
    one->key = key;
    *out = one;
    return GQAC_OK;
}

gqac_status constraints_take(constraints *all, const gqac_text *text, const char *tenant,
                             bool grammar, const char *source, constraint **out, gqac_diag *diag) {
    char *key = NULL;
    constraint *one = NULL;
    if (asprintf(&key, "%c%zu:%s%s", grammar ? 'g' : 's', strlen(tenant), tenant, source) < 0)
        return serve_fail(diag, GQAC_NO_MEMORY, "out of memory");
    for (int i = 0; i < CONSTRAINTS_KEPT && all->latest[i] && !one; i++)
        if (!strcmp(all->latest[i]->key, key))
            one = all->latest[i];
    if (one)
        free(key);
    else
        GQAC_TRY(make(text, grammar, source, key, &one, diag));
    put_first(all, one);
    one->users++;
    *out = one;
    return GQAC_OK;
}

void constraints_close(constraints *all) {
    for (int i = 0; i < CONSTRAINTS_KEPT; i++) {
        constraints_drop(all->latest[i]);
        all->latest[i] = NULL;
    }
}
