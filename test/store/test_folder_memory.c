/* In each call that uses the folder of a store the n-th allocation fails, for every n: nothing
 * leaks, no file is lost or incomplete, and the same call then succeeds as if nothing had
 * happened. */
#include "unit.h"

#include <gqac/gqac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum { N = 90, SAVED = 70, LONGER = 80, PATH = 512 };

static gqac_diag diag;
static gqac_program *program;
static gqac_sequence *donor, *longer; /* with the first SAVED and LONGER ids */
static int64_t ids[N];
static char folder[64], other[64];

static gqac_store *new_store(void) {
    gqac_store *store = NULL;
    gqac_store_options options;
    gqac_store_options_init(&options);
    options.folder = folder;
    options.folder_budget = 1 << 30;
    if (gqac_store_create(program, &options, &store, &diag) != GQAC_OK)
        store = NULL;
    return store;
}

/* Number of files; all of them must be complete. */
static size_t count_files(const char *where) {
    gqac_store_file *files = NULL;
    size_t n = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_store_folder_list(where, true, &files, &n, &diag), GQAC_OK);
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_PTR_NOT_NULL(files[i].file);
    gqac_store_folder_free(files, n);
    return n;
}

static void empty(const char *where) {
    gqac_store_file *files = NULL;
    size_t n = 0;
    CU_ASSERT_EQUAL_FATAL(gqac_store_folder_list(where, false, &files, &n, &diag), GQAC_OK);
    for (size_t i = 0; i < n; i++) {
        char path[PATH];
        snprintf(path, sizeof path, "%s/%s", where, files[i].name);
        unlink(path);
    }
    gqac_store_folder_free(files, n);
}

/* Writes one file, of the donor. */
static void fill(void) {
    gqac_store *store = new_store();
    CU_ASSERT_PTR_NOT_NULL_FATAL(store);
    CU_ASSERT_EQUAL_FATAL(gqac_store_save(store, "a", donor, &diag), GQAC_OK);
    gqac_store_free(store);
}

/* ---- calls ---------------------------------------------------------------- */

typedef gqac_status call(gqac_store *store);
typedef void check(gqac_store *store, bool done);

/* least: minimum number of allocations of the call; with: it uses an existing store. */
static void each(const char *what, bool with, call *f, check *after, size_t least) {
    const size_t live = gqac_alloc_live();
    size_t failures = 0;
    for (size_t n = 1;; n++) {
        empty(folder);
        empty(other);
        fill();
        gqac_store *store = with ? new_store() : NULL;
        memset(&diag, 0, sizeof diag);
        gqac_alloc_fail_at(n, 0);
        const gqac_status status = f(store);
        const size_t calls = gqac_alloc_calls();
        gqac_alloc_fail_at(0, 0);
        failures += status != GQAC_OK;
        if (status != GQAC_OK && (status != GQAC_NO_MEMORY || !*diag.what))
            printf("%s, n = %zu: %s '%s'\n", what, n, gqac_status_name(status), diag.what);
        CU_ASSERT(status == GQAC_OK || (status == GQAC_NO_MEMORY && *diag.what));
        after(store, status == GQAC_OK);
        CU_ASSERT_EQUAL(f(store), GQAC_OK);
        after(store, true);
        gqac_store_free(store);
        if (gqac_alloc_live() != live)
            printf("%s, n = %zu: %zu live\n", what, n, gqac_alloc_live() - live);
        CU_ASSERT_EQUAL(gqac_alloc_live(), live);
        if (n > calls)
            break;
    }
    CU_ASSERT(failures >= least);
    printf("  %s: %zu allocations failed one by one\n", what, failures);
}

static gqac_status create(gqac_store *unused) {
    gqac_store *store = new_store();
    (void)unused;
    gqac_store_free(store);
    return store ? GQAC_OK : diag.status;
}

static void one_file(gqac_store *store, bool done) {
    (void)store;
    (void)done;
    CU_ASSERT_EQUAL(count_files(folder), 1);
}

