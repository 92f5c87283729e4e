/* The pool: every item runs once, workers have different numbers, float mode, many short jobs,
 * processors, ranges of threads that do not run, failed starts; sharing, stopping, cores. */
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/pool.h"
#include "base/threads.h"
#include "unit.h"

enum { MOST = 300 };

typedef struct tally {
    unsigned char seen[MOST]; /* how often an item was run */
    atomic_int busy[32];      /* current calls with this worker number */
    atomic_int calls, bad;
    size_t items, grain;
    int threads;
} tally;

static void count(void *arg, size_t begin, size_t end, int worker) {
    tally *t = arg;
    atomic_fetch_add(&t->calls, 1);
    bool bad = begin >= end || end > t->items || worker < 0 || worker >= t->threads;
    bad = bad || (end - begin < t->grain && end - begin < t->items);
    if (bad || atomic_fetch_add(&t->busy[worker], 1) != 0) {
        atomic_fetch_add(&t->bad, 1);
        return;
    }
    for (size_t i = begin; i < end; i++)
        t->seen[i]++;
    atomic_fetch_sub(&t->busy[worker], 1);
}

static void check_run(gqac_pool *pool, size_t items, size_t grain) {
    tally t = {.items = items, .grain = grain, .threads = pool ? gqac_pool_threads(pool) : 1};
    gqac_pool_run(pool, items, grain, count, &t);
    bool once = atomic_load(&t.bad) == 0 && (items > 0) == (atomic_load(&t.calls) > 0);
    for (size_t i = 0; i < MOST; i++)
        once = once && t.seen[i] == (i < items);
    CU_ASSERT_TRUE(once);
}

static void every_item_once(void) {
    static const size_t grains[] = {0, 1, 2, 7, 64, 1000};
    for (int threads = 1; threads <= 17; threads += threads < 5 ? 1 : 4) {
        gqac_pool *pool = NULL;
        CU_ASSERT_EQUAL_FATAL(gqac_pool_create(threads, &pool, NULL), GQAC_OK);
        CU_ASSERT_EQUAL(gqac_pool_threads(pool), threads);
        for (size_t items = 0; items <= MOST; items += items < 40 ? 1 : 13)
            for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++)
                check_run(pool, items, grains[g]);
        gqac_pool_free(pool);
    }
}

static void no_pool_is_one_thread(void) {
    check_run(NULL, 0, 1);
    check_run(NULL, 100, 7);
    CU_ASSERT_EQUAL(gqac_pool_threads(NULL), 1);
    gqac_pool_free(NULL);
}

static void idle_pools_end(void) {
    for (int i = 0; i < 200; i++) {
        gqac_pool *pool = NULL;
        CU_ASSERT_EQUAL_FATAL(gqac_pool_create(1 + i % 6, &pool, NULL), GQAC_OK);
        gqac_pool_free(pool);
    }
}

static void add(void *arg, size_t begin, size_t end, int worker) {
    size_t *sums = arg;
    sums[8 * worker] += end - begin;
}

static void many_short_jobs(void) {
    gqac_pool *pool = NULL;
    size_t sums[8 * 4] = {0};
    const size_t jobs = unit_full() ? 500000 : 20000;
    CU_ASSERT_EQUAL_FATAL(gqac_pool_create(4, &pool, NULL), GQAC_OK);
    for (size_t i = 0; i < jobs; i++) {
        gqac_pool_run(pool, 5, 1, add, sums);
        if (i % 4000 == 0)
            usleep(2000); /* so that the workers sleep from time to time */
    }
    gqac_pool_free(pool);
    CU_ASSERT_EQUAL(sums[0] + sums[8] + sums[16] + sums[24], jobs * 5);
}

static void look_at_rounding(void *arg, size_t begin, size_t end, int worker) {
    atomic_int *wrong = arg;
    (void)begin;
    (void)end;
    if (worker > 0 && fegetround() != FE_TONEAREST)
        atomic_fetch_add(wrong, 1);
}

static void workers_have_the_default_float_mode(void) {
    gqac_pool *pool = NULL;
    atomic_int wrong = 0;
    fesetround(FE_UPWARD);
    gqac_status status = gqac_pool_create(3, &pool, NULL);
    fesetround(FE_TONEAREST);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    gqac_pool_run(pool, 30, 1, look_at_rounding, &wrong);
    CU_ASSERT_EQUAL(atomic_load(&wrong), 0);
    gqac_pool_free(pool);
}

