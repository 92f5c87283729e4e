/* The verifier: a valid module passes, and each violated invariant is reported by name. */
#include "fixture.h"

#include <stdio.h>

#include "base/alloc.h"

/* graph(%x, %y, %t: token) { %c = 1; a = Add x c; i = If y {then: Add a c, else: Neg x};
 * k = kitchen a; u = append t, k; return a, i, u } */
typedef struct scene {
    gqac_arena *arena;
    ir_module *module;
    ir_graph *graph, *inner;
    ir_value *x, *y, *t, *c;
    ir_node *add, *branch, *kitchen, *append, *deep;
} scene;

static ir_graph *branch(scene *s, const ir_schema *op, ir_value *a, ir_value *b) {
    ir_graph *graph = ir_graph_create(s->module, op->name);
    ir_builder builder = {.graph = graph};
    s->deep = ir_build(&builder, op, "deep", b ? 2 : 1, (ir_value *[]){a, b}, 1);
    ir_value *r = ir_node_output(s->deep, 0);
    ir_graph_set_results(graph, 1, &r, NULL);
    return graph;
}

static scene scene_create(void) {
    scene s = {.arena = gqac_arena_create(0)};
    s.module = ir_module_create(s.arena, NULL);
    s.graph = s.module->graph = ir_graph_create(s.module, "main");
    s.x = ir_graph_add_input(s.graph, "x", ir_type_unknown());
    s.y = ir_graph_add_input(s.graph, "y", ir_type_unknown());
    s.t = ir_graph_add_input(s.graph, "t", ir_type_make(s.module, GQAC_TOKEN, 0, NULL));
    s.c = ir_const_i64s(s.graph, "c", 2, (int64_t[]){1, 2});
    ir_builder b = {.graph = s.graph};
    s.add = ir_build(&b, &op_add, "add", 2, (ir_value *[]){s.x, s.c}, 1);
    ir_value *a = ir_node_output(s.add, 0);
    s.branch = ir_build(&b, &op_if, "if", 1, &s.y, 1);
    ir_attr_set_graph(s.branch, "else_branch", branch(&s, &op_neg, s.x, NULL));
    s.inner = branch(&s, &op_add, a, s.c);
    ir_attr_set_graph(s.branch, "then_branch", s.inner);
    s.kitchen = ir_build(&b, &op_kitchen, "k", 1, &a, 1);
    ir_value *in[] = {s.t, ir_node_output(s.kitchen, 0)};
    s.append = ir_build(&b, &op_append, "append", 2, in, 1);
    ir_value *u = ir_node_output(s.append, 0);
    u->type = ir_type_make(s.module, GQAC_TOKEN, 0, NULL);
    ir_value *results[] = {a, ir_node_output(s.branch, 0), u};
    ir_graph_set_results(s.graph, 3, results, NULL);
    return s;
}

/* ---- one way to violate each invariant ----------------------------------- */

