/* Post-processors: ids that are added around those of a text. Only the part for single texts is
 * read, not that for pairs of texts. Offsets, which some post-processors change, do not exist
 * here. */
#include <string.h>

#include "text/tokenizer/tokenizer_impl.h"

enum { MOST_IDS = 1 << 20, MOST_COPIES = 16 };

typedef struct post_reader {
    tokenizer *t;
    bool any;
} post_reader;

static gqac_status put(tokenizer *t, size_t capacity, int64_t id, gqac_diag *diag) {
    if (t->n_post == capacity)
        GQAC_FAIL(diag, GQAC_INTERNAL, "a template grew");
    const words *w = &t->words;
    if (id >= 0 && ((uint64_t)id >= w->limit || !w->tokens[id].flags))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "the post-processor adds id %lld, which no token has",
                  (long long)id);
    t->post[t->n_post++] = id;
    return GQAC_OK;
}

static gqac_status allocate(tokenizer *t, size_t n, gqac_diag *diag) {
    t->post = GQAC_ARENA_ARRAY(t->arena, int64_t, n ? n : 1);
    t->n_post = 0;
    return t->post ? GQAC_OK : gqac_diag_oom(diag, "a post-processor");
}

/* ---- ["</s>", 2] before and after ------------------------------------------- */

static gqac_status put_pair(tokenizer *t, const json_t *part, const char *key, gqac_diag *diag) {
    const json_t *pair = json_object_get(part, key);
    int64_t id;
    if (json_array_size(pair) != 2)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'%s' is not a pair of a string and an id", key);
    GQAC_TRY(json_to_index(json_array_get(pair, 1), key, TOKEN_MAX_ID, &id, diag));
    return put(t, 3, id, diag);
}

static gqac_status read_bert(tokenizer *t, const json_t *part, gqac_diag *diag) {
    GQAC_TRY(allocate(t, 3, diag));
    GQAC_TRY(put_pair(t, part, "cls", diag));
    GQAC_TRY(put(t, 3, -1, diag));
    return put_pair(t, part, "sep", diag);
}

/* ---- TemplateProcessing -------------------------------------------------------- */

/* The ids that a SpecialToken of the template stands for. */
static gqac_status find_ids(const json_t *part, const json_t *piece, const json_t **ids,
                            gqac_diag *diag) {
    span name;
    GQAC_TRY(json_need_text(piece, "id", &name, diag));
    const json_t *tokens = json_object_get(part, "special_tokens");
    *ids = json_object_get(json_object_get(tokens, name.bytes), "ids");
    if (!json_is_array(*ids))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'special_tokens' has no ids for '%s'", name.bytes);
    return GQAC_OK;
}

static gqac_status is_sequence(const json_t *piece, bool *sequence, gqac_diag *diag) {
    const json_t *one = json_object_get(piece, "Sequence");
    *sequence = one != NULL;
    if (!one && !json_object_get(piece, "SpecialToken"))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL,
                  "a part of 'single' is neither a Sequence nor a SpecialToken");
    if (!one)
        return GQAC_OK;
    span name;
    GQAC_TRY(json_need_text(one, "id", &name, diag));
    if (!span_is(name, "A"))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'single' has the sequence '%s' in place of 'A'",
                  name.bytes);
    return GQAC_OK;
}

static gqac_status count_or_put(tokenizer *t, const json_t *part, size_t capacity, size_t *count,
                                gqac_diag *diag) {
    const json_t *single = json_object_get(part, "single");
    if (!json_is_array(single))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'single' is missing or not an array");
    size_t copies = 0;
    *count = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i), *ids = NULL;
        bool sequence;
        GQAC_TRY(is_sequence(piece, &sequence, diag));
        if (!sequence)
            GQAC_TRY(find_ids(part, json_object_get(piece, "SpecialToken"), &ids, diag));
        *count += sequence ? 1 : json_array_size(ids);
        copies += sequence;
        if (*count > MOST_IDS || copies > MOST_COPIES)
            GQAC_FAIL(diag, GQAC_LIMIT,
                      "'single' adds more than %d ids, or contains the text %d times", MOST_IDS,
                      MOST_COPIES + 1);
        if (sequence && capacity)
            GQAC_TRY(put(t, capacity, -1, diag));
        for (size_t k = 0; k < json_array_size(ids); k++) {
            int64_t id;
            GQAC_TRY(json_to_index(json_array_get(ids, k), "ids", TOKEN_MAX_ID, &id, diag));
            if (capacity)
                GQAC_TRY(put(t, capacity, id, diag));
        }
    }
    return GQAC_OK;
}

static gqac_status read_template(tokenizer *t, const json_t *part, gqac_diag *diag) {
    size_t count;
    GQAC_TRY(count_or_put(t, part, 0, &count, diag));
    GQAC_TRY(allocate(t, count, diag));
    return count_or_put(t, part, count, &count, diag);
}

/* ---- which ------------------------------------------------------------------------ */

static gqac_status read_part(void *arg, const json_t *part, span type, gqac_diag *diag) {
    static const char *const types[] = {"ByteLevel", "TemplateProcessing", "BertProcessing",
                                        "RobertaProcessing"};
    post_reader *reader = arg;
    int kind;
    GQAC_TRY(span_among(type, "post-processor", types, 4, &kind, diag));
    if (kind == 0)
        return GQAC_OK;
    if (reader->any)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "two post-processors that add ids are not supported");
    reader->any = true;
    return kind == 1 ? read_template(reader->t, part, diag) : read_bert(reader->t, part, diag);
}

gqac_status post_read(const json_t *value, tokenizer *t, gqac_diag *diag) {
    post_reader reader = {t, false};
    GQAC_TRY(allocate(t, 1, diag));
    t->post[t->n_post++] = -1;
    return json_each_part(value, "post_processor", "processors", read_part, &reader, diag);
}
