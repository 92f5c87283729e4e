/* Private to src/serve: the server, and its jobs.
 *
 * A job is one HTTP request that the model answers. It has legs, each a request of the scheduler:
 * an answer for each choice; with `n` > 1, the prompt that the choices share; and with
 * `verify_cache`, each answer once more without the store. Callbacks of the scheduler put what is
 * new into the legs under the lock of the server, and wake the thread of connections, which sends
 * it. Only that thread creates and frees jobs. With an encoder all legs are answers in a queue,
 * each of which waits for those before it (encoder.c). */
#ifndef GQAC_SERVE_IMPL_H
#define GQAC_SERVE_IMPL_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "serve/constraints.h"
#include "serve/fields.h"
#include "serve/http.h"
#include "serve/keys.h"
#include "serve/memory.h"
#include "serve/metrics.h"
#include "serve/reasoning.h"
#include "serve/saver.h"
#include "serve/serve.h"

/* Tokens of an answer, or of a prompt for an encoder, where nothing else limits them. */
enum { UNSTATED_TOKENS = 4096 };

typedef struct job job;
typedef struct leg leg;
typedef struct task task; /* a text that is tokenized (tokenizing.c) */

/* Tokens of an answer, or of a prompt that is scored. */
typedef struct scored {
    int64_t id;
    double log_probability; /* NAN: the first token of a prompt has none */
    int n_top;
    gqac_scored_id *top;
} scored;

typedef struct tokens {
    scored *list;
    size_t n, capacity;
} tokens;

typedef struct bytes {
    char *data;
    size_t n, capacity;
} bytes;

typedef struct prompt {
    int64_t *ids;
    size_t n;
    char *text; /* of a completion, for echo; malloc'd */
    size_t length;
    tokens rows;          /* its scores, if they are wanted */
    int64_t reused, done; /* tokens that were cached, and that have rows */
} prompt;

typedef enum leg_kind { LEG_ANSWER, LEG_COLD, LEG_PREFIX } leg_kind;

struct leg {
    job *owner;
    leg_kind kind;
    int index; /* of the choice */
    prompt *prompt;
    gqac_reply *reply;
    gqac_calls *calls; /* of the thread of connections; NULL: calls are text */
    int n_calls;       /* of its answer so far */
    float *row;        /* [vocabulary] of the id that is chosen next */
    uint64_t check;    /* of all rows of logits so far */
    /* under the lock */
    int64_t number; /* of the scheduler; 0: not submitted */
    tokens tokens;
    bytes text;    /* not sent yet */
    size_t sent;   /* tokens */
    size_t offset; /* characters of the text of these tokens */
    reasoning_state thinking;
    int64_t thoughts;            /* tokens that are reasoning */
    bool ended, begun, finished; /* ended: by the scheduler; the others: in the reply */
    gqac_finish finish;
    int64_t drafted, accepted; /* tokens, when it has ended */
    double last;               /* time of the last token */
    leg *next_waiting;         /* in the queue of a model with an encoder */
};

typedef struct job_shape job_shape;

struct job {
    serve *server;
    http_exchange *x; /* NULL: the client is gone, or has its reply */
    const job_shape *shape;
    char id[40];
    int64_t created;
    double began, first; /* seconds; first: of the first token, 0: none yet */
    double sent;         /* seconds: when an event was last sent */
    /* what is asked for */
    json_t *root;
    bool stream, usage, echo, scores, ids_wanted, verify, progress;
    bool cold; /* nothing is shared with the store */
    int64_t n_top, n, max_new;
    gqac_sampling sampling;
    gqac_logit_bias *bias;
    constraint *constraint; /* NULL: all texts are allowed */
    char *tools;            /* JSON of the tools that may be called; NULL: none */
    int n_stop;
    const char **stop; /* in `root` */
    int n_ends;
    int64_t *ends; /* ids that end an answer */
    char *tenant;
    int n_prompts;
    prompt *prompts;
    /* a response (shape_response.c) */
    json_t *items; /* of its output, those that are complete; NULL: none yet */
    bool saying;   /* the next item is a message, with this text so far */
    char *said;
    size_t n_said;
    int sequence; /* number of its next event */
    task *task;   /* NULL, or the job has no legs */
    /* legs: answers (n of each prompt), then cold ones, then prefixes */
    int n_legs, n_answers;
    leg *legs;
    /* under the lock */
    int open; /* legs that have not ended; 1: the task */
    bool cancelled, dirty;
    bool progressed; /* a prompt has more rows */
    problem problem; /* status 0: none */
    job *next, *next_dirty;
    job *next_flush; /* of the thread of connections only */
};

