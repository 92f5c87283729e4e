/* libOpenCL.so.1 for tests: passes every call on to the real loader, and checks accesses to memory.
 * A buffer is between two bands of bytes, which are checked when it is released; its own bytes
 * initially contain NaN.
 *
 *   WATCH_OPENCL=PATH   the real library
 *   WATCH_LOG=FILE      lines that are written at the end: the number of calls that may fail, the
 *                       objects that have not been released, the buffers with a broken band, the
 *                       largest sum of bytes of all buffers at one time, and the call that failed
 *   WATCH_FAIL=N        the N-th call that may fail fails (from 1; 0: none)
 *   WATCH_CALL=NAME     counts only calls of this function
 *   WATCH_ABORT=1       a broken band ends the process, for tests of many programs
 *   WATCH_SHORT=N       bands begin N bytes early, so that correct writes break them: a negative
 *                       control */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAND = 4096, MOST_BUFFERS = 4096, INSIDE = 0xFF, OUTSIDE = 0xA5 };

typedef struct buffer {
    cl_mem part, whole; /* the memory that gqac uses, and the same with its bands */
    size_t bytes;
} buffer;

static struct {
    void *library;
    cl_command_queue queue; /* the last queue */
    buffer buffers[MOST_BUFFERS];
    long calls, left, broken, bytes, most; /* bytes: of all buffers; most: at the same time */
    const char *failed;
    pthread_mutex_t lock;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

static void finish(void) {
    const char *path = getenv("WATCH_LOG");
    FILE *log = path ? fopen(path, "w") : NULL;
    if (!log)
        return;
    fprintf(log, "calls %ld\nleft %ld\nbroken %ld\nmost %ld\nfailed %s\n", watch.calls, watch.left,
            watch.broken, watch.most, watch.failed ? watch.failed : "");
    fclose(log);
}

static void open_library(void) {
    const char *path = getenv("WATCH_OPENCL");
    watch.library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!watch.library)
        abort();
    atexit(finish);
}

static void begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
}

static void *real(const char *name) {
    begin();
    return dlsym(watch.library, name);
}

/* Counts a call that may fail; true: it fails. */
static bool fails(const char *name) {
    const char *only = getenv("WATCH_CALL");
    begin();
    pthread_mutex_lock(&watch.lock);
    const bool counts = !only || !strcmp(only, name);
    const bool now = counts && ++watch.calls == number("WATCH_FAIL");
    if (now)
        watch.failed = name;
    pthread_mutex_unlock(&watch.lock);
    return now;
}

static void count(long change) {
    pthread_mutex_lock(&watch.lock);
    watch.left += change;
    pthread_mutex_unlock(&watch.lock);
}

/* ---- calls that are passed on ------------------------------------------------------ */

