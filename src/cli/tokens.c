/* See tokens.h. */
#include "cli/tokens.h"

#include <stdlib.h>

gqac_status tokens_chunks(cli *c, const char *splits, int64_t n, int64_t **chunks, int *n_chunks) {
    int64_t *list = NULL, sum = 0;
    int count = 0;
    if (splits)
        GQAC_TRY(cli_numbers(c, "splits", splits, 1, INT32_MAX, &list, &count));
    for (int i = 0; i < count; i++)
        sum += list[i];
    if (sum > n) {
        free(list);
        return cli_usage(c, "--splits %s add up to %lld, but there are %lld tokens", splits,
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

/* ---- embeddings ------------------------------------------------------------ */

static gqac_status read_rows(cli *c, const char *path, const gqac_tensor *t, float **rows,
                             int64_t *n, int64_t *width) {
    const bool fits = gqac_dtype_is_float(t->dtype) && (t->rank == 2 || t->rank == 3) &&
                      (t->rank == 2 || t->dims[0] == 1) && t->dims[t->rank - 1] > 0 &&
                      t->dims[t->rank - 2] > 0;
    if (!fits)
        return cli_fail(c, GQAC_INVALID_INPUT,
                        "%s does not contain embeddings: floats [N,E] or [1,N,E]",
                        cli_shown(path).s);
    *n = t->dims[t->rank - 2];
    *width = t->dims[t->rank - 1];
    *rows = malloc((size_t)gqac_tensor_count(t) * sizeof **rows);
    if (!*rows)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < gqac_tensor_count(t); i++)
        (*rows)[i] = (float)gqac_tensor_get(t, i);
    return GQAC_OK;
}

gqac_status tokens_embeddings(cli *c, const char *path, float **rows, int64_t *n, int64_t *width) {
    gqac_tensor t = {0};
    GQAC_TRY(gqac_npy_read(path, GQAC_NONE, &t, &c->diag));
    const gqac_status status = read_rows(c, path, &t, rows, n, width);
    gqac_tensor_free(&t);
    return status;
}

gqac_status tokens_embeddings_fit(cli *c, const gqac_program *program, const float *rows,
                                  int64_t width) {
    const int64_t wanted = gqac_program_embedding_size(program);
    if (!rows || width == wanted)
        return GQAC_OK;
    if (gqac_program_is_stateless(program))
        return cli_usage(c, "--embeds and --kv off cannot be combined");
    if (!wanted)
        return cli_usage(c, "--embeds: the model has the input input_ids, not inputs_embeds");
    return cli_fail(c, GQAC_INVALID_INPUT,
                    "--embeds: rows of %lld numbers, but the model needs %lld", (long long)width,
                    (long long)wanted);
}
