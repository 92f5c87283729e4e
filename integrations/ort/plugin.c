/* What ONNX Runtime looks up in the library: CreateEpFactories and ReleaseEpFactory.
 *
 * The factory is static, and the library is linked so that it is never unloaded: sessions may
 * outlive the registration, and then still call it. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "context.h"

/* A version of ONNX Runtime, as version_number has it. 1.23.0 takes the memory of every provider
 * of a plugin for that of a device, and wants to copy what goes from one part of a model to
 * another. */
enum { OLDEST = 12301 };

typedef struct factory {
    ort_factory of; /* first: what ONNX Runtime sees */
    const ort_api_base *base;
    const ort_api *api;
    int version; /* of the runtime */
} factory;

static const char *get_name(const ort_factory *self) {
    (void)self;
    return PROVIDER_NAME;
}

static const char *get_vendor(const ort_factory *self) {
    (void)self;
    return "gqac";
}

static uint32_t get_vendor_id(const ort_factory *self) {
    (void)self;
    return 0; /* no vendor of devices */
}

static const char *get_version(const ort_factory *self) {
    (void)self;
    return gqac_version();
}

/* Tensors lie in the memory of the CPU, whichever target computes. */
static ort_status *get_devices(ort_factory *self, const ort_hardware *const *hardware, size_t n,
                               ort_device **devices, size_t capacity, size_t *n_devices) {
    const ort_api *api = ((factory *)self)->api;
    *n_devices = 0;
    for (size_t i = 0; i < n && *n_devices < capacity; i++) {
        if (api->HardwareDevice_Type(hardware[i]) != ORT_DEVICE_CPU)
            continue;
        ORT_TRY(
            api->GetEpApi()->CreateEpDevice(self, hardware[i], NULL, NULL, &devices[*n_devices]));
        ++*n_devices;
    }
    return NULL;
}

static ort_status *create_ep(ort_factory *self, const ort_hardware *const *hardware,
                             const ort_pairs *const *metadata, size_t n,
                             const ort_session_options *session, const ort_logger *logger,
                             ort_ep **ep) {
    (void)hardware;
    (void)metadata;
    (void)n;
    const factory *f = (factory *)self;
    *ep = NULL;
    return provider_create(f->api, f->version, session, logger, ep);
}

static void release_ep(ort_factory *self, ort_ep *ep) {
    (void)self;
    provider_free((provider *)ep);
}

static ort_status *validate_compiled(ort_factory *self, const ort_hardware *const *hardware,
                                     size_t n, const char *info, int *answer) {
    (void)hardware;
    (void)n;
    return context_compatibility(((factory *)self)->api, info, answer);
}

static ort_status *create_allocator(ort_factory *self, const void *memory, const ort_pairs *options,
                                    void **allocator) {
    (void)self;
    (void)memory;
    (void)options;
    *allocator = NULL; /* the runtime's own */
    return NULL;
}

static void release_allocator(ort_factory *self, void *allocator) {
    (void)self;
    (void)allocator;
}

static ort_status *create_transfer(ort_factory *self, void **transfer) {
    (void)self;
    *transfer = NULL; /* nothing to copy between devices */
    return NULL;
}

static bool is_stream_aware(const ort_factory *self) {
    (void)self;
    return false;
}

static ort_status *create_stream(ort_factory *self, const void *device, const ort_pairs *options,
                                 void **stream) {
    (void)self;
    (void)device;
    (void)options;
    *stream = NULL;
    return NULL;
}

static factory the_factory = {
    .of = {ORT_VERSION, get_name, get_vendor, get_devices, create_ep, release_ep, get_vendor_id,
           get_version, validate_compiled, create_allocator, release_allocator, create_transfer,
           is_stream_aware, create_stream},
};
static pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER; /* of base and api */

/* "1.23.1" is 12301; 0: not a version. */
static int version_number(const char *version) {
    int major = 0, minor = 0, patch = 0;
    /* NOLINTNEXTLINE(cert-err34-c): the runtime is trusted */
    return version && sscanf(version, "%d.%d.%d", &major, &minor, &patch) >= 2
               ? major * 10000 + minor * 100 + patch
               : 0;
}

