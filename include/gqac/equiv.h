/* The proof that no bit depends on how tokens are split into calls. A first run computes the
 * reference: token by token, on one thread, with a contiguous cache. Then every plan (a list of
 * chunks, with a batch, threads, a kind of cache, a cached prefix) must reproduce the logits of
 * every position and all cached rows. They are compared with memcmp.
 *
 *   gqac_equiv *equiv;
 *   gqac_equiv_options options = {.size = sizeof options};
 *   gqac_equiv_create(program, &options, &equiv, &diag);
 *   gqac_equiv_run(equiv, &diag);
 *   printf("%lld differing values", (long long)gqac_equiv_get_report(equiv)->differing);
 *   gqac_equiv_free(equiv);
 */
#ifndef GQAC_EQUIV_H
#define GQAC_EQUIV_H

#include <gqac/sequence.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the chunks of a plan are computed. SPLIT: one call for each; between calls a sequence other
 * than the first may continue in a fork, or be rewound. DECODE: the first chunk of a plan, then
 * single tokens. IMPORT: as SPLIT, but past tensors are exported and imported after the first call.
 * PREFIX, SNAPSHOT: the first chunk is reused from a prefix store or a snapshot. BAKED: the first
 * chunk is the prefix that is baked into the artefact of the program (snapshot.h); generated ids
 * begin with it. */
typedef enum gqac_equiv_via {
    GQAC_EQUIV_SPLIT,
    GQAC_EQUIV_DECODE,
    GQAC_EQUIV_IMPORT,
    GQAC_EQUIV_PREFIX,
    GQAC_EQUIV_SNAPSHOT,
    GQAC_EQUIV_BAKED
} gqac_equiv_via;
/* "split", "decode", "import", "prefix", "snapshot", "baked"; NULL for other numbers. */
GQAC_API const char *gqac_equiv_via_name(int via);

typedef struct gqac_equiv_series { /* all plans with one number of threads and one kind of cache */
    size_t size;
    const char *kv;
    int threads;
    int planned, ran;            /* its plans, and those of them that have run */
    int64_t compared, differing; /* values */
} gqac_equiv_series;

typedef struct gqac_equiv_first { /* the first differing value of the first plan that differs */
    size_t size;
    int64_t position, index; /* index: in the logits of the position, or in the past tensor */
    int layer;               /* -1: the logits */
    const char *what;        /* a past tensor, or "logits" */
    double actual, expected;
    int n_chunks; /* the plan: lengths of the calls of the first sequence */
    const int64_t *chunks;
} gqac_equiv_first;

typedef struct gqac_equiv_report { /* the outcome so far; it belongs to the gqac_equiv */
    size_t size;
    int64_t tokens, vocabulary;
    int batch;
    const int64_t *ids;          /* of the first sequence [tokens] */
    const float *logits;         /* reference bits of the first sequence [tokens, vocabulary] */
    const char *profile;         /* numerics profile of the first kind of cache */
    int planned, ran;            /* plans of all series, and those of them that have run */
    int64_t compared, differing; /* values */
    int64_t reused_tokens, computed_tokens; /* of sequences that continued cached rows */
    double relative;               /* largest max|difference| / max|expected| of a tensor */
    const gqac_equiv_first *first; /* NULL: nothing differs */
    int n_series;                  /* series that are complete */
    const gqac_equiv_series *series;
} gqac_equiv_report;

