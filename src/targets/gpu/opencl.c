/* The driver row of OpenCL 1.2. The ICD loader is opened at run time; its headers alone are needed
 * to build. Source of the interface: the OpenCL 1.2 specification of the Khronos Group. */
#include "targets/gpu/cache.h"
#include "targets/gpu/driver.h"

#ifdef GQAC_OPENCL

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 64, MOST_PLATFORMS = 16, LOCAL_MEMORY = 48 << 10 /* of a group */ };
#define LIBRARY "libOpenCL.so.1"
/* Division and square root are rounded correctly; dialect.h turns contraction off. */
#define FLAGS "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"

/* ---- the library ------------------------------------------------------------ */

#define FUNCTIONS(F)                                                                               \
    F(clGetPlatformIDs)                                                                            \
    F(clGetDeviceIDs)                                                                              \
    F(clGetDeviceInfo)                                                                             \
    F(clCreateContext)                                                                             \
    F(clReleaseContext)                                                                            \
    F(clCreateCommandQueue)                                                                        \
    F(clReleaseCommandQueue)                                                                       \
    F(clCreateProgramWithSource)                                                                   \
    F(clCreateProgramWithBinary)                                                                   \
    F(clBuildProgram)                                                                              \
    F(clGetProgramInfo)                                                                            \
    F(clGetProgramBuildInfo)                                                                       \
    F(clReleaseProgram)                                                                            \
    F(clCreateKernel)                                                                              \
    F(clReleaseKernel)                                                                             \
    F(clSetKernelArg)                                                                              \
    F(clCreateBuffer)                                                                              \
    F(clReleaseMemObject)                                                                          \
    F(clEnqueueWriteBuffer)                                                                        \
    F(clEnqueueReadBuffer)                                                                         \
    F(clEnqueueNDRangeKernel)                                                                      \
    F(clFinish)

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is declared */
#define POINTER(name) __typeof__(name) *name;
static struct {
    FUNCTIONS(POINTER)
    int n_devices;
    cl_device_id devices[MOST_DEVICES];
    char missing[128]; /* why there is no device */
} cl;

static bool load(void) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(cl.missing, sizeof cl.missing, "%s is not installed", LIBRARY);
        return false;
    }
#define FIND(name)                                                                                 \
    *(void **)(void *)&cl.name = dlsym(library, #name);                                            \
    if (!cl.name) {                                                                                \
        snprintf(cl.missing, sizeof cl.missing, "%s has no %s", LIBRARY, #name);                   \
        return false;                                                                              \
    }
    FUNCTIONS(FIND)
    return true;
}

static void list_devices(void) {
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint n = 0;
    if (!load())
        return;
    if (cl.clGetPlatformIDs(MOST_PLATFORMS, platforms, &n) != CL_SUCCESS)
        n = 0;
    for (cl_uint i = 0; i < n && i < MOST_PLATFORMS; i++) {
        const cl_uint left = (cl_uint)(MOST_DEVICES - cl.n_devices);
        cl_uint found = 0;
        if (left > 0 && cl.clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, left,
                                          cl.devices + cl.n_devices, &found) == CL_SUCCESS)
            cl.n_devices += (int)(found < left ? found : left);
    }
    snprintf(cl.missing, sizeof cl.missing, "no platform of %s has a device", LIBRARY);
}

static gqac_status count(int *n, gqac_diag *diag) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_devices);
    *n = cl.n_devices;
    if (*n > 0)
        return GQAC_OK;
    GQAC_FAIL(diag, GQAC_ABSENT, "%s", cl.missing);
}

/* ---- failures --------------------------------------------------------------- */

static gqac_status failed(const char *what, cl_int code, gqac_diag *diag) {
    const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
                        code == CL_OUT_OF_HOST_MEMORY || code == CL_INVALID_BUFFER_SIZE;
    GQAC_FAIL(diag, memory ? GQAC_NO_MEMORY : GQAC_INTERNAL, "OpenCL: %s failed with the code %d%s",
              what, (int)code, memory ? ": the device has too little memory" : "");
}

