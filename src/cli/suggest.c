/* What was probably meant by a flag or verb that gqac does not have: what other tools call ours,
 * else the name that is spelled most alike. */
#include <string.h>
#include <unistd.h>

#include "cli/flags.h"

enum { MOST_LETTERS = 24 };

/* Names of other tools (llama.cpp, onnxruntime-genai, transformers) and of our other verbs. The
 * first entry whose `ours` is a flag of the verb wins; `ours` may end with a value. */
static const struct {
    const char *theirs, *ours;
} others[] = {
    {"p", "prompt"},
    {"p", "text"},
    {"text", "prompt"},
    {"prompt", "text"},
    {"f", "prompt-file"},
    {"file", "prompt-file"},
    {"file", "text-file"},
    {"prompt-file", "text-file"},
    {"prompt-file", "file"},
    {"sys", "system"},
    {"system-prompt", "system"},
    {"tokens", "new-tokens"},
    {"n-predict", "new-tokens"},
    {"predict", "new-tokens"},
    {"max-tokens", "new-tokens"},
    {"max-new-tokens", "new-tokens"},
    {"c", "context"},
    {"ctx-size", "context"},
    {"max-length", "context"},
    {"t", "threads"},
    {"s", "seed"},
    {"repeat-penalty", "repetition-penalty"},
    {"no-cache", "kv off"},
    {"grammar-file", "grammar"},
    {"schema", "json-schema"},
    {"json-schema-file", "json-schema"},
    {"json", "format json"},
    {"stream", "format jsonl"},
    {"cacert", "remote-cacert"},
    {"cert", "remote-cert"},
    {"key", "remote-key"},
    {"device", "target"},
    {"backend", "target"},
    {"execution-provider", "target"},
    {"e", "target"},
    {"out", "output"},
    {"outfile", "output"},
};

static bool has_flag(const cli_flag *flags, const char *name, size_t length) {
    for (const cli_flag *f = flags; f && f->name; f++)
        if (strlen(f->name) == length && !strncmp(f->name, name, length))
            return true;
    return false;
}

/* The number of letters to insert, leave out or replace to turn one word into the other. */
static int distance(const char *a, const char *b) {
    int row[MOST_LETTERS + 1];
    const size_t n = strlen(a), m = strlen(b);
    if (n > MOST_LETTERS || m > MOST_LETTERS)
        return MOST_LETTERS;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            const int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            const int shorter = (row[j - 1] < row[j] ? row[j - 1] : row[j]) + 1;
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[m];
}

/* 0: one word begins with the other, of at least 3 letters; else the number of letters that differ,
 * or MOST_LETTERS if these are more than a third of the longer word. */
static int unlike(const char *typed, const char *name) {
    const size_t n = strlen(typed), m = strlen(name), shorter = n < m ? n : m;
    if (shorter >= 3 && !strncmp(typed, name, shorter))
        return 0;
    const int letters = distance(typed, name);
    return letters <= (int)(n < m ? m : n) / 3 ? letters : MOST_LETTERS;
}

static void closest(const char *typed, const char *name, const char **best, int *least) {
    const int letters = unlike(typed, name);
    if (letters >= *least)
        return;
    *least = letters;
    *best = name;
}

static const char *find(const cli *c, const char *typed) {
    const cli_flag *const tables[] = {c->verb->flags, cli_common_flags(c->verb)};
    const char *best = NULL;
    int least = MOST_LETTERS;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (int t = 0; t < 2 && !strcmp(typed, others[i].theirs); t++)
            if (has_flag(tables[t], others[i].ours, strcspn(others[i].ours, " ")))
                return others[i].ours;
    for (int t = 0; t < 2; t++)
        for (const cli_flag *f = tables[t]; f && f->name; f++)
            closest(typed, f->name, &best, &least);
    return best;
}

bool cli_reads_messages(const gqac_cli_verb *verb) {
    return has_flag(verb->flags, "system", strlen("system"));
}

void suggest_flag(cli *c, const char *word) {
    char typed[MOST_LETTERS + 1] = "";
    word += strspn(word, "-");
    const size_t n = strcspn(word, "=");
    if (!n || n > MOST_LETTERS)
        return;
    memcpy(typed, word, n);
    for (char *s = typed; *s; s++)
        *s = *s == '_' ? '-' : *s;
    const char *name = c->verb->name, *found = find(c, typed);
    if (!strcmp(c->verb->operands, "MODEL") && (!strcmp(typed, "m") || !strcmp(typed, "model")))
        cli_hint(c, "gqac %s MODEL: MODEL is an operand, not a flag", name);
    else if (cli_lists("p prompt text message", " ", typed) && cli_reads_messages(c->verb))
        cli_hint(c, "each line of stdin is a message; gqac %s --help lists all flags", name);
    else if (found)
        cli_hint(c, "--%s; gqac %s --help lists all flags", found, name);
}

void suggest_verb(cli *c, const char *word) {
    const char *best = NULL;
    int least = MOST_LETTERS;
    for (int i = 0; gqac_cli_verbs[i]; i++)
        closest(word, gqac_cli_verbs[i]->name, &best, &least);
    if (best)
        cli_hint(c, "gqac %s; gqac --help lists the verbs", best);
    else if (*word != '-' && access(word, F_OK) == 0)
        cli_hint(c, "gqac chat MODEL: the verb comes first; gqac --help lists the verbs");
    else
        cli_hint(c, "gqac --help lists the verbs");
}
