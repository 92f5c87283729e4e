/* The server of a remote tier with arbitrary replies. An input is what the server sends: a byte
 * 0xFF ends a piece, and the next one is sent when the client waits for more; after the last one
 * the connection is closed. The client and the server are one thread: the server runs whenever the
 * client calls poll. */
#include "fuzz/fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/remote.h"

enum { END_OF_PIECE = 0xFF, CAPACITY = 100, MS = 60000 };

static struct server {
    const uint8_t *data; /* NULL: there is no server */
    size_t size, at;
    int listening, client; /* -1: none */
} server = {.client = -1};

/* With a reset, so that its port can be used again at once. */
static void disconnect(void) {
    if (server.client >= 0)
        close(server.client);
    server.client = -1;
}

/* Reads what the client has sent; it has no effect. */
static void hear(void) {
    char heard[4096];
    ssize_t n;
    while ((n = recv(server.client, heard, sizeof heard, 0)) > 0)
        ;
    if (n == 0 || errno != EAGAIN)
        disconnect();
}

int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);

/* A client that waits for a reply is connected, although the kernel may need a moment to report
 * it. */
static void accept_client(void) {
    struct pollfd p = {.fd = server.listening, .events = POLLIN};
    while (__real_poll(&p, 1, MS) < 0 && errno == EINTR) /* interrupted by the alarm of libFuzzer */
        ;
    server.client = accept4(server.listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (server.client < 0)
        fuzz_broken("a client that is not connected");
}

/* If the client waits for a reply, sends the next piece, or ends the connection. False: the piece
 * was empty. */
static bool serve(short events) {
    const int yes = 1;
    if (!(events & POLLIN))
        return true;
    if (server.client >= 0)
        hear();
    if (server.client < 0)
        accept_client();
    (void)setsockopt(server.client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (server.at == server.size) {
        disconnect();
        return true;
    }
    const uint8_t *begin = server.data + server.at;
    const size_t left = server.size - server.at;
    const uint8_t *end = memchr(begin, END_OF_PIECE, left);
    const size_t n = end ? (size_t)(end - begin) : left;
    const ssize_t sent = n ? send(server.client, begin, n, MSG_NOSIGNAL) : 0;
    if (sent < 0)
        disconnect(); /* the client did not read it */
    else
        server.at += (size_t)sent + (end && sent == (ssize_t)n);
    return n > 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms) {
    const int ready = __real_poll(fds, n, 0);
    while (!ready && server.data && !serve(fds->events))
        ;
    return ready ? ready : __real_poll(fds, n, ms);
}

static int listen_on(int *port) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof own;
    const struct linger at_once = {1, 0}; /* also for accepted connections */
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) != 0 ||
        bind(fd, (const struct sockaddr *)&own, sizeof own) != 0 || listen(fd, 8) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &size) != 0)
        fuzz_broken("a socket that listens");
    *port = ntohs(own.sin_port);
    return fd;
}

static void check_text(const char *text, size_t size) {
    if (!memchr(text, '\0', size))
        fuzz_broken("a text without an end");
}

/* Makes every call that a store and `gqac store` make; returns how many had the right answer. */
static int call_all(gqac_remote *r, gqac_diag *diag) {
    const gqac_store_remote f = *gqac_remote_functions(r);
    const gqac_store_key keys[2] = {{{1}}, {{2}}};
    size_t sizes[2], bytes = 0;
    remote_state state = {.keys = 0};
    uint8_t *data = malloc(CAPACITY); /* exact size, for sanitizers */
    int right = f.find(f.arg, MS, keys, 2, sizes);
    right += f.get(f.arg, MS, keys, data, CAPACITY, &bytes) && bytes <= CAPACITY;
    right += f.put(f.arg, MS, keys, "value", 5);
    const gqac_status status = fuzz_check(remote_ask(r, MS, &state, diag), diag);
    if (status == GQAC_OK) {
        check_text(state.version, sizeof state.version);
        check_text(state.policy, sizeof state.policy);
    }
    free(data);
    return right + (status == GQAC_OK);
}

static gqac_status run(const uint8_t *data, size_t size) {
    char address[80];
    int port = 0;
    gqac_remote *r = NULL;
    gqac_diag diag = {0};
    server = (struct server){.data = data, .size = size, .client = -1};
    server.listening = listen_on(&port);
    snprintf(address, sizeof address, "redis://user:password@127.0.0.1:%d/1", port);
    const gqac_remote_options options = {.size = sizeof options, .address = address};
    if (gqac_remote_open(&options, &r, &diag) != GQAC_OK)
        fuzz_broken("the address of a server");
    const int right = call_all(r, &diag);
    disconnect();
    gqac_remote_free(r);
    close(server.listening);
    server.data = NULL;
    return right == 4 ? GQAC_OK : GQAC_IO;
}

const fuzz_target fuzz_target_redis = {"redis", run, NULL};
