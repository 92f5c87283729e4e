/* Text in and text out of a model: what lies in a model folder beside the graph (genai_config.json,
 * tokenizer.json, the chat template) and the loop that generates.
 *
 *   gqac_text *text;  gqac_session *session;  gqac_generation *said;
 *   gqac_text_open("model folder", GQAC_TEXT_ALL, &text, &diag);
 *   gqac_text_tokenize(text, "Once", 4, true, &ids, &n, &diag);
 *   gqac_session_create(program, NULL, &session, &diag);
 *   gqac_generate_request request;
 *   gqac_generate_request_init(&request, text, session, ids, n);
 *   gqac_generate(context, text, 1, &request, &said, &diag);
 *   puts(said->text);
 *
 * A gqac_text is immutable and may be shared by threads; a session and a stream belong to one
 * thread at a time. Everything here is built on gqac.h alone. Texts are UTF-8; a text that is not
 * is INVALID_INPUT with the offset of the first bad byte. */
#ifndef GQAC_TEXT_H
#define GQAC_TEXT_H

#include <gqac/gqac.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The path of the decoder file of a model. `model` may be a file (copied as it is) or a folder with
 * genai_config.json, whose model.decoder.filename is taken. IO when the folder or its config cannot
 * be read, INVALID_MODEL when the config is wrong or names a file outside of the folder. */
GQAC_API gqac_status gqac_text_model_path(const char *model, char *path, size_t size,
                                          gqac_diag *diag);

/* ---- what lies beside the graph ------------------------------------------ */

/* Which parts to read and check; what is left out is never parsed. */
enum {
    GQAC_TEXT_CONFIG = 1,    /* genai_config.json */
    GQAC_TEXT_TOKENIZER = 2, /* tokenizer.json */
    GQAC_TEXT_TEMPLATE = 4,  /* chat_template.jinja, or chat_template in tokenizer_config.json */
    GQAC_TEXT_ALL = 7
};

typedef struct gqac_text gqac_text;

/* `model` is a folder, an artefact that was compiled from one, or a model file: a file that the
 * genai_config.json beside it names as decoder stands for its folder, any other has no parts. A
 * part that is absent is not an error here but where it is needed, and neither is a tokenizer or
 * template with something that gqac does not have (see the refusals of the settings). IO;
 * INVALID_MODEL; UNSUPPORTED (a config of something that would change results); LIMIT. */
GQAC_API gqac_status gqac_text_open(const char *model, unsigned parts, gqac_text **text,
                                    gqac_diag *diag);
GQAC_API void gqac_text_free(gqac_text *text);

/* Settings of genai_config.json (schema: onnxruntime-genai's config.h). Owned by the text. */
typedef struct gqac_text_settings {
    bool has_config, has_tokenizer, has_template; /* of the parts that were asked for */
    /* A tokenizer or template that is there and has something that gqac does not have, by name: the
       UNSUPPORTED that whatever needs the part fails with; NULL: none. has_... is false then, and
       the file is attached all the same */
    const gqac_diag *tokenizer_refusal, *template_refusal;
    int64_t bos, pad; /* -1: none */
    int n_eos;
    const int64_t *eos;
    int64_t context_length; /* tokens; 0: not stated. KV is never allocated by it */
    int64_t vocab_size;     /* 0: not stated */
    /* search: what generate does by default */
    bool do_sample;
    double temperature, top_p, repetition_penalty;
    int64_t top_k;                  /* 0: all */
    int64_t min_length, max_length; /* tokens of prompt and answer together; 0: not stated */
    const char *unsupported; /* a search setting that gqac_generate does not have and so refuses
                                ("search.num_beams is 4"); NULL: none */
    int n_io_names;          /* for gqac_options: names of inputs and outputs */
    const gqac_io_name *io_names;
} gqac_text_settings;
GQAC_API const gqac_text_settings *gqac_text_get_settings(const gqac_text *text);
/* The files of all parts that exist, as they are, for gqac_options.attachments. */
GQAC_API int gqac_text_attachments(const gqac_text *text, const gqac_attachment **files);

/* ---- tokens -------------------------------------------------------------- */

/* Ids of a text of `length` bytes: normalizer, added tokens, pre-tokenizer, model and, with
 * `special`, the post-processor of tokenizer.json. *ids is freed with gqac_release. USAGE when the
 * model has no tokenizer, here and below UNSUPPORTED when it has one that was refused. A tokenizer
 * may have ids that the model does not have: feeding them is OUT_OF_RANGE. */