/* ---- processors ---------------------------------------------------------- */

typedef struct places {
    cpu_set_t seen[64]; /* affinity of the thread that ran as this worker, other than the caller */
    pthread_t caller;
    atomic_int met;
    bool wait; /* until all have arrived, so that each range has its own thread */
    int n;
} places;

static void look_at_mask(void *arg, size_t begin, size_t end, int worker) {
    places *p = arg;
    (void)begin;
    (void)end;
    atomic_fetch_add(&p->met, 1);
    while (p->wait && atomic_load(&p->met) < p->n)
        sched_yield();
    if (!pthread_equal(p->caller, pthread_self()))
        sched_getaffinity(0, sizeof p->seen[worker], &p->seen[worker]);
}

/* With as many threads as processors, each worker is bound to a different one, and the caller to
 * none. With any other number, no thread is bound. */
static void check_masks(int threads, int processors) {
    cpu_set_t before, after;
    gqac_pool *pool = NULL;
    places p = {.caller = pthread_self(), .n = threads, .wait = true};
    bool bound = true, free = true;
    sched_getaffinity(0, sizeof before, &before);
    CU_ASSERT_EQUAL_FATAL(gqac_pool_create(threads, &pool, NULL), GQAC_OK);
    for (int round = 0; round < 20; round++) {
        atomic_store(&p.met, 0);
        gqac_pool_run(pool, (size_t)threads, 1, look_at_mask, &p);
        if (round % 5 == 0)
            usleep(2000); /* the workers sleep; the next job wakes them */
    }
    gqac_pool_free(pool);
    sched_getaffinity(0, sizeof after, &after);
    CU_ASSERT_TRUE(CPU_EQUAL(&before, &after));
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 1; i < threads; i++) {
        bound = bound && CPU_COUNT(&p.seen[i]) == 1;
        free = free && CPU_EQUAL(&p.seen[i], &before);
        CPU_OR(&all, &all, &p.seen[i]);
    }
    if (threads == processors)
        CU_ASSERT_TRUE(bound && CPU_COUNT(&all) == threads - 1)
    else
        CU_ASSERT_TRUE(free);
}

static void workers_have_processors(void) {
    cpu_set_t own;
    CU_ASSERT_EQUAL_FATAL(sched_getaffinity(0, sizeof own, &own), 0);
    const int processors = CPU_COUNT(&own);
    for (int threads = 2; threads <= 5; threads++)
        check_masks(threads, processors);
    if (processors > 5 && processors <= 64)
        check_masks(processors, processors);
}

static atomic_int left;

/* Range 0 belongs to the caller. */
static void count_ranges(void *arg, size_t begin, size_t end, int worker) {
    (void)end;
    if (begin == 0)
        return;
    atomic_fetch_sub(&left, 1);
    ((atomic_int *)arg)[worker]++;
}

/* More threads than processors: a job of short ranges ends without waiting until the system has run
 * every thread; the caller runs ranges that no worker has begun. All ranges run once. */
static void ranges_run_once(void) {
    gqac_pool *pool = NULL;
    enum { THREADS = 16, JOBS = 2000 };
    atomic_int runs[THREADS] = {0};
    CU_ASSERT_EQUAL_FATAL(gqac_pool_create(THREADS, &pool, NULL), GQAC_OK);
    for (int i = 0; i < JOBS; i++) {
        atomic_store(&left, THREADS - 1);
        gqac_pool_run(pool, THREADS, 1, count_ranges, runs);
        CU_ASSERT_EQUAL_FATAL(atomic_load(&left), 0);
    }
    gqac_pool_free(pool);
    for (int i = 1; i < THREADS; i++)
        CU_ASSERT_EQUAL(atomic_load(&runs[i]), JOBS);
}

/* ---- shared threads ------------------------------------------------------ */

enum { HOSTS = 6, ROUNDS = 3000 };

typedef struct host {
    gqac_threads *threads;
    pthread_t thread;
    bool good;
} host;

