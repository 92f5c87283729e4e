/* The prefix store: keeps the cached rows of many sequences, and finds them by token ids, so that a
 * prefix that was computed before is not computed again.
 *
 *   gqac_store *store;
 *   gqac_store_create(program, NULL, &store, &diag);
 *   gqac_store_open(store, NULL, ids, n, NULL, &sequence, &reused, &diag);
 *   gqac_sequence_append(context, sequence, ids + reused, n - reused, 1, &diag);
 *
 * Ids are compared one by one, so a hit has exactly the same tokens, and its rows have the bits
 * that a run without the store computes. The store holds references to whole KV blocks; sequences
 * share these blocks, and copy a block before they write to it. Several threads may use a store at
 * the same time. */
#ifndef GQAC_STORE_H
#define GQAC_STORE_H

#include <gqac/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_store gqac_store;

/* A remote tier: values under keys of 32 bytes, which the stores of several machines share. The
 * host implements it. A function may be called by several threads at the same time, while the store
 * holds no lock. It has `ms` milliseconds, more than 0, and returns false if the tier does not
 * answer in this time. The tier may lose values at any time. It need not be trusted: the store
 * checks each value before it uses it. */
typedef struct gqac_store_key {
    unsigned char bytes[32];
} gqac_store_key;
typedef struct gqac_store_remote {
    size_t size;
    /* Sets sizes[i] to the number of bytes of the value of keys[i]; 0: there is none. n > 0. */
    bool (*find)(void *arg, int64_t ms, const gqac_store_key *keys, size_t n, size_t *sizes);
    /* Sets *bytes to the number of bytes of the value, 0 if there is none, and copies the value to
     * `data` if it has at most `capacity` bytes. */
    bool (*get)(void *arg, int64_t ms, const gqac_store_key *key, void *data, size_t capacity,
                size_t *bytes);
    /* Sets or replaces a value. */
    bool (*put)(void *arg, int64_t ms, const gqac_store_key *key, const void *data, size_t bytes);
    void *arg;
} gqac_store_remote;
static inline void gqac_store_remote_init(gqac_store_remote *remote) {
    memset(remote, 0, sizeof *remote);
    remote->size = sizeof *remote;
}

