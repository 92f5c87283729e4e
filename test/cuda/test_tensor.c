/* Products in tensor cores, on the emulator: every kernel has the bits of one scalar program,
 * whatever the rows are computed with. The emulator adds the 16 products of an instruction in
 * ascending order of its own k; a device adds them in an order of its own, which is the same for
 * each element. */
#include "unit.h"

#include "emulator.h"

#include "targets/gpu/tensor.h"

/* The kernels use the files before them, and are written for compilers that do not warn about
 * conversions. */
/* clang-format off */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include "targets/gpu/kernels/values.h"
#include "targets/gpu/kernels/weights.cl"
#include "targets/gpu/kernels/products.cl"
#include "targets/gpu/kernels/factors.cl"
#include "targets/gpu/kernels/tensor.cl"
#pragma GCC diagnostic pop
/* clang-format on */

/* A product, and how its rows are computed. */
typedef struct product {
    const char *title;
    int m, k, n, x_type, w_type, y_type, bias;
    int bits, block, zeros; /* of codes; zeros: each block has a zero point */
} product;

static const product products[] = {
    {"codes of 4 bits", 2, 1100, 44, F32, F32, F32, 1, 4, 32, 1},
    {"codes of 4 bits in tiles", 70, 560, 136, F16, F32, F16, 0, 4, 16, 0},
    {"codes of 8 bits", 17, 76, 40, BF16, F32, F32, 1, 8, 128, 1},
    {"codes of 2 bits", 18, 600, 9, F32, F32, F32, 0, 2, 64, 1},
    {"a row of fp32", 1, 45, 37, F32, F32, F32, 0, 0, 0, 0},
    {"three rows of fp32, padded", 3, 1100, 37, F32, F32, F32, 1, 0, 0, 0},
    {"rows of fp16", 17, 544, 72, F16, F16, F16, 1, 0, 0, 0},
    {"rows of bf16", 20, 64, 136, BF16, BF16, BF16, 0, 0, 0, 0},
    {"more than a tile", 131, 520, 40, F16, F32, F32, 1, 0, 0, 0},
    {"more pieces than teams", 2, 9000, 8, F32, BF16, F32, 0, 0, 0, 0},
};

typedef struct launch {
    const product *p;
    const void *x, *w;
    uint4 *weights, *factors;
    float *bias, *parts, *scales, *zeros;
    void *y;
    int wide, pieces;
    product_shape shape;
} launch;

static void run_pack(const void *given) {
    const launch *l = given;
    tensor_pack(l->w, l->weights, l->p->w_type, l->shape);
}
static void run_factors(const void *given) {
    const launch *l = given;
    tensor_factors(l->x, l->factors, l->p->x_type, l->shape);
}

/* A kernel for the weights of a product. */
#define RUN(NAME, X, ...)                                                                          \
    static void run_##NAME(const void *given) {                                                    \
        const launch *l = given;                                                                   \
        tensor_##NAME(X, l->weights, l->scales, l->zeros, l->bias, __VA_ARGS__, l->shape);         \
    }
