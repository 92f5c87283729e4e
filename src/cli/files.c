/* Files that several verbs read or write: whole files, lists of ids, JSON, what must not be
 * overwritten, and tensors and their comparison. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/interrupt.h"

static gqac_status read_all(cli *c, FILE *f, const char *name, char **data, size_t *n) {
    size_t capacity = 0, got = 1;
    for (*n = 0; got; *n += got) {
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

gqac_status cli_read_file(cli *c, const char *path, char **text, size_t *length) {
    const bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fopen(path, "rbe");
    char *data = NULL;
    if (!f)
        return cli_fail(c, GQAC_IO, "cannot open '%s': %s", path, strerror(errno));
    const gqac_status status = read_all(c, f, standard ? "standard input" : path, &data, length);
    if (!standard)
        fclose(f);
    if (status == GQAC_OK)
        *text = data;
    else
        free(data);
    return status;
}

gqac_status cli_take_text(cli *c, const char *name) {
    char file[64];
    size_t length = 0;
    snprintf(file, sizeof file, "%s-file", name);
    const bool given = cli_repeat(c, name, 0) != NULL, given_file = cli_repeat(c, file, 0) != NULL;
    const char *text = cli_value(c, name), *path = given ? NULL : cli_value(c, file);
    if (given && given_file)
        return cli_usage(c, "--%s and --%s exclude each other", name, file);
    if (!path && text && !strcmp(text, "-"))
        path = text;
    if (!path)
        return GQAC_OK;
    GQAC_TRY(cli_read_file(c, path, &c->read, &length));
    if (strlen(c->read) != length)
        return cli_fail(c, GQAC_INVALID_INPUT, "byte %zu of the text of '%s' is NUL",
                        strlen(c->read), path);
    c->given[c->n_given++] = (struct cli_given){.name = name, .value = c->read};
    return GQAC_OK;
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
            return cli_fail(c, GQAC_INVALID_INPUT, "'%s': the word at byte %lld is not a token id",
                            path, (long long)(at - text));
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
        snprintf(c->diag.rule, sizeof c->diag.rule, "0 <= id");
        return GQAC_OUT_OF_RANGE;
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
        snprintf(c->diag.where, sizeof c->diag.where, "%s", file);
        snprintf(c->diag.rule, sizeof c->diag.rule, "0 <= id < %lld",
                 vocabulary ? (long long)vocabulary : INT32_MAX + 1LL);
        snprintf(c->diag.hint, sizeof c->diag.hint, "ids made with the tokenizer of this model");
        return GQAC_OUT_OF_RANGE;
    }
    return GQAC_OK;
}

json_t *cli_real_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

void cli_print_json(json_t *value) {
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
    putchar('\n');
    json_decref(value);
}

gqac_status cli_print_json_line(cli *c, json_t *value) {
    if (!value)
        return cli_fail(c, GQAC_NO_MEMORY, "out of memory");
    json_dumpf(value, stdout, JSON_COMPACT); /* of numbers, every bit */
    putchar('\n');
    json_decref(value);
    if (fflush(stdout) != 0)
        return cli_fail(c, GQAC_IO, "cannot write to standard output");
    return GQAC_OK;
}

/* ---- what must not be written over ---------------------------------------- */

static bool is_same(const char *path, const struct stat *wanted) {
    struct stat found;
    return stat(path, &found) == 0 && found.st_dev == wanted->st_dev &&
           found.st_ino == wanted->st_ino;
}

static bool lies_in(const char *folder, const struct stat *wanted) {
    char path[4096];
    DIR *list = opendir(folder);
    bool found = false;
    for (struct dirent *entry; list && !found && (entry = readdir(list));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        found = is_same(path, wanted);
    }
    if (list)
        closedir(list);
    return found;
}

/* Is it the file of an input in --inputs DIR? */
static bool is_input(const gqac_program *program, const char *folder, const struct stat *wanted) {
    const gqac_io *inputs = NULL;
    char path[4096];
    bool found = false;
    for (int i = 0, n = gqac_program_inputs(program, &inputs); i < n && !found; i++) {
        cli_tensor_path(path, sizeof path, folder, inputs[i].name);
        found = is_same(path, wanted);
    }
    return found;
}

