/* Members of tokenizer.json. Each reader names the member that is wrong; only members that the file
 * may leave out have defaults. */
#include <stdio.h>
#include <string.h>

#include "text/tokenizer/tokenizer_impl.h"

static gqac_status wrong(const char *key, const char *need, gqac_diag *diag) {
    GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'%s' is missing or not %s", key, need);
}

gqac_status json_need_text(const json_t *object, const char *key, span *out, gqac_diag *diag) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return wrong(key, "a string", diag);
    *out = (span){json_string_value(value), json_string_length(value)};
    return GQAC_OK;
}

/* A member that may be absent; null counts as absent. */
static const json_t *present(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

gqac_status json_may_bool(const json_t *object, const char *key, bool *out, gqac_diag *diag) {
    const json_t *value = present(object, key);
    if (value && !json_is_boolean(value))
        return wrong(key, "true or false", diag);
    if (value)
        *out = json_is_true(value);
    return GQAC_OK;
}

gqac_status json_may_text(const json_t *object, const char *key, span *out, gqac_diag *diag) {
    return present(object, key) ? json_need_text(object, key, out, diag) : GQAC_OK;
}

gqac_status json_to_index(const json_t *value, const char *name, int64_t most, int64_t *out,
                          gqac_diag *diag) {
    if (!json_is_integer(value))
        return wrong(name, "an integer", diag);
    json_int_t number = json_integer_value(value);
    if (number < 0)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'%s' is %lld, less than 0", name, (long long)number);
    if (number > most)
        GQAC_FAIL(diag, GQAC_LIMIT, "'%s' is %lld, more than %lld", name, (long long)number,
                  (long long)most);
    *out = number;
    return GQAC_OK;
}

bool span_is(span s, const char *word) {
    return s.length == strlen(word) && memcmp(s.bytes, word, s.length) == 0;
}

gqac_status span_among(span s, const char *what, const char *const *words, int n, int *out,
                       gqac_diag *diag) {
    for (*out = 0; *out < n; (*out)++)
        if (span_is(s, words[*out]))
            return GQAC_OK;
    char known[200] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", words[i]);
    }
    gqac_diag_set(diag, GQAC_UNSUPPORTED, "%s '%s' is not supported", what, s.bytes);
    gqac_diag_hint(diag, "gqac supports %s", known);
    return GQAC_UNSUPPORTED;
}

gqac_status span_keep(gqac_arena *arena, span *s, gqac_diag *diag) {
    char *copy = gqac_arena_calloc(arena, s->length + 1, 1); /* may hold NUL: no strndup */
    if (!copy)
        return gqac_diag_oom(diag, "a tokenizer");
    memcpy(copy, s->bytes, s->length);
    s->bytes = copy;
    return GQAC_OK;
}

gqac_status json_need_pattern(const json_t *object, gqac_arena *arena, span *literal,
                              pattern **regex, gqac_diag *diag) {
    const json_t *value = json_object_get(object, "pattern");
    if (!json_is_object(value) || json_object_size(value) != 1)
        return wrong("pattern", "an object with one String or Regex", diag);
    if (json_object_get(value, "Regex")) {
        span source = {0};
        GQAC_TRY(json_need_text(value, "Regex", &source, diag));
        *literal = (span){0};
        return pattern_create(source.bytes, source.length, regex, diag);
    }
    GQAC_TRY(json_need_text(value, "String", literal, diag));
    if (literal->length == 0)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "'pattern' is an empty String");
    return span_keep(arena, literal, diag);
}

gqac_status in_step(gqac_status status, const char *part, int index, gqac_diag *diag) {
    if (status != GQAC_OK)
        gqac_diag_where(diag, "%s, step %d", part, index + 1);
    return status;
}

static gqac_status each_part(const json_t *value, const char *list, part_reader *read, void *arg,
                             int depth, gqac_diag *diag) {
    if (!value || json_is_null(value))
        return GQAC_OK;
    if (!json_is_object(value))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "the value is not an object");
    span type;
    GQAC_TRY(json_need_text(value, "type", &type, diag));
    gqac_status status = GQAC_OK;
    if (!span_is(type, "Sequence")) {
        status = read(arg, value, type, diag);
        if (status != GQAC_OK)
            gqac_diag_where(diag, "%s", type.bytes);
        return status;
    }
    if (depth == TOKENIZER_MAX_NESTING)
        GQAC_FAIL(diag, GQAC_LIMIT, "Sequences are nested more than %d levels deep",
                  TOKENIZER_MAX_NESTING);
    const json_t *parts = json_object_get(value, list);
    if (!json_is_array(parts))
        return wrong(list, "an array", diag);
    for (size_t i = 0; i < json_array_size(parts) && status == GQAC_OK; i++) {
        const json_t *part = json_array_get(parts, i);
        if (!json_is_object(part))
            GQAC_FAIL(diag, GQAC_INVALID_MODEL, "part %zu of a Sequence is not an object", i);
        status = each_part(part, list, read, arg, depth + 1, diag);
    }
    return status;
}

gqac_status json_each_part(const json_t *value, const char *name, const char *list,
                           part_reader *read, void *arg, gqac_diag *diag) {
    gqac_status status = each_part(value, list, read, arg, 0, diag);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "%s", name);
    return status;
}
