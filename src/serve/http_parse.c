/* The bytes of a request: lines, headers, bodies. Whatever is ambiguous is refused: two lengths, a
 * length beside chunks, folded headers, control characters. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/http_impl.h"

static struct evbuffer *input(const http_exchange *x) {
    return bufferevent_get_input(x->pipe);
}

/* ---- lines --------------------------------------------------------------- */

/* The next line without its end, which the caller frees; NULL: it is not complete, or was refused
 * because the head is too long, or has a NUL, or memory ran out. */
static char *take_line(http_exchange *x) {
    size_t n = 0;
    const size_t failures = memory_failures();
    char *line = evbuffer_readln(input(x), &n, EVBUFFER_EOL_CRLF);
    if (!http_is_whole(x, failures)) {
        free(line);
        return NULL;
    }
    const size_t length = line ? n + 2 : evbuffer_get_length(input(x));
    const http_limits *limits = &x->server->limits;
    const bool of_chunk = x->state == HTTP_CHUNK_SIZE || x->state == HTTP_CHUNK_END;
    if (length > limits->head || x->head + length > (of_chunk ? limits->body / 16 : limits->head)) {
        free(line);
        http_refuse(x, 431, "the request line and the headers are too long");
        return NULL;
    }
    if (!line)
        return NULL;
    x->head += length;
    if (strlen(line) == n)
        return line;
    free(line);
    http_refuse(x, 400, "the request line or a header contains a NUL");
    return NULL;
}

static bool is_token(const char *text) {
    if (!*text)
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("!#$%&'*+-.^_`|~", *text))
            return false;
    return true;
}

static bool is_plain(const char *text) {
    for (; *text; text++)
        if (((unsigned char)*text < 32 && *text != '\t') || *text == 127)
            return false;
    return true;
}

/* "GET /path?query HTTP/1.1" */
static void parse_request(http_exchange *x, char *line) {
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    x->line = line;
    if (!version) {
        http_refuse(x, 400, "the first line is not METHOD PATH HTTP/1.1");
        return;
    }
    *target++ = *version++ = '\0';
    if (strncmp(version, "HTTP/1.", 7) != 0 || !isdigit((unsigned char)version[7]) || version[8]) {
        const bool other = !strncmp(version, "HTTP/", 5);
        http_refuse(x, other ? 505 : 400,
                    other ? "this server speaks HTTP/1.1 and HTTP/1.0"
                          : "the first line is not METHOD PATH HTTP/1.1");
        return;
    }
    x->minor = version[7] != '0';
    x->close |= !x->minor; /* http_stop may have set it */
    if (!is_token(line) || *target != '/' || !is_plain(target) || strchr(target, '#')) {
        http_refuse(x, 400, "the method or the path is not valid");
        return;
    }
    target[strcspn(target, "?")] = '\0';
    x->path = target;
}

