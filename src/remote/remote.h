/* What the tool needs of a remote tier in addition to <gqac/remote.h>. */
#ifndef GQAC_REMOTE_REMOTE_H
#define GQAC_REMOTE_REMOTE_H

#include <gqac/remote.h>

/* Gives all later calls together that many milliseconds; after that they fail at once. */
void remote_end_within(gqac_remote *r, int64_t ms);

/* What the server says about itself. */
typedef struct remote_state {
    char version[32], policy[32]; /* maxmemory-policy: what is removed when memory is full */
    long long keys;               /* in the database, whoever wrote them */
    long long memory, most;       /* bytes, and their maximum; 0: none */
    long long hits, misses;       /* of keys, since it was started, whoever asked */
    long long evicted;            /* keys that were removed for lack of memory */
} remote_state;
/* IO: the server does not answer within that time, or not as Redis does; *diag says why. */
gqac_status remote_ask(gqac_remote *r, int64_t ms, remote_state *state, gqac_diag *diag);

#endif
