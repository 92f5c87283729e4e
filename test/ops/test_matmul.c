/* MatMul, Gemm, MatMulNBits and GatherBlockQuantized: the bits of the contract's chain, with any
 * number of rows and threads; quantised weights compared with their definition. */
#include "support_graph.h"
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "numerics/convert.h"
#include "numerics/reduce.h"
#include "ops/shared.h"

static bool same_f32(float a, float b) {
    return gqn_as_u32(a) == gqn_as_u32(b);
}

static float *widened(gqac_arena *arena, const gqac_tensor *t) {
    int64_t n = gqac_tensor_count(t);
    float *x = GQAC_ARENA_ARRAY(arena, float, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++)
        x[i] = op_get_f32(t, i);
    return x;
}

static float stored(gqac_dtype dtype, float x) {
    return dtype == GQAC_F16    ? gqn_f16_to_f32(gqn_f32_to_f16(x))
           : dtype == GQAC_BF16 ? gqn_bf16_to_f32(gqn_f32_to_bf16(x))
                                : x;
}

/* y [M,N] of MatMul has the bits of the chain over [K]. */
static void check_product(gqac_dtype dtype, int m, int k, int n, gqac_pool *pool, test_random *r) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor a = test_floats(arena, dtype, 2, (int64_t[]){m, k}, r);
    gqac_tensor b = test_floats(arena, dtype, 2, (int64_t[]){k, n}, r);
    graph_run run;
    CU_ASSERT_FATAL(graph_run_open(&run, "", "MatMul", 2, (const gqac_tensor *[]){&a, &b}, 1));
    CU_ASSERT_FATAL(graph_run_all(&run, NULL, pool) == GQAC_OK);
    float *x = widened(arena, &a), *w = widened(arena, &b);
    int wrong = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float wanted = gqn_dot_chain(x + (ptrdiff_t)i * k, 1, w + j, n, (size_t)k);
            float got = op_get_f32(&run.results[0], (int64_t)i * n + j);
            wrong += !same_f32(got, stored(dtype, wanted));
        }
    CU_ASSERT_EQUAL(wrong, 0);
    graph_run_close(&run);
    gqac_arena_free(arena);
}

static void test_contract(void) {
    static const int rows[] = {1, 2, 31, 32, 33, 70}, columns[] = {1, 5, 16, 63, 256, 257, 300};
    static const int depths[] = {1, 2, 3, 4, 17, 511, 512, 513, 1100};
    static const gqac_dtype dtypes[] = {GQAC_F32, GQAC_F16, GQAC_BF16};
    test_random r = {.state = 3};
    gqac_pool *pool;
    gqac_diag diag;
    CU_ASSERT_FATAL(gqac_pool_create(3, &pool, &diag) == GQAC_OK);
    for (int i = 0; i < (unit_full() ? 600 : 60); i++)
        check_product(dtypes[i % 3], rows[test_random_int(&r, 0, 5)],
                      depths[test_random_int(&r, 0, 8)], columns[test_random_int(&r, 0, 6)],
                      i % 2 ? pool : NULL, &r);
    check_product(GQAC_F32, 3, 0, 4, NULL, &r);
    gqac_pool_free(pool);
}

