/* How a model is compiled: gqac_options, for every call that opens a model, and events of the
 * passes. */
#ifndef GQAC_OPTIONS_H
#define GQAC_OPTIONS_H

#include <gqac/limits.h>
#include <gqac/log.h>
#include <gqac/monitor.h>
#include <gqac/tensor.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Structs that may grow begin with `size`, the size of the struct when the caller was compiled, and
 * grow only at the end. *_init sets `size`, and so does `gqac_options options = {.size = sizeof
 * options, ...}`. Structs without `size` never change.
 *
 *   older caller  A field that its struct lacks has its default. Results that its struct has no
 *                 field for are not written.
 *   newer caller  A call fails with USAGE if a field that this library does not know is not 0.
 *   wrong size    A call fails with USAGE if no version of the struct had this size (0: it was
 *                 forgotten).
 *   lists         Structs that the library returns begin with their size too. In a list of them,
 *                 GQAC_AT(list, i) is always correct; `list[i]` only if the caller was compiled for
 *                 the same version of the library.
 */
#define GQAC_AT(list, i) ((const void *)((const char *)(list) + (size_t)(i) * (size_t)(list)->size))

/* Frees memory that a call returned for the caller to free; NULL is allowed. */
GQAC_API void gqac_release(void *memory);

/* What a gqac_pass_callback receives after each pass that has run; the first is "import". */
typedef struct gqac_pass_event {
    size_t size;
    const char *pass;
    double seconds;
    const void *module; /* for gqac_pass_text; valid during the callback only */
} gqac_pass_event;
typedef void gqac_pass_callback(void *arg, const gqac_pass_event *event);
/* Returns the graph after the pass, as text IR (docs/ir.md). The caller frees it with gqac_release;
 * NULL: out of memory. */
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

/* Returns the whole content of a file of external data, for a model in memory. `name` is the
 * location as the model spells it: relative, without "..". *data is not copied (but see
 * gqac_model_bytes.copy); it must stay unchanged and must not be freed until what was opened from
 * the model has been freed. The function is called on the thread that opens the model, once for
 * each name, when the first weight of that file is read. ABSENT: it has no such file, which is then
 * read beneath model_root; another status ends the call, with the contents of *diag. */
typedef gqac_status gqac_external_data(void *arg, const char *name, const void **data,
                                       size_t *bytes, gqac_diag *diag);

/* A model file in memory. Weights are read in place; only those that are not aligned to their
 * element size are copied. So keep the memory, unchanged, until the program or info that was opened
 * from it is freed (but see `copy`); for other calls, until they return. The content is checked as
 * thoroughly as a file. */
typedef struct gqac_model_bytes {
    size_t size;
    const void *data; /* an artefact must be aligned to 64 bytes */
    size_t bytes;
    gqac_external_data *external; /* NULL: all external data are files beneath model_root */
    void *arg;
    /* true: a program copies the weights that it has not packed, so all this memory, external data
     * included, may change or be freed when gqac_program_open returns. Not for artefacts, which are
     * read in place: USAGE. */
    bool copy;
} gqac_model_bytes;
static inline void gqac_model_bytes_init(gqac_model_bytes *model, const void *data, size_t bytes) {
    memset(model, 0, sizeof *model);
    model->size = sizeof *model;
    model->data = data;
    model->bytes = bytes;
}

/* A prefix that gqac_compile computes, and whose cached rows it stores in an artefact. Programs
 * that are opened from the artefact read them in place: gqac_program_baked. */
typedef struct gqac_bake {
    size_t size;
    const int64_t *ids; /* the tokens with which prompts will begin, at least one */
    int64_t n;
    /* Kind of cache of the sequences that will reuse them (gqac_sequence_options.kv); NULL:
     * contiguous. Rows of contiguous and of paged sequences serve both; others serve their own kind
     * only. */
    const char *kv;
    int threads;  /* number of threads that compute the prefix; 0: gqac_threads_default */
    int reserved; /* 0 */
} gqac_bake;
static inline void gqac_bake_init(gqac_bake *bake, const int64_t *ids, int64_t n) {
    memset(bake, 0, sizeof *bake);
    bake->size = sizeof *bake;
    bake->ids = ids;
    bake->n = n;
}

