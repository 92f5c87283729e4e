/* linear_nbits: the layout of words; expand restores what was packed; and every level of this
 * machine has the bits of the scalar one, whatever rows are computed together. */
#include "levels.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "numerics/dialect.h"
#include "ops/shared.h"
#include "targets/cpu/nbits.h"
#include "targets/cpu/pack.h"

typedef struct test_random {
    uint64_t state;
} test_random;

static uint32_t test_random_bits(test_random *r) {
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((r->state ^ r->state >> 29) * 0x9e3779b97f4a7c15u >> 32);
}

static int test_random_int(test_random *r, int lo, int hi) {
    return lo + (int)(test_random_bits(r) % (uint32_t)(hi - lo + 1));
}

static float test_random_float(test_random *r) {
    return (float)(int32_t)test_random_bits(r) * 0x1p-30f;
}

static void test_words(void) {
    test_random r = {.state = 11};
    for (int i = 0; i < 3000; i++) {
        const int bits = 2 << i % 3;
        const uint32_t x = test_random_bits(&r), most = (1u << bits) - 1,
                       y = nbits_pack_word(x, bits);
        CU_ASSERT_EQUAL(nbits_unpack_word(y, bits), x);
        for (int k = 0; k < 32 / bits; k++)
            CU_ASSERT_EQUAL(y >> (8 * (k % 4) + bits * (k / 4)) & most, x >> k * bits & most);
    }
}

/* ---- levels -------------------------------------------------------------------- */

typedef struct work {
    gqac_arena *arena;
    cpu_nbits_weights w;
    cpu_nbits_rows a; /* quantised by the scalar level */
    float *steps, *x;
    int64_t rows;
    bool int8, bias;
} work;

