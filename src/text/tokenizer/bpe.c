/* Byte-pair encoding (Sennrich et al. 2016) as tokenizer.json states it: characters, or the bytes
 * of a character that the vocabulary lacks, then the merge of lowest rank, leftmost first, until
 * none applies. A short word is scanned for its best pair; a long one keeps its pairs in a heap, so
 * that a word of n characters takes O(n log n). Both do the same merges. */
#include <string.h>

#include "base/alloc.h"
#include "text/tokenizer/tokenizer_impl.h"

enum { SHORT = 48, NO_ID = -1 };

/* ---- vocabulary and merges -------------------------------------------------- */

static gqac_status read_vocab(const json_t *model, bpe *b, gqac_diag *diag) {
    json_t *vocab = json_object_get(model, "vocab");
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'vocab' is missing, empty or not an object");
    if (!gqac_table_reserve(&b->words->ids, json_object_size(vocab)))
        return gqac_diag_oom(diag, "a vocabulary");
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        const char *text = json_object_iter_key(it);
        int64_t id;
        gqac_status status =
            json_to_index(json_object_iter_value(it), text, TOKEN_MAX_ID, &id, diag);
        if (status == GQAC_OK)
            status = words_add(b->words, (span){text, strlen(text)}, id, true, diag);
        if (status != GQAC_OK) {
            gqac_diag_where(diag, "vocab");
            return status;
        }
    }
    return GQAC_OK;
}

/* The two parts of ["a", "b"] or "a b". */
static gqac_status read_pair(const json_t *merge, span parts[2], gqac_diag *diag) {
    if (json_is_string(merge)) {
        span all = {json_string_value(merge), json_string_length(merge)};
        const char *space = memchr(all.bytes, ' ', all.length);
        size_t at = space ? (size_t)(space - all.bytes) : all.length;
        if (!space || memchr(space + 1, ' ', all.length - at - 1))
            GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'%s' is not two tokens with a space between them",
                      all.bytes);
        parts[0] = (span){all.bytes, at};
        parts[1] = (span){space + 1, all.length - at - 1};
    } else {
        for (size_t i = 0; i < 2; i++) {
            const json_t *part = json_array_get(merge, i);
            if (json_array_size(merge) != 2 || !json_is_string(part))
                GQAC_FAIL(diag, GQAC_INVALID_MODEL,
                          "the merge is neither a string nor a pair of strings");
            parts[i] = (span){json_string_value(part), json_string_length(part)};
        }
    }
    if (!parts[0].length || !parts[1].length)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "a part of the merge is empty");
    return GQAC_OK;
}

static gqac_status find_part(const bpe *b, span part, int64_t *id, gqac_diag *diag) {
    *id = words_find(b->words, part.bytes, part.length);
    if (*id >= 0)
        return GQAC_OK;
    int shown = part.length < 100 ? (int)part.length : 100;
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "'%.*s' is not in the vocabulary", shown, part.bytes);
    gqac_diag_rule(diag, "both parts of a merge and its result are tokens");
    return GQAC_INVALID_MODEL;
}

static gqac_status read_merge(bpe *b, const json_t *merge, uint64_t rank, gqac_str *joined,
                              gqac_diag *diag) {
    span parts[2];
    int64_t left, right, result;
    GQAC_TRY(read_pair(merge, parts, diag));
    GQAC_TRY(find_part(b, parts[0], &left, diag));
    GQAC_TRY(find_part(b, parts[1], &right, diag));
    joined->length = 0;
    gqac_str_append_n(joined, parts[0].bytes, parts[0].length);
    gqac_str_append_n(joined, parts[1].bytes, parts[1].length);
    if (joined->failed)
        return gqac_diag_oom(diag, "a merge");
    GQAC_TRY(find_part(b, (span){joined->text, joined->length}, &result, diag));
    return map64_put(&b->merges, (uint64_t)left << 32 | (uint64_t)right,
                     rank << 32 | (uint64_t)result, diag);
}

