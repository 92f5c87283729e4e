/* Routes: which endpoint answers a request, and who may use it; errors; the small endpoints. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>
#include <time.h>

#include "serve/serve_impl.h"

enum { LOGGED = 1000 }; /* maximum bytes of a path in the log */

static const char JSON_TYPE[] = "application/json";

/* ---- replies ------------------------------------------------------------- */

static void write_log(serve *s, const http_exchange *x, int status, json_t *more) {
    char time_text[40];
    struct timeval now;
    struct tm utc;
    gettimeofday(&now, NULL);
    gmtime_r(&now.tv_sec, &utc);
    const size_t n = strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(time_text + n, sizeof time_text - n, ".%03dZ", (int)(now.tv_usec / 1000));
    json_t *path = shape_text(http_path(x), strnlen(http_path(x), LOGGED)); /* of any bytes */
    json_t *line = json_pack("{s:s, s:s, s:s, s:o, s:i}", "time", time_text, "peer", http_peer(x),
                             "method", http_method(x), "path", path, "status", status);
    if (line && more)
        json_object_update(line, more);
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    if (text)
        s->options.log(s->options.log_arg, text);
    free(text);
    json_decref(line);
}

/* The path of a route, for counters: clients could send any number of other paths. */
static const char *known_path(const http_exchange *x);
/* The header with the methods of a path that a route has. */
static const char *allowed_methods(const http_exchange *x);

void route_log(serve *s, const http_exchange *x, int status, json_t *more) {
    metrics_count_request(s->metrics, known_path(x), status);
    if (s->options.log)
        write_log(s, x, status, more);
    json_decref(more);
}

void route_reply(serve *s, http_exchange *x, int status, const char *type, const char *headers,
                 const char *body, size_t length, json_t *more) {
    problem p;
    if (body && !memory_ran_out()) {
        route_log(s, x, status, more);
        http_reply(x, status, type, headers, body, length);
        return;
    }
    json_decref(more);
    problem_no_memory(&p);
    route_problem(s, x, &p);
}

void route_json(serve *s, http_exchange *x, int status, json_t *value, json_t *more) {
    char *text = shape_dump(value);
    route_reply(s, x, status, JSON_TYPE, NULL, text, text ? strlen(text) : 0, more);
    free(text);
    json_decref(value);
}

json_t *route_problem_json(const problem *p) {
    const char *type = p->status >= 500   ? "server_error"
                       : p->status == 429 ? "rate_limit_error"
                       : p->status == 401 ? "authentication_error"
                                          : "invalid_request_error";
    json_t *message = shape_text(p->message, strlen(p->message));
    json_t *param = *p->param ? shape_text(p->param, strlen(p->param)) : json_null();
    json_t *code = *p->code ? shape_text(p->code, strlen(p->code)) : json_null();
    return json_pack("{s:{s:o, s:s, s:o, s:o}}", "error", "message", message, "type", type, "param",
                     param, "code", code);
}

static void send_problem(serve *s, http_exchange *x, const problem *p, bool logged) {
    static const char none[] =
        "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\"}}";
    problem memory;
    problem_no_memory(&memory);
    if (memory_ran_out()) /* whatever else seemed to be wrong */
        p = &memory;
    memory_begin();
    json_t *value = route_problem_json(p);
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    if (memory_ran_out()) {
        free(text);
        text = NULL;
        p = &memory;
    }
    if (logged)
        route_log(s, x, p->status,
                  json_pack("{s:o}", "error", shape_text(p->message, strlen(p->message))));
    http_reply(x, p->status, JSON_TYPE,
               p->status == 429 || p->status == 503 ? "Retry-After: 1\r\n"
               : p->status == 401                   ? "WWW-Authenticate: Bearer\r\n"
               : p->status == 405                   ? allowed_methods(x)
                                                    : NULL,
               text ? text : none, strlen(text ? text : none));
    free(text);
    json_decref(value);
}

void route_problem(serve *s, http_exchange *x, const problem *p) {
    send_problem(s, x, p, true);
}

/* Ends and logs the job of a request; false: it has none. */
static bool leave(http_exchange *x, int status) {
    job *j = http_user(x);
    memory_begin();
    if (j)
        job_leave(j, status);
    http_set_user(x, NULL);
    return j;
}

