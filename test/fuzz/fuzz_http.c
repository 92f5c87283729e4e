/* Requests to `gqac serve`: a whole server of a small model, on one thread, and clients over the
 * loopback interface. An input that begins with '/' is a path, a NUL and a body, which are sent as
 * one correct request; only a path is asked for with GET. Any other input is the bytes of
 * connections: a byte 0xFF ends a piece, which the server reads and answers before more is sent,
 * and a byte 0xFE ends a connection, whose client does not wait for replies.
 *
 * Afterwards the server must give the same answer as a new one, and must have kept nothing. */
#include "fuzz/fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "serve/http_impl.h"
#include "serve/serve_impl.h"

enum { END_OF_PIECE = 0xFF, END_OF_CLIENT = 0xFE };
enum { TOKENS = 300, PLACES = 8, BODY = 1 << 20, STORE = 1 << 20, TURNS = 100000 };

static const char tools_template[] =
    "{{ bos_token }}{% if tools %}<tool_call> \"arguments\" </tool_call>{{ tools | tojson }}"
    "{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls %}"
    "{{ c | tojson }}{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/* Ids and seeds that the server draws, so that an input does the same each time. */
ssize_t __wrap_getrandom(void *data, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *data, size_t size, unsigned flags) {
    (void)flags;
    memset(data, 1, size);
    return (ssize_t)size;
}

/* ---- the model, opened once ------------------------------------------------ */

static void copy_file(const char *from, const char *to) {
    char data[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    const size_t n = in ? fread(data, 1, sizeof data, in) : 0;
    if (!n || !out || fwrite(data, 1, n, out) != n || fclose(out) != 0)
        fuzz_broken("a file of the model");
    fclose(in);
}

/* The tokenizer and the settings of a model in the tree, with a template that knows tools. */
static gqac_text *open_text(void) {
    static const char *const copied[] = {"genai_config.json", "tokenizer.json",
                                         "tokenizer_config.json"};
    enum { COPIED = sizeof copied / sizeof *copied };
    char from[1024], paths[COPIED + 1][256];
    gqac_text *text = NULL;
    gqac_diag diag = {0};
    for (int i = 0; i < COPIED; i++) {
        snprintf(from, sizeof from, "%s/models/tiny-gqa-int4/%s", GQAC_SOURCE_DIR, copied[i]);
        snprintf(paths[i], sizeof *paths, "%s/%s", fuzz_folder(), copied[i]);
        copy_file(from, paths[i]);
    }
    snprintf(paths[COPIED], sizeof *paths, "%s/chat_template.jinja", fuzz_folder());
    FILE *template = fopen(paths[COPIED], "w");
    if (!template || fputs(tools_template, template) < 0 || fclose(template) != 0)
        fuzz_broken("the file of the template");
    if (gqac_text_open(fuzz_folder(), GQAC_TEXT_ALL, &text, &diag) != GQAC_OK) {
        fprintf(stderr, "%s: %s\n", diag.where, diag.what);
        fuzz_broken("the text of a known model");
    }
    for (int i = 0; i <= COPIED; i++)
        unlink(paths[i]);
    return text;
}

static const gqac_text *known_text(void) {
    static gqac_text *text;
    if (!text) {
        json_object_seed(1);
        signal(SIGPIPE, SIG_IGN); /* the thread of a server blocks it */
        text = open_text();
    }
    return text;
}

/* ---- a server --------------------------------------------------------------- */

typedef struct serving {
    serve *server;
    gqac_context *context;
    gqac_store *store;
    gqac_scheduler_options scheduler;
} serving;

/* The server catches signals when its model is ready; here they belong to the fuzzer. What it does
 * each second would depend on the clock. */
static void leave_signals(serve *s) {
    event_base_loop(s->base, EVLOOP_NONBLOCK);
    for (int i = 0; i < 2; i++)
        event_del(s->terms[i]);
    event_del(s->tick);
}

static void ignore_line(void *arg, const char *line) {
    (void)arg, (void)line;
}

static void open_server(serving *g) {
    const serve_options options = {.host = "127.0.0.1",
                                   .body_bytes = BODY,
                                   .queue = PLACES - 4,
                                   .connections = 8,
                                   .per_peer = 8,
                                   .log = ignore_line};
    const gqac_program *program = fuzz_program(FUZZ_SERVED);
    gqac_diag diag = {0};
    gqac_store_options store;
    gqac_store_options_init(&store);
    store.budget = STORE;
    gqac_status status = serve_prepare(&options, &g->server, &diag);
    if (status == GQAC_OK)
        status = gqac_context_create(program, 1, &g->context, &diag);
    if (status == GQAC_OK)
        status = gqac_store_create(program, &store, &g->store, &diag);
    gqac_scheduler_options_init(&g->scheduler);
    g->scheduler.running = 4;
    g->scheduler.tokens = 32;
    g->scheduler.store = g->store;
    const serve_model model = {.name = "m",
                               .digest = "0123456789abcdef",
                               .context = g->context,
                               .text = known_text(),
                               .store = g->store,
                               .tokens = TOKENS,
                               .scheduler = &g->scheduler};
    if (status == GQAC_OK)
        status = serve_attach(g->server, &model, &diag);
    if (status != GQAC_OK) {
        fprintf(stderr, "%s: %s\n", diag.where, diag.what);
        fuzz_broken("a server");
    }
    leave_signals(g->server);
}

static void close_server(serving *g) {
    serve_free(g->server);
    gqac_store_free(g->store);
    gqac_context_free(g->context);
    if (gqac_program_memory_used(fuzz_program(FUZZ_SERVED)) != 0)
        fuzz_broken("rows that nobody has");
}

/* ---- a client ---------------------------------------------------------------- */

typedef struct client {
    serve *server;
    int fd;
    bool ended;    /* the server sends no more */
    uint64_t sent; /* bytes */
    gqac_str replies;
} client;

/* A signal, such as the alarm of libFuzzer, interrupts connect; the kernel goes on connecting. */
static bool connect_to(int fd, const struct sockaddr_in *to) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (connect(fd, (const struct sockaddr *)to, sizeof *to) == 0)
        return true;
    if (errno != EINTR)
        return false;
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && !error;
}

