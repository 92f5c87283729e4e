/* Fields that other servers know and this one does not: those of OpenAI's API, vLLM, SGLang and the
 * server of llama.cpp that ask for something in an answer. A field that is not here and that no
 * endpoint reads is ignored: unknown names, and labels and hints (`user`, `metadata`). */
#include <string.h>

#include "serve/serve_impl.h"

/* ENCODER: models with an encoder, which have TEXT alone. */
enum { CHAT = 1, TEXT = 2, RESPONSE = 4, ALL = CHAT | TEXT | RESPONSE, ENCODER = 8 };

typedef struct unsupported {
    const char *name;    /* "outer.inner": a field of an object */
    const char *off;     /* its values that ask for nothing, as JSON, with commas; NULL: none */
    int endpoints;       /* that refuse it */
    const char *instead; /* the field that does the same here; NULL: none */
} unsupported;

static const unsupported list[] = {
    /* OpenAI's API */
    {"access_programs", NULL, RESPONSE, NULL},
    {"audio", NULL, ALL, NULL},
    {"background", "false", ALL, NULL},
    {"background_options", NULL, RESPONSE, NULL},
    {"best_of", "1", ALL, NULL},
    {"context_management", "[]", RESPONSE, NULL},
    {"conversation", NULL, ALL, NULL},
    {"function_call", "\"none\", \"auto\"", ALL, "tool_choice"},
    {"functions", "[]", ALL, "tools"},
    {"image", NULL, RESPONSE, NULL},
    {"include", "[]", RESPONSE, NULL},
    {"max_tool_calls", NULL, ALL, NULL},
    {"modalities", "[\"text\"]", ALL, NULL},
    {"moderation", NULL, CHAT | RESPONSE, NULL},
    {"prediction", NULL, ALL, NULL},
    {"previous_response_id", NULL, ALL, NULL},
    {"prompt", NULL, RESPONSE, NULL},
    {"reasoning.context", "\"auto\"", RESPONSE, NULL},
    {"reasoning.generate_summary", NULL, RESPONSE, NULL},
    {"reasoning.mode", "\"standard\"", RESPONSE, NULL},
    {"reasoning.summary", NULL, RESPONSE, NULL},
    {"service_tier", "\"auto\", \"default\"", ALL, NULL},
    {"store", "false", CHAT | RESPONSE, NULL},
    {"stream_options.include_obfuscation", "false", ALL, NULL},
    {"suffix", "\"\"", ALL, NULL},
    {"text.verbosity", "\"medium\"", RESPONSE, NULL},
    {"truncation", "\"disabled\"", RESPONSE, NULL},
    {"verbosity", "\"medium\"", CHAT, NULL},
    {"web_search_options", NULL, ALL, NULL},
    /* fields of another endpoint */
    {"echo", "false", CHAT | RESPONSE, NULL},
    {"logprobs", "false, 0", RESPONSE, NULL},
    {"max_completion_tokens", NULL, RESPONSE, "max_output_tokens"},
    {"max_completion_tokens", NULL, TEXT, "max_tokens"},
    {"max_output_tokens", NULL, CHAT | TEXT, "max_tokens"},
    {"max_tokens", NULL, RESPONSE, "max_output_tokens"},
    {"n", "1", RESPONSE, NULL},
    {"reasoning", NULL, CHAT, "reasoning_effort"},
    {"reasoning_effort", NULL, RESPONSE, "reasoning.effort"},
    {"response_format", "{\"type\": \"text\"}", RESPONSE, "text.format"},
    {"return_progress", "false", RESPONSE, NULL},
    {"tool_choice", "\"none\", \"auto\"", TEXT, NULL},
    {"tools", "[]", TEXT, NULL},
    {"top_logprobs", "0", RESPONSE, NULL},
    {"top_logprobs", "0", TEXT, "logprobs"},
    /* of models that read the prompt as the beginning of the answer, and cache it */
    {"echo", "false", ENCODER, NULL},
    {"return_progress", "false", ENCODER, NULL},
    {"verify_cache", "false", ENCODER, NULL},
    /* vLLM */
    {"add_special_tokens", "false", RESPONSE, NULL},
    {"allowed_token_ids", NULL, ALL, NULL},
    {"bad_words", "[]", ALL, NULL},
    {"chat_template", NULL, CHAT | RESPONSE, NULL},
    {"continue_final_message", "false", RESPONSE, NULL},
    {"documents", "[]", RESPONSE, NULL},
    {"ec_transfer_params", NULL, ALL, NULL},
    {"guided_choice", NULL, ALL, "grammar"},
    {"guided_decoding_backend", NULL, ALL, NULL},
    {"guided_grammar", NULL, ALL, "grammar"},
    {"guided_json", NULL, ALL, "json_schema"},
    {"guided_regex", NULL, ALL, "grammar"},
    {"guided_whitespace_pattern", NULL, ALL, NULL},
    {"include_reasoning", "true", ALL, NULL},
    {"include_stop_str_in_output", "false", ALL, NULL},
    {"kv_transfer_params", NULL, ALL, NULL},
    {"length_penalty", "1", ALL, NULL},
    {"logits_processors", "[]", ALL, NULL},
    {"logprob_token_ids", NULL, ALL, NULL},
    {"media_io_kwargs", "{}", ALL, NULL},
    {"min_tokens", "0", ALL, NULL},
    {"mm_processor_kwargs", "{}", ALL, NULL},
    {"priority", "0", ALL, NULL},
    {"prompt_embeds", NULL, ALL, NULL},
    {"prompt_logprobs", NULL, CHAT | RESPONSE, NULL},
    {"prompt_logprobs", NULL, TEXT, "echo"},
    {"repetition_detection", NULL, ALL, NULL},
    {"return_prompt_text", "false", ALL, NULL},
    {"return_tokens_as_token_ids", "false", ALL, "return_token_ids"},
    {"skip_special_tokens", "true", ALL, NULL},
    {"spaces_between_special_tokens", "true", ALL, NULL},
    {"stream_interval", "1", ALL, NULL},
    {"stream_options.continuous_usage_stats", "false", ALL, NULL},
    {"structural_tag", NULL, ALL, NULL},
    {"structured_outputs", NULL, ALL, "json_schema"},
    {"thinking_token_budget", NULL, ALL, NULL},
    {"truncate_prompt_tokens", NULL, ALL, NULL},
    {"use_beam_search", "false", ALL, NULL},
    {"vllm_xargs", "{}", ALL, NULL},
    {"watermarking", "false", ALL, NULL},
    /* SGLang */
    {"custom_logit_processor", NULL, ALL, NULL},
    {"custom_params", NULL, ALL, NULL},
    {"ebnf", NULL, ALL, "grammar"},
    {"extra_key", NULL, ALL, "cache_salt"},
    {"input_ids", NULL, CHAT, NULL},
    {"lora_path", NULL, ALL, NULL},
    {"min_new_tokens", "0", ALL, NULL},
    {"no_stop_trim", "false", ALL, NULL},
    {"regex", NULL, ALL, "grammar"},
    {"return_cached_tokens_details", "false", ALL, NULL},
    {"return_hidden_states", "false", ALL, NULL},
    {"return_meta_info", "false", ALL, NULL},
    {"return_prompt_token_ids", "false", ALL, "return_token_ids"},
    {"return_routed_experts", "false", ALL, NULL},
    {"return_sampling_mask", "false", ALL, NULL},
    {"sampling_params", "{}", ALL, NULL},
    {"separate_reasoning", "false", ALL, NULL},
    {"session_params", NULL, ALL, NULL},
    {"stop_regex", "[]", ALL, NULL},
    {"stream_reasoning", "true", ALL, NULL},
    {"task", NULL, CHAT, NULL},
    /* llama.cpp */
    {"dry_multiplier", "0", ALL, NULL},
    {"dynatemp_range", "0", ALL, NULL},
    {"input_extra", "[]", ALL, NULL},
    {"input_prefix", "\"\"", ALL, NULL},
    {"input_suffix", "\"\"", ALL, NULL},
    {"lora", "[]", ALL, NULL},
    {"min_keep", "0, 1", ALL, NULL},
    {"mirostat", "0", ALL, NULL},
    {"n_indent", "0", ALL, NULL},
    {"n_keep", "-1, 0", ALL, NULL},
    {"n_predict", NULL, CHAT | TEXT, "max_tokens"},
    {"n_predict", NULL, RESPONSE, "max_output_tokens"},
    {"n_probs", "0", CHAT | RESPONSE, NULL},
    {"n_probs", "0", TEXT, "logprobs"},
    {"parse_tool_calls", "true", ALL, NULL},
    {"post_sampling_probs", "false", ALL, NULL},
    {"reasoning_budget", "-1", ALL, NULL},
    {"reasoning_format", "\"none\"", ALL, NULL},
    {"repeat_last_n", "-1", ALL, NULL},
    {"repeat_penalty", "1", ALL, "repetition_penalty"},
    {"response_fields", "[]", ALL, NULL},
    {"return_tokens", "false", ALL, "return_token_ids"},
    {"samplers", NULL, ALL, NULL},
    {"t_max_predict_ms", "0", ALL, NULL},
    {"thinking_budget_tokens", "-1", ALL, NULL},
    {"thinking_forced_open", "false", ALL, NULL},
    {"timings_per_token", "false", ALL, NULL},
    {"top_n_sigma", "-1, 0", ALL, NULL},
    {"typical_p", "1", ALL, NULL},
    {"xtc_probability", "0", ALL, NULL},
    /* hosted models */
    {"enable_thinking", NULL, ALL, "chat_template_kwargs"},
    {"thinking", NULL, ALL, "chat_template_kwargs"},
    {"top_a", "0", ALL, NULL},
};

