/* gqac score MODEL: log-likelihood and logits of a text or of token ids through a sequence. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/tokens.h"

static const cli_flag flags[] = {
    {"text", "TEXT", "a text, - for stdin; the tokenizer adds its special tokens"},
    {"text-file", "FILE", "the text from a file, byte for byte"},
    {"ids", "FILE", "whitespace-separated token ids, taken as they are (-: stdin)"},
    {"embeds", "FILE", "their embeddings [N,E] (.npy), for a model that takes inputs_embeds"},
    {"splits", "N,N,...", "lengths of the chunks; the rest is the last chunk"},
    {"kv", "[contiguous|basic|off]",
     "cache of keys and values; off computes all tokens again for each chunk (contiguous)"},
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
    float *embeddings; /* [n,width]; NULL: none */
    int64_t width;
    float *logits; /* [n,V] */
    int64_t vocabulary;
    bool changed; /* tokens behind a row changed it, which was told */
} scoring;

static gqac_status make_sequence(scoring *s) {
    const char *kv = cli_value(s->c, "kv");
    const gqac_sequence_options options = {.size = sizeof options,
                                           .kv = kv && *kv && !cli_kv_off(s->c) ? kv : NULL,
                                           .final_length = s->n};
    if (gqac_program_is_stateless(s->program))
        return GQAC_OK;
    const gqac_status status =
        gqac_sequence_create(s->program, &options, &s->sequence, &s->c->diag);
    if (status == GQAC_USAGE)
        snprintf(s->c->diag.hint, sizeof s->c->diag.hint,
                 "--kv off keeps nothing and computes all tokens for each chunk");
    return status;
}

static gqac_status tokenize(scoring *s, const char *text) {
    gqac_text *opened = NULL;
    int64_t *ids = NULL;
    size_t n = 0;
    gqac_status status =
        gqac_text_open(s->c->operands[0], GQAC_TEXT_TOKENIZER, &opened, &s->c->diag);
    if (status == GQAC_OK)
        status = gqac_text_tokenize(opened, text, strlen(text), true, &ids, &n, &s->c->diag);
    gqac_text_free(opened);
    if (status == GQAC_OK && !n)
        status = cli_fail(s->c, GQAC_INVALID_INPUT, "the text gives no tokens");
    s->ids = status == GQAC_OK ? calloc(n, sizeof *ids) : NULL;
    if (status == GQAC_OK && !s->ids)
        status = cli_fail(s->c, GQAC_NO_MEMORY, "out of memory");
    if (status == GQAC_OK)
        memcpy(s->ids, ids, n * sizeof *ids);
    s->n = (int64_t)n;
    gqac_release(ids);
    return status;
}

static gqac_status read_tokens(scoring *s) {
    gqac_status status = cli_take_text(s->c, "text");
    if (status != GQAC_OK)
        return status;
    const char *ids = cli_value(s->c, "ids"), *text = cli_value(s->c, "text");
    if (!ids == !text)
        return cli_usage(s->c, ids ? "--text and --ids exclude each other"
                                   : "--text TEXT or --ids FILE is missing");
    return ids ? cli_read_ids(s->c, ids, &s->ids, &s->n) : tokenize(s, text);
}

static gqac_status read_embeddings(scoring *s) {
    const char *file = cli_value(s->c, "embeds");
    int64_t n = 0;
    if (file)
        GQAC_TRY(tokens_embeddings(s->c, file, &s->embeddings, &n, &s->width));
    if (file && n != s->n)
        return cli_fail(s->c, GQAC_INVALID_INPUT, "--embeds: %lld rows for %lld ids", (long long)n,
                        (long long)s->n);
    if (!file && gqac_program_embedding(s->program))
        return cli_usage(s->c, "--embeds FILE.npy is missing: the model takes inputs_embeds");
    return tokens_embeddings_fit(s->c, s->program, s->embeddings, s->width);
}

static gqac_status prepare(scoring *s) {
    int threads = 1;
    gqac_status status = cli_threads(s->c, &threads);
    if (status == GQAC_OK)
        status = read_tokens(s);
    if (status == GQAC_OK)
        status = tokens_chunks(s->c, cli_value(s->c, "splits"), s->n, &s->chunks, &s->n_chunks);
    if (status == GQAC_OK)
        status = cli_open(s->c, !cli_value(s->c, "kv") || cli_kv_off(s->c), &s->program);
    if (status == GQAC_OK && cli_value(s->c, "logits"))
        status = cli_check_output(s->c, "logits", s->program, cli_value(s->c, "logits"));
    if (status == GQAC_OK)
        status = read_embeddings(s);
    if (status == GQAC_OK)
        status = cli_context(s->c, s->program, threads, "score", &s->context);
    if (status == GQAC_OK)
        status = make_sequence(s);
    if (status != GQAC_OK)
        return status;
    s->vocabulary = gqac_program_vocabulary(s->program);
    s->logits = calloc((size_t)s->n * (size_t)s->vocabulary + 1, sizeof *s->logits);
    return s->logits ? GQAC_OK : cli_fail(s->c, GQAC_NO_MEMORY, "out of memory");
}

