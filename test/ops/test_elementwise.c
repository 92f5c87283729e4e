/* Elementwise ops: values computed by hand, special values, broadcasting, types and errors. */
#include "numerics/dialect.h"
#include "support.h"

static void arithmetic(void) {
    static const op_case cases[] = {
        {.op = "Add", .inputs = "f32[3]: 1 2 nan | f32[]: 0.5", .outputs = "f32[3]: 1.5 2.5 nan"},
        {.op = "Add",
         .inputs = "f32[2,1]: 1 2 | f32[3]: 10 20 30",
         .outputs = "f32[2,3]: 11 21 31 12 22 32"},
        {.op = "Add", .inputs = "f32[0,2]: | f32[1,2]: 1 2", .outputs = "f32[0,2]:"},
        {.op = "Add",
         .inputs = "i32[2]: 2147483647 -5 | i32[1]: 1",
         .outputs = "i32[2]: -2147483648 -4"},
        {.op = "Add",
         .inputs = "i64[1]: 9223372036854775807 | i64[1]: 1",
         .outputs = "i64[1]: -9223372036854775808"},
        {.op = "Add", .inputs = "u8[2]: 250 3 | u8[2]: 10 4", .outputs = "u8[2]: 4 7"},
        {.op = "Add", .inputs = "f16[2]: 2048 1 | f16[2]: 1 1", .outputs = "f16[2]: 2048 2"},
        {.op = "Add", .inputs = "bf16[2]: 256 1 | bf16[2]: 1 1", .outputs = "bf16[2]: 256 2"},
        {.op = "Add", .inputs = "f64[1]: 1e300 | f64[1]: 1e300", .outputs = "f64[1]: 2e300"},
        {.op = "Sub", .inputs = "i8[2]: -128 5 | i8[2]: 1 7", .outputs = "i8[2]: 127 -2"},
        {.op = "Sub", .inputs = "f32[2]: inf 1 | f32[2]: inf 2", .outputs = "f32[2]: nan -1"},
        {.op = "Mul",
         .inputs = "f32[2,2]: 1 2 3 4 | f32[2,1]: 2 -1",
         .outputs = "f32[2,2]: 2 4 -3 -4"},
        {.op = "Mul", .inputs = "i32[1]: 65536 | i32[1]: 65536", .outputs = "i32[1]: 0"},
        {.op = "Div",
         .inputs = "f32[4]: 1 -1 0 7 | f32[4]: 0 0 0 2",
         .outputs = "f32[4]: inf -inf nan 3.5"},
        {.op = "Div",
         .inputs = "i32[4]: 7 -7 7 -7 | i32[4]: 2 2 -2 -2",
         .outputs = "i32[4]: 3 -3 -3 3"},
        {.op = "Div",
         .inputs = "i64[1]: -9223372036854775808 | i64[1]: -1",
         .outputs = "i64[1]: -9223372036854775808"},
        {.op = "Div",
         .inputs = "i32[1]: -2147483648 | i32[1]: -1",
         .outputs = "i32[1]: -2147483648"},
        {.op = "Div",
         .inputs = "u64[1]: 18446744073709551615 | u64[1]: 2",
         .outputs = "u64[1]: 9223372036854775807"},
        {.op = "Div", .inputs = "i32[2]: 1 1 | i32[2]: 1 0", .status = GQAC_INVALID_INPUT},
        {.op = "Div", .inputs = "i32[0]: | i32[1]: 0", .outputs = "i32[0]:"},
        {.op = "Mod",
         .inputs = "i32[4]: 5 -5 5 -5 | i32[4]: 3 3 -3 -3",
         .outputs = "i32[4]: 2 1 -1 -2"},
        {.op = "Mod",
         .attrs = "fmod=1",
         .inputs = "i32[4]: 5 -5 5 -5 | i32[4]: 3 3 -3 -3",
         .outputs = "i32[4]: 2 -2 2 -2"},
        {.op = "Mod",
         .attrs = "fmod=1",
         .inputs = "f32[2]: 5.5 -5.5 | f32[1]: 3",
         .outputs = "f32[2]: 2.5 -2.5"},
        {.op = "Mod",
         .inputs = "i64[1]: -9223372036854775808 | i64[1]: -1",
         .outputs = "i64[1]: 0"},
        {.op = "Mod",
         .inputs = "f32[8]: 5.5 -5.5 5.5 -5.5 -6 -0 1 -1 | f32[8]: 3 3 -3 -3 3 -2 -inf inf",
         .outputs = "f32[8]: 2.5 0.5 -0.5 -2.5 0 -0 -inf inf"},
        {.op = "Mod", .inputs = "f64[2]: -5.5 inf | f64[1]: 3", .outputs = "f64[2]: 0.5 nan"},
        {.op = "Mod", .inputs = "i32[1]: 1 | i32[1]: 0", .status = GQAC_INVALID_INPUT},
        {.op = "Add", .inputs = "f32[2]: 1 2 | f32[3]: 1 2 3", .status = GQAC_INVALID_MODEL},
        {.op = "Add", .inputs = "f32[1]: 1 | i32[1]: 1", .status = GQAC_INVALID_MODEL},
        {.op = "Add", .inputs = "bool[1]: 1 | bool[1]: 1", .status = GQAC_UNSUPPORTED},
    };
    run_cases(cases, COUNT(cases));
}

