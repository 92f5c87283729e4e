/* The folder of a store: what one process saved, another one reuses, with the same bits; names
 * depend on the contents; damaged files are not used; a killed process leaves only complete
 * files, also among others that use the folder. */
#include "runtime/rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <gqac/gqac.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 150, PATH = 512 };

static gqac_diag diag;
static char folder[64], path[PATH];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/gqac-folder-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
}

/* Calls f for each file, whose path is then in `path`; returns their number. */
static int each_file(void (*f)(void)) {
    int n = 0;
    DIR *d = opendir(folder);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            snprintf(path, sizeof path, "%s/%.255s", folder, e->d_name);
            n++;
            if (f)
                f();
        }
    closedir(d);
    return n;
}

static void remove_one(void) {
    CU_ASSERT_EQUAL(unlink(path), 0);
}

static void remove_folder(void) {
    each_file(remove_one);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

/* Computes a prompt with a new program and store, saves it, and returns the number of reused
 * tokens. */
static int64_t visit(const char *model, const char *tenant, const int64_t *ids, int64_t n,
                     int64_t budget, uint64_t *bits, gqac_store_statistics *counts) {
    gqac_program *p = rig_program(model, "cpu");
    gqac_context *context = rig_context(p);
    gqac_store *store = rig_folder_store(p, folder, budget);
    gqac_sequence *s = NULL;
    int64_t reused = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, tenant, ids, n, NULL, &s, &reused, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, s, ids + reused, n - reused, 1, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_computed(s), n - reused);
    *bits = rig_logits(context);
    CU_ASSERT_EQUAL(gqac_store_save(store, tenant, s, &diag), GQAC_OK);
    gqac_sequence_free(s);
    *counts = rig_counts(store);
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
    return reused;
}

static void restart_with(const char *model, bool states) {
    int64_t ids[N], other[N];
    uint64_t cold = 0, warm = 0;
    gqac_store_statistics x;
    make_folder();
    rig_ids(ids, N, 1);
    CU_ASSERT_EQUAL(visit(model, "a", ids, 100, 0, &cold, &x), 0);
    CU_ASSERT(x.saved_files == 1 && x.loaded_files == 0 && each_file(NULL) == 1);
    CU_ASSERT_EQUAL(visit(model, "a", ids, 100, 0, &warm, &x), states ? 64 : 99);
    CU_ASSERT(warm == cold && x.saved_files == 0 && x.loaded_files == 1);
    CU_ASSERT_EQUAL(visit(model, "a", ids, 120, 0, &warm, &x), 100);
    CU_ASSERT_EQUAL(each_file(NULL), states ? 2 : 1); /* the longer one replaces the other */
    CU_ASSERT_EQUAL(visit(model, "b", ids, 120, 0, &cold, &x), 0);
    CU_ASSERT(warm == cold && x.loaded_files == 0);
    rig_ids(other, N, 3); /* the file that matches most ids need not be the one with a state */
    memcpy(other, ids, 110 * sizeof *ids);
    CU_ASSERT_EQUAL(visit(model, "a", other, 130, 0, &warm, &x), states ? 100 : 110);
    CU_ASSERT_EQUAL(visit(model, "b", other, 130, 0, &cold, &x), states ? 64 : 110);
    CU_ASSERT_EQUAL(warm, cold);
    rig_ids(other, N, 2);
    memcpy(other, ids, 70 * sizeof *ids);
    CU_ASSERT_EQUAL(visit(model, "a", other, 120, 0, &warm, &x), states ? 64 : 70);
    remove_folder();
    make_folder();
    CU_ASSERT_EQUAL(visit(model, "a", other, 120, 0, &cold, &x), 0);
    CU_ASSERT_EQUAL(warm, cold);
    remove_folder();
}

static void restart(void) {
    restart_with("models/tiny-gqa/model.onnx", false);
    restart_with("test/models/lfm2/model.onnx", false);
    restart_with("test/models/qwen3.5/model.onnx", true);
}

