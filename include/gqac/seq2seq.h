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

/* Is it a folder with an encoder file or a decoder file, and without genai_config.json? The encoder
 * is encoder.onnx or encoder_model.onnx; the decoder is decoder.onnx, decoder_model_merged.onnx or
 * decoder_model.onnx, with decoder_with_past_model.onnx beside it or not. Of each, the first that
 * is there counts. */
GQAC_API bool gqac_seq2seq_is(const char *folder);

/* The compiled files of such a folder. Immutable; threads may share it. */
typedef struct gqac_seq2seq gqac_seq2seq;
/* Options as for gqac_program_open; every file is opened stateless. The ids that a text begins and
 * ends with are those of generation_config.json, else of config.json. IO that names a missing file;
 * INVALID_MODEL (a config without decoder_start_token_id, or with ids that the model does not
 * have); UNSUPPORTED when a file is not what its name says, or its caches have no known shape;
 * USAGE for options with a model in memory; else as gqac_program_open. */
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

/* What one thread needs to run a model: memory for encoder and decoders, and their caches. Model
 * and threads must outlive it. */
typedef struct gqac_seq2seq_context gqac_seq2seq_context;
GQAC_API gqac_status gqac_seq2seq_context_create(const gqac_seq2seq *model, gqac_threads *threads,
                                                 gqac_seq2seq_context **context, gqac_diag *diag);
GQAC_API void gqac_seq2seq_context_free(gqac_seq2seq_context *context);
/* Who may end a run of the encoder or of the decoder (gqac_monitor.abort); its progress is not
 * called. NULL: nobody. *monitor is copied. USAGE: a size that cannot be. */
GQAC_API gqac_status gqac_seq2seq_context_set_monitor(gqac_seq2seq_context *context,
                                                      const gqac_monitor *monitor, gqac_diag *diag);

/* What the encoder reads: ids, or features where its settings say so. */
typedef struct gqac_seq2seq_source {
    size_t size;
    const int64_t *ids; /* fed as [1,n_ids], with a mask of ones where the encoder takes one */
    size_t n_ids;
    const gqac_tensor *features; /* in the shape that the encoder takes, e.g. [1,80,3000] f32 */
} gqac_seq2seq_source;

/* Greedy, 128 new ids, and the end-of-text ids of the model. */
static inline void gqac_seq2seq_request_init(gqac_generate_request *request,
                                             const gqac_seq2seq *model) {
    const gqac_seq2seq_settings *settings = gqac_seq2seq_get_settings(model);
    gqac_generate_request_init(request, NULL, NULL, NULL, 0);
    request->n_eos = settings->n_eos;
    request->eos = settings->eos;
}

/* Encodes the source and generates. The request is that of gqac_generate, but `session` is NULL and
 * `chunk` 0, and `prompt` is what the decoder begins with (start, language and task of a speech
 * model); without one it is the start id of the settings. Penalties and positions of draws count
 * the ids of the decoder, not of the source. Of the metrics, the time to the first token includes
 * the encoder, and computed_tokens counts ids fed to the decoder. text may be NULL: ids only.
 * *result is freed with gqac_generation_free. USAGE (ids where features are wanted, or the other
 * way round), OUT_OF_RANGE (ids), INVALID_INPUT (features of another type or shape), UNSUPPORTED
 * (an input that is not known), ABORTED. */
GQAC_API gqac_status gqac_seq2seq_generate(gqac_seq2seq_context *context, const gqac_text *text,
                                           const gqac_seq2seq_source *source,
                                           const gqac_generate_request *request,
                                           gqac_generation **result, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
