/* See entry.h. */
#include "store/entry.h"

#include <string.h>

#include "base/check.h"
#include "base/float_mode.h"

static const char magic[8] = "GQACBLK";
enum { VERSION = 1, BYTE_ORDER_MARK = 0x01020304 };

_Static_assert(sizeof(entry_front) == 128 && ENTRY_BODY % 64 == 0, "layout");

static bool rows_bytes(const gqac_program *p, size_t *bytes) {
    size_t one = 0;
    bool fits = true;
    *bytes = 0;
    for (int i = 0; i < p->n_kv && fits; i++)
        fits = sequence_slot_bytes(&p->kv[i], GQAC_KV_BLOCK, &one) &&
               gqac_add_size(*bytes, one, bytes);
    return fits && *bytes <= PTRDIFF_MAX - ENTRY_BODY;
}

bool entry_form_of(const gqac_sequence *q, const unsigned char model[32], const char *tenant,
                   int side, entry_form *form) {
    const char *kind = gqac_sequence_kind(q);
    gqac_sha256 state;
    *form = (entry_form){.program = q->program,
                         .whole = kv_pool_state_bytes(q->program->pool) > 0 ||
                                  kv_sequence_has_windows(q->kv)};
    memcpy(form->model, model, sizeof form->model);
    gqac_sha256_init(&state);
    store_put_field(&state, "magic", magic, sizeof magic);
    store_put_field(&state, "whole", &form->whole, sizeof form->whole);
    store_put_field(&state, "model", model, sizeof form->model);
    store_put_field(&state, "kind", kind, strlen(kind));
    store_put_field(&state, "side", &side, sizeof side);
    store_put_field(&state, "tenant", tenant, strlen(tenant));
    gqac_sha256_final(&state, form->seed.bytes);
    return form->whole || rows_bytes(q->program, &form->rows);
}

void entry_keys(const entry_form *form, const int64_t *ids, size_t n, gqac_store_key *keys) {
    const gqac_store_key *before = &form->seed;
    for (size_t i = 0; i < n; i++) {
        gqac_sha256 state;
        gqac_sha256_init(&state);
        gqac_sha256_update(&state, before->bytes, sizeof before->bytes);
        gqac_sha256_update(&state, ids + i * GQAC_KV_BLOCK, GQAC_KV_BLOCK * sizeof *ids);
        gqac_sha256_final(&state, keys[i].bytes);
        before = &keys[i];
    }
}

static entry_front front_of(const entry_form *form, const gqac_store_key *key, size_t block,
                            size_t bytes) {
    entry_front front = {.version = VERSION,
                         .byte_order = BYTE_ORDER_MARK,
                         .bytes = bytes,
                         .position = (int64_t)block * GQAC_KV_BLOCK};
    memcpy(front.magic, magic, sizeof magic);
    memcpy(front.model, form->model, sizeof front.model);
    memcpy(front.key, key->bytes, sizeof front.key);
    return front;
}

/* `front` has no digest yet. */
static void digest_of(const entry_front *front, const unsigned char *data, size_t bytes,
                      unsigned char digest[32]) {
    gqac_sha256 state;
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, front, sizeof *front);
    gqac_sha256_update(&state, data + sizeof *front, bytes - sizeof *front);
    gqac_sha256_final(&state, digest);
}

void entry_seal(const entry_form *form, const gqac_store_key *key, const int64_t *ids, size_t block,
                unsigned char *data, size_t bytes) {
    entry_front front = front_of(form, key, block, bytes);
    memcpy(data + sizeof front, ids + block * GQAC_KV_BLOCK, GQAC_KV_BLOCK * sizeof *ids);
    digest_of(&front, data, bytes, front.digest);
    memcpy(data, &front, sizeof front);
}

bool entry_check(const entry_form *form, const gqac_store_key *key, const int64_t *ids,
                 size_t block, const unsigned char *data, size_t bytes) {
    if (bytes < ENTRY_BODY || (!form->whole && bytes != ENTRY_BODY + form->rows))
        return false;
    entry_front front = front_of(form, key, block, bytes);
    if (memcmp(data + sizeof front, ids + block * GQAC_KV_BLOCK, GQAC_KV_BLOCK * sizeof *ids) != 0)
        return false;
    digest_of(&front, data, bytes, front.digest);
    return !memcmp(data, &front, sizeof front);
}

/* ---- rows ---------------------------------------------------------------- */

/* Copies the rows of a block to the body `to`, or if that is NULL from the body `from`. */
static gqac_status copy_rows(const gqac_sequence *q, size_t block, unsigned char *to,
                             const unsigned char *from, gqac_diag *diag) {
    const int64_t position = (int64_t)block * GQAC_KV_BLOCK;
    size_t bytes = 0, at = 0;
    gqac_float_mode callers;
    GQAC_TRY(gqac_float_mode_take(&callers, diag));
    for (int i = 0; i < q->program->n_kv; i++, at += bytes) {
        /* cannot overflow: entry_form_of has computed it */
        (void)sequence_slot_bytes(&q->program->kv[i], GQAC_KV_BLOCK, &bytes);
        if (to)
            kv_read_rows(q->kv, i, position, GQAC_KV_BLOCK, to + at, GQAC_KV_BLOCK);
        else
            kv_write_rows(q->kv, i, position, GQAC_KV_BLOCK, from + at, GQAC_KV_BLOCK);
    }
    gqac_float_mode_give_back(&callers);
    return GQAC_OK;
}

gqac_status entry_take_rows(const gqac_sequence *q, size_t block, unsigned char *body,
                            gqac_diag *diag) {
    return copy_rows(q, block, body, NULL, diag);
}

gqac_status entry_put_rows(gqac_sequence *q, size_t block, const unsigned char *body,
                           gqac_diag *diag) {
    return copy_rows(q, block, NULL, body, diag);
}
