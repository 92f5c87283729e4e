/* No pass may change a bit of a result. Random small graphs, with symbolic dims, constants of every
 * kind (zeros of both signs, infinities, NaNs with a payload), shape plumbing and branches, are
 * evaluated node by node, rewritten, and evaluated again; the results are compared byte by byte. */
#include "support_passes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_VALUES = 4096, POOL = 128 };

typedef struct world {
    fixture f;
    uint64_t seed;
    gqac_tensor tensors[MAX_VALUES]; /* by ir_value.id */
    int n_values;
    ir_value *pool[POOL]; /* possible operands */
    int n_pool;
} world;

static uint32_t dice(world *w, uint32_t n) {
    w->seed = w->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w->seed >> 33) % n;
}

/* ---- evaluation ---------------------------------------------------------- */

static const gqac_tensor *tensor_of(const world *w, const ir_value *value) {
    return !value ? NULL : value->constant ? value->constant : &w->tensors[value->id];
}

static void number(world *w, ir_value *value) {
    if (value)
        value->id = w->n_values++;
}

static gqac_status run_graph(world *w, const ir_graph *graph);

static gqac_status run_if(world *w, const ir_node *node) {
    const gqac_tensor *cond = tensor_of(w, node->inputs[0].value);
    if (cond->dtype != GQAC_BOOL || gqac_tensor_count(cond) != 1)
        return GQAC_INVALID_INPUT;
    const bool taken = *(const unsigned char *)cond->data != 0;
    const ir_graph *branch = ir_attr_get(node, taken ? "then_branch" : "else_branch")->graph;
    GQAC_TRY(run_graph(w, branch));
    for (int i = 0; i < node->n_outputs; i++)
        w->tensors[node->outputs[i]->id] = *tensor_of(w, branch->ret->inputs[i].value);
    return GQAC_OK;
}

static gqac_status run_node(world *w, const ir_node *node) {
    const gqac_tensor *in[8];
    gqac_tensor out[8] = {{.dtype = GQAC_NONE}};
    if (op_is(node, "", "If"))
        return run_if(w, node);
    for (int i = 0; i < node->n_inputs; i++)
        in[i] = tensor_of(w, node->inputs[i].value);
    GQAC_TRY(op_eval(node, in, out, w->f.arena, NULL));
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            w->tensors[node->outputs[i]->id] = out[i];
    return GQAC_OK;
}

static gqac_status run_graph(world *w, const ir_graph *graph) {
    for (const ir_node *node = graph->first; node; node = node->next)
        GQAC_TRY(run_node(w, node));
    return GQAC_OK;
}

static gqac_status number_outputs(void *arg, ir_node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        number(arg, node->outputs[i]);
    return GQAC_OK;
}

/* ---- generation ---------------------------------------------------------- */

static void put_in_pool(world *w, ir_value *value) {
    if (w->n_pool < POOL)
        w->pool[w->n_pool++] = value;
}

static void add_constant(world *w, gqac_dtype dtype, int rank, int64_t n, const void *data) {
    gqac_tensor t = {.dtype = dtype, .rank = rank, .dims = {n}};
    t.data = gqac_arena_copy(w->f.arena, data, gqac_tensor_bytes(&t));
    put_in_pool(w, ir_graph_add_constant(w->f.module->graph, "k", &t));
}

static void add_constants(world *w) {
    static const int64_t lists[][4] = {{0},       {1},          {2},         {-1},
                                       {4, 1},    {-1, 4},      {2, 3, 4},   {0, 0, -1},
                                       {1, 1, 1}, {2, 3, 2, 2}, {INT64_MAX}, {0, 1}};
    static const int lengths[] = {1, 1, 1, 1, 2, 2, 3, 3, 3, 4, 1, 2};
    static const float floats[] = {0.0f, -0.0f, 1.0f, -INFINITY, 1e-40f, 3.25f};
    static const uint32_t payload = 0x7fc12345u;
    static const unsigned char yes = 1, no = 0;
    for (size_t i = 0; i < COUNT(lengths); i++)
        add_constant(w, GQAC_I64, 1, lengths[i], lists[i]);
    for (int i = 0; i < 3; i++)
        add_constant(w, GQAC_I64, 0, 1, &lists[i][0]);
    for (size_t i = 0; i < COUNT(floats); i++)
        add_constant(w, GQAC_F32, 0, 1, &floats[i]);
    add_constant(w, GQAC_F32, 0, 1, &payload);
    add_constant(w, GQAC_BOOL, 0, 1, &yes);
    add_constant(w, GQAC_BOOL, 0, 1, &no);
    add_constant(w, GQAC_I32, 0, 1, &(int32_t){1});
}

