/* A sequence in one piece of memory, which is also a snapshot file.
 *
 *   header      512 bytes  model, lengths, the sections and their digests, digest of the header
 *   geometry    i64        of each slot: heads, head size, type, rows, tail; in an image then the
 *                          digest of its layout
 *   positions   i64        of each state, the number of tokens before it
 *   ids         i64        of its tokens, except imported ones, whose ids are unknown
 *   rows        each slot of which all rows are kept, canonical: [heads][tokens][head_size]; of a
 *               windowed sequence those that it keeps
 *   states      each state: each slot that is one, [heads][rows][head_size], and the rows before
 *               the state of each slot with a tail, [heads][tail][head_size], zeros after them when
 *               there are fewer
 *
 * An image has blocks and states as they are in memory (kv.h) in place of the last two.
 *
 * Every part begins at a multiple of 64 bytes, with zeros before it; the digest of a section covers
 * them. All of it is checked before a sequence is made. Anyone can compute a digest, so lengths,
 * positions and ids are checked as well. */
#include "runtime/saved_impl.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/float_mode.h"
#include "base/limits.h"
#include "base/sized.h"
#include "base/str.h"

enum { LINE = SAVED_LINE, GEOMETRY = 5, LAYOUT = 32 / sizeof(int64_t) /* of a digest */ };
static const char contradiction[] = "its lengths contradict each other";

typedef saved_header header;

static bool is_image(const header *h) {
    return !memcmp(h->magic, saved_magics[SAVED_IMAGE], sizeof h->magic);
}

/* A part: one slot of rows (state is -1), or one slot of a state. */
typedef struct part {
    int slot, state;
    int64_t first, tokens; /* its rows in the sequence; not for slots that are states */
    int64_t stride;        /* rows of a head in the part */
    size_t at, bytes;
} part;
/* Copies a part from the sequence to data (read_part) or from data to the sequence (write_part). */
typedef void part_visitor(gqac_sequence *s, unsigned char *data, const part *part);

/* Places a part of n * bytes at *end and moves *end after it; returns its offset. *fits becomes
 * false on overflow. */
static size_t place(size_t *end, size_t n, size_t bytes, bool *fits) {
    const size_t at = *end;
    size_t all = 0;
    *fits = *fits && gqac_mul_size(n, bytes, &all) && gqac_add_size(at, all, end) &&
            gqac_add_size(*end, LINE - 1, end);
    *end -= *end % LINE;
    return at;
}

/* Calls f, which may be NULL, for each slot of one state, or, with state -1, of rows. The first
 * begins at *end, which becomes the end of the last. False: the size overflows. */
static bool visit_slots(const gqac_program *p, const header *h, int state, size_t *end,
                        part_visitor *f, gqac_sequence *s, unsigned char *data) {
    bool fits = true;
    for (int i = 0; i < p->n_kv && fits; i++) {
        const int64_t tail = p->kv[i].tail;
        part one = {.slot = i, .state = state, .first = p->kv[i].window ? h->kept : 0};
        one.tokens = one.stride = h->tokens - one.first;
        if ((p->kv[i].rows || tail) != (state >= 0))
            continue;
        if (tail) {
            const int64_t position =
                data ? ((const int64_t *)(data + h->sections[SAVED_POSITIONS].offset))[state] : 0;
            one.tokens = position < tail ? position : tail;
            one.first = position - one.tokens;
            one.stride = tail;
        }
        fits = sequence_slot_bytes(&p->kv[i], one.stride, &one.bytes);
        one.at = place(end, 1, one.bytes, &fits);
        if (f && fits)
            f(s, data, &one);
    }
    return fits;
}

/* The same for all states. */
static bool visit_states(const gqac_program *p, const header *h, size_t *end, part_visitor *f,
                         gqac_sequence *s, unsigned char *data) {
    bool fits = true;
    for (int state = 0; state < h->states && fits; state++)
        fits = visit_slots(p, h, state, end, f, s, data);
    return fits;
}

