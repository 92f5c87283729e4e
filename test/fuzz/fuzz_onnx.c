/* The import of an ONNX model with external data, as `gqac inspect` does it. */
#include "fuzz/fuzz.h"

static gqac_status external(void *arg, const char *name, const void **data, size_t *bytes,
                            gqac_diag *diag) {
    static const float page[1024] = {1, -1, 0.5f, 2};
    (void)arg, (void)name, (void)diag;
    *data = page;
    *bytes = sizeof page;
    return GQAC_OK;
}

static gqac_status run(const uint8_t *data, size_t size) {
    gqac_diag diag = {0};
    gqac_options options;
    gqac_model_bytes bytes;
    gqac_info *info = NULL;
    gqac_options_init(&options);
    gqac_model_bytes_init(&bytes, data, size);
    bytes.external = external;
    options.bytes = &bytes;
    options.monitor = fuzz_deadline();
    const gqac_status status = fuzz_check(gqac_info_open("m.onnx", &options, &info, &diag), &diag);
    gqac_info_free(info);
    return status;
}

const fuzz_target fuzz_target_onnx = {"onnx", run, NULL};
