/* See pasts.h. */
#include "cli/pasts.h"

#include <stdlib.h>

static gqac_tensor type_of(const gqac_kv_pair *pair, int64_t length) {
    return (gqac_tensor){
        .dtype = pair->dtype,
        .rank = 4,
        .dims = {1, pair->heads, gqac_kv_pair_rows(pair, length), pair->head_size}};
}

size_t pasts_bytes(const gqac_kv_pair *pair, int64_t length) {
    const gqac_tensor past = type_of(pair, length);
    return gqac_tensor_bytes(&past);
}

gqac_status pasts_export(cli *c, const gqac_sequence *sequence, const gqac_kv_pair *pair,
                         gqac_tensor *past) {
    *past = type_of(pair, gqac_sequence_length(sequence));
    GQAC_TRY(gqac_tensor_alloc(past, &c->diag));
    const gqac_status status =
        gqac_sequence_export(sequence, pair->past, past->data, gqac_tensor_bytes(past), &c->diag);
    if (status != GQAC_OK)
        gqac_tensor_free(past);
    return status;
}

static gqac_status copy(cli *c, const gqac_sequence *from, int n_pairs, const gqac_kv_pair *pairs,
                        const char **names, gqac_tensor *tensors, int n, gqac_sequence *const *to) {
    if (!names || !tensors)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    for (int k = 0; k < n_pairs; k++) {
        names[k] = pairs[k].past;
        GQAC_TRY(pasts_export(c, from, &pairs[k], &tensors[k]));
    }
    for (int i = 0; i < n; i++)
        GQAC_TRY(gqac_sequence_import(to[i], n_pairs, names, tensors, &c->diag));
    return GQAC_OK;
}

gqac_status pasts_copy(cli *c, const gqac_program *program, const gqac_sequence *from, int n,
                       gqac_sequence *const *to) {
    const gqac_kv_pair *pairs = NULL;
    const int n_pairs = gqac_program_kv_pairs(program, &pairs);
    const char **names = calloc((size_t)n_pairs + 1, sizeof *names);
    gqac_tensor *tensors = calloc((size_t)n_pairs + 1, sizeof *tensors);
    const gqac_status status = copy(c, from, n_pairs, pairs, names, tensors, n, to);
    for (int k = 0; tensors && k < n_pairs; k++)
        gqac_tensor_free(&tensors[k]);
    free(tensors);
    free((void *)names);
    return status;
}
