/* See messages.h. */
#include "cli/messages.h"

#include <stdlib.h>
#include <string.h>

gqac_status messages_add(cli *c, json_t *messages, const char *role, const char *text,
                         size_t length) {
    const char *nul = memchr(text, '\0', length);
    if (nul)
        return cli_fail(c, GQAC_INVALID_INPUT, "byte %zu of the message is NUL",
                        (size_t)(nul - text));
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", json_stringn(text, length));
    if (!message)
        return cli_fail(c, GQAC_INVALID_INPUT, "the message is not UTF-8: '%.*s'",
                        length < 60 ? (int)length : 60, text);
    if (json_array_append_new(messages, message) != 0)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    return GQAC_OK;
}

gqac_status messages_tokenize(cli *c, const gqac_text *text, json_t *messages, json_t *tools,
                              int64_t **ids, size_t *n) {
    char *rendered = NULL;
    size_t length = 0;
    json_t *root = json_pack("{s:O, s:b, s:O*}", "messages", messages, "add_generation_prompt", 1,
                             "tools", tools);
    char *variables = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!variables)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    gqac_status status = gqac_text_render(text, variables, &rendered, &length, &c->diag);
    free(variables);
    GQAC_TRY(status);
    status = gqac_text_tokenize(text, rendered, length, false, ids, n, &c->diag);
    gqac_release(rendered);
    GQAC_TRY(status);
    return *n ? GQAC_OK
              : cli_fail(c, GQAC_INVALID_INPUT,
                         "the chat template renders this message to no tokens");
}

void messages_drop_newline(char *text) {
    size_t n = strlen(text);
    if (n && text[n - 1] == '\n')
        text[n -= n > 1 && text[n - 2] == '\r' ? 2 : 1] = '\0';
}

gqac_status messages_read(cli *c, const char *path, char **text) {
    GQAC_TRY(cli_read_text(c, path, text));
    messages_drop_newline(*text);
    return GQAC_OK;
}
