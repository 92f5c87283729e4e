/* The graph of a session as an ONNX model in memory. */
#ifndef GQAC_ORT_GRAPH_H
#define GQAC_ORT_GRAPH_H

#include "provider.h"
#include "wire.h"

typedef struct graph_weight {
    const void *data; /* the runtime's */
    size_t bytes;
} graph_weight;

/* A model whose larger weights are external data: files beneath `root`, and at the locations "#0",
 * "#1", ... entries of `weights`. The latter belong to the runtime, and are valid during the call
 * of GetCapability or Compile. */
typedef struct graph_model {
    wire model;
    graph_weight *weights;
    size_t n, capacity;
    const char *root; /* "": no files are used */
    char why[512];    /* not "": the graph has something that the model cannot have */
} graph_model;

/* Writes the graph; the caller frees *m, also after a failure. `root` must live as long. */
ort_status *graph_write(const provider *p, const ort_graph *graph, const char *root,
                        graph_model *m);
void graph_free(graph_model *m);
/* Makes `bytes` that model; the program that is opened from it does not refer to it. */
void graph_bytes(graph_model *m, gqac_model_bytes *bytes);

#endif
