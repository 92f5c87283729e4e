/* Syntaxes in which chat templates write calls of tools. A syntax is a row of a table: how it is
 * recognised in the text of a template, and how in an answer. */
#ifndef GQAC_LLM_CALLS_H
#define GQAC_LLM_CALLS_H

#include <stdbool.h>
#include <stddef.h>

#include "text/grammar/grammar.h"

/* How far a JSON value that may still grow has been read. */
typedef struct call_scan {
    size_t at; /* bytes since the beginning of the call; 0: nothing was read */
    int depth;
    bool quoted, escaped, done;
} call_scan;

/* What is known of an answer, from where a call may begin. */
typedef struct call_text {
    const char *text;
    size_t length;
    bool first; /* the answer begins here */
    bool ended; /* the answer ends after `length` bytes */
    call_scan *scan;
} call_text;

typedef enum call_verdict {
    CALL_NONE, /* no call begins here */
    CALL_MORE, /* it depends on what follows; never if the answer has ended */
    CALL_FOUND /* its JSON is still to be checked */
} call_verdict;

typedef struct call_found {
    size_t length;                /* bytes of the call and its markers */
    size_t json, json_length;     /* where its JSON is: an object, or a list of objects */
    size_t called, called_length; /* the name, where it is not in the JSON; length 0: it is */
} call_found;

enum { CALL_MARKERS = 7 };

typedef struct call_syntax {
    const char *signs[3]; /* texts that all occur in the template */
    const char *without;  /* and one that does not; NULL: none */
    const char *markers[CALL_MARKERS];
    bool hidden;           /* the markers are special tokens, and so not part of an answer's text */
    const char *arguments; /* the key of the arguments; NULL: the JSON is the arguments */
    call_verdict (*match)(const call_text *t, call_found *found);
    grammar_calls form; /* how an answer that consists of calls is written */
} call_syntax;

/* The syntax of a template, by its text; NULL: it has none of them. */
const call_syntax *call_syntax_of(const char *template, size_t length);
/* The syntax that a reader reads; NULL: there is no reader. */
struct gqac_calls;
const call_syntax *calls_syntax(const struct gqac_calls *calls);
/* True if `name` is a marker of the syntax. */
bool call_syntax_marks(const call_syntax *s, const char *name, size_t length);

#endif
