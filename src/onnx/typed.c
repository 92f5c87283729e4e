/* The typed data fields of a TensorProto as dense elements.
 *
 * Every element type has one field. int32_data has all integers of at most 32 bits, bool, and the
 * bits of f16 and bf16, one per entry, and i4 and u4 two per entry. Values that the element type
 * cannot represent are refused, not truncated. Large fields were not unpacked; their varints are
 * read here. */
#include "onnx/importer.h"

#include <string.h>

typedef struct typed_row {
    gqac_dtype dtype;
    unsigned field;
    int64_t least, most; /* of an entry; 64-bit integers may have any value */
} typed_row;

static const typed_row rows[] = {
    {GQAC_F32, 4, 0, 0},
    {GQAC_F64, 10, 0, 0},
    {GQAC_I32, 5, INT32_MIN, INT32_MAX},
    {GQAC_I16, 5, INT16_MIN, INT16_MAX},
    {GQAC_I8, 5, INT8_MIN, INT8_MAX},
    {GQAC_U16, 5, 0, UINT16_MAX},
    {GQAC_U8, 5, 0, UINT8_MAX},
    {GQAC_BOOL, 5, 0, 1},
    {GQAC_F16, 5, 0, UINT16_MAX},
    {GQAC_BF16, 5, 0, UINT16_MAX},
    {GQAC_I4, 5, 0, UINT8_MAX},
    {GQAC_U4, 5, 0, UINT8_MAX},
    {GQAC_I64, 7, INT64_MIN, INT64_MAX},
    {GQAC_U32, 11, 0, UINT32_MAX},
    {GQAC_U64, 11, 0, 0},
};

static const typed_row *row_of(gqac_dtype dtype) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dtype == dtype)
            return &rows[i];
    return NULL;
}

/* A data field: entries in the message, or a view of the file. */
typedef struct typed_source {
    size_t n; /* number of entries; unknown for a view of varints */
    const void *entries;
    const unsigned char *view;
    size_t length;
} typed_source;

static typed_source source_of(const Onnx__TensorProto *proto, const gqac_map *model,
                              unsigned field) {
    typed_source s = {0};
    size_t offset;
    if (onnx_view(proto, field, &offset, &s.length)) {
        s.view = model->data + offset;
        return s;
    }
    switch (field) {
    case 4:
        return (typed_source){.n = proto->n_float_data, .entries = proto->float_data};
    case 5:
        return (typed_source){.n = proto->n_int32_data, .entries = proto->int32_data};
    case 7:
        return (typed_source){.n = proto->n_int64_data, .entries = proto->int64_data};
    case 10:
        return (typed_source){.n = proto->n_double_data, .entries = proto->double_data};
    default:
        return (typed_source){.n = proto->n_uint64_data, .entries = proto->uint64_data};
    }
}

static gqac_status wrong_count(gqac_diag *diag) {
    GQAC_FAIL(diag, GQAC_INVALID_MODEL, "its data do not have as many elements as its shape");
}

/* f32 and f64: copies the bytes unchanged. */
static gqac_status decode_fixed(const typed_source *s, size_t width, gqac_tensor *tensor,
                                size_t bytes, gqac_diag *diag) {
    if ((s->view ? s->length : s->n * width) != bytes)
        return wrong_count(diag);
    if (tensor->data)
        memcpy(tensor->data, s->view ? (const void *)s->view : s->entries, bytes);
    return GQAC_OK;
}

static uint64_t entry_at(const typed_source *s, unsigned field, size_t i) {
    if (field == 5)
        return (uint64_t)(int64_t)((const int32_t *)s->entries)[i];
    return ((const uint64_t *)s->entries)[i];
}

static gqac_status decode_ints(const typed_source *s, const typed_row *row, size_t width,
                               gqac_tensor *tensor, size_t bytes, gqac_diag *diag) {
    unsigned char *out = tensor->data;
    size_t at = 0, n = bytes / width;
    for (size_t i = 0; i < n; i++) {
        uint64_t value;
        if (s->view) {
            if (at == s->length)
                return wrong_count(diag);
            const char *wrong = onnx_varint(s->view, s->length, &at, &value);
            if (wrong)
                GQAC_FAIL(diag, GQAC_INVALID_MODEL, "%s", wrong);
        } else {
            if (i == s->n)
                return wrong_count(diag);
            value = entry_at(s, row->field, i);
        }
        if (row->most && ((int64_t)value < row->least || (int64_t)value > row->most))
            GQAC_FAIL(diag, GQAC_INVALID_MODEL, "element %zu is out of the range of %s", i,
                      gqac_dtype_name(row->dtype));
        if (out)
            memcpy(out + i * width, &value, width);
    }
    return (s->view ? at == s->length : n == s->n) ? GQAC_OK : wrong_count(diag);
}

gqac_status onnx_tensor_decode(const Onnx__TensorProto *proto, const gqac_map *model,
                               gqac_arena *arena, gqac_tensor *tensor, size_t bytes,
                               gqac_diag *diag) {
    const typed_row *row = row_of(tensor->dtype);
    typed_source source = {0};
    if (row)
        source = source_of(proto, model, row->field);
    if (!row || (!source.n && !source.view))
        GQAC_FAIL(diag, GQAC_INVALID_MODEL, "its data are in a field of another type than %s",
                  gqac_dtype_name(tensor->dtype));
    if (source.view ? bytes / 16 > source.length : bytes / 16 > source.n)
        return wrong_count(diag); /* before memory is allocated for the shape */
    tensor->data = arena ? gqac_arena_alloc(arena, bytes) : NULL;
    if (arena && !tensor->data)
        return gqac_diag_oom(diag, "weights");
    int bits = gqac_dtype_bits(tensor->dtype);
    size_t width = bits < 8 ? 1 : (size_t)bits / 8;
    if (row->field == 4 || row->field == 10)
        return decode_fixed(&source, width, tensor, bytes, diag);
    return decode_ints(&source, row, width, tensor, bytes, diag);
}
