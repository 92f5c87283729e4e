/* gqac_model_open: program and text of a model folder. */
#include <gqac/program.h>

#include "base/sized.h"
#include "llm/llm.h"

/* Takes the names of inputs and outputs from the config, if the options have none. */
static gqac_status take_names(const char *model, const gqac_text *text, gqac_options *options,
                              gqac_text **config, gqac_diag *diag) {
    if (options->n_io_names)
        return GQAC_OK;
    if (!text)
        GQAC_TRY(gqac_text_open(model, GQAC_TEXT_CONFIG, config, diag));
    const gqac_text_settings *settings = gqac_text_get_settings(text ? text : *config);
    options->n_io_names = settings->n_io_names;
    options->io_names = settings->io_names;
    return GQAC_OK;
}

gqac_status gqac_model_open(const char *model, const gqac_options *options, unsigned parts,
                            gqac_program **program, gqac_text **text, gqac_diag *diag) {
    char path[4096];
    gqac_options own;
    gqac_text *made = NULL, *config = NULL;
    gqac_options_init(&own);
    GQAC_TRY(gqac_sized_take(&own, sizeof own, options, "gqac_options", diag));
    if (own.bytes) {
        gqac_diag_set(diag, GQAC_USAGE, "a model in memory is not a folder");
        gqac_diag_hint(diag, "gqac_program_open opens it");
        return GQAC_USAGE;
    }
    GQAC_TRY(gqac_text_model_path(model, path, sizeof path, diag));
    if (text)
        GQAC_TRY(gqac_text_open_within(model, parts | GQAC_TEXT_CONFIG, own.limits, &made, diag));
    gqac_status status = take_names(model, made, &own, &config, diag);
    if (status == GQAC_OK)
        status = gqac_program_open(path, &own, program, diag);
    gqac_text_free(config);
    if (status != GQAC_OK)
        gqac_text_free(made);
    else if (text)
        *text = made;
    return status;
}
