/* A folder of a prefix store with hostile files: one under the name by which the store finds it,
 * with correct checksums, and one that is not a snapshot at all. */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put(const char *folder, const char *name, const void *data, size_t size) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        fuzz_broken("a file of the folder");
    close(fd);
}

static void clear(const char *folder) {
    char path[512];
    DIR *dir = opendir(folder);
    for (const struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            unlink(path);
        }
    if (dir)
        closedir(dir);
}

/* Finds the ids of the file in the folder, and continues from them. */
static gqac_status use(const gqac_program *program, const char *folder, const int64_t *ids,
                       int64_t n, gqac_diag *diag) {
    gqac_store_options options;
    gqac_store *store = NULL;
    gqac_context *context = NULL;
    gqac_sequence *sequence = NULL;
    int64_t reused = 0;
    const int64_t id = 1;
    gqac_store_options_init(&options);
    options.folder = folder;
    options.folder_budget = 1 << 20;
    gqac_status status = fuzz_check(gqac_store_create(program, &options, &store, diag), diag);
    if (status == GQAC_OK)
        status = fuzz_check(gqac_context_create(program, 1, &context, diag), diag);
    if (status == GQAC_OK)
        status =
            fuzz_check(gqac_store_open(store, "t", ids, n, NULL, &sequence, &reused, diag), diag);
    if (status == GQAC_OK && (reused < 0 || reused >= n))
        fuzz_broken("the number of reused tokens");
    if (status == GQAC_OK)
        status = fuzz_check(gqac_sequence_append(context, sequence, &id, 1, 1, diag), diag);
    if (status == GQAC_OK)
        status = fuzz_check(gqac_store_save(store, "t", sequence, diag), diag);
    gqac_sequence_free(sequence);
    gqac_context_free(context);
    gqac_store_free(store);
    return status;
}

static gqac_status run(const uint8_t *data, size_t size) {
    static const int64_t fixed[] = {0, 1, 2, 1, 1};
    const int which = size && data[0] != 'G' ? data[0] % FUZZ_PROGRAMS : 0;
    const char *folder = fuzz_folder();
    uint8_t *copy = fuzz_sign_snapshot(which, data, size);
    const char *path = fuzz_file(copy, size);
    gqac_diag diag = {0};
    gqac_snapshot_file *file = NULL;
    gqac_store_file *files = NULL;
    size_t n_files = 0;
    int64_t removed = 0;
    bool added = false;
    put(folder, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.gqs", data, size);
    (void)fuzz_check(gqac_store_folder_add(folder, "t", path, &added, &diag), &diag);
    int64_t *ids = NULL, n = 5;
    if (fuzz_check(gqac_snapshot_file_open(path, false, &file, &diag), &diag) == GQAC_OK &&
        file->n_ids > 0) { /* one id more than the file has, so that all of it can be used */
        n = file->n_ids + 1;
        ids = calloc((size_t)n, sizeof *ids);
        memcpy(ids, file->ids, (size_t)file->n_ids * sizeof *ids);
    }
    gqac_snapshot_file_free(file);
    gqac_status status = use(fuzz_program(which), folder, ids ? ids : fixed, n, &diag);
    if (fuzz_check(gqac_store_folder_list(folder, true, &files, &n_files, &diag), &diag) == GQAC_OK)
        gqac_store_folder_free(files, n_files);
    (void)fuzz_check(gqac_store_folder_clean(folder, 4096, &removed, &diag), &diag);
    clear(folder);
    free(ids);
    free(copy);
    return status;
}

const fuzz_target fuzz_target_store = {"store", run, NULL};
