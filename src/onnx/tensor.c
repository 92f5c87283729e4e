/* TensorProto to gqac_tensor: header, inline bytes, external bytes.
 *
 * Data must be present exactly once, in the one field that their type allows, with exactly the
 * bytes that the shape needs. Inline bytes may lie anywhere in the file; those that are misaligned
 * for their element type are copied, in pieces whose pages are then released, so that a model never
 * takes twice its size. */
#include "onnx/importer.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

enum { RAW = 9 }; /* field number of raw_data */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw_data is little-endian");

gqac_status onnx_tensor_header(const Onnx__TensorProto *proto, gqac_tensor *tensor, size_t *bytes,
                               gqac_diag *diag) {
    *tensor = (gqac_tensor){.rank = (int)proto->n_dims};
    if (proto->n_dims > GQAC_MAX_RANK)
        GQAC_FAIL(diag, GQAC_LIMIT, "rank %zu is more than the maximum of %d", proto->n_dims,
                  GQAC_MAX_RANK);
    int64_t count = 1; /* product of the dimensions that are not 0, because others multiply them */
    for (int i = 0; i < tensor->rank; i++) {
        int64_t dim = tensor->dims[i] = proto->dims[i];
        if (dim < 0)
            GQAC_FAIL(diag, GQAC_INVALID_MODEL, "dimension %d is %lld: it must not be negative", i,
                      (long long)dim);
        if (dim > 0 && (!gqac_mul_i64(count, dim, &count) || count > INT64_C(1) << 40))
            GQAC_FAIL(diag, GQAC_LIMIT, "it has more than 2^40 elements");
    }
    int32_t code = proto->has_data_type ? proto->data_type : 0;
    const ProtobufCEnumDescriptor *codes = &onnx__tensor_proto__data_type__descriptor;
    const ProtobufCEnumValue *known = protobuf_c_enum_descriptor_get_value(codes, code);
    if (!known || code == ONNX__TENSOR_PROTO__DATA_TYPE__UNDEFINED)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "unknown element type %d", (int)code);
    tensor->dtype = gqac_dtype_from_onnx(code);
    if (tensor->dtype == GQAC_NONE)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "element type %s is not supported", known->name);
    return gqac_shape_bytes(tensor->dtype, tensor->rank, tensor->dims, bytes, diag);
}

/* ---- bytes --------------------------------------------------------------- */

static size_t alignment_of(gqac_dtype dtype) {
    int bits = gqac_dtype_bits(dtype);
    return bits < 8 ? 1 : (size_t)bits / 8;
}

static void *copy_pieces(const gqac_map *map, size_t offset, size_t bytes, gqac_arena *arena) {
    enum { PIECE = 16 << 20 };
    unsigned char *copy = gqac_arena_alloc(arena, bytes);
    for (size_t at = 0; copy && at < bytes; at += PIECE) {
        size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        memcpy(copy + at, map->data + offset + at, piece);
        if (piece == PIECE)
            gqac_map_release(map, offset + at, piece);
    }
    return copy;
}

static bool is_aligned(const gqac_map *map, size_t offset, gqac_dtype dtype) {
    return (uintptr_t)(map->data + offset) % alignment_of(dtype) == 0;
}

static gqac_status take_bytes(const gqac_map *map, size_t offset, size_t bytes, gqac_arena *arena,
                              gqac_tensor *tensor, gqac_diag *diag) {
    if (bytes == 0)
        return GQAC_OK;
    if (is_aligned(map, offset, tensor->dtype)) /* read only: constants are never written */
        tensor->data = (void *)(uintptr_t)(map->data + offset);
    else
        tensor->data = copy_pieces(map, offset, bytes, arena);
    return tensor->data ? GQAC_OK : gqac_diag_oom(diag, "weights");
}

static gqac_status check_bools(const gqac_tensor *tensor, size_t bytes, gqac_diag *diag) {
    const unsigned char *data = tensor->data;
    for (size_t i = 0; tensor->dtype == GQAC_BOOL && i < bytes; i++)
        if (data[i] > 1)
            GQAC_FAIL(diag, GQAC_INVALID_MODEL, "a bool has the value %d: it must be 0 or 1",
                      data[i]);
    return GQAC_OK;
}

/* ---- external ------------------------------------------------------------ */

typedef struct external {
    const char *location;
    uint64_t offset, length;
    bool has_length;
} external;

