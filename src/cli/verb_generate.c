/* gqac generate MODEL: text after a prompt, streamed as it becomes certain. */
#include <stdlib.h>
#include <string.h>

#include "cli/generating.h"
#include "cli/interrupt.h"
#include "cli/sides.h"
#include "cli/translating.h"

static const cli_flag flags[] = {
    {"prompt", "TEXT", "what to continue, - for stdin; the tokenizer adds its special tokens"},
    {"prompt-file", "FILE", "the prompt from a file, without the newline at its end"},
    {"ids", "FILE", "token ids instead of a text, taken as they are"},
    {"features", "FILE", "a .npy that the encoder of a folder with an encoder takes"},
    GENERATING_FLAGS,
    {NULL, NULL, NULL},
};

static gqac_status tokenize(generating *g, const char *prompt, int64_t **ids, size_t *n) {
    cli *c = g->c;
    gqac_status status =
        gqac_text_tokenize(g->text, prompt, strlen(prompt), true, ids, n, &c->diag);
    if (status != GQAC_OK || *n)
        return status;
    status = cli_fail(c, GQAC_INVALID_INPUT, "the prompt gives no tokens");
    snprintf(c->diag.hint, sizeof c->diag.hint,
             "give some text, or --ids FILE with the id that texts begin with");
    return status;
}

/* --prompt, --prompt - or --prompt-file, of which the last newline is the editor's. */
static gqac_status take_prompt(cli *c) {
    gqac_status status = cli_take_text(c, "prompt");
    size_t n = c->read ? strlen(c->read) : 0;
    if (n && c->read[n - 1] == '\n')
        c->read[n -= n > 1 && c->read[n - 2] == '\r' ? 2 : 1] = '\0';
    return status;
}

static gqac_status generate(generating *g) {
    gqac_status status = take_prompt(g->c);
    if (status != GQAC_OK)
        return status;
    const char *prompt = cli_value(g->c, "prompt"), *file = cli_value(g->c, "ids");
    int64_t *ids = NULL, *given = NULL, n_given = 0;
    size_t n = 0;
    gqac_generation *said = NULL;
    if (sides_are(g->c))
        return translating_run(g);
    if (cli_value(g->c, "features"))
        return cli_usage(g->c, "--features is for a folder with an encoder and a decoder");
    if (!prompt == !file)
        return cli_usage(g->c, prompt ? "--prompt and --ids exclude each other"
                                      : "--prompt TEXT or --ids FILE is missing");
    if (file)
        status = cli_read_ids(g->c, file, &given, &n_given);
    if (status == GQAC_OK)
        status = generating_open(g, GQAC_TEXT_CONFIG | GQAC_TEXT_TOKENIZER);
    if (status == GQAC_OK && prompt)
        status = tokenize(g, prompt, &ids, &n);
    if (status == GQAC_OK)
        cli_tell_refusal(g->c, "ids only", gqac_text_get_settings(g->text)->tokenizer_refusal);
    if (status == GQAC_OK)
        status = generating_answer(g, file ? given : ids, file ? (size_t)n_given : n, &said);
    if (status == GQAC_OK && g->json)
        status = cli_print_json_line(g->c, generating_json(said));
    if (status == GQAC_OK)
        generating_metrics(g, said);
    gqac_generation_free(said);
    gqac_release(ids);
    free(given);
    return status;
}

static int run(cli *c) {
    generating g = {.c = c};
    interrupt_listen();
    gqac_status status = generate(&g);
    generating_free(&g);
    return cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_generate;
const gqac_cli_verb gqac_cli_verb_generate = {
    .name = "generate",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary = "continues a text or token ids",
    .examples = "gqac generate tiny.gqac --prompt 'It was a fine day' -n 50\n"
                "gqac generate tiny.gqac --prompt-file story.txt --temperature 0.8 --seed 7\n"
                "echo 'It was a fine day' | gqac generate tiny.gqac --prompt - --format jsonl\n",
    .flags = flags,
    .formats = "table json jsonl",
    .run = run};