/* [2,1,3,4] x [5,4,2] -> [2,5,3,2], and vectors on either side. */
static void test_shapes(void) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 4};
    gqac_tensor a = test_floats(arena, GQAC_F32, 4, (int64_t[]){2, 1, 3, 4}, &r);
    gqac_tensor b = test_floats(arena, GQAC_F32, 3, (int64_t[]){5, 4, 2}, &r);
    gqac_tensor v = test_floats(arena, GQAC_F32, 1, (int64_t[]){4}, &r);
    graph_run run;
    CU_ASSERT(graph_run_open(&run, "", "MatMul", 2, (const gqac_tensor *[]){&a, &b}, 1));
    CU_ASSERT(graph_run_all(&run, NULL, NULL) == GQAC_OK);
    CU_ASSERT_EQUAL(run.results[0].rank, 4);
    const float *x = a.data, *w = b.data, *y = run.results[0].data;
    for (int i = 0; i < 2 * 5 * 3 * 2; i++) {
        int n = i % 2, m = i / 2 % 3, q = i / 6 % 5, p = i / 30;
        CU_ASSERT(same_f32(y[i], gqn_dot_chain(x + (p * 3 + m) * 4, 1, w + q * 8 + n, 2, 4)));
    }
    graph_run_close(&run);
    CU_ASSERT(graph_run_open(&run, "", "MatMul", 2, (const gqac_tensor *[]){&v, &b}, 1));
    CU_ASSERT(graph_run_all(&run, NULL, NULL) == GQAC_OK);
    CU_ASSERT(run.results[0].rank == 2 && run.results[0].dims[0] == 5);
    graph_run_close(&run);
    CU_ASSERT(graph_run_open(&run, "", "MatMul", 2, (const gqac_tensor *[]){&a, &v}, 1));
    CU_ASSERT(graph_run_all(&run, NULL, NULL) == GQAC_OK);
    CU_ASSERT(run.results[0].rank == 3 && run.results[0].dims[2] == 3);
    graph_run_close(&run);
    CU_ASSERT(graph_run_open(&run, "", "MatMul", 2, (const gqac_tensor *[]){&b, &b}, 1));
    CU_ASSERT_EQUAL(graph_run_check(&run), GQAC_INVALID_MODEL);
    graph_run_close(&run);
    gqac_arena_free(arena);
}

static void test_integers(void) {
    gqac_arena *arena = gqac_arena_create(0);
    const int64_t x[] = {1, -2, 3, 100}, w[] = {5, 7, -1, 100};
    gqac_tensor a = test_ints(arena, GQAC_I8, 2, (int64_t[]){2, 2}, x);
    gqac_tensor b = test_ints(arena, GQAC_I8, 2, (int64_t[]){2, 2}, w);
    graph_run run;
    CU_ASSERT(graph_run_open(&run, "", "MatMul", 2, (const gqac_tensor *[]){&a, &b}, 1));
    CU_ASSERT(graph_run_all(&run, NULL, NULL) == GQAC_OK);
    CU_ASSERT_EQUAL(op_get_i64(&run.results[0], 0), 7);
    CU_ASSERT_EQUAL(op_get_i64(&run.results[0], 1), (int8_t)(7 - 200));
    CU_ASSERT_EQUAL(op_get_i64(&run.results[0], 3), (int8_t)(21 + 10000));
    graph_run_close(&run);
    gqac_arena_free(arena);
}

static void test_gemm(void) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 6};
    for (int i = 0; i < 16; i++) {
        int m = 3, k = 20, n = 7, ta = i & 1, tb = i >> 1 & 1;
        int64_t c_dims[2] = {i & 4 ? m : 1, n};
        gqac_tensor a = test_floats(arena, GQAC_F32, 2, (int64_t[]){ta ? k : m, ta ? m : k}, &r);
        gqac_tensor b = test_floats(arena, GQAC_F32, 2, (int64_t[]){tb ? n : k, tb ? k : n}, &r);
        gqac_tensor c = test_floats(arena, GQAC_F32, 2, c_dims, &r);
        graph_run run;
        CU_ASSERT(graph_run_open(&run, "", "Gemm", 3, (const gqac_tensor *[]){&a, &b, &c}, 1));
        ir_attr_set_int(run.node, "transA", ta);
        ir_attr_set_int(run.node, "transB", tb);
        ir_attr_set_float(run.node, "alpha", 0.5f);
        ir_attr_set_float(run.node, "beta", 2.0f);
        CU_ASSERT(graph_run_all(&run, NULL, NULL) == GQAC_OK);
        const float *x = a.data, *w = b.data, *y = run.results[0].data, *z = c.data;
        for (int row = 0; row < m; row++)
            for (int column = 0; column < n; column++) {
                float dot = gqn_dot_chain(ta ? x + row : x + row * k, ta ? m : 1,
                                          tb ? w + column * k : w + column, tb ? 1 : n, (size_t)k);
                float wanted = 0.5f * dot + 2.0f * z[(i & 4 ? row * n : 0) + column];
                CU_ASSERT(same_f32(y[row * n + column], wanted));
            }
        graph_run_close(&run);
    }
    gqac_arena_free(arena);
}

