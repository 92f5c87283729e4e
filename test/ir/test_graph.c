/* Graphs: construction, uses, replacement, removal, moves, names, attributes, walks, schemas. */
#include "fixture.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"

typedef struct scene {
    gqac_arena *arena;
    ir_module *module;
    ir_graph *graph;
    ir_value *x, *y;
    ir_builder b;
} scene;

static scene scene_create(void) {
    scene s = {.arena = gqac_arena_create(0)};
    s.module = ir_module_create(s.arena, "a.onnx");
    s.graph = s.module->graph = ir_graph_create(s.module, "main");
    s.x = ir_graph_add_input(s.graph, "x", ir_type_unknown());
    s.y = ir_graph_add_input(s.graph, "y", ir_type_unknown());
    s.b = (ir_builder){.graph = s.graph};
    return s;
}

static ir_value *one(ir_builder *b, const ir_schema *op, const char *name, ir_value *a,
                     ir_value *c) {
    return ir_build_result(b, ir_build(b, op, name, c ? 2 : 1, (ir_value *[]){a, c}, 1), 0);
}

static int n_uses(const ir_value *value) {
    int n = 0;
    for (const ir_use *use = value->uses; use; use = use->next)
        n++;
    return n;
}

static bool valid(const scene *s) {
    gqac_diag diag = {0};
    if (ir_verify(s->module, &diag) == GQAC_OK)
        return true;
    printf("    %s: %s\n", diag.where, diag.what);
    return false;
}

static void test_uses(void) {
    scene s = scene_create();
    ir_value *a = one(&s.b, &op_add, "a", s.x, s.x);
    ir_value *n = one(&s.b, &op_neg, "n", a, NULL);
    ir_value *c = one(&s.b, &op_add, "c", n, s.x);
    ir_value *results[] = {c, s.x, c};
    CU_ASSERT(ir_graph_set_results(s.graph, 3, results, (const char *[]){"out", NULL, NULL}));
    CU_ASSERT_STRING_EQUAL(s.graph->result_names[0], "out");
    CU_ASSERT_STRING_EQUAL(s.graph->result_names[1], "x");
    CU_ASSERT_EQUAL(n_uses(s.x), 4);
    CU_ASSERT_EQUAL(n_uses(c), 2);
    CU_ASSERT(valid(&s));

    ir_value_replace(s.x, s.y);
    CU_ASSERT(ir_value_unused(s.x));
    CU_ASSERT_EQUAL(n_uses(s.y), 4);
    CU_ASSERT(valid(&s));
    ir_value_replace(s.y, s.y);
    ir_value_replace(s.x, s.y);
    CU_ASSERT_EQUAL(n_uses(s.y), 4);

    ir_value_replace(c, n);
    CU_ASSERT_STRING_EQUAL(s.graph->result_names[0], "out");
    ir_node_set_input(c->def, 0, NULL);
    CU_ASSERT_EQUAL(n_uses(n), 2);
    ir_node_remove(c->def);
    CU_ASSERT_EQUAL(n_uses(s.y), 3);
    CU_ASSERT_PTR_EQUAL(s.graph->last, n->def);
    CU_ASSERT(valid(&s));

    ir_graph_remove_input(s.graph, 0);
    CU_ASSERT(s.graph->n_inputs == 1 && s.graph->inputs[0] == s.y);
    for (int i = 0; i < 20; i++)
        CU_ASSERT_PTR_NOT_NULL(ir_graph_add_input(s.graph, "more", ir_type_unknown()));
    CU_ASSERT(ir_graph_set_results(s.graph, 0, NULL, NULL));
    CU_ASSERT(ir_value_unused(n) && valid(&s));
    gqac_arena_free(s.arena);
}

static void test_set_inputs(void) {
    scene s = scene_create();
    ir_node *c = ir_build(&s.b, &op_concat, "c", 2, (ir_value *[]){s.x, s.y}, 1);
    ir_attr_set_int(c, "axis", 0);
    CU_ASSERT(ir_node_set_inputs(c, 3, (ir_value *[]){s.y, s.x, s.y}));
    CU_ASSERT(c->n_inputs == 3 && n_uses(s.x) == 1 && n_uses(s.y) == 2 && valid(&s));
    CU_ASSERT(ir_node_set_inputs(c, 1, (ir_value *[]){ir_node_input(c, 0)}));
    CU_ASSERT(c->n_inputs == 1 && ir_value_unused(s.x) && n_uses(s.y) == 1 && valid(&s));
    gqac_arena_free(s.arena);
}

