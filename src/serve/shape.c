/* What replies of all shapes have in common. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/serve_impl.h"

json_t *shape_text(const char *text, size_t length) {
    json_t *value = json_stringn(text, length);
    for (; !value && length && !memory_ran_out(); value = json_stringn(text, --length)) {
        /* a message that was cut in the middle of a character */
    }
    return value ? value : json_string("");
}

fresh shape_take(leg *l) {
    serve *s = l->owner->server;
    pthread_mutex_lock(&s->lock);
    const size_t n = l->tokens.n - l->sent;
    fresh f = {.list = n ? malloc(n * sizeof *f.list) : NULL};
    f.failed = n && !f.list;
    if (!f.failed) {
        if (n) /* the list moves when it grows */
            memcpy(f.list, l->tokens.list + l->sent, n * sizeof *f.list);
        f.text = l->text.data;
        f.length = l->text.n;
        f.n = n;
        f.last = l->ended;
        l->text = (bytes){0};
        l->sent = l->tokens.n;
    }
    pthread_mutex_unlock(&s->lock);
    return f;
}

void shape_free(fresh *f) {
    free(f->text);
    free(f->list);
}

json_t *shape_real(double value) {
    return json_real(isfinite(value) ? value : -9999.0);
}

const char *shape_finish(const leg *l) {
    return l->finish == GQAC_FINISH_LENGTH ? "length" : "stop";
}

json_t *shape_usage(const job *j) {
    int64_t prompts = 0, reused = 0, answers = 0, thoughts = 0, drafted = 0, accepted = 0;
    pthread_mutex_lock(&j->server->lock);
    for (int i = 0; i < j->n_prompts; i++) {
        prompts += (int64_t)j->prompts[i].n;
        reused += j->prompts[i].reused;
    }
    for (int i = 0; i < j->n_answers; i++) {
        answers += (int64_t)j->legs[i].tokens.n;
        thoughts += j->legs[i].thoughts;
        drafted += j->legs[i].drafted;
        accepted += j->legs[i].accepted;
    }
    pthread_mutex_unlock(&j->server->lock);
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I, s:I, s:I}}", "prompt_tokens",
                     (json_int_t)prompts, "completion_tokens", (json_int_t)answers, "total_tokens",
                     (json_int_t)prompts + answers, "prompt_tokens_details", "cached_tokens",
                     (json_int_t)reused, "completion_tokens_details", "reasoning_tokens",
                     (json_int_t)thoughts, "accepted_prediction_tokens", (json_int_t)accepted,
                     "rejected_prediction_tokens", (json_int_t)(drafted - accepted));
}

char *shape_bytes(const serve *s, int64_t id, size_t *length, bool *special) {
    char *bytes = NULL;
    gqac_diag diag = {0};
    *length = 0;
    if (gqac_text_token_bytes(s->model.text, id, &bytes, length, special, &diag) == GQAC_NO_MEMORY)
        memory_note();
    return bytes;
}

char *shape_token(const serve *s, int64_t id, size_t *length) {
    char *bytes = shape_bytes(s, id, length, NULL);
    json_t *valid = json_stringn(bytes ? bytes : "", *length);
    char *text = malloc(valid ? *length + 1 : 4 * *length + 7);
    if (!text)
        memory_note();
    if (text && !bytes) {
        *text = '\0';
    } else if (text && valid) {
        memcpy(text, bytes, *length + 1);
    } else if (text) {
        size_t n = (size_t)sprintf(text, "bytes:");
        for (size_t i = 0; i < *length; i++)
            n += (size_t)sprintf(text + n, "\\x%02x", (unsigned char)bytes[i]);
        *length = n;
    }
    json_decref(valid);
    gqac_release(bytes);
    return text;
}

json_t *shape_ids(const scored *tokens, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(tokens[i].id));
    return list;
}

static void add_ids(json_t *choice, const leg *l, const fresh *f) {
    const prompt *p = l->prompt;
    if (!l->owner->ids_wanted)
        return;
    json_object_set_new(choice, "token_ids", shape_ids(f->list, f->n));
    if (l->begun)
        return;
    json_t *list = json_array();
    for (size_t i = 0; i < p->n; i++)
        json_array_append_new(list, json_integer(p->ids[i]));
    json_object_set_new(choice, "prompt_token_ids", list);
}

json_t *shape_end_choice(json_t *choice, leg *l, const fresh *f) {
    if (choice)
        add_ids(choice, l, f);
    l->begun = true;
    l->finished = f->last;
    return choice;
}

json_t *shape_verified(const job *j) {
    int64_t ids = 0, differing = 0, rows = 0;
    for (int i = 0; i < j->n_answers; i++) {
        const leg *warm = &j->legs[i], *cold = &j->legs[j->n_answers + i];
        const size_t a = warm->tokens.n, b = cold->tokens.n;
        for (size_t k = 0; k < (a > b ? a : b); k++, ids++)
            differing += k >= a || k >= b || warm->tokens.list[k].id != cold->tokens.list[k].id;
        rows += warm->check != cold->check;
    }
    return json_pack("{s:b, s:I, s:I, s:b}", "equal", !differing && !rows, "tokens",
                     (json_int_t)ids, "differing_ids", (json_int_t)differing, "same_logits",
                     rows == 0);
}

char *shape_dump(const json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    if (text)
        gqac_json_shorten(text);
    return text;
}

bool shape_send(job *j, const char *event, json_t *value) {
    char *text = shape_dump(value);
    json_decref(value);
    const size_t n = text ? strlen(text) + strlen(event) + 32 : 0;
    char *line = n && !memory_ran_out() ? malloc(n) : NULL;
    const int length = line ? snprintf(line, n, "%s%s%sdata: %s\n\n", *event ? "event: " : "",
                                       event, *event ? "\n" : "", text)
                            : -1;
    if (!line)
        memory_note();
    const bool sent = length > 0 && http_stream_send(j->x, line, (size_t)length);
    j->sent = serve_seconds();
    free(line);
    free(text);
    return sent;
}
