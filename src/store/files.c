/* Folders of snapshot files, of any program: their list, what is removed, and import. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/store_impl.h"

enum { STALE_SECONDS = 3600, NANO = 1000000000 };

/* ---- the list ------------------------------------------------------------ */

static int by_name(const void *a, const void *b) {
    return strcmp(((const gqac_store_file *)a)->name, ((const gqac_store_file *)b)->name);
}

static gqac_status list_file(const char *folder, const char *name, bool whole, gqac_store_file *out,
                             gqac_diag *diag) {
    struct stat st;
    char *path = store_join(folder, name), *copy = gqac_alloc(strlen(name) + 1);
    if (!path || !copy) {
        gqac_free(path);
        gqac_free(copy);
        return gqac_diag_oom(diag, "a list of files");
    }
    memcpy(copy, name, strlen(name) + 1);
    *out = (gqac_store_file){.size = sizeof *out, .name = copy};
    if (lstat(path, &st) == 0) {
        out->used = (int64_t)st.st_mtim.tv_sec * NANO + (int64_t)st.st_mtim.tv_nsec;
        out->bytes = (int64_t)st.st_size;
    }
    const gqac_status status = store_open_plain(path, whole, &out->file, &out->why);
    gqac_free(path);
    if (status == GQAC_NO_MEMORY)
        gqac_free(copy);
    return status == GQAC_NO_MEMORY ? gqac_diag_oom(diag, "a list of files") : GQAC_OK;
}

gqac_status gqac_store_folder_list(const char *folder, bool whole, gqac_store_file **files,
                                   size_t *n, gqac_diag *diag) {
    gqac_status status = GQAC_OK;
    gqac_store_file *list = NULL;
    size_t count = 0, capacity = 0;
    DIR *d = opendir(folder);
    if (!d)
        return store_fail_folder(folder, diag);
    for (const struct dirent *e; status == GQAC_OK && (e = readdir(d));) {
        const size_t length = strlen(e->d_name), end = sizeof STORE_SUFFIX - 1;
        if (length <= end || strcmp(e->d_name + length - end, STORE_SUFFIX) != 0)
            continue;
        if (!gqac_reserve(&list, count + 1, &capacity, sizeof *list))
            status = gqac_diag_oom(diag, "a list of files");
        else
            status = list_file(folder, e->d_name, whole, &list[count], diag);
        count += status == GQAC_OK;
    }
    closedir(d);
    if (status != GQAC_OK) {
        gqac_store_folder_free(list, count);
        return status;
    }
    if (count)
        qsort(list, count, sizeof *list, by_name);
    *files = list;
    *n = count;
    return GQAC_OK;
}

void gqac_store_folder_free(gqac_store_file *files, size_t n) {
    for (size_t i = 0; i < n; i++) {
        gqac_snapshot_file_free(files[i].file);
        gqac_free((void *)files[i].name);
    }
    gqac_free(files);
}

/* ---- removal ------------------------------------------------------------- */

gqac_status store_remove_file(const char *folder, const char *name, int64_t *removed,
                              gqac_diag *diag) {
    char *path = store_join(folder, name);
    if (!path)
        return gqac_diag_oom(diag, "a list of files");
    const int failed = unlink(path) != 0 ? errno : 0;
    gqac_free(path);
    if (failed && failed != ENOENT && failed != EISDIR) /* a folder is left */
        GQAC_FAIL(diag, GQAC_IO, "cannot remove '%s/%s': %s", folder, name,
                  gqac_errno_text(failed));
    *removed += failed != EISDIR;
    return GQAC_OK;
}