static void *random_bytes(gqac_arena *arena, size_t n, unsigned most, test_random *r) {
    uint8_t *bytes = gqac_arena_alloc(arena, n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(test_random_bits(r) & most);
    return bytes;
}

static void *random_floats(gqac_arena *arena, gqac_dtype dtype, int64_t n, test_random *r) {
    gqac_tensor t = {.dtype = dtype, .rank = 1, .dims = {n}};
    t.data = gqac_arena_alloc(arena, gqac_tensor_bytes(&t));
    for (int64_t i = 0; i < n; i++)
        op_put_f32(&t, i, test_random_float(r));
    return t.data;
}

static work make_work(test_random *r, int64_t depth, int bits, int64_t block, int64_t rows,
                      bool int8) {
    static const gqac_dtype types[] = {GQAC_F32, GQAC_F16, GQAC_BF16};
    work k = {.arena = gqac_arena_create(0),
              .rows = rows,
              .int8 = int8,
              .bias = test_random_int(r, 0, 1)};
    k.w.shape = nbits_shape_of(depth, 128, bits, block);
    const nbits_shape *s = &k.w.shape;
    const int64_t n = s->panels * s->blocks * NBITS_COLUMNS;
    k.w.codes = random_bytes(k.arena, (size_t)(s->panels * s->words * NBITS_WORD_BYTES), 255, r);
    k.w.scale_type = types[test_random_int(r, 0, 2)];
    k.w.scales = random_floats(k.arena, k.w.scale_type, n, r);
    if (test_random_int(r, 0, 1)) {
        k.w.zero_type =
            k.int8 || test_random_int(r, 0, 1) ? GQAC_U8 : types[test_random_int(r, 0, 2)];
        k.w.zeros = k.w.zero_type == GQAC_U8 ? random_bytes(k.arena, (size_t)n, (1u << bits) - 1, r)
                                             : random_floats(k.arena, k.w.zero_type, n, r);
    }
    const int64_t padded = s->blocks * s->block,
                  steps = (s->k + CPU_NBITS_STEP - 1) / CPU_NBITS_STEP;
    k.x = GQAC_ARENA_ARRAY(k.arena, float, (size_t)(k.rows * padded));
    k.steps = gqac_arena_alloc(k.arena, (size_t)(k.rows * steps * CPU_NBITS_STEP) * sizeof(float));
    memset(k.steps, 0xff, (size_t)(k.rows * steps * CPU_NBITS_STEP) * sizeof(float)); /* NaN */
    for (int64_t m = 0; m < k.rows; m++)
        for (int64_t i = 0; i < s->k; i++) {
            const float v = test_random_int(r, 0, 19) ? test_random_float(r) : 0.0f;
            k.x[m * padded + i] = v;
            k.steps[i / CPU_NBITS_STEP * CPU_NBITS_STEP * k.rows + m * CPU_NBITS_STEP +
                    i % CPU_NBITS_STEP] = v;
        }
    if (test_random_int(r, 0, 9) == 0)
        k.x[0] = gqn_as_f32(test_random_int(r, 0, 1) ? GQN_INF_BITS : GQN_NAN_BITS);
    return k;
}

static work random_work(test_random *r) {
    static const int64_t depths[] = {1, 16, 63, 300, 512, 513, 1040, 1536};
    const int bits = 2 << test_random_int(r, 0, 2);
    const int64_t block = 16 << test_random_int(r, 0, 5);
    const bool int8 = nbits_int8(4, bits, block, false) && test_random_int(r, 0, 1);
    return make_work(r, depths[test_random_int(r, 0, 7)], bits, block, test_random_int(r, 1, 20),
                     int8);
}

static cpu_nbits_rows quantised(const work *k, const cpu_nbits_kernels *kernels) {
    const nbits_shape *s = &k->w.shape;
    const size_t n = (size_t)(k->rows * s->blocks);
    cpu_nbits_rows a = {.rows = k->rows,
                        .qa = gqac_arena_calloc(k->arena, n, (size_t)s->block),
                        .scale = GQAC_ARENA_ARRAY(k->arena, float, n),
                        .sum = GQAC_ARENA_ARRAY(k->arena, int32_t, n)};
    for (int64_t m = 0; m < k->rows; m++)
        kernels->quantise(s, k->x + m * s->blocks * s->block, m, &a);
    return a;
}

/* Computes rows first .. first + count of the last panel. */
static void compute(const work *k, const cpu_nbits_kernels *kernels, int64_t first, int64_t count,
                    cpu_nbits_scratch *scratch) {
    float bias[NBITS_COLUMNS];
    for (int i = 0; i < NBITS_COLUMNS; i++)
        bias[i] = (float)i - 20;
    memset(scratch, 0xff, sizeof *scratch);
    if (k->int8)
        kernels->int8(&k->w, k->w.shape.panels - 1, &k->a, first, count, scratch);
    else
        kernels->fp32(&k->w, k->w.shape.panels - 1, k->steps, k->rows, first, count, scratch);
    kernels->finish(scratch->y, count, k->bias ? bias : NULL);
}

/* One element computed by hand as a sum of blocks, with which the scalar level itself is
 * compared. */
static float element(const work *k, int64_t row, int64_t column) {
    const nbits_shape *s = &k->w.shape;
    float total = 0, piece = 0;
    for (int64_t i = 0; i < s->k; i++) {
        const int64_t panel = s->panels - 1, per = 32 / s->bits;
        const int64_t at = (panel * s->blocks + i / s->block) * NBITS_COLUMNS + column;
        const uint8_t *from =
            k->w.codes + ((panel * s->words + i / per) * NBITS_COLUMNS + column) * 4;
        uint32_t word;
        memcpy(&word, from, sizeof word);
        word = nbits_unpack_word(word, s->bits) >> i % per * s->bits & ((1u << s->bits) - 1);
        const gqac_tensor scales = {.dtype = k->w.scale_type,
                                    .data = (void *)(uintptr_t)k->w.scales};
        const gqac_tensor zeros = {.dtype = k->w.zero_type, .data = (void *)(uintptr_t)k->w.zeros};
        const float zero = k->w.zeros ? op_get_f32(&zeros, at) : (float)(1 << (s->bits - 1));
        const float w = ((float)word - zero) * op_get_f32(&scales, at);
        if (i > 0 && i % GQAC_K_PIECE == 0) {
            total = i == GQAC_K_PIECE ? piece : total + piece;
            piece = 0;
        }
        piece = gqn_fma(k->x[row * s->blocks * s->block + i], w, piece);
    }
    return s->k <= GQAC_K_PIECE ? piece : total + piece;
}

static void check_level(const work *k, const cpu_nbits_kernels *kernels,
                        const cpu_nbits_scratch *want, cpu_nbits_scratch *scratch, test_random *r) {
    const nbits_shape *s = &k->w.shape;
    const size_t row = NBITS_COLUMNS * sizeof(float), n = (size_t)(k->rows * s->blocks);
    const cpu_nbits_rows a = quantised(k, kernels);
    CU_ASSERT(!memcmp(a.qa, k->a.qa, n * (size_t)s->block));
    CU_ASSERT(!memcmp(a.scale, k->a.scale, n * sizeof *a.scale));
    CU_ASSERT(!memcmp(a.sum, k->a.sum, n * sizeof *a.sum));
    compute(k, kernels, 0, k->rows, scratch);
    CU_ASSERT(!memcmp(scratch->y, want->y, (size_t)k->rows * row));
    if (k->rows < 3)
        return;
    const int64_t first = test_random_int(r, 0, (int)k->rows - 1), count = k->rows - first;
    compute(k, kernels, first, count, scratch);
    CU_ASSERT(!memcmp(scratch->y, want->y + first * NBITS_COLUMNS, (size_t)count * row));
}

static void test_levels(void) {
    const cpu_level *levels[MAX_LEVELS];
    const int n_levels = find_levels(levels);
    cpu_nbits_scratch *want = malloc(sizeof *want), *scratch = malloc(sizeof *scratch);
    const cpu_nbits_kernels *scalar = levels[0]->nbits;
    CU_ASSERT_FATAL(want && scratch && scalar);
    for (int i = 0; i < unit_count(200, 2000); i++) {
        test_random r = {.state = 4000u + (uint64_t)i};
        work k = random_work(&r);
        k.a = quantised(&k, scalar);
        compute(&k, scalar, 0, k.rows, want);
        if (!k.int8 && !k.bias && gqn_as_u32(k.x[0]) << 1 < GQN_INF_BITS << 1)
            for (int column = 0; column < NBITS_COLUMNS; column += 9) {
                const float y = element(&k, k.rows - 1, column);
                CU_ASSERT(!memcmp(&want->y[(k.rows - 1) * NBITS_COLUMNS + column], &y, sizeof y));
            }
        for (int l = 0; l < n_levels; l++)
            check_level(&k, levels[l]->nbits, want, scratch, &r);
        gqac_arena_free(k.arena);
    }
    free(want);
    free(scratch);
}

/* For each number of rows that may have tiles of its own: every level has the bits of the scalar
 * one, and each row those that it has alone. */
static void check_rows(const work *k, const cpu_level *level, const cpu_nbits_scratch *want,
                       cpu_nbits_scratch *scratch) {
    const size_t row = NBITS_COLUMNS * sizeof(float);
    compute(k, level->nbits, 0, k->rows, scratch);
    const bool same = !memcmp(scratch->y, want->y, (size_t)k->rows * row);
    CU_ASSERT_TRUE(same);
    if (!same)
        printf("%s: %d bits, block %d, %d rows, int8 %d\n", level->name, k->w.shape.bits,
               (int)k->w.shape.block, (int)k->rows, k->int8);
    for (int64_t r = 0; r < k->rows; r++) {
        work alone = *k;
        alone.rows = 1;
        alone.x += r * k->w.shape.blocks * k->w.shape.block;
        alone.a = k->int8 ? quantised(&alone, level->nbits) : (cpu_nbits_rows){0};
        alone.steps = GQAC_ARENA_ARRAY(k->arena, float, (size_t)k->w.shape.k + CPU_NBITS_STEP);
        for (int64_t i = 0; i < k->w.shape.k; i += CPU_NBITS_STEP)
            memcpy(alone.steps + i, k->steps + i * k->rows + r * CPU_NBITS_STEP,
                   CPU_NBITS_STEP * sizeof(float));
        compute(&alone, level->nbits, 0, 1, scratch);
        CU_ASSERT(!memcmp(scratch->y, want->y + r * NBITS_COLUMNS, row));
    }
}

static void test_rows(void) {
    static const int counts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                 13, 15, 16, 17, 23, 24, 25, 31, 32, 33, 128};
    static const int64_t blocks[] = {16, 32, 64, 256};
    const cpu_level *levels[MAX_LEVELS];
    const int n_levels = find_levels(levels);
    cpu_nbits_scratch *want = malloc(sizeof *want), *scratch = malloc(sizeof *scratch);
    CU_ASSERT_FATAL(want && scratch);
    for (int form = 0; form < 6; form++) /* 2, 4 and 8 bits, int8 and fp32 */
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (int b = 0; b < (counts[i] < 14 ? 4 : 2); b++) {
                test_random r = {.state = 9000u + i};
                const int bits = 2 << form / 2;
                const int64_t block = blocks[b];
                const bool int8 = form % 2 && nbits_int8(4, bits, block, false);
                work k = make_work(&r, i % 2 ? 896 : 600, bits, block, counts[i], int8);
                k.a = quantised(&k, levels[0]->nbits);
                compute(&k, levels[0]->nbits, 0, k.rows, want);
                for (int l = 0; l < n_levels; l++)
                    check_rows(&k, levels[l], want, scratch);
                gqac_arena_free(k.arena);
            }
    free(want);
    free(scratch);
}

