/* Replies of /v1/chat/completions. */
#include <stdlib.h>

#include "serve/serve_impl.h"

static json_t *bytes_json(const serve *s, int64_t id) {
    char *own = NULL;
    size_t n = 0;
    json_t *list = json_array();
    if (gqac_text_token_bytes(s->model.text, id, &own, &n, NULL, NULL) == GQAC_OK)
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

/* A choice with a message, or with what is new of one. */
static json_t *choice_json(leg *l, const fresh *f, bool whole) {
    json_t *message = json_object();
    if (!l->begun)
        json_object_set_new(message, "role", json_string("assistant"));
    if (whole || f->length || !l->begun)
        json_object_set_new(message, "content", shape_text(f->text ? f->text : "", f->length));
    if (whole)
        json_object_set_new(message, "refusal", json_null());
    json_t *choice =
        json_pack("{s:i, s:o, s:o, s:s?}", "index", l->index, whole ? "message" : "delta", message,
                  "logprobs", l->owner->scores ? scores_json(l->owner->server, f) : json_null(),
                  "finish_reason", f->last ? shape_finish(l) : NULL);
    if (choice)
        shape_add_ids(choice, l, f, !l->begun);
    l->begun = true;
    l->finished = f->last;
    return choice;
}

const job_shape shape_chat = {.prefix = "chatcmpl-",
                              .ask = ask_chat,
                              .whole = shape_choices,
                              .stream = shape_stream_choices,
                              .object = "chat.completion",
                              .chunk = "chat.completion.chunk",
                              .choice = choice_json};