static void powers(void) {
    static const op_case cases[] = {
        {.op = "Pow",
         .inputs = "f32[4]: 2 -2 9 0 | f32[4]: 10 3 0.5 0",
         .outputs = "f32[4]: 1024 -8 3 1"},
        {.op = "Pow", .inputs = "f32[3]: 2 3 -3 | i64[]: 2", .outputs = "f32[3]: 4 9 9"},
        {.op = "Pow",
         .inputs = "i32[4]: 2 3 -2 7 | i32[4]: 31 2 3 0",
         .outputs = "i32[4]: -2147483648 9 -8 1"},
        {.op = "Pow",
         .inputs = "i64[4]: 2 1 -1 0 | i64[4]: -1 -5 -3 -1",
         .outputs = "i64[4]: 0 1 -1 0"},
        {.op = "Pow", .inputs = "i32[2]: 4 9 | f32[]: 0.5", .outputs = "i32[2]: 2 3"},
        {.op = "Pow", .inputs = "f16[2]: 3 300 | f16[]: 2", .outputs = "f16[2]: 9 inf"},
        {.op = "Pow", .inputs = "f32[1]: -2 | f32[1]: 0.3", .outputs = "f32[1]: nan"},
        {.op = "Min", .inputs = "f32[3]: 1 5 nan | f32[3]: 2 3 1", .outputs = "f32[3]: 1 3 nan"},
        {.op = "Min",
         .inputs = "f32[3]: 1 5 1 | f32[3]: 2 3 nan | f32[]: 0.5",
         .outputs = "f32[3]: 0.5 0.5 nan"},
        {.op = "Max", .inputs = "i32[2]: 1 5 | i32[2,1]: 3 -1", .outputs = "i32[2,2]: 3 5 1 5"},
        {.op = "Max",
         .inputs = "u64[2]: 1 18446744073709551615 | u64[1]: 2",
         .outputs = "u64[2]: 2 18446744073709551615"},
        {.op = "Max", .inputs = "f16[2]: 1 2", .outputs = "f16[2]: 1 2"},
        {.op = "Max",
         .inputs = "f16[2]: 1 2 | f16[1]: 1.5 | f16[2]: 0 3",
         .outputs = "f16[2]: 1.5 3"},
    };
    run_cases(cases, COUNT(cases));
}

