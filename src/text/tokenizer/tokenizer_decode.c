/* From ids back to text. The steps of the decoder form a chain. A token passes through it as chunks
 * of whole characters, followed by an end mark; a step that joins tokens passes on only the last
 * end mark. Each step passes on what can no longer change and holds back the rest: the bytes of an
 * incomplete character, a run of "<0x..>", spaces that may be stripped. A list of ids is decoded by
 * pushing them one after another, so streamed pieces and the whole text cannot differ. */
#include <string.h>

#include "base/alloc.h"
#include "text/tokenizer/tokenizer_impl.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

typedef struct decode_state {
    gqac_str held;  /* of the token that is not complete */
    gqac_str bytes; /* that may become characters; Replace: of this chunk */
    size_t n;       /* Strip: characters passed over or held; Replace: bytes of `find` that match */
    pattern_scratch *scratch; /* Replace by an expression */
    bool begun;               /* a token was seen */
    bool stripping;           /* Strip: still at the start of the token */
    bool within;              /* Strip: neither start nor end of its token is seen */
} decode_state;

struct tokenizer_stream {
    const tokenizer *t;
    gqac_str out;
    decode_state states[TOKENIZER_MAX_STEPS];
    growth growth;
    bool raw;        /* bytes that are not a character are not replaced */
    gqac_diag *diag; /* of the current call */
};

static gqac_status push(tokenizer_stream *s, int k, const char *text, size_t length);
static gqac_status end(tokenizer_stream *s, int k);

/* ---- bytes that should be UTF-8 ----------------------------------------------- */

/* Length of what `text` begins with: a character (*good), a part of one that cannot be completed,
 * or 0 when more bytes may complete it. */
static size_t next_part(const unsigned char *text, size_t length, bool *good) {
    *good = false;
    unsigned lead = text[0];
    if (lead < 0x80) {
        *good = true;
        return 1;
    }
    size_t need = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (!need)
        return 1;
    unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (size_t i = 1; i < need; i++) {
        if (i == length)
            return 0;
        if (text[i] < low || text[i] > high)
            return i;
        low = 0x80;
        high = 0xbf;
    }
    *good = true;
    return need;
}

static gqac_status pass_raw(tokenizer_stream *s, decode_state *state) {
    gqac_str_append_n(&s->out, state->bytes.text, state->bytes.length);
    state->bytes.length = 0;
    return text_check(&s->out, TOKENIZER_MAX_GROWN, s->diag);
}

/* Passes on the complete characters of state->bytes; with `last` everything. */
static gqac_status pass_bytes(tokenizer_stream *s, int k, bool last) {
    decode_state *state = &s->states[k];
    const unsigned char *text = (const unsigned char *)state->bytes.text;
    size_t length = state->bytes.length, done = 0, i = 0;
    if (s->raw) /* later steps take characters */
        return pass_raw(s, state);
    while (i < length) {
        bool good;
        size_t n = next_part(text + i, length - i, &good);
        if (n == 0 && !last)
            break;
        if (!good) {
            if (i > done)
                GQAC_TRY(push(s, k + 1, (const char *)text + done, i - done));
            GQAC_TRY(push(s, k + 1, replacement, 3));
            n = n ? n : length - i;
            done = i + n;
        }
        i += n;
    }
    if (i > done)
        GQAC_TRY(push(s, k + 1, (const char *)text + done, i - done));
    if (length)
        memmove(state->bytes.text, state->bytes.text + i, length - i);
    state->bytes.length = length - i;
    return GQAC_OK;
}

/* ---- steps that need whole tokens ------------------------------------------------ */

static gqac_status end_byte_level(tokenizer_stream *s, int k) {
    decode_state *state = &s->states[k];
    const char *text = state->held.text;
    size_t length = state->held.length, before = state->bytes.length;
    for (size_t i = 0; i < length;) {
        int32_t c;
        i += unicode_read(text + i, length - i, &c);
        int byte = byte_level_byte(c);
        if (byte < 0) { /* ByteLevel did not make the token: it stays as it is */
            state->bytes.length = before;
            gqac_str_append_n(&state->bytes, text, length);
            break;
        }
        char one = (char)byte;
        gqac_str_append_n(&state->bytes, &one, 1);
    }
    state->held.length = 0;
    GQAC_TRY(text_check(&state->bytes, TOKENIZER_MAX_GROWN, s->diag));
    return pass_bytes(s, k, false);
}