/* ---- quantised weights --------------------------------------------------- */

typedef struct quantised {
    int rows, k, n, bits, block, blocks, level;
    gqac_tensor a, codes, scales, zero, bias;
    bool has_zero, has_bias;
} quantised;

static int code_of(const uint8_t *bytes, int index, int bits) {
    int per = 8 / bits;
    return bytes[index / per] >> (index % per * bits) & ((1 << bits) - 1);
}

static gqac_tensor bytes(gqac_arena *arena, int rank, const int64_t *dims, test_random *r) {
    gqac_tensor t = test_tensor(arena, GQAC_U8, rank, dims);
    for (int64_t i = 0; i < gqac_tensor_count(&t); i++)
        ((uint8_t *)t.data)[i] = (uint8_t)test_random_bits(r);
    return t;
}

static quantised random_weights(gqac_arena *arena, test_random *r) {
    static const int all_bits[] = {2, 4, 8}, depths[] = {16, 40, 512, 520, 1030};
    quantised q = {.rows = test_random_int(r, 1, 5),
                   .k = depths[test_random_int(r, 0, 4)],
                   .n = test_random_int(r, 1, 20),
                   .bits = all_bits[test_random_int(r, 0, 2)],
                   .block = 16 << test_random_int(r, 0, 3),
                   .level = test_random_int(r, 0, 1) * 4,
                   .has_zero = test_random_int(r, 0, 1),
                   .has_bias = test_random_int(r, 0, 1)};
    q.blocks = (q.k + q.block - 1) / q.block;
    int64_t flat = (int64_t)q.n * q.blocks;
    q.a = test_floats(arena, test_random_int(r, 0, 2) ? GQAC_F32 : GQAC_F16, 2,
                      (int64_t[]){q.rows, q.k}, r);
    q.codes = bytes(arena, 3, (int64_t[]){q.n, q.blocks, q.block * q.bits / 8}, r);
    q.scales = test_floats(arena, q.a.dtype, 1, &flat, r);
    q.zero = bytes(arena, 2, (int64_t[]){q.n, (q.blocks * q.bits + 7) / 8}, r);
    q.bias = test_floats(arena, q.a.dtype, 1, (int64_t[]){q.n}, r);
    return q;
}

static gqac_status run_nbits(const quantised *q, const gqac_tensor *a, gqac_pool *pool,
                             graph_run *run) {
    const gqac_tensor *in[6] = {a,          &q->codes,
                                &q->scales, q->has_zero ? &q->zero : NULL,
                                NULL,       q->has_bias ? &q->bias : NULL};
    if (!graph_run_open(run, "com.microsoft", "MatMulNBits", 6, in, 1))
        return GQAC_NO_MEMORY;
    ir_attr_set_int(run->node, "K", q->k);
    ir_attr_set_int(run->node, "N", q->n);
    ir_attr_set_int(run->node, "bits", q->bits);
    ir_attr_set_int(run->node, "block_size", q->block);
    ir_attr_set_int(run->node, "accuracy_level", q->level);
    return graph_run_all(run, NULL, pool);
}

static int zero_of(const quantised *q, int n, int block) {
    int row = (q->blocks * q->bits + 7) / 8;
    return q->has_zero ? code_of((const uint8_t *)q->zero.data + n * row, block, q->bits)
                       : 1 << (q->bits - 1);
}

static int weight_of(const quantised *q, int n, int k) {
    const uint8_t *row = (const uint8_t *)q->codes.data + n * q->blocks * (q->block * q->bits / 8);
    return code_of(row, k, q->bits) - zero_of(q, n, k / q->block);
}

static float exact_element(const quantised *q, const float *a, int n) {
    float w[1100];
    for (int k = 0; k < q->k; k++)
        w[k] = (float)weight_of(q, n, k) * op_get_f32(&q->scales, n * q->blocks + k / q->block);
    return gqn_dot_chain(a, 1, w, 1, (size_t)q->k);
}