void route_refuse(void *arg, http_exchange *x, int status, const char *message) {
    problem p;
    const bool logged = leave(x, status);
    memory_begin();
    problem_set(&p, status, NULL, NULL, "%s", message);
    send_problem(arg, x, &p, !logged);
}

void route_gone(void *arg, http_exchange *x, int status) {
    (void)arg;
    leave(x, status);
}

/* ---- small endpoints ----------------------------------------------------- */

typedef void endpoint(serve *s, http_exchange *x, const json_t *root, const char *tenant);

static void health(serve *s, http_exchange *x, const json_t *root, const char *tenant) {
    static const char *const words[] = {"loading", "ok", "stopping", "stopping"};
    const serve_state state = serve_get_state(s);
    (void)root, (void)tenant;
    route_json(s, x, state == SERVE_READY ? 200 : 503, json_pack("{s:s}", "status", words[state]),
               NULL);
}

static const char one_model_path[] = "/v1/models/"; /* and the name */

static json_t *model_json(const serve *s) {
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:s}", "id", s->model.name, "object", "model",
                     "created", (json_int_t)0, "owned_by", "gqac", "max_model_len",
                     (json_int_t)(s->most < INT32_MAX ? s->most : INT32_MAX), "system_fingerprint",
                     s->fingerprint);
}

static void models(serve *s, http_exchange *x, const json_t *root, const char *tenant) {
    (void)root, (void)tenant;
    route_json(s, x, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(s)), NULL);
}

/* True if a part of a path, with its %XX, is the name. */
static bool spells(const char *part, const char *name) {
    for (; *part && *name; name++) {
        const char hex[3] = {part[0] == '%' ? part[1] : 0, part[0] == '%' && part[1] ? part[2] : 0};
        const bool coded = isxdigit((unsigned char)hex[0]) && isxdigit((unsigned char)hex[1]);
        const unsigned char byte =
            coded ? (unsigned char)strtoul(hex, NULL, 16) : (unsigned char)*part;
        if (byte != (unsigned char)*name)
            return false;
        part += coded ? 3 : 1;
    }
    return !*part && !*name;
}

static void one_model(serve *s, http_exchange *x, const json_t *root, const char *tenant) {
    const char *part = http_path(x) + strlen(one_model_path);
    problem p;
    (void)root, (void)tenant;
    if (spells(part, s->model.name)) {
        route_json(s, x, 200, model_json(s), NULL);
        return;
    }
    problem_set(&p, 404, "model_not_found", "model", "this server has only the model %s",
                s->model.name);
    route_problem(s, x, &p);
}

static void detokenize(serve *s, http_exchange *x, const json_t *root, const char *tenant) {
    problem p;
    json_t *list = NULL;
    prompt ids = {0};
    char *text = NULL;
    size_t length = 0;
    gqac_diag diag = {0};
    (void)tenant;
    bool fine = fields_type(root, "tokens", JSON_ARRAY, &list, &p);
    if (fine && !list)
        fine = problem_set(&p, 400, NULL, "tokens", "'tokens' is missing");
    fine = fine && ask_ids(list, INT64_MAX, "tokens", &ids, &p);
    if (fine && gqac_text_detokenize(s->model.text, ids.ids, ids.n, false, &text, &length, &diag) !=
                    GQAC_OK)
        fine = problem_from(&p, "tokens", &diag);
    if (fine)
        route_json(s, x, 200,
                   json_pack("{s:o, s:o}", "content", shape_text(text, length), "prompt",
                             shape_text(text, length)),
                   NULL);
    else
        route_problem(s, x, &p);
    gqac_release(text);
    free(ids.ids);
}

static void apply_template(serve *s, http_exchange *x, const json_t *root, const char *tenant) {
    problem p;
    json_t *messages = NULL;
    char *text = NULL;
    size_t length = 0;
    offer given;
    (void)tenant;
    if (fields_type(root, "messages", JSON_ARRAY, &messages, &p) &&
        ask_render(s, root, messages, "messages", &text, &length, &given, &p))
        route_json(s, x, 200, json_pack("{s:o}", "prompt", shape_text(text, length)), NULL);
    else
        route_problem(s, x, &p);
    gqac_release(text);
}

