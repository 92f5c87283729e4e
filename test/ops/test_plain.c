/* The plain ops over rows of any length and floats of any bits: results equal the definitions in
 * numerics/, element by element and row by row, bit for bit, however the loops are compiled. */
#include <stdlib.h>
#include <string.h>

#include "numerics/convert.h"
#include "numerics/math.h"
#include "numerics/reduce.h"
#include "ops/shared.h"
#include "support.h"
#include "support_graph.h"

static const gqac_dtype floats[] = {GQAC_F32, GQAC_F16, GQAC_BF16};
static const int64_t lengths[] = {1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 130, 255, 256, 257, 4099};

/* Mostly numbers of moderate size; otherwise any bits: NaN, infinities, subnormals, both zeros. */
static float wild(test_random *r) {
    switch (test_random_bits(r) % 8) {
    case 0:
        return gqn_as_f32(test_random_bits(r));
    case 1:
        return test_random_bits(r) % 2 ? 0.0f : -0.0f;
    default:
        return (float)test_random_int(r, -9000, 9000) / 1000;
    }
}

static float tame(test_random *r) {
    return (float)test_random_int(r, -9000, 9000) / 1000;
}

static gqac_tensor tensor(gqac_arena *arena, gqac_dtype dtype, int64_t rows, int64_t n,
                          test_random *r, float (*value)(test_random *)) {
    gqac_tensor t = test_tensor(arena, dtype, 2, (int64_t[]){rows, n});
    for (int64_t i = 0; i < rows * n; i++)
        op_put_f32(&t, i, value(r));
    return t;
}

/* The bits after storing x as that type and reading it back; NaN becomes the canonical NaN. */
static uint32_t stored(float x, gqac_dtype dtype) {
    if (dtype == GQAC_F16)
        x = gqn_f16_to_f32(gqn_f32_to_f16(x));
    if (dtype == GQAC_BF16)
        x = gqn_bf16_to_f32(gqn_f32_to_bf16(x));
    return x != x ? GQN_NAN_BITS : gqn_as_u32(x);
}

/* Counts the elements of the result that differ from the expected ones. */
static int64_t wrong(const gqac_tensor *y, const float *expected) {
    int64_t count = 0;
    for (int64_t i = 0; i < gqac_tensor_count(y); i++)
        count += stored(op_get_f32(y, i), GQAC_F32) != stored(expected[i], y->dtype);
    return count;
}

static graph_run opened(const char *op, int n_in, const gqac_tensor *const *in, int n_out) {
    graph_run run;
    CU_ASSERT_FATAL(graph_run_open(&run, "", op, n_in, in, n_out));
    return run;
}

/* ---- elementwise --------------------------------------------------------- */

static float gelu(float x) {
    return 0.5f * x * (1.0f + gqn_erff(x * 0x1.6a09e6p-1f));
}
static float inverse(float x) {
    return gqn_div(1.0f, x);
}
static float root(float x) {
    return gqn_sqrt(x);
}

static void maps(void) {
    static const struct {
        const char *op;
        float (*f)(float);
    } ops[] = {{"Exp", gqn_expf},
               {"Log", gqn_logf},
               {"Tanh", gqn_tanhf},
               {"Sigmoid", gqn_sigmoidf},
               {"Erf", gqn_erff},
               {"Softplus", gqn_softplusf},
               {"Gelu", gelu},
               {"Sin", gqn_sinf},
               {"Cos", gqn_cosf},
               {"Abs", gqn_abs},
               {"Round", gqn_round_even},
               {"Reciprocal", inverse},
               {"Sqrt", root}};
    test_random r = {.state = 1};
    for (size_t k = 0; k < COUNT(ops); k++)
        for (size_t l = 0; l < COUNT(lengths); l++)
            for (size_t t = 0; t < COUNT(floats); t++) {
                gqac_arena *arena = gqac_arena_create(0);
                gqac_tensor x = tensor(arena, floats[t], 3, lengths[l], &r, wild);
                float *y = malloc((size_t)gqac_tensor_count(&x) * sizeof *y);
                graph_run run = opened(ops[k].op, 1, (const gqac_tensor *[]){&x}, 1);
                CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
                for (int64_t i = 0; i < gqac_tensor_count(&x); i++)
                    y[i] = ops[k].f(op_get_f32(&x, i));
                CU_ASSERT_EQUAL(wrong(&run.results[0], y), 0);
                graph_run_close(&run);
                free(y);
                gqac_arena_free(arena);
            }
}

