/* The scheduler: many requests on one program, packed into shared steps. It is the basis of a
 * server.
 *
 *   gqac_scheduler *scheduler;  gqac_request request;  int64_t number, left;
 *   gqac_scheduler_create(context, NULL, &scheduler, &diag);
 *   gqac_request_init(&request, ids, n);
 *   request.on_token = send;
 *   gqac_scheduler_submit(scheduler, &request, &number, &diag);
 *   do
 *       gqac_scheduler_step(scheduler, &left, &diag);
 *   while (left);
 *
 * A request is admitted when it is among the first `running` requests by priority, then by the
 * order of submission. Each step then takes one token of every admitted request that decodes, and
 * fills the rest of its budget of tokens with chunks of prompts, in the same order. So a request
 * that decodes gets a token in every step (with drafts, see gqac_scheduler_options.speculate, often
 * more than one), however long the prompts of others are. (If the program pads the rows of a step,
 * see gqac_program_padding, steps with a chunk of one prompt alternate with steps that decode.)
 * With a store, a request that has no rows yet waits while a step computes tokens of another
 * request with which both begin, and then continues from the store.
 *
 * An admitted request is preempted when one of higher priority needs its place, and when the memory
 * budget of the program is used up: its rows are freed, it waits, and later they are computed
 * again. The last admitted request is preempted first, and no request fails for lack of memory
 * while others are admitted that can end and free some.
 *
 * Every request gets the ids that it would get alone, whatever else runs, if the model is
 * split-safe (gqac_program_mixing). One thread at a time calls gqac_scheduler_step, which uses the
 * context; any thread may call gqac_scheduler_submit, gqac_scheduler_cancel and
 * gqac_scheduler_get_statistics at any time. */
#ifndef GQAC_SCHEDULE_H
#define GQAC_SCHEDULE_H

#include <gqac/generate.h>
#include <gqac/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_scheduler gqac_scheduler;
typedef struct gqac_scheduler_options {
    size_t size;
    int64_t tokens;  /* maximum number of tokens in one step; 0: 256, or `running` if larger */
    int64_t running; /* maximum number of admitted requests, at most `tokens`; 0: 64, or `tokens` if
                        smaller */
    const char *kv;  /* kind of cache of the sequences; NULL: contiguous */
    /* Not NULL: a request begins with the longest prefix of its tokens that its tenant has in the
     * store, and the store gets what it computes. When memory is short, the store is emptied before
     * a request is preempted. The store must be of the same program, and outlive the scheduler.
     * With or without it, a request may begin with the baked prefix of the program (snapshot.h). If
     * the store has a remote tier, threads of the scheduler read from its folder and its tier, and
     * a request for which they read takes part in no step until then. A step that would have
     * nothing else to compute waits for one of them, for a new request or for a cancellation. */
    gqac_store *store;
    /* Maximum number of drafts of a request in one step, >= 0; 0: none, and never more than
     * GQAC_DRAFTS_MOST (speculate.h). There are fewer if the logits of a step would take more than
     * 128 MiB. They are looked up in the tokens of the request and accepted as gqac_generate does
     * (speculate.h). Ids, and logits seen by callbacks, are the same; a step may add several ids to
     * an answer. Drafts are part of `tokens`. There are none in a step that has a chunk of a
     * prompt, where they do not pay off, or when memory is short. If the program has recurrent
     * states, ids that were accepted before a wrong draft are computed again by the next step. */
    int64_t speculate;
    double (*clock)(void *arg); /* to measure whether drafts pay off: returns seconds,
                                   monotonic; NULL: the system's clock */
    void *clock_arg;
} gqac_scheduler_options;
static inline void gqac_scheduler_options_init(gqac_scheduler_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}

/* Creates a scheduler without requests; options NULL: defaults. Its steps run in `context`, which
 * must outlive it; the monitor of the context is that of the steps. The caller frees *scheduler.
 * USAGE: the program is for stateless runs, or the store is of another program; UNSUPPORTED: the
 * program takes embeddings, or its vocabulary is not fixed; OUT_OF_RANGE: a negative number, or
 * `running` is more than `tokens`; NO_MEMORY, also for its threads. An unknown kind of cache fails
 * the requests. */
