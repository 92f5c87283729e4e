/* Sessions: a sequence and the ids of its tokens.
 *
 * The cached rows are those that one forward over all ids would write. If the length chooses the
 * rope tables, appending is not enough: at the threshold all rows are computed again, in a sequence
 * that is created with that final length, and then moved to the session's sequence, which has no
 * final length and can grow. */
#include "llm/session.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/common.h"
#include "base/sized.h"

static bool has_tables(const gqac_program *program) {
    const gqac_io *inputs = NULL;
    const int n = gqac_program_inputs(program, &inputs);
    for (int i = 0; i < n; i++)
        if (!strcmp(inputs[i].name, "gqac.total_len"))
            return true;
    return false;
}

/* For kind "off": a stateless program whose inputs follow from the ids. */
static gqac_status open_whole(gqac_session *s, gqac_diag *diag) {
    const int64_t vocabulary = gqac_program_vocabulary(s->program);
    GQAC_TRY(whole_check(s->program, diag));
    if (vocabulary < 1)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "the size of the model's vocabulary is not constant");
    s->logits = gqac_calloc((size_t)vocabulary, sizeof *s->logits);
    return s->logits ? GQAC_OK : gqac_diag_oom(diag, "a session");
}

gqac_status gqac_session_create(const gqac_program *program, const gqac_session_options *options,
                                gqac_session **session, gqac_diag *diag) {
    gqac_session_options own = {0};
    const gqac_session_options *const o = &own;
    GQAC_TRY(gqac_sized_take(&own, sizeof own, options, "gqac_session_options", diag));
    if (o->context < 0)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE, "the context is %lld tokens, but must not be negative",
                  (long long)o->context);
    if (o->store && (gqac_store_program(o->store) != program || (o->kv && !strcmp(o->kv, "off"))))
        GQAC_FAIL(diag, GQAC_USAGE,
                  "the store belongs to another program, or the session has no cache (kv \"off\")");
    gqac_session *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a session");
    s->program = program;
    s->context = o->context;
    s->off = o->kv && !strcmp(o->kv, "off");
    s->store = o->store;
    s->tenant = o->tenant;
    s->tables = has_tables(program);
    const gqac_sequence_options inner = {
        .size = sizeof inner, .kv = s->off ? NULL : o->kv, .capacity = o->context};
    const bool whole = s->off && gqac_program_is_stateless(program);
    const gqac_status status =
        whole ? open_whole(s, diag) : gqac_sequence_create(program, &inner, &s->sequence, diag);
    if (status == GQAC_USAGE)
        gqac_diag_hint(diag, "\"off\" caches nothing and computes all tokens in every call");
    session_end(s);
    GQAC_RETURN_MADE(status, s, session, gqac_session_free);
}

void gqac_session_free(gqac_session *session) {
    if (!session)
        return;
    gqac_sequence_free(session->sequence);
    gqac_free(session->ids);
    gqac_free(session->logits);
    gqac_free(session);
}

const char *gqac_session_kind(const gqac_session *session) {
    return session->off ? "off" : gqac_sequence_kind(session->sequence);
}

const int64_t *gqac_session_ids(const gqac_session *session, size_t *n) {
    *n = session->off ? 0 : session->n;
    return session->ids;
}

/* ---- ids and rows -------------------------------------------------------- */

/* Options of another sequence like that of a session. */
static gqac_sequence_options options_of(const gqac_session *session) {
    return (gqac_sequence_options){.size = sizeof(gqac_sequence_options),
                                   .kv = gqac_session_kind(session),
                                   .capacity = session->context};
}

/* Replaces the sequence of a session by one with the first n of these ids. */
static void adopt_sequence(gqac_session *session, gqac_sequence *sequence, const int64_t *ids,
                           int64_t n) {
    gqac_sequence_free(session->sequence);
    session->sequence = sequence;
    session->n = 0;
    session_append(session, ids, (size_t)n);
}

