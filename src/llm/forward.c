/* Forward, prefill and decode, each one step. */
#include <gqac/text.h>

#include "base/diag.h"

static gqac_status check_count(int64_t n, gqac_diag *diag) {
    if (n < 1)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "%lld ids are given; at least one is needed",
                  (long long)n);
    return GQAC_OK;
}

/* All rows of logits, or the only one that the model returns. */
static int64_t rows_of(const gqac_program *program) {
    return gqac_program_last_logits(program) ? 1 : GQAC_LOGITS_ALL;
}

gqac_status gqac_forward(gqac_context *context, const gqac_program *program, const int64_t *ids,
                         int64_t n, gqac_diag *diag) {
    gqac_sequence *sequence = NULL;
    GQAC_TRY(check_count(n, diag));
    GQAC_TRY(gqac_sequence_create(program, NULL, &sequence, diag));
    const gqac_status status =
        gqac_sequence_append(context, sequence, ids, n, rows_of(program), diag);
    gqac_sequence_free(sequence);
    return status;
}

gqac_status gqac_prefill(gqac_context *context, gqac_sequence *sequence, const int64_t *ids,
                         int64_t n, gqac_diag *diag) {
    GQAC_TRY(check_count(n, diag));
    GQAC_TRY(gqac_sequence_rewind(sequence, 0, diag));
    return gqac_sequence_append(context, sequence, ids, n, rows_of(gqac_sequence_program(sequence)),
                                diag);
}

gqac_status gqac_decode(gqac_context *context, gqac_sequence *sequence, int64_t id,
                        int64_t position, gqac_diag *diag) {
    const gqac_step_item item = {.size = sizeof item,
                                 .sequence = sequence,
                                 .tokens = &id,
                                 .count = 1,
                                 .n_logits = 1,
                                 .position = &position};
    return gqac_step(context, 1, &item, diag);
}