static bool is_version(const json_t *merge) {
    return json_is_string(merge) && strncmp(json_string_value(merge), "#version", 8) == 0;
}

static gqac_status read_merges(const json_t *model, bpe *b, gqac_diag *diag) {
    const json_t *merges = json_object_get(model, "merges");
    if (!json_is_array(merges))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'merges' is missing or not an array");
    if (!gqac_table_reserve(&b->merges, json_array_size(merges)))
        return gqac_diag_oom(diag, "a table of merges");
    gqac_str joined = {0};
    gqac_status status = GQAC_OK;
    uint64_t rank = 0;
    for (size_t i = 0; i < json_array_size(merges) && status == GQAC_OK; i++) {
        const json_t *merge = json_array_get(merges, i);
        if (is_version(merge)) /* the first line of an old merges.txt */
            continue;
        status = read_merge(b, merge, rank++, &joined, diag);
        if (status != GQAC_OK)
            gqac_diag_where(diag, "merge %zu", i);
    }
    gqac_str_free(&joined);
    return status;
}

/* ---- settings ------------------------------------------------------------------- */

static gqac_status refuse_affix(const json_t *model, const char *key, gqac_diag *diag) {
    span affix = {0};
    GQAC_TRY(json_may_text(model, key, &affix, diag));
    if (affix.length == 0)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "%s '%s' is not supported", key, affix.bytes);
    gqac_diag_hint(diag, "BPE models without it are supported");
    return GQAC_UNSUPPORTED;
}

static gqac_status read_settings(const json_t *model, gqac_arena *arena, bpe *b, gqac_diag *diag) {
    GQAC_TRY(json_may_bool(model, "byte_fallback", &b->byte_fallback, diag));
    GQAC_TRY(json_may_bool(model, "fuse_unk", &b->fuse_unk, diag));
    GQAC_TRY(json_may_bool(model, "ignore_merges", &b->ignore_merges, diag));
    GQAC_TRY(refuse_affix(model, "continuing_subword_prefix", diag));
    GQAC_TRY(refuse_affix(model, "end_of_word_suffix", diag));
    const json_t *dropout = json_object_get(model, "dropout");
    if (dropout && !json_is_null(dropout) && !json_is_number(dropout))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'dropout' is not a number");
    if (json_number_value(dropout) != 0)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "dropout %g is not supported: ids would be random",
                  json_number_value(dropout));
    b->unk_text = (span){0};
    GQAC_TRY(json_may_text(model, "unk_token", &b->unk_text, diag));
    b->has_unk = b->unk_text.bytes != NULL;
    return b->has_unk ? span_keep(arena, &b->unk_text, diag) : GQAC_OK;
}

static void make_tables(bpe *b) {
    for (int32_t c = 0; c < BPE_LOW; c++) {
        char text[4];
        b->low[c] = (int32_t)words_find(b->words, text, unicode_write(c, text));
    }
    words_find_bytes(b->words, b->bytes);
    b->unk = b->has_unk ? words_find(b->words, b->unk_text.bytes, b->unk_text.length) : NO_ID;
}

gqac_status bpe_read(const json_t *model, gqac_arena *arena, words *words, bpe *b,
                     gqac_diag *diag) {
    b->words = words;
    GQAC_TRY(read_settings(model, arena, b, diag));
    GQAC_TRY(read_vocab(model, b, diag));
    GQAC_TRY(read_merges(model, b, diag));
    make_tables(b);
    return GQAC_OK;
}

void bpe_free(bpe *b) {
    gqac_table_free(&b->merges);
}

/* ---- scratch ------------------------------------------------------------------------ */

gqac_status id_list_reserve(id_list *list, size_t extra, gqac_diag *diag) {
    return gqac_reserve(&list->items, list->n + extra, &list->capacity, sizeof *list->items)
               ? GQAC_OK
               : gqac_diag_oom(diag, "token ids");
}

