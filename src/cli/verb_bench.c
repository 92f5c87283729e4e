/* gqac bench MODEL: how long prompts, decode steps and prompts behind a cached prefix take.
 *
 *   ppN     N tokens in one call, nothing cached
 *   tgN@P   N calls of one token behind P cached ones
 *   hpS@P   S tokens in one call behind P cached ones
 *
 * Random token ids, one call to warm up, then --repeat calls, of which the median counts. Bytes are
 * those of all weights and of the keys and values that a call sees, once a call: what a machine
 * has to read at least, but for the rows of an embedding that no token names. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/tokens.h"

static const cli_flag flags[] = {
    {"prompt-tokens", "N,...", "prompts of so many tokens (-p; 512)"},
    {"new-tokens", "N,...", "decode steps behind each prompt (-n; 64)"},
    {"prefix", "P:S,...", "S tokens behind P cached ones"},
    {"repeat", "R", "measured runs of each row (5)"},
    {NULL, NULL, NULL},
};

enum { MOST_TOKENS = 1 << 24, MOST_REPEATS = 10000 };

typedef struct row {
    char name[64];
    int64_t past, calls, tokens; /* cached before; calls; tokens a call */
    double *seconds;             /* of each repeat, ascending */
    double median;
    double bytes; /* of all calls of a repeat */
    int64_t peak; /* resident bytes of the process, so far */
} row;

typedef struct bench {
    cli *c;
    int n_rows;
    row *rows;
    int repeats;
    int64_t *ids; /* [the longest row] */
    gqac_program *program;
    gqac_context *context;
    gqac_sequence *sequence;
} bench;

/* ---- rows ---------------------------------------------------------------- */

static gqac_status add_row(bench *b, const char *kind, int64_t past, int64_t calls,
                           int64_t tokens) {
    row *rows = realloc(b->rows, ((size_t)b->n_rows + 1) * sizeof *rows);
    if (!rows)
        return cli_fail(b->c, GQAC_NO_MEMORY, "out of memory");
    b->rows = rows;
    row *r = &rows[b->n_rows++];
    *r = (row){.past = past, .calls = calls, .tokens = tokens};
    const int n = snprintf(r->name, sizeof r->name, "%s%lld", kind, (long long)(calls * tokens));
    if (past)
        snprintf(r->name + n, sizeof r->name - (size_t)n, "@%lld", (long long)past);
    r->seconds = calloc((size_t)b->repeats, sizeof *r->seconds);
    return r->seconds ? GQAC_OK : cli_fail(b->c, GQAC_NO_MEMORY, "out of memory");
}

static gqac_status add_prefixes(bench *b) {
    const char *text = cli_value(b->c, "prefix");
    for (const char *at = text; at && *at; at += strcspn(at, ","), at += *at == ',') {
        char *end = NULL;
        const long long past = strtoll(at, &end, 10);
        const long long tokens = *end == ':' ? strtoll(end + 1, &end, 10) : 0;
        if (past < 1 || tokens < 1 || past > MOST_TOKENS || tokens > MOST_TOKENS ||
            (*end && *end != ','))
            return cli_usage(b->c, "--prefix '%s' is not a list of P:S, each from 1 to %d", text,
                             MOST_TOKENS);
        gqac_status status = add_row(b, "hp", past, 1, tokens);
        if (status != GQAC_OK)
            return status;
    }
    return GQAC_OK;
}

static gqac_status choose_rows(bench *b) {
    const char *p = cli_value(b->c, "prompt-tokens"), *n = cli_value(b->c, "new-tokens");
    const bool only_prefix = cli_value(b->c, "prefix") && !p && !n;
    int64_t *prompts = NULL, *steps = NULL;
    int n_prompts = 0, n_steps = 0;
    long long repeats = 0;
    gqac_status status = cli_number(b->c, "repeat", 1, MOST_REPEATS, 5, &repeats);
    b->repeats = (int)repeats;
    if (status == GQAC_OK && !only_prefix)
        status =
            cli_numbers(b->c, "prompt-tokens", p ? p : "512", 1, MOST_TOKENS, &prompts, &n_prompts);
    if (status == GQAC_OK && !only_prefix)
        status = cli_numbers(b->c, "new-tokens", n ? n : "64", 1, MOST_TOKENS, &steps, &n_steps);
    for (int i = 0; status == GQAC_OK && i < n_prompts; i++)
        status = add_row(b, "pp", 0, 1, prompts[i]);
    for (int i = 0; status == GQAC_OK && i < n_prompts * n_steps; i++)
        status = add_row(b, "tg", prompts[i / n_steps], steps[i % n_steps], 1);
    if (status == GQAC_OK)
        status = add_prefixes(b);
    free(prompts);
    free(steps);
    return status;
}

