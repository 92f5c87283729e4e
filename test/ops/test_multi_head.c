/* MultiHeadAttention and Attention of com.microsoft: every layout of the same numbers returns the
 * same bytes, later keys are not read, tokens may be split, and invalid calls are refused.
 * test/python/test_attention_ort.py compares values with ONNX Runtime. */
#include "support_graph.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/shared.h"

enum { B = 2, N = 2, D = 4, WIDTH = N * D, ROWS = 9, M = 5 };

static const char ms[] = "com.microsoft";

static bool open_multi_head(graph_run *run, int n, const gqac_tensor *const *in, int causal,
                            int outputs) {
    if (!graph_run_open(run, ms, "MultiHeadAttention", n, in, outputs))
        return false;
    ir_attr_set_int(run->node, "num_heads", N);
    ir_attr_set_int(run->node, "unidirectional", causal);
    return true;
}

static bool same(const gqac_tensor *a, const gqac_tensor *b) {
    size_t bytes = (size_t)gqac_tensor_count(a) * op_width(a->dtype);
    return gqac_tensor_count(a) == gqac_tensor_count(b) && memcmp(a->data, b->data, bytes) == 0;
}

/* Rows [first, first + n) of axis 1 of x [B,S,C]. */
static gqac_tensor rows_of(gqac_arena *arena, const gqac_tensor *x, int64_t first, int64_t n) {
    int64_t columns = x->dims[2];
    gqac_tensor y = test_tensor(arena, x->dtype, 3, (int64_t[]){x->dims[0], n, columns});
    for (int64_t i = 0; i < gqac_tensor_count(&y); i++) {
        int64_t row = i / columns;
        int64_t at = row / n * x->dims[1] + first + row % n;
        op_put_f32(&y, i, op_get_f32(x, at * columns + i % columns));
    }
    return y;
}

/* The tensors x[p] [B,S,N*D] packed as [B,S,N,parts,D]. */
static gqac_tensor pack(gqac_arena *arena, int parts, const gqac_tensor *x) {
    gqac_tensor y = test_tensor(arena, GQAC_F32, 5, (int64_t[]){B, ROWS, N, parts, D});
    for (int64_t i = 0; i < gqac_tensor_count(&y); i++) {
        int64_t row = i / (parts * D) * D + i % D;
        op_put_f32(&y, i, op_get_f32(&x[i / D % parts], row));
    }
    return y;
}

/* [B,S,N*D] as [B,N,S,D] */
static gqac_tensor heads(gqac_arena *arena, const gqac_tensor *x) {
    gqac_tensor y = test_tensor(arena, GQAC_F32, 4, (int64_t[]){B, N, ROWS, D});
    for (int64_t i = 0; i < gqac_tensor_count(&y); i++) {
        int64_t b = i / (N * ROWS * D), n = i / (ROWS * D) % N, s = i / D % ROWS;
        op_put_f32(&y, i, op_get_f32(x, ((b * ROWS + s) * N + n) * D + i % D));
    }
    return y;
}

