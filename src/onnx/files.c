/* The mapped files of a model, and checks that its external data stay beneath their folder.
 *
 * The kernel opens a location beneath a folder (openat2); its text alone is never trusted, so
 * renames and races cannot lead out. Links that stay beneath the folder are followed. The folder is
 * the root that the user names, else that of the model or, in a Hugging Face cache, that of all
 * snapshots and blobs of the model. Without a root, files with several hard links are refused,
 * because they may belong to another folder. Kernels without openat2 are refused, because there is
 * no other safe way. */
#include "onnx/importer.h"

#include "base/alloc.h"
#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct side_file {
    const char *location; /* as first named */
    gqac_map map;
    dev_t device;
    ino_t inode;
} side_file;

typedef struct side_name {
    const char *location;
    const side_file *file; /* NULL: not opened yet */
} side_name;

struct onnx_files {
    gqac_arena *arena;
    const char *path, *root; /* root NULL: the model's folder */
    const char *below;       /* path of the model's folder beneath the root, "" or ending in '/' */
    int folder;              /* the folder beneath which locations are opened; -1: not opened yet */
    onnx_memory memory;      /* data NULL: the model is a file */
    gqac_map model;
    int64_t most, most_memory; /* limits model-bytes and memory-bytes */
    int64_t declared;          /* bytes of the tensors that were noted */
    dev_t device;
    ino_t inode;
    gqac_table names; /* side_name, by location */
    gqac_table files; /* side_file, by inode */
    side_file **order;
    int n, capacity;
};

void onnx_files_close(onnx_files *files) {
    if (!files)
        return;
    for (int i = 0; i < files->n; i++)
        gqac_unmap(&files->order[i]->map);
    gqac_unmap(&files->model);
    if (files->folder >= 0)
        close(files->folder);
    gqac_arena_free(files->arena);
    gqac_free(files);
}

bool onnx_files_whole(const onnx_files *files) {
    bool whole = gqac_map_whole(&files->model);
    for (int i = 0; i < files->n; i++)
        whole = whole && gqac_map_whole(&files->order[i]->map);
    return whole;
}

bool onnx_files_external(const onnx_files *files) {
    return files->n > 0;
}

bool onnx_files_hold(const onnx_files *files, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0)
        return false;
    for (int i = 0; i < files->n; i++)
        if (!files->order[i]->map.borrowed && files->order[i]->device == info.st_dev &&
            files->order[i]->inode == info.st_ino)
            return true;
    return false;
}

const gqac_map *onnx_files_model(const onnx_files *files) {
    return &files->model;
}

