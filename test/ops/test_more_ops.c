/* Activations, bits, more reductions, scattering and searching: values computed by hand, special
 * values, empty tensors, and refused calls. */
#include "support.h"
#include "support_graph.h"

#include <math.h>
#include <string.h>

#include "numerics/math.h"
#include "ops/shared.h"

static void activations(void) {
    static const op_case cases[] = {
        {.op = "Elu", .inputs = "f32[4]: 2 0 -inf nan", .outputs = "f32[4]: 2 0 -1 nan"},
        {.op = "Elu", .attrs = "alpha=2.0f", .inputs = "f16[2]: -inf 3", .outputs = "f16[2]: -2 3"},
        {.op = "Celu",
         .attrs = "alpha=2.0f",
         .inputs = "f32[3]: -inf 3 0",
         .outputs = "f32[3]: -2 3 0"},
        {.op = "Selu",
         .attrs = "alpha=2.0f gamma=3.0f",
         .inputs = "f32[3]: -inf 1 0",
         .outputs = "f32[3]: -6 3 0"},
        {.op = "LeakyRelu",
         .attrs = "alpha=0.5f",
         .inputs = "f32[4]: -4 4 -0 nan",
         .outputs = "f32[4]: -2 4 -0 nan"},
        {.op = "LeakyRelu", .inputs = "f64[1]: -4", .status = GQAC_UNSUPPORTED},
        {.op = "PRelu",
         .inputs = "f32[2,2]: -1 2 -3 -4 | f32[2]: 2 0.5",
         .outputs = "f32[2,2]: -2 2 -6 -2"},
        {.op = "PRelu", .inputs = "i32[2]: -3 3 | i32[1]: 7", .outputs = "i32[2]: -21 3"},
        {.op = "PRelu", .inputs = "f32[2]: -3 3 | f32[2,2]: 1 1 1 1", .status = GQAC_INVALID_INPUT},
        {.op = "HardSigmoid",
         .attrs = "alpha=0.5f beta=0.25f",
         .inputs = "f32[5]: -9 0 1 9 nan",
         .outputs = "f32[5]: 0 0.25 0.75 1 nan"},
        {.op = "HardSwish", .inputs = "f32[5]: -3 0 3 6 -9", .outputs = "f32[5]: -0 0 3 6 -0"},
        {.op = "Softsign", .inputs = "f32[4]: 1 -3 0 nan", .outputs = "f32[4]: 0.5 -0.75 0 nan"},
        {.op = "Softplus", .inputs = "f32[3]: -inf 100 inf", .outputs = "f32[3]: 0 100 inf"},
        {.op = "Mish", .inputs = "f32[3]: 0 50 nan", .outputs = "f32[3]: 0 50 nan"},
        {.op = "Swish", .inputs = "f32[3]: 0 100 nan", .outputs = "f32[3]: 0 100 nan"},
        {.op = "ThresholdedRelu",
         .attrs = "alpha=2.0f",
         .inputs = "f32[4]: 2 3 -5 inf",
         .outputs = "f32[4]: 0 3 0 inf"},
        {.op = "Shrink",
         .attrs = "bias=0.5f lambd=1.5f",
         .inputs = "f32[5]: -2 -1 0 1 2",
         .outputs = "f32[5]: -1.5 0 0 0 1.5"},
        {.op = "Sign", .inputs = "f32[5]: -2 -0 0 inf nan", .outputs = "f32[5]: -1 -0 0 1 nan"},
        {.op = "Sign", .inputs = "i8[3]: -128 0 5", .outputs = "i8[3]: -1 0 1"},
        {.op = "Sign", .inputs = "f32[0]:", .outputs = "f32[0]:"},
        {.op = "IsNaN", .inputs = "f32[4]: nan 1 inf -0", .outputs = "bool[4]: 1 0 0 0"},
        {.op = "IsNaN", .inputs = "f64[2]: nan 1", .outputs = "bool[2]: 1 0"},
        {.op = "IsNaN", .inputs = "i32[1]: 1", .status = GQAC_UNSUPPORTED},
        {.op = "IsInf", .inputs = "f16[4]: nan -inf inf 1", .outputs = "bool[4]: 0 1 1 0"},
        {.op = "IsInf",
         .attrs = "detect_negative=0",
         .inputs = "f64[2]: -inf inf",
         .outputs = "bool[2]: 0 1"},
        {.op = "IsInf",
         .attrs = "detect_positive=0",
         .inputs = "f32[2]: -inf inf",
         .outputs = "bool[2]: 1 0"},
    };
    run_cases(cases, COUNT(cases));
}