/* ---- measuring ----------------------------------------------------------- */

static gqac_status feed(bench *b, int64_t n) {
    const int64_t *ids = b->ids + gqac_sequence_length(b->sequence);
    return gqac_step(b->context, 1, &b->sequence, ids, &n, NULL, &b->c->diag);
}

static gqac_status run_once(bench *b, const row *r, double *seconds) {
    gqac_sequence *past = b->sequence; /* a fork of it, because a rewind may leave work to do */
    gqac_status status = gqac_sequence_fork(past, &b->sequence, &b->c->diag);
    if (status != GQAC_OK)
        return status;
    const double began = cli_seconds();
    for (int64_t i = 0; status == GQAC_OK && i < r->calls; i++)
        status = feed(b, r->tokens);
    *seconds = cli_seconds() - began;
    gqac_sequence_free(b->sequence);
    b->sequence = past;
    return status;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double bytes_of(const bench *b, const row *r) {
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(b->program, &pairs);
    double row_bytes = 0, state_bytes = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        const double bytes = (double)pairs[i].heads * (double)pairs[i].head_size *
                             gqac_dtype_bits(pairs[i].dtype) / 8;
        row_bytes += pairs[i].rows ? 0 : bytes;
        state_bytes += (double)pairs[i].rows * bytes; /* read, and written elsewhere */
    }
    for (int64_t i = 1; i <= r->calls; i++)
        sum += (double)gqac_program_weight_bytes(b->program) + 2 * state_bytes +
               row_bytes * (double)(r->past + i * r->tokens);
    return sum;
}

static gqac_status measure(bench *b, row *r) {
    const gqac_sequence_options options = {.size = sizeof options,
                                           .final_length = r->past + r->calls * r->tokens};
    struct rusage usage = {0};
    double warm = 0;
    gqac_sequence_free(b->sequence);
    b->sequence = NULL;
    gqac_status status = gqac_sequence_create(b->program, &options, &b->sequence, &b->c->diag);
    if (status == GQAC_OK && r->past)
        status = feed(b, r->past);
    if (status == GQAC_OK)
        status = run_once(b, r, &warm);
    for (int i = 0; status == GQAC_OK && i < b->repeats; i++)
        status = run_once(b, r, &r->seconds[i]);
    if (status != GQAC_OK)
        return status;
    const size_t n = (size_t)b->repeats;
    qsort(r->seconds, n, sizeof *r->seconds, ascending);
    r->median = (r->seconds[(n - 1) / 2] + r->seconds[n / 2]) / 2;
    r->bytes = bytes_of(b, r);
    getrusage(RUSAGE_SELF, &usage);
    r->peak = (int64_t)usage.ru_maxrss * 1024;
    return GQAC_OK;
}

static gqac_status make_ids(bench *b) {
    const int64_t vocabulary = gqac_program_vocabulary(b->program);
    uint64_t random = 1;
    int64_t longest = 0;
    for (int i = 0; i < b->n_rows; i++) {
        const int64_t length = b->rows[i].past + b->rows[i].calls * b->rows[i].tokens;
        longest = length > longest ? length : longest;
    }
    b->ids = calloc((size_t)longest + 1, sizeof *b->ids);
    if (!b->ids)
        return cli_fail(b->c, GQAC_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < longest && vocabulary > 0; i++)
        b->ids[i] = (int64_t)(tokens_random(&random) % (uint64_t)vocabulary);
    return GQAC_OK;
}

/* ---- report -------------------------------------------------------------- */

