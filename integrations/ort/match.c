/* Whether the graph that the runtime shows is the model in the file.
 *
 * The runtime has optimised its graph before it asks, and a file may have changed since it was
 * read, so both are compared: inputs and outputs by name and element type, and how often each op of
 * com.microsoft occurs, nested graphs included. Before this point the runtime removes such ops only
 * with the branch of an If that never runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

#define MICROSOFT "com.microsoft"

static const gqac_io *find_io(const gqac_io *list, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        const gqac_io *io = GQAC_AT(list, i);
        if (strcmp(io->name, name) == 0)
            return io;
    }
    return NULL;
}

/* Compares element types: the runtime allocates an output for the session's type. */
static ort_status *match_type(const provider *p, const ort_value_info *info, const char *what,
                              const gqac_io *io, char *why, size_t size) {
    const ort_type_info *type = NULL;
    const ort_tensor_info *tensor = NULL;
    int code = 0; /* no tensor */
    ORT_TRY(p->api->GetValueInfoTypeInfo(info, &type));
    ORT_TRY(p->api->CastTypeInfoToTensorInfo(type, &tensor));
    if (tensor)
        ORT_TRY(p->api->GetTensorElementType(tensor, &code));
    const gqac_dtype dtype = gqac_dtype_from_onnx(code);
    if (dtype != io->dtype)
        snprintf(why, size, "the %s '%s' is %s in the file, and %s in the session", what, io->name,
                 gqac_dtype_name(io->dtype), gqac_dtype_name(dtype));
    return NULL;
}

/* The fused node has no input that no node reads, but gqac_run asks for all of them. */
static ort_status *match_readers(const provider *p, const ort_graph *graph, const gqac_io *inputs,
                                 int n_in, char *why, size_t size) {
    graph_links links;
    ORT_TRY(graph_links_open(p->api, graph, &links));
    for (int i = 0; i < n_in && !*why; i++) {
        const gqac_io *io = GQAC_AT(inputs, i);
        if (!graph_reader(&links, NULL, io->name))
            snprintf(why, size, "no node of the session reads the input '%s'", io->name);
        else if (p->version < PASSES_NESTED && !graph_reads_itself(&links, NULL, io->name))
            snprintf(why, size, NOT_PASSED, io->name);
    }
    graph_links_close(&links);
    return NULL;
}

/* Compares the graph's inputs or outputs with those of the program. Constants that old files list
 * among their inputs are not inputs of a call. */
static ort_status *match_io(const provider *p, const ort_graph *graph, const char *what,
                            count_of_graph *count, values_of_graph *values, const gqac_io *list,
                            int n_list, char *why, size_t size) {
    size_t n, n_known = 0;
    ORT_TRY(count(graph, &n));
    const ort_value_info **infos = calloc(n + 1, sizeof *infos);
    if (!infos)
        return status_no_memory(p->api);
    ort_status *status = values(graph, infos, n);
    for (size_t i = 0; i < n && !status && !*why; i++) {
        const char *name = NULL;
        bool constant = false;
        status = p->api->ValueInfo_IsConstantInitializer(infos[i], &constant);
        if (!status)
            status = p->api->GetValueInfoName(infos[i], &name);
        if (status)
            break;
        const gqac_io *io = find_io(list, n_list, name);
        n_known += io != NULL;
        if (io)
            status = match_type(p, infos[i], what, io, why, size);
        if (!io && !constant)
            snprintf(why, size, "the session has the %s '%s', which the file does not have", what,
                     name);
    }
    if (!status && !*why && n_known != (size_t)n_list)
        snprintf(why, size, "the file has %d %ss, but the session has only %zu of them", n_list,
                 what, n_known);
    free(infos);
    return status;
}

typedef struct tally {
    const provider *p;
    const gqac_info *info;
    int *found; /* [info->n_ops]: how often the graph has the op */
    char *why;
    size_t size;
} tally;

static ort_status *tally_graph(tally *t, const ort_graph *graph);

static ort_status *tally_nested(tally *t, const ort_node *node) {
    const ort_api *api = t->p->api;
    size_t n;
    ORT_TRY(api->Node_GetNumSubgraphs(node, &n));
    if (!n)
        return NULL;
    const ort_graph **graphs = calloc(n, sizeof *graphs);
    if (!graphs)
        return status_no_memory(api);
    ort_status *status = api->Node_GetSubgraphs(node, graphs, n, NULL);
    for (size_t i = 0; i < n && !status; i++)
        status = tally_graph(t, graphs[i]);
    free(graphs);
    return status;
}

static ort_status *tally_node(tally *t, const ort_node *node) {
    const ort_api *api = t->p->api;
    const char *domain, *op, *other;
    ORT_TRY(api->Node_GetDomain(node, &domain));
    ORT_TRY(api->Node_GetOperatorType(node, &op));
    ORT_TRY(api->Node_GetEpName(node, &other));
    if (other && *other)
        snprintf(t->why, t->size, "a node of op %s belongs to the provider %s", op, other);
    bool known = strcmp(domain, MICROSOFT) != 0;
    for (int i = 0; i < t->info->n_ops && !known; i++) {
        const char *of = t->info->ops[i].op;
        known = strncmp(of, MICROSOFT ".", sizeof MICROSOFT) == 0 &&
                strcmp(of + sizeof MICROSOFT, op) == 0;
        t->found[i] += known;
    }
    if (!known)
        snprintf(t->why, t->size, "the session has a node %s.%s, which the file does not have",
                 domain, op);
    return tally_nested(t, node);
}

