/* The folder of a store: one snapshot file for each sequence, named by what it holds.
 *
 * The name is a SHA-256 of the fields that must agree, each with its tag and length: model, profile
 * and options (by the fingerprint of the file), kind, rope tables, tenant, ids. So a file that lies
 * under another name is not found, and a tenant finds only what was saved for it. Files come and go
 * by link, rename and unlink alone: a process that is killed leaves whole files. The time of the
 * last use is the modification time. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "runtime/saved.h"
#include "store/store_impl.h"

#define SUFFIX ".gqs"
enum { NAME = 64 + sizeof SUFFIX, STALE_SECONDS = 3600, NANO = 1000000000 };

/* A file of this program. */
typedef struct entry {
    gqac_snapshot_file *file;
    char name[NAME];
    bool seen, damaged;
} entry;

struct store_folder {
    char *path;
    char model[65]; /* gqac_snapshot_file.model of the files that can be used */
    entry *entries;
    size_t n, capacity;
    char (
        *others)[NAME]; /* files that are damaged or of other programs, which are not read again */
    size_t n_others, others_capacity;
};

/* ---- names --------------------------------------------------------------- */

static void put(gqac_sha256 *state, const char *tag, const void *data, size_t bytes) {
    const uint64_t lengths[2] = {strlen(tag), bytes};
    gqac_sha256_update(state, &lengths[0], sizeof lengths[0]);
    gqac_sha256_update(state, tag, strlen(tag));
    gqac_sha256_update(state, &lengths[1], sizeof lengths[1]);
    if (bytes)
        gqac_sha256_update(state, data, bytes);
}

/* The only place that makes a name. */
static void name_of(const gqac_snapshot_file *f, const char *tenant, char name[NAME]) {
    unsigned char digest[32];
    gqac_sha256 state;
    gqac_sha256_init(&state);
    put(&state, "model", f->model, strlen(f->model));
    put(&state, "kind", f->kind, strlen(f->kind));
    put(&state, "tables", &f->tables, sizeof f->tables);
    put(&state, "tenant", tenant, strlen(tenant));
    put(&state, "ids", f->ids, (size_t)f->n_ids * sizeof *f->ids);
    gqac_sha256_final(&state, digest);
    for (int i = 0; i < 32; i++)
        snprintf(name + 2 * i, 3, "%02x", digest[i]);
    memcpy(name + 64, SUFFIX, sizeof SUFFIX);
}

static bool is_name(const char *name) {
    return strlen(name) == NAME - 1 && strspn(name, "0123456789abcdef") == 64 &&
           !strcmp(name + 64, SUFFIX);
}

/* "folder/name"; NULL: out of memory. The caller frees it. */
static char *join(const char *folder, const char *name) {
    gqac_str path = {0};
    gqac_str_printf(&path, "%s/%s", folder, name);
    if (path.failed)
        gqac_str_free(&path);
    return path.text;
}

static gqac_status fail_folder(const char *path, gqac_diag *diag) {
    GQAC_FAIL(diag, GQAC_IO, "cannot read the folder '%s': %s", path, gqac_errno_text(errno));
}

/* ---- the list of a store ------------------------------------------------- */

static entry *find_entry(const store_folder *f, const char *name) {
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->entries[i].name, name))
            return &f->entries[i];
    return NULL;
}

static bool is_other(const store_folder *f, const char *name) {
    for (size_t i = 0; i < f->n_others; i++)
        if (!strcmp(f->others[i], name))
            return true;
    return false;
}

/* Opens a snapshot file. A link, or what is no regular file, is INVALID_INPUT and not opened. */
static gqac_status open_plain(const char *path, bool whole, gqac_snapshot_file **file,
                              gqac_diag *diag) {
    struct stat st;
    if (lstat(path, &st) != 0)
        GQAC_FAIL(diag, GQAC_IO, "cannot read '%s': %s", path, gqac_errno_text(errno));
    if (!S_ISREG(st.st_mode))
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "it is not a regular file");
    return gqac_snapshot_file_open(path, whole, file, diag);
}

