/* Replies that are a list of choices, one for each answer: those of chats and completions. */
#include "serve/serve_impl.h"

static json_t *reply_json(const job *j, const char *object, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", j->id, "object", object, "created",
                     (json_int_t)j->created, "model", j->server->model.name, "system_fingerprint",
                     j->server->fingerprint, "choices", choices);
}

json_t *shape_choices(job *j) {
    json_t *choices = json_array();
    for (int i = 0; i < j->n_answers; i++) {
        fresh f = shape_take(&j->legs[i]);
        const bool added = !f.failed && json_array_append_new(
                                            choices, j->shape->choice(&j->legs[i], &f, true)) == 0;
        shape_free(&f);
        if (!added) {
            json_decref(choices);
            return NULL;
        }
    }
    json_t *reply = reply_json(j, j->shape->object, choices);
    json_object_set_new(reply, "usage", shape_usage(j));
    if (j->verify)
        json_object_set_new(reply, "verify_cache", shape_verified(j));
    return reply;
}

/* ---- streams ------------------------------------------------------------- */

static bool send_choice(job *j, leg *l) {
    fresh f = shape_take(l);
    bool sent = !f.failed;
    if (sent && !l->finished && (f.n || f.length || f.last)) {
        json_t *reply =
            reply_json(j, j->shape->chunk, json_pack("[o]", j->shape->choice(l, &f, false)));
        if (j->usage)
            json_object_set_new(reply, "usage", json_null());
        sent = shape_send(j, "", reply);
    }
    shape_free(&f);
    return sent;
}

/* How much of the prompts is computed, if that is wanted and new; a chunk without choices. */
static bool send_progress(job *j) {
    json_int_t total = 0, reused = 0, done = 0;
    pthread_mutex_lock(&j->server->lock);
    const bool fresh = j->progress && j->progressed;
    for (int i = 0; i < j->n_prompts; i++) {
        total += (json_int_t)j->prompts[i].n;
        reused += j->prompts[i].reused;
        done += j->prompts[i].done;
    }
    j->progressed = false;
    pthread_mutex_unlock(&j->server->lock);
    if (!fresh)
        return true;
    json_t *reply = reply_json(j, j->shape->chunk, json_array());
    json_object_set_new(
        reply, "prompt_progress",
        json_pack("{s:I, s:I, s:I}", "total", total, "cache", reused, "processed", done));
    return shape_send(j, "", reply);
}

/* Verification and usage, if they are wanted, in a chunk without choices, and the end. */
static bool send_end(job *j) {
    static const char done[] = "data: [DONE]\n\n";
    if (j->usage || j->verify) {
        json_t *reply = reply_json(j, j->shape->chunk, json_array());
        json_object_set_new(reply, "usage", j->usage ? shape_usage(j) : json_null());
        if (j->verify)
            json_object_set_new(reply, "verify_cache", shape_verified(j));
        if (!shape_send(j, "", reply))
            return false;
    }
    return !memory_ran_out() && http_stream_send(j->x, done, sizeof done - 1);
}

bool shape_stream_choices(job *j, bool last) {
    for (int i = 0; i < j->n_answers; i++)
        if (!send_choice(j, &j->legs[i]))
            return false;
    return send_progress(j) && (!last || send_end(j));
}
