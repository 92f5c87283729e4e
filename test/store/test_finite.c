/* A prefix store takes no row with a NaN or an infinity, and none after it: in memory, in its
 * folder, and from a file that has such rows. */
#include "runtime/program.h"
#include "runtime/rig.h"
#include "runtime/sequence.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 16, N = 150, NEVER = N };

static gqac_diag diag;
static char folder[64];
static int64_t ids[N + 1];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "/tmp/gqac-finite-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
}

/* Removes the folder and its files, and returns their number. */
static int remove_folder(void) {
    int n = 0;
    char path[512];
    DIR *d = opendir(folder);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            snprintf(path, sizeof path, "%s/%.255s", folder, e->d_name);
            CU_ASSERT_EQUAL(unlink(path), 0);
            n++;
        }
    closedir(d);
    CU_ASSERT_EQUAL(rmdir(folder), 0);
    return n;
}

/* All pasts of the first N ids, with memory of their own. */
typedef struct pasts {
    int n;
    const char *names[MOST];
    gqac_tensor tensors[MOST];
} pasts;

static pasts compute(const gqac_program *p) {
    const gqac_kv_pair *pairs;
    pasts made = {.n = gqac_program_kv_pairs(p, &pairs)};
    gqac_context *context = rig_context(p);
    gqac_sequence *s = rig_sequence(p, 0);
    CU_ASSERT_FATAL(made.n > 0 && made.n <= MOST);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, s, ids, N, 1, &diag), GQAC_OK);
    for (int i = 0; i < made.n; i++) {
        gqac_tensor *t = &made.tensors[i];
        *t = (gqac_tensor){
            .dtype = pairs[i].dtype, .rank = 4, .dims = {1, pairs[i].heads, N, pairs[i].head_size}};
        t->data = malloc(gqac_tensor_bytes(t));
        made.names[i] = pairs[i].past;
        CU_ASSERT(t->dtype == GQAC_F32 && t->data);
        CU_ASSERT_EQUAL_FATAL(
            gqac_sequence_export(s, pairs[i].past, t->data, gqac_tensor_bytes(t), &diag), GQAC_OK);
    }
    gqac_sequence_free(s);
    gqac_context_free(context);
    return made;
}

/* A sequence of a kind that imported the pasts, but of tensor `which` one element of row `from`,
 * and all those of later rows, are `value`. */
static gqac_sequence *import(const gqac_program *p, const char *kv, const pasts *all, int which,
                             int64_t from, float value) {
    const gqac_sequence_options options = {.size = sizeof options, .kv = kv};
    pasts copy = *all;
    gqac_tensor *t = &copy.tensors[which];
    const int64_t heads = t->dims[1], width = t->dims[3];
    float *data = malloc(gqac_tensor_bytes(t));
    gqac_sequence *s = NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    memcpy(data, t->data, gqac_tensor_bytes(t));
    t->data = data;
    if (from < N)
        data[((heads - 1) * N + from) * width + from % width] = value;
    for (int64_t at = 0; at < heads * N * width; at++)
        if (at / width % N > from)
            data[at] = value;
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(p, &options, &s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_import(s, copy.n, copy.names, copy.tensors, &diag),
                          GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(sequence_know_ids(s, ids, &diag), GQAC_OK);
    free(data);
    return s;
}

/* The number of tokens that a store reuses for a prompt of all ids and one more. */
static int64_t reused_by(gqac_store *store, const char *kv) {
    const gqac_sequence_options options = {.size = sizeof options, .kv = kv};
    gqac_sequence *s = NULL;
    int64_t reused = -1;
    CU_ASSERT_EQUAL_FATAL(gqac_store_open(store, "a", ids, N + 1, &options, &s, &reused, &diag),
                          GQAC_OK);
    gqac_sequence_free(s);
    return reused;
}

/* The number of tokens that are reused after a restart. */
static int64_t after_restart(const gqac_program *p, const char *kv) {
    gqac_store *store = rig_folder_store(p, folder, 0);
    const int64_t reused = reused_by(store, kv);
    CU_ASSERT_EQUAL(rig_counts(store).damaged_files, 0);
    gqac_store_free(store);
    return reused;
}

/* Adds and saves a sequence, and looks it up in memory and in the folder. */
static void check_sequence(const gqac_program *p, const char *kv, const gqac_sequence *s,
                           int64_t finite) {
    make_folder();
    gqac_store *store = rig_folder_store(p, folder, 0);
    CU_ASSERT_EQUAL(gqac_store_add(store, "a", s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(reused_by(store, kv), finite);
    CU_ASSERT_EQUAL(gqac_store_save(store, "a", s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(rig_counts(store).saved_files, finite == N);
    CU_ASSERT_EQUAL(reused_by(store, kv), finite);
    gqac_store_free(store);
    CU_ASSERT_EQUAL(after_restart(p, kv), finite == N ? N : 0);
    CU_ASSERT_EQUAL(remove_folder(), finite == N);
}

/* Copies a snapshot of the sequence, with all its rows, to a folder, and looks it up there. */
static void check_file(const gqac_program *p, const char *kv, const gqac_sequence *s,
                       int64_t finite) {
    char path[] = "/tmp/gqac-finite-XXXXXX.gqs";
    gqac_snapshot *snapshot = NULL;
    bool added = false;
    const int fd = mkstemps(path, 4);
    CU_ASSERT_FATAL(fd >= 0);
    close(fd);
    make_folder();
    CU_ASSERT_EQUAL_FATAL(gqac_snapshot_take(s, &snapshot, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_snapshot_save(snapshot, path, &diag), GQAC_OK);
    gqac_snapshot_free(snapshot);
    CU_ASSERT_EQUAL(gqac_store_folder_add(folder, "a", path, &added, &diag), GQAC_OK);
    CU_ASSERT(added);
    CU_ASSERT_EQUAL(after_restart(p, kv), finite);
    CU_ASSERT_EQUAL(remove_folder(), 1);
    CU_ASSERT_EQUAL(unlink(path), 0);
}

static void check(const char *model) {
    static const char *const kinds[] = {"contiguous", "paged", "quantised", "quantised4"};
    static const float values[] = {NAN, INFINITY, -INFINITY};
    static const int64_t rows[] = {0, 1, 63, 64, 65, 128, N - 1, NEVER};
    gqac_program *p = rig_program(model, "cpu");
    rig_ids(ids, N + 1, 1);
    pasts all = compute(p);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
                const int which = (int)(kind + i + k) % all.n;
                gqac_sequence *s = import(p, kinds[kind], &all, which, rows[i], values[k]);
                check_sequence(p, kinds[kind], s, rows[i]);
                check_file(p, kinds[kind], s, rows[i]);
                gqac_sequence_free(s);
            }
    for (int i = 0; i < all.n; i++)
        free(all.tensors[i].data);
    CU_ASSERT_EQUAL(kv_pool_blocks_in_use(p->pool), 0);
    gqac_program_free(p);
}

static void bundled(void) {
    check("models/tiny-gqa/model.onnx");
}

static void windows(void) {
    check("test/models/gemma2/model.onnx");
}

static const unit_case cases[] = {{"the bundled model", bundled}, {"windows", windows}};

int main(int argc, char **argv) {
    return unit_run("store/finite", cases, sizeof cases / sizeof *cases, argc, argv);
}
