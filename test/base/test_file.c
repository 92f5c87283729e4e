/* Files: what may be mapped, writes that appear whole or not at all, SHA-256.
 *
 * The linker wraps the writer's system calls, so that the n-th of them can fail, transfer one byte,
 * or be the last action of a process. In all cases the target is the old file or the new one, and a
 * process that continues leaves no temporary file. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "unit.h"

/* ---- faults -------------------------------------------------------------- */

enum { FAULT_NONE, FAULT_ERROR, FAULT_SHORT, FAULT_EINTR, FAULT_KILL };

static struct { int mode, at, error, calls; } fault;

/* True if this is the call that fails. */
static bool strikes(void) {
    fault.calls++;
    if (fault.mode == FAULT_NONE || fault.calls != fault.at)
        return false;
    if (fault.mode == FAULT_KILL)
        _exit(9);
    return true;
}

static bool refuses(void) {
    if (!strikes() || fault.mode != FAULT_ERROR)
        return false;
    errno = fault.error;
    return true;
}

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes) {
    if (!strikes())
        return __real_write(fd, data, bytes);
    if (fault.mode == FAULT_SHORT)
        return __real_write(fd, data, 1);
    errno = fault.mode == FAULT_EINTR ? EINTR : fault.error;
    return -1;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    return refuses() ? -1 : __real_fsync(fd);
}

int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode) {
    return refuses() ? -1 : __real_fchmod(fd, mode);
}

int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return refuses() ? -1 : __real_renameat(from_folder, from, to_folder, to);
}

/* ---- a folder of our own ------------------------------------------------- */

static char folder[64];

static const char *in_folder(const char *name) {
    static char ring[4][128];
    static unsigned next;
    char *path = ring[next++ % 4];
    snprintf(path, sizeof ring[0], "%s/%s", folder, name);
    return path;
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CU_ASSERT_FATAL(file != NULL);
    fputs(text, file);
    fclose(file);
}

static bool holds(const char *path, const void *data, size_t bytes) {
    gqac_map map;
    if (gqac_map_file(path, &map, NULL) != GQAC_OK)
        return false;
    bool same = map.size == bytes && (bytes == 0 || memcmp(map.data, data, bytes) == 0);
    gqac_unmap(&map);
    return same;
}

/* Counts the entries of the folder whose names contain `part`. */
static int entries(const char *part, bool remove_them) {
    int n = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return -1;
    for (struct dirent *e; (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strstr(e->d_name, part)) {
            n++;
            if (remove_them)
                unlinkat(dirfd(dir), e->d_name, 0);
        }
    closedir(dir);
    return n;
}

/* ---- maps ---------------------------------------------------------------- */

static void regular_files_map(void) {
    const char *path = in_folder("regular");
    gqac_map map = {0};
    put(path, "hello");
    CU_ASSERT_EQUAL_FATAL(gqac_map_file(path, &map, NULL), GQAC_OK);
    CU_ASSERT(map.size == 5 && memcmp(map.data, "hello", 5) == 0);
    gqac_unmap(&map);
    CU_ASSERT(map.data == NULL && map.size == 0);
    gqac_unmap(&map);
    put(path, "");
    CU_ASSERT_EQUAL_FATAL(gqac_map_file(path, &map, NULL), GQAC_OK);
    CU_ASSERT(map.data == NULL && map.size == 0);
    gqac_map_release(&map, 0, 100);
    int fd = open(path, O_RDONLY);
    CU_ASSERT_EQUAL(gqac_map_fd(fd, "name", &map, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(close(fd), 0); /* still ours */
}

static void refused(const char *path, const char *reason) {
    gqac_map map = {0};
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL(gqac_map_file(path, &map, &diag), GQAC_IO);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, reason));
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, path));
    CU_ASSERT_PTR_NULL(map.data);
}

