/* protobuf-c on the thinned copy of a message (see scan.h). Its allocations come from one arena
 * with a budget and are freed with it; the scan has limited its recursion to 100 levels of about 1
 * KiB. */
#include "onnx/scan.h"

#include "base/diag.h"

#include <string.h>

typedef struct unpacking {
    gqac_arena *arena;
    size_t budget;
    bool exceeded; /* the budget is used up; else a failure means out of memory */
} unpacking;

static void *take(void *arg, size_t bytes) {
    unpacking *u = arg;
    if (bytes > u->budget - gqac_arena_used(u->arena)) {
        u->exceeded = true;
        return NULL;
    }
    return gqac_arena_alloc(u->arena, bytes);
}

static void keep(void *arg, void *memory) {
    (void)arg, (void)memory;
}

gqac_status onnx_unpack(const gqac_str *thin, const ProtobufCMessageDescriptor *root,
                        gqac_arena *arena, ProtobufCMessage **message, gqac_diag *diag) {
    unpacking u = {.arena = arena};
    u.budget = gqac_arena_used(arena) + ((size_t)64 << 20) + 16 * thin->length;
    ProtobufCAllocator allocator = {.alloc = take, .free = keep, .allocator_data = &u};
    const uint8_t *bytes = thin->length ? (const uint8_t *)thin->text : (const uint8_t *)"";
    *message = protobuf_c_message_unpack(root, &allocator, thin->length, bytes);
    if (*message)
        return GQAC_OK;
    /* the scan accepted the bytes, so protobuf-c can only lack memory */
    if (u.exceeded)
        GQAC_FAIL(diag, GQAC_LIMIT, "the model's structure needs more than %zu MiB",
                  u.budget >> 20);
    return gqac_diag_oom(diag, "the model's structure");
}

bool onnx_view(const Onnx__TensorProto *tensor, unsigned field, size_t *offset, size_t *length) {
    for (unsigned i = 0; i < tensor->base.n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *note = &tensor->base.unknown_fields[i];
        uint64_t pair[2];
        if (note->tag != 1000 + field || note->len != 1 + sizeof pair)
            continue;
        memcpy(pair, note->data + 1, sizeof pair); /* after the length byte */
        *offset = (size_t)pair[0];
        *length = (size_t)pair[1];
        return true;
    }
    return false;
}
