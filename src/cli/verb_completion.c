/* gqac completion: prints a script with which bash completes verbs, flags and their values. It is
 * made from the tables that --help prints. */
#include <ctype.h>
#include <string.h>

#include "cli/flags.h"

static const char begin[] =
    "# bash completion of gqac; made by `gqac completion`\n"
    "_gqac() {\n"
    "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
    "  local verb=${COMP_WORDS[1]-} flags= words=\n"
    "  if [ \"$prev\" = = ]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
    "  if [ \"$cur\" = = ]; then cur=; fi\n"
    "  COMPREPLY=()\n";

static const char end[] =
    "  case $words in\n"
    "  '<file>') COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
    "  '<folder>') COMPREPLY=($(compgen -d -- \"$cur\")) ;;\n"
    "  '<text>') ;;\n"
    "  '')\n"
    "    if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
    "    else COMPREPLY=($(compgen -f -- \"$cur\")); fi ;;\n"
    "  *) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
    "  esac\n"
    "}\n"
    "complete -o filenames -F _gqac gqac\n";

/* Prints the lower-case words of values such as "a|b" and "PASS,...|all"; false: there are none. */
static bool print_words(const char *value) {
    bool some = false;
    for (const char *at = value; *(at += strspn(at, "[|]")); at += strcspn(at, "[|]")) {
        const int n = (int)strcspn(at, "[|]");
        if (!strchr(value, '|') || !islower((unsigned char)*at))
            continue;
        printf("%s%.*s", some ? " " : "", n, at);
        some = true;
    }
    return some;
}

static void print_passes(void) {
    const char *name = NULL, *summary = NULL;
    for (int i = 0; gqac_pass_at(i, &name, &summary); i++)
        printf("%s%s", i ? " " : "", name);
}

/* Prints what may follow a flag of the verb. */
static void print_value(const gqac_cli_verb *verb, const cli_flag *f) {
    const help_value value = help_value_of(verb, f);
    const char *brief = cli_brief(f->name);
    if (!f->value)
        return;
    printf("  %s:--%s", verb->name, f->name);
    if (brief)
        printf(" | %s:%s", verb->name, brief);
    printf(") words='");
    if (!strncmp(value.s, "PASS", 4))
        print_passes();
    else if (!print_words(value.s))
        fputs(strstr(value.s, "FILE") || strstr(value.s, ".npy") ? "<file>"
              : strstr(value.s, "DIR")                           ? "<folder>"
                                                                 : "<text>",
              stdout);
    printf("' ;;\n");
}

static void print_flags(const cli_flag *flags) {
    for (const cli_flag *f = flags; f && f->name; f++)
        printf(" --%s", f->name);
}

static int run(cli *c) {
    (void)c;
    fputs(begin, stdout);
    printf("  if [ \"$COMP_CWORD\" = 1 ]; then\n    COMPREPLY=($(compgen -W '--help");
    for (int i = 0; gqac_cli_verbs[i]; i++)
        printf(" %s", gqac_cli_verbs[i]->name);
    printf("' -- \"$cur\"))\n    return\n  fi\n  case $verb in\n");
    for (int i = 0; gqac_cli_verbs[i]; i++) {
        const gqac_cli_verb *v = gqac_cli_verbs[i];
        printf("  %s) flags='--help", v->name);
        print_flags(v->flags);
        print_flags(cli_common_flags(v));
        printf("' ;;\n");
    }
    printf("  esac\n  case $verb:$prev in\n");
    for (int i = 0; gqac_cli_verbs[i]; i++) {
        const cli_flag *const tables[] = {gqac_cli_verbs[i]->flags,
                                          cli_common_flags(gqac_cli_verbs[i])};
        for (int t = 0; t < 2; t++)
            for (const cli_flag *f = tables[t]; f && f->name; f++)
                print_value(gqac_cli_verbs[i], f);
    }
    printf("  esac\n");
    fputs(end, stdout);
    return 0;
}

extern const gqac_cli_verb gqac_cli_verb_completion;
const gqac_cli_verb gqac_cli_verb_completion = {
    .name = "completion",
    .operands = "",
    .summary = "prints a script that completes gqac's verbs, flags and values in bash",
    .examples = "source <(gqac completion)\n"
                "gqac completion >~/.local/share/bash-completion/completions/gqac\n",
    .no_model = true,
    .run = run};
