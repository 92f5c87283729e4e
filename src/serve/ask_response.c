/* Reading a request to /v1/responses: its items become messages of a chat. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "serve/serve_impl.h"

/* ---- items --------------------------------------------------------------- */

typedef struct items {
    json_t *messages;
    json_t *names; /* of the functions that were called, by the ids of the calls */
    problem *p;
} items;

/* Takes over the message, which may be NULL. */
static bool add_new(items *x, json_t *message) {
    return json_array_append_new(x->messages, message) == 0 || problem_no_memory(x->p);
}

/* The same for a message with the content of an item. */
static bool add_with_content(items *x, json_t *message, size_t at) {
    if (!message || ask_content(message, "input", at, x->p))
        return add_new(x, message);
    json_decref(message);
    return false;
}

static bool add_message(items *x, json_t *item, size_t at) {
    json_t *role = json_object_get(item, "role"), *content = json_object_get(item, "content");
    if (!json_is_string(role) || !content)
        return problem_set(x->p, 400, "unsupported_parameter", "input",
                           "item %zu of 'input' must be a message with 'role' and 'content'", at);
    return add_with_content(x, json_pack("{s:O, s:O}", "role", role, "content", content), at);
}

/* The message of the assistant that a call belongs to: the last one, or a new one. */
static json_t *calling_message(items *x) {
    const size_t n = json_array_size(x->messages);
    json_t *last = n ? json_array_get(x->messages, n - 1) : NULL;
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!role || strcmp(role, "assistant") != 0) {
        if (!add_new(x, json_pack("{s:s, s:n}", "role", "assistant", "content")))
            return NULL;
        last = json_array_get(x->messages, n);
    }
    if (!json_object_get(last, "tool_calls"))
        json_object_set_new(last, "tool_calls", json_array());
    return last;
}

static bool add_call(items *x, const json_t *item, size_t at) {
    json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name"),
           *arguments = json_object_get(item, "arguments");
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return problem_set(x->p, 400, NULL, "input",
                           "item %zu of 'input' must have the strings 'call_id', 'name' and "
                           "'arguments'",
                           at);
    json_t *message = calling_message(x);
    if (!message)
        return false;
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                             "name", name, "arguments", arguments);
    json_object_set(x->names, json_string_value(id), name);
    return json_array_append_new(json_object_get(message, "tool_calls"), call) == 0 ||
           problem_no_memory(x->p);
}

static bool add_output(items *x, const json_t *item, size_t at) {
    json_t *id = json_object_get(item, "call_id"), *output = json_object_get(item, "output");
    json_t *name = json_object_get(x->names, json_is_string(id) ? json_string_value(id) : "");
    if (!name)
        return problem_set(x->p, 400, NULL, "input",
                           "item %zu of 'input' must have the 'call_id' of a function_call before "
                           "it",
                           at);
    if (!json_is_string(output) && !json_is_array(output))
        return problem_set(
            x->p, 400, NULL, "input",
            "the 'output' in item %zu of 'input' must be a string or a list of parts", at);
    return add_with_content(x,
                            json_pack("{s:s, s:O, s:O, s:O}", "role", "tool", "tool_call_id", id,
                                      "name", name, "content", output),
                            at);
}

static bool add_item(items *x, json_t *item, size_t at) {
    static const struct {
        const char *type;
        bool (*add)(items *x, const json_t *item, size_t at);
    } rows[] = {{"function_call", add_call}, {"function_call_output", add_output}};
    const json_t *type = json_object_get(item, "type");
    const char *word = json_string_value(type);
    if (json_is_object(item) && (!type || (word && !strcmp(word, "message"))))
        return add_message(x, item, at);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (word && !strcmp(word, rows[i].type))
            return rows[i].add(x, item, at);
    return problem_set(x->p, 400, "unsupported_parameter", "input",
                       "item %zu of 'input' must be a message, a function_call or a "
                       "function_call_output",
                       at);
}

/* The messages of `instructions` and `input`; NULL: *p says what is wrong. */
static json_t *read_messages(const job *j, problem *p) {
    json_t *input = fields_get(j->root, "input"), *instructions = NULL;
    items x = {json_array(), json_object(), p};
    bool fine = fields_type(j->root, "instructions", JSON_STRING, &instructions, p);
    if (fine && instructions)
        fine = add_new(&x, json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    if (fine && json_is_string(input))
        fine = add_new(&x, json_pack("{s:s, s:O}", "role", "user", "content", input));
    else if (fine && !json_is_array(input))
        fine = problem_set(p, 400, NULL, "input", "'input' must be a string or a list of items");
    for (size_t i = 0; fine && i < json_array_size(input); i++)
        fine = add_item(&x, json_array_get(input, i), i);
    if (fine && !json_array_size(x.messages))
        fine = problem_set(p, 400, NULL, "input", "'input' must have at least one item");
    json_decref(x.names);
    if (fine)
        return x.messages;
    json_decref(x.messages);
    return NULL;
}

/* ---- the rest ------------------------------------------------------------ */

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

/* What ask_render and ask_calls read beside the messages. */
static bool read_variables(const job *j, json_t *variables, problem *p) {
    static const char *const same[] = {"tool_choice", "parallel_tool_calls",
                                       "chat_template_kwargs"};
    json_t *tools = NULL, *reasoning = NULL;
    if (!fields_type(j->root, "tools", JSON_ARRAY, &tools, p) ||
        !fields_type(j->root, "reasoning", JSON_OBJECT, &reasoning, p))
        return false;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (fields_get(j->root, same[i]))
            json_object_set(variables, same[i], fields_get(j->root, same[i]));
    if (fields_get(reasoning, "effort"))
        json_object_set(variables, "reasoning_effort", fields_get(reasoning, "effort"));
    return !tools || json_object_set_new(variables, "tools", nest_tools(tools)) == 0;
}

bool ask_response(job *j, problem *p) {
    char *text = NULL;
    size_t length = 0;
    offer given;
    if (!ask_common(j, p) || !ask_make_prompts(j, 1, p) ||
        !fields_int(j->root, "max_output_tokens", 1, INT32_MAX, &j->max_new, p))
        return false;
    json_t *messages = read_messages(j, p), *variables = json_object();
    const bool fine =
        messages && read_variables(j, variables, p) &&
        ask_render(j->server, variables, messages, "input", &text, &length, &given, p) &&
        ask_tokenize(j->server, text, length, false, &j->prompts[0], p) &&
        ask_calls(j, variables, &given, p);
    json_decref(messages);
    json_decref(variables);
    gqac_release(text);
    return fine && ask_fit(j, ask_chat_length(j), p);
}
