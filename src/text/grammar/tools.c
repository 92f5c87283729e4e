/* Calls of functions: the literals around them, and a JSON Schema for the arguments of each. */
#include <string.h>

#include "base/alloc.h"
#include "text/grammar/schema.h"
#include "text/grammar/tools.h"

enum { MOST_FUNCTIONS = 128 };

typedef struct function {
    const char *name; /* in the parsed tools */
    json_t *parameters;
    bool strict;
    uint32_t rule; /* of its arguments */
} function;

typedef struct tools {
    schema s;
    builder b;
    const grammar_calls *form;
    const grammar_choice *choice;
    function *list; /* those that may be called */
    size_t n;
} tools;

static void refuse(tools *t, gqac_status status, const char *name, const char *what,
                   const char *rule) {
    if (t->b.status != GQAC_OK)
        return;
    gqac_diag_set(t->b.diag, status, "%s", what);
    gqac_diag_where(t->b.diag, "%.100s", name);
    gqac_diag_rule(t->b.diag, "%s", rule);
    build_fail(&t->b, status);
}

/* ---- the list ------------------------------------------------------------ */

/* The object that describes the function. */
static json_t *body_of(json_t *tool) {
    json_t *within = json_object_get(tool, "function");
    return within ? within : tool;
}

static bool is_strict(const json_t *body) {
    return json_is_true(json_object_get(body, "strict"));
}

/* False if JSON cannot have the key "strict", spelled or escaped: most lists need not be parsed. */
static bool may_be_strict(const char *tools, size_t length) {
    return memmem(tools, length, "strict", 6) || memmem(tools, length, "\\u00", 4);
}

bool grammar_tools_limit(const char *tools, size_t length, const grammar_choice *choice) {
    if (!choice->optional || !choice->parallel || choice->name)
        return true;
    if (!may_be_strict(tools, length))
        return false;
    json_t *all = json_loadb(tools, length, 0, NULL), *tool;
    bool limit = !json_is_array(all);
    size_t i;
    json_array_foreach(all, i, tool) limit = limit || is_strict(body_of(tool));
    json_decref(all);
    return limit;
}

/* Some syntaxes write a name between other words, others in quotes. */
static bool is_plain(const char *name) {
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || strchr("\"\\<", *c))
            return false;
    return *name;
}

static void read_tool(tools *t, json_t *tool, size_t index) {
    const char *only = t->choice->name;
    json_t *own = body_of(tool);
    const char *name = json_string_value(json_object_get(own, "name"));
    char item[40];
    snprintf(item, sizeof item, "item %zu", index);
    if (!name) {
        refuse(t, GQAC_INVALID_INPUT, item, "the item is not a function with a name",
               "{\"type\": \"function\", \"function\": {\"name\": ..., \"parameters\": ...}}");
    } else if (!is_plain(name)) {
        refuse(t, GQAC_INVALID_INPUT, item, "the name of the function cannot be written in a call",
               "a name has no spaces, control characters, quotes, backslashes or '<'");
    } else if (!only || !strcmp(only, name)) {
        t->list[t->n++] = (function){.name = name,
                                     .parameters = json_object_get(own, "parameters"),
                                     .strict = is_strict(own)};
    }
}

static void read_tools(tools *t, json_t *all) {
    const size_t n = json_array_size(all);
    if (!json_is_array(all) || !n || n > MOST_FUNCTIONS) {
        gqac_diag_set(t->b.diag, n > MOST_FUNCTIONS ? GQAC_LIMIT : GQAC_INVALID_INPUT,
                      "the tools are not a JSON list of 1 to %d functions", MOST_FUNCTIONS);
        build_fail(&t->b, n > MOST_FUNCTIONS ? GQAC_LIMIT : GQAC_INVALID_INPUT);
        return;
    }
    t->list = GQAC_ARENA_ARRAY(t->b.memory, function, n);
    if (!t->list)
        build_fail(&t->b, gqac_diag_oom(t->b.diag, "tools"));
    for (size_t i = 0; i < n && t->b.status == GQAC_OK; i++)
        read_tool(t, json_array_get(all, i), i);
    if (t->b.status == GQAC_OK && !t->n)
        build_fail(&t->b,
                   gqac_diag_set(t->b.diag, GQAC_INVALID_INPUT,
                                 "none of the tools has the name '%.100s'", t->choice->name));
}

/* ---- arguments ----------------------------------------------------------- */

