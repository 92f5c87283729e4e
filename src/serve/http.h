/* HTTP/1.1 on libevent: connections with limits and deadlines, one request at a time on each, and
 * replies that are sent whole or as a stream. Everything runs on the thread of the event base.
 *
 * Reading stays switched on while a request is answered, so a client that goes away is noticed at
 * once. libevent's own evhttp does not notice it, has no deadline for slow clients, and no limit of
 * connections; hence this file. */
#ifndef GQAC_SERVE_HTTP_H
#define GQAC_SERVE_HTTP_H

#include <event2/event.h>
#include <gqac/status.h>
#include <stdbool.h>
#include <sys/socket.h>

typedef struct http http;
typedef struct http_exchange http_exchange; /* a request and its reply, on a connection */

typedef struct http_limits {
    size_t head;            /* maximum bytes of the request line and headers */
    size_t body;            /* maximum bytes of a body */
    size_t unsent;          /* maximum bytes of replies that the client has not read yet */
    int connections;        /* maximum number of connections */
    int per_peer;           /* the same from one address */
    double request_seconds; /* from the first byte of a request to its last */
    double idle_seconds;    /* without a request */
    double write_seconds;   /* without the client reading anything of a reply */
} http_limits;

typedef struct http_events {
    /* The head of a request with a body has arrived. False: it is answered without its body, and
     * the connection is closed. */
    bool (*admit)(void *arg, http_exchange *x);
    /* A whole request has arrived. Sooner or later one of the replies below must follow. */
    void (*request)(void *arg, http_exchange *x);
    /* The client has gone away before its reply was complete (499), or there was no memory to
     * send it (500). No reply may follow. */
    void (*gone)(void *arg, http_exchange *x, int status);
    /* A request is refused, because it is not complete, or because its client has closed its side
     * while it is answered; replies with http_reply. */
    void (*refuse)(void *arg, http_exchange *x, int status, const char *message);
    void *arg;
} http_events;

/* Listens on an address; the caller frees *out. USAGE: the host is unknown; IO: the port is taken
 * or may not be used. */
gqac_status http_create(struct event_base *base, const char *host, int port,
                        const http_limits *limits, const http_events *events, http **out,
                        gqac_diag *diag);
/* Closes all connections. */
void http_free(http *h);
int http_port(const http *h);
bool http_is_loopback(const http *h); /* only this machine can connect */
/* Accepts no more connections, and closes each open one after its reply. */
void http_stop(http *h);
int http_connections(const http *h);

/* ---- a request ----------------------------------------------------------- */

const char *http_method(const http_exchange *x);
const char *http_path(const http_exchange *x); /* without the query; not decoded */
/* Value of a header, by its name in lower case; NULL: there is none. */
const char *http_header(const http_exchange *x, const char *name);
const char *http_body(const http_exchange *x, size_t *length); /* NULL: no memory */
const char *http_peer(const http_exchange *x);                 /* "127.0.0.1" */
/* A pointer for the code that answers the request; NULL at the beginning of each request. */
void http_set_user(http_exchange *x, void *user);
void *http_user(const http_exchange *x);

/* ---- its reply ----------------------------------------------------------- */

/* A whole reply. `headers`: further lines, each ending in "\r\n"; NULL: none. */
void http_reply(http_exchange *x, int status, const char *type, const char *headers,
                const void *body, size_t length);
/* A reply in pieces: its head, any number of pieces, its end. */
void http_stream_begin(http_exchange *x, const char *type, const char *headers);
/* False: the client has left too much unread, or memory ran out, and http_abort is to be called. */
bool http_stream_send(http_exchange *x, const void *data, size_t length);
/* What http_stream_send would return now. */
bool http_may_send(const http_exchange *x);
void http_stream_end(http_exchange *x);
bool http_is_streaming(const http_exchange *x);
/* Ends the connection without the rest of the reply; http_events.gone is not called. */
void http_abort(http_exchange *x);

#endif
