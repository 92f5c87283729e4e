/* Attention of the ONNX standard: random nodes compared with nested loops in double, exact
 * visibility by one-hot values, NaN in keys that are not visible, and the same bits however tokens
 * are split. */
#include "support_graph.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/shared.h"

typedef struct spec {
    int batch, q_heads, kv_heads, rows, new_rows, past, size, v_size; /* past -1: none */
    bool flat, causal, nonpad;
    int left, right, mask, mask_rank, mask_keys, mode; /* mask 0 none, 1 bool, 2 float */
    float softcap, scale;                              /* scale 0: absent */
    gqac_dtype dtype;
} spec;

typedef struct scene {
    gqac_arena *arena;
    gqac_tensor q, k, v, mask, past_k, past_v, nonpad;
} scene;

static int keys_of(const spec *c) {
    return c->new_rows + (c->past > 0 ? c->past : 0);
}

static gqac_tensor sequence(const spec *c, scene *t, int heads, int rows, int size,
                            test_random *r) {
    if (c->flat)
        return test_floats(t->arena, c->dtype, 3, (int64_t[]){c->batch, rows, heads * size}, r);
    return test_floats(t->arena, c->dtype, 4, (int64_t[]){c->batch, heads, rows, size}, r);
}

static void make_mask(const spec *c, scene *t, test_random *r) {
    int64_t full[4] = {c->batch, c->q_heads, c->rows, c->mask_keys},
            *dims = full + 4 - c->mask_rank;
    for (int i = 0; i < 3; i++)
        if (test_random_int(r, 0, 2) == 0)
            full[i] = 1;
    if (c->mask == 2) {
        t->mask = test_floats(t->arena, c->dtype, c->mask_rank, dims, r);
        for (int64_t i = 0; i < gqac_tensor_count(&t->mask); i++)
            if (test_random_int(r, 0, 4) == 0)
                op_put_f32(&t->mask, i, -INFINITY);
        return;
    }
    t->mask = test_tensor(t->arena, GQAC_BOOL, c->mask_rank, dims);
    for (int64_t i = 0; i < gqac_tensor_count(&t->mask); i++)
        op_put_i64(&t->mask, i, test_random_int(r, 0, 3) != 0);
}

static void make_scene(const spec *c, scene *t, test_random *r) {
    memset(t, 0, sizeof *t);
    t->arena = gqac_arena_create(0);
    t->q = sequence(c, t, c->q_heads, c->rows, c->size, r);
    t->k = sequence(c, t, c->kv_heads, c->new_rows, c->size, r);
    t->v = sequence(c, t, c->kv_heads, c->new_rows, c->v_size, r);
    if (c->mask)
        make_mask(c, t, r);
    if (c->past >= 0) {
        int64_t dims[4] = {c->batch, c->kv_heads, c->past, c->size};
        t->past_k = test_floats(t->arena, c->dtype, 4, dims, r);
        dims[3] = c->v_size;
        t->past_v = test_floats(t->arena, c->dtype, 4, dims, r);
    }
    int64_t lengths[8];
    for (int b = 0; b < c->batch; b++)
        lengths[b] = test_random_int(r, 0, keys_of(c));
    if (c->nonpad)
        t->nonpad = test_ints(t->arena, GQAC_I64, 1, (int64_t[]){c->batch}, lengths);
}

static bool open_scene(const spec *c, const scene *t, graph_run *run, int outputs) {
    const gqac_tensor *in[7] = {&t->q,
                                &t->k,
                                &t->v,
                                c->mask ? &t->mask : NULL,
                                c->past >= 0 ? &t->past_k : NULL,
                                c->past >= 0 ? &t->past_v : NULL,
                                c->nonpad ? &t->nonpad : NULL};
    if (!graph_run_open(run, "", "Attention", 7, in, outputs))
        return false;
    if (c->flat) {
        ir_attr_set_int(run->node, "q_num_heads", c->q_heads);
        ir_attr_set_int(run->node, "kv_num_heads", c->kv_heads);
    }
    ir_attr_set_int(run->node, "is_causal", c->causal);
    ir_attr_set_int(run->node, "left_window_size", c->left);
    ir_attr_set_int(run->node, "right_window_size", c->right);
    ir_attr_set_int(run->node, "qk_matmul_output_mode", c->mode);
    ir_attr_set_float(run->node, "softcap", c->softcap);
    if (c->scale != 0)
        ir_attr_set_float(run->node, "scale", c->scale);
    return true;
}