static void test_order(void) {
    scene s = scene_create();
    ir_value *a = one(&s.b, &op_neg, "a", s.x, NULL);
    ir_value *c = one(&s.b, &op_neg, "c", s.x, NULL);
    s.b.before = c->def;
    ir_value *b = one(&s.b, &op_neg, "b", a, NULL);
    CU_ASSERT(a->def->next == b->def && b->def->next == c->def && c->def->prev == b->def);
    s.b.before = a->def;
    ir_value *first = one(&s.b, &op_neg, "first", s.x, NULL);
    CU_ASSERT(s.graph->first == first->def && a->def->prev == first->def && valid(&s));
    ir_node_move(c->def, s.graph, a->def);
    CU_ASSERT(first->def->next == c->def && c->def->next == a->def && s.graph->last == b->def);
    ir_node_remove(first->def);
    CU_ASSERT(s.graph->first == c->def && !c->def->prev && valid(&s));

    /* Unused outputs, and names for the others. */
    const char *names[] = {"", "k", NULL};
    ir_value *in[] = {s.x, NULL, NULL, s.y, s.y, a, b};
    ir_node *gqa = ir_node_create(s.graph, &op_gqa, "attn", 7, in, 3, names);
    ir_node_insert(gqa, NULL);
    ir_attr_set_int(gqa, "num_heads", 8);
    ir_attr_set_int(gqa, "kv_num_heads", 2);
    CU_ASSERT(!ir_node_output(gqa, 0) && !ir_node_output(gqa, 9) && !ir_node_input(gqa, 1));
    CU_ASSERT_STRING_EQUAL(ir_node_output(gqa, 1)->name, "k");
    CU_ASSERT_STRING_EQUAL(ir_node_output(gqa, 2)->name, "attn");
    CU_ASSERT_PTR_NULL(ir_node_input(NULL, 0));
    CU_ASSERT(valid(&s));
    gqac_arena_free(s.arena);
}

static ir_graph *branch(scene *s, const char *name, ir_value *outer) {
    ir_graph *graph = ir_graph_create(s->module, name);
    ir_builder b = {.graph = graph};
    ir_value *r = one(&b, &op_add, name, outer, ir_build_f32(&b, 1.5f));
    CU_ASSERT(b.status == GQAC_OK && ir_graph_set_results(graph, 1, &r, NULL));
    return graph;
}

static gqac_status note(void *arg, ir_node *node) {
    gqac_str_printf(arg, "%s ", node->op->name);
    return GQAC_OK;
}

static gqac_status stop(void *arg, ir_node *node) {
    (void)arg;
    return node->op == &op_add ? GQAC_LIMIT : GQAC_OK;
}

static gqac_status remove_ifs(void *arg, ir_node *node) {
    (void)arg;
    if (node->op == &op_if)
        ir_node_remove(node);
    return GQAC_OK;
}

