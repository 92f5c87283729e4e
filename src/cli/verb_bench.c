/* gqac bench MODEL: how long prompts, decode steps, prompts after a cached prefix and calls of
 * several sequences take.
 *
 *   ppN           N tokens in one call, nothing cached
 *   tgN@P         N calls of one token after P cached ones
 *   tgNxB@P       the same of B sequences together, P tokens cached of each
 *   hpS@P         S tokens in one call after P cached ones
 *   mixS+NxM@P    S tokens of one sequence and M of each of N others in one call, P cached of each;
 *                 then its parts as rows of their own, ppS@P and tg1xN@P (M > 1: ppMxN@P)
 *
 * Beside hpS@P stands what the cached prefix saves, as ratios without it to with it: of the rows
 * that are computed, (P+S)/S; of the pairs of a query and a key that it sees; and, where there is a
 * row pp<P+S>, of the times.
 *
 * Random token ids; one run to warm up, then --repeat runs, of which the median is reported. The
 * sequences of a row have equal pasts in separate memory, so that each past is read for itself, and
 * different tokens after it. A call appends to forks of them: where P is not a multiple of the
 * tokens of a KV block, the first append copies the last block, which is partly filled. Tokens and
 * bytes are those of all sequences. Bytes are all weights, once a call, and the keys and values
 * that the call attends to, as the kind of cache stores them: the minimum that a machine reads,
 * except that of an embedding only the rows of the tokens are read. */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/cli.h"
#include "cli/interrupt.h"

static const cli_flag flags[] = {
    {"prompt-tokens", "N,...", "lengths of prompts (512)"},
    {"new-tokens", "N,...", "numbers of decode steps after each prompt (64)"},
    {"batch", "N,...", "numbers of sequences that decode together (1)"},
    {"prefix", "P:S,...", "prompts of S tokens after P cached ones"},
    {"mix", "S+NxM@P,...",
     "one call with S tokens of one sequence and M tokens of each of N others, each after P cached "
     "tokens; then both parts in separate calls"},
    {"kv", CLI_KINDS, "kind of cache (contiguous)"},
    {"repeat", "R", "number of measured runs of each row; the median is printed (5)"},
    {NULL, NULL, NULL},
};

enum { MOST_TOKENS = 1 << 24, MOST_SEQUENCES = 1024, MOST_REPEATS = 10000, ID_SEED = 1 };

/* A row of the table: calls of `others` + 1 sequences. */
typedef struct row {
    char name[64];
    int64_t past, calls; /* tokens cached before, for each sequence; calls in a repeat */
    int64_t tokens;      /* new tokens of the first sequence in a call */
    int others;
    int64_t each;    /* new tokens of each other sequence in a call */
    double *seconds; /* of each repeat, ascending */
    double median;
    double bytes; /* of all calls of a repeat */
    int64_t peak; /* resident bytes of the process, so far */
} row;

typedef struct bench {
    cli *c;
    int n_rows;
    row *rows;
    int repeats;
    int64_t *ids;     /* token t of sequence i is ids[t + i] */
    const char *kv;   /* kind of cache, as given; NULL: contiguous */
    const char *kind; /* its name, and the profile of its sequences */
    char profile[256];
    int64_t weights; /* bytes of weights that a step reads: of the embedding one row */
    double stored;   /* bytes of rows in the cache, divided by their bytes in the model's types */
    gqac_program *program;
    gqac_context *context;
    gqac_sequence **pasts, **sequences; /* [largest number of sequences of a row]; sequences: forks
                                           of the pasts while they are measured */
    gqac_step_item *items;              /* of a call */
    int64_t *counts;                    /* of a call, by sequence */
} bench;

/* New tokens of sequence i in a call. */
static int64_t tokens_of(const row *r, int i) {
    return i == 0 ? r->tokens : r->each;
}

/* New tokens of all sequences in a call. */
static int64_t tokens_together(const row *r) {
    return r->tokens + r->others * r->each;
}

/* ---- rows ---------------------------------------------------------------- */

