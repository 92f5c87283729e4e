/* Constraints: compiling them for the tokens of a text. */
#include "llm/constraint.h"

#include "base/alloc.h"

/* The tokens of a text are read when they are first needed. */
static gqac_status find_words(const gqac_text *text, const vocabulary **words, gqac_diag *diag) {
    gqac_status status = text_check_tokenizer(text, diag);
    GQAC_TRY(status);
    pthread_mutex_lock(&text->words->lock);
    if (!text->words->vocabulary)
        status = vocabulary_create(text->tokenizer, &text->words->vocabulary, diag);
    *words = text->words->vocabulary;
    pthread_mutex_unlock(&text->words->lock);
    return status;
}

typedef gqac_status compile(const char *text, size_t length, grammar **out, gqac_diag *diag);

static gqac_status create(const gqac_text *text, compile *how, const char *given, size_t length,
                          gqac_constraint **constraint, gqac_diag *diag) {
    const vocabulary *words = NULL;
    grammar *g = NULL;
    GQAC_TRY(find_words(text, &words, diag));
    GQAC_TRY(how(given, length, &g, diag));
    return constraint_create(words, g, constraint, diag);
}

gqac_status gqac_constraint_from_grammar(const gqac_text *text, const char *given, size_t length,
                                         gqac_constraint **constraint, gqac_diag *diag) {
    return create(text, grammar_from_rules, given, length, constraint, diag);
}

gqac_status gqac_constraint_from_schema(const gqac_text *text, const char *schema, size_t length,
                                        gqac_constraint **constraint, gqac_diag *diag) {
    return create(text, grammar_from_schema, schema, length, constraint, diag);
}
