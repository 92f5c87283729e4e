/* See served.h. */
#include "fuzz/served.h"

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

#include "fuzz/fuzz.h"
#include "serve/http_impl.h"

enum { TOKENS = 300, PLACES = 8, BODY = 1 << 20, STORE = 1 << 20 };

static const char tools_template[] =
    "{{ bos_token }}{% if tools %}<tool_call> \"arguments\" </tool_call>{{ tools | tojson }}"
    "{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls %}"
    "{{ c | tojson }}{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/* The random ids and seeds of the server, made constant so that an input has the same effect each
 * time. */
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

/* The tokenizer and the settings of a model in the tree, with a template that supports tools. */
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

const gqac_text *served_text(void) {
    static gqac_text *text;
    if (!text) {
        json_object_seed(1);
        signal(SIGPIPE, SIG_IGN); /* the thread of a server blocks it */
        text = open_text();
    }
    return text;
}

/* ---- a server --------------------------------------------------------------- */

/* The server handles signals once its model is ready; here the fuzzer needs them. What the server
 * does once a second would depend on the clock. */
static void leave_signals(serve *s) {
    event_base_loop(s->base, EVLOOP_NONBLOCK);
    for (int i = 0; i < 2; i++)
        event_del(s->terms[i]);
    event_del(s->tick);
}

void (*served_line)(const char *line);

static void on_line(void *arg, const char *line) {
    (void)arg;
    if (served_line)
        served_line(line);
}

static const serve_options options = {.host = "127.0.0.1",
                                      .body_bytes = BODY,
                                      .queue = PLACES - 4,
                                      .connections = 8,
                                      .per_peer = 8,
                                      .log = on_line};

static void attach(served *g, const serve_model *model, gqac_status status, gqac_diag *diag) {
    if (status == GQAC_OK)
        status = serve_attach(g->server, model, diag);
    if (status != GQAC_OK) {
        fprintf(stderr, "%s: %s\n", diag->where, diag->what);
        fuzz_broken("a server");
    }
    leave_signals(g->server);
    g->server->tokenizing.by_turns = true;
}

void served_open(served *g) {
    served_open_folder(g, NULL);
}

void served_open_folder(served *g, const char *folder) {
    const gqac_program *program = fuzz_program(FUZZ_SERVED);
    gqac_diag diag = {0};
    gqac_store_options store;
    gqac_store_options_init(&store);
    store.budget = STORE;
    store.folder = folder;
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
                               .text = served_text(),
                               .store = g->store,
                               .saved = folder != NULL,
                               .tokens = TOKENS,
                               .scheduler = &g->scheduler};
    attach(g, &model, status, &diag);
}

void served_open_encoder(served *g) {
    gqac_diag diag = {0};
    gqac_status status = serve_prepare(&options, &g->server, &diag);
    if (status == GQAC_OK)
        status = gqac_threads_create(1, &g->threads, &diag);
    if (status == GQAC_OK)
        status = gqac_seq2seq_open(GQAC_SOURCE_DIR "/test/traced/t5", NULL, &g->seq2seq, &diag);
    if (status == GQAC_OK)
        status = gqac_seq2seq_context_create(g->seq2seq, g->threads, &g->seq2seq_context, &diag);
    const serve_model model = {.name = "m",
                               .digest = "0123456789abcdef",
                               .text = served_text(),
                               .seq2seq = g->seq2seq,
                               .seq2seq_context = g->seq2seq_context,
                               .tokens = TOKENS};
    attach(g, &model, status, &diag);
}

void served_close(served *g) {
    serve_free(g->server);
    gqac_seq2seq_context_free(g->seq2seq_context);
    gqac_seq2seq_free(g->seq2seq);
    gqac_threads_free(g->threads);
    gqac_store_free(g->store);
    gqac_context_free(g->context);
    if (gqac_program_memory_used(fuzz_program(FUZZ_SERVED)) != 0)
        fuzz_broken("rows that nobody has");
}

/* ---- a client ---------------------------------------------------------------- */

/* A signal, such as the alarm of libFuzzer, interrupts connect; the kernel continues to connect. */
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

