/* A JSON Schema as a grammar of JSON: keywords, types and values. What is not supported is refused
 * by its name, so that an answer satisfies all of the schema. */
#include "text/grammar/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"

enum { MOST_BYTES = 1 << 20, MOST_NESTING = 100, MOST_VALUES = 200000, MOST_PATH = 300 };

/* ---- failures ------------------------------------------------------------ */

void schema_refuse(schema *s, gqac_status status, const char *rule, const char *format, ...) {
    char what[400];
    va_list args;
    if (s->b->status != GQAC_OK)
        return;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    gqac_diag_set(s->b->diag, status, "%s", what);
    gqac_diag_where(s->b->diag, "schema, %s", s->path);
    gqac_diag_rule(s->b->diag, "%s", rule);
    build_fail(s->b, status);
}

/* ---- rules --------------------------------------------------------------- */

/* The path of the current schema and more; a long one is cut in the middle. */
static const char *longer_path(const schema *s, const char *format, va_list args) {
    char more[MOST_PATH], all[2 * MOST_PATH + 8];
    vsnprintf(more, sizeof more, format, args);
    snprintf(all, sizeof all, "%s%s", s->path, more);
    const size_t n = strlen(all);
    if (n <= MOST_PATH)
        return gqac_arena_strdup(s->b->memory, all);
    return gqac_arena_printf(s->b->memory, "%.*s...%s", MOST_PATH / 2, all,
                             all + n - MOST_PATH / 2);
}

uint32_t schema_task(schema *s, const json_t *node, const char *path) {
    builder *b = s->b;
    const uint64_t key = (uint64_t)(uintptr_t)node, hash = gqac_hash_u64(s->known.seed, key);
    size_t at = hash;
    for (const gqac_slot *x = gqac_table_slot(&s->known, hash, &at); x;
         at++, x = gqac_table_slot(&s->known, hash, &at))
        if (s->tasks[x->value - 1].node == node)
            return s->tasks[x->value - 1].rule;
    const uint32_t made = build_new_rule(b, path ? path : "");
    if (!path || !gqac_reserve(&s->tasks, s->n + 1, &s->capacity, sizeof *s->tasks) ||
        !gqac_table_add_number(&s->known, hash, s->n + 1)) {
        build_fail(b, gqac_diag_oom(b->diag, "a schema"));
        return 0;
    }
    s->tasks[s->n++] = (task){node, made, path};
    return made;
}

uint32_t schema_rule(schema *s, const json_t *node, const char *format, ...) {
    va_list args;
    if (s->b->status != GQAC_OK)
        return 0;
    va_start(args, format);
    const char *path = longer_path(s, format, args);
    va_end(args);
    return schema_task(s, node, path);
}

uint32_t schema_count(schema *s, const json_t *node, const char *name, uint32_t otherwise) {
    const json_t *value = json_object_get(node, name);
    const double real = json_number_value(value);
    if (!value)
        return otherwise;
    if (!json_is_number(value) || real < 0 || real != floor(real))
        schema_refuse(s, GQAC_INVALID_INPUT, "a whole number from 0", "'%s' is not a count", name);
    else if (real > BUILD_MOST_CODE)
        schema_refuse(s, GQAC_LIMIT, "counts are at most 131072", "'%s' is %.0f", name, real);
    return s->b->status == GQAC_OK ? (uint32_t)real : otherwise;
}

/* Significant digits with which all numbers of a value read back: 15, or as many more as one
 * needs. */
static size_t digits_of(const json_t *value) {
    enum { FEWEST = 15, MOST = 17 };
    const double real = json_real_value(value);
    const char *name = NULL;
    json_t *inner = NULL;
    char text[40];
    size_t i = 0, digits = FEWEST;
    for (; json_is_real(value) && digits < MOST; digits++) {
        snprintf(text, sizeof text, "%.*g", (int)digits, real);
        if (strtod(text, NULL) == real) /* both have the decimal point of the locale */
            break;
    }
    json_array_foreach(value, i, inner) {
        const size_t own = digits_of(inner);
        digits = own > digits ? own : digits;
    }
    json_object_foreach((json_t *)(uintptr_t)value, name, inner) {
        const size_t own = digits_of(inner);
        digits = own > digits ? own : digits;
    }
    return digits;
}

