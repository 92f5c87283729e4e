/* The parts of attention one by one: what lengths mean and which are refused, rotary positions,
 * special rows of softmax, and the attribute values that GroupQueryAttention refuses. */
#include "support_graph.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/shared.h"

/* ---- seqlens_to_past ----------------------------------------------------- */

typedef struct length_case {
    const char *what;
    bool cached;
    int seqlens[2], total, chunk, past_rows; /* past_rows -1: no past */
    gqac_status status;
    int past[2], fresh[2];
} length_case;

static const length_case length_cases[] = {
    {"first prompt", 0, {3, 3}, 4, 4, -1, GQAC_OK, {0, 0}, {4, 4}},
    {"first prompt, right-padded", 0, {3, 1}, 4, 4, 0, GQAC_OK, {0, 0}, {4, 2}},
    {"first prompt into a static cache", 0, {3, 2}, 4, 4, 16, GQAC_OK, {0, 0}, {4, 3}},
    {"one-token prompt", 0, {0, 0}, 1, 1, 0, GQAC_OK, {0, 0}, {1, 1}},
    {"decode", 0, {5, 5}, 6, 1, 5, GQAC_OK, {5, 5}, {1, 1}},
    {"ragged decode", 0, {5, 2}, 6, 1, 5, GQAC_OK, {5, 2}, {1, 1}},
    {"chunk, growing", 0, {7, 4}, 8, 3, 5, GQAC_OK, {5, 2}, {3, 3}},
    {"chunk, static", 0, {7, 4}, 8, 3, 20, GQAC_OK, {5, 2}, {3, 3}},
    {"chunk, total = capacity", 0, {7, 4}, 20, 3, 20, GQAC_OK, {5, 2}, {3, 3}},
    {"past too small for a first prompt", 0, {7, 7}, 8, 8, 3, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"total between the rules", 0, {5, 5}, 6, 2, 3, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"no past, total is not S", 0, {5, 5}, 6, 2, -1, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"longer than total", 0, {6, 5}, 6, 1, 5, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"shorter than the chunk", 0, {7, 1}, 8, 3, 5, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"negative", 0, {-1, 3}, 4, 4, -1, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"largest", 0, {INT32_MAX, 3}, 4, 4, -1, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"total 0", 0, {0, 0}, 0, 1, 4, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"total negative", 0, {0, 0}, -4, 1, 4, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"cached: first prompt by 0", 1, {0, 0}, 3, 3, 10, GQAC_OK, {0, 0}, {3, 3}},
    {"cached: first prompt by capacity", 1, {10, 0}, 3, 3, 10, GQAC_OK, {0, 0}, {3, 3}},
    {"cached: decode", 1, {4, 9}, 10, 1, 10, GQAC_OK, {4, 9}, {1, 1}},
    {"cached: decode of an empty row", 1, {0, 2}, 10, 1, 10, GQAC_OK, {0, 2}, {1, 1}},
    {"cached: hybrid", 1, {4, 7}, 10, 3, 10, GQAC_OK, {4, 7}, {3, 3}},
    {"cached: growing", 1, {5, 2}, 8, 3, 5, GQAC_OK, {5, 2}, {3, 3}},
    {"cached: beyond the capacity", 1, {8, 0}, 10, 3, 10, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"cached: decode at the capacity", 1, {10, 0}, 10, 1, 10, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"cached: more than there is", 1, {6, 0}, 9, 3, 5, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"cached: first prompt that fills the buffer", 1, {0, 10}, 10, 10, 10, GQAC_OK, {0}, {10, 10}},
    {"cached: prompt longer than the buffer", 1, {0, 0}, 12, 12, 10, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"cached: total between the rules", 1, {2, 2}, 12, 3, 10, GQAC_OUT_OF_RANGE, {0}, {0}},
    {"cached: negative", 1, {-3, 0}, 10, 1, 10, GQAC_OUT_OF_RANGE, {0}, {0}},
};