static void visit_parts(const gqac_program *p, const header *h, part_visitor *f, gqac_sequence *s,
                        unsigned char *data) {
    size_t end = (size_t)h->sections[SAVED_ROWS].offset;
    (void)visit_slots(p, h, -1, &end, f, s, data);
    (void)visit_states(p, h, &end, f, s, data);
}

/* Places section `i`, of n items; what follows begins at *end. */
static void place_section(header *h, saved_section i, size_t *end, size_t n, bool *fits) {
    h->sections[i].offset = *end;
    (void)place(end, n, sizeof(int64_t), fits);
    h->sections[i].bytes = *end - h->sections[i].offset;
}

/* Sets the offsets of the first three sections from the lengths in the header, and *end to the end
 * of the last. False: the size overflows. */
static bool lay_out_lists(const gqac_program *p, header *h, size_t *end) {
    const int64_t ids = h->tokens + h->missing - h->given;
    bool fits = true;
    *end = sizeof *h;
    place_section(h, SAVED_GEOMETRY, end, (size_t)p->n_kv * GEOMETRY + (is_image(h) ? LAYOUT : 0),
                  &fits);
    place_section(h, SAVED_POSITIONS, end, (size_t)h->states, &fits);
    place_section(h, SAVED_IDS, end, (size_t)ids, &fits);
    h->sections[SAVED_ROWS].offset = *end;
    return fits;
}

/* Sets the offsets of all sections of the canonical form, and the total length. False: the size
 * overflows. */
static bool lay_out(const gqac_program *p, header *h) {
    size_t end = 0;
    bool fits = lay_out_lists(p, h, &end);
    fits = fits && visit_slots(p, h, -1, &end, NULL, NULL, NULL);
    h->sections[SAVED_ROWS].bytes = end - h->sections[SAVED_ROWS].offset;
    h->sections[SAVED_STATES].offset = end;
    fits = fits && visit_states(p, h, &end, NULL, NULL, NULL);
    h->sections[SAVED_STATES].bytes = end - h->sections[SAVED_STATES].offset;
    h->bytes = end;
    return fits;
}

/* The same of an image, whose states are at those positions. */
static bool lay_out_image(const gqac_program *p, const kv_kind *kind, const int64_t *positions,
                          header *h) {
    size_t begin = 0, rows = 0, states = 0, middle = 0, end = 0;
    const bool fits = lay_out_lists(p, h, &begin) &&
                      kv_image_bytes(p->pool, kind, h->tokens, (int)h->states, positions, h->kept,
                                     &rows, &states) &&
                      gqac_add_size(begin, rows, &middle) && gqac_add_size(middle, states, &end);
    h->sections[SAVED_ROWS].bytes = rows;
    h->sections[SAVED_STATES] = (saved_part){.offset = middle, .bytes = states};
    h->bytes = end;
    return fits;
}

/* A digest of the profile and of the graph as it is printed in that mode. */
static gqac_status digest_program(const gqac_program *p, ir_print_mode mode,
                                  unsigned char digest[32], gqac_diag *diag) {
    gqac_str text = {0};
    gqac_sha256 state;
    gqac_sha256_init(&state);
    ir_print(&text, p->module, mode);
    const bool printed = !text.failed;
    if (printed) {
        gqac_sha256_update(&state, p->profile, sizeof p->profile);
        gqac_sha256_update(&state, text.text, strlen(text.text));
    }
    gqac_str_free(&text);
    gqac_sha256_final(&state, digest);
    return printed ? GQAC_OK : gqac_diag_oom(diag, "the text of a graph");
}

gqac_status saved_fingerprint(const gqac_program *p, unsigned char digest[32], gqac_diag *diag) {
    program_fingerprint *f = p->fingerprint;
    gqac_status status = GQAC_OK;
    pthread_mutex_lock(&f->lock);
    if (!f->known)
        status = digest_program(p, IR_PRINT_HASH, f->digest, diag);
    f->known = status == GQAC_OK;
    memcpy(digest, f->digest, sizeof f->digest);
    pthread_mutex_unlock(&f->lock);
    return status;
}