/* Continues what the store has of a prompt; *kept is its number of tokens. */
static gqac_status open_stored(gqac_session *session, const int64_t *ids, size_t n, int64_t *kept,
                               gqac_diag *diag) {
    gqac_sequence *sequence = NULL;
    const gqac_sequence_options options = options_of(session);
    GQAC_TRY(gqac_store_add(session->store, session->tenant, session->sequence, diag));
    GQAC_TRY(gqac_store_open(session->store, session->tenant, ids, (int64_t)n, &options, &sequence,
                             kept, diag));
    adopt_sequence(session, sequence, ids, *kept);
    return GQAC_OK;
}

static bool is_longer(const gqac_snapshot *baked, size_t length) {
    return baked && gqac_snapshot_length(baked) > (int64_t)length;
}

/* Continues the prefix of the artefact, if that has more of a prompt than the `same` tokens of the
 * session; *kept is 0 otherwise. */
static gqac_status open_baked(gqac_session *session, const int64_t *ids, size_t n, size_t same,
                              int64_t *kept, gqac_diag *diag) {
    gqac_sequence *sequence = NULL;
    const gqac_sequence_options options = options_of(session);
    GQAC_TRY(
        gqac_sequence_begin(session->program, ids, (int64_t)n, &options, &sequence, kept, diag));
    if ((size_t)*kept > same) {
        adopt_sequence(session, sequence, ids, *kept);
        return GQAC_OK;
    }
    *kept = 0;
    gqac_sequence_free(sequence);
    return GQAC_OK;
}

/* Rewinds to *length; to 0 where a windowed sequence lacks rows that this length needs. */
static gqac_status rewind_to(gqac_sequence *sequence, size_t *length, gqac_diag *diag) {
    const gqac_status status = gqac_sequence_rewind(sequence, (int64_t)*length, diag);
    if (status != GQAC_OUT_OF_RANGE)
        return status;
    *length = 0;
    return gqac_sequence_rewind(sequence, 0, diag);
}

gqac_status session_keep(gqac_session *session, const int64_t *ids, size_t n, int64_t *kept,
                         gqac_diag *diag) {
    const size_t most = session->n < n - 1 ? session->n : n - 1;
    size_t same = (size_t)gqac_common_ids(session->ids, ids, (int64_t)most);
    *kept = 0;
    if (!gqac_reserve(&session->ids, n, &session->capacity, sizeof *session->ids))
        return gqac_diag_oom(diag, "the ids of a session");
    if (session->store && (!same || same < session->n))
        return open_stored(session, ids, n, kept, diag);
    if (is_longer(gqac_program_baked(session->program), same) && !session->off)
        GQAC_TRY(open_baked(session, ids, n, same, kept, diag));
    if (*kept)
        return GQAC_OK;
    if (same < session->n)
        GQAC_TRY(rewind_to(session->sequence, &same, diag));
    session->n = same;
    *kept = (int64_t)same;
    return GQAC_OK;
}

gqac_status session_begin(gqac_session *session, int64_t total, gqac_diag *diag) {
    if (!session->off)
        return GQAC_OK;
    session_end(session);
    if (session->logits)
        return GQAC_OK;
    const gqac_sequence_options options = {
        .size = sizeof options, .capacity = session->context, .final_length = total};
    return gqac_sequence_create(session->program, &options, &session->sequence, diag);
}

gqac_status session_reserve(gqac_session *session, size_t n, gqac_diag *diag) {
    size_t need = 0;
    if (!gqac_add_size(session->n, n, &need) ||
        !gqac_reserve(&session->ids, need, &session->capacity, sizeof *session->ids))
        return gqac_diag_oom(diag, "the ids of a session");
    return GQAC_OK;
}

void session_append(gqac_session *session, const int64_t *ids, size_t n) {
    if (n)
        memcpy(session->ids + session->n, ids, n * sizeof *ids);
    session->n += n;
}

void session_end(gqac_session *session) {
    if (!session->off)
        return;
    gqac_sequence_free(session->sequence);
    session->sequence = NULL;
    session->n = 0;
}