static void check_lengths(const length_case *c) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor seqlens =
        test_ints(arena, GQAC_I32, 1, (int64_t[]){2}, (int64_t[]){c->seqlens[0], c->seqlens[1]});
    gqac_tensor total = test_ints(arena, GQAC_I32, 0, NULL, (int64_t[]){c->total});
    gqac_tensor query = test_tensor(arena, GQAC_F32, 3, (int64_t[]){2, c->chunk, 8});
    int past_rows = c->past_rows < 0 ? 0 : c->past_rows;
    gqac_tensor past = test_tensor(arena, GQAC_F32, 4, (int64_t[]){2, 1, past_rows, 8});
    graph_run run;
    CU_ASSERT_FATAL(graph_run_open(&run, "gqac", "seqlens_to_past", c->past_rows < 0 ? 3 : 4,
                                   (const gqac_tensor *[]){&seqlens, &total, &query, &past}, 2));
    ir_attr_set_string(run.node, "convention", c->cached ? "cached" : "total-1");
    gqac_status status = graph_run_all(&run, NULL, NULL);
    if (status != c->status)
        printf("%s: %s %s\n", c->what, gqac_status_name(status), run.diag.what);
    CU_ASSERT_EQUAL(status, c->status);
    for (int b = 0; b < 2 && status == GQAC_OK; b++) {
        CU_ASSERT_EQUAL(op_get_i64(&run.results[0], b), c->past[b]);
        CU_ASSERT_EQUAL(op_get_i64(&run.results[1], b), c->fresh[b]);
    }
    graph_run_close(&run);
    gqac_arena_free(arena);
}

static void test_lengths(void) {
    for (size_t i = 0; i < sizeof length_cases / sizeof *length_cases; i++)
        check_lengths(&length_cases[i]);
}

static void test_loose_shapes(void) {
    static const int64_t shapes[][3] = {{2}, {2, 1}, {1, 2}, {1, 1}, {4, 1}, {1, 2, 1}, {0}};
    static const int ranks[] = {1, 2, 2, 2, 2, 3, 0};
    static const bool good[] = {true, true, true, false, false, true, false};
    for (int i = 0; i < 7; i++) {
        gqac_arena *arena = gqac_arena_create(0);
        gqac_tensor seqlens =
            test_ints(arena, GQAC_I32, ranks[i], shapes[i], (int64_t[]){1, 1, 1, 1});
        gqac_tensor total = test_ints(arena, GQAC_I32, 1, (int64_t[]){1}, (int64_t[]){2});
        gqac_tensor query = test_tensor(arena, GQAC_F32, 3, (int64_t[]){2, 2, 8});
        graph_run run;
        CU_ASSERT_FATAL(graph_run_open(&run, "gqac", "seqlens_to_past", 3,
                                       (const gqac_tensor *[]){&seqlens, &total, &query}, 2));
        const gqac_status bad = ranks[i] ? GQAC_INVALID_INPUT : GQAC_INVALID_MODEL;
        CU_ASSERT_EQUAL(graph_run_all(&run, NULL, NULL), good[i] ? GQAC_OK : bad);
        graph_run_close(&run);
        gqac_arena_free(arena);
    }
}

/* Checks a bias of that shape for 3 new tokens after 5 cached ones. */
static gqac_status bias_of(int rank, const int64_t *dims) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor seqlens = test_ints(arena, GQAC_I32, 1, (int64_t[]){1}, (int64_t[]){7});
    gqac_tensor total = test_ints(arena, GQAC_I32, 0, NULL, (int64_t[]){8});
    gqac_tensor query = test_tensor(arena, GQAC_F32, 3, (int64_t[]){1, 3, 8});
    gqac_tensor past = test_tensor(arena, GQAC_F32, 4, (int64_t[]){1, 1, 20, 8});
    gqac_tensor bias = test_tensor(arena, GQAC_F32, rank, dims);
    graph_run run;
    CU_ASSERT_FATAL(graph_run_open(
        &run, "gqac", "seqlens_to_past", 8,
        (const gqac_tensor *[]){&seqlens, &total, &query, &past, NULL, NULL, NULL, &bias}, 2));
    const gqac_status status = graph_run_all(&run, NULL, NULL);
    CU_ASSERT_EQUAL(status == GQAC_OK, !strstr(run.diag.rule, "total_sequence_length"));
    graph_run_close(&run);
    gqac_arena_free(arena);
    return status;
}