/* The fingerprint of a model in a header. That of an image is of samples of the weights: opening an
 * artefact does not read all its pages, and its checksums tie the image to its weights. */
static gqac_status fingerprint_of_form(const gqac_program *p, const header *h,
                                       unsigned char digest[32], gqac_diag *diag) {
    return is_image(h) ? digest_program(p, IR_PRINT_SAMPLE, digest, diag)
                       : saved_fingerprint(p, digest, diag);
}

static void write_geometry(const gqac_program *p, int64_t *out) {
    for (int i = 0; i < p->n_kv; i++, out += GEOMETRY) {
        const kv_slot *s = &p->kv[i];
        const int64_t row[GEOMETRY] = {s->heads, s->head_size, s->dtype, s->rows, s->tail};
        memcpy(out, row, sizeof row);
    }
}

static gqac_status check_alignment(const void *data, gqac_diag *diag) {
    if ((uintptr_t)data % _Alignof(int64_t))
        GQAC_FAIL(diag, GQAC_USAGE, "the memory of a saved sequence is not aligned to 8 bytes");
    return GQAC_OK;
}

/* ---- saving -------------------------------------------------------------- */

static header describe_lengths(const gqac_sequence *s, saved_form form) {
    header h = {.version = SAVED_VERSION, .byte_order = SAVED_BYTE_ORDER};
    memcpy(h.magic, saved_magics[form], sizeof h.magic);
    h.tokens = kv_sequence_length(s->kv);
    h.missing = s->missing;
    h.given = s->given;
    h.pinned = s->pinned;
    h.final_length = s->final_length;
    h.guards = s->guards;
    h.states = kv_states_kept(s->kv);
    h.slots = s->program->n_kv;
    h.kept = kv_sequence_kept(s->kv);
    strncpy(h.kind, kv_sequence_kind(s->kv), sizeof h.kind - 1);
    gqac_sequence_profile(s, h.profile, sizeof h.profile);
    return h;
}

/* Fills the header except for digests. No size can overflow: the sequence has that much in
 * memory. */
static gqac_status describe(const gqac_sequence *s, saved_form form, header *h, gqac_diag *diag) {
    int64_t positions[KV_STATES_MOST];
    const kv_kind *kind = NULL;
    *h = describe_lengths(s, form);
    if (form == SAVED_CANONICAL) {
        (void)lay_out(s->program, h);
        return GQAC_OK;
    }
    for (int i = 0; i < h->states; i++)
        positions[i] = kv_state_position(s->kv, i);
    GQAC_TRY(kv_pool_kind(s->program->pool, h->kind, &kind, diag));
    (void)lay_out_image(s->program, kind, positions, h);
    return GQAC_OK;
}

gqac_status saved_bytes(const gqac_sequence *sequence, saved_form form, size_t *bytes,
                        gqac_diag *diag) {
    header h;
    GQAC_TRY(describe(sequence, form, &h, diag));
    *bytes = (size_t)h.bytes;
    return GQAC_OK;
}

bool saved_most(const gqac_program *program, int64_t tokens, size_t *bytes) {
    const bool recurrent = kv_pool_state_bytes(program->pool) > 0;
    header h = {.tokens = tokens, .states = recurrent ? kv_states_most(tokens) : 0};
    const bool fits = lay_out(program, &h);
    *bytes = (size_t)h.bytes;
    return fits;
}

size_t gqac_sequence_save_bytes(const gqac_sequence *sequence) {
    size_t bytes = 0;
    (void)saved_bytes(sequence, SAVED_CANONICAL, &bytes, NULL); /* only images can fail */
    return bytes;
}