/* Activations as int8, with one scale for each block; pieces of 512. */
static float int8_element(const quantised *q, const float *a, int n) {
    float total = 0, piece = 0;
    for (int b = 0; b < q->blocks; b++) {
        int first = b * q->block, end = first + q->block < q->k ? first + q->block : q->k;
        int sum = 0;
        float amax = 0;
        for (int k = first; k < end; k++)
            amax = gqn_max_step(amax, a[k] < 0 ? -a[k] : a[k]);
        for (int k = first; k < end && amax > 0; k++)
            sum += (int)gqn_round_even(a[k] * (127.0f / amax)) * weight_of(q, n, k);
        if (first > 0 && first % GQAC_K_PIECE == 0) {
            total = first == GQAC_K_PIECE ? piece : total + piece;
            piece = 0;
        }
        piece =
            gqn_fma((float)sum, amax / 127.0f * op_get_f32(&q->scales, n * q->blocks + b), piece);
    }
    return q->k <= GQAC_K_PIECE ? piece : total + piece;
}

static void check_nbits(const quantised *q, gqac_arena *arena, gqac_pool *pool) {
    graph_run run, alone;
    CU_ASSERT(run_nbits(q, &q->a, pool, &run) == GQAC_OK);
    float *a = widened(arena, &q->a);
    bool int8 = q->level == 4 && (q->bits != 2 || q->block > 16);
    int wrong = 0;
    for (int i = 0; i < q->rows * q->n; i++) {
        const float *row = a + i / q->n * q->k;
        float y = int8 ? int8_element(q, row, i % q->n) : exact_element(q, row, i % q->n);
        if (q->has_bias)
            y += op_get_f32(&q->bias, i % q->n);
        wrong += !same_f32(op_get_f32(&run.results[0], i), stored(q->a.dtype, y));
    }
    CU_ASSERT_EQUAL(wrong, 0);
    gqac_tensor last = q->a; /* the last row alone has the same bits */
    size_t width = (size_t)q->k * op_width(last.dtype), out = (size_t)q->n * op_width(last.dtype);
    last.dims[0] = 1;
    last.data = (char *)q->a.data + (size_t)(q->rows - 1) * width;
    CU_ASSERT(run_nbits(q, &last, NULL, &alone) == GQAC_OK);
    CU_ASSERT(memcmp(alone.results[0].data,
                     (char *)run.results[0].data + (size_t)(q->rows - 1) * out, out) == 0);
    graph_run_close(&run);
    graph_run_close(&alone);
}

static void test_nbits(void) {
    gqac_pool *pool;
    gqac_diag diag;
    CU_ASSERT_FATAL(gqac_pool_create(2, &pool, &diag) == GQAC_OK);
    for (int i = 0; i < (unit_full() ? 2000 : 150); i++) {
        test_random r = {.state = 900u + (uint64_t)i};
        gqac_arena *arena = gqac_arena_create(0);
        quantised q = random_weights(arena, &r);
        if (i % 5 == 0) /* a block of zeros */
            memset(q.a.data, 0, 16 * op_width(q.a.dtype));
        check_nbits(&q, arena, i % 2 ? pool : NULL);
        gqac_arena_free(arena);
    }
    gqac_pool_free(pool);
}