/* The value of a field, which may be within an object. */
static const json_t *find(const json_t *root, const char *name) {
    const char *dot = strchr(name, '.');
    if (!dot)
        return fields_get(root, name);
    const json_t *outer = json_object_getn(root, name, (size_t)(dot - name));
    return fields_get(outer, dot + 1);
}

static bool same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) /* 1 and 1.0 */
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* Sets *off to whether a value asks for nothing. */
static bool read_off(const unsupported *field, const json_t *found, bool *off, problem *p) {
    char text[80];
    snprintf(text, sizeof text, "[%s]", field->off ? field->off : "");
    json_t *values = json_loads(text, 0, NULL);
    for (size_t i = 0; i < json_array_size(values); i++)
        *off |= same(found, json_array_get(values, i));
    json_decref(values);
    return values || problem_no_memory(p);
}

static bool refuse(const unsupported *field, problem *p) {
    const char *where =
        field->endpoints == ENCODER ? "for a model that has an encoder" : "by this endpoint";
    char off[100] = "", instead[60] = "";
    if (field->off)
        snprintf(off, sizeof off, ": it must be %s or absent", field->off);
    if (field->instead)
        snprintf(instead, sizeof instead, "; use '%s'", field->instead);
    return problem_set(p, 400, "unsupported_parameter", field->name, "'%s' is not supported %s%s%s",
                       field->name, where, off, instead);
}

bool ask_supported(const job *j, problem *p) {
    const bool encoder = j->server->model.seq2seq;
    const int endpoint = j->shape == &shape_chat       ? CHAT
                         : j->shape == &shape_response ? RESPONSE
                         : encoder                     ? TEXT | ENCODER
                                                       : TEXT;
    if (encoder && j->shape != &shape_completion)
        return problem_set(p, 400, "unsupported", NULL,
                           "the model has an encoder, so it takes no chats; use /v1/completions, "
                           "with the text to encode as 'prompt'");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const bool listed = list[i].endpoints & endpoint;
        const json_t *found = listed ? find(j->root, list[i].name) : NULL;
        bool off = false;
        if (found && !read_off(&list[i], found, &off, p))
            return false;
        if (found && !off)
            return refuse(&list[i], p);
    }
    return true;
}
