/* A model folder in one call: the decoder that its config names, with the config's names of inputs
 * and outputs, and its text. The call returns both or neither. */
#include "unit.h"

#include <gqac/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gqac_diag diag;

static gqac_status open_model(const char *model, unsigned parts, gqac_program **program,
                              gqac_text **text) {
    *program = NULL;
    if (text)
        *text = NULL;
    memset(&diag, 0, sizeof diag);
    return gqac_model_open(model, NULL, parts, program, text, &diag);
}

static void test_folder(void) {
    gqac_program *program = NULL;
    gqac_text *text = NULL;
    const char *folder = unit_path("models/tiny-gqa");
    CU_ASSERT_EQUAL_FATAL(open_model(folder, GQAC_TEXT_ALL, &program, &text), GQAC_OK);
    const gqac_text_settings *s = gqac_text_get_settings(text);
    CU_ASSERT(s->has_config && s->has_tokenizer);
    CU_ASSERT_EQUAL(gqac_program_vocabulary(program), s->vocab_size);
    gqac_text_free(text);
    gqac_program_free(program);
    /* a part that is not requested is not read; the config is always read */
    CU_ASSERT_EQUAL_FATAL(open_model(folder, 0, &program, &text), GQAC_OK);
    s = gqac_text_get_settings(text);
    CU_ASSERT(s->has_config && !s->has_tokenizer);
    gqac_text_free(text);
    gqac_program_free(program);
    CU_ASSERT_EQUAL_FATAL(open_model(folder, 0, &program, NULL), GQAC_OK);
    gqac_program_free(program);
}

static char folder[] = "/tmp/gqac-model-XXXXXX";
static const char *const files[] = {"model.onnx", "model.onnx.data", "genai_config.json"};

static void put(const char *name, const char *data, size_t bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL_FATAL(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static void copy(const char *name) {
    static char data[4 << 20];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", unit_path("test/models/llama"), name);
    FILE *f = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    put(name, data, fread(data, 1, sizeof data, f));
    fclose(f);
}

static void take_away(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CU_ASSERT_EQUAL(unlink(path), 0);
}

/* The call returns both or neither. */
static void test_all_or_nothing(void) {
    gqac_program *program = NULL;
    gqac_text *text = NULL;
    const gqac_model_bytes bytes = {.size = sizeof bytes, .data = "", .bytes = 0};
    gqac_options options;
    gqac_options_init(&options);
    options.bytes = &bytes;
    CU_ASSERT_EQUAL(gqac_model_open("m.onnx", &options, 0, &program, NULL, &diag), GQAC_USAGE);
    CU_ASSERT(strstr(diag.what, "in memory") && *diag.hint);
    CU_ASSERT_EQUAL(open_model("/no/such/model", GQAC_TEXT_ALL, &program, &text), GQAC_IO);
    CU_ASSERT(!program && !text && *diag.what);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    for (int i = 0; i < 3; i++)
        copy(files[i]);
    put("tokenizer.json", "{", 1);
    CU_ASSERT_EQUAL(open_model(folder, GQAC_TEXT_ALL, &program, &text), GQAC_INVALID_MODEL);
    CU_ASSERT(!program && !text && strstr(diag.where, "tokenizer.json"));
    CU_ASSERT_EQUAL_FATAL(open_model(folder, 0, &program, &text),
                          GQAC_OK); /* it is not requested */
    gqac_program_free(program);
    gqac_text_free(text);
    take_away("tokenizer.json");
    take_away("model.onnx");
    CU_ASSERT_EQUAL(open_model(folder, GQAC_TEXT_ALL, &program, &text), GQAC_IO);
    CU_ASSERT(!program && !text && *diag.what);
    take_away("model.onnx.data");
    take_away("genai_config.json");
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"program and text of a folder", test_folder},
        {"both or none", test_all_or_nothing},
    };
    return unit_run("llm/model_open", cases, sizeof cases / sizeof *cases, argc, argv);
}
