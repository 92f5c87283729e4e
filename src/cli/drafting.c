/* See drafting.h. */
#include "cli/drafting.h"

gqac_status drafting_most(cli *c, int64_t *most) {
    long long given = 0;
    GQAC_TRY(cli_number(c, "speculate", 0, GQAC_DRAFTS_MOST, 0, &given));
    *most = given;
    return GQAC_OK;
}

void drafting_warn(cli *c, int64_t most, const char *why) {
    if (most && why && !cli_quiet(c))
        fprintf(stderr, "gqac: no speculation: %s\n", why);
}

gqac_status drafting_choose(cli *c, gqac_generate_request *request) {
    GQAC_TRY(drafting_most(c, &request->speculate));
    if (request->speculate || !cli_value(c, "draft"))
        return GQAC_OK;
    cli_usage(c, "--draft needs --speculate N");
    return cli_hint(c, "--speculate 5, the maximum number of drafts in a step");
}

/* Adds the model to the diag of a failure. */
static gqac_status in_draft(cli *c, gqac_status status) {
    if (status != GQAC_OK && !*c->diag.where)
        cli_where(c, "--draft %s", cli_shown(cli_value(c, "draft")).s);
    return status;
}

static gqac_status open_model(drafting *d, cli *c, const gqac_program *program) {
    gqac_options options;
    gqac_text *own = NULL;
    GQAC_TRY(cli_options(c, &options));
    GQAC_TRY(gqac_model_open(cli_value(c, "draft"), &options, GQAC_TEXT_TOKENIZER, &d->program,
                             &d->text, &c->diag));
    GQAC_TRY(gqac_text_open(c->operands[0], GQAC_TEXT_TOKENIZER, &own, &c->diag));
    const gqac_status status = gqac_check_draft(program, own, d->program, d->text, &c->diag);
    gqac_text_free(own);
    return status;
}

static gqac_status open_session(drafting *d, cli *c, gqac_threads *threads) {
    gqac_monitor monitor = c->steps.monitor; /* Ctrl-C; the progress shown is that of the model */
    monitor.progress = NULL;
    GQAC_TRY(gqac_context_create_on(d->program, threads, &d->context, &c->diag));
    GQAC_TRY(gqac_context_set_monitor(d->context, &monitor, NULL, &c->diag));
    return gqac_session_create(d->program, NULL, &d->session, &c->diag);
}

gqac_status drafting_open(drafting *d, cli *c, const gqac_program *program, gqac_threads *threads,
                          gqac_generate_request *request) {
    const char *why = gqac_session_no_drafts(request->session);
    drafting_warn(c, request->speculate, why);
    if (!request->speculate || why || !cli_value(c, "draft"))
        return GQAC_OK;
    GQAC_TRY(in_draft(c, open_model(d, c, program)));
    GQAC_TRY(in_draft(c, open_session(d, c, threads)));
    request->draft = d->session;
    request->draft_context = d->context;
    return GQAC_OK;
}

void drafting_close(drafting *d) {
    gqac_session_free(d->session);
    gqac_context_free(d->context);
    gqac_program_free(d->program);
    gqac_text_free(d->text);
}