/* One exponent for all elements, of its own type, or one for each element. */
static void powers(void) {
    static const float exponents[] = {0, 1, 2, 3, 0.5f, -0.5f, -1, 4, 2.5f, -0.0f};
    test_random r = {.state = 2};
    for (size_t k = 0; k < COUNT(exponents); k++)
        for (size_t l = 0; l < COUNT(lengths); l++)
            for (int many = 0; many < 2; many++) {
                gqac_arena *arena = gqac_arena_create(0);
                const gqac_dtype dtype = floats[(k + l) % 3];
                gqac_tensor x = tensor(arena, dtype, 2, lengths[l], &r, wild);
                gqac_tensor e = test_tensor(arena, l % 2 ? GQAC_F32 : GQAC_F16, 1,
                                            (int64_t[]){many ? lengths[l] : 1});
                float *y = malloc((size_t)gqac_tensor_count(&x) * sizeof *y);
                for (int64_t i = 0; i < gqac_tensor_count(&e); i++)
                    op_put_f32(&e, i, exponents[(k + (size_t)i) % COUNT(exponents)]);
                op_put_f32(&x, 0, 1.0f);
                op_put_f32(&x, lengths[l], -gqn_as_f32(GQN_INF_BITS));
                graph_run run = opened("Pow", 2, (const gqac_tensor *[]){&x, &e}, 1);
                CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
                for (int64_t i = 0; i < gqac_tensor_count(&x); i++)
                    y[i] = gqn_powf(op_get_f32(&x, i), op_get_f32(&e, many ? i % lengths[l] : 0));
                CU_ASSERT_EQUAL(wrong(&run.results[0], y), 0);
                graph_run_close(&run);
                free(y);
                gqac_arena_free(arena);
            }
}

static void selects(void) {
    test_random r = {.state = 3};
    for (size_t l = 0; l < COUNT(lengths); l++)
        for (int form = 0; form < 4; form++) { /* bit 0: x, bit 1: y is a single element */
            gqac_arena *arena = gqac_arena_create(0);
            const int64_t n = lengths[l];
            gqac_tensor c = test_tensor(arena, GQAC_BOOL, 2, (int64_t[]){1, n});
            gqac_tensor x = tensor(arena, GQAC_F32, form & 1 ? 1 : 4, form & 1 ? 1 : n, &r, wild);
            gqac_tensor y = tensor(arena, GQAC_F32, form & 2 ? 1 : 2, form & 2 ? 1 : n, &r, wild);
            y.rank = 3; /* [2,1,n]: the result is [2,4,n] */
            y.dims[2] = y.dims[1];
            y.dims[1] = 1;
            for (int64_t i = 0; i < n; i++)
                ((uint8_t *)c.data)[i] = (uint8_t)(test_random_bits(&r) % 2 * 5);
            graph_run run = opened("Where", 3, (const gqac_tensor *[]){&c, &x, &y}, 1);
            CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
            const gqac_tensor *out = &run.results[0];
            int64_t bad = 0;
            for (int64_t i = 0; i < gqac_tensor_count(out); i++) {
                const int64_t at = i % n;
                const int64_t row_x = gqac_tensor_count(&x) / n > 1 ? i / n % 4 : 0;
                const int64_t row_y =
                    out->rank == 3 && out->dims[0] == 2 ? i / n / out->dims[1] : 0;
                const float from = ((uint8_t *)c.data)[at]
                                       ? op_get_f32(&x, form & 1 ? 0 : row_x * n + at)
                                       : op_get_f32(&y, form & 2 ? 0 : row_y * n + at);
                bad += gqn_as_u32(from) != gqn_as_u32(op_get_f32(out, i));
            }
            CU_ASSERT_EQUAL(bad, 0);
            graph_run_close(&run);
            gqac_arena_free(arena);
        }
}

