/* Model folders: which file genai_config.json names, its settings, and what is refused. */
#include "unit.h"

#include <gqac/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llm/llm.h"

static char scratch[] = "/tmp/gqac-config-XXXXXX";

static void write_config(const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/genai_config.json", scratch);
    FILE *f = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(text, f);
    fclose(f);
}

static void test_names_decoder(void) {
    gqac_diag diag;
    char path[512], expected[512];
    write_config("{\"model\": {\"decoder\": {\"filename\": \"decoder.onnx\"}}}");
    CU_ASSERT_EQUAL(gqac_text_model_path(scratch, path, sizeof path, &diag), GQAC_OK);
    snprintf(expected, sizeof expected, "%s/decoder.onnx", scratch);
    CU_ASSERT_STRING_EQUAL(path, expected);
    write_config("{\"model\": {\"decoder\": {\"filename\": \"onnx/cpu/decoder.onnx\"}}}");
    CU_ASSERT_EQUAL(gqac_text_model_path(scratch, path, sizeof path, &diag), GQAC_OK);
    snprintf(expected, sizeof expected, "%s/onnx/cpu/decoder.onnx", scratch);
    CU_ASSERT_STRING_EQUAL(path, expected);
    CU_ASSERT_EQUAL(gqac_text_model_path("/no/such/model.onnx", path, sizeof path, &diag), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(path, "/no/such/model.onnx"); /* the caller opens a file itself */
    CU_ASSERT_EQUAL(gqac_text_model_path(scratch, path, 8, &diag), GQAC_INVALID_MODEL);
}

static void test_refused(void) {
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "null",
        "{}",
        "{\"model\": 3}",
        "{\"model\": {\"decoder\": []}}",
        "{\"model\": {\"decoder\": {}}}",
        "{\"model\": {\"decoder\": {\"filename\": 7}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"..\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"../model.onnx\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"onnx/../../model.onnx\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"onnx/..\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"onnx/./model.onnx\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"onnx//model.onnx\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"onnx/\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"/etc/passwd\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"a\\\\b\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"a\\u0000b\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"a.onnx\", \"filename\": \"b.onnx\"}}}",
        "{\"model\": {\"decoder\": {\"filename\": \"a.onnx\"}}} trailing",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gqac_diag diag = {0};
        char path[512];
        write_config(bad[i]);
        CU_ASSERT_EQUAL(gqac_text_model_path(scratch, path, sizeof path, &diag),
                        GQAC_INVALID_MODEL);
        CU_ASSERT(*diag.what && strstr(diag.where, "genai_config.json"));
    }
}

static void test_absent(void) {
    gqac_diag diag = {0};
    char path[512], config[256];
    snprintf(config, sizeof config, "%s/genai_config.json", scratch);
    unlink(config);
    CU_ASSERT_EQUAL(gqac_text_model_path(scratch, path, sizeof path, &diag), GQAC_IO);
    const char *folder = strstr(diag.where, scratch);
    const char *position = folder ? folder + strlen(scratch) : diag.where;
    CU_ASSERT(*diag.hint && !strstr(position, "-1")); /* not "line -1" */
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "genai_config.json"));
    CU_ASSERT_EQUAL(symlink("/etc/hostname", config), 0);
    CU_ASSERT_EQUAL(gqac_text_model_path(scratch, path, sizeof path, &diag), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "symbolic link"));
    unlink(config);
    CU_ASSERT_EQUAL(mkdir(config, 0700), 0);
    CU_ASSERT_EQUAL(gqac_text_model_path(scratch, path, sizeof path, &diag), GQAC_IO);
    rmdir(config);
    CU_ASSERT_EQUAL(mkfifo(config, 0600), 0); /* must not wait for a writer */
    CU_ASSERT_EQUAL(gqac_text_model_path(scratch, path, sizeof path, &diag), GQAC_IO);
    unlink(config);
    rmdir(scratch);
}

/* ---- settings ------------------------------------------------------------ */

/* The arena of the last config. */
static gqac_arena *arena;

static gqac_status read_text(const char *json, gqac_text_settings *s, gqac_diag *diag) {
    const char *decoder = NULL;
    gqac_arena_free(arena);
    arena = gqac_arena_create(0);
    memset(diag, 0, sizeof *diag);
    return genai_config_read(json, strlen(json), arena, s, &decoder, diag);
}

/* Reads a config with these additional members of model, decoder and search. */
static gqac_status read_parts(const char *model, const char *decoder, const char *search,
                              gqac_text_settings *s, gqac_diag *diag) {
    static char json[8192];
    snprintf(json, sizeof json,
             "{\"model\": {\"decoder\": {\"filename\": \"m.onnx\"%s}%s}, \"search\": {%s}}",
             decoder, model, search);
    return read_text(json, s, diag);
}

