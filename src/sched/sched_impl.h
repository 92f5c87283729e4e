/* Private to src/sched: the scheduler and its requests.
 *
 * Other threads only add requests to `submitted` and mark requests as cancelled, both under the
 * lock. All other fields belong to the thread that steps. It takes the lock as well when it changes
 * what others read: the lists and the published statistics. Callbacks run without the lock. */
#ifndef GQAC_SCHED_IMPL_H
#define GQAC_SCHED_IMPL_H

#include <gqac/schedule.h>
#include <gqac/sequence.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "llm/drafts.h"

typedef struct request request;
typedef struct fetch fetch;
typedef struct fetcher fetcher;

struct request {
    int64_t number;
    gqac_request given;     /* what it points to is in `memory` */
    gqac_sampling sampling; /* given.sampling is NULL, or points here */
    gqac_arena *memory;
    int64_t *list; /* ids of `from`, of the prompt, and of the answer so far */
    size_t n, capacity;
    size_t n_prompt;         /* ids of `from` and of the prompt */
    gqac_snapshot *base;     /* of `from`, until it is restored or given up; NULL: none */
    gqac_sequence *sequence; /* rows of the first ids of the list; NULL: none */
    bool long_rope;          /* the sequence was made for lengths beyond the LongRoPE threshold */
    fetch *fetch;            /* under way; NULL: none */
    bool fetched;            /* the next sequence can be opened with what memory has */
    bool admitted;
    atomic_bool cancelled;
    int64_t reported; /* last progress */
    int64_t reused, computed, preemptions;
    int64_t seen; /* gqac_sequence_computed of the sequence, as far as it was counted */
    gqac_constraint_state *constraint; /* NULL: all texts are allowed */
    bool complete;                     /* the constraint allows nothing more */
    drafts drafts;
    int64_t drafted; /* ids after the n of the list that the next step computes as drafts */
    int64_t n_drafted, n_accepted; /* drafts so far, and those that became ids */
    gqac_sequence *fork; /* states: of the sequence, before the step with drafts; else NULL */
    bool again; /* a fork took the place of the sequence: its ids without rows had been computed */
    request *next;
};

struct gqac_scheduler {
    gqac_context *context;
    const gqac_program *program;
    gqac_scheduler_options options;
    int64_t most;        /* gqac_program_max_tokens */
    int64_t threshold;   /* gqac_program_rope_threshold; 0: none */
    bool padded;         /* gqac_program_padding */
    bool states;         /* drafts_cost_again */
    bool chunk_was_last; /* padded: the last step had a chunk */
    fetcher *fetcher;    /* NULL: the store has no remote tier */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* submitted, a request is cancelled, or a fetch has ended */
    request *submitted;     /* not yet in `order` */
    request *order;         /* by priority, then by number */
    int64_t last;           /* number of the last request */
    int64_t live;           /* requests that have not ended */
    bool closing;
    gqac_scheduler_statistics published, counts;
    /* What memory allows, as far as is known: shortages reduce both, and each request that ends
     * increases them. */
    int64_t room;         /* admitted requests */
    int64_t chunk;        /* tokens of chunks, or of drafts, in one step */
    bool drafting;        /* there may be drafts */
    bool grown;           /* the context may have more memory than steps without drafts need */
    bool shrunk, trimmed; /* the context was trimmed; trimmed: in this call */
    payoff payoff;        /* of drafts, and of their sources in all requests: */
    draft_source sources[DRAFTS_SOURCES];
    gqac_monitor monitor; /* of the context, while a step has its own */
    bool interrupted;     /* a step of this call ended because of a cancelled prompt */
    int n;                /* items of the next step */
    gqac_step_item *items;
    request **members;
    float *logits; /* a row for on_logits and constraints */
};

static inline bool item_is_chunk(const gqac_step_item *item) {
    return item->count - item->drafts > 1;
}

/* ---- request.c ----------------------------------------------------------- */

