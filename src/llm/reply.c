/* The text of an answer. Stop texts are matched byte by byte with the algorithm of Knuth, Morris
 * and Pratt (1977), so a byte takes constant time for each stop text. */
#include "llm/reply.h"

#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "llm/calls.h"

/* ---- stop texts ---------------------------------------------------------- */

/* Bytes of the stop text that the text ends with after `byte`; `matched` before it. */
static size_t advance(const reply_stop *s, size_t matched, char byte) {
    if (matched == s->length)
        matched = s->back[matched];
    while (matched && s->text[matched] != byte)
        matched = s->back[matched];
    return s->text[matched] == byte ? matched + 1 : 0;
}

static gqac_status open_stop(reply_stop *s, const char *text, int index, gqac_diag *diag) {
    size_t entries = 0, bytes = 0;
    if (!text || !*text)
        GQAC_FAIL(diag, GQAC_USAGE, "stop text %d is empty", index);
    s->text = text;
    s->length = strlen(text);
    if (!gqac_utf8_valid(text, s->length))
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "stop text %d is not UTF-8", index);
    if (!gqac_add_size(s->length, 1, &entries) || !gqac_mul_size(entries, sizeof(size_t), &bytes))
        return gqac_diag_oom(diag, "a stop text");
    s->back = gqac_alloc(bytes);
    if (!s->back)
        return gqac_diag_oom(diag, "a stop text");
    s->back[0] = s->back[1] = 0;
    for (size_t i = 1; i < s->length; i++)
        s->back[i + 1] = advance(s, s->back[i], text[i]);
    return GQAC_OK;
}

gqac_status reply_open(reply *r, const gqac_text *text, int n_stop, const char *const *stop,
                       gqac_diag *diag) {
    r->source = text;
    if (n_stop) {
        r->stops = gqac_calloc((size_t)n_stop, sizeof *r->stops);
        if (!r->stops)
            return gqac_diag_oom(diag, "stop texts");
        r->n_stop = n_stop;
    }
    for (int i = 0; i < n_stop; i++)
        GQAC_TRY(open_stop(&r->stops[i], stop[i], i, diag));
    const gqac_text_settings *settings = text ? gqac_text_get_settings(text) : NULL;
    if (settings && (settings->has_tokenizer || (n_stop && settings->tokenizer_refusal)))
        return gqac_text_stream_create(text, &r->stream, diag);
    if (n_stop) {
        gqac_diag_set(diag, GQAC_USAGE, "stop texts need a tokenizer, but there is none");
        gqac_diag_hint(diag, "pass the folder of the model, with tokenizer.json");
        return GQAC_USAGE;
    }
    return GQAC_OK;
}

void reply_close(reply *r) {
    for (int i = 0; i < r->n_stop; i++)
        gqac_free(r->stops[i].back);
    gqac_free(r->stops);
    gqac_str_free(&r->text);
    gqac_text_stream_free(r->stream);
    *r = (reply){0};
}

/* ---- text ---------------------------------------------------------------- */

/* Bytes of `piece` up to the end of the first stop text, and *cut its length; without one all
 * bytes, and 0. */
static size_t follow(reply *r, const char *piece, size_t length, size_t *cut) {
    *cut = 0;
    for (size_t at = 0; at < length; at++) {
        for (int i = 0; i < r->n_stop; i++) {
            reply_stop *s = &r->stops[i];
            s->matched = advance(s, s->matched, piece[at]);
            if (s->matched == s->length && s->length > *cut)
                *cut = s->length;
        }
        if (*cut)
            return at + 1;
    }
    return length;
}

static gqac_status add(reply *r, const char *piece, size_t length, gqac_diag *diag) {
    size_t cut = 0;
    if (r->stopped || !length)
        return GQAC_OK;
    const size_t taken = follow(r, piece, length, &cut);
    gqac_str_append_n(&r->text, piece, taken);
    if (r->text.failed)
        return gqac_diag_oom(diag, "the text of an answer");
    if (cut) {
        r->text.length -= cut;
        r->text.text[r->text.length] = 0;
        r->stopped = true;
    }
    return GQAC_OK;
}

/* Adds the name of a special token that marks calls. */
static gqac_status add_marker(reply *r, int64_t id, gqac_diag *diag) {
    char *name = NULL;
    size_t length = 0;
    bool special = false;
    GQAC_TRY(gqac_text_token_bytes(r->source, id, &name, &length, &special, diag));
    gqac_status status = GQAC_OK;
    if (special && call_syntax_marks(r->shown, name, length))
        status = add(r, name, length, diag);
    gqac_release(name);
    return status;
}

gqac_status reply_push(reply *r, int64_t id, gqac_diag *diag) {
    const char *piece = NULL;
    size_t length = 0;
    if (!r->stream)
        return GQAC_OK;
    const gqac_status status = gqac_text_stream_push(r->stream, id, &piece, &length, diag);
    if (status == GQAC_OUT_OF_RANGE) /* models have more logits than their tokenizers have ids */
        return GQAC_OK;
    GQAC_TRY(status);
    if (r->shown && !length)
        return add_marker(r, id, diag);
    return add(r, piece, length, diag);
}

gqac_status reply_finish(reply *r, gqac_diag *diag) {
    const char *piece = NULL;
    size_t length = 0;
    if (!r->stream || r->stopped)
        return GQAC_OK;
    GQAC_TRY(gqac_text_stream_finish(r->stream, &piece, &length, diag));
    return add(r, piece, length, diag);
}

const char *reply_take(reply *r, bool all, size_t *length) {
    size_t held = 0;
    for (int i = 0; i < r->n_stop && !all && !r->stopped; i++)
        held = r->stops[i].matched > held ? r->stops[i].matched : held;
    const size_t from = r->returned;
    r->returned = r->text.length - held;
    *length = r->returned - from;
    return *length ? r->text.text + from : "";
}

/* ---- for loops of one's own ---------------------------------------------- */

struct gqac_reply {
    reply inner;
    bool finished;
};

gqac_status gqac_reply_create(const gqac_text *text, int n_stop, const char *const *stop,
                              gqac_reply **out, gqac_diag *diag) {
    gqac_reply *r = gqac_calloc(1, sizeof *r);
    if (!r)
        return gqac_diag_oom(diag, "the text of an answer");
    GQAC_RETURN_MADE(reply_open(&r->inner, text, n_stop, stop, diag), r, out, gqac_reply_free);
}

void gqac_reply_show_calls(gqac_reply *r, const gqac_calls *calls) {
    r->inner.shown = calls_syntax(calls);
}

void gqac_reply_free(gqac_reply *r) {
    if (!r)
        return;
    reply_close(&r->inner);
    gqac_free(r);
}

gqac_status gqac_reply_push(gqac_reply *r, int64_t id, gqac_diag *diag) {
    return reply_push(&r->inner, id, diag);
}

gqac_status gqac_reply_finish(gqac_reply *r, gqac_diag *diag) {
    r->finished = true;
    return reply_finish(&r->inner, diag);
}

bool gqac_reply_stopped(const gqac_reply *r) {
    return r->inner.stopped;
}

const char *gqac_reply_take(gqac_reply *r, size_t *length) {
    return reply_take(&r->inner, r->finished, length);
}

const char *gqac_reply_text(const gqac_reply *r, size_t *length) {
    *length = r->inner.text.length;
    return *length ? r->inner.text.text : "";
}
