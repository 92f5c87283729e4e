/* Snapshots: a fork that no step ever extends, and its files.
 *
 * A file is read into memory before it is checked, not mapped: what was checked cannot change
 * afterwards, and a file that shrinks is a failed read. */
#include <gqac/snapshot.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/machine.h"
#include "base/sized.h"
#include "base/str.h"
#include "runtime/saved.h"

struct gqac_snapshot {
    gqac_sequence *sequence; /* frozen */
};

gqac_status snapshot_make(gqac_sequence *sequence, gqac_snapshot **snapshot, gqac_diag *diag) {
    gqac_snapshot *s = gqac_alloc(sizeof *s);
    if (!s) {
        gqac_sequence_free(sequence);
        return gqac_diag_oom(diag, "a snapshot");
    }
    s->sequence = sequence;
    *snapshot = s;
    return GQAC_OK;
}

gqac_status gqac_snapshot_take(const gqac_sequence *sequence, gqac_snapshot **snapshot,
                               gqac_diag *diag) {
    gqac_sequence *frozen = NULL;
    GQAC_TRY(sequence_fork_unwatched(sequence, &frozen, diag));
    return snapshot_make(frozen, snapshot, diag);
}

void gqac_snapshot_free(gqac_snapshot *snapshot) {
    if (!snapshot)
        return;
    gqac_sequence_free(snapshot->sequence);
    gqac_free(snapshot);
}

static gqac_status check_options(const gqac_snapshot *snapshot, const gqac_sequence_options *o,
                                 gqac_diag *diag) {
    const int64_t length = gqac_snapshot_length(snapshot);
    const char *kind = gqac_sequence_kind(snapshot->sequence);
    kv_sequence *named = NULL; /* says which kind a name means */
    if (o->kv)
        GQAC_TRY(kv_sequence_create(gqac_snapshot_program(snapshot)->pool, o->kv, 0, &named, diag));
    const bool same = !named || !strcmp(kv_sequence_kind(named), kind);
    kv_sequence_free(named);
    if (!same)
        GQAC_FAIL(diag, GQAC_USAGE, "a snapshot of kind '%s' cannot continue as '%s'", kind, o->kv);
    GQAC_TRY(sequence_check_options(o, diag));
    if (o->final_length && o->final_length < length)
        GQAC_FAIL(diag, GQAC_OUT_OF_RANGE,
                  "the snapshot has %lld tokens, more than the final length of %lld",
                  (long long)length, (long long)o->final_length);
    if (o->capacity && o->capacity < length)
        GQAC_FAIL(diag, GQAC_CAPACITY,
                  "the %lld tokens of the snapshot do not fit the capacity of "
                  "%lld",
                  (long long)length, (long long)o->capacity);
    return GQAC_OK;
}

gqac_status gqac_snapshot_restore(const gqac_snapshot *snapshot,
                                  const gqac_sequence_options *options, gqac_sequence **sequence,
                                  gqac_diag *diag) {
    gqac_sequence_options own = {0};
    gqac_sequence *s = NULL;
    GQAC_TRY(gqac_sized_take(&own, sizeof own, options, "gqac_sequence_options", diag));
    if (options)
        GQAC_TRY(check_options(snapshot, &own, diag));
    GQAC_TRY(gqac_sequence_fork(snapshot->sequence, &s, diag));
    if (options) {
        kv_sequence_set_capacity(s->kv, own.capacity);
        s->final_length = own.final_length;
    }
    *sequence = s;
    return GQAC_OK;
}

const gqac_program *gqac_snapshot_program(const gqac_snapshot *snapshot) {
    return snapshot->sequence->program;
}

int64_t gqac_snapshot_length(const gqac_snapshot *snapshot) {
    return gqac_sequence_length(snapshot->sequence);
}

int64_t gqac_snapshot_missing(const gqac_snapshot *snapshot) {
    return gqac_sequence_missing(snapshot->sequence);
}

const int64_t *gqac_snapshot_ids(const gqac_snapshot *snapshot, int64_t *first, int64_t *count) {
    return gqac_sequence_ids(snapshot->sequence, first, count);
}

size_t gqac_snapshot_bytes(const gqac_snapshot *snapshot, size_t *shared) {
    return gqac_sequence_bytes(snapshot->sequence, shared);
}