static void other_things_do_not_map(void) {
    const char *fifo = in_folder("fifo");
    CU_ASSERT_EQUAL(mkfifo(fifo, 0600), 0);
    alarm(20); /* if it blocked when opened, the test would end here */
    refused(fifo, "FIFO");
    alarm(0);
    unlink(fifo);
    refused(folder, "folder");
    refused("/dev/null", "device");
    refused(in_folder("missing"), "No such file");
    refused(in_folder("missing/below"), "No such file");
    gqac_map map;
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL(gqac_map_file("missing", &map, &diag), GQAC_IO);
    CU_ASSERT(diag.where[0] == '/' && strstr(diag.where, "/missing"));
    CU_ASSERT(strstr(diag.rule, "working directory") && strstr(diag.hint, "spelling"));
    CU_ASSERT_EQUAL(gqac_map_file("missing", &map, NULL), GQAC_IO);
    CU_ASSERT_EQUAL(gqac_map_fd(-1, "gone", &map, NULL), GQAC_IO);
    CU_ASSERT_TRUE(gqac_path_is_dir(folder));
    CU_ASSERT_FALSE(gqac_path_is_dir("/dev/null"));
    CU_ASSERT_TRUE(gqac_path_exists("/dev/null"));
    CU_ASSERT_FALSE(gqac_path_exists(in_folder("missing")));
}

static void released_pages_come_back(void) {
    enum { SIZE = 5 * 4096 + 100 };
    static char text[SIZE + 1];
    memset(text, 'x', SIZE);
    text[4096] = 'y';
    const char *path = in_folder("pages");
    put(path, text);
    gqac_map map;
    CU_ASSERT_EQUAL_FATAL(gqac_map_file(path, &map, NULL), GQAC_OK);
    for (size_t at = 0; at < SIZE + 5000; at += 1000)
        for (size_t bytes = 0; bytes < SIZE + 5000; bytes += 1500)
            gqac_map_release(&map, at, bytes);
    gqac_map_release(&map, 1, SIZE_MAX);
    gqac_map_release(&map, SIZE_MAX, SIZE_MAX);
    CU_ASSERT_EQUAL(memcmp(map.data, text, SIZE), 0);
    gqac_unmap(&map);
}

/* ---- writing ------------------------------------------------------------- */

enum { BIG = 200001 };
static unsigned char big[BIG];

/* Writes `big` in pieces of all sizes; then the writer is closed. */
static gqac_status write_big(const char *path, gqac_diag *diag) {
    gqac_writer *w = NULL;
    GQAC_TRY(gqac_writer_open(path, &w, diag));
    size_t at = 0, pieces[] = {1, 0, 100, 64 * 1024, 10, 70000, BIG};
    for (size_t i = 0; at < BIG; i++) {
        size_t bytes = pieces[i] < BIG - at ? pieces[i] : BIG - at;
        gqac_status status = gqac_writer_write(w, big + at, bytes, diag);
        if (status != GQAC_OK) {
            gqac_writer_abort(w);
            return status;
        }
        at += bytes;
        CU_ASSERT_EQUAL(gqac_writer_offset(w), at);
    }
    return gqac_writer_commit(w, diag);
}

static void commit_replaces(void) {
    const char *path = in_folder("target");
    struct stat st;
    put(path, "old");
    mode_t mask = umask(027);
    gqac_writer *w = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_writer_open(path, &w, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_writer_write(w, "new!", 4, NULL), GQAC_OK);
    CU_ASSERT_TRUE(holds(path, "old", 3));
    CU_ASSERT_EQUAL(gqac_writer_commit(w, NULL), GQAC_OK);
    umask(mask);
    CU_ASSERT_TRUE(holds(path, "new!", 4));
    CU_ASSERT(stat(path, &st) == 0 && (st.st_mode & 0777) == 0640);
    CU_ASSERT_EQUAL(write_big(path, NULL), GQAC_OK);
    CU_ASSERT_TRUE(holds(path, big, BIG));
    CU_ASSERT_EQUAL(entries(".tmp", false), 0);
}

