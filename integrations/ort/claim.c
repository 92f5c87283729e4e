/* The provider of one session: what it claims, and what it makes of that. */
#include <stdio.h>
#include <stdlib.h>

#include "provider.h"

static void log_refusal(const provider *p, const char *why) {
    char text[sizeof(gqac_diag)];
    snprintf(text, sizeof text, PROVIDER_NAME " runs nothing of this model: %s", why);
    provider_log(p, ORT_LOG_WARNING, text);
}

/* Opens the file. *open is false, and the log has the reason, if gqac cannot run it. */
static ort_status *open_program(provider *p, const char *path, bool *open) {
    gqac_options options;
    gqac_diag diag;
    options_apply(&p->options, &options);
    const gqac_status status = gqac_program_open(path, &options, &p->program, &diag);
    *open = status == GQAC_OK;
    if (*open)
        return NULL;
    p->program = NULL;
    ort_status *said = status_of(p->api, &diag);
    if (status == GQAC_NO_MEMORY || status == GQAC_INTERNAL)
        return said;
    log_refusal(p, p->api->GetErrorMessage(said));
    p->api->ReleaseStatus(said);
    return NULL;
}

static ort_status *claim(provider *p, const ort_graph *graph, ort_support *support) {
    const ort_fusion fusion = {ORT_VERSION, true}; /* gqac reads the constants in the file */
    const ort_api *api = p->api;
    const ort_node **nodes;
    ort_status *status = NULL;
    size_t n;
    ORT_TRY(graph_nodes(api, graph, &nodes, &n));
    if (n)
        status = api->GetEpApi()->EpGraphSupportInfo_AddNodesToFuse(support, nodes, n, &fusion);
    free(nodes);
    if (!status) {
        char text[512];
        snprintf(text, sizeof text, PROVIDER_NAME " runs the whole model, profile %s",
                 gqac_program_profile(p->program));
        provider_log(p, ORT_LOG_INFO, text);
    }
    return status;
}

static ort_status *get_capability(ort_ep *self, const ort_graph *graph, ort_support *support) {
    provider *p = (provider *)self;
    const ort_node *parent = NULL;
    const char *path = NULL;
    char why[512];
    bool open = p->program != NULL, matches;
    ORT_TRY(p->api->Graph_GetParentNode(graph, &parent));
    if (parent || p->fused) /* a branch, which belongs to its node; or nothing is left to claim */
        return NULL;
    ORT_TRY(p->api->Graph_GetModelPath(graph, &path));
    if (!path || !*path) {
        log_refusal(p, "it was loaded from memory, and has no file that gqac could read");
        return NULL;
    }
    if (!open)
        ORT_TRY(open_program(p, path, &open));
    if (!open)
        return NULL;
    ORT_TRY(match_graph(p, graph, path, &matches, why, sizeof why));
    if (matches)
        return claim(p, graph, support);
    log_refusal(p, why);
    gqac_program_free(p->program);
    p->program = NULL;
    return NULL;
}

static ort_status *compile(ort_ep *self, const ort_graph **graphs, const ort_node **nodes, size_t n,
                           ort_compute **computes, ort_node **context_nodes) {
    provider *p = (provider *)self;
    gqac_diag diag;
    (void)graphs;
    (void)context_nodes;
    if (n != 1 || !p->program || p->fused)
        return status_printf(p->api, ORT_EP_FAIL,
                             "gqac: the session asks for %zu parts of the model to be compiled, "
                             "but the provider has claimed it as a whole",
                             n);
    /* Contexts of one thread have no region to wait for, so they share nothing. */
    if (p->options.threads != 1 &&
        gqac_threads_create(p->options.threads, &p->threads, &diag) != GQAC_OK)
        return status_of(p->api, &diag);
    return compute_create(p, nodes[0], &computes[0]);
}

static void release_computes(ort_ep *self, ort_compute **computes, size_t n) {
    (void)computes; /* the one that there is belongs to the provider */
    if (n)
        compute_free((provider *)self);
}

static const char *get_name(const ort_ep *self) {
    (void)self;
    return PROVIDER_NAME;
}

ort_status *provider_create(const ort_api *api, const ort_session_options *session,
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
    p->api = api;
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
    pthread_mutex_destroy(&p->lock);
    free(p);
}
