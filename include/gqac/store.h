/* The prefix store: cached rows of many sequences, by their token ids, so that a prompt whose
 * beginning was computed before is not computed again.
 *
 *   gqac_store *store;
 *   gqac_store_create(program, NULL, &store, &diag);
 *   gqac_store_open(store, NULL, ids, n, NULL, &sequence, &reused, &diag);
 *   gqac_sequence_append(context, sequence, ids + reused, n - reused, 1, &diag);
 *
 * Ids are compared one by one, so a hit is the same tokens, and its rows have the bits that a cold
 * run computes. The store holds whole KV blocks by reference; sequences share them and copy a block
 * when they write to it. A store may be used by several threads. */
#ifndef GQAC_STORE_H
#define GQAC_STORE_H

#include <gqac/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_store gqac_store;
typedef struct gqac_store_options {
    size_t size;
    int64_t budget;        /* maximum bytes of blocks and states in memory; 0: none */
    int64_t tenant_budget; /* the same for each tenant; 0: none */
    const char *folder;    /* folder of snapshot files, which exists; NULL: none */
    int64_t folder_budget; /* maximum bytes of these files; 0: none */
} gqac_store_options;
static inline void gqac_store_options_init(gqac_store_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

/* Creates an empty store for sequences of one program, which must outlive it; options NULL:
 * defaults; the caller frees *store. Files that the folder has for this program count as cached.
 * USAGE: a program for stateless runs; OUT_OF_RANGE: a negative budget; IO: the folder; NO_MEMORY.
 */
GQAC_API gqac_status gqac_store_create(const gqac_program *program,
                                       const gqac_store_options *options, gqac_store **store,
                                       gqac_diag *diag);
/* After the sequences that gqac_store_open made, and their forks. Files stay. */
GQAC_API void gqac_store_free(gqac_store *store);

/* Creates a sequence that holds the longest prefix of ids[0..n) that the tenant has in the store,
 * at most n - 1 tokens, so that the last one is left to compute; the caller frees *sequence, before
 * the store. *reused is its length. In a model with recurrent states it is a length that has a
 * state. options as in gqac_sequence_create; caches of other kinds, and of the other side of a
 * LongRoPE threshold (by the final length, else by n), are not found. Each step that succeeds adds
 * the rows of the sequence and of its forks to the store: whole blocks while it decodes, and all
 * rows after a call of several tokens and when the sequence is freed. Sequences of embeddings are
 * known by the ids that the caller gives them. A file that was found but is damaged is not used.
 * tenant NULL: "". No tenant finds what another has computed. OUT_OF_RANGE: n < 1; CAPACITY,
 * NO_MEMORY and others as gqac_sequence_create. */
GQAC_API gqac_status gqac_store_open(gqac_store *store, const char *tenant, const int64_t *ids,
                                     int64_t n, const gqac_sequence_options *options,
                                     gqac_sequence **sequence, int64_t *reused, gqac_diag *diag);
/* Adds all rows of a sequence of the program, wherever it was made. Nothing is added of a sequence
 * with imported tokens, whose ids are unknown, and of one that the budget cannot hold. USAGE:
 * another program; NO_MEMORY. */
GQAC_API gqac_status gqac_store_add(gqac_store *store, const char *tenant,
                                    const gqac_sequence *sequence, gqac_diag *diag);
/* Writes a sequence to the folder of the store, unless a file there holds its tokens already. Files
 * whose tokens it continues are removed where their prefix can be restored from it, and then the
 * files that were used longest ago until the budget is kept. USAGE: no folder, another program, or
 * imported tokens; IO, NO_MEMORY. */
GQAC_API gqac_status gqac_store_save(gqac_store *store, const char *tenant,
                                     const gqac_sequence *sequence, gqac_diag *diag);

/* How many of ids[0..n) the tenant has in memory, in caches of a kind (NULL: contiguous). Nothing
 * is counted as used. */
GQAC_API int64_t gqac_store_match(gqac_store *store, const char *tenant, const char *kv,
                                  const int64_t *ids, int64_t n);
/* Keeps the prefix ids[0..n) in memory until it is unpinned as often as it was pinned. USAGE: the
 * store does not have all of it. */
GQAC_API gqac_status gqac_store_pin(gqac_store *store, const char *tenant, const char *kv,
                                    const int64_t *ids, int64_t n, bool pin, gqac_diag *diag);
/* Removes what was used longest ago, ends of prefixes first, until at most `bytes` remain or all
 * that remains is pinned. Sequences keep their rows. */
GQAC_API void gqac_store_evict(gqac_store *store, int64_t bytes);

typedef struct gqac_store_statistics {
    size_t size;          /* sizeof(gqac_store_statistics), set by the caller */
    int64_t hits, misses; /* calls of gqac_store_open, by whether a token was reused */
    int64_t reused_tokens;
    int64_t computed_tokens;  /* by steps of sequences that the store opened, and their forks */
    int64_t evictions;        /* ends of prefixes that were removed */
    int64_t bytes;            /* of blocks and states in memory, and of what finds them; states that
                                 several prefixes share count for each */
    int64_t blocks, prefixes; /* blocks in memory, and places where sequences end or part */
    int64_t tenants;
    int64_t loaded_files, damaged_files, saved_files; /* of the folder, by this store */
} gqac_store_statistics;
/* USAGE: an impossible size. */
GQAC_API gqac_status gqac_store_get_statistics(gqac_store *store, gqac_store_statistics *statistics,
                                               gqac_diag *diag);

/* A prefix that several calls of gqac_store_open had in common: what is worth pinning. */
typedef struct gqac_store_prefix {
    size_t size;
    const char *tenant;
    int64_t length; /* tokens */
    int64_t uses;   /* calls that found all of them */
} gqac_store_prefix;
/* Writes the `capacity` prefixes in memory that saved the most tokens, uses * length, and were used
 * at least twice; the first saved the most. Returns their number. Texts belong to the store. */
GQAC_API int gqac_store_prefixes(gqac_store *store, int capacity, gqac_store_prefix *prefixes);

/* ---- folders ------------------------------------------------------------- */

/* A file NAME.gqs of a folder of snapshots. */
typedef struct gqac_store_file {
    size_t size;
    const char *name;
    int64_t used;             /* time of the last use, in seconds since 1970 */
    int64_t bytes;            /* of the file */
    gqac_snapshot_file *file; /* NULL: it is damaged, or no snapshot */
    gqac_diag why;            /* then the reason */
} gqac_store_file;
/* Lists the snapshot files of a folder, by name; `whole` checks all bytes of each. The caller frees
 * *files. IO, NO_MEMORY. */
GQAC_API gqac_status gqac_store_folder_list(const char *folder, bool whole, gqac_store_file **files,
                                            size_t *n, gqac_diag *diag);
GQAC_API void gqac_store_folder_free(gqac_store_file *files, size_t n);
/* Removes damaged files, what killed processes left, and the files that were used longest ago until
 * at most `budget` bytes remain; 0: no maximum. *removed counts the files. IO. */
GQAC_API gqac_status gqac_store_folder_clean(const char *folder, int64_t budget, int64_t *removed,
                                             gqac_diag *diag);
/* Copies a snapshot file into a folder, under the name by which a store finds it for a tenant,
 * after a check of all its bytes. *added is false if the folder had it. IO, INVALID_INPUT. */
GQAC_API gqac_status gqac_store_folder_add(const char *folder, const char *tenant, const char *path,
                                           bool *added, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
