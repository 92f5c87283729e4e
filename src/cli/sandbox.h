/* The process permanently gives up whatever reading a model does not need: Landlock confines its
 * files, a seccomp filter refuses system calls. */
#ifndef GQAC_CLI_SANDBOX_H
#define GQAC_CLI_SANDBOX_H

#include <stdbool.h>

/* A file, or a folder with all below it. A path that does not exist is skipped. */
typedef struct sandbox_path {
    const char *path;
    bool written; /* files may be made, written and removed there, not only read */
} sandbox_path;

/* Confines the process, which must have one thread, to these paths. Files and sockets that are open
 * already stay usable. Returns NULL, or why that is not possible; part of the rules may then hold,
 * so the process should end. */
const char *sandbox_lock(const sandbox_path *paths, int n);

#endif
