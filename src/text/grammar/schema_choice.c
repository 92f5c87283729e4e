/* Alternatives and references. */
#include "text/grammar/schema.h"

#include <string.h>

enum {
    MOST_NAME = 300,       /* bytes of a step of a path */
    MOST_HOPS = 16,        /* references that are followed to compare schemas */
    MOST_COMPARED = 10000, /* pairs of values */
    MOST_ONE_OF = 64,
    MOST_REQUIRED = 64
};

/* ---- references ---------------------------------------------------------- */

/* One step of a JSON pointer (RFC 6901), whose escapes are resolved. */
static const json_t *step_to(const json_t *node, const char *word, size_t length) {
    char name[MOST_NAME];
    size_t n = 0;
    if (length >= sizeof name)
        return NULL;
    for (size_t i = 0; i < length; i++) {
        char c = word[i];
        if (c == '~' && i + 1 < length && (word[i + 1] == '0' || word[i + 1] == '1'))
            c = word[++i] == '0' ? '~' : '/';
        name[n++] = c;
    }
    name[n] = '\0';
    if (!json_is_array(node))
        return json_object_get(node, name);
    size_t index = 0;
    for (size_t i = 0; i < n; i++) {
        if (name[i] < '0' || name[i] > '9' || i > 6)
            return NULL;
        index = 10 * index + (size_t)(name[i] - '0');
    }
    return json_array_get(node, index);
}

/* What "#/a/b" leads to; NULL: nothing. */
static const json_t *find_path(const schema *s, const char *text) {
    const json_t *found = s->root;
    const char *at = text + 1;
    while (*at == '/' && found) {
        const size_t length = strcspn(at + 1, "/");
        found = step_to(found, at + 1, length);
        at += 1 + length;
    }
    return found;
}

static bool is_path(const char *text) {
    return text && *text == '#' && (!text[1] || text[1] == '/') && !strchr(text, '%');
}

fragment schema_reference(schema *s, json_t *node) {
    const char *text = json_string_value(json_object_get(node, "$ref"));
    schema_alone(s, node, "$ref", NULL);
    if (!is_path(text)) {
        schema_refuse(s, text ? GQAC_UNSUPPORTED : GQAC_INVALID_INPUT,
                      "a path in the same schema: \"#\" or \"#/$defs/NAME\"",
                      "'$ref' to '%.100s' is not supported", text ? text : "?");
        return build_never(s->b);
    }
    const json_t *found = find_path(s, text);
    if (!found) {
        schema_refuse(s, GQAC_INVALID_INPUT, "a path in the same schema",
                      "'$ref' to '%.100s' leads nowhere", text);
        return build_never(s->b);
    }
    const char *path = gqac_arena_printf(s->b->memory, "%.*s", MOST_NAME, text);
    return build_call(s->b, schema_task(s, found, path));
}

/* ---- what excludes each other -------------------------------------------- */

/* A schema, or what it refers to. */
static const json_t *resolve(const schema *s, const json_t *node) {
    for (int i = 0; i < MOST_HOPS; i++) {
        const char *text = json_string_value(json_object_get(node, "$ref"));
        const json_t *found = is_path(text) ? find_path(s, text) : NULL;
        if (!found)
            return node;
        node = found;
    }
    return node;
}

/* The values of "const" or "enum", as a list; NULL: neither is there. */
static json_t *values_of(const json_t *node) {
    json_t *one = json_object_get(node, "const"), *list = json_object_get(node, "enum");
    if (one)
        return json_pack("[O]", one);
    return json_is_array(list) ? json_incref(list) : NULL;
}

static bool same_value(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) == 1;
}

/* True if both have values, and none of the one is a value of the other. A list or an object is
 * taken as a value of both, since 1 and 1.0 are equal within it. */