GQAC_API gqac_status gqac_text_tokenize(const gqac_text *text, const char *bytes, size_t length,
                                        bool special, int64_t **ids, size_t *n, gqac_diag *diag);
/* The text of ids, always valid UTF-8: bytes that are no character become U+FFFD. With
 * skip_special, special tokens give nothing. *out ends with NUL and is freed with gqac_release.
 * OUT_OF_RANGE for an id that the tokenizer does not have. */
GQAC_API gqac_status gqac_text_detokenize(const gqac_text *text, const int64_t *ids, size_t n,
                                          bool skip_special, char **out, size_t *length,
                                          gqac_diag *diag);

/* Detokenizing one id at a time: all pieces together are what gqac_text_detokenize gives (special
 * tokens skipped), and no piece splits a character. *piece is valid until the next call. */
typedef struct gqac_text_stream gqac_text_stream;
GQAC_API gqac_status gqac_text_stream_create(const gqac_text *text, gqac_text_stream **stream,
                                             gqac_diag *diag);
GQAC_API void gqac_text_stream_free(gqac_text_stream *stream);
GQAC_API gqac_status gqac_text_stream_push(gqac_text_stream *stream, int64_t id, const char **piece,
                                           size_t *length, gqac_diag *diag);
/* What was held back; the stream begins anew. */
GQAC_API gqac_status gqac_text_stream_finish(gqac_text_stream *stream, const char **piece,
                                             size_t *length, gqac_diag *diag);

/* The text of an answer while it grows, cut before the first of the stop texts: the one that is
 * complete first, and of those that end together the longest. USAGE for stop texts without a
 * tokenizer; without stop texts there is no text then. The stop texts outlive the reply. */
typedef struct gqac_reply gqac_reply;
GQAC_API gqac_status gqac_reply_create(const gqac_text *text, int n_stop, const char *const *stop,
                                       gqac_reply **reply, gqac_diag *diag);
GQAC_API void gqac_reply_free(gqac_reply *reply);
GQAC_API gqac_status gqac_reply_push(gqac_reply *reply, int64_t id, gqac_diag *diag);
/* Behind the last id: what was held back is certain now. */
GQAC_API gqac_status gqac_reply_finish(gqac_reply *reply, gqac_diag *diag);
GQAC_API bool gqac_reply_stopped(const gqac_reply *reply); /* a stop text was there */
/* What became certain since the last call; valid until the next one that changes the reply. */
GQAC_API const char *gqac_reply_tell(gqac_reply *reply, size_t *length);
/* The whole text, a NUL behind it. */
GQAC_API const char *gqac_reply_text(const gqac_reply *reply, size_t *length);

/* Renders the chat template (Jinja as transformers runs it: trim_blocks, lstrip_blocks,
 * loopcontrols, tojson, raise_exception, strftime_now). `variables` is a JSON object, usually
 * {"messages": [{"role": ..., "content": ...}], "add_generation_prompt": true, "tools": [...]};
 * the special tokens of tokenizer_config.json are given besides (bos_token, eos_token, ...). As in
 * transformers, tools and documents are none and add_generation_prompt false when they are left
 * out, and of a message's reasoning_content, thinking and reasoning, the first that is given
 * becomes reasoning_content, and thinking too unless that is there. *out is freed with
 * gqac_release. USAGE when the model has no template, UNSUPPORTED when it was refused,
 * INVALID_INPUT for what the template itself raises or for JSON that is wrong, LIMIT when it does
 * not end. */
GQAC_API gqac_status gqac_text_render(const gqac_text *text, const char *variables, char **out,
                                      size_t *length, gqac_diag *diag);

/* ---- forward ------------------------------------------------------------- */

/* The three ways through a model; logits come from gqac_context_logits(context, 0, ...), of the
 * rows that gqac_context_set_logits chose, and are the same bits for the same tokens whichever way
 * was taken. */

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

/* How the next id is chosen from a row of logits. In this order: repetition penalty, once for each
 * id of prompt and answer (logit / p if > 0, else * p; Keskar et al. 2019), temperature, top-k,
 * top-p (the smallest set of most likely ids whose share of what top-k left reaches p), min-p (ids
 * at least min_p times as likely as the likeliest); ties go to the lowest id. At least one id
 * always remains. The kept ids, in ascending order, divide [0, 1) by their probabilities, and the
 * draw is a point there: a function of (seed, request, position) alone (Philox4x32-10, key from
 * seed, counter from position and request; position is the place the id will have), not of batch
 * mates, splits or threads. A logit that is NaN is never chosen; INVALID_INPUT when all are. The
 * penalty counts for the likeliest id too. */
