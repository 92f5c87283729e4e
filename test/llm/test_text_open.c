/* Opening the parts of a model: from a folder, through links, from an artefact; special tokens and
 * the choice of the template; absent parts, refused parts, and allocations that fail. */
#include "llm/text_rig.h"

#include <sys/stat.h>

#include "base/alloc.h"

/* ---- where the parts come from ------------------------------------------- */

static void test_folder(void) {
    const gqac_attachment *files = NULL;
    clear();
    put("genai_config.json", config);
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    const gqac_text_settings *s = gqac_text_get_settings(text);
    CU_ASSERT(s->has_config && !s->has_tokenizer && !s->has_template && s->vocab_size == 258);
    CU_ASSERT_EQUAL(gqac_text_attachments(text, &files), 1);
    CU_ASSERT_STRING_EQUAL(files[0].name, "genai_config.json");
    CU_ASSERT(files[0].bytes == strlen(config) && !memcmp(files[0].data, config, files[0].bytes));
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, 0), GQAC_OK); /* nothing is requested */
    CU_ASSERT(!gqac_text_get_settings(text)->has_config);
    CU_ASSERT_EQUAL(gqac_text_attachments(text, &files), 0);
    clear();
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK); /* an empty folder */
    CU_ASSERT(!gqac_text_get_settings(text)->has_config);
    CU_ASSERT(gqac_text_get_settings(text)->temperature == 1);
    CU_ASSERT_EQUAL(open_text("/no/such/model", GQAC_TEXT_ALL), GQAC_IO);
}

/* ---- links --------------------------------------------------------------- */

static void link_to(const char *target, const char *name) {
    unlink(path_of(name));
    CU_ASSERT_EQUAL_FATAL(symlink(target, path_of(name)), 0);
}

static gqac_status find_model(const char *folder) {
    char path[512];
    memset(&diag, 0, sizeof diag);
    return gqac_text_model_path(folder, path, sizeof path, &diag);
}

/* Links are followed if they stay in the folder: for config, template and graph alike. */
static void test_links(void) {
    clear();
    put("real.json", config);
    put("model.onnx", "");
    link_to("real.json", "genai_config.json");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT(gqac_text_get_settings(text)->has_config);
    CU_ASSERT_EQUAL(find_model(scratch), GQAC_OK);
    link_to("/etc/passwd", "chat_template.jinja");
    CU_ASSERT_EQUAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_INVALID_MODEL);
    CU_ASSERT(strstr(diag.what, "leads out") && *diag.hint);
    link_to("nothing", "chat_template.jinja");
    CU_ASSERT_EQUAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "leads nowhere"));
    link_to("real.json", "model.onnx");
    CU_ASSERT_EQUAL(find_model(scratch), GQAC_OK);
    link_to("/etc/passwd", "model.onnx");
    CU_ASSERT_EQUAL(find_model(scratch), GQAC_INVALID_MODEL);
    CU_ASSERT(strstr(diag.what, "'model.onnx' is a symbolic link that leads out") && *diag.hint);
    clear();
    put("encoder.onnx", "");
    link_to("/etc/passwd", "decoder.onnx");
    gqac_seq2seq *model = NULL;
    CU_ASSERT_EQUAL(gqac_seq2seq_open(scratch, NULL, &model, &diag), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "'decoder.onnx' is a symbolic link that leads out"));
    unlink(path_of("encoder.onnx"));
    unlink(path_of("decoder.onnx"));
    unlink(path_of("real.json"));
}

/* A Hugging Face cache: the files of a snapshot are links to blobs in a folder next to all
 * snapshots. */
