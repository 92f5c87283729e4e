/* The folder of a store: one snapshot file for each sequence, named by what it holds.
 *
 * The name is a SHA-256 of the fields that must agree, each with its tag and length: model, profile
 * and options (by the fingerprint of the file), kind, rope tables, tenant, ids. So a file that lies
 * under another name is not found, and a tenant finds only what was saved for it. Files come and go
 * by link, rename and unlink alone: a process that is killed leaves whole files. The time of the
 * last use is the modification time.
 *
 * The lock of the store guards the list, but is never held while a file is read, written or looked
 * for. So entries are remembered by name, because others may change the list meanwhile. */
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
#include "base/common.h"
#include "base/log.h"
#include "base/str.h"
#include "runtime/saved.h"
#include "store/store_impl.h"

enum { NAME = STORE_NAME };

/* A file of this program. */
typedef struct entry {
    gqac_snapshot_file *file;
    char name[NAME];
    bool damaged;
} entry;

struct store_folder {
    char *path;
    char model[65]; /* gqac_snapshot_file.model of the files that can be used */
    entry *entries;
    size_t n, capacity;
    char (
        *others)[NAME]; /* files that are damaged or of other programs, which are not read again */
    size_t n_others, others_capacity;
    bool refreshing; /* a thread is reading what is new in the folder */
};

/* ---- names --------------------------------------------------------------- */

void store_put_field(gqac_sha256 *state, const char *tag, const void *data, size_t bytes) {
    const uint64_t lengths[2] = {strlen(tag), bytes};
    gqac_sha256_update(state, &lengths[0], sizeof lengths[0]);
    gqac_sha256_update(state, tag, strlen(tag));
    gqac_sha256_update(state, &lengths[1], sizeof lengths[1]);
    if (bytes)
        gqac_sha256_update(state, data, bytes);
}

/* The only place that makes a name. */
void store_name_of(const gqac_snapshot_file *f, const char *tenant, char name[NAME]) {
    unsigned char digest[32];
    gqac_sha256 state;
    gqac_sha256_init(&state);
    store_put_field(&state, "model", f->model, strlen(f->model));
    store_put_field(&state, "kind", f->kind, strlen(f->kind));
    store_put_field(&state, "tables", &f->tables, sizeof f->tables);
    store_put_field(&state, "tenant", tenant, strlen(tenant));
    store_put_field(&state, "ids", f->ids, (size_t)f->n_ids * sizeof *f->ids);
    gqac_sha256_final(&state, digest);
#ifdef GQAC_DIGEST_BITS /* of a test: different prefixes have the same name */
    memset(digest + 1, 0, sizeof digest - 1);
    digest[0] &= (1 << GQAC_DIGEST_BITS) - 1;
#endif
    gqac_sha256_hex(digest, name);
    memcpy(name + 64, STORE_SUFFIX, sizeof STORE_SUFFIX);
}

static bool is_name(const char *name) {
    return strlen(name) == NAME - 1 && strspn(name, "0123456789abcdef") == 64 &&
           !strcmp(name + 64, STORE_SUFFIX);
}

char *store_join(const char *folder, const char *name) {
    gqac_str path = {0};
    gqac_str_printf(&path, "%s/%s", folder, name);
    if (path.failed)
        gqac_str_free(&path);
    return path.text;
}

gqac_status store_fail_folder(const char *path, gqac_diag *diag) {
    GQAC_FAIL(diag, GQAC_IO, "cannot read the folder '%s': %s", path, gqac_errno_text(errno));
}

/* ---- the list of a store ------------------------------------------------- */

static entry *find_entry(const store_folder *f, const char *name) {
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->entries[i].name, name))
            return &f->entries[i];
    return NULL;
}

gqac_status store_open_plain(const char *path, bool whole, gqac_snapshot_file **file,
                             gqac_diag *diag) {
    struct stat st;
    if (lstat(path, &st) != 0)
        GQAC_FAIL(diag, GQAC_IO, "cannot read '%s': %s", path, gqac_errno_text(errno));
    if (!S_ISREG(st.st_mode))
        GQAC_FAIL(diag, GQAC_INVALID_INPUT, "it is not a regular file");
    return gqac_snapshot_file_open(path, whole, file, diag);
}

