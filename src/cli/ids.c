/* Token ids of files: reading them, and checking them against the model. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static gqac_status refuse_word(cli *c, const char *path, const char *text, const char *word) {
    char shown[24];
    const int n = (int)strcspn(word, " \t\n\v\f\r");
    snprintf(shown, sizeof shown, "%.*s", n, word);
    cli_fail(c, GQAC_INVALID_INPUT, "'%s': '%s' at byte %lld is not a token id", path,
             cli_shown(shown).s, (long long)(word - text));
    return cli_rule(c, "ids are whole numbers, separated by spaces or line ends");
}

static gqac_status parse_ids(cli *c, const char *path, const char *text, size_t length,
                             int64_t *list, int64_t *n) {
    for (const char *at = text; at < text + length;) {
        if (isspace((unsigned char)*at)) {
            at++;
            continue;
        }
        char *end = NULL;
        errno = 0;
        const long long id = strtoll(at, &end, 10);
        if (end == at || errno || (*end && !isspace((unsigned char)*end)) || *at == '+')
            return refuse_word(c, path, text, at);
        list[(*n)++] = id;
        at = end;
    }
    return *n ? GQAC_OK : cli_fail(c, GQAC_INVALID_INPUT, "'%s' contains no token ids", path);
}

gqac_status cli_read_ids(cli *c, const char *path, int64_t **ids, int64_t *n) {
    char *text = NULL;
    size_t length = 0;
    GQAC_TRY(cli_read_file(c, path, &text, &length));
    int64_t *list = calloc(length / 2 + 2, sizeof *list);
    *n = 0;
    const gqac_status status = list ? parse_ids(c, path, text, length, list, n)
                                    : cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    free(text);
    if (status == GQAC_OK)
        *ids = list;
    else
        free(list);
    return status;
}

gqac_status cli_check_ids(cli *c, const char *name, const gqac_tensor *ids) {
    for (int64_t i = 0; i < gqac_tensor_count(ids); i++) {
        const double id = gqac_tensor_get(ids, i);
        if (id >= 0)
            continue;
        cli_fail(c, GQAC_OUT_OF_RANGE, "token id %.0f at index %lld of '%s'", id, (long long)i,
                 name);
        return cli_rule(c, "0 <= id");
    }
    return GQAC_OK;
}

gqac_status cli_check_vocabulary(cli *c, const gqac_program *program, const int64_t *ids,
                                 int64_t n) {
    const char *file = cli_value(c, "ids");
    const int64_t vocabulary =
        gqac_program_embedding_size(program) ? 0 : gqac_program_vocabulary(program);
    for (int64_t i = 0; file && i < n; i++) {
        if (ids[i] >= 0 && (!vocabulary || ids[i] < vocabulary))
            continue;
        cli_fail(c, GQAC_OUT_OF_RANGE, "token id %lld at index %lld of '%s'", (long long)ids[i],
                 (long long)i, file);
        cli_where(c, "%s", file);
        if (vocabulary)
            cli_rule(c, "0 <= id < %lld", (long long)vocabulary);
        else
            cli_rule(c, "0 <= id");
        return cli_hint(c, "ids made with the tokenizer of this model");
    }
    return GQAC_OK;
}

gqac_status cli_check_length(cli *c, const gqac_program *program, int64_t n) {
    const int64_t most = gqac_program_max_tokens(program);
    if (n <= most)
        return GQAC_OK;
    if (most == c->limits.context) {
        cli_fail(c, GQAC_OUT_OF_RANGE, "%lld tokens are too many", (long long)n);
        cli_rule(c, "the limit context is %lld", (long long)most);
        return cli_hint(c, "if you trust the model, raise it: --limit context=N");
    }
    cli_fail(c, GQAC_OUT_OF_RANGE,
             "position %lld is out of range: the tables of positions have %lld rows",
             (long long)n - 1, (long long)most);
    return cli_hint(c, "at most %lld tokens", (long long)most);
}
