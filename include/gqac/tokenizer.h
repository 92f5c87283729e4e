/* The files of a model folder beside the graph: settings, tokenizer and chat template. */
#ifndef GQAC_TOKENIZER_H
#define GQAC_TOKENIZER_H

#include <gqac/options.h>
#include <gqac/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the path of the model file to `path`, which has a capacity of `size` bytes: `model` itself
 * if it is a file; if it is a folder, model.decoder.filename of its genai_config.json. IO: the
 * folder or its config cannot be read; INVALID_MODEL: the config is wrong, the path is too long, or
 * the file, after links are followed, is outside the folder. (Here and below, links into the
 * Hugging Face cache that the folder is part of are allowed.) */
GQAC_API gqac_status gqac_text_model_path(const char *model, char *path, size_t size,
                                          gqac_diag *diag);

/* ---- the files beside the graph ------------------------------------------ */

/* The parts to read and check. Files of other parts are not parsed. */
enum {
    GQAC_TEXT_CONFIG = 1,    /* genai_config.json, generation_config.json, config.json */
    GQAC_TEXT_TOKENIZER = 2, /* tokenizer.json */
    GQAC_TEXT_TEMPLATE = 4,  /* chat_template.jinja, or chat_template in tokenizer_config.json */
    GQAC_TEXT_ALL = 7
};

/* The settings, tokenizer and chat template of a model. Immutable; threads may share it. */
typedef struct gqac_text gqac_text;

/* Reads the parts of a model; the caller frees *text. `model` is a folder, an artefact that was
 * compiled from one, or a model file. A model file gets the parts of its own folder, or of the
 * folder above, if the genai_config.json there names the file as decoder. Where there is no such
 * config, the other files are those beside the file, or beside its folder if that is called `onnx`,
 * whichever place has a tokenizer.json or a generation_config.json. Any other model file has no
 * parts. If a part is missing, or if gqac cannot run a tokenizer or template (see the refusals in
 * gqac_text_settings), this call succeeds and calls that need the part fail. IO: a file cannot be
 * read; INVALID_MODEL: its content is wrong, or it is a link that leads out of the folder;
 * UNSUPPORTED: the config has a setting that would change results; LIMIT: a file exceeds a safety
 * limit; NO_MEMORY. */
GQAC_API gqac_status gqac_text_open(const char *model, unsigned parts, gqac_text **text,
                                    gqac_diag *diag);
/* The same with limits of the caller (NULL: the defaults): template_steps holds for each rendering
 * of the chat template. USAGE: a limit is out of range. */
GQAC_API gqac_status gqac_text_open_within(const char *model, unsigned parts,
                                           const gqac_limits *limits, gqac_text **text,
                                           gqac_diag *diag);
GQAC_API void gqac_text_free(gqac_text *text);

/* Opens the program and the text of a model in one call: the model file is that of
 * gqac_text_model_path, its inputs and outputs are renamed as genai_config.json says (unless the
 * options have names), and the parts are those of gqac_text_open. `text` NULL: only the config is
 * read. The caller frees both; on failure neither is created. Errors are those of
 * gqac_text_model_path, gqac_text_open and gqac_program_open; USAGE: the options have a model in
 * memory (gqac_options.bytes). */
GQAC_API gqac_status gqac_model_open(const char *model, const gqac_options *options, unsigned parts,
                                     gqac_program **program, gqac_text **text, gqac_diag *diag);

/* The ids that the config of a model forbids or forces: bad_words_ids, suppress_tokens,
 * begin_suppress_tokens, no_repeat_ngram_size, min_length, min_new_tokens, forced_bos_token_id,
 * forced_eos_token_id and forced_decoder_ids of generation_config.json, or, if there is no such
 * file, of config.json. They have the same meaning as in Hugging Face's transformers. */
typedef struct gqac_token_rules gqac_token_rules;
/* Returns the SHA-256 of these fields of the config, 64 hex digits and a NUL; the text belongs to
 * the rules.
 * For `rules` NULL it returns "". */
GQAC_API const char *gqac_token_rules_digest(const gqac_token_rules *rules);
/* Returns an id that the rules forbid and that a vocabulary of this size does not have, a sign that
 * the config is that of another model; -1: none. */
GQAC_API int64_t gqac_token_rules_beyond(const gqac_token_rules *rules, int64_t vocabulary);

