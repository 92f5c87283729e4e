/* What lies in a model folder beside the graph: settings, tokenizer and chat template. */
#ifndef GQAC_TOKENIZER_H
#define GQAC_TOKENIZER_H

#include <gqac/options.h>
#include <gqac/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the path of the decoder file of a model to `path`, which has `size` bytes: `model` itself
 * if it is a file, else model.decoder.filename of the genai_config.json in the folder. IO: the
 * folder or its config cannot be read; INVALID_MODEL: the config is wrong, the path is too long, or
 * the file lies outside of the folder, also by a link (but links into the Hugging Face cache that
 * the folder is part of are followed, here and below). */
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

/* Reads the parts of a model; the caller frees *text. `model` is a folder, an artefact that was
 * compiled from one, or a model file. A file that is named as decoder by the genai_config.json
 * beside it, or in the folder above, stands for that folder; any other file has no parts. A missing
 * part is no error here, and neither is a tokenizer or template that needs something gqac does not
 * have (the refusals in the settings): calls that need the part fail. IO: a file cannot be read;
 * INVALID_MODEL: the content of a file, or a link that leads out of the folder; UNSUPPORTED: the
 * config asks for something that would change results; LIMIT; NO_MEMORY. */
GQAC_API gqac_status gqac_text_open(const char *model, unsigned parts, gqac_text **text,
                                    gqac_diag *diag);
GQAC_API void gqac_text_free(gqac_text *text);

/* Opens program and text of a model in one call: the decoder file of gqac_text_model_path, with the
 * names of inputs and outputs in genai_config.json (unless the options have names), and the parts
 * of gqac_text_open. `text` NULL: only the config is read. The caller frees both; on failure
 * neither is made. Errors are those of gqac_text_model_path, gqac_text_open and gqac_program_open;
 * USAGE: the options have a model in memory (gqac_options.bytes). */
GQAC_API gqac_status gqac_model_open(const char *model, const gqac_options *options, unsigned parts,
                                     gqac_program **program, gqac_text **text, gqac_diag *diag);

/* Settings of genai_config.json (schema: onnxruntime-genai's config.h). Owned by the text. */
typedef struct gqac_text_settings {
    size_t size;
    bool has_config, has_tokenizer, has_template; /* of the parts that were asked for */
    /* Why a tokenizer or template that exists cannot be used: the UNSUPPORTED with which calls that
       need it fail; NULL: it can, or does not exist. has_... is then false, but the file is among
       the attachments */
    const gqac_diag *tokenizer_refusal, *template_refusal;
    int64_t bos, pad; /* -1: none */
    int n_eos;
    const int64_t *eos;
    int64_t context_length; /* tokens; 0: not stated. No memory is allocated for it */
    int64_t vocab_size;     /* 0: not stated */
    /* search: what generate does by default */
    bool do_sample;
    double temperature, top_p, repetition_penalty;
    int64_t top_k;                  /* 0: all */
    int64_t min_length, max_length; /* tokens of prompt and answer together; 0: not stated */
    const char *unsupported; /* a search setting that gqac_generate refuses, as gqac does not have
                                it ("search.num_beams is 4"); NULL: none */
    int n_io_names;          /* for gqac_options: names of inputs and outputs */
    const gqac_io_name *io_names;
} gqac_text_settings;
/* Never NULL; fields of files that do not exist, or were not asked for, have their defaults. */
GQAC_API const gqac_text_settings *gqac_text_get_settings(const gqac_text *text);
/* Sets *files to the unchanged files of all parts that exist, for gqac_options.attachments, and
 * returns their number. Owned by the text. */
GQAC_API int gqac_text_attachments(const gqac_text *text, const gqac_attachment **files);

/* ---- tokens -------------------------------------------------------------- */

/* Sets *ids to the *n ids of a text of `length` bytes, as Hugging Face's tokenizers define
 * tokenizer.json: added tokens, normalizer, pre-tokenizer, model and, with `special`, the
 * post-processor. The caller frees *ids with gqac_release; it is not NULL, even without ids. A
 * tokenizer may have ids that the model does not have. Here and below USAGE: the model has no
 * tokenizer; UNSUPPORTED: its tokenizer was refused; NO_MEMORY. INVALID_INPUT: the text is not
 * UTF-8, or too long; LIMIT: the tokenizer's expressions take too many steps. */
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
/* gqac_text_tokenize with options; NULL: as gqac_tokenize_options_init sets them. */
GQAC_API gqac_status gqac_text_tokenize_with(const gqac_text *text, const char *bytes,
                                             size_t length, const gqac_tokenize_options *options,
                                             int64_t **ids, size_t *n, gqac_diag *diag);
