/* The thread pool: one job at a time, cut into one contiguous range a worker, so which worker
 * computes an item never changes what it computes.
 *
 * A job is announced by a new `job` number. Kernels follow each other within microseconds, so where
 * every thread has a processor, both sides look at their flag for a moment before they sleep on the
 * condition. All fields of a job are written before the number and read after it. */
#include "base/pool.h"

#include <assert.h>
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"

enum { STACK = 1024 * 1024, SPINS = 2000 };

typedef struct worker {
    gqac_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct gqac_pool {
    int threads;
    int started; /* workers besides the caller */
    int spins;
    worker *workers;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    atomic_uint job;    /* number of the current job; changed under the lock */
    atomic_int running; /* workers that have not finished it */
    bool stop;
    void (*run)(void *arg, size_t begin, size_t end, int worker);
    void *arg;
    size_t items, ranges;
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void run_range(const gqac_pool *pool, int index) {
    size_t i = (size_t)index;
    if (i >= pool->ranges)
        return;
    size_t share = pool->items / pool->ranges, rest = pool->items % pool->ranges;
    size_t begin = i * share + (i < rest ? i : rest);
    pool->run(pool->arg, begin, begin + share + (i < rest), index);
}

/* Waits until the job is no longer `seen`; returns its number. */
static unsigned next_job(gqac_pool *pool, unsigned seen) {
    unsigned job = seen;
    for (int i = 0; i < pool->spins; i++) {
        job = atomic_load_explicit(&pool->job, memory_order_acquire);
        if (job != seen)
            return job;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    while ((job = atomic_load_explicit(&pool->job, memory_order_acquire)) == seen)
        pthread_cond_wait(&pool->work, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return job;
}

static void *work(void *arg) {
    const worker *w = arg;
    gqac_pool *pool = w->pool;
    fesetenv(FE_DFL_ENV); /* whatever the thread that made us had: no flush to zero, nearest */
    for (unsigned job = 0;;) {
        job = next_job(pool, job);
        if (pool->stop)
            return NULL;
        run_range(pool, w->index);
        if (atomic_fetch_sub_explicit(&pool->running, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

/* Lets the workers see the job that was just written. */
static void announce(gqac_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->job, 1, memory_order_release);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

static void wait_done(gqac_pool *pool) {
    for (int i = 0; i < pool->spins; i++) {
        if (atomic_load_explicit(&pool->running, memory_order_acquire) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load_explicit(&pool->running, memory_order_acquire) != 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

/* Starts workers until all run or one cannot; signals of the program are not for them. */
static int start_workers(gqac_pool *pool) {
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
        *w = (worker){.pool = pool, .index = pool->started + 1};
        error = pthread_create(&w->thread, &attributes, work, w);
        if (!error)
            pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static int processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

gqac_status gqac_pool_create(int threads, gqac_pool **pool, gqac_diag *diag) {
    if (threads < 1 || threads > GQAC_POOL_MAX)
        GQAC_FAIL(diag, GQAC_USAGE, "%d threads; 1 to %d are possible", threads, GQAC_POOL_MAX);
    gqac_pool *p = gqac_calloc(1, sizeof *p);
    worker *workers = p ? gqac_calloc((size_t)threads, sizeof *workers) : NULL;
    if (!workers) {
        gqac_free(p);
        return gqac_diag_oom(diag, "a thread pool");
    }
    p->threads = threads;
    p->workers = workers;
    p->spins = threads <= processors() ? SPINS : 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    int error = start_workers(p);
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
    announce(pool);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    gqac_free(pool->workers);
    gqac_free(pool);
}

int gqac_pool_threads(const gqac_pool *pool) {
    return pool ? pool->threads : 1;
}

void gqac_pool_run(gqac_pool *pool, size_t items, size_t grain,
                   void (*run)(void *arg, size_t begin, size_t end, int worker), void *arg) {
    if (items == 0)
        return;
    size_t ranges = items / (grain ? grain : 1);
    if (!pool || pool->threads == 1 || ranges < 2) {
        run(arg, 0, items, 0);
        return;
    }
    assert(atomic_load(&pool->running) == 0); /* one caller at a time, and no call from `run` */
    pool->run = run;
    pool->arg = arg;
    pool->items = items;
    pool->ranges = ranges < (size_t)pool->threads ? ranges : (size_t)pool->threads;
    atomic_store_explicit(&pool->running, pool->started, memory_order_relaxed);
    announce(pool);
    run_range(pool, 0);
    wait_done(pool);
}

typedef struct queue {
    void (*run)(void *arg, size_t item, int worker);
    void *arg;
    size_t items;
    atomic_size_t next;
} queue;

static void take_items(void *arg, size_t begin, size_t end, int worker) {
    queue *q = arg;
    (void)begin;
    (void)end;
    for (size_t item; (item = atomic_fetch_add(&q->next, 1)) < q->items;)
        q->run(q->arg, item, worker);
}

void gqac_pool_queue(gqac_pool *pool, size_t items, void (*run)(void *arg, size_t item, int worker),
                     void *arg) {
    queue q = {.run = run, .arg = arg, .items = items};
    const size_t threads = (size_t)gqac_pool_threads(pool);
    if (items)
        gqac_pool_run(pool, threads < items ? threads : items, 1, take_items, &q);
}
