/* Source of the interface: the NVRTC manual of NVIDIA. */
#include "targets/gpu/nvrtc.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "targets/gpu/cuda_api.h"

/* NOLINTNEXTLINE(bugprone-reserved-identifier,cert-*): the name that NVRTC gives it */
typedef struct _nvrtcProgram *nvrtcProgram;

#define COMPILER(F)                                                                                \
    F(Version, nvrtcVersion, int *, int *)                                                         \
    F(CreateProgram, nvrtcCreateProgram, nvrtcProgram *, const char *, const char *, int,          \
      const char *const *, const char *const *)                                                    \
    F(CompileProgram, nvrtcCompileProgram, nvrtcProgram, int, const char *const *)                 \
    F(GetProgramLogSize, nvrtcGetProgramLogSize, nvrtcProgram, size_t *)                           \
    F(GetProgramLog, nvrtcGetProgramLog, nvrtcProgram, char *)                                     \
    F(GetCUBINSize, nvrtcGetCUBINSize, nvrtcProgram, size_t *)                                     \
    F(GetCUBIN, nvrtcGetCUBIN, nvrtcProgram, char *)                                               \
    F(DestroyProgram, nvrtcDestroyProgram, nvrtcProgram *)

static struct {
    COMPILER(CUDA_POINTER)
    bool found;
} rtc;

/* The name of the first function that the library lacks; NULL: it lacks none. */
#define FROM rtc
static const char *find(void *library) {
    COMPILER(CUDA_FIND)
    return NULL;
}
#undef FROM

void gpu_nvrtc_open(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !rtc.found; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        rtc.found = library && !find(library);
    }
}

bool gpu_nvrtc_found(void) {
    return rtc.found;
}

void gpu_nvrtc_version(int *major, int *minor) {
    rtc.Version(major, minor);
}

/* Fails with the last part of the compiler's log, where the errors are counted. */
static gqac_status log_failure(nvrtcProgram program, int code, gqac_diag *diag) {
    size_t bytes = 0;
    gqac_status status = gqac_diag_set(
        diag, GQAC_INTERNAL, "CUDA: compiling the kernels failed with the code %d of NVRTC", code);
    if (rtc.GetProgramLogSize(program, &bytes) != 0)
        return status;
    char *log = calloc(1, bytes + 1);
    if (log && rtc.GetProgramLog(program, log) == 0)
        gqac_diag_rule(diag, "%s", log);
    free(log);
    return status;
}

static gqac_status get_cubin(nvrtcProgram program, char **cubin, size_t *bytes, gqac_diag *diag) {
    if (rtc.GetCUBINSize(program, bytes) != 0 || *bytes == 0)
        GQAC_FAIL(diag, GQAC_INTERNAL, "CUDA: NVRTC made no code");
    *cubin = malloc(*bytes);
    if (!*cubin)
        return gqac_diag_oom(diag, "kernels");
    if (rtc.GetCUBIN(program, *cubin) != 0)
        GQAC_FAIL(diag, GQAC_INTERNAL, "CUDA: nvrtcGetCUBIN failed");
    return GQAC_OK;
}

void gpu_nvrtc_options(const char *arch, const char *options[GPU_NVRTC_OPTIONS]) {
    static const char *const all[GPU_NVRTC_OPTIONS] = {NULL,
                                                       "--fmad=false",
                                                       "--ftz=false",
                                                       "--prec-div=true",
                                                       "--prec-sqrt=true",
                                                       "--std=c++17",
                                                       "-default-device",
                                                       "--diag-suppress=177"};
    memcpy(options, all, sizeof all);
    options[0] = arch;
}

gqac_status gpu_nvrtc_compile(const char *arch, const char *text, char **cubin, size_t *bytes,
                              gqac_diag *diag) {
    const char *options[GPU_NVRTC_OPTIONS];
    gpu_nvrtc_options(arch, options);
    nvrtcProgram program = NULL;
    int code = rtc.CreateProgram(&program, text, "gqac.cu", 0, NULL, NULL);
    if (code != 0)
        GQAC_FAIL(diag, GQAC_INTERNAL, "CUDA: nvrtcCreateProgram failed with the code %d", code);
    code = rtc.CompileProgram(program, GPU_NVRTC_OPTIONS, options);
    const gqac_status status =
        code == 0 ? get_cubin(program, cubin, bytes, diag) : log_failure(program, code, diag);
    rtc.DestroyProgram(&program);
    return status;
}
