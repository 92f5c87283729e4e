/* Threads: they run one region at a time, which has one task for each of n threads.
 *
 * Each worker has a counter of regions, `region`. The caller writes the fields of a region and then
 * increments the counters of the workers that have a task in it. A worker claims its task by
 * setting `claimed`. After its own task, the caller claims and runs the tasks that workers have not
 * begun, so nobody waits for a thread that the system does not schedule. Regions follow each other
 * within microseconds, so if every thread has a processor, workers and caller spin for
 * GQAC_POOL_SPIN_NS before they sleep (futex); while nobody sleeps, there is no system call.
 * Callers that come while a region runs wait, first come, first served.
 *
 * If there are as many threads as processors, each worker is bound to one processor, so that two
 * never share one. The caller is never bound: if it runs on the processor of a worker that it
 * wakes, it moves to the first processor and is then free to move again. */
#include "base/threads.h"

#include <assert.h>
#include <errno.h>
#include <fenv.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

enum {
    STACK = 1024 * 1024,
    LINE = 64,
    LOOKS = 32, /* number of spins between two readings of the clock */
};

typedef struct worker {
    _Alignas(LINE) atomic_uint region; /* number of the worker's latest region; a futex */
    atomic_uint claimed;               /* number of the last region whose task was claimed */
    atomic_uint asleep;                /* 1: the worker waits on `region` in the kernel */
    gqac_threads *pool;
    pthread_t thread;
    int index;
} worker;

struct gqac_threads {
    int threads;
    int started; /* number of workers, without the caller */
    bool spins;
    int home; /* the processor to which no worker is bound; -1: none is bound */
    /* memory for the mask of the caller, and for a mask of one processor */
    gqac_processors caller, one;
    bool stop;
    worker *workers;            /* the worker of task i is workers[i - 1] */
    gqac_parallel_for *wrapped; /* threads of the caller; NULL: workers */
    void *wrapped_arg;
    gqac_task *task; /* of the region */
    void *arg;
    _Alignas(LINE) atomic_uint running; /* workers that have not finished the region; a futex */
    atomic_uint waiting;                /* 1: the caller waits on `running` in the kernel */
    /* a ticket lock for callers: each takes ticket `next`, and runs its region when `served`
     * reaches it; a futex */
    _Alignas(LINE) atomic_uint next, served;
};

/* ---- waiting ------------------------------------------------------------- */

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void sleep_on(atomic_uint *word, unsigned value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(atomic_uint *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Spins for a while, until (*word == value) is `equal`. False: it is not yet. */
static bool spin(const gqac_threads *pool, atomic_uint *word, unsigned value, bool equal) {
    if ((atomic_load_explicit(word, memory_order_acquire) == value) == equal)
        return true;
    if (!pool->spins)
        return false;
    for (const int64_t end = gqac_clock_ns() + GQAC_POOL_SPIN_NS; gqac_clock_ns() < end;)
        for (int i = 0; i < LOOKS; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == value) == equal)
                return true;
            relax();
        }
    return false;
}

/* Waits until the worker's region is no longer `seen`; returns its number. No wake-up is lost: the
 * worker sets `asleep` before the kernel compares the number, and the caller changes the number
 * before it reads `asleep` (both sequentially consistent), so at least one side sees the other's
 * write. */
static unsigned next_region(worker *w, unsigned seen) {
    if (!spin(w->pool, &w->region, seen, false)) {
        atomic_store(&w->asleep, 1);
        while (atomic_load(&w->region) == seen)
            sleep_on(&w->region, seen);
        atomic_store(&w->asleep, 0);
    }
    return atomic_load_explicit(&w->region, memory_order_acquire);
}

/* Claims the worker's task in that region; false: it was claimed before, or a later region has
 * begun. */
static bool claim(worker *w, unsigned region) {
    unsigned before = region - 1;
    return atomic_compare_exchange_strong(&w->claimed, &before, region);
}

static void wait_done(gqac_threads *pool) {
    if (spin(pool, &pool->running, 0, true))
        return;
    atomic_store(&pool->waiting, 1);
    for (unsigned left; (left = atomic_load(&pool->running)) != 0;)
        sleep_on(&pool->running, left);
    atomic_store(&pool->waiting, 0);
}

