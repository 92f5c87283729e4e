/* See calling.h. */
#include "cli/calling.h"

#include <stdlib.h>
#include <string.h>

/* ---- flags --------------------------------------------------------------- */

static gqac_status no_memory(cli *c) {
    return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
}

static bool is_type(const json_t *object, const char *key, json_type type) {
    const json_t *value = json_object_get(object, key);
    return !value || json_is_null(value) || json_typeof(value) == type;
}

/* What is wrong with one tool, or NULL. */
static const char *fault_of(const json_t *tool) {
    const json_t *type = json_object_get(tool, "type");
    const json_t *within = json_object_get(tool, "function");
    const json_t *function = within ? within : tool;
    const char *name = json_string_value(json_object_get(function, "name"));
    if (!json_is_object(tool))
        return "is not an object";
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return "has a \"type\" that is not \"function\"";
    if (within && !json_is_object(within))
        return "has a \"function\" that is not an object";
    if (!name || !*name)
        return "has no function with a \"name\"";
    if (!is_type(function, "description", JSON_STRING))
        return "has a \"description\" that is not a string";
    if (!is_type(function, "parameters", JSON_OBJECT))
        return "has \"parameters\" that are not an object (a JSON Schema)";
    return NULL;
}

static gqac_status check_tools(calling *x, const char *source, const json_error_t *error) {
    size_t i;
    json_t *tool;
    const char *fault = NULL;
    json_array_foreach(x->tools, i, tool) if ((fault = fault_of(tool))) break;
    if (!fault && json_is_array(x->tools) && json_array_size(x->tools))
        return GQAC_OK;
    if (fault)
        cli_fail(x->c, GQAC_INVALID_INPUT, "item %zu of the tools %s", i, fault);
    else
        cli_fail(x->c, GQAC_INVALID_INPUT,
                 "the tools are not a JSON list of at least one function");
    if (x->tools)
        cli_where(x->c, "--tools %s", source);
    else
        cli_where(x->c, "--tools %s, line %d, column %d: %s", source, error->line, error->column,
                  error->text);
    return cli_rule(x->c, "[{\"type\": \"function\", \"function\": {\"name\": ..., "
                          "\"parameters\": ...}}, ...]");
}

/* The list is the value itself, or in a file. */
static gqac_status read_tools(calling *x, const char *value) {
    cli *c = x->c;
    const bool own = value[strspn(value, " \t\r\n")] == '[';
    char *read = NULL;
    size_t length = 0;
    json_error_t error = {0};
    if (!own && !strcmp(value, "-"))
        return cli_usage(c, "--tools -: standard input has the messages");
    if (!own && cli_read_file(c, value, &read, &length) != GQAC_OK) {
        cli_rule(c, "a value that does not begin with [ is the name of a file");
        return cli_hint(c, "a file that exists, or a list of functions: [ ... ]");
    }
    x->tools = json_loadb(own ? value : read, own ? strlen(value) : length, JSON_REJECT_DUPLICATES,
                          &error);
    free(read);
    GQAC_TRY(check_tools(x, own ? "[...]" : cli_shown(value).s, &error));
    x->source = json_dumps(x->tools, JSON_COMPACT);
    return x->source ? GQAC_OK : no_memory(c);
}

static gqac_status constrain(calling *x, const gqac_tool_choice *choice, gqac_constraint **out) {
    const gqac_status status =
        gqac_constraint_from_tools(x->text, x->source, strlen(x->source), choice, out, &x->c->diag);
    if (status != GQAC_OK && !*x->c->diag.where)
        cli_where(x->c, choice->optional ? "--one-call or \"strict\"" : "--tool-choice");
    return status;
}

static gqac_status choose(calling *x, const char *word) {
    const bool forced = word && strcmp(word, "auto") != 0;
    gqac_tool_choice choice;
    gqac_tool_choice_init(&choice);
    choice.parallel = !cli_switch(x->c, "one-call");
    choice.optional = true;
    GQAC_TRY(constrain(x, &choice, &x->later));
    choice.optional = false;
    choice.name = forced && strcmp(word, "required") != 0 ? word : NULL;
    return forced ? constrain(x, &choice, &x->first) : GQAC_OK;
}

gqac_status calling_open(calling *x, cli *c, const gqac_text *text) {
    const char *tools = cli_value(c, "tools"), *choice = cli_value(c, "tool-choice");
    gqac_calls *calls = NULL;
    x->c = c;
    x->text = text;
    if (!tools && (choice || cli_switch(c, "one-call")))
        return cli_usage(c, "--%s needs --tools", choice ? "tool-choice" : "one-call");
    if (!tools || (choice && !strcmp(choice, "none")))
        return GQAC_OK;
    if (cli_value(c, "grammar") || cli_value(c, "json-schema"))
        return cli_usage(c, "--tools and --%s cannot be combined",
                         cli_value(c, "grammar") ? "grammar" : "json-schema");
    GQAC_TRY(read_tools(x, tools));
    GQAC_TRY(choose(x, choice));
    GQAC_TRY(gqac_calls_create(text, x->source, &calls, &c->diag));
    if (!calls && !cli_quiet(c))
        fprintf(stderr, "gqac: the syntax in which the chat template writes calls is not known, so "
                        "calls are printed as text\n");
    gqac_calls_free(calls);
    return GQAC_OK;
}