static void bits(void) {
    static const op_case cases[] = {
        {.op = "BitShift",
         .attrs = "direction='LEFT'",
         .inputs = "u8[4]: 1 255 3 1 | u8[4]: 1 4 8 7",
         .outputs = "u8[4]: 2 240 0 128"},
        {.op = "BitShift",
         .attrs = "direction='RIGHT'",
         .inputs = "u64[3]: 18446744073709551615 8 1 | u64[3]: 63 64 1",
         .outputs = "u64[3]: 1 0 0"},
        {.op = "BitShift",
         .attrs = "direction='UP'",
         .inputs = "u8[1]: 1 | u8[1]: 1",
         .status = GQAC_INVALID_MODEL},
        {.op = "BitShift",
         .attrs = "direction='LEFT'",
         .inputs = "i32[1]: 1 | i32[1]: 1",
         .status = GQAC_UNSUPPORTED},
        {.op = "BitwiseAnd", .inputs = "i32[2]: 12 -1 | i32[1]: 10", .outputs = "i32[2]: 8 10"},
        {.op = "BitwiseOr", .inputs = "u8[2]: 12 1 | u8[1]: 10", .outputs = "u8[2]: 14 11"},
        {.op = "BitwiseXor", .inputs = "i64[2]: 12 -1 | i64[1]: 10", .outputs = "i64[2]: 6 -11"},
        {.op = "BitwiseAnd", .inputs = "f32[1]: 1 | f32[1]: 1", .status = GQAC_UNSUPPORTED},
        {.op = "BitwiseNot", .inputs = "u16[2]: 0 65535", .outputs = "u16[2]: 65535 0"},
        {.op = "Xor",
         .inputs = "bool[4]: 0 0 1 1 | bool[4]: 0 1 0 1",
         .outputs = "bool[4]: 0 1 1 0"},
    };
    run_cases(cases, COUNT(cases));
}

static void reductions(void) {
    static const op_case cases[] = {
        {.op = "ReduceL1", .inputs = "f32[2,2]: 1 -2 -3 4 | i64[1]: 1", .outputs = "f32[2,1]: 3 7"},
        {.op = "ReduceL1", .inputs = "i32[3]: -1 2 -3", .outputs = "i32[1]: 6"},
        {.op = "ReduceL1",
         .inputs = "u64[2]: 18446744073709551615 0",
         .outputs = "u64[1]: 18446744073709551615"},
        {.op = "ReduceL1", .inputs = "f32[0]:", .outputs = "f32[1]: 0"},
        {.op = "ReduceL2",
         .attrs = "keepdims=0",
         .inputs = "f32[2,2]: 3 4 6 8 | i64[1]: -1",
         .outputs = "f32[2]: 5 10"},
        {.op = "ReduceL2", .inputs = "f16[2]: inf nan", .outputs = "f16[1]: nan"},
        {.op = "ReduceSumSquare", .inputs = "f32[3]: 1 2 3", .outputs = "f32[1]: 14"},
        {.op = "ReduceSumSquare", .inputs = "i64[2]: -3 4", .outputs = "i64[1]: 25"},
        {.op = "ReduceLogSum", .inputs = "f32[2]: 0.25 0.75", .outputs = "f32[1]: 0"},
        {.op = "ReduceLogSum", .inputs = "f32[0]:", .outputs = "f32[1]: -inf"},
        {.op = "ReduceLogSumExp", .inputs = "f32[1]: 500", .outputs = "f32[1]: 500"},
        {.op = "ReduceLogSumExp", .inputs = "f32[2]: -inf -inf", .outputs = "f32[1]: -inf"},
        {.op = "ReduceLogSumExp", .inputs = "f32[2]: inf 0", .outputs = "f32[1]: inf"},
        {.op = "ReduceLogSumExp", .inputs = "f32[2]: nan 0", .outputs = "f32[1]: nan"},
        {.op = "ReduceLogSumExp", .inputs = "f32[0]:", .outputs = "f32[1]: -inf"},
        {.op = "ArgMin", .inputs = "f32[5]: 3 1 nan 1 nan", .outputs = "i64[1]: 2"},
        {.op = "ArgMin",
         .attrs = "select_last_index=1",
         .inputs = "f32[4]: 3 1 2 1",
         .outputs = "i64[1]: 3"},
        {.op = "ArgMin",
         .attrs = "axis=1 keepdims=0",
         .inputs = "i64[2,2]: 5 -5 1 2",
         .outputs = "i64[2]: 1 0"},
        {.op = "ArgMin", .inputs = "u64[2]: 18446744073709551615 1", .outputs = "i64[1]: 1"},
        {.op = "ArgMin", .attrs = "axis=1", .inputs = "f32[2,0]:", .status = GQAC_INVALID_INPUT},
        {.op = "CumProd", .inputs = "f32[3]: 2 3 4 | i64[]: 0", .outputs = "f32[3]: 2 6 24"},
        {.op = "CumProd",
         .attrs = "exclusive=1 reverse=1",
         .inputs = "i32[3]: 2 3 4 | i64[]: 0",
         .outputs = "i32[3]: 12 4 1"},
        {.op = "Sum",
         .inputs = "f32[2]: 1 2 | f32[1]: 10 | f32[2,1]: 100 200",
         .outputs = "f32[2,2]: 111 112 211 212"},
        {.op = "Sum", .inputs = "f16[1]: 1", .outputs = "f16[1]: 1"},
        {.op = "LogSoftmax", .inputs = "f32[2,1]: 5 inf", .outputs = "f32[2,1]: 0 nan"},
        {.op = "LogSoftmax",
         .attrs = "axis=0",
         .inputs = "f32[2,1]: 0 -inf",
         .outputs = "f32[2,1]: 0 -inf"},
        {.op = "LogSoftmax", .inputs = "f32[2,0]:", .outputs = "f32[2,0]:"},
        {.op = "Hardmax",
         .inputs = "f32[2,3]: 1 3 3 -inf nan 9",
         .outputs = "f32[2,3]: 0 1 0 0 1 0"},
        {.op = "Hardmax",
         .attrs = "axis=0",
         .inputs = "f16[2,2]: 1 -0 2 0",
         .outputs = "f16[2,2]: 0 1 1 0"},
        {.op = "Hardmax", .inputs = "f32[2,0]:", .outputs = "f32[2,0]:"},
    };
    run_cases(cases, COUNT(cases));
}