/* ---- rows ---------------------------------------------------------------- */

static float lane_sum_exp(const float *x, int64_t n, float most) {
    float lane[GQAC_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % GQAC_LANES] += gqn_expf(x[i] - most);
    return gqn_lane_fold(lane);
}

static float lane_max(const float *x, int64_t n) {
    float lane[GQAC_LANES];
    for (int j = 0; j < GQAC_LANES; j++)
        lane[j] = -gqn_as_f32(GQN_INF_BITS);
    for (int64_t i = 0; i < n; i++)
        lane[i % GQAC_LANES] = gqn_max_step(lane[i % GQAC_LANES], x[i]);
    for (int half = GQAC_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] = gqn_max_step(lane[j], lane[j + half]);
    return lane[0];
}

static void softmax(float *y, const float *x, int64_t n, bool logarithm) {
    const float most = lane_max(x, n), sum = lane_sum_exp(x, n, most), log_sum = gqn_logf(sum);
    for (int64_t i = 0; i < n; i++)
        y[i] = logarithm ? (x[i] - most) - log_sum : gqn_div(gqn_expf(x[i] - most), sum);
}

static void softmaxes(void) {
    test_random r = {.state = 4};
    for (size_t l = 0; l < COUNT(lengths); l++)
        for (int form = 0; form < 24; form++) { /* op, values, axis, type */
            gqac_arena *arena = gqac_arena_create(0);
            const int64_t n = lengths[l], rows = 3;
            const bool logarithm = form & 1, first = form & 4;
            gqac_tensor x = tensor(arena, floats[form / 8], first ? n : rows, first ? rows : n, &r,
                                   form & 2 ? wild : tame);
            float *row = malloc((size_t)n * sizeof *row), *y = malloc((size_t)n * sizeof *y);
            float *expected = malloc((size_t)(n * rows) * sizeof *expected);
            for (int64_t k = 0; k < rows; k++) {
                for (int64_t i = 0; i < n; i++)
                    row[i] = op_get_f32(&x, first ? i * rows + k : k * n + i);
                softmax(y, row, n, logarithm);
                for (int64_t i = 0; i < n; i++)
                    expected[first ? i * rows + k : k * n + i] = y[i];
            }
            graph_run run =
                opened(logarithm ? "LogSoftmax" : "Softmax", 1, (const gqac_tensor *[]){&x}, 1);
            ir_attr_set_int(run.node, "axis", first ? 0 : -1);
            CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
            CU_ASSERT_EQUAL(wrong(&run.results[0], expected), 0);
            graph_run_close(&run);
            free(row);
            free(y);
            free(expected);
            gqac_arena_free(arena);
        }
}

static float sum_of(const float *x, int64_t n) {
    float lane[GQAC_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % GQAC_LANES] += x[i];
    return gqn_lane_fold(lane);
}
static float mean_of(const float *x, int64_t n) {
    return gqn_div(sum_of(x, n), (float)n);
}
static float squares_of(const float *x, int64_t n) {
    float lane[GQAC_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % GQAC_LANES] = gqn_fma(x[i], x[i], lane[i % GQAC_LANES]);
    return gqn_lane_fold(lane);
}
static float sizes_of(const float *x, int64_t n) {
    float lane[GQAC_LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % GQAC_LANES] += gqn_abs(x[i]);
    return gqn_lane_fold(lane);
}
static float log_sum_exp_of(const float *x, int64_t n) {
    const float most = lane_max(x, n);
    for (int64_t i = 0; i < n; i++) /* NaN is propagated, also next to infinities */
        if (x[i] != x[i])
            return x[i];
    return gqn_abs(most) <= 0x1.fffffep127f ? most + gqn_logf(lane_sum_exp(x, n, most)) : most;
}
static float greatest_of(const float *x, int64_t n) {
    float best = -gqn_as_f32(GQN_INF_BITS);
    for (int64_t i = 0; i < n; i++)
        best = x[i] > best || x[i] != x[i] ? x[i] : best;
    return best;
}
static float least_of(const float *x, int64_t n) {
    float best = gqn_as_f32(GQN_INF_BITS);
    for (int64_t i = 0; i < n; i++)
        best = x[i] < best || x[i] != x[i] ? x[i] : best;
    return best;
}

