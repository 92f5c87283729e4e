/* gqac man [VERB]: a manual page, made from the tables that --help prints. The install rules run it
 * for gqac(1) and for each verb. */
#include <string.h>

#include "cli/flags.h"

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

static int run(cli *c) {
    if (!c->n_operands) {
        print_all();
        return 0;
    }
    for (int i = 0; gqac_cli_verbs[i]; i++)
        if (!strcmp(gqac_cli_verbs[i]->name, c->operands[0])) {
            print_verb(gqac_cli_verbs[i]);
            return 0;
        }
    return cli_finish(c, cli_usage(c, "there is no verb '%s'", c->operands[0]));
}

extern const gqac_cli_verb gqac_cli_verb_man;
const gqac_cli_verb gqac_cli_verb_man = {.name = "man",
                                         .operands = "[VERB]",
                                         .most = 1,
                                         .summary = "prints the manual page of gqac or of a verb",
                                         .examples = "gqac man generate | man -l -\n"
                                                     "gqac man >gqac.1\n",
                                         .no_model = true,
                                         .run = run};