static bool parse_decimal(const char *text, uint64_t *out) {
    uint64_t value = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (digit > 9 || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return true;
}

static gqac_status parse_entry(const Onnx__StringStringEntryProto *entry, external *ext,
                               gqac_diag *diag) {
    const char *key = entry->key ? entry->key : "";
    const char *value = entry->value ? entry->value : "";
    bool number = true;
    if (strcmp(key, "location") == 0) {
        ext->location = value;
    } else if (strcmp(key, "offset") == 0) {
        number = parse_decimal(value, &ext->offset);
    } else if (strcmp(key, "length") == 0) {
        number = parse_decimal(value, &ext->length);
        ext->has_length = true;
    } else if (strcmp(key, "checksum") != 0) {
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "external data have an unknown key '%s'", key);
    }
    if (!number)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "the %s '%s' of external data is not a decimal number",
                  key, value);
    return GQAC_OK;
}

static gqac_status parse_external(const Onnx__TensorProto *proto, external *ext, size_t bytes,
                                  gqac_diag *diag) {
    *ext = (external){0};
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const Onnx__StringStringEntryProto *entry = proto->external_data[i];
        for (size_t k = 0; k < i; k++)
            if (entry->key && proto->external_data[k]->key &&
                strcmp(entry->key, proto->external_data[k]->key) == 0)
                GQAC_FAIL(diag, GQAC_INVALID_MODEL, "external data have the key '%s' twice",
                          entry->key);
        GQAC_TRY(parse_entry(entry, ext, diag));
    }
    if (!ext->location)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "external data have no location");
    if (ext->has_length && ext->length != bytes)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL,
                  "its length in '%s' is %llu bytes, but its type and shape need %zu",
                  ext->location, (unsigned long long)ext->length, bytes);
    return GQAC_OK;
}

/* Reads external data. Without a length, they have the bytes that type and shape need. */
static gqac_status read_external(const Onnx__TensorProto *proto, onnx_files *files, size_t bytes,
                                 gqac_arena *arena, gqac_tensor *tensor, gqac_diag *diag) {
    external ext;
    const gqac_map *map = NULL;
    GQAC_TRY(parse_external(proto, &ext, bytes, diag));
    if (!files)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "a tensor file of its own cannot have external data");
    GQAC_TRY(onnx_files_side(files, ext.location, &map, diag));
    if (bytes > map->size || ext.offset > map->size - bytes) {
        gqac_diag_set(diag, GQAC_INVALID_MODEL,
                      "its %zu bytes at offset %llu extend past the end of '%s' (%zu bytes)", bytes,
                      (unsigned long long)ext.offset, ext.location, map->size);
        if (onnx_file_kind(map))
            gqac_diag_hint(diag, "it looks like %s", onnx_file_kind(map));
        else
            gqac_diag_hint(diag, "the file may be incomplete: copy, download or export it again");
        return GQAC_INVALID_MODEL;
    }
    if (bytes && !is_aligned(map, (size_t)ext.offset, tensor->dtype))
        GQAC_TRY(onnx_files_check_copy(files, diag));
    return take_bytes(map, (size_t)ext.offset, bytes, arena, tensor, diag);
}

/* ---- the whole tensor ---------------------------------------------------- */

/* Finds the number of the data field that has data, in the message or as a note; 0: none. More than
 * one is an error. */
static gqac_status find_data(const Onnx__TensorProto *proto, unsigned *field, gqac_diag *diag) {
    const struct {
        unsigned number;
        size_t n;
    } fields[] = {{4, proto->n_float_data},   {5, proto->n_int32_data},
                  {7, proto->n_int64_data},   {RAW, proto->has_raw_data ? proto->raw_data.len : 0},
                  {10, proto->n_double_data}, {11, proto->n_uint64_data}};
    *field = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        size_t offset, length;
        if (!fields[i].n && !onnx_view(proto, fields[i].number, &offset, &length))
            continue;
        if (*field)
            GQAC_FAIL(diag, GQAC_INVALID_MODEL, "it has data in two fields of the file");
        *field = fields[i].number;
    }
    return GQAC_OK;
}

static gqac_status wrong_bytes(size_t length, size_t bytes, gqac_diag *diag) {
    GQAC_FAIL(diag, GQAC_INVALID_MODEL, "its data have %zu bytes, but its type and shape need %zu",
              length, bytes);
}

static gqac_status read_raw(const Onnx__TensorProto *proto, const gqac_map *model,
                            gqac_arena *arena, gqac_tensor *tensor, size_t bytes, gqac_diag *diag) {
    size_t offset = 0, length = proto->has_raw_data ? proto->raw_data.len : 0;
    bool view = onnx_view(proto, RAW, &offset, &length);
    if (length != bytes)
        return wrong_bytes(length, bytes, diag);
    if (view) {
        GQAC_TRY(take_bytes(model, offset, bytes, arena, tensor, diag));
    } else if (bytes) {
        tensor->data = gqac_arena_copy(arena, proto->raw_data.data, bytes);
        if (!tensor->data)
            return gqac_diag_oom(diag, "weights");
    }
    return check_bools(tensor, bytes, diag);
}

