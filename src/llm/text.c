/* The parts of a model besides its graph: finding, reading and checking them.
 *
 * Special tokens are those of tokenizer_config.json. The template is chat_template.jinja, else
 * chat_template.json, else chat_template of tokenizer_config.json: a text, or a list of named ones,
 * from which "default" is used, or the only one. */
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/sized.h"
#include "llm/calls.h"
#include "llm/rules.h"
#include "llm/vocabulary.h"

enum { TOKENIZER_BYTES = 1 << 28, TEMPLATE_BYTES = 4 << 20, CONFIG_BYTES = 16 << 20, FILES = 8 };

typedef struct opener {
    gqac_text *text;
    folder folder;
    gqac_limits limits;
    gqac_diag *diag;
} opener;

/* Reads a file and keeps it for artefacts; *file has no data when there is none. */
static gqac_status take_file(opener *o, const char *name, size_t limit, gqac_attachment *file) {
    GQAC_TRY(folder_read(&o->folder, name, limit, o->text->memory, file, o->diag));
    if (file->data)
        o->text->files[o->text->n_files++] = *file;
    return GQAC_OK;
}

/* Adds the file to the diag of a failure. */
static gqac_status in_file(const opener *o, const char *name, gqac_status status) {
    if (status != GQAC_OK)
        gqac_diag_where(o->diag, "%s/%s", o->folder.name, name);
    return status;
}

/* UNSUPPORTED is kept until the part is needed; any other failure is returned. */
static gqac_status keep_refusal(const opener *o, gqac_status status, const gqac_diag *found,
                                const gqac_diag **refusal) {
    if (status != GQAC_UNSUPPORTED) {
        if (o->diag)
            *o->diag = *found;
        return status;
    }
    *refusal = gqac_arena_copy(o->text->memory, found, sizeof *found);
    return *refusal ? GQAC_OK : gqac_diag_oom(o->diag, "a model folder");
}

/* ---- config and tokenizer ------------------------------------------------ */

static gqac_status open_config(opener *o) {
    static const char name[] = "genai_config.json";
    gqac_text *t = o->text;
    gqac_attachment file;
    GQAC_TRY(take_file(o, name, FOLDER_CONFIG_BYTES, &file));
    if (!file.data)
        return GQAC_OK;
    GQAC_TRY(in_file(
        o, name, genai_config_read(file.data, file.bytes, t->memory, &t->settings, NULL, o->diag)));
    t->settings.has_config = true;
    return GQAC_OK;
}

/* Reads one of transformers' configs. */
static gqac_status open_hf_config(opener *o, const char *name, bool ends, gqac_token_rules **rules,
                                  bool *found) {
    gqac_attachment file;
    GQAC_TRY(take_file(o, name, FOLDER_CONFIG_BYTES, &file));
    *found = file.data != NULL;
    if (!file.data)
        return GQAC_OK;
    return in_file(
        o, name, hf_config_read(&file, o->text->memory, &o->text->settings, ends, rules, o->diag));
}

/* The rules are those of generation_config.json, else of config.json. So are the ids that end a
 * text, if there is no genai_config.json. */
static gqac_status open_hf_configs(opener *o) {
    gqac_text_settings *s = &o->text->settings;
    gqac_token_rules *rules = NULL;
    bool ends = !s->has_config, found = false;
    GQAC_TRY(open_hf_config(o, "generation_config.json", ends, &rules, &found));
    ends = ends && !s->n_eos;
    if (ends || !found)
        GQAC_TRY(open_hf_config(o, "config.json", ends, found ? NULL : &rules, &found));
    GQAC_TRY(rules_add_repeated(&rules, s->no_repeat_ngram_size, o->text->memory, o->diag));
    rules_set_ends(rules, s->eos, s->n_eos);
    s->rules = rules;
    return GQAC_OK;
}