/* ---- an answer ----------------------------------------------------------- */

static void forget_answer(calling *x) {
    gqac_reply_free(x->reply);
    gqac_calls_free(x->calls);
    json_decref(x->found);
    json_decref(x->written);
    if (x->rest)
        (void)fclose(x->rest);
    free(x->content);
    x->reply = NULL;
    x->calls = NULL;
    x->found = NULL;
    x->written = NULL;
    x->rest = NULL;
    x->content = NULL;
}

void calling_close(calling *x) {
    forget_answer(x);
    gqac_constraint_free(x->first);
    gqac_constraint_free(x->later);
    json_decref(x->tools);
    free(x->source);
}

gqac_status calling_begin(calling *x, int n_stop, const char *const *stop, bool shown) {
    gqac_diag *diag = &x->c->diag;
    forget_answer(x);
    x->shown = shown;
    x->open = false;
    x->found = json_array();
    x->written = json_array();
    x->rest = open_memstream(&x->content, &x->length);
    if (!x->found || !x->written || !x->rest)
        return no_memory(x->c);
    GQAC_TRY(gqac_calls_create(x->text, x->source, &x->calls, diag));
    GQAC_TRY(gqac_reply_create(x->text, n_stop, stop, &x->reply, diag));
    gqac_reply_show_calls(x->reply, x->calls);
    return GQAC_OK;
}

static gqac_status add_content(calling *x, const char *text, size_t length) {
    if (fwrite(text, 1, length, x->rest) != length)
        return no_memory(x->c);
    if (x->shown && length) {
        (void)fwrite(text, 1, length, stdout);
        x->open = text[length - 1] != '\n';
    }
    return GQAC_OK;
}

/* Prints {"id", "name", "arguments"}. */
static gqac_status print_call(calling *x, json_t *call) {
    json_t *function = json_object_get(call, "function");
    if (!x->shown)
        return GQAC_OK;
    if (x->open)
        putchar('\n');
    x->open = false;
    return cli_print_json_line(x->c,
                               json_pack("{s:O, s:O, s:O}", "id", json_object_get(call, "id"),
                                         "name", json_object_get(function, "name"), "arguments",
                                         json_object_get(function, "arguments")));
}

static gqac_status add_call(calling *x, const gqac_call_part *part) {
    json_t *arguments = json_loads(part->arguments, 0, NULL);
    char own[24];
    snprintf(own, sizeof own, "call%05d", ++x->named % 100000);
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", part->id ? part->id : own, "type",
                             "function", "function", "name", part->name, "arguments", arguments);
    if (!call || json_array_append_new(x->found, call) != 0 ||
        json_array_append_new(x->written, json_string(part->arguments)) != 0)
        return no_memory(x->c);
    return print_call(x, call);
}

/* Takes what the reply has since the last call. */
static gqac_status take(calling *x, bool last) {
    gqac_diag *diag = &x->c->diag;
    gqac_call_part part = {.size = sizeof part};
    size_t length = 0;
    const char *text = gqac_reply_take(x->reply, &length);
    if (!x->calls)
        return add_content(x, text, length);
    GQAC_TRY(gqac_calls_push(x->calls, text, length, diag));
    if (last)
        GQAC_TRY(gqac_calls_finish(x->calls, diag));
    while (gqac_calls_next(x->calls, &part))
        GQAC_TRY(part.text ? add_content(x, part.text, part.length) : add_call(x, &part));
    return GQAC_OK;
}

gqac_status calling_push(calling *x, int64_t id) {
    GQAC_TRY(gqac_reply_push(x->reply, id, &x->c->diag));
    return take(x, false);
}

gqac_status calling_end(calling *x, bool failed) {
    if (!failed) {
        GQAC_TRY(gqac_reply_finish(x->reply, &x->c->diag));
        GQAC_TRY(take(x, true));
    }
    if (x->shown && (x->open || (!failed && !json_array_size(x->found))))
        putchar('\n');
    x->open = false;
    return fflush(x->rest) ? no_memory(x->c) : GQAC_OK;
}

json_t *calling_message(const calling *x) {
    json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content",
                                json_stringn(x->content, x->length));
    if (message && json_array_size(x->found))
        json_object_set(message, "tool_calls", x->found);
    return message;
}

void calling_add(const calling *x, json_t *answer) {
    json_t *list = json_deep_copy(x->found), *call;
    size_t i;
    json_array_foreach(list, i, call) json_object_set(json_object_get(call, "function"),
                                                      "arguments", json_array_get(x->written, i));
    json_object_set_new(answer, "tool_calls", list);
}
