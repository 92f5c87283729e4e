/* RotaryEmbedding of the ONNX standard compared with that of com.microsoft, which computes the same
 * values with its inputs in another order; TensorScatter, Pad, masks and ranges of keys by hand. */
#include "support.h"
#include "support_graph.h"

#include <string.h>

#include "ops/shared.h"

typedef struct tables {
    gqac_arena *arena;
    gqac_tensor x, cos, sin, ids, near_cos, near_sin; /* near: gathered by ids */
} tables;

enum { B = 2, S = 3, H = 2, D = 8, R = 6, M = 20 };

static gqac_tensor gathered(gqac_arena *arena, const gqac_tensor *table, const gqac_tensor *ids) {
    gqac_tensor y = test_tensor(arena, GQAC_F32, 3, (int64_t[]){B, S, R / 2});
    for (int64_t i = 0; i < B * S * R / 2; i++)
        op_put_f32(&y, i, op_get_f32(table, op_get_i64(ids, i / (R / 2)) * (R / 2) + i % (R / 2)));
    return y;
}

static void make_tables(tables *t, int rank) {
    test_random r = {.state = 3};
    t->arena = gqac_arena_create(0);
    t->x = rank == 3 ? test_floats(t->arena, GQAC_F32, 3, (int64_t[]){B, S, H * D}, &r)
                     : test_floats(t->arena, GQAC_F32, 4, (int64_t[]){B, H, S, D}, &r);
    t->cos = test_floats(t->arena, GQAC_F32, 2, (int64_t[]){M, R / 2}, &r);
    t->sin = test_floats(t->arena, GQAC_F32, 2, (int64_t[]){M, R / 2}, &r);
    t->ids = test_ints(t->arena, GQAC_I64, 2, (int64_t[]){B, S}, (int64_t[]){0, 5, 19, 3, 2, 1});
    t->near_cos = gathered(t->arena, &t->cos, &t->ids);
    t->near_sin = gathered(t->arena, &t->sin, &t->ids);
}

static void rotate(const char *domain, int n, const gqac_tensor *const *in, int64_t near,
                   graph_run *run) {
    CU_ASSERT_FATAL(graph_run_open(run, domain, "RotaryEmbedding", n, in, 1));
    ir_attr_set_int(run->node, "num_heads", H);
    ir_attr_set_int(run->node, "rotary_embedding_dim", R);
    ir_attr_set_int(run->node, "interleaved", near);
    CU_ASSERT_FATAL(graph_run_all(run, NULL, NULL) == GQAC_OK);
}

static void test_rotary(void) {
    for (int i = 0; i < 4; i++) {
        tables t;
        graph_run ms, ids, rows;
        make_tables(&t, 3 + i / 2);
        rotate("com.microsoft", 4, (const gqac_tensor *[]){&t.x, &t.ids, &t.cos, &t.sin}, i % 2,
               &ms);
        rotate("", 4, (const gqac_tensor *[]){&t.x, &t.cos, &t.sin, &t.ids}, i % 2, &ids);
        rotate("", 3, (const gqac_tensor *[]){&t.x, &t.near_cos, &t.near_sin}, i % 2, &rows);
        size_t bytes = (size_t)gqac_tensor_count(&t.x) * sizeof(float);
        CU_ASSERT(memcmp(ms.results[0].data, ids.results[0].data, bytes) == 0);
        CU_ASSERT(memcmp(ms.results[0].data, rows.results[0].data, bytes) == 0);
        graph_run_close(&ms);
        graph_run_close(&ids);
        graph_run_close(&rows);
        gqac_arena_free(t.arena);
    }
}

static gqac_status rotary_with(const char *attr, int64_t value, int heads) {
    tables t;
    graph_run run;
    make_tables(&t, 3);
    CU_ASSERT_FATAL(graph_run_open(&run, "", "RotaryEmbedding", 4,
                                   (const gqac_tensor *[]){&t.x, &t.cos, &t.sin, &t.ids}, 1));
    ir_attr_set_int(run.node, "num_heads", heads);
    ir_attr_set_int(run.node, "rotary_embedding_dim", R);
    ir_attr_set_int(run.node, attr, value);
    gqac_status status = graph_run_all(&run, NULL, NULL);
    CU_ASSERT(status == GQAC_OK || run.diag.what[0]);
    graph_run_close(&run);
    gqac_arena_free(t.arena);
    return status;
}