GQAC_API gqac_status gqac_scheduler_create(gqac_context *context,
                                           const gqac_scheduler_options *options,
                                           gqac_scheduler **scheduler, gqac_diag *diag);
/* Returns why schedulers make no drafts with this program, in a few words without a period: a model
 * that returns one row of logits, or one that is not split-safe. NULL: they can draft. */
GQAC_API const char *gqac_scheduler_no_drafts(const gqac_program *program);
/* Ends the remaining requests as cancelled, and frees the scheduler. No other thread may use it any
 * more. */
GQAC_API void gqac_scheduler_free(gqac_scheduler *scheduler);

/* ---- requests ------------------------------------------------------------ */

/* How a request ended. Texts, ids and the sequence are valid during the callback only. */
typedef struct gqac_request_end {
    size_t size;
    int64_t request;       /* its number */
    gqac_finish finish;    /* EOS, LENGTH, STOP (by a callback), CANCELLED or FAILED */
    const gqac_diag *diag; /* FAILED: the reason; else NULL */
    size_t n_ids;
    const int64_t *ids;      /* the new ids, an end-of-text id included */
    int64_t reused_tokens;   /* tokens whose rows were cached before the first step computed any */
    int64_t computed_tokens; /* tokens that steps computed, repeated ones and drafts included */
    int64_t preemptions;     /* how often the request lost its rows */
    /* The tokens that have rows: all but the last new id. The callback may fork it, or take a
     * snapshot, to continue from it. NULL: the request has no rows. */
    const gqac_sequence *sequence;
    int64_t drafted_tokens, accepted_tokens; /* drafts that steps computed for it, and those of them
                                                that became new ids */
} gqac_request_end;

/* Callbacks run on the thread that calls gqac_scheduler_step, after the step that they report
 * (on_end also in gqac_scheduler_free). They may submit and cancel requests, but must not call
 * gqac_scheduler_step or gqac_scheduler_free, nor use the context. */

/* Called after each new id. Returns false to end the request with GQAC_FINISH_STOP after this id.
 */
typedef bool gqac_request_token(void *arg, int64_t request, int64_t id);
/* Called once, after the first step that computed tokens of the prompt, before on_progress: the
 * first `reused` tokens of the prompt were cached. */
typedef void gqac_request_began(void *arg, int64_t request, int64_t reused);
/* Called after each step that computed tokens of the prompt: the first `done` of its `total`
 * tokens, those that were cached included, have rows. `done` increases from call to call, also
 * after a preemption. */
typedef void gqac_request_progress(void *arg, int64_t request, int64_t done, int64_t total);
/* Called once for each token of the prompt, in order, after the step that computed it: `logits`
 * [vocabulary] predict the token after the one at `position`. They are valid during the callback.
 */
typedef void gqac_request_row(void *arg, int64_t request, int64_t position, const float *logits,
                              int64_t vocabulary);
/* Called once for each request; no other callback of the request follows. */
typedef void gqac_request_ended(void *arg, const gqac_request_end *end);

/* A request. gqac_scheduler_submit copies or shares everything that it points to, except `arg`,
 * `logits_arg` and the rules of `sampling`. */
