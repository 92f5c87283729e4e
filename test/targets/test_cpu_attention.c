/* The attention kernel of the cpu target, at every level that this machine can run.
 *
 * Random cases are computed by the scalar level and by the others, which must produce the same bits
 * for any number of threads, and compared with a plain softmax in double. Everything that is not
 * visible to a query is NaN: keys and values before and after its range, and queries of padding.
 * Then the same tokens are computed in the blocks of sequences, divided into calls at random: again
 * the same bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kernel.h"
#include "levels.h"
#include "numerics/convert.h"
#include "targets/cpu/attention.h"
#include "targets/cpu/graph.h"
#include "targets/cpu/kv.h"
#include "unit.h"

enum { MOST_BATCH = 3 };

static const cpu_level *levels[MAX_LEVELS];
static int n_levels;

static uint64_t seed;
static unsigned any(unsigned n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}
static float number(void) {
    float x = 0;
    for (int i = 0; i < 4; i++)
        x += (float)any(2001) / 1000.0f - 1.0f;
    return x * 0.8f;
}

/* ---- tensors ------------------------------------------------------------- */

static gqac_tensor tensor(gqac_arena *arena, gqac_dtype dtype, int rank, const int64_t *dims) {
    gqac_tensor t = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        t.dims[i] = dims[i];
    const size_t bytes = gqac_tensor_bytes(&t);
    t.data = gqac_arena_alloc(arena, bytes + 1);
    memset(t.data, 0xff, bytes);
    return t;
}

static void put(gqac_tensor *t, int64_t at, float x) {
    if (t->dtype == GQAC_F32)
        ((float *)t->data)[at] = x;
    else
        ((uint16_t *)t->data)[at] = t->dtype == GQAC_F16 ? gqn_f32_to_f16(x) : gqn_f32_to_bf16(x);
}

static float get(const gqac_tensor *t, int64_t at) {
    if (t->dtype == GQAC_F32)
        return ((const float *)t->data)[at];
    const uint16_t bits = ((const uint16_t *)t->data)[at];
    return t->dtype == GQAC_F16 ? gqn_f16_to_f32(bits) : gqn_bf16_to_f32(bits);
}

/* ---- cases --------------------------------------------------------------- */

typedef struct sample {
    gqac_arena *arena;
    ir_module *module;
    int64_t batch, kv_heads, group, queries, keys, size, value_size, window;
    float scale, softcap;
    bool causal, bf16;
    int stage; /* stage of the scores that are an output; 0: none */
    int32_t past[MOST_BATCH], fresh[MOST_BATCH];
    gqac_dtype dtype;
    gqac_tensor q, k, v, past_len, new_len, bias, sink; /* rank -1: absent */
    ir_node *node;
} sample;

static int64_t first_key(const sample *c, int64_t b, int64_t s) {
    const int64_t first = c->past[b] + s + 1 - c->window;
    return c->window > 0 && first > 0 ? first : 0;
}
static int64_t end_key(const sample *c, int64_t b, int64_t s) {
    return c->causal ? c->past[b] + s + 1 : c->past[b] + c->fresh[b];
}

/* Random numbers where any query reads, NaN elsewhere. */
static void fill(sample *c) {
    const int64_t heads = c->kv_heads * c->group;
    for (int64_t b = 0; b < c->batch; b++) {
        const int64_t from = c->fresh[b] ? first_key(c, b, 0) : 0;
        const int64_t to = c->fresh[b] ? c->past[b] + c->fresh[b] : 0;
        for (int64_t h = 0; h < heads; h++)
            for (int64_t s = 0; s < c->fresh[b]; s++)
                for (int64_t d = 0; d < c->size; d++)
                    put(&c->q, ((b * heads + h) * c->queries + s) * c->size + d, number());
        for (int64_t h = 0; h < c->kv_heads; h++)
            for (int64_t j = from; j < to; j++) {
                const int64_t row = (b * c->kv_heads + h) * c->keys + j;
                for (int64_t d = 0; d < c->size; d++)
                    put(&c->k, row * c->size + d, number());
                for (int64_t d = 0; d < c->value_size; d++)
                    put(&c->v, row * c->value_size + d, number());
            }
    }
}

