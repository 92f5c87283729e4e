/* The regular expressions of pre-tokenizers. */
#ifndef GQAC_TEXT_EXPRESSIONS_PATTERN_H
#define GQAC_TEXT_EXPRESSIONS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"

/* A compiled expression. It finds the match that a backtracking engine finds (leftmost, first
 * alternative), but runs all threads at once, so a call takes time linear in the text and in the
 * size of the expression. The work of all calls over a text together has a maximum too: expressions
 * of real pre-tokenizers take a few steps for each byte, and one that takes far more (a*b|a reads
 * to the end for each a) fails with LIMIT. */
typedef struct pattern pattern;
/* Compiles an expression. UNSUPPORTED: a construct is not supported; *diag has its offset; LIMIT:
 * the expression is too large. */
gqac_status pattern_create(const char *source, size_t length, pattern **out, gqac_diag *diag);
void pattern_free(pattern *p);
typedef struct pattern_scratch pattern_scratch;
pattern_scratch *pattern_scratch_create(const pattern *p); /* NULL: out of memory */
void pattern_scratch_free(pattern_scratch *scratch);
/* Allows work for a text of `bytes` bytes; to be called before pattern_find. */
void pattern_scratch_admit(pattern_scratch *scratch, size_t bytes);
typedef struct pattern_match {
    bool found;
    size_t begin, end;
} pattern_match;
/* Finds the first match at or after `from`. The text is valid UTF-8. Threads may share a pattern,
 * but each needs its own `scratch`. LIMIT: all calls together took more work than was allowed. */
gqac_status pattern_find(const pattern *p, pattern_scratch *scratch, const char *text,
                         size_t length, size_t from, pattern_match *match, gqac_diag *diag);
/* Steps of work since the scratch was created, for tests. */
uint64_t pattern_scratch_steps(const pattern_scratch *scratch);

#endif