/* Checks and copies what is asked for. */
gqac_status request_create(const gqac_scheduler *s, const gqac_request *given, request **out,
                           gqac_diag *diag);
void request_free(request *r);
/* Number of ids of the list that have no rows yet. */
int64_t request_pending(const request *r);
/* True if the request finds rows in the store, and leaves its own there. */
bool request_shares(const gqac_scheduler *s, const request *r);
/* True if the list is longer than the LongRoPE threshold. */
bool request_is_beyond(const gqac_scheduler *s, const request *r);
/* The options of the sequence that would be made for the list as it is now. */
gqac_sequence_options request_sequence_options(const gqac_scheduler *s, const request *r);
/* Makes the sequence of a request that has none: from its base, from the store, or empty. */
gqac_status request_open(gqac_scheduler *s, request *r, gqac_diag *diag);
/* n_top of the request's items: the number of likeliest ids from which the next id is chosen; 0: it
 * is chosen from logits. */
int64_t request_top(const request *r);
/* Frees the rows. */
void request_close(request *r);
/* Adds what steps have computed since the last call to the counts. */
void request_count(gqac_scheduler *s, request *r);
/* Removes a request that has ended from the order, calls on_end and frees it. */
void request_end(gqac_scheduler *s, request *r, gqac_finish finish, const gqac_diag *diag);
/* After a step that gave the request `item`: reports progress, and chooses the next id if all of
 * its list has rows. The request may end. */
void request_advance(gqac_scheduler *s, request *r, int item);

/* ---- fetch.c ------------------------------------------------------------- */

/* Starts the threads that fetch, if the store has a remote tier. */
gqac_status fetch_open(gqac_scheduler *s, gqac_diag *diag);
/* After all requests have ended: waits for the fetches that are under way. */
void fetch_close(gqac_scheduler *s);
/* Begins the fetch of an admitted request without rows, or handles its end. Until r->fetch is NULL
 * again, the request has to wait. */
void fetch_follow(gqac_scheduler *s, request *r);
/* The request no longer waits for its fetch. */
void fetch_drop(gqac_scheduler *s, request *r);
/* After a step that had nothing to compute: while all that could be computed waits for fetches,
 * waits for the first one to end, for a new request, or for a cancellation. ABORTED: the monitor of
 * the context ended the wait. */
gqac_status fetch_await(gqac_scheduler *s, gqac_diag *diag);

/* ---- draft.c ------------------------------------------------------------- */

/* A reading of the clock of the scheduler; 0: nothing is drafted. */
double draft_clock(const gqac_scheduler *s);
/* Adds drafts to the items of the next step where they pay, if none of them is a chunk. */
void draft_add(gqac_scheduler *s);
/* Records the time of the step of all items, which has succeeded. */
void draft_measure(gqac_scheduler *s, double seconds);
/* Forgets the drafts of the next step. */
void draft_drop(request *r);
/* To be called after `rows` rows of the request's item were used and `right` drafts were accepted
 * (`wrong`: a wrong one followed them): takes the other rows back. `ends`: the request ends, and
 * its sequence must have the ids that were accepted. */
gqac_status draft_settle(gqac_scheduler *s, request *r, int64_t rows, int64_t right, bool wrong,
                         bool ends, gqac_diag *diag);
/* Gives up the drafts of the next step, or the memory that those of earlier steps have left in the
 * context. From then on there are no drafts until a request ends. False: there is neither. */
bool draft_relieve(gqac_scheduler *s);

/* ---- pack.c -------------------------------------------------------------- */

/* Admits the first requests in the order, and preempts those that are no longer among them. */
void pack_admit(gqac_scheduler *s);
/* Fills the items of the next step. On failure *failed is the request whose sequence could not be
 * made. */
gqac_status pack_gather(gqac_scheduler *s, request **failed, gqac_diag *diag);
/* After a step for which memory was short: frees some, or makes the next step smaller. `chunk` is
 * s->chunk before the first attempt. False: nothing is left to try. */
bool pack_relieve(gqac_scheduler *s, int64_t chunk);

#endif
