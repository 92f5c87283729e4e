/* The driver row of CUDA. The driver (libcuda) is opened at run time, and what is needed of its
 * interface is declared here, so that nothing of CUDA is needed to build. Source of the interface:
 * the CUDA Driver API manual of NVIDIA. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "targets/gpu/cache.h"
#include "targets/gpu/cuda_api.h"
#include "targets/gpu/cuda_graph.h"
#include "targets/gpu/driver.h"
#include "targets/gpu/nvrtc.h"

enum { MOST_PARTS = 65535 /* groups of a launch along axis 1 */ };
#define DRIVER "libcuda.so.1"

/* ---- the libraries ------------------------------------------------------------ */

typedef struct CUmod_st *CUmodule;
typedef unsigned long long CUdeviceptr;
typedef int CUdevice;

/* CUresult */
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803
};
/* CUdevice_attribute */
enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };
enum { CU_STREAM_NON_BLOCKING = 1 };

/* F(name here, name in the library, arguments) */
#define FUNCTIONS(F)                                                                               \
    F(Init, cuInit, unsigned)                                                                      \
    F(DriverGetVersion, cuDriverGetVersion, int *)                                                 \
    F(GetErrorName, cuGetErrorName, int, const char **)                                            \
    F(DeviceGetCount, cuDeviceGetCount, int *)                                                     \
    F(DeviceGet, cuDeviceGet, CUdevice *, int)                                                     \
    F(DeviceGetName, cuDeviceGetName, char *, int, CUdevice)                                       \
    F(DeviceTotalMem, cuDeviceTotalMem_v2, size_t *, CUdevice)                                     \
    F(DeviceGetAttribute, cuDeviceGetAttribute, int *, int, CUdevice)                              \
    F(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)                     \
    F(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, CUdevice)                             \
    F(CtxPushCurrent, cuCtxPushCurrent_v2, CUcontext)                                              \
    F(CtxPopCurrent, cuCtxPopCurrent_v2, CUcontext *)                                              \
    F(StreamCreate, cuStreamCreate, CUstream *, unsigned)                                          \
    F(StreamDestroy, cuStreamDestroy_v2, CUstream)                                                 \
    F(StreamSynchronize, cuStreamSynchronize, CUstream)                                            \
    F(ModuleLoadData, cuModuleLoadData, CUmodule *, const void *)                                  \
    F(ModuleUnload, cuModuleUnload, CUmodule)                                                      \
    F(ModuleGetFunction, cuModuleGetFunction, CUfunction *, CUmodule, const char *)                \
    F(ModuleGetGlobal, cuModuleGetGlobal_v2, CUdeviceptr *, size_t *, CUmodule, const char *)      \
    F(MemAlloc, cuMemAlloc_v2, CUdeviceptr *, size_t)                                              \
    F(MemFree, cuMemFree_v2, CUdeviceptr)                                                          \
    F(MemHostAlloc, cuMemHostAlloc, void **, size_t, unsigned)                                     \
    F(MemFreeHost, cuMemFreeHost, void *)                                                          \
    F(MemsetD32Async, cuMemsetD32Async, CUdeviceptr, unsigned, size_t, CUstream)                   \
    F(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, CUstream)          \
    F(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, size_t, CUstream)                \
    F(LaunchKernel, cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,  \
      unsigned, unsigned, CUstream, void **, void **)

static struct {
    FUNCTIONS(CUDA_POINTER)
    int n_devices, version;
    char missing[128]; /* why there is no device */
} cu;
static cuda_graph_calls graphs;

/* Return the name of the first function that the library lacks; NULL: it lacks none. */
#define FROM cu
static const char *find_driver(void *library) {
    FUNCTIONS(CUDA_FIND)
    return NULL;
}
#undef FROM
#define FROM graphs
static const char *find_graphs(void *library) {
    CUDA_GRAPH_FUNCTIONS(CUDA_FIND)
    return NULL;
}
#undef FROM

/* A driver before CUDA 12 lacks some of them. */
static void open_graphs(void *library) {
    const char *use = getenv("GQAC_CUDA_GRAPHS");
    graphs.LaunchKernel = cu.LaunchKernel;
    graphs.has_graphs = !(use && !strcmp(use, "off")) && !find_graphs(library);
}

/* The driver's name of an error. */
static const char *error_name(int code) {
    const char *name = NULL;
    return cu.GetErrorName(code, &name) == CUDA_SUCCESS && name ? name : "an unknown error";
}