/* Answers of a model with an encoder. */
typedef struct queue {
    leg *running, *first, *last; /* running: that of the thread that calls serve_run */
    gqac_scheduler_statistics counts;
} queue;

/* Long texts of /tokenize, and the thread for them, which the first one starts. */
typedef struct tokenizing {
    pthread_t thread;
    bool started;
    bool by_turns; /* of tests: there is no thread, and the caller calls tokenizing_run */
    /* under the lock */
    pthread_cond_t more;
    bool closing;
    task *first; /* that wait */
    int64_t n;   /* that wait, and the one in progress */
} tokenizing;

typedef enum serve_state { SERVE_LOADING, SERVE_READY, SERVE_DRAINING, SERVE_STOPPED } serve_state;

struct serve {
    serve_options options;
    char url[300];
    struct event_base *base;
    http *http;
    struct event *woken, *tick, *terms[2]; /* terms: of SIGTERM and SIGINT */
    int wake;                              /* an eventfd */
    keys *keys;
    pthread_t thread;
    bool started; /* the thread */
    double began;
    int64_t last; /* number of the last job */
    job *jobs;    /* all; of the thread of connections */
    constraints constraints;
    int signals; /* number of SIGTERM and SIGINT so far */
    double drain_until;
    metrics *metrics;
    /* set by serve_attach, before the state is READY */
    serve_model model;
    int64_t most; /* tokens of prompt and answer together; with an encoder, of each */
    int64_t vocabulary;
    int n_eos;
    const int64_t *eos; /* end-of-text ids of the model */
    const gqac_token_rules *rules;
    reasoning reasoning;
    char fingerprint[400];
    gqac_scheduler *scheduler;
    saver *saver; /* NULL: nothing is saved */
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under the lock */
    serve_state state;
    bool submitted; /* since the scheduler had nothing to do */
    job *dirty;
    queue queue; /* of a model with an encoder */
    tokenizing tokenizing;
};

/* serve_open without its thread: the caller runs the events of `base`. */
gqac_status serve_prepare(const serve_options *options, serve **out, gqac_diag *diag);
double serve_seconds(void);
/* Makes the thread of connections look at `dirty` and `state`. */
void serve_wake(serve *s);
serve_state serve_get_state(serve *s);
/* The requests that wait and run, and what was computed for them and for earlier ones. */
gqac_scheduler_statistics serve_statistics(serve *s);
/* Writes a message into the diag. */
gqac_status serve_fail(gqac_diag *diag, gqac_status status, const char *fmt, ...) GQAC_PRINTF(3, 4);

/* ---- route.c ------------------------------------------------------------- */

/* http_events of the server. */
bool route_admit(void *arg, http_exchange *x);
void route_request(void *arg, http_exchange *x);
void route_gone(void *arg, http_exchange *x, int status);
void route_refuse(void *arg, http_exchange *x, int status, const char *message);
/* Log a reply and send it; if memory ran out, an error takes its place. `body` NULL: it did. `more`
 * (may be NULL) goes to the log and is freed. */
void route_reply(serve *s, http_exchange *x, int status, const char *type, const char *headers,
                 const char *body, size_t length, json_t *more);
/* The same with JSON, which is freed. */
void route_json(serve *s, http_exchange *x, int status, json_t *value, json_t *more);
void route_problem(serve *s, http_exchange *x, const problem *p);
json_t *route_problem_json(const problem *p);
/* Logs and counts a reply; `more` (may be NULL) is freed. */
void route_log(serve *s, const http_exchange *x, int status, json_t *more);

/* ---- page.c -------------------------------------------------------------- */

/* Replies with the page. */
void page_send(serve *s, http_exchange *x, const json_t *root, const char *tenant);

/* ---- job.c: from a request to its legs ----------------------------------- */

