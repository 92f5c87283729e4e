/* The float values of a context that are on the device. A value is known by the address of its data
 * in the memory of the host; its newest bytes are there, on the device, or in both. Kernels of the
 * device leave their results there; a value is copied when the other side reads it. */
#ifndef GQAC_TARGETS_GPU_MIRROR_H
#define GQAC_TARGETS_GPU_MIRROR_H

#include "targets/gpu/append.h"
#include "targets/gpu/gpu.h"
#include "targets/mirror.h"

extern const target_mirror gpu_mirror_functions; /* of gqac_target.mirror */

/* Sets *buffer to the device's copy of a float value, which is made if it is not the newest. */
gqac_status gpu_mirror_in(gpu_work *w, const gqac_tensor *value, gpu_buffer *buffer);
/* Sets *buffer to memory for a float value that a kernel writes next: afterwards its newest bytes
 * are on the device. */
gqac_status gpu_mirror_out(gpu_work *w, const gqac_tensor *value, gpu_buffer *buffer);

/* The rows that kernels have made since the run began and that the host lacks. */
gpu_new_rows *gpu_mirror_new_rows(const gpu_work *w);
/* A number of the run, not 0, that no other run of the process has. */
uint64_t gpu_mirror_run(const gpu_work *w);

#endif
