/* gqac compile MODEL -o OUT: runs the passes, dumps, writes an artefact, ONNX or text. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/baking.h"
#include "cli/interrupt.h"
#include "cli/sandboxing.h"

static const cli_flag flags[] = {
    {"output", "FILE", "the file to write"},
    {"emit", "gqac|onnx|text",
     "format of the file: an artefact, ONNX or text IR (by the suffix .gqac, .onnx or .gq of FILE; "
     "else gqac)"},
    {"dump", "PASS,...|all", "prints the graph after these passes"},
    {"stop-after", "PASS", "stops after this pass; not for an artefact"},
    {"disable", "PASS,...", "passes to leave out"},
    {"list-passes", NULL, "lists all passes with a summary of each"},
    {"time-passes", NULL, "prints the time of each pass on stderr"},
    BAKING_FLAGS,
    SANDBOXING_FLAG("only to the folder of --output"),
    {"stateless", NULL, "keeps past and present as inputs and outputs, for `gqac run`"},
    {NULL, NULL, NULL},
};

typedef struct listener {
    const char *dump; /* comma list or "all" */
    bool time;
    bool failed;
} listener;

static void hear(void *arg, const gqac_pass_event *event) {
    listener *l = arg;
    if (l->time)
        fprintf(stderr, "%-12s %9.3f ms\n", event->pass, event->seconds * 1e3);
    if (!l->dump || (strcmp(l->dump, "all") != 0 && !cli_lists(l->dump, ",", event->pass)))
        return;
    char *text = gqac_pass_text(event);
    l->failed |= !text;
    if (text)
        printf("// after %s\n%s", event->pass, text);
    gqac_release(text);
}

static gqac_status check_names(cli *c, const char *flag) {
    const char *list = cli_value(c, flag);
    if (!list || (!strcmp(flag, "dump") && !strcmp(list, "all")))
        return GQAC_OK;
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const int n = (int)strcspn(at, ",");
        const char *name = NULL, *summary = NULL;
        bool found = false;
        for (int i = 0; !found && gqac_pass_at(i, &name, &summary); i++)
            found = (int)strlen(name) == n && !strncmp(at, name, (size_t)n);
        if (!found)
            return cli_usage(c, "--%s: there is no pass '%.*s'; see --list-passes", flag, n, at);
    }
    return GQAC_OK;
}

static int list_passes(void) {
    const char *name = NULL, *summary = NULL;
    for (int i = 0; gqac_pass_at(i, &name, &summary); i++)
        printf("%-12s %s\n", name, summary);
    return 0;
}

/* --emit, else what the ending of the output stands for, else an artefact. */
static gqac_status choose_emit(cli *c, gqac_emit *emit) {
    const char *out = cli_value(c, "output"), *form = out ? cli_form_of(out) : NULL;
    const char *kind = cli_value(c, "emit") ? cli_value(c, "emit") : form;
    static const char *const kinds[] = {"gqac", "onnx", "text"};
    if (out && !strcmp(out, "-"))
        return cli_usage(c, "-o - is not a file: compile cannot write to standard output");
    if (form && strcmp(kind, form) != 0)
        return cli_usage(c, "--emit %s contradicts the suffix of '%s'", kind, out);
    *emit = GQAC_EMIT_GQAC;
    for (int i = 0; kind && i < 3; i++)
        if (!strcmp(kind, kinds[i])) {
            *emit = (gqac_emit)(GQAC_EMIT_GQAC + i);
            kind = NULL;
        }
    if (kind)
        return cli_usage(c, "--emit '%s' is not gqac, onnx or text", kind);
    if (out)
        return GQAC_OK;
    *emit = GQAC_EMIT_NONE;
    if (cli_value(c, "emit") || !(cli_value(c, "dump") || cli_value(c, "stop-after")))
        return cli_usage(c, "-o FILE is missing");
    return GQAC_OK;
}

/* Splits the comma list of --disable in place into a NULL-terminated array. */
static const char **split(char *list) {
    const char **names = calloc(strlen(list) + 2, sizeof *names);
    int n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(list, ",", &rest); names && word; word = strtok_r(NULL, ",", &rest))
        names[n++] = word;
    return names;
}

/* ---- what was saved ------------------------------------------------------ */

/* A size as people read it: "816.1 MiB". */
static cli_text size_text(double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    cli_text text;
    int u = 0;
    for (; bytes >= 1024 && u < 4; u++)
        bytes /= 1024;
    snprintf(text.s, sizeof text.s, "%.*f %s", u > 0, bytes, units[u]);
    return text;
}

/* How long the artefact takes to open, and how much memory it needs. */
static gqac_status report_opened(cli *c, const char *path, const gqac_options *made,
                                 gqac_program **program) {
    gqac_options options = *made;
    gqac_memory memory = {.size = sizeof memory};
    gqac_diag unused;
    options.after = NULL;
    options.log = NULL;
    options.n_attachments = 0;
    options.bake = NULL;
    const double began = cli_seconds();
    GQAC_TRY(gqac_program_open(path, &options, program, &c->diag));
    fprintf(stderr, ", opens in %.2f s; weights %s, mapped", cli_seconds() - began,
            size_text((double)gqac_program_weight_bytes(*program)).s);
    if (gqac_program_memory(*program, 1, 1, &memory, &unused) == GQAC_OK && memory.kv_block)
        fprintf(stderr, "; cache %s per token",
                size_text((double)memory.kv_block / (double)memory.kv_block_tokens).s);
    if (gqac_program_baked(*program))
        fprintf(stderr, "; %lld tokens baked",
                (long long)gqac_snapshot_length(gqac_program_baked(*program)));
    return GQAC_OK;
}