static void embeddings(serve *s, http_exchange *x, const json_t *root, const char *tenant) {
    problem p;
    (void)root, (void)tenant;
    problem_set(&p, 501, "unsupported", NULL,
                "this server computes no embeddings: it runs models for their logits only");
    route_problem(s, x, &p);
}

/* A metric that is a number of a struct of statistics. */
typedef struct counted {
    const char *name, *type, *help;
    size_t at;
} counted;

#define OF_SCHEDULER(field) offsetof(gqac_scheduler_statistics, field)
static const counted of_scheduler[] = {
    {"gqac_requests_waiting", "gauge", "Requests without a place in the steps.",
     OF_SCHEDULER(waiting)},
    {"gqac_requests_running", "gauge", "Requests that take part in steps.", OF_SCHEDULER(running)},
    {"gqac_steps_total", "counter", "Steps of the model.", OF_SCHEDULER(steps)},
    {"gqac_reused_tokens_total", "counter", "Tokens whose rows were cached.",
     OF_SCHEDULER(reused_tokens)},
    {"gqac_computed_tokens_total", "counter", "Tokens that were computed.",
     OF_SCHEDULER(computed_tokens)},
    {"gqac_new_tokens_total", "counter", "Tokens of answers.", OF_SCHEDULER(new_tokens)},
    {"gqac_drafted_tokens_total", "counter", "Drafts that were computed.",
     OF_SCHEDULER(drafted_tokens)},
    {"gqac_accepted_tokens_total", "counter", "Drafts that became tokens of answers.",
     OF_SCHEDULER(accepted_tokens)},
    {"gqac_preemptions_total", "counter", "Times that a request lost its rows for lack of memory.",
     OF_SCHEDULER(preemptions)},
    {0},
};

#define OF_STORE(field) offsetof(gqac_store_statistics, field)
static const counted of_store[] = {
    {"gqac_store_hits_total", "counter", "Prompts that reused tokens.", OF_STORE(hits)},
    {"gqac_store_misses_total", "counter", "Prompts that reused none.", OF_STORE(misses)},
    {"gqac_store_evictions_total", "counter", "Prefixes that were removed.", OF_STORE(evictions)},
    {"gqac_store_bytes", "gauge", "Bytes of cached prefixes.", OF_STORE(bytes)},
    {"gqac_store_prefixes", "gauge", "Prefixes in memory.", OF_STORE(prefixes)},
    {"gqac_store_damaged_files_total", "counter", "Files that were not used.",
     OF_STORE(damaged_files)},
    {0},
};

static const counted of_remote[] = {
    {"gqac_remote_hits_total", "counter", "Prefixes of which the remote tier had a part.",
     OF_STORE(remote_hits)},
    {"gqac_remote_misses_total", "counter", "Prefixes of which the remote tier had no part.",
     OF_STORE(remote_misses)},
    {"gqac_remote_errors_total", "counter",
     "Calls of the remote tier that failed or took too long.", OF_STORE(remote_errors)},
    {"gqac_remote_damaged_total", "counter",
     "Damaged values of the remote tier, which were not used.", OF_STORE(remote_damaged)},
    {"gqac_remote_saved_total", "counter", "Values written to the remote tier.",
     OF_STORE(remote_saved)},
    {"gqac_remote_read_bytes_total", "counter", "Bytes of values read from the remote tier.",
     OF_STORE(remote_read_bytes)},
    {"gqac_remote_written_bytes_total", "counter", "Bytes of values written to the remote tier.",
     OF_STORE(remote_written_bytes)},
    {0},
};

static const counted of_saver[] = {
    {"gqac_store_saved_total", "counter",
     "Prefixes written to the folder; without a folder, those offered to the remote tier, whose "
     "counters tell what it took.",
     offsetof(saver_counts, saved)},
    {"gqac_store_unsaved_total", "counter",
     "Prefixes that could not be written, or had to wait too long.",
     offsetof(saver_counts, unsaved)},
    {0},
};

static void write_counted(gqac_str *out, const counted *list, const void *statistics) {
    int64_t value;
    for (; list->name; list++) {
        memcpy(&value, (const char *)statistics + list->at, sizeof value);
        metrics_value(out, list->name, list->type, list->help, (double)value);
    }
}