/* Sets *bytes to the *length bytes of an id in the middle of a text, which need not be whole
 * characters; those of a special token are its name, and *special (NULL: not wanted) is true. For
 * tables of the whole vocabulary, as grammars need them. A NUL follows *bytes, which the caller
 * frees with gqac_release. OUT_OF_RANGE: the tokenizer does not have the id. */
GQAC_API gqac_status gqac_text_token_bytes(const gqac_text *text, int64_t id, char **bytes,
                                           size_t *length, bool *special, gqac_diag *diag);
/* Sets *out to the text of n ids, valid UTF-8 of *length bytes: bytes that are not a character
 * become U+FFFD. With skip_special, special tokens are left out. A NUL follows *out, which the
 * caller frees with gqac_release. OUT_OF_RANGE: the tokenizer does not have an id. */
GQAC_API gqac_status gqac_text_detokenize(const gqac_text *text, const int64_t *ids, size_t n,
                                          bool skip_special, char **out, size_t *length,
                                          gqac_diag *diag);

/* Detokenizes one id at a time, without special tokens: the pieces together are the text of
 * gqac_text_detokenize, and no piece splits a character. The text must outlive the stream, which
 * the caller frees. *piece has *length bytes and is valid until the next call. OUT_OF_RANGE: the
 * tokenizer does not have the id. */
typedef struct gqac_text_stream gqac_text_stream;
GQAC_API gqac_status gqac_text_stream_create(const gqac_text *text, gqac_text_stream **stream,
                                             gqac_diag *diag);
GQAC_API void gqac_text_stream_free(gqac_text_stream *stream);
GQAC_API gqac_status gqac_text_stream_push(gqac_text_stream *stream, int64_t id, const char **piece,
                                           size_t *length, gqac_diag *diag);
/* The piece that was held back after the last id; the next id begins a new text. */
GQAC_API gqac_status gqac_text_stream_finish(gqac_text_stream *stream, const char **piece,
                                             size_t *length, gqac_diag *diag);

/* Builds the text of an answer id by id, and ends it before the first stop text that is complete;
 * of those that end together the longest counts. `text` and the stop texts must outlive the reply,
 * which the caller frees. Without a tokenizer the text is empty, and stop texts are USAGE.
 * INVALID_INPUT: a stop text is not UTF-8. */
typedef struct gqac_reply gqac_reply;
GQAC_API gqac_status gqac_reply_create(const gqac_text *text, int n_stop, const char *const *stop,
                                       gqac_reply **reply, gqac_diag *diag);
GQAC_API void gqac_reply_free(gqac_reply *reply);
GQAC_API gqac_status gqac_reply_push(gqac_reply *reply, int64_t id, gqac_diag *diag);
/* After the last id: completes the text with what was held back. */
GQAC_API gqac_status gqac_reply_finish(gqac_reply *reply, gqac_diag *diag);
/* True: the text has been cut before a stop text. */
GQAC_API bool gqac_reply_stopped(const gqac_reply *reply);
/* Returns what the text has gained since the last call and sets *length to its bytes, without what
 * may be the beginning of a stop text. Valid until the next call that changes the reply; no NUL
 * follows. */
GQAC_API const char *gqac_reply_take(gqac_reply *reply, size_t *length);
/* The whole text so far, *length bytes and a NUL; valid until the next call that changes the
 * reply. */
GQAC_API const char *gqac_reply_text(const gqac_reply *reply, size_t *length);

/* Renders the chat template: Jinja as transformers runs it (trim_blocks, lstrip_blocks,
 * loopcontrols, generation, tojson, raise_exception, strftime_now). `variables` is a JSON object,
 * usually {"messages": [{"role": ..., "content": ...}], "add_generation_prompt": true, "tools":
 * [...]}. The special tokens of tokenizer_config.json (bos_token, eos_token, ...) are variables
 * too. As in transformers, absent tools and documents are none, an absent add_generation_prompt is
 * false, and of a message's reasoning_content, thinking and reasoning the first that is not null
 * becomes reasoning_content, and also thinking if that is absent. Sets *out to *length bytes, which
 * a NUL follows; the caller frees it with gqac_release. USAGE: the model has no template;
 * UNSUPPORTED: it was refused; INVALID_INPUT: the template raises an error, or the JSON is wrong;
 * LIMIT: too many steps, or too long a text; NO_MEMORY. */
GQAC_API gqac_status gqac_text_render(const gqac_text *text, const char *variables, char **out,
                                      size_t *length, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