static void swap_order(scene *s) {
    ir_node_move(s->kitchen, s->graph, s->add);
}
static void use_later_in_nested(scene *s) {
    ir_node_set_input(s->deep, 0, ir_node_output(s->kitchen, 0));
}
static void use_own_result_in_nested(scene *s) {
    ir_node_set_input(s->deep, 0, ir_node_output(s->branch, 0));
}
static void use_inner_value_outside(scene *s) {
    ir_node_set_input(s->kitchen, 0, ir_node_output(s->deep, 0));
}
static void use_value_of_detached(scene *s) {
    ir_node *n = ir_node_create(s->graph, &op_neg, "n", 1, &s->x, 1, NULL);
    ir_node_set_input(s->kitchen, 0, ir_node_output(n, 0));
}
static void leave_detached_user(scene *s) {
    (void)ir_node_create(s->graph, &op_neg, "n", 1, &s->x, 1, NULL);
}
static void drop_absent_required(scene *s) {
    ir_node_set_input(s->add, 1, NULL);
}
static void too_few_inputs(scene *s) {
    ir_node_set_input(s->add, 1, NULL);
    s->add->n_inputs = 1;
}
static void too_many_inputs(scene *s) {
    s->add->op = &op_neg;
}
static void too_few_outputs(scene *s) {
    static const ir_schema two = {.name = "two", .domain = "", .inputs = "a b", .outputs = "a b"};
    s->append->op = &two;
}
static void too_many_outputs(scene *s) {
    static const ir_schema none = {.name = "none", .domain = "", .inputs = "a", .outputs = ""};
    s->branch->op = &none;
}
static void unset_required_attr(scene *s) {
    ir_attr_edit(s->branch, "then_branch")->set = false;
    ir_attr_edit(s->branch, "then_branch")->graph = NULL;
}
static void unset_default_attr(scene *s) {
    ir_attr_edit(s->kitchen, "i")->set = false;
}
static void attr_without_value(scene *s) {
    ir_attr_edit(s->kitchen, "s")->s = NULL;
}
static void list_without_values(scene *s) {
    *ir_attr_edit(s->kitchen, "ints") = (ir_attr){.set = true, .count = 3};
}
static void graph_not_set(scene *s) {
    ir_attr_edit(s->kitchen, "g")->graph = s->inner;
}
static void graph_shared(scene *s) {
    *ir_attr_edit(s->kitchen, "g") = (ir_attr){.set = true, .graph = s->inner};
}
static void graph_without_parent(scene *s) {
    s->inner->parent = NULL;
}
static void graph_of_other_module(scene *s) {
    s->inner->module = ir_module_create(s->arena, NULL);
}
static void tensor_attr_without_data(scene *s) {
    gqac_tensor t = {.dtype = GQAC_F32, .rank = 1, .dims = {2}};
    ir_attr_set_tensor(s->kitchen, "t", &t);
}
static void same_name(scene *s) {
    s->x->name = s->y->name;
}
static void name_not_claimed(scene *s) {
    s->x->name = "nobody";
}
static void no_name(scene *s) {
    s->x->name = NULL;
}
static void constant_type(scene *s) {
    s->c->type.dtype = GQAC_I32;
}
static void constant_shape(scene *s) {
    const ir_dim *three = ir_dim_const(s->module->dims, 3);
    s->c->type = ir_type_make(s->module, GQAC_I64, 1, &three);
}
static void constant_rank(scene *s) {
    s->c->type.rank = 0;
}
static void constant_without_tensor(scene *s) {
    s->c->constant = NULL;
}
static void constant_without_data(scene *s) {
    ((gqac_tensor *)(uintptr_t)s->c->constant)->data = NULL;
}
static void constant_token(scene *s) {
    ((gqac_tensor *)(uintptr_t)s->c->constant)->dtype = GQAC_TOKEN;
    s->c->type.dtype = GQAC_TOKEN;
}
static void input_is_constant(scene *s) {
    s->x->constant = s->c->constant;
}
static void type_dtype(scene *s) {
    s->x->type.dtype = GQAC_DTYPE_COUNT;
}
static void type_rank(scene *s) {
    s->x->type.rank = GQAC_MAX_RANK + 1;
}
static void type_dims(scene *s) {
    s->x->type.rank = 2;
}
static void token_used_twice(scene *s) {
    ir_node_set_input(s->add, 1, s->t);
}
static void token_used_by_one_node_twice(scene *s) {
    ir_node_set_input(s->append, 1, s->t);
}
static void node_graph(scene *s) {
    s->add->graph = s->inner;
}
static void value_graph(scene *s) {
    s->x->graph = s->inner;
}
static void value_def(scene *s) {
    ir_node_output(s->add, 0)->def = s->kitchen;
}
static void value_result(scene *s) {
    ir_node_output(s->add, 0)->result = 1;
}
static void value_twice(scene *s) {
    s->graph->inputs[1] = s->x;
}
static void prev_broken(scene *s) {
    s->kitchen->prev = s->add;
}
static void last_broken(scene *s) {
    s->graph->last = s->add;
}
static void cyclic(scene *s) {
    s->append->next = s->add;
}
static void use_not_listed(scene *s) {
    s->x->uses = s->x->uses->next;
}
static void use_of_other_value(scene *s) {
    s->add->inputs[0].value = s->y;
}
static void use_prev_broken(scene *s) {
    s->x->uses->next->prev = NULL;
}
static void use_node_broken(scene *s) {
    s->add->inputs[0].node = s->kitchen;
}
static void use_is_no_operand(scene *s) {
    ir_use *stray = GQAC_ARENA_NEW(s->arena, ir_use);
    *stray = (ir_use){.value = s->y, .node = s->add, .next = s->y->uses};
    s->y->uses->prev = stray;
    s->y->uses = stray;
}
static void no_return(scene *s) {
    s->graph->ret = s->add;
}
static void return_amid(scene *s) {
    ir_node *r = ir_node_create(s->graph, &ir_return_schema, NULL, 0, NULL, 0, NULL);
    ir_node_insert(r, s->kitchen);
}
static void absent_result(scene *s) {
    ir_node_set_input(s->graph->ret, 0, NULL);
}
static void result_without_name(scene *s) {
    s->graph->result_names[1] = NULL;
}
static void nested_too_deep(scene *s) {
    ir_graph *graph = s->inner;
    for (int i = 0; i < 20; i++) {
        ir_builder b = {.graph = graph};
        ir_node *node = ir_build(&b, &op_kitchen, "k", 0, NULL, 0);
        graph = ir_graph_create(s->module, "deeper");
        ir_attr_set_graph(node, "g", graph);
    }
}

typedef struct broken {
    void (*breaks)(scene *s);
    const char *says;
} broken;

