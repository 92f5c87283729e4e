/* The devices that the target "gpu" can run on: each by its index, as `gqac devices` lists them. */
#ifndef GQAC_DEVICE_H
#define GQAC_DEVICE_H

#include <stdint.h>

#include <gqac/program.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_device {
    size_t size;
    int index;         /* for gqac_options.device */
    char driver[16];   /* "opencl" */
    char name[128];    /* of the device */
    char version[128]; /* of the driver */
    uint64_t memory;   /* bytes */
    /* What the kernels need and the device lacks, separated by commas; "": it can be used. */
    char lacks[128];
} gqac_device;
static inline void gqac_device_init(gqac_device *device) {
    memset(device, 0, sizeof *device);
    device->size = sizeof *device;
}

/* Counts the devices of all drivers. ABSENT: there is none; the message names the reason of each
 * driver. */
GQAC_API gqac_status gqac_device_count(int *n, gqac_diag *diag);
/* Describes device `index`, from 0. `device` has been initialised. ABSENT: there is no such
 * device. */
GQAC_API gqac_status gqac_device_at(int index, gqac_device *device, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
