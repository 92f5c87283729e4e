/* The prefix-caching rows X1 to X14 of docs/capability-rows.md, each a test of that name: one
 * GroupQueryAttention, a static cache, and the three ways to call it. seqlens_k is the cached
 * length unless a test says otherwise. */
#include "support_arenas.h"
#include "support_graph.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/shared.h"

enum { MOST = 4, TOKENS = 12, CAPACITY = 12, VISIBLE = 1 };

static const char ms[] = "com.microsoft";
static const op_options cached = {.cached_lengths = true};

/* The op, and the queries, keys and values of TOKENS tokens. */
typedef struct world {
    gqac_arena *arena;
    gqac_dtype dtype;
    int q_heads, kv_heads, size, window;
    bool rotary, total_minus_one;
    gqac_tensor x[3]; /* [TOKENS, heads * size] */
    gqac_tensor tables[2];
} world;

/* A batch of calls: row b has the tokens from[b] ... from[b] + rows - 1, after seqlens[b] cached
 * tokens. */
typedef struct call {
    int batch, rows;
    int from[MOST], seqlens[MOST];
    gqac_tensor past[2]; /* [B,Hkv,CAPACITY,D] */
} call;

static int heads_of(const world *w, int part) {
    return part ? w->kv_heads : w->q_heads;
}

static world open_world(gqac_dtype dtype, int q_heads, int kv_heads, int size, uint64_t seed) {
    world w = {.arena = keep(gqac_arena_create(0)),
               .dtype = dtype,
               .q_heads = q_heads,
               .kv_heads = kv_heads,
               .size = size,
               .window = -1};
    test_random r = {.state = seed};
    for (int i = 0; i < 3; i++)
        w.x[i] = test_floats(w.arena, dtype, 2, (int64_t[]){TOKENS, heads_of(&w, i) * size}, &r);
    for (int i = 0; i < 2; i++) {
        w.tables[i] = test_tensor(w.arena, dtype, 2, (int64_t[]){CAPACITY, size / 2});
        for (int k = 0; k < CAPACITY * (size / 2); k++) {
            double angle = k / (size / 2) / (1.0 + k % (size / 2));
            op_put_f32(&w.tables[i], k, (float)(i ? sin(angle) : cos(angle)));
        }
    }
    return w;
}

static world plain_world(void) {
    world w = open_world(GQAC_F32, 6, 2, 8, 5);
    w.rotary = true;
    return w;
}

/* The rows of part `part` of the calls, as [B,S,heads*D]. */
static gqac_tensor rows_of(const world *w, const call *c, int part) {
    int64_t width = heads_of(w, part) * w->size;
    gqac_tensor t = test_tensor(w->arena, w->dtype, 3, (int64_t[]){c->batch, c->rows, width});
    for (int64_t i = 0; i < gqac_tensor_count(&t); i++) {
        int64_t row = i / width, b = row / c->rows;
        op_put_f32(&t, i,
                   op_get_f32(&w->x[part], (c->from[b] + row % c->rows) * width + i % width));
    }
    return t;
}

static void fill(gqac_tensor *t, float value) {
    for (int64_t i = 0; i < gqac_tensor_count(t); i++)
        op_put_f32(t, i, value);
}

static call new_call(const world *w, int batch, int rows, float garbage) {
    call c = {.batch = batch, .rows = rows};
    for (int i = 0; i < 2; i++) {
        c.past[i] =
            test_tensor(w->arena, w->dtype, 4, (int64_t[]){batch, w->kv_heads, CAPACITY, w->size});
        fill(&c.past[i], garbage);
    }
    return c;
}