typedef struct gqac_store_options {
    size_t size;
    int64_t budget;        /* maximum bytes of blocks and states in memory; 0: unlimited */
    int64_t tenant_budget; /* the same for each tenant; 0: unlimited */
    const char *folder;    /* an existing folder, for snapshot files; NULL: none */
    int64_t folder_budget; /* maximum bytes of these files; 0: unlimited */
    const gqac_store_remote *remote; /* is copied; its arg must outlive the store. NULL: none */
    int64_t remote_ms; /* maximum milliseconds for reading one prefix from it, and for writing one
                          value; 0: 500 */
} gqac_store_options;
static inline void gqac_store_options_init(gqac_store_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

/* Creates an empty store for sequences of one program, which must outlive it; options NULL:
 * defaults; the caller frees *store. Files in the folder that belong to this program count as
 * cached. USAGE: the program is for stateless runs, or the remote tier lacks a function;
 * OUT_OF_RANGE: a budget or a time is negative; IO: the folder cannot be read; NO_MEMORY. */
GQAC_API gqac_status gqac_store_create(const gqac_program *program,
                                       const gqac_store_options *options, gqac_store **store,
                                       gqac_diag *diag);
/* Frees the store, after all sequences that gqac_store_open created and their forks. Its files
 * stay. */
GQAC_API void gqac_store_free(gqac_store *store);
GQAC_API const gqac_program *gqac_store_program(const gqac_store *store); /* never NULL */

/* Creates a sequence with the longest prefix of ids[0..n) that the tenant has in the store, but at
 * most n - 1 tokens, so that the last one is left to compute. The caller frees *sequence, before
 * the store. *reused is the length of the sequence; in a model with recurrent states it is a length
 * that has a state. Options are those of gqac_sequence_create. Rows of another kind of cache, or
 * computed on the other side of a LongRoPE threshold (chosen by final_length, or by n if that is
 * 0), are not found. Rows of the sequence and of its forks are added to the store: all of them
 * after a step of at least 16 tokens, and when the sequence is freed; those of full blocks after a
 * shorter step. Sequences of embeddings are found by the ids that the caller gives them. A damaged
 * file is ignored, and so is a remote tier that fails. tenant NULL means "". Tenants never find
 * rows of other tenants; but all find the baked prefix of the program (snapshot.h) where it is
 * longer. A tenant "A\nB" is a part of the tenant "A": it finds its own rows only, and they count
 * against the budget of "A". OUT_OF_RANGE: n < 1; CAPACITY, NO_MEMORY and other errors: as for
 * gqac_sequence_create. */
GQAC_API gqac_status gqac_store_open(gqac_store *store, const char *tenant, const int64_t *ids,
                                     int64_t n, const gqac_sequence_options *options,
                                     gqac_sequence **sequence, int64_t *reused, gqac_diag *diag);
/* Adds the rows of a sequence of the program, however it was created; a row with a NaN or an
 * infinity, and those after it, are never shared. Nothing is added if the sequence has imported
 * tokens, whose ids are unknown, or does not fit the budget. USAGE: the sequence is of another
 * program; NO_MEMORY. */
GQAC_API gqac_status gqac_store_add(gqac_store *store, const char *tenant,
                                    const gqac_sequence *sequence, gqac_diag *diag);
/* Writes a sequence to the folder of the store, unless a file there already holds its tokens, or a
 * row has a NaN or an infinity. A file that holds a prefix of it is removed if that prefix can be
 * restored from the new file; then the least recently used files are removed until the files fit
 * the budget. Writes to the remote tier what it lacks of the full blocks of the sequence; if that
 * fails, it is only counted. USAGE: the store has neither folder nor remote tier, or the sequence
 * is of another program or has imported tokens; IO: the file cannot be written; NO_MEMORY. */
GQAC_API gqac_status gqac_store_save(gqac_store *store, const char *tenant,
                                     const gqac_sequence *sequence, gqac_diag *diag);

/* Returns the number of leading ids of ids[0..n) whose rows the tenant has in memory, in a kind of
 * cache (NULL: contiguous). This does not count as a use. */
GQAC_API int64_t gqac_store_match(gqac_store *store, const char *tenant, const char *kv,
                                  const int64_t *ids, int64_t n);
/* Pins the prefix ids[0..n), or unpins it (pin false). It stays in memory until it was unpinned as
 * often as pinned. USAGE: the store does not have the whole prefix. */
GQAC_API gqac_status gqac_store_pin(gqac_store *store, const char *tenant, const char *kv,
                                    const int64_t *ids, int64_t n, bool pin, gqac_diag *diag);
/* Removes the least recently used rows, from the ends of prefixes, until at most `bytes` remain or
 * everything left is pinned. Sequences keep their rows. */
GQAC_API void gqac_store_evict(gqac_store *store, int64_t bytes);

typedef struct gqac_store_statistics {
    size_t size;          /* sizeof(gqac_store_statistics), set by the caller */
    int64_t hits, misses; /* calls of gqac_store_open that reused tokens, or did not */
    int64_t reused_tokens;
    int64_t computed_tokens; /* by steps of sequences that the store opened, and their forks;
                                drafts that were taken back are not counted */
    int64_t evictions;       /* number of leaves of the index that were removed */
    int64_t bytes; /* of blocks and states in memory, and of the index; states that several prefixes
                      share count for each */
    int64_t blocks, prefixes; /* blocks in memory, and leaves and branch points of the index */
    int64_t tenants; /* tenants with rows in memory or with sequences, and the tenants that these
                        are parts of */
    int64_t loaded_files, damaged_files, saved_files; /* of the folder, by this store */
    /* Of the remote tier: searches in which it had a part of the prefix that memory and folder
     * lack, and those in which it had none. */
    int64_t remote_hits, remote_misses;
    int64_t remote_errors;  /* failed calls. After a failure in a search, searches skip the tier for
                               one second; each further failure doubles this time, up to 32 seconds.
                               Saves do the same on their own */
    int64_t remote_damaged; /* damaged values, which were not used */
    int64_t remote_saved;   /* values that were written */
    int64_t remote_read_bytes, remote_written_bytes; /* of values */
} gqac_store_statistics;
/* Fills *statistics, whose size the caller sets. USAGE: that size is not that of any version of the
 * struct (see options.h). */
GQAC_API gqac_status gqac_store_get_statistics(gqac_store *store, gqac_store_statistics *statistics,
                                               gqac_diag *diag);

/* A prefix that several calls of gqac_store_open had in common, and which may be worth pinning. */
typedef struct gqac_store_prefix {
    const char *tenant;
    int64_t length; /* tokens */
    int64_t uses;   /* number of calls that found the whole prefix */
} gqac_store_prefix;
/* Writes at most `capacity` prefixes that are in memory and were used at least twice to the array:
 * those that saved the most tokens (uses * length), in descending order. Returns their number.
 * Texts belong to the store, and are valid until it is freed. */
GQAC_API int gqac_store_prefixes(gqac_store *store, int capacity, gqac_store_prefix *prefixes);

/* ---- prefixes as tensors -------------------------------------------------- */

/* For a caller that runs the model elsewhere, in a session of ONNX Runtime for example, and keeps
 * past and present itself: it adds presents after a run, and gets pasts before the next one.
 *
 *   gqac_prefix_add(store, NULL, ids, n, NULL, n_pasts, names, presents, &diag);
 *   gqac_prefix_lookup(store, NULL, ids, n, NULL, n_pasts, names, pasts, true, &length, &diag);
 *
 * names[i] is the name of a past or of its present (gqac_program_kv_pairs); all pairs must be
 * given, in any order. Tensors are those of one batch row, [1, heads, capacity, head_size] with the
 * same capacity in all. The program of the store only describes the model. Opened for target "ref"
 * it packs no weights, so it takes little memory. UNSUPPORTED: the model has causal convolutions or
 * recurrent layers, whose pasts are not rows of tokens. */

/* Adds the rows of the tokens ids[0..n): the first n <= capacity rows of each tensor, which are
 * copied. Options (NULL: defaults) are those of gqac_sequence_create; final_length determines which
 * LongRoPE table the rows were computed with. Nothing is added if the rows do not fit the budget.
 * USAGE: a name is unknown, given twice or missing; INVALID_INPUT: wrong type or shape;
 * OUT_OF_RANGE: n < 1, or more than the tensors have; CAPACITY, NO_MEMORY. */
GQAC_API gqac_status gqac_prefix_add(gqac_store *store, const char *tenant, const int64_t *ids,
                                     int64_t n, const gqac_sequence_options *options, int n_pasts,
                                     const char *const *names, const gqac_tensor *pasts,
                                     gqac_diag *diag);
/* Sets *length to the number of leading ids, at most n - 1 and at most the capacity, that
 * gqac_store_open would reuse, and writes their rows to the memory of the tensors. packed true: the
 * tensors become [1, heads, *length, head_size], contiguous at the same address; false: their shape
 * stays, and rows from *length on keep their contents. Options are those of gqac_store_open. Errors
 * are those of gqac_prefix_add; OUT_OF_RANGE: n < 1. After an error *length is not set, and the
 * contents of the memory are unspecified. */
GQAC_API gqac_status gqac_prefix_lookup(gqac_store *store, const char *tenant, const int64_t *ids,
                                        int64_t n, const gqac_sequence_options *options,
                                        int n_pasts, const char *const *names, gqac_tensor *pasts,
                                        bool packed, int64_t *length, gqac_diag *diag);

/* ---- folders ------------------------------------------------------------- */

/* A file NAME.gqs of a folder of snapshots. */
typedef struct gqac_store_file {
    size_t size;
    const char *name;         /* with ".gqs" */
    int64_t used;             /* time of the last use, in nanoseconds since 1970 */
    int64_t bytes;            /* of the file */
    gqac_snapshot_file *file; /* NULL: it is damaged, or no snapshot */
    gqac_diag why;            /* the reason, if file is NULL */
} gqac_store_file;
/* Lists the snapshot files of a folder, sorted by name; `whole`: all bytes of each are checked. The
 * caller frees *files with gqac_store_folder_free. IO: the folder cannot be read; NO_MEMORY. */
GQAC_API gqac_status gqac_store_folder_list(const char *folder, bool whole, gqac_store_file **files,
                                            size_t *n, gqac_diag *diag);
GQAC_API void gqac_store_folder_free(gqac_store_file *files, size_t n);
/* Removes damaged files, files that killed processes have left, and the least recently used files
 * until at most `budget` bytes remain; 0: unlimited. Sets *removed to the number of files. IO: the
 * folder cannot be read, or a file not removed. */
GQAC_API gqac_status gqac_store_folder_clean(const char *folder, int64_t budget, int64_t *removed,
                                             gqac_diag *diag);
/* Checks all bytes of a snapshot file and copies it into a folder, under the name by which a store
 * finds it for the tenant. *added is false if the folder already has it. IO: a file cannot be read
 * or written; INVALID_INPUT: it is damaged, or no snapshot. */
GQAC_API gqac_status gqac_store_folder_add(const char *folder, const char *tenant, const char *path,
                                           bool *added, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