static gqac_status want_width(scoring *s, int64_t vocabulary) {
    if (vocabulary != s->vocabulary)
        return cli_fail(s->c, GQAC_UNSUPPORTED, "the size of the vocabulary is not constant");
    return GQAC_OK;
}

/* Value i of the logits is computed once more with a later chunk behind it. */
static void check_again(scoring *s, int64_t i, float value) {
    if (s->changed || !memcmp(&s->logits[i], &value, sizeof value))
        return;
    s->changed = true;
    if (!cli_quiet(s->c))
        fprintf(stderr,
                "gqac: logits of position %lld change with the tokens after it: the model is not "
                "causal, so its logits and their score depend on --splits\n",
                (long long)(i / s->vocabulary));
}

/* Rows [at, at + n) of a stateless run over all tokens up to them, or row by row where the model
 * gives only the last one. */
static gqac_status feed_whole(scoring *s, int64_t at, int64_t n) {
    gqac_tensor all;
    gqac_status status =
        gqac_forward_whole(s->context, s->program, s->ids, at + n, &all, &s->c->diag);
    if (status == GQAC_OK)
        status = want_width(s, all.dims[2]);
    if (status != GQAC_OK)
        return status;
    const int64_t skipped = at + n - all.dims[1];
    for (int64_t i = skipped * s->vocabulary; i < (at + n) * s->vocabulary; i++) {
        const float value = (float)gqac_tensor_get(&all, i - skipped * s->vocabulary);
        if (i < at * s->vocabulary)
            check_again(s, i, value);
        else
            s->logits[i] = value;
    }
    for (int64_t i = at; status == GQAC_OK && i < skipped; i++)
        status = feed_whole(s, i, 1);
    return status;
}

/* The same of a sequence, which holds what is before them, or nothing (--kv off). */
static gqac_status feed_chunk(scoring *s, int64_t at, int64_t n) {
    const int64_t skipped = cli_kv_off(s->c) ? at : 0, fed = skipped + n;
    int64_t rows = 0, vocabulary = 0;
    gqac_status status = GQAC_OK;
    if (skipped)
        status = gqac_sequence_rewind(s->sequence, 0, &s->c->diag);
    const int64_t first = at - skipped;
    const gqac_step_item item = {
        .size = sizeof item,
        .sequence = s->sequence,
        .tokens = s->ids + first,
        .count = fed,
        .n_logits = gqac_program_last_logits(s->program) ? 1 : GQAC_LOGITS_ALL,
        .embeddings = s->embeddings ? s->embeddings + first * s->width : NULL};
    if (status == GQAC_OK)
        status = gqac_step(s->context, 1, &item, &s->c->diag);
    if (status != GQAC_OK)
        return status;
    const float *logits = gqac_context_logits(s->context, 0, &rows, &vocabulary);
    status = want_width(s, vocabulary);
    for (int64_t i = 0; status == GQAC_OK && i < (rows - n) * vocabulary; i++)
        check_again(s, i, logits[i]);
    if (status == GQAC_OK)
        memcpy(s->logits + at * vocabulary, logits + (rows - n) * vocabulary,
               (size_t)(n * vocabulary) * sizeof *s->logits);
    return status;
}

static gqac_status feed(scoring *s) {
    gqac_status status = GQAC_OK;
    const bool whole = gqac_program_is_stateless(s->program);
    const bool one = !whole && gqac_program_last_logits(s->program);
    for (int64_t i = 0, at = 0; status == GQAC_OK && !one && i < s->n_chunks; at += s->chunks[i++])
        status = whole ? feed_whole(s, at, s->chunks[i]) : feed_chunk(s, at, s->chunks[i]);
    for (int64_t at = 0; status == GQAC_OK && one && at < s->n; at++)
        status = feed_chunk(s, at, 1);
    return status;
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
    interrupt_listen();
    gqac_status status = prepare(&s);
    if (status == GQAC_OK)
        status = feed(&s);
    if (status == GQAC_OK)
        status = report(&s);
    free(s.ids);
    free(s.embeddings);
    free(s.chunks);
    free(s.logits);
    gqac_sequence_free(s.sequence);
    gqac_context_free(s.context);
    gqac_program_free(s.program);
    return cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_score;
const gqac_cli_verb gqac_cli_verb_score = {
    .name = "score",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary = "log-likelihood, perplexity and logits of a text or of token ids",
    .examples = "gqac score tiny.gqac --text 'It was a fine day, and they walked out.'\n"
                "gqac score tiny.gqac --text-file story.txt --format json\n"
                "gqac score tiny.gqac --ids ids.txt --splits 9,15 --logits logits.npy\n",
    .flags = flags,
    .run = run};