typedef struct gqac_request {
    size_t size;
    const int64_t *prompt; /* n_prompt >= 1 ids */
    size_t n_prompt;
    int64_t max_new; /* maximum number of new ids, >= 0; 0: the prompt is computed all the same */
    int n_eos;       /* number of ids that end the answer */
    const int64_t *eos;
    const gqac_sampling *sampling;   /* NULL: the most likely id; its n_prompt and max_length are
                                        ignored */
    gqac_logits_callback *on_logits; /* as in gqac_generate_request; may be NULL */
    void *logits_arg;
    int priority; /* higher ones are first */
    /* Not NULL: the request begins with the tokens of this sequence, and shares their rows; the
     * prompt is what follows. Later changes of the sequence do not matter. The store is not used.
     */
    const gqac_sequence *from;
    const char *tenant; /* of the store; NULL: "" */
    gqac_request_token *on_token;
    gqac_request_progress *on_progress;
    gqac_request_ended *on_end; /* each callback may be NULL */
    void *arg;
    /* Not NULL: every token of the prompt is computed, as with `cold`, and its logits are reported.
     * The request fails with UNSUPPORTED if the model returns only the logits of the last token.
     * USAGE if there is a `from`. */
    gqac_request_row *on_row;
    bool cold; /* the request shares nothing with the store, in either direction */
    gqac_constraint *constraint; /* as in gqac_generate_request; NULL: all texts are allowed */
    gqac_request_began *on_begin;
} gqac_request;
/* Sets the defaults: greedy decoding of at most 128 ids. */
static inline void gqac_request_init(gqac_request *request, const int64_t *prompt,
                                     size_t n_prompt) {
    memset(request, 0, sizeof *request);
    request->size = sizeof *request;
    request->prompt = prompt;
    request->n_prompt = n_prompt;
    request->max_new = 128;
}

/* Submits a request, which the next step may admit. *number, from 1, is set before its first
 * callback; no other request of the scheduler gets it. After this call has succeeded, on_end will
 * be called. Only one thread at a time may use request->from. OUT_OF_RANGE: an empty prompt, a
 * negative number, more tokens than the model has positions, or an id of the prompt or of a bias
 * that is not in the vocabulary; USAGE: request->size is not that of any version of the struct, a
 * sampling option is out of range, or `from` is of another program or has imported tokens, whose
 * ids are unknown; NO_MEMORY. */
GQAC_API gqac_status gqac_scheduler_submit(gqac_scheduler *scheduler, const gqac_request *request,
                                           int64_t *number, gqac_diag *diag);
/* Ends a request with GQAC_FINISH_CANCELLED: the call of gqac_scheduler_step in progress, or else
 * the next one, calls its on_end, and it takes part in no further step. If a chunk of its prompt is
 * being computed, that step ends within about a millisecond, and the others are stepped again
 * without it, at most once in a call of gqac_scheduler_step. Their bits do not change. Returns
 * false if the request has ended or does not exist. */
GQAC_API bool gqac_scheduler_cancel(gqac_scheduler *scheduler, int64_t number);

/* Makes one step: admits requests, computes the tokens that fit, and calls the callbacks. *left, if
 * not NULL, is set to the number of requests that have not ended; if that is 0, there was nothing
 * to compute, or the last one has ended. If a request fails, only that request ends, and on_end
 * gets the reason: an unknown kind of cache, all logits NaN, too little memory for this request
 * alone. The step is then repeated without it. A failed call changes no request. ABORTED: the
 * monitor of the context ended the step, or its wait for the remote tier of the store. */
GQAC_API gqac_status gqac_scheduler_step(gqac_scheduler *scheduler, int64_t *left, gqac_diag *diag);

typedef struct gqac_scheduler_statistics {
    size_t size;              /* sizeof(gqac_scheduler_statistics), set by the caller */
    int64_t waiting, running; /* requests that have not ended: not admitted, and admitted */
    int64_t ended;
    int64_t steps; /* calls of gqac_step that succeeded */
    int64_t reused_tokens, computed_tokens, new_tokens;
    int64_t preemptions;
    int64_t drafted_tokens, accepted_tokens; /* drafts that steps computed, and those of them that
                                                became ids of answers */
} gqac_scheduler_statistics;
/* Fills *statistics with the state after the last step; what was submitted since is waiting. USAGE:
 * statistics->size is not that of any version of the struct. */
GQAC_API gqac_status gqac_scheduler_get_statistics(gqac_scheduler *scheduler,
                                                   gqac_scheduler_statistics *statistics,
                                                   gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