/* ---- workers ------------------------------------------------------------- */

static void *work(void *arg) {
    worker *w = arg;
    gqac_threads *pool = w->pool;
    fesetenv(FE_DFL_ENV); /* not the creating thread's mode */
    for (unsigned region = 0;;) {
        region = next_region(w, region);
        if (!claim(w, region))
            continue;
        if (pool->stop)
            return NULL;
        pool->task(pool->arg, w->index);
        if (atomic_fetch_sub(&pool->running, 1) == 1 && atomic_load(&pool->waiting))
            wake(&pool->running);
    }
}

/* The mask of one processor, in memory of the pool. */
static const gqac_processors *only(gqac_threads *pool, int processor) {
    CPU_ZERO_S(pool->one.bytes, pool->one.set);
    CPU_SET_S((size_t)processor, pool->one.bytes, pool->one.set);
    return &pool->one;
}

/* Moves the caller to the processor without a worker, so that it does not share one with a worker
 * that is about to wake. */
static void step_aside(gqac_threads *pool) {
    const gqac_processors *own = &pool->caller;
    const int here = pool->home >= 0 ? sched_getcpu() : -1;
    if (here < 0 || here == pool->home || sched_getaffinity(0, own->bytes, own->set) != 0 ||
        !CPU_ISSET_S((size_t)pool->home, own->bytes, own->set))
        return;
    const gqac_processors *home = only(pool, pool->home);
    if (sched_setaffinity(0, home->bytes, home->set) == 0)
        (void)sched_setaffinity(0, own->bytes, own->set);
}

/* Announces the current region to the first n workers. */
static void announce(gqac_threads *pool, int n) {
    bool sleepers = false;
    for (int i = 0; i < n; i++) {
        atomic_fetch_add(&pool->workers[i].region, 1);
        sleepers |= atomic_load(&pool->workers[i].asleep) != 0;
    }
    if (!sleepers)
        return;
    step_aside(pool);
    for (int i = 0; i < n; i++)
        if (atomic_load(&pool->workers[i].asleep))
            wake(&pool->workers[i].region);
}

/* Starts the workers; returns the errno of the first that cannot start. They block all signals but
 * SIGBUS, which is sent to the thread that reads a lost page of a mapped file. */
