/* See constraints.h. */
#include "serve/constraints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "serve/serve_impl.h"

void constraints_drop(constraint *one) {
    if (!one || --one->users)
        return;
    gqac_constraint_free(one->made);
    gqac_free(one->key);
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

static gqac_status compile(const gqac_text *text, const constraint_source *s, gqac_constraint **out,
                           gqac_diag *diag) {
    if (s->kind == CONSTRAINT_TOOLS)
        return gqac_constraint_from_tools(text, s->text, strlen(s->text), &s->choice, out, diag);
    return s->kind == CONSTRAINT_GRAMMAR
               ? gqac_constraint_from_grammar(text, s->text, strlen(s->text), out, diag)
               : gqac_constraint_from_schema(text, s->text, strlen(s->text), out, diag);
}

/* Takes over the key. *out is NULL if the source allows any answer. */
static gqac_status make(const gqac_text *text, const constraint_source *source, char *key,
                        constraint **out, gqac_diag *diag) {
    constraint *one = calloc(1, sizeof *one);
    if (!one) {
        gqac_free(key);
        return serve_fail(diag, GQAC_NO_MEMORY, "out of memory");
    }
    gqac_status status = compile(text, source, &one->made, diag);
    if (status == GQAC_OK && memory_ran_out()) { /* it may be one of another text */
        gqac_constraint_free(one->made);
        one->made = NULL;
        status = serve_fail(diag, GQAC_NO_MEMORY, "out of memory");
    }
    if (status != GQAC_OK || !one->made) {
        free(one);
        gqac_free(key);
        return status;
    }
    one->key = key;
    *out = one;
    return GQAC_OK;
}

gqac_status constraints_take(constraints *all, const gqac_text *text, const char *tenant,
                             const constraint_source *source, constraint **out, gqac_diag *diag) {
    const char *name = source->choice.name ? source->choice.name : "";
    gqac_str key = {0};
    constraint *one = NULL;
    gqac_str_printf(&key, "%c%d%d:%zu:%zu:%s%s%s", (char)source->kind, source->choice.parallel,
                    source->choice.optional, strlen(tenant), strlen(name), tenant, name,
                    source->text);
    if (key.failed)
        return serve_fail(diag, GQAC_NO_MEMORY, "out of memory");
    for (int i = 0; i < CONSTRAINTS_KEPT && all->latest[i] && !one; i++)
        if (!strcmp(all->latest[i]->key, key.text))
            one = all->latest[i];
    if (one)
        gqac_str_free(&key);
    else
        GQAC_TRY(make(text, source, key.text, &one, diag));
    *out = one;
    if (!one)
        return GQAC_OK;
    put_first(all, one);
    one->users++;
    return GQAC_OK;
}

void constraints_close(constraints *all) {
    for (int i = 0; i < CONSTRAINTS_KEPT; i++) {
        constraints_drop(all->latest[i]);
        all->latest[i] = NULL;
    }
}
