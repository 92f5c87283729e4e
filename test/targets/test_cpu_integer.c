/* MatMulInteger packed as linear_integer: the values of the definition in 64 bits, with codes and
 * zero points at their extremes, from the op's own eval and from every level of this machine. */
#include "kernel.h"
#include "levels.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "ir/text.h"
#include "ops/build.h"
#include "targets/cpu/graph.h"
#include "targets/cpu/integer.h"
#include "targets/cpu/pack.h"

typedef struct product {
    int64_t m, k, n;
    gqac_dtype a_type, b_type;
    int64_t a_zeros, b_zeros; /* 0: none */
    uint8_t *a, *b, *a_zero, *b_zero;
    int32_t *wanted;
    gqac_arena *arena;
    ir_node *node; /* linear_integer */
} product;

static uint32_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state ^ *state >> 29) * 0x9e3779b97f4a7c15u >> 32);
}

/* Random codes, often the least or the greatest. */
static uint8_t *codes(gqac_arena *arena, int64_t n, uint64_t *state) {
    uint8_t *bytes = gqac_arena_alloc(arena, (size_t)n + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t x = next(state);
        bytes[i] = x % 4 == 0   ? (uint8_t)(x >> 8 & 1 ? 0xff : 0)
                   : x % 4 == 1 ? (uint8_t)(x >> 8 & 1 ? 0x80 : 0x7f)
                                : (uint8_t)(x >> 8);
    }
    return bytes;
}

static int64_t code_of(gqac_dtype type, uint8_t byte) {
    return type == GQAC_I8 ? (int8_t)byte : byte;
}

static ir_value *constant(ir_graph *graph, const char *name, gqac_dtype dtype, int rank,
                          const int64_t *dims, void *data) {
    gqac_tensor t = {.dtype = dtype, .rank = rank, .data = data};
    memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
    return ir_graph_add_constant(graph, name, &t);
}

