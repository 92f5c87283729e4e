/* Tool calls: found in the text of an answer, in the syntax of the model's chat template.
 *
 *   gqac_call_part part = {.size = sizeof part};
 *   gqac_calls_create(text, tools, &calls, &diag);
 *   gqac_reply_show_calls(reply, calls);
 *   ... after each gqac_reply_push ...
 *   gqac_calls_push(calls, piece, length, &diag);
 *   while (gqac_calls_next(calls, &part)) ...
 *   ... after the last one: gqac_calls_finish, and gqac_calls_next again ...
 *
 * A complete and valid call of one of the tools becomes a part of its own; everything else is
 * content, unchanged. The parts do not depend on how the text is split into pieces. Content is
 * returned as soon as it cannot be the beginning of a call, and a call when its last byte has been
 * added. docs/serving.md lists the supported syntaxes. */
#ifndef GQAC_CALLS_H
#define GQAC_CALLS_H

#include <gqac/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads one answer; only one thread at a time may use it. */
typedef struct gqac_calls gqac_calls;
/* Sets *calls to a reader of answers to a prompt that offers `tools`: the JSON that the variable
 * `tools` of the template has, a list of objects {"type": "function", "function": {"name": ...}} or
 * {"name": ...}. NULL: any name may be called. *calls is NULL if the model has no template, or if
 * its template does not write calls in a known syntax. The caller frees it; the text must outlive
 * it. INVALID_INPUT: `tools` is not such a list; NO_MEMORY. */
GQAC_API gqac_status gqac_calls_create(const gqac_text *text, const char *tools, gqac_calls **calls,
                                       gqac_diag *diag);
GQAC_API void gqac_calls_free(gqac_calls *calls);
/* Makes the special tokens by which calls are recognised part of the reply's text, which otherwise
 * has no special tokens. To be called before the first id; calls NULL: changes nothing. */
GQAC_API void gqac_reply_show_calls(gqac_reply *reply, const gqac_calls *calls);

/* Adds `length` bytes to the answer. NO_MEMORY. */
GQAC_API gqac_status gqac_calls_push(gqac_calls *calls, const char *bytes, size_t length,
                                     gqac_diag *diag);
/* To be called after the last piece: a call that is not complete is content. NO_MEMORY. */
GQAC_API gqac_status gqac_calls_finish(gqac_calls *calls, gqac_diag *diag);

typedef struct gqac_call_part {
    size_t size;      /* sizeof(gqac_call_part), set by the caller */
    const char *text; /* of content; NULL: the part is a call */
    size_t length;    /* of `text`, in bytes; no NUL follows */
    /* of a call, NUL-terminated; NULL in content */
    const char *name;
    const char *arguments; /* a JSON object, as the answer has it */
    const char *id;        /* NULL: the answer has none */
} gqac_call_part;
/* Fills *part with the next part; returns false if there is none yet, or if part->size is not that
 * of any version of the struct. Texts of the part are valid until the next call with `calls`. */
GQAC_API bool gqac_calls_next(gqac_calls *calls, gqac_call_part *part);

#ifdef __cplusplus
}
#endif
#endif
