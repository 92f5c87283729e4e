/* The constraints of the latest requests. Requests of a tenant with the same schema or grammar
 * share one, and with it the masks that it knows. Only the thread of connections uses them. */
#ifndef GQAC_SERVE_CONSTRAINTS_H
#define GQAC_SERVE_CONSTRAINTS_H

#include <gqac/text.h>

typedef struct constraint {
    gqac_constraint *made;
    char *key; /* names its source and its tenant */
    int users; /* jobs, and the list of the latest ones */
} constraint;

enum { CONSTRAINTS_KEPT = 8 };

typedef enum constraint_kind {
    CONSTRAINT_GRAMMAR = 'g',
    CONSTRAINT_SCHEMA = 's',
    CONSTRAINT_TOOLS = 't'
} constraint_kind;

typedef struct constraint_source {
    constraint_kind kind;
    const char *text;        /* a grammar, a schema, or a list of tools */
    gqac_tool_choice choice; /* of tools */
} constraint_source;

typedef struct constraints {
    constraint *latest[CONSTRAINTS_KEPT]; /* the newest first; NULL after the last */
} constraints;

/* Compiles a source, or finds it. The caller releases *out with constraints_drop; it is NULL if the
 * source is tools that allow any answer. The errors are those of gqac_constraint_from_grammar and
 * gqac_constraint_from_tools; NO_MEMORY. */
gqac_status constraints_take(constraints *all, const gqac_text *text, const char *tenant,
                             const constraint_source *source, constraint **out, gqac_diag *diag);
void constraints_drop(constraint *one); /* NULL is allowed */
void constraints_close(constraints *all);

#endif
