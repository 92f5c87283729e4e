/* Sessions of ONNX Runtime on the provider under test, without Python.
 *
 *   tool_sessions RUNTIME PROVIDER loop N MODEL [KEY=VALUE]...
 *       creates, runs and releases N sessions; none may leak memory of the provider
 *   tool_sessions RUNTIME PROVIDER fail STEP MODEL [KEY=VALUE]...
 *       the same, while the 1st, (1+STEP)th, ... allocation of the provider fails; prints how often
 *       the session or a run failed, and how often the runtime continued without the provider
 *   tool_sessions RUNTIME PROVIDER once N MODEL [KEY=VALUE]...
 *       one session, while the Nth allocation fails; prints why there is none, or nothing
 *   tool_sessions RUNTIME PROVIDER peak N MODEL [KEY=VALUE]...
 *       N sessions, one after the other; prints the maximum number of bytes that the provider had
 *       allocated at one time
 *   tool_sessions RUNTIME PROVIDER alive N MODEL [KEY=VALUE]...
 *       N sessions exist when the provider is unregistered, are run again, and still exist at exit
 *
 * RUNTIME is libonnxruntime.so, PROVIDER the library of counted_alloc.h. The model computes y of x
 * f32[2,512]; of @MODEL, the runtime gets the bytes instead of the path. KEY=VALUE are entries of
 * the session's configuration. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../integrations/ort/ort.h"
#include "counted_alloc.h"

enum { WIDTH = 512, ROWS = 2, MOST = 16, FLOAT = 1 };

typedef struct ort_env ort_env;
typedef struct ort_session ort_session;
typedef struct ort_memory_info ort_memory_info;

/* Members of the API table, by their number. */
#define CALL(number, result, ...)                                                                  \
    ((result(*)(__VA_ARGS__))((void *const *)(const void *)api)[number])
#define CREATE_ENV CALL(3, ort_status *, int, const char *, ort_env **)
#define CREATE_SESSION                                                                             \
    CALL(7, ort_status *, ort_env *, const char *, const ort_session_options *, ort_session **)
#define CREATE_SESSION_OF_BYTES                                                                    \
    CALL(8, ort_status *, ort_env *, const void *, size_t, const ort_session_options *,            \
         ort_session **)
#define RUN                                                                                        \
    CALL(9, ort_status *, ort_session *, const void *, const char *const *,                        \
         const ort_value *const *, size_t, const char *const *, size_t, ort_value **)
#define CREATE_OPTIONS CALL(10, ort_status *, ort_session_options **)
#define SET_LOG        CALL(22, ort_status *, ort_session_options *, int)
#define CREATE_TENSOR                                                                              \
    CALL(49, ort_status *, const ort_memory_info *, void *, size_t, const int64_t *, size_t, int,  \
         ort_value **)
#define CREATE_MEMORY   CALL(69, ort_status *, int, int, ort_memory_info **)
#define RELEASE_ENV     CALL(92, void, ort_env *)
#define RELEASE_MEMORY  CALL(94, void, ort_memory_info *)
#define RELEASE_SESSION CALL(95, void, ort_session *)
#define RELEASE_OPTIONS CALL(100, void, ort_session_options *)
#define ADD_ENTRY       CALL(130, ort_status *, ort_session_options *, const char *, const char *)
#define REGISTER        CALL(301, ort_status *, ort_env *, const char *, const char *)
#define UNREGISTER      CALL(302, ort_status *, ort_env *, const char *)
#define GET_DEVICES     CALL(303, ort_status *, ort_env *, const ort_device *const **, size_t *)
#define ADD_DEVICES                                                                                \
    CALL(304, ort_status *, ort_session_options *, ort_env *, const ort_device *const *, size_t,   \
         const char *const *, const char *const *, size_t)
#define NAME_OF_DEVICE CALL(312, const char *, const ort_device *)

