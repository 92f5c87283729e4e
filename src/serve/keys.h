/* API keys: a file of lines "KEY" or "TENANT KEY". Keys of one tenant reuse the same cached
 * prefixes; a key without a tenant is a tenant of its own. Empty lines and lines that begin with
 * '#' are ignored. */
#ifndef GQAC_SERVE_KEYS_H
#define GQAC_SERVE_KEYS_H

#include <gqac/status.h>

typedef struct keys keys;
/* Reads the file; the caller frees *out. IO: it cannot be read; INVALID_INPUT: a line is wrong, or
 * there is no key. */
gqac_status keys_read(const char *path, keys **out, gqac_diag *diag);
void keys_free(keys *k);
int keys_count(const keys *k);
/* The tenant of a key; NULL: it is unknown. The time depends on neither the key nor the file's
 * contents, only on the number of its keys. */
const char *keys_tenant(const keys *k, const char *key);

#endif
