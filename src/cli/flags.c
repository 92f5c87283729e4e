/* Flags: "--name value", "--name=value", switches, and their environment variables. */
#include "cli/flags.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first FOR_MODELS are for verbs that open a model, the others for all verbs. */
enum { FOR_MODELS = 9 };
static const cli_flag common_flags[] = {
    {"target", "cpu|ref|gpu",
     "kernels: cpu is fast; ref is slow and defines the results; gpu runs on a CUDA or OpenCL "
     "device (cpu)"},
    {"device", "N", "device for target gpu, by its number in gqac devices (0)"},
    {"threads", "N", "number of threads (all cores that the process may use)"},
    {"math", "model|exact|bf16",
     "model: as the file specifies; exact: MatMulNBits in fp32, not int8; bf16: factors of "
     "products rounded to bf16 (model)"},
    {"seqlens-k", "total-1|cached",
     "meaning of the input seqlens_k: total-1 as in ONNX Runtime, cached as in the prefix caching "
     "of MIGraphX (total-1)"},
    {"legacy-window", NULL,
     "a window of W has W+1 visible keys, as in ONNX Runtime before 2025-09"},
    {"per-row-quant", NULL,
     "computes one scale per row in DynamicQuantizeLinear: split-safe, but with results other than "
     "those of the file"},
    {"model-root", "DIR", "folder that must contain all external data (the model's own)"},
    {"limit", "NAME=N",
     "a maximum for the model, or for the work on it; gqac inspect --limits lists "
     "the names; " CLI_REPEATS},
    {"format", "KIND", "format of the results (table)"},
    {"verbose", NULL, "prints passes, steps and their times on stderr"},
    {"quiet", NULL, "prints only errors on stderr"},
    {NULL, NULL, NULL},
};

const cli_flag *cli_common_flags(const gqac_cli_verb *verb) {
    return verb->no_model ? common_flags + FOR_MODELS : common_flags;
}

bool cli_overridden(const gqac_cli_verb *verb, const cli_flag *flag) {
    const cli_flag *own = verb->flags;
    while (own && own->name && own != flag && strcmp(own->name, flag->name) != 0)
        own++;
    return own && own->name && own != flag;
}

const char *cli_brief(const char *flag) {
    static const char *const list[][2] = {{"-v", "verbose"},
                                          {"-q", "quiet"},
                                          {"-o", "output"},
                                          {"-n", "new-tokens"},
                                          {"-p", "prompt-tokens"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!strcmp(flag, list[i][1]))
            return list[i][0];
    return NULL;
}

const char *cli_formats(const gqac_cli_verb *verb) {
    return verb->formats ? verb->formats : "table json";
}

/* ---- parsing ------------------------------------------------------------- */

/* How a flag was typed: dashes, then a name. */
static bool is_brief(const cli *c, const char *flag) {
    bool brief = false;
    for (int i = 0; i < c->n_given; i++)
        if (!strcmp(c->given[i].name, flag))
            brief = c->given[i].brief;
    return brief;
}

static const char *dashes_of(const cli *c, const char *flag) {
    return is_brief(c, flag) ? "" : "--";
}

static const char *name_of(const cli *c, const char *flag) {
    return is_brief(c, flag) ? cli_brief(flag) : flag;
}

static const cli_flag *find_in(const cli_flag *flags, const char *word, size_t length) {
    for (const cli_flag *f = flags; f && f->name; f++) {
        const char *brief = cli_brief(f->name);
        if (word[1] != '-' && brief && !strcmp(word, brief))
            return f;
        if (word[1] == '-' && strlen(f->name) == length && !strncmp(f->name, word + 2, length))
            return f;
    }
    return NULL;
}

/* The flag that a word names: "-n", or `length` characters after "--". */
static const cli_flag *find_flag(const cli *c, const char *word, size_t length) {
    const cli_flag *f = find_in(c->verb->flags, word, length);
    return f ? f : find_in(cli_common_flags(c->verb), word, length);
}

bool cli_lists(const char *list, const char *separators, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = list; *(at += strspn(at, separators)); at += strcspn(at, separators))
        if (strcspn(at, separators) == n && !strncmp(at, word, n))
            return true;
    return false;
}

/* Copies a word without the blanks around it to c->choice. */
static gqac_status trim(cli *c, const char *word) {
    static const char blanks[] = " \t\r\n";
    word += strspn(word, blanks);
    size_t n = strlen(word);
    while (n > 0 && strchr(blanks, word[n - 1]))
        n--;
    free(c->choice);
    c->choice = strndup(word, n);
    return c->choice ? GQAC_OK : cli_fail(c, GQAC_NO_MEMORY, "out of memory");
}