/* ---- pack and expand --------------------------------------------------------------- */

static ir_value *add(ir_graph *graph, const char *name, gqac_dtype dtype, int rank, int64_t d0,
                     int64_t d1, int64_t d2, void *data) {
    const gqac_tensor t = {.dtype = dtype, .rank = rank, .dims = {d0, d1, d2}, .data = data};
    return ir_graph_add_constant(graph, name, &t);
}

/* The restored input has the same bytes as before packing. */
static void check_same(const ir_node *was, const ir_node *is, int input) {
    const ir_value *a = ir_node_input(was, input), *b = ir_node_input(is, input);
    CU_ASSERT_EQUAL(!a, !b);
    if (!a || !b)
        return;
    CU_ASSERT_FATAL(a->constant && b->constant);
    const size_t bytes = gqac_tensor_bytes(a->constant);
    CU_ASSERT_EQUAL_FATAL(bytes, gqac_tensor_bytes(b->constant));
    CU_ASSERT(a->constant->dtype == b->constant->dtype);
    CU_ASSERT(!memcmp(a->constant->data, b->constant->data, bytes));
}

static ir_node *build_model(ir_graph *graph, int i, test_random *r) {
    gqac_arena *arena = graph->module->arena;
    const int bits = 2 << i % 3, block = 16 << i % 6, k = 100 + 300 * (i % 4),
              n = 20 + 30 * (i % 5);
    const int64_t blocks = (k + block - 1) / block, code_bytes = block * bits / 8;
    const gqac_dtype dtype = i % 2 ? GQAC_F16 : GQAC_F32;
    const ir_dim *dims[2] = {ir_dim_const(graph->module->dims, 3),
                             ir_dim_const(graph->module->dims, k)};
    ir_value *in[6] = {ir_graph_add_input(graph, "a", ir_type_make(graph->module, dtype, 2, dims))};
    in[1] = add(graph, "b", GQAC_U8, 3, n, blocks, code_bytes,
                random_bytes(arena, (size_t)(n * blocks * code_bytes), 255, r));
    in[2] = add(graph, "s", dtype, 2, n, blocks, 0, random_floats(arena, dtype, n * blocks, r));
    if (i % 7 == 1)
        in[3] = add(graph, "z", dtype, 2, n, blocks, 0, random_floats(arena, dtype, n * blocks, r));
    else if (i % 3) { /* a row of zero points ends with its last bits */
        const int64_t row = (blocks * bits + 7) / 8;
        uint8_t *zeros = random_bytes(arena, (size_t)(n * row), 255, r);
        for (int64_t j = 1; j <= n && blocks * bits % 8; j++)
            zeros[j * row - 1] &= (uint8_t)((1u << blocks * bits % 8) - 1);
        in[3] = add(graph, "z", GQAC_U8, 2, n, row, 0, zeros);
    }
    if (i % 4)
        in[5] = add(graph, "bias", dtype, 1, n, 0, 0, random_floats(arena, dtype, n, r));
    ir_builder b = {.graph = graph};
    ir_node *node = op_build(&b, "com.microsoft", "MatMulNBits", 6, in, 1);
    CU_ASSERT_FATAL(node && b.status == GQAC_OK);
    ir_attr_set_int(node, "K", k);
    ir_attr_set_int(node, "N", n);
    ir_attr_set_int(node, "bits", bits);
    ir_attr_set_int(node, "block_size", block);
    ir_attr_set_int(node, "accuracy_level", i % 2 * 4);
    return node;
}

