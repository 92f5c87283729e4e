/* Objects and arrays. Properties come in the order of the schema. They are built from the last to
 * the first, and each has two entries: one with nothing before it, one after a comma. */
#include <string.h>

#include "text/grammar/schema.h"

typedef struct object {
    schema *s;
    builder *b;
    json_t *required;      /* a set */
    uint32_t first, after; /* entries of what follows: without, and after a property */
    word_list names;
} object;

/* ---- properties ---------------------------------------------------------- */

/* Makes a set of the names in "required", each of which must be in "properties": both may be
 * long. */
static void read_required(object *o, const json_t *list, const json_t *properties) {
    o->required = json_object();
    if (!o->required)
        build_fail(o->b, gqac_diag_oom(o->b->diag, "a schema"));
    if (list && !json_is_array(list))
        schema_refuse(o->s, GQAC_INVALID_INPUT, "a list of strings", "'required' is not a list");
    for (size_t i = 0; i < json_array_size(list) && o->b->status == GQAC_OK; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name)
            schema_refuse(o->s, GQAC_INVALID_INPUT, "a list of strings",
                          "'required' has an item that is not a string");
        else if (!json_object_get(properties, name))
            schema_refuse(o->s, GQAC_UNSUPPORTED, "each name in 'required' is in 'properties'",
                          "'required' names '%.100s', which 'properties' does not have", name);
        else if (json_object_set_new(o->required, name, json_true()) != 0)
            build_fail(o->b, gqac_diag_oom(o->b->diag, "a schema"));
    }
}

static uint32_t split(const object *o, uint32_t next, uint32_t other) {
    return build_emit(o->b, (instruction){.op = GRAMMAR_SPLIT, .next = next, .other = other});
}

static uint32_t comma(const object *o, uint32_t next) {
    fragment f = build_bytes(o->b, ',', ',');
    f = build_join(o->b, f, schema_json(o->s, "json-space"));
    if (o->b->status == GQAC_OK)
        o->b->code[f.end].next = next;
    return f.begin;
}

/* ": value", after a key. */
static fragment value_of(const object *o, fragment key, uint32_t rule) {
    fragment f = build_join(o->b, key, build_bytes(o->b, ':', ':'));
    f = build_join(o->b, f, schema_json(o->s, "json-space"));
    return build_join(o->b, f, build_call(o->b, rule));
}

static void add_property(object *o, const char *name, const json_t *node) {
    json_t *text = json_string(name);
    const uint32_t rule = schema_rule(o->s, node, "/properties/%.100s", name);
    const fragment key = text ? schema_value(o->s, text) : build_never(o->b);
    json_decref(text);
    const fragment f = value_of(o, key, rule);
    if (o->b->status != GQAC_OK)
        return;
    o->b->code[f.end].next = o->after;
    const uint32_t later = comma(o, f.begin);
    const bool optional = !json_object_get(o->required, name);
    o->first = optional ? split(o, f.begin, o->first) : f.begin;
    o->after = optional ? split(o, later, o->after) : later;
}

/* Further properties, whose names are not those of the schema. */
static void add_further(object *o, const json_t *more) {
    const uint32_t rule = schema_rule(o->s, more, "/additionalProperties");
    const uint32_t after = split(o, BUILD_NONE, o->after);
    fragment key = build_bytes(o->b, '"', '"');
    key = build_join(o->b, key, schema_other_key(o->s, &o->names));
    const fragment f = value_of(o, key, rule);
    if (o->b->status != GQAC_OK)
        return;
    o->b->code[f.end].next = after;
    const uint32_t later = comma(o, f.begin);
    if (o->b->status == GQAC_OK)
        o->b->code[after].next = later;
    o->first = split(o, f.begin, o->first);
    o->after = after;
}

static void add_properties(object *o, json_t *properties) {
    const size_t n = json_object_size(properties);
    const char **names = GQAC_ARENA_ARRAY(o->b->memory, const char *, n + 1);
    const char *name = NULL;
    json_t *value = NULL;
    size_t i = 0;
    if (!names) {
        build_fail(o->b, gqac_diag_oom(o->b->diag, "a schema"));
        return;
    }
    json_object_foreach(properties, name, value) names[i++] = name;
    while (i-- > 0 && o->b->status == GQAC_OK)
        add_property(o, names[i], json_object_get(properties, names[i]));
}

/* True if JSON writes the name with escapes. */
static bool has_escapes(const char *name) {
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == '"' || *name == '\\')
            return true;
    return false;
}

/* Names that a key without escapes can have. */
static void collect_names(object *o, json_t *properties) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(properties, name, value) {
        if (!has_escapes(name) && !schema_add_word(o->s, &o->names, name))
            return;
    }
}

/* What is between the braces, and the braces. */
static fragment build_members(object *o, json_t *properties, const json_t *more) {
    builder *b = o->b;
    fragment all = build_bytes(b, '{', '{');
    all = build_join(b, all, schema_json(o->s, "json-space"));
    const fragment space = schema_json(o->s, "json-space"), end = build_bytes(b, '}', '}');
    if (b->status == GQAC_OK)
        b->code[space.end].next = end.begin;
    o->first = end.begin;
    o->after = space.begin;
    if (more && !json_is_false(more)) {
        collect_names(o, properties);
        add_further(o, more);
    }
    add_properties(o, properties);
    if (b->status == GQAC_OK)
        b->code[all.end].next = o->first;
    return (fragment){all.first, (uint32_t)b->n, all.begin, end.end};
}

fragment schema_object(schema *s, const json_t *node) {
    json_t *properties = json_object_get(node, "properties");
    const json_t *more = json_object_get(node, "additionalProperties");
    object o = {.s = s, .b = s->b};
    if (properties && !json_is_object(properties))
        schema_refuse(s, GQAC_INVALID_INPUT, "an object of schemas",
                      "'properties' is not an object");
    read_required(&o, json_object_get(node, "required"), properties);
    const fragment f = json_object_size(properties) || more ? build_members(&o, properties, more)
                                                            : schema_json(s, "json-object");
    json_decref(o.required);
    return f;
}

/* ---- arrays -------------------------------------------------------------- */

fragment schema_array(schema *s, const json_t *node) {
    builder *b = s->b;
    const json_t *items = json_object_get(node, "items");
    const uint32_t least = schema_count(s, node, "minItems", 0);
    const uint32_t most = schema_count(s, node, "maxItems", BUILD_MANY);
    if (least > most)
        return build_never(b);
    const uint32_t rule = items ? schema_rule(s, items, "/items") : build_rule(b, "json-any", 8, 0);
    fragment begin = build_bytes(b, '[', '[');
    begin = build_join(b, begin, schema_json(s, "json-space"));
    if (most) {
        fragment list = build_call(b, rule);
        fragment next = build_bytes(b, ',', ',');
        next = build_join(b, next, schema_json(s, "json-space"));
        next = build_join(b, next, build_call(b, rule));
        next = build_repeat(b, next, least ? least - 1 : 0,
                            most == BUILD_MANY ? BUILD_MANY : most - 1);
        list = build_join(b, list, next);
        list = build_join(b, list, schema_json(s, "json-space"));
        begin = build_join(b, begin, least ? list : build_repeat(b, list, 0, 1));
    }
    return build_join(b, begin, build_bytes(b, ']', ']'));
}
