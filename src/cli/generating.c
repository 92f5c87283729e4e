/* See generating.h. Settings: a flag, else the search settings of the model's genai_config.json,
 * else greedy. Text goes to stdout, all else to stderr. */
#include "cli/generating.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/interrupt.h"

enum { SHOWN_FORWARDS = 8 }; /* of --metrics; json has all */

/* ---- settings ------------------------------------------------------------ */

/* "ID=B" */
static gqac_status read_bias(cli *c, const char *text, gqac_logit_bias *bias) {
    char *end = NULL;
    errno = 0;
    bias->id = strtoll(text, &end, 10);
    if (end == text || errno || *end != '=' || !isdigit((unsigned char)*text))
        return cli_usage(c, "--logit-bias '%s' is not ID=B, a token id and a number", text);
    const char *value = end + 1;
    bias->bias = strtod(value, &end);
    const bool never = !strcmp(value, "-inf");
    if (end == value || *end || (!never && value[strspn(value, "+-.0123456789eE")]))
        return cli_usage(c, "--logit-bias '%s': '%s' is not a decimal number or -inf", text, value);
    return GQAC_OK;
}

static gqac_status read_biases(generating *g) {
    const int n = cli_count(g->c, "logit-bias");
    g->bias = calloc((size_t)n + 1, sizeof *g->bias);
    if (!g->bias)
        return cli_fail(g->c, GQAC_NO_MEMORY, "out of memory");
    for (int i = 0; i < n; i++)
        GQAC_TRY(read_bias(g->c, cli_repeat(g->c, "logit-bias", i), &g->bias[i]));
    g->sampling.n_bias = n;
    g->sampling.bias = g->bias;
    return GQAC_OK;
}

gqac_status generating_sampling(generating *g) {
    cli *c = g->c;
    const gqac_text_settings *x = gqac_text_get_settings(g->text);
    gqac_sampling *s = &g->sampling;
    long long top_k = 0, seed = 0, n_top = 0;
    static const char *const flags[] = {"temperature", "top-k", "top-p", "min-p", "seed"};
    gqac_sampling_init(s);
    s->rules = x->rules;
    g->request.sampling = s;
    s->sample = x->do_sample;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        s->sample |= cli_value(c, flags[i]) != NULL;
    GQAC_TRY(cli_real(c, "temperature", x->temperature, &s->temperature));
    GQAC_TRY(cli_real(c, "top-p", x->top_p, &s->top_p));
    GQAC_TRY(cli_real(c, "min-p", 0, &s->min_p));
    GQAC_TRY(cli_real(c, "repetition-penalty", x->repetition_penalty, &s->repetition_penalty));
    GQAC_TRY(cli_real(c, "presence-penalty", 0, &s->presence_penalty));
    GQAC_TRY(cli_real(c, "frequency-penalty", 0, &s->frequency_penalty));
    GQAC_TRY(cli_number(c, "top-k", 0, INT64_MAX, x->top_k, &top_k));
    GQAC_TRY(cli_number(c, "seed", 0, INT64_MAX, 0, &seed));
    GQAC_TRY(cli_number(c, "top-logprobs", 0, INT32_MAX, 0, &n_top));
    s->top_k = top_k;
    s->seed = (uint64_t)seed;
    g->request.n_top = n_top;
    g->request.ids_only = !n_top && !cli_switch(c, "log-steps") && !cli_json_lines(c);
    return read_biases(g);
}

gqac_status generating_stops(generating *g) {
    const int n = cli_count(g->c, "stop");
    g->stops = calloc((size_t)n + 1, sizeof *g->stops);
    if (!g->stops)
        return cli_fail(g->c, GQAC_NO_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) {
        g->stops[i] = cli_repeat(g->c, "stop", i);
        if (!*g->stops[i])
            return cli_usage(g->c, "--stop needs a text");
    }
    g->request.n_stop = n;
    g->request.stop = g->stops;
    return GQAC_OK;
}

gqac_status generating_constraint(generating *g) {
    const char *prompt = cli_repeat(g->c, "prompt", 0), *ids = cli_repeat(g->c, "ids", 0);
    const bool chat = !strcmp(g->c->verb->name, "chat");
    const bool taken = chat || (prompt && !strcmp(prompt, "-")) || (ids && !strcmp(ids, "-"));
    GQAC_TRY(constraining_open(g->c, g->text, taken, &g->constraint));
    g->request.constraint = g->constraint;
    return GQAC_OK;
}

