/* gqac serve MODEL: answers HTTP requests until SIGTERM or SIGINT. */
#include <stdlib.h>
#include <string.h>

#include "cli/caching.h"
#include "cli/drafting.h"
#include "cli/interrupt.h"
#include "cli/sandboxing.h"
#include "cli/translating.h"

#ifdef GQAC_SERVE
#include "serve/serve.h"
#endif

static const cli_flag flags[] = {
    {"host", "ADDRESS",
     "address to listen on; an address other than loopback needs --api-key-file (127.0.0.1)"},
    {"port", "N", "port to listen on; 0: any free port, which is printed (8080)"},
    {"api-key-file", "FILE",
     "lines KEY or TENANT KEY; requests need one of the keys, and reuse prefixes of its tenant "
     "only"},
    {"name", "NAME", "name of the model in replies (that of the file or folder)"},
    {"parallel", "N", "maximum number of requests that share the steps (64)"},
    {"queue", "N", "maximum number of requests that wait; others get status 429 (256)"},
    {"step-tokens", "N", "maximum number of tokens in one step (256)"},
    {"context", "N",
     "maximum number of tokens, prompt and answer (the model's own); with an encoder, of each "
     "(4096)"},
    {"kv", CLI_KINDS, "kind of KV cache (contiguous)"},
    DRAFTING_FLAG,
    {"memory-budget", "MIB", "maximum memory of caches and steps (--limit memory-bytes)"},
    {"cache-budget", "MIB", "maximum memory of prefixes that are kept for later prompts (4096)"},
    {"prefix-store", "DIR", "also keeps prefixes in this folder, for the next start"},
    {"store-budget", "MIB", "maximum size of the folder of --prefix-store (4096)"},
    CACHING_REMOTE_FLAGS,
    {"body-limit", "MIB", "maximum size of a request (8)"},
    {"connections", "N", "maximum number of connections (1024)"},
    {"per-peer", "N", "maximum number of connections from one address (256)"},
    {"time-limit", "S",
     "maximum seconds from the arrival of a request to the end of its answer; 0: unlimited (0)"},
    {"drain", "S", "when stopped, waits at most this many seconds for running answers (30)"},
    SANDBOXING_FLAG("only to the folder of --prefix-store"),
    {NULL, NULL, NULL},
};

#ifdef GQAC_SERVE

enum { MIB = 1 << 20 };

typedef struct serving {
    cli *c;
    serve_options options;
    serve_model model;
    gqac_scheduler_options scheduler;
    gqac_store_options store;
    caching_remote tier;
    char name[256], digest[65];
    serve *server;
    gqac_text *text;
    gqac_program *program;
    gqac_context *context;
    gqac_store *prefixes;
    /* of a model with an encoder, instead of program, context and prefixes */
    gqac_seq2seq *seq2seq;
    gqac_threads *threads;
    gqac_seq2seq_context *seq2seq_context;
} serving;

static void print_log(void *arg, const char *line) {
    (void)arg;
    fprintf(stderr, "%s\n", line);
}

/* The socket listens, and there is one thread. */
static gqac_status enter_sandbox(void *arg, gqac_diag *diag) {
    const serving *g = arg;
    (void)diag; /* that of the command line, which both calls fill */
    if (g->store.folder)
        GQAC_TRY(caching_make_folder(g->c, g->store.folder));
    return sandboxing_enter(g->c, g->store.folder);
}

static gqac_status read_limits(serving *g) {
    cli *c = g->c;
    long long port, queue, connections, peer, body, drain, time;
    GQAC_TRY(cli_number(c, "port", 0, 65535, 8080, &port));
    GQAC_TRY(cli_number(c, "queue", 0, INT32_MAX, 256, &queue));
    GQAC_TRY(cli_number(c, "connections", 1, 1000000, 1024, &connections));
    GQAC_TRY(cli_number(c, "per-peer", 1, 1000000, 256, &peer));
    GQAC_TRY(cli_number(c, "body-limit", 1, 1024, 8, &body));
    GQAC_TRY(cli_number(c, "drain", 0, 86400, 30, &drain));
    GQAC_TRY(cli_number(c, "time-limit", 0, 86400, 0, &time));
    g->options = (serve_options){.host = cli_value(c, "host") ? cli_value(c, "host") : "127.0.0.1",
                                 .port = (int)port,
                                 .key_file = cli_value(c, "api-key-file"),
                                 .body_bytes = body * MIB,
                                 .queue = queue,
                                 .connections = (int)connections,
                                 .per_peer = (int)peer,
                                 .request_seconds = (double)time,
                                 .drain_seconds = (double)drain,
                                 .interrupted = interrupt_seen,
                                 .listening = enter_sandbox,
                                 .listening_arg = g,
                                 .log = cli_quiet(c) ? NULL : print_log};
    return GQAC_OK;
}

