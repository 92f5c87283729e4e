/* Writing and loading context models: see context.h. */
#include "context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph.h"

enum { NOT_APPLICABLE = 0, OPTIMAL = 1, UNSUPPORTED = 3 }; /* OrtCompiledModelCompatibility */

/* Attributes of EPContext that are read here. */
#define SOURCE   "source"           /* the provider's name */
#define CONTENT  "ep_cache_context" /* name of the artefact; in the folder of the context model */
#define EMBEDDED "embed_mode"       /* 0: CONTENT is a file's name */
#define NOTES    "notes"            /* digest of the model that was compiled */

/* ---- attributes ------------------------------------------------------------ */

/* Reads a text attribute into memory that the caller frees; NULL: the node has none. A text with a
 * zero byte is refused: what follows would be ignored. */
static ort_status *read_text(const ort_api *api, const ort_node *node, const char *name,
                             char **text) {
    const ort_attr *attr;
    void *data = NULL;
    size_t size = 0;
    *text = NULL;
    ORT_TRY(attribute_find(api, node, name, ORT_ATTR_STRING, &attr));
    if (attr)
        ORT_TRY(attribute_read(api, attr, ORT_ATTR_STRING, &data, &size));
    if (data && strlen(data) + 1 < size) {
        free(data);
        return status_printf(api, ORT_EP_FAIL,
                             "gqac: attribute '%s' of the EPContext node has a zero byte", name);
    }
    *text = data;
    return NULL;
}

static ort_status *read_int(const ort_api *api, const ort_node *node, const char *name,
                            int64_t *value) {
    const ort_attr *attr;
    size_t size;
    ORT_TRY(attribute_find(api, node, name, ORT_ATTR_INT, &attr));
    return attr ? api->ReadOpAttr(attr, ORT_ATTR_INT, value, sizeof *value, &size) : NULL;
}

/* ---- loading --------------------------------------------------------------- */

ort_status *context_is(const provider *p, const ort_node *node, bool *own) {
    const char *op, *domain;
    char *source = NULL;
    *own = false;
    ORT_TRY(p->api->Node_GetOperatorType(node, &op));
    ORT_TRY(p->api->Node_GetDomain(node, &domain));
    if (strcmp(op, "EPContext") != 0 || strcmp(domain, "com.microsoft") != 0)
        return NULL;
    ORT_TRY(read_text(p->api, node, SOURCE, &source));
    *own = source && strcmp(source, PROVIDER_NAME) == 0;
    free(source);
    return NULL;
}

/* Sets *node to the EPContext node of this provider; NULL: the graph has none. */
static ort_status *find_own(const provider *p, const ort_graph *graph, const ort_node **node) {
    const ort_node **nodes;
    ort_status *status = NULL;
    size_t n;
    *node = NULL;
    ORT_TRY(graph_nodes(p->api, graph, &nodes, &n));
    for (size_t i = 0; i < n && !status && !*node; i++) {
        bool own;
        status = context_is(p, nodes[i], &own);
        if (!status && own)
            *node = nodes[i];
    }
    free(nodes);
    return status;
}

/* The context model's own path: of its file or, if it was loaded from bytes, of the session's entry
 * ep.context_file_path. "": unknown. */
static const char *path_of_model(const provider *p) {
    return *p->path ? p->path : p->options.context_path;
}

/* The path of the artefact, in memory that the caller frees. Its name comes from the file and must
 * not lead out of the folder. */
static ort_status *artefact_path(const provider *p, const char *name, char **path) {
    const char *model = path_of_model(p), *slash = strrchr(model, '/');
    const size_t folder = slash ? (size_t)(slash - model) + 1 : 0;
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return status_printf(p->api, ORT_EP_FAIL,
                             "gqac: the context model names the artefact '%.200s'\n"
                             "  rule:  a file in the folder of the context model, without '/'",
                             name);
    if (!*model)
        return status_printf(p->api, ORT_EP_FAIL,
                             "gqac: the context model was loaded from memory, so the folder of its "
                             "artefact '%.200s' is unknown\n"
                             "  try:   set ep.context_file_path to the path that it was written to",
                             name);
    *path = malloc(folder + strlen(name) + 1);
    if (!*path)
        return status_no_memory(p->api);
    memcpy(*path, model, folder);
    memcpy(*path + folder, name, strlen(name) + 1);
    return NULL;
}

