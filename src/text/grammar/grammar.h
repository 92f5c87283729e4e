/* Grammars: which texts an answer may be.
 *
 * A grammar in a notation of rules, or a JSON Schema, becomes a program of instructions that accept
 * bytes, as Thompson (1968) compiles regular expressions. A rule is a part of this program that
 * others call, so rules may be recursive. The automaton (automaton.h) runs the program. */
#ifndef GQAC_TEXT_GRAMMAR_GRAMMAR_H
#define GQAC_TEXT_GRAMMAR_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"

/* Calls that are open at the same time: a text that needs more is not accepted. A call that is the
 * last part of its rule does not count. */
enum { GRAMMAR_MOST_DEPTH = 256 };

typedef enum grammar_op {
    GRAMMAR_BYTE,   /* accepts a byte from low to high, then continues at next */
    GRAMMAR_SPLIT,  /* continues at next and at other */
    GRAMMAR_JUMP,   /* continues at next */
    GRAMMAR_CALL,   /* accepts rule `other`, then continues at next */
    GRAMMAR_TAIL,   /* accepts rule `other`, then returns */
    GRAMMAR_RETURN, /* the rule is complete */
    GRAMMAR_NEVER   /* accepts nothing */
} grammar_op;

typedef struct instruction {
    uint8_t op, low, high;
    uint32_t next, other;
} instruction;

/* Immutable. */
typedef struct grammar {
    instruction *code;
    /* How many calls have to be open at the same time from an instruction to the end of its rule;
     * GRAMMAR_NO_END: nothing leads there. */
    uint16_t *need;
    uint32_t n, start;
    uint32_t *starts; /* of each rule */
} grammar;
enum { GRAMMAR_NO_END = UINT16_MAX };

/* Compiles rules; "root" is the first one. docs/generation.md describes the notation. The caller
 * frees *out. INVALID_INPUT: the text is wrong, a rule begins with itself, or no text is accepted
 * but the empty one; LIMIT: it is too large. */
gqac_status grammar_from_rules(const char *text, size_t length, grammar **out, gqac_diag *diag);
/* Compiles a JSON Schema to a grammar of the JSON texts that satisfy it. INVALID_INPUT: the schema
 * is wrong, or nothing satisfies it; UNSUPPORTED: it has a keyword that gqac does not have; LIMIT:
 * it is too large. */
gqac_status grammar_from_schema(const char *text, size_t length, grammar **out, gqac_diag *diag);

enum { GRAMMAR_HEADER_BEGINS = 2, GRAMMAR_MIDDLES = 4 };
/* How calls of functions are written, with 0xff before and after the name of a special token:
 *     begin, before NAME middle ARGUMENTS after, between, before NAME ... after, end
 */
typedef struct grammar_calls {
    const char *begin, *before, *middle, *after;
    const char *between; /* NULL: there is only one call */
    const char *end;
    const char *marker; /* in ASCII; text beside calls does not contain it */
    /* If an answer consists of messages, each a header and a content, and the marker is in the
     * header of a call: the texts that begin a header, the text that ends it, and those that may
     * replace `middle` where calls are optional. NULL: an answer has no messages. */
    const char *header_begins[GRAMMAR_HEADER_BEGINS], *header_end, *middles[GRAMMAR_MIDDLES];
    char not_first; /* text beside calls does not begin with it; 0: it begins with any character */
} grammar_calls;
/* The texts are the members before `not_first`. */
enum { GRAMMAR_TEXTS = offsetof(grammar_calls, not_first) / sizeof(const char *) };
/* Which calls an answer has: as gqac_tool_choice. */
typedef struct grammar_choice {
    const char *name;
    bool parallel, optional;
} grammar_choice;
/* Compiles tools, as calls.h describes them, to a grammar of calls of these functions, whose
 * arguments satisfy their "parameters"; a function without them has no arguments. INVALID_INPUT:
 * the tools are wrong, or no function has the name of the choice; others as above. */
gqac_status grammar_from_tools(const char *tools, size_t length, const grammar_calls *form,
                               const grammar_choice *choice, grammar **out, gqac_diag *diag);
/* False if answers may be any text: calls are optional and parallel, of any function, and none is
 * strict. Does not say whether the tools are a list of functions. */
bool grammar_tools_limit(const char *tools, size_t length, const grammar_choice *choice);
void grammar_free(grammar *g);

#endif
