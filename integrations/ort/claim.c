/* The provider of one session: what it claims, and what it makes of that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"

/* A model whose results depend on the split into calls runs all the same, but users should know. Of
 * a part this cannot be said: the arithmetic of lengths mixes rows, unless all that reads it is
 * seen too. */
static void warn_of_mixing(const provider *p) {
    char text[512];
    const gqac_mixing *mixing;
    const gqac_kv_pair *pairs;
    const gqac_program *program = p->parts[0]->program;
    if (!gqac_program_kv_pairs(program, &pairs) || /* without a cache, nobody splits its calls */
        !gqac_program_mixing(program, &mixing))
        return;
    snprintf(text, sizeof text, "node '%.200s' (%s) mixes rows (gqac inspect --invariance)",
             mixing->node, mixing->op);
    provider_log(p, ORT_LOG_WARNING,
                 "runs a model whose results depend on how its tokens are split into calls", text);
}

/* ---- claiming -------------------------------------------------------------- */

static ort_status *note_path(provider *p, const ort_graph *graph) {
    const char *path = NULL;
    if (p->path)
        return NULL;
    ORT_TRY(p->api->Graph_GetModelPath(graph, &path));
    p->path = strdup(path ? path : "");
    return p->path ? NULL : status_no_memory(p->api);
}

ort_status *claim_nodes(const provider *p, const ort_node *const *nodes, size_t n,
                        ort_support *support) {
    const ort_fusion fusion = {ORT_VERSION, true}; /* the program has the constants */
    return p->api->GetEpApi()->EpGraphSupportInfo_AddNodesToFuse(support, nodes, n, &fusion);
}

/* Claims the nodes of a context model, each by itself. They are opened by Compile: the runtime
 * would only log an error of GetCapability. */
static ort_status *claim_context(provider *p, const ort_graph *graph, ort_support *support) {
    const ort_node **nodes;
    ort_status *status = NULL;
    size_t n;
    ORT_TRY(graph_nodes(p->api, graph, &nodes, &n));
    for (size_t i = 0; i < n && !status; i++) {
        bool own;
        status = context_is(p, nodes[i], &own);
        if (status || !own)
            continue;
        p->from_context = true;
        p->whole = n == 1;
        status = claim_nodes(p, &nodes[i], 1, support);
    }
    free(nodes);
    return status;
}

static ort_status *claim_whole(const provider *p, const ort_graph *graph, ort_support *support) {
    const ort_node **nodes;
    size_t n;
    ORT_TRY(graph_nodes(p->api, graph, &nodes, &n));
    ort_status *status = n ? claim_nodes(p, nodes, n, support) : NULL;
    free(nodes);
    if (!status)
        provider_log(p, ORT_LOG_INFO, "runs the whole model, profile",
                     gqac_program_profile(p->parts[0]->program));
    return status;
}

/* Opens what gqac can run, and claims it. */
static ort_status *claim_any(provider *p, const ort_graph *graph, ort_support *support) {
    gqac_program *program;
    char why[sizeof(gqac_diag)] = "";
    ORT_TRY(open_whole(p, graph, &program, why, sizeof why));
    p->whole = program != NULL;
    if (!program) {
        ORT_TRY(parts_claim(p, graph, why, support));
    } else if (!provider_add(p, program)) {
        gqac_program_free(program);
        return status_no_memory(p->api);
    }
    if (!p->whole)
        return NULL;
    warn_of_mixing(p);
    return claim_whole(p, graph, support);
}

static void forget_parts(provider *p) {
    for (size_t i = 0; i < p->n_parts; i++) {
        compute_close(p->parts[i]);
        gqac_program_free(p->parts[i]->program);
        free(p->parts[i]->artefact);
        free(p->parts[i]);
    }
    free(p->parts);
    p->parts = NULL;
    p->n_parts = 0;
}

static ort_status *get_capability(ort_ep *self, const ort_graph *graph, ort_support *support) {
    provider *p = (provider *)self;
    const ort_node *parent = NULL;
    ORT_TRY(p->api->Graph_GetParentNode(graph, &parent));
    if (parent ||
        p->compiled) /* a branch, which belongs to its node; or nothing is left to claim */
        return NULL;
    ORT_TRY(note_path(p, graph));
    ORT_TRY(claim_context(p, graph, support));
    if (p->from_context)
        return NULL;
    if (p->whole) /* the runtime may ask again */
        return claim_whole(p, graph, support);
    forget_parts(p);
    return claim_any(p, graph, support);
}

/* ---- compiling ------------------------------------------------------------- */

part *provider_add(provider *p, gqac_program *program) {
    part **parts = realloc(p->parts, (p->n_parts + 1) * sizeof(part *));
    part *t = calloc(1, sizeof *t);
    if (parts)
        p->parts = parts;
    if (!parts || !t) {
        free(t);
        return NULL;
    }
    t->p = p;
    t->program = program;
    p->parts[p->n_parts++] = t;
    return t;
}