/* Adds what was read of a new file; file NULL: it is damaged. */
static gqac_status add_entry(store_folder *f, const char *name, gqac_snapshot_file *file,
                             gqac_diag *diag) {
    if (!gqac_reserve(&f->entries, f->n + 1, &f->capacity, sizeof *f->entries) ||
        !gqac_reserve(&f->others, f->n_others + 1, &f->others_capacity, sizeof *f->others)) {
        gqac_snapshot_file_free(file);
        return gqac_diag_oom(diag, "a prefix store");
    }
    if (!file || strcmp(file->model, f->model) != 0 || file->first) {
        gqac_snapshot_file_free(file);
        memcpy(f->others[f->n_others++], name, NAME);
        return GQAC_OK;
    }
    entry *e = &f->entries[f->n++];
    *e = (entry){.file = file};
    memcpy(e->name, name, NAME);
    return GQAC_OK;
}

/* Reads header and ids of a new file. */
static gqac_status read_entry(gqac_store *store, store_folder *f, const char *name,
                              gqac_diag *diag) {
    gqac_snapshot_file *file = NULL;
    gqac_diag why = {0};
    char *path = store_join(f->path, name);
    if (!path)
        return gqac_diag_oom(diag, "a prefix store");
    gqac_status status = store_open_plain(path, false, &file, &why);
    gqac_free(path);
    if (status == GQAC_NO_MEMORY)
        return gqac_diag_oom(diag, "a prefix store");
    if (status == GQAC_IO) /* it may be readable later, so it is tried again */
        return GQAC_OK;
    if (status == GQAC_INVALID_INPUT)
        gqac_log_line(&store->program->log, GQAC_LOG_WARNING, "the snapshot %s/%s is not used: %s",
                      f->path, name, why.what);
    pthread_mutex_lock(&store->lock);
    store->counts.damaged_files += status == GQAC_INVALID_INPUT;
    status = add_entry(f, name, file, diag);
    pthread_mutex_unlock(&store->lock);
    return status;
}

typedef struct named {
    char name[NAME];
    bool known; /* the store has an entry for it, or knows that it cannot use it */
} named;

typedef struct names {
    named *list;
    size_t n, capacity;
} names;

static gqac_status add_name(names *all, const char *name, gqac_diag *diag) {
    if (!gqac_reserve(&all->list, all->n + 1, &all->capacity, sizeof *all->list))
        return gqac_diag_oom(diag, "a prefix store");
    named *added = &all->list[all->n++];
    memcpy(added->name, name, NAME);
    added->known = false;
    return GQAC_OK;
}

static gqac_status list_names(const char *path, names *all, gqac_diag *diag) {
    gqac_status status = GQAC_OK;
    DIR *folder = opendir(path);
    if (!folder)
        return store_fail_folder(path, diag);
    for (const struct dirent *d; status == GQAC_OK && (d = readdir(folder));)
        if (is_name(d->d_name))
            status = add_name(all, d->d_name, diag);
    closedir(folder);
    return status;
}

/* Names are the first members. */
static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Marks a name as known; false: it is not in the sorted list, so its file is gone. */
static bool mark_known(const names *all, const char *name) {
    named *found = all->n ? bsearch(name, all->list, all->n, sizeof *all->list, by_name) : NULL;
    if (found)
        found->known = true;
    return found;
}

/* The file has been replaced. */
static void forget_other(store_folder *f, const char *name) {
    for (size_t i = 0; i < f->n_others; i++)
        if (!strcmp(f->others[i], name)) {
            memmove(f->others[i], f->others[--f->n_others], NAME);
            return;
        }
}

/* Forgets files that are gone, and marks in *all, the sorted names of the folder, what is known. */
static void compare_names(store_folder *f, const names *all) {
    for (size_t i = 0; i < f->n;)
        if (mark_known(all, f->entries[i].name)) {
            i++;
        } else {
            gqac_snapshot_file_free(f->entries[i].file);
            f->entries[i] = f->entries[--f->n];
        }
    for (size_t i = 0; i < f->n_others;)
        if (mark_known(all, f->others[i]))
            i++;
        else
            memmove(f->others[i], f->others[--f->n_others], NAME);
}

/* Brings the list up to date with what other processes have added or removed. If another thread is
 * doing so, it does nothing. */
static gqac_status refresh(gqac_store *store, store_folder *f, gqac_diag *diag) {
    names all = {0};
    pthread_mutex_lock(&store->lock);
    const bool busy = f->refreshing;
    f->refreshing = true;
    pthread_mutex_unlock(&store->lock);
    if (busy)
        return GQAC_OK;
    gqac_status status = list_names(f->path, &all, diag);
    if (status == GQAC_OK) {
        if (all.n)
            qsort(all.list, all.n, sizeof *all.list, by_name);
        pthread_mutex_lock(&store->lock);
        compare_names(f, &all);
        pthread_mutex_unlock(&store->lock);
    }
    for (size_t i = 0; status == GQAC_OK && i < all.n; i++)
        if (!all.list[i].known)
            status = read_entry(store, f, all.list[i].name, diag);
    pthread_mutex_lock(&store->lock);
    f->refreshing = false;
    pthread_mutex_unlock(&store->lock);
    gqac_free(all.list);
    return status;
}

