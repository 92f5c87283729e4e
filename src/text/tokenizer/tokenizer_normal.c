/* Normalizers, before a text is cut into words: a list of steps, each from one buffer to the other.
 * Unknown normalizers are refused by name. */
#include <string.h>

#include "text/tokenizer/tokenizer_impl.h"

/* ---- reading ------------------------------------------------------------------- */

typedef struct normal_reader {
    gqac_arena *arena;
    normalizer *out;
} normal_reader;

static gqac_status read_replace(const json_t *part, normal_reader *reader, normal_step *step,
                                gqac_diag *diag) {
    GQAC_TRY(json_need_text(part, "content", &step->content, diag));
    GQAC_TRY(span_keep(reader->arena, &step->content, diag));
    return json_need_pattern(part, reader->arena, &step->find, &step->regex, diag);
}

static gqac_status read_step(void *arg, const json_t *part, span type, gqac_diag *diag) {
    static const char *const types[] = {"NFC",         "NFD",          "NFKC",    "NFKD",
                                        "Strip",       "Replace",      "Prepend", "Lowercase",
                                        "Precompiled", "StripAccents", "Nmt"};
    enum { STRIP = 4, REPLACE, PREPEND, LOWERCASE, PRECOMPILED, ACCENTS, NMT };
    normal_reader *reader = arg;
    int kind;
    GQAC_TRY(span_among(type, "normalizer", types, 11, &kind, diag));
    if (reader->out->n == TOKENIZER_MAX_STEPS)
        GQAC_FAIL(diag, GQAC_LIMIT, "there are more than %d normalizers", TOKENIZER_MAX_STEPS);
    normal_step *step = &reader->out->steps[reader->out->n++];
    *step = (normal_step){.kind = NORMAL_FORM, .left = true, .right = true};
    switch (kind) {
    case STRIP:
        step->kind = NORMAL_STRIP;
        GQAC_TRY(json_may_bool(part, "strip_left", &step->left, diag));
        return json_may_bool(part, "strip_right", &step->right, diag);
    case REPLACE:
        step->kind = NORMAL_REPLACE;
        return read_replace(part, reader, step, diag);
    case PREPEND:
        step->kind = NORMAL_PREPEND;
        GQAC_TRY(json_need_text(part, "prepend", &step->content, diag));
        return span_keep(reader->arena, &step->content, diag);
    case LOWERCASE:
        step->kind = NORMAL_LOWER;
        return GQAC_OK;
    case ACCENTS:
        step->kind = NORMAL_ACCENTS; /* of a decomposed text: its marks */
        unicode_category("m", 1, &step->dropped);
        return GQAC_OK;
    case NMT:
        step->kind = NORMAL_NMT;
        return GQAC_OK;
    case PRECOMPILED:
        step->kind = NORMAL_CHARSMAP;
        return charsmap_read(part, reader->arena, &step->map, diag);
    default:
        step->form = kind == 0   ? UNICODE_NFC
                     : kind == 1 ? UNICODE_NFD
                     : kind == 2 ? UNICODE_NFKC
                                 : UNICODE_NFKD;
        return GQAC_OK;
    }
}

gqac_status normalizer_read(const json_t *value, gqac_arena *arena, normalizer *out,
                            gqac_diag *diag) {
    normal_reader reader = {arena, out};
    return json_each_part(value, "normalizer", "normalizers", read_step, &reader, diag);
}

void normalizer_free(normalizer *n) {
    for (int i = 0; i < n->n; i++)
        pattern_free(n->steps[i].regex);
}

/* ---- growth ------------------------------------------------------------------------ */

void growth_begin(growth *g) {
    g->left = TOKENIZER_BASE_GROWTH;
}

void growth_admit(growth *g, size_t bytes) {
    size_t most = (TOKENIZER_MAX_GROWN - g->left) / (TOKENIZER_MAX_GROWTH - 1);
    g->left = bytes < most ? g->left + (TOKENIZER_MAX_GROWTH - 1) * bytes : TOKENIZER_MAX_GROWN;
}

