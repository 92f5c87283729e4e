/* The unigram model (Kudo 2018) as tokenizer.json states it: each token has a logarithm of its
 * probability, and a word becomes the tokens whose sum is greatest (Viterbi 1967), the first found
 * of equal ones. A character that is not a token by itself may also be skipped, with a score that
 * is UNKNOWN_COST less than the least score; a run of such characters becomes one unknown token, or
 * the tokens of its bytes. Tokens are found in a tree of their bytes, so a position takes at most
 * as many steps as the longest token has bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/tokenizer/tokenizer_impl.h"

enum { MOST_BYTES = 1024, NO_TOKEN = -1 }; /* maximum bytes of a token */
static const double UNKNOWN_COST = 10.0;
static const double MOST_SCORE = 1e100; /* maximum magnitude of a score; sums stay finite */

/* ---- vocabulary ---------------------------------------------------------------- */

static gqac_status new_node(unigram *u, uint32_t *node, gqac_diag *diag) {
    if (!gqac_reserve(&u->ends, u->n_nodes + 1, &u->capacity, sizeof *u->ends))
        return gqac_diag_oom(diag, "a vocabulary");
    *node = (uint32_t)u->n_nodes;
    u->ends[u->n_nodes++] = NO_TOKEN;
    return GQAC_OK;
}

static uint64_t edge(uint32_t node, char byte) {
    return (uint64_t)node << 8 | (unsigned char)byte;
}

static gqac_status grow_tree(unigram *u, span token, int64_t id, gqac_diag *diag) {
    uint32_t node = 0;
    for (size_t i = 0; i < token.length; i++) {
        const uint64_t key = edge(node, token.bytes[i]), next = map64_get(&u->edges, key);
        if (next != MAP64_NONE) {
            node = (uint32_t)next;
            continue;
        }
        GQAC_TRY(new_node(u, &node, diag));
        GQAC_TRY(map64_put(&u->edges, key, node, diag));
    }
    if (token.length) /* an empty token never matches */
        u->ends[node] = (int32_t)id;
    return GQAC_OK;
}

/* The number as the JSON reader of Hugging Face's tokenizers rounds it: its shortest digits as an
 * integer, rounded to a double, by a power of ten, rounded again. With 17 digits that may miss the
 * nearest double by one, which decides between sums that are equal. */
static double as_reference_reads(double x) {
    char text[40];
    uint64_t digits = 0;
    int precision = 14; /* digits after the point; with fewer nothing is rounded twice */
    snprintf(text, sizeof text, "%.*e", precision, fabs(x));
    while (strtod(text, NULL) != fabs(x) && precision < 16)
        snprintf(text, sizeof text, "%.*e", ++precision, fabs(x));
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            digits = 10 * digits + (uint64_t)(*p - '0');
    const int exponent = (*p ? (int)strtol(p + 1, NULL, 10) : 0) - precision;
    snprintf(text, sizeof text, "1e%d", exponent < 0 ? -exponent : exponent);
    const double power = strtod(text, NULL);
    return copysign(exponent < 0 ? (double)digits / power : (double)digits * power, x);
}

/* Entry `id` of the vocabulary: [text, score]. */
static gqac_status read_token(const json_t *pair, words *words, unigram *u, int64_t id,
                              gqac_diag *diag) {
    const json_t *text = json_array_get(pair, 0), *score = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_string(text) || !json_is_number(score))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "the entry is not a pair of a string and a number");
    const span token = {json_string_value(text), json_string_length(text)};
    if (token.length > MOST_BYTES)
        GQAC_FAIL(diag, GQAC_LIMIT, "the token has %zu bytes, more than %d", token.length,
                  MOST_BYTES);
    if (words_find(words, token.bytes, token.length) >= 0)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'%s' is in the vocabulary twice", token.bytes);
    u->scores[id] = as_reference_reads(json_number_value(score));
    if (!(fabs(u->scores[id]) <= MOST_SCORE))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "the score of '%s' is beyond %g", token.bytes,
                  MOST_SCORE);
    u->unknown = fmin(u->unknown, u->scores[id] - UNKNOWN_COST);
    GQAC_TRY(words_add(words, token, id, true, diag));
    return grow_tree(u, token, id, diag);
}

static gqac_status read_vocab(const json_t *model, words *words, unigram *u, gqac_diag *diag) {
    const json_t *vocab = json_object_get(model, "vocab");
    const size_t n = json_array_size(vocab);
    uint32_t root;
    if (n == 0)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'vocab' is missing, empty or not an array");
    if (n > TOKEN_MAX_ID)
        GQAC_FAIL(diag, GQAC_LIMIT, "'vocab' has %zu tokens, more than %d", n, TOKEN_MAX_ID);
    if (!(u->scores = gqac_calloc(n, sizeof *u->scores)))
        return gqac_diag_oom(diag, "a vocabulary");
    if (!gqac_table_reserve(&words->ids, n))
        return gqac_diag_oom(diag, "a vocabulary");
    GQAC_TRY(new_node(u, &root, diag));
    u->unknown = HUGE_VAL;
    for (size_t i = 0; i < n; i++) {
        const gqac_status status = read_token(json_array_get(vocab, i), words, u, (int64_t)i, diag);
        if (status != GQAC_OK) {
            gqac_diag_where(diag, "vocab, entry %zu", i);
            return status;
        }
    }
    return GQAC_OK;
}