/* Adds a row; its name is the formatted text and @PAST. */
static GQAC_PRINTF(3, 4) gqac_status add_row(bench *b, row r, const char *fmt, ...) {
    row *rows = realloc(b->rows, ((size_t)b->n_rows + 1) * sizeof *rows);
    if (!rows)
        return cli_fail(b->c, GQAC_NO_MEMORY, "out of memory");
    b->rows = rows;
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(r.name, sizeof r.name, fmt, args);
    va_end(args);
    if (r.past)
        snprintf(r.name + n, sizeof r.name - (size_t)n, "@%lld", (long long)r.past);
    r.seconds = calloc((size_t)b->repeats, sizeof *r.seconds);
    rows[b->n_rows++] = r;
    return r.seconds ? GQAC_OK : cli_fail(b->c, GQAC_NO_MEMORY, "out of memory");
}

/* Adds a row of `calls` calls with `tokens` new tokens for each of n sequences: KIND<count>[xN]. */
static gqac_status add_alike(bench *b, const char *kind, int64_t past, int64_t calls,
                             int64_t tokens, int64_t n) {
    const row r = {
        .past = past, .calls = calls, .tokens = tokens, .others = (int)n - 1, .each = tokens};
    const long long count = calls * tokens;
    return n == 1 ? add_row(b, r, "%s%lld", kind, count)
                  : add_row(b, r, "%s%lldx%lld", kind, count, (long long)n);
}

/* Reads a number from 1 to `most` after the character `mark`; `mark` 0: after nothing. */
static bool take_number(const char **at, char mark, int64_t most, int64_t *number) {
    if (mark && *(*at)++ != mark)
        return false;
    char *end = NULL;
    const long long n = isdigit((unsigned char)**at) ? strtoll(*at, &end, 10) : 0;
    if (n < 1 || n > most)
        return false;
    *number = n;
    *at = end;
    return true;
}

/* Skips the comma after an element of a list; false when another character follows. */
static bool end_element(const char **at) {
    const bool ends = !**at || (**at == ',' && (*at)[1]);
    *at += **at == ',';
    return ends;
}

static gqac_status add_prefixes(bench *b) {
    const char *text = cli_value(b->c, "prefix"), *at = text;
    while (at && (at == text || *at)) {
        int64_t past = 0, tokens = 0;
        if (!take_number(&at, 0, MOST_TOKENS, &past) ||
            !take_number(&at, ':', MOST_TOKENS, &tokens) || !end_element(&at))
            return cli_usage(b->c, "--prefix '%s' is not a list of P:S, each from 1 to %d", text,
                             MOST_TOKENS);
        GQAC_TRY(add_alike(b, "hp", past, 1, tokens, 1));
    }
    return GQAC_OK;
}

/* Each mixture, then its parts: the chunk alone, and the other sequences alone. */
static gqac_status add_mixes(bench *b) {
    const char *text = cli_value(b->c, "mix"), *at = text;
    while (at && (at == text || *at)) {
        int64_t chunk = 0, others = 0, each = 0, past = 0;
        if (!take_number(&at, 0, MOST_TOKENS, &chunk) ||
            !take_number(&at, '+', MOST_SEQUENCES, &others) ||
            !take_number(&at, 'x', MOST_TOKENS, &each) ||
            !take_number(&at, '@', MOST_TOKENS, &past) || !end_element(&at))
            return cli_usage(
                b->c,
                "--mix '%s' is not a list of S+NxM@P: S tokens of one sequence and M of "
                "each of N others, P cached of each; S, M and P from 1 to %d, N to %d",
                text, MOST_TOKENS, MOST_SEQUENCES);
        const row r = {
            .past = past, .calls = 1, .tokens = chunk, .others = (int)others, .each = each};
        GQAC_TRY(add_row(b, r, "mix%lld+%lldx%lld", (long long)chunk, (long long)others,
                         (long long)each));
        GQAC_TRY(add_alike(b, "pp", past, 1, chunk, 1));
        GQAC_TRY(add_alike(b, each == 1 ? "tg" : "pp", past, 1, each, others));
    }
    return GQAC_OK;
}

/* A flag that takes a list of numbers. */
typedef struct list {
    const char *flag, *fallback;
    long long most;
    int64_t *values;
    int n;
} list;