static gqac_status make_words(opener *o) {
    text_words *words = gqac_calloc(1, sizeof *words);
    if (!words || pthread_mutex_init(&words->lock, NULL) != 0) {
        gqac_free(words);
        return gqac_diag_oom(o->diag, "a tokenizer");
    }
    o->text->words = words;
    return GQAC_OK;
}

static void free_words(text_words *words) {
    if (!words)
        return;
    vocabulary_free(words->vocabulary);
    pthread_mutex_destroy(&words->lock);
    gqac_free(words);
}

static gqac_status open_tokenizer(opener *o) {
    static const char name[] = "tokenizer.json";
    gqac_text *t = o->text;
    gqac_attachment file;
    gqac_diag found = {0};
    GQAC_TRY(take_file(o, name, TOKENIZER_BYTES, &file));
    if (!file.data)
        return GQAC_OK;
    GQAC_TRY(in_file(o, name, folder_check_json(file.data, file.bytes, o->diag)));
    gqac_status status = tokenizer_create(file.data, file.bytes, &t->tokenizer, &found);
    if (status != GQAC_OK) {
        gqac_diag_where(&found, "%s", o->folder.name); /* the diag has the file already */
        return keep_refusal(o, status, &found, &t->settings.tokenizer_refusal);
    }
    t->settings.has_tokenizer = true;
    return make_words(o);
}

/* ---- special tokens ------------------------------------------------------ */

static gqac_status wrong(const opener *o, const char *what, const char *rule) {
    gqac_diag_set(o->diag, GQAC_INVALID_MODEL, "%s has the wrong type", what);
    gqac_diag_rule(o->diag, "%s", rule);
    return GQAC_INVALID_MODEL;
}

static const char token_rule[] = "a token is a string, or an object with the string 'content'";

/* The text of a token: "<s>" or {"content": "<s>", ...}; NULL when it is neither. */
static json_t *token_text(json_t *value) {
    json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
    return json_is_string(text) ? text : NULL;
}

static gqac_status set_special(opener *o, const char *key, json_t *value) {
    return json_object_set(o->text->special, key, value) == 0
               ? GQAC_OK
               : gqac_diag_oom(o->diag, "special tokens");
}

static gqac_status read_token(opener *o, const char *key, json_t *value) {
    json_t *text = token_text(value);
    if (!value || json_is_null(value))
        return GQAC_OK;
    if (!text)
        return wrong(o, key, token_rule);
    return set_special(o, key, text);
}

/* `list` NULL: there was no memory for it. */
static gqac_status fill_token_list(opener *o, const char *key, const json_t *value, json_t *list) {
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *text = token_text(json_array_get(value, i));
        if (!text)
            return wrong(o, key, token_rule);
        if (json_array_append(list, text) != 0)
            return gqac_diag_oom(o->diag, "special tokens");
    }
    return set_special(o, key, list);
}

static gqac_status read_token_list(opener *o, const char *key, json_t *value) {
    if (!value || json_is_null(value))
        return GQAC_OK;
    if (!json_is_array(value))
        return wrong(o, key, "it is a list of tokens");
    json_t *list = json_array();
    const gqac_status status = fill_token_list(o, key, value, list);
    json_decref(list);
    return status;
}

static gqac_status read_special(opener *o, json_t *root) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        GQAC_TRY(read_token(o, keys[i], json_object_get(root, keys[i])));
    const char *key = "additional_special_tokens";
    GQAC_TRY(read_token_list(o, key, json_object_get(root, key)));
    /* an object has tokens by name: {"image_token": "<image>"}; a list has no names, and is ignored
     */
    json_t *extra = json_object_get(root, "extra_special_tokens"), *value = NULL;
    if (json_is_object(extra))
        json_object_foreach(extra, key, value) GQAC_TRY(read_token(o, key, value));
    return GQAC_OK;
}

/* ---- template ------------------------------------------------------------ */

