/* System calls of the library that fail on demand. The linker redirects the calls of this program
 * to the functions of support_calls.c (test/CMakeLists.txt lists them). Allocations fail by another
 * function, gqac_alloc_fail_at. */
#ifndef GQAC_TEST_FAULTS_SUPPORT_CALLS_H
#define GQAC_TEST_FAULTS_SUPPORT_CALLS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum fault_kind {
    FAULT_OPEN,   /* open, openat, openat2, fopen, opendir */
    FAULT_STATUS, /* stat, fstat, lstat, fstatat, fchmod */
    FAULT_READ,   /* read, pread, readdir */
    FAULT_MAP,    /* mmap */
    FAULT_WRITE,  /* write */
    FAULT_SYNC,   /* fsync */
    FAULT_NAME,   /* linkat, renameat, unlinkat, unlink, utimensat */
    FAULT_CLOSE,  /* close; the descriptor is closed nevertheless */
    FAULT_THREAD, /* pthread_create */
    /* of libevent as well, which is a shared library */
    FAULT_SOCKET,  /* socket, bind, listen, setsockopt, eventfd, epoll_create1, timerfd_create */
    FAULT_ACCEPT,  /* accept4 */
    FAULT_RECEIVE, /* readv */
    FAULT_SEND,    /* writev */
    FAULT_WATCH,   /* epoll_ctl, when it adds a descriptor */
    FAULT_KINDS
} fault_kind;
const char *fault_name(fault_kind kind);

/* From now on calls of this kind are counted. Call number n (from 1; 0: none) fails with `error`,
 * and, with `persist`, so does every later one. */
void fault_set(fault_kind kind, size_t n, int error, bool persist);
/* Stops this, and returns how many calls of the kind there were. */
size_t fault_end(void);
/* Calls of this thread are not counted and do not fail. */
void fault_exempt(bool set);
/* While set, no read or write transfers more than one byte. */
void fault_short(bool set);

#endif