static const broken all[] = {
    {swap_order, "before it is defined"},
    {use_later_in_nested, "before it is defined"},
    {use_own_result_in_nested, "before it is defined"},
    {use_inner_value_outside, "outside its graph"},
    {use_value_of_detached, "before it is defined"},
    {leave_detached_user, "a node that is in no graph"},
    {drop_absent_required, "not optional"},
    {too_few_inputs, "1 inputs"},
    {too_many_inputs, "2 inputs"},
    {too_few_outputs, "1 outputs"},
    {too_many_outputs, "1 outputs"},
    {unset_required_attr, "'then_branch' is not set"},
    {unset_default_attr, "'i' is not set"},
    {attr_without_value, "'s' has no value"},
    {list_without_values, "'ints' has no value"},
    {graph_not_set, "'g' has a graph but is not set"},
    {graph_shared, "refers to another module or node"},
    {graph_without_parent, "refers to another module or node"},
    {graph_of_other_module, "refers to another module or node"},
    {tensor_attr_without_data, "neither data nor digest"},
    {same_name, "does not own its name"},
    {name_not_claimed, "does not own its name"},
    {no_name, "no name"},
    {constant_type, "is not that of its tensor"},
    {constant_shape, "is not that of its tensor"},
    {constant_rank, "is not that of its tensor"},
    {constant_without_tensor, "has no tensor"},
    {constant_without_data, "neither data nor digest"},
    {constant_token, "out of range"},
    {input_is_constant, "is a constant"},
    {type_dtype, "element type out of range"},
    {type_rank, "rank out of range"},
    {type_dims, "rank out of range"},
    {token_used_twice, "used twice"},
    {token_used_by_one_node_twice, "used twice"},
    {node_graph, "refers to another graph than"},
    {value_graph, "refers to another graph or node"},
    {value_def, "refers to another graph or node"},
    {value_result, "refers to another graph or node"},
    {value_twice, "defined twice"},
    {prev_broken, "list of nodes is broken"},
    {last_broken, "last node of the list"},
    {cyclic, "list of nodes is broken"},
    {use_not_listed, "use"},
    {use_of_other_value, "use"},
    {use_prev_broken, "use list"},
    {use_node_broken, "operand refers to another node"},
    {use_is_no_operand, "is not an operand"},
    {no_return, "no return node"},
    {return_amid, "returns before the end"},
    {absent_result, "not optional"},
    {result_without_name, "result 1 has no name"},
    {nested_too_deep, "nested more than"},
};

static void test_sound(void) {
    scene s = scene_create();
    gqac_diag diag = {0};
    CU_ASSERT_EQUAL(ir_verify(s.module, &diag), GQAC_OK);
    CU_ASSERT_STRING_EQUAL(diag.what, "");
    gqac_arena_free(s.arena);
}

static void test_broken(void) {
    for (size_t i = 0; i < COUNT(all); i++) {
        scene s = scene_create();
        gqac_diag diag = {0};
        all[i].breaks(&s);
        CU_ASSERT_EQUAL(ir_verify(s.module, &diag), GQAC_INTERNAL);
        if (!strstr(diag.what, all[i].says)) {
            printf("    %s: '%s', expected '%s'\n", diag.where, diag.what, all[i].says);
            CU_FAIL("another message");
        }
        gqac_arena_free(s.arena);
    }
}

static void test_no_graph(void) {
    scene s = scene_create();
    s.module->graph = NULL;
    CU_ASSERT_EQUAL(ir_verify(s.module, NULL), GQAC_INTERNAL);
    gqac_arena_free(s.arena);
}

static void test_place(void) {
    scene s = scene_create();
    gqac_diag diag = {0};
    use_later_in_nested(&s);
    CU_ASSERT_EQUAL(ir_verify(s.module, &diag), GQAC_INTERNAL);
    CU_ASSERT_STRING_EQUAL(diag.where,
                           "graph @main, node 'if' (If), graph @Add, node 'deep' (Add)");
    gqac_arena_free(s.arena);
}

#ifdef GQAC_TEST_ALLOC
static void test_no_memory(void) {
    scene s = scene_create();
    for (size_t n = 1;; n++) {
        gqac_alloc_fail_at(n, 0);
        gqac_status status = ir_verify(s.module, NULL);
        bool done = gqac_alloc_calls() < n;
        CU_ASSERT_EQUAL(status, done ? GQAC_OK : GQAC_NO_MEMORY);
        if (done || status == GQAC_OK)
            break;
    }
    gqac_alloc_fail_at(0, 0);
    gqac_arena_free(s.arena);
}
#endif

static const unit_case cases[] = {
    {"sound", test_sound},         {"broken", test_broken},
    {"no graph", test_no_graph},   {"place", test_place},
#ifdef GQAC_TEST_ALLOC
    {"no memory", test_no_memory},
#endif
};

int main(int argc, char **argv) {
    return unit_run("ir verify", cases, COUNT(cases), argc, argv);
}