static gqac_status open(gqac_store *store) {
    gqac_sequence *sequence = NULL;
    int64_t reused = 0;
    const gqac_status status = gqac_store_open(store, "a", ids, N, NULL, &sequence, &reused, &diag);
    CU_ASSERT((status == GQAC_OK) == (sequence != NULL));
    if (status == GQAC_OK)
        CU_ASSERT_EQUAL(reused, SAVED);
    gqac_sequence_free(sequence);
    return status;
}

/* A file that could not be read for lack of memory is not treated as damaged. */
static void undamaged(gqac_store *store, bool done) {
    gqac_store_statistics s = {.size = sizeof s};
    CU_ASSERT_EQUAL(gqac_store_get_statistics(store, &s, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(s.damaged_files, 0);
    if (done)
        CU_ASSERT(s.loaded_files >= 1);
    one_file(store, done);
}

static gqac_status save(gqac_store *store) {
    return gqac_store_save(store, "a", longer, &diag);
}

/* There is the old file, the new one, or both until the old one is superfluous. */
static void saved(gqac_store *store, bool done) {
    const size_t n = count_files(folder);
    (void)store;
    CU_ASSERT(n == 1 || (n == 2 && !done));
}

static gqac_status list(gqac_store *store) {
    gqac_store_file *files = NULL;
    size_t n = 0;
    (void)store;
    const gqac_status status = gqac_store_folder_list(folder, true, &files, &n, &diag);
    CU_ASSERT(status != GQAC_OK || (n == 1 && files[0].file));
    if (status == GQAC_OK)
        gqac_store_folder_free(files, n);
    return status;
}

/* A file is removed if it is damaged, not if it could not be read. */
static gqac_status clean(gqac_store *store) {
    int64_t removed = 0;
    (void)store;
    const gqac_status status = gqac_store_folder_clean(folder, 0, &removed, &diag);
    CU_ASSERT_EQUAL(removed, 0);
    return status;
}

static gqac_status add(gqac_store *store) {
    gqac_store_file *files = NULL;
    size_t n = 0;
    char path[PATH];
    bool added = false;
    (void)store;
    const gqac_status listed = gqac_store_folder_list(folder, false, &files, &n, &diag);
    if (listed != GQAC_OK)
        return listed;
    snprintf(path, sizeof path, "%s/%s", folder, files[0].name);
    gqac_store_folder_free(files, n);
    return gqac_store_folder_add(other, "a", path, &added, &diag);
}

static void added(gqac_store *store, bool done) {
    const size_t n = count_files(other);
    one_file(store, done);
    CU_ASSERT(n == 1 || (!n && !done));
}

/* ---- cases --------------------------------------------------------------- */

static gqac_sequence *compute(int64_t n) {
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_context_create(program, 1, &context, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_create(program, NULL, &sequence, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_sequence_append(context, sequence, ids, n, 0, &diag), GQAC_OK);
    gqac_context_free(context);
    return sequence;
}

static void with_model(const char *model) {
    strcpy(folder, "/tmp/gqac-memory-XXXXXX");
    strcpy(other, "/tmp/gqac-other-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(other));
    for (int64_t i = 0; i < N; i++)
        ids[i] = (i * 31 + i / 7) % 250;
    CU_ASSERT_EQUAL_FATAL(gqac_program_open(unit_path(model), NULL, &program, &diag), GQAC_OK);
    donor = compute(SAVED);
    longer = compute(LONGER);
    each("create", false, create, one_file, 5);
    each("open", true, open, undamaged, 10);
    each("save", true, save, saved, 10);
    each("list", false, list, one_file, 4);
    each("clean", false, clean, one_file, 4);
    each("add", false, add, added, 6);
    gqac_sequence_free(donor);
    gqac_sequence_free(longer);
    gqac_program_free(program);
    empty(folder);
    empty(other);
    CU_ASSERT(!rmdir(folder) && !rmdir(other));
}

static void test_rows(void) {
    with_model("test/models/llama/model.onnx");
}

static const unit_case cases[] = {
    {"rows", test_rows},
};

int main(int argc, char **argv) {
    return unit_run("folder_memory", cases, sizeof cases / sizeof *cases, argc, argv);
}
