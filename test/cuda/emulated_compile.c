/* The job of libnvrtc in tests with emulated kernels: the C compiler of FAKE_CUDA_CC compiles the
 * text with emulator.h to a shared library. The library has a function emulated_NAME for each
 * kernel, which runs a launch. The code that is passed to the driver is the path of this
 * library. */
#include "emulated_compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The whole file; NULL: it does not exist. */
static char *read_file(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    char *text = calloc(1, (size_t)size + 1);
    rewind(file);
    if (text && fread(text, 1, (size_t)size, file) != (size_t)size)
        *text = 0;
    fclose(file);
    return text;
}

/* The types of parameters, each of which ends with a name, as operands of a call. */
static void put_operands(FILE *to, const char *parameters, const char *end) {
    for (int i = 0; parameters < end; i++) {
        const char *comma = memchr(parameters, ',', (size_t)(end - parameters));
        const char *last = comma ? comma : end, *name = last;
        while (name > parameters && !strchr(" *", name[-1]))
            name--;
        fprintf(to, "%s*(%.*s *)v[%d]", i ? ", " : "", (int)(name - parameters), parameters, i);
        parameters = last + 1;
    }
}

/* For each kernel of a preprocessed text, a function that launches it. */
static void put_launches(FILE *to, const char *text) {
    static const char mark[] = "unused, noinline";
    for (const char *at = strstr(text, mark); at; at = strstr(at + 1, mark)) {
        const char *name = strstr(at, "void ") + 5, *open = strchr(name, '(');
        const char *close = strstr(open, ") {");
        const int length = (int)(open - name);
        fprintf(to, "static void run_%.*s(const void *values) { void *const *v = values; %.*s(",
                length, name, length, name);
        put_operands(to, open + 1, close);
        fprintf(to,
                "); }\nvoid emulated_%.*s(void **v, unsigned x, unsigned y, unsigned items) {\n"
                "emulate(run_%.*s, v, x, y, (int)items, getenv(\"FAKE_CUDA_LATE\")); }\n",
                length, name, length, name);
    }
}

static int run(const char *cc, const char *arguments) {
    char command[4096];
    snprintf(command, sizeof command, "%s -std=c11 -D_GNU_SOURCE -ffp-contract=off -w %s", cc,
             arguments);
    return system(command);
}

bool emulated_compile(const char *cc, const char *folder, const char *text, char *code,
                      size_t size) {
    char path[1024], arguments[3072];
    snprintf(path, sizeof path, "%s/kernels-XXXXXX", folder);
    const int descriptor = mkstemp(path);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (!file)
        return false;
    fputs(text, file);
    fclose(file);
    snprintf(arguments, sizeof arguments, "-x c -E -P '%s' -o '%s.i'", path, path);
    bool made = run(cc, arguments) == 0;
    snprintf(code, size, "%s.i", path);
    char *whole = made ? read_file(code) : NULL;
    file = whole ? fopen(code, "a") : NULL;
    if (file) {
        put_launches(file, whole);
        fclose(file);
    }
    free(whole);
    snprintf(arguments, sizeof arguments, "-O1 -fPIC -shared -x c '%s.i' -o '%s.so' -lm", path,
             path);
    made = file && run(cc, arguments) == 0;
    snprintf(code, size, "%s.so", path);
    return made;
}