static bool values_differ(const json_t *a, const json_t *b) {
    json_t *x = values_of(a), *y = values_of(b);
    const size_t n = json_array_size(x), m = json_array_size(y);
    bool differ = x && y && n * m <= MOST_COMPARED;
    for (size_t i = 0; differ && i < n; i++)
        for (size_t k = 0; differ && k < m; k++) {
            const json_t *p = json_array_get(x, i), *q = json_array_get(y, k);
            differ = !same_value(p, q) && !json_is_object(p) && !json_is_array(p);
        }
    json_decref(x);
    json_decref(y);
    return differ;
}

/* Types of what satisfies a schema; integers are numbers. */
static unsigned types_of(schema *s, const json_t *node) {
    enum { NUMBER = 8, INTEGER = 16, ALL = 127 };
    json_t *values = values_of(node);
    const unsigned given = schema_types(s, node);
    unsigned all = given;
    for (size_t i = 0; !given && i < json_array_size(values); i++)
        all |= schema_type_of(json_array_get(values, i));
    json_decref(values);
    all = all ? all : ALL;
    return (all & (NUMBER | INTEGER)) ? all | NUMBER | INTEGER : all;
}

/* True if a property that the first requires has other values in the second. */
static bool property_differs(const schema *s, const json_t *a, const json_t *b) {
    const json_t *required = json_object_get(a, "required");
    for (size_t i = 0; i < json_array_size(required) && i < MOST_REQUIRED; i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name &&
            values_differ(resolve(s, json_object_get(json_object_get(a, "properties"), name)),
                          resolve(s, json_object_get(json_object_get(b, "properties"), name))))
            return true;
    }
    return false;
}

/* True if no value satisfies both. */
static bool exclude(schema *s, const json_t *a, const json_t *b) {
    a = resolve(s, a);
    b = resolve(s, b);
    if (!(types_of(s, a) & types_of(s, b)) || values_differ(a, b))
        return true;
    const bool objects = types_of(s, a) == 1 && types_of(s, b) == 1;
    return objects && (property_differs(s, a, b) || property_differs(s, b, a));
}

/* "oneOf" is "anyOf" if its schemas exclude each other. */
static void check_one_of(schema *s, const json_t *list) {
    const size_t n = json_array_size(list);
    if (n > MOST_ONE_OF)
        schema_refuse(s, GQAC_UNSUPPORTED, "each is compared with all others",
                      "'oneOf' of more than %d schemas is not supported", MOST_ONE_OF);
    for (size_t i = 0; i < n && s->b->status == GQAC_OK; i++)
        for (size_t k = i + 1; k < n && s->b->status == GQAC_OK; k++)
            if (!exclude(s, json_array_get(list, i), json_array_get(list, k)))
                schema_refuse(
                    s, GQAC_UNSUPPORTED,
                    "two schemas of 'oneOf' differ in type, in the values of 'const' or "
                    "'enum', or in such values of a required property",
                    "schemas %zu and %zu of 'oneOf' may both hold, which is not supported", i, k);
}

/* ---- alternatives -------------------------------------------------------- */

fragment schema_choice(schema *s, json_t *node, const char *name) {
    const json_t *list = json_object_get(node, name);
    const size_t n = json_array_size(list);
    fragment f = build_never(s->b);
    schema_alone(s, node, name, NULL);
    if (!n)
        schema_refuse(s, GQAC_INVALID_INPUT, "a list of schemas", "'%s' is not a list, or is empty",
                      name);
    if (n > 1 && !strcmp(name, "allOf"))
        schema_refuse(s, GQAC_UNSUPPORTED, "'allOf' has only one schema",
                      "'allOf' of %zu schemas is not supported", n);
    if (!strcmp(name, "oneOf"))
        check_one_of(s, list);
    for (size_t i = 0; i < n && s->b->status == GQAC_OK; i++) {
        const uint32_t one = schema_rule(s, json_array_get(list, i), "/%s/%zu", name, i);
        f = build_either(s->b, f, build_call(s->b, one));
    }
    return f;
}
