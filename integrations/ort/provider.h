/* The provider: one for each session. It claims a whole graph or nothing.
 *
 * GetCapability opens a stateless program, as `gqac run` does: of the model's file, if that is the
 * model that the session has (match.c), else of the session's graph (graph.c). Then it claims every
 * node. Compile notes the names of the fused node's inputs and outputs, and writes a context model
 * if the session asks for one (context.c); Compute runs the program. Runs at the same time have a
 * context each, from a pool. */
#ifndef GQAC_ORT_PROVIDER_H
#define GQAC_ORT_PROVIDER_H

#include <gqac/gqac.h>
#include <pthread.h>

#include "ort.h"

#define PROVIDER_NAME "GqacExecutionProvider"

/* Evaluates a call of ONNX Runtime, which returns NULL or a status. */
#define ORT_TRY(call)                                                                              \
    do {                                                                                           \
        ort_status *ort_try_ = (call);                                                             \
        if (ort_try_)                                                                              \
            return ort_try_;                                                                       \
    } while (0)

/* Provider options; a text that is "" has gqac's default. */
typedef struct options {
    char target[16], math[16];
    int threads;               /* 0: gqac_threads_default */
    bool context, embed;       /* ep.context_enable, ep.context_embed_mode */
    char context_path[4096];   /* ep.context_file_path; "": not given */
    char weights_folder[4096]; /* of external data, of a model from bytes; "": not given */
} options;

typedef struct provider {
    ort_ep ep; /* first: what ONNX Runtime sees */
    const ort_api *api;
    const ort_logger *logger; /* of the session */
    bool knows_shapes;        /* the runtime has TensorTypeAndShape_HasShape */
    options options;
    char *path;            /* of the model; "": it was loaded from bytes */
    bool from_file;        /* the program was opened from that file, not from the session's graph */
    bool from_context;     /* the model is a context model, which Compile opens */
    gqac_program *program; /* NULL: nothing is claimed */
    gqac_threads *threads; /* shared by the contexts; NULL: each computes on its caller's thread */
    pthread_mutex_t lock;  /* of `idle` */
    struct lease *idle;    /* contexts that no Run uses */
    struct fused *fused;   /* the node that Compile was given; NULL: none yet */
} provider;

/* How the runtime lists the parts of a node or graph: first their number, then all of them. */
typedef ort_status *count_of_node(const ort_node *, size_t *);
typedef ort_status *values_of_node(const ort_node *, const ort_value_info **, size_t);
typedef ort_status *count_of_graph(const ort_graph *, size_t *);
typedef ort_status *values_of_graph(const ort_graph *, const ort_value_info **, size_t);

/* claim.c */
ort_status *provider_create(const ort_api *api, bool knows_shapes,
                            const ort_session_options *session, const ort_logger *logger,
                            ort_ep **ep);
void provider_free(provider *p);

/* errors.c: what gqac reports, as a status of ONNX Runtime. */
ort_status *status_of(const ort_api *api, const gqac_diag *diag);
ort_status *status_printf(const ort_api *api, int code, const char *format, ...) GQAC_PRINTF(3, 4);
ort_status *status_no_memory(const ort_api *api);
/* A line in the session's log. */
void provider_log(const provider *p, int severity, const char *text);

/* options.c: reads the entries "ep.gqacexecutionprovider.*" of a session and tries them out. */
ort_status *options_read(const ort_api *api, const ort_session_options *session, options *o);
void options_apply(const options *o, gqac_options *into);

/* The same for a small program, which shows whether the options can be used. */
gqac_status options_try(const options *o, gqac_program **program, gqac_diag *diag);

/* nodes.c: the *n nodes of a graph, in a list that the caller frees. */
ort_status *graph_nodes(const ort_api *api, const ort_graph *graph, const ort_node ***nodes,
                        size_t *n);
/* The names of a node's inputs or outputs; the caller frees them, also after a failure. */
ort_status *node_names(const ort_api *api, const ort_node *node, count_of_node *count,
                       values_of_node *values, char ***names, size_t *n);
void node_names_free(char **names, size_t n);
/* *found NULL: the node has no attribute of that name and type. */
ort_status *attribute_find(const ort_api *api, const ort_node *node, const char *name, int type,
                           const ort_attr **found);
/* Reads the value of an attribute into memory that the caller frees; a NUL follows it. */
ort_status *attribute_read(const ort_api *api, const ort_attr *attr, int type, void **data,
                           size_t *size);

/* match.c: whether `graph` is the model in the file that `program` was opened from. *matches is
 * false when it is not, and `why` then says in what they differ. */
ort_status *match_graph(const provider *p, const ort_graph *graph, const char *path, bool *matches,
                        char *why, size_t size);
/* Checks that the inputs and outputs of the fused node are those of p->program. */
ort_status *match_fused(const provider *p, const ort_node *fused);

/* compute.c */
ort_status *compute_create(provider *p, const ort_node *node, ort_compute **compute);
void compute_free(provider *p);

#endif
