/* The values of a remote tier: one for each full block of a prefix.
 *
 *   front     128 bytes  magic, version, byte order, length, position of the block, digest of the
 *                        model, key, digest of the value with zeros here
 *   ids       i64        of the block's tokens
 *   body                 the rows of the block: those of each slot, canonical; or, in models with
 *                        states and kinds whose windows have blocks of their own, a saved sequence
 *                        (runtime/saved.h) of all tokens up to the end of the block
 *
 * Keys are a chain: that of a block is a SHA-256 of the key of the block before it and its own ids.
 * The first link is a digest of model, profile, kind, side of the LongRoPE threshold and tenant. So
 * a key names the whole prefix, and whoever asks for it knows every byte of the value except its
 * body and digest. */
#ifndef GQAC_STORE_ENTRY_H
#define GQAC_STORE_ENTRY_H

#include "store/store_impl.h"

typedef struct entry_front {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t bytes;   /* of the value */
    int64_t position; /* of the first token of the block */
    unsigned char model[32];
    unsigned char key[32], digest[32];
} entry_front;
enum { ENTRY_BODY = sizeof(entry_front) + GQAC_KV_BLOCK * sizeof(int64_t) };

/* What the entries of one tenant, kind and side have in common. */
typedef struct entry_form {
    const gqac_program *program;
    unsigned char model[32]; /* saved_fingerprint */
    gqac_store_key seed;
    bool whole;  /* bodies are saved sequences */
    size_t rows; /* bytes of other bodies */
} entry_form;

/* `sequence`: any of the kind. False: the size of a block overflows. */
bool entry_form_of(const gqac_sequence *sequence, const unsigned char model[32], const char *tenant,
                   int side, entry_form *form);
/* Makes the keys of the first n blocks of a text. */
void entry_keys(const entry_form *form, const int64_t *ids, size_t n, gqac_store_key *keys);
/* Writes front and ids of block `block` of the text to `data`, whose body is there already. */
void entry_seal(const entry_form *form, const gqac_store_key *key, const int64_t *ids, size_t block,
                unsigned char *data, size_t bytes);
/* True if `data` is what entry_seal made for that block. */
bool entry_check(const entry_form *form, const gqac_store_key *key, const int64_t *ids,
                 size_t block, const unsigned char *data, size_t bytes);
/* Copies the rows of a block to a body, and back; the block must be reserved. */
gqac_status entry_take_rows(const gqac_sequence *sequence, size_t block, unsigned char *body,
                            gqac_diag *diag);
gqac_status entry_put_rows(gqac_sequence *sequence, size_t block, const unsigned char *body,
                           gqac_diag *diag);

#endif
