/* The thread pool: workers sleep on a condition between jobs; a job is cut into one contiguous range
 * a worker, so which worker computes an item never changes what it computes. */
#include "base/pool.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/alloc.h"

#if defined(__SSE2__)
#include <immintrin.h>
enum { DEFAULT_MXCSR = 0x1F80 };
static void default_float_mode(void) {
    _mm_setcsr(DEFAULT_MXCSR);
}
#else
static void default_float_mode(void) {
}
#endif

typedef struct worker {
    gqac_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct gqac_pool {
    int threads, started; /* started: workers besides the caller */
    worker *workers;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    unsigned long job; /* number of the current job */
    int running;
    bool stop;
    void (*run)(void *, size_t, size_t, int);
    void *arg;
    size_t items, ranges;
};

static void run_range(const gqac_pool *pool, size_t range, int index) {
    const size_t begin = pool->items * range / pool->ranges;
    const size_t end = pool->items * (range + 1) / pool->ranges;
    if (begin < end)
        pool->run(pool->arg, begin, end, index);
}

static void *work(void *arg) {
    const worker *w = arg;
    gqac_pool *pool = w->pool;
    unsigned long seen = 0;
    default_float_mode();
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stop && pool->job == seen)
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->stop)
            break;
        seen = pool->job;
        pthread_mutex_unlock(&pool->lock);
        if ((size_t)w->index < pool->ranges)
            run_range(pool, (size_t)w->index, w->index);
        pthread_mutex_lock(&pool->lock);
        if (--pool->running == 0)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

gqac_status gqac_pool_create(int threads, gqac_pool **result, gqac_diag *diag) {
    gqac_pool *pool = gqac_calloc(1, sizeof *pool);
    if (!pool)
        return gqac_diag_oom(diag, "a thread pool");
    pool->threads = threads < 1 ? 1 : threads;
    pool->workers = gqac_calloc((size_t)pool->threads, sizeof *pool->workers);
    if (!pool->workers) {
        gqac_free(pool);
        return gqac_diag_oom(diag, "a thread pool");
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (int i = 1; i < pool->threads; i++) {
        worker *w = &pool->workers[pool->started];
        *w = (worker){.pool = pool, .index = i};
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            gqac_pool_free(pool);
            GQAC_FAIL(diag, GQAC_NO_MEMORY, "cannot start thread %d of %d", i, threads);
        }
        pool->started++;
    }
    *result = pool;
    return GQAC_OK;
}

void gqac_pool_free(gqac_pool *pool) {
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
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
                   void (*run)(void *, size_t, size_t, int), void *arg) {
    const size_t most = items / (grain ? grain : 1);
    if (!pool || pool->threads == 1 || most < 2) {
        if (items)
            run(arg, 0, items, 0);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->run = run;
    pool->arg = arg;
    pool->items = items;
    pool->ranges = most < (size_t)pool->threads ? most : (size_t)pool->threads;
    pool->running = pool->started;
    pool->job++;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    run_range(pool, 0, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->running)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