static void test_hub_cache(void) {
    static const char *const made[] = {"hub", "hub/blobs", "hub/snapshots", "hub/snapshots/1",
                                       "hub/snapshots/1/onnx"};
    static const char *const links[] = {"genai_config.json", "chat_template.jinja",
                                        "onnx/model.onnx"};
    char snapshot[300], name[300], target[300];
    clear();
    for (int i = 0; i < 5; i++)
        CU_ASSERT_EQUAL(mkdir(path_of(made[i]), 0700), 0);
    put("hub/blobs/0", "{\"model\": {\"decoder\": {\"filename\": \"onnx/model.onnx\"}}}");
    put("hub/blobs/1", "{{ messages }}");
    put("hub/blobs/2", "");
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "hub/snapshots/1/%s", links[i]);
        snprintf(target, sizeof target, "%s../../blobs/%d", i == 2 ? "../" : "", i);
        link_to(target, name);
    }
    snprintf(snapshot, sizeof snapshot, "%s", path_of("hub/snapshots/1"));
    CU_ASSERT_EQUAL_FATAL(open_text(snapshot, GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT(gqac_text_get_settings(text)->has_config);
    CU_ASSERT(gqac_text_get_settings(text)->has_template);
    CU_ASSERT_EQUAL(find_model(snapshot), GQAC_OK);
    CU_ASSERT_EQUAL(open_text(path_of("hub/snapshots/1/onnx/model.onnx"), GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT(text && gqac_text_get_settings(text)->has_template);
    link_to("../../../real.json", "hub/snapshots/1/tokenizer_config.json"); /* next to the cache */
    put("real.json", "{}");
    CU_ASSERT_EQUAL(open_text(snapshot, GQAC_TEXT_ALL), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "leads out"));
    unlink(path_of("hub/snapshots/1/tokenizer_config.json"));
    CU_ASSERT_EQUAL(rename(path_of("hub/blobs"), path_of("hub/others")), 0); /* no longer a cache */
    CU_ASSERT_EQUAL(open_text(snapshot, GQAC_TEXT_ALL), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(rename(path_of("hub/others"), path_of("hub/blobs")), 0);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "hub/snapshots/1/%s", links[i]);
        unlink(path_of(name));
        snprintf(name, sizeof name, "hub/blobs/%d", i);
        unlink(path_of(name));
    }
    for (int i = 5; i-- > 0;)
        rmdir(path_of(made[i]));
    unlink(path_of("real.json"));
}

static void compile_to(const char *model, const char *path) {
    const gqac_attachment *files = NULL;
    gqac_options options;
    CU_ASSERT_EQUAL_FATAL(open_text(model, GQAC_TEXT_ALL), GQAC_OK);
    gqac_options_init(&options);
    options.n_attachments = gqac_text_attachments(text, &files);
    options.attachments = files;
    char decoder[512];
    CU_ASSERT_EQUAL_FATAL(gqac_text_model_path(model, decoder, sizeof decoder, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(gqac_compile(decoder, &options, GQAC_EMIT_GQAC, path, &diag), GQAC_OK);
}

/* An artefact provides everything that its folder provides. */
static void test_artefact(void) {
    const gqac_attachment *files = NULL;
    int64_t *ids = NULL;
    size_t n = 0;
    clear();
    compile_to(unit_path("test/models/llama"), path_of("a.gqac"));
    put("genai_config.json", "{"); /* files next to an artefact are not read */
    CU_ASSERT_EQUAL_FATAL(open_text(path_of("a.gqac"), GQAC_TEXT_ALL), GQAC_OK);
    const gqac_text_settings *s = gqac_text_get_settings(text);
    CU_ASSERT(s->has_config && s->has_tokenizer && s->bos == 256 && s->context_length == 640);
    CU_ASSERT_EQUAL(gqac_text_attachments(text, &files), 3);
    CU_ASSERT_EQUAL_FATAL(gqac_text_tokenize(text, "abc", 3, true, &ids, &n, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(n, 3);
    gqac_release(ids);
    CU_ASSERT_EQUAL_FATAL(open_text(path_of("a.gqac"), GQAC_TEXT_CONFIG), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_text_attachments(text, &files), 1);
}

/* Every config of the tree is accepted, and reports what its model has. */
static void test_real(void) {
    static const char *const names[] = {
        "gemma2", "llama", "llama-fp16", "llama-int4-acc1", "llama-int4-acc4", "mistral",
        "phi3",   "qwen2", "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", unit_path("test/models"), names[i]);
        CU_ASSERT_EQUAL_FATAL(open_text(path, GQAC_TEXT_ALL), GQAC_OK);
        const gqac_text_settings *s = gqac_text_get_settings(text);
        CU_ASSERT(s->has_config && s->vocab_size == 258 && s->bos == 256 && s->n_eos == 1);
        CU_ASSERT(s->eos[0] == 257 && !s->do_sample && s->n_io_names == 0 && s->has_tokenizer);
    }
}

/* ---- template and special tokens ----------------------------------------- */

/* The output of the template; if it fails, "?" and the status. */
static const char *render(const char *variables) {
    static char out[4096];
    char *result = NULL;
    size_t length = 0;
    const gqac_status status = gqac_text_render(text, variables, &result, &length, &diag);
    if (status != GQAC_OK) {
        snprintf(out, sizeof out, "?%s", gqac_status_name(status));
        return out;
    }
    CU_ASSERT_EQUAL(strlen(result), length);
    snprintf(out, sizeof out, "%s", result);
    gqac_release(result);
    return out;
}

static void test_template_sources(void) {
    clear();
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(render("{}"), "?USAGE");
    CU_ASSERT(*diag.hint != 0);
    put("tokenizer_config.json", "{\"chat_template\": \"config\"}");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(render("{}"), "config");
    put("chat_template.json", "{\"chat_template\": \"json\"}");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(render("{}"), "json");
    put("chat_template.jinja", "jinja");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(render("{}"), "jinja");
    put("chat_template.jinja", "");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(render("{}"), "");
}

static void test_template_list(void) {
    static const struct {
        const char *list, *out;
    } rows[] = {
        {"[{\"name\": \"tool_use\", \"template\": \"t\"}, {\"name\": \"default\", \"template\": "
         "\"d\"}]",
         "d"},
        {"[{\"name\": \"tool_use\", \"template\": \"t\"}]", "t"},
        {"[{\"name\": \"a\", \"template\": \"t\"}, {\"name\": \"b\", \"template\": \"u\"}]",
         "?USAGE"},
        {"[]", "?USAGE"},
        {"null", "?USAGE"},
    };
    clear();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[512];
        snprintf(json, sizeof json, "{\"chat_template\": %s}", rows[i].list);
        put("tokenizer_config.json", json);
        CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_TEMPLATE), GQAC_OK);
        CU_ASSERT_STRING_EQUAL(render("{}"), rows[i].out);
    }
}

static void test_special_tokens(void) {
    clear();
    put("tokenizer_config.json",
        "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\", \"lstrip\": false},"
        "\"pad_token\": null, \"unk_token\": {\"content\": \"\"}, \"add_bos_token\": true,"
        "\"additional_special_tokens\": [\"<a>\", {\"content\": \"<b>\"}],"
        "\"extra_special_tokens\": {\"image_token\": \"<image>\"}}");
    put("chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}|"
                               "{{ additional_special_tokens[1] }}|{{ image_token }}");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_TEMPLATE), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(render("{}"), "<s></s>|<b>|<image>");
    CU_ASSERT_STRING_EQUAL(render("{\"bos_token\": \"own\"}"), "own</s>|<b>|<image>");
    CU_ASSERT_STRING_EQUAL(render("{}"), "<s></s>|<b>|<image>"); /* nothing was changed */
    put("chat_template.jinja",
        "{{ tools is none }} {{ documents is none }} {{ add_generation_prompt is false }}"
        "{% for m in messages %} {{ m.reasoning_content }}/{{ m.thinking }}{% endfor %}");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_TEMPLATE), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(render("{}"), "True True True");
    CU_ASSERT_STRING_EQUAL(
        render("{\"tools\": [], \"documents\": 1, \"add_generation_prompt\": true, \"messages\":"
               "[{\"reasoning\": \"r\"}, {\"thinking\": \"t\", \"reasoning_content\": null},"
               "{\"thinking\": \"t\", \"reasoning_content\": \"c\"}, {}, 7]}"),
        "False False False r/r t/t c/t / /");
    static const char *const wrong[] = {
        "", "[]", "3", "{", "{\"a\": 1, \"a\": 2}", "{\"a\": NaN}", "{\"a\": \"\xff\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CU_ASSERT_STRING_EQUAL(render(wrong[i]), "?INVALID_INPUT");
        CU_ASSERT_EQUAL(diag.status, GQAC_INVALID_INPUT);
    }
}