/* `name`: the file that it comes from */
static gqac_status make_template(opener *o, const char *name, const char *source, size_t length) {
    gqac_text_settings *settings = &o->text->settings;
    gqac_diag found = {0};
    gqac_status status = jinja_create(source, length, &o->text->template, &found);
    if (status != GQAC_OK) {
        if (status == GQAC_UNSUPPORTED)
            gqac_diag_where(&found, "%s/%s", o->folder.name, name);
        return keep_refusal(o, status, &found, &settings->template_refusal);
    }
    settings->has_template = true;
    jinja_limit(o->text->template, o->limits.template_steps);
    o->text->calls = call_syntax_of(source, length);
    return GQAC_OK;
}

static bool found_template(const opener *o) {
    return o->text->settings.has_template || o->text->settings.template_refusal;
}

/* *source stays NULL if the list has no template for plain chat. */
static gqac_status choose_template(opener *o, const json_t *list, const json_t **source) {
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(list, i);
        const json_t *text = json_object_get(row, "template");
        const char *name = json_string_value(json_object_get(row, "name"));
        if (!name || !json_is_string(text))
            return wrong(o, "chat_template", "each item has the strings 'name' and 'template'");
        if (n == 1 || !strcmp(name, "default"))
            *source = text;
    }
    return GQAC_OK;
}

/* chat_template of an object. */
static gqac_status read_template(opener *o, const char *name, const json_t *root) {
    const json_t *value = json_object_get(root, "chat_template"), *source = NULL;
    if (!value || json_is_null(value))
        return GQAC_OK;
    if (json_is_string(value))
        source = value;
    else if (json_is_array(value))
        GQAC_TRY(choose_template(o, value, &source));
    else
        return wrong(o, "chat_template", "it is a string, or a list of templates with names");
    if (!source)
        return GQAC_OK;
    if (json_string_length(source) > TEMPLATE_BYTES)
        GQAC_FAIL(o->diag, GQAC_LIMIT, "chat_template has %zu bytes; the maximum is %d",
                  json_string_length(source), TEMPLATE_BYTES);
    return make_template(o, name, json_string_value(source), json_string_length(source));
}

static gqac_status read_root(opener *o, const char *name, json_t *root, bool special,
                             bool template) {
    if (!json_is_object(root))
        GQAC_FAIL(o->diag, GQAC_INVALID_MODEL, "the file is not a JSON object");
    if (special)
        GQAC_TRY(read_special(o, root));
    return template ? read_template(o, name, root) : GQAC_OK;
}

static gqac_status read_json_file(opener *o, const gqac_attachment *file, bool special,
                                  bool template) {
    json_t *root = NULL;
    GQAC_TRY(folder_json(file->data, file->bytes, &root, o->diag));
    const gqac_status status = read_root(o, file->name, root, special, template);
    json_decref(root);
    return status;
}

static gqac_status open_template(opener *o) {
    static const char own[] = "chat_template.jinja", json[] = "chat_template.json",
                      config[] = "tokenizer_config.json";
    gqac_attachment file;
    o->text->special = json_object();
    if (!o->text->special)
        return gqac_diag_oom(o->diag, "special tokens");
    GQAC_TRY(take_file(o, own, TEMPLATE_BYTES, &file));
    if (file.data)
        GQAC_TRY(in_file(o, own, make_template(o, own, file.data, file.bytes)));
    if (!found_template(o)) {
        GQAC_TRY(take_file(o, json, CONFIG_BYTES, &file));
        if (file.data)
            GQAC_TRY(in_file(o, json, read_json_file(o, &file, false, true)));
    }
    GQAC_TRY(take_file(o, config, CONFIG_BYTES, &file));
    if (file.data)
        GQAC_TRY(in_file(o, config, read_json_file(o, &file, true, !found_template(o))));
    return GQAC_OK;
}

/* ---- opening ------------------------------------------------------------- */

