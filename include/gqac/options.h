/* How a model is compiled: gqac_options, for every call that opens a model, and events of the
 * passes. */
#ifndef GQAC_OPTIONS_H
#define GQAC_OPTIONS_H

#include <gqac/log.h>
#include <gqac/monitor.h>
#include <gqac/tensor.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Structs that may grow begin with `size`, their size as the caller compiled them, and grow at the
 * end only. So a program works with a newer library: fields that an older caller's struct lacks
 * have their defaults, and results that do not fit into it are not written. *_init sets `size`, and
 * so does `gqac_options options = {.size = sizeof options, ...}`. USAGE: a size that is impossible
 * (0: it was forgotten), or a field that only a newer library knows and that is not 0. Structs that
 * the library makes begin with their size too. In lists of such structs, `list[i]` is right only if
 * the caller was compiled with the same version as the library; GQAC_AT(list, i) is always
 * right. */
#define GQAC_AT(list, i) ((const void *)((const char *)(list) + (size_t)(i) * (size_t)(list)->size))

/* Frees memory that a call returned for the caller to free; NULL is allowed. */
GQAC_API void gqac_release(void *memory);

/* What a gqac_pass_callback receives after each pass that ran, "import" first. */
typedef struct gqac_pass_event {
    size_t size;
    const char *pass;
    double seconds;
    const void *module; /* for gqac_pass_text; valid during the callback only */
} gqac_pass_event;
typedef void gqac_pass_callback(void *arg, const gqac_pass_event *event);
/* The graph after the pass, as text IR (docs/ir.md). The caller frees it with gqac_release; NULL:
 * out of memory. */
GQAC_API char *gqac_pass_text(const gqac_pass_event *event);

/* Renames a graph input or output: `file_name` of the model becomes `name` ("input_ids", "logits",
 * "past_key_values.0.key", ...). */
typedef struct gqac_io_name {
    const char *file_name, *name;
} gqac_io_name;

/* A file that is stored in an artefact. */
typedef struct gqac_attachment {
    const char *name; /* a plain file name without '/', at most 100 bytes */
    const void *data;
    size_t bytes;
} gqac_attachment;

/* Returns a file of external data that a model in memory names, as a whole. `name` is the location
 * as the model spells it: relative, without "..". *data must not change, nor be freed, as long as
 * what was opened lives; it is not copied. The thread that opens the model calls it, once for each
 * name, when the first weight of that file is read. Any status but GQAC_OK ends the opening with
 * that status and with the contents of diag. */
typedef gqac_status gqac_external_data(void *arg, const char *name, const void **data,
                                       size_t *bytes, gqac_diag *diag);

/* A model file in memory. The memory must not change, nor be freed, as long as the program, info or
 * call for which it is opened: weights are read in place (only those that are not aligned to their
 * element size are copied). It is checked as thoroughly as a file. */
typedef struct gqac_model_bytes {
    size_t size;
    const void *data; /* of an artefact: aligned to 64 bytes */
    size_t bytes;
    gqac_external_data *external; /* NULL: a model with external data is INVALID_MODEL */
    void *arg;
} gqac_model_bytes;
static inline void gqac_model_bytes_init(gqac_model_bytes *model, const void *data, size_t bytes) {
    memset(model, 0, sizeof *model);
    model->size = sizeof *model;
    model->data = data;
    model->bytes = bytes;
}

/* Fields that are 0 or NULL have their defaults; NULL in place of the options: all defaults. */
typedef struct gqac_options {
    size_t size;
    const char *target; /* "cpu" (default), "ref" or "gpu" */
    const char *math;   /* "model" (default), "exact" or "bf16" */
    /* "total-1" (default; ONNX Runtime) or "cached" (MIGraphX prefix caching) */
    const char *seqlens_k;
    /* local_window_size W. true: W+1 keys are visible, as in ONNX Runtime before 2025-09; false: W
     * keys. */
    bool legacy_window;
    bool per_row_quant; /* DynamicQuantizeLinear by row: approximate, but split-safe */
    bool stateless;     /* true: past and present stay explicit, for gqac_run; false: sequences */
    /* The folder that must contain all external data, also where links lead; NULL: the model's own,
     * or the Hugging Face cache that it is part of. */
    const char *model_root;
    const char *stop_after;     /* name of the last pass to run (not for programs); NULL: all run */
    const char *const *disable; /* names of passes to leave out, ends with NULL; NULL: none */
    gqac_pass_callback *after;  /* may be NULL */
    void *after_arg;
    /* Renamed before the first pass, but not in artefacts and ONNX files, which keep the model's
     * names. Names that the model does not have are skipped. */
    int n_io_names;
    const gqac_io_name *io_names;
    int n_attachments; /* for gqac_compile to an artefact */
    const gqac_attachment *attachments;
    /* Maximum of bytes for all contexts and sequences of a program: KV blocks and states,
     * intermediate tensors, scratch, logits, parameters. A call that needs more fails with CAPACITY
     * and changes nothing. Not counted: weights, threads, ids, memory in proportion to the graph.
     * 0: no maximum. See gqac_program_memory_used. */
    int64_t memory_budget;
    /* For gqac_program_open, gqac_compile and gqac_rewrite, which it may end with ABORTED; NULL:
     * none. It is not kept after the call. */
    const gqac_monitor *monitor;
    /* Not NULL: the model is read from there, and nothing is read from files. The path of the call
     * is then its name, for messages and for its format, which the ending determines (.onnx, .gqac,
     * .gq); model_root is ignored. */
    const gqac_model_bytes *bytes;
    const gqac_log *log; /* NULL: no log */
    int device;          /* of target "gpu": an index of gqac_device_at */
    int reserved;        /* 0 */
} gqac_options;
static inline void gqac_options_init(gqac_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
    options->target = "cpu";
    options->math = "model";
    options->seqlens_k = "total-1";
}

/* Sets *name and *summary (one line; both constant) of pass `index`, from 0, in the order in which
 * passes run. Returns false if there is no such pass. */
GQAC_API bool gqac_pass_at(int index, const char **name, const char **summary);

#ifdef __cplusplus
}
#endif
#endif
