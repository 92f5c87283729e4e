/* The .gqac artefact: a compiled model in one file, mapped rather than read.
 *
 *   header     64 bytes   magic, version, byte order, file length, sections, digest of the rest of
 *                         header and table
 *   table      64 bytes a section: name, offset, length, SHA-256
 *   meta       "key value" lines: target, math, profile, options, source, digest of the source
 *   graph      text IR of the tidied graph, large constants by digest
 *   tensors    offset and bytes in `weights` of those constants, in the order of the text
 *   weights    page-aligned constant data
 *
 * Sections follow each other without overlap or holes but zero padding. Everything but the weight
 * bytes is verified when it is opened; those by artefact_verify. */
#ifndef GQAC_RUNTIME_ARTEFACT_H
#define GQAC_RUNTIME_ARTEFACT_H

#include "base/file.h"
#include "ir/ir.h"

typedef struct artefact_meta {
    const char *target, *math, *profile;
    const char *seqlens_k;     /* "total-1" or "cached" */
    const char *legacy_window; /* "0" or "1" */
    const char *source;        /* path of the model it was made from */
    const char *source_digest; /* 64 hex digits: the model and its external data */
} artefact_meta;

gqac_status artefact_write(const char *path, const ir_module *module, const artefact_meta *meta,
                           gqac_diag *diag);
/* Opens and checks; constants of the module are views of *map, which the caller unmaps last. */
gqac_status artefact_open(const char *path, gqac_arena *arena, ir_module **module,
                          artefact_meta *meta, gqac_map *map, gqac_diag *diag);
/* Checks every byte. */
gqac_status artefact_verify(const char *path, gqac_diag *diag);
bool artefact_is(const char *path); /* the file starts with the magic */

#endif
