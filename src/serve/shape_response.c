/* Replies of /v1/responses: messages of text and calls of functions, in the order of the answer, as
 * OpenAI's newer API has them. */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_impl.h"

/* ---- items --------------------------------------------------------------- */

static json_t *part_json(const char *text, size_t length) {
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text",
                     shape_text(text ? text : "", length), "annotations", "logprobs");
}

/* The message after the items that are complete. */
static json_t *message_json(const job *j, const char *status, json_t *content) {
    const size_t index = json_array_size(j->items);
    char id[60];
    snprintf(id, sizeof id, index ? "msg_%s_%zu" : "msg_%s", j->id + strlen(j->shape->prefix),
             index);
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", id, "status", status,
                     "role", "assistant", "content", content);
}

static json_t *call_json(const gqac_call_part *part, const char *status, const char *arguments) {
    json_t *call =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "type", "function_call", "call_id", part->id,
                  "status", status, "name", part->name, "arguments", arguments);
    if (call)
        json_object_set_new(call, "id", json_sprintf("fc_%s", part->id));
    return call;
}

/* ---- the reply ----------------------------------------------------------- */

static json_t *usage_json(const job *j) {
    json_t *usage = shape_usage(j);
    const json_t *details = json_object_get(usage, "completion_tokens_details");
    json_t *own = json_pack("{s:O, s:O, s:O, s:{s:O}, s:O}", "input_tokens",
                            json_object_get(usage, "prompt_tokens"), "input_tokens_details",
                            json_object_get(usage, "prompt_tokens_details"), "output_tokens",
                            json_object_get(usage, "completion_tokens"), "output_tokens_details",
                            "reasoning_tokens", json_object_get(details, "reasoning_tokens"),
                            "total_tokens", json_object_get(usage, "total_tokens"));
    json_decref(usage);
    return own;
}

/* Copies a field of the request to the reply, or, if it is absent, `otherwise`, which is taken
 * over. */
static void echo(json_t *reply, const job *j, const char *name, json_t *otherwise) {
    json_t *given = fields_get(j->root, name);
    json_object_set(reply, name, given ? given : otherwise);
    json_decref(otherwise);
}

/* `output` is a list of items. While the answer is not complete there is no usage. */
static json_t *response_json(const job *j, const char *status, json_t *output) {
    const bool ended = strcmp(status, "in_progress") != 0, cut = !strcmp(status, "incomplete");
    json_t *asked = fields_get(fields_get(j->root, "text"), "format");
    json_t *format = asked ? json_incref(asked) : json_pack("{s:s}", "type", "text");
    json_t *reply = json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:o, s:o}", "id", j->id, "object",
                              "response", "created_at", (json_int_t)j->created, "status", status,
                              "model", j->server->model.name, "error", "incomplete_details",
                              cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(),
                              "output", output);
    json_t *more = json_pack("{s:s, s:f, s:f, s:n, s:b, s:{s:O}, s:s}", "system_fingerprint",
                             j->server->fingerprint, "temperature", j->sampling.temperature,
                             "top_p", j->sampling.top_p, "previous_response_id", "store", 0, "text",
                             "format", format, "truncation", "disabled");
    json_decref(format);
    json_object_update(reply, more);
    json_decref(more);
    echo(reply, j, "instructions", json_null());
    echo(reply, j, "max_output_tokens", json_null());
    echo(reply, j, "metadata", json_object());
    echo(reply, j, "reasoning", json_null());
    echo(reply, j, "tools", json_array());
    echo(reply, j, "tool_choice", json_string("auto"));
    echo(reply, j, "parallel_tool_calls", json_true());
    json_object_set_new(reply, "usage", ended ? usage_json(j) : json_null());
    if (ended && j->verify)
        json_object_set_new(reply, "verify_cache", shape_verified(j));
    if (ended && j->ids_wanted)
        json_object_set_new(reply, "token_ids",
                            shape_ids(j->legs[0].tokens.list, j->legs[0].tokens.n));
    return reply;
}

static const char *status_of(const job *j) {
    return j->legs[0].finish == GQAC_FINISH_LENGTH ? "incomplete" : "completed";
}

/* ---- events -------------------------------------------------------------- */

/* Sends an event of a stream; `value` gets its type and number, and is freed. A reply that is sent
 * whole has no events. */
static bool send_event(job *j, const char *type, json_t *value) {
    if (!j->stream) {
        json_decref(value);
        return true;
    }
    json_object_set_new(value, "type", json_string(type));
    json_object_set_new(value, "sequence_number", json_integer(j->sequence++));
    return shape_send(j, type, value);
}