/* Whether each slot that is used, before slot `end`, has a function. */
#define ORT_HAS(number, name, result, parameters) &&((number) >= end || table->name)
static bool has_api(const ort_api *table, int end) {
    return table->CreateStatus ORT_API_SLOTS(ORT_HAS);
}

static bool has_ep_api(const ort_ep_api *table, int end) {
    return table && table->CreateEpDevice ORT_EP_API_SLOTS(ORT_HAS);
}

static bool has_editor_api(const ort_editor_api *table, int end) {
    return table ORT_EDITOR_API_SLOTS(ORT_HAS);
}
#undef ORT_HAS

/* Whether a status has the text that it was made from. */
static bool keeps_text(const ort_api *api) {
    static const char text[] = "gqac reads its own words";
    ort_status *status = api->CreateStatus(ORT_FAIL, text);
    const char *found = status ? api->GetErrorMessage(status) : NULL;
    const bool same = found && strcmp(found, text) == 0;
    if (status)
        api->ReleaseStatus(status);
    return same;
}

/* Whether the tables are those that ort.h declares. */
static bool is_declared(const ort_api *api, int version) {
    const int end = version < HAS_SHAPES ? ORT_SLOTS_OF_24 : INT_MAX;
    return has_api(api, end) && has_ep_api(api->GetEpApi(), INT_MAX) &&
           has_editor_api(api->GetModelEditorApi(), INT_MAX) && keeps_text(api);
}

/* The tables of this runtime, or an error; CreateStatus is in the tables of every version. */
static ort_status *open_api(const ort_api_base *base, const ort_api **api) {
    const char *version = base->GetVersionString();
    const int number = version_number(version);
    const ort_api *oldest = base->GetApi(1), *own = NULL;
    if (!oldest)
        return NULL;
    if (number >= OLDEST)
        own = base->GetApi(ORT_VERSION);
    if (own && !is_declared(own, number))
        return status_printf(oldest, ORT_FAIL,
                             "gqac: the functions of ONNX Runtime %s are not where version %d of "
                             "the plugin interface has them\n"
                             "  try:   install ONNX Runtime from PyPI",
                             version, ORT_VERSION);
    *api = own;
    return own ? NULL
               : status_printf(oldest, ORT_FAIL,
                               "gqac: ONNX Runtime %s does not have version %d of the plugin "
                               "interface, or has it with errors\n"
                               "  try:   ONNX Runtime %d.%d.%d or newer",
                               version ? version : "(unknown)", ORT_VERSION, OLDEST / 10000,
                               OLDEST / 100 % 100, OLDEST % 100);
}

/* Two runtimes in one process have tables of their own, and the factory has one pointer to them. */
static ort_status *take_factory(const ort_api_base *base, const ort_api *api) {
    pthread_mutex_lock(&the_lock);
    const bool taken = the_factory.base && the_factory.base != base;
    if (!taken) {
        the_factory.base = base;
        the_factory.api = api;
        the_factory.version = version_number(base->GetVersionString());
    }
    pthread_mutex_unlock(&the_lock);
    return taken ? status_printf(api, ORT_FAIL,
                                 "gqac: another ONNX Runtime in this process uses this library\n"
                                 "  try:   register a copy of the file under another path")
                 : NULL;
}

GQAC_API ort_status *CreateEpFactories(const char *registered_name, const ort_api_base *base,
                                       const ort_logger *logger, ort_factory **factories,
                                       size_t max_factories, size_t *n_factories);
GQAC_API ort_status *CreateEpFactories(const char *registered_name, const ort_api_base *base,
                                       const ort_logger *logger, ort_factory **factories,
                                       size_t max_factories, size_t *n_factories) {
    const ort_api *api = NULL;
    (void)registered_name;
    (void)logger;
    *n_factories = 0;
    ORT_TRY(open_api(base, &api));
    if (!api)
        return NULL; /* a runtime that cannot even make a status gets no factory */
    if (!max_factories)
        return status_printf(api, ORT_INVALID_ARGUMENT,
                             "gqac: the list of factories has a capacity of 0");
    ORT_TRY(take_factory(base, api));
    factories[0] = &the_factory.of;
    *n_factories = 1;
    return NULL;
}

GQAC_API ort_status *ReleaseEpFactory(ort_factory *made);
GQAC_API ort_status *ReleaseEpFactory(ort_factory *made) {
    (void)made; /* static: sessions that are still alive use it */
    return NULL;
}
