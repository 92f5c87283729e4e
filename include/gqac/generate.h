/* Three ways through a model, and the loop that generates. */
#ifndef GQAC_GENERATE_H
#define GQAC_GENERATE_H

#include <gqac/sequence.h>
#include <gqac/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- forward ------------------------------------------------------------- */

/* The three ways through a model. Logits come from gqac_context_logits(context, 0, ...): of every
 * token of the call, or of the last where the model gives no other (gqac_program_last_logits). They
 * have the same bits for the same tokens whichever way was taken. */

/* Forward over all n ids, no cache kept. */
GQAC_API gqac_status gqac_forward(gqac_context *context, const gqac_program *program,
                                  const int64_t *ids, int64_t n, gqac_diag *diag);
/* The same through a stateless program: a model without a cache, which takes input_ids and may take
 * attention_mask and position_ids, and gives the output logits. *logits is a view [1,n,V], or
 * [1,1,V] where the model gives the last row alone, in the type of the model, valid until the
 * context's next call. OUT_OF_RANGE for n < 1, UNSUPPORTED for other inputs, no output logits or
 * one of another shape, USAGE for a program with sequences. */
GQAC_API gqac_status gqac_forward_whole(gqac_context *context, const gqac_program *program,
                                        const int64_t *ids, int64_t n, gqac_tensor *logits,
                                        gqac_diag *diag);
/* Replaces what the sequence holds by n ids. When it fails, the sequence is empty, or, for n < 1,
 * as it was. */
GQAC_API gqac_status gqac_prefill(gqac_context *context, gqac_sequence *sequence,
                                  const int64_t *ids, int64_t n, gqac_diag *diag);
/* Appends one id. OUT_OF_RANGE unless `position` is the number of tokens the sequence holds. When
 * it fails, the sequence is as it was. */
GQAC_API gqac_status gqac_decode(gqac_context *context, gqac_sequence *sequence, int64_t id,
                                 int64_t position, gqac_diag *diag);

/* ---- generation ---------------------------------------------------------- */

typedef struct gqac_logit_bias {
    int64_t id;
    double bias; /* finite, or -INFINITY: the id is never chosen */
} gqac_logit_bias;

/* How the next id is chosen from a row of logits. In this order: logit bias, which is added to the
 * logit of its id; repetition penalty, once for each id of prompt and answer (logit / p if it
 * is positive, logit times p otherwise; Keskar et al. 2019); logit - (count * frequency penalty +
 * presence penalty) for each id that the answer alone has `count` times (as OpenAI's API defines
 * them); temperature, top-k, top-p (the smallest set of most likely ids whose share of what top-k
 * left reaches p), min-p (ids at least min_p times as likely as the likeliest); ties go to the
 * lowest id. At least one id always remains. The kept ids, in ascending order, divide [0, 1) by
 * their probabilities, and the draw is a point there: a function of (seed, request, position) alone
 * (Philox4x32-10, key from seed, counter from position and request; position is the place the id
 * will have), not of batch mates, splits or threads. A logit that is NaN is never chosen;
 * INVALID_INPUT when all are. The penalty counts for the likeliest id too. */
typedef struct gqac_sampling {
    size_t size;
    bool sample;               /* false: the likeliest id */
    double temperature;        /* >= 0; 0: the likeliest id */
    int64_t top_k;             /* >= 0; 0: all */
    double top_p;              /* (0, 1]; 1: all */
    double min_p;              /* [0, 1]; 0: all */
    double repetition_penalty; /* > 0; 1: none */
    uint64_t seed, request;
    double presence_penalty, frequency_penalty; /* finite; 0: none */
    size_t n_prompt; /* of gqac_sample: ids at the beginning of the history that are no answer;
                        gqac_generate puts the length of its prompt */
    int n_bias;
    const gqac_logit_bias *bias; /* OUT_OF_RANGE for an id that the model does not have */
} gqac_sampling;
/* The likeliest id; with `sample`, by the model's own probabilities. */
static inline void gqac_sampling_init(gqac_sampling *sampling) {
    memset(sampling, 0, sizeof *sampling);
    sampling->size = sizeof *sampling;
    sampling->temperature = sampling->top_p = sampling->repetition_penalty = 1;
}

/* One choice as gqac_generate makes it, for your own loop: the id that follows `history`, by one
 * row of logits [vocabulary]. The place of the draw is n_history. *probability, which may be NULL,
 * is that of the id by softmax of the logits. Each call takes memory for the time it runs, 24 bytes
 * a logit. USAGE names the option that is out of range; UNSUPPORTED a vocabulary of none or of 2^31
 * and more; INVALID_INPUT when no logit is a number; NO_MEMORY. */
GQAC_API gqac_status gqac_sample(const gqac_sampling *options, const float *logits,
                                 int64_t vocabulary, const int64_t *history, size_t n_history,
                                 int64_t *id, double *probability, gqac_diag *diag);

/* A conversation that generation goes on with: a sequence and the ids whose rows it holds. A new
 * prompt reuses the rows of the longest common prefix; its last id is always fed. Every answer is
 * what a fresh session, and kind "off", would give. */
typedef struct gqac_session gqac_session;
typedef struct gqac_session_options {
    size_t size;
    const char *kv; /* cache kind; NULL: "contiguous"; "off": a forward over all tokens each time */
    int64_t context; /* most tokens of prompt and answer; 0: no bound but the model's */
} gqac_session_options;
static inline void gqac_session_options_init(gqac_session_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
}
/* The program outlives the session. USAGE for an unknown kind, with the known ones. Kind "off"
 * takes a stateless program too, when gqac_forward_whole does. */