static double rate(const row *r) {
    return r->median > 0 ? (double)(r->calls * r->tokens) / r->median : 0;
}

static double gigabytes(const row *r) {
    return r->median > 0 ? r->bytes / r->median * 1e-9 : 0;
}

static void print_json(const bench *b, const char *target, int threads) {
    json_t *rows = json_array();
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        json_t *all = json_array();
        for (int k = 0; k < b->repeats; k++)
            json_array_append_new(all, cli_real_json(1e3 * r->seconds[k]));
        json_array_append_new(
            rows, json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:I}", "name", r->name, "tokens",
                            (json_int_t)(r->calls * r->tokens), "past", (json_int_t)r->past, "ms",
                            cli_real_json(1e3 * r->median), "times_ms", all, "tokens_per_second",
                            cli_real_json(rate(r)), "gigabytes_per_second",
                            cli_real_json(gigabytes(r)), "peak_rss_bytes", (json_int_t)r->peak));
    }
    cli_print_json(json_pack(
        "{s:s, s:s, s:s, s:s, s:s?, s:i, s:i, s:o}", "version", gqac_version(), "model",
        b->c->operands[0], "profile", gqac_program_profile(b->program), "target", target, "level",
        gqac_program_level(b->program), "threads", threads, "repeat", b->repeats, "rows", rows));
}

static void print_table(const bench *b, const char *format) {
    const bool md = format && !strcmp(format, "md"), csv = format && !strcmp(format, "csv");
    if (csv)
        printf("row,ms,tokens_per_second,gigabytes_per_second,peak_rss_mib\n");
    else if (md)
        printf("| row | ms | tok/s | GB/s | peak RSS MiB |\n|---|---:|---:|---:|---:|\n");
    else
        printf("%-16s %12s %12s %10s %14s\n", "row", "ms", "tok/s", "GB/s", "peak RSS MiB");
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        printf(csv  ? "%s,%.4f,%.2f,%.3f,%lld\n"
               : md ? "| %s | %.3f | %.1f | %.2f | %lld |\n"
                    : "%-16s %12.3f %12.1f %10.2f %14lld\n",
               r->name, 1e3 * r->median, rate(r), gigabytes(r), (long long)(r->peak >> 20));
    }
}

static gqac_status measure_all(bench *b) {
    char path[4096];
    int threads = 1;
    gqac_options options;
    gqac_status status = cli_options(b->c, &options);
    if (status == GQAC_OK)
        status = cli_threads(b->c, &threads);
    if (status == GQAC_OK)
        status = choose_rows(b);
    if (status == GQAC_OK)
        status = cli_model(b->c, &options, path, sizeof path);
    if (status == GQAC_OK)
        status = gqac_program_open(path, &options, &b->program, &b->c->diag);
    if (status == GQAC_OK)
        status = cli_context(b->c, b->program, threads, NULL, &b->context);
    if (status == GQAC_OK)
        gqac_context_set_logits(b->context, GQAC_LOGITS_LAST); /* as generation asks for them */
    if (status == GQAC_OK)
        status = make_ids(b);
    for (int i = 0; status == GQAC_OK && i < b->n_rows; i++)
        status = measure(b, &b->rows[i]);
    if (status == GQAC_OK && cli_json(b->c))
        print_json(b, options.target, threads);
    else if (status == GQAC_OK)
        print_table(b, cli_value(b->c, "format"));
    return status;
}

static int run(cli *c) {
    bench b = {.c = c};
    interrupt_listen();
    gqac_status status = measure_all(&b);
    for (int i = 0; i < b.n_rows; i++)
        free(b.rows[i].seconds);
    free(b.rows);
    free(b.ids);
    gqac_sequence_free(b.sequence);
    gqac_context_free(b.context);
    gqac_program_free(b.program);
    return cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_bench;
const gqac_cli_verb gqac_cli_verb_bench = {.name = "bench",
                                           .operands = "MODEL",
                                           .least = 1,
                                           .most = 1,
                                           .summary =
                                               "times prompts, decode and prompts behind a prefix",
                                           .flags = flags,
                                           .formats = "table json md csv",
                                           .run = run};
