/* NVRTC, NVIDIA's run-time compiler of CUDA C++. The library is opened at run time. */
#ifndef GQAC_TARGETS_GPU_NVRTC_H
#define GQAC_TARGETS_GPU_NVRTC_H

#include <stdbool.h>

#include "base/diag.h"

enum { GPU_NVRTC_OPTIONS = 8 };

void gpu_nvrtc_open(void); /* once */
bool gpu_nvrtc_found(void);
void gpu_nvrtc_version(int *major, int *minor);
/* Sets the options of a compilation. arch: "-arch=sm_90" or the like, which must outlive them. */
void gpu_nvrtc_options(const char *arch, const char *options[GPU_NVRTC_OPTIONS]);
/* Compiles to the device's own code, so that the driver compiles nothing. The caller frees *cubin,
 * also after a failure. INTERNAL: the compiler's log is in the diag. */
gqac_status gpu_nvrtc_compile(const char *arch, const char *text, char **cubin, size_t *bytes,
                              gqac_diag *diag);

#endif