/* A bias has a row for each new token, and a column for each of the `total` keys: neither for those
 * of a static cache nor for the visible ones alone. */
static void test_bias_shape(void) {
    static const int64_t bad[][4] = {{1, 1, 3, 9}, {1, 1, 3, 7}, {1, 1, 3, 20},
                                     {1, 1, 1, 8}, {1, 1, 4, 8}, {1, 1, 3, 0}};
    CU_ASSERT_EQUAL(bias_of(4, (int64_t[]){1, 1, 3, 8}), GQAC_OK);
    CU_ASSERT_EQUAL(bias_of(4, (int64_t[]){1, 4, 3, 8}), GQAC_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CU_ASSERT_EQUAL(bias_of(4, bad[i]), GQAC_INVALID_INPUT);
    CU_ASSERT_EQUAL(bias_of(2, (int64_t[]){3, 8}), GQAC_INVALID_INPUT);
}

/* ---- rotary -------------------------------------------------------------- */

static gqac_status rotary_at(int past, int fresh, const int64_t *ids, int rank, int rows) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 1};
    gqac_tensor x = test_floats(arena, GQAC_F32, 4, (int64_t[]){1, 2, 3, 8}, &r);
    gqac_tensor table = test_floats(arena, GQAC_F32, 2, (int64_t[]){rows, 4}, &r);
    gqac_tensor p = test_ints(arena, GQAC_I32, 1, (int64_t[]){1}, (int64_t[]){past});
    gqac_tensor n = test_ints(arena, GQAC_I32, 1, (int64_t[]){1}, (int64_t[]){fresh});
    gqac_tensor at = {0};
    if (ids)
        at = test_ints(arena, GQAC_I64, rank, rank == 1 ? (int64_t[]){1} : (int64_t[]){1, 3}, ids);
    graph_run run;
    CU_ASSERT_FATAL(
        graph_run_open(&run, "gqac", "rotary", 6,
                       (const gqac_tensor *[]){&x, &table, &table, &p, &n, ids ? &at : NULL}, 1));
    gqac_status status = graph_run_all(&run, NULL, NULL);
    for (int64_t i = 0; status == GQAC_OK && i < 2 * 3 * 8; i++)
        if (i / 8 % 3 >= fresh)
            CU_ASSERT_EQUAL(op_get_f32(&run.results[0], i), 0.0f);
    graph_run_close(&run);
    gqac_arena_free(arena);
    return status;
}