static void one_operand(void) {
    static const op_case cases[] = {
        {.op = "Neg", .inputs = "f32[3]: 1 -2 0", .outputs = "f32[3]: -1 2 -0"},
        {.op = "Neg", .inputs = "i8[2]: -128 1", .outputs = "i8[2]: -128 -1"},
        {.op = "Neg", .inputs = "u8[1]: 1", .status = GQAC_UNSUPPORTED},
        {.op = "Abs", .inputs = "f32[3]: -1 2 -0", .outputs = "f32[3]: 1 2 0"},
        {.op = "Abs", .inputs = "i32[2]: -2147483648 -3", .outputs = "i32[2]: -2147483648 3"},
        {.op = "Abs", .inputs = "u8[1]: 200", .outputs = "u8[1]: 200"},
        {.op = "Sqrt", .inputs = "f32[4]: 4 2 -1 inf", .outputs = "f32[4]: 2 1.41421356 nan inf"},
        {.op = "Sqrt", .inputs = "f64[1]: 2", .outputs = "f64[1]: 1.4142135623730951"},
        {.op = "Reciprocal", .inputs = "f32[3]: 4 0 -0", .outputs = "f32[3]: 0.25 inf -inf"},
        {.op = "Exp", .inputs = "f32[4]: 0 1 -inf 100", .outputs = "f32[4]: 1 2.71828183 0 inf"},
        {.op = "Exp", .inputs = "f64[1]: 0", .status = GQAC_UNSUPPORTED},
        {.op = "Log", .inputs = "f32[4]: 1 2.71828183 0 -1", .outputs = "f32[4]: 0 1 -inf nan"},
        {.op = "Erf", .inputs = "f32[3]: 0 1 inf", .outputs = "f32[3]: 0 0.842700793 1"},
        {.op = "Tanh", .inputs = "f32[3]: 0 1 -inf", .outputs = "f32[3]: 0 0.761594156 -1"},
        {.op = "Sigmoid",
         .inputs = "f32[4]: 0 2 -200 nan",
         .outputs = "f32[4]: 0.5 0.880797078 0 nan"},
        {.op = "Relu", .inputs = "f32[3]: -1 2 nan", .outputs = "f32[3]: 0 2 nan"},
        {.op = "Relu", .inputs = "i32[2]: -1 2", .outputs = "i32[2]: 0 2"},
        {.op = "Sin", .inputs = "f32[2]: 0 1", .outputs = "f32[2]: 0 0.841470985"},
        {.op = "Cos", .inputs = "f32[2]: 0 1", .outputs = "f32[2]: 1 0.540302306"},
        {.op = "Floor", .inputs = "f32[3]: 1.5 -1.5 -0", .outputs = "f32[3]: 1 -2 -0"},
        {.op = "Ceil", .inputs = "f32[3]: 1.5 -1.5 -0.5", .outputs = "f32[3]: 2 -1 -0"},
        {.op = "Round",
         .inputs = "f32[6]: 0.5 1.5 2.5 -0.5 -1.5 2.6",
         .outputs = "f32[6]: 0 2 2 -0 -2 3"},
        {.op = "Round",
         .inputs = "f64[6]: 0.5 1.5 2.5 -0.5 -1.5 2.6",
         .outputs = "f64[6]: 0 2 2 -0 -2 3"},
        {.op = "Round", .inputs = "f16[2]: 2.5 3.5", .outputs = "f16[2]: 2 4"},
        {.op = "Identity", .inputs = "i4[3]: -8 7 1", .outputs = "i4[3]: -8 7 1"},
        {.op = "Identity", .inputs = "i64[]: 5", .outputs = "i64[]: 5"},
        {.op = "Dropout", .inputs = "f32[2]: 1 2", .outputs = "f32[2]: 1 2 | bool[2]: 1 1"},
        {.op = "Dropout",
         .inputs = "f32[1]: 1 | f32[]: 0.5 | bool[]: 1",
         .status = GQAC_UNSUPPORTED},
        {.op = "Dropout",
         .inputs = "f32[1]: 1",
         .outputs = "f32[1]: 1",
         .opset = 7,
         .raw = "ratio=0.5f"},
    };
    run_cases(cases, COUNT(cases));
}