static void reductions(void) {
    static const struct {
        const char *op;
        float (*f)(const float *x, int64_t n);
    } ops[] = {{"ReduceSum", sum_of},
               {"ReduceMean", mean_of},
               {"ReduceL1", sizes_of},
               {"ReduceSumSquare", squares_of},
               {"ReduceMax", greatest_of},
               {"ReduceMin", least_of},
               {"ReduceLogSumExp", log_sum_exp_of}};
    test_random r = {.state = 5};
    for (size_t k = 0; k < COUNT(ops); k++)
        for (size_t l = 0; l < COUNT(lengths); l++)
            for (int form = 0; form < 12; form++) { /* values, axis, type */
                gqac_arena *arena = gqac_arena_create(0);
                const int64_t n = lengths[l], rows = 3;
                const bool first = form & 2;
                gqac_tensor x = tensor(arena, floats[form / 4], first ? n : rows, first ? rows : n,
                                       &r, form & 1 ? wild : tame);
                gqac_tensor axes =
                    test_ints(arena, GQAC_I64, 1, (int64_t[]){1}, (int64_t[]){!first});
                float *row = malloc((size_t)n * sizeof *row), expected[3];
                const float beside = ops[k].f == least_of ? 1.0f : -1.0f;
                for (int64_t i = 0; i < n; i++) /* a row whose extreme is the first of its zeros */
                    op_put_f32(&x, first ? i * rows + 2 : 2 * n + i,
                               test_random_bits(&r) % 4   ? beside
                               : test_random_bits(&r) % 2 ? -0.0f
                                                          : 0.0f);
                for (int64_t i = 0; i < rows; i++) {
                    for (int64_t j = 0; j < n; j++)
                        row[j] = op_get_f32(&x, first ? j * rows + i : i * n + j);
                    expected[i] = ops[k].f(row, n);
                }
                graph_run run = opened(ops[k].op, 2, (const gqac_tensor *[]){&x, &axes}, 1);
                CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
                CU_ASSERT_EQUAL(wrong(&run.results[0], expected), 0);
                graph_run_close(&run);
                free(row);
                gqac_arena_free(arena);
            }
}

/* ---- order --------------------------------------------------------------- */

static const gqac_dtype ordered[] = {GQAC_F32, GQAC_F16, GQAC_BF16, GQAC_F64, GQAC_I64,
                                     GQAC_U64, GQAC_I32, GQAC_U8,   GQAC_I8};
typedef enum pattern { RANDOM, EQUAL, UP, DOWN, FEW, WILD, PATTERNS } pattern;

static void fill(gqac_tensor *x, pattern p, test_random *r) {
    for (int64_t i = 0; i < gqac_tensor_count(x); i++) {
        const uint64_t bits = (uint64_t)test_random_bits(r) << 32 | test_random_bits(r);
        const int64_t value = p == EQUAL  ? 7
                              : p == UP   ? i
                              : p == DOWN ? -i
                              : p == FEW  ? (int64_t)(bits % 3)
                                          : (int64_t)bits >> (x->dtype == GQAC_F16 ? 50 : 0);
        const float number = p == WILD ? wild(r) : (float)value;
        if (x->dtype == GQAC_F64)
            ((double *)x->data)[i] = (double)number;
        else if (OP_IN(OP_FLOATS, x->dtype))
            op_put_f32(x, i, number);
        else
            op_put_i64(x, i, value);
    }
}

