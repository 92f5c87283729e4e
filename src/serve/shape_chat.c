/* Replies of /v1/chat/completions. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

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

/* An id that fits templates that demand nine letters or digits. */
static void name_call(char id[10]) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    static uint64_t count;
    unsigned char random[9];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random) {
        count++;
        for (size_t i = 0; i < sizeof random; i++)
            random[i] = (unsigned char)(count >> (4 * i) & 15);
    }
    for (size_t i = 0; i < sizeof random; i++)
        id[i] = digits[random[i] % (sizeof digits - 1)];
    id[9] = '\0';
}

static json_t *call_json(leg *l, const gqac_call_part *part, bool whole) {
    char id[10];
    name_call(id);
    json_t *call =
        json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", part->id ? part->id : id, "type", "function",
                  "function", "name", part->name, "arguments", part->arguments);
    if (call && !whole)
        json_object_set_new(call, "index", json_integer(l->n_calls));
    l->n_calls++;
    return call;
}

/* Divides what is new of an answer into content and calls. False: no memory. */
static bool divide(leg *l, const fresh *f, bool whole, bytes *content, json_t *calls) {
    gqac_call_part part;
    gqac_diag diag = {0};
    bool fine = gqac_calls_push(l->calls, f->text ? f->text : "", f->length, &diag) == GQAC_OK &&
                (!f->last || gqac_calls_finish(l->calls, &diag) == GQAC_OK);
    while (fine && gqac_calls_next(l->calls, &part)) {
        if (!part.text) {
            fine = json_array_append_new(calls, call_json(l, &part, whole)) == 0;
            continue;
        }
        char *more = realloc(content->data, content->n + part.length);
        fine = more;
        if (more) {
            memcpy(more + content->n, part.text, part.length);
            content->data = more;
            content->n += part.length;
        }
    }
    return fine;
}

/* Adds content and calls to a message, or to what is new of one. */
static bool add_content(json_t *message, leg *l, const fresh *f, bool whole) {
    bytes content = {0};
    json_t *calls = l->calls ? json_array() : NULL;
    const bool fine = !l->calls || divide(l, f, whole, &content, calls);
    const bytes shown = l->calls ? content : (bytes){.data = f->text, .n = f->length};
    if (whole && !shown.n && l->n_calls)
        json_object_set_new(message, "content", json_null());
    else if (whole || shown.n || !l->begun)
        json_object_set_new(message, "content", shape_text(shown.n ? shown.data : "", shown.n));
    if (json_array_size(calls))
        json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    free(content.data);
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
