/* Writes prefixes to the folder and the remote tier of a store, on a thread of its own, so that no
 * step waits for a disk or another machine. */
#ifndef GQAC_SERVE_SAVER_H
#define GQAC_SERVE_SAVER_H

#include <gqac/store.h>

typedef struct saver saver;
typedef struct saver_counts {
    /* Numbers of sequences. Unsaved: writing to the folder failed, or too many were waiting. A
     * remote tier that fails or is paused is counted by the store alone. */
    int64_t saved, unsaved;
} saver_counts;

/* The caller frees *out before the store. NO_MEMORY. */
gqac_status saver_create(gqac_store *store, saver **out, gqac_diag *diag);
/* Waits until everything that was added has been saved. */
void saver_free(saver *s);
/* Adds the tokens that a sequence has now; they are saved later. If too many are waiting, they are
 * counted as unsaved. */
void saver_add(saver *s, const char *tenant, const gqac_sequence *sequence);
saver_counts saver_get_counts(saver *s);

#endif