static gqac_status choose(generating *g, gqac_session_options *session) {
    cli *c = g->c;
    const gqac_text_settings *x = gqac_text_get_settings(g->text);
    const char *kv = cli_value(c, "kv");
    long long most = 128, context = 0;
    gqac_generate_request_init(&g->request, g->text, NULL, NULL, 0);
    GQAC_TRY(cli_number(c, "new-tokens", 0, INT32_MAX, most, &most));
    GQAC_TRY(cli_number(c, "context", 1, INT64_MAX, x->context_length, &context));
    GQAC_TRY(generating_sampling(g));
    GQAC_TRY(generating_stops(g));
    GQAC_TRY(drafting_choose(c, &g->request));
    g->request.max_new = most;
    g->max_length = cli_value(c, "new-tokens") ? 0 : x->max_length;
    session->kv = kv && *kv ? kv : NULL;
    session->context = context;
    return GQAC_OK;
}

/* ---- opening ------------------------------------------------------------- */

static gqac_status open_program(generating *g, gqac_session_options *session) {
    int threads = 1;
    GQAC_TRY(cli_threads(g->c, &threads));
    GQAC_TRY(cli_open(g->c, cli_kv_off(g->c), &g->program));
    cli_warn_config(g->c, g->program, g->text);
    interrupt_hold(true);
    const gqac_status status = gqac_threads_create(threads, &g->threads, &g->c->diag);
    interrupt_hold(false);
    GQAC_TRY(status);
    GQAC_TRY(gqac_context_create_on(g->program, g->threads, &g->context, &g->c->diag));
    GQAC_TRY(
        gqac_context_set_monitor(g->context, cli_watch_steps(g->c, "prompt"), NULL, &g->c->diag));
    GQAC_TRY(caching_open(g->c, g->program, &g->tier, &g->store));
    session->store = g->store;
    GQAC_TRY(gqac_session_create(g->program, session, &g->session, &g->c->diag));
    return caching_load(g->c, g->session);
}

/* Checks --context before the model is loaded: against its config, then against the length of its
 * tables of positions. */
static gqac_status check_context(generating *g, int64_t context) {
    int64_t most = gqac_text_get_settings(g->text)->context_length;
    if (!most || context <= most)
        most = cli_most_tokens(g->c);
    return cli_check_context(g->c, context, most);
}

int64_t generating_most_tokens(const generating *g) {
    const int64_t rows = gqac_program_max_tokens(g->program);
    const int64_t config = gqac_text_get_settings(g->text)->context_length;
    int64_t most = g->context_tokens ? g->context_tokens : INT64_MAX;
    most = config && config < most ? config : most;
    return rows < most ? rows : most;
}

static gqac_status check_sampling(generating *g) {
    gqac_diag *diag = &g->c->diag;
    const int64_t vocabulary = gqac_program_vocabulary(g->program);
    const gqac_status status =
        vocabulary ? gqac_sampling_check(&g->sampling, vocabulary, diag) : GQAC_OK;
    if (status == GQAC_USAGE && !*diag->hint)
        snprintf(diag->hint, sizeof diag->hint, "gqac %s --help", g->c->verb->name);
    return status;
}

gqac_status generating_open(generating *g, unsigned parts) {
    gqac_session_options session = {.size = sizeof session};
    if (!g->text)
        GQAC_TRY(cli_open_text(g->c, parts, &g->text));
    GQAC_TRY(choose(g, &session));
    GQAC_TRY(generating_constraint(g));
    if (cli_value(g->c, "context"))
        GQAC_TRY(check_context(g, session.context));
    GQAC_TRY(caching_check(g->c));
    GQAC_TRY(open_program(g, &session));
    g->context_tokens = session.context;
    g->request.session = g->session;
    GQAC_TRY(drafting_open(&g->drafting, g->c, g->program, g->threads, &g->request));
    g->json = cli_json(g->c);
    g->log = cli_switch(g->c, "log-steps");
    g->ids_only = !gqac_text_get_settings(g->text)->has_tokenizer;
    return check_sampling(g);
}

void generating_report(const generating *g) {
    if (!cli_quiet(g->c))
        fprintf(stderr, "kv cache: %s (%s)\n", gqac_session_kind(g->session),
                cli_kv_off(g->c) ? "each new token computes all earlier ones again"
                                 : "earlier tokens are not computed again; --kv off turns it off");
}

void generating_free(generating *g) {
    free((void *)g->stops);
    free(g->bias);
    json_decref(g->scores);
    drafting_close(&g->drafting);
    gqac_constraint_free(g->constraint);
    gqac_session_free(g->session);
    gqac_store_free(g->store);
    caching_close_remote(&g->tier);
    gqac_context_free(g->context);
    gqac_threads_free(g->threads);
    gqac_program_free(g->program);
    gqac_text_free(g->text);
}

