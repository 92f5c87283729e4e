/* Forward, prefill and decode of one text, sampling, and the loop that generates. */
#ifndef GQAC_GENERATE_H
#define GQAC_GENERATE_H

#include <gqac/sequence.h>
#include <gqac/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- forward ------------------------------------------------------------- */

/* Forward, prefill and decode: each is one step. Their logits are gqac_context_logits(context, 0,
 * ...), [n, vocabulary] for the n ids of the call, or [1, vocabulary] where the model returns those
 * of the last token only (gqac_program_last_logits). A token has the same bits in all three.
 * OUT_OF_RANGE: n < 1, or an id that the model does not have; else as gqac_step. */

/* Computes n ids without a past; no rows are kept. The program is one for sequences. */
GQAC_API gqac_status gqac_forward(gqac_context *context, const gqac_program *program,
                                  const int64_t *ids, int64_t n, gqac_diag *diag);
/* The same with a stateless program of a model without a cache, whose inputs are input_ids and
 * possibly attention_mask and position_ids, all i64 [B,S], and which has an output logits. *logits
 * is a view [1,n,V], or [1,1,V] where the model returns the last row only, in the model's type,
 * valid until the next call with the context. OUT_OF_RANGE: n < 1; UNSUPPORTED: other inputs, no
 * output logits, or one of another shape; USAGE: a program for sequences; else as gqac_run. */
GQAC_API gqac_status gqac_forward_whole(gqac_context *context, const gqac_program *program,
                                        const int64_t *ids, int64_t n, gqac_tensor *logits,
                                        gqac_diag *diag);
/* Rewinds the sequence to length 0 and appends n ids. On failure the sequence is empty, or, for
 * n < 1, unchanged. */
GQAC_API gqac_status gqac_prefill(gqac_context *context, gqac_sequence *sequence,
                                  const int64_t *ids, int64_t n, gqac_diag *diag);
/* Appends one id. OUT_OF_RANGE: `position` is not the length of the sequence. On failure the
 * sequence is unchanged. */
GQAC_API gqac_status gqac_decode(gqac_context *context, gqac_sequence *sequence, int64_t id,
                                 int64_t position, gqac_diag *diag);

/* ---- generation ---------------------------------------------------------- */

typedef struct gqac_logit_bias {
    int64_t id;
    double bias; /* finite, or -INFINITY: the id is never chosen */
} gqac_logit_bias;

/* How the next id is chosen from a row of logits. These are applied in this order:
 *
 *   logit bias          is added to the logit of its id
 *   repetition penalty  p, once for each id of prompt and answer: a positive logit becomes
 *                       logit / p, any other logit * p (Keskar et al. 2019)
 *   frequency, presence penalty  for each id that is `count` > 0 times in the answer:
 *                       logit - (count * frequency penalty + presence penalty), as in OpenAI's API
 *   temperature         the probabilities are softmax(logits / temperature)
 *   top-k               keeps the k likeliest ids
 *   top-p               of these keeps the fewest likeliest ids whose probabilities add up to
 *                       >= top_p of the sum of all that are left
 *   min-p               of these keeps the ids that are at least min_p times as likely as the
 *                       likeliest
 *
 * Ties go to the lowest id, and at least one id remains. The remaining ids, in ascending order,
 * divide [0, 1) by their probabilities; the draw is a point in it. The draw depends on seed,
 * request and the position of the new id only (Philox4x32-10 of Salmon et al. 2011: the seed is the
 * key, position and request are the counter), not on other requests, splits or threads. Without
 * `sample` the likeliest id is chosen, after bias and penalties. An id whose logit is NaN is never
 * chosen; INVALID_INPUT when all are. */
typedef struct gqac_sampling {
    size_t size;
    bool sample;                                /* false: the likeliest id */
    double temperature;                         /* >= 0; 0: the likeliest id */
    int64_t top_k;                              /* >= 0; 0: all */
    double top_p;                               /* (0, 1]; 1: all */
    double min_p;                               /* [0, 1]; 0: all */
    double repetition_penalty;                  /* > 0; 1: none */
    uint64_t seed, request;                     /* of the draws */
    double presence_penalty, frequency_penalty; /* finite; 0: none */
    size_t n_prompt; /* for gqac_sample: ids at the beginning of the history that are not part of
                        the answer; gqac_generate uses the length of its prompt instead */
    int n_bias;
    const gqac_logit_bias *bias; /* OUT_OF_RANGE for an id that the model does not have */
} gqac_sampling;
/* Sets the defaults: the likeliest id; when the caller then sets `sample`, an id drawn by the
 * model's probabilities. */