/* ---- files --------------------------------------------------------------- */

gqac_status gqac_snapshot_save(const gqac_snapshot *snapshot, const char *path, gqac_diag *diag) {
    const size_t bytes = gqac_sequence_save_bytes(snapshot->sequence);
    gqac_writer *writer = NULL;
    GQAC_TRY(gqac_writer_open(path, &writer, diag)); /* before the work */
    void *data = gqac_alloc(bytes);
    gqac_status status = data ? gqac_sequence_save(snapshot->sequence, data, bytes, diag)
                              : gqac_diag_oom(diag, "saving a snapshot");
    if (status == GQAC_OK)
        status = gqac_writer_write(writer, data, bytes, diag);
    gqac_free(data);
    if (status == GQAC_OK)
        return gqac_writer_commit(writer, diag);
    gqac_writer_abort(writer);
    return status;
}

typedef struct reader {
    int fd;
    uint64_t bytes;
    saved_header header;
} reader;

static gqac_status read_bytes(const reader *r, size_t at, void *data, size_t n, gqac_diag *diag) {
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(r->fd, (char *)data + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            GQAC_FAIL(diag, GQAC_IO, "cannot read the snapshot: %s", gqac_errno_text(errno));
        if (!got)
            GQAC_FAIL(diag, GQAC_IO, "the file became shorter while it was read");
        done += (size_t)got;
    }
    return GQAC_OK;
}

/* Opens a regular file, without waiting for a FIFO. */
static gqac_status open_reader(const char *path, reader *r, gqac_diag *diag) {
    struct stat st;
    do
        r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (r->fd < 0 && errno == EINTR);
    if (r->fd < 0 || fstat(r->fd, &st) != 0)
        GQAC_FAIL(diag, GQAC_IO, "cannot open the snapshot: %s", gqac_errno_text(errno));
    if (!S_ISREG(st.st_mode))
        GQAC_FAIL(diag, GQAC_IO, "it is not a regular file");
    r->bytes = (uint64_t)st.st_size;
    return GQAC_OK;
}

/* The same, and checks its header. */
static gqac_status open_snapshot(const char *path, reader *r, gqac_diag *diag) {
    unsigned char head[sizeof r->header];
    GQAC_TRY(open_reader(path, r, diag));
    const size_t n = r->bytes < sizeof head ? (size_t)r->bytes : sizeof head;
    GQAC_TRY(read_bytes(r, 0, head, n, diag));
    return saved_check_header(head, n, r->bytes, SAVED_CANONICAL, &r->header, diag);
}

static gqac_status close_reader(const reader *r, const char *path, gqac_status status,
                                gqac_diag *diag) {
    if (r->fd >= 0)
        close(r->fd);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "%s", path);
    return status;
}

/* The first n bytes of the file, which the caller frees. */
static gqac_status read_front(const reader *r, uint64_t n, unsigned char **data, gqac_diag *diag) {
    if (n > (uint64_t)gqac_machine_memory()) /* malloc may promise more than there is */
        return gqac_diag_oom(diag, "a snapshot file");
    *data = gqac_alloc((size_t)n);
    if (!*data)
        return gqac_diag_oom(diag, "a snapshot file");
    GQAC_TRY(read_bytes(r, 0, *data, (size_t)n, diag));
    if (memcmp(*data, &r->header, sizeof r->header) != 0)
        GQAC_FAIL(diag, GQAC_IO, "the file changed while it was read");
    return GQAC_OK;
}

/* Checks the checksum of a section without holding it in memory. */
static gqac_status check_section(const reader *r, saved_section i, gqac_diag *diag) {
    enum { PIECE = 1 << 16 };
    const saved_part *s = &r->header.sections[i];
    unsigned char digest[32], piece[PIECE];
    gqac_sha256 state;
    gqac_sha256_init(&state);
    for (uint64_t at = 0, n; at < s->bytes; at += n) {
        n = s->bytes - at < PIECE ? s->bytes - at : PIECE;
        GQAC_TRY(read_bytes(r, (size_t)(s->offset + at), piece, (size_t)n, diag));
        gqac_sha256_update(&state, piece, (size_t)n);
    }
    gqac_sha256_final(&state, digest);
    return saved_check_digest(digest, &r->header, i, diag);
}