/* The schema of arguments, which the caller releases; a schema that says nothing of types gets the
 * type of an object. */
static json_t *schema_of(const function *f) {
    static const char *const typed[] = {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"};
    const json_t *given = f->parameters;
    bool any = json_is_object(given) || json_is_true(given);
    if (!given || json_is_null(given))
        return json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties",
                         0);
    for (size_t i = 0; i < sizeof typed / sizeof *typed; i++)
        any = any && !json_object_get(given, typed[i]);
    if (!any)
        return json_incref(f->parameters);
    json_t *own = json_is_object(given) ? json_copy(f->parameters) : json_object();
    if (own && json_object_set_new(own, "type", json_string("object")) == 0)
        return own;
    json_decref(own);
    return NULL;
}

/* True if all texts of a rule begin with a brace. No rule of JSON accepts the empty text. */
static bool is_object(builder *b, uint32_t rule) {
    bool *seen = gqac_calloc(b->n, sizeof *seen), fine = true;
    uint32_t *stack = gqac_alloc((2 * b->n + 1) * sizeof *stack);
    size_t n = 0;
    if (seen && stack)
        stack[n++] = b->rules[rule].start;
    else
        build_fail(b, gqac_diag_oom(b->diag, "tools"));
    while (n && fine) {
        const uint32_t at = stack[--n];
        if (at == BUILD_NONE || seen[at]) /* NONE leads nowhere: an empty list of words accepts
                                             nothing */
            continue;
        seen[at] = true;
        const instruction *one = &b->code[at];
        fine = one->op != GRAMMAR_BYTE || (one->low == '{' && one->high == '{');
        if (one->op == GRAMMAR_CALL)
            stack[n++] = b->rules[one->other].start;
        if (one->op == GRAMMAR_SPLIT)
            stack[n++] = one->other;
        if (one->op == GRAMMAR_SPLIT || one->op == GRAMMAR_JUMP)
            stack[n++] = one->next;
    }
    gqac_free(seen);
    gqac_free(stack);
    return fine;
}

/* Compiles the schema of a function's arguments, which stays in *kept. Where calls are optional,
 * only that of strict functions counts. */
static void compile_arguments(tools *t, function *f, json_t *kept) {
    builder *b = &t->b;
    if (t->choice->optional && !f->strict) {
        f->rule = build_rule(b, "json-object", 11, 0);
        return;
    }
    json_t *own = schema_of(f);
    if (!own || json_array_append_new(kept, own) != 0) {
        build_fail(b, gqac_diag_oom(b->diag, "tools"));
        return;
    }
    f->rule = schema_compile(&t->s, own);
    if (b->status != GQAC_OK)
        gqac_diag_where(b->diag, "'%.100s'", f->name);
    else if (!is_object(b, f->rule))
        refuse(t, GQAC_INVALID_INPUT, f->name,
               "the 'parameters' of the function accept values that are not objects",
               "the arguments of a call are an object");
}

/* ---- calls --------------------------------------------------------------- */

static fragment add_text(builder *b, fragment f, const char *text) {
    return build_join(b, f, build_text(b, text, strlen(text)));
}

/* What stands between the name and the arguments. */
static fragment build_middle(tools *t) {
    builder *b = &t->b;
    fragment any = build_text(b, t->form->middle, strlen(t->form->middle));
    for (int i = 0; i < GRAMMAR_MIDDLES && t->choice->optional && t->form->middles[i]; i++) {
        const char *other = t->form->middles[i];
        any = build_either(b, any, build_text(b, other, strlen(other)));
    }
    return any;
}

/* From the name on. */
static fragment build_one(tools *t, const function *f) {
    builder *b = &t->b;
    fragment one = build_empty(b);
    one = add_text(b, one, f->name);
    one = build_join(b, one, build_middle(t));
    one = build_join(b, one, build_call(b, f->rule));
    return add_text(b, one, t->form->after);
}

/* The rule of one call, from its name on. */
static uint32_t build_any(tools *t) {
    builder *b = &t->b;
    const uint32_t call = build_new_rule(b, "call");
    fragment any = build_never(b);
    for (size_t i = 0; i < t->n && b->status == GQAC_OK; i++)
        any = build_either(b, any, build_one(t, &t->list[i]));
    build_define(b, call, any);
    return call;
}