/* Element d of row j of head h, in either layout. */
static double at(const spec *c, const gqac_tensor *x, int b, int h, int heads, int j, int rows,
                 int size, int d) {
    int64_t index = c->flat ? (((int64_t)b * rows + j) * heads + h) * size + d
                            : (((int64_t)b * heads + h) * rows + j) * size + d;
    return op_get_f64(x, index);
}

static double key(const spec *c, const scene *t, bool value, int b, int g, int j, int d) {
    int past = c->past > 0 ? c->past : 0, size = value ? c->v_size : c->size;
    if (j < past)
        return op_get_f64(value ? &t->past_v : &t->past_k,
                          (((int64_t)b * c->kv_heads + g) * past + j) * size + d);
    return at(c, value ? &t->v : &t->k, b, g, c->kv_heads, j - past, c->new_rows, size, d);
}

static bool visible(const spec *c, const scene *t, int b, int i, int j) {
    int valid = c->nonpad ? (int)op_get_i64(&t->nonpad, b) : keys_of(c);
    int own = i + (c->nonpad ? valid - c->rows : c->past > 0 ? c->past : 0);
    return j < valid && !(c->causal && j > own) && !(c->left >= 0 && j < own - c->left) &&
           !(c->right >= 0 && j > own + c->right);
}

/* The value that the mask adds; -inf where it masks. */
static double mask_at(const spec *c, const scene *t, int b, int h, int i, int j) {
    const int place[4] = {b, h, i, j};
    int64_t index = 0;
    if (!c->mask)
        return 0;
    if (j >= c->mask_keys)
        return -INFINITY;
    for (int axis = 0; axis < c->mask_rank; axis++) {
        int64_t dim = t->mask.dims[axis];
        index = index * dim + (dim == 1 ? 0 : place[axis + 4 - c->mask_rank]);
    }
    if (c->mask == 2)
        return op_get_f64(&t->mask, index);
    return op_get_i64(&t->mask, index) ? 0 : -INFINITY;
}

/* The scores of one query; stage[j] is the expected qk_matmul_output. */
static void one_query(const spec *c, const scene *t, int b, int h, int i, double *p,
                      double *stage) {
    double most = -INFINITY, sum = 0;
    int keys = keys_of(c), g = h / (c->q_heads / c->kv_heads);
    for (int j = 0; j < keys; j++) {
        double s = 0;
        for (int d = 0; d < c->size; d++)
            s += at(c, &t->q, b, h, c->q_heads, i, c->rows, c->size, d) * key(c, t, 0, b, g, j, d);
        s *= c->scale != 0 ? c->scale : 1 / sqrt(c->size);
        stage[j] = s;
        if (c->softcap > 0)
            s = c->softcap * tanh(s / c->softcap);
        stage[j] = c->mode >= 1 ? s : stage[j];
        p[j] = visible(c, t, b, i, j) ? s + mask_at(c, t, b, h, i, j) : -INFINITY;
        stage[j] = c->mode >= 2 ? p[j] : stage[j];
        most = fmax(most, p[j]);
    }
    for (int j = 0; j < keys; j++)
        sum += p[j] = most == -INFINITY ? 0 : exp(p[j] - most);
    for (int j = 0; j < keys; j++) {
        p[j] /= sum > 0 ? sum : 1;
        stage[j] = c->mode == 3 ? p[j] : stage[j];
    }
}

static bool near(const spec *c, double want, double have) {
    double most = c->dtype == GQAC_F32 ? 2e-5 : 4e-3;
    return want == have || fabs(want - have) <= most * (1 + fabs(want));
}

static int compare(const spec *c, const scene *t, const graph_run *run) {
    int bad = 0, keys = keys_of(c), group = c->q_heads / c->kv_heads;
    double p[64], stage[64];
    for (int row = 0; row < c->batch * c->q_heads * c->rows; row++) {
        int i = row % c->rows, h = row / c->rows % c->q_heads, b = row / c->rows / c->q_heads;
        one_query(c, t, b, h, i, p, stage);
        for (int d = 0; d < c->v_size; d++) {
            double y = 0;
            for (int j = 0; j < keys; j++)
                y += p[j] == 0 ? 0 : p[j] * key(c, t, 1, b, h / group, j, d);
            bad += !near(c, y, at(c, &run->results[0], b, h, c->q_heads, i, c->rows, c->v_size, d));
        }
        for (int j = 0; j < keys; j++)
            bad += !near(c, stage[j], op_get_f64(&run->results[3], (int64_t)row * keys + j));
    }
    for (int i = 0; i < c->batch * c->kv_heads * keys * c->size; i++)
        bad += key(c, t, 0, i / c->size / keys / c->kv_heads, i / c->size / keys % c->kv_heads,
                   i / c->size % keys, i % c->size) != op_get_f64(&run->results[1], i);
    return bad;
}

