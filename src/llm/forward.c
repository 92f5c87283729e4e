/* The three ways through a model, each one call of gqac_step: forward, prefill, decode. */
#include <gqac/text.h>

#include "base/diag.h"

static gqac_status check_count(int64_t n, gqac_diag *diag) {
    if (n < 1)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "%lld ids are given, at least one is needed",
                  (long long)n);
    return GQAC_OK;
}

gqac_status gqac_forward(gqac_context *context, const gqac_program *program, const int64_t *ids,
                         int64_t n, gqac_diag *diag) {
    gqac_sequence *sequence = NULL;
    GQAC_TRY(check_count(n, diag));
    GQAC_TRY(gqac_sequence_create(program, NULL, &sequence, diag));
    const gqac_status status = gqac_step(context, 1, &sequence, ids, &n, NULL, diag);
    gqac_sequence_free(sequence);
    return status;
}

gqac_status gqac_prefill(gqac_context *context, gqac_sequence *sequence, const int64_t *ids,
                         int64_t n, gqac_diag *diag) {
    GQAC_TRY(check_count(n, diag));
    GQAC_TRY(gqac_sequence_rewind(sequence, 0, diag));
    return gqac_step(context, 1, &sequence, ids, &n, NULL, diag);
}

gqac_status gqac_decode(gqac_context *context, gqac_sequence *sequence, int64_t id,
                        int64_t position, gqac_diag *diag) {
    const int64_t one = 1;
    return gqac_step(context, 1, &sequence, &id, &one, &position, diag);
}
