/* /v1/responses, without state: one message of text, as OpenAI's newer API has it. */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_impl.h"

/* ---- the request --------------------------------------------------------- */

static bool add_message(json_t *list, const json_t *role, json_t *content) {
    return json_array_append_new(list, json_pack("{s:O, s:O}", "role", role, "content", content)) ==
           0;
}

/* The messages of `instructions` and `input`; NULL: *p says what is wrong. */
static json_t *read_messages(const job *j, problem *p) {
    json_t *input = fields_get(j->root, "input"), *instructions = NULL, *item;
    size_t i;
    json_t *list = json_array(), *system = json_string("system"), *user = json_string("user");
    bool fine = fields_type(j->root, "instructions", JSON_STRING, &instructions, p);
    if (fine && instructions)
        add_message(list, system, instructions);
    if (fine && json_is_string(input))
        add_message(list, user, input);
    else if (fine && !json_is_array(input))
        fine = problem_set(p, 400, NULL, "input", "'input' must be a text or a list of messages");
    for (i = 0; fine && i < json_array_size(input); i++) {
        item = json_array_get(input, i);
        const json_t *type = json_object_get(item, "type");
        json_t *role = json_object_get(item, "role"), *content = json_object_get(item, "content");
        if (!json_is_object(item) || !role || !content ||
            (type && (!json_is_string(type) || strcmp(json_string_value(type), "message") != 0)))
            fine =
                problem_set(p, 400, "unsupported_parameter", "input",
                            "item %zu of 'input' must be a message with 'role' and 'content'", i);
        else
            add_message(list, role, content);
    }
    json_decref(system);
    json_decref(user);
    if (fine)
        return list;
    json_decref(list);
    return NULL;
}

/* Tools as chats have them: what describes the function is under "function". */
static json_t *nest_tools(const json_t *tools) {
    size_t i;
    json_t *tool, *list = json_array();
    json_array_foreach(tools, i, tool) {
        const char *type = json_string_value(json_object_get(tool, "type"));
        const bool flat = type && !strcmp(type, "function") && !json_object_get(tool, "function");
        json_array_append_new(
            list, flat ? json_pack("{s:s, s:o}", "type", type, "function", json_copy(tool))
                       : json_incref(tool));
        if (flat)
            json_object_del(json_object_get(json_array_get(list, i), "function"), "type");
    }
    return list;
}

/* What ask_render reads beside the messages. */
static bool read_variables(const job *j, json_t *variables, problem *p) {
    static const char *const same[] = {"tool_choice", "chat_template_kwargs"};
    json_t *tools = NULL, *reasoning = NULL, *include = NULL;
    if (!fields_type(j->root, "tools", JSON_ARRAY, &tools, p) ||
        !fields_type(j->root, "reasoning", JSON_OBJECT, &reasoning, p) ||
        !fields_type(j->root, "include", JSON_ARRAY, &include, p))
        return false;
    if (json_array_size(include))
        return problem_set(p, 400, "unsupported_parameter", "include",
                           "'include' is not supported by this server");
    if (json_is_true(fields_get(j->root, "store")))
        return problem_set(p, 400, "unsupported_parameter", "store",
                           "this server stores no responses: 'store' must be false");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (fields_get(j->root, same[i]))
            json_object_set(variables, same[i], fields_get(j->root, same[i]));
    if (fields_get(reasoning, "effort"))
        json_object_set(variables, "reasoning_effort", fields_get(reasoning, "effort"));
    return !tools || json_object_set_new(variables, "tools", nest_tools(tools)) == 0;
}

static bool ask_response(job *j, problem *p) {
    char *text = NULL;
    size_t length = 0;
    if (!ask_common(j, p) || !ask_make_prompts(j, 1, p) ||
        !fields_int(j->root, "max_output_tokens", 1, INT32_MAX, &j->max_new, p))
        return false;
    if (j->n != 1)
        return problem_set(p, 400, "unsupported_parameter", "n", "a response has one choice");
    json_t *messages = read_messages(j, p), *variables = json_object();
    const bool fine = messages && read_variables(j, variables, p) &&
                      ask_render(j->server, variables, messages, &text, &length, p);
    json_decref(messages);
    json_decref(variables);
    const bool known = fine && ask_tokenize(j->server, text, length, false, &j->prompts[0], p);
    gqac_release(text);
    return known && ask_fit(j, ask_chat_length(j), p);
}

/* ---- the reply ----------------------------------------------------------- */

static json_t *part_json(const char *text, size_t length) {
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text",
                     shape_text(text ? text : "", length), "annotations", "logprobs");
}

static json_t *item_json(const job *j, const char *status, json_t *content) {
    char id[48];
    snprintf(id, sizeof id, "msg_%s", j->id + strlen(j->shape->prefix));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", id, "status", status,
                     "role", "assistant", "content", content);
}

static json_t *usage_json(const job *j) {
    json_t *usage = shape_usage(j);
    json_t *own = json_pack(
        "{s:O, s:O, s:O, s:{s:i}, s:O}", "input_tokens", json_object_get(usage, "prompt_tokens"),
        "input_tokens_details", json_object_get(usage, "prompt_tokens_details"), "output_tokens",
        json_object_get(usage, "completion_tokens"), "output_tokens_details", "reasoning_tokens", 0,
        "total_tokens", json_object_get(usage, "total_tokens"));
    json_decref(usage);
    return own;
}