static void test_there_and_back(void) {
    for (int i = 0; i < 120; i++) {
        test_random r = {.state = 70u + (uint64_t)i};
        gqac_arena *arena = gqac_arena_create(0);
        ir_module *module = ir_module_create(arena, "test");
        module->graph = ir_graph_create(module, "test");
        gqac_diag diag = {0};
        bool packed = false;
        const op_options options = {0};
        ir_node *node = build_model(module->graph, i, &r);
        CU_ASSERT_FATAL(op_infer(node, &diag) == GQAC_OK);
        ir_graph_set_results(module->graph, 1, node->outputs, NULL);
        CU_ASSERT(cpu_pack_nbits(node, &options, NULL, &packed, &diag) == GQAC_OK && packed);
        ir_node *linear = module->graph->ret->inputs[0].value->def;
        CU_ASSERT_FATAL(op_is(linear, "gqac", "linear_nbits"));
        CU_ASSERT(op_of(linear)->verify(linear, &diag) == GQAC_OK);
        ir_builder b = {.graph = module->graph, .before = linear, .diag = &diag};
        ir_value *back = NULL;
        op_of(linear)->expand(&b, linear, NULL, &back);
        CU_ASSERT_FATAL(b.status == GQAC_OK && back);
        CU_ASSERT(op_is(back->def, "com.microsoft", "MatMulNBits"));
        for (int input = 1; input < 6; input++)
            check_same(node, back->def, input);
        for (const ir_attr_spec *a = node->op->attrs; a->name; a++)
            CU_ASSERT_EQUAL(ir_attr_int(node, a->name), ir_attr_int(back->def, a->name));
        gqac_arena_free(arena);
    }
}

