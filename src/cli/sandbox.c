/* See sandbox.h. Raw system calls: glibc has no functions for Landlock, and a filter of some sixty
 * numbers needs no library. */
#include "cli/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- files --------------------------------------------------------------- */

/* Constants that the headers of Linux 5.13 lack. */
enum {
    VERSION_NEEDED = 3, /* 3, of Linux 6.2, is the first that refuses truncation */
    VERSION_NETWORK = 4,
    VERSION_SCOPES = 6,
};
static const uint64_t access_truncate = 1u << 14;

typedef struct ruleset {
    uint64_t files, network, scopes;
} ruleset;

/* Those of the rights that apply to a file other than a folder. */
static uint64_t of_files(uint64_t rights) {
    return rights & (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                     LANDLOCK_ACCESS_FS_EXECUTE | access_truncate);
}

/* Returns NULL, or what went wrong. A path that does not exist, or that the user may not open
 * anyway, needs no rule. */
static const char *allow(int rules, const sandbox_path *path) {
    const uint64_t reading = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    const uint64_t writing = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                             LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                             LANDLOCK_ACCESS_FS_REMOVE_DIR | access_truncate;
    struct stat info;
    const int fd = open(path->path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? NULL
                                                                      : "a path cannot be opened";
    struct landlock_path_beneath_attr rule = {
        .allowed_access = path->written ? reading | writing : reading, .parent_fd = fd};
    bool added = fstat(fd, &info) == 0;
    if (added && !S_ISDIR(info.st_mode))
        rule.allowed_access = of_files(rule.allowed_access);
    added =
        added && syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
    close(fd);
    return added ? NULL : "the kernel refused a Landlock rule";
}

static const char *confine_files(const sandbox_path *paths, int n) {
    const long version =
        syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 0)
        return "the kernel has no Landlock, or it is disabled";
    if (version < VERSION_NEEDED)
        return "the kernel's Landlock is older than version 3";
    /* every right of version 3, TCP, signals and abstract sockets: what no rule allows is
     * refused */
    const ruleset all = {.files = 2 * access_truncate - 1, .network = 3, .scopes = 3};
    const size_t size = version >= VERSION_SCOPES    ? sizeof all
                        : version >= VERSION_NETWORK ? offsetof(ruleset, scopes)
                                                     : offsetof(ruleset, network);
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0);
    if (rules < 0)
        return "the kernel refused the Landlock rules";
    const char *why = NULL;
    for (int i = 0; i < n && !why; i++)
        why = allow(rules, &paths[i]);
    if (!why && syscall(SYS_landlock_restrict_self, rules, 0) != 0)
        why = "the kernel refused to enter Landlock";
    close(rules);
    return why;
}

/* ---- system calls -------------------------------------------------------- */

#if defined(__x86_64__)
#define SANDBOX_MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define SANDBOX_MACHINE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define SANDBOX_MACHINE AUDIT_ARCH_RISCV64
#endif

#ifdef SANDBOX_MACHINE
/* Calls that headers of Debian 12 do not have; the same number on every machine. */
enum { FCHMODAT2 = 452, SETXATTRAT = 463, REMOVEXATTRAT = 466, FILE_SETATTR = 469 };

/* clang-format off */
static const int refused[] = {
    /* other programs and processes; raise is tgkill, which is checked below */
    SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
    SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_kill, SYS_tkill, SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    /* a network; accept needs a socket that listens */
    SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen,
    /* changes of files that Landlock permits */
    SYS_fchmod, SYS_fchmodat, FCHMODAT2, SYS_fchown, SYS_fchownat, SYS_setxattr, SYS_lsetxattr,
    SYS_fsetxattr, SETXATTRAT, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, REMOVEXATTRAT,
    FILE_SETATTR,
    /* io_uring, whose calls no filter sees; parts of the kernel that reading a model does not
     * need */
    SYS_io_uring_setup, SYS_unshare, SYS_setns, SYS_chroot, SYS_bpf, SYS_perf_event_open,
    SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_shmget, SYS_msgget, SYS_semget,
    /* what root may do to the machine */
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fspick,
    SYS_fanotify_init, SYS_sethostname, SYS_setdomainname, SYS_setpriority, SYS_settimeofday,
    SYS_clock_settime, SYS_reboot, SYS_swapon, SYS_init_module, SYS_finit_module, SYS_kexec_load,
#ifdef SYS_fork /* older machines have these forms too */
    SYS_fork, SYS_vfork, SYS_chmod, SYS_chown, SYS_lchown,
#endif
};
/* clang-format on */

enum {
    N_REFUSED = sizeof refused / sizeof *refused,
    X32 = 0x40000000, /* numbers of the x32 interface begin here */
    CHECKS = 24,      /* instructions besides two for each number */
};

typedef struct program {
    struct sock_filter code[2 * N_REFUSED + CHECKS];
    unsigned short n;
} program;

static void put(program *p, unsigned code, unsigned k, unsigned yes, unsigned no) {
    p->code[p->n++] = (struct sock_filter){(uint16_t)code, (uint8_t)yes, (uint8_t)no, k};
}

static void put_load(program *p, size_t offset) {
    put(p, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

/* Ends with `action` if the loaded word compares so with k. */
static void put_if(program *p, unsigned compare, unsigned k, unsigned action) {
    put(p, BPF_JMP | compare | BPF_K, k, 0, 1);
    put(p, BPF_RET | BPF_K, action, 0, 0);
}

/* For call `number`: allowed if its first argument compares so with k, else refused. */
static void put_call(program *p, unsigned number, unsigned compare, unsigned k) {
    put(p, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4);
    put_load(p, offsetof(struct seccomp_data, args)); /* little-endian: its low word */
    put_if(p, compare, k, SECCOMP_RET_ALLOW);
    put(p, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0);
}

static const char *refuse_calls(void) {
    const unsigned no = SECCOMP_RET_ERRNO | EPERM;
    program p = {.n = 0};
    put_load(&p, offsetof(struct seccomp_data, arch));
    put(&p, BPF_JMP | BPF_JEQ | BPF_K, SANDBOX_MACHINE, 1, 0);
    put(&p, BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    put_load(&p, offsetof(struct seccomp_data, nr));
    put_if(&p, BPF_JGE, X32, no);
    for (int i = 0; i < N_REFUSED; i++)
        put_if(&p, BPF_JEQ, (unsigned)refused[i], no);
    /* its flags are in memory; without it, glibc makes threads by clone */
    put_if(&p, BPF_JEQ, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
    put_call(&p, SYS_tgkill, BPF_JEQ, (unsigned)getpid());
    put_call(&p, SYS_clone, BPF_JSET, CLONE_THREAD);
    put(&p, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    const struct sock_fprog filter = {.len = p.n, .filter = p.code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0
               ? NULL
               : "the kernel has no seccomp filters";
}
#else
static const char *refuse_calls(void) {
    return "the system call filter does not support this architecture";
}
#endif

const char *sandbox_lock(const sandbox_path *paths, int n) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return "the kernel refuses no_new_privs";
    const char *why = confine_files(paths, n);
    return why ? why : refuse_calls();
}
