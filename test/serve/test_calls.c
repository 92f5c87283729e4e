/* Each system call of a server that answers a request fails, first only that one, and then all from
 * there on: those that read and write files of the prefix store, and those of the connection, of
 * libevent as well. So does each one of a server that starts, the creation of threads included.
 *
 * Each time that request gets the right answer, an error 500 or 503, or a connection that is closed
 * before the reply is complete; if its connection cannot be accepted, it waits until that is
 * possible. The next request gets the bits of a server without faults, the folder contains complete
 * snapshots only, and neither memory nor a descriptor is lost. Interrupted calls have no effect. */
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "faults/support_calls.h"
#include "fuzz/fuzz.h"
#include "fuzz/served_alloc.h"
#include "fuzz/served_rows.h"
#include "serve/http_impl.h"
#include "store/support_tier.h"
#include "unit.h"

static char folder[512];
static served_words expected[SERVED_ROWS];
static served server;

/* ---- the state around a request ---------------------------------------------- */

/* Number of entries of a folder; `remove`: they are unlinked. */
static int count_entries(const char *path, bool remove) {
    int n = 0;
    DIR *dir = opendir(path);
    if (!dir)
        fuzz_broken("no folder");
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (*e->d_name == '.')
            continue;
        n++;
        if (remove)
            unlinkat(dirfd(dir), e->d_name, 0);
    }
    closedir(dir);
    return n;
}

static int n_descriptors(void) {
    return count_entries("/proc/self/fd", false);
}

static bool folder_whole(void) {
    gqac_diag diag = {0};
    gqac_store_file *files = NULL;
    size_t n = 0;
    bool whole = gqac_store_folder_list(folder, true, &files, &n, &diag) == GQAC_OK;
    for (size_t i = 0; i < n; i++)
        whole = whole && files[i].file;
    gqac_store_folder_free(files, n);
    return whole && (size_t)count_entries(folder, false) == n;
}

/* Prefixes that were given to the thread that saves them. */
static int64_t added;

void __real_saver_add(saver *s, const char *tenant, const gqac_sequence *sequence);
void __wrap_saver_add(saver *s, const char *tenant, const gqac_sequence *sequence);
void __wrap_saver_add(saver *s, const char *tenant, const gqac_sequence *sequence) {
    added++;
    __real_saver_add(s, tenant, sequence);
}

static void await_saver(serve *s) {
    for (saver_counts c = {0}; s->saver && c.saved + c.unsaved < added; sched_yield())
        c = saver_get_counts(s->saver);
}

static void within(bool inside) {
    fault_exempt(!inside);
}

/* ---- a request --------------------------------------------------------------- */

typedef struct fault {
    fault_kind kind;
    int error;
} fault;

/* Errors after which the same call may succeed at once: it is made until it does. */
static bool is_passing(const fault *f) {
    return f->error == EINTR || f->error == ECONNABORTED;
}

static size_t reached;

static void end(serve *s) {
    await_saver(s);
    reached = fault_end();
}

static void open_server(bool encoder) {
    memset(&server, 0, sizeof server);
    added = 0;
    if (encoder)
        served_open_encoder(&server);
    else
        served_open_folder(&server, folder);
}

static void close_server(void) {
    await_saver(server.server);
    served_close(&server);
}

/* A new server answers a request without faults. */
static bool ask_once(int i) {
    open_server(served_is_encoded(i));
    const bool right = served_is_right(server.server, &served_rows[i], 1, &expected[i]);
    close_server();
    return right;
}

/* What is wrong with the reply to a row during a fault, and with the state after it; NULL:
 * nothing. */
static const char *check(int i, const fault *f, bool persist, size_t n, size_t counts[]) {
    const served_row *r = &served_rows[i];
    gqac_str replies;
    served_words said = {.known = true};
    fault_set(f->kind, n, f->error, persist);
    const served_rest rest = served_ask(server.server, r, 1, end, &replies);
    await_saver(server.server); /* of a request that was accepted later */
    const served_verdict v = served_judge(r, &replies, &expected[i], &said);
    const char *wrong = NULL;
    if (rest == SERVED_NEVER || (rest == SERVED_LATER && f->kind != FAULT_ACCEPT))
        wrong = "the server waits";
    else if (v == SERVED_WRONG)
        wrong = "a wrong reply";
    else if (is_passing(f) && v != SERVED_RIGHT)
        wrong = "the call is not made again";
    else if (!folder_whole())
        wrong = "the folder";
    else if (!served_is_right(server.server, r, 1, &expected[i]))
        wrong = "the next reply";
    if (wrong)
        printf("  %s\n", replies.length ? replies.text : "no reply");
    else
        counts[v]++;
    gqac_str_free(&replies);
    served_words_free(&said);
    return wrong;
}

static size_t made[FAULT_KINDS]; /* calls of each kind in all rows */

