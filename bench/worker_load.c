/* gqac as a server without a network: the requests of several clients in one scheduler.
 *
 *   worker_load model=FILE threads=N [tokens=N]
 *
 * Prints "ready {json}" or "failed TEXT", then answers each line of stdin:
 *   plan FILE        reads the requests; "done". Each line is "CLIENT CONTINUE NEW ID ID ...": a
 *                    client sends its requests one after another, each as soon as the previous one
 *                    has ended. CONTINUE 1: the prompt is appended to the previous prompt and its
 *                    answer.
 *   serve STORE      sends them through a new scheduler, with a new prefix store if STORE is 1;
 *                    "times {json}": wall_ms, and for each request, in the order of the plan, the
 *                    time to its first id and to its end in ms, and its reused and computed tokens.
 *   cancel           computes the first request of the plan and cancels it from another thread;
 *                    "times MS", from there to its end. */
#define _GNU_SOURCE
#include <gqac/gqac.h>
#include <gqac/text.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "worker.h"

enum { MOST_CLIENTS = 64 };

typedef struct worker worker;

/* A line of the plan, and its results. */
typedef struct entry {
    worker *owner;
    long client;
    bool follows;
    int64_t max_new;
    int64_t *ids; /* of the line; when it is sent, after those that it continues */
    size_t n;
    struct entry *next; /* of the client */
    int64_t number;
    double sent, first, end; /* ms */
    int64_t reused, computed;
} entry;

struct worker {
    const char *model;
    long threads, tokens;
    gqac_program *program;
    gqac_context *context;
    gqac_scheduler *scheduler;
    entry *entries;
    size_t n;
    bool failed;
    gqac_diag diag;
};

/* ---- the plan ------------------------------------------------------------ */

static void forget_plan(worker *w) {
    for (size_t i = 0; i < w->n; i++)
        free(w->entries[i].ids);
    free(w->entries);
    w->entries = NULL;
    w->n = 0;
}

static bool read_line(char *line, entry *e) {
    size_t capacity = 0;
    int used = 0, follows = 0;
    long max_new = 0;
    if (sscanf(line, "%ld %d %ld%n", &e->client, &follows, &max_new, &used) != 3)
        return false;
    e->follows = follows;
    e->max_new = max_new;
    for (char *at = line + used, *end = at;; at = end) {
        const long long id = strtoll(at, &end, 10);
        if (end == at)
            break;
        if (e->n == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            e->ids = realloc(e->ids, capacity * sizeof *e->ids);
            if (!e->ids)
                return false;
        }
        e->ids[e->n++] = id;
    }
    return e->n > 0 && e->client >= 0 && e->client < MOST_CLIENTS;
}

static bool read_plan(worker *w, const char *path) {
    entry *last[MOST_CLIENTS] = {NULL};
    char *line = NULL;
    size_t size = 0, lines = 0;
    FILE *f = fopen(path, "r");
    bool right = f != NULL;
    forget_plan(w);
    while (right && getline(&line, &size, f) > 0)
        lines++;
    w->entries = calloc(lines + 1, sizeof *w->entries);
    right = right && w->entries && fseek(f, 0, SEEK_SET) == 0;
    while (right && getline(&line, &size, f) > 0) {
        entry *e = &w->entries[w->n];
        w->n++;
        e->owner = w;
        right = read_line(line, e) && (!e->follows || last[e->client]);
        if (right && last[e->client])
            last[e->client]->next = e;
        if (right)
            last[e->client] = e;
    }
    free(line);
    if (f)
        fclose(f);
    return right;
}

/* ---- requests ------------------------------------------------------------ */

static void end(void *arg, const gqac_request_end *x);

static bool first_token(void *arg, int64_t request, int64_t id) {
    entry *e = arg;
    (void)request, (void)id;
    if (!e->first)
        e->first = now_ms();
    return true;
}

static bool send(entry *e) {
    worker *w = e->owner;
    gqac_request request;
    gqac_request_init(&request, e->ids, e->n);
    request.max_new = e->max_new;
    request.on_token = first_token;
    request.on_end = end;
    request.arg = e;
    e->first = e->end = 0;
    e->sent = now_ms();
    return gqac_scheduler_submit(w->scheduler, &request, &e->number, &w->diag) == GQAC_OK;
}

/* Inserts the prompt and the answer of a request before the ids of the next one. */
static bool follow(entry *e, const entry *before, const gqac_request_end *x) {
    const size_t n = before->n + x->n_ids;
    int64_t *ids = malloc((n + e->n) * sizeof *ids);
    if (!ids)
        return false;
    memcpy(ids, before->ids, before->n * sizeof *ids);
    memcpy(ids + before->n, x->ids, x->n_ids * sizeof *ids);
    memcpy(ids + n, e->ids, e->n * sizeof *ids);
    free(e->ids);
    e->ids = ids;
    e->n += n;
    return true;
}