gqac_status text_check(const gqac_str *text, size_t most, gqac_diag *diag) {
    if (text->failed)
        return gqac_diag_oom(diag, "a text");
    if (text->length <= most)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_LIMIT, "the text becomes longer than %zu bytes", most);
    gqac_diag_rule(diag,
                   "the steps of a tokenizer make a text of n bytes at most %d bytes long, and at "
                   "most %d n + %d bytes",
                   TOKENIZER_MAX_GROWN, TOKENIZER_MAX_GROWTH, TOKENIZER_BASE_GROWTH);
    gqac_diag_hint(diag,
                   "give a shorter text; if it is short, see what Replace and Prepend insert");
    return GQAC_LIMIT;
}

gqac_status growth_take(growth *g, size_t from, const gqac_str *to, gqac_diag *diag) {
    GQAC_TRY(text_check(to, growth_most(g, from), diag));
    g->left -= to->length > from ? to->length - from : 0;
    return GQAC_OK;
}

/* ---- matches ---------------------------------------------------------------------- */

gqac_status match_admit(const pattern *p, pattern_scratch **scratch, size_t bytes,
                        gqac_diag *diag) {
    if (!*scratch && !(*scratch = pattern_scratch_create(p)))
        return gqac_diag_oom(diag, "a pattern");
    pattern_scratch_admit(*scratch, bytes);
    return GQAC_OK;
}

gqac_status match_next(const pattern *p, pattern_scratch *scratch, span text, match_state *state,
                       pattern_match *match, gqac_diag *diag) {
    *match = (pattern_match){0};
    while (state->at <= text.length) {
        GQAC_TRY(pattern_find(p, scratch, text.bytes, text.length, state->at, match, diag));
        if (!match->found)
            return GQAC_OK;
        if (match->begin != match->end || !state->any || state->last != match->end) {
            state->at = state->last = match->end;
            state->any = true;
            return GQAC_OK;
        }
        size_t bytes = gqac_utf8_char(text.bytes + state->at, text.length - state->at);
        state->at += bytes ? bytes : 1;
        match->found = false;
    }
    return GQAC_OK;
}

static gqac_status replace_literal(const exchange *r, span text, size_t most, gqac_str *out,
                                   gqac_diag *diag) {
    size_t done = 0;
    const char *at;
    while ((at = memmem(text.bytes + done, text.length - done, r->find.bytes, r->find.length))) {
        size_t begin = (size_t)(at - text.bytes);
        gqac_str_append_n(out, text.bytes + done, begin - done);
        gqac_str_append_n(out, r->content.bytes, r->content.length);
        GQAC_TRY(text_check(out, most, diag));
        done = begin + r->find.length;
    }
    gqac_str_append_n(out, text.bytes + done, text.length - done);
    return text_check(out, most, diag);
}

static gqac_status replace_regex(const exchange *r, pattern_scratch *scratch, span text,
                                 size_t most, gqac_str *out, gqac_diag *diag) {
    match_state state = {0};
    pattern_match match;
    size_t done = 0;
    while (true) {
        GQAC_TRY(match_next(r->regex, scratch, text, &state, &match, diag));
        if (!match.found)
            break;
        gqac_str_append_n(out, text.bytes + done, match.begin - done);
        gqac_str_append_n(out, r->content.bytes, r->content.length);
        GQAC_TRY(text_check(out, most, diag));
        done = match.end;
    }
    gqac_str_append_n(out, text.bytes + done, text.length - done);
    return text_check(out, most, diag);
}

gqac_status replace_all(const exchange *r, pattern_scratch **scratch, span text, size_t most,
                        gqac_str *out, gqac_diag *diag) {
    if (!r->regex)
        return replace_literal(r, text, most, out, diag);
    GQAC_TRY(match_admit(r->regex, scratch, text.length, diag));
    return replace_regex(r, *scratch, text, most, out, diag);
}

/* ---- steps -------------------------------------------------------------------------- */

enum { NOTHING = -1 };

static bool is_ascii(span text) {
    for (size_t i = 0; i < text.length; i++)
        if ((unsigned char)text.bytes[i] >= 0x80)
            return false;
    return true;
}

static void strip(const normal_step *step, span text, gqac_str *out, bool *first) {
    size_t begin = 0, end = text.length;
    int32_t c;
    while (step->left && begin < end) {
        size_t bytes = unicode_read(text.bytes + begin, end - begin, &c);
        if (!unicode_is_space(c))
            break;
        begin += bytes;
    }
    while (step->right && end > begin) {
        size_t at = unicode_before(text.bytes, begin, end);
        unicode_read(text.bytes + at, end - at, &c);
        if (!unicode_is_space(c))
            break;
        end = at;
    }
    *first = *first && begin == 0;
    gqac_str_append_n(out, text.bytes + begin, end - begin);
}