/* A job that no list has; `shape` NULL: it has a task. NULL: no memory. */
job *job_create(serve *s, const job_shape *shape, const char *tenant);
/* Adds it to the jobs of the server, as that of a request; and the opposite, which frees it. */
void job_add(job *j, http_exchange *x);
void job_remove(job *j);
/* Under the lock: makes the thread of connections send what is new. */
void job_touch(job *j);
/* Answers a request of a shape; `tenant` is that of its key. */
void job_start(serve *s, http_exchange *x, const job_shape *shape, const char *tenant);
/* True: several answers share the prompt, which is computed once, except for its last token. */
bool job_shares(const job *j, const prompt *p);
/* Ends all legs. */
void job_cancel(job *j);
/* No reply can be sent any more; `status` is logged. */
void job_leave(job *j, int status);
/* Sends what is new, and frees the job when all of it has ended. */
void job_flush(job *j);
/* Sends a comment to the clients of streams that have got nothing for a second. */
void job_ping(serve *s, double now);
/* job_expire cancels the jobs that take too long, job_cancel_all all of them; their clients get a
 * problem. */
void job_expire(serve *s, double now);
void job_cancel_all(serve *s, const char *why);

/* ---- tokenizing.c -------------------------------------------------------- */

void tokenizing_request(serve *s, http_exchange *x, const json_t *root, const char *tenant);
/* Number of long texts that wait or are being tokenized. */
int64_t tokenizing_count(serve *s);
/* Sends the result of a task that has one. */
void tokenizing_reply(serve *s, http_exchange *x, const task *t);
void tokenizing_free(task *t);
/* Under the server's lock: ends a job with a task, if it waits; one in progress is completed. */
void tokenizing_cancel(job *j);
/* Completes texts: with `wait` until the server closes, else until none waits. */
void tokenizing_run(serve *s, bool wait);
/* Ends the thread. Jobs whose tasks wait have ended then. */
void tokenizing_close(serve *s);

/* ---- leg.c: callbacks of the scheduler ----------------------------------- */

/* Submits all legs that wait for no other; false: *p says why not, and no leg is left. */
bool leg_submit_all(job *j, problem *p);
/* Adds a token, whose `top` it takes over. False: it is the last one, since a stop text is complete
 * or memory is short. `eos`: it ends the answer and adds no text. A diag that has a status ends the
 * job with that problem. */
bool leg_add(leg *l, scored *next, bool eos, gqac_diag *diag);
/* Ends a leg: releases the text that was held back, and decides why the answer ended, as
 * gqac_generate does. `why` (of FAILED): the reason. Afterwards the leg may be freed. */
void leg_end(leg *l, gqac_finish finish, const gqac_diag *why);
/* The same under the lock, for a leg without text: it was cancelled before its first token. */
void leg_drop(leg *l);

/* ---- encoder.c: a model with an encoder ----------------------------------- */

/* Sets up the context of the model. */
gqac_status encoder_attach(serve *s, gqac_diag *diag);
/* Under the lock: puts the legs of a job at the end of the queue. */
void encoder_submit(job *j);
/* Under the lock: ends the legs of a cancelled job that wait. The one that runs ends by itself
 * within about a millisecond. */
void encoder_cancel(job *j);
/* Runs legs until the server stops. */
void encoder_run(serve *s);

/* ---- ask.c, ask_*.c: reading a request ------------------------------------- */

/* A function of this part that returns a bool or a pointer returns false or NULL if the request is
 * wrong, and sets *p. */

/* Refuses fields that other servers know and this endpoint does not (unsupported.c), unless their
 * value asks for nothing. */
bool ask_supported(const job *j, problem *p);
/* Fields that chat, completions and responses share. */
bool ask_common(job *j, problem *p);
bool ask_constraint(job *j, problem *p);
bool ask_chat(job *j, problem *p);
bool ask_completion(job *j, problem *p);
bool ask_response(job *j, problem *p);
/* Makes the prompts, empty. */
bool ask_make_prompts(job *j, size_t n, problem *p);
/* Checks the length of each prompt, and with an encoder that of the answer. `most_new`: of an
 * answer, if the request does not say it. */
bool ask_fit(job *j, int64_t most_new, problem *p);
/* The longest answer to a chat that does not say how long it may be. */
int64_t ask_chat_length(const job *j);
/* The tools that a request offers, and what `tool_choice` asks for. */
typedef struct offer {
    json_t *tools; /* those that may be called, in the request; NULL: none */
    bool none, forced;
    const char *name; /* of the only function that may be called; NULL: any */
} offer;
/* Renders messages, which are in the field `name`; the caller frees *text with gqac_release. Sets
 * *out as ask_tools does. */
