/* The files of a model folder or of an artefact, and which of them is the decoder.
 *
 * Names are constants or checked to be plain, and links are followed only beneath the folder, or
 * beneath the Hugging Face cache of which it is a snapshot. Only regular files of limited size are
 * read. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "llm/llm.h"

enum { MOST_VALUES = 8 << 20 };

static gqac_status open_folder(const char *path, folder *out, gqac_diag *diag) {
    char root[PATH_MAX];
    const bool cache = gqac_hub_cache(path, root, out->below);
    out->fd = open(cache ? root : path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out->fd >= 0)
        return GQAC_OK;
    GQAC_FAIL(diag, GQAC_IO, "cannot open the folder '%s': %s", path, gqac_errno_text(errno));
}

gqac_status folder_open(const char *model, folder *out, gqac_diag *diag) {
    gqac_diag quiet;
    *out = (folder){.name = model, .fd = -1};
    if (gqac_path_is_dir(model))
        return open_folder(model, out, diag);
    gqac_status status = gqac_artefact_attachments(model, &out->attached, &out->n, &quiet);
    if (status == GQAC_OK || status == GQAC_USAGE) /* or no artefact: nothing beside it */
        return GQAC_OK;
    if (diag)
        *diag = quiet;
    return status;
}

gqac_status folder_open_above(const char *model, int levels, folder *out, const char **name,
                              gqac_diag *diag) {
    char path[4096];
    const char *slash = NULL;
    size_t n = strlen(model);
    *out = (folder){.name = model, .fd = -1};
    for (int i = 0; i <= levels; i++) {
        if (i > 0 && !slash)
            return GQAC_OK;
        for (slash = NULL; n > 0 && !slash;)
            slash = model[--n] == '/' ? model + n : NULL;
    }
    *name = slash ? slash + 1 : model;
    if (n >= sizeof path)
        GQAC_FAIL(diag, GQAC_IO, "the path '%s' is too long", model);
    memcpy(path, model, n);
    path[n] = 0;
    return open_folder(n ? path : slash ? "/" : ".", out, diag);
}

