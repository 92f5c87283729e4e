/* The regular expressions of pre-tokenizers. */
#ifndef GQAC_TEXT_EXPRESSIONS_PATTERN_H
#define GQAC_TEXT_EXPRESSIONS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"

/* A compiled expression. Matching is leftmost-first as a backtracking engine finds it, but runs all
 * threads at once: a call takes time linear in the text and in the size of the expression. All
 * calls over a text together are bounded too: the expressions of real pre-tokenizers take a few
 * steps for each byte, and one that takes far more (a*b|a reads to the end for each a) is refused
 * while it runs. */
typedef struct pattern pattern;
/* UNSUPPORTED: a construct, with its offset; LIMIT: too large. */
gqac_status pattern_create(const char *source, size_t length, pattern **out, gqac_diag *diag);
void pattern_free(pattern *p);
typedef struct pattern_scratch pattern_scratch;
pattern_scratch *pattern_scratch_create(const pattern *p); /* NULL: out of memory */
void pattern_scratch_free(pattern_scratch *scratch);
/* Allows work for a text of so many bytes; to be called before pattern_find is. */
void pattern_scratch_admit(pattern_scratch *scratch, size_t bytes);
typedef struct pattern_match {
    bool found;
    size_t begin, end;
} pattern_match;
/* The match at or after `from`. The text is valid UTF-8. Thread-safe on a shared pattern: `scratch`
 * is the caller's. LIMIT: all calls together take more work than was allowed. */
gqac_status pattern_find(const pattern *p, pattern_scratch *scratch, const char *text,
                         size_t length, size_t from, pattern_match *match, gqac_diag *diag);
/* Steps of work since it was created, for tests of bounds. */
uint64_t pattern_scratch_steps(const pattern_scratch *scratch);

#endif
