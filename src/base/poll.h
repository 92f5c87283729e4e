/* How a long call asks its monitor whether to go on, and reports progress to it.
 *
 * Only the thread that made the call asks the monitor; worker threads only read `stopped`. A poll
 * that is stopped stays so until the next call begins; results computed meanwhile are not used. */
#ifndef GQAC_BASE_POLL_H
#define GQAC_BASE_POLL_H

#include <gqac/monitor.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/diag.h"

/* Number of bytes that are hashed or written between two calls of the monitor. */
enum { GQAC_POLL_BYTES = 4 << 20 };

typedef struct gqac_poll {
    gqac_monitor monitor; /* all zeros: there is none */
    int64_t done, total;
    const char *unit; /* unit of `done` and `total`, in the plural */
    int64_t asked;    /* gqac_clock_ns when the monitor was last asked */
    int64_t deadline; /* gqac_clock_ns when the call must have ended; 0: none */
    int64_t ms;       /* the limit compile-ms, which sets the deadline */
    bool late;        /* the deadline has stopped the call */
    pthread_t caller;
    atomic_bool stopped;
} gqac_poll;

/* All functions except set and begin accept a NULL poll, which means that there is no monitor. */

/* Sets the monitor; NULL: none. *before, unless `before` is NULL, receives the previous monitor,
 * without functions if there was none. USAGE: the size of a monitor is not that of any version of
 * the struct. */
gqac_status gqac_poll_set(gqac_poll *poll, const gqac_monitor *monitor, gqac_monitor *before,
                          gqac_diag *diag);
/* Begins a call of `total` units of work, made by this thread; total 0: not known yet. */
void gqac_poll_begin(gqac_poll *poll, int64_t total, const char *unit);
/* From here on, the call has `ms` milliseconds; then it is stopped with LIMIT. */
void gqac_poll_limit(gqac_poll *poll, int64_t ms);
/* To be called between two pieces of work, on the thread of the call: reports `done`, the work done
 * so far, and asks the monitor. ABORTED: the monitor ends the call. */
gqac_status gqac_poll_barrier(gqac_poll *poll, int64_t done, gqac_diag *diag);
/* The same, with `more` units of work done since the last report. */
gqac_status gqac_poll_add(gqac_poll *poll, int64_t more, gqac_diag *diag);
/* Sets a better estimate of the total. */
void gqac_poll_expect(gqac_poll *poll, int64_t total);
/* Reports that all work is done. */
void gqac_poll_finish(gqac_poll *poll);
/* True if there is a monitor or a deadline that can end the call. */
bool gqac_poll_asks(const gqac_poll *poll);
/* To be called between two small pieces of work, on any thread: returns true if the call was
 * stopped. On the thread that made the call it asks the monitor, at most once a millisecond. */
bool gqac_poll_ask(gqac_poll *poll);
/* The same as a status, ABORTED if the call was stopped, for long loops on one thread. */
gqac_status gqac_poll_check(gqac_poll *poll, gqac_diag *diag);
/* True if the call was stopped; asks nobody. */
bool gqac_poll_stopped(gqac_poll *poll);

#endif