static void make_node(sample *c) {
    const gqac_tensor *all[] = {&c->q, &c->k, &c->v, &c->past_len, &c->new_len, &c->bias, &c->sink};
    ir_value *values[7] = {NULL};
    gqac_diag diag = {0};
    c->bf16 = any(2) && !c->stage; /* scores that are an output are fp32 */
    c->module = ir_module_create(c->arena, "test");
    c->module->graph = ir_graph_create(c->module, "test");
    for (int i = 0; i < 7; i++)
        if (all[i]->rank >= 0)
            values[i] =
                ir_graph_add_input(c->module->graph, "x", ir_type_of_tensor(c->module, all[i]));
    ir_builder b = {.graph = c->module->graph, .diag = &diag};
    c->node = op_build(&b, "gqac", "attention", 7, values, c->stage ? 2 : 1);
    if (c->stage)
        ir_attr_set_int(c->node, "qk_stage", c->stage);
    ir_attr_set_float(c->node, "scale", c->scale);
    ir_attr_set_float(c->node, "softcap", c->softcap);
    ir_attr_set_int(c->node, "causal", c->causal);
    ir_attr_set_int(c->node, "window", c->window);
    ir_attr_set_int(c->node, "bf16", c->bf16);
    CU_ASSERT_EQUAL_FATAL(op_infer(c->node, &diag), GQAC_OK);
    CU_ASSERT_TRUE_FATAL(cpu_attention_match(c->node));
}

static void make_operands(sample *c, bool bias, bool sink) {
    const int64_t heads = c->kv_heads * c->group;
    c->q = tensor(c->arena, c->dtype, 4, (int64_t[]){c->batch, heads, c->queries, c->size});
    c->k = tensor(c->arena, c->dtype, 4, (int64_t[]){c->batch, c->kv_heads, c->keys, c->size});
    c->v =
        tensor(c->arena, c->dtype, 4, (int64_t[]){c->batch, c->kv_heads, c->keys, c->value_size});
    c->past_len = tensor(c->arena, GQAC_I32, 1, &c->batch);
    c->new_len = tensor(c->arena, GQAC_I32, 1, &c->batch);
    memcpy(c->past_len.data, c->past, sizeof(int32_t) * (size_t)c->batch);
    memcpy(c->new_len.data, c->fresh, sizeof(int32_t) * (size_t)c->batch);
    c->bias = c->sink = (gqac_tensor){.rank = -1};
    if (bias) {
        c->bias = tensor(c->arena, c->dtype, 4,
                         (int64_t[]){any(2) ? c->batch : 1, any(2) ? heads : 1,
                                     any(2) ? c->queries : 1, c->keys});
        for (int64_t i = 0; i < gqac_tensor_count(&c->bias); i++)
            put(&c->bias, i, any(40) ? number() : -(float)INFINITY);
    }
    if (sink) {
        c->sink = tensor(c->arena, c->dtype, 1, &heads);
        for (int64_t h = 0; h < heads; h++)
            put(&c->sink, h, number());
    }
    fill(c);
}

static void make_sample(sample *c, int most_keys) {
    static const int sizes[] = {8, 20, 64, 80, 128, 256}, groups[] = {1, 3, 4, 7};
    static const int64_t edges[] = {1, 63, 64, 65, 128, 511, 512, 513, 577, 1030};
    memset(c, 0, sizeof *c);
    c->arena = gqac_arena_create(0);
    c->batch = 1 + any(MOST_BATCH);
    c->kv_heads = 1 + any(2);
    c->group = groups[any(4)];
    c->size = sizes[any(6)];
    c->value_size = any(3) ? c->size : sizes[any(6)];
    c->dtype = any(2) ? GQAC_F32 : any(2) ? GQAC_F16 : GQAC_BF16;
    c->scale = 1.0f / sqrtf((float)c->size);
    c->softcap = any(4) ? 0 : 3.0f;
    c->causal = any(5) != 0;
    c->stage = any(4) ? 0 : 1 + (int)any(2);
    c->window = c->causal && !any(3) ? 1 + (int64_t)any(100) : -1;
    c->queries = any(3) ? 1 + any(5) : 1 + any(90);
    for (int b = 0; b < c->batch; b++) {
        int64_t end = edges[any(10)] + any(3) - 1;
        end = end > most_keys ? most_keys : end;
        c->fresh[b] = (int32_t)(any(3) ? c->queries : any((unsigned)c->queries + 1));
        end = end < c->fresh[b] ? c->fresh[b] : end;
        c->past[b] = (int32_t)end - c->fresh[b];
        c->keys = end > c->keys ? end : c->keys;
    }
    c->keys += any(3);
    make_operands(c, !any(3), !any(3));
    make_node(c);
}