#define CL_TRY(call, diag)                                                                         \
    do {                                                                                           \
        const cl_int code_ = (call);                                                               \
        if (code_ != CL_SUCCESS)                                                                   \
            return failed(#call, code_, (diag));                                                   \
    } while (0)

/* ---- devices ---------------------------------------------------------------- */

static void lack(gpu_info *info, const char *what) {
    const size_t at = strlen(info->lacks);
    snprintf(info->lacks + at, sizeof info->lacks - at, "%s%s", at ? ", " : "", what);
}

/* A text of a device, cut to `size`. */
static gqac_status ask_text(cl_device_id device, cl_device_info what, char *text, size_t size,
                            gqac_diag *diag) {
    char whole[1024] = "";
    CL_TRY(cl.clGetDeviceInfo(device, what, sizeof whole - 1, whole, NULL), diag);
    snprintf(text, size, "%s", whole);
    return GQAC_OK;
}

static gqac_status describe(int index, gpu_info *info, gqac_diag *diag) {
    const cl_device_id device = cl.devices[index];
    cl_device_fp_config floats = 0;
    cl_ulong memory = 0, shared = 0;
    cl_bool available = CL_FALSE, compiler = CL_FALSE, little = CL_FALSE;
    memset(info, 0, sizeof *info);
#define ASK(what, to) CL_TRY(cl.clGetDeviceInfo(device, what, sizeof(to), &(to), NULL), diag)
    GQAC_TRY(ask_text(device, CL_DEVICE_NAME, info->name, sizeof info->name, diag));
    GQAC_TRY(ask_text(device, CL_DRIVER_VERSION, info->version, sizeof info->version, diag));
    ASK(CL_DEVICE_GLOBAL_MEM_SIZE, memory);
    ASK(CL_DEVICE_LOCAL_MEM_SIZE, shared);
    ASK(CL_DEVICE_SINGLE_FP_CONFIG, floats);
    ASK(CL_DEVICE_AVAILABLE, available);
    ASK(CL_DEVICE_COMPILER_AVAILABLE, compiler);
    ASK(CL_DEVICE_ENDIAN_LITTLE, little);
    info->memory = memory;
    if (!available)
        lack(info, "availability");
    if (!compiler)
        lack(info, "a compiler");
    if (!little)
        lack(info, "little-endian numbers");
    if (shared < LOCAL_MEMORY)
        lack(info, "48 KiB of local memory");
    if (!(floats & CL_FP_FMA))
        lack(info, "fused multiply-add");
    if (!(floats & CL_FP_DENORM))
        lack(info, "denormals");
    if (!(floats & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT))
        lack(info, "correctly rounded division and square root");
    return GQAC_OK;
}

struct gpu_queue {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
};

static void close_queue(gpu_queue *q) {
    if (!q)
        return;
    if (q->queue)
        cl.clReleaseCommandQueue(q->queue);
    if (q->context)
        cl.clReleaseContext(q->context);
    free(q);
}

static gqac_status open_queue(int index, gpu_queue **queue, gqac_diag *diag) {
    gpu_info info;
    cl_int code;
    GQAC_TRY(describe(index, &info, diag));
    if (*info.lacks && !getenv("GQAC_GPU_ANY_DEVICE"))
        GQAC_FAIL(diag, GQAC_ABSENT, "the device '%s' lacks: %s", info.name, info.lacks);
    gpu_queue *q = calloc(1, sizeof *q);
    if (!q)
        return gqac_diag_oom(diag, "a device");
    q->device = cl.devices[index];
    q->context = cl.clCreateContext(NULL, 1, &q->device, NULL, NULL, &code);
    if (q->context)
        q->queue = cl.clCreateCommandQueue(q->context, q->device, 0, &code);
    if (!q->queue) {
        close_queue(q);
        return failed("opening a device", code, diag);
    }
    *queue = q;
    return GQAC_OK;
}

/* ---- kernels ---------------------------------------------------------------- */

struct gpu_kernel {
    cl_kernel kernel;
};

static void drop(gpu_kernel *kernel) {
    if (!kernel)
        return;
    cl.clReleaseKernel(kernel->kernel);
    free(kernel);
}

/* Fails with the last part of the compiler's log, where the errors are counted. */
static gqac_status log_failure(const gpu_queue *q, cl_program program, cl_int code,
                               gqac_diag *diag) {
    size_t bytes = 0;
    gqac_status status = failed("compiling the kernels", code, diag);
    if (cl.clGetProgramBuildInfo(program, q->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) !=
        CL_SUCCESS)
        return status;
    char *log = calloc(1, bytes + 1);
    if (log && cl.clGetProgramBuildInfo(program, q->device, CL_PROGRAM_BUILD_LOG, bytes, log,
                                        NULL) == CL_SUCCESS)
        gqac_diag_rule(diag, "%s", log);
    free(log);
    return status;
}

static gqac_status make_kernel(cl_program program, const char *name, gpu_kernel **kernel,
                               gqac_diag *diag) {
    cl_int code;
    *kernel = calloc(1, sizeof **kernel);
    if (!*kernel)
        return gqac_diag_oom(diag, "a kernel");
    (*kernel)->kernel = cl.clCreateKernel(program, name, &code);
    if ((*kernel)->kernel)
        return GQAC_OK;
    free(*kernel);
    *kernel = NULL;
    return failed(name, code, diag);
}

static gqac_status make_kernels(cl_program program, int n, const char *const *names,
                                gpu_kernel **kernels, gqac_diag *diag) {
    gqac_status status = GQAC_OK;
    int made = 0;
    while (made < n && status == GQAC_OK) {
        status = make_kernel(program, names[made], &kernels[made], diag);
        made += status == GQAC_OK;
    }
    while (status != GQAC_OK && made > 0) {
        drop(kernels[--made]);
        kernels[made] = NULL;
    }
    return status;
}

/* Programs on their way to and from the cache; NULL: there is none. */
static cl_program from_cache(const gpu_queue *q, const gpu_key *key) {
    size_t bytes;
    cl_int code = CL_SUCCESS, fit = CL_SUCCESS;
    unsigned char *binary = gpu_cache_read(key, &bytes);
    if (!binary)
        return NULL;
    cl_program program = cl.clCreateProgramWithBinary(q->context, 1, &q->device, &bytes,
                                                      (const unsigned char **)&binary, &fit, &code);
    free(binary);
    if (program && (fit != CL_SUCCESS ||
                    cl.clBuildProgram(program, 1, &q->device, FLAGS, NULL, NULL) != CL_SUCCESS)) {
        cl.clReleaseProgram(program);
        return NULL;
    }
    return program;
}

static void to_cache(cl_program program, const gpu_key *key) {
    size_t bytes = 0;
    if (!gpu_cache_on()) /* a driver may compile kernels only when their code is asked for */
        return;
    if (cl.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) !=
            CL_SUCCESS ||
        bytes == 0)
        return;
    unsigned char *binary = malloc(bytes);
    if (binary && cl.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) ==
                      CL_SUCCESS)
        gpu_cache_write(key, binary, bytes);
    free(binary);
}

