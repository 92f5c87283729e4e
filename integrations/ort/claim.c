/* The provider of one session: what it claims, and what it makes of that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "graph.h"

static void log_line(const provider *p, int severity, const char *what, const char *why) {
    char text[sizeof(gqac_diag)];
    snprintf(text, sizeof text, PROVIDER_NAME " %s: %s", what, why);
    provider_log(p, severity, text);
}

/* A model whose results depend on the split into calls runs all the same, but users should know. */
static void warn_of_mixing(const provider *p) {
    char text[512];
    const gqac_mixing *mixing;
    const gqac_kv_pair *pairs;
    if (!gqac_program_kv_pairs(p->program, &pairs) || /* without a cache, nobody splits its calls */
        !gqac_program_mixing(p->program, &mixing))
        return;
    snprintf(text, sizeof text,
             "node '%.200s' (%s) mixes rows: results of this model depend on how its tokens are "
             "split into calls (gqac inspect --invariance)",
             mixing->node, mixing->op);
    provider_log(p, ORT_LOG_WARNING, text);
}

/* Opens a program of a file, or of the bytes if they are not NULL. If gqac cannot run the model,
 * p->program is NULL and `why` has the reason. */
static ort_status *open_program(provider *p, const char *path, const gqac_model_bytes *bytes,
                                const char *root, char *why, size_t size) {
    gqac_options options;
    gqac_diag diag;
    options_apply(&p->options, &options);
    options.bytes = bytes;
    options.model_root = root;
    const gqac_status status = gqac_program_open(path, &options, &p->program, &diag);
    if (status == GQAC_OK)
        return NULL;
    p->program = NULL;
    ort_status *said = status_of(p->api, &diag);
    if (status == GQAC_NO_MEMORY || status == GQAC_INTERNAL)
        return said;
    snprintf(why, size, "%s", p->api->GetErrorMessage(said));
    p->api->ReleaseStatus(said);
    return NULL;
}

/* Opens the file, if it is the model that the session has. */
static ort_status *open_file(provider *p, const ort_graph *graph, const char *path, char *why,
                             size_t size) {
    bool matches = false;
    ORT_TRY(open_program(p, path, NULL, NULL, why, size));
    if (!p->program)
        return NULL;
    ort_status *status = match_graph(p, graph, path, &matches, why, size);
    if (matches)
        return status;
    gqac_program_free(p->program);
    p->program = NULL;
    return status;
}

/* Opens the session's own graph, with weights in files beneath the root, if it is not "". */
static ort_status *open_graph(provider *p, const ort_graph *graph, const char *root, char *why,
                              size_t size) {
    graph_model model;
    gqac_model_bytes bytes;
    ort_status *status = graph_write(p, graph, root, &model);
    if (!status && *model.why)
        snprintf(why, size, "%s", model.why);
    if (!status && !*model.why) {
        graph_bytes(&model, &bytes);
        status = open_program(p, "the session's graph", &bytes, *root ? root : NULL, why, size);
    }
    graph_free(&model);
    return status;
}

/* The folder of external data: what the session names or, for a model from a file, its own. */
static const char *weights_folder(const provider *p, char folder[4096]) {
    const char *slash = strrchr(p->path, '/');
    if (*p->options.weights_folder)
        return p->options.weights_folder;
    if (!*p->path || strlen(p->path) >= 4096)
        return "";
    snprintf(folder, 4096, "%.*s", slash ? (int)(slash - p->path) : 1, slash ? p->path : ".");
    return folder;
}

static ort_status *open_any(provider *p, const ort_graph *graph) {
    char why[sizeof(gqac_diag)] = "", folder[4096];
    if (*p->path)
        ORT_TRY(open_file(p, graph, p->path, why, sizeof why));
    p->from_file = p->program != NULL;
    if (p->program)
        return NULL;
    if (*why)
        log_line(p, ORT_LOG_WARNING, "reads the graph of the session instead of the file", why);
    const char *root = weights_folder(p, folder);
    ORT_TRY(open_graph(p, graph, root, why, sizeof why));
    if (!p->program && *root) /* links may lead out of the folder, which gqac does not follow */
        ORT_TRY(open_graph(p, graph, "", why, sizeof why));
    if (!p->program)
        log_line(p, ORT_LOG_WARNING, "runs nothing of this model", why);
    return NULL;
}

