/* Reading a tokenizer.json, and encoding. A text is cut at the added tokens that are not
 * normalised; the parts between them are normalised and cut at the other added tokens; the parts
 * between those are cut into words, which the model encodes one by one. `truncation` and `padding`
 * of the file belong to a training run and are not applied. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer_impl.h"

/* ---- reading -------------------------------------------------------------------- */

/* The type of a model that states none, by its members, as in Hugging Face's tokenizers. */
static span guess_type(const json_t *model) {
    if (json_is_array(json_object_get(model, "vocab")))
        return (span){"Unigram", 7};
    if (json_object_get(model, "merges") || !json_object_get(model, "unk_token"))
        return (span){"BPE", 3};
    const bool pieces = json_object_get(model, "continuing_subword_prefix");
    return pieces ? (span){"WordPiece", 9} : (span){"WordLevel", 9};
}

static gqac_status read_model(const json_t *model, tokenizer *t, gqac_diag *diag) {
    static const char *const types[] = {"BPE", "Unigram"};
    int kind = 0;
    span type = guess_type(model); /* old files do not state it */
    GQAC_TRY(json_may_text(model, "type", &type, diag));
    GQAC_TRY(span_among(type, "tokenizer model", types, 2, &kind, diag));
    t->is_unigram = kind == 1;
    return t->is_unigram ? unigram_read(model, &t->words, &t->unigram, diag)
                         : bpe_read(model, t->arena, &t->words, &t->bpe, diag);
}

static gqac_status read_parts(const json_t *root, tokenizer *t, gqac_diag *diag) {
    static const char *const versions[] = {"1.0"};
    const json_t *model = json_object_get(root, "model");
    span version = {"1.0", 3};
    int index;
    if (!json_is_object(root))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "the file is not a JSON object");
    GQAC_TRY(json_may_text(root, "version", &version, diag));
    GQAC_TRY(span_among(version, "version", versions, 1, &index, diag));
    if (!json_is_object(model))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'model' is missing or not an object");
    const gqac_status status = read_model(model, t, diag);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "model");
    GQAC_TRY(status);
    GQAC_TRY(normalizer_read(json_object_get(root, "normalizer"), t->arena, &t->normalizer, diag));
    GQAC_TRY(splitter_read(json_object_get(root, "pre_tokenizer"), t->arena, &t->splitter, diag));
    GQAC_TRY(decoder_read(json_object_get(root, "decoder"), t->arena, &t->decoder, diag));
    GQAC_TRY(added_read(json_object_get(root, "added_tokens"), t, diag));
    return post_read(json_object_get(root, "post_processor"), t, diag);
}

static gqac_status read_json(const char *json, size_t bytes, tokenizer *t, gqac_diag *diag) {
    json_error_t error;
    if (bytes > TOKENIZER_MAX_FILE)
        GQAC_FAIL(diag, GQAC_LIMIT, "the file has more than %d bytes", TOKENIZER_MAX_FILE);
    json_t *root =
        json_loadb(bytes ? json : "", bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root && gqac_json_no_memory(error.text))
        return gqac_diag_oom(diag, "JSON");
    if (!root) {
        gqac_diag_set(diag, GQAC_INVALID_MODEL, "the file is not valid JSON: %s",
                      gqac_json_reason(json, bytes, error.text));
        gqac_diag_where(diag, "line %d, column %d", error.line, error.column);
        if ((size_t)error.position >= bytes)
            gqac_diag_hint(diag, "the file may be incomplete: copy, download or export it again");
        return GQAC_INVALID_MODEL;
    }
    gqac_status status = read_parts(root, t, diag);
    json_decref(root);
    return status;
}

gqac_status tokenizer_create(const char *json, size_t bytes, tokenizer **out, gqac_diag *diag) {
    *out = NULL;
    gqac_arena *arena = gqac_arena_create(0);
    tokenizer *t = arena ? GQAC_ARENA_NEW(arena, tokenizer) : NULL;
    if (!t) {
        gqac_arena_free(arena);
        return gqac_diag_oom(diag, "a tokenizer");
    }
    t->arena = arena;
    t->raw.matcher.empty = t->normalized.matcher.empty = true;
    const gqac_status status = read_json(json, bytes, t, diag);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "tokenizer.json");
    GQAC_RETURN_MADE(status, t, out, tokenizer_free);
}

void tokenizer_free(tokenizer *t) {
    if (!t)
        return;
    matcher_free(&t->raw.matcher);
    matcher_free(&t->normalized.matcher);
    normalizer_free(&t->normalizer);
    splitter_free(&t->splitter);
    decoder_free(&t->decoder);
    bpe_free(&t->bpe);
    unigram_free(&t->unigram);
    words_free(&t->words);
    gqac_arena_free(t->arena);
}

int64_t tokenizer_size(const tokenizer *t) {
    return (int64_t)t->words.limit;
}

/* ---- encoding -------------------------------------------------------------------- */

