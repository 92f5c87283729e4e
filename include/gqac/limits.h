/* Limits on what a model may contain, and on the memory and time that it may take.
 *
 * A model may be untrusted. Whatever it declares, opening or compiling it fails with LIMIT before
 * more memory is allocated than the limits allow, or soon after compile_ms have passed. Other
 * limits, which cannot be changed, are far above what any real model needs (src/onnx/scan.h).
 */
#ifndef GQAC_LIMITS_H
#define GQAC_LIMITS_H

#include <gqac/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A field that is 0 has its default, which gqac_limit_at returns. */
typedef struct gqac_limits {
    size_t size;
    int64_t model_bytes;     /* bytes of the model file and of the external data that it uses */
    int64_t nodes;           /* nodes of the file, nested graphs and functions included, and again
                                after functions are inlined */
    int64_t tensor_elements; /* elements of one tensor of the graph: a weight, an input, a result;
                                dimensions that are not known count as 1 */
    int64_t context;         /* tokens of a sequence; a step beyond is OUT_OF_RANGE */
    int64_t compile_bytes;   /* bytes of memory for the graph, and for weights that are packed or
                                computed in advance; mapped files are not counted. The default is
                                that of memory_bytes */
    int64_t compile_ms;      /* milliseconds until a model is open or compiled. Checked whenever a
                                monitor would be called (monitor.h) */
    int64_t template_steps;  /* steps in which a chat template is rendered once; 10 million take
                                about a second */
    int64_t memory_bytes;    /* bytes of the weights of a model (those of an artefact are mapped and
                                do not count) and of one tensor: a model that declares more is
                                refused before any of it is allocated. It is also the memory budget
                                of a program that is opened without one (options.h). The default is
                                nine tenths of the memory of the machine, or of the cgroup of the
                                process if that is smaller */
} gqac_limits;
static inline void gqac_limits_init(gqac_limits *limits) {
    memset(limits, 0, sizeof *limits);
    limits->size = sizeof *limits;
}

/* Sets *name ("model-bytes", the name of the field with dashes), *summary (one line) and *value of
 * limit `index`, from 0, in the order of the fields. `limits` NULL: *value is the default. Returns
 * false if there is no such limit. INT64_MAX: there is no maximum. */
GQAC_API bool gqac_limit_at(int index, const gqac_limits *limits, const char **name,
                            const char **summary, int64_t *value);
/* Sets the limit of that name. USAGE: there is none, or the value is less than 1 or more than gqac
 * can process. */
GQAC_API gqac_status gqac_limits_set(gqac_limits *limits, const char *name, int64_t value,
                                     gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