static void activations(void) {
    static const op_case cases[] = {
        {.op = "Gelu",
         .inputs = "f32[4]: 0 1 -1 3",
         .outputs = "f32[4]: 0 0.841344746 -0.158655254 2.99595031"},
        {.op = "Gelu",
         .attrs = "approximate='tanh'",
         .inputs = "f32[3]: 0 1 -1",
         .outputs = "f32[3]: 0 0.841191991 -0.158808009"},
        {.op = "Gelu",
         .attrs = "approximate='fast'",
         .inputs = "f32[1]: 0",
         .status = GQAC_UNSUPPORTED},
        {.domain = "com.microsoft",
         .op = "QuickGelu",
         .inputs = "f32[2]: 0 1",
         .outputs = "f32[2]: 0 0.845795814"},
        {.domain = "com.microsoft",
         .op = "QuickGelu",
         .attrs = "alpha=1.0f",
         .inputs = "f32[1]: 2",
         .outputs = "f32[1]: 1.76159416"},
        {.domain = "com.microsoft",
         .op = "FastGelu",
         .inputs = "f32[2,2]: 0 1 -1 0 | f32[2]: 0 1",
         .outputs = "f32[2,2]: 0 1.95459769 -0.158808009 0.841191991"},
        {.domain = "com.microsoft",
         .op = "FastGelu",
         .inputs = "f32[1]: 1",
         .outputs = "f32[1]: 0.841191991"},
        {.domain = "com.microsoft",
         .op = "FastGelu",
         .inputs = "f32[2]: 1 1 | f32[1]: 1",
         .status = GQAC_INVALID_INPUT},
        {.op = "Clip",
         .inputs = "f32[4]: -5 0.5 5 nan | f32[]: -1 | f32[]: 1",
         .outputs = "f32[4]: -1 0.5 1 nan"},
        {.op = "Clip", .inputs = "i32[3]: -5 0 5 | _ | i32[]: 1", .outputs = "i32[3]: -5 0 1"},
        {.op = "Clip",
         .inputs = "u64[2]: 1 18446744073709551615 | u64[]: 2",
         .outputs = "u64[2]: 2 18446744073709551615"},
        {.op = "Clip", .inputs = "f16[2]: 3 -3", .outputs = "f16[2]: 3 -3"},
        {.op = "Clip",
         .inputs = "f16[3]: 3 7 -3",
         .outputs = "f16[3]: 3 6 0",
         .opset = 6,
         .raw = "min=0.0f max=6.0f"},
        {.op = "Clip", .inputs = "f32[1]: 3 | f32[2]: 1 1", .status = GQAC_INVALID_INPUT},
    };
    run_cases(cases, COUNT(cases));
}

