/* Each allocation of a server while it answers a request fails, first only that one, and then all
 * from there on: those of the server itself, of the library, of jansson and of libevent.
 *
 * Each time that request gets the right answer, an error 500 or 503, or a connection that is closed
 * before the reply is complete. It never gets a wrong reply, and never waits for one for ever. The
 * next request gets the right answer, and in the end nothing is left allocated. */
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "fuzz/served_alloc.h"
#include "fuzz/served_rows.h"
#include "unit.h"

/* Lines of the log that report that a client disconnected, which none does. */
static int left;

static void read_line(const char *line) {
    left += strstr(line, "\"status\":499") != NULL;
}

static bool persistent;

/* Every allocation; in the quick tier, if all after it fail too, every seventh one. The next
 * request is made each time if a constraint may have been kept, otherwise every eighth time. */
static size_t stride(void) {
    return persistent && !unit_full() ? 7 : 1;
}

static bool is_checked(const served_row *r, size_t n) {
    return unit_full() || n % 8 == 1 || (r->body && strstr(r->body, "@@@@@@"));
}

static size_t reached;

static void end(serve *s) {
    (void)s;
    reached = served_alloc_end();
}

static void fail_each(serve *s, const served_row *r, served_words *expected) {
    static unsigned number;
    size_t n = 1, counts[SERVED_WRONG] = {0};
    for (;; n += stride()) {
        gqac_str replies;
        served_words said = {.known = true};
        number++;
        served_alloc_set(n, persistent);
        const bool rested = served_ask(s, r, number, end, &replies) == SERVED_AT_ONCE;
        const served_verdict v = served_judge(r, &replies, expected, &said);
        if (v == SERVED_WRONG || !rested)
            printf("  %s, allocation %zu%s: %s\n  %s\n", r->path, n,
                   persistent ? " and all after it" : "",
                   rested ? "a wrong reply" : "the server waits",
                   replies.length ? replies.text : "no reply");
        gqac_str_free(&replies);
        served_words_free(&said);
        if (v == SERVED_WRONG || !rested ||
            (is_checked(r, n) && !served_is_right(s, r, number, expected))) {
            CU_FAIL("a failed allocation is not a failed request");
            return;
        }
        counts[v]++;
        if (reached < n)
            break;
    }
    CU_ASSERT(counts[SERVED_CLOSED] &&
              (counts[SERVED_FAILED] || persistent)); /* an error also needs memory */
    printf("  %s: %zu allocations%s: %zu errors, %zu closed, %zu right\n", r->path, n - 1,
           persistent ? ", and all after each" : "", counts[SERVED_FAILED], counts[SERVED_CLOSED],
           counts[SERVED_RIGHT]);
}

static served_words expected[SERVED_ROWS];

/* The answers of a server without faults: twice, because the second time much is cached. */
static bool expect_all(serve *s, bool encoder) {
    bool right = true;
    for (int i = 0; i < SERVED_ROWS; i++)
        for (unsigned k = 1; k <= 2 && served_is_encoded(i) == encoder; k++)
            right = served_is_right(s, &served_rows[i], k, &expected[i]) && right;
    return right;
}

static void (*const open[])(served *g) = {served_open, served_open_encoder};

static void each_row(bool all_after) {
    const long before = served_alloc_live();
    persistent = all_after;
    for (int encoder = 0; encoder < 2; encoder++) {
        served g = {0};
        open[encoder](&g);
        CU_ASSERT(expect_all(g.server, encoder));
        for (int i = 0; i < SERVED_ROWS; i++)
            if (served_is_encoded(i) == encoder)
                fail_each(g.server, &served_rows[i], &expected[i]);
        served_close(&g);
    }
    CU_ASSERT_EQUAL(served_alloc_live(), before);
    CU_ASSERT_EQUAL(left, 0);
}

static void test_once(void) {
    each_row(false);
}

static void test_onwards(void) {
    each_row(true);
}

static void ignore(int severity, const char *message) {
    (void)severity, (void)message;
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"an allocation fails", test_once},
                                      {"it and all after it fail", test_onwards}};
    served_within = served_alloc_within;
    served_line = read_line;
    setvbuf(stdout, NULL, _IOLBF, 0);
    event_set_log_callback(ignore);
    bool right = true;
    for (int encoder = 0; encoder < 2; encoder++) {
        served g = {0};
        open[encoder](&g);
        right = expect_all(g.server, encoder) && right;
        served_close(&g); /* but the text, with everything that it has cached, is kept */
    }
    const int code =
        right ? unit_run("serve_memory", cases, sizeof cases / sizeof *cases, argc, argv) : 2;
    for (int i = 0; i < SERVED_ROWS; i++)
        served_words_free(&expected[i]);
    return code;
}
