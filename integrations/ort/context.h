/* Context models: what ONNX Runtime stores of a compiled model, and loads instead of it.
 *
 * The context model is an ONNX file that the runtime writes. In it one node EPContext stands for
 * the whole model. The compiled model is an artefact (.gqac) beside it, which the node names and
 * which is mapped when the context model is loaded; nothing is compiled again. */
#ifndef GQAC_ORT_CONTEXT_H
#define GQAC_ORT_CONTEXT_H

#include "provider.h"

/* Sets *node to the EPContext node of this provider; NULL: the graph has none. */
ort_status *context_find(const provider *p, const ort_graph *graph, const ort_node **node);
/* Opens the artefact that the node of the graph names, as p->program. */
ort_status *context_open(provider *p, const ort_graph *graph);
/* Compiles the model to an artefact, which must not exist yet, and makes the node for it. */
ort_status *context_write(provider *p, const ort_graph *graph, const ort_node *fused,
                          ort_node **made);
/* Returns the runtime's code for whether this library can run what was compiled with a numerics
 * profile. */
int context_compatibility(const char *profile);

#endif
