/* gqac VERB OPERANDS FLAGS: finds the verb, parses its flags, runs it. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"

static void print_flags(const cli_flag *flags) {
    for (const cli_flag *f = flags; f && f->name; f++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", f->name, f->value ? " " : "",
                 f->value ? f->value : "");
        printf("  %-28s %s\n", left, f->help);
    }
}

/* What main returns: a result that could not be written is a failure. */
static int flushed(cli *c, int code) {
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == 0)
        return cli_finish(c, cli_fail(c, GQAC_IO, "cannot write to standard output"));
    return code;
}

static int print_verb_help(const gqac_cli_verb *verb) {
    printf("usage: gqac %s %s [flags]\n\n%s\n", verb->name, verb->operands, verb->summary);
    if (verb->flags && verb->flags->name) {
        printf("\nflags:\n");
        print_flags(verb->flags);
    }
    printf("\ncommon flags:\n");
    print_flags(cli_common_flags);
    printf("\nexit: 0 ok, 1 comparison failed, 2 usage, 3 model invalid or unsupported,\n"
           "      4 runtime failure, 5 I/O, 77 skipped, 130 interrupted\n");
    return 0;
}

static int print_help(void) {
    printf("gqac %s: compile exported ONNX language models and run them with the same bits,\n"
           "however the tokens are split, batched, threaded or cached\n\n",
           gqac_version());
    printf("usage: gqac VERB ...      gqac VERB --help\n\n");
    for (int i = 0; gqac_cli_verbs[i]; i++)
        printf("  %-10s %s\n", gqac_cli_verbs[i]->name, gqac_cli_verbs[i]->summary);
    printf("\nMODEL is a .onnx, a .gqac, a .gq, or a folder with genai_config.json.\n");
    return 0;
}

static const gqac_cli_verb *find_verb(const char *name) {
    for (int i = 0; gqac_cli_verbs[i]; i++)
        if (!strcmp(gqac_cli_verbs[i]->name, name))
            return gqac_cli_verbs[i];
    return NULL;
}

int main(int argc, char **argv) {
    cli c = {0};
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
        !strcmp(argv[1], "help")) {
        print_help();
        return flushed(&c, argc < 2 ? 2 : 0);
    }
    const char *name = !strcmp(argv[1], "--version") ? "version" : argv[1];
    c.verb = find_verb(name);
    if (!c.verb) {
        gqac_status status = cli_usage(&c, "unknown or not yet built verb '%s'", argv[1]);
        snprintf(c.diag.hint, sizeof c.diag.hint, "gqac --help lists the verbs");
        return cli_finish(&c, status);
    }
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return flushed(&c, print_verb_help(c.verb));
    gqac_status status = cli_parse(&c, argc - 2, argv + 2);
    const int code = flushed(&c, status == GQAC_OK ? c.verb->run(&c) : cli_finish(&c, status));
    cli_free(&c);
    return code;
}