static void searching(void) {
    static const op_case cases[] = {
        {.op = "TopK",
         .inputs = "f32[5]: 1 nan 3 3 -inf | i64[1]: 4",
         .outputs = "f32[4]: nan 3 3 1 | i64[4]: 1 2 3 0"},
        {.op = "TopK",
         .attrs = "largest=0",
         .inputs = "f32[5]: 1 nan 3 1 -inf | i64[1]: 5",
         .outputs = "f32[5]: -inf 1 1 3 nan | i64[5]: 4 0 3 2 1"},
        {.op = "TopK",
         .attrs = "axis=0 sorted=0",
         .inputs = "i64[3,2]: 1 6 5 2 3 4 | i64[1]: 2",
         .outputs = "i64[2,2]: 5 6 3 4 | i64[2,2]: 1 0 2 2"},
        {.op = "TopK",
         .inputs = "u64[2]: 1 18446744073709551615 | i64[1]: 1",
         .outputs = "u64[1]: 18446744073709551615 | i64[1]: 1"},
        {.op = "TopK", .inputs = "f32[2]: 1 2 | i64[1]: 0", .outputs = "f32[0]: | i64[0]:"},
        {.op = "TopK", .inputs = "f32[2]: 1 2 | i64[1]: 3", .status = GQAC_INVALID_MODEL},
        {.op = "TopK", .inputs = "f32[2]: 1 2 | i64[1]: -1", .status = GQAC_INVALID_MODEL},
        {.op = "OneHot",
         .inputs = "i64[4]: 0 2 -1 3 | i64[]: 3 | f32[2]: 0 1",
         .outputs = "f32[4,3]: 1 0 0 0 0 1 0 0 1 0 0 0"},
        {.op = "OneHot",
         .attrs = "axis=0",
         .inputs = "f32[2]: 1 0 | f32[]: 2 | i32[2]: 5 7",
         .outputs = "i32[2,2]: 5 7 7 5"},
        {.op = "OneHot", /* the extreme 64-bit integers are outside any axis */
         .inputs = "i64[3]: 9223372036854775807 1 -9223372036854775808 | i64[]: 2 | f32[2]: 0 1",
         .outputs = "f32[3,2]: 0 0 0 1 0 0"},
        {.op = "OneHot", .inputs = "i64[1]: 0 | i64[]: 0 | f32[2]: 0 1", .outputs = "f32[1,0]:"},
        {.op = "OneHot",
         .inputs = "i64[1]: 0 | i64[]: -1 | f32[2]: 0 1",
         .status = GQAC_OUT_OF_RANGE},
        {.op = "OneHot",
         .inputs = "i64[1]: 0 | i64[]: 2 | f32[3]: 0 1 2",
         .status = GQAC_INVALID_INPUT},
        {.op = "GatherND",
         .inputs = "f32[2,2]: 1 2 3 4 | i64[2,2]: 0 0 1 -1",
         .outputs = "f32[2]: 1 4"},
        {.op = "GatherND",
         .inputs = "bool[2,2]: 1 0 0 1 | i64[1,1]: 1",
         .outputs = "bool[1,2]: 0 1"},
        {.op = "GatherND",
         .attrs = "batch_dims=1",
         .inputs = "f32[2,2,2]: 1 2 3 4 5 6 7 8 | i64[2,1]: 1 0",
         .outputs = "f32[2,2]: 3 4 5 6"},
        {.op = "GatherND",
         .inputs = "f32[2,2]: 1 2 3 4 | i64[1,1]: 2",
         .status = GQAC_OUT_OF_RANGE},
        {.op = "GatherND", .inputs = "f32[2]: 1 2 | i64[1,2]: 0 0", .status = GQAC_INVALID_MODEL},
        {.op = "GatherND",
         .attrs = "batch_dims=1",
         .inputs = "f32[2,2]: 1 2 3 4 | i64[3,1]: 0 0 0",
         .status = GQAC_INVALID_INPUT},
    };
    run_cases(cases, COUNT(cases));
}

