/* Provider options: the session's entries "ep.gqacexecutionprovider.NAME", and those of context
 * models, "ep.context_NAME".
 *
 * A name that is not known and a value that gqac refuses are errors when the session is created:
 * the runtime would only log an error of GetCapability and go on without the provider. gqac itself
 * decides which targets and math there are, by opening a program of one node with them. */
#include <stdlib.h>
#include <string.h>

#include "provider.h"

#define PREFIX  "ep.gqacexecutionprovider."
#define CONTEXT "ep.context_"

static ort_status *read_text(const ort_api *api, const char *name, const char *value, char *text,
                             size_t size) {
    if (!*value || strlen(value) >= size)
        return status_printf(api, ORT_INVALID_ARGUMENT,
                             "gqac: the provider option %s has the wrong value '%.40s'\n"
                             "  rule:  a name of 1 to %zu characters",
                             name, value, size - 1);
    memcpy(text, value, strlen(value) + 1);
    return NULL;
}

static ort_status *read_threads(const ort_api *api, const char *value, int *threads) {
    char *end;
    if (strcmp(value, "runtime") == 0) {
        *threads = THREADS_OF_RUNTIME;
        return NULL;
    }
    const long n = strtol(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || n > 1024)
        return status_printf(api, ORT_INVALID_ARGUMENT,
                             "gqac: the provider option threads has the wrong value '%.40s'\n"
                             "  rule:  0 (one for each core) to 1024, or runtime",
                             value);
    *threads = (int)n;
    return NULL;
}

static ort_status *read_path(const ort_api *api, const char *key, const char *value,
                             char path[4096]) {
    if (strlen(value) >= 4096)
        return status_printf(api, ORT_INVALID_ARGUMENT,
                             "gqac: the path in %s has %zu bytes\n  rule:  at most 4095", key,
                             strlen(value));
    memcpy(path, value, strlen(value) + 1);
    return NULL;
}

/* Entries of context models; check() tests their combination after all have been read. */
static ort_status *read_context(const ort_api *api, const char *key, const char *value,
                                options *o) {
    const char *name = key + strlen(CONTEXT);
    bool *flag = strcmp(name, "enable") == 0       ? &o->context
                 : strcmp(name, "embed_mode") == 0 ? &o->embed
                                                   : NULL;
    if (flag) {
        *flag = strcmp(value, "1") == 0;
        if (!*flag && strcmp(value, "0") != 0)
            return status_printf(api, ORT_INVALID_ARGUMENT,
                                 "gqac: %s has the wrong value '%.40s'\n  rule:  0 or 1", key,
                                 value);
    }
    return strcmp(name, "file_path") == 0 ? read_path(api, key, value, o->context_path) : NULL;
}

static ort_status *read_entry(const ort_api *api, const char *key, const char *value, options *o) {
    if (strcmp(key, "session.model_external_initializers_file_folder_path") == 0)
        return read_path(api, key, value, o->weights_folder);
    if (strncmp(key, CONTEXT, strlen(CONTEXT)) == 0)
        return read_context(api, key, value, o);
    if (strncmp(key, PREFIX, strlen(PREFIX)) != 0)
        return NULL;
    const char *name = key + strlen(PREFIX);
    if (strcmp(name, "target") == 0)
        return read_text(api, name, value, o->target, sizeof o->target);
    if (strcmp(name, "math") == 0)
        return read_text(api, name, value, o->math, sizeof o->math);
    if (strcmp(name, "threads") == 0)
        return read_threads(api, value, &o->threads);
    return status_printf(api, ORT_INVALID_ARGUMENT,
                         "gqac: there is no provider option '%.60s'\n"
                         "  try:   target, threads or math",
                         name);
}

void options_apply(const options *o, gqac_options *into) {
    gqac_options_init(into);
    into->stateless = true;
    if (*o->target)
        into->target = o->target;
    if (*o->math)
        into->math = o->math;
}

gqac_status options_try(const options *o, gqac_program **program, gqac_diag *diag) {
    static const char text[] = "graph @options(%x: f32[1]) {\n"
                               "  %y = Neg %x : f32[1]\n"
                               "  return %y as \"y\"\n"
                               "}\n";
    gqac_options options;
    gqac_model_bytes bytes;
    options_apply(o, &options);
    gqac_model_bytes_init(&bytes, text, sizeof text - 1);
    options.bytes = &bytes;
    return gqac_program_open("provider options.gq", &options, program, diag);
}

/* Finds out whether the options, each of them well-formed, can be used. */
static ort_status *check(const ort_api *api, const options *o) {
    gqac_diag diag;
    gqac_program *program;
    if (o->context && o->embed)
        return status_printf(api, ORT_NOT_IMPLEMENTED,
                             "gqac: ep.context_embed_mode is 1, which is not supported\n"
                             "  rule:  a compiled model is a file beside the context model, which "
                             "is mapped, not read\n  try:   ep.context_embed_mode 0");
    if (options_try(o, &program, &diag) != GQAC_OK)
        return status_of(api, &diag);
    gqac_program_free(program);
    return NULL;
}

ort_status *options_read(const ort_api *api, const ort_session_options *session, options *o) {
    ort_pairs *pairs;
    const char *const *keys, *const *values;
    size_t n;
    ort_status *status = NULL;
    memset(o, 0, sizeof *o);
    ORT_TRY(api->GetSessionOptionsConfigEntries(session, &pairs));
    api->GetKeyValuePairs(pairs, &keys, &values, &n);
    for (size_t i = 0; i < n && !status; i++)
        status = read_entry(api, keys[i], values[i], o);
    api->ReleaseKeyValuePairs(pairs);
    return status ? status : check(api, o);
}
