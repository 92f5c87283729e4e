/* Running pre-tokenizers: a text becomes the words that the model encodes one by one. Each step
 * reads the pieces of the step before. Most steps only cut them, some rewrite them (ByteLevel's
 * characters, Metaspace). Empty pieces are removed after each step. */
#include <string.h>

#include "base/alloc.h"
#include "text/tokenizer/tokenizer_impl.h"

static uint32_t category(const char *name) {
    uint32_t mask = 0;
    unicode_category(name, strlen(name), &mask);
    return mask;
}

/* ---- ByteLevel's characters ---------------------------------------------------- */

/* Printable bytes of Latin-1 stand for themselves, the others for U+0100 onward in order. */
static bool is_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

int32_t byte_level_char(unsigned byte) {
    if (is_itself(byte))
        return (int32_t)byte;
    unsigned rank = byte < 0x21 ? byte : byte < 0xa1 ? byte - 0x7f + 0x21 : 0x21 + 0x22;
    return (int32_t)(0x100 + rank);
}

int byte_level_byte(int32_t c) {
    if (c < 0x100)
        return c >= 0 && is_itself((unsigned)c) ? (int)c : -1;
    int32_t rank = c - 0x100;
    return rank < 0x21    ? (int)rank
           : rank < 0x43  ? (int)(rank - 0x21 + 0x7f)
           : rank == 0x43 ? 0xad
                          : -1;
}

/* ---- pieces ------------------------------------------------------------------------ */

static gqac_status add_piece(pieces *p, size_t begin, size_t end, bool first, gqac_diag *diag) {
    if (!gqac_reserve(&p->items, p->n + 1, &p->capacity, sizeof *p->items))
        return gqac_diag_oom(diag, "the words of a text");
    p->items[p->n++] = (piece){begin, end, first};
    return GQAC_OK;
}

void split_scratch_free(split_scratch *s) {
    gqac_str_free(&s->a.text);
    gqac_str_free(&s->b.text);
    gqac_free(s->a.items);
    gqac_free(s->b.items);
    for (int i = 0; i < TOKENIZER_MAX_STEPS; i++)
        pattern_scratch_free(s->scratch[i]);
    *s = (split_scratch){0};
}

/* ---- cutting ------------------------------------------------------------------------- */

/* Makes pieces of the segments of one piece: the matches, and the text between them. */
typedef struct cutter {
    const split_step *step;
    pieces *out;
    size_t base, from; /* offset of the piece, and its first place in out */
    bool first, previous;
    bool pending; /* MergedWithNext: a match that waits for its next */
    size_t pending_begin, pending_end;
    gqac_diag *diag;
} cutter;

static gqac_status put(cutter *c, size_t begin, size_t end) {
    return add_piece(c->out, c->base + begin, c->base + end, c->first && begin == 0, c->diag);
}

static gqac_status extend(cutter *c, size_t begin, size_t end) {
    if (c->out->n == c->from)
        return put(c, begin, end);
    c->out->items[c->out->n - 1].end = c->base + end;
    return GQAC_OK;
}

static gqac_status put_pending(cutter *c) {
    bool pending = c->pending;
    c->pending = false;
    return pending ? put(c, c->pending_begin, c->pending_end) : GQAC_OK;
}

static gqac_status merge_with_next(cutter *c, size_t begin, size_t end, bool match) {
    if (match) {
        GQAC_TRY(put_pending(c));
        c->pending = true;
        c->pending_begin = begin;
        c->pending_end = end;
        return GQAC_OK;
    }
    if (c->pending)
        begin = c->pending_begin;
    c->pending = false;
    return put(c, begin, end);
}

static gqac_status segment(cutter *c, size_t begin, size_t end, bool match) {
    match = match != c->step->invert;
    bool previous = c->previous;
    c->previous = match;
    switch (c->step->behaviour) {
    case SPLIT_REMOVED:
        return match ? GQAC_OK : put(c, begin, end);
    case SPLIT_ISOLATED:
        return put(c, begin, end);
    case SPLIT_MERGED_WITH_PREVIOUS:
        return match && !previous ? extend(c, begin, end) : put(c, begin, end);
    case SPLIT_MERGED_WITH_NEXT:
        return merge_with_next(c, begin, end, match);
    default:
        return match == previous ? extend(c, begin, end) : put(c, begin, end);
    }
}

static bool in_class(split_kind kind, int32_t c, uint32_t mask) {
    if (kind == SPLIT_SPACE)
        return unicode_is_space(c);
    if (kind == SPLIT_PUNCTUATION && c < 0x80) /* also the ASCII symbols */
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    return unicode_is(c, mask);
}

/* A run of word characters, or of characters that are neither word nor space. */
static bool next_word(span text, size_t at, size_t *begin, size_t *end) {
    int kind = 0;
    for (*begin = *end = at; *end < text.length;) {
        int32_t c;
        size_t bytes = unicode_read(text.bytes + *end, text.length - *end, &c);
        int here = in_word(c) ? 1 : unicode_is_space(c) ? 0 : 2;
        if (kind && here != kind)
            return true;
        if (!kind && !here)
            *begin += bytes;
        kind = here;
        *end += bytes;
    }
    return kind != 0;
}

static bool next_char(split_kind kind, uint32_t mask, span text, size_t at, size_t *begin,
                      size_t *end) {
    for (*begin = at; *begin < text.length; *begin = *end) {
        int32_t c;
        *end = *begin + unicode_read(text.bytes + *begin, text.length - *begin, &c);
        if (in_class(kind, c, mask))
            return true;
    }
    return false;
}

typedef struct finder {
    const split_step *step;
    pattern_scratch *scratch;
    uint32_t mask;
} finder;

