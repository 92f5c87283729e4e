/* gqac chat MODEL: a conversation, one line of stdin a turn. Every turn renders the whole
 * conversation through the model's template and continues one session, so that only new tokens are
 * computed. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/generating.h"
#include "cli/interrupt.h"
#include "cli/lines.h"
#include "cli/messages.h"

static const cli_flag flags[] = {
    {"system", "TEXT", "the system message: instructions for the whole conversation"},
    {"system-file", "FILE",
     "reads the system message from a file and drops one newline at its end"},
    GENERATING_FLAGS,
    CALLING_FLAGS,
    {NULL, NULL, NULL},
};

/* ---- the conversation ---------------------------------------------------- */

typedef struct conversation {
    generating *g;
    calling tools;
    json_t *messages; /* [system,] user, assistant, [results of its calls, assistant,] user, ... */
    size_t first;     /* index of the oldest turn */
    int64_t most;     /* maximum of tokens, prompt and answer; INT64_MAX: not known */
    bool shortened;   /* the oldest turns were left out, and a message said so */
    char *read;       /* of --system-file; malloc'd */
    int code;         /* exit code of the last turn that failed; 0: none did */
} conversation;

static gqac_status say(conversation *t, const char *role, const char *text, size_t length) {
    return messages_add(t->g->c, t->messages, role, text, length);
}

static bool is_role(const json_t *message, const char *role) {
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && !strcmp(own, role);
}

/* The oldest call that has no result yet; NULL: there is none. */
static const json_t *open_call(const conversation *t) {
    size_t n = json_array_size(t->messages), results = 0;
    while (n > t->first && is_role(json_array_get(t->messages, n - 1), "tool")) {
        results++;
        n--;
    }
    const json_t *last = n ? json_array_get(t->messages, n - 1) : NULL;
    return json_array_get(json_object_get(last, "tool_calls"), results);
}

/* Leaves out the oldest turn, up to the next message of the user; false when it is the only one. */
static bool forget_oldest(conversation *t) {
    size_t next = t->first + 1;
    while (next < json_array_size(t->messages) &&
           !is_role(json_array_get(t->messages, next), "user"))
        next++;
    if (next >= json_array_size(t->messages))
        return false;
    for (; next > t->first; next--)
        json_array_remove(t->messages, t->first);
    return true;
}

/* Tokens of the conversation, ready for an answer. When they would not fit into the context, turns
 * are left out until half of it is free: not one turn at a time, because all tokens that remain are
 * then computed again. */
static gqac_status tokenize_what_fits(conversation *t, int64_t **ids, size_t *n) {
    const int64_t wanted = t->g->request.max_new, quarter = t->most / 4;
    const int64_t answer = wanted < quarter ? wanted : quarter;
    bool shortened = false;
    GQAC_TRY(messages_tokenize(t->g->c, t->g->text, t->messages, t->tools.tools, ids, n));
    if ((int64_t)*n <= t->most - answer)
        return GQAC_OK;
    while ((int64_t)*n > t->most / 2 && forget_oldest(t)) {
        shortened = true;
        gqac_release(*ids);
        *ids = NULL;
        GQAC_TRY(messages_tokenize(t->g->c, t->g->text, t->messages, t->tools.tools, ids, n));
    }
    shortened &= (int64_t)*n <= t->most;
    if (shortened && !t->shortened && !cli_quiet(t->g->c))
        fprintf(stderr, "gqac: the context of %lld tokens is full: the oldest turns are dropped\n",
                (long long)t->most);
    t->shortened |= shortened;
    return GQAC_OK;
}

/* A turn that failed because of its message is left out of the conversation, which continues. */
static gqac_status skip_turn(conversation *t, gqac_status status) {
    cli *c = t->g->c;
    if (status != GQAC_INVALID_INPUT && status != GQAC_OUT_OF_RANGE && status != GQAC_CAPACITY &&
        status != GQAC_LIMIT)
        return status;
    if (status == GQAC_CAPACITY)
        cli_hint(c, "a shorter message");
    t->code = cli_finish(c, status);
    if (!t->g->json)
        return GQAC_OK;
    return cli_print_json_line(c, json_pack("{s:s}", "error", cli_shown(c->diag.what).s));
}

/* Adds the result of a call. */
static gqac_status say_result(conversation *t, const json_t *call, const char *line,
                              size_t length) {
    GQAC_TRY(say(t, "tool", line, length));
    json_t *message = json_array_get(t->messages, json_array_size(t->messages) - 1);
    json_object_set(message, "tool_call_id", json_object_get(call, "id"));
    json_object_set(message, "name", json_object_get(json_object_get(call, "function"), "name"));
    return GQAC_OK;
}

/* Adds a message, or the result of a call. The model answers once all calls have their results;
 * before that *said is NULL. */
static gqac_status answer(conversation *t, const char *line, size_t length, int64_t **ids,
                          gqac_generation **said) {
    generating *g = t->g;
    const json_t *call = open_call(t);
    size_t n = 0;
    GQAC_TRY(call ? say_result(t, call, line, length) : say(t, "user", line, length));
    if (open_call(t))
        return GQAC_OK;
    if (g->calling)
        g->request.constraint = call || !t->tools.first ? t->tools.later : t->tools.first;
    GQAC_TRY(tokenize_what_fits(t, ids, &n));
    return generating_answer(g, *ids, n, said);
}

static gqac_status keep_answer(conversation *t, const gqac_generation *said) {
    generating *g = t->g;
    if (g->json)
        GQAC_TRY(cli_print_json_line(g->c, generating_json(g, said)));
    generating_metrics(g, said);
    if (!g->calling)
        return say(t, "assistant", said->text, said->length);
    return json_array_append_new(t->messages, calling_message(g->calling)) == 0
               ? GQAC_OK
               : cli_fail(g->c, GQAC_NO_MEMORY, "out of memory");
}