/* `filled`: the folder has the prefixes of the row. */
static void fail_each(int i, const fault *f, bool persist, bool filled) {
    size_t n = 1, counts[SERVED_WRONG] = {0};
    for (;; n++) {
        count_entries(folder, true);
        if (filled)
            CU_ASSERT(ask_once(i));
        const long live = served_alloc_live();
        const int descriptors = n_descriptors();
        open_server(served_is_encoded(i));
        const char *wrong = check(i, f, persist, n, counts);
        close_server();
        if (!wrong && served_alloc_live() != live)
            wrong = "memory is lost";
        if (!wrong && n_descriptors() != descriptors)
            wrong = "a descriptor is lost";
        if (wrong) {
            printf("  %s, %s %zu with %s%s: %s\n", served_rows[i].path, fault_name(f->kind), n,
                   strerrorname_np(f->error), persist ? " and all after it" : "", wrong);
            CU_FAIL("a fault is not handled");
            return;
        }
        if (reached < n)
            break;
    }
    made[f->kind] += n - 1;
    if (n > 1)
        printf("  %s%s: %zu times %s with %s%s: %zu errors, %zu closed, %zu right\n",
               served_rows[i].path, filled ? ", cached" : "", n - 1, fault_name(f->kind),
               strerrorname_np(f->error), persist ? ", and all after each" : "",
               counts[SERVED_FAILED], counts[SERVED_CLOSED], counts[SERVED_RIGHT]);
}

static const fault faults[] = {
    {FAULT_OPEN, EMFILE},    {FAULT_OPEN, EINTR},         {FAULT_STATUS, EIO},
    {FAULT_READ, EIO},       {FAULT_READ, EINTR},         {FAULT_MAP, ENOMEM},
    {FAULT_WRITE, ENOSPC},   {FAULT_WRITE, EINTR},        {FAULT_SYNC, EIO},
    {FAULT_NAME, EACCES},    {FAULT_CLOSE, EIO},          {FAULT_THREAD, EAGAIN},
    {FAULT_SOCKET, ENOBUFS}, {FAULT_ACCEPT, EMFILE},      {FAULT_ACCEPT, ECONNABORTED},
    {FAULT_ACCEPT, EINTR},   {FAULT_RECEIVE, ECONNRESET}, {FAULT_RECEIVE, EINTR},
    {FAULT_SEND, EPIPE},     {FAULT_SEND, EINTR},         {FAULT_WATCH, ENOSPC}};
enum { FAULTS = sizeof faults / sizeof *faults };

/* In the quick tier, rows of each form of reply. */
static bool is_tested(int i) {
    return unit_full() || i == 1 || i == 6 || i == 10 || i == 13 || i == 16 || i == 19;
}

static void each_row(bool persist) {
    for (int i = 0; i < SERVED_ROWS; i++)
        for (int k = 0; k < 2 * FAULTS && is_tested(i); k++) {
            const fault *f = &faults[k / 2];
            const bool filled = k % 2;
            if ((persist && is_passing(f)) || (filled && served_is_encoded(i)))
                continue;
            fail_each(i, f, persist, filled);
        }
    count_entries(folder, true);
}

static void test_once(void) {
    static const fault_kind all[] = {FAULT_OPEN, FAULT_STATUS, FAULT_READ,   FAULT_WRITE,
                                     FAULT_SYNC, FAULT_NAME,   FAULT_ACCEPT, FAULT_RECEIVE,
                                     FAULT_SEND, FAULT_WATCH};
    each_row(false);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CU_ASSERT(made[all[i]] > 0);
}

static void test_onwards(void) {
    each_row(true);
}

/* A client sends half a request and no more, and the reply cannot be sent, because the descriptor
 * cannot be watched: its connection ends nevertheless, once the time for replies is over. */
static void test_unwatched(void) {
    static const char half[] = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n";
    open_server(false);
    server.server->http->limits.write_seconds = 0.05;
    served_client c = served_connect(server.server);
    fault_set(FAULT_WATCH, 2, ENOSPC, true);
    served_send(&c, half, sizeof half - 1);
    shutdown(c.fd, SHUT_WR);
    CU_ASSERT(served_settle(&c, 1000) && c.ended);
    CU_ASSERT(fault_end() >= 2);
    CU_ASSERT_EQUAL(c.replies.length, 0);
    served_disconnect(&c);
    CU_ASSERT(served_is_right(server.server, &served_rows[0], 1, &expected[0]));
    close_server();
}

