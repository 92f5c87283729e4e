/* Conversations as a chat template sees them, and texts of prompts in files. */
#ifndef GQAC_CLI_MESSAGES_H
#define GQAC_CLI_MESSAGES_H

#include "cli/cli.h"

/* Adds a message to an array; INVALID_INPUT: it is not UTF-8. */
gqac_status messages_add(cli *c, json_t *messages, const char *role, const char *text,
                         size_t length);
/* The token ids of a whole conversation, ready for an answer; the caller frees them with
 * gqac_release. The template writes the special tokens itself. `tools` NULL: there are none. */
gqac_status messages_tokenize(cli *c, const gqac_text *text, json_t *messages, json_t *tools,
                              int64_t **ids, size_t *n);
/* Reads a text without NUL from a file and drops one newline at its end, which is the editor's;
 * malloc'd. */
gqac_status messages_read(cli *c, const char *path, char **text);
/* Drops that newline. */
void messages_drop_newline(char *text);

#endif
