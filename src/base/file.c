/* Read-only maps of regular files, and where the files of a model may lie.
 *
 * A path comes from a user or a model, so it may name a FIFO or a device: it is opened without
 * blocking, and its kind is checked before anything is read. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kind of a file that is not regular, for messages. */
static const char *kind(mode_t mode) {
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

gqac_status gqac_fail_open(const char *path, int error, gqac_diag *diag) {
    char folder[PATH_MAX];
    gqac_diag_set(diag, GQAC_IO, "cannot open '%s': %s", path, gqac_errno_text(error));
    if (*path != '/' && getcwd(folder, sizeof folder)) {
        gqac_diag_where(diag, "%s/%s", folder, path);
        gqac_diag_rule(diag, "a relative path starts at the working directory");
    }
    if (error == ENOENT || error == ENOTDIR)
        gqac_diag_hint(diag, "check the spelling of the path");
    return GQAC_IO;
}

gqac_status gqac_map_file(const char *path, gqac_map *map, gqac_diag *diag) {
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return gqac_fail_open(path, errno, diag);
    gqac_status status = gqac_map_fd(fd, path, map, diag);
    close(fd);
    return status;
}

gqac_status gqac_map_fd(int fd, const char *name, gqac_map *map, gqac_diag *diag) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        GQAC_FAIL(diag, GQAC_IO, "cannot read '%s': %s", name, gqac_errno_text(errno));
    if (!S_ISREG(st.st_mode)) {
        gqac_diag_set(diag, GQAC_IO, "'%s' is %s", name, kind(st.st_mode));
        gqac_diag_rule(diag, "only regular files are read");
        return GQAC_IO;
    }
    if ((uintmax_t)st.st_size > PTRDIFF_MAX)
        GQAC_FAIL(diag, GQAC_IO, "'%s' is too large to map", name);
    size_t size = (size_t)st.st_size;
    if (size == 0) {
        *map = (gqac_map){0};
        return GQAC_OK;
    }
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        GQAC_FAIL(diag, GQAC_IO, "cannot map '%s': %s", name, gqac_errno_text(errno));
    *map = (gqac_map){.data = data, .size = size};
    return GQAC_OK;
}

void gqac_unmap(gqac_map *map) {
    if (map->data && !map->borrowed)
        munmap((void *)(uintptr_t)map->data, map->size);
    *map = (gqac_map){0};
}

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

bool gqac_map_whole(const gqac_map *map) {
    if (!map->data || map->borrowed)
        return true;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), last = (map->size - 1) / page * page;
    const int error = errno;
    const bool whole =
        madvise((void *)(uintptr_t)(map->data + last), page, MADV_POPULATE_READ) == 0 ||
        errno != EFAULT;
    errno = error;
    return whole;
}

void gqac_map_release(const gqac_map *map, size_t offset, size_t bytes) {
    if (!map->data || map->borrowed || offset >= map->size)
        return;
    if (bytes > map->size - offset)
        bytes = map->size - offset;
    /* whole pages only; the last page of the file counts as whole */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t end = offset + bytes;
    size_t first = offset + (page - offset % page) % page;
    size_t last = end == map->size ? end : end - end % page;
    if (first < last)
        madvise((void *)(uintptr_t)(map->data + first), last - first, MADV_DONTNEED);
}

bool gqac_path_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool gqac_path_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

/* ---- where the files of a model may lie ---------------------------------- */

int gqac_open_beneath(int folder, const char *path) {
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = -1;
    /* EAGAIN: something was renamed meanwhile. After 100 tries it is an error */
    for (int tries = 0; tries < 100; tries++) {
        fd = syscall(SYS_openat2, folder, path, &how, sizeof how);
        if (fd >= 0 || (errno != EINTR && errno != EAGAIN))
            break;
    }
    return (int)fd;
}

bool gqac_hub_cache(const char *folder, char root[PATH_MAX], char below[PATH_MAX]) {
    static const char snapshots[] = "/snapshots/";
    char own[PATH_MAX], blobs[PATH_MAX + 8];
    if (!realpath(folder, own))
        return false;
    for (char *at = strstr(own, snapshots); at; at = strstr(at + 1, snapshots)) {
        snprintf(root, PATH_MAX, "%.*s", (int)(at - own), own);
        snprintf(blobs, sizeof blobs, "%s/blobs", root);
        if (gqac_path_is_dir(blobs))
            return snprintf(below, PATH_MAX, "%s/", at + 1) < PATH_MAX;
    }
    return false;
}