/* The definition: positive if element a is greater than b; NaN is the greatest. */
static int compare(const gqac_tensor *x, int64_t a, int64_t b) {
    if (OP_IN(OP_INTS, x->dtype)) {
        const int64_t p = op_get_i64(x, a), q = op_get_i64(x, b);
        if (x->dtype == GQAC_U64)
            return ((uint64_t)p > (uint64_t)q) - ((uint64_t)p < (uint64_t)q);
        return (p > q) - (p < q);
    }
    const double p = op_get_f64(x, a), q = op_get_f64(x, b);
    if (p != p || q != q)
        return (p != p) - (q != q);
    return (p > q) - (p < q);
}

static bool same_bits(const gqac_tensor *a, int64_t i, const gqac_tensor *b, int64_t j) {
    const size_t width = op_width(a->dtype);
    return memcmp((char *)a->data + (size_t)i * width, (char *)b->data + (size_t)j * width,
                  width) == 0;
}

/* The elements are in order, equal ones by index; none before the last is omitted, and each occurs
 * once. */
static void check_top(const gqac_tensor *x, int64_t n, int64_t k, int64_t inner, bool largest,
                      const gqac_tensor *values, const gqac_tensor *indices) {
    const int sign = largest ? 1 : -1;
    int64_t bad = 0;
    for (int64_t row = 0; row < gqac_tensor_count(x) / n; row++) {
        const int64_t first = row / inner * n * inner + row % inner;
        const int64_t to = row / inner * k * inner + row % inner;
        int64_t before = 0, last = -1;
        for (int64_t i = 0; i < k; i++) {
            const int64_t at = op_get_i64(indices, to + i * inner);
            bad += !same_bits(values, to + i * inner, x, first + at * inner);
            if (i > 0) {
                const int order = sign * compare(x, first + last * inner, first + at * inner);
                bad += order < 0 || (order == 0 && last >= at);
            }
            last = at;
        }
        for (int64_t i = 0; i < n && k > 0; i++) {
            const int order = sign * compare(x, first + i * inner, first + last * inner);
            before += order > 0 || (order == 0 && i <= last);
        }
        bad += before != k;
    }
    CU_ASSERT_EQUAL(bad, 0);
}

static void top_k(void) {
    static const int64_t sizes[] = {1, 2, 17, 300, 1500};
    test_random r = {.state = 6};
    for (size_t t = 0; t < COUNT(ordered); t++)
        for (size_t l = 0; l < COUNT(sizes); l++)
            for (int p = 0; p < PATTERNS; p++)
                for (int form = 0; form < 24; form++) { /* largest, axis, k */
                    gqac_arena *arena = gqac_arena_create(0);
                    const int64_t n = sizes[l];
                    const int64_t counts[] = {0, 1, n / 40, n / 3, n - 1, n};
                    const bool largest = form & 1, first = form & 2;
                    const int64_t k = counts[form / 4], inner = first ? 2 : 1;
                    gqac_tensor x = test_tensor(arena, ordered[t], 2,
                                                (int64_t[]){first ? n : 2, first ? 2 : n});
                    gqac_tensor count = test_ints(arena, GQAC_I64, 1, (int64_t[]){1}, &k);
                    fill(&x, (pattern)p, &r);
                    graph_run run = opened("TopK", 2, (const gqac_tensor *[]){&x, &count}, 2);
                    ir_attr_set_int(run.node, "largest", largest);
                    ir_attr_set_int(run.node, "axis", first ? 0 : -1);
                    CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
                    check_top(&x, n, k, inner, largest, &run.results[0], &run.results[1]);
                    graph_run_close(&run);
                    gqac_arena_free(arena);
                }
}