static gqac_status attempt(const world *w, const call *c, graph_run *run) {
    gqac_tensor in[7];
    int64_t lengths[MOST], total = CAPACITY;
    for (int i = 0; i < 3; i++)
        in[i] = rows_of(w, c, i);
    in[3] = c->past[0];
    in[4] = c->past[1];
    for (int b = 0; b < c->batch; b++)
        lengths[b] = c->seqlens[b] + (w->total_minus_one ? c->rows - 1 : 0);
    in[5] = test_ints(w->arena, GQAC_I32, 1, (int64_t[]){c->batch}, lengths);
    in[6] = test_ints(w->arena, GQAC_I32, 0, NULL, &total);
    const gqac_tensor *operands[9];
    for (int i = 0; i < 7; i++)
        operands[i] = &in[i];
    operands[7] = &w->tables[0];
    operands[8] = &w->tables[1];
    if (!graph_run_open(run, ms, "GroupQueryAttention", w->rotary ? 9 : 7, operands, 3))
        return GQAC_NO_MEMORY;
    keep(run->arena);
    ir_attr_set_int(run->node, "num_heads", w->q_heads);
    ir_attr_set_int(run->node, "kv_num_heads", w->kv_heads);
    ir_attr_set_int(run->node, "local_window_size", w->window);
    ir_attr_set_int(run->node, "do_rotary", w->rotary);
    return graph_run_all(run, w->total_minus_one ? NULL : &cached, NULL);
}

