/* Chunk lists: how a list of tokens is split into calls. */
#ifndef GQAC_CLI_TOKENS_H
#define GQAC_CLI_TOKENS_H

#include "cli/cli.h"

/* "3,7" over n tokens: chunks 3, 7 and the rest; NULL: one chunk. A sum beyond n is USAGE. The
 * array is malloc'd. */
gqac_status tokens_chunks(cli *c, const char *splits, int64_t n, int64_t **chunks, int *n_chunks);

/* A small deterministic generator (splitmix64), for plans and token ids of `equiv`. */
uint64_t tokens_random(uint64_t *state);

#endif
