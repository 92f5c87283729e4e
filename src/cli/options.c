/* The options that the common flags stand for, and the model that they open. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static void write_line(void *arg, gqac_log_level level, const char *text) {
    (void)arg, (void)level;
    fprintf(stderr, "gqac: %s\n", cli_shown(text).s);
}

gqac_status cli_limits(cli *c, const gqac_limits **limits) {
    const char *given;
    gqac_limits_init(&c->limits);
    *limits = &c->limits;
    for (int i = 0; (given = cli_repeat(c, "limit", i)); i++) {
        char name[64];
        int64_t most = 0;
        const int length = (int)strcspn(given, "=");
        if (!given[length] || length >= (int)sizeof name)
            return cli_usage(c, "--limit '%s' is not of the form NAME=N", given);
        snprintf(name, sizeof name, "%.*s", length, given);
        GQAC_TRY(cli_number_in(c, "limit", given, given + length + 1, 1, INT64_MAX, &most));
        GQAC_TRY(gqac_limits_set(&c->limits, name, most, &c->diag));
    }
    return GQAC_OK;
}

gqac_status cli_options(cli *c, gqac_options *options) {
    gqac_options_init(options);
    GQAC_TRY(cli_limits(c, &options->limits));
    options->monitor = cli_watch_model(c);
    const struct {
        const char *flag, **field;
    } texts[] = {{"target", &options->target},
                 {"math", &options->math},
                 {"seqlens-k", &options->seqlens_k},
                 {"model-root", &options->model_root}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (cli_value(c, texts[i].flag))
            *texts[i].field = cli_value(c, texts[i].flag);
    long long device;
    GQAC_TRY(cli_number(c, "device", 0, INT_MAX, 0, &device));
    if (cli_value(c, "device") && strcmp(options->target, "gpu") != 0)
        return cli_usage(c, "--device needs --target gpu");
    options->device = (int)device;
    options->legacy_window = cli_switch(c, "legacy-window");
    options->per_row_quant = cli_switch(c, "per-row-quant");
    static gqac_log log = {.size = sizeof log, .line = write_line};
    log.level = cli_switch(c, "verbose") ? GQAC_LOG_DEBUG : GQAC_LOG_WARNING;
    if (cli_switch(c, "verbose") || !cli_quiet(c))
        options->log = &log;
    return GQAC_OK;
}

gqac_status cli_open_text(cli *c, unsigned parts, gqac_text **text) {
    const gqac_limits *limits;
    GQAC_TRY(cli_limits(c, &limits));
    return gqac_text_open_within(c->operands[0], parts, limits, text, &c->diag);
}

gqac_status cli_model(cli *c, gqac_options *options, char *path, size_t size) {
    GQAC_TRY(gqac_text_model_path(c->operands[0], path, size, &c->diag));
    if (!options)
        return GQAC_OK;
    if (!c->config)
        GQAC_TRY(gqac_text_open(c->operands[0], GQAC_TEXT_CONFIG, &c->config, &c->diag));
    const gqac_text_settings *settings = gqac_text_get_settings(c->config);
    options->n_io_names = settings->n_io_names;
    options->io_names = settings->io_names;
    return GQAC_OK;
}

int64_t cli_most_tokens(cli *c) {
    static const char *const pack[] = {"pack", NULL};
    gqac_options options;
    gqac_program *program = NULL;
    const gqac_diag before = c->diag;
    int64_t most = INT64_MAX;
    if (cli_options(c, &options) == GQAC_OK) {
        options.disable = pack;
        options.log = NULL;
        if (gqac_model_open(c->operands[0], &options, 0, &program, NULL, &c->diag) == GQAC_OK)
            most = gqac_program_max_tokens(program);
    }
    gqac_program_free(program);
    c->diag = before;
    return most;
}

gqac_status cli_check_context(cli *c, int64_t context, int64_t most) {
    if (context <= most)
        return GQAC_OK;
    cli_fail(c, GQAC_OUT_OF_RANGE, "--context %lld: the model has only %lld positions",
             (long long)context, (long long)most);
    return cli_hint(c, "--context %lld, or no --context", (long long)most);
}

bool cli_kv_off(const cli *c) {
    const char *kv = cli_value(c, "kv");
    return kv && !strcmp(kv, "off");
}

gqac_status cli_open(cli *c, bool cacheless, gqac_program **program) {
    const char *model = c->operands[0];
    gqac_options options;
    GQAC_TRY(cli_options(c, &options));
    const gqac_status status = gqac_model_open(model, &options, 0, program, NULL, &c->diag);
    if (status != GQAC_UNSUPPORTED || !cacheless ||
        (!cli_kv_off(c) && !strstr(c->diag.what, "no KV cache")))
        return status;
    const gqac_diag why = c->diag;
    const gqac_kv_pair *pairs = NULL;
    options.stateless = true;
    GQAC_TRY(gqac_model_open(model, &options, 0, program, NULL, &c->diag));
    if (!gqac_program_kv_pairs(*program, &pairs))
        return GQAC_OK;
    gqac_program_free(*program);
    *program = NULL;
    c->diag = why;
    return GQAC_UNSUPPORTED;
}

gqac_status cli_open_stateless(cli *c, gqac_program **program, gqac_context **context) {
    char path[4096];
    int threads = 1;
    gqac_options options;
    GQAC_TRY(cli_options(c, &options));
    GQAC_TRY(cli_threads(c, &threads));
    GQAC_TRY(cli_model(c, NULL, path, sizeof path));
    options.stateless = true;
    GQAC_TRY(gqac_program_open(path, &options, program, &c->diag));
    return gqac_context_create(*program, threads, context, &c->diag);
}

gqac_status cli_threads(cli *c, int *threads) {
    long long n = 1;
    GQAC_TRY(cli_number(c, "threads", 1, 1024, gqac_threads_default(), &n));
    *threads = (int)n;
    return GQAC_OK;
}
