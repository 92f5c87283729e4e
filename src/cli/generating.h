/* What `generate` and `chat` share: flags, the open model, one answer streamed to stdout, logs and
 * metrics. */
#ifndef GQAC_CLI_GENERATING_H
#define GQAC_CLI_GENERATING_H

#include "cli/caching.h"
#include "cli/calling.h"
#include "cli/constraining.h"
#include "cli/drafting.h"

/* Rows of a flag table. */
#define GENERATING_FLAGS                                                                           \
    {"new-tokens", "N", "maximum number of new tokens (128)"},                                     \
        {"temperature", "T", "divides the logits; 0: always the most likely token"},               \
        {"top-k", "K", "samples from the K most likely tokens; 0: from all"},                      \
        {"top-p", "P", "samples from the most likely tokens that together have probability P"},    \
        {"min-p", "P", "samples from tokens at least P times as likely as the most likely one"},   \
        {"seed", "S", "seed of the random numbers; the same seed gives the same answer (0)"},      \
        {"repetition-penalty", "R",                                                                \
         "above 1: makes tokens that occurred before less likely; 1: off"},                        \
        {"presence-penalty", "P", "subtracted from the logits of tokens in the answer (0)"},       \
        {"frequency-penalty", "F",                                                                 \
         "subtracted once for each time that the token occurs in the answer (0)"},                 \
        {"logit-bias", "ID=B", "adds B to the logit of a token; -inf: never; may be repeated"},    \
        {"top-logprobs", "N",                                                                      \
         "adds log-probabilities to json: of each token and of the N most likely ones"},           \
        {"stop", "TEXT", "ends the answer before this text; may be repeated"},                     \
        {"kv", CLI_KV_KINDS,                                                                       \
         "KV cache; windowed drops rows outside sliding windows; quantised (int8) and quantised4 " \
         "(int4) store 8-bit and 4-bit codes; basic is another name for contiguous; off computes " \
         "all tokens again for each new one (contiguous)"},                                        \
        {"context", "N", "maximum number of tokens, prompt and answer (the model's own)"},         \
        DRAFTING_FLAG, CONSTRAINING_FLAGS, CACHING_FLAGS,                                          \
        {"draft", "MODEL", "a smaller model with the same tokenizer that drafts for --speculate"}, \
        {"metrics", NULL,                                                                          \
         "prints times and token counts on stderr after the answer; json always has them"},        \
    {                                                                                              \
        "log-steps", NULL, "prints a line for each new token on stderr"                            \
    }

typedef struct generating {
    cli *c;
    gqac_text *text;
    gqac_program *program;
    gqac_threads *threads;
    gqac_context *context;
    caching_remote tier;
    gqac_store *store; /* of --prefix-store and --prefix-remote; NULL: none */
    gqac_session *session;
    drafting drafting;
    gqac_constraint *constraint; /* of --grammar or --json-schema; NULL: none */
    calling *calling;            /* the caller's: reads and prints the answer; NULL: no tools */
    gqac_sampling sampling;
    gqac_generate_request request; /* all but the prompt */
    const char **stops;            /* of the request */
    gqac_logit_bias *bias;         /* of the sampling */
    json_t *scores;                /* of --top-logprobs: a list for the answer; NULL: not wanted */
    bool json, log, ids_only;      /* ids_only: no tokenizer, so that ids are printed */
    int64_t max_length;            /* of prompt and answer, when -n is not given; 0: none */
    int64_t context_tokens;        /* of --context or the config; 0: neither has it */
    size_t printed;                /* bytes of the answer */
    int64_t steps;
    bool failed; /* stdout cannot be written */
} generating;

/* Opens the model of operand 0 as the flags say, and unless g->text is open, the parts of its
 * folder (GQAC_TEXT_...). */
gqac_status generating_open(generating *g, unsigned parts);
/* Names the kind of cache on stderr, once flags and input are accepted. */
void generating_report(const generating *g);
/* Maximum of tokens, prompt and answer; INT64_MAX: not known. */
int64_t generating_most_tokens(const generating *g);
/* Sets the sampling of the request from the flags and the settings of g->text. */
gqac_status generating_sampling(generating *g);
/* Compiles the constraint of the request for g->text. */
gqac_status generating_constraint(generating *g);
void generating_free(generating *g);
/* Generates an answer to a prompt in the session. Unless json, it is printed as it is generated,
 * with a newline at its end. SIGINT ends it after the current token. */
gqac_status generating_answer(generating *g, const int64_t *ids, size_t n, gqac_generation **said);
/* Ids of --prompt, at least one; with --no-parse-special special tokens spelled in it are text. */
gqac_status generating_tokenize(generating *g, const char *prompt, int64_t **ids, size_t *n);
/* Sets the stop texts of the request from --stop. */
gqac_status generating_stops(generating *g);
/* Prints and logs a new token: on_token of the request. false: stop generating. */
bool generating_on_token(void *arg, const gqac_generate_event *event);
/* Prints the text that was held back, and the newline; said NULL: the answer failed. */
void generating_end_line(generating *g, const gqac_generation *said);
/* {"ids", "text", "finish_reason", "metrics"} and, with --top-logprobs, "logprobs"; NULL: out of
 * memory. */
json_t *generating_json(const generating *g, const gqac_generation *said);
/* Prints the metrics on stderr, if --metrics is given. */
void generating_metrics(const generating *g, const gqac_generation *said);

#endif