static void test_settings(void) {
    gqac_text_settings s;
    gqac_diag diag;
    CU_ASSERT_EQUAL(read_parts(", \"vocab_size\": 300, \"context_length\": 64, \"bos_token_id\": 7,"
                               "\"pad_token_id\": null, \"eos_token_id\": [299, 3]",
                               "",
                               "\"do_sample\": true, \"temperature\": 0.5, \"top_p\": 0.25,"
                               "\"repetition_penalty\": 2, \"top_k\": 9, \"min_length\": 4,"
                               "\"max_length\": 64, \"num_beams\": 1, \"no_repeat_ngram_size\": 3",
                               &s, &diag),
                    GQAC_OK);
    CU_ASSERT(s.vocab_size == 300 && s.context_length == 64 && s.bos == 7 && s.pad == -1);
    CU_ASSERT(s.n_eos == 2 && s.eos[0] == 299 && s.eos[1] == 3);
    CU_ASSERT(s.do_sample && s.temperature == 0.5 && s.top_p == 0.25);
    CU_ASSERT(s.repetition_penalty == 2 && s.top_k == 9 && s.min_length == 4);
    CU_ASSERT(s.max_length == 64 && s.no_repeat_ngram_size == 3 && s.n_io_names == 0);
    CU_ASSERT_EQUAL(
        read_parts(", \"eos_token_id\": 2, \"bos_token_id\": -1", "", "\"top_p\": 0", &s, &diag),
        GQAC_OK);
    CU_ASSERT(s.n_eos == 1 && s.eos[0] == 2 && s.bos == -1 && s.pad == -1 && !s.vocab_size);
    CU_ASSERT(!s.do_sample && s.temperature == 1 && s.top_p == 1 && s.repetition_penalty == 1);
    CU_ASSERT(s.top_k == 50 && !s.context_length && !s.max_length); /* 50: ONNX Runtime's */
    CU_ASSERT_EQUAL(read_parts(", \"eos_token_id\": null", "", "", &s, &diag), GQAC_OK);
    CU_ASSERT(s.n_eos == 0);
}

static const char *file_name_of(const gqac_text_settings *s, const char *name) {
    for (int i = 0; i < s->n_io_names; i++)
        if (!strcmp(s->io_names[i].name, name))
            return s->io_names[i].file_name;
    return "";
}

static void test_names(void) {
    gqac_text_settings s;
    gqac_diag diag;
    CU_ASSERT_EQUAL(
        read_parts("",
                   ", \"num_hidden_layers\": 3, \"inputs\": {\"input_ids\": \"tokens\","
                   "\"attention_mask\": \"attention_mask\", \"past_key_names\": \"k.%d\","
                   "\"past_value_names\": \"%dv\"}, \"outputs\": {\"logits\": \"scores\","
                   "\"present_key_names\": \"new %d key\"}",
                   "", &s, &diag),
        GQAC_OK);
    CU_ASSERT_EQUAL(s.n_io_names, 11);
    CU_ASSERT_STRING_EQUAL(file_name_of(&s, "input_ids"), "tokens");
    CU_ASSERT_STRING_EQUAL(file_name_of(&s, "logits"), "scores");
    CU_ASSERT_STRING_EQUAL(file_name_of(&s, "past_key_values.2.key"), "k.2");
    CU_ASSERT_STRING_EQUAL(file_name_of(&s, "past_key_values.0.value"), "0v");
    CU_ASSERT_STRING_EQUAL(file_name_of(&s, "present.1.key"), "new 1 key");
    CU_ASSERT_STRING_EQUAL(file_name_of(&s, "attention_mask"), "");
}

/* ", \"inputs\": {...past_key_names: PATTERN}" */
static gqac_status read_pattern(const char *pattern, int64_t layers, gqac_diag *diag) {
    gqac_text_settings s;
    char decoder[2048];
    snprintf(decoder, sizeof decoder,
             ", \"num_hidden_layers\": %lld, \"inputs\": {\"past_key_names\": \"%s\"}",
             (long long)layers, pattern);
    return read_parts("", decoder, "", &s, diag);
}