/* The other flag that names the file, or a folder that it is read from; NULL: none does. */
static const char *reader_of(const cli *c, const char *flag, const gqac_program *program,
                             const struct stat *wanted) {
    for (int i = 0; i < c->n_given; i++) {
        bool found = false;
        const char *value = c->given[i].value, *equals = strchr(value, '=');
        const char *kind = "";
        for (const cli_flag *f = c->verb->flags; f->name; f++)
            if (!strcmp(f->name, c->given[i].name) && strcmp(f->name, flag) != 0 && f->value)
                kind = f->value;
        if (program && !strcmp(c->given[i].name, "inputs"))
            found = is_input(program, value, wanted);
        else if (!strcmp(kind, "DIR"))
            found = lies_in(value, wanted);
        else if (strstr(kind, "=FILE") && equals)
            found = is_same(equals + 1, wanted);
        else
            found = !strcmp(kind, "FILE") && is_same(value, wanted);
        if (found)
            return c->given[i].name;
    }
    return NULL;
}

static gqac_status fail_output(cli *c, const char *path, const char *why) {
    cli_fail(c, GQAC_IO, "cannot write '%s': %s", path, why);
    snprintf(c->diag.where, sizeof c->diag.where, "%s", path);
    snprintf(c->diag.hint, sizeof c->diag.hint, "a name in a folder that exists and is writable");
    return GQAC_IO;
}

gqac_status cli_check_writable(cli *c, const char *path) {
    char folder[4096];
    struct stat info;
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    if (access(folder, W_OK | X_OK) != 0)
        return fail_output(c, path, strerror(errno));
    if (stat(path, &info) != 0)
        return errno == ENOENT ? GQAC_OK : fail_output(c, path, strerror(errno));
    return S_ISREG(info.st_mode) ? GQAC_OK : fail_output(c, path, "it is not a regular file");
}

gqac_status cli_check_output(cli *c, const char *flag, const gqac_program *program,
                             const char *path) {
    struct stat wanted;
    GQAC_TRY(gqac_check_output(c->operands[0], program, path, &c->diag));
    const char *reader = stat(path, &wanted) == 0 ? reader_of(c, flag, program, &wanted) : NULL;
    if (!reader)
        return GQAC_OK;
    cli_usage(c, "writing '%s' would overwrite a file that --%s reads", path, reader);
    snprintf(c->diag.hint, sizeof c->diag.hint, "--%s with another name", flag);
    return GQAC_USAGE;
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

static bool close_enough(const gqac_tensor *actual, const gqac_tensor *expected, int64_t i) {
    const double a = gqac_tensor_get(actual, i), e = gqac_tensor_get(expected, i);
    if (!gqac_dtype_is_float(expected->dtype)) {
        const int bits = gqac_dtype_bits(expected->dtype);
        if (bits == 64) /* beyond 2^53 a double is not exact */
            return ((const int64_t *)actual->data)[i] == ((const int64_t *)expected->data)[i];
        return a == e;
    }
    if (isnan(a) || isnan(e))
        return isnan(a) && isnan(e);
    if (isinf(a) || isinf(e))
        return a == e;
    const bool half = gqac_dtype_bits(expected->dtype) == 16;
    return fabs(a - e) <= (half ? 1e-3 + 1e-2 * fabs(e) : 1e-7 + 1e-3 * fabs(e));
}

int64_t cli_compare(const gqac_tensor *actual, const gqac_tensor *expected, int64_t *first) {
    const int64_t n = gqac_tensor_count(expected);
    bool same = actual->dtype == expected->dtype && actual->rank == expected->rank;
    for (int d = 0; same && d < expected->rank; d++)
        same = actual->dims[d] == expected->dims[d];
    *first = -1;
    if (!same)
        return n ? n : 1;
    int64_t differing = 0;
    for (int64_t i = 0; i < n; i++)
        if (!close_enough(actual, expected, i) && differing++ == 0)
            *first = i;
    return differing;
}
