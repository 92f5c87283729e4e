/* Private to the files that write the graph of a session as an ONNX model: see graph.h. */
#ifndef GQAC_ORT_GRAPH_IMPL_H
#define GQAC_ORT_GRAPH_IMPL_H

#include "graph.h"

/* Evaluates a call inside the writer, which returns NULL or a status; also ends if `why` is set. */
#define WRITE_TRY(call)                                                                            \
    do {                                                                                           \
        ORT_TRY(call);                                                                             \
        if (*w->m->why)                                                                            \
            return NULL;                                                                           \
    } while (0)

typedef struct graph_writer {
    const ort_api *api;
    graph_model *m;
    const graph_links *links; /* of the main graph */
    const graph_part *part;   /* NULL: all of it */
    bool knows_shapes;        /* the runtime tells a scalar from a tensor of unknown rank */
    bool passes_nested;       /* ... and passes inputs that only nested graphs read */
} graph_writer;

enum { GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 }; /* fields of GraphProto */

/* graph.c: an input of the main graph. */
ort_status *graph_write_input(graph_writer *w, const ort_value_info *info, const char *name);

/* graph_values.c */
/* A ValueInfoProto, as `field` of a graph. */
ort_status *graph_write_value(graph_writer *w, unsigned field, const ort_value_info *value);
/* A TensorProto, as `field` of its message; data of more than `most` bytes stay where they are. */
ort_status *graph_write_tensor(graph_writer *w, unsigned field, const char *name,
                               const ort_value *value, size_t most);
/* An initializer of a graph. Those of the main graph that a call may replace are left out: they are
 * inputs, which the runtime passes to each call. */
ort_status *graph_write_initializer(graph_writer *w, const ort_value_info *info, bool nested);

/* graph.c */
ort_status *graph_write_node(graph_writer *w, const ort_node *node);

/* graph_part.c: nodes, constants, inputs and outputs of a part. */
ort_status *graph_write_part(graph_writer *w, const graph_part *part);

#endif
