/* Constraints: compiling them for the tokens of a text. */
#include "llm/constraint.h"

#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "llm/calls.h"

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

/* ---- calls --------------------------------------------------------------- */

/* The length of the marker at `text` that is a special token; 0: there is none. */
static size_t special_marker(const call_syntax *s, const vocabulary *words, const char *text) {
    char token[80];
    for (int i = 0; i < CALL_MARKERS && s->markers[i]; i++) {
        const size_t n = strlen(s->markers[i]);
        if (strncmp(text, s->markers[i], n) != 0 || n + 2 > sizeof token)
            continue;
        token[0] = token[n + 1] = (char)VOCABULARY_SPECIAL;
        memcpy(token + 1, text, n);
        if (vocabulary_has(words, token, n + 2))
            return n;
    }
    return 0;
}

/* A literal of a syntax, in which markers that are special tokens are written as such. */
static const char *mark_tokens(const call_syntax *s, const vocabulary *words, const char *text,
                               gqac_arena *memory) {
    char *out = text ? gqac_arena_alloc(memory, 3 * strlen(text) + 1) : NULL;
    size_t n = 0;
    if (!out)
        return NULL;
    while (*text) {
        const size_t length = special_marker(s, words, text);
        if (length)
            out[n++] = (char)VOCABULARY_SPECIAL;
        for (size_t i = 0; i < (length ? length : 1); i++)
            out[n++] = *text++;
        if (length)
            out[n++] = (char)VOCABULARY_SPECIAL;
    }
    out[n] = '\0';
    return out;
}

/* The literals of a syntax for a tokenizer; false: no memory. */
static bool make_form(const call_syntax *s, const vocabulary *words, gqac_arena *memory,
                      grammar_calls *out) {
    *out = s->form;
    const char **texts = (const char **)(void *)out;
    for (size_t i = 0; i < GRAMMAR_TEXTS; i++) {
        const char *given = texts[i];
        texts[i] = mark_tokens(s, words, given, memory);
        if (given && !texts[i])
            return false;
    }
    return true;
}

static gqac_status check_syntax(const gqac_text *text, gqac_diag *diag) {
    if (text->calls)
        return GQAC_OK;
    if (!text->template)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "the model has no usable chat template, so nothing tells how it calls tools");
    gqac_diag_set(diag, GQAC_UNSUPPORTED,
                  "the chat template writes calls of tools in no syntax that gqac knows");
    gqac_diag_rule(diag, "docs/serving.md lists the syntaxes");
    return GQAC_UNSUPPORTED;
}

/* Makes the grammar of calls. */
static gqac_status compile_tools(const gqac_text *text, const vocabulary *words, const char *tools,
                                 size_t length, const grammar_choice *choice, grammar **out,
                                 gqac_diag *diag) {
    grammar_calls form;
    gqac_arena *memory = gqac_arena_create(0);
    const gqac_status status = memory && make_form(text->calls, words, memory, &form)
                                   ? grammar_from_tools(tools, length, &form, choice, out, diag)
                                   : gqac_diag_oom(diag, "a constraint");
    gqac_arena_free(memory);
    return status;
}

gqac_status gqac_constraint_from_tools(const gqac_text *text, const char *tools, size_t length,
                                       const gqac_tool_choice *choice, gqac_constraint **constraint,
                                       gqac_diag *diag) {
    gqac_tool_choice own;
    const vocabulary *words = NULL;
    grammar *g = NULL;
    gqac_tool_choice_init(&own);
    GQAC_TRY(gqac_sized_take(&own, sizeof own, choice, "gqac_tool_choice", diag));
    const grammar_choice wanted = {own.name, own.parallel, own.optional};
    if (!grammar_tools_limit(tools, length, &wanted)) {
        *constraint = NULL;
        return GQAC_OK;
    }
    GQAC_TRY(check_syntax(text, diag));
    GQAC_TRY(find_words(text, &words, diag));
    GQAC_TRY(compile_tools(text, words, tools, length, &wanted, &g, diag));
    return constraint_create(words, g, constraint, diag);
}
