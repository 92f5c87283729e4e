/* gqac score MODEL --ids FILE: log-likelihood and logits of a text through a sequence. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/tokens.h"

static const cli_flag flags[] = {
    {"ids", "FILE", "whitespace-separated token ids"},
    {"splits", "N,N,...", "lengths of the chunks; the rest is the last chunk"},
    {"logits", "OUT.npy", "writes the logits of every position, fp32 [N,V]"},
    {NULL, NULL, NULL},
};

/* -log softmax(row)[id], in double. */
static double surprise(const float *row, int64_t vocabulary, int64_t id) {
    double most = -INFINITY, sum = 0;
    for (int64_t v = 0; v < vocabulary; v++)
        most = row[v] > most ? row[v] : most;
    for (int64_t v = 0; v < vocabulary; v++)
        sum += exp(row[v] - most);
    return log(sum) + most - row[id];
}

typedef struct scoring {
    cli *c;
    int64_t n;
    int64_t *ids;
    int64_t *chunks;
    int n_chunks;
    gqac_program *program;
    gqac_context *context;
    gqac_sequence *sequence;
    float *logits; /* [n,V] */
    int64_t vocabulary;
} scoring;

static gqac_status prepare(scoring *s) {
    char path[4096];
    int threads = 1;
    gqac_options options;
    const char *ids = cli_value(s->c, "ids"), *splits = cli_value(s->c, "splits");
    if (!ids)
        return cli_usage(s->c, "--ids FILE is missing");
    gqac_status status = cli_options(s->c, &options);
    if (status == GQAC_OK)
        status = cli_threads(s->c, &threads);
    if (status == GQAC_OK)
        status = cli_read_ids(s->c, ids, &s->ids, &s->n);
    if (status == GQAC_OK)
        status = tokens_chunks(s->c, splits, s->n, &s->chunks, &s->n_chunks);
    if (status == GQAC_OK)
        status = cli_model(s->c, &options, path, sizeof path);
    if (status == GQAC_OK)
        status = gqac_program_open(path, &options, &s->program, &s->c->diag);
    if (status == GQAC_OK)
        status = gqac_context_create(s->program, threads, &s->context, &s->c->diag);
    const gqac_sequence_options sequence = {.final_length = s->n};
    if (status == GQAC_OK)
        status = gqac_sequence_create(s->program, &sequence, &s->sequence, &s->c->diag);
    if (status != GQAC_OK)
        return status;
    s->vocabulary = gqac_program_vocabulary(s->program);
    s->logits = calloc((size_t)s->n * (size_t)s->vocabulary + 1, sizeof *s->logits);
    return s->logits ? GQAC_OK : cli_fail(s->c, GQAC_NO_MEMORY, "out of memory");
}

static gqac_status feed(scoring *s) {
    int64_t at = 0;
    for (int i = 0; i < s->n_chunks; i++) {
        int64_t rows = 0, vocabulary = 0;
        gqac_status status =
            gqac_step(s->context, 1, &s->sequence, s->ids + at, &s->chunks[i], NULL, &s->c->diag);
        if (status != GQAC_OK)
            return status;
        const float *logits = gqac_context_logits(s->context, 0, &rows, &vocabulary);
        if (rows != s->chunks[i])
            return cli_fail(s->c, GQAC_UNSUPPORTED,
                            "the model gives logits of the last token only; it cannot be scored");
        memcpy(s->logits + at * vocabulary, logits,
               (size_t)(rows * vocabulary) * sizeof *s->logits);
        at += rows;
    }
    return GQAC_OK;
}

static gqac_status report(scoring *s) {
    double nll = 0;
    const char *out = cli_value(s->c, "logits");
    for (int64_t i = 0; i + 1 < s->n; i++)
        nll += surprise(s->logits + i * s->vocabulary, s->vocabulary, s->ids[i + 1]);
    const double perplexity = s->n > 1 ? exp(nll / (double)(s->n - 1)) : 1.0;
    if (out) {
        const gqac_tensor t = {
            .dtype = GQAC_F32, .rank = 2, .dims = {s->n, s->vocabulary}, .data = s->logits};
        gqac_status status = gqac_npy_write(out, &t, &s->c->diag);
        if (status != GQAC_OK)
            return status;
    }
    if (cli_json(s->c))
        cli_print_json(json_pack("{s:I, s:o, s:o}", "tokens", (json_int_t)s->n, "nll",
                                 cli_real_json(nll), "perplexity", cli_real_json(perplexity)));
    else
        printf("tokens %lld, nll %.6f, perplexity %.6f\n", (long long)s->n, nll, perplexity);
    return GQAC_OK;
}

static int run(cli *c) {
    scoring s = {.c = c};
    gqac_status status = prepare(&s);
    if (status == GQAC_OK)
        status = feed(&s);
    if (status == GQAC_OK)
        status = report(&s);
    free(s.ids);
    free(s.chunks);
    free(s.logits);
    gqac_sequence_free(s.sequence);
    gqac_context_free(s.context);
    gqac_program_free(s.program);
    return cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_score;
const gqac_cli_verb gqac_cli_verb_score = {.name = "score",
                                           .operands = "MODEL",
                                           .least = 1,
                                           .most = 1,
                                           .summary =
                                               "log-likelihood, perplexity and logits of token ids",
                                           .flags = flags,
                                           .run = run};
