/* Graphs that the provider for ONNX Runtime gets, and context models with their artefacts, in a
 * session of a fake runtime. An input is 4 bytes, then an ONNX model: what the session is like
 * (SESSION), which sizes its dimensions have (2 bytes), and which call of the runtime fails (its
 * square, divided by 8; 0: none).
 *
 * In the folder of the session are artefacts of the known models, and other files. An attribute
 * `notes` of a node EPContext that is "=" becomes the digest of the artefact that the node names.
 * If the session writes a context model, another one loads that, and must compute the same bits. */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "onnx/scan.h"
#include "ort/fake.h"

enum { HEAD = 4, BUDGET = 64 << 20, PATH = 1024 };
enum {                 /* SESSION */
       IN_FILE = 1,    /* the session was created from a file ... */
       ALTERED = 2,    /* ... in which another model is now */
       WRITES = 4,     /* it writes a context model */
       OF_RUNTIME = 8, /* it computes with threads of the runtime */
       VERSION = 16 | 32,
};

_Noreturn void fake_broken(const char *what) {
    fuzz_broken(what);
}

/* ---- limits -------------------------------------------------------------- */

static bool limited; /* the provider is used: its programs have limits */

static const gqac_options *with_limits(const gqac_options *options, gqac_options *own) {
    if (!limited)
        return options;
    *own = *options;
    own->memory_budget = BUDGET;
    own->monitor = fuzz_deadline();
    return own;
}

static gqac_status watch(gqac_status status, gqac_context *const *context, gqac_diag *diag) {
    return limited && status == GQAC_OK
               ? gqac_context_set_monitor(*context, fuzz_deadline(), NULL, diag)
               : status;
}

/* Functions of the library in their places (LINKER:--wrap). */
#define INSTEAD(name, parameters, call)                                                            \
    gqac_status __real_##name parameters;                                                          \
    gqac_status __wrap_##name parameters;                                                          \
    gqac_status __wrap_##name parameters {                                                         \
        call;                                                                                      \
    }
INSTEAD(gqac_program_open,
        (const char *path, const gqac_options *options, gqac_program **program, gqac_diag *diag),
        gqac_options own;
        return __real_gqac_program_open(path, with_limits(options, &own), program, diag))
INSTEAD(gqac_compile,
        (const char *path, const gqac_options *options, gqac_emit emit, const char *output,
         gqac_diag *diag),
        gqac_options own;
        return __real_gqac_compile(path, with_limits(options, &own), emit, output, diag))
INSTEAD(gqac_context_create,
        (const gqac_program *program, int threads, gqac_context **context, gqac_diag *diag),
        return watch(__real_gqac_context_create(program, threads, context, diag), context, diag))
INSTEAD(gqac_context_create_on,
        (const gqac_program *program, gqac_threads *threads, gqac_context **context,
         gqac_diag *diag),
        return watch(__real_gqac_context_create_on(program, threads, context, diag), context, diag))

/* ---- the folder ---------------------------------------------------------- */

static char folder[64];

static void put(const char *name, const void *data, size_t size) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        fuzz_broken("a file of the folder");
    close(fd);
}

/* Removes the files whose names begin so. Returns their number. */
static int clear(const char *begin) {
    char path[PATH];
    int n = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        if (e->d_name[0] != '.' && strncmp(e->d_name, begin, strlen(begin)) == 0) {
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            n += unlink(path) == 0;
        }
    if (dir)
        closedir(dir);
    return n;
}

static void remove_folder(void) {
    clear("");
    rmdir(folder);
}

static void make_folder(void) {
    static const float page[1024] = {1, -1, 0.5f, 2};
    if (*folder)
        return;
    strcpy(folder,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/gqac-ep-XXXXXX" : "/tmp/gqac-ep-XXXXXX");
    if (!mkdtemp(folder))
        fuzz_broken("no folder");
    atexit(remove_folder);
    fuzz_write_files(folder);
    put("weights", page, sizeof page);
    put("empty", "", 0);
}

/* ---- models -------------------------------------------------------------- */

static Onnx__AttributeProto *find_text(const Onnx__NodeProto *node, const char *name) {
    for (size_t i = 0; i < node->n_attribute; i++) {
        Onnx__AttributeProto *a = node->attribute[i];
        if (a->name && !strcmp(a->name, name) && a->s.data)
            return a;
    }
    return NULL;
}

/* Sets the digests of a context model. */
static void sign(Onnx__GraphProto *graph) {
    for (size_t i = 0; graph && i < graph->n_node; i++) {
        char path[PATH], hex[65];
        gqac_diag diag = {0};
        Onnx__AttributeProto *notes = find_text(graph->node[i], "notes");
        const Onnx__AttributeProto *name = find_text(graph->node[i], "ep_cache_context");
        if (!notes || !name || notes->s.len != 1 || notes->s.data[0] != '=' ||
            memchr(name->s.data, '/', name->s.len))
            continue;
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)name->s.len, (char *)name->s.data);
        if (fuzz_check(gqac_model_digest(path, NULL, hex, &diag), &diag) != GQAC_OK)
            continue;
        free(notes->s.data);
        notes->s.data = malloc(sizeof hex);
        memcpy(notes->s.data, hex, sizeof hex);
        notes->s.len = sizeof hex - 1;
    }
}

