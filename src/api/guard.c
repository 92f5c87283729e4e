/* Protects the files of a model from being written over.
 *
 * Paths are compared by the inodes that they lead to, not by their spelling, so links of either
 * kind and detours make no difference. A path that leads to no file is allowed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/load.h"
#include "runtime/program.h"

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_file(const char *path, const struct stat *wanted) {
    struct stat found;
    return stat(path, &found) == 0 && is_same(&found, wanted);
}

bool guard_same_file(const char *a, const char *b) {
    struct stat wanted;
    return stat(b, &wanted) == 0 && is_file(a, &wanted);
}

static bool ends_with_any(const char *name, const char *const *ends) {
    const size_t n = strlen(name);
    for (; *ends; ends++)
        if (n >= strlen(*ends) && !strcmp(name + n - strlen(*ends), *ends))
            return true;
    return false;
}

/* True if a file of this name in the folder of a model belongs to the model: a config, a tokenizer,
 * a template, weights, another graph. An ONNX file may be written over another ONNX file, because
 * that may be an earlier output. */
static bool belongs(const char *name, bool onnx) {
    static const char *const parts[] = {".json",        ".jinja",     ".model", "vocab.txt",
                                        ".safetensors", "merges.txt", NULL};
    static const char *const graphs[] = {".onnx", ".onnx.data", ".onnx_data", NULL};
    return ends_with_any(name, parts) || (!onnx && ends_with_any(name, graphs));
}

/* Finds a file in the folder that belongs to the model and is the `wanted` one. */
static bool find_beside(const char *folder, const struct stat *wanted, bool onnx, char *name,
                        size_t size) {
    DIR *list = opendir(folder);
    bool found = false;
    for (struct dirent *entry; list && !found && (entry = readdir(list));) {
        struct stat info;
        found = belongs(entry->d_name, onnx) &&
                fstatat(dirfd(list), entry->d_name, &info, 0) == 0 && is_same(&info, wanted);
        if (found)
            snprintf(name, size, "%s", entry->d_name);
    }
    if (list)
        closedir(list);
    return found;
}

static gqac_status refuse(const char *path, const char *what, const char *rule, gqac_diag *diag) {
    gqac_diag_set(diag, GQAC_USAGE, "writing '%s' would overwrite %s", path, what);
    gqac_diag_rule(diag, "%s", rule);
    gqac_diag_hint(diag, "write to another name");
    return GQAC_USAGE;
}

static const char over_nothing[] =
    "gqac never overwrites a file that it reads or that belongs to the model";

static gqac_status check_beside(const char *model, bool onnx, const char *path,
                                const struct stat *wanted, gqac_diag *diag) {
    char folder[4096], name[256], what[320];
    const char *slash = strrchr(model, '/');
    if (gqac_path_is_dir(model))
        snprintf(folder, sizeof folder, "%s", model);
    else
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - model) + 1 : 1,
                 slash ? model : ".");
    if (!find_beside(folder, wanted, onnx, name, sizeof name))
        return GQAC_OK;
    snprintf(what, sizeof what, "'%s', which belongs to the model", name);
    return refuse(path, what, over_nothing, diag);
}

static gqac_status check(const char *model, const onnx_files *files, bool onnx, const char *path,
                         gqac_diag *diag) {
    struct stat wanted;
    if (stat(path, &wanted) != 0)
        return GQAC_OK;
    if (files && onnx_files_hold(files, path))
        return refuse(path, "weights of the model", over_nothing, diag);
    return check_beside(model, onnx, path, &wanted, diag);
}

gqac_status guard_folder(const char *path, gqac_diag *diag) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    if (access(folder, W_OK | X_OK) != 0)
        GQAC_FAIL(diag, GQAC_IO, "cannot write '%s': %s", path, gqac_errno_text(errno));
    return GQAC_OK;
}

gqac_status guard_output(const char *model, const onnx_files *files, const char *path,
                         gqac_diag *diag) {
    if (guard_same_file(path, model))
        return refuse(path, "the model", over_nothing, diag);
    return check(model, files, false, path, diag);
}

gqac_status guard_onnx(const char *model, const onnx_files *files, bool in_place, const char *path,
                       gqac_diag *diag) {
    char data[4096 + 8];
    const bool same = guard_same_file(path, model);
    snprintf(data, sizeof data, "%s.data", path);
    if (same && !in_place)
        return refuse(path, "the model", over_nothing, diag);
    if (same && !files)
        return refuse(path, "the text of the model", "a .gq file becomes an ONNX file of its own",
                      diag);
    if (same && onnx_files_external(files))
        return refuse(path, "a model whose weights are in other files",
                      "a model may be rewritten in place only if its weights are in the same file",
                      diag);
    if (!same)
        GQAC_TRY(check(model, files, true, path, diag));
    return check(model, files, true, data, diag);
}

gqac_status gqac_check_output(const char *model, const gqac_program *program, const char *path,
                              gqac_diag *diag) {
    if (program)
        GQAC_TRY(guard_output(program->module->source, load_files(program->backing), path, diag));
    return guard_output(model, NULL, path, diag);
}