static void test_rotary(void) {
    const int64_t start[] = {7}, late[] = {8}, each[] = {9, 0, 4}, wild[] = {0, INT64_MAX, 1};
    CU_ASSERT_EQUAL(rotary_at(7, 3, NULL, 0, 10), GQAC_OK);
    CU_ASSERT_EQUAL(rotary_at(8, 3, NULL, 0, 10), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(rotary_at(8, 2, NULL, 0, 10), GQAC_OK); /* a pad row needs no position */
    CU_ASSERT_EQUAL(rotary_at(0, 3, start, 1, 10), GQAC_OK);
    CU_ASSERT_EQUAL(rotary_at(0, 3, late, 1, 10), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(rotary_at(0, 3, each, 2, 10), GQAC_OK);
    CU_ASSERT_EQUAL(rotary_at(0, 3, each, 2, 9), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(rotary_at(0, 3, wild, 2, 9), GQAC_OUT_OF_RANGE);
    CU_ASSERT_EQUAL(rotary_at(-1, 3, NULL, 0, 10), GQAC_OUT_OF_RANGE);
}

/* com.microsoft.RotaryEmbedding on [B,S,H*D] and on [B,H,S,D] returns the same numbers. */
static void test_rotary_embedding(void) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 12};
    gqac_tensor flat = test_floats(arena, GQAC_F32, 3, (int64_t[]){2, 3, 16}, &r);
    gqac_tensor four = test_tensor(arena, GQAC_F32, 4, (int64_t[]){2, 2, 3, 8});
    gqac_tensor table = test_floats(arena, GQAC_F32, 2, (int64_t[]){20, 3}, &r);
    gqac_tensor ids =
        test_ints(arena, GQAC_I64, 2, (int64_t[]){2, 3}, (int64_t[]){0, 5, 19, 3, 2, 1});
    for (int i = 0; i < 96; i++)
        op_put_f32(&four, (((i / 48) * 2 + i / 8 % 2) * 3 + i / 16 % 3) * 8 + i % 8,
                   op_get_f32(&flat, i));
    graph_run a, b;
    CU_ASSERT_FATAL(graph_run_open(&a, "com.microsoft", "RotaryEmbedding", 4,
                                   (const gqac_tensor *[]){&flat, &ids, &table, &table}, 1));
    ir_attr_set_int(a.node, "num_heads", 2);
    ir_attr_set_int(a.node, "rotary_embedding_dim", 6);
    CU_ASSERT(graph_run_all(&a, NULL, NULL) == GQAC_OK);
    CU_ASSERT_FATAL(graph_run_open(&b, "com.microsoft", "RotaryEmbedding", 4,
                                   (const gqac_tensor *[]){&four, &ids, &table, &table}, 1));
    CU_ASSERT(graph_run_all(&b, NULL, NULL) == GQAC_OK);
    for (int i = 0; i < 96; i++) {
        int64_t other = (((i / 48) * 2 + i / 8 % 2) * 3 + i / 16 % 3) * 8 + i % 8;
        CU_ASSERT_EQUAL(op_get_f32(&a.results[0], i), op_get_f32(&b.results[0], other));
        if (i % 8 >= 6)
            CU_ASSERT_EQUAL(op_get_f32(&a.results[0], i), op_get_f32(&flat, i));
    }
    ir_builder builder = {.graph = b.module->graph, .diag = &b.diag};
    ir_node *node = op_build(&builder, "com.microsoft", "RotaryEmbedding", 4, b.values, 1);
    ir_attr_set_float(node, "scale", 2.0f);
    CU_ASSERT_EQUAL(op_of(node)->verify(node, &b.diag),
                    GQAC_OK); /* without effect, as in ONNX Runtime */
    graph_run_close(&a);
    graph_run_close(&b);
    gqac_arena_free(arena);
}

/* ---- softmax ------------------------------------------------------------- */

static void softmax(const float *s, int keys, const float *sink, float *p) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor x = test_tensor(arena, GQAC_F32, 4, (int64_t[]){1, 1, 2, keys});
    gqac_tensor t = test_tensor(arena, GQAC_F32, 1, (int64_t[]){1});
    memcpy(x.data, s, (size_t)(2 * keys) * sizeof *s);
    if (sink)
        memcpy(t.data, sink, sizeof *sink);
    graph_run run;
    CU_ASSERT_FATAL(graph_run_open(&run, "gqac", "softmax_sink", sink ? 2 : 1,
                                   (const gqac_tensor *[]){&x, &t}, 1));
    CU_ASSERT_FATAL(graph_run_all(&run, NULL, NULL) == GQAC_OK);
    memcpy(p, run.results[0].data, (size_t)(2 * keys) * sizeof *p);
    graph_run_close(&run);
    gqac_arena_free(arena);
}

static void test_softmax(void) {
    const float none[4] = {-INFINITY, -INFINITY, 1, -INFINITY}, sink = 1, low = -INFINITY;
    const float poisoned[4] = {-INFINITY, NAN, 0, 0};
    float p[4];
    softmax(none, 2, NULL, p);
    CU_ASSERT(p[0] == 0 && p[1] == 0 && p[2] == 1 && p[3] == 0);
    softmax(none, 2, &sink, p);
    CU_ASSERT(p[0] == 0 && p[1] == 0 && p[2] == 0.5f && p[3] == 0);
    softmax(none, 2, &low, p);
    CU_ASSERT(p[0] == 0 && p[1] == 0 && p[2] == 1 && p[3] == 0);
    softmax(poisoned, 2, NULL, p);
    CU_ASSERT(isnan(p[0]) && isnan(p[1]) && p[2] == 0.5f && p[3] == 0.5f);
}

