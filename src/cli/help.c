/* What --help prints: examples, then the table of flags. */
#include <string.h>

#include "cli/flags.h"

enum { LEFT = 28, WIDTH = 100 }; /* width of the column of flags, and of all */

static const struct {
    int code;
    const char *meaning;
} exits[] = {
#define GQAC_EXIT(code, meaning) {code, meaning},
#include <gqac/status.def>
};

int help_exit_code(int i, const char **meaning) {
    if (i >= (int)(sizeof exits / sizeof *exits))
        return -1;
    *meaning = exits[i].meaning;
    return exits[i].code;
}

help_value help_value_of(const gqac_cli_verb *verb, const cli_flag *flag) {
    help_value value = {0};
    const bool format = !strcmp(flag->name, "format");
    const char *text = format ? cli_formats(verb) : flag->value ? flag->value : "";
    snprintf(value.s, sizeof value.s, "%s", text);
    for (char *s = value.s; format && *s; s++)
        *s = *s == ' ' ? '|' : *s;
    return value;
}

/* The text from a column on, in lines of at most WIDTH characters, with a newline at its end. */
static void print_wrapped(const char *text, int column) {
    int at = column;
    for (const char *word = text; *word; word += strspn(word, " ")) {
        const int n = (int)strcspn(word, " ");
        if (at > column && at + 1 + n > WIDTH) {
            printf("\n%*s", column, "");
            at = column;
        }
        at += printf("%s%.*s", at > column ? " " : "", n, word);
        word += n;
    }
    putchar('\n');
}

static void print_flags(const gqac_cli_verb *verb, const cli_flag *flags) {
    for (const cli_flag *f = flags; f && f->name; f++) {
        if (cli_overridden(verb, f))
            continue;
        char left[128];
        const char *brief = cli_brief(f->name);
        const help_value value = help_value_of(verb, f);
        const int n = snprintf(left, sizeof left, "%s%s--%s%s%s", brief ? brief : "",
                               brief ? ", " : "", f->name, *value.s ? " " : "", value.s);
        if (n > LEFT)
            printf("  %s\n  %*s ", left, LEFT, "");
        else
            printf("  %-*s ", LEFT, left);
        print_wrapped(f->help, LEFT + 3);
    }
}

static void print_examples(const char *examples) {
    for (const char *at = examples; at && *at; at += strcspn(at, "\n") + 1)
        printf("  %.*s\n", (int)strcspn(at, "\n"), at);
}

void help_print_verb(const gqac_cli_verb *verb) {
    printf("usage: gqac %s%s%s [flags]\n\n%s\n", verb->name, *verb->operands ? " " : "",
           verb->operands, verb->summary);
    if (verb->details)
        printf("\n%s", verb->details);
    printf("\nexamples:\n");
    print_examples(verb->examples);
    if (verb->flags && verb->flags->name) {
        printf("\nflags (defaults in parentheses):\n");
        print_flags(verb, verb->flags);
    }
    printf("\ncommon flags:\n");
    print_flags(verb, cli_common_flags(verb));
    printf("\nexit codes:\n");
    const char *meaning = NULL;
    for (int i = 0, code; (code = help_exit_code(i, &meaning)) >= 0; i++)
        printf("  %3d  %s\n", code, meaning);
}

void help_print(void) {
    printf("gqac %s: compile exported ONNX language models and run them with the same bits,\n"
           "however the tokens are split, batched, threaded or cached\n\n",
           gqac_version());
    printf("usage: gqac VERB ...      gqac VERB --help\n\n");
    for (int i = 0; gqac_cli_verbs[i]; i++)
        printf("  %-10s %s\n", gqac_cli_verbs[i]->name, gqac_cli_verbs[i]->summary);
    printf("\nexamples:\n");
    print_examples("gqac inspect models/tiny-gqa --kv --invariance\n"
                   "gqac compile models/tiny-gqa -o tiny.gqac\n"
                   "gqac chat tiny.gqac\n");
    printf("\nMODEL is a .onnx, a .gqac, a .gq, or a folder with genai_config.json.\n");
}