static void list_devices(void) {
    void *library = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(cu.missing, sizeof cu.missing, "%s is not installed", DRIVER);
        return;
    }
    const char *lacks = find_driver(library);
    if (lacks) {
        snprintf(cu.missing, sizeof cu.missing, "%s has no %s", DRIVER, lacks);
        return;
    }
    open_graphs(library);
    int n = 0, code = cu.Init(0);
    if (code == CUDA_SUCCESS)
        code = cu.DriverGetVersion(&cu.version);
    if (code == CUDA_SUCCESS)
        code = cu.DeviceGetCount(&n);
    if (code != CUDA_SUCCESS) {
        snprintf(cu.missing, sizeof cu.missing, "%s reports %s", DRIVER, error_name(code));
        return;
    }
    snprintf(cu.missing, sizeof cu.missing, "%s has no device", DRIVER);
    cu.n_devices = n > 0 ? n : 0;
    if (n > 0)
        gpu_nvrtc_open();
}

static gqac_status count(int *n, gqac_diag *diag) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_devices);
    *n = cu.n_devices;
    if (*n > 0)
        return GQAC_OK;
    GQAC_FAIL(diag, GQAC_ABSENT, "%s", cu.missing);
}

/* ---- failures --------------------------------------------------------------- */

static gqac_status failed(const char *what, int code, gqac_diag *diag) {
    switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        GQAC_FAIL(diag, GQAC_NO_MEMORY,
                  "CUDA: %s failed with %s (%d): the device has too little "
                  "memory",
                  what, error_name(code), code);
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        GQAC_FAIL(diag, GQAC_ABSENT, "CUDA: %s failed with %s (%d)", what, error_name(code), code);
    default:
        GQAC_FAIL(diag, GQAC_INTERNAL, "CUDA: %s failed with %s (%d)", what, error_name(code),
                  code);
    }
}

