/* SHA-256 by libmd; its context is stored in the opaque state, so that only this file includes its
 * header. */
#include <sha2.h>
#include <string.h>

#include "base/file.h"

_Static_assert(sizeof(SHA2_CTX) <= sizeof(gqac_sha256), "the opaque state is too small");
_Static_assert(_Alignof(SHA2_CTX) <= _Alignof(gqac_sha256), "the opaque state is not aligned");

void gqac_sha256_init(gqac_sha256 *state) {
    SHA256Init((SHA2_CTX *)(void *)state->opaque);
}

void gqac_sha256_update(gqac_sha256 *state, const void *data, size_t bytes) {
    if (bytes)
        SHA256Update((SHA2_CTX *)(void *)state->opaque, data, bytes);
}

gqac_status gqac_sha256_update_long(gqac_sha256 *state, const void *data, size_t bytes,
                                    gqac_poll *poll, gqac_diag *diag) {
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < GQAC_POLL_BYTES ? bytes - at : GQAC_POLL_BYTES;
        gqac_sha256_update(state, (const unsigned char *)data + at, n);
        GQAC_TRY(gqac_poll_add(poll, (int64_t)n, diag));
    }
    return GQAC_OK;
}

void gqac_sha256_final(gqac_sha256 *state, unsigned char digest[32]) {
    SHA256Final(digest, (SHA2_CTX *)(void *)state->opaque);
}

void gqac_sha256_hex(const unsigned char digest[32], char hex[65]) {
    for (size_t i = 0; i < 32; i++) {
        hex[2 * i] = "0123456789abcdef"[digest[i] / 16];
        hex[2 * i + 1] = "0123456789abcdef"[digest[i] % 16];
    }
    hex[64] = 0;
}
