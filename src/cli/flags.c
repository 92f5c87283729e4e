/* Flags: "--name value", "--name=value", switches, environment, and the options they stand for. */
#include "cli/flags.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const cli_flag cli_common_flags[] = {
    {"target", "cpu|ref|gpu",
     "kernels: cpu is fast; ref is slow and defines the results; gpu runs on a CUDA or OpenCL "
     "device (cpu)"},
    {"device", "N", "device for target gpu, by its number in gqac devices (0)"},
    {"threads", "N", "number of threads (all cores that the process may use)"},
    {"math", "model|exact|bf16",
     "model: what the file asks for; exact: MatMulNBits in fp32, not int8; bf16: factors of "
     "products rounded to bf16 (model)"},
    {"seqlens-k", "total-1|cached",
     "meaning of the input seqlens_k: total-1 as in ONNX Runtime, cached as in the prefix caching "
     "of MIGraphX (total-1)"},
    {"legacy-window", NULL,
     "a window of W has W+1 visible keys, as in ONNX Runtime before 2025-09"},
    {"per-row-quant", NULL,
     "computes one scale per row in DynamicQuantizeLinear: split-safe, but with other results than "
     "the file asks for"},
    {"model-root", "DIR", "folder that must contain all external data (the model's own)"},
    {"format", "KIND", "format of the results (table)"},
    {"verbose", NULL, "prints passes, steps and their times on stderr"},
    {"quiet", NULL, "prints only errors on stderr"},
    {NULL, NULL, NULL},
};

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

/* ---- errors -------------------------------------------------------------- */

static void set_what(cli *c, gqac_status status, const char *fmt, va_list args) {
    memset(&c->diag, 0, sizeof c->diag);
    c->diag.status = status;
    vsnprintf(c->diag.what, sizeof c->diag.what, fmt, args);
}

/* A flag's environment variable. */
static void name_variable(const char *flag, size_t length, char *name, size_t size) {
    size_t n = (size_t)snprintf(name, size, "GQAC_");
    for (size_t i = 0; i < length && n + 1 < size; i++)
        name[n++] = flag[i] == '-' ? '_' : (char)toupper((unsigned char)flag[i]);
    name[n] = 0;
}

/* A message that begins with a flag whose value comes from the environment names the variable. */
static void name_source(cli *c) {
    char name[64], flag[64], rest[sizeof c->diag.what];
    const char *what = c->diag.what;
    const size_t n = strspn(what, "abcdefghijklmnopqrstuvwxyz-");
    if (strncmp(what, "--", 2) != 0 || n < 3 || n - 2 >= sizeof flag)
        return;
    snprintf(flag, sizeof flag, "%.*s", (int)n - 2, what + 2);
    name_variable(flag, n - 2, name, sizeof name);
    if (cli_repeat(c, flag, 0) || !getenv(name) || !*getenv(name))
        return;
    snprintf(rest, sizeof rest, "%s", what + n);
    snprintf(c->diag.what, sizeof c->diag.what, "%s%.*s", name, (int)(sizeof rest - sizeof name),
             rest);
}

gqac_status cli_usage(cli *c, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    set_what(c, GQAC_USAGE, fmt, args);
    va_end(args);
    name_source(c);
    if (c->verb)
        snprintf(c->diag.hint, sizeof c->diag.hint, "gqac %s --help", c->verb->name);
    return GQAC_USAGE;
}

gqac_status cli_fail(cli *c, gqac_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    set_what(c, status, fmt, args);
    va_end(args);
    return status;
}

int cli_finish(cli *c, gqac_status status) {
    if (status == GQAC_OK)
        return 0;
    const gqac_diag *d = &c->diag;
    cli_clear_progress(c);
    if (status == GQAC_ABORTED)
        fprintf(stderr, "gqac: interrupted\n");
    else
        fprintf(stderr, "gqac: %s: %s\n", gqac_status_meaning(status), cli_shown(d->what).s);
    if (*d->where)
        fprintf(stderr, "  where: %s\n", cli_shown(d->where).s);
    if (*d->rule)
        fprintf(stderr, "  rule:  %s\n", cli_shown(d->rule).s);
    if (*d->hint)
        fprintf(stderr, "  try:   %s\n", cli_shown(d->hint).s);
    return gqac_status_exit_code(status);
}

