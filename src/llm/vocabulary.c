/* See vocabulary.h. */
#include "llm/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MOST_TOKEN = 4096 };

typedef struct word {
    const char *bytes;
    size_t length;
    int64_t id;
} word;

/* ---- reading ------------------------------------------------------------- */

/* Appends the bytes of a token; one that the tokenizer does not have has none. */
static gqac_status read_token(const tokenizer *t, int64_t id, gqac_str *all, gqac_diag *diag) {
    static const char mark[] = {(char)VOCABULARY_SPECIAL};
    gqac_diag own = {0};
    char *bytes = NULL;
    size_t length = 0;
    bool special = false;
    const gqac_status status = tokenizer_bytes(t, id, &bytes, &length, &special, &own);
    if (status == GQAC_OK && length + 2 <= MOST_TOKEN && !memchr(bytes, *mark, length)) {
        gqac_str_append_n(all, mark, special);
        gqac_str_append_n(all, bytes, length);
        gqac_str_append_n(all, mark, special);
    }
    gqac_free(bytes);
    if (status == GQAC_OK || status == GQAC_OUT_OF_RANGE)
        return all->failed ? gqac_diag_oom(diag, "the tokens of a vocabulary") : GQAC_OK;
    if (diag)
        *diag = own;
    return status;
}

static gqac_status read_tokens(vocabulary *v, const tokenizer *t, gqac_diag *diag) {
    gqac_str all = {0};
    gqac_status status = GQAC_OK;
    v->n = tokenizer_size(t);
    v->offsets = gqac_calloc((size_t)v->n + 1, sizeof *v->offsets);
    if (!v->offsets)
        return gqac_diag_oom(diag, "the tokens of a vocabulary");
    for (int64_t id = 0; id < v->n && status == GQAC_OK; id++) {
        status = read_token(t, id, &all, diag);
        v->offsets[id + 1] = all.length;
        v->n_ids += all.length > v->offsets[id];
    }
    v->bytes = all.text;
    return status;
}

/* Some decoders drop a space at the beginning of a text. */
static gqac_status find_drop(vocabulary *v, const tokenizer *t, gqac_diag *diag) {
    for (int64_t id = 0; id < v->n; id++) {
        size_t length = 0, shown = 0;
        const char *bytes = vocabulary_bytes(v, id, &length);
        char *text = NULL;
        if (!bytes || length < 2 || bytes[0] != ' ' || bytes[1] < '!' || bytes[1] > '~')
            continue;
        GQAC_TRY(tokenizer_decode(t, &id, 1, false, &text, &shown, diag));
        v->drops_space = shown + 1 == length && !memcmp(text, bytes + 1, shown);
        gqac_free(text);
        return GQAC_OK;
    }
    return GQAC_OK;
}

const char *vocabulary_bytes(const vocabulary *v, int64_t id, size_t *length) {
    *length = id >= 0 && id < v->n ? v->offsets[id + 1] - v->offsets[id] : 0;
    return *length ? v->bytes + v->offsets[id] : NULL;
}

/* ---- the trie ------------------------------------------------------------ */