static void abort_leaves_nothing(void) {
    const char *path = in_folder("aborted");
    gqac_writer *w = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_writer_open(path, &w, NULL), GQAC_OK);
    const int nameless = open(folder, O_WRONLY | O_TMPFILE, 0600);
    CU_ASSERT_EQUAL(entries(".tmp", false), nameless < 0); /* so a kill leaves nothing either */
    if (nameless >= 0)
        close(nameless);
    CU_ASSERT_EQUAL(gqac_writer_write(w, big, BIG, NULL), GQAC_OK);
    gqac_writer_abort(w);
    gqac_writer_abort(NULL);
    CU_ASSERT_FALSE(gqac_path_exists(path));
    CU_ASSERT_EQUAL(entries(".tmp", false), 0);
}

static void relative_names_work(void) {
    char *old = getcwd(NULL, 0);
    CU_ASSERT_FATAL(old && chdir(folder) == 0);
    gqac_writer *w = NULL;
    CU_ASSERT_EQUAL_FATAL(gqac_writer_open("relative", &w, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_writer_commit(w, NULL), GQAC_OK);
    CU_ASSERT_TRUE(holds("relative", "", 0));
    char name[256]; /* one more than the longest possible file name */
    memset(name, 'n', 255);
    name[255] = '\0';
    CU_ASSERT_EQUAL_FATAL(gqac_writer_open(name, &w, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_writer_commit(w, NULL), GQAC_OK);
    CU_ASSERT_TRUE(gqac_path_exists(name));
    unlink(name);
    CU_ASSERT_EQUAL(chdir(old), 0);
    free(old);
}

static void unwritable(const char *path) {
    gqac_writer *w = NULL;
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL(gqac_writer_open(path, &w, &diag), GQAC_IO);
    CU_ASSERT_PTR_NULL(w);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, path));
}

static void other_things_are_not_replaced(void) {
    const char *fifo = in_folder("fifo"), *link = in_folder("link");
    CU_ASSERT(mkfifo(fifo, 0600) == 0 && symlink("/dev/null", link) == 0);
    unwritable(fifo);
    unwritable(link);
    unwritable("/dev/null");
    unwritable(folder);
    unwritable(in_folder(""));
    unwritable(in_folder("missing/file"));
    unlink(fifo);
    unlink(link);
}

/* A link like /dev/stdout: it stays, although the open file is a regular one. */
static void links_to_open_files_are_not_replaced(void) {
    const char *file = in_folder("file"), *link = in_folder("stdout");
    char to[32];
    put(file, "old");
    const int fd = open(file, O_WRONLY | O_CLOEXEC);
    snprintf(to, sizeof to, "/proc/self/fd/%d", fd);
    CU_ASSERT(fd >= 0 && symlink(to, link) == 0);
    unwritable(link);
    close(fd);
    unwritable(link);
    CU_ASSERT(readlink(link, to, sizeof to) > 0);
    unlink(link);
    unlink(file);
}

static void failures_keep_the_old(void) {
    static const int errors[] = {EIO, ENOSPC, EDQUOT};
    const char *path = in_folder("faults");
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        gqac_status status = GQAC_IO;
        for (int n = 1; status != GQAC_OK && n < 50; n++) {
            gqac_diag diag = {0};
            put(path, "old");
            fault.mode = FAULT_ERROR;
            fault.at = n;
            fault.error = errors[e];
            fault.calls = 0;
            status = write_big(path, &diag);
            bool reached = fault.calls >= n;
            fault.mode = FAULT_NONE;
            CU_ASSERT_EQUAL(entries(".tmp", false), 0);
            CU_ASSERT_EQUAL(status, reached ? GQAC_IO : GQAC_OK);
            /* if only the very last call fails, the sync of the folder, the new file is in place */
            CU_ASSERT(holds(path, "old", 3) || holds(path, big, BIG));
            CU_ASSERT(status != GQAC_IO || strstr(diag.what, path));
        }
        CU_ASSERT_EQUAL(status, GQAC_OK);
    }
}