GQAC_API gqac_status gqac_session_create(const gqac_program *program,
                                         const gqac_session_options *options,
                                         gqac_session **session, gqac_diag *diag);
GQAC_API void gqac_session_free(gqac_session *session);
/* "contiguous", ..., "off" */
GQAC_API const char *gqac_session_kind(const gqac_session *session);
/* The ids whose rows are cached; none with kind "off". */
GQAC_API const int64_t *gqac_session_ids(const gqac_session *session, size_t *n);

typedef struct gqac_scored_id {
    int64_t id;
    double log_probability; /* natural logarithm of the softmax of the model's own logits */
} gqac_scored_id;

/* Told after each new id. */
typedef struct gqac_generate_event {
    size_t size;
    int request;  /* index in the call */
    int64_t step; /* from 1 */
    int64_t id;
    double probability; /* of the id by softmax of the model's own logits, 0 to 1 */
    const char *text;   /* what became certain with this id: whole characters, may be empty; what
                           could be the beginning of a stop text is held back. The event that is
                           known to be the last (all but the end of the model's own room, and what
                           the callback itself ends) gives all that is left */
    size_t length;      /* bytes; no NUL follows them */
    const char *phase;  /* "prefill": logits of the prompt; "decode" */
    bool eos;           /* the id is an end-of-text id; it gives no text of its own */
    double log_probability;    /* of the id, as in gqac_scored_id */
    int n_top;                 /* those that the request asks for, or the whole vocabulary */
    const gqac_scored_id *top; /* the likeliest ids before any bias, penalty or hook, likeliest
                                  first; valid during the call */
} gqac_generate_event;
/* false ends this request with GQAC_FINISH_STOP after this id. It must not use the context or the
 * sessions of the call, but may read gqac_session_ids. */
typedef bool gqac_generate_callback(void *arg, const gqac_generate_event *event);

/* Called before each id is chosen, with a copy of the last row of logits, which it may change: an
 * id whose logit becomes NaN is not chosen, one of -INFINITY only when no other is left. ids:
 * prompt and answer so far. Events report the probabilities of the model's own logits. false ends
 * this request with GQAC_FINISH_STOP, without a further id. It must not use the context or the
 * sessions of the call. */
typedef bool gqac_logits_callback(void *arg, float *logits, int64_t vocabulary, const int64_t *ids,
                                  size_t n_ids);

typedef struct gqac_generate_request {
    size_t size;
    gqac_session *session; /* a different one for each request of a call */
    const int64_t *prompt; /* all ids of the conversation so far, n_prompt >= 1 */
    size_t n_prompt;
    int64_t max_new;               /* >= 0 new ids at most */
    int64_t min_length;            /* no end-of-text id before so many ids in all; 0: none */
    const gqac_sampling *sampling; /* NULL: the likeliest id */
    int n_eos;                     /* ids that end the text */
    const int64_t *eos;
    int n_stop; /* texts that end the text and are not part of it; need a tokenizer. The first one
                   is the one complete first, and of those that end together the longest */
    const char *const *stop;
    int64_t chunk;                    /* longest piece of prefill; 0: gqac's choice. No bit depends
                                         on it */
    gqac_generate_callback *on_token; /* may be NULL */
    void *arg;
    double (*clock)(void *arg); /* seconds, monotonic; NULL: the system's */
    void *clock_arg;
    gqac_logits_callback *on_logits; /* may be NULL */
    void *logits_arg;
    int64_t n_top; /* >= 0 likeliest ids that events list */
} gqac_generate_request;
/* Greedy, 128 new ids, and end-of-text ids and min_length of the model's settings; text may be
 * NULL. */
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
    GQAC_FINISH_LENGTH, /* max_new, or the room of session or model */
    GQAC_FINISH_STOP    /* a stop text, or the callback */
} gqac_finish;
GQAC_API const char *gqac_finish_name(gqac_finish finish); /* "eos", "length", "stop" */

typedef struct gqac_generate_metrics {
    size_t size;
    /* The clock is read once at the call; before the first step and after the last step of each
     * forward; and once more when the first id is chosen. Requests of one call share steps, so
     * each counts the whole of those it takes part in. */
    double time_to_first_token_ms;   /* from the call to the first id; 0 without one */
    double decode_tokens_per_second; /* (n - 1) / sum of forwards 2..n; 0 when n < 2 */
    size_t n_forwards;               /* = ids; the first is the whole prefill */
    const double *forward_ms;        /* each of them */
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

/* Generates for n requests of the same size at once; results[i] is freed with gqac_generation_free.
 * The answer of a request is the same alone and in any company. text may be NULL: ids only. A
 * LongRoPE threshold that is crossed is recomputed here. An id that the tokenizer does not have
 * gives no text. With max_new 0 the model is not run. The context keeps the logits of the last
 * step. Its monitor hears of the tokens of all prompts, less those that sessions hold, as one. On
 * failure no result is returned; sessions keep what was cached. USAGE, OUT_OF_RANGE, CAPACITY (the
 * prompt does not fit, or the memory budget is used up), INVALID_INPUT (no logit is a number),
 * UNSUPPORTED, ABORTED. */
GQAC_API gqac_status gqac_generate(gqac_context *context, const gqac_text *text, int n,
                                   const gqac_generate_request *requests, gqac_generation **results,
                                   gqac_diag *diag);
GQAC_API void gqac_generation_free(gqac_generation *generation);

#ifdef __cplusplus
}
#endif
#endif