static void write_statistics(serve *s, gqac_str *out) {
    const gqac_scheduler_statistics x = serve_statistics(s);
    gqac_store_statistics y = {.size = sizeof y};
    write_counted(out, of_scheduler, &x);
    if (s->model.store && gqac_store_get_statistics(s->model.store, &y, NULL) == GQAC_OK)
        write_counted(out, of_store, &y);
    if (s->model.remote)
        write_counted(out, of_remote, &y);
    if (s->saver) {
        const saver_counts z = saver_get_counts(s->saver);
        write_counted(out, of_saver, &z);
    }
}

static int64_t memory_used(const serve *s) {
    const gqac_seq2seq_file *files = NULL;
    int64_t sum = 0;
    if (!s->model.seq2seq)
        return gqac_program_memory_used(gqac_context_program(s->model.context));
    const int n = gqac_seq2seq_files(s->model.seq2seq, &files);
    for (int i = 0; i < n; i++)
        sum += gqac_program_memory_used(files[i].program);
    return sum;
}

static void write_metrics(serve *s, http_exchange *x, const json_t *root, const char *tenant) {
    gqac_str out = {0};
    (void)root, (void)tenant;
    metrics_write(s->metrics, &out);
    write_statistics(s, &out);
    metrics_value(&out, "gqac_connections", "gauge", "Open connections.",
                  (double)http_connections(s->http));
    metrics_value(&out, "gqac_texts_pending", "gauge",
                  "Long texts of /tokenize that have no reply yet.", (double)tokenizing_count(s));
    metrics_value(&out, "gqac_memory_bytes", "gauge",
                  s->model.seq2seq ? "Memory of intermediate tensors."
                                   : "Memory of cached rows, states and intermediate tensors.",
                  (double)memory_used(s));
    metrics_value(&out, "gqac_memory_budget_bytes", "gauge", "Its maximum; 0: unlimited.",
                  (double)s->model.memory_budget);
    route_reply(s, x, 200, "text/plain; version=0.0.4", NULL, out.failed ? NULL : out.text,
                out.length, NULL);
    gqac_str_free(&out);
}

/* ---- routing ------------------------------------------------------------- */

static const struct route {
    const char *method, *path;
    endpoint *run; /* NULL: a job of this shape, which reads its own body */
    const job_shape *shape;
    bool open;  /* without a key, and before the model is ready */
    bool typed; /* has a JSON body, which `run` gets */
} routes[] = {
    {"GET", "/", page_send, NULL, true, false},
    {"GET", "/health", health, NULL, true, false},
    {"GET", "/metrics", write_metrics, NULL, false, false},
    {"GET", "/v1/models", models, NULL, false, false},
    {"GET", one_model_path, one_model, NULL, false, false},
    {"POST", "/v1/chat/completions", NULL, &shape_chat, false, false},
    {"POST", "/v1/completions", NULL, &shape_completion, false, false},
    {"POST", "/v1/responses", NULL, &shape_response, false, false},
    {"POST", "/v1/embeddings", embeddings, NULL, false, false},
    {"POST", "/tokenize", tokenizing_request, NULL, false, true},
    {"POST", "/detokenize", detokenize, NULL, false, true},
    {"POST", "/apply-template", apply_template, NULL, false, true},
};
enum { ROUTES = sizeof routes / sizeof *routes };

static bool has_path(const struct route *r, const char *path) {
    return r->path == one_model_path ? !strncmp(path, one_model_path, strlen(one_model_path))
                                     : !strcmp(path, r->path);
}

static const char *known_path(const http_exchange *x) {
    for (int i = 0; i < ROUTES; i++)
        if (has_path(&routes[i], http_path(x)))
            return routes[i].path;
    return "other";
}

static const char *allowed_methods(const http_exchange *x) {
    for (int i = 0; i < ROUTES; i++)
        if (has_path(&routes[i], http_path(x)) && !strcmp(routes[i].method, "GET"))
            return "Allow: GET, HEAD\r\n";
    return "Allow: POST\r\n";
}

/* The endpoint that a path names whose /v1 was forgotten, or NULL. */
static const char *with_version(const char *path) {
    for (int i = 0; i < ROUTES; i++)
        if (!strncmp(routes[i].path, "/v1/", 4) && !strcmp(routes[i].path + 3, path))
            return routes[i].path;
    return NULL;
}