/* Removes the temporary files of writers that were killed long ago. */
static gqac_status remove_temporary(const char *folder, int64_t *removed, gqac_diag *diag) {
    static const char end[] = ".tmp";
    gqac_status status = GQAC_OK;
    DIR *d = opendir(folder);
    if (!d)
        return store_fail_folder(folder, diag);
    for (const struct dirent *e; status == GQAC_OK && (e = readdir(d));) {
        struct stat st;
        const size_t n = strlen(e->d_name);
        if (e->d_name[0] == '.' && n > sizeof end && strstr(e->d_name, STORE_SUFFIX) &&
            !strcmp(e->d_name + n + 1 - sizeof end, end) &&
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_mtime + STALE_SECONDS < time(NULL))
            status = store_remove_file(folder, e->d_name, removed, diag);
    }
    closedir(d);
    return status;
}

static int by_use(const void *a, const void *b) {
    const gqac_store_file *x = a, *y = b;
    return x->used != y->used ? (x->used > y->used) - (x->used < y->used) : by_name(a, b);
}

gqac_status store_keep_files(const char *folder, gqac_store_file *files, size_t n, int64_t budget,
                             const char *keep, int64_t *removed, gqac_diag *diag) {
    int64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += files[i].bytes;
    if (n)
        qsort(files, n, sizeof *files, by_use);
    for (size_t i = 0; i < n && budget && bytes > budget; i++) {
        if (keep && !strcmp(files[i].name, keep))
            continue;
        GQAC_TRY(store_remove_file(folder, files[i].name, removed, diag));
        bytes -= files[i].bytes;
    }
    return GQAC_OK;
}

gqac_status gqac_store_folder_clean(const char *folder, int64_t budget, int64_t *removed,
                                    gqac_diag *diag) {
    gqac_store_file *files = NULL;
    size_t n = 0, kept = 0;
    *removed = 0;
    GQAC_TRY(gqac_store_folder_list(folder, true, &files, &n, diag));
    gqac_status status = remove_temporary(folder, removed, diag);
    for (size_t i = 0; status == GQAC_OK && i < n; i++) {
        const gqac_store_file f = files[i];
        if (!f.file && f.why.status == GQAC_INVALID_INPUT) {
            status = store_remove_file(folder, f.name, removed, diag);
            files[i].bytes = 0;
        }
    }
    for (size_t i = 0; status == GQAC_OK && i < n; i++)
        if (files[i].file) { /* swapped, so that all are freed */
            const gqac_store_file f = files[kept];
            files[kept++] = files[i];
            files[i] = f;
        }
    if (status == GQAC_OK)
        status = store_keep_files(folder, files, kept, budget, NULL, removed, diag);
    gqac_store_folder_free(files, n);
    return status;
}

/* ---- import -------------------------------------------------------------- */

static gqac_status copy(const char *from, const char *to, gqac_diag *diag) {
    gqac_map map;
    gqac_writer *writer = NULL;
    GQAC_TRY(gqac_map_file(from, &map, diag));
    gqac_status status = gqac_writer_open(to, &writer, diag);
    if (status == GQAC_OK)
        status = gqac_writer_write(writer, map.data, map.size, diag);
    gqac_unmap(&map);
    if (status == GQAC_OK)
        return gqac_writer_commit(writer, diag);
    gqac_writer_abort(writer);
    return status;
}

gqac_status gqac_store_folder_add(const char *folder, const char *tenant, const char *path,
                                  bool *added, gqac_diag *diag) {
    gqac_snapshot_file *file = NULL;
    char name[STORE_NAME];
    if (!gqac_path_is_dir(folder)) {
        errno = ENOTDIR;
        return store_fail_folder(folder, diag);
    }
    GQAC_TRY(gqac_snapshot_file_open(path, true, &file, diag));
    store_name_of(file, tenant ? tenant : "", name);
    gqac_snapshot_file_free(file);
    char *to = store_join(folder, name);
    if (!to)
        return gqac_diag_oom(diag, "a prefix store");
    *added = !gqac_path_exists(to);
    const gqac_status status = *added ? copy(path, to, diag) : GQAC_OK;
    gqac_free(to);
    return status;
}