static void test_nested(void) {
    scene s = scene_create();
    ir_value *n = one(&s.b, &op_neg, "n", s.x, NULL);
    ir_node *node = ir_build(&s.b, &op_if, "if", 1, &s.y, 1);
    ir_attr_set_graph(node, "then_branch", branch(&s, "t", n));
    ir_attr_set_graph(node, "else_branch", branch(&s, "e", s.x));
    ir_value *cast = one(&s.b, &op_cast, "cast", ir_node_output(node, 0), NULL);
    ir_attr_set_dtype(cast->def, "to", GQAC_F16);
    CU_ASSERT(valid(&s));
    CU_ASSERT_EQUAL(n_uses(n), 1);

    gqac_str seen = {0};
    CU_ASSERT_EQUAL(ir_graph_walk(s.graph, note, &seen), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(seen.text, "Neg If Add Add Cast ");
    gqac_str_free(&seen);
    CU_ASSERT_EQUAL(ir_graph_walk_all(s.graph, note, &seen), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(seen.text, "Neg If Add return Add return Cast return ");
    gqac_str_free(&seen);
    CU_ASSERT_EQUAL(ir_graph_walk(s.graph, stop, NULL), GQAC_LIMIT);

    /* Inlining: the nodes and constants of a branch move out of it, with their uses. */
    ir_graph *then = ir_attr_get(node, "then_branch")->graph;
    ir_value *result = ir_node_input(then->ret, 0);
    ir_node_move(then->first, s.graph, node);
    CU_ASSERT(ir_graph_move_constants(then, s.graph));
    CU_ASSERT_EQUAL(then->n_constants, 0);
    ir_value_replace(ir_node_output(node, 0), result);
    CU_ASSERT(ir_graph_walk(s.graph, remove_ifs, NULL) == GQAC_OK && valid(&s));
    CU_ASSERT_EQUAL(n_uses(s.x), 1); /* the other branch no longer uses it */
    CU_ASSERT_EQUAL(n_uses(result), 1);
    ir_build_i64(&s.b, 3);
    CU_ASSERT_EQUAL(ir_graph_sweep_constants(s.graph), 1);
    CU_ASSERT_EQUAL(s.graph->n_constants, 1);
    gqac_arena_free(s.arena);
}

static void test_names(void) {
    scene s = scene_create();
    static const char *const expected[] = {"a", "a.2", "a.1", "a.3", "v", "v.1", "x.1"};
    static const char *const wanted[] = {"a", "a.2", "a", "a", "", NULL, "x"};
    for (size_t i = 0; i < COUNT(wanted); i++)
        CU_ASSERT_STRING_EQUAL(ir_graph_add_input(s.graph, wanted[i], ir_type_unknown())->name,
                               expected[i]);
    CU_ASSERT(ir_value_rename(s.x, "a"));
    CU_ASSERT_STRING_EQUAL(s.x->name, "a.4");
    CU_ASSERT(valid(&s));
    clock_t start = clock();
    ir_value *last = NULL;
    for (int i = 0; i < 1000000; i++)
        last = ir_const_i64(s.graph, "many", i);
    CU_ASSERT_STRING_EQUAL(last->name, "many.999999");
    /* Linear time takes a second, anything worse hours; the limit allows for slow machines. */
    CU_ASSERT((double)(clock() - start) / CLOCKS_PER_SEC < 60);
    gqac_arena_free(s.arena);
}

static void test_attributes(void) {
    scene s = scene_create();
    ir_node *k = ir_build(&s.b, &op_kitchen, NULL, 0, NULL, 1);
    CU_ASSERT_STRING_EQUAL(ir_node_output(k, 0)->name, "kitchen");
    CU_ASSERT(ir_attr_int(k, "i") == 7 && ir_attr_float(k, "f") == 0.5f);
    CU_ASSERT(ir_attr_is_set(k, "s") && !ir_attr_is_set(k, "ints"));
    int64_t ints[] = {1, 2};
    float floats[] = {1, 2};
    char text[] = "text";
    const char *strings[] = {text};
    gqac_tensor tensor = {.dtype = GQAC_F32, .rank = 1, .dims = {2}, .data = floats};
    ir_attr_set_int(k, "i", 8);
    ir_attr_set_float(k, "f", 2);
    ir_attr_set_dtype(k, "d", GQAC_I4);
    CU_ASSERT(ir_attr_set_string(k, "s", text) && ir_attr_set_strings(k, "strings", 1, strings));
    CU_ASSERT(ir_attr_set_ints(k, "ints", 2, ints) && ir_attr_set_floats(k, "floats", 2, floats));
    CU_ASSERT(ir_attr_set_tensor(k, "t", &tensor));
    text[0] = 'n';
    ints[0] = 5;
    tensor.rank = 0;
    CU_ASSERT(ir_attr_int(k, "i") == 8 && ir_attr_float(k, "f") == 2);
    CU_ASSERT_STRING_EQUAL(ir_attr_get(k, "s")->s, "text");
    CU_ASSERT_STRING_EQUAL(ir_attr_get(k, "strings")->strings[0], "text");
    CU_ASSERT(ir_attr_get(k, "ints")->ints[0] == 1 && ir_attr_get(k, "t")->tensor->rank == 1);
    ir_attr_edit(k, "i")->i = 9;
    CU_ASSERT_EQUAL(ir_attr_int(k, "i"), 9);
    ir_attr_set_int(NULL, "i", 1); /* the NULL of a failed builder is ignored */
    CU_ASSERT(ir_attr_set_ints(NULL, "ints", 2, ints) && valid(&s));
    gqac_arena_free(s.arena);
}

static void test_constants(void) {
    scene s = scene_create();
    int64_t out[4], n;
    CU_ASSERT(ir_const_ints(ir_const_i64(s.graph, "c", -3), 4, out, &n) && n == 1 && out[0] == -3);
    int64_t list[] = {1, INT64_MIN, 3};
    ir_value *c = ir_const_i64s(s.graph, "c", 3, list);
    CU_ASSERT_STRING_EQUAL(c->name, "c.1");
    CU_ASSERT(ir_const_ints(c, 3, out, &n) && n == 3 && out[1] == INT64_MIN);
    CU_ASSERT_FALSE(ir_const_ints(c, 2, out, &n));
    CU_ASSERT(ir_const_ints(ir_const_i64s(s.graph, "e", 0, NULL), 0, out, &n) && n == 0);
    CU_ASSERT_FALSE(ir_const_ints(ir_const_f32(s.graph, "f", 1), 4, out, &n));
    CU_ASSERT_FALSE(ir_const_ints(s.x, 4, out, &n));
    CU_ASSERT_FALSE(ir_const_ints(NULL, 4, out, &n));
    unsigned char raw[9] = {0, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0};
    gqac_tensor view = {.dtype = GQAC_I32, .rank = 1, .dims = {2}, .data = raw + 1};
    ir_value *v = ir_graph_add_constant(s.graph, "view", &view);
    view.rank = 7;
    CU_ASSERT(ir_const_ints(v, 4, out, &n) && n == 2 && out[0] == -1 && out[1] == 2);
    CU_ASSERT_PTR_EQUAL(v->constant->data, raw + 1);
    CU_ASSERT(valid(&s));
    gqac_arena_free(s.arena);
}

static void test_types(void) {
    scene s = scene_create();
    const ir_dim *dims[] = {ir_dim_symbol(s.module->dims, "B"), NULL};
    ir_type a = ir_type_make(s.module, GQAC_F16, 2, dims), b = a, c = ir_type_unknown();
    CU_ASSERT(ir_type_equal(&a, &b) && !ir_type_equal(&a, &c) && ir_type_equal(&c, &c));
    dims[1] = dims[0];
    b = ir_type_make(s.module, GQAC_F16, 2, dims);
    CU_ASSERT_FALSE(ir_type_equal(&a, &b));
    CU_ASSERT_PTR_NULL(a.dims[1]);
    gqac_arena_free(s.arena);
}

static void test_schemas(void) {
    static const struct {
        const char *list;
        int least, most;
    } rows[] = {{"", 0, 0},          {"a", 1, 1},
                {"a b?", 1, 2},      {"a? b", 2, 2},
                {"a* ", 0, INT_MAX}, {"a b? c*", 1, INT_MAX},
                {"a+", 1, INT_MAX},  {"  a  b+", 2, INT_MAX}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        int least, most;
        ir_schema_arity(rows[i].list, &least, &most);
        CU_ASSERT(least == rows[i].least && most == rows[i].most);
    }
    static const struct {
        int index;
        const char *name;
        ir_arity kind;
    } names[] = {{0, "query", IR_REQUIRED},
                 {1, "key", IR_OPTIONAL},
                 {2, "rest[0]", IR_VARIADIC},
                 {5, "rest[3]", IR_VARIADIC}};
    char name[32];
    for (size_t i = 0; i < COUNT(names); i++) {
        ir_schema_name("query key? rest*", names[i].index, name, sizeof name);
        CU_ASSERT_STRING_EQUAL(name, names[i].name);
        CU_ASSERT_EQUAL(ir_schema_kind("query key? rest*", names[i].index), names[i].kind);
    }
    ir_schema_name("a b", 2, name, sizeof name);
    CU_ASSERT_STRING_EQUAL(name, "#2");
    CU_ASSERT_EQUAL(ir_schema_kind("a b", 2), IR_NONE);
    CU_ASSERT_EQUAL(ir_schema_index("query key? rest*", "key"), 1);
    CU_ASSERT_EQUAL(ir_schema_index("query key? rest*", "ke"), -1);
}

#ifdef GQAC_TEST_ALLOC
static gqac_status build_all(gqac_arena *arena, gqac_diag *diag) {
    ir_module *module = ir_module_create(arena, "a.onnx");
    ir_graph *graph = module ? ir_graph_create(module, "g") : NULL;
    if (!graph)
        return GQAC_NO_MEMORY;
    module->graph = graph;
    ir_builder b = {.graph = graph, .diag = diag};
    ir_value *x = ir_graph_add_input(graph, "x", ir_type_unknown());
    if (!x)
        return GQAC_NO_MEMORY;
    for (int i = 0; i < 50; i++)
        x = one(&b, &op_add, "x", x, i % 2 ? ir_build_i64(&b, i) : ir_build_f32(&b, 1));
    ir_build_i64s(&b, 2, (int64_t[]){1, 2});
    if (b.status != GQAC_OK)
        return b.status;
    return ir_graph_set_results(graph, 1, &x, NULL) ? ir_verify(module, diag) : GQAC_NO_MEMORY;
}

static void test_no_memory(void) {
    for (size_t n = 1;; n++) {
        gqac_diag diag = {0};
        gqac_alloc_fail_at(n, 0);
        gqac_arena *arena = gqac_arena_create(0);
        gqac_status status = arena ? build_all(arena, &diag) : GQAC_NO_MEMORY;
        gqac_arena_free(arena);
        bool done = gqac_alloc_calls() < n;
        CU_ASSERT_EQUAL(status, done ? GQAC_OK : GQAC_NO_MEMORY);
        if (done || status == GQAC_OK)
            break;
    }
    gqac_alloc_fail_at(0, 0);
}
#endif

static const unit_case cases[] = {
    {"uses", test_uses},           {"set inputs", test_set_inputs}, {"order", test_order},
    {"nested", test_nested},       {"names", test_names},           {"attributes", test_attributes},
    {"constants", test_constants}, {"types", test_types},           {"schemas", test_schemas},
#ifdef GQAC_TEST_ALLOC
    {"no memory", test_no_memory},
#endif
};

int main(int argc, char **argv) {
    return unit_run("ir graph", cases, COUNT(cases), argc, argv);
}