static gqac_status load(const gqac_program *program, const char *path, reader *r,
                        gqac_sequence **sequence, gqac_diag *diag) {
    unsigned char *data = NULL;
    GQAC_TRY(open_snapshot(path, r, diag));
    GQAC_TRY(saved_check_program(program, &r->header, diag)); /* before memory is taken for it */
    gqac_status status = read_front(r, r->bytes, &data, diag);
    if (status == GQAC_OK)
        status = saved_load(program, &r->header, data, sequence, diag);
    gqac_free(data);
    return status;
}

gqac_status gqac_snapshot_load(const gqac_program *program, const char *path,
                               gqac_snapshot **snapshot, gqac_diag *diag) {
    reader r = {.fd = -1};
    gqac_sequence *sequence = NULL;
    GQAC_TRY(sequence_check_program(program, diag));
    GQAC_TRY(close_reader(&r, path, load(program, path, &r, &sequence, diag), diag));
    return snapshot_make(sequence, snapshot, diag);
}

/* A gqac_snapshot_file, and what its pointers lead to. */
typedef struct description {
    gqac_snapshot_file file; /* first: it is freed as this */
    saved_header header;
    char model[65];
    unsigned char *data;
} description;

static void describe(description *d) {
    const saved_header *h = &d->header;
    gqac_sha256_hex(h->program, d->model);
    d->file = (gqac_snapshot_file){.size = sizeof d->file,
                                   .bytes = h->bytes,
                                   .model = d->model,
                                   .profile = h->profile,
                                   .kind = h->kind,
                                   .length = h->tokens + h->missing,
                                   .first = h->given,
                                   .n_ids = h->tokens + h->missing - h->given,
                                   .states = h->states,
                                   .tables = h->guards};
    if (d->file.n_ids)
        d->file.ids = (const int64_t *)(d->data + h->sections[SAVED_IDS].offset);
    d->file.state_positions = (const int64_t *)(d->data + h->sections[SAVED_POSITIONS].offset);
}

static gqac_status read_description(const char *path, bool whole, reader *r, description *d,
                                    gqac_diag *diag) {
    GQAC_TRY(open_snapshot(path, r, diag));
    d->header = r->header;
    GQAC_TRY(read_front(r, r->header.sections[SAVED_ROWS].offset, &d->data, diag));
    for (int i = 0; i < SAVED_ROWS; i++)
        GQAC_TRY(saved_check_section(d->data, &d->header, (saved_section)i, diag));
    for (int i = SAVED_ROWS; whole && i < SAVED_SECTIONS; i++)
        GQAC_TRY(check_section(r, (saved_section)i, diag));
    describe(d);
    return GQAC_OK;
}

gqac_status gqac_snapshot_file_open(const char *path, bool whole, gqac_snapshot_file **file,
                                    gqac_diag *diag) {
    reader r = {.fd = -1};
    description *d = gqac_calloc(1, sizeof *d);
    if (!d)
        return gqac_diag_oom(diag, "a snapshot file");
    const gqac_status status =
        close_reader(&r, path, read_description(path, whole, &r, d, diag), diag);
    if (status != GQAC_OK) {
        gqac_snapshot_file_free(&d->file);
        return status;
    }
    *file = &d->file;
    return GQAC_OK;
}

static gqac_status read_beginning(const char *path, reader *r, bool *is, gqac_diag *diag) {
    char first[16];
    GQAC_TRY(open_reader(path, r, diag));
    const size_t n = r->bytes < sizeof first ? (size_t)r->bytes : sizeof first;
    GQAC_TRY(read_bytes(r, 0, first, n, diag));
    *is = saved_begins(first, n);
    return GQAC_OK;
}

gqac_status gqac_snapshot_file_is(const char *path, bool *is, gqac_diag *diag) {
    reader r = {.fd = -1};
    return close_reader(&r, path, read_beginning(path, &r, is, diag), diag);
}

void gqac_snapshot_file_free(gqac_snapshot_file *file) {
    description *d = (description *)(void *)file;
    if (d)
        gqac_free(d->data);
    gqac_free(d);
}