/* ---- snapshots ----------------------------------------------------------- */

/* A sequence with the rows of a snapshot, which can grow to the context of the session. */
static gqac_status restore(const gqac_session *session, const gqac_snapshot *snapshot,
                           gqac_sequence **sequence, gqac_diag *diag) {
    const gqac_sequence_options options = options_of(session);
    return gqac_snapshot_restore(snapshot, &options, sequence, diag);
}

const gqac_sequence *gqac_session_sequence(const gqac_session *session) {
    return session->off ? NULL : session->sequence;
}

gqac_status gqac_session_restore(gqac_session *session, const gqac_snapshot *snapshot,
                                 gqac_diag *diag) {
    int64_t first = 0, n = 0;
    const int64_t *ids = gqac_snapshot_ids(snapshot, &first, &n);
    gqac_sequence *sequence = NULL;
    if (session->off)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "a session of kind \"off\" keeps no rows, so it cannot be restored");
    if (gqac_snapshot_program(snapshot) != session->program)
        GQAC_FAIL(diag, GQAC_USAGE, "the snapshot belongs to another program than the session");
    if (first)
        GQAC_FAIL(diag, GQAC_USAGE, "the snapshot has %lld imported tokens, whose ids are unknown",
                  (long long)first);
    if (!gqac_reserve(&session->ids, (size_t)n, &session->capacity, sizeof *session->ids))
        return gqac_diag_oom(diag, "the ids of a session");
    GQAC_TRY(restore(session, snapshot, &sequence, diag));
    gqac_sequence_free(session->sequence);
    session->sequence = sequence;
    session->n = 0;
    session_append(session, ids, (size_t)n);
    return GQAC_OK;
}

/* ---- other rope tables --------------------------------------------------- */

/* Appends all ids to `sequence` in chunks; the context then has the logits of the last id. */
static gqac_status feed(gqac_sequence *sequence, gqac_context *context, const int64_t *ids,
                        size_t n, int64_t chunk, int64_t *computed, gqac_diag *diag) {
    for (size_t at = 0; at < n;) {
        const size_t left = n - at;
        const int64_t count = left < (size_t)chunk ? (int64_t)left : chunk;
        const bool ends = (size_t)count == left;
        GQAC_TRY(gqac_sequence_append(context, sequence, ids + at, count, ends, diag));
        at += (size_t)count;
        *computed += count;
    }
    return GQAC_OK;
}

/* Makes the rows of *whole, which it frees, those of the session. They stay as they are; without a
 * final length the sequence can grow. */
static gqac_status adopt(gqac_session *session, gqac_sequence **whole, gqac_diag *diag) {
    gqac_snapshot *snapshot = NULL;
    const gqac_status status = gqac_snapshot_take(*whole, &snapshot, diag);
    gqac_sequence_free(*whole);
    *whole = NULL;
    GQAC_TRY(status);
    gqac_sequence *grows = NULL;
    const gqac_status restored = restore(session, snapshot, &grows, diag);
    gqac_snapshot_free(snapshot);
    GQAC_TRY(restored);
    gqac_sequence_free(session->sequence);
    session->sequence = grows;
    session->n = 0;
    return GQAC_OK;
}

gqac_status session_recompute(gqac_session *session, gqac_context *context, const int64_t *ids,
                              size_t n, int64_t chunk, int64_t *computed, gqac_diag *diag) {
    const gqac_sequence_options options = {
        .size = sizeof options, .kv = gqac_session_kind(session), .final_length = (int64_t)n};
    gqac_sequence *whole = NULL;
    if (n > session->n)
        GQAC_TRY(session_reserve(session, n - session->n, diag));
    GQAC_TRY(gqac_sequence_create(session->program, &options, &whole, diag));
    gqac_status status = feed(whole, context, ids, n, chunk, computed, diag);
    if (status == GQAC_OK)
        status = adopt(session, &whole, diag);
    gqac_sequence_free(whole);
    GQAC_TRY(status);
    session_append(session, ids, n);
    return GQAC_OK;
}
