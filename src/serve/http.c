/* Connections: accepting, deadlines, replies, the end. Nothing on the stack uses a connection when
 * it is freed: `http_abort` must not be called from a callback of `http_events`. */
#include "serve/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/diag.h"
#include "serve/http_impl.h"

enum { BACKLOG = 512, LINGER_SECONDS = 1 };

/* ---- connections --------------------------------------------------------- */

static void set_timer(http_exchange *x, double seconds) {
    const struct timeval t = {(time_t)seconds,
                              (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
    /* the timer of a broken connection is active already, and adding it would deactivate it */
    if (!x->broken && evtimer_add(x->timer, &t) != 0)
        http_break(x);
}

void http_break(http_exchange *x) {
    x->broken = x->close = true;
    event_active(x->timer, EV_TIMEOUT, 1);
}

bool http_is_whole(http_exchange *x, size_t failures) {
    if (memory_failures() != failures)
        http_break(x);
    return !x->broken;
}

void http_forget(http_exchange *x) {
    for (int i = 0; i < x->n_headers; i++)
        free(x->headers[i].name);
    free(x->line);
    evbuffer_drain(x->body, evbuffer_get_length(x->body));
    x->line = x->path = NULL;
    x->user = NULL;
    x->n_headers = 0;
    x->head = x->wanted = 0;
    x->begun = x->streaming = false;
}

static void drop(http_exchange *x) {
    http *h = x->server;
    if (x->before)
        x->before->after = x->after;
    else
        h->all = x->after;
    if (x->after)
        x->after->before = x->before;
    h->n--;
    http_forget(x);
    evbuffer_free(x->body);
    event_free(x->timer);
    bufferevent_free(x->pipe);
    free(x);
}

/* The client has closed its side, or the connection is broken. */
static void leave(http_exchange *x) {
    http *h = x->server;
    if (x->state == HTTP_RUNNING)
        h->events.gone(h->events.arg, x, x->broken ? 500 : 499);
    drop(x);
}

void http_refuse(http_exchange *x, int status, const char *message) {
    x->close = true;
    x->state = HTTP_RUNNING;
    x->server->events.refuse(x->server->events.arg, x, status, message);
}

/* Everything is sent: the client may still send, until it has read the reply. */
static void linger(http_exchange *x) {
    x->state = HTTP_LINGERING;
    shutdown(bufferevent_getfd(x->pipe), SHUT_WR);
    set_timer(x, LINGER_SECONDS);
}

static void on_read(struct bufferevent *pipe, void *arg) {
    http_exchange *x = arg;
    struct evbuffer *in = bufferevent_get_input(pipe);
    if (x->state >= HTTP_CLOSING) {
        evbuffer_drain(in, evbuffer_get_length(in));
        return;
    }
    if (x->state == HTTP_HEAD && !x->begun) {
        x->begun = true;
        set_timer(x, x->server->limits.request_seconds);
    }
    http_advance(x);
}

static void on_written(struct bufferevent *pipe, void *arg) {
    http_exchange *x = arg;
    if (evbuffer_get_length(bufferevent_get_output(pipe)))
        return;
    if (x->state == HTTP_CLOSING)
        linger(x);
    else if (x->state < HTTP_RUNNING)
        http_advance(x);
}

/* The client sends no more. If it has closed the connection in both directions, nobody reads the
 * reply. */
static void on_half_closed(http_exchange *x) {
    if (x->state == HTTP_RUNNING && x->streaming) {
        leave(x);
    } else if (x->state == HTTP_RUNNING) {
        http_refuse(x, 499, "the client closed the connection before the reply");
    } else if (x->state < HTTP_RUNNING && x->begun) {
        http_refuse(x, 400, "the request is not complete");
    } else if (x->state == HTTP_HEAD && evbuffer_get_length(bufferevent_get_output(x->pipe))) {
        x->state = HTTP_CLOSING;
    } else if (x->state != HTTP_CLOSING) {
        drop(x);
    }
}

static void on_event(struct bufferevent *pipe, short what, void *arg) {
    (void)pipe;
    if ((what & BEV_EVENT_EOF) && (what & BEV_EVENT_READING))
        on_half_closed(arg);
    else
        leave(arg);
}

/* The timeout of writes ends a connection whose client does not read. It does not exist if the
 * descriptor could not be watched. */
static void await_written(http_exchange *x) {
    const size_t unsent = evbuffer_get_length(bufferevent_get_output(x->pipe));
    if (x->state != HTTP_RUNNING && unsent == x->unsent) {
        drop(x);
        return;
    }
    x->unsent = unsent;
    set_timer(x, x->server->limits.write_seconds);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    http_exchange *x = arg;
    (void)fd, (void)what;
    if (x->broken)
        leave(x);
    else if (x->state < HTTP_RUNNING && x->begun)
        http_refuse(x, 408, "the request did not arrive in time");
    else if (evbuffer_get_length(bufferevent_get_output(x->pipe)))
        await_written(x);
    else if (x->state != HTTP_RUNNING)
        drop(x);
}

static void name_peer(const struct sockaddr *address, char *text, size_t size) {
    const void *bytes = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    if (address->sa_family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (!inet_ntop(address->sa_family, bytes, text, (socklen_t)size))
        snprintf(text, size, "?");
}

static bool open_pipe(http_exchange *x, evutil_socket_t fd) {
    http *h = x->server;
    const int on = 1;
    const struct timeval write = {(time_t)h->limits.write_seconds, 0};
    const size_t failures = memory_failures();
    x->body = evbuffer_new();
    x->timer = evtimer_new(h->base, on_timer, x);
    x->pipe = bufferevent_socket_new(h->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!x->body || !x->timer || !x->pipe || memory_failures() != failures)
        return false;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    bufferevent_setcb(x->pipe, on_read, on_written, on_event, x);
    bufferevent_set_timeouts(x->pipe, NULL, &write);
    return bufferevent_enable(x->pipe, EV_READ | EV_WRITE) == 0;
}

static int from_peer(const http *h, const char *peer) {
    int n = 0;
    for (const http_exchange *x = h->all; x; x = x->after)
        n += !strcmp(x->peer, peer) && x->state < HTTP_CLOSING;
    return n;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
                      int length, void *arg) {
    http *h = arg;
    (void)listener, (void)length;
    /* connections that are refused here are answered too, unless they are too many as well */
    http_exchange *x = h->n < 2 * h->limits.connections ? calloc(1, sizeof *x) : NULL;
    if (x)
        x->server = h;
    if (!x || !open_pipe(x, fd)) {
        if (x && x->body)
            evbuffer_free(x->body);
        if (x && x->timer)
            event_free(x->timer);
        if (x && x->pipe)
            bufferevent_free(x->pipe); /* closes fd */
        else
            evutil_closesocket(fd);
        free(x);
        return;
    }
    name_peer(address, x->peer, sizeof x->peer);
    const bool crowd = from_peer(h, x->peer) >= h->limits.per_peer;
    const bool full = h->n >= h->limits.connections;
    x->after = h->all;
    if (h->all)
        h->all->before = x;
    h->all = x;
    h->n++;
    set_timer(x, h->limits.idle_seconds);
    if (crowd || full)
        http_refuse(x, crowd ? 429 : 503,
                    crowd ? "too many connections from this address" : "too many connections");
}

/* Out of descriptors: trying again at once would fail again. */
static void on_accept_failed(struct evconnlistener *listener, void *arg) {
    http *h = arg;
    const struct timeval soon = {0, 100000};
    if (evtimer_add(h->retry, &soon) == 0)
        evconnlistener_disable(listener);
}

static void on_retry(evutil_socket_t fd, short what, void *arg) {
    http *h = arg;
    (void)fd, (void)what;
    if (h->listener)
        evconnlistener_enable(h->listener);
}

/* ---- listening ----------------------------------------------------------- */

static gqac_status fail(gqac_diag *diag, gqac_status status, const char *host, int port,
                        const char *why) {
    memset(diag, 0, sizeof *diag);
    diag->status = status;
    diag->index = -1;
    snprintf(diag->what, sizeof diag->what, "cannot listen on %s, port %d: %s", host, port, why);
    snprintf(diag->hint, sizeof diag->hint, "another --host or --port; --port 0 takes a free one");
    return status;
}

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(
            &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24) ==
           127;
}

static int open_socket(const struct addrinfo *at) {
    const int on = 1;
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static gqac_status listen_on(http *h, const char *host, int port, gqac_diag *diag) {
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(host, service, &wanted, &found);
    if (code)
        return fail(diag, GQAC_USAGE, host, port, gai_strerror(code));
    const int fd = open_socket(found);
    h->loopback = is_loopback(found->ai_addr);
    freeaddrinfo(found);
    if (fd < 0)
        return fail(diag, GQAC_IO, host, port, gqac_errno_text(errno));
    getsockname(fd, (struct sockaddr *)&own, &size);
    h->port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                              : ((struct sockaddr_in *)&own)->sin_port);
    h->listener = evconnlistener_new(h->base, on_accept, h,
                                     LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!h->listener) {
        close(fd);
        return fail(diag, GQAC_NO_MEMORY, host, port, "out of memory");
    }
    evconnlistener_set_error_cb(h->listener, on_accept_failed);
    return GQAC_OK;
}

gqac_status http_create(struct event_base *base, const char *host, int port,
                        const http_limits *limits, const http_events *events, http **out,
                        gqac_diag *diag) {
    http *h = calloc(1, sizeof *h);
    if (!h)
        return fail(diag, GQAC_NO_MEMORY, host, port, "out of memory");
    h->base = base;
    h->limits = *limits;
    h->events = *events;
    h->retry = evtimer_new(base, on_retry, h);
    const gqac_status status = h->retry ? listen_on(h, host, port, diag)
                                        : fail(diag, GQAC_NO_MEMORY, host, port, "out of memory");
    if (status != GQAC_OK) {
        http_free(h);
        h = NULL;
    }
    *out = h;
    return status;
}

void http_stop(http *h) {
    if (h->listener)
        evconnlistener_free(h->listener);
    h->listener = NULL;
    for (http_exchange *x = h->all, *next; x; x = next) {
        next = x->after;
        x->close = true;
        if (x->state != HTTP_HEAD || x->begun)
            continue;
        if (evbuffer_get_length(bufferevent_get_output(x->pipe)))
            x->state = HTTP_CLOSING;
        else
            drop(x);
    }
}

void http_free(http *h) {
    if (!h)
        return;
    http_stop(h);
    while (h->all)
        drop(h->all);
    if (h->retry)
        event_free(h->retry);
    free(h);
}

int http_port(const http *h) {
    return h->port;
}

bool http_is_loopback(const http *h) {
    return h->loopback;
}

int http_connections(const http *h) {
    return h->n;
}

/* ---- a request ----------------------------------------------------------- */

const char *http_method(const http_exchange *x) {
    return x->path ? x->line : "-";
}

const char *http_path(const http_exchange *x) {
    return x->path ? x->path : "-";
}

const char *http_header(const http_exchange *x, const char *name) {
    for (int i = 0; i < x->n_headers; i++)
        if (!strcmp(x->headers[i].name, name))
            return x->headers[i].value;
    return NULL;
}

const char *http_body(const http_exchange *x, size_t *length) {
    *length = evbuffer_get_length(x->body);
    return *length ? (const char *)evbuffer_pullup(x->body, -1) : "";
}

const char *http_peer(const http_exchange *x) {
    return x->peer;
}

void http_set_user(http_exchange *x, void *user) {
    x->user = user;
}

void *http_user(const http_exchange *x) {
    return x->user;
}

/* ---- its reply ----------------------------------------------------------- */

/* The phrase of RFC 9110 for a status; what is wrong is said in the body of the reply. */
static const char *reason(int status) {
    static const struct {
        int status;
        const char *reason;
    } list[] = {{200, "OK"},
                {400, "Bad Request"},
                {401, "Unauthorized"},
                {403, "Forbidden"},
                {404, "Not Found"},
                {405, "Method Not Allowed"},
                {408, "Request Timeout"},
                {413, "Content Too Large"},
                {415, "Unsupported Media Type"},
                {417, "Expectation Failed"},
                {429, "Too Many Requests"},
                {431, "Request Header Fields Too Large"},
                {499, "Client Closed Request"},
                {500, "Internal Server Error"},
                {501, "Not Implemented"},
                {503, "Service Unavailable"},
                {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].status == status)
            return list[i].reason;
    return "Error";
}

/* Adds to the replies. After a failure nothing more is added, so that the client gets the beginning
 * of the reply without gaps. */
static void put(http_exchange *x, const void *data, size_t length) {
    const size_t failures = memory_failures();
    if (!x->broken && length) {
        evbuffer_add(bufferevent_get_output(x->pipe), data, length);
        http_is_whole(x, failures);
    }
}

static void put_text(http_exchange *x, const char *fmt, ...) GQAC_PRINTF(2, 3);
static void put_text(http_exchange *x, const char *fmt, ...) {
    const size_t failures = memory_failures();
    va_list args;
    va_start(args, fmt);
    if (!x->broken) {
        evbuffer_add_vprintf(bufferevent_get_output(x->pipe), fmt, args);
        http_is_whole(x, failures);
    }
    va_end(args);
}

/* The header Date, in English whatever the locale is. */
static void put_date(http_exchange *x) {
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"},
                      months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const time_t now = time(NULL);
    struct tm t;
    if (gmtime_r(&now, &t))
        put_text(x, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[t.tm_wday], t.tm_mday,
                 months[t.tm_mon], 1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec);
}

static void send_head(http_exchange *x, int status, const char *type, const char *headers) {
    put_text(x, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n%s%s", status, reason(status), type,
             headers ? headers : "", x->close ? "Connection: close\r\n" : "");
    put_date(x);
}

/* The reply is complete. */
static void finish(http_exchange *x) {
    const bool more = !x->close;
    http_forget(x);
    x->state = more ? HTTP_HEAD : HTTP_CLOSING;
    x->unsent = 0;
    set_timer(x, more ? x->server->limits.idle_seconds : x->server->limits.write_seconds);
    if (!more)
        return;
    if (evbuffer_get_length(bufferevent_get_input(x->pipe))) {
        x->begun = true;
        set_timer(x, x->server->limits.request_seconds);
    }
    http_advance(x);
}

void http_reply(http_exchange *x, int status, const char *type, const char *headers,
                const void *body, size_t length) {
    const bool head = x->path && !strcmp(x->line, "HEAD");
    send_head(x, status, type, headers);
    put_text(x, "Content-Length: %zu\r\n\r\n", length);
    if (!head)
        put(x, body, length);
    finish(x);
}

void http_stream_begin(http_exchange *x, const char *type, const char *headers) {
    x->streaming = true;
    x->close |= !x->minor; /* its end is the end of the connection */
    send_head(x, 200, type, headers);
    put_text(x, "%s\r\n", x->minor ? "Transfer-Encoding: chunked\r\n" : "");
}

bool http_stream_send(http_exchange *x, const void *data, size_t length) {
    if (x->minor)
        put_text(x, "%zx\r\n", length);
    put(x, data, length);
    if (x->minor)
        put(x, "\r\n", 2);
    return http_may_send(x);
}

bool http_may_send(const http_exchange *x) {
    return !x->broken &&
           evbuffer_get_length(bufferevent_get_output(x->pipe)) <= x->server->limits.unsent;
}

void http_stream_end(http_exchange *x) {
    if (x->minor)
        put(x, "0\r\n\r\n", 5);
    finish(x);
}

bool http_is_streaming(const http_exchange *x) {
    return x->streaming;
}

void http_abort(http_exchange *x) {
    drop(x);
}
