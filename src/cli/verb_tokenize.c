/* gqac tokenize MODEL: ids of texts, or the text of ids. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/interrupt.h"

static const cli_flag flags[] = {
    {"text", "TEXT", "prints the ids of this text on a line; may be repeated"},
    {"file", "FILE", "the same for the text in a file, byte for byte (-: stdin); may be repeated"},
    {"decode", NULL,
     "prints the text of --ids without special tokens; a newline is added on a terminal only"},
    {"ids", "FILE", "whitespace-separated token ids for --decode (-: stdin)"},
    {"no-parse-special", NULL, "special tokens spelled in the text are treated as ordinary text"},
    {"template", NULL, "renders the text with the chat template, as a user message"},
    {NULL, NULL, NULL},
};

/* ---- texts to ids -------------------------------------------------------- */

/* The text in the chat template, with the beginning of an answer. The template writes special
 * tokens itself. */
static gqac_status render(cli *c, const gqac_text *text, const char *bytes, size_t length,
                          char **out, size_t *n) {
    json_t *content = json_stringn(bytes, length);
    if (!content)
        return cli_fail(c, GQAC_INVALID_INPUT, "the text is not UTF-8");
    json_t *root = json_pack("{s:[{s:s, s:o}], s:b}", "messages", "role", "user", "content",
                             content, "add_generation_prompt", 1);
    char *variables = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!variables)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    gqac_status status = gqac_text_render(text, variables, out, n, &c->diag);
    free(variables);
    return status;
}

static gqac_status print_ids(cli *c, const int64_t *ids, size_t n) {
    if (!cli_json(c)) {
        for (size_t i = 0; i < n; i++)
            printf("%s%lld", i ? " " : "", (long long)ids[i]);
        putchar('\n');
        return GQAC_OK;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return cli_print_json_line(c, json_pack("{s:o}", "ids", list));
}

static gqac_status encode_plain(cli *c, const gqac_text *text, const char *bytes, size_t length) {
    int64_t *ids = NULL;
    size_t n = 0;
    const gqac_tokenize_options options = {.size = sizeof options,
                                           .special = !cli_switch(c, "template"),
                                           .plain = cli_switch(c, "no-parse-special")};
    GQAC_TRY(gqac_text_tokenize_with(text, bytes, length, &options, &ids, &n, &c->diag));
    const gqac_status status = print_ids(c, ids, n);
    gqac_release(ids);
    return status;
}

static gqac_status encode(cli *c, const gqac_text *text, const char *bytes, size_t length) {
    char *rendered = NULL;
    if (!cli_switch(c, "template"))
        return encode_plain(c, text, bytes, length);
    GQAC_TRY(render(c, text, bytes, length, &rendered, &length));
    const gqac_status status = encode_plain(c, text, rendered, length);
    gqac_release(rendered);
    return status;
}

static gqac_status encode_file(cli *c, const gqac_text *text, const char *path) {
    char *bytes = NULL;
    size_t length = 0;
    GQAC_TRY(cli_read_file(c, path, &bytes, &length));
    const gqac_status status = encode(c, text, bytes, length);
    free(bytes);
    return status;
}

static gqac_status encode_all(cli *c, const gqac_text *text) {
    const char *value;
    for (int i = 0; (value = cli_repeat(c, "text", i)); i++)
        GQAC_TRY(encode(c, text, value, strlen(value)));
    for (int i = 0; (value = cli_repeat(c, "file", i)); i++)
        GQAC_TRY(encode_file(c, text, value));
    return GQAC_OK;
}

/* ---- ids to text --------------------------------------------------------- */

static gqac_status print_text(cli *c, const char *text, size_t length) {
    if (cli_json(c))
        return cli_print_json_line(c, json_pack("{s:o}", "text", json_stringn(text, length)));
    (void)fwrite(text, 1, length, stdout);
    if (isatty(STDOUT_FILENO))
        putchar('\n');
    return GQAC_OK;
}

static gqac_status decode(cli *c, const gqac_text *text) {
    int64_t *ids = NULL, n = 0;
    char *out = NULL;
    size_t length = 0;
    GQAC_TRY(cli_read_ids(c, cli_value(c, "ids"), &ids, &n));
    gqac_status status = gqac_text_detokenize(text, ids, (size_t)n, true, &out, &length, &c->diag);
    free(ids);
    GQAC_TRY(status);
    status = print_text(c, out, length);
    gqac_release(out);
    return status;
}

static gqac_status check(cli *c) {
    const bool decoding = cli_switch(c, "decode"), ids = cli_value(c, "ids") != NULL;
    const bool texts = cli_repeat(c, "text", 0) || cli_repeat(c, "file", 0);
    if (decoding && (texts || cli_switch(c, "template")))
        return cli_usage(c, "--decode accepts only --ids FILE");
    if (cli_switch(c, "no-parse-special") && (decoding || cli_switch(c, "template")))
        return cli_usage(c, "--no-parse-special is for texts without a template");
    if (decoding && !ids)
        return cli_usage(c, "--decode needs --ids FILE");
    if (ids && !decoding)
        return cli_usage(c, "--ids FILE needs --decode");
    if (!decoding && !texts)
        return cli_usage(c, "--text TEXT, --file FILE or --decode is missing");
    return GQAC_OK;
}

static gqac_status tokenize(cli *c) {
    gqac_text *text = NULL;
    const unsigned template = cli_switch(c, "template") ? GQAC_TEXT_TEMPLATE : 0;
    GQAC_TRY(check(c));
    GQAC_TRY(gqac_text_open(c->operands[0], GQAC_TEXT_TOKENIZER | template, &text, &c->diag));
    const gqac_status status = cli_switch(c, "decode") ? decode(c, text) : encode_all(c, text);
    gqac_text_free(text);
    return status;
}

static int run(cli *c) {
    interrupt_listen();
    return cli_finish(c, tokenize(c));
}

extern const gqac_cli_verb gqac_cli_verb_tokenize;
const gqac_cli_verb gqac_cli_verb_tokenize = {
    .name = "tokenize",
    .operands = "MODEL",
    .least = 1,
    .most = 1,
    .summary = "prints the token ids of texts, or the text of token ids",
    .examples = "gqac tokenize tiny.gqac --text 'It was a fine day'\n"
                "gqac tokenize tiny.gqac --text 'How do you do?' --template\n"
                "echo 1 85 260 | gqac tokenize tiny.gqac --decode --ids -\n",
    .flags = flags,
    .formats = "table json jsonl",
    .no_model = true,
    .run = run};
