/* The ids that generation_config.json and config.json forbid and require: which file is used, what
 * is refused, and which id is then chosen from a row of logits. The expected ids are those of the
 * logits processors of Hugging Face transformers. */
#include "llm/text_rig.h"

#include <math.h>

enum { VOCABULARY = 10 };

/* In row 0 the likeliest ids are 0, 1, 2, ... in this order; in row 1 they are 9, 8, 7, ... */
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

/* Affects only the first id, or the second one if the first is forced. */
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

/* The last id of a word is not chosen after its other ids, even if these are the whole history. */
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

/* A word of one id that ends texts is still allowed; such an id in suppress_tokens is not. */
static void test_words_that_end(void) {
    gqac_sampling o =
        likeliest(open_rules("{\"bad_words_ids\": [[0], [1]], \"eos_token_id\": 0}", NULL));
    CU_ASSERT_EQUAL(sample(&o, 0, NULL, 0), 0);
    o = likeliest(open_rules("{\"suppress_tokens\": [0], \"eos_token_id\": 0}", NULL));
    CU_ASSERT_EQUAL(sample(&o, 0, NULL, 0), 1);
    o = likeliest(open_rules("{\"bad_words_ids\": [[0], [1]]}", "{\"eos_token_id\": [7, 1]}"));
    CU_ASSERT_EQUAL(sample(&o, 0, NULL, 0), 1);
}

/* The last id of an n-gram is not chosen again after its other ids; the prompt counts. */
static void test_repeated(void) {
    static const char *const configs[] = {
        "{\"no_repeat_ngram_size\": 1}", "{\"no_repeat_ngram_size\": 2}",
        "{\"no_repeat_ngram_size\": 3}", "{\"no_repeat_ngram_size\": 9}"};
    const int64_t history[] = {2, 1, 0, 3, 1, 77, 2, 1};
    static const int64_t ids[][9] = {{0, 0, 0, 3, 4, 4, 4, 4, 4},
                                     {0, 0, 0, 0, 0, 1, 0, 0, 1},
                                     {0, 0, 0, 0, 0, 0, 0, 0, 1},
                                     {0, 0, 0, 0, 0, 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        gqac_sampling o = likeliest(open_rules(configs[i], NULL));
        o.n_prompt = 3;
        for (size_t n = 0; n < 9; n++) {
            const int64_t id = sample(&o, 0, history, n);
            if (id != ids[i][n])
                printf("%s after %zu ids: %lld\n", configs[i], n, (long long)id);
            CU_ASSERT_EQUAL(id, ids[i][n]);
        }
    }
}

/* The value in genai_config.json is used if the other files have none. */
static void test_repeated_of_search(void) {
    static const struct {
        const char *generation;
        int64_t after_two, after_four; /* ids */
    } cases[] = {{"{}", 1, 1}, {"{\"no_repeat_ngram_size\": 5}", 0, 0}, {NULL, 1, 1}};
    const int64_t history[] = {0, 0, 0, 0};
    char digests[3][65];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_rules(cases[i].generation, NULL);
        put("genai_config.json",
            "{\"model\": {\"decoder\": {\"filename\": \"model.onnx\"}}, \"search\": "
            "{\"no_repeat_ngram_size\": 2}}");
        CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_CONFIG), GQAC_OK);
        const gqac_sampling o = likeliest(gqac_text_get_settings(text)->rules);
        CU_ASSERT_EQUAL(sample(&o, 0, history, 2), cases[i].after_two);
        CU_ASSERT_EQUAL(sample(&o, 0, history, 4), cases[i].after_four);
        snprintf(digests[i], sizeof digests[i], "%s", gqac_token_rules_digest(o.rules));
    }
    CU_ASSERT_STRING_EQUAL(digests[0], digests[2]);
    CU_ASSERT_STRING_NOT_EQUAL(digests[0], digests[1]);
}

/* An answer does not end before it has this number of ids. */
static void test_least(void) {
    static const struct {
        const char *config;
        size_t free; /* the length from which the answer may end; its prompt has 2 ids */
    } cases[] = {
        {"{\"eos_token_id\": [0, 1], \"min_length\": 4}", 4},
        {"{\"eos_token_id\": [0, 1], \"min_new_tokens\": 3}", 5},
        {"{\"eos_token_id\": [0, 1], \"min_new_tokens\": 1, \"min_length\": 5}", 3},
        {"{\"eos_token_id\": [0, 1], \"min_new_tokens\": 0, \"min_length\": 5}", 2},
        {"{\"eos_token_id\": [0, 1], \"min_new_tokens\": -1, \"min_length\": 5}", 2},
        {"{\"eos_token_id\": [0, 1], \"min_new_tokens\": null, \"min_length\": 3}", 3},
        {"{\"min_length\": 5}", 2},
    };
    const int64_t history[] = {5, 6, 7, 8, 9, 5};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gqac_sampling o = likeliest(open_rules(cases[i].config, NULL));
        o.n_prompt = 2;
        for (size_t n = 2; n <= 6; n++)
            CU_ASSERT_EQUAL(sample(&o, 0, history, n), n < cases[i].free ? 2 : 0);
    }
    gqac_sampling o = likeliest(
        open_rules("{\"eos_token_id\": 0, \"min_length\": 5, \"forced_eos_token_id\": 0}", NULL));
    o.max_length = 3;
    CU_ASSERT_EQUAL(sample(&o, 0, history, 2), 0); /* a forced id overrides this */
}

