/* gqac chat MODEL: a conversation, one line of stdin a turn. Every turn renders the whole
 * conversation through the model's template and goes on in one session, so that only what is new is
 * computed. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/generating.h"
#include "cli/interrupt.h"
#include "cli/lines.h"

static const cli_flag flags[] = {
    {"system", "TEXT", "the first message, which says what the model is to be"},
    GENERATING_FLAGS,
    {NULL, NULL, NULL},
};

/* ---- the conversation ---------------------------------------------------- */

static gqac_status say(cli *c, json_t *messages, const char *role, const char *text,
                       size_t length) {
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", json_stringn(text, length));
    if (!message)
        return cli_fail(c, GQAC_INVALID_INPUT, "the message is not UTF-8: '%.*s'",
                        length < 60 ? (int)length : 60, text);
    if (json_array_append_new(messages, message) != 0)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    return GQAC_OK;
}

/* Token ids of the whole conversation. The template writes the special tokens itself. */
static gqac_status tokenize(generating *g, json_t *messages, int64_t **ids, size_t *n) {
    char *text = NULL;
    size_t length = 0;
    json_t *root = json_pack("{s:O, s:b}", "messages", messages, "add_generation_prompt", 1);
    char *variables = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!variables)
        return cli_fail(g->c, GQAC_NO_MEMORY, "out of memory");
    gqac_status status = gqac_text_render(g->text, variables, &text, &length, &g->c->diag);
    free(variables);
    if (status == GQAC_OK)
        status = gqac_text_tokenize(g->text, text, length, false, ids, n, &g->c->diag);
    gqac_release(text);
    if (status == GQAC_OK && !*n)
        return cli_fail(g->c, GQAC_INVALID_INPUT, "the template gives no tokens");
    return status;
}

static gqac_status take_turn(generating *g, json_t *messages, const char *line, size_t length) {
    int64_t *ids = NULL;
    size_t n = 0;
    gqac_generation *said = NULL;
    gqac_status status = say(g->c, messages, "user", line, length);
    if (status == GQAC_OK)
        status = tokenize(g, messages, &ids, &n);
    if (status == GQAC_OK)
        status = generating_answer(g, ids, n, &said);
    gqac_release(ids);
    if (status == GQAC_ABORTED) { /* in the prompt: the turn never was */
        json_array_remove(messages, json_array_size(messages) - 1);
        cli_clear_progress(g->c);
        fprintf(stderr, "gqac: interrupted; the conversation is as before this turn\n");
        return GQAC_OK;
    }
    if (status == GQAC_OK && g->json)
        status = cli_print_json_line(g->c, generating_json(g, said));
    if (status == GQAC_OK)
        generating_metrics(g, said);
    if (status == GQAC_OK)
        status = say(g->c, messages, "assistant", said->text, said->length);
    gqac_generation_free(said);
    return status;
}

static bool is_word(const char *line, size_t length, const char *word) {
    return length == strlen(word) && !memcmp(line, word, length);
}

/* A line that is one of these words alone is no message: false. */
static bool obey(const generating *g, json_t *messages, const char *line, size_t length) {
    const size_t first = cli_value(g->c, "system") ? 1 : 0;
    if (is_word(line, length, "/help")) {
        fprintf(stderr, "  /reset  begins a new conversation\n"
                        "  /exit   ends the program, as the end of the input does\n"
                        "  Ctrl-C  ends an answer; at the prompt, the program\n"
                        "Every other line is a message.\n");
        return true;
    }
    if (!is_word(line, length, "/reset"))
        return false;
    while (json_array_size(messages) > first)
        json_array_remove(messages, first);
    if (!cli_quiet(g->c))
        fprintf(stderr, "gqac: a new conversation\n");
    return true;
}

static gqac_status converse(generating *g, json_t *messages, lines *l) {
    const char *line = NULL;
    if (isatty(STDIN_FILENO) && !cli_quiet(g->c))
        fprintf(stderr, "/help lists commands, /exit ends\n");
    for (;;) {
        size_t length = 0;
        interrupt_listen();
        gqac_status status = lines_next(l, &line, &length);
        if (status != GQAC_OK || !line || is_word(line, length, "/exit"))
            return status;
        if (length && !obey(g, messages, line, length))
            status = take_turn(g, messages, line, length);
        if (status != GQAC_OK)
            return status;
    }
}

static gqac_status require_parts(generating *g) {
    const gqac_text_settings *x = gqac_text_get_settings(g->text);
    const gqac_diag *refusal = x->tokenizer_refusal ? x->tokenizer_refusal : x->template_refusal;
    if (x->has_template && x->has_tokenizer)
        return GQAC_OK;
    if (refusal) {
        g->c->diag = *refusal;
        return refusal->status;
    }
    gqac_status status = cli_usage(g->c, "'%s' has no %s", g->c->operands[0],
                                   x->has_tokenizer ? "chat template" : "tokenizer");
    snprintf(g->c->diag.hint, sizeof g->c->diag.hint,
             x->has_tokenizer ? "put a chat_template.jinja into the model folder, or use `generate`"
                              : "give a folder with tokenizer.json and genai_config.json, or an "
                                "artefact of one");
    return status;
}

static gqac_status chat(generating *g) {
    const char *told = cli_value(g->c, "system");
    lines *l = NULL;
    gqac_status status = generating_open(g, GQAC_TEXT_ALL);
    if (status == GQAC_OK)
        status = require_parts(g);
    json_t *messages = json_array();
    if (status == GQAC_OK && told)
        status = say(g->c, messages, "system", told, strlen(told));
    if (status == GQAC_OK)
        status = lines_open(g->c, &l);
    if (status == GQAC_OK)
        status = converse(g, messages, l);
    json_decref(messages);
    lines_free(l);
    return status;
}

static int run(cli *c) {
    generating g = {.c = c};
    interrupt_listen();
    gqac_status status = chat(&g);
    generating_free(&g);
    return cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_chat;
const gqac_cli_verb gqac_cli_verb_chat = {
    .name = "chat",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary = "answers the lines of stdin, one a turn, with the model's chat template",
    .examples = "gqac chat tiny.gqac\n"
                "gqac chat tiny.gqac --system 'Be brief.' --temperature 0.7 -n 200\n"
                "gqac chat tiny.gqac --format jsonl <questions.txt\n",
    .flags = flags,
    .formats = "table json jsonl",
    .run = run};