static graph_run good(const world *w, const call *c) {
    graph_run run;
    gqac_status status = attempt(w, c, &run);
    if (status != GQAC_OK)
        printf("%s: %s\n", gqac_status_name(status), run.diag.what);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
    return run;
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

/* True if row s of batch row b equals row t of batch row d of another output [B,S,W]. */
static bool same_row(const graph_run *a, int b, int s, const graph_run *c, int d, int t) {
    int64_t width = a->results[0].dims[2];
    return same_bytes(&a->results[0], (b * a->results[0].dims[1] + s) * width, &c->results[0],
                      (d * c->results[0].dims[1] + t) * width, width);
}

/* All tokens at once, from an empty cache: the expected result of every other way. */
static graph_run full(const world *w, int rows) {
    call c = new_call(w, 1, rows, 0);
    return good(w, &c);
}

/* The past of the next call is the present of this call. */
static call next_call(const world *w, const graph_run *before, int rows, int from) {
    call c = new_call(w, 1, rows, 0);
    for (int i = 0; i < 2; i++)
        c.past[i] = before->results[1 + i];
    c.from[0] = c.seqlens[0] = from;
    return c;
}

/* ---- the rows ------------------------------------------------------------ */

static void x1_three_modes(void) {
    world w = plain_world();
    graph_run whole = full(&w, 6);
    call first = new_call(&w, 1, 3, NAN);
    graph_run initial = good(&w, &first);
    call second = next_call(&w, &initial, 2, 3);
    graph_run hybrid = good(&w, &second);
    call third = next_call(&w, &hybrid, 1, 5);
    graph_run decode = good(&w, &third);
    for (int s = 0; s < 3; s++)
        CU_ASSERT(same_row(&initial, 0, s, &whole, 0, s));
    for (int s = 0; s < 2; s++)
        CU_ASSERT(same_row(&hybrid, 0, s, &whole, 0, 3 + s));
    CU_ASSERT(same_row(&decode, 0, 0, &whole, 0, 5));
    for (int i = 1; i <= 2; i++)
        for (int h = 0; h < w.kv_heads; h++)
            CU_ASSERT(same_bytes(&decode.results[i], h * CAPACITY * w.size, &whole.results[i],
                                 h * CAPACITY * w.size, 6 * w.size));
    close_all();
}

/* The contents of the old cache do not matter. */
static void x2_initial_by_zero(void) {
    world w = plain_world();
    call clean = new_call(&w, 1, 5, 0), nan = new_call(&w, 1, 5, NAN);
    call noise = new_call(&w, 1, 5, 1e30f);
    graph_run a = good(&w, &clean), b = good(&w, &nan), c = good(&w, &noise);
    CU_ASSERT(same(&a.results[0], &b.results[0]));
    CU_ASSERT(same(&a.results[0], &c.results[0]));
    for (int64_t i = 0; i < gqac_tensor_count(&a.results[0]); i++)
        CU_ASSERT(isfinite(op_get_f32(&a.results[0], i)));
    for (int h = 0; h < w.kv_heads; h++) /* from row 0 on */
        for (int s = 0; s < 5; s++)
            CU_ASSERT(same_bytes(&a.results[2], (h * CAPACITY + s) * w.size, &w.x[2],
                                 (s * w.kv_heads + h) * w.size, w.size));
    close_all();
}

static void x3_initial_by_capacity(void) {
    world w = plain_world();
    call zero = new_call(&w, 1, 5, 7.5f), most = new_call(&w, 1, 5, 7.5f);
    most.seqlens[0] = CAPACITY;
    graph_run a = good(&w, &zero), b = good(&w, &most);
    for (int i = 0; i < 3; i++)
        CU_ASSERT(same(&a.results[i], &b.results[i]));
    close_all();
}

static void x4_decode(void) {
    static const int lengths[] = {0, 1, 6, CAPACITY - 1};
    world w = plain_world();
    graph_run whole = full(&w, CAPACITY);
    for (int i = 0; i < 4; i++) {
        int n = lengths[i];
        call c = new_call(&w, 1, 1, NAN);
        for (int k = 0; k < 2; k++)
            for (int h = 0; h < w.kv_heads; h++)
                memcpy((float *)c.past[k].data + h * CAPACITY * w.size,
                       (float *)whole.results[1 + k].data + h * CAPACITY * w.size,
                       (size_t)(n * w.size) * sizeof(float));
        c.from[0] = c.seqlens[0] = n;
        graph_run run = good(&w, &c);
        CU_ASSERT(same_row(&run, 0, 0, &whole, 0, n));
        for (int h = 0; h < w.kv_heads; h++)
            CU_ASSERT(same_bytes(&run.results[1], h * CAPACITY * w.size, &whole.results[1],
                                 h * CAPACITY * w.size, (n + 1) * w.size));
    }
    close_all();
}

static void x5_hybrid(void) {
    world w = plain_world();
    graph_run whole = full(&w, 9), initial = full(&w, 4);
    call c = next_call(&w, &initial, 5, 4);
    graph_run run = good(&w, &c);
    for (int s = 0; s < 5; s++)
        CU_ASSERT(same_row(&run, 0, s, &whole, 0, 4 + s));
    for (int i = 1; i <= 2; i++)
        for (int h = 0; h < w.kv_heads; h++) {
            int64_t at = h * CAPACITY * w.size;
            CU_ASSERT(same_bytes(&run.results[i], at, &initial.results[i], at, 4 * w.size));
            CU_ASSERT(same_bytes(&run.results[i], at, &whole.results[i], at, 9 * w.size));
        }
    close_all();
}

/* Every row of a batch uses its own length. */
static void x6_one_truth_a_row(void) {
    static const int seqlens[3] = {0, 4, CAPACITY};
    world w = plain_world();
    call all = new_call(&w, 3, 3, 0.25f);
    for (int b = 0; b < 3; b++) {
        all.seqlens[b] = seqlens[b];
        all.from[b] = b;
    }
    graph_run batch = good(&w, &all);
    for (int b = 0; b < 3; b++) {
        call one = new_call(&w, 1, 3, 0.25f);
        one.seqlens[0] = seqlens[b];
        one.from[0] = b;
        graph_run alone = good(&w, &one);
        for (int s = 0; s < 3; s++)
            CU_ASSERT(same_row(&batch, b, s, &alone, 0, s));
        int64_t chunk = w.kv_heads * CAPACITY * w.size;
        for (int i = 1; i <= 2; i++)
            CU_ASSERT(same_bytes(&batch.results[i], b * chunk, &alone.results[i], 0, chunk));
    }
    close_all();
}

/* New rows are N*D elements after the start of each chunk of CAPACITY*D; all others keep their
 * bytes. */
static void x7_chunks(void) {
    world w = plain_world();
    w.rotary = false; /* keys are written unchanged */
    call c = new_call(&w, 2, 2, 0);
    c.seqlens[0] = 0;
    c.seqlens[1] = 5;
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < gqac_tensor_count(&c.past[i]); k++)
            op_put_f32(&c.past[i], k, (float)k);
    graph_run run = good(&w, &c);
    for (int part = 1; part <= 2; part++)
        for (int64_t k = 0; k < gqac_tensor_count(&run.results[part]); k++) {
            int64_t d = k % w.size, row = k / w.size % CAPACITY, h = k / w.size / CAPACITY % 2;
            int64_t b = k / w.size / CAPACITY / 2, s = row - c.seqlens[b];
            float expected = s >= 0 && s < 2
                                 ? op_get_f32(&w.x[part], (s * w.kv_heads + h) * w.size + d)
                                 : (float)k;
            CU_ASSERT_EQUAL(op_get_f32(&run.results[part], k), expected);
        }
    close_all();
}