/* The first call from its name on, those after it, and their end. */
static fragment add_calls(tools *t, fragment all, uint32_t call, bool several) {
    builder *b = &t->b;
    all = build_join(b, all, build_call(b, call));
    if (several) {
        fragment more = build_empty(b);
        more = add_text(b, more, t->form->between);
        more = add_text(b, more, t->form->before);
        more = build_join(b, more, build_call(b, call));
        all = build_join(b, all, build_repeat(b, more, 0, BUILD_MANY));
    }
    return add_text(b, all, t->form->end);
}

/* The rule of answers that are calls. */
static uint32_t build_all(tools *t, uint32_t call) {
    builder *b = &t->b;
    const uint32_t all = build_new_rule(b, "calls");
    fragment f = build_empty(b);
    f = add_text(b, f, t->form->begin);
    f = add_text(b, f, t->form->before);
    build_define(b, all, add_calls(t, f, call, t->choice->parallel && t->form->between));
    return all;
}

/* The rule of text beside calls; `opened` (BUILD_NONE: nothing) follows the marker. */
static uint32_t build_beside(tools *t, uint32_t opened) {
    builder *b = &t->b;
    const grammar_calls *form = t->form;
    const text_marker call = {form->marker, opened};
    if (!form->header_end)
        return tools_text(b, &call, 1, form->not_first);
    const uint32_t content = build_new_rule(b, "content");
    const text_marker in_header[] = {call, {form->header_end, content}};
    const uint32_t header = tools_text(b, in_header, 2, form->not_first);
    const text_marker in_content[] = {{form->header_begins[0], header},
                                      {form->header_begins[1], header}};
    build_define(b, content, build_call(b, tools_text(b, in_content, 2, 0)));
    return header;
}

/* The rule of answers that may also be text. */
static uint32_t build_optional(tools *t, uint32_t call) {
    builder *b = &t->b;
    const grammar_calls *form = t->form;
    const char *opening = gqac_arena_printf(b->memory, "%s%s", form->begin, form->before);
    if (!opening) {
        build_fail(b, gqac_diag_oom(b->diag, "tools"));
        return 0;
    }
    /* after a marker in the beginning of a call: the rest of it, and text again if calls are not a
     * list */
    const char *at = strstr(opening, form->marker);
    const bool again = t->choice->parallel && form->between && !*form->end;
    const uint32_t opened = build_new_rule(b, "opened"), root = build_new_rule(b, "answer");
    const uint32_t text = build_beside(t, at ? opened : BUILD_NONE);
    fragment f = build_empty(b);
    if (at) {
        f = add_text(b, f, at + strlen(form->marker));
        f = add_calls(t, f, call, t->choice->parallel && form->between && !again);
        if (again)
            f = build_join(b, f, build_call(b, text));
        build_define(b, opened, f);
        f = build_call(b, text);
    } else {
        const uint32_t all = build_all(t, call);
        build_define(b, opened, build_never(b));
        f = build_call(b, text);
        f = build_either(b, f, build_call(b, all));
    }
    build_define(b, root, f);
    return root;
}

static gqac_status compile(tools *t, json_t *all, grammar **out) {
    builder *b = &t->b;
    json_t *kept = json_array(); /* tasks are found by the addresses of schemas */
    if (!kept)
        return gqac_diag_oom(b->diag, "tools");
    gqac_table_init(&t->s.known, b->memory);
    read_tools(t, all);
    schema_open(&t->s);
    for (size_t i = 0; i < t->n && b->status == GQAC_OK; i++)
        compile_arguments(t, &t->list[i], kept);
    const uint32_t call = build_any(t);
    const uint32_t root = t->choice->optional ? build_optional(t, call) : build_all(t, call);
    const gqac_status status = grammar_finish(b, root, "list of tools", out);
    json_decref(kept);
    return status;
}

gqac_status grammar_from_tools(const char *text, size_t length, const grammar_calls *form,
                               const grammar_choice *choice, grammar **out, gqac_diag *diag) {
    tools t = {.form = form, .choice = choice};
    json_t *all = NULL;
    GQAC_TRY(schema_parse("list of tools", text, length, &all, diag));
    gqac_status status = build_open(&t.b, diag);
    t.s = (schema){.b = &t.b, .path = "#"};
    if (status == GQAC_OK)
        status = compile(&t, all, out);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "tools");
    gqac_free(t.s.tasks);
    build_close(&t.b);
    json_decref(all);
    return status;
}
