/* Parsing of flags, the flags every verb has, and what is printed from the tables of flags. */
#ifndef GQAC_CLI_FLAGS_H
#define GQAC_CLI_FLAGS_H

#include "cli/cli.h"

/* The common flags that a verb takes; ends with name NULL. */
const cli_flag *cli_common_flags(const gqac_cli_verb *verb);
gqac_status cli_parse(cli *c, int argc, char **argv);
void cli_free(cli *c);

/* True if the verb has a flag of its own with the name of this common one. */
bool cli_overridden(const gqac_cli_verb *verb, const cli_flag *flag);
/* The short form of a flag, "-o"; NULL: it has none. */
const char *cli_brief(const char *flag);
/* The environment variable of a flag whose name has `length` characters. */
void flags_variable(const char *flag, size_t length, char *name, size_t size);
/* The words that --format takes, separated by spaces. */
const char *cli_formats(const gqac_cli_verb *verb);

/* help.c: what --help prints. */
void help_print(void);
void help_print_verb(const gqac_cli_verb *verb);
/* How help writes the value of a flag: "FILE", "table|json"; "": a switch. */
typedef struct help_value {
    char s[128];
} help_value;
help_value help_value_of(const gqac_cli_verb *verb, const cli_flag *flag);
/* Exit code i and its meaning; -1 after the last. */
int help_exit_code(int i, const char **meaning);

/* suggest.c: true of the verb whose texts are lines of stdin, not flags. */
bool cli_reads_messages(const gqac_cli_verb *verb);
/* Names what was probably meant in the hint of a usage error. */
void suggest_flag(cli *c, const char *word);
void suggest_verb(cli *c, const char *word);

#endif