static gqac_status map_model(onnx_files *files, gqac_diag *diag) {
    if (files->memory.data) {
        files->model =
            (gqac_map){.data = files->memory.data, .size = files->memory.bytes, .borrowed = true};
        return GQAC_OK;
    }
    int fd;
    do
        fd = open(files->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return gqac_fail_open(files->path, errno, diag);
    struct stat info = {0};
    gqac_status status = gqac_map_fd(fd, files->path, &files->model, diag);
    if (status == GQAC_OK && fstat(fd, &info) == 0) {
        files->device = info.st_dev;
        files->inode = info.st_ino;
    }
    close(fd);
    return status;
}

/* Fails if the files have more bytes than the limit permits. */
static gqac_status check_bytes(const onnx_files *files, gqac_diag *diag) {
    const int64_t bytes = onnx_files_bytes(files);
    if (bytes <= files->most)
        return GQAC_OK;
    return gqac_limits_fail(diag, "model-bytes", files->most,
                            "the model and its external data have %lld bytes or more",
                            (long long)bytes);
}

gqac_status onnx_files_open(const char *path, const onnx_options *options,
                            const gqac_limits *limits, onnx_files **out, gqac_diag *diag) {
    onnx_files *files = gqac_calloc(1, sizeof *files);
    if (!files)
        return gqac_diag_oom(diag, "a model's files");
    const char *root = options ? options->model_root : NULL;
    files->memory = options && options->memory ? *options->memory : (onnx_memory){.data = NULL};
    files->most = limits->model_bytes;
    files->most_memory = limits->memory_bytes;
    files->folder = -1;
    files->below = "";
    files->arena = gqac_arena_create(0);
    if (files->arena) {
        files->path = gqac_arena_strdup(files->arena, path);
        files->root = root ? gqac_arena_strdup(files->arena, root) : NULL;
        gqac_table_init(&files->names, files->arena);
        gqac_table_init(&files->files, files->arena);
    }
    gqac_status status = GQAC_OK;
    if (!files->arena || !files->path || (root && !files->root))
        status = gqac_diag_oom(diag, "a model's files");
    else
        status = map_model(files, diag);
    if (status == GQAC_OK)
        status = check_bytes(files, diag);
    if (status != GQAC_OK) {
        onnx_files_close(files);
        return status;
    }
    *out = files;
    return GQAC_OK;
}

static const gqac_map *map_of(const onnx_files *files, int i) {
    return i < 0 ? &files->model : &files->order[i]->map;
}

/* Returns the file in whose memory `data` lies, and sets *offset; NULL: in none. */
static const gqac_map *map_at(const onnx_files *files, const void *data, size_t *offset) {
    for (int i = -1; i < files->n; i++) {
        const gqac_map *map = map_of(files, i);
        *offset = (uintptr_t)data - (uintptr_t)map->data;
        if (map->data && (uintptr_t)data >= (uintptr_t)map->data && *offset < map->size)
            return map;
    }
    return NULL;
}

void onnx_files_copied(void *arg, const void *data, size_t bytes) {
    size_t offset;
    const gqac_map *map = map_at(arg, data, &offset);
    if (map)
        gqac_map_release(map, offset, bytes);
}

void onnx_files_forget(onnx_files *files) {
    for (int i = -1; i < files->n; i++) {
        gqac_map *map = i < 0 ? &files->model : &files->order[i]->map;
        if (map->borrowed)
            *map = (gqac_map){.borrowed = true};
    }
}

bool onnx_files_borrow(const onnx_files *files, const void *data) {
    size_t offset;
    const gqac_map *map = map_at(files, data, &offset);
    return map && map->borrowed;
}

int64_t onnx_files_bytes(const onnx_files *files) {
    int64_t bytes = 0;
    for (int i = -1; i < files->n; i++)
        bytes += (int64_t)map_of(files, i)->size;
    return bytes;
}

gqac_status onnx_digest(const onnx_files *files, gqac_poll *poll, unsigned char digest[32],
                        gqac_diag *diag) {
    enum { PIECE = 16 << 20 };
    gqac_sha256 state;
    gqac_sha256_init(&state);
    for (int i = -1; i < files->n; i++) {
        const gqac_map *map = map_of(files, i);
        for (size_t at = 0; at < map->size; at += PIECE) {
            size_t bytes = map->size - at < PIECE ? map->size - at : PIECE;
            GQAC_TRY(gqac_sha256_update_long(&state, map->data + at, bytes, poll, diag));
            gqac_map_release(map, at, bytes);
        }
    }
    gqac_sha256_final(&state, digest);
    return GQAC_OK;
}

/* ---- the folder ---------------------------------------------------------- */

/* The folder part of the model's path; ".": it has none. */
static char *folder_of(const onnx_files *files) {
    const char *slash = strrchr(files->path, '/');
    if (!slash)
        return gqac_arena_strdup(files->arena, ".");
    size_t length = slash == files->path ? 1 : (size_t)(slash - files->path);
    return gqac_arena_strndup(files->arena, files->path, length);
}

/* If the model lies beneath the root, locations are relative to the model's folder; else to the
 * root itself. */
static gqac_status find_below(onnx_files *files, const char *folder, gqac_diag *diag) {
    char root[PATH_MAX], own[PATH_MAX];
    if (!realpath(files->root, root) || !realpath(folder, own))
        GQAC_FAIL(diag, GQAC_IO, "cannot open the model root '%s': %s", files->root,
                  gqac_errno_text(errno));
    size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(own, root, n) != 0 || own[n] != '/' || !own[n + 1])
        return GQAC_OK;
    files->below = gqac_arena_printf(files->arena, "%s/", own + n + 1);
    return files->below ? GQAC_OK : gqac_diag_oom(diag, "a model's files");
}

static gqac_status open_folder(onnx_files *files, gqac_diag *diag) {
    if (files->folder >= 0)
        return GQAC_OK;
    const char *folder = folder_of(files);
    if (!folder)
        return gqac_diag_oom(diag, "a model's files");
    char root[PATH_MAX], below[PATH_MAX];
    if (!files->root && gqac_hub_cache(folder, root, below)) {
        files->root = gqac_arena_strdup(files->arena, root);
        files->below = gqac_arena_strdup(files->arena, below);
        if (!files->root || !files->below)
            return gqac_diag_oom(diag, "a model's files");
    } else if (files->root && !files->memory.data) { /* a model in memory has no folder */
        GQAC_TRY(find_below(files, folder, diag));
    }
    const char *base = files->root ? files->root : folder;
    files->folder = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (files->folder < 0)
        GQAC_FAIL(diag, GQAC_IO, "cannot open the folder '%s': %s", base, gqac_errno_text(errno));
    return GQAC_OK;
}

/* ---- side files ---------------------------------------------------------- */

/* Returns what is wrong with the spelling of a location, or NULL. The kernel decides where it
 * leads; this refuses spellings that other systems would interpret differently. */