static void scattering(void) {
    static const op_case cases[] = {
        {.op = "ScatterElements",
         .inputs = "f32[2,2]: 1 2 3 4 | i64[1,2]: 1 -2 | f32[1,2]: 8 9",
         .outputs = "f32[2,2]: 1 9 8 4"},
        {.op = "ScatterElements",
         .attrs = "axis=1",
         .inputs = "bool[1,3]: 0 0 0 | i32[1,2]: 2 2 | bool[1,2]: 0 1",
         .outputs = "bool[1,3]: 0 0 1"},
        {.op = "ScatterElements",
         .attrs = "reduction='add'",
         .inputs = "f16[2]: 1 2 | i64[3]: 0 0 1 | f16[3]: 1 1 5",
         .outputs = "f16[2]: 3 7"},
        {.op = "ScatterElements",
         .attrs = "reduction='mul'",
         .inputs = "i8[2]: 100 2 | i64[2]: 0 1 | i8[2]: 3 -4",
         .outputs = "i8[2]: 44 -8"},
        {.op = "ScatterElements",
         .attrs = "reduction='max'",
         .inputs = "f32[2]: 1 nan | i64[2]: 0 1 | f32[2]: 5 9",
         .outputs = "f32[2]: 5 nan"},
        {.op = "ScatterElements",
         .attrs = "reduction='min'",
         .inputs = "u64[1]: 18446744073709551615 | i64[1]: 0 | u64[1]: 7",
         .outputs = "u64[1]: 7"},
        {.op = "ScatterElements",
         .attrs = "reduction='add'",
         .inputs = "f64[1]: 1 | i64[1]: 0 | f64[1]: 0.5",
         .outputs = "f64[1]: 1.5"},
        {.op = "ScatterElements",
         .inputs = "f32[2]: 1 2 | i64[0]: | f32[0]:",
         .outputs = "f32[2]: 1 2"},
        {.op = "ScatterElements",
         .inputs = "f32[2]: 1 2 | i64[1]: 2 | f32[1]: 0",
         .status = GQAC_OUT_OF_RANGE},
        {.op = "ScatterElements",
         .inputs = "f32[2]: 1 2 | i64[1]: 1 | f32[2]: 0 0",
         .status = GQAC_INVALID_INPUT},
        {.op = "ScatterElements",
         .inputs = "f32[2]: 1 2 | i64[1,1]: 1 | f32[1,1]: 0",
         .status = GQAC_INVALID_MODEL},
        {.op = "ScatterElements",
         .attrs = "reduction='sum'",
         .inputs = "f32[2]: 1 2 | i64[1]: 1 | f32[1]: 0",
         .status = GQAC_INVALID_MODEL},
        {.op = "ScatterElements",
         .attrs = "reduction='add'",
         .inputs = "bool[2]: 1 0 | i64[1]: 1 | bool[1]: 0",
         .status = GQAC_UNSUPPORTED},
        {.op = "ScatterND",
         .inputs = "f32[2,2]: 1 2 3 4 | i64[1,1]: -1 | f32[1,2]: 8 9",
         .outputs = "f32[2,2]: 1 2 8 9"},
        {.op = "ScatterND",
         .inputs = "f32[2,2]: 1 2 3 4 | i64[2,2]: 0 1 1 0 | f32[2]: 8 9",
         .outputs = "f32[2,2]: 1 8 9 4"},
        {.op = "ScatterND",
         .attrs = "reduction='add'",
         .inputs = "f32[2]: 1 2 | i64[2,1]: 0 0 | f32[2]: 8 9",
         .outputs = "f32[2]: 18 2"},
        {.op = "ScatterND",
         .inputs = "f32[2]: 1 2 | i64[1,1]: 2 | f32[1]: 8",
         .status = GQAC_OUT_OF_RANGE},
        {.op = "ScatterND",
         .inputs = "f32[2]: 1 2 | i64[1,1]: 1 | f32[2]: 8 8",
         .status = GQAC_INVALID_INPUT},
        {.op = "ScatterND",
         .inputs = "f32[2]: 1 2 | i64[1,2]: 1 1 | f32[1]: 8",
         .status = GQAC_INVALID_MODEL},
    };
    run_cases(cases, COUNT(cases));
}