static void test_layouts(void) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 4};
    gqac_tensor x[3], four[2], bias = test_floats(arena, GQAC_F32, 1, (int64_t[]){3 * WIDTH}, &r);
    for (int i = 0; i < 3; i++)
        x[i] = test_floats(arena, GQAC_F32, 3, (int64_t[]){B, ROWS, WIDTH}, &r);
    gqac_tensor qkv = pack(arena, 3, x), kv = pack(arena, 2, x + 1);
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        const gqac_tensor *own = with_bias ? &bias : NULL;
        graph_run plain, all, pair, made;
        CU_ASSERT_FATAL(open_multi_head(
            &plain, 4, (const gqac_tensor *[]){&x[0], &x[1], &x[2], own}, with_bias, 3));
        CU_ASSERT_FATAL(
            open_multi_head(&all, 4, (const gqac_tensor *[]){&qkv, NULL, NULL, own}, with_bias, 3));
        CU_ASSERT_FATAL(open_multi_head(&pair, 4, (const gqac_tensor *[]){&x[0], &kv, NULL, own},
                                        with_bias, 3));
        CU_ASSERT_FATAL(graph_run_all(&plain, NULL, NULL) == GQAC_OK);
        CU_ASSERT_FATAL(graph_run_all(&all, NULL, NULL) == GQAC_OK);
        CU_ASSERT_FATAL(graph_run_all(&pair, NULL, NULL) == GQAC_OK);
        for (int i = 0; i < 3; i++) {
            CU_ASSERT(same(&plain.results[i], &all.results[i]));
            CU_ASSERT(same(&plain.results[i], &pair.results[i]));
        }
        for (int i = 0; i < 2; i++) /* existing keys already include their bias */
            four[i] = with_bias ? plain.results[1 + i] : heads(arena, &x[1 + i]);
        CU_ASSERT_FATAL(open_multi_head(
            &made, 4, (const gqac_tensor *[]){&x[0], &four[0], &four[1], own}, with_bias, 1));
        CU_ASSERT_FATAL(graph_run_all(&made, NULL, NULL) == GQAC_OK);
        CU_ASSERT(same(&plain.results[0], &made.results[0]));
        graph_run_close(&plain);
        graph_run_close(&all);
        graph_run_close(&pair);
        graph_run_close(&made);
    }
    gqac_arena_free(arena);
}

/* Row s of a causal node does not read the keys after it. */
static void test_poison(void) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 8};
    gqac_tensor x[3];
    graph_run clean, dirty;
    for (int i = 0; i < 3; i++)
        x[i] = test_floats(arena, GQAC_F32, 3, (int64_t[]){1, ROWS, WIDTH}, &r);
    const gqac_tensor *in[3] = {&x[0], &x[1], &x[2]};
    CU_ASSERT_FATAL(open_multi_head(&clean, 3, in, 1, 1));
    CU_ASSERT_FATAL(graph_run_all(&clean, NULL, NULL) == GQAC_OK);
    for (int i = 4 * WIDTH; i < ROWS * WIDTH; i++) {
        op_put_f32(&x[1], i, NAN);
        op_put_f32(&x[2], i, NAN);
    }
    CU_ASSERT_FATAL(open_multi_head(&dirty, 3, in, 1, 1));
    CU_ASSERT_FATAL(graph_run_all(&dirty, NULL, NULL) == GQAC_OK);
    CU_ASSERT(memcmp(clean.results[0].data, dirty.results[0].data, 4 * WIDTH * sizeof(float)) == 0);
    CU_ASSERT(isnan(op_get_f32(&dirty.results[0], 4 * WIDTH)));
    graph_run_close(&clean);
    graph_run_close(&dirty);
    gqac_arena_free(arena);
}

/* ---- split = full -------------------------------------------------------- */

static void check_rows(gqac_arena *arena, const graph_run *full, const graph_run *part, int done,
                       int n) {
    gqac_tensor want = rows_of(arena, &full->results[0], done, n);
    CU_ASSERT(same(&want, &part->results[0]));
}

static void test_multi_head_split(void) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 6};
    gqac_tensor x[3], past[2];
    graph_run full, run[ROWS];
    int n, count = 0;
    for (int i = 0; i < 3; i++)
        x[i] = test_floats(arena, GQAC_F32, 3, (int64_t[]){B, ROWS, WIDTH}, &r);
    CU_ASSERT_FATAL(open_multi_head(&full, 3, (const gqac_tensor *[]){&x[0], &x[1], &x[2]}, 1, 3));
    CU_ASSERT_FATAL(graph_run_all(&full, NULL, NULL) == GQAC_OK);
    for (int done = 0; done < ROWS; done += n) {
        gqac_tensor c[3];
        n = test_random_int(&r, 1, ROWS - done);
        for (int i = 0; i < 3; i++)
            c[i] = rows_of(arena, &x[i], done, n);
        const gqac_tensor *in[8] = {
            &c[0], &c[1], &c[2], NULL, NULL, NULL, done ? &past[0] : NULL, done ? &past[1] : NULL};
        CU_ASSERT_FATAL(open_multi_head(&run[count], 8, in, 1, 3));
        CU_ASSERT_FATAL(graph_run_all(&run[count], NULL, NULL) == GQAC_OK);
        check_rows(arena, &full, &run[count], done, n);
        past[0] = run[count].results[1];
        past[1] = run[count++].results[2];
    }
    CU_ASSERT(same(&past[0], &full.results[1]) && same(&past[1], &full.results[2]));
    for (int i = 0; i < count; i++)
        graph_run_close(&run[i]);
    graph_run_close(&full);
    gqac_arena_free(arena);
}