static gqac_status report_saved(cli *c, gqac_emit emit, const gqac_options *options,
                                const gqac_text *text) {
    const char *path = cli_value(c, "output");
    struct stat info;
    if (emit == GQAC_EMIT_NONE || cli_quiet(c) || stat(path, &info) != 0)
        return GQAC_OK;
    cli_clear_progress(c);
    fprintf(stderr, "gqac: saved %s: %s", cli_shown(path).s, size_text((double)info.st_size).s);
    gqac_program *program = NULL;
    gqac_status status = GQAC_OK;
    if (emit == GQAC_EMIT_GQAC)
        status = report_opened(c, path, options, &program);
    fprintf(stderr, "\n");
    if (program && text) {
        const gqac_text_settings *s = gqac_text_get_settings(text);
        if (s->has_config && !s->has_tokenizer && !s->tokenizer_refusal)
            fprintf(stderr,
                    "gqac: there is no tokenizer: generate accepts --ids, but not --prompt\n");
        cli_warn_config(c, program, text);
    }
    gqac_program_free(program);
    return status;
}

/* ---- compiling ----------------------------------------------------------- */

/* What the options point to. */
typedef struct owned {
    gqac_text *text;
    char *disable; /* a copy of --disable, split in place */
    const char **names;
    baking baked;
} owned;

/* An artefact holds the tokenizer and the other files beside the graph, which are checked here. */
static gqac_status attach_texts(cli *c, gqac_options *options, owned *own) {
    GQAC_TRY(cli_open_text(c, GQAC_TEXT_ALL, &own->text));
    const gqac_text_settings *settings = gqac_text_get_settings(own->text);
    cli_warn_refusal(c, "stored in the artefact nevertheless", settings->tokenizer_refusal);
    cli_warn_refusal(c, "stored in the artefact nevertheless", settings->template_refusal);
    options->n_attachments = gqac_text_attachments(own->text, &options->attachments);
    return GQAC_OK;
}

static gqac_status choose_passes(cli *c, gqac_options *options, owned *own) {
    const char *disable = cli_value(c, "disable");
    own->disable = disable ? strdup(disable) : NULL;
    own->names = own->disable ? split(own->disable) : NULL;
    if (disable && !own->names)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    options->disable = own->names;
    options->stop_after = cli_value(c, "stop-after");
    options->stateless = cli_switch(c, "stateless");
    if (options->stateless) /* for `run`, which uses the names of the file */
        options->n_io_names = 0;
    return GQAC_OK;
}

static gqac_status compile_with(cli *c, owned *own) {
    char path[4096];
    gqac_options options;
    gqac_emit emit = GQAC_EMIT_NONE;
    listener l = {.dump = cli_value(c, "dump"), .time = cli_switch(c, "time-passes")};
    static const char *const lists[] = {"dump", "disable", "stop-after"};
    GQAC_TRY(cli_options(c, &options));
    for (int i = 0; i < 3; i++)
        GQAC_TRY(check_names(c, lists[i]));
    GQAC_TRY(choose_emit(c, &emit));
    GQAC_TRY(baking_check(c, emit == GQAC_EMIT_GQAC));
    if (emit != GQAC_EMIT_NONE)
        GQAC_TRY(cli_check_writable(c, cli_value(c, "output")));
    GQAC_TRY(cli_model(c, &options, path, sizeof path));
    if (emit == GQAC_EMIT_GQAC || emit == GQAC_EMIT_TEXT)
        GQAC_TRY(cli_check_output(c, "output", NULL, cli_value(c, "output")));
    if (l.dump)
        GQAC_TRY(cli_check_output(c, "dump", NULL, "/dev/stdout"));
    if (emit == GQAC_EMIT_GQAC)
        GQAC_TRY(attach_texts(c, &options, own));
    GQAC_TRY(baking_open(&own->baked, c, own->text, &options));
    GQAC_TRY(choose_passes(c, &options, own));
    options.after = hear;
    options.after_arg = &l;
    GQAC_TRY(gqac_compile(path, &options, emit, cli_value(c, "output"), &c->diag));
    if (l.failed)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory while printing a graph");
    return report_saved(c, emit, &options, own->text);
}

static gqac_status compile(cli *c) {
    owned own = {0};
    gqac_status status = sandboxing_enter_for(c, cli_value(c, "output"));
    if (status == GQAC_OK)
        status = compile_with(c, &own);
    gqac_text_free(own.text);
    baking_close(&own.baked);
    free((void *)own.names);
    free(own.disable);
    return status;
}

static int run(cli *c) {
    if (cli_switch(c, "list-passes"))
        return list_passes();
    if (c->n_operands < 1)
        return cli_finish(c, cli_usage(c, "MODEL is missing"));
    interrupt_listen();
    interrupt_listen_term();
    return cli_finish(c, compile(c));
}

extern const gqac_cli_verb gqac_cli_verb_compile;
const gqac_cli_verb gqac_cli_verb_compile = {
    .name = "compile",
    .operands = "MODEL",
    .most = 1,
    .summary = "compiles a model to an artefact; prints or writes its graph after a pass",
    .examples = "gqac compile models/tiny-gqa -o tiny.gqac\n"
                "gqac compile models/tiny-gqa -o tiny.gqac --bake system.txt\n"
                "gqac compile model.onnx --dump lower --stop-after lower\n",
    .flags = flags,
    .run = run};
