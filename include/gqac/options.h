/* How a model is compiled: gqac_options, for every call that opens one, and what it is told of the
 * passes. */
#ifndef GQAC_OPTIONS_H
#define GQAC_OPTIONS_H

#include <gqac/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Frees memory that a call returned for the caller to free; NULL is fine. */
GQAC_API void gqac_release(void *memory);

/* Told after each pass that ran, "import" first. `text` prints the graph then; see
 * gqac_pass_text.*/
typedef struct gqac_pass_event {
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

typedef struct gqac_options {
    const char *target;     /* "cpu" (default) or "ref" */
    const char *math;       /* "model", "exact" or "bf16" */
    const char *seqlens_k;  /* "total-1" (ONNX Runtime) or "cached" (MIGraphX prefix caching) */
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
} gqac_options;
GQAC_API void gqac_options_init(gqac_options *options);

/* Name and one-line summary of pass `index` (from 0, in order); false when there are no more. */
GQAC_API bool gqac_pass_at(int index, const char **name, const char **summary);

#ifdef __cplusplus
}
#endif
#endif
