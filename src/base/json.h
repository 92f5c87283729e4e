/* The size of a text that may be JSON, before it is parsed: a value takes far more memory than its
 * text, and nested values take stack. */
#ifndef GQAC_BASE_JSON_H
#define GQAC_BASE_JSON_H

#include <stddef.h>

typedef struct gqac_json_size {
    size_t values; /* at least as many as a parser makes */
    size_t depth;  /* of the deepest array or object */
} gqac_json_size;
gqac_json_size gqac_json_measure(const char *text, size_t length);

#endif