/* ---- running ------------------------------------------------------------- */

static gqac_status attend(const sample *c, const gqac_tensor *const *in, gqac_tensor *out,
                          const void *level, gqac_pool *pool, const kv_batch *kv, gqac_diag *diag) {
    return kernel_try(c->arena, c->node, cpu_bind_attention, cpu_attention_run, in, out, level,
                      pool, kv, diag);
}

/* Computes y and the scores that are an output; rank -1: none. */
static void run(const sample *c, const void *level, gqac_pool *pool, gqac_tensor out[2]) {
    const gqac_tensor *all[] = {&c->q, &c->k, &c->v, &c->past_len, &c->new_len, &c->bias, &c->sink};
    const gqac_tensor *in[7];
    gqac_diag diag = {0};
    out[0] = out[1] = (gqac_tensor){.rank = -1};
    for (int i = 0; i < 7; i++)
        in[i] = all[i]->rank >= 0 ? all[i] : NULL;
    CU_ASSERT_EQUAL_FATAL(attend(c, in, out, level, pool, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL(out[1].rank >= 0, c->stage != 0);
}

static void check_same(const gqac_tensor *is, const gqac_tensor *want) {
    for (int i = 0; i < 2; i++)
        CU_ASSERT(want[i].rank < 0 ||
                  !memcmp(is[i].data, want[i].data, gqac_tensor_bytes(&want[i])));
}

/* ---- the oracle ---------------------------------------------------------- */

/* A factor in q k^T or p v. */
static double factor(const sample *c, const gqac_tensor *t, int64_t at) {
    const float x = get(t, at);
    return (double)(c->bf16 ? gqn_bf16_to_f32(gqn_bf16_factor(x)) : x);
}

static double score_of(const sample *c, int64_t b, int64_t h, int64_t s, int64_t j) {
    const int64_t heads = c->kv_heads * c->group;
    double sum = 0;
    for (int64_t d = 0; d < c->size; d++)
        sum += factor(c, &c->q, ((b * heads + h) * c->queries + s) * c->size + d) *
               factor(c, &c->k, ((b * c->kv_heads + h / c->group) * c->keys + j) * c->size + d);
    sum *= (double)c->scale;
    if (c->softcap > 0)
        sum = (double)c->softcap * tanh(sum / (double)c->softcap);
    if (c->bias.rank >= 0) {
        const int64_t *n = c->bias.dims;
        const int64_t row =
            ((n[0] > 1 ? b : 0) * n[1] + (n[1] > 1 ? h : 0)) * n[2] + (n[2] > 1 ? s : 0);
        sum += (double)get(&c->bias, row * n[3] + j);
    }
    return sum;
}

/* True if the scores of a row that are an output are accurate, given its scores and weights; 0 for
 * other keys.
 * */
static bool near_shown(const sample *c, const gqac_tensor *shown, int64_t b, int64_t h, int64_t s,
                       const double *scores, const double *weights) {
    const int64_t heads = c->kv_heads * c->group, lo = first_key(c, b, s), hi = end_key(c, b, s);
    const float *is = (const float *)shown->data + ((b * heads + h) * c->queries + s) * c->keys;
    bool near = true;
    for (int64_t j = 0; j < c->keys; j++) {
        const double want = j < lo || j >= hi ? 0 : c->stage == 1 ? scores[j] : weights[j];
        near = near && ((double)is[j] == want || fabs(is[j] - want) <= 1e-5 * (1 + fabs(want)));
    }
    return near;
}

/* True if one row of y is close to the softmax in double. */
static bool near_row(const sample *c, const gqac_tensor *out, int64_t b, int64_t h, int64_t s) {
    const gqac_tensor *y = &out[0];
    const int64_t lo = first_key(c, b, s), hi = end_key(c, b, s);
    const int64_t heads = c->kv_heads * c->group;
    double *p = malloc(sizeof *p * (size_t)(hi + 1)), most = -INFINITY, sum = 0;
    double *scores = malloc(sizeof *p * (size_t)(hi + 1));
    for (int64_t j = lo; j < hi; j++) {
        scores[j] = p[j] = score_of(c, b, h, s, j);
        most = p[j] > most ? p[j] : most;
    }
    const double sink = c->sink.rank >= 0 ? (double)get(&c->sink, h) : -INFINITY;
    most = sink > most ? sink : most;
    for (int64_t j = lo; j < hi; j++)
        sum += p[j] = most == -INFINITY ? 0 : exp(p[j] - most);
    sum += most == -INFINITY ? 1 : exp(sink - most);
    double *weights = malloc(sizeof *p * (size_t)(hi + 1));
    for (int64_t j = lo; j < hi; j++)
        weights[j] = p[j] / sum;
    bool near = !c->stage || near_shown(c, &out[1], b, h, s, scores, weights);
    free(scores);
    free(weights);
    const double eps = c->dtype == GQAC_F32 ? 1e-7 : c->dtype == GQAC_F16 ? 5e-4 : 4e-3;
    for (int64_t d = 0; d < c->value_size; d++) {
        double want = 0, size = 0;
        for (int64_t j = lo; j < hi; j++) {
            const int64_t row = (b * c->kv_heads + h / c->group) * c->keys + j;
            const double v = factor(c, &c->v, row * c->value_size + d);
            want += p[j] / sum * v;
            size += p[j] / sum * fabs(v);
        }
        const double is = (double)get(y, ((b * c->queries + s) * heads + h) * c->value_size + d);
        const double weights = c->bf16 ? 0x1p-8 : 0; /* each weight is rounded */
        near = near && fabs(is - want) <= (weights + 1e-5) * size + eps * fabs(want) + 1e-7;
    }
    free(p);
    return near;
}

/* Results of padding are zeros. */
static bool near_all(const sample *c, const gqac_tensor *out) {
    const gqac_tensor *y = &out[0];
    const int64_t heads = c->kv_heads * c->group, width = heads * c->value_size;
    bool near = true;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t s = 0; s < c->queries; s++) {
            for (int64_t d = 0; s >= c->fresh[b] && d < width; d++)
                near = near && get(y, (b * c->queries + s) * width + d) == 0;
            for (int64_t h = 0; c->stage && s >= c->fresh[b] && h < heads; h++)
                for (int64_t j = 0; j < c->keys; j++)
                    near =
                        near && get(&out[1], ((b * heads + h) * c->queries + s) * c->keys + j) == 0;
            for (int64_t h = 0; s < c->fresh[b] && h < heads; h++)
                near = near && near_row(c, out, b, h, s);
        }
    return near;
}

/* ---- cases --------------------------------------------------------------- */

/* Every level with one thread and with more. Three larger numbers of threads are used alternately,
 * so that each level uses each of them in a third of the cases; in the long tier all of them in
 * each case. */
static void test_levels(void) {
    const int cases = unit_count(60, 300);
    gqac_pool *pools[3] = {NULL};
    gqac_diag diag = {0};
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL_FATAL(gqac_pool_create((int[]){2, 3, 5}[i], &pools[i], &diag), GQAC_OK);
    seed = 1;
    for (int i = 0; i < cases; i++) {
        sample c;
        make_sample(&c, i % 4 ? 200 : 1100);
        gqac_tensor want[2], is[2];
        run(&c, levels[0], NULL, want);
        CU_ASSERT_TRUE(near_all(&c, want));
        for (int level = 0; level < n_levels; level++)
            for (int t = 0; t < 4; t++) {
                const bool is_turn = t ? t - 1 == (i + level) % 3 : level > 0;
                if (!is_turn && !unit_full())
                    continue;
                run(&c, levels[level], t ? pools[t - 1] : NULL, is);
                check_same(is, want);
            }
        gqac_arena_free(c.arena);
    }
    for (int i = 0; i < 3; i++)
        gqac_pool_free(pools[i]);
}

/* A row with only -inf results in zeros; a NaN among the keys of a row affects only that row. */
static void test_special(void) {
    sample c = {0};
    seed = 7;
    do {
        gqac_arena_free(c.arena);
        make_sample(&c, 100);
    } while (c.bias.rank < 0 || c.sink.rank >= 0 || c.fresh[0] < 2 || !c.causal ||
             c.dtype != GQAC_F32 || c.queries < 2 || c.bias.dims[2] < 2);
    const int64_t keys = c.bias.dims[3], row = c.kv_heads * c.group * c.value_size;
    for (int64_t h = 0; h < c.bias.dims[1]; h++) {
        float *at = (float *)c.bias.data + h * c.bias.dims[2] * keys;
        for (int64_t j = 0; j < keys; j++)
            at[j] = -(float)INFINITY;
        at[keys + first_key(&c, 0, 1)] = (float)NAN;
    }
    for (int level = 0; level < n_levels; level++) {
        gqac_tensor out[2];
        run(&c, levels[level], NULL, out);
        const gqac_tensor y = out[0];
        for (int64_t d = 0; d < row; d++) {
            CU_ASSERT_EQUAL(((const uint32_t *)y.data)[d], 0);
            CU_ASSERT_EQUAL(((const uint32_t *)y.data)[row + d], GQN_NAN_BITS);
        }
    }
    gqac_arena_free(c.arena);
}

/* The values of a key do not affect queries before it. */
static void test_later_values(void) {
    const int cases = unit_count(8, 40);
    seed = 21;
    for (int i = 0; i < cases;) {
        sample c;
        gqac_tensor want[2], is[2];
        make_sample(&c, 150);
        if (c.causal && c.fresh[0] > 1 && c.dtype == GQAC_F32) {
            const size_t row = (size_t)(c.kv_heads * c.group * c.value_size) * sizeof(float);
            const int64_t s = 1 + any((unsigned)c.fresh[0] - 1);
            run(&c, levels[0], NULL, want);
            for (int64_t h = 0; h < c.kv_heads; h++)
                for (int64_t d = 0; d < c.value_size; d++)
                    put(&c.v, (h * c.keys + c.past[0] + s) * c.value_size + d,
                        any(2) ? (float)INFINITY : (float)NAN);
            for (int level = 0; level < n_levels; level++) {
                run(&c, levels[level], NULL, is);
                CU_ASSERT_EQUAL(memcmp(is[0].data, want[0].data, (size_t)s * row), 0);
            }
            i++;
        }
        gqac_arena_free(c.arena);
    }
}

/* ---- through sequences --------------------------------------------------- */

typedef struct chat {
    const sample *c; /* one batch row without a past: all its tokens */
    ir_module *module;
    ir_node *append[2], *node;
    kv_pool *pool;
    kv_sequence *sequence;
    const void *level;
    gqac_pool *threads;
    gqac_arena *arena;
} chat;

static ir_node *make_append(ir_builder *b, ir_value *rows, ir_value *const *lengths, int slot) {
    ir_node *state = op_build(b, "gqac", "kv_state", 0, NULL, 1);
    ir_node *append = op_build(b, "gqac", "kv_append", 4,
                               (ir_value *[]){state->outputs[0], rows, lengths[0], lengths[1]}, 2);
    gqac_diag diag = {0};
    ir_attr_set_int(state, "slot", slot);
    ir_attr_set_int(append, "slot", slot);
    CU_ASSERT_EQUAL_FATAL(op_infer(state, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(op_infer(append, &diag), GQAC_OK);
    return append;
}

static void open_chat(chat *t, const sample *c) {
    static const target_kernel claim = {.name = "attention", .bind = cpu_bind_attention};
    const gqac_tensor *all[] = {&c->q, &c->k, &c->v, &c->past_len, &c->new_len};
    gqac_diag diag = {0};
    ir_value *in[5];
    t->module = ir_module_create(t->arena, "test");
    t->module->graph = ir_graph_create(t->module, "test");
    for (int i = 0; i < 5; i++)
        in[i] = ir_graph_add_input(t->module->graph, "x", ir_type_of_tensor(t->module, all[i]));
    ir_builder b = {.graph = t->module->graph, .diag = &diag};
    t->append[0] = make_append(&b, in[1], in + 3, 0);
    t->append[1] = make_append(&b, in[2], in + 3, 1);
    t->node = op_build(
        &b, "gqac", "attention", 5,
        (ir_value *[]){in[0], t->append[0]->outputs[1], t->append[1]->outputs[1], in[3], in[4]},
        c->stage ? 2 : 1);
    if (c->stage)
        ir_attr_set_int(t->node, "qk_stage", c->stage);
    ir_attr_set_float(t->node, "scale", c->scale);
    ir_attr_set_float(t->node, "softcap", c->softcap);
    ir_attr_set_int(t->node, "window", c->window);
    ir_attr_set_int(t->node, "bf16", c->bf16);
    CU_ASSERT_EQUAL_FATAL(op_infer(t->node, &diag), GQAC_OK);
    CU_ASSERT_TRUE_FATAL(cpu_attention_match(t->node));
    const ir_node *states[2] = {t->append[0]->inputs[0].value->def,
                                t->append[1]->inputs[0].value->def};
    CU_ASSERT_FALSE(cpu_kv_columns(states[0])); /* the reader is not claimed */
    t->node->claim = &claim;
    CU_ASSERT_TRUE(cpu_kv_columns(states[0]));
    CU_ASSERT_FALSE(cpu_kv_columns(states[1]));
    kv_slot slots[2];
    for (int i = 0; i < 2; i++)
        slots[i] = (kv_slot){.past = "past",
                             .present = "present",
                             .heads = c->kv_heads,
                             .head_size = i ? c->value_size : c->size,
                             .dtype = c->dtype,
                             .columns = cpu_kv_columns(states[i])};
    CU_ASSERT_EQUAL_FATAL(kv_pool_create(2, slots, &t->pool, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(kv_sequence_create(t->pool, "contiguous", 0, &t->sequence, &diag),
                          GQAC_OK);
}

/* Rows [first, first + n) of axis 2, as a tensor. */
static gqac_tensor rows_of(gqac_arena *arena, const gqac_tensor *x, int64_t first, int64_t n) {
    gqac_tensor t = tensor(arena, x->dtype, 4, (int64_t[]){1, x->dims[1], n, x->dims[3]});
    const size_t row = (size_t)x->dims[3] * (size_t)gqac_dtype_bits(x->dtype) / 8;
    for (int64_t h = 0; h < x->dims[1]; h++)
        memcpy((char *)t.data + (size_t)(h * n) * row,
               (const char *)x->data + (size_t)(h * x->dims[2] + first) * row, (size_t)n * row);
    return t;
}

static void step(chat *t, int64_t past, int64_t count, gqac_tensor out[2]) {
    const sample *c = t->c;
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL_FATAL(kv_sequence_reserve(t->sequence, past + count, &diag), GQAC_OK);
    const int64_t begin = 0;
    kv_batch batch = {
        .n = 1, .sequences = &t->sequence, .past = &past, .count = &count, .begin = &begin};
    gqac_tensor q = rows_of(t->arena, &c->q, past, count);
    gqac_tensor fresh[2] = {rows_of(t->arena, &c->k, past, count),
                            rows_of(t->arena, &c->v, past, count)};
    gqac_tensor lengths[2] = {tensor(t->arena, GQAC_I32, 1, (int64_t[]){1}),
                              tensor(t->arena, GQAC_I32, 1, (int64_t[]){1})};
    *(int32_t *)lengths[0].data = (int32_t)past;
    *(int32_t *)lengths[1].data = (int32_t)count;
    gqac_tensor rows[2];
    for (int i = 0; i < 2; i++) {
        const gqac_tensor *in[] = {NULL, &fresh[i], &lengths[0], &lengths[1]};
        CU_ASSERT_EQUAL_FATAL(kernel_try(t->arena, t->append[i], cpu_bind_kv_append,
                                         cpu_kv_append_run, in, out, t->level, t->threads, &batch,
                                         &diag),
                              GQAC_OK);
        rows[i] = out[1];
        CU_ASSERT_PTR_NULL(rows[i].data); /* read from the blocks */
    }
    const gqac_tensor *in[] = {&q, &rows[0], &rows[1], &lengths[0], &lengths[1]};
    CU_ASSERT_EQUAL_FATAL(kernel_try(t->arena, t->node, cpu_bind_attention, cpu_attention_run, in,
                                     out, t->level, t->threads, &batch, &diag),
                          GQAC_OK);
    kv_sequence_publish(t->sequence, past + count);
}

/* Checks that queries [past, past + count) have the bits that they have in the whole. */
static void check_step(const sample *c, const gqac_tensor *is, const gqac_tensor *want,
                       int64_t past, int64_t count) {
    const int64_t heads = c->kv_heads * c->group;
    const size_t width = (size_t)(heads * c->value_size) * (size_t)gqac_dtype_bits(c->dtype) / 8;
    CU_ASSERT(!memcmp(is[0].data, (const char *)want[0].data + (size_t)past * width,
                      (size_t)count * width));
    for (int64_t i = 0; c->stage && i < heads * count; i++) {
        const float *row =
            (const float *)want[1].data + (i / count * c->queries + past + i % count) * c->keys;
        CU_ASSERT(!memcmp((const float *)is[1].data + i * (past + count), row,
                          sizeof *row * (size_t)(past + count)));
    }
}

static void test_sequences(void) {
    gqac_pool *pool = NULL;
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL_FATAL(gqac_pool_create(3, &pool, &diag), GQAC_OK);
    seed = 3;
    for (int i = 0; i < unit_count(16, 60); i++) {
        sample c;
        make_sample(&c, 10);
        c.batch = 1;
        c.causal = true;
        c.past[0] = 0;
        c.queries = c.keys = c.fresh[0] = (int32_t)(i % 4 ? 130 + any(30) : 520 + any(60));
        make_operands(&c, false, false);
        make_node(&c);
        gqac_tensor whole[2], is[2];
        run(&c, levels[0], NULL, whole);
        for (int level = i % 2; level < n_levels; level++) {
            chat t = {.c = &c, .level = levels[level], .arena = c.arena};
            t.threads = any(2) ? pool : NULL;
            open_chat(&t, &c);
            for (int64_t past = 0, n; past < c.queries; past += n) {
                n = any(2) ? 1 : 1 + any(100);
                n = n > c.queries - past ? c.queries - past : n;
                step(&t, past, n, is);
                check_step(&c, is, whole, past, n);
            }
            kv_sequence_free(t.sequence);
            kv_pool_free(t.pool);
        }
        gqac_arena_free(c.arena);
    }
    gqac_pool_free(pool);
}

/* Lengths that exceed the keys, and shapes that do not fit, are refused. */
static void test_refusals(void) {
    sample c;
    seed = 11;
    make_sample(&c, 100);
    const gqac_tensor *in[] = {&c.q,
                               &c.k,
                               &c.v,
                               &c.past_len,
                               &c.new_len,
                               c.bias.rank >= 0 ? &c.bias : NULL,
                               c.sink.rank >= 0 ? &c.sink : NULL};
    gqac_tensor out[2];
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL(attend(&c, in, out, levels[0], NULL, NULL, &diag), GQAC_OK);
    int32_t *past = c.past_len.data, *fresh = c.new_len.data;
    fresh[0] = 1;
    past[0] = (int32_t)c.keys;
    CU_ASSERT_EQUAL(attend(&c, in, out, levels[0], NULL, NULL, &diag), GQAC_OUT_OF_RANGE);
    past[0] = -1;
    CU_ASSERT_EQUAL(attend(&c, in, out, levels[0], NULL, NULL, &diag), GQAC_OUT_OF_RANGE);
    past[0] = 0;
    fresh[0] = (int32_t)c.queries + 1;
    CU_ASSERT_EQUAL(attend(&c, in, out, levels[0], NULL, NULL, &diag), GQAC_OUT_OF_RANGE);
    fresh[0] = 1;
    c.v.dims[2]--;
    CU_ASSERT_EQUAL(attend(&c, in, out, levels[0], NULL, NULL, &diag), GQAC_INVALID_INPUT);
    gqac_arena_free(c.arena);
}

int main(int argc, char **argv) {
    n_levels = find_levels(levels);
    static const unit_case cases[] = {
        {"levels, threads and a softmax in double", test_levels},
        {"rows of -inf and NaN", test_special},
        {"values of later keys", test_later_values},
        {"any cut into calls through blocks", test_sequences},
        {"lengths and shapes that do not fit", test_refusals},
    };
    return unit_run("cpu attention", cases, sizeof cases / sizeof *cases, argc, argv);
}
