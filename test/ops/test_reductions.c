/* Reductions, Softmax, CumSum, ArgMax: values computed by hand, the order of sums, and errors. */
#include <math.h>
#include <stdlib.h>

#include "numerics/math.h"
#include "numerics/reduce.h"
#include "support.h"

static void reductions(void) {
    static const op_case cases[] = {
        {.op = "ReduceSum", .inputs = "f32[2,3]: 1 2 3 4 5 6", .outputs = "f32[1,1]: 21"},
        {.op = "ReduceSum",
         .attrs = "keepdims=0",
         .inputs = "f32[2,3]: 1 2 3 4 5 6 | i64[1]: 1",
         .outputs = "f32[2]: 6 15"},
        {.op = "ReduceSum",
         .attrs = "keepdims=0",
         .inputs = "i32[2,3]: 1 2 3 4 5 6 | i64[1]: 0",
         .outputs = "i32[3]: 5 7 9"},
        {.op = "ReduceSum",
         .inputs = "f32[2,2,2]: 1 2 3 4 5 6 7 8 | i64[2]: 0 -1",
         .outputs = "f32[1,2,1]: 14 22"},
        {.op = "ReduceSum",
         .attrs = "noop_with_empty_axes=1",
         .inputs = "f32[2]: 1 2 | i64[0]:",
         .outputs = "f32[2]: 1 2"},
        {.op = "ReduceSum", .inputs = "f32[2]: 1 2 | i64[0]:", .outputs = "f32[1]: 3"},
        {.op = "ReduceSum", .inputs = "f32[2,0]: | i64[1]: 1", .outputs = "f32[2,1]: 0 0"},
        {.op = "ReduceSum", .inputs = "f32[]: 4", .outputs = "f32[]: 4"},
        {.op = "ReduceSum", .inputs = "f16[3]: 2048 1 1", .outputs = "f16[1]: 2050"},
        {.op = "ReduceSum", .inputs = "f64[3]: 1 2 3", .outputs = "f64[1]: 6"},
        {.op = "ReduceSum",
         .inputs = "i64[2]: 9223372036854775807 1",
         .outputs = "i64[1]: -9223372036854775808"},
        {.op = "ReduceSum", .inputs = "f32[2]: 1 2 | i64[1]: 1", .status = GQAC_INVALID_MODEL},
        {.op = "ReduceSum", .inputs = "f32[2]: 1 2 | i64[2]: 0 -1", .status = GQAC_INVALID_MODEL},
        {.op = "ReduceSum",
         .inputs = "f32[2,2]: 1 2 3 4",
         .outputs = "f32[2,1]: 3 7",
         .opset = 11,
         .raw = "axes=1;"},
        {.op = "ReduceMean",
         .inputs = "f32[2,2]: 1 2 3 5 | i64[1]: -1",
         .outputs = "f32[2,1]: 1.5 4"},
        {.op = "ReduceMean", .inputs = "i32[2]: -3 -4", .outputs = "i32[1]: -3"},
        {.op = "ReduceMean", .inputs = "f32[0]:", .outputs = "f32[1]: nan"},
        {.op = "ReduceMean", .inputs = "i32[0]:", .status = GQAC_INVALID_INPUT},
        {.op = "ReduceMean",
         .attrs = "keepdims=0",
         .inputs = "f32[2,2]: 1 2 3 5",
         .outputs = "f32[2]: 2 3.5",
         .opset = 13,
         .raw = "axes=0;"},
        {.op = "ReduceMax", .inputs = "f32[3]: 1 nan 2", .outputs = "f32[1]: nan"},
        {.op = "ReduceMax", .inputs = "f32[0]:", .outputs = "f32[1]: -inf"},
        {.op = "ReduceMax", .inputs = "i64[2,2]: 1 -2 3 4 | i64[1]: 0", .outputs = "i64[1,2]: 3 4"},
        {.op = "ReduceMax", .inputs = "bool[2]: 0 1", .outputs = "bool[1]: 1"},
        {.op = "ReduceMax",
         .inputs = "u64[2]: 1 18446744073709551615",
         .outputs = "u64[1]: 18446744073709551615"},
        {.op = "ReduceMin", .inputs = "bf16[2]: 1 -2", .outputs = "bf16[1]: -2"},
        {.op = "ReduceMin", .inputs = "i8[0]:", .status = GQAC_INVALID_INPUT},
        {.op = "ReduceProd", .inputs = "i64[3]: 2 3 4", .outputs = "i64[1]: 24"},
        {.op = "ReduceProd",
         .attrs = "keepdims=0",
         .inputs = "f32[2,2]: 2 3 4 5 | i64[1]: 1",
         .outputs = "f32[2]: 6 20"},
        {.op = "ReduceProd", .inputs = "f32[0]:", .outputs = "f32[1]: 1"},
    };
    run_cases(cases, COUNT(cases));
}