static const char *misspelt(const char *location) {
    size_t length = strlen(location);
    if (length == 0)
        return "has an empty name";
    if (location[0] == '/')
        return "has an absolute path";
    if (strchr(location, '\\'))
        return "has a backslash in its path";
    if (location[length - 1] == '/')
        return "has a path that names a folder";
    for (const char *part = location; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || !part[2]))
            return "has a path that goes up ('..')";
    }
    return NULL;
}

static gqac_status refuse(gqac_diag *diag, const char *location, const char *why) {
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "external data '%s' %s", location, why);
    gqac_diag_rule(diag, "external data are regular files beneath the model's folder, or beneath "
                         "--model-root; links may not lead out of it");
    return GQAC_INVALID_MODEL;
}

static gqac_status cannot_open(const char *location, gqac_diag *diag) {
    int error = errno;
    if (error == ENOMEM)
        return gqac_diag_oom(diag, "external data");
    if (error == EMFILE || error == ENFILE || error == EIO)
        GQAC_FAIL(diag, GQAC_IO, "cannot open external data '%s': %s", location,
                  gqac_errno_text(error));
    if (error == EXDEV) {
        refuse(diag, location, "is or goes through a link that leads out of the folder");
        gqac_diag_hint(diag,
                       "name a folder that contains the link and its target with --model-root");
        return GQAC_INVALID_MODEL;
    }
    if (error == ELOOP)
        return refuse(diag, location, "is a loop of links, or a link of /proc");
    if (error == ENOSYS || error == EPERM)
        return refuse(diag, location, "cannot be opened safely: this system has no openat2");
    gqac_diag_set(diag, GQAC_INVALID_MODEL, "cannot open external data '%s': %s", location,
                  gqac_errno_text(error));
    if (error == ENOENT)
        gqac_diag_hint(diag, "copy or download this file too, next to the model as it names it");
    return GQAC_INVALID_MODEL;
}

static gqac_status check_file(const onnx_files *files, const char *location,
                              const struct stat *info, gqac_diag *diag) {
    if (!S_ISREG(info->st_mode))
        return refuse(diag, location, "is not a regular file");
    if (info->st_dev == files->device && info->st_ino == files->inode)
        return refuse(diag, location, "is the model itself");
    if (!files->root && info->st_nlink > 1) {
        refuse(diag, location, "has several hard links");
        gqac_diag_hint(diag, "name the folder that contains all files with --model-root");
        return GQAC_INVALID_MODEL;
    }
    return GQAC_OK;
}

const char *onnx_file_kind(const gqac_map *map) {
    static const struct {
        const char *begin, *kind;
    } kinds[] = {
        {"version https://git-lfs", "a pointer of Git LFS: `git lfs pull` fetches the file"},
        {"GGUF", "a GGUF file, which llama.cpp reads"},
        {"PK", "a zip archive, as PyTorch saves a checkpoint"},
        {"\x93NUMPY", "a .npy file, a tensor: --inputs and --input of `gqac run` read it"},
        {"{", "JSON"},
        {"<", "HTML or XML: was the download a web page?"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t n = strlen(kinds[i].begin);
        if (map->size >= n && !memcmp(map->data, kinds[i].begin, n))
            return kinds[i].kind;
    }
    return NULL;
}

static bool same_location(const void *item, const void *key) {
    return strcmp(((const side_name *)item)->location, key) == 0;
}

static bool same_inode(const void *item, const void *key) {
    const side_file *file = item;
    const struct stat *info = key;
    return file->device == info->st_dev && file->inode == info->st_ino;
}

static side_file *add_file(onnx_files *files, const char *location) {
    if (files->n == files->capacity) {
        int capacity = files->capacity ? 2 * files->capacity : 8;
        side_file **order = GQAC_ARENA_ARRAY(files->arena, side_file *, (size_t)capacity);
        if (!order)
            return NULL;
        if (files->n)
            memcpy(order, files->order, (size_t)files->n * sizeof *order);
        files->order = order;
        files->capacity = capacity;
    }
    side_file *file = GQAC_ARENA_NEW(files->arena, side_file);
    if (!file)
        return NULL;
    file->location = gqac_arena_strdup(files->arena, location);
    if (!file->location)
        return NULL;
    files->order[files->n++] = file;
    return file;
}

/* Finds the record of an open file, and maps the file if it is new. */
static gqac_status take_file(onnx_files *files, const char *location, int fd, const side_file **out,
                             gqac_diag *diag) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        GQAC_FAIL(diag, GQAC_IO, "cannot get the status of '%s': %s", location,
                  gqac_errno_text(errno));
    GQAC_TRY(check_file(files, location, &info, diag));
    uint64_t hash = gqac_hash_u64(files->files.seed ^ (uint64_t)info.st_dev, (uint64_t)info.st_ino);
    *out = gqac_table_find(&files->files, hash, same_inode, &info);
    if (*out)
        return GQAC_OK;
    side_file *file = add_file(files, location);
    if (!file || !gqac_table_add(&files->files, hash, file))
        return gqac_diag_oom(diag, "external data");
    file->device = info.st_dev;
    file->inode = info.st_ino;
    *out = file;
    GQAC_TRY(gqac_map_fd(fd, location, &file->map, diag));
    return check_bytes(files, diag);
}