static void read_part(gqac_sequence *s, unsigned char *data, const part *part) {
    if (!s->program->kv[part->slot].rows)
        kv_read_rows(s->kv, part->slot, part->first, part->tokens, data + part->at, part->stride);
    else
        memcpy(data + part->at, kv_state_kept(s->kv, part->slot, part->state), part->bytes);
}

static void write_lists(const gqac_sequence *s, const header *h, unsigned char *data) {
    const int64_t ids = h->tokens + h->missing - h->given;
    int64_t *positions = (int64_t *)(data + h->sections[SAVED_POSITIONS].offset);
    write_geometry(s->program, (int64_t *)(data + h->sections[SAVED_GEOMETRY].offset));
    for (int i = 0; i < h->states; i++)
        positions[i] = kv_state_position(s->kv, i);
    if (ids)
        memcpy(data + h->sections[SAVED_IDS].offset, s->ids, (size_t)ids * sizeof *s->ids);
}

static size_t layout_offset(const gqac_program *p, const header *h) {
    return (size_t)h->sections[SAVED_GEOMETRY].offset +
           (size_t)p->n_kv * GEOMETRY * sizeof(int64_t);
}

/* Blocks, states and the digest of the layout. */
static gqac_status write_image(const gqac_sequence *s, const header *h, unsigned char *data,
                               gqac_diag *diag) {
    const gqac_program *p = s->program;
    const kv_kind *kind = NULL;
    GQAC_TRY(kv_pool_kind(p->pool, h->kind, &kind, diag));
    GQAC_TRY(kv_layout_digest(p->pool, kind, data + layout_offset(p, h), diag));
    kv_image_write(s->kv, data + h->sections[SAVED_ROWS].offset);
    return GQAC_OK;
}

gqac_status gqac_sequence_save(const gqac_sequence *sequence, void *data, size_t bytes,
                               gqac_diag *diag) {
    return saved_write(sequence, SAVED_CANONICAL, data, bytes, diag);
}

gqac_status saved_write(const gqac_sequence *sequence, saved_form form, void *data, size_t bytes,
                        gqac_diag *diag) {
    gqac_sequence *s = (gqac_sequence *)sequence; /* only read_part is called */
    header h;
    GQAC_TRY(describe(sequence, form, &h, diag));
    GQAC_TRY(check_alignment(data, diag));
    if (bytes < h.bytes)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the sequence needs %zu bytes, but the buffer has %zu",
                  (size_t)h.bytes, bytes);
    GQAC_TRY(fingerprint_of_form(sequence->program, &h, h.program, diag));
    memset(data, 0, (size_t)h.bytes);
    write_lists(sequence, &h, data);
    if (form == SAVED_IMAGE)
        GQAC_TRY(write_image(sequence, &h, data, diag));
    else
        visit_parts(sequence->program, &h, read_part, s, data);
    for (int i = 0; i < SAVED_SECTIONS; i++)
        saved_digest_section(data, &h.sections[i], h.sections[i].digest);
    saved_digest_header(&h, h.digest);
    memcpy(data, &h, sizeof h);
    return GQAC_OK;
}

/* ---- loading ------------------------------------------------------------- */

/* True if some slot has rows; without such slots nothing can have been imported. */
static bool has_rows(const gqac_program *p) {
    for (int i = 0; i < p->n_kv; i++)
        if (!p->kv[i].rows)
            return true;
    return false;
}

/* Checks that the lengths are possible for a sequence of the program. */
static bool sound_lengths(const gqac_program *p, const header *h) {
    const int64_t most = INT32_MAX;
    const bool recurrent = kv_pool_state_bytes(p->pool) > 0;
    return h->tokens >= 0 && h->tokens <= most && h->missing >= 0 && h->missing <= most &&
           h->given >= 0 && h->given <= h->tokens && (!h->given || has_rows(p)) &&
           h->final_length >= 0 && h->pinned >= 0 && (recurrent || !h->missing) &&
           kv_pool_may_keep(p->pool, h->tokens, h->kept) && h->tokens + h->missing <= most &&
           h->states >= 0 && h->states <= kv_states_most(h->tokens) + 1 &&
           (h->states > 0) == (recurrent && h->tokens > 0);
}

