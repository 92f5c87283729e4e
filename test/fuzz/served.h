/* A complete server of a small model, whose threads are run by the caller in turn, and clients
 * over the loopback interface. So a test knows when the server has nothing left to do, and the same
 * requests have the same effect each time: the random ids and seeds of the server are constants, by
 * --wrap=getrandom. */
#ifndef GQAC_TEST_FUZZ_SERVED_H
#define GQAC_TEST_FUZZ_SERVED_H

#include "base/str.h"
#include "serve/serve_impl.h"

typedef struct served {
    serve *server;
    gqac_context *context;
    gqac_store *store;
    gqac_scheduler_options scheduler;
    /* for a model with an encoder, instead of the others */
    gqac_threads *threads;
    gqac_seq2seq *seq2seq;
    gqac_seq2seq_context *seq2seq_context;
} served;
/* They abort if anything fails, or if the server has kept rows. */
void served_open(served *g);
void served_open_folder(served *g, const char *folder); /* of the prefix store; NULL: none */
void served_open_encoder(served *g); /* a traced T5, with the tokens of the other model */
void served_close(served *g);
/* The tokenizer and template of its model, which are opened once. */
const gqac_text *served_text(void);

typedef struct served_client {
    serve *server;
    int fd;
    bool ended;    /* the server sends no more */
    uint64_t sent; /* bytes */
    gqac_str replies;
} served_client;
served_client served_connect(serve *s);
/* Sends until the server has read everything, or has closed the connection. */
void served_send(served_client *c, const char *data, size_t size);
/* One round of the threads of a server; returns how many requests are left. `wait`: first waits
 * for the client's socket, for at most a millisecond. */
int64_t served_turn(served_client *c, bool wait);
/* Runs turns until the server has read everything and answered what it can, and the client has its
 * replies. False: this takes more than SERVED_TURNS turns. */
enum { SERVED_TURNS = 100000 };
bool served_settle(served_client *c, int turns);
void served_disconnect(served_client *c);
/* Called when a turn enters and leaves the code of the server; NULL: nothing is called. */
extern void (*served_within)(bool within);

/* Called with each line of the server's log; NULL: nothing is called. */
extern void (*served_line)(const char *line);

/* The status of the first reply; 0: there is no reply. */
int served_status(const gqac_str *replies);
/* The JSON of a reply that is not a stream, the page or metrics; its caller frees it. */
json_t *served_json(const gqac_str *replies);

#endif