/* Drops control characters and replaces other blanks by a space, as the normalizer Nmt of Hugging
 * Face's tokenizers does. */
static int32_t for_translation(int32_t c) {
    static const struct {
        int32_t first, last, to;
    } ranges[] = {{0x1, 0x8, NOTHING},   {0x9, 0xa, ' '},       {0xb, 0xb, NOTHING},
                  {0xc, 0xd, ' '},       {0xe, 0x1f, NOTHING},  {0x7f, 0x7f, NOTHING},
                  {0x8f, 0x8f, NOTHING}, {0x9f, 0x9f, NOTHING}, {0x1680, 0x1680, ' '},
                  {0x200b, 0x200f, ' '}, {0x2028, 0x2029, ' '}, {0x2581, 0x2581, ' '},
                  {0xfeff, 0xfeff, ' '}, {0xfffd, 0xfffd, ' '}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return ranges[i].to;
    return c;
}

static void each_character(const normal_step *step, span text, gqac_str *out, bool *first) {
    char bytes[4];
    int32_t c;
    for (size_t at = 0, n; at < text.length; at += n) {
        n = unicode_read(text.bytes + at, text.length - at, &c);
        c = unicode_is(c, step->dropped) ? NOTHING : c;
        c = step->kind == NORMAL_NMT ? for_translation(c) : c;
        *first = *first && (at || c != NOTHING);
        gqac_str_append_n(out, bytes, c == NOTHING ? 0 : unicode_write(c, bytes));
    }
}

static gqac_status run_step(const normal_step *step, pattern_scratch **scratch, span text,
                            size_t most, gqac_str *out, bool *first, gqac_diag *diag) {
    switch (step->kind) {
    case NORMAL_FORM:
        if (!is_ascii(text))
            return unicode_normalise(step->form, text.bytes, text.length, most, out, diag);
        gqac_str_append_n(out, text.bytes, text.length);
        return GQAC_OK;
    case NORMAL_LOWER:
        return unicode_lower(text.bytes, text.length, out, diag);
    case NORMAL_STRIP:
        strip(step, text, out, first);
        return GQAC_OK;
    case NORMAL_ACCENTS:
    case NORMAL_NMT:
        each_character(step, text, out, first);
        return GQAC_OK;
    case NORMAL_CHARSMAP:
        return charsmap_run(&step->map, text, most, out, diag);
    case NORMAL_PREPEND:
        if (text.length)
            gqac_str_append_n(out, step->content.bytes, step->content.length);
        gqac_str_append_n(out, text.bytes, text.length);
        return GQAC_OK;
    default:
        return replace_all(&(exchange){step->find, step->content, step->regex}, scratch, text, most,
                           out, diag);
    }
}

gqac_status normalizer_run(const normalizer *n, normal_scratch *s, span text, growth *growth,
                           bool *first, gqac_diag *diag) {
    s->text.length = 0;
    gqac_str_append_n(&s->text, text.bytes, text.length);
    GQAC_TRY(text_check(&s->text, text.length, diag));
    for (int i = 0; i < n->n; i++) {
        span from = {s->text.text, s->text.length};
        s->spare.length = 0;
        gqac_str_append_n(&s->spare, "", 0); /* the result of a step is never NULL */
        size_t most = growth_most(growth, from.length);
        gqac_status status =
            run_step(&n->steps[i], &s->regex[i], from, most, &s->spare, first, diag);
        if (status == GQAC_OK)
            status = growth_take(growth, from.length, &s->spare, diag);
        GQAC_TRY(in_step(status, "normalizer", i, diag));
        gqac_str swap = s->text;
        s->text = s->spare;
        s->spare = swap;
    }
    return GQAC_OK;
}

void normal_scratch_free(normal_scratch *s) {
    gqac_str_free(&s->text);
    gqac_str_free(&s->spare);
    for (int i = 0; i < TOKENIZER_MAX_STEPS; i++)
        pattern_scratch_free(s->regex[i]);
}