static const struct route *find(http_exchange *x, problem *p) {
    const char *method = http_method(x), *path = http_path(x);
    bool known = false;
    for (int i = 0; i < ROUTES; i++) {
        if (!has_path(&routes[i], path))
            continue;
        if (!strcmp(method, routes[i].method) ||
            (!strcmp(method, "HEAD") && !strcmp(routes[i].method, "GET")))
            return &routes[i];
        known = true;
    }
    if (known)
        problem_set(p, 405, NULL, NULL, "%s does not support the method %s", path, method);
    else if (with_version(path))
        problem_set(p, 404, NULL, NULL, "there is no endpoint %s (%s); did you mean %s?", path,
                    method, with_version(path));
    else
        problem_set(p, 404, NULL, NULL, "there is no endpoint %s (%s)", path, method);
    return NULL;
}

/* Without keys anybody on this machine may ask, but not a web page whose own host name was made to
 * resolve to this address. */
static bool is_local_host(const char *host) {
    char name[256];
    unsigned char bytes[16];
    snprintf(name, sizeof name, "%s", host + (*host == '['));
    name[strcspn(name, *host == '[' ? "]" : ":")] = '\0';
    return !strcasecmp(name, "localhost") || inet_pton(AF_INET, name, bytes) == 1 ||
           inet_pton(AF_INET6, name, bytes) == 1;
}

static bool may_ask(serve *s, const http_exchange *x, const char **tenant, problem *p) {
    const char *given = http_header(x, "authorization"), *host = http_header(x, "host");
    *tenant = "";
    if (!s->keys) {
        if (host && !is_local_host(host))
            return problem_set(
                p, 403, NULL, NULL,
                "without API keys, this server only answers requests whose Host is localhost or "
                "an IP address");
        return true;
    }
    const bool bearer = given && !strncasecmp(given, "Bearer ", 7);
    *tenant = keys_tenant(s->keys, bearer ? given + 7 : "");
    if (*tenant)
        return true;
    return problem_set(p, 401, "invalid_api_key", NULL,
                       bearer ? "the API key is unknown"
                              : "an API key is needed: Authorization: Bearer KEY");
}

/* A web page can send a body without a type to another origin, but this type only after a preflight
 * request, which this server refuses. */
static bool has_json(const http_exchange *x, problem *p) {
    const char *type = http_header(x, "content-type");
    if (!type || strncasecmp(type, JSON_TYPE, strlen(JSON_TYPE)) != 0)
        return problem_set(p, 415, NULL, NULL, "the header Content-Type must be %s, not %.60s",
                           JSON_TYPE, type ? type : "none");
    return true;
}

static bool is_ready(serve *s, problem *p) {
    const serve_state state = serve_get_state(s);
    if (state == SERVE_READY)
        return true;
    return problem_set(p, 503, NULL, NULL,
                       state == SERVE_LOADING ? "the model is loading" : "the server is stopping");
}

/* Finds the route, by what the head says; NULL: *p says why the request is refused. */
static const struct route *admit(serve *s, http_exchange *x, const char **tenant, problem *p) {
    const struct route *r = find(x, p);
    if (!r || (!r->open && !may_ask(s, x, tenant, p)) ||
        (!strcmp(r->method, "POST") && !has_json(x, p)))
        return NULL;
    return r;
}

bool route_admit(void *arg, http_exchange *x) {
    problem p;
    const char *tenant = "";
    return admit(arg, x, &tenant, &p) != NULL;
}

void route_request(void *arg, http_exchange *x) {
    serve *s = arg;
    problem p;
    const char *tenant = "";
    json_t *root = NULL;
    size_t length = 0;
    memory_begin();
    const struct route *r = admit(s, x, &tenant, &p);
    bool fine = r && (r->open || is_ready(s, &p));
    if (fine && r->typed) {
        const char *body = http_body(x, &length);
        root = fields_parse(body, length, &p);
        fine = root != NULL;
    }
    if (!fine)
        route_problem(s, x, &p);
    else if (r->shape)
        job_start(s, x, r->shape, tenant);
    else
        r->run(s, x, root, tenant);
    json_decref(root);
}