static bool open_packed(graph_run *run, int n, const gqac_tensor *const *in) {
    if (!graph_run_open(run, ms, "Attention", n, in, 2))
        return false;
    ir_attr_set_int(run->node, "num_heads", N);
    ir_attr_set_int(run->node, "unidirectional", 1);
    return true;
}

static void test_packed_split(void) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 16};
    gqac_tensor x = test_floats(arena, GQAC_F32, 3, (int64_t[]){B, ROWS, M}, &r);
    gqac_tensor w = test_floats(arena, GQAC_F32, 2, (int64_t[]){M, 3 * WIDTH}, &r);
    gqac_tensor bias = test_floats(arena, GQAC_F32, 1, (int64_t[]){3 * WIDTH}, &r), past;
    graph_run full, run[ROWS];
    int n, count = 0;
    CU_ASSERT_FATAL(open_packed(&full, 3, (const gqac_tensor *[]){&x, &w, &bias}));
    CU_ASSERT_FATAL(graph_run_all(&full, NULL, NULL) == GQAC_OK);
    for (int done = 0; done < ROWS; done += n) {
        n = test_random_int(&r, 1, ROWS - done);
        gqac_tensor c = rows_of(arena, &x, done, n);
        const gqac_tensor *in[5] = {&c, &w, &bias, NULL, done ? &past : NULL};
        CU_ASSERT_FATAL(open_packed(&run[count], 5, in));
        CU_ASSERT_FATAL(graph_run_all(&run[count], NULL, NULL) == GQAC_OK);
        check_rows(arena, &full, &run[count], done, n);
        past = run[count++].results[1];
    }
    CU_ASSERT(same(&past, &full.results[1]));
    for (int i = 0; i < count; i++)
        graph_run_close(&run[i]);
    graph_run_close(&full);
    gqac_arena_free(arena);
}

/* Token by token into a buffer of NaN: the same bytes as in one call. */
static void test_buffer(void) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 26};
    gqac_tensor x[3], past[2];
    graph_run full, run[ROWS];
    for (int i = 0; i < 3; i++)
        x[i] = test_floats(arena, GQAC_F32, 3, (int64_t[]){B, ROWS, WIDTH}, &r);
    for (int i = 0; i < 2; i++) {
        past[i] = test_tensor(arena, GQAC_F32, 4, (int64_t[]){B, N, ROWS, D});
        memset(past[i].data, 0xff, (size_t)(B * N * ROWS * D) * sizeof(float));
    }
    CU_ASSERT_FATAL(open_multi_head(&full, 3, (const gqac_tensor *[]){&x[0], &x[1], &x[2]}, 1, 3));
    CU_ASSERT_FATAL(graph_run_all(&full, NULL, NULL) == GQAC_OK);
    for (int s = 0; s < ROWS; s++) {
        gqac_tensor c[3], done = test_ints(arena, GQAC_I32, 1, (int64_t[]){1}, (int64_t[]){s});
        for (int i = 0; i < 3; i++)
            c[i] = rows_of(arena, &x[i], s, 1);
        const gqac_tensor *in[8] = {&c[0], &c[1], &c[2], NULL, NULL, &past[0], &past[1], &done};
        CU_ASSERT_FATAL(graph_run_open(&run[s], ms, "DecoderMaskedMultiHeadAttention", 8, in, 3));
        ir_attr_set_int(run[s].node, "num_heads", N);
        ir_attr_set_int(run[s].node, "past_present_share_buffer", 1);
        CU_ASSERT_FATAL(graph_run_all(&run[s], NULL, NULL) == GQAC_OK);
        check_rows(arena, &full, &run[s], s, 1);
        past[0] = run[s].results[1];
        past[1] = run[s].results[2];
    }
    CU_ASSERT(same(&past[0], &full.results[1]) && same(&past[1], &full.results[2]));
    for (int s = 0; s < ROWS; s++)
        graph_run_close(&run[s]);
    graph_run_close(&full);
    gqac_arena_free(arena);
}

