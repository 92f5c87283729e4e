/* Shared by the files that parse an expression: groups and repeats (pattern_parse.c), classes and
 * escapes (pattern_class.c), looking around (pattern_look.c). */
#ifndef GQAC_TEXT_EXPRESSIONS_PATTERN_PARSE_IMPL_H
#define GQAC_TEXT_EXPRESSIONS_PATTERN_PARSE_IMPL_H

#include "text/expressions/pattern_impl.h"

typedef struct parser {
    const char *s; /* valid UTF-8 */
    size_t n, at;
    charsets *sets;
    gqac_diag *diag;
    int depth, class_depth; /* of groups, of classes */
    bool fold, dot_all;     /* options i and m */
    int32_t tail[3];        /* the last literals without regard to case */
    size_t n_tail;
    bool no_memory; /* out of memory: why a look could not be read */
} parser;

/* "WHAT at byte OFFSET of the expression: '...'" */
gqac_status pattern_refuse(const parser *p, gqac_status status, size_t offset, const char *what);
/* A new node of that kind, without children. */
gqac_status pattern_make(parser *p, node_kind kind, size_t offset, node **out);
/* Skips a text if it follows. */
bool pattern_accept(parser *p, const char *text);

/* ---- pattern_class.c ----------------------------------------------------- */

/* Parse what follows '[', or an escape: add to the empty *set, or return one character. */
gqac_status pattern_parse_class(parser *p, charset *set, size_t offset);
gqac_status pattern_parse_escape(parser *p, charset *set, int32_t *c);
/* Adds characters that differ only in case. UNSUPPORTED: a member equals several characters in
 * another case. */
gqac_status pattern_fold(parser *p, charset *set, size_t offset, bool negated);

/* ---- pattern_look.c ------------------------------------------------------ */

bool pattern_may_be_empty(const node *x);
/* (?=...), (?!...), (?<=...) and (?<!...) that require one character. */
gqac_status pattern_make_look(parser *p, const node *body, node_kind kind, bool negate,
                              size_t offset, node **out);
/* '^', '$', '\A', '\z', '\b', '\B'; *out is NULL if none follows. `set` is empty, for
 * scratch. */
gqac_status pattern_parse_anchor(parser *p, charset *set, node **out);

#endif