static const ort_api *api;
static ort_env *env;
static ort_session *alive[MOST]; /* still alive at exit */
static void (*fail_at)(size_t);
static size_t (*calls)(void), (*live)(void), (*peak)(void);
static float expected[ROWS * WIDTH];

static _Noreturn void end(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* Releases the status and returns false if it was an error. An unexpected error ends the program.
 * Expected errors are that memory is exhausted and, for a context model, that no provider claimed
 * it: in the words of new runtimes, and of 1.23. */
static bool good(ort_status *status, const char *what, bool may_fail) {
    if (!status)
        return true;
    const char *text = api->GetErrorMessage(status);
    if (!may_fail ||
        (!strstr(text, "out of memory") && !strstr(text, "not compatible with any execution") &&
         !strstr(text, "Could not find an implementation for EPContext")))
        end(what, text);
    api->ReleaseStatus(status);
    return false;
}

static ort_session_options *make_options(int n, char **entries) {
    ort_session_options *options;
    const ort_device *const *devices, *own = NULL;
    const char *const key = "threads", *const value = "1";
    size_t n_devices;
    good(CREATE_OPTIONS(&options), "options", false);
    good(SET_LOG(options, 4), "log", false);
    good(GET_DEVICES(env, &devices, &n_devices), "devices", false);
    for (size_t i = 0; i < n_devices; i++)
        if (strcmp(NAME_OF_DEVICE(devices[i]), "GqacExecutionProvider") == 0)
            own = devices[i];
    if (!own)
        end("devices", "the provider has none");
    good(ADD_DEVICES(options, env, &own, 1, &key, &value, 1), "provider", false);
    for (int i = 0; i < n; i++) {
        char *equals = strchr(entries[i], '=');
        if (!equals)
            end("usage", entries[i]);
        *equals = '\0';
        good(ADD_ENTRY(options, entries[i], equals + 1), "entry", false);
        *equals = '=';
    }
    return options;
}

/* Runs a session; the values must equal those of the first run. */
static bool run(ort_session *session, bool may_fail) {
    static float x[ROWS * WIDTH];
    static const int64_t shape[] = {ROWS, WIDTH};
    const char *const in = "x", *const out = "y";
    ort_memory_info *memory;
    ort_value *input, *output = NULL;
    void *data;
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)(i % 13) / 16;
    good(CREATE_MEMORY(0, 0, &memory), "memory", false);
    good(CREATE_TENSOR(memory, x, sizeof x, shape, 2, FLOAT, &input), "tensor", false);
    const bool ran =
        good(RUN(session, NULL, &in, (const ort_value *const *)&input, 1, &out, 1, &output), "run",
             may_fail);
    if (ran) {
        good(api->GetTensorMutableData(output, &data), "output", false);
        if (expected[WIDTH] == 0)
            memcpy(expected, data, sizeof expected);
        for (int i = 0; i < ROWS * WIDTH; i++) {
            const float d = ((const float *)data)[i] - expected[i];
            if (!(d > -1e-3f && d < 1e-3f))
                end("run", "another result");
        }
        api->ReleaseValue(output);
    }
    api->ReleaseValue(input);
    RELEASE_MEMORY(memory);
    return ran;
}

static ort_status *create_of_bytes(const char *path, const ort_session_options *options,
                                   ort_session **session) {
    static char bytes[1 << 22];
    FILE *file = fopen(path, "rb");
    if (!file)
        end("fopen", path);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    return CREATE_SESSION_OF_BYTES(env, bytes, size, options, session);
}

static ort_session *create(const char *model, const ort_session_options *options, bool may_fail) {
    ort_session *session = NULL;
    ort_status *status = *model == '@' ? create_of_bytes(model + 1, options, &session)
                                       : CREATE_SESSION(env, model, options, &session);
    return good(status, "session", may_fail) ? session : NULL;
}

static void loop(int n, const char *model, const ort_session_options *options) {
    size_t before = 0;
    for (int i = 0; i < n; i++) {
        ort_session *session = create(model, options, false);
        if (live() <= before)
            end("session", "the provider has no part in it");
        run(session, false);
        RELEASE_SESSION(session);
        if (i && live() != before)
            end("loop", "a session leaves memory behind");
        before = live();
    }
    printf("live %zu\n", before);
}

