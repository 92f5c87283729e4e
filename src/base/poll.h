/* The place where a long call asks its monitor whether to go on, and tells how far it is.
 *
 * One thread computes a call and asks; threads that help it only look at `stopped`. Once a call was
 * stopped it stays so until the next begins: what it computes from then on is not looked at. */
#ifndef GQAC_BASE_POLL_H
#define GQAC_BASE_POLL_H

#include <gqac/monitor.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/diag.h"

/* Bytes that are hashed or written between two questions. */
enum { GQAC_POLL_BYTES = 4 << 20 };

typedef struct gqac_poll {
    gqac_monitor monitor; /* all zero: none */
    int64_t done, total;
    int64_t asked; /* ns, of the monotonic clock */
    pthread_t caller;
    atomic_bool stopped;
} gqac_poll;

/* In all of them but set and begin the poll may be NULL: nobody watches. */

/* monitor NULL: none. What held before goes to *before, unless that is NULL; without functions if
 * there was none. USAGE: a size that cannot be. */
gqac_status gqac_poll_set(gqac_poll *poll, const gqac_monitor *monitor, gqac_monitor *before,
                          gqac_diag *diag);
/* A call begins on the calling thread. */
void gqac_poll_begin(gqac_poll *poll, int64_t total);
/* At a barrier of that thread: tells what is done so far, asks, and fails with ABORTED. */
gqac_status gqac_poll_barrier(gqac_poll *poll, int64_t done, gqac_diag *diag);
/* The same for `more` besides what was done before. */
gqac_status gqac_poll_add(gqac_poll *poll, int64_t more, gqac_diag *diag);
/* What there is to be done is known better now. */
void gqac_poll_expect(gqac_poll *poll, int64_t total);
/* Tells that all is done. */
void gqac_poll_finish(gqac_poll *poll);
/* May the call be stopped? */
bool gqac_poll_asks(const gqac_poll *poll);
/* Between two pieces of work, on any thread: was the call stopped? The thread that made it asks,
 * but not more often than pays. */
bool gqac_poll_between(gqac_poll *poll);
/* The same, as a status: for work of one thread that is long because there is much of it. */
gqac_status gqac_poll_pause(gqac_poll *poll, gqac_diag *diag);
bool gqac_poll_stopped(gqac_poll *poll);
/* Fails with ABORTED. */
gqac_status gqac_poll_abort(const gqac_poll *poll, gqac_diag *diag);

#endif