static void short_writes_go_on(void) {
    const char *path = in_folder("faults");
    for (int n = 1; n < 10; n++)
        for (int mode = FAULT_SHORT; mode <= FAULT_EINTR; mode++) {
            fault.mode = mode;
            fault.at = n;
            fault.calls = 0;
            CU_ASSERT_EQUAL(write_big(path, NULL), GQAC_OK);
            fault.mode = FAULT_NONE;
            CU_ASSERT_TRUE(holds(path, big, BIG));
        }
}

static void a_kill_leaves_old_or_new(void) {
    const char *path = in_folder("killed");
    int status = 9;
    for (int n = 1; status != 0 && n < 50; n++) {
        put(path, "old");
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            fault.mode = FAULT_KILL;
            fault.at = n;
            fault.calls = 0;
            _exit(write_big(path, NULL) == GQAC_OK ? 0 : 1);
        }
        CU_ASSERT_EQUAL_FATAL(waitpid(child, &status, 0), child);
        status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        CU_ASSERT(status == 9 || status == 0);
        CU_ASSERT(holds(path, "old", 3) || holds(path, big, BIG));
        CU_ASSERT(status == 9 || holds(path, big, BIG));
        entries(".tmp", true);
    }
    CU_ASSERT_EQUAL(status, 0);
}

#ifdef GQAC_TEST_ALLOC
static void short_memory_is_a_status(void) {
    const size_t live = gqac_alloc_live();
    for (size_t n = 1; n <= 2; n++) {
        gqac_writer *w = NULL;
        gqac_alloc_fail_at(n, 0);
        CU_ASSERT_EQUAL(gqac_writer_open(in_folder("memory"), &w, NULL), GQAC_NO_MEMORY);
    }
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL(gqac_alloc_live(), live);
    CU_ASSERT_EQUAL(entries("memory", false), 0);
}
#endif

/* ---- SHA-256 (vectors of FIPS 180-2) ------------------------------------- */

static void check_digest(gqac_sha256 *state, const char *expected) {
    unsigned char digest[32];
    char text[65];
    gqac_sha256_final(state, digest);
    for (int i = 0; i < 32; i++)
        snprintf(text + (size_t)i * 2, 3, "%02x", digest[i]);
    CU_ASSERT_STRING_EQUAL(text, expected);
}

static void digests_are_known(void) {
    gqac_sha256 state;
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, NULL, 0);
    check_digest(&state, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    gqac_sha256_init(&state);
    gqac_sha256_update(&state, "a", 1);
    gqac_sha256_update(&state, "bc", 2);
    check_digest(&state, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    char a[1000];
    memset(a, 'a', sizeof a);
    gqac_sha256_init(&state);
    for (int i = 0; i < 1000; i++)
        gqac_sha256_update(&state, a, sizeof a);
    check_digest(&state, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static const unit_case cases[] = {
    {"regular files map", regular_files_map},
    {"other things do not map", other_things_do_not_map},
    {"released pages come back", released_pages_come_back},
    {"commit replaces", commit_replaces},
    {"abort leaves nothing", abort_leaves_nothing},
    {"relative names work", relative_names_work},
    {"other things are not replaced", other_things_are_not_replaced},
    {"links to open files are not replaced", links_to_open_files_are_not_replaced},
    {"failures keep the old file", failures_keep_the_old},
    {"short writes go on", short_writes_go_on},
    {"a kill leaves the old or the new file", a_kill_leaves_old_or_new},
#ifdef GQAC_TEST_ALLOC
    {"short memory is a status", short_memory_is_a_status},
#endif
    {"digests are known", digests_are_known},
};

int main(int argc, char **argv) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/gqac-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder))
        return 2;
    for (size_t i = 0; i < BIG; i++)
        big[i] = (unsigned char)(i * 31 + i / 251);
    int code = unit_run("base/file", cases, sizeof cases / sizeof cases[0], argc, argv);
    entries("", true);
    rmdir(folder);
    return code;
}
