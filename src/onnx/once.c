/* Tensors of functions: checked, decoded and copied once. All calls share the data, which nobody
 * writes to, so a small file with many calls takes neither the time nor the memory of as many
 * files.
 *
 * The key is the address in the unpacked model, which lives as long as the import. Tensors outside
 * of functions are imported once anyway, and are not kept. */
#include "onnx/importer.h"

typedef struct kept {
    const Onnx__TensorProto *proto;
    gqac_tensor tensor; /* dtype GQAC_NONE: only checked */
} kept;

static bool same_proto(const void *item, const void *key) {
    return ((const kept *)item)->proto == key;
}

static uint64_t hash_of(const importer *im, const Onnx__TensorProto *proto) {
    return gqac_hash_u64(im->once.seed, (uint64_t)(uintptr_t)proto);
}

static kept *find(const onnx_scope *scope, const Onnx__TensorProto *proto) {
    const importer *im = scope->im;
    return gqac_table_find(&im->once, hash_of(im, proto), same_proto, proto);
}

/* Makes an empty record; NULL: out of memory. */
static kept *keep(const onnx_scope *scope, const Onnx__TensorProto *proto) {
    importer *im = scope->im;
    kept *own = GQAC_ARENA_NEW(im->scratch, kept);
    if (!own || !gqac_table_add(&im->once, hash_of(im, proto), own))
        return NULL;
    own->proto = proto;
    return own;
}

gqac_status onnx_once_read(const onnx_scope *scope, const Onnx__TensorProto *proto,
                           gqac_tensor *tensor) {
    importer *im = scope->im;
    kept *own = scope->call ? find(scope, proto) : NULL;
    if (own && own->tensor.dtype != GQAC_NONE) {
        *tensor = own->tensor;
        return GQAC_OK;
    }
    GQAC_TRY(onnx_tensor_read(proto, onnx_files_model(im->files), im->files, im->arena, tensor,
                              im->diag));
    if (!scope->call)
        return GQAC_OK;
    own = own ? own : keep(scope, proto);
    if (!own)
        return onnx_oom(im);
    own->tensor = *tensor;
    return GQAC_OK;
}

gqac_status onnx_once_check(const onnx_scope *scope, const Onnx__TensorProto *proto) {
    importer *im = scope->im;
    if (scope->call && find(scope, proto))
        return GQAC_OK;
    GQAC_TRY(onnx_tensor_check(proto, onnx_files_model(im->files), im->files, im->diag));
    return !scope->call || keep(scope, proto) ? GQAC_OK : onnx_oom(im);
}
