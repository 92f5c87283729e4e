/* Files: read-only maps, and writes that appear whole or not at all. */
#ifndef GQAC_BASE_FILE_H
#define GQAC_BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/poll.h"

/* A mapped regular file. data is NULL when the file is empty. */
typedef struct gqac_map {
    const unsigned char *data;
    size_t size;
    bool borrowed; /* memory of the caller: never unmapped, its pages never released */
} gqac_map;

/* Fails with IO because opening `path` for reading failed with this errno. The message says which
 * file a relative path names. */
gqac_status gqac_fail_open(const char *path, int error, gqac_diag *diag);
/* Maps a regular file read-only, by path or by descriptor (which stays open; `name` is for
 * messages). IO: it cannot be opened or read, or is not a regular file. */
gqac_status gqac_map_file(const char *path, gqac_map *map, gqac_diag *diag);
gqac_status gqac_map_fd(int fd, const char *name, gqac_map *map, gqac_diag *diag);
void gqac_unmap(gqac_map *map);
/* False if the file has become shorter since, so that reading the map would be a SIGBUS. Linux
 * before 5.14 cannot tell: true. */
bool gqac_map_whole(const gqac_map *map);
/* Releases the pages of [offset, offset + bytes), which will not be needed soon, so that a large
 * file that is read once does not stay in resident memory. */
void gqac_map_release(const gqac_map *map, size_t offset, size_t bytes);

/* Writes a file so that it appears whole or not at all. Bytes go to a temporary file in the same
 * folder, with the mode that the umask allows, which has no name if the file system supports that
 * and else is created exclusively. Commit then syncs it, links or renames it to `path`, and syncs
 * the folder. Until commit, `path` is not changed. */
typedef struct gqac_writer gqac_writer;
gqac_status gqac_writer_open(const char *path, gqac_writer **writer, gqac_diag *diag);
gqac_status gqac_writer_write(gqac_writer *writer, const void *data, size_t bytes, gqac_diag *diag);
uint64_t gqac_writer_offset(const gqac_writer *writer);               /* bytes written so far */
gqac_status gqac_writer_commit(gqac_writer *writer, gqac_diag *diag); /* frees the writer */
void gqac_writer_abort(gqac_writer *writer); /* removes the temporary file and
                                          frees the writer */

bool gqac_path_is_dir(const char *path);
bool gqac_path_exists(const char *path);

/* Opens `path` for reading beneath an open folder, whatever kind of file it is. Links are followed
 * only if they stay beneath the folder; Linux enforces this (openat2), so a concurrent rename
 * cannot lead out. Returns the descriptor, or -1 with errno: EXDEV: the path leads out; ELOOP: a
 * loop of links, or a link in /proc; ENOSYS or EPERM: there is no openat2. */
int gqac_open_beneath(int folder, const char *path);
/* True if a folder is, or lies in, a snapshot of a Hugging Face cache (ROOT/snapshots/REVISION,
 * whose files are links to ROOT/blobs). Then `root` is set to ROOT and `below` to the path of the
 * folder relative to it, with a '/' at the end. */
bool gqac_hub_cache(const char *folder, char root[PATH_MAX], char below[PATH_MAX]);

/* SHA-256, as 32 raw bytes, of data that are given piece by piece. */
typedef struct gqac_sha256 {
    unsigned char opaque[224] __attribute__((aligned(16)));
} gqac_sha256;
void gqac_sha256_init(gqac_sha256 *state);
void gqac_sha256_update(gqac_sha256 *state, const void *data, size_t bytes);
/* The same for many bytes, which are reported to the poll. ABORTED: the monitor ended the call. */
gqac_status gqac_sha256_update_long(gqac_sha256 *state, const void *data, size_t bytes,
                                    gqac_poll *poll, gqac_diag *diag);
void gqac_sha256_final(gqac_sha256 *state, unsigned char digest[32]);
/* A digest as 64 hex digits and a NUL. */
void gqac_sha256_hex(const unsigned char digest[32], char hex[65]);

#endif
