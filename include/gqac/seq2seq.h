/* Generation with an encoder and a decoder, for T5, BART, Whisper and the like, as exporters write
 * them: the encoder reads a text or features once, then the decoder generates one id a step, with a
 * cache if its files have one.
 *
 *   gqac_seq2seq *model;  gqac_seq2seq_context *context;  gqac_generation *said;
 *   gqac_seq2seq_open("folder", NULL, &model, &diag);
 *   gqac_text_open("folder", GQAC_TEXT_TOKENIZER, &text, &diag);
 *   gqac_threads_create(0, &threads, &diag);
 *   gqac_seq2seq_context_create(model, threads, &context, &diag);
 *   gqac_text_tokenize(text, "How are you?", 12, true, &ids, &n, &diag);
 *   gqac_seq2seq_source source = {.size = sizeof source, .ids = ids, .n_ids = n};
 *   gqac_generate_request request;
 *   gqac_seq2seq_request_init(&request, model);
 *   gqac_seq2seq_generate(context, text, &source, &request, &said, &diag);
 *   puts(said->text);
 */
#ifndef GQAC_SEQ2SEQ_H
#define GQAC_SEQ2SEQ_H

#include <gqac/generate.h>
#include <gqac/threads.h>

#ifdef __cplusplus
extern "C" {
#endif

/* True: the folder has an encoder and a decoder file, or one of them and no genai_config.json. The
 * encoder is encoder.onnx or encoder_model.onnx; the decoder is decoder.onnx,
 * decoder_model_merged.onnx or decoder_model.onnx, beside which there may be a
 * decoder_with_past_model.onnx. The first of these names that exists is used. */
GQAC_API bool gqac_seq2seq_is_folder(const char *folder);

/* The compiled encoder and decoder of such a folder. Immutable; threads may share it. */
typedef struct gqac_seq2seq gqac_seq2seq;
/* Compiles the files of a folder as stateless programs; options are those of gqac_program_open. The
 * caller frees *model. decoder_start_token_id and eos_token_id are read from
 * generation_config.json, or, if it has none, from config.json, or else from "model" in
 * genai_config.json. A folder `onnx` that has none of these files and no tokenizer.json has those
 * of the folder above, for gqac_text_open too. IO: a file is missing; INVALID_MODEL: there is no
 * decoder_start_token_id, one of the ids is not in the vocabulary, or a file is a link that leads
 * out of the folder; UNSUPPORTED: a file is not what its name says, or the heads or head size of
 * its caches are not constant; USAGE: the options have a model in memory; the other errors are
 * those of gqac_program_open. */
GQAC_API gqac_status gqac_seq2seq_open(const char *folder, const gqac_options *options,
                                       gqac_seq2seq **model, gqac_diag *diag);
GQAC_API void gqac_seq2seq_free(gqac_seq2seq *model);

typedef struct gqac_seq2seq_settings {
    size_t size;
    bool features; /* the encoder takes features, not ids */
    bool cached;   /* the decoder has a cache: a step computes one token, not all so far */
    int64_t start; /* decoder_start_token_id */
    int n_eos;     /* number of ids in eos_token_id; 0: not stated */
    const int64_t *eos;
    int64_t vocabulary;            /* of the decoder; 0: not constant */
    const gqac_token_rules *rules; /* for gqac_sampling; NULL: none */
    const char *not_obeyed;        /* as in gqac_text_settings; NULL: none */
} gqac_seq2seq_settings;
/* Returns the settings; they belong to the model. */
GQAC_API const gqac_seq2seq_settings *gqac_seq2seq_get_settings(const gqac_seq2seq *model);

/* A file of the folder. */
typedef struct gqac_seq2seq_file {
    const char *path;
    const gqac_program *program; /* stateless */
} gqac_seq2seq_file;
/* Sets *files to the encoder, the decoder and, if there is one, the decoder with a past; returns
 * their number. They belong to the model. */
GQAC_API int gqac_seq2seq_files(const gqac_seq2seq *model, const gqac_seq2seq_file **files);

/* The contexts of the encoder and the decoders, and the caches of one text. Only one thread at a
 * time may use it. `model` and `threads` must outlive it; the caller frees it. USAGE: threads is
 * NULL; NO_MEMORY. */
typedef struct gqac_seq2seq_context gqac_seq2seq_context;
GQAC_API gqac_status gqac_seq2seq_context_create(const gqac_seq2seq *model, gqac_threads *threads,
                                                 gqac_seq2seq_context **context, gqac_diag *diag);
GQAC_API void gqac_seq2seq_context_free(gqac_seq2seq_context *context);
/* Sets the monitor of later calls; NULL: none. Only its `abort` is called. *monitor is copied;
 * monitor->arg must stay valid until the monitor is replaced. USAGE: its `size` is not that of any
 * version of the struct (see options.h). */
GQAC_API gqac_status gqac_seq2seq_context_set_monitor(gqac_seq2seq_context *context,
                                                      const gqac_monitor *monitor, gqac_diag *diag);

/* What the encoder reads: ids, or features if gqac_seq2seq_settings.features is true. An i64 input
 * of the encoder whose name contains "mask" is filled with ones, [1,L]. L is n_ids for ids. For
 * features it is the dimension that has the same name as the mask's; if there is none, the only
 * dimension after the batch that is not constant. */
typedef struct gqac_seq2seq_source {
    size_t size;
    const int64_t *ids; /* [1,n_ids]; NULL: features are given */
    size_t n_ids;
    const gqac_tensor *features; /* with the encoder's input type and shape, e.g. f32 [1,80,3000];
                                    NULL: ids are given */
} gqac_seq2seq_source;

/* Sets the defaults: greedy decoding of at most 128 ids, with the end-of-text ids of the model,
 * which must outlive the request. */
static inline void gqac_seq2seq_request_init(gqac_generate_request *request,
                                             const gqac_seq2seq *model) {
    const gqac_seq2seq_settings *settings = gqac_seq2seq_get_settings(model);
    gqac_generate_request_init(request, NULL, NULL, NULL, 0);
    request->n_eos = settings->n_eos;
    request->eos = settings->eos;
}

/* Encodes the source and generates an answer. The request is that of gqac_generate, with `session`
 * NULL and `chunk` 0, and without drafts. `prompt` has the ids with which the decoder begins
 * (start, language and task of a speech model); n_prompt 0: the start id of the settings.
 * Penalties, and the positions of random numbers, count only ids of the decoder, not those of the
 * source. The time to the first token includes the encoder; computed_tokens counts tokens of the
 * decoder only. text NULL: the answer has ids but no text. The caller frees *result with
 * gqac_generation_free. USAGE: ids for an encoder of features or features for one of ids, or the
 * request has a session, a chunk or drafts; OUT_OF_RANGE: an id is not in the vocabulary;
 * INVALID_INPUT: wrong type or shape of the features; UNSUPPORTED: a file has an input that is not
 * known; the other errors are those of gqac_generate. */
GQAC_API gqac_status gqac_seq2seq_generate(gqac_seq2seq_context *context, const gqac_text *text,
                                           const gqac_seq2seq_source *source,
                                           const gqac_generate_request *request,
                                           gqac_generation **result, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