void bpe_scratch_free(bpe_scratch *s) {
    gqac_free(s->id);
    gqac_free(s->prev);
    gqac_free(s->next);
    gqac_free(s->value);
    gqac_free(s->heap);
    *s = (bpe_scratch){0};
}

/* Makes the scratch large enough for a word of n symbols; its contents are lost. A merge removes
 * one pair and makes at most two, so the heap never has more than 2n entries. */
static gqac_status reserve(bpe_scratch *s, size_t n, gqac_diag *diag) {
    if (n <= s->capacity)
        return GQAC_OK;
    size_t capacity = 256;
    while (capacity < n)
        capacity *= 2;
    bpe_scratch_free(s);
    s->id = gqac_alloc(capacity * sizeof *s->id);
    s->prev = gqac_alloc(capacity * sizeof *s->prev);
    s->next = gqac_alloc(capacity * sizeof *s->next);
    s->value = gqac_alloc(capacity * sizeof *s->value);
    s->heap = gqac_alloc(2 * capacity * sizeof *s->heap);
    if (!s->id || !s->prev || !s->next || !s->value || !s->heap)
        return gqac_diag_oom(diag, "a long word");
    s->capacity = capacity;
    return GQAC_OK;
}

/* ---- symbols -------------------------------------------------------------------------- */

static int64_t char_id(const bpe *b, const char *text, size_t bytes, int32_t c) {
    return c < BPE_LOW ? b->low[c] : words_find(b->words, text, bytes);
}

static bool has_bytes(const bpe *b, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (b->bytes[(unsigned char)text[i]] == NO_ID)
            return false;
    return true;
}

/* The ids of the characters of a word, at most one for each of its bytes. As in Hugging Face's
 * tokenizers, an unknown character is held back until a known one follows, even if byte tokens come
 * between; without unk_token it is dropped. */
static gqac_status first_ids(const bpe *b, bpe_scratch *s, const char *word, size_t length,
                             size_t *count, gqac_diag *diag) {
    size_t n = 0;
    bool unknown = false;
    for (size_t i = 0; i < length;) {
        int32_t c;
        const char *text = word + i;
        size_t bytes = unicode_read(text, length - i, &c);
        i += bytes;
        int64_t id = char_id(b, text, bytes, c);
        if (id >= 0) {
            if (unknown)
                s->id[n++] = (uint32_t)b->unk;
            unknown = false;
            s->id[n++] = (uint32_t)id;
        } else if (b->byte_fallback && has_bytes(b, text, bytes)) {
            for (size_t k = 0; k < bytes; k++)
                s->id[n++] = (uint32_t)b->bytes[(unsigned char)text[k]];
        } else if (b->has_unk) {
            if (b->unk == NO_ID) {
                gqac_diag_set(diag, GQAC_INVALID_MODEL,
                              "U+%04X needs unk_token '%s', which is not in the vocabulary",
                              (unsigned)c, b->unk_text.bytes);
                return GQAC_INVALID_MODEL;
            }
            if (unknown && !b->fuse_unk)
                s->id[n++] = (uint32_t)b->unk;
            unknown = true;
        }
    }
    if (unknown)
        s->id[n++] = (uint32_t)b->unk;
    *count = n;
    return GQAC_OK;
}

/* ---- merging ----------------------------------------------------------------------------- */

static inline uint64_t pair_value(const bpe *b, uint32_t left, uint32_t right) {
    return map64_get(&b->merges, (uint64_t)left << 32 | right);
}

/* The upper half of an entry is its rank; of equal ranks the leftmost comes first. */
static inline bool sooner(uint64_t a, uint64_t b) {
#ifdef GQAC_CONTROL_BPE_TIES /* negative control: the rightmost of equal pairs is merged first */
    return a >> 32 != b >> 32 ? a < b : a >= b;
#else
    return a < b;
#endif
}