static gqac_status read_steps(serving *g) {
    cli *c = g->c;
    long long parallel, tokens, context;
    GQAC_TRY(cli_number(c, "parallel", 1, 100000, 64, &parallel));
    GQAC_TRY(cli_number(c, "step-tokens", 1, INT32_MAX, parallel > 256 ? parallel : 256, &tokens));
    GQAC_TRY(cli_number(c, "context", 1, INT64_MAX, 0, &context));
    if (tokens < parallel)
        return cli_usage(c, "--step-tokens %lld is less than --parallel %lld", tokens, parallel);
    gqac_scheduler_options_init(&g->scheduler);
    g->scheduler.running = parallel;
    g->scheduler.tokens = tokens;
    g->scheduler.kv = cli_value(c, "kv");
    GQAC_TRY(drafting_most(c, &g->scheduler.speculate));
    g->model.tokens = context;
    return GQAC_OK;
}

static gqac_status read_store(serving *g) {
    cli *c = g->c;
    long long budget, folder_budget;
    GQAC_TRY(cli_number(c, "cache-budget", 0, INT64_MAX / MIB, 4096, &budget));
    GQAC_TRY(cli_number(c, "store-budget", 1, INT64_MAX / MIB, 4096, &folder_budget));
    gqac_store_options_init(&g->store);
    g->store.budget = budget * MIB;
    g->store.folder = cli_value(c, "prefix-store");
    if (cli_value(c, "store-budget") && !g->store.folder)
        return cli_usage(c, "--store-budget needs --prefix-store");
    if (g->store.folder)
        g->store.folder_budget = folder_budget * MIB;
    GQAC_TRY(caching_open_remote(c, &g->tier, &g->store));
    if (!g->store.remote)
        return GQAC_OK;
    if (!budget)
        return cli_usage(c, "--prefix-remote needs memory for prefixes, and --cache-budget is 0");
    return cli_switch(c, "sandbox") ? cli_usage(c, "--prefix-remote connects to a server, which "
                                                   "--sandbox refuses")
                                    : GQAC_OK;
}

/* The last part of the path, without its ending. */
static void name_model(serving *g) {
    const char *given = cli_value(g->c, "name"), *path = g->c->operands[0];
    if (given) {
        snprintf(g->name, sizeof g->name, "%s", given);
        return;
    }
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t first = end;
    while (first > 0 && path[first - 1] != '/')
        first--;
    snprintf(g->name, sizeof g->name, "%.*s", (int)(end - first), path + first);
    char *dot = strrchr(g->name, '.');
    if (dot && dot > g->name && (!strcmp(dot, ".gqac") || !strcmp(dot, ".onnx")))
        *dot = '\0';
}

/* Says what will be refused, because a file is unsupported or absent. */
static void warn_refused(const cli *c, bool has, const gqac_diag *refusal, const char *endpoints,
                         const char *what, const char *where) {
    gqac_diag absent = {.status = GQAC_USAGE, .index = -1};
    snprintf(absent.what, sizeof absent.what, "the model has no %s", what);
    snprintf(absent.where, sizeof absent.where, "%s", where);
    if (!has)
        cli_warn_refusal(c, endpoints, refusal ? refusal : &absent);
}

static void warn_all(const serving *g) {
    const gqac_text_settings *x = gqac_text_get_settings(g->text);
    warn_refused(g->c, x->has_tokenizer, x->tokenizer_refusal,
                 "/v1/chat/completions, /v1/responses, /tokenize, /detokenize and texts in "
                 "/v1/completions are refused",
                 "tokenizer", "tokenizer.json");
    warn_refused(g->c, x->has_template, x->template_refusal,
                 "/v1/chat/completions, /v1/responses and /apply-template are refused",
                 "chat template", "chat_template.jinja or tokenizer_config.json");
}

