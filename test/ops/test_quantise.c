/* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and MatMulInteger: values computed by
 * hand, saturation, special values, granularities, and refused calls. */
#include "support.h"

static void dequantize(void) {
    static const op_case cases[] = {
        {.op = "DequantizeLinear",
         .inputs = "u8[3]: 0 128 255 | f32[]: 0.5 | u8[]: 128",
         .outputs = "f32[3]: -64 0 63.5"},
        {.op = "DequantizeLinear", .inputs = "i8[0]: | f32[]: 2", .outputs = "f32[0]:"},
        {.op = "DequantizeLinear",
         .inputs = "i32[2]: -3 100000 | f16[]: 0.5",
         .outputs = "f16[2]: -1.5 50000"},
        {.op = "DequantizeLinear",
         .attrs = "axis=0",
         .inputs = "i4[2,3]: -8 7 0 1 2 3 | f32[2]: 1 10 | i4[2]: 1 -1",
         .outputs = "f32[2,3]: -9 6 -1 20 30 40"},
        {.op = "DequantizeLinear",
         .attrs = "axis=-1",
         .inputs = "u16[1,2]: 65535 1 | f32[2]: 1 nan",
         .outputs = "f32[1,2]: 65535 nan"},
        {.op = "DequantizeLinear",
         .attrs = "axis=1 block_size=2",
         .inputs = "u4[2,3]: 1 2 3 4 5 15 | f32[2,2]: 1 10 100 1000 | u4[2,2]: 0 1 2 3",
         .outputs = "f32[2,3]: 1 2 20 200 300 12000"},
        {.op = "DequantizeLinear",
         .attrs = "axis=0 block_size=3",
         .inputs = "i16[4]: 1 2 3 4 | f32[2]: 1 -1",
         .outputs = "f32[4]: 1 2 3 -4"},
        {.op = "DequantizeLinear",
         .attrs = "output_dtype=f16",
         .inputs = "i8[2]: 1 3 | f32[]: 0.33333",
         .outputs = "f16[2]: 0.33325195 1"},
        /* a scale with one element applies to a scalar, and to any tensor */
        {.op = "DequantizeLinear", .inputs = "i8[]: 4 | f32[1]: 2", .outputs = "f32[]: 8"},
        /* one for each row */
        {.op = "DequantizeLinear",
         .inputs = "u8[3,2]: 1 2 3 4 5 6 | f32[3,1]: 1 10 100 | u8[3,1]: 0 1 2",
         .outputs = "f32[3,2]: 1 2 20 30 300 400"},
        {.op = "DequantizeLinear",
         .inputs = "i8[2,1,2]: 1 2 3 4 | f32[2,1,1]: 1 10",
         .outputs = "f32[2,1,2]: 1 2 30 40"},
        {.op = "DequantizeLinear",
         .inputs = "i8[2,2]: 1 2 3 4 | f32[3,1]: 1 1 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "DequantizeLinear",
         .inputs = "i8[2,2]: 1 2 3 4 | f32[3]: 1 1 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "DequantizeLinear",
         .attrs = "axis=2",
         .inputs = "i8[2,2]: 1 2 3 4 | f32[2]: 1 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "DequantizeLinear",
         .attrs = "block_size=2",
         .inputs = "i8[2,2]: 1 2 3 4 | f32[2,2]: 1 1 1 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "DequantizeLinear",
         .inputs = "i8[2]: 1 2 | f32[]: 1 | u8[]: 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "DequantizeLinear",
         .inputs = "i8[2]: 1 2 | f32[2]: 1 2 | i8[1]: 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "DequantizeLinear", .inputs = "f32[1]: 1 | f32[]: 1", .status = GQAC_UNSUPPORTED},
    };
    run_cases(cases, COUNT(cases));
}

static void quantize(void) {
    static const op_case cases[] = {
        {.op = "QuantizeLinear",
         .inputs = "f32[7]: 0 1 3 5 -1 1000 nan | f32[]: 2 | u8[]: 10",
         .outputs = "u8[7]: 10 10 12 12 10 255 10"},
        {.op = "QuantizeLinear",
         .inputs = "f32[4]: -3 300 inf -inf | f32[]: 1",
         .outputs = "u8[4]: 0 255 255 0"},
        {.op = "QuantizeLinear",
         .inputs = "f32[5]: 0.5 1.5 -2.5 9 -9 | f32[]: 1 | i4[]: 1",
         .outputs = "i4[5]: 1 3 -1 7 -8"},
        {.op = "QuantizeLinear",
         .attrs = "output_dtype=u4",
         .inputs = "f16[3]: 1 20 -4 | f16[]: 2",
         .outputs = "u4[3]: 0 10 0"},
        {.op = "QuantizeLinear",
         .attrs = "axis=0",
         .inputs = "i32[2,2]: 10 20 30 -70000 | f32[2]: 10 1 | i16[2]: 0 -1",
         .outputs = "i16[2,2]: 1 2 29 -32768"},
        {.op = "QuantizeLinear",
         .attrs = "block_size=2",
         .inputs = "f32[1,3]: 4 8 8 | f32[1,2]: 4 0.125 | u16[1,2]: 0 65500",
         .outputs = "u16[1,3]: 1 2 65535"},
        {.op = "QuantizeLinear", .inputs = "f32[0]: | f32[]: 2", .outputs = "u8[0]:"},
        {.op = "QuantizeLinear",
         .attrs = "output_dtype=i8",
         .inputs = "f32[1]: 1 | f32[]: 1 | u8[]: 0",
         .status = GQAC_INVALID_MODEL},
        {.op = "QuantizeLinear",
         .attrs = "block_size=-1",
         .inputs = "f32[1]: 1 | f32[]: 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "QuantizeLinear",
         .attrs = "output_dtype=f16",
         .inputs = "f32[1]: 1 | f32[]: 1",
         .status = GQAC_UNSUPPORTED},
    };
    run_cases(cases, COUNT(cases));
}

static void dynamic(void) {
    static const op_case cases[] = {
        {.op = "DynamicQuantizeLinear",
         .inputs = "f32[3]: -1 0 1.55",
         .outputs = "u8[3]: 0 100 255 | f32[]: 0.01 | u8[]: 100"},
        {.op = "DynamicQuantizeLinear", /* NaN does not affect the range */
         .inputs = "f32[4]: -1 nan 0 1.55",
         .outputs = "u8[4]: 0 100 100 255 | f32[]: 0.01 | u8[]: 100"},
        {.op = "DynamicQuantizeLinear", /* ties to even */
         .inputs = "f32[5]: 0 255 0.5 1.5 2.5",
         .outputs = "u8[5]: 0 255 0 2 2 | f32[]: 1 | u8[]: 0"},
        {.op = "DynamicQuantizeLinear",
         .inputs = "f32[2]: 510 2",
         .outputs = "u8[2]: 255 1 | f32[]: 2 | u8[]: 0"},
        {.op = "DynamicQuantizeLinear",
         .inputs = "f32[2]: 0 0",
         .outputs = "u8[2]: 0 0 | f32[]: 1 | u8[]: 0"},
        {.op = "DynamicQuantizeLinear",
         .inputs = "f32[0]:",
         .outputs = "u8[0]: | f32[]: 1 | u8[]: 0"},
        {.op = "DynamicQuantizeLinear", .inputs = "f16[1]: 0", .status = GQAC_UNSUPPORTED},
    };
    run_cases(cases, COUNT(cases));
}

static void products(void) {
    static const op_case cases[] = {
        {.op = "MatMulInteger",
         .inputs = "u8[2,2]: 255 0 1 2 | i8[2,1]: -128 127",
         .outputs = "i32[2,1]: -32640 126"},
        {.op = "MatMulInteger",
         .inputs = "u8[2,2]: 1 2 3 4 | u8[2,2]: 1 0 0 1 | u8[]: 1 | u8[2]: 0 1",
         .outputs = "i32[2,2]: 0 0 2 -2"},
        {.op = "MatMulInteger",
         .inputs = "i8[2,2]: 1 2 3 4 | i8[2]: 1 1 | i8[2]: 1 3",
         .outputs = "i32[2]: 1 1"},
        {.op = "MatMulInteger",
         .inputs = "i8[2,2,1]: 1 2 3 4 | i8[1,1]: 2 | i8[2,2,1]: 0 1 2 3",
         .outputs = "i32[2,2,1]: 2 2 2 2"},
        {.op = "MatMulInteger",
         .inputs = "i8[0,2]: | i8[2,3]: 0 0 0 0 0 0",
         .outputs = "i32[0,3]:"},
        {.op = "MatMulInteger", .inputs = "i8[1,0]: | i8[0,2]:", .outputs = "i32[1,2]: 0 0"},
        {.op = "MatMulInteger",
         .inputs = "i8[1,2]: 1 2 | i8[3,1]: 1 2 3",
         .status = GQAC_INVALID_MODEL},
        {.op = "MatMulInteger",
         .inputs = "i8[1,2]: 1 2 | i8[2,1]: 1 2 | i8[3]: 1 2 3",
         .status = GQAC_INVALID_INPUT},
        {.op = "MatMulInteger",
         .inputs = "i8[1,2]: 1 2 | i8[2,1]: 1 2 | u8[]: 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "MatMulInteger", .inputs = "i16[1,1]: 1 | i8[1,1]: 1", .status = GQAC_UNSUPPORTED},
    };
    run_cases(cases, COUNT(cases));
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"dequantise", dequantize},
                                      {"quantise", quantize},
                                      {"quantise by the tensor", dynamic},
                                      {"integer products", products}};
    return unit_run("quantise", cases, COUNT(cases), argc, argv);
}
