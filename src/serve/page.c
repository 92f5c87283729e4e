/* The page of the server: one HTML file that is part of the program. It may load nothing from
 * elsewhere, and only its own script runs: each reply has a nonce of its own, which stands where
 * the file has "@NONCE@". */
#include <string.h>
#include <sys/random.h>

#include "base/str.h"
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

/* The page with a nonce; `failed`: no memory. */
static gqac_str fill(const char *nonce) {
    static const char mark[] = "@NONCE@";
    gqac_str text = {0};
    const char *at = serve_page;
    for (const char *next; (next = strstr(at, mark)); at = next + sizeof mark - 1) {
        gqac_str_append_n(&text, at, (size_t)(next - at));
        gqac_str_append(&text, nonce);
    }
    gqac_str_append(&text, at);
    return text;
}

void page_send(serve *s, http_exchange *x, const json_t *root, const char *tenant) {
    char nonce[NONCE + 1] = "", headers[600];
    (void)root, (void)tenant;
    if (!make_nonce(nonce)) {
        problem p;
        problem_set(&p, 500, NULL, NULL, "the system has no random bytes for the page");
        route_problem(s, x, &p);
        return;
    }
    gqac_str text = fill(nonce);
    snprintf(headers, sizeof headers,
             "Content-Security-Policy: default-src 'none'; script-src 'nonce-%s'; "
             "style-src 'nonce-%s'; img-src data:; connect-src 'self'; base-uri 'none'; "
             "form-action 'none'; frame-ancestors 'none'\r\n"
             "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
             "Cache-Control: no-store\r\n",
             nonce, nonce);
    route_reply(s, x, 200, "text/html; charset=utf-8", headers, text.failed ? NULL : text.text,
                text.length, NULL);
    gqac_str_free(&text);
}