/* The thread for long texts cannot be started: the request fails, and the next one starts it. */
static void test_thread(void) {
    const served_row *r = &served_rows[SERVED_HUGE];
    gqac_str replies;
    served_words said = {.known = true};
    open_server(false);
    server.server->tokenizing.by_turns = false;
    fault_set(FAULT_THREAD, 1, EAGAIN, false);
    CU_ASSERT_EQUAL(served_ask(server.server, r, 1, end, &replies), SERVED_AT_ONCE);
    CU_ASSERT_EQUAL(reached, 1);
    CU_ASSERT_EQUAL(served_judge(r, &replies, &expected[SERVED_HUGE], &said), SERVED_FAILED);
    CU_ASSERT(served_is_right(server.server, r, 1, &expected[SERVED_HUGE]));
    CU_ASSERT(server.server->tokenizing.started);
    close_server();
    gqac_str_free(&replies);
    served_words_free(&said);
}

/* ---- a start ------------------------------------------------------------------- */

/* Starts and ends a server as `gqac serve` does, with three threads, a folder and a remote tier. */
static gqac_status start(gqac_diag *diag) {
    const serve_options options = {
        .host = "127.0.0.1", .body_bytes = 1 << 20, .queue = 4, .connections = 8, .per_peer = 8};
    gqac_scheduler_options scheduler;
    gqac_store_options s;
    gqac_context *context = NULL;
    gqac_store *store = NULL;
    serve *own = NULL;
    tier t = {0};
    const gqac_store_remote remote = tier_functions(&t);
    gqac_store_options_init(&s);
    gqac_scheduler_options_init(&scheduler);
    s.folder = folder;
    s.remote = &remote;
    gqac_status status = serve_open(&options, &own, diag);
    if (status == GQAC_OK)
        status = gqac_context_create(fuzz_program(FUZZ_SERVED), 3, &context, diag);
    if (status == GQAC_OK)
        status = gqac_store_create(fuzz_program(FUZZ_SERVED), &s, &store, diag);
    scheduler.store = store;
    const serve_model model = {.name = "m",
                               .digest = "0123456789abcdef",
                               .context = context,
                               .text = served_text(),
                               .store = store,
                               .saved = true,
                               .remote = true,
                               .tokens = 300,
                               .scheduler = &scheduler};
    if (status == GQAC_OK)
        status = serve_attach(own, &model, diag);
    serve_free(own);
    gqac_store_free(store);
    gqac_context_free(context);
    tier_free(&t);
    return status;
}

static void fail_start(const fault *f, bool persist) {
    size_t n = 1, failed = 0;
    for (;; n++) {
        gqac_diag diag = {0};
        const long live = served_alloc_live();
        const int descriptors = n_descriptors();
        fault_exempt(false);
        fault_set(f->kind, n, f->error, persist);
        const gqac_status status = start(&diag);
        reached = fault_end();
        fault_exempt(true);
        failed += status != GQAC_OK;
        const bool clean = status == GQAC_OK || (status != GQAC_INTERNAL && *diag.what);
        const bool kept = served_alloc_live() == live && n_descriptors() == descriptors;
        if (!clean || !kept) {
            printf("  start, %s %zu with %s: %s '%s'%s\n", fault_name(f->kind), n,
                   strerrorname_np(f->error), gqac_status_name(status), diag.what,
                   kept ? "" : ", and something is lost");
            CU_FAIL("a fault is not handled");
            return;
        }
        if (reached < n)
            break;
    }
    if (persist && (f->kind == FAULT_SOCKET || f->kind == FAULT_WATCH || f->kind == FAULT_THREAD))
        CU_ASSERT(failed > 0);
    if (n > 1)
        printf("  start: %zu times %s with %s%s, %zu failures\n", n - 1, fault_name(f->kind),
               strerrorname_np(f->error), persist ? ", and all after each" : "", failed);
}

static void test_start(void) {
    for (int k = 0; k < 2 * FAULTS; k++) {
        const fault *f = &faults[k / 2];
        if (is_passing(f))
            continue;
        fail_start(f, k % 2);
        CU_ASSERT(ask_once(13));
    }
}

static void ignore(int severity, const char *message) {
    (void)severity, (void)message;
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"a call fails", test_once},
                                      {"it and all after it fail", test_onwards},
                                      {"a reply cannot be sent", test_unwatched},
                                      {"the thread of long texts", test_thread},
                                      {"a server starts", test_start}};
    fault_exempt(true);
    served_within = within;
    setvbuf(stdout, NULL, _IOLBF, 0);
    event_set_log_callback(ignore);
    snprintf(folder, sizeof folder, "%s/store", fuzz_folder());
    bool right = mkdir(folder, 0700) == 0;
    for (int i = 0; i < 2 * SERVED_ROWS && right; i++) { /* twice: what it caches is kept */
        right = ask_once(i / 2);
    }
    const int code =
        right ? unit_run("serve_calls", cases, sizeof cases / sizeof *cases, argc, argv) : 2;
    for (int i = 0; i < SERVED_ROWS; i++)
        served_words_free(&expected[i]);
    count_entries(folder, true);
    rmdir(folder);
    return code;
}