#define FORMS(KIND)                                                                                \
    RUN(few1_##KIND, l->x, l->y, l->p->x_type, l->wide)                                            \
    RUN(few_##KIND, l->factors, l->y, l->wide)                                                     \
    RUN(tile_##KIND, l->factors, l->shape.split ? (void *)l->parts : l->y)
FORMS(floats)
FORMS(2)
FORMS(4)
FORMS(8)
static void (*const kernels[][GPU_FORMS])(const void *) = {
    [0] = {run_few1_floats, run_few_floats, run_tile_floats},
    [2] = {run_few1_2, run_few_2, run_tile_2},
    [4] = {run_few1_4, run_few_4, run_tile_4},
    [8] = {run_few1_8, run_few_8, run_tile_8}};

static void run_add(const void *given) {
    const launch *l = given;
    product_add(l->parts, l->bias, l->y, l->pieces, l->shape);
}

static float number(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(int)(*state >> 8 & 0xffffu) * 0x1p-15f - 1.0f;
}

/* Memory for n elements of a type, with room for a row of a block, filled with random numbers. */
static void *elements(int type, size_t n, unsigned seed) {
    const size_t bytes = (n * (type == F32 ? 4 : 2) + 127) / 64 * 64;
    void *to = aligned_alloc(64, bytes);
    memset(to, 0xff, bytes);
    for (size_t i = 0; i < n && seed; i++)
        put_float(to, type, i, number(&seed));
    return to;
}

static int parts_of(int n, int size) {
    return (n + size - 1) / size;
}

/* Codes with their scales, and the weights that they represent. */
static void fill_codes(launch *l) {
    const product *p = l->p;
    product_shape *s = &l->shape;
    unsigned state = 4;
    s->width = gpu_weights_width(p->n);
    s->blocks = parts_of(p->k, p->block);
    s->zero_step = p->zeros ? s->width : 0;
    while (1 << s->shift < p->block)
        s->shift++;
    const size_t n_scales = (size_t)(s->blocks * s->width);
    const int word_rows = parts_of(s->blocks * p->block * p->bits / 32, 4) * 4; /* whole chunks */
    const size_t words = (size_t)word_rows * (size_t)s->width;
    l->weights = elements(F32, words, 0);
    l->scales = elements(F32, n_scales, 5);
    l->zeros = elements(F32, n_scales, 0);
    for (size_t i = 0; i < n_scales; i++) {
        l->scales[i] /= (float)(1 << (p->bits - 1));
        l->zeros[i] = p->zeros ? (float)(int)(i * 7 % 4) : (float)(1 << (p->bits - 1));
    }
    for (size_t i = 0; i < words; i++) {
        state = state * 1664525u + 1013904223u;
        ((uint *)l->weights)[i] = state ^ state >> 15;
    }
    float *w = elements(F32, (size_t)(p->k * p->n), 0);
    for (int k = 0; k < p->k; k++)
        for (int at = 0; at < p->n; at++) {
            const int row = k * p->bits / 32; /* chunks of four words are adjacent */
            const uint word = ((uint *)l->weights)[(row / 4 * s->width + at) * 4 + row % 4];
            const uint code = word >> k * p->bits % 32 & ((1u << p->bits) - 1u);
            const int b = k / p->block;
            w[k * p->n + at] =
                ((float)code - l->zeros[b * s->zero_step + at]) * l->scales[b * s->width + at];
        }
    l->w = w;
}

/* The definition for one element. */
static float scalar(const launch *l, int row, int at, double *exact) {
    static const int order[16] = {0, 1, 8, 9, 16, 17, 24, 25, 2, 3, 10, 11, 18, 19, 26, 27};
    const product *p = l->p;
    float total = -0.0f;
    *exact = 0.0;
    for (int begin = 0; begin < p->k; begin += GQAC_K_PIECE) {
        float sum = 0.0f;
        for (int i = begin; i < begin + GQAC_K_PIECE && i < (p->k + 31) / 32 * 32; i += 16)
            for (int j = 0; j < 16; j++) {
                const int k = i / 32 * 32 + order[j] + i % 32 / 4;
                const bool is = k < p->k;
                const float a = is ? float_at(l->x, p->x_type, (size_t)(row * p->k + k)) : 0.0f;
                const float b = is ? float_at(l->w, p->w_type, (size_t)(k * p->n + at)) : 0.0f;
                const float fa = gqn_bf16_to_f32(gqn_bf16_factor(a));
                const float fb = gqn_bf16_to_f32(gqn_bf16_factor(b));
                sum = gqn_fma(fa, fb, sum);
                *exact += (double)fa * fb;
            }
        total += sum;
    }
    *exact += p->bias ? l->bias[at] : 0.0;
    return p->bias ? total + l->bias[at] : total;
}

static bool is_as_defined(const launch *l, const void *expected, size_t bytes) {
    const bool same = memcmp(l->y, expected, bytes) == 0;
    memset(l->y, 0xff, bytes);
    return same;
}

/* Runs the kernels in one way, then rows one by one. */
static void check(launch *l, const void *expected, size_t bytes, bool late) {
    const product *p = l->p;
    product_shape *s = &l->shape;
    const int blocks = s->width / 8;
    const gpu_product_shape shape = {.k = p->k};
    const gpu_grid packers = gpu_tensor_packers(&shape, 0);
    if (p->bits == 0) {
        memset(l->weights, 0xff, (size_t)blocks * (size_t)parts_of(p->k, 32) * 512);
        emulate(run_pack, l, packers.groups[0], (size_t)blocks, GPU_TENSOR_PACKERS, late);
    }
    emulate(run_factors, l, packers.groups[0], (size_t)parts_of(s->m, 16), GPU_TENSOR_PACKERS,
            late);
    for (int teams = 1; s->m <= 32 && teams <= l->pieces && teams <= GPU_TENSOR_WARPS; teams += 3) {
        s->teams = teams;
        l->wide = GPU_TENSOR_WARPS / teams > 4 ? 4 : GPU_TENSOR_WARPS / teams;
        emulate(kernels[p->bits][GPU_FEW_4], l, (size_t)parts_of(blocks, l->wide),
                (size_t)parts_of(s->m, 16), teams * l->wide * 32, late);
        CU_ASSERT_TRUE(is_as_defined(l, expected, bytes));
    }
    const gpu_tensor_cut few = gpu_tensor_cut_of(l->pieces, blocks, GPU_TENSOR_ONE_WARPS);
    s->teams = few.teams;
    l->wide = few.wide;
    CU_ASSERT(few.teams * few.wide <= GPU_TENSOR_ONE_WARPS && few.teams >= 1 && few.wide >= 1);
    launch one = *l;
    one.shape.m = 1;
    const size_t x_row = (size_t)p->k * (p->x_type == F32 ? 4 : 2);
    const size_t y_row = bytes / (size_t)p->m;
    for (int row = 0; row < p->m && row < 4; row++) {
        one.wide = row % 2 && 2 * few.teams <= GPU_TENSOR_ONE_WARPS ? 2 : few.wide;
        void *copy = elements(p->x_type, (size_t)p->k, 0); /* only in a tensor are rows aligned */
        memcpy(copy, (const char *)l->x + (size_t)row * x_row, x_row);
        one.x = copy;
        one.y = elements(p->y_type, (size_t)p->n, 0);
        emulate(kernels[p->bits][GPU_FEW_1], &one, (size_t)parts_of(blocks, one.wide), 1,
                one.shape.teams * one.wide * 32, late);
        CU_ASSERT_EQUAL(memcmp(one.y, (const char *)expected + (size_t)row * y_row, y_row), 0);
        free(copy);
        free(one.y);
    }
    for (s->split = 0; s->split < 2; s->split++) {
        const int down = parts_of(s->m, GPU_TENSOR_TILE) * (s->split ? l->pieces : 1);
        emulate(kernels[p->bits][GPU_TILE], l, (size_t)parts_of(p->n, GPU_TENSOR_TILE),
                (size_t)down, 256, late);
        if (s->split)
            emulate(run_add, l, (size_t)parts_of(p->n, 64), (size_t)s->m, 64, late);
        CU_ASSERT_TRUE(is_as_defined(l, expected, bytes));
    }
}

static void check_product(const product *p) {
    const size_t count = (size_t)(p->m * p->n), bytes = count * (p->y_type == F32 ? 4 : 2);
    const int blocks = parts_of(p->k, 32), width = parts_of(p->n, 32) * 32;
    launch l = {.p = p,
                .x = elements(p->x_type, (size_t)(p->m * p->k), 1),
                .factors = elements(F32, (size_t)parts_of(p->m, 16) * (size_t)blocks * 256, 0),
                .bias = elements(F32, (size_t)p->n, 3),
                .pieces = parts_of(p->k, GQAC_K_PIECE),
                .y = elements(p->y_type, count, 0),
                .shape = {.m = p->m,
                          .k = p->k,
                          .n = p->n,
                          .width = width,
                          .has_bias = p->bias,
                          .y_type = p->y_type}};
    l.parts = elements(F32, (size_t)l.pieces * count, 0);
    if (p->bits) {
        fill_codes(&l);
    } else {
        l.w = elements(p->w_type, (size_t)(p->k * p->n), 2);
        l.weights = elements(F32, (size_t)blocks * (size_t)width * 16, 0);
    }
    uchar *expected = elements(p->y_type, count, 0);
    for (size_t i = 0; i < count; i++) {
        double exact;
        const float y = scalar(&l, (int)i / p->n, (int)i % p->n, &exact);
        CU_ASSERT_DOUBLE_EQUAL((double)y, exact, 1e-6 * p->k);
        put_element(expected, p->y_type, i, y);
    }
    check(&l, expected, bytes, false);
    check(&l, expected, bytes, true);
    free((void *)(uintptr_t)l.x);
    free((void *)(uintptr_t)l.w);
    free(l.weights);
    free(l.scales);
    free(l.zeros);
    free(l.factors);
    free(l.bias);
    free(l.parts);
    free(l.y);
    free(expected);
}

static void test_products(void) {
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        check_product(&products[i]);
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {{"products of every kernel", test_products}};
    return unit_run("cuda_tensor", cases, sizeof cases / sizeof *cases, argc, argv);
}
