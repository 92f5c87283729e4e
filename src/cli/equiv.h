/* The proof of `gqac equiv`: reference bits from a token-by-token run, then plans that must
 * reproduce them. */
#ifndef GQAC_CLI_EQUIV_H
#define GQAC_CLI_EQUIV_H

#include "cli/cli.h"

typedef enum equiv_via {
    EQUIV_SPLIT,
    EQUIV_DECODE,
    EQUIV_IMPORT,
    EQUIV_PREFIX,
    EQUIV_SNAPSHOT,
    EQUIV_VIAS
} equiv_via;

/* The values of --via, in this order. */
extern const char *const equiv_via_names[EQUIV_VIAS];

/* One way of splitting n tokens into calls. */
typedef struct equiv_plan {
    int64_t *chunks;
    int n;
} equiv_plan;

/* One sequence of the batch: its tokens, and the bits that every plan must reproduce. */
typedef struct equiv_row {
    int64_t n;
    int64_t *ids;
    float *embeddings; /* [n,E]; NULL: the model takes ids */
    float *logits;     /* [n,V] */
    gqac_tensor *kv;   /* past tensors, by pair */
} equiv_row;

typedef struct equiv_first { /* the first differing value */
    int plan;
    int64_t position, index;
    int layer;        /* -1: the logits */
    const char *what; /* a past tensor, or "logits" */
    double actual, expected;
} equiv_first;

typedef struct equiv {
    cli *c;
    gqac_program *program, *reference;
    gqac_program *fresh; /* the same model once more, which continues what is on disk; NULL: not
                            needed */
    char folder[256];    /* for files; "": there is none */
    int64_t vocabulary, embedding; /* E of gqac_program_embedding_size */
    float *given;                  /* embeddings of row 0 [n,E]; NULL: they are generated */
    const gqac_kv_pair *pairs;
    int n_pairs;
    int batch;
    equiv_row *rows;
    equiv_plan *plans;
    int n_plans;
    equiv_via via;
    long long compared, differing;
    long long reused, computed; /* tokens, of sequences that continued cached rows */
    double relative;   /* largest max|difference| / max|expected| of a logits row or past tensor */
    int ran;           /* plan runs */
    char profile[128]; /* of the reference bits; "": there are none yet */
    equiv_first first; /* of the first plan that differs */
    bool has_first;
} equiv;

/* The plans of --splits: "all", "random:N" or a list; NULL means all. */
gqac_status equiv_make_plans(equiv *e, const char *splits);
/* Row 0 has the given ids (or n generated ones); the others are shorter, with generated ids. */
gqac_status equiv_make_rows(equiv *e, int batch, const int64_t *ids, int64_t n);
/* Fills the reference bits of all rows for a kind of cache, unless those in place have its profile:
 * token by token, one thread, alone, in a contiguous cache if the kind has the bits of that. */
gqac_status equiv_reference(equiv *e, const char *kv);
/* Writes the profile of a kind of cache; USAGE, UNSUPPORTED: the program cannot have it. */
gqac_status equiv_profile(const equiv *e, const char *kv, char *profile, size_t size);
/* Where plans run. */
typedef struct equiv_run {
    gqac_context *context; /* of e->program */
    gqac_context *fresh;   /* of e->fresh: cached rows come from disk; NULL: from memory */
    const char *kv;
} equiv_run;
/* Runs plan p, and compares. */
gqac_status equiv_run_plan(equiv *e, int p, const equiv_run *where);
void equiv_free(equiv *e);

/* ---- equiv_hits.c ---------------------------------------------------------- */

/* Does a plan begin with cached rows, whose number is its first chunk? */
static inline bool equiv_is_hit(const equiv *e) {
    return e->via == EQUIV_PREFIX || e->via == EQUIV_SNAPSHOT;
}
/* One sequence that continues cached rows. */
typedef struct equiv_hit {
    equiv *e;
    const equiv_row *row;
    int plan;
    int64_t length; /* of the cached prefix */
    const char *kv;
    bool fresh;            /* from disk, in e->fresh */
    gqac_context *context; /* of e->program, for the donor */
} equiv_hit;
/* Creates the sequence, of e->fresh or e->program. *store, which may be set also after a failure,
 * is to be freed after it. MISMATCH: another number of tokens than that of the prefix is reused. */
gqac_status equiv_hit_open(const equiv_hit *h, gqac_store **store, gqac_sequence **sequence);
/* After the rest is computed. MISMATCH: not exactly the tokens that were not reused. */
gqac_status equiv_hit_check(const equiv_hit *h, const gqac_sequence *sequence, int64_t reused);
/* Makes the folder, and removes the files in it. */
gqac_status equiv_hit_folder(equiv *e);
void equiv_hit_clear(const equiv *e);

/* Layer number in the name of a past tensor: its first digits, else the pair's index. */
int equiv_layer(const equiv *e, int pair);

#endif
