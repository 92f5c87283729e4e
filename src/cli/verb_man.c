/* gqac man [VERB]: a manual page, made from the tables that --help prints. The install rules run it
 * for gqac(1) and for each verb. On a terminal the page is shown by man or mandoc; everywhere else
 * it is written as it is, in the language of roff. */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/flags.h"

extern char **environ;

/* Text as roff reads it back: a dash is one, and no line begins with a request. */
static void put(const char *text) {
    for (const char *at = text; *at; at++) {
        if ((at == text || at[-1] == '\n') && (*at == '.' || *at == '\''))
            fputs("\\&", stdout);
        if (*at == '\\')
            fputs("\\e", stdout);
        else if (*at == '-')
            fputs("\\-", stdout);
        else
            putchar(*at);
    }
}

static void put_title(const char *verb, const char *summary) {
    printf(".TH GQAC");
    for (size_t i = 0; verb && verb[i]; i++)
        printf("%s%c", i ? "" : "\\-", verb[i] - 'a' + 'A');
    printf(" 1 \"\" \"gqac %s\" \"User Commands\"\n.SH NAME\ngqac%s%s \\- ", gqac_version(),
           verb ? "\\-" : "", verb ? verb : "");
    put(summary);
    printf("\n.SH SYNOPSIS\n");
}

static void put_flags(const gqac_cli_verb *verb, const cli_flag *flags) {
    for (const cli_flag *f = flags; f && f->name; f++) {
        if (cli_overridden(verb, f))
            continue;
        const char *brief = cli_brief(f->name);
        const help_value value = help_value_of(verb, f);
        printf(".TP\n\\fB");
        if (brief) {
            put(brief);
            printf("\\fR, \\fB");
        }
        printf("\\-\\-");
        put(f->name);
        printf("\\fR%s\\fI", *value.s ? " " : "");
        put(value.s);
        printf("\\fR\n");
        put(f->help);
        putchar('\n');
    }
}

static void put_examples(const char *examples) {
    printf(".SH EXAMPLES\n.nf\n");
    put(examples);
    printf(".fi\n");
}

static void put_end(void) {
    const char *meaning = NULL;
    printf(".SH EXIT STATUS\n");
    for (int i = 0, code; (code = help_exit_code(i, &meaning)) >= 0; i++)
        printf(".TP\n%d\n%s\n", code, meaning);
    printf(
        ".SH ENVIRONMENT\nThe variable GQAC_<FLAG> sets a flag that is not given: GQAC_THREADS=4.\n"
        "GQAC_CPU forces an instruction set: scalar, avx2, avx512, avx512vnni or avx512bf16;\n"
        "all compute the same bits.\n");
}

static void print_verb(const gqac_cli_verb *v) {
    put_title(v->name, v->summary);
    printf(".B gqac %s\n", v->name);
    put(v->operands);
    printf(" [\\fIflags\\fR]\n.SH DESCRIPTION\n");
    put(v->summary);
    printf(".\n");
    if (v->details) {
        printf(".nf\n");
        put(v->details);
        printf(".fi\n");
    }
    put_examples(v->examples);
    printf(".SH OPTIONS\n");
    put_flags(v, v->flags);
    printf(".SS Of every verb\n");
    put_flags(v, cli_common_flags(v));
    put_end();
    printf(".SH SEE ALSO\n.BR gqac (1)\n");
}

static void print_all(void) {
    put_title(NULL, "compiles exported ONNX language models and runs them");
    printf(".B gqac\n\\fIverb\\fR ...\n.SH DESCRIPTION\n"
           "The logits of a token depend on the model and on the tokens before it alone, not on\n"
           "how they were split into calls, batched, threaded or cached.\n"
           "MODEL is a .onnx, a .gqac, a .gq, or a folder with genai_config.json.\n"
           ".SH VERBS\n");
    for (int i = 0; gqac_cli_verbs[i]; i++) {
        printf(".TP\n.BR gqac\\-%s (1)\n", gqac_cli_verbs[i]->name);
        put(gqac_cli_verbs[i]->summary);
        putchar('\n');
    }
    put_end();
}

static void print_page(const gqac_cli_verb *verb) {
    if (verb)
        print_verb(verb);
    else
        print_all();
}

/* ---- on a terminal ------------------------------------------------------- */

/* Starts a program that formats a page from its standard input and shows it; returns the end of the
 * pipe to write to, or -1: neither is installed. */
static int start_viewer(pid_t *pid) {
    static char man[] = "man", mandoc[] = "mandoc", local[] = "-l", standard[] = "-",
                pager[] = "-a";
    char *const programs[][4] = {{man, local, standard, NULL}, {mandoc, pager, NULL}};
    posix_spawn_file_actions_t actions;
    int ends[2], failed = 1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    if (posix_spawn_file_actions_init(&actions) == 0) {
        if (posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO) == 0)
            for (size_t i = 0; failed && i < sizeof programs / sizeof *programs; i++)
                failed = posix_spawnp(pid, programs[i][0], &actions, NULL, programs[i], environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[0]);
    if (failed)
        close(ends[1]);
    return failed ? -1 : ends[1];
}

/* Writes the page to the viewer in place of standard output. False: it has not been shown. */
static bool show_page(const gqac_cli_verb *verb) {
    pid_t pid = 0;
    int status = -1;
    const int terminal = dup(STDOUT_FILENO), viewer = terminal < 0 ? -1 : start_viewer(&pid);
    if (viewer >= 0 && dup2(viewer, STDOUT_FILENO) >= 0) {
        (void)signal(SIGPIPE, SIG_IGN); /* a viewer that is closed early */
        print_page(verb);
        if (fflush(stdout) != 0) { /* the viewer ended before it had read everything */
            __fpurge(stdout);
            clearerr(stdout);
        }
        dup2(terminal, STDOUT_FILENO);
    }
    if (viewer >= 0) {
        close(viewer);
        (void)waitpid(pid, &status, 0);
    }
    if (terminal >= 0)
        close(terminal);
    return status == 0; /* a small system may have a man that only says that there is none */
}

static int run(cli *c) {
    const gqac_cli_verb *verb = NULL;
    for (int i = 0; c->n_operands && gqac_cli_verbs[i]; i++)
        if (!strcmp(gqac_cli_verbs[i]->name, c->operands[0]))
            verb = gqac_cli_verbs[i];
    if (c->n_operands && !verb)
        return cli_finish(c, cli_usage(c, "there is no verb '%s'", c->operands[0]));
    const bool terminal = isatty(STDOUT_FILENO);
    if (terminal && show_page(verb))
        return 0;
    print_page(verb);
    if (terminal && !cli_quiet(c))
        fprintf(stderr,
                "gqac: this is the source of a manual page, which man or mandoc would show; "
                "`gqac %s%s--help` prints the same as text\n",
                verb ? verb->name : "", verb ? " " : "");
    return 0;
}

extern const gqac_cli_verb gqac_cli_verb_man;
const gqac_cli_verb gqac_cli_verb_man = {.name = "man",
                                         .operands = "[VERB]",
                                         .most = 1,
                                         .summary = "shows the manual page of gqac or of a verb",
                                         .examples = "gqac man generate\n"
                                                     "gqac man >gqac.1\n",
                                         .no_model = true,
                                         .run = run};