static bool has_texts(const folder *f) {
    static const char *const names[] = {"generation_config.json", "config.json",
                                        "genai_config.json", "tokenizer.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (folder_has(f, names[i]))
            return true;
    return false;
}

gqac_status folder_open_texts(const char *model, gqac_arena *arena, folder *out, gqac_diag *diag) {
    char own[PATH_MAX];
    const char *name = NULL;
    folder above;
    GQAC_TRY(folder_open(model, out, diag));
    if (out->fd < 0 || has_texts(out) || !gqac_seq2seq_is_folder(model) || !realpath(model, own) ||
        folder_open_above(own, 0, &above, &name, NULL) != GQAC_OK || above.fd < 0)
        return GQAC_OK;
    const bool holds = !strcmp(name, "onnx") && has_texts(&above);
    folder_close(holds ? out : &above);
    if (!holds)
        return GQAC_OK;
    *out = above;
    out->name = gqac_arena_printf(arena, "%s/..", model);
    return out->name ? GQAC_OK : gqac_diag_oom(diag, "a model folder");
}

void folder_close(folder *f) {
    if (f->fd >= 0)
        close(f->fd);
    gqac_release(f->attached);
    *f = (folder){.fd = -1};
}

/* ---- reading ------------------------------------------------------------- */

static gqac_status keep(const folder *f, const char *name, const void *data, size_t bytes,
                        size_t limit, gqac_arena *arena, gqac_attachment *file, gqac_diag *diag) {
    if (bytes > limit) {
        gqac_diag_set(diag, GQAC_LIMIT, "'%s' has %zu bytes; the maximum is %zu", name, bytes,
                      limit);
        gqac_diag_where(diag, "%s", f->name);
        return GQAC_LIMIT;
    }
    char *copy = gqac_arena_alloc(arena, bytes + 1);
    if (!copy)
        return gqac_diag_oom(diag, "a file of the model");
    if (bytes)
        memcpy(copy, data, bytes);
    copy[bytes] = 0;
    *file = (gqac_attachment){name, copy, bytes};
    return GQAC_OK;
}

static gqac_status cannot_open(const folder *f, const char *name, int error, gqac_diag *diag) {
    const bool link = error == ELOOP || error == EXDEV;
    if (link) {
        gqac_diag_set(diag, GQAC_INVALID_MODEL, "'%s' is a symbolic link that %s", name,
                      error == EXDEV ? "leads out of the folder" : "leads nowhere");
        gqac_diag_rule(diag, "the files of a model are in its folder, or in the Hugging Face cache "
                             "that it is part of");
        gqac_diag_hint(diag, "copy the folder with its links resolved: cp -rL FOLDER COPY");
    } else {
        gqac_diag_set(diag, GQAC_IO, "cannot open '%s': %s", name, gqac_errno_text(error));
    }
    gqac_diag_where(diag, "%s", f->name);
    return link ? GQAC_INVALID_MODEL : GQAC_IO;
}

/* A descriptor, or -1 with errno; ELOOP too for a link to nothing. Without openat2 no link is
 * followed. */
static int open_file(const folder *f, const char *name) {
    char path[PATH_MAX], target[1];
    if (snprintf(path, sizeof path, "%s%s", f->below, name) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = gqac_open_beneath(f->fd, path);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        fd = openat(f->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT)
        errno = readlinkat(f->fd, path, target, sizeof target) < 0 ? ENOENT : ELOOP;
    return fd;
}

bool folder_has(const folder *f, const char *name) {
    const int fd = open_file(f, name);
    const bool found = fd >= 0 || errno != ENOENT;
    if (fd >= 0)
        close(fd);
    return found;
}

gqac_status folder_check_link(const folder *f, const char *name, gqac_diag *diag) {
    const int fd = f->fd < 0 ? -1 : open_file(f, name);
    if (f->fd >= 0 && fd < 0 && (errno == ELOOP || errno == EXDEV))
        return cannot_open(f, name, errno, diag);
    if (fd >= 0)
        close(fd);
    return GQAC_OK;
}

gqac_status folder_read(const folder *f, const char *name, size_t limit, gqac_arena *arena,
                        gqac_attachment *file, gqac_diag *diag) {
    *file = (gqac_attachment){.name = name};
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->attached[i].name, name))
            return keep(f, name, f->attached[i].data, f->attached[i].bytes, limit, arena, file,
                        diag);
    if (f->fd < 0)
        return GQAC_OK;
    const int fd = open_file(f, name);
    if (fd < 0)
        return errno == ENOENT ? GQAC_OK : cannot_open(f, name, errno, diag);
    gqac_map map;
    gqac_status status = gqac_map_fd(fd, name, &map, diag);
    close(fd);
    if (status != GQAC_OK) {
        gqac_diag_where(diag, "%s", f->name);
        return status;
    }
    status = keep(f, name, map.data, map.size, limit, arena, file, diag);
    gqac_unmap(&map);
    return status;
}

gqac_status folder_check_json(const char *bytes, size_t length, gqac_diag *diag) {
    const size_t values = gqac_json_measure(bytes, length).values;
    if (values <= MOST_VALUES)
        return GQAC_OK;
    GQAC_FAIL(diag, GQAC_LIMIT, "the JSON has about %zu values; the maximum is %d", values,
              MOST_VALUES);
}

gqac_status folder_json(const char *bytes, size_t length, json_t **root, gqac_diag *diag) {
    json_error_t error;
    *root = NULL;
    GQAC_TRY(folder_check_json(bytes, length, diag));
    *root = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &error);
    if (*root)
        return GQAC_OK;
    if (gqac_json_no_memory(error.text))
        return gqac_diag_oom(diag, "a JSON text");
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "this is not valid JSON: %s",
                  gqac_json_reason(bytes, length, error.text));
    gqac_diag_where(diag, "line %d, column %d", error.line, error.column);
    gqac_diag_rule(diag, "JSON in UTF-8, an object or a list, no key twice in an object");
    return GQAC_INVALID_MODEL;
}

/* ---- the decoder --------------------------------------------------------- */

static int only_onnx(const struct dirent *entry) {
    const char *end = strrchr(entry->d_name, '.');
    return end && end != entry->d_name && !strcmp(end, ".onnx");
}

