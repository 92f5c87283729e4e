/* Which texts an answer may be: `response_format` as OpenAI's API has it (in /v1/responses it is
 * `text.format`), and `grammar` and `json_schema` as the server of llama.cpp has them. */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_impl.h"

/* Adds the place in the schema or grammar. */
static bool refuse(problem *p, const char *param, const gqac_diag *diag) {
    gqac_diag whole = *diag;
    if (*diag->where)
        snprintf(whole.what, sizeof whole.what, "%.180s: %.300s", diag->where, diag->what);
    return problem_from(p, param, &whole);
}

bool ask_take(job *j, const constraint_source *source, const char *param, const char *within,
              problem *p) {
    gqac_diag diag = {0};
    serve *s = j->server;
    return constraints_take(&s->constraints, s->model.text, j->tenant, source, &j->constraint,
                            &diag) == GQAC_OK ||
           refuse(p, *diag.where ? within : param, &diag);
}

static bool take(job *j, constraint_kind kind, const char *text, const char *param, problem *p) {
    return ask_take(j, &(constraint_source){.kind = kind, .text = text}, param, param, p);
}

static bool take_schema(job *j, const json_t *schema, const char *param, problem *p) {
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    const bool fine = text ? take(j, CONSTRAINT_SCHEMA, text, param, p) : problem_no_memory(p);
    free(text);
    return fine;
}

static bool is_text(const json_t *format) {
    const char *type = json_string_value(json_object_get(format, "type"));
    return type && !strcmp(type, "text");
}

/* {"type": "text"}, {"type": "json_object"}, or {"type": "json_schema"} with a schema: in the
 * format itself, or within its "json_schema". */
static bool read_format(job *j, const json_t *format, const char *param, problem *p) {
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *within = fields_get(format, "json_schema");
    const json_t *schema = fields_get(within ? within : format, "schema");
    if (!type)
        return problem_set(p, 400, NULL, param, "'%s' must be an object with a 'type'", param);
    if (is_text(format))
        return true;
    if (strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0)
        return problem_set(p, 400, "unsupported_parameter", param,
                           "'%s' must be of type 'text', 'json_object' or 'json_schema'", param);
    if (schema)
        return take_schema(j, schema, param, p);
    if (!strcmp(type, "json_schema"))
        return problem_set(p, 400, NULL, param, "'%s' of type 'json_schema' has no 'schema'",
                           param);
    return take(j, CONSTRAINT_SCHEMA, "{\"type\":\"object\"}", param, p);
}

bool ask_constraint(job *j, problem *p) {
    enum { MOST_GRAMMAR = 1 << 20 };
    json_t *format = fields_get(j->root, "response_format"), *text = NULL;
    const json_t *schema = fields_get(j->root, "json_schema");
    const char *grammar = NULL;
    const bool response = j->shape == &shape_response;
    if (!fields_text(j->root, "grammar", MOST_GRAMMAR, &grammar, p) ||
        (response && !fields_type(j->root, "text", JSON_OBJECT, &text, p)))
        return false;
    format = response ? fields_get(text, "format") : format;
    grammar = grammar && *grammar ? grammar : NULL;
    if ((format != NULL) + (schema != NULL) + (grammar != NULL) > 1)
        return problem_set(p, 400, NULL, grammar ? "grammar" : "json_schema",
                           "'%s', 'json_schema' and 'grammar' cannot be combined",
                           response ? "text.format" : "response_format");
    if (grammar)
        return take(j, CONSTRAINT_GRAMMAR, grammar, "grammar", p);
    if (schema)
        return take_schema(j, schema, "json_schema", p);
    return !format || read_format(j, format, response ? "text.format" : "response_format", p);
}
