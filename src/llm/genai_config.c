/* genai_config.json: the decoder's file, ids, names of inputs and outputs, defaults of generation;
 * and what transformers' configs have of these.
 *
 * Every value that is read is checked: its type, its range, and that gqac does what it asks. null
 * counts as absent. Keys that only concern ONNX Runtime are ignored. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/rules.h"

enum { MOST_LAYERS = 4096, MOST_EOS = 1024, MOST_NAME = 1000, DEFAULT_TOP_K = 50 };
static const int64_t most_tokens = (int64_t)1 << 40, most_ids = INT32_MAX;

const gqac_text_settings genai_config_defaults = {.size = sizeof(gqac_text_settings),
                                                  .bos = -1,
                                                  .pad = -1,
                                                  .temperature = 1,
                                                  .top_p = 1,
                                                  .repetition_penalty = 1};

typedef struct reader {
    gqac_arena *arena;
    gqac_text_settings *settings;
    gqac_io_name *names;
    int n_names, capacity;
    gqac_diag *diag;
} reader;

/* ---- values -------------------------------------------------------------- */

/* An object of the config, and the path of its members: "search.". */
typedef struct place {
    const json_t *object; /* NULL: absent */
    const char *path;
} place;

static const json_t *value_of(const place *p, const char *key) {
    const json_t *value = json_object_get(p->object, key);
    return json_is_null(value) ? NULL : value;
}

GQAC_PRINTF(5, 6)
static gqac_status wrong(const reader *r, const place *p, const char *key, const json_t *value,
                         const char *rule, ...) {
    char filled[sizeof r->diag->rule];
    va_list args;
    va_start(args, rule);
    vsnprintf(filled, sizeof filled, rule, args);
    va_end(args);
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    const bool lost = value && !text;
    if (lost)
        return gqac_diag_oom(r->diag, "a message");
    if (value)
        gqac_diag_set(r->diag, GQAC_INVALID_MODEL, "%s%s is %.80s", p->path, key, text);
    else
        gqac_diag_set(r->diag, GQAC_INVALID_MODEL, "%s%s is missing", p->path, key);
    gqac_diag_rule(r->diag, "%s", filled);
    free(text); /* jansson's */
    return GQAC_INVALID_MODEL;
}

static gqac_status read_object(const reader *r, const place *p, const char *key, const char *path,
                               place *out) {
    const json_t *value = value_of(p, key);
    *out = (place){value, path};
    return !value || json_is_object(value) ? GQAC_OK : wrong(r, p, key, value, "it is an object");
}

static gqac_status read_int(const reader *r, const place *p, const char *key, int64_t least,
                            int64_t most, int64_t *out) {
    const json_t *value = value_of(p, key);
    *out = value ? json_integer_value(value) : *out;
    return !value || (json_is_integer(value) && *out >= least && *out <= most)
               ? GQAC_OK
               : wrong(r, p, key, value, "it is an integer from %lld to %lld", (long long)least,
                       (long long)most);
}

static gqac_status read_real(const reader *r, const place *p, const char *key, double least,
                             double most, double *out) {
    const json_t *value = value_of(p, key);
    *out = value ? json_number_value(value) : *out;
    return !value || (json_is_number(value) && isfinite(*out) && *out >= least && *out <= most)
               ? GQAC_OK
               : wrong(r, p, key, value, "it is a number from %g to %g", least, most);
}

static gqac_status read_bool(const reader *r, const place *p, const char *key, bool *out) {
    const json_t *value = value_of(p, key);
    if (value && !json_is_boolean(value))
        return wrong(r, p, key, value, "it is true or false");
    if (value)
        *out = json_is_true(value);
    return GQAC_OK;
}

/* ---- token ids ----------------------------------------------------------- */

static gqac_status check_id(const reader *r, const place *p, const char *key, const json_t *value) {
    const int64_t size = r->settings->vocab_size ? r->settings->vocab_size : most_ids;
    const int64_t id = json_integer_value(value);
    return json_is_integer(value) && id >= 0 && id < size
               ? GQAC_OK
               : wrong(r, p, key, value, "token ids are integers from 0 to %s%lld",
                       r->settings->vocab_size ? "vocab_size - 1 = " : "", (long long)size - 1);
}

