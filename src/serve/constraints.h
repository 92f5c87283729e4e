/* The constraints of the latest requests. Requests of a tenant with the same schema or grammar
 * share one, and with it the masks that it knows. Only the thread of connections uses them. */
#ifndef GQAC_SERVE_CONSTRAINTS_H
#define GQAC_SERVE_CONSTRAINTS_H

#include <gqac/text.h>

typedef struct constraint {
    gqac_constraint *made;
    char *key; /* kind, length of the tenant, tenant and text */
    int users; /* jobs, and the list of the latest ones */
} constraint;

enum { CONSTRAINTS_KEPT = 8 };

typedef struct constraints {
    constraint *latest[CONSTRAINTS_KEPT]; /* the newest first; NULL after the last */
} constraints;

/* Compiles a grammar or a schema, or finds it. The caller ends with constraints_drop. The errors
 * are those of gqac_constraint_from_grammar; NO_MEMORY. */
gqac_status constraints_take(constraints *all, const gqac_text *text, const char *tenant,
                             bool grammar, const char *source, constraint **out, gqac_diag *diag);
void constraints_drop(constraint *one); /* NULL is allowed */
void constraints_close(constraints *all);

#endif
