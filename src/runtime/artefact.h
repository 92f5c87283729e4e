/* The .gqac artefact: a compiled model in one file, mapped rather than read.
 *
 *   header     64 bytes   magic, version, byte order, file length, sections, digest of the rest of
 *                         header and table
 *   table      192 bytes a section: name, offset, length, SHA-256
 *   meta       "key value" lines: target, math, profile, options, source, its digest and parameters
 *   graph      text IR of the tidied graph, large constants by digest
 *   tensors    offset and bytes in `weights` of those constants, in the order of the text
 *   weights    page-aligned constant data
 *   file:NAME  an attached file as it is; any number up to ARTEFACT_MAX_FILES, names unique
 *   baked      page-aligned image of the sequence of a prefix (saved.h); it may be absent
 *
 * An artefact without `baked` has the version from before this section existed, so that earlier
 * programs open it. An artefact with it has the next version, which they refuse.
 *
 * Sections follow each other without overlap, and with nothing but zero padding between them.
 * Everything except weights, files and the baked prefix is verified when an artefact is opened,
 * files when they are read, the prefix when a program for sequences is opened, and all bytes by
 * artefact_verify. */
#ifndef GQAC_RUNTIME_ARTEFACT_H
#define GQAC_RUNTIME_ARTEFACT_H

#include <gqac/gqac.h>

#include "base/file.h"
#include "ir/ir.h"

enum { ARTEFACT_MAX_FILES = 64, ARTEFACT_MAX_NAME = 100, ARTEFACT_MAX_FILE_BYTES = 1 << 28 };

typedef struct artefact_meta {
    const char *target, *math, *profile;
    const char *seqlens_k;     /* "total-1" or "cached" */
    const char *legacy_window; /* "0" or "1" */
    const char *per_row_quant; /* likewise */
    const char *disabled;      /* names of disabled passes, separated by commas */
    const char *source;        /* path of the model it was made from */
    const char *source_digest; /* 64 hex digits: the model and its external data */
    const char *parameters; /* number of elements in the constants of the source, before packing */
} artefact_meta;

/* The contents of a new artefact. */
typedef struct artefact_parts {
    const ir_module *module;
    artefact_meta meta;
    int n_files;
    const gqac_attachment *files;
    const void *baked; /* see baked.h; NULL: there is none */
    size_t baked_bytes;
} artefact_parts;

/* Writes an artefact, whole or not at all. USAGE: an attached file is not allowed, see
 * artefact_check_files. */
gqac_status artefact_write(const char *path, const artefact_parts *parts, gqac_poll *poll,
                           gqac_diag *diag);
/* Checks the number, sizes and names of attached files: names are plain (no separator, not "." or
 * "..", UTF-8 without control characters) and unique. Fails with the given status. */
gqac_status artefact_check_files(int n, const gqac_attachment *files, gqac_status status,
                                 gqac_diag *diag);
/* Opens and checks the artefact that is mapped from `path`. Constants of the module are views of
 * the map, so the caller unmaps it after the module is freed. INVALID_MODEL: it is damaged, or of
 * another version. */
gqac_status artefact_open(const char *path, const gqac_map *map, gqac_arena *arena,
                          ir_module **module, artefact_meta *meta, gqac_diag *diag);
/* Checks the header, the table and the section `meta`, and reads the latter. */
gqac_status artefact_read_meta(const char *path, const gqac_map *map, gqac_arena *arena,
                               artefact_meta *meta, gqac_diag *diag);
/* The section `baked` of an artefact that was opened; NULL: there is none. */
const void *artefact_baked(const gqac_map *map, size_t *bytes);
/* Lists the attached files of an artefact that was opened, and checks them; the list lies in the
 * arena, the data in the map. */
gqac_status artefact_files(const char *path, gqac_arena *arena, const gqac_map *map,
                           const gqac_attachment **files, int *n, gqac_diag *diag);
/* The same, copied to one piece of memory, which the caller frees with gqac_free. */
gqac_status artefact_read_files(const char *path, const gqac_map *map, gqac_attachment **files,
                                int *n, gqac_diag *diag);
/* Checks every byte. */
gqac_status artefact_verify(const char *path, const gqac_map *map, gqac_poll *poll,
                            gqac_diag *diag);
bool artefact_is(const gqac_map *map); /* it starts with the magic */

#endif