/* Checks the positions of states: multiples of a block, except the last state and the one after the
 * imported tokens, which always exists. */
static bool sound_positions(const header *h, const int64_t *positions) {
    int64_t before = 0;
    bool given = !h->given || !h->states;
    for (int64_t i = 0; i < h->states; i++) {
        const bool last = i + 1 == h->states;
        if (positions[i] <= before || positions[i] > h->tokens ||
            (last && positions[i] != h->tokens))
            return false;
        if (!last && positions[i] % GQAC_KV_BLOCK && positions[i] != h->given)
            return false;
        before = positions[i];
        given = given || before == h->given;
    }
    return given;
}

static bool sound_ids(const gqac_program *p, const int64_t *ids, int64_t n) {
    const int64_t vocabulary = gqac_program_vocabulary(p);
    const int64_t most = vocabulary ? vocabulary : INT32_MAX;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= most)
            return false;
    return true;
}

/* True if the first n sections are at the same places. */
static bool same_places(const header *a, const header *b, int n) {
    for (int i = 0; i < n; i++)
        if (a->sections[i].offset != b->sections[i].offset ||
            a->sections[i].bytes != b->sections[i].bytes)
            return false;
    return true;
}

/* A sequence of the same model has no more tokens than the model has positions. */
static gqac_status check_length(const gqac_program *p, const header *h, gqac_diag *diag) {
    const int64_t tokens = h->tokens + h->missing;
    if (h->slots != p->n_kv || !sound_lengths(p, h))
        return saved_refuse(diag, contradiction);
    if (tokens <= p->most_tokens)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_OUT_OF_RANGE,
                  "the saved sequence has %lld tokens; the model has positions for %lld",
                  (long long)tokens, (long long)p->most_tokens);
    if (p->limited)
        gqac_limits_explain(diag, "context", p->most_tokens);
    return GQAC_OUT_OF_RANGE;
}

/* All but the places of sections. */
static gqac_status check_model(const gqac_program *p, const header *h, gqac_diag *diag) {
    unsigned char digest[32];
    GQAC_TRY(fingerprint_of_form(p, h, digest, diag));
    if (!memcmp(digest, h->program, sizeof digest))
        return check_length(p, h, diag);
    if (strncmp(h->profile, p->profile, strlen(p->profile)) != 0)
        gqac_diag_set(diag, GQAC_USAGE,
                      "the sequence was saved from another model, or with another profile: %s, not "
                      "%s",
                      h->profile, p->profile);
    else
        gqac_diag_set(diag, GQAC_USAGE, "the sequence was saved from another model");
    gqac_diag_rule(diag, "a sequence loads into a program of the same model, options, target and "
                         "numerics profile");
    return GQAC_USAGE;
}

gqac_status saved_check_program(const gqac_program *p, const header *h, gqac_diag *diag) {
    header own = *h;
    GQAC_TRY(check_model(p, h, diag));
    return lay_out(p, &own) && own.bytes == h->bytes && same_places(&own, h, SAVED_SECTIONS)
               ? GQAC_OK
               : saved_refuse(diag, contradiction);
}

/* The same for an image, but only where its lists are: the size of its blocks depends on the
 * positions of its states. */
static gqac_status check_lists(const gqac_program *p, const header *h, gqac_diag *diag) {
    header own = *h;
    size_t end = 0;
    GQAC_TRY(check_model(p, h, diag));
    return lay_out_lists(p, &own, &end) && same_places(&own, h, SAVED_ROWS)
               ? GQAC_OK
               : saved_refuse(diag, contradiction);
}

