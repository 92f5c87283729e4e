/* Replies of /v1/chat/completions. */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_impl.h"

static json_t *bytes_json(const serve *s, int64_t id) {
    size_t n = 0;
    json_t *list = json_array();
    char *own = shape_bytes(s, id, &n, NULL);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((unsigned char)own[i]));
    gqac_release(own);
    return list;
}

static json_t *token_json(const serve *s, int64_t id, double log_probability) {
    size_t n = 0;
    char *text = shape_token(s, id, &n);
    json_t *token =
        json_pack("{s:o, s:o, s:o}", "token", shape_text(text ? text : "", text ? n : 0), "logprob",
                  shape_real(log_probability), "bytes", bytes_json(s, id));
    free(text);
    return token;
}

static json_t *scores_json(const serve *s, const fresh *f) {
    json_t *list = json_array();
    for (size_t i = 0; i < f->n; i++) {
        const scored *of = &f->list[i];
        json_t *token = token_json(s, of->id, of->log_probability), *top = json_array();
        for (int k = 0; k < of->n_top; k++)
            json_array_append_new(top, token_json(s, of->top[k].id, of->top[k].log_probability));
        json_object_set_new(token, "top_logprobs", top);
        json_array_append_new(list, token);
    }
    return json_pack("{s:o, s:n}", "content", list, "refusal");
}

static json_t *call_json(const gqac_call_part *part, int index) {
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", part->id, "type", "function",
                             "function", "name", part->name, "arguments", part->arguments);
    if (call && index >= 0)
        json_object_set_new(call, "index", json_integer(index));
    return call;
}

/* The new parts of a message. */
typedef struct news {
    const leg *leg;
    bool whole;
    bytes content;
    json_t *calls;
} news;

static bool add_part(void *arg, const gqac_call_part *part) {
    news *x = arg;
    if (!part->text)
        return json_array_append_new(x->calls, call_json(part, x->whole ? -1 : x->leg->n_calls)) ==
               0;
    char *more = realloc(x->content.data, x->content.n + part->length);
    if (!more)
        return false;
    memcpy(more + x->content.n, part->text, part->length);
    x->content.data = more;
    x->content.n += part->length;
    return true;
}

/* Adds content and calls to a message, or to what is new of one. */
static bool add_content(json_t *message, leg *l, const fresh *f, bool whole) {
    news x = {.leg = l, .whole = whole, .calls = json_array()};
    const bool fine = x.calls && shape_divide(l, f, add_part, &x);
    if (whole && !x.content.n && l->n_calls)
        json_object_set_new(message, "content", json_null());
    else if (whole || x.content.n || !l->begun)
        json_object_set_new(message, "content",
                            shape_text(x.content.n ? x.content.data : "", x.content.n));
    if (json_array_size(x.calls))
        json_object_set(message, "tool_calls", x.calls);
    json_decref(x.calls);
    free(x.content.data);
    return fine;
}

static const char *finish_of(const leg *l) {
    return l->n_calls && l->finish != GQAC_FINISH_LENGTH ? "tool_calls" : shape_finish(l);
}

/* A choice with a message, or with what is new of one; NULL: no memory. */
static json_t *choice_json(leg *l, const fresh *f, bool whole) {
    json_t *message = json_object();
    if (!l->begun)
        json_object_set_new(message, "role", json_string("assistant"));
    if (!add_content(message, l, f, whole)) {
        json_decref(message);
        return NULL;
    }
    if (whole)
        json_object_set_new(message, "refusal", json_null());
    json_t *choice =
        json_pack("{s:i, s:o, s:o, s:s?}", "index", l->index, whole ? "message" : "delta", message,
                  "logprobs", l->owner->scores ? scores_json(l->owner->server, f) : json_null(),
                  "finish_reason", f->last ? finish_of(l) : NULL);
    return shape_end_choice(choice, l, f);
}

const job_shape shape_chat = {.prefix = "chatcmpl-",
                              .ask = ask_chat,
                              .whole = shape_choices,
                              .stream = shape_stream_choices,
                              .object = "chat.completion",
                              .chunk = "chat.completion.chunk",
                              .choice = choice_json};
