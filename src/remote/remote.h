/* A remote tier of the prefix store (gqac_store_remote) on a server that speaks the protocol of
 * Redis, such as Redis or Valkey.
 *
 * A value is the string of the key "gqac:" and 64 hexadecimal digits. Connections are made when
 * they are needed, and kept. The server is not trusted: no reply can take more memory than was
 * asked for, and no call takes more time than it was given. */
#ifndef GQAC_REMOTE_REMOTE_H
#define GQAC_REMOTE_REMOTE_H

#include <gqac/store.h>

typedef struct remote remote;

typedef struct remote_options {
    /* redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss://... for TLS. */
    const char *address;
    /* For TLS, files in PEM: certificates of the authorities that are trusted (NULL: those of the
     * system); a certificate and its key, for a server that wants one (NULL: none). */
    const char *ca_file, *cert_file, *key_file;
    /* Is told why a find, get or put failed, once for each reason until such a call works again; by
     * any thread, perhaps by several at once. NULL: nobody is told. */
    void (*report)(void *arg, const char *host, const char *why);
    void *arg;
} remote_options;

/* Reads the address and the files, and connects to nothing. The caller frees *out, after the stores
 * that use it. USAGE: the address is none, and the diag shows no part of it, because of the
 * password; or a file is for TLS, but the address is not, or this build has no TLS; or a file is
 * not what it must be; IO: a file cannot be read; NO_MEMORY. */
gqac_status remote_open(const remote_options *options, remote **out, gqac_diag *diag);
void remote_free(remote *r);
/* All calls from now on have that many milliseconds together; then they fail at once. */
void remote_end_within(remote *r, int64_t ms);
/* The functions for a store. */
gqac_store_remote remote_functions(remote *r);

/* What the server says about itself. */
typedef struct remote_state {
    char version[32], policy[32]; /* maxmemory-policy: what is removed when memory is full */
    long long keys;               /* in the database, whoever wrote them */
    long long memory, most;       /* bytes, and their maximum; 0: none */
    long long hits, misses;       /* of keys, since it was started, whoever asked */
    long long evicted;            /* keys that were removed for lack of memory */
} remote_state;
/* IO: the server does not answer within that time; `why` may say more. */
gqac_status remote_ask(remote *r, int64_t ms, remote_state *state, gqac_diag *diag);

#endif
