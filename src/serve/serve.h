/* The server: HTTP endpoints as OpenAI's clients know them, over the scheduler and the prefix
 * store.
 *
 *   serve_open(&options, &server, &diag);      listens; /health says that the model is loading
 *   serve_attach(server, &model, &diag);       now requests are answered
 *   serve_run(server, &diag);                  steps the scheduler, until SIGTERM or SIGINT
 *   serve_free(server);
 *
 * One thread handles connections, texts and JSON. The thread that calls serve_run steps the
 * scheduler, which has threads of its own to read from the remote tier of the store. Another one
 * writes prefixes to the folder and the remote tier.
 *
 * A model with an encoder has no scheduler and no store: the thread that calls serve_run computes
 * one answer after another. */
#ifndef GQAC_SERVE_SERVE_H
#define GQAC_SERVE_SERVE_H

#include <gqac/text.h>
#include <stdbool.h>

typedef struct serve serve;

typedef struct serve_options {
    const char *host;
    int port;             /* 0: any free one */
    const char *key_file; /* NULL: everybody on this machine, as one tenant, and nobody else */
    int64_t body_bytes;   /* maximum size of a request */
    int64_t queue;        /* maximum number of requests that wait for a place in the scheduler */
    int connections, per_peer;
    double request_seconds; /* maximum time for an answer; 0: unlimited */
    double drain_seconds;   /* the same when the server stops */
    /* Returns true if SIGTERM or SIGINT has come before the server catches them. NULL: neither
     * has. */
    bool (*interrupted)(void);
    /* Called by serve_open when the socket listens, before a thread is started; the server is not
     * opened if it fails. NULL: nothing is called. */
    gqac_status (*listening)(void *arg, gqac_diag *diag);
    void *listening_arg;
    /* A line of JSON about each request, for a log; NULL: none. */
    void (*log)(void *arg, const char *line);
    void *log_arg;
} serve_options;

/* Binds the address, reads the keys and starts the thread of connections. USAGE: the host is
 * unknown, or there are no keys and others than this machine could connect; INVALID_INPUT: a line
 * of the key file is wrong; IO: the port cannot be used, or the key file cannot be read;
 * NO_MEMORY. */
gqac_status serve_open(const serve_options *options, serve **out, gqac_diag *diag);
/* Number of keys in the key file; 0: there is none. */
int serve_keys(const serve *s);
/* "http://127.0.0.1:8080" */
const char *serve_url(const serve *s);

/* All of it must outlive the server. */
typedef struct serve_model {
    const char *name;      /* of the model, in replies */
    const char *digest;    /* of what its logits depend on, 64 hex digits */
    const gqac_text *text; /* all parts; with an encoder the tokenizer only */
    /* Not NULL: the model has an encoder, which reads ids; then the fields after these two are 0,
     * except `tokens`. Nobody else uses a context. */
    const gqac_seq2seq *seq2seq;
    gqac_seq2seq_context *seq2seq_context;
    gqac_context *context;
    gqac_store *store; /* NULL: no prefix is kept */
    bool saved;        /* the store has a folder or a remote tier */
    bool remote;       /* the store has a remote tier */
    /* Maximum of prompt and answer together; 0: the model's. With an encoder, of each; 0: 4096. */
    int64_t tokens;
    int64_t memory_budget; /* gqac_options.memory_budget, to report it */
    const gqac_scheduler_options *scheduler;
} serve_model;
/* From now on requests are answered. Errors are those of gqac_scheduler_create, or of
 * gqac_seq2seq_context_set_monitor; NO_MEMORY. */
gqac_status serve_attach(serve *s, const serve_model *model, gqac_diag *diag);

/* Returns GQAC_OK after SIGTERM or SIGINT: no new request is accepted, those that run are completed
 * (until drain_seconds have passed, or a second signal comes), and prefixes are saved. */
gqac_status serve_run(serve *s, gqac_diag *diag);
void serve_free(serve *s);

#endif