static void set_time(int64_t seconds) {
    const struct timespec at[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    CU_ASSERT_EQUAL(utimensat(AT_FDCWD, path, at, 0), 0);
}

/* Two prompts with a common beginning and different ends have separate files; neither replaces the
 * other, whichever is longer. */
static void alike(void) {
    int64_t ids[N];
    uint64_t bits = 0;
    gqac_store_statistics x;
    for (int64_t n = 100; n <= 120; n += 20) {
        make_folder();
        rig_ids(ids, N, 1);
        visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 0, &bits, &x);
        ids[99]++;
        CU_ASSERT_EQUAL(visit("models/tiny-gqa/model.onnx", NULL, ids, n, 0, &bits, &x), 99);
        CU_ASSERT(x.saved_files == 1 && each_file(NULL) == 2);
        remove_folder();
    }
}

/* The least recently used file is removed first; the file that was just saved stays, even if its
 * time is the oldest. */
static void oldest(void) {
    int64_t ids[3][N];
    uint64_t bits = 0;
    gqac_store_statistics x;
    struct stat st;
    for (int ahead = 0; ahead < 2; ahead++) {
        make_folder();
        for (int i = 0; i < 3 - ahead; i++) {
            rig_ids(ids[i], N, i + 1);
            const int64_t budget = i < 2 - ahead ? 0 : (2 - ahead) * (int64_t)st.st_size;
            visit("models/tiny-gqa/model.onnx", NULL, ids[i], 100, budget, &bits, &x);
            if (i > 0)
                continue;
            CU_ASSERT(each_file(NULL) == 1 && stat(path, &st) == 0);
            set_time(ahead ? (int64_t)time(NULL) + 1000000 : 1000);
        }
        CU_ASSERT_EQUAL(each_file(NULL), 2 - ahead);
        for (int i = 2 - ahead; i >= 0; i--)
            CU_ASSERT_EQUAL(visit("models/tiny-gqa/model.onnx", NULL, ids[i], 100, 0, &bits, &x),
                            i ? 99 : 0);
        remove_folder();
    }
}

/* Files of another model are neither used nor changed. */
static void other_models(void) {
    int64_t ids[N];
    uint64_t bits = 0;
    gqac_store_statistics x;
    make_folder();
    rig_ids(ids, N, 1);
    CU_ASSERT_EQUAL(visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 0, &bits, &x), 0);
    CU_ASSERT_EQUAL(visit("test/models/llama/model.onnx", NULL, ids, 120, 0, &bits, &x), 0);
    CU_ASSERT(x.loaded_files == 0 && x.damaged_files == 0 && each_file(NULL) == 2);
    CU_ASSERT_EQUAL(visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 0, &bits, &x), 99);
    remove_folder();
}

/* ---- hostile files ------------------------------------------------------- */

static void flip_last_byte(void) {
    FILE *f = fopen(path, "r+b");
    CU_ASSERT_FATAL(f && fseek(f, -1, SEEK_END) == 0);
    const int c = fgetc(f);
    CU_ASSERT(fseek(f, -1, SEEK_END) == 0 && fputc(c ^ 1, f) != EOF);
    fclose(f);
}

static void flip_first_byte(void) {
    FILE *f = fopen(path, "r+b");
    CU_ASSERT_FATAL(f && fputc('X', f) != EOF);
    fclose(f);
}

static void cut(void) {
    CU_ASSERT_EQUAL(truncate(path, 600), 0);
}

static void make_link(void) {
    char to[PATH + 8];
    snprintf(to, sizeof to, "%s.moved", path);
    CU_ASSERT(rename(path, to) == 0 && symlink(to, path) == 0);
}

/* Renames the file to another name that a store looks for. */
static void move(void) {
    char to[PATH];
    memcpy(to, path, sizeof to);
    char *digit = strrchr(to, '/') + 1;
    *digit = *digit == '0' ? '1' : '0';
    CU_ASSERT_EQUAL(rename(path, to), 0);
}