typedef struct encoder {
    const tokenizer *t;
    id_list ids;
    bpe_scratch bpe;
    unigram_scratch unigram;
    split_scratch split;
    normal_scratch normal;
    growth growth;
    hit_list raw_hits, hits;
    span text;   /* the text, which is cut at added tokens that are not normalised */
    span normed; /* the normalised text, which is cut at normalised added tokens */
    bool first;  /* normed begins where the whole text does */
    bool plain;  /* special tokens are text */
} encoder;

static gqac_status take_id(encoder *e, int64_t id, gqac_diag *diag) {
    GQAC_TRY(id_list_reserve(&e->ids, 1, diag));
    e->ids.items[e->ids.n++] = id;
    return GQAC_OK;
}

static gqac_status take_normed(void *arg, int64_t id, size_t begin, size_t end, gqac_diag *diag) {
    encoder *e = arg;
    if (id >= 0)
        return take_id(e, id, diag);
    span text = {e->normed.bytes + begin, end - begin};
    GQAC_TRY(
        splitter_run(&e->t->splitter, &e->split, text, &e->growth, e->first && begin == 0, diag));
    const pieces *words = &e->split.a;
    for (size_t i = 0; i < words->n; i++) {
        const piece *p = &words->items[i];
        const char *word = words->text.text + p->begin;
        const size_t bytes = p->end - p->begin;
        GQAC_TRY(e->t->is_unigram
                     ? unigram_encode(&e->t->unigram, &e->unigram, word, bytes, &e->ids, diag)
                     : bpe_encode(&e->t->bpe, &e->bpe, word, bytes, &e->ids, diag));
    }
    return GQAC_OK;
}

static gqac_status take_raw(void *arg, int64_t id, size_t begin, size_t end, gqac_diag *diag) {
    encoder *e = arg;
    if (id >= 0)
        return take_id(e, id, diag);
    e->first = begin == 0;
    e->normed = (span){e->text.bytes + begin, end - begin};
    if (e->t->normalizer.n) {
        GQAC_TRY(
            normalizer_run(&e->t->normalizer, &e->normal, e->normed, &e->growth, &e->first, diag));
        e->normed = (span){e->normal.text.text, e->normal.text.length};
    }
    return added_cut(&e->t->normalized, e->normed, e->plain, &e->hits, take_normed, e, diag);
}

static gqac_status check_text(const char *text, size_t length, gqac_diag *diag) {
    if (length > TOKENIZER_MAX_TEXT)
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "the text has %zu bytes, more than %d", length,
                  TOKENIZER_MAX_TEXT);
    for (size_t i = 0; i < length;) {
        size_t n = gqac_utf8_char(text + i, length - i);
        if (n == 0) {
            gqac_diag_set(diag, GQAC_INVALID_INPUT,
                          "the text is not UTF-8: byte 0x%02x at offset %zu",
                          (unsigned char)text[i], i);
            gqac_diag_hint(diag, "convert it to UTF-8, e.g. with iconv");
            return GQAC_INVALID_INPUT;
        }
        i += n;
    }
    return GQAC_OK;
}

/* Adds the ids of the post-processor. */
static gqac_status add_special(const tokenizer *t, id_list *ids, gqac_diag *diag) {
    id_list all = {0};
    for (size_t i = 0; i < t->n_post; i++) {
        size_t count = t->post[i] < 0 ? ids->n : 1;
        gqac_status status = id_list_reserve(&all, count, diag);
        if (status != GQAC_OK) {
            gqac_free(all.items);
            return status;
        }
        if (count)
            memcpy(all.items + all.n, t->post[i] < 0 ? ids->items : &t->post[i],
                   count * sizeof *all.items);
        all.n += count;
    }
    gqac_free(ids->items);
    *ids = all;
    return GQAC_OK;
}

static void encoder_free(encoder *e) {
    bpe_scratch_free(&e->bpe);
    gqac_free(e->unigram.positions);
    split_scratch_free(&e->split);
    normal_scratch_free(&e->normal);
    gqac_free(e->raw_hits.items);
    gqac_free(e->hits.items);
}

static gqac_status encode(encoder *e, unsigned how, gqac_diag *diag) {
    GQAC_TRY(id_list_reserve(&e->ids, e->text.length / 4 + 1, diag));
    GQAC_TRY(added_cut(&e->t->raw, e->text, e->plain, &e->raw_hits, take_raw, e, diag));
    if (how & TOKENIZER_SPECIAL)
        GQAC_TRY(add_special(e->t, &e->ids, diag));
    return id_list_reserve(&e->ids, 1, diag); /* never NULL, also when there are none */
}

gqac_status tokenizer_encode(const tokenizer *t, const char *text, size_t length, unsigned how,
                             int64_t **ids, size_t *n, gqac_diag *diag) {
    *ids = NULL;
    GQAC_TRY(check_text(text, length, diag));
    encoder e = {.t = t, .text = {text, length}, .plain = how & TOKENIZER_PLAIN};
    growth_begin(&e.growth);
    growth_admit(&e.growth, length);
    const gqac_status status = encode(&e, how, diag);
    encoder_free(&e);
    if (status != GQAC_OK) {
        gqac_diag_where(diag, "tokenizer.json");
        gqac_free(e.ids.items);
        return status;
    }
    *ids = e.ids.items;
    *n = e.ids.n;
    return GQAC_OK;
}
