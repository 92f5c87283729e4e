/* The thread pool: one job at a time, cut into one contiguous range a worker, so which worker
 * computes an item never changes what it computes.
 *
 * Each worker has a mailbox: a number that grows by one when a job is in it. Only the workers that
 * have a range are told. A range is taken by its worker or, when that has not begun by then, by the
 * caller after its own: nobody waits for a thread that the system does not run. Kernels follow each
 * other within microseconds, so where every thread has a processor, both sides look at their number
 * for GQAC_POOL_SPIN_NS before they sleep on it (futex); who finds nobody asleep makes no system
 * call. All fields of a job are written before the numbers and read after them.
 *
 * A pool of as many threads as the process has processors gives each worker one of its own, so that
 * none wakes beside another. The caller is never bound: where it stands on the processor of a
 * worker that it wakes, it steps aside to the first one and is free again. */
#include "base/pool.h"

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
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

enum {
    STACK = 1024 * 1024,
    LINE = 64,
    LOOKS = 32,         /* between two looks at the clock */
    PIECE_GRAINS = 16,  /* a range as short as this is never cut */
    PIECE_NS = 2000000, /* pieces grow until one takes as long */
};

typedef struct worker {
    _Alignas(LINE) atomic_uint job; /* number of the job in the mailbox; a futex */
    atomic_uint taken;              /* number of the last job whose range somebody took */
    atomic_uint asleep;             /* 1: waits on `job` in the kernel */
    gqac_pool *pool;
    pthread_t thread;
    int index;
    int processor; /* -1: any */
} worker;

struct gqac_pool {
    int threads;
    int started; /* workers besides the caller */
    bool spins;
    int home; /* a processor that no worker has; -1: workers have none of their own */
    bool stop;
    worker *workers; /* that of index i is workers[i - 1] */
    void (*run)(void *arg, size_t begin, size_t end, int worker);
    void *arg;
    size_t items, grain, ranges, regions;
    gqac_poll *poll;
    _Alignas(LINE) atomic_uint running; /* workers that have not finished the job; a futex */
    atomic_uint waiting;                /* 1: the caller waits on it in the kernel */
};

/* ---- waiting ------------------------------------------------------------- */

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_on(atomic_uint *word, unsigned value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(atomic_uint *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Looks at the word for a moment; true when it is (`equal`) or is no longer (else) the value. */
static bool spin(const gqac_pool *pool, atomic_uint *word, unsigned value, bool equal) {
    if ((atomic_load_explicit(word, memory_order_acquire) == value) == equal)
        return true;
    if (!pool->spins)
        return false;
    for (const int64_t end = now_ns() + GQAC_POOL_SPIN_NS; now_ns() < end;)
        for (int i = 0; i < LOOKS; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == value) == equal)
                return true;
            relax();
        }
    return false;
}

/* Waits until the mailbox holds another job than `seen`; returns its number. The flag is raised
 * before the kernel looks at the number, and the caller changes the number before it looks at the
 * flag (both sequentially consistent): one of them sees the other. */
static unsigned next_job(worker *w, unsigned seen) {
    if (!spin(w->pool, &w->job, seen, false)) {
        atomic_store(&w->asleep, 1);
        while (atomic_load(&w->job) == seen)
            sleep_on(&w->job, seen);
        atomic_store(&w->asleep, 0);
    }
    return atomic_load_explicit(&w->job, memory_order_acquire);
}

/* Is the range of that job for who asks? A worker that comes late finds a later number there. */
static bool take(worker *w, unsigned job) {
    unsigned before = job - 1;
    return atomic_compare_exchange_strong(&w->taken, &before, job);
}

static void wait_done(gqac_pool *pool) {
    if (spin(pool, &pool->running, 0, true))
        return;
    atomic_store(&pool->waiting, 1);
    for (unsigned left; (left = atomic_load(&pool->running)) != 0;)
        sleep_on(&pool->running, left);
    atomic_store(&pool->waiting, 0);
}

/* ---- workers ------------------------------------------------------------- */