static gqac_status fill(gqac_store *store, store_folder *f, const char *path, gqac_diag *diag) {
    unsigned char digest[32];
    GQAC_TRY(saved_fingerprint(store->program, digest, diag));
    gqac_sha256_hex(digest, f->model);
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
    GQAC_RETURN_MADE(fill(store, f, path, diag), f, folder, store_folder_close);
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
    return gqac_common_ids(f->ids, ids, n < f->n_ids ? n : f->n_ids);
}

/* The same, up to where the sequence of the file can be continued: every length, or those whose
 * states it has. */
static int64_t reusable(const gqac_snapshot_file *f, const int64_t *ids, int64_t n) {
    const int64_t most = common(f, ids, n);
    int64_t length = f->states ? 0 : most;
    for (int64_t i = 0; i < f->states; i++)
        if (f->state_positions[i] <= most && f->state_positions[i] > length)
            length = f->state_positions[i];
    return length;
}

static bool is_of(const entry *e, const char *tenant, const char *kind) {
    char name[NAME];
    if (e->damaged || strcmp(e->file->kind, kind) != 0)
        return false;
    store_name_of(e->file, tenant, name);
    return !strcmp(name, e->name);
}

/* The name of the file that can continue the longest prefix of ids[0..n), if that is more than
 * `least` tokens. */
static bool find_longest(const store_folder *f, const char *tenant, const char *kind,
                         const int64_t *ids, int64_t n, int64_t least, char name[NAME]) {
    const entry *best = NULL;
    for (size_t i = 0; i < f->n; i++) {
        const int64_t length = reusable(f->entries[i].file, ids, n);
        if (length > least && is_of(&f->entries[i], tenant, kind)) {
            least = length;
            best = &f->entries[i];
        }
    }
    if (best)
        memcpy(name, best->name, NAME);
    return best;
}

/* True if the file itself is the reason why it was not loaded; it is not tried again. */
static bool is_damaged(gqac_status status) {
    return status != GQAC_OK && status != GQAC_IO && status != GQAC_NO_MEMORY &&
           status != GQAC_CAPACITY;
}

/* Counts a file that was loaded, or could not be. */
static void count_load(gqac_store *store, const char *name, gqac_status status) {
    const bool damaged = is_damaged(status);
    pthread_mutex_lock(&store->lock);
    entry *e = damaged ? find_entry(store->files, name) : NULL;
    if (e)
        e->damaged = true;
    store->counts.damaged_files += damaged;
    store->counts.loaded_files += status == GQAC_OK;
    pthread_mutex_unlock(&store->lock);
}

gqac_status store_folder_find(gqac_store *store, const char *tenant, const char *kind,
                              const int64_t *ids, int64_t n, int64_t least,
                              gqac_snapshot **snapshot, gqac_diag *diag) {
    store_folder *f = store->files;
    gqac_diag why = {0};
    char name[NAME];
    GQAC_TRY(refresh(store, f, diag));
    pthread_mutex_lock(&store->lock);
    const bool found = find_longest(f, tenant, kind, ids, n, least, name);
    pthread_mutex_unlock(&store->lock);
    if (!found)
        return GQAC_OK;
    char *path = store_join(f->path, name);
    if (!path)
        return gqac_diag_oom(diag, "a prefix store");
    const gqac_status status = gqac_snapshot_load(store->program, path, snapshot, &why);
    count_load(store, name, status);
    if (status == GQAC_OK)
        (void)utimensat(AT_FDCWD, path, NULL, 0); /* used now; a folder may be read-only */
    else if (is_damaged(status))
        gqac_log_line(&store->program->log, GQAC_LOG_WARNING, "the snapshot %s is not used: %s",
                      path, why.what);
    gqac_free(path);
    return status == GQAC_NO_MEMORY ? gqac_diag_oom(diag, "a prefix store") : GQAC_OK;
}

/* ---- saving -------------------------------------------------------------- */

/* True if the sequence begins with the tokens of the file, and can be rewound to them. */
static bool is_covered(const gqac_sequence *q, const gqac_snapshot_file *f) {
    return f->n_ids < gqac_sequence_length(q) && common(f, q->ids, f->n_ids) == f->n_ids &&
           kv_sequence_reach(q->kv, f->n_ids) == f->n_ids;
}

