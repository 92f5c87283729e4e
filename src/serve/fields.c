/* See fields.h. */
#include "serve/fields.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { DEPTH = 64, VALUES = 400000 };

bool problem_set(problem *p, int status, const char *code, const char *param, const char *fmt,
                 ...) {
    va_list args;
    memset(p, 0, sizeof *p);
    p->status = status;
    snprintf(p->code, sizeof p->code, "%s", code ? code : "");
    snprintf(p->param, sizeof p->param, "%s", param ? param : "");
    va_start(args, fmt);
    vsnprintf(p->message, sizeof p->message, fmt, args);
    va_end(args);
    return false;
}

bool problem_no_memory(problem *p) {
    return problem_set(p, 500, NULL, NULL, "out of memory");
}

static int http_status(gqac_status status) {
    switch (status) {
    case GQAC_USAGE:
    case GQAC_INVALID_INPUT:
    case GQAC_OUT_OF_RANGE:
    case GQAC_UNSUPPORTED:
    case GQAC_LIMIT:
        return 400;
    case GQAC_CAPACITY:
    case GQAC_NO_MEMORY:
    case GQAC_ABORTED:
        return 503;
    default:
        return 500;
    }
}

bool problem_from(problem *p, const char *param, const gqac_diag *diag) {
    return problem_set(p, http_status(diag->status), gqac_status_name(diag->status), param,
                       "%s%s%s%s%s", diag->what, *diag->rule ? "; " : "", diag->rule,
                       *diag->hint ? "; try: " : "", diag->hint);
}

/* ---- parsing ------------------------------------------------------------- */

bool fields_modest(const char *text, size_t length, size_t *values, problem *p) {
    const gqac_json_size size = gqac_json_measure(text, length);
    *values += size.values;
    if (size.depth > DEPTH)
        return problem_set(p, 400, NULL, NULL, "the JSON is nested more than %d levels deep",
                           DEPTH);
    return *values <= VALUES ||
           problem_set(p, 400, NULL, NULL, "the JSON has more than %d values", VALUES);
}

/* True if a number is the value, or occurs within it. */
static bool holds(const json_t *value, double number) {
    const char *key;
    size_t i;
    json_t *within;
    bool found = json_is_real(value) && json_real_value(value) == number;
    json_array_foreach(value, i, within) {
        found |= holds(within, number);
    }
    json_object_foreach((json_t *)value, key, within) {
        found |= holds(within, number);
    }
    return found;
}

/* Says which field has the whole number that ends at `end`, which is too big for jansson. */
static void name_too_big(const char *text, size_t length, size_t end, problem *p) {
    const char *key;
    json_t *value, *root = json_loadb(text, length, JSON_DECODE_INT_AS_REAL, NULL);
    size_t begin = end;
    while (begin && (isdigit((unsigned char)text[begin - 1]) || text[begin - 1] == '-'))
        begin--;
    const double number = root ? strtod(text + begin, NULL) : 0; /* a brace follows it */
    json_object_foreach(root, key, value) {
        if (!holds(value, number))
            continue;
        problem_set(p, 400, NULL, key,
                    "'%.100s' has an integer that does not fit into 64 bits with a sign", key);
        break;
    }
    json_decref(root);
}

json_t *fields_parse(const char *text, size_t length, problem *p) {
    json_error_t why;
    size_t values = 0;
    if (!text) {
        problem_no_memory(p);
        return NULL;
    }
    if (!fields_modest(text, length, &values, p))
        return NULL;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    if (!root && gqac_json_no_memory(why.text)) {
        problem_no_memory(p);
        return NULL;
    }
    if (!root)
        problem_set(p, 400, NULL, NULL, "the body is not JSON: %s, line %d, column %d",
                    gqac_json_reason(text, length, why.text), why.line, why.column);
    else if (!json_is_object(root))
        problem_set(p, 400, NULL, NULL, "the body is not a JSON object");
    if (!root && json_error_code(&why) == json_error_numeric_overflow)
        name_too_big(text, length, (size_t)why.position, p);
    if (json_is_object(root))
        return root;
    json_decref(root);
    return NULL;
}

/* ---- fields -------------------------------------------------------------- */

static const char *const types[] = {
    "an object", "an array", "a string", "an integer", "a number with a fraction",
    "true",      "false",    "null"};

static bool wrong(problem *p, const char *name, const char *wanted, const json_t *found) {
    return problem_set(p, 400, NULL, name, "'%s' is %s, but must be %s", name,
                       types[json_typeof(found)], wanted);
}

json_t *fields_get(const json_t *root, const char *name) {
    json_t *found = json_object_get(root, name);
    return json_is_null(found) ? NULL : found;
}

bool fields_bool(const json_t *root, const char *name, bool *out, problem *p) {
    const json_t *found = fields_get(root, name);
    if (found && !json_is_boolean(found))
        return wrong(p, name, "true or false", found);
    if (found)
        *out = json_is_true(found);
    return true;
}

bool fields_int(const json_t *root, const char *name, int64_t least, int64_t most, int64_t *out,
                problem *p) {
    const json_t *found = fields_get(root, name);
    if (!found)
        return true;
    int64_t value = json_integer_value(found);
    if (json_is_real(found)) { /* 16.0 */
        const double real = json_real_value(found);
        if (!(fabs(real) < 9e15) || real != floor(real))
            return wrong(p, name, "an integer", found);
        value = (int64_t)real;
    } else if (!json_is_integer(found)) {
        return wrong(p, name, "an integer", found);
    }
    if (value < least || value > most)
        return problem_set(p, 400, NULL, name, "'%s' is %lld, but must be from %lld to %lld", name,
                           (long long)value, (long long)least, (long long)most);
    *out = value;
    return true;
}

bool fields_real(const json_t *root, const char *name, double least, double most, double *out,
                 problem *p) {
    const json_t *found = fields_get(root, name);
    if (!found)
        return true;
    if (!json_is_number(found))
        return wrong(p, name, "a number", found);
    const double value = json_number_value(found);
    if (!(value >= least && value <= most))
        return problem_set(p, 400, NULL, name, "'%s' is %g, but must be from %g to %g", name, value,
                           least, most);
    *out = value;
    return true;
}

bool fields_type(const json_t *root, const char *name, json_type type, json_t **out, problem *p) {
    json_t *found = fields_get(root, name);
    if (found && json_typeof(found) != type)
        return wrong(p, name, types[type], found);
    *out = found;
    return true;
}

bool fields_text(const json_t *root, const char *name, size_t most, const char **out, problem *p) {
    json_t *found = NULL;
    if (!fields_type(root, name, JSON_STRING, &found, p))
        return false;
    if (found && json_string_length(found) > most)
        return problem_set(p, 400, NULL, name, "'%s' has more than %zu bytes", name, most);
    if (found)
        *out = json_string_value(found);
    return true;
}
