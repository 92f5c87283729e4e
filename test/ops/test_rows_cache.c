/* The rows of docs/capability-rows.md on cache ops, one-query attention and rotary embedding with
 * an offset (M Meganeura, I inferno, N ncnn, R MiRust), each a test of that name. */
#include "support.h"
#include "support_arenas.h"
#include "support_graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/shared.h"

enum { ROWS = 9, HALF = 4, TABLE = 20 };

/* ---- running one op ------------------------------------------------------ */

static gqac_tensor whole(gqac_dtype dtype, int rank, int64_t value) {
    return test_ints(opened[0], dtype, rank, (int64_t[]){1}, &value);
}

static bool same_bytes(const gqac_tensor *a, int64_t at_a, const gqac_tensor *b, int64_t at_b,
                       int64_t n) {
    size_t width = op_width(a->dtype);
    return memcmp((const char *)a->data + (size_t)at_a * width,
                  (const char *)b->data + (size_t)at_b * width, (size_t)n * width) == 0;
}

static bool same(const gqac_tensor *a, const gqac_tensor *b) {
    int64_t n = gqac_tensor_count(a);
    return n == gqac_tensor_count(b) && same_bytes(a, 0, b, 0, n);
}

/* Rows [first, first + n) of a matrix. */
static gqac_tensor slice(const gqac_tensor *x, int64_t first, int64_t n) {
    gqac_tensor y = *x;
    y.dims[0] = n;
    y.data = (char *)x->data + (size_t)(first * x->dims[1]) * op_width(x->dtype);
    return y;
}

typedef struct heads {
    int q, kv, size;
} heads;

static gqac_status cached_attention(const heads *h, const gqac_tensor *q, const gqac_tensor *k,
                                    const gqac_tensor *v, const gqac_tensor *pos, graph_run *run) {
    const gqac_tensor *in[4] = {q, k, v, pos};
    CU_ASSERT_FATAL(graph_run_open(run, "gqac", "cached_attention", 4, in, 1));
    keep(run->arena);
    ir_attr_set_int(run->node, "num_heads", h->q);
    ir_attr_set_int(run->node, "kv_num_heads", h->kv);
    return graph_run_all(run, NULL, NULL);
}

static gqac_tensor attend(const heads *h, const gqac_tensor *q, const gqac_tensor *k,
                          const gqac_tensor *v, int64_t pos) {
    gqac_tensor at = whole(GQAC_U32, 1, pos);
    graph_run run;
    gqac_status status = cached_attention(h, q, k, v, &at, &run);
    if (status != GQAC_OK)
        printf("%s: %s\n", gqac_status_name(status), run.diag.what);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return run.results[0];
}

/* The definition, in double precision. */
static double naive(const heads *h, const gqac_tensor *q, const gqac_tensor *k,
                    const gqac_tensor *v, int pos, int head, int d) {
    double score[64], most = -INFINITY, sum = 0, y = 0;
    int64_t width = h->kv * h->size, own = head / (h->q / h->kv) * h->size;
    for (int j = 0; j <= pos; j++) {
        score[j] = 0;
        for (int i = 0; i < h->size; i++)
            score[j] += op_get_f64(q, head * h->size + i) * op_get_f64(k, j * width + own + i);
        score[j] /= sqrt(h->size);
        most = score[j] > most ? score[j] : most;
    }
    for (int j = 0; j <= pos; j++)
        sum += exp(score[j] - most);
    for (int j = 0; j <= pos; j++)
        y += exp(score[j] - most) / sum * op_get_f64(v, j * width + own + d);
    return y;
}

typedef struct scene {
    heads h;
    gqac_tensor q, k, v;
} scene;

static scene make_scene(int q, int kv, int size, uint64_t seed) {
    scene s = {.h = {q, kv, size}};
    test_random r = {.state = seed};
    gqac_arena *a = keep(gqac_arena_create(0));
    s.q = test_floats(a, GQAC_F32, 2, (int64_t[]){1, q * size}, &r);
    s.k = test_floats(a, GQAC_F32, 2, (int64_t[]){ROWS, kv * size}, &r);
    s.v = test_floats(a, GQAC_F32, 2, (int64_t[]){ROWS, kv * size}, &r);
    return s;
}

