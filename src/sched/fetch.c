/* Fetching: separate threads bring what the folder and the remote tier of the store have of a
 * prompt to memory. The request takes part in no step until then, and the others go on. Of prompts
 * that begin alike only one is fetched at a time: the next one finds its rows in memory. */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "sched/sched_impl.h"
#include "store/fetch.h"

enum {
    THREADS = 4,
    ALIKE = 64,       /* leading ids, one block of the tier */
    ASK_NS = 1000000, /* how often a monitor is asked */
    SECOND_NS = 1000000000
};

struct fetch {
    gqac_sequence_options options;
    char *tenant; /* copies: the request may end before */
    int64_t *ids;
    int64_t n;
    int64_t begun; /* gqac_clock_ns */
    fetch *next;
    bool done, dropped; /* under the lock; dropped: the request has ended */
};

struct fetcher {
    gqac_scheduler *scheduler;
    pthread_t threads[THREADS];
    int started;
    pthread_cond_t work; /* something may be taken from the queue */
    /* under the lock of the scheduler */
    fetch *queue;
    fetch *running[THREADS]; /* NULL: none */
    bool closing;
};

static void free_fetch(fetch *f) {
    gqac_free(f->tenant);
    gqac_free(f->ids);
    gqac_free(f);
}

/* ---- the thread ---------------------------------------------------------- */

static bool are_alike(const fetch *a, const fetch *b) {
    return a->n >= ALIKE && b->n >= ALIKE && !memcmp(a->ids, b->ids, ALIKE * sizeof *a->ids) &&
           !strcmp(a->tenant, b->tenant);
}

/* Moves the first fetch of the queue that is not like a running one to a free place; NULL: there is
 * none. */
static fetch **take(fetcher *all) {
    fetch **place = all->running, **at = &all->queue;
    while (*place)
        place++;
    for (; *at; at = &(*at)->next) {
        bool alike = false;
        for (int i = 0; i < THREADS; i++)
            alike |= all->running[i] && are_alike(all->running[i], *at);
        if (alike)
            continue;
        *place = *at;
        *at = (*at)->next;
        return place;
    }
    return NULL;
}

