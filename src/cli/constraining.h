/* --grammar and --json-schema, which `generate` and `chat` share. */
#ifndef GQAC_CLI_CONSTRAINING_H
#define GQAC_CLI_CONSTRAINING_H

#include "cli/cli.h"

/* Rows of a flag table. */
#define CONSTRAINING_FLAGS                                                                         \
    {"grammar", "FILE",                                                                            \
     "constrains the answer to this grammar; FILE may also be the grammar, a text with ::="},      \
    {                                                                                              \
        "json-schema", "FILE",                                                                     \
            "constrains the answer to JSON that satisfies this schema; FILE may also be the "      \
            "schema, { ... }"                                                                      \
    }

/* Compiles the constraint of the flags for the tokens of a text; *constraint stays NULL without
 * them. `stdin_taken`: standard input is read for something else. USAGE: both flags are given, or
 * `-` while standard input is taken; else the errors of gqac_constraint_from_grammar. */
gqac_status constraining_open(cli *c, const gqac_text *text, bool stdin_taken,
                              gqac_constraint **constraint);

#endif
