/* Which elements of two tensors differ by more than `run --expect` and `test` allow. */
#ifndef GQAC_CLI_COMPARE_H
#define GQAC_CLI_COMPARE_H

#include "cli/cli.h"

/* Elements that differ. Floats are equal when |actual - expected| is at most 1e-7 + 1e-3 |expected|
 * (f16 and bf16: 1e-3 + 1e-2 |expected|) or both are NaN; integers must be the same. With another
 * shape or dtype all elements differ, and `first` is -1. */
typedef struct compare_count {
    int64_t compared, differing;
    int64_t first; /* index of the first that differs; -1: there is none */
} compare_count;

/* `rows` NULL: all elements are compared; else only the first rows[b] rows of each batch row b of
 * tensors [B,H,C,D]; -1: all rows. */
compare_count compare_elements(const gqac_tensor *actual, const gqac_tensor *expected,
                               const int64_t *rows);

/* Sets the elements that compare_elements leaves out to 0; tensors of i4 and u4 stay as they
 * are. */
void compare_clear_rows(gqac_tensor *t, const int64_t *rows);

/* Sets *rows to the valid rows of each output of a run with these inputs, as [n_out, *batch], where
 * *batch is the largest batch of an output; malloc'd. */
gqac_status compare_valid_rows(cli *c, const gqac_context *context, int n_in,
                               const char *const *names, const gqac_tensor *in, int n_out,
                               const gqac_tensor *results, int64_t *batch, int64_t **rows);

#endif