static int start_workers(gqac_threads *pool, const int *processors) {
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    pthread_attr_setstacksize(&attributes, STACK);
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (!error && pool->started < pool->threads - 1) {
        worker *w = &pool->workers[pool->started];
        w->pool = pool;
        w->index = pool->started + 1;
        error = pthread_create(&w->thread, &attributes, work, w);
        if (error)
            break;
        pool->started++;
        if (processors) { /* if that fails, it runs anywhere */
            const gqac_processors *its = only(pool, processors[w->index]);
            (void)pthread_setaffinity_np(w->thread, its->bytes, its->set);
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

/* Lists the first `most` processors of the caller, in ascending order; returns how many there are,
 * 1 if that is not known. */
static int list_processors(const gqac_processors *of, int most, int *list) {
    int n = 0;
    for (int i = 0; i < 8 * (int)of->bytes; i++)
        if (CPU_ISSET_S((size_t)i, of->bytes, of->set)) {
            if (n < most)
                list[n] = i;
            n++;
        }
    return n ? n : 1;
}

/* Binds worker i to processor i if there are as many threads as processors. */
static gqac_status start(gqac_threads *t, gqac_diag *diag) {
    int list[GQAC_POOL_MAX];
    if (!gqac_processors_find(&t->caller) || !gqac_processors_find(&t->one))
        return gqac_diag_oom(diag, "threads");
    const int processors = t->one.set ? list_processors(&t->caller, GQAC_POOL_MAX, list) : 1;
    t->spins = t->threads <= processors;
    t->home = t->threads > 1 && t->threads == processors ? list[0] : -1;
    const int error = start_workers(t, t->home >= 0 ? list : NULL);
    if (!error)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_NO_MEMORY, "cannot start thread %d of %d: %s", t->started + 2,
                  t->threads, gqac_errno_text(error));
    gqac_diag_hint(diag, "use fewer threads");
    return GQAC_NO_MEMORY;
}

/* ---- creation and freeing ------------------------------------------------ */

static gqac_status make(int threads, gqac_threads **made, gqac_diag *diag) {
    if (threads < 0 || threads > GQAC_POOL_MAX)
        GQAC_FAIL(diag, GQAC_USAGE, "cannot use %d threads: the number must be 1 to %d", threads,
                  GQAC_POOL_MAX);
    gqac_threads *t = gqac_aligned_alloc(LINE, sizeof *t);
    if (!t)
        return gqac_diag_oom(diag, "threads");
    memset(t, 0, sizeof *t);
    t->threads = threads ? threads : gqac_threads_default();
    *made = t;
    return GQAC_OK;
}

gqac_status gqac_threads_create(int threads, gqac_threads **created, gqac_diag *diag) {
    gqac_threads *t = NULL;
    GQAC_TRY(make(threads, &t, diag));
    const size_t bytes = (size_t)t->threads * sizeof *t->workers;
    t->workers = gqac_aligned_alloc(LINE, bytes);
    if (!t->workers) {
        gqac_free(t);
        return gqac_diag_oom(diag, "threads");
    }
    memset(t->workers, 0, bytes);
    const gqac_status status = start(t, diag);
    GQAC_RETURN_MADE(status, t, created, gqac_threads_free);
}

gqac_status gqac_threads_wrap(int threads, gqac_parallel_for *run, void *arg,
                              gqac_threads **created, gqac_diag *diag) {
    if (!run)
        GQAC_FAIL(diag, GQAC_USAGE, "the function that runs tasks is NULL");
    GQAC_TRY(make(threads, created, diag));
    (*created)->wrapped = run;
    (*created)->wrapped_arg = arg;
    return GQAC_OK;
}

int gqac_threads_count(const gqac_threads *threads) {
    return threads->threads;
}

void gqac_threads_free(gqac_threads *threads) {
    if (!threads)
        return;
    threads->stop = true;
    announce(threads, threads->started);
    for (int i = 0; i < threads->started; i++)
        pthread_join(threads->workers[i].thread, NULL);
    gqac_processors_free(&threads->caller);
    gqac_processors_free(&threads->one);
    gqac_free(threads->workers);
    gqac_free(threads);
}

/* ---- regions ------------------------------------------------------------- */

typedef struct call {
    gqac_task *task;
    void *arg;
} call;

/* Runs a task on a thread of the caller, in the default floating-point mode. */
static void run_wrapped(void *arg, int i) {
    const call *c = arg;
    fenv_t own;
    fegetenv(&own);
    fesetenv(FE_DFL_ENV);
    c->task(c->arg, i);
    fesetenv(&own);
}

static void lock(gqac_threads *t) {
    const unsigned ticket = atomic_fetch_add(&t->next, 1);
    for (unsigned served; (served = atomic_load(&t->served)) != ticket;)
        sleep_on(&t->served, served);
}

static void unlock(gqac_threads *t) {
    const unsigned next = atomic_fetch_add(&t->served, 1) + 1;
    if (atomic_load(&t->next) != next)
        wake(&t->served);
}

void gqac_threads_run(gqac_threads *threads, int n, gqac_task *task, void *arg) {
    gqac_threads *t = threads;
    if (t->wrapped) {
        t->wrapped(t->wrapped_arg, n, run_wrapped, &(call){task, arg});
        return;
    }
    lock(t);
    assert(atomic_load(&t->running) == 0);
    t->task = task;
    t->arg = arg;
    atomic_store_explicit(&t->running, (unsigned)(n - 1), memory_order_relaxed);
    announce(t, n - 1);
    task(arg, 0);
    for (int i = 0; i < n - 1; i++) {
        worker *w = &t->workers[i];
        if (claim(w, atomic_load_explicit(&w->region, memory_order_relaxed))) {
            task(arg, w->index);
            atomic_fetch_sub(&t->running, 1);
        }
    }
    wait_done(t);
    unlock(t);
}
