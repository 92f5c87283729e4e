/* gqac equiv MODEL: proves that splitting, batching and threading do not change one bit. */
#include <stdlib.h>
#include <string.h>

#include "cli/certificate.h"
#include "cli/interrupt.h"
#include "cli/tokens.h"

static const cli_flag flags[] = {
    {"tokens", "N",
     "number of tokens to test, with generated ids (64; with --via baked they follow the prefix)"},
    {"ids", "FILE", "token ids from a file instead of generated ones"},
    {"embeds", "FILE",
     "embeddings [N,E] (.npy) instead of generated ones, for a model with the input inputs_embeds"},
    {"splits", "KIND",
     "all: every split into two calls, all tokens in one call, and token by token; random:N: N "
     "random lists of chunks; 3,7,...: lengths of chunks (all; with --via prefix and snapshot: "
     "every length of the cached prefix up to 200 tokens)"},
    {"batch", "B",
     "number of sequences in each call; the others have other lengths and splits (1)"},
    {"threads", "N,N,...", "numbers of threads to test (all cores that the process may use)"},
    {"kv", "KIND,...", "kinds of cache to test, each one of " CLI_KINDS " (contiguous)"},
    {"via", "split|decode|import|prefix|snapshot|baked",
     "how the chunks of a plan are computed. split: one call for each; decode: a call for the "
     "first chunk, then single tokens; import: as split, but the past tensors are exported and "
     "imported after the first call; prefix, snapshot: the first chunk is read from a prefix store "
     "or a snapshot, in memory and on disk; baked: the first chunk is the prefix that is baked "
     "into the artefact (split)"},
    {"against", "TARGET",
     "computes the reference on this target; the bits of another target may differ (--target)"},
    {"budget", "TIME",
     "stops after this time, such as 60s or 2m, and reports how many plans have run"},
    {"certificate", "FILE",
     "writes digests of model, tokens and logits; if FILE exists, compares this run with it"},
    {NULL, NULL, NULL},
};

typedef struct equiv {
    cli *c;
    gqac_equiv_options options;
    gqac_program *program, *reference, *fresh; /* reference, fresh: NULL if not needed */
    gqac_equiv *proof;
    const gqac_equiv_report *report;
    int64_t *ids, *chunks; /* of --ids and of --splits */
    float *embeddings;     /* of --embeds */
    int64_t width;         /* of the embeddings */
    int *threads;
    char *kinds; /* list of --kv, cut in place */
    const char **kv;
    bool json;
    bool headed; /* the head of the table is printed, after the first series succeeded */
    certificate certificate;
} equiv;

/* ---- flags --------------------------------------------------------------- */

static gqac_status parse_via(equiv *e) {
    const char *via = cli_value(e->c, "via");
    for (int i = 0; gqac_equiv_via_name(i); i++)
        if (!via || !strcmp(via, gqac_equiv_via_name(i))) {
            e->options.via = (gqac_equiv_via)i;
            return GQAC_OK;
        }
    return cli_usage(e->c, "--via '%s' is not split, decode, import, prefix, snapshot or baked",
                     via);
}

static gqac_status parse_budget(equiv *e) {
    const char *text = cli_value(e->c, "budget");
    char *end = NULL;
    double budget = text ? strtod(text, &end) : 0;
    if (text && (end == text || !(budget > 0) || budget > 1e9 ||
                 (strcmp(end, "s") != 0 && strcmp(end, "m") != 0 && *end)))
        return cli_usage(e->c, "--budget '%s' is not a time like 60s or 2m", text);
    e->options.budget = text && *end == 'm' ? budget * 60 : budget;
    return GQAC_OK;
}