static bool is_none(const json_t *value) {
    return !value || (json_is_integer(value) && json_integer_value(value) == -1);
}

/* An id, or the first of a list; -1 and null: none. */
static gqac_status read_id(const reader *r, const place *p, const char *key, int64_t *out) {
    const json_t *value = value_of(p, key);
    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (is_none(value))
        return GQAC_OK;
    GQAC_TRY(check_id(r, p, key, value));
    *out = json_integer_value(value);
    return GQAC_OK;
}

static gqac_status read_eos(const reader *r, const place *p) {
    static const char key[] = "eos_token_id";
    const json_t *value = value_of(p, key);
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (is_none(value))
        return GQAC_OK;
    if (n > MOST_EOS)
        GQAC_FAIL(r->diag, GQAC_LIMIT, "%s%s has %zu ids; the maximum is %d", p->path, key, n,
                  MOST_EOS);
    int64_t *ids = GQAC_ARENA_ARRAY(r->arena, int64_t, n + 1);
    if (!ids)
        return gqac_diag_oom(r->diag, "a config");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        GQAC_TRY(check_id(r, p, key, id));
        ids[i] = json_integer_value(id);
    }
    r->settings->eos = ids;
    r->settings->n_eos = (int)n;
    return GQAC_OK;
}

/* ---- names of inputs and outputs ----------------------------------------- */

static const struct {
    const char *key, *name; /* in the config; here */
} input_rows[] = {{"input_ids", "input_ids"},
                  {"attention_mask", "attention_mask"},
                  {"position_ids", "position_ids"},
                  {"past_key_names", "past_key_values.%d.key"},
                  {"past_value_names", "past_key_values.%d.value"}},
  output_rows[] = {{"logits", "logits"},
                   {"present_key_names", "present.%d.key"},
                   {"present_value_names", "present.%d.value"}};
enum {
    INPUTS = sizeof input_rows / sizeof *input_rows,
    OUTPUTS = sizeof output_rows / sizeof *output_rows
};

static gqac_status add_name(reader *r, const char *file_name, const char *name) {
    if (r->n_names == r->capacity) {
        const int capacity = r->capacity ? 2 * r->capacity : 16;
        gqac_io_name *names = GQAC_ARENA_ARRAY(r->arena, gqac_io_name, (size_t)capacity);
        if (!names)
            return gqac_diag_oom(r->diag, "a config");
        if (r->n_names)
            memcpy(names, r->names, (size_t)r->n_names * sizeof *names);
        r->names = names;
        r->capacity = capacity;
    }
    if (!file_name || !name)
        return gqac_diag_oom(r->diag, "a config");
    r->names[r->n_names++] = (gqac_io_name){file_name, name};
    return GQAC_OK;
}

/* The pattern with its %d replaced; printf never gets a pattern of the file. */
static const char *expand(const reader *r, const char *pattern, int layer) {
    const char *at = strchr(pattern, '%');
    return gqac_arena_printf(r->arena, "%.*s%d%s", (int)(at - pattern), pattern, layer, at + 2);
}

static gqac_status read_name(reader *r, const place *p, const char *key, const char *name,
                             int64_t layers) {
    const json_t *value = value_of(p, key);
    const char *text = json_string_value(value);
    const bool layered = strchr(name, '%') != NULL;
    if (!value)
        return GQAC_OK;
    if (!text || !*text || strlen(text) > MOST_NAME)
        return wrong(r, p, key, value, "it is a name of at most 1000 bytes");
    if (!layered)
        return strcmp(text, name) ? add_name(r, gqac_arena_strdup(r->arena, text), name) : GQAC_OK;
    const char *percent = strchr(text, '%');
    if (!percent || percent[1] != 'd' || strchr(percent + 1, '%'))
        return wrong(r, p, key, value, "it has one %%d, for the layer, and no other %%");
    if (!strcmp(text, name))
        return GQAC_OK;
    if (!layers)
        return wrong(r, &(place){NULL, "model.decoder."}, "num_hidden_layers", NULL,
                     "it is required for names that differ from ONNX Runtime's");
    for (int i = 0; i < (int)layers; i++)
        GQAC_TRY(add_name(r, expand(r, text, i), expand(r, name, i)));
    return GQAC_OK;
}