/* Settings of genai_config.json (schema: onnxruntime-genai's config.h), under its names. Their
 * lists and texts belong to the gqac_text. */
typedef struct gqac_text_settings {
    size_t size;
    bool has_config, has_tokenizer, has_template; /* of the parts that were read */
    /* Why a tokenizer or template that exists cannot be used: the UNSUPPORTED error of the calls
     * that need it. Its has_... is then false, but the file is among the attachments. NULL: it can
     * be used, or does not exist. */
    const gqac_diag *tokenizer_refusal, *template_refusal;
    int64_t bos, pad; /* -1: none */
    int n_eos;        /* without a genai_config.json: of generation_config.json or config.json */
    const int64_t *eos;
    int64_t context_length; /* in tokens; 0: not stated. It reserves no memory */
    int64_t vocab_size;     /* 0: not stated */
    /* Of "search": the defaults of generation. */
    bool do_sample;
    double temperature, top_p, repetition_penalty;
    int64_t top_k;                  /* 0: all */
    int64_t min_length, max_length; /* in tokens of prompt and answer together; 0: not stated */
    const char *unsupported; /* a search setting that gqac does not have, so that gqac_generate
                                fails ("search.num_beams is 4"); NULL: none */
    int n_io_names;          /* for gqac_options: names of inputs and outputs */
    const gqac_io_name *io_names;
    const gqac_token_rules *rules; /* for gqac_sampling; NULL: none */
    /* Settings of generation_config.json (or of config.json, as above) that would change answers
     * and that gqac does not have: "generation_config.json: num_beams is 4, top_h is 0.4". NULL:
     * none */
    const char *not_obeyed;
    int64_t no_repeat_ngram_size; /* of "search", where transformers' config has none; 0: none. It
                                     is one of the rules */
} gqac_text_settings;
/* Returns the settings, never NULL. Fields from files that do not exist, or were not read, have
 * their defaults. */
GQAC_API const gqac_text_settings *gqac_text_get_settings(const gqac_text *text);
/* Sets *files to the unchanged files of all parts that were read, for gqac_options.attachments, and
 * returns their number. They belong to the text. */
GQAC_API int gqac_text_attachments(const gqac_text *text, const gqac_attachment **files);

/* ---- tokens -------------------------------------------------------------- */

/* Tokenizes a text of `length` bytes: sets *ids to its *n ids, as Hugging Face's tokenizers define
 * tokenizer.json (added tokens, normalizer, pre-tokenizer, model and, with `special`, the
 * post-processor). The caller frees *ids with gqac_release; it is not NULL even if *n is 0. A
 * tokenizer may return ids that the model does not have. INVALID_INPUT: the text is not UTF-8, or
 * too long; LIMIT: the tokenizer's regular expressions take too many steps. Errors of all calls of
 * this section: USAGE: the model has no tokenizer; UNSUPPORTED: its tokenizer cannot be used
 * (tokenizer_refusal); NO_MEMORY. */
GQAC_API gqac_status gqac_text_tokenize(const gqac_text *text, const char *bytes, size_t length,
                                        bool special, int64_t **ids, size_t *n, gqac_diag *diag);
typedef struct gqac_tokenize_options {
    size_t size;
    bool special; /* apply the post-processor, which adds the beginning of text and the like */
    bool plain;   /* treat special tokens that the text spells out ("<|im_end|>") as ordinary text.
                     For text from users, so that it cannot end or begin a turn */
} gqac_tokenize_options;
static inline void gqac_tokenize_options_init(gqac_tokenize_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
    options->special = true;
}
/* gqac_text_tokenize with options; options NULL: those of gqac_tokenize_options_init. */
GQAC_API gqac_status gqac_text_tokenize_with(const gqac_text *text, const char *bytes,
                                             size_t length, const gqac_tokenize_options *options,
                                             int64_t **ids, size_t *n, gqac_diag *diag);
/* Sets *bytes to the *length bytes that an id stands for in the middle of a text; they need not be
 * whole characters. A special token stands for its name. *special, if not NULL, is set to whether
 * the token is special. This serves tables of the whole vocabulary, as grammars need them. A NUL
 * follows the bytes. The caller frees *bytes with gqac_release. OUT_OF_RANGE: the tokenizer does
 * not have the id. */
GQAC_API gqac_status gqac_text_token_bytes(const gqac_text *text, int64_t id, char **bytes,
                                           size_t *length, bool *special, gqac_diag *diag);