gqac_status unigram_read(const json_t *model, words *words, unigram *u, gqac_diag *diag) {
    u->words = words;
    u->unk = NO_TOKEN;
    GQAC_TRY(read_vocab(model, words, u, diag));
    words_find_bytes(words, u->bytes);
    GQAC_TRY(json_may_bool(model, "byte_fallback", &u->byte_fallback, diag));
    const json_t *unk = json_object_get(model, "unk_id");
    const int64_t most = (int64_t)json_array_size(json_object_get(model, "vocab")) - 1;
    return !unk || json_is_null(unk) ? GQAC_OK : json_to_index(unk, "unk_id", most, &u->unk, diag);
}

void unigram_free(unigram *u) {
    gqac_free(u->scores);
    gqac_free(u->ends);
    gqac_table_free(&u->edges);
}

/* ---- the best way -------------------------------------------------------------- */

static void offer(unigram_position *to, double score, size_t from, int64_t id) {
    if (to->from == UINT32_MAX || score > to->score)
        *to = (unigram_position){score, (uint32_t)from, (int32_t)id};
}

static gqac_status find_ways(const unigram *u, unigram_position *positions, const char *word,
                             size_t length, gqac_diag *diag) {
    for (size_t i = 0; i <= length; i++)
        positions[i] = (unigram_position){0, UINT32_MAX, NO_TOKEN};
    for (size_t at = 0, bytes; at < length; at += bytes) {
        const double before = positions[at].score;
        bool single = false;
        uint64_t node = 0;
        int32_t c;
        bytes = unicode_read(word + at, length - at, &c);
        for (size_t i = at; i < length; i++) {
            node = map64_get(&u->edges, edge((uint32_t)node, word[i]));
            if (node == MAP64_NONE)
                break;
            const int32_t id = u->ends[node];
            if (id == NO_TOKEN)
                continue;
            single = single || i + 1 - at == bytes;
            offer(&positions[i + 1], u->scores[id] + before, at, id);
        }
        if (single)
            continue;
        if (u->unk == NO_TOKEN)
            GQAC_FAIL(diag, GQAC_INVALID_MODEL, "U+%04X needs unk_id, which the model lacks",
                      (unsigned)c);
        offer(&positions[at + bytes], u->unknown + before, at, u->unk);
    }
    return GQAC_OK;
}

/* ---- ids ----------------------------------------------------------------------- */

/* A run that was skipped: it is a token as a whole, or the tokens of its bytes, or unknown. */
static gqac_status put_unknown(const unigram *u, const char *run, size_t length, id_list *out,
                               gqac_diag *diag) {
    const int64_t id = words_find(u->words, run, length);
    bool bytes = id < 0 && u->byte_fallback;
    for (size_t i = 0; bytes && i < length; i++)
        bytes = u->bytes[(unsigned char)run[i]] >= 0;
    GQAC_TRY(id_list_reserve(out, bytes ? length : 1, diag));
    if (!bytes)
        out->items[out->n++] = id < 0 ? u->unk : id;
    for (size_t i = length; bytes && i > 0; i--) /* backwards, like the whole word */
        out->items[out->n++] = u->bytes[(unsigned char)run[i - 1]];
    return GQAC_OK;
}

static void reverse(int64_t *items, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        const int64_t item = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = item;
    }
}

gqac_status unigram_encode(const unigram *u, unigram_scratch *s, const char *word, size_t length,
                           id_list *out, gqac_diag *diag) {
    const size_t first = out->n;
    if (!gqac_reserve(&s->positions, length + 1, &s->capacity, sizeof *s->positions))
        return gqac_diag_oom(diag, "a long word");
    GQAC_TRY(find_ways(u, s->positions, word, length, diag));
    for (size_t end = length; end > 0;) {
        size_t begin = s->positions[end].from;
        const int32_t id = s->positions[end].id;
        if (id != u->unk) {
            GQAC_TRY(id_list_reserve(out, 1, diag));
            out->items[out->n++] = id;
        } else {
            while (begin > 0 && s->positions[begin].id == u->unk)
                begin = s->positions[begin].from;
            GQAC_TRY(put_unknown(u, word + begin, end - begin, out, diag));
        }
        end = begin;
    }
    reverse(out->items + first, out->n - first);
    return GQAC_OK;
}
