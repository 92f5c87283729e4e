/* Model folders: which file genai_config.json names, and what is refused. */
#include "unit.h"

#include <gqac/text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/gqac-config-XXXXXX";

static void write_config(const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/genai_config.json", folder);
    FILE *f = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(text, f);
    fclose(f);
}

static void test_names_decoder(void) {
    gqac_diag diag;
    char path[512], expected[512];
    write_config("{\"model\": {\"decoder\": {\"filename\": \"decoder.onnx\"}}}");
    CU_ASSERT_EQUAL(gqac_text_model_path(folder, path, sizeof path, &diag), GQAC_OK);
    snprintf(expected, sizeof expected, "%s/decoder.onnx", folder);
    CU_ASSERT_STRING_EQUAL(path, expected);
    CU_ASSERT_EQUAL(gqac_text_model_path("/no/such/model.onnx", path, sizeof path, &diag), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(path, "/no/such/model.onnx"); /* a file is for the caller to open */
    CU_ASSERT_EQUAL(gqac_text_model_path(folder, path, 8, &diag), GQAC_INVALID_MODEL);
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
        CU_ASSERT_EQUAL(gqac_text_model_path(folder, path, sizeof path, &diag), GQAC_INVALID_MODEL);
        CU_ASSERT(*diag.what && strstr(diag.where, "genai_config.json"));
    }
}

static void test_absent(void) {
    gqac_diag diag = {0};
    char path[512], config[256];
    snprintf(config, sizeof config, "%s/genai_config.json", folder);
    unlink(config);
    CU_ASSERT_EQUAL(gqac_text_model_path(folder, path, sizeof path, &diag), GQAC_IO);
    CU_ASSERT(*diag.hint);
    rmdir(folder);
}

static const unit_case cases[] = {
    {"a folder names its decoder", test_names_decoder},
    {"a wrong config is refused", test_refused},
    {"a folder without a config", test_absent}, /* last: removes the folder */
};

int main(int argc, char **argv) {
    if (!mkdtemp(folder))
        return 2;
    return unit_run("genai_config", cases, sizeof cases / sizeof *cases, argc, argv);
}