static gqac_status check_flags(equiv *e) {
    const bool file = cli_value(e->c, "ids"), embeds = cli_value(e->c, "embeds");
    if (cli_value(e->c, "certificate") && cli_value(e->c, "against"))
        return cli_usage(e->c, "--certificate and --against cannot be combined");
    if (cli_value(e->c, "certificate") && !*cli_value(e->c, "certificate"))
        return cli_usage(e->c, "--certificate needs the name of a file");
    if (file && cli_value(e->c, "tokens"))
        return cli_usage(e->c, "--tokens and --ids cannot be combined");
    if (embeds && (file || cli_value(e->c, "tokens") || cli_value(e->c, "certificate")))
        return cli_usage(e->c, "--embeds cannot be combined with --ids, --tokens or --certificate");
    return GQAC_OK;
}

static gqac_status parse_kv(equiv *e) {
    const char *kv = cli_value(e->c, "kv");
    const size_t length = kv ? strlen(kv) : 0;
    char *rest = NULL;
    if (kv && (!length || *kv == ',' || kv[length - 1] == ',' || strstr(kv, ",,")))
        return cli_usage(e->c, "--kv '%s' has an empty name", kv);
    if (kv && cli_lists(kv, ",", "off"))
        return cli_usage(e->c, "--kv off caches no rows, so there are none to compare");
    e->kinds = strdup(kv ? kv : "contiguous");
    e->kv = calloc(length + 1, sizeof *e->kv);
    if (!e->kinds || !e->kv)
        return cli_fail(e->c, GQAC_NO_MEMORY, "out of memory");
    for (char *at = strtok_r(e->kinds, ",", &rest); at; at = strtok_r(NULL, ",", &rest))
        e->kv[e->options.n_kv++] = at;
    e->options.kv = e->kv;
    return GQAC_OK;
}

static gqac_status parse_threads(equiv *e) {
    const char *threads = cli_value(e->c, "threads");
    char cores[16];
    int64_t *list = NULL;
    int n = 0;
    snprintf(cores, sizeof cores, "%d", gqac_threads_default());
    GQAC_TRY(cli_numbers(e->c, "threads", threads ? threads : cores, 1, 1024, &list, &n));
    e->threads = calloc((size_t)n + 1, sizeof *e->threads);
    for (int i = 0; e->threads && i < n; i++)
        e->threads[i] = (int)list[i];
    free(list);
    e->options.n_threads = n;
    e->options.threads = e->threads;
    return e->threads ? GQAC_OK : cli_fail(e->c, GQAC_NO_MEMORY, "out of memory");
}

static gqac_status parse_splits(equiv *e) {
    const char *splits = cli_value(e->c, "splits");
    e->options.every_hit = splits != NULL;
    if (!splits || !strcmp(splits, "all"))
        return GQAC_OK;
    if (strncmp(splits, "random:", 7) != 0)
        return tokens_chunks(e->c, splits, e->options.tokens, &e->chunks, &e->options.n_chunks);
    return cli_number_in(e->c, "splits", splits, splits + 7, 1, 1000000, &e->options.random);
}

static gqac_status parse(equiv *e) {
    const char *file = cli_value(e->c, "ids"), *embeds = cli_value(e->c, "embeds");
    long long n = 64, batch = 1;
    GQAC_TRY(check_flags(e));
    GQAC_TRY(parse_via(e));
    GQAC_TRY(parse_budget(e));
    GQAC_TRY(cli_number(e->c, "batch", 1, 1024, 1, &batch));
    GQAC_TRY(cli_number(e->c, "tokens", 1, 1000000, 64, &n));
    GQAC_TRY(parse_threads(e));
    e->options.batch = (int)batch;
    e->options.tokens = n;
    if (file)
        GQAC_TRY(cli_read_ids(e->c, file, &e->ids, &e->options.tokens));
    if (embeds)
        GQAC_TRY(tokens_embeddings(e->c, embeds, &e->embeddings, &e->options.tokens, &e->width));
    e->options.ids = e->ids;
    e->options.embeddings = e->embeddings;
    return parse_kv(e);
}