/* The file that the config of a folder names; NULL: there is no config. */
static gqac_status named_decoder(const folder *f, gqac_arena *arena, const char **decoder,
                                 gqac_diag *diag) {
    gqac_attachment file;
    *decoder = NULL;
    GQAC_TRY(folder_read(f, "genai_config.json", FOLDER_CONFIG_BYTES, arena, &file, diag));
    return file.data ? genai_config_read(file.data, file.bytes, arena, NULL, decoder, diag)
                     : GQAC_OK;
}

/* How a folder shows that a model file is its own. */
typedef enum belonging { NAMED_BY_CONFIG, BESIDE_OTHERS } belonging;

/* A file that a config does not name may lie beside one of these, or in the folder onnx beside it,
 * as exporters write it. */
static bool is_beside_others(const folder *f, const char *name) {
    static const char *const others[] = {"tokenizer.json", "generation_config.json", "config.json"};
    bool found = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        found = found || folder_has(f, others[i]);
    return found && (!strchr(name, '/') || !strncmp(name, "onnx/", strlen("onnx/")));
}

/* Takes the folder `levels` above that of a model file if the file belongs to it. A config that
 * cannot be read names no file. */
static gqac_status try_folder(opener *o, const char *model, int levels, belonging how) {
    const char *name = NULL, *decoder = NULL;
    gqac_diag quiet; /* of a config that cannot be read */
    folder above;
    if (folder_open_above(model, levels, &above, &name, NULL) != GQAC_OK || above.fd < 0)
        return GQAC_OK;
    const gqac_status status = named_decoder(&above, o->text->memory, &decoder, &quiet);
    const bool own = status != GQAC_OK        ? false
                     : how == NAMED_BY_CONFIG ? decoder && !strcmp(decoder, name)
                                              : !decoder && is_beside_others(&above, name);
    if (own)
        o->folder = above;
    else
        folder_close(&above);
    return status == GQAC_NO_MEMORY ? gqac_diag_oom(o->diag, "a model folder") : GQAC_OK;
}

/* The folder of a model file, or the folder above. */
static gqac_status find_folder(opener *o, const char *model) {
    for (int how = NAMED_BY_CONFIG; how <= BESIDE_OTHERS; how++)
        for (int levels = 0; levels < 2 && o->folder.fd < 0 && !o->folder.attached; levels++)
            GQAC_TRY(try_folder(o, model, levels, (belonging)how));
    return GQAC_OK;
}

static gqac_status open_parts(opener *o, const char *model, unsigned parts) {
    gqac_text *t = o->text;
    t->settings = genai_config_defaults;
    t->memory = gqac_arena_create(0);
    t->files = t->memory ? GQAC_ARENA_ARRAY(t->memory, gqac_attachment, FILES) : NULL;
    if (!t->files)
        return gqac_diag_oom(o->diag, "a model folder");
    GQAC_TRY(folder_open_texts(model, t->memory, &o->folder, o->diag));
    GQAC_TRY(find_folder(o, model));
    if (parts & GQAC_TEXT_CONFIG) {
        GQAC_TRY(open_config(o));
        GQAC_TRY(open_hf_configs(o));
    }
    if (parts & GQAC_TEXT_TOKENIZER)
        GQAC_TRY(open_tokenizer(o));
    if (parts & GQAC_TEXT_TEMPLATE)
        GQAC_TRY(open_template(o));
    return GQAC_OK;
}

gqac_status gqac_text_open(const char *model, unsigned parts, gqac_text **text, gqac_diag *diag) {
    return gqac_text_open_within(model, parts, NULL, text, diag);
}

gqac_status gqac_text_open_within(const char *model, unsigned parts, const gqac_limits *limits,
                                  gqac_text **text, gqac_diag *diag) {
    opener o = {.folder = {.fd = -1}, .diag = diag};
    GQAC_TRY(gqac_limits_take(&o.limits, limits, diag));
    o.text = gqac_calloc(1, sizeof *o.text);
    if (!o.text)
        return gqac_diag_oom(diag, "a model folder");
    const gqac_status status = open_parts(&o, model, parts);
    folder_close(&o.folder);
    GQAC_RETURN_MADE(status, o.text, text, gqac_text_free);
}