static gqac_status find_next(const finder *f, span text, match_state *state, pattern_match *match,
                             gqac_diag *diag) {
    const split_step *step = f->step;
    size_t *begin = &match->begin, *end = &match->end;
    if (step->kind == SPLIT_REGEX)
        return match_next(step->regex, f->scratch, text, state, match, diag);
    if (step->kind == SPLIT_TEXT) {
        const char *at = memmem(text.bytes + state->at, text.length - state->at,
                                step->literal.bytes, step->literal.length);
        match->found = at != NULL;
        *begin = at ? (size_t)(at - text.bytes) : 0;
        *end = *begin + step->literal.length;
    } else if (step->kind == SPLIT_WORD) {
        match->found = next_word(text, state->at, begin, end);
    } else {
        match->found = next_char(step->kind, f->mask, text, state->at, begin, end);
    }
    state->at = *end;
    return GQAC_OK;
}

static gqac_status cut_piece(const finder *f, span text, cutter *c) {
    match_state state = {0};
    pattern_match match;
    size_t done = 0;
    while (true) {
        GQAC_TRY(find_next(f, text, &state, &match, c->diag));
        if (!match.found)
            break;
        if (done != match.begin)
            GQAC_TRY(segment(c, done, match.begin, false));
        GQAC_TRY(segment(c, match.begin, match.end, true));
        done = match.end;
    }
    if (done != text.length)
        GQAC_TRY(segment(c, done, text.length, false));
    GQAC_TRY(put_pending(c));
    size_t kept = c->from;
    for (size_t i = c->from; i < c->out->n; i++)
        if (c->out->items[i].begin < c->out->items[i].end)
            c->out->items[kept++] = c->out->items[i];
    c->out->n = kept;
    return GQAC_OK;
}

static gqac_status cut(const split_step *step, pattern_scratch **scratch, pieces *from, pieces *to,
                       gqac_diag *diag) {
    finder f = {.step = step};
    if (step->kind == SPLIT_REGEX) {
        GQAC_TRY(match_admit(step->regex, scratch, from->text.length, diag));
        f.scratch = *scratch;
    }
    f.mask = category(step->kind == SPLIT_DIGIT ? "N" : "P");
    for (size_t i = 0; i < from->n; i++) {
        piece p = from->items[i];
        cutter c = {.step = step,
                    .out = to,
                    .base = p.begin,
                    .from = to->n,
                    .first = p.first,
                    .diag = diag};
        GQAC_TRY(cut_piece(&f, (span){from->text.text + p.begin, p.end - p.begin}, &c));
    }
    gqac_str text = from->text; /* the same text, cut otherwise */
    from->text = to->text;
    to->text = text;
    return GQAC_OK;
}

/* ---- rewriting -------------------------------------------------------------------------- */

static void write_bytes(span text, gqac_str *out) {
    char buffer[512];
    size_t n = 0;
    for (size_t i = 0; i < text.length; i++) {
        n += unicode_write(byte_level_char((unsigned char)text.bytes[i]), buffer + n);
        if (n > sizeof buffer - 4) {
            gqac_str_append_n(out, buffer, n);
            n = 0;
        }
    }
    gqac_str_append_n(out, buffer, n);
}

static bool begins_with(span text, span start) {
    return text.length >= start.length && memcmp(text.bytes, start.bytes, start.length) == 0;
}

static gqac_status metaspace(const split_step *step, span text, bool first, size_t most,
                             gqac_str *out, gqac_diag *diag) {
    bool prepend = step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && first);
    if (prepend && text.bytes[0] != ' ' && !begins_with(text, step->literal))
        gqac_str_append_n(out, step->literal.bytes, step->literal.length);
    return replace_all(&(exchange){{" ", 1}, step->literal, NULL}, NULL, text, most, out, diag);
}

static gqac_status rewrite(const split_step *step, pieces *from, pieces *to, growth *growth,
                           gqac_diag *diag) {
    size_t most = growth_most(growth, from->text.length);
    to->text.length = 0;
    for (size_t i = 0; i < from->n; i++) {
        piece p = from->items[i];
        span text = {from->text.text + p.begin, p.end - p.begin};
        size_t begin = to->text.length;
        if (step->kind == SPLIT_BYTES) {
            write_bytes(text, &to->text);
        } else if (step->kind == SPLIT_PREFIX) {
            if (text.bytes[0] != ' ')
                gqac_str_append(&to->text, " ");
            gqac_str_append_n(&to->text, text.bytes, text.length);
        } else {
            GQAC_TRY(metaspace(step, text, p.first, most, &to->text, diag));
        }
        GQAC_TRY(text_check(&to->text, most, diag));
        GQAC_TRY(add_piece(to, begin, to->text.length, p.first, diag));
    }
    return growth_take(growth, from->text.length, &to->text, diag);
}

gqac_status splitter_run(const splitter *splitter, split_scratch *s, span text, growth *growth,
                         bool first, gqac_diag *diag) {
    s->a.n = s->a.text.length = 0;
    gqac_str_append_n(&s->a.text, text.bytes, text.length);
    GQAC_TRY(text_check(&s->a.text, text.length, diag));
    if (text.length)
        GQAC_TRY(add_piece(&s->a, 0, text.length, first, diag));
    for (int i = 0; i < splitter->n; i++) {
        const split_step *step = &splitter->steps[i];
        s->b.n = 0;
        const gqac_status status = step->kind >= SPLIT_PREFIX
                                       ? rewrite(step, &s->a, &s->b, growth, diag)
                                       : cut(step, &s->scratch[i], &s->a, &s->b, diag);
        GQAC_TRY(in_step(status, "pre_tokenizer", i, diag));
        pieces swap = s->a;
        s->a = s->b;
        s->b = swap;
    }
    return GQAC_OK;
}
