/* Private to http.c and http_parse.c: a connection, which is also the exchange of its current
 * request. */
#ifndef GQAC_SERVE_HTTP_IMPL_H
#define GQAC_SERVE_HTTP_IMPL_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>

#include "serve/http.h"
#include "serve/memory.h"

enum { HTTP_HEADERS = 100 }; /* maximum number of headers of a request */

typedef enum http_state {
    HTTP_HEAD,       /* waits for a request, or reads its lines */
    HTTP_BODY,       /* reads `wanted` more bytes */
    HTTP_CHUNK_SIZE, /* the same for chunks */
    HTTP_CHUNK,
    HTTP_CHUNK_END,
    HTTP_TRAILER,
    HTTP_RUNNING,  /* is being answered */
    HTTP_CLOSING,  /* sends the last reply */
    HTTP_LINGERING /* has sent it, and waits for the client to read it and close */
} http_state;

typedef struct http_line {
    char *name, *value; /* in one allocation, `name` */
} http_line;

struct http_exchange {
    http *server;
    http_exchange *before, *after; /* all connections */
    struct bufferevent *pipe;
    struct event *timer;
    char peer[64];
    http_state state;
    bool busy;      /* in http_advance */
    bool close;     /* after this reply */
    bool streaming; /* the head of a streamed reply was sent */
    bool broken;    /* is freed soon */
    size_t unsent;  /* bytes of replies when the timer last expired; 0: it has not */
    /* the request */
    bool begun; /* its first byte has arrived */
    char *line; /* "GET\0/path\0": the method, the path */
    char *path;
    int minor;   /* of HTTP/1.x */
    size_t head; /* bytes of the head, of lines of chunks, or of the trailer, so far */
    int n_headers;
    http_line headers[HTTP_HEADERS];
    size_t wanted;
    struct evbuffer *body;
    void *user;
};

struct http {
    struct event_base *base;
    struct evconnlistener *listener;
    struct event *retry; /* listens again after a failure to accept */
    http_limits limits;
    http_events events;
    http_exchange *all;
    int n;
    int port;
    bool loopback;
};

/* Parses what has arrived, and answers it, as far as possible. */
void http_advance(http_exchange *x);
/* Frees what belongs to the request. */
void http_forget(http_exchange *x);
/* Frees the connection as soon as nothing on the stack uses it. */
void http_break(http_exchange *x);
/* To be called after a call of libevent for a connection. `failures`: memory_failures() before the
 * call. False: memory ran out, so that the call may have left out bytes, and the connection is
 * broken. */
bool http_is_whole(http_exchange *x, size_t failures);
/* Refuses the request, and closes the connection after the reply. */
void http_refuse(http_exchange *x, int status, const char *message);

#endif
