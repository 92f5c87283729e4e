/* Each allocation of a server while it answers a request fails, first only that one, and then all
 * from there on: those of the server itself, of the library, of jansson and of libevent.
 *
 * Each time that request gets the right answer, an error 500 or 503, or a connection that is closed
 * before the reply is complete. It never gets a wrong reply, and never waits for one for ever. The
 * next request gets the right answer, and in the end nothing is left allocated. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "fuzz/served.h"
#include "unit.h"

/* ---- memory, by --wrap ----------------------------------------------------- */

static bool within; /* the code of the server is running */
static bool persistent;
static size_t calls, fail_at;
static long live;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);

static bool refuse(void) {
    if (!within || !fail_at)
        return false;
    calls++;
    if (calls < fail_at || (calls > fail_at && !persistent))
        return false;
    errno = ENOMEM;
    return true;
}

static void *born(void *memory) {
    live += memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t bytes) {
    return refuse() ? NULL : born(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t size) {
    return refuse() ? NULL : born(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t bytes) {
    if (refuse())
        return NULL;
    return old ? __real_realloc(old, bytes) : born(__real_malloc(bytes));
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    const int error = refuse() ? ENOMEM : __real_posix_memalign(memory, alignment, bytes);
    live += !error;
    return error;
}

char *__wrap_strdup(const char *text) {
    char *copy = __wrap_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

void __wrap_free(void *memory) {
    live -= memory != NULL;
    __real_free(memory);
}

static void enter(bool inside) {
    within = inside;
}

/* Lines of the log that report that a client disconnected, which none does. */
static int left;

static void read_line(const char *line) {
    left += strstr(line, "\"status\":499") != NULL;
}

/* ---- requests -------------------------------------------------------------- */

#define MESSAGES "\"messages\": [{\"role\": \"user\", \"content\": \"Say what it is.\"}]"
#define CHAT     MESSAGES ", \"max_tokens\": 3, \"seed\": 3, \"logprobs\": true, \"top_logprobs\": 2"
#define TOOL                                                                                       \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\"}}}"
#define COMPLETION                                                                                 \
    "\"prompt\": [\"She had been\", \"a very short time\"], \"max_tokens\": 2, \"logprobs\": 2, "  \
    "\"echo\": true, \"return_token_ids\": true, \"stop\": [\"zzz\"]"
#define RESPONSE                                                                                   \
    "\"input\": [{\"role\": \"user\", \"content\": \"Hello\"}, {\"type\": \"function_call\", "     \
    "\"call_id\": \"a\", \"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"b c\\\"}\"}, "          \
    "{\"type\": \"function_call_output\", \"call_id\": \"a\", \"output\": \"x\"}], "               \
    "\"instructions\": \"Be brief.\", \"max_output_tokens\": 3, \"seed\": 3, "                     \
    "\"tools\": [{\"type\": \"function\", \"name\": \"f\", " TOOL "}]"
#define ENCODED "\"prompt\": [9, 9, 49, 31, 36, 37, 44], \"max_tokens\": 3, \"stop\": [\"zzz\"]"

/* "@@@@@@" in a body is replaced by a number that is different in each request. */
typedef struct row {
    const char *path, *body; /* body NULL: GET */
    int repeated;            /* requests that are sent at once */
} row;

static const row rows[] = {
    {"/v1/models", NULL, 1},
    {"/v1/models", NULL, 3},
    {"/metrics", NULL, 1},
    {"/health", NULL, 1},
    {"/", NULL, 1},
    {"/tokenize", "{\"content\": \"@long\"}", 1},
    {"/tokenize",
     "{\"n\": 0.123456789012345678901234567890123456789, \"content\": \"She had been a very short "
     "time at home\"}",
     2},
    {"/detokenize", "{\"tokens\": [5, 300, 7, 40, 41, 42, 43]}", 1},
    {"/apply-template", "{" MESSAGES "}", 1},
    {"/v1/chat/completions", "{" CHAT "}", 1},
    {"/v1/chat/completions", "{" CHAT ", \"stream\": true, \"n\": 2, \"verify_cache\": true}", 1},
    {"/v1/chat/completions",
     "{" MESSAGES ", \"max_tokens\": 8, \"tools\": [{\"type\": \"function\", \"function\": {"
     "\"name\": \"f@@@@@@\", " TOOL "}}], \"tool_choice\": \"required\"}",
     1},
    {"/v1/chat/completions",
     "{" MESSAGES ", \"max_tokens\": 9, \"stream\": true, \"response_format\": {\"type\": "
     "\"json_schema\", \"json_schema\": {\"name\": \"s\", \"schema\": {\"enum\": "
     "[\"one\", \"two\"], \"description\": \"@@@@@@\"}}}}",
     1},
    {"/v1/completions", "{" COMPLETION "}", 1},
    {"/v1/completions",
     "{" COMPLETION ", \"stream\": true, \"stream_options\": {\"include_usage\": true}}", 1},
    {"/v1/responses", "{" RESPONSE "}", 1},
    {"/v1/responses", "{" RESPONSE ", \"stream\": true}", 1},
    {"/v1/completions", "{" ENCODED ", \"n\": 2, \"seed\": 3, \"return_token_ids\": true}", 1},
    {"/v1/completions", "{" ENCODED ", \"logprobs\": 2, \"stream\": true}", 1},
    {"/v1/completions",
     "{" ENCODED ", \"json_schema\": {\"enum\": [\"ABC\"], \"description\": \"@@@@@@\"}}", 1},
};
/* The last rows are for a model with an encoder. */
enum { ROWS = sizeof rows / sizeof *rows, ENCODED_ROWS = 3, TURNS = 500 };

static bool is_encoded(int i) {
    return i >= ROWS - ENCODED_ROWS;
}

/* The text of a request; the number replaces the marks in its body. */
static gqac_str write_request(const row *r, unsigned number) {
    gqac_str body = {0}, all = {0};
    for (const char *at = r->body; at && *at; at++) {
        if (!strncmp(at, "@long", 5)) {
            for (int i = 0; i < 9; i++)
                gqac_str_printf(&body, "%d words of a text that has several buffers, \\u00e9; ", i);
            at += 4;
        } else if (!strncmp(at, "@@@@@@", 6)) {
            gqac_str_printf(&body, "%06u", number);
            at += 5;
        } else {
            gqac_str_append_n(&body, at, 1);
        }
    }
    for (int i = 1; i <= r->repeated; i++) {
        gqac_str_printf(&all, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: %s\r\n",
                        r->body ? "POST" : "GET", r->path, i < r->repeated ? "open" : "close");
        if (r->body)
            gqac_str_printf(&all, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                            body.length);
        gqac_str_printf(&all, "\r\n%s", r->body ? body.text : "");
    }
    gqac_str_free(&body);
    return all;
}

/* Sends a request in two pieces. False: the server does not finish. */
static bool ask(serve *s, const row *r, unsigned number, size_t n, gqac_str *replies) {
    gqac_str request = write_request(r, number);
    served_client c = served_connect(s);
    const size_t half = request.length - request.length / 3;
    calls = 0;
    fail_at = n;
    served_send(&c, request.text, half);
    for (int i = 0; i < 3; i++)
        served_turn(&c, false);
    served_send(&c, request.text + half, request.length - half);
    const bool rested = served_settle(&c, TURNS) && c.ended;
    fail_at = 0;
    memory_begin(); /* the JSON of the test */
    *replies = c.replies;
    c.replies = (gqac_str){0};
    served_disconnect(&c);
    gqac_str_free(&request);
    return rested;
}

/* ---- replies --------------------------------------------------------------- */

/* The contents of the replies to a row: the events of each choice, and the rest. Events of several
 * choices may be interleaved differently, because after a lack of memory the server computes fewer
 * answers at once for a while. */
enum { CHOICES = 2 };

typedef struct words {
    bool known;
    gqac_str choices[CHOICES], rest;
} words;

static void words_free(words *w) {
    for (int i = 0; i < CHOICES; i++)
        gqac_str_free(&w->choices[i]);
    gqac_str_free(&w->rest);
}

/* The part to which JSON belongs. */
static gqac_str *part_of(words *w, const json_t *value) {
    const json_t *choice = json_array_get(json_object_get(value, "choices"), 0);
    const json_int_t index =
        choice ? json_integer_value(json_object_get(choice, "index")) : CHOICES;
    return index < CHOICES ? &w->choices[index] : &w->rest;
}

static bool begins(const gqac_str *text, const gqac_str *part) {
    return part->length <= text->length &&
           (!part->length || !memcmp(text->text, part->text, part->length));
}

/* True if `said` is all of the expected contents, or, unless `whole`, the beginning of them. */
static bool is_expected(const words *expected, const words *said, bool whole) {
    bool fits = begins(&expected->rest, &said->rest) &&
                (!whole || expected->rest.length == said->rest.length);
    for (int i = 0; i < CHOICES; i++)
        fits = fits && begins(&expected->choices[i], &said->choices[i]) &&
               (!whole || expected->choices[i].length == said->choices[i].length);
    return fits;
}

/* Removes fields that may differ between two correct answers: the time, and the number of cached
 * tokens. */
static void strip(json_t *value) {
    static const char *const names[] = {"created", "created_at", "cached_tokens"};
    const char *key;
    json_t *within_it;
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        json_object_del(value, names[i]);
    json_object_foreach(value, key, within_it) strip(within_it);
    json_array_foreach(value, i, within_it) strip(within_it);
}

/* Adds JSON in a normal form for comparison; false: it is not JSON. */
static bool add_json(words *out, const char *text, size_t length) {
    json_t *value = json_loadb(text, length, 0, NULL);
    strip(value);
    char *plain = value ? json_dumps(value, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    if (plain)
        gqac_str_printf(part_of(out, value), "%s\n", plain);
    free(plain);
    json_decref(value);
    return plain != NULL;
}

/* Adds the events of a stream, up to an error. False: an event is invalid. */
static bool add_events(words *out, const char *text, bool *failed) {
    static const char data[] = "data: ", error[] = "event: error\n", done[] = "[DONE]";
    while (*text && !*failed) {
        const char *end = strstr(text, "\n\n"), *own = strstr(text, data);
        if (!end || !own || own > end)
            return false;
        own += sizeof data - 1;
        *failed = !strncmp(text, error, sizeof error - 1);
        if (!strncmp(own, done, sizeof done - 1))
            gqac_str_append(&out->rest, done);
        else if (!*failed && !add_json(out, own, (size_t)(end - own)))
            return false;
        text = end + 2;
    }
    return true;
}

/* Adds the names of metrics, except those that count by status. */
static void add_metrics(words *out, char *text) {
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *value = strrchr(line, ' ');
        if (*line != '#' && value && strncmp(line, "gqac_requests_total", 19) != 0)
            gqac_str_printf(&out->rest, "%.*s\n", (int)(value - line), line);
    }
}

typedef enum verdict { RIGHT, FAILED, CLOSED, WRONG } verdict;

/* The contents of a chunked body; *whole: it has its last chunk. */
static gqac_str join_chunks(const char *text, bool *whole) {
    gqac_str body = {0};
    *whole = false;
    for (char *data; !*whole; text = data + 2) {
        const size_t n = strtoul(text, &data, 16);
        if (data == text || strncmp(data, "\r\n", 2) != 0 || strlen(data + 2) < n + 2)
            break;
        *whole = !n;
        gqac_str_append_n(&body, data + 2, n);
        data += 2 + n;
    }
    return body;
}

/* Adds the contents of the body of a reply 200, in a normal form for comparison. */
static verdict read_body(const row *r, char *text, bool whole, bool events, words *out) {
    bool failed = false;
    if (events)
        return !add_events(out, text, &failed) ? WRONG : failed ? FAILED : whole ? RIGHT : CLOSED;
    if (!whole)
        return CLOSED;
    if (!strcmp(r->path, "/metrics"))
        add_metrics(out, text);
    else if (!strcmp(r->path, "/"))
        gqac_str_append(&out->rest, text);
    else if (!add_json(out, text, strlen(text)))
        return WRONG;
    return RIGHT;
}

/* Reads the next reply, and advances *at past it. */
static verdict read_reply(const row *r, char **at, words *out) {
    static const char sized[] = "Content-Length: ", chunked[] = "Transfer-Encoding: chunked";
    int status = 0;
    char *body = strstr(*at, "\r\n\r\n");
    if (!body || sscanf(*at, "HTTP/1.1 %3d ", &status) != 1)
        return CLOSED;
    body += 4;
    const char *size = strstr(*at, sized), *chunks = strstr(*at, chunked);
    if (size && size < body) {
        const size_t n = strtoul(size + sizeof sized - 1, NULL, 10);
        const bool whole = strlen(body) >= n;
        const char next = body[whole ? n : 0];
        *at = whole ? body + n : body + strlen(body);
        if (whole)
            body[n] = '\0';
        const verdict v = status == 500 || status == 503 ? FAILED
                          : status == 200                ? read_body(r, body, whole, false, out)
                                                         : WRONG;
        if (whole)
            body[n] = next;
        return v;
    }
    if (!chunks || chunks > body || status != 200)
        return WRONG;
    bool whole;
    gqac_str all = join_chunks(body, &whole);
    *at = body + strlen(body);
    const verdict v = read_body(r, all.text ? all.text : "", whole, true, out);
    gqac_str_free(&all);
    return v;
}

/* Compares all replies of a row with the expected ones, if these are known. A reply that failed, or
 * was cut off, must be the beginning of a correct one. */
static verdict judge(const row *r, const gqac_str *replies, const words *expected, words *out) {
    verdict v = RIGHT;
    char *at = replies->length ? replies->text : "";
    for (int i = 0; i < r->repeated && v == RIGHT; i++)
        v = read_reply(r, &at, out);
    const bool wrong = expected->known && !is_expected(expected, out, v == RIGHT);
    return wrong || (v == RIGHT && *at) ? WRONG : v;
}

/* ---- the test -------------------------------------------------------------- */

static bool is_right(serve *s, const row *r, unsigned number, words *expected) {
    gqac_str replies;
    words said = {.known = true};
    const bool rested = ask(s, r, number, 0, &replies);
    const bool right = rested && judge(r, &replies, expected, &said) == RIGHT;
    if (!right)
        printf("  %s\n", replies.length ? replies.text : "no reply");
    gqac_str_free(&replies);
    if (expected->known)
        words_free(&said);
    else
        *expected = said;
    return right;
}

/* Every allocation; in the quick tier, if all after it fail too, every seventh one. The next
 * request is made each time if a constraint may have been kept, otherwise every eighth time. */
static size_t stride(void) {
    return persistent && !unit_full() ? 7 : 1;
}

static bool is_checked(const row *r, size_t n) {
    return unit_full() || n % 8 == 1 || (r->body && strstr(r->body, "@@@@@@"));
}

static void fail_each(serve *s, const row *r, words *expected) {
    static unsigned number;
    size_t n = 1, counts[WRONG] = {0};
    for (;; n += stride()) {
        gqac_str replies;
        words said = {.known = true};
        number++;
        const bool rested = ask(s, r, number, n, &replies);
        const size_t reached = calls;
        const verdict v = judge(r, &replies, expected, &said);
        if (v == WRONG || !rested)
            printf("  %s, allocation %zu%s: %s\n  %s\n", r->path, n,
                   persistent ? " and all after it" : "",
                   rested ? "a wrong reply" : "the server waits",
                   replies.length ? replies.text : "no reply");
        gqac_str_free(&replies);
        words_free(&said);
        if (v == WRONG || !rested || (is_checked(r, n) && !is_right(s, r, number, expected))) {
            CU_FAIL("a failed allocation is not a failed request");
            return;
        }
        counts[v]++;
        if (reached < n)
            break;
    }
    CU_ASSERT(counts[CLOSED] && (counts[FAILED] || persistent)); /* an error also needs memory */
    printf("  %s: %zu allocations%s: %zu errors, %zu closed, %zu right\n", r->path, n - 1,
           persistent ? ", and all after each" : "", counts[FAILED], counts[CLOSED], counts[RIGHT]);
}

static words expected[ROWS];

/* The answers of a server without faults: twice, because the second time much is cached. */
static bool expect_all(serve *s, bool encoder) {
    bool right = true;
    for (int i = 0; i < ROWS; i++)
        for (unsigned k = 1; k <= 2 && is_encoded(i) == encoder; k++)
            right = is_right(s, &rows[i], k, &expected[i]) && right;
    return right;
}

static void (*const open[])(served *g) = {served_open, served_open_encoder};

static void each_row(bool all_after) {
    const long before = live;
    persistent = all_after;
    for (int encoder = 0; encoder < 2; encoder++) {
        served g = {0};
        open[encoder](&g);
        CU_ASSERT(expect_all(g.server, encoder));
        for (int i = 0; i < ROWS; i++)
            if (is_encoded(i) == encoder)
                fail_each(g.server, &rows[i], &expected[i]);
        served_close(&g);
    }
    CU_ASSERT_EQUAL(live, before);
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
    served_within = enter;
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
    for (int i = 0; i < ROWS; i++)
        words_free(&expected[i]);
    return code;
}
