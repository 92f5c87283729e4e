/* Compiled kernels on disk. An entry is a file of the folder GQAC_CACHE ("off" or "": there is no
 * cache), $XDG_CACHE_HOME/gqac or ~/.cache/gqac; its name is the hash of all that the code depends
 * on. An entry that is damaged, of another user or of another key counts as missing, and so does a
 * folder that cannot be written. Entries are written whole or not at all, so processes may share
 * the folder. */
#ifndef GQAC_TARGETS_GPU_CACHE_H
#define GQAC_TARGETS_GPU_CACHE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gpu_key {
    unsigned char digest[32];
} gpu_key;

/* The texts in their order: sources, options, device, versions. */
gpu_key gpu_cache_key(int n, const char *const *texts);
/* False: nothing is read or written, so no code has to be asked for. */
bool gpu_cache_on(void);
/* The code, which the caller frees with free(), and its size; NULL: there is none. */
void *gpu_cache_read(const gpu_key *key, size_t *bytes);
void gpu_cache_write(const gpu_key *key, const void *code, size_t bytes);

#endif
