/* The functions for -Wl,--wrap; see support_calls.h. */
#include "support_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_int chosen = -1, chosen_error;
static atomic_size_t calls, fail_at;
static atomic_bool persistent, one_byte;
static _Thread_local bool exempt;

const char *fault_name(fault_kind kind) {
    static const char *const names[FAULT_KINDS] = {"open",   "status",  "read",  "map",    "write",
                                                   "fsync",  "name",    "close", "thread", "socket",
                                                   "accept", "receive", "send",  "watch"};
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

void fault_exempt(bool set) {
    exempt = set;
}

void fault_short(bool set) {
    atomic_store(&one_byte, set);
}

static bool fails(fault_kind kind) {
    if (exempt || atomic_load(&chosen) != (int)kind)
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
WRAP(ssize_t, pread, -1, FAULT_READ, (int fd, void *data, size_t n, off_t at),
     (fd, data, clip(n), at))
WRAP(ssize_t, __pread_chk, -1, FAULT_READ, (int fd, void *data, size_t n, off_t at, size_t most),
     (fd, data, clip(n), at, most))
WRAP(struct dirent *, readdir, NULL, FAULT_READ, (DIR * dir), (dir))
WRAP(void *, mmap, MAP_FAILED, FAULT_MAP,
     (void *address, size_t n, int protection, int flags, int fd, off_t at),
     (address, n, protection, flags, fd, at))
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

/* The transfer of an eventfd, which has no type of file, can be interrupted, but does not fail. */
static bool fails_file(fault_kind kind, int fd) {
    struct stat st;
    return (atomic_load(&chosen_error) == EINTR || __real_fstat(fd, &st) != 0 ||
            (st.st_mode & S_IFMT) != 0) &&
           fails(kind);
}

ssize_t __real_read(int fd, void *data, size_t n);
ssize_t __wrap_read(int fd, void *data, size_t n);
ssize_t __wrap_read(int fd, void *data, size_t n) {
    return fails_file(FAULT_READ, fd) ? -1 : __real_read(fd, data, clip(n));
}

ssize_t __real___read_chk(int fd, void *data, size_t n, size_t most);
ssize_t __wrap___read_chk(int fd, void *data, size_t n, size_t most);
ssize_t __wrap___read_chk(int fd, void *data, size_t n, size_t most) {
    return fails_file(FAULT_READ, fd) ? -1 : __real___read_chk(fd, data, clip(n), most);
}

ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n) {
    return fails_file(FAULT_WRITE, fd) ? -1 : __real_write(fd, data, clip(n));
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

/* ---- calls of shared libraries ------------------------------------------ */

/* A function of the C library that this program has instead, for shared libraries too. */
#define REPLACE_IF(type, name, failed, parameters, arguments)                                      \
    __attribute__((visibility("default"))) type name parameters {                                  \
        static type(*_Atomic real) parameters;                                                     \
        if (!real)                                                                                 \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                    \
        return failed ? (type)-1 : real arguments;                                                 \
    }

#define REPLACE(type, name, kind, parameters, arguments)                                           \
    REPLACE_IF(type, name, fails(kind), parameters, arguments)

REPLACE(int, socket, FAULT_SOCKET, (int domain, int kind, int protocol), (domain, kind, protocol))
REPLACE(int, bind, FAULT_SOCKET, (int fd, const struct sockaddr *address, socklen_t n),
        (fd, address, n))
REPLACE(int, listen, FAULT_SOCKET, (int fd, int n), (fd, n))
REPLACE(int, setsockopt, FAULT_SOCKET,
        (int fd, int level, int name, const void *value, socklen_t n), (fd, level, name, value, n))
REPLACE(int, eventfd, FAULT_SOCKET, (unsigned int initial, int flags), (initial, flags))
REPLACE(int, epoll_create1, FAULT_SOCKET, (int flags), (flags))
REPLACE(int, timerfd_create, FAULT_SOCKET, (clockid_t clock, int flags), (clock, flags))
REPLACE(int, accept4, FAULT_ACCEPT, (int fd, struct sockaddr *address, socklen_t *n, int flags),
        (fd, address, n, flags))
REPLACE(ssize_t, readv, FAULT_RECEIVE, (int fd, const struct iovec *data, int n), (fd, data, n))
REPLACE(ssize_t, writev, FAULT_SEND, (int fd, const struct iovec *data, int n), (fd, data, n))

/* Only adding a descriptor needs memory. */
static bool fails_watch(int operation) {
    return operation == EPOLL_CTL_ADD && fails(FAULT_WATCH);
}

REPLACE_IF(int, epoll_ctl, fails_watch(operation),
           (int set, int operation, int fd, struct epoll_event *event), (set, operation, fd, event))

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
