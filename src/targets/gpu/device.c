/* The list of drivers, and the devices of all of them in one list. */
#include <stdio.h>
#include <string.h>

#include "targets/gpu/driver.h"

extern const gpu_driver gpu_driver_cuda, gpu_driver_opencl;

/* The vendor's own driver comes first: a device that two drivers have is in the list twice. */
static const gpu_driver *const drivers[] = {&gpu_driver_cuda, &gpu_driver_opencl};
enum { N_DRIVERS = sizeof drivers / sizeof *drivers };

/* The number of devices of a driver; 0, with the reason added to `reasons`, when it has none. */
static int count_of(const gpu_driver *driver, char *reasons, size_t size) {
    gqac_diag own = {.index = -1};
    int n = 0;
    if (driver->count(&n, &own) == GQAC_OK)
        return n;
    const size_t at = strlen(reasons);
    snprintf(reasons + at, size - at, "%s%s: %s", at ? "; " : "", driver->name, own.what);
    return 0;
}

gqac_status gpu_device_count(int *n, gqac_diag *diag) {
    char reasons[256] = "";
    *n = 0;
    for (int i = 0; i < N_DRIVERS; i++)
        *n += count_of(drivers[i], reasons, sizeof reasons);
    if (*n > 0)
        return GQAC_OK;
    gqac_diag_set(diag, GQAC_ABSENT, "there is no device for target 'gpu' (%s)", reasons);
    gqac_diag_hint(diag,
                   "install the driver of the device (NVIDIA's, or one for OpenCL); on Debian, "
                   "pocl-opencl-icd runs OpenCL on the processor");
    return GQAC_ABSENT;
}

gqac_status gpu_device_find(int index, const gpu_driver **driver, int *own, gqac_diag *diag) {
    char reasons[256] = "";
    int n;
    GQAC_TRY(gpu_device_count(&n, diag));
    for (int i = 0, first = 0; i < N_DRIVERS && index >= 0; i++) {
        const int here = count_of(drivers[i], reasons, sizeof reasons);
        if (index < first + here) {
            *driver = drivers[i];
            *own = index - first;
            return GQAC_OK;
        }
        first += here;
    }
    gqac_diag_set(diag, GQAC_ABSENT, "there is no device %d", index);
    gqac_diag_rule(diag, "devices are numbered from 0 to %d", n - 1);
    gqac_diag_hint(diag, "gqac devices");
    return GQAC_ABSENT;
}
