/* The prefix that is baked into an artefact: an image of its sequence (saved.h), which the program
 * of the artefact reads in place. The memory is that of the mapped file, so all processes that open
 * the artefact share it, and nothing is read before it is needed. */
#ifndef GQAC_RUNTIME_BAKED_H
#define GQAC_RUNTIME_BAKED_H

#include "runtime/sequence.h"

/* Makes the section of an artefact; the caller frees *data with gqac_free. */
gqac_status baked_make(const gqac_sequence *sequence, void **data, size_t *bytes, gqac_diag *diag);
/* Makes the snapshot of a program for sequences, from the section of its artefact, which must
 * outlive the program. INVALID_MODEL: it is damaged, or was made for another graph, profile or
 * layout. */
gqac_status baked_open(gqac_program *program, const void *data, size_t bytes, gqac_diag *diag);

typedef struct baked_description {
    int64_t tokens;
    char kind[16];
} baked_description;
/* Reads the header of a section. INVALID_MODEL: it is damaged. */
gqac_status baked_describe(const void *data, size_t bytes, baked_description *out, gqac_diag *diag);

/* The number of leading ids of ids[0..n), at most n - 1, that an empty sequence can take from the
 * baked prefix of its program. */
int64_t baked_match(const gqac_sequence *sequence, const int64_t *ids, int64_t n);
/* Fills the sequence with the first `length` of them. CAPACITY, NO_MEMORY: it is still empty. */
gqac_status baked_share(gqac_sequence *sequence, const int64_t *ids, int64_t length,
                        gqac_diag *diag);

#endif
