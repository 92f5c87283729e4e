/* The devices of target "gpu", as the public interface shows them. */
#include <gqac/device.h>

#include <stdio.h>

#include "base/sized.h"
#include "targets/gpu/driver.h"

gqac_status gqac_device_count(int *n, gqac_diag *diag) {
    return gpu_device_count(n, diag);
}

gqac_status gqac_device_at(int index, gqac_device *device, gqac_diag *diag) {
    gqac_device own;
    const gpu_driver *driver;
    gpu_info info;
    int at;
    GQAC_TRY(gpu_device_find(index, &driver, &at, diag));
    GQAC_TRY(driver->describe(at, &info, diag));
    gqac_device_init(&own);
    own.memory = info.memory;
    snprintf(own.driver, sizeof own.driver, "%s", driver->name);
    snprintf(own.name, sizeof own.name, "%s", info.name);
    snprintf(own.version, sizeof own.version, "%s", info.version);
    snprintf(own.lacks, sizeof own.lacks, "%s", info.lacks);
    return gqac_sized_give(device, &own, sizeof own, "gqac_device", diag);
}
