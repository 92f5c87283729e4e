/* Mapped files and writers that publish by rename. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

/* ---- maps ------------------------------------------------------------------------------------- */

gqac_status gqac_map_fd(int fd, const char *name, gqac_map *map, gqac_diag *diag) {
    struct stat info;
    *map = (gqac_map){0};
    if (fstat(fd, &info) != 0)
        GQAC_FAIL(diag, GQAC_IO, "cannot look at '%s': %s", name, strerror(errno));
    if (!S_ISREG(info.st_mode))
        GQAC_FAIL(diag, GQAC_IO, "'%s' is not a regular file", name);
    if (info.st_size == 0)
        return GQAC_OK;
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        GQAC_FAIL(diag, GQAC_IO, "cannot map '%s': %s", name, strerror(errno));
    *map = (gqac_map){data, (size_t)info.st_size};
    return GQAC_OK;
}

gqac_status gqac_map_file(const char *path, gqac_map *map, gqac_diag *diag) {
    /* O_NONBLOCK: opening a FIFO must not wait for a writer */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *map = (gqac_map){0};
    if (fd < 0)
        GQAC_FAIL(diag, GQAC_IO, "cannot open '%s': %s", path, strerror(errno));
    gqac_status status = gqac_map_fd(fd, path, map, diag);
    close(fd);
    return status;
}

void gqac_unmap(gqac_map *map) {
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->size);
    *map = (gqac_map){0};
}

void gqac_map_release(const gqac_map *map, size_t offset, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t begin = (offset + page - 1) / page * page;
    const size_t end = (offset + bytes) / page * page;
    if (map->data && begin < end)
        (void)madvise((void *)(uintptr_t)(map->data + begin), end - begin, MADV_DONTNEED);
}

/* ---- writers ---------------------------------------------------------------------------------- */

struct gqac_writer {
    int fd, folder;
    uint64_t offset;
    char *path, *temporary; /* temporary: within the folder */
};

static void free_writer(gqac_writer *w) {
    if (w->fd >= 0)
        close(w->fd);
    if (w->folder >= 0)
        close(w->folder);
    gqac_free(w->path);
    gqac_free(w->temporary);
    gqac_free(w);
}

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int open_folder(const char *path) {
    char folder[4096];
    const size_t n = (size_t)(file_name(path) - path);
    if (n >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(folder, path, n);
    folder[n] = 0;
    return open(n ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static gqac_status open_temporary(gqac_writer *w, gqac_diag *diag) {
    const size_t size = strlen(w->path) + 48;
    w->temporary = gqac_alloc(size);
    if (!w->temporary)
        return gqac_diag_oom(diag, "a writer");
    for (int i = 0; i < 100 && w->fd < 0; i++) {
        snprintf(w->temporary, size, ".%s.%ld.%d.tmp", file_name(w->path), (long)getpid(), i);
        w->fd = openat(w->folder, w->temporary,
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (w->fd < 0 && errno != EEXIST)
            break;
    }
    if (w->fd < 0)
        GQAC_FAIL(diag, GQAC_IO, "cannot create a file beside '%s': %s", w->path, strerror(errno));
    return GQAC_OK;
}

gqac_status gqac_writer_open(const char *path, gqac_writer **writer, gqac_diag *diag) {
    gqac_writer *w = gqac_calloc(1, sizeof *w);
    if (!w)
        return gqac_diag_oom(diag, "a writer");
    w->fd = w->folder = -1;
    w->path = gqac_alloc(strlen(path) + 1);
    gqac_status status = w->path ? GQAC_OK : gqac_diag_oom(diag, "a writer");
    if (status == GQAC_OK) {
        strcpy(w->path, path);
        w->folder = open_folder(path);
        if (w->folder < 0 || !*file_name(path))
            status = gqac_diag_set(diag, GQAC_IO, "cannot write '%s': %s", path,
                                   w->folder < 0 ? strerror(errno) : "it names no file");
    }
    if (status == GQAC_OK)
        status = open_temporary(w, diag);
    if (status != GQAC_OK) {
        free_writer(w);
        return status;
    }
    *writer = w;
    return GQAC_OK;
}

gqac_status gqac_writer_write(gqac_writer *w, const void *data, size_t bytes, gqac_diag *diag) {
    const char *at = data;
    for (size_t left = bytes; left > 0;) {
        const ssize_t n = write(w->fd, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            GQAC_FAIL(diag, GQAC_IO, "cannot write '%s': %s", w->path, strerror(errno));
        at += n;
        left -= (size_t)n;
    }
    w->offset += bytes;
    return GQAC_OK;
}

uint64_t gqac_writer_offset(const gqac_writer *w) {
    return w->offset;
}

/* The mode a plain open(2) with 0666 would have given. */
static void set_mode(int fd) {
    const mode_t mask = umask(0);
    umask(mask);
    (void)fchmod(fd, 0666 & ~mask);
}

gqac_status gqac_writer_commit(gqac_writer *w, gqac_diag *diag) {
    set_mode(w->fd);
    bool ok = fsync(w->fd) == 0;
    ok = close(w->fd) == 0 && ok;
    w->fd = -1;
    ok = ok && renameat(w->folder, w->temporary, w->folder, file_name(w->path)) == 0;
    if (!ok) {
        gqac_diag_set(diag, GQAC_IO, "cannot finish '%s': %s", w->path, strerror(errno));
        gqac_writer_abort(w);
        return GQAC_IO;
    }
    (void)fsync(w->folder); /* the file is whole either way; some file systems refuse this */
    free_writer(w);
    return GQAC_OK;
}

void gqac_writer_abort(gqac_writer *w) {
    if (!w)
        return;
    (void)unlinkat(w->folder, w->temporary, 0);
    free_writer(w);
}

bool gqac_path_is_dir(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool gqac_path_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}