static gqac_status open_model(serving *g) {
    cli *c = g->c;
    gqac_options options;
    int threads = 1;
    long long budget = 0;
    char path[4096];
    GQAC_TRY(cli_threads(c, &threads));
    GQAC_TRY(cli_number(c, "memory-budget", 1, INT64_MAX / MIB, 0, &budget));
    GQAC_TRY(cli_options(c, &options));
    GQAC_TRY(cli_model(c, &options, path, sizeof path));
    GQAC_TRY(gqac_model_digest(path, &options, g->digest, &c->diag));
    GQAC_TRY(cli_options(c, &options));
    options.memory_budget = g->model.memory_budget = budget * MIB;
    GQAC_TRY(
        gqac_model_open(c->operands[0], &options, GQAC_TEXT_ALL, &g->program, &g->text, &c->diag));
    const int64_t rows = gqac_program_max_tokens(g->program);
    const int64_t config = gqac_text_get_settings(g->text)->context_length;
    GQAC_TRY(cli_check_context(c, g->model.tokens, config && config < rows ? config : rows));
    cli_warn_config(c, g->program, g->text);
    warn_all(g);
    drafting_warn(c, g->scheduler.speculate, gqac_scheduler_no_drafts(g->program));
    interrupt_hold(true);
    const gqac_status status = gqac_context_create(g->program, threads, &g->context, &c->diag);
    interrupt_hold(false);
    return status;
}

static gqac_status open_store(serving *g) {
    const int keys = serve_keys(g->server);
    g->store.tenant_budget = keys > 1 ? g->store.budget / keys : 0;
    if (g->store.budget)
        GQAC_TRY(gqac_store_create(g->program, &g->store, &g->prefixes, &g->c->diag));
    g->scheduler.store = g->prefixes;
    return GQAC_OK;
}

static gqac_status start_decoder(serving *g) {
    GQAC_TRY(read_steps(g));
    GQAC_TRY(read_store(g));
    GQAC_TRY(serve_open(&g->options, &g->server, &g->c->diag));
    GQAC_TRY(open_model(g));
    GQAC_TRY(open_store(g));
    g->model.context = g->context;
    g->model.store = g->prefixes;
    g->model.remote = g->store.remote != NULL;
    g->model.saved = g->store.folder || g->store.remote;
    g->model.scheduler = &g->scheduler;
    return GQAC_OK;
}

/* ---- a model with an encoder --------------------------------------------- */

static const translating_flag refused[] = {
    {"parallel", "leave it out: answers are computed one after another"},
    {"step-tokens", "leave it out: each step has one new id"},
    {"kv", "leave it out: the caches are those of the decoder's file"},
    {"speculate", "leave it out: each step has one new id"},
    {"memory-budget", "--limit memory-bytes=N, for each file of the folder"},
    {"cache-budget", TRANSLATING_KEEPS_NOTHING},
    TRANSLATING_STORE_FLAGS,
    {NULL, NULL},
};

/* A digest of all that answers depend on: the files, the ids that begin and end an answer, and the
 * rules of the config. */
static gqac_status digest_seq2seq(serving *g, const gqac_options *options) {
    enum { MOST = 4096 };
    char all[MOST], hex[65];
    const gqac_seq2seq_file *files = NULL;
    const gqac_seq2seq_settings *settings = gqac_seq2seq_get_settings(g->seq2seq);
    const int n_files = gqac_seq2seq_files(g->seq2seq, &files);
    int n = snprintf(all, MOST, "%s %lld", gqac_token_rules_digest(settings->rules),
                     (long long)settings->start);
    for (int i = 0; i < settings->n_eos && n < MOST; i++)
        n += snprintf(all + n, (size_t)(MOST - n), " %lld", (long long)settings->eos[i]);
    for (int i = 0; i < n_files && n < MOST; i++) {
        GQAC_TRY(gqac_model_digest(files[i].path, options, hex, &g->c->diag));
        n += snprintf(all + n, (size_t)(MOST - n), " %s", hex);
    }
    gqac_digest(all, strlen(all), g->digest);
    return GQAC_OK;
}

static gqac_status refuse_features(serving *g) {
    const cli_text folder = cli_shown(g->c->operands[0]);
    cli_fail(g->c, GQAC_UNSUPPORTED,
             "the encoder takes features, but requests contain text or ids");
    cli_where(g->c, "%s", folder.s);
    return cli_hint(g->c, "gqac generate %s --features FILE.npy", folder.s);
}

