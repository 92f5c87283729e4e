/* Model folders as the onnxruntime-genai builder writes them: genai_config.json beside the model.
 */
#ifndef GQAC_TEXT_H
#define GQAC_TEXT_H

#include <gqac/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The path of the decoder file of a model. `model` may be a file (copied as it is) or a folder with
 * genai_config.json, whose model.decoder.filename is taken. IO when the folder or its config cannot
 * be read, INVALID_MODEL when the config is wrong or names a file outside of the folder. */
GQAC_API gqac_status gqac_text_model_path(const char *model, char *path, size_t size,
                                          gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
