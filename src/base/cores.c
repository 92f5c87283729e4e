/* The processors and cores that the process may use. Two processors of one core share its execution
 * units, and kernels keep those busy with one thread, so that the default number of threads is that
 * of the cores. */
#include <errno.h>
#include <gqac/threads.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine.h"
#include "base/threads.h"

enum {
    SET_BYTES = 128,          /* of a cpu_set_t */
    MOST_SET_BYTES = 1 << 20, /* sets of more processors are not tried */
};

bool gqac_processors_find(gqac_processors *processors) {
    bool larger = true; /* the kernel has more processors than the set */
    *processors = (gqac_processors){0};
    for (size_t bytes = SET_BYTES; larger && bytes <= MOST_SET_BYTES; bytes *= 2) {
        gqac_processors_free(processors);
        *processors = (gqac_processors){gqac_calloc(1, bytes), bytes};
        if (!processors->set)
            return false;
        if (sched_getaffinity(0, bytes, processors->set) == 0)
            return true;
        larger = errno == EINVAL;
    }
    gqac_processors_free(processors);
    return true;
}

void gqac_processors_free(gqac_processors *processors) {
    gqac_free(processors->set);
    *processors = (gqac_processors){0};
}

static bool has(const gqac_processors *p, long processor) {
    return CPU_ISSET_S((size_t)processor, p->bytes, p->set);
}

/* True if the process may use no earlier processor of the same core. `list` has the processors of
 * the core: "0-1,8". */
static bool is_first(const gqac_processors *processors, int processor, const char *list) {
    for (const char *at = list; *at >= '0' && *at <= '9';) {
        char *end;
        const long first = strtol(at, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long i = first; i <= last && i < processor; i++)
            if (has(processors, i))
                return false;
        at = *end == ',' ? end + 1 : end;
    }
    return true;
}

int gqac_cores_of(const gqac_processors *processors, const char *root) {
    int n = 0;
    char path[256], list[4096];
    for (int i = 0; i < 8 * (int)processors->bytes; i++) {
        if (!has(processors, i))
            continue;
        snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 root, i);
        n += !gqac_read_line(path, list, sizeof list) || is_first(processors, i, list);
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
    if (gqac_read_line("/proc/self/cgroup", line, sizeof line) && !strncmp(line, "0::", 3)) {
        line[strcspn(line, "\n")] = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", line + 3);
        if (gqac_read_line(path, line, sizeof line))
            return gqac_cores_of_quota(line);
    }
    return gqac_read_line("/sys/fs/cgroup/cpu.max", line, sizeof line) ? gqac_cores_of_quota(line)
                                                                       : 0;
}

int gqac_threads_default(void) {
    gqac_processors own;
    if (!gqac_processors_find(&own) || !own.set)
        return 1;
    const int cores = gqac_cores_of(&own, "/sys"), most = quota();
    gqac_processors_free(&own);
    const int n = most && most < cores ? most : cores;
    return n < GQAC_POOL_MAX ? n : GQAC_POOL_MAX;
}