/* Reads header and ids of a new file. */
static gqac_status read_entry(gqac_store *store, store_folder *f, const char *name,
                              gqac_diag *diag) {
    gqac_snapshot_file *file = NULL;
    gqac_diag why = {0};
    char *path = join(f->path, name);
    if (!path || !gqac_reserve(&f->entries, f->n + 1, &f->capacity, sizeof *f->entries) ||
        !gqac_reserve(&f->others, f->n_others + 1, &f->others_capacity, sizeof *f->others)) {
        gqac_free(path);
        return gqac_diag_oom(diag, "a prefix store");
    }
    const gqac_status status = open_plain(path, false, &file, &why);
    gqac_free(path);
    if (status == GQAC_INVALID_INPUT) {
        store->counts.damaged_files++;
        gqac_log_line(&store->program->log, GQAC_LOG_WARNING, "%s/%s is not used: %s", f->path,
                      name, why.what);
    }
    if (status == GQAC_NO_MEMORY)
        return gqac_diag_oom(diag, "a prefix store");
    if (status == GQAC_IO) /* perhaps only now: it is tried again */
        return GQAC_OK;
    if (status != GQAC_OK || strcmp(file->model, f->model) != 0 || file->first) {
        gqac_snapshot_file_free(file);
        memcpy(f->others[f->n_others++], name, NAME);
        return GQAC_OK;
    }
    entry *e = &f->entries[f->n++];
    *e = (entry){.file = file, .seen = true};
    memcpy(e->name, name, NAME);
    return GQAC_OK;
}

/* Reads what other processes have added or removed. */
static gqac_status refresh(gqac_store *store, store_folder *f, gqac_diag *diag) {
    gqac_status status = GQAC_OK;
    DIR *folder = opendir(f->path);
    if (!folder)
        return fail_folder(f->path, diag);
    for (size_t i = 0; i < f->n; i++)
        f->entries[i].seen = false;
    for (const struct dirent *d; status == GQAC_OK && (d = readdir(folder));) {
        if (!is_name(d->d_name) || is_other(f, d->d_name))
            continue;
        entry *known = find_entry(f, d->d_name);
        if (known)
            known->seen = true;
        else
            status = read_entry(store, f, d->d_name, diag);
    }
    closedir(folder);
    for (size_t i = 0; status == GQAC_OK && i < f->n;)
        if (f->entries[i].seen) {
            i++;
        } else {
            gqac_snapshot_file_free(f->entries[i].file);
            f->entries[i] = f->entries[--f->n];
        }
    return status;
}

static gqac_status fill(gqac_store *store, store_folder *f, const char *path, gqac_diag *diag) {
    unsigned char digest[32];
    GQAC_TRY(saved_fingerprint(store->program, digest, diag));
    for (int i = 0; i < 32; i++)
        snprintf(f->model + 2 * i, 3, "%02x", digest[i]);
    f->path = gqac_alloc(strlen(path) + 1);
    if (!f->path)
        return gqac_diag_oom(diag, "a prefix store");
    memcpy(f->path, path, strlen(path) + 1);
    return refresh(store, f, diag);
}

gqac_status store_folder_open(gqac_store *store, const char *path, store_folder **folder,
                              gqac_diag *diag) {
    store_folder *f = gqac_calloc(1, sizeof *f);
    if (!f)
        return gqac_diag_oom(diag, "a prefix store");
    const gqac_status status = fill(store, f, path, diag);
    if (status != GQAC_OK) {
        store_folder_close(f);
        return status;
    }
    *folder = f;
    return GQAC_OK;
}

void store_folder_close(store_folder *folder) {
    if (!folder)
        return;
    for (size_t i = 0; i < folder->n; i++)
        gqac_snapshot_file_free(folder->entries[i].file);
    gqac_free(folder->entries);
    gqac_free(folder->others);
    gqac_free(folder->path);
    gqac_free(folder);
}

/* ---- search -------------------------------------------------------------- */

static int64_t common(const gqac_snapshot_file *f, const int64_t *ids, int64_t n) {
    int64_t i = 0;
    while (i < n && i < f->n_ids && f->ids[i] == ids[i])
        i++;
    return i;
}

static bool is_of(const entry *e, const char *tenant, const char *kind) {
    char name[NAME];
    if (e->damaged || strcmp(e->file->kind, kind) != 0)
        return false;
    name_of(e->file, tenant, name);
    return !strcmp(name, e->name);
}

