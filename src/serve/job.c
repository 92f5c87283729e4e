/* Jobs: how they begin, send their replies, and end. Runs on the thread of connections. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "serve/serve_impl.h"

/* ---- memory -------------------------------------------------------------- */

static void free_tokens(tokens *t) {
    for (size_t i = 0; i < t->n; i++)
        free(t->list[i].top);
    free(t->list);
}

static void free_job(job *j) {
    serve *s = j->server;
    job **at = &s->jobs;
    while (*at && *at != j)
        at = &(*at)->next;
    if (*at)
        *at = j->next;
    for (int i = 0; i < j->n_legs; i++) {
        gqac_reply_free(j->legs[i].reply);
        gqac_calls_free(j->legs[i].calls);
        free_tokens(&j->legs[i].tokens);
        free(j->legs[i].text.data);
        free(j->legs[i].row);
    }
    free(j->legs);
    for (int i = 0; i < j->n_prompts; i++) {
        free_tokens(&j->prompts[i].rows);
        free(j->prompts[i].ids);
        free(j->prompts[i].text);
    }
    free(j->prompts);
    free(j->said);
    json_decref(j->items);
    free((void *)j->stop);
    free(j->ends);
    free(j->bias);
    constraints_drop(j->constraint);
    tokenizing_free(j->task);
    free(j->tools);
    free(j->tenant);
    json_decref(j->root);
    free(j);
}

/* ---- begin --------------------------------------------------------------- */

static bool make_leg(leg *l, job *j, leg_kind kind, int index, prompt *of, problem *p) {
    gqac_diag diag = {0};
    *l = (leg){.owner = j, .kind = kind, .index = index, .prompt = of};
    l->thinking = reasoning_start(&j->server->reasoning, j->server->model.text, of->ids, of->n);
    if (kind == LEG_ANSWER || kind == LEG_COLD)
        if (gqac_reply_create(j->server->model.text, j->n_stop, j->stop, &l->reply, &diag) !=
            GQAC_OK)
            return problem_from(p, "stop", &diag);
    if (j->tools && l->reply) {
        if (gqac_calls_create(j->server->model.text, j->tools, &l->calls, &diag) != GQAC_OK)
            return problem_from(p, "tools", &diag);
        gqac_reply_show_calls(l->reply, l->calls);
    }
    if (j->server->model.seq2seq) /* which needs no row */
        return true;
    l->row = malloc((size_t)j->server->vocabulary * sizeof *l->row);
    return l->row || problem_no_memory(p);
}

bool job_shares(const job *j, const prompt *p) {
    return j->n > 1 && p->n > 1 && !j->server->model.seq2seq;
}

static int count_legs(const job *j) {
    int n = (int)j->n * j->n_prompts * (j->verify ? 2 : 1);
    for (int i = 0; i < j->n_prompts; i++)
        n += job_shares(j, &j->prompts[i]);
    return n;
}

static bool make_legs(job *j, problem *p) {
    j->n_answers = (int)j->n * j->n_prompts;
    j->legs = calloc((size_t)count_legs(j), sizeof *j->legs);
    if (!j->legs)
        return problem_no_memory(p);
    for (int cold = 0; cold < (j->verify ? 2 : 1); cold++)
        for (int i = 0; i < j->n_answers; i++)
            if (!make_leg(&j->legs[j->n_legs++], j, cold ? LEG_COLD : LEG_ANSWER, i,
                          &j->prompts[i / j->n], p))
                return false;
    for (int i = 0; i < j->n_prompts; i++)
        if (job_shares(j, &j->prompts[i]) &&
            !make_leg(&j->legs[j->n_legs++], j, LEG_PREFIX, i, &j->prompts[i], p))
            return false;
    j->open = j->n_legs;
    return true;
}

