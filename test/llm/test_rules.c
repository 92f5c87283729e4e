/* The ids that generation_config.json and config.json forbid and demand: which file counts, what is
 * refused, and which id a row of logits then gives. The expected ids are those of the processors of
 * Hugging Face's transformers. */
#include "llm/text_rig.h"

#include <math.h>

enum { VOCABULARY = 10 };

/* Of row 0 the ids 0, 1, 2, ... in that order, of row 1 the ids 9, 8, 7, ... */
static const float rows[2][VOCABULARY] = {{9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
                                          {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};

static const gqac_token_rules *open_rules(const char *generation, const char *config_json) {
    clear();
    put("model.onnx", "");
    if (generation)
        put("generation_config.json", generation);
    if (config_json)
        put("config.json", config_json);
    CU_ASSERT_EQUAL_FATAL(open_text(path_of("model.onnx"), GQAC_TEXT_CONFIG), GQAC_OK);
    return gqac_text_get_settings(text)->rules;
}

static gqac_sampling likeliest(const gqac_token_rules *rules) {
    gqac_sampling o;
    gqac_sampling_init(&o);
    o.rules = rules;
    return o;
}

static int64_t sample(const gqac_sampling *o, int row, const int64_t *history, size_t n) {
    int64_t id = -1;
    CU_ASSERT_EQUAL(gqac_sample(o, rows[row], VOCABULARY, history, n, &id, NULL, &diag), GQAC_OK);
    return id;
}

static void test_suppressed(void) {
    const gqac_sampling o = likeliest(open_rules("{\"suppress_tokens\": [0, 1, 3, 77, 9]}", NULL));
    const int64_t history[] = {5, 6, 7};
    CU_ASSERT_EQUAL(sample(&o, 0, history, 3), 2);
    CU_ASSERT_EQUAL(sample(&o, 1, history, 1), 8);
    CU_ASSERT_EQUAL(gqac_sampling_top(&o), 0); /* the likeliest id may be forbidden */
}

/* Only the first id, which is the second if the first is forced. */
static void test_suppressed_first(void) {
    static const char plain[] = "{\"begin_suppress_tokens\": [0, 1]}";
    static const char forced[] = "{\"begin_suppress_tokens\": [0, 1], \"forced_bos_token_id\": 4}";
    static const char decoder[] =
        "{\"begin_suppress_tokens\": [0, 1], \"forced_decoder_ids\": [[1, null], [2, 6]]}";
    const int64_t history[] = {5, 6, 7, 8, 8};
    static const struct {
        const char *config;
        size_t n_prompt;
        int64_t ids[5]; /* after 1, 2, ... ids */
    } cases[] = {{plain, 1, {2, 0, 0, 0, 0}},   {plain, 3, {0, 0, 2, 0, 0}},
                 {forced, 1, {4, 2, 0, 0, 0}},  {forced, 2, {4, 2, 0, 0, 0}},
                 {decoder, 1, {0, 6, 2, 0, 0}}, {decoder, 4, {0, 6, 0, 2, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gqac_sampling o = likeliest(open_rules(cases[i].config, NULL));
        o.n_prompt = cases[i].n_prompt;
        for (size_t n = 1; n <= 5; n++)
            CU_ASSERT_EQUAL(sample(&o, 0, history, n), cases[i].ids[n - 1]);
    }
}

/* A word's last id is not chosen after the others, which may be the whole history. */
static void test_words(void) {
    const gqac_sampling o = likeliest(open_rules("{\"bad_words_ids\": [[0], [5, 6, 1], [6, 2], [9, "
                                                 "9, 2], [9, 1]], \"eos_token_id\": [4, 9]}",
                                                 NULL));
    const int64_t history[] = {5, 6, 5, 6, 9};
    CU_ASSERT_EQUAL(sample(&o, 0, history, 0), 1);
    CU_ASSERT_EQUAL(sample(&o, 0, history, 1), 1);
    CU_ASSERT_EQUAL(sample(&o, 0, history, 2), 3); /* 1 after 5 6, 2 after 6 */
    CU_ASSERT_EQUAL(sample(&o, 0, history + 1, 1), 1);
    CU_ASSERT_EQUAL(sample(&o, 0, history, 4), 3);
    CU_ASSERT_EQUAL(sample(&o, 0, history, 5), 2); /* 1 after 9 */
}

/* A word of one id that ends texts is allowed; such an id in suppress_tokens is not. */
static void test_words_that_end(void) {
    gqac_sampling o =
        likeliest(open_rules("{\"bad_words_ids\": [[0], [1]], \"eos_token_id\": 0}", NULL));
    CU_ASSERT_EQUAL(sample(&o, 0, NULL, 0), 0);
    o = likeliest(open_rules("{\"suppress_tokens\": [0], \"eos_token_id\": 0}", NULL));
    CU_ASSERT_EQUAL(sample(&o, 0, NULL, 0), 1);
    o = likeliest(open_rules("{\"bad_words_ids\": [[0], [1]]}", "{\"eos_token_id\": [7, 1]}"));
    CU_ASSERT_EQUAL(sample(&o, 0, NULL, 0), 1);
}

static void test_forced(void) {
    static const char *const configs[] = {
        "{\"forced_bos_token_id\": 3, \"forced_eos_token_id\": 8, \"suppress_tokens\": [3]}",
        "{\"forced_decoder_ids\": [[1, 7], [3, 0]], \"forced_bos_token_id\": 2}",
        "{\"forced_eos_token_id\": [4, 6]}"};
    const int64_t history[] = {5, 6, 7, 8, 8};
    gqac_sampling o = likeliest(open_rules(configs[0], NULL));
    o.max_length = 5;
    CU_ASSERT_EQUAL(sample(&o, 0, history, 1), 3); /* what is forced is not suppressed */
    CU_ASSERT_EQUAL(sample(&o, 0, history, 2), 0);
    CU_ASSERT_EQUAL(sample(&o, 0, history, 3), 0);
    CU_ASSERT_EQUAL(sample(&o, 0, history, 4), 8);
    o.max_length = 0;
    CU_ASSERT_EQUAL(sample(&o, 0, history, 4), 0);
    o.sample = true;
    CU_ASSERT_EQUAL(sample(&o, 0, history, 1), 3);
    o = likeliest(open_rules(configs[1], NULL));
    CU_ASSERT_EQUAL(sample(&o, 1, history, 1), 7);
    CU_ASSERT_EQUAL(sample(&o, 1, history, 2), 9);
    CU_ASSERT_EQUAL(sample(&o, 1, history, 3), 0);
    o = likeliest(open_rules(configs[2], NULL));
    o.max_length = 2;
    CU_ASSERT_EQUAL(sample(&o, 0, history, 1), 4);
    CU_ASSERT_EQUAL(sample(&o, 1, history, 1), 6);
}

/* An id that a hook or a constraint excludes is not forced. */
static void test_forced_and_excluded(void) {
    const int64_t history[] = {5};
    float logits[VOCABULARY];
    int64_t id = -1;
    gqac_sampling o = likeliest(open_rules("{\"forced_bos_token_id\": 3}", NULL));
    memcpy(logits, rows[0], sizeof logits);
    logits[3] = -INFINITY;
    CU_ASSERT_EQUAL(gqac_sample(&o, logits, VOCABULARY, history, 1, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 3);
    logits[3] = NAN;
    CU_ASSERT_EQUAL(gqac_sample(&o, logits, VOCABULARY, history, 1, &id, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(id, 0);
}

/* Whisper: a language is the likeliest of the listed ones, and <|notimestamps|> ends the prefix. */
static void test_whisper(void) {
    static const char form[] = "{\"forced_decoder_ids\": [[1, null], [2, 6]], \"lang_to_id\": "
                               "{\"<|en|>\": 4, \"<|de|>\": 5},"
                               " \"no_timestamps_token_id\": %s, \"return_timestamps\": %s,"
                               " \"begin_suppress_tokens\": [0]}";
    static const struct {
        const char *no_timestamps, *wanted;
        int64_t ids[4];
    } cases[] = {{"7", "false", {4, 6, 7, 1}},
                 {"7", "true", {4, 6, 1, 0}},
                 {"6", "false", {4, 6, 1, 0}},
                 {"null", "false", {4, 6, 1, 0}}};
    const int64_t history[] = {5, 6, 7, 8};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[400];
        snprintf(json, sizeof json, form, cases[i].no_timestamps, cases[i].wanted);
        gqac_sampling o = likeliest(open_rules(json, NULL));
        o.n_prompt = 1;
        for (size_t n = 1; n <= 4; n++)
            CU_ASSERT_EQUAL(sample(&o, 0, history, n), cases[i].ids[n - 1]);
        CU_ASSERT_EQUAL(sample(&o, 1, history, 1), 5);
    }
}

/* generation_config.json alone counts if there is one. null and empty lists are no rules. */
static void test_files(void) {
    static const char none[] =
        "{\"suppress_tokens\": [], \"begin_suppress_tokens\": null, \"bad_words_ids\": null,"
        " \"forced_decoder_ids\": [], \"forced_bos_token_id\": null}";
    static const char one[] = "{\"suppress_tokens\": [0]}", two[] = "{\"suppress_tokens\": [0, 1]}";
    gqac_sampling o = likeliest(open_rules(one, two));
    CU_ASSERT_EQUAL(sample(&o, 0, NULL, 0), 1);
    o = likeliest(open_rules(NULL, two));
    CU_ASSERT_EQUAL(sample(&o, 0, NULL, 0), 2);
    CU_ASSERT_PTR_NULL(open_rules(none, two));
    CU_ASSERT_PTR_NULL(open_rules("{}", two));
    CU_ASSERT_PTR_NULL(open_rules(NULL, NULL));
    CU_ASSERT_PTR_NULL(open_rules(NULL, none));
}

static void check_ends(const char *generation, const char *config_json, int n, int64_t last) {
    open_rules(generation, config_json);
    const gqac_text_settings *s = gqac_text_get_settings(text);
    CU_ASSERT_FALSE(s->has_config);
    CU_ASSERT_EQUAL_FATAL(s->n_eos, n);
    CU_ASSERT(!n || s->eos[n - 1] == last);
}

/* The ids that end a text: of generation_config.json, else of config.json, unless there is a
 * genai_config.json. */
static void test_ends(void) {
    check_ends("{\"eos_token_id\": 7}", "{\"eos_token_id\": 8}", 1, 7);
    check_ends("{\"eos_token_id\": [7, 5]}", NULL, 2, 5);
    check_ends("{}", "{\"eos_token_id\": 8}", 1, 8);
    check_ends(NULL, "{\"eos_token_id\": 8}", 1, 8);
    check_ends("{\"eos_token_id\": null}", "{\"eos_token_id\": -1}", 0, 0);
    put("genai_config.json", config);
    put("generation_config.json", "{\"eos_token_id\": 7, \"suppress_tokens\": [0]}");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_CONFIG), GQAC_OK);
    const gqac_text_settings *s = gqac_text_get_settings(text);
    CU_ASSERT_EQUAL_FATAL(s->n_eos, 1);
    CU_ASSERT_EQUAL(*s->eos, 257);
    CU_ASSERT_PTR_NOT_NULL(s->rules);
    put("generation_config.json", "{}");
    put("config.json", "{\"eos_token_id\": \"not read\"}");
    CU_ASSERT_EQUAL(open_text(scratch, GQAC_TEXT_CONFIG), GQAC_OK);
}

static void test_refused(void) {
    static const char *const wrong[][2] = {
        {"{\"suppress_tokens\": 3}", "suppress_tokens"},
        {"{\"suppress_tokens\": [-1]}", "suppress_tokens"},
        {"{\"suppress_tokens\": [1.5]}", "suppress_tokens"},
        {"{\"begin_suppress_tokens\": \"x\"}", "begin_suppress_tokens"},
        {"{\"bad_words_ids\": [3]}", "bad_words_ids"},
        {"{\"bad_words_ids\": [[]]}", "bad_words_ids"},
        {"{\"bad_words_ids\": [[1], [2, null]]}", "bad_words_ids"},
        {"{\"bad_words_ids\": {}}", "bad_words_ids"},
        {"{\"forced_bos_token_id\": -1}", "forced_bos_token_id"},
        {"{\"forced_eos_token_id\": [1, \"2\"]}", "forced_eos_token_id"},
        {"{\"forced_bos_token_id\": 4294967296}", "forced_bos_token_id"},
        {"{\"forced_decoder_ids\": 1}", "forced_decoder_ids"},
        {"{\"forced_decoder_ids\": [1, 2]}", "forced_decoder_ids"},
        {"{\"forced_decoder_ids\": [[1]]}", "forced_decoder_ids"},
        {"{\"forced_decoder_ids\": [[0, 1]]}", "forced_decoder_ids"},
        {"{\"forced_decoder_ids\": [[1, [2]]]}", "forced_decoder_ids"},
        {"{\"forced_decoder_ids\": [[2, 1], [1, 1]]}", "forced_decoder_ids"},
        {"{\"forced_decoder_ids\": [[1, null]], \"lang_to_id\": {\"en\": \"x\"}}", "lang_to_id"},
        {"{\"forced_decoder_ids\": [[1, 2]], \"no_timestamps_token_id\": \"x\"}",
         "no_timestamps_token_id"},
        {"{\"eos_token_id\": \"x\"}", "eos_token_id"},
        {"{", "JSON"},
        {"[1]", "object"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (int file = 0; file < 2; file++) {
            const char *name = file ? "config.json" : "generation_config.json";
            clear();
            put("model.onnx", "");
            put(name, wrong[i][0]);
            CU_ASSERT_EQUAL(open_text(path_of("model.onnx"), GQAC_TEXT_CONFIG), GQAC_INVALID_MODEL);
            CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, wrong[i][1]));
            CU_ASSERT_PTR_NOT_NULL(strstr(diag.where, name));
        }
}

/* What is demanded must be an id of the model; what is forbidden need not be. */
static void test_vocabulary(void) {
    static const char *const wrong[][2] = {
        {"{\"forced_bos_token_id\": 10}", "forced_bos_token_id 10"},
        {"{\"forced_eos_token_id\": [1, 11]}", "forced_eos_token_id 11"},
        {"{\"forced_decoder_ids\": [[1, 4], [2, 12]]}", "forced_decoder_ids 12"}};
    gqac_sampling o =
        likeliest(open_rules("{\"suppress_tokens\": [10], \"bad_words_ids\": [[11], [1, 12]],"
                             " \"begin_suppress_tokens\": [13], \"forced_bos_token_id\": 9}",
                             NULL));
    CU_ASSERT_EQUAL(gqac_sampling_check(&o, VOCABULARY, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(sample(&o, 0, (const int64_t[]){1, 1}, 2), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o = likeliest(open_rules(wrong[i][0], NULL));
        CU_ASSERT_EQUAL(gqac_sampling_check(&o, VOCABULARY, &diag), GQAC_INVALID_MODEL);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, wrong[i][1]));
        CU_ASSERT_EQUAL(gqac_sampling_check(&o, 13, &diag), GQAC_OK);
    }
}

static const unit_case cases[] = {
    {"suppress_tokens", test_suppressed},
    {"begin_suppress_tokens", test_suppressed_first},
    {"bad_words_ids", test_words},
    {"bad_words_ids of ids that end a text", test_words_that_end},
    {"forced ids", test_forced},
    {"a forced id that is excluded", test_forced_and_excluded},
    {"Whisper's language and timestamps", test_whisper},
    {"which file has the rules", test_files},
    {"which file has the ids that end a text", test_ends},
    {"fields that are refused", test_refused},
    {"ids that the model does not have", test_vocabulary},
};

int main(int argc, char **argv) {
    return run_text(cases, sizeof cases / sizeof *cases, argc, argv);
}