static void damaged(void) {
    static void (*const ways[])(void) = {flip_last_byte, flip_first_byte, cut, make_link, move};
    int64_t ids[N];
    uint64_t cold = 0, bits = 0;
    gqac_store_statistics x;
    rig_ids(ids, N, 1);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        make_folder();
        visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 0, &cold, &x);
        CU_ASSERT_EQUAL(each_file(ways[i]), 1);
        CU_ASSERT_EQUAL(visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 0, &bits, &x), 0);
        CU_ASSERT(bits == cold && x.loaded_files == 0);
        CU_ASSERT_EQUAL(x.damaged_files, ways[i] == move ? 0 : 1);
        CU_ASSERT_EQUAL(x.saved_files, 1); /* in place of the damaged one */
        CU_ASSERT_EQUAL(visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 0, &bits, &x), 99);
        remove_folder();
    }
}

/* If the longest file is damaged, the next prompt reuses the rows of a shorter one. */
static void next_longest(void) {
    int64_t ids[N], reused = 0;
    uint64_t bits = 0;
    gqac_store_statistics x;
    make_folder();
    rig_ids(ids, N, 1);
    visit("models/tiny-gqa/model.onnx", NULL, ids, 120, 0, &bits, &x);
    each_file(flip_last_byte);
    ids[90]++;
    visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 0, &bits, &x);
    ids[90]--;
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_store *store = rig_folder_store(p, folder, 0);
    for (int i = 0; i < 3; i++) {
        gqac_sequence *s = NULL;
        CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, NULL, ids, 120, NULL, &s, &reused, &diag),
                              GQAC_OK);
        CU_ASSERT_EQUAL(reused, i ? 90 : 0);
        gqac_sequence_free(s);
    }
    CU_ASSERT_EQUAL(rig_counts(store).damaged_files, 1);
    gqac_store_free(store);
    gqac_program_free(p);
    remove_folder();
}

/* A store reads a file again if it was damaged at first and has since been replaced. */
static void replaced(void) {
    int64_t ids[N], reused = 0;
    uint64_t bits = 0;
    gqac_store_statistics x;
    gqac_sequence *s = NULL;
    char saved[PATH + 8];
    make_folder();
    rig_ids(ids, N, 1);
    visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 0, &bits, &x);
    each_file(NULL);
    snprintf(saved, sizeof saved, "%s.saved", path); /* a name that no store reads */
    CU_ASSERT_EQUAL(rename(path, saved), 0);
    FILE *f = fopen(path, "wb");
    CU_ASSERT_FATAL(f && fputs("GQAC", f) != EOF && fclose(f) == 0);
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_store *store = rig_folder_store(p, folder, 0);
    for (int i = 0; i < 3; i++) { /* damaged; missing; restored */
        CU_ASSERT(i == 0 || (i == 1 ? unlink(path) : rename(saved, path)) == 0);
        CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, NULL, ids, 100, NULL, &s, &reused, &diag),
                              GQAC_OK);
        CU_ASSERT_EQUAL(reused, i < 2 ? 0 : 99);
        gqac_sequence_free(s);
    }
    x = rig_counts(store);
    CU_ASSERT(x.damaged_files == 1 && x.loaded_files == 1);
    gqac_store_free(store);
    cut();
    store = rig_folder_store(p, folder, 0);
    CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, NULL, ids, 100, NULL, &s, &reused, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL(gqac_sequence_append(context, s, ids, 100, 1, &diag), GQAC_OK);
    for (int i = 0; i < 2; i++) /* the second one finds the file of the first */
        CU_ASSERT_EQUAL(gqac_store_save(store, NULL, s, &diag), GQAC_OK);
    x = rig_counts(store);
    CU_ASSERT(x.damaged_files == 1 && x.saved_files == 1);
    gqac_sequence_free(s);
    gqac_store_free(store);
    gqac_context_free(context);
    gqac_program_free(p);
    remove_folder();
}

/* ---- budget -------------------------------------------------------------- */