static void comparisons(void) {
    static const op_case cases[] = {
        {.op = "Equal",
         .inputs = "f32[3]: 1 nan 0 | f32[3]: 1 nan -0",
         .outputs = "bool[3]: 1 0 1"},
        {.op = "Equal", .inputs = "i64[2,1]: 1 2 | i64[2]: 1 2", .outputs = "bool[2,2]: 1 0 0 1"},
        {.op = "Equal", .inputs = "bool[2]: 1 0 | bool[1]: 1", .outputs = "bool[2]: 1 0"},
        {.op = "Less", .inputs = "f32[3]: 1 nan 3 | f32[]: 2", .outputs = "bool[3]: 1 0 0"},
        {.op = "Less",
         .inputs = "u64[1]: 1 | u64[1]: 18446744073709551615",
         .outputs = "bool[1]: 1"},
        {.op = "Less", .inputs = "bool[1]: 1 | bool[1]: 1", .status = GQAC_UNSUPPORTED},
        {.op = "LessOrEqual", .inputs = "i32[3]: 1 2 3 | i32[]: 2", .outputs = "bool[3]: 1 1 0"},
        {.op = "Greater", .inputs = "f16[3]: 1 2 3 | f16[]: 2", .outputs = "bool[3]: 0 0 1"},
        {.op = "GreaterOrEqual", .inputs = "f64[3]: 1 2 3 | f64[]: 2", .outputs = "bool[3]: 0 1 1"},
        {.op = "And", .inputs = "bool[2,1]: 1 0 | bool[2]: 1 0", .outputs = "bool[2,2]: 1 0 0 0"},
        {.op = "Or", .inputs = "bool[2,1]: 1 0 | bool[2]: 1 0", .outputs = "bool[2,2]: 1 1 1 0"},
        {.op = "And", .inputs = "i32[1]: 1 | i32[1]: 1", .status = GQAC_UNSUPPORTED},
        {.op = "Not", .inputs = "bool[2]: 1 0", .outputs = "bool[2]: 0 1"},
        {.op = "Where",
         .inputs = "bool[2]: 1 0 | f32[2]: 1 2 | f32[]: 9",
         .outputs = "f32[2]: 1 9"},
        {.op = "Where",
         .inputs = "bool[2,1]: 1 0 | i64[2]: 1 2 | i64[1]: 9",
         .outputs = "i64[2,2]: 1 2 9 9"},
        {.op = "Where",
         .inputs = "bool[1]: 0 | bool[2]: 1 1 | bool[2]: 0 1",
         .outputs = "bool[2]: 0 1"},
        {.op = "Where", .inputs = "bool[1]: 0 | f16[1]: 1 | f16[1]: nan", .outputs = "f16[1]: nan"},
        {.op = "Where", .inputs = "i32[1]: 0 | f16[1]: 1 | f16[1]: 1", .status = GQAC_UNSUPPORTED},
        {.op = "Where",
         .inputs = "bool[1]: 0 | f16[1]: 1 | f32[1]: 1",
         .status = GQAC_INVALID_MODEL},
    };
    run_cases(cases, COUNT(cases));
}

static void casts(void) {
    static const op_case cases[] = {
        {.op = "Cast",
         .attrs = "to=i32",
         .inputs = "f32[6]: 1.9 -1.9 nan inf -inf 3e9",
         .outputs = "i32[6]: 1 -1 0 2147483647 -2147483648 2147483647"},
        {.op = "Cast",
         .attrs = "to=i8",
         .inputs = "f32[3]: 300 -300 -1.5",
         .outputs = "i8[3]: 127 -128 -1"},
        {.op = "Cast",
         .attrs = "to=i8",
         .inputs = "i32[3]: 300 -300 127",
         .outputs = "i8[3]: 44 -44 127"},
        {.op = "Cast",
         .attrs = "to=u64",
         .inputs = "f64[3]: 1e19 1e20 -1",
         .outputs = "u64[3]: 10000000000000000000 18446744073709551615 0"},
        {.op = "Cast",
         .attrs = "to=f32",
         .inputs = "u64[1]: 18446744073709551615",
         .outputs = "f32[1]: 18446744073709551616"},
        {.op = "Cast",
         .attrs = "to=bool",
         .inputs = "f32[4]: 0 -0 nan 0.1",
         .outputs = "bool[4]: 0 0 1 1"},
        {.op = "Cast", .attrs = "to=bool", .inputs = "i32[2]: 0 256", .outputs = "bool[2]: 0 1"},
        {.op = "Cast", .attrs = "to=f16", .inputs = "bool[2]: 0 1", .outputs = "f16[2]: 0 1"},
        {.op = "Cast",
         .attrs = "to=f16",
         .inputs = "f32[4]: 1.00048828125 70000 1e-9 nan",
         .outputs = "f16[4]: 1 inf 0 nan"},
        {.op = "Cast",
         .attrs = "to=bf16",
         .inputs = "f32[2]: 1.00390625 1.01171875",
         .outputs = "bf16[2]: 1 1.015625"},
        {.op = "Cast",
         .attrs = "to=f32",
         .inputs = "f16[2]: 0.333251953125 65504",
         .outputs = "f32[2]: 0.333251953125 65504"},
        {.op = "Cast", .attrs = "to=i64", .inputs = "i4[3]: -8 7 -1", .outputs = "i64[3]: -8 7 -1"},
        {.op = "Cast", .attrs = "to=u4", .inputs = "i32[3]: 15 16 -1", .outputs = "u4[3]: 15 0 15"},
        {.op = "Cast",
         .attrs = "to=i4",
         .inputs = "f32[3]: 100 -100 3.5",
         .outputs = "i4[3]: 4 -4 3"},
        {.op = "Cast", .attrs = "to=f64", .inputs = "f32[1]: 0.5", .outputs = "f64[1]: 0.5"},
        {.op = "Cast",
         .attrs = "to=f32",
         .inputs = "f64[2]: 1e300 0.1",
         .outputs = "f32[2]: inf 0.1"},
        /* 1 + 2^-11 + 2^-40 is above the tie: rounding to f32 first would result in 1 */
        {.op = "Cast",
         .attrs = "to=f16",
         .inputs = "f64[2]: 0x1.002000001p0 -0x1.002000001p0",
         .outputs = "f16[2]: 1.0009765625 -1.0009765625"},
        {.op = "Cast", .attrs = "to=i64", .inputs = "i64[0]:", .outputs = "i64[0]:"},
        {.op = "CastLike", .inputs = "f32[2]: 1.5 -2 | i32[1]: 9", .outputs = "i32[2]: 1 -2"},
        {.op = "CastLike", .inputs = "f32[]: 6 | bf16[0]:", .outputs = "bf16[]: 6"},
    };
    run_cases(cases, COUNT(cases));
}