/* The runtime parses the model itself; the scan only limits depth and memory here. */
static Onnx__ModelProto *unpack(const uint8_t *data, size_t size) {
    gqac_diag diag = {0};
    gqac_str thin = {0};
    const gqac_status status = fuzz_check(
        onnx_scan(data, size, &onnx__model_proto__descriptor, ONNX_MAX_NODES, &thin, &diag), &diag);
    gqac_str_free(&thin);
    return status == GQAC_OK ? onnx__model_proto__unpack(NULL, size, data) : NULL;
}

/* ---- sessions ------------------------------------------------------------ */

static bool session(const Onnx__ModelProto *model, const fake_options *options, gqac_arena *arena,
                    fake_result *result) {
    limited = true;
    const bool good = fake_session(model, options, arena, result);
    limited = false;
    return good;
}

/* Whether a limit of this target, or what the input asks for, may have ended it. */
static bool excused(const fake_options *options, const fake_result *result) {
    return options->fail || fake_says(result->why, GQAC_ABORTED) ||
           fake_says(result->why, GQAC_LIMIT) || fake_says(result->why, GQAC_CAPACITY) ||
           fake_says(result->why, GQAC_NO_MEMORY);
}

/* Loads the context model that a session has written. */
static void load(const fake_options *before, const char *path, const fake_result *first,
                 gqac_arena *arena) {
    static fake_result second;
    const fake_options options = {before->version, path, folder, NULL, NULL, 0, before->sizes, 0};
    const Onnx__ModelProto *model = first->context;
    if (!model)
        return;
    if (!session(model, &options, arena, &second) || excused(&options, &second))
        return;
    if (!second.created || second.n_parts != first->n_parts) {
        fprintf(stderr, "%s\n", second.why);
        fuzz_broken("a context model that cannot be loaded");
    }
    if (first->ran && (!second.ran || second.outputs != first->outputs)) {
        fprintf(stderr, "%s\n", second.why);
        fuzz_broken("a context model that computes other bits");
    }
}

static gqac_status run(const uint8_t *data, size_t size) {
    static const char *const versions[] = {"1.23.1", "1.24.0", "1.27.0", "1.31.1"};
    static const char *const keys[] = {"ep.gqacexecutionprovider.threads", "ep.context_enable",
                                       "ep.context_file_path",
                                       "session.model_external_initializers_file_folder_path"};
    static fake_result result;
    char path[PATH], context[PATH];
    if (size < HEAD)
        return GQAC_INVALID_MODEL;
    const int kind = data[0];
    make_folder();
    Onnx__ModelProto *model = unpack(data + HEAD, size - HEAD);
    if (!model)
        return GQAC_INVALID_MODEL;
    sign(model->graph);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    snprintf(context, sizeof context, "%s/ctx.onnx", folder);
    if (kind & ALTERED)
        snprintf(path, sizeof path, "%s/%d.onnx", folder, (kind >> 6) % FUZZ_PROGRAMS);
    else if (kind & IN_FILE)
        put("model.onnx", data + HEAD, size - HEAD);
    const char *const values[] = {kind & OF_RUNTIME ? "runtime" : "1", kind & WRITES ? "1" : "0",
                                  context, folder};
    fake_options options = {.version = versions[(kind & VERSION) / 16],
                            .path = kind & IN_FILE ? path : "",
                            .folder = folder,
                            .keys = keys,
                            .values = values,
                            .n = sizeof keys / sizeof *keys,
                            .fail = data[3] * data[3] / 8};
    memcpy(&options.sizes, data + 1, sizeof options.sizes);
    gqac_arena *arena = gqac_arena_create(0);
    const bool good = session(model, &options, arena, &result);
    if (good && result.created)
        load(&options, context, &result, arena);
    const int left = clear("ctx");
    if (good && left && !result.created && *result.why)
        fuzz_broken("a file that a failed compilation leaves");
    gqac_arena_free(arena);
    onnx__model_proto__free_unpacked(model, NULL);
    return !good             ? GQAC_INVALID_MODEL
           : !result.n_parts ? GQAC_UNSUPPORTED
           : result.ran      ? GQAC_OK
                             : GQAC_INVALID_INPUT;
}

/* Changes the head or the model. */
static size_t mutate(uint8_t *data, size_t size, size_t most, unsigned seed) {
    if (size < HEAD || most < size)
        return fuzz_change(data, size, most);
    if (seed / 4 % 8 == 0)
        return fuzz_change(data, HEAD, HEAD) == HEAD ? size : HEAD;
    return HEAD + fuzz_change(data + HEAD, size - HEAD, most - HEAD);
}

const fuzz_target fuzz_target_ep = {"ep", run, mutate};