static inline void gqac_sampling_init(gqac_sampling *sampling) {
    memset(sampling, 0, sizeof *sampling);
    sampling->size = sizeof *sampling;
    sampling->temperature = sampling->top_p = sampling->repetition_penalty = 1;
}

/* Chooses the id after `history` as gqac_generate does, for a loop of the caller's own, by one row
 * of logits [vocabulary]. The position of the draw is n_history. *probability is that of the id by
 * softmax of the logits; NULL: not wanted. options NULL: defaults. Allocates about 25 bytes a logit
 * during the call. USAGE: an option out of range; OUT_OF_RANGE: the id of a bias; UNSUPPORTED: not
 * 1 <= vocabulary < 2^31; INVALID_INPUT: no logit is a number; NO_MEMORY. */
GQAC_API gqac_status gqac_sample(const gqac_sampling *options, const float *logits,
                                 int64_t vocabulary, const int64_t *history, size_t n_history,
                                 int64_t *id, double *probability, gqac_diag *diag);

/* A sequence for gqac_generate, with the ids of its tokens. Of a new prompt the longest prefix that
 * the sequence has already is not computed again; the last id always is. Answers are the same as
 * with a new session, and as with kind "off". */
typedef struct gqac_session gqac_session;
typedef struct gqac_session_options {
    size_t size;
    const char *kv; /* cache kind; NULL: "contiguous"; "off": a forward over all tokens each time */
    int64_t context; /* maximum of tokens of prompt and answer; 0: that of the model */
} gqac_session_options;
static inline void gqac_session_options_init(gqac_session_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}
/* Creates an empty session; options NULL: defaults; the caller frees *session. The program must
 * outlive it; it is one for sequences, or, with kind "off", also a stateless one that
 * gqac_forward_whole can run. USAGE: an unknown kind; OUT_OF_RANGE: a negative context;
 * UNSUPPORTED: inputs or outputs of a stateless program; NO_MEMORY. */
GQAC_API gqac_status gqac_session_create(const gqac_program *program,
                                         const gqac_session_options *options,
                                         gqac_session **session, gqac_diag *diag);
GQAC_API void gqac_session_free(gqac_session *session);
/* "contiguous" or "off"; never NULL. */
GQAC_API const char *gqac_session_kind(const gqac_session *session);
/* The ids whose rows are cached, *n of them; none with kind "off". Owned by the session, valid
 * until the next call with it. */
GQAC_API const int64_t *gqac_session_ids(const gqac_session *session, size_t *n);

typedef struct gqac_scored_id {
    int64_t id;
    double log_probability; /* natural logarithm of the softmax of the model's own logits */
} gqac_scored_id;

/* What gqac_generate reports after each new id. Pointers are valid during the callback only. */
typedef struct gqac_generate_event {
    size_t size;
    int request;  /* index in the call */
    int64_t step; /* from 1 */
    int64_t id;
    double probability; /* of the id by softmax of the model's own logits, 0 to 1 */
    const char *text;  /* the text that this id completes: whole characters, possibly none. What may
                          be the beginning of a stop text is held back until it is known. The last
                          event has all that was held back, unless the answer ends where the model
                          has no more positions, or by the callback */
    size_t length;     /* of text, in bytes; no NUL follows */
    const char *phase; /* "prefill": chosen by logits of the prompt; "decode" */
    bool eos;          /* the id is an end-of-text id; it has no text of its own */
    double log_probability;    /* of the id, as in gqac_scored_id */
    int n_top;                 /* n_top of the request, at most the size of the vocabulary */
    const gqac_scored_id *top; /* the likeliest ids by the model's own logits, likeliest first */
} gqac_generate_event;
/* Returns false to end this request with GQAC_FINISH_STOP after this id. It must not use the
 * context or the sessions of the call, but may read gqac_session_ids. */
typedef bool gqac_generate_callback(void *arg, const gqac_generate_event *event);

/* Called before each id is chosen, with a copy of the last row of logits [vocabulary], which it may
 * change: an id with the logit NaN is not chosen, one with -INFINITY only when no other remains.
 * `ids` are prompt and answer so far. Events still report the model's own logits. Returns false to
 * end this request with GQAC_FINISH_STOP, without a further id. It must not use the context or the
 * sessions of the call. */
