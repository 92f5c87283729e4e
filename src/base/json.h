/* Checks and messages that jansson, the JSON parser, leaves to its users. */
#ifndef GQAC_BASE_JSON_H
#define GQAC_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* The size of a text that may be JSON, before it is parsed: a value takes far more memory than its
 * text, and nested values take stack. */
typedef struct gqac_json_size {
    size_t values; /* at least as many as a parser would create */
    size_t depth;  /* of the deepest array or object */
} gqac_json_size;
gqac_json_size gqac_json_measure(const char *text, size_t length);

/* True if the parser failed because memory ran out: jansson then says nothing, and does not set the
 * code of its error. (In some cases it calls a token invalid instead.) */
bool gqac_json_no_memory(const char *said);

/* Why a text is not JSON: what the parser said, reworded where it names an option of the parser, or
 * that the text begins with a byte order mark, which Python refuses too. */
const char *gqac_json_reason(const char *text, size_t length, const char *said);

/* Replaces each number of a valid JSON text that has a point or an exponent by the shortest that
 * reads back as the same double, with a point or an exponent. */
void gqac_json_shorten(char *text);

#endif