static void test_wrong_files(void) {
    static const struct {
        const char *file, *content;
        gqac_status status;
    } rows[] = {
        {"tokenizer_config.json", "", GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "[]", GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "{\"chat_template\": 3}", GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "{\"chat_template\": {}}", GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "{\"chat_template\": [3]}", GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\"}]}",
         GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "{\"chat_template\": [{\"name\": 1, \"template\": \"\"}]}",
         GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "{\"bos_token\": 3}", GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "{\"eos_token\": {\"content\": 3}}", GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "{\"additional_special_tokens\": \"x\"}", GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "{\"additional_special_tokens\": [3]}", GQAC_INVALID_MODEL},
        {"tokenizer_config.json", "{\"extra_special_tokens\": {\"a\": 3}}", GQAC_INVALID_MODEL},
        {"chat_template.json", "{\"chat_template\": [[]]}", GQAC_INVALID_MODEL},
        {"chat_template.jinja", "{% if %}", GQAC_INVALID_MODEL},
        {"chat_template.jinja", "{% nonsense %}", GQAC_INVALID_MODEL},
        {"tokenizer.json", "{}", GQAC_INVALID_MODEL},
        {"tokenizer.json", "", GQAC_INVALID_MODEL},
        {"genai_config.json", "{}", GQAC_INVALID_MODEL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        clear();
        put(rows[i].file, rows[i].content);
        const gqac_status status = open_text(scratch, GQAC_TEXT_ALL);
        if (status != rows[i].status || !strstr(diag.where, rows[i].file) || !*diag.what) {
            printf("%s '%s': %s '%s' (%s)\n", rows[i].file, rows[i].content,
                   gqac_status_name(status), diag.what, diag.where);
            CU_FAIL("a wrong file is not refused by name");
        }
    }
    clear();
    CU_ASSERT_EQUAL(symlink("/etc/passwd", path_of("chat_template.jinja")), 0);
    CU_ASSERT_EQUAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "symbolic link"));
}

