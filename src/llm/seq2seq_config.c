/* The ids that a text begins and ends with: each from generation_config.json, else from
 * config.json, else from the "model" of genai_config.json. The ids that a config forbids and
 * demands are those of the first of the three that exists. */
#include "llm/rules.h"
#include "llm/seq2seq.h"

typedef struct reader {
    gqac_seq2seq *model;
    bool found; /* the start */
    bool ruled; /* rules have been read */
    gqac_token_rules *rules;
    gqac_diag *diag;
} reader;

/* An id, or a list of ids; absent or null: none. */
static gqac_status read_ids(const json_t *config, const char *key, int64_t *ids, int *n,
                            gqac_diag *diag) {
    const json_t *value = json_object_get(config, key);
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    *n = 0;
    if (!value || json_is_null(value))
        return GQAC_OK;
    for (size_t i = 0; i < count && count <= SEQ2SEQ_MOST_EOS; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(id))
            break;
        ids[(*n)++] = json_integer_value(id);
    }
    if ((size_t)*n == count)
        return GQAC_OK;
    GQAC_FAIL(diag, GQAC_INVALID_MODEL, "%s is neither an id nor a list of at most %d ids", key,
              SEQ2SEQ_MOST_EOS);
}

static gqac_status take(reader *r, const char *name, const json_t *config) {
    gqac_seq2seq_settings *settings = &r->model->settings;
    int64_t start[SEQ2SEQ_MOST_EOS];
    int n = 0;
    if (!r->ruled) {
        GQAC_TRY(rules_read(config, r->model->memory, &r->rules, r->diag));
        GQAC_TRY(
            not_obeyed_read(config, name, false, r->model->memory, &settings->not_obeyed, r->diag));
    }
    r->ruled = true;
    if (!r->found)
        GQAC_TRY(read_ids(config, "decoder_start_token_id", start, &n, r->diag));
    if (n > 1)
        GQAC_FAIL(r->diag, GQAC_INVALID_MODEL,
                  "decoder_start_token_id is a list of %d ids, but must be one id", n);
    if (n == 1) {
        settings->start = start[0];
        r->found = true;
    }
    if (settings->n_eos)
        return GQAC_OK;
    return read_ids(config, "eos_token_id", r->model->eos, &settings->n_eos, r->diag);
}

static gqac_status read_file(reader *r, const folder *f, const char *name, const char *part) {
    gqac_attachment file;
    json_t *config = NULL;
    GQAC_TRY(folder_read(f, name, FOLDER_CONFIG_BYTES, r->model->memory, &file, r->diag));
    if (!file.data)
        return GQAC_OK;
    gqac_status status = folder_json(file.data, file.bytes, &config, r->diag);
    if (status == GQAC_OK)
        status = json_is_object(config)
                     ? take(r, name, part ? json_object_get(config, part) : config)
                     : gqac_diag_set(r->diag, GQAC_INVALID_MODEL, "the file is not a JSON object");
    json_decref(config);
    if (status != GQAC_OK)
        gqac_diag_where(r->diag, "%s/%s", f->name, name);
    return status;
}

gqac_status seq2seq_read_config(const char *path, gqac_seq2seq *model, gqac_diag *diag) {
    reader r = {.model = model, .diag = diag};
    folder f = {.fd = -1};
    gqac_status status = folder_open_texts(path, model->memory, &f, diag);
    if (status == GQAC_OK)
        status = read_file(&r, &f, "generation_config.json", NULL);
    if (status == GQAC_OK)
        status = read_file(&r, &f, "config.json", NULL);
    if (status == GQAC_OK)
        status = read_file(&r, &f, "genai_config.json", "model");
    folder_close(&f);
    GQAC_TRY(status);
    rules_set_ends(r.rules, model->eos, model->settings.n_eos);
    model->settings.rules = r.rules;
    if (r.found)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "the model has no decoder_start_token_id");
    gqac_diag_where(diag, "%s", path);
    gqac_diag_rule(diag, "generation_config.json, config.json, or \"model\" in genai_config.json "
                         "contains the id with which the decoder begins");
    gqac_diag_hint(diag, "add the generation_config.json of the original model");
    return GQAC_INVALID_MODEL;
}