/* A field that is 0 or NULL has its default; a NULL pointer to options means all defaults. Texts,
 * lists and structs that fields point to must stay valid during the call, unless a field says
 * more. */
typedef struct gqac_options {
    size_t size;
    const char *target; /* "cpu" (default), "ref" or "gpu" */
    /* "model" (default): as the file says; "exact": in fp32 where MatMulNBits of the file asks for
     * int8 activations; "bf16": kernels may round the factors of products to bf16. See
     * docs/numerics.md. */
    const char *math;
    /* Meaning of the model's input seqlens_k: "total-1" (default; ONNX Runtime) or "cached"
     * (MIGraphX prefix caching). */
    const char *seqlens_k;
    /* Number of keys that a query sees with local_window_size W. true: W+1, as in ONNX Runtime
     * before 2025-09; false: W. */
    bool legacy_window;
    /* true: DynamicQuantizeLinear has a scale for each row instead of one for the whole tensor,
     * which approximates the model's results and makes it split-safe. */
    bool per_row_quant;
    bool stateless; /* true: past and present stay explicit, for gqac_run; false: sequences */
    /* The folder in which all external data must be, after links are followed; NULL: the model's
     * own folder, or the Hugging Face cache that it is part of. */
    const char *model_root;
    const char *stop_after;     /* last pass to run, not for programs; NULL: all run */
    const char *const *disable; /* names of passes to leave out, ends with NULL; NULL: none */
    gqac_pass_callback *after;  /* called after each pass; may be NULL */
    void *after_arg;
    /* Inputs and outputs to rename before the first pass. gqac_compile writes artefacts and ONNX
     * files with the model's own names, so give io_names again when an artefact is opened. Names
     * that the model does not have are skipped. */
    int n_io_names;
    const gqac_io_name *io_names;
    int n_attachments; /* files that gqac_compile stores in an artefact */
    const gqac_attachment *attachments;
    /* Maximum number of bytes that all contexts and sequences of a program may hold together: KV
     * blocks and states, intermediate tensors, scratch, logits, parameters. A call that needs more
     * fails with CAPACITY and changes nothing. Weights, threads, ids and memory in proportion to
     * the graph are not counted. 0: limit memory_bytes (limits.h). See gqac_program_memory_used. */
    int64_t memory_budget;
    /* The monitor of gqac_program_open, gqac_compile and gqac_rewrite; NULL: none. It is not used
     * after the call. ABORTED: the monitor ended the call. */
    const gqac_monitor *monitor;
    /* Not NULL: the model is read from this memory. The path in the call then only names it in
     * messages, and its ending determines the format (.onnx, .gqac, .gq). External data that
     * bytes->external does not have are read from files beneath model_root; with model_root NULL
     * there are none. */
    const gqac_model_bytes *bytes;
    const gqac_log *log; /* NULL: no log */
    int device;          /* the device of target "gpu": an index of gqac_device_at */
    int reserved;        /* 0 */
    /* For gqac_compile to an artefact; NULL: nothing is baked, but an artefact that is compiled
     * again keeps the prefix that it has. */
    const gqac_bake *bake;
    const gqac_limits *limits; /* NULL: all defaults */
} gqac_options;
static inline void gqac_options_init(gqac_options *options) {
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
    options->target = "cpu";
    options->math = "model";
    options->seqlens_k = "total-1";
}

/* Sets *name and *summary (one line) to constant texts of pass `index`, from 0, in the order in
 * which passes run. Returns false if there is no such pass. */
GQAC_API bool gqac_pass_at(int index, const char **name, const char **summary);

#ifdef __cplusplus
}
#endif
#endif
