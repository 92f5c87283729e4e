/* Parsing of flags, and the flags every verb has. */
#ifndef GQAC_CLI_FLAGS_H
#define GQAC_CLI_FLAGS_H

#include "cli/cli.h"

extern const cli_flag cli_common_flags[]; /* ends with name NULL */
gqac_status cli_parse(cli *c, int argc, char **argv);
void cli_free(cli *c);

#endif
