/* Snapshots: sequences frozen at one moment, from which any number of sequences can continue, and
 * which can be stored in a file.
 *
 *   gqac_snapshot *prefix;
 *   gqac_snapshot_take(sequence, &prefix, &diag);
 *   gqac_snapshot_restore(prefix, NULL, &another, &diag);
 *   gqac_snapshot_save(prefix, "prefix.gqs", &diag);
 *
 * A snapshot never changes. It shares the KV blocks and recurrent states of its sequence, so taking
 * and restoring one copies no rows; a block is copied when a sequence appends to it. Any number of
 * threads may restore, save and read one snapshot at the same time. A restored sequence computes
 * the same bits as the original sequence, and as one that computed all tokens. */
#ifndef GQAC_SNAPSHOT_H
#define GQAC_SNAPSHOT_H

#include <gqac/sequence.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_snapshot gqac_snapshot;

/* Takes a snapshot of a sequence, which does not change; the caller frees *snapshot. The program
 * must outlive the snapshot; the sequence need not. NO_MEMORY. */
GQAC_API gqac_status gqac_snapshot_take(const gqac_sequence *sequence, gqac_snapshot **snapshot,
                                        gqac_diag *diag);
GQAC_API void gqac_snapshot_free(gqac_snapshot *snapshot);
/* Creates a sequence with the tokens and rows of the snapshot; the caller frees *sequence, before
 * the program. options NULL: capacity and final length are those of the original sequence.
 * Otherwise they are those of the options, and the kind of cache may be NULL (that of the
 * snapshot). The cached rows keep the LongRoPE table that they were computed with; if a final
 * length needs the other one, the next step fails with RECOMPUTE. USAGE: the options name another
 * kind of cache; OUT_OF_RANGE: capacity or final length is negative, or the final length is less
 * than the snapshot's length; CAPACITY: the tokens do not fit; NO_MEMORY. */
GQAC_API gqac_status gqac_snapshot_restore(const gqac_snapshot *snapshot,
                                           const gqac_sequence_options *options,
                                           gqac_sequence **sequence, gqac_diag *diag);

/* Returns the prefix that was baked into the artefact from which a program was opened
 * (gqac_options.bake); NULL: there is none, or the program is for stateless runs. It belongs to the
 * program. Its rows are read from the mapped file, so processes that open the artefact share them;
 * they are not counted by gqac_program_memory_used. gqac_sequence_begin, gqac_store_open, sessions
 * and schedulers reuse it by themselves. */
GQAC_API const gqac_snapshot *gqac_program_baked(const gqac_program *program);

GQAC_API const gqac_program *gqac_snapshot_program(const gqac_snapshot *snapshot); /* never NULL */
/* Number of tokens. */
GQAC_API int64_t gqac_snapshot_length(const gqac_snapshot *snapshot);
/* Number of tokens, the last ones, that the first step after a restore computes again because the
 * original sequence had been rewound: see gqac_sequence_missing. */
GQAC_API int64_t gqac_snapshot_missing(const gqac_snapshot *snapshot);
/* Returns the *count ids of the tokens from position *first on, as gqac_sequence_ids does. They
 * belong to the snapshot. */
GQAC_API const int64_t *gqac_snapshot_ids(const gqac_snapshot *snapshot, int64_t *first,
                                          int64_t *count);
/* Number of bytes that the snapshot holds in KV blocks, states and ids. *shared is the part that
 * sequences or other snapshots hold too; `shared` may be NULL. */
GQAC_API size_t gqac_snapshot_bytes(const gqac_snapshot *snapshot, size_t *shared);

/* ---- files --------------------------------------------------------------- */

/* A snapshot file has the form of gqac_sequence_save: rows as [heads, tokens, head_size], states,
 * ids, the kind of cache, the shapes of the past tensors, the numerics profile and a digest of
 * model and options, with a SHA-256 of each of these sections and of the header. Loading an
 * untrusted file is safe for the process: it succeeds or fails, and changes nothing else. But the
 * numbers in its rows cannot be checked, and they act like the text of a prompt: load files only
 * from people whom you would let write your prompts. */

/* Saves a snapshot. The file appears whole or not at all, even if the process is killed; an
 * existing file is replaced. The call allocates memory for the whole file. IO: the file cannot be
 * written; NO_MEMORY. */
GQAC_API gqac_status gqac_snapshot_save(const gqac_snapshot *snapshot, const char *path,
                                        gqac_diag *diag);
/* Loads a snapshot into a program opened from the same model with the same options, target and
 * numerics profile; the caller frees *snapshot. The whole file is read and checked before anything
 * is created. IO: it cannot be read, or is not a regular file; INVALID_INPUT: it is not a snapshot,
 * incomplete, damaged, or of another version; USAGE: it is of another model or profile, the program
 * is for stateless runs, or the kind of cache is unknown; CAPACITY: the memory budget is used up;
 * NO_MEMORY. */
GQAC_API gqac_status gqac_snapshot_load(const gqac_program *program, const char *path,
                                        gqac_snapshot **snapshot, gqac_diag *diag);

/* The description of a snapshot file; its texts and ids belong to it. */
typedef struct gqac_snapshot_file {
    size_t size;
    uint64_t bytes;      /* size of the whole file */
    const char *model;   /* digest of model, options and profile, 64 hexadecimal digits */
    const char *profile; /* see gqac_program_profile */
    const char *kind;    /* kind of cache */
    int64_t length;      /* tokens */
    int64_t first; /* position of the first id; tokens before it were imported, and their ids are
                      unknown */
    int64_t n_ids; /* length - first */
    const int64_t *ids;             /* NULL: there are none */
    int64_t states;                 /* recurrent states */
    uint64_t tables;                /* LongRoPE tables that computed the rows: bit g is set if the
                                       condition of the g-th choice of the model was true */
    const int64_t *state_positions; /* [states], ascending: how many tokens each state has seen */
} gqac_snapshot_file;
/* Reads the header and the ids of a snapshot file, without a model, and checks their checksums;
 * `whole`: also those of rows and states. The caller frees *file. IO, INVALID_INPUT: as for
 * gqac_snapshot_load. */
GQAC_API gqac_status gqac_snapshot_file_open(const char *path, bool whole,
                                             gqac_snapshot_file **file, gqac_diag *diag);
/* Sets *is to whether a file begins as snapshot files do, damaged or not. IO: it cannot be read. */
GQAC_API gqac_status gqac_snapshot_file_is(const char *path, bool *is, gqac_diag *diag);
GQAC_API void gqac_snapshot_file_free(gqac_snapshot_file *file);

#ifdef __cplusplus
}
#endif
#endif