/* Without a past, the queries of a causal node are the last of its keys, as flat rows or by heads:
 * the same bytes as with all queries. */
static void test_last_queries(void) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 31};
    gqac_tensor x[3], k, v;
    graph_run full, run;
    for (int i = 0; i < 3; i++)
        x[i] = test_floats(arena, GQAC_F32, 3, (int64_t[]){B, ROWS, WIDTH}, &r);
    k = heads(arena, &x[1]);
    v = heads(arena, &x[2]);
    CU_ASSERT_FATAL(open_multi_head(&full, 3, (const gqac_tensor *[]){&x[0], &x[1], &x[2]}, 1, 1));
    CU_ASSERT_FATAL(graph_run_all(&full, NULL, NULL) == GQAC_OK);
    for (int n = 1; n <= ROWS; n++)
        for (int by_head = 0; by_head < 2; by_head++) {
            gqac_tensor q = rows_of(arena, &x[0], ROWS - n, n);
            const gqac_tensor *in[3] = {&q, by_head ? &k : &x[1], by_head ? &v : &x[2]};
            CU_ASSERT_FATAL(open_multi_head(&run, 3, in, 1, 1));
            CU_ASSERT_FATAL(graph_run_all(&run, NULL, NULL) == GQAC_OK);
            check_rows(arena, &full, &run, ROWS - n, n);
            graph_run_close(&run);
        }
    graph_run_close(&full);
    gqac_arena_free(arena);
}

/* ---- what is refused ----------------------------------------------------- */

static gqac_status refused(unsigned inputs, const char *attr, int64_t value, const char *named) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor flat = test_tensor(arena, GQAC_F32, 3, (int64_t[]){B, 2, WIDTH});
    gqac_tensor past = test_tensor(arena, GQAC_F32, 4, (int64_t[]){B, N, 1, D});
    gqac_tensor length = test_ints(arena, GQAC_I32, 1, (int64_t[]){1}, (int64_t[]){1});
    const gqac_tensor *all[10] = {&flat, &flat, &flat, NULL,    NULL,
                                  NULL,  &past, &past, &length, &length};
    graph_run run;
    for (int i = 0; i < 10; i++)
        if (!(inputs >> i & 1))
            all[i] = NULL;
    CU_ASSERT_FATAL(open_multi_head(&run, 10, all, 0, 1));
    if (attr)
        ir_attr_set_int(run.node, attr, value);
    gqac_status status = graph_run_check(&run);
    if (status != GQAC_OK && !strstr(run.diag.what, named))
        printf("'%s' does not name %s\n", run.diag.what, named);
    CU_ASSERT(status == GQAC_OK || strstr(run.diag.what, named) != NULL);
    graph_run_close(&run);
    gqac_arena_free(arena);
    return status;
}