static spec random_spec(test_random *r) {
    static const float caps[] = {0, 0, 2, 30}, scales[] = {0, 0, 0.3f, -1};
    spec c = {.batch = test_random_int(r, 1, 3), .kv_heads = test_random_int(r, 1, 3)};
    c.q_heads = c.kv_heads * test_random_int(r, 1, 3);
    c.rows = test_random_int(r, 1, 7);
    c.new_rows = test_random_int(r, 0, 2) ? c.rows : test_random_int(r, 1, 9);
    c.past = test_random_int(r, 0, 2) ? -1 : test_random_int(r, 0, 9);
    c.size = test_random_int(r, 1, 9);
    c.v_size = test_random_int(r, 1, 9);
    c.flat = test_random_int(r, 0, 1);
    c.causal = test_random_int(r, 0, 1);
    c.nonpad = c.past < 0 && test_random_int(r, 0, 2) == 0;
    c.left = test_random_int(r, 0, 2) ? -1 : test_random_int(r, 0, 5);
    c.right = test_random_int(r, 0, 2) ? -1 : test_random_int(r, 0, 5);
    c.mask = test_random_int(r, 0, 2);
    c.mask_rank = test_random_int(r, 1, 4);
    c.mask_keys = test_random_int(r, 0, 2) ? keys_of(&c) : test_random_int(r, 1, keys_of(&c));
    c.mode = test_random_int(r, 0, 3);
    c.softcap = caps[test_random_int(r, 0, 3)];
    c.scale = scales[test_random_int(r, 0, 3)];
    c.dtype = test_random_int(r, 0, 3) ? GQAC_F32 : GQAC_F16;
    return c;
}

static void test_random_nodes(void) {
    test_random r = {.state = 23};
    for (int n = 0; n < 1500; n++) {
        spec c = random_spec(&r);
        scene t;
        graph_run run;
        make_scene(&c, &t, &r);
        CU_ASSERT_FATAL(open_scene(&c, &t, &run, 4));
        gqac_status status = graph_run_all(&run, NULL, NULL);
        int bad = status == GQAC_OK ? compare(&c, &t, &run) : -1;
        if (bad)
            printf("case %d: %d values differ; %s %s\n", n, bad, gqac_status_name(status),
                   run.diag.what);
        CU_ASSERT_EQUAL(bad, 0);
        graph_run_close(&run);
        gqac_arena_free(t.arena);
    }
}

/* Equal keys and one-hot values: y[i][j] > 0 exactly where key j is visible. */
static void test_visibility(void) {
    test_random r = {.state = 5};
    for (int n = 0; n < 300; n++) {
        spec c = random_spec(&r);
        scene t;
        graph_run run;
        c.flat = false;
        c.mask = 0;
        c.v_size = keys_of(&c);
        c.dtype = GQAC_F32;
        make_scene(&c, &t, &r);
        memset(t.k.data, 0, (size_t)gqac_tensor_count(&t.k) * 4);
        int past = c.past > 0 ? c.past : 0;
        if (past)
            memset(t.past_k.data, 0, (size_t)gqac_tensor_count(&t.past_k) * 4);
        for (int64_t i = 0; i < gqac_tensor_count(&t.v); i++)
            op_put_f32(&t.v, i, i % c.v_size == i / c.v_size % c.new_rows + past);
        for (int64_t i = 0; past && i < gqac_tensor_count(&t.past_v); i++)
            op_put_f32(&t.past_v, i, i % c.v_size == i / c.v_size % past);
        CU_ASSERT_FATAL(open_scene(&c, &t, &run, 1));
        CU_ASSERT_FATAL(graph_run_all(&run, NULL, NULL) == GQAC_OK);
        int bad = 0;
        for (int64_t i = 0; i < gqac_tensor_count(&run.results[0]); i++) {
            int64_t row = i / c.v_size;
            int b = (int)(row / c.rows / c.q_heads);
            bad += (op_get_f32(&run.results[0], i) > 0) !=
                   visible(&c, &t, b, (int)(row % c.rows), (int)(i % c.v_size));
        }
        CU_ASSERT_EQUAL(bad, 0);
        graph_run_close(&run);
        gqac_arena_free(t.arena);
    }
}

