/* A remote tier of the prefix store (store.h) on a server that speaks the Redis protocol, such as
 * Redis or Valkey. These functions are in a separate library, libgqac_remote.so, which is built if
 * hiredis is installed, so that libgqac.so needs neither hiredis nor OpenSSL.
 *
 *   gqac_remote_open(&options, &remote, &diag);
 *   store_options.remote = gqac_remote_functions(remote);
 *
 * A value is the string of the key "gqac:" and 64 hexadecimal digits. Connections are opened when
 * they are needed, and kept. The server is not trusted: no reply can take more memory than its
 * caller expects, and no call takes longer than its time limit. */
#ifndef GQAC_REMOTE_H
#define GQAC_REMOTE_H

#include <gqac/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_remote gqac_remote;

typedef struct gqac_remote_options {
    size_t size;
    /* redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss://... for TLS. */
    const char *address;
    /* For TLS, files in PEM: certificates of the trusted authorities (NULL: those of the system); a
     * client certificate and its key, if the server requires one (NULL: none). */
    const char *ca_file, *cert_file, *key_file;
    /* Called with the reason when a find, get or put fails, once for each reason until such a call
     * succeeds again; on any thread, possibly on several at once. NULL: failures are not reported.
     */
    void (*report)(void *arg, const char *host, const char *why);
    void *arg;
} gqac_remote_options;
static inline void gqac_remote_options_init(gqac_remote_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

/* Reads the address and the files, but does not connect yet. The caller frees *remote, after the
 * stores that use it. USAGE: the address is invalid (the diag shows no part of it, because of the
 * password); or a file for TLS is given, but the address is not for TLS, or this build does not
 * support TLS; or a file has the wrong content; IO: a file cannot be read; NO_MEMORY. On failure
 * *remote is NULL. */
GQAC_API gqac_status gqac_remote_open(const gqac_remote_options *options, gqac_remote **remote,
                                      gqac_diag *diag);
GQAC_API void gqac_remote_free(gqac_remote *remote);
/* For gqac_store_options.remote; valid until the remote tier is freed. */
GQAC_API const gqac_store_remote *gqac_remote_functions(const gqac_remote *remote);

#ifdef __cplusplus
}
#endif
#endif