/* Compares the geometry with that of the program. */
static bool same_geometry(const gqac_program *p, const int64_t *given) {
    bool same = true;
    for (int i = 0; same && i < p->n_kv; i++, given += GEOMETRY) {
        const kv_slot *s = &p->kv[i];
        same = given[0] == s->heads && given[1] == s->head_size && given[2] == (int64_t)s->dtype &&
               given[3] == s->rows && given[4] == s->tail;
    }
    return same;
}

/* Checks what follows the header. */
static gqac_status check_sections(const gqac_program *p, const unsigned char *data, const header *h,
                                  gqac_diag *diag) {
    for (int i = 0; i < SAVED_SECTIONS; i++)
        GQAC_TRY(saved_check_section(data, h, (saved_section)i, diag));
    if (!same_geometry(p, (const int64_t *)(data + h->sections[SAVED_GEOMETRY].offset)))
        return saved_refuse(diag, "its slots differ from those of the model");
    if (!sound_positions(h, (const int64_t *)(data + h->sections[SAVED_POSITIONS].offset)))
        return saved_refuse(diag, "its states have positions at which a sequence keeps none");
    if (!sound_ids(p, (const int64_t *)(data + h->sections[SAVED_IDS].offset),
                   h->tokens + h->missing - h->given))
        return saved_refuse(diag, "it contains ids that are not in the vocabulary");
    return GQAC_OK;
}

static void write_part(gqac_sequence *s, unsigned char *data, const part *part) {
    int64_t position = 0;
    if (!s->program->kv[part->slot].rows)
        kv_write_rows(s->kv, part->slot, part->first, part->tokens, data + part->at, part->stride);
    else
        memcpy(kv_state_due(s->kv, part->slot, part->state, &position), data + part->at,
               part->bytes);
}

static gqac_status fill(gqac_sequence *s, const header *h, unsigned char *data, gqac_diag *diag) {
    kv_image image = {data + h->sections[SAVED_ROWS].offset};
    const int64_t *positions = (const int64_t *)(data + h->sections[SAVED_POSITIONS].offset);
    const int64_t length = h->tokens + h->missing;
    s->given = h->given;
    GQAC_TRY(sequence_reserve_ids(s, length, diag));
    if (length > h->given)
        memcpy(s->ids, data + h->sections[SAVED_IDS].offset,
               (size_t)(length - h->given) * sizeof *s->ids);
    GQAC_TRY(kv_sequence_restore(s->kv, h->tokens, (int)h->states, positions, h->given, h->kept,
                                 is_image(h) ? &image : NULL, diag));
    gqac_float_mode callers;
    GQAC_TRY(gqac_float_mode_take(&callers, diag));
    if (!is_image(h))
        visit_parts(s->program, h, write_part, s, data);
    gqac_float_mode_give_back(&callers);
    kv_sequence_publish(s->kv, h->tokens);
    s->missing = h->missing;
    s->pinned = h->pinned;
    s->guards = (unsigned)h->guards;
    s->imported = length > 0; /* the next step computes the guards; saved ones are not trusted */
    return GQAC_OK;
}

/* Checks that a sequence of another kind than the saved one has the same bits, and all its rows. */
static gqac_status check_kind(const gqac_sequence *s, const header *h, gqac_diag *diag) {
    char profile[sizeof h->profile];
    gqac_sequence_profile(s, profile, sizeof profile);
    if (!strcmp(profile, h->profile) && (!h->kept || kv_sequence_has_windows(s->kv)))
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_USAGE, "a sequence of kind '%s' cannot continue as '%s'", h->kind,
                  gqac_sequence_kind(s));
    gqac_diag_rule(diag, "%s",
                   h->kept ? "rows outside of windows were not saved"
                           : "the kinds have different numerics profiles");
    gqac_diag_hint(diag, "load it as '%s'", h->kind);
    return GQAC_USAGE;
}

