/* Element types (made from dtype.def) and sizes of tensors.
 *
 * gqac_shape_bytes checks every shape once. After that, element counts and strides of the shape can
 * be computed without overflow, even if a dimension is 0. */
#include <gqac/tensor.h>

#include <stdio.h>
#include <string.h>

#include "base/diag.h"

typedef enum dtype_kind { N, F, I, U, B } dtype_kind;

typedef struct dtype_row {
    const char *name;
    const char *npy;
    int bits;
    int onnx;
    dtype_kind kind;
} dtype_row;

static const dtype_row rows[] = {
#define GQAC_DTYPE(id, name, bits, kind, onnx, npy) {name, npy, bits, onnx, kind},
#include <gqac/dtype.def>
#undef GQAC_DTYPE
};

static const dtype_row unknown = {"invalid", "", 0, 0, N};

#define MAX_ELEMENTS ((int64_t)1 << 40)

static const dtype_row *row(gqac_dtype dtype) {
    return (size_t)dtype < sizeof rows / sizeof rows[0] ? &rows[dtype] : &unknown;
}

const char *gqac_dtype_name(gqac_dtype dtype) {
    return row(dtype)->name;
}

int gqac_dtype_bits(gqac_dtype dtype) {
    return row(dtype)->bits;
}

int gqac_dtype_onnx(gqac_dtype dtype) {
    return row(dtype)->onnx;
}

const char *gqac_dtype_npy(gqac_dtype dtype) {
    return row(dtype)->npy;
}

bool gqac_dtype_is_float(gqac_dtype dtype) {
    return row(dtype)->kind == F;
}

bool gqac_dtype_is_signed(gqac_dtype dtype) {
    return row(dtype)->kind == F || row(dtype)->kind == I;
}

gqac_dtype gqac_dtype_from_name(const char *name) {
    for (int i = 0; i < GQAC_DTYPE_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0)
            return (gqac_dtype)i;
    return GQAC_NONE;
}

gqac_dtype gqac_dtype_from_onnx(int64_t code) {
    for (int i = 0; i < GQAC_DTYPE_COUNT; i++)
        if (rows[i].onnx == code)
            return (gqac_dtype)i;
    return GQAC_NONE;
}

static size_t bytes_of(gqac_dtype dtype, int64_t count) {
    return ((size_t)count * (size_t)gqac_dtype_bits(dtype) + 7) / 8;
}

int64_t gqac_tensor_count(const gqac_tensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++)
        count *= tensor->dims[i];
    return count;
}

size_t gqac_tensor_bytes(const gqac_tensor *tensor) {
    return bytes_of(tensor->dtype, gqac_tensor_count(tensor));
}

gqac_status gqac_shape_bytes(gqac_dtype dtype, int rank, const int64_t *dims, size_t *bytes,
                             gqac_diag *diag) {
    if (rank < 0 || rank > GQAC_MAX_RANK) {
        gqac_diag_set(diag, GQAC_LIMIT, "a tensor cannot have rank %d", rank);
        gqac_diag_rule(diag, "the rank must be 0 to %d", GQAC_MAX_RANK);
        return GQAC_LIMIT;
    }
    int64_t volume = 1; /* product without dimensions of 0, so that strides cannot overflow */
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0 || dims[i] > MAX_ELEMENTS / volume) {
            gqac_diag_set(
                diag, GQAC_LIMIT,
                "dimension %d of a tensor is %lld, and the dimensions before it multiply to %lld",
                i, (long long)dims[i], (long long)volume);
            gqac_diag_rule(diag, "no dimension may be negative, and together they multiply to at "
                                 "most 2^40 elements");
            return GQAC_LIMIT;
        }
        if (dims[i] == 0)
            empty = true;
        else
            volume *= dims[i];
    }
    *bytes = bytes_of(dtype, empty ? 0 : volume);
    return GQAC_OK;
}
