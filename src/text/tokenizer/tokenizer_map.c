/* The two hash tables of the tokenizer: pairs of ids, and texts. Both probe linearly at a load of
 * at most one half. Their keys come from untrusted files: when an entry would lie further than
 * REACH from its place, which no honest vocabulary does, the file is refused, so neither building
 * nor looking up can be made quadratic. */
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "text/tokenizer/tokenizer_impl.h"

enum { REACH = 256 };

uint64_t map64_mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    x *= 0x9e3779b97f4a7c15u;
    return x ^ (x >> 32);
}

static gqac_status crowded(gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_LIMIT, "the entries of a table collide more than chance allows");
    gqac_diag_rule(diag, "tokens and merges must not be chosen to make look-ups slow");
    return GQAC_LIMIT;
}

/* ---- 64-bit keys ---------------------------------------------------------- */

void map64_free(map64 *m) {
    gqac_free(m->entries);
    *m = (map64){0};
}

static gqac_status place(map64 *m, uint64_t key, uint64_t value, gqac_diag *diag) {
    size_t at = (size_t)map64_mix(key) & m->mask;
    for (size_t i = 0; i < REACH && i <= m->mask; i++, at = (at + 1) & m->mask) {
        uint64_t *entry = m->entries + 2 * at;
        if (entry[1] != MAP64_NONE && entry[0] != key)
            continue;
        m->n += entry[1] == MAP64_NONE;
        if (m->reach < i)
            m->reach = i;
        entry[0] = key;
        entry[1] = value;
        return GQAC_OK;
    }
    return crowded(diag);
}

gqac_status map64_reserve(map64 *m, size_t n, gqac_diag *diag) {
    size_t size = 16, bytes;
    while (size / 2 < n)
        size *= 2;
    if (m->entries && m->mask + 1 >= size)
        return GQAC_OK;
    if (!gqac_mul_size(size, 2 * sizeof(uint64_t), &bytes))
        return gqac_diag_oom(diag, "a table of merges");
    map64 grown = {.entries = gqac_alloc(bytes), .mask = size - 1};
    if (!grown.entries)
        return gqac_diag_oom(diag, "a table of merges");
    memset(grown.entries, 0xff, bytes); /* every value MAP64_NONE */
    gqac_status status = GQAC_OK;
    for (size_t i = 0; m->entries && i <= m->mask && status == GQAC_OK; i++)
        if (m->entries[2 * i + 1] != MAP64_NONE)
            status = place(&grown, m->entries[2 * i], m->entries[2 * i + 1], diag);
    map64_free(m);
    *m = grown;
    return status;
}

gqac_status map64_put(map64 *m, uint64_t key, uint64_t value, gqac_diag *diag) {
    GQAC_TRY(map64_reserve(m, m->n + 1, diag));
    return place(m, key, value, diag);
}

/* ---- texts ---------------------------------------------------------------------- */

static uint64_t hash(const char *text, size_t length) {
    uint64_t h = map64_mix(length + 1);
    for (; length >= 8; text += 8, length -= 8) {
        uint64_t part;
        memcpy(&part, text, 8);
        h = map64_mix(h ^ part);
    }
    uint64_t part = 0;
    memcpy(&part, text, length);
    return map64_mix(h ^ part);
}

void words_free(words *w) {
    gqac_str_free(&w->bytes);
    gqac_free(w->tokens);
    gqac_free(w->slots);
    *w = (words){0};
}

/* The slot's hash is the upper half; the place of a slot is the lower half of the whole hash. */
static gqac_status place_word(words *w, uint64_t h, int64_t id, gqac_diag *diag) {
    size_t at = (size_t)h & w->mask;
    for (size_t i = 0; i < REACH && i <= w->mask; i++, at = (at + 1) & w->mask)
        if (!w->slots[at]) {
            w->slots[at] = (h & 0xffffffff00000000u) | (uint64_t)(id + 1);
            if (w->reach < i)
                w->reach = i;
            w->n++;
            return GQAC_OK;
        }
    return crowded(diag);
}

gqac_status words_reserve(words *w, size_t n, gqac_diag *diag) {
    size_t size = 16;
    while (size / 2 < n)
        size *= 2;
    if (w->slots && w->mask + 1 >= size)
        return GQAC_OK;
    uint64_t *old = w->slots;
    size_t count = old ? w->mask + 1 : 0;
    w->slots = gqac_calloc(size, sizeof *w->slots);
    if (!w->slots) {
        w->slots = old;
        return gqac_diag_oom(diag, "a vocabulary");
    }
    w->mask = size - 1;
    w->n = w->reach = 0;
    gqac_status status = GQAC_OK;
    for (size_t i = 0; i < count && status == GQAC_OK; i++)
        if (old[i]) {
            int64_t id = (int64_t)(old[i] & 0xffffffff) - 1;
            span text = words_text(w, id);
            status = place_word(w, hash(text.bytes, text.length), id, diag);
        }
    gqac_free(old);
    return status;
}

int64_t words_find(const words *w, const char *text, size_t length) {
    if (!w->n)
        return -1;
    uint64_t h = hash(text, length);
    size_t at = (size_t)h & w->mask;
    for (size_t i = 0; i <= w->reach && w->slots[at]; i++, at = (at + 1) & w->mask) {
        if ((w->slots[at] ^ h) >> 32)
            continue;
        int64_t id = (int64_t)(w->slots[at] & 0xffffffff) - 1;
        span known = words_text(w, id);
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

static gqac_status room_for(words *w, int64_t id, gqac_diag *diag) {
    if ((size_t)id < w->limit)
        return GQAC_OK;
    size_t room = w->room ? w->room : 512;
    while (room <= (size_t)id)
        room *= 2;
    if (room > w->room) {
        token *tokens = gqac_realloc(w->tokens, room * sizeof *tokens);
        if (!tokens)
            return gqac_diag_oom(diag, "a vocabulary");
        w->tokens = tokens;
        w->room = room;
    }
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
    GQAC_TRY(room_for(w, id, diag));
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
    GQAC_TRY(words_reserve(w, w->n + 1, diag));
    return place_word(w, hash(text.bytes, text.length), id, diag);
}