static void test_nbits_refused(void) {
    static const struct {
        const char *attr;
        int64_t value;
        gqac_status status;
    } cases[] = {
        {"bits", 3, GQAC_UNSUPPORTED},
        {"block_size", 24, GQAC_INVALID_MODEL},
        {"block_size", 8, GQAC_INVALID_MODEL},
        {"accuracy_level", 5, GQAC_INVALID_MODEL},
        {"weight_prepacked", 1, GQAC_UNSUPPORTED},
        {"K", 0, GQAC_INVALID_MODEL},
        {"N", -1, GQAC_INVALID_MODEL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gqac_arena *arena = gqac_arena_create(0);
        test_random r = {.state = 2};
        quantised q = random_weights(arena, &r);
        graph_run run;
        run_nbits(&q, &q.a, NULL, &run);
        ir_builder b = {.graph = run.module->graph, .diag = &run.diag};
        ir_node *node = op_build(&b, "com.microsoft", "MatMulNBits", 3, run.values, 1);
        ir_attr_set_int(node, "K", q.k);
        ir_attr_set_int(node, "N", q.n);
        ir_attr_set_int(node, "block_size", q.block);
        ir_attr_set_int(node, cases[i].attr, cases[i].value);
        CU_ASSERT_EQUAL(op_of(node)->verify(node, &run.diag), cases[i].status);
        graph_run_close(&run);
        gqac_arena_free(arena);
    }
}

/* Rows of a table [V,Q]; -1 is the last row, and indices out of range return zeros. */
static void check_gather(gqac_dtype dtype, int bits, bool has_zero) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = (uint64_t)bits};
    const int entries = 5, width = 48, block = 16, blocks = 3;
    int per = dtype == GQAC_U8 ? 8 / bits : 1;
    gqac_tensor data = test_tensor(arena, dtype, 2, (int64_t[]){entries, width / per});
    gqac_tensor zero = test_tensor(arena, dtype, 2, (int64_t[]){entries, (blocks + per - 1) / per});
    for (int64_t i = 0; i < gqac_tensor_count(&data); i++)
        op_put_i64(&data, i, test_random_bits(&r));
    for (int64_t i = 0; i < gqac_tensor_count(&zero); i++)
        op_put_i64(&zero, i, test_random_bits(&r));
    gqac_tensor scales = test_floats(arena, GQAC_F16, 2, (int64_t[]){entries, blocks}, &r);
    const int64_t wanted[] = {2, -1, 7, 0, -6, 4};
    gqac_tensor indices = test_ints(arena, GQAC_I64, 2, (int64_t[]){2, 3}, wanted);
    graph_run run;
    CU_ASSERT(graph_run_open(&run, "com.microsoft", "GatherBlockQuantized", has_zero ? 4 : 3,
                             (const gqac_tensor *[]){&data, &indices, &scales, &zero}, 1));
    ir_attr_set_int(run.node, "bits", bits);
    ir_attr_set_int(run.node, "block_size", block);
    CU_ASSERT(graph_run_all(&run, NULL, NULL) == GQAC_OK);
    for (int i = 0; i < 6 * width; i++) {
        int64_t row = wanted[i / width] < 0 ? wanted[i / width] + entries : wanted[i / width];
        int k = i % width, b = k / block;
        float y = 0;
        if (row >= 0 && row < entries) {
            const uint8_t *codes = (const uint8_t *)data.data + row * width / per;
            const uint8_t *zeros = (const uint8_t *)zero.data + row * ((blocks + per - 1) / per);
            int64_t code =
                dtype == GQAC_U8 ? code_of(codes, k, bits) : op_get_i64(&data, row * width + k);
            int64_t z = dtype == GQAC_U8 ? 1 << (bits - 1) : 0;
            if (has_zero)
                z = dtype == GQAC_U8 ? code_of(zeros, b, bits)
                                     : op_get_i64(&zero, row * blocks + b);
            y = (float)(code - z) * op_get_f32(&scales, row * blocks + b);
        }
        CU_ASSERT(same_f32(op_get_f32(&run.results[0], i), stored(GQAC_F16, y)));
    }
    graph_run_close(&run);
    gqac_arena_free(arena);
}

static void test_gather(void) {
    for (int zero = 0; zero < 2; zero++) {
        check_gather(GQAC_U8, 4, zero);
        check_gather(GQAC_U8, 8, zero);
        check_gather(GQAC_U4, 4, zero);
        check_gather(GQAC_I4, 4, zero);
    }
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"products have the bits of the contract", test_contract},
        {"batches broadcast", test_shapes},
        {"integers wrap", test_integers},
        {"gemm", test_gemm},
        {"quantised weights follow their definition", test_nbits},
        {"quantised weights that are refused", test_nbits_refused},
        {"gather from a quantised table", test_gather},
    };
    return unit_run("matmul", cases, sizeof cases / sizeof *cases, argc, argv);
}
