/* Tensors: an element type, a shape and row-major data.
 *
 * A gqac_tensor is a view: it does not own `data`. Elements are dense, the last dimension fastest.
 * i4 and u4 hold two elements in a byte, low nibble first (as ONNX TensorProto). */
#ifndef GQAC_TENSOR_H
#define GQAC_TENSOR_H

#include <gqac/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GQAC_MAX_RANK 8

typedef enum gqac_dtype {
#define GQAC_DTYPE(id, name, bits, kind, onnx, npy) GQAC_##id,
#include <gqac/dtype.def>
#undef GQAC_DTYPE
    GQAC_DTYPE_COUNT
} gqac_dtype;

typedef struct gqac_tensor {
    gqac_dtype dtype;
    int rank;                    /* 0 (scalar) to GQAC_MAX_RANK */
    int64_t dims[GQAC_MAX_RANK]; /* elements in each dimension, each >= 0 */
    void *data;                  /* gqac_tensor_bytes() bytes; may be NULL when there are none */
} gqac_tensor;

/* Properties of an element type: its name ("f32"), bits of an element, ONNX data type code (0:
 * none), NumPy descr ("": none), whether it is a floating-point type, and whether it has negative
 * values (true for floating-point types too). */
GQAC_API const char *gqac_dtype_name(gqac_dtype dtype);
GQAC_API int gqac_dtype_bits(gqac_dtype dtype);
GQAC_API int gqac_dtype_onnx(gqac_dtype dtype);
GQAC_API const char *gqac_dtype_npy(gqac_dtype dtype);
GQAC_API bool gqac_dtype_is_float(gqac_dtype dtype);
GQAC_API bool gqac_dtype_is_signed(gqac_dtype dtype);
/* The element type with that name or ONNX code; GQAC_NONE if there is none. */
GQAC_API gqac_dtype gqac_dtype_from_name(const char *name);
GQAC_API gqac_dtype gqac_dtype_from_onnx(int64_t code);

/* Number of elements. The product of the dimensions must not overflow (see gqac_shape_bytes). */
GQAC_API int64_t gqac_tensor_count(const gqac_tensor *tensor);
/* Bytes of data: count * bits / 8, rounded up. */
GQAC_API size_t gqac_tensor_bytes(const gqac_tensor *tensor);
/* Sets *bytes to the size of the data of a tensor. LIMIT: the rank is not in [0, GQAC_MAX_RANK], a
 * dimension is negative, or there are more than 2^40 elements. */
GQAC_API gqac_status gqac_shape_bytes(gqac_dtype dtype, int rank, const int64_t *dims,
                                      size_t *bytes, gqac_diag *diag);

#ifdef __cplusplus
}
#endif
#endif