/* B is 2 and S is 3. Bytes are random except for bool, so floats of every kind occur. */
static void fill_input(world *w, ir_value *value) {
    static const int64_t sizes[] = {2, 3, 4};
    gqac_tensor t = {.dtype = value->type.dtype, .rank = value->type.rank};
    for (int i = 0; i < t.rank; i++)
        t.dims[i] = sizes[i];
    const size_t bytes = gqac_tensor_bytes(&t);
    unsigned char *data = gqac_arena_alloc(w->f.arena, bytes);
    for (size_t i = 0; data && i < bytes; i++)
        data[i] = (unsigned char)dice(w, t.dtype == GQAC_BOOL ? 2 : 256);
    if (t.dtype == GQAC_I64)
        for (int64_t i = 0; data && i < gqac_tensor_count(&t); i++)
            ((int64_t *)(void *)data)[i] = (int64_t)dice(w, 7) - 3;
    t.data = data;
    number(w, value);
    w->tensors[value->id] = t;
    put_in_pool(w, value);
}

static void no_attrs(world *w, ir_node *node) {
    (void)w, (void)node;
}

static void cast_attrs(world *w, ir_node *node) {
    static const gqac_dtype types[] = {GQAC_F32, GQAC_I64, GQAC_I32, GQAC_BOOL, GQAC_F16};
    ir_attr_set_dtype(node, "to", types[dice(w, COUNT(types))]);
}

static void axis_attrs(world *w, ir_node *node) {
    ir_attr_set_int(node, "axis", dice(w, 3));
}

static void zero_axis_attrs(world *w, ir_node *node) {
    axis_attrs(w, node);
    ir_attr_set_int(node, "num_outputs", node->n_outputs);
}

