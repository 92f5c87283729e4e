/* Forward, prefill and decode of one sequence, and generation for any number of requests. */
#ifndef GQAC_GENERATE_H
#define GQAC_GENERATE_H

#include <gqac/constraint.h>
#include <gqac/sample.h>
#include <gqac/session.h>
#include <gqac/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- forward ------------------------------------------------------------- */

/* Forward, prefill and decode are one step each. Afterwards gqac_context_logits(context, 0, ...)
 * returns [n, vocabulary] for the n ids of the call, or [1, vocabulary] if the model returns only
 * the logits of the last token (gqac_program_last_logits). The logits of a token have the same bits
 * in all three. OUT_OF_RANGE: n < 1, or an id is not in the vocabulary; the other errors are those
 * of gqac_step. */

/* Computes n ids without a past and keeps no rows. The program must be for sequences. */
GQAC_API gqac_status gqac_forward(gqac_context *context, const gqac_program *program,
                                  const int64_t *ids, int64_t n, gqac_diag *diag);
/* The same with a stateless program of a model without a cache. Its inputs are input_ids and
 * possibly attention_mask and position_ids, all i64 [B,S]; the ids may have another name if no
 * other input has. It has an output `logits`. Sets *logits to a view [1,n,V], or [1,1,V] if the
 * model returns only the last row, in the model's type, valid until the next call with the context.
 * OUT_OF_RANGE: n < 1; UNSUPPORTED: the model has other inputs, no output `logits`, or one of
 * another shape; USAGE: the program is for sequences; the other errors are those of gqac_run. */
GQAC_API gqac_status gqac_forward_stateless(gqac_context *context, const gqac_program *program,
                                            const int64_t *ids, int64_t n, gqac_tensor *logits,
                                            gqac_diag *diag);
/* Rewinds the sequence to length 0 and appends n ids. On failure the sequence is empty; if n < 1,
 * it is unchanged. */
GQAC_API gqac_status gqac_prefill(gqac_context *context, gqac_sequence *sequence,
                                  const int64_t *ids, int64_t n, gqac_diag *diag);
/* Appends one id. OUT_OF_RANGE: `position` is not the length of the sequence. On failure the
 * sequence is unchanged. */
GQAC_API gqac_status gqac_decode(gqac_context *context, gqac_sequence *sequence, int64_t id,
                                 int64_t position, gqac_diag *diag);

/* ---- generation ---------------------------------------------------------- */

/* What gqac_generate reports after each new id. Pointers are valid during the callback only. */
typedef struct gqac_generate_event {
    size_t size;
    int request;  /* index in the call */
    int64_t step; /* from 1 */
    int64_t id;
    double probability; /* of the id by softmax of the model's own logits (before bias and
                           penalties), 0 to 1; NaN for a request with ids_only */
    /* The text that this id completes: whole characters, possibly none. A possible beginning of a
     * stop text is held back until it is decided. The last event has all text that was held back,
     * unless the answer ends because the model has no more positions, or by a callback. */
    const char *text;
    size_t length; /* of text, in bytes; no NUL follows */
    /* Which step computed the logits from which the id was chosen:
     * "prefill": that of the prompt;
     * "decode": that of the id before;
     * "draft": one that computed the id before as a draft. */
    const char *phase;
    bool eos;               /* the id is an end-of-text id, which adds no text */
    double log_probability; /* of the id, as in gqac_scored_id */
    int n_top; /* number of ids in `top`: n_top of the request, or the vocabulary if smaller */
    const gqac_scored_id *top; /* the most likely ids by the model's own logits, in that order */
} gqac_generate_event;
/* Called after each new id. Returns false to end this request with GQAC_FINISH_STOP after this id.
 * It must not use the context or the sessions of the call, but may call gqac_session_ids. */
typedef bool gqac_generate_callback(void *arg, const gqac_generate_event *event);

/* Called before each id is chosen, with a copy of the last row of logits [vocabulary], which it may
 * change: an id whose logit is NaN is not chosen, one with -INFINITY only if no other remains.
 * `ids` are the ids of the prompt and of the answer so far. Events still report the model's own
 * logits. Returns false to end this request with GQAC_FINISH_STOP, without a further id. It must
 * not use the context or the sessions of the call. */
typedef bool gqac_logits_callback(void *arg, float *logits, int64_t vocabulary, const int64_t *ids,
                                  size_t n_ids);

typedef struct gqac_generate_request { /* all it points to must stay valid during the call */
    size_t size;
    gqac_session *session; /* each request of a call needs a session of its own */
    const int64_t *prompt; /* all ids of the conversation so far, n_prompt >= 1 */
    size_t n_prompt;
    int64_t max_new;    /* maximum number of new ids, >= 0 */
    int64_t min_length; /* minimum number of ids of prompt and answer before an end-of-text id may
                           be chosen */
    const gqac_sampling *sampling; /* NULL: the most likely id by the rules of the model */
    int n_eos;                     /* number of ids that end the answer */
    const int64_t *eos;
    int n_stop; /* number of stop texts, which end the answer and are not part of it; they need a
                   tokenizer. The one that is complete first counts; if several end at the same
                   byte, the longest */
    const char *const *stop;
    int64_t chunk; /* maximum number of prompt tokens in one step; 0: gqac chooses. No bit depends
                      on it */
    gqac_generate_callback *on_token; /* may be NULL */
    void *arg;
    double (*clock)(void *arg); /* returns seconds, monotonic; NULL: the system's clock */
    void *clock_arg;
    gqac_logits_callback *on_logits; /* may be NULL */
    void *logits_arg;
    int64_t n_top; /* number of most likely ids that events list, >= 0 */
    /* Drafts, which change no answer: see speculate.h. */
    int64_t speculate;   /* maximum number of drafts in a step, >= 0; 0: none. There are fewer
                            if the logits of a step would take more than 128 MiB, and never more
                            than GQAC_DRAFTS_MOST (speculate.h) */
    gqac_session *draft; /* session of a second program that drafts; NULL: none. It is not of
                            kind "off", and each request of a call has its own */
    gqac_context *draft_context; /* of the second program; requests may share it */
    /* Restricts the text of the answer; NULL: any text. Logits are masked after on_logits has been
     * called. A complete answer that no token can continue ends with GQAC_FINISH_STOP. */
    gqac_constraint *constraint;
    /* Events have no probabilities. No softmax is computed then, and where the settings and the
     * request allow it (gqac_sampling_top; no constraint, no on_logits) a step returns only the
     * most likely ids, so that a device copies no logits, and the context keeps none. The ids are
     * the same. USAGE: n_top is not 0. */
    bool ids_only;
} gqac_generate_request;
/* Sets the defaults: greedy decoding of at most 128 ids, with the end-of-text ids and min_length of
 * the model's settings (text NULL: none). `text` and `prompt` must outlive the request. */