/* Legs that wait or run, those included that wait for the prompt that they share. */
static int64_t count_open(serve *s) {
    int64_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (const job *j = s->jobs; j; j = j->next)
        n += j->task ? 0 : j->open;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Checks that there are places for all legs: every one that waits or runs takes one. */
static bool has_place(serve *s, const job *j, problem *p) {
    const int64_t running = s->model.seq2seq ? 1 : s->model.scheduler->running;
    const int64_t places = running + s->options.queue, n = count_legs(j);
    if (n > places)
        return problem_set(
            p, 400, NULL, j->n > 1 ? "n" : "prompt",
            "the request needs %lld places, one for each answer and each prompt that "
            "answers share, but this server has %lld; try fewer prompts or choices",
            (long long)n, (long long)places);
    const int64_t open = count_open(s);
    if (open + n <= places)
        return true;
    return problem_set(
        p, 429, "busy", NULL,
        "%lld requests are waiting or running, and no more may wait; try again later",
        (long long)open);
}

static bool read_job(job *j, http_exchange *x, problem *p) {
    size_t length = 0;
    const char *body = http_body(x, &length);
    j->root = fields_parse(body, length, p);
    return j->root && ask_supported(j, p) && j->shape->ask(j, p) && has_place(j->server, j, p) &&
           make_legs(j, p) && (!memory_ran_out() || problem_no_memory(p));
}

static void name_job(job *j) {
    unsigned char random[12] = {0};
    size_t n = (size_t)snprintf(j->id, sizeof j->id, "%s", j->shape ? j->shape->prefix : "tokens-");
    if (getrandom(random, sizeof random, GRND_NONBLOCK) < 0)
        memcpy(random, &j->server->last, sizeof j->server->last);
    for (size_t i = 0; i < sizeof random; i++)
        n += (size_t)snprintf(j->id + n, sizeof j->id - n, "%02x", random[i]);
    j->created = (int64_t)time(NULL);
}

job *job_create(serve *s, const job_shape *shape, const char *tenant) {
    job *j = calloc(1, sizeof *j);
    s->last++;
    if (!j)
        return NULL;
    j->server = s;
    j->shape = shape;
    j->began = j->sent = serve_seconds();
    j->tenant = strdup(tenant);
    if (!j->tenant) {
        free(j);
        return NULL;
    }
    name_job(j);
    return j;
}

void job_add(job *j, http_exchange *x) {
    j->next = j->server->jobs;
    j->server->jobs = j;
    j->x = x;
    http_set_user(x, j);
}

static void detach(job *j) {
    http_set_user(j->x, NULL);
    j->x = NULL;
}

void job_remove(job *j) {
    detach(j);
    free_job(j);
}

void job_touch(job *j) {
    serve *s = j->server;
    if (j->dirty)
        return;
    j->dirty = true;
    j->next_dirty = s->dirty;
    s->dirty = j;
    serve_wake(s);
}

void job_start(serve *s, http_exchange *x, const job_shape *shape, const char *tenant) {
    problem p = {0};
    job *j = job_create(s, shape, tenant);
    if (!j) {
        problem_no_memory(&p);
        route_problem(s, x, &p);
        return;
    }
    if (!read_job(j, x, &p)) {
        free_job(j);
        route_problem(s, x, &p);
        return;
    }
    job_add(j, x);
    if (!leg_submit_all(j, &p)) {
        detach(j);
        route_problem(s, x, &p);
        job_cancel(j);
        job_flush(j);
    }
}

/* ---- end ----------------------------------------------------------------- */

void job_cancel(job *j) {
    serve *s = j->server;
    pthread_mutex_lock(&s->lock);
    j->cancelled = true;
    if (s->model.seq2seq)
        encoder_cancel(j);
    if (j->task)
        tokenizing_cancel(j);
    for (int i = 0; i < j->n_legs; i++)
        if (j->legs[i].number && !j->legs[i].ended)
            gqac_scheduler_cancel(s->scheduler, j->legs[i].number);
    s->submitted = true; /* so that the next step ends them */
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static json_t *log_json(const job *j) {
    json_t *usage = shape_usage(j);
    json_t *line =
        json_pack("{s:s, s:f, s:f, s:O}", "id", j->id, "seconds", serve_seconds() - j->began,
                  "first_token_seconds", j->first > 0 ? j->first - j->began : 0.0, "usage", usage);
    if (line && j->sampling.sample)
        json_object_set_new(line, "seed", json_integer((json_int_t)j->sampling.seed));
    json_decref(usage);
    return line;
}

void job_leave(job *j, int status) {
    route_log(j->server, j->x, status, log_json(j));
    j->x = NULL;
    job_cancel(j);
    job_flush(j);
}

static void set_problem(job *j, int status, const char *code, const char *why) {
    pthread_mutex_lock(&j->server->lock);
    if (!j->problem.status)
        problem_set(&j->problem, status, code, NULL, "%s", why);
    pthread_mutex_unlock(&j->server->lock);
    job_cancel(j);
}

void job_expire(serve *s, double now) {
    for (job *j = s->jobs; j && s->options.request_seconds > 0; j = j->next)
        if (now - j->began > s->options.request_seconds)
            set_problem(j, 503, "time_limit", "the answer took longer than this server allows");
}

void job_cancel_all(serve *s, const char *why) {
    for (job *j = s->jobs; j; j = j->next)
        set_problem(j, 503, "stopping", why);
}

/* ---- replies ------------------------------------------------------------- */

static void reply_problem(job *j) {
    http_exchange *x = j->x;
    if (!http_is_streaming(x)) {
        detach(j);
        route_problem(j->server, x, &j->problem);
        return;
    }
    memory_begin(); /* the problem may be that it ran out */
    route_log(j->server, x, j->problem.status, log_json(j));
    memory_begin();
    const bool sent = shape_send(j, "error", route_problem_json(&j->problem));
    detach(j);
    if (sent)
        http_stream_end(x);
    else
        http_abort(x);
}

static void begin_stream(http_exchange *x) {
    if (!http_is_streaming(x))
        http_stream_begin(x, "text/event-stream", "Cache-Control: no-cache\r\n");
}

/* Ends a stream that cannot be sent: its client reads too slowly, or there is no memory. */
static void abort_stream(job *j) {
    http_exchange *x = j->x;
    const int status = memory_ran_out() ? 500 : 499;
    memory_begin(); /* so that there is a line in the log */
    route_log(j->server, x, status, log_json(j));
    detach(j);
    http_abort(x);
    job_cancel(j);
}

/* Sends what is new of a stream, and ends it after the `last`, or if the client reads too
 * slowly. */
static void flush_stream(job *j, bool last) {
    http_exchange *x = j->x;
    begin_stream(x);
    const bool sent = j->shape->stream(j, last);
    if (!sent && http_may_send(x)) {
        set_problem(j, 500, NULL, "out of memory");
        if (last)
            reply_problem(j);
    } else if (!sent) {
        abort_stream(j);
    } else if (last) {
        route_log(j->server, x, 200, log_json(j));
        detach(j);
        http_stream_end(x);
    }
}

void job_ping(serve *s, double now) {
    static const char ping[] = ": ping\n\n";
    memory_begin();
    for (job *j = s->jobs; j; j = j->next) {
        pthread_mutex_lock(&s->lock);
        const bool ends = !j->open || j->problem.status;
        pthread_mutex_unlock(&s->lock);
        if (!j->x || !j->stream || ends || now - j->sent < 0.9)
            continue;
        begin_stream(j->x);
        j->sent = now;
        if (!http_stream_send(j->x, ping, sizeof ping - 1))
            abort_stream(j);
    }
}

static void reply_whole(job *j) {
    http_exchange *x = j->x;
    if (j->task) {
        detach(j);
        tokenizing_reply(j->server, x, j->task);
        return;
    }
    json_t *value = j->shape->whole(j), *more = log_json(j);
    detach(j);
    route_json(j->server, x, 200, value, more);
}

void job_flush(job *j) {
    serve *s = j->server;
    memory_begin();
    pthread_mutex_lock(&s->lock);
    const bool last = !j->open, failed = j->problem.status, goes_on = !last && !j->cancelled;
    pthread_mutex_unlock(&s->lock);
    if (failed && goes_on)
        job_cancel(j);
    if (j->x && failed && last)
        reply_problem(j);
    else if (j->x && j->stream && !failed)
        flush_stream(j, last);
    else if (j->x && last)
        reply_whole(j);
    if (!last)
        return;
    pthread_mutex_lock(&s->lock);
    const bool queued = j->dirty;
    pthread_mutex_unlock(&s->lock);
    if (!queued) /* else it is freed when its turn comes */
        free_job(j);
}
