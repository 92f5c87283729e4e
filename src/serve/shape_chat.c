/* Replies of /v1/chat/completions. */
#include <stdlib.h>
#include <string.h>

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

/* A choice whose message, or part of one, is under `name`. */
static json_t *choice_json(leg *l, const fresh *f, const char *name) {
    const bool whole = !strcmp(name, "message");
    json_t *message = json_object();
    if (!l->begun)
        json_object_set_new(message, "role", json_string("assistant"));
    if (whole || f->length || !l->begun)
        json_object_set_new(message, "content", shape_text(f->text ? f->text : "", f->length));
    if (whole)
        json_object_set_new(message, "refusal", json_null());
    json_t *choice =
        json_pack("{s:i, s:o, s:o, s:s?}", "index", l->index, name, message, "logprobs",
                  l->owner->scores ? scores_json(l->owner->server, f) : json_null(),
                  "finish_reason", f->last ? shape_finish(l) : NULL);
    if (choice)
        shape_add_ids(choice, l, f, !l->begun);
    l->begun = true;
    l->finished = f->last;
    return choice;
}

static json_t *object_json(const job *j, const char *object, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", j->id, "object", object, "created",
                     (json_int_t)j->created, "model", j->server->model.name, "system_fingerprint",
                     j->server->fingerprint, "choices", choices);
}

static json_t *chunk_json(const job *j, json_t *choices) {
    return object_json(j, "chat.completion.chunk", choices);
}

static json_t *whole(job *j) {
    json_t *choices = json_array();
    for (int i = 0; i < j->n_answers; i++) {
        fresh f = shape_take(&j->legs[i]);
        if (f.failed) {
            json_decref(choices);
            return NULL;
        }
        json_array_append_new(choices, choice_json(&j->legs[i], &f, "message"));
        shape_free(&f);
    }
    json_t *reply = object_json(j, "chat.completion", choices);
    json_object_set_new(reply, "usage", shape_usage(j));
    if (j->verify)
        json_object_set_new(reply, "verify_cache", shape_verified(j));
    return reply;
}

static bool send_choice(job *j, leg *l) {
    fresh f = shape_take(l);
    bool sent = !f.failed;
    if (sent && !l->finished && (f.n || f.length || f.last)) {
        json_t *reply = chunk_json(j, json_pack("[o]", choice_json(l, &f, "delta")));
        if (j->usage)
            json_object_set_new(reply, "usage", json_null());
        sent = shape_send(j, "", reply);
    }
    shape_free(&f);
    return sent;
}

static bool stream(job *j, bool last) {
    for (int i = 0; i < j->n_answers; i++)
        if (!send_choice(j, &j->legs[i]))
            return false;
    return shape_progress(j, chunk_json) && (!last || shape_stream_end(j, chunk_json));
}

const job_shape shape_chat = {"/v1/chat/completions", "chatcmpl-", ask_chat, whole, stream};