/* Sets *out to the text of n ids, *length bytes of valid UTF-8: bytes that form no character become
 * U+FFFD. With skip_special, special tokens are left out. A NUL follows the text. The caller frees
 * *out with gqac_release. OUT_OF_RANGE: the tokenizer does not have one of the ids. */
GQAC_API gqac_status gqac_text_detokenize(const gqac_text *text, const int64_t *ids, size_t n,
                                          bool skip_special, char **out, size_t *length,
                                          gqac_diag *diag);

/* A stream detokenizes one id at a time and leaves out special tokens. Each call sets *piece to the
 * next *length bytes of text, possibly none; the pieces together are the text of
 * gqac_text_detokenize, and no piece splits a character. *piece is valid until the next call with
 * the stream. The gqac_text must outlive the stream, which the caller frees. OUT_OF_RANGE: the
 * tokenizer does not have the id. */
typedef struct gqac_text_stream gqac_text_stream;
GQAC_API gqac_status gqac_text_stream_create(const gqac_text *text, gqac_text_stream **stream,
                                             gqac_diag *diag);
GQAC_API void gqac_text_stream_free(gqac_text_stream *stream);
GQAC_API gqac_status gqac_text_stream_push(gqac_text_stream *stream, int64_t id, const char **piece,
                                           size_t *length, gqac_diag *diag);
/* To be called after the last id: sets *piece to the text that was still held back. The next id
 * begins a new text. */
GQAC_API gqac_status gqac_text_stream_finish(gqac_text_stream *stream, const char **piece,
                                             size_t *length, gqac_diag *diag);

/* A reply builds the text of an answer id by id and cuts it before a stop text. The stop text that
 * is complete first counts; if several end at the same byte, the longest. `text` and the stop texts
 * must outlive the reply, which the caller frees. Without a tokenizer, or with `text` NULL, the
 * text stays empty; an id that the tokenizer does not have adds no text. USAGE: stop texts without
 * a tokenizer; INVALID_INPUT: a stop text is not UTF-8. */
typedef struct gqac_reply gqac_reply;
GQAC_API gqac_status gqac_reply_create(const gqac_text *text, int n_stop, const char *const *stop,
                                       gqac_reply **reply, gqac_diag *diag);
GQAC_API void gqac_reply_free(gqac_reply *reply);
/* Adds the text of an id, or nothing after a stop text. NO_MEMORY. */
GQAC_API gqac_status gqac_reply_push(gqac_reply *reply, int64_t id, gqac_diag *diag);
/* To be called after the last id: adds to the text what was still held back. */
GQAC_API gqac_status gqac_reply_finish(gqac_reply *reply, gqac_diag *diag);
/* True: the text has been cut before a stop text. */
GQAC_API bool gqac_reply_stopped(const gqac_reply *reply);
/* Returns the text that was added since the last call, *length bytes, except for a possible
 * beginning of a stop text. It is valid until the next call that changes the reply; no NUL
 * follows. */
GQAC_API const char *gqac_reply_take(gqac_reply *reply, size_t *length);
/* Returns the whole text so far, *length bytes and a NUL. It is valid until the next call that
 * changes the reply. */
GQAC_API const char *gqac_reply_text(const gqac_reply *reply, size_t *length);

/* Renders the chat template: Jinja as transformers runs it (trim_blocks, lstrip_blocks,
 * loopcontrols, generation, tojson, raise_exception, strftime_now). `variables` is a JSON object,
 * usually {"messages": [{"role": ..., "content": ...}], "add_generation_prompt": true, "tools":
 * [...]}. The special tokens of tokenizer_config.json (bos_token, eos_token, ...) are variables
 * too. As in transformers, absent tools and documents are none, and an absent add_generation_prompt
 * is false. The reasoning of a message is its first field among reasoning_content, thinking and
 * reasoning that is not null. The template finds it as reasoning_content, and also as thinking if
 * the message has no such field. Sets *out to *length bytes, followed by a NUL; the caller frees
 * *out with gqac_release. USAGE: the model has no template; UNSUPPORTED: the template cannot be
 * used (template_refusal); INVALID_INPUT: the template raises an error, or the JSON is wrong;
 * LIMIT: the template takes too many steps, or the text is too long; NO_MEMORY. */
GQAC_API gqac_status gqac_text_render(const gqac_text *text, const char *variables, char **out,
                                      size_t *length, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
