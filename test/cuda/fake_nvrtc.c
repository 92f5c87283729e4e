/* A run-time compiler for CUDA that compiles nothing, for tests: libnvrtc.so.13. Its code is the
 * word FAKE. The text and the options of each compilation are written to the folder FAKE_NVRTC
 * (gqac.cu and, for compilation number n of the process, gqac-n.cu; one option a line in options),
 * and a line is added to `compiled` there. FAKE_NVRTC_FAIL makes the compilation fail with a log.
 * With FAKE_CUDA_CC, the command of a C compiler, the kernels are compiled for the emulator
 * (emulated_compile.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulated_compile.h"

#define API __attribute__((visibility("default")))
enum { COMPILATION = 6 };
static const char log_text[] = "gqac.cu(1): error: fake";
static char code[1100] = "FAKE code";

/* A file of the folder, or NULL. */
static FILE *open_file(const char *name, const char *mode) {
    char path[4096];
    const char *folder = getenv("FAKE_NVRTC");
    if (!folder)
        return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, mode);
}

API int nvrtcVersion(int *major, int *minor);
API int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return 0;
}
API int nvrtcCreateProgram(char **program, const char *text, const char *name, int n,
                           const char *const *headers, const char *const *names);
API int nvrtcCreateProgram(char **program, const char *text, const char *name, int n,
                           const char *const *headers, const char *const *names) {
    *program = strdup(text);
    return *program && name && n == 0 && !headers && !names ? 0 : 1;
}
API int nvrtcCompileProgram(const char *program, int n, const char *const *options);
API int nvrtcCompileProgram(const char *program, int n, const char *const *options) {
    FILE *text = open_file("gqac.cu", "w"), *list = open_file("options", "w");
    FILE *count = open_file("compiled", "a");
    static int n_texts;
    char name[32];
    snprintf(name, sizeof name, "gqac-%d.cu", ++n_texts);
    FILE *own = open_file(name, "w");
    if (own) {
        fputs(program, own);
        fclose(own);
    }
    if (text && list && count) {
        fputs(program, text);
        for (int i = 0; i < n; i++)
            fprintf(list, "%s\n", options[i]);
        fputs("once\n", count);
        fclose(text);
        fclose(list);
        fclose(count);
    }
    const char *cc = getenv("FAKE_CUDA_CC"), *folder = getenv("FAKE_NVRTC");
    if (cc && !emulated_compile(cc, folder, program, code, sizeof code))
        return COMPILATION;
    return getenv("FAKE_NVRTC_FAIL") ? COMPILATION : 0;
}
API int nvrtcGetProgramLogSize(const char *program, size_t *bytes);
API int nvrtcGetProgramLogSize(const char *program, size_t *bytes) {
    *bytes = sizeof log_text;
    return program ? 0 : 1;
}
API int nvrtcGetProgramLog(const char *program, char *text);
API int nvrtcGetProgramLog(const char *program, char *text) {
    memcpy(text, log_text, sizeof log_text);
    return program ? 0 : 1;
}
API int nvrtcGetCUBINSize(const char *program, size_t *bytes);
API int nvrtcGetCUBINSize(const char *program, size_t *bytes) {
    *bytes = sizeof code;
    return program ? 0 : 1;
}
API int nvrtcGetCUBIN(const char *program, char *cubin);
API int nvrtcGetCUBIN(const char *program, char *cubin) {
    memcpy(cubin, code, sizeof code);
    return program ? 0 : 1;
}
API int nvrtcDestroyProgram(char **program);
API int nvrtcDestroyProgram(char **program) {
    free(*program);
    *program = NULL;
    return 0;
}