/* Prompts, and decode after each prompt with each number of sequences. */
static gqac_status add_prompts(bench *b, list lists[3]) {
    const list *prompts = &lists[0], *steps = &lists[1], *together = &lists[2];
    for (int i = 0; i < 3; i++) {
        const char *text = cli_value(b->c, lists[i].flag);
        GQAC_TRY(cli_numbers(b->c, lists[i].flag, text ? text : lists[i].fallback, 1, lists[i].most,
                             &lists[i].values, &lists[i].n));
    }
    for (int i = 0; i < prompts->n; i++)
        GQAC_TRY(add_alike(b, "pp", 0, 1, prompts->values[i], 1));
    for (int i = 0; i < prompts->n; i++)
        for (int j = 0; j < steps->n; j++)
            for (int k = 0; k < together->n; k++)
                GQAC_TRY(add_alike(b, "tg", prompts->values[i], steps->values[j], 1,
                                   together->values[k]));
    return GQAC_OK;
}

static gqac_status choose_rows(bench *b) {
    list lists[3] = {{.flag = "prompt-tokens", .fallback = "512", .most = MOST_TOKENS},
                     {.flag = "new-tokens", .fallback = "64", .most = MOST_TOKENS},
                     {.flag = "batch", .fallback = "1", .most = MOST_SEQUENCES}};
    bool prompts = !cli_value(b->c, "prefix") && !cli_value(b->c, "mix");
    long long repeats = 0;
    GQAC_TRY(cli_number(b->c, "repeat", 1, MOST_REPEATS, 5, &repeats));
    b->repeats = (int)repeats;
    for (int i = 0; i < 3; i++)
        prompts |= cli_value(b->c, lists[i].flag) != NULL;
    const gqac_status status = prompts ? add_prompts(b, lists) : GQAC_OK;
    for (int i = 0; i < 3; i++)
        free(lists[i].values);
    GQAC_TRY(status);
    GQAC_TRY(add_prefixes(b));
    return add_mixes(b);
}

/* ---- sequences ----------------------------------------------------------- */

/* Appends counts[i] tokens to each of n sequences in one call, and asks for the last row of logits
 * of each, as generation does. */
static gqac_status append(bench *b, int n, gqac_sequence *const *sequences, const int64_t *counts) {
    for (int i = 0; i < n; i++)
        b->items[i] = (gqac_step_item){.size = sizeof *b->items,
                                       .sequence = sequences[i],
                                       .tokens = b->ids + gqac_sequence_length(sequences[i]) + i,
                                       .count = counts[i],
                                       .n_logits = 1};
    return gqac_step(b->context, n, b->items, &b->c->diag);
}

static void free_sequences(gqac_sequence **sequences, int n) {
    for (int i = 0; sequences && i < n; i++) {
        gqac_sequence_free(sequences[i]);
        sequences[i] = NULL;
    }
}

/* True if some past tensor has a row for each token. If none has, pasts cannot be imported, because
 * tensors do not contain their length. */
static bool has_rows(const bench *b) {
    const gqac_kv_pair *pairs = NULL;
    const int n = gqac_program_kv_pairs(b->program, &pairs);
    for (int i = 0; i < n; i++)
        if (!pairs[i].rows)
            return true;
    return false;
}

static gqac_status make_pasts(bench *b, const row *r) {
    const int n = r->others + 1;
    for (int i = 0; i < n; i++) {
        const int64_t length = r->past + r->calls * tokens_of(r, i);
        const gqac_sequence_options options = {
            .size = sizeof options, .kv = b->kv, .final_length = length};
        GQAC_TRY(gqac_sequence_create(b->program, &options, &b->pasts[i], &b->c->diag));
    }
    b->kind = gqac_sequence_kind(b->pasts[0]);
    gqac_sequence_profile(b->pasts[0], b->profile, sizeof b->profile);
    if (!r->past)
        return GQAC_OK;
    const int computed = has_rows(b) ? 1 : n;
    for (int i = 0; i < computed; i++)
        GQAC_TRY(append(b, 1, &b->pasts[i], &r->past));
    /* the others are copies, because forks would share the memory of the first */
    return computed < n ? gqac_sequence_copy(b->pasts[0], n - 1, b->pasts + 1, &b->c->diag)
                        : GQAC_OK;
}

/* ---- measuring ----------------------------------------------------------- */

