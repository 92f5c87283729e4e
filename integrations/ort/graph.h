/* The graph of a session as an ONNX model in memory. */
#ifndef GQAC_ORT_GRAPH_H
#define GQAC_ORT_GRAPH_H

#include "convex.h"
#include "provider.h"
#include "wire.h"

/* Values by name; names and infos belong to the runtime. */
typedef struct graph_named {
    const char *name;
    const ort_value_info *info;
    int node;    /* the index of the node that has the value as an output or an input */
    bool nested; /* a graph inside the node reads it, not the node itself */
} graph_named;

typedef struct graph_list {
    graph_named *values;
    size_t n, capacity;
} graph_list;

/* The nodes of a graph, and the values that link them. */
typedef struct graph_links {
    const ort_node **nodes;
    size_t n;
    graph_list outputs, inputs; /* of all nodes, in the order of their names */
    convex_edge *edges;
    size_t n_edges;
} graph_links;

/* graph_links.c */
/* The caller closes *links after a success. */
ort_status *graph_links_open(const ort_api *api, const ort_graph *graph, graph_links *links);
void graph_links_close(graph_links *links);
/* The index of the node that outputs the value; -1: it is an input or a constant. */
int graph_producer(const graph_links *links, const char *name);
/* The first reader of the value (`last` NULL) or the one after `last`; NULL: no other. */
const graph_named *graph_reader(const graph_links *links, const graph_named *last,
                                const char *name);

/* The nodes of a set, which form a model of their own. */
typedef struct graph_part {
    const graph_links *links;
    const int *set; /* [links->n]: the number of each node's set */
    int which;
} graph_part;

/* True if a node (of the part, if `part` is not NULL) reads the value itself. */
bool graph_reads_itself(const graph_links *links, const graph_part *part, const char *name);

/* Bytes of the constants by which the nodes of the part multiply: those of two or more dimensions,
 * without tables of which only some rows are read. */
ort_status *graph_part_weights(const ort_api *api, const graph_part *part, int64_t *bytes);

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

/* Writes the graph, or a part of it (NULL: all); the caller frees *m, also after a failure. `root`
 * must live as long as *m. */
ort_status *graph_write(const provider *p, const ort_graph *graph, const graph_part *part,
                        const char *root, graph_model *m);
void graph_free(graph_model *m);
/* Sets `bytes` to that model; the program that is opened from it does not refer to it. */
void graph_bytes(graph_model *m, gqac_model_bytes *bytes);

#endif
