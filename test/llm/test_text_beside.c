/* Opening the parts of a model from a model file: which files in its folder belong to it. */
#include "llm/text_rig.h"

#include <sys/stat.h>

static void test_model_file(void) {
    clear();
    put("genai_config.json", config);
    put("model.onnx", "");
    put("other.onnx", "");
    CU_ASSERT_EQUAL_FATAL(open_text(path_of("model.onnx"), GQAC_TEXT_CONFIG), GQAC_OK);
    CU_ASSERT(gqac_text_get_settings(text)->has_config);
    CU_ASSERT_EQUAL_FATAL(open_text(path_of("other.onnx"), GQAC_TEXT_CONFIG), GQAC_OK);
    CU_ASSERT(!gqac_text_get_settings(text)->has_config); /* the config names another one */
    CU_ASSERT_EQUAL(open_text(path_of("none.onnx"), GQAC_TEXT_CONFIG), GQAC_IO);
    put("genai_config.json", "{");
    diag = (gqac_diag){0};
    CU_ASSERT_EQUAL_FATAL(open_text(path_of("model.onnx"), GQAC_TEXT_CONFIG), GQAC_OK);
    CU_ASSERT(!*diag.what);
    CU_ASSERT(!gqac_text_get_settings(text)->has_config); /* and this one names none */
    CU_ASSERT_EQUAL(open_text(scratch, GQAC_TEXT_CONFIG), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, "genai_config.json"));
}

static bool has_tokenizer(const char *model) {
    CU_ASSERT_EQUAL_FATAL(open_text(path_of(model), GQAC_TEXT_ALL), GQAC_OK);
    return gqac_text_get_settings(text)->has_tokenizer;
}

/* Without a config, a tokenizer belongs to the model files in its folder and in the subfolder
 * `onnx`. */
static void test_beside_tokenizer(void) {
    static const char tokenizer[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}";
    static const char *const folders[] = {"onnx", "other"};
    static const char *const files[] = {"onnx/tokenizer.json", "onnx/model.onnx",
                                        "other/model.onnx"};
    clear();
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL_FATAL(mkdir(path_of(folders[i]), 0700), 0);
    put("model.onnx", "");
    put("onnx/model.onnx", "");
    put("other/model.onnx", "");
    CU_ASSERT(!has_tokenizer("model.onnx"));
    put("tokenizer.json", tokenizer);
    CU_ASSERT(has_tokenizer("model.onnx"));
    CU_ASSERT(has_tokenizer("onnx/model.onnx"));
    CU_ASSERT(!has_tokenizer("other/model.onnx"));
    put("onnx/tokenizer.json", "{"); /* the nearer one is used */
    CU_ASSERT_EQUAL(open_text(path_of("onnx/model.onnx"), GQAC_TEXT_ALL), GQAC_INVALID_MODEL);
    CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, "tokenizer.json"));
    put("genai_config.json", config); /* it names model.onnx */
    put("other.onnx", "");
    CU_ASSERT(has_tokenizer("model.onnx"));
    CU_ASSERT(!has_tokenizer("other.onnx"));
    for (int i = 0; i < 3; i++)
        unlink(path_of(files[i]));
    for (int i = 0; i < 2; i++)
        rmdir(path_of(folders[i]));
}

/* A config that names a file in a subfolder, and files two levels above. */
static void test_subfolder(void) {
    char path[300];
    clear();
    put("genai_config.json", "{\"model\": {\"decoder\": {\"filename\": \"onnx/model.onnx\"}}}");
    CU_ASSERT_EQUAL(mkdir(path_of("onnx"), 0700), 0);
    CU_ASSERT_EQUAL(mkdir(path_of("onnx/onnx"), 0700), 0);
    put("onnx/model.onnx", "");
    put("onnx/onnx/model.onnx", "");
    put("model.onnx", "");
    CU_ASSERT_EQUAL_FATAL(open_text(path_of("onnx/model.onnx"), GQAC_TEXT_CONFIG), GQAC_OK);
    CU_ASSERT(gqac_text_get_settings(text)->has_config);
    CU_ASSERT_EQUAL_FATAL(open_text(path_of("onnx/onnx/model.onnx"), GQAC_TEXT_CONFIG), GQAC_OK);
    CU_ASSERT(!gqac_text_get_settings(text)->has_config);
    CU_ASSERT_EQUAL_FATAL(open_text(path_of("model.onnx"), GQAC_TEXT_CONFIG), GQAC_OK);
    CU_ASSERT(!gqac_text_get_settings(text)->has_config);
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_CONFIG), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_text_model_path(scratch, path, sizeof path, &diag), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(path, path_of("onnx/model.onnx"));
    unlink(path_of("onnx/onnx/model.onnx"));
    unlink(path_of("onnx/model.onnx"));
    rmdir(path_of("onnx/onnx"));
    rmdir(path_of("onnx"));
}

static const unit_case cases[] = {
    {"a model file beside its config", test_model_file},
    {"a model file beside a tokenizer", test_beside_tokenizer},
    {"a model in a subfolder of its folder", test_subfolder},
};

int main(int argc, char **argv) {
    return run_text(cases, sizeof cases / sizeof *cases, argc, argv);
}
