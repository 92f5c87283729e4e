/* The normalisations, compared with their formulas in double precision; the bits of a row do not
 * depend on other rows. */
#include "support_graph.h"
#include "unit.h"

#include <math.h>
#include <string.h>

#include "ops/shared.h"

typedef struct norm_case {
    const char *domain, *name;
    bool centred, residual;
    int weight, beta, bias; /* inputs; 0: none */
    int outputs, sum;       /* sum: the output with the sum; 0: none */
} norm_case;

static const norm_case norms[] = {
    {"", "SimplifiedLayerNormalization", false, false, 1, 0, 0, 1, 0},
    {"", "RMSNormalization", false, false, 1, 0, 0, 1, 0},
    {"", "LayerNormalization", true, false, 1, 2, 0, 3, 0},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", false, true, 2, 0, 3, 4, 3},
    {"com.microsoft", "SkipLayerNormalization", true, true, 2, 3, 4, 4, 3},
};
enum { N_NORMS = sizeof norms / sizeof *norms };

static void one_row(const norm_case *c, const gqac_tensor *const *in, int64_t row, int64_t n,
                    double *x, double *y) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = op_get_f64(in[0], row * n + i);
        if (c->residual)
            x[i] += op_get_f64(in[1], row * n + i);
        if (c->bias)
            x[i] += op_get_f64(in[c->bias], i);
        mean += c->centred ? x[i] / (double)n : 0;
    }
    for (int64_t i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++) {
        y[i] = (x[i] - mean) / sqrt(square + 1e-3) * op_get_f64(in[c->weight], i);
        if (c->beta)
            y[i] += op_get_f64(in[c->beta], i);
    }
}

static gqac_status run_norm(const norm_case *c, const gqac_tensor *const *in, gqac_pool *pool,
                            graph_run *run) {
    int n = 1 + (c->weight > c->beta ? c->weight : c->beta);
    n = c->bias >= n ? c->bias + 1 : n;
    if (!graph_run_open(run, c->domain, c->name, n, in, c->outputs))
        return GQAC_NO_MEMORY;
    ir_attr_set_float(run->node, "epsilon", 1e-3f);
    return graph_run_all(run, NULL, pool);
}

static void check(const norm_case *c, gqac_dtype dtype, int rows, int n, gqac_pool *pool) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = (uint64_t)(rows * 1000 + n)};
    gqac_tensor t[5];
    const gqac_tensor *in[5];
    for (int i = 0; i < 5; i++) {
        bool wide = i == 0 || (i == 1 && c->residual);
        t[i] = test_floats(arena, dtype, wide ? 3 : 1,
                           wide ? (int64_t[]){1, rows, n} : (int64_t[]){n}, &r);
        in[i] = &t[i];
    }
    graph_run run, alone;
    CU_ASSERT(run_norm(c, in, pool, &run) == GQAC_OK);
    double *x = GQAC_ARENA_ARRAY(arena, double, (size_t)n);
    double *y = GQAC_ARENA_ARRAY(arena, double, (size_t)n);
    double eps = dtype == GQAC_F32 ? 1e-6 : dtype == GQAC_F16 ? 1.5e-3 : 1.2e-2;
    for (int row = 0; row < rows; row++) {
        one_row(c, in, row, n, x, y);
        for (int i = 0; i < n; i++) {
            double got = op_get_f64(&run.results[0], (int64_t)row * n + i);
            CU_ASSERT(fabs(got - y[i]) <= eps * (4 + fabs(y[i])));
            if (c->sum)
                CU_ASSERT(fabs(op_get_f64(&run.results[c->sum], (int64_t)row * n + i) - x[i]) <=
                          eps * (4 + fabs(x[i])));
        }
    }
    size_t width = (size_t)n * op_width(dtype), last = (size_t)(rows - 1) * width;
    for (int i = 0; i < 1 + c->residual; i++) {
        t[i].dims[1] = 1;
        t[i].data = (char *)t[i].data + last;
    }
    CU_ASSERT(run_norm(c, in, NULL, &alone) == GQAC_OK);
    CU_ASSERT(memcmp(alone.results[0].data, (char *)run.results[0].data + last, width) == 0);
    graph_run_close(&run);
    graph_run_close(&alone);
    gqac_arena_free(arena);
}

static void test_formulas(void) {
    static const int widths[] = {1, 7, 16, 17, 96, 300};
    static const gqac_dtype dtypes[] = {GQAC_F32, GQAC_F16, GQAC_BF16};
    gqac_pool *pool;
    gqac_diag diag;
    CU_ASSERT_FATAL(gqac_pool_create(2, &pool, &diag) == GQAC_OK);
    for (int i = 0; i < N_NORMS; i++)
        for (int w = 0; w < 6; w++)
            for (int d = 0; d < 3; d++)
                check(&norms[i], dtypes[d], 1 + 4 * (w % 2), widths[w], d ? pool : NULL);
    gqac_pool_free(pool);
}