static void *run(void *arg) {
    fetcher *all = arg;
    gqac_scheduler *s = all->scheduler;
    pthread_mutex_lock(&s->lock);
    while (!all->closing) {
        fetch **place = take(all);
        if (!place) {
            pthread_cond_wait(&all->work, &s->lock);
            continue;
        }
        fetch *f = *place;
        pthread_mutex_unlock(&s->lock);
        store_fetch(s->options.store, f->tenant, f->ids, f->n, &f->options,
                    gqac_clock_ns() - f->begun);
        pthread_mutex_lock(&s->lock);
        *place = NULL;
        f->done = true;
        pthread_cond_broadcast(&all->work); /* those that are like it */
        pthread_cond_signal(&s->changed);
        if (f->dropped)
            free_fetch(f);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

gqac_status fetch_open(gqac_scheduler *s, gqac_diag *diag) {
    sigset_t all, before;
    if (!s->options.store || !store_has_remote(s->options.store))
        return GQAC_OK;
    fetcher *f = s->fetcher = gqac_calloc(1, sizeof *f);
    if (!f)
        return gqac_diag_oom(diag, "a scheduler");
    f->scheduler = s;
    pthread_cond_init(&f->work, NULL);
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* which is sent to the thread that reads a lost page of a file */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (f->started < THREADS && !pthread_create(&f->threads[f->started], NULL, run, f))
        f->started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return f->started == THREADS ? GQAC_OK : gqac_diag_oom(diag, "threads that fetch prefixes");
}

void fetch_close(gqac_scheduler *s) {
    fetcher *f = s->fetcher;
    if (!f)
        return;
    pthread_mutex_lock(&s->lock);
    f->closing = true;
    pthread_cond_broadcast(&f->work);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < f->started; i++)
        pthread_join(f->threads[i], NULL);
    pthread_cond_destroy(&f->work);
    gqac_free(f);
    s->fetcher = NULL;
}

/* ---- the thread that steps ----------------------------------------------- */

/* NULL: out of memory. */
static fetch *make(const gqac_scheduler *s, const request *r) {
    const char *tenant = r->given.tenant ? r->given.tenant : "";
    const size_t bytes = r->n * sizeof *r->list, length = strlen(tenant) + 1;
    fetch *f = gqac_calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->options = request_sequence_options(s, r);
    f->n = (int64_t)r->n;
    f->begun = gqac_clock_ns();
    f->ids = gqac_alloc(bytes);
    f->tenant = gqac_alloc(length);
    if (!f->ids || !f->tenant) {
        free_fetch(f);
        return NULL;
    }
    memcpy(f->ids, r->list, bytes);
    memcpy(f->tenant, tenant, length);
    return f;
}

static bool can_fetch(const gqac_scheduler *s, const request *r) {
    return store_can_fetch(s->options.store, r->given.tenant, s->options.kv, r->list,
                           (int64_t)r->n);
}

void fetch_follow(gqac_scheduler *s, request *r) {
    if (!s->fetcher || r->fetched || !request_shares(s, r))
        return;
    fetch *made = !r->fetch && can_fetch(s, r) ? make(s, r) : NULL;
    pthread_mutex_lock(&s->lock);
    if (made) {
        fetch **end = &s->fetcher->queue;
        while (*end)
            end = &(*end)->next;
        *end = r->fetch = made;
        pthread_cond_signal(&s->fetcher->work);
    }
    r->fetched = !r->fetch || r->fetch->done; /* short of memory for a fetch, it is computed */
    pthread_mutex_unlock(&s->lock);
    if (r->fetched)
        fetch_drop(s, r);
}

void fetch_drop(gqac_scheduler *s, request *r) {
    fetch *f = r->fetch;
    if (!f)
        return;
    r->fetch = NULL;
    pthread_mutex_lock(&s->lock);
    fetch **at = &s->fetcher->queue;
    while (*at && *at != f)
        at = &(*at)->next;
    const bool waits = *at != NULL;
    if (waits)
        *at = f->next;
    f->dropped = true;
    const bool unused = waits || f->done;
    pthread_mutex_unlock(&s->lock);
    if (unused)
        free_fetch(f);
}

/* True if a step has something to do. */
static bool is_wanted(const gqac_scheduler *s) {
    bool fetches = false, wanted = s->submitted != NULL;
    for (const request *r = s->order; r; r = r->next) {
        fetches |= r->admitted && r->fetch;
        wanted |= atomic_load(&r->cancelled) || (r->admitted && r->fetch && r->fetch->done);
    }
    return wanted || !fetches;
}

/* The monitor of the context, which stays. */
static gqac_monitor monitor_of(const gqac_scheduler *s) {
    gqac_monitor monitor = {.size = sizeof monitor};
    if (gqac_context_set_monitor(s->context, NULL, &monitor, NULL) == GQAC_OK)
        (void)gqac_context_set_monitor(s->context, &monitor, NULL, NULL);
    return monitor;
}

/* Waits until something has changed, but no longer than until the monitor is to be asked again. */
static void await_change(gqac_scheduler *s) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ASK_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    pthread_cond_timedwait(&s->changed, &s->lock, &until);
}

gqac_status fetch_await(gqac_scheduler *s, gqac_diag *diag) {
    const gqac_monitor monitor = monitor_of(s);
    bool ended = false;
    pthread_mutex_lock(&s->lock);
    while (!ended && !is_wanted(s)) {
        if (!monitor.abort) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        await_change(s);
        pthread_mutex_unlock(&s->lock); /* the monitor may cancel requests */
        ended = monitor.abort(monitor.arg);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    if (ended)
        GQAC_FAIL(diag, GQAC_ABORTED,
                  "the caller ended the wait for the remote tier of the prefix store");
    return GQAC_OK;
}