bool ask_render(serve *s, const json_t *root, json_t *messages, const char *name, char **text,
                size_t *length, offer *out, problem *p);
/* Checks `tools` and `tool_choice`. */
bool ask_tools(const json_t *root, offer *out, problem *p);
/* Sets which tools an answer may call, and the constraint if there is one. */
bool ask_calls(job *j, const json_t *root, const offer *given, problem *p);
/* Sets the constraint of the job. `param`: the field that is named if the source is wrong as a
 * whole; `within`: if a place in it is wrong. */
bool ask_take(job *j, const constraint_source *source, const char *param, const char *within,
              problem *p);
/* Fills ids and max_new of a prompt from its text. */
bool ask_tokenize(serve *s, const char *text, size_t length, bool special, prompt *out, problem *p);
/* A copy of messages as templates know them: contents are texts, arguments of calls are objects. */
json_t *ask_messages(const json_t *messages, const char *name, problem *p);
/* Makes the content of a message a text. The request has the content in item `at` of `list`. */
bool ask_content(json_t *message, const char *list, size_t at, problem *p);
/* Ids in JSON. */
bool ask_ids(const json_t *list, int64_t vocabulary, const char *name, prompt *out, problem *p);

/* ---- shape.c, shape_*.c: the JSON of replies ----------------------------- */

/* What the thread of connections takes from a leg: the text and tokens since the last call. */
typedef struct fresh {
    char *text;
    size_t length;
    scored *list; /* copies; their `top` belongs to the leg */
    size_t n;
    bool last;   /* nothing more follows */
    bool failed; /* no memory: nothing was taken */
} fresh;
struct job_shape {
    const char *prefix; /* of ids */
    bool (*ask)(job *j, problem *p);
    json_t *(*whole)(job *j);
    /* Sends what is new of a stream; `last`: all legs have ended. False as for shape_send. */
    bool (*stream)(job *j, bool last);
    /* Of replies that are a list of choices (shape_choices.c): "object" of a whole reply and of a
     * chunk, and the JSON of what is new of an answer. */
    const char *object, *chunk;
    json_t *(*choice)(leg *l, const fresh *f, bool whole);
};
extern const job_shape shape_chat, shape_completion, shape_response;
/* whole and stream of replies that are a list of choices. */
json_t *shape_choices(job *j);
bool shape_stream_choices(job *j, bool last);
/* Divides what is new of an answer into content and calls, in their order, and counts the calls. A
 * call has an id. False: no memory, or `add` has returned false. */
typedef bool shape_part(void *arg, const gqac_call_part *part);
bool shape_divide(leg *l, const fresh *f, shape_part *add, void *arg);
/* The caller frees it with shape_free. */
fresh shape_take(leg *l);
void shape_free(fresh *f);
json_t *shape_usage(const job *j);
const char *shape_finish(const leg *l);
/* The bytes of a token, for gqac_release. NULL: it has none. *special may be NULL. */
char *shape_bytes(const serve *s, int64_t id, size_t *length, bool *special);
/* "text of a token", as JSON; bytes that are not UTF-8 become \xNN after "bytes:". *out is
 * malloc'd. */
char *shape_token(const serve *s, int64_t id, size_t *length);
json_t *shape_ids(const scored *tokens, size_t n);
/* Completes a choice with what is fresh: adds the ids of the answer, and in the first those of the
 * prompt, if they are wanted. Returns `choice`; NULL: short of memory. */
json_t *shape_end_choice(json_t *choice, leg *l, const fresh *f);
json_t *shape_verified(const job *j);
/* A log-probability; JSON has no infinity, so that of an impossible id is -9999. */
json_t *shape_real(double value);
/* The text of a value, whose numbers have no more digits than they need; the caller frees it. NULL:
 * the value is NULL, or memory ran out. */
char *shape_dump(const json_t *value);
/* Sends "data: VALUE\n\n"; the value is freed. False: memory ran out, or the client reads too
 * slowly. */
bool shape_send(job *j, const char *event, json_t *value);
/* A text that may end in the middle of a character, as JSON. */
json_t *shape_text(const char *text, size_t length);

#endif
