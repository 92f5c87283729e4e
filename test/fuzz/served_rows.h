/* Requests to every endpoint of a server (served.h), and the comparison of its replies with those
 * of a server without faults. */
#ifndef GQAC_TEST_FUZZ_SERVED_ROWS_H
#define GQAC_TEST_FUZZ_SERVED_ROWS_H

#include "fuzz/served.h"

/* "@@@@@@" in a body is replaced by a number that is different in each request, "@long" by a text
 * of several buffers, and "@huge" by one that the server tokenizes in a thread of its own. */
typedef struct served_row {
    const char *path, *body; /* body NULL: GET */
    int repeated;            /* requests that are sent at once */
} served_row;
enum { SERVED_ROWS = 21, SERVED_HUGE = 17 };
extern const served_row served_rows[SERVED_ROWS];
/* True if row i is for a model with an encoder. */
bool served_is_encoded(int i);

/* When the server had nothing left to do for a request. */
typedef enum served_rest { SERVED_AT_ONCE, SERVED_LATER, SERVED_NEVER } served_rest;
/* Sends a request in two pieces, and waits for the replies, which the caller frees. `rested` is
 * called when the server has replied, or has not done so for a while; LATER: it did afterwards. */
served_rest served_ask(serve *s, const served_row *r, unsigned number, void (*rested)(serve *s),
                       gqac_str *replies);

/* The contents of the replies to a row: the events of each choice, and the rest. Events of several
 * choices may be interleaved differently, because after a lack of memory the server computes fewer
 * answers at once for a while. */
enum { SERVED_CHOICES = 2 };
typedef struct served_words {
    bool known;
    gqac_str choices[SERVED_CHOICES], rest;
} served_words;
void served_words_free(served_words *w);

/* FAILED: an error 500 or 503; CLOSED: the connection was closed before the reply was complete. */
typedef enum served_verdict {
    SERVED_RIGHT,
    SERVED_FAILED,
    SERVED_CLOSED,
    SERVED_WRONG
} served_verdict;
/* Compares all replies of a row with the expected ones, if these are known. A reply that failed, or
 * was cut off, must be the beginning of a correct one. Adds the contents to *out. */
served_verdict served_judge(const served_row *r, const gqac_str *replies,
                            const served_words *expected, served_words *out);
/* Makes a request; true if the reply is right. Sets *expected if it is not known. */
bool served_is_right(serve *s, const served_row *r, unsigned number, served_words *expected);

#endif