static void end(void *arg, const gqac_request_end *x) {
    entry *e = arg;
    e->end = now_ms();
    e->reused = x->reused_tokens;
    e->computed = x->computed_tokens;
    if (x->finish == GQAC_FINISH_FAILED) {
        e->owner->failed = true;
        e->owner->diag = *x->diag;
    }
    if (e->next && x->finish == GQAC_FINISH_LENGTH &&
        ((e->next->follows && !follow(e->next, e, x)) || !send(e->next)))
        e->owner->failed = true;
}

static gqac_status open_scheduler(worker *w, gqac_store *store) {
    gqac_scheduler_options options;
    gqac_scheduler_options_init(&options);
    options.tokens = w->tokens;
    options.store = store;
    return gqac_scheduler_create(w->context, &options, &w->scheduler, &w->diag);
}

static bool run(worker *w, double *wall) {
    bool begun[MOST_CLIENTS] = {false};
    int64_t left = 1;
    const double began = now_ms();
    w->failed = false;
    for (size_t i = 0; i < w->n && !w->failed; i++) {
        w->failed = !begun[w->entries[i].client] && !send(&w->entries[i]);
        begun[w->entries[i].client] = true;
    }
    while (left && !w->failed)
        w->failed |= gqac_scheduler_step(w->scheduler, &left, &w->diag) != GQAC_OK;
    *wall = now_ms() - began;
    return !w->failed;
}

static bool serve(worker *w, bool with_store) {
    gqac_store *store = NULL;
    double wall = 0;
    if (with_store && gqac_store_create(w->program, NULL, &store, &w->diag) != GQAC_OK)
        return false;
    const bool right = open_scheduler(w, store) == GQAC_OK && run(w, &wall);
    gqac_scheduler_free(w->scheduler);
    w->scheduler = NULL;
    gqac_store_free(store);
    if (!right)
        return false;
    printf("times {\"wall_ms\": %.3f, \"requests\": [", wall);
    for (size_t i = 0; i < w->n; i++) {
        const entry *e = &w->entries[i];
        printf("%s[%.3f, %.3f, %lld, %lld]", i ? ", " : "", e->first - e->sent, e->end - e->sent,
               (long long)e->reused, (long long)e->computed);
    }
    puts("]}");
    return true;
}

/* ---- cancellation -------------------------------------------------------- */

static void *cancel_later(void *arg) {
    entry *e = arg;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* the step has begun */
    e->sent = now_ms();
    gqac_scheduler_cancel(e->owner->scheduler, e->number);
    return NULL;
}

static bool cancel(worker *w) {
    pthread_t thread;
    int64_t left = 0;
    if (!w->n || open_scheduler(w, NULL) != GQAC_OK || !send(w->entries) ||
        pthread_create(&thread, NULL, cancel_later, w->entries))
        return false;
    const bool right = gqac_scheduler_step(w->scheduler, &left, &w->diag) == GQAC_OK;
    pthread_join(thread, NULL);
    if (right)
        printf("times %.3f\n", w->entries[0].end - w->entries[0].sent);
    gqac_scheduler_free(w->scheduler);
    w->scheduler = NULL;
    return right;
}

/* ---- commands ------------------------------------------------------------ */

static bool take(worker *w, char *word) {
    const struct {
        const char *key;
        const char **text;
        long *number;
    } known[] = {
        {"model", &w->model, NULL}, {"threads", NULL, &w->threads}, {"tokens", NULL, &w->tokens}};
    char *value = strchr(word, '=');
    if (!value)
        return false;
    *value++ = '\0';
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(word, known[i].key))
            continue;
        if (known[i].text)
            *known[i].text = value;
        else
            *known[i].number = strtol(value, NULL, 10);
        return true;
    }
    return false;
}

static bool answer(worker *w, char *line) {
    line[strcspn(line, "\n")] = '\0';
    if (!strncmp(line, "plan ", 5))
        return puts(read_plan(w, line + 5) ? "done" : "failed: the plan cannot be read") >= 0;
    if (!strncmp(line, "serve ", 6))
        return serve(w, line[6] == '1');
    return !strcmp(line, "cancel") && cancel(w);
}

int main(int argc, char **argv) {
    static worker w = {.threads = 1};
    char line[4096];
    for (int i = 1; i < argc; i++)
        if (!take(&w, argv[i])) {
            printf("failed argument '%s'\n", argv[i]);
            return 2;
        }
    const double began = now_ms();
    if (!w.model || gqac_program_open(w.model, NULL, &w.program, &w.diag) != GQAC_OK ||
        gqac_context_create(w.program, (int)w.threads, &w.context, &w.diag) != GQAC_OK)
        return failed_with(&w.diag);
    const char *level = gqac_program_level(w.program);
    printf("ready {\"version\": \"%s\", \"open_ms\": %.3f, \"level\": \"%s\"}\n", gqac_version(),
           now_ms() - began, level ? level : "scalar");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!answer(&w, line))
            return failed_with(&w.diag);
        fflush(stdout);
    }
    forget_plan(&w);
    return 0;
}
