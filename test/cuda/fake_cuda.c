/* A CUDA driver without a device, for tests: libcuda.so.1. Memory of the "device" is memory of the
 * host, and launches compute nothing, so results are what was in the memory: zeros. It counts what
 * is allocated and freed, and reports it when the process ends.
 *
 *   FAKE_CUDA_LOG=FILE      lines that are appended at the end: the number of calls, what has not
 *                           been freed, and the names of the requested kernels
 *   FAKE_CUDA_FAIL=N        the N-th call that may fail fails (from 1; 0: none)
 *   FAKE_CUDA_ERROR=CODE    with this CUresult; after 700 (an illegal address) all calls fail
 *   FAKE_CUDA_MEMORY=N      the device has N bytes (0: as many as the host)
 *   FAKE_CUDA_MAJOR=N       the compute capability (9)
 *
 * With code of emulated_compile.c, kernels that are launched one by one compute on the CPU
 * (GQAC_CUDA_GRAPHS=off). FAKE_CUDA_LATE chooses the second way of emulator.h. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, ILLEGAL_ADDRESS = 700 };
static struct {
    long calls, memory, bytes, streams, contexts, modules, current, launches, graphs, updates,
        syncs;
    long bad;
    int lost;
    bool emulates;
    char failed[64];
    FILE *log;
} fake;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

static void finish(void) {
    if (!fake.log)
        return;
    fprintf(fake.log,
            "calls %ld\nleft %ld\ncurrent %ld\nlaunches %ld\ngraphs %ld\nupdates %ld\nsyncs %ld\n"
            "bad %ld\nfailed %s\n",
            fake.calls, fake.memory + fake.streams + fake.contexts + fake.modules, fake.current,
            fake.launches, fake.graphs, fake.updates, fake.syncs, fake.bad, fake.failed);
    fclose(fake.log);
}

typedef unsigned long long address;

/* Copies to the device are made as late as allowed: the memory that they read must still be
 * valid. */
typedef struct copy {
    address to;
    const void *from;
    size_t bytes;
} copy;
enum { MOST_COPIES = 4096 };
static copy copies[MOST_COPIES];
static int n_copies;

static void arrive(void) {
    for (int i = 0; i < n_copies; i++)
        memcpy((void *)(size_t)copies[i].to, copies[i].from, copies[i].bytes);
    n_copies = 0;
}

/* The result of a call that may fail. If it fails, copies that are not yet made are lost. */
static int call(const char *name) {
    if (fake.lost)
        return ILLEGAL_ADDRESS;
    if (++fake.calls != number("FAKE_CUDA_FAIL"))
        return 0;
    snprintf(fake.failed, sizeof fake.failed, "%s", name);
    n_copies = 0;
    const int error = (int)number("FAKE_CUDA_ERROR");
    fake.lost = error == ILLEGAL_ADDRESS;
    return error ? error : OUT_OF_MEMORY;
}
#define CALL()                                                                                     \
    do {                                                                                           \
        const int code_ = call(__func__);                                                          \
        if (code_)                                                                                 \
            return code_;                                                                          \
    } while (0)
/* The same for calls that need a current context. */
#define CALL_IN_CONTEXT()                                                                          \
    do {                                                                                           \
        if (fake.current != 1) {                                                                   \
            fake.bad++;                                                                            \
            return INVALID_CONTEXT;                                                                \
        }                                                                                          \
        CALL();                                                                                    \
    } while (0)

#define API __attribute__((visibility("default")))

/* For C tests: the number of calls so far that may fail, the number of allocated bytes, and the
 * kind of the last call that failed: one that makes or updates graphs, after which kernels are
 * launched without graphs; or a launch. */
