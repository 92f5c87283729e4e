/* gqac score MODEL: log-likelihood and logits of a text or of token ids through a sequence. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/finite.h"
#include "cli/interrupt.h"
#include "cli/tokens.h"

static const cli_flag flags[] = {
    {"text", "TEXT", "the text to score (-: stdin); the tokenizer adds its special tokens"},
    {"text-file", "FILE", "reads the text from a file, byte for byte"},
    {"ids", "FILE",
     "whitespace-separated token ids instead of a text, used as they are (-: stdin)"},
    {"embeds", "FILE",
     "embeddings [N,E] (.npy) of the N ids, for a model with the input inputs_embeds"},
    {"splits", "N,N,...",
     "computes the tokens in chunks of these lengths; the last chunk is the rest (one chunk). If "
     "the "
     "model returns only the last logits, all chunks are single tokens"},
    {"kv", CLI_KV_KINDS,
     "KV cache; off computes all earlier tokens again for each chunk (contiguous)"},
    {"logits", "OUT.npy", "writes the logits of every position, fp32 [N,V]"},
    {"check-finite", NULL,
     "names the first node with a result that is NaN or infinite, and fails (slow)"},
    {NULL, NULL, NULL},
};

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
    finite_finding finite;
    bool changed; /* later tokens changed the logits of a position, and a warning says so */
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
        cli_hint(s->c, "--kv off caches nothing and computes all tokens again for each chunk");
    return status;
}

/* Logits of a single token can be wanted, its score cannot: nothing precedes it. */
static gqac_status check_count(scoring *s) {
    if (s->n > 1 || (s->n && cli_value(s->c, "logits")))
        return GQAC_OK;
    cli_fail(s->c, GQAC_INVALID_INPUT,
             s->n ? "a single token cannot be scored" : "there are no tokens");
    cli_rule(s->c, "every token but the first is scored, so at least two are needed");
    return cli_hint(s->c, "a longer text, or --logits OUT.npy for the logits alone");
}

static gqac_status tokenize(scoring *s, const char *text) {
    gqac_text *opened = NULL;
    int64_t *ids = NULL;
    size_t n = 0;
    GQAC_TRY(gqac_text_open(s->c->operands[0], GQAC_TEXT_TOKENIZER, &opened, &s->c->diag));
    const gqac_status status =
        gqac_text_tokenize(opened, text, strlen(text), true, &ids, &n, &s->c->diag);
    gqac_text_free(opened);
    GQAC_TRY(status);
    s->ids = calloc(n + 1, sizeof *ids);
    if (s->ids)
        memcpy(s->ids, ids, n * sizeof *ids);
    gqac_release(ids);
    if (!s->ids)
        return cli_fail(s->c, GQAC_NO_MEMORY, "out of memory");
    s->n = (int64_t)n;
    return check_count(s);
}

static gqac_status read_tokens(scoring *s) {
    GQAC_TRY(cli_take_text(s->c, "text"));
    const char *ids = cli_value(s->c, "ids"), *text = cli_value(s->c, "text");
    if (!ids == !text)
        return cli_usage(s->c, ids ? "--text and --ids cannot be combined"
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
    if (!file && gqac_program_embedding_size(s->program))
        return cli_usage(s->c, "--embeds FILE.npy is missing: the model takes inputs_embeds");
    return tokens_embeddings_fit(s->c, s->program, s->embeddings, s->width);
}

static gqac_status prepare(scoring *s) {
    int threads = 1;
    GQAC_TRY(cli_threads(s->c, &threads));
    if (cli_value(s->c, "logits"))
        GQAC_TRY(cli_check_writable(s->c, cli_value(s->c, "logits")));
    GQAC_TRY(read_tokens(s));
    GQAC_TRY(tokens_chunks(s->c, cli_value(s->c, "splits"), s->n, &s->chunks, &s->n_chunks));
    GQAC_TRY(cli_open(s->c, !cli_value(s->c, "kv") || cli_kv_off(s->c), &s->program));
    if (cli_value(s->c, "logits"))
        GQAC_TRY(cli_check_output(s->c, "logits", s->program, cli_value(s->c, "logits")));
    GQAC_TRY(cli_check_vocabulary(s->c, s->program, s->ids, s->n));
    GQAC_TRY(check_count(s));
    GQAC_TRY(cli_check_length(s->c, s->program, s->n));
    GQAC_TRY(read_embeddings(s));
    GQAC_TRY(cli_context(s->c, s->program, threads, "score", &s->context));
    if (cli_switch(s->c, "check-finite"))
        finite_watch(&s->finite, s->context);
    GQAC_TRY(make_sequence(s));
    s->vocabulary = gqac_program_vocabulary(s->program);
    s->logits = calloc((size_t)s->n * (size_t)s->vocabulary + 1, sizeof *s->logits);
    return s->logits ? GQAC_OK : cli_fail(s->c, GQAC_NO_MEMORY, "out of memory");
}

static gqac_status check_vocabulary(scoring *s, int64_t vocabulary) {
    if (vocabulary != s->vocabulary)
        return cli_fail(s->c, GQAC_UNSUPPORTED, "the size of the vocabulary is not constant");
    return GQAC_OK;
}

/* Value i of the logits, computed again with more tokens after its position. */
static void check_again(scoring *s, int64_t i, float value) {
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-*): the same bits are wanted */
    if (s->changed || !memcmp(&s->logits[i], &value, sizeof value))
        return;
    s->changed = true;
    if (!cli_quiet(s->c))
        fprintf(stderr,
                "gqac: logits of position %lld change with the tokens after it: the model is not "
                "causal, so its logits and their score depend on --splits\n",
                (long long)(i / s->vocabulary));
}

