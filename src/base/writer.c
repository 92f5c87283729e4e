/* Files that appear whole or not at all.
 *
 * Bytes are written to a temporary file in the target's folder. If the file system supports it
 * (O_TMPFILE), the file has no name, so that other users cannot open it, and a process that is
 * killed leaves nothing behind, unless a complete file was about to replace an older one. It is
 * created with its final mode, because the sandbox refuses changes of modes. Commit flushes the
 * buffer, syncs, links or renames the file to the target and syncs the folder. After a failed sync
 * the kernel may have dropped the pages, so nothing is retried: the temporary file is removed and
 * the failure reported. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

enum { BUFFER = 64 * 1024, ATTEMPTS = 100, NAME = 256 };

struct gqac_writer {
    int fd, folder;
    bool failed;
    char *path;           /* as the caller gave it, for messages */
    const char *base;     /* the last component of `path` */
    char temporary[NAME]; /* name of the temporary file in the folder; "": it has none */
    uint64_t offset;
    size_t buffered;
    unsigned char buffer[BUFFER];
};

static gqac_status fail(const gqac_writer *w, int error, gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_IO, "cannot write '%s': %s", w->path, gqac_errno_text(error));
    gqac_diag_where(diag, "%s", w->path);
    if (error == ENOSPC || error == EDQUOT)
        gqac_diag_hint(diag, "free some space on that file system");
    return GQAC_IO;
}

static void discard(gqac_writer *w) {
    if (w->fd >= 0)
        close(w->fd);
    if (w->temporary[0])
        unlinkat(w->folder, w->temporary, 0);
    if (w->folder >= 0)
        close(w->folder);
    gqac_free(w->path);
    gqac_free(w);
}

static gqac_status refuse(const gqac_writer *w, gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_IO, "cannot write '%s': it is not a regular file", w->path);
    gqac_diag_where(diag, "%s", w->path);
    gqac_diag_rule(diag, "a file is replaced as a whole, which needs a regular file");
    return GQAC_IO;
}

/* Refuses paths that rename must not replace: /dev/null, a FIFO, a folder, and /dev/stdout, a link
 * that may lead to a regular file. */
static gqac_status check_target(const gqac_writer *w, gqac_diag *diag) {
    struct stat st;
    char to[7] = "";
    if (w->base[0] == '\0')
        return fail(w, EISDIR, diag);
    if (readlinkat(w->folder, w->base, to, sizeof to - 1) > 0 && !strcmp(to, "/proc/"))
        return refuse(w, diag);
    if (fstatat(w->folder, w->base, &st, 0) != 0)
        return errno == ENOENT ? GQAC_OK : fail(w, errno, diag);
    return S_ISREG(st.st_mode) ? GQAC_OK : refuse(w, diag);
}

static gqac_status open_folder(gqac_writer *w, gqac_diag *diag) {
    char *slash = strrchr(w->path, '/');
    w->base = slash ? slash + 1 : w->path;
    const char *folder = !slash ? "." : slash == w->path ? "/" : w->path;
    if (slash && slash != w->path)
        *slash = '\0';
    w->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = errno;
    if (slash)
        *slash = '/';
    return w->folder < 0 ? fail(w, error, diag) : GQAC_OK;
}

/* Makes a name for the temporary file, in attempt i of ATTEMPTS. */
static void name_temporary(gqac_writer *w, int i) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const unsigned seed = (unsigned)now.tv_nsec * 2654435761u + (unsigned)getpid();
    snprintf(w->temporary, sizeof w->temporary, ".%.200s.%08x.tmp", w->base,
             seed + (unsigned)i * 40503u);
}

/* The path by which a file without a name is linked. */
static void descriptor_path(const gqac_writer *w, char path[64]) {
    snprintf(path, 64, "/proc/self/fd/%d", w->fd);
}

