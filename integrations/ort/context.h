/* Context models: what ONNX Runtime stores of a compiled model, and loads instead of it.
 *
 * The context model is an ONNX file that the runtime writes. In it a node EPContext stands for
 * each fused node. What was compiled is an artefact (.gqac) beside it, which the node names and
 * which is mapped when the context model is loaded; nothing is compiled again. */
#ifndef GQAC_ORT_CONTEXT_H
#define GQAC_ORT_CONTEXT_H

#include "provider.h"

/* Sets *own: whether the node is an EPContext node of this provider. */
ort_status *context_is(const provider *p, const ort_node *node, bool *own);
/* Opens the artefact that the node of the graph names. */
ort_status *context_open(const provider *p, const ort_graph *graph, gqac_program **program);
/* Compiles the part, whose nodes `graph` contains, to an artefact, which must not exist yet; notes
 * its path in the part, and makes the node for it. The part's program becomes that of the artefact;
 * after a failure it is NULL. */
ort_status *context_write(part *t, const ort_graph *graph, const ort_node *fused, ort_node **made);
/* Sets *answer to the runtime's code for whether this library can run what was compiled with a
 * numerics profile. */
ort_status *context_compatibility(const ort_api *api, const char *profile, int *answer);

#endif