/* Opens the artefact of a node of a context model. */
static ort_status *add_artefact(provider *p, const ort_graph *graph, part **t) {
    gqac_program *program;
    ORT_TRY(context_open(p, graph, &program));
    *t = provider_add(p, program);
    if (*t)
        return NULL;
    gqac_program_free(program);
    return status_no_memory(p->api);
}

/* The part that was claimed as this node: the one that has its first output. */
static ort_status *find_part(const provider *p, const ort_node *fused, part **t) {
    char **names;
    size_t n;
    ort_status *status =
        node_names(p->api, fused, p->api->Node_GetNumOutputs, p->api->Node_GetOutputs, &names, &n);
    *t = NULL;
    for (size_t i = 0; i < p->n_parts && !status && n; i++)
        if (p->parts[i]->program && match_output(p->parts[i]->program, names[0]))
            *t = p->parts[i];
    node_names_free(names, n);
    return status;
}

static ort_status *compile_node(provider *p, const ort_graph *graph, const ort_node *node,
                                ort_compute **compute, ort_node **context_node) {
    part *t = NULL;
    ORT_TRY(p->from_context ? add_artefact(p, graph, &t) : find_part(p, node, &t));
    if (!t || t->in)
        return status_printf(p->api, ORT_EP_FAIL,
                             "gqac: the session asks for a part of the model to be compiled that "
                             "the provider has not claimed");
    ORT_TRY(compute_open(t, node));
    *compute = &t->compute;
    return p->options.context && !p->from_context ? context_write(t, graph, node, context_node)
                                                  : NULL;
}

static ort_status *compile(ort_ep *self, const ort_graph **graphs, const ort_node **nodes, size_t n,
                           ort_compute **computes, ort_node **context_nodes) {
    provider *p = (provider *)self;
    gqac_diag diag;
    ort_status *status = NULL;
    if (p->from_context && p->options.context)
        return status_printf(p->api, ORT_INVALID_ARGUMENT,
                             "gqac: ep.context_enable is 1, but the model is a context model\n"
                             "  try:   leave the entry out, or create the session of the original "
                             "model");
    /* Contexts of one thread have no region to wait for, so they share nothing. */
    if (!p->threads && p->options.threads != 1 && p->options.threads != THREADS_OF_RUNTIME &&
        gqac_threads_create(p->options.threads, &p->threads, &diag) != GQAC_OK)
        return status_of(p->api, &diag);
    p->compiled = true;
    for (size_t i = 0; i < n && !status; i++)
        status = compile_node(p, graphs[i], nodes[i], &computes[i], &context_nodes[i]);
    if (p->from_context && p->whole && !status)
        warn_of_mixing(p);
    for (size_t i = 0; i < p->n_parts && status; i++)
        if (p->parts[i]->artefact)
            (void)unlink(p->parts[i]->artefact);
    return status;
}

static void release_computes(ort_ep *self, ort_compute **computes, size_t n) {
    (void)self;
    for (size_t i = 0; i < n; i++)
        if (computes[i])
            compute_close((part *)computes[i]);
}

/* Stored in a context model, and given to ValidateCompiledModelCompatibilityInfo. */
static const char *get_compatibility(ort_ep *self, const ort_graph *graph) {
    const provider *p = (const provider *)self;
    (void)graph;
    const gqac_program *program = p->n_parts ? p->parts[0]->program : NULL; /* freed by a failure */
    return program ? gqac_program_profile(program) : "";
}

static const char *get_name(const ort_ep *self) {
    (void)self;
    return PROVIDER_NAME;
}

ort_status *provider_create(const ort_api *api, int version, const ort_session_options *session,
                            const ort_logger *logger, ort_ep **ep) {
    provider *p = calloc(1, sizeof *p);
    if (!p)
        return status_no_memory(api);
    ort_status *status = options_read(api, session, &p->options);
    if (status || pthread_mutex_init(&p->lock, NULL) != 0) {
        free(p);
        return status ? status : status_no_memory(api);
    }
    p->ep.version = ORT_VERSION;
    p->ep.GetName = get_name;
    p->ep.GetCapability = get_capability;
    p->ep.Compile = compile;
    p->ep.ReleaseNodeComputeInfos = release_computes;
    p->ep.GetCompiledModelCompatibilityInfo = get_compatibility;
    p->api = api;
    p->version = version;
    p->logger = logger;
    *ep = &p->ep;
    return NULL;
}

void provider_free(provider *p) {
    if (!p)
        return;
    forget_parts(p);
    gqac_threads_free(p->threads);
    free(p->path);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