static bool is_external(const Onnx__TensorProto *proto) {
    return proto->has_data_location &&
           proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* Reads the header and finds the data, and checks that they agree. */
static gqac_status prepare(const Onnx__TensorProto *proto, gqac_tensor *tensor, size_t *bytes,
                           unsigned *field, gqac_diag *diag) {
    GQAC_TRY(onnx_tensor_header(proto, tensor, bytes, diag));
    GQAC_TRY(find_data(proto, field, diag));
    if (proto->segment)
        GQAC_FAIL(diag, GQAC_UNSUPPORTED, "tensors in segments are not supported");
    if (is_external(proto) && *field)
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "it has both inline and external data");
    if (proto->has_data_location && proto->data_location && !is_external(proto))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "unknown data location %d", (int)proto->data_location);
    return GQAC_OK;
}

gqac_status onnx_tensor_read(const Onnx__TensorProto *proto, const gqac_map *model,
                             onnx_files *files, gqac_arena *arena, gqac_tensor *tensor,
                             gqac_diag *diag) {
    size_t bytes;
    unsigned field;
    GQAC_TRY(prepare(proto, tensor, &bytes, &field, diag));
    if (is_external(proto)) {
        GQAC_TRY(read_external(proto, files, bytes, arena, tensor, diag));
        return check_bools(tensor, bytes, diag);
    }
    if (field == RAW || !field)
        return read_raw(proto, model, arena, tensor, bytes, diag);
    return onnx_tensor_decode(proto, model, arena, tensor, bytes, diag);
}

gqac_status onnx_tensor_check(const Onnx__TensorProto *proto, const gqac_map *model,
                              onnx_files *files, gqac_diag *diag) {
    gqac_tensor tensor;
    size_t bytes, offset = 0, length = proto->has_raw_data ? proto->raw_data.len : 0;
    unsigned field;
    external ext;
    if (proto->has_data_type && proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__STRING)
        return GQAC_OK;
    GQAC_TRY(prepare(proto, &tensor, &bytes, &field, diag));
    if (is_external(proto)) {
        GQAC_TRY(parse_external(proto, &ext, bytes, diag));
        return onnx_files_note(files, ext.location, bytes, diag);
    }
    if (field != 0 && field != RAW)
        return onnx_tensor_decode(proto, model, NULL, &tensor, bytes, diag);
    (void)onnx_view(proto, RAW, &offset, &length);
    return length == bytes ? GQAC_OK : wrong_bytes(length, bytes, diag);
}

/* ---- files of one tensor ------------------------------------------------- */

static gqac_status read_tensor(const gqac_map *map, gqac_arena *scratch, gqac_str *thin,
                               gqac_arena *arena, gqac_tensor *tensor, const char **name,
                               gqac_diag *diag) {
    ProtobufCMessage *message;
    const ProtobufCMessageDescriptor *type = &onnx__tensor_proto__descriptor;
    GQAC_TRY(onnx_scan(map->data, map->size, type, ONNX_MAX_NODES, thin, diag));
    GQAC_TRY(onnx_unpack(thin, type, scratch, &message, diag));
    const Onnx__TensorProto *proto = (const Onnx__TensorProto *)message;
    GQAC_TRY(onnx_tensor_read(proto, map, NULL, arena, tensor, diag));
    size_t bytes = gqac_tensor_bytes(tensor);
    bool view = bytes && (const unsigned char *)tensor->data >= map->data &&
                (const unsigned char *)tensor->data < map->data + map->size;
    if (view)
        tensor->data = gqac_arena_copy(arena, tensor->data, bytes);
    *name = gqac_arena_strdup(arena, onnx_text(proto->name));
    return *name && (tensor->data || !bytes) ? GQAC_OK : gqac_diag_oom(diag, "a tensor");
}

gqac_status onnx_read_tensor(const char *path, gqac_arena *arena, gqac_tensor *tensor,
                             const char **name, gqac_diag *diag) {
    gqac_map map;
    gqac_str thin = {0};
    GQAC_TRY(gqac_map_file(path, &map, diag));
    gqac_arena *scratch = gqac_arena_create(0);
    gqac_status status = scratch ? read_tensor(&map, scratch, &thin, arena, tensor, name, diag)
                                 : gqac_diag_oom(diag, "a tensor");
    gqac_str_free(&thin);
    gqac_arena_free(scratch);
    gqac_unmap(&map);
    if (status == GQAC_OK)
        return status;
    gqac_diag_where(diag, "%s", path);
    if (status == GQAC_INVALID_MODEL || status == GQAC_UNSUPPORTED || status == GQAC_LIMIT) {
        status = GQAC_INVALID_INPUT;
        if (diag)
            diag->status = status;
    }
    return status;
}
