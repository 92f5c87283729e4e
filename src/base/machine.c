/* The memory of the machine; see machine.h.
 *
 * A cgroup has at most the memory of each cgroup around it. A container may see its own cgroup as
 * the root, while /proc names it as the host does: then the path does not exist, and the limits of
 * the root apply. */
#include "base/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

enum { PATH = 4096 };

bool gqac_read_line(const char *path, char *line, int size) {
    FILE *file = fopen(path, "re");
    const bool read = file && fgets(line, size, file);
    if (file)
        (void)fclose(file);
    return read;
}

/* The limit in a file; INT64_MAX: none ("max", or no file). */
static int64_t limit_in(const char *path) {
    char line[64], *end;
    if (!gqac_read_line(path, line, sizeof line))
        return INT64_MAX;
    const long long value = strtoll(line, &end, 10);
    return end != line && value > 0 ? value : INT64_MAX;
}

/* The smallest limit of the cgroup `own` ("/a/b") and of those around it. `own` is cut. */
static int64_t limit_of(const char *root, char *own, const char *file) {
    int64_t least = INT64_MAX;
    char path[2 * PATH];
    for (;;) {
        snprintf(path, sizeof path, "%.4000s%.4000s/%s", root, own, file);
        const int64_t limit = limit_in(path);
        least = limit < least ? limit : least;
        char *const last = strrchr(own, '/');
        if (!last)
            return least;
        *last = 0;
    }
}

int64_t gqac_memory_of_cgroups(const char *cgroups, const char *root) {
    int64_t least = INT64_MAX;
    char line[PATH], folder[PATH];
    FILE *file = fopen(cgroups, "re");
    while (file && fgets(line, sizeof line, file)) { /* "4:memory:/a/b", "0::/a/b" */
        char *const names = strchr(line, ':'), *const own = names ? strchr(names + 1, ':') : NULL;
        if (!own)
            continue;
        own[strcspn(own, "\n")] = 0;
        *own = 0;
        const bool second = !names[1];
        if (!second && strcmp(names + 1, "memory") != 0)
            continue;
        snprintf(folder, sizeof folder, "%.4000s%s", root, second ? "" : "/memory");
        const int64_t limit =
            limit_of(folder, own + 1, second ? "memory.max" : "memory.limit_in_bytes");
        least = limit < least ? limit : least;
    }
    if (file)
        (void)fclose(file);
    return least;
}

int64_t gqac_machine_memory(void) {
    struct sysinfo info;
    const int64_t limit = gqac_memory_of_cgroups("/proc/self/cgroup", "/sys/fs/cgroup");
    if (sysinfo(&info) != 0)
        return limit;
    const int64_t bytes = (int64_t)info.totalram * info.mem_unit;
    return bytes > 0 && bytes < limit ? bytes : limit;
}

int64_t gqac_memory_share(void) {
    const int64_t bytes = gqac_machine_memory();
    return bytes - bytes / 10;
}