/* NaN is chosen before all other elements, by ArgMin as well. */
static int64_t extreme(const gqac_tensor *x, int64_t first, int64_t n, int64_t inner, bool least,
                       bool last) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        const int64_t a = first + i * inner, b = first + best * inner;
        const bool nan = !OP_IN(OP_INTS, x->dtype) && (op_get_f64(x, a) != op_get_f64(x, a) ||
                                                       op_get_f64(x, b) != op_get_f64(x, b));
        const int order = compare(x, a, b) * (least && !nan ? -1 : 1);
        if (order > 0 || (order == 0 && last))
            best = i;
    }
    return best;
}

static void arg_extremes(void) {
    test_random r = {.state = 7};
    for (size_t t = 0; t < COUNT(ordered); t++)
        for (size_t l = 0; l < COUNT(lengths) - 1; l++)
            for (int p = 0; p < PATTERNS; p++)
                for (int form = 0; form < 8; form++) { /* least, last, axis */
                    gqac_arena *arena = gqac_arena_create(0);
                    const int64_t n = lengths[l];
                    const bool least = form & 1, last = form & 2, first = form & 4;
                    const int64_t inner = first ? 2 : 1;
                    gqac_tensor x = test_tensor(arena, ordered[t], 2,
                                                (int64_t[]){first ? n : 2, first ? 2 : n});
                    fill(&x, (pattern)p, &r);
                    graph_run run =
                        opened(least ? "ArgMin" : "ArgMax", 1, (const gqac_tensor *[]){&x}, 1);
                    ir_attr_set_int(run.node, "axis", first ? 0 : 1);
                    ir_attr_set_int(run.node, "select_last_index", last);
                    CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
                    for (int64_t row = 0; row < 2; row++)
                        CU_ASSERT_EQUAL(op_get_i64(&run.results[0], row),
                                        extreme(&x, first ? row : row * n, n, inner, least, last));
                    graph_run_close(&run);
                    gqac_arena_free(arena);
                }
}

/* ---- convolution --------------------------------------------------------- */

typedef struct conv_form {
    int64_t channels, maps, group, height, width, tall, wide; /* of x, of the kernel */
    int64_t stride, dilation, pad[4];
} conv_form;

static int64_t extent(int64_t in, int64_t taps, const conv_form *f, int64_t pads) {
    return (in + pads - (taps - 1) * f->dilation - 1) / f->stride + 1;
}

/* One chain for each element, over channels, then over the kernel; elements outside are skipped. */
static float element(const conv_form *f, const gqac_tensor *x, const gqac_tensor *w, float bias,
                     const int64_t at[4]) {
    const int64_t each = f->channels / f->group, first = at[1] / (f->maps / f->group) * each;
    float sum = 0;
    for (int64_t k = 0; k < each * f->tall * f->wide; k++) {
        const int64_t c = k / (f->tall * f->wide);
        const int64_t i = at[2] * f->stride - f->pad[0] + k / f->wide % f->tall * f->dilation;
        const int64_t j = at[3] * f->stride - f->pad[1] + k % f->wide * f->dilation;
        if (i < 0 || i >= f->height || j < 0 || j >= f->width)
            continue;
        const int64_t from = ((at[0] * f->channels + first + c) * f->height + i) * f->width + j;
        sum =
            gqn_fma(op_get_f32(w, at[1] * each * f->tall * f->wide + k), op_get_f32(x, from), sum);
    }
    return sum + bias;
}