/* Without a cache there are no calls to compare; the rule of the diag states it. */
static void explain_cacheless(equiv *e, const char *path, const gqac_options *options) {
    gqac_program *program = NULL;
    const gqac_kv_pair *pairs = NULL;
    gqac_diag unused = {0}, *diag = &e->c->diag;
    gqac_options stateless = *options;
    stateless.stateless = true;
    if (gqac_program_open(path, &stateless, &program, &unused) == GQAC_OK &&
        !gqac_program_kv_pairs(program, &pairs))
        snprintf(diag->rule, sizeof diag->rule,
                 "equiv compares calls that share a cache; a model without one computes all tokens "
                 "in every call, so there is nothing to prove");
    gqac_program_free(program);
}

static gqac_status check_length(const equiv *e) {
    const int64_t most = gqac_program_max_tokens(e->program);
    if (e->options.tokens <= most)
        return GQAC_OK;
    cli_fail(e->c, GQAC_OUT_OF_RANGE,
             "%lld tokens requested, but the model has only %lld positions",
             (long long)e->options.tokens, (long long)most);
    return cli_hint(e->c, "--tokens %lld or fewer", (long long)most);
}

static gqac_status open_programs(equiv *e, const gqac_options *options, const char *path) {
    const char *against = cli_value(e->c, "against");
    const gqac_equiv_via via = e->options.via;
    gqac_status status = gqac_program_open(path, options, &e->program, &e->c->diag);
    if (status == GQAC_UNSUPPORTED)
        explain_cacheless(e, path, options);
    GQAC_TRY(status);
    if (against && strcmp(against, options->target) != 0) {
        gqac_options other = *options;
        other.target = against;
        GQAC_TRY(gqac_program_open(path, &other, &e->reference, &e->c->diag));
        e->options.reference = e->reference;
    }
    if (via == GQAC_EQUIV_PREFIX || via == GQAC_EQUIV_SNAPSHOT) {
        GQAC_TRY(gqac_program_open(path, options, &e->fresh, &e->c->diag));
        e->options.fresh = e->fresh;
    }
    GQAC_TRY(check_length(e));
    return tokens_embeddings_fit(e->c, e->program, e->embeddings, e->width);
}

/* ---- running ------------------------------------------------------------- */

static void show_plan(void *arg, const gqac_equiv_report *r) {
    equiv *e = arg;
    cli_progress *p = &e->c->steps;
    const double now = cli_seconds();
    if (cli_quiet(e->c) || now - p->reported < (p->terminal ? 0.2 : 5.0))
        return;
    p->reported = now;
    p->shown = p->terminal;
    fprintf(stderr, "%s%d of %d plans, %lld differing values%s", p->terminal ? "\r" : "", r->ran,
            r->planned, (long long)r->differing, p->terminal ? "" : "\n");
}

static void show_series(void *arg, const gqac_equiv_series *series) {
    equiv *e = arg;
    if (e->json)
        return;
    cli_clear_progress(e->c);
    if (!e->headed)
        printf("%-12s %7s %5s %14s %14s %10s\n", "kv", "threads", "batch", "plans", "compared",
               "differing");
    e->headed = true;
    printf("%-12s %7d %5d %5d of %-5d %14lld %10lld\n", series->kv, series->threads,
           e->options.batch, series->ran, series->planned, (long long)series->compared,
           (long long)series->differing);
}

/* ---- reporting ----------------------------------------------------------- */

static bool is_hit(const equiv *e) {
    return e->fresh || e->options.via == GQAC_EQUIV_BAKED;
}

static json_t *chunks_json(const gqac_equiv_first *f) {
    json_t *list = json_array();
    for (int i = 0; i < f->n_chunks; i++)
        json_array_append_new(list, json_integer(f->chunks[i]));
    return list;
}

static json_t *first_json(const gqac_equiv_first *f) {
    json_t *layer = f->layer < 0 ? json_null() : json_integer(f->layer);
    return json_pack("{s:o, s:I, s:o, s:s, s:I, s:o, s:o}", "plan", chunks_json(f), "position",
                     (json_int_t)f->position, "layer", layer, "what", f->what, "index",
                     (json_int_t)f->index, "actual", cli_real_json(f->actual), "expected",
                     cli_real_json(f->expected));
}