static void perm_attrs(world *w, ir_node *node) {
    static const int64_t perms[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                       {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    if (dice(w, 4))
        (void)ir_attr_set_ints(node, "perm", 3, perms[dice(w, COUNT(perms))]);
}

static const struct {
    const char *op;
    int inputs, outputs;
    void (*attrs)(world *w, ir_node *node);
} kinds[] = {
    {"Identity", 1, 1, no_attrs},     {"Cast", 1, 1, cast_attrs},
    {"Cast", 1, 1, cast_attrs},       {"Reshape", 2, 1, no_attrs},
    {"Reshape", 2, 1, no_attrs},      {"Unsqueeze", 2, 1, no_attrs},
    {"Squeeze", 2, 1, no_attrs},      {"Flatten", 1, 1, axis_attrs},
    {"Transpose", 1, 1, perm_attrs},  {"Concat", 1, 1, axis_attrs},
    {"Concat", 2, 1, axis_attrs},     {"Split", 1, 1, zero_axis_attrs},
    {"Split", 1, 2, zero_axis_attrs}, {"Slice", 4, 1, no_attrs},
    {"Slice", 5, 1, no_attrs},        {"Expand", 2, 1, no_attrs},
    {"Tile", 2, 1, no_attrs},         {"Add", 2, 1, no_attrs},
    {"Sub", 2, 1, no_attrs},          {"Mul", 2, 1, no_attrs},
    {"Div", 2, 1, no_attrs},          {"Not", 1, 1, no_attrs},
    {"Where", 3, 1, no_attrs},        {"Neg", 1, 1, no_attrs},
    {"Shape", 1, 1, no_attrs},        {"Gather", 2, 1, axis_attrs},
    {"Equal", 2, 1, no_attrs},        {"Greater", 2, 1, no_attrs},
    {"Dropout", 1, 1, no_attrs},      {"Min", 2, 1, no_attrs},
    {"Softmax", 1, 1, no_attrs},      {"ReduceMax", 2, 1, no_attrs},
};

/* Types and evaluates a new node; removes it if it is not valid. */
static void keep_if_valid(world *w, ir_node *node, bool tame) {
    (void)number_outputs(w, node);
    bool ok = tame && w->n_values < MAX_VALUES / 2 &&
              (!op_of(node)->verify || op_of(node)->verify(node, NULL) == GQAC_OK) &&
              pass_infer_node(node, NULL) == GQAC_OK && run_node(w, node) == GQAC_OK;
    for (int i = 0; ok && i < node->n_outputs; i++)
        ok = gqac_tensor_count(tensor_of(w, node->outputs[i])) <= 512;
    if (!ok) {
        ir_node_remove(node);
        return;
    }
    for (int i = 0; i < node->n_outputs; i++)
        put_in_pool(w, node->outputs[i]);
}

static ir_value *any(world *w) {
    return w->pool[dice(w, (uint32_t)w->n_pool)];
}

static void add_node(world *w) {
    const uint32_t kind = dice(w, COUNT(kinds));
    ir_value *in[5];
    for (int i = 0; i < kinds[kind].inputs; i++)
        in[i] = any(w);
    const ir_schema *op = op_schema("", kinds[kind].op);
    ir_node *node = ir_node_create(w->f.module->graph, op, NULL, kinds[kind].inputs, in,
                                   kinds[kind].outputs, NULL);
    kinds[kind].attrs(w, node);
    ir_node_insert(node, NULL);
    keep_if_valid(w, node, true);
}

/* Returns one of two captured values; in one branch, an op is applied to it. */
static void add_if(world *w) {
    ir_value *cond = any(w), *a = any(w);
    ir_graph *branches[2];
    if (cond->type.dtype != GQAC_BOOL || a->type.dtype != GQAC_F32)
        return;
    ir_node *node =
        ir_node_create(w->f.module->graph, op_schema("", "If"), NULL, 1, &cond, 1, NULL);
    for (int i = 0; i < 2; i++) {
        branches[i] = ir_graph_create(w->f.module, "branch");
        ir_node *neg = ir_node_create(branches[i], op_schema("", i ? "Neg" : "Identity"), NULL, 1,
                                      &a, 1, NULL);
        ir_node_insert(neg, NULL);
        (void)number_outputs(w, neg);
        CU_ASSERT(ir_graph_set_results(branches[i], 1, neg->outputs, NULL));
    }
    ir_attr_set_graph(node, "then_branch", branches[0]);
    ir_attr_set_graph(node, "else_branch", branches[1]);
    ir_node_insert(node, NULL);
    keep_if_valid(w, node, true);
}

static bool generate(world *w, uint64_t seed) {
    static const char *const inputs = "graph @random(%x: f32[B,S,4], %y: f32[B,S,4], %h: f16[B,S,4]"
                                      ", %n: i64[B,S], %c: bool[B,S], %m: i32[B,S]) {\n"
                                      "  return\n}\n";
    memset(w, 0, sizeof *w);
    w->seed = seed;
    if (!fixture_open(&w->f, inputs))
        return false;
    ir_graph *graph = w->f.module->graph;
    for (int i = 0; i < graph->n_inputs; i++)
        fill_input(w, graph->inputs[i]);
    add_constants(w);
    for (int i = 0; i < 120; i++)
        if (dice(w, 12))
            add_node(w);
        else
            add_if(w);
    ir_value *results[POOL];
    int n = 0;
    for (int i = 0; i < w->n_pool; i++)
        if (w->pool[i]->def && dice(w, 2))
            results[n++] = w->pool[i];
    return ir_graph_set_results(graph, n, results, NULL);
}

/* ---- comparison ---------------------------------------------------------- */

static bool same_tensor(const gqac_tensor *a, const gqac_tensor *b) {
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    const size_t bytes = gqac_tensor_bytes(a);
    return bytes == 0 || memcmp(a->data, b->data, bytes) == 0;
}

/* Renumbers all values and evaluates again, with the same inputs. */
static gqac_status evaluate_again(world *w) {
    const ir_graph *graph = w->f.module->graph;
    gqac_tensor inputs[8];
    for (int i = 0; i < graph->n_inputs; i++)
        inputs[i] = w->tensors[graph->inputs[i]->id];
    w->n_values = 0;
    for (int i = 0; i < graph->n_inputs; i++) {
        number(w, graph->inputs[i]);
        w->tensors[graph->inputs[i]->id] = inputs[i];
    }
    (void)ir_graph_walk(w->f.module->graph, number_outputs, w);
    return run_graph(w, graph);
}

static bool check(uint64_t seed, const gqac_pass *pass, size_t *changed) {
    static world w;
    bool ok = generate(&w, seed);
    const ir_node *ret = w.f.module->graph->ret;
    const int n = ret->n_inputs;
    gqac_tensor before[POOL];
    for (int i = 0; i < n; i++)
        before[i] = *tensor_of(&w, ret->inputs[i].value);
    ok = ok && fixture_run(&w.f, &pass_infer) == GQAC_OK && fixture_run(&w.f, pass) == GQAC_OK;
    *changed += w.f.context.changed;
    ok = ok && evaluate_again(&w) == GQAC_OK && w.f.module->graph->ret->n_inputs == n;
    for (int i = 0; ok && i < n; i++) {
        ok = same_tensor(&before[i], tensor_of(&w, ret->inputs[i].value));
        if (!ok)
            printf("result %d ('%s') differs\n", i, w.f.module->graph->result_names[i]);
    }
    if (!ok) {
        char *text = fixture_text(&w.f);
        printf("seed %llu, pass %s: %s\n%s", (unsigned long long)seed, pass->name, w.f.diag.what,
               text ? text : "");
        gqac_free(text);
    }
    fixture_close(&w.f);
    return ok;
}

static void test_exact(void) {
    static const gqac_pass *const passes[] = {&pass_fold, &pass_simplify, &pass_tidy, &pass_order};
    const uint64_t seeds = unit_full() ? 20000 : 1000;
    for (size_t p = 0; p < COUNT(passes); p++) {
        size_t changed = 0;
        bool ok = true;
        for (uint64_t seed = 0; ok && seed < seeds; seed++)
            ok = check(seed, passes[p], &changed);
        CU_ASSERT(ok);
        CU_ASSERT(changed >= seeds); /* the pass did change these graphs */
    }
}

static const unit_case cases[] = {{"random graphs keep every bit", test_exact}};

int main(int argc, char **argv) {
    return unit_run("exact", cases, COUNT(cases), argc, argv);
}
