/* The provider: one for each session. It claims the whole graph or, if gqac cannot run all of it,
 * the parts of it that pay.
 *
 * GetCapability opens a stateless program, as `gqac run` does: of the model's file, if that is the
 * model that the session has (match.c), else of the session's graph (graph.c), else of each part of
 * that graph (parts.c). Then it claims their nodes. Compile notes the names of each fused node's
 * inputs and outputs, and writes a context model if the session asks for one (context.c); Compute
 * runs the program. Runs at the same time have a context each, from a pool. */
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

enum { THREADS_OF_RUNTIME = -1 };

/* The first versions of the runtime that have TensorTypeAndShape_HasShape, and that pass to a
 * provider inputs that only nested graphs read. */
enum { HAS_SHAPES = 12400, PASSES_NESTED = 12700 };

/* A value that gqac would need, but does not get from older versions. */
#define NOT_PASSED                                                                                 \
    "this ONNX Runtime does not pass the input '%.200s' to the provider, because only nested "     \
    "graphs read it"

/* Provider options; a text that is "" has gqac's default. */
typedef struct options {
    char target[16], math[16];
    int threads;               /* 0: gqac_threads_default; or THREADS_OF_RUNTIME */
    bool context, embed;       /* ep.context_enable, ep.context_embed_mode */
    char context_path[4096];   /* ep.context_file_path; "": not given */
    char weights_folder[4096]; /* of external data, of a model from bytes; "": not given */
} options;

typedef struct provider {
    ort_ep ep; /* first: what ONNX Runtime sees */
    const ort_api *api;
    const ort_logger *logger; /* of the session */
    int version;              /* of the runtime: 12301 is 1.23.1 */
    options options;
    char *path;          /* of the model; "": it was loaded from bytes */
    bool from_file;      /* the program was opened from that file, not from the session's graph */
    bool from_context;   /* the model is a context model, which Compile opens */
    bool whole;          /* the one part is the whole model */
    bool compiled;       /* nothing is left to claim */
    struct part **parts; /* what was claimed; n_parts 0: nothing */
    size_t n_parts;
    gqac_threads *threads; /* shared by the contexts; NULL: each computes on its caller's thread,
                              or with the threads of the runtime */
    pthread_mutex_t lock;  /* of `idle` of the parts */
} provider;

/* What one fused node computes. */
typedef struct part {
    ort_compute compute; /* first: what ONNX Runtime sees */
    provider *p;
    gqac_program *program;
    struct lease *idle; /* contexts that no Run uses */
    size_t n_in, n_out;
    char **in, **out; /* names, in the order of the fused node; NULL before Compile */
    char *artefact;   /* the file that Compile has written; NULL: none */
} part;

/* How the runtime lists the parts of a node or graph: first their number, then all of them. */
typedef ort_status *count_of_node(const ort_node *, size_t *);
typedef ort_status *values_of_node(const ort_node *, const ort_value_info **, size_t);
typedef ort_status *count_of_graph(const ort_graph *, size_t *);
typedef ort_status *values_of_graph(const ort_graph *, const ort_value_info **, size_t);

/* claim.c */
ort_status *provider_create(const ort_api *api, int version, const ort_session_options *session,
                            const ort_logger *logger, ort_ep **ep);
void provider_free(provider *p);
/* Claims the nodes as one, which the runtime then gives to Compile. */
ort_status *claim_nodes(const provider *p, const ort_node *const *nodes, size_t n,
                        ort_support *support);
/* Adds a part, which then owns the program; NULL: out of memory. */
part *provider_add(provider *p, gqac_program *program);

/* open.c: programs of a session's model. If gqac cannot run it, *program is NULL, and `why` has the
 * reason. */
/* Opens the file of the model or, if that is not the model that the session has, its graph. */
ort_status *open_whole(provider *p, const ort_graph *graph, gqac_program **program, char *why,
                       size_t size);
/* Opens a part of the graph; `target` NULL: that of the options. A program of target "ref" needs no
 * memory for weights, which it reads in the session: it must not run, nor outlive the call of
 * GetCapability. */
struct graph_part;
ort_status *open_part(const provider *p, const ort_graph *graph, const struct graph_part *part,
                      const char *target, gqac_program **program, char *why, size_t size);

/* parts.c: claims the parts of the graph that gqac can run and that pay. `why` is the reason why it
 * cannot run the whole. */
ort_status *parts_claim(provider *p, const ort_graph *graph, const char *why, ort_support *support);

/* errors.c: what gqac reports, as a status of ONNX Runtime. */
ort_status *status_of(const ort_api *api, const gqac_diag *diag);
ort_status *status_printf(const ort_api *api, int code, const char *format, ...) GQAC_PRINTF(3, 4);
ort_status *status_no_memory(const ort_api *api);
/* A line in the session's log: the provider's name, `what`, a colon and `why`. */
void provider_log(const provider *p, int severity, const char *what, const char *why);

/* options.c: reads the entries "ep.gqacexecutionprovider.*" of a session and tries them out. */
ort_status *options_read(const ort_api *api, const ort_session_options *session, options *o);
void options_apply(const options *o, gqac_options *into);

/* The same for a small program, which shows whether the options can be used. */
gqac_status options_try(const options *o, gqac_program **program, gqac_diag *diag);

/* nodes.c: the *n nodes of a graph, in a list that the caller frees. */
ort_status *graph_nodes(const ort_api *api, const ort_graph *graph, const ort_node ***nodes,
                        size_t *n);
/* A node's inputs or outputs, NULL where one is left out, in a list that the caller frees. */
ort_status *node_values(const ort_api *api, const ort_node *node, count_of_node *count,
                        values_of_node *values, const ort_value_info ***infos, size_t *n);
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
ort_status *match_graph(const provider *p, const ort_graph *graph, const char *path,
                        const gqac_program *program, bool *matches, char *why, size_t size);
/* Checks that the inputs and outputs of the fused node are those of the part's program. */
ort_status *match_fused(const part *t, const ort_node *fused);
/* True if the program has an output of that name. */
bool match_output(const gqac_program *program, const char *name);

/* compute.c: the part computes the node. */
ort_status *compute_open(part *t, const ort_node *node);
/* Frees what compute_open made; the program stays. */
void compute_close(part *t);

#endif