void gqac_text_free(gqac_text *text) {
    if (!text)
        return;
    free_words(text->words);
    tokenizer_free(text->tokenizer);
    jinja_free(text->template);
    json_decref(text->special);
    gqac_arena_free(text->memory);
    gqac_free(text);
}

const gqac_text_settings *gqac_text_get_settings(const gqac_text *text) {
    return &text->settings;
}

int gqac_text_attachments(const gqac_text *text, const gqac_attachment **files) {
    *files = text->files;
    return text->n_files;
}

/* ---- tokens -------------------------------------------------------------- */

static gqac_status absent(gqac_diag *diag, const char *what, const char *file) {
    gqac_diag_set(diag, GQAC_USAGE, "the model has no %s", what);
    gqac_diag_rule(diag,
                   "it is read from %s in the model folder, beside an .onnx file if no "
                   "genai_config.json is there, or packed in the artefact",
                   file);
    gqac_diag_hint(diag,
                   "pass a model folder with this file or an artefact compiled from it, or token "
                   "ids instead of a text");
    return GQAC_USAGE;
}

static gqac_status refuse(const gqac_diag *refusal, gqac_diag *diag) {
    if (diag)
        *diag = *refusal;
    return refusal->status;
}

gqac_status text_check_tokenizer(const gqac_text *text, gqac_diag *diag) {
    if (text->settings.tokenizer_refusal)
        return refuse(text->settings.tokenizer_refusal, diag);
    return text->tokenizer ? GQAC_OK : absent(diag, "tokenizer", "tokenizer.json");
}

gqac_status gqac_text_tokenize(const gqac_text *text, const char *bytes, size_t length,
                               bool special, int64_t **ids, size_t *n, gqac_diag *diag) {
    const gqac_tokenize_options options = {.size = sizeof options, .special = special};
    return gqac_text_tokenize_with(text, bytes, length, &options, ids, n, diag);
}

gqac_status gqac_text_tokenize_with(const gqac_text *text, const char *bytes, size_t length,
                                    const gqac_tokenize_options *options, int64_t **ids, size_t *n,
                                    gqac_diag *diag) {
    gqac_tokenize_options own = {.special = true};
    GQAC_TRY(gqac_sized_take(&own, sizeof own, options, "gqac_tokenize_options", diag));
    GQAC_TRY(text_check_tokenizer(text, diag));
    const unsigned how =
        (own.special ? TOKENIZER_SPECIAL : 0u) | (own.plain ? TOKENIZER_PLAIN : 0u);
    return tokenizer_encode(text->tokenizer, bytes, length, how, ids, n, diag);
}

gqac_status gqac_text_token_bytes(const gqac_text *text, int64_t id, char **bytes, size_t *length,
                                  bool *special, gqac_diag *diag) {
    bool is_special = false;
    GQAC_TRY(text_check_tokenizer(text, diag));
    GQAC_TRY(tokenizer_bytes(text->tokenizer, id, bytes, length, &is_special, diag));
    if (special)
        *special = is_special;
    return GQAC_OK;
}

gqac_status gqac_text_detokenize(const gqac_text *text, const int64_t *ids, size_t n,
                                 bool skip_special, char **out, size_t *length, gqac_diag *diag) {
    GQAC_TRY(text_check_tokenizer(text, diag));
    return tokenizer_decode(text->tokenizer, ids, n, skip_special, out, length, diag);
}

struct gqac_text_stream {
    tokenizer_stream *stream;
};

gqac_status gqac_text_stream_create(const gqac_text *text, gqac_text_stream **stream,
                                    gqac_diag *diag) {
    GQAC_TRY(text_check_tokenizer(text, diag));
    gqac_text_stream *s = gqac_calloc(1, sizeof *s);
    if (!s)
        return gqac_diag_oom(diag, "a stream of text");
    GQAC_RETURN_MADE(tokenizer_stream_create(text->tokenizer, &s->stream, diag), s, stream,
                     gqac_text_stream_free);
}