typedef bool gqac_logits_callback(void *arg, float *logits, int64_t vocabulary, const int64_t *ids,
                                  size_t n_ids);

typedef struct gqac_generate_request {
    size_t size;
    gqac_session *session; /* a different one for each request of a call */
    const int64_t *prompt; /* all ids of the conversation so far, n_prompt >= 1 */
    size_t n_prompt;
    int64_t max_new;               /* >= 0 new ids at most */
    int64_t min_length;            /* ids of prompt and answer before an end-of-text id may come */
    const gqac_sampling *sampling; /* NULL: the likeliest id */
    int n_eos;                     /* ids that end the text */
    const int64_t *eos;
    int n_stop; /* texts that end the answer and are not part of it; they need a tokenizer. The one
                   that is complete first counts, and of those that end together the longest */
    const char *const *stop;
    int64_t chunk;                    /* maximum of tokens of a prompt in one step; 0: gqac's
                                         choice. No bit depends on it */
    gqac_generate_callback *on_token; /* may be NULL */
    void *arg;
    double (*clock)(void *arg); /* seconds, monotonic; NULL: the system's */
    void *clock_arg;
    gqac_logits_callback *on_logits; /* may be NULL */
    void *logits_arg;
    int64_t n_top; /* >= 0 likeliest ids that events list */
} gqac_generate_request;
/* Defaults: the likeliest ids, 128 of them, and the end-of-text ids and min_length of the model's
 * settings (text NULL: none). `text` and `prompt` must outlive the request. */
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
    GQAC_FINISH_EOS,    /* an end-of-text id */
    GQAC_FINISH_LENGTH, /* max_new, or the capacity of session or model */
    GQAC_FINISH_STOP    /* a stop text, or the callback */
} gqac_finish;
GQAC_API const char *gqac_finish_name(gqac_finish finish); /* "eos", "length", "stop" */

typedef struct gqac_generate_metrics {
    size_t size;
    /* A forward is the steps between two ids: the first one is the prefill. The clock is read when
     * the call begins, before the first and after the last step of each forward, and when the first
     * id is chosen. Requests of one call share steps; each counts those in which it is an item. */
    double time_to_first_token_ms;   /* from the call to the first id; 0 without one */
    double decode_tokens_per_second; /* (n - 1) / sum of forwards 2..n; 0 when n < 2 */
    size_t n_forwards;               /* the number of ids */
    const double *forward_ms;        /* [n_forwards] */
    double forward_ms_min, forward_ms_max, forward_ms_mean;
    int64_t reused_tokens;   /* prompt tokens whose rows were cached */
    int64_t computed_tokens; /* tokens fed to the model in this call, those fed again included */
} gqac_generate_metrics;

typedef struct gqac_generation {
    size_t size;
    size_t n_ids;
    const int64_t *ids; /* the new ids, an end-of-text id included */
    const char *text;   /* NUL-terminated; "" without a tokenizer, or with one that was refused */
    size_t length;
    gqac_finish finish;
    gqac_generate_metrics metrics;
} gqac_generation;

/* Generates answers to n requests together; all requests have the same `size`. The answer to a
 * request is the same as it would be alone. The caller frees each results[i] with
 * gqac_generation_free. text NULL: answers have ids but no text. An id that the tokenizer does not
 * have has no text. Where the LongRoPE threshold is crossed, all rows are computed again. With
 * max_new 0 the model is not run. The context keeps the logits of the last step; its monitor
 * reports the tokens of all prompts that are not cached as one total. On failure all results are
 * NULL, and sessions keep what was cached; the diag names the request. USAGE: a session that is
 * NULL, of another program or given twice, an option out of range, stop texts without a tokenizer,
 * an impossible size; OUT_OF_RANGE: an empty prompt, ids, negative numbers; CAPACITY: the prompt
 * does not fit, or the memory budget is used up; INVALID_INPUT: no logit is a number, or a stop
 * text is not UTF-8; UNSUPPORTED: a search setting of the config, or a tokenizer that was refused;
 * NO_MEMORY; ABORTED. */
GQAC_API gqac_status gqac_generate(gqac_context *context, const gqac_text *text, int n,
                                   const gqac_generate_request *requests, gqac_generation **results,
                                   gqac_diag *diag);
GQAC_API void gqac_generation_free(gqac_generation *generation);

#ifdef __cplusplus
}
#endif
#endif
