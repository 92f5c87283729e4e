/* Reading pre-tokenizers: each kind in the file becomes one to three steps of tokenizer_split.c.
 * Other kinds are refused by name. */

#include "text/tokenizer/tokenizer_impl.h"

/* The expression of ByteLevel with use_regex: contractions, words, numbers and other runs,
 * each with one space before it, and white space without its last character. */
static const char byte_level_words[] =
    "'(?:[stdm]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct split_reader {
    gqac_arena *arena;
    splitter *out;
} split_reader;

static gqac_status add_step(split_reader *reader, split_kind kind, split_behaviour behaviour,
                            split_step **step, gqac_diag *diag) {
    if (reader->out->n == TOKENIZER_MAX_STEPS)
        GQAC_FAIL(diag, GQAC_LIMIT, "there are more than %d pre-tokenizers", TOKENIZER_MAX_STEPS);
    *step = &reader->out->steps[reader->out->n++];
    **step = (split_step){.kind = kind, .behaviour = behaviour};
    return GQAC_OK;
}

static gqac_status read_behaviour(const json_t *part, split_behaviour *out, gqac_diag *diag) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    span name;
    int index;
    GQAC_TRY(json_need_text(part, "behavior", &name, diag));
    GQAC_TRY(span_among(name, "behavior", names, 5, &index, diag));
    *out = (split_behaviour)index;
    return GQAC_OK;
}

static gqac_status read_byte_level(const json_t *part, split_reader *reader, gqac_diag *diag) {
    bool prefix = true, regex = true;
    split_step *step = NULL;
    GQAC_TRY(json_may_bool(part, "add_prefix_space", &prefix, diag));
    GQAC_TRY(json_may_bool(part, "use_regex", &regex, diag));
    if (prefix)
        GQAC_TRY(add_step(reader, SPLIT_PREFIX, SPLIT_ISOLATED, &step, diag));
    if (regex) {
        GQAC_TRY(add_step(reader, SPLIT_REGEX, SPLIT_ISOLATED, &step, diag));
        GQAC_TRY(pattern_create(byte_level_words, sizeof byte_level_words - 1, &step->regex, diag));
    }
    return add_step(reader, SPLIT_BYTES, SPLIT_ISOLATED, &step, diag);
}

static gqac_status read_prepend(const json_t *part, split_prepend *out, gqac_diag *diag) {
    static const char *const names[] = {"always", "first", "never"};
    bool prefix = true; /* old files have add_prefix_space instead */
    span name = {0};
    int index;
    GQAC_TRY(json_may_bool(part, "add_prefix_space", &prefix, diag));
    GQAC_TRY(json_may_text(part, "prepend_scheme", &name, diag));
    *out = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (!name.bytes)
        return GQAC_OK;
    GQAC_TRY(span_among(name, "prepend_scheme", names, 3, &index, diag));
    *out = (split_prepend)index;
    if (!prefix && *out != PREPEND_NEVER)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "add_prefix_space is false, but prepend_scheme is '%s'",
                  name.bytes);
    return GQAC_OK;
}

gqac_status metaspace_read(const json_t *part, gqac_arena *arena, span *replacement,
                           split_prepend *prepend, gqac_diag *diag) {
    GQAC_TRY(json_need_text(part, "replacement", replacement, diag));
    if (replacement->length == 0 ||
        gqac_utf8_char(replacement->bytes, replacement->length) != replacement->length)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'replacement' is not one character");
    GQAC_TRY(span_keep(arena, replacement, diag));
    return read_prepend(part, prepend, diag);
}

static gqac_status read_metaspace(const json_t *part, split_reader *reader, gqac_diag *diag) {
    split_step *step = NULL;
    bool split = true;
    GQAC_TRY(add_step(reader, SPLIT_METASPACE, SPLIT_ISOLATED, &step, diag));
    GQAC_TRY(metaspace_read(part, reader->arena, &step->literal, &step->prepend, diag));
    GQAC_TRY(json_may_bool(part, "split", &split, diag));
    if (!split)
        return GQAC_OK;
    span literal = step->literal;
    GQAC_TRY(add_step(reader, SPLIT_TEXT, SPLIT_MERGED_WITH_NEXT, &step, diag));
    step->literal = literal;
    return GQAC_OK;
}

static gqac_status read_split(const json_t *part, split_reader *reader, gqac_diag *diag) {
    split_step *step = NULL;
    GQAC_TRY(add_step(reader, SPLIT_REGEX, SPLIT_ISOLATED, &step, diag));
    GQAC_TRY(json_need_pattern(part, reader->arena, &step->literal, &step->regex, diag));
    if (!step->regex)
        step->kind = SPLIT_TEXT;
    GQAC_TRY(json_may_bool(part, "invert", &step->invert, diag));
    return read_behaviour(part, &step->behaviour, diag);
}

static gqac_status read_digits(const json_t *part, split_reader *reader, gqac_diag *diag) {
    split_step *step = NULL;
    bool individual = false;
    GQAC_TRY(json_may_bool(part, "individual_digits", &individual, diag));
    return add_step(reader, SPLIT_DIGIT, individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, &step,
                    diag);
}

static gqac_status read_step(void *arg, const json_t *part, span type, gqac_diag *diag) {
    static const char *const types[] = {"ByteLevel",  "Metaspace",       "Split",      "Digits",
                                        "Whitespace", "WhitespaceSplit", "Punctuation"};
    split_reader *reader = arg;
    split_step *step = NULL;
    int kind;
    GQAC_TRY(span_among(type, "pre-tokenizer", types, 7, &kind, diag));
    switch (kind) {
    case 0:
        return read_byte_level(part, reader, diag);
    case 1:
        return read_metaspace(part, reader, diag);
    case 2:
        return read_split(part, reader, diag);
    case 3:
        return read_digits(part, reader, diag);
    case 4:
        GQAC_TRY(add_step(reader, SPLIT_WORD, SPLIT_REMOVED, &step, diag));
        step->invert = true; /* what is between words is removed */
        return GQAC_OK;
    case 5:
        return add_step(reader, SPLIT_SPACE, SPLIT_REMOVED, &step, diag);
    default:
        GQAC_TRY(add_step(reader, SPLIT_PUNCTUATION, SPLIT_ISOLATED, &step, diag));
        return json_object_get(part, "behavior") ? read_behaviour(part, &step->behaviour, diag)
                                                 : GQAC_OK;
    }
}

gqac_status splitter_read(const json_t *value, gqac_arena *arena, splitter *out, gqac_diag *diag) {
    split_reader reader = {arena, out};
    return json_each_part(value, "pre_tokenizer", "pretokenizers", read_step, &reader, diag);
}

void splitter_free(splitter *s) {
    for (int i = 0; i < s->n; i++)
        pattern_free(s->steps[i].regex);
}
