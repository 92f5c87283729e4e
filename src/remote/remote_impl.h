/* Private to src/remote: addresses, connections with or without TLS, and the exchange of commands
 * and replies. */
#ifndef GQAC_REMOTE_REMOTE_IMPL_H
#define GQAC_REMOTE_REMOTE_IMPL_H

#include <sys/types.h>

#include "remote/remote.h"

enum { WHY = 384 }; /* bytes of a text that says why something failed */
#define NOT_REDIS "it does not answer as Redis does"

typedef struct address {
    char host[256], port[8]; /* as getaddrinfo reads them */
    char user[128], password[512];
    int database;
    bool tls;
} address;
/* False: the text is not the address of a server. */
bool address_read(const char *text, address *out);

/* One reply, or the part of it that is wanted. */
typedef struct reply {
    int type;          /* REDIS_REPLY_... */
    long long integer; /* of that type */
    void *data;        /* where a string is copied to, if it has at most `capacity` bytes */
    size_t capacity, bytes;
    char error[96]; /* the beginning of an error or a status */
} reply;

/* ---- TLS ----------------------------------------------------------------- */

/* Waits for POLLIN or POLLOUT of a socket; false: it is not ready at `until` (gqac_clock_ns). */
bool socket_wait(int fd, short events, int64_t until);

typedef struct tls_context tls_context; /* which certificates are trusted, and which one is ours */
/* Reads the files of the options. USAGE: this build has no TLS, or a file is not what it must be;
 * IO: a file cannot be read; NO_MEMORY. */
gqac_status tls_context_open(const gqac_remote_options *options, tls_context **out,
                             gqac_diag *diag);
void tls_context_free(tls_context *context);

typedef struct tls tls;
/* Begins TLS on a socket that is connected to `host` and does not block, and checks the certificate
 * of the server. The socket remains the caller's. NULL: that failed, and `why` is set, or the time
 * `until` came first. */
tls *tls_open(const tls_context *context, int fd, const char *host, int64_t until, char why[WHY]);
void tls_close(tls *t);
/* Like send and recv on a non-blocking socket: -1 with EAGAIN if the caller must wait for *wants,
 * POLLIN or POLLOUT; -1 with EPROTO if the connection cannot continue, and `why` may say more. */
ssize_t tls_send(tls *t, const void *data, size_t bytes, short *wants, char why[WHY]);
ssize_t tls_receive(tls *t, void *data, size_t bytes, short *wants, char why[WHY]);

/* ---- connections --------------------------------------------------------- */

typedef struct connection connection;
/* Connects, and chooses the database; context NULL: without TLS. NULL: that failed, and `why` is
 * set, or the time `until` (gqac_clock_ns) came first. */
connection *connection_open(const address *a, const tls_context *context, int64_t until,
                            char why[WHY]);
void connection_close(connection *c);
/* Adds a command to those that are sent by the next exchange; false: out of memory. */
bool connection_add(connection *c, int n, const char *const *words, const size_t *lengths);
/* Sends them and receives n replies. False: the connection is of no more use; `why` is set unless
 * the time is over. */
bool connection_exchange(connection *c, size_t n, reply *replies, int64_t until, char why[WHY]);

#endif
