/* Tensor files: .npy, read as several types, and ONNX's .pb. */
#include "fuzz/fuzz.h"

static gqac_status run(const uint8_t *data, size_t size) {
    static const gqac_dtype types[] = {GQAC_BF16, GQAC_I4, GQAC_NONE};
    const char *path = fuzz_file(data, size);
    gqac_status status = GQAC_OK;
    gqac_diag diag = {0};
    gqac_tensor tensor = {0};
    char name[16];
    if (fuzz_check(gqac_pb_read(path, &tensor, name, sizeof name, &diag), &diag) == GQAC_OK)
        gqac_tensor_free(&tensor);
    for (int i = 0; i < 3; i++) {
        status = fuzz_check(gqac_npy_read(path, types[i], &tensor, &diag), &diag);
        const int64_t n = status == GQAC_OK ? gqac_tensor_count(&tensor) : 0;
        if (n)
            (void)(gqac_tensor_get(&tensor, 0) + gqac_tensor_get(&tensor, n - 1));
        if (status == GQAC_OK)
            gqac_tensor_free(&tensor);
    }
    return status;
}

const fuzz_target fuzz_target_npy = {"npy", run, NULL};