/* Logits of positions [at, at + n) by a stateless run over all tokens up to them, or one position
 * after another where the model returns only the last row. */
static gqac_status compute_whole(scoring *s, int64_t at, int64_t n) {
    gqac_tensor all;
    GQAC_TRY(gqac_forward_stateless(s->context, s->program, s->ids, at + n, &all, &s->c->diag));
    GQAC_TRY(check_vocabulary(s, all.dims[2]));
    const int64_t skipped = at + n - all.dims[1];
    for (int64_t i = skipped * s->vocabulary; i < (at + n) * s->vocabulary; i++) {
        const float value = (float)gqac_tensor_get(&all, i - skipped * s->vocabulary);
        if (i < at * s->vocabulary)
            check_again(s, i, value);
        else
            s->logits[i] = value;
    }
    for (int64_t i = at; i < skipped; i++)
        GQAC_TRY(compute_whole(s, i, 1));
    return GQAC_OK;
}

/* The same by a step of the sequence, which holds the tokens before `at`; with --kv off it holds
 * none, and all tokens are computed again. */
static gqac_status compute_chunk(scoring *s, int64_t at, int64_t n) {
    const int64_t repeated = cli_kv_off(s->c) ? at : 0, first = at - repeated;
    int64_t rows = 0, vocabulary = 0;
    if (repeated)
        GQAC_TRY(gqac_sequence_rewind(s->sequence, 0, &s->c->diag));
    const gqac_step_item item = {
        .size = sizeof item,
        .sequence = s->sequence,
        .tokens = s->ids + first,
        .count = repeated + n,
        .n_logits = gqac_program_last_logits(s->program) ? 1 : GQAC_LOGITS_ALL,
        .embeddings = s->embeddings ? s->embeddings + first * s->width : NULL};
    GQAC_TRY(gqac_step(s->context, 1, &item, &s->c->diag));
    const float *logits = gqac_context_logits(s->context, 0, &rows, &vocabulary);
    GQAC_TRY(check_vocabulary(s, vocabulary));
    for (int64_t i = 0; i < (rows - n) * vocabulary; i++)
        check_again(s, i, logits[i]);
    memcpy(s->logits + at * vocabulary, logits + (rows - n) * vocabulary,
           (size_t)(n * vocabulary) * sizeof *s->logits);
    return GQAC_OK;
}

static gqac_status compute(scoring *s) {
    const bool whole = gqac_program_is_stateless(s->program);
    const bool one = !whole && gqac_program_last_logits(s->program);
    for (int64_t i = 0, at = 0; !one && i < s->n_chunks; at += s->chunks[i++])
        GQAC_TRY(whole ? compute_whole(s, at, s->chunks[i]) : compute_chunk(s, at, s->chunks[i]));
    for (int64_t at = 0; one && at < s->n; at++)
        GQAC_TRY(compute_chunk(s, at, 1));
    return GQAC_OK;
}

/* Adds -log softmax(row)[id]: NaN if a logit is NaN or +inf. */
static gqac_status add_surprise(scoring *s, const float *row, int64_t id, double *nll) {
    double log_probability = 0;
    for (int64_t v = 0; v < s->vocabulary; v++)
        if (!(row[v] < INFINITY))
            *nll = NAN;
    GQAC_TRY(gqac_log_probabilities(row, s->vocabulary, id, &log_probability, 0, NULL, NULL,
                                    &s->c->diag));
    *nll -= log_probability;
    return GQAC_OK;
}

static gqac_status report(scoring *s) {
    double nll = 0;
    const char *out = cli_value(s->c, "logits");
    for (int64_t i = 0; i + 1 < s->n; i++)
        GQAC_TRY(add_surprise(s, s->logits + i * s->vocabulary, s->ids[i + 1], &nll));
    const double perplexity = s->n > 1 ? exp(nll / (double)(s->n - 1)) : NAN; /* of no prediction */
    if (out) {
        const gqac_tensor t = {
            .dtype = GQAC_F32, .rank = 2, .dims = {s->n, s->vocabulary}, .data = s->logits};
        GQAC_TRY(gqac_npy_write(out, &t, &s->c->diag));
    }
    if (cli_json(s->c))
        cli_print_json(json_pack("{s:I, s:o, s:o}", "tokens", (json_int_t)s->n, "nll",
                                 cli_real_json(nll), "perplexity", cli_real_json(perplexity)));
    else if (s->n < 2)
        printf("tokens 1, nothing to score: no token comes before it\n");
    else
        printf("tokens %lld, nll %.6f, perplexity %.6f\n", (long long)s->n, nll, perplexity);
    return GQAC_OK;
}

static gqac_status score(scoring *s) {
    GQAC_TRY(prepare(s));
    GQAC_TRY(compute(s));
    GQAC_TRY(finite_check(s->c, &s->finite));
    return report(s);
}

static int run(cli *c) {
    scoring s = {.c = c};
    interrupt_listen();
    const gqac_status status = score(&s);
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
    .summary = "computes log-likelihood, perplexity and logits of a text or of token ids",
    .examples = "gqac score tiny.gqac --text 'It was a fine day, and they walked out.'\n"
                "gqac score tiny.gqac --text-file story.txt --format json\n"
                "gqac score tiny.gqac --ids ids.txt --splits 9,15 --logits logits.npy\n",
    .flags = flags,
    .run = run};