/* Measures the calls, on forks of the pasts: after a rewind, states would have to be computed
 * again.
 */
static gqac_status time_calls(bench *b, const row *r, double *seconds) {
    const int n = r->others + 1;
    for (int i = 0; i < n; i++) {
        b->counts[i] = tokens_of(r, i);
        GQAC_TRY(gqac_sequence_fork(b->pasts[i], &b->sequences[i], &b->c->diag));
    }
    const double began = cli_seconds();
    for (int64_t i = 0; i < r->calls; i++)
        GQAC_TRY(append(b, n, b->sequences, b->counts));
    *seconds = cli_seconds() - began;
    return GQAC_OK;
}

static gqac_status run_once(bench *b, const row *r, double *seconds) {
    const gqac_status status = time_calls(b, r, seconds);
    free_sequences(b->sequences, r->others + 1);
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
        const gqac_kv_pair *p = &pairs[i];
        const double bytes = (double)(p->heads * gqac_kv_pair_rows(p, 1) * p->head_size) *
                             gqac_dtype_bits(p->dtype) / 8;
        row_bytes += pairs[i].rows ? 0 : b->stored * bytes;
        state_bytes += pairs[i].rows ? bytes : 0; /* read, and written elsewhere */
    }
    const int64_t sequences = r->others + 1;
    for (int64_t i = 1; i <= r->calls; i++)
        sum += (double)b->weights + 2 * state_bytes * (double)sequences +
               row_bytes * (double)(r->past * sequences + i * tokens_together(r));
    return sum;
}

/* Maximum of resident bytes since the program began. ru_maxrss, the fallback without /proc,
 * includes memory of the process that started it. */
static int64_t peak_memory(void) {
    char line[256];
    long long kib = -1;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        /* NOLINTNEXTLINE(cert-err34-c): the kernel writes a number */
        if (sscanf(line, "VmHWM: %lld kB", &kib) != 1)
            kib = -1;
    if (f)
        (void)fclose(f);
    struct rusage usage = {0};
    if (kib < 0 && !getrusage(RUSAGE_SELF, &usage))
        kib = usage.ru_maxrss;
    return kib * 1024;
}

static gqac_status run_repeats(bench *b, row *r) {
    double warm = 0;
    GQAC_TRY(make_pasts(b, r));
    GQAC_TRY(run_once(b, r, &warm));
    for (int i = 0; i < b->repeats; i++)
        GQAC_TRY(run_once(b, r, &r->seconds[i]));
    return GQAC_OK;
}

static gqac_status measure(bench *b, row *r) {
    const gqac_status status = run_repeats(b, r);
    free_sequences(b->pasts, r->others + 1);
    GQAC_TRY(status);
    const size_t n = (size_t)b->repeats;
    qsort(r->seconds, n, sizeof *r->seconds, ascending);
    r->median = (r->seconds[(n - 1) / 2] + r->seconds[n / 2]) / 2;
    r->bytes = bytes_of(b, r);
    r->peak = peak_memory();
    return GQAC_OK;
}

static gqac_status measure_weights(bench *b) {
    gqac_plan *plan = NULL;
    GQAC_TRY(gqac_plan_open(b->program, 0, &plan, &b->c->diag));
    b->weights = plan->total.weight_bytes;
    gqac_plan_free(plan);
    return GQAC_OK;
}

/* Codes take fewer bytes than the rows for which they stand. */
static gqac_status measure_kind(bench *b) {
    gqac_memory rows = {.size = sizeof rows}, kept = {.size = sizeof kept};
    GQAC_TRY(gqac_program_memory_of(b->program, NULL, 1, 1, &rows, &b->c->diag));
    GQAC_TRY(gqac_program_memory_of(b->program, b->kv, 1, 1, &kept, &b->c->diag));
    const double all = (double)(rows.kv_block + rows.kv_window);
    b->stored = all > 0 ? (double)(kept.kv_block + kept.kv_window) / all : 1;
    return GQAC_OK;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Allocates what the largest row needs, and makes random ids. */
static gqac_status allocate(bench *b) {
    const int64_t vocabulary = gqac_program_vocabulary(b->program);
    int64_t longest = 0, sequences = 0;
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        longest = larger(longest, r->past + r->calls * larger(r->tokens, r->each));
        sequences = larger(sequences, r->others + 1);
    }
    longest += sequences;
    b->ids = calloc((size_t)longest + 1, sizeof *b->ids);
    b->items = calloc((size_t)sequences + 1, sizeof *b->items);
    b->counts = calloc((size_t)sequences + 1, sizeof *b->counts);
    b->pasts = calloc((size_t)sequences + 1, sizeof *b->pasts);
    b->sequences = calloc((size_t)sequences + 1, sizeof *b->sequences);
    if (!b->ids || !b->items || !b->counts || !b->pasts || !b->sequences)
        return cli_fail(b->c, GQAC_NO_MEMORY, "out of memory");
    gqac_random_ids(ID_SEED, vocabulary, longest, b->ids);
    return GQAC_OK;
}