static bool open_nameless(gqac_writer *w) {
    char path[64];
    w->fd = openat(w->folder, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    if (w->fd < 0)
        return false;
    descriptor_path(w, path);
    if (access(path, F_OK) == 0)
        return true;
    close(w->fd); /* without /proc, a file without a name cannot be linked */
    w->fd = -1;
    return false;
}

static gqac_status open_named(gqac_writer *w, gqac_diag *diag) {
    for (int i = 0; i < ATTEMPTS && w->fd < 0; i++) {
        name_temporary(w, i);
        w->fd = openat(w->folder, w->temporary,
                       O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (w->fd < 0 && errno != EEXIST && errno != EINTR)
            break;
    }
    if (w->fd >= 0)
        return GQAC_OK;
    const int error = errno;
    w->temporary[0] = '\0'; /* the file is another program's */
    return fail(w, error, diag);
}

gqac_status gqac_writer_open(const char *path, gqac_writer **writer, gqac_diag *diag) {
    size_t length = strlen(path);
    gqac_writer *w = gqac_alloc(sizeof *w);
    char *copy = w ? gqac_alloc(length + 1) : NULL;
    if (!copy) {
        gqac_free(w);
        return gqac_diag_oom(diag, "writing a file");
    }
    memcpy(copy, path, length + 1);
    w->fd = w->folder = -1;
    w->failed = false;
    w->path = copy;
    w->base = copy;
    w->temporary[0] = '\0';
    w->offset = 0;
    w->buffered = 0;
    gqac_status status = open_folder(w, diag);
    if (status == GQAC_OK)
        status = check_target(w, diag);
    if (status == GQAC_OK)
        status = open_nameless(w) ? GQAC_OK : open_named(w, diag);
    if (status != GQAC_OK) {
        discard(w);
        return status;
    }
    *writer = w;
    return GQAC_OK;
}

static gqac_status put(gqac_writer *w, const unsigned char *data, size_t bytes, gqac_diag *diag) {
    while (bytes) {
        ssize_t n = write(w->fd, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            w->failed = true;
            return fail(w, n < 0 ? errno : EIO, diag);
        }
        data += n;
        bytes -= (size_t)n;
    }
    return GQAC_OK;
}

static gqac_status flush(gqac_writer *w, gqac_diag *diag) {
    size_t bytes = w->buffered;
    w->buffered = 0;
    return put(w, w->buffer, bytes, diag);
}

gqac_status gqac_writer_write(gqac_writer *writer, const void *data, size_t bytes,
                              gqac_diag *diag) {
    gqac_writer *w = writer;
    if (w->failed)
        return fail(w, EIO, diag);
    if (bytes > BUFFER - w->buffered)
        GQAC_TRY(flush(w, diag));
    if (bytes >= BUFFER) {
        GQAC_TRY(put(w, data, bytes, diag));
    } else if (bytes) {
        memcpy(w->buffer + w->buffered, data, bytes);
        w->buffered += bytes;
    }
    w->offset += bytes;
    return GQAC_OK;
}

uint64_t gqac_writer_offset(const gqac_writer *writer) {
    return writer->offset;
}

/* Links a file without a name to the target's name or, if that exists, to a temporary name, which
 * is to be renamed. */
static gqac_status link_nameless(gqac_writer *w, bool *published, gqac_diag *diag) {
    char path[64];
    descriptor_path(w, path);
    *published = linkat(AT_FDCWD, path, w->folder, w->base, AT_SYMLINK_FOLLOW) == 0;
    for (int i = 0; i < ATTEMPTS && !*published && errno == EEXIST; i++) {
        name_temporary(w, i);
        if (linkat(AT_FDCWD, path, w->folder, w->temporary, AT_SYMLINK_FOLLOW) == 0)
            return GQAC_OK;
        const int error = errno;
        w->temporary[0] = '\0';
        errno = error;
    }
    return *published ? GQAC_OK : fail(w, errno, diag);
}

static gqac_status finish(gqac_writer *w, gqac_diag *diag) {
    bool published = false;
    if (w->failed)
        return fail(w, EIO, diag);
    GQAC_TRY(flush(w, diag));
    if (fsync(w->fd) != 0)
        return fail(w, errno, diag);
    if (!w->temporary[0])
        GQAC_TRY(link_nameless(w, &published, diag));
    const int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0)
        return fail(w, errno, diag);
    if (!published && renameat(w->folder, w->temporary, w->folder, w->base) != 0)
        return fail(w, errno, diag);
    w->temporary[0] = '\0';
    /* some file systems cannot sync a folder and say so with EINVAL */
    if (fsync(w->folder) != 0 && errno != EINVAL)
        return fail(w, errno, diag);
    return GQAC_OK;
}

gqac_status gqac_writer_commit(gqac_writer *writer, gqac_diag *diag) {
    gqac_status status = finish(writer, diag);
    discard(writer);
    return status;
}

void gqac_writer_abort(gqac_writer *writer) {
    if (writer)
        discard(writer);
}
