/* Tools of `chat`: what the model may call, and the calls of an answer, which are printed as lines
 * of JSON. */
#ifndef GQAC_CLI_CALLING_H
#define GQAC_CLI_CALLING_H

#include "cli/cli.h"

/* Rows of a flag table. */
#define CALLING_FLAGS                                                                              \
    {"tools", "FILE",                                                                              \
     "a JSON list of functions that the model may call; FILE may be the list itself, [ ... ]"},    \
        {"tool-choice", "auto|none|required|NAME",                                                 \
         "required: each message is answered by a call; NAME: by a call of this function; none: "  \
         "the model does not see the tools (auto)"},                                               \
    {                                                                                              \
        "one-call", NULL, "allows at most one call in an answer"                                   \
    }

typedef struct calling {
    cli *c;
    const gqac_text *text;
    json_t *tools; /* NULL: there are none */
    char *source;  /* their JSON, for readers of calls; malloc'd */
    /* Of answers to messages, and of answers to results of calls; NULL: any text. */
    gqac_constraint *first, *later;
    int named; /* number of ids that were made, for calls to which the answer gives none */
    /* of an answer */
    gqac_reply *reply;
    gqac_calls *calls;
    json_t *found;   /* its calls, as messages have them */
    json_t *written; /* their arguments, as the answer has them */
    char *content;   /* the rest of its text; malloc'd */
    size_t length;
    FILE *rest; /* writes to `content` */
    bool shown; /* calls and content are printed */
    bool open;  /* the line that was printed last has no end */
} calling;

/* Reads the flags. USAGE: they do not fit together, or --grammar or --json-schema is given too;
 * else the errors of gqac_constraint_from_tools. */
gqac_status calling_open(calling *x, cli *c, const gqac_text *text);
void calling_close(calling *x);
/* Begins an answer, which ends before one of the stop texts. */
gqac_status calling_begin(calling *x, int n_stop, const char *const *stop, bool shown);
/* Adds an id of the answer, and prints what is decided. */
gqac_status calling_push(calling *x, int64_t id);
/* Ends the answer: prints the rest, if it has not failed. */
gqac_status calling_end(calling *x, bool failed);
/* The message of the answer, with its calls; NULL: out of memory. */
json_t *calling_message(const calling *x);
/* Adds the calls of the answer to its JSON, as OpenAI's API has them. */
void calling_add(const calling *x, json_t *answer);

#endif
