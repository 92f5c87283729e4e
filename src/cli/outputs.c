/* Checks of the files that a verb writes, before the work: that they can be written, and do not
 * replace anything that the verb reads or that belongs to the model. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

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

/* True if it is the file of an input in --inputs DIR. */
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

const char *cli_form_of(const char *path) {
    static const char *const forms[][2] = {{".gqac", "gqac"}, {".onnx", "onnx"}, {".gq", "text"}};
    const char *dot = strrchr(path, '.');
    for (int i = 0; dot && i < 3; i++)
        if (!strcmp(dot, forms[i][0]))
            return forms[i][1];
    return NULL;
}

static gqac_status fail_output(cli *c, const char *path, const char *why) {
    cli_fail(c, GQAC_IO, "cannot write '%s': %s", path, why);
    cli_where(c, "%s", path);
    return cli_hint(c, "a name in a folder that exists and is writable");
}

gqac_status cli_check_writable(cli *c, const char *path) {
    char folder[4096], to[7] = "";
    struct stat info;
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    if (access(folder, W_OK | X_OK) != 0)
        return fail_output(c, path, strerror(errno));
    /* /dev/stdout is a link to an open file, and would itself be replaced */
    if (readlink(path, to, sizeof to - 1) > 0 && !strcmp(to, "/proc/"))
        return fail_output(c, path, "it is not a regular file");
    if (stat(path, &info) != 0)
        return errno == ENOENT ? GQAC_OK : fail_output(c, path, strerror(errno));
    return S_ISREG(info.st_mode) ? GQAC_OK : fail_output(c, path, "it is not a regular file");
}

gqac_status cli_make_folder(cli *c, const char *folder, unsigned mode) {
    if (mkdir(folder, mode) != 0 && errno != EEXIST)
        return cli_fail(c, GQAC_IO, "cannot make the folder '%s': %s", folder, strerror(errno));
    return GQAC_OK;
}

gqac_status cli_check_output(cli *c, const char *flag, const gqac_program *program,
                             const char *path) {
    struct stat wanted;
    GQAC_TRY(gqac_check_output(c->operands[0], program, path, &c->diag));
    const char *reader = stat(path, &wanted) == 0 ? reader_of(c, flag, program, &wanted) : NULL;
    if (!reader)
        return GQAC_OK;
    cli_usage(c, "writing '%s' would overwrite a file that --%s reads", path, reader);
    return cli_hint(c, "--%s with another name", flag);
}