static gqac_status read_names(reader *r, const place *decoder) {
    place inputs, outputs;
    int64_t layers = 0;
    GQAC_TRY(read_int(r, decoder, "num_hidden_layers", 0, most_tokens, &layers));
    if (layers > MOST_LAYERS)
        GQAC_FAIL(r->diag, GQAC_LIMIT, "model.decoder.num_hidden_layers is %lld; the maximum is %d",
                  (long long)layers, MOST_LAYERS);
    GQAC_TRY(read_object(r, decoder, "inputs", "model.decoder.inputs.", &inputs));
    GQAC_TRY(read_object(r, decoder, "outputs", "model.decoder.outputs.", &outputs));
    for (int i = 0; i < INPUTS; i++)
        GQAC_TRY(read_name(r, &inputs, input_rows[i].key, input_rows[i].name, layers));
    for (int i = 0; i < OUTPUTS; i++)
        GQAC_TRY(read_name(r, &outputs, output_rows[i].key, output_rows[i].name, layers));
    r->settings->io_names = r->names;
    r->settings->n_io_names = r->n_names;
    return GQAC_OK;
}

/* ---- what gqac does not do ----------------------------------------------- */

static gqac_status refuse_part(const reader *r, const place *p, const char *key) {
    const json_t *value = value_of(p, key);
    if (!value || (json_is_object(value) && !json_object_size(value)) ||
        (json_is_array(value) && !json_array_size(value)))
        return GQAC_OK;
    gqac_diag_set(r->diag, GQAC_UNSUPPORTED, "the config has %s%s, which is not supported", p->path,
                  key);
    gqac_diag_rule(r->diag, "gqac runs text models that consist of one decoder file");
    if (!strcmp(key, "encoder"))
        gqac_diag_hint(r->diag, "`gqac generate` and `gqac serve` run a folder of encoder.onnx and "
                                "decoder.onnx; `gqac run` runs each file");
    return GQAC_UNSUPPORTED;
}

/* Notes a setting above `done`, the value that gqac has: gqac_generate refuses it. */
static gqac_status note_above(reader *r, const place *p, const char *key, int64_t done) {
    int64_t value = done;
    GQAC_TRY(read_int(r, p, key, 0, most_tokens, &value));
    if (value <= done || r->settings->unsupported)
        return GQAC_OK;
    r->settings->unsupported =
        gqac_arena_printf(r->arena, "%s%s is %lld", p->path, key, (long long)value);
    return r->settings->unsupported ? GQAC_OK : gqac_diag_oom(r->diag, "a config");
}

/* ---- the whole ----------------------------------------------------------- */

static gqac_status read_search(reader *r, const place *p) {
    gqac_text_settings *s = r->settings;
    s->top_k = DEFAULT_TOP_K;
    GQAC_TRY(note_above(r, p, "num_beams", 1));
    GQAC_TRY(note_above(r, p, "num_return_sequences", 1));
    GQAC_TRY(read_bool(r, p, "do_sample", &s->do_sample));
    GQAC_TRY(read_real(r, p, "temperature", 0, 1e6, &s->temperature));
    GQAC_TRY(read_real(r, p, "top_p", 0, 1, &s->top_p));
    if (s->top_p == 0) /* the file's "off" */
        s->top_p = 1;
    GQAC_TRY(read_real(r, p, "repetition_penalty", 1e-6, 1e6, &s->repetition_penalty));
    GQAC_TRY(read_int(r, p, "top_k", 0, most_ids, &s->top_k));
    GQAC_TRY(read_int(r, p, "min_length", 0, most_tokens, &s->min_length));
    GQAC_TRY(read_int(r, p, "no_repeat_ngram_size", 0, most_ids, &s->no_repeat_ngram_size));
    return read_int(r, p, "max_length", 0, most_tokens, &s->max_length);
}

