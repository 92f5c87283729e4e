/* Past tensors of sequences, and copies of sequences by them. */
#include "base/alloc.h"
#include "base/diag.h"

#include <gqac/equiv.h>
#include <gqac/files.h>

static gqac_tensor type_of(const gqac_kv_pair *pair, int64_t length) {
    return (gqac_tensor){
        .dtype = pair->dtype,
        .rank = 4,
        .dims = {1, pair->heads, gqac_kv_pair_rows(pair, length), pair->head_size}};
}

gqac_status gqac_sequence_past(const gqac_sequence *sequence, const gqac_kv_pair *pair,
                               gqac_tensor *past, gqac_diag *diag) {
    *past = type_of(pair, gqac_sequence_length(sequence));
    GQAC_TRY(gqac_tensor_alloc(past, diag));
    const gqac_status status =
        gqac_sequence_export(sequence, pair->past, past->data, gqac_tensor_bytes(past), diag);
    if (status != GQAC_OK)
        gqac_tensor_free(past);
    return status;
}

static gqac_status copy(const gqac_sequence *from, int n_pairs, const gqac_kv_pair *pairs,
                        const char **names, gqac_tensor *tensors, int n, gqac_sequence *const *to,
                        gqac_diag *diag) {
    if (!names || !tensors)
        return gqac_diag_oom(diag, "past tensors");
    for (int k = 0; k < n_pairs; k++) {
        names[k] = pairs[k].past;
        GQAC_TRY(gqac_sequence_past(from, &pairs[k], &tensors[k], diag));
    }
    for (int i = 0; i < n; i++)
        GQAC_TRY(gqac_sequence_import(to[i], n_pairs, names, tensors, diag));
    return GQAC_OK;
}

gqac_status gqac_sequence_copy(const gqac_sequence *sequence, int n, gqac_sequence *const *copies,
                               gqac_diag *diag) {
    const gqac_kv_pair *pairs = NULL;
    const int n_pairs = gqac_program_kv_pairs(gqac_sequence_program(sequence), &pairs);
    const char **names = gqac_calloc((size_t)n_pairs + 1, sizeof *names);
    gqac_tensor *tensors = gqac_calloc((size_t)n_pairs + 1, sizeof *tensors);
    const gqac_status status = copy(sequence, n_pairs, pairs, names, tensors, n, copies, diag);
    for (int k = 0; tensors && k < n_pairs; k++)
        gqac_tensor_free(&tensors[k]);
    gqac_free(tensors);
    gqac_free((void *)names);
    return status;
}
