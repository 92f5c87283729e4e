/* See reasoning.h. */
#include "serve/reasoning.h"

#include <string.h>

#include "serve/memory.h"

static const struct markers {
    const char *begin, *end;
} known[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|channel|>analysis<|message|>", "<|end|>"},
};

/* Sets *n to the number of ids of a marker, of which at most `most` are copied. */
static gqac_status tokenize(const gqac_text *text, const char *marker, size_t most, int64_t *out,
                            size_t *n, gqac_diag *diag) {
    int64_t *ids = NULL;
    GQAC_TRY(gqac_text_tokenize(text, marker, strlen(marker), false, &ids, n, diag));
    memcpy(out, ids, (*n < most ? *n : most) * sizeof *ids);
    gqac_release(ids);
    return GQAC_OK;
}

/* True if an id stands for this text; many words may have the id of what is unknown. */
static bool spells(const gqac_text *text, int64_t id, const char *word) {
    char *bytes = NULL;
    size_t n = 0;
    const bool same = gqac_text_token_bytes(text, id, &bytes, &n, NULL, NULL) == GQAC_OK &&
                      n == strlen(word) && !memcmp(bytes, word, n);
    gqac_release(bytes);
    return same;
}

gqac_status reasoning_find(const gqac_text *text, reasoning *out, gqac_diag *diag) {
    *out = (reasoning){0};
    if (!gqac_text_get_settings(text)->has_tokenizer)
        return GQAC_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t begin = 0, end = 0;
        GQAC_TRY(tokenize(text, known[i].end, 1, &out->end, &end, diag));
        GQAC_TRY(tokenize(text, known[i].begin, REASONING_BEGIN, out->begin, &begin, diag));
        if (end == 1 && spells(text, out->end, known[i].end) && begin <= REASONING_BEGIN) {
            out->n_begin = begin;
            return GQAC_OK;
        }
    }
    return GQAC_OK;
}

static bool is_blank(const gqac_text *text, int64_t id) {
    char *bytes = NULL;
    size_t n = 0;
    gqac_diag diag = {0};
    const gqac_status status = gqac_text_token_bytes(text, id, &bytes, &n, NULL, &diag);
    bool blank = status == GQAC_OK;
    if (status == GQAC_NO_MEMORY)
        memory_note();
    for (size_t i = 0; blank && i < n; i++)
        blank = strchr(" \t\r\n", bytes[i]) != NULL;
    gqac_release(bytes);
    return blank;
}

reasoning_state reasoning_start(const reasoning *r, const gqac_text *text, const int64_t *ids,
                                size_t n) {
    reasoning_state state = {false};
    while (r->n_begin && n && ids[n - 1] != r->begin[r->n_begin - 1] && is_blank(text, ids[n - 1]))
        n--;
    state.inside = r->n_begin && n >= r->n_begin &&
                   !memcmp(ids + n - r->n_begin, r->begin, r->n_begin * sizeof *ids);
    return state;
}

bool reasoning_push(const reasoning *r, reasoning_state *state, int64_t id) {
    if (!r->n_begin)
        return false;
    if (state->inside) {
        state->inside = id != r->end;
        return state->inside;
    }
    state->matched = id == r->begin[state->matched] ? state->matched + 1 : id == r->begin[0];
    state->inside = state->matched == r->n_begin;
    state->matched = state->inside ? 0 : state->matched;
    return false;
}