#define REAL(name) ((__typeof__(name) *)real(#name))
/* A call that returns a status. */
#define PASS(name, parameters, arguments)                                                          \
    cl_int name parameters {                                                                       \
        return fails(#name) ? CL_OUT_OF_RESOURCES : REAL(name) arguments;                          \
    }
/* A call that creates an object, and one that releases it. */
#define MAKE(type, name, parameters, arguments)                                                    \
    type name parameters {                                                                         \
        if (fails(#name)) {                                                                        \
            if (code)                                                                              \
                *code = CL_OUT_OF_HOST_MEMORY;                                                     \
            return NULL;                                                                           \
        }                                                                                          \
        type made = REAL(name) arguments;                                                          \
        count(made != NULL);                                                                       \
        return made;                                                                               \
    }
#define RELEASE(name, type)                                                                        \
    cl_int name(type object) {                                                                     \
        count(-1);                                                                                 \
        return REAL(name)(object);                                                                 \
    }

typedef void CL_CALLBACK told(const char *, const void *, size_t, void *);
typedef void CL_CALLBACK built(cl_program, void *);

PASS(clGetPlatformIDs, (cl_uint n, cl_platform_id *list, cl_uint *found), (n, list, found))
PASS(clGetDeviceIDs,
     (cl_platform_id platform, cl_device_type type, cl_uint n, cl_device_id *list, cl_uint *found),
     (platform, type, n, list, found))
PASS(clGetDeviceInfo,
     (cl_device_id device, cl_device_info what, size_t size, void *value, size_t *needed),
     (device, what, size, value, needed))
MAKE(cl_context, clCreateContext,
     (const cl_context_properties *properties, cl_uint n, const cl_device_id *devices, told *tell,
      void *arg, cl_int *code),
     (properties, n, devices, tell, arg, code))
RELEASE(clReleaseContext, cl_context)
RELEASE(clReleaseCommandQueue, cl_command_queue)
MAKE(cl_program, clCreateProgramWithSource,
     (cl_context context, cl_uint n, const char **texts, const size_t *lengths, cl_int *code),
     (context, n, texts, lengths, code))
MAKE(cl_program, clCreateProgramWithBinary,
     (cl_context context, cl_uint n, const cl_device_id *devices, const size_t *lengths,
      const unsigned char **binaries, cl_int *status, cl_int *code),
     (context, n, devices, lengths, binaries, status, code))
PASS(clBuildProgram,
     (cl_program program, cl_uint n, const cl_device_id *devices, const char *options, built *tell,
      void *arg),
     (program, n, devices, options, tell, arg))
PASS(clGetProgramInfo,
     (cl_program program, cl_program_info what, size_t size, void *value, size_t *needed),
     (program, what, size, value, needed))
PASS(clGetProgramBuildInfo,
     (cl_program program, cl_device_id device, cl_program_build_info what, size_t size, void *value,
      size_t *needed),
     (program, device, what, size, value, needed))
RELEASE(clReleaseProgram, cl_program)
MAKE(cl_kernel, clCreateKernel, (cl_program program, const char *name, cl_int *code),
     (program, name, code))
RELEASE(clReleaseKernel, cl_kernel)
PASS(clSetKernelArg, (cl_kernel kernel, cl_uint at, size_t size, const void *value),
     (kernel, at, size, value))
PASS(clEnqueueWriteBuffer,
     (cl_command_queue queue, cl_mem to, cl_bool wait, size_t at, size_t bytes, const void *from,
      cl_uint n, const cl_event *events, cl_event *event),
     (queue, to, wait, at, bytes, from, n, events, event))
PASS(clEnqueueReadBuffer,
     (cl_command_queue queue, cl_mem from, cl_bool wait, size_t at, size_t bytes, void *to,
      cl_uint n, const cl_event *events, cl_event *event),
     (queue, from, wait, at, bytes, to, n, events, event))
PASS(clEnqueueNDRangeKernel,
     (cl_command_queue queue, cl_kernel kernel, cl_uint axes, const size_t *offset,
      const size_t *global, const size_t *local, cl_uint n, const cl_event *events,
      cl_event *event),
     (queue, kernel, axes, offset, global, local, n, events, event))
PASS(clFinish, (cl_command_queue queue), (queue))

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties, cl_int *code) {
    if (fails("clCreateCommandQueue")) {
        *code = CL_OUT_OF_HOST_MEMORY;
        return NULL;
    }
    watch.queue = REAL(clCreateCommandQueue)(context, device, properties, code);
    count(watch.queue != NULL);
    return watch.queue;
}

/* ---- buffers ----------------------------------------------------------------------- */

static buffer *find(cl_mem part) {
    for (int i = 0; i < MOST_BUFFERS; i++)
        if (watch.buffers[i].part == part)
            return &watch.buffers[i];
    abort();
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void *host,
                      cl_int *code) {
    unsigned char *content = malloc(bytes + 2 * BAND);
    const size_t early = (size_t)number("WATCH_SHORT");
    if (fails("clCreateBuffer") || !content || host) {
        free(content);
        *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return NULL;
    }
    memset(content, OUTSIDE, bytes + 2 * BAND);
    memset(content + BAND, INSIDE, bytes > early ? bytes - early : 0);
    const cl_buffer_region region = {BAND, bytes};
    cl_mem whole = REAL(clCreateBuffer)(context, flags | CL_MEM_COPY_HOST_PTR, bytes + 2 * BAND,
                                        content, code);
    free(content);
    if (!whole)
        return NULL;
    cl_mem part =
        REAL(clCreateSubBuffer)(whole, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, code);
    if (!part)
        abort();
    pthread_mutex_lock(&watch.lock);
    *find(NULL) = (buffer){part, whole, bytes > early ? bytes - early : 0};
    watch.left++;
    watch.bytes += (long)bytes;
    watch.most = watch.bytes > watch.most ? watch.bytes : watch.most;
    pthread_mutex_unlock(&watch.lock);
    return part;
}

static bool is_band(const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != OUTSIDE)
            return false;
    return true;
}

/* Waits for the launches, and checks the bands of the buffer. */
static bool is_whole(const buffer *b) {
    unsigned char bands[2][BAND];
    if (REAL(clFinish)(watch.queue) != CL_SUCCESS ||
        REAL(clEnqueueReadBuffer)(watch.queue, b->whole, CL_TRUE, 0, BAND, bands[0], 0, NULL,
                                  NULL) != CL_SUCCESS ||
        REAL(clEnqueueReadBuffer)(watch.queue, b->whole, CL_TRUE, BAND + b->bytes, BAND, bands[1],
                                  0, NULL, NULL) != CL_SUCCESS)
        return false;
    return is_band(bands[0], BAND) && is_band(bands[1], BAND);
}

cl_int clReleaseMemObject(cl_mem memory) {
    pthread_mutex_lock(&watch.lock);
    buffer *b = find(memory);
    const buffer released = *b;
    const bool whole = is_whole(b);
    watch.broken += !whole;
    if (!whole && number("WATCH_ABORT"))
        abort();
    watch.bytes -= (long)b->bytes;
    *b = (buffer){0};
    watch.left--;
    pthread_mutex_unlock(&watch.lock);
    REAL(clReleaseMemObject)(released.part);
    return REAL(clReleaseMemObject)(released.whole);
}
