/* gqac VERB OPERANDS FLAGS: finds the verb, parses its flags, runs it. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"

/* What main returns: a result that could not be written is a failure. */
static int flushed(cli *c, int code) {
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == 0)
        return cli_finish(c, cli_fail(c, GQAC_IO, "cannot write to standard output"));
    return code;
}

static const gqac_cli_verb *find_verb(const char *name) {
    for (int i = 0; gqac_cli_verbs[i]; i++)
        if (!strcmp(gqac_cli_verbs[i]->name, name))
            return gqac_cli_verbs[i];
    return NULL;
}

static bool is_help(const char *word) {
    return !strcmp(word, "--help") || !strcmp(word, "-h");
}

static bool asks_help(const char *word) {
    return is_help(word) || !strcmp(word, "help");
}

int main(int argc, char **argv) {
    cli c = {0};
    (void)signal(SIGXFSZ, SIG_IGN); /* a file size limit is a write that fails */
    cli_watch_files();
    bool help = argc < 2 || asks_help(argv[1]);
    const char *name = help ? argc > 2 ? argv[2] : NULL : argv[1];
    if (!name || (help && asks_help(name))) {
        help_print();
        return flushed(&c, argc < 2 ? 2 : 0);
    }
    c.verb = find_verb(!strcmp(name, "--version") ? "version" : name);
    if (!c.verb) {
        gqac_status status = cli_usage(&c, "unknown verb '%s'", name);
        suggest_verb(&c, name);
        return cli_finish(&c, status);
    }
    for (int i = 2; i < argc; i++)
        help |= is_help(argv[i]);
    if (help) {
        help_print_verb(c.verb);
        return flushed(&c, 0);
    }
    gqac_status status = cli_parse(&c, argc - 2, argv + 2);
    const int code = flushed(&c, status == GQAC_OK ? c.verb->run(&c) : cli_finish(&c, status));
    cli_free(&c);
    return code;
}