/* The value in [...] is optional. Before the first operand, a word that is not one of the choices
 * is that operand. */
static gqac_status take_choice(cli *c, const cli_flag *f, const char *equals, const char *next,
                               int *used, const char **value) {
    *used = 1;
    *value = "";
    if (!equals && (!next || *next == '-'))
        return GQAC_OK;
    const char *word = equals ? equals + 1 : next;
    GQAC_TRY(trim(c, word));
    if (cli_lists(f->value, "[|]", c->choice)) {
        *used = equals ? 1 : 2;
        *value = c->choice;
        return GQAC_OK;
    }
    if (!equals && c->n_operands == 0)
        return GQAC_OK;
    return cli_usage(c, "--%s '%s' is not one of %s", f->name, word, f->value);
}

/* "-n3" was probably meant as "-n 3". */
static gqac_status unknown_flag(cli *c, const char *word) {
    const char brief[] = {word[0], word[1], '\0'};
    cli_usage(c, "unknown flag '%s'", word);
    suggest_flag(c, word);
    const cli_flag *f = word[1] != '-' ? find_flag(c, brief, 0) : NULL;
    if (f && f->value && (isdigit((unsigned char)word[2]) || strchr("=./", word[2])))
        cli_hint(c, "%s %s, with a space between", brief, word + (word[2] == '=' ? 3 : 2));
    return GQAC_USAGE;
}

static gqac_status parse_flag(cli *c, const char *word, const char *next, int *used) {
    const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
    const cli_flag *f = find_flag(c, word, strcspn(word, "=") - (word[1] == '-' ? 2 : 0));
    if (!f)
        return unknown_flag(c, word);
    if (!f->value && equals)
        return cli_usage(c, "--%s takes no value", f->name);
    if (f->value && cli_repeat(c, f->name, 0) && !strstr(f->help, CLI_REPEATS))
        return cli_usage(c, "--%s is given twice", f->name);
    struct cli_given *given = &c->given[c->n_given++];
    given->name = f->name;
    given->brief = word[1] != '-';
    if (f->value && *f->value == '[')
        return take_choice(c, f, equals, next, used, &given->value);
    if (f->value && !equals && !next)
        return cli_usage(c, "%s needs a value: %s %s", word, word, f->value);
    *used = f->value && !equals ? 2 : 1;
    given->value = !f->value ? "1" : equals ? equals + 1 : next;
    if (f->value && !*given->value && (!strcmp(f->value, "FILE") || !strcmp(f->value, "DIR")))
        return cli_usage(c, "%s%s '' is not the name of a %s", dashes_of(c, f->name),
                         name_of(c, f->name), *f->value == 'F' ? "file" : "folder");
    return GQAC_OK;
}

/* The words of a list separated by spaces, from word n on. */
static const char *from_word(const char *list, int n) {
    for (; n > 0 && strchr(list, ' '); n--)
        list = strchr(list, ' ') + 1;
    return list;
}

static gqac_status refuse_operand(cli *c, const char *word) {
    static const char *const texts[] = {"--prompt", "--text"};
    const gqac_cli_verb *v = c->verb;
    cli_usage(c, "unexpected operand '%s'", word);
    cli_rule(c, "gqac %s%s%s [flags]", v->name, *v->operands ? " " : "", v->operands);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (find_in(v->flags, texts[i], strlen(texts[i]) - 2))
            cli_hint(c, "%s TEXT, in quotes if it has spaces; gqac %s --help", texts[i], v->name);
    if (cli_reads_messages(v))
        cli_hint(c, "each line of stdin is a message; gqac %s --help", v->name);
    return GQAC_USAGE;
}

gqac_status cli_parse(cli *c, int argc, char **argv) {
    c->operands = calloc((size_t)argc + 1, sizeof *c->operands);
    c->given = calloc((size_t)argc + 1, sizeof *c->given); /* one more for cli_take_text */
    if (!c->operands || !c->given)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    for (int i = 0, used = 1; i < argc; i += used) {
        used = 1;
        if (argv[i][0] == '-' && argv[i][1])
            GQAC_TRY(parse_flag(c, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used));
        else
            c->operands[c->n_operands++] = argv[i];
    }
    const gqac_cli_verb *v = c->verb;
    if (c->n_operands < v->least)
        return cli_usage(c, "%s is missing", from_word(v->operands, c->n_operands));
    if (v->most >= 0 && c->n_operands > v->most)
        return refuse_operand(c, c->operands[v->most]);
    const char *format = cli_value(c, "format");
    if (format && !cli_lists(cli_formats(v), " ", format))
        return cli_usage(c, "--format '%s' is not one of: %s", format, cli_formats(v));
    return GQAC_OK;
}

