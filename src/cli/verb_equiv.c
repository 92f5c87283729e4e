/* gqac equiv MODEL: proves that splitting, batching and threading do not change one bit. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/certificate.h"
#include "cli/interrupt.h"
#include "cli/tokens.h"

static const cli_flag flags[] = {
    {"tokens", "N", "number of generated token ids (64)"},
    {"ids", "FILE", "token ids from a file instead of generated ones"},
    {"embeds", "FILE",
     "embeddings [N,E] (.npy) instead of generated ones, for a model that takes inputs_embeds"},
    {"splits", "KIND",
     "all: every split into two calls, all tokens in one call, and token by token; random:N: N "
     "random lists of chunks; 3,7,...: lengths of chunks (all; of --via prefix and snapshot: every "
     "length of the cached prefix up to 200 tokens)"},
    {"batch", "B",
     "number of sequences in each call; the others have other lengths and splits (1)"},
    {"threads", "N,N,...", "numbers of threads to test (all cores that the process may use)"},
    {"kv", "KIND,...", "kinds of cache to test (contiguous)"},
    {"via", "split|decode|import|prefix|snapshot",
     "decode: the first chunk of a plan, then single tokens; import: past tensors are exported and "
     "imported after the first call; prefix, snapshot: the first chunk is reused from a store or a "
     "snapshot, in memory and from disk (split)"},
    {"against", "TARGET",
     "computes the reference on this target; the bits of another target may differ (--target)"},
    {"budget", "60s", "stops after this time and reports how many plans have run"},
    {"certificate", "FILE",
     "writes digests of model, tokens and logits; if FILE exists, compares this run with it"},
    {NULL, NULL, NULL},
};

typedef struct settings {
    int64_t *threads;
    int n_threads;
    char *kv;          /* comma list, split in place by strtok_r */
    char profile[128]; /* of the first kind */
    double budget;
    double start, reported;
    int planned;
    bool json;
    bool headed; /* the head of the table is printed, after the first series succeeded */
    certificate certificate;
} settings;

/* The sequences that are computed. */
typedef struct tokens {
    long long batch;
    int64_t *ids, n; /* of --ids; NULL: n ids are generated */
} tokens;

/* ---- flags --------------------------------------------------------------- */

const char *const equiv_via_names[EQUIV_VIAS] = {[EQUIV_SPLIT] = "split",
                                                 [EQUIV_DECODE] = "decode",
                                                 [EQUIV_IMPORT] = "import",
                                                 [EQUIV_PREFIX] = "prefix",
                                                 [EQUIV_SNAPSHOT] = "snapshot"};

static gqac_status parse_via(equiv *e) {
    const char *via = cli_value(e->c, "via");
    for (int i = 0; i < EQUIV_VIAS; i++)
        if (!via || !strcmp(via, equiv_via_names[i])) {
            e->via = (equiv_via)i;
            return GQAC_OK;
        }
    return cli_usage(e->c, "--via '%s' is not split, decode, import, prefix or snapshot", via);
}

static gqac_status parse_budget(equiv *e, settings *s) {
    const char *text = cli_value(e->c, "budget");
    char *end = NULL;
    s->budget = text ? strtod(text, &end) : 0;
    if (text && (end == text || !(s->budget > 0) || s->budget > 1e9 ||
                 (strcmp(end, "s") != 0 && strcmp(end, "m") != 0 && *end)))
        return cli_usage(e->c, "--budget '%s' is not a time like 60s or 2m", text);
    if (text && *end == 'm')
        s->budget *= 60;
    return GQAC_OK;
}

static gqac_status check_flags(equiv *e) {
    const bool file = cli_value(e->c, "ids"), embeds = cli_value(e->c, "embeds");
    if (cli_value(e->c, "certificate") && cli_value(e->c, "against"))
        return cli_usage(e->c, "--certificate and --against exclude each other");
    if (cli_value(e->c, "certificate") && !*cli_value(e->c, "certificate"))
        return cli_usage(e->c, "--certificate needs the name of a file");
    if (file && cli_value(e->c, "tokens"))
        return cli_usage(e->c, "--tokens and --ids exclude each other");
    if (embeds && (file || cli_value(e->c, "tokens") || cli_value(e->c, "certificate")))
        return cli_usage(e->c, "--embeds excludes --ids, --tokens and --certificate");
    return GQAC_OK;
}

