/* The life of the server: its threads, signals, and the loop that steps the scheduler. */
#include "serve/serve.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "serve/serve_impl.h"

enum { HEAD_BYTES = 32 << 10, UNSENT_BYTES = 4 << 20 };

double serve_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

gqac_status serve_fail(gqac_diag *diag, gqac_status status, const char *fmt, ...) {
    va_list args;
    memset(diag, 0, sizeof *diag);
    diag->status = status;
    diag->index = -1;
    va_start(args, fmt);
    vsnprintf(diag->what, sizeof diag->what, fmt, args);
    va_end(args);
    return status;
}

void serve_wake(serve *s) {
    const uint64_t one = 1;
    while (write(s->wake, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

serve_state serve_get_state(serve *s) {
    pthread_mutex_lock(&s->lock);
    const serve_state state = s->state;
    pthread_mutex_unlock(&s->lock);
    return state;
}

/* ---- the thread of connections ------------------------------------------- */

static void set_state(serve *s, serve_state state) {
    pthread_mutex_lock(&s->lock);
    s->state = state;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

/* Ends the server when it is draining, has nothing left to answer, and the clients have read the
 * last answers, for which they have a second more than the answers have. */
static void end_if_drained(serve *s) {
    if (serve_get_state(s) != SERVE_DRAINING || s->jobs ||
        (http_connections(s->http) && serve_seconds() < s->drain_until + 1))
        return;
    set_state(s, SERVE_STOPPED);
    event_base_loopexit(s->base, NULL);
}

static void on_signal(evutil_socket_t number, short what, void *arg) {
    serve *s = arg;
    const double now = serve_seconds();
    (void)number, (void)what;
    if (s->signals++) {
        s->drain_until = now < s->drain_until ? now : s->drain_until;
        job_cancel_all(s, "the server is stopping");
        return;
    }
    set_state(s, SERVE_DRAINING);
    s->drain_until = now + s->options.drain_seconds;
    http_stop(s->http);
    event_add(s->tick, &(struct timeval){0, 20000}); /* it sees the last connection end */
    end_if_drained(s);
}

static void catch_signals(serve *s) {
    static const int numbers[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2 && !s->terms[i]; i++) {
        s->terms[i] = evsignal_new(s->base, numbers[i], on_signal, s);
        if (s->terms[i])
            event_add(s->terms[i], NULL);
    }
}

static void on_woken(evutil_socket_t fd, short what, void *arg) {
    serve *s = arg;
    uint64_t n = 0;
    (void)what;
    if (read(fd, &n, sizeof n) < 0 && errno != EAGAIN)
        return;
    pthread_mutex_lock(&s->lock);
    const serve_state state = s->state;
    job *dirty = s->dirty;
    s->dirty = NULL;
    for (job *j = dirty; j; j = j->next_dirty) {
        j->dirty = false;
        j->next_flush = j->next_dirty; /* which changes as soon as there is more to send */
    }
    pthread_mutex_unlock(&s->lock);
    if (state == SERVE_READY)
        catch_signals(s);
    if (state == SERVE_READY && !s->signals && s->options.interrupted && s->options.interrupted())
        on_signal(SIGTERM, 0, s);
    if (state == SERVE_STOPPED)
        event_base_loopexit(s->base, NULL);
    for (job *j = dirty, *next; j; j = next) {
        next = j->next_flush;
        job_flush(j);
    }
    end_if_drained(s);
}

static void on_tick(evutil_socket_t fd, short what, void *arg) {
    serve *s = arg;
    const double now = serve_seconds();
    (void)fd, (void)what;
    if (s->signals && now > s->drain_until)
        job_cancel_all(s, "the server is stopping");
    job_expire(s, now);
    job_ping(s, now);
    end_if_drained(s);
}

static void *run_connections(void *arg) {
    serve *s = arg;
    event_base_dispatch(s->base);
    return NULL;
}

/* ---- opening ------------------------------------------------------------- */

static gqac_status listen_now(serve *s, gqac_diag *diag) {
    const serve_options *o = &s->options;
    const http_limits limits = {.head = HEAD_BYTES,
                                .body = (size_t)o->body_bytes,
                                .unsent = UNSENT_BYTES,
                                .connections = o->connections,
                                .per_peer = o->per_peer,
                                .request_seconds = 30,
                                .idle_seconds = 60,
                                .write_seconds = 30};
    const http_events events = {route_admit, route_request, route_gone, route_refuse, s};
    if (http_create(s->base, o->host, o->port, &limits, &events, &s->http, diag) != GQAC_OK)
        return diag->status;
    if (!s->keys && !http_is_loopback(s->http)) {
        serve_fail(diag, GQAC_USAGE, "without API keys, the server listens on this machine only");
        snprintf(diag->rule, sizeof diag->rule, "%s is not a loopback address", o->host);
        snprintf(diag->hint, sizeof diag->hint, "--api-key-file FILE, or --host 127.0.0.1");
        return GQAC_USAGE;
    }
    snprintf(s->url, sizeof s->url, strchr(o->host, ':') ? "http://[%s]:%d" : "http://%s:%d",
             o->host, http_port(s->http));
    return GQAC_OK;
}

static gqac_status open_events(serve *s, gqac_diag *diag) {
    const struct timeval second = {1, 0};
    s->base = event_base_new();
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->metrics = metrics_create();
    if (s->base && s->wake >= 0) {
        s->woken = event_new(s->base, s->wake, EV_READ | EV_PERSIST, on_woken, s);
        s->tick = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    }
    if (!s->woken || !s->tick || !s->metrics || event_add(s->woken, NULL) ||
        event_add(s->tick, &second))
        return serve_fail(diag, GQAC_NO_MEMORY, "out of memory for a server");
    return GQAC_OK;
}

static gqac_status start_thread(serve *s, gqac_diag *diag) {
    sigset_t all, before;
    sigfillset(&all);
    /* the new thread blocks all signals: they reach the thread that loads the model */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    s->started = pthread_create(&s->thread, NULL, run_connections, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s->started ? GQAC_OK : serve_fail(diag, GQAC_NO_MEMORY, "out of memory for a thread");
}

static gqac_status fill(serve *s, gqac_diag *diag) {
    gqac_status status = GQAC_OK;
    if (s->options.key_file)
        status = keys_read(s->options.key_file, &s->keys, diag);
    if (status == GQAC_OK)
        status = open_events(s, diag);
    if (status == GQAC_OK)
        status = listen_now(s, diag);
    if (status == GQAC_OK && s->options.listening)
        status = s->options.listening(s->options.listening_arg, diag);
    return status;
}

gqac_status serve_prepare(const serve_options *options, serve **out, gqac_diag *diag) {
    serve *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s || !memory_open((size_t)options->body_bytes)) {
        free(s);
        return serve_fail(diag, GQAC_NO_MEMORY, "out of memory for a server");
    }
    s->options = *options;
    s->wake = -1;
    s->began = serve_seconds();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    const gqac_status status = fill(s, diag);
    if (status == GQAC_OK)
        *out = s;
    else
        serve_free(s);
    return status;
}

gqac_status serve_open(const serve_options *options, serve **out, gqac_diag *diag) {
    GQAC_TRY(serve_prepare(options, out, diag));
    const gqac_status status = start_thread(*out, diag);
    if (status != GQAC_OK) {
        serve_free(*out);
        *out = NULL;
    }
    return status;
}

int serve_keys(const serve *s) {
    return keys_count(s->keys);
}

const char *serve_url(const serve *s) {
    return s->url;
}

/* "PROFILE/model-DIGEST/text-DIGEST": what the bits of an answer depend on. */
static void name_fingerprint(serve *s, const gqac_program *program) {
    const gqac_attachment *files = NULL;
    const int n = gqac_text_attachments(s->model.text, &files);
    char all[65 * 64 + 1] = "", own[65];
    for (int i = 0; i < n && i < 64; i++) {
        gqac_digest(files[i].data, files[i].bytes, own);
        strcat(all, own);
    }
    gqac_digest(all, strlen(all), own);
    snprintf(s->fingerprint, sizeof s->fingerprint, "%s/model-%.16s/text-%.16s",
             gqac_program_profile(program), s->model.digest, own);
}

static int64_t smaller(int64_t a, int64_t b) {
    return !a ? b : !b ? a : a < b ? a : b;
}

static gqac_status attach_seq2seq(serve *s, gqac_diag *diag) {
    const gqac_seq2seq_file *files = NULL;
    const gqac_seq2seq_settings *settings = gqac_seq2seq_get_settings(s->model.seq2seq);
    gqac_seq2seq_files(s->model.seq2seq, &files);
    name_fingerprint(s, files->program);
    s->vocabulary = settings->vocabulary ? settings->vocabulary : INT32_MAX;
    s->n_eos = settings->n_eos;
    s->eos = settings->eos;
    s->rules = settings->rules;
    s->most = s->model.tokens ? s->model.tokens : UNSTATED_TOKENS;
    return encoder_attach(s, diag);
}

/* A scheduler starts with any kind of cache, and then fails every request. */
static gqac_status check_kind(const gqac_program *program, const char *kind, gqac_diag *diag) {
    gqac_sequence_options options;
    gqac_sequence *trial = NULL;
    gqac_sequence_options_init(&options);
    options.kv = kind;
    GQAC_TRY(gqac_sequence_create(program, &options, &trial, diag));
    gqac_sequence_free(trial);
    return GQAC_OK;
}

static gqac_status attach_decoder(serve *s, gqac_diag *diag) {
    const serve_model *model = &s->model;
    const gqac_text_settings *settings = gqac_text_get_settings(model->text);
    const gqac_program *program = gqac_context_program(model->context);
    name_fingerprint(s, program);
    s->vocabulary = gqac_program_vocabulary(program);
    s->n_eos = settings->n_eos;
    s->eos = settings->eos;
    s->rules = settings->rules;
    s->most =
        smaller(gqac_program_max_tokens(program), smaller(model->tokens, settings->context_length));
    GQAC_TRY(reasoning_find(model->text, &s->reasoning, diag));
    GQAC_TRY(gqac_scheduler_create(model->context, model->scheduler, &s->scheduler, diag));
    if (model->scheduler)
        GQAC_TRY(check_kind(program, model->scheduler->kv, diag));
    return model->store && model->saved ? saver_create(model->store, &s->saver, diag) : GQAC_OK;
}

gqac_status serve_attach(serve *s, const serve_model *model, gqac_diag *diag) {
    s->model = *model;
    GQAC_TRY(model->seq2seq ? attach_seq2seq(s, diag) : attach_decoder(s, diag));
    set_state(s, SERVE_READY);
    serve_wake(s);
    return GQAC_OK;
}

/* ---- the loop ------------------------------------------------------------ */

gqac_scheduler_statistics serve_statistics(serve *s) {
    gqac_scheduler_statistics x = {.size = sizeof x};
    if (!s->model.seq2seq) {
        gqac_scheduler_get_statistics(s->scheduler, &x, NULL);
        return x;
    }
    pthread_mutex_lock(&s->lock);
    x = s->queue.counts;
    pthread_mutex_unlock(&s->lock);
    return x;
}

/* Waits for a request; false: the server stops. */
static bool await_work(serve *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->submitted && s->state != SERVE_STOPPED)
        pthread_cond_wait(&s->work, &s->lock);
    const bool more = s->submitted;
    s->submitted = false;
    pthread_mutex_unlock(&s->lock);
    return more;
}

gqac_status serve_run(serve *s, gqac_diag *diag) {
    int failures = 0;
    if (s->model.seq2seq) {
        encoder_run(s);
        return GQAC_OK;
    }
    for (;;) {
        int64_t left = 0;
        const gqac_status status = gqac_scheduler_step(s->scheduler, &left, diag);
        failures = status == GQAC_OK || status == GQAC_ABORTED ? 0 : failures + 1;
        if (failures > 3) /* the same step would fail for ever */
            return status;
        if (!left && !await_work(s))
            return GQAC_OK;
    }
}

void serve_free(serve *s) {
    if (!s)
        return;
    set_state(s, SERVE_STOPPED);
    if (s->started) {
        serve_wake(s);
        pthread_join(s->thread, NULL);
    }
    tokenizing_close(s);
    gqac_scheduler_free(s->scheduler);
    for (job *j = s->jobs; j; j = j->next) {
        encoder_cancel(j); /* no other thread is left */
        j->x = NULL;
        j->dirty = false;
    }
    while (s->jobs)
        job_flush(s->jobs); /* all legs have ended, so it is freed */
    constraints_close(&s->constraints);
    saver_free(s->saver);
    http_free(s->http);
    for (int i = 0; i < 2; i++)
        if (s->terms[i])
            event_free(s->terms[i]);
    if (s->woken)
        event_free(s->woken);
    if (s->tick)
        event_free(s->tick);
    if (s->base)
        event_base_free(s->base);
    if (s->wake >= 0)
        close(s->wake);
    metrics_free(s->metrics);
    keys_free(s->keys);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    free(s);
}
