/* See served_rows.h. */
#include "fuzz/served_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 500 };

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
enum { ENCODED_ROWS = 3 }; /* the last ones */
#define ENCODED "\"prompt\": [9, 9, 49, 31, 36, 37, 44], \"max_tokens\": 3, \"stop\": [\"zzz\"]"

const served_row served_rows[SERVED_ROWS] = {
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
    [SERVED_HUGE] = {"/tokenize", "{\"content\": \"@huge\"}", 1},
    {"/v1/completions", "{" ENCODED ", \"n\": 2, \"seed\": 3, \"return_token_ids\": true}", 1},
    {"/v1/completions", "{" ENCODED ", \"logprobs\": 2, \"stream\": true}", 1},
    {"/v1/completions",
     "{" ENCODED ", \"json_schema\": {\"enum\": [\"ABC\"], \"description\": \"@@@@@@\"}}", 1},
};
bool served_is_encoded(int i) {
    return i >= SERVED_ROWS - ENCODED_ROWS;
}

/* The text of a request; the number replaces the marks in its body. */
static gqac_str write_request(const served_row *r, unsigned number) {
    gqac_str body = {0}, all = {0};
    for (const char *at = r->body; at && *at; at++) {
        const bool huge = !strncmp(at, "@huge", 5);
        if (huge || !strncmp(at, "@long", 5)) {
            for (int i = 0; i < (huge ? 700 : 9); i++)
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

served_rest served_ask(serve *s, const served_row *r, unsigned number, void (*rested)(serve *s),
                       gqac_str *replies) {
    gqac_str request = write_request(r, number);
    served_client c = served_connect(s);
    const size_t half = request.length - request.length / 3;
    served_send(&c, request.text, half);
    for (int i = 0; i < 3; i++)
        served_turn(&c, false);
    served_send(&c, request.text + half, request.length - half);
    const bool at_once = served_settle(&c, TURNS) && c.ended;
    if (rested)
        rested(s);
    const bool later = at_once || (served_settle(&c, TURNS) && c.ended);
    memory_begin(); /* the JSON of the test */
    *replies = c.replies;
    c.replies = (gqac_str){0};
    served_disconnect(&c);
    gqac_str_free(&request);
    return at_once ? SERVED_AT_ONCE : later ? SERVED_LATER : SERVED_NEVER;
}

/* ---- replies --------------------------------------------------------------- */

void served_words_free(served_words *w) {
    for (int i = 0; i < SERVED_CHOICES; i++)
        gqac_str_free(&w->choices[i]);
    gqac_str_free(&w->rest);
}

/* The part to which JSON belongs. */
static gqac_str *part_of(served_words *w, const json_t *value) {
    const json_t *choice = json_array_get(json_object_get(value, "choices"), 0);
    const json_int_t index =
        choice ? json_integer_value(json_object_get(choice, "index")) : SERVED_CHOICES;
    return index < SERVED_CHOICES ? &w->choices[index] : &w->rest;
}

static bool begins(const gqac_str *text, const gqac_str *part) {
    return part->length <= text->length &&
           (!part->length || !memcmp(text->text, part->text, part->length));
}

/* True if `said` is all of the expected contents, or, unless `whole`, the beginning of them. */
static bool is_expected(const served_words *expected, const served_words *said, bool whole) {
    bool fits = begins(&expected->rest, &said->rest) &&
                (!whole || expected->rest.length == said->rest.length);
    for (int i = 0; i < SERVED_CHOICES; i++)
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
static bool add_json(served_words *out, const char *text, size_t length) {
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
static bool add_events(served_words *out, const char *text, bool *failed) {
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
static void add_metrics(served_words *out, char *text) {
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *value = strrchr(line, ' ');
        if (*line != '#' && value && strncmp(line, "gqac_requests_total", 19) != 0)
            gqac_str_printf(&out->rest, "%.*s\n", (int)(value - line), line);
    }
}

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
static served_verdict read_body(const served_row *r, char *text, bool whole, bool events,
                                served_words *out) {
    bool failed = false;
    if (events)
        return !add_events(out, text, &failed) ? SERVED_WRONG
               : failed                        ? SERVED_FAILED
               : whole                         ? SERVED_RIGHT
                                               : SERVED_CLOSED;
    if (!whole)
        return SERVED_CLOSED;
    if (!strcmp(r->path, "/metrics"))
        add_metrics(out, text);
    else if (!strcmp(r->path, "/"))
        gqac_str_append(&out->rest, text);
    else if (!add_json(out, text, strlen(text)))
        return SERVED_WRONG;
    return SERVED_RIGHT;
}

/* Reads the next reply, and advances *at past it. */
static served_verdict read_reply(const served_row *r, char **at, served_words *out) {
    static const char sized[] = "Content-Length: ", chunked[] = "Transfer-Encoding: chunked";
    int status = 0;
    char *body = strstr(*at, "\r\n\r\n");
    if (!body || sscanf(*at, "HTTP/1.1 %3d ", &status) != 1)
        return SERVED_CLOSED;
    body += 4;
    const char *size = strstr(*at, sized), *chunks = strstr(*at, chunked);
    if (size && size < body) {
        const size_t n = strtoul(size + sizeof sized - 1, NULL, 10);
        const bool whole = strlen(body) >= n;
        const char next = body[whole ? n : 0];
        *at = whole ? body + n : body + strlen(body);
        if (whole)
            body[n] = '\0';
        const served_verdict v = status == 500 || status == 503 ? SERVED_FAILED
                                 : status == 200 ? read_body(r, body, whole, false, out)
                                                 : SERVED_WRONG;
        if (whole)
            body[n] = next;
        return v;
    }
    if (!chunks || chunks > body || status != 200)
        return SERVED_WRONG;
    bool whole;
    gqac_str all = join_chunks(body, &whole);
    *at = body + strlen(body);
    const served_verdict v = read_body(r, all.text ? all.text : "", whole, true, out);
    gqac_str_free(&all);
    return v;
}

served_verdict served_judge(const served_row *r, const gqac_str *replies,
                            const served_words *expected, served_words *out) {
    served_verdict v = SERVED_RIGHT;
    char *at = replies->length ? replies->text : "";
    for (int i = 0; i < r->repeated && v == SERVED_RIGHT; i++)
        v = read_reply(r, &at, out);
    const bool wrong = expected->known && !is_expected(expected, out, v == SERVED_RIGHT);
    return wrong || (v == SERVED_RIGHT && *at) ? SERVED_WRONG : v;
}

bool served_is_right(serve *s, const served_row *r, unsigned number, served_words *expected) {
    gqac_str replies;
    served_words said = {.known = true};
    const bool rested = served_ask(s, r, number, NULL, &replies) == SERVED_AT_ONCE;
    const bool right = rested && served_judge(r, &replies, expected, &said) == SERVED_RIGHT;
    if (!right)
        printf("  %s\n", replies.length ? replies.text : "no reply");
    gqac_str_free(&replies);
    if (expected->known)
        served_words_free(&said);
    else
        *expected = said;
    return right;
}