static void parse_header(http_exchange *x, char *line) {
    char *value = strchr(line, ':');
    if (x->n_headers == HTTP_HEADERS) {
        free(line);
        http_refuse(x, 431, "the request has too many headers");
        return;
    }
    if (value)
        *value++ = '\0';
    if (!value || !is_token(line) || !is_plain(value)) {
        free(line);
        http_refuse(x, 400, "a header is not NAME: VALUE");
        return;
    }
    for (char *at = line; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    value += strspn(value, " \t");
    for (size_t n = strlen(value); n && strchr(" \t", value[n - 1]); n--)
        value[n - 1] = '\0';
    x->headers[x->n_headers++] = (http_line){line, value};
}

/* ---- the end of the head ------------------------------------------------- */

static int count(const http_exchange *x, const char *name) {
    int n = 0;
    for (int i = 0; i < x->n_headers; i++)
        n += !strcmp(x->headers[i].name, name);
    return n;
}

static bool parse_size(const char *text, int base, size_t *out) {
    char *end = NULL;
    const size_t digits = strspn(text, base == 16 ? "0123456789abcdefABCDEF" : "0123456789");
    if (!digits || digits > 15)
        return false;
    *out = strtoull(text, &end, base);
    /* strtoull takes "0x" too */
    return end == text + digits && (!*end || (base == 16 && (*end == ';' || *end == ' ')));
}

static void run(http_exchange *x) {
    x->state = HTTP_RUNNING;
    evtimer_del(x->timer);
    x->server->events.request(x->server->events.arg, x);
}

/* Begins to read a body of `wanted` bytes, or of chunks. */
static void await_body(http_exchange *x, http_state state) {
    const char *expected = http_header(x, "expect");
    if (expected && strcasecmp(expected, "100-continue") != 0) {
        http_refuse(x, 417, "the header Expect may only be 100-continue");
        return;
    }
    if (x->wanted > x->server->limits.body) {
        http_refuse(x, 413, "the body is too long");
        return;
    }
    if (!x->server->events.admit(x->server->events.arg, x)) {
        x->close = true;
        run(x);
        return;
    }
    const size_t failures = memory_failures();
    x->state = state;
    x->head = 0;
    if (expected && x->minor) {
        bufferevent_write(x->pipe, "HTTP/1.1 100 Continue\r\n\r\n", 25);
        http_is_whole(x, failures);
    }
}

static void end_head(http_exchange *x) {
    const char *chunks = http_header(x, "transfer-encoding"),
               *length = http_header(x, "content-length");
    const char *connection = http_header(x, "connection");
    x->wanted = 0;
    if (connection && strcasestr(connection, "close"))
        x->close = true;
    if (x->minor && count(x, "host") != 1)
        http_refuse(x, 400, "a request of HTTP/1.1 must have exactly one header Host");
    else if ((chunks && length) || count(x, "content-length") > 1 ||
             count(x, "transfer-encoding") > 1)
        http_refuse(
            x, 400,
            "the request has more than one of the headers Content-Length and Transfer-Encoding");
    else if (chunks && (strcasecmp(chunks, "chunked") != 0 || !x->minor))
        http_refuse(x, 501,
                    "the header Transfer-Encoding may only be chunked, and only with HTTP/1.1");
    else if (length && !parse_size(length, 10, &x->wanted))
        http_refuse(x, 400, "Content-Length is not a number");
    else if (chunks)
        await_body(x, HTTP_CHUNK_SIZE);
    else if (length && x->wanted)
        await_body(x, HTTP_BODY);
    else
        run(x);
}

static bool read_head(http_exchange *x) {
    char *line = take_line(x);
    if (!line)
        return false;
    if (!*line) {
        free(line);
        if (x->line)
            end_head(x);
    } else if (!x->line) {
        parse_request(x, line);
    } else {
        parse_header(x, line);
    }
    return true;
}

/* ---- the body ------------------------------------------------------------ */

/* Moves what has arrived of `wanted` bytes to the body; true: all have. */
static bool take_bytes(http_exchange *x) {
    const size_t there = evbuffer_get_length(input(x)), n = there < x->wanted ? there : x->wanted;
    const size_t failures = memory_failures();
    evbuffer_remove_buffer(input(x), x->body, n);
    x->wanted -= n;
    return http_is_whole(x, failures) && !x->wanted;
}

static bool read_body(http_exchange *x) {
    if (!take_bytes(x))
        return false;
    run(x);
    return true;
}

static bool read_chunk_size(http_exchange *x) {
    char *line = take_line(x);
    if (!line)
        return false;
    const bool fine = parse_size(line, 16, &x->wanted);
    free(line);
    if (!fine)
        http_refuse(x, 400, "the size of a chunk is not a number");
    else if (evbuffer_get_length(x->body) + x->wanted > x->server->limits.body)
        http_refuse(x, 413, "the body is too long");
    else
        x->state = x->wanted ? HTTP_CHUNK : HTTP_TRAILER;
    if (x->state == HTTP_TRAILER)
        x->head = 0;
    return true;
}

static bool read_chunk(http_exchange *x) {
    if (!take_bytes(x))
        return false;
    x->state = HTTP_CHUNK_END;
    return true;
}

/* The empty line after a chunk, or, in the trailer, the lines after the last one. */
static bool read_chunk_end(http_exchange *x) {
    char *line = take_line(x);
    if (!line)
        return false;
    const bool empty = !*line;
    free(line);
    if (x->state == HTTP_TRAILER && empty)
        run(x);
    else if (x->state == HTTP_CHUNK_END && empty)
        x->state = HTTP_CHUNK_SIZE;
    else if (x->state == HTTP_CHUNK_END)
        http_refuse(x, 400, "a chunk is longer than its size");
    return true;
}

/* A client may send ahead, but no more than a head. Reading otherwise stays switched on, also while
 * a request is answered. */
static void pace(http_exchange *x) {
    const bool room = evbuffer_get_length(input(x)) <= x->server->limits.head;
    const bool reads = bufferevent_get_enabled(x->pipe) & EV_READ;
    if (room == reads)
        return;
    if ((room ? bufferevent_enable : bufferevent_disable)(x->pipe, EV_READ) != 0)
        http_break(x);
}

void http_advance(http_exchange *x) {
    static bool (*const read[])(http_exchange *) = {
        [HTTP_HEAD] = read_head,         [HTTP_BODY] = read_body,
        [HTTP_CHUNK] = read_chunk,       [HTTP_CHUNK_SIZE] = read_chunk_size,
        [HTTP_TRAILER] = read_chunk_end, [HTTP_CHUNK_END] = read_chunk_end,
    };
    const struct evbuffer *unsent = bufferevent_get_output(x->pipe);
    if (x->busy)
        return;
    x->busy = true;
    while (x->state < HTTP_RUNNING && !x->broken &&
           evbuffer_get_length(unsent) <= x->server->limits.unsent)
        if (!read[x->state](x))
            break;
    x->busy = false;
    pace(x);
}
