/* An ONNX model from import to steps and stateless runs. */
#include "fuzz/fuzz.h"

static gqac_status run(const uint8_t *data, size_t size) {
    return fuzz_model("m.onnx", data, size);
}

const fuzz_target fuzz_target_model = {"model", run, NULL};
