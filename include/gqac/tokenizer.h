/* What lies in a model folder beside the graph: settings, tokenizer and chat template. */
#ifndef GQAC_TOKENIZER_H
#define GQAC_TOKENIZER_H

#include <gqac/options.h>
#include <gqac/program.h>

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
 * genai_config.json beside it, or in the folder above, names as decoder stands for that folder, any
 * other has no parts. A
 * part that is absent is not an error here but where it is needed, and neither is a tokenizer or
 * template with something that gqac does not have (see the refusals of the settings). IO;
 * INVALID_MODEL; UNSUPPORTED (a config of something that would change results); LIMIT. */
GQAC_API gqac_status gqac_text_open(const char *model, unsigned parts, gqac_text **text,
                                    gqac_diag *diag);
GQAC_API void gqac_text_free(gqac_text *text);

/* Program and text of a model in one call: the decoder file that gqac_text_model_path finds, opened
 * with the names that genai_config.json gives to inputs and outputs (unless the options have names)
 * and the parts that gqac_text_open would read. `text` may be NULL: only the config is read. Either
 * both are made or none. Errors are those of gqac_text_model_path, gqac_text_open and
 * gqac_program_open; USAGE: the options hold a model in memory (gqac_options.bytes). */
GQAC_API gqac_status gqac_model_open(const char *model, const gqac_options *options, unsigned parts,
                                     gqac_program **program, gqac_text **text, gqac_diag *diag);

/* Settings of genai_config.json (schema: onnxruntime-genai's config.h). Owned by the text. */
typedef struct gqac_text_settings {
    size_t size;
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
typedef struct gqac_tokenize_options {
    size_t size;
    bool special; /* with the ids of the post-processor (beginning of text, ...) */
    bool plain;   /* special tokens that the text spells ("<|im_end|>") are text like any other: for
                     what users wrote, so that it cannot end or begin a turn */
} gqac_tokenize_options;
static inline void gqac_tokenize_options_init(gqac_tokenize_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
    options->special = true;
}
/* gqac_text_tokenize with more to choose; options NULL: as gqac_tokenize_options_init sets them. */
GQAC_API gqac_status gqac_text_tokenize_with(const gqac_text *text, const char *bytes,
                                             size_t length, const gqac_tokenize_options *options,
                                             int64_t **ids, size_t *n, gqac_diag *diag);
/* The bytes that an id stands for in the middle of a text, which need not be whole characters:
 * those of byte tokens and of byte-level tokens as they are; a special token gives what it is
 * spelled as, and *special, which may be NULL, is true. For tables of a whole vocabulary, as
 * grammars need them. *bytes ends with NUL and is freed with gqac_release. OUT_OF_RANGE for an id
 * that the tokenizer does not have. */
GQAC_API gqac_status gqac_text_token_bytes(const gqac_text *text, int64_t id, char **bytes,
                                           size_t *length, bool *special, gqac_diag *diag);
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

#ifdef __cplusplus
}
#endif
#endif