static json_t *mixing_json(const gqac_mixing *list, int n) {
    json_t *all = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(
            all, json_pack("{s:s, s:o}", "op", list[i].op, "node", cli_text_json(list[i].node)));
    return all;
}

static void print_json(const equiv *e) {
    const gqac_equiv_report *r = e->report;
    const gqac_mixing *mixing = NULL;
    const int n = gqac_program_mixing(e->program, &mixing);
    json_t *root = json_pack("{s:I, s:i, s:i, s:i, s:I, s:I}", "tokens", (json_int_t)r->tokens,
                             "batch", r->batch, "planned", r->planned, "plans", r->ran, "compared",
                             (json_int_t)r->compared, "differing", (json_int_t)r->differing);
    json_object_set_new(root, "mixing", mixing_json(mixing, n));
    if (is_hit(e)) {
        json_object_set_new(root, "reused_tokens", json_integer(r->reused_tokens));
        json_object_set_new(root, "computed_tokens", json_integer(r->computed_tokens));
    }
    json_object_set_new(root, "profile", json_string(r->profile));
    if (r->first)
        json_object_set_new(root, "first", first_json(r->first));
    if (e->reference) {
        json_object_set_new(root, "against", json_string(gqac_program_profile(e->reference)));
        json_object_set_new(root, "relative", cli_real_json(r->relative));
    }
    if (e->certificate.path)
        json_object_set_new(root, "certificate", certificate_json(&e->certificate));
    cli_print_json(root);
}

static void print_first(const gqac_equiv_first *f) {
    printf("first difference: position %lld, ", (long long)f->position);
    if (f->layer >= 0)
        printf("layer %d, ", f->layer);
    printf("%s, value %lld: %.9g, expected %.9g; plan ", cli_shown(f->what).s, (long long)f->index,
           f->actual, f->expected);
    for (int i = 0; i < f->n_chunks && i < 16; i++)
        printf("%s%lld", i ? "," : "", (long long)f->chunks[i]);
    printf("%s\n", f->n_chunks > 16 ? ",..." : "");
}

static void print_table(const equiv *e) {
    const gqac_equiv_report *r = e->report;
    if (r->first)
        print_first(r->first);
    printf("%s: %lld differing values of %lld, %d of %d plans (%.0f%%), %lld token%s\n",
           r->differing ? "different" : "equal", (long long)r->differing, (long long)r->compared,
           r->ran, r->planned, r->planned ? 100.0 * r->ran / r->planned : 0, (long long)r->tokens,
           r->tokens == 1 ? "" : "s");
    if (is_hit(e))
        printf("tokens of hits: %lld reused, %lld computed\n", (long long)r->reused_tokens,
               (long long)r->computed_tokens);
    if (e->reference && r->differing)
        printf("%s and %s are different profiles: equal bits are promised within a profile, not "
               "between two; relative differences up to %.3g\n",
               gqac_program_profile(e->program), gqac_program_profile(e->reference), r->relative);
    certificate_print(&e->certificate);
}

/* A certificate is about one profile. */
static gqac_status check_kinds(equiv *e) {
    for (int i = 0; cli_value(e->c, "certificate") && i < e->options.n_kv; i++) {
        char profile[128];
        gqac_sequence *sequence = NULL;
        const gqac_sequence_options options = {.size = sizeof options, .kv = e->kv[i]};
        GQAC_TRY(gqac_sequence_create(e->program, &options, &sequence, &e->c->diag));
        gqac_sequence_profile(sequence, profile, sizeof profile);
        gqac_sequence_free(sequence);
        if (strcmp(profile, e->report->profile) != 0)
            return cli_usage(e->c,
                             "--certificate: the kinds of --kv have different profiles, "
                             "%s and %s; a certificate is about one",
                             e->report->profile, profile);
    }
    return GQAC_OK;
}

