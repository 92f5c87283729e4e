/* What can be checked of a saved sequence without a model: its header and its checksums. */
#include <stdio.h>
#include <string.h>

#include "runtime/saved_impl.h"

const char saved_magics[SAVED_FORMS][8] = {"GQACSEQ", "GQACIMG"};

_Static_assert(sizeof(saved_header) == 8 * SAVED_LINE, "layout");

gqac_status saved_refuse(gqac_diag *diag, const char *why) {
    gqac_diag_set(diag, GQAC_INVALID_INPUT, "not a saved sequence: %s", why);
    gqac_diag_hint(diag, "save the sequence again with this version of gqac");
    return GQAC_INVALID_INPUT;
}

void saved_digest_header(const saved_header *h, unsigned char digest[32]) {
    saved_header clean = *h;
    gqac_sha256 state;
    memset(clean.digest, 0, sizeof clean.digest);
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, &clean, sizeof clean);
    gqac_sha256_final(&state, digest);
}

void saved_digest_section(const unsigned char *data, const saved_part *section,
                          unsigned char digest[32]) {
    gqac_sha256 state;
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, data + section->offset, (size_t)section->bytes);
    gqac_sha256_final(&state, digest);
}

bool saved_begins(const void *data, size_t n) {
    return n >= sizeof *saved_magics &&
           !memcmp(data, saved_magics[SAVED_CANONICAL], sizeof *saved_magics);
}

gqac_status saved_check_header(const void *data, size_t n, uint64_t bytes, saved_form form,
                               saved_header *h, gqac_diag *diag) {
    static const char *const names[] = {"geometry", "positions", "ids", "rows", "states"};
    unsigned char digest[32];
    uint64_t end = sizeof *h;
    if (n < sizeof *h)
        return saved_refuse(diag, "it is too short");
    memcpy(h, data, sizeof *h);
    if (memcmp(h->magic, saved_magics[form], sizeof *saved_magics) != 0)
        return saved_refuse(diag, "the first bytes are wrong");
    if (h->version != SAVED_VERSION || h->byte_order != SAVED_BYTE_ORDER)
        return saved_refuse(
            diag, "it was written by another version, or on a machine of another byte order");
    saved_digest_header(h, digest);
    if (memcmp(digest, h->digest, sizeof digest) != 0)
        return saved_refuse(diag, "the checksum of the header is wrong");
    if (h->bytes != bytes)
        return saved_refuse(diag, "it does not have the length that it was saved with");
    for (int i = 0; i < SAVED_SECTIONS; i++) {
        const saved_part *s = &h->sections[i];
        if (s->offset != end || s->bytes > bytes - end || s->bytes % SAVED_LINE) {
            char why[64];
            snprintf(why, sizeof why, "the offset or length of its %s is wrong", names[i]);
            return saved_refuse(diag, why);
        }
        end += s->bytes;
    }
    const int64_t most = INT32_MAX;
    if (end != bytes || h->tokens < 0 || h->tokens > most || h->missing < 0 || h->missing > most ||
        h->given < 0 || h->given > h->tokens || h->states < 0 || h->states > most || h->slots < 0 ||
        (uint64_t)(h->tokens + h->missing - h->given) >
            h->sections[SAVED_IDS].bytes / sizeof(int64_t) ||
        (uint64_t)h->states > h->sections[SAVED_POSITIONS].bytes / sizeof(int64_t) ||
        h->kind[sizeof h->kind - 1] || h->profile[sizeof h->profile - 1])
        return saved_refuse(diag, "its lengths contradict each other");
    return GQAC_OK;
}

gqac_status saved_check_digest(const unsigned char digest[32], const saved_header *h,
                               saved_section i, gqac_diag *diag) {
    static const char *const why[] = {
        "the checksum of the geometry is wrong", "the checksum of the positions is wrong",
        "the checksum of the ids is wrong", "the checksum of the rows is wrong",
        "the checksum of the states is wrong"};
    return memcmp(digest, h->sections[i].digest, 32) ? saved_refuse(diag, why[i]) : GQAC_OK;
}

gqac_status saved_check_section(const unsigned char *data, const saved_header *h, saved_section i,
                                gqac_diag *diag) {
    unsigned char digest[32];
    saved_digest_section(data, &h->sections[i], digest);
    return saved_check_digest(digest, h, i, diag);
}
