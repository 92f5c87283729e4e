/* A server whose model is still loading: the answers of its endpoints until serve_attach. */
#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>

#include "serve/serve_impl.h"
#include "unit.h"

static serve *open_server(void) {
    const serve_options options = {.host = "127.0.0.1",
                                   .body_bytes = 1 << 20,
                                   .queue = 1,
                                   .connections = 9,
                                   .per_peer = 9,
                                   .drain_seconds = 1};
    serve *s = NULL;
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL_FATAL(serve_open(&options, &s, &diag), GQAC_OK);
    return s;
}

/* The complete reply to a request. */
static const char *ask(const serve *s, const char *request) {
    static char reply[4096];
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)http_port(s->http)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t n = 0;
    ssize_t part = 0;
    CU_ASSERT_EQUAL_FATAL(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    CU_ASSERT_EQUAL(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    while (n < sizeof reply - 1 && (part = read(fd, reply + n, sizeof reply - 1 - n)) > 0)
        n += (size_t)part;
    reply[n] = '\0';
    close(fd);
    return reply;
}

static bool begins(const char *text, const char *with) {
    return !strncmp(text, with, strlen(with));
}

static void test_health(void) {
    serve *s = open_server();
    const char *reply = ask(s, "GET /health HTTP/1.0\r\n\r\n");
    CU_ASSERT(begins(reply, "HTTP/1.1 503 Service Unavailable\r\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(reply, "\r\n\r\n{\"status\":\"loading\"}"));
    CU_ASSERT(begins(ask(s, "GET / HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK\r\n"));
    serve_free(s);
}

static void test_requests(void) {
    static const char *const requests[] = {
        "POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
        "Content-Length: 2\r\n\r\n{}",
        "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
        "Content-Length: 28\r\n\r\n{\"prompt\":\"x\",\"stream\":true}",
        "POST /tokenize HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        "GET /v1/models HTTP/1.0\r\n\r\n", "GET /metrics HTTP/1.0\r\n\r\n"};
    serve *s = open_server();
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        const char *reply = ask(s, requests[i]);
        CU_ASSERT(begins(reply, "HTTP/1.1 503 "));
        CU_ASSERT_PTR_NOT_NULL(strstr(reply, "\r\nRetry-After: 1\r\n"));
        CU_ASSERT_PTR_NOT_NULL(strstr(reply, "\"message\":\"the model is loading\""));
    }
    serve_free(s);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"health is 503, and the page is there", test_health},
        {"what needs the model is to be asked again later", test_requests},
    };
    return unit_run("loading", cases, sizeof cases / sizeof *cases, argc, argv);
}