/* Opens the model and makes what will be compared. */
static gqac_status prepare(equiv *e) {
    char path[4096];
    gqac_options options;
    GQAC_TRY(parse(e));
    GQAC_TRY(certificate_open(e->c, &e->certificate));
    GQAC_TRY(cli_options(e->c, &options));
    GQAC_TRY(cli_model(e->c, &options, path, sizeof path));
    GQAC_TRY(certificate_check(&e->certificate, e->c, path, &options, e->ids, e->options.tokens));
    GQAC_TRY(open_programs(e, &options, path));
    if (e->options.via == GQAC_EQUIV_BAKED && !e->ids && gqac_program_baked(e->program))
        e->options.tokens += gqac_snapshot_length(gqac_program_baked(e->program));
    GQAC_TRY(cli_check_vocabulary(e->c, e->program, e->ids, e->options.tokens));
    GQAC_TRY(cli_check_length(e->c, e->program, e->options.tokens));
    GQAC_TRY(parse_splits(e));
    e->options.chunks = e->chunks;
    GQAC_TRY(gqac_equiv_create(e->program, &e->options, &e->proof, &e->c->diag));
    e->report = gqac_equiv_get_report(e->proof);
    GQAC_TRY(check_kinds(e));
    return certificate_begin(&e->certificate, e->c, e->report, gqac_program_level(e->program), path,
                             &options);
}

static gqac_status prove(equiv *e) {
    const gqac_mixing *mixing = NULL;
    const char *kv = cli_value(e->c, "kv");
    GQAC_TRY(prepare(e));
    const int n_mixing = gqac_program_mixing(e->program, &mixing);
    for (int i = 1; i < n_mixing && !cli_quiet(e->c); i++) /* the log has named the first one */
        fprintf(stderr, "node '%s' (%s) mixes rows too\n", cli_shown(mixing[i].node).s,
                cli_shown(mixing[i].op).s);
    e->c->steps.reported = cli_seconds();
    e->json = cli_json(e->c);
    const gqac_status status = gqac_equiv_run(e->proof, &e->c->diag);
    cli_clear_progress(e->c);
    if (status == GQAC_ABORTED)
        cli_rule(e->c, "nothing is kept: %d of %d plans of %lld tokens were done", e->report->ran,
                 e->report->planned, (long long)e->report->tokens);
    GQAC_TRY(status);
    return certificate_end(&e->certificate, e->c, e->report, &e->options, kv ? kv : "contiguous");
}

static void release(equiv *e) {
    certificate_free(&e->certificate);
    gqac_equiv_free(e->proof);
    gqac_program_free(e->fresh);
    gqac_program_free(e->reference);
    gqac_program_free(e->program);
    free(e->ids);
    free(e->chunks);
    free(e->embeddings);
    free(e->threads);
    free(e->kinds);
    free((void *)e->kv);
}

static int run(cli *c) {
    equiv e = {.c = c, .certificate = {.first = -1}};
    e.options = (gqac_equiv_options){.size = sizeof e.options,
                                     .monitor = cli_watch_steps(c, NULL),
                                     .on_plan = show_plan,
                                     .on_series = show_series,
                                     .arg = &e};
    interrupt_listen();
    const gqac_status status = prove(&e);
    if (status == GQAC_OK && e.json)
        print_json(&e);
    else if (status == GQAC_OK)
        print_table(&e);
    const bool differs = (e.report && e.report->differing) || e.certificate.first >= 0;
    release(&e);
    return status == GQAC_OK && differs ? 1 : cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_equiv;
const gqac_cli_verb gqac_cli_verb_equiv = {
    .name = "equiv",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary = "proves that splits, batches and threads do not change the bits",
    .examples = "gqac equiv tiny.gqac --tokens 100 --batch 3 --threads 1,2\n"
                "gqac equiv tiny.gqac --tokens 200 --via prefix --budget 30s\n"
                "gqac equiv tiny.gqac --splits 3,7 --certificate tiny.json\n",
    .flags = flags,
    .run = run};
