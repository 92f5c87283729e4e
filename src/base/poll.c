/* Asking a monitor; see poll.h. Test builds (GQAC_TEST_ALLOC) ask at every point, so that a test
 * can count the points and abort a call at each of them. */
#include "base/poll.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/sized.h"

#ifdef GQAC_TEST_ALLOC
enum { ASK_NS = 0 };
#else
enum { ASK_NS = 1000000 };
#endif

gqac_status gqac_poll_set(gqac_poll *poll, const gqac_monitor *monitor, gqac_monitor *before,
                          gqac_diag *diag) {
    gqac_monitor next = {0}; /* *monitor may be *before */
    GQAC_TRY(gqac_sized_take(&next, sizeof next, monitor, "gqac_monitor", diag));
    if (before)
        GQAC_TRY(gqac_sized_give(before, &poll->monitor, sizeof next, "gqac_monitor", diag));
    poll->monitor = next;
    return GQAC_OK;
}

void gqac_poll_begin(gqac_poll *poll, int64_t total, const char *unit) {
    poll->done = 0;
    poll->total = total > 0 ? total : 1;
    poll->unit = unit;
    poll->asked = 0;
    poll->caller = pthread_self();
    atomic_store(&poll->stopped, false);
}

void gqac_poll_expect(gqac_poll *poll, int64_t total) {
    if (poll)
        poll->total = total > poll->done ? total : poll->done;
}

void gqac_poll_limit(gqac_poll *poll, int64_t ms) {
    const int64_t now = gqac_clock_ns();
    poll->ms = ms;
    poll->deadline = ms <= (INT64_MAX - now) / 1000000 ? now + ms * 1000000 : INT64_MAX;
}

static bool ask_now(gqac_poll *poll) {
    poll->late = poll->deadline && gqac_clock_ns() > poll->deadline;
    if (!poll->late && (!poll->monitor.abort || !poll->monitor.abort(poll->monitor.arg)))
        return false;
    atomic_store(&poll->stopped, true);
    return true;
}

/* The error of a call that was stopped. */
static gqac_status aborted(const gqac_poll *poll, gqac_diag *diag) {
    if (poll->late)
        return gqac_limits_fail(diag, "compile-ms", poll->ms, "the model takes too long to open");
    gqac_diag_set(diag, GQAC_ABORTED, "the caller ended the call before it was complete");
    if (poll->done)
        gqac_diag_rule(diag, "nothing is kept: %lld of %lld %s were done", (long long)poll->done,
                       (long long)poll->total, poll->unit);
    else
        gqac_diag_rule(diag, "nothing is kept");
    return GQAC_ABORTED;
}

gqac_status gqac_poll_barrier(gqac_poll *poll, int64_t done, gqac_diag *diag) {
    if (!poll)
        return GQAC_OK;
    if (done > poll->done) {
        poll->done = done < poll->total ? done : poll->total;
        if (poll->monitor.progress)
            poll->monitor.progress(poll->monitor.arg, poll->done, poll->total);
    }
    return atomic_load(&poll->stopped) || ask_now(poll) ? aborted(poll, diag) : GQAC_OK;
}

gqac_status gqac_poll_add(gqac_poll *poll, int64_t more, gqac_diag *diag) {
    return poll ? gqac_poll_barrier(poll, poll->done + more, diag) : GQAC_OK;
}

void gqac_poll_finish(gqac_poll *poll) {
    if (!poll)
        return;
    if (poll->done < poll->total && poll->monitor.progress)
        poll->monitor.progress(poll->monitor.arg, poll->total, poll->total);
    poll->done = poll->total;
}

bool gqac_poll_asks(const gqac_poll *poll) {
    return poll && (poll->monitor.abort || poll->deadline);
}

bool gqac_poll_ask(gqac_poll *poll) {
    if (!gqac_poll_asks(poll))
        return false;
    if (atomic_load_explicit(&poll->stopped, memory_order_relaxed))
        return true;
    if (!pthread_equal(poll->caller, pthread_self()))
        return false;
    const int64_t now = gqac_clock_ns();
    if (now - poll->asked < ASK_NS)
        return false;
    poll->asked = now;
    return ask_now(poll);
}

gqac_status gqac_poll_check(gqac_poll *poll, gqac_diag *diag) {
    return gqac_poll_ask(poll) ? aborted(poll, diag) : GQAC_OK;
}

bool gqac_poll_stopped(gqac_poll *poll) {
    return poll && atomic_load(&poll->stopped);
}