API long fake_cuda_calls(void);
API long fake_cuda_calls(void) {
    return fake.calls;
}
API long fake_cuda_bytes(void);
API long fake_cuda_bytes(void) {
    return fake.bytes;
}
API long fake_cuda_lost_graph(void);
API long fake_cuda_lost_graph(void) {
    return strncmp(fake.failed, "cuGraph", 7) == 0 && strcmp(fake.failed, "cuGraphLaunch") != 0;
}
API long fake_cuda_lost_launch(void);
API long fake_cuda_lost_launch(void) {
    return strcmp(fake.failed, "cuLaunchKernel") == 0 || strcmp(fake.failed, "cuGraphLaunch") == 0;
}
API int cuInit(unsigned flags);
API int cuInit(unsigned flags) {
    const char *path = getenv("FAKE_CUDA_LOG");
    fake.log = path ? fopen(path, "a") : NULL;
    atexit(finish);
    CALL();
    return flags ? 1 : 0;
}
API int cuDriverGetVersion(int *version);
API int cuDriverGetVersion(int *version) {
    CALL();
    *version = 13000;
    return 0;
}
API int cuGetErrorName(int code, const char **name);
API int cuGetErrorName(int code, const char **name) {
    *name = code == OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : code == 100             ? "CUDA_ERROR_NO_DEVICE"
                                      : "CUDA_ERROR_UNKNOWN";
    return 0;
}
API int cuDeviceGetCount(int *n);
API int cuDeviceGetCount(int *n) {
    CALL();
    *n = 1;
    return 0;
}
API int cuDeviceGet(int *device, int index);
API int cuDeviceGet(int *device, int index) {
    CALL();
    *device = index;
    return index == 0 ? 0 : 101;
}
API int cuDeviceGetName(char *name, int size, int device);
API int cuDeviceGetName(char *name, int size, int device) {
    CALL();
    const char *own = getenv("FAKE_CUDA_NAME");
    snprintf(name, (size_t)size, "%s %d", own ? own : "Fake", device);
    return 0;
}
API int cuDeviceTotalMem_v2(size_t *bytes, int device);
API int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    CALL();
    *bytes = (size_t)(device + 1) << 30;
    return 0;
}
API int cuDeviceGetAttribute(int *value, int attribute, int device);
API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    CALL();
    const int major = (int)number("FAKE_CUDA_MAJOR");
    *value = attribute != 75 ? device : major ? major : 9;
    return 0;
}
API int cuDevicePrimaryCtxRetain(void **context, int device);
API int cuDevicePrimaryCtxRetain(void **context, int device) {
    CALL();
    fake.contexts++;
    *context = &fake;
    return device;
}
API int cuDevicePrimaryCtxRelease_v2(int device);
API int cuDevicePrimaryCtxRelease_v2(int device) {
    fake.contexts--;
    return device;
}
API int cuCtxPushCurrent_v2(void *context);
API int cuCtxPushCurrent_v2(void *context) {
    fake.bad += context != &fake;
    fake.current++; /* never fails, as in a real driver */
    return 0;
}
API int cuCtxPopCurrent_v2(void **context);
API int cuCtxPopCurrent_v2(void **context) {
    fake.current--;
    *context = &fake;
    return 0;
}
API int cuStreamCreate(void **stream, unsigned flags);
API int cuStreamCreate(void **stream, unsigned flags) {
    CALL_IN_CONTEXT();
    *stream = malloc(1);
    fake.streams++;
    return flags == 1 ? 0 : 1;
}
API int cuStreamDestroy_v2(void *stream);
API int cuStreamDestroy_v2(void *stream) {
    free(stream);
    fake.streams--;
    return 0;
}
API int cuStreamSynchronize(void *stream);
API int cuStreamSynchronize(void *stream) {
    CALL_IN_CONTEXT();
    fake.syncs++;
    arrive();
    return stream ? 0 : 1;
}
API int cuModuleLoadData(void **module, const void *image);
API int cuModuleLoadData(void **module, const void *image) {
    CALL_IN_CONTEXT();
    void *library = memcmp(image, "/", 1) ? NULL : dlopen(image, RTLD_NOW | RTLD_LOCAL);
    if (!library && memcmp(image, "FAKE", 4) != 0)
        return 200; /* CUDA_ERROR_INVALID_IMAGE */
    *module = calloc(1, 64);
    memcpy((void **)*module + 1, &library, sizeof library); /* after first_group */
    fake.modules++;
    return 0;
}
API int cuModuleUnload(void *module);
API int cuModuleUnload(void *module) {
    free(module);
    fake.modules--;
    return 0;
}
API int cuModuleGetFunction(void **function, void *module, const char *name);
static struct {
    void *function;
    char name[40];
    long launches;
} kernels[256]; /* emulated ones, by name */
static int n_kernels;