/* Keys at -inf before or after the visible ones change no bit. */
static void test_softmax_tails(void) {
    test_random r = {.state = 21};
    float s[2 * 100], p[2 * 100], q[2 * 200];
    for (int n = 1; n <= 100; n += 3) {
        float wide[2 * 200];
        for (int i = 0; i < 2 * n; i++)
            s[i] = i % n < n / 3 ? -INFINITY : test_random_float(&r);
        for (int i = 0; i < 2 * (n + 37); i++)
            wide[i] = i % (n + 37) < n ? s[i / (n + 37) * n + i % (n + 37)] : -INFINITY;
        softmax(s, n, NULL, p);
        softmax(wide, n + 37, NULL, q);
        CU_ASSERT(memcmp(p, q, (size_t)n * sizeof *p) == 0);
        CU_ASSERT(memcmp(p + n, q + n + 37, (size_t)n * sizeof *p) == 0);
    }
}

/* ---- node forms that GroupQueryAttention refuses ------------------------- */

typedef struct refusal {
    const char *attr;
    int64_t i;
    float f;
    gqac_status status;
} refusal;

static const refusal refusals[] = {
    {"num_heads", 0, 0, GQAC_INVALID_MODEL},
    {"num_heads", 5, 0, GQAC_INVALID_MODEL},
    {"kv_num_heads", 0, 0, GQAC_INVALID_MODEL},
    {"kv_num_heads", -2, 0, GQAC_INVALID_MODEL},
    {"local_window_size", 0, 0, GQAC_INVALID_MODEL},
    {"local_window_size", -2, 0, GQAC_INVALID_MODEL},
    {"softcap", 0, -1, GQAC_INVALID_MODEL},
    {"softcap", 0, NAN, GQAC_INVALID_MODEL},
    {"softcap", 0, INFINITY, GQAC_INVALID_MODEL},
    {"scale", 0, INFINITY, GQAC_INVALID_MODEL},
    {"scale", 0, NAN, GQAC_INVALID_MODEL},
    {"qk_norm_epsilon", 0, -1, GQAC_INVALID_MODEL},
    {"do_rotary", 2, 0, GQAC_INVALID_MODEL},
    {"do_rotary", 1, 0, GQAC_INVALID_MODEL}, /* without tables */
    {"rotary_interleaved", -1, 0, GQAC_INVALID_MODEL},
    {"causal", 2, 0, GQAC_INVALID_MODEL},
    {"causal", 0, 0, GQAC_OK},
    {"sliding_window_cache", 1, 0, GQAC_INVALID_MODEL}, /* without a window */
    {"smooth_softmax", 1, 0, GQAC_OK},
    {"smooth_softmax", 2, 0, GQAC_INVALID_MODEL},
    {"smooth_softmax", 0, 0, GQAC_OK},
    {"qk_output", 1, 0, GQAC_INVALID_MODEL}, /* without the output */
    {"qk_output", 3, 0, GQAC_INVALID_MODEL},
    {"kv_cache_bit_width", 8, 0, GQAC_INVALID_MODEL}, /* nothing is quantised */
    {"kv_cache_bit_width", 5, 0, GQAC_INVALID_MODEL},
};

typedef struct bench {
    gqac_arena *arena;
    gqac_tensor query, past, seqlens, total, other;
    graph_run run;
} bench;