static gqac_status parse_kv(equiv *e, settings *s) {
    const char *kv = cli_value(e->c, "kv");
    const size_t length = kv ? strlen(kv) : 0;
    if (kv && (!length || *kv == ',' || kv[length - 1] == ',' || strstr(kv, ",,")))
        return cli_usage(e->c, "--kv '%s' has an empty name", kv);
    if (kv && cli_lists(kv, ",", "off"))
        return cli_usage(e->c, "--kv off caches no rows, so there are none to compare");
    s->kv = strdup(kv ? kv : "contiguous");
    return s->kv ? GQAC_OK : cli_fail(e->c, GQAC_NO_MEMORY, "out of memory");
}

static gqac_status parse(equiv *e, settings *s, tokens *x) {
    const char *threads = cli_value(e->c, "threads");
    const char *file = cli_value(e->c, "ids"), *embeds = cli_value(e->c, "embeds");
    char cores[16];
    long long n = 64;
    snprintf(cores, sizeof cores, "%d", gqac_threads_default());
    GQAC_TRY(check_flags(e));
    GQAC_TRY(parse_via(e));
    GQAC_TRY(parse_budget(e, s));
    GQAC_TRY(cli_number(e->c, "batch", 1, 1024, 1, &x->batch));
    GQAC_TRY(cli_number(e->c, "tokens", 1, 1000000, 64, &n));
    GQAC_TRY(cli_numbers(e->c, "threads", threads ? threads : cores, 1, 1024, &s->threads,
                         &s->n_threads));
    x->n = n;
    if (file)
        GQAC_TRY(cli_read_ids(e->c, file, &x->ids, &x->n));
    if (embeds)
        GQAC_TRY(tokens_embeddings(e->c, embeds, &e->given, &x->n, &e->embedding));
    return parse_kv(e, s);
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

static gqac_status open_programs(equiv *e, const gqac_options *options, const char *path) {
    const char *against = cli_value(e->c, "against");
    gqac_status status = gqac_program_open(path, options, &e->program, &e->c->diag);
    if (status == GQAC_UNSUPPORTED)
        explain_cacheless(e, path, options);
    GQAC_TRY(status);
    e->reference = e->program;
    if (against && strcmp(against, options->target) != 0) {
        gqac_program *reference = NULL;
        gqac_options other = *options;
        other.target = against;
        GQAC_TRY(gqac_program_open(path, &other, &reference, &e->c->diag));
        e->reference = reference;
    }
    if (equiv_is_hit(e)) {
        GQAC_TRY(gqac_program_open(path, options, &e->fresh, &e->c->diag));
        GQAC_TRY(equiv_hit_folder(e));
    }
    GQAC_TRY(tokens_embeddings_fit(e->c, e->program, e->given, e->embedding));
    e->embedding = gqac_program_embedding_size(e->program);
    e->vocabulary = gqac_program_vocabulary(e->program);
    e->n_pairs = gqac_program_kv_pairs(e->program, &e->pairs);
    if (!e->vocabulary)
        return cli_fail(e->c, GQAC_UNSUPPORTED, "the size of the vocabulary is not constant");
    return GQAC_OK;
}

/* ---- running ------------------------------------------------------------- */

static void progress(equiv *e, settings *s) {
    const double now = cli_seconds();
    const bool terminal = isatty(2);
    if (cli_quiet(e->c) || now - s->reported < (terminal ? 0.2 : 5.0))
        return;
    s->reported = now;
    fprintf(stderr, "%s%d of %d plans, %lld differing values%s", terminal ? "\r" : "", e->ran,
            s->planned, e->differing, terminal ? "" : "\n");
}

/* At least one plan is run: a proof of nothing must not look like one. */
static bool out_of_time(const equiv *e, const settings *s) {
    return s->budget > 0 && e->ran > 0 && cli_seconds() - s->start >= s->budget;
}

static gqac_status run_plans(equiv *e, settings *s, const equiv_run *where) {
    const equiv_run memory = {.context = where->context, .kv = where->kv};
    for (int p = 0; p < e->n_plans && !out_of_time(e, s); p++) {
        gqac_status status = equiv_run_plan(e, p, &memory);
        if (status == GQAC_OK && where->fresh && !out_of_time(e, s))
            status = equiv_run_plan(e, p, where);
        progress(e, s);
        GQAC_TRY(status);
    }
    return GQAC_OK;
}

/* How often each plan is run: hits come from memory, and from disk. */
static int runs_of_plan(const equiv *e) {
    return equiv_is_hit(e) ? 2 : 1;
}

/* All plans with one number of threads in one kind of cache. */
static gqac_status run_series(equiv *e, settings *s, int threads, const char *kv) {
    equiv_run where = {.kv = kv};
    const int ran = e->ran;
    const long long compared = e->compared, differing = e->differing;
    gqac_status status = cli_context(e->c, e->program, threads, NULL, &where.context);
    if (status == GQAC_OK && e->fresh)
        status = cli_context(e->c, e->fresh, threads, NULL, &where.fresh);
    if (status == GQAC_OK)
        status = run_plans(e, s, &where);
    gqac_context_free(where.context);
    gqac_context_free(where.fresh);
    GQAC_TRY(status);
    if (!s->json && !s->headed)
        printf("%-12s %7s %5s %14s %14s %10s\n", "kv", "threads", "batch", "plans", "compared",
               "differing");
    s->headed = true;
    if (!s->json)
        printf("%-12s %7d %5d %5d of %-5d %14lld %10lld\n", kv, threads, e->batch, e->ran - ran,
               e->n_plans * runs_of_plan(e), e->compared - compared, e->differing - differing);
    return GQAC_OK;
}

static gqac_status run_all(equiv *e, settings *s) {
    int kinds = 1;
    for (const char *at = s->kv; *at; at++)
        kinds += *at == ',';
    s->planned = e->n_plans * s->n_threads * kinds * runs_of_plan(e);
    char *rest = NULL;
    for (char *kv = strtok_r(s->kv, ",", &rest); kv; kv = strtok_r(NULL, ",", &rest)) {
        GQAC_TRY(equiv_reference(e, kv));
        for (int t = 0; t < s->n_threads; t++)
            GQAC_TRY(run_series(e, s, (int)s->threads[t], kv));
    }
    return GQAC_OK;
}

static void clear_progress(const equiv *e) {
    if (!cli_quiet(e->c) && isatty(2))
        fprintf(stderr, "\r%60s\r", "");
}

/* ---- reporting ----------------------------------------------------------- */

static json_t *plan_json(const equiv_plan *plan) {
    json_t *list = json_array();
    for (int i = 0; i < plan->n; i++)
        json_array_append_new(list, json_integer(plan->chunks[i]));
    return list;
}

static json_t *first_json(const equiv *e) {
    const equiv_first *f = &e->first;
    json_t *layer = f->layer < 0 ? json_null() : json_integer(f->layer);
    return json_pack("{s:o, s:I, s:o, s:s, s:I, s:o, s:o}", "plan", plan_json(&e->plans[f->plan]),
                     "position", (json_int_t)f->position, "layer", layer, "what", f->what, "index",
                     (json_int_t)f->index, "actual", cli_real_json(f->actual), "expected",
                     cli_real_json(f->expected));
}

static json_t *mixing_json(const gqac_mixing *list, int n) {
    json_t *all = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(all, json_pack("{s:s, s:s}", "op", list[i].op, "node", list[i].node));
    return all;
}

static void print_json(const equiv *e, const settings *s) {
    const gqac_mixing *mixing = NULL;
    const int n = gqac_program_mixing(e->program, &mixing);
    json_t *root = json_pack("{s:I, s:i, s:i, s:i, s:I, s:I}", "tokens", (json_int_t)e->rows[0].n,
                             "batch", e->batch, "planned", s->planned, "plans", e->ran, "compared",
                             (json_int_t)e->compared, "differing", (json_int_t)e->differing);
    json_object_set_new(root, "mixing", mixing_json(mixing, n));
    if (equiv_is_hit(e)) {
        json_object_set_new(root, "reused_tokens", json_integer(e->reused));
        json_object_set_new(root, "computed_tokens", json_integer(e->computed));
    }
    json_object_set_new(root, "profile", json_string(s->profile));
    if (e->has_first)
        json_object_set_new(root, "first", first_json(e));
    if (e->reference != e->program) {
        json_object_set_new(root, "against", json_string(gqac_program_profile(e->reference)));
        json_object_set_new(root, "relative", cli_real_json(e->relative));
    }
    if (s->certificate.path)
        json_object_set_new(root, "certificate", certificate_json(&s->certificate));
    cli_print_json(root);
}

static void print_table(const equiv *e, const settings *s) {
    if (e->has_first) {
        const equiv_first *f = &e->first;
        const equiv_plan *plan = &e->plans[f->plan];
        printf("first difference: position %lld, ", (long long)f->position);
        if (f->layer >= 0)
            printf("layer %d, ", f->layer);
        printf("%s, value %lld: %.9g, expected %.9g; plan ", cli_shown(f->what).s,
               (long long)f->index, f->actual, f->expected);
        for (int i = 0; i < plan->n && i < 16; i++)
            printf("%s%lld", i ? "," : "", (long long)plan->chunks[i]);
        printf("%s\n", plan->n > 16 ? ",..." : "");
    }
    printf("%s: %lld differing values of %lld, %d of %d plans (%.0f%%), %lld token%s\n",
           e->differing ? "different" : "equal", e->differing, e->compared, e->ran, s->planned,
           s->planned ? 100.0 * e->ran / s->planned : 0, (long long)e->rows[0].n,
           e->rows[0].n == 1 ? "" : "s");
    if (equiv_is_hit(e))
        printf("tokens of hits: %lld reused, %lld computed\n", e->reused, e->computed);
    if (e->reference != e->program && e->differing)
        printf("%s and %s are different profiles: equal bits are promised within a profile, not "
               "between two; relative differences up to %.3g\n",
               gqac_program_profile(e->program), gqac_program_profile(e->reference), e->relative);
    certificate_print(&s->certificate);
}

/* Checks that the program can have every kind; a certificate is about one profile. */
static gqac_status check_kinds(equiv *e, settings *s) {
    char *kinds = strdup(s->kv), *rest = NULL, *kv = kinds ? strtok_r(kinds, ",", &rest) : NULL;
    gqac_status status = kinds ? GQAC_OK : cli_fail(e->c, GQAC_NO_MEMORY, "out of memory");
    for (; kv && status == GQAC_OK; kv = strtok_r(NULL, ",", &rest)) {
        char profile[sizeof s->profile];
        status = equiv_profile(e, kv, profile, sizeof profile);
        if (status == GQAC_OK && !*s->profile)
            memcpy(s->profile, profile, sizeof profile);
        if (status == GQAC_OK && cli_value(e->c, "certificate") && strcmp(profile, s->profile) != 0)
            status = cli_usage(e->c,
                               "--certificate: the kinds of --kv have different profiles, "
                               "%s and %s; a certificate is about one",
                               s->profile, profile);
    }
    free(kinds);
    return status;
}

/* Opens the model and makes what will be compared. */
static gqac_status prepare(equiv *e, settings *s, tokens *x) {
    char path[4096];
    gqac_options options;
    GQAC_TRY(parse(e, s, x));
    GQAC_TRY(certificate_open(e->c, &s->certificate));
    GQAC_TRY(cli_options(e->c, &options));
    GQAC_TRY(cli_model(e->c, &options, path, sizeof path));
    GQAC_TRY(certificate_check(&s->certificate, e->c, path, &options, x->ids, x->n));
    GQAC_TRY(open_programs(e, &options, path));
    GQAC_TRY(cli_check_vocabulary(e->c, e->program, x->ids, x->n));
    GQAC_TRY(equiv_make_rows(e, (int)x->batch, x->ids, x->n));
    GQAC_TRY(equiv_make_plans(e, cli_value(e->c, "splits")));
    GQAC_TRY(check_kinds(e, s));
    return certificate_begin(&s->certificate, e, s->profile, path, &options);
}

static gqac_status prove(equiv *e, settings *s, tokens *x) {
    const gqac_mixing *mixing = NULL;
    const char *kv = cli_value(e->c, "kv");
    GQAC_TRY(prepare(e, s, x));
    const int n_mixing = gqac_program_mixing(e->program, &mixing);
    for (int i = 1; i < n_mixing && !cli_quiet(e->c); i++) /* the log has named the first one */
        fprintf(stderr, "node '%s' (%s) mixes rows too\n", cli_shown(mixing[i].node).s,
                cli_shown(mixing[i].op).s);
    s->start = s->reported = cli_seconds();
    s->json = cli_json(e->c);
    const gqac_status status = run_all(e, s);
    clear_progress(e);
    if (status == GQAC_ABORTED)
        snprintf(e->c->diag.rule, sizeof e->c->diag.rule,
                 "nothing is kept: %d of %d plans of %lld tokens were done", e->ran, s->planned,
                 (long long)e->rows[0].n);
    GQAC_TRY(status);
    return certificate_end(&s->certificate, e, s->planned, s->threads, s->n_threads,
                           kv ? kv : "contiguous");
}

static int run(cli *c) {
    equiv e = {.c = c};
    interrupt_listen();
    settings s = {.certificate = {.first = -1}};
    tokens x = {.batch = 1};
    const gqac_status status = prove(&e, &s, &x);
    if (status == GQAC_OK && s.json)
        print_json(&e, &s);
    else if (status == GQAC_OK)
        print_table(&e, &s);
    const bool differs = e.differing != 0 || s.certificate.first >= 0;
    certificate_free(&s.certificate);
    equiv_free(&e);
    free(x.ids);
    free(s.threads);
    free(s.kv);
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