/* Items [begin, end) in pieces, so that the call can be stopped between them. */
static void run_pieces(const gqac_pool *pool, size_t begin, size_t end, int worker) {
    size_t piece = pool->grain < end / PIECE_GRAINS ? pool->grain * PIECE_GRAINS : end;
    if (end - begin <= piece || !gqac_poll_asks(pool->poll)) {
        pool->run(pool->arg, begin, end, worker);
        return;
    }
    while (begin < end && !gqac_poll_between(pool->poll)) {
        const int64_t start = now_ns();
        const size_t n = end - begin < piece ? end - begin : piece;
        pool->run(pool->arg, begin, begin + n, worker);
        begin += n;
        if (now_ns() - start < PIECE_NS && piece < end)
            piece *= 2;
    }
}

static void run_range(const gqac_pool *pool, int index) {
    size_t i = (size_t)index;
    size_t share = pool->items / pool->ranges, rest = pool->items % pool->ranges;
    size_t begin = i * share + (i < rest ? i : rest);
    run_pieces(pool, begin, begin + share + (i < rest), index);
}

static void *work(void *arg) {
    worker *w = arg;
    gqac_pool *pool = w->pool;
    fesetenv(FE_DFL_ENV); /* whatever the thread that made us had: no flush to zero, nearest */
    if (w->processor >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)w->processor, &set);
        (void)sched_setaffinity(0, sizeof set, &set); /* refused: it runs anywhere */
    }
    for (unsigned job = 0;;) {
        job = next_job(w, job);
        if (!take(w, job))
            continue;
        if (pool->stop)
            return NULL;
        run_range(pool, w->index);
        if (atomic_fetch_sub(&pool->running, 1) == 1 && atomic_load(&pool->waiting))
            wake(&pool->running);
    }
}

/* Off the processor of a worker that is about to wake there. */
static void step_aside(const gqac_pool *pool) {
    cpu_set_t own, home;
    const int here = pool->home >= 0 ? sched_getcpu() : -1;
    if (here < 0 || here == pool->home || sched_getaffinity(0, sizeof own, &own) != 0 ||
        !CPU_ISSET((size_t)pool->home, &own))
        return;
    CPU_ZERO(&home);
    CPU_SET((size_t)pool->home, &home);
    if (sched_setaffinity(0, sizeof home, &home) == 0)
        (void)sched_setaffinity(0, sizeof own, &own);
}

/* Puts the job that was just written into the first n mailboxes. */
static void announce(gqac_pool *pool, int n) {
    bool sleepers = false;
    for (int i = 0; i < n; i++) {
        atomic_fetch_add(&pool->workers[i].job, 1);
        sleepers |= atomic_load(&pool->workers[i].asleep) != 0;
    }
    if (!sleepers)
        return;
    step_aside(pool);
    for (int i = 0; i < n; i++)
        if (atomic_load(&pool->workers[i].asleep))
            wake(&pool->workers[i].job);
}

/* Starts workers until all run or one cannot; signals of the program are not for them. */
static int start_workers(gqac_pool *pool, const int *processors) {
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    pthread_attr_setstacksize(&attributes, STACK);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (!error && pool->started < pool->threads - 1) {
        worker *w = &pool->workers[pool->started];
        w->pool = pool;
        w->index = pool->started + 1;
        w->processor = processors ? processors[w->index] : -1;
        error = pthread_create(&w->thread, &attributes, work, w);
        if (!error)
            pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

/* The first `most` processors of the process, in ascending order; returns how many it has. */
static int list_processors(int most, int *list) {
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &set)) {
            if (n < most)
                list[n] = i;
            n++;
        }
    return n;
}

/* ---- the pool ------------------------------------------------------------ */