static void check_naive(const scene *s) {
    for (int pos = 0; pos < ROWS; pos++) {
        gqac_tensor y = attend(&s->h, &s->q, &s->k, &s->v, pos);
        for (int i = 0; i < s->h.q * s->h.size; i++)
            CU_ASSERT_DOUBLE_EQUAL(
                op_get_f64(&y, i),
                naive(&s->h, &s->q, &s->k, &s->v, pos, i / s->h.size, i % s->h.size), 1e-5);
    }
}

/* ---- cache_write --------------------------------------------------------- */

static void m4_cache_write(void) {
    static const op_case cases[] = {
        {.domain = "gqac",
         .op = "cache_write",
         .inputs = "f32[1,2]: 8 9 | f32[3,2]: 1 2 3 4 5 6 | u32[1]: 0",
         .outputs = "f32[3,2]: 8 9 3 4 5 6"},
        {.domain = "gqac",
         .op = "cache_write",
         .inputs = "f16[1,2]: 8 9 | f16[3,2]: nan 2 3 4 -0 inf | i32[]: 1",
         .outputs = "f16[3,2]: nan 2 8 9 -0 inf"},
        {.domain = "gqac",
         .op = "cache_write",
         .inputs = "i8[1,2]: 8 9 | i8[3,2]: 1 2 3 4 5 6 | i64[1]: 2",
         .outputs = "i8[3,2]: 1 2 3 4 8 9"},
    };
    run_cases(cases, COUNT(cases));
}

static void m5_cache_write_shapes(void) {
    static const op_case cases[] = {
        {.domain = "gqac",
         .op = "cache_write",
         .status = GQAC_INVALID_MODEL,
         .inputs = "f32[2]: 8 9 | f32[3,2]: 1 2 3 4 5 6 | u32[1]: 0"},
        {.domain = "gqac",
         .op = "cache_write",
         .status = GQAC_INVALID_MODEL,
         .inputs = "f32[2,2]: 8 9 8 9 | f32[3,2]: 1 2 3 4 5 6 | u32[1]: 0"},
        {.domain = "gqac",
         .op = "cache_write",
         .status = GQAC_INVALID_MODEL,
         .inputs = "f32[1,2]: 8 9 | f32[1,3,2]: 1 2 3 4 5 6 | u32[1]: 0"},
        {.domain = "gqac",
         .op = "cache_write",
         .status = GQAC_INVALID_MODEL,
         .inputs = "f32[1,3]: 8 9 9 | f32[3,2]: 1 2 3 4 5 6 | u32[1]: 0"},
        {.domain = "gqac",
         .op = "cache_write",
         .status = GQAC_INVALID_MODEL,
         .inputs = "f16[1,2]: 8 9 | f32[3,2]: 1 2 3 4 5 6 | u32[1]: 0"},
        {.domain = "gqac",
         .op = "cache_write",
         .status = GQAC_INVALID_INPUT,
         .inputs = "f32[1,2]: 8 9 | f32[3,2]: 1 2 3 4 5 6 | u32[2]: 0 0"},
        {.domain = "gqac",
         .op = "cache_write",
         .status = GQAC_UNSUPPORTED,
         .inputs = "f32[1,2]: 8 9 | f32[3,2]: 1 2 3 4 5 6 | f32[1]: 0"},
    };
    run_cases(cases, COUNT(cases));
}

