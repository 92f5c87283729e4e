/* See translating.h. gqac/seq2seq.h generates; this file reads flags and prints. A
 * translation is any answer of an encoder and a decoder, a transcription too. */
#include "cli/translating.h"

#include <stdlib.h>

#include "cli/interrupt.h"

typedef struct translation {
    generating *g;
    cli *c;
    gqac_seq2seq *model;
    gqac_threads *threads;
    gqac_seq2seq_context *context;
    gqac_tensor features;
    int64_t *ids, n_ids; /* of --ids */
    int64_t *prompt;     /* ids of --prompt */
    gqac_seq2seq_source source;
} translation;

/* ---- flags --------------------------------------------------------------- */

static const translating_flag refused[] = {
    {"kv", "decoder_model.onnx alone computes all ids every time, like --kv off"},
    {"context", "-n is the maximum number of new ids"},
    {"prompt-cache", TRANSLATING_KEEPS_NOTHING},
    TRANSLATING_STORE_FLAGS,
    {"speculate", "leave it out: each step has one new id"},
    {"draft", "leave it out: each step has one new id"},
    {NULL, NULL},
};

gqac_status translating_refuse(cli *c, const translating_flag *flags) {
    while (flags->name && !cli_given(c, flags->name))
        flags++;
    if (!flags->name)
        return GQAC_OK;
    cli_usage(c, "--%s is for sequences; a decoder with an encoder has none", flags->name);
    cli_rule(c, "its caches are inputs of its graphs, and grow with each id");
    return cli_hint(c, "%s", flags->hint);
}

static gqac_status read_prompt(translation *t, const char *prompt) {
    GQAC_TRY(generating_tokenize(t->g, prompt, &t->prompt, &t->source.n_ids));
    t->source.ids = t->prompt;
    return GQAC_OK;
}

static gqac_status read_ids(translation *t, const char *file) {
    GQAC_TRY(cli_read_ids(t->c, file, &t->ids, &t->n_ids));
    t->source.ids = t->ids;
    t->source.n_ids = (size_t)t->n_ids;
    const gqac_tensor ids = {.dtype = GQAC_I64, .rank = 1, .dims = {t->n_ids}, .data = t->ids};
    return cli_check_ids(t->c, "--ids", &ids);
}

static gqac_status read_source(translation *t) {
    const char *prompt = cli_value(t->c, "prompt"), *file = cli_value(t->c, "ids");
    const char *features = cli_value(t->c, "features");
    t->source.size = sizeof t->source;
    const int given = (prompt != NULL) + (file != NULL) + (features != NULL);
    if (given != 1)
        return cli_usage(t->c,
                         "exactly one of --prompt TEXT, --ids FILE, --features FILE is needed");
    if (!features)
        return file ? read_ids(t, file) : read_prompt(t, prompt);
    t->source.features = &t->features;
    return gqac_npy_read(features, GQAC_NONE, &t->features, &t->c->diag);
}

/* ---- opening ------------------------------------------------------------- */

static gqac_status open_text(translation *t) {
    generating *g = t->g;
    GQAC_TRY(gqac_text_open(t->c->operands[0], GQAC_TEXT_TOKENIZER, &g->text, &t->c->diag));
    const gqac_text_settings *settings = gqac_text_get_settings(g->text);
    cli_warn_refusal(t->c, "ids only", settings->tokenizer_refusal);
    g->ids_only = !settings->has_tokenizer;
    g->json = cli_json(t->c);
    g->log = cli_switch(t->c, "log-steps");
    return GQAC_OK;
}

static gqac_status open_model(translation *t) {
    int threads = 1;
    gqac_options options;
    GQAC_TRY(cli_options(t->c, &options));
    GQAC_TRY(cli_threads(t->c, &threads));
    GQAC_TRY(gqac_seq2seq_open(t->c->operands[0], &options, &t->model, &t->c->diag));
    const gqac_seq2seq_settings *x = gqac_seq2seq_get_settings(t->model);
    const bool features = x->features;
    if (features != (t->source.features != NULL))
        return cli_usage(t->c, "the encoder needs %s",
                         features ? "features: --features FILE.npy"
                                  : "ids: --prompt TEXT or --ids FILE");
    cli_warn_rules(t->c, x->not_obeyed, x->rules, x->vocabulary);
    interrupt_hold(true);
    gqac_status status = gqac_threads_create(threads, &t->threads, &t->c->diag);
    interrupt_hold(false);
    GQAC_TRY(status);
    GQAC_TRY(gqac_seq2seq_context_create(t->model, t->threads, &t->context, &t->c->diag));
    return gqac_seq2seq_context_set_monitor(t->context, cli_watch_steps(t->c, NULL), &t->c->diag);
}

/* ---- the answer ---------------------------------------------------------- */

static gqac_status answer(translation *t, gqac_generation **said) {
    generating *g = t->g;
    g->request.on_token = generating_on_token;
    g->request.arg = g;
    const gqac_status status =
        gqac_seq2seq_generate(t->context, g->text, &t->source, &g->request, said, &t->c->diag);
    if (!g->json)
        generating_end_line(g, *said);
    GQAC_TRY(status);
    if (g->failed)
        return cli_fail(t->c, GQAC_IO, "cannot write to standard output");
    if (g->json)
        return cli_print_json_line(t->c, generating_json(g, *said));
    generating_metrics(g, *said);
    return GQAC_OK;
}

static gqac_status translate(translation *t, gqac_generation **said) {
    gqac_generate_request *request = &t->g->request;
    long long most = 128;
    GQAC_TRY(translating_refuse(t->c, refused));
    GQAC_TRY(cli_number(t->c, "new-tokens", 0, INT32_MAX, most, &most));
    GQAC_TRY(open_text(t));
    gqac_generate_request_init(request, NULL, NULL, NULL, 0);
    request->max_new = most;
    GQAC_TRY(generating_sampling(t->g));
    GQAC_TRY(generating_stops(t->g));
    GQAC_TRY(generating_constraint(t->g));
    GQAC_TRY(read_source(t));
    GQAC_TRY(open_model(t));
    const gqac_seq2seq_settings *settings = gqac_seq2seq_get_settings(t->model);
    request->n_eos = settings->n_eos;
    request->eos = settings->eos;
    t->g->sampling.rules = settings->rules;
    return answer(t, said);
}

gqac_status translating_run(generating *g) {
    translation t = {.g = g, .c = g->c};
    gqac_generation *said = NULL;
    const gqac_status status = translate(&t, &said);
    gqac_generation_free(said);
    gqac_seq2seq_context_free(t.context);
    gqac_threads_free(t.threads);
    gqac_seq2seq_free(t.model);
    gqac_tensor_free(&t.features);
    gqac_release(t.prompt);
    free(t.ids);
    return status;
}
