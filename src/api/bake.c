/* The prefix that is baked into an artefact: computed once, when the model is compiled. */
#include "api/load.h"
#include "base/sized.h"
#include "runtime/baked.h"
#include "runtime/context.h"

enum { CHUNK = 256 /* tokens of a step */ };

static gqac_status check(const gqac_program *program, const gqac_bake *bake, gqac_diag *diag) {
    if (program->stateless)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "a prefix can be baked only into a program for sequences, not for `gqac run`");
    if (bake->n < 1 || !bake->ids)
        GQAC_FAIL(diag, GQAC_USAGE, "the prefix to bake has no tokens");
    if (gqac_program_embedding_size(program))
        GQAC_FAIL(diag, GQAC_UNSUPPORTED,
                  "a prefix cannot be baked: it is found by its token ids, and the model needs "
                  "embeddings");
    return GQAC_OK;
}

/* The steps report no progress: that of a compilation is in bytes. */
static gqac_status compute(const gqac_program *program, const gqac_bake *bake,
                           const gqac_monitor *monitor, const gqac_poll *poll,
                           gqac_sequence *sequence, gqac_diag *diag) {
    gqac_context *context = NULL;
    GQAC_TRY(gqac_context_create(program, bake->threads, &context, diag));
    gqac_status status = gqac_context_set_monitor(context, monitor, NULL, diag);
    context->exec.poll.deadline = poll->deadline;
    context->exec.poll.ms = poll->ms;
    for (int64_t at = 0; status == GQAC_OK && at < bake->n; at += CHUNK) {
        const int64_t left = bake->n - at;
        status = gqac_sequence_append(context, sequence, bake->ids + at,
                                      left < CHUNK ? left : CHUNK, 0, diag);
    }
    gqac_context_free(context);
    if (status == GQAC_OK && kv_sequence_finite(sequence->kv) < bake->n) {
        gqac_diag_set(diag, GQAC_INVALID_MODEL, "a key or value of token %lld is NaN or infinite",
                      (long long)kv_sequence_finite(sequence->kv));
        gqac_diag_rule(diag, "all sequences share the rows of the prefix, so these must be finite");
        gqac_diag_hint(diag, "`gqac score --check-finite` names the node that computes the first");
        status = GQAC_INVALID_MODEL;
    }
    if (status != GQAC_OK)
        gqac_diag_where(diag, "the prefix to bake");
    return status;
}

gqac_status bake_prefix(const gqac_program *program, const gqac_options *options,
                        const gqac_poll *poll, void **data, size_t *bytes, gqac_diag *diag) {
    gqac_bake own = {0};
    gqac_sequence *sequence = NULL;
    if (!options->bake)
        return program->baked ? baked_make(program->baked_rows, data, bytes, diag) : GQAC_OK;
    GQAC_TRY(gqac_sized_take(&own, sizeof own, options->bake, "gqac_bake", diag));
    GQAC_TRY(check(program, &own, diag));
    gqac_monitor quiet = {.size = sizeof quiet};
    if (options->monitor)
        GQAC_TRY(gqac_sized_take(&quiet, sizeof quiet, options->monitor, "gqac_monitor", diag));
    quiet.progress = NULL;
    const gqac_sequence_options form = {.size = sizeof form, .kv = own.kv, .final_length = own.n};
    GQAC_TRY(gqac_sequence_create(program, &form, &sequence, diag));
    gqac_status status = compute(program, &own, &quiet, poll, sequence, diag);
    if (status == GQAC_OK)
        status = baked_make(sequence, data, bytes, diag);
    gqac_sequence_free(sequence);
    return status;
}