void cli_free(cli *c) {
    free((void *)c->operands);
    free(c->given);
    free(c->read);
    free(c->choice);
    gqac_text_free(c->config);
}

/* ---- values -------------------------------------------------------------- */

void flags_variable(const char *flag, size_t length, char *name, size_t size) {
    size_t n = (size_t)snprintf(name, size, "GQAC_");
    for (size_t i = 0; i < length && n + 1 < size; i++)
        name[n++] = flag[i] == '-' ? '_' : (char)toupper((unsigned char)flag[i]);
    name[n] = 0;
}

/* The value that the command line has; NULL: it does not have the flag. */
static const char *value_given(const cli *c, const char *flag) {
    for (int i = c->n_given - 1; i >= 0; i--)
        if (!strcmp(c->given[i].name, flag))
            return c->given[i].value;
    return NULL;
}

bool cli_given(const cli *c, const char *flag) {
    return value_given(c, flag) != NULL;
}

const char *cli_value(const cli *c, const char *flag) {
    const char *given = value_given(c, flag);
    if (given)
        return given;
    char name[64];
    flags_variable(flag, strlen(flag), name, sizeof name);
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool cli_switch(const cli *c, const char *flag) {
    const char *value = cli_value(c, flag);
    return value && strcmp(value, "0") != 0;
}

int cli_count(const cli *c, const char *flag) {
    int n = 0;
    while (cli_repeat(c, flag, n))
        n++;
    return n;
}

const char *cli_repeat(const cli *c, const char *flag, int index) {
    for (int i = 0; i < c->n_given; i++)
        if (!strcmp(c->given[i].name, flag) && index-- == 0)
            return c->given[i].value;
    return NULL;
}

bool cli_json(const cli *c) {
    const char *format = cli_value(c, "format");
    return format && (!strcmp(format, "json") || !strcmp(format, "jsonl"));
}

bool cli_json_lines(const cli *c) {
    const char *format = cli_value(c, "format");
    return format && !strcmp(format, "jsonl");
}

bool cli_quiet(const cli *c) {
    return cli_switch(c, "quiet");
}

static bool parse_number(const char *text, const char *end, long long *out) {
    char *stop = NULL;
    errno = 0;
    *out = strtoll(text, &stop, 10);
    return stop == end && stop != text && !errno && !isspace((unsigned char)*text) && *text != '+';
}

gqac_status cli_number(cli *c, const char *flag, long long least, long long most,
                       long long fallback, long long *out) {
    const char *text = cli_value(c, flag);
    *out = fallback;
    if (text && (!parse_number(text, text + strlen(text), out) || *out < least || *out > most))
        return cli_usage(c, "%s%s '%s' is not a whole number from %lld to %lld", dashes_of(c, flag),
                         name_of(c, flag), text, least, most);
    return GQAC_OK;
}

gqac_status cli_real(cli *c, const char *flag, double fallback, double *out) {
    const char *text = cli_value(c, flag);
    char *stop = NULL;
    *out = fallback;
    if (!text)
        return GQAC_OK;
    *out = strtod(text, &stop);
    if (!*text || *stop || text[strspn(text, "+-.0123456789eE")] || !isfinite(*out))
        return cli_usage(c, "%s%s '%s' is not a decimal number", dashes_of(c, flag),
                         name_of(c, flag), text);
    return GQAC_OK;
}

/* The number from `at` to `end` in the value `text` of a flag. */
static gqac_status take_number(cli *c, const char *flag, const char *text, const char *at,
                               const char *end, long long least, long long most, int64_t *out) {
    long long value = 0;
    if (!parse_number(at, end, &value) || value < least || value > most)
        return cli_usage(c, "%s%s '%s': '%.*s' is not a whole number from %lld to %lld",
                         dashes_of(c, flag), name_of(c, flag), text, (int)(end - at), at, least,
                         most);
    *out = value;
    return GQAC_OK;
}

gqac_status cli_number_in(cli *c, const char *flag, const char *text, const char *part,
                          long long least, long long most, int64_t *out) {
    return take_number(c, flag, text, part, part + strlen(part), least, most, out);
}

gqac_status cli_numbers(cli *c, const char *flag, const char *text, long long least, long long most,
                        int64_t **out, int *n) {
    int64_t *list = calloc(strlen(text) + 1, sizeof *list);
    if (!list)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    *n = 0;
    for (const char *at = text;; at++) {
        const char *end = at + strcspn(at, ",");
        const gqac_status status = take_number(c, flag, text, at, end, least, most, &list[(*n)++]);
        if (status != GQAC_OK) {
            free(list);
            return status;
        }
        at = end;
        if (!*at)
            break;
    }
    *out = list;
    return GQAC_OK;
}
