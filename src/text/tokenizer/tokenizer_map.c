/* Hash tables of the tokenizer (base/table.h): pairs of ids, and texts. Their keys come from
 * untrusted files. If an entry lies further than REACH from the slot of its hash, as none of a real
 * vocabulary does, the file is refused, so neither building nor look-ups can become quadratic.
 */
#include <string.h>

#include "base/alloc.h"
#include "text/tokenizer/tokenizer_impl.h"

enum { REACH = 256 };

static gqac_status add(gqac_table *t, uint64_t hash, uint64_t value, const char *what,
                       gqac_diag *diag) {
    if (!gqac_table_add_number(t, hash, value))
        return gqac_diag_oom(diag, what);
    if (t->reach < REACH)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_LIMIT, "the entries of a hash table collide more than chance allows");
    gqac_diag_rule(diag, "tokens and merges are not chosen so that look-ups become slow");
    return GQAC_LIMIT;
}

/* ---- 64-bit keys ---------------------------------------------------------- */

gqac_status map64_put(gqac_table *m, uint64_t key, uint64_t value, gqac_diag *diag) {
    const uint64_t hash = gqac_hash_u64(0, key);
    size_t at = (size_t)hash;
    gqac_slot *slot = gqac_table_slot(m, hash, &at);
    if (!slot)
        return add(m, hash, value + 1, "a table of merges", diag);
    slot->value = value + 1;
    return GQAC_OK;
}

/* ---- texts ---------------------------------------------------------------------- */

void words_free(words *w) {
    gqac_str_free(&w->bytes);
    gqac_free(w->tokens);
    gqac_table_free(&w->ids);
    *w = (words){0};
}

int64_t words_find(const words *w, const char *text, size_t length) {
    const uint64_t hash = gqac_hash_bytes(0, text, length);
    size_t at = (size_t)hash;
    for (const gqac_slot *slot; (slot = gqac_table_slot(&w->ids, hash, &at)) != NULL; at++) {
        const int64_t id = (int64_t)slot->value - 1;
        const span known = words_text(w, id);
        if (known.length == length && memcmp(known.bytes, text, length) == 0)
            return id;
    }
    return -1;
}

void words_find_bytes(const words *w, int32_t ids[256]) {
    static const char digits[] = "0123456789ABCDEF";
    for (unsigned i = 0; i < 256; i++) {
        const char text[6] = {'<', '0', 'x', digits[i >> 4], digits[i & 15], '>'};
        ids[i] = (int32_t)words_find(w, text, sizeof text);
    }
}

static gqac_status reserve_id(words *w, int64_t id, gqac_diag *diag) {
    if ((size_t)id < w->limit)
        return GQAC_OK;
    if (!gqac_reserve(&w->tokens, (size_t)id + 1, &w->capacity, sizeof *w->tokens))
        return gqac_diag_oom(diag, "a vocabulary");
    memset(w->tokens + w->limit, 0, ((size_t)id + 1 - w->limit) * sizeof *w->tokens);
    w->limit = (size_t)id + 1;
    return GQAC_OK;
}

static gqac_status keep_text(words *w, span text, uint32_t *offset, gqac_diag *diag) {
    if (w->bytes.length + text.length > TOKENIZER_MAX_FILE)
        GQAC_FAIL(diag, GQAC_LIMIT, "the vocabulary has more than %d bytes", TOKENIZER_MAX_FILE);
    *offset = (uint32_t)w->bytes.length;
    gqac_str_append_n(&w->bytes, text.bytes, text.length);
    return w->bytes.failed ? gqac_diag_oom(diag, "a vocabulary") : GQAC_OK;
}

gqac_status words_show(words *w, int64_t id, span text, gqac_diag *diag) {
    GQAC_TRY(keep_text(w, text, &w->tokens[id].shown_offset, diag));
    w->tokens[id].shown_length = (uint32_t)text.length;
    return GQAC_OK;
}

gqac_status words_add(words *w, span text, int64_t id, bool find, gqac_diag *diag) {
    GQAC_TRY(reserve_id(w, id, diag));
    token *token = w->tokens + id;
    if (token->flags) {
        span known = words_text(w, id);
        if (known.length == text.length && memcmp(known.bytes, text.bytes, text.length) == 0)
            return GQAC_OK;
        gqac_diag_set(diag, GQAC_INVALID_MODEL, "id %lld is given to '%.*s' and to '%.*s'",
                      (long long)id, (int)(known.length < 100 ? known.length : 100), known.bytes,
                      (int)(text.length < 100 ? text.length : 100), text.bytes);
        gqac_diag_rule(diag, "each id belongs to one token");
        return GQAC_INVALID_MODEL;
    }
    uint32_t offset = 0;
    GQAC_TRY(keep_text(w, text, &offset, diag));
    uint32_t length = (uint32_t)text.length;
    *token = (struct token){offset, length, offset, length, TOKEN_EXISTS};
    if (!find)
        return GQAC_OK;
    return add(&w->ids, gqac_hash_bytes(0, text.bytes, text.length), (uint64_t)id + 1,
               "a vocabulary", diag);
}