static void warn_seq2seq(const serving *g) {
    const gqac_text_settings *x = gqac_text_get_settings(g->text);
    const gqac_seq2seq_settings *own = gqac_seq2seq_get_settings(g->seq2seq);
    gqac_diag encoder = {.what = "the model has an encoder"};
    snprintf(encoder.where, sizeof encoder.where, "%s", g->c->operands[0]);
    cli_warn_refusal(g->c,
                     "/v1/completions computes one answer after another, and /v1/chat/completions, "
                     "/v1/responses and /apply-template are refused",
                     &encoder);
    cli_warn_rules(g->c, own->not_obeyed, own->rules, own->vocabulary);
    warn_refused(g->c, x->has_tokenizer, x->tokenizer_refusal,
                 "/tokenize, /detokenize and texts in /v1/completions are refused", "tokenizer",
                 "tokenizer.json");
}

static gqac_status open_seq2seq(serving *g) {
    cli *c = g->c;
    gqac_options options;
    int threads = 1;
    GQAC_TRY(cli_threads(c, &threads));
    GQAC_TRY(cli_options(c, &options));
    GQAC_TRY(gqac_seq2seq_open(c->operands[0], &options, &g->seq2seq, &c->diag));
    if (gqac_seq2seq_get_settings(g->seq2seq)->features)
        return refuse_features(g);
    GQAC_TRY(digest_seq2seq(g, &options));
    GQAC_TRY(cli_open_text(c, GQAC_TEXT_TOKENIZER, &g->text));
    warn_seq2seq(g);
    interrupt_hold(true);
    const gqac_status status = gqac_threads_create(threads, &g->threads, &c->diag);
    interrupt_hold(false);
    GQAC_TRY(status);
    return gqac_seq2seq_context_create(g->seq2seq, g->threads, &g->seq2seq_context, &c->diag);
}

static gqac_status start_seq2seq(serving *g) {
    long long context;
    GQAC_TRY(translating_refuse(g->c, refused));
    GQAC_TRY(cli_number(g->c, "context", 1, INT32_MAX, 0, &context));
    GQAC_TRY(serve_open(&g->options, &g->server, &g->c->diag));
    GQAC_TRY(open_seq2seq(g));
    g->model.seq2seq = g->seq2seq;
    g->model.seq2seq_context = g->seq2seq_context;
    g->model.tokens = context;
    return GQAC_OK;
}

/* ---- the server ---------------------------------------------------------- */

static gqac_status start(serving *g) {
    GQAC_TRY(read_limits(g));
    GQAC_TRY(gqac_seq2seq_is_folder(g->c->operands[0]) ? start_seq2seq(g) : start_decoder(g));
    name_model(g);
    g->model.name = g->name;
    g->model.digest = g->digest;
    g->model.text = g->text;
    return serve_attach(g->server, &g->model, &g->c->diag);
}

static int run(cli *c) {
    serving g = {.c = c};
    interrupt_listen();
    interrupt_listen_term();
    gqac_status status = start(&g);
    if (status == GQAC_OK) {
        cli_clear_progress(c);
        fprintf(stderr, "listening on %s\n", serve_url(g.server));
        status = serve_run(g.server, &c->diag);
    }
    caching_end_remote(&g.tier, g.store.remote_ms);
    serve_free(g.server);
    gqac_store_free(g.prefixes);
    caching_close_remote(&g.tier);
    gqac_context_free(g.context);
    gqac_program_free(g.program);
    gqac_seq2seq_context_free(g.seq2seq_context);
    gqac_threads_free(g.threads);
    gqac_seq2seq_free(g.seq2seq);
    gqac_text_free(g.text);
    return cli_finish(c, status);
}

#else

static int run(cli *c) {
    const gqac_status status = cli_usage(c, "this build of gqac has no server");
    cli_rule(c, "it was built without libevent");
    cli_hint(c, "install libevent-dev and build gqac again (cmake -DGQAC_SERVE=ON)");
    return cli_finish(c, status);
}

#endif

extern const gqac_cli_verb gqac_cli_verb_serve;
const gqac_cli_verb gqac_cli_verb_serve = {
    .name = "serve",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary = "answers OpenAI-style requests over HTTP",
    .details =
        "MODEL may be a folder with an encoder and a decoder (T5, BART). /v1/completions then\n"
        "answers one request after another, and chats are not available.\n",
    .examples = "gqac serve tiny.gqac --prefix-store prefixes\n"
                "gqac serve tiny.gqac --host 0.0.0.0 --port 80 --api-key-file keys.txt\n",
    .flags = flags,
    .formats = "table",
    .run = run};
