/* Building the program of a grammar, from the inside to the outside.
 *
 * A fragment is a part of the program with one entry and one exit. It lies in consecutive
 * instructions, so that a repetition copies it. A failure is kept in the builder: later calls do
 * nothing, and grammar_finish reports it. */
#ifndef GQAC_TEXT_GRAMMAR_BUILD_H
#define GQAC_TEXT_GRAMMAR_BUILD_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/table.h"
#include "text/grammar/grammar.h"

enum { BUILD_MOST_CODE = 1 << 17, BUILD_MOST_RULES = 1 << 15, BUILD_MANY = UINT32_MAX };
#define BUILD_NONE UINT32_MAX

typedef struct rule {
    const char *name; /* for messages, and to find it; in the arena */
    size_t length;
    uint32_t start; /* BUILD_NONE: not defined */
    int line;       /* where it is first named; 0: in no text */
} rule;

typedef struct builder {
    instruction *code;
    size_t n, capacity;
    rule *rules;
    size_t n_rules, rules_capacity;
    gqac_arena *memory;
    gqac_table names; /* index + 1 of a rule by its name */
    gqac_status status;
    gqac_diag *diag;
} builder;

typedef struct fragment {
    uint32_t first, after; /* its instructions: from first to after - 1 */
    uint32_t begin;        /* entry */
    uint32_t end;          /* exit: the instruction whose `next` is not set yet */
} fragment;

/* Code points from low to high. */
typedef struct points {
    uint32_t low, high;
} points;

gqac_status build_open(builder *b, gqac_diag *diag);
void build_close(builder *b);
/* Keeps the first failure; returns it. */
gqac_status build_fail(builder *b, gqac_status status);

/* The index of a rule, which is added if it is new. */
uint32_t build_rule(builder *b, const char *name, size_t length, int line);
/* A rule that cannot be found by its name. */
uint32_t build_new_rule(builder *b, const char *name);
/* Makes the fragment the definition of a rule. */
void build_define(builder *b, uint32_t rule, fragment f);

/* One instruction; its index. */
uint32_t build_emit(builder *b, instruction i);
fragment build_empty(builder *b);
fragment build_never(builder *b);
fragment build_bytes(builder *b, uint8_t low, uint8_t high);
fragment build_text(builder *b, const char *text, size_t length);
fragment build_call(builder *b, uint32_t rule);
/* One character of n ranges of code points, which are sorted and apart; as UTF-8. */
fragment build_points(builder *b, const points *p, size_t n);
/* These take fragments that were built one after the other, with nothing in between. */
fragment build_join(builder *b, fragment a, fragment c);
fragment build_either(builder *b, fragment a, fragment c);
fragment build_repeat(builder *b, fragment f, uint32_t least, uint32_t most);
/* Sorts ranges and joins those that touch; returns their number. */
size_t build_sort_points(points *p, size_t n);
/* Stores what the ranges leave out, in at most n + 1 ranges; returns their number. */
size_t build_invert_points(const points *p, size_t n, points *out);

/* Compiles rules into the builder. Names of rules that exist may be used. */
void build_rules(builder *b, const char *text, size_t length);
/* Checks the program and makes the grammar that begins with a rule. `what`: "grammar", "schema". */
gqac_status grammar_finish(builder *b, uint32_t root, const char *what, grammar **out);

#endif
