/* Tensors of an exported file: inline as raw_data, or as an offset in `<path>.data`. Either way no
 * bytes are copied from the module. */
#include "onnx/exporter.h"

#include <string.h>

static gqac_status add_entry(exporter *ex, Onnx__TensorProto *proto, const char *key,
                             const char *value) {
    Onnx__StringStringEntryProto *entry =
        EXPORT_NEW(ex, Onnx__StringStringEntryProto, ONNX__STRING_STRING_ENTRY_PROTO__INIT);
    if (!entry || !value)
        return export_oom(ex);
    entry->key = (char *)(uintptr_t)key; /* protobuf-c only packs it and does not write to it */
    entry->value = (char *)(uintptr_t)value;
    proto->external_data[proto->n_external_data++] = entry;
    return GQAC_OK;
}

static gqac_status put_aside(exporter *ex, const gqac_tensor *tensor, size_t bytes,
                             Onnx__TensorProto *proto) {
    ex->offset = (ex->offset + EXPORT_ALIGN - 1) / EXPORT_ALIGN * EXPORT_ALIGN;
    proto->external_data = GQAC_ARENA_ARRAY(ex->arena, Onnx__StringStringEntryProto *, 3);
    if (!proto->external_data)
        return export_oom(ex);
    const char *offset = gqac_arena_printf(ex->arena, "%llu", (unsigned long long)ex->offset);
    GQAC_TRY(add_entry(ex, proto, "location", ex->location));
    GQAC_TRY(add_entry(ex, proto, "offset", offset));
    GQAC_TRY(add_entry(ex, proto, "length", gqac_arena_printf(ex->arena, "%zu", bytes)));
    proto->has_data_location = true;
    proto->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): `side` lists pointers */
    gqac_str_append_n(&ex->side, (const char *)&tensor, sizeof tensor);
    ex->offset += bytes;
    return ex->side.failed ? export_oom(ex) : GQAC_OK;
}

gqac_status export_tensor(exporter *ex, const gqac_tensor *tensor, const char *name,
                          Onnx__TensorProto **out) {
    Onnx__TensorProto *proto = EXPORT_NEW(ex, Onnx__TensorProto, ONNX__TENSOR_PROTO__INIT);
    size_t bytes = gqac_tensor_bytes(tensor);
    if (!proto)
        return export_oom(ex);
    if (bytes && !tensor->data)
        GQAC_FAIL(ex->diag, GQAC_UNSUPPORTED, "the constant '%s' has no data, only a digest", name);
    proto->name = (char *)(uintptr_t)name;
    proto->has_data_type = true;
    proto->data_type = gqac_dtype_onnx(tensor->dtype);
    proto->n_dims = (size_t)tensor->rank;
    proto->dims = gqac_arena_copy(ex->arena, tensor->dims, proto->n_dims * sizeof *proto->dims);
    if (!proto->dims)
        return export_oom(ex);
    *out = proto;
    if (ex->external && bytes > EXPORT_INLINE)
        return put_aside(ex, tensor, bytes, proto);
    proto->has_raw_data = true;
    proto->raw_data = (ProtobufCBinaryData){.len = bytes, .data = tensor->data};
    return GQAC_OK;
}
