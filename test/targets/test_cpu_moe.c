/* MoE and QMoE packed as moe: the eval of the packed op, and every level of this machine, compute
 * the bits of the op's own eval, with one thread and with three; and a row has the bits that it has
 * alone.
 * */
#include "kernel.h"
#include "levels.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/build.h"
#include "ops/shared.h"
#include "targets/cpu/graph.h"
#include "targets/cpu/moe.h"
#include "targets/cpu/pack.h"

typedef struct rig {
    gqac_arena *arena;
    uint64_t state;
    ir_graph *graph;
    ir_builder b;
    ir_value *in[15];
    gqac_diag diag;
    ir_node *node, *packed;
    int64_t rows, hidden, inner, experts, chosen;
    gqac_tensor x, router, mix;
} rig;

static uint32_t next(rig *r) {
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((r->state ^ r->state >> 29) * 0x9e3779b97f4a7c15u >> 32);
}

static gqac_tensor random_tensor(rig *r, gqac_dtype dtype, int rank, const int64_t *dims) {
    gqac_tensor t = {.dtype = dtype, .rank = rank};
    memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
    t.data = gqac_arena_alloc(r->arena, gqac_tensor_bytes(&t) + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t.data);
    for (int64_t i = 0; i < gqac_tensor_count(&t); i++)
        if (dtype == GQAC_U8)
            ((uint8_t *)t.data)[i] = (uint8_t)next(r);
        else
            op_put_f32(&t, i, (float)(int32_t)next(r) * 0x1p-31f);
    return t;
}

static ir_value *constant(rig *r, gqac_dtype dtype, int rank, const int64_t *dims) {
    const gqac_tensor t = random_tensor(r, dtype, rank, dims);
    return ir_graph_add_constant(r->graph, "w", &t);
}

typedef struct kind {
    int bits, block; /* bits 0: MoE */
    gqac_dtype type;
    const char *activation;
    int fusion;
    bool fc3, zeros, bias, mix;
} kind;

/* Inputs of one projection [experts,n,k]. */
static void add_matrix(rig *r, const kind *k, int fc, int64_t n, int64_t depth) {
    static const int codes[3][4] = {{2, 3, 4, 11}, {5, 6, 7, 12}, {8, 9, 10, 13}};
    const int64_t e = r->experts;
    if (!k->bits) {
        r->in[2 + 2 * fc] = constant(r, k->type, 3, (int64_t[]){e, n, depth});
        r->in[3 + 2 * fc] = k->bias ? constant(r, k->type, 2, (int64_t[]){e, n}) : NULL;
        return;
    }
    const int64_t blocks = k->block ? depth / k->block : 1;
    r->in[codes[fc][0]] = constant(r, GQAC_U8, 3, (int64_t[]){e, n, depth * k->bits / 8});
    r->in[codes[fc][1]] = constant(r, GQAC_F32, k->block ? 3 : 2, (int64_t[]){e, n, blocks});
    if (k->bias)
        r->in[codes[fc][2]] = constant(r, k->type, 2, (int64_t[]){e, n});
    if (k->zeros && k->block)
        r->in[codes[fc][3]] =
            constant(r, GQAC_U8, 3, (int64_t[]){e, n, (blocks * k->bits + 7) / 8});
    else if (k->zeros)
        r->in[codes[fc][3]] = constant(r, GQAC_U8, 2, (int64_t[]){e, (n * k->bits + 7) / 8});
}

