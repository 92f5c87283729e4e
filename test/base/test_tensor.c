/* Element types and sizes: the table can be read by name and code, sizes are checked. */
#include <gqac/tensor.h>
#include <stdint.h>
#include <string.h>

#include "unit.h"

static void types_read_back(void) {
    for (int i = 0; i < GQAC_DTYPE_COUNT; i++) {
        gqac_dtype dtype = (gqac_dtype)i;
        CU_ASSERT_EQUAL(gqac_dtype_from_name(gqac_dtype_name(dtype)), dtype);
        if (gqac_dtype_onnx(dtype)) {
            CU_ASSERT_EQUAL(gqac_dtype_from_onnx(gqac_dtype_onnx(dtype)), dtype);
        }
    }
    CU_ASSERT_EQUAL(gqac_dtype_from_onnx(0), GQAC_NONE);
    CU_ASSERT_EQUAL(gqac_dtype_from_onnx(-1), GQAC_NONE);
    CU_ASSERT_EQUAL(gqac_dtype_from_onnx(INT64_MAX), GQAC_NONE);
    CU_ASSERT_EQUAL(gqac_dtype_from_onnx(8), GQAC_NONE); /* string */
    CU_ASSERT_EQUAL(gqac_dtype_from_name("F32"), GQAC_NONE);
    CU_ASSERT_EQUAL(gqac_dtype_from_name(""), GQAC_NONE);
    CU_ASSERT_EQUAL(gqac_dtype_bits(GQAC_DTYPE_COUNT), 0);
    CU_ASSERT_STRING_EQUAL(gqac_dtype_name((gqac_dtype)99), "invalid");
}

static void types_have_properties(void) {
    CU_ASSERT_EQUAL(gqac_dtype_bits(GQAC_BF16), 16);
    CU_ASSERT_EQUAL(gqac_dtype_bits(GQAC_U4), 4);
    CU_ASSERT_EQUAL(gqac_dtype_onnx(GQAC_I64), 7);
    CU_ASSERT_STRING_EQUAL(gqac_dtype_npy(GQAC_F16), "<f2");
    CU_ASSERT(gqac_dtype_is_float(GQAC_BF16) && gqac_dtype_is_float(GQAC_F64));
    CU_ASSERT(!gqac_dtype_is_float(GQAC_I32) && !gqac_dtype_is_float(GQAC_BOOL));
    CU_ASSERT(gqac_dtype_is_signed(GQAC_I4) && gqac_dtype_is_signed(GQAC_F32));
    CU_ASSERT(!gqac_dtype_is_signed(GQAC_U64) && !gqac_dtype_is_signed(GQAC_BOOL));
}

static void tensors_have_sizes(void) {
    gqac_tensor t = {.dtype = GQAC_F32};
    CU_ASSERT_EQUAL(gqac_tensor_count(&t), 1);
    CU_ASSERT_EQUAL(gqac_tensor_bytes(&t), 4);
    t = (gqac_tensor){.dtype = GQAC_I4, .rank = 2, .dims = {3, 5}};
    CU_ASSERT_EQUAL(gqac_tensor_count(&t), 15);
    CU_ASSERT_EQUAL(gqac_tensor_bytes(&t), 8);
    t = (gqac_tensor){.dtype = GQAC_I64, .rank = 3, .dims = {3, 0, 5}};
    CU_ASSERT_EQUAL(gqac_tensor_bytes(&t), 0);
}

/* The number of bytes of a shape; SIZE_MAX if it is refused with LIMIT. */
static size_t shape(gqac_dtype dtype, int rank, const int64_t *dims) {
    size_t bytes = 7;
    gqac_diag diag = {0};
    gqac_status status = gqac_shape_bytes(dtype, rank, dims, &bytes, &diag);
    if (status == GQAC_OK)
        return bytes;
    CU_ASSERT_EQUAL(status, GQAC_LIMIT);
    CU_ASSERT(strlen(diag.what) > 0 && strlen(diag.rule) > 0);
    CU_ASSERT_EQUAL(bytes, 7);
    return SIZE_MAX;
}

static void shapes_are_checked(void) {
    const int64_t k = (int64_t)1 << 20;
    CU_ASSERT_EQUAL(shape(GQAC_F32, 0, NULL), 4);
    CU_ASSERT_EQUAL(shape(GQAC_F16, 2, (int64_t[]){3, 5}), 30);
    CU_ASSERT_EQUAL(shape(GQAC_U4, 1, (int64_t[]){5}), 3);
    CU_ASSERT_EQUAL(shape(GQAC_TOKEN, 0, NULL), 0);
    CU_ASSERT_EQUAL(shape(GQAC_F32, 8, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 2}), 8);
    CU_ASSERT_EQUAL(shape(GQAC_F32, 2, (int64_t[]){k, k}), (size_t)k * (size_t)k * 4);
    CU_ASSERT_EQUAL(shape(GQAC_F32, 3, (int64_t[]){k, 0, k}), 0);
    CU_ASSERT_EQUAL(shape(GQAC_F32, 2, (int64_t[]){k, k + 1}), SIZE_MAX);
    CU_ASSERT_EQUAL(shape(GQAC_F32, 3, (int64_t[]){k, k, 2}), SIZE_MAX);
    CU_ASSERT_EQUAL(shape(GQAC_F32, 3, (int64_t[]){0, INT64_MAX, 3}), SIZE_MAX);
    CU_ASSERT_EQUAL(shape(GQAC_F32, 2, (int64_t[]){INT64_MAX, INT64_MAX}), SIZE_MAX);
    CU_ASSERT_EQUAL(shape(GQAC_F32, 1, (int64_t[]){-1}), SIZE_MAX);
    CU_ASSERT_EQUAL(shape(GQAC_F32, 9, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}), SIZE_MAX);
    CU_ASSERT_EQUAL(shape(GQAC_F32, -1, NULL), SIZE_MAX);
}

static const unit_case cases[] = {
    {"types read back", types_read_back},
    {"types have properties", types_have_properties},
    {"tensors have sizes", tensors_have_sizes},
    {"shapes are checked", shapes_are_checked},
};

int main(int argc, char **argv) {
    return unit_run("base/tensor", cases, sizeof cases / sizeof cases[0], argc, argv);
}
