/* The text of an answer while it grows: pieces of the detokenizer, cut before the first stop text.
 *
 * The first stop text is the one that is complete first; if several end at the same byte, the
 * longest. So it does not depend on where ids begin and end. A possible beginning of a stop text is
 * held back. */
#ifndef GQAC_LLM_REPLY_H
#define GQAC_LLM_REPLY_H

#include <gqac/text.h>

#include "base/diag.h"
#include "base/str.h"

typedef struct reply_stop {
    const char *text;
    size_t length;
    size_t matched; /* bytes of it that the text ends with */
    size_t *back;   /* [length + 1] longest proper border of each beginning */
} reply_stop;

typedef struct reply {
    gqac_text_stream *stream; /* NULL: there is no text */
    gqac_str text;
    size_t returned; /* bytes, by reply_take */
    int n_stop;
    reply_stop *stops;
    bool stopped; /* the text was cut before a stop text and is complete */
    const gqac_text *source;
    const struct call_syntax *shown; /* its markers are text even where they are special tokens;
                                        NULL: none */
} reply;

/* All zero is an empty reply. `text` may be NULL, or without a tokenizer. The stop texts must
 * outlive the reply. The caller closes it also after a failure. */
gqac_status reply_open(reply *r, const gqac_text *text, int n_stop, const char *const *stop,
                       gqac_diag *diag);
void reply_close(reply *r);
/* Adds the text of an id; one that the tokenizer does not have adds none. */
gqac_status reply_push(reply *r, int64_t id, gqac_diag *diag);
/* Adds what the detokenizer held back. */
gqac_status reply_finish(reply *r, gqac_diag *diag);
/* The text since the last call, without what is held back; with `all` everything. */
const char *reply_take(reply *r, bool all, size_t *length);

#endif