/* Says on a terminal which call the next line is the result of. */
static void ask_result(const conversation *t) {
    const json_t *call = open_call(t);
    if (call && isatty(STDIN_FILENO) && !cli_quiet(t->g->c))
        fprintf(
            stderr, "gqac: the next line is the result of %s\n",
            cli_shown(json_string_value(json_object_get(json_object_get(call, "function"), "name")))
                .s);
}

static gqac_status take_turn(conversation *t, const char *line, size_t length) {
    generating *g = t->g;
    int64_t *ids = NULL;
    gqac_generation *said = NULL;
    const bool shortened = t->shortened;
    json_t *before = json_copy(t->messages);
    if (!before)
        return cli_fail(g->c, GQAC_NO_MEMORY, "out of memory");
    gqac_status status = answer(t, line, length, &ids, &said);
    gqac_release(ids);
    json_decref(status == GQAC_OK ? before : t->messages);
    if (status != GQAC_OK) {
        t->messages = before;
        t->shortened = shortened;
    }
    if (status == GQAC_ABORTED) { /* during the prompt */
        cli_clear_progress(g->c);
        fprintf(stderr, "gqac: interrupted; this turn is dropped\n");
        return GQAC_OK;
    }
    if (status != GQAC_OK)
        return skip_turn(t, status);
    if (said)
        status = keep_answer(t, said);
    gqac_generation_free(said);
    ask_result(t);
    return status;
}

static bool is_word(const char *line, size_t length, const char *word) {
    return length == strlen(word) && !memcmp(line, word, length);
}

/* Returns true when the line was a command, which is then done; every other line is a message. */
static bool obey(const conversation *t, const char *line, size_t length) {
    if (is_word(line, length, "/help")) {
        fprintf(stderr,
                "  /help   lists commands\n"
                "  /reset  begins a new conversation\n"
                "  /exit   ends the program, like the end of the input\n"
                "  Ctrl-C  ends an answer; at the prompt, the program\n"
                "Every other line is a message. After an answer that calls functions, the next "
                "lines\nare their results, a line for each call.\n");
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
        GQAC_TRY(lines_next(l, &line, &length));
        if (!line || is_word(line, length, "/exit"))
            return GQAC_OK;
        if (length && !obey(t, line, length))
            GQAC_TRY(take_turn(t, line, length));
    }
}

static gqac_status require_parts(generating *g) {
    char path[4096];
    const gqac_text_settings *x = gqac_text_get_settings(g->text);
    const gqac_diag *refusal = x->tokenizer_refusal ? x->tokenizer_refusal : x->template_refusal;
    if (x->has_template && x->has_tokenizer)
        return GQAC_OK;
    if (refusal) {
        g->c->diag = *refusal;
        return refusal->status;
    }
    GQAC_TRY(gqac_text_model_path(g->c->operands[0], path, sizeof path, &g->c->diag));
    gqac_status status = cli_usage(g->c, "'%s' has no %s", g->c->operands[0],
                                   x->has_tokenizer ? "chat template" : "tokenizer");
    cli_hint(g->c,
             x->has_tokenizer
                 ? "put a chat_template.jinja into the model folder (and compile the artefact "
                   "again), or use `generate`"
                 : "a folder with tokenizer.json and genai_config.json, or an "
                   "artefact compiled from one");
    return status;
}

/* Before the model is loaded: opens tokenizer and template, and begins the conversation. */
static gqac_status prepare(conversation *t) {
    generating *g = t->g;
    const char *system = cli_value(g->c, "system"), *file = NULL;
    GQAC_TRY(cli_text_file(g->c, "system", &file));
    t->messages = json_array();
    if (!t->messages)
        return cli_fail(g->c, GQAC_NO_MEMORY, "out of memory");
    GQAC_TRY(cli_open_text(g->c, GQAC_TEXT_ALL, &g->text));
    GQAC_TRY(require_parts(g));
    GQAC_TRY(calling_open(&t->tools, g->c, g->text));
    g->calling = t->tools.tools ? &t->tools : NULL;
    if (file)
        GQAC_TRY(messages_read(g->c, file, &t->read));
    if (file || system)
        GQAC_TRY(say(t, "system", file ? t->read : system, strlen(file ? t->read : system)));
    t->first = json_array_size(t->messages);
    return GQAC_OK;
}

static gqac_status chat(conversation *t, lines **l) {
    GQAC_TRY(prepare(t));
    GQAC_TRY(generating_open(t->g, GQAC_TEXT_ALL));
    GQAC_TRY(lines_open(t->g->c, l));
    generating_report(t->g);
    t->most = generating_most_tokens(t->g);
    GQAC_TRY(converse(t, *l));
    return caching_save(t->g->c, t->g->store, t->g->session);
}

static int run(cli *c) {
    generating g = {.c = c};
    conversation t = {.g = &g};
    lines *l = NULL;
    interrupt_listen();
    const gqac_status status = chat(&t, &l);
    json_decref(t.messages);
    free(t.read);
    lines_free(l);
    calling_close(&t.tools);
    generating_free(&g);
    return status == GQAC_OK ? t.code : cli_finish(c, status);
}

extern const gqac_cli_verb gqac_cli_verb_chat;
const gqac_cli_verb gqac_cli_verb_chat = {
    .name = "chat",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary = "holds a conversation: each line of stdin is a message, which the model answers",
    .examples = "gqac chat tiny.gqac --system 'Be brief.' --temperature 0.7 -n 200\n"
                "gqac chat tiny.gqac --format jsonl <questions.txt\n"
                "gqac chat model/ --tools tools.json --tool-choice required\n",
    .flags = flags,
    .formats = "table json jsonl",
    .run = run};
