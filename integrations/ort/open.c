/* Opening programs of a session's model: of its file, of the session's graph, or of a part of it.
 */
#include <stdio.h>
#include <string.h>

#include "graph.h"

/* Opens a program of a file, or of the bytes if they are not NULL. */
static ort_status *open_program(const provider *p, const char *path, const gqac_model_bytes *bytes,
                                const char *root, const char *target, gqac_program **program,
                                char *why, size_t size) {
    gqac_options options;
    gqac_diag diag;
    options_apply(&p->options, &options);
    options.bytes = bytes;
    options.model_root = root;
    if (target)
        options.target = target;
    const gqac_status status = gqac_program_open(path, &options, program, &diag);
    if (status == GQAC_OK)
        return NULL;
    *program = NULL;
    ort_status *said = status_of(p->api, &diag);
    if (status == GQAC_NO_MEMORY || status == GQAC_INTERNAL)
        return said;
    snprintf(why, size, "%s", p->api->GetErrorMessage(said));
    p->api->ReleaseStatus(said);
    return NULL;
}

/* Opens the file, if it is the model that the session has. */
static ort_status *open_file(const provider *p, const ort_graph *graph, const char *path,
                             gqac_program **program, char *why, size_t size) {
    bool matches = false;
    ORT_TRY(open_program(p, path, NULL, NULL, NULL, program, why, size));
    if (!*program)
        return NULL;
    ort_status *status = match_graph(p, graph, path, *program, &matches, why, size);
    if (matches)
        return status;
    gqac_program_free(*program);
    *program = NULL;
    return status;
}

/* Opens the session's own graph, with weights in files beneath the root, if it is not "". */
static ort_status *open_graph(const provider *p, const ort_graph *graph, const graph_part *part,
                              const char *root, const char *target, gqac_program **program,
                              char *why, size_t size) {
    graph_model model;
    gqac_model_bytes bytes;
    ort_status *status = graph_write(p, graph, part, root, &model);
    *program = NULL;
    if (!status && *model.why)
        snprintf(why, size, "%s", model.why);
    if (!status && !*model.why) {
        graph_bytes(&model, &bytes);
        bytes.copy = !target; /* a program for the check of one node does not stay */
        status = open_program(p, "the session's graph", &bytes, *root ? root : NULL, target,
                              program, why, size);
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

ort_status *open_part(const provider *p, const ort_graph *graph, const graph_part *part,
                      const char *target, gqac_program **program, char *why, size_t size) {
    char folder[4096];
    const char *root = weights_folder(p, folder);
    ORT_TRY(open_graph(p, graph, part, root, target, program, why, size));
    if (!*program && *root) /* links may lead out of the folder, which gqac does not follow */
        ORT_TRY(open_graph(p, graph, part, "", target, program, why, size));
    return NULL;
}

ort_status *open_whole(provider *p, const ort_graph *graph, gqac_program **program, char *why,
                       size_t size) {
    *program = NULL;
    if (*p->path)
        ORT_TRY(open_file(p, graph, p->path, program, why, size));
    p->from_file = *program != NULL;
    if (*program)
        return NULL;
    if (*why)
        provider_log(p, ORT_LOG_WARNING, "reads the graph of the session instead of the file", why);
    return open_part(p, graph, NULL, NULL, program, why, size);
}