static void m22_capacity_edge(void) {
    static const op_case cases[] = {
        {.domain = "gqac",
         .op = "cache_write",
         .status = GQAC_OUT_OF_RANGE,
         .inputs = "f32[1,2]: 8 9 | f32[3,2]: 1 2 3 4 5 6 | u32[1]: 3"},
        {.domain = "gqac",
         .op = "cache_write",
         .status = GQAC_OUT_OF_RANGE,
         .inputs = "f32[1,2]: 8 9 | f32[3,2]: 1 2 3 4 5 6 | i32[1]: -1"},
        {.domain = "gqac",
         .op = "cache_write",
         .status = GQAC_OUT_OF_RANGE,
         .inputs = "f32[1,2]: 8 9 | f32[0,2]: | u32[1]: 0"},
    };
    run_cases(cases, COUNT(cases));
    scene s = make_scene(2, 1, 4, 1);
    graph_run run;
    gqac_tensor full = whole(GQAC_U32, 1, ROWS), huge = whole(GQAC_U32, 1, UINT32_MAX);
    gqac_tensor below = whole(GQAC_I32, 0, -1);
    CU_ASSERT_EQUAL(cached_attention(&s.h, &s.q, &s.k, &s.v, &full, &run), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(cached_attention(&s.h, &s.q, &s.k, &s.v, &huge, &run), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(cached_attention(&s.h, &s.q, &s.k, &s.v, &below, &run), GQAC_OUT_OF_RANGE);
    close_all();
}

/* ---- cached_attention ---------------------------------------------------- */

static void m6_cached_attention(void) {
    scene s = make_scene(6, 2, 8, 2);
    check_naive(&s);
    close_all();
}

static void m7_head_ratios(void) {
    static const int q[] = {2, 4, 9, 8, 5, 1}, kv[] = {2, 2, 3, 1, 1, 1};
    for (int i = 0; i < 6; i++) {
        scene s = make_scene(q[i], kv[i], 4, (uint64_t)i);
        check_naive(&s);
        close_all();
    }
    scene bad = make_scene(4, 3, 4, 1);
    gqac_tensor pos = whole(GQAC_U32, 1, 0);
    graph_run run;
    CU_ASSERT_EQUAL(cached_attention(&bad.h, &bad.q, &bad.k, &bad.v, &pos, &run),
                    GQAC_INVALID_MODEL);
    close_all();
}

/* Rows after kv_pos may contain anything (M8, R4). */
static void m8_tail_is_garbage(void) {
    static const float garbage[] = {NAN, 1e30f, -INFINITY};
    for (int pos = 0; pos < ROWS; pos += 4) {
        scene s = make_scene(6, 2, 8, 3);
        gqac_tensor clean = attend(&s.h, &s.q, &s.k, &s.v, pos);
        for (int g = 0; g < 3; g++) {
            for (int64_t i = (pos + 1) * s.k.dims[1]; i < gqac_tensor_count(&s.k); i++) {
                op_put_f32(&s.k, i, garbage[g]);
                op_put_f32(&s.v, i, garbage[g]);
            }
            gqac_tensor dirty = attend(&s.h, &s.q, &s.k, &s.v, pos);
            CU_ASSERT(same(&clean, &dirty));
        }
        close_all();
    }
}

/* The row written in this step is visible: the softmax of one score is 1 (M18, I21). */
static void m18_write_before_read(void) {
    scene s = make_scene(6, 2, 8, 4);
    graph_run write;
    gqac_tensor fresh = slice(&s.v, 5, 1), pos = whole(GQAC_U32, 1, 0);
    CU_ASSERT_FATAL(graph_run_open(&write, "gqac", "cache_write", 3,
                                   (const gqac_tensor *[]){&fresh, &s.v, &pos}, 1));
    keep(write.arena);
    CU_ASSERT_EQUAL_FATAL(graph_run_all(&write, NULL, NULL), GQAC_OK);
    gqac_tensor y = attend(&s.h, &s.q, &s.k, &write.results[0], 0);
    for (int h = 0; h < s.h.q; h++)
        CU_ASSERT(same_bytes(&y, h * s.h.size, &fresh, h / 3 * s.h.size, s.h.size));
    close_all();
}

/* One query over all rows equals the last row of causal attention over the whole (I18). */
static void i18_last_row_of_full(void) {
    scene s = make_scene(6, 2, 8, 5);
    test_random r = {.state = 11};
    gqac_tensor q = test_floats(opened[0], GQAC_F32, 2, (int64_t[]){ROWS, 48}, &r);
    gqac_tensor x[3] = {q, s.k, s.v};
    graph_run full;
    for (int i = 0; i < 3; i++) {
        x[i].rank = 3;
        x[i].dims[2] = x[i].dims[1];
        x[i].dims[1] = ROWS;
        x[i].dims[0] = 1;
    }
    CU_ASSERT_FATAL(
        graph_run_open(&full, "", "Attention", 3, (const gqac_tensor *[]){&x[0], &x[1], &x[2]}, 1));
    keep(full.arena);
    ir_attr_set_int(full.node, "q_num_heads", 6);
    ir_attr_set_int(full.node, "kv_num_heads", 2);
    ir_attr_set_int(full.node, "is_causal", 1);
    CU_ASSERT_EQUAL_FATAL(graph_run_all(&full, NULL, NULL), GQAC_OK);
    for (int pos = 0; pos < ROWS; pos++) {
        gqac_tensor one = slice(&q, pos, 1), y = attend(&s.h, &one, &s.k, &s.v, pos);
        CU_ASSERT(same_bytes(&y, 0, &full.results[0], pos * 48, 48));
    }
    close_all();
}

/* Heads are grouped in blocks: query head h reads key/value head h / G. Exchanging the key/value
 * heads exchanges the blocks of query heads; if it were h mod Hkv, other heads would change. */
static void i19_heads_in_blocks(void) {
    scene s = make_scene(6, 2, 8, 6);
    gqac_tensor y = attend(&s.h, &s.q, &s.k, &s.v, 4);
    scene t = make_scene(6, 2, 8, 6);
    for (int64_t i = 0; i < gqac_tensor_count(&s.k); i++) {
        int64_t other = i / 16 * 16 + (i % 16 + 8) % 16;
        op_put_f32(&t.k, other, op_get_f32(&s.k, i));
        op_put_f32(&t.v, other, op_get_f32(&s.v, i));
    }
    for (int64_t i = 0; i < 48; i++)
        op_put_f32(&t.q, (i + 24) % 48, op_get_f32(&s.q, i));
    gqac_tensor z = attend(&t.h, &t.q, &t.k, &t.v, 4);
    CU_ASSERT(same_bytes(&y, 0, &z, 24, 24));
    CU_ASSERT(same_bytes(&y, 24, &z, 0, 24));
    close_all();
}

/* Softmax subtracts its maximum first. */
static void r2_stable_softmax(void) {
    static const float scales[] = {1e4f, -1e4f, 0};
    for (int i = 0; i < 3; i++) {
        scene s = make_scene(1, 1, 4, 7);
        for (int j = 0; j < ROWS; j++)
            for (int d = 0; d < 4; d++)
                op_put_f32(&s.k, j * 4 + d, d ? 0 : scales[i] * (float)(j == 3 ? 2 : 1));
        op_put_f32(&s.q, 0, 2);
        gqac_tensor y = attend(&s.h, &s.q, &s.k, &s.v, ROWS - 1);
        for (int d = 0; d < 4; d++) {
            CU_ASSERT(isfinite(op_get_f32(&y, d)));
            CU_ASSERT_DOUBLE_EQUAL(op_get_f64(&y, d), naive(&s.h, &s.q, &s.k, &s.v, ROWS - 1, 0, d),
                                   1e-5);
        }
        close_all();
    }
}

/* ---- concat_dim0 --------------------------------------------------------- */

static void i16_concat_dim0(void) {
    static const op_case cases[] = {
        {.domain = "gqac",
         .op = "concat_dim0",
         .inputs = "f32[0,2]: | f32[1,2]: 1 2",
         .outputs = "f32[1,2]: 1 2"},
        {.domain = "gqac",
         .op = "concat_dim0",
         .inputs = "f16[3,2]: 1 nan 3 -0 5 6 | f16[2,2]: 7 8 9 10",
         .outputs = "f16[5,2]: 1 nan 3 -0 5 6 7 8 9 10"},
        {.domain = "gqac",
         .op = "concat_dim0",
         .inputs = "i64[1,1]: 4 | i64[0,1]:",
         .outputs = "i64[1,1]: 4"},
        {.domain = "gqac",
         .op = "concat_dim0",
         .status = GQAC_INVALID_MODEL,
         .inputs = "f32[1,2]: 1 2 | f32[1,3]: 1 2 3"},
        {.domain = "gqac",
         .op = "concat_dim0",
         .status = GQAC_INVALID_MODEL,
         .inputs = "f32[1,2]: 1 2 | f16[1,2]: 1 2"},
        {.domain = "gqac",
         .op = "concat_dim0",
         .status = GQAC_INVALID_MODEL,
         .inputs = "f32[2]: 1 2 | f32[1,2]: 1 2"},
        {.domain = "gqac",
         .op = "concat_dim0",
         .status = GQAC_INVALID_MODEL,
         .inputs = "f32[1,2]: 1 2 | f32[1,1,2]: 1 2"},
    };
    run_cases(cases, COUNT(cases));
}

/* An empty cache grows to a copy of the new rows. */
static void i13_empty_cache(void) {
    static const op_case cases[] = {
        {.domain = "gqac",
         .op = "concat_dim0",
         .inputs = "f32[0,3]: | f32[2,3]: 1 2 3 4 5 6",
         .outputs = "f32[2,3]: 1 2 3 4 5 6"},
        {.domain = "gqac",
         .op = "concat_dim0",
         .inputs = "f32[0,3]: | f32[0,3]:",
         .outputs = "f32[0,3]:"},
    };
    run_cases(cases, COUNT(cases));
}

/* ---- rotary with an offset ----------------------------------------------- */

static gqac_tensor tables[2];

static void make_tables(void) {
    gqac_arena *arena = keep(gqac_arena_create(0));
    for (int i = 0; i < 2; i++) {
        tables[i] = test_tensor(arena, GQAC_F32, 2, (int64_t[]){TABLE, HALF});
        for (int k = 0; k < TABLE * HALF; k++) {
            double angle = k / HALF * pow(100, -(k % HALF) / (double)HALF);
            op_put_f32(&tables[i], k, (float)(i ? sin(angle) : cos(angle)));
        }
    }
}

static gqac_status try_rope(const char *op, const gqac_tensor *x, const gqac_tensor *at, int size,
                            int near, graph_run *run) {
    const gqac_tensor *in[4] = {x, &tables[0], &tables[1], at};
    CU_ASSERT_FATAL(graph_run_open(run, "gqac", op, 4, in, 1));
    keep(run->arena);
    ir_attr_set_int(run->node, "head_size", size);
    ir_attr_set_int(run->node, "interleaved", near);
    return graph_run_all(run, NULL, NULL);
}

static gqac_tensor rope(const char *op, const gqac_tensor *x, int64_t at, int near) {
    gqac_tensor offset = whole(GQAC_U32, 1, at);
    graph_run run;
    CU_ASSERT_EQUAL_FATAL(try_rope(op, x, &offset, 2 * HALF, near, &run), GQAC_OK);
    return run.results[0];
}

static gqac_tensor random_rows(int rows, int width) {
    test_random r = {.state = 21};
    return test_floats(opened[0], GQAC_F32, 2, (int64_t[]){rows, width}, &r);
}

/* With offset n, one row is rotated as row n of the static embedding; row r of several as r +
 * offset. */
static void m12_dynamic_offset(void) {
    make_tables();
    gqac_tensor x = random_rows(TABLE, 24);
    for (int near = 0; near < 2; near++) {
        gqac_tensor fixed = rope("rope_dynamic_offset", &x, 0, near);
        static const int offsets[] = {0, 1, 17, TABLE - 1};
        for (int i = 0; i < 4; i++) {
            gqac_tensor one = slice(&x, offsets[i], 1);
            gqac_tensor y = rope("rope_dynamic_offset", &one, offsets[i], near);
            CU_ASSERT(same_bytes(&y, 0, &fixed, offsets[i] * 24, 24));
        }
        gqac_tensor some = slice(&x, 5, 7);
        gqac_tensor y = rope("rope_dynamic_offset", &some, 5, near);
        CU_ASSERT(same_bytes(&y, 0, &fixed, 5 * 24, 7 * 24));
    }
    close_all();
}

/* The static embedding compared with the formula (M11), head by head and not across the row
 * (M13). */
static void m13_by_head(void) {
    make_tables();
    gqac_tensor x = random_rows(TABLE, 24), y = rope("rope_dynamic_offset", &x, 0, 0);
    for (int i = 0; i < TABLE * 24; i++) {
        int row = i / 24, d = i % 8, pair = d % HALF, base = i - d;
        double c = op_get_f64(&tables[0], row * HALF + pair);
        double s = op_get_f64(&tables[1], row * HALF + pair);
        double u = op_get_f64(&x, base + pair), w = op_get_f64(&x, base + pair + HALF);
        CU_ASSERT_DOUBLE_EQUAL(op_get_f64(&y, i), d < HALF ? u * c - w * s : w * c + u * s, 1e-6);
    }
    gqac_tensor bad = random_rows(3, 20),
                three = test_tensor(opened[0], GQAC_F32, 3, (int64_t[]){1, 3, 24});
    gqac_tensor zero = whole(GQAC_U32, 1, 0);
    graph_run run;
    CU_ASSERT_EQUAL(try_rope("rope_dynamic_offset", &bad, &zero, 8, 0, &run), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(try_rope("rope_dynamic_offset", &three, &zero, 8, 0, &run), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(try_rope("rope_dynamic_offset", &x, &zero, 3, 0, &run), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(try_rope("rope_dynamic_offset", &x, &zero, 2, 0, &run), GQAC_INVALID_MODEL);
    gqac_tensor one = whole(GQAC_I64, 0, 1), huge = whole(GQAC_I64, 1, INT64_MAX);
    CU_ASSERT_EQUAL(try_rope("rope_dynamic_offset", &x, &one, 8, 0, &run), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(try_rope("rope_dynamic_offset", &x, &huge, 8, 0, &run), GQAC_OUT_OF_RANGE);
    close_all();
}

static void i17_single_row(void) {
    make_tables();
    gqac_tensor x = random_rows(TABLE, 16), zero = whole(GQAC_I32, 1, 0);
    gqac_tensor all = rope("rope_dynamic_offset", &x, 0, 0);
    for (int i = 0; i < TABLE; i++) {
        gqac_tensor one = slice(&x, i, 1), y = rope("apply_rope_single_row", &one, i, 0);
        CU_ASSERT(same_bytes(&y, 0, &all, i * 16, 16));
    }
    gqac_tensor two = slice(&x, 0, 2), one = slice(&x, 0, 1), flat = one, wide = one;
    gqac_tensor end = whole(GQAC_I32, 1, TABLE);
    flat.rank = 1;
    flat.dims[0] = 16;
    wide.dims[1] = 12;
    graph_run run;
    CU_ASSERT_EQUAL(try_rope("apply_rope_single_row", &two, &zero, 8, 0, &run), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(try_rope("apply_rope_single_row", &flat, &zero, 8, 0, &run),
                    GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(try_rope("apply_rope_single_row", &wide, &zero, 8, 0, &run),
                    GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(try_rope("apply_rope_single_row", &one, &zero, 5, 0, &run), GQAC_INVALID_MODEL);
    CU_ASSERT_EQUAL(try_rope("apply_rope_single_row", &one, &end, 8, 0, &run), GQAC_OUT_OF_RANGE);
    close_all();
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"M4 cache_write", m4_cache_write},
        {"M5 shapes of cache_write", m5_cache_write_shapes},
        {"M6 R1 R3 cached_attention", m6_cached_attention},
        {"M7 R6 ratios of heads", m7_head_ratios},
        {"M8 R4 rows behind kv_pos", m8_tail_is_garbage},
        {"M12 rotary with an offset", m12_dynamic_offset},
        {"M11 M13 rotary by head", m13_by_head},
        {"M18 I21 write before read", m18_write_before_read},
        {"M22 edge of the capacity", m22_capacity_edge},
        {"I13 empty cache", i13_empty_cache},
        {"I16 concat_dim0", i16_concat_dim0},
        {"I17 apply_rope_single_row", i17_single_row},
        {"I18 last row of full attention", i18_last_row_of_full},
        {"I19 heads in blocks", i19_heads_in_blocks},
        {"R2 stable softmax", r2_stable_softmax},
    };
    return unit_run("rows_cache", cases, sizeof cases / sizeof *cases, argc, argv);
}