/* Lists the files that a new one makes superfluous. */
static gqac_status list_covered(const store_folder *f, const char *tenant, const gqac_sequence *q,
                                names *all, gqac_diag *diag) {
    for (size_t i = 0; i < f->n; i++) {
        const entry *e = &f->entries[i];
        if (is_covered(q, e->file) && is_of(e, tenant, gqac_sequence_kind(q)))
            GQAC_TRY(add_name(all, e->name, diag));
    }
    return GQAC_OK;
}

static gqac_status remove_covered(gqac_store *store, const char *tenant, const gqac_sequence *q,
                                  gqac_diag *diag) {
    names all = {0};
    int64_t removed = 0;
    pthread_mutex_lock(&store->lock);
    gqac_status status = list_covered(store->files, tenant, q, &all, diag);
    pthread_mutex_unlock(&store->lock);
    for (size_t i = 0; status == GQAC_OK && i < all.n; i++)
        status = store_remove_file(store->files->path, all.list[i].name, &removed, diag);
    gqac_free(all.list);
    return status;
}

/* After a save: removes what the new file makes superfluous, and keeps the budget. */
static gqac_status tidy(gqac_store *store, const char *tenant, const gqac_sequence *q,
                        const char *name, gqac_diag *diag) {
    store_folder *f = store->files;
    int64_t removed = 0;
    gqac_store_file *files = NULL;
    size_t n = 0;
    GQAC_TRY(remove_covered(store, tenant, q, diag));
    if (store->options.folder_budget) {
        GQAC_TRY(gqac_store_folder_list(f->path, false, &files, &n, diag));
        const gqac_status status =
            store_keep_files(f->path, files, n, store->options.folder_budget, name, &removed, diag);
        gqac_store_folder_free(files, n);
        GQAC_TRY(status);
    }
    return refresh(store, f, diag);
}

static gqac_status save_named(gqac_store *store, const gqac_sequence *q, const char *name,
                              gqac_diag *diag) {
    gqac_snapshot *snapshot = NULL;
    char *path = store_join(store->files->path, name);
    gqac_status status =
        path ? gqac_snapshot_take(q, &snapshot, diag) : gqac_diag_oom(diag, "a prefix store");
    if (status == GQAC_OK)
        status = gqac_snapshot_save(snapshot, path, diag);
    gqac_snapshot_free(snapshot);
    gqac_free(path);
    return status;
}

/* True if the folder already has what a file of that name would hold. */
static bool is_saved(const gqac_store *store, const char *tenant, const gqac_sequence *q,
                     const char *name) {
    const store_folder *f = store->files;
    const int64_t length = gqac_sequence_length(q);
    for (size_t i = 0; i < f->n; i++) {
        const entry *e = &f->entries[i];
        const bool longer = e->file->n_ids > length && !kv_pool_state_bytes(store->program->pool) &&
                            common(e->file, q->ids, length) == length;
        if (!e->damaged &&
            (!strcmp(e->name, name) || (longer && is_of(e, tenant, gqac_sequence_kind(q)))))
            return true;
    }
    return false;
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
    store_name_of(&own, tenant, name);
    pthread_mutex_lock(&store->lock);
    const bool saved = is_saved(store, tenant, q, name);
    pthread_mutex_unlock(&store->lock);
    if (saved) /* perhaps by a save that failed after it had written the file */
        return tidy(store, tenant, q, name, diag);
    GQAC_TRY(save_named(store, q, name, diag));
    pthread_mutex_lock(&store->lock);
    store->counts.saved_files++;
    entry *known = find_entry(f, name);
    if (known) /* was damaged */
        known->damaged = false;
    forget_other(f, name);
    pthread_mutex_unlock(&store->lock);
    return tidy(store, tenant, q, name, diag);
}

gqac_status gqac_store_save(gqac_store *store, const char *tenant, const gqac_sequence *sequence,
                            gqac_diag *diag) {
    if (sequence->program != store->program)
        GQAC_FAIL(diag, GQAC_USAGE, "the sequence belongs to another program than the store");
    if (!store->files && !store->remote)
        GQAC_FAIL(diag, GQAC_USAGE, "the store has neither a folder nor a remote tier");
    if (sequence->given)
        GQAC_FAIL(diag, GQAC_USAGE,
                  "the sequence cannot be stored: the ids of its %lld imported tokens are unknown",
                  (long long)sequence->given);
    if (kv_sequence_finite(sequence->kv) < kv_sequence_length(sequence->kv))
        return GQAC_OK;
    if (store->remote)
        store_remote_save(store, tenant ? tenant : "", sequence);
    return store->files ? save(store, tenant ? tenant : "", sequence, diag) : GQAC_OK;
}