/* A value as an answer writes it, which the caller frees with free(); NULL: the schema has failed.
 * With all 17 digits of a number, 0.1 would be 0.10000000000000001. */
static char *text_of(schema *s, const json_t *value) {
    char *text =
        json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits_of(value)));
    if (!text)
        build_fail(s->b, gqac_diag_oom(s->b->diag, "a schema"));
    return text;
}

fragment schema_value(schema *s, const json_t *value) {
    char *text = text_of(s, value);
    const fragment f = text ? build_text(s->b, text, strlen(text)) : build_never(s->b);
    free(text);
    return f;
}

/* ---- keywords ------------------------------------------------------------ */

typedef enum keyword_use { NOTE, WHOLE, OBJECT, ARRAY, STRING, NUMBER } keyword_use;

/* Keywords that are supported. A NOTE does not restrict answers; WHOLE is for all types, the others
 * for one. */
static const struct {
    const char *name;
    keyword_use use;
} keywords[] = {
    {"discriminator", NOTE}, /* of OpenAPI: which property "oneOf" is about */
    {"title", NOTE},
    {"description", NOTE},
    {"default", NOTE},
    {"examples", NOTE},
    {"$schema", NOTE},
    {"$comment", NOTE},
    {"deprecated", NOTE},
    {"readOnly", NOTE},
    {"writeOnly", NOTE},
    {"$defs", NOTE},
    {"definitions", NOTE},
    {"$ref", WHOLE},
    {"anyOf", WHOLE},
    {"allOf", WHOLE},
    {"oneOf", WHOLE},
    {"enum", WHOLE},
    {"const", WHOLE},
    {"type", WHOLE},
    {"properties", OBJECT},
    {"required", OBJECT},
    {"additionalProperties", OBJECT},
    {"items", ARRAY},
    {"minItems", ARRAY},
    {"maxItems", ARRAY},
    {"minLength", STRING},
    {"maxLength", STRING},
    {"format", STRING},
    {"pattern", STRING},
    {"minimum", NUMBER},
    {"exclusiveMinimum", NUMBER},
    {"maximum", NUMBER},
    {"exclusiveMaximum", NUMBER},
};

static bool find_keyword(const char *name, keyword_use *use) {
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (!strcmp(keywords[i].name, name)) {
            *use = keywords[i].use;
            return true;
        }
    return false;
}

/* Keywords that change nothing with these values. */
static bool says_nothing(const char *name, const json_t *value) {
    if (!strncmp(name, "x-", 2))
        return true;
    return !strcmp(name, "uniqueItems") && json_is_false(value);
}

/* Refuses what is not supported, and finds for which types there are keywords. */
static void check_keywords(schema *s, json_t *node, unsigned *uses) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(node, name, value) {
        keyword_use use = NOTE;
        if (find_keyword(name, &use))
            *uses |= 1u << use;
        else if (!strcmp(name, "$id") && node == s->root)
            continue;
        else if (!says_nothing(name, value))
            schema_refuse(s, GQAC_UNSUPPORTED,
                          "docs/generation.md lists the keywords that are supported",
                          "keyword '%.60s' is not supported", name);
    }
}

void schema_alone(schema *s, json_t *node, const char *name, const char *allowed) {
    const char *other = NULL;
    json_t *value = NULL;
    json_object_foreach(node, other, value) {
        keyword_use use = NOTE;
        if (!find_keyword(other, &use) || use == NOTE || !strcmp(other, name) ||
            (allowed && !strcmp(other, allowed)))
            continue;
        schema_refuse(s, GQAC_UNSUPPORTED, "give only one of them",
                      "'%s' beside '%s' is not supported", other, name);
    }
}

/* ---- types --------------------------------------------------------------- */