/* ---- tokens -------------------------------------------------------------- */

static void test_absent_tokenizer(void) {
    int64_t *ids = NULL;
    size_t n = 0;
    char *out = NULL;
    gqac_text_stream *stream = NULL;
    clear();
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_text_tokenize(text, "a", 1, true, &ids, &n, &diag), GQAC_USAGE);
    CU_ASSERT(strstr(diag.what, "tokenizer") && *diag.hint);
    CU_ASSERT_EQUAL(gqac_text_detokenize(text, &(int64_t){1}, 1, true, &out, &n, &diag),
                    GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_text_stream_create(text, &stream, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_text_tokenize_with(text, "a", 1, NULL, &ids, &n, &diag), GQAC_USAGE);
    CU_ASSERT_EQUAL(gqac_text_token_bytes(text, 1, &out, &n, NULL, &diag), GQAC_USAGE);
    gqac_text_stream_free(NULL);
}

/* A special token spelled in a text: read as the token, or as text; and its bytes. */
static void test_special_in_text(void) {
    static const char words[] = "a<s>";
    gqac_tokenize_options options;
    gqac_tokenize_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(open_text(unit_path("test/models/llama"), GQAC_TEXT_TOKENIZER), GQAC_OK);
    for (int plain = 0; plain < 2; plain++) {
        int64_t *ids = NULL;
        size_t n = 0, n_special = 0, at = 0;
        options.special = false;
        options.plain = plain;
        CU_ASSERT_EQUAL_FATAL(gqac_text_tokenize_with(text, words, 4, &options, &ids, &n, &diag),
                              GQAC_OK);
        for (size_t i = 0; i < n; i++) {
            char *bytes = NULL;
            size_t length = 0;
            bool special = false;
            CU_ASSERT_EQUAL_FATAL(
                gqac_text_token_bytes(text, ids[i], &bytes, &length, &special, &diag), GQAC_OK);
            CU_ASSERT(at + length <= 4 && !memcmp(words + at, bytes, length) && !bytes[length]);
            at += length;
            n_special += special;
            gqac_release(bytes);
        }
        CU_ASSERT(at == 4 && n_special == !plain);
        gqac_release(ids);
    }
    char *bytes = NULL;
    size_t length = 0;
    CU_ASSERT_EQUAL(gqac_text_token_bytes(text, -1, &bytes, &length, NULL, &diag),
                    GQAC_OUT_OF_RANGE);
    CU_ASSERT_PTR_NULL(bytes);
}

static void copy(const char *from, const char *name) {
    char buffer[65536];
    FILE *f = fopen(from, "rb"), *g = fopen(path_of(name), "wb");
    CU_ASSERT_FATAL(f && g);
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;)
        fwrite(buffer, 1, n, g);
    fclose(f);
    fclose(g);
}

/* A tokenizer with more tokens than the model: the result does not depend on whether the config was
 * opened. */