static void *use(void *arg) {
    host *h = arg;
    gqac_pool *pool = NULL;
    h->good = gqac_pool_create_on(h->threads, &pool, NULL) == GQAC_OK;
    for (int i = 0; h->good && i < ROUNDS; i++) {
        size_t sums[8 * 4] = {0};
        gqac_pool_run(pool, 5, 1, add, sums);
        h->good = sums[0] + sums[8] + sums[16] + sums[24] == 5;
    }
    gqac_pool_free(pool);
    return NULL;
}

static bool use_from_many(gqac_threads *threads) {
    host hosts[HOSTS];
    bool good = true;
    for (int i = 0; i < HOSTS; i++) {
        hosts[i] = (host){.threads = threads};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&hosts[i].thread, NULL, use, &hosts[i]), 0);
    }
    for (int i = 0; i < HOSTS; i++) {
        pthread_join(hosts[i].thread, NULL);
        good = good && hosts[i].good;
    }
    return good;
}

static void hosts_share_threads(void) {
    for (int n = 1; n <= 4; n++) {
        gqac_threads *threads = NULL;
        CU_ASSERT_EQUAL_FATAL(gqac_threads_create(n, &threads, NULL), GQAC_OK);
        CU_ASSERT_EQUAL(gqac_threads_count(threads), n);
        CU_ASSERT(use_from_many(threads));
        gqac_threads_free(threads);
    }
    gqac_threads_free(NULL);
}

/* Runs tasks in descending order, one after another. */
static void backwards(void *arg, int n, gqac_task *task, void *task_arg) {
    atomic_fetch_add((atomic_int *)arg, n);
    while (n--)
        task(task_arg, n);
}

