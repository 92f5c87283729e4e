/* Errors and warnings of the command line. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/flags.h"

/* Prints fmt and the arguments after it into a field of the diag. */
#define FILL(field)                                                                                \
    do {                                                                                           \
        va_list args;                                                                              \
        va_start(args, fmt);                                                                       \
        vsnprintf(field, sizeof(field), fmt, args);                                                \
        va_end(args);                                                                              \
    } while (0)

static void start(cli *c, gqac_status status) {
    memset(&c->diag, 0, sizeof c->diag);
    c->diag.status = status;
}

/* A message that begins with a flag whose value comes from the environment names the variable. */
static void name_source(cli *c) {
    char name[64], flag[64], rest[sizeof c->diag.what];
    const char *what = c->diag.what;
    const size_t n = strspn(what, "abcdefghijklmnopqrstuvwxyz-");
    if (strncmp(what, "--", 2) != 0 || n < 3 || n - 2 >= sizeof flag)
        return;
    snprintf(flag, sizeof flag, "%.*s", (int)n - 2, what + 2);
    flags_variable(flag, n - 2, name, sizeof name);
    if (cli_repeat(c, flag, 0) || !getenv(name) || !*getenv(name))
        return;
    snprintf(rest, sizeof rest, "%s", what + n);
    snprintf(c->diag.what, sizeof c->diag.what, "%s%.*s", name, (int)(sizeof rest - sizeof name),
             rest);
}

gqac_status cli_usage(cli *c, const char *fmt, ...) {
    start(c, GQAC_USAGE);
    FILL(c->diag.what);
    name_source(c);
    if (c->verb)
        cli_hint(c, "gqac %s --help", c->verb->name);
    return GQAC_USAGE;
}

gqac_status cli_fail(cli *c, gqac_status status, const char *fmt, ...) {
    start(c, status);
    FILL(c->diag.what);
    return status;
}

gqac_status cli_where(cli *c, const char *fmt, ...) {
    FILL(c->diag.where);
    return c->diag.status;
}

gqac_status cli_rule(cli *c, const char *fmt, ...) {
    FILL(c->diag.rule);
    return c->diag.status;
}

gqac_status cli_hint(cli *c, const char *fmt, ...) {
    FILL(c->diag.hint);
    return c->diag.status;
}

int cli_finish(cli *c, gqac_status status) {
    if (status == GQAC_OK)
        return 0;
    const gqac_diag *d = &c->diag;
    if (c->confined && status == GQAC_IO && !*d->hint)
        cli_hint(c, "--sandbox may have refused it: --model-root DIR permits another folder");
    cli_clear_progress(c);
    fprintf(stderr, "gqac: %s\n", status == GQAC_ABORTED ? "interrupted" : cli_shown(d->what).s);
    if (*d->where)
        fprintf(stderr, "  where: %s\n", cli_shown(d->where).s);
    if (*d->rule)
        fprintf(stderr, "  rule:  %s\n", cli_shown(d->rule).s);
    if (*d->hint)
        fprintf(stderr, "  try:   %s\n", cli_shown(d->hint).s);
    const int code = gqac_status_exit_code(status);
    if (status != GQAC_ABORTED)
        fprintf(stderr, "  exit:  %d, %s\n", code, gqac_status_meaning(status));
    return code;
}

void cli_warn_refusal(const cli *c, const char *instead, const gqac_diag *refusal) {
    if (refusal && !cli_quiet(c))
        fprintf(stderr, "gqac: %s: %s (%s)\n", instead, cli_shown(refusal->what).s,
                cli_shown(refusal->where).s);
}

void cli_warn_rules(const cli *c, const char *not_obeyed, const gqac_token_rules *rules,
                    int64_t vocabulary) {
    const int64_t beyond = vocabulary ? gqac_token_rules_beyond(rules, vocabulary) : -1;
    if (not_obeyed && !cli_quiet(c))
        fprintf(stderr, "gqac: not obeyed, %s\n", cli_shown(not_obeyed).s);
    if (beyond >= 0 && !cli_quiet(c))
        fprintf(stderr,
                "gqac: the config forbids id %lld, but the model has only %lld ids: it may be that "
                "of another model\n",
                (long long)beyond, (long long)vocabulary);
}

void cli_warn_config(const cli *c, const gqac_program *program, const gqac_text *text) {
    const gqac_text_settings *s = gqac_text_get_settings(text);
    const long long vocabulary = gqac_program_vocabulary(program);
    const long long positions = gqac_program_max_tokens(program);
    char *bytes = NULL;
    size_t length = 0;
    bool special = true;
    if (cli_quiet(c))
        return;
    cli_warn_rules(c, s->not_obeyed, s->rules, vocabulary);
    for (int i = 0; i < s->n_eos && vocabulary; i++)
        if (s->eos[i] >= vocabulary)
            fprintf(stderr,
                    "gqac: eos_token_id %lld: the model has only %lld ids, so no answer can end "
                    "with it\n",
                    (long long)s->eos[i], vocabulary);
    if (s->context_length > positions)
        fprintf(stderr,
                "gqac: context_length is %lld, but a sequence has at most %lld positions, which "
                "limit prompt and answer\n",
                (long long)s->context_length, positions);
    if (vocabulary && s->has_tokenizer &&
        gqac_text_token_bytes(text, vocabulary, &bytes, &length, &special, NULL) == GQAC_OK &&
        !special)
        fprintf(stderr,
                "gqac: the tokenizer has ids that the model does not have (%lld and more): it may "
                "be that of another model\n",
                vocabulary);
    gqac_release(bytes);
}