/* ---- what a prefix saves -------------------------------------------------- */

typedef struct saving {
    double rows, pairs, seconds; /* without the prefix / with it; seconds 0: not measured */
} saving;

static bool is_hybrid(const row *r) {
    return !strncmp(r->name, "hp", 2);
}

/* Number of pairs of a query and a key that it sees, for n queries after `past` cached tokens. */
static double pairs_of(double past, double n) {
    return n * past + n * (n + 1) / 2;
}

static saving saving_of(const bench *b, const row *r) {
    const double past = (double)r->past, n = (double)r->tokens;
    saving s = {.rows = (past + n) / n, .pairs = pairs_of(0, past + n) / pairs_of(past, n)};
    for (int i = 0; i < b->n_rows; i++) {
        const row *whole = &b->rows[i];
        if (!strncmp(whole->name, "pp", 2) && !whole->past && !whole->others &&
            whole->tokens == r->past + r->tokens && r->median > 0)
            s.seconds = whole->median / r->median;
    }
    return s;
}

static void add_saving(const bench *b, const row *r, json_t *json) {
    const saving s = saving_of(b, r);
    json_object_set_new(json, "saved",
                        json_pack("{s:o, s:o, s:o}", "rows", cli_real_json(s.rows), "pairs",
                                  cli_real_json(s.pairs), "time",
                                  s.seconds > 0 ? cli_real_json(s.seconds) : json_null()));
}

static void print_saving(const bench *b, const row *r) {
    const saving s = saving_of(b, r);
    const long long past = (long long)r->past, n = (long long)r->tokens;
    printf("%s: %.2fx fewer rows, (%lld+%lld)/%lld; %.2fx fewer pairs of query and key; ", r->name,
           s.rows, past, n, n, s.pairs);
    if (s.seconds > 0)
        printf("%.2fx faster than pp%lld\n", s.seconds, past + n);
    else
        printf("-p %lld measures it without the prefix\n", past + n);
}

/* ---- report -------------------------------------------------------------- */

static double rate(const row *r) {
    return r->median > 0 ? (double)(r->calls * tokens_together(r)) / r->median : 0;
}

static double gigabytes(const row *r) {
    return r->median > 0 ? r->bytes / r->median * 1e-9 : 0;
}

static const char method[] =
    "measured: ms is the median of times_ms, after one run to warm up; token ids are random; "
    "saved.rows and saved.pairs are estimates from the lengths";

static void print_json(const bench *b, const char *target, int threads) {
    json_t *rows = json_array();
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        json_t *all = json_array();
        for (int k = 0; k < b->repeats; k++)
            json_array_append_new(all, cli_real_json(1e3 * r->seconds[k]));
        json_t *row =
            json_pack("{s:s, s:I, s:i, s:I, s:o, s:o, s:o, s:o, s:I}", "name", r->name, "tokens",
                      (json_int_t)r->calls * tokens_together(r), "sequences", r->others + 1, "past",
                      (json_int_t)r->past, "ms", cli_real_json(1e3 * r->median), "times_ms", all,
                      "tokens_per_second", cli_real_json(rate(r)), "gigabytes_per_second",
                      cli_real_json(gigabytes(r)), "peak_rss_bytes", (json_int_t)r->peak);
        if (is_hybrid(r))
            add_saving(b, r, row);
        json_array_append_new(rows, row);
    }
    cli_print_json(json_pack("{s:s, s:o, s:o, s:s, s:s, s:s, s:s?, s:I, s:s, s:i, s:i, s:s, s:o}",
                             "version", gqac_version(), "build", cli_build_json(), "host",
                             cli_host_json(), "model", b->c->operands[0], "profile", b->profile,
                             "target", target, "level", gqac_program_level(b->program),
                             "weight_bytes", (json_int_t)b->weights, "kv", b->kind, "threads",
                             threads, "repeat", b->repeats, "method", method, "rows", rows));
}