static ort_status *tally_graph(tally *t, const ort_graph *graph) {
    const ort_node **nodes;
    ort_status *status = NULL;
    size_t n;
    ORT_TRY(graph_nodes(t->p->api, graph, &nodes, &n));
    for (size_t i = 0; i < n && !status; i++)
        status = tally_node(t, nodes[i]);
    free(nodes);
    return status;
}

static ort_status *match_ops(const provider *p, const ort_graph *graph, const gqac_info *info,
                             char *why, size_t size) {
    tally t = {p, info, calloc((size_t)info->n_ops + 1, sizeof *t.found), why, size};
    if (!t.found)
        return status_no_memory(p->api);
    ort_status *status = tally_graph(&t, graph);
    for (int i = 0; i < info->n_ops && !status && !*why; i++) {
        const gqac_op_use *use = &info->ops[i];
        if (strncmp(use->op, MICROSOFT ".", sizeof MICROSOFT) == 0 && t.found[i] != use->count)
            snprintf(why, size, "the file has %d nodes of op %s, but the session has %d",
                     use->count, use->op, t.found[i]);
    }
    free(t.found);
    return status;
}

ort_status *match_graph(const provider *p, const ort_graph *graph, const char *path,
                        const gqac_program *program, bool *matches, char *why, size_t size) {
    const ort_api *api = p->api;
    const gqac_io *inputs, *outputs;
    const int n_in = gqac_program_inputs(program, &inputs);
    const int n_out = gqac_program_outputs(program, &outputs);
    gqac_options options;
    gqac_diag diag;
    gqac_info *info;
    *why = '\0';
    ORT_TRY(match_io(p, graph, "input", api->Graph_GetNumInputs, api->Graph_GetInputs, inputs, n_in,
                     why, size));
    if (!*why)
        ORT_TRY(match_readers(p, graph, inputs, n_in, why, size));
    if (!*why)
        ORT_TRY(match_io(p, graph, "output", api->Graph_GetNumOutputs, api->Graph_GetOutputs,
                         outputs, n_out, why, size));
    options_apply(&p->options, &options);
    if (!*why) {
        if (gqac_info_open(path, &options, &info, &diag) != GQAC_OK)
            return status_of(api, &diag);
        ort_status *status = match_ops(p, graph, info, why, size);
        gqac_info_free(info);
        ORT_TRY(status);
    }
    *matches = !*why;
    return NULL;
}

/* ---- the fused node -------------------------------------------------------- */

/* Each output must have the type that the program writes, because the session has chosen the type
 * of its memory. */
static ort_status *match_outputs(const part *t, const ort_node *fused, char *why, size_t size) {
    const gqac_io *outputs;
    const int n_out = gqac_program_outputs(t->program, &outputs);
    const ort_api *api = t->p->api;
    const ort_value_info **infos;
    ort_status *status = NULL;
    size_t n;
    ORT_TRY(node_values(api, fused, api->Node_GetNumOutputs, api->Node_GetOutputs, &infos, &n));
    for (size_t i = 0; i < n && !status && !*why; i++) {
        const char *name;
        status = t->p->api->GetValueInfoName(infos[i], &name);
        const gqac_io *io = status ? NULL : find_io(outputs, n_out, name);
        if (io)
            status = match_type(t->p, infos[i], "output", io, why, size);
        else if (!status)
            snprintf(why, size,
                     "the session has the output '%.200s', which the program does not have", name);
    }
    free(infos);
    return status;
}

/* Old runtimes leave out inputs that only nested graphs read. */
static ort_status *match_inputs(const part *t, const ort_node *fused) {
    const gqac_io *inputs;
    const int n_in = gqac_program_inputs(t->program, &inputs);
    char **names;
    size_t n;
    ort_status *status = node_names(t->p->api, fused, t->p->api->Node_GetNumInputs,
                                    t->p->api->Node_GetInputs, &names, &n);
    for (int i = 0; i < n_in && !status; i++) {
        const char *name = ((const gqac_io *)GQAC_AT(inputs, i))->name;
        size_t k = 0;
        while (k < n && strcmp(names[k], name) != 0)
            k++;
        if (k == n)
            status = status_printf(t->p->api, ORT_NOT_IMPLEMENTED,
                                   "gqac: " NOT_PASSED "\n  try:   a newer ONNX Runtime", name);
    }
    node_names_free(names, n);
    return status;
}

ort_status *match_fused(const part *t, const ort_node *fused) {
    char why[512] = "";
    ORT_TRY(match_inputs(t, fused));
    ORT_TRY(match_outputs(t, fused, why, sizeof why));
    return *why ? status_printf(t->p->api, ORT_EP_FAIL, "gqac: %s", why) : NULL;
}

bool match_output(const gqac_program *program, const char *name) {
    const gqac_io *outputs;
    const int n = gqac_program_outputs(program, &outputs);
    return find_io(outputs, n, name) != NULL;
}
