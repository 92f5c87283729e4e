/* What a process in the sandbox can no longer do. Each attempt is made in a child process, and also
 * once without the sandbox, where it must succeed. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli/sandbox.h"
#include "unit.h"

static char root[64]; /* contains the folders in, out and far; in and far contain a file `f` */

static const char *at(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static int make(const char *name) {
    const int fd = open(at(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd;
}

static int opens(const char *name, int flags) {
    const int fd = open(at(name), flags | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd;
}

/* ---- attempts: at least 0 if it succeeds --------------------------------- */

static int read_in(void) {
    return opens("in/f", O_RDONLY);
}

static int read_far(void) {
    return opens("far/f", O_RDONLY);
}

static int read_by_link(void) {
    return opens("in/link", O_RDONLY);
}

static int list_far(void) {
    return opens("far", O_RDONLY | O_DIRECTORY);
}

static int write_out(void) {
    return make("out/new");
}

static int write_in(void) {
    return opens("in/f", O_WRONLY);
}

static int make_in(void) {
    return make("in/new");
}

static int remove_in(void) {
    return unlink(at("in/victim"));
}

static int truncate_far(void) {
    return truncate(at("far/f"), 0);
}

static int change_mode(void) {
    return chmod(at("far/f"), 0600);
}

/* By a descriptor of a file that may be read. */
static int change_open_mode(void) {
    return fchmod(open(at("in/f"), O_RDONLY), 0600);
}

static int change_open_owner(void) {
    return fchown(open(at("in/f"), O_RDONLY), getuid(), getgid());
}

static int set_open_attribute(void) {
    return fsetxattr(open(at("in/f"), O_RDONLY), "user.gqac", "x", 1, 0);
}

static int remove_open_attribute(void) {
    return fremovexattr(open(at("in/f"), O_RDONLY), "user.gqac");
}

/* The executed program ends with 0, and so does the attempt. */
static int execute(void) {
    char *const words[] = {(char *)(uintptr_t) "true", NULL};
    return execv("/bin/true", words);
}

/* Landlock would refuse to execute an existing program; the filter refuses the call itself. */
static int execute_nothing(void) {
    char *const words[] = {(char *)(uintptr_t) "nothing", NULL};
    execv(at("in/nothing"), words);
    return errno == ENOENT ? 0 : -1;
}

static int start_process(void) {
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    return child > 0 ? waitpid(child, NULL, 0) : -1;
}

static int make_socket(void) {
    return socket(AF_INET, SOCK_STREAM, 0);
}

static int make_local_socket(void) {
    return socket(AF_UNIX, SOCK_STREAM, 0);
}

static int signal_parent(void) {
    return kill(getppid(), 0);
}

static void *nothing(void *arg) {
    return arg;
}

static int start_thread(void) {
    pthread_t thread;
    return pthread_create(&thread, NULL, nothing, NULL) ? -1 : -pthread_join(thread, NULL);
}

static int raise_signal(void) {
    signal(SIGUSR1, SIG_IGN);
    return -raise(SIGUSR1);
}

/* ---- cases --------------------------------------------------------------- */

enum { IMPOSSIBLE = 1, NO_SANDBOX = 2 };

/* Makes the attempt in a child; returns its exit code. */
static int attempt(int (*try)(void), bool confined) {
    const pid_t child = fork();
    int status = 0;
    if (child == 0) {
        char in[128], out[128];
        snprintf(in, sizeof in, "%s/in", root);
        snprintf(out, sizeof out, "%s/out", root);
        const sandbox_path paths[] = {{in, false}, {out, true}, {"/nowhere", false}};
        if (confined && sandbox_lock(paths, 3))
            _exit(NO_SANDBOX);
        _exit(try() >= 0 ? 0 : IMPOSSIBLE);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void refuses(int (*try)(void)) {
    CU_ASSERT_EQUAL(attempt(try, true), IMPOSSIBLE);
    CU_ASSERT_EQUAL(attempt(try, false), 0);
}

static void permits(int (*try)(void)) {
    CU_ASSERT_EQUAL(attempt(try, true), 0);
}

static void test_files(void) {
    permits(read_in);
    permits(write_out);
    refuses(read_far);
    refuses(read_by_link);
    refuses(list_far);
    refuses(write_in);
    refuses(make_in);
    refuses(remove_in);
    refuses(truncate_far);
    refuses(change_mode);
    refuses(change_open_mode);
    refuses(change_open_owner);
    if (attempt(set_open_attribute, false) == 0) { /* the file system has attributes */
        refuses(set_open_attribute);
        refuses(remove_open_attribute);
    }
}

static void test_programs(void) {
    permits(start_thread);
    permits(raise_signal);
    refuses(execute);
    refuses(execute_nothing);
    refuses(start_process);
    refuses(signal_parent);
}

static void test_network(void) {
    refuses(make_socket);
    refuses(make_local_socket);
}

/* ---- kernels without these features -------------------------------------- */

/* From here on the system call fails with ENOSYS, as in a kernel that lacks it. */
static void take_away(unsigned number) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {.len = 4, .filter = code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}

/* The tool ends with USAGE and reports this; it does not continue without a sandbox. */
static void check_without(unsigned number, const char *words) {
    int pipes[2], status = 0;
    char said[2048] = "";
    size_t n = 0;
    CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        dup2(pipes[1], STDOUT_FILENO);
        take_away(number);
        execl(GQAC_TOOL, GQAC_TOOL, "inspect", unit_path("test/models/llama/model.onnx"),
              "--sandbox", (char *)NULL);
        _exit(99);
    }
    close(pipes[1]);
    for (ssize_t got;
         n + 1 < sizeof said && (got = read(pipes[0], said + n, sizeof said - 1 - n)) > 0;)
        n += (size_t)got;
    close(pipes[0]);
    waitpid(child, &status, 0);
    CU_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    CU_ASSERT_PTR_NOT_NULL(strstr(said, "--sandbox is not possible here: "));
    CU_ASSERT_PTR_NOT_NULL(strstr(said, words));
    CU_ASSERT_PTR_NULL(strstr(said, "format"));
}

static void test_no_landlock(void) {
    check_without(SYS_landlock_create_ruleset, "the kernel has no Landlock");
}

static void test_no_seccomp(void) {
    check_without(SYS_seccomp, "the kernel has no seccomp filters");
}

static bool prepare(void) {
    static const char *const folders[] = {"in", "out", "far"};
    snprintf(root, sizeof root, "/tmp/gqac-sandbox-XXXXXX");
    if (!mkdtemp(root))
        return false;
    for (int i = 0; i < 3; i++)
        if (mkdir(at(folders[i]), 0700) != 0)
            return false;
    return make("in/f") >= 0 && make("far/f") >= 0 && make("in/victim") >= 0 &&
           symlink("../far/f", at("in/link")) == 0;
}

static void clean(void) {
    static const char *const files[] = {"in/f",    "in/new",  "in/victim",
                                        "in/link", "out/new", "far/f"};
    static const char *const folders[] = {"in", "out", "far", ""};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(at(files[i]));
    for (int i = 0; i < 4; i++)
        rmdir(at(folders[i]));
}

int main(int argc, char **argv) {
    static const unit_case all[] = {{"kernel without Landlock", test_no_landlock},
                                    {"kernel without seccomp", test_no_seccomp},
                                    {"files", test_files},
                                    {"programs", test_programs},
                                    {"network", test_network}};
    if (!prepare())
        return 1;
    size_t n = sizeof all / sizeof *all;
    /* The other cases are attempts within a sandbox. A kernel without Landlock 3 or seccomp has
     * none. The first two cases test, on every kernel, that --sandbox then fails. */
    if (attempt(read_in, true) == NO_SANDBOX) {
        printf("skipped: files, programs and network: this kernel cannot confine a process\n");
        n = 2;
    }
    const int code = unit_run("cli/sandbox", all, n, argc, argv);
    clean();
    return code;
}
