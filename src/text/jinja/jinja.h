/* Chat templates: Jinja as transformers runs it. */
#ifndef GQAC_TEXT_JINJA_JINJA_H
#define GQAC_TEXT_JINJA_JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "base/str.h"

/* A parsed template. Immutable. */
typedef struct jinja jinja;
/* Parses a template. INVALID_MODEL: the syntax is wrong; *diag has the line; UNSUPPORTED: gqac does
 * not have a tag, filter, test or function; *diag names it. */
gqac_status jinja_create(const char *source, size_t length, jinja **out, gqac_diag *diag);
void jinja_free(jinja *j);
/* Renders a template and appends the text to *out. `variables` is an object. INVALID_INPUT:
 * raise_exception, or a run-time error; *diag has the line; LIMIT: too many steps, too deep
 * recursion, or too long a result. */
gqac_status jinja_render(const jinja *j, const json_t *variables, gqac_str *out, gqac_diag *diag);
/* Sets the maximum number of steps of a render, before the template is used. An evaluation is a
 * step, and so are 64 bytes of text that are read. */
void jinja_limit(jinja *j, int64_t steps);

#endif