/* A long row is sorted like a short one, and equal elements keep their order. */
static void long_rows(void) {
    enum { N = 3000 };
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 3};
    gqac_tensor x = test_tensor(arena, GQAC_F32, 1, (int64_t[]){N});
    gqac_tensor k = test_ints(arena, GQAC_I64, 1, (int64_t[]){1}, (int64_t[]){N});
    graph_run run;
    for (int i = 0; i < N; i++)
        op_put_f32(&x, i, (float)test_random_int(&r, -50, 50));
    CU_ASSERT_FATAL(graph_run_open(&run, "", "TopK", 2, (const gqac_tensor *[]){&x, &k}, 2));
    CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
    for (int i = 0; i + 1 < N; i++) {
        int64_t a = op_get_i64(&run.results[1], i), b = op_get_i64(&run.results[1], i + 1);
        float u = op_get_f32(&run.results[0], i), v = op_get_f32(&run.results[0], i + 1);
        CU_ASSERT(u > v || (u == v && a < b));
        CU_ASSERT(u == op_get_f32(&x, a));
    }
    graph_run_close(&run);
    gqac_arena_free(arena);
}

/* Mean is a composite; with more inputs than one node of it can have. */
static void means(void) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor x[16];
    const gqac_tensor *in[16];
    graph_run run;
    for (int i = 0; i < 16; i++) {
        x[i] = test_tensor(arena, GQAC_F32, 1, (int64_t[]){i % 2 ? 2 : 1});
        for (int64_t j = 0; j < gqac_tensor_count(&x[i]); j++)
            op_put_f32(&x[i], j, (float)(i + j));
        in[i] = &x[i];
    }
    CU_ASSERT_FATAL(graph_run_open(&run, "", "Mean", 16, in, 1));
    CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
    CU_ASSERT(run.results[0].rank == 1 && run.results[0].dims[0] == 2);
    CU_ASSERT_EQUAL(op_get_f32(&run.results[0], 0), 7.5f);
    CU_ASSERT_EQUAL(op_get_f32(&run.results[0], 1), 8.0f);
    graph_run_close(&run);
    gqac_arena_free(arena);
}

/* Compared with the formulas in double. */
static void curves(void) {
    static const char *const names[] = {"Elu", "Celu", "Selu", "Mish", "Softplus", "Swish"};
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor x = test_tensor(arena, GQAC_F32, 1, (int64_t[]){161});
    for (int i = 0; i < 161; i++)
        op_put_f32(&x, i, (float)(i - 80) / 8);
    for (int k = 0; k < 6; k++) {
        graph_run run;
        CU_ASSERT_FATAL(graph_run_open(&run, "", names[k], 1, (const gqac_tensor *[]){&x}, 1));
        CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
        for (int i = 0; i < 161; i++) {
            double v = op_get_f64(&x, i), low = exp(v) - 1, soft = log1p(exp(v));
            double expected[] = {v < 0 ? low : v,
                                 v < 0 ? low : v,
                                 1.05070102214813232 * (v <= 0 ? 1.67326319217681885 * low : v),
                                 v * tanh(soft),
                                 soft,
                                 v / (1 + exp(-v))};
            CU_ASSERT_DOUBLE_EQUAL(op_get_f64(&run.results[0], i), expected[k],
                                   1e-6 * (1 + fabs(expected[k])));
        }
        graph_run_close(&run);
    }
    gqac_arena_free(arena);
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"activations", activations}, {"bits", bits},
        {"reductions", reductions},   {"searching", searching},
        {"scattering", scattering},   {"TopK of long rows", long_rows},
        {"Mean of many", means},      {"curves of activations", curves},
    };
    return unit_run("more_ops", cases, sizeof cases / sizeof *cases, argc, argv);
}