gqac_status generating_tokenize(generating *g, const char *prompt, int64_t **ids, size_t *n) {
    cli *c = g->c;
    gqac_tokenize_options options;
    gqac_tokenize_options_init(&options);
    options.plain = cli_switch(c, "no-parse-special");
    GQAC_TRY(gqac_text_tokenize_with(g->text, prompt, strlen(prompt), &options, ids, n, &c->diag));
    if (*n)
        return GQAC_OK;
    cli_fail(c, GQAC_INVALID_INPUT, "the prompt has no tokens");
    return cli_hint(c, "a longer prompt, or --ids FILE with the id of a begin-of-text token");
}

/* ---- an answer ----------------------------------------------------------- */

static void log_step(const gqac_generate_event *e) {
    json_t *text = json_stringn(e->text, e->length);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    fprintf(stderr, "step %lld  id %lld  p %.2f %%  phase %s  text %s\n", (long long)e->step,
            (long long)e->id, 100 * e->probability, e->phase, quoted ? quoted : "?");
    if (e->eos)
        fprintf(stderr, "eos  step %lld  id %lld\n", (long long)e->step, (long long)e->id);
    free(quoted);
    json_decref(text);
}

static json_t *score_json(int64_t id, double log_probability) {
    return json_pack("{s:I, s:o}", "id", (json_int_t)id, "logprob", cli_real_json(log_probability));
}

/* {"id", "logprob", "top": [{"id", "logprob"}, ...]} */
static json_t *scores_json(const gqac_generate_event *e) {
    json_t *own = score_json(e->id, e->log_probability), *top = json_array();
    for (int i = 0; i < e->n_top; i++)
        json_array_append_new(top, score_json(e->top[i].id, e->top[i].log_probability));
    json_object_set_new(own, "top", top);
    return own;
}

static void keep_scores(generating *g, const gqac_generate_event *e) {
    if (!g->scores || e->step == 1) {
        json_decref(g->scores);
        g->scores = json_array();
    }
    json_array_append_new(g->scores, scores_json(e));
}

/* The line of a token in --format jsonl. */
static void print_step(generating *g, const gqac_generate_event *e) {
    json_t *text = json_stringn(e->text, e->length);
    json_t *line = json_pack("{s:I, s:I, s:o, s:o, s:s, s:b}", "step", (json_int_t)e->step, "id",
                             (json_int_t)e->id, "text", text ? text : json_null(), "probability",
                             cli_real_json(e->probability), "phase", e->phase, "eos", (int)e->eos);
    if (e->n_top)
        json_object_update_new(line, scores_json(e));
    g->failed |= cli_print_json_line(g->c, line) != GQAC_OK;
}

bool generating_on_token(void *arg, const gqac_generate_event *e) {
    generating *g = arg;
    g->steps = e->step;
    g->c->steps.finishing = true; /* the answer ends after a token */
    if (g->log) {
        if (e->step > 1 && !g->json && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO))
            fputc('\n', stderr); /* the answer is on the same line */
        log_step(e);
    }
    if (cli_json_lines(g->c))
        print_step(g, e);
    else if (g->json && e->n_top)
        keep_scores(g, e);
    if (g->calling)
        g->failed |= calling_push(g->calling, e->id) != GQAC_OK;
    else if (!g->json && g->ids_only)
        printf("%s%lld", e->step > 1 ? " " : "", (long long)e->id);
    else if (!g->json)
        (void)fwrite(e->text, 1, e->length, stdout);
    g->printed += e->length;
    g->failed |= fflush(stdout) != 0 || ferror(stdout);
    return !g->failed && !interrupt_seen();
}

void generating_end_line(generating *g, const gqac_generation *said) {
    if (g->calling) {
        g->failed |= calling_end(g->calling, !said) != GQAC_OK;
        g->failed |= fflush(stdout) != 0 || ferror(stdout);
        return;
    }
    if (said && !g->ids_only && said->length > g->printed)
        (void)fwrite(said->text + g->printed, 1, said->length - g->printed, stdout);
    if (said || g->steps)
        putchar('\n');
    g->failed |= fflush(stdout) != 0 || ferror(stdout);
}

/* The library counts requests; here the only one is the prompt. */
static void explain_prompt(const generating *g, int64_t n) {
    static const char first[] = "request 0";
    char *where = g->c->diag.where;
    if (!strncmp(where, first, strlen(first))) {
        const char *rest = where + strlen(first);
        rest += strspn(rest, ", ");
        memmove(where, rest, strlen(rest) + 1);
    }
    if (n > generating_most_tokens(g) && cli_value(g->c, "context"))
        cli_hint(g->c, "shorten the prompt, or raise --context (the model has %lld positions)",
                 (long long)gqac_program_max_tokens(g->program));
}

