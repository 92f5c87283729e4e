/* Tools that an answer may call or must call: `tools`, `tool_choice`, `parallel_tool_calls`. */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_impl.h"

/* What describes a function: the object under "function", or the one around it. */
static const json_t *body_of(const json_t *tool) {
    const json_t *within = json_object_get(tool, "function");
    return within ? within : tool;
}

static const char *name_of(const json_t *tool) {
    return json_string_value(json_object_get(body_of(tool), "name"));
}

static bool read_choice(const json_t *root, offer *out, problem *p) {
    const json_t *given = fields_get(root, "tool_choice");
    const char *word = json_string_value(given);
    const char *type = json_string_value(json_object_get(given, "type"));
    if (!given || (word && !strcmp(word, "auto")))
        return true;
    out->none = word && !strcmp(word, "none");
    out->forced = !out->none;
    if (out->none || (word && !strcmp(word, "required")))
        return true;
    if (type && !strcmp(type, "function"))
        out->name = name_of(given);
    return out->name || problem_set(p, 400, "unsupported_parameter", "tool_choice",
                                    "'tool_choice' must be 'none', 'auto', 'required' or "
                                    "{\"type\": \"function\"} with the name of the function");
}

static bool is_offered(const json_t *tools, const char *name) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        const char *own = name_of(tool);
        if (own && !strcmp(own, name))
            return true;
    }
    return false;
}

static bool is_type(const json_t *object, const char *key, json_type type) {
    const json_t *value = json_object_get(object, key);
    return !value || json_is_null(value) || json_typeof(value) == type;
}

/* Checks what every template and syntax of calls needs of a function. */
static bool check_function(const json_t *tool, size_t i, problem *p) {
    const json_t *own = body_of(tool);
    const char *name = name_of(tool);
    const json_t *strict = json_object_get(own, "strict");
    if (!name || !*name || strpbrk(name, " \t\r\n\"'\\<"))
        return problem_set(p, 400, NULL, "tools",
                           "item %zu of 'tools' must have a function with a 'name' without spaces, "
                           "quotes, backslashes or '<'",
                           i);
    if (!is_type(own, "description", JSON_STRING) || !is_type(own, "parameters", JSON_OBJECT) ||
        (strict && !json_is_null(strict) && !json_is_boolean(strict)))
        return problem_set(p, 400, NULL, "tools",
                           "item %zu of 'tools': 'description' must be a string, 'parameters' an "
                           "object, and 'strict' true or false",
                           i);
    return true;
}

/* Tools that a server runs itself are not supported. */
static bool check_types(const json_t *tools, problem *p) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        const json_t *type = json_object_get(tool, "type");
        const char *word = json_string_value(type);
        if (!json_is_object(tool) || (type && (!word || strcmp(word, "function") != 0)))
            return problem_set(p, 400, "unsupported_parameter", "tools",
                               "item %zu of 'tools' must be of type 'function', the only one that "
                               "this server supports",
                               i);
        if (!check_function(tool, i, p))
            return false;
    }
    return true;
}

bool ask_tools(const json_t *root, offer *out, problem *p) {
    *out = (offer){.tools = NULL};
    if (!fields_type(root, "tools", JSON_ARRAY, &out->tools, p) || !check_types(out->tools, p) ||
        !read_choice(root, out, p))
        return false;
    if (out->none || !json_array_size(out->tools))
        out->tools = NULL;
    if (out->forced && !out->tools)
        return problem_set(p, 400, NULL, "tool_choice",
                           "'tool_choice' requires a call, but there are no 'tools'");
    return !out->name || is_offered(out->tools, out->name) ||
           problem_set(p, 400, NULL, "tool_choice",
                       "'tool_choice' names '%.100s', which is not one "
                       "of the 'tools'",
                       out->name);
}

bool ask_calls(job *j, const json_t *root, const offer *given, problem *p) {
    bool parallel = true;
    if (!fields_bool(root, "parallel_tool_calls", &parallel, p))
        return false;
    j->tools = given->tools ? json_dumps(given->tools, JSON_COMPACT) : NULL;
    if (given->tools && !j->tools)
        return problem_no_memory(p);
    if (given->forced && j->constraint)
        return problem_set(p, 400, NULL, "tool_choice",
                           "'tool_choice' requires a call, so it cannot be combined with a format, "
                           "'json_schema' or 'grammar' of the answer's text");
    if (!j->tools || j->constraint)
        return true;
    constraint_source source = {.kind = CONSTRAINT_TOOLS, .text = j->tools};
    gqac_tool_choice_init(&source.choice);
    source.choice.name = given->name;
    source.choice.parallel = parallel;
    source.choice.optional = !given->forced;
    return ask_take(j, &source,
                    given->forced ? "tool_choice"
                    : parallel    ? "tools"
                                  : "parallel_tool_calls",
                    "tools", p);
}
