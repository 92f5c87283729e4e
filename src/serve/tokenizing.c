/* POST /tokenize. A long text may take seconds, in which the thread of connections must go on, so
 * it is tokenized by a thread of its own, one text after another. Such a request is a job without
 * legs, whose task that thread completes. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "serve/serve_impl.h"

enum { LONG = 32 << 10 }; /* bytes of a text; shorter ones take a few milliseconds */

struct task {
    job *owner;
    char *text;
    size_t length;
    gqac_tokenize_options options;
    gqac_str reply;
    task *next;
};

void tokenizing_free(task *t) {
    if (!t)
        return;
    free(t->text);
    gqac_str_free(&t->reply);
    free(t);
}

/* Appends the reply to *out. It is not made with jansson, whose memory belongs to the thread of
 * connections (memory.h). */
static gqac_status answer(const serve *s, const char *text, size_t length,
                          const gqac_tokenize_options *options, gqac_str *out, gqac_diag *diag) {
    int64_t *ids = NULL;
    size_t n = 0;
    GQAC_TRY(gqac_text_tokenize_with(s->model.text, text, length, options, &ids, &n, diag));
    gqac_str_printf(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++)
        gqac_str_printf(out, "%s%lld", i ? "," : "", (long long)ids[i]);
    gqac_release(ids);
    gqac_str_printf(out, "],\"count\":%zu,\"max_model_len\":%lld}", n,
                    (long long)(s->most < INT32_MAX ? s->most : INT32_MAX));
    return out->failed ? serve_fail(diag, GQAC_NO_MEMORY, "out of memory") : GQAC_OK;
}

void tokenizing_reply(serve *s, http_exchange *x, const task *t) {
    route_reply(s, x, 200, "application/json", NULL, t->reply.text, t->reply.length, NULL);
}

int64_t tokenizing_count(serve *s) {
    pthread_mutex_lock(&s->lock);
    const int64_t n = s->tokenizing.n;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ---- the thread ---------------------------------------------------------- */

/* Under the lock, which it releases meanwhile. */
static void complete(serve *s, task *t) {
    job *j = t->owner;
    if (!j->cancelled) {
        gqac_diag diag = {0};
        pthread_mutex_unlock(&s->lock);
        const gqac_status status = answer(s, t->text, t->length, &t->options, &t->reply, &diag);
        pthread_mutex_lock(&s->lock);
        if (status != GQAC_OK && !j->problem.status)
            problem_from(&j->problem, "content", &diag);
    }
    j->open = 0;
    job_touch(j);
}

void tokenizing_run(serve *s, bool wait) {
    tokenizing *all = &s->tokenizing;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (wait && !all->first && !all->closing)
            pthread_cond_wait(&all->more, &s->lock);
        if (all->closing || !all->first)
            break;
        task *t = all->first;
        all->first = t->next;
        complete(s, t);
        all->n--;
    }
    for (task *t = all->first; t; t = t->next) /* their jobs end without a reply */
        t->owner->open = 0;
    pthread_mutex_unlock(&s->lock);
}

static void *run(void *arg) {
    tokenizing_run(arg, true);
    return NULL;
}

void tokenizing_close(serve *s) {
    tokenizing *all = &s->tokenizing;
    pthread_mutex_lock(&s->lock);
    all->closing = true;
    if (all->started)
        pthread_cond_signal(&all->more);
    pthread_mutex_unlock(&s->lock);
    if (!all->started) {
        tokenizing_run(s, false);
        return;
    }
    pthread_join(all->thread, NULL);
    pthread_cond_destroy(&all->more);
}

void tokenizing_cancel(job *j) {
    tokenizing *all = &j->server->tokenizing;
    for (task **at = &all->first; *at; at = &(*at)->next)
        if ((*at)->owner == j) {
            *at = (*at)->next;
            all->n--;
            j->open = 0;
            job_touch(j);
            return;
        }
}

/* ---- requests ------------------------------------------------------------ */

static bool start(serve *s, problem *p) {
    tokenizing *all = &s->tokenizing;
    if (all->started || all->by_turns)
        return true;
    pthread_cond_init(&all->more, NULL);
    all->started = pthread_create(&all->thread, NULL, run, s) == 0;
    if (all->started)
        return true;
    pthread_cond_destroy(&all->more);
    return problem_no_memory(p);
}

static task *make_task(const char *text, size_t length, const gqac_tokenize_options *options,
                       problem *p) {
    task *t = calloc(1, sizeof *t);
    char *copy = malloc(length + 1);
    if (!t || !copy) {
        problem_no_memory(p);
        free(copy);
        free(t);
        return NULL;
    }
    memcpy(copy, text, length + 1);
    t->text = copy;
    t->length = length;
    t->options = *options;
    return t;
}

/* Puts the task at the end of the list; false: no more may wait. */
static bool submit(serve *s, task *t, problem *p) {
    tokenizing *all = &s->tokenizing;
    const int64_t most = s->options.queue > 0 ? s->options.queue : 1;
    pthread_mutex_lock(&s->lock);
    const bool fits = all->n < most;
    if (fits) {
        task **at = &all->first;
        while (*at)
            at = &(*at)->next;
        *at = t;
        all->n++;
        if (all->started)
            pthread_cond_signal(&all->more);
    }
    pthread_mutex_unlock(&s->lock);
    return fits || problem_set(p, 429, "busy", NULL,
                               "%lld long texts are being tokenized, and no more may wait; try "
                               "again later",
                               (long long)most);
}

static bool begin(serve *s, http_exchange *x, const char *tenant, task *t, problem *p) {
    job *j = job_create(s, NULL, tenant);
    if (!j) {
        tokenizing_free(t);
        return problem_no_memory(p);
    }
    t->owner = j;
    j->task = t;
    j->open = 1;
    job_add(j, x);
    if (submit(s, t, p))
        return true;
    j->open = 0;
    job_remove(j);
    return false;
}

void tokenizing_request(serve *s, http_exchange *x, const json_t *root, const char *tenant) {
    problem p;
    const char *text = NULL;
    bool special = true, spelled = true;
    gqac_diag diag = {0};
    gqac_tokenize_options options;
    gqac_str reply = {0};
    bool fine = fields_text(root, "content", SIZE_MAX, &text, &p) &&
                (text || fields_text(root, "prompt", SIZE_MAX, &text, &p)) &&
                fields_bool(root, "add_special", &special, &p) &&
                fields_bool(root, "parse_special", &spelled, &p) &&
                (text || problem_set(&p, 400, NULL, "content", "'content' is missing"));
    const size_t length = fine ? strlen(text) : 0;
    gqac_tokenize_options_init(&options);
    options.special = special;
    options.plain = !spelled;
    if (fine && length > LONG) {
        task *t = start(s, &p) ? make_task(text, length, &options, &p) : NULL;
        if (!t || !begin(s, x, tenant, t, &p))
            route_problem(s, x, &p);
        return;
    }
    if (fine && answer(s, text, length, &options, &reply, &diag) != GQAC_OK)
        fine = problem_from(&p, "content", &diag);
    if (fine)
        route_reply(s, x, 200, "application/json", NULL, reply.text, reply.length, NULL);
    else
        route_problem(s, x, &p);
    gqac_str_free(&reply);
}
