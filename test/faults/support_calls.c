/* The functions for -Wl,--wrap; see support_calls.h. */
#include "support_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int chosen = -1, chosen_error;
static atomic_size_t calls, fail_at;
static atomic_bool persistent, one_byte;

const char *fault_name(fault_kind kind) {
    static const char *const names[FAULT_KINDS] = {"open",  "status", "read",  "map",   "write",
                                                   "fsync", "name",   "close", "thread"};
    return names[kind];
}

void fault_set(fault_kind kind, size_t n, int error, bool persist) {
    atomic_store(&calls, 0);
    atomic_store(&fail_at, n);
    atomic_store(&chosen_error, error);
    atomic_store(&persistent, persist);
    atomic_store(&chosen, (int)kind);
}

size_t fault_end(void) {
    atomic_store(&chosen, -1);
    return atomic_load(&calls);
}

void fault_short(bool set) {
    atomic_store(&one_byte, set);
}

static bool fails(fault_kind kind) {
    if (atomic_load(&chosen) != (int)kind)
        return false;
    const size_t call = atomic_fetch_add(&calls, 1) + 1, n = atomic_load(&fail_at);
    if (!n || !(call == n || (call > n && atomic_load(&persistent))))
        return false;
    errno = atomic_load(&chosen_error);
    return true;
}

/* A folder is opened without waiting, so no signal interrupts it. */
static bool fails_folder(void) {
    return atomic_load(&chosen_error) != EINTR && fails(FAULT_OPEN);
}

static size_t clip(size_t bytes) {
    return bytes > 1 && atomic_load(&one_byte) ? 1 : bytes;
}

/* A function of the library, and the function that its callers call instead. */
#define WRAP(type, name, failure, kind, parameters, arguments)                                     \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        return fails(kind) ? (failure) : __real_##name arguments;                                  \
    }

WRAP(FILE *, fopen, NULL, FAULT_OPEN, (const char *path, const char *mode), (path, mode))
WRAP(int, stat, -1, FAULT_STATUS, (const char *path, struct stat *st), (path, st))
WRAP(int, lstat, -1, FAULT_STATUS, (const char *path, struct stat *st), (path, st))
WRAP(int, fstat, -1, FAULT_STATUS, (int fd, struct stat *st), (fd, st))
WRAP(int, fstatat, -1, FAULT_STATUS, (int fd, const char *path, struct stat *st, int flags),
     (fd, path, st, flags))
WRAP(int, fchmod, -1, FAULT_STATUS, (int fd, mode_t mode), (fd, mode))
WRAP(ssize_t, read, -1, FAULT_READ, (int fd, void *data, size_t n), (fd, data, clip(n)))
WRAP(ssize_t, __read_chk, -1, FAULT_READ, (int fd, void *data, size_t n, size_t most),
     (fd, data, clip(n), most))
WRAP(ssize_t, pread, -1, FAULT_READ, (int fd, void *data, size_t n, off_t at),
     (fd, data, clip(n), at))
WRAP(ssize_t, __pread_chk, -1, FAULT_READ, (int fd, void *data, size_t n, off_t at, size_t most),
     (fd, data, clip(n), at, most))
WRAP(struct dirent *, readdir, NULL, FAULT_READ, (DIR * dir), (dir))
WRAP(void *, mmap, MAP_FAILED, FAULT_MAP,
     (void *address, size_t n, int protection, int flags, int fd, off_t at),
     (address, n, protection, flags, fd, at))
WRAP(ssize_t, write, -1, FAULT_WRITE, (int fd, const void *data, size_t n), (fd, data, clip(n)))
WRAP(int, fsync, -1, FAULT_SYNC, (int fd), (fd))
WRAP(int, linkat, -1, FAULT_NAME, (int from, const char *a, int to, const char *b, int flags),
     (from, a, to, b, flags))
WRAP(int, renameat, -1, FAULT_NAME, (int from, const char *a, int to, const char *b),
     (from, a, to, b))
WRAP(int, unlinkat, -1, FAULT_NAME, (int fd, const char *path, int flags), (fd, path, flags))
WRAP(int, unlink, -1, FAULT_NAME, (const char *path), (path))
WRAP(int, utimensat, -1, FAULT_NAME,
     (int fd, const char *path, const struct timespec times[2], int flags),
     (fd, path, times, flags))

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path) {
    return fails_folder() ? NULL : __real_opendir(path);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd) {
    const bool failed = fails(FAULT_CLOSE);
    const int error = errno, result = __real_close(fd);
    if (failed)
        errno = error;
    return failed ? -1 : result;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg) {
    return fails(FAULT_THREAD) ? errno : __real_pthread_create(thread, attributes, start, arg);
}

/* ---- calls with a variable number of arguments --------------------------- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    const bool failed = flags & O_DIRECTORY ? fails_folder() : fails(FAULT_OPEN);
    return failed ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(FAULT_OPEN) ? -1 : __real_openat(folder, path, flags, mode);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_openat2 && fails(FAULT_OPEN))
        return -1;
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