void gqac_text_stream_free(gqac_text_stream *stream) {
    if (!stream)
        return;
    tokenizer_stream_free(stream->stream);
    gqac_free(stream);
}

gqac_status gqac_text_stream_push(gqac_text_stream *stream, int64_t id, const char **piece,
                                  size_t *length, gqac_diag *diag) {
    return tokenizer_stream_push(stream->stream, id, piece, length, diag);
}

gqac_status gqac_text_stream_finish(gqac_text_stream *stream, const char **piece, size_t *length,
                                    gqac_diag *diag) {
    return tokenizer_stream_finish(stream->stream, piece, length, diag);
}

/* ---- template ------------------------------------------------------------ */

/* Reasoning in a message has three names. Templates read the first, older ones the second. As
 * transformers does: the first name becomes the first value that is not null, the second also,
 * unless it is there. */
static int alias_reasoning(json_t *message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *given = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !given; i++) {
        given = json_object_get(message, names[i]);
        if (json_is_null(given))
            given = NULL;
    }
    if (!given)
        return 0;
    if (!json_object_get(message, names[1]) && json_object_set(message, names[1], given) != 0)
        return -1;
    return json_object_set(message, names[0], given);
}

/* A deep copy, as threads that share the text must not share reference counts. */
static int add_special(const gqac_text *text, json_t *root) {
    json_t *own = json_deep_copy(text->special);
    const int failed = !own || json_object_update_missing(root, own) != 0;
    json_decref(own);
    return failed;
}

/* As transformers does for every template: variables that the caller left out are none or false,
 * not undefined, and special tokens are variables too. */
static int complete_variables(const gqac_text *text, json_t *root) {
    size_t i = 0;
    json_t *message = NULL, *defaults = json_pack("{s:n, s:n, s:b}", "tools", "documents",
                                                  "add_generation_prompt", 0);
    int failed = !defaults || json_object_update_missing(root, defaults) != 0;
    json_decref(defaults);
    json_array_foreach(json_object_get(root, "messages"), i, message) failed |=
        json_is_object(message) && alias_reasoning(message) != 0;
    return failed || add_special(text, root);
}

static gqac_status read_variables(const gqac_text *text, const char *variables, json_t **root,
                                  gqac_diag *diag) {
    gqac_status status = folder_json(variables, strlen(variables), root, diag);
    if (status == GQAC_INVALID_MODEL) {
        gqac_diag_where(diag, "variables of the template");
        if (diag)
            diag->status = GQAC_INVALID_INPUT;
        return GQAC_INVALID_INPUT;
    }
    GQAC_TRY(status);
    if (!json_is_object(*root))
        status = gqac_diag_set(diag, GQAC_INVALID_INPUT,
                               "the variables of a template are not a JSON object");
    else if (complete_variables(text, *root) != 0)
        status = gqac_diag_oom(diag, "variables of a template");
    if (status != GQAC_OK)
        json_decref(*root);
    return status;
}

gqac_status gqac_text_render(const gqac_text *text, const char *variables, char **out,
                             size_t *length, gqac_diag *diag) {
    gqac_str result = {0};
    json_t *root = NULL;
    if (text->settings.template_refusal)
        return refuse(text->settings.template_refusal, diag);
    if (!text->template)
        return absent(diag, "chat template", "chat_template.jinja or tokenizer_config.json");
    GQAC_TRY(read_variables(text, variables, &root, diag));
    gqac_status status = jinja_render(text->template, root, &result, diag);
    json_decref(root);
    gqac_str_append_n(&result, "", 0); /* an empty text too has its NUL */
    if (status == GQAC_OK && (result.failed || !result.text))
        status = gqac_diag_oom(diag, "a rendered template");
    if (status != GQAC_OK) {
        gqac_str_free(&result);
        return status;
    }
    *out = result.text;
    *length = result.length;
    return GQAC_OK;
}