static void callers_run_tasks(void) {
    gqac_threads *threads = NULL;
    gqac_pool *pool = NULL;
    gqac_diag diag;
    atomic_int tasks = 0;
    CU_ASSERT_EQUAL(gqac_threads_wrap(4, NULL, NULL, &threads, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_threads_wrap(-1, backwards, NULL, &threads, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL_FATAL(gqac_threads_wrap(4, backwards, &tasks, &threads, NULL), GQAC_OK);
    CU_ASSERT(use_from_many(threads));
    CU_ASSERT_EQUAL(atomic_load(&tasks), 4 * HOSTS * ROUNDS);
    CU_ASSERT_EQUAL_FATAL(gqac_pool_create_on(threads, &pool, NULL), GQAC_OK);
    check_run(pool, 100, 7);
    atomic_int wrong = 0;
    fesetround(FE_UPWARD); /* in a thread of the caller */
    gqac_pool_run(pool, 30, 1, look_at_rounding, &wrong);
    CU_ASSERT_EQUAL(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    CU_ASSERT_EQUAL(atomic_load(&wrong), 0);
    gqac_pool_free(pool);
    gqac_threads_free(threads);
}

/* ---- stopping ------------------------------------------------------------ */

static bool third(void *arg) {
    return ++*(int *)arg == 3;
}

static void item(void *arg, size_t i, int worker) {
    (void)i;
    (void)worker;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void range(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    atomic_fetch_add((atomic_int *)arg, (int)(end - begin));
}

/* The remaining items of a stopped call are not run, nor is any later region; the next call
 * runs. */
static void a_stopped_call_leaves_items_out(void) {
    for (int threads = 1; threads <= 3; threads++) {
        gqac_pool *pool = NULL;
        gqac_poll poll = {0};
        int asked = 0;
        atomic_int ran = 0;
        const gqac_monitor monitor = {.size = sizeof monitor, .abort = third, .arg = &asked};
        CU_ASSERT_EQUAL_FATAL(gqac_pool_create(threads, &pool, NULL), GQAC_OK);
        gqac_pool_watch(pool, &poll);
        CU_ASSERT_EQUAL_FATAL(gqac_poll_set(&poll, &monitor, NULL, NULL), GQAC_OK);
        gqac_poll_begin(&poll, 1, "tokens");
        gqac_pool_queue(pool, 1000000, item, &ran);
        CU_ASSERT(gqac_pool_stopped(pool) && atomic_load(&ran) < 1000000);
        atomic_store(&ran, 0);
        gqac_pool_queue(pool, 100, item, &ran);
        gqac_pool_run(pool, 100, 1, range, &ran);
        CU_ASSERT_EQUAL(atomic_load(&ran), 0);
        asked = 0;
        gqac_poll_begin(&poll, 1, "tokens");
        gqac_pool_run(pool, 100000000, 1, range, &ran);
        CU_ASSERT(gqac_pool_stopped(pool) && atomic_load(&ran) < 100000000);
        atomic_store(&ran, 0);
        asked = 3; /* the third call has passed: it never aborts */
        gqac_poll_begin(&poll, 1, "tokens");
        gqac_pool_run(pool, 1000, 1, range, &ran);
        gqac_pool_queue(pool, 100, item, &ran);
        CU_ASSERT_EQUAL(atomic_load(&ran), 1100);
        CU_ASSERT(!gqac_pool_stopped(pool));
        gqac_pool_free(pool);
    }
}

/* ---- cores --------------------------------------------------------------- */

static void write_siblings(const char *root, int processor, const char *list) {
    char path[256];
    snprintf(path, sizeof path, "mkdir -p %s/devices/system/cpu/cpu%d/topology", root, processor);
    CU_ASSERT_EQUAL_FATAL(system(path), 0);
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list", root,
             processor);
    FILE *file = fopen(path, "w");
    CU_ASSERT_FATAL(file != NULL);
    fprintf(file, "%s\n", list);
    fclose(file);
}

static int cores_of(const char *root, const char *processors) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (; *processors; processors++)
        CPU_SET((size_t)(*processors - '0'), &set);
    return gqac_cores_of(&(gqac_processors){&set, sizeof set}, root);
}

static void siblings_are_one_core(void) {
    char root[] = "/tmp/gqac-cores-XXXXXX", command[64];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(root));
    CU_ASSERT_EQUAL(cores_of(root, "0123"), 4); /* nothing is known */
    static const char *const lists[] = {"0,4", "1,5", "2-3", "2-3", "0,4", "1,5"};
    for (int i = 0; i < 6; i++)
        write_siblings(root, i, lists[i]);
    CU_ASSERT_EQUAL(cores_of(root, "012345"), 3);
    CU_ASSERT_EQUAL(cores_of(root, "04"), 1);
    CU_ASSERT_EQUAL(cores_of(root, "45"), 2); /* their siblings are not available to this process */
    CU_ASSERT_EQUAL(cores_of(root, "0136"), 4);
    CU_ASSERT_EQUAL(cores_of(root, ""), 1);
    snprintf(command, sizeof command, "rm -r %s", root);
    CU_ASSERT_EQUAL(system(command), 0);
    CU_ASSERT_EQUAL(gqac_cores_of_quota("max 100000\n"), 0);
    CU_ASSERT_EQUAL(gqac_cores_of_quota("200000 100000\n"), 2);
    CU_ASSERT_EQUAL(gqac_cores_of_quota("150000 100000\n"), 2);
    CU_ASSERT_EQUAL(gqac_cores_of_quota("1000 100000\n"), 1);
    CU_ASSERT_EQUAL(gqac_cores_of_quota(""), 0);
    CU_ASSERT_EQUAL(gqac_cores_of_quota("9223372036854775807 1"), 0);
    cpu_set_t own;
    sched_getaffinity(0, sizeof own, &own);
    const int n = gqac_threads_default();
    CU_ASSERT(n >= 1 && n <= CPU_COUNT(&own));
}

static atomic_bool large; /* processors 0 to 3999; the process may use three */

/* Replaces the function of libc: a kernel refuses masks that are smaller than its own. */
int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set) {
    if (!atomic_load(&large)) {
        const long got = syscall(SYS_sched_getaffinity, pid, bytes, set);
        if (got < 0)
            return -1;
        memset((char *)set + got, 0, bytes - (size_t)got);
        return 0;
    }
    if (8 * bytes < 4000) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(5, bytes, set);
    CPU_SET_S(1500, bytes, set);
    CPU_SET_S(3999, bytes, set);
    return 0;
}

static void add_items(void *arg, size_t begin, size_t end, int worker) {
    (void)worker;
    atomic_fetch_add((atomic_int *)arg, (int)(end - begin));
}

/* Processors with numbers above the 1024 of a cpu_set_t are found, and threads run on such a
 * machine. (They cannot be bound here, where it has no such processors.) */
static void large_machines_are_known(void) {
    char root[] = "/tmp/gqac-cores-XXXXXX", command[64];
    gqac_processors found;
    gqac_pool *pool = NULL;
    atomic_int ran = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(root));
    write_siblings(root, 1500, "5,1500");
    atomic_store(&large, true);
    CU_ASSERT_TRUE(gqac_processors_find(&found));
    CU_ASSERT_PTR_NOT_NULL_FATAL(found.set);
    CU_ASSERT_EQUAL(CPU_COUNT_S(found.bytes, found.set), 3);
    CU_ASSERT_TRUE(CPU_ISSET_S(3999, found.bytes, found.set));
    CU_ASSERT_EQUAL(gqac_cores_of(&found, root), 2); /* 1500 is on the core of 5 */
    gqac_processors_free(&found);
    for (int threads = 2; threads <= 4; threads++) {
        CU_ASSERT_EQUAL_FATAL(gqac_pool_create(threads, &pool, NULL), GQAC_OK);
        for (int round = 0; round < 3; round++) {
            gqac_pool_run(pool, 10, 1, add_items, &ran);
            usleep(1000); /* the workers sleep; the caller is rebound before it wakes them */
        }
        gqac_pool_free(pool);
    }
    CU_ASSERT_EQUAL(atomic_load(&ran), 90);
    atomic_store(&large, false);
    snprintf(command, sizeof command, "rm -r %s", root);
    CU_ASSERT_EQUAL(system(command), 0);
}

