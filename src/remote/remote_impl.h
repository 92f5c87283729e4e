/* Private to src/remote: addresses, connections, and the exchange of commands and replies. */
#ifndef GQAC_REMOTE_REMOTE_IMPL_H
#define GQAC_REMOTE_REMOTE_IMPL_H

#include "remote/remote.h"

typedef struct address {
    char host[256], port[8]; /* as getaddrinfo reads them */
    char user[128], password[512];
    int database;
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

typedef struct connection connection;
/* Connects, and chooses the database. NULL: that failed, or was not done at `until`
 * (gqac_clock_ns); `why` says so in a few words. */
connection *connection_open(const address *a, int64_t until, char why[96]);
void connection_close(connection *c);
/* Adds a command to those that are sent by the next exchange; false: out of memory. */
bool connection_add(connection *c, int n, const char *const *words, const size_t *lengths);
/* Sends them and receives n replies. False: the connection is of no more use. */
bool connection_exchange(connection *c, size_t n, reply *replies, int64_t until);

#endif
