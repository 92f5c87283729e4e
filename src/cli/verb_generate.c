/* gqac generate MODEL: continues a prompt; text is printed as soon as later tokens cannot change
 * it.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/generating.h"
#include "cli/interrupt.h"
#include "cli/messages.h"
#include "cli/translating.h"

static const cli_flag flags[] = {
    {"prompt", "TEXT", "the text to continue (-: stdin); the tokenizer adds its special tokens"},
    {"prompt-file", "FILE", "reads the text from a file and drops one newline at its end"},
    {"ids", "FILE",
     "whitespace-separated token ids instead of a text, used as they are (-: stdin)"},
    {"no-parse-special", NULL, "special tokens spelled in the prompt are treated as ordinary text"},
    {"features", "FILE", "input of the encoder (.npy), for a folder with an encoder and a decoder"},
    GENERATING_FLAGS,
    {NULL, NULL, NULL},
};

typedef struct prompt {
    int64_t *ids; /* of --prompt */
    size_t n;
    int64_t *given, n_given; /* --ids */
} prompt;

static gqac_status read_prompt(generating *g, prompt *p) {
    const char *text = cli_value(g->c, "prompt");
    if (text)
        GQAC_TRY(generating_tokenize(g, text, &p->ids, &p->n));
    cli_warn_refusal(g->c, "ids only", gqac_text_get_settings(g->text)->tokenizer_refusal);
    return GQAC_OK;
}

/* --prompt, --prompt - or --prompt-file, of which the last newline is the editor's. */
static gqac_status take_prompt(cli *c) {
    GQAC_TRY(cli_take_text(c, "prompt"));
    if (c->read)
        messages_drop_newline(c->read);
    return GQAC_OK;
}

static gqac_status generate(generating *g, prompt *p, gqac_generation **said) {
    GQAC_TRY(take_prompt(g->c));
    const char *text = cli_value(g->c, "prompt"), *file = cli_value(g->c, "ids");
    if (gqac_seq2seq_is_folder(g->c->operands[0]))
        return translating_run(g);
    if (cli_value(g->c, "features"))
        return cli_usage(g->c, "--features is for a folder with an encoder and a decoder");
    if (!text == !file)
        return cli_usage(g->c, text ? "--prompt and --ids cannot be combined"
                                    : "--prompt TEXT or --ids FILE is missing");
    if (file)
        GQAC_TRY(cli_read_ids(g->c, file, &p->given, &p->n_given));
    GQAC_TRY(generating_open(g, GQAC_TEXT_CONFIG | GQAC_TEXT_TOKENIZER));
    GQAC_TRY(cli_check_vocabulary(g->c, g->program, p->given, p->n_given));
    GQAC_TRY(read_prompt(g, p));
    generating_report(g);
    GQAC_TRY(
        generating_answer(g, file ? p->given : p->ids, file ? (size_t)p->n_given : p->n, said));
    if (g->json)
        GQAC_TRY(cli_print_json_line(g->c, generating_json(g, *said)));
    generating_metrics(g, *said);
    return caching_save(g->c, g->store, g->session);
}

static int run(cli *c) {
    generating g = {.c = c};
    prompt p = {0};
    gqac_generation *said = NULL;
    interrupt_listen();
    const gqac_status status = generate(&g, &p, &said);
    gqac_generation_free(said);
    gqac_release(p.ids);
    free(p.given);
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