/* The graph of a packed MatMulInteger. */
static void pack(product *p) {
    gqac_diag diag;
    size_t changed = 0;
    const op_options options = {.exact = false};
    ir_module *module = ir_module_create(p->arena, NULL);
    module->graph = ir_graph_create(module, "g");
    ir_value *in[4] = {ir_graph_add_input(module->graph, "a", (ir_type){p->a_type, -1, NULL})};
    in[1] = constant(module->graph, "b", p->b_type, 2, (int64_t[]){p->k, p->n}, p->b);
    if (p->a_zeros)
        in[2] = ir_graph_add_input(module->graph, "z", (ir_type){p->a_type, -1, NULL});
    if (p->b_zeros)
        in[3] = constant(module->graph, "bz", p->b_type, 1, &p->b_zeros, p->b_zero);
    ir_builder b = {.graph = module->graph, .diag = &diag};
    ir_value *y = OP_BUILD(&b, "MatMulInteger", .list = {4, in});
    OP_BUILD(&b, "Abs", .in = {y});
    CU_ASSERT_EQUAL_FATAL(b.status, GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(cpu_pack(module, &options, &changed, NULL, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(changed, 1);
    p->node = module->graph->last->inputs[0].value->def;
    CU_ASSERT_FATAL(op_is(p->node, "gqac", "linear_integer"));
}

static product make(uint64_t *state, int64_t m, int64_t k, int64_t n) {
    product p = {.m = m, .k = k, .n = n, .arena = gqac_arena_create(0)};
    p.a_type = next(state) % 2 ? GQAC_U8 : GQAC_I8;
    p.b_type = next(state) % 2 ? GQAC_U8 : GQAC_I8;
    p.a_zeros = (int64_t[]){0, 1, m}[next(state) % 3];
    p.b_zeros = (int64_t[]){0, 1, n}[next(state) % 3];
    p.a = codes(p.arena, m * k, state);
    p.b = codes(p.arena, k * n, state);
    p.a_zero = codes(p.arena, p.a_zeros, state);
    p.b_zero = codes(p.arena, p.b_zeros, state);
    p.wanted = GQAC_ARENA_ARRAY(p.arena, int32_t, (size_t)(m * n));
    for (int64_t i = 0; i < m * n; i++) {
        int64_t sum = 0, za = 0, zb = 0;
        if (p.a_zeros)
            za = code_of(p.a_type, p.a_zero[i / n % p.a_zeros]);
        if (p.b_zeros)
            zb = code_of(p.b_type, p.b_zero[i % n % p.b_zeros]);
        for (int64_t c = 0; c < k; c++)
            sum += (code_of(p.a_type, p.a[i / n * k + c]) - za) *
                   (code_of(p.b_type, p.b[c * n + i % n]) - zb);
        CU_ASSERT_FATAL(sum == (int32_t)sum);
        p.wanted[i] = (int32_t)sum;
    }
    pack(&p);
    return p;
}

/* Runs it by the op, or by a kernel of a level. */
typedef struct host {
    gqac_arena *arena;
} host;

static gqac_status give_output(op_call *call, int index, gqac_dtype dtype, int rank,
                               const int64_t *dims) {
    gqac_tensor *t = &call->out[index];
    *t = (gqac_tensor){.dtype = dtype, .rank = rank};
    memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
    t->data = gqac_arena_alloc(((host *)call->host)->arena, gqac_tensor_bytes(t) + 1);
    memset(t->data, 0xee, gqac_tensor_bytes(t));
    return GQAC_OK;
}

static gqac_status run(const product *p, const cpu_level *level, gqac_tensor *out,
                       gqac_diag *diag) {
    const gqac_tensor a = {.dtype = p->a_type, .rank = 2, .dims = {p->m, p->k}, .data = p->a};
    const gqac_tensor zero = {
        .dtype = p->a_type, .rank = 1, .dims = {p->a_zeros}, .data = p->a_zero};
    const gqac_tensor *in[] = {&a, p->node->inputs[1].value->constant,
                               p->node->inputs[2].value->constant, p->a_zeros ? &zero : NULL};
    host h = {p->arena};
    if (level)
        return kernel_try(p->arena, p->node, cpu_bind_integer, cpu_integer_run, in, out, level,
                          NULL, NULL, diag);
    op_call call = {
        .node = p->node, .in = in, .out = out, .diag = diag, .host = &h, .alloc = give_output};
    return op_of(p->node)->eval(&call);
}

static void check(const product *p, const cpu_level *level) {
    gqac_tensor out;
    gqac_diag diag;
    CU_ASSERT_EQUAL_FATAL(run(p, level, &out, &diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(memcmp(out.data, p->wanted, (size_t)(p->m * p->n) * 4), 0);
}

static void test_levels(void) {
    const cpu_level *levels[MAX_LEVELS];
    const int n_levels = find_levels(levels);
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 64, 64},   {2, 7, 17},  {3, 130, 80},
                                       {5, 33, 200}, {70, 19, 150}, {9, 64, 16}, {9, 1500, 20}};
    uint64_t state = 5;
    for (int turn = 0; turn < 12; turn++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            product p = make(&state, sizes[i][0], sizes[i][1], sizes[i][2]);
            for (int l = -1; l < n_levels; l++)
                check(&p, l < 0 ? NULL : levels[l]);
            gqac_arena_free(p.arena);
        }
}

/* The largest possible sums. */
static void test_extremes(void) {
    const int64_t k = INTEGER_MOST_K;
    const cpu_level *levels[MAX_LEVELS];
    const int n_levels = find_levels(levels);
    for (int kind = 0; kind < 4; kind++) {
        product p = {.m = 1, .k = k, .n = 3, .a_zeros = 1, .b_zeros = 1};
        p.a_type = kind & 1 ? GQAC_I8 : GQAC_U8;
        p.b_type = kind & 2 ? GQAC_I8 : GQAC_U8;
        p.arena = gqac_arena_create(0);
        const int most_a = kind & 1 ? 127 : 255, least_a = kind & 1 ? 128 : 0;
        const int most_b = kind & 2 ? 127 : 255, least_b = kind & 2 ? 128 : 0;
        p.a = gqac_arena_alloc(p.arena, (size_t)k);
        p.b = gqac_arena_alloc(p.arena, (size_t)(3 * k));
        memset(p.a, most_a, (size_t)k);
        memset(p.b, most_b, (size_t)(3 * k));
        p.a_zero = gqac_arena_alloc(p.arena, 1);
        p.b_zero = gqac_arena_alloc(p.arena, 1);
        *p.a_zero = (uint8_t)least_a;
        *p.b_zero = (uint8_t)least_b;
        p.wanted =
            (int32_t[]){255 * 255 * (int32_t)k, 255 * 255 * (int32_t)k, 255 * 255 * (int32_t)k};
        pack(&p);
        check(&p, NULL);
        for (int l = 0; l < n_levels; l++)
            check(&p, levels[l]);
        gqac_arena_free(p.arena);
    }
}

/* Terms that no packer writes but an artefact may contain: 32-bit sums might overflow. */
static void test_terms(void) {
    const struct {
        int at;
        int32_t term;
    } odd[] = {{2, 129}, {2, INT32_MAX}, {2, INT32_MIN}, {17, 128 * 7 + 1}, {17, INT32_MIN}};
    uint64_t state = 9;
    product p = make(&state, 2, 7, 17);
    int32_t *terms = p.node->inputs[2].value->constant->data;
    const cpu_level *levels[MAX_LEVELS];
    gqac_tensor out;
    gqac_diag diag;
    find_levels(levels);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        const int32_t old = terms[odd[i].at];
        terms[odd[i].at] = odd[i].term;
        CU_ASSERT_EQUAL(run(&p, NULL, &out, &diag), GQAC_INVALID_INPUT);
        CU_ASSERT_EQUAL(run(&p, levels[0], &out, &diag), GQAC_INVALID_INPUT);
        CU_ASSERT_PTR_NOT_NULL(strstr(diag.what, "'terms'"));
        terms[odd[i].at] = old;
    }
    check(&p, NULL);
    gqac_arena_free(p.arena);
}

static const unit_case cases[] = {
    {"every level has the sums of the definition", test_levels},
    {"the largest sums fit", test_extremes},
    {"terms that no packer makes", test_terms},
};

int main(int argc, char **argv) {
    return unit_run("cpu_integer", cases, sizeof cases / sizeof *cases, argc, argv);
}