/* Type i has bit 1 << i in a set of types. */
static const char *const types[] = {"object",  "array",   "string", "number",
                                    "integer", "boolean", "null"};
enum { TYPES = sizeof types / sizeof *types, ALL_TYPES = (1 << TYPES) - 1 };

static int find_type(const char *name) {
    for (int i = 0; i < TYPES; i++)
        if (!strcmp(types[i], name))
            return i;
    return -1;
}

unsigned schema_types(schema *s, const json_t *node) {
    const json_t *value = json_object_get(node, "type");
    const size_t n = json_is_array(value) ? json_array_size(value) : value != NULL;
    unsigned all = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        const char *name = json_string_value(one);
        const int type = name ? find_type(name) : -1;
        if (type < 0) {
            schema_refuse(s, GQAC_INVALID_INPUT,
                          "a type is object, array, string, number, integer, boolean or null",
                          "type '%.60s' is unknown", name ? name : "?");
            return ALL_TYPES;
        }
        all |= 1u << type;
    }
    if (value && !all)
        schema_refuse(s, GQAC_INVALID_INPUT, "a type, or a list of types", "'type' is empty");
    return all;
}

unsigned schema_type_of(const json_t *value) {
    const double real = json_number_value(value);
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return 1;
    case JSON_ARRAY:
        return 2;
    case JSON_STRING:
        return 4;
    case JSON_INTEGER:
    case JSON_REAL:
        return real == floor(real) ? 8 | 16 : 8;
    case JSON_NULL:
        return 64;
    default:
        return 32;
    }
}

static fragment build_type(schema *s, const json_t *node, int type) {
    if (type == 5) {
        const fragment yes = build_text(s->b, "true", 4);
        return build_either(s->b, yes, build_text(s->b, "false", 5));
    }
    return type == 0   ? schema_object(s, node)
           : type == 1 ? schema_array(s, node)
           : type == 2 ? schema_string(s, node)
           : type == 6 ? build_text(s->b, "null", 4)
                       : schema_number(s, node, type == 4);
}

static fragment build_types(schema *s, json_t *node, unsigned uses) {
    static const unsigned implied[] = {[OBJECT] = 1, [ARRAY] = 2, [STRING] = 4, [NUMBER] = 8};
    unsigned all = schema_types(s, node);
    fragment f = {0};
    bool any = false;
    for (int use = OBJECT; use <= NUMBER && !json_object_get(node, "type"); use++)
        if (uses & 1u << use)
            all |= implied[use];
    if (!all)
        return schema_json(s, "json-any");
    if (all & 8) /* whole numbers are numbers */
        all &= ~16u;
    for (int type = 0; type < TYPES && s->b->status == GQAC_OK; type++) {
        if (!(all & 1u << type))
            continue;
        const fragment one = build_type(s, node, type);
        f = any ? build_either(s->b, f, one) : one;
        any = true;
    }
    return f;
}

/* ---- values -------------------------------------------------------------- */

static void add_value(schema *s, word_list *w, const json_t *value, unsigned allowed) {
    if (allowed && !(schema_type_of(value) & allowed))
        return;
    char *text = text_of(s, value);
    if (text)
        schema_add_word(s, w, text);
    free(text);
}

static fragment build_values(schema *s, json_t *node, const char *name) {
    const json_t *given = json_object_get(node, name);
    const bool list = !strcmp(name, "enum");
    const unsigned allowed = schema_types(s, node);
    word_list w = {0};
    schema_alone(s, node, name, "type");
    if (list && !json_is_array(given))
        schema_refuse(s, GQAC_INVALID_INPUT, "a list of values", "'enum' is not a list");
    for (size_t i = 0; list && i < json_array_size(given) && s->b->status == GQAC_OK; i++)
        add_value(s, &w, json_array_get(given, i), allowed);
    if (!list)
        add_value(s, &w, given, allowed);
    return schema_words(s, &w);
}

/* ---- all of it ----------------------------------------------------------- */

