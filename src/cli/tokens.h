/* Lists of tokens that several verbs compute: their chunks and their embeddings. */
#ifndef GQAC_CLI_TOKENS_H
#define GQAC_CLI_TOKENS_H

#include "cli/cli.h"

/* Sets *chunks to the lengths of chunks of n tokens: "3,7" means 3, 7 and the rest; NULL: one
 * chunk. USAGE: the sum is more than n. The array is malloc'd. */
gqac_status tokens_chunks(cli *c, const char *splits, int64_t n, int64_t **chunks, int *n_chunks);

/* Embeddings [N,E] or [1,N,E] of a .npy file, as f32; malloc'd. */
gqac_status tokens_embeddings(cli *c, const char *path, float **rows, int64_t *n, int64_t *width);
/* USAGE: embeddings for a program that takes none; INVALID_INPUT: `width` is not the embedding size
 * of the program. `rows` NULL: none are given. */
gqac_status tokens_embeddings_fit(cli *c, const gqac_program *program, const float *rows,
                                  int64_t width);

#endif