#define CU_TRY(call, diag)                                                                         \
    do {                                                                                           \
        const int code_ = (call);                                                                  \
        if (code_ != CUDA_SUCCESS)                                                                 \
            return failed(#call, code_, (diag));                                                   \
    } while (0)

/* ---- devices ---------------------------------------------------------------- */

static gqac_status describe(int index, gpu_info *info, gqac_diag *diag) {
    CUdevice device;
    size_t memory = 0;
    memset(info, 0, sizeof *info);
    CU_TRY(cu.DeviceGet(&device, index), diag);
    CU_TRY(cu.DeviceGetName(info->name, (int)sizeof info->name, device), diag);
    CU_TRY(cu.DeviceTotalMem(&memory, device), diag);
    info->name[sizeof info->name - 1] = 0;
    info->memory = memory;
    snprintf(info->version, sizeof info->version, "CUDA %d.%d", cu.version / 1000,
             cu.version % 1000 / 10);
    if (!gpu_nvrtc_found())
        snprintf(info->lacks, sizeof info->lacks,
                 "the run-time compiler libnvrtc.so (NVIDIA's package cuda-nvrtc, Debian's "
                 "libnvrtc12)");
    return GQAC_OK;
}

struct gpu_queue {
    CUdevice device;
    CUcontext context;
    CUstream stream;
    cuda_launches *launches;
    char arch[24]; /* the option of the compiler */
    bool has_tensor_cores;
};

/* The context is current only during calls, so that the host's own use of CUDA is not disturbed. */
static gqac_status enter(const gpu_queue *q, gqac_diag *diag) {
    CU_TRY(cu.CtxPushCurrent(q->context), diag);
    return GQAC_OK;
}

static void leave(void) {
    CUcontext context;
    cu.CtxPopCurrent(&context);
}

static void close_queue(gpu_queue *q) {
    if (!q)
        return;
    if (q->stream && enter(q, NULL) == GQAC_OK) {
        cuda_launches_close(q->launches);
        cu.StreamDestroy(q->stream);
        leave();
    }
    if (q->context)
        cu.DevicePrimaryCtxRelease(q->device);
    free(q);
}

static gqac_status open_stream(gpu_queue *q, int index, gqac_diag *diag) {
    int major = 0, minor = 0;
    CU_TRY(cu.DeviceGet(&q->device, index), diag);
    CU_TRY(cu.DeviceGetAttribute(&major, CAPABILITY_MAJOR, q->device), diag);
    CU_TRY(cu.DeviceGetAttribute(&minor, CAPABILITY_MINOR, q->device), diag);
    snprintf(q->arch, sizeof q->arch, "-arch=sm_%d%d", major, minor);
    q->has_tensor_cores = major >= 8;
    CU_TRY(cu.DevicePrimaryCtxRetain(&q->context, q->device), diag);
    GQAC_TRY(enter(q, diag));
    const int code = cu.StreamCreate(&q->stream, CU_STREAM_NON_BLOCKING);
    leave();
    if (code != CUDA_SUCCESS)
        return failed("cuStreamCreate", code, diag);
    q->launches = cuda_launches_open(&graphs);
    return q->launches ? GQAC_OK : gqac_diag_oom(diag, "a device");
}

static gqac_status open_queue(int index, gpu_queue **queue, gqac_diag *diag) {
    gpu_info info;
    GQAC_TRY(describe(index, &info, diag));
    if (*info.lacks)
        GQAC_FAIL(diag, GQAC_ABSENT, "the device '%s' lacks: %s", info.name, info.lacks);
    gpu_queue *q = calloc(1, sizeof *q);
    if (!q)
        return gqac_diag_oom(diag, "a device");
    GQAC_RETURN_MADE(open_stream(q, index, diag), q, queue, close_queue);
}

static const char *tensor_cores(const gpu_queue *q) {
    return q->has_tensor_cores ? strchr(q->arch, '=') + 1 : NULL;
}

/* ---- kernels ---------------------------------------------------------------- */

/* A module, which its kernels share. */
typedef struct loaded {
    const gpu_queue *queue;
    CUmodule module;
    CUdeviceptr first_group; /* kernels/language.h */
    int users;
} loaded;

struct gpu_kernel {
    loaded *of;
    CUfunction function;
};

static void unload(loaded *l) {
    if (--l->users > 0)
        return;
    if (l->module && enter(l->queue, NULL) == GQAC_OK) {
        cuda_launches_forget(l->queue->launches);
        cu.ModuleUnload(l->module);
        leave();
    }
    free(l);
}

static void drop(gpu_kernel *kernel) {
    if (!kernel)
        return;
    unload(kernel->of);
    free(kernel);
}

static gqac_status make_kernel(loaded *l, const char *name, gpu_kernel **kernel, gqac_diag *diag) {
    gpu_kernel *k = calloc(1, sizeof *k);
    if (!k)
        return gqac_diag_oom(diag, "a kernel");
    const int code = cu.ModuleGetFunction(&k->function, l->module, name);
    if (code != CUDA_SUCCESS) {
        free(k);
        return failed(name, code, diag);
    }
    k->of = l;
    l->users++;
    *kernel = k;
    return GQAC_OK;
}

/* The module has to be loaded where the context is current. */
static gqac_status load(loaded *l, const char *cubin, int n, const char *const *names,
                        gpu_kernel **kernels, gqac_diag *diag) {
    size_t bytes = 0;
    CU_TRY(cu.ModuleLoadData(&l->module, cubin), diag);
    const int code = cu.ModuleGetGlobal(&l->first_group, &bytes, l->module, "first_group");
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_FOUND)
        return failed("cuModuleGetGlobal", code, diag);
    if (l->first_group)
        CU_TRY(cu.MemsetD32Async(l->first_group, 0, 1, l->queue->stream), diag);
    for (int i = 0; i < n; i++)
        GQAC_TRY(make_kernel(l, names[i], &kernels[i], diag));
    return GQAC_OK;
}

static gqac_status load_kernels(gpu_queue *q, const char *cubin, int n, const char *const *names,
                                gpu_kernel **kernels, gqac_diag *diag) {
    loaded *l = calloc(1, sizeof *l);
    if (!l)
        return gqac_diag_oom(diag, "kernels");
    l->queue = q;
    l->users = 1; /* until the kernels have it */
    gqac_status status = enter(q, diag);
    if (status == GQAC_OK) {
        status = load(l, cubin, n, names, kernels, diag);
        leave();
    }
    for (int i = 0; i < n && status != GQAC_OK; i++) {
        drop(kernels[i]);
        kernels[i] = NULL;
    }
    unload(l);
    return status;
}

static gqac_status compile_kernels(gpu_queue *q, const char *const texts[2], const gpu_key *key,
                                   int n, const char *const *names, gpu_kernel **kernels,
                                   gqac_diag *diag) {
    const size_t first = strlen(texts[0]), second = strlen(texts[1]);
    char *cubin = NULL, *text = malloc(first + second + 1);
    size_t bytes = 0;
    if (!text)
        return gqac_diag_oom(diag, "kernels");
    memcpy(text, texts[0], first);
    memcpy(text + first, texts[1], second + 1);
    gqac_status status = gpu_nvrtc_compile(q->arch, text, &cubin, &bytes, diag);
    if (status == GQAC_OK)
        status = load_kernels(q, cubin, n, names, kernels, diag);
    if (status == GQAC_OK)
        gpu_cache_write(key, cubin, bytes);
    free(cubin);
    free(text);
    return status;
}

enum { NAME = 128 };

