/* A connection: the socket is not that of hiredis, so that one deadline holds for all bytes of an
 * exchange. hiredis writes commands and parses replies; its parser calls the functions below
 * instead of making objects, so that a reply takes no memory of its own. */
#include <errno.h>
#include <fcntl.h>
#include <hiredis.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "remote/remote_impl.h"

enum {
    PART = 1 << 16,
    SLACK = 1 << 12,
    MOST_BYTES = 512 << 20 /* of a word of a command: the maximum of a value of Redis */
};

struct connection {
    int fd;
    tls *tls; /* NULL: without */
    redisReader *reader;
    char *out; /* commands that are not sent yet */
    size_t n_out, sent, capacity;
    unsigned char part[PART];
};

/* ---- replies ------------------------------------------------------------- */

static void *take_string(const redisReadTask *task, char *text, size_t bytes) {
    reply *r = task->privdata;
    r->type = task->type;
    r->bytes = bytes;
    if (task->type != REDIS_REPLY_STRING)
        snprintf(r->error, sizeof r->error, "%.*s", (int)(bytes < 95 ? bytes : 95), text);
    else if (bytes <= r->capacity && bytes)
        memcpy(r->data, text, bytes);
    return r;
}

static void *take_integer(const redisReadTask *task, long long value) {
    reply *r = task->privdata;
    r->type = REDIS_REPLY_INTEGER;
    r->integer = value;
    return r;
}

static void *take_nil(const redisReadTask *task) {
    reply *r = task->privdata;
    r->type = REDIS_REPLY_NIL;
    return r;
}