/* The NaN of an eval, and so of a folded constant, has the bits that the kernels of targets
 * store. */
static void one_nan(void) {
    static const struct {
        const char *op, *domain;
        uint32_t x, y; /* y 0: one operand */
    } rows[] = {
        {"Add", "", 0x7f800000, 0xff800000},
        {"Add", "", 0xffc00001, 0x3f800000},
        {"Sub", "", 0x7f800000, 0x7f800000},
        {"Mul", "", 0x7f800000, 0x80000000},
        {"Div", "", 0x7f800000, 0xff800000},
        {"Div", "", 0x80000000, 0x80000000},
        {"Sqrt", "", 0xbf800000, 0},
        {"Neg", "", 0x7fc00000, 0},
        {"Gelu", "", 0xffc00001, 0},
        {"Swish", "", 0xffc00001, 0},
        {"QuickGelu", "com.microsoft", 0xffc00001, 0},
        {"FastGelu", "com.microsoft", 0xffc00001, 0},
    };
    enum { N = 37 }; /* whole groups of lanes, and a remainder */
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint32_t operands[2][N];
        gqac_tensor tensors[2];
        op_probe p = {.op = rows[i].op,
                      .domain = rows[i].domain,
                      .arena = gqac_arena_create(0),
                      .n_in = rows[i].y ? 2 : 1,
                      .n_out = 1};
        for (int k = 0; k < p.n_in; k++) {
            for (int e = 0; e < N; e++)
                operands[k][e] = k ? rows[i].y : rows[i].x;
            tensors[k] =
                (gqac_tensor){.dtype = GQAC_F32, .rank = 1, .dims = {N}, .data = operands[k]};
            p.in[k] = &tensors[k];
        }
        CU_ASSERT_EQUAL(run_probe(&p), GQAC_OK);
        for (int e = 0; p.out[0].data && e < N; e++)
            CU_ASSERT_EQUAL(((const uint32_t *)p.out[0].data)[e], GQN_NAN_BITS);
        gqac_arena_free(p.arena);
    }
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"arithmetic", arithmetic},   {"powers and extremes", powers}, {"one operand", one_operand},
        {"activations", activations}, {"comparisons", comparisons},    {"casts", casts},
        {"one NaN", one_nan},
    };
    return unit_run("ops: elementwise", cases, COUNT(cases), argc, argv);
}
