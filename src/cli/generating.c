/* See generating.h. Settings: a flag, else the search settings of the model's genai_config.json,
 * else greedy. Text goes to stdout, all else to stderr. */
#include "cli/generating.h"

#include <stdlib.h>
#include <string.h>

#include "cli/interrupt.h"

/* ---- settings ------------------------------------------------------------ */

gqac_status generating_sampling(generating *g) {
    cli *c = g->c;
    const gqac_text_settings *x = gqac_text_get_settings(g->text);
    gqac_sampling *s = &g->sampling;
    long long top_k = 0, seed = 0;
    static const char *const flags[] = {"temperature", "top-k", "top-p", "min-p", "seed"};
    gqac_sampling_init(s);
    g->request.sampling = s;
    s->sample = x->do_sample;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        s->sample |= cli_value(c, flags[i]) != NULL;
    gqac_status status = cli_real(c, "temperature", x->temperature, &s->temperature);
    if (status == GQAC_OK)
        status = cli_real(c, "top-p", x->top_p, &s->top_p);
    if (status == GQAC_OK)
        status = cli_real(c, "min-p", 0, &s->min_p);
    if (status == GQAC_OK)
        status = cli_real(c, "repetition-penalty", x->repetition_penalty, &s->repetition_penalty);
    if (status == GQAC_OK)
        status = cli_number(c, "top-k", 0, INT64_MAX, x->top_k, &top_k);
    if (status == GQAC_OK)
        status = cli_number(c, "seed", 0, INT64_MAX, 0, &seed);
    s->top_k = top_k;
    s->seed = (uint64_t)seed;
    return status;
}