/* No command of ours has such a reply. NULL ends the connection. */
#if HIREDIS_MAJOR >= 1
static void *take_array(const redisReadTask *task, size_t n) {
#else
static void *take_array(const redisReadTask *task, int n) {
#endif
    (void)task, (void)n;
    return NULL;
}

static void release(void *object) {
    (void)object;
}

static redisReplyObjectFunctions taking = {.createString = take_string,
                                           .createArray = take_array,
                                           .createInteger = take_integer,
                                           .createNil = take_nil,
                                           .freeObject = release};

/* ---- the socket ---------------------------------------------------------- */

bool socket_wait(int fd, short events, int64_t until) {
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        const int64_t ms = (until - gqac_clock_ns()) / 1000000;
        if (ms < 1)
            return false;
        const int n = poll(&p, 1, ms < 1000000 ? (int)ms : 1000000);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

static int connect_to(const struct addrinfo *a, int64_t until) {
    int error = 0, yes = 1;
    socklen_t size = sizeof error;
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    const bool begun = connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS;
    if (begun && socket_wait(fd, POLLOUT, until) &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && !error) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        return fd;
    }
    close(fd);
    return -1;
}

static int connect_any(const address *a, int64_t until, char why[WHY]) {
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int fd = -1;
    const int status = getaddrinfo(a->host, a->port, &wanted, &list);
    if (status != 0) {
        snprintf(why, WHY, "its name is not known: %s", gai_strerror(status));
        return -1;
    }
    for (const struct addrinfo *one = list; one && fd < 0; one = one->ai_next)
        fd = connect_to(one, until);
    freeaddrinfo(list);
    if (fd < 0)
        snprintf(why, WHY, "it does not accept a connection");
    return fd;
}

/* ---- exchange ------------------------------------------------------------ */

bool connection_add(connection *c, int n, const char *const *words, const size_t *lengths) {
    char *text = NULL;
    for (int i = 0; i < n; i++) /* hiredis adds the lengths up as int */
        if (lengths[i] > MOST_BYTES)
            return false;
    const int made = redisFormatCommandArgv(&text, n, (const char **)(void *)words, lengths);
    if (made < 0)
        return false;
    const size_t need = c->n_out + (size_t)made;
    if (need > c->capacity) {
        const size_t capacity = need > 2 * c->capacity ? need : 2 * c->capacity;
        char *grown = realloc(c->out, capacity);
        if (!grown) {
            redisFreeCommand(text);
            return false;
        }
        c->out = grown;
        c->capacity = capacity;
    }
    memcpy(c->out + c->n_out, text, (size_t)made);
    redisFreeCommand(text);
    c->n_out = need;
    return true;
}

static bool must_wait(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Sends as much as the socket takes, and adds to *events the events to wait for; false: it is
 * closed. */
static bool send_some(connection *c, short *events, char why[WHY]) {
    short wants = POLLOUT;
    while (c->sent < c->n_out) {
        const char *data = c->out + c->sent;
        const size_t left = c->n_out - c->sent;
        const ssize_t n = c->tls ? tls_send(c->tls, data, left, &wants, why)
                                 : send(c->fd, data, left, MSG_NOSIGNAL);
        if (n < 0) {
            *events = (short)(*events | wants);
            return must_wait();
        }
        c->sent += (size_t)n;
    }
    return true;
}

/* Receives what is there, or adds to *events the events to wait for; false: it is closed. */
static bool receive_some(connection *c, short *events, bool *some, char why[WHY]) {
    short wants = POLLIN;
    const ssize_t n = c->tls ? tls_receive(c->tls, c->part, sizeof c->part, &wants, why)
                             : recv(c->fd, c->part, sizeof c->part, 0);
    *some = n > 0;
    if (n > 0)
        return redisReaderFeed(c->reader, (const char *)c->part, (size_t)n) == REDIS_OK;
    *events = (short)(*events | wants);
    return n < 0 && must_wait();
}

/* Sends and receives, or waits until that is possible. */
static bool go_on(connection *c, int64_t until, char why[WHY]) {
    short events = 0;
    bool some = false;
    if (!send_some(c, &events, why) || !receive_some(c, &events, &some, why)) {
        if (!*why)
            snprintf(why, WHY, "it closed the connection");
        return false;
    }
    return some ? gqac_clock_ns() <= until : socket_wait(c->fd, events, until);
}

bool connection_exchange(connection *c, size_t n, reply *replies, int64_t until, char why[WHY]) {
    *why = '\0';
    for (size_t got = 0; got < n;) {
        void *made = NULL;
        c->reader->privdata = &replies[got];
        if (redisReaderGetReply(c->reader, &made) != REDIS_OK) {
            snprintf(why, WHY, NOT_REDIS);
            return false;
        }
        if (made) {
            got++;
            continue;
        }
        if (c->reader->len - c->reader->pos > replies[got].capacity + SLACK + PART) {
            snprintf(why, WHY, NOT_REDIS ": its reply is longer than what was asked for");
            return false;
        }
        if (!go_on(c, until, why))
            return false;
    }
    c->n_out = c->sent = 0;
    if (c->reader->len == c->reader->pos)
        return true;
    snprintf(why, WHY, NOT_REDIS ": it sent more than its reply");
    return false;
}

static bool add_words(connection *c, int n, const char *const *words) {
    size_t lengths[3];
    for (int i = 0; i < n; i++)
        lengths[i] = strlen(words[i]);
    return connection_add(c, n, words, lengths);
}

/* The password and the database. */
static bool introduce(connection *c, const address *a, int64_t until, char why[WHY]) {
    char number[16];
    const char *const user[] = {"AUTH", a->user, a->password};
    const char *const password[] = {"AUTH", a->password};
    const char *const database[] = {"SELECT", number};
    reply replies[2] = {{.type = 0}};
    size_t n = 0;
    snprintf(number, sizeof number, "%d", a->database);
    if (*a->password) {
        n++;
        if (!(*a->user ? add_words(c, 3, user) : add_words(c, 2, password)))
            return false;
    }
    if (a->database) {
        n++;
        if (!add_words(c, 2, database))
            return false;
    }
    if (n && !connection_exchange(c, n, replies, until, why))
        return false;
    for (size_t i = 0; i < n; i++)
        if (replies[i].type != REDIS_REPLY_STATUS) {
            snprintf(why, WHY, "it refused %s",
                     i || !*a->password ? "the database" : "the password");
            return false;
        }
    return true;
}

connection *connection_open(const address *a, const tls_context *context, int64_t until,
                            char why[WHY]) {
    connection *c = calloc(1, sizeof *c);
    *why = '\0';
    if (c)
        c->reader = redisReaderCreateWithFunctions(&taking);
    if (!c || !c->reader)
        snprintf(why, WHY, "out of memory");
    if (!c)
        return NULL;
    c->fd = c->reader ? connect_any(a, until, why) : -1;
    if (c->fd >= 0 && context)
        c->tls = tls_open(context, c->fd, a->host, until, why);
    if (c->fd >= 0 && !context == !c->tls && introduce(c, a, until, why))
        return c;
    connection_close(c);
    return NULL;
}

void connection_close(connection *c) {
    if (!c)
        return;
    tls_close(c->tls);
    if (c->fd >= 0)
        close(c->fd);
    if (c->reader)
        redisReaderFree(c->reader);
    free(c->out);
    free(c);
}
