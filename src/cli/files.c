/* Reading whole files, and texts that flags take from them; names of tensor files. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/interrupt.h"

enum { MOST_BYTES = 1 << 30 }; /* /dev/zero has no end */

static gqac_status read_all(cli *c, FILE *f, const char *name, char **data, size_t *n) {
    size_t capacity = 0, got = 1;
    for (*n = 0; got; *n += got) {
        if (*n > MOST_BYTES)
            return cli_fail(c, GQAC_INVALID_INPUT, "'%s' has more than %d bytes", name, MOST_BYTES);
        if (*n + 1 >= capacity) {
            capacity = capacity ? 2 * capacity : 4096;
            char *more = realloc(*data, capacity);
            if (!more)
                return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
            *data = more;
        }
        got = fread(*data + *n, 1, capacity - 1 - *n, f);
    }
    (*data)[*n] = 0;
    if (ferror(f) && interrupt_seen())
        return cli_fail(c, GQAC_ABORTED, "interrupted");
    if (ferror(f))
        return cli_fail(c, GQAC_IO, "cannot read '%s': %s", name, strerror(errno));
    return GQAC_OK;
}

/* As the library says it of a file that it cannot open. */
static gqac_status fail_open(cli *c, const char *path, int error) {
    char folder[PATH_MAX];
    cli_fail(c, GQAC_IO, "cannot open '%s': %s", path, strerror(error));
    if (*path != '/' && getcwd(folder, sizeof folder)) {
        cli_where(c, "%s/%s", folder, path);
        cli_rule(c, "a relative path starts at the working directory");
    }
    if (error == ENOENT || error == ENOTDIR)
        cli_hint(c, "check the spelling of the path");
    return GQAC_IO;
}

gqac_status cli_read_file(cli *c, const char *path, char **text, size_t *length) {
    const bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fopen(path, "rbe");
    char *data = NULL;
    if (!f)
        return fail_open(c, path, errno);
    const gqac_status status = read_all(c, f, standard ? "standard input" : path, &data, length);
    if (!standard)
        (void)fclose(f);
    if (status == GQAC_OK)
        *text = data;
    else
        free(data);
    return status;
}

gqac_status cli_read_text(cli *c, const char *path, char **text) {
    char *data = NULL;
    size_t length = 0;
    GQAC_TRY(cli_read_file(c, path, &data, &length));
    const size_t end = strlen(data);
    if (end == length) {
        *text = data;
        return GQAC_OK;
    }
    free(data);
    return cli_fail(c, GQAC_INVALID_INPUT, "byte %zu of the text of '%s' is NUL", end, path);
}

gqac_status cli_text_file(cli *c, const char *name, const char **path) {
    char file[64];
    snprintf(file, sizeof file, "%s-file", name);
    const bool given = cli_repeat(c, name, 0) != NULL;
    if (given && cli_repeat(c, file, 0))
        return cli_usage(c, "--%s and --%s cannot be combined", name, file);
    *path = given ? NULL : cli_value(c, file);
    return GQAC_OK;
}

gqac_status cli_take_text(cli *c, const char *name) {
    const char *text = cli_value(c, name), *path = NULL;
    GQAC_TRY(cli_text_file(c, name, &path));
    if (!path && text && !strcmp(text, "-"))
        path = text;
    if (!path)
        return GQAC_OK;
    GQAC_TRY(cli_read_text(c, path, &c->read));
    c->given[c->n_given++] = (struct cli_given){.name = name, .value = c->read};
    return GQAC_OK;
}

void cli_tensor_path(char *path, size_t size, const char *dir, const char *name) {
    int n = snprintf(path, size, "%s/", dir);
    if (n < 0 || (size_t)n >= size)
        return;
    snprintf(path + n, size - (size_t)n, "%s.npy", name);
    for (char *s = path + n; *s; s++)
        if (*s == '/')
            *s = '_';
}
