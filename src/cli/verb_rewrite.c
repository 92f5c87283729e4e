/* gqac rewrite MODEL --pass NAME -o OUT.onnx: another ONNX file of the same model. */
#include <string.h>

#include "cli/cli.h"
#include "cli/interrupt.h"

static const cli_flag flags[] = {
    {"pass", "NAME", "name of the rewrite; --list lists them"},
    {"output", "FILE", "the file to write; may be MODEL itself"},
    {"list", NULL, "lists all rewrites with a summary of each"},
    {NULL, NULL, NULL},
};

static int list(void) {
    const char *name = NULL, *summary = NULL;
    for (int i = 0; gqac_rewrite_at(i, &name, &summary); i++)
        printf("%-18s %s\n", name, summary);
    return 0;
}

static gqac_status report(cli *c, const char *name, const gqac_rewritten *done) {
    if (cli_json(c)) {
        json_t *files = json_array();
        for (int i = 0; i < done->n_files; i++)
            json_array_append_new(files, cli_text_json(done->files[i]));
        json_t *all = json_pack("{s:s, s:I, s:o}", "pass", name, "changes",
                                (json_int_t)done->changes, "files", files);
        if (!all)
            return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
        cli_print_json(all);
        return GQAC_OK;
    }
    if (done->changes)
        printf("%s: %lld %s\n", name, (long long)done->changes, done->counted);
    else
        printf("%s: nothing to do; the graph is unchanged\n", name);
    for (int i = 0; i < done->n_files; i++)
        printf("wrote %s\n", done->files[i]);
    return GQAC_OK;
}

static gqac_status rewrite(cli *c) {
    char path[4096];
    gqac_options options;
    gqac_rewritten *done = NULL;
    const char *name = cli_value(c, "pass"), *out = cli_value(c, "output");
    if (c->n_operands < 1)
        return cli_usage(c, "MODEL is missing");
    if (!name)
        return cli_usage(c, "--pass NAME is missing; --list lists the names");
    if (!out)
        return cli_usage(c, "-o FILE is missing");
    if (cli_form_of(out) && strcmp(cli_form_of(out), "onnx") != 0)
        return cli_usage(c, "-o '%s' does not have the suffix of an ONNX file", out);
    GQAC_TRY(cli_check_writable(c, out));
    GQAC_TRY(cli_options(c, &options));
    GQAC_TRY(cli_model(c, &options, path, sizeof path));
    GQAC_TRY(gqac_rewrite(path, name, &options, out, &done, &c->diag));
    const gqac_status status = report(c, name, done);
    gqac_release(done);
    return status;
}

static int run(cli *c) {
    interrupt_listen();
    interrupt_listen_term();
    return cli_switch(c, "list") ? list() : cli_finish(c, rewrite(c));
}

extern const gqac_cli_verb gqac_cli_verb_rewrite;
const gqac_cli_verb gqac_cli_verb_rewrite = {
    .name = "rewrite",
    .operands = "MODEL",
    .most = 1,
    .summary = "rewrites a model as ONNX: adds a cache, splits it into two graphs, ...",
    .examples = "gqac rewrite --list\n"
                "gqac rewrite no-cache.onnx --pass insert-kv -o cached.onnx\n"
                "gqac rewrite model.onnx --pass two-graph -o split.onnx\n",
    .flags = flags,
    .run = run,
};
