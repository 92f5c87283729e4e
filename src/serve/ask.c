/* Reading a request: settings that all endpoints share, prompts, ids. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "serve/serve_impl.h"

enum { CHOICES = 64, PROMPTS = 256, STOPS = 16, STOP_IDS = 1000, TOP = 20, BIASES = 4096 };

/* ---- sampling ------------------------------------------------------------ */

static bool ask_bias(job *j, problem *p) {
    json_t *list = NULL, *value;
    const char *key;
    if (!fields_type(j->root, "logit_bias", JSON_OBJECT, &list, p))
        return false;
    const size_t n = json_object_size(list);
    if (!n)
        return true;
    if (n > BIASES)
        return problem_set(p, 400, NULL, "logit_bias", "'logit_bias' has more than %d ids", BIASES);
    j->bias = calloc(n, sizeof *j->bias);
    if (!j->bias)
        return problem_no_memory(p);
    j->sampling.bias = j->bias;
    json_object_foreach(list, key, value) {
        const bool digits = *key && !key[strspn(key, "0123456789")];
        const long long id = digits ? strtoll(key, NULL, 10) : -1;
        if (id < 0 || id >= j->server->vocabulary || !json_is_number(value))
            return problem_set(p, 400, NULL, "logit_bias",
                               "'logit_bias' must map ids from 0 to %lld to numbers",
                               (long long)j->server->vocabulary - 1);
        j->bias[j->sampling.n_bias++] = (gqac_logit_bias){id, json_number_value(value)};
    }
    return true;
}

/* A field of the request, else of the model's settings, else greedy: as the command line does. */
static bool ask_sampling(job *j, problem *p) {
    static const char *const drawn[] = {"temperature", "top_p", "top_k", "min_p", "seed"};
    const gqac_text_settings *x = gqac_text_get_settings(j->server->model.text);
    gqac_sampling *s = &j->sampling;
    int64_t seed = -1, top_k = x->top_k;
    gqac_sampling_init(s);
    s->rules = j->server->rules;
    s->sample = x->do_sample;
    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++)
        s->sample |= fields_get(j->root, drawn[i]) != NULL;
    s->temperature = x->temperature;
    s->top_p = x->top_p;
    s->repetition_penalty = x->repetition_penalty;
    if (!fields_real(j->root, "temperature", 0, 100, &s->temperature, p) ||
        !fields_real(j->root, "top_p", 1e-9, 1, &s->top_p, p) ||
        !fields_real(j->root, "min_p", 0, 1, &s->min_p, p) ||
        !fields_real(j->root, "repetition_penalty", 1e-3, 100, &s->repetition_penalty, p) ||
        !fields_real(j->root, "presence_penalty", -100, 100, &s->presence_penalty, p) ||
        !fields_real(j->root, "frequency_penalty", -100, 100, &s->frequency_penalty, p) ||
        !fields_int(j->root, "top_k", -1, INT32_MAX, &top_k, p) ||
        !fields_int(j->root, "seed", INT64_MIN, INT64_MAX, &seed, p) || !ask_bias(j, p))
        return false;
    s->top_k = top_k < 0 ? 0 : top_k;
    s->seed = (uint64_t)seed;
    if (!fields_get(j->root, "seed") &&
        getrandom(&s->seed, sizeof s->seed, GRND_NONBLOCK) != sizeof s->seed)
        s->seed = (uint64_t)(serve_seconds() * 1e9);
    s->seed &= INT64_MAX; /* so that a request can ask for the same one */
    return true;
}

/* ---- the rest ------------------------------------------------------------ */

static bool ask_stops(job *j, problem *p) {
    json_t *stop = fields_get(j->root, "stop");
    const size_t n = json_is_array(stop) ? json_array_size(stop) : stop != NULL;
    if (n > STOPS)
        return problem_set(p, 400, NULL, "stop", "'stop' has more than %d strings", STOPS);
    j->stop = n ? calloc(n, sizeof *j->stop) : NULL;
    if (n && !j->stop)
        return problem_no_memory(p);
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!json_is_string(text) || !json_string_length(text) || json_string_length(text) > 1000)
            return problem_set(
                p, 400, NULL, "stop",
                "'stop' must be a string of 1 to 1000 bytes, or a list of such strings");
        j->stop[j->n_stop++] = json_string_value(text);
    }
    return true;
}

