/* Opening a sequence in two parts, so that nobody who steps waits for a disk or another machine:
 * one thread fetches what memory lacks of a prompt, and another one then opens the sequence. */
#ifndef GQAC_STORE_FETCH_H
#define GQAC_STORE_FETCH_H

#include <gqac/store.h>
#include <stdbool.h>

/* True if the store has a remote tier, so that opening a sequence may take long. */
bool store_has_remote(const gqac_store *store);
/* False: the folder and the remote tier have nothing to add for a prompt, because memory has all of
 * it except less than a block of the tier. `kv` is the kind of cache, as in
 * gqac_sequence_options. */
bool store_can_fetch(gqac_store *store, const char *tenant, const char *kv, const int64_t *ids,
                     int64_t n);
/* Adds to memory what gqac_store_open with the same arguments would find in the folder and in the
 * remote tier, as far as that is possible. `waited`: nanoseconds that the prompt has waited for
 * other ones; after more than the time limit of the tier, the tier is not asked. */
void store_fetch(gqac_store *store, const char *tenant, const int64_t *ids, int64_t n,
                 const gqac_sequence_options *options, int64_t waited);
/* gqac_store_open, but with only the prefix that memory has. */
gqac_status store_open_fetched(gqac_store *store, const char *tenant, const int64_t *ids, int64_t n,
                               const gqac_sequence_options *options, gqac_sequence **sequence,
                               int64_t *reused, gqac_diag *diag);

#endif