static void make(rig *r, const kind *k, int64_t rows) {
    size_t changed = 0;
    const op_options options = {.exact = false};
    const int64_t wide = k->fusion ? 2 * r->inner : r->inner;
    r->arena = gqac_arena_create(0);
    ir_module *module = ir_module_create(r->arena, NULL);
    module->graph = r->graph = ir_graph_create(module, "g");
    r->b = (ir_builder){.graph = r->graph, .diag = &r->diag};
    r->rows = rows;
    r->in[0] = ir_graph_add_input(r->graph, "x", (ir_type){k->type, -1, NULL});
    r->in[1] = ir_graph_add_input(r->graph, "router", (ir_type){k->type, -1, NULL});
    add_matrix(r, k, 0, wide, r->hidden);
    add_matrix(r, k, 1, r->hidden, r->inner);
    if (k->fc3)
        add_matrix(r, k, 2, r->inner, r->hidden);
    if (k->mix)
        r->in[14] = ir_graph_add_input(r->graph, "mix", (ir_type){k->type, -1, NULL});
    r->node =
        op_build(&r->b, "com.microsoft", k->bits ? "QMoE" : "MoE", k->bits ? 15 : 8, r->in, 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->node);
    ir_attr_set_int(r->node, "k", r->chosen);
    ir_attr_edit(r->node, "activation_type")->s = k->activation;
    ir_attr_edit(r->node, "activation_type")->set = true;
    ir_attr_set_int(r->node, "swiglu_fusion", k->fusion);
    ir_attr_set_int(r->node, "normalize_routing_weights", k->fusion == 1);
    if (k->bits) {
        ir_attr_set_int(r->node, "expert_weight_bits", k->bits);
        ir_attr_set_int(r->node, "block_size", k->block);
    }
    ir_value *y = ir_build_result(&r->b, r->node, 0);
    OP_BUILD(&r->b, "Abs", .in = {y});
    CU_ASSERT_EQUAL_FATAL(r->b.status, GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(cpu_pack(module, &options, &changed, NULL, &r->diag), GQAC_OK);
    CU_ASSERT_EQUAL_FATAL(changed, 1);
    r->packed = r->graph->last->inputs[0].value->def;
    CU_ASSERT_FATAL(op_is(r->packed, "gqac", "moe"));
    r->x = random_tensor(r, k->type, 2, (int64_t[]){rows, r->hidden});
    r->router = random_tensor(r, k->type, 2, (int64_t[]){rows, r->experts});
    r->mix = random_tensor(r, k->type, 2, (int64_t[]){rows, r->experts});
}

static gqac_status give_output(op_call *call, int index, gqac_dtype dtype, int rank,
                               const int64_t *dims) {
    gqac_tensor *t = &call->out[index];
    *t = (gqac_tensor){.dtype = dtype, .rank = rank};
    memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
    t->data = gqac_arena_alloc(((rig *)call->host)->arena, gqac_tensor_bytes(t) + 1);
    memset(t->data, 0xee, gqac_tensor_bytes(t));
    return GQAC_OK;
}

/* level NULL: by the eval of the op. Computes rows [first, first + rows). */
static gqac_status try(rig *r, const ir_node *node, const cpu_level *level, gqac_pool *pool,
                       int64_t first, int64_t rows, gqac_tensor *out) {
    gqac_tensor x[3] = {r->x, r->router, r->mix};
    const gqac_tensor *in[15] = {NULL};
    for (int i = 0; i < 3; i++) {
        x[i].data = (char *)x[i].data + (size_t)(first * x[i].dims[1]) * op_width(x[i].dtype);
        x[i].dims[0] = rows;
    }
    for (int i = 0; i < node->n_inputs; i++) {
        const ir_value *v = node->inputs[i].value;
        in[i] = !v ? NULL : v->constant ? v->constant : i < 2 ? &x[i] : &x[2];
    }
    if (level)
        return kernel_try(r->arena, node, cpu_bind_moe, cpu_moe_run, in, out, level, pool, NULL,
                          &r->diag);
    op_call call = {.node = node,
                    .in = in,
                    .out = out,
                    .pool = pool,
                    .diag = &r->diag,
                    .host = r,
                    .alloc = give_output};
    return op_of(node)->eval(&call);
}

static void run(rig *r, const ir_node *node, const cpu_level *level, gqac_pool *pool, int64_t first,
                int64_t rows, gqac_tensor *out) {
    const gqac_status status = try(r, node, level, pool, first, rows, out);
    if (status != GQAC_OK)
        printf("  %s\n", r->diag.what);
    CU_ASSERT_EQUAL_FATAL(status, GQAC_OK);
}

static void check(const kind *k, gqac_pool *pool, int64_t rows) {
    const cpu_level *levels[MAX_LEVELS];
    const int n_levels = find_levels(levels);
    rig r = {.state = 3, .hidden = 80, .inner = 48, .experts = 5, .chosen = 2};
    gqac_tensor wanted, y;
    if (k->block > 16) {
        r.hidden = 576; /* longer than a piece of the sum */
        r.inner = 64;
    }
    make(&r, k, rows);
    run(&r, r.node, NULL, NULL, 0, rows, &wanted);
    const size_t bytes = gqac_tensor_bytes(&wanted), row = bytes / (size_t)rows;
    run(&r, r.packed, NULL, pool, 0, rows, &y);
    CU_ASSERT_EQUAL(memcmp(y.data, wanted.data, bytes), 0);
    for (int l = 0; l < n_levels; l++)
        for (int threads = 0; threads < 2; threads++) {
            run(&r, r.packed, levels[l], threads ? pool : NULL, 0, rows, &y);
            CU_ASSERT_EQUAL(memcmp(y.data, wanted.data, bytes), 0);
            for (int64_t i = 0; i < rows; i += 3) {
                run(&r, r.packed, levels[l], NULL, i, 1, &y);
                CU_ASSERT_EQUAL(memcmp(y.data, (char *)wanted.data + (size_t)i * row, row), 0);
            }
        }
    gqac_arena_free(r.arena);
}

static void test_kinds(void) {
    static const kind kinds[] = {
        {0, 0, GQAC_F32, "relu", 0, false, false, false, false},
        {0, 0, GQAC_F32, "silu", 0, true, false, true, false},
        {0, 0, GQAC_F32, "swiglu", 1, false, false, true, false},
        {0, 0, GQAC_F16, "silu", 0, true, false, true, false},
        {0, 32, GQAC_BF16, "swiglu", 2, false, false, true, false},
        {4, 16, GQAC_F32, "swiglu", 1, false, false, true, false},
        {4, 32, GQAC_F16, "swiglu", 2, false, true, true, true},
        {8, 0, GQAC_F32, "gelu", 0, false, true, false, false},
        {2, 16, GQAC_BF16, "silu", 0, true, true, false, false},
    };
    gqac_pool *pool = NULL;
    gqac_diag diag;
    CU_ASSERT_EQUAL_FATAL(gqac_pool_create(3, &pool, &diag), GQAC_OK);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        check(&kinds[i], pool, 13);
        check(&kinds[i], pool, 1);
    }
    gqac_pool_free(pool);
}