/* value[i] is rank << 32 | result of the pair (i, i + 1). */
static size_t merge_short(const bpe *b, bpe_scratch *s, size_t n) {
    for (size_t i = 0; i + 1 < n; i++)
        s->value[i] = pair_value(b, s->id[i], s->id[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (sooner(s->value[i], s->value[best])) /* ranks differ, or the pairs are equal */
                best = i;
        if (s->value[best] == MAP64_NONE)
            break;
        s->id[best] = (uint32_t)s->value[best];
        n--;
        memmove(s->id + best + 1, s->id + best + 2, (n - best - 1) * sizeof *s->id);
        memmove(s->value + best, s->value + best + 1, (n - best - 1) * sizeof *s->value);
        if (best + 1 < n)
            s->value[best] = pair_value(b, s->id[best], s->id[best + 1]);
        if (best > 0)
            s->value[best - 1] = pair_value(b, s->id[best - 1], s->id[best]);
    }
    return n;
}

static void heap_push(bpe_scratch *s, uint64_t entry) {
    size_t i = s->n_heap++;
    while (i > 0 && sooner(entry, s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = entry;
}

static uint64_t heap_pop(bpe_scratch *s) {
    uint64_t top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->n_heap; i = child) {
        if (child + 1 < s->n_heap && sooner(s->heap[child + 1], s->heap[child]))
            child++;
        if (!sooner(s->heap[child], last))
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

/* Looks up the pair that begins at `at`; entries are rank << 32 | at. */
static void offer(const bpe *b, bpe_scratch *s, uint32_t at, size_t n) {
    uint32_t next = s->next[at];
    s->value[at] = next < n ? pair_value(b, s->id[at], s->id[next]) : MAP64_NONE;
    if (s->value[at] != MAP64_NONE)
        heap_push(s, (s->value[at] & 0xffffffff00000000u) | at);
}

static size_t merge_long(const bpe *b, bpe_scratch *s, size_t n) {
    s->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->prev[i] = i - 1; /* UINT32_MAX: none */
        s->next[i] = i + 1;
    }
    for (uint32_t i = 0; i < n; i++)
        offer(b, s, i, n);
    while (s->n_heap) {
        uint64_t top = heap_pop(s);
        uint32_t at = (uint32_t)top;
        /* entries of pairs that are gone remain; a rank belongs to one pair */
        if (s->value[at] == MAP64_NONE || s->value[at] >> 32 != top >> 32)
            continue;
        uint32_t gone = s->next[at];
        s->id[at] = (uint32_t)s->value[at];
        s->value[gone] = MAP64_NONE;
        s->next[at] = s->next[gone];
        if (s->next[at] < n)
            s->prev[s->next[at]] = at;
        offer(b, s, at, n);
        if (s->prev[at] != UINT32_MAX)
            offer(b, s, s->prev[at], n);
    }
    size_t kept = 0;
    for (uint32_t i = 0; i < n; i = s->next[i])
        s->id[kept++] = s->id[i]; /* kept <= i */
    return kept;
}

gqac_status bpe_encode(const bpe *b, bpe_scratch *s, const char *word, size_t length, id_list *out,
                       gqac_diag *diag) {
    if (b->ignore_merges) {
        int64_t id = words_find(b->words, word, length);
        if (id >= 0) {
            GQAC_TRY(id_list_reserve(out, 1, diag));
            out->items[out->n++] = id;
            return GQAC_OK;
        }
    }
    size_t n;
    GQAC_TRY(reserve(s, length + 1, diag));
    GQAC_TRY(first_ids(b, s, word, length, &n, diag));
    n = n <= SHORT ? merge_short(b, s, n) : merge_long(b, s, n);
    GQAC_TRY(id_list_reserve(out, n, diag));
    for (size_t i = 0; i < n; i++)
        out->items[out->n++] = s->id[i];
    return GQAC_OK;
}