static void test_refused(void) {
    CU_ASSERT_EQUAL(refused(7, NULL, 0, ""), GQAC_OK);
    CU_ASSERT_EQUAL(refused(7 | 3 << 6, NULL, 0, ""), GQAC_OK);
    CU_ASSERT_EQUAL(refused(1, NULL, 0, "key"), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(refused(3, NULL, 0, "value"), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(refused(5, NULL, 0, "key"), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(refused(7 | 1 << 6, NULL, 0, "past_value"), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(refused(7 | 1 << 8, NULL, 0, "past_sequence_length"), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(refused(7 | 1 << 9, NULL, 0, "cache_indirection"), GQAC_UNSUPPORTED);
    CU_ASSERT_EQUAL(refused(7, "num_heads", 0, "num_heads"), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(refused(7, "num_heads", 3, "heads"), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(refused(7, "unidirectional", 2, "unidirectional"), GQAC_INVALID_MODEL);
}

static gqac_status decoder(int rows, int beam, int shared, int past_rows) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor x = test_tensor(arena, GQAC_F32, 3, (int64_t[]){B, rows, WIDTH});
    gqac_tensor past = test_tensor(arena, GQAC_F32, 4, (int64_t[]){B, N, 3, D});
    gqac_tensor n = test_ints(arena, GQAC_I32, 1, (int64_t[]){1}, (int64_t[]){past_rows});
    memset(x.data, 0, (size_t)gqac_tensor_count(&x) * sizeof(float));
    memset(past.data, 0, (size_t)gqac_tensor_count(&past) * sizeof(float));
    const gqac_tensor *in[10] = {
        &x, &x, &x, NULL, NULL, &past, &past, past_rows < -1 ? NULL : &n, beam ? &n : NULL, NULL};
    graph_run run;
    CU_ASSERT_FATAL(graph_run_open(&run, ms, "DecoderMaskedMultiHeadAttention", 10, in, 3));
    ir_attr_set_int(run.node, "num_heads", N);
    ir_attr_set_int(run.node, "past_present_share_buffer", shared);
    gqac_status status = graph_run_all(&run, NULL, NULL);
    graph_run_close(&run);
    gqac_arena_free(arena);
    return status;
}

static void test_refused_decoder(void) {
    CU_ASSERT_EQUAL(decoder(1, 0, 1, 2), GQAC_OK);
    CU_ASSERT_EQUAL(decoder(1, 0, 0, -2), GQAC_OK); /* the past grows */
    CU_ASSERT_EQUAL(decoder(1, 0, 1, -2), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(decoder(2, 0, 1, 1), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(decoder(1, 1, 1, 2), GQAC_UNSUPPORTED);
    CU_ASSERT_EQUAL(decoder(1, 0, 1, 3), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(decoder(1, 0, 1, -1), GQAC_OUT_OF_RANGE);
}

static void test_refused_packed(void) {
    static const char *const attrs[] = {"do_rotary", "past_present_share_buffer", "num_heads"};
    static const gqac_status wanted[] = {GQAC_UNSUPPORTED, GQAC_UNSUPPORTED, GQAC_OK};
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor x = test_tensor(arena, GQAC_F32, 3, (int64_t[]){B, 2, M});
    gqac_tensor w = test_tensor(arena, GQAC_F32, 2, (int64_t[]){M, 3 * WIDTH});
    for (int i = 0; i < 3; i++) {
        graph_run run;
        CU_ASSERT_FATAL(open_packed(&run, 2, (const gqac_tensor *[]){&x, &w}));
        ir_attr_set_int(run.node, attrs[i], 1);
        CU_ASSERT_EQUAL(graph_run_check(&run), wanted[i]);
        ir_attr_set_int(run.node, attrs[i], 0);
        ir_attr_set_int(run.node, "num_heads", 5);
        CU_ASSERT_EQUAL(graph_run_check(&run), GQAC_INVALID_MODEL);
        ir_attr_set_int(run.node, "num_heads", N);
        CU_ASSERT(ir_attr_set_ints(run.node, "qkv_hidden_sizes", 3, (int64_t[]){8, 4, 12}));
        CU_ASSERT_EQUAL(graph_run_check(&run), GQAC_INVALID_MODEL);
        graph_run_close(&run);
    }
    gqac_arena_free(arena);
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"layouts of one node", test_layouts},
        {"NaN in later keys", test_poison},
        {"split = full, MultiHeadAttention", test_multi_head_split},
        {"split = full, Attention", test_packed_split},
        {"token by token into a buffer", test_buffer},
        {"the last queries without a past", test_last_queries},
        {"refused by DecoderMaskedMultiHeadAttention", test_refused_decoder},
        {"refused by MultiHeadAttention", test_refused},
        {"refused by Attention", test_refused_packed},
    };
    return unit_run("multi_head", cases, sizeof cases / sizeof *cases, argc, argv);
}