/* Sets the key of the cache, and the name of the device. */
static gqac_status key_of(const gpu_queue *q, const char *const texts[2], gpu_key *key,
                          char name[NAME], gqac_diag *diag) {
    char versions[64];
    int major = 0, minor = 0;
    gpu_nvrtc_version(&major, &minor);
    snprintf(versions, sizeof versions, "cuda %d nvrtc %d.%d", cu.version, major, minor);
    memset(name, 0, NAME);
    CU_TRY(cu.DeviceGetName(name, NAME - 1, q->device), diag);
    enum { N = GPU_NVRTC_OPTIONS };
    const char *all[N + 4] = {[N] = versions, name, texts[0], texts[1]};
    gpu_nvrtc_options(q->arch, all);
    *key = gpu_cache_key(N + 4, all);
    return GQAC_OK;
}

static gqac_status build(gpu_queue *q, const char *const texts[2], int n, const char *const *names,
                         gpu_kernel **kernels, gpu_notice *notice, gqac_diag *diag) {
    size_t bytes;
    gpu_key key;
    char device[NAME];
    GQAC_TRY(key_of(q, texts, &key, device, diag));
    char *cubin = gpu_cache_read(&key, &bytes);
    const bool found = cubin && load_kernels(q, cubin, n, names, kernels, NULL) == GQAC_OK;
    free(cubin);
    if (found)
        return GQAC_OK;
    gpu_notice_give(notice, device);
    return compile_kernels(q, texts, &key, n, names, kernels, diag);
}

/* Submits what waits. The context must be current. */
static gqac_status submit(const gpu_queue *q, gqac_diag *diag) {
    const int code = cuda_launches_submit(q->launches, q->stream);
    return code == CUDA_SUCCESS ? GQAC_OK : failed("launching kernels", code, diag);
}

/* Submits a kernel in parts, each from its first_group on. */
static gqac_status submit_parts(const gpu_queue *q, const loaded *l, CUfunction function,
                                const gpu_grid *grid, int n_args, const gpu_arg *args,
                                gqac_diag *diag) {
    for (size_t first = 0; first < grid->groups[1]; first += MOST_PARTS) {
        gpu_grid part = *grid;
        part.groups[1] -= first;
        if (part.groups[1] > MOST_PARTS)
            part.groups[1] = MOST_PARTS;
        CU_TRY(cu.MemsetD32Async(l->first_group, (unsigned)first, 1, q->stream), diag);
        if (!cuda_launches_add(q->launches, function, &part, n_args, args))
            return gqac_diag_oom(diag, "a launch");
        GQAC_TRY(submit(q, diag));
    }
    return GQAC_OK;
}

static uint64_t losses(const gpu_queue *q) {
    return cuda_launches_losses(q->launches).count;
}

static gqac_status lost(const gpu_queue *q, gqac_diag *diag) {
    return failed("launching kernels", cuda_launches_losses(q->launches).code, diag);
}

/* More groups than a launch may have. Whatever fails, first_group is 0 for the kernels after it. */
static gqac_status launch_parts(const gpu_queue *q, const loaded *l, CUfunction function,
                                const gpu_grid *grid, int n_args, const gpu_arg *args,
                                gqac_diag *diag) {
    if (!l->first_group)
        GQAC_FAIL(diag, GQAC_INTERNAL,
                  "CUDA: the kernels have no first_group, so a launch has at "
                  "most %d groups",
                  MOST_PARTS);
    GQAC_TRY(submit(q, diag));
    const gqac_status status = submit_parts(q, l, function, grid, n_args, args, diag);
    const int code = cu.MemsetD32Async(l->first_group, 0, 1, q->stream);
    return status != GQAC_OK || code == CUDA_SUCCESS ? status
                                                     : failed("cuMemsetD32Async", code, diag);
}

static gqac_status launch(gpu_queue *q, gpu_kernel *kernel, const gpu_grid *grid, int n_args,
                          const gpu_arg *args, gqac_diag *diag) {
    const bool parts = grid->groups[1] > MOST_PARTS;
    if (n_args > CUDA_GRAPH_ARGS)
        GQAC_FAIL(diag, GQAC_INTERNAL, "CUDA: a kernel has more than %d arguments",
                  CUDA_GRAPH_ARGS);
    if (grid->groups[0] == 0 || grid->groups[1] == 0)
        return GQAC_OK;
    if (!parts && !cuda_launches_add(q->launches, kernel->function, grid, n_args, args))
        return gqac_diag_oom(diag, "a launch");
    if (!parts && !cuda_launches_full(q->launches))
        return GQAC_OK;
    GQAC_TRY(enter(q, diag));
    const gqac_status status =
        parts ? launch_parts(q, kernel->of, kernel->function, grid, n_args, args, diag)
              : submit(q, diag);
    leave();
    return status;
}

