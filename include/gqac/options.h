/* How a model is compiled: gqac_options, for every call that opens one, and what it is told of the
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
 * end only. So a program goes on working with a newer library: what an older caller's struct lacks
 * has its default, and what it has no room for is not written. *_init sets `size`, and so does
 * `gqac_options options = {.size = sizeof options, ...}`; a call is USAGE for a size that cannot be
 * (0: it was forgotten) and for a field set that only a newer library knows. Structs that the
 * library makes begin with their size too. Of lists of them, `list[i]` is right as long as the
 * library is the one that the caller was compiled with, and GQAC_AT(list, i) always. */
#define GQAC_AT(list, i) ((const void *)((const char *)(list) + (size_t)(i) * (size_t)(list)->size))

/* Frees memory that a call returned for the caller to free; NULL is fine. */
GQAC_API void gqac_release(void *memory);

/* Told after each pass that ran, "import" first. `text` prints the graph then; see
 * gqac_pass_text.*/
typedef struct gqac_pass_event {
    size_t size;
    const char *pass;
    double seconds;
    const void *module; /* for gqac_pass_text; valid during the call only */
} gqac_pass_event;
typedef void gqac_pass_callback(void *arg, const gqac_pass_event *event);
/* Text IR (docs/ir.md) of the graph of an event, to be freed with gqac_release; NULL when memory is
 * short. */
GQAC_API char *gqac_pass_text(const gqac_pass_event *event);

/* A graph input or output that is known here by another name: the model's `file_name` stands for
 * `name` ("input_ids", "logits", "past_key_values.0.key", ...). */
typedef struct gqac_io_name {
    const char *file_name, *name;
} gqac_io_name;

/* A file that travels in an artefact. */
typedef struct gqac_attachment {
    const char *name; /* plain: no '/', at most 100 bytes */
    const void *data;
    size_t bytes;
} gqac_attachment;

/* Gives a whole file of external data that a model in memory names: a location as the model spells
 * it, relative and never upwards. *data stays as it is as long as what was opened lives; none is
 * copied. Called while a model is opened, in the thread that opens it, once for each name, when the
 * first weight of it is read. Anything but GQAC_OK ends the opening with that status, and with what
 * was put into diag. */
typedef gqac_status gqac_external_data(void *arg, const char *name, const void **data,
                                       size_t *bytes, gqac_diag *diag);

/* A model whose file lies in memory. The memory stays as it is as long as the program, info or
 * call that it is opened for: weights are read in place (only those that do not lie on a multiple
 * of their element are copied). It is checked as a file is, and may be as hostile. */
typedef struct gqac_model_bytes {
    size_t size;
    const void *data; /* of an artefact: on a multiple of 64 */
    size_t bytes;
    gqac_external_data *external; /* NULL: external data are INVALID_MODEL */
    void *arg;
} gqac_model_bytes;
static inline void gqac_model_bytes_init(gqac_model_bytes *model, const void *data, size_t bytes) {
    memset(model, 0, sizeof *model);
    model->size = sizeof *model;
    model->data = data;
    model->bytes = bytes;
}

/* What is 0 or NULL has its default; a pointer to options that is NULL: all have. */
typedef struct gqac_options {
    size_t size;
    const char *target;     /* "cpu" (default) or "ref" */
    const char *math;       /* "model" (default), "exact" or "bf16" */
    const char *seqlens_k;  /* "total-1" (default: ONNX Runtime) or "cached" (MIGraphX prefix
                               caching) */
    bool legacy_window;     /* local_window_size W shows W+1 keys (ONNX Runtime before 2025-09) */
    bool per_row_quant;     /* DynamicQuantizeLinear by row: approximate, but split-safe */
    bool stateless;         /* past and present stay explicit, for gqac_run; else sequences */
    const char *model_root; /* folder external data must lie beneath; NULL: the model's own */
    const char *stop_after; /* pass name, NULL: all (a program cannot be made then) */
    const char *const *disable; /* pass names, ends with NULL; NULL: none */
    gqac_pass_callback *after;  /* may be NULL */
    void *after_arg;
    int n_io_names; /* renamed before the first pass, but not in artefacts and ONNX files, which
                       keep the model's names. A name that the model does not have is skipped */
    const gqac_io_name *io_names;
    int n_attachments; /* for gqac_compile to an artefact */
    const gqac_attachment *attachments;
    int64_t memory_budget; /* bytes that contexts and sequences of a program may take together: KV
                              blocks and states, intermediate tensors, scratch, logits, parameters.
                              A call that needs more is CAPACITY, and everything is as before it.
                              Not counted: weights, threads, ids, what is as large as the graph.
                              0: no bound. See gqac_program_memory_used */
    const gqac_monitor *monitor;   /* watches gqac_program_open, gqac_compile and gqac_rewrite,
                                      which it may end with ABORTED; NULL: nobody. It is not kept */
    const gqac_model_bytes *bytes; /* not NULL: the model lies there. The path of every call with
                                      these options is its name then: for messages, and for its
                                      format, which the ending says (.onnx, .gqac, .gq). Nothing is
                                      read from files; model_root has no meaning */
    const gqac_log *log;           /* NULL: nothing is logged */
} gqac_options;
static inline void gqac_options_init(gqac_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
    options->target = "cpu";
    options->math = "model";
    options->seqlens_k = "total-1";
}

/* Name and one-line summary of pass `index` (from 0, in order); false when there are no more. */
GQAC_API bool gqac_pass_at(int index, const char **name, const char **summary);

#ifdef __cplusplus
}
#endif
#endif