/* How often kernels of this name were launched. */
API long fake_cuda_launched(const char *name);
API long fake_cuda_launched(const char *name) {
    long n = 0;
    for (int i = 0; i < n_kernels; i++)
        n += strcmp(kernels[i].name, name) ? 0 : kernels[i].launches;
    return n;
}

/* Another module may have had another kernel at this address before. */
static void name_kernel(void *function, const char *name) {
    int at = 0;
    for (int i = 0; i < n_kernels; i++)
        if (kernels[i].function == function)
            kernels[i].function = NULL;
    while (at < n_kernels && strcmp(kernels[at].name, name))
        at++;
    if (at == (int)(sizeof kernels / sizeof *kernels))
        return;
    n_kernels = at == n_kernels ? n_kernels + 1 : n_kernels;
    snprintf(kernels[at].name, sizeof kernels->name, "%s", name);
    kernels[at].function = function;
}

API int cuModuleGetFunction(void **function, void *module, const char *name) {
    CALL_IN_CONTEXT();
    if (fake.log)
        fprintf(fake.log, "kernel %s\n", name);
    void *library;
    char own[128];
    memcpy(&library, (void **)module + 1, sizeof library);
    snprintf(own, sizeof own, "emulated_%s", name);
    *function = library ? dlsym(library, own) : module;
    fake.emulates = library != NULL;
    if (library && *function)
        name_kernel(*function, name);
    return *function ? 0 : 500; /* CUDA_ERROR_NOT_FOUND */
}
API int cuModuleGetGlobal_v2(address *at, size_t *bytes, void *module, const char *name);
API int cuModuleGetGlobal_v2(address *at, size_t *bytes, void *module, const char *name) {
    CALL_IN_CONTEXT();
    *at = (address)(size_t)module;
    *bytes = 4;
    return name[0] ? 0 : 1;
}
enum { BEFORE = 64 /* bytes before an allocation; they begin with its size */ };
API int cuMemAlloc_v2(address *at, size_t bytes);
API int cuMemAlloc_v2(address *at, size_t bytes) {
    CALL_IN_CONTEXT();
    const long most = number("FAKE_CUDA_MEMORY");
    const bool fits = bytes > 0 && (most == 0 || fake.bytes + (long)bytes <= most);
    char *memory = fits ? calloc(1, BEFORE + bytes) : NULL;
    if (!memory)
        return OUT_OF_MEMORY;
    memcpy(memory, &bytes, sizeof bytes);
    fake.memory++;
    fake.bytes += (long)bytes;
    *at = (address)(size_t)(memory + BEFORE);
    return 0;
}
API int cuMemFree_v2(address at);
API int cuMemFree_v2(address at) {
    fake.bad += fake.current != 1;
    arrive();
    size_t bytes;
    char *memory = (char *)(size_t)at - BEFORE;
    memcpy(&bytes, memory, sizeof bytes);
    free(memory);
    fake.memory--;
    fake.bytes -= (long)bytes;
    return 0;
}
API int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags);
API int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    CALL_IN_CONTEXT();
    *memory = bytes > 0 && flags == 0 ? malloc(bytes) : NULL;
    fake.memory += *memory != NULL;
    return *memory ? 0 : OUT_OF_MEMORY;
}
API int cuMemFreeHost(void *memory);
API int cuMemFreeHost(void *memory) {
    fake.bad += fake.current != 1;
    arrive();
    free(memory);
    fake.memory--;
    return 0;
}
API int cuMemsetD32Async(address to, unsigned value, size_t n, void *stream);
API int cuMemsetD32Async(address to, unsigned value, size_t n, void *stream) {
    CALL_IN_CONTEXT();
    for (size_t i = 0; i < n; i++)
        memcpy((char *)(size_t)to + 4 * i, &value, 4);
    return stream ? 0 : 1;
}
/* Called by bench/device_memory.py. */
API int cuMemsetD8_v2(address to, unsigned char value, size_t n);
API int cuMemsetD8_v2(address to, unsigned char value, size_t n) {
    CALL_IN_CONTEXT();
    memset((void *)(size_t)to, value, n);
    return 0;
}
API int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, void *stream);
API int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, void *stream) {
    CALL_IN_CONTEXT();
    memcpy((void *)(size_t)to, (const void *)(size_t)from, bytes);
    return stream ? 1 : 0;
}
API int cuCtxSynchronize(void);
API int cuCtxSynchronize(void) {
    CALL_IN_CONTEXT();
    fake.syncs++;
    return 0;
}
API int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream);
API int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream) {
    CALL_IN_CONTEXT();
    if (n_copies == MOST_COPIES)
        arrive();
    copies[n_copies++] = (copy){.to = to, .from = from, .bytes = bytes};
    return stream ? 0 : 1;
}
API int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream);
API int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
    CALL_IN_CONTEXT();
    arrive();
    memcpy(to, (const void *)(size_t)from, bytes);
    return stream ? 0 : 1;
}
API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, void *stream, void **values,
                       void **extra);