static void test_beyond_vocabulary(void) {
    int64_t *ids = NULL;
    size_t n = 0;
    const char *piece = NULL;
    gqac_text_stream *stream = NULL;
    clear();
    copy(unit_path("test/models/llama/tokenizer.json"), "tokenizer.json");
    put("genai_config.json",
        "{\"model\": {\"vocab_size\": 50, \"decoder\": {\"filename\": \"m.onnx\"}}}");
    for (unsigned parts = GQAC_TEXT_TOKENIZER; parts <= GQAC_TEXT_ALL; parts++) {
        if (!(parts & GQAC_TEXT_TOKENIZER))
            continue;
        CU_ASSERT_EQUAL_FATAL(open_text(scratch, parts), GQAC_OK);
        CU_ASSERT_EQUAL_FATAL(gqac_text_tokenize(text, "!z", 2, true, &ids, &n, &diag), GQAC_OK);
        CU_ASSERT(n == 2 && ids[0] == 0 && ids[1] > 50);
        gqac_release(ids);
    }
    CU_ASSERT_EQUAL_FATAL(gqac_text_stream_create(text, &stream, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_text_stream_push(stream, 0, &piece, &n, &diag), GQAC_OK);
    CU_ASSERT(n == 1 && *piece == '!');
    CU_ASSERT_EQUAL(gqac_text_stream_finish(stream, &piece, &n, &diag), GQAC_OK);
    gqac_text_stream_free(stream);
}

/* ---- what gqac does not support ------------------------------------------ */

static const char refused[] = "{\"model\": {\"type\": \"WordPiece\", \"vocab\": []}}";

/* True if the message names the problem and the place, as UNSUPPORTED. */
static bool tells(const gqac_diag *d, const char *what, const char *where) {
    return d && d->status == GQAC_UNSUPPORTED && strstr(d->what, what) && strstr(d->where, where);
}

/* A refused tokenizer is remembered, and any call that needs it fails. */
static void test_refused_tokenizer(void) {
    const gqac_attachment *files = NULL;
    int64_t *ids = NULL;
    size_t n = 0;
    char *out = NULL;
    gqac_text_stream *stream = NULL;
    clear();
    put("tokenizer.json", refused);
    put("chat_template.jinja", "fine");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT(!*diag.what);
    const gqac_text_settings *s = gqac_text_get_settings(text);
    CU_ASSERT(!s->has_tokenizer && s->has_template && !s->template_refusal);
    CU_ASSERT(tells(s->tokenizer_refusal, "WordPiece", "tokenizer.json"));
    CU_ASSERT_EQUAL_FATAL(gqac_text_attachments(text, &files), 2);
    CU_ASSERT(files[0].bytes == strlen(refused) && !memcmp(files[0].data, refused, files[0].bytes));
    CU_ASSERT_EQUAL(gqac_text_tokenize(text, "a", 1, true, &ids, &n, &diag), GQAC_UNSUPPORTED);
    CU_ASSERT(!memcmp(&diag, s->tokenizer_refusal, sizeof diag) && !ids);
    diag = (gqac_diag){0};
    CU_ASSERT_EQUAL(gqac_text_detokenize(text, &(int64_t){1}, 1, true, &out, &n, &diag),
                    GQAC_UNSUPPORTED);
    CU_ASSERT(tells(&diag, "WordPiece", scratch) && !out);
    diag = (gqac_diag){0};
    CU_ASSERT_EQUAL(gqac_text_stream_create(text, &stream, &diag), GQAC_UNSUPPORTED);
    CU_ASSERT(tells(&diag, "WordPiece", scratch) && !stream);
    CU_ASSERT_EQUAL(gqac_text_stream_create(text, &stream, NULL), GQAC_UNSUPPORTED);
    CU_ASSERT_STRING_EQUAL(render("{}"), "fine");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_TEMPLATE), GQAC_OK);
    CU_ASSERT_PTR_NULL(gqac_text_get_settings(text)->tokenizer_refusal); /* it was not requested */
    gqac_text_free(text);
    CU_ASSERT_EQUAL(gqac_text_open(scratch, GQAC_TEXT_ALL, &text, NULL), GQAC_OK);
}