/* `output` is a list of items. While the answer is not complete there is no usage. */
static json_t *response_json(const job *j, const char *status, json_t *output) {
    const bool ended = strcmp(status, "in_progress") != 0, cut = !strcmp(status, "incomplete");
    json_t *tools = fields_get(j->root, "tools");
    json_t *asked = fields_get(fields_get(j->root, "text"), "format");
    json_t *format = asked ? json_incref(asked) : json_pack("{s:s}", "type", "text");
    json_t *reply =
        json_pack("{s:s, s:s, s:I, s:s, s:s, s:n, s:o, s:o, s:O*}", "id", j->id, "object",
                  "response", "created_at", (json_int_t)j->created, "status", status, "model",
                  j->server->model.name, "error", "incomplete_details",
                  cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(), "output",
                  output, "instructions", fields_get(j->root, "instructions"));
    json_t *more = json_pack("{s:s, s:f, s:f, s:s, s:b, s:n, s:b, s:{s:O}, s:s, s:{}}",
                             "system_fingerprint", j->server->fingerprint, "temperature",
                             j->sampling.temperature, "top_p", j->sampling.top_p, "tool_choice",
                             "auto", "parallel_tool_calls", 1, "previous_response_id", "store", 0,
                             "text", "format", format, "truncation", "disabled", "metadata");
    json_decref(format);
    json_object_update(reply, more);
    json_decref(more);
    json_object_set_new(reply, "tools", tools ? json_incref(tools) : json_array());
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

static json_t *whole(job *j) {
    fresh f = shape_take(&j->legs[0]);
    if (f.failed)
        return NULL;
    json_t *item = item_json(j, status_of(j), json_pack("[o]", part_json(f.text, f.length)));
    shape_free(&f);
    return response_json(j, status_of(j), json_pack("[o]", item));
}

/* ---- its events ---------------------------------------------------------- */

/* Sends an event; `value` gets its type and number, and is freed. */
static bool send_event(job *j, const char *type, json_t *value) {
    json_object_set_new(value, "type", json_string(type));
    json_object_set_new(value, "sequence_number", json_integer(j->sequence++));
    return shape_send(j, type, value);
}

/* An event about the part of the message. */
static json_t *about_part(const job *j) {
    json_t *item = item_json(j, "in_progress", json_array());
    json_t *value = json_pack("{s:O, s:i, s:i}", "item_id", json_object_get(item, "id"),
                              "output_index", 0, "content_index", 0);
    json_decref(item);
    return value;
}

static bool send_begin(job *j) {
    json_t *part = about_part(j);
    json_object_set_new(part, "part", part_json("", 0));
    const bool sent =
        send_event(j, "response.created",
                   json_pack("{s:o}", "response", response_json(j, "in_progress", json_array()))) &&
        send_event(j, "response.in_progress",
                   json_pack("{s:o}", "response", response_json(j, "in_progress", json_array()))) &&
        send_event(j, "response.output_item.added",
                   json_pack("{s:i, s:o}", "output_index", 0, "item",
                             item_json(j, "in_progress", json_array())));
    return send_event(j, "response.content_part.added", part) && sent;
}

static bool send_delta(job *j, const fresh *f) {
    json_t *value = about_part(j);
    json_object_set_new(value, "delta", shape_text(f->text, f->length));
    json_object_set_new(value, "logprobs", json_array());
    char *said = realloc(j->said, j->n_said + f->length);
    if (!said) {
        json_decref(value);
        return false;
    }
    memcpy(said + j->n_said, f->text, f->length);
    j->said = said;
    j->n_said += f->length;
    return send_event(j, "response.output_text.delta", value);
}

static bool send_end(job *j) {
    json_t *text = about_part(j), *part = about_part(j);
    json_t *item = item_json(j, status_of(j), json_pack("[o]", part_json(j->said, j->n_said)));
    json_object_set_new(text, "text", shape_text(j->said ? j->said : "", j->n_said));
    json_object_set_new(text, "logprobs", json_array());
    json_object_set_new(part, "part", part_json(j->said, j->n_said));
    bool sent = send_event(j, "response.output_text.done", text);
    sent = send_event(j, "response.content_part.done", part) && sent;
    sent = send_event(j, "response.output_item.done",
                      json_pack("{s:i, s:O}", "output_index", 0, "item", item)) &&
           sent;
    char type[32];
    snprintf(type, sizeof type, "response.%s", status_of(j));
    return send_event(j, type,
                      json_pack("{s:o}", "response",
                                response_json(j, status_of(j), json_pack("[o]", item)))) &&
           sent;
}

static bool stream(job *j, bool last) {
    leg *l = &j->legs[0];
    bool sent = l->begun || send_begin(j);
    l->begun = true;
    fresh f = shape_take(l);
    sent = sent && !f.failed;
    if (sent && f.length)
        sent = send_delta(j, &f);
    shape_free(&f);
    return sent && (!last || send_end(j));
}

const job_shape shape_response = {
    .prefix = "resp_", .ask = ask_response, .whole = whole, .stream = stream};