void cli_warn_refusal(const cli *c, const char *instead, const gqac_diag *refusal) {
    if (refusal && !cli_quiet(c))
        fprintf(stderr, "gqac: %s: %s (%s)\n", instead, cli_shown(refusal->what).s,
                cli_shown(refusal->where).s);
}

void cli_warn_ends(const cli *c, const gqac_program *program, const gqac_text *text) {
    const gqac_text_settings *s = gqac_text_get_settings(text);
    const int64_t vocabulary = gqac_program_vocabulary(program);
    for (int i = 0; i < s->n_eos && vocabulary && !cli_quiet(c); i++)
        if (s->eos[i] >= vocabulary)
            fprintf(stderr,
                    "gqac: eos_token_id %lld: the model has %lld ids, so no answer ends with it\n",
                    (long long)s->eos[i], (long long)vocabulary);
}

/* ---- parsing ------------------------------------------------------------- */

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
    return f ? f : find_in(cli_common_flags, word, length);
}

bool cli_lists(const char *list, const char *separators, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = list; *(at += strspn(at, separators)); at += strcspn(at, separators))
        if (strcspn(at, separators) == n && !strncmp(at, word, n))
            return true;
    return false;
}

/* Before the first operand a word that is no choice is that operand, not a value. */
static gqac_status take_choice(cli *c, const cli_flag *f, const char *equals, const char *next,
                               int *used, const char **value) {
    *used = 1;
    *value = "";
    if (!equals && (!next || *next == '-'))
        return GQAC_OK;
    const char *word = equals ? equals + 1 : next;
    if (cli_lists(f->value, "[|]", word)) {
        *used = equals ? 1 : 2;
        *value = word;
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
        snprintf(c->diag.hint, sizeof c->diag.hint, "%s %s, with a space between", brief,
                 word + (word[2] == '=' ? 3 : 2));
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
    if (f->value && *f->value == '[')
        return take_choice(c, f, equals, next, used, &given->value);
    if (f->value && !equals && !next)
        return cli_usage(c, "--%s needs a value: --%s %s", f->name, f->name, f->value);
    *used = f->value && !equals ? 2 : 1;
    given->value = !f->value ? "1" : equals ? equals + 1 : next;
    if (f->value && !*given->value && (!strcmp(f->value, "FILE") || !strcmp(f->value, "DIR")))
        return cli_usage(c, "--%s '' is not the name of a %s", f->name,
                         *f->value == 'F' ? "file" : "folder");
    return GQAC_OK;
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
        return cli_usage(c, "%s is missing", v->operands);
    if (v->most >= 0 && c->n_operands > v->most)
        return cli_usage(c, "unexpected operand '%s'", c->operands[v->most]);
    const char *format = cli_value(c, "format");
    if (format && !cli_lists(cli_formats(v), " ", format))
        return cli_usage(c, "--format '%s' is not one of: %s", format, cli_formats(v));
    return GQAC_OK;
}

void cli_free(cli *c) {
    free((void *)c->operands);
    free(c->given);
    free(c->read);
    gqac_text_free(c->config);
}

/* ---- values -------------------------------------------------------------- */

const char *cli_value(const cli *c, const char *flag) {
    for (int i = c->n_given - 1; i >= 0; i--)
        if (!strcmp(c->given[i].name, flag))
            return c->given[i].value;
    char name[64];
    name_variable(flag, strlen(flag), name, sizeof name);
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
        return cli_usage(c, "--%s '%s' is not a whole number from %lld to %lld", flag, text, least,
                         most);
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
        return cli_usage(c, "--%s '%s' is not a decimal number", flag, text);
    return GQAC_OK;
}

gqac_status cli_numbers(cli *c, const char *flag, const char *text, long long least, long long most,
                        int64_t **out, int *n) {
    int64_t *list = calloc(strlen(text) + 1, sizeof *list);
    if (!list)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    *n = 0;
    for (const char *at = text;; at++) {
        const char *end = at + strcspn(at, ",");
        long long value = 0;
        if (!parse_number(at, end, &value) || value < least || value > most) {
            free(list);
            return cli_usage(c, "--%s '%s': '%.*s' is not a whole number from %lld to %lld", flag,
                             text, (int)(end - at), at, least, most);
        }
        list[(*n)++] = value;
        at = end;
        if (!*at)
            break;
    }
    *out = list;
    return GQAC_OK;
}

static void write_line(void *arg, gqac_log_level level, const char *text) {
    (void)arg, (void)level;
    fprintf(stderr, "gqac: %s\n", cli_shown(text).s);
}

gqac_status cli_options(cli *c, gqac_options *options) {
    gqac_options_init(options);
    options->monitor = cli_watch_model(c);
    const struct {
        const char *flag, **field;
    } texts[] = {{"target", &options->target},
                 {"math", &options->math},
                 {"seqlens-k", &options->seqlens_k},
                 {"model-root", &options->model_root}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (cli_value(c, texts[i].flag))
            *texts[i].field = cli_value(c, texts[i].flag);
    long long device;
    GQAC_TRY(cli_number(c, "device", 0, INT_MAX, 0, &device));
    if (cli_value(c, "device") && strcmp(options->target, "gpu") != 0)
        return cli_usage(c, "--device needs --target gpu");
    options->device = (int)device;
    options->legacy_window = cli_switch(c, "legacy-window");
    options->per_row_quant = cli_switch(c, "per-row-quant");
    static gqac_log log = {.size = sizeof log, .line = write_line};
    log.level = cli_switch(c, "verbose") ? GQAC_LOG_DEBUG : GQAC_LOG_WARNING;
    if (cli_switch(c, "verbose") || !cli_quiet(c))
        options->log = &log;
    return GQAC_OK;
}

gqac_status cli_model(cli *c, gqac_options *options, char *path, size_t size) {
    GQAC_TRY(gqac_text_model_path(c->operands[0], path, size, &c->diag));
    if (!options)
        return GQAC_OK;
    if (!c->config)
        GQAC_TRY(gqac_text_open(c->operands[0], GQAC_TEXT_CONFIG, &c->config, &c->diag));
    const gqac_text_settings *settings = gqac_text_get_settings(c->config);
    options->n_io_names = settings->n_io_names;
    options->io_names = settings->io_names;
    return GQAC_OK;
}

int64_t cli_most_tokens(cli *c) {
    static const char *const pack[] = {"pack", NULL};
    gqac_options options;
    gqac_program *program = NULL;
    const gqac_diag before = c->diag;
    int64_t most = INT64_MAX;
    if (cli_options(c, &options) == GQAC_OK) {
        options.disable = pack;
        options.log = NULL;
        if (gqac_model_open(c->operands[0], &options, 0, &program, NULL, &c->diag) == GQAC_OK)
            most = gqac_program_max_tokens(program);
    }
    gqac_program_free(program);
    c->diag = before;
    return most;
}

bool cli_kv_off(const cli *c) {
    const char *kv = cli_value(c, "kv");
    return kv && !strcmp(kv, "off");
}

gqac_status cli_open(cli *c, bool cacheless, gqac_program **program) {
    const char *model = c->operands[0];
    gqac_options options;
    GQAC_TRY(cli_options(c, &options));
    const gqac_status status = gqac_model_open(model, &options, 0, program, NULL, &c->diag);
    if (status != GQAC_UNSUPPORTED || !cacheless ||
        (!cli_kv_off(c) && !strstr(c->diag.what, "no KV cache")))
        return status;
    const gqac_diag why = c->diag;
    const gqac_kv_pair *pairs = NULL;
    options.stateless = true;
    GQAC_TRY(gqac_model_open(model, &options, 0, program, NULL, &c->diag));
    if (!gqac_program_kv_pairs(*program, &pairs))
        return GQAC_OK;
    gqac_program_free(*program);
    *program = NULL;
    c->diag = why;
    return GQAC_UNSUPPORTED;
}

gqac_status cli_open_stateless(cli *c, gqac_program **program, gqac_context **context) {
    char path[4096];
    int threads = 1;
    gqac_options options;
    GQAC_TRY(cli_options(c, &options));
    GQAC_TRY(cli_threads(c, &threads));
    GQAC_TRY(cli_model(c, NULL, path, sizeof path));
    options.stateless = true;
    GQAC_TRY(gqac_program_open(path, &options, program, &c->diag));
    return gqac_context_create(*program, threads, context, &c->diag);
}

gqac_status cli_threads(cli *c, int *threads) {
    long long n = 1;
    GQAC_TRY(cli_number(c, "threads", 1, 1024, gqac_threads_default(), &n));
    *threads = (int)n;
    return GQAC_OK;
}

double cli_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