static gqac_status compile(const gpu_queue *q, const char *const texts[2], cl_program *program,
                           gqac_diag *diag) {
    cl_int code;
    const char *both[2] = {texts[0], texts[1]};
    *program = cl.clCreateProgramWithSource(q->context, 2, both, NULL, &code);
    if (!*program)
        return failed("clCreateProgramWithSource", code, diag);
    code = cl.clBuildProgram(*program, 1, &q->device, FLAGS, NULL, NULL);
    return code == CL_SUCCESS ? GQAC_OK : log_failure(q, *program, code, diag);
}

enum { SIZE = 256 };

/* Sets the key of the cache, and the name of the device. */
static gqac_status key_of(const gpu_queue *q, const char *const texts[2], gpu_key *key,
                          char name[SIZE], gqac_diag *diag) {
    enum { FACTS = 4 };
    static const cl_device_info facts[FACTS] = {CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DEVICE_VERSION,
                                                CL_DRIVER_VERSION};
    char found[FACTS][SIZE];
    const char *all[FACTS + 4] = {"opencl", FLAGS, texts[0], texts[1]};
    for (int i = 0; i < FACTS; i++) {
        GQAC_TRY(ask_text(q->device, facts[i], found[i], SIZE, diag));
        all[4 + i] = found[i];
    }
    *key = gpu_cache_key(FACTS + 4, all);
    memcpy(name, found[0], SIZE);
    return GQAC_OK;
}

