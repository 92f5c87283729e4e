/* Lines of standard input. On a terminal each has a prompt on stderr; where gqac was built with
 * libedit, it can be edited there, and earlier lines can be recalled. */
#ifndef GQAC_CLI_LINES_H
#define GQAC_CLI_LINES_H

#include "cli/cli.h"

typedef struct lines lines;

gqac_status lines_open(cli *c, lines **l);
void lines_free(lines *l);
/* The next line without its end, valid until the next call; *line is NULL after the last one and
 * when Ctrl-C was typed. */
gqac_status lines_next(lines *l, const char **line, size_t *length);

#endif
