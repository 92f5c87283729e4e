/* genai_config.json: which file of a model folder is the decoder. */
#include <gqac/text.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/diag.h"

static gqac_status bad(gqac_diag *diag, const char *config, const char *what) {
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "%s", what);
    gqac_diag_where(diag, "%s", config);
    return GQAC_INVALID_MODEL;
}

/* A plain file name: no separators, so that it cannot lead out of the folder. */
static int is_plain_name(const char *name) {
    return *name && !strpbrk(name, "/\\") && strcmp(name, ".") && strcmp(name, "..");
}

static gqac_status decoder_path(const char *folder, const char *config, char *path, size_t size,
                                gqac_diag *diag) {
    json_error_t error;
    json_t *root = json_load_file(config, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        gqac_status status =
            json_error_code(&error) == json_error_cannot_open_file ? GQAC_IO : GQAC_INVALID_MODEL;
        gqac_diag_set(diag, status, "%s", error.text);
        gqac_diag_where(diag, "%s, line %d", config, error.line);
        gqac_diag_hint(diag, "a model folder holds the genai_config.json of the model builder");
        return status;
    }
    const json_t *decoder = json_object_get(json_object_get(root, "model"), "decoder");
    const char *name = json_string_value(json_object_get(decoder, "filename"));
    gqac_status status = GQAC_OK;
    if (!name)
        status = bad(diag, config, "model.decoder.filename is missing or not a string");
    else if (!is_plain_name(name))
        status = bad(diag, config, "model.decoder.filename must be the name of a file beside it");
    else if ((size_t)snprintf(path, size, "%s/%s", folder, name) >= size)
        status = bad(diag, config, "the path of the decoder is too long");
    json_decref(root);
    return status;
}

gqac_status gqac_text_model_path(const char *model, char *path, size_t size, gqac_diag *diag) {
    struct stat info;
    char config[4096];
    if (stat(model, &info) == 0 && S_ISDIR(info.st_mode)) {
        if ((size_t)snprintf(config, sizeof config, "%s/genai_config.json", model) >= sizeof config)
            return bad(diag, model, "the path is too long");
        return decoder_path(model, config, path, size, diag);
    }
    if ((size_t)snprintf(path, size, "%s", model) >= size)
        return bad(diag, model, "the path is too long");
    return GQAC_OK;
}
