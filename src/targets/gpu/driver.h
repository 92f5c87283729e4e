/* What the gpu target needs of a driver: devices, a queue with memory, and kernels built from
 * source. There is one row of function pointers for each driver. The library of a driver is opened
 * at run time, so that gqac builds and starts without it. */
#ifndef GQAC_TARGETS_GPU_DRIVER_H
#define GQAC_TARGETS_GPU_DRIVER_H

#include <gqac/log.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"

typedef struct gpu_info {
    char name[128];    /* of the device */
    char version[128]; /* of the driver */
    uint64_t memory;   /* bytes */
    char lacks[128];   /* what kernels need and the device lacks; "": it can be used */
} gpu_info;

typedef struct gpu_queue gpu_queue; /* of one device, which runs work in order */

/* Memory of a device. */
typedef struct gpu_buffer {
    void *handle; /* the driver's; NULL: none */
    size_t bytes;
    const gpu_queue *queue; /* that it was allocated for, where the driver needs it to release it */
} gpu_buffer;

typedef struct gpu_kernel gpu_kernel; /* built for a queue */

/* An argument of a kernel: a number, or the handle of a buffer. */
typedef struct gpu_arg {
    const void *value;
    size_t size;
} gpu_arg;
#define GPU_ARG(x)       ((gpu_arg){&(x), sizeof(x)})
#define GPU_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* The groups of a launch and the items of a group, along two axes. */
typedef struct gpu_grid {
    size_t groups[2], items[2];
} gpu_grid;

/* The line of the log before kernels are compiled, which can take a minute; one for a program. */
typedef struct gpu_notice {
    const gqac_log *log;
    bool given;
} gpu_notice;
void gpu_notice_give(gpu_notice *notice, const char *device);

/* Calls that fail return ABSENT (there is no such driver or device), NO_MEMORY (of the device) or
 * INTERNAL (anything else), with the driver's code in the diag. */
typedef struct gpu_driver {
    const char *name;
    /* Sets the number of devices, at least 1. ABSENT: the library of the driver is not there, or
     * has no device. */
    gqac_status (*count)(int *n, gqac_diag *diag);
    gqac_status (*describe)(int index, gpu_info *info, gqac_diag *diag);
    /* ABSENT: no such device, or it lacks what kernels need, unless the environment has
     * GQAC_GPU_ANY_DEVICE (simulators do not claim all that they do). */
    gqac_status (*open)(int index, gpu_queue **queue, gqac_diag *diag);
    void (*close)(gpu_queue *queue); /* after its buffers and kernels; NULL is allowed */
    /* The name of the architecture of a device whose tensor cores multiply bf16, with the words of
     * kernels/language.h for them; NULL: it has none. The function may be NULL: no device has. */
    const char *(*tensor_cores)(const gpu_queue *queue);
    /* Compiles two texts, one after the other, or takes their code from the cache, and finds `n`
     * kernels by name. The log of the driver's compiler is in the diag. */
    gqac_status (*build)(gpu_queue *queue, const char *const texts[2], int n,
                         const char *const *names, gpu_kernel **kernels, gpu_notice *notice,
                         gqac_diag *diag);
    void (*drop)(gpu_kernel *kernel); /* NULL is allowed */
    gqac_status (*allocate)(gpu_queue *queue, size_t bytes, gpu_buffer *buffer, gqac_diag *diag);
    void (*release)(gpu_buffer *buffer); /* clears it too; it may be empty */
    /* write and read return when the bytes have been copied, and what was launched or sent before
     * has ended; a read of 0 bytes, whose buffer may be empty, only waits. `at`: the first byte of
     * the buffer that is written. */
    gqac_status (*write)(gpu_queue *queue, const gpu_buffer *to, size_t at, const void *from,
                         size_t bytes, gqac_diag *diag);
    /* Starts a copy and does not wait: `from` keeps its bytes until a read, or a write, returns. */
    gqac_status (*send)(gpu_queue *queue, const gpu_buffer *to, const void *from, size_t bytes,
                        gqac_diag *diag);
    gqac_status (*read)(gpu_queue *queue, const gpu_buffer *from, void *to, size_t bytes,
                        gqac_diag *diag);
    /* Memory of the host to which `read` copies several times as fast as to other memory. NULL,
     * both: the driver has none. */
    gqac_status (*take_host)(gpu_queue *queue, size_t bytes, void **memory, gqac_diag *diag);
    void (*give_host)(gpu_queue *queue, void *memory);
    gqac_status (*launch)(gpu_queue *queue, gpu_kernel *kernel, const gpu_grid *grid, int n_args,
                          const gpu_arg *args, gqac_diag *diag);
    /* What is launched may wait on the host until a later call submits it, which may be one of
     * another thread, or a release. losses: the number of submissions that failed so far; lost
     * fails like the last of them. NULL: `launch` itself submits. */
    uint64_t (*losses)(const gpu_queue *queue);
    gqac_status (*lost)(const gpu_queue *queue, gqac_diag *diag);
} gpu_driver;

/* The devices of all drivers in one list, from index 0; `own` is the index among those of the
 * driver. ABSENT: there is no device, or not this one. */
gqac_status gpu_device_count(int *n, gqac_diag *diag);
gqac_status gpu_device_find(int index, const gpu_driver **driver, int *own, gqac_diag *diag);

#endif