static void thread_counts_are_checked(void) {
    static const int bad[] = {0, -1, GQAC_POOL_MAX + 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gqac_pool *pool = NULL;
        gqac_diag diag = {0};
        CU_ASSERT_EQUAL(gqac_pool_create(bad[i], &pool, &diag), GQAC_USAGE);
        CU_ASSERT_PTR_NULL(pool);
        CU_ASSERT(strlen(diag.what) > 0);
    }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* In a child with little address space some workers start and others do not. */
static int start_too_many(void) {
    struct rlimit limit = {(rlim_t)256 << 20, (rlim_t)256 << 20};
    gqac_pool *pool = NULL;
    gqac_diag diag = {0};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    if (gqac_pool_create(GQAC_POOL_MAX, &pool, &diag) != GQAC_NO_MEMORY || pool)
        return 3;
    if (!strstr(diag.what, "thread"))
        return 4;
    if (gqac_pool_create(4, &pool, &diag) != GQAC_OK) /* the workers that had started have ended */
        return 5;
    gqac_pool_free(pool);
    return 0;
}

static void failed_start_cleans_up(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(start_too_many());
    }
    int status = -1;
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_EQUAL(status, 0);
}
#endif

#ifdef GQAC_TEST_ALLOC
static void short_memory_is_a_status(void) {
    const size_t live = gqac_alloc_live();
    for (size_t n = 1; n <= 3; n++) {
        gqac_pool *pool = NULL;
        gqac_diag diag = {0};
        gqac_alloc_fail_at(n, 0);
        CU_ASSERT_EQUAL(gqac_pool_create(3, &pool, &diag), GQAC_NO_MEMORY);
        CU_ASSERT_PTR_NULL(pool);
    }
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
}
#endif

static const unit_case cases[] = {
    {"every item once", every_item_once},
    {"no pool is one thread", no_pool_is_one_thread},
    {"idle pools end", idle_pools_end},
    {"many short jobs", many_short_jobs},
    {"workers have the default float mode", workers_have_the_default_float_mode},
    {"workers have processors", workers_have_processors},
    {"ranges of late workers run once", ranges_run_once},
    {"thread counts are checked", thread_counts_are_checked},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    {"a failed start cleans up", failed_start_cleans_up},
#endif
    {"threads that hosts share", hosts_share_threads},
    {"threads of the caller", callers_run_tasks},
    {"a stopped call leaves items out", a_stopped_call_leaves_items_out},
    {"siblings are one core", siblings_are_one_core},
    {"machines with more than 1024 processors", large_machines_are_known},
#ifdef GQAC_TEST_ALLOC
    {"short memory is a status", short_memory_is_a_status},
#endif
};

int main(int argc, char **argv) {
    return unit_run("base/pool", cases, sizeof cases / sizeof cases[0], argc, argv);
}
