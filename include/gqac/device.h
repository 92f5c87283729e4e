/* The devices that target "gpu" can run on: those of all drivers in one list. */
#ifndef GQAC_DEVICE_H
#define GQAC_DEVICE_H

#include <stdint.h>
#include <string.h>

#include <gqac/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gqac_device {
    size_t size;
    char driver[16];   /* "opencl" or "cuda" */
    char name[128];    /* name of the device */
    char version[128]; /* version of the driver */
    uint64_t memory;   /* bytes */
    /* Features that the kernels need and the device lacks, separated by commas; "": none, so it can
     * be used. */
    char lacks[128];
} gqac_device;
static inline void gqac_device_init(gqac_device *device) {
    memset(device, 0, sizeof *device);
    device->size = sizeof *device;
}

/* Sets *n to the number of devices, which does not change while the process runs. ABSENT: there is
 * none. This is an error so that the diag can give the reason for each driver; *n is 0. */
GQAC_API gqac_status gqac_device_count(int *n, gqac_diag *diag);
/* Fills *device with the properties of device `index`, from 0. gqac_options.device is such an
 * index. The caller sets device->size first (gqac_device_init). ABSENT: there is no such device;
 * INTERNAL: the driver failed; USAGE: device->size is not that of any version of the struct (see
 * options.h). */
GQAC_API gqac_status gqac_device_at(int index, gqac_device *device, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
