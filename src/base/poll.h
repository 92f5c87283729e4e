/* How a long call asks its monitor whether to go on, and reports progress to it.
 *
 * The thread that computes a call asks; threads that help it only read `stopped`. Once a call was
 * stopped, the poll stays stopped until the next call begins: results computed meanwhile are not
 * used. */
#ifndef GQAC_BASE_POLL_H
#define GQAC_BASE_POLL_H

#include <gqac/monitor.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/diag.h"

/* Bytes that are hashed or written between two calls of the monitor. */
enum { GQAC_POLL_BYTES = 4 << 20 };

typedef struct gqac_poll {
    gqac_monitor monitor; /* all zeros: there is none */
    int64_t done, total;
    const char *unit; /* of these two, in the plural */
    int64_t asked;    /* when, by gqac_clock_ns */
    pthread_t caller;
    atomic_bool stopped;
} gqac_poll;

/* In all functions but set and begin the poll may be NULL: there is no monitor. */

/* Sets the monitor; NULL: none. The previous one is stored in *before, unless that is NULL; it has
 * no functions if there was none. USAGE: an impossible size. */
gqac_status gqac_poll_set(gqac_poll *poll, const gqac_monitor *monitor, gqac_monitor *before,
                          gqac_diag *diag);
/* A call of `total` units of work begins, on the calling thread; 0: the total is not known yet. */
void gqac_poll_begin(gqac_poll *poll, int64_t total, const char *unit);
/* Between two pieces of work, on that thread: reports `done`, the work done so far, and asks.
 * ABORTED: the call is stopped. */
gqac_status gqac_poll_barrier(gqac_poll *poll, int64_t done, gqac_diag *diag);
/* The same for `more` work besides what was reported before. */
gqac_status gqac_poll_add(gqac_poll *poll, int64_t more, gqac_diag *diag);
/* Corrects the total. */
void gqac_poll_expect(gqac_poll *poll, int64_t total);
/* Reports that all work is done. */
void gqac_poll_finish(gqac_poll *poll);
/* True if the monitor can stop the call. */
bool gqac_poll_asks(const gqac_poll *poll);
/* Between two small pieces of work, on any thread: true if the call was stopped. The thread that
 * made the call asks the monitor, but at most once in a millisecond. */
bool gqac_poll_between(gqac_poll *poll);
/* The same, as a status, for long loops of one thread. */
gqac_status gqac_poll_pause(gqac_poll *poll, gqac_diag *diag);
bool gqac_poll_stopped(gqac_poll *poll);
/* Fails with ABORTED. */
gqac_status gqac_poll_abort(const gqac_poll *poll, gqac_diag *diag);

#endif