/* An event about an item, which has an id and is the next one. */
static json_t *about(const job *j, json_t *item) {
    json_t *value = json_pack("{s:O, s:i}", "item_id", json_object_get(item, "id"), "output_index",
                              (int)json_array_size(j->items));
    json_decref(item);
    return value;
}

static json_t *about_part(const job *j) {
    json_t *value = about(j, message_json(j, "in_progress", json_array()));
    json_object_set_new(value, "content_index", json_integer(0));
    return value;
}

/* An event that has an item. */
static bool send_item(job *j, const char *type, json_t *item) {
    return send_event(
        j, type,
        json_pack("{s:i, s:o}", "output_index", (int)json_array_size(j->items), "item", item));
}

static bool send_response(job *j, const char *status, json_t *output) {
    const char *word = j->sequence ? status : "created"; /* which is in progress, too */
    char type[40];
    snprintf(type, sizeof type, "response.%s", word);
    return send_event(j, type, json_pack("{s:o}", "response", response_json(j, status, output)));
}

/* ---- the parts of an answer ---------------------------------------------- */

static bool open_message(job *j) {
    json_t *part;
    if (j->saying)
        return true;
    j->saying = true;
    j->n_said = 0;
    bool sent =
        send_item(j, "response.output_item.added", message_json(j, "in_progress", json_array()));
    part = about_part(j);
    json_object_set_new(part, "part", part_json("", 0));
    return send_event(j, "response.content_part.added", part) && sent;
}

static bool say(job *j, const char *text, size_t length) {
    if (!open_message(j))
        return false;
    char *said = realloc(j->said, j->n_said + length);
    if (!said)
        return false;
    memcpy(said + j->n_said, text, length);
    j->said = said;
    j->n_said += length;
    json_t *value = about_part(j);
    json_object_set_new(value, "delta", shape_text(text, length));
    json_object_set_new(value, "logprobs", json_array());
    return send_event(j, "response.output_text.delta", value);
}

static bool close_message(job *j, const char *status) {
    if (!j->saying)
        return true;
    json_t *text = about_part(j), *part = about_part(j);
    json_t *item = message_json(j, status, json_pack("[o]", part_json(j->said, j->n_said)));
    json_object_set_new(text, "text", shape_text(j->said ? j->said : "", j->n_said));
    json_object_set_new(text, "logprobs", json_array());
    json_object_set_new(part, "part", part_json(j->said, j->n_said));
    bool sent = send_event(j, "response.output_text.done", text);
    sent = send_event(j, "response.content_part.done", part) && sent;
    sent = send_item(j, "response.output_item.done", json_incref(item)) && sent;
    j->saying = false;
    return json_array_append_new(j->items, item) == 0 && sent;
}

static bool add_call(job *j, const gqac_call_part *part) {
    json_t *item = call_json(part, "completed", part->arguments);
    json_t *delta = about(j, json_incref(item)), *done = about(j, json_incref(item));
    json_object_set_new(delta, "delta", json_string(part->arguments));
    json_object_set_new(done, "arguments", json_string(part->arguments));
    json_object_set_new(done, "name", json_string(part->name));
    bool sent = send_item(j, "response.output_item.added", call_json(part, "in_progress", ""));
    sent = send_event(j, "response.function_call_arguments.delta", delta) && sent;
    sent = send_event(j, "response.function_call_arguments.done", done) && sent;
    sent = send_item(j, "response.output_item.done", json_incref(item)) && sent;
    return json_array_append_new(j->items, item) == 0 && sent;
}

static bool add_part(void *arg, const gqac_call_part *part) {
    job *j = arg;
    if (part->text)
        return say(j, part->text, part->length);
    return close_message(j, "completed") && add_call(j, part);
}

/* Takes what is new of the answer; at its end, an answer without parts is an empty message. */
static bool take(job *j, bool last) {
    leg *l = &j->legs[0];
    if (!j->items)
        j->items = json_array();
    fresh f = shape_take(l);
    bool fine = !f.failed && shape_divide(l, &f, add_part, j);
    shape_free(&f);
    if (fine && last && !json_array_size(j->items))
        fine = open_message(j);
    return fine && (!last || close_message(j, status_of(j)));
}

static json_t *whole(job *j) {
    return take(j, true) ? response_json(j, status_of(j), json_incref(j->items)) : NULL;
}

static bool stream(job *j, bool last) {
    leg *l = &j->legs[0];
    bool sent = l->begun || (send_response(j, "in_progress", json_array()) &&
                             send_response(j, "in_progress", json_array()));
    l->begun = true;
    sent = sent && take(j, last);
    return sent && (!last || send_response(j, status_of(j), json_incref(j->items)));
}

const job_shape shape_response = {
    .prefix = "resp_", .ask = ask_response, .whole = whole, .stream = stream};