static client connect_client(serve *s) {
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)http_port(s->http)),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    /* a reset at the end, so that the port can be used again at once */
    const struct linger at_once = {1, 0};
    const int yes = 1;
    client c = {.server = s, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (c.fd < 0 || !connect_to(c.fd, &to) ||
        setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) != 0 ||
        setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0 ||
        fcntl(c.fd, F_SETFL, O_NONBLOCK) != 0)
        fuzz_broken("a connection");
    return c;
}

static void take_replies(client *c) {
    char data[16384];
    ssize_t n;
    while ((n = recv(c->fd, data, sizeof data, 0)) > 0)
        gqac_str_append_n(&c->replies, data, (size_t)n);
    c->ended |= n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static struct tcp_info info_of(int fd) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        fuzz_broken("the counters of a connection");
    return info;
}

/* Whether one end has read all that the other has sent. The kernel may deliver it later. */
static bool has_read(int fd, uint64_t bytes) {
    int unread = 0;
    return info_of(fd).tcpi_bytes_received >= bytes && ioctl(fd, FIONREAD, &unread) == 0 && !unread;
}

/* The server has read everything, has answered what it can, and the client has its replies. */
static bool is_quiet(const client *c) {
    const serve *s = c->server;
    const http_exchange *x = s->http->all;
    if (s->jobs || s->submitted || s->dirty)
        return false;
    if (c->fd < 0)
        return !x;
    if (c->ended)
        return true;
    if (!x || x->state >= HTTP_CLOSING || evbuffer_get_length(bufferevent_get_output(x->pipe)))
        return false;
    const evutil_socket_t fd = bufferevent_getfd(x->pipe);
    return has_read(fd, c->sent) && has_read(c->fd, info_of(fd).tcpi_bytes_sent);
}

/* One round of the two threads that a server has; returns how many requests are left. */
static int64_t turn(client *c, bool wait) {
    int64_t left = 0;
    gqac_diag diag = {0};
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (wait)
        (void)poll(&p, 1, 1);
    event_base_loop(c->server->base, EVLOOP_NONBLOCK);
    c->server->submitted = false;
    fuzz_check(gqac_scheduler_step(c->server->scheduler, &left, &diag), &diag);
    if (c->fd >= 0)
        take_replies(c);
    return left;
}

static void settle(client *c) {
    bool wait = false;
    for (int i = 0; !is_quiet(c); i++) {
        if (i == TURNS)
            fuzz_broken("a server that does not come to rest");
        wait = !turn(c, wait) && !c->server->dirty && !c->server->jobs;
    }
}

static void send_all(client *c, const char *data, size_t size) {
    const uint64_t end = c->sent + size;
    while (c->sent < end && !c->ended) {
        const size_t left = (size_t)(end - c->sent);
        const ssize_t n = send(c->fd, data + size - left, left, MSG_NOSIGNAL);
        if (n > 0)
            c->sent += (uint64_t)n;
        else if (errno != EAGAIN && errno != EINTR)
            break; /* the server has closed */
        else
            turn(c, false);
    }
}