/* Bit j of the result: key j is visible to query s of a call of `rows` tokens after `past` cached
 * ones. Values are one-hot, so the output is the row of weights. */
static unsigned seen(const world *model, int past, int rows, int s) {
    world w = *model;
    unsigned bits = 0;
    w.x[2] = test_tensor(w.arena, w.dtype, 2, (int64_t[]){TOKENS, w.kv_heads * w.size});
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < w.kv_heads; h++)
            op_put_f32(&w.x[2], (t * w.kv_heads + h) * w.size + t % w.size, 1);
    call c = new_call(&w, 1, rows, 0);
    if (past > 0) {
        graph_run before = full(&w, past);
        c = next_call(&w, &before, rows, past);
    }
    graph_run run = good(&w, &c);
    for (int h = 0; h < w.q_heads; h++) {
        unsigned now = 0;
        for (int j = 0; j < w.size; j++)
            if (op_get_f32(&run.results[0], (s * w.q_heads + h) * w.size + j) != 0)
                now |= 1u << j;
        CU_ASSERT(h == 0 || now == bits);
        bits = now;
    }
    return bits;
}

static world one_hot_world(void) {
    return open_world(GQAC_F32, 4, 2, TOKENS, 9);
}

static void x8_mask_is_offset(void) {
    world w = one_hot_world();
    CU_ASSERT_EQUAL(seen(&w, 3, 2, 0), 0xf);  /* tokens 0 to 3 are visible to token 3, but not 4 */
    CU_ASSERT_EQUAL(seen(&w, 3, 2, 1), 0x1f); /* tokens 0 to 4 are visible to token 4 */
    close_all();
}

static void x9_window_is_offset(void) {
    static const int windows[] = {1, 3, 4, 5, 11}; /* less than, equal to, and greater than 4 */
    world w = one_hot_world();
    for (int i = 0; i < 5; i++) {
        w.window = windows[i];
        for (int past = 0; past <= 4; past += 4)
            for (int s = 0; s < 3; s++) {
                unsigned expected = 0;
                for (int j = 0; j <= past + s; j++)
                    if (j > past + s - windows[i])
                        expected |= 1u << j;
                CU_ASSERT_EQUAL(seen(&w, past, 3, s), expected);
            }
        graph_run whole = full(&w, 9), before = full(&w, 4);
        call c = next_call(&w, &before, 5, 4);
        graph_run split = good(&w, &c);
        for (int s = 0; s < 5; s++)
            CU_ASSERT(same_row(&split, 0, s, &whole, 0, 4 + s));
    }
    close_all();
}

/* The convention of ONNX Runtime, which old models use, returns the same results for the same
 * lengths. */
static void x11_the_old_convention(void) {
    world w = plain_world(), old = w;
    old.total_minus_one = true;
    graph_run before = full(&w, 4);
    for (int rows = 1; rows <= 3; rows++) {
        call c = next_call(&w, &before, rows, 4);
        graph_run a = good(&w, &c), b = good(&old, &c);
        for (int i = 0; i < 3; i++)
            CU_ASSERT(same(&a.results[i], &b.results[i]));
    }
    close_all();
}