/* Settings that would change answers and are not followed are listed, for the file that is used. */
static void test_not_obeyed(void) {
    static const struct {
        const char *config, *listed;
    } cases[] = {
        {"{\"num_beams\": 4, \"length_penalty\": 2.0, \"early_stopping\": true}", "num_beams is 4"},
        {"{\"num_beams\": 1, \"temperature\": 0.6, \"top_p\": 0.9, \"max_new_tokens\": 9}", NULL},
        {"{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.9, "
         "\"typical_p\": 1}",
         "do_sample is true, temperature is 0.6, top_k is 20, top_p is 0.9"},
        {"{\"do_sample\": true, \"min_p\": 0.1, \"top_h\": 0.4, \"typical_p\": 0.5, "
         "\"epsilon_cutoff\": 0.25, \"eta_cutoff\": 0.125}",
         "do_sample is true, min_p is 0.1, top_h is 0.4, typical_p is 0.5, epsilon_cutoff is 0.25, "
         "eta_cutoff is 0.125"},
        {"{\"repetition_penalty\": 1.05, \"encoder_repetition_penalty\": 2, "
         "\"encoder_no_repeat_ngram_size\": 3, \"guidance_scale\": 1.5}",
         "guidance_scale is 1.5, repetition_penalty is 1.05, encoder_repetition_penalty is 2, "
         "encoder_no_repeat_ngram_size is 3"},
        {"{\"penalty_alpha\": 0.6, \"num_beam_groups\": 2, \"num_return_sequences\": 3, "
         "\"dola_layers\": \"low\", \"constraints\": [1], \"force_words_ids\": [[4]]}",
         "num_beam_groups is 2, num_return_sequences is 3, penalty_alpha is 0.6, dola_layers is "
         "\"low\", constraints is [1], force_words_ids is [[4]]"},
        {"{\"sequence_bias\": [[[11, 12, 13, 14, 15, 16, 17, 18, 19], 1.5], [[20], 2.5]], "
         "\"exponential_decay_length_penalty\": [5, 1.5]}",
         "sequence_bias is [[[11,12,13,14,15,16,17,18,19],1.5],[[20, "
         "exponential_decay_length_penalty "
         "is [5,1.5]"},
        {"{\"remove_invalid_values\": true, \"stop_strings\": \"\\u00e9\", \"token_healing\": "
         "true, "
         "\"watermarking_config\": {\"bias\": 1}, \"return_timestamps\": true}",
         "remove_invalid_values is true, return_timestamps is true, stop_strings is \"\\u00E9\", "
         "token_healing is true, watermarking_config is {\"bias\":1}"},
        {"{\"sequence_bias\": {}, \"stop_strings\": [], \"num_beams\": null, \"guidance_scale\": "
         "\"1\", "
         "\"repetition_penalty\": 1.0, \"token_healing\": false, \"temperature\": 3}",
         NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int file = 0; file < 2; file++) {
            char listed[400];
            snprintf(listed, sizeof listed, "%s: %s",
                     file ? "config.json" : "generation_config.json",
                     cases[i].listed ? cases[i].listed : "");
            open_rules(file ? NULL : cases[i].config,
                       file ? cases[i].config : "{\"num_beams\": 9}");
            const char *const found = gqac_text_get_settings(text)->not_obeyed;
            CU_ASSERT_EQUAL_FATAL(!found, !cases[i].listed);
            if (found)
                CU_ASSERT_STRING_EQUAL(found, listed);
        }
    put("genai_config.json", config);
    put("generation_config.json", "{\"num_beams\": 4, \"do_sample\": true, \"top_p\": 0.5, "
                                  "\"repetition_penalty\": 2, \"min_p\": 0.1}");
    CU_ASSERT_EQUAL_FATAL(open_text(scratch, GQAC_TEXT_CONFIG), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(gqac_text_get_settings(text)->not_obeyed,
                           "generation_config.json: min_p is 0.1");
}

static void test_forced(void) {
    static const char *const configs[] = {
        "{\"forced_bos_token_id\": 3, \"forced_eos_token_id\": 8, \"suppress_tokens\": [3]}",
        "{\"forced_decoder_ids\": [[1, 7], [3, 0]], \"forced_bos_token_id\": 2}",
        "{\"forced_eos_token_id\": [4, 6]}"};
    const int64_t history[] = {5, 6, 7, 8, 8};
    gqac_sampling o = likeliest(open_rules(configs[0], NULL));
    o.max_length = 5;
    CU_ASSERT_EQUAL(sample(&o, 0, history, 1), 3); /* a forced id is not suppressed */
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

/* If there is a generation_config.json, only that file is used. null and empty lists are no
 * rules. */
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

/* The ids that end a text are those of generation_config.json, or else of config.json, unless there
 * is a genai_config.json. */
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
        {"{\"no_repeat_ngram_size\": 2.5}", "no_repeat_ngram_size"},
        {"{\"min_length\": true}", "min_length"},
        {"{\"min_new_tokens\": 2147483648}", "min_new_tokens"},
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

/* A required id must be an id of the model; a forbidden id need not be. */
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
    CU_ASSERT_EQUAL(gqac_token_rules_beyond(o.rules, 10), 10);
    CU_ASSERT_EQUAL(gqac_token_rules_beyond(o.rules, 13), 13);
    CU_ASSERT_EQUAL(gqac_token_rules_beyond(o.rules, 14), -1);
    CU_ASSERT_EQUAL(gqac_token_rules_beyond(NULL, 1), -1);
    const gqac_token_rules *words = open_rules("{\"bad_words_ids\": [[1], [2, 12]]}", NULL);
    CU_ASSERT_EQUAL(gqac_token_rules_beyond(words, 12), 12);
    CU_ASSERT_EQUAL(gqac_token_rules_beyond(words, 13), -1);
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
    {"no_repeat_ngram_size", test_repeated},
    {"no_repeat_ngram_size of genai_config.json", test_repeated_of_search},
    {"min_length and min_new_tokens", test_least},
    {"settings that are not obeyed", test_not_obeyed},
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