static gqac_status read_settings(reader *r, const place *root, const place *model,
                                 const place *decoder) {
    static const char *const parts[] = {"encoder", "vision", "speech", "embedding"};
    gqac_text_settings *s = r->settings;
    place search;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        GQAC_TRY(refuse_part(r, model, parts[i]));
    GQAC_TRY(refuse_part(r, decoder, "pipeline"));
    GQAC_TRY(read_int(r, model, "vocab_size", 0, most_ids, &s->vocab_size));
    GQAC_TRY(read_int(r, model, "context_length", 0, most_tokens, &s->context_length));
    GQAC_TRY(read_id(r, model, "bos_token_id", &s->bos));
    GQAC_TRY(read_id(r, model, "pad_token_id", &s->pad));
    GQAC_TRY(read_eos(r, model));
    GQAC_TRY(read_names(r, decoder));
    GQAC_TRY(read_object(r, root, "search", "search.", &search));
    return read_search(r, &search);
}

/* No name between slashes is empty, "." or "..": the path cannot lead out of the folder. */
static bool is_beneath(const char *path) {
    if (!path || strchr(path, '\\'))
        return false;
    for (const char *name = path;; name++) {
        const size_t n = strcspn(name, "/");
        if (n == 0 || (n == 1 && *name == '.') || (n == 2 && !strncmp(name, "..", 2)))
            return false;
        name += n;
        if (!*name)
            return true;
    }
}

static gqac_status read_root(reader *r, const json_t *json, const char **decoder_name) {
    const place root = {json, ""};
    place model, decoder;
    if (!json_is_object(json))
        GQAC_FAIL(r->diag, GQAC_INVALID_MODEL, "the file is not a JSON object");
    GQAC_TRY(read_object(r, &root, "model", "model.", &model));
    GQAC_TRY(read_object(r, &model, "decoder", "model.decoder.", &decoder));
    if (r->settings) /* first, as a pipeline has no file of its own */
        GQAC_TRY(read_settings(r, &root, &model, &decoder));
    const json_t *value = value_of(&decoder, "filename");
    if (!is_beneath(json_string_value(value)))
        return wrong(r, &decoder, "filename", value,
                     "it names a file in the folder, such as model.onnx or onnx/model.onnx");
    if (!decoder_name)
        return GQAC_OK;
    *decoder_name = gqac_arena_strdup(r->arena, json_string_value(value));
    return *decoder_name ? GQAC_OK : gqac_diag_oom(r->diag, "a config");
}

gqac_status genai_config_read(const char *json, size_t bytes, gqac_arena *arena,
                              gqac_text_settings *settings, const char **decoder, gqac_diag *diag) {
    json_t *root = NULL;
    reader r = {.arena = arena, .settings = settings, .diag = diag};
    if (settings)
        *settings = genai_config_defaults;
    GQAC_TRY(folder_json(json, bytes, &root, diag));
    gqac_status status = read_root(&r, root, decoder);
    json_decref(root);
    return status;
}

gqac_status hf_config_read(const gqac_attachment *file, gqac_arena *arena,
                           gqac_text_settings *settings, bool ends, gqac_token_rules **rules,
                           gqac_diag *diag) {
    json_t *root = NULL;
    const reader r = {.arena = arena, .settings = settings, .diag = diag};
    GQAC_TRY(folder_json(file->data, file->bytes, &root, diag));
    gqac_status status = GQAC_OK;
    if (!json_is_object(root))
        status = gqac_diag_set(diag, GQAC_INVALID_MODEL, "the file is not a JSON object");
    if (status == GQAC_OK && ends)
        status = read_eos(&r, &(place){root, ""});
    if (status == GQAC_OK && rules)
        status = rules_read(root, arena, rules, diag);
    if (status == GQAC_OK && rules)
        status = not_obeyed_read(root, file->name, settings->has_config, arena,
                                 &settings->not_obeyed, diag);
    json_decref(root);
    return status;
}