static gqac_status build(gpu_queue *q, const char *const texts[2], int n, const char *const *names,
                         gpu_kernel **kernels, gpu_notice *notice, gqac_diag *diag) {
    gpu_key key;
    char device[SIZE];
    GQAC_TRY(key_of(q, texts, &key, device, diag));
    cl_program program = from_cache(q, &key);
    if (program) {
        const bool found = make_kernels(program, n, names, kernels, NULL) == GQAC_OK;
        cl.clReleaseProgram(program); /* its kernels keep it, here and below */
        if (found)
            return GQAC_OK;
    }
    gpu_notice_give(notice, device);
    gqac_status status = compile(q, texts, &program, diag);
    if (status == GQAC_OK)
        status = make_kernels(program, n, names, kernels, diag);
    if (status == GQAC_OK)
        to_cache(program, &key);
    if (program)
        cl.clReleaseProgram(program);
    return status;
}

static gqac_status launch(gpu_queue *q, gpu_kernel *kernel, const gpu_grid *grid, int n_args,
                          const gpu_arg *args, gqac_diag *diag) {
    const size_t global[2] = {grid->groups[0] * grid->items[0], grid->groups[1] * grid->items[1]};
    for (int i = 0; i < n_args; i++)
        CL_TRY(cl.clSetKernelArg(kernel->kernel, (cl_uint)i, args[i].size, args[i].value), diag);
    CL_TRY(cl.clEnqueueNDRangeKernel(q->queue, kernel->kernel, 2, NULL, global, grid->items, 0,
                                     NULL, NULL),
           diag);
    return GQAC_OK;
}

/* ---- memory ----------------------------------------------------------------- */

static gqac_status allocate(gpu_queue *q, size_t bytes, gpu_buffer *buffer, gqac_diag *diag) {
    cl_int code;
    buffer->handle =
        cl.clCreateBuffer(q->context, CL_MEM_READ_WRITE, bytes > 0 ? bytes : 1, NULL, &code);
    buffer->bytes = bytes;
    return buffer->handle ? GQAC_OK : failed("clCreateBuffer", code, diag);
}

static void release(gpu_buffer *buffer) {
    if (buffer->handle)
        cl.clReleaseMemObject(buffer->handle);
    *buffer = (gpu_buffer){0};
}

static gqac_status write_bytes(gpu_queue *q, const gpu_buffer *to, size_t at, const void *from,
                               size_t bytes, gqac_diag *diag) {
    if (bytes > 0)
        CL_TRY(
            cl.clEnqueueWriteBuffer(q->queue, to->handle, CL_TRUE, at, bytes, from, 0, NULL, NULL),
            diag);
    return GQAC_OK;
}

static gqac_status send_bytes(gpu_queue *q, const gpu_buffer *to, const void *from, size_t bytes,
                              gqac_diag *diag) {
    if (bytes > 0)
        CL_TRY(
            cl.clEnqueueWriteBuffer(q->queue, to->handle, CL_FALSE, 0, bytes, from, 0, NULL, NULL),
            diag);
    return GQAC_OK;
}

static gqac_status read_bytes(gpu_queue *q, const gpu_buffer *from, void *to, size_t bytes,
                              gqac_diag *diag) {
    CL_TRY(cl.clFinish(q->queue), diag); /* a launch may fail as late as here */
    if (bytes > 0)
        CL_TRY(cl.clEnqueueReadBuffer(q->queue, from->handle, CL_TRUE, 0, bytes, to, 0, NULL, NULL),
               diag);
    return GQAC_OK;
}

#else

static gqac_status count(int *n, gqac_diag *diag) {
    *n = 0;
    GQAC_FAIL(diag, GQAC_ABSENT, "gqac was built without the headers of OpenCL");
}

#endif

extern const gpu_driver gpu_driver_opencl;
const gpu_driver gpu_driver_opencl = {.name = "opencl",
                                      .count = count,
#ifdef GQAC_OPENCL
                                      .describe = describe,
                                      .open = open_queue,
                                      .close = close_queue,
                                      .build = build,
                                      .drop = drop,
                                      .allocate = allocate,
                                      .release = release,
                                      .write = write_bytes,
                                      .send = send_bytes,
                                      .read = read_bytes,
                                      .launch = launch
#endif
};
