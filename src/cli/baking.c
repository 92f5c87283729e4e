/* See baking.h. What follows a text may change its last tokens, since a tokenizer merges
 * characters. So the text is tokenized with several texts after it, and what they have in common is
 * baked. */
#include "cli/baking.h"

#include <stdlib.h>
#include <string.h>

#include "cli/messages.h"

static const char *const probes[] = {"a",     "A", "1",  " a", "\na",
                                     "\n\na", ".", "\"", "<",  "\xc3\xa9"};
enum { PROBES = sizeof probes / sizeof *probes };

static bool is_as(const cli *c, const gqac_text *text, const char *name) {
    const char *as = cli_value(c, "bake-as");
    if (as)
        return !strcmp(as, name);
    return !strcmp(name, gqac_text_get_settings(text)->has_template ? "system" : "prompt");
}

gqac_status baking_check(cli *c, bool artefact) {
    const char *as = cli_value(c, "bake-as");
    if (as && !cli_lists("system prompt ids", " ", as))
        return cli_usage(c, "--bake-as '%s' is not system, prompt or ids", as);
    if (!cli_value(c, "bake") && as)
        return cli_usage(c, "--bake-as needs --bake");
    if (!cli_value(c, "bake"))
        return cli_given(c, "kv") ? cli_usage(c, "--kv needs --bake") : GQAC_OK;
    if (!artefact)
        return cli_usage(c, "--bake needs an artefact as output: -o FILE.gqac");
    if (cli_switch(c, "stateless"))
        return cli_usage(
            c, "--bake and --stateless cannot be combined: `run` cannot use a baked prefix");
    return GQAC_OK;
}

/* ---- tokens -------------------------------------------------------------- */

/* Tokens of the text and a probe after it. */
static gqac_status tokenize(cli *c, const gqac_text *text, bool system, const char *body,
                            const char *probe, int64_t **ids, size_t *n) {
    if (system) {
        json_t *messages = json_array();
        gqac_status status = messages_add(c, messages, "system", body, strlen(body));
        if (status == GQAC_OK)
            status = messages_add(c, messages, "user", probe, strlen(probe));
        if (status == GQAC_OK)
            status = messages_tokenize(c, text, messages, NULL, ids, n);
        json_decref(messages);
        return status;
    }
    const size_t length = strlen(body), more = strlen(probe);
    char *whole = malloc(length + more + 1);
    if (!whole)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    memcpy(whole, body, length); /* NOLINT(bugprone-not-null-terminated-result): more follows */
    memcpy(whole + length, probe, more + 1);
    const gqac_status status =
        gqac_text_tokenize_with(text, whole, length + more, NULL, ids, n, &c->diag);
    free(whole);
    return status;
}

/* Checked between two texts, whose rendering has a limit of its own. */
static gqac_status check_time(const baking *b, cli *c) {
    const int64_t most = c->limits.compile_ms; /* 0: the default, a day */
    if (!most || (cli_seconds() - b->began) * 1e3 <= (double)most)
        return GQAC_OK;
    cli_fail(c, GQAC_LIMIT, "making tokens of the text of --bake takes too long");
    cli_rule(c, "the limit compile-ms is %lld", (long long)most);
    return cli_hint(c, "if you trust the model, raise it: --limit compile-ms=N");
}

/* The number of ids with which both lists begin. */
static size_t common(const int64_t *ids, size_t n, const int64_t *others, size_t n_others) {
    size_t i = 0;
    while (i < n && i < n_others && ids[i] == others[i])
        i++;
    return i;
}

/* Tokens that the text has whatever follows it; b->ids is malloc'd. */
static gqac_status tokenize_common(baking *b, cli *c, const gqac_text *text, bool system,
                                   const char *body) {
    size_t kept = 0;
    for (int i = 0; i < PROBES; i++) {
        int64_t *ids = NULL;
        size_t n = 0;
        GQAC_TRY(check_time(b, c));
        GQAC_TRY(tokenize(c, text, system, body, probes[i], &ids, &n));
        if (!i) {
            b->ids = malloc((n + 1) * sizeof *ids);
            if (b->ids)
                memcpy(b->ids, ids, n * sizeof *ids);
            kept = n;
        }
        kept = b->ids ? common(b->ids, kept, ids, n) : 0;
        gqac_release(ids);
        if (!b->ids)
            return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    }
    b->bake.n = (int64_t)kept;
    return check_time(b, c);
}

/* A template may ignore system messages, or put them after what the user says. */
static gqac_status check_system(const baking *b, cli *c, const gqac_text *text, const char *body) {
    int64_t *ids = NULL;
    size_t n = 0;
    GQAC_TRY(tokenize(c, text, true, *body == 'a' ? "b" : "a", probes[0], &ids, &n));
    const size_t same = common(b->ids, (size_t)b->bake.n, ids, n);
    gqac_release(ids);
    if (same < (size_t)b->bake.n)
        return GQAC_OK;
    cli_fail(c, GQAC_UNSUPPORTED,
             "prompts of the chat template do not begin with the system message");
    return cli_hint(c, "--bake-as prompt, for `generate`");
}

static gqac_status read_text(baking *b, cli *c, const gqac_text *text, const char *path) {
    const bool system = is_as(c, text, "system");
    const gqac_text_settings *x = gqac_text_get_settings(text);
    const gqac_diag *refusal = x->tokenizer_refusal;
    char *body = NULL;
    if (system && x->has_tokenizer && !x->has_template) {
        if (!x->template_refusal)
            return cli_usage(c, "--bake-as system: the model has no chat template");
        refusal = x->template_refusal;
    }
    if (refusal) {
        c->diag = *refusal;
        return refusal->status;
    }
    if (!x->has_tokenizer)
        return cli_usage(c, "--bake: the model has no tokenizer; --bake-as ids reads token ids");
    gqac_status status = messages_read(c, path, &body);
    if (status == GQAC_OK)
        status = tokenize_common(b, c, text, system, body);
    if (status == GQAC_OK && system)
        status = check_system(b, c, text, body);
    free(body);
    return status;
}

gqac_status baking_open(baking *b, cli *c, const gqac_text *text, gqac_options *options) {
    const char *path = cli_value(c, "bake");
    int64_t n = 0;
    if (!path)
        return GQAC_OK;
    gqac_bake_init(&b->bake, NULL, 0);
    b->began = cli_seconds();
    if (is_as(c, text, "ids")) {
        GQAC_TRY(cli_read_ids(c, path, &b->ids, &n));
        b->bake.n = n;
    } else {
        GQAC_TRY(read_text(b, c, text, path));
    }
    if (!b->bake.n)
        return cli_fail(c, GQAC_INVALID_INPUT, "the text of --bake '%s' has no tokens", path);
    b->bake.ids = b->ids;
    b->bake.kv = cli_value(c, "kv");
    GQAC_TRY(cli_threads(c, &b->bake.threads));
    options->bake = &b->bake;
    return GQAC_OK;
}

void baking_close(baking *b) {
    free(b->ids);
}