/* Every field that is 0 or NULL has its default. What it points to must outlive the gqac_equiv. */
typedef struct gqac_equiv_options {
    size_t size;
    int64_t tokens; /* number of tokens of the first sequence; 0: 64, if `ids` is NULL (with BAKED
                       they follow the prefix) */
    const int64_t *ids;      /* [tokens], at least one; NULL: generated */
    const float *embeddings; /* [tokens, E], for a model that takes embeddings; NULL: generated */
    /* Which plans are run. `random` > 0: this many random lists of chunks. Else n_chunks > 0: these
     * chunks, and a last one with the remaining tokens. Else every split into two calls, all tokens
     * in one call, and token by token; with PREFIX, SNAPSHOT and BAKED, cached prefixes of every
     * length up to 200 tokens, then of lengths near powers of two times 64 (of every length if
     * `every_hit`). */
    int64_t random;
    int n_chunks;
    const int64_t *chunks;
    bool every_hit;
    gqac_equiv_via via;
    int batch;     /* sequences in each call; the others are shorter and split at random; 0: 1 */
    int n_threads; /* numbers of threads to test; 0: gqac_threads_default alone */
    const int *threads;
    int n_kv; /* kinds of cache to test; 0: contiguous */
    const char *const *kv;
    double budget; /* seconds after which no further plan begins (the first always runs); 0:
                      unlimited */
    const gqac_program *reference; /* makes the reference bits; NULL: the program itself */
    /* For PREFIX and SNAPSHOT: the same model opened once more. Each plan then also runs in this
     * program, with cached rows that were saved to disk. NULL: they come from memory only. */
    const gqac_program *fresh;
    const gqac_monitor *monitor;                                 /* of all steps; NULL: none */
    void (*on_plan)(void *arg, const gqac_equiv_report *so_far); /* after each plan; may be NULL */
    void (*on_series)(void *arg, const gqac_equiv_series *series); /* after each; may be NULL */
    void *arg;
} gqac_equiv_options;

typedef struct gqac_equiv gqac_equiv;
/* Prepares a proof; the caller frees *equiv, before the programs. OUT_OF_RANGE: a number is
 * negative, `ids` is given with 0 tokens, an id is not in the vocabulary, or the chunks have more
 * tokens than there are; USAGE: a kind of cache is unknown, a program is stateless, or, with BAKED,
 * nothing is baked for a kind; UNSUPPORTED: the vocabulary is not fixed, or the model cannot have a
 * kind; IO: `fresh` is given, and no folder can be created in $TMPDIR (or /tmp). */
GQAC_API gqac_status gqac_equiv_create(const gqac_program *program,
                                       const gqac_equiv_options *options, gqac_equiv **equiv,
                                       gqac_diag *diag);
GQAC_API void gqac_equiv_free(gqac_equiv *equiv);
/* Runs the proof. Call it once. Differing values are counted in the report; they are no error.
 * MISMATCH: a cached token was not reused, or another token was not computed exactly once; ABORTED:
 * the monitor ended it; the other errors are those of gqac_step. */
GQAC_API gqac_status gqac_equiv_run(gqac_equiv *equiv, gqac_diag *diag);
/* Returns the report so far, which belongs to the gqac_equiv: ids and profile before the run, the
 * rest after it. */
GQAC_API const gqac_equiv_report *gqac_equiv_get_report(const gqac_equiv *equiv);

/* ---- parts of such proofs ------------------------------------------------- */

/* Fills ids[0..n) with pseudorandom ids of a vocabulary, always the same for the same seed. */
GQAC_API void gqac_random_ids(uint64_t seed, int64_t vocabulary, int64_t n, int64_t *ids);

/* The past tensor of a pair, [1, heads, rows, head_size], with memory of its own, which the caller
 * frees with gqac_tensor_free; on failure data is NULL. Errors are those of gqac_sequence_export;
 * NO_MEMORY. */
GQAC_API gqac_status gqac_sequence_past(const gqac_sequence *sequence, const gqac_kv_pair *pair,
                                        gqac_tensor *past, gqac_diag *diag);
/* Imports all past tensors of a sequence into n empty sequences of its program, which share no
 * memory with it. Errors are those of gqac_sequence_past and gqac_sequence_import. */
GQAC_API gqac_status gqac_sequence_copy(const gqac_sequence *sequence, int n,
                                        gqac_sequence *const *copies, gqac_diag *diag);

typedef struct gqac_comparison {
    double relative; /* max|actual - expected| / max|expected|; infinite when one is NaN or infinite
                        and the other is not the same, or when type or shape differ */
    int64_t index; /* index of the element with the largest difference; -1: type or shape differ */
    double actual, expected;
} gqac_comparison;
/* Compares two tensors of a numeric type or bool. Elements that are both NaN, or the same infinity,
 * are equal. gqac_comparison never grows. */
GQAC_API gqac_comparison gqac_compare(const gqac_tensor *actual, const gqac_tensor *expected);

#ifdef __cplusplus
}
#endif
#endif
