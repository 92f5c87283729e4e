/* Runs inputs that once broke a fuzz target, and valid ones, in test/fuzz/inputs/<target>/, and
 * some inputs that differ from them in one place. An input whose name begins with "legal" must be
 * accepted. Each is used twice; the second time must not leak memory. */
#include "fuzz/fuzz.h"
#include "unit.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum { LARGEST = 1 << 20, PATH = 1024 };

static char name[PATH];

/* Prints which input it was; then the signal has its usual effect. */
static void name_it(int signal_number) {
    (void)!write(STDERR_FILENO, name, strlen(name));
    (void)!write(STDERR_FILENO, "\n", 1);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static uint32_t chance = 1;

static uint32_t draw(void) {
    chance = chance * 1664525U + 1013904223U;
    return chance >> 8;
}

size_t fuzz_change(uint8_t *data, size_t size, size_t most) {
    (void)most;
    if (size)
        data[draw() % size] ^= (uint8_t)(1U << draw() % 8);
    return size;
}

static void replay(const fuzz_target *target, const uint8_t *data, size_t size, bool legal) {
    uint8_t *copy = malloc(size + 1); /* exact size, for sanitizers */
    memcpy(copy, data, size);
    const gqac_status status = target->run(copy, size);
    if (legal && status != GQAC_OK) {
        printf("  %s: %s\n", name, gqac_status_name(status));
        CU_FAIL("a legal input is refused");
    }
    const size_t live = gqac_alloc_live();
    (void)target->run(copy, size);
    if (gqac_alloc_live() != live) {
        printf("  %s: %zu allocations left\n", name, gqac_alloc_live() - live);
        CU_FAIL("memory is lost");
    }
    free(copy);
}

static int replay_file(const fuzz_target *target, const char *path, bool legal) {
    static uint8_t data[LARGEST], changed[LARGEST];
    FILE *f = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    const size_t size = fread(data, 1, sizeof data, f);
    fclose(f);
    CU_ASSERT(size < sizeof data);
    snprintf(name, sizeof name, "%s", path);
    replay(target, data, size, legal);
    for (int n = unit_count(3, 60); n > 0; n--) {
        memcpy(changed, data, size);
        const size_t now = target->mutate && draw() % 2
                               ? target->mutate(changed, size, sizeof changed, draw())
                               : fuzz_change(changed, size, sizeof changed);
        (void)target->run(changed, now);
    }
    return 1;
}

/* Runs the files of a folder for a target: all, or those with an ending. Returns their number. */
static int replay_folder(const fuzz_target *target, const char *folder, const char *ending,
                         int *legal) {
    char path[2 * PATH];
    int n = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        const char *dot = strrchr(e->d_name, '.');
        const bool good = ending || !strncmp(e->d_name, "legal", 5);
        if (e->d_name[0] == '.' || (ending && (!dot || strcmp(dot + 1, ending) != 0)))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        n += replay_file(target, path, good);
        *legal += good;
    }
    if (dir)
        closedir(dir);
    return n;
}

static void remove_files(const char *folder) {
    char path[2 * PATH];
    DIR *dir = opendir(folder);
    for (const struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    if (dir)
        closedir(dir);
    rmdir(folder);
}

static void test_inputs(void) {
    static const struct {
        const char *target, *ending;
    } made[] = {{"scan", "onnx"},     {"onnx", "onnx"},    {"model", "onnx"}, {"text", "gq"},
                {"artefact", "gqac"}, {"snapshot", "gqs"}, {"store", "gqs"},  {"npy", "npy"}};
    char folder[] = "/tmp/gqac-replay-XXXXXX", stored[PATH];
    int all = 0, legal = 0;
    signal(SIGABRT, name_it);
    signal(SIGSEGV, name_it);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    fuzz_write_files(folder);
    for (const fuzz_target *const *target = fuzz_targets; *target; target++) {
        int of_target = 0;
        snprintf(stored, sizeof stored, "%s/test/fuzz/inputs/%s", GQAC_SOURCE_DIR, (*target)->name);
        all += replay_folder(*target, stored, NULL, &of_target);
        for (size_t i = 0; i < sizeof made / sizeof *made; i++)
            if (!strcmp(made[i].target, (*target)->name))
                all += replay_folder(*target, folder, made[i].ending, &of_target);
        if (!of_target)
            printf("  no legal input for %s\n", (*target)->name);
        CU_ASSERT(of_target > 0); /* otherwise the target might reach nothing */
        legal += of_target;
    }
    remove_files(folder);
    printf("  %d inputs, %d of them legal\n", all, legal);
}

static const unit_case cases[] = {{"stored inputs", test_inputs}};

int main(int argc, char **argv) {
    return unit_run("fuzz_replay", cases, sizeof cases / sizeof *cases, argc, argv);
}