static ort_status *claim(provider *p, const ort_graph *graph, ort_support *support) {
    const ort_fusion fusion = {ORT_VERSION, true}; /* the program has the constants */
    const ort_api *api = p->api;
    const ort_node **nodes;
    ort_status *status = NULL;
    size_t n;
    ORT_TRY(graph_nodes(api, graph, &nodes, &n));
    if (n)
        status = api->GetEpApi()->EpGraphSupportInfo_AddNodesToFuse(support, nodes, n, &fusion);
    free(nodes);
    if (!status)
        log_line(p, ORT_LOG_INFO, "runs the whole model, profile",
                 gqac_program_profile(p->program));
    return status;
}

static ort_status *note_path(provider *p, const ort_graph *graph) {
    const char *path = NULL;
    if (p->path)
        return NULL;
    ORT_TRY(p->api->Graph_GetModelPath(graph, &path));
    p->path = strdup(path ? path : "");
    return p->path ? NULL : status_no_memory(p->api);
}

/* Claims the node of a context model. It is opened by Compile: the runtime would only log an error
 * of GetCapability. */
static ort_status *claim_context(provider *p, const ort_graph *graph, ort_support *support) {
    const ort_fusion fusion = {ORT_VERSION, true};
    const ort_node *node;
    ORT_TRY(context_find(p, graph, &node));
    p->from_context = node != NULL;
    return node ? p->api->GetEpApi()->EpGraphSupportInfo_AddNodesToFuse(support, &node, 1, &fusion)
                : NULL;
}

static ort_status *get_capability(ort_ep *self, const ort_graph *graph, ort_support *support) {
    provider *p = (provider *)self;
    const ort_node *parent = NULL;
    ORT_TRY(p->api->Graph_GetParentNode(graph, &parent));
    if (parent || p->fused) /* a branch, which belongs to its node; or nothing is left to claim */
        return NULL;
    ORT_TRY(note_path(p, graph));
    ORT_TRY(claim_context(p, graph, support));
    if (p->from_context)
        return NULL;
    if (!p->program) {
        ORT_TRY(open_any(p, graph));
        if (!p->program)
            return NULL;
        warn_of_mixing(p);
    }
    return claim(p, graph, support);
}

static ort_status *compile(ort_ep *self, const ort_graph **graphs, const ort_node **nodes, size_t n,
                           ort_compute **computes, ort_node **context_nodes) {
    provider *p = (provider *)self;
    gqac_diag diag;
    if (p->from_context && p->options.context)
        return status_printf(p->api, ORT_INVALID_ARGUMENT,
                             "gqac: ep.context_enable is 1, but the model is a context model\n"
                             "  try:   leave the entry out, or create the session of the original "
                             "model");
    if (n == 1 && p->from_context && !p->program) {
        ORT_TRY(context_open(p, graphs[0]));
        warn_of_mixing(p);
    }
    if (n != 1 || !p->program || p->fused)
        return status_printf(p->api, ORT_EP_FAIL,
                             "gqac: the session asks for %zu parts of the model to be compiled, "
                             "but the provider has claimed it as a whole",
                             n);
    /* Contexts of one thread have no region to wait for, so they share nothing. */
    if (p->options.threads != 1 &&
        gqac_threads_create(p->options.threads, &p->threads, &diag) != GQAC_OK)
        return status_of(p->api, &diag);
    ORT_TRY(compute_create(p, nodes[0], &computes[0]));
    return p->options.context && !p->from_context
               ? context_write(p, graphs[0], nodes[0], &context_nodes[0])
               : NULL;
}

static void release_computes(ort_ep *self, ort_compute **computes, size_t n) {
    (void)computes; /* the one that there is belongs to the provider */
    if (n)
        compute_free((provider *)self);
}

/* Stored in a context model, and given to ValidateCompiledModelCompatibilityInfo. */
static const char *get_compatibility(ort_ep *self, const ort_graph *graph) {
    const provider *p = (const provider *)self;
    (void)graph;
    return p->program ? gqac_program_profile(p->program) : "";
}

static const char *get_name(const ort_ep *self) {
    (void)self;
    return PROVIDER_NAME;
}

ort_status *provider_create(const ort_api *api, bool knows_shapes,
                            const ort_session_options *session, const ort_logger *logger,
                            ort_ep **ep) {
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
    p->knows_shapes = knows_shapes;
    p->logger = logger;
    *ep = &p->ep;
    return NULL;
}

void provider_free(provider *p) {
    if (!p)
        return;
    compute_free(p);
    gqac_threads_free(p->threads);
    gqac_program_free(p->program);
    free(p->path);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
