/* See baked.h. Steps never extend the sequence of the prefix, so its blocks always have a reference
 * besides that of a sequence which shares them: what would be written is copied first. */
#include "runtime/baked.h"

#include <string.h>

#include "base/alloc.h"
#include "base/common.h"
#include "runtime/saved.h"

gqac_status baked_make(const gqac_sequence *sequence, void **data, size_t *bytes, gqac_diag *diag) {
    void *memory = NULL;
    GQAC_TRY(saved_bytes(sequence, SAVED_IMAGE, bytes, diag));
    memory = gqac_data_alloc(*bytes);
    if (!memory)
        return gqac_diag_oom(diag, "a baked prefix");
    const gqac_status status = saved_write(sequence, SAVED_IMAGE, memory, *bytes, diag);
    GQAC_RETURN_MADE(status, memory, data, gqac_free);
}

/* Reports a fault of the saved sequence as a fault of the artefact. */
static gqac_status refuse(gqac_status status, const gqac_diag *why, gqac_diag *diag) {
    if (status != GQAC_INVALID_INPUT && status != GQAC_USAGE && status != GQAC_UNSUPPORTED) {
        if (diag)
            *diag = *why;
        return status;
    }
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "the baked prefix of the artefact cannot be used: %s",
                  why->what);
    gqac_diag_rule(diag, "its rows are those of one graph, with its passes and names of inputs, "
                         "one numerics profile and one layout of blocks");
    gqac_diag_hint(diag, "compile the model again, with --bake or without it");
    return GQAC_INVALID_MODEL;
}

gqac_status baked_describe(const void *data, size_t bytes, baked_description *out,
                           gqac_diag *diag) {
    saved_header h;
    gqac_diag why = {0};
    const gqac_status status = saved_check_header(data, bytes, bytes, SAVED_IMAGE, &h, &why);
    if (status != GQAC_OK)
        return refuse(status, &why, diag);
    out->tokens = h.tokens;
    memcpy(out->kind, h.kind, sizeof out->kind);
    return GQAC_OK;
}

/* Checks that there are tokens, and that all have rows and known ids; else no prompt could
 * match. */
static gqac_status check_whole(const gqac_sequence *s, gqac_diag *diag) {
    if (!s->missing && !s->given && gqac_sequence_length(s) > 0)
        return GQAC_OK;
    GQAC_FAIL(diag, GQAC_INVALID_INPUT, "it has no tokens, or some without rows or ids");
}

static gqac_status open_sequence(const gqac_program *program, const void *data, size_t bytes,
                                 gqac_sequence **sequence, gqac_diag *diag) {
    gqac_sequence *s = NULL;
    GQAC_TRY(saved_map(program, data, bytes, &s, diag));
    const gqac_status status = check_whole(s, diag);
    GQAC_RETURN_MADE(status, s, sequence, gqac_sequence_free);
}

gqac_status baked_open(gqac_program *program, const void *data, size_t bytes, gqac_diag *diag) {
    gqac_sequence *sequence = NULL;
    gqac_diag why = {0};
    if (!program->pool)
        return GQAC_OK;
    const gqac_status status = open_sequence(program, data, bytes, &sequence, &why);
    if (status != GQAC_OK)
        return refuse(status, &why, diag);
    GQAC_TRY(snapshot_make(sequence, &program->baked, diag));
    program->baked_rows = sequence;
    return gqac_program_rope_threshold(program, &program->baked_threshold, diag);
}

const gqac_snapshot *gqac_program_baked(const gqac_program *program) {
    return program->baked;
}

/* ---- reuse --------------------------------------------------------------- */

int64_t baked_match(const gqac_sequence *q, const int64_t *ids, int64_t n) {
    const gqac_program *p = q->program;
    const gqac_sequence *rows = p->baked_rows;
    const int64_t total = q->final_length ? q->final_length : n, threshold = p->baked_threshold;
    if (!rows || !kv_sequences_interchange(rows->kv, q->kv) ||
        (threshold && (total > threshold) != (rows->pinned > threshold)))
        return 0;
    const int64_t capacity = kv_sequence_capacity(q->kv), all = kv_sequence_length(rows->kv);
    int64_t most = n - 1 < all ? n - 1 : all;
    most = capacity && capacity < most ? capacity : most;
    return kv_sequence_reach(rows->kv, gqac_common_ids(ids, rows->ids, most));
}

gqac_status baked_share(gqac_sequence *q, const int64_t *ids, int64_t length, gqac_diag *diag) {
    const gqac_sequence *rows = q->program->baked_rows;
    return sequence_share(q, rows->kv, length, ids, rows->pinned, diag);
}

gqac_status gqac_sequence_begin(const gqac_program *program, const int64_t *ids, int64_t n,
                                const gqac_sequence_options *options, gqac_sequence **sequence,
                                int64_t *reused, gqac_diag *diag) {
    gqac_sequence *s = NULL;
    if (n < 1)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "the prompt has %lld ids: it must have at least one",
                  (long long)n);
    GQAC_TRY(gqac_sequence_create(program, options, &s, diag));
    const int64_t length = baked_match(s, ids, n);
    const gqac_status status = length ? baked_share(s, ids, length, diag) : GQAC_OK;
    if (status == GQAC_OK)
        *reused = length;
    GQAC_RETURN_MADE(status, s, sequence, gqac_sequence_free);
}