/* Asks the caller for the file of a location, for a model in memory. *out stays NULL if the file is
 * one beneath the root. */
static gqac_status ask_for(onnx_files *files, const char *location, const side_file **out,
                           gqac_diag *diag) {
    const onnx_memory *memory = &files->memory;
    const void *data = NULL;
    size_t bytes = 0;
    if (!memory->external && files->root)
        return GQAC_OK;
    if (!memory->external) {
        refuse(diag, location, "cannot be read: the model is in memory");
        gqac_diag_hint(diag, "set gqac_model_bytes.external, or model_root to the file's folder");
        return GQAC_INVALID_MODEL;
    }
    gqac_diag own = {.status = GQAC_OK};
    const gqac_status status = memory->external(memory->arg, location, &data, &bytes, &own);
    if (status == GQAC_ABSENT && files->root)
        return GQAC_OK;
    if (status != GQAC_OK) {
        if ((unsigned)status >= GQAC_STATUS_COUNT)
            GQAC_FAIL(diag, GQAC_USAGE,
                      "the callback for external data returned %d, which is not a status of gqac",
                      status);
        if (*own.what && diag) {
            *diag = own;
            diag->status = status;
            return status;
        }
        GQAC_FAIL(diag, status, "external data '%s' are not available", location);
    }
    if (!data && bytes)
        GQAC_FAIL(diag, GQAC_USAGE, "external data '%s' have %zu bytes, but their address is NULL",
                  location, bytes);
    side_file *file = add_file(files, location);
    if (!file)
        return gqac_diag_oom(diag, "external data");
    file->map = (gqac_map){.data = data, .size = bytes, .borrowed = true};
    *out = file;
    return check_bytes(files, diag);
}

static gqac_status open_side(onnx_files *files, const char *location, const side_file **file,
                             gqac_diag *diag) {
    const char *wrong = misspelt(location);
    if (wrong)
        return refuse(diag, location, wrong);
    if (files->memory.data)
        GQAC_TRY(ask_for(files, location, file, diag));
    if (*file)
        return GQAC_OK;
    GQAC_TRY(open_folder(files, diag));
    const char *path = gqac_arena_printf(files->arena, "%s%s", files->below, location);
    if (!path)
        return gqac_diag_oom(diag, "external data");
    int fd = gqac_open_beneath(files->folder, path);
    if (fd < 0)
        return cannot_open(location, diag);
    gqac_status status = take_file(files, location, fd, file, diag);
    close(fd);
    return status;
}

static gqac_status note_location(onnx_files *files, const char *location, side_name **out,
                                 gqac_diag *diag) {
    uint64_t hash = gqac_hash_bytes(files->names.seed, location, strlen(location));
    side_name *name = gqac_table_find(&files->names, hash, same_location, location);
    *out = name;
    if (name)
        return GQAC_OK;
    if (files->names.count == ONNX_MAX_SIDE_FILES)
        GQAC_FAIL(diag, GQAC_LIMIT, "the model has more than %d files of external data",
                  ONNX_MAX_SIDE_FILES);
    *out = name = GQAC_ARENA_NEW(files->arena, side_name);
    if (!name || !(name->location = gqac_arena_strdup(files->arena, location)) ||
        !gqac_table_add(&files->names, hash, name))
        return gqac_diag_oom(diag, "external data");
    return GQAC_OK;
}

gqac_status onnx_files_note(onnx_files *files, const char *location, size_t bytes,
                            gqac_diag *diag) {
    side_name *name;
    if (!gqac_add_i64(files->declared, (int64_t)bytes, &files->declared))
        files->declared = INT64_MAX;
    const char *wrong = misspelt(location);
    return wrong ? refuse(diag, location, wrong) : note_location(files, location, &name, diag);
}

gqac_status onnx_files_check_copy(const onnx_files *files, gqac_diag *diag) {
    if (files->declared <= files->most_memory)
        return GQAC_OK;
    return gqac_limits_fail(diag, "memory-bytes", files->most_memory,
                            "the external data, which are not aligned to their elements and must "
                            "be copied, have %lld bytes",
                            (long long)files->declared);
}

gqac_status onnx_files_side(onnx_files *files, const char *location, const gqac_map **map,
                            gqac_diag *diag) {
    side_name *name;
    GQAC_TRY(note_location(files, location, &name, diag));
    if (!name->file)
        GQAC_TRY(open_side(files, location, &name->file, diag));
    *map = &name->file->map;
    return GQAC_OK;
}
