/* Shared by the sources of the proof that the division of tokens into calls changes no bit. */
#ifndef GQAC_EQUIV_IMPL_H
#define GQAC_EQUIV_IMPL_H

#include "base/diag.h"

#include <gqac/equiv.h>
#include <gqac/files.h>
#include <gqac/store.h>

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

typedef struct gqac_equiv {
    gqac_diag *diag; /* of the call that is running; may be NULL */
    gqac_equiv_options options;
    gqac_equiv_report report;
    gqac_equiv_first first;
    gqac_equiv_series *series;
    const gqac_program *program, *reference;
    const int64_t *baked; /* ids of the prefix of the artefact; NULL: not needed */
    int64_t n_baked;
    char folder[256];              /* for files; "": there is none */
    int64_t vocabulary, embedding; /* E of gqac_program_embedding_size */
    const gqac_kv_pair *pairs;
    int n_pairs;
    int batch;
    equiv_row *rows;
    equiv_plan *plans;
    int n_plans;
    char first_profile[128]; /* of the first kind of cache */
    char profile[128];       /* of the reference bits; "": there are none yet */
    bool has_first;
    double start; /* seconds */
} equiv;

/* The next number of a small deterministic generator (splitmix64). */
static inline uint64_t equiv_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* A context with the monitor of the options. */
gqac_status equiv_context(const equiv *e, const gqac_program *program, int threads,
                          gqac_context **context);
/* Keeps the first difference of a plan for the report, unless an earlier plan differed. */
void equiv_note_first(equiv *e, const equiv_first *first);

/* ---- rows.c ---------------------------------------------------------------- */

/* The plans that the options ask for. */
gqac_status equiv_make_plans(equiv *e);
/* Row 0 has the given ids (or n generated ones); the others are shorter, with generated ids. */
gqac_status equiv_make_rows(equiv *e, int batch, const int64_t *ids, int64_t n);
/* Fills the reference bits of all rows for a kind of cache, unless those in place have its profile:
 * token by token, one thread, alone, in a contiguous cache if the kind has the bits of that. */
gqac_status equiv_reference(equiv *e, const char *kv);
/* Writes the profile of a kind of cache; USAGE, UNSUPPORTED: the program cannot have it. */
gqac_status equiv_profile(const equiv *e, const char *kv, char *profile, size_t size);
void equiv_free_rows(equiv *e);

/* ---- run.c ----------------------------------------------------------------- */

/* Where plans run. */
typedef struct equiv_run {
    gqac_context *context; /* of e->program */
    gqac_context *fresh;   /* of the fresh program: cached rows come from disk; NULL: memory */
    const char *kv;
} equiv_run;
/* Runs plan p, and compares. */
gqac_status equiv_run_plan(equiv *e, int p, const equiv_run *where);

/* ---- hits.c ---------------------------------------------------------------- */

/* True if a plan begins with cached rows, whose number is its first chunk. */
static inline bool equiv_is_hit(const equiv *e) {
    const gqac_equiv_via via = e->options.via;
    return via == GQAC_EQUIV_PREFIX || via == GQAC_EQUIV_SNAPSHOT || via == GQAC_EQUIV_BAKED;
}
/* True if these rows come from disk as well. */
static inline bool equiv_is_saved(const equiv *e) {
    return equiv_is_hit(e) && e->options.via != GQAC_EQUIV_BAKED && e->options.fresh;
}
/* Via baked: finds the prefix of the artefact. USAGE: there is none. */
gqac_status equiv_hit_find_baked(equiv *e);
/* USAGE: sequences of that kind cannot continue it. */
gqac_status equiv_hit_check_baked(const equiv *e, const char *kv);
/* One sequence that continues cached rows. */
typedef struct equiv_hit {
    equiv *e;
    const equiv_row *row;
    int plan;
    int64_t length; /* of the cached prefix */
    const char *kv;
    bool fresh;            /* from disk, in the fresh program */
    gqac_context *context; /* of e->program, for the donor */
} equiv_hit;
/* Creates the sequence, of the fresh program or of e->program. The caller frees *store, which may
 * be set even after a failure, after the sequence. MISMATCH: the number of reused tokens is not
 * that of the prefix. */
gqac_status equiv_hit_open(const equiv_hit *h, gqac_store **store, gqac_sequence **sequence);
/* To be called after the rest was computed. MISMATCH: the computed tokens are not exactly those
 * that were not reused. */
gqac_status equiv_hit_check(const equiv_hit *h, const gqac_sequence *sequence, int64_t reused);
/* Makes the folder, and removes the files in it. */
gqac_status equiv_hit_folder(equiv *e);
void equiv_hit_clear(const equiv *e);

/* Layer number in the name of a past tensor: its first digits, else the pair's index. */
int equiv_layer(const equiv *e, int pair);

#endif