API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, void *stream, void **values,
                       void **extra) {
    CALL_IN_CONTEXT();
    fake.launches++;
    for (int i = 0; i < n_kernels; i++)
        kernels[i].launches += kernels[i].function == function;
    fake.bad += !function || !gx || !gy || gy > 65535 || gz != 1 || bx * by * bz == 0 ||
                bx * by * bz > 1024 || bz != 1 || shared || !stream || !values || extra;
    if (fake.emulates) {
        void (*emulated)(void **, unsigned, unsigned, unsigned);
        memcpy(&emulated, &function, sizeof emulated);
        fake.bad += by != 1;
        arrive();
        emulated(values, gx, gy, bx);
    }
    return 0;
}

/* ---- graphs of kernels: their launches count, and nothing is computed --------------- */

typedef struct graph {
    long nodes;
    void *functions[256];
} graph;

/* CUDA_KERNEL_NODE_PARAMS_v2 */
typedef struct node_params {
    void *function;
    unsigned groups[3], items[3], shared;
    void **values, **extra;
    void *kernel, *context;
} node_params;

static int node_is_good(const node_params *p) {
    const unsigned items = p->items[0] * p->items[1] * p->items[2];
    return p->function && p->groups[0] && p->groups[1] && p->groups[1] <= 65535 &&
           p->groups[2] == 1 && items > 0 && items <= 1024 && p->items[2] == 1 && !p->shared &&
           p->values && !p->extra && !p->kernel;
}

API int cuGraphCreate(graph **made, unsigned flags);
API int cuGraphCreate(graph **made, unsigned flags) {
    CALL_IN_CONTEXT();
    *made = calloc(1, sizeof **made);
    fake.memory++;
    return flags ? 1 : 0;
}
API int cuGraphAddKernelNode_v2(void **node, graph *to, void *const *after, size_t n,
                                const node_params *params);
API int cuGraphAddKernelNode_v2(void **node, graph *to, void *const *after, size_t n,
                                const node_params *params) {
    CALL_IN_CONTEXT();
    /* each node depends on the previous one */
    fake.bad += !node_is_good(params) || n != (to->nodes > 0) || to->nodes >= 256 ||
                (n && *after != &to->functions[to->nodes - 1]);
    to->functions[to->nodes] = params->function;
    *node = &to->functions[to->nodes++];
    return 0;
}
API int cuGraphInstantiateWithFlags(graph **exec, graph *of, unsigned long long flags);
API int cuGraphInstantiateWithFlags(graph **exec, graph *of, unsigned long long flags) {
    CALL_IN_CONTEXT();
    *exec = malloc(sizeof **exec);
    **exec = *of;
    fake.memory++;
    return flags ? 1 : 0;
}
API int cuGraphExecKernelNodeSetParams_v2(graph *exec, void *node, const node_params *params);
API int cuGraphExecKernelNodeSetParams_v2(graph *exec, void *node, const node_params *params) {
    CALL_IN_CONTEXT();
    fake.updates++;
    fake.bad += !exec || !node_is_good(params) || *(void **)node != params->function;
    return 0;
}
API int cuGraphLaunch(graph *exec, void *stream);
API int cuGraphLaunch(graph *exec, void *stream) {
    CALL_IN_CONTEXT();
    fake.graphs++;
    fake.launches += exec->nodes;
    return stream ? 0 : 1;
}
API int cuGraphExecDestroy(graph *exec);
API int cuGraphExecDestroy(graph *exec) {
    fake.bad += fake.current != 1;
    free(exec);
    fake.memory--;
    return 0;
}
API int cuGraphDestroy(graph *made);
API int cuGraphDestroy(graph *made) {
    fake.bad += fake.current != 1;
    free(made);
    fake.memory--;
    return 0;
}