static void x12_abc_and_de(void) {
    world w = open_world(GQAC_F32, 1, 1, 2, 1);
    for (int part = 1; part <= 2; part++)
        for (int t = 0; t < TOKENS; t++)
            for (int d = 0; d < 2; d++)
                op_put_f32(&w.x[part], 2 * t + d, (float)("ABCDEFGHIJKL"[t]));
    call c = new_call(&w, 1, 2, 0);
    for (int i = 0; i < 6; i++) {
        op_put_f32(&c.past[0], i, (float)("ABC"[i / 2]));
        op_put_f32(&c.past[1], i, (float)("ABC"[i / 2]));
    }
    c.from[0] = c.seqlens[0] = 3;
    graph_run run = good(&w, &c);
    for (int part = 1; part <= 2; part++) {
        char text[6] = "";
        for (int t = 0; t < 5; t++)
            text[t] = (char)op_get_f32(&run.results[part], 2 * t);
        CU_ASSERT_STRING_EQUAL(text, "ABCDE");
    }
    close_all();
}

/* Full prefill of 5 equals prefill of 3 and a hybrid call of 2, bit for bit. */
static void check_split(const world *w) {
    graph_run whole = full(w, 5), before = full(w, 3);
    call c = next_call(w, &before, 2, 3);
    graph_run split = good(w, &c);
    for (int s = 0; s < 2; s++)
        CU_ASSERT(same_row(&split, 0, s, &whole, 0, 3 + s));
    for (int i = 1; i <= 2; i++)
        for (int h = 0; h < w->kv_heads; h++)
            CU_ASSERT(same_bytes(&split.results[i], h * CAPACITY * w->size, &whole.results[i],
                                 h * CAPACITY * w->size, 5 * w->size));
}

static void x13_split_is_full(void) {
    static const gqac_dtype dtypes[] = {GQAC_F32, GQAC_F16, GQAC_BF16};
    static const int ratios[] = {1, 3, 4, 7}, sizes[] = {8, 40}, windows[] = {-1, 2, 3, 9};
    for (int i = 0; i < 3 * 4 * 2 * 4 * 2; i++) {
        int ratio = ratios[i / 3 % 4], kv = i % 2 ? 2 : 1;
        world w = open_world(dtypes[i % 3], ratio * kv, kv, sizes[i / 12 % 2], (uint64_t)i);
        w.window = windows[i / 24 % 4];
        w.rotary = i / 96 == 1;
        check_split(&w);
        close_all();
    }
    close_all();
}

static void x14_visibility(void) {
    world w = one_hot_world();
    for (int past = 0; past <= 6; past += 3)
        for (int rows = 1; rows <= 4; rows++)
            for (int s = 0; s < rows; s++)
                CU_ASSERT_EQUAL(seen(&w, past, rows, s), (1u << (past + s + 1)) - VISIBLE);
    close_all();
}

/* N + S above the capacity is refused; nothing is written (trap 6). */
static void beyond_capacity(void) {
    world w = plain_world();
    call c = new_call(&w, 1, 3, 0);
    graph_run run;
    c.seqlens[0] = CAPACITY - 2;
    CU_ASSERT_EQUAL(attempt(&w, &c, &run), GQAC_OUT_OF_RANGE);
    close_all();
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"X1 three modes from one op", x1_three_modes},
        {"X2 initial prefill, value 0", x2_initial_by_zero},
        {"X3 initial prefill, value capacity", x3_initial_by_capacity},
        {"X4 decode", x4_decode},
        {"X5 hybrid", x5_hybrid},
        {"X6 one truth for each row", x6_one_truth_a_row},
        {"X7 place in the chunk", x7_chunks},
        {"X8 the causal mask is offset", x8_mask_is_offset},
        {"X9 the window is offset", x9_window_is_offset},
        {"X11 the old convention", x11_the_old_convention},
        {"X12 ABC + DE = ABCDE", x12_abc_and_de},
        {"X13 full = split", x13_split_is_full},
        {"X14 visibility", x14_visibility},
        {"beyond the capacity", beyond_capacity},
    };
    return unit_run("rows_gqa", cases, sizeof cases / sizeof *cases, argc, argv);
}