static void budget(void) {
    int64_t ids[N], removed = 0;
    uint64_t bits = 0;
    gqac_store_statistics x;
    gqac_store_file *files = NULL;
    size_t n = 0;
    make_folder();
    rig_ids(ids, N, 1);
    visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 0, &bits, &x);
    CU_ASSERT_EQUAL_FATAL(gqac_store_folder_list(folder, true, &files, &n, &diag), GQAC_OK);
    CU_ASSERT_FATAL(n == 1 && files[0].file && files[0].bytes > 0);
    const int64_t bytes = files[0].bytes;
    gqac_store_folder_free(files, n);
    for (int seed = 2; seed < 6; seed++) {
        rig_ids(ids, N, seed);
        visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 3 * bytes, &bits, &x);
        CU_ASSERT_EQUAL(each_file(NULL), seed < 3 ? seed : 3);
    }
    CU_ASSERT_EQUAL(visit("models/tiny-gqa/model.onnx", NULL, ids, 100, 3 * bytes, &bits, &x), 99);
    rig_ids(ids, N, 7);
    visit("models/tiny-gqa/model.onnx", NULL, ids, 100, bytes - 1, &bits, &x);
    CU_ASSERT(each_file(NULL) == 3 && x.saved_files == 0); /* larger than the budget */
    each_file(flip_last_byte);
    snprintf(path, sizeof path, "%s/.%064d.gqs.12345678.tmp", folder, 0);
    FILE *f = fopen(path, "wb");
    CU_ASSERT_FATAL(f != NULL);
    fclose(f);
    CU_ASSERT_EQUAL(gqac_store_folder_clean(folder, 0, &removed, &diag), GQAC_OK);
    CU_ASSERT(removed == 3 && each_file(NULL) == 1); /* another process may write the other */
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    CU_ASSERT_EQUAL(utimensat(AT_FDCWD, path, old, 0), 0);
    CU_ASSERT_EQUAL(gqac_store_folder_clean(folder, 0, &removed, &diag), GQAC_OK);
    CU_ASSERT(removed == 1 && each_file(NULL) == 0);
    remove_folder();
    CU_ASSERT_EQUAL(gqac_store_folder_clean(folder, 0, &removed, &diag), GQAC_IO);
}

/* A file that was copied to another folder is found there under its name. */
static void import(void) {
    int64_t ids[N];
    uint64_t bits = 0;
    gqac_store_statistics x;
    char first[64], from[PATH];
    bool added = false;
    make_folder();
    memcpy(first, folder, sizeof first);
    rig_ids(ids, N, 1);
    visit("models/tiny-gqa/model.onnx", "a", ids, 100, 0, &bits, &x);
    each_file(NULL);
    memcpy(from, path, sizeof from);
    make_folder();
    CU_ASSERT_EQUAL(gqac_store_folder_add(folder, "b", from, &added, &diag), GQAC_OK);
    CU_ASSERT(added && each_file(NULL) == 1);
    CU_ASSERT_EQUAL(gqac_store_folder_add(folder, "b", from, &added, &diag), GQAC_OK);
    CU_ASSERT_FALSE(added);
    CU_ASSERT_EQUAL(visit("models/tiny-gqa/model.onnx", "b", ids, 100, 0, &bits, &x), 99);
    memcpy(path, from, sizeof path);
    flip_last_byte();
    CU_ASSERT_EQUAL(gqac_store_folder_add(folder, "c", from, &added, &diag), GQAC_INVALID_INPUT);
    CU_ASSERT_EQUAL(each_file(NULL), 1);
    remove_folder();
    CU_ASSERT_EQUAL(gqac_store_folder_add(folder, "c", from, &added, &diag), GQAC_IO);
    memcpy(folder, first, sizeof folder);
    remove_folder();
}

/* ---- killed processes ---------------------------------------------------- */

/* Hashes of the logits after each number of tokens of some prompts, without a store. */
enum { SEEDS = 7, LEAST = 20, MOST = 110 };
static uint64_t expected[SEEDS][MOST + 1];

static void expect_bits(const gqac_program *p) {
    gqac_context *context = rig_context(p);
    int64_t ids[N];
    for (int seed = 0; seed < SEEDS; seed++) {
        gqac_sequence *s = rig_sequence(p, 0);
        rig_ids(ids, N, seed);
        for (int64_t n = 1; n <= MOST; n++) {
            CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, s, ids + n - 1, 1, 1, &diag),
                                  GQAC_OK);
            expected[seed][n] = rig_logits(context);
        }
        gqac_sequence_free(s);
    }
    gqac_context_free(context);
}