/* The artefact must be the one that was written with the context model. */
static ort_status *check_digest(const provider *p, const char *path, const gqac_options *options,
                                const char *digest) {
    gqac_diag diag;
    char hex[65];
    if (gqac_model_digest(path, options, hex, &diag) != GQAC_OK)
        return status_of(p->api, &diag);
    if (strcmp(hex, digest) == 0)
        return NULL;
    return status_printf(p->api, ORT_EP_FAIL,
                         "gqac: the artefact was compiled from another model than the context "
                         "model\n  where: %.400s\n  rule:  model digest %.64s, not %s\n"
                         "  try:   put back the artefact, or write both files again",
                         path, digest, hex);
}

static ort_status *open_artefact(const provider *p, const char *path, const char *digest,
                                 gqac_program **program) {
    gqac_options options;
    gqac_diag diag;
    options_apply(&p->options, &options);
    ORT_TRY(check_digest(p, path, &options, digest));
    return gqac_program_open(path, &options, program, &diag) == GQAC_OK ? NULL
                                                                        : status_of(p->api, &diag);
}

ort_status *context_open(const provider *p, const ort_graph *graph, gqac_program **program) {
    const ort_node *node;
    char *name = NULL, *digest = NULL, *path = NULL;
    int64_t embedded = 0;
    ORT_TRY(find_own(p, graph, &node));
    if (!node)
        return status_printf(p->api, ORT_EP_FAIL, "gqac: the graph has no EPContext node");
    ORT_TRY(read_int(p->api, node, EMBEDDED, &embedded));
    ort_status *status = read_text(p->api, node, CONTENT, &name);
    if (!status)
        status = read_text(p->api, node, NOTES, &digest);
    if (!status && (embedded || !name || !digest))
        status = status_printf(p->api, ORT_EP_FAIL,
                               "gqac: the EPContext node was not written by " PROVIDER_NAME "\n"
                               "  rule:  its " EMBEDDED " is 0, and it has " CONTENT " and " NOTES);
    if (!status)
        status = artefact_path(p, name, &path);
    if (!status)
        status = open_artefact(p, path, digest, program);
    free(path);
    free(digest);
    free(name);
    return status;
}

/* ---- writing --------------------------------------------------------------- */

/* "FOLDER/model.onnx", without ep.context_file_path, has the context model
 * "FOLDER/model_ctx.onnx"; the artefacts of "NAME.onnx" are "NAME.gqac", "NAME_2.gqac", ... */
static ort_status *new_path(const provider *p, size_t index, char **path) {
    const bool given = *p->options.context_path;
    const char *model = given ? p->options.context_path : p->path, *middle = given ? "" : "_ctx";
    const char *slash = strrchr(model, '/'), *dot = strrchr(slash ? slash : model, '.');
    const size_t stem = dot ? (size_t)(dot - model) : strlen(model);
    const size_t size = stem + sizeof "_ctx_.gqac" + 20;
    char number[24] = "";
    if (!*model)
        return status_printf(p->api, ORT_INVALID_ARGUMENT,
                             "gqac: the model was loaded from memory, so its context model has no "
                             "folder for the artefact\n  try:   set ep.context_file_path");
    *path = malloc(size);
    if (!*path)
        return status_no_memory(p->api);
    if (index)
        snprintf(number, sizeof number, "_%zu", index + 1);
    snprintf(*path, size, "%.*s%s%s.gqac", (int)stem, model, middle, number);
    if (access(*path, F_OK) != 0)
        return NULL;
    ort_status *status = status_printf(p->api, ORT_EP_FAIL,
                                       "gqac: the file %.400s exists\n"
                                       "  rule:  the artefact of a context model is a new file\n"
                                       "  try:   remove it, or choose another ep.context_file_path",
                                       *path);
    free(*path);
    return status;
}

/* Compiles the model as it was opened, from its file or from the session's graph. */
static ort_status *compile_to(const provider *p, const ort_graph *graph, const char *path) {
    graph_model model;
    gqac_model_bytes bytes;
    gqac_options options;
    gqac_diag diag;
    ort_status *status = NULL;
    options_apply(&p->options, &options);
    memset(&model, 0, sizeof model);
    if (!p->from_file) {
        status = graph_write(p, graph, NULL, "", &model);
        if (!status && *model.why) /* the graph of a fused node has what the session's had not */
            status = status_printf(p->api, ORT_EP_FAIL, "gqac: %s", model.why);
        graph_bytes(&model, &bytes);
        options.bytes = &bytes;
    }
    const char *name = p->from_file ? p->path : "the session's graph";
    if (!status && gqac_compile(name, &options, GQAC_EMIT_GQAC, path, &diag) != GQAC_OK)
        status = status_of(p->api, &diag);
    graph_free(&model);
    return status;
}

