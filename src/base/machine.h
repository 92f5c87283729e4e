/* The memory of the machine. */
#ifndef GQAC_BASE_MACHINE_H
#define GQAC_BASE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

/* Reads the first line of a small file; false: there is none. */
bool gqac_read_line(const char *path, char *line, int size);

/* The maximum number of bytes of memory that the process can use: all of the machine's, or fewer if
 * a cgroup of the process limits them. At least 1. */
int64_t gqac_machine_memory(void);
/* The part of it that a program uses unless it is told otherwise: nine tenths. The rest is for what
 * limits do not count, such as threads, ids, text and the system itself. */
int64_t gqac_memory_share(void);
/* The smallest limit of the cgroups in the file `cgroups` ("/proc/self/cgroup") and of their
 * parents, under `root` ("/sys/fs/cgroup"), of version 2 or 1; INT64_MAX: none. */
int64_t gqac_memory_of_cgroups(const char *cgroups, const char *root);

#endif
