/* The scan of the wire format, and the unpacking of files that pass it. */
#include "fuzz/fuzz.h"

#include "onnx/scan.h"

static gqac_status scan(const uint8_t *data, size_t size,
                        const ProtobufCMessageDescriptor *descriptor) {
    gqac_diag diag = {0};
    gqac_str thin = {0};
    ProtobufCMessage *message = NULL;
    gqac_arena *arena = gqac_arena_create(0);
    gqac_status status =
        fuzz_check(onnx_scan(data, size, descriptor, ONNX_MAX_NODES, &thin, &diag), &diag);
    if (status == GQAC_OK) {
        status = fuzz_check(onnx_unpack(&thin, descriptor, arena, &message, &diag), &diag);
        if (status == GQAC_INVALID_MODEL)
            fuzz_broken("protobuf-c refuses what the scan let through");
    }
    gqac_str_free(&thin);
    gqac_arena_free(arena);
    return status;
}

static gqac_status run(const uint8_t *data, size_t size) {
    (void)scan(data, size, &onnx__tensor_proto__descriptor);
    return scan(data, size, &onnx__model_proto__descriptor);
}

const fuzz_target fuzz_target_scan = {"scan", run, NULL};