/* The end-of-text ids of the model, and those of the request. */
static bool ask_ends(job *j, problem *p) {
    const serve *s = j->server;
    bool ignore = false;
    json_t *list = NULL;
    prompt own = {0};
    if (!fields_bool(j->root, "ignore_eos", &ignore, p) ||
        !fields_type(j->root, "stop_token_ids", JSON_ARRAY, &list, p))
        return false;
    if (json_array_size(list) > STOP_IDS)
        return problem_set(p, 400, NULL, "stop_token_ids", "'stop_token_ids' has more than %d ids",
                           STOP_IDS);
    const int n = ignore ? 0 : s->n_eos;
    bool fine = ask_ids(list, s->vocabulary, "stop_token_ids", &own, p);
    j->ends = fine ? malloc(((size_t)n + own.n + 1) * sizeof *j->ends) : NULL;
    if (fine && !j->ends)
        fine = problem_no_memory(p);
    if (fine) {
        j->n_ends = n + (int)own.n;
        if (n)
            memcpy(j->ends, s->eos, (size_t)n * sizeof *j->ends);
        memcpy(j->ends + n, own.ids, own.n * sizeof *j->ends);
    }
    free(own.ids);
    return fine;
}

static bool ask_cold(job *j, problem *p) {
    bool cached = true;
    const bool fine = fields_bool(j->root, "cache_prompt", &cached, p);
    j->cold = !cached;
    return fine;
}

static bool ask_stream(job *j, problem *p) {
    json_t *options = NULL;
    return fields_bool(j->root, "stream", &j->stream, p) &&
           fields_type(j->root, "stream_options", JSON_OBJECT, &options, p) &&
           (!options || fields_bool(options, "include_usage", &j->usage, p));
}

/* A salt makes a tenant of its own, within that of the key. */
static bool ask_tenant(job *j, problem *p) {
    const char *salt = NULL;
    if (!fields_text(j->root, "cache_salt", 128, &salt, p))
        return false;
    if (!salt || !*salt)
        return true;
    const size_t size = strlen(j->tenant) + strlen(salt) + 2;
    char *both = malloc(size);
    if (!both)
        return problem_no_memory(p);
    snprintf(both, size, "%s\n%s", j->tenant, salt);
    free(j->tenant);
    j->tenant = both;
    return true;
}

bool ask_common(job *j, problem *p) {
    const char *ignored = NULL;
    j->n = 1;
    j->max_new = -1;
    return fields_text(j->root, "model", 1000, &ignored, p) &&
           fields_text(j->root, "prompt_cache_key", 1000, &ignored, p) && ask_sampling(j, p) &&
           ask_stops(j, p) && ask_stream(j, p) && ask_tenant(j, p) &&
           fields_int(j->root, "n", 1, CHOICES, &j->n, p) && ask_ends(j, p) && ask_cold(j, p) &&
           fields_bool(j->root, "return_token_ids", &j->ids_wanted, p) &&
           fields_bool(j->root, "return_progress", &j->progress, p) &&
           fields_bool(j->root, "verify_cache", &j->verify, p) && ask_constraint(j, p);
}

/* ---- prompts ------------------------------------------------------------- */

bool ask_ids(const json_t *list, int64_t vocabulary, const char *name, prompt *out, problem *p) {
    out->n = json_array_size(list);
    out->ids = malloc((out->n + 1) * sizeof *out->ids);
    if (!out->ids)
        return problem_no_memory(p);
    for (size_t i = 0; i < out->n; i++) {
        const json_t *id = json_array_get(list, i);
        out->ids[i] = json_integer_value(id);
        if (!json_is_integer(id) || out->ids[i] < 0 || out->ids[i] >= vocabulary)
            return problem_set(p, 400, NULL, name,
                               "'%s' must have token ids of this model, but item %zu is not one",
                               name, i);
    }
    return true;
}

bool ask_tokenize(serve *s, const char *text, size_t length, bool special, prompt *out,
                  problem *p) {
    gqac_diag diag = {0};
    int64_t *ids = NULL;
    if (gqac_text_tokenize(s->model.text, text, length, special, &ids, &out->n, &diag) != GQAC_OK)
        return problem_from(p, "prompt", &diag);
    out->ids = malloc((out->n + 1) * sizeof *out->ids);
    if (out->ids)
        memcpy(out->ids, ids, out->n * sizeof *ids);
    gqac_release(ids);
    return out->ids || problem_no_memory(p);
}

bool ask_fit(job *j, int64_t most_new, problem *p) {
    const bool encoder = j->server->model.seq2seq;
    const int64_t most = j->server->most;
    for (int i = 0; i < j->n_prompts; i++) {
        const int64_t n = (int64_t)j->prompts[i].n;
        if (!n)
            return problem_set(p, 400, NULL, "prompt", "the prompt has no tokens");
        if (n > most || (n == most && j->max_new != 0 && !encoder))
            return problem_set(p, 400, "context_length_exceeded", "prompt",
                               "the prompt has %lld tokens, but %s may have only %lld; shorten the "
                               "prompt",
                               (long long)n, encoder ? "a prompt" : "prompt and answer together",
                               (long long)most);
    }
    if (j->max_new > most && encoder)
        return problem_set(p, 400, "context_length_exceeded", "max_tokens",
                           "'max_tokens' is %lld, but an answer may have only %lld tokens",
                           (long long)j->max_new, (long long)most);
    if (j->max_new < 0)
        j->max_new = encoder && most_new > most ? most : most_new;
    return true;
}