static void fail(int step, const char *model, const ort_session_options *options) {
    int failed = 0, done = 0;
    loop(2, model, options);
    const size_t before = live();
    fail_at(0);
    RELEASE_SESSION(create(model, options, false));
    const size_t opening = calls();
    for (size_t n = 1;; n += (size_t)step) {
        fail_at(n);
        ort_session *session = create(model, options, true);
        const bool ran = session && run(session, true);
        if (session)
            RELEASE_SESSION(session);
        const size_t called = calls();
        fail_at(0);
        if (live() != before)
            end("fail", "a session that fails leaves memory behind");
        if (called < n && ran)
            break;
        failed += !ran;
        done += ran;
    }
    printf("failed %d, went on %d, allocations %zu\n", failed, done, opening);
}

static void once(int n, const char *model, const ort_session_options *options) {
    ort_session *session = NULL;
    fail_at((size_t)n);
    ort_status *status = CREATE_SESSION(env, model, options, &session);
    fail_at(0);
    if (status) {
        printf("%s\n", api->GetErrorMessage(status));
        api->ReleaseStatus(status);
        return;
    }
    RELEASE_SESSION(session);
}

static void measure(int n, const char *model, const ort_session_options *options) {
    fail_at(0);
    for (int i = 0; i < n; i++) {
        ort_session *session = create(model, options, false);
        run(session, false);
        RELEASE_SESSION(session);
    }
    printf("peak %zu\n", peak());
}

static void outlive(int n, const char *model, const ort_session_options *options) {
    for (int i = 0; i < n && i < MOST; i++) {
        alive[i] = create(model, options, false);
        run(alive[i], false);
    }
    good(UNREGISTER(env, "gqac"), "unregister", false);
    for (int i = 0; i < n && i < MOST; i++)
        run(alive[i], false);
    RELEASE_SESSION(alive[0]);
    alive[0] = NULL;
}

static void *symbol(void *library, const char *name) {
    void *found = library ? dlsym(library, name) : NULL;
    if (!found)
        end(name, dlerror());
    return found;
}

int main(int argc, char **argv) {
    if (argc < 6)
        end("usage",
            "tool_sessions RUNTIME PROVIDER loop|fail|once|peak|alive N MODEL [KEY=VALUE]...");
    void *runtime = dlopen(argv[1], RTLD_NOW), *own = dlopen(argv[2], RTLD_NOW);
    const ort_api_base *(*get_base)(void) =
        (const ort_api_base *(*)(void))symbol(runtime, "OrtGetApiBase");
    fail_at = (void (*)(size_t))symbol(own, "counted_fail_at");
    calls = (size_t(*)(void))symbol(own, "counted_calls");
    live = (size_t(*)(void))symbol(own, "counted_live");
    peak = (size_t(*)(void))symbol(own, "counted_peak");
    api = get_base()->GetApi(ORT_VERSION);
    if (!api)
        end("runtime", "it lacks this version of the interface");
    good(CREATE_ENV(4, "test", &env), "environment", false);
    good(REGISTER(env, "gqac", argv[2]), "register", false);
    ort_session_options *options = make_options(argc - 6, argv + 6);
    const int n = atoi(argv[4]);
    if (strcmp(argv[3], "loop") == 0)
        loop(n, argv[5], options);
    else if (strcmp(argv[3], "fail") == 0)
        fail(n, argv[5], options);
    else if (strcmp(argv[3], "once") == 0)
        once(n, argv[5], options);
    else if (strcmp(argv[3], "peak") == 0)
        measure(n, argv[5], options);
    else
        outlive(n, argv[5], options);
    RELEASE_OPTIONS(options);
    if (strcmp(argv[3], "alive") != 0)
        RELEASE_ENV(env);
    puts("end");
    return 0;
}