gqac_status generating_stops(generating *g) {
    int n = 0;
    while (cli_repeat(g->c, "stop", n))
        n++;
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

static gqac_status choose(generating *g, gqac_session_options *session) {
    cli *c = g->c;
    const gqac_text_settings *x = gqac_text_get_settings(g->text);
    const char *kv = cli_value(c, "kv");
    long long most = 128, context = 0;
    gqac_generate_request_init(&g->request, g->text, NULL, NULL, 0);
    gqac_status status = cli_number(c, "new-tokens", 0, INT32_MAX, most, &most);
    if (status == GQAC_OK)
        status = cli_number(c, "context", 1, INT64_MAX, x->context_length, &context);
    if (status == GQAC_OK)
        status = generating_sampling(g);
    if (status == GQAC_OK)
        status = generating_stops(g);
    g->request.max_new = most;
    g->max_length = cli_value(c, "new-tokens") ? 0 : x->max_length;
    session->kv = kv && *kv ? kv : NULL;
    session->context = context;
    return status;
}

/* ---- opening ------------------------------------------------------------- */

static gqac_status open_program(generating *g, const gqac_session_options *session) {
    int threads = 1;
    gqac_status status = cli_threads(g->c, &threads);
    if (status == GQAC_OK)
        status = cli_open(g->c, cli_kv_off(g->c), &g->program);
    interrupt_hold(true);
    if (status == GQAC_OK)
        status = cli_context(g->c, g->program, threads, "prompt", &g->context);
    interrupt_hold(false);
    if (status == GQAC_OK)
        status = gqac_session_create(g->program, session, &g->session, &g->c->diag);
    return status;
}

/* Before the model is loaded: its config and its tables of positions bound a context. */
static gqac_status check_context(generating *g, int64_t context) {
    int64_t most = gqac_text_get_settings(g->text)->context_length;
    if (!most || context <= most)
        most = cli_most_tokens(g->c);
    if (context <= most)
        return GQAC_OK;
    cli_fail(g->c, GQAC_OUT_OF_RANGE, "--context %lld, the model has %lld positions",
             (long long)context, (long long)most);
    snprintf(g->c->diag.hint, sizeof g->c->diag.hint, "--context %lld, or none", (long long)most);
    return GQAC_OUT_OF_RANGE;
}

int64_t generating_most_tokens(const generating *g) {
    const int64_t rows = gqac_program_most_tokens(g->program);
    const int64_t config = gqac_text_get_settings(g->text)->context_length;
    int64_t most = g->context_tokens ? g->context_tokens : INT64_MAX;
    most = config && config < most ? config : most;
    return rows < most ? rows : most;
}

gqac_status generating_open(generating *g, unsigned parts) {
    gqac_session_options session = {.size = sizeof session};
    gqac_status status = GQAC_OK;
    if (!g->text)
        status = gqac_text_open(g->c->operands[0], parts, &g->text, &g->c->diag);
    if (status == GQAC_OK)
        status = choose(g, &session);
    if (status == GQAC_OK && cli_value(g->c, "context"))
        status = check_context(g, session.context);
    if (status == GQAC_OK)
        status = open_program(g, &session);
    g->context_tokens = session.context;
    if (status != GQAC_OK)
        return status;
    g->request.session = g->session;
    g->json = cli_json(g->c);
    g->log = cli_switch(g->c, "log-steps");
    g->ids_only = !gqac_text_get_settings(g->text)->has_tokenizer;
    if (!cli_quiet(g->c))
        fprintf(stderr, "kv cache: %s\n", gqac_session_kind(g->session));
    return GQAC_OK;
}

void generating_free(generating *g) {
    free((void *)g->stops);
    gqac_session_free(g->session);
    gqac_context_free(g->context);
    gqac_program_free(g->program);
    gqac_text_free(g->text);
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

bool generating_hear(void *arg, const gqac_generate_event *e) {
    generating *g = arg;
    g->steps = e->step;
    g->c->steps.finishing = true; /* the answer ends behind a token */
    if (g->log)
        log_step(e);
    if (!g->json && g->ids_only)
        printf("%s%lld", e->step > 1 ? " " : "", (long long)e->id);
    else if (!g->json)
        fwrite(e->text, 1, e->length, stdout);
    g->printed += e->length;
    g->failed |= fflush(stdout) != 0 || ferror(stdout);
    return !g->failed && !interrupt_seen();
}

void generating_end_line(generating *g, const gqac_generation *said) {
    if (said && !g->ids_only && said->length > g->printed)
        fwrite(said->text + g->printed, 1, said->length - g->printed, stdout);
    if (said || g->steps)
        putchar('\n');
    g->failed |= fflush(stdout) != 0 || ferror(stdout);
}

gqac_status generating_answer(generating *g, const int64_t *ids, size_t n, gqac_generation **said) {
    gqac_generate_request request = g->request;
    request.prompt = ids;
    request.n_prompt = n;
    request.on_token = generating_hear;
    request.arg = g;
    if (g->max_length) {
        const int64_t room = g->max_length > (int64_t)n ? g->max_length - (int64_t)n : 0;
        request.max_new = room < request.max_new ? room : request.max_new;
    }
    g->printed = 0;
    g->steps = 0;
    g->c->steps.finishing = false;
    *said = NULL;
    gqac_status status = gqac_generate(g->context, g->text, 1, &request, said, &g->c->diag);
    if (!g->json)
        generating_end_line(g, *said);
    if (status == GQAC_USAGE && !*g->c->diag.hint)
        snprintf(g->c->diag.hint, sizeof g->c->diag.hint, "gqac %s --help", g->c->verb->name);
    if (status != GQAC_OK || !g->failed)
        return status;
    gqac_generation_free(*said);
    *said = NULL;
    return cli_fail(g->c, GQAC_IO, "cannot write to standard output");
}

/* ---- what it took -------------------------------------------------------- */

static json_t *metrics_json(const gqac_generate_metrics *m) {
    json_t *all = json_array();
    for (size_t i = 0; i < m->n_forwards; i++)
        json_array_append_new(all, cli_real_json(m->forward_ms[i]));
    json_t *forward =
        json_pack("{s:I, s:o, s:o, s:o, s:o}", "n", (json_int_t)m->n_forwards, "min",
                  cli_real_json(m->forward_ms_min), "max", cli_real_json(m->forward_ms_max), "mean",
                  cli_real_json(m->forward_ms_mean), "all", all);
    return json_pack("{s:o, s:o, s:o, s:I, s:I}", "time_to_first_token_ms",
                     cli_real_json(m->time_to_first_token_ms), "decode_tokens_per_second",
                     cli_real_json(m->decode_tokens_per_second), "per_forward_ms", forward,
                     "reused_tokens", (json_int_t)m->reused_tokens, "computed_tokens",
                     (json_int_t)m->computed_tokens);
}

json_t *generating_json(const gqac_generation *said) {
    json_t *ids = json_array();
    for (size_t i = 0; i < said->n_ids; i++)
        json_array_append_new(ids, json_integer(said->ids[i]));
    return json_pack("{s:o, s:o, s:s, s:o}", "ids", ids, "text",
                     json_stringn(said->text, said->length), "finish_reason",
                     gqac_finish_name(said->finish), "metrics", metrics_json(&said->metrics));
}

void generating_metrics(const generating *g, const gqac_generation *said) {
    const gqac_generate_metrics *m = &said->metrics;
    if (g->json || !cli_switch(g->c, "metrics"))
        return;
    fprintf(stderr, "finish reason         %s\n", gqac_finish_name(said->finish));
    fprintf(stderr, "time to first token   %.3f ms\n", m->time_to_first_token_ms);
    fprintf(stderr, "decode                %.3f tokens/s\n", m->decode_tokens_per_second);
    fprintf(stderr, "forwards              n %zu  min %.3f  max %.3f  mean %.3f ms\n",
            m->n_forwards, m->forward_ms_min, m->forward_ms_max, m->forward_ms_mean);
    fprintf(stderr, "each forward, ms     ");
    for (size_t i = 0; i < m->n_forwards; i++)
        fprintf(stderr, " %.3f", m->forward_ms[i]);
    fprintf(stderr, "\ntokens                reused %lld  computed %lld\n",
            (long long)m->reused_tokens, (long long)m->computed_tokens);
}