gqac_status gqac_pool_create(int threads, gqac_pool **pool, gqac_diag *diag) {
    if (threads < 1 || threads > GQAC_POOL_MAX)
        GQAC_FAIL(diag, GQAC_USAGE, "%d threads; 1 to %d are possible", threads, GQAC_POOL_MAX);
    gqac_pool *p = gqac_aligned_alloc(LINE, sizeof *p);
    worker *workers = p ? gqac_aligned_alloc(LINE, (size_t)threads * sizeof *workers) : NULL;
    if (!workers) {
        gqac_free(p);
        return gqac_diag_oom(diag, "a thread pool");
    }
    memset(p, 0, sizeof *p);
    memset(workers, 0, (size_t)threads * sizeof *workers);
    int list[GQAC_POOL_MAX];
    const int processors = list_processors(GQAC_POOL_MAX, list);
    p->threads = threads;
    p->workers = workers;
    p->spins = threads <= processors;
    p->home = threads > 1 && threads == processors ? list[0] : -1;
    int error = start_workers(p, p->home >= 0 ? list : NULL);
    if (error) {
        gqac_diag_set(diag, GQAC_NO_MEMORY, "cannot start thread %d of %d: %s", p->started + 2,
                      threads, gqac_errno_text(error));
        gqac_diag_hint(diag, "use fewer threads");
        gqac_pool_free(p);
        return GQAC_NO_MEMORY;
    }
    *pool = p;
    return GQAC_OK;
}

void gqac_pool_free(gqac_pool *pool) {
    if (!pool)
        return;
    pool->stop = true;
    announce(pool, pool->started);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    gqac_free(pool->workers);
    gqac_free(pool);
}

int gqac_pool_threads(const gqac_pool *pool) {
    return pool ? pool->threads : 1;
}

void gqac_pool_watch(gqac_pool *pool, gqac_poll *poll) {
    pool->poll = poll;
}

bool gqac_pool_stopped(const gqac_pool *pool) {
    return pool && gqac_poll_stopped(pool->poll);
}

size_t gqac_pool_regions(const gqac_pool *pool) {
    return pool ? pool->regions : 0;
}

void gqac_pool_run(gqac_pool *pool, size_t items, size_t grain,
                   void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg) {
    if (items == 0 || gqac_pool_stopped(pool))
        return;
    size_t ranges = items / (grain ? grain : 1);
    if (!pool) {
        run(arg, 0, items, 0);
        return;
    }
    assert(atomic_load(&pool->running) == 0); /* one caller at a time, and no call from `run` */
    pool->run = run;
    pool->arg = arg;
    pool->items = items;
    pool->grain = grain ? grain : 1;
    if (pool->threads == 1 || ranges < 2) {
        run_pieces(pool, 0, items, 0);
        return;
    }
    pool->regions++;
    pool->ranges = ranges < (size_t)pool->threads ? ranges : (size_t)pool->threads;
    const int others = (int)pool->ranges - 1;
    atomic_store_explicit(&pool->running, (unsigned)others, memory_order_relaxed);
    announce(pool, others);
    run_range(pool, 0);
    for (int i = 0; i < others; i++) {
        worker *w = &pool->workers[i];
        if (take(w, atomic_load_explicit(&w->job, memory_order_relaxed))) {
            run_range(pool, w->index);
            atomic_fetch_sub(&pool->running, 1);
        }
    }
    wait_done(pool);
}

typedef struct queue {
    void (*run)(void *arg, size_t item, int worker);
    void *arg;
    size_t items;
    gqac_poll *poll;
    atomic_size_t next;
} queue;

static void take_items(void *arg, size_t begin, size_t end, int worker) {
    queue *q = arg;
    (void)begin;
    (void)end;
    for (size_t item; !gqac_poll_between(q->poll);) {
        if ((item = atomic_fetch_add(&q->next, 1)) >= q->items)
            return;
        q->run(q->arg, item, worker);
    }
}

void gqac_pool_queue(gqac_pool *pool, size_t items, void (*run)(void *arg, size_t item, int worker),
                     void *arg) {
    queue q = {.run = run, .arg = arg, .items = items, .poll = pool ? pool->poll : NULL};
    const size_t threads = (size_t)gqac_pool_threads(pool);
    if (items)
        gqac_pool_run(pool, threads < items ? threads : items, 1, take_items, &q);
}