static void along_an_axis(void) {
    static const op_case cases[] = {
        {.op = "Softmax", .inputs = "f32[1,2]: 0 0", .outputs = "f32[1,2]: 0.5 0.5"},
        {.op = "Softmax",
         .inputs = "f32[3]: 1 2 3",
         .outputs = "f32[3]: 0.0900305732 0.244728471 0.665240956"},
        {.op = "Softmax",
         .attrs = "axis=0",
         .inputs = "f32[2,2]: 0 5 0 5",
         .outputs = "f32[2,2]: 0.5 0.5 0.5 0.5"},
        {.op = "Softmax", .inputs = "f32[2]: -inf 3", .outputs = "f32[2]: 0 1"},
        {.op = "Softmax", .inputs = "f32[2]: nan 3", .outputs = "f32[2]: nan nan"},
        {.op = "Softmax", .inputs = "f16[2]: 10 10", .outputs = "f16[2]: 0.5 0.5"},
        {.op = "Softmax", .inputs = "f32[2,0]:", .outputs = "f32[2,0]:"},
        {.op = "Softmax", .attrs = "axis=2", .inputs = "f32[1]: 1", .status = GQAC_INVALID_MODEL},
        {.op = "Softmax", .inputs = "i32[1]: 1", .status = GQAC_UNSUPPORTED},
        {.op = "Softmax", .inputs = "f32[1,2]: 0 0", .outputs = "f32[1,2]: 0.5 0.5", .opset = 11},
        {.op = "Softmax",
         .attrs = "axis=-1",
         .inputs = "f32[1,1,2]: 0 0",
         .outputs = "f32[1,1,2]: 0.5 0.5",
         .opset = 11},
        {.op = "CumSum", .inputs = "f32[4]: 1 2 3 4 | i64[]: 0", .outputs = "f32[4]: 1 3 6 10"},
        {.op = "CumSum",
         .attrs = "exclusive=1",
         .inputs = "i64[3]: 1 2 3 | i32[]: -1",
         .outputs = "i64[3]: 0 1 3"},
        {.op = "CumSum",
         .attrs = "reverse=1",
         .inputs = "i64[3]: 1 2 3 | i32[1]: 0",
         .outputs = "i64[3]: 6 5 3"},
        {.op = "CumSum",
         .attrs = "reverse=1 exclusive=1",
         .inputs = "f64[3]: 1 2 3 | i32[]: 0",
         .outputs = "f64[3]: 5 3 0"},
        {.op = "CumSum", .inputs = "f32[2,2]: 1 2 3 4 | i64[]: 0", .outputs = "f32[2,2]: 1 2 4 6"},
        {.op = "CumSum",
         .inputs = "f16[3]: 2048 1 1 | i64[]: 0",
         .outputs = "f16[3]: 2048 2048 2050"},
        {.op = "CumSum", .inputs = "f32[2]: 1 2 | i64[]: 1", .status = GQAC_INVALID_MODEL},
        {.op = "ArgMax", .inputs = "f32[2,2]: 1 5 7 3", .outputs = "i64[1,2]: 1 0"},
        {.op = "ArgMax",
         .attrs = "axis=-1 keepdims=0",
         .inputs = "i32[2,3]: 1 3 3 9 2 2",
         .outputs = "i64[2]: 1 0"},
        {.op = "ArgMax",
         .attrs = "select_last_index=1",
         .inputs = "i32[3]: 1 3 3",
         .outputs = "i64[1]: 2"},
        {.op = "ArgMax", .inputs = "f32[3]: 1 nan nan", .outputs = "i64[1]: 1"},
        {.op = "ArgMax", .inputs = "f32[0]:", .status = GQAC_INVALID_INPUT},
    };
    run_cases(cases, COUNT(cases));
}

/* The bits are those of the contract's lane tree, whatever the layout of the row. */
static void order(void) {
    enum { N = 77, M = 3 };
    uint64_t seed = 5;
    float rows[M][N], *data = malloc(sizeof(float) * N * M),
                      *columns = malloc(sizeof(float) * N * M);
    for (int i = 0; i < M; i++)
        for (int k = 0; k < N; k++) {
            rows[i][k] = (float)random_below(&seed, 1000) / 7.0f - 60.0f;
            data[i * N + k] = rows[i][k];
            columns[k * M + i] = rows[i][k];
        }
    gqac_tensor x = {.dtype = GQAC_F32, .rank = 2, .dims = {M, N}, .data = data};
    gqac_tensor t = {.dtype = GQAC_F32, .rank = 2, .dims = {N, M}, .data = columns};
    int64_t last = 1, first = 0;
    gqac_tensor ax = {.dtype = GQAC_I64, .rank = 1, .dims = {1}, .data = &last};
    gqac_tensor at = {.dtype = GQAC_I64, .rank = 1, .dims = {1}, .data = &first};
    op_probe a = {.op = "ReduceSum",
                  .domain = "",
                  .n_in = 2,
                  .n_out = 1,
                  .in = {&x, &ax},
                  .arena = gqac_arena_create(0)};
    op_probe b = {
        .op = "ReduceSum", .domain = "", .n_in = 2, .n_out = 1, .in = {&t, &at}, .arena = a.arena};
    op_probe s = {
        .op = "Softmax", .domain = "", .n_in = 1, .n_out = 1, .in = {&x}, .arena = a.arena};
    CU_ASSERT_EQUAL_FATAL(run_probe(&a), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(run_probe(&b), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(run_probe(&s), GQAC_OK);
    for (int i = 0; i < M; i++) {
        CU_ASSERT_EQUAL(((float *)a.out[0].data)[i], gqn_lane_sum(rows[i], N));
        CU_ASSERT_EQUAL(((float *)b.out[0].data)[i], gqn_lane_sum(rows[i], N));
        float e[N], most = gqn_lane_max(rows[i], N);
        for (int k = 0; k < N; k++)
            e[k] = gqn_expf(rows[i][k] - most);
        for (int k = 0; k < N; k++)
            CU_ASSERT_EQUAL(((float *)s.out[0].data)[i * N + k], e[k] / gqn_lane_sum(e, N));
    }
    gqac_arena_free(a.arena);
    free(data);
    free(columns);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"reductions", reductions},
        {"along an axis", along_an_axis},
        {"order of sums", order},
    };
    return unit_run("ops: reductions", cases, COUNT(cases), argc, argv);
}