gqac_status generating_answer(generating *g, const int64_t *ids, size_t n, gqac_generation **said) {
    gqac_generate_request request = g->request;
    request.prompt = ids;
    request.n_prompt = n;
    request.on_token = generating_on_token;
    request.arg = g;
    if (g->max_length) {
        const int64_t left = g->max_length > (int64_t)n ? g->max_length - (int64_t)n : 0;
        request.max_new = left < request.max_new ? left : request.max_new;
    }
    g->printed = 0;
    g->steps = 0;
    g->c->steps.finishing = false;
    *said = NULL;
    if (g->calling)
        GQAC_TRY(calling_begin(g->calling, request.n_stop, request.stop, !g->json));
    gqac_status status = gqac_generate(g->context, g->text, 1, &request, said, &g->c->diag);
    if (!g->json || g->calling)
        generating_end_line(g, *said);
    if (status == GQAC_USAGE && !*g->c->diag.hint)
        cli_hint(g->c, "gqac %s --help", g->c->verb->name);
    if (status != GQAC_OK)
        explain_prompt(g, (int64_t)n);
    if (status != GQAC_OK || !g->failed)
        return status;
    gqac_generation_free(*said);
    *said = NULL;
    return cli_fail(g->c, GQAC_IO, "cannot write to standard output");
}

/* ---- metrics ------------------------------------------------------------- */

static json_t *metrics_json(const gqac_generate_metrics *m) {
    json_t *all = json_array();
    for (size_t i = 0; i < m->n_forwards; i++)
        json_array_append_new(all, cli_real_json(m->forward_ms[i]));
    json_t *forward =
        json_pack("{s:I, s:o, s:o, s:o, s:o}", "n", (json_int_t)m->n_forwards, "min",
                  cli_real_json(m->forward_ms_min), "max", cli_real_json(m->forward_ms_max), "mean",
                  cli_real_json(m->forward_ms_mean), "all", all);
    return json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "time_to_first_token_ms",
                     cli_real_json(m->time_to_first_token_ms), "decode_tokens_per_second",
                     cli_real_json(m->decode_tokens_per_second), "per_forward_ms", forward,
                     "reused_tokens", (json_int_t)m->reused_tokens, "computed_tokens",
                     (json_int_t)m->computed_tokens, "drafted_tokens",
                     (json_int_t)m->drafted_tokens, "accepted_tokens",
                     (json_int_t)m->accepted_tokens);
}

json_t *generating_json(const generating *g, const gqac_generation *said) {
    json_t *ids = json_array();
    for (size_t i = 0; i < said->n_ids; i++)
        json_array_append_new(ids, json_integer(said->ids[i]));
    json_t *all = json_pack(
        "{s:o, s:o, s:s, s:o}", "ids", ids, "text", json_stringn(said->text, said->length),
        "finish_reason", gqac_finish_name(said->finish), "metrics", metrics_json(&said->metrics));
    if (all && g->request.n_top && !cli_json_lines(g->c)) /* jsonl: the lines of tokens have them */
        json_object_set_new(all, "logprobs",
                            g->scores && said->n_ids ? json_incref(g->scores) : json_array());
    if (all && g->calling)
        calling_add(g->calling, all);
    return all;
}

void generating_metrics(const generating *g, const gqac_generation *said) {
    const gqac_generate_metrics *m = &said->metrics;
    if (g->json || !cli_switch(g->c, "metrics"))
        return;
    fprintf(stderr, "finish reason         %s\n", gqac_finish_name(said->finish));
    fprintf(stderr, "time to first token   %.3f ms\n", m->time_to_first_token_ms);
    fprintf(stderr, "decode                %.3f tokens/s\n", m->decode_tokens_per_second);
    fprintf(stderr, "forward passes        n %zu  min %.3f  max %.3f  mean %.3f ms\n",
            m->n_forwards, m->forward_ms_min, m->forward_ms_max, m->forward_ms_mean);
    if (m->n_forwards)
        fprintf(stderr, "first passes, ms     ");
    for (size_t i = 0; i < m->n_forwards && i < SHOWN_FORWARDS; i++)
        fprintf(stderr, " %.3f", m->forward_ms[i]);
    if (m->n_forwards)
        fprintf(stderr, "%s\n", m->n_forwards > SHOWN_FORWARDS ? " ..." : "");
    fprintf(stderr, "tokens                reused %lld  computed %lld\n",
            (long long)m->reused_tokens, (long long)m->computed_tokens);
    if (g->request.speculate)
        fprintf(stderr, "drafts                drafted %lld  accepted %lld\n",
                (long long)m->drafted_tokens, (long long)m->accepted_tokens);
}