static void test_refused(void) {
    CU_ASSERT_EQUAL(rotary_with("interleaved", 1, H), GQAC_OK);
    CU_ASSERT_EQUAL(rotary_with("interleaved", 2, H), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(rotary_with("num_heads", 0, 0), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(rotary_with("rotary_embedding_dim", 5, H), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(rotary_with("rotary_embedding_dim", 0, H), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(rotary_with("rotary_embedding_dim", 4, H), GQAC_INVALID_MODEL);
}

static void test_scatter(void) {
    static const op_case cases[] = {
        {.op = "TensorScatter",
         .inputs = "f32[2,4,1]: 1 2 3 4 5 6 7 8 | f32[2,2,1]: -1 -2 -3 -4 | i64[2]: 1 2",
         .outputs = "f32[2,4,1]: 1 -1 -2 4 5 6 -3 -4"},
        {.op = "TensorScatter",
         .inputs = "f32[1,1,3,2]: 1 2 3 4 5 6 | f32[1,1,1,2]: -1 -2",
         .outputs = "f32[1,1,3,2]: -1 -2 3 4 5 6"},
        {.op = "TensorScatter",
         .attrs = "mode='circular'",
         .inputs = "i8[1,3,1]: 1 2 3 | i8[1,2,1]: 7 8 | i64[1]: 2",
         .outputs = "i8[1,3,1]: 8 2 7"},
        {.op = "TensorScatter",
         .attrs = "axis=3",
         .inputs = "f16[1,1,2,3]: 1 2 3 4 5 6 | f16[1,1,2,1]: 8 9 | i64[1]: 1",
         .outputs = "f16[1,1,2,3]: 1 8 3 4 9 6"},
        {.op = "TensorScatter",
         .inputs = "f32[1,3,1]: 1 2 3 | f32[1,2,1]: 7 8 | i64[1]: 2",
         .status = GQAC_OUT_OF_RANGE},
        {.op = "TensorScatter",
         .attrs = "mode='circular'",
         .inputs = "f32[1,3,1]: 1 2 3 | f32[1,2,1]: 7 8 | i64[1]: -1",
         .status = GQAC_OUT_OF_RANGE},
        {.op = "TensorScatter",
         .inputs = "f32[1,1,1]: 1 | f32[1,2,1]: 7 8",
         .status = GQAC_INVALID_INPUT},
        {.op = "TensorScatter",
         .attrs = "axis=0",
         .inputs = "f32[1,1,1]: 1 | f32[1,1,1]: 7",
         .status = GQAC_INVALID_MODEL},
    };
    run_cases(cases, COUNT(cases));
}

static void test_pad(void) {
    static const op_case cases[] = {
        {.op = "Pad",
         .inputs = "f32[2,2]: 1 2 3 4 | i64[4]: 1 0 0 1 | f32[]: 9",
         .outputs = "f32[3,3]: 9 9 9 1 2 9 3 4 9"},
        {.op = "Pad", .inputs = "i64[3]: 1 2 3 | i64[2]: -1 2", .outputs = "i64[4]: 2 3 0 0"},
        {.op = "Pad",
         .inputs = "f32[1,2]: 1 2 | i64[2]: 1 1 | _ | i64[1]: -1",
         .outputs = "f32[1,4]: 0 1 2 0"},
        {.op = "Pad",
         .attrs = "mode='reflect'",
         .inputs = "f32[3]: 1 2 3 | i64[2]: 3 3",
         .outputs = "f32[9]: 2 3 2 1 2 3 2 1 2"},
        {.op = "Pad",
         .attrs = "mode='edge'",
         .inputs = "bool[2]: 1 0 | i64[2]: 2 1",
         .outputs = "bool[5]: 1 1 1 0 0"},
        {.op = "Pad",
         .attrs = "mode='wrap'",
         .inputs = "f16[3]: 1 2 3 | i64[2]: 4 1",
         .outputs = "f16[8]: 3 1 2 3 1 2 3 1"},
        /* The modes continue what a cut has left: 3 4 5, 1 2 and 1 2 3. */
        {.op = "Pad",
         .attrs = "mode='wrap'",
         .inputs = "f32[5]: 1 2 3 4 5 | i64[2]: -2 2",
         .outputs = "f32[5]: 3 4 5 3 4"},
        {.op = "Pad",
         .attrs = "mode='reflect'",
         .inputs = "f32[5]: 1 2 3 4 5 | i64[2]: 2 -3",
         .outputs = "f32[4]: 1 2 1 2"},
        {.op = "Pad",
         .attrs = "mode='edge'",
         .inputs = "f32[5]: 1 2 3 4 5 | i64[2]: 1 -2",
         .outputs = "f32[4]: 1 1 2 3"},
        {.op = "Pad",
         .attrs = "mode='wrap'",
         .inputs = "f32[2]: 1 2 | i64[2]: -2 2",
         .status = GQAC_INVALID_INPUT},
        {.op = "Pad", .inputs = "f32[2]: 1 2 | i64[2]: -3 4", .outputs = "f32[3]: 0 0 0"},
        {.op = "Pad", .inputs = "f32[0]: | i64[2]: 1 1", .outputs = "f32[2]: 0 0"},
        {.op = "Pad",
         .attrs = "mode='edge'",
         .inputs = "f32[0]: | i64[2]: 1 1",
         .status = GQAC_INVALID_INPUT},
        {.op = "Pad", .inputs = "f32[1]: 1 | i64[2]: -1 -1", .status = GQAC_INVALID_MODEL},
        {.op = "Pad", .inputs = "f32[1]: 1 | i64[2]: 9223372036854775807 1", .status = GQAC_LIMIT},
        {.op = "Pad", .inputs = "f32[1]: 1 | i64[1]: 1", .status = GQAC_INVALID_MODEL},
        {.op = "Pad",
         .opset = 10,
         .raw = "pads=1,0 value=2.0f",
         .inputs = "f32[1]: 1",
         .outputs = "f32[2]: 2 1"},
    };
    run_cases(cases, COUNT(cases));
}

/* A slope for each head, times the position of each key. */
static void test_slopes(void) {
    static const op_case cases[] = {
        {.domain = "gqac",
         .op = "key_bias",
         .inputs = "f32[2]: 0.5 -0.25 | f32[2,1,3,1]: 0 0 0 0 0 0",
         .outputs = "f32[1,2,1,3]: 0 0.5 1 -0 -0.25 -0.5"},
        {.domain = "gqac",
         .op = "key_bias",
         .inputs = "f32[2]: 1 2 | f32[1,1,0,1]:",
         .outputs = "f32[1,2,1,0]:"},
        {.domain = "gqac",
         .op = "key_bias",
         .attrs = "dtype=bf16 scale=0.5f",
         .inputs = "f32[1]: 1.0078125 | f32[1,1,6,0]:",
         .outputs = "f32[1,1,1,6]: 0 0.50390625 1.0078125 1.515625 2.015625 2.515625"},
        {.domain = "gqac",
         .op = "key_bias",
         .inputs = "f32[2,1]: 1 2 | f32[1,1,1,1]: 0",
         .status = GQAC_INVALID_MODEL},
        {.domain = "gqac",
         .op = "key_bias",
         .attrs = "dtype=i32",
         .inputs = "f32[1]: 1 | f32[1,1,1,1]: 0",
         .status = GQAC_INVALID_MODEL},
    };
    run_cases(cases, COUNT(cases));
}

static void test_padding(void) {
    static const op_case cases[] = {
        {.domain = "gqac",
         .op = "padding_bias",
         .attrs = "value=-9.0f",
         .inputs = "i32[2]: 1 3 | f32[2,1,2,1]: 0 0 0 0 | f32[2,1,3,1]: 0 0 0 0 0 0",
         .outputs = "f32[2,1,1,3]: 0 -9 -9 0 0 0"},
        {.domain = "gqac",
         .op = "padding_bias",
         .attrs = "value=-9.0f",
         .inputs = "i32[4]: 2 3 1 0 | f32[2,1,2,1]: 0 0 0 0 | f32[2,1,3,1]: 0 0 0 0 0 0",
         .outputs = "f32[2,1,1,3]: -9 0 -9 0 0 0"},
        {.domain = "gqac",
         .op = "padding_bias",
         .attrs = "value=-9.0f",
         .inputs = "i32[5]: 2 0 2 0 3 | f32[1,1,2,1]: 0 0 | f32[1,1,3,1]: 0 0 0",
         .outputs = "f32[1,1,1,3]: 0 0 -9"},
        {.domain = "gqac",
         .op = "padding_bias",
         .attrs = "value=-9.0f",
         .inputs = "i32[1,3]: 1 0 -1 | f32[1,1,2,1]: 0 0 | f32[1,1,3,1]: 0 0 0",
         .outputs = "f32[1,1,1,3]: 0 -9 -9"},
        {.domain = "gqac",
         .op = "padding_bias",
         .attrs = "value=-9.0f",
         .inputs = "i32[1,1]: 0 | f32[1,1,2,1]: 0 0 | f32[1,1,3,1]: 0 0 0",
         .outputs = "f32[1,1,1,3]: 0 0 0"},
        {.domain = "gqac",
         .op = "padding_bias",
         .attrs = "value=-9.0f",
         .inputs = "i32[1,2,3]: 1 0 1 0 0 1 | f32[1,1,2,1]: 0 0 | f32[1,1,3,1]: 0 0 0",
         .outputs = "f32[1,1,2,3]: 0 -9 0 -9 -9 0"},
        {.domain = "gqac",
         .op = "padding_bias",
         .attrs = "value=-9.0f short=1",
         .inputs = "i32[1,2,2]: 1 0 0 1 | f32[1,1,2,1]: 0 0 | f32[1,1,3,1]: 0 0 0",
         .outputs = "f32[1,1,2,2]: 0 -9 -9 0"},
        {.domain = "gqac",
         .op = "padding_bias",
         .attrs = "value=-9.0f",
         .inputs = "i32[1,2]: 1 0 | f32[1,1,2,1]: 0 0 | f32[1,1,3,1]: 0 0 0",
         .status = GQAC_INVALID_INPUT},
        {.domain = "gqac",
         .op = "padding_bias",
         .attrs = "value=-9.0f",
         .inputs = "i32[]: 1 | f32[1,1,2,1]: 0 0 | f32[1,1,3,1]: 0 0 0",
         .status = GQAC_UNSUPPORTED},
    };
    run_cases(cases, COUNT(cases));
}

static void test_masks(void) {
    static const op_case cases[] = {
        {.domain = "gqac",
         .op = "mask_scores",
         .inputs = "f32[1,1,2,3]: 1 nan 3 4 5 6 | bool[2,2]: 1 0 0 1",
         .outputs = "f32[1,1,2,3]: 1 -inf -inf -inf 5 -inf"},
        {.domain = "gqac",
         .op = "mask_scores",
         .inputs = "f32[1,2,1,2]: 1 2 3 4 | f16[1,2,1,2]: 1 -inf 0 2",
         .outputs = "f32[1,2,1,2]: 2 -inf 3 6"},
        {.domain = "gqac",
         .op = "mask_scores",
         .inputs = "f32[1,2,1,2]: 1 2 3 4 | f32[1]: 10",
         .outputs = "f32[1,2,1,2]: 11 -inf 13 -inf"},
        {.domain = "gqac",
         .op = "mask_scores",
         .inputs = "f32[1,2,1,2]: 1 2 3 4 | f32[3,1,2]: 1 2 3 4 5 6",
         .status = GQAC_INVALID_INPUT},
        {.domain = "gqac",
         .op = "mask_scores",
         .inputs = "f32[1,2,1,2]: 1 2 3 4 | f32[3]: 1 2 3",
         .status = GQAC_INVALID_MODEL},
        {.domain = "gqac",
         .op = "mask_scores",
         .inputs = "f32[1,2,1,2]: 1 2 3 4 | f32[]: 1",
         .status = GQAC_INVALID_MODEL},
    };
    run_cases(cases, COUNT(cases));
}

static void test_ranges(void) {
    static const op_case cases[] = {
        {.domain = "gqac",
         .op = "key_range",
         .inputs = "f32[1,1,3,1]: 0 0 0 | f32[1,1,2,1]: 0 0",
         .outputs = "i32[1,3]: 0 0 0 | i32[1,3]: 2 2 2"},
        {.domain = "gqac",
         .op = "key_range",
         .attrs = "right=0 left=1",
         .inputs = "f32[1,1,3,1]: 0 0 0 | f32[1,1,4,1]: 0 0 0 0 | f32[1,1,1,1]: 0",
         .outputs = "i32[1,3]: 0 1 2 | i32[1,3]: 2 3 4"},
        {.domain = "gqac",
         .op = "key_range",
         .attrs = "right=0 align_end=1",
         .inputs = "f32[2,1,2,1]: 0 0 0 0 | f32[2,1,3,1]: 0 0 0 0 0 0 | _ | i64[2]: 1 3",
         .outputs = "i32[2,2]: 0 0 0 0 | i32[2,2]: 0 1 2 3"},
        {.domain = "gqac",
         .op = "key_range",
         .attrs = "right=0 align_end=1",
         .inputs = "f32[1,1,2,1]: 0 0 | f32[1,1,5,1]: 0 0 0 0 0",
         .outputs = "i32[1,2]: 0 0 | i32[1,2]: 4 5"},
        {.domain = "gqac",
         .op = "key_range",
         .attrs = "right=0 align_end=1",
         .inputs = "f32[1,1,3,1]: 0 0 0 | f32[1,1,2,1]: 0 0",
         .outputs = "i32[1,3]: 0 0 0 | i32[1,3]: 1 2 2"},
        {.domain = "gqac",
         .op = "key_range",
         .attrs = "align_end=1",
         .inputs = "f32[1,1,1,1]: 0 | f32[1,1,2,1]: 0 0 | f32[1,1,1,1]: 0",
         .status = GQAC_INVALID_MODEL},
        {.domain = "gqac",
         .op = "key_range",
         .attrs = "right=2",
         .inputs = "f32[1,1,2,1]: 0 0 | f32[1,1,5,1]: 0 0 0 0 0",
         .outputs = "i32[1,2]: 0 0 | i32[1,2]: 3 4"},
        {.domain = "gqac",
         .op = "key_range",
         .inputs = "f32[1,1,1,1]: 0 | f32[1,1,2,1]: 0 0 | _ | i64[1]: 3",
         .status = GQAC_OUT_OF_RANGE},
        {.domain = "gqac",
         .op = "key_range",
         .inputs = "f32[1,1,1,1]: 0 | f32[1,1,2,1]: 0 0 | _ | i32[1]: -1",
         .status = GQAC_OUT_OF_RANGE},
        {.domain = "gqac",
         .op = "key_range",
         .inputs = "f32[1,1,1,1]: 0 | f32[1,1,2,1]: 0 0 | _ | i32[2]: 1 1",
         .status = GQAC_INVALID_INPUT},
    };
    run_cases(cases, COUNT(cases));
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"RotaryEmbedding", test_rotary}, {"refused attributes", test_refused},
        {"TensorScatter", test_scatter},  {"Pad", test_pad},
        {"padding_bias", test_padding},   {"key_bias", test_slopes},
        {"mask_scores", test_masks},      {"key_range", test_ranges},
    };
    return unit_run("onnx_siblings", cases, sizeof cases / sizeof *cases, argc, argv);
}
