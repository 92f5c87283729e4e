/* The outputs of a run against .npy files, for `run --expect`. */
#ifndef GQAC_CLI_EXPECTING_H
#define GQAC_CLI_EXPECTING_H

#include "cli/cli.h"

typedef struct expecting {
    cli *c;
    const gqac_io *out;
    int n_out;
    const gqac_tensor *results;
    int64_t batch;
    const int64_t *valid; /* see compare_valid_rows */
    bool equal;           /* false: some elements differ */
} expecting;

/* Compares each output that has a file in `dir` and prints a line for it, or with --format json
 * adds it to `rows`. IO: no output has a file. */
gqac_status expecting_compare(expecting *x, const char *dir, json_t *rows);

#endif