enum { N_ATTRIBUTES = 7 };

static ort_status *make_attributes(const provider *p, const ort_node *fused, const char *path,
                                   const char *digest, ort_attr *attrs[N_ATTRIBUTES]) {
    const ort_api *api = p->api;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *partition;
    static const int64_t yes = 1, no = 0;
    ORT_TRY(api->Node_GetName(fused, &partition));
    const struct {
        const char *name, *text;
        const int64_t *number;
    } values[N_ATTRIBUTES] = {{SOURCE, PROVIDER_NAME, NULL},
                              {CONTENT, name, NULL},
                              {EMBEDDED, NULL, &no},
                              {NOTES, digest, NULL},
                              {"main_context", NULL, &yes},
                              {"ep_sdk_version", gqac_version(), NULL},
                              {"partition_name", partition, NULL}};
    for (int i = 0; i < N_ATTRIBUTES; i++) {
        const char *text = values[i].text;
        ORT_TRY(api->CreateOpAttr(values[i].name, text ? (const void *)text : values[i].number,
                                  text ? (int)strlen(text) : 1,
                                  text ? ORT_ATTR_STRING : ORT_ATTR_INT, &attrs[i]));
    }
    return NULL;
}

static ort_status *make_node(const provider *p, const ort_node *fused, const char *path,
                             const char *digest, ort_node **made) {
    const ort_api *api = p->api;
    ort_attr *attrs[N_ATTRIBUTES] = {NULL};
    char **in = NULL, **out = NULL;
    const char *name;
    size_t n_in = 0, n_out = 0;
    ort_status *status = make_attributes(p, fused, path, digest, attrs);
    if (!status)
        status = api->Node_GetName(fused, &name);
    if (!status)
        status = node_names(api, fused, api->Node_GetNumInputs, api->Node_GetInputs, &in, &n_in);
    if (!status)
        status =
            node_names(api, fused, api->Node_GetNumOutputs, api->Node_GetOutputs, &out, &n_out);
    if (!status) /* CreateNode copies the attributes */
        status = api->GetModelEditorApi()->CreateNode(
            "EPContext", "com.microsoft", name, (const char *const *)in, n_in,
            (const char *const *)out, n_out, attrs, N_ATTRIBUTES, made);
    for (int i = 0; i < N_ATTRIBUTES; i++)
        if (attrs[i])
            api->ReleaseOpAttr(attrs[i]);
    node_names_free(in, n_in);
    node_names_free(out, n_out);
    return status;
}

ort_status *context_write(part *t, const ort_graph *graph, const ort_node *fused, ort_node **made) {
    const provider *p = t->p;
    gqac_options options;
    gqac_diag diag;
    char hex[65], *path = NULL;
    size_t index = 0;
    while (p->parts[index] != t)
        index++;
    ORT_TRY(new_path(p, index, &path));
    gqac_program_free(t->program); /* memory for one copy of the weights: compiling packs its own */
    t->program = NULL;
    ort_status *status = compile_to(p, graph, path);
    if (status) {
        free(path);
        return status;
    }
    t->artefact = path;
    options_apply(&p->options, &options);
    if (gqac_model_digest(path, &options, hex, &diag) != GQAC_OK ||
        gqac_program_open(path, &options, &t->program, &diag) != GQAC_OK)
        return status_of(p->api, &diag);
    return make_node(p, fused, path, hex, made);
}

/* ---- compatibility --------------------------------------------------------- */

/* A profile begins with "gqac-nVERSION/TARGET/MATH/". A program of the same target and math tells
 * which profile this library has. */
ort_status *context_compatibility(const ort_api *api, const char *profile, int *answer) {
    options o = {.threads = 1};
    gqac_program *program;
    gqac_diag diag;
    *answer = NOT_APPLICABLE;
    if (!profile || sscanf(profile, "gqac-n%*d/%15[^/]/%15[^/]/", o.target, o.math) != 2)
        return NULL;
    *answer = UNSUPPORTED;
    const gqac_status status = options_try(&o, &program, &diag);
    if (status == GQAC_NO_MEMORY || status == GQAC_INTERNAL)
        return status_of(api, &diag);
    if (status != GQAC_OK)
        return NULL;
    if (strcmp(profile, gqac_program_profile(program)) == 0)
        *answer = OPTIMAL;
    gqac_program_free(program);
    return NULL;
}