/* A key that is not visible by its position may contain anything. */
static void test_poison(void) {
    const spec c = {.batch = 2,
                    .q_heads = 2,
                    .kv_heads = 1,
                    .rows = 3,
                    .new_rows = 8,
                    .past = -1,
                    .size = 4,
                    .v_size = 4,
                    .causal = true,
                    .nonpad = true,
                    .left = 1,
                    .right = -1,
                    .dtype = GQAC_F32};
    test_random r = {.state = 9};
    scene t;
    graph_run clean, dirty;
    make_scene(&c, &t, &r);
    op_put_i64(&t.nonpad, 0, 6); /* [2,6) is visible */
    op_put_i64(&t.nonpad, 1, 2); /* no key is visible to the first query; [0,2) to the last */
    CU_ASSERT_FATAL(open_scene(&c, &t, &clean, 1));
    CU_ASSERT_FATAL(graph_run_all(&clean, NULL, NULL) == GQAC_OK);
    for (int64_t i = 0; i < gqac_tensor_count(&t.k); i++) {
        int64_t j = i / c.size % c.new_rows, b = i / c.size / c.new_rows;
        if (b == 0 ? j < 2 || j >= 6 : j >= 2) {
            op_put_f32(&t.k, i, NAN);
            op_put_f32(&t.v, i, NAN);
        }
    }
    CU_ASSERT_FATAL(open_scene(&c, &t, &dirty, 1));
    CU_ASSERT_FATAL(graph_run_all(&dirty, NULL, NULL) == GQAC_OK);
    CU_ASSERT(memcmp(clean.results[0].data, dirty.results[0].data, 2 * 2 * 3 * 4 * 4) == 0);
    for (int h = 0; h < 2; h++)
        for (int d = 0; d < 4; d++)
            CU_ASSERT_EQUAL(op_get_f32(&clean.results[0], ((2 + h) * 3) * 4 + d), 0.0f);
    graph_run_close(&clean);
    graph_run_close(&dirty);
    gqac_arena_free(t.arena);
}

static gqac_tensor rows_of(gqac_arena *arena, const gqac_tensor *x, int64_t first, int64_t n) {
    int64_t dims[4] = {x->dims[0], x->dims[1], n, x->dims[3]};
    gqac_tensor y = test_tensor(arena, x->dtype, 4, dims);
    for (int64_t i = 0; i < gqac_tensor_count(&y); i++) {
        int64_t row = i / dims[3];
        op_put_f32(&y, i,
                   op_get_f32(x, (row / n * x->dims[2] + first + row % n) * dims[3] + i % dims[3]));
    }
    return y;
}

/* Chunks with their past return the bytes of the whole. */
static void check_split(const spec *c, const scene *t, const graph_run *full, test_random *r) {
    scene part = {.arena = t->arena};
    spec chunk = *c;
    part.past_k = rows_of(t->arena, &t->k, 0, 0);
    part.past_v = rows_of(t->arena, &t->v, 0, 0);
    for (int done = 0; done < c->rows; done += chunk.rows) {
        graph_run run;
        chunk.rows = test_random_int(r, 1, c->rows - done);
        chunk.new_rows = chunk.rows;
        chunk.past = done;
        part.q = rows_of(t->arena, &t->q, done, chunk.rows);
        part.k = rows_of(t->arena, &t->k, done, chunk.rows);
        part.v = rows_of(t->arena, &t->v, done, chunk.rows);
        CU_ASSERT_FATAL(open_scene(&chunk, &part, &run, 3));
        CU_ASSERT_FATAL(graph_run_all(&run, NULL, NULL) == GQAC_OK);
        gqac_tensor want = rows_of(t->arena, &full->results[0], done, chunk.rows);
        size_t bytes = (size_t)gqac_tensor_count(&want) * op_width(want.dtype);
        CU_ASSERT(memcmp(want.data, run.results[0].data, bytes) == 0);
        part.past_k = rows_of(t->arena, &run.results[1], 0, done + chunk.rows);
        part.past_v = rows_of(t->arena, &run.results[2], 0, done + chunk.rows);
        graph_run_close(&run);
    }
}