static int compare(const void *a, const void *b) {
    const word *x = a, *y = b;
    const size_t both = x->length < y->length ? x->length : y->length;
    const int order = memcmp(x->bytes, y->bytes, both);
    if (order)
        return order;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static size_t common(const word *a, const word *b) {
    size_t n = 0;
    while (n < a->length && n < b->length && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

/* Words in order become nodes: each adds those that the one before does not have. */
static void make_nodes(vocabulary *v, const word *words) {
    uint32_t open[MOST_TOKEN]; /* the nodes of the last word */
    size_t depth = 0;
    for (size_t k = 0; k < v->n_ids; k++) {
        const size_t same = k ? common(&words[k - 1], &words[k]) : 0;
        while (depth > same)
            v->nodes[open[--depth]].skip = v->n_nodes;
        for (; depth < words[k].length; depth++) {
            open[depth] = v->n_nodes;
            v->nodes[v->n_nodes++] = (trie_node){.first = (uint32_t)k,
                                                 .depth = (uint16_t)depth,
                                                 .byte = (uint8_t)words[k].bytes[depth]};
        }
        v->depth = depth > v->depth ? (uint32_t)depth : v->depth;
        v->ids[k] = words[k].id;
    }
    while (depth)
        v->nodes[open[--depth]].skip = v->n_nodes;
    v->nodes[v->n_nodes] = (trie_node){.skip = v->n_nodes, .first = (uint32_t)v->n_ids};
}

static gqac_status make_trie(vocabulary *v, gqac_diag *diag) {
    const size_t most = v->offsets[v->n] + 1;
    word *words = gqac_alloc((v->n_ids + 1) * sizeof *words);
    v->ids = gqac_alloc((v->n_ids + 1) * sizeof *v->ids);
    v->nodes = most < UINT32_MAX ? gqac_alloc(most * sizeof *v->nodes) : NULL;
    if (!words || !v->ids || !v->nodes) {
        gqac_free(words);
        return gqac_diag_oom(diag, "the tokens of a vocabulary");
    }
    size_t n = 0;
    for (int64_t id = 0; id < v->n; id++) {
        size_t length = 0;
        const char *bytes = vocabulary_bytes(v, id, &length);
        if (bytes)
            words[n++] = (word){bytes, length, id};
    }
    qsort(words, n, sizeof *words, compare);
    make_nodes(v, words);
    gqac_free(words);
    trie_node *fit = gqac_realloc(v->nodes, ((size_t)v->n_nodes + 1) * sizeof *v->nodes);
    v->nodes = fit ? fit : v->nodes;
    return GQAC_OK;
}

gqac_status vocabulary_create(const tokenizer *t, vocabulary **out, gqac_diag *diag) {
    vocabulary *v = gqac_calloc(1, sizeof *v);
    if (!v)
        return gqac_diag_oom(diag, "the tokens of a vocabulary");
    gqac_status status = read_tokens(v, t, diag);
    if (status == GQAC_OK)
        status = find_drop(v, t, diag);
    if (status == GQAC_OK)
        status = make_trie(v, diag);
    GQAC_RETURN_MADE(status, v, out, vocabulary_free);
}

void vocabulary_free(vocabulary *v) {
    if (!v)
        return;
    gqac_free(v->nodes);
    gqac_free(v->ids);
    gqac_free(v->bytes);
    gqac_free(v->offsets);
    gqac_free(v);
}

bool vocabulary_has(const vocabulary *v, const char *bytes, size_t length) {
    const word wanted = {bytes, length, -1};
    size_t low = 0, high = v->n_ids;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        word found = {.id = v->ids[middle]};
        found.bytes = vocabulary_bytes(v, found.id, &found.length);
        if (compare(&found, &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    size_t own = 0;
    const char *found = low < v->n_ids ? vocabulary_bytes(v, v->ids[low], &own) : NULL;
    return found && own == length && !memcmp(found, bytes, length);
}

/* ---- tokens that an automaton accepts ------------------------------------- */

gqac_status vocabulary_mark(const vocabulary *v, automaton *a, uint32_t state, bool first,
                            uint64_t *bits, gqac_diag *diag) {
    uint32_t after[MOST_TOKEN + 1]; /* the state after each byte of the token */
    after[0] = state;
    for (uint32_t i = 0; i < v->n_nodes;) {
        const trie_node *node = &v->nodes[i];
        const bool dropped = first && v->drops_space && !node->depth && node->byte == ' ';
        uint32_t next = after[node->depth];
#ifdef GQAC_CONTROL_PARTIAL_CHARACTER /* negative control: within a character, all bytes are fine  \
                                       */
        if (!dropped && (node->byte & 0xc0) != 0x80)
#else
        if (!dropped)
#endif
            GQAC_TRY(automaton_next(a, next, node->byte, &next, diag));
        if (next == AUTOMATON_DEAD) {
            i = node->skip;
            continue;
        }
        after[node->depth + 1] = next;
        for (uint32_t k = node->first; k < node[1].first && !dropped; k++)
            bits[v->ids[k] / 64] |= UINT64_C(1) << v->ids[k] % 64;
        i++;
    }
    return GQAC_OK;
}

gqac_status vocabulary_push(const vocabulary *v, automaton *a, uint32_t *state, bool first,
                            int64_t id, gqac_diag *diag) {
    size_t length = 0;
    const char *bytes = vocabulary_bytes(v, id, &length);
    uint32_t now = bytes ? *state : AUTOMATON_DEAD;
    const size_t from = first && v->drops_space && length && bytes[0] == ' ';
    for (size_t i = from; i < length && now != AUTOMATON_DEAD; i++)
        GQAC_TRY(automaton_next(a, now, (uint8_t)bytes[i], &now, diag));
    *state = from == length ? AUTOMATON_DEAD : now;
    return GQAC_OK;
}