/* Appends "; it contains a.onnx, b.onnx": files that may be meant instead. */
static void list_onnx(const char *model, gqac_str *text, char *first, size_t size) {
    enum { NAMED = 6 };
    struct dirent **list = NULL;
    const int n = scandir(model, &list, only_onnx, alphasort);
    for (int i = 0; i < n; i++) {
        const char *between = !i ? "; it contains " : i < NAMED ? ", " : i == NAMED ? ", ..." : "";
        gqac_str_printf(text, "%s%s", between, i < NAMED ? list[i]->d_name : "");
        if (i == 0)
            snprintf(first, size, "%s", list[i]->d_name);
        free(list[i]);
    }
    free(list);
}

/* What to pass instead of a folder without a config; `first` is a file in it, or "". */
static void hint_at_files(const char *model, const char *first, gqac_diag *diag) {
    char onnx[PATH_MAX], below[256] = "";
    gqac_str files = {0};
    const bool fits = (size_t)snprintf(onnx, sizeof onnx, "%s/onnx", model) < sizeof onnx;
    if (fits && !*first)
        list_onnx(onnx, &files, below, sizeof below);
    gqac_str_free(&files);
    if (gqac_seq2seq_is_folder(model))
        gqac_diag_hint(diag,
                       "an encoder and a decoder run with `gqac generate` and `gqac serve`; other "
                       "verbs take one file: %s/%s",
                       model, first);
    else if (*first)
        gqac_diag_hint(diag,
                       "pass the file itself: %s/%s; or write a genai_config.json "
                       "(docs/getting-a-model.md has the shortest)",
                       model, first);
    else if (*below && gqac_seq2seq_is_folder(onnx))
        gqac_diag_hint(
            diag, "`gqac generate` and `gqac serve` run the encoder and the decoder in %s", onnx);
    else if (*below)
        gqac_diag_hint(diag, "pass a file of its folder onnx: %s/%s", onnx, below);
    else
        gqac_diag_hint(diag, "pass the .onnx or .gqac file itself, or export with the model "
                             "builder of onnxruntime-genai");
}

static gqac_status no_config(const char *model, gqac_diag *diag) {
    gqac_str files = {0};
    char first[256] = "";
    list_onnx(model, &files, first, sizeof first);
    gqac_diag_set(diag, GQAC_IO, "the folder has no genai_config.json%s",
                  files.text && !files.failed ? files.text : "");
    gqac_str_free(&files);
    gqac_diag_where(diag, "%s", model);
    gqac_diag_rule(diag, "a model folder contains genai_config.json, the .onnx file that it names, "
                         "and tokenizer.json");
    hint_at_files(model, first, diag);
    return GQAC_IO;
}

static gqac_status decoder_path(const char *model, folder *f, gqac_arena *arena, char *path,
                                size_t size, gqac_diag *diag) {
    gqac_attachment file;
    const char *decoder = NULL;
    GQAC_TRY(folder_read(f, "genai_config.json", FOLDER_CONFIG_BYTES, arena, &file, diag));
    if (!file.data)
        return no_config(model, diag);
    gqac_status status = genai_config_read(file.data, file.bytes, arena, NULL, &decoder, diag);
    if (status == GQAC_OK && (size_t)snprintf(path, size, "%s/%s", model, decoder) >= size)
        status = gqac_diag_set(diag, GQAC_INVALID_MODEL, "the path of '%s' is too long", decoder);
    if (status != GQAC_OK)
        gqac_diag_where(diag, "%s/genai_config.json", model);
    return status == GQAC_OK ? folder_check_link(f, decoder, diag) : status;
}

gqac_status gqac_text_model_path(const char *model, char *path, size_t size, gqac_diag *diag) {
    if (!gqac_path_is_dir(model)) {
        if ((size_t)snprintf(path, size, "%s", model) < size)
            return GQAC_OK;
        gqac_diag_set(diag, GQAC_INVALID_MODEL, "the path is too long");
        gqac_diag_where(diag, "%s", model);
        return GQAC_INVALID_MODEL;
    }
    folder f;
    GQAC_TRY(folder_open(model, &f, diag));
    gqac_arena *arena = gqac_arena_create(0);
    gqac_status status = arena ? decoder_path(model, &f, arena, path, size, diag)
                               : gqac_diag_oom(diag, "a model folder");
    gqac_arena_free(arena);
    folder_close(&f);
    return status;
}
