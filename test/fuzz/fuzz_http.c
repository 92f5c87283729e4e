/* Requests to `gqac serve`: a complete server of a small model, on one thread, and clients over the
 * loopback interface. An input that begins with '/' is a path, a NUL and a body, which are sent as
 * one correct request; a path without a body is requested with GET. Any other input is the bytes of
 * connections: a byte 0xFF ends a piece, which the server reads and answers before more is sent; a
 * byte 0xFE ends a connection whose client does not wait for replies.
 *
 * Afterwards the server must answer like a new one, and must have kept nothing. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fuzz/served.h"

enum { END_OF_PIECE = 0xFF, END_OF_CLIENT = 0xFE };

static void settle(served_client *c) {
    if (!served_settle(c, SERVED_TURNS))
        fuzz_broken("a server that does not come to rest");
}

/* A valid request must get a reply that is not a failure of the server; an error has a text. */
static gqac_status check_reply(const served_client *c) {
    const int status = served_status(&c->replies);
    json_t *root = served_json(&c->replies);
    const char *why = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    const bool said = why && *why;
    json_decref(root);
    if (!c->ended || status < 200 || status == 500 || (status >= 400 && !said)) {
        fprintf(stderr, "%s\n", c->replies.length ? c->replies.text : "nothing");
        fuzz_broken("the reply to a request");
    }
    return status == 200 ? GQAC_OK : GQAC_INVALID_INPUT;
}

static gqac_status ask(served_client *c, const char *path, size_t n_path, const char *body,
                       size_t n_body) {
    char text[128];
    const int n = snprintf(text, sizeof text,
                           " HTTP/1.0\r\nHost: localhost\r\nContent-Type: "
                           "application/json\r\nContent-Length: %zu\r\n\r\n",
                           n_body);
    served_send(c, body ? "POST " : "GET ", body ? 5 : 4);
    served_send(c, path, n_path);
    served_send(c, text, (size_t)n);
    served_send(c, body, n_body);
    settle(c);
    return check_reply(c);
}

/* Requires the text of a short answer. */
static void require_answer(serve *s) {
    static const char path[] = "/v1/completions",
                      body[] = "{\"prompt\": [5, 300, 7], \"max_tokens\": 3, \"ignore_eos\": true,"
                               " \"return_token_ids\": true, \"verify_cache\": true}";
    static char *expected;
    served_client c = served_connect(s);
    ask(&c, path, sizeof path - 1, body, sizeof body - 1);
    json_t *root = served_json(&c.replies), *choices = json_object_get(root, "choices");
    char *text = choices ? json_dumps(choices, JSON_SORT_KEYS) : NULL;
    json_decref(root);
    served_disconnect(&c);
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

/* Sends pieces to one connection; returns the number of bytes used. */
static size_t send_pieces(serve *s, const uint8_t *data, size_t size, gqac_status *status) {
    served_client c = served_connect(s);
    size_t at = 0, begin = 0;
    for (; at < size && data[at] != END_OF_CLIENT; at++) {
        if (data[at] != END_OF_PIECE)
            continue;
        served_send(&c, (const char *)data + begin, at - begin);
        settle(&c);
        begin = at + 1;
    }
    served_send(&c, (const char *)data + begin, at - begin);
    for (int i = 0; i < 3; i++) /* it is accepted, read, and begun */
        served_turn(&c, false);
    if (at == size) {
        settle(&c);
        shutdown(c.fd, SHUT_WR);
        settle(&c);
        *status = served_status(&c.replies) == 200 ? GQAC_OK : GQAC_INVALID_INPUT;
    }
    served_disconnect(&c);
    return at < size ? at + 1 : size;
}

static gqac_status run(const uint8_t *data, size_t size) {
    served g = {0};
    gqac_status status = GQAC_INVALID_INPUT;
    served_open(&g);
    if (size && *data == '/') {
        const fuzz_parts p = fuzz_split(data, size);
        served_client c = served_connect(g.server);
        size_t n = 0;
        while (n < p.n_first && (uint8_t)p.first[n] > ' ') /* what follows would be more headers */
            n++;
        status = ask(&c, p.first, n, p.second, p.n_second);
        served_disconnect(&c);
    } else {
        for (size_t used = 0; used < size;)
            used += send_pieces(g.server, data + used, size - used, &status);
    }
    require_answer(g.server);
    served_close(&g);
    return status;
}

const fuzz_target fuzz_target_http = {"http", run, NULL};
