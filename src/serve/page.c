/* The page of the server: one HTML file that is part of the program. It may load nothing from
 * elsewhere, and only its own script runs: each reply has a nonce of its own, which stands where
 * the file has "@NONCE@". */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "serve/serve_impl.h"

extern const char serve_page[]; /* page.html */

enum { NONCE = 32 }; /* hexadecimal digits */

static bool make_nonce(char nonce[NONCE + 1]) {
    unsigned char random[NONCE / 2];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random)
        return false;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(nonce + 2 * i, 3, "%02x", random[i]);
    return true;
}

/* The page with a nonce; the caller frees it. NULL: no memory. */
static char *fill(const char *nonce, size_t *length) {
    static const char mark[] = "@NONCE@";
    char *text = NULL;
    FILE *out = open_memstream(&text, length);
    if (!out)
        return NULL;
    const char *at = serve_page;
    for (const char *next; (next = strstr(at, mark)); at = next + sizeof mark - 1) {
        fwrite(at, 1, (size_t)(next - at), out);
        fputs(nonce, out);
    }
    fputs(at, out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

void page_send(serve *s, http_exchange *x, const json_t *root, const char *tenant) {
    char nonce[NONCE + 1] = "", headers[600];
    size_t length = 0;
    char *text = make_nonce(nonce) ? fill(nonce, &length) : NULL;
    (void)root, (void)tenant;
    if (!text) {
        problem p;
        problem_set(&p, 500, NULL, NULL, "no memory, or no random number, for the page");
        route_problem(s, x, &p);
        return;
    }
    snprintf(headers, sizeof headers,
             "Content-Security-Policy: default-src 'none'; script-src 'nonce-%s'; "
             "style-src 'nonce-%s'; img-src data:; connect-src 'self'; base-uri 'none'; "
             "form-action 'none'; frame-ancestors 'none'\r\n"
             "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
             "Cache-Control: no-store\r\n",
             nonce, nonce);
    route_log(s, x, 200, NULL);
    http_reply(x, 200, "text/html; charset=utf-8", headers, text, length);
    free(text);
}