static inline void gqac_generate_request_init(gqac_generate_request *request, const gqac_text *text,
                                              gqac_session *session, const int64_t *prompt,
                                              size_t n_prompt) {
    memset(request, 0, sizeof *request);
    request->size = sizeof *request;
    request->session = session;
    request->prompt = prompt;
    request->n_prompt = n_prompt;
    request->max_new = 128;
    if (text) {
        const gqac_text_settings *settings = gqac_text_get_settings(text);
        request->min_length = settings->min_length;
        request->n_eos = settings->n_eos;
        request->eos = settings->eos;
    }
}

typedef enum gqac_finish {
    GQAC_FINISH_EOS,       /* by an end-of-text id */
    GQAC_FINISH_LENGTH,    /* by max_new, or by the capacity of the session or the model */
    GQAC_FINISH_STOP,      /* by a stop text or a callback, or because the constraint is complete */
    GQAC_FINISH_CANCELLED, /* this and the next only from a scheduler: see schedule.h */
    GQAC_FINISH_FAILED
} gqac_finish;
/* "eos", "length", "stop", "cancelled", "failed" */
GQAC_API const char *gqac_finish_name(gqac_finish finish);

typedef struct gqac_generate_metrics {
    size_t size;
    /* A forward pass is all steps of the request that lead to its next id; the first is the
     * prefill. The clock is read when the call begins, before the first and after the last step of
     * each forward pass, and when the first id is chosen. The requests of a call share steps; each
     * counts the steps in which it is an item. */
    double time_to_first_token_ms;   /* from the start of the call to the first id; 0: no id */
    double decode_tokens_per_second; /* (n_ids - 1) / seconds of all forward passes but the first; 0
                                        if n_ids < 2 */
    size_t n_forwards;               /* forward passes: n_ids minus those that drafts saved */
    const double *forward_ms;        /* [n_forwards] */
    double forward_ms_min, forward_ms_max, forward_ms_mean;
    int64_t reused_tokens;   /* number of prompt tokens whose rows were cached */
    int64_t computed_tokens; /* number of tokens that were computed in this call, repeated ones
                                included */
    int64_t drafted_tokens;  /* drafts among the computed tokens */
    int64_t accepted_tokens; /* drafts that became ids of the answer */
} gqac_generate_metrics;

typedef struct gqac_generation { /* an answer, which owns its lists and texts */
    size_t size;
    size_t n_ids;
    const int64_t *ids; /* the new ids, an end-of-text id included */
    const char *text;   /* NUL-terminated; "" without a tokenizer that can be used */
    size_t length;      /* of text, in bytes */
    gqac_finish finish;
    gqac_generate_metrics metrics;
} gqac_generation;

/* Generates answers to n requests together; all requests have the same `size`. Each answer is the
 * same as if its request were generated alone. The caller frees each results[i] with
 * gqac_generation_free. text NULL: answers have ids but no text. An id that the tokenizer does not
 * have adds no text. When a sequence crosses the LongRoPE threshold, all its rows are computed
 * again. With max_new 0 the model is not run. The context keeps the logits of the last step (but
 * see ids_only); its monitor receives one total for the tokens of all prompts that are not cached.
 * On failure all results are NULL, sessions keep the rows that were cached, and diag->where names
 * the request ("request 2").
 * Errors:
 *   USAGE: a session is NULL, of another program or given twice; `draft` is given without
 *     `draft_context`, or with `speculate` 0; an option is out of range; there are stop texts but
 *     no tokenizer; a `size` is not that of any version of the struct (see options.h);
 *   OUT_OF_RANGE: a prompt is empty, an id is not in the vocabulary, or a number is negative;
 *   CAPACITY: a prompt does not fit, or the memory budget is used up;
 *   INVALID_INPUT: all logits of a row are NaN, a stop text is not UTF-8, or no token of the
 *     vocabulary continues what the constraint demands;
 *   LIMIT: the constraint is too ambiguous;
 *   UNSUPPORTED: the config has a search setting that gqac does not have, or the tokenizer cannot
 *     be used;
 *   NO_MEMORY;
 *   ABORTED: the context's monitor ended the call.
 */
GQAC_API gqac_status gqac_generate(gqac_context *context, const gqac_text *text, int n,
                                   const gqac_generate_request *requests, gqac_generation **results,
                                   gqac_diag *diag);
GQAC_API void gqac_generation_free(gqac_generation *generation);

#ifdef __cplusplus
}
#endif
#endif
