/* What `generate` and `chat` share: flags, the open model, one answer streamed to stdout, logs and
 * metrics. */
#ifndef GQAC_CLI_GENERATING_H
#define GQAC_CLI_GENERATING_H

#include "cli/cli.h"

/* Rows of a flag table. */
#define GENERATING_FLAGS                                                                           \
    {"new-tokens", "N", "maximum number of new tokens (128)"},                                     \
        {"temperature", "T", "divides the logits; 0: always the likeliest token"},                 \
        {"top-k", "K", "only the K likeliest tokens; 0: all"},                                     \
        {"top-p", "P", "only the likeliest tokens that reach probability P"},                      \
        {"min-p", "P", "only tokens at least P times as likely as the likeliest"},                 \
        {"seed", "S", "seed of the draws (0); the same seed, the same answer"},                    \
        {"repetition-penalty", "R", "makes tokens that were there less likely; 1: none"},          \
        {"presence-penalty", "P", "subtracted from the logits of tokens the answer has (0)"},      \
        {"frequency-penalty", "F", "the same, once for each time the answer has them (0)"},        \
        {"logit-bias", "ID=B", "adds B to the logit of a token; -inf: never; may be repeated"},    \
        {"top-logprobs", "N", "log-probabilities of each token and of the N likeliest, in json"},  \
        {"stop", "TEXT", "ends before this text; may be repeated"},                                \
        {"kv", "[contiguous|basic|off]",                                                           \
         "cache of keys and values; off computes all tokens again for each one (contiguous)"},     \
        {"context", "N", "maximum number of tokens, prompt and answer (the model's own)"},         \
        {"metrics", NULL, "times and token counts on stderr, after the answer; json has them"}, {  \
        "log-steps", NULL, "a line for each new token on stderr"                                   \
    }

typedef struct generating {
    cli *c;
    gqac_text *text;
    gqac_program *program;
    gqac_context *context;
    gqac_session *session;
    gqac_sampling sampling;
    gqac_generate_request request; /* all but the prompt */
    const char **stops;            /* of the request */
    gqac_logit_bias *bias;         /* of the sampling */
    json_t *scores;                /* of --top-logprobs: a list for the answer; NULL: not wanted */
    bool json, log, ids_only;      /* ids_only: no tokenizer, so that ids are printed */
    int64_t max_length;            /* of prompt and answer, when -n is not given; 0: none */
    int64_t context_tokens;        /* of --context or the config; 0: neither says */
    size_t printed;                /* bytes of the answer */
    int64_t steps;
    bool failed; /* stdout cannot be written */
} generating;

/* Opens the parts (GQAC_TEXT_...), unless g->text is there, and the model of operand 0, by the
 * flags. */
gqac_status generating_open(generating *g, unsigned parts);
/* Tokens that prompt and answer can have; INT64_MAX: no bound is known. */
int64_t generating_most_tokens(const generating *g);
/* Sampling of the request by flags and the settings of g->text. */
gqac_status generating_sampling(generating *g);
void generating_free(generating *g);
/* Generates from a prompt through the session. Unless json, the answer and a newline are printed
 * while they come. SIGINT ends it after the current token. */
gqac_status generating_answer(generating *g, const int64_t *ids, size_t n, gqac_generation **said);
/* Ids of --prompt, at least one; special tokens that it spells are text with --no-parse-special. */
gqac_status generating_tokenize(generating *g, const char *prompt, int64_t **ids, size_t *n);
/* --stop of the request. */
gqac_status generating_stops(generating *g);
/* Prints and logs a token while it comes; false: nothing more is wanted. */
bool generating_hear(void *arg, const gqac_generate_event *event);
/* What was held back until the end, and the newline; said NULL: the answer failed. */
void generating_end_line(generating *g, const gqac_generation *said);
/* {"ids", "text", "finish_reason", "metrics"} and, with --top-logprobs, "logprobs"; NULL: out of
 * memory. */
json_t *generating_json(const generating *g, const gqac_generation *said);
/* The same numbers on stderr, if --metrics is given. */
void generating_metrics(const generating *g, const gqac_generation *said);

#endif