gqac_status store_folder_find(gqac_store *store, const char *tenant, const char *kind,
                              const int64_t *ids, int64_t n, int64_t least,
                              gqac_snapshot **snapshot, gqac_diag *diag) {
    store_folder *f = store->files;
    gqac_diag why = {0};
    entry *best = NULL;
    GQAC_TRY(refresh(store, f, diag));
    for (size_t i = 0; i < f->n; i++) {
        const int64_t length = common(f->entries[i].file, ids, n);
        if (length > least && is_of(&f->entries[i], tenant, kind)) {
            least = length;
            best = &f->entries[i];
        }
    }
    char *path = best ? join(f->path, best->name) : NULL;
    if (!best || !path)
        return best ? gqac_diag_oom(diag, "a prefix store") : GQAC_OK;
    const gqac_status status = gqac_snapshot_load(store->program, path, snapshot, &why);
    if (status == GQAC_OK) {
        store->counts.loaded_files++;
        (void)utimensat(AT_FDCWD, path, NULL, 0); /* used now; a folder may be read-only */
    } else if (status != GQAC_IO && status != GQAC_NO_MEMORY && status != GQAC_CAPACITY) {
        best->damaged = true;
        store->counts.damaged_files++;
        gqac_log_line(&store->program->log, GQAC_LOG_WARNING, "%s is not used: %s", path, why.what);
    }
    gqac_free(path);
    return status == GQAC_NO_MEMORY ? gqac_diag_oom(diag, "a prefix store") : GQAC_OK;
}

/* ---- files of any program ------------------------------------------------ */

static int by_name(const void *a, const void *b) {
    return strcmp(((const gqac_store_file *)a)->name, ((const gqac_store_file *)b)->name);
}