static void print_table(const bench *b, const char *format) {
    const bool md = format && !strcmp(format, "md"), csv = format && !strcmp(format, "csv");
    if (csv)
        printf("row,ms,tokens_per_second,gigabytes_per_second,peak_rss_mib\n");
    else if (md)
        printf("| row | ms | tok/s | GB/s | peak RSS MiB |\n|---|---:|---:|---:|---:|\n");
    else
        printf("%-20s %12s %12s %10s %14s\n", "row", "ms", "tok/s", "GB/s", "peak RSS MiB");
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        printf(csv  ? "%s,%.4f,%.2f,%.3f,%lld\n"
               : md ? "| %s | %.3f | %.1f | %.2f | %lld |\n"
                    : "%-20s %12.3f %12.1f %10.2f %14lld\n",
               r->name, 1e3 * r->median, rate(r), gigabytes(r), (long long)(r->peak >> 20));
    }
    for (int i = 0; i < b->n_rows && !csv && !md; i++)
        if (is_hybrid(&b->rows[i]))
            print_saving(b, &b->rows[i]);
}

/* Before the model is loaded: fails for a row with more tokens than the model has positions. */
static gqac_status check_lengths(bench *b) {
    const int64_t most = cli_most_tokens(b->c);
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        const int64_t length = r->past + r->calls * larger(r->tokens, r->each);
        if (length <= most)
            continue;
        cli_fail(b->c, GQAC_OUT_OF_RANGE,
                 "row %s needs a sequence of %lld tokens: the model has only %lld positions",
                 r->name, (long long)length, (long long)most);
        return cli_hint(b->c,
                        "prompt and new tokens (-p, -n, --prefix, --mix) of at most %lld together",
                        (long long)most);
    }
    return GQAC_OK;
}

static gqac_status measure_all(bench *b) {
    char path[4096];
    int threads = 1;
    gqac_options options;
    GQAC_TRY(cli_options(b->c, &options));
    GQAC_TRY(cli_threads(b->c, &threads));
    GQAC_TRY(choose_rows(b));
    GQAC_TRY(cli_model(b->c, &options, path, sizeof path));
    GQAC_TRY(check_lengths(b));
    GQAC_TRY(gqac_program_open(path, &options, &b->program, &b->c->diag));
    GQAC_TRY(cli_context(b->c, b->program, threads, NULL, &b->context));
    GQAC_TRY(measure_kind(b));
    GQAC_TRY(measure_weights(b));
    GQAC_TRY(allocate(b));
    for (int i = 0; i < b->n_rows; i++)
        GQAC_TRY(measure(b, &b->rows[i]));
    if (cli_json(b->c))
        print_json(b, options.target, threads);
    else
        print_table(b, cli_value(b->c, "format"));
    return GQAC_OK;
}

static int run(cli *c) {
    bench b = {.c = c, .kv = cli_value(c, "kv")};
    interrupt_listen();
    gqac_status status = measure_all(&b);
    for (int i = 0; i < b.n_rows; i++)
        free(b.rows[i].seconds);
    free(b.rows);
    free(b.ids);
    free(b.items);
    free(b.counts);
    free((void *)b.pasts);
    free((void *)b.sequences);
    gqac_context_free(b.context);
    gqac_program_free(b.program);
    return cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_bench;
const gqac_cli_verb gqac_cli_verb_bench = {
    .name = "bench",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary = "measures the speed of prompts, decode, prompts after a cached prefix, and batches",
    .examples = "gqac bench tiny.gqac -p 128 -n 32\n"
                "gqac bench tiny.gqac --prefix 128:32 --repeat 3 --format md\n"
                "gqac bench tiny.gqac --batch 1,8 --mix 64+3x1@64\n",
    .flags = flags,
    .formats = "table json md csv",
    .run = run};