/* A MoE that its eval refuses is not packed; if it is packed, as an artefact may contain it, the
 * error is the same. */
static void test_types(void) {
    const cpu_level *levels[MAX_LEVELS];
    const kind k = {0, 0, GQAC_F32, "relu", 0, false, false, true, false};
    const op_options options = {.exact = false};
    rig r = {.state = 3, .hidden = 80, .inner = 48, .experts = 5, .chosen = 2};
    gqac_tensor y;
    size_t changed = 0;
    find_levels(levels);
    make(&r, &k, 3);
    r.in[0]->type.dtype = r.in[1]->type.dtype = GQAC_F16;
    ir_node *moe = op_build(&r.b, "com.microsoft", "MoE", 8, r.in, 1);
    ir_value *out = ir_build_result(&r.b, moe, 0);
    OP_BUILD(&r.b, "Abs", .in = {out});
    CU_ASSERT_EQUAL(cpu_pack(r.graph->module, &options, &changed, NULL, &r.diag), GQAC_OK);
    CU_ASSERT_EQUAL(changed, 0);
    r.x = random_tensor(&r, GQAC_F16, 2, (int64_t[]){3, r.hidden});
    r.router = random_tensor(&r, GQAC_F16, 2, (int64_t[]){3, r.experts});
    const int biases[] = {4, 7};
    for (int half = 0; half < 2; half++) {
        for (int l = 0; l < 2; l++) {
            CU_ASSERT_EQUAL(try(&r, r.packed, l ? levels[0] : NULL, NULL, 0, 3, &y),
                            GQAC_INVALID_INPUT);
            CU_ASSERT_PTR_NOT_NULL(strstr(r.diag.what, "f16"));
        }
        for (int i = 0; i < 2; i++) /* of the type of x */
            ir_node_set_input(r.packed, biases[i],
                              constant(&r, GQAC_F16, 2, (int64_t[]){r.experts, i ? 80 : 48}));
    }
    gqac_arena_free(r.arena);
}

/* Errors of a packed mixture are those of the model's own op. */
static void test_experts(void) {
    const kind kinds[] = {{0, 0, GQAC_F32, "relu", 0, false, false, true, false},
                          {4, 16, GQAC_F32, "relu", 0, false, true, true, false}};
    const cpu_level *levels[MAX_LEVELS];
    find_levels(levels);
    for (int i = 0; i < 2; i++) {
        rig r = {.state = 3, .hidden = 80, .inner = 48, .experts = 5, .chosen = 2};
        gqac_tensor y;
        make(&r, &kinds[i], 3);
        r.router = random_tensor(&r, GQAC_F32, 2, (int64_t[]){3, 4});
        for (int j = 0; j < 3; j++) {
            CU_ASSERT_EQUAL(
                try(&r, j ? r.packed : r.node, j > 1 ? levels[0] : NULL, NULL, 0, 3, &y),
                GQAC_INVALID_INPUT);
            CU_ASSERT_PTR_NOT_NULL(strstr(r.diag.what,
                                          "input 2 has weights of 5 experts, router_probs has "
                                          "values of 4"));
        }
        gqac_arena_free(r.arena);
    }
}

/* Of experts with equal router values the first ones are chosen. */
static void test_ties(void) {
    static float router[3][4] = {{1, 3, 3, 3}, {5, 0, 5, 5}, {2, 2, 2, 2}};
    static const int64_t chosen[3][2] = {{1, 2}, {0, 2}, {0, 1}};
    const gqac_tensor t = {.dtype = GQAC_F32, .rank = 2, .dims = {3, 4}, .data = router};
    const moe m = {.router = &t};
    const moe_mixture s = {.m = &m, .experts = 4, .chosen = 2};
    for (int64_t row = 0; row < 3; row++) {
        int64_t order[2];
        float p[2], scratch[4];
        bool taken[4];
        moe_choose(&s, row, order, p, scratch, taken);
        CU_ASSERT(!memcmp(order, chosen[row], sizeof order) && p[0] == p[1]);
    }
}

static const unit_case cases[] = {
    {"packed experts have the bits of the op", test_kinds},
    {"operands of other types are refused", test_types},
    {"experts that the router does not have", test_experts},
    {"equal experts", test_ties},
};

int main(int argc, char **argv) {
    return unit_run("cpu_moe", cases, sizeof cases / sizeof *cases, argc, argv);
}