typedef struct gqac_sampling {
    bool sample;               /* false: the likeliest id */
    double temperature;        /* >= 0; 0: the likeliest id */
    int64_t top_k;             /* >= 0; 0: all */
    double top_p;              /* (0, 1]; 1: all */
    double min_p;              /* [0, 1]; 0: all */
    double repetition_penalty; /* > 0; 1: none */
    uint64_t seed, request;
} gqac_sampling;

/* One choice as gqac_generate makes it, for loops of one's own: the id behind `history` by a row of
 * logits [vocabulary]. The place of the draw is n_history. *probability, which may be NULL, is that
 * of the id by softmax of the logits. Each call takes memory for the time it runs, 24 bytes a
 * logit. USAGE names the option that is out of range; UNSUPPORTED a vocabulary of none or of 2^31
 * and more; INVALID_INPUT when no logit is a number; NO_MEMORY. */
GQAC_API gqac_status gqac_sample(const gqac_sampling *options, const float *logits,
                                 int64_t vocabulary, const int64_t *history, size_t n_history,
                                 int64_t *id, double *probability, gqac_diag *diag);

/* A conversation that generation goes on with: a sequence and the ids whose rows it holds. A new
 * prompt reuses the rows of the longest common prefix; its last id is always fed. Every answer is
 * what a fresh session, and kind "off", would give. */
typedef struct gqac_session gqac_session;
typedef struct gqac_session_options {
    const char *kv; /* cache kind; NULL: "contiguous"; "off": a forward over all tokens each time */
    int64_t context; /* most tokens of prompt and answer; 0: no bound but the model's */
} gqac_session_options;
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

/* Told after each new id. */
typedef struct gqac_generate_event {
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
} gqac_generate_event;
/* false ends this request with GQAC_FINISH_STOP after this id. It must not use the context or the
 * sessions of the call, but may read gqac_session_ids. */
typedef bool gqac_generate_callback(void *arg, const gqac_generate_event *event);

typedef struct gqac_generate_request {
    gqac_session *session; /* a different one for each request of a call */
    const int64_t *prompt; /* all ids of the conversation so far, n_prompt >= 1 */
    size_t n_prompt;
    int64_t max_new;    /* >= 0 new ids at most */
    int64_t min_length; /* no end-of-text id before so many ids in all; 0: none */
    gqac_sampling sampling;
    int n_eos; /* ids that end the text */
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
} gqac_generate_request;
/* Greedy, 128 new ids, and end-of-text ids and min_length of the model's settings; text may be
 * NULL. */
GQAC_API void gqac_generate_request_init(gqac_generate_request *request, const gqac_text *text,
                                         gqac_session *session, const int64_t *prompt,
                                         size_t n_prompt);

typedef enum gqac_finish {
    GQAC_FINISH_EOS,    /* an end-of-text id */
    GQAC_FINISH_LENGTH, /* max_new, or the room of session or model */
    GQAC_FINISH_STOP    /* a stop text, or the callback */
} gqac_finish;
GQAC_API const char *gqac_finish_name(gqac_finish finish); /* "eos", "length", "stop" */

typedef struct gqac_generate_metrics {
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
    size_t n_ids;
    const int64_t *ids; /* the new ids, an end-of-text id included */
    const char *text;   /* NUL-terminated; "" without a tokenizer, or with one that was refused */
    size_t length;
    gqac_finish finish;
    gqac_generate_metrics metrics;
} gqac_generation;

/* Generates for n requests at once; results[i] is freed with gqac_generation_free. The answer of a
 * request is the same alone and in any company. text may be NULL: ids only. A LongRoPE threshold
 * that is crossed is recomputed here. An id that the tokenizer does not have gives no text. With
 * max_new 0 the model is not run. The context keeps the logits of the last step. On failure no
 * result is returned; sessions keep what was cached. USAGE, OUT_OF_RANGE, CAPACITY (the prompt does
 * not fit), INVALID_INPUT (no logit is a number), UNSUPPORTED. */
GQAC_API gqac_status gqac_generate(gqac_context *context, const gqac_text *text, int n,
                                   const gqac_generate_request *requests, gqac_generation **results,
                                   gqac_diag *diag);
GQAC_API void gqac_generation_free(gqac_generation *generation);

#ifdef __cplusplus
}
#endif
#endif