/* A node with four query heads and two key-value heads; bit i of `inputs`: input i is present. */
static ir_node *open_node(bench *t, unsigned inputs, int outputs) {
    t->arena = gqac_arena_create(0);
    t->query = test_tensor(t->arena, GQAC_F32, 3, (int64_t[]){1, 2, 64});
    t->past = test_tensor(t->arena, GQAC_F32, 4, (int64_t[]){1, 2, 3, 8});
    t->seqlens = test_ints(t->arena, GQAC_I32, 1, (int64_t[]){1}, (int64_t[]){4});
    t->total = test_ints(t->arena, GQAC_I32, 0, NULL, (int64_t[]){5});
    t->other = test_tensor(t->arena, GQAC_F32, 1, (int64_t[]){8});
    const gqac_tensor *in[16];
    for (int i = 0; i < 16; i++) {
        in[i] = inputs >> i & 1 ? &t->other : NULL;
        if (in[i] && (i == 3 || i == 4))
            in[i] = &t->past;
    }
    in[0] = &t->query;
    in[5] = &t->seqlens;
    in[6] = &t->total;
    if (!graph_run_open(&t->run, "com.microsoft", "GroupQueryAttention", 16, in, outputs))
        return NULL;
    ir_attr_set_int(t->run.node, "num_heads", 4);
    ir_attr_set_int(t->run.node, "kv_num_heads", 2);
    return t->run.node;
}

static void close_node(bench *t) {
    graph_run_close(&t->run);
    gqac_arena_free(t->arena);
}

static void test_refused_attributes(void) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *c = &refusals[i];
        bench t;
        ir_node *node = open_node(&t, 1u << 3 | 1u << 4, 3);
        CU_ASSERT_FATAL(node != NULL);
        bool is_float = c->f != 0 || !strcmp(c->attr, "scale");
        if (is_float)
            ir_attr_set_float(node, c->attr, c->f);
        else
            ir_attr_set_int(node, c->attr, c->i);
        gqac_status status = graph_run_check(&t.run);
        if (status != c->status)
            printf("%s: %s %s\n", c->attr, gqac_status_name(status), t.run.diag.what);
        CU_ASSERT_EQUAL(status, c->status);
        CU_ASSERT(status == GQAC_OK || strstr(t.run.diag.what, c->attr) ||
                  strstr(t.run.diag.what, "cos_cache"));
        close_node(&t);
    }
}

static void test_refused_inputs(void) {
    static const struct {
        unsigned inputs;
        int outputs;
        gqac_status status;
        const char *named;
    } cases[] = {
        {1u << 3 | 1u << 4, 3, GQAC_OK, ""},
        {1u << 3 | 1u << 4, 1, GQAC_OK, ""},
        {1u << 3 | 1u << 4, 2, GQAC_INVALID_MODEL, "present_value"},
        {1u << 3 | 1u << 4, 4, GQAC_INVALID_MODEL, "output_qk"},
        {1u << 3, 3, GQAC_INVALID_MODEL, "past_value"},
        {1u << 1, 3, GQAC_INVALID_MODEL, "value"},
        {1u << 7, 3, GQAC_INVALID_MODEL, "sin_cache"},
        {1u << 14, 3, GQAC_INVALID_MODEL, "k_norm_weight"},
        {1u << 10, 3, GQAC_INVALID_MODEL, "attention_bias"}, /* with another shape, as below */
        {1u << 11, 3, GQAC_INVALID_MODEL, "head_sink"},
        {1u << 9, 3, GQAC_INVALID_MODEL, "position_ids"},
        {1u << 12 | 1u << 13, 3, GQAC_INVALID_MODEL, "k_scale"}, /* nothing is quantised */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench t;
        CU_ASSERT_FATAL(open_node(&t, cases[i].inputs, cases[i].outputs) != NULL);
        gqac_status status = graph_run_check(&t.run);
        CU_ASSERT_EQUAL(status, cases[i].status);
        CU_ASSERT(status == GQAC_OK || strstr(t.run.diag.what, cases[i].named) != NULL);
        close_node(&t);
    }
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"what seqlens_k means", test_lengths},
        {"loose shapes of seqlens_k", test_loose_shapes},
        {"the shape of a bias", test_bias_shape},
        {"rotary positions", test_rotary},
        {"RotaryEmbedding of both layouts", test_rotary_embedding},
        {"special rows of softmax", test_softmax},
        {"softmax ignores masked tails", test_softmax_tails},
        {"refused attributes", test_refused_attributes},
        {"refused inputs and outputs", test_refused_inputs},
    };
    return unit_run("attention", cases, sizeof cases / sizeof *cases, argc, argv);
}