/* RMSNormalization rounds the normalised value before it is multiplied by the weight, the older op
 * does not: with the weight 3 the two differ in the last bit of some f16. */
static void test_two_roundings(void) {
    gqac_arena *arena = gqac_arena_create(0);
    test_random r = {.state = 8};
    gqac_tensor x = test_floats(arena, GQAC_F16, 2, (int64_t[]){20, 16}, &r);
    gqac_tensor w = test_floats(arena, GQAC_F16, 1, (int64_t[]){16}, &r);
    graph_run once, twice;
    CU_ASSERT(run_norm(&norms[0], (const gqac_tensor *[]){&x, &w}, NULL, &once) == GQAC_OK);
    CU_ASSERT(run_norm(&norms[1], (const gqac_tensor *[]){&x, &w}, NULL, &twice) == GQAC_OK);
    CU_ASSERT(memcmp(once.results[0].data, twice.results[0].data, 2 * 20 * 16) != 0);
    graph_run_close(&once);
    graph_run_close(&twice);
    gqac_arena_free(arena);
}

/* Normalising over an axis of tokens makes rows depend on each other. */
static void test_mixes(void) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor x = test_tensor(arena, GQAC_F32, 2, (int64_t[]){2, 8});
    gqac_tensor w = test_tensor(arena, GQAC_F32, 1, (int64_t[]){8});
    graph_run run;
    CU_ASSERT_FATAL(graph_run_open(&run, "", "SimplifiedLayerNormalization", 2,
                                   (const gqac_tensor *[]){&x, &w}, 1));
    const ir_dim *dims[2] = {ir_dim_symbol(run.module->dims, "S"),
                             ir_dim_const(run.module->dims, 8)};
    run.values[0]->type = ir_type_make(run.module, GQAC_F32, 2, dims);
    CU_ASSERT(!op_of(run.node)->mixes(run.node));
    ir_attr_set_int(run.node, "axis", 0);
    CU_ASSERT(op_of(run.node)->mixes(run.node));
    ir_attr_set_int(run.node, "axis", 2);
    CU_ASSERT_EQUAL(graph_run_check(&run), GQAC_INVALID_MODEL);
    ir_attr_set_int(run.node, "axis", -1);
    ir_attr_set_int(run.node, "stash_type", 10);
    CU_ASSERT_EQUAL(graph_run_check(&run), GQAC_UNSUPPORTED);
    graph_run_close(&run);
    gqac_arena_free(arena);
}

/* Weights that are broadcast within a row are valid ONNX, but not supported; those of a norm with a
 * residual are not broadcast. */
static void test_broadcast(void) {
    gqac_arena *arena = gqac_arena_create(0);
    gqac_tensor x = test_tensor(arena, GQAC_F32, 3, (int64_t[]){2, 4, 8});
    gqac_tensor one = test_tensor(arena, GQAC_F32, 1, (int64_t[]){1});
    gqac_tensor row = test_tensor(arena, GQAC_F32, 1, (int64_t[]){8});
    gqac_tensor wrong = test_tensor(arena, GQAC_F32, 1, (int64_t[]){3});
    const struct {
        int norm, axis;
        const gqac_tensor *scale, *beta;
        gqac_status status;
    } cases[] = {
        {0, -1, &one, NULL, GQAC_UNSUPPORTED},     {1, -1, &one, NULL, GQAC_UNSUPPORTED},
        {2, -1, &one, &row, GQAC_UNSUPPORTED},     {2, -1, &row, &one, GQAC_UNSUPPORTED},
        {2, -2, &row, NULL, GQAC_UNSUPPORTED},     {2, -1, &row, &row, GQAC_OK},
        {2, -1, &wrong, NULL, GQAC_INVALID_MODEL}, {3, 0, &one, NULL, GQAC_INVALID_MODEL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const norm_case *c = &norms[cases[i].norm];
        const gqac_tensor *in[] = {&x, c->residual ? &x : cases[i].scale,
                                   c->residual ? cases[i].scale : cases[i].beta};
        graph_run run;
        CU_ASSERT_FATAL(graph_run_open(&run, c->domain, c->name, in[2] ? 3 : 2, in, 1));
        if (!c->residual)
            ir_attr_set_int(run.node, "axis", cases[i].axis);
        CU_ASSERT_EQUAL(graph_run_check(&run), cases[i].status);
        if (cases[i].status == GQAC_UNSUPPORTED)
            CU_ASSERT(strstr(run.diag.what, "broadcast") && *run.diag.where);
        graph_run_close(&run);
    }
    gqac_arena_free(arena);
}

int main(int argc, char **argv) {
    const unit_case cases[] = {
        {"formulas", test_formulas},
        {"one rounding and two", test_two_roundings},
        {"axes of tokens, attributes that are refused", test_mixes},
        {"weights that are broadcast within a row", test_broadcast},
    };
    return unit_run("norm", cases, sizeof cases / sizeof *cases, argc, argv);
}