/* A refused template is not replaced by any other one. */
static void test_refused_template(void) {
    static const char source[] = "{% include 'x' %}", config_file[] = "tokenizer_config.json";
    const gqac_attachment *files = NULL;
    clear();
    put(config_file, "{\"chat_template\": \"config\", \"bos_token\": \"<s>\"}");
    put("chat_template.json", "{\"chat_template\": \"json\"}");
    put("chat_template.jinja", source);
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    const gqac_text_settings *s = gqac_text_get_settings(text);
    CU_ASSERT(!s->has_template && tells(s->template_refusal, "include", "chat_template.jinja"));
    CU_ASSERT_STRING_EQUAL(render("{}"), "?UNSUPPORTED");
    CU_ASSERT(!memcmp(&diag, s->template_refusal, sizeof diag));
    CU_ASSERT_EQUAL_FATAL(gqac_text_attachments(text, &files), 2);
    CU_ASSERT_STRING_EQUAL(files[0].name, "chat_template.jinja");
    CU_ASSERT(files[0].bytes == strlen(source) && !memcmp(files[0].data, source, files[0].bytes));
    unlink(path_of("chat_template.jinja"));
    unlink(path_of("chat_template.json"));
    put(config_file, "{\"chat_template\": \"{{ a | no_such_filter }}\", \"bos_token\": \"<s>\"}");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_OK);
    CU_ASSERT(tells(gqac_text_get_settings(text)->template_refusal, "no_such_filter", config_file));
    put(config_file, "{\"chat_template\": \"{% include 'x' %}\", \"bos_token\": 3}");
    CU_ASSERT_EQUAL(open_text(scratch, GQAC_TEXT_ALL), GQAC_INVALID_MODEL); /* still an error */
}

/* ---- memory -------------------------------------------------------------- */

/* Some allocations are not essential (shrinking a table), but few. */
static void fail_each(const char *model, size_t least) {
    gqac_alloc_fail_at(0, 0);
    CU_ASSERT_EQUAL_FATAL(open_text(model, GQAC_TEXT_ALL), GQAC_OK);
    const size_t calls = gqac_alloc_calls();
    gqac_text_free(text);
    text = NULL;
    const size_t live = gqac_alloc_live();
    size_t refusals = 0;
    for (size_t n = 1; n <= calls; n++) {
        memset(&diag, 0, sizeof diag);
        gqac_alloc_fail_at(n, 0);
        const gqac_status status = gqac_text_open(model, GQAC_TEXT_ALL, &text, &diag);
        gqac_alloc_fail_at(0, 0);
        gqac_text_free(text);
        text = NULL;
        refusals += status == GQAC_NO_MEMORY && *diag.what;
        if ((status != GQAC_OK && status != GQAC_NO_MEMORY) || gqac_alloc_live() != live) {
            printf("allocation %zu: %s '%s'\n", n, gqac_status_name(status), diag.what);
            CU_FAIL("the failure of an allocation is not reported cleanly");
            return;
        }
    }
    printf("  %zu of %zu allocations failed one by one\n", refusals, calls);
    CU_ASSERT(calls >= least && refusals + 2 >= calls);
}

static void test_allocations(void) {
    clear();
    fail_each(unit_path("test/models/llama"), 5);
    fail_each(unit_path("test/models/llama/model.onnx"), 5);
    put("genai_config.json",
        "{\"model\": {\"decoder\": {\"filename\": \"m\", \"num_hidden_layers\": 20, \"inputs\":"
        "{\"input_ids\": \"t\", \"past_key_names\": \"k%d\"}}}}");
    put("tokenizer_config.json",
        "{\"chat_template\": \"{{ bos_token }}\", \"bos_token\": \"<s>\"}");
    fail_each(scratch, 4);
    put("tokenizer.json", refused);
    put("chat_template.jinja", "{% include 'x' %}");
    fail_each(scratch, 5);
    clear();
    compile_to(unit_path("test/models/llama"), path_of("a.gqac"));
    fail_each(path_of("a.gqac"), 5);
}

static const unit_case cases[] = {
    {"a folder", test_folder},
    {"links stay in the folder", test_links},
    {"a Hugging Face cache", test_hub_cache},
    {"an artefact", test_artefact},
    {"the test models", test_real},
    {"where the template comes from", test_template_sources},
    {"lists of templates", test_template_list},
    {"special tokens", test_special_tokens},
    {"wrong files are refused by name", test_wrong_files},
    {"without a tokenizer", test_absent_tokenizer},
    {"special tokens in a text, bytes of a token", test_special_in_text},
    {"tokens that the model does not have", test_beyond_vocabulary},
    {"a tokenizer that is refused", test_refused_tokenizer},
    {"a template that is refused", test_refused_template},
    {"allocations that fail", test_allocations},
};

int main(int argc, char **argv) {
    return run_text(cases, sizeof cases / sizeof *cases, argc, argv);
}
