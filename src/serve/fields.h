/* Fields of a JSON request, and what is wrong with one. An absent field, or null, leaves the
 * caller's default. */
#ifndef GQAC_SERVE_FIELDS_H
#define GQAC_SERVE_FIELDS_H

#include <gqac/status.h>
#include <jansson.h>
#include <stdbool.h>

/* An error in the form that OpenAI's clients expect. */
typedef struct problem {
    int status; /* of HTTP; 0: none */
    char code[40], param[80], message[600];
} problem;

/* Returns false. `code` and `param` may be NULL. */
bool problem_set(problem *p, int status, const char *code, const char *param, const char *fmt, ...)
    GQAC_PRINTF(5, 6);
/* 500: out of memory. Returns false. */
bool problem_no_memory(problem *p);
/* The same for a failed call. */
bool problem_from(problem *p, const char *param, const gqac_diag *diag);

/* Counts the values of a text that may be JSON (base/json.h), before it is parsed, and adds their
 * number to *values: the texts of a request have one maximum together. Returns false and sets *p if
 * there are too many values, or they are nested too deeply. */
bool fields_modest(const char *text, size_t length, size_t *values, problem *p);
/* Parses a body; NULL: there was no memory for it. Too many values, and values that are nested too
 * deeply, are refused before they take memory. */
json_t *fields_parse(const char *text, size_t length, problem *p);

/* Set *out to the value of a field, if it has one. False, and *p is set: the value has another
 * type, or is outside the range. */
bool fields_bool(const json_t *root, const char *name, bool *out, problem *p);
bool fields_int(const json_t *root, const char *name, int64_t least, int64_t most, int64_t *out,
                problem *p);
bool fields_real(const json_t *root, const char *name, double least, double most, double *out,
                 problem *p);
/* A text of at most `most` bytes, which belongs to `root`. */
bool fields_text(const json_t *root, const char *name, size_t most, const char **out, problem *p);
bool fields_type(const json_t *root, const char *name, json_type type, json_t **out, problem *p);
/* The value of a field; NULL: it is absent or null. */
json_t *fields_get(const json_t *root, const char *name);

#endif