/* Computes what the store lacks of a prompt; false: this fails, or the logits have other bits. */
static bool has_bits(gqac_store *store, gqac_context *context, int seed, int64_t n, bool save,
                     int64_t *reused) {
    int64_t ids[N];
    gqac_sequence *s = NULL;
    rig_ids(ids, N, seed);
    const bool right =
        gqac_store_open(store, NULL, ids, n, NULL, &s, reused, NULL) == GQAC_OK &&
        gqac_sequence_append(context, s, ids + *reused, n - *reused, 1, NULL) == GQAC_OK &&
        rig_logits(context) == expected[seed][n] &&
        (!save || gqac_store_save(store, NULL, s, NULL) == GQAC_OK);
    gqac_sequence_free(s);
    return right;
}

/* A process that saves one prompt after another until it is killed. */
static pid_t start_saving(const gqac_program *p, int seed) {
    const pid_t child = fork();
    if (child)
        return child;
    gqac_context *context = NULL;
    gqac_store *store = NULL;
    gqac_store_options options;
    gqac_store_options_init(&options);
    options.folder = folder;
    options.folder_budget = 400000;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (gqac_context_create(p, 1, &context, NULL) != GQAC_OK ||
        gqac_store_create(p, &options, &store, NULL) != GQAC_OK)
        _exit(1);
    for (int64_t reused;; seed++)
        if (!has_bits(store, context, seed % SEEDS, LEAST + seed % (MOST - LEAST), true, &reused))
            _exit(1);
}

/* Kills it after up to `most` milliseconds. */
static void kill_saving(pid_t child, int most) {
    int status = 0;
    const int ms = 2 + rand() % most;
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
    kill(child, SIGKILL);
    CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
    CU_ASSERT_FATAL(WIFSIGNALED(status)); /* it had not failed */
}

/* A new store on the folder has the bits of each prompt; returns the number of tokens that it
 * reused. */
static int64_t check_bits(const gqac_program *p) {
    gqac_store *store = rig_folder_store(p, folder, 0);
    gqac_context *context = rig_context(p);
    int64_t all = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        int64_t reused = 0;
        CU_ASSERT(has_bits(store, context, seed, MOST, false, &reused));
        all += reused;
    }
    CU_ASSERT_EQUAL(rig_counts(store).damaged_files, 0);
    gqac_context_free(context);
    gqac_store_free(store);
    return all;
}

static void killed(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    int whole = 0, most = 40; /* ms before the signal; more if nothing was saved */
    int64_t reused = 0;
    make_folder();
    expect_bits(p);
    srand(1);
    for (int i = 0; i < unit_count(25, 1000); i++) {
        gqac_store_file *files = NULL;
        size_t n = 0;
        kill_saving(start_saving(p, 0), most);
        CU_ASSERT_EQUAL_FATAL(gqac_store_folder_list(folder, true, &files, &n, &diag), GQAC_OK);
        for (size_t k = 0; k < n; k++)
            CU_ASSERT(files[k].file != NULL);
        whole += (int)n;
        most = whole || most > 2000 ? most : 2 * most;
        gqac_store_folder_free(files, n);
        reused += check_bits(p);
    }
    CU_ASSERT(whole > 0 && reused > 0);
    remove_folder();
    gqac_program_free(p);
}

/* Several processes share a folder, whose budget they exceed, and one after another is killed. */
static void killed_among_others(void) {
    enum { PROCESSES = 3 };
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    pid_t children[PROCESSES];
    int64_t reused = 0;
    make_folder();
    expect_bits(p);
    srand(3);
    for (int k = 0; k < PROCESSES; k++)
        children[k] = start_saving(p, 2 * k);
    for (int i = 0; i < unit_count(25, 1000) || (!reused && i < 1000); i++) {
        kill_saving(children[i % PROCESSES], 40);
        reused += check_bits(p);
        children[i % PROCESSES] = start_saving(p, i);
    }
    for (int k = 0; k < PROCESSES; k++)
        kill_saving(children[k], 1);
    CU_ASSERT(reused > 0);
    check_bits(p);
    remove_folder();
    gqac_program_free(p);
}