static void disconnect(client *c) {
    close(c->fd);
    c->fd = -1;
    settle(c);
    gqac_str_free(&c->replies);
}

/* ---- replies ------------------------------------------------------------------ */

static int status_of(const gqac_str *replies) {
    int status = 0;
    return replies->length && sscanf(replies->text, "HTTP/1.1 %3d ", &status) == 1 ? status : 0;
}

/* The JSON of a reply that is not a stream, the page or metrics; its caller frees it. */
static json_t *json_of(const gqac_str *replies) {
    const char *body = replies->length ? strstr(replies->text, "\r\n\r\n") : NULL;
    const char *type = body ? strstr(replies->text, "Content-Type: application/json\r\n") : NULL;
    return type && type < body ? json_loads(body + 4, JSON_DECODE_ANY, NULL) : NULL;
}

/* A request of the right form must get a reply that is no failure of the server; an error says why.
 */
static gqac_status check_reply(const client *c) {
    const int status = status_of(&c->replies);
    json_t *root = json_of(&c->replies);
    const char *why = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    const bool said = why && *why;
    json_decref(root);
    if (!c->ended || status < 200 || status == 500 || (status >= 400 && !said)) {
        fprintf(stderr, "%s\n", c->replies.length ? c->replies.text : "nothing");
        fuzz_broken("the reply to a request");
    }
    return status == 200 ? GQAC_OK : GQAC_INVALID_INPUT;
}

static gqac_status ask(client *c, const char *path, size_t n_path, const char *body,
                       size_t n_body) {
    char text[128];
    const int n = snprintf(text, sizeof text,
                           " HTTP/1.0\r\nHost: localhost\r\nContent-Type: "
                           "application/json\r\nContent-Length: %zu\r\n\r\n",
                           n_body);
    send_all(c, body ? "POST " : "GET ", body ? 5 : 4);
    send_all(c, path, n_path);
    send_all(c, text, (size_t)n);
    send_all(c, body, n_body);
    settle(c);
    return check_reply(c);
}

/* The text of a short answer. */
static void require_answer(serve *s) {
    static const char path[] = "/v1/completions",
                      body[] = "{\"prompt\": [5, 300, 7], \"max_tokens\": 3, \"ignore_eos\": true,"
                               " \"return_token_ids\": true, \"verify_cache\": true}";
    static char *expected;
    client c = connect_client(s);
    ask(&c, path, sizeof path - 1, body, sizeof body - 1);
    json_t *root = json_of(&c.replies), *choices = json_object_get(root, "choices");
    char *text = choices ? json_dumps(choices, JSON_SORT_KEYS) : NULL;
    json_decref(root);
    disconnect(&c);
    if (!text || (expected && strcmp(text, expected) != 0)) {
        fprintf(stderr, "%s\n%s\n", text ? text : "no answer", expected ? expected : "");
        fuzz_broken("the answer of a server that goes on");
    }
    if (!expected)
        expected = text;
    else
        free(text);
}

/* ---- an input ------------------------------------------------------------------- */

/* Sends pieces to one connection; returns what it has used. */
static size_t send_pieces(serve *s, const uint8_t *data, size_t size, gqac_status *status) {
    client c = connect_client(s);
    size_t at = 0, begin = 0;
    for (; at < size && data[at] != END_OF_CLIENT; at++) {
        if (data[at] != END_OF_PIECE)
            continue;
        send_all(&c, (const char *)data + begin, at - begin);
        settle(&c);
        begin = at + 1;
    }
    send_all(&c, (const char *)data + begin, at - begin);
    for (int i = 0; i < 3; i++) /* it is accepted, read, and begun */
        turn(&c, false);
    if (at == size) {
        settle(&c);
        shutdown(c.fd, SHUT_WR);
        settle(&c);
        *status = status_of(&c.replies) == 200 ? GQAC_OK : GQAC_INVALID_INPUT;
    }
    disconnect(&c);
    return at < size ? at + 1 : size;
}

static gqac_status run(const uint8_t *data, size_t size) {
    serving g = {0};
    gqac_status status = GQAC_INVALID_INPUT;
    open_server(&g);
    if (size && *data == '/') {
        const fuzz_parts p = fuzz_split(data, size);
        client c = connect_client(g.server);
        size_t n = 0;
        while (n < p.n_first && (uint8_t)p.first[n] > ' ') /* what follows would be more headers */
            n++;
        status = ask(&c, p.first, n, p.second, p.n_second);
        disconnect(&c);
    } else {
        for (size_t used = 0; used < size;)
            used += send_pieces(g.server, data + used, size - used, &status);
    }
    require_answer(g.server);
    close_server(&g);
    return status;
}

const fuzz_target fuzz_target_http = {"http", run, NULL};