/* The byte of "<0x..>"; -1 when it is another token. */
static int byte_token(const gqac_str *token) {
    const char *t = token->text;
    if (token->length != 6 || memcmp(t, "<0x", 3) != 0 || t[5] != '>')
        return -1;
    int high =
        t[3] == '+' ? 0 : unicode_hex_digit(t[3]); /* Hugging Face's tokenizers read "+F" too */
    int low = unicode_hex_digit(t[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* A run of byte tokens is one token if all of it is UTF-8, else U+FFFD for each byte. */
static gqac_status end_run(tokenizer_stream *s, int k) {
    decode_state *state = &s->states[k];
    size_t length = state->bytes.length;
    bool good = true;
    if (s->raw && length)
        return pass_raw(s, state);
    for (size_t i = 0; i < length && good;) {
        size_t n = gqac_utf8_char(state->bytes.text + i, length - i);
        good = n > 0;
        i += n;
    }
    if (good && length) {
        GQAC_TRY(push(s, k + 1, state->bytes.text, length));
        GQAC_TRY(end(s, k + 1));
    }
    for (size_t i = 0; i < length && !good; i++) {
        GQAC_TRY(push(s, k + 1, replacement, 3));
        GQAC_TRY(end(s, k + 1));
    }
    state->bytes.length = 0;
    return GQAC_OK;
}

static gqac_status end_byte_fallback(tokenizer_stream *s, int k) {
    decode_state *state = &s->states[k];
    int byte = byte_token(&state->held);
    if (byte >= 0) {
        char one = (char)byte;
        gqac_str_append_n(&state->bytes, &one, 1);
        state->held.length = 0;
        return text_check(&state->bytes, TOKENIZER_MAX_GROWN, s->diag);
    }
    GQAC_TRY(end_run(s, k));
    GQAC_TRY(push(s, k + 1, state->held.text, state->held.length));
    state->held.length = 0;
    return end(s, k + 1);
}

/* Adds the step to the diag of a failure. */
static gqac_status at_step(const tokenizer_stream *s, int k, gqac_status status) {
    return in_step(status, "tokenizer.json, decoder", k, s->diag);
}

static gqac_status replace_held(tokenizer_stream *s, int k, gqac_str *out) {
    const decode_step *step = &s->t->decoder.steps[k];
    decode_state *state = &s->states[k];
    const exchange by = {step->find, step->content, step->regex};
    const span text = {state->held.text, state->held.length};
    GQAC_TRY(replace_all(&by, &state->scratch, text, growth_most(&s->growth, text.length), out,
                         s->diag));
    return growth_take(&s->growth, text.length, out, s->diag);
}

static gqac_status end_regex(tokenizer_stream *s, int k) {
    gqac_str out = {0};
    gqac_status status = at_step(s, k, replace_held(s, k, &out));
    if (status == GQAC_OK)
        status = push(s, k + 1, out.text, out.length);
    gqac_str_free(&out);
    s->states[k].held.length = 0;
    GQAC_TRY(status);
    return end(s, k + 1);
}

/* ---- steps that go through a token ------------------------------------------------- */

/* Replaces one character by a space, or at the beginning by nothing. */
static gqac_status push_metaspace(tokenizer_stream *s, int k, const char *text, size_t length) {
    const decode_step *step = &s->t->decoder.steps[k];
    bool drop = !s->states[k].begun && !step->keep_first;
    size_t done = 0;
    const char *at;
    while ((at = memmem(text + done, length - done, step->find.bytes, step->find.length))) {
        size_t begin = (size_t)(at - text);
        GQAC_TRY(push(s, k + 1, text + done, begin - done));
        if (!drop)
            GQAC_TRY(push(s, k + 1, " ", 1));
        done = begin + step->find.length;
    }
    return push(s, k + 1, text + done, length - done);
}

static gqac_status release(tokenizer_stream *s, int k, size_t count) {
    const decode_step *step = &s->t->decoder.steps[k];
    for (size_t i = 0; i < count; i++)
        GQAC_TRY(push(s, k + 1, step->find.bytes, step->find.length));
    s->states[k].n -= count;
    return GQAC_OK;
}

/* Strips a character: the first `start` of a token are dropped, and the last `stop` are held back
 * until another one follows. */
static gqac_status push_strip(tokenizer_stream *s, int k, const char *text, size_t length) {
    const decode_step *step = &s->t->decoder.steps[k];
    decode_state *state = &s->states[k];
    size_t wide = step->find.length;
    for (size_t i = 0; i < length;) {
        size_t rest = length - i;
        bool same = rest >= wide && memcmp(text + i, step->find.bytes, wide) == 0;
        if (state->stripping && same && state->n < (size_t)step->start) {
            state->n++;
            i += wide;
            continue;
        }
        if (state->stripping) {
            state->stripping = false;
            state->n = 0;
        }
        if (same && step->stop) {
            state->n++;
            if (state->n > (size_t)step->stop)
                GQAC_TRY(release(s, k, 1));
            i += wide;
            continue;
        }
        GQAC_TRY(release(s, k, state->n));
        size_t run = step->stop ? i : length;
        while (run < length &&
               (run == i || length - run < wide || memcmp(text + run, step->find.bytes, wide) != 0))
            run += gqac_utf8_char(text + run, length - run);
        GQAC_TRY(push(s, k + 1, text + i, run - i));
        i = run;
    }
    return GQAC_OK;
}

/* What matches so far is held back. It is the beginning of `find`, so only its length is kept. */
static gqac_status push_replace(tokenizer_stream *s, int k, const char *text, size_t length) {
    const decode_step *step = &s->t->decoder.steps[k];
    const char *find = step->find.bytes;
    gqac_str *out = &s->states[k].bytes;
    size_t q = s->states[k].n, given = length + q;
    const size_t most = growth_most(&s->growth, given);
    out->length = 0;
    for (size_t i = 0; i < length; i++) {
        while (q > 0 && find[q] != text[i]) {
            size_t keep = step->fall[q - 1];
            gqac_str_append_n(out, find, q - keep);
            q = keep;
        }
        if (find[q] != text[i]) {
            gqac_str_append_n(out, text + i, 1);
        } else if (++q == step->find.length) {
            gqac_str_append_n(out, step->content.bytes, step->content.length);
            GQAC_TRY(at_step(s, k, text_check(out, most, s->diag)));
            q = 0;
        }
    }
    s->states[k].n = q;
    GQAC_TRY(at_step(s, k, growth_take(&s->growth, given - q, out, s->diag)));
    return push(s, k + 1, out->text, out->length);
}

/* ---- the chain ------------------------------------------------------------------------ */

static gqac_status push(tokenizer_stream *s, int k, const char *text, size_t length) {
    const decoder *d = &s->t->decoder;
    if (k == d->n) {
        gqac_str_append_n(&s->out, text, length);
        return text_check(&s->out, TOKENIZER_MAX_GROWN, s->diag);
    }
    decode_state *state = &s->states[k];
    switch (d->steps[k].kind) {
    case DECODE_JOIN: /* always the only step, so that this is a whole token */
        if (state->begun)
            GQAC_TRY(push(s, k + 1, " ", 1));
        return push(s, k + 1, text, length);
    case DECODE_METASPACE:
        return push_metaspace(s, k, text, length);
    case DECODE_FUSE:
        return push(s, k + 1, text, length);
    case DECODE_STRIP:
        return push_strip(s, k, text, length);
    case DECODE_REPLACE:
        if (!d->steps[k].regex)
            return push_replace(s, k, text, length);
        break;
    default:
        break;
    }
    gqac_str_append_n(&state->held, text, length);
    return text_check(&state->held, TOKENIZER_MAX_GROWN, s->diag);
}

static gqac_status end(tokenizer_stream *s, int k) {
    const decoder *d = &s->t->decoder;
    if (k == d->n)
        return GQAC_OK;
    decode_state *state = &s->states[k];
    const decode_step *step = &d->steps[k];
    state->begun = true;
    switch (step->kind) {
    case DECODE_BYTE_LEVEL:
        return end_byte_level(s, k);
    case DECODE_BYTE_FALLBACK:
        return end_byte_fallback(s, k);
    case DECODE_FUSE:
        return GQAC_OK; /* finish() passes on the only end */
    case DECODE_STRIP:
        if (state->within)
            GQAC_TRY(release(s, k, state->n));
        state->stripping = true;
        state->n = 0;
        break;
    case DECODE_REPLACE:
        if (step->regex)
            return end_regex(s, k);
        if (state->n)
            GQAC_TRY(push(s, k + 1, step->find.bytes, state->n));
        state->n = 0;
        break;
    default:
        break;
    }
    return end(s, k + 1);
}

static void begin(tokenizer_stream *s) {
    s->out.length = 0;
    for (int k = 0; k < s->t->decoder.n; k++) {
        decode_state *state = &s->states[k];
        state->held.length = state->bytes.length = state->n = 0;
        state->begun = state->within = false;
        state->stripping = true;
    }
}

static gqac_status finish(tokenizer_stream *s) {
    const decoder *d = &s->t->decoder;
    for (int k = 0; k < d->n; k++) {
        decode_kind kind = d->steps[k].kind;
        if (kind == DECODE_BYTE_LEVEL)
            GQAC_TRY(pass_bytes(s, k, true));
        if (kind == DECODE_BYTE_FALLBACK)
            GQAC_TRY(end_run(s, k));
        if (kind == DECODE_BYTE_LEVEL || kind == DECODE_FUSE)
            GQAC_TRY(end(s, k + 1));
    }
    return GQAC_OK;
}

static gqac_status push_id(tokenizer_stream *s, int64_t id, bool skip_special, gqac_diag *diag) {
    const words *w = &s->t->words;
    if (id < 0 || (uint64_t)id >= w->limit || !w->tokens[id].flags) {
        gqac_diag_set(diag, GQAC_OUT_OF_RANGE, "the tokenizer has no token with id %lld",
                      (long long)id);
        gqac_diag_hint(diag, "its largest id is %zu", w->limit - 1);
        return GQAC_OUT_OF_RANGE;
    }
    if (skip_special && w->tokens[id].flags & TOKEN_SPECIAL)
        return GQAC_OK;
    span text = words_shown(w, id);
    s->diag = diag;
    growth_admit(&s->growth, text.length);
    GQAC_TRY(push(s, 0, text.bytes, text.length));
    return end(s, 0);
}

/* ---- the interface -------------------------------------------------------------------- */

gqac_status tokenizer_stream_create(const tokenizer *t, tokenizer_stream **out, gqac_diag *diag) {
    tokenizer_stream *s = gqac_calloc(1, sizeof *s);
    *out = s;
    if (!s)
        return gqac_diag_oom(diag, "a stream of text");
    s->t = t;
    growth_begin(&s->growth);
    begin(s);
    return GQAC_OK;
}

void tokenizer_stream_free(tokenizer_stream *s) {
    if (!s)
        return;
    for (int k = 0; k < s->t->decoder.n; k++) {
        gqac_str_free(&s->states[k].held);
        gqac_str_free(&s->states[k].bytes);
        pattern_scratch_free(s->states[k].scratch);
    }
    gqac_str_free(&s->out);
    gqac_free(s);
}

static gqac_status give_piece(tokenizer_stream *s, const char **piece, size_t *length) {
    *piece = s->out.length ? s->out.text : "";
    *length = s->out.length;
    return GQAC_OK;
}

gqac_status tokenizer_stream_push(tokenizer_stream *s, int64_t id, const char **piece,
                                  size_t *length, gqac_diag *diag) {
    s->out.length = 0;
    GQAC_TRY(push_id(s, id, true, diag));
    return give_piece(s, piece, length);
}

gqac_status tokenizer_stream_finish(tokenizer_stream *s, const char **piece, size_t *length,
                                    gqac_diag *diag) {
    s->out.length = 0;
    s->diag = diag;
    GQAC_TRY(finish(s));
    size_t kept = s->out.length;
    begin(s);
    s->out.length = kept;
    return give_piece(s, piece, length);
}

/* Ends the text and hands it over to the caller. */
static gqac_status take_text(tokenizer_stream *s, char **out, size_t *length) {
    GQAC_TRY(finish(s));
    gqac_str_append_n(&s->out, "", 0); /* an empty text too has its NUL */
    GQAC_TRY(text_check(&s->out, TOKENIZER_MAX_GROWN, s->diag));
    *out = s->out.text;
    *length = s->out.length;
    s->out = (gqac_str){0};
    return GQAC_OK;
}

static gqac_status push_ids(tokenizer_stream *s, const int64_t *ids, size_t n, bool skip_special) {
    for (size_t i = 0; i < n; i++) {
        const gqac_status status = push_id(s, ids[i], skip_special, s->diag);
        if (status == GQAC_OUT_OF_RANGE)
            gqac_diag_where(s->diag, "id number %zu", i + 1);
        GQAC_TRY(status);
    }
    return GQAC_OK;
}

gqac_status tokenizer_decode(const tokenizer *t, const int64_t *ids, size_t n, bool skip_special,
                             char **out, size_t *length, gqac_diag *diag) {
    tokenizer_stream *s;
    *out = NULL;
    GQAC_TRY(tokenizer_stream_create(t, &s, diag));
    s->diag = diag;
    gqac_status status = push_ids(s, ids, n, skip_special);
    if (status == GQAC_OK)
        status = take_text(s, out, length);
    tokenizer_stream_free(s);
    return status;
}

/* Begins in the middle of a text: no step is at its start. */
static void begin_within(tokenizer_stream *s) {
    bool fused = false; /* from here on the whole text is one token */
    begin(s);
    s->raw = true;
    for (int k = 0; k < s->t->decoder.n; k++) {
        s->states[k].begun = true;
        s->states[k].stripping = !fused;
        s->states[k].within = fused;
        fused |= s->t->decoder.steps[k].kind == DECODE_FUSE;
    }
}

gqac_status tokenizer_bytes(const tokenizer *t, int64_t id, char **bytes, size_t *length,
                            bool *special, gqac_diag *diag) {
    tokenizer_stream *s;
    *bytes = NULL;
    GQAC_TRY(tokenizer_stream_create(t, &s, diag));
    begin_within(s);
    gqac_status status = push_id(s, id, false, diag);
    if (status == GQAC_OK)
        status = take_text(s, bytes, length);
    tokenizer_stream_free(s);
    GQAC_TRY(status);
    *special = t->words.tokens[id].flags & TOKEN_SPECIAL;
    return GQAC_OK;
}
