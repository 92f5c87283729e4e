/* Chat templates: Jinja as transformers runs it. */
#ifndef GQAC_TEXT_JINJA_JINJA_H
#define GQAC_TEXT_JINJA_JINJA_H

#include <jansson.h>
#include <stddef.h>

#include "base/diag.h"
#include "base/str.h"

/* A parsed template. Immutable. */
typedef struct jinja jinja;
/* INVALID_MODEL (syntax, with line), UNSUPPORTED (a tag, filter, test or function by name). */
gqac_status jinja_create(const char *source, size_t length, jinja **out, gqac_diag *diag);
void jinja_free(jinja *j);
/* Appends to *out. `variables` is an object. INVALID_INPUT for raise_exception and run-time errors
 * (with line), LIMIT for too many steps, too deep recursion or too long results. */
gqac_status jinja_render(const jinja *j, const json_t *variables, gqac_str *out, gqac_diag *diag);

#endif
