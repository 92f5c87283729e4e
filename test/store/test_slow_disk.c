/* A store with a slow disk: while a file of its folder is read or written, other threads look up
 * prompts. Also threads that read, write and remove files at the same time. */
#include "base/table.h"
#include "runtime/rig.h"

#include <dirent.h>
#include <gqac/gqac.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N = 150, THREADS = 4, SECONDS = 20 };

static gqac_diag diag;
static char folder[64];

/* ---- the disk ------------------------------------------------------------ */

static _Thread_local bool slow; /* the next call of this thread waits */
static sem_t reached, released;
static atomic_bool gave_up; /* nothing released the call: the others waited for it */

static void wait_if_slow(void) {
    struct timespec end;
    if (!slow)
        return;
    slow = false;
    sem_post(&reached);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += SECONDS;
    while (sem_timedwait(&released, &end) != 0)
        if (time(NULL) >= end.tv_sec) {
            atomic_store(&gave_up, true);
            return;
        }
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    wait_if_slow();
    return __real_fsync(fd);
}

ssize_t __real_pread(int fd, void *data, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t n, off_t at) {
    wait_if_slow();
    return __real_pread(fd, data, n, at);
}

/* ---- helpers ------------------------------------------------------------- */

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/gqac-slow-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
}

static void remove_folder(void) {
    char path[512];
    DIR *d = opendir(folder);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    for (const struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%.255s", folder, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    closedir(d);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

/* Computes n ids of a seed through the store; returns the bits of the logits, 0 on failure. `save`:
 * also writes the file. CUnit is not called in threads. */
static uint64_t visit(gqac_store *store, gqac_context *context, int seed, int64_t n, bool save,
                      int64_t *reused) {
    int64_t ids[N], rows = 0, width = 0;
    gqac_diag own = {0};
    gqac_sequence *s = NULL;
    uint64_t bits = 0;
    rig_ids(ids, n, seed);
    if (gqac_store_open(store, NULL, ids, n, NULL, &s, reused, &own) == GQAC_OK &&
        gqac_sequence_append(context, s, ids + *reused, n - *reused, 1, &own) == GQAC_OK &&
        (!save || gqac_store_save(store, NULL, s, &own) == GQAC_OK)) {
        const float *logits = gqac_context_logits(context, 0, &rows, &width);
        bits = gqac_hash_bytes(1, logits, (size_t)width * sizeof *logits) | 1;
    }
    gqac_sequence_free(s);
    return bits;
}

typedef struct visitor {
    gqac_store *store;
    gqac_context *context;
    const uint64_t *expected; /* indexed by seed */
    int first;
    bool save, right;
    int64_t reused;
} visitor;

/* ---- one waiting call ---------------------------------------------------- */

static void *visit_slowly(void *arg) {
    visitor *v = arg;
    slow = true;
    v->right = visit(v->store, v->context, v->first, 100, v->save, &v->reused) != 0 && !slow;
    return NULL;
}

/* While another thread reads or writes the file of seed 1, prompts are found in memory and in other
 * files. */
static void look_up_beside(bool save) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = NULL;
    visitor v = {.first = 1, .save = save};
    pthread_t thread;
    int64_t reused = -1, ids[N];
    make_folder();
    sem_init(&reached, 0, 0);
    sem_init(&released, 0, 0);
    atomic_store(&gave_up, false);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &v.context, &diag), GQAC_OK);
    gqac_store *before = rig_folder_store(p, folder, 0);
    for (int seed = save ? 2 : 1; seed < 4; seed++)
        CU_ASSERT(visit(before, context, seed, 100, true, &reused) != 0 && reused == 0);
    gqac_store_free(before);
    v.store = rig_folder_store(p, folder, 0);
    CU_ASSERT(visit(v.store, context, 5, 100, false, &reused) != 0 && reused == 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, visit_slowly, &v), 0);
    while (sem_wait(&reached) != 0)
        continue;
    CU_ASSERT(visit(v.store, context, 5, 100, false, &reused) != 0 && reused == 99);
    CU_ASSERT(visit(v.store, context, 2, 100, true, &reused) != 0 && reused == 99);
    rig_ids(ids, N, 5);
    CU_ASSERT_EQUAL(gqac_store_match(v.store, NULL, NULL, ids, 100), 100);
    gqac_store_statistics x = {.size = sizeof x};
    CU_ASSERT_EQUAL(gqac_store_get_statistics(v.store, &x, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(x.loaded_files, 1);
    CU_ASSERT_FALSE(atomic_load(&gave_up));
    sem_post(&released);
    pthread_join(thread, NULL);
    CU_ASSERT(v.right && v.reused == (save ? 0 : 99));
    CU_ASSERT_FALSE(atomic_load(&gave_up));
    gqac_store_free(v.store);
    gqac_context_free(v.context);
    gqac_context_free(context);
    gqac_program_free(p);
    sem_destroy(&reached);
    sem_destroy(&released);
    remove_folder();
}

static void while_written(void) {
    look_up_beside(true);
}

static void while_read(void) {
    look_up_beside(false);
}

/* ---- many at once -------------------------------------------------------- */

static void *visit_often(void *arg) {
    visitor *v = arg;
    v->right = true;
    for (int i = 0; i < unit_count(12, 200) && v->right; i++) {
        const int seed = (v->first + i) % 5;
        v->right = visit(v->store, v->context, seed, 60 + 10 * seed, i % 2 == v->first % 2,
                         &v->reused) == v->expected[seed];
        if (i % 5 == 4)
            gqac_store_evict(v->store, 0); /* the next ones are read from files */
    }
    return NULL;
}

/* Threads open, save and remove prompts of one folder, through two stores. */
static void several_threads(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_store *stores[2];
    visitor all[THREADS];
    pthread_t threads[THREADS];
    uint64_t expected[5];
    int64_t reused = 0;
    make_folder();
    for (int i = 0; i < THREADS; i++) {
        all[i] = (visitor){.expected = expected, .first = i};
        CU_ASSERT_EQUAL_FATAL(gqac_context_create(p, 1, &all[i].context, &diag), GQAC_OK);
    }
    gqac_store *alone = rig_folder_store(p, folder, 0);
    for (int seed = 0; seed < 5; seed++)
        expected[seed] = visit(alone, all[0].context, seed, 60 + 10 * seed, false, &reused);
    gqac_store_free(alone);
    for (int i = 0; i < 2; i++)
        stores[i] = rig_folder_store(p, folder, 300000);
    for (int i = 0; i < THREADS; i++) {
        all[i].store = stores[i / 2];
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, visit_often, &all[i]), 0);
    }
    gqac_store_statistics x = {.size = sizeof x};
    int64_t loaded = 0, saved = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CU_ASSERT(all[i].right);
        gqac_context_free(all[i].context);
    }
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(gqac_store_get_statistics(stores[i], &x, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(x.damaged_files, 0);
        loaded += x.loaded_files;
        saved += x.saved_files;
        gqac_store_free(stores[i]);
    }
    CU_ASSERT(loaded > 0 && saved > 0);
    gqac_program_free(p);
    remove_folder();
}

static const unit_case cases[] = {
    {"while a file is written", while_written},
    {"while a file is read", while_read},
    {"several threads", several_threads},
};

int main(int argc, char **argv) {
    return unit_run("store/slow_disk", cases, sizeof cases / sizeof *cases, argc, argv);
}
