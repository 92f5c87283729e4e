/* Reasoning: the part of an answer between two markers, by which models write down their thoughts
 * before they answer. It is counted by ids. */
#ifndef GQAC_SERVE_REASONING_H
#define GQAC_SERVE_REASONING_H

#include <gqac/text.h>

enum { REASONING_BEGIN = 8 }; /* maximum tokens of the marker at its beginning */

typedef struct reasoning {
    size_t n_begin; /* 0: the model has no such markers */
    int64_t begin[REASONING_BEGIN], end;
} reasoning;

/* Sets *out to the markers of a tokenizer, of which the one at the end must be one token.
 * NO_MEMORY. */
gqac_status reasoning_find(const gqac_text *text, reasoning *out, gqac_diag *diag);

/* Where an answer is. */
typedef struct reasoning_state {
    bool inside;
    size_t matched; /* tokens of the marker at the beginning */
} reasoning_state;
/* The state at the beginning of an answer: inside the reasoning, if the prompt ends with the marker
 * that begins it, and perhaps blanks.
 */
reasoning_state reasoning_start(const reasoning *r, const gqac_text *text, const int64_t *ids,
                                size_t n);
/* Adds a token to the answer; true: it is reasoning. The markers are not. */
bool reasoning_push(const reasoning *r, reasoning_state *state, int64_t id);

#endif
