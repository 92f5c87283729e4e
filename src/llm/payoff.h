/* Decides whether drafts pay: the time that a drafted row adds to a step, against the part of the
 * drafts that is accepted. No answer depends on it. */
#ifndef GQAC_LLM_PAYOFF_H
#define GQAC_LLM_PAYOFF_H

#include <stdbool.h>
#include <stdint.h>

/* The times of the steps of a call: a straight line over the number of rows. */
typedef struct payoff { /* zeros: nothing is measured */
    double rows, step;  /* of steps without drafts: rows, seconds */
    double row;         /* seconds that each further row takes */
    bool known, row_known;
    int64_t since; /* steps with drafts since one without agreed with the average */
} payoff;

/* Records the time of a step of `rows` rows, `members` of which are not drafts. */
void payoff_measure(payoff *p, int64_t rows, int64_t members, double seconds);

/* True if the time of a step without drafts of so many members is to be measured again: the time of
 * a row is only as accurate as that. */
bool payoff_is_stale(const payoff *p, int64_t members);

/* Drafts of one origin. */
typedef struct draft_source {  /* zeros: nothing is known */
    bool shared;               /* by several texts, so that many outcomes come at once */
    double compared, accepted; /* drafts, the newest ones counting most */
    double seconds;            /* that making one takes */
    int64_t rest, pause;       /* number of drafts to leave out from now on; the number that was
                                  left out last time */
} draft_source;

/* Records the outcome of a step: `accepted` drafts, and perhaps a wrong one after them. */
void draft_source_take(draft_source *s, int64_t accepted, bool wrong);
/* Records the time that making n drafts took. */
void draft_source_spend(draft_source *s, int64_t n, double seconds);

/* Makes no drafts for a while, twice as long as the last time. */
void draft_source_rest(draft_source *s);

/* The number of drafts, at most `most`, with which ids of all members come fastest; 0: none pays.
 * `again`: rows that are computed again after a wrong draft, for each draft. Where none pays, the
 * source rests, and is then tried with a few drafts. */
int64_t payoff_count(const payoff *p, draft_source *s, int64_t most, int64_t members, int again);

#endif