int64_t ask_chat_length(const job *j) {
    const int64_t most = gqac_text_get_settings(j->server->model.text)->max_length;
    const int64_t n = (int64_t)j->prompts[0].n;
    if (!most)
        return j->server->most < INT32_MAX ? INT32_MAX : UNSTATED_TOKENS;
    return most > n ? most - n : 0;
}

bool ask_make_prompts(job *j, size_t n, problem *p) {
    j->prompts = calloc(n, sizeof *j->prompts);
    if (!j->prompts)
        return problem_no_memory(p);
    j->n_prompts = (int)n;
    return true;
}

bool ask_chat(job *j, problem *p) {
    json_t *messages = NULL;
    bool wanted = false, special = false;
    char *text = NULL;
    size_t length = 0;
    offer given;
    if (!ask_common(j, p) || !ask_make_prompts(j, 1, p) ||
        !fields_bool(j->root, "logprobs", &wanted, p) ||
        !fields_bool(j->root, "add_special_tokens", &special, p) ||
        !fields_int(j->root, "top_logprobs", 0, TOP, &j->n_top, p) ||
        !fields_int(j->root, "max_tokens", 1, INT32_MAX, &j->max_new, p) ||
        !fields_int(j->root, "max_completion_tokens", 1, INT32_MAX, &j->max_new, p) ||
        !fields_type(j->root, "messages", JSON_ARRAY, &messages, p))
        return false;
    if (j->n_top && !wanted)
        return problem_set(p, 400, NULL, "top_logprobs", "'top_logprobs' needs 'logprobs': true");
    j->scores = wanted;
    if (!ask_render(j->server, j->root, messages, "messages", &text, &length, &given, p))
        return false;
    const bool fine = ask_tokenize(j->server, text, length, special, &j->prompts[0], p);
    gqac_release(text);
    return fine && ask_calls(j, j->root, &given, p) && ask_fit(j, ask_chat_length(j), p);
}

/* A prompt of text or of ids. */
static bool ask_prompt(job *j, const json_t *value, bool special, prompt *out, problem *p) {
    /* an encoder may have another vocabulary than its decoder, and checks the ids itself */
    const int64_t vocabulary = j->server->model.seq2seq ? INT32_MAX : j->server->vocabulary;
    if (json_is_array(value))
        return ask_ids(value, vocabulary, "prompt", out, p);
    if (!json_is_string(value))
        return problem_set(p, 400, NULL, "prompt",
                           "'prompt' must be a string, a list of strings, a list of ids, or a list "
                           "of such lists");
    out->length = json_string_length(value);
    out->text = malloc(out->length + 1);
    if (!out->text)
        return problem_no_memory(p);
    memcpy(out->text, json_string_value(value), out->length + 1);
    return ask_tokenize(j->server, out->text, out->length, special, out, p);
}

/* The text of a prompt of ids, for echo. */
static bool name_prompt(job *j, prompt *out, problem *p) {
    gqac_diag diag = {0};
    char *text = NULL;
    if (out->text || !j->echo)
        return true;
    if (gqac_text_detokenize(j->server->model.text, out->ids, out->n, false, &text, &out->length,
                             &diag) != GQAC_OK)
        return problem_from(p, "prompt", &diag);
    out->text = malloc(out->length + 1);
    if (out->text)
        memcpy(out->text, text, out->length + 1);
    gqac_release(text);
    return out->text || problem_no_memory(p);
}

bool ask_completion(job *j, problem *p) {
    json_t *given = fields_get(j->root, "prompt");
    const json_t *first = json_array_get(given, 0);
    const bool many = json_is_string(first) || json_is_array(first);
    const size_t n = many ? json_array_size(given) : 1;
    int64_t scores = -1;
    bool special = true;
    if (!given || (json_is_array(given) && !first))
        return problem_set(p, 400, NULL, "prompt", "'prompt' is %s", given ? "empty" : "missing");
    if (n > PROMPTS)
        return problem_set(p, 400, NULL, "prompt", "'prompt' has more than %d prompts", PROMPTS);
    if (!ask_common(j, p) || !ask_make_prompts(j, n, p) ||
        !fields_int(j->root, "logprobs", 0, TOP, &scores, p) ||
        !fields_bool(j->root, "echo", &j->echo, p) ||
        !fields_bool(j->root, "add_special_tokens", &special, p) ||
        !fields_int(j->root, "max_tokens", 0, INT32_MAX, &j->max_new, p))
        return false;
    j->scores = scores >= 0;
    j->n_top = scores > 0 ? scores : 0;
    for (size_t i = 0; i < n; i++)
        if (!ask_prompt(j, many ? json_array_get(given, i) : given, special, &j->prompts[i], p) ||
            !name_prompt(j, &j->prompts[i], p))
            return false;
    return ask_fit(j, 16, p); /* as OpenAI's API defines it */
}