/* The child alternately replaces a file by one of two snapshots, until it is killed. */
static void replace_for_ever(gqac_snapshot *const two[2], const char *file) {
    for (int i = 0; gqac_snapshot_save(two[i % 2], file, NULL) == GQAC_OK; i++)
        ;
    _exit(1);
}

/* After each kill the file is one of the two, complete, with its ids, and with rows from which the
 * next step has the bits of a sequence that was never saved. */
static void killed_snapshot(void) {
    gqac_program *p = rig_program("models/tiny-gqa/model.onnx", "cpu");
    gqac_context *context = rig_context(p);
    gqac_snapshot *two[2];
    int64_t ids[2][N], seen[2] = {0};
    uint64_t next[2]; /* hashes of the logits of the next step */
    int most = 20;
    const int64_t lengths[2] = {20, 130};
    char file[PATH];
    make_folder();
    snprintf(file, sizeof file, "%s/prefix.gqs", folder);
    for (int i = 0; i < 2; i++) {
        gqac_sequence *s = NULL;
        rig_ids(ids[i], N, i + 1);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(p, NULL, &s, &diag), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, s, ids[i], lengths[i], 0, &diag),
                              GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_snapshot_take(s, &two[i], &diag), GQAC_OK);
        gqac_sequence_free(s);
        s = rig_sequence(p, 0);
        CU_ASSERT_EQUAL(gqac_sequence_append(context, s, ids[i], lengths[i] + 1, 1, &diag),
                        GQAC_OK);
        next[i] = rig_logits(context);
        gqac_sequence_free(s);
    }
    CU_ASSERT_EQUAL_FATAL(gqac_snapshot_save(two[0], file, &diag), GQAC_OK);
    srand(2);
    for (int i = 0, kills = unit_count(25, 1000); i < kills; i++) {
        gqac_snapshot *found = NULL;
        gqac_sequence *s = NULL;
        int64_t first = 0, count = 0;
        int status = 0;
        const pid_t child = fork();
        if (!child)
            replace_for_ever(two, file);
        const int ms = 1 + rand() % most;
        const struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
        nanosleep(&wait, NULL);
        kill(child, SIGKILL);
        CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
        CU_ASSERT_FATAL(WIFSIGNALED(status)); /* it had not failed */
        CU_ASSERT_EQUAL_FATAL(gqac_snapshot_load(p, file, &found, &diag), GQAC_OK);
        const int which = gqac_snapshot_length(found) == lengths[1];
        CU_ASSERT_EQUAL(gqac_snapshot_length(found), lengths[which]);
        CU_ASSERT_EQUAL_FATAL(gqac_snapshot_restore(found, NULL, &s, &diag), GQAC_OK);
        const int64_t *own = gqac_sequence_ids(s, &first, &count);
        CU_ASSERT_EQUAL_FATAL(count, lengths[which]);
        CU_ASSERT_EQUAL(memcmp(own, ids[which], (size_t)count * sizeof *own), 0);
        CU_ASSERT_EQUAL(gqac_sequence_append(context, s, ids[which] + count, 1, 1, &diag), GQAC_OK);
        CU_ASSERT_EQUAL(rig_logits(context), next[which]);
        seen[which]++;
        if (!seen[1] && most < 2000) { /* no child had time to save anything */
            most *= 2;
            kills++;
        }
        gqac_sequence_free(s);
        gqac_snapshot_free(found);
    }
    CU_ASSERT(seen[0] > 0 && seen[1] > 0);
    remove_folder();
    gqac_snapshot_free(two[0]);
    gqac_snapshot_free(two[1]);
    gqac_context_free(context);
    gqac_program_free(p);
}

static const unit_case cases[] = {
    {"restart", restart},
    {"prompts that begin alike", alike},
    {"the next longest file", next_longest},
    {"other models", other_models},
    {"damaged", damaged},
    {"replaced", replaced},
    {"the oldest file", oldest},
    {"budget", budget},
    {"import", import},
    {"killed", killed},
    {"killed among others", killed_among_others},
    {"snapshot killed", killed_snapshot},
};

int main(int argc, char **argv) {
    return unit_run("store/folder", cases, sizeof cases / sizeof *cases, argc, argv);
}
