/* The memory of the machine: limits of cgroups of both versions, and of those that contain them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "unit.h"

static char root[] = "/tmp/gqac-machine-XXXXXX";

/* Writes a file below the root, and its folders. */
static void put(const char *folder, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "mkdir -p %s%s", root, folder);
    CU_ASSERT_EQUAL_FATAL(system(path), 0);
    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    FILE *file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static int64_t limit_of(const char *cgroups) {
    char path[512];
    put("", "cgroups", cgroups);
    snprintf(path, sizeof path, "%s/cgroups", root);
    return gqac_memory_of_cgroups(path, root);
}

static void cgroups_limit_memory(void) {
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(root));
    CU_ASSERT_EQUAL(gqac_memory_of_cgroups("/nowhere", root), INT64_MAX);
    CU_ASSERT_EQUAL(limit_of("0::/a/b\n"), INT64_MAX); /* no files */
    put("/a/b", "memory.max", "max\n");
    CU_ASSERT_EQUAL(limit_of("0::/a/b\n"), INT64_MAX);
    put("/a", "memory.max", "5000\n"); /* of the containing cgroup */
    CU_ASSERT_EQUAL(limit_of("0::/a/b\n"), 5000);
    put("/a/b", "memory.max", "3000\n");
    CU_ASSERT_EQUAL(limit_of("0::/a/b\n"), 3000);
    CU_ASSERT_EQUAL(limit_of("0::/a\n"), 5000);
    put("", "memory.max", "2000\n"); /* what a container sees as the root */
    CU_ASSERT_EQUAL(limit_of("0::/of/the/host\n"), 2000);
    CU_ASSERT_EQUAL(limit_of("5:cpu:/a\n4:memory:/x/y\n"), INT64_MAX); /* version 1 differs */
    put("/memory/x", "memory.limit_in_bytes", "7000\n");
    CU_ASSERT_EQUAL(limit_of("5:cpu:/a\n4:memory:/x/y\n"), 7000);
    CU_ASSERT_EQUAL(limit_of("5:cpu:/a\n4:memory:/x/y\n0::/\n"), 2000);
    put("/memory/x", "memory.limit_in_bytes", "9223372036854771712\n"); /* version 1 has no "max" */
    CU_ASSERT_EQUAL(limit_of("4:memory:/x/y\n"), INT64_C(9223372036854771712));
}

static void broken_files_are_no_limit(void) {
    static const char *const values[] = {"", "\n", "0\n", "-5\n", "much\n"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        put("/broken", "memory.max", values[i]);
        CU_ASSERT_EQUAL(limit_of("0::/broken\n"), 2000); /* the root's */
    }
    static const char *const lists[] = {"", "\n", ":", "::", "0:\n", "0::", "x", "1:memoryx:/x\n"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        CU_ASSERT(limit_of(lists[i]) == INT64_MAX || limit_of(lists[i]) == 2000);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    CU_ASSERT_EQUAL(system(command), 0);
}

static void the_machine_has_memory(void) {
    const int64_t bytes = gqac_machine_memory();
    CU_ASSERT(bytes > INT64_C(1) << 26 && bytes < INT64_C(1) << 50);
    CU_ASSERT_EQUAL(gqac_memory_share(), bytes - bytes / 10);
}

static const unit_case cases[] = {
    {"cgroups limit memory", cgroups_limit_memory},
    {"broken files are no limit", broken_files_are_no_limit},
    {"the machine has memory", the_machine_has_memory},
};

int main(int argc, char **argv) {
    return unit_run("base/machine", cases, sizeof cases / sizeof cases[0], argc, argv);
}
