/* Messages of a chat: as clients write them, and as templates know them. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "serve/serve_impl.h"

static bool is_text_part(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    return json_is_string(json_object_get(part, "text")) && type &&
           (!strcmp(type, "text") || !strcmp(type, "input_text") || !strcmp(type, "output_text"));
}

/* The text of the content of item `at` of `list`, which is a list of parts. */
static json_t *join_parts(const json_t *parts, const char *list, size_t at, problem *p) {
    gqac_str text = {0};
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *own = json_object_get(part, "text");
        if (!is_text_part(part)) {
            problem_set(p, 400, "unsupported_parameter", list,
                        "part %zu of the content of item %zu of '%s' must have the type 'text', "
                        "the only one that this server supports, and a 'text'",
                        i, at, list);
            gqac_str_free(&text);
            return NULL;
        }
        gqac_str_append_n(&text, json_string_value(own), json_string_length(own));
    }
    json_t *joined = text.failed ? NULL : json_stringn(text.text ? text.text : "", text.length);
    if (!joined)
        problem_no_memory(p);
    gqac_str_free(&text);
    return joined;
}

/* Arguments of calls are a text of JSON in the API, and an object in templates. `values`: the
 * number of their JSON values so far. */
static bool parse_arguments(json_t *message, size_t *values, problem *p) {
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        json_t *function = json_object_get(call, "function");
        const json_t *text = json_object_get(function, "arguments");
        if (!json_is_string(text))
            continue;
        if (!fields_modest(json_string_value(text), json_string_length(text), values, p))
            return false;
        json_error_t error;
        json_t *parsed = json_loadb(json_string_value(text), json_string_length(text), 0, &error);
        bool fine = parsed || !gqac_json_no_memory(error.text);
        if (json_is_object(parsed))
            fine = json_object_set(function, "arguments", parsed) == 0;
        json_decref(parsed);
        if (!fine)
            return problem_no_memory(p);
    }
    return true;
}

bool ask_content(json_t *message, const char *list, size_t at, problem *p) {
    json_t *content = json_object_get(message, "content");
    if (json_is_string(content))
        return true;
    if (json_is_array(content)) {
        json_t *joined = join_parts(content, list, at, p);
        return joined &&
               (json_object_set_new(message, "content", joined) == 0 || problem_no_memory(p));
    }
    if ((!content || json_is_null(content)) && json_object_get(message, "tool_calls"))
        return true;
    return problem_set(p, 400, NULL, list,
                       "the content of item %zu of '%s' must be a string or a list of parts", at,
                       list);
}

json_t *ask_messages(const json_t *messages, const char *name, problem *p) {
    size_t i, values = 0;
    json_t *message, *copy;
    if (!json_array_size(messages)) {
        problem_set(p, 400, NULL, name, "'%s' must be a list of at least one message", name);
        return NULL;
    }
    copy = json_deep_copy(messages);
    if (!copy)
        problem_no_memory(p);
    json_array_foreach(copy, i, message) {
        const json_t *role = json_object_get(message, "role");
        if (!json_is_object(message) || !json_is_string(role))
            problem_set(p, 400, NULL, name, "item %zu of '%s' must be an object with a 'role'", i,
                        name);
        else if (ask_content(message, name, i, p) && parse_arguments(message, &values, p))
            continue;
        json_decref(copy);
        return NULL;
    }
    return copy;
}

/* Sets the other variables of the template. Fields of chat_template_kwargs come last and replace
 * what was set before. */
static bool take_variables(const json_t *root, json_t *variables, offer *out, problem *p) {
    json_t *more = NULL, *documents = NULL;
    const char *effort = NULL;
    if (!ask_tools(root, out, p) || !fields_type(root, "documents", JSON_ARRAY, &documents, p) ||
        !fields_type(root, "chat_template_kwargs", JSON_OBJECT, &more, p) ||
        !fields_text(root, "reasoning_effort", 100, &effort, p))
        return false;
    if ((out->tools && json_object_set(variables, "tools", out->tools) != 0) ||
        (documents && json_object_set(variables, "documents", documents) != 0) ||
        (effort && json_object_set_new(variables, "reasoning_effort", json_string(effort)) != 0) ||
        (more && json_object_update(variables, more) != 0))
        return problem_no_memory(p);
    return true;
}

/* ---- a last message that is to be continued ------------------------------- */

/* Follows its content. A template that trims contents removes the blank. */
static const char mark[] = "[to be continued] ";

static bool mark_last(json_t *messages, problem *p) {
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *content = json_string_value(json_object_get(last, "content"));
    if (!content)
        return problem_set(p, 400, NULL, "continue_final_message",
                           "'continue_final_message' needs a last message with 'content'");
    return json_object_set_new(last, "content", json_sprintf("%s%s", content, mark)) == 0 ||
           problem_no_memory(p);
}

/* Sets whether the text ends with the beginning of an answer, or within the last message. */
static bool take_end(const json_t *root, json_t *variables, bool *within, problem *p) {
    if (!fields_bool(root, "continue_final_message", within, p))
        return false;
    bool generation = !*within;
    if (!fields_bool(root, "add_generation_prompt", &generation, p))
        return false;
    if (generation && *within)
        return problem_set(p, 400, NULL, "continue_final_message",
                           "'continue_final_message' and 'add_generation_prompt' cannot "
                           "be combined");
    return (json_object_set_new(variables, "add_generation_prompt", json_boolean(generation)) ==
                0 ||
            problem_no_memory(p)) &&
           (!*within || mark_last(json_object_get(variables, "messages"), p));
}

/* Cuts the text at the mark. */
static bool cut(const char *text, size_t *length, problem *p) {
    const size_t n = sizeof mark - 2;
    size_t at = *length;
    while (at && (*length - at < n || memcmp(text + at, mark, n) != 0))
        at--;
    if (!at)
        return problem_set(p, 400, NULL, "continue_final_message",
                           "'continue_final_message' needs a chat template that writes the content "
                           "of the last message unchanged");
    const bool trimmed = text[at + n] != ' ';
    while (trimmed && at && strchr(" \t\r\n", text[at - 1]))
        at--;
    *length = at;
    return true;
}

bool ask_render(serve *s, const json_t *root, json_t *messages, const char *name, char **text,
                size_t *length, offer *out, problem *p) {
    gqac_diag diag = {0};
    json_t *own = ask_messages(messages, name, p);
    bool within = false;
    if (!own)
        return false;
    json_t *variables = json_pack("{s:o}", "messages", own);
    bool fine = variables || problem_no_memory(p);
    fine = fine && take_end(root, variables, &within, p) && take_variables(root, variables, out, p);
    char *encoded = fine ? json_dumps(variables, JSON_COMPACT) : NULL;
    if (fine && !encoded)
        fine = problem_no_memory(p);
    if (fine && gqac_text_render(s->model.text, encoded, text, length, &diag) != GQAC_OK)
        fine = problem_from(p, name, &diag);
    if (fine && within && !cut(*text, length, p)) {
        gqac_release(*text);
        *text = NULL;
        fine = false;
    }
    free(encoded);
    json_decref(variables);
    return fine;
}