static void test_patterns(void) {
    static const char *const bad[] = {"",    "k",    "%d%d", "%s",    "%n",    "k%",
                                      "%%",  "%%d",  "%5d",  "%d%%",  "%d %s", "%D",
                                      "%ld", "%1$d", "%hhd", "%d.%n", "%*d%d", "%i"};
    gqac_diag diag;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CU_ASSERT_EQUAL(read_pattern(bad[i], 2, &diag), GQAC_INVALID_MODEL);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "past_key_names"));
    }
    CU_ASSERT_EQUAL(read_pattern("%d", 2, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(read_pattern("a%d", 4096, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(read_pattern("a%d", 4097, &diag), GQAC_LIMIT);
    CU_ASSERT_EQUAL(read_pattern("a%d", 1000000000, &diag), GQAC_LIMIT);
    CU_ASSERT_EQUAL(read_pattern("a%d", -1, &diag), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(read_pattern("a%d", 0, &diag), GQAC_INVALID_MODEL); /* layers are missing */
    CU_ASSERT_EQUAL(read_pattern("past_key_values.%d.key", 0, &diag), GQAC_OK);
}

/* The letter says to which part the JSON belongs: 'm' model, 'd' decoder, 's' search. */
static const struct {
    char part;
    const char *member, *word;
    gqac_status status;
} refused[] = {
    {'m', "\"vocab_size\": -1", "model.vocab_size", GQAC_INVALID_MODEL},
    {'m', "\"vocab_size\": 3000000000", "model.vocab_size", GQAC_INVALID_MODEL},
    {'m', "\"vocab_size\": 1e3", "model.vocab_size", GQAC_INVALID_MODEL},
    {'m', "\"context_length\": \"8\"", "model.context_length", GQAC_INVALID_MODEL},
    {'m', "\"context_length\": 99999999999999999", "model.context_length", GQAC_INVALID_MODEL},
    {'m', "\"bos_token_id\": \"<s>\"", "model.bos_token_id", GQAC_INVALID_MODEL},
    {'m', "\"vocab_size\": 9, \"bos_token_id\": 9", "model.bos_token_id is 9", GQAC_INVALID_MODEL},
    {'m', "\"vocab_size\": 9, \"pad_token_id\": 10", "model.pad_token_id is 10",
     GQAC_INVALID_MODEL},
    {'m', "\"vocab_size\": 9, \"eos_token_id\": 10", "model.eos_token_id is 10",
     GQAC_INVALID_MODEL},
    {'m', "\"vocab_size\": 9, \"eos_token_id\": [8, -1]", "model.eos_token_id is -1",
     GQAC_INVALID_MODEL},
    {'m', "\"eos_token_id\": -2", "model.eos_token_id is -2", GQAC_INVALID_MODEL},
    {'m', "\"eos_token_id\": [[1]]", "model.eos_token_id", GQAC_INVALID_MODEL},
    {'m', "\"eos_token_id\": 2.0", "model.eos_token_id", GQAC_INVALID_MODEL},
    {'m', "\"eos_token_id\": {}", "model.eos_token_id", GQAC_INVALID_MODEL},
    {'m', "\"eos_token_id\": true", "model.eos_token_id", GQAC_INVALID_MODEL},
    {'m', "\"eos_token_id\": 99999999999999999999", "JSON", GQAC_INVALID_MODEL},
    {'m', "\"vision\": {\"filename\": \"v.onnx\"}", "model.vision", GQAC_UNSUPPORTED},
    {'m', "\"speech\": {\"filename\": \"s.onnx\"}", "model.speech", GQAC_UNSUPPORTED},
    {'m', "\"encoder\": {\"filename\": \"e.onnx\"}", "model.encoder", GQAC_UNSUPPORTED},
    {'m', "\"embedding\": {\"filename\": \"e.onnx\"}", "model.embedding", GQAC_UNSUPPORTED},
    {'d', "\"pipeline\": [{\"a\": {}}]", "model.decoder.pipeline", GQAC_UNSUPPORTED},
    {'d', "\"num_hidden_layers\": 2.5", "num_hidden_layers", GQAC_INVALID_MODEL},
    {'d', "\"inputs\": []", "model.decoder.inputs", GQAC_INVALID_MODEL},
    {'d', "\"inputs\": {\"input_ids\": 4}", "model.decoder.inputs.input_ids", GQAC_INVALID_MODEL},
    {'d', "\"outputs\": {\"logits\": \"\"}", "model.decoder.outputs.logits", GQAC_INVALID_MODEL},
    {'s', "\"num_beams\": \"4\"", "search.num_beams", GQAC_INVALID_MODEL},
    {'s', "\"do_sample\": 1", "search.do_sample", GQAC_INVALID_MODEL},
    {'s', "\"temperature\": -0.5", "search.temperature", GQAC_INVALID_MODEL},
    {'s', "\"temperature\": \"hot\"", "search.temperature", GQAC_INVALID_MODEL},
    {'s', "\"temperature\": NaN", "JSON", GQAC_INVALID_MODEL},
    {'s', "\"temperature\": 1e999", "JSON", GQAC_INVALID_MODEL},
    {'s', "\"top_p\": 1.5", "search.top_p", GQAC_INVALID_MODEL},
    {'s', "\"top_k\": -1", "search.top_k", GQAC_INVALID_MODEL},
    {'s', "\"top_k\": 1.5", "search.top_k", GQAC_INVALID_MODEL},
    {'s', "\"repetition_penalty\": 0", "search.repetition_penalty", GQAC_INVALID_MODEL},
    {'s', "\"min_length\": -1", "search.min_length", GQAC_INVALID_MODEL},
    {'s', "\"max_length\": []", "search.max_length", GQAC_INVALID_MODEL},
};

static void test_refused_settings(void) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char member[256];
        gqac_text_settings s;
        gqac_diag diag;
        const char part = refused[i].part;
        snprintf(member, sizeof member, "%s%s", part == 's' ? "" : ", ", refused[i].member);
        const gqac_status status = read_parts(part == 'm' ? member : "", part == 'd' ? member : "",
                                              part == 's' ? member : "", &s, &diag);
        if (status != refused[i].status || !strstr(diag.what, refused[i].word) || !*diag.rule) {
            printf("%s: %s '%s'\n", member, gqac_status_name(status), diag.what);
            CU_FAIL("a wrong setting is not refused by name");
        }
    }
}

/* Scoring does not search: such a config can be read, but generation refuses it. */
static void test_noted_settings(void) {
    static const struct {
        const char *member, *noted;
    } rows[] = {{"\"num_beams\": 4", "search.num_beams is 4"},
                {"\"num_return_sequences\": 2", "search.num_return_sequences is 2"},
                {"\"num_beams\": 2, \"num_return_sequences\": 3", "search.num_beams is 2"}};
    gqac_text_settings s;
    gqac_diag diag;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CU_ASSERT_EQUAL_FATAL(read_parts("", "", rows[i].member, &s, &diag), GQAC_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s.unsupported);
        CU_ASSERT_STRING_EQUAL(s.unsupported, rows[i].noted);
    }
    CU_ASSERT_EQUAL(read_parts("", "", "\"num_beams\": 1", &s, &diag), GQAC_OK);
    CU_ASSERT_PTR_NULL(s.unsupported);
}

/* Without settings, only the name of the decoder is read. */
static void test_decoder_only(void) {
    static const char json[] = "{\"model\": {\"vision\": {\"a\": 1}, \"decoder\": {\"filename\":"
                               "\"m.onnx\"}}, \"search\": {\"num_beams\": 4}}";
    const char *decoder = NULL;
    gqac_diag diag;
    gqac_text_settings s;
    CU_ASSERT_EQUAL(read_text(json, &s, &diag), GQAC_UNSUPPORTED); /* vision */
    CU_ASSERT_EQUAL(genai_config_read(json, strlen(json), arena, NULL, &decoder, &diag), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(decoder, "m.onnx");
}

static void test_many_eos(void) {
    gqac_text_settings s;
    gqac_diag diag;
    gqac_str text = {0};
    gqac_str_append(&text, "{\"model\": {\"decoder\": {\"filename\": \"m\"}, \"eos_token_id\": [0");
    for (int i = 1; i < 100000; i++)
        gqac_str_printf(&text, ",%d", i);
    gqac_str_append(&text, "]}}");
    CU_ASSERT_EQUAL(read_text(text.text, &s, &diag), GQAC_LIMIT);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "100000"));
    gqac_str_free(&text);
}

static const unit_case cases[] = {
    {"a folder names its decoder", test_names_decoder},
    {"a wrong config is refused", test_refused},
    {"settings and their defaults", test_settings},
    {"names of inputs and outputs", test_names},
    {"patterns of names", test_patterns},
    {"a wrong setting is refused by name", test_refused_settings},
    {"a search that is not built is noted", test_noted_settings},
    {"the name of the decoder alone", test_decoder_only},
    {"too many end-of-text ids", test_many_eos},
    {"a folder without a config", test_absent}, /* last: removes the folder */
};

int main(int argc, char **argv) {
    if (!mkdtemp(scratch))
        return 2;
    const int failed = unit_run("genai_config", cases, sizeof cases / sizeof *cases, argc, argv);
    gqac_arena_free(arena);
    return failed;
}