/* Makes a sequence from data that have been checked. */
static gqac_status make(const gqac_program *program, const gqac_sequence_options *options,
                        const header *h, const void *data, gqac_sequence **sequence,
                        gqac_diag *diag) {
    gqac_sequence *s = NULL;
    GQAC_TRY(gqac_sequence_create(program, options, &s, diag));
    gqac_status status = check_kind(s, h, diag);
    if (status == GQAC_OK)
        status = fill(s, h, (unsigned char *)(uintptr_t)data, diag); /* which only reads it */
    GQAC_RETURN_MADE(status, s, sequence, gqac_sequence_free);
}

gqac_status gqac_sequence_load(const gqac_program *program, const gqac_sequence_options *options,
                               const void *data, size_t bytes, gqac_sequence **sequence,
                               gqac_diag *diag) {
    gqac_sequence_options own = {0};
    header h;
    GQAC_TRY(gqac_sized_take(&own, sizeof own, options, "gqac_sequence_options", diag));
    GQAC_TRY(sequence_check_program(program, diag));
    GQAC_TRY(check_alignment(data, diag));
    GQAC_TRY(saved_check_header(data, bytes, bytes, SAVED_CANONICAL, &h, diag));
    GQAC_TRY(saved_check_program(program, &h, diag));
    GQAC_TRY(check_sections(program, data, &h, diag));
    if (own.final_length > 0 && own.final_length != h.final_length)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "the saved sequence has the final length %lld, but the options have %lld",
                  (long long)h.final_length, (long long)own.final_length);
    if (own.capacity > 0 && h.tokens + h.missing > own.capacity)
        GQAC_FAIL(diag, GQAC_CAPACITY, "%lld saved tokens do not fit the capacity of %lld",
                  (long long)(h.tokens + h.missing), (long long)own.capacity);
    own.size = sizeof own;
    own.final_length = own.final_length < 0 ? own.final_length : h.final_length;
    own.kv = own.kv ? own.kv : h.kind;
    return make(program, &own, &h, data, sequence, diag);
}

gqac_status saved_load(const gqac_program *program, const header *h, const void *data,
                       gqac_sequence **sequence, gqac_diag *diag) {
    const gqac_sequence_options options = {
        .size = sizeof options, .kv = h->kind, .final_length = h->final_length};
    GQAC_TRY(check_sections(program, data, h, diag));
    return make(program, &options, h, data, sequence, diag);
}

static gqac_status check_image(const gqac_program *p, const unsigned char *data, size_t bytes,
                               header *h, gqac_diag *diag) {
    const kv_kind *kind = NULL;
    unsigned char layout[32];
    GQAC_TRY(saved_check_header(data, bytes, bytes, SAVED_IMAGE, h, diag));
    GQAC_TRY(check_lists(p, h, diag));
    GQAC_TRY(check_sections(p, data, h, diag));
    if (kv_pool_kind(p->pool, h->kind, &kind, NULL) != GQAC_OK)
        return saved_refuse(diag, "this version of gqac does not know its kind of cache");
    GQAC_TRY(kv_layout_digest(p->pool, kind, layout, diag));
    if (memcmp(layout, data + layout_offset(p, h), sizeof layout) != 0)
        return saved_refuse(diag,
                            "its blocks have another layout than this target and version use");
    header own = *h;
    if (!lay_out_image(p, kind, (const int64_t *)(data + h->sections[SAVED_POSITIONS].offset),
                       &own) ||
        own.bytes != h->bytes || !same_places(&own, h, SAVED_SECTIONS))
        return saved_refuse(diag, contradiction);
    return GQAC_OK;
}

gqac_status saved_map(const gqac_program *program, const void *data, size_t bytes,
                      gqac_sequence **sequence, gqac_diag *diag) {
    header h;
    GQAC_TRY(check_image(program, data, bytes, &h, diag));
    const gqac_sequence_options options = {
        .size = sizeof options, .kv = h.kind, .final_length = h.final_length};
    return make(program, &options, &h, data, sequence, diag);
}
