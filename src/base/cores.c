/* The default number of threads: the cores that the process may use. Two processors of one core
 * share its execution units, and kernels keep those busy with one thread. */
#include <gqac/threads.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"

/* Reads the first line of a small file; false if there is none. */
static bool read_line(const char *path, char *line, int size) {
    FILE *file = fopen(path, "re");
    const bool read = file && fgets(line, size, file);
    if (file)
        fclose(file);
    return read;
}

/* True if the process may use no earlier processor of the same core. `list` has the processors of
 * the core: "0-1,8". */
static bool is_first(const cpu_set_t *processors, int processor, const char *list) {
    for (const char *at = list; *at >= '0' && *at <= '9';) {
        char *end;
        const long first = strtol(at, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long i = first; i <= last && i < processor; i++)
            if (CPU_ISSET((size_t)i, processors))
                return false;
        at = *end == ',' ? end + 1 : end;
    }
    return true;
}

int gqac_cores_of(const cpu_set_t *processors, const char *root) {
    int n = 0;
    char path[256], list[4096];
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET((size_t)i, processors))
            continue;
        snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 root, i);
        n += !read_line(path, list, sizeof list) || is_first(processors, i, list);
    }
    return n > 0 ? n : 1;
}

int gqac_cores_of_quota(const char *quota) {
    char *end;
    const long long most = strtoll(quota, &end, 10), period = strtoll(end, NULL, 10);
    if (most < 1 || period < 1 || most / period >= GQAC_POOL_MAX)
        return 0;
    return (int)((most + period - 1) / period);
}

/* Number of processors by the quota of the process's own cgroup (version 2), or of the root cgroup
 * that a container sees. */
static int quota(void) {
    char line[512], path[600];
    if (read_line("/proc/self/cgroup", line, sizeof line) && !strncmp(line, "0::", 3)) {
        line[strcspn(line, "\n")] = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", line + 3);
        if (read_line(path, line, sizeof line))
            return gqac_cores_of_quota(line);
    }
    return read_line("/sys/fs/cgroup/cpu.max", line, sizeof line) ? gqac_cores_of_quota(line) : 0;
}

int gqac_threads_default(void) {
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) != 0)
        return 1;
    const int cores = gqac_cores_of(&own, "/sys"), most = quota();
    const int n = most && most < cores ? most : cores;
    return n < GQAC_POOL_MAX ? n : GQAC_POOL_MAX;
}
