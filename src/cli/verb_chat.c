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

typedef struct conversation {
    generating *g;
    json_t *messages; /* [system,] user, assistant, user, ... */
    size_t first;     /* index of the oldest turn */
    int64_t most;     /* tokens of prompt and answer; INT64_MAX: no bound is known */
    bool shortened;   /* oldest turns were left out, which was told */
    int code;         /* exit code of the last turn that failed; 0: none did */
} conversation;

static gqac_status say(conversation *t, const char *role, const char *text, size_t length) {
    cli *c = t->g->c;
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", json_stringn(text, length));
    if (!message)
        return cli_fail(c, GQAC_INVALID_INPUT, "the message is not UTF-8: '%.*s'",
                        length < 60 ? (int)length : 60, text);
    if (json_array_append_new(t->messages, message) != 0)
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

/* Leaves out the oldest turn; false when only the message in hand is left. */
static bool forget_oldest(conversation *t) {
    if (json_array_size(t->messages) - t->first < 3)
        return false;
    json_array_remove(t->messages, t->first);
    json_array_remove(t->messages, t->first);
    return true;
}

/* Tokens of the conversation with an answer to come. When they would not fit the context, turns are
 * left out until half of it is free: not one in each turn, because all that is left is computed
 * anew. */
static gqac_status tokenize_what_fits(conversation *t, int64_t **ids, size_t *n) {
    const int64_t wanted = t->g->request.max_new, quarter = t->most / 4;
    const int64_t answer = wanted < quarter ? wanted : quarter;
    bool shortened = false;
    gqac_status status = tokenize(t->g, t->messages, ids, n);
    if (status != GQAC_OK || (int64_t)*n <= t->most - answer)
        return status;
    while (status == GQAC_OK && (int64_t)*n > t->most / 2 && forget_oldest(t)) {
        shortened = true;
        gqac_release(*ids);
        *ids = NULL;
        status = tokenize(t->g, t->messages, ids, n);
    }
    shortened &= status == GQAC_OK && (int64_t)*n <= t->most;
    if (shortened && !t->shortened && !cli_quiet(t->g->c))
        fprintf(stderr, "gqac: the context of %lld tokens is full: the oldest turns are left out\n",
                (long long)t->most);
    t->shortened |= shortened;
    return status;
}

/* A turn that failed because of its message: it never was, and the next one may go better. */
static gqac_status skip_turn(conversation *t, gqac_status status) {
    cli *c = t->g->c;
    if (status != GQAC_INVALID_INPUT && status != GQAC_OUT_OF_RANGE && status != GQAC_CAPACITY &&
        status != GQAC_LIMIT)
        return status;
    if (status == GQAC_CAPACITY)
        snprintf(c->diag.hint, sizeof c->diag.hint, "a shorter message");
    t->code = cli_finish(c, status);
    if (!t->g->json)
        return GQAC_OK;
    return cli_print_json_line(c, json_pack("{s:s}", "error", cli_shown(c->diag.what).s));
}

static gqac_status take_turn(conversation *t, const char *line, size_t length) {
    generating *g = t->g;
    int64_t *ids = NULL;
    size_t n = 0;
    gqac_generation *said = NULL;
    const bool shortened = t->shortened;
    json_t *before = json_copy(t->messages);
    if (!before)
        return cli_fail(g->c, GQAC_NO_MEMORY, "out of memory");
    gqac_status status = say(t, "user", line, length);
    if (status == GQAC_OK)
        status = tokenize_what_fits(t, &ids, &n);
    if (status == GQAC_OK)
        status = generating_answer(g, ids, n, &said);
    gqac_release(ids);
    json_decref(status == GQAC_OK ? before : t->messages);
    if (status != GQAC_OK) {
        t->messages = before;
        t->shortened = shortened;
    }
    if (status == GQAC_ABORTED) { /* in the prompt: the turn never was */
        cli_clear_progress(g->c);
        fprintf(stderr, "gqac: interrupted; the conversation is as before this turn\n");
        return GQAC_OK;
    }
    if (status != GQAC_OK)
        return skip_turn(t, status);
    if (g->json)
        status = cli_print_json_line(g->c, generating_json(g, said));
    if (status == GQAC_OK)
        generating_metrics(g, said);
    if (status == GQAC_OK)
        status = say(t, "assistant", said->text, said->length);
    gqac_generation_free(said);
    return status;
}

static bool is_word(const char *line, size_t length, const char *word) {
    return length == strlen(word) && !memcmp(line, word, length);
}

/* Returns true when the line was a command, which is then done; every other line is a message. */
static bool obey(const conversation *t, const char *line, size_t length) {
    if (is_word(line, length, "/help")) {
        fprintf(stderr, "  /reset  begins a new conversation\n"
                        "  /exit   ends the program, as the end of the input does\n"
                        "  Ctrl-C  ends an answer; at the prompt, the program\n"
                        "Every other line is a message.\n");
        return true;
    }
    if (!is_word(line, length, "/reset"))
        return false;
    while (json_array_size(t->messages) > t->first)
        json_array_remove(t->messages, t->first);
    if (!cli_quiet(t->g->c))
        fprintf(stderr, "gqac: a new conversation\n");
    return true;
}

static gqac_status converse(conversation *t, lines *l) {
    const char *line = NULL;
    if (isatty(STDIN_FILENO) && !cli_quiet(t->g->c))
        fprintf(stderr, "/help lists commands, /exit ends\n");
    for (;;) {
        size_t length = 0;
        interrupt_listen();
        gqac_status status = lines_next(l, &line, &length);
        if (status != GQAC_OK || !line || is_word(line, length, "/exit"))
            return status;
        if (length && !obey(t, line, length))
            status = take_turn(t, line, length);
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

/* Before the model is loaded: what of the model folder is needed, and the first message. */
static gqac_status prepare(conversation *t) {
    generating *g = t->g;
    const char *told = cli_value(g->c, "system");
    t->messages = json_array();
    if (!t->messages)
        return cli_fail(g->c, GQAC_NO_MEMORY, "out of memory");
    gqac_status status = gqac_text_open(g->c->operands[0], GQAC_TEXT_ALL, &g->text, &g->c->diag);
    if (status == GQAC_OK)
        status = require_parts(g);
    if (status == GQAC_OK && told)
        status = say(t, "system", told, strlen(told));
    t->first = json_array_size(t->messages);
    return status;
}

static gqac_status chat(conversation *t) {
    generating *g = t->g;
    lines *l = NULL;
    gqac_status status = prepare(t);
    if (status == GQAC_OK)
        status = generating_open(g, GQAC_TEXT_ALL);
    if (status == GQAC_OK)
        status = lines_open(g->c, &l);
    if (status == GQAC_OK) {
        t->most = generating_most_tokens(g);
        status = converse(t, l);
    }
    json_decref(t->messages);
    lines_free(l);
    return status;
}

static int run(cli *c) {
    generating g = {.c = c};
    conversation t = {.g = &g};
    interrupt_listen();
    gqac_status status = chat(&t);
    generating_free(&g);
    return status == GQAC_OK ? t.code : cli_finish(c, status);
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