/* ---- memory ----------------------------------------------------------------- */

static gqac_status allocate(gpu_queue *q, size_t bytes, gpu_buffer *buffer, gqac_diag *diag) {
    CUdeviceptr at = 0;
    GQAC_TRY(enter(q, diag));
    const int code = cu.MemAlloc(&at, bytes > 0 ? bytes : 1);
    leave();
    if (code != CUDA_SUCCESS)
        return failed("cuMemAlloc", code, diag);
    *buffer = (gpu_buffer){.queue = q, .handle = (void *)(uintptr_t)at, .bytes = bytes};
    return GQAC_OK;
}

static CUdeviceptr address(const gpu_buffer *buffer) {
    return (CUdeviceptr)(uintptr_t)buffer->handle;
}

static void release(gpu_buffer *buffer) {
    if (buffer->handle && enter(buffer->queue, NULL) == GQAC_OK) {
        (void)submit(buffer->queue, NULL); /* what waits may read it, and cuMemFree awaits it */
        cu.MemFree(address(buffer));
        leave();
    }
    *buffer = (gpu_buffer){0};
}

static gqac_status take_host(gpu_queue *q, size_t bytes, void **memory, gqac_diag *diag) {
    GQAC_TRY(enter(q, diag));
    const int code = cu.MemHostAlloc(memory, bytes, 0);
    leave();
    return code == CUDA_SUCCESS ? GQAC_OK : failed("cuMemHostAlloc", code, diag);
}

static void give_host(gpu_queue *q, void *memory) {
    if (enter(q, NULL) == GQAC_OK) {
        cu.MemFreeHost(memory);
        leave();
    }
}

/* Submits what waits, and starts a copy. The context must be current. */
static gqac_status start_copy(const gpu_queue *q, CUdeviceptr to, const void *from, size_t bytes,
                              gqac_diag *diag) {
    GQAC_TRY(submit(q, diag));
    const int code = cu.MemcpyHtoDAsync(to, from, bytes, q->stream);
    return code == CUDA_SUCCESS ? GQAC_OK : failed("copying to the device", code, diag);
}

static gqac_status await(const gpu_queue *q, const char *what, gqac_diag *diag) {
    const int code = cu.StreamSynchronize(q->stream); /* a launch may fail as late as here */
    return code == CUDA_SUCCESS ? GQAC_OK : failed(what, code, diag);
}

static gqac_status write_bytes(gpu_queue *q, const gpu_buffer *to, size_t at, const void *from,
                               size_t bytes, gqac_diag *diag) {
    if (bytes == 0)
        return GQAC_OK;
    GQAC_TRY(enter(q, diag));
    gqac_status status = start_copy(q, address(to) + at, from, bytes, diag);
    if (status == GQAC_OK)
        status = await(q, "copying to the device", diag);
    leave();
    return status;
}

static gqac_status send_bytes(gpu_queue *q, const gpu_buffer *to, const void *from, size_t bytes,
                              gqac_diag *diag) {
    if (bytes == 0)
        return GQAC_OK;
    GQAC_TRY(enter(q, diag));
    const gqac_status status = start_copy(q, address(to), from, bytes, diag);
    leave();
    return status;
}

static gqac_status read_bytes(gpu_queue *q, const gpu_buffer *from, void *to, size_t bytes,
                              gqac_diag *diag) {
    GQAC_TRY(enter(q, diag));
    gqac_status status = submit(q, diag);
    const int code = status == GQAC_OK && bytes > 0
                         ? cu.MemcpyDtoHAsync(to, address(from), bytes, q->stream)
                         : CUDA_SUCCESS;
    if (code != CUDA_SUCCESS)
        status = failed("copying from the device", code, diag);
    if (status == GQAC_OK)
        status = await(q, "copying from the device", diag);
    leave();
    return status;
}

extern const gpu_driver gpu_driver_cuda;
const gpu_driver gpu_driver_cuda = {.name = "cuda",
                                    .count = count,
                                    .describe = describe,
                                    .open = open_queue,
                                    .close = close_queue,
                                    .tensor_cores = tensor_cores,
                                    .build = build,
                                    .drop = drop,
                                    .allocate = allocate,
                                    .release = release,
                                    .write = write_bytes,
                                    .send = send_bytes,
                                    .read = read_bytes,
                                    .take_host = take_host,
                                    .give_host = give_host,
                                    .launch = launch,
                                    .losses = losses,
                                    .lost = lost};
