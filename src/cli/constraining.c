/* See constraining.h. */
#include "cli/constraining.h"

#include <stdlib.h>
#include <string.h>

/* The flag that is given, and its value; NULL: none. */
static gqac_status choose(cli *c, const char **flag, const char **value) {
    const char *grammar = cli_value(c, "grammar"), *schema = cli_value(c, "json-schema");
    if (grammar && schema)
        return cli_usage(c, "--grammar and --json-schema cannot be combined");
    *flag = grammar ? "grammar" : "json-schema";
    *value = grammar ? grammar : schema;
    return GQAC_OK;
}

/* A value may be the text itself. No name of a file has what each of them needs. */
static bool is_inline(bool grammar, const char *value) {
    return grammar ? strstr(value, "::=") != NULL : value[strspn(value, " \t\r\n")] == '{';
}

static gqac_status compile(cli *c, const gqac_text *text, bool grammar, const char *given,
                           size_t length, gqac_constraint **constraint) {
    return grammar ? gqac_constraint_from_grammar(text, given, length, constraint, &c->diag)
                   : gqac_constraint_from_schema(text, given, length, constraint, &c->diag);
}

gqac_status constraining_open(cli *c, const gqac_text *text, bool stdin_taken,
                              gqac_constraint **constraint) {
    const char *flag = NULL, *value = NULL;
    char *read = NULL;
    size_t length = 0;
    GQAC_TRY(choose(c, &flag, &value));
    if (!value)
        return GQAC_OK;
    if (stdin_taken && !strcmp(value, "-"))
        return cli_usage(c, "--%s -: standard input is already in use", flag);
    const bool grammar = !strcmp(flag, "grammar"), own = is_inline(grammar, value);
    if (!own && cli_read_file(c, value, &read, &length) != GQAC_OK) {
        cli_rule(c, "a value that %s is the name of a file",
                 grammar ? "does not contain ::=" : "does not begin with {");
        return cli_hint(c, "a file that exists, or %s",
                        grammar ? "a grammar: root ::= \"yes\" | \"no\"" : "a schema: { ... }");
    }
    const gqac_status status =
        compile(c, text, grammar, own ? value : read, own ? strlen(value) : length, constraint);
    free(read);
    if (status != GQAC_OK && !own)
        cli_where(c, "--%s %s%s%s", flag, cli_shown(value).s, *c->diag.where ? ", " : "",
                  cli_shown(c->diag.where).s);
    return status;
}
