/* Reading decoders: each kind in the file becomes one step of tokenizer_decode.c. Other kinds are
 * refused by name. */
#include <string.h>

#include "text/tokenizer/tokenizer_impl.h"

typedef struct decode_reader {
    gqac_arena *arena;
    decoder *out;
} decode_reader;

/* Knuth, Morris and Pratt's table: fall[q] bytes of the text still match after q + 1 bytes did and
 * the next does not. */
static gqac_status make_fall(decode_step *step, gqac_arena *arena, gqac_diag *diag) {
    uint32_t *fall = GQAC_ARENA_ARRAY(arena, uint32_t, step->find.length);
    if (!fall)
        return gqac_diag_oom(diag, "a decoder");
    const char *find = step->find.bytes;
    for (uint32_t i = 1, q = 0; i < step->find.length; i++) {
        while (q > 0 && find[i] != find[q])
            q = fall[q - 1];
        q += find[i] == find[q];
        fall[i] = q;
    }
    step->fall = fall;
    return GQAC_OK;
}

static gqac_status read_replace(const json_t *part, decode_reader *reader, decode_step *step,
                                gqac_diag *diag) {
    gqac_arena *arena = reader->arena;
    step->kind = DECODE_REPLACE;
    GQAC_TRY(json_need_text(part, "content", &step->content, diag));
    GQAC_TRY(span_keep(arena, &step->content, diag));
    GQAC_TRY(json_need_pattern(part, arena, &step->find, &step->regex, diag));
    return step->regex ? GQAC_OK : make_fall(step, arena, diag);
}

static gqac_status read_strip(const json_t *part, gqac_arena *arena, decode_step *step,
                              gqac_diag *diag) {
    step->kind = DECODE_STRIP;
    GQAC_TRY(json_need_text(part, "content", &step->find, diag));
    if (step->find.length == 0 ||
        gqac_utf8_char(step->find.bytes, step->find.length) != step->find.length)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'content' is not one character");
    GQAC_TRY(span_keep(arena, &step->find, diag));
    GQAC_TRY(json_to_index(json_object_get(part, "start"), "start", TOKENIZER_MAX_TEXT,
                           &step->start, diag));
    return json_to_index(json_object_get(part, "stop"), "stop", TOKENIZER_MAX_TEXT, &step->stop,
                         diag);
}

static gqac_status read_step(void *arg, const json_t *part, span type, gqac_diag *diag) {
    static const char *const types[] = {"ByteLevel", "Metaspace", "ByteFallback",
                                        "Fuse",      "Strip",     "Replace"};
    static const decode_kind kinds[] = {DECODE_BYTE_LEVEL, DECODE_METASPACE, DECODE_BYTE_FALLBACK,
                                        DECODE_FUSE,       DECODE_STRIP,     DECODE_REPLACE};
    decode_reader *reader = arg;
    split_prepend prepend;
    int index;
    GQAC_TRY(span_among(type, "decoder", types, 6, &index, diag));
    if (reader->out->n == TOKENIZER_MAX_STEPS)
        GQAC_FAIL(diag, GQAC_LIMIT, "there are more than %d decoders", TOKENIZER_MAX_STEPS);
    decode_step *step = &reader->out->steps[reader->out->n++];
    *step = (decode_step){.kind = kinds[index]};
    switch (step->kind) {
    case DECODE_METASPACE:
        GQAC_TRY(metaspace_read(part, reader->arena, &step->find, &prepend, diag));
        step->keep_first = prepend == PREPEND_NEVER;
        return GQAC_OK;
    case DECODE_STRIP:
        return read_strip(part, reader->arena, step, diag);
    case DECODE_REPLACE:
        return read_replace(part, reader, step, diag);
    default:
        return GQAC_OK;
    }
}

gqac_status decoder_read(const json_t *value, gqac_arena *arena, decoder *out, gqac_diag *diag) {
    if (!value || json_is_null(value)) {
        out->steps[out->n++] = (decode_step){.kind = DECODE_JOIN};
        return GQAC_OK;
    }
    decode_reader reader = {arena, out};
    return json_each_part(value, "decoder", "decoders", read_step, &reader, diag);
}

void decoder_free(decoder *d) {
    for (int i = 0; i < d->n; i++)
        pattern_free(d->steps[i].regex);
}