static void convolve(const conv_form *f, gqac_dtype dtype, float (*value)(test_random *),
                     test_random *r) {
    gqac_arena *arena = gqac_arena_create(0);
    const bool flat = f->tall == 1 && f->height == 1; /* one spatial axis */
    const int64_t each = f->channels / f->group;
    const int64_t h = extent(f->height, f->tall, f, f->pad[0] + f->pad[2]);
    const int64_t n = extent(f->width, f->wide, f, f->pad[1] + f->pad[3]);
    gqac_tensor x = tensor(arena, dtype, 2 * f->channels * f->height, f->width, r, value);
    gqac_tensor w = tensor(arena, dtype, f->maps * each * f->tall, f->wide, r, value);
    gqac_tensor bias = tensor(arena, dtype, 1, f->maps, r, tame);
    const gqac_tensor flat_x = x, flat_w = w;
    float *expected = malloc((size_t)(2 * f->maps * h * n) * sizeof *expected);
    x.rank = w.rank = flat ? 3 : 4;
    memcpy(x.dims, (int64_t[]){2, f->channels, flat ? f->width : f->height, f->width},
           4 * sizeof *x.dims);
    memcpy(w.dims, (int64_t[]){f->maps, each, flat ? f->wide : f->tall, f->wide},
           4 * sizeof *w.dims);
    bias.rank = 1;
    bias.dims[0] = f->maps;
    for (int64_t i = 0; i < 2 * f->maps * h * n; i++) {
        const int64_t at[] = {i / n / h / f->maps, i / n / h % f->maps, i / n % h, i % n};
        expected[i] = element(f, &flat_x, &flat_w, op_get_f32(&bias, at[1]), at);
    }
    graph_run run = opened("Conv", 3, (const gqac_tensor *[]){&x, &w, &bias}, 1);
    const int64_t same[] = {f->stride, f->stride}, apart[] = {f->dilation, f->dilation};
    const int64_t pads[] = {f->pad[1], f->pad[3]};
    ir_attr_set_int(run.node, "group", f->group);
    ir_attr_set_ints(run.node, "strides", flat ? 1 : 2, same);
    ir_attr_set_ints(run.node, "dilations", flat ? 1 : 2, apart);
    ir_attr_set_ints(run.node, "pads", flat ? 2 : 4, flat ? pads : f->pad);
    CU_ASSERT_EQUAL_FATAL(graph_run_all(&run, NULL, NULL), GQAC_OK);
    CU_ASSERT_EQUAL(gqac_tensor_count(&run.results[0]), 2 * f->maps * h * n);
    CU_ASSERT_EQUAL(wrong(&run.results[0], expected), 0);
    graph_run_close(&run);
    free(expected);
    gqac_arena_free(arena);
}

static void convolutions(void) {
    static const conv_form forms[] = {
        {5, 6, 1, 1, 200, 1, 3, 1, 1, {0, 1, 0, 1}},
        {4, 5, 1, 1, 131, 1, 3, 2, 1, {0, 1, 0, 1}},
        {3, 4, 1, 1, 64, 1, 1, 1, 1, {0}},
        {6, 6, 6, 1, 150, 1, 5, 1, 1, {0, 4, 0, 0}},
        {6, 9, 3, 1, 70, 1, 2, 3, 4, {0, 2, 0, 7}},
        {1, 1, 1, 1, 1, 1, 1, 1, 1, {0, 80, 0, 80}},
        {2, 261, 1, 1, 20, 1, 3, 1, 1, {0, 1, 0, 0}},
        {3, 5, 1, 9, 70, 3, 3, 1, 1, {1, 1, 1, 1}},
        {4, 6, 2, 12, 30, 3, 2, 2, 2, {0, 3, 4, 1}},
        {3, 4, 1, 8, 8, 4, 4, 4, 1, {0}},
    };
    test_random r = {.state = 8};
    for (size_t i = 0; i < COUNT(forms); i++)
        for (size_t t = 0; t < COUNT(floats); t++) {
            convolve(&forms[i], floats[t], tame, &r);
            convolve(&forms[i], floats[t], wild, &r);
        }
}

int main(int argc, char **argv) {
    static const unit_case cases[] = {
        {"elementwise", maps},
        {"Pow", powers},
        {"Where", selects},
        {"softmax", softmaxes},
        {"reductions", reductions},
        {"TopK", top_k},
        {"ArgMax and ArgMin", arg_extremes},
        {"Conv", convolutions},
    };
    return unit_run("plain ops", cases, sizeof cases / sizeof *cases, argc, argv);
}