static gqac_status list_file(const char *folder, const char *name, bool whole, gqac_store_file *out,
                             gqac_diag *diag) {
    struct stat st;
    char *path = join(folder, name), *copy = gqac_alloc(strlen(name) + 1);
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
    const gqac_status status = open_plain(path, whole, &out->file, &out->why);
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
        return fail_folder(folder, diag);
    for (const struct dirent *e; status == GQAC_OK && (e = readdir(d));) {
        const size_t length = strlen(e->d_name), end = sizeof SUFFIX - 1;
        if (length <= end || strcmp(e->d_name + length - end, SUFFIX) != 0)
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

static gqac_status remove_file(const char *folder, const char *name, int64_t *removed,
                               gqac_diag *diag) {
    char *path = join(folder, name);
    if (!path)
        return gqac_diag_oom(diag, "a list of files");
    const int failed = unlink(path) != 0 && errno != ENOENT ? errno : 0;
    gqac_free(path);
    if (failed)
        GQAC_FAIL(diag, GQAC_IO, "cannot remove '%s/%s': %s", folder, name,
                  gqac_errno_text(failed));
    *removed += 1;
    return GQAC_OK;
}

/* Removes the temporary files of writers that were killed long ago. */
static gqac_status remove_temporary(const char *folder, int64_t *removed, gqac_diag *diag) {
    static const char end[] = ".tmp";
    gqac_status status = GQAC_OK;
    DIR *d = opendir(folder);
    if (!d)
        return fail_folder(folder, diag);
    for (const struct dirent *e; status == GQAC_OK && (e = readdir(d));) {
        struct stat st;
        const size_t n = strlen(e->d_name);
        if (e->d_name[0] == '.' && n > sizeof end && strstr(e->d_name, SUFFIX) &&
            !strcmp(e->d_name + n + 1 - sizeof end, end) &&
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_mtime + STALE_SECONDS < time(NULL))
            status = remove_file(folder, e->d_name, removed, diag);
    }
    closedir(d);
    return status;
}

static int by_use(const void *a, const void *b) {
    const gqac_store_file *x = a, *y = b;
    return x->used != y->used ? (x->used > y->used) - (x->used < y->used) : by_name(a, b);
}

/* Removes the files that were used longest ago, until those of the list fit the budget; not `keep`.
 */
static gqac_status keep_budget(const char *folder, gqac_store_file *files, size_t n, int64_t budget,
                               const char *keep, int64_t *removed, gqac_diag *diag) {
    int64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += files[i].bytes;
    if (n)
        qsort(files, n, sizeof *files, by_use);
    for (size_t i = 0; i < n && budget && bytes > budget; i++) {
        if (keep && !strcmp(files[i].name, keep))
            continue;
        GQAC_TRY(remove_file(folder, files[i].name, removed, diag));
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
            status = remove_file(folder, f.name, removed, diag);
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
        status = keep_budget(folder, files, kept, budget, NULL, removed, diag);
    gqac_store_folder_free(files, n);
    return status;
}

/* ---- saving -------------------------------------------------------------- */

/* Can what the file holds be restored from a sequence whose first ids it has? */
static bool is_covered(const gqac_sequence *q, const gqac_snapshot_file *f) {
    return f->n_ids < gqac_sequence_length(q) && common(f, q->ids, f->n_ids) == f->n_ids &&
           kv_sequence_reach(q->kv, f->n_ids) == f->n_ids;
}

/* After a save: removes what the new file makes superfluous, and keeps the budget. */
static gqac_status tidy(gqac_store *store, const char *tenant, const gqac_sequence *q,
                        const char *name, gqac_diag *diag) {
    store_folder *f = store->files;
    int64_t removed = 0;
    gqac_store_file *files = NULL;
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (is_covered(q, f->entries[i].file) &&
            is_of(&f->entries[i], tenant, gqac_sequence_kind(q)))
            GQAC_TRY(remove_file(f->path, f->entries[i].name, &removed, diag));
    if (store->options.folder_budget) {
        GQAC_TRY(gqac_store_folder_list(f->path, false, &files, &n, diag));
        const gqac_status status =
            keep_budget(f->path, files, n, store->options.folder_budget, name, &removed, diag);
        gqac_store_folder_free(files, n);
        GQAC_TRY(status);
    }
    return refresh(store, f, diag);
}

static gqac_status save_named(gqac_store *store, const gqac_sequence *q, const char *name,
                              gqac_diag *diag) {
    gqac_snapshot *snapshot = NULL;
    char *path = join(store->files->path, name);
    gqac_status status =
        path ? gqac_snapshot_take(q, &snapshot, diag) : gqac_diag_oom(diag, "a prefix store");
    if (status == GQAC_OK)
        status = gqac_snapshot_save(snapshot, path, diag);
    gqac_snapshot_free(snapshot);
    gqac_free(path);
    return status;
}

static gqac_status save(gqac_store *store, const char *tenant, const gqac_sequence *q,
                        gqac_diag *diag) {
    store_folder *f = store->files;
    char name[NAME];
    const int64_t length = gqac_sequence_length(q), budget = store->options.folder_budget;
    const gqac_snapshot_file own = {.model = f->model,
                                    .kind = gqac_sequence_kind(q),
                                    .tables = q->guards,
                                    .n_ids = length,
                                    .ids = q->ids};
    if (!length || (budget && (int64_t)gqac_sequence_save_bytes(q) > budget))
        return GQAC_OK;
    GQAC_TRY(refresh(store, f, diag));
    name_of(&own, tenant, name);
    for (size_t i = 0; i < f->n; i++) {
        const entry *e = &f->entries[i];
        const bool longer = e->file->n_ids > length && !kv_pool_state_bytes(store->program->pool) &&
                            common(e->file, q->ids, length) == length;
        if (!e->damaged && (!strcmp(e->name, name) || (longer && is_of(e, tenant, own.kind))))
            return GQAC_OK;
    }
    GQAC_TRY(save_named(store, q, name, diag));
    store->counts.saved_files++;
    entry *known = find_entry(f, name);
    if (known) /* was damaged */
        known->damaged = false;
    return tidy(store, tenant, q, name, diag);
}

gqac_status gqac_store_save(gqac_store *store, const char *tenant, const gqac_sequence *sequence,
                            gqac_diag *diag) {
    if (sequence->program != store->program)
        GQAC_FAIL(diag, GQAC_USAGE, "the sequence belongs to another program than the store");
    if (!store->files)
        GQAC_FAIL(diag, GQAC_USAGE, "the store has no folder");
    if (sequence->given)
        GQAC_FAIL(diag, GQAC_USAGE, "the ids of %lld imported tokens are unknown",
                  (long long)sequence->given);
    pthread_mutex_lock(&store->lock);
    const gqac_status status = save(store, tenant ? tenant : "", sequence, diag);
    pthread_mutex_unlock(&store->lock);
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
    char name[NAME];
    if (!gqac_path_is_dir(folder)) {
        errno = ENOTDIR;
        return fail_folder(folder, diag);
    }
    GQAC_TRY(gqac_snapshot_file_open(path, true, &file, diag));
    name_of(file, tenant ? tenant : "", name);
    gqac_snapshot_file_free(file);
    char *to = join(folder, name);
    if (!to)
        return gqac_diag_oom(diag, "a prefix store");
    *added = !gqac_path_exists(to);
    const gqac_status status = *added ? copy(path, to, diag) : GQAC_OK;
    gqac_free(to);
    return status;
}
