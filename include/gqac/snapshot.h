/* Snapshots: sequences at one moment, to continue from any number of times, and as files.
 *
 *   gqac_snapshot *prefix;
 *   gqac_snapshot_take(sequence, &prefix, &diag);
 *   gqac_snapshot_restore(prefix, NULL, &another, &diag);
 *   gqac_snapshot_save(prefix, "prefix.gqs", &diag);
 *
 * A snapshot never changes. It shares the KV blocks and recurrent states of its sequence, so taking
 * and restoring one copies no row; a block is copied when somebody appends to it. Any number of
 * threads may restore, save and read one snapshot at the same time. What is restored computes the
 * same bits as the sequence that was taken, and as one that computed all tokens. */
#ifndef GQAC_SNAPSHOT_H
#define GQAC_SNAPSHOT_H

#include <gqac/sequence.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_snapshot gqac_snapshot;

/* Takes a snapshot of a sequence, which stays as it is; the caller frees *snapshot. The program
 * must outlive it, the sequence need not. NO_MEMORY. */
GQAC_API gqac_status gqac_snapshot_take(const gqac_sequence *sequence, gqac_snapshot **snapshot,
                                        gqac_diag *diag);
GQAC_API void gqac_snapshot_free(gqac_snapshot *snapshot);
/* Creates a sequence with the tokens and rows of the snapshot; the caller frees *sequence. options
 * NULL: capacity and final length are those of the sequence that was taken. Else they are those of
 * the options; the rope tables that its rows were made with stay, and RECOMPUTE of a step says when
 * a final length needs others. USAGE: another kind of cache (NULL: that of the snapshot);
 * OUT_OF_RANGE: a negative capacity or length, or a final length that is exceeded; CAPACITY: the
 * tokens do not fit; NO_MEMORY. */
GQAC_API gqac_status gqac_snapshot_restore(const gqac_snapshot *snapshot,
                                           const gqac_sequence_options *options,
                                           gqac_sequence **sequence, gqac_diag *diag);

GQAC_API const gqac_program *gqac_snapshot_program(const gqac_snapshot *snapshot);
/* Number of tokens. */
GQAC_API int64_t gqac_snapshot_length(const gqac_snapshot *snapshot);
/* How many of the last tokens the first step after a restore computes again: the sequence had been
 * rewound, as gqac_sequence_missing says. */
GQAC_API int64_t gqac_snapshot_missing(const gqac_snapshot *snapshot);
/* The ids of the tokens from position *first on, *count ids, as gqac_sequence_ids returns them.
 * They belong to the snapshot. */
GQAC_API const int64_t *gqac_snapshot_ids(const gqac_snapshot *snapshot, int64_t *first,
                                          int64_t *count);
/* Bytes that the snapshot holds in KV blocks, states and ids. *shared is the part that sequences or
 * other snapshots hold as well; `shared` may be NULL. */
GQAC_API size_t gqac_snapshot_bytes(const gqac_snapshot *snapshot, size_t *shared);

/* ---- files --------------------------------------------------------------- */

/* A snapshot file holds canonical rows ([heads, tokens, head_size]), states, ids, the kind of
 * cache, the geometry of the model, its numerics profile and a digest of model and options, with a
 * SHA-256 for each of these sections and one for the header. It is the form of gqac_sequence_save.
 * A file may come from a stranger: whatever it holds, loading it succeeds or fails, and touches
 * nothing else. But its rows are numbers that nobody can check: load files of people whom you would
 * let write your prompts. */

/* Saves a snapshot. The file appears whole or not at all, also when the process is killed; one that
 * exists is replaced. Takes memory for the whole file. IO, NO_MEMORY. */
GQAC_API gqac_status gqac_snapshot_save(const gqac_snapshot *snapshot, const char *path,
                                        gqac_diag *diag);
/* Loads a snapshot into a program opened from the same model with the same options, target and
 * numerics profile; the caller frees *snapshot. The file is read and checked as a whole before
 * anything is made of it. IO: it cannot be read, or is not a regular file; INVALID_INPUT: it is no
 * snapshot, incomplete, changed, or of another version; USAGE: another model or profile, a program
 * without sequences, an unknown kind; CAPACITY: of the memory budget; NO_MEMORY. */
GQAC_API gqac_status gqac_snapshot_load(const gqac_program *program, const char *path,
                                        gqac_snapshot **snapshot, gqac_diag *diag);

/* What a snapshot file says about itself. */
typedef struct gqac_snapshot_file {
    size_t size;
    uint64_t bytes;      /* of the whole file */
    const char *model;   /* digest of model, options and profile, 64 hexadecimal digits */
    const char *profile; /* as gqac_program_profile */
    const char *kind;    /* of cache */
    int64_t length;      /* tokens */
    int64_t first;       /* tokens before it were imported, and their ids are unknown */
    int64_t n_ids;       /* length - first */
    const int64_t *ids;  /* NULL: there are none */
    int64_t states;      /* recurrent states */
} gqac_snapshot_file;
/* Reads the header and the ids of a snapshot file, without a model, and checks their checksums;
 * `whole`: those of rows and states too. The caller frees *file. IO, INVALID_INPUT as above. */
GQAC_API gqac_status gqac_snapshot_file_open(const char *path, bool whole,
                                             gqac_snapshot_file **file, gqac_diag *diag);
GQAC_API void gqac_snapshot_file_free(gqac_snapshot_file *file);

#ifdef __cplusplus
}
#endif
#endif
