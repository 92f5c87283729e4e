/* Generation with an encoder and a decoder, as exporters write T5, BART and Whisper: the encoder
 * reads a text or features once, then the decoder generates one id a step with whatever caches its
 * files have.
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

/* True: the folder has an encoder or a decoder file, and no genai_config.json. The encoder is
 * encoder.onnx or encoder_model.onnx; the decoder is decoder.onnx, decoder_model_merged.onnx or
 * decoder_model.onnx, to which decoder_with_past_model.onnx may belong. Of each the first that
 * exists is used. */
GQAC_API bool gqac_is_seq2seq_folder(const char *folder);

/* The compiled files of such a folder. Immutable; threads may share it. */
typedef struct gqac_seq2seq gqac_seq2seq;
/* Compiles the files of a folder, all of them stateless; options as for gqac_program_open. The
 * caller frees *model. decoder_start_token_id and eos_token_id are those of generation_config.json,
 * else of config.json. IO: a file is missing; INVALID_MODEL: the config has no
 * decoder_start_token_id, or an id that the model does not have, or a file is a link that leads out
 * of the folder; UNSUPPORTED: a file is not what its name says, or heads and size of its caches are
 * not constant; USAGE: options with a model in memory; else as gqac_program_open. */
GQAC_API gqac_status gqac_seq2seq_open(const char *folder, const gqac_options *options,
                                       gqac_seq2seq **model, gqac_diag *diag);
GQAC_API void gqac_seq2seq_free(gqac_seq2seq *model);

typedef struct gqac_seq2seq_settings {
    size_t size;
    bool features; /* the encoder takes features, not ids */
    bool cached;   /* the decoder has caches: each step computes one token, not all of them */
    int64_t start; /* decoder_start_token_id */
    int n_eos;     /* eos_token_id; 0: not stated */
    const int64_t *eos;
    int64_t vocabulary; /* of the decoder; 0: not constant */
} gqac_seq2seq_settings;
/* Owned by the model. */
GQAC_API const gqac_seq2seq_settings *gqac_seq2seq_get_settings(const gqac_seq2seq *model);

/* The contexts of encoder and decoders, and the caches of one text. One thread at a time. Model and
 * threads must outlive it; the caller frees it. USAGE: threads is NULL; NO_MEMORY. */
typedef struct gqac_seq2seq_context gqac_seq2seq_context;
GQAC_API gqac_status gqac_seq2seq_context_create(const gqac_seq2seq *model, gqac_threads *threads,
                                                 gqac_seq2seq_context **context, gqac_diag *diag);
GQAC_API void gqac_seq2seq_context_free(gqac_seq2seq_context *context);
/* Sets the monitor of later calls, of which only `abort` is used; NULL: none. *monitor is copied;
 * its `arg` must stay valid until it is replaced. USAGE: an impossible size. */
GQAC_API gqac_status gqac_seq2seq_context_set_monitor(gqac_seq2seq_context *context,
                                                      const gqac_monitor *monitor, gqac_diag *diag);

/* What the encoder reads: ids, or features where its settings say so. */
typedef struct gqac_seq2seq_source {
    size_t size;
    const int64_t *ids; /* input [1,n_ids]; NULL: features */
    size_t n_ids;
    const gqac_tensor *features; /* in type and shape of the encoder's input, e.g. f32 [1,80,3000];
                                    NULL: ids */
    /* An i64 input of the encoder whose name contains "mask" is all ones, [1,L]: L is n_ids, or the
     * features' dimension with the name that the mask's has (else the only one after the batch that
     * is not constant). */
} gqac_seq2seq_source;

/* Defaults: the likeliest ids, 128 of them, and the end-of-text ids of the model, which must
 * outlive the request. */
static inline void gqac_seq2seq_request_init(gqac_generate_request *request,
                                             const gqac_seq2seq *model) {
    const gqac_seq2seq_settings *settings = gqac_seq2seq_get_settings(model);
    gqac_generate_request_init(request, NULL, NULL, NULL, 0);
    request->n_eos = settings->n_eos;
    request->eos = settings->eos;
}

/* Encodes the source and generates. The request is one of gqac_generate with `session` NULL and
 * `chunk` 0. `prompt` are the ids with which the decoder begins (start, language and task of a
 * speech model); n_prompt 0: the start id of the settings. Penalties and positions of draws count
 * the ids of the decoder, not those of the source. The time to the first token includes the
 * encoder; computed_tokens are those of the decoder. text NULL: the answer has ids but no text. The
 * caller frees *result with gqac_generation_free. USAGE: ids where the encoder takes features or
 * the other way round, a session or a chunk; OUT_OF_RANGE: ids; INVALID_INPUT: type or shape of the
 * features; UNSUPPORTED: an input that is not known; else as gqac_generate. */
GQAC_API gqac_status gqac_seq2seq_generate(gqac_seq2seq_context *context, const gqac_text *text,
                                           const gqac_seq2seq_source *source,
                                           const gqac_generate_request *request,
                                           gqac_generation **result, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