/* Artefacts are not trusted. */
static void test_refused(void) {
    static const struct {
        const char *attr;
        int64_t value;
        bool by_verify;
    } cases[] = {{"bits", 3, true},        {"bits", 0, true},           {"block_size", 0, true},
                 {"block_size", 48, true}, {"block_size", 1024, true},  {"k", 0, true},
                 {"n", -5, true},          {"accuracy_level", 5, true}, {"k", 5000, false},
                 {"n", 500, false},        {"block_size", 64, false},   {"bits", 4, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_random r = {.state = 5};
        gqac_arena *arena = gqac_arena_create(0);
        ir_module *module = ir_module_create(arena, "test");
        module->graph = ir_graph_create(module, "test");
        gqac_diag diag = {0};
        bool packed = false;
        const op_options options = {0};
        ir_node *node = build_model(module->graph, 3, &r);
        CU_ASSERT_FATAL(op_infer(node, &diag) == GQAC_OK);
        ir_graph_set_results(module->graph, 1, node->outputs, NULL);
        CU_ASSERT_FATAL(cpu_pack_nbits(node, &options, NULL, &packed, &diag) == GQAC_OK && packed);
        ir_node *linear = module->graph->ret->inputs[0].value->def;
        ir_attr_set_int(linear, cases[i].attr, cases[i].value);
        gqac_status status = op_of(linear)->verify(linear, &diag);
        CU_ASSERT_EQUAL(status != GQAC_OK, cases[i].by_verify);
        if (status == GQAC_OK)
            status = op_infer(linear, &diag);
        CU_ASSERT_EQUAL(status, GQAC_INVALID_MODEL);
        gqac_arena_free(arena);
    }
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"words", test_words},
                                      {"levels", test_levels},
                                      {"rows", test_rows},
                                      {"there and back", test_there_and_back},
                                      {"refused", test_refused}};
    return unit_run("cpu_nbits", cases, sizeof cases / sizeof *cases, argc, argv);
}