static void test_split(void) {
    test_random r = {.state = 77};
    for (int n = 0; n < 150; n++) {
        spec c = random_spec(&r);
        scene t;
        graph_run full;
        c.rows = c.new_rows = test_random_int(&r, 2, 90);
        c.causal = true;
        c.nonpad = c.flat = false;
        c.past = -1;
        c.mask = 0;
        make_scene(&c, &t, &r);
        CU_ASSERT_FATAL(open_scene(&c, &t, &full, 3));
        CU_ASSERT_FATAL(graph_run_all(&full, NULL, NULL) == GQAC_OK);
        check_split(&c, &t, &full, &r);
        graph_run_close(&full);
        gqac_arena_free(t.arena);
    }
}

/* ---- what is refused ----------------------------------------------------- */

static const struct {
    const char *attr;
    int64_t i;
    float f;
    gqac_status status;
} refusals[] = {
    {"is_causal", 2, 0, GQAC_INVALID_MODEL},
    {"q_num_heads", 0, 0, GQAC_INVALID_MODEL},
    {"kv_num_heads", -1, 0, GQAC_INVALID_MODEL},
    {"softcap", 0, -1, GQAC_INVALID_MODEL},
    {"softcap", 0, NAN, GQAC_INVALID_MODEL},
    {"scale", 0, INFINITY, GQAC_INVALID_MODEL},
    {"softmax_precision", 7, 0, GQAC_INVALID_MODEL},
    {"softmax_precision", 11, 0, GQAC_UNSUPPORTED},
    {"softmax_precision", 10, 0, GQAC_OK},
    {"qk_matmul_output_mode", 4, 0, GQAC_INVALID_MODEL},
    {"left_window_size", -2, 0, GQAC_INVALID_MODEL},
    {"right_window_size", -2, 0, GQAC_INVALID_MODEL},
};

static void test_refused(void) {
    const spec plain = {.batch = 1,
                        .q_heads = 2,
                        .kv_heads = 1,
                        .rows = 2,
                        .new_rows = 2,
                        .past = -1,
                        .size = 4,
                        .v_size = 4,
                        .left = -1,
                        .right = -1,
                        .dtype = GQAC_F32};
    test_random r = {.state = 1};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        scene t;
        graph_run run;
        make_scene(&plain, &t, &r);
        CU_ASSERT_FATAL(open_scene(&plain, &t, &run, 1));
        if (refusals[i].f != 0)
            ir_attr_set_float(run.node, refusals[i].attr, refusals[i].f);
        else
            ir_attr_edit(run.node, refusals[i].attr)->set = true,
                                   ir_attr_set_int(run.node, refusals[i].attr, refusals[i].i);
        gqac_status status = graph_run_check(&run);
        CU_ASSERT_EQUAL(status, refusals[i].status);
        CU_ASSERT(status == GQAC_OK || strstr(run.diag.what, refusals[i].attr));
        graph_run_close(&run);
        gqac_arena_free(t.arena);
    }
}

static void test_refused_inputs(void) {
    spec c = {.batch = 1,
              .q_heads = 2,
              .kv_heads = 1,
              .rows = 2,
              .new_rows = 2,
              .past = 1,
              .size = 4,
              .v_size = 4,
              .nonpad = true,
              .left = -1,
              .right = -1,
              .dtype = GQAC_F32};
    test_random r = {.state = 1};
    scene t;
    graph_run run;
    make_scene(&c, &t, &r);
    CU_ASSERT_FATAL(open_scene(&c, &t, &run, 1));
    CU_ASSERT_EQUAL(graph_run_check(&run), GQAC_INVALID_MODEL); /* a past and nonpad_kv_seqlen */
    graph_run_close(&run);
    c.past = -1;
    op_put_i64(&t.nonpad, 0, 3); /* but there are two keys */
    CU_ASSERT_FATAL(open_scene(&c, &t, &run, 1));
    CU_ASSERT_EQUAL(graph_run_all(&run, NULL, NULL), GQAC_OUT_OF_RANGE);
    graph_run_close(&run);
    gqac_arena_free(t.arena);
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"random nodes", test_random_nodes},  {"visible keys", test_visibility},
        {"NaN in hidden keys", test_poison},  {"split = full", test_split},
        {"refused attributes", test_refused}, {"refused inputs", test_refused_inputs},
    };
    return unit_run("onnx_attention", cases, sizeof cases / sizeof *cases, argc, argv);
}
