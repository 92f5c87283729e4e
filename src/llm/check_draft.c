/* gqac_check_draft: whether two models call the same tokens by the same ids. */
#include <gqac/speculate.h>
#include <stdio.h>
#include <string.h>

#include "base/diag.h"

static const char rule[] = "the draft model has the same tokens as the model";
static const char hint[] = "a smaller model of the same family, or no --draft";

static bool has_tokenizer(const gqac_text *text) {
    return text && gqac_text_get_settings(text)->has_tokenizer;
}

typedef struct token {
    char *bytes; /* NULL: the tokenizer does not have the id */
    size_t length;
    bool special;
} token;

static gqac_status read_token(const gqac_text *text, int64_t id, token *t, gqac_diag *diag) {
    gqac_diag own = {0};
    *t = (token){NULL, 0, false};
    const gqac_status status =
        gqac_text_token_bytes(text, id, &t->bytes, &t->length, &t->special, &own);
    if (status == GQAC_OK || status == GQAC_OUT_OF_RANGE)
        return GQAC_OK;
    if (diag)
        *diag = own;
    return status;
}

static bool same_token(const token *a, const token *b) {
    if (!a->bytes || !b->bytes)
        return !a->bytes && !b->bytes;
    return a->special == b->special && a->length == b->length &&
           !memcmp(a->bytes, b->bytes, a->length);
}

static void describe(const token *t, char *text, size_t size) {
    if (!t->bytes)
        snprintf(text, size, "none");
    else
        snprintf(text, size, "'%.*s'%s", t->length < 40 ? (int)t->length : 40, t->bytes,
                 t->special ? " (special)" : "");
}

static gqac_status compare_token(const gqac_text *text, const gqac_text *draft, int64_t id,
                                 gqac_diag *diag) {
    token a, b;
    char of_a[80], of_b[80];
    GQAC_TRY(read_token(text, id, &a, diag));
    const gqac_status status = read_token(draft, id, &b, diag);
    const bool same = status != GQAC_OK || same_token(&a, &b);
    describe(&a, of_a, sizeof of_a);
    describe(&b, of_b, sizeof of_b);
    gqac_release(a.bytes);
    gqac_release(b.bytes);
    if (same)
        return status;
    gqac_diag_set(
        diag, GQAC_USAGE,
        "the draft model has another tokenizer: token %lld is %s there, and %s in the model",
        (long long)id, of_b, of_a);
    gqac_diag_rule(diag, "%s", rule);
    gqac_diag_hint(diag, "%s", hint);
    return GQAC_USAGE;
}

gqac_status gqac_check_draft(const gqac_program *program, const gqac_text *text,
                             const gqac_program *draft, const gqac_text *draft_text,
                             gqac_diag *diag) {
    const int64_t own = gqac_program_vocabulary(program), other = gqac_program_vocabulary(draft);
    if (gqac_program_is_stateless(draft))
        GQAC_FAIL(diag, GQAC_USAGE,
                  "the draft model is opened for stateless runs, not for sequences");
    if (has_tokenizer(text) && has_tokenizer(draft_text)) {
        for (int64_t id = 0; id < own && id < other; id++)
            GQAC_TRY(compare_token(text, draft_text, id, diag));
        return GQAC_OK;
    }
    if (own == other)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_USAGE,
                  "the draft model has a vocabulary of %lld tokens, but the model one of %lld",
                  (long long)other, (long long)own);
    gqac_diag_rule(diag, "%s", rule);
    gqac_diag_hint(diag, "%s", hint);
    return GQAC_USAGE;
}