served_client served_connect(serve *s) {
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)http_port(s->http)),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    /* a reset at the end, so that the port can be used again at once */
    const struct linger at_once = {1, 0};
    const int yes = 1;
    served_client c = {.server = s, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (c.fd < 0 || !connect_to(c.fd, &to) ||
        setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) != 0 ||
        setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0 ||
        fcntl(c.fd, F_SETFL, O_NONBLOCK) != 0)
        fuzz_broken("a connection");
    return c;
}

static void take_replies(served_client *c) {
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

/* True if one end has read all that the other has sent. The kernel may deliver it later. */
static bool has_read(int fd, uint64_t bytes) {
    int unread = 0;
    return info_of(fd).tcpi_bytes_received >= bytes && ioctl(fd, FIONREAD, &unread) == 0 && !unread;
}

static bool is_dirty(serve *s) {
    pthread_mutex_lock(&s->lock);
    const bool dirty = s->dirty != NULL;
    pthread_mutex_unlock(&s->lock);
    return dirty;
}

/* True if the server has read everything and answered what it can, and the client has its
 * replies. */
static bool is_quiet(const served_client *c) {
    const http_exchange *x = c->server->http->all;
    if (c->server->jobs || c->server->submitted || is_dirty(c->server))
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

void (*served_within)(bool within);

/* Tokenizes long texts, and computes a step or, with an encoder, all waiting answers; returns how
 * many requests are left. */
static int64_t compute(serve *s, gqac_status *status, gqac_diag *diag) {
    int64_t left = 0;
    s->submitted = false;
    if (s->tokenizing.by_turns)
        tokenizing_run(s, false);
    if (!s->model.seq2seq) {
        *status = gqac_scheduler_step(s->scheduler, &left, diag);
        return left;
    }
    s->state = SERVE_STOPPED; /* so that it returns when no request waits */
    encoder_run(s);
    s->state = SERVE_READY;
    *status = GQAC_OK;
    return left;
}

int64_t served_turn(served_client *c, bool wait) {
    gqac_status status;
    gqac_diag diag = {0};
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (wait)
        (void)poll(&p, 1, 1);
    if (served_within)
        served_within(true);
    event_base_loop(c->server->base, EVLOOP_NONBLOCK);
    const int64_t left = compute(c->server, &status, &diag);
    if (served_within)
        served_within(false);
    fuzz_check(status, &diag);
    if (c->fd >= 0)
        take_replies(c);
    return left;
}

bool served_settle(served_client *c, int turns) {
    bool wait = false;
    for (; turns && !is_quiet(c); turns--)
        wait = !served_turn(c, wait) && !is_dirty(c->server) &&
               (!c->server->jobs || tokenizing_count(c->server));
    return turns;
}

void served_send(served_client *c, const char *data, size_t size) {
    const uint64_t end = c->sent + size;
    while (c->sent < end && !c->ended) {
        const size_t left = (size_t)(end - c->sent);
        const ssize_t n = send(c->fd, data + size - left, left, MSG_NOSIGNAL);
        if (n > 0)
            c->sent += (uint64_t)n;
        else if (errno != EAGAIN && errno != EINTR)
            break; /* the server has closed the connection */
        else
            served_turn(c, false);
    }
}

void served_disconnect(served_client *c) {
    close(c->fd);
    c->fd = -1;
    if (!served_settle(c, SERVED_TURNS))
        fuzz_broken("a server that does not come to rest");
    gqac_str_free(&c->replies);
}

/* ---- replies ------------------------------------------------------------------ */

int served_status(const gqac_str *replies) {
    int status = 0;
    return replies->length && sscanf(replies->text, "HTTP/1.1 %3d ", &status) == 1 ? status : 0;
}

json_t *served_json(const gqac_str *replies) {
    const char *body = replies->length ? strstr(replies->text, "\r\n\r\n") : NULL;
    const char *type = body ? strstr(replies->text, "Content-Type: application/json\r\n") : NULL;
    return type && type < body ? json_loads(body + 4, JSON_DECODE_ANY, NULL) : NULL;
}