static fragment build_schema(schema *s, json_t *node) {
    static const char *const choices[] = {"anyOf", "oneOf", "allOf"};
    static const char *const values[] = {"enum", "const"};
    unsigned uses = 0;
    if (json_is_true(node))
        return schema_json(s, "json-any");
    if (json_is_false(node))
        return build_never(s->b);
    if (!json_is_object(node)) {
        schema_refuse(s, GQAC_INVALID_INPUT, "a schema is an object, true or false",
                      "this is not a schema");
        return build_never(s->b);
    }
    check_keywords(s, node, &uses);
    if (json_object_get(node, "$ref"))
        return schema_reference(s, node);
    for (int i = 0; i < 3; i++)
        if (json_object_get(node, choices[i]))
            return schema_choice(s, node, choices[i]);
    for (int i = 0; i < 2; i++)
        if (json_object_get(node, values[i]))
            return build_values(s, node, values[i]);
    return build_types(s, node, uses);
}

static void add_where(const schema *s, const task *t) {
    if (s->b->status == GQAC_LIMIT && s->b->diag && !*s->b->diag->where)
        gqac_diag_where(s->b->diag, "schema, %s", t->path);
}

uint32_t schema_compile(schema *s, const json_t *root) {
    builder *b = s->b;
    s->root = root;
    const uint32_t rule = schema_task(s, root, "#");
    for (; s->compiled < s->n && b->status == GQAC_OK; s->compiled++) {
        const task t = s->tasks[s->compiled];
        s->path = t.path;
        build_define(b, t.rule, build_schema(s, (json_t *)(uintptr_t)t.node));
        add_where(s, &t);
    }
    return rule;
}

/* Before anything is parsed: a value takes more memory than its text, and nested ones take stack.
 */
static gqac_status check_text(const char *what, const char *text, size_t length, gqac_diag *diag) {
    if (length > MOST_BYTES)
        GQAC_FAIL(diag, GQAC_LIMIT, "the %s has %zu bytes; the maximum is %d", what, length,
                  MOST_BYTES);
    const gqac_json_size size = gqac_json_measure(text, length);
    if (size.depth > MOST_NESTING)
        GQAC_FAIL(diag, GQAC_LIMIT, "the %s is nested more than %d levels deep", what,
                  MOST_NESTING);
    if (size.values > MOST_VALUES)
        GQAC_FAIL(diag, GQAC_LIMIT, "the %s has more than %d values", what, MOST_VALUES);
    return GQAC_OK;
}

gqac_status schema_parse(const char *what, const char *text, size_t length, json_t **root,
                         gqac_diag *diag) {
    json_error_t why;
    GQAC_TRY(check_text(what, text, length, diag));
    *root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (*root)
        return GQAC_OK;
    if (gqac_json_no_memory(why.text))
        return gqac_diag_oom(diag, "a schema");
    gqac_diag_set(diag, GQAC_INVALID_INPUT, "the %s is not JSON: %s", what,
                  gqac_json_reason(text, length, why.text));
    gqac_diag_where(diag, "%s, line %d, column %d", what, why.line, why.column);
    gqac_diag_rule(diag, "JSON in UTF-8, no key twice in an object");
    return GQAC_INVALID_INPUT;
}

static gqac_status compile(schema *s, const json_t *root, grammar **out) {
    schema_open(s);
    const uint32_t rule = schema_compile(s, root);
    return s->b->status == GQAC_OK ? grammar_finish(s->b, rule, "schema", out) : s->b->status;
}

gqac_status grammar_from_schema(const char *text, size_t length, grammar **out, gqac_diag *diag) {
    builder b;
    json_t *root = NULL;
    GQAC_TRY(schema_parse("schema", text, length, &root, diag));
    gqac_status status = build_open(&b, diag);
    schema s = {.b = &b, .path = "#"};
    if (status == GQAC_OK) {
        gqac_table_init(&s.known, b.memory);
        status = compile(&s, root, out);
    }
    gqac_free(s.tasks);
    build_close(&b);
    json_decref(root);
    return status;
}
