/* Chunk lists and the generator of `equiv`; see tokens.h. */
#include "cli/tokens.h"

#include <stdlib.h>

gqac_status tokens_chunks(cli *c, const char *splits, int64_t n, int64_t **chunks, int *n_chunks) {
    int64_t *list = NULL, sum = 0;
    int count = 0;
    if (!splits) {
        list = calloc(1, sizeof *list);
    } else {
        gqac_status status = cli_numbers(c, "splits", splits, 1, INT32_MAX, &list, &count);
        if (status != GQAC_OK)
            return status;
    }
    for (int i = 0; i < count; i++)
        sum += list[i];
    if (sum > n) {
        free(list);
        return cli_usage(c, "--splits %s add up to %lld, there are %lld tokens", splits,
                         (long long)sum, (long long)n);
    }
    int64_t *all = realloc(list, ((size_t)count + 1) * sizeof *all);
    if (!all) {
        free(list);
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    }
    if (sum < n)
        all[count++] = n - sum;
    *chunks = all;
    *n_chunks = count;
    return GQAC_OK;
}

uint64_t tokens_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
