/* Replies of /v1/completions, with the log-probabilities of OpenAI's older API: lists of tokens,
 * values, alternatives and offsets. An offset counts characters of the text, an echoed prompt
 * included. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/serve_impl.h"

typedef struct lists {
    json_t *tokens, *values, *top, *offsets;
} lists;

static size_t characters(const char *text, size_t length) {
    size_t n = 0;
    for (size_t i = 0; i < length; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* Adds a token of which `of` (NULL: nothing) is known. */
static void add(const serve *s, lists *all, int64_t id, const scored *of, size_t offset) {
    size_t length = 0;
    char *text = shape_token(s, id, &length);
    json_t *top = of && of->n_top ? json_object() : json_null();
    for (int i = 0; of && i < of->n_top; i++) {
        size_t n = 0;
        char *other = shape_token(s, of->top[i].id, &n);
        if (other && !json_object_getn(top, other, n))
            json_object_setn_new(top, other, n, shape_real(of->top[i].log_probability));
        free(other);
    }
    if (text && of && of->n_top)
        json_object_setn_new(top, text, length, shape_real(of->log_probability));
    json_array_append_new(all->tokens, shape_text(text ? text : "", length));
    json_array_append_new(all->values, of ? shape_real(of->log_probability) : json_null());
    json_array_append_new(all->top, top);
    json_array_append_new(all->offsets, json_integer((json_int_t)offset));
    free(text);
}

/* The number of bytes that a token has at the beginning of `text`, which has `left` bytes; a
 * special token that is not spelled there has none. */
static size_t bytes_at(const serve *s, int64_t id, const char *text, size_t left) {
    size_t n = 0;
    bool special = false;
    char *own = shape_bytes(s, id, &n, &special);
    if (special && text && (n > left || memcmp(own, text, n) != 0))
        n = 0;
    gqac_release(own);
    return n < left ? n : left;
}

static void add_prompt(const leg *l, lists *all) {
    const serve *s = l->owner->server;
    const prompt *p = l->prompt;
    for (size_t i = 0, at = 0, offset = 0; i < p->n; i++) {
        const scored *of = i && i <= p->rows.n ? &p->rows.list[i - 1] : NULL;
        const size_t step = bytes_at(s, p->ids[i], p->text + at, p->length - at);
        add(s, all, p->ids[i], of, offset);
        offset += characters(p->text + at, step);
        at += step;
    }
}

static void add_answer(leg *l, const fresh *f, lists *all) {
    const serve *s = l->owner->server;
    for (size_t i = 0; i < f->n; i++) {
        const scored *of = &f->list[i];
        size_t length = 0;
        bool special = false;
        add(s, all, of->id, of, l->offset);
        char *own = shape_bytes(s, of->id, &length, &special);
        l->offset += special ? 0 : characters(own, length);
        gqac_release(own);
    }
}

/* A choice with what is new of an answer; whole replies and chunks have the same form. */
static json_t *choice_json(leg *l, const fresh *f, bool whole) {
    (void)whole;
    const job *j = l->owner;
    const bool echo = j->echo && !l->begun;
    lists all = {json_array(), json_array(), json_array(), json_array()};
    if (echo)
        l->offset = characters(l->prompt->text, l->prompt->length);
    if (j->scores && echo)
        add_prompt(l, &all);
    if (j->scores)
        add_answer(l, f, &all);
    json_t *scores = json_pack("{s:o, s:o, s:o, s:o}", "tokens", all.tokens, "token_logprobs",
                               all.values, "top_logprobs", all.top, "text_offset", all.offsets);
    char *text = malloc(f->length + l->prompt->length + 1);
    if (!text)
        memory_note();
    const size_t before = echo && text ? l->prompt->length : 0;
    if (before)
        memcpy(text, l->prompt->text, before);
    if (text && f->length)
        memcpy(text + before, f->text, f->length);
    json_t *choice = json_pack("{s:i, s:o, s:O, s:s?}", "index", l->index, "text",
                               shape_text(text ? text : "", text ? before + f->length : 0),
                               "logprobs", j->scores ? scores : json_null(), "finish_reason",
                               f->last ? shape_finish(l) : NULL);
    json_decref(scores);
    free(text);
    return shape_end_choice(choice, l, f);
}

const job_shape shape_completion = {.prefix = "cmpl-",
                                    .ask = ask_completion,
                                    .whole = shape_choices,
                                    .stream = shape_stream_choices,
                                    .object = "text_completion",
                                    .chunk = "text_completion",
                                    .choice = choice_json};
